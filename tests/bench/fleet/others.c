/* SPDX-License-Identifier: Apache-2.0 */
/* Two others to compare with: what one would write first, and Slicer's weighted move (Adya et al.,
 * OSDI 2016, section 4.4.1) with the paper's constants. The paper gives no split point; the middle
 * is taken. There is one copy of each key here, so copies are neither added nor dropped. */
#include "base/mem.h"
#include "tests/bench/fleet/sim.h"

#include <math.h>
#include <string.h>

/* Each minute every node above 1.05 of the mean sends its hottest partition to the coldest node. */
void sim_naive(struct sim *s)
{
    sim_recover_in_turn(s);
    double mean = 0;
    int cold = -1;
    for (int n = 0; n < s->c.nodes; n++) {
        if (s->node[n].alive) {
            mean += s->node[n].measured / sim_alive(s);
            cold = cold < 0 || s->node[n].measured < s->node[cold].measured ? n : cold;
        }
    }
    for (int n = 0; n < s->c.nodes; n++) {
        if (!s->node[n].alive || s->node[n].measured <= 1.05 * mean || n == cold) {
            continue;
        }
        int hottest = -1;
        for (int p = s->first; p >= 0; p = s->part[p].next) {
            if (s->part[p].owner == n && s->part[p].to < 0 &&
                (hottest < 0 || s->part[p].fast > s->part[hottest].fast)) {
                hottest = p;
            }
        }
        if (hottest >= 0) {
            sim_move(s, hottest, cold, SIM_ROUTINE, 0);
        }
    }
    for (int p = s->first, next; p >= 0; p = next) {
        struct sim_part *a = &s->part[p];
        next = a->next;
        if (a->fast > 0.2 * mean && a->high - a->low > 1 && s->now - a->split_at > 60) {
            (void)sim_split(s, p, (a->low + a->high) / 2);
        }
    }
}

static double span(const struct sim *s, int p)
{
    return (double)(s->part[p].high - s->part[p].low) / s->c.keys;
}

static int will_own(const struct sim *s, int p)
{
    return s->part[p].to >= 0 ? s->part[p].to : s->part[p].owner;
}

/* Cold neighbours, while there are more than 50 slices a task, at most 1 % of the keys moved. */
static void slicer_merge(struct sim *s, double *load, double total, double most)
{
    double moved = 0, mean = total / s->live;
    for (int p = s->first; p >= 0 && s->part[p].next >= 0;) {
        int q = s->part[p].next;
        struct sim_part *a = &s->part[p], *b = &s->part[q];
        if (s->live <= 50 * sim_alive(s) || moved > 0.01) {
            return;
        }
        if (a->to >= 0 || b->to >= 0 || !s->node[a->owner].alive || !s->node[b->owner].alive ||
            a->window + b->window >= mean) {
            p = q;
            continue;
        }
        if (a->owner == b->owner) {
            sim_merge_next(s, p);
            continue;
        }
        int stays = a->window >= b->window ? p : q, goes = stays == p ? q : p;
        int to = s->part[stays].owner;
        if (load[to] + s->part[goes].window <= most) {
            moved += span(s, goes);
            load[to] += s->part[goes].window;
            load[s->part[goes].owner] -= s->part[goes].window;
            sim_move(s, goes, to, SIM_ROUTINE, 0);
        }
        p = q;
    }
}

/* The move off the hottest task that lowers the imbalance most for the keys that it moves. */
static int slicer_best(const struct sim *s, const double *load, int hot, int cold, double budget)
{
    int best = -1;
    double best_weight = 0;
    for (int p = s->first; p >= 0; p = s->part[p].next) {
        double churn = span(s, p), window = s->part[p].window;
        if (s->part[p].to >= 0 || s->part[p].owner != hot || churn > budget) {
            continue;
        }
        double before = fmax(load[hot], load[cold]);
        double gain = before - fmax(load[hot] - window, load[cold] + window);
        if (gain > 1e-9 && gain / churn > best_weight) {
            best_weight = gain / churn;
            best = p;
        }
    }
    return best;
}

static void slicer_moves(struct sim *s, double *load)
{
    double budget = 0.09;
    for (int turn = 0; turn < 20000 && budget > 0; turn++) {
        int hot = -1, cold = -1;
        for (int n = 0; n < s->c.nodes; n++) {
            if (s->node[n].alive) {
                hot = hot < 0 || load[n] > load[hot] ? n : hot;
                cold = cold < 0 || load[n] < load[cold] ? n : cold;
            }
        }
        int best = slicer_best(s, load, hot, cold, budget);
        if (best < 0) {
            return;
        }
        budget -= span(s, best);
        load[hot] -= s->part[best].window;
        load[cold] += s->part[best].window;
        sim_move(s, best, cold, SIM_ROUTINE, 0);
    }
}

void sim_slicer(struct sim *s)
{
    sim_recover_in_turn(s);
    double *load = mem_zalloc((size_t)s->c.nodes * sizeof *load), total = 0, most = 0;
    for (int p = s->first; p >= 0; p = s->part[p].next) {
        load[will_own(s, p)] += s->part[p].window;
        total += s->part[p].window;
    }
    for (int n = 0; n < s->c.nodes; n++) {
        most = s->node[n].alive ? fmax(most, load[n]) : most;
    }
    slicer_merge(s, load, total, most);
    slicer_moves(s, load);
    double mean = total / s->live;
    for (int p = s->first, next; p >= 0 && s->live < 150 * sim_alive(s); p = next) {
        struct sim_part *a = &s->part[p];
        next = a->next;
        if (a->window >= 2 * mean && a->high - a->low > 1) {
            (void)sim_split(s, p, (a->low + a->high) / 2);
        }
    }
    mem_free(load);
}
