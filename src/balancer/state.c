/* SPDX-License-Identifier: Apache-2.0 */
#include "balancer/internal.h"

#include "base/assert.h"
#include "base/mem.h"

#include <string.h>

static bool may_take(const struct bal_state *st, uint16_t n)
{
    const struct bal_node_spec *node = &st->f->node[n];
    if (node->state != BAL_ELIGIBLE) {
        return false;
    }
    for (unsigned r = 0; r < BAL_RESOURCES; r++) {
        if (bal_uses(st, r) && node->capacity[r] == 0) {
            return false;
        }
    }
    return true;
}

/* Means are over those that serve and stay; what is being drained is going to be theirs. What is on
 * a dead or silent node is part of no mean, nor is its capacity. */
static void measure_means(struct bal_state *st)
{
    const struct bal_fleet *f = st->f;
    for (unsigned r = 0; r < BAL_RESOURCES; r++) {
        bal_u128 load = 0, capacity = 0;
        for (uint16_t n = 0; n < f->node_count; n++) {
            uint8_t state = f->node[n].state;
            bool serves = st->takes[n] || state == BAL_CORDONED;
            capacity += serves ? f->node[n].capacity[r] : 0;
            load += serves || state == BAL_DRAINING ? st->load[bal_cell(n, r)] : 0;
        }
        st->plan->mean[r] = capacity == 0 ? 0 : bal_clamp128((load << 32) / capacity);
    }
}

static void set_shares(struct bal_state *st)
{
    const struct bal_fleet *f = st->f;
    uint64_t smallest[BAL_RESOURCES] = {0};
    bal_q32 *means = mem_zalloc(BAL_GROUPS_MAX * BAL_RESOURCES * sizeof *means);
    bal_groups_level(st, means);
    for (uint16_t n = 0; n < f->node_count; n++) {
        for (unsigned r = 0; r < BAL_RESOURCES; r++) {
            size_t i = bal_cell(n, r);
            uint64_t capacity = f->node[n].capacity[r];
            bal_q32 mean = bal_max(means[bal_cell(st->groups.of[n], r)], st->s->floor[r]);
            st->share[i] = bal_max(1, bal_scale(capacity, mean));
            st->top[i] = bal_more(st->share[i], bal_scale(st->share[i], st->s->low));
            st->inverse[i] = bal_inverse(st->share[i]);
            st->cap[i] = bal_scale(capacity, st->s->capacity_cap);
            if (st->takes[n] && (smallest[r] == 0 || capacity < smallest[r])) {
                smallest[r] = capacity;
            }
        }
        st->level[n] = bal_level(st, n);
    }
    mem_free(means);
    for (unsigned r = 0; r < BAL_RESOURCES; r++) {
        bal_q32 mean = bal_max(st->plan->mean[r], st->s->floor[r] / 2);
        bool counts = r != BAL_BYTES && r != BAL_QUEUE && bal_uses(st, r);
        st->split_at[r] =
            counts ? bal_max(1, bal_scale(bal_scale(smallest[r], mean), st->s->split_share)) : 0;
    }
}

void bal_state_open(struct bal_state *st)
{
    const struct bal_fleet *f = st->f;
    size_t nodes = f->node_count + 1, cells = nodes * BAL_RESOURCES;
    st->load = mem_dup(f->node_load, cells * sizeof *st->load);
    st->share = mem_zalloc(cells * sizeof *st->share);
    st->top = mem_zalloc(cells * sizeof *st->top);
    st->stuck = mem_zalloc(cells * sizeof *st->stuck);
    st->inverse = mem_zalloc(cells * sizeof *st->inverse);
    st->cap = mem_zalloc(cells * sizeof *st->cap);
    st->bytes = mem_alloc(nodes * sizeof *st->bytes);
    st->queued = mem_zalloc(nodes * sizeof *st->queued);
    st->level = mem_zalloc(nodes * sizeof *st->level);
    st->takes = mem_zalloc(nodes);
    st->transfers = mem_zalloc(nodes * sizeof *st->transfers);
    bal_bars_open(st);
    st->at = mem_alloc(((size_t)f->copy_count + 1) * sizeof *st->at);
    memcpy(st->at, f->copy_node, f->copy_count * sizeof *st->at);
    for (uint32_t c = 0; f->moving_count > 0 && c < f->copy_count; c++) {
        st->at[c] = bal_copy_at(f, c);
        if (f->copy_to[c] != BAL_NO_NODE) {
            st->queued[f->copy_to[c]] += bal_copy_load(f, c, BAL_BYTES);
        }
    }
    for (uint16_t n = 0; n < f->node_count; n++) {
        st->bytes[n] = st->load[bal_cell(n, BAL_BYTES)] + f->node_leaving[n];
        st->takes[n] = may_take(st, n);
        st->eligible += st->takes[n];
    }
    bal_groups_open(st);
    bal_spots_open(st);
    measure_means(st);
    set_shares(st);
    bal_find_stuck(st);
    bal_budget_open(st);
    bal_coldest_open(st);
}

void bal_state_close(struct bal_state *st)
{
    bal_coldest_close(st);
    bal_groups_close(st);
    mem_free(st->load);
    mem_free(st->share);
    mem_free(st->top);
    mem_free(st->stuck);
    mem_free(st->inverse);
    mem_free(st->cap);
    mem_free(st->bytes);
    mem_free(st->queued);
    mem_free(st->level);
    mem_free(st->takes);
    mem_free(st->spot);
    mem_free(st->transfers);
    mem_free(st->bar);
    mem_free(st->at);
    mem_free(st->in);
    mem_free(st->out);
    mem_free(st->rack);
    mem_free(st->zone);
    mem_free(st->device);
}

bal_q32 bal_level(const struct bal_state *st, uint16_t node)
{
    bal_q32 level = 0;
    for (unsigned r = 0; r < BAL_RESOURCES; r++) {
        if (bal_uses(st, r)) {
            size_t i = bal_cell(node, r);
            level = bal_max(level, bal_by_inverse(st->load[i], st->inverse[i]));
        }
    }
    return level;
}

bal_q32 bal_level_with(const struct bal_state *st, uint16_t node, const uint64_t *vector, bool add)
{
    bal_q32 level = 0;
    for (unsigned r = 0; r < BAL_RESOURCES; r++) {
        if (bal_uses(st, r)) {
            size_t i = bal_cell(node, r);
            uint64_t load =
                add ? bal_more(st->load[i], vector[r]) : bal_less(st->load[i], vector[r]);
            level = bal_max(level, bal_by_inverse(load, st->inverse[i]));
        }
    }
    return level;
}

bal_q32 bal_level_of(const struct bal_state *st, uint16_t node, unsigned resource)
{
    size_t i = bal_cell(node, resource);
    return bal_by_inverse(st->load[i], st->inverse[i]);
}

uint64_t bal_relieved(const struct bal_state *st, uint16_t node, unsigned resource)
{
    size_t i = bal_cell(node, resource);
    uint64_t stuck = st->stuck[i];
    return bal_max(st->top[i], bal_more(stuck, bal_scale(stuck, st->s->low)));
}

uint64_t bal_over(const struct bal_state *st, uint16_t node, unsigned resource)
{
    size_t i = bal_cell(node, resource);
    bool full = st->stuck[i] > st->share[i];
    uint64_t least = full ? st->stuck[i] : st->share[i];
    return bal_more(least, bal_scale(least, full ? st->high : st->plan->high));
}

unsigned bal_dominant_of(const struct bal_state *st, uint16_t node, uint32_t mask)
{
    unsigned which = BAL_RESOURCES;
    bal_q32 highest = 0;
    for (unsigned r = 0; r < BAL_RESOURCES; r++) {
        bool asked = (mask >> r & 1) != 0 && bal_uses(st, r);
        bal_q32 level = asked ? bal_level_of(st, node, r) : 0;
        if (level > highest) {
            highest = level;
            which = r;
        }
    }
    return which;
}

unsigned bal_dominant(const struct bal_state *st, uint16_t node)
{
    unsigned which = bal_dominant_of(st, node, UINT32_MAX);
    return which == BAL_RESOURCES ? 0 : which;
}

void bal_copy_vector(const struct bal_state *st, uint32_t copy, uint64_t vector[BAL_RESOURCES])
{
    for (unsigned r = 0; r < BAL_RESOURCES; r++) {
        vector[r] = bal_copy_load(st->f, copy, r);
    }
}

uint64_t bal_copy_time(const struct bal_state *st, uint64_t bytes)
{
    return st->s->move_fixed_ms + bytes * 1000 / st->s->copy_bytes_per_s;
}

void bal_shift(struct bal_state *st, uint16_t from, uint16_t to, const uint64_t *vector)
{
    for (unsigned r = 0; r < BAL_RESOURCES; r++) {
        uint64_t *source = &st->load[bal_cell(from, r)];
        ASSERT(*source >= vector[r]);
        *source -= vector[r];
        st->load[bal_cell(to, r)] += vector[r];
    }
    st->level[from] = bal_level(st, from);
    st->level[to] = bal_level(st, to);
}

void bal_relocate(struct bal_state *st, const struct bal_step *step)
{
    bal_shift(st, step->from, step->to, step->vector);
    st->bytes[step->to] += step->vector[BAL_BYTES];
    st->queued[step->to] += step->vector[BAL_BYTES];
    st->at[step->copy] = step->to;
    bal_take(st, step->partition);
}

struct bal_proposal *bal_propose(struct bal_state *st, const struct bal_proposal *p)
{
    struct bal_plan *plan = st->plan;
    if (plan->proposal_count == BAL_PROPOSALS_MAX) {
        plan->rejected[BAL_REASON_ROUND_LIMIT]++;
        return NULL;
    }
    if (plan->proposal_count == plan->proposal_room) {
        plan->proposal_room = plan->proposal_room == 0 ? 64 : plan->proposal_room * 2;
        plan->proposal = mem_realloc(plan->proposal, plan->proposal_room * sizeof *plan->proposal);
    }
    struct bal_proposal *made = &plan->proposal[plan->proposal_count++];
    *made = *p;
    made->expires_ms = st->now + st->s->expiry_ms;
    return made;
}

void bal_reject(struct bal_state *st, uint32_t partition, uint16_t node, enum bal_reason reason)
{
    struct bal_plan *plan = st->plan;
    plan->rejected[reason]++;
    if (plan->rejection_count < BAL_REJECTIONS_MAX) {
        plan->rejection[plan->rejection_count++] = (struct bal_rejection){
            partition == BAL_NO_PARTITION ? 0 : st->f->id[partition],
            node == BAL_NO_NODE ? 0 : st->f->node_id[node],
            (uint8_t)reason,
        };
    }
}
