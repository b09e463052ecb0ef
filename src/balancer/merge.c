/* SPDX-License-Identifier: Apache-2.0 */
/* Cold neighbours merge, slowly: far below the load at which they would be split again, long after
 * the last split or merge, and never below as many partitions as balancing needs. What had to be
 * split again after a merge is left alone for longer than the load took to come back. */
#include "balancer/reshape.h"

bool bal_merges_wanted(const struct bal_state *st)
{
    uint64_t count = st->f->partition_count, nodes = st->eligible;
    return nodes > 0 && count > st->s->per_node_min * nodes &&
           count > st->s->per_node_target * nodes * 3 / 4;
}

static bool lately(const struct bal_state *st, uint64_t at_ms)
{
    return at_ms != 0 && bal_less(st->now, at_ms) < st->s->merge_after_ms;
}

uint64_t bal_regret(uint64_t split_ms, uint64_t before_ms)
{
    enum { TIMES = 2 };
    return before_ms == 0 ? 0 : TIMES * bal_less(split_ms, before_ms);
}

bool bal_cold_enough(const struct bal_state *st, uint32_t p, uint64_t cold_ms)
{
    uint32_t q = st->f->next[p];
    uint64_t calm_ms = q == BAL_NO_PARTITION ? 0 : st->f->calm_ms[q];
    calm_ms = bal_max(bal_max(calm_ms, st->f->calm_ms[p]), st->s->merge_cold_ms);
    return st->now - cold_ms >= calm_ms;
}

static enum bal_reason one_may_merge(const struct bal_state *st, uint32_t p)
{
    const struct bal_fleet *f = st->f;
    enum bal_reason reason = bal_partition_free(st, p);
    if (reason != BAL_REASON_NONE) {
        return reason;
    }
    if ((f->flags[p] & BAL_PINNED) != 0 || f->place[p].group != 0) {
        return BAL_REASON_PINNED;
    }
    if ((f->flags[p] & BAL_STALE) != 0) {
        return BAL_REASON_STALE;
    }
    return lately(st, f->split_ms[p]) || lately(st, f->merged_ms[p]) ? BAL_REASON_TOO_SOON
                                                                     : BAL_REASON_NONE;
}

/* The same primary, and the same set of nodes. */
static bool together(const struct bal_state *st, uint32_t p, uint32_t q)
{
    const struct bal_fleet *f = st->f;
    uint32_t a = f->place[p].copy_begin, a_end = f->place[p + 1].copy_begin;
    uint32_t b = f->place[q].copy_begin, b_end = f->place[q + 1].copy_begin;
    if (a == a_end || a_end - a != b_end - b || st->at[a] != st->at[b]) {
        return false;
    }
    for (uint32_t c = a; c < a_end; c++) {
        bool found = false;
        for (uint32_t d = b; d < b_end; d++) {
            found |= st->at[c] == st->at[d];
        }
        if (!found) {
            return false;
        }
    }
    return true;
}

static bool plenty(const struct bal_state *st)
{
    return st->f->partition_count > (uint64_t)st->s->per_node_target * st->eligible * 3 / 2;
}

static bool alike(const struct bal_fleet *f, uint32_t p, uint32_t q)
{
    return f->place[p].rule == f->place[q].rule && f->tenant[p] == f->tenant[q] &&
           f->place[p].spread == f->place[q].spread;
}

/* Asked of every partition: first what turns down most. */
bool bal_may_pair(const struct bal_state *st, uint32_t p)
{
    const struct bal_fleet *f = st->f;
    uint32_t q = f->next[p];
    uint16_t never = BAL_PINNED | BAL_QUARANTINED;
    if (q == BAL_NO_PARTITION) {
        return false;
    }
    if (!together(st, p, q)) {
        bool single = f->place[p + 1].copy_begin - f->place[p].copy_begin == 1 &&
                      f->place[q + 1].copy_begin - f->place[q].copy_begin == 1;
        if (!single || !plenty(st)) {
            return false;
        }
    }
    return ((f->flags[p] | f->flags[q]) & never) == 0 && alike(f, p, q);
}

enum bal_reason
bal_merge_of(const struct bal_state *st, uint32_t p, const struct bal_partition_memory *m)
{
    const struct bal_fleet *f = st->f;
    uint32_t q = f->next[p];
    if (!bal_merges_wanted(st)) {
        return BAL_REASON_TOO_MANY;
    }
    if (q == BAL_NO_PARTITION || m == NULL || m->cold_ms == 0) {
        return BAL_REASON_NO_CANDIDATE;
    }
    if (!bal_cold_enough(st, p, m->cold_ms) || lately(st, st->m->started_ms)) {
        return BAL_REASON_NOT_SUSTAINED;
    }
    if (!alike(f, p, q)) {
        return BAL_REASON_PLACEMENT_RULE;
    }
    enum bal_reason reason = one_may_merge(st, p);
    if (reason == BAL_REASON_NONE) {
        reason = one_may_merge(st, q);
    }
    if (reason != BAL_REASON_NONE) {
        return reason;
    }
    return together(st, p, q) ? BAL_REASON_NONE : BAL_REASON_CO_LOCATE;
}

static bool settled(const struct bal_state *st, uint32_t p)
{
    return bal_less(st->now, st->f->moved_ms[p]) >= st->s->residence_ms;
}

/* The smaller of two goes to where the other is, when there are far too many partitions and nothing
 * better to do. */
static bool co_locate(struct bal_state *st, uint32_t p, uint32_t q)
{
    const struct bal_fleet *f = st->f;
    uint32_t a = bal_primary(f, p), b = bal_primary(f, q);
    if (!plenty(st) || st->plan->recovering || f->place[p + 1].copy_begin - a != 1 ||
        f->place[q + 1].copy_begin - b != 1 || !settled(st, p) || !settled(st, q) ||
        bal_tokens(st, DIR_CLASS_MERGE, 1) != BAL_REASON_NONE) {
        return false;
    }
    bool p_goes = bal_copy_load(f, a, BAL_BYTES) < bal_copy_load(f, b, BAL_BYTES);
    uint32_t goes = p_goes ? a : b;
    uint16_t to = st->at[p_goes ? b : a];
    struct bal_step step;
    bal_step_of(st, goes, bal_dominant(st, to), DIR_CLASS_MERGE, &step);
    step.to = to;
    if (bal_may_hold(st, &step, to) != BAL_REASON_NONE || bal_returns(st, &step, to) ||
        f->node[step.from].state != BAL_ELIGIBLE ||
        bal_budget(st, step.from, to, DIR_CLASS_MERGE) != BAL_REASON_NONE ||
        bal_level_with(st, to, step.vector, true) > BAL_ONE + st->s->low) {
        return false;
    }
    struct bal_verdict v = {0};
    bal_emit(st, &step, &v, BAL_REASON_CO_LOCATE);
    bal_take(st, p);
    bal_take(st, q);
    return true;
}

void bal_merge_cold(struct bal_state *st, const uint32_t *cold, uint32_t count)
{
    const struct bal_fleet *f = st->f;
    uint32_t merges = 0;
    for (uint32_t i = 0; i < count && merges < st->s->merges_per_round; i++) {
        uint32_t p = cold[i], q = f->next[p];
        enum bal_reason reason = bal_merge_of(st, p, bal_memory_partition(st->m, f->id[p]));
        if (reason == BAL_REASON_CO_LOCATE) {
            merges += co_locate(st, p, q);
            continue;
        }
        if (reason != BAL_REASON_NONE) {
            st->plan->rejected[reason]++;
            continue;
        }
        merges++;
        bal_take(st, p);
        bal_take(st, q);
        (void)bal_propose(st, &(struct bal_proposal){.class_of = DIR_CLASS_MERGE,
                                                     .kind = BAL_MERGE,
                                                     .reason = BAL_REASON_COLD_NEIGHBOURS,
                                                     .partition = f->id[p],
                                                     .version = f->version[p],
                                                     .partner = f->id[q],
                                                     .from_level = bal_heat(st, p),
                                                     .to_level = bal_heat(st, q),
                                                     .threshold = BAL_ONE / st->s->merge_fraction});
    }
}
