/* SPDX-License-Identifier: Apache-2.0 */
/* Random schedules of faults over a cluster: each is one seed, runs in a process of its own, and
 * replays. What finds most is directed: at the instant at which a server becomes leader, a command
 * is proposed and the network is cut along another line, or a server dies. */
#ifndef TESTS_SIM_SCHEDULE_H
#define TESTS_SIM_SCHEDULE_H

#include "tests/sim/sim_cluster.h"

enum schedule_class {
    CLASS_NET = 1,   /* cuts, latencies, pauses; always on in effect, as a schedule without faults
                        shows nothing */
    CLASS_CRASH = 2, /* servers die and come back; with GUARD_FAIL_STOP also writes that fail */
    CLASS_SNAPSHOT = 4, /* small threshold and trailing, slow snapshots */
    CLASS_MEMBER = 8,   /* changes of the membership, transfers */
    CLASS_ALL = 15
};

struct schedule_options {
    unsigned servers, steps;
    unsigned classes;
    unsigned measures; /* of the guard; 0: bare libraft */
    bool quiet;        /* nothing on stderr: for schedules that are to crash */
};

enum schedule_outcome { SCHEDULE_HELD, SCHEDULE_VIOLATED, SCHEDULE_CRASHED };

struct schedule_result {
    enum schedule_outcome outcome;
    char violation[200]; /* or how the process died */
    struct cluster_counts counts;
    struct sim_counts sim;
    struct guard_stats guard;
    uint64_t cuts, pauses;
};

/* Forks, runs, waits; a schedule that hangs for 60 s dies. */
struct schedule_result schedule_run(uint64_t seed, const struct schedule_options *options);

/* Adds the counts of `from`. */
void schedule_add(struct schedule_result *sum, const struct schedule_result *from);

/* Whether every class of fault that was asked for has happened; prints the counts as "# ..." lines.
 */
bool schedule_valid(const struct schedule_result *sum,
                    const struct schedule_options *options,
                    uint64_t runs);

#endif
