/* SPDX-License-Identifier: Apache-2.0 */
/* What the copies of a fleet come to: sums by node, lists by node, and what is out of the ordinary
 * anywhere, so that a round need not look for it. One pass over all copies. */
#include "balancer/fleet.h"

#include "base/assert.h"
#include "base/mem.h"

#include <string.h>

/* A rack or a device that lies in one zone: copies in different zones are in different ones. */
static bool nested(const struct bal_fleet *f, const uint16_t *domain, uint32_t count)
{
    uint16_t *zone = mem_alloc((count + 1) * sizeof *zone);
    memset(zone, 0xff, (count + 1) * sizeof *zone);
    bool in = true;
    for (uint32_t n = 0; n < f->node_count; n++) {
        if (domain[n] == BAL_NO_NODE) {
            continue;
        }
        uint16_t *known = &zone[domain[n]];
        in = in && f->zone_of[n] != BAL_NO_NODE &&
             (*known == BAL_NO_NODE || *known == f->zone_of[n]);
        *known = f->zone_of[n];
    }
    mem_free(zone);
    return in;
}

struct domains {
    uint64_t *zone;  /* by node: a bit, none for those without */
    uint64_t *rules; /* by node: those that it satisfies, and none */
    bool nested;
};

static bool two_alike(const uint16_t *domain, const uint16_t *at, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        for (uint32_t k = 0; k < i; k++) {
            if (domain[at[i]] == domain[at[k]] && domain[at[i]] != BAL_NO_NODE) {
                return true;
            }
        }
    }
    return false;
}

static void note_odd(struct bal_fleet *f, uint32_t p, uint32_t *room)
{
    if (f->odd_count == *room) {
        *room = *room == 0 ? 64 : *room * 2;
        f->odd = mem_realloc(f->odd, *room * sizeof *f->odd);
    }
    f->odd[f->odd_count++] = p;
}

/* By hand: the compiler leaves such a short loop as it is, and this is most of the pass. */
static inline void add(uint64_t *sum, const uint64_t *more)
{
    _Static_assert(BAL_RESOURCES == 5, "as many as are added");
    sum[0] += more[0];
    sum[1] += more[1];
    sum[2] += more[2];
    sum[3] += more[3];
    sum[4] += more[4];
}

static inline void bear(const struct bal_fleet *f, const uint64_t *load, uint64_t *follower)
{
    follower[0] = bal_scale(load[0], f->follower[0]);
    follower[1] = bal_scale(load[1], f->follower[1]);
    follower[2] = bal_scale(load[2], f->follower[2]);
    follower[3] = bal_scale(load[3], f->follower[3]);
    follower[4] = bal_scale(load[4], f->follower[4]);
}

/* Where a copy will be. */
static inline uint16_t settle(struct bal_fleet *f, uint32_t c, uint64_t bytes)
{
    uint16_t at = f->copy_node[c], to = f->copy_to[c];
    if (to == BAL_NO_NODE) {
        return at;
    }
    f->node_leaving[at] += bytes;
    f->moving_count++;
    return to;
}

static void note_flags(struct bal_fleet *f, uint32_t begin, uint32_t count)
{
    for (uint32_t c = begin; c < begin + count; c++) {
        f->lost_count += (f->copy_flags[c] & BAL_COPY_LOST) != 0;
        f->insync_count += c > begin && (f->copy_flags[c] & BAL_COPY_INSYNC) != 0;
    }
}

/* The copies of one partition, counted where they will be. Could one of them break a rule? */
static bool sum_partition(struct bal_fleet *f, const struct domains *d, uint32_t p)
{
    const struct bal_place *place = &f->place[p];
    const uint64_t *load = &f->load[(size_t)p * BAL_RESOURCES], *mine = load;
    uint64_t follower[BAL_RESOURCES], *sums = f->node_load, seen = 0, odd = 0;
    uint64_t zoned = (place->spread & BAL_SPREAD_ZONE) != 0 ? UINT64_MAX : 0;
    uint32_t begin = place->copy_begin, count = place[1].copy_begin - begin;
    uint32_t flags = 0, *counts = f->held_begin + 1;
    uint16_t at[BAL_COPIES_MAX];
    bear(f, load, follower);
    for (uint32_t i = 0; i < count; i++, mine = follower) {
        uint16_t n = at[i] = settle(f, begin + i, mine[BAL_BYTES]);
        uint64_t zone = d->zone[n] & zoned;
        add(&sums[(size_t)n * BAL_RESOURCES], mine);
        counts[n]++;
        odd |= (seen & zone) | (~d->rules[n] >> place->rule & 1);
        seen |= zone;
        flags |= f->copy_flags[begin + i];
    }
    if (flags != 0) {
        note_flags(f, begin, count);
    }
    if (odd != 0 || (zoned != 0 && d->nested)) {
        return odd != 0;
    }
    return ((place->spread & BAL_SPREAD_RACK) != 0 && two_alike(f->rack_of, at, count)) ||
           ((place->spread & BAL_SPREAD_DEVICE) != 0 && two_alike(f->device_of, at, count));
}

static void sum_all(struct bal_fleet *f, const struct domains *d)
{
    uint32_t room = 0;
    for (uint32_t p = 0; p < f->partition_count; p++) {
        const struct bal_place *place = &f->place[p];
        uint32_t count = place[1].copy_begin - place->copy_begin;
        if (sum_partition(f, d, p)) {
            note_odd(f, p, &room);
        }
        f->lost_count += count < place->wanted;
        f->fixed_count += (f->flags[p] & BAL_FIXED) != 0;
        f->busy_count += (f->flags[p] & BAL_BUSY) != 0;
        f->rules |= UINT64_C(1) << place->rule;
        f->spread_count[count] += (place->spread & BAL_SPREAD_ZONE) != 0;
    }
}

static void list_held(struct bal_fleet *f)
{
    for (uint32_t n = 0; n < f->node_count; n++) {
        f->held_begin[n + 1] += f->held_begin[n];
    }
    uint32_t *fill = mem_dup(f->held_begin, (f->node_count + 1) * sizeof *fill);
    for (uint32_t p = 0; p < f->partition_count; p++) {
        uint32_t begin = f->place[p].copy_begin, end = f->place[p + 1].copy_begin;
        for (uint32_t c = begin; c < end; c++) {
            uint16_t at = f->moving_count > 0 ? bal_copy_at(f, c) : f->copy_node[c];
            f->held[fill[at]++] = (struct bal_held){p & (BAL_NO_PARTITION >> 3), (c - begin) & 7};
        }
    }
    mem_free(fill);
}

/* The lists keep their room: there are as many copies as before. */
static void clear(struct bal_fleet *f)
{
    size_t nodes = f->node_count + 1;
    if (f->node_load == NULL) {
        f->node_load = mem_alloc(nodes * BAL_RESOURCES * sizeof *f->node_load);
        f->node_leaving = mem_alloc(nodes * sizeof *f->node_leaving);
        f->held_begin = mem_alloc((nodes + 1) * sizeof *f->held_begin);
        f->held = mem_alloc(((size_t)f->copy_count + 1) * sizeof *f->held);
    }
    memset(f->node_load, 0, nodes * BAL_RESOURCES * sizeof *f->node_load);
    memset(f->node_leaving, 0, nodes * sizeof *f->node_leaving);
    memset(f->held_begin, 0, (nodes + 1) * sizeof *f->held_begin);
    memset(f->spread_count, 0, sizeof f->spread_count);
    mem_free(f->odd);
    f->odd = NULL;
    f->odd_count = f->lost_count = f->insync_count = 0;
    f->fixed_count = f->busy_count = f->moving_count = 0;
    f->rules = 0;
}

void bal_fleet_recount(struct bal_fleet *f)
{
    struct domains d = {.zone = mem_zalloc((f->node_count + 1) * sizeof *d.zone),
                        .rules = mem_zalloc((f->node_count + 1) * sizeof *d.rules)};
    for (uint32_t n = 0; n < f->node_count; n++) {
        d.zone[n] = f->zone_of[n] == BAL_NO_NODE ? 0 : UINT64_C(1) << f->zone_of[n];
        d.rules[n] = f->node[n].rules | 1;
    }
    d.nested = nested(f, f->rack_of, f->rack_count) && nested(f, f->device_of, f->device_count);
    clear(f);
    sum_all(f, &d);
    list_held(f);
    mem_free(d.zone);
    mem_free(d.rules);
}

void bal_fleet_set_load(struct bal_fleet *f, uint32_t p, const uint64_t load[BAL_RESOURCES])
{
    ASSERT(f->building == NULL && p < f->partition_count);
    uint64_t more[2][BAL_RESOURCES]; /* for the primary and the others; wraps where it is less */
    uint64_t *old = &f->load[(size_t)p * BAL_RESOURCES];
    uint32_t begin = f->place[p].copy_begin, end = f->place[p + 1].copy_begin;
    for (unsigned r = 0; r < BAL_RESOURCES; r++) {
        uint64_t now = bal_min(load[r], BAL_LOAD_MAX);
        more[0][r] = now - old[r];
        more[1][r] = bal_scale(now, f->follower[r]) - bal_scale(old[r], f->follower[r]);
        old[r] = now;
    }
    const uint16_t *where = f->copy_node + begin;
    for (uint32_t c = begin; c < end; c++, where++) {
        const uint64_t *mine = more[c != begin];
        bool moves = f->moving_count > 0 && f->copy_to[c] != BAL_NO_NODE;
        uint16_t at = moves ? f->copy_to[c] : *where;
        add(&f->node_load[(size_t)at * BAL_RESOURCES], mine);
        if (moves) {
            f->node_leaving[*where] += mine[BAL_BYTES];
        }
    }
}
