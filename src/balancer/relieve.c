/* SPDX-License-Identifier: Apache-2.0 */
/* Hot nodes give to cold ones: the hottest first, of it the copies that relieve most for the time
 * their copying takes, until it is at the low mark or nothing more is worth it. */
#include "balancer/internal.h"

#include "base/mem.h"

#include <stdlib.h>

enum { SWAPS_MAX = 4 }; /* off one node in a round */

struct candidate {
    uint64_t key; /* at most what the step can score */
    uint32_t copy;
};

/* A heap of them, the greatest key first. */
struct candidates {
    struct candidate *heap;
    uint32_t count;
    bool gathered;
};

bool bal_urgent(const struct bal_state *st, uint16_t node)
{
    if (st->level[node] > st->s->urgent_level) {
        return true;
    }
    for (unsigned r = 0; r < BAL_RESOURCES; r++) {
        uint64_t capacity = st->f->node[node].capacity[r];
        if (bal_uses(st, r) &&
            st->load[bal_cell(node, r)] > bal_scale(capacity, st->s->urgent_utilisation)) {
            return true;
        }
    }
    return false;
}

enum bal_reason bal_source(const struct bal_state *st, uint16_t node)
{
    const struct bal_node_memory *m = &st->m->node[node];
    uint8_t state = st->f->node[node].state;
    if (state != BAL_ELIGIBLE && state != BAL_CORDONED) {
        return BAL_REASON_NODE_STATE;
    }
    if (st->level[node] <= BAL_ONE + st->s->low) {
        return BAL_REASON_NOT_OVERLOADED;
    }
    if (bal_urgent(st, node)) {
        return BAL_REASON_NONE;
    }
    if (!m->relieving) {
        return m->over_ms == 0 ? BAL_REASON_NOT_OVERLOADED : BAL_REASON_NOT_SUSTAINED;
    }
    bool cooling = m->gained_ms != 0 && st->now - m->gained_ms < st->s->role_cooldown_ms;
    return cooling ? BAL_REASON_ROLE_COOLDOWN : BAL_REASON_NONE;
}

enum bal_reason bal_movable_held(const struct bal_state *st,
                                 const struct bal_held *h,
                                 uint16_t node,
                                 unsigned resource,
                                 bool urgent)
{
    const struct bal_fleet *f = st->f;
    uint32_t p = h->partition;
    enum bal_reason bar = st->bar[p];
    if (bar == BAL_REASON_RESIDENCE && urgent &&
        bal_less(st->now, f->moved_ms[p]) >= st->s->residence_urgent_ms) {
        bar = (f->flags[p] & BAL_ONE_KEY) != 0 ? BAL_REASON_UNSPLITTABLE : BAL_REASON_NONE;
    }
    uint64_t share = st->share[bal_cell(node, resource)];
    uint64_t load = bal_held_load(f, h, resource);
    if (bar == BAL_REASON_UNSPLITTABLE && load <= bal_scale(share, st->s->pin_share)) {
        bar = BAL_REASON_NONE;
    }
    if (bar != BAL_REASON_NONE) {
        return bar;
    }
    if (f->lost_count > 0 && (f->copy_flags[h->copy] & BAL_COPY_LOST) != 0) {
        return BAL_REASON_STALE;
    }
    return load == 0 || load < bal_scale(share, st->s->piece_min) ? BAL_REASON_TOO_SMALL
                                                                  : BAL_REASON_NONE;
}

enum bal_reason
bal_movable(const struct bal_state *st, uint32_t copy, unsigned resource, bool urgent)
{
    uint32_t p = st->f->copy_partition[copy];
    struct bal_held h = {copy, p & (UINT32_MAX >> 1), copy == bal_primary(st->f, p)};
    return bal_movable_held(st, &h, st->at[copy], resource, urgent);
}

void bal_step_of(const struct bal_state *st,
                 uint32_t copy,
                 unsigned resource,
                 uint32_t class_of,
                 struct bal_step *ret)
{
    size_t i = bal_cell(st->at[copy], resource);
    *ret = (struct bal_step){.copy = copy,
                             .from = st->at[copy],
                             .to = BAL_NO_NODE,
                             .resource = (uint8_t)resource,
                             .class_of = class_of,
                             .excess = bal_less(st->load[i], st->top[i])};
    bal_copy_vector(st, copy, ret->vector);
    ret->bytes = ret->vector[BAL_BYTES];
    ret->time_ms = bal_copy_time(st, ret->bytes);
}

static void sift_down(struct candidates *c, uint32_t i)
{
    for (;;) {
        uint32_t best = i, left = 2 * i + 1;
        for (uint32_t child = left; child < left + 2 && child < c->count; child++) {
            best = c->heap[child].key > c->heap[best].key ? child : best;
        }
        if (best == i) {
            return;
        }
        struct candidate moved = c->heap[i];
        c->heap[i] = c->heap[best];
        c->heap[best] = moved;
        i = best;
    }
}

static struct candidate pop(struct candidates *c)
{
    struct candidate first = c->heap[0];
    c->heap[0] = c->heap[--c->count];
    sift_down(c, 0);
    return first;
}

static void push(struct candidates *c, struct candidate one)
{
    uint32_t i = c->count++;
    for (; i > 0 && c->heap[(i - 1) / 2].key < one.key; i = (i - 1) / 2) {
        c->heap[i] = c->heap[(i - 1) / 2];
    }
    c->heap[i] = one;
}

static void
gather(const struct bal_state *st, uint16_t node, unsigned resource, struct candidates *c)
{
    const struct bal_fleet *f = st->f;
    bool urgent = bal_urgent(st, node);
    c->count = 0;
    c->gathered = true;
    for (uint32_t i = f->held_begin[node]; i < f->held_begin[node + 1]; i++) {
        const struct bal_held *h = &f->held[i];
        enum bal_reason reason = bal_movable_held(st, h, node, resource, urgent);
        if (reason == BAL_REASON_NONE) {
            uint64_t time = bal_copy_time(st, bal_held_load(f, h, BAL_BYTES));
            c->heap[c->count++] =
                (struct candidate){(bal_held_load(f, h, resource) << 20) / time, h->copy};
        } else {
            st->plan->rejected[reason]++;
        }
    }
    for (uint32_t i = c->count / 2; i-- > 0;) {
        sift_down(c, i);
    }
}

bool bal_returns(const struct bal_state *st, uint32_t copy, uint16_t node)
{
    uint32_t p = st->f->copy_partition[copy];
    return copy == bal_primary(st->f, p) && st->f->previous[p] == node &&
           bal_less(st->now, st->f->moved_ms[p]) < st->s->return_ms;
}

/* The best place for one copy; its reason says why there is none. */
static struct bal_verdict place(struct bal_state *st, struct bal_step *step)
{
    struct bal_verdict best = {.reason = BAL_REASON_NO_DESTINATION};
    uint16_t chosen = BAL_NO_NODE;
    struct bal_walk walk;
    bal_walk_begin(st, step, &walk);
    while (bal_walk_next(st, step, &walk, &step->to)) {
        if (bal_returns(st, step->copy, step->to)) {
            st->plan->rejected[BAL_REASON_RETURNING]++;
            continue;
        }
        struct bal_verdict v = bal_judge(st, step);
        if (v.reason != BAL_REASON_NONE) {
            best.reason = chosen == BAL_NO_NODE ? v.reason : best.reason;
            st->plan->rejected[v.reason]++;
        } else if (chosen == BAL_NO_NODE || v.score > best.score) {
            best = v;
            chosen = step->to;
        }
        if (v.reason == BAL_REASON_NONE && !v.lump) {
            break; /* colder ones were asked before */
        }
    }
    bal_walk_end(st, &walk);
    step->to = chosen;
    return best;
}

void bal_emit(struct bal_state *st,
              const struct bal_step *step,
              const struct bal_verdict *v,
              enum bal_reason reason)
{
    const struct bal_fleet *f = st->f;
    uint32_t p = f->copy_partition[step->copy];
    struct bal_proposal made = {
        .class_of = step->class_of,
        .kind = step->copy == bal_primary(f, p) ? BAL_MOVE : BAL_MOVE_COPY,
        .reason = (uint8_t)reason,
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
        .bytes = step->bytes,
        .time_ms = step->time_ms,
    };
    bal_relocate(st, step->copy, step->to);
    made.from_after = st->level[step->from];
    made.to_after = st->level[step->to];
    bal_budget_take(st, step->from, step->to, step->class_of);
    bal_tokens_take(st, step->class_of, 1);
    bal_coldest_update(st, step->from, step->class_of);
    bal_coldest_update(st, step->to, step->class_of);
    (void)bal_propose(st, &made);
}

struct choice {
    struct bal_step step;
    struct bal_verdict verdict;
    uint64_t tie;
    uint32_t seen_at;
    bool found;
};

static void consider(struct bal_state *st,
                     const struct bal_step *step,
                     const struct bal_verdict *v,
                     uint32_t seen_at,
                     struct choice *best)
{
    const struct bal_fleet *f = st->f;
    uint64_t tie = bal_tie(st->s->seed, f->id[f->copy_partition[step->copy]], f->node_id[step->to]);
    if (!best->found || v->score > best->verdict.score ||
        (v->score == best->verdict.score && tie < best->tie)) {
        *best = (struct choice){*step, *v, tie, seen_at, true};
    }
}

/* The best step off `node`. Those without a place are dropped: during a round places only fill. */
static bool choose(struct bal_state *st,
                   struct candidates *c,
                   struct candidate *seen,
                   struct bal_step *like,
                   struct choice *best)
{
    uint32_t seen_count = 0, failed = 0;
    best->found = false;
    while (c->count > 0 && failed < st->s->probes_failed_max &&
           (!best->found || c->heap[0].key >= best->verdict.score)) {
        struct candidate one = pop(c);
        struct bal_step step;
        if (bal_partition_free(st, st->f->copy_partition[one.copy]) != BAL_REASON_NONE) {
            continue; /* went for the sake of another resource */
        }
        bal_step_of(st, one.copy, like->resource, like->class_of, &step);
        struct bal_verdict v = place(st, &step);
        if (v.reason != BAL_REASON_NONE) {
            failed++;
            bal_reject(st, st->f->copy_partition[one.copy], BAL_NO_NODE, v.reason);
            continue;
        }
        failed = 0;
        consider(st, &step, &v, seen_count, best);
        seen[seen_count++] = one;
    }
    for (uint32_t i = 0; i < seen_count; i++) {
        if (!best->found || i != best->seen_at) {
            push(c, seen[i]);
        }
    }
    return best->found;
}

/* Nothing more can leave the node in this round, whatever it is. */
static enum bal_reason exhausted(const struct bal_state *st, uint16_t node, uint32_t class_of)
{
    enum bal_reason reason = bal_budget_source(st, node, class_of);
    return reason != BAL_REASON_NONE ? reason : bal_tokens(st, class_of, 1);
}

static void relieve_node(struct bal_state *st,
                         uint16_t node,
                         uint32_t class_of,
                         struct candidates *lists,
                         struct candidate *seen)
{
    unsigned swaps = 0;
    for (unsigned r = 0; r < BAL_RESOURCES; r++) {
        lists[r].gathered = false;
    }
    bal_transfer_roles(st, node, class_of);
    while (st->level[node] > BAL_ONE + st->s->low) {
        struct bal_step like = {.resource = (uint8_t)bal_dominant(st, node), .class_of = class_of};
        struct choice best;
        enum bal_reason reason = exhausted(st, node, class_of);
        if (reason != BAL_REASON_NONE) {
            bal_reject(st, BAL_NO_PARTITION, node, reason);
            return;
        }
        struct candidates *c = &lists[like.resource];
        if (!c->gathered) {
            gather(st, node, like.resource, c);
        }
        if (choose(st, c, seen, &like, &best)) {
            bal_emit(st, &best.step, &best.verdict,
                     class_of == DIR_CLASS_HOT ? BAL_REASON_HOT_NODE_URGENT : BAL_REASON_HOT_NODE);
        } else if (swaps++ == SWAPS_MAX || !bal_swap_one(st, node, class_of)) {
            bal_reject(st, BAL_NO_PARTITION, node, BAL_REASON_NO_CANDIDATE);
            return;
        }
    }
}

struct source {
    bal_q32 level;
    uint64_t tie;
    uint16_t node;
};

static int by_level(const void *a, const void *b)
{
    const struct source *x = a, *y = b;
    if (x->level != y->level) {
        return x->level > y->level ? -1 : 1;
    }
    return x->tie < y->tie ? -1 : x->tie > y->tie;
}

static void relieve_class(struct bal_state *st, struct source *sources, uint32_t class_of)
{
    const struct bal_fleet *f = st->f;
    uint32_t count = 0, most = 1;
    for (uint16_t n = 0; n < f->node_count; n++) {
        bool hot = bal_urgent(st, n);
        if (hot == (class_of == DIR_CLASS_HOT) && bal_source(st, n) == BAL_REASON_NONE) {
            sources[count++] =
                (struct source){st->level[n], bal_tie(st->s->seed, 0, f->node_id[n]), n};
            most = (uint32_t)bal_max(most, f->held_begin[n + 1] - f->held_begin[n]);
        }
    }
    if (count == 0) {
        return;
    }
    qsort(sources, count, sizeof *sources, by_level);
    struct candidates lists[BAL_RESOURCES];
    for (unsigned r = 0; r < BAL_RESOURCES; r++) {
        lists[r] = (struct candidates){mem_alloc(most * sizeof *lists[r].heap), 0, false};
    }
    struct candidate *seen = mem_alloc(most * sizeof *seen);
    bal_coldest_fill(st, class_of);
    for (uint32_t i = 0; i < count; i++) {
        relieve_node(st, sources[i].node, class_of, lists, seen);
    }
    mem_free(seen);
    for (unsigned r = 0; r < BAL_RESOURCES; r++) {
        mem_free(lists[r].heap);
    }
}

void bal_relieve(struct bal_state *st)
{
    struct source *sources = mem_alloc((st->f->node_count + 1) * sizeof *sources);
    relieve_class(st, sources, DIR_CLASS_HOT);
    relieve_class(st, sources, DIR_CLASS_BALANCE);
    mem_free(sources);
}
