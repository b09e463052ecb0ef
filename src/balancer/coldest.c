/* SPDX-License-Identifier: Apache-2.0 */
/* Which nodes are coldest, without looking at all: one tree of minima for each zone, because the
 * copies of one partition want different zones. A move changes two keys, in log N each. */
#include "balancer/internal.h"

#include "base/mem.h"

#include <string.h>

static uint32_t zone_of(const struct bal_state *st, uint16_t node)
{
    uint16_t zone = st->f->zone_of[node];
    return zone == BAL_NO_NODE ? st->f->zone_count : zone;
}

void bal_coldest_open(struct bal_state *st)
{
    struct bal_coldest *t = &st->cold;
    const struct bal_fleet *f = st->f;
    uint32_t *sizes = mem_zalloc((f->zone_count + 1) * sizeof *sizes);
    t->zones = f->zone_count + 1;
    t->leaf_of = mem_zalloc((f->node_count + 1) * sizeof *t->leaf_of);
    uint32_t most = 1;
    for (uint16_t n = 0; n < f->node_count; n++) {
        t->leaf_of[n] = sizes[zone_of(st, n)]++;
        most = (uint32_t)bal_max(most, sizes[zone_of(st, n)]);
    }
    mem_free(sizes);
    for (t->leaves = 1; t->leaves < most;) {
        t->leaves *= 2;
    }
    t->tree = mem_alloc((size_t)t->zones * 2 * t->leaves * sizeof *t->tree);
    t->leaf_node = mem_zalloc((size_t)t->zones * t->leaves * sizeof *t->leaf_node);
    t->list = mem_alloc(t->zones * sizeof *t->list);
    t->listed = mem_zalloc(t->zones);
    t->fresh = mem_zalloc(t->zones * sizeof *t->fresh);
    for (uint16_t n = 0; n < f->node_count; n++) {
        t->leaf_node[(size_t)zone_of(st, n) * t->leaves + t->leaf_of[n]] = n;
    }
}

void bal_coldest_close(struct bal_state *st)
{
    mem_free(st->cold.tree);
    mem_free(st->cold.leaf_node);
    mem_free(st->cold.leaf_of);
    mem_free(st->cold.list);
    mem_free(st->cold.listed);
    mem_free(st->cold.fresh);
}

/* Nodes at the low mark already, and full ones, are not asked. */
static uint64_t key_of(const struct bal_state *st, uint16_t n, uint32_t class_of)
{
    bool takes = st->takes[n] && !st->f->node[n].stalled && st->level[n] < BAL_ONE + st->s->low;
    return takes && bal_budget_intake(st, n, class_of) == BAL_REASON_NONE ? st->level[n]
                                                                          : BAL_SATURATED;
}

static void set_key(struct bal_coldest *t, uint32_t zone, uint32_t leaf, uint64_t key)
{
    uint64_t *tree = t->tree + (size_t)zone * 2 * t->leaves;
    uint32_t i = t->leaves + leaf;
    tree[i] = key;
    for (i /= 2; i > 0; i /= 2) {
        tree[i] = bal_min(tree[2 * i], tree[2 * i + 1]);
    }
}

void bal_coldest_fill(struct bal_state *st, uint32_t class_of)
{
    struct bal_coldest *t = &st->cold;
    for (size_t i = 0; i < (size_t)t->zones * 2 * t->leaves; i++) {
        t->tree[i] = BAL_SATURATED;
    }
    for (uint16_t n = 0; n < st->f->node_count; n++) {
        t->tree[(size_t)zone_of(st, n) * 2 * t->leaves + t->leaves + t->leaf_of[n]] =
            key_of(st, n, class_of);
    }
    for (uint32_t z = 0; z < t->zones; z++) {
        uint64_t *tree = t->tree + (size_t)z * 2 * t->leaves;
        for (uint32_t i = t->leaves - 1; i > 0; i--) {
            tree[i] = bal_min(tree[2 * i], tree[2 * i + 1]);
        }
        t->fresh[z] = false;
    }
}

void bal_coldest_update(struct bal_state *st, uint16_t node, uint32_t class_of)
{
    uint32_t zone = zone_of(st, node);
    set_key(&st->cold, zone, st->cold.leaf_of[node], key_of(st, node, class_of));
    st->cold.fresh[zone] = false;
}

/* The first BAL_COLD_MAX of a zone, by taking the minimum out until then, and putting all back. */
static void list_zone(struct bal_coldest *t, uint32_t zone)
{
    uint64_t *tree = t->tree + (size_t)zone * 2 * t->leaves, keys[BAL_COLD_MAX];
    uint32_t leaves[BAL_COLD_MAX], count = 0;
    while (count < BAL_COLD_MAX && tree[1] != BAL_SATURATED) {
        uint32_t i = 1;
        while (i < t->leaves) {
            i = tree[2 * i] <= tree[2 * i + 1] ? 2 * i : 2 * i + 1;
        }
        keys[count] = tree[i];
        leaves[count] = i - t->leaves;
        t->list[zone][count] = t->leaf_node[(size_t)zone * t->leaves + leaves[count]];
        set_key(t, zone, leaves[count], BAL_SATURATED);
        count++;
    }
    for (uint32_t i = 0; i < count; i++) {
        set_key(t, zone, leaves[i], keys[i]);
    }
    t->listed[zone] = (uint8_t)count;
    t->fresh[zone] = true;
}

/* A zone where another copy is, or will be, when the copies are to lie in different ones. */
static uint64_t forbidden_zones(const struct bal_state *st, uint32_t copy)
{
    const struct bal_fleet *f = st->f;
    uint32_t p = f->copy_partition[copy];
    uint64_t zones = 0;
    if ((f->spread[p] & BAL_SPREAD_ZONE) != 0) {
        for (uint32_t c = f->copy_begin[p]; c < f->copy_begin[p + 1]; c++) {
            uint16_t zone = c == copy ? BAL_NO_NODE : f->zone_of[st->at[c]];
            zones |= zone == BAL_NO_NODE ? 0 : UINT64_C(1) << zone;
        }
    }
    return zones;
}

uint32_t
bal_coldest_of(struct bal_state *st, const struct bal_step *step, uint16_t out[BAL_COLD_MAX])
{
    struct bal_coldest *t = &st->cold;
    uint8_t next[BAL_ZONES_MAX + 1] = {0};
    uint64_t forbidden = forbidden_zones(st, step->copy);
    uint32_t count = 0;
    while (count < st->s->destinations) {
        uint32_t best = t->zones;
        for (uint32_t z = 0; z < t->zones; z++) {
            if (z < BAL_ZONES_MAX && (forbidden >> z & 1) != 0) {
                continue;
            }
            if (!t->fresh[z]) {
                list_zone(t, z);
            }
            if (next[z] < t->listed[z] &&
                (best == t->zones ||
                 st->level[t->list[z][next[z]]] < st->level[t->list[best][next[best]]])) {
                best = z;
            }
        }
        if (best == t->zones) {
            break;
        }
        uint16_t node = t->list[best][next[best]++];
        if (node != step->from && bal_may_hold(st, step->copy, node) == BAL_REASON_NONE &&
            bal_budget(st, step->from, node, step->class_of) == BAL_REASON_NONE) {
            out[count++] = node;
        }
    }
    return count;
}
