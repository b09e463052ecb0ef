/* SPDX-License-Identifier: Apache-2.0 */
/* The planner beside doing nothing, what one would write first, and Slicer's weighted move, on the
 * same simulated fleets with the same executor. A cell is
 *
 *     median/p99 of max/mean · moves an hour in the second half · moves · bounces · GiB
 *
 * Without arguments: the tuning set (the scenarios that constants were tuned on), then held-out
 * ones (fresh seeds, other fleet sizes). Arguments, each name=value: workload, balancer, seed,
 * seeds, nodes, per_node, sigma, hours, keys, vary (a setting of the planner, such as
 * vary=high=0.05), and verbose. Exit 1 when a check fails. */
#include "base/mem.h"
#include "base/parse.h"
#include "tests/bench/fleet/sim.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RUNS_MAX = 1024 };

struct run {
    struct sim_config c;
    struct sim_stats stats;
    pid_t pid;
    int pipe;
};

struct runs {
    struct run *run;
    int count;
};

static void add(struct runs *all, const struct sim_config *c)
{
    if (all->count < RUNS_MAX) {
        all->run[all->count++] = (struct run){.c = *c};
    }
}

static void start(struct run *r)
{
    int ends[2];
    if (pipe(ends) != 0) {
        perror("pipe");
        exit(2);
    }
    (void)fflush(stdout);
    r->pid = fork();
    if (r->pid == 0) {
        sim_run(&r->c, &r->stats);
        ssize_t wrote = write(ends[1], &r->stats, sizeof r->stats);
        _exit(wrote == (ssize_t)sizeof r->stats ? 0 : 1);
    }
    if (r->pid < 0) {
        perror("fork");
        exit(2);
    }
    (void)close(ends[1]);
    r->pipe = ends[0];
}

static void finish(struct run *r)
{
    int status = 0;
    ssize_t got = read(r->pipe, &r->stats, sizeof r->stats);
    (void)close(r->pipe);
    if (waitpid(r->pid, &status, 0) != r->pid || status != 0 || got != (ssize_t)sizeof r->stats) {
        (void)fprintf(stderr, "a run of %s failed\n", sim_workload_name[r->c.workload]);
        exit(2);
    }
}

/* Each run in a process of its own, as many at once as there are processors. */
static void run_all(struct runs *all)
{
    long at_once = sysconf(_SC_NPROCESSORS_ONLN);
    int begun = 0;
    for (int done = 0; done < all->count; done++) {
        while (begun < all->count && begun - done < at_once) {
            start(&all->run[begun++]);
        }
        finish(&all->run[done]);
    }
}

struct cell {
    double median, p99, late, moves, bounces, gib, recovered, overload, returns;
    double restore[SIM_SHIFTS_MAX];
    int runs, restored, shifts;
    double in_residence, planner_ms, bound, splits, merges, swaps, rho;
};

static struct cell mean_of(const struct runs *all, enum sim_workload w, enum sim_balancer b)
{
    struct cell c = {0};
    for (int i = 0; i < all->count; i++) {
        const struct run *r = &all->run[i];
        if (r->c.workload != w || r->c.balancer != b) {
            continue;
        }
        c.runs++;
        c.median += r->stats.median;
        c.p99 += r->stats.p99;
        c.late += (double)r->stats.late_moves / (r->c.hours / 2);
        c.moves += (double)r->stats.moves;
        c.bounces += (double)r->stats.bounces;
        c.returns += (double)r->stats.returns;
        c.gib += r->stats.gib;
        c.recovered += r->stats.recovered_s;
        c.overload += r->stats.overload_s;
        c.in_residence += (double)r->stats.planned_in_residence;
        c.planner_ms += r->stats.planner_ms;
        c.bound += r->stats.bound;
        c.splits += (double)r->stats.splits;
        c.merges += (double)r->stats.merges;
        c.swaps += (double)r->stats.swaps;
        c.rho += r->stats.rho;
        c.shifts += r->stats.shifts;
        for (int k = 0; k < r->stats.restored && c.restored < SIM_SHIFTS_MAX; k++) {
            c.restore[c.restored++] = r->stats.restore_s[k];
        }
    }
    double *sums[] = {&c.median,   &c.p99,          &c.late,       &c.moves,
                      &c.bounces,  &c.returns,      &c.gib,        &c.recovered,
                      &c.overload, &c.in_residence, &c.planner_ms, &c.bound,
                      &c.splits,   &c.merges,       &c.swaps,      &c.rho};
    for (size_t i = 0; i < sizeof sums / sizeof *sums && c.runs > 0; i++) {
        *sums[i] /= c.runs;
    }
    return c;
}

static void print_cell(const struct cell *c)
{
    (void)printf(" | %.3f/%.2f · %.1f · %.0f · %.0f · %.0f", c->median, c->p99, c->late, c->moves,
                 c->bounces, c->gib);
}

static int by_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void print_restore(struct cell *c, const char *name)
{
    qsort(c->restore, (size_t)c->restored, sizeof *c->restore, by_double);
    (void)printf("# shift, %s: below 1.2 again after %.0f s (median), %d of %d times\n", name,
                 c->restored == 0 ? -1 : c->restore[c->restored / 2], c->restored, c->shifts);
}

/* Balance within 5 % of the best, for at most half of Slicer's moves where Slicer moves at all. */
static int judge(enum sim_workload w, struct cell cells[SIM_BALANCERS])
{
    double best = cells[SIM_NAIVE].median;
    best = fmin(best, fmin(cells[SIM_SLICER].median, cells[SIM_OURS].median));
    const struct cell *ours = &cells[SIM_OURS], *slicer = &cells[SIM_SLICER];
    double off = ours->median / best - 1;
    bool close = off <= 0.05;
    bool few = ours->moves <= slicer->moves / 2 || ours->moves < 200;
    (void)printf("%s %s: %.1f %% off the best max/mean, %.0f moves to Slicer's %.0f\n",
                 close && few ? "ok  " : "MISS", sim_workload_name[w], 100 * off, ours->moves,
                 slicer->moves);
    bool calm = ours->in_residence == 0;
    if (!calm) {
        (void)printf("MISS %s: %.0f moves planned within residence\n", sim_workload_name[w],
                     ours->in_residence);
    }
    return !close + !few + !calm;
}

static int table(struct runs *all, const char *title)
{
    (void)printf("\n## %s\n\n| workload | bound", title);
    for (int b = 0; b < SIM_BALANCERS; b++) {
        (void)printf(" | %s", sim_balancer_name[b]);
    }
    (void)printf(" |\n|---|---|---|---|---|---|\n");
    struct cell cells[SIM_WORKLOADS][SIM_BALANCERS];
    for (int w = 0; w < SIM_WORKLOADS; w++) {
        for (int b = 0; b < SIM_BALANCERS; b++) {
            cells[w][b] = mean_of(all, (enum sim_workload)w, (enum sim_balancer)b);
        }
        if (cells[w][SIM_OURS].runs == 0) {
            continue;
        }
        (void)printf("| %s | %.2f", sim_workload_name[w], cells[w][SIM_OURS].bound);
        for (int b = 0; b < SIM_BALANCERS; b++) {
            print_cell(&cells[w][b]);
        }
        (void)printf(" |\n");
    }
    (void)printf("\n");
    int misses = 0;
    for (int w = 0; w < SIM_WORKLOADS; w++) {
        struct cell *c = cells[w];
        if (c[SIM_OURS].runs == 0) {
            continue;
        }
        misses += judge((enum sim_workload)w, c);
        if (w == SIM_NODELOSS || w == SIM_ZONELOSS) {
            (void)printf("# %s: whole again after %.0f s (naive), %.0f s (Slicer), %.0f s (ours)\n",
                         sim_workload_name[w], c[SIM_NAIVE].recovered, c[SIM_SLICER].recovered,
                         c[SIM_OURS].recovered);
        }
        if (w == SIM_SHIFT) {
            print_restore(&c[SIM_NAIVE], "naive");
            print_restore(&c[SIM_SLICER], "Slicer");
            print_restore(&c[SIM_OURS], "ours");
        }
    }
    return misses;
}

static const struct sim_config tuning = {.nodes = 60,
                                         .keys = 200000,
                                         .per_node = 64,
                                         .hours = 12,
                                         .sigma = 0.2};
static const struct sim_config held_out = {.nodes = 120,
                                           .keys = 200000,
                                           .per_node = 40,
                                           .hours = 12,
                                           .sigma = 0.3};
static const struct sim_config small = {.nodes = 12,
                                        .keys = 60000,
                                        .per_node = 30,
                                        .hours = 12,
                                        .sigma = 0.2};

/* FLEET_SEEDS=n: so many of each set at most. */
static int at_most(int seeds)
{
    const char *text = getenv("FLEET_SEEDS");
    int most = text == NULL ? seeds : (int)strtol(text, NULL, 10);
    return most < seeds ? most : seeds;
}

static int set(const struct sim_config *like, uint64_t first, int seeds, const char *title)
{
    seeds = at_most(seeds);
    struct runs all = {.run = mem_zalloc(RUNS_MAX * sizeof *all.run)};
    for (int w = 0; w < SIM_WORKLOADS; w++) {
        for (int b = 0; b < SIM_BALANCERS; b++) {
            for (int k = 0; k < seeds; k++) {
                struct sim_config c = *like;
                c.workload = (enum sim_workload)w;
                c.balancer = (enum sim_balancer)b;
                c.seed = first + (uint64_t)k;
                add(&all, &c);
            }
        }
    }
    run_all(&all);
    int misses = table(&all, title);
    mem_free(all.run);
    return misses;
}

static int name_in(const char *const *names, int count, const char *name)
{
    for (int i = 0; i < count; i++) {
        if (strcmp(names[i], name) == 0) {
            return i;
        }
    }
    (void)fprintf(stderr, "no such name: %s\n", name);
    exit(2);
}

struct chosen {
    struct sim_config c;
    int workload, balancer, seeds;
};

static void choose(struct chosen *x, const char *arg)
{
    const char *value = strchr(arg, '=');
    if (value == NULL) {
        (void)fprintf(stderr, "not name=value: %s\n", arg);
        exit(2);
    }
    value++;
    double number = strtod(value, NULL);
    switch (name_in((const char *const[]){"workload", "balancer", "seed", "seeds", "nodes",
                                          "per_node", "sigma", "hours", "keys", "vary"},
                    10, strndup(arg, (size_t)(value - arg - 1)))) {
    case 0:
        x->workload = name_in(sim_workload_name, SIM_WORKLOADS, value);
        break;
    case 1:
        x->balancer = name_in(sim_balancer_name, SIM_BALANCERS, value);
        break;
    case 2:
        x->c.seed = (uint64_t)number;
        break;
    case 3:
        x->seeds = (int)number;
        break;
    case 4:
        x->c.nodes = (int)number;
        break;
    case 5:
        x->c.per_node = (int)number;
        break;
    case 6:
        x->c.sigma = number;
        break;
    case 7:
        x->c.hours = number;
        break;
    case 8:
        x->c.keys = (int)number;
        break;
    default:
        x->c.vary = value;
    }
}

static int chosen(int argc, char **argv)
{
    struct chosen x = {.c = tuning, .workload = -1, .balancer = -1, .seeds = 1};
    x.c.seed = 1;
    for (int i = 1; i < argc; i++) {
        choose(&x, argv[i]);
    }
    struct runs all = {.run = mem_zalloc(RUNS_MAX * sizeof *all.run)};
    for (int w = 0; w < SIM_WORKLOADS; w++) {
        for (int b = 0; b < SIM_BALANCERS; b++) {
            for (int k = 0; k < x.seeds; k++) {
                struct sim_config c = x.c;
                c.workload = (enum sim_workload)w;
                c.balancer = (enum sim_balancer)b;
                c.seed += (uint64_t)k;
                if ((x.workload < 0 || x.workload == w) && (x.balancer < 0 || x.balancer == b)) {
                    add(&all, &c);
                }
            }
        }
    }
    run_all(&all);
    for (int i = 0; i < SIM_WORKLOADS * SIM_BALANCERS; i++) {
        enum sim_workload w = (enum sim_workload)(i / SIM_BALANCERS);
        enum sim_balancer b = (enum sim_balancer)(i % SIM_BALANCERS);
        struct cell c = mean_of(&all, w, b);
        if (c.runs == 0) {
            continue;
        }
        (void)printf("%-8s %-7s", sim_workload_name[w], sim_balancer_name[b]);
        print_cell(&c);
        (void)printf(" | returns %.0f splits %.0f merges %.0f swaps %.0f overload %.0f s recovered "
                     "%.0f s rho %.2f in residence %.0f, %.2f ms a round\n",
                     c.returns, c.splits, c.merges, c.swaps, c.overload, c.recovered, c.rho,
                     c.in_residence, c.planner_ms);
        if (w == SIM_SHIFT) {
            print_restore(&c, sim_balancer_name[b]);
        }
    }
    mem_free(all.run);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        return chosen(argc, argv);
    }
    int misses = set(&tuning, 1, 3, "Tuning set: 60 nodes, 64 partitions each, seeds from 1");
    misses += set(&held_out, 101, 2, "Held out: 120 nodes, 40 each, sigma .3, seeds from 101");
    misses += set(&small, 201, 2, "Held out: 12 nodes, 30 each, seeds from 201");
    (void)printf("\n%d misses\n", misses);
    return misses > 0;
}
