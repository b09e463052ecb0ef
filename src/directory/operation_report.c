/* SPDX-License-Identifier: Apache-2.0 */
/* What agents report of the stages, and what follows (docs/movement.md, the stage table). A report
 * counts only in the attempt, stage and session that it names; the same again changes nothing and
 * is answered the same. */
#include "directory/operation.h"

#include "base/assert.h"
#include "directory/policy.h"

#include <inttypes.h>
#include <stdio.h>

enum { CHECKS_MAX = 64 };

struct report {
    const Cadastre__OperationReport *m;
    const struct dir_node *node;
    bool is_source;
    uint64_t digest;
};

static enum err_code stale(struct apply *a, const char *why)
{
    return err_set(&a->err, ERR_STALE_REPORT, "%s", why);
}

static bool gave(const struct report *r, uint64_t fields)
{
    return (r->m->has & fields) == fields;
}

/* Refuses a report without one of these fields, and names the first. */
static bool lacks(struct apply *a, const struct report *r, uint64_t fields)
{
    static const char *const members[] = {
        "/ready",         "/free_bytes",       "/snapshot",       "/position",
        "/bytes_total",   "/items_total",      "/chunk",          "/bytes_done",
        "/complete",      "/applied_position", "/lag_bytes",      "/active",
        "/from_position", "/at_position",      "/items",          "/checksum",
        "/extras",        "/fenced",           "/final_position", "/open_operations",
        "/stale_reads",   "/old_epoch_writes"};
    size_t at = 0;
    if (gave(r, fields)) {
        return false;
    }
    _Static_assert(DIR_REPORT_OLD_EPOCH_WRITES == 1 << (sizeof members / sizeof members[0] - 1),
                   "a name for each field");
    while (at + 1 < sizeof members / sizeof members[0] &&
           (fields & ~r->m->has & UINT64_C(1) << at) == 0) {
        at++;
    }
    (void)err_set_at(&a->err, ERR_INVALID_REQUEST, members[at], "the stage's report needs it");
    return true;
}

/* Of everything in it: two reports are the same if this is. */
static uint64_t digest_of(struct apply *a)
{
    buf_reset(&a->scratch);
    size_t len = cadastre__operation_report__get_packed_size(a->cmd->operation_report);
    if (!buf_reserve(&a->scratch, len)) {
        return 0;
    }
    (void)cadastre__operation_report__pack(a->cmd->operation_report, a->scratch.data);
    return hash_xxh3_64(a->scratch.data, len);
}

static struct dir_evidence *evidence(struct moving *m, const struct report *r)
{
    return r->is_source ? &m->o->source_says : &m->o->destination_says;
}

static const struct dir_keyspace *keyspace_of(const struct moving *m)
{
    return state_keyspace(m->a->s, m->o->keyspace);
}

static uint64_t policy_of(const struct moving *m, enum dir_policy_value which)
{
    return dir_policy_get(m->a->s, keyspace_of(m), which);
}

/* --- one stage each: ERR_OK, or a refusal that changed nothing --- */

/* The first check that the policy requires and the report does not have, or NULL. */
static const char *missing_check(const struct moving *m, const Cadastre__OperationReport *in)
{
    const struct dir_policy *rules = &keyspace_of(m)->rules;
    for (uint32_t i = 0; i < rules->check_count; i++) {
        size_t at = 0;
        while (at < in->n_checks && strcmp(in->checks[at]->name, rules->checks[i]) != 0) {
            at++;
        }
        if (at == in->n_checks) {
            return rules->checks[i];
        }
    }
    return NULL;
}

static enum err_code on_prepare(struct moving *m, const struct report *r)
{
    const Cadastre__OperationReport *in = r->m;
    for (size_t i = 0; i < in->n_checks; i++) {
        if (!in->checks[i]->ok) {
            moving_abort(m, "prepare_check_failed", in->checks[i]->name);
            return ERR_OK;
        }
    }
    if (in->refused[0] != '\0') {
        moving_abort(m, "destination_refused", in->refused);
        return ERR_OK;
    }
    if (lacks(m->a, r, DIR_REPORT_READY | DIR_REPORT_FREE_BYTES)) {
        return m->a->err.code;
    }
    m->o->free_bytes = in->free_bytes;
    if (!in->ready) {
        return ERR_OK;
    }
    const char *check = missing_check(m, in);
    if (check != NULL) {
        moving_abort(m, "prepare_check_failed", check);
    } else {
        moving_enter(m, DIR_STAGE_SNAPSHOT);
    }
    return ERR_OK;
}

static enum err_code on_snapshot(struct moving *m, const struct report *r)
{
    const Cadastre__OperationReport *in = r->m;
    struct dir_operation *o = m->o;
    if (lacks(m->a, r, DIR_REPORT_SNAPSHOT | DIR_REPORT_POSITION | DIR_REPORT_BYTES_TOTAL)) {
        return m->a->err.code;
    }
    if (!valid_text(in->snapshot, DIR_SNAPSHOT_MAX)) {
        return err_set_at(&m->a->err, ERR_INVALID_REQUEST, "/snapshot", "a text has 1 to %d bytes",
                          DIR_SNAPSHOT_MAX);
    }
    memset(o->snapshot, 0, sizeof o->snapshot);
    memcpy(o->snapshot, in->snapshot, strlen(in->snapshot));
    o->position = in->position;
    o->bytes_total = in->bytes_total;
    o->items_total = in->items_total;
    uint64_t space = dir_policy_space(m->a->s, keyspace_of(m), o->bytes_total);
    if (space > o->free_bytes) {
        char detail[DIR_TEXT_MAX];
        (void)snprintf(detail, sizeof detail,
                       "the destination has %" PRIu64 " bytes free, and a copy of %" PRIu64
                       " needs %" PRIu64,
                       o->free_bytes, o->bytes_total, space);
        moving_abort(m, "insufficient_headroom", detail);
        return ERR_OK;
    }
    moving_enter(m, DIR_STAGE_COPY);
    return ERR_OK;
}

static enum err_code on_copy(struct moving *m, const struct report *r)
{
    const Cadastre__OperationReport *in = r->m;
    struct dir_operation *o = m->o;
    if (in->gap) { /* the source has that snapshot no more */
        moving_back(m, DIR_STAGE_SNAPSHOT, true);
        return ERR_OK;
    }
    if (lacks(m->a, r, DIR_REPORT_CHUNK | DIR_REPORT_BYTES_DONE)) {
        return m->a->err.code;
    }
    o->chunk = in->chunk;
    o->bytes_done = in->bytes_done;
    o->checksum_failures = in->checksum_failures;
    if (o->checksum_failures > policy_of(m, DIR_POLICY_MAX_CHECKSUM_FAILURES)) {
        moving_abort(m, "checksum_failures", "too many chunks arrived damaged");
    } else if (gave(r, DIR_REPORT_COMPLETE) && in->complete) {
        o->complete = true;
        moving_enter(m, DIR_STAGE_CATCH_UP);
    }
    return ERR_OK;
}

static enum err_code on_catch_up(struct moving *m, const struct report *r)
{
    const Cadastre__OperationReport *in = r->m;
    struct dir_operation *o = m->o;
    if (in->gap) {
        moving_back(m, DIR_STAGE_SNAPSHOT, true);
        return ERR_OK;
    }
    if (lacks(m->a, r, DIR_REPORT_APPLIED_POSITION | DIR_REPORT_LAG_BYTES)) {
        return m->a->err.code;
    }
    o->applied_position = in->applied_position;
    o->lag_bytes = in->lag_bytes;
    if (o->lag_bytes <= policy_of(m, DIR_POLICY_CUTOVER_LAG_BYTES)) {
        moving_enter(m, DIR_STAGE_DUAL_WRITE);
    }
    return ERR_OK;
}

/* A position that neither side has passed, as far as is known. Each time that one was passed the
 * next is twice as far away. */
static void name_position(struct moving *m, uint64_t passed_at)
{
    struct dir_operation *o = m->o;
    uint64_t at = o->from_position > o->applied_position ? o->from_position : o->applied_position;
    uint64_t lead = o->validate_at > o->from_position ? 2 * (o->validate_at - o->from_position) : 1;
    at = passed_at > at ? passed_at : at;
    at = o->validate_at > at ? o->validate_at : at;
    o->validate_at = at < DIR_REVISION_MAX - lead ? at + lead : DIR_REVISION_MAX;
    o->source_says.has_values = o->destination_says.has_values = false;
}

static enum err_code on_dual_write(struct moving *m, const struct report *r)
{
    const Cadastre__OperationReport *in = r->m;
    struct dir_operation *o = m->o;
    if (r->is_source) {
        if (lacks(m->a, r, DIR_REPORT_ACTIVE | DIR_REPORT_FROM_POSITION)) {
            return m->a->err.code;
        }
        if (!in->active) {
            moving_back(m, DIR_STAGE_CATCH_UP, false);
            return ERR_OK;
        }
        if (o->active) {
            return stale(m->a, "the source has said from where on it sends every write");
        }
        o->active = true;
        o->from_position = in->from_position;
    } else {
        if (in->gap) {
            moving_back(m, DIR_STAGE_SNAPSHOT, true);
            return ERR_OK;
        }
        if (lacks(m->a, r, DIR_REPORT_APPLIED_POSITION)) {
            return m->a->err.code;
        }
        o->applied_position = in->applied_position;
    }
    if (o->active && o->applied_position >= o->from_position && !r->is_source) {
        moving_enter(m, DIR_STAGE_VALIDATE);
        o->joined = true;
        o->joined_session = r->node->session;
        name_position(m, 0);
    }
    return ERR_OK;
}

static bool sides_agree(const struct dir_operation *o)
{
    const struct dir_evidence *s = &o->source_says, *d = &o->destination_says;
    return s->items == d->items && s->checksum == d->checksum && s->extras == d->extras;
}

static void compare(struct moving *m)
{
    struct dir_operation *o = m->o;
    if (!sides_agree(o) && o->validations == 0) {
        o->validations++;
        moving_back(m, DIR_STAGE_COPY, true); /* or PREPARE, when there is no snapshot yet */
    } else if (!sides_agree(o)) {
        moving_abort(m, "validation_mismatch", "the two copies differ, twice");
    } else if (o->moves_primary && !o->warm && policy_of(m, DIR_POLICY_REQUIRE_WARM) != 0) {
        return; /* before the fence: writes do not wait for a cache */
    } else if (o->moves_primary) {
        moving_enter(m, DIR_STAGE_FENCE);
    } else {
        moving_join(m);
    }
}

/* The sums were there before. */
static enum err_code warmed(struct moving *m)
{
    if (m->o->source_says.has_values) {
        compare(m);
    }
    return ERR_OK;
}

static enum err_code on_validate(struct moving *m, const struct report *r)
{
    const Cadastre__OperationReport *in = r->m;
    struct dir_operation *o = m->o;
    struct dir_evidence *e = evidence(m, r);
    if (in->passed && gave(r, DIR_REPORT_AT_POSITION) && in->at_position < o->validate_at) {
        /* Of one that was named before: each that counts moves the next further away. */
        return stale(m->a, "the position that is to be validated has not been passed");
    }
    if (in->passed) {
        name_position(m, gave(r, DIR_REPORT_AT_POSITION) ? in->at_position : 0);
        moving_again(m);
        return ERR_OK;
    }
    bool only_warm = !r->is_source && in->warm && e->has_values && !gave(r, DIR_REPORT_CHECKSUM);
    if (only_warm) {
        return warmed(m);
    }
    if (lacks(m->a, r, DIR_REPORT_AT_POSITION | DIR_REPORT_ITEMS | DIR_REPORT_CHECKSUM)) {
        return m->a->err.code;
    }
    if (in->at_position != o->validate_at) {
        return stale(m->a, "another position is to be validated");
    }
    e->has_values = true;
    e->at_position = in->at_position;
    e->items = in->items;
    e->checksum = in->checksum;
    e->extras = in->extras;
    if (o->source_says.has_values && o->destination_says.has_values) {
        compare(m);
    }
    return ERR_OK;
}

static enum err_code on_fence(struct moving *m, const struct report *r)
{
    const Cadastre__OperationReport *in = r->m;
    struct dir_operation *o = m->o;
    if (lacks(m->a, r, DIR_REPORT_FENCED | DIR_REPORT_FINAL_POSITION | DIR_REPORT_CHECKSUM)) {
        return m->a->err.code;
    }
    if (!in->fenced || in->epoch != m->like->epoch) {
        return stale(m->a, "the fence is not of the present epoch");
    }
    o->fenced = true;
    o->final_position = in->final_position;
    o->checksum = in->checksum;
    moving_enter(m, DIR_STAGE_CUTOVER);
    return ERR_OK;
}

static enum err_code on_cutover(struct moving *m, const struct report *r)
{
    const Cadastre__OperationReport *in = r->m;
    struct dir_operation *o = m->o;
    if (lacks(m->a, r, DIR_REPORT_APPLIED_POSITION | DIR_REPORT_CHECKSUM)) {
        return m->a->err.code;
    }
    o->applied_position = in->applied_position;
    if (o->applied_position < o->final_position) {
        return ERR_OK; /* not yet */
    }
    if (in->checksum != o->checksum) {
        moving_abort(m, "validation_mismatch", "the copies differ at the final position");
    } else {
        moving_cutover(m, o->final_position);
    }
    return ERR_OK;
}

static enum err_code on_window(struct moving *m, const struct report *r)
{
    const Cadastre__OperationReport *in = r->m;
    struct dir_operation *o = m->o;
    if (in->problem[0] != '\0') {
        moving_attention(m, "window_problem", in->problem);
    }
    if (r->is_source) {
        if (lacks(m->a, r, DIR_REPORT_OPEN_OPERATIONS | DIR_REPORT_STALE_READS)) {
            return m->a->err.code;
        }
        o->open_operations = in->open_operations;
        o->stale_reads = in->stale_reads;
        o->source_says.has_values = true;
    }
    return ERR_OK;
}

/* --- which report counts --- */

struct stage_report {
    bool source, destination;
    enum err_code (*fn)(struct moving *m, const struct report *r);
};

static const struct stage_report reports[] = {
    [DIR_STAGE_PREPARE] = {false, true, on_prepare},
    [DIR_STAGE_SNAPSHOT] = {true, false, on_snapshot},
    [DIR_STAGE_COPY] = {false, true, on_copy},
    [DIR_STAGE_CATCH_UP] = {false, true, on_catch_up},
    [DIR_STAGE_DUAL_WRITE] = {true, true, on_dual_write},
    [DIR_STAGE_VALIDATE] = {true, true, on_validate},
    [DIR_STAGE_FENCE] = {true, false, on_fence},
    [DIR_STAGE_CUTOVER] = {false, true, on_cutover},
    [DIR_STAGE_WINDOW] = {true, true, on_window},
};

static enum err_code
check_reporter(struct apply *a, const struct dir_operation *o, struct report *r)
{
    const struct dir_evidence *said = r->is_source ? &o->source_says : &o->destination_says;
    uint64_t began = r->is_source ? o->source_session : o->destination_session;
    if (r->m->session != r->node->session || !view_node_is_live(r->node)) {
        return stale(a, "the session has ended");
    }
    if (o->state != DIR_OPERATION_RUNNING || r->m->attempt != o->attempt ||
        r->m->stage != o->stage || r->m->session != began) {
        return stale(a, "it is of another attempt or stage than the present one");
    }
    if (said->session == r->m->session && r->m->seq <= said->seq) {
        return stale(a, "its number is not above the last one");
    }
    return ERR_OK;
}

/* The source is the primary at the epoch that the attempt began with; after the cutover D is. */
static bool
holds_still(const struct apply *a, const struct dir_operation *o, const struct dir_partition *p)
{
    const struct dir_node *owner =
        p != NULL && p->operation == o->id ? view_primary(a->s, p) : NULL;
    if (o->stage == DIR_STAGE_WINDOW) {
        return owner != NULL;
    }
    return owner != NULL && owner->id == o->source && p->session == o->source_session &&
           owner->session == p->session && p->epoch == o->epoch_before;
}

static enum err_code
judge_report(struct apply *a, const struct dir_operation *o, struct report *r, bool *ret_same)
{
    const struct dir_evidence *said = r->is_source ? &o->source_says : &o->destination_says;
    *ret_same =
        said->session == r->m->session && said->seq == r->m->seq && said->digest == r->digest;
    if (*ret_same) {
        return ERR_OK;
    }
    enum err_code code = check_reporter(a, o, r);
    const struct stage_report *s =
        &reports[o->stage < DIR_STAGE_JOIN || o->stage == DIR_STAGE_WINDOW ? o->stage : 0];
    if (code == ERR_OK && (s->fn == NULL || !(r->is_source ? s->source : s->destination))) {
        code = stale(a, "the other side reports in this stage");
    }
    return code;
}

/* Where a text is that people could not be shown, or NULL. */
static const char *wrong_text(const Cadastre__OperationReport *m)
{
    if (m->refused[0] != '\0' && !valid_text(m->refused, DIR_TEXT_MAX)) {
        return "/refused";
    }
    if (m->problem[0] != '\0' && !valid_text(m->problem, DIR_TEXT_MAX)) {
        return "/problem";
    }
    bool fits = m->n_checks <= CHECKS_MAX;
    for (size_t i = 0; fits && i < m->n_checks; i++) {
        fits = valid_text(m->checks[i]->name, DIR_TEXT_MAX);
    }
    return fits ? NULL : "/checks";
}

static enum err_code find_reporter(struct apply *a, const struct dir_operation *o, struct report *r)
{
    r->node = view_node(a->s, slice_of(r->m->node, strlen(r->m->node)));
    if (r->node == NULL) {
        return err_set(&a->err, ERR_NODE_NOT_FOUND, "there is no such node");
    }
    const char *wrong = wrong_text(r->m);
    if (wrong != NULL) {
        return err_set_at(&a->err, ERR_INVALID_REQUEST, wrong, "a text has 1 to %d bytes",
                          DIR_TEXT_MAX);
    }
    r->is_source = r->node->id == o->source;
    if (!r->is_source && r->node->id != o->destination) {
        return stale(a, "the node has no part in this operation");
    }
    return ERR_OK;
}

/* In CLEANUP the duty is all that is left. */
static enum err_code
cleaned_up(struct apply *a, const struct dir_operation *o, const struct report *r)
{
    const struct dir_duty *d = duty_of_operation(a->s, o);
    if (r->m->attempt != o->attempt || r->m->stage != o->stage ||
        r->m->session != r->node->session || !view_node_is_live(r->node) || d == NULL ||
        d->node != r->node->id) {
        return stale(a, "there is nothing of this operation to clean up here");
    }
    if (lacks(a, r, DIR_REPORT_OLD_EPOCH_WRITES)) {
        return a->err.code;
    }
    operation_cleaned(a, o, r->m->old_epoch_writes, r->m->deleted_bytes);
    counts_add(&a->counts, d->node, 0);
    apply_remove(a, d);
    a->changed = true;
    return ERR_OK;
}

enum err_code apply_operation_report(struct apply *a)
{
    struct report r = {.m = a->cmd->operation_report};
    const struct dir_operation *o = view_operation(a->s, r.m->operation);
    uint8_t key[8];
    bool same;
    apply_subject(a, "operation=%" PRIu64 " node=%.63s stage=%" PRIu32, r.m->operation, r.m->node,
                  r.m->stage);
    if (o == NULL) {
        return err_set(&a->err, ERR_OPERATION_NOT_FOUND, "there is no such operation");
    }
    a->operation = dir_ref(ptree_get(&a->s->operations, ptree_u64_key(o->id, key)));
    enum err_code code = find_reporter(a, o, &r);
    r.digest = digest_of(a);
    if (code == ERR_OK && o->stage == DIR_STAGE_CLEANUP) {
        return cleaned_up(a, o, &r);
    }
    code = code == ERR_OK ? judge_report(a, o, &r, &same) : code;
    if (code != ERR_OK || same) {
        return code;
    }
    const struct dir_partition *p = ptree_get(&a->s->partitions, ptree_u64_key(o->partition, key));
    if (!holds_still(a, o, p)) {
        return stale(a, "the source is not the primary at present");
    }
    struct moving m;
    moving_open(&m, a, p, r.node->name);
    struct dir_evidence *said = evidence(&m, &r);
    said->session = r.m->session;
    said->seq = r.m->seq;
    said->digest = r.digest;
    m.o->warm = m.o->warm || (!r.is_source && r.m->warm);
    code = reports[o->stage].fn(&m, &r);
    if (code != ERR_OK) {
        moving_drop(&m);
        return code;
    }
    moving_commit(&m, false);
    return ERR_OK;
}
