/* SPDX-License-Identifier: Apache-2.0 */
/* Placement: which nodes get the copies of a partition that has none.
 *
 * Hard rules choose who may, the spread label who should, and the number of copies already held who
 * does, ties by name. Candidates of one spread value form a group, a heap by (load, name); the
 * groups form a heap by their best candidate. A partition takes the best of the best groups, each
 * group once while there are enough of them. So one copy costs O(log nodes). The heaps last while
 * keyspaces of equal rules follow each other. */
#include "base/assert.h"
#include "base/mem.h"
#include "directory/internal.h"

#include <stdlib.h>

struct candidate {
    const char *spread; /* borrowed from the node, which outlives the command */
    uint64_t node, load;
    bool distrusted;
    uint32_t order; /* by name */
    uint32_t group;
};

struct heap {
    uint32_t *items;
    uint32_t count;
};

struct placer {
    struct apply *a;
    bool ready;
    struct dir_placement placement; /* that the heaps were built for */
    struct candidate *candidates;
    uint32_t candidate_count, group_count;
    struct heap *groups; /* of candidates, by group */
    uint32_t *slots;     /* the groups' memory */
    struct heap top;     /* of groups */
};

const char *place_label(const struct dir_node *n, const char *name)
{
    for (uint32_t i = 0; i < n->label_count; i++) {
        if (strcmp(n->tags[i].name, name) == 0) {
            return n->tags[i].value;
        }
    }
    return "";
}

bool place_allows(const struct dir_placement *placement, const struct dir_node *n)
{
    bool ok = true;
    /* Sorted by name: alternatives of one label are neighbours. */
    for (uint32_t i = 0; ok && i < placement->require_count;) {
        const char *name = placement->require[i].name;
        const char *value = place_label(n, name);
        ok = false;
        for (; i < placement->require_count && strcmp(placement->require[i].name, name) == 0; i++) {
            ok = ok || strcmp(placement->require[i].value, value) == 0;
        }
    }
    return ok;
}

bool place_equal(const struct dir_placement *a, const struct dir_placement *b)
{
    if (a->require_count != b->require_count || strcmp(a->spread, b->spread) != 0) {
        return false;
    }
    for (uint32_t i = 0; i < a->require_count; i++) {
        if (strcmp(a->require[i].name, b->require[i].name) != 0 ||
            strcmp(a->require[i].value, b->require[i].value) != 0) {
            return false;
        }
    }
    return true;
}

static bool candidate_less(const struct placer *p, uint32_t x, uint32_t y)
{
    const struct candidate *a = &p->candidates[x], *b = &p->candidates[y];
    if (a->distrusted != b->distrusted) {
        return b->distrusted;
    }
    return a->load != b->load ? a->load < b->load : a->order < b->order;
}

static bool group_less(const struct placer *p, uint32_t x, uint32_t y)
{
    return candidate_less(p, p->groups[x].items[0], p->groups[y].items[0]);
}

typedef bool (*less_fn)(const struct placer *p, uint32_t x, uint32_t y);

static void heap_push(struct heap *h, const struct placer *p, less_fn less, uint32_t v)
{
    uint32_t i = h->count++;
    while (i > 0 && less(p, v, h->items[(i - 1) / 2])) {
        h->items[i] = h->items[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    h->items[i] = v;
}

static uint32_t heap_pop(struct heap *h, const struct placer *p, less_fn less)
{
    ASSERT(h->count > 0);
    uint32_t best = h->items[0], last = h->items[--h->count], i = 0;
    for (uint32_t child = 1; child < h->count; child = 2 * i + 1) {
        if (child + 1 < h->count && less(p, h->items[child + 1], h->items[child])) {
            child++;
        }
        if (!less(p, h->items[child], last)) {
            break;
        }
        h->items[i] = h->items[child];
        i = child;
    }
    h->items[i] = last;
    return best;
}

struct placer *placer_new(struct apply *a)
{
    struct placer *p = mem_zalloc(sizeof *p);
    p->a = a;
    return p;
}

static void clear(struct placer *p)
{
    mem_free(p->candidates);
    mem_free(p->groups);
    mem_free(p->slots);
    mem_free(p->top.items);
    *p = (struct placer){.a = p->a};
}

void placer_free(struct placer *p)
{
    clear(p);
    mem_free(p);
}

static int spread_order(const void *x, const void *y)
{
    const struct candidate *a = x, *b = y;
    int order = strcmp(a->spread, b->spread);
    return order != 0 ? order : a->order < b->order ? -1 : a->order > b->order;
}

static void gather(struct placer *p)
{
    const struct dir_view *s = p->a->s;
    const struct dir_node *n;
    struct ptree_iter it;
    uint32_t order = 0;
    p->candidates = mem_alloc(s->nodes_by_name.count * sizeof p->candidates[0]);
    for (ptree_seek(&s->nodes_by_name, slice_of(NULL, 0), &it);
         (n = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        order++;
        if (!view_node_is_live(n) || n->scheduling != 0 || !place_allows(&p->placement, n)) {
            continue;
        }
        p->candidates[p->candidate_count++] = (struct candidate){
            .spread = p->placement.spread[0] != '\0' ? place_label(n, p->placement.spread) : "",
            .node = n->id,
            .distrusted = view_node_distrusted_until(&s->settings, n) > s->time_ms,
            .load = (uint64_t)((int64_t)n->partition_count + counts_get(&p->a->counts, n->id)),
            .order = order,
        };
    }
    qsort(p->candidates, p->candidate_count, sizeof p->candidates[0], spread_order);
}

static void build(struct placer *p, const struct dir_placement *placement)
{
    clear(p);
    p->ready = true;
    p->placement = *placement;
    gather(p);
    p->groups = mem_zalloc(p->candidate_count * sizeof p->groups[0]);
    p->slots = mem_alloc(p->candidate_count * sizeof p->slots[0]);
    for (uint32_t i = 0; i < p->candidate_count; i++) {
        struct candidate *c = &p->candidates[i];
        if (i == 0 || strcmp(c->spread, p->candidates[i - 1].spread) != 0) {
            p->groups[p->group_count++].items = &p->slots[i];
        }
        c->group = p->group_count - 1;
        heap_push(&p->groups[c->group], p, candidate_less, i);
    }
    p->top.items = mem_alloc(p->group_count * sizeof p->top.items[0]);
    for (uint32_t g = 0; g < p->group_count; g++) {
        heap_push(&p->top, p, group_less, g);
    }
}

/* All the groups that have somebody left, again. */
static void refill(struct placer *p)
{
    p->top.count = 0;
    for (uint32_t g = 0; g < p->group_count; g++) {
        if (p->groups[g].count > 0) {
            heap_push(&p->top, p, group_less, g);
        }
    }
}

/* `copies` candidates, each taken out of its heap. A refill means that there are fewer groups than
 * copies, so it is cheap. */
static uint8_t take(struct placer *p, uint32_t copies, uint32_t *taken, bool *ret_refilled)
{
    uint8_t n = 0;
    *ret_refilled = false;
    while (n < copies) {
        if (p->top.count == 0) {
            refill(p);
            *ret_refilled = true;
        }
        if (p->top.count == 0) {
            break;
        }
        uint32_t g = heap_pop(&p->top, p, group_less);
        taken[n++] = heap_pop(&p->groups[g], p, candidate_less);
    }
    return n;
}

static void give_back(struct placer *p, const uint32_t *taken, uint8_t n, bool refilled)
{
    for (uint8_t i = 0; i < n; i++) {
        struct candidate *c = &p->candidates[taken[i]];
        c->load++;
        counts_add(&p->a->counts, c->node, 1);
        heap_push(&p->groups[c->group], p, candidate_less, taken[i]);
    }
    if (refilled) {
        refill(p);
        return;
    }
    for (uint8_t i = 0; i < n; i++) {
        heap_push(&p->top, p, group_less, p->candidates[taken[i]].group);
    }
}

uint8_t placer_pick(struct placer *p,
                    const struct dir_keyspace *ks,
                    struct dir_replica out[DIR_REPLICAS_MAX])
{
    if (!p->ready || !place_equal(&p->placement, &ks->placement)) {
        build(p, &ks->placement);
    }
    uint32_t taken[DIR_REPLICAS_MAX];
    uint32_t copies = 1 + ks->sync_replicas + ks->async_replicas;
    ASSERT(copies <= DIR_REPLICAS_MAX);
    bool refilled;
    uint8_t n = take(p, copies, taken, &refilled);
    for (uint8_t i = 0; i < n; i++) {
        out[i] = (struct dir_replica){
            .node = p->candidates[taken[i]].node,
            .copy = p->a->rev,
            .role = i == 0                   ? DIR_ROLE_PRIMARY
                    : i <= ks->sync_replicas ? DIR_ROLE_SYNC
                                             : DIR_ROLE_ASYNC,
        };
    }
    give_back(p, taken, n, refilled);
    return n;
}

static void
place_one(struct apply *a, struct placer *placer, const struct dir_keyspace *ks, uint64_t id)
{
    uint8_t key[8];
    const struct dir_partition *old = ptree_get(&a->s->partitions, ptree_u64_key(id, key));
    struct dir_replica replicas[DIR_REPLICAS_MAX];
    struct partition_arrays arrays = partition_arrays(old);
    struct dir_partition like = partition_like(old);
    arrays.replicas = replicas;
    arrays.replica_count = placer_pick(placer, ks, replicas);
    ASSERT(arrays.replica_count > 0);
    like.state = DIR_ACTIVE;
    like.holds_data = true; /* from now on somebody may write */
    like.cause = DIR_CHANGE_PLACE;
    like.epoch = a->rev;
    like.mod_revision = a->rev;
    like.owner_since_ms = a->s->time_ms;
    like.session = view_node_by_id(a->s, replicas[0].node)->session;
    struct dir_partition *p = partition_new(&like, &arrays);
    touched_route(apply_touch(a, ks->id, DIR_CHANGE_PLACE), p);
    apply_put(a, p);
}

static struct slice waiting_key(uint64_t keyspace, uint64_t id, uint8_t out[16])
{
    (void)ptree_u64_key(keyspace, out);
    (void)ptree_u64_key(id, out + 8);
    return slice_of(out, 16);
}

/* The ids of partitions of one keyspace that wait, at most `max`. Gathered first, because placing
 * changes the index. */
static uint64_t
waiting_ids(const struct dir_view *s, uint64_t keyspace, uint64_t *ids, uint64_t max)
{
    const struct dir_partition *p;
    struct ptree_iter it;
    uint8_t key[16];
    uint64_t n = 0;
    for (ptree_seek(&s->waiting, waiting_key(keyspace, 0, key), &it);
         n < max && (p = ptree_iter_get(&it, NULL)) != NULL && p->keyspace == keyspace;
         ptree_iter_next(&it)) {
        ids[n++] = p->id;
    }
    return n;
}

static bool placer_has_any(struct placer *p, const struct dir_keyspace *ks)
{
    if (!p->ready || !place_equal(&p->placement, &ks->placement)) {
        build(p, &ks->placement);
    }
    return p->candidate_count > 0;
}

/* The first keyspace from `from` on that has partitions waiting, or 0. */
static uint64_t next_waiting(const struct dir_view *s, uint64_t from)
{
    uint8_t key[16];
    struct ptree_iter it;
    ptree_seek(&s->waiting, waiting_key(from, 0, key), &it);
    const struct dir_partition *p = ptree_iter_get(&it, NULL);
    return p != NULL ? p->keyspace : 0;
}

uint64_t place_waiting(struct apply *a, uint64_t keyspace)
{
    if (a->s->waiting.count == 0) {
        return 0;
    }
    struct placer *placer = placer_new(a);
    uint64_t *ids = mem_alloc(DIR_PLACE_BATCH * sizeof ids[0]);
    uint64_t placed = 0, id = keyspace != 0 ? keyspace : 1;
    while (placed < DIR_PLACE_BATCH && (id = next_waiting(a->s, id)) != 0 &&
           (keyspace == 0 || id == keyspace)) {
        const struct dir_keyspace *ks = state_keyspace(a->s, id);
        if (placer_has_any(placer, ks)) {
            uint64_t n = waiting_ids(a->s, id, ids, DIR_PLACE_BATCH - placed);
            for (uint64_t i = 0; i < n; i++) {
                place_one(a, placer, ks, ids[i]);
            }
            placed += n;
        }
        id++;
    }
    mem_free(ids);
    placer_free(placer);
    return placed;
}

enum err_code apply_place(struct apply *a)
{
    if (place_waiting(a, 0) > 0) {
        a->changed = true;
        a->kind = DIR_CHANGE_PLACE;
    }
    return ERR_OK;
}
