/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions, leases, replication and failover in the simulation of data nodes; and that it sees what
 * it is there to see. MOVEMENT_SEEDS=from:to for others. */
#include "tests/sim/movement_sim.h"

#include "tests/harness/seeds.h"
#include "tests/harness/tap.h"

#include <inttypes.h>
#include <stdio.h>

enum { SEEDS = 40, MUTANT_SEEDS = 1500 };

static void nothing_is_lost_and_one_writes(void)
{
    uint64_t from, to;
    struct movement_run all = {.violation = NULL};
    seeds_read("MOVEMENT_SEEDS", 1, 1 + SEEDS, &from, &to);
    for (uint64_t seed = from; seed < to; seed++) {
        struct movement_run r = movement_run(seed, MOVEMENT_REPLICAS, MOVEMENT_AS_WRITTEN);
        tap_note("seed %" PRIu64 ": %s", seed, r.violation != NULL ? r.violation : "safe");
        CHECK(r.violation == NULL);
        CHECK(r.recovered);
        all.acknowledged += r.acknowledged;
        all.lapses += r.lapses;
        all.failovers += r.failovers;
        all.regrants += r.regrants;
        all.insync_changes += r.insync_changes;
        all.stale_orders += r.stale_orders;
        all.refused += r.refused;
        all.faults += r.faults;
    }
    (void)printf("# %" PRIu64 " seeds: %" PRIu64 " acknowledged, %" PRIu64 " lapses, %" PRIu64
                 " failovers, %" PRIu64 " grants to new sessions, %" PRIu64
                 " changes of the in-sync set, %" PRIu64 " stale orders, %" PRIu64 " faults\n",
                 to - from, all.acknowledged, all.lapses, all.failovers, all.regrants,
                 all.insync_changes, all.stale_orders, all.faults);
    /* A run in which nothing happened proves nothing. */
    uint64_t n = to - from;
    CHECK(all.acknowledged > 100 * n && all.lapses > n && all.failovers * 4 > n);
    CHECK(all.regrants * 4 > n && all.insync_changes > n && all.stale_orders > n);
    CHECK(all.refused > 0 && all.faults > 10 * n);
}

static void one_seed_is_one_run(void)
{
    struct movement_run a = movement_run(7, MOVEMENT_REPLICAS, MOVEMENT_AS_WRITTEN);
    struct movement_run b = movement_run(7, MOVEMENT_REPLICAS, MOVEMENT_AS_WRITTEN);
    CHECK(a.acknowledged == b.acknowledged && a.commands == b.commands && a.refused == b.refused);
}

static void every_mutant_is_caught(void)
{
    for (unsigned m = MOVEMENT_AS_WRITTEN + 1; m < MOVEMENT_MUTANTS_OF_MOVES; m++) {
        struct movement_run r = {.violation = NULL};
        uint64_t seed = 0;
        while (r.violation == NULL && seed < MUTANT_SEEDS) {
            r = movement_run(++seed, MOVEMENT_REPLICAS, (enum movement_mutant)m);
        }
        const char *name = movement_mutant_name((enum movement_mutant)m);
        (void)printf("# %s: seed %" PRIu64 ": %s\n", name, seed,
                     r.violation != NULL ? r.violation : "NOT CAUGHT");
        tap_note("mutant %s in %u seeds", name, (unsigned)MUTANT_SEEDS);
        CHECK(r.violation != NULL);
    }
}

int main(void)
{
    RUN(one_seed_is_one_run);
    RUN(nothing_is_lost_and_one_writes);
    RUN(every_mutant_is_caught);
    return tap_done();
}
