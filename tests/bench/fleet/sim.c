/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/fleet/sim.h"

#include "base/assert.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const sim_balancer_name[SIM_BALANCERS] = {"none", "naive", "slicer", "ours"};

double sim_uniform(struct sim *s)
{
    return (double)(tap_rand(&s->random) >> 11) / 9007199254740992.0;
}

double sim_gauss(struct sim *s)
{
    double u = sim_uniform(s) + 1e-300, v = sim_uniform(s);
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

double sim_part_load(const struct sim *s, const struct sim_part *p)
{
    return s->prefix[p->high] - s->prefix[p->low];
}

double sim_part_mib(const struct sim *s, const struct sim_part *p)
{
    return (double)(p->high - p->low) / s->c.keys * SIM_NODE_MIB * s->c.nodes * SIM_FILLED;
}

double sim_capacity(const struct sim *s)
{
    double sum = 0;
    for (int n = 0; n < s->c.nodes; n++) {
        sum += s->node[n].alive ? s->node[n].capacity : 0;
    }
    return sum;
}

int sim_alive(const struct sim *s)
{
    int count = 0;
    for (int n = 0; n < s->c.nodes; n++) {
        count += s->node[n].alive;
    }
    return count;
}

static int new_part(struct sim *s)
{
    int p = s->free_part;
    if (p >= 0) {
        s->free_part = s->part[p].next;
    } else {
        p = s->parts++;
        ASSERT(p < SIM_PARTS_MAX);
    }
    s->part[p] = (struct sim_part){.live = true,
                                   .to = -1,
                                   .previous = -1,
                                   .id = s->next_id++,
                                   .moved_at = SIM_NEVER,
                                   .split_at = SIM_NEVER,
                                   .merged_at = SIM_NEVER};
    s->live++;
    return p;
}

int sim_split(struct sim *s, int part, int key)
{
    struct sim_part *a = &s->part[part];
    if (a->to >= 0 || key <= a->low || key >= a->high || s->live >= SIM_PARTS_MAX - 8) {
        return -1;
    }
    double left = s->prefix[key] - s->prefix[a->low], right = s->prefix[a->high] - s->prefix[key];
    double share = left + right > 0 ? left / (left + right) : 0.5;
    if (share > 0 && share < 1) { /* known from samples only */
        share = fmin(1, fmax(0, share + 0.03 * sim_gauss(s)));
    }
    int q = new_part(s);
    struct sim_part *b = &s->part[q];
    uint64_t id = b->id;
    *b = *a;
    b->id = id;
    a->id = s->next_id++;
    b->low = a->high = key;
    a->high = key;
    b->slow = a->slow * (1 - share);
    b->fast = a->fast * (1 - share);
    b->window = a->window * (1 - share);
    a->slow *= share;
    a->fast *= share;
    a->window *= share;
    a->split_at = b->split_at = s->now;
    b->before = part;
    if (b->next >= 0) {
        s->part[b->next].before = q;
    }
    a->next = q;
    s->stats.splits++;
    return q;
}

void sim_merge_next(struct sim *s, int part)
{
    struct sim_part *a = &s->part[part];
    int q = a->next;
    struct sim_part *b = &s->part[q];
    a->high = b->high;
    a->slow += b->slow;
    a->fast += b->fast;
    a->window += b->window;
    a->next = b->next;
    if (b->next >= 0) {
        s->part[b->next].before = part;
    }
    a->id = s->next_id++;
    a->one_key = false;
    a->merged_at = s->now;
    a->moved_at = fmax(a->moved_at, b->moved_at);
    b->live = false;
    b->next = s->free_part;
    s->free_part = q;
    s->live--;
    s->stats.merges++;
}

static int by_int(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;
    return x < y ? -1 : x > y;
}

struct sim_sample sim_sample(struct sim *s, int part, int draws)
{
    const struct sim_part *p = &s->part[part];
    double begin = s->prefix[p->low], end = s->prefix[p->high];
    int *keys = mem_alloc((size_t)draws * sizeof *keys);
    for (int i = 0; i < draws; i++) {
        double x = begin + sim_uniform(s) * (end - begin);
        int low = p->low, high = p->high - 1;
        while (low < high) {
            int middle = (low + high) / 2;
            if (s->prefix[middle + 1] > x) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        keys[i] = low;
    }
    qsort(keys, (size_t)draws, sizeof *keys, by_int);
    struct sim_sample found = {.boundary = -1, .top = keys[0]};
    int longest = 0, nearest = draws + 1;
    for (int i = 1, run = 1; i <= draws; i++, run++) {
        if (i < draws && keys[i] == keys[i - 1]) {
            continue;
        }
        if (run > longest) {
            longest = run;
            found.top = keys[i - 1];
        }
        run = 0;
        if (i < draws && abs(2 * i - draws) < nearest) {
            nearest = abs(2 * i - draws);
            found.boundary = keys[i];
            found.left = (double)i / draws;
        }
    }
    found.top_share = (double)longest / draws;
    mem_free(keys);
    return found;
}

void sim_move(struct sim *s, int part, int to, enum sim_move_kind kind, uint32_t class_of)
{
    struct sim_part *p = &s->part[part];
    if (p->to >= 0 || p->owner == to || s->moves == SIM_PARTS_MAX) {
        return;
    }
    p->to = to;
    s->move[s->moves++] =
        (struct sim_move){part, p->owner, to, sim_part_mib(s, p) + 4, kind, class_of, false, false};
}

void sim_recover_in_turn(struct sim *s)
{
    int turn = 0;
    for (int p = s->first; p >= 0; p = s->part[p].next) {
        if (s->node[s->part[p].owner].alive || s->part[p].to >= 0) {
            continue;
        }
        do {
            turn++;
        } while (!s->node[turn % s->c.nodes].alive);
        sim_move(s, p, turn % s->c.nodes, SIM_RECOVERY, 0);
    }
}

static void begin_moves(struct sim *s, enum sim_move_kind kind)
{
    for (int i = 0; i < s->moves; i++) {
        struct sim_move *m = &s->move[i];
        struct sim_node *from = &s->node[m->from], *to = &s->node[m->to];
        if (m->begun || m->kind != kind || to->in >= SIM_LINKS ||
            (from->alive && from->out >= SIM_LINKS)) {
            continue;
        }
        m->begun = true;
        m->from_source = from->alive;
        to->in++;
        from->out += from->alive;
    }
}

static void arrive(struct sim *s, const struct sim_move *m)
{
    struct sim_part *p = &s->part[m->part];
    struct sim_stats *st = &s->stats;
    s->node[m->to].in--;
    s->node[m->from].out -= m->from_source;
    if (m->kind == SIM_RECOVERY) {
        st->recoveries++;
    } else {
        st->moves++;
        st->gib += sim_part_mib(s, p) / 1024;
        st->late_moves += s->now >= s->c.hours * 1800;
        st->bounces += s->now - p->moved_at < SIM_RESIDENCE_S;
        st->returns += p->previous == m->to && s->now - p->moved_at < 7200;
    }
    p->previous = p->owner;
    p->owner = m->to;
    p->to = -1;
    p->moved_at = s->now;
}

static void carry_out(struct sim *s)
{
    begin_moves(s, SIM_RECOVERY);
    begin_moves(s, SIM_ROUTINE);
    int kept = 0;
    for (int i = 0; i < s->moves; i++) {
        struct sim_move *m = &s->move[i];
        if (!s->node[m->to].alive) {
            if (m->begun && m->from_source && s->node[m->from].alive) {
                s->node[m->from].out--;
            }
            s->part[m->part].to = -1;
            continue;
        }
        if (m->from_source && !s->node[m->from].alive) {
            m->from_source = false;
        }
        m->left_mib -= m->begun ? SIM_MIB_PER_S * SIM_TICK_S : 0;
        if (m->begun && m->left_mib <= 0) {
            arrive(s, m);
        } else {
            s->move[kept++] = *m;
        }
    }
    s->moves = kept;
}

static double event_s(const struct sim *s, bool end)
{
    switch ((int)s->c.workload) {
    case SIM_NODELOSS:
        return end ? 4 * 3600 : 2 * 3600;
    case SIM_ZONELOSS:
        return end ? 6 * 3600 : 2 * 3600;
    case SIM_SCALEOUT:
        return end ? -1 : 2 * 3600;
    default:
        return -1;
    }
}

static bool struck(const struct sim *s, int n)
{
    return s->c.workload == SIM_NODELOSS ? n == 3 : s->node[n].zone == 1;
}

static void events(struct sim *s)
{
    bool joins = s->c.workload == SIM_SCALEOUT;
    if (s->now == event_s(s, false)) {
        s->event_at = s->now;
    }
    for (int n = 0; n < s->c.nodes; n++) {
        struct sim_node *node = &s->node[n];
        bool down = s->now == event_s(s, false) && !joins && struck(s, n);
        bool up = !node->alive && s->now == event_s(s, !joins);
        if (down || up) {
            double capacity = node->capacity;
            int zone = node->zone;
            *node = (struct sim_node){
                .alive = up, .capacity = capacity, .zone = zone, .since = s->now, .joined = s->now};
        }
    }
}

/* Requests of this tick, the averages, and what the balance of the moment is. */
static double measure(struct sim *s)
{
    static const double half_lives[] = {120, 30};
    double slow = 1 - pow(0.5, SIM_TICK_S / half_lives[0]);
    double fast = 1 - pow(0.5, SIM_TICK_S / half_lives[1]);
    double window = 1 - exp(-SIM_TICK_S / 300.0), kept = exp(-SIM_TICK_S / 60.0);
    double sigma = s->c.sigma, served = 0, most = 0;
    for (int n = 0; n < s->c.nodes; n++) {
        s->node[n].load = 0;
    }
    for (int i = s->first; i >= 0; i = s->part[i].next) {
        struct sim_part *p = &s->part[i];
        p->noise = p->noise * kept + sqrt(1 - kept * kept) * sigma * sim_gauss(s);
        double load = sim_part_load(s, p) * exp(p->noise - 0.5 * sigma * sigma);
        if (s->node[p->owner].alive) {
            s->node[p->owner].load += load;
            served += load;
            p->slow += slow * (load - p->slow);
            p->fast += fast * (load - p->fast);
            p->window += window * (load - p->window);
        }
    }
    for (int n = 0; n < s->c.nodes; n++) {
        struct sim_node *node = &s->node[n];
        double all = node->load + SIM_COPY_LOAD * node->capacity * (node->in + node->out);
        if (node->alive) {
            node->measured += fast * (all * (1 + 0.02 * sim_gauss(s)) - node->measured);
            s->stats.overload_s += all / node->capacity > 0.9 ? SIM_TICK_S : 0;
            most = fmax(most, node->load / node->capacity);
        }
    }
    return most / (served / sim_capacity(s));
}

static int lost_parts(const struct sim *s)
{
    int count = 0;
    for (int p = s->first; p >= 0; p = s->part[p].next) {
        count += !s->node[s->part[p].owner].alive;
    }
    return count;
}

static void note(struct sim *s, double ratio)
{
    if (s->shift_open) {
        s->shift_since = ratio >= 1.2 ? -1 : s->shift_since < 0 ? s->now : s->shift_since;
        if (s->shift_since >= 0 && s->now - s->shift_since >= 60) {
            s->shift_open = 0;
            s->stats.restore_s[s->stats.restored++] = s->shift_since - s->shift_at;
        }
    }
    if (s->now >= 3600) {
        s->ratio[s->ratios++] = ratio;
    }
    if (s->now >= s->c.hours * 1800) {
        s->late_ratio[s->late_ratios++] = ratio;
    }
    if (s->event_at > 0 && s->stats.recovered_s < 0 && lost_parts(s) == 0) {
        s->stats.recovered_s = s->now - s->event_at;
    }
}

static void place_parts(struct sim *s)
{
    int count = s->c.per_node * s->c.nodes, last = -1;
    int owners = s->c.workload == SIM_SCALEOUT ? s->c.nodes * 9 / 10 : s->c.nodes;
    bool in_turn = s->c.workload == SIM_ZIPFORD || s->c.workload == SIM_HETERO;
    for (int i = 0; i < count; i++) {
        int p = new_part(s);
        s->part[p].low = (int)((long)i * s->c.keys / count);
        s->part[p].high = (int)((long)(i + 1) * s->c.keys / count);
        s->part[p].owner = in_turn ? i % owners : (int)tap_rand_below(&s->random, (uint64_t)owners);
        s->part[p].before = last;
        s->part[p].next = -1;
        if (last >= 0) {
            s->part[last].next = p;
        }
        last = p;
        double load = sim_part_load(s, &s->part[p]);
        s->part[p].slow = s->part[p].fast = s->part[p].window = load;
    }
}

static void open_sim(struct sim *s, const struct sim_config *c)
{
    size_t keys = (size_t)c->keys + 1, ticks = (size_t)(c->hours * 3600 / SIM_TICK_S) + 1;
    *s = (struct sim){.c = *c, .random.state = c->seed * 1234567, .free_part = -1, .next_id = 1};
    s->stats.recovered_s = -1;
    s->node = mem_zalloc((size_t)c->nodes * sizeof *s->node);
    s->part = mem_zalloc(SIM_PARTS_MAX * sizeof *s->part);
    s->move = mem_zalloc(SIM_PARTS_MAX * sizeof *s->move);
    s->key = mem_zalloc(keys * sizeof *s->key);
    s->key_base = mem_zalloc(keys * sizeof *s->key_base);
    s->prefix = mem_zalloc(keys * sizeof *s->prefix);
    s->ratio = mem_zalloc(ticks * sizeof *s->ratio);
    s->late_ratio = mem_zalloc(ticks * sizeof *s->late_ratio);
    for (int n = 0; n < c->nodes; n++) {
        int kind = n % 10;
        double capacity = c->workload != SIM_HETERO ? 1 : kind < 5 ? 0.5 : kind < 8 ? 1 : 2.5;
        bool later = c->workload == SIM_SCALEOUT && n >= c->nodes * 9 / 10;
        s->node[n] =
            (struct sim_node){.alive = !later, .capacity = capacity, .zone = n % SIM_ZONES};
    }
    sim_workload_init(s);
    place_parts(s);
}

static void close_sim(struct sim *s)
{
    sim_ours_close(s);
    mem_free(s->node);
    mem_free(s->part);
    mem_free(s->move);
    mem_free(s->key);
    mem_free(s->key_base);
    mem_free(s->prefix);
    mem_free(s->ratio);
    mem_free(s->late_ratio);
}

static int by_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double quantile(double *values, long count, double q)
{
    qsort(values, (size_t)count, sizeof *values, by_double);
    return count == 0 ? 0 : values[(long)(q * (double)(count - 1))];
}

/* No placement can be better than the heaviest key on the largest node. */
static double lower_bound(const struct sim *s)
{
    double key = 0, capacity = 0;
    for (int k = 0; k < s->c.keys; k++) {
        key = fmax(key, s->key[k]);
    }
    for (int n = 0; n < s->c.nodes; n++) {
        capacity = fmax(capacity, s->node[n].capacity);
    }
    return fmax(1, key / capacity / (s->total / sim_capacity(s)));
}

static void balance(struct sim *s)
{
    static const struct {
        void (*run)(struct sim *);
        long every_s;
    } balancers[SIM_BALANCERS] = {[SIM_NAIVE] = {sim_naive, 60},
                                  [SIM_SLICER] = {sim_slicer, 300},
                                  [SIM_OURS] = {sim_ours, 30}};
    long every = balancers[s->c.balancer].every_s;
    if (every != 0 && (long)s->now % every == 0) {
        balancers[s->c.balancer].run(s);
    }
}

void sim_run(const struct sim_config *c, struct sim_stats *ret)
{
    struct sim s;
    open_sim(&s, c);
    long ticks = (long)(c->hours * 3600 / SIM_TICK_S);
    for (long t = 0; t < ticks; t++) {
        s.now = (double)(t * SIM_TICK_S);
        events(&s);
        sim_workload_tick(&s);
        note(&s, measure(&s));
        carry_out(&s);
        balance(&s);
    }
    s.stats.bound = lower_bound(&s);
    s.stats.median = quantile(s.ratio, s.ratios, 0.5);
    s.stats.p99 = quantile(s.ratio, s.ratios, 0.99);
    s.stats.late_median = quantile(s.late_ratio, s.late_ratios, 0.5);
    s.stats.shifts = s.shift;
    close_sim(&s);
    *ret = s.stats;
}
