/* SPDX-License-Identifier: Apache-2.0 */
/* Proposals: what the balancer would do, settled by a person or at once, and what came of it. The
 * work itself is done by the commands that a person would send, inside the one that settles it. */
#include "base/mem.h"
#include "directory/internal.h"
#include "directory/operation.h"

#include <inttypes.h>
#include <stdio.h>

enum { EXPIRE_A_COMMAND = 16 };

static const struct dir_proposal *find(const struct apply *a, uint64_t id)
{
    uint8_t key[8];
    return ptree_get(&a->s->proposals, ptree_u64_key(id, key));
}

static struct dir_proposal *copy_of(const struct dir_proposal *p)
{
    return row_copy(p, sizeof *p);
}

static void put(struct apply *a, struct dir_proposal *p)
{
    p->revision = a->rev;
    dir_unref(a->proposal);
    a->proposal = dir_ref(p);
    apply_put(a, p);
    a->changed = true;
}

/* --- doing it --- */

/* As if this command had come by itself; the same principal, the same revision. */
static enum err_code
run(struct apply *a, const Cadastre__Command *like, enum err_code (*handler)(struct apply *a))
{
    const Cadastre__Command *outer = a->cmd;
    a->cmd = like;
    enum err_code code = handler(a);
    a->cmd = outer;
    return code;
}

static Cadastre__Command inner_command(const struct apply *a)
{
    Cadastre__Command c;
    cadastre__command__init(&c);
    c.principal = a->cmd->principal;
    c.time_ms = a->cmd->time_ms;
    return c;
}

/* Of one partition, as `p` has it. */
static Cadastre__OperationStart
operation_of(const struct dir_proposal *p, uint64_t partition, enum dir_operation_kind kind)
{
    Cadastre__OperationStart m;
    bool back = partition == p->with;
    cadastre__operation_start__init(&m);
    m.kind = kind;
    m.partition = partition;
    m.from = text_lent(back ? p->to_name : p->from_name);
    m.to = text_lent(back ? p->from_name : p->to_name);
    m.role = DIR_ROLE_SYNC;
    m.class_ = p->class_of;
    m.reason = text_lent(p->reason);
    m.has_expect_epoch = partition == p->partition;
    m.expect_epoch = p->epoch;
    return m;
}

static enum err_code start(struct apply *a, Cadastre__OperationStart *m, uint64_t *ret_operation)
{
    Cadastre__Command c = inner_command(a);
    c.body_case = CADASTRE__COMMAND__BODY_OPERATION_START;
    c.operation_start = m;
    enum err_code code = run(a, &c, apply_operation_start);
    if (code == ERR_OK) {
        *ret_operation = a->operation->id;
    }
    return code;
}

/* Both or neither: the second is judged before the first begins, and they share nothing. */
static enum err_code swap(struct apply *a, struct dir_proposal *p)
{
    Cadastre__OperationStart there = operation_of(p, p->partition, DIR_OPERATION_MOVE);
    Cadastre__OperationStart back = operation_of(p, p->with, DIR_OPERATION_MOVE);
    Cadastre__Command c = inner_command(a);
    c.body_case = CADASTRE__COMMAND__BODY_OPERATION_START;
    c.operation_start = &back;
    enum err_code code = run(a, &c, operation_check_start);
    if (code == ERR_OK) {
        code = start(a, &there, &p->operation);
    }
    if (code == ERR_OK) {
        code = start(a, &back, &p->with_operation);
    }
    return code;
}

static enum err_code split(struct apply *a, const struct dir_proposal *p)
{
    Cadastre__Command c = inner_command(a);
    Cadastre__Split m;
    ProtobufCBinaryData at[DIR_PROPOSAL_KEYS_MAX];
    uint8_t keys[DIR_PROPOSAL_KEYS_MAX][DIR_ROUTING_KEY_MAX];
    cadastre__split__init(&m);
    for (uint32_t i = 0; i < p->key_count; i++) {
        memcpy(keys[i], p->keys[i].bytes, p->keys[i].len);
        at[i] = (ProtobufCBinaryData){p->keys[i].len, keys[i]};
    }
    m.partition = p->partition;
    m.at = at;
    m.n_at = p->key_count;
    m.has_expect_epoch = true;
    m.expect_epoch = p->epoch;
    c.body_case = CADASTRE__COMMAND__BODY_SPLIT;
    c.split = &m;
    return run(a, &c, apply_split);
}

static enum err_code merge(struct apply *a, const struct dir_proposal *p)
{
    Cadastre__Command c = inner_command(a);
    Cadastre__Merge m;
    cadastre__merge__init(&m);
    m.partition = p->partition;
    m.with = p->with;
    m.has_expect_epoch = true;
    m.expect_epoch = p->epoch;
    c.body_case = CADASTRE__COMMAND__BODY_MERGE;
    c.merge = &m;
    return run(a, &c, apply_merge);
}

static enum err_code execute(struct apply *a, struct dir_proposal *p)
{
    static const uint8_t operations[] = {
        [DIR_PROPOSAL_MOVE] = DIR_OPERATION_MOVE,
        [DIR_PROPOSAL_TRANSFER] = DIR_OPERATION_TRANSFER,
        [DIR_PROPOSAL_ADD_REPLICA] = DIR_OPERATION_ADD_REPLICA,
        [DIR_PROPOSAL_REMOVE_REPLICA] = DIR_OPERATION_REMOVE_REPLICA,
    };
    enum err_code code;
    p->state = DIR_PROPOSAL_RUNNING;
    p->settled_ms = a->s->time_ms;
    switch ((int)p->kind) {
    case DIR_PROPOSAL_SPLIT:
    case DIR_PROPOSAL_MERGE:
        code = p->kind == DIR_PROPOSAL_SPLIT ? split(a, p) : merge(a, p);
        p->state = DIR_PROPOSAL_DONE;
        p->ended_ms = a->s->time_ms;
        return code;
    case DIR_PROPOSAL_SWAP:
        return swap(a, p);
    case DIR_PROPOSAL_ADVICE:
        return err_set(&a->err, ERR_INVALID_REQUEST,
                       "it is advice for a person: the directory has nothing to do");
    default: {
        Cadastre__OperationStart m =
            operation_of(p, p->partition, (enum dir_operation_kind)operations[p->kind]);
        return start(a, &m, &p->operation);
    }
    }
}

/* --- making one --- */

static enum err_code
read_figures(struct apply *a, struct dir_proposal *p, Cadastre__Figure **figures, size_t count)
{
    if (count > DIR_FIGURES_MAX - p->figure_count) {
        return err_set(&a->err, ERR_INVALID_REQUEST, "a proposal has at most %d figures",
                       DIR_FIGURES_MAX);
    }
    for (size_t i = 0; i < count; i++) {
        struct dir_figure *f = &p->figures[p->figure_count++];
        if (!valid_text(figures[i]->name, DIR_NAME_MAX) || figures[i]->group == 0 ||
            figures[i]->group > DIR_FIGURE_MEASURED) {
            return err_set(&a->err, ERR_INVALID_REQUEST, "a figure's name or group is wrong");
        }
        (void)snprintf(f->name, sizeof f->name, "%s", figures[i]->name);
        f->group = (uint8_t)figures[i]->group;
        f->value = figures[i]->value;
    }
    return ERR_OK;
}

static enum err_code read_lists(struct apply *a, struct dir_proposal *p)
{
    const Cadastre__ProposalMake *m = a->cmd->proposal_make;
    if (m->n_candidates > DIR_CANDIDATES_MAX || m->n_at > DIR_PROPOSAL_KEYS_MAX) {
        return err_set(&a->err, ERR_INVALID_REQUEST, "a list is too long");
    }
    for (size_t i = 0; i < m->n_candidates; i++) {
        struct dir_candidate *c = &p->candidates[p->candidate_count++];
        if (strlen(m->candidates[i]->node) > DIR_NAME_MAX ||
            !valid_text(m->candidates[i]->code, DIR_NAME_MAX)) {
            return err_set(&a->err, ERR_INVALID_REQUEST, "a candidate's name or code is wrong");
        }
        (void)snprintf(c->node, sizeof c->node, "%s", m->candidates[i]->node);
        (void)snprintf(c->code, sizeof c->code, "%s", m->candidates[i]->code);
    }
    for (size_t i = 0; i < m->n_at; i++) {
        struct dir_proposal_key *k = &p->keys[p->key_count++];
        if (m->at[i].len > DIR_ROUTING_KEY_MAX) {
            return err_set(&a->err, ERR_INVALID_KEY, "a key is too long");
        }
        k->len = (uint16_t)m->at[i].len;
        memcpy(k->bytes, m->at[i].len > 0 ? m->at[i].data : (const uint8_t *)"", k->len);
    }
    return read_figures(a, p, m->figures, m->n_figures);
}

static enum err_code
read_proposal(struct apply *a, const struct dir_partition *on, struct dir_proposal *p)
{
    const Cadastre__ProposalMake *m = a->cmd->proposal_make;
    if (m->kind < DIR_PROPOSAL_MOVE || m->kind > DIR_PROPOSAL_ADVICE) {
        return err_set(&a->err, ERR_INVALID_REQUEST, "the kind of proposal is unknown");
    }
    if (strlen(m->from) > DIR_NAME_MAX || strlen(m->to) > DIR_NAME_MAX ||
        !valid_text(m->reason_code, DIR_NAME_MAX) || !valid_text(m->reason, DIR_TEXT_MAX)) {
        return err_set(&a->err, ERR_INVALID_REQUEST, "a name or reason is too long or missing");
    }
    p->kind = (uint8_t)m->kind;
    p->state = DIR_PROPOSAL_OPEN;
    p->class_of = m->class_ != 0 ? m->class_ : DIR_CLASS_BALANCE;
    p->keyspace = on->keyspace;
    p->partition = on->id;
    p->with = m->with;
    p->epoch = on->epoch;
    p->made_ms = a->s->time_ms;
    p->expires_ms = a->s->time_ms + m->expires_in_ms;
    (void)snprintf(p->reason_code, sizeof p->reason_code, "%s", m->reason_code);
    (void)snprintf(p->reason, sizeof p->reason, "%s", m->reason);
    (void)snprintf(p->from_name, sizeof p->from_name, "%s", m->from);
    (void)snprintf(p->to_name, sizeof p->to_name, "%s", m->to);
    (void)snprintf(p->keyspace_name, sizeof p->keyspace_name, "%s",
                   state_keyspace(a->s, on->keyspace)->name);
    return read_lists(a, p);
}

static bool is_settled(const struct dir_proposal *p)
{
    return p->state != DIR_PROPOSAL_OPEN && p->state != DIR_PROPOSAL_RUNNING;
}

/* The oldest that is settled goes; with none, a new one has to wait. */
static const struct dir_proposal *oldest_settled(const struct apply *a)
{
    struct ptree_iter it;
    const struct dir_proposal *p;
    ptree_seek(&a->s->proposals, slice_of(NULL, 0), &it);
    while ((p = ptree_iter_get(&it, NULL)) != NULL && !is_settled(p)) {
        ptree_iter_next(&it);
    }
    return p;
}

static enum err_code check_room(struct apply *a, const struct dir_proposal **ret_leaves)
{
    *ret_leaves = NULL;
    if (a->s->proposals.count < DIR_PROPOSALS_MAX) {
        return ERR_OK;
    }
    *ret_leaves = oldest_settled(a);
    return *ret_leaves != NULL ? ERR_OK
                               : err_set(&a->err, ERR_LIMIT_EXCEEDED, "%d proposals wait already",
                                         DIR_PROPOSALS_MAX);
}

enum err_code apply_proposal_make(struct apply *a)
{
    const Cadastre__ProposalMake *m = a->cmd->proposal_make;
    const struct dir_proposal *leaves;
    struct dir_partition *on;
    enum err_code code = apply_find_partition(a, m->partition, &on);
    if (code == ERR_OK) {
        code = apply_expect_epoch(a, on, true, m->epoch);
    }
    if (code == ERR_OK) {
        code = check_room(a, &leaves);
    }
    if (code != ERR_OK) {
        return code;
    }
    struct dir_proposal *p = mem_zalloc(sizeof *p);
    p->object.refs = 1;
    p->object.kind = DIR_KIND_PROPOSAL;
    code = read_proposal(a, on, p);
    if (code == ERR_OK && m->execute) {
        (void)snprintf(p->settled_by, sizeof p->settled_by, "balancer");
        code = execute(a, p);
    }
    if (code != ERR_OK) {
        dir_unref(p);
        return code;
    }
    if (leaves != NULL) {
        apply_remove(a, leaves);
    }
    p->id = apply_id(a);
    put(a, p);
    return ERR_OK;
}

/* --- settling it --- */

static const char *who(const struct apply *a)
{
    return a->cmd->principal[0] != '\0' ? a->cmd->principal : "operator";
}

static enum err_code not_open(struct apply *a, const struct dir_proposal *p)
{
    return err_set(&a->err, ERR_PROPOSAL_SETTLED, "proposal %" PRIu64 " is %s", p->id,
                   dir_proposal_state_name(p->state));
}

enum err_code apply_proposal_settle(struct apply *a)
{
    const Cadastre__ProposalSettle *m = a->cmd->proposal_settle;
    const struct dir_proposal *was = find(a, m->proposal);
    bool rejects = m->verb == CADASTRE__PROPOSAL_VERB__REJECT;
    apply_subject(a, "proposal=%" PRIu64 " %s", m->proposal, rejects ? "reject" : "approve");
    if (was == NULL) {
        return err_set(&a->err, ERR_PROPOSAL_NOT_FOUND, "there is no such proposal");
    }
    dir_unref(a->proposal);
    a->proposal = copy_of(was);
    if (m->reason[0] != '\0' && !valid_text(m->reason, DIR_TEXT_MAX)) {
        return err_set_at(&a->err, ERR_INVALID_REQUEST, "/reason",
                          "a reason is a text of at most %d bytes", DIR_TEXT_MAX);
    }
    if (was->state != DIR_PROPOSAL_OPEN) {
        bool again = rejects == (was->state == DIR_PROPOSAL_REJECTED);
        return again && was->state != DIR_PROPOSAL_EXPIRED ? ERR_OK : not_open(a, was);
    }
    struct dir_proposal *p = copy_of(was);
    (void)snprintf(p->settled_by, sizeof p->settled_by, "%s", who(a));
    (void)snprintf(p->settled_why, sizeof p->settled_why, "%s", m->reason);
    p->settled_ms = a->s->time_ms;
    p->state = DIR_PROPOSAL_REJECTED;
    enum err_code code = rejects ? ERR_OK : execute(a, p);
    if (code != ERR_OK) {
        dir_unref(p);
        return code;
    }
    put(a, p);
    return ERR_OK;
}

/* --- what came of it --- */

static bool went_well(const struct apply *a, uint64_t operation)
{
    const struct dir_operation *o = operation != 0 ? view_operation(a->s, operation) : NULL;
    return operation == 0 || (o != NULL && o->state == DIR_OPERATION_DONE);
}

static bool goes_on(const struct apply *a, uint64_t operation)
{
    const struct dir_operation *o = operation != 0 ? view_operation(a->s, operation) : NULL;
    return o != NULL && o->state < DIR_OPERATION_DONE;
}

enum err_code apply_proposal_measure(struct apply *a)
{
    const Cadastre__ProposalMeasure *m = a->cmd->proposal_measure;
    const struct dir_proposal *was = find(a, m->proposal);
    apply_subject(a, "proposal=%" PRIu64, m->proposal);
    if (was == NULL || was->state == DIR_PROPOSAL_OPEN || goes_on(a, was->operation) ||
        goes_on(a, was->with_operation)) {
        return ERR_OK; /* too early, or too late: it is the leader's word to itself */
    }
    struct dir_proposal *p = copy_of(was);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < p->figure_count; i++) {
        if (p->figures[i].group != DIR_FIGURE_MEASURED) {
            p->figures[kept++] = p->figures[i];
        }
    }
    memset(&p->figures[kept], 0, (p->figure_count - kept) * sizeof p->figures[0]);
    p->figure_count = kept;
    enum err_code code = read_figures(a, p, m->figures, m->n_figures);
    if (code != ERR_OK) {
        dir_unref(p);
        return code;
    }
    if (p->state == DIR_PROPOSAL_RUNNING) {
        bool well = went_well(a, p->operation) && went_well(a, p->with_operation);
        p->state = well ? DIR_PROPOSAL_DONE : DIR_PROPOSAL_FAILED;
        p->ended_ms = a->s->time_ms;
    }
    put(a, p);
    return ERR_OK;
}

void proposals_expire(struct apply *a)
{
    for (int i = 0; i < EXPIRE_A_COMMAND; i++) {
        struct ptree_iter it;
        ptree_seek(&a->s->proposals_open, slice_of(NULL, 0), &it);
        const struct dir_proposal *was = ptree_iter_get(&it, NULL);
        if (was == NULL || was->expires_ms > a->s->time_ms) {
            return;
        }
        struct dir_proposal *p = copy_of(was);
        p->state = DIR_PROPOSAL_EXPIRED;
        p->settled_ms = a->s->time_ms;
        apply_put(a, p);
    }
}
