/* SPDX-License-Identifier: Apache-2.0 */
/* What sessions, people and timers do to operations (docs/movement.md, "When something dies"). */
#include "directory/operation.h"

#include "base/assert.h"

#include <inttypes.h>
#include <stdio.h>

static bool is_open(const struct dir_operation *o)
{
    return o != NULL && (o->state == DIR_OPERATION_QUEUED || o->state == DIR_OPERATION_RUNNING);
}

/* What a person is asked for while nobody has the authority; until somebody has. */
static const char *lapsed_code(const struct dir_operation *o)
{
    return o->stage < DIR_STAGE_JOIN ? "source_lapsed" : "destination_lapsed";
}

/* Nobody is needed for this any more. */
static void calm(struct moving *m, const char *code)
{
    if (strcmp(m->o->attention_code, code) == 0) {
        moving_calm(m);
    }
}

/* A source that had lapsed is granted the partition anew: that is its new attempt. */
static bool
concerns(const struct dir_operation *o, const struct dir_partition *p, const struct dir_node *n)
{
    if (o == NULL || o->state != DIR_OPERATION_RUNNING) {
        return false;
    }
    bool lapsed = o->stage < DIR_STAGE_JOIN && !partition_has_primary(p);
    return o->destination == n->id || (o->source == n->id && !lapsed);
}

void operation_registered(struct apply *a,
                          const struct dir_partition *p,
                          const struct dir_node *n,
                          bool holds)
{
    struct moving m;
    const struct dir_operation *o = operation_of_partition(a->s, p);
    if (!concerns(o, p, n)) {
        return;
    }
    moving_open(&m, a, p, n->name);
    bool late = moving_in(&m, DIR_STAGE_DUAL_WRITE, DIR_STAGE_CUTOVER);
    if (o->kind == DIR_OPERATION_TRANSFER) {
        moving_abort(&m, "restarted", "one of the two nodes restarted");
    } else if (moving_in(&m, DIR_STAGE_WINDOW, DIR_STAGE_WINDOW)) {
        m.o->source_session = o->source == n->id ? n->session : o->source_session;
        m.o->destination_session = o->destination == n->id ? n->session : o->destination_session;
    } else if (o->destination == n->id && !holds && o->stage > DIR_STAGE_SNAPSHOT) {
        moving_back(&m, DIR_STAGE_SNAPSHOT, true);
    } else if (late) {
        moving_back(&m, DIR_STAGE_CATCH_UP, false);
    } else if (o->destination == n->id) {
        moving_back(&m, (enum dir_stage)o->stage, false);
    }
    moving_commit(&m, true);
}

void operation_session_ended(struct apply *a,
                             const struct dir_partition *p,
                             const struct dir_node *n)
{
    struct moving m;
    const struct dir_operation *o = operation_of_partition(a->s, p);
    if (o == NULL || o->state != DIR_OPERATION_RUNNING || o->destination != n->id ||
        !partition_has_primary(p)) {
        return;
    }
    if (o->stage >= DIR_STAGE_DUAL_WRITE && o->stage <= DIR_STAGE_CUTOVER) {
        moving_open(&m, a, p, "directory");
        if (o->kind == DIR_OPERATION_TRANSFER) {
            moving_abort(&m, "destination_lapsed", "the destination's session has ended");
        } else {
            moving_back(&m, DIR_STAGE_CATCH_UP, false);
        }
        moving_commit(&m, false);
    }
}

void operation_regranted(struct apply *a, const struct dir_partition *p)
{
    struct moving m;
    const struct dir_operation *o = operation_of_partition(a->s, p);
    if (!is_open(o)) {
        return;
    }
    const struct dir_node *s = view_node_by_id(a->s, o->source);
    moving_open(&m, a, p, s != NULL ? s->name : "directory");
    calm(&m, lapsed_code(o));
    if (moving_in(&m, DIR_STAGE_PREPARE, DIR_STAGE_CUTOVER) && o->stage_revision == a->rev) {
        /* Its registration, in this very command, was the new attempt. */
        m.o->source_session = s->session;
        m.o->epoch_before = a->rev;
    } else if (moving_in(&m, DIR_STAGE_PREPARE, DIR_STAGE_CUTOVER)) {
        bool late = o->stage >= DIR_STAGE_DUAL_WRITE;
        m.like->session = s->session; /* as the grant that follows will have it */
        m.like->state = DIR_ACTIVE;
        if (o->kind == DIR_OPERATION_TRANSFER) {
            moving_abort(&m, "restarted", "the source restarted");
        } else {
            moving_back(&m, late ? DIR_STAGE_CATCH_UP : (enum dir_stage)o->stage, false);
        }
        m.like->session = m.old->session;
        m.like->state = m.old->state == DIR_FENCING ? DIR_ACTIVE : m.old->state;
        m.o->epoch_before = a->rev;
    }
    moving_commit(&m, true);
}

/* D holds every acknowledged write: the attempt's VALIDATE was equal, and the rest was never
 * acknowledged. */
bool operation_forward(struct apply *a, const struct dir_partition *p)
{
    struct moving m;
    const struct dir_operation *o = operation_of_partition(a->s, p);
    if (o == NULL || o->state != DIR_OPERATION_RUNNING || !o->joined || !o->moves_primary ||
        (o->stage != DIR_STAGE_FENCE && o->stage != DIR_STAGE_CUTOVER)) {
        return false;
    }
    const struct dir_node *d = view_node_by_id(a->s, o->destination);
    if (!view_node_is_live(d) || d->session != o->joined_session) {
        return false;
    }
    moving_open(&m, a, p, "directory");
    if (o->stage == DIR_STAGE_FENCE) {
        moving_enter(&m, DIR_STAGE_CUTOVER);
    }
    moving_cutover(&m, o->final_position);
    m.quiet_source = true; /* what it keeps goes elsewhere at once */
    moving_commit(&m, false);
    return true;
}

void operation_stranded(struct apply *a, const struct dir_partition *p)
{
    struct moving m;
    const struct dir_operation *o = operation_of_partition(a->s, p);
    if (is_open(o)) {
        moving_open(&m, a, p, "directory");
        moving_attention(&m, lapsed_code(o),
                         o->joined ? "the source has lapsed before the copies were compared: wait "
                                     "for it, or promote the candidate"
                                   : "whoever had the authority has lapsed, and nobody can follow");
        moving_commit(&m, true);
    }
}

/* A joined destination has every acknowledged write. With the source lapsed it may be the only copy
 * that has: it stays one, which a person may give the authority. */
static void keep_candidate(struct moving *m)
{
    bool forward = moving_only_forward(m) && !m->o->part.is_set;
    int at = forward ? moving_copy(m, m->o->destination) : -1;
    if (at >= 0 && m->replicas[at].role == DIR_ROLE_JOINING) {
        m->replicas[at].role = DIR_ROLE_ASYNC;
    }
}

void operation_dropped(struct apply *a, const struct dir_partition *p, const char *code, bool keep)
{
    struct moving m;
    const struct dir_operation *o = operation_of_partition(a->s, p);
    if (o == NULL) {
        return;
    }
    moving_open(&m, a, p, "directory");
    if (o->state == DIR_OPERATION_QUEUED || moving_in(&m, DIR_STAGE_PREPARE, DIR_STAGE_CUTOVER)) {
        m.like->state = m.like->state == DIR_FENCING ? DIR_ACTIVE : m.like->state;
        if (keep) {
            keep_candidate(&m);
        }
        moving_abort(&m, code, "the partition's authority went elsewhere");
    } else {
        /* After the cutover nothing is undone, and nothing may be deleted any more either. */
        moving_fail(&m, code, "the partition's authority went elsewhere");
    }
    moving_commit(&m, true);
}

/* --- people --- */

static enum err_code find_running(struct apply *a,
                                  uint64_t id,
                                  const struct dir_operation **ret_o,
                                  const struct dir_partition **ret_p)
{
    const struct dir_operation *o = view_operation(a->s, id);
    uint8_t key[8];
    apply_subject(a, "operation=%" PRIu64, id);
    if (o == NULL) {
        return err_set(&a->err, ERR_OPERATION_NOT_FOUND, "there is no such operation");
    }
    *ret_o = o;
    *ret_p = ptree_get(&a->s->partitions, ptree_u64_key(o->partition, key));
    dir_unref(a->operation);
    a->operation = dir_ref(ptree_get(&a->s->operations, ptree_u64_key(id, key)));
    return ERR_OK;
}

static bool past_cutover(const struct dir_operation *o)
{
    return o->stage == DIR_STAGE_WINDOW || o->stage == DIR_STAGE_CLEANUP ||
           o->stage == DIR_STAGE_JOIN || o->state == DIR_OPERATION_DONE;
}

static enum err_code
abort_it(struct apply *a, const struct dir_operation *o, const struct dir_partition *p)
{
    struct moving m;
    if (o->state == DIR_OPERATION_ABORTED) {
        return ERR_OK; /* asked for again */
    }
    if (past_cutover(o) || o->state == DIR_OPERATION_FAILED || p == NULL) {
        return err_set(&a->err, ERR_PAST_CUTOVER,
                       "\"%s\" has the authority: another move is the way back",
                       o->destination_name);
    }
    moving_open(&m, a, p, a->cmd->principal[0] != '\0' ? a->cmd->principal : "directory");
    if (moving_only_forward(&m)) {
        enum err_code code = err_set(&a->err, ERR_SOURCE_LAPSED,
                                     "the source has lapsed and the destination is joined");
        moving_drop(&m);
        return code;
    }
    moving_abort(&m, "aborted", a->cmd->operation_verb->reason);
    moving_commit(&m, false);
    return ERR_OK;
}

static enum err_code
finish_validation(struct apply *a, const struct dir_operation *o, const struct dir_partition *p)
{
    struct moving m;
    bool back = a->cmd->operation_verb->back;
    if (back && o->reversed_by != 0) {
        return ERR_OK; /* asked for again */
    }
    if (o->stage != DIR_STAGE_WINDOW || p == NULL || !partition_has_primary(p)) {
        return err_set(&a->err, ERR_STALE_REPORT, "its validation window can't be ended now");
    }
    if (back && !view_node_is_live(view_node_by_id(a->s, o->source))) {
        return err_set(&a->err, ERR_NO_DESTINATION, "\"%s\" has no session", o->source_name);
    }
    moving_open(&m, a, p, a->cmd->principal[0] != '\0' ? a->cmd->principal : "directory");
    if (back && moving_copy(&m, o->source) < 0) {
        moving_drop(&m);
        return err_set(&a->err, ERR_NO_DESTINATION, "\"%s\" has no copy", o->source_name);
    }
    calm(&m, "window_open");
    if (back) {
        moving_reverse(&m);
    } else {
        moving_cleanup(&m);
    }
    moving_commit(&m, false);
    return ERR_OK;
}

bool operation_may_promote(const struct dir_view *v,
                           const struct dir_operation *o,
                           const struct dir_partition *p)
{
    if (o->state != DIR_OPERATION_RUNNING || !o->joined || !o->moves_primary ||
        partition_has_primary(p)) {
        return false;
    }
    const struct dir_node *d = view_node_by_id(v, o->destination);
    return view_node_is_live(d) && d->session == o->joined_session;
}

static enum err_code
promote(struct apply *a, const struct dir_operation *o, const struct dir_partition *p)
{
    struct moving m;
    if (!valid_text(a->cmd->operation_verb->reason, DIR_TEXT_MAX)) {
        return err_set_at(&a->err, ERR_INVALID_REQUEST, "/reason", "a reason is needed");
    }
    if (p == NULL || !operation_may_promote(a->s, o, p)) {
        return err_set(&a->err, ERR_LEASE_HELD,
                       "only a joined destination, once the source has lapsed, can be promoted");
    }
    moving_open(&m, a, p, a->cmd->principal[0] != '\0' ? a->cmd->principal : "directory");
    moving_attention(&m, "unvalidated", a->cmd->operation_verb->reason);
    if (o->stage != DIR_STAGE_CUTOVER) {
        moving_enter(&m, DIR_STAGE_CUTOVER);
    }
    moving_cutover(&m, 0);
    moving_commit(&m, false);
    return ERR_OK;
}

enum err_code apply_operation_verb(struct apply *a)
{
    const Cadastre__OperationVerb *m = a->cmd->operation_verb;
    const struct dir_operation *o = NULL;
    const struct dir_partition *p = NULL;
    enum err_code code = find_running(a, m->operation, &o, &p);
    if (code != ERR_OK) {
        return code;
    }
    if (m->reason[0] != '\0' && !valid_text(m->reason, DIR_TEXT_MAX)) {
        return err_set_at(&a->err, ERR_INVALID_REQUEST, "/reason",
                          "a reason is a text of at most %d bytes", DIR_TEXT_MAX);
    }
    switch (m->verb) {
    case CADASTRE__OPERATION_VERB_KIND__ABORT:
        return abort_it(a, o, p);
    case CADASTRE__OPERATION_VERB_KIND__FINISH_VALIDATION:
        return finish_validation(a, o, p);
    case CADASTRE__OPERATION_VERB_KIND__PROMOTE_CANDIDATE:
        return promote(a, o, p);
    case CADASTRE__OPERATION_VERB_KIND__RETRY:
        return operation_retry(a, o);
    case _CADASTRE__OPERATION_VERB_KIND_IS_INT_SIZE:
        break;
    }
    return err_set(&a->err, ERR_INVALID_REQUEST, "the operation has no such verb now");
}

/* --- timers --- */

static void window_over(struct moving *m)
{
    const struct dir_operation *o = m->o;
    const struct dir_node *s = view_node_by_id(m->a->s, o->source);
    bool quiet = o->source_says.has_values && o->open_operations == 0 && o->stale_reads == 0;
    if (quiet || !view_node_is_live(s)) {
        calm(m, "window_open");
        moving_cleanup(m);
    } else {
        moving_attention(m, "window_open", "the source still has operations or reads of before");
    }
}

enum err_code apply_operation_timeout(struct apply *a)
{
    const Cadastre__OperationTimeout *t = a->cmd->operation_timeout;
    const struct dir_operation *o = NULL;
    const struct dir_partition *p = NULL;
    struct moving m;
    enum err_code code = find_running(a, t->operation, &o, &p);
    if (code != ERR_OK) {
        return code;
    }
    if (o->state != DIR_OPERATION_RUNNING || o->attempt != t->attempt || o->stage != t->stage ||
        o->stage_revision != t->since || p == NULL || p->operation != o->id ||
        !partition_has_primary(p)) {
        return ERR_OK; /* it has moved on, or waits for somebody who has lapsed */
    }
    moving_open(&m, a, p, "directory");
    if (o->stage == DIR_STAGE_WINDOW) {
        window_over(&m);
    } else if (o->kind == DIR_OPERATION_TRANSFER) {
        moving_abort(&m, "stage_timeout", "the transfer took too long");
    } else if (o->stage >= DIR_STAGE_DUAL_WRITE) {
        moving_back(&m, DIR_STAGE_CATCH_UP, false);
    } else {
        moving_back(&m, (enum dir_stage)o->stage, false);
    }
    moving_commit(&m, false);
    return ERR_OK;
}
