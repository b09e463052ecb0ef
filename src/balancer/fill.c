/* SPDX-License-Identifier: Apache-2.0 */
/* Where relief alone does not reach: a node that bears far too little (new, or back) takes from the
 * hottest ones. */
#include "balancer/internal.h"

enum { FILL_MAX = 16, FILL_SOURCES = 4 };

/* The hottest node that may give, of those that have not been found to have nothing to give. */
static uint16_t
hottest(const struct bal_state *st, uint16_t to, const uint16_t *barren, unsigned count)
{
    uint16_t best = BAL_NO_NODE;
    for (uint16_t n = 0; n < st->f->node_count; n++) {
        uint8_t state = st->f->node[n].state;
        bool asked = n == to || (state != BAL_ELIGIBLE && state != BAL_CORDONED) ||
                     (best != BAL_NO_NODE && st->level[n] <= st->level[best]);
        for (unsigned i = 0; i < count && !asked; i++) {
            asked = barren[i] == n;
        }
        if (!asked && bal_budget(st, n, to, DIR_CLASS_BALANCE) == BAL_REASON_NONE) {
            best = n;
        }
    }
    return best;
}

/* What goes from one to the other best; false: nothing. */
static bool fill_from(struct bal_state *st, uint16_t from, uint16_t to, unsigned resource)
{
    const struct bal_fleet *f = st->f;
    uint32_t class_of = DIR_CLASS_BALANCE, best = BAL_NO_PARTITION;
    size_t i = bal_cell(to, resource), j = bal_cell(from, resource);
    uint64_t low = bal_less(st->share[j], bal_scale(st->share[j], st->s->low));
    uint64_t keep = st->stuck[j] > st->share[j] ? bal_relieved(st, from, resource) : low;
    uint64_t room = bal_min(bal_less(st->share[i], st->load[i]), bal_less(st->load[j], keep));
    struct bal_step step, best_step = {0};
    struct bal_verdict best_verdict = {0};
    for (uint32_t k = f->held_begin[from]; k < f->held_begin[from + 1]; k++) {
        const struct bal_held *h = &f->held[k];
        uint32_t copy = bal_held_copy(f, h);
        if (bal_movable_held(st, h, from, resource, false) != BAL_REASON_NONE ||
            bal_held_load(f, h, resource) > room) {
            continue;
        }
        bal_step_of(st, copy, resource, class_of, &step);
        if (bal_may_hold(st, &step, to) != BAL_REASON_NONE || bal_returns(st, &step, to)) {
            continue;
        }
        step.to = to;
        step.excess = step.vector[resource];
        struct bal_verdict v = bal_judge(st, &step);
        if (v.reason == BAL_REASON_NONE && !v.lump && v.score > best_verdict.score) {
            best = copy;
            best_step = step;
            best_verdict = v;
        }
    }
    if (best == BAL_NO_PARTITION) {
        return false;
    }
    bal_emit(st, &best_step, &best_verdict, BAL_REASON_COLD_NODE);
    return true;
}

/* A node with more than its share that can't leave gives the rest only as it does to be relieved.
 */
static bool may_give(const struct bal_state *st, uint16_t from, unsigned r)
{
    size_t i = bal_cell(from, r);
    return st->stuck[i] <= st->share[i] || st->load[i] > bal_over(st, from, r);
}

/* From one of the hottest: what one of them can't give, or nothing of, holds up no other. */
static bool fill_one(struct bal_state *st, uint16_t to)
{
    uint16_t barren[FILL_SOURCES];
    for (unsigned count = 0; count < FILL_SOURCES; count++) {
        uint16_t from = hottest(st, to, barren, count);
        if (from == BAL_NO_NODE || st->level[from] < BAL_ONE) {
            return false;
        }
        uint32_t mask = UINT32_MAX;
        for (unsigned r = bal_dominant_of(st, from, mask);
             r != BAL_RESOURCES && bal_level_of(st, from, r) >= BAL_ONE;
             r = bal_dominant_of(st, from, mask)) {
            if (may_give(st, from, r) && fill_from(st, from, to, r)) {
                return true;
            }
            mask &= ~(1U << r);
        }
        barren[count] = from;
    }
    return false;
}

void bal_fill(struct bal_state *st)
{
    bal_coldest_fill(st, DIR_CLASS_BALANCE);
    for (uint16_t n = 0; n < st->f->node_count; n++) {
        if (!st->m->node[n].filling || st->f->node[n].stalled) {
            continue;
        }
        for (unsigned i = 0; i < FILL_MAX && st->level[n] < BAL_ONE - st->s->low; i++) {
            if (bal_budget_intake(st, n, DIR_CLASS_BALANCE) != BAL_REASON_NONE ||
                bal_tokens(st, DIR_CLASS_BALANCE, 1) != BAL_REASON_NONE || !fill_one(st, n)) {
                break;
            }
        }
    }
}
