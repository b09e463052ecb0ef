/* SPDX-License-Identifier: Apache-2.0 */
/* Hard eligibility: asked before anything is scored, the same for every class. */
#include "balancer/internal.h"

#include "base/mem.h"

static enum bal_reason bar_of(const struct bal_state *st, uint32_t p)
{
    uint16_t flags = st->f->flags[p];
    uint64_t moved = st->f->moved_ms[p];
    if (flags == 0 && moved == 0) {
        return BAL_REASON_NONE;
    }
    return (flags & BAL_BUSY) != 0                                        ? BAL_REASON_BUSY
           : (flags & BAL_QUARANTINED) != 0                               ? BAL_REASON_QUARANTINED
           : (flags & BAL_PINNED) != 0                                    ? BAL_REASON_PINNED
           : (flags & BAL_STALE) != 0                                     ? BAL_REASON_STALE
           : moved != 0 && bal_less(st->now, moved) < st->s->residence_ms ? BAL_REASON_RESIDENCE
                                                                          : BAL_REASON_NONE;
}

/* In one pass: what asks about copies of a node jumps about, and one byte each stays in the cache.
 */
void bal_bars_open(struct bal_state *st)
{
    st->bar = mem_alloc((size_t)st->f->partition_count + 1);
    for (uint32_t p = 0; p < st->f->partition_count; p++) {
        st->bar[p] = (uint8_t)bar_of(st, p);
    }
}

void bal_find_stuck(struct bal_state *st)
{
    const struct bal_fleet *f = st->f;
    uint32_t partitions = f->fixed_count == 0 ? 0 : f->partition_count;
    for (uint32_t p = 0; p < partitions; p++) {
        uint16_t flags = f->flags[p];
        for (uint32_t c = f->copy_begin[p]; (flags & BAL_FIXED) != 0 && c < f->copy_begin[p + 1];
             c++) {
            for (unsigned r = 0; r < BAL_RESOURCES; r++) {
                size_t i = bal_cell(st->at[c], r);
                uint64_t load = bal_copy_load(f, c, r);
                bool stays = (flags & (BAL_PINNED | BAL_QUARANTINED)) != 0 ||
                             load > bal_scale(st->share[i], st->s->pin_share);
                st->stuck[i] += stays ? load : 0;
            }
        }
    }
}

void bal_take(struct bal_state *st, uint32_t p)
{
    st->bar[p] = BAL_REASON_PLANNED;
}

enum bal_reason bal_partition_free(const struct bal_state *st, uint32_t p)
{
    uint8_t bar = st->bar[p];
    bool held =
        bar == BAL_REASON_PLANNED || bar == BAL_REASON_BUSY || bar == BAL_REASON_QUARANTINED;
    return held ? (enum bal_reason)bar : BAL_REASON_NONE;
}

static bool same(const uint16_t *domain, uint16_t a, uint16_t b)
{
    return domain[a] != BAL_NO_NODE && domain[a] == domain[b];
}

/* Another copy on the node, or in its failure domain. */
static enum bal_reason
beside_copies(const struct bal_state *st, uint32_t p, uint32_t copy, uint16_t node)
{
    const struct bal_fleet *f = st->f;
    uint8_t spread = f->spread[p];
    for (uint32_t c = f->copy_begin[p]; c < f->copy_begin[p + 1]; c++) {
        uint16_t other = st->at[c];
        if (c == copy || (f->copy_flags[c] & BAL_COPY_LOST) != 0) {
            continue;
        }
        if (other == node) {
            return BAL_REASON_COPY_THERE;
        }
        if (f->node[other].state != BAL_DEAD &&
            (((spread & BAL_SPREAD_ZONE) != 0 && same(f->zone_of, other, node)) ||
             ((spread & BAL_SPREAD_RACK) != 0 && same(f->rack_of, other, node)) ||
             ((spread & BAL_SPREAD_DEVICE) != 0 && same(f->device_of, other, node)))) {
            return BAL_REASON_SPREAD;
        }
    }
    return BAL_REASON_NONE;
}

/* First of the partitions that share p's group. */
static uint32_t group_begin(const struct bal_fleet *f, uint32_t group)
{
    uint32_t low = 0, high = f->grouped_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (f->group[f->grouped[middle]] < group) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static bool group_there(const struct bal_state *st, uint32_t p, uint16_t node)
{
    const struct bal_fleet *f = st->f;
    if (f->group[p] == 0) {
        return false;
    }
    for (uint32_t i = group_begin(f, f->group[p]);
         i < f->grouped_count && f->group[f->grouped[i]] == f->group[p]; i++) {
        uint32_t other = f->grouped[i], c = bal_primary(f, other);
        if (other != p && c < f->copy_begin[other + 1] && st->at[c] == node) {
            return true;
        }
    }
    return false;
}

/* Whatever is counted has to fit below the cap, and what is stored during a move at both ends. */
static enum bal_reason fits_capacity(const struct bal_state *st, uint32_t copy, uint16_t node)
{
    for (unsigned r = 0; r < BAL_RESOURCES; r++) {
        if (!bal_uses(st, r)) {
            continue;
        }
        uint64_t more = bal_copy_load(st->f, copy, r);
        uint64_t after =
            bal_more(r == BAL_BYTES ? st->bytes[node] : st->load[bal_cell(node, r)], more);
        if (after > st->cap[bal_cell(node, r)]) {
            return r == BAL_BYTES ? BAL_REASON_DISK : BAL_REASON_CAPACITY;
        }
    }
    return BAL_REASON_NONE;
}

enum bal_reason bal_may_join(const struct bal_state *st, uint32_t p, uint32_t copy, uint16_t node)
{
    const struct bal_fleet *f = st->f;
    const struct bal_node_spec *n = &f->node[node];
    if (n->state != BAL_ELIGIBLE) {
        return BAL_REASON_NODE_STATE;
    }
    if (!st->takes[node]) {
        return BAL_REASON_NO_CAPACITY;
    }
    if (n->stalled) {
        return BAL_REASON_NODE_STALLED;
    }
    if (f->rule[p] != 0 && (n->rules >> f->rule[p] & 1) == 0) {
        return BAL_REASON_PLACEMENT_RULE;
    }
    enum bal_reason reason = beside_copies(st, p, copy, node);
    if (reason != BAL_REASON_NONE) {
        return reason;
    }
    if (group_there(st, p, node)) {
        return BAL_REASON_GROUP_THERE;
    }
    return fits_capacity(st, copy == BAL_NO_PARTITION ? f->copy_begin[p + 1] - 1 : copy, node);
}

enum bal_reason bal_may_hold(const struct bal_state *st, uint32_t copy, uint16_t node)
{
    return st->at[copy] == node ? BAL_REASON_SAME_NODE
                                : bal_may_join(st, st->f->copy_partition[copy], copy, node);
}

enum bal_reason bal_placed(const struct bal_state *st, uint32_t copy)
{
    const struct bal_fleet *f = st->f;
    uint32_t p = f->copy_partition[copy];
    uint16_t node = st->at[copy];
    if (f->rule[p] != 0 && (f->node[node].rules >> f->rule[p] & 1) == 0) {
        return BAL_REASON_PLACEMENT_RULE;
    }
    /* Of two copies in one domain the later one is the one that has to go. */
    uint8_t spread = f->spread[p];
    for (uint32_t c = f->copy_begin[p]; c < copy; c++) {
        uint16_t other = st->at[c];
        if (((spread & BAL_SPREAD_ZONE) != 0 && same(f->zone_of, other, node)) ||
            ((spread & BAL_SPREAD_RACK) != 0 && same(f->rack_of, other, node)) ||
            ((spread & BAL_SPREAD_DEVICE) != 0 && same(f->device_of, other, node))) {
            return BAL_REASON_SPREAD;
        }
    }
    return BAL_REASON_NONE;
}
