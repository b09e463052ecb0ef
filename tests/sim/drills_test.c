/* SPDX-License-Identifier: Apache-2.0 */
/* One test for each fault that operators ask about, by its name, in the simulation of data nodes on
 * the real state machine. Those that need real processes are in tests/integration/drills_test.py;
 * docs/testing.md says which is where. */
#include "tests/harness/tap.h"
#include "tests/sim/crash_internal.h"

#include <string.h>

enum { SEEDS = 3, CUTOVER = 8, VALIDATE = 6, PREPARE = 1 };

/* What the crash table expects of it in these stages, under several orders of messages. */
static void in_stages(enum crash_event event, unsigned from, unsigned upto, enum crash_outcome want)
{
    unsigned seen = 0;
    for (unsigned stage = from; stage <= upto; stage++) {
        struct crash_case of = {.event = event, .stage_index = stage};
        of.expect = crash_expect(event, stage);
        seen += of.expect.outcome == want;
        for (of.seed = 1; of.seed <= SEEDS && of.expect.outcome != CRASH_NOT_THERE; of.seed++) {
            char flaw[200];
            crash_run(&of, flaw, sizeof flaw);
            tap_note("%s in %s: %s", crash_event_name(event), dir_stage_name(crash_stages[stage]),
                     flaw);
            CHECK_STR(flaw, "");
        }
    }
    CHECK(seen > 0);
}

static struct crash_case at(enum crash_event event, unsigned stage_index, uint64_t seed)
{
    return (struct crash_case){.event = event,
                               .stage_index = stage_index,
                               .expect = crash_expect(event, stage_index),
                               .seed = seed};
}

/* After the cutover a client that knows the old route is refused by both nodes, and refreshes it
 * once. */
static void stale_route(void)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        char flaw[200];
        struct crash_case of = at(CRASH_LEADER_KILLED, CUTOVER + 1, seed);
        struct crash c = {.of = &of, .flaw = flaw, .size = sizeof flaw};
        crash_open(&c);
        struct sim *s = c.s;
        uint64_t old = s->old_epoch[1], now = sim_partition(s)->epoch;
        CHECK(old < now);
        while (!node_may_write(s, sim_seat(sim_partition(s), c.destination)) &&
               s->now < 60 * SECOND) {
            sim_turn(s);
        }
        uint64_t accepted = s->run.accepted, stale = s->run.stale_writes;
        node_client(s, c.source, 1, old);
        node_client(s, c.destination, 1, old);
        CHECK_U64(s->run.accepted, accepted);
        CHECK_U64(s->run.stale_writes, stale + 1); /* the other one is no primary at all */
        node_client(s, c.destination, 1, now);
        CHECK_U64(s->run.accepted, accepted + 1);
        crash_finish(&c);
        sim_judge(s);
        crash_close(&c);
        CHECK_STR(flaw, "");
    }
}

static void source_crash(void)
{
    in_stages(CRASH_SOURCE_DIES, 0, CRASH_STAGES - 1, CRASH_FORWARD);
    in_stages(CRASH_SOURCE_RESTARTS, 0, CRASH_STAGES - 1, CRASH_CATCH_UP_NEW_EPOCH);
}

static void destination_crash(void)
{
    in_stages(CRASH_DESTINATION_DIES, 0, CRASH_STAGES - 1, CRASH_CATCH_UP);
    in_stages(CRASH_DESTINATION_RESTARTS, 0, CRASH_STAGES - 1, CRASH_TRIES_AGAIN);
    in_stages(CRASH_DESTINATION_EMPTY, 0, CRASH_STAGES - 1, CRASH_SNAPSHOT);
}

/* Once, and it is copied again; twice, and it aborts with what both sides had. */
static void checksum_mismatch(void)
{
    in_stages(CRASH_MISMATCH, VALIDATE, VALIDATE, CRASH_COPY);
    char flaw[200];
    struct crash_case of = at(CRASH_MISMATCH, VALIDATE, 1);
    struct crash c = {.of = &of, .flaw = flaw, .size = sizeof flaw};
    crash_open(&c);
    crash_inject(&c);
    CHECK_U64(leader_operation(c.s)->stage, DIR_STAGE_COPY);
    c.s->held = false;
    while (leader_operation(c.s)->stage != DIR_STAGE_VALIDATE && c.s->now < 60 * SECOND) {
        sim_turn(c.s);
    }
    uint64_t epoch = sim_partition(c.s)->epoch;
    crash_inject(&c);
    const struct dir_operation *o = leader_operation(c.s);
    CHECK_U64(o->state, DIR_OPERATION_ABORTED);
    CHECK_STR(o->attention_code, "validation_mismatch");
    CHECK(o->source_says.checksum != o->destination_says.checksum);
    CHECK(o->source_says.at_position == o->destination_says.at_position);
    CHECK_U64(sim_partition(c.s)->epoch, epoch);
    crash_finish(&c);
    sim_judge(c.s);
    crash_close(&c);
    CHECK_STR(flaw, "");
}

static void change_log_gap(void)
{
    in_stages(CRASH_GAP, 0, CRASH_STAGES - 1, CRASH_SNAPSHOT);
}

static void cutover_timeout(void)
{
    in_stages(CRASH_TIMEOUT, CUTOVER - 1, CUTOVER, CRASH_CATCH_UP_NEW_EPOCH);
}

static void duplicated_control_message(void)
{
    in_stages(CRASH_DUPLICATE_REPORT, 0, CRASH_STAGES - 1, CRASH_NO_EFFECT);
    in_stages(CRASH_OLD_REPORT, 0, CRASH_STAGES - 1, CRASH_NO_EFFECT);
}

/* It is said before anything is copied. */
static void insufficient_destination_headroom(void)
{
    in_stages(CRASH_NO_HEADROOM, PREPARE, PREPARE, CRASH_ABORTED);
    char flaw[200];
    struct crash_case of = at(CRASH_NO_HEADROOM, PREPARE, 2);
    struct crash c = {.of = &of, .flaw = flaw, .size = sizeof flaw};
    crash_open(&c);
    crash_inject(&c);
    CHECK_STR(leader_operation(c.s)->attention_code, "insufficient_headroom");
    CHECK_U64(leader_operation(c.s)->bytes_done, 0);
    crash_close(&c);
    CHECK_STR(flaw, "");
}

int main(void)
{
    tap_run("stale route", stale_route);
    tap_run("source crash", source_crash);
    tap_run("destination crash", destination_crash);
    tap_run("checksum mismatch", checksum_mismatch);
    tap_run("change-log gap", change_log_gap);
    tap_run("cutover timeout", cutover_timeout);
    tap_run("duplicated control message", duplicated_control_message);
    tap_run("insufficient destination headroom", insufficient_destination_headroom);
    return tap_done();
}
