/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of a state and their secondary indexes. Every row goes in and out through state_put
 * and state_remove, in apply as in a load from the store, so that an index cannot be forgotten in
 * one of them. */
#include "base/assert.h"
#include "base/mem.h"
#include "directory/balancer.h"
#include "directory/budget_internal.h"

#include <stdatomic.h>

void state_init(struct dir_view *s)
{
    memset(s, 0, sizeof *s);
    s->next_id = 1;
    s->settings.history_retention_ms = UINT64_C(7) * 24 * 3600 * 1000;
    s->settings.history_max = 1000000;
    s->settings.dedupe_retention_ms = UINT64_C(24) * 3600 * 1000;
    s->settings.lease_ms = 10000;
    s->settings.heartbeat_ms = 3000;
    s->settings.stage_timeout_ms = 600000;
    s->settings.dual_write_max_ms = 60000;
    s->settings.fence_max_ms = 30000;
    s->settings.validation_window_ms = 600000;
    s->settings.cutover_lag_bytes = 1 << 20;
    s->settings.recovery_delay_ms = 300000;
    s->settings.distrust_ms = 30000;
    dir_budget_defaults(&s->settings.budgets);
    hash128_add(&s->hash, state_scalar_hash(s));
}

void state_close(struct dir_view *s)
{
#define X(tree) ptree_unref(&s->tree);
    STATE_TREES(X)
#undef X
}

void state_copy(const struct dir_view *from, struct dir_view *ret_to)
{
    memcpy(ret_to, from, sizeof *from);
    ret_to->refs = 1;
#define X(tree) ret_to->tree = ptree_ref(&from->tree);
    STATE_TREES(X)
#undef X
}

bool state_is_waiting(const struct dir_partition *p)
{
    return !p->holds_data && p->replica_count == 0;
}

struct dir_keyspace *state_keyspace(const struct dir_view *s, uint64_t id)
{
    uint8_t key[8];
    return ptree_get(&s->keyspaces, ptree_u64_key(id, key));
}

const struct ptree *state_map(const struct dir_view *s, uint64_t keyspace)
{
    static const struct ptree none = {NULL, 0};
    uint8_t key[8];
    const struct dir_map *m = ptree_get(&s->keyspace_maps, ptree_u64_key(keyspace, key));
    return m != NULL ? &m->by_start : &none;
}

struct slice
state_dedupe_key(struct slice principal, struct slice key, uint8_t out[STATE_DEDUPE_KEY_MAX])
{
    memcpy(out, principal.data, principal.len);
    out[principal.len] = 0;
    memcpy(out + principal.len + 1, key.data, key.len);
    return slice_of(out, principal.len + 1 + key.len);
}

struct slice state_pair_key(uint64_t a, uint64_t b, uint8_t out[16])
{
    (void)ptree_u64_key(a, out);
    (void)ptree_u64_key(b, out + 8);
    return slice_of(out, 16);
}

/* Adds a reference for an index, and drops the one of what was there. */
static void index_put(struct ptree *t, struct slice key, void *row)
{
    dir_unref(ptree_put(t, key, dir_ref(row)));
}

static void index_remove(struct ptree *t, struct slice key)
{
    dir_unref(ptree_remove(t, key));
}

/* A map's tree, ready to be changed. Whether the map is shared shows only once it is out of the
 * index: then its last other reference is gone, and the tree can be taken over rather than shared
 * (and so copied). */
static struct ptree *map_edit(struct dir_view *s, uint64_t keyspace)
{
    uint8_t key[8];
    struct dir_map *m = mem_zalloc(sizeof *m);
    m->object.refs = 1;
    m->object.kind = DIR_KIND_MAP;
    struct dir_map *old = ptree_put(&s->keyspace_maps, ptree_u64_key(keyspace, key), m);
    if (old == NULL) {
        return &m->by_start;
    }
    if (atomic_load_explicit(&old->object.refs, memory_order_acquire) == 1) {
        m->by_start = old->by_start;
        memset(&old->by_start, 0, sizeof old->by_start);
    } else {
        m->by_start = ptree_ref(&old->by_start);
    }
    dir_unref(old);
    return &m->by_start;
}

struct dir_map *state_detach_map(struct dir_view *s, uint64_t keyspace)
{
    uint8_t key[8];
    return ptree_remove(&s->keyspace_maps, ptree_u64_key(keyspace, key));
}

/* What by_node holds of each copy: that there is one. It does not change with the partition, so
 * that most changes of partitions leave the index alone. Lives for ever. */
static struct dir_object mark = {.refs = 1, .kind = DIR_KIND_BYTES};

static void index_copies(struct dir_view *s,
                         const struct dir_partition *before,
                         const struct dir_partition *after)
{
    uint8_t key[16];
    for (uint8_t i = 0; before != NULL && i < before->replica_count; i++) {
        uint64_t node = before->replicas[i].node;
        if (after == NULL || partition_copy_on(after, node) < 0) {
            index_remove(&s->by_node, state_pair_key(node, before->id, key));
        }
    }
    for (uint8_t i = 0; after != NULL && i < after->replica_count; i++) {
        uint64_t node = after->replicas[i].node;
        if (before == NULL || partition_copy_on(before, node) < 0) {
            index_put(&s->by_node, state_pair_key(node, after->id, key), &mark);
        }
    }
}

static void *partition_put(struct dir_view *s, struct dir_partition *p)
{
    uint8_t key[16];
    index_put(map_edit(s, p->keyspace), dir_partition_start(p), p);
    struct dir_partition *old = ptree_put(&s->partitions, ptree_u64_key(p->id, key), p);
    if (old != NULL && state_is_waiting(old) && !state_is_waiting(p)) {
        index_remove(&s->waiting, state_pair_key(p->keyspace, p->id, key));
    } else if (state_is_waiting(p)) {
        index_put(&s->waiting, state_pair_key(p->keyspace, p->id, key), p);
    }
    s->unplaced = s->waiting.count;
    index_copies(s, old, p);
    return old;
}

static void *partition_remove(struct dir_view *s, const struct dir_partition *p)
{
    uint8_t key[16];
    struct dir_partition *old = ptree_remove(&s->partitions, ptree_u64_key(p->id, key));
    ASSERT(old != NULL);
    if (ptree_get(&s->keyspace_maps, ptree_u64_key(p->keyspace, key)) != NULL) {
        struct ptree *map = map_edit(s, p->keyspace);
        /* A child of the same start may be there already. */
        if (ptree_get(map, dir_partition_start(old)) == old) {
            index_remove(map, dir_partition_start(old));
        }
    }
    if (state_is_waiting(old)) {
        index_remove(&s->waiting, state_pair_key(old->keyspace, old->id, key));
    }
    s->unplaced = s->waiting.count;
    index_copies(s, old, NULL);
    return old;
}

static void *tombstone_put(struct dir_view *s, struct dir_tombstone *t)
{
    uint8_t key[16];
    index_put(&s->tombstones_by_age, state_pair_key(t->retired, t->id, key), t);
    return ptree_put(&s->tombstones, ptree_u64_key(t->id, key), t);
}

static void *tombstone_remove(struct dir_view *s, const struct dir_tombstone *t)
{
    uint8_t key[16];
    index_remove(&s->tombstones_by_age, state_pair_key(t->retired, t->id, key));
    return ptree_remove(&s->tombstones, ptree_u64_key(t->id, key));
}

static void *dedupe_put(struct dir_view *s, struct dir_dedupe *d)
{
    uint8_t age[8], key[STATE_DEDUPE_KEY_MAX];
    index_put(&s->dedupe_by_age, ptree_u64_key(d->index, age), d);
    return ptree_put(&s->dedupe,
                     state_dedupe_key(slice_of(d->bytes, d->principal_len),
                                      slice_of(d->bytes + d->principal_len, d->key_len), key),
                     d);
}

static void *dedupe_remove(struct dir_view *s, const struct dir_dedupe *d)
{
    uint8_t age[8], key[STATE_DEDUPE_KEY_MAX];
    struct slice k = state_dedupe_key(slice_of(d->bytes, d->principal_len),
                                      slice_of(d->bytes + d->principal_len, d->key_len), key);
    index_remove(&s->dedupe_by_age, ptree_u64_key(d->index, age));
    return ptree_remove(&s->dedupe, k);
}

static void *keyspace_put(struct dir_view *s, struct dir_keyspace *ks)
{
    uint8_t key[8];
    index_put(&s->keyspaces_by_name, slice_of(ks->name, strlen(ks->name)), ks);
    if (ptree_get(&s->keyspace_maps, ptree_u64_key(ks->id, key)) == NULL) {
        (void)map_edit(s, ks->id);
    }
    return ptree_put(&s->keyspaces, ptree_u64_key(ks->id, key), ks);
}

static void *keyspace_remove(struct dir_view *s, const struct dir_keyspace *ks)
{
    uint8_t key[8];
    dir_unref(state_detach_map(s, ks->id));
    index_remove(&s->keyspaces_by_name, slice_of(ks->name, strlen(ks->name)));
    return ptree_remove(&s->keyspaces, ptree_u64_key(ks->id, key));
}

static void *node_put(struct dir_view *s, struct dir_node *n)
{
    uint8_t key[8];
    index_put(&s->nodes_by_name, slice_of(n->name, strlen(n->name)), n);
    return ptree_put(&s->nodes, ptree_u64_key(n->id, key), n);
}

static void *node_remove(struct dir_view *s, const struct dir_node *n)
{
    uint8_t key[8];
    index_remove(&s->nodes_by_name, slice_of(n->name, strlen(n->name)));
    return ptree_remove(&s->nodes, ptree_u64_key(n->id, key));
}

static void *duty_put(struct dir_view *s, struct dir_duty *d)
{
    uint8_t key[16];
    index_put(&s->duties_by_node, state_pair_key(d->node, d->id, key), d);
    return ptree_put(&s->duties, ptree_u64_key(d->id, key), d);
}

static void *duty_remove(struct dir_view *s, const struct dir_duty *d)
{
    uint8_t key[16];
    index_remove(&s->duties_by_node, state_pair_key(d->node, d->id, key));
    return ptree_remove(&s->duties, ptree_u64_key(d->id, key));
}

static void *operation_put(struct dir_view *s, struct dir_operation *o)
{
    uint8_t key[8];
    struct dir_operation *old = ptree_put(&s->operations, ptree_u64_key(o->id, key), o);
    budget_index(&s->usage, &s->queued, old, o);
    return old;
}

static void *operation_remove(struct dir_view *s, const struct dir_operation *o)
{
    uint8_t key[8];
    struct dir_operation *old = ptree_remove(&s->operations, ptree_u64_key(o->id, key));
    budget_index(&s->usage, &s->queued, old, NULL);
    return old;
}

static void *proposal_put(struct dir_view *s, struct dir_proposal *p)
{
    uint8_t key[16], id[8];
    const struct dir_proposal *was = ptree_get(&s->proposals, ptree_u64_key(p->id, id));
    if (was != NULL && was->state == DIR_PROPOSAL_OPEN) {
        index_remove(&s->proposals_open, state_pair_key(was->expires_ms, was->id, key));
    }
    if (p->state == DIR_PROPOSAL_OPEN) {
        index_put(&s->proposals_open, state_pair_key(p->expires_ms, p->id, key), p);
    }
    return ptree_put(&s->proposals, ptree_u64_key(p->id, id), p);
}

static void *proposal_remove(struct dir_view *s, const struct dir_proposal *p)
{
    uint8_t key[16];
    if (p->state == DIR_PROPOSAL_OPEN) {
        index_remove(&s->proposals_open, state_pair_key(p->expires_ms, p->id, key));
    }
    return ptree_remove(&s->proposals, ptree_u64_key(p->id, key));
}

/* One cast for all kinds: every row begins with its object. */
#define ROW(type, row)       ((struct type *)(void *)(row))
#define CONST_ROW(type, row) ((const struct type *)(const void *)(row))

struct dir_object *state_put(struct dir_view *s, struct dir_object *row)
{
    uint8_t key[8];
    switch (row->kind) {
    case DIR_KIND_KEYSPACE:
        return keyspace_put(s, ROW(dir_keyspace, row));
    case DIR_KIND_PARTITION:
        return partition_put(s, ROW(dir_partition, row));
    case DIR_KIND_TOMBSTONE:
        return tombstone_put(s, ROW(dir_tombstone, row));
    case DIR_KIND_NODE:
        return node_put(s, ROW(dir_node, row));
    case DIR_KIND_SERVER:
        return ptree_put(&s->servers, ptree_u64_key(ROW(dir_server, row)->id, key), row);
    case DIR_KIND_DEDUPE:
        return dedupe_put(s, ROW(dir_dedupe, row));
    case DIR_KIND_OPERATION:
        return operation_put(s, ROW(dir_operation, row));
    case DIR_KIND_DUTY:
        return duty_put(s, ROW(dir_duty, row));
    case DIR_KIND_PROPOSAL:
        return proposal_put(s, ROW(dir_proposal, row));
    case DIR_KIND_BALANCER:
        return ptree_put(&s->balancer, ptree_u64_key(DIR_BALANCER_ID, key), row);
    default:
        UNREACHABLE();
    }
}

struct dir_object *state_remove(struct dir_view *s, const struct dir_object *row)
{
    switch (row->kind) {
    case DIR_KIND_KEYSPACE:
        return keyspace_remove(s, CONST_ROW(dir_keyspace, row));
    case DIR_KIND_PARTITION:
        return partition_remove(s, CONST_ROW(dir_partition, row));
    case DIR_KIND_TOMBSTONE:
        return tombstone_remove(s, CONST_ROW(dir_tombstone, row));
    case DIR_KIND_NODE:
        return node_remove(s, CONST_ROW(dir_node, row));
    case DIR_KIND_DEDUPE:
        return dedupe_remove(s, CONST_ROW(dir_dedupe, row));
    case DIR_KIND_OPERATION:
        return operation_remove(s, CONST_ROW(dir_operation, row));
    case DIR_KIND_DUTY:
        return duty_remove(s, CONST_ROW(dir_duty, row));
    case DIR_KIND_PROPOSAL:
        return proposal_remove(s, CONST_ROW(dir_proposal, row));
    default: /* a server's row stays for ever, the balancer's too */
        UNREACHABLE();
    }
}

void dir_meta_of(const struct dir_view *s, struct dir_view_meta *ret_meta)
{
    memset(ret_meta, 0, sizeof *ret_meta);
    memcpy(ret_meta->cluster, s->cluster, sizeof ret_meta->cluster);
    ret_meta->generation = s->generation;
    ret_meta->applied_index = s->applied_index;
    ret_meta->next_id = s->next_id;
    ret_meta->time_ms = s->time_ms;
    ret_meta->unplaced = s->unplaced;
    ret_meta->revision = s->revision;
    ret_meta->compacted = s->compacted;
    ret_meta->hash = s->hash;
    ret_meta->settings = s->settings;
    memcpy(ret_meta->marks, s->marks, sizeof ret_meta->marks);
}

struct hash128 state_scalar_hash(const struct dir_view *s)
{
    struct dir_view_meta meta;
    uint8_t bytes[512];
    /* On the stack: this runs twice a command. */
    struct buf b = {.data = bytes, .cap = sizeof bytes, .max = sizeof bytes};
    dir_meta_of(s, &meta);
    dir_meta_encode(&meta, &b);
    ASSERT(!b.overflow && b.data == bytes);
    return hash_xxh3_128(b.data, b.len);
}

struct hash128 state_row_hash(const struct dir_object *row, struct buf *scratch)
{
    buf_reset(scratch);
    dir_object_encode(row, scratch);
    ASSERT(!scratch->overflow);
    return hash_xxh3_128(scratch->data, scratch->len);
}

void object_assign(void *to, const void *from, size_t size)
{
    const size_t header = sizeof(struct dir_object);
    memcpy((uint8_t *)to + header, (const uint8_t *)from + header, size - header);
}

void *row_copy(const void *row, size_t size)
{
    struct dir_object *copy = mem_alloc(size);
    object_assign(copy, row, size);
    copy->refs = 1;
    copy->kind = ((const struct dir_object *)row)->kind;
    return copy;
}

bool partition_has_primary(const struct dir_partition *p)
{
    return p->replica_count > 0 && p->replicas[0].role == DIR_ROLE_PRIMARY;
}

int partition_copy_on(const struct dir_partition *p, uint64_t node)
{
    for (uint8_t i = 0; i < p->replica_count; i++) {
        if (p->replicas[i].node == node) {
            return i;
        }
    }
    return -1;
}

static size_t partition_size(const struct partition_arrays *a)
{
    return sizeof(struct dir_partition) + a->replica_count * sizeof(struct dir_replica) +
           a->parent_count * sizeof(uint64_t) + a->start.len + (a->end_open ? 0 : a->end.len);
}

struct partition_arrays partition_arrays(const struct dir_partition *p)
{
    return (struct partition_arrays){
        .replicas = p->replicas,
        .parents = dir_partition_parents(p),
        .replica_count = p->replica_count,
        .parent_count = p->parent_count,
        .end_open = p->end_open,
        .start = dir_partition_start(p),
        .end = dir_partition_end(p),
    };
}

static uint8_t *append(uint8_t *at, const void *bytes, size_t n)
{
    if (n > 0) {
        memcpy(at, bytes, n);
    }
    return at + n;
}

struct dir_partition *partition_new(const struct dir_partition *like,
                                    const struct partition_arrays *arrays)
{
    struct dir_partition *p = mem_alloc(partition_size(arrays));
    object_assign(p, like, sizeof *p);
    p->object.refs = 1;
    p->object.kind = DIR_KIND_PARTITION;
    p->replica_count = arrays->replica_count;
    p->parent_count = arrays->parent_count;
    p->end_open = arrays->end_open;
    p->start_len = (uint16_t)arrays->start.len;
    p->end_len = arrays->end_open ? 0 : (uint16_t)arrays->end.len;
    uint8_t *at = (uint8_t *)p->replicas;
    /* Field by field: the padding must not carry stray bytes. */
    memset(at, 0, arrays->replica_count * sizeof p->replicas[0]);
    for (uint8_t i = 0; i < arrays->replica_count; i++) {
        p->replicas[i].node = arrays->replicas[i].node;
        p->replicas[i].role = arrays->replicas[i].role;
        p->replicas[i].copy = arrays->replicas[i].copy;
        p->replicas[i].asked = arrays->replicas[i].asked;
    }
    at += arrays->replica_count * sizeof p->replicas[0];
    at = append(at, arrays->parents, arrays->parent_count * sizeof(uint64_t));
    at = append(at, arrays->start.data, arrays->start.len);
    (void)append(at, arrays->end.data, p->end_len);
    return p;
}

struct dir_partition partition_like(const struct dir_partition *p)
{
    struct dir_partition like;
    memset(&like, 0, sizeof like);
    object_assign(&like, p, sizeof like);
    return like;
}

struct dir_partition *partition_copy(const struct dir_partition *p)
{
    struct partition_arrays arrays = partition_arrays(p);
    return partition_new(p, &arrays);
}
