/* SPDX-License-Identifier: Apache-2.0 */
/* What a round learns before it plans: how noisy the nodes are, which have been over or under their
 * share for long enough, and what earlier moves delivered. */
#include "balancer/internal.h"

#include "base/mem.h"

#include <stdlib.h>

static bool serves(const struct bal_state *st, uint16_t n)
{
    uint8_t state = st->f->node[n].state;
    return state == BAL_ELIGIBLE || state == BAL_CORDONED;
}

/* value + gain * (target - value). */
static bal_q32 approach(bal_q32 value, bal_q32 target, bal_q32 gain)
{
    return target >= value ? value + bal_scale(target - value, gain)
                           : value - bal_scale(value - target, gain);
}

/* Second differences: a steady trend is no noise, however steep. A node that a move has touched
 * starts anew. A jump is an event, not noise either. */
static void sample_noise(struct bal_state *st)
{
    struct bal_memory *m = st->m;
    if (m->sigma_ms != 0 && bal_less(st->now, m->sigma_ms) < st->s->sigma_every_ms) {
        return;
    }
    m->sigma_ms = st->now;
    for (uint16_t n = 0; n < st->f->node_count; n++) {
        struct bal_node_memory *node = &m->node[n];
        bal_q32 x = st->level[n];
        if (node->touched || !serves(st, n)) {
            node->samples = 0;
        }
        if (node->samples >= 2) {
            uint64_t outer = bal_more(x, node->level2),
                     inner = bal_more(node->level1, node->level1);
            bal_q32 d = outer > inner ? outer - inner : inner - outer;
            if (d < BAL_PERCENT(80)) {
                node->variance = approach(node->variance, bal_scale(d, d) / 6, st->s->sigma_gain);
            }
        }
        node->level2 = node->level1;
        node->level1 = x;
        node->samples = node->samples < 2 ? (uint8_t)(node->samples + 1) : 2;
        node->touched = false;
    }
}

static int by_size(const void *a, const void *b)
{
    bal_q32 x = *(const bal_q32 *)a, y = *(const bal_q32 *)b;
    return x < y ? -1 : x > y;
}

/* What can't leave holds one node so far up that the highest falls by nothing that is done with the
 * others: among them only what noise may do at most is worth a move. */
static bool held_up(const struct bal_state *st)
{
    bool held = false;
    for (uint16_t n = 0; n < st->f->node_count && st->f->fixed_count > 0; n++) {
        for (unsigned r = 0; r < BAL_RESOURCES; r++) {
            size_t i = bal_cell(n, r);
            held |= serves(st, n) && bal_uses(st, r) &&
                    bal_by_inverse(st->stuck[i], st->inverse[i]) > BAL_ONE + st->s->band_max;
        }
    }
    return held;
}

static void set_band(struct bal_state *st)
{
    bal_q32 *sigmas = mem_alloc((st->f->node_count + 1) * sizeof *sigmas);
    uint32_t count = 0;
    for (uint16_t n = 0; n < st->f->node_count; n++) {
        if (serves(st, n)) {
            sigmas[count++] = bal_sqrt(st->m->node[n].variance);
        }
    }
    if (count > 0) {
        qsort(sigmas, count, sizeof *sigmas, by_size);
    }
    st->m->sigma = count == 0 ? 0 : sigmas[count / 2];
    mem_free(sigmas);
    bal_q32 wide = bal_more(st->s->low, bal_scale(st->m->sigma, st->s->band_sigmas));
    st->high = bal_min(bal_max(st->s->high, wide), st->s->band_max);
    st->held = held_up(st);
    st->m->high = st->held ? st->s->band_max : st->high;
    st->plan->high = st->m->high;
}

/* Each resource by itself: one that can't be evened out calls for nothing of the others. */
static void sustain_over(struct bal_state *st, uint16_t n, unsigned r)
{
    struct bal_node_memory *m = &st->m->node[n];
    size_t i = bal_cell(n, r);
    uint64_t load = serves(st, n) && bal_uses(st, r) ? st->load[i] : 0;
    uint8_t bit = (uint8_t)(1U << r);
    if (load > bal_over(st, n, r)) {
        m->over_ms[r] = m->over_ms[r] == 0 ? st->now : m->over_ms[r];
        m->relieving |= st->now - m->over_ms[r] >= st->s->sustain_ms ? bit : 0;
    } else {
        m->over_ms[r] = 0;
        bool stays = st->held ? st->stuck[i] > st->share[i] : true;
        m->relieving &= load < bal_relieved(st, n, r) || !stays ? (uint8_t)~bit : UINT8_MAX;
    }
}

static void sustain(struct bal_state *st)
{
    const struct bal_settings *s = st->s;
    for (uint16_t n = 0; n < st->f->node_count; n++) {
        struct bal_node_memory *m = &st->m->node[n];
        bal_q32 level = serves(st, n) ? st->level[n] : BAL_ONE;
        for (unsigned r = 0; r < BAL_RESOURCES; r++) {
            sustain_over(st, n, r);
        }
        bal_q32 under = st->held ? bal_max(s->under, s->band_max) : s->under;
        if (level < BAL_ONE - under && st->takes[n]) {
            m->under_ms = m->under_ms == 0 ? st->now : m->under_ms;
            m->filling |= st->now - m->under_ms >= s->sustain_ms;
        } else {
            m->under_ms = 0;
            m->filling &= level < BAL_ONE - s->low && st->takes[n] && !st->held;
        }
    }
}

/* What the source would bear above its mark had the partition stayed, and what left it later too.
 */
static uint64_t would_exceed(const struct bal_state *st,
                             const struct bal_past_move *past,
                             uint16_t source,
                             uint64_t load)
{
    const struct bal_memory *m = st->m;
    size_t i = bal_cell(source, past->resource);
    uint64_t bears = bal_more(st->load[i], load);
    uint32_t later = (uint32_t)bal_min(m->past_count, 64);
    for (uint32_t k = 0; k < later; k++) {
        const struct bal_past_move *other = &m->past[(m->past_first + k) % BAL_HISTORY_MAX];
        uint32_t p = other->source == past->source ? bal_fleet_partition(st->f, other->partition)
                                                   : BAL_NO_PARTITION;
        if (p != BAL_NO_PARTITION) {
            bears = bal_more(bears, st->f->load[(size_t)p * BAL_RESOURCES + past->resource]);
        }
    }
    return bal_less(bears, bal_relieved(st, source, past->resource));
}

static void measure_past(struct bal_state *st)
{
    struct bal_memory *m = st->m;
    while (m->past_count > 0) {
        struct bal_past_move past = m->past[m->past_first];
        if (bal_less(st->now, past.at_ms) < st->s->rho_after_ms) {
            break;
        }
        m->past_first = (m->past_first + 1) % BAL_HISTORY_MAX;
        m->past_count--;
        uint32_t p = bal_fleet_partition(st->f, past.partition);
        uint16_t source = bal_fleet_node(st->f, past.source);
        if (p == BAL_NO_PARTITION || source == BAL_NO_NODE || !serves(st, source)) {
            continue;
        }
        uint64_t load = st->f->load[(size_t)p * BAL_RESOURCES + past.resource];
        uint64_t real = bal_min(load, would_exceed(st, &past, source, load));
        bal_q32 kept = bal_min(bal_ratio(real, past.promised), BAL_PERCENT(120));
        m->rho = approach(m->rho, kept, st->s->rho_gain);
    }
    uint64_t healed = m->heal_ms == 0 ? 0 : bal_min(bal_less(st->now, m->heal_ms), 3600000);
    m->heal_ms = st->now;
    if (m->rho < BAL_ONE) {
        bal_q32 more = st->s->rho_heal_per_hour * healed / 3600000;
        m->rho = bal_min(BAL_ONE, m->rho + more);
    }
    st->rho = m->rho;
}

void bal_observe(struct bal_state *st)
{
    sample_noise(st);
    set_band(st);
    sustain(st);
    measure_past(st);
}
