/* SPDX-License-Identifier: Apache-2.0 */
/* A modeled fleet in virtual time, for comparing balancers: keys with changing load, partitions of
 * them, nodes that serve and copy. Every balancer sees the same measurements and has its moves
 * carried out by the same executor. One thread, nothing global; the same seed gives the same run.
 */
#ifndef TESTS_BENCH_FLEET_SIM_H
#define TESTS_BENCH_FLEET_SIM_H

#include "tests/harness/tap.h"

#include <stdbool.h>
#include <stdint.h>

enum sim_workload {
    SIM_NOISE,
    SIM_ZIPF,
    SIM_ZIPFORD,
    SIM_DRIFT,
    SIM_FLASH,
    SIM_DIURNAL,
    SIM_MONO,
    SIM_HOTKEY,
    SIM_HETERO,
    SIM_NODELOSS,
    SIM_ZONELOSS,
    SIM_SCALEOUT,
    SIM_SHIFT,
    SIM_WORKLOADS
};
extern const char *const sim_workload_name[SIM_WORKLOADS];

enum sim_balancer { SIM_NONE, SIM_NAIVE, SIM_SLICER, SIM_OURS, SIM_BALANCERS };
extern const char *const sim_balancer_name[SIM_BALANCERS];

struct sim_config {
    enum sim_workload workload;
    enum sim_balancer balancer;
    int nodes, keys, per_node;
    double hours, sigma;
    uint64_t seed;
    const char *vary; /* a setting of ours, name=value, for sweeps; NULL */
};

enum { SIM_TICK_S = 10, SIM_ZONES = 3, SIM_PARTS_MAX = 65536, SIM_SHIFTS_MAX = 64, SIM_LINKS = 4 };

/* Fractions of a node of capacity 1, and seconds. */
#define SIM_MEAN_LOAD   0.5
#define SIM_COPY_LOAD   0.03 /* that a copy costs at either end */
#define SIM_NODE_MIB    (500.0 * 1024)
#define SIM_FILLED      0.6
#define SIM_MIB_PER_S   64.0
#define SIM_NEVER       -1e9
#define SIM_RESIDENCE_S 1800

struct sim_part {
    bool live, one_key;
    int low, high; /* keys */
    int owner, to, previous, next, before;
    uint64_t id;
    double slow, fast, window; /* averages: 120 s and 30 s half-life, 5 min */
    double noise, moved_at, split_at, merged_at;
};

struct sim_node {
    bool alive;
    int zone, in, out;
    double capacity, load, measured, since, joined;
};

enum sim_move_kind { SIM_ROUTINE, SIM_RECOVERY };

struct sim_move {
    int part, from, to;
    double left_mib;
    enum sim_move_kind kind;
    uint32_t class_of;
    bool begun, from_source;
};

struct sim_stats {
    double median, p99, late_median, overload_s, recovered_s, gib, bound;
    long moves, late_moves, bounces, returns, splits, merges, swaps, recoveries;
    long planned_in_residence, both_ways;
    int shifts, restored;
    double restore_s[SIM_SHIFTS_MAX];
    double planner_ms, rho;
};

struct sim {
    struct sim_config c;
    struct tap_rand random;
    double now;
    struct sim_node *node;
    struct sim_part *part;
    int parts, live, first, free_part;
    uint64_t next_id;
    double *key, *key_base, *prefix, total; /* load by key; prefix sums */
    double tenant_phase[256], tenant_swing[256];
    struct sim_move *move;
    int moves;
    int shift, shift_open;
    double shift_at, shift_since;
    double event_at;
    double *ratio, *late_ratio;
    long ratios, late_ratios;
    struct sim_stats stats;
    void *balancer_state;
};

/* Runs it all and fills `ret`. */
void sim_run(const struct sim_config *c, struct sim_stats *ret);

double sim_uniform(struct sim *s);
double sim_gauss(struct sim *s);
double sim_part_load(const struct sim *s, const struct sim_part *p);
double sim_part_mib(const struct sim *s, const struct sim_part *p);
double sim_capacity(const struct sim *s);
int sim_alive(const struct sim *s);

/* workload.c */
void sim_workload_init(struct sim *s);
void sim_workload_tick(struct sim *s);

/* What balancers do. A move that makes no sense is dropped, as the directory would. */
void sim_move(struct sim *s, int part, int to, enum sim_move_kind kind, uint32_t class_of);
int sim_split(struct sim *s, int part, int key); /* the right part, or -1 */
void sim_merge_next(struct sim *s, int part);

/* What a key sample of `draws` requests shows. */
struct sim_sample {
    int boundary; /* key that begins the right side of the best cut; -1: one key alone was seen */
    double left;
    int top;
    double top_share;
};
struct sim_sample sim_sample(struct sim *s, int part, int draws);

void sim_naive(struct sim *s);
void sim_slicer(struct sim *s);
void sim_ours(struct sim *s);
void sim_ours_close(struct sim *s);

/* For the naive ones: each lost partition to the next node in turn. */
void sim_recover_in_turn(struct sim *s);

#endif
