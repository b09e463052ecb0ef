/* SPDX-License-Identifier: Apache-2.0 */
/* One pass over all partitions: which have been hot, which pairs cold, and since when. Only those
 * are remembered, in the order of ids, so that memory and fleet are walked together. */
#include "balancer/reshape.h"

#include "base/mem.h"

enum { COLD_MAX = 65536 }; /* pairs watched; far more than can merge while they are watched */

#define BIRTH_MS UINT64_C(1800000) /* how long a split is remembered for its children */

bal_q32 bal_heat(const struct bal_state *st, uint32_t p)
{
    const uint64_t *load = &st->f->load[(size_t)p * BAL_RESOURCES];
    bal_q32 heat = 0;
    for (unsigned r = 0; r < BAL_RESOURCES; r++) {
        if (st->split_at[r] != 0) {
            heat = bal_max(heat, bal_ratio(load[r], st->split_at[r]));
        }
    }
    return heat;
}

/* Above which a partition is hot, or too large. */
static void set_limits(const struct bal_state *st, uint64_t limit[BAL_RESOURCES])
{
    for (unsigned r = 0; r < BAL_RESOURCES; r++) {
        limit[r] = st->split_at[r] == 0 ? UINT64_MAX : st->split_at[r];
    }
    if (st->s->split_bytes != 0) {
        limit[BAL_BYTES] = bal_min(limit[BAL_BYTES], st->s->split_bytes);
    }
}

static inline bool is_hot(const uint64_t *load, const uint64_t limit[BAL_RESOURCES])
{
    _Static_assert(BAL_RESOURCES == 5, "as many as are asked");
    return (load[0] > limit[0]) | (load[1] > limit[1]) | (load[2] > limit[2]) |
           (load[3] > limit[3]) | (load[4] > limit[4]);
}

bool bal_cold_pair(const struct bal_state *st, uint32_t p)
{
    const struct bal_fleet *f = st->f;
    uint32_t q = f->next[p];
    if (q == BAL_NO_PARTITION) {
        return false;
    }
    const uint64_t *a = &f->load[(size_t)p * BAL_RESOURCES];
    const uint64_t *b = &f->load[(size_t)q * BAL_RESOURCES];
    for (unsigned r = 0; r < BAL_RESOURCES; r++) {
        if (st->split_at[r] != 0 && a[r] + b[r] >= st->split_at[r] / st->s->merge_fraction) {
            return false;
        }
    }
    return st->s->split_bytes == 0 || a[BAL_BYTES] + b[BAL_BYTES] <= st->s->split_bytes / 2;
}

struct pass {
    bool merges; /* are looked for */
    uint64_t limit[BAL_RESOURCES];
    struct bal_partition_memory *memory;
    uint32_t count, room;
    struct bal_hot *hot;
    uint32_t hot_count, hot_room;
    uint32_t *cold;
    uint32_t cold_count, cold_room;
    uint32_t cold_known; /* in memory; those that were there first stay */
};

static void keep(struct pass *w, const struct bal_partition_memory *m)
{
    if (w->count == w->room) {
        w->room = w->room == 0 ? 256 : w->room * 2;
        w->memory = mem_realloc(w->memory, w->room * sizeof *w->memory);
    }
    w->memory[w->count++] = *m;
}

static void note_hot(const struct bal_state *st, struct pass *w, uint32_t p)
{
    if (w->hot_count == w->hot_room) {
        w->hot_room = w->hot_room == 0 ? 64 : w->hot_room * 2;
        w->hot = mem_realloc(w->hot, w->hot_room * sizeof *w->hot);
    }
    w->hot[w->hot_count++] =
        (struct bal_hot){bal_heat(st, p), bal_tie(st->s->seed, st->f->id[p], 1), p, w->count};
}

static void note_cold(struct pass *w, uint32_t p)
{
    if (w->cold_count == w->cold_room) {
        w->cold_room = w->cold_room == 0 ? 64 : w->cold_room * 2;
        w->cold = mem_realloc(w->cold, w->cold_room * sizeof *w->cold);
    }
    w->cold[w->cold_count++] = p;
}

/* Watched pairs stay watched; new ones as long as there is room. */
static bool is_cold(const struct bal_state *st, const struct pass *w, uint32_t p, bool watched)
{
    const struct bal_fleet *f = st->f;
    uint32_t a = f->place[p].copy_begin, b = f->place[p + 1].copy_begin;
    /* Of most partitions the next one lies elsewhere: no more is asked. */
    if (f->next[p] == p + 1 && b - a > 1 && b < f->copy_count && st->at[a] != st->at[b]) {
        return false;
    }
    return (watched || w->cold_known < COLD_MAX) && bal_may_pair(st, p) && bal_cold_pair(st, p);
}

static uint64_t since(bool holds, uint64_t before_ms, uint64_t now_ms)
{
    return !holds ? 0 : before_ms != 0 ? before_ms : now_ms;
}

static void visit(const struct bal_state *st,
                  struct pass *w,
                  uint32_t p,
                  const struct bal_partition_memory *old)
{
    bool hot = is_hot(&st->f->load[(size_t)p * BAL_RESOURCES], w->limit);
    bool cold = w->merges && !hot && is_cold(st, w, p, old != NULL && old->cold_ms != 0);
    if (!hot && !cold && old == NULL) {
        return;
    }
    struct bal_partition_memory m =
        old != NULL ? *old : (struct bal_partition_memory){.partition = st->f->id[p]};
    bool born = m.sibling != 0 && bal_less(st->now, st->f->split_ms[p]) < BIRTH_MS;
    w->cold_known += cold;
    m.hot_ms = since(hot, m.hot_ms, st->now);
    m.cold_ms = since(cold, m.cold_ms, st->now);
    if (hot) {
        note_hot(st, w, p);
    }
    if (cold && bal_cold_enough(st, p, m.cold_ms)) {
        note_cold(w, p);
    }
    if (hot || cold || born) {
        keep(w, &m);
    }
}

void bal_reshape(struct bal_state *st, bool may_act)
{
    const struct bal_fleet *f = st->f;
    struct bal_memory *m = st->m;
    struct pass w = {.merges = bal_merges_wanted(st)};
    uint32_t at = 0;
    set_limits(st, w.limit);
    for (uint32_t p = 0; p < f->partition_count; p++) {
        while (at < m->partition_count && m->partition[at].partition < f->id[p]) {
            at++;
        }
        bool known = at < m->partition_count && m->partition[at].partition == f->id[p];
        visit(st, &w, p, known ? &m->partition[at] : NULL);
    }
    mem_free(m->partition);
    m->partition = w.memory;
    m->partition_count = w.count;
    if (may_act) {
        bal_split_hot(st, w.hot, w.hot_count);
        bal_merge_cold(st, w.cold, w.cold_count);
        bal_check_groups(st);
    }
    mem_free(w.hot);
    mem_free(w.cold);
}
