/* SPDX-License-Identifier: Apache-2.0 */
/* The product's planner, directory and operation machine against a modeled fleet in virtual time:
 * what would happen, before it does. The same scenario and seed give the same outcome on the same
 * build. One thread, no I/O; every thread that runs one has called rcu_reader_start() or reads no
 * view of another. */
#ifndef SIMULATE_SIMULATE_H
#define SIMULATE_SIMULATE_H

#include "base/buf.h"
#include "simulate/scenario.h"

enum {
    SIMULATE_VIOLATIONS_MAX = 16, /* shown; all are counted */
    SIMULATE_ADVICE_MAX = 64,     /* different ones, each once */
    SIMULATE_SVG_MAX = 8 << 20
};

/* At one tick. */
struct simulate_sample {
    uint64_t at_ms;
    double ratio; /* of the most loaded node to the mean, by capacity; 0: nobody serves */
    uint32_t moves, under_way, lacking; /* so far; copies that flow; partitions short of copies */
};

/* Load by capacity, averaged as the planner averages. */
struct simulate_node {
    char name[DIR_NAME_MAX + 1];
    double before, after;
    uint32_t partitions;
    bool serves;
};

struct simulate_advice {
    uint8_t reason; /* enum bal_reason */
    uint64_t partition, at_ms, times;
};

struct simulate_outcome {
    double median, p99, end, worst, overload_s;
    uint64_t moves, late_moves, bounces, returns, splits, merges, transfers, recoveries, copies;
    uint64_t failed, refused, bytes, recovery_bytes, partitions;
    uint64_t rounds, proposals, commands, revision;
    int64_t recovered_ms, drained_ms, settled_ms; /* -1: not, or nothing was lost or drained */
    uint64_t last_move_ms;
    struct simulate_sample *samples; /* owned, as the next */
    uint32_t sample_count;
    struct simulate_node *nodes;
    uint32_t node_count;
    struct simulate_advice advice[SIMULATE_ADVICE_MAX];
    uint32_t advice_count;
    char violations[SIMULATE_VIOLATIONS_MAX][160];
    uint64_t violation_count;
};

/* ERR_INVALID_REQUEST when the scenario can't begin, with the pointer. */
enum err_code simulate_run(const struct scenario *s,
                           uint64_t seed,
                           struct simulate_outcome *ret,
                           struct err *e) MUST_CHECK;
void simulate_close(struct simulate_outcome *o);

/* What was expected beside what came. */
struct simulate_verdict {
    const char *what;
    double expected, came;
    bool met;
    char detail[DIR_NAME_MAX + 1]; /* of advice: which */
};
enum { SIMULATE_VERDICTS_MAX = 17 + SCENARIO_ADVICE_MAX };
/* How many of `ret`; a violation is never met. */
unsigned simulate_judge(const struct scenario *s,
                        const struct simulate_outcome *o,
                        struct simulate_verdict ret[SIMULATE_VERDICTS_MAX]);

/* A picture: max/mean over time, and each node before and after. */
void simulate_svg(const struct scenario *s,
                  uint64_t seed,
                  const struct simulate_outcome *o,
                  struct buf *out);

#endif
