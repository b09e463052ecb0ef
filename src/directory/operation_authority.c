/* SPDX-License-Identifier: Apache-2.0 */
#include "directory/operation_authority.h"

#include "directory/internal.h"

#include <inttypes.h>
#include <stdio.h>

const char *dir_way_back_name(enum dir_way_back way_back)
{
    static const char *const names[] = {"discard", "new_epoch", "impossible"};
    return names[way_back];
}

const char *dir_recovery_name(enum dir_recovery recovery)
{
    static const char *const names[] = {"resume", "discard", "stay", "forward"};
    return names[recovery];
}

const char *dir_nobody_name(enum dir_nobody nobody)
{
    static const char *const names[] = {"", "lapsed", "unplaced", "retired", "removed"};
    return names[nobody];
}

const char *dir_verb_name(enum dir_verb verb)
{
    switch (verb) {
    case DIR_VERB_ABORT:
        return "abort";
    case DIR_VERB_RETRY:
        return "retry";
    case DIR_VERB_FINISH_VALIDATION:
        return "finish-validation";
    case DIR_VERB_FINISH_VALIDATION_BACK:
        return "finish-validation-back";
    case DIR_VERB_PROMOTE_CANDIDATE:
        return "promote-candidate";
    }
    return "";
}

/* --- what apply would say --- */

static bool would_change(const struct dir_view *v, Cadastre__OperationVerb *verb)
{
    static char reason[] = "may it?"; /* promoting wants one */
    struct dir_view copy;
    struct apply_outcome o;
    Cadastre__Command command;
    cadastre__command__init(&command);
    verb->reason = reason;
    command.body_case = CADASTRE__COMMAND__BODY_OPERATION_VERB;
    command.operation_verb = verb;
    state_copy(v, &copy);
    apply_run(&copy, copy.applied_index, &command, &o);
    bool changes = o.result->err.code == ERR_OK && o.effects != NULL && o.effects->changed;
    apply_outcome_close(&o);
    state_close(&copy);
    return changes;
}

static unsigned legal_verbs(const struct dir_view *v, const struct dir_operation *o)
{
    static const struct {
        enum dir_verb verb;
        Cadastre__OperationVerbKind kind;
        bool back;
    } all[] = {
        {DIR_VERB_ABORT, CADASTRE__OPERATION_VERB_KIND__ABORT, false},
        {DIR_VERB_RETRY, CADASTRE__OPERATION_VERB_KIND__RETRY, false},
        {DIR_VERB_FINISH_VALIDATION, CADASTRE__OPERATION_VERB_KIND__FINISH_VALIDATION, false},
        {DIR_VERB_FINISH_VALIDATION_BACK, CADASTRE__OPERATION_VERB_KIND__FINISH_VALIDATION, true},
        {DIR_VERB_PROMOTE_CANDIDATE, CADASTRE__OPERATION_VERB_KIND__PROMOTE_CANDIDATE, false},
    };
    unsigned verbs = 0;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        Cadastre__OperationVerb m;
        cadastre__operation_verb__init(&m);
        m.operation = o->id;
        m.verb = all[i].kind;
        m.back = all[i].back;
        verbs |= would_change(v, &m) ? all[i].verb : 0;
    }
    return verbs;
}

/* --- who --- */

static const struct dir_partition *partition_of(const struct dir_view *v,
                                                const struct dir_operation *o,
                                                struct operation_authority *ret)
{
    const struct dir_keyspace *ks = view_keyspace_by_id(v, o->keyspace);
    const struct dir_partition *p = ks != NULL ? view_partition(v, ks, o->partition, NULL) : NULL;
    if (p == NULL) {
        ret->nobody = ks == NULL ? DIR_NOBODY_REMOVED : DIR_NOBODY_RETIRED;
    }
    return p;
}

static void
who(const struct dir_view *v, const struct dir_partition *p, struct operation_authority *ret)
{
    ret->epoch = p->epoch;
    ret->node = view_primary(v, p);
    if (ret->node == NULL) {
        ret->nobody = p->holds_data ? DIR_NOBODY_LAPSED : DIR_NOBODY_UNPLACED;
        return;
    }
    ret->session = p->session;
    ret->session_live = ret->node->session == p->session && view_node_is_live(ret->node);
    ret->fenced = p->state == DIR_FENCING;
}

/* --- what can become of it --- */

static bool is_open(const struct dir_operation *o)
{
    return o->state == DIR_OPERATION_QUEUED || o->state == DIR_OPERATION_RUNNING;
}

static bool only_forward(const struct dir_operation *o, const struct operation_authority *a)
{
    return is_open(o) && o->joined && a->node == NULL;
}

static enum dir_way_back way_back(const struct dir_operation *o,
                                  const struct operation_authority *a)
{
    if (!is_open(o) || operation_past_cutover(o) || only_forward(o, a)) {
        return DIR_WAY_BACK_IMPOSSIBLE;
    }
    return a->fenced ? DIR_WAY_BACK_NEW_EPOCH : DIR_WAY_BACK_DISCARD;
}

static bool owes(const struct dir_view *v, const struct dir_operation *o)
{
    const struct dir_duty *d;
    struct ptree_iter it;
    uint8_t key[16];
    ptree_seek(&v->duties_by_node, state_pair_key(o->destination, 0, key), &it);
    for (; (d = ptree_iter_get(&it, NULL)) != NULL && d->node == o->destination;
         ptree_iter_next(&it)) {
        if (d->operation == o->id) {
            return true;
        }
    }
    return false;
}

static enum dir_recovery recovery(const struct dir_view *v,
                                  const struct dir_operation *o,
                                  const struct operation_authority *a)
{
    if (o->state == DIR_OPERATION_DONE) {
        return DIR_RECOVERY_STAY;
    }
    if (o->state == DIR_OPERATION_ABORTED) {
        return owes(v, o) ? DIR_RECOVERY_DISCARD : DIR_RECOVERY_STAY;
    }
    if (operation_past_cutover(o) || only_forward(o, a)) {
        return DIR_RECOVERY_FORWARD;
    }
    if (a->fenced || o->kind == DIR_OPERATION_TRANSFER) {
        return DIR_RECOVERY_STAY;
    }
    return o->attempt - o->first_attempt + 1 < DIR_ATTEMPTS_MAX ? DIR_RECOVERY_RESUME
                                                                : DIR_RECOVERY_DISCARD;
}

/* --- why --- */

static void say_who(const struct operation_authority *a, struct buf *b)
{
    static const char *const nobody[] = {
        [DIR_NOBODY_LAPSED] = "the primary's session has lapsed and no copy could follow it",
        [DIR_NOBODY_UNPLACED] = "the partition was never given to a node",
        [DIR_NOBODY_RETIRED] = "the partition was split or merged: ask for the route of its keys",
        [DIR_NOBODY_REMOVED] = "the keyspace was removed",
    };
    if (a->node == NULL) {
        buf_printf(b, "Nobody may write: %s.", nobody[a->nobody]);
    } else if (a->fenced) {
        buf_printf(b, "Nobody may write for the moment: \"%s\" is fenced at epoch %" PRIu64 ".",
                   a->node->name, a->epoch);
    } else if (!a->session_live) {
        buf_printf(b,
                   "\"%s\" may write at epoch %" PRIu64 " until its lease is over: session %" PRIu64
                   " has ended.",
                   a->node->name, a->epoch, a->session);
    } else {
        buf_printf(b, "\"%s\" may write at epoch %" PRIu64 ".", a->node->name, a->epoch);
    }
}

static const char *outlook(const struct dir_operation *o, const struct operation_authority *a)
{
    if (o->state == DIR_OPERATION_DONE) {
        return "The operation is done.";
    }
    if (o->state == DIR_OPERATION_ABORTED) {
        return a->recovery == DIR_RECOVERY_DISCARD
                   ? "The operation was aborted, and the copy it made is being deleted."
                   : "The operation was aborted, and has nothing left to do.";
    }
    if (o->state == DIR_OPERATION_FAILED) {
        return "It failed after the point of no return: what is left is repaired forward.";
    }
    if (only_forward(o, a)) {
        return a->verbs & DIR_VERB_PROMOTE_CANDIDATE
                   ? "The destination is joined: wait for the source, or promote the candidate."
                   : "The destination was joined but is away too: wait for one of the two.";
    }
    if (operation_past_cutover(o)) {
        return "It is past the point of no return: another move is the way back.";
    }
    if (a->fenced) {
        return "If the destination fails, the source goes on at a new epoch; if the source lapses, "
               "a validated destination takes over.";
    }
    if (a->node == NULL) {
        return "It waits for the source.";
    }
    return a->recovery == DIR_RECOVERY_DISCARD ? "It is the last attempt there may be."
                                               : "Until the cutover it can be taken back.";
}

void operation_authority_of(const struct dir_view *v,
                            const struct dir_operation *o,
                            struct operation_authority *ret)
{
    memset(ret, 0, sizeof *ret);
    const struct dir_partition *p = partition_of(v, o, ret);
    struct buf why;
    if (p != NULL) {
        who(v, p, ret);
    }
    ret->past_cutover = operation_past_cutover(o);
    ret->way_back = way_back(o, ret);
    ret->verbs = legal_verbs(v, o);
    ret->recovery = recovery(v, o, ret);
    buf_init(&why, sizeof ret->why - 1);
    say_who(ret, &why);
    buf_printf(&why, " %s", outlook(o, ret));
    memcpy(ret->why, why.data, why.len);
    buf_close(&why);
}
