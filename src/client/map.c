/* SPDX-License-Identifier: Apache-2.0 */
#include "client/map.h"

#include "base/assert.h"
#include "base/mem.h"
#include "client/map_node.h"

enum { RETIRED_FIRST = 64 };

void cl_map_init(struct cl_map *m)
{
    memset(m, 0, sizeof *m);
    m->batch = 1;
}

/* --- finding --- */

static void prefetch(const struct cl_node *n)
{
    __builtin_prefetch(n);
    for (unsigned i = CL_NODE_STEP - 1; i < CL_NODE_FANOUT; i += CL_NODE_STEP) {
        __builtin_prefetch(&n->heads[i]);
    }
}

struct cl_entry *cl_map_floor(const struct cl_node *n, struct slice key)
{
    for (; n != NULL; prefetch(n)) {
        unsigned i = cl_node_search(n, key);
        if (i == 0) {
            return NULL; /* its parent's key for it is its lowest: only at the root */
        }
        if (n->level == 0) {
            return n->pointers[i - 1];
        }
        n = cl_node_child(n, i - 1);
    }
    return NULL;
}

struct cl_entry *cl_map_ceiling(const struct cl_node *n, struct slice key, bool after)
{
    struct cl_entry *next = NULL; /* the lowest of what is right of the way down */
    while (n != NULL) {
        unsigned i = cl_node_search(n, key);
        if (i > 0 && !after && slice_eq(cl_node_key(n, i - 1), key)) {
            return cl_node_entry(n, i - 1);
        }
        if (i < n->count) {
            next = cl_node_entry(n, i);
        }
        if (i == 0 || n->level == 0) {
            return next;
        }
        n = cl_node_child(n, i - 1);
    }
    return NULL;
}

/* --- replacing --- */

static void retire(struct cl_map *m, void *p)
{
    struct cl_retired *r = &m->retired;
    if (r->count == r->cap) {
        r->cap = r->cap > 0 ? 2 * r->cap : RETIRED_FIRST;
        r->items = mem_realloc(r->items, r->cap * sizeof *r->items);
    }
    r->items[r->count++] = p;
}

static void drop_node(struct cl_map *m, struct cl_node *n)
{
    if (n->batch == m->batch) {
        mem_free(n); /* nobody has seen it */
    } else {
        retire(m, n);
    }
}

/* Makes *slot a node of this batch. */
static struct cl_node *own(struct cl_map *m, struct cl_node *n)
{
    if (n->batch == m->batch) {
        return n;
    }
    struct cl_node *copy = cl_node_copy(n, m->batch);
    retire(m, n);
    return copy;
}

/* The child, to be changed. */
static struct cl_node *own_child(struct cl_map *m, struct cl_node *n, unsigned i)
{
    struct cl_node *child = own(m, cl_node_child(n, i));
    n->pointers[i] = child;
    return child;
}

/* Cuts an owned, full node in two; returns the right half. */
static struct cl_node *split(struct cl_map *m, struct cl_node *n)
{
    struct cl_node *right = cl_node_new(m->batch, n->level);
    cl_node_move(n, n->count / 2u, right);
    return right;
}

/* Into an owned subtree, which has no entry of this start. Returns what it split off, or NULL. */
static struct cl_node *insert(struct cl_map *m, struct cl_node *n, struct cl_entry *e)
{
    struct slice key = cl_entry_start(e);
    struct cl_node *right = NULL, *target = n;
    if (n->count == CL_NODE_FANOUT) {
        right = split(m, n);
        target = slice_cmp(key, cl_node_key(right, 0)) < 0 ? n : right;
    }
    unsigned i = cl_node_search(target, key);
    if (target->level == 0) {
        cl_node_insert(target, i, e, NULL);
        return right;
    }
    i = i > 0 ? i - 1 : 0;
    struct cl_node *child = own_child(m, target, i), *more = insert(m, child, e);
    if (cl_node_entry(child, 0) != target->low[i]) {
        cl_node_set_low(target, i, cl_node_entry(child, 0));
    }
    if (more != NULL) {
        cl_node_insert(target, i + 1, more, cl_node_entry(more, 0));
    }
    return right;
}

static void put(struct cl_map *m, struct cl_entry *e)
{
    m->count++;
    if (m->next == NULL) {
        m->next = cl_node_new(m->batch, 0);
        cl_node_insert(m->next, 0, e, NULL);
        return;
    }
    m->next = own(m, m->next);
    struct cl_node *right = insert(m, m->next, e);
    if (right != NULL) {
        struct cl_node *root = cl_node_new(m->batch, (uint8_t)(m->next->level + 1));
        cl_node_insert(root, 0, m->next, cl_node_entry(m->next, 0));
        cl_node_insert(root, 1, right, cl_node_entry(right, 0));
        m->next = root;
    }
}

/* Child i of an owned node has few entries left: does a sibling have room for them? */
static void merge(struct cl_map *m, struct cl_node *n, unsigned i)
{
    unsigned left = i > 0 ? i - 1 : i;
    if (left + 1 >= n->count ||
        cl_node_child(n, left)->count + cl_node_child(n, left + 1)->count > CL_NODE_MERGE_MAX) {
        return;
    }
    struct cl_node *to = own_child(m, n, left), *from = own_child(m, n, left + 1);
    cl_node_move(from, 0, to);
    drop_node(m, from);
    cl_node_remove(n, left + 1);
}

/* From an owned subtree that has the entry. */
static void take_out(struct cl_map *m, struct cl_node *n, struct slice key)
{
    unsigned i = cl_node_search(n, key) - 1;
    if (n->level == 0) {
        retire(m, n->pointers[i]);
        cl_node_remove(n, i);
        return;
    }
    struct cl_node *child = own_child(m, n, i);
    take_out(m, child, key);
    if (child->count == 0) {
        drop_node(m, child);
        cl_node_remove(n, i);
        return;
    }
    if (cl_node_entry(child, 0) != n->low[i]) {
        cl_node_set_low(n, i, cl_node_entry(child, 0));
    }
    if (child->count < CL_NODE_FILL_MIN) {
        merge(m, n, i);
    }
}

void cl_map_remove(struct cl_map *m, struct slice start)
{
    struct cl_entry *e = cl_map_floor(m->next, start);
    if (e == NULL || !slice_eq(cl_entry_start(e), start)) {
        return;
    }
    m->next = own(m, m->next);
    take_out(m, m->next, start);
    m->count--;
    while (m->next->level > 0 && m->next->count == 1) {
        struct cl_node *root = m->next;
        m->next = cl_node_child(root, 0);
        drop_node(m, root);
    }
    if (m->next->count == 0) {
        drop_node(m, m->next);
        m->next = NULL;
    }
}

/* `again` is the same version, and may have been seen later. */
static void confirm(struct cl_entry *e, const struct cl_entry *again)
{
    uint64_t seen = atomic_load_explicit(&again->seen_ms, memory_order_relaxed);
    if (seen > atomic_load_explicit(&e->seen_ms, memory_order_relaxed)) {
        atomic_store_explicit(&e->seen_ms, seen, memory_order_relaxed);
    }
}

/* The first entry of the next version that overlaps `e`, or NULL. */
static struct cl_entry *overlap_first(const struct cl_map *m, const struct cl_entry *e)
{
    struct cl_entry *o = cl_map_find(m->next, cl_entry_start(e));
    if (o == NULL) {
        o = cl_map_ceiling(m->next, cl_entry_start(e), false);
    }
    return o != NULL && cl_entry_reaches(e, cl_entry_start(o)) ? o : NULL;
}

static struct cl_entry *
overlap_next(const struct cl_map *m, const struct cl_entry *e, const struct cl_entry *o)
{
    struct cl_entry *next = cl_map_ceiling(m->next, cl_entry_start(o), true);
    return next != NULL && cl_entry_reaches(e, cl_entry_start(next)) ? next : NULL;
}

/* `o` gives way to `e`; gaps stay where it reaches beyond it. */
static void give_way(struct cl_map *m, const struct cl_entry *o, const struct cl_entry *e)
{
    struct slice start = cl_entry_start(e), end = cl_entry_end(e);
    cl_map_remove(m, cl_entry_start(o));
    if (slice_cmp(cl_entry_start(o), start) < 0) {
        put(m, cl_gap_new(cl_entry_start(o), start, false, o->mod_revision));
    }
    if (!e->end_open && cl_entry_reaches(o, end)) {
        put(m, cl_gap_new(end, cl_entry_end(o), o->end_open, o->mod_revision));
    }
}

static void make_gap(struct cl_map *m, const struct cl_entry *o)
{
    cl_map_remove(m, cl_entry_start(o));
    put(m, cl_gap_new(cl_entry_start(o), cl_entry_end(o), o->end_open, o->mod_revision));
}

enum cl_offer cl_map_offer(struct cl_map *m, struct cl_entry *e)
{
    enum cl_offer offer = CL_TAKEN;
    struct cl_entry *o, *next;
    for (o = overlap_first(m, e); o != NULL; o = overlap_next(m, e, o)) {
        if (o->mod_revision == e->mod_revision && o->partition == e->partition &&
            !cl_entry_is_gap(o)) {
            offer = CL_KNOWN;
            confirm(o, e);
        } else if (o->mod_revision >= e->mod_revision) {
            offer = CL_OLDER;
        }
    }
    for (o = overlap_first(m, e); o != NULL; o = next) {
        next = overlap_next(m, e, o);
        if (o->mod_revision < e->mod_revision && offer == CL_TAKEN) {
            give_way(m, o, e);
        } else if (o->mod_revision < e->mod_revision && !cl_entry_is_gap(o)) {
            make_gap(m, o);
        }
    }
    if (offer == CL_TAKEN) {
        put(m, e);
    } else {
        mem_free(e);
    }
    return offer;
}

/* --- whole versions --- */

static void retire_all(struct cl_map *m, struct cl_node *n)
{
    for (unsigned i = 0; n != NULL && i < n->count; i++) {
        if (n->level > 0) {
            retire_all(m, cl_node_child(n, i));
        } else {
            retire(m, n->pointers[i]);
        }
    }
    if (n != NULL) {
        drop_node(m, n);
    }
}

/* Gathers `count` pointers below into nodes of one level; returns how many those are. */
static size_t load_level(struct cl_map *m, uint8_t level, void **below, size_t count)
{
    size_t nodes = 0;
    for (size_t i = 0; i < count; nodes++) {
        struct cl_node *n = cl_node_new(m->batch, level);
        for (; i < count && n->count < CL_NODE_FILL; i++) {
            n->pointers[n->count] = below[i];
            if (level > 0) {
                n->low[n->count] = cl_node_entry(below[i], 0);
            }
            n->count++;
        }
        cl_node_rekey(n);
        below[nodes] = n;
    }
    return nodes;
}

void cl_map_load(struct cl_map *m, struct cl_entry **entries, size_t count)
{
    retire_all(m, m->next);
    m->next = NULL;
    m->count = count;
    if (count == 0) {
        return;
    }
    void **below = mem_alloc(count * sizeof *below);
    for (size_t i = 0; i < count; i++) {
        below[i] = entries[i];
    }
    size_t left = load_level(m, 0, below, count);
    for (uint8_t level = 1; left > 1; level++) {
        left = load_level(m, level, below, left);
    }
    m->next = below[0];
    mem_free(below);
}

static void free_leaving(struct cl_map *m)
{
    struct cl_retired *r = &m->leaving;
    for (size_t i = 0; i < r->count; i++) {
        mem_free(r->items[i]);
    }
    if (r->cap > CL_RETIRED_MAX) {
        mem_free(r->items); /* a whole map's worth */
        *r = (struct cl_retired){0};
    }
    r->count = 0;
}

void cl_map_publish(struct cl_map *m)
{
    atomic_store(&m->root, m->next);
    m->batch++;
    if (m->retired.count > CL_RETIRED_MAX) {
        cl_readers_wait(&m->readers);
    }
    if (cl_readers_left(&m->readers)) {
        free_leaving(m);
        if (m->retired.count > 0) {
            struct cl_retired late = m->retired;
            m->retired = m->leaving;
            m->leaving = late;
            cl_readers_begin(&m->readers);
        }
    }
}

void cl_map_close(struct cl_map *m)
{
    retire_all(m, m->next);
    m->next = NULL;
    cl_map_publish(m);
    cl_readers_wait(&m->readers);
    free_leaving(m);
    cl_map_publish(m); /* what was retired while the last ones were leaving */
    cl_readers_wait(&m->readers);
    free_leaving(m);
    mem_free(m->retired.items);
    mem_free(m->leaving.items);
    m->retired = m->leaving = (struct cl_retired){0};
}

/* --- checking --- */

static uint64_t check_node(const struct cl_node *n, struct cl_entry **last)
{
    uint64_t count = 0;
    ASSERT(n->count > 0 && n->count <= CL_NODE_FANOUT);
    for (unsigned i = 0; i < n->count; i++) {
        struct slice key = cl_node_key(n, i);
        ASSERT(key.len >= n->prefix_len && memcmp(key.data, n->prefix, n->prefix_len) == 0);
        ASSERT(n->heads[i] == cl_node_head(key, n->prefix_len));
        ASSERT(n->tails[i] == cl_node_head(key, n->prefix_len + sizeof n->heads[0]));
        if (n->level > 0) {
            ASSERT(cl_node_child(n, i)->level == n->level - 1);
            ASSERT(cl_node_entry(cl_node_child(n, i), 0) == n->low[i]);
            count += check_node(cl_node_child(n, i), last);
        } else {
            ASSERT(*last == NULL ||
                   (!(*last)->end_open && slice_cmp(cl_entry_end(*last), key) <= 0));
            *last = n->pointers[i];
            count++;
        }
    }
    return count;
}

void cl_map_check(const struct cl_map *m)
{
    struct cl_entry *last = NULL;
    uint64_t count = m->next != NULL ? check_node(m->next, &last) : 0;
    ASSERT(count == m->count);
}
