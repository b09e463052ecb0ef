/* SPDX-License-Identifier: Apache-2.0 */
/* Where relief alone does not reach: two copies change places when none can go by itself. */
#include "balancer/internal.h"

#include <string.h>

enum { SWAP_NODES = 3, SWAP_CANDIDATES = 64 };

/* A copy with what it bears: each is held against many others. */
struct half {
    uint32_t copy, partition;
    uint64_t vector[BAL_RESOURCES];
};

struct halves {
    struct half half[SWAP_CANDIDATES];
    uint32_t count;
};

struct exchange {
    const struct half *out, *back;
    uint16_t from, to;
    uint64_t gain, score, time_ms;
};

/* Up to SWAP_CANDIDATES copies on the node that may move, the most (or the least) loaded ones. */
static void candidates(const struct bal_state *st,
                       uint16_t node,
                       unsigned resource,
                       bool most,
                       struct halves *ret)
{
    const struct bal_fleet *f = st->f;
    struct {
        uint64_t load;
        uint32_t at;
    } best[SWAP_CANDIDATES];
    uint32_t count = 0;
    for (uint32_t i = f->held_begin[node]; i < f->held_begin[node + 1]; i++) {
        const struct bal_held *h = &f->held[i];
        enum bal_reason reason = bal_movable_held(st, h, node, resource, false);
        uint64_t load = bal_held_load(f, h, resource);
        if (reason != BAL_REASON_NONE && (most || reason != BAL_REASON_TOO_SMALL)) {
            continue;
        }
        if (count == SWAP_CANDIDATES &&
            (most ? load <= best[count - 1].load : load >= best[count - 1].load)) {
            continue;
        }
        uint32_t at = count < SWAP_CANDIDATES ? count++ : count - 1;
        for (; at > 0 && (most ? best[at - 1].load < load : best[at - 1].load > load); at--) {
            best[at] = best[at - 1];
        }
        best[at].load = load;
        best[at].at = i;
    }
    ret->count = count;
    for (uint32_t k = 0; k < count; k++) {
        const struct bal_held *h = &f->held[best[k].at];
        struct half *one = &ret->half[k];
        one->copy = bal_held_copy(f, h);
        one->partition = h->partition;
        for (unsigned r = 0; r < BAL_RESOURCES; r++) {
            one->vector[r] = bal_held_load(f, h, r);
        }
    }
}

/* Every resource of both nodes after the exchange: the receiver at the low mark or below, the giver
 * no higher than it was. */
static bool fits(const struct bal_state *st, const struct exchange *e)
{
    for (unsigned r = 0; r < BAL_RESOURCES; r++) {
        uint64_t goes = e->out->vector[r], comes = e->back->vector[r];
        size_t i = bal_cell(e->to, r), j = bal_cell(e->from, r);
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

static struct bal_step
half_step(const struct half *h, uint16_t from, uint16_t to, unsigned resource, uint64_t time_ms)
{
    struct bal_step step = {.partition = h->partition,
                            .copy = h->copy,
                            .from = from,
                            .to = to,
                            .resource = (uint8_t)resource,
                            .time_ms = time_ms};
    memcpy(step.vector, h->vector, sizeof step.vector);
    return step;
}

/* What is cheap to ask first: of thousands of pairs few come as far as the rules. */
static void weigh(const struct bal_state *st,
                  struct exchange *e,
                  uint64_t excess,
                  unsigned resource,
                  struct exchange *best)
{
    uint64_t goes = e->out->vector[resource], comes = e->back->vector[resource];
    if (goes <= comes || e->out->partition == e->back->partition) {
        return;
    }
    e->gain = bal_min(goes - comes, excess);
    bool clear = e->gain >= excess / 4 ||
                 e->gain >= bal_scale(st->share[bal_cell(e->from, resource)], BAL_PERCENT(2));
    if (!clear || !fits(st, e)) {
        return;
    }
    uint64_t bytes = e->out->vector[BAL_BYTES] + e->back->vector[BAL_BYTES];
    e->time_ms = bal_copy_time(st, bytes) + st->s->move_fixed_ms;
    e->score = (e->gain << 20) / e->time_ms;
    struct bal_step out = half_step(e->out, e->from, e->to, resource, e->time_ms);
    if (e->score <= best->score || !bal_worth(st, &out, e->gain)) {
        return;
    }
    struct bal_step back = half_step(e->back, e->to, e->from, resource, e->time_ms);
    if (bal_may_join(st, &out, e->to) == BAL_REASON_NONE &&
        bal_may_join(st, &back, e->from) == BAL_REASON_NONE && !bal_returns(st, &out, e->to) &&
        !bal_returns(st, &back, e->from)) {
        *best = *e;
    }
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
    uint32_t p = e->out->partition;
    struct bal_proposal made = {
        .class_of = class_of,
        .kind = BAL_SWAP,
        .reason = class_of == DIR_CLASS_HOT ? BAL_REASON_HOT_NODE_URGENT : BAL_REASON_HOT_NODE,
        .resource = (uint8_t)resource,
        .partition = f->id[p],
        .version = f->version[p],
        .partner = f->id[e->back->partition],
        .from = f->node_id[e->from],
        .to = f->node_id[e->to],
        .from_level = st->level[e->from],
        .to_level = st->level[e->to],
        .load = e->out->vector[resource],
        .benefit = e->gain,
        .threshold = BAL_ONE + st->plan->high,
        .bytes = e->out->vector[BAL_BYTES] + e->back->vector[BAL_BYTES],
        .time_ms = e->time_ms,
    };
    struct bal_step out = half_step(e->out, e->from, e->to, resource, e->time_ms);
    struct bal_step back = half_step(e->back, e->to, e->from, resource, e->time_ms);
    bal_relocate(st, &out);
    bal_relocate(st, &back);
    made.from_after = st->level[e->from];
    made.to_after = st->level[e->to];
    bal_budget_take(st, e->from, e->to, class_of);
    bal_budget_take(st, e->to, e->from, class_of);
    bal_tokens_take(st, class_of, 2);
    bal_coldest_update(st, e->from, class_of);
    bal_coldest_update(st, e->to, class_of);
    (void)bal_propose(st, &made);
}

/* Nodes that could take what the source would rather lose than anything else. */
static uint32_t partners(struct bal_state *st,
                         const struct half *first,
                         uint16_t from,
                         uint32_t class_of,
                         uint16_t nodes[SWAP_NODES])
{
    struct bal_walk walk;
    struct bal_step like = half_step(first, from, BAL_NO_NODE, 0, 0);
    uint32_t count = 0;
    like.class_of = class_of;
    bal_walk_begin(st, &like, &walk);
    while (count < SWAP_NODES && bal_walk_next(st, &like, &walk, &nodes[count])) {
        count++;
    }
    bal_walk_end(st, &walk);
    return count;
}

bool bal_swap_one(struct bal_state *st, uint16_t from, unsigned resource, uint32_t class_of)
{
    uint64_t excess =
        bal_less(st->load[bal_cell(from, resource)], bal_relieved(st, from, resource));
    struct halves mine, theirs[SWAP_NODES];
    candidates(st, from, resource, true, &mine);
    if (mine.count == 0 || excess == 0 || bal_tokens(st, class_of, 2) != BAL_REASON_NONE) {
        return false;
    }
    uint16_t nodes[SWAP_NODES];
    uint32_t cold = partners(st, &mine.half[0], from, class_of, nodes);
    struct exchange best = {0};
    for (uint32_t k = 0; k < cold; k++) {
        if (!both_ways_free(st, from, nodes[k], class_of)) {
            continue;
        }
        candidates(st, nodes[k], resource, false, &theirs[k]);
        for (uint32_t a = 0; a < mine.count; a++) {
            for (uint32_t b = 0; b < theirs[k].count; b++) {
                struct exchange e = {
                    .out = &mine.half[a], .back = &theirs[k].half[b], .from = from, .to = nodes[k]};
                weigh(st, &e, excess, resource, &best);
            }
        }
    }
    if (best.score == 0) {
        return false;
    }
    exchange(st, &best, resource, class_of);
    return true;
}
