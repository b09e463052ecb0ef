/* SPDX-License-Identifier: Apache-2.0 */
/* Moves, stage by stage, in the simulation of data nodes; and that it sees what it is there to see.
 * MOVES_SEEDS=from:to for other seeds. */
#include "tests/harness/seeds.h"
#include "tests/harness/tap.h"
#include "tests/sim/movement_sim.h"

#include <inttypes.h>
#include <stdio.h>

enum { SEEDS = 120, MUTANT_SEEDS = 600 };

static void add(struct movement_run *all, const struct movement_run *r)
{
    all->acknowledged += r->acknowledged;
    all->lapses += r->lapses;
    all->failovers += r->failovers;
    all->regrants += r->regrants;
    all->stale_writes += r->stale_writes;
    all->faults += r->faults;
    all->moves += r->moves;
    all->cutovers += r->cutovers;
    all->forwards += r->forwards;
    all->aborts += r->aborts;
    all->backs += r->backs;
    all->stale_reports += r->stale_reports;
    all->gaps += r->gaps;
    all->mismatches += r->mismatches;
    all->cleanups += r->cleanups;
    all->promoted += r->promoted;
    all->parts += r->parts;
    all->retries += r->retries;
    all->returns += r->returns;
    all->transfers += r->transfers;
}

static void print(const struct movement_run *r, uint64_t seeds)
{
    (void)printf("# %" PRIu64 " seeds: %" PRIu64 " acknowledged, %" PRIu64 " lapses, %" PRIu64
                 " failovers, %" PRIu64 " grants to new sessions, %" PRIu64
                 " stale writes refused, %" PRIu64 " faults\n",
                 seeds, r->acknowledged, r->lapses, r->failovers, r->regrants, r->stale_writes,
                 r->faults);
    (void)printf("# %" PRIu64 " moves, %" PRIu64 " cutovers (%" PRIu64 " forward, %" PRIu64
                 " by a person), %" PRIu64 " aborts, %" PRIu64 " attempts more, %" PRIu64
                 " stale reports, %" PRIu64 " gaps, %" PRIu64 " mismatches, %" PRIu64
                 " copies deleted; %" PRIu64 " of a part, %" PRIu64 " again, %" PRIu64
                 " back, %" PRIu64 " transfers\n",
                 r->moves, r->cutovers, r->forwards, r->promoted, r->aborts, r->backs,
                 r->stale_reports, r->gaps, r->mismatches, r->cleanups, r->parts, r->retries,
                 r->returns, r->transfers);
}

static void safe(enum movement_profile profile, uint64_t from, uint64_t to)
{
    struct movement_run all = {.violation = NULL};
    for (uint64_t seed = from; seed < to; seed++) {
        struct movement_run r = movement_run(seed, profile, MOVEMENT_AS_WRITTEN);
        tap_note("seed %" PRIu64 ": %s, %s, %s", seed, r.violation != NULL ? r.violation : "safe",
                 r.recovered ? "writes went on" : "no writes at the end",
                 r.ended ? "operations ended" : "an operation neither ended nor asked for help");
        CHECK(r.violation == NULL);
        CHECK(r.recovered);
        CHECK(r.ended);
        add(&all, &r);
    }
    /* A run in which nothing happened proves nothing. */
    uint64_t n = to - from;
    print(&all, n);
    CHECK(all.acknowledged > 100 * n && all.moves > 3 * n && all.cutovers > n);
    CHECK(all.lapses > n && all.stale_writes > 10 * n && all.backs > n && all.aborts > n / 2);
    CHECK(all.stale_reports > n && all.cleanups > n && all.parts > n / 2);
    CHECK(all.retries > n / 2 && all.returns > n / 4);
    CHECK(profile != MOVEMENT_MIXED || all.transfers > n / 8);
    if (n >= SEEDS / 2) {
        CHECK(all.forwards > 0 && all.gaps > 0 && all.mismatches > 0);
    }
}

static void moves_lose_nothing(void)
{
    uint64_t from, to;
    seeds_read("MOVES_SEEDS", 1, 1 + SEEDS / 2, &from, &to);
    safe(MOVEMENT_MOVES, from, to);
}

static void moves_beside_a_replica_lose_nothing(void)
{
    uint64_t from, to;
    seeds_read("MOVES_SEEDS", 1, 1 + SEEDS / 2, &from, &to);
    safe(MOVEMENT_MIXED, from, to);
}

static void one_seed_is_one_run(void)
{
    struct movement_run a = movement_run(7, MOVEMENT_MIXED, MOVEMENT_AS_WRITTEN);
    struct movement_run b = movement_run(7, MOVEMENT_MIXED, MOVEMENT_AS_WRITTEN);
    CHECK(a.acknowledged == b.acknowledged && a.commands == b.commands && a.moves == b.moves);
    CHECK(a.stale_reports == b.stale_reports && a.refused == b.refused);
}

static void every_mutant_is_caught(void)
{
    for (int m = MOVEMENT_MUTANTS_OF_MOVES + 1; m < MOVEMENT_MUTANT_COUNT; m++) {
        struct movement_run r = {.violation = NULL};
        uint64_t seed = 0;
        bool replicas = m == MOVEMENT_transfer_unfenced || m == MOVEMENT_in_sync_of_any_session;
        enum movement_profile profile = replicas ? MOVEMENT_MIXED : MOVEMENT_MOVES;
        while (r.violation == NULL && seed < MUTANT_SEEDS) {
            r = movement_run(++seed, profile, (enum movement_mutant)m);
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
    RUN(moves_lose_nothing);
    RUN(moves_beside_a_replica_lose_nothing);
    RUN(every_mutant_is_caught);
    return tap_done();
}
