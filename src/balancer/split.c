/* SPDX-License-Identifier: Apache-2.0 */
/* Hot partitions: split where the sample says, isolate the one key that is most of the load, or say
 * what a person can do about it. Splits move nothing, so they cost no budget, but each round and
 * the number of partitions have their bounds, and each wants evidence. */
#include "balancer/reshape.h"

#include <stdlib.h>

enum { FRONTIER_RUN = 3 };

static uint64_t highest(const struct bal_state *st, uint32_t p)
{
    uint64_t load = 0;
    for (unsigned r = 0; r < BAL_RESOURCES; r++) {
        load = bal_max(load, st->split_at[r] != 0 ? st->f->load[(size_t)p * BAL_RESOURCES + r] : 0);
    }
    return load;
}

/* Did the last split leave nearly all of the load on this side? Asked once for each split. */
static void count_run(const struct bal_state *st, uint32_t p, struct bal_partition_memory *m)
{
    uint32_t sibling = m->sibling == 0 ? BAL_NO_PARTITION : bal_fleet_partition(st->f, m->sibling);
    if (sibling == BAL_NO_PARTITION) {
        return;
    }
    uint64_t mine = highest(st, p), other = highest(st, sibling);
    m->run = mine >= bal_scale(mine + other, BAL_PERCENT(80)) ? m->run + 1 : 0;
    m->sibling = 0;
}

/* How many ways one key's load has to be divided to stay below `part` of the split threshold. */
static uint32_t ways(bal_q32 heat, uint32_t most, bool powers)
{
    uint32_t n = 2;
    while (n < most && heat / n > BAL_PERCENT(60)) {
        n = powers ? n * 2 : n + 1;
    }
    return (uint32_t)bal_min(n, most);
}

static void
advise_key(const struct bal_state *st, uint32_t p, bal_q32 heat, struct bal_proposal *ret)
{
    const struct bal_fleet *f = st->f;
    const uint64_t *load = &f->load[(size_t)p * BAL_RESOURCES];
    bool reads = load[BAL_READ] > 0 &&
                 bal_ratio(load[BAL_READ], load[BAL_READ] + load[BAL_WRITE]) >= BAL_PERCENT(70);
    ret->kind = BAL_ADVICE;
    ret->reason = BAL_REASON_HOT_KEY;
    if (reads && (f->flags[p] & BAL_MAY_REPLICATE) != 0) {
        ret->remedy = BAL_REMEDY_REPLICAS;
        ret->ways = (uint8_t)ways(heat, f->place[p].fanout, false);
    } else if ((f->flags[p] & BAL_MAY_SALT) != 0) {
        ret->remedy = BAL_REMEDY_SALT;
        ret->ways = (uint8_t)ways(heat, f->place[p].fanout, true);
    } else {
        ret->remedy = BAL_REMEDY_LIMIT;
    }
}

/* Where to cut, or why nowhere. */
static enum bal_reason
cut_of(const struct bal_state *st, uint32_t p, bal_q32 heat, uint8_t *ret_cut)
{
    const struct bal_settings *s = st->s;
    const struct bal_hint *h = bal_fleet_hint(st->f, p);
    if (heat <= BAL_ONE) {
        *ret_cut = BAL_CUT_BYTES;
        return BAL_REASON_NONE;
    }
    if (h == NULL || h->samples < s->samples_min) {
        return BAL_REASON_NO_EVIDENCE;
    }
    /* The lower bound of the share that so many samples allow: one standard deviation. */
    bal_q32 deviation = bal_sqrt(BAL_ONE / ((uint64_t)h->samples * 4));
    bal_q32 top = bal_less(h->top, deviation);
    if (top > s->hot_key_share && bal_scale(heat, top) > s->hot_key_of_split) {
        *ret_cut = BAL_CUT_KEY;
        return BAL_REASON_NONE;
    }
    if (h->left == 0 || h->contained >= s->contained_max) {
        return BAL_REASON_NO_EVIDENCE;
    }
    bal_q32 side = bal_min(h->left, bal_less(BAL_ONE, h->left));
    *ret_cut = side >= s->split_side_min ? BAL_CUT_LOAD : BAL_CUT_KEY;
    return BAL_REASON_NONE;
}

static enum bal_reason may_split(const struct bal_state *st,
                                 uint32_t p,
                                 bal_q32 heat,
                                 const struct bal_partition_memory *m)
{
    const struct bal_settings *s = st->s;
    const struct bal_fleet *f = st->f;
    enum bal_reason reason = bal_partition_free(st, p);
    if (reason != BAL_REASON_NONE) {
        return reason;
    }
    if ((f->flags[p] & BAL_PINNED) != 0) {
        return BAL_REASON_PINNED;
    }
    if ((f->flags[p] & BAL_STALE) != 0) {
        return BAL_REASON_STALE;
    }
    bool urgent = heat > s->split_urgent * BAL_ONE;
    if (!urgent && st->now - m->hot_ms < s->sustain_ms) {
        return BAL_REASON_NOT_SUSTAINED;
    }
    if ((f->flags[p] & BAL_ONE_KEY) != 0) {
        return BAL_REASON_NONE; /* it is advice: nothing is split again too soon */
    }
    uint64_t every = m->run >= FRONTIER_RUN ? s->frontier_every_ms : s->split_every_ms;
    if (f->split_ms[p] != 0 && bal_less(st->now, f->split_ms[p]) < every) {
        return m->run >= FRONTIER_RUN ? BAL_REASON_FRONTIER : BAL_REASON_TOO_SOON;
    }
    return BAL_REASON_NONE;
}

enum bal_reason bal_split_of(const struct bal_state *st,
                             uint32_t p,
                             struct bal_partition_memory *m,
                             struct bal_proposal *ret)
{
    const struct bal_fleet *f = st->f;
    bal_q32 heat = bal_heat(st, p);
    count_run(st, p, m);
    enum bal_reason reason = may_split(st, p, heat, m);
    if (reason != BAL_REASON_NONE) {
        return reason;
    }
    *ret = (struct bal_proposal){
        .class_of = heat > BAL_ONE ? DIR_CLASS_OVERLOAD : DIR_CLASS_OPTIMISE,
        .kind = BAL_SPLIT,
        .reason = heat > BAL_ONE ? BAL_REASON_HOT_PARTITION : BAL_REASON_TOO_LARGE,
        .partition = f->id[p],
        .version = f->version[p],
        .from_level = heat,
        .threshold = BAL_ONE,
        .load = highest(st, p),
    };
    if ((f->flags[p] & BAL_ONE_KEY) != 0) {
        advise_key(st, p, heat, ret);
        return BAL_REASON_NONE;
    }
    if ((uint64_t)f->partition_count >= (uint64_t)st->s->per_node_max * st->eligible) {
        return BAL_REASON_TOO_MANY;
    }
    return cut_of(st, p, heat, &ret->cut);
}

static int by_heat(const void *a, const void *b)
{
    const struct bal_hot *x = a, *y = b;
    if (x->heat != y->heat) {
        return x->heat > y->heat ? -1 : 1;
    }
    return x->tie < y->tie ? -1 : x->tie > y->tie;
}

void bal_split_hot(struct bal_state *st, struct bal_hot *hot, uint32_t count)
{
    uint32_t splits = 0;
    uint32_t most = st->s->splits_per_round +
                    st->f->partition_count / (uint32_t)bal_max(1, st->s->partitions_per_split);
    if (count > 0) {
        qsort(hot, count, sizeof *hot, by_heat);
    }
    for (uint32_t i = 0; i < count; i++) {
        struct bal_proposal made;
        uint32_t p = hot[i].partition;
        enum bal_reason reason = bal_split_of(st, p, &st->m->partition[hot[i].memory], &made);
        if (reason == BAL_REASON_NONE && made.kind == BAL_SPLIT && splits == most) {
            reason = BAL_REASON_ROUND_LIMIT;
        }
        if (reason != BAL_REASON_NONE) {
            bal_reject(st, p, BAL_NO_NODE, reason);
            continue;
        }
        if (made.kind == BAL_SPLIT) {
            bal_take(st, p);
            splits++;
        }
        (void)bal_propose(st, &made);
    }
}

/* Sub-shards were to divide one key's load evenly over distinct owners: do they? */
static bool group_uneven(const struct bal_state *st, uint32_t begin, uint32_t end)
{
    const struct bal_fleet *f = st->f;
    uint64_t sum = 0, most = 0;
    bool shared = false;
    for (uint32_t i = begin; i < end; i++) {
        uint64_t load = highest(st, f->grouped[i]);
        sum = bal_more(sum, load);
        most = bal_max(most, load);
        for (uint32_t k = begin; k < i; k++) {
            uint32_t a = bal_primary(f, f->grouped[i]), b = bal_primary(f, f->grouped[k]);
            shared |= a < f->place[f->grouped[i] + 1].copy_begin &&
                      b < f->place[f->grouped[k] + 1].copy_begin && st->at[a] == st->at[b];
        }
    }
    uint64_t even = sum / (end - begin);
    return shared || most > bal_scale(even, BAL_PERCENT(150));
}

void bal_check_groups(struct bal_state *st)
{
    const struct bal_fleet *f = st->f;
    for (uint32_t begin = 0, end; begin < f->grouped_count; begin = end) {
        uint32_t first = f->grouped[begin];
        for (end = begin + 1;
             end < f->grouped_count && f->place[f->grouped[end]].group == f->place[first].group;) {
            end++;
        }
        if (group_uneven(st, begin, end)) {
            (void)bal_propose(st,
                              &(struct bal_proposal){.class_of = DIR_CLASS_OPTIMISE,
                                                     .kind = BAL_ADVICE,
                                                     .reason = BAL_REASON_SALT_INEFFECTIVE,
                                                     .partition = f->id[first],
                                                     .version = f->version[first],
                                                     .ways = (uint8_t)bal_min(end - begin, 255)});
        }
    }
}
