/* SPDX-License-Identifier: Apache-2.0 */
/* Where relief alone does not reach: two copies change places when none can go by itself, and a
 * node that bears far too little (new, or back) takes from the hottest ones. */
#include "balancer/internal.h"

enum { SWAP_NODES = 3, SWAP_CANDIDATES = 64, FILL_MAX = 16, FILL_SOURCES = 4 };

struct exchange {
    uint32_t out, back; /* copies */
    uint16_t to;
    uint64_t gain, score, time_ms;
};

/* Up to SWAP_CANDIDATES copies on the node that may move, the most (or the least) loaded ones. */
static uint32_t candidates(const struct bal_state *st,
                           uint16_t node,
                           unsigned resource,
                           bool most,
                           uint32_t out[SWAP_CANDIDATES])
{
    const struct bal_fleet *f = st->f;
    uint64_t loads[SWAP_CANDIDATES];
    uint32_t count = 0;
    for (uint32_t i = f->held_begin[node]; i < f->held_begin[node + 1]; i++) {
        const struct bal_held *h = &f->held[i];
        enum bal_reason reason = bal_movable_held(st, h, node, resource, false);
        uint64_t load = bal_held_load(f, h, resource);
        if (reason != BAL_REASON_NONE && (most || reason != BAL_REASON_TOO_SMALL)) {
            continue;
        }
        if (count == SWAP_CANDIDATES &&
            (most ? load <= loads[count - 1] : load >= loads[count - 1])) {
            continue;
        }
        uint32_t at = count < SWAP_CANDIDATES ? count++ : count - 1;
        for (; at > 0 && (most ? loads[at - 1] < load : loads[at - 1] > load); at--) {
            loads[at] = loads[at - 1];
            out[at] = out[at - 1];
        }
        loads[at] = load;
        out[at] = h->copy;
    }
    return count;
}

/* Every resource of both nodes after the exchange: the receiver at the low mark or below, the giver
 * no higher than it was. */
static bool exchange_fits(const struct bal_state *st, uint32_t out, uint32_t back, uint16_t to)
{
    uint16_t from = st->at[out];
    for (unsigned r = 0; r < BAL_RESOURCES; r++) {
        uint64_t goes = bal_copy_load(st->f, out, r), comes = bal_copy_load(st->f, back, r);
        size_t i = bal_cell(to, r), j = bal_cell(from, r);
        if (!bal_uses(st, r)) {
            continue;
        }
        if (goes > comes && st->load[i] + (goes - comes) > st->top[i]) {
            return false;
        }
        if (comes > goes && st->load[j] + (comes - goes) > bal_max(st->top[j], st->load[j])) {
            return false;
        }
    }
    return true;
}

static void weigh(const struct bal_state *st,
                  struct exchange *e,
                  uint64_t excess,
                  unsigned resource,
                  struct exchange *best)
{
    const struct bal_settings *s = st->s;
    uint16_t from = st->at[e->out];
    uint64_t goes = bal_copy_load(st->f, e->out, resource);
    uint64_t comes = bal_copy_load(st->f, e->back, resource);
    if (goes <= comes) {
        return;
    }
    e->gain = bal_min(goes - comes, excess);
    uint64_t bytes =
        bal_copy_load(st->f, e->out, BAL_BYTES) + bal_copy_load(st->f, e->back, BAL_BYTES);
    e->time_ms = bal_copy_time(st, bytes) + s->move_fixed_ms;
    e->score = (e->gain << 20) / e->time_ms;
    struct bal_step step = {
        .from = from, .to = e->to, .resource = (uint8_t)resource, .time_ms = e->time_ms};
    bool clear = e->gain >= excess / 4 ||
                 e->gain >= bal_scale(st->share[bal_cell(from, resource)], BAL_PERCENT(2));
    if (e->score <= best->score || !clear || !bal_worth(st, &step, e->gain) ||
        !exchange_fits(st, e->out, e->back, e->to) ||
        bal_may_hold(st, e->out, e->to) != BAL_REASON_NONE ||
        bal_may_hold(st, e->back, from) != BAL_REASON_NONE || bal_returns(st, e->out, e->to) ||
        bal_returns(st, e->back, from)) {
        return;
    }
    *best = *e;
}

static bool
both_ways_free(const struct bal_state *st, uint16_t from, uint16_t to, uint32_t class_of)
{
    return bal_budget(st, from, to, class_of) == BAL_REASON_NONE &&
           bal_budget(st, to, from, class_of) == BAL_REASON_NONE;
}

static void
exchange(struct bal_state *st, const struct exchange *e, unsigned resource, uint32_t class_of)
{
    const struct bal_fleet *f = st->f;
    uint32_t p = f->copy_partition[e->out], q = f->copy_partition[e->back];
    uint16_t from = st->at[e->out];
    struct bal_proposal made = {
        .class_of = class_of,
        .kind = BAL_SWAP,
        .reason = class_of == DIR_CLASS_HOT ? BAL_REASON_HOT_NODE_URGENT : BAL_REASON_HOT_NODE,
        .resource = (uint8_t)resource,
        .partition = f->id[p],
        .version = f->version[p],
        .partner = f->id[q],
        .from = f->node_id[from],
        .to = f->node_id[e->to],
        .from_level = st->level[from],
        .to_level = st->level[e->to],
        .load = bal_copy_load(f, e->out, resource),
        .benefit = e->gain,
        .threshold = BAL_ONE + st->plan->high,
        .bytes = bal_copy_load(f, e->out, BAL_BYTES) + bal_copy_load(f, e->back, BAL_BYTES),
        .time_ms = e->time_ms,
    };
    bal_relocate(st, e->out, e->to);
    bal_relocate(st, e->back, from);
    made.from_after = st->level[from];
    made.to_after = st->level[e->to];
    bal_budget_take(st, from, e->to, class_of);
    bal_budget_take(st, e->to, from, class_of);
    bal_tokens_take(st, class_of, 2);
    bal_coldest_update(st, from, class_of);
    bal_coldest_update(st, e->to, class_of);
    (void)bal_propose(st, &made);
}

bool bal_swap_one(struct bal_state *st, uint16_t from, unsigned resource, uint32_t class_of)
{
    const struct bal_fleet *f = st->f;
    uint64_t excess =
        bal_less(st->load[bal_cell(from, resource)], bal_relieved(st, from, resource));
    uint32_t mine[SWAP_CANDIDATES], theirs[SWAP_CANDIDATES];
    uint32_t count = candidates(st, from, resource, true, mine);
    if (count == 0 || excess == 0 || bal_tokens(st, class_of, 2) != BAL_REASON_NONE) {
        return false;
    }
    uint16_t nodes[SWAP_NODES];
    uint32_t cold = 0;
    struct bal_walk walk;
    struct bal_step like = {.copy = mine[0], .from = from, .class_of = class_of};
    bal_walk_begin(st, &like, &walk);
    while (cold < SWAP_NODES && bal_walk_next(st, &like, &walk, &nodes[cold])) {
        cold++;
    }
    bal_walk_end(st, &walk);
    struct exchange best = {0};
    for (uint32_t k = 0; k < cold; k++) {
        if (!both_ways_free(st, from, nodes[k], class_of)) {
            continue;
        }
        uint32_t others = candidates(st, nodes[k], resource, false, theirs);
        for (uint32_t a = 0; a < count; a++) {
            for (uint32_t b = 0; b < others; b++) {
                struct exchange e = {.out = mine[a], .back = theirs[b], .to = nodes[k]};
                if (f->copy_partition[e.out] != f->copy_partition[e.back]) {
                    weigh(st, &e, excess, resource, &best);
                }
            }
        }
    }
    if (best.score == 0) {
        return false;
    }
    exchange(st, &best, resource, class_of);
    return true;
}

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
        uint32_t copy = h->copy;
        if (bal_movable_held(st, h, from, resource, false) != BAL_REASON_NONE ||
            bal_held_load(f, h, resource) > room || bal_may_hold(st, copy, to) != BAL_REASON_NONE ||
            bal_returns(st, copy, to)) {
            continue;
        }
        bal_step_of(st, copy, resource, class_of, &step);
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
