/* SPDX-License-Identifier: Apache-2.0 */
/* Every cell of the crash table on the real state machine. CRASH_SEEDS=from:to for other
 * seeds than the first five. */
#include "tests/harness/seeds.h"
#include "tests/harness/tap.h"
#include "tests/sim/crash_run.h"

#include <inttypes.h>
#include <stdio.h>

static uint64_t first, end;
static unsigned cells, runs;

static void run_cell(struct crash_case c, const char *name)
{
    if (c.expect.outcome == CRASH_NOT_THERE) {
        return;
    }
    cells++;
    for (uint64_t seed = first; seed < end; seed++) {
        for (int other = 0; other < 2; other++) {
            char flaw[200];
            c.seed = seed;
            c.leader_changes = other != 0;
            runs++;
            crash_run(&c, flaw, sizeof flaw);
            if (flaw[0] != '\0') {
                tap_note("%s in %s, seed %" PRIu64 "%s: %s", name,
                         dir_stage_name(crash_stages[c.stage_index]), seed,
                         other != 0 ? ", with a change of leader" : "", flaw);
            }
            CHECK(flaw[0] == '\0');
        }
    }
}

static void a_move(void)
{
    for (unsigned e = 0; e < CRASH_EVENTS; e++) {
        for (unsigned s = 0; s < CRASH_STAGES; s++) {
            struct crash_case c = {.event = (enum crash_event)e, .stage_index = s};
            c.expect = crash_expect(c.event, s);
            run_cell(c, crash_event_name(c.event));
        }
    }
}

/* The same of a part: what the table says of the partition is so of the part. */
static void a_part_of_a_partition(void)
{
    static const enum crash_event events[] = {CRASH_LEADER_KILLED,
                                              CRASH_SOURCE_DIES,
                                              CRASH_SOURCE_RESTARTS,
                                              CRASH_DESTINATION_DIES,
                                              CRASH_DESTINATION_RESTARTS,
                                              CRASH_DESTINATION_EMPTY,
                                              CRASH_MISMATCH,
                                              CRASH_GAP,
                                              CRASH_TIMEOUT,
                                              CRASH_ABORT};
    for (size_t e = 0; e < sizeof events / sizeof events[0]; e++) {
        for (unsigned s = 0; s < CRASH_STAGES; s++) {
            struct crash_case c = {.event = events[e], .stage_index = s, .keys = {1, 2}};
            c.expect = crash_expect(c.event, s);
            run_cell(c, crash_event_name(c.event));
        }
    }
}

static void beside_a_replica(void)
{
    for (unsigned r = 0; r < CRASH_REPLICA_ROWS; r++) {
        for (unsigned s = 0; s < CRASH_STAGES; s++) {
            const struct crash_replica_row *row = &crash_replica_rows[r];
            struct crash_case c = {
                .kind = row->kind, .replica = true, .event = row->event, .stage_index = s};
            c.expect = crash_replica_expect(row, s);
            run_cell(c, row->name);
        }
    }
}

int main(void)
{
    seeds_read("CRASH_SEEDS", 1, 6, &first, &end);
    RUN(a_move);
    RUN(a_part_of_a_partition);
    RUN(beside_a_replica);
    (void)printf("# %u cells, %u runs\n", cells, runs);
    return tap_done();
}
