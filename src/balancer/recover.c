/* SPDX-License-Identifier: Apache-2.0 */
/* Lost copies first: those with fewest live ones left, then by load. A destination is chosen by
 * what it will bear and by how many bytes already wait for it, so that one loss is spread over all.
 * Beyond what may run at once recoveries queue: the order is theirs, the admission the directory's.
 */
#include "balancer/internal.h"

#include "base/mem.h"

#include <stdlib.h>

struct lost {
    uint64_t load, tie;
    uint32_t copy, partition; /* copy BAL_NO_PARTITION: one that is missing */
    uint32_t live;
};

static bool dead(const struct bal_state *st, uint32_t copy)
{
    const struct bal_fleet *f = st->f;
    return (f->copy_flags[copy] & BAL_COPY_LOST) != 0 || f->node[st->at[copy]].state == BAL_DEAD;
}

static int by_need(const void *a, const void *b)
{
    const struct lost *x = a, *y = b;
    if (x->live != y->live) {
        return x->live < y->live ? -1 : 1;
    }
    if (x->load != y->load) {
        return x->load > y->load ? -1 : 1;
    }
    return x->tie < y->tie ? -1 : x->tie > y->tie;
}

/* The partition's first lost or missing copy, and how many live. */
static bool find_lost(const struct bal_state *st, uint32_t p, struct lost *ret)
{
    const struct bal_fleet *f = st->f;
    uint32_t live = 0, lost = BAL_NO_PARTITION, end = f->place[p + 1].copy_begin;
    for (uint32_t c = f->place[p].copy_begin; c < end; c++) {
        if (!dead(st, c)) {
            live++;
        } else if (lost == BAL_NO_PARTITION) {
            lost = c;
        }
    }
    if (lost == BAL_NO_PARTITION && end - f->place[p].copy_begin >= f->place[p].wanted) {
        return false;
    }
    uint64_t load = 0;
    for (unsigned r = 0; r < BAL_RESOURCES; r++) {
        load = bal_max(load, r == BAL_BYTES ? 0 : f->load[(size_t)p * BAL_RESOURCES + r]);
    }
    *ret = (struct lost){load, bal_tie(st->s->seed, f->id[p], 0), lost, p, live};
    return true;
}

/* The live copy on the node with the fewest copies going out. */
static uint16_t copy_source(const struct bal_state *st, uint32_t p)
{
    const struct bal_fleet *f = st->f;
    uint16_t best = BAL_NO_NODE;
    for (uint32_t c = f->place[p].copy_begin; c < f->place[p + 1].copy_begin; c++) {
        uint16_t n = st->at[c];
        if (!dead(st, c) && f->node[n].state != BAL_UNKNOWN &&
            (best == BAL_NO_NODE || st->out[n].all < st->out[best].all)) {
            best = n;
        }
    }
    return best;
}

/* Level and queue after, in one figure: the smaller the better. */
static uint64_t
burden(const struct bal_state *st, uint16_t n, const uint64_t *vector, uint64_t mean_queue)
{
    bal_q32 queue = bal_ratio(st->queued[n] + vector[BAL_BYTES], mean_queue);
    return bal_more(bal_level_with(st, n, vector, true), bal_more(queue, queue / 2));
}

static uint16_t choose(const struct bal_state *st, const struct bal_step *step, uint64_t mean_queue)
{
    const struct bal_fleet *f = st->f;
    uint16_t best = BAL_NO_NODE;
    uint64_t least = 0, least_tie = 0;
    for (uint16_t n = 0; n < f->node_count; n++) {
        if (!st->takes[n] || (step->copy != BAL_NO_PARTITION && st->at[step->copy] == n)) {
            continue;
        }
        uint64_t b = burden(st, n, step->vector, mean_queue);
        if (best != BAL_NO_NODE && b > least) {
            continue;
        }
        uint64_t tie = bal_tie(st->s->seed, f->id[step->partition], f->node_id[n]);
        if ((best == BAL_NO_NODE || b < least || tie < least_tie) &&
            bal_may_join(st, step, n) == BAL_REASON_NONE) {
            best = n;
            least = b;
            least_tie = tie;
        }
    }
    return best;
}

static void load_onto(struct bal_state *st, uint16_t to, const uint64_t *vector)
{
    for (unsigned r = 0; r < BAL_RESOURCES; r++) {
        st->load[bal_cell(to, r)] += vector[r];
    }
    st->level[to] = bal_level(st, to);
    st->bytes[to] += vector[BAL_BYTES];
    st->queued[to] += vector[BAL_BYTES];
}

static void replace(struct bal_state *st, const struct lost *l, uint64_t mean_queue)
{
    static const struct {
        uint32_t class_of;
        uint8_t reason;
    } by_live[] = {{DIR_CLASS_UNAVAILABLE, BAL_REASON_UNAVAILABLE},
                   {DIR_CLASS_LAST_COPY, BAL_REASON_LAST_COPY},
                   {DIR_CLASS_UNDER_REPLICATED, BAL_REASON_UNDER_REPLICATED}};
    const struct bal_fleet *f = st->f;
    uint32_t p = l->partition;
    bool missing = l->copy == BAL_NO_PARTITION;
    if (l->live == 0 && (f->flags[p] & BAL_REBUILDABLE) == 0) {
        bal_reject(st, p, BAL_NO_NODE, BAL_REASON_NO_LIVE_COPY);
        return;
    }
    struct bal_step step = {.partition = p, .copy = l->copy};
    const uint64_t *vector = step.vector;
    bal_copy_vector(st, missing ? f->place[p + 1].copy_begin - 1 : l->copy, step.vector);
    uint16_t to = choose(st, &step, mean_queue);
    if (to == BAL_NO_NODE) {
        bal_reject(st, p, BAL_NO_NODE, BAL_REASON_NO_DESTINATION);
        return;
    }
    uint16_t from = l->live == 0 ? BAL_NO_NODE : copy_source(st, p);
    unsigned which = (unsigned)bal_min(l->live, 2);
    struct bal_proposal made = {
        .class_of = by_live[which].class_of,
        .kind = BAL_ADD_COPY,
        .reason = by_live[which].reason,
        .partition = f->id[p],
        .version = f->version[p],
        .from = from == BAL_NO_NODE ? 0 : f->node_id[from],
        .to = f->node_id[to],
        .from_level = from == BAL_NO_NODE ? 0 : st->level[from],
        .to_level = st->level[to],
        .load = l->load,
        .bytes = vector[BAL_BYTES],
        .time_ms = bal_copy_time(st, vector[BAL_BYTES]),
    };
    made.queued = bal_budget(st, from, to, made.class_of) != BAL_REASON_NONE;
    if (!made.queued) {
        bal_budget_take(st, from, to, made.class_of);
    }
    if (!missing) {
        st->at[l->copy] = to;
    }
    load_onto(st, to, vector);
    bal_take(st, p);
    made.to_after = st->level[to];
    made.from_after = made.from_level;
    st->plan->recovery_waiting++;
    (void)bal_propose(st, &made);
}

static bool under_way(const struct bal_state *st)
{
    const struct bal_fleet *f = st->f;
    uint32_t search = f->busy_count > 0 ? f->partition_count : 0;
    for (uint32_t p = 0; p < search; p++) {
        if ((f->flags[p] & BAL_BUSY) != 0 && f->place[p].operation >= DIR_CLASS_UNDER_REPLICATED) {
            return true;
        }
    }
    return false;
}

static bool any_lost(const struct bal_state *st)
{
    bool lost = st->f->lost_count > 0;
    for (uint16_t n = 0; n < st->f->node_count && !lost; n++) {
        lost = st->f->node[n].state == BAL_DEAD;
    }
    return lost;
}

void bal_recover(struct bal_state *st)
{
    const struct bal_fleet *f = st->f;
    struct lost *lost = NULL, one;
    uint32_t count = 0, room = 0;
    uint64_t bytes = 0;
    uint32_t search = any_lost(st) ? f->partition_count : 0;
    for (uint32_t p = 0; p < search; p++) {
        if (f->place[p].copy_begin == f->place[p + 1].copy_begin ||
            bal_partition_free(st, p) != BAL_REASON_NONE || !find_lost(st, p, &one)) {
            continue;
        }
        if (count == room) {
            room = room == 0 ? 64 : room * 2;
            lost = mem_realloc(lost, room * sizeof *lost);
        }
        lost[count++] = one;
        bytes += f->load[(size_t)p * BAL_RESOURCES + BAL_BYTES];
    }
    for (uint16_t n = 0; n < f->node_count; n++) {
        bytes += st->queued[n];
    }
    if (count > 0) {
        qsort(lost, count, sizeof *lost, by_need);
    }
    uint64_t mean_queue = bytes / bal_max(st->eligible, 1) + 1;
    for (uint32_t i = 0; i < count; i++) {
        if (i >= st->s->recoveries_per_round) {
            bal_reject(st, lost[i].partition, BAL_NO_NODE, BAL_REASON_ROUND_LIMIT);
        } else {
            replace(st, &lost[i], mean_queue);
        }
    }
    mem_free(lost);
    if (st->plan->recovery_waiting > 0 || under_way(st)) {
        st->m->recovery_ms = st->now;
        st->plan->recovering = true;
    } else {
        st->plan->recovering =
            st->m->recovery_ms != 0 && st->now - st->m->recovery_ms < st->s->recovery_hold_ms;
    }
}

/* A copy that has to leave where it is. */
static void evacuate(struct bal_state *st, uint32_t copy, enum bal_reason why, uint32_t class_of)
{
    const struct bal_fleet *f = st->f;
    uint32_t p = f->copy_partition[copy];
    struct bal_step step = {.partition = p, .copy = copy, .from = st->at[copy]};
    const uint64_t *vector = step.vector;
    bal_copy_vector(st, copy, step.vector);
    uint64_t queue = 1;
    for (uint16_t n = 0; n < f->node_count; n++) {
        queue += st->queued[n];
    }
    uint16_t from = step.from;
    uint16_t to = step.to =
        choose(st, &step, queue / bal_max(st->eligible, 1) + vector[BAL_BYTES] + 1);
    if (to == BAL_NO_NODE) {
        bal_reject(st, p, from, BAL_REASON_NO_DESTINATION);
        return;
    }
    enum bal_reason reason = bal_budget(st, from, to, class_of);
    if (reason != BAL_REASON_NONE) {
        bal_reject(st, p, to, reason);
        return;
    }
    struct bal_proposal made = {
        .class_of = class_of,
        .kind = copy == bal_primary(f, p) ? BAL_MOVE : BAL_MOVE_COPY,
        .reason = (uint8_t)why,
        .partition = f->id[p],
        .version = f->version[p],
        .from = f->node_id[from],
        .to = f->node_id[to],
        .from_level = st->level[from],
        .to_level = st->level[to],
        .bytes = vector[BAL_BYTES],
        .time_ms = bal_copy_time(st, vector[BAL_BYTES]),
    };
    bal_relocate(st, &step);
    made.from_after = st->level[from];
    made.to_after = st->level[to];
    bal_budget_take(st, from, to, class_of);
    (void)bal_propose(st, &made);
}

/* All that lies on one node, of which only a few may leave at once: the rest is not asked. */
static void evacuate_node(struct bal_state *st, uint16_t node)
{
    const struct bal_fleet *f = st->f;
    uint32_t failed = 0;
    for (uint32_t i = f->held_begin[node]; i < f->held_begin[node + 1]; i++) {
        uint32_t copy = bal_held_copy(f, &f->held[i]), before = st->plan->proposal_count;
        if (st->at[copy] != node || (f->copy_flags[copy] & BAL_COPY_LOST) != 0 ||
            bal_partition_free(st, f->copy_partition[copy]) != BAL_REASON_NONE) {
            continue;
        }
        evacuate(st, copy, BAL_REASON_DRAIN, DIR_CLASS_DRAIN);
        failed = st->plan->proposal_count == before ? failed + 1 : 0;
        if (failed >= st->s->probes_failed_max) {
            return;
        }
    }
}

void bal_evacuate(struct bal_state *st)
{
    const struct bal_fleet *f = st->f;
    for (uint32_t i = 0; i < f->odd_count; i++) {
        uint32_t p = f->odd[i];
        if (bal_partition_free(st, p) != BAL_REASON_NONE) {
            continue;
        }
        for (uint32_t c = f->place[p].copy_begin;
             c < f->place[p + 1].copy_begin && st->bar[p] != BAL_REASON_PLANNED; c++) {
            if (!dead(st, c) && bal_placed(st, c) != BAL_REASON_NONE) {
                evacuate(st, c, BAL_REASON_MISPLACED, DIR_CLASS_CONSTRAINT);
            }
        }
    }
    for (uint16_t n = 0; n < f->node_count; n++) {
        if (f->node[n].state == BAL_DRAINING) {
            evacuate_node(st, n);
        }
    }
}
