/* SPDX-License-Identifier: Apache-2.0 */
/* The cheapest relief: the primary's role goes to a copy in sync, and no byte is moved. The
 * difference between a primary's load and another copy's goes with it. */
#include "balancer/internal.h"

#include "base/mem.h"

#include <stdlib.h>

static void role_vector(const struct bal_state *st, uint32_t p, uint64_t vector[BAL_RESOURCES])
{
    const struct bal_fleet *f = st->f;
    for (unsigned r = 0; r < BAL_RESOURCES; r++) {
        uint64_t load = f->load[(size_t)p * BAL_RESOURCES + r];
        vector[r] = bal_less(load, bal_scale(load, f->follower[r]));
    }
}

static enum bal_reason may_lead(const struct bal_state *st, uint32_t p, uint32_t copy)
{
    const struct bal_fleet *f = st->f;
    uint16_t node = st->at[copy];
    if ((f->copy_flags[copy] & BAL_COPY_INSYNC) == 0 ||
        (f->copy_flags[copy] & BAL_COPY_LOST) != 0 || f->copy_to[copy] != BAL_NO_NODE) {
        return BAL_REASON_NO_LIVE_COPY;
    }
    if (!st->takes[node] || f->node[node].stalled) {
        return BAL_REASON_NODE_STATE;
    }
    if (f->place[p].rule != 0 && (f->node[node].rules >> f->place[p].rule & 1) == 0) {
        return BAL_REASON_PLACEMENT_RULE;
    }
    return st->transfers[node] < st->s->transfers_per_node ? BAL_REASON_NONE
                                                           : BAL_REASON_BUDGET_NODE;
}

/* The best copy to lead p, or BAL_NO_PARTITION. */
static uint32_t
successor(const struct bal_state *st, uint32_t p, struct bal_step *step, struct bal_verdict *ret)
{
    const struct bal_fleet *f = st->f;
    uint32_t best = BAL_NO_PARTITION;
    for (uint32_t c = bal_primary(f, p) + 1; c < f->place[p + 1].copy_begin; c++) {
        if (may_lead(st, p, c) != BAL_REASON_NONE || bal_returns(st, step, st->at[c])) {
            continue;
        }
        step->to = st->at[c];
        struct bal_verdict v = bal_judge(st, step);
        if (v.reason == BAL_REASON_NONE && (best == BAL_NO_PARTITION || v.score > ret->score)) {
            best = c;
            *ret = v;
        }
    }
    return best;
}

static void
emit(struct bal_state *st, uint32_t p, const struct bal_step *step, const struct bal_verdict *v)
{
    const struct bal_fleet *f = st->f;
    bool hot = step->class_of == DIR_CLASS_HOT;
    struct bal_proposal made = {
        .class_of = step->class_of,
        .kind = BAL_TRANSFER,
        .reason = hot ? BAL_REASON_HOT_NODE_URGENT : BAL_REASON_HOT_NODE,
        .resource = step->resource,
        .partition = f->id[p],
        .version = f->version[p],
        .from = f->node_id[step->from],
        .to = f->node_id[step->to],
        .from_level = st->level[step->from],
        .to_level = st->level[step->to],
        .load = step->vector[step->resource],
        .benefit = v->benefit,
        .threshold = BAL_ONE + st->plan->high,
        .time_ms = step->time_ms,
    };
    bal_shift(st, step->from, step->to, step->vector);
    bal_take(st, p);
    st->transfers[step->from]++;
    st->transfers[step->to]++;
    made.from_after = st->level[step->from];
    made.to_after = st->level[step->to];
    bal_coldest_update(st, step->from, step->class_of);
    bal_coldest_update(st, step->to, step->class_of);
    (void)bal_propose(st, &made);
}

struct led {
    uint64_t load;
    uint32_t partition;
};

static int by_load(const void *a, const void *b)
{
    const struct led *x = a, *y = b;
    if (x->load != y->load) {
        return x->load > y->load ? -1 : 1;
    }
    return x->partition < y->partition ? -1 : x->partition > y->partition;
}

/* Those with copies in sync whose primary is on the node, the most loaded first. */
static uint32_t
led_by(const struct bal_state *st, uint16_t node, unsigned resource, bool urgent, struct led *out)
{
    const struct bal_fleet *f = st->f;
    uint32_t count = 0;
    for (uint32_t i = f->held_begin[node]; i < f->held_begin[node + 1]; i++) {
        const struct bal_held *h = &f->held[i];
        if (h->copy == 0 && bal_movable_held(st, h, node, resource, urgent) == BAL_REASON_NONE &&
            f->place[h->partition + 1].copy_begin - bal_held_copy(f, h) > 1) {
            out[count++] = (struct led){bal_held_load(f, h, resource), h->partition};
        }
    }
    if (count > 0) {
        qsort(out, count, sizeof *out, by_load);
    }
    return count;
}

void bal_transfer_roles(struct bal_state *st, uint16_t from, unsigned resource, uint32_t class_of)
{
    const struct bal_fleet *f = st->f;
    if (f->insync_count == 0) {
        return;
    }
    struct led *led = mem_alloc((f->held_begin[from + 1] - f->held_begin[from] + 1) * sizeof *led);
    uint32_t count = led_by(st, from, resource, class_of == DIR_CLASS_HOT, led), failed = 0;
    for (uint32_t i = 0; i < count && failed < st->s->probes_failed_max &&
                         st->load[bal_cell(from, resource)] > bal_relieved(st, from, resource) &&
                         st->transfers[from] < st->s->transfers_per_node;
         i++) {
        struct bal_step step;
        struct bal_verdict v = {0};
        uint32_t p = led[i].partition;
        bal_step_of(st, bal_primary(f, p), resource, class_of, &step);
        role_vector(st, p, step.vector);
        step.bytes = 0;
        step.time_ms = 1000;
        uint32_t to = successor(st, p, &step, &v);
        if (to == BAL_NO_PARTITION) {
            failed++;
            continue;
        }
        failed = 0;
        step.to = st->at[to];
        emit(st, p, &step, &v);
    }
    mem_free(led);
}
