/* SPDX-License-Identifier: Apache-2.0 */
/* Hot nodes give to cold ones: the hottest first, of it the copies that relieve most for the time
 * their copying takes, until it is at the low mark or nothing more is worth it. */
#include "balancer/internal.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum {
    SWAPS_MAX = 4,   /* off one node in a round */
    WEIGHED_MAX = 16 /* candidates that have a place, for one step: the best of these is taken */
};

/* A copy that may leave the node. Kept together, because each look at a partition's columns is one
 * at memory that was not looked at before. */
struct unit {
    uint32_t copy, partition;
    uint64_t time_ms;
    uint64_t vector[BAL_RESOURCES];
};

struct candidate {
    uint64_t key; /* at most what the step can score */
    uint32_t unit;
};

/* A heap of them, the greatest key first. */
struct candidates {
    struct candidate *heap;
    uint32_t count;
    bool gathered;
};

/* What is worked with at one source: a list for each resource, made when it is needed. */
struct source_work {
    struct unit *unit;
    uint32_t units;
    bool collected;
    struct candidates list[BAL_RESOURCES];
    struct candidate *seen;
};

/* Near the capacity or far above the mean, and not for what can't leave alone. */
static bool urgent(const struct bal_state *st, uint16_t node, unsigned r)
{
    size_t i = bal_cell(node, r);
    uint64_t capacity = st->f->node[node].capacity[r];
    bool far = bal_level_of(st, node, r) > st->s->urgent_level ||
               st->load[i] > bal_scale(capacity, st->s->urgent_utilisation);
    return far && (st->stuck[i] <= st->share[i] || st->load[i] > bal_over(st, node, r));
}

uint32_t bal_to_relieve(const struct bal_state *st, uint16_t node, uint32_t class_of)
{
    uint32_t mask = 0;
    for (unsigned r = 0; r < BAL_RESOURCES; r++) {
        if (!bal_uses(st, r) || st->load[bal_cell(node, r)] <= bal_relieved(st, node, r)) {
            continue;
        }
        bool now = urgent(st, node, r);
        bool later = (st->m->node[node].relieving >> r & 1) != 0;
        mask |= (class_of == DIR_CLASS_HOT ? now : later && !now) ? 1U << r : 0;
    }
    return mask;
}

enum bal_reason bal_source(const struct bal_state *st, uint16_t node)
{
    const struct bal_node_memory *m = &st->m->node[node];
    uint8_t state = st->f->node[node].state;
    if (state != BAL_ELIGIBLE && state != BAL_CORDONED) {
        return BAL_REASON_NODE_STATE;
    }
    if (bal_to_relieve(st, node, DIR_CLASS_HOT) != 0) {
        return BAL_REASON_NONE;
    }
    if (bal_to_relieve(st, node, DIR_CLASS_BALANCE) == 0) {
        bool over = false;
        for (unsigned r = 0; r < BAL_RESOURCES; r++) {
            over |= m->over_ms[r] != 0 && st->load[bal_cell(node, r)] > bal_relieved(st, node, r);
        }
        return over ? BAL_REASON_NOT_SUSTAINED : BAL_REASON_NOT_OVERLOADED;
    }
    bool cooling = m->gained_ms != 0 && st->now - m->gained_ms < st->s->role_cooldown_ms;
    return cooling ? BAL_REASON_ROLE_COOLDOWN : BAL_REASON_NONE;
}

/* Of a copy that may move: is it large enough, and not one hot key? */
static enum bal_reason
worthwhile(const struct bal_state *st, uint32_t p, uint64_t load, uint64_t share)
{
    if (load == 0 || load < bal_scale(share, st->s->piece_min)) {
        return BAL_REASON_TOO_SMALL;
    }
    bool pinned = load > bal_scale(share, st->s->pin_share) && (st->f->flags[p] & BAL_ONE_KEY) != 0;
    return pinned ? BAL_REASON_UNSPLITTABLE : BAL_REASON_NONE;
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
        bar = BAL_REASON_NONE;
    }
    if (bar != BAL_REASON_NONE) {
        return bar;
    }
    if (f->lost_count > 0 && (f->copy_flags[bal_held_copy(f, h)] & BAL_COPY_LOST) != 0) {
        return BAL_REASON_STALE;
    }
    return resource == BAL_RESOURCES ? BAL_REASON_NONE
                                     : worthwhile(st, p, bal_held_load(f, h, resource),
                                                  st->share[bal_cell(node, resource)]);
}

enum bal_reason
bal_movable(const struct bal_state *st, uint32_t copy, unsigned resource, bool urgent)
{
    uint32_t p = st->f->copy_partition[copy];
    struct bal_held h = {p & (BAL_NO_PARTITION >> 3), (copy - bal_primary(st->f, p)) & 7};
    return bal_movable_held(st, &h, st->at[copy], resource, urgent);
}

void bal_step_of(const struct bal_state *st,
                 uint32_t copy,
                 unsigned resource,
                 uint32_t class_of,
                 struct bal_step *ret)
{
    size_t i = bal_cell(st->at[copy], resource);
    *ret = (struct bal_step){.partition = st->f->copy_partition[copy],
                             .copy = copy,
                             .from = st->at[copy],
                             .to = BAL_NO_NODE,
                             .resource = (uint8_t)resource,
                             .class_of = class_of,
                             .excess =
                                 bal_less(st->load[i], bal_relieved(st, st->at[copy], resource))};
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

enum { AHEAD = 12 }; /* copies: so long before they are looked at their loads are asked for */

/* Not small: whether a copy is worth a move depends on the resource. */
static void
collect(const struct bal_state *st, uint16_t node, uint32_t class_of, struct source_work *w)
{
    const struct bal_fleet *f = st->f;
    uint32_t end = f->held_begin[node + 1];
    w->units = 0;
    for (uint32_t i = f->held_begin[node]; i < end; i++) {
        const struct bal_held *h = &f->held[i];
        if (i + AHEAD < end) {
            __builtin_prefetch(&f->place[h[AHEAD].partition]);
            __builtin_prefetch(&st->bar[h[AHEAD].partition]);
            __builtin_prefetch(&f->load[(size_t)h[AHEAD].partition * BAL_RESOURCES]);
            __builtin_prefetch(&f->load[(size_t)h[AHEAD].partition * BAL_RESOURCES + 4]);
        }
        enum bal_reason reason =
            bal_movable_held(st, h, node, BAL_RESOURCES, class_of == DIR_CLASS_HOT);
        if (reason != BAL_REASON_NONE) {
            st->plan->rejected[reason]++;
            continue;
        }
        struct unit *u = &w->unit[w->units++];
        u->copy = bal_held_copy(f, h);
        u->partition = h->partition;
        for (unsigned r = 0; r < BAL_RESOURCES; r++) {
            u->vector[r] = bal_held_load(f, h, r);
        }
        u->time_ms = bal_copy_time(st, u->vector[BAL_BYTES]);
    }
}

static void gather(const struct bal_state *st,
                   uint16_t node,
                   unsigned resource,
                   const struct source_work *w,
                   struct candidates *c)
{
    uint64_t share = st->share[bal_cell(node, resource)];
    c->count = 0;
    c->gathered = true;
    for (uint32_t i = 0; i < w->units; i++) {
        const struct unit *u = &w->unit[i];
        enum bal_reason reason = worthwhile(st, u->partition, u->vector[resource], share);
        if (reason == BAL_REASON_NONE) {
            c->heap[c->count++] = (struct candidate){(u->vector[resource] << 20) / u->time_ms, i};
        } else {
            st->plan->rejected[reason]++;
        }
    }
    for (uint32_t i = c->count / 2; i-- > 0;) {
        sift_down(c, i);
    }
}

bool bal_returns(const struct bal_state *st, const struct bal_step *step, uint16_t node)
{
    uint32_t p = step->partition;
    return step->copy == bal_primary(st->f, p) && st->f->place[p].previous == node &&
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
        if (bal_returns(st, step, step->to)) {
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
    uint32_t p = step->partition;
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
    bal_relocate(st, step);
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
    uint64_t tie = bal_tie(st->s->seed, f->id[step->partition], f->node_id[step->to]);
    if (!best->found || v->score > best->verdict.score ||
        (v->score == best->verdict.score && tie < best->tie)) {
        *best = (struct choice){*step, *v, tie, seen_at, true};
    }
}

static void step_of(const struct bal_state *st,
                    const struct unit *u,
                    const struct bal_step *like,
                    struct bal_step *ret)
{
    size_t i = bal_cell(like->from, like->resource);
    *ret = *like;
    ret->partition = u->partition;
    ret->copy = u->copy;
    ret->excess = bal_less(st->load[i], bal_relieved(st, like->from, like->resource));
    memcpy(ret->vector, u->vector, sizeof ret->vector);
    ret->bytes = u->vector[BAL_BYTES];
    ret->time_ms = u->time_ms;
}

/* What the next candidate will be asked about is fetched while this one is weighed. */
static void fetch_next(const struct bal_state *st, const struct source_work *w, unsigned resource)
{
    const struct candidates *c = &w->list[resource];
    if (c->count == 0) {
        return;
    }
    const struct unit *u = &w->unit[c->heap[0].unit];
    __builtin_prefetch(&st->at[u->copy]);
    __builtin_prefetch(&st->f->place[u->partition]);
    __builtin_prefetch(&st->f->id[u->partition]);
    __builtin_prefetch(&st->f->version[u->partition]);
}

/* The best step off a node. Those without a place are dropped: during a round places only fill. */
static bool choose(struct bal_state *st,
                   struct source_work *w,
                   const struct bal_step *like,
                   struct choice *best)
{
    struct candidates *c = &w->list[like->resource];
    uint32_t seen_count = 0, failed = 0;
    best->found = false;
    while (c->count > 0 && failed < st->s->probes_failed_max && seen_count < WEIGHED_MAX &&
           (!best->found || c->heap[0].key >= best->verdict.score)) {
        struct candidate one = pop(c);
        const struct unit *u = &w->unit[one.unit];
        struct bal_step step;
        fetch_next(st, w, like->resource);
        if (bal_partition_free(st, u->partition) != BAL_REASON_NONE) {
            continue; /* went for the sake of another resource */
        }
        step_of(st, u, like, &step);
        struct bal_verdict v = place(st, &step);
        if (v.reason != BAL_REASON_NONE) {
            failed++;
            bal_reject(st, u->partition, BAL_NO_NODE, v.reason);
            continue;
        }
        failed = 0;
        consider(st, &step, &v, seen_count, best);
        w->seen[seen_count++] = one;
    }
    for (uint32_t i = 0; i < seen_count; i++) {
        if (!best->found || i != best->seen_at) {
            push(c, w->seen[i]);
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

static void prepare(const struct bal_state *st, const struct bal_step *like, struct source_work *w)
{
    if (!w->collected) {
        collect(st, like->from, like->class_of, w);
        w->collected = true;
    }
    if (!w->list[like->resource].gathered) {
        gather(st, like->from, like->resource, w, &w->list[like->resource]);
    }
}

/* Of those in the mask and above the mark the one that weighs most at present. */
static unsigned next_resource(const struct bal_state *st, uint16_t node, uint32_t mask)
{
    uint32_t above = 0;
    for (unsigned r = 0; r < BAL_RESOURCES; r++) {
        above |= st->load[bal_cell(node, r)] > bal_relieved(st, node, r) ? 1U << r : 0;
    }
    return bal_dominant_of(st, node, mask & above);
}

/* One of which nothing more can leave holds up none of the others. */
static void
relieve_node(struct bal_state *st, uint16_t node, uint32_t class_of, struct source_work *w)
{
    unsigned swaps = 0, resource;
    uint32_t mask = bal_to_relieve(st, node, class_of);
    w->collected = false;
    for (unsigned r = 0; r < BAL_RESOURCES; r++) {
        w->list[r].gathered = false;
        if ((mask >> r & 1) != 0) {
            bal_transfer_roles(st, node, r, class_of);
        }
    }
    while ((resource = next_resource(st, node, mask)) != BAL_RESOURCES) {
        struct bal_step like = {.from = node, .resource = (uint8_t)resource, .class_of = class_of};
        struct choice best;
        enum bal_reason reason = exhausted(st, node, class_of);
        if (reason != BAL_REASON_NONE) {
            bal_reject(st, BAL_NO_PARTITION, node, reason);
            return;
        }
        prepare(st, &like, w);
        if (choose(st, w, &like, &best)) {
            bal_emit(st, &best.step, &best.verdict,
                     class_of == DIR_CLASS_HOT ? BAL_REASON_HOT_NODE_URGENT : BAL_REASON_HOT_NODE);
        } else if (swaps == SWAPS_MAX || !bal_swap_one(st, node, resource, class_of)) {
            bal_reject(st, BAL_NO_PARTITION, node, BAL_REASON_NO_CANDIDATE);
            mask &= ~(1U << resource);
        } else {
            swaps++;
        }
    }
}

static void work_open(struct source_work *w, uint32_t most)
{
    *w = (struct source_work){.unit = mem_alloc(most * sizeof *w->unit),
                              .seen = mem_alloc(most * sizeof *w->seen)};
    for (unsigned r = 0; r < BAL_RESOURCES; r++) {
        w->list[r].heap = mem_alloc(most * sizeof *w->list[r].heap);
    }
}

static void work_close(struct source_work *w)
{
    for (unsigned r = 0; r < BAL_RESOURCES; r++) {
        mem_free(w->list[r].heap);
    }
    mem_free(w->seen);
    mem_free(w->unit);
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
        if (bal_source(st, n) == BAL_REASON_NONE && bal_to_relieve(st, n, class_of) != 0) {
            sources[count++] =
                (struct source){st->level[n], bal_tie(st->s->seed, 0, f->node_id[n]), n};
            most = (uint32_t)bal_max(most, f->held_begin[n + 1] - f->held_begin[n]);
        }
    }
    if (count == 0) {
        return;
    }
    qsort(sources, count, sizeof *sources, by_level);
    struct source_work w;
    work_open(&w, most);
    bal_coldest_fill(st, class_of);
    for (uint32_t i = 0; i < count; i++) {
        relieve_node(st, sources[i].node, class_of, &w);
    }
    work_close(&w);
}

void bal_relieve(struct bal_state *st)
{
    struct source *sources = mem_alloc((st->f->node_count + 1) * sizeof *sources);
    relieve_class(st, sources, DIR_CLASS_HOT);
    relieve_class(st, sources, DIR_CLASS_BALANCE);
    mem_free(sources);
}
