/* SPDX-License-Identifier: Apache-2.0 */
/* What is seen of a run: load by node each tick, what moved, how long it took. */
#include "simulate/internal.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define HALF_LIFE_MS 120000.0
#define SETTLED_AT   1.2   /* max/mean below this, */
#define SETTLED_MS   60000 /* for so long */

/* --- moves --- */

static bool is_move(const struct dir_operation *was, const struct dir_operation *o)
{
    bool cut = was->stage == DIR_STAGE_CUTOVER &&
               (o->stage == DIR_STAGE_WINDOW || o->stage == DIR_STAGE_DONE);
    return o->moves_primary && cut;
}

static void count_move(struct fm *x, const struct dir_operation *o)
{
    struct fm_part *p = fm_part_of(x, o->partition);
    struct simulate_outcome *out = x->out;
    uint64_t now = fm_log_ms(x);
    bool routine = o->class_of < DIR_CLASS_DRAIN;
    if (p == NULL) {
        return;
    }
    uint64_t residence = o->class_of == DIR_CLASS_HOT ? x->s->planner.residence_urgent_ms
                                                      : x->s->planner.residence_ms;
    if (routine && p->moved_ms != 0) {
        out->bounces += now - p->moved_ms < FM_BOUNCE_MS;
        out->returns += p->previous == o->destination && now - p->moved_ms < FM_RETURN_MS;
        if (now - p->moved_ms < residence) {
            fm_violated(x, "partition %" PRIu64 " moved twice within its residence", p->id);
        }
    }
    p->previous = o->source;
    p->moved_ms = now;
    if (o->kind == DIR_OPERATION_TRANSFER) {
        out->transfers++;
    } else if (routine) {
        out->moves++;
        out->late_moves += x->now_ms >= x->s->duration_ms / 2;
        out->bytes += o->bytes_total;
        out->last_move_ms = x->now_ms;
    } else {
        out->recoveries++;
        out->recovery_bytes += o->bytes_total;
    }
}

void fm_moved(struct fm *x, const struct dir_operation *was, const struct dir_operation *o)
{
    struct simulate_outcome *out = x->out;
    bool failed = o->state == DIR_OPERATION_ABORTED || o->state == DIR_OPERATION_FAILED;
    out->failed += failed && was->state != o->state;
    if (is_move(was, o)) {
        count_move(x, o);
    } else if (was->stage == DIR_STAGE_VALIDATE && o->stage > DIR_STAGE_JOIN &&
               o->state != DIR_OPERATION_ABORTED) {
        bool routine = o->class_of < DIR_CLASS_DRAIN;
        out->copies += routine;
        out->recoveries += !routine;
        *(routine ? &out->bytes : &out->recovery_bytes) += o->bytes_total;
        out->last_move_ms = routine ? x->now_ms : out->last_move_ms;
    }
}

/* --- load --- */

static void add_load(struct fm *x, const struct fm_part *p, double load)
{
    for (uint8_t c = 0; c < p->copy_count; c++) {
        struct fm_node *n = &x->node[p->copy[c].node];
        bool first = c == 0 && p->owned;
        double share = first                                 ? 1
                       : p->copy[c].role == DIR_ROLE_JOINING ? 0
                                                             : (double)x->follower / BAL_ONE;
        if (n->up) {
            n->load += share * load;
            n->slow += share * p->slow;
        }
    }
}

static void measure_parts(struct fm *x)
{
    const struct scenario_load *l = &x->s->load;
    double tick = (double)x->s->tick_ms, kept = exp(-tick / (double)l->correlation_ms);
    double gain = 1 - pow(0.5, tick / HALF_LIFE_MS), sigma = l->sigma;
    for (uint32_t i = 0; i < x->part_count; i++) {
        struct fm_part *p = &x->part[i];
        double load = fm_part_load(x, p);
        if (sigma > 0) {
            p->noise = p->noise * kept + sqrt(1 - kept * kept) * sigma * fm_gauss(x);
            load *= exp(p->noise - 0.5 * sigma * sigma);
        }
        if (p->owned && x->node[p->copy[0].node].up) {
            p->slow = x->now_ms == 0 ? load : p->slow + gain * (load - p->slow);
            add_load(x, p, load);
        }
    }
}

static void count_copies(struct fm *x)
{
    for (uint32_t i = 0; i < x->open_count; i++) {
        const struct dir_operation *o = view_operation(fm_view(x), x->open[i].id);
        struct fm_node *s =
            o != NULL && o->stage == DIR_STAGE_COPY ? fm_node_of(x, o->source) : NULL;
        struct fm_node *d = s != NULL ? fm_node_of(x, o->destination) : NULL;
        if (s != NULL && d != NULL) {
            s->copying++;
            d->copying++;
        }
    }
}

static double measure_nodes(struct fm *x)
{
    double most = 0, all = 0, capacity = 0;
    for (uint32_t n = 0; n < x->node_count; n++) {
        const struct fm_node *node = &x->node[n];
        double of = node->group->capacity;
        if (!node->up || node->session == 0) {
            continue;
        }
        all += node->load;
        capacity += of;
        most = node->load / of > most ? node->load / of : most;
        if (node->load / of + FM_COPY_SHARE * node->copying > 0.9) {
            x->out->overload_s += (double)x->s->tick_ms / 1000;
        }
    }
    return all > 0 ? most / (all / capacity) : 0;
}

/* --- what takes time --- */

static uint32_t count_lacking(const struct fm *x)
{
    uint32_t lacking = 0;
    for (uint32_t i = 0; i < x->part_count; i++) {
        const struct fm_part *p = &x->part[i];
        uint32_t live = 0;
        for (uint8_t c = 0; c < p->copy_count; c++) {
            live += x->node[p->copy[c].node].up && p->copy[c].role != DIR_ROLE_JOINING;
        }
        bool served = p->owned && x->node[p->copy[0].node].up;
        lacking += !served || live < 1 + x->s->sync + x->s->async;
    }
    return lacking;
}

static bool is_drained(const struct fm *x)
{
    for (uint32_t n = 0; n < x->node_count; n++) {
        const struct dir_node *row = view_node_by_id(fm_view(x), x->node[n].id);
        if (row != NULL && row->scheduling == DIR_DRAINING && row->partition_count > 0) {
            return false;
        }
    }
    return true;
}

static void note_times(struct fm *x, double ratio)
{
    struct simulate_outcome *out = x->out;
    int64_t now = (int64_t)x->now_ms;
    if (x->lost_ms >= 0 && now > x->lost_ms && x->lacking == 0) {
        int64_t took = now - x->lost_ms;
        out->recovered_ms = took > out->recovered_ms ? took : out->recovered_ms;
        x->lost_ms = -1;
    }
    if (x->drain_ms >= 0 && is_drained(x)) {
        int64_t took = now - x->drain_ms;
        out->drained_ms = took > out->drained_ms ? took : out->drained_ms;
        x->drain_ms = -1;
    }
    if (x->unsettled_ms < 0) {
        return;
    }
    if (ratio >= SETTLED_AT) {
        x->settle_since_ms = 0;
    } else if (x->settle_since_ms == 0) {
        x->settle_since_ms = x->now_ms;
    } else if (x->now_ms - x->settle_since_ms >= SETTLED_MS) {
        int64_t took = (int64_t)x->settle_since_ms - x->unsettled_ms;
        out->settled_ms = took > out->settled_ms ? took : out->settled_ms;
        x->unsettled_ms = -1;
    }
}

void fm_measure(struct fm *x)
{
    for (uint32_t n = 0; n < x->node_count; n++) {
        x->node[n].load = x->node[n].slow = 0;
        x->node[n].copying = 0;
    }
    measure_parts(x);
    count_copies(x);
    x->lacking = count_lacking(x);
    double ratio = measure_nodes(x);
    struct simulate_sample *s = &x->out->samples[x->out->sample_count++];
    *s = (struct simulate_sample){.at_ms = x->now_ms,
                                  .ratio = ratio,
                                  .moves = (uint32_t)(x->out->moves + x->out->recoveries),
                                  .lacking = x->lacking};
    for (uint32_t n = 0; n < x->node_count; n++) {
        s->under_way += x->node[n].copying;
        x->node[n].before = x->now_ms == 0 ? x->node[n].slow : x->node[n].before;
    }
    s->under_way /= 2;
    if (x->now_ms >= x->s->warmup_ms) {
        x->ratios[x->ratio_count++] = ratio;
        x->out->worst = ratio > x->out->worst ? ratio : x->out->worst;
    }
    note_times(x, ratio);
}

/* --- at the end --- */

static int by_ratio(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double quantile(const double *sorted, uint32_t count, double q)
{
    return count == 0 ? 0 : sorted[(uint32_t)(q * (double)(count - 1))];
}

/* The mean of the last tenth. */
static double end_ratio(const struct simulate_outcome *o)
{
    uint32_t tenth = o->sample_count / 10 > 0 ? o->sample_count / 10 : 1;
    double sum = 0;
    for (uint32_t i = o->sample_count - tenth; i < o->sample_count; i++) {
        sum += o->samples[i].ratio;
    }
    return sum / tenth;
}

void fm_finish(struct fm *x)
{
    struct simulate_outcome *o = x->out;
    o->end = end_ratio(o);
    qsort(x->ratios, x->ratio_count, sizeof x->ratios[0], by_ratio);
    o->median = quantile(x->ratios, x->ratio_count, 0.5);
    o->p99 = quantile(x->ratios, x->ratio_count, 0.99);
    o->recovered_ms = x->lost_ms >= 0 ? -1 : o->recovered_ms;
    o->drained_ms = x->drain_ms >= 0 ? -1 : o->drained_ms;
    o->settled_ms = x->unsettled_ms >= 0 ? -1 : o->settled_ms;
    o->partitions = x->part_count;
    o->revision = fm_view(x)->revision;
    o->nodes = mem_zalloc(x->node_count * sizeof o->nodes[0]);
    o->node_count = x->node_count;
    for (uint32_t n = 0; n < x->node_count; n++) {
        const struct fm_node *from = &x->node[n];
        struct simulate_node *to = &o->nodes[n];
        memcpy(to->name, from->name, sizeof to->name);
        to->before = from->before / from->group->capacity;
        to->after = from->slow / from->group->capacity;
        to->partitions = from->held;
        to->serves = from->up;
    }
}
