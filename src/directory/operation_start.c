/* SPDX-License-Identifier: Apache-2.0 */
/* How operations begin: asked for, then admitted. */
#include "directory/budget_internal.h"

#include "base/assert.h"
#include "directory/repair.h"

#include <inttypes.h>
#include <stdio.h>

static enum err_code
find_node(struct apply *a, const char *name, const char *pointer, const struct dir_node **ret)
{
    *ret = NULL;
    if (name[0] == '\0') {
        return ERR_OK;
    }
    *ret = view_node(a->s, slice_of(name, strlen(name)));
    return *ret != NULL ? ERR_OK
                        : err_set_at(&a->err, ERR_NODE_NOT_FOUND, pointer, "there is no such node");
}

/* The member that named the receiver. */
static const char *receiver_pointer(enum dir_operation_kind kind)
{
    return kind == DIR_OPERATION_ADD_REPLICA ? "/node" : "/to";
}

static enum err_code find_request(struct apply *a, struct operation_request *r)
{
    const Cadastre__OperationStart *m = a->cmd->operation_start;
    /* Whose copy is to be removed is in the path. */
    bool in_path = m->kind == DIR_OPERATION_REMOVE_REPLICA;
    r->kind = m->kind;
    r->role = m->role;
    enum err_code code = find_node(a, m->from, in_path ? "" : "/from", &r->from);
    return code == ERR_OK ? find_node(a, m->to, receiver_pointer(r->kind), &r->to) : code;
}

enum err_code operation_check_free(struct apply *a, struct dir_partition *p)
{
    if (p->operation == 0) {
        return ERR_OK;
    }
    dir_unref(a->operation); /* the one that is to be tried again */
    a->operation =
        dir_ref(ptree_get(&a->s->operations, ptree_u64_key(p->operation, (uint8_t[8]){0})));
    return err_set(&a->err, ERR_PARTITION_BUSY, "operation %" PRIu64 " holds partition %" PRIu64,
                   p->operation, p->id);
}

/* A node that is to get a copy. */
static enum err_code
check_receiver(struct apply *a, const struct dir_partition *p, const struct operation_request *r)
{
    const char *pointer = receiver_pointer(r->kind), *why = NULL;
    if (r->to == NULL) {
        return err_set_at(&a->err, ERR_INVALID_REQUEST, pointer, "a node has to be named");
    }
    if (r->to_at >= 0) {
        why = r->to_at == 0 ? "it is the primary already" : "it holds a copy";
    } else if (!view_node_is_live(r->to)) {
        why = "it has no session";
    } else if (r->to->scheduling != 0) {
        why = "it takes nothing new";
    } else if (p->replica_count == DIR_REPLICAS_MAX) {
        why = "the partition has as many copies as there may be";
    }
    if (why != NULL) {
        return err_set_at(&a->err, ERR_NO_DESTINATION, pointer,
                          "\"%s\" can't take the partition: %s", r->to->name, why);
    }
    const struct dir_keyspace *ks = state_keyspace(a->s, p->keyspace);
    if (!place_allows(&ks->placement, r->to)) {
        return err_set_at(&a->err, ERR_PLACEMENT_VIOLATED, pointer,
                          "the placement of \"%s\" does not allow \"%s\"", ks->name, r->to->name);
    }
    return ERR_OK;
}

static enum err_code
check_transfer(struct apply *a, const struct dir_partition *p, const struct operation_request *r)
{
    if (r->to_at <= 0 || p->replicas[r->to_at].role != DIR_ROLE_SYNC || !view_node_is_live(r->to)) {
        return err_set_at(&a->err, ERR_NO_DESTINATION, "/to",
                          "only a live replica that is in sync can be made the primary");
    }
    return ERR_OK;
}

static uint32_t count_role(const struct dir_partition *p, enum dir_role role)
{
    uint32_t n = 0;
    for (uint8_t i = 0; i < p->replica_count; i++) {
        n += p->replicas[i].role == role;
    }
    return n;
}

static enum err_code
check_removal(struct apply *a, const struct dir_partition *p, const struct operation_request *r)
{
    const struct dir_keyspace *ks = state_keyspace(a->s, p->keyspace);
    if (r->from_at < 0) {
        return err_set(&a->err, ERR_NODE_NOT_FOUND, "the node has no copy of the partition");
    }
    if (p->replicas[r->from_at].role == DIR_ROLE_PRIMARY) {
        return err_set(&a->err, ERR_NO_DESTINATION, "it is the primary: transfer or move it first");
    }
    if (p->replicas[r->from_at].role == DIR_ROLE_SYNC &&
        count_role(p, DIR_ROLE_SYNC) <= ks->sync_replicas) {
        return err_set(&a->err, ERR_PLACEMENT_VIOLATED,
                       "the keyspace wants %" PRIu32 " replicas in sync", ks->sync_replicas);
    }
    return ERR_OK;
}

static enum err_code
check_kind(struct apply *a, struct dir_partition *p, const struct operation_request *r)
{
    switch (r->kind) {
    case DIR_OPERATION_MOVE:
        if (r->from != NULL && r->from_at < 0) {
            apply_show_present(a, p);
            return err_set_at(&a->err, ERR_NOT_OWNER, "/from", "\"%s\" has no copy of it",
                              r->from->name);
        }
        return check_receiver(a, p, r);
    case DIR_OPERATION_ADD_REPLICA:
        if (r->role != DIR_ROLE_SYNC && r->role != DIR_ROLE_ASYNC) {
            return err_set_at(&a->err, ERR_INVALID_REQUEST, "/role", "it is sync or async");
        }
        return check_receiver(a, p, r);
    case DIR_OPERATION_REMOVE_REPLICA:
        return check_removal(a, p, r);
    case DIR_OPERATION_TRANSFER:
        return check_transfer(a, p, r);
    default:
        return err_set(&a->err, ERR_INVALID_REQUEST, "the kind of operation is unknown");
    }
}

/* What a leader proposes unasked is still as it saw it. */
static enum err_code
check_class(struct apply *a, const struct dir_partition *p, const struct operation_request *r)
{
    const Cadastre__OperationStart *m = a->cmd->operation_start;
    const struct dir_node *leaving = r->from != NULL ? r->from : r->owner;
    if (m->class_ == DIR_CLASS_DRAIN && leaving->scheduling != DIR_DRAINING) {
        return err_set(&a->err, ERR_NO_DESTINATION, "\"%s\" does not drain", leaving->name);
    }
    if (m->class_ > DIR_CLASS_DRAIN && m->kind == DIR_OPERATION_ADD_REPLICA &&
        !repair_is_short(a->s, state_keyspace(a->s, p->keyspace), p, (uint8_t)m->role)) {
        return err_set(&a->err, ERR_NO_DESTINATION, "the partition has enough copies");
    }
    return ERR_OK;
}

enum err_code operation_check(struct apply *a, struct dir_partition *p, struct operation_request *r)
{
    r->owner = view_primary(a->s, p);
    r->from_at = r->from != NULL ? partition_copy_on(p, r->from->id) : -1;
    r->to_at = r->to != NULL ? partition_copy_on(p, r->to->id) : -1;
    if (r->owner == NULL) {
        apply_show_present(a, p);
        return err_set(&a->err, ERR_NOT_OWNER, "partition %" PRIu64 " has no primary at present",
                       p->id);
    }
    if (r->owner->is_static || (r->to != NULL && r->to->is_static)) {
        return err_set(&a->err, ERR_NEEDS_STAGED_MOVE,
                       "a static node has no agent that could copy data; a partition that holds "
                       "none can be moved with \"empty\":true");
    }
    if (r->part.is_set && (r->kind != DIR_OPERATION_MOVE || (r->from != NULL && r->from_at != 0))) {
        return err_set_at(&a->err, ERR_INVALID_REQUEST, "/range",
                          "only of the primary's copy can a part be moved");
    }
    return check_kind(a, p, r);
}

static enum err_code
check_start(struct apply *a, struct dir_partition *p, struct operation_request *r)
{
    const Cadastre__OperationStart *m = a->cmd->operation_start;
    if (m->reason[0] != '\0' && !valid_text(m->reason, DIR_TEXT_MAX)) {
        return err_set_at(&a->err, ERR_INVALID_REQUEST, "/reason",
                          "a reason is a text of at most %d bytes", DIR_TEXT_MAX);
    }
    enum err_code code = budget_check_start(a);
    if (code == ERR_OK) {
        code = apply_expect_epoch(a, p, m->has_expect_epoch, m->expect_epoch);
    }
    if (code == ERR_OK) {
        code = find_request(a, r);
    }
    if (code == ERR_OK) {
        code = operation_check_free(a, p);
    }
    if (code == ERR_OK && m->has_range) {
        code = part_read(a, p, &r->part);
    }
    if (code == ERR_OK) {
        code = operation_check(a, p, r);
    }
    return code == ERR_OK ? check_class(a, p, r) : code;
}

/* The row as it begins. A move from another copy than the primary's has the primary as its source.
 */
static struct dir_operation
describe(const struct apply *a, const struct dir_partition *p, const struct operation_request *r)
{
    const Cadastre__OperationStart *m = a->cmd->operation_start;
    struct dir_operation like = {
        .kind = (uint8_t)m->kind,
        .source = r->owner->id,
        .destination = r->to != NULL ? r->to->id : 0,
        .max_bytes_per_s = m->max_bytes_per_s,
        .has_size = m->has_size_bytes,
        .size_bytes = m->has_size_bytes ? m->size_bytes : 0,
        .has_live = m->has_live_bytes_per_s,
        .live_bytes_per_s = m->has_live_bytes_per_s ? m->live_bytes_per_s : 0,
        .class_of = m->class_,
        .part = r->part,
    };
    bool from_primary = r->from == NULL || r->from == r->owner;
    if (m->kind == DIR_OPERATION_MOVE || m->kind == DIR_OPERATION_TRANSFER) {
        like.moves_primary = m->kind == DIR_OPERATION_TRANSFER || from_primary;
        like.leaving = from_primary ? r->owner->id : r->from->id;
        like.role = like.moves_primary ? DIR_ROLE_PRIMARY : p->replicas[r->from_at].role;
    } else if (m->kind == DIR_OPERATION_REMOVE_REPLICA) {
        like.leaving = r->from->id;
    } else {
        like.role = (uint8_t)m->role;
    }
    return like;
}

/* Out of QUEUED, into the first stage of its kind. */
static void begin(struct moving *m)
{
    struct dir_operation *o = m->o;
    m->o->epoch_before = m->like->epoch;
    budget_reserve(m->a->s, m->o);
    if (o->kind == DIR_OPERATION_REMOVE_REPLICA) {
        moving_cleanup(m);
        return;
    }
    const struct dir_node *d = view_node_by_id(m->a->s, o->destination);
    o->source_session = m->like->session;
    o->destination_session = d->session;
    if (o->kind == DIR_OPERATION_TRANSFER) {
        o->copy = m->replicas[moving_copy(m, o->destination)].copy;
        moving_enter(m, DIR_STAGE_FENCE);
        return;
    }
    o->copy = m->a->rev;
    m->replicas[m->replica_count++] =
        (struct dir_replica){.node = d->id, .copy = m->a->rev, .role = DIR_ROLE_JOINING};
    moving_enter(m, DIR_STAGE_PREPARE);
}

static enum err_code
judge_start(struct apply *a, struct dir_partition **ret_p, struct operation_request *r)
{
    enum err_code code = apply_find_partition(a, a->cmd->operation_start->partition, ret_p);
    return code == ERR_OK ? check_start(a, *ret_p, r) : code;
}

enum err_code operation_check_start(struct apply *a)
{
    struct dir_partition *p;
    struct operation_request r = {0};
    return judge_start(a, &p, &r);
}

enum err_code apply_operation_start(struct apply *a)
{
    const Cadastre__OperationStart *m = a->cmd->operation_start;
    struct dir_partition *p;
    struct operation_request r = {0};
    enum err_code code = judge_start(a, &p, &r);
    if (code != ERR_OK) {
        return code;
    }
    struct dir_operation like = describe(a, p, &r);
    struct dir_operation *o = operation_queue(a, p, &like, m->reason);
    struct dir_partition *now = partition_copy(p);
    now->operation = o->id;
    now->moving = o->stage;
    now->mod_revision = a->rev;
    now->cause = DIR_CHANGE_STAGE;
    a->kind = DIR_CHANGE_STAGE;
    touched_route(apply_touch(a, now->keyspace, DIR_CHANGE_STAGE), now);
    apply_put(a, now);
    a->changed = true;
    return ERR_OK;
}

const char *operation_not_yet(const struct dir_view *v,
                              const struct dir_operation *o,
                              const struct dir_partition *p)
{
    const struct dir_node *s = view_primary(v, p);
    const struct dir_node *d = o->destination != 0 ? view_node_by_id(v, o->destination) : NULL;
    if (s == NULL || s->id != o->source || s->session != p->session || !view_node_is_live(s)) {
        return "its source has no session";
    }
    if (o->kind == DIR_OPERATION_REMOVE_REPLICA) {
        return NULL;
    }
    if (d == NULL || !view_node_is_live(d)) {
        return "its destination has no session";
    }
    if (o->kind != DIR_OPERATION_TRANSFER && p->replica_count == DIR_REPLICAS_MAX) {
        return "the partition has as many copies as there may be";
    }
    int at = partition_copy_on(p, d->id);
    if (o->kind == DIR_OPERATION_TRANSFER ? at <= 0 || p->replicas[at].role != DIR_ROLE_SYNC
                                          : at >= 0) {
        return "its destination has another copy than when it was asked for";
    }
    return duty_is_owed(v, d->id, p->id) ? "its destination has to delete an older copy first"
                                         : NULL;
}

enum err_code apply_operation_admit(struct apply *a)
{
    const Cadastre__OperationAdmit *m = a->cmd->operation_admit;
    const struct dir_operation *o = view_operation(a->s, m->operation);
    uint8_t key[8];
    apply_subject(a, "operation=%" PRIu64, m->operation);
    if (o == NULL) {
        return err_set(&a->err, ERR_OPERATION_NOT_FOUND, "there is no such operation");
    }
    const struct dir_partition *p = ptree_get(&a->s->partitions, ptree_u64_key(o->partition, key));
    if (o->state != DIR_OPERATION_QUEUED || o->attempt != m->attempt || p == NULL) {
        return ERR_OK; /* it has moved on */
    }
    struct dir_waiting w;
    if (dir_budget_waits(a->s, o, &w)) {
        return err_set(&a->err, w.code, "not yet: %s", w.detail);
    }
    struct moving moving;
    moving_open(&moving, a, p, "directory");
    begin(&moving);
    moving_commit(&moving, false);
    return ERR_OK;
}
