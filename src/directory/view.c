/* SPDX-License-Identifier: Apache-2.0 */
/* Views and what is found through them. */
#include "directory/view.h"

#include "base/assert.h"
#include "base/mem.h"
#include "directory/internal.h"

#include <stdatomic.h>

const struct dir_view *view_enter(const struct dir_published *slot)
{
    rcu_enter();
    return rcu_get(&slot->view);
}

const struct dir_view *view_pin(const struct dir_published *slot)
{
    rcu_enter();
    struct dir_view *v = rcu_get(&slot->view);
    /* The slot's own reference is dropped only after this section has ended. */
    atomic_fetch_add_explicit(&v->refs, 1, memory_order_relaxed);
    rcu_leave();
    return v;
}

void view_unpin(const struct dir_view *view)
{
    union {
        const struct dir_view *in;
        struct dir_view *out;
    } u = {.in = view};
    uint32_t before = atomic_fetch_sub_explicit(&u.out->refs, 1, memory_order_acq_rel);
    ASSERT(before > 0);
    if (before == 1) {
        state_close(u.out);
        mem_free(u.out);
    }
}

static const struct dir_keyspace *if_visible(const struct dir_keyspace *ks)
{
    return ks != NULL && !ks->hidden ? ks : NULL;
}

const struct dir_keyspace *view_keyspace(const struct dir_view *v, struct slice name)
{
    return if_visible(ptree_get(&v->keyspaces_by_name, name));
}

const struct dir_keyspace *view_keyspace_by_id(const struct dir_view *v, uint64_t id)
{
    return if_visible(state_keyspace(v, id));
}

const struct dir_node *view_node(const struct dir_view *v, struct slice name)
{
    return ptree_get(&v->nodes_by_name, name);
}

const struct dir_node *view_node_by_id(const struct dir_view *v, uint64_t id)
{
    uint8_t key[8];
    return ptree_get(&v->nodes, ptree_u64_key(id, key));
}

const struct dir_operation *view_operation(const struct dir_view *v, uint64_t id)
{
    uint8_t key[8];
    return ptree_get(&v->operations, ptree_u64_key(id, key));
}

const struct ptree *view_map(const struct dir_view *v, const struct dir_keyspace *ks)
{
    return state_map(v, ks->id);
}

const struct dir_partition *
view_route(const struct dir_view *v, const struct dir_keyspace *ks, struct slice routing_key)
{
    return ptree_floor(state_map(v, ks->id), routing_key);
}

const struct dir_partition *view_partition(const struct dir_view *v,
                                           const struct dir_keyspace *ks,
                                           uint64_t id,
                                           const struct dir_tombstone **ret_tombstone)
{
    uint8_t bytes[8];
    struct slice key = ptree_u64_key(id, bytes);
    const struct dir_partition *p = ptree_get(&v->partitions, key);
    const struct dir_tombstone *t = p == NULL ? ptree_get(&v->tombstones, key) : NULL;
    if (ret_tombstone != NULL) {
        *ret_tombstone = t != NULL && t->keyspace == ks->id ? t : NULL;
    }
    return p != NULL && p->keyspace == ks->id ? p : NULL;
}

uint64_t view_successors(const struct dir_view *v,
                         const struct dir_tombstone *t,
                         bool (*fn)(void *arg, const struct dir_partition *p),
                         void *arg)
{
    uint64_t called = 0;
    const struct dir_partition *p;
    struct ptree_iter it;
    ptree_seek_floor(state_map(v, t->keyspace), dir_tombstone_start(t), &it);
    while ((p = ptree_iter_get(&it, NULL)) != NULL) {
        if (!t->end_open && slice_cmp(dir_partition_start(p), dir_tombstone_end(t)) >= 0) {
            break;
        }
        called++;
        if (!fn(arg, p)) {
            break;
        }
        ptree_iter_next(&it);
    }
    return called;
}

dir_rev view_route_revision(const struct dir_view *v, const struct dir_partition *p)
{
    dir_rev revision = p->mod_revision;
    for (uint8_t i = 0; i < p->replica_count; i++) {
        const struct dir_node *n = view_node_by_id(v, p->replicas[i].node);
        if (n != NULL && n->route_revision > revision) {
            revision = n->route_revision;
        }
    }
    return revision;
}

const struct dir_node *view_primary(const struct dir_view *v, const struct dir_partition *p)
{
    return partition_has_primary(p) ? view_node_by_id(v, p->replicas[0].node) : NULL;
}

void view_node_partitions(const struct dir_view *v,
                          uint64_t node,
                          bool (*fn)(void *arg, struct dir_partition *p),
                          void *arg)
{
    uint8_t bytes[16];
    struct slice key;
    struct ptree_iter it;
    bool more = true;
    for (ptree_seek(&v->by_node, state_pair_key(node, 0, bytes), &it);
         more && ptree_iter_get(&it, &key) != NULL && memcmp(key.data, bytes, 8) == 0;
         ptree_iter_next(&it)) {
        more = fn(arg, ptree_get(&v->partitions, slice_of(key.data + 8, 8)));
    }
}

/* References are counted in the object, so taking one writes to what is const to readers. */
static void *share(const void *object)
{
    union {
        const void *in;
        void *out;
    } u = {.in = object};
    return dir_ref(u.out);
}

static void drop(const void *object)
{
    union {
        const void *in;
        void *out;
    } u = {.in = object};
    dir_unref(u.out);
}

void dir_route_open(struct dir_route *r, const struct dir_view *v, const struct dir_partition *p)
{
    memset(r, 0, sizeof *r);
    r->partition = share(p);
    r->keyspace = share(state_keyspace(v, p->keyspace));
    r->mod_revision = p->mod_revision;
    for (uint8_t i = 0; i < p->replica_count; i++) {
        r->nodes[i] = share(view_node_by_id(v, p->replicas[i].node));
        ASSERT(r->nodes[i] != NULL);
        if (r->nodes[i]->route_revision > r->mod_revision) {
            r->mod_revision = r->nodes[i]->route_revision;
        }
    }
}

void dir_route_close(struct dir_route *r)
{
    if (r->partition != NULL) {
        for (uint8_t i = 0; i < r->partition->replica_count; i++) {
            drop(r->nodes[i]);
        }
    }
    drop(r->partition);
    drop(r->keyspace);
    memset(r, 0, sizeof *r);
}
