/* SPDX-License-Identifier: Apache-2.0 */
/* What a plan costs at 1 000 000 partitions of three copies on 1 000 nodes, five resources, racks
 * and zones, one core; judged against a plain loop over the same fleet, in floating point and
 * without rules beyond spread, in the same run: the work that no planner can do without. One line a
 * row:
 *
 *     name  measured (ms)  the plain loop (ms)  ratio
 *
 * Arguments: partitions, nodes. Exit 1 when a ratio is above 1.5. */
#include "balancer/plan.h"
#include "base/assert.h"
#include "base/mem.h"
#include "tests/harness/tap.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    COPIES = 3,
    ZONES = 3,
    RACKS = 100,
    D = BAL_RESOURCES,
    ROUNDS = 3,
    REPORTS = 100000,
    TRIES = 8
};
#define RATIO_MAX 1.5
#define UNIT      1e6

/* The input of both. */
struct input {
    uint32_t partitions, nodes;
    double *load; /* partition x resource */
    uint16_t *at; /* copy */
    double *capacity;
};

/* Of processor time: what else runs on the machine is nobody's cost here. */
static uint64_t cpu_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static double ms_since(uint64_t began)
{
    return (double)(cpu_ns() - began) / 1e6;
}

static double uniform(struct tap_rand *r)
{
    return (double)(tap_rand(r) >> 11) / 9007199254740992.0;
}

static uint32_t zone_of(uint32_t n)
{
    return n % ZONES;
}

static uint32_t rack_of(uint32_t n)
{
    return n % RACKS * ZONES + zone_of(n);
}

static double bears(unsigned r)
{
    static const double share[D] = {0.3, 0.1, 1, 1, 0.2};
    return share[r];
}

static void place(struct input *in, struct tap_rand *r, uint32_t p)
{
    uint16_t *at = &in->at[(size_t)p * COPIES];
    at[0] = (uint16_t)tap_rand_below(r, in->nodes);
    for (int k = 1; k < COPIES;) {
        uint32_t n = (uint32_t)tap_rand_below(r, in->nodes);
        n = tap_rand_below(r, 10) < 3 ? n / 4 : n; /* so that there is something to do */
        bool free = true;
        for (int i = 0; i < k; i++) {
            free &= zone_of(at[i]) != zone_of(n) && rack_of(at[i]) != rack_of(n);
        }
        at[k] = (uint16_t)n;
        k += free;
    }
}

static void make_input(struct input *in)
{
    struct tap_rand r = {42};
    double total[D] = {0};
    in->load = mem_alloc((size_t)in->partitions * D * sizeof *in->load);
    in->at = mem_alloc((size_t)in->partitions * COPIES * sizeof *in->at);
    in->capacity = mem_alloc((size_t)in->nodes * D * sizeof *in->capacity);
    for (uint32_t p = 0; p < in->partitions; p++) {
        double heat = pow(1 + (double)tap_rand_below(&r, in->partitions), -0.6);
        for (unsigned d = 0; d < D; d++) {
            double load = (d == BAL_BYTES ? 1 : heat * 1000) * (0.5 + uniform(&r)) * UNIT;
            in->load[(size_t)p * D + d] = floor(load);
            total[d] += load * (1 + (COPIES - 1) * bears(d));
        }
        place(in, &r, p);
    }
    for (uint32_t n = 0; n < in->nodes; n++) {
        for (unsigned d = 0; d < D; d++) {
            in->capacity[(size_t)n * D + d] =
                total[d] / in->nodes / 0.5 * (n % 5 == 0 ? 1.5 : 0.875);
        }
    }
}

/* --- the plain loop --- */

struct plain {
    const struct input *in;
    double *sum, *tree;
    uint16_t *at;
    uint32_t *begin, *held, base;
    double target;
    uint32_t moves;
};

static void plain_add(struct plain *x, uint32_t n, uint32_t copy, double sign)
{
    const double *load = &x->in->load[(size_t)(copy / COPIES) * D];
    for (unsigned d = 0; d < D; d++) {
        x->sum[n * D + d] += sign * load[d] * (copy % COPIES == 0 ? 1 : bears(d));
    }
}

static double plain_level(const struct plain *x, uint32_t n, const uint32_t *copy)
{
    double level = 0;
    for (unsigned d = 0; d < D; d++) {
        double load = x->sum[n * D + d];
        if (copy != NULL) {
            load += x->in->load[(size_t)(*copy / COPIES) * D + d] *
                    (*copy % COPIES == 0 ? 1 : bears(d));
        }
        level = fmax(level, load / x->in->capacity[n * D + d]);
    }
    return level;
}

static void plain_sums(struct plain *x)
{
    const struct input *in = x->in;
    uint32_t copies = in->partitions * COPIES;
    x->sum = mem_zalloc((size_t)in->nodes * D * sizeof *x->sum);
    x->at = mem_dup(in->at, copies * sizeof *x->at);
    x->begin = mem_zalloc((in->nodes + 1) * sizeof *x->begin);
    x->held = mem_alloc(copies * sizeof *x->held);
    for (uint32_t c = 0; c < copies; c++) {
        plain_add(x, x->at[c], c, 1);
        x->begin[x->at[c] + 1]++;
    }
    for (uint32_t n = 0; n < in->nodes; n++) {
        x->begin[n + 1] += x->begin[n];
    }
    uint32_t *fill = mem_dup(x->begin, in->nodes * sizeof *fill);
    for (uint32_t c = 0; c < copies; c++) {
        x->held[fill[x->at[c]]++] = c;
    }
    mem_free(fill);
}

static void plain_key(struct plain *x, uint32_t n, double key)
{
    double *tree = x->tree + (size_t)zone_of(n) * 2 * x->base;
    uint32_t i = n + x->base;
    tree[i] = key;
    for (i /= 2; i > 0; i /= 2) {
        tree[i] = fmin(tree[2 * i], tree[2 * i + 1]);
    }
}

static bool plain_free(const struct plain *x, uint32_t copy, uint32_t to)
{
    uint32_t first = copy / COPIES * COPIES;
    for (uint32_t c = first; c < first + COPIES; c++) {
        uint32_t n = x->at[c];
        if (n == to || (c != copy && (zone_of(n) == zone_of(to) || rack_of(n) == rack_of(to)))) {
            return false;
        }
    }
    return true;
}

/* To the coldest node of its zone that it fits, at most TRIES of them asked. */
static bool plain_move(struct plain *x, uint32_t from, uint32_t copy)
{
    uint32_t asked[TRIES];
    int count = 0;
    bool moved = false;
    double *tree = x->tree + (size_t)zone_of(from) * 2 * x->base;
    while (count < TRIES && !moved && tree[1] <= x->target) {
        uint32_t i = 1;
        while (i < x->base) {
            i = tree[2 * i] <= tree[2 * i + 1] ? 2 * i : 2 * i + 1;
        }
        uint32_t to = i - x->base;
        if (plain_free(x, copy, to) && plain_level(x, to, &copy) <= x->target) {
            plain_add(x, from, copy, -1);
            plain_add(x, to, copy, 1);
            x->at[copy] = (uint16_t)to;
            x->moves++;
            moved = true;
            plain_key(x, to, plain_level(x, to, NULL));
            plain_key(x, from, plain_level(x, from, NULL));
        } else {
            asked[count++] = to;
            plain_key(x, to, 1e17);
        }
    }
    for (int i = 0; i < count; i++) {
        plain_key(x, asked[i], plain_level(x, asked[i], NULL));
    }
    return moved;
}

struct scored {
    double score;
    uint32_t copy;
};

static int by_score(const void *a, const void *b)
{
    double x = ((const struct scored *)a)->score, y = ((const struct scored *)b)->score;
    return x > y ? -1 : x < y;
}

static void plain_relieve(struct plain *x, uint32_t from, uint32_t moves_max)
{
    const struct input *in = x->in;
    uint32_t count = x->begin[from + 1] - x->begin[from];
    struct scored *all = mem_alloc((count + 1) * sizeof *all);
    unsigned worst = 0;
    for (unsigned d = 1; d < D; d++) {
        if (x->sum[from * D + d] / in->capacity[from * D + d] >
            x->sum[from * D + worst] / in->capacity[from * D + worst]) {
            worst = d;
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t copy = x->held[x->begin[from] + i];
        const double *load = &in->load[(size_t)(copy / COPIES) * D];
        double mine = load[worst] * (copy % COPIES == 0 ? 1 : bears(worst));
        all[i] = (struct scored){mine / (UNIT + load[BAL_BYTES]), copy};
    }
    qsort(all, count, sizeof *all, by_score);
    for (uint32_t i = 0, failed = 0;
         i < count && failed < 64 && x->moves < moves_max && plain_level(x, from, NULL) > x->target;
         i++) {
        failed = plain_move(x, from, all[i].copy) ? 0 : failed + 1;
    }
    mem_free(all);
}

struct plain_source {
    double level;
    uint32_t node;
};

static int by_source(const void *a, const void *b)
{
    double x = ((const struct plain_source *)a)->level, y = ((const struct plain_source *)b)->level;
    return x > y ? -1 : x < y;
}

static void plain_plan(struct plain *x, uint32_t moves_max)
{
    const struct input *in = x->in;
    double mean = 0;
    for (unsigned d = 0; d < D; d++) {
        double load = 0, capacity = 0;
        for (uint32_t n = 0; n < in->nodes; n++) {
            load += x->sum[n * D + d];
            capacity += in->capacity[n * D + d];
        }
        mean = fmax(mean, load / capacity);
    }
    x->target = mean * 1.03;
    for (x->base = 1; x->base < in->nodes;) {
        x->base *= 2;
    }
    x->tree = mem_alloc((size_t)ZONES * 2 * x->base * sizeof *x->tree);
    for (size_t i = 0; i < (size_t)ZONES * 2 * x->base; i++) {
        x->tree[i] = 1e18;
    }
    struct plain_source *sources = mem_alloc(in->nodes * sizeof *sources);
    uint32_t count = 0;
    for (uint32_t n = 0; n < in->nodes; n++) {
        double level = plain_level(x, n, NULL);
        plain_key(x, n, level);
        if (level > mean * 1.1) {
            sources[count++] = (struct plain_source){level, n};
        }
    }
    qsort(sources, count, sizeof *sources, by_source);
    for (uint32_t i = 0; i < count && x->moves < moves_max; i++) {
        plain_relieve(x, sources[i].node, moves_max);
    }
    mem_free(sources);
}

static void plain_close(struct plain *x)
{
    mem_free(x->sum);
    mem_free(x->tree);
    mem_free(x->at);
    mem_free(x->begin);
    mem_free(x->held);
}

/* --- ours --- */

static void make_fleet(const struct input *in, struct bal_fleet *f)
{
    bal_fleet_init(f);
    for (uint32_t n = 0; n < in->nodes; n++) {
        struct bal_node_spec s = {
            .id = n + 1, .zone = zone_of(n) + 1, .rack = rack_of(n) + 1, .state = BAL_ELIGIBLE};
        for (unsigned d = 0; d < D; d++) {
            s.capacity[d] = (uint64_t)in->capacity[n * D + d];
        }
        ASSERT(bal_fleet_add_node(f, &s, NULL) == ERR_OK);
    }
    for (uint32_t p = 0; p < in->partitions; p++) {
        struct bal_partition_spec s = {.id = p + 1,
                                       .next = p + 1 < in->partitions ? p + 2 : 0,
                                       .spread = BAL_SPREAD_ZONE | BAL_SPREAD_RACK,
                                       .copies = COPIES};
        for (unsigned d = 0; d < D; d++) {
            s.load[d] = (uint64_t)in->load[(size_t)p * D + d];
        }
        for (unsigned k = 0; k < COPIES; k++) {
            s.copy[k].node = in->at[(size_t)p * COPIES + k] + UINT64_C(1);
        }
        ASSERT(bal_fleet_add_partition(f, &s, NULL) == ERR_OK);
    }
    ASSERT(bal_fleet_seal(f, NULL) == ERR_OK);
}

/* So that budgets and the price of copying do not end the work: `moves` at most. */
static void unbound(struct bal_settings *s, uint32_t moves)
{
    bal_settings_default(s);
    uint32_t many = 1U << 30;
    s->routine = s->hot = s->total = (struct bal_limits){many, many, many, many, many, many, 1};
    s->moves_burst = s->hot_burst = moves / 2;
    s->moves_per_node_hour = s->hot_per_node_hour = 0;
    s->kappa = 0;
    s->piece_min = 0;
    s->one_way = false;
    s->sustain_ms = 0;
    s->quiet_ms = 0;
}

static double measure_reports(const struct input *in, struct bal_fleet *f);

/* With `in` as a later round: not the sums anew, but so many loads that have changed. */
static double
once_ours(struct bal_fleet *f, const struct input *in, uint32_t moves, uint32_t *ret_moves)
{
    struct bal_settings s;
    struct bal_plan plan;
    unbound(&s, moves);
    bal_plan_init(&plan);
    struct bal_memory *m = bal_memory_new(0);
    /* Tokens fill over a day; all are there at once. */
    m->tokens = m->hot_tokens = (uint64_t)moves / 2 * 3600000;
    m->tokens_ms = 1;
    uint64_t began = cpu_ns();
    double ms = 0;
    if (in != NULL) {
        ms = measure_reports(in, f);
        began = cpu_ns();
    } else {
        bal_fleet_recount(f);
    }
    bal_plan(f, &s, 3600000, m, &plan);
    ms += ms_since(began);
    *ret_moves = plan.proposal_count;
    bal_memory_free(m);
    bal_plan_close(&plan);
    return ms;
}

static double plain_reports(struct plain *x);

static double once_plain(const struct input *in, bool reports, uint32_t moves, uint32_t *ret_moves)
{
    struct plain x = {.in = in};
    double ms = 0;
    uint64_t began = cpu_ns();
    plain_sums(&x);
    if (reports) {
        ms = plain_reports(&x);
        began = cpu_ns();
    }
    plain_plan(&x, moves);
    ms += ms_since(began);
    *ret_moves = x.moves;
    plain_close(&x);
    return ms;
}

static int
row(const char *name, double ours, double plain, uint32_t ours_moves, uint32_t plain_moves)
{
    (void)printf("%-28s %9.1f %9.1f %6.2f   %u and %u moves\n", name, ours, plain, ours / plain,
                 ours_moves, plain_moves);
    return ours > plain * RATIO_MAX;
}

static double measure_reports(const struct input *in, struct bal_fleet *f)
{
    struct tap_rand r = {7};
    uint64_t began = cpu_ns();
    for (int i = 0; i < REPORTS; i++) {
        uint32_t p = (uint32_t)tap_rand_below(&r, in->partitions);
        uint64_t load[D];
        for (unsigned d = 0; d < D; d++) {
            load[d] = (uint64_t)((double)f->load[(size_t)p * D + d] * (0.9 + 0.2 * uniform(&r)));
        }
        bal_fleet_set_load(f, p, load);
    }
    return ms_since(began);
}

static double plain_reports(struct plain *x)
{
    const struct input *in = x->in;
    struct tap_rand r = {7};
    double *load = in->load;
    uint64_t began = cpu_ns();
    for (int i = 0; i < REPORTS; i++) {
        uint32_t p = (uint32_t)tap_rand_below(&r, in->partitions);
        for (uint32_t c = p * COPIES; c < (p + 1) * COPIES; c++) {
            plain_add(x, x->at[c], c, -1);
        }
        for (unsigned d = 0; d < D; d++) {
            load[(size_t)p * D + d] *= 0.9 + 0.2 * uniform(&r);
        }
        for (uint32_t c = p * COPIES; c < (p + 1) * COPIES; c++) {
            plain_add(x, x->at[c], c, 1);
        }
    }
    return ms_since(began);
}

static double least(double best, double one)
{
    return best == 0 ? one : fmin(best, one);
}

int main(int argc, char **argv)
{
    struct input in = {.partitions = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 1000000,
                       .nodes = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 1000};
    struct bal_fleet f;
    make_input(&in);
    uint64_t began = cpu_ns();
    make_fleet(&in, &f);
    (void)printf("%u partitions, %d copies, %u nodes; the fleet is built in %.0f ms\n",
                 in.partitions, COPIES, in.nodes, ms_since(began));
    (void)printf("%-28s %9s %9s %6s\n", "", "ours", "plain", "ratio");
    static const struct {
        const char *name;
        uint32_t moves;
        bool later;
    } plans[] = {{"sums, plan of 2000 moves", 2000, false},
                 {"sums, plan without bounds", 524288, false},
                 {"100 000 loads, 2000 moves", 2000, true}};
    int misses = 0;
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        double ours = 0, plain = 0;
        uint32_t ours_moves = 0, plain_moves = 0;
        for (int k = 0; k < ROUNDS; k++) {
            const struct input *later = plans[i].later ? &in : NULL;
            ours = least(ours, once_ours(&f, later, plans[i].moves, &ours_moves));
            plain = least(plain, once_plain(&in, plans[i].later, plans[i].moves, &plain_moves));
        }
        misses += row(plans[i].name, ours, plain, ours_moves, plain_moves);
    }
    double ours = 0, plain = 0;
    for (int k = 0; k < ROUNDS; k++) {
        struct plain x = {.in = &in};
        plain_sums(&x);
        ours = least(ours, measure_reports(&in, &f));
        plain = least(plain, plain_reports(&x));
        plain_close(&x);
    }
    misses += row("100 000 loads alone", ours, plain, 0, 0);
    bal_fleet_close(&f);
    mem_free(in.load);
    mem_free(in.at);
    mem_free(in.capacity);
    return misses > 0;
}
