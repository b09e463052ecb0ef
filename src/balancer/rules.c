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
        for (uint32_t c = f->place[p].copy_begin;
             (flags & BAL_FIXED) != 0 && c < f->place[p + 1].copy_begin; c++) {
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

/* Do two nodes share a failure domain that copies are to be spread over? */
static bool share(const struct bal_spot *a, const struct bal_spot *b, uint8_t spread)
{
    return ((spread & BAL_SPREAD_ZONE) != 0 && a->zone == b->zone && a->zone != BAL_NO_NODE) ||
           ((spread & BAL_SPREAD_RACK) != 0 && a->rack == b->rack && a->rack != BAL_NO_NODE) ||
           ((spread & BAL_SPREAD_DEVICE) != 0 && a->device == b->device &&
            a->device != BAL_NO_NODE);
}

/* Another copy on the node, or in its failure domain. */
static enum bal_reason
beside_copies(const struct bal_state *st, uint32_t p, uint32_t copy, uint16_t node)
{
    const struct bal_fleet *f = st->f;
    uint8_t spread = f->place[p].spread;
    for (uint32_t c = f->place[p].copy_begin; c < f->place[p + 1].copy_begin; c++) {
        uint16_t other = st->at[c];
        if (c == copy || (f->lost_count > 0 && (f->copy_flags[c] & BAL_COPY_LOST) != 0)) {
            continue;
        }
        if (other == node) {
            return BAL_REASON_COPY_THERE;
        }
        if (st->spot[other].state != BAL_DEAD && share(&st->spot[other], &st->spot[node], spread)) {
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
        if (f->place[f->grouped[middle]].group < group) {
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
    if (f->place[p].group == 0) {
        return false;
    }
    for (uint32_t i = group_begin(f, f->place[p].group);
         i < f->grouped_count && f->place[f->grouped[i]].group == f->place[p].group; i++) {
        uint32_t other = f->grouped[i], c = bal_primary(f, other);
        if (other != p && c < f->place[other + 1].copy_begin && st->at[c] == node) {
            return true;
        }
    }
    return false;
}

/* Whatever is counted has to fit below the cap, and what is stored during a move at both ends. */
static enum bal_reason
fits_capacity(const struct bal_state *st, const uint64_t *vector, uint16_t node)
{
    for (unsigned r = 0; r < BAL_RESOURCES; r++) {
        if (!bal_uses(st, r)) {
            continue;
        }
        uint64_t more = vector[r];
        uint64_t after =
            bal_more(r == BAL_BYTES ? st->bytes[node] : st->load[bal_cell(node, r)], more);
        if (after > st->cap[bal_cell(node, r)]) {
            return r == BAL_BYTES ? BAL_REASON_DISK : BAL_REASON_CAPACITY;
        }
    }
    return BAL_REASON_NONE;
}

static enum bal_reason closed(const struct bal_state *st, uint16_t node)
{
    const struct bal_node_spec *n = &st->f->node[node];
    return n->state != BAL_ELIGIBLE ? BAL_REASON_NODE_STATE
           : !st->takes[node]       ? BAL_REASON_NO_CAPACITY
           : n->stalled             ? BAL_REASON_NODE_STALLED
                                    : BAL_REASON_NONE;
}

void bal_spots_open(struct bal_state *st)
{
    const struct bal_fleet *f = st->f;
    st->spot = mem_alloc((f->node_count + 1) * sizeof *st->spot);
    for (uint16_t n = 0; n < f->node_count; n++) {
        st->spot[n] = (struct bal_spot){f->zone_of[n], f->rack_of[n], f->device_of[n],
                                        f->node[n].state, (uint8_t)closed(st, n)};
    }
}

enum bal_reason bal_may_join(const struct bal_state *st, const struct bal_step *step, uint16_t node)
{
    const struct bal_fleet *f = st->f;
    uint32_t p = step->partition;
    uint8_t rule = f->place[p].rule;
    if (st->spot[node].reason != BAL_REASON_NONE) {
        return st->spot[node].reason;
    }
    if (rule != 0 && (f->node[node].rules >> rule & 1) == 0) {
        return BAL_REASON_PLACEMENT_RULE;
    }
    enum bal_reason reason = beside_copies(st, p, step->copy, node);
    if (reason != BAL_REASON_NONE) {
        return reason;
    }
    if (group_there(st, p, node)) {
        return BAL_REASON_GROUP_THERE;
    }
    return fits_capacity(st, step->vector, node);
}

enum bal_reason bal_may_hold(const struct bal_state *st, const struct bal_step *step, uint16_t node)
{
    return st->at[step->copy] == node ? BAL_REASON_SAME_NODE : bal_may_join(st, step, node);
}

enum bal_reason bal_placed(const struct bal_state *st, uint32_t copy)
{
    const struct bal_fleet *f = st->f;
    uint32_t p = f->copy_partition[copy];
    uint16_t node = st->at[copy];
    if (f->place[p].rule != 0 && (f->node[node].rules >> f->place[p].rule & 1) == 0) {
        return BAL_REASON_PLACEMENT_RULE;
    }
    /* Of two copies in one domain the later one is the one that has to go. */
    uint8_t spread = f->place[p].spread;
    for (uint32_t c = f->place[p].copy_begin; c < copy; c++) {
        if (share(&st->spot[st->at[c]], &st->spot[node], spread)) {
            return BAL_REASON_SPREAD;
        }
    }
    return BAL_REASON_NONE;
}
