/* SPDX-License-Identifier: Apache-2.0 */
/* Is one step worth it? It fits when the destination stays at the low mark in every resource. A
 * partition too big for that may still go when the higher of both nodes falls clearly, or it would
 * never go. In both cases no node ends above where the source was: a move can't invert the order of
 * two nodes and call for its own way back. */
#include "balancer/internal.h"

bool bal_worth(const struct bal_state *st, const struct bal_step *step, uint64_t benefit)
{
    const struct bal_settings *s = st->s;
    const struct bal_node_spec *nodes = st->f->node;
    uint64_t capacity =
        nodes[step->from].capacity[step->resource] + nodes[step->to].capacity[step->resource];
    bal_u128 cost = (bal_u128)bal_scale(bal_scale(capacity, s->overhead), s->kappa) * step->time_ms;
    bal_u128 gain = (bal_u128)bal_scale(benefit, bal_max(st->rho, s->rho_min)) * s->horizon_ms;
    return gain >= cost;
}

/* Beside the resource that is relieved none may pass the low mark, nor, where the node already has
 * its share of it, rise by more than a part of the relief. */
static enum bal_reason fits(const struct bal_state *st, const struct bal_step *step)
{
    size_t source = bal_cell(step->from, step->resource);
    /* A resource of which nothing goes counts too: the node has enough to bear. */
    bal_q32 relief = bal_by_inverse(step->vector[step->resource], st->inverse[source]);
    enum bal_reason worst = BAL_REASON_NONE;
    for (unsigned r = 0; r < BAL_RESOURCES; r++) {
        size_t i = bal_cell(step->to, r);
        uint64_t after = bal_more(st->load[i], step->vector[r]);
        if (!bal_uses(st, r)) {
            continue;
        }
        if (after > st->top[i]) {
            return BAL_REASON_OVERSHOOT;
        }
        if (r != step->resource && after > st->share[i] &&
            bal_by_inverse(step->vector[r], st->inverse[i]) > bal_scale(relief, st->s->side_rise)) {
            worst = BAL_REASON_SIDE_EFFECT;
        }
    }
    return worst;
}

static uint64_t score(uint64_t benefit, uint64_t time_ms)
{
    return (benefit << 20) / bal_max(time_ms, 1);
}

struct bal_verdict bal_judge(const struct bal_state *st, const struct bal_step *step)
{
    struct bal_verdict v = {.reason = (uint8_t)fits(st, step)};
    size_t to = bal_cell(step->to, step->resource);
    v.benefit = bal_min(step->vector[step->resource], step->excess);
    if (v.reason == BAL_REASON_OVERSHOOT) {
        /* Of the source what is relieved counts, of the destination whatever it will bear. */
        size_t from = bal_cell(step->from, step->resource);
        uint64_t left = bal_less(st->load[from], step->vector[step->resource]);
        bal_q32 before = bal_level_of(st, step->from, step->resource);
        bal_q32 after = bal_max(bal_by_inverse(left, st->inverse[from]),
                                bal_level_with(st, step->to, step->vector, true));
        if (bal_less(before, after) < st->s->lump_gain) {
            return v;
        }
        uint64_t over = bal_less(bal_more(st->load[to], step->vector[step->resource]), st->top[to]);
        v.benefit = bal_less(v.benefit, over);
        v.lump = true;
        v.reason = BAL_REASON_NONE;
    }
    if (v.reason == BAL_REASON_NONE && !bal_worth(st, step, v.benefit)) {
        v.reason = BAL_REASON_NOT_WORTH;
    }
    v.score = v.reason == BAL_REASON_NONE ? score(v.benefit, step->time_ms) : 0;
    return v;
}
