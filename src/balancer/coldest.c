/* SPDX-License-Identifier: Apache-2.0 */
/* Which nodes are coldest, without looking at all: one tree of minima for each group, because
 * the copies of one partition want different zones, and a rule may allow few nodes of many. A move
 * changes two keys, in log N each. */
#include "balancer/internal.h"

#include "base/mem.h"

#include <string.h>

void bal_coldest_open(struct bal_state *st)
{
    struct bal_coldest *t = &st->cold;
    const struct bal_fleet *f = st->f;
    const struct bal_groups *g = &st->groups;
    uint32_t *sizes = mem_zalloc(BAL_GROUPS_MAX * sizeof *sizes);
    t->leaf_of = mem_zalloc((f->node_count + 1) * sizeof *t->leaf_of);
    uint32_t most = 1;
    for (uint16_t n = 0; n < f->node_count; n++) {
        t->leaf_of[n] = sizes[g->of[n]]++;
        most = (uint32_t)bal_max(most, sizes[g->of[n]]);
    }
    mem_free(sizes);
    for (t->leaves = 1; t->leaves < most;) {
        t->leaves *= 2;
    }
    t->tree = mem_alloc(((size_t)g->count + 1) * 2 * t->leaves * sizeof *t->tree);
    t->leaf_node = mem_zalloc(((size_t)g->count + 1) * t->leaves * sizeof *t->leaf_node);
    for (uint16_t n = 0; n < f->node_count; n++) {
        t->leaf_node[(size_t)g->of[n] * t->leaves + t->leaf_of[n]] = n;
    }
}

void bal_coldest_close(struct bal_state *st)
{
    mem_free(st->cold.tree);
    mem_free(st->cold.leaf_node);
    mem_free(st->cold.leaf_of);
}

/* Nodes at the low mark already, and full ones, are not asked. */
static uint64_t key_of(const struct bal_state *st, uint16_t n, uint32_t class_of)
{
    bool takes = st->takes[n] && !st->f->node[n].stalled && st->level[n] < BAL_ONE + st->s->low;
    return takes && bal_budget_intake(st, n, class_of) == BAL_REASON_NONE ? st->level[n]
                                                                          : BAL_SATURATED;
}

static void set_key(struct bal_coldest *t, uint32_t group, uint32_t leaf, uint64_t key)
{
    uint64_t *tree = t->tree + (size_t)group * 2 * t->leaves;
    uint32_t i = t->leaves + leaf;
    tree[i] = key;
    for (i /= 2; i > 0; i /= 2) {
        tree[i] = bal_min(tree[2 * i], tree[2 * i + 1]);
    }
}

void bal_coldest_fill(struct bal_state *st, uint32_t class_of)
{
    struct bal_coldest *t = &st->cold;
    for (size_t i = 0; i < (size_t)st->groups.count * 2 * t->leaves; i++) {
        t->tree[i] = BAL_SATURATED;
    }
    for (uint16_t n = 0; n < st->f->node_count; n++) {
        t->tree[(size_t)st->groups.of[n] * 2 * t->leaves + t->leaves + t->leaf_of[n]] =
            key_of(st, n, class_of);
    }
    for (uint32_t g = 0; g < st->groups.count; g++) {
        uint64_t *tree = t->tree + (size_t)g * 2 * t->leaves;
        for (uint32_t i = t->leaves - 1; i > 0; i--) {
            tree[i] = bal_min(tree[2 * i], tree[2 * i + 1]);
        }
    }
}

void bal_coldest_update(struct bal_state *st, uint16_t node, uint32_t class_of)
{
    set_key(&st->cold, st->groups.of[node], st->cold.leaf_of[node], key_of(st, node, class_of));
}

/* A zone where another copy is, or will be, when the copies are to lie in different ones. */
static uint64_t forbidden_zones(const struct bal_state *st, uint32_t p, uint32_t copy)
{
    const struct bal_fleet *f = st->f;
    uint64_t zones = 0;
    if ((f->place[p].spread & BAL_SPREAD_ZONE) != 0) {
        for (uint32_t c = f->place[p].copy_begin; c < f->place[p + 1].copy_begin; c++) {
            uint16_t zone = c == copy ? BAL_NO_NODE : st->spot[st->at[c]].zone;
            zones |= zone == BAL_NO_NODE ? 0 : UINT64_C(1) << zone;
        }
    }
    return zones;
}

void bal_walk_begin(const struct bal_state *st, const struct bal_step *step, struct bal_walk *w)
{
    w->forbidden = forbidden_zones(st, step->partition, step->copy);
    w->rule = st->f->place[step->partition].rule;
    w->count = 0;
    w->offered = 0;
}

static bool is_open(const struct bal_groups *g, const struct bal_walk *w, uint32_t group)
{
    uint16_t zone = g->zone[group];
    return (zone == BAL_NO_NODE || (w->forbidden >> zone & 1) == 0) &&
           bal_group_allowed(g, group, w->rule);
}

/* Takes the coldest of all allowed groups out of its tree. */
static bool take_coldest(struct bal_state *st, struct bal_walk *w)
{
    struct bal_coldest *t = &st->cold;
    uint64_t least = BAL_SATURATED;
    uint32_t group = 0;
    for (uint32_t g = 0; g < st->groups.count; g++) {
        uint64_t key = t->tree[(size_t)g * 2 * t->leaves + 1];
        if (key < least && is_open(&st->groups, w, g)) {
            least = key;
            group = g;
        }
    }
    if (least == BAL_SATURATED || w->count == BAL_WALK_MAX) {
        return false;
    }
    const uint64_t *tree = t->tree + (size_t)group * 2 * t->leaves;
    uint32_t i = 1;
    while (i < t->leaves) {
        i = tree[2 * i] <= tree[2 * i + 1] ? 2 * i : 2 * i + 1;
    }
    w->key[w->count] = least;
    w->node[w->count++] = t->leaf_node[(size_t)group * t->leaves + i - t->leaves];
    set_key(t, group, i - t->leaves, BAL_SATURATED);
    return true;
}

bool bal_walk_next(struct bal_state *st,
                   const struct bal_step *step,
                   struct bal_walk *w,
                   uint16_t *ret_node)
{
    while (w->offered < st->s->destinations && take_coldest(st, w)) {
        uint16_t node = w->node[w->count - 1];
        if (node != step->from && bal_may_join(st, step, node) == BAL_REASON_NONE &&
            bal_budget(st, step->from, node, step->class_of) == BAL_REASON_NONE) {
            w->offered++;
            *ret_node = node;
            return true;
        }
    }
    return false;
}

void bal_walk_end(struct bal_state *st, struct bal_walk *w)
{
    while (w->count > 0) {
        uint16_t node = w->node[--w->count];
        set_key(&st->cold, st->groups.of[node], st->cold.leaf_of[node], w->key[w->count]);
    }
}
