/* SPDX-License-Identifier: Apache-2.0 */
/* Operations: their rows, and the steps from one stage to another. Which steps there may be is one
 * table; what each does to the partition is in moving_*(). */
#include "directory/budget_internal.h"

#include "base/assert.h"
#include "base/mem.h"
#include "directory/policy.h"

#include <stdio.h>

enum { MORE_STAGES = 4 }; /* that one command may note */

#define TO(stage) (UINT32_C(1) << DIR_STAGE_##stage)
#define COPYING   (TO(SNAPSHOT) | TO(COPY) | TO(CATCH_UP))
#define ANEW      (TO(PREPARE) | COPYING) /* PREPARE: only what has not been there yet */

/* What may follow a stage. A new attempt may begin again at an earlier one, or at the same. */
static const uint32_t follows[] = {
    [DIR_STAGE_QUEUED] =
        TO(PREPARE) | TO(CATCH_UP) | TO(FENCE) | TO(CLEANUP) | TO(ABORTED) | TO(DONE),
    [DIR_STAGE_PREPARE] = TO(PREPARE) | TO(SNAPSHOT) | TO(ABORTED),
    [DIR_STAGE_SNAPSHOT] = TO(SNAPSHOT) | TO(COPY) | TO(ABORTED),
    [DIR_STAGE_COPY] = COPYING | TO(ABORTED),
    [DIR_STAGE_CATCH_UP] = ANEW | TO(DUAL_WRITE) | TO(ABORTED),
    [DIR_STAGE_DUAL_WRITE] = ANEW | TO(VALIDATE) | TO(ABORTED),
    [DIR_STAGE_VALIDATE] = ANEW | TO(FENCE) | TO(JOIN) | TO(CUTOVER) | TO(ABORTED),
    [DIR_STAGE_FENCE] = ANEW | TO(FENCE) | TO(CUTOVER) | TO(ABORTED),
    [DIR_STAGE_CUTOVER] = ANEW | TO(FENCE) | TO(WINDOW) | TO(DONE) | TO(ABORTED),
    [DIR_STAGE_JOIN] = TO(CLEANUP) | TO(DONE),
    [DIR_STAGE_WINDOW] = TO(CLEANUP) | TO(DONE) | TO(FAILED),
    [DIR_STAGE_CLEANUP] = TO(DONE) | TO(FAILED),
    [DIR_STAGE_ABORTED] = TO(QUEUED), /* these two are tried again */
    [DIR_STAGE_FAILED] = TO(CLEANUP),
};

static bool may_follow(uint8_t stage, enum dir_stage next)
{
    return stage < sizeof follows / sizeof follows[0] && (follows[stage] >> next & 1) != 0;
}

static void
note_stage(struct apply *a, struct dir_operation *o, enum dir_stage stage, const char *by)
{
    if (o->stage_count == DIR_STAGES_MAX) {
        o->stage_count--;
        memmove(&o->stages[0], &o->stages[1], o->stage_count * sizeof o->stages[0]);
    }
    struct dir_stage_entry *s = &o->stages[o->stage_count++];
    memset(s, 0, sizeof *s);
    o->stage = (uint8_t)stage;
    o->stage_since_ms = a->s->time_ms;
    o->stage_revision = a->rev;
    o->stage_bytes = o->bytes_done;
    budget_on_stage(a->s, o);
    throttle_on_stage(o);
    s->stage = (uint8_t)stage;
    s->at_ms = a->s->time_ms;
    s->revision = a->rev;
    (void)snprintf(s->by, sizeof s->by, "%.*s", DIR_NAME_MAX, by);
}

static const char *initiator(const struct apply *a)
{
    return a->cmd->principal[0] != '\0' ? a->cmd->principal : "directory";
}

static const char *name_of(const struct apply *a, uint64_t node)
{
    const struct dir_node *n = node != 0 ? view_node_by_id(a->s, node) : NULL;
    return n != NULL ? n->name : "";
}

static struct dir_operation *operation_new(struct apply *a,
                                           const struct dir_partition *p,
                                           const struct dir_operation *like,
                                           const char *reason)
{
    struct dir_operation *o = mem_zalloc(sizeof *o + 2 * sizeof o->stages[0]);
    object_assign(o, like, sizeof *o);
    o->object.refs = 1;
    o->object.kind = DIR_KIND_OPERATION;
    o->id = apply_id(a);
    o->keyspace = p->keyspace;
    o->partition = p->id;
    o->epoch_before = p->epoch;
    o->revision = a->rev;
    o->at_ms = a->s->time_ms;
    o->attempt = o->first_attempt = 1;
    o->class_of = like->class_of != 0 ? like->class_of : DIR_CLASS_OPERATOR;
    (void)snprintf(o->keyspace_name, sizeof o->keyspace_name, "%s",
                   state_keyspace(a->s, p->keyspace)->name);
    (void)snprintf(o->source_name, sizeof o->source_name, "%s",
                   name_of(a, o->leaving != 0 ? o->leaving : o->source));
    (void)snprintf(o->destination_name, sizeof o->destination_name, "%s",
                   name_of(a, o->destination));
    (void)snprintf(o->initiator, sizeof o->initiator, "%s", a->cmd->principal);
    (void)snprintf(o->reason, sizeof o->reason, "%s", reason);
    return o;
}

static bool has_ended(const struct dir_operation *o)
{
    return o->state >= DIR_OPERATION_DONE;
}

/* The oldest that has ended goes. */
static void make_room(struct apply *a)
{
    struct ptree_iter it;
    const struct dir_operation *o;
    if (a->s->operations.count < DIR_OPERATIONS_MAX) {
        return;
    }
    ptree_seek(&a->s->operations, slice_of(NULL, 0), &it);
    while ((o = ptree_iter_get(&it, NULL)) != NULL && !has_ended(o)) {
        ptree_iter_next(&it);
    }
    if (o != NULL) {
        apply_remove(a, o);
    }
}

static struct dir_operation *operation_put(struct apply *a, struct dir_operation *o)
{
    make_room(a);
    dir_unref(a->operation);
    a->operation = dir_ref(o);
    apply_put(a, o);
    return o;
}

struct dir_operation *operation_done(struct apply *a,
                                     const struct dir_partition *p,
                                     enum dir_operation_kind kind,
                                     const struct dir_node *to,
                                     const char *reason)
{
    const struct dir_node *from = view_primary(a->s, p);
    struct dir_operation like = {
        .kind = (uint8_t)kind,
        .state = DIR_OPERATION_DONE,
        .source = from != NULL ? from->id : 0,
        .destination = to->id,
        .moves_primary = true,
        .epoch_after = a->rev,
    };
    struct dir_operation *o = operation_new(a, p, &like, reason);
    note_stage(a, o, DIR_STAGE_DONE, initiator(a));
    return operation_put(a, o);
}

struct dir_operation *operation_queue(struct apply *a,
                                      const struct dir_partition *p,
                                      const struct dir_operation *like,
                                      const char *reason)
{
    struct dir_operation *o = operation_new(a, p, like, reason);
    o->state = DIR_OPERATION_QUEUED;
    note_stage(a, o, DIR_STAGE_QUEUED, initiator(a));
    return operation_put(a, o);
}

const struct dir_operation *operation_of_partition(const struct dir_view *s,
                                                   const struct dir_partition *p)
{
    return p->operation != 0 ? view_operation(s, p->operation) : NULL;
}

/* --- one operation while it changes --- */

/* Of the operation alone. */
static void
open_operation(struct moving *m, struct apply *a, const struct dir_operation *o, const char *by)
{
    memset(m, 0, sizeof *m);
    m->a = a;
    m->o = mem_zalloc(operation_size(o) + MORE_STAGES * sizeof o->stages[0]);
    object_assign(m->o, o, operation_size(o));
    m->o->object.refs = 1;
    m->o->object.kind = DIR_KIND_OPERATION;
    m->by = by;
}

void moving_open_again(struct moving *m,
                       struct apply *a,
                       const struct dir_operation *o,
                       const struct dir_partition *p)
{
    uint8_t key[8];
    open_operation(m, a, o, initiator(a));
    m->old = dir_ref(ptree_get(&a->s->partitions, ptree_u64_key(p->id, key)));
    m->like = mem_zalloc(sizeof *m->like);
    object_assign(m->like, p, sizeof *m->like);
    m->replica_count = p->replica_count;
    memcpy(m->replicas, p->replicas, p->replica_count * sizeof m->replicas[0]);
}

void moving_open(struct moving *m, struct apply *a, const struct dir_partition *p, const char *by)
{
    const struct dir_operation *o = operation_of_partition(a->s, p);
    ASSERT(o != NULL);
    moving_open_again(m, a, o, p);
    m->by = by;
}

static void put_partition(struct moving *m, bool quiet)
{
    struct apply *a = m->a;
    struct partition_arrays arrays = partition_arrays(m->old);
    arrays.replicas = m->replicas;
    arrays.replica_count = m->replica_count;
    m->like->mod_revision = a->rev;
    struct dir_partition *now = partition_new(m->like, &arrays);
    apply_count(a, m->old, -1);
    apply_count(a, now, 1);
    if (!quiet) {
        touched_route(apply_touch(a, now->keyspace, m->like->cause), now);
        a->kind = m->like->cause;
    }
    apply_put(a, now);
}

void moving_commit(struct moving *m, bool quiet)
{
    m->o->revision = m->a->rev;
    if (m->like->operation == m->o->id) {
        m->like->moving = m->o->stage;
    } else if (m->like->operation == 0) {
        m->like->moving = 0;
    }
    if (m->parts) {
        part_put(m);
    } else if (m->partition_changed) {
        put_partition(m, quiet);
    }
    dir_unref(m->a->operation);
    m->a->operation = dir_ref(m->o);
    apply_put(m->a, m->o);
    m->a->changed = true;
    dir_ref(m->o);
    moving_drop(m);
}

void moving_drop(struct moving *m)
{
    union {
        const struct dir_partition *in;
        struct dir_partition *out;
    } old = {.in = m->old};
    dir_unref(old.out);
    dir_unref(m->o);
    mem_free(m->like);
}

bool moving_in(const struct moving *m, enum dir_stage from, enum dir_stage upto)
{
    return m->o->stage >= from && m->o->stage <= upto;
}

int moving_copy(const struct moving *m, uint64_t node)
{
    for (int i = 0; i < m->replica_count; i++) {
        if (m->replicas[i].node == node) {
            return i;
        }
    }
    return -1;
}

bool moving_only_forward(const struct moving *m)
{
    return m->o->joined && !partition_has_primary(m->old);
}

static void changed(struct moving *m, enum dir_change_kind cause)
{
    m->partition_changed = true;
    m->like->cause = (uint8_t)cause;
}

static void end(struct moving *m, enum dir_operation_state state)
{
    m->o->state = (uint8_t)state;
    if (m->like->operation == m->o->id) {
        m->like->operation = 0;
        changed(m, DIR_CHANGE_STAGE);
    }
}

void moving_enter(struct moving *m, enum dir_stage stage)
{
    ASSERT(may_follow(m->o->stage, stage));
    changed(m, DIR_CHANGE_STAGE);
    note_stage(m->a, m->o, stage, m->by);
    m->o->state = stage == DIR_STAGE_QUEUED ? DIR_OPERATION_QUEUED : DIR_OPERATION_RUNNING;
    if (stage == DIR_STAGE_DONE) {
        end(m, DIR_OPERATION_DONE);
    }
    if (stage == DIR_STAGE_FENCE) {
        m->like->state = DIR_FENCING;
    }
}

static void copy_remove(struct moving *m, int at)
{
    m->replica_count--;
    memmove(&m->replicas[at], &m->replicas[at + 1],
            (size_t)(m->replica_count - at) * sizeof m->replicas[0]);
}

/* The node's agent has to delete this copy; of a static node nobody would say that it is done. */
static bool owe(struct moving *m, const struct dir_replica *r)
{
    const struct dir_node *n = view_node_by_id(m->a->s, r->node);
    if (n == NULL || n->is_static) {
        return false;
    }
    duty_make(m->a, state_keyspace(m->a->s, m->like->keyspace), m->old, r, m->o->id);
    return true;
}

/* What the present attempt has proven is worth nothing in the next. */
static void forget(struct moving *m)
{
    struct dir_operation *o = m->o;
    o->joined = o->active = o->fenced = o->warm = false;
    o->from_position = o->validate_at = o->final_position = o->checksum = 0;
    o->joined_session = 0;
    o->source_says.has_values = o->source_says.passed = false;
    o->destination_says.has_values = o->destination_says.passed = false;
}

static void forget_copy(struct moving *m, enum dir_stage stage)
{
    struct dir_operation *o = m->o;
    o->chunk = o->bytes_done = o->checksum_failures = o->applied_position = o->lag_bytes = 0;
    o->complete = false;
    o->base_position = 0;
    if (stage < DIR_STAGE_COPY) {
        o->position = o->bytes_total = o->items_total = 0;
        memset(o->snapshot, 0, sizeof o->snapshot);
    }
}

/* A fence is lifted by a new epoch, never by itself: what was refused stays refused at the old one.
 */
static void lift_fence(struct moving *m)
{
    if (m->like->state == DIR_FENCING) {
        m->like->state = DIR_ACTIVE;
        m->like->epoch = m->a->rev;
        m->like->start_position = 0;
        m->o->epoch_before = m->a->rev;
        changed(m, DIR_CHANGE_STAGE);
    }
}

static void take_sessions(struct moving *m)
{
    const struct dir_node *d = view_node_by_id(m->a->s, m->o->destination);
    m->o->source_session = m->like->session;
    m->o->destination_session = d != NULL && view_node_is_live(d) ? d->session : 0;
}

void moving_back(struct moving *m, enum dir_stage stage, bool discard)
{
    if (m->o->attempt - m->o->first_attempt + 1 >= DIR_ATTEMPTS_MAX) {
        moving_abort(m, "attempts_exhausted", "every attempt that there may be has failed");
        return;
    }
    int at = moving_copy(m, m->o->destination);
    if (discard && m->o->reverses != 0 && m->o->snapshot[0] == '\0') {
        stage = DIR_STAGE_PREPARE; /* it began with the copy that is given up here */
    }
    lift_fence(m);
    forget(m);
    m->o->attempt++;
    if (discard && at >= 0) {
        (void)owe(m, &m->replicas[at]);
        m->replicas[at].copy = m->o->copy = m->a->rev;
        forget_copy(m, stage);
    }
    moving_enter(m, stage);
    take_sessions(m);
}

void moving_attention(struct moving *m, const char *code, const char *detail)
{
    struct dir_operation *o = m->o;
    memset(o->attention_code, 0, sizeof o->attention_code);
    memset(o->attention, 0, sizeof o->attention);
    (void)snprintf(o->attention_code, sizeof o->attention_code, "%s", code);
    (void)snprintf(o->attention, sizeof o->attention, "%s", detail);
    o->attention_since_ms = m->a->s->time_ms;
}

void moving_calm(struct moving *m)
{
    struct dir_operation *o = m->o;
    memset(o->attention_code, 0, sizeof o->attention_code);
    memset(o->attention, 0, sizeof o->attention);
    o->attention_since_ms = 0;
}

void moving_queue_again(struct moving *m, uint64_t source)
{
    struct dir_operation *o = m->o;
    moving_calm(m);
    forget(m);
    forget_copy(m, DIR_STAGE_QUEUED);
    o->free_bytes = o->validations = 0;
    o->copy = o->source_session = o->destination_session = 0;
    o->source = source;
    memset(o->source_name, 0, sizeof o->source_name);
    (void)snprintf(o->source_name, sizeof o->source_name, "%s",
                   name_of(m->a, o->leaving != 0 ? o->leaving : source));
    o->epoch_before = m->like->epoch;
    o->first_attempt = ++o->attempt;
    m->like->operation = o->id;
    moving_enter(m, DIR_STAGE_QUEUED);
}

/* What it had settled to delete, and somebody kept. */
void moving_cleanup_again(struct moving *m)
{
    struct dir_operation *o = m->o;
    int at = moving_copy(m, o->leaving);
    struct dir_replica r = {.node = o->leaving, .copy = o->leaving_copy};
    moving_calm(m);
    if (at >= 0 && m->replicas[at].copy == o->leaving_copy) {
        copy_remove(m, at);
        changed(m, DIR_CHANGE_ROLES);
    }
    note_stage(m->a, o, DIR_STAGE_CLEANUP, m->by);
    o->state = DIR_OPERATION_RUNNING;
    if (o->leaving_copy == 0 || !owe(m, &r)) {
        note_stage(m->a, o, DIR_STAGE_DONE, m->by);
        o->state = DIR_OPERATION_DONE;
    }
}

void moving_abort(struct moving *m, const char *code, const char *detail)
{
    int at = moving_copy(m, m->o->destination);
    lift_fence(m);
    if (at >= 0 && m->replicas[at].role == DIR_ROLE_JOINING) {
        (void)owe(m, &m->replicas[at]);
        copy_remove(m, at);
    }
    m->o->joined = m->o->active = m->o->fenced = false;
    moving_attention(m, code, detail);
    moving_enter(m, DIR_STAGE_ABORTED);
    end(m, DIR_OPERATION_ABORTED);
}

void moving_fail(struct moving *m, const char *code, const char *detail)
{
    moving_attention(m, code, detail);
    moving_enter(m, DIR_STAGE_FAILED);
    end(m, DIR_OPERATION_FAILED);
}

void moving_cutover(struct moving *m, uint64_t start_position)
{
    struct dir_operation *o = m->o;
    int at = moving_copy(m, o->destination);
    struct dir_replica d = m->replicas[at];
    bool transfer = o->kind == DIR_OPERATION_TRANSFER;
    copy_remove(m, at);
    memmove(&m->replicas[1], &m->replicas[0], m->replica_count * sizeof m->replicas[0]);
    m->replica_count++;
    d.role = DIR_ROLE_PRIMARY;
    m->replicas[0] = d;
    at = moving_copy(m, o->source);
    if (at >= 0) {
        o->leaving_copy = m->replicas[at].copy;
        /* After a transfer it has all that counts: nothing came after the fence. */
        m->replicas[at].role = transfer && o->fenced ? DIR_ROLE_SYNC : DIR_ROLE_ASYNC;
        m->replicas[0].asked = transfer ? d.asked : m->replicas[at].asked;
    }
    moving_enter(m, transfer ? DIR_STAGE_DONE : DIR_STAGE_WINDOW);
    changed(m, DIR_CHANGE_MOVE);
    m->like->state = DIR_ACTIVE;
    m->like->epoch = m->a->rev;
    m->like->session = view_node_by_id(m->a->s, o->destination)->session;
    m->like->home = 0;
    m->like->start_position = start_position;
    m->like->owner_since_ms = m->a->s->time_ms;
    o->epoch_after = m->a->rev;
    forget(m);
    o->final_position = start_position;
    m->parts = o->part.is_set;
    o->reverse = !transfer && dir_policy_get(m->a->s, state_keyspace(m->a->s, o->keyspace),
                                             DIR_POLICY_REVERSE_REPLICATION) != 0;
}

/* The row of the move back, which begins with the source's copy as its candidate. */
static uint64_t begin_reverse(struct moving *m, const struct dir_replica *candidate)
{
    struct dir_operation *o = m->o;
    struct dir_operation like = {
        .kind = DIR_OPERATION_MOVE,
        .source = o->destination,
        .destination = o->source,
        .leaving = o->destination,
        .role = DIR_ROLE_PRIMARY,
        .moves_primary = true,
        .max_bytes_per_s = o->max_bytes_per_s,
        .reverses = o->id,
        .copy = candidate->copy,
        .base_position = o->final_position,
        .source_session = m->like->session,
        .destination_session = view_node_by_id(m->a->s, o->source)->session,
    };
    struct dir_operation *back =
        operation_new(m->a, m->old, &like, m->a->cmd->operation_verb->reason);
    note_stage(m->a, back, DIR_STAGE_QUEUED, m->by);
    note_stage(m->a, back, DIR_STAGE_CATCH_UP, m->by);
    back->state = DIR_OPERATION_RUNNING;
    budget_reverse(o, back);
    return operation_put(m->a, back)->id;
}

void moving_reverse(struct moving *m)
{
    int at = moving_copy(m, m->o->source);
    m->o->reversed_by = begin_reverse(m, &m->replicas[at]);
    m->replicas[at].role = DIR_ROLE_JOINING;
    m->like->operation = m->o->reversed_by;
    moving_enter(m, DIR_STAGE_DONE);
    m->like->moving = DIR_STAGE_CATCH_UP;
}

void moving_join(struct moving *m)
{
    struct dir_operation *o = m->o;
    struct dir_replica *d = &m->replicas[moving_copy(m, o->destination)];
    int at = o->leaving != 0 ? moving_copy(m, o->leaving) : -1;
    d->role = o->role;
    d->asked = at >= 0 ? m->replicas[at].asked
                       : o->kind == DIR_OPERATION_ADD_REPLICA && o->class_of == DIR_CLASS_OPERATOR;
    bool owed = at >= 0 && owe(m, &m->replicas[at]);
    if (at >= 0) {
        o->leaving_copy = m->replicas[at].copy;
        copy_remove(m, at);
    }
    o->epoch_after = m->like->epoch;
    forget(m);
    moving_enter(m, DIR_STAGE_JOIN);
    moving_enter(m, owed ? DIR_STAGE_CLEANUP : DIR_STAGE_DONE);
    m->like->operation = 0;
    changed(m, DIR_CHANGE_ROLES);
}

void moving_cleanup(struct moving *m)
{
    int at = moving_copy(m, m->o->leaving);
    bool owed = at >= 0 && owe(m, &m->replicas[at]);
    /* Of a node that is away the duty alone is left: it may never come back for it. */
    bool waits = owed && (m->o->kind != DIR_OPERATION_REMOVE_REPLICA ||
                          view_node_is_live(view_node_by_id(m->a->s, m->o->leaving)));
    if (at >= 0) {
        m->o->leaving_copy = m->replicas[at].copy;
        copy_remove(m, at);
    }
    moving_enter(m, waits ? DIR_STAGE_CLEANUP : DIR_STAGE_DONE);
    /* From here on only the duty is left, and another operation may have the partition. */
    m->like->operation = 0;
    changed(m, DIR_CHANGE_ROLES);
}

void moving_again(struct moving *m)
{
    changed(m, DIR_CHANGE_STAGE);
}

void operation_cleaned(struct apply *a,
                       const struct dir_operation *o,
                       uint64_t old_epoch_writes,
                       uint64_t deleted_bytes)
{
    struct moving m;
    bool bad = old_epoch_writes > o->old_epoch_writes; /* more than somebody knows of */
    open_operation(&m, a, o, "directory");
    m.o->old_epoch_writes = bad ? old_epoch_writes : o->old_epoch_writes;
    m.o->deleted_bytes = deleted_bytes;
    m.o->revision = a->rev;
    if (bad) {
        moving_attention(&m, "old_epoch_writes", "the source took writes of before the cutover");
    }
    note_stage(a, m.o, bad ? DIR_STAGE_FAILED : DIR_STAGE_DONE, "directory");
    m.o->state = bad ? DIR_OPERATION_FAILED : DIR_OPERATION_DONE;
    (void)operation_put(a, m.o);
}
