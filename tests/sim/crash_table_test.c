/* SPDX-License-Identifier: Apache-2.0 */
/* The table of expected outcomes keeps the protocol's laws: what it expects of the machine is
 * legal. */
#include "tests/harness/tap.h"
#include "tests/sim/crash_table.h"

static struct crash_expect cell(unsigned event, unsigned stage)
{
    tap_note("%s in %s", crash_event_name((enum crash_event)event),
             dir_stage_name(crash_stages[stage]));
    return crash_expect((enum crash_event)event, stage);
}

static void every_cell_has_an_outcome(void)
{
    unsigned there = 0;
    for (unsigned e = 0; e < CRASH_EVENTS; e++) {
        CHECK(crash_event_name((enum crash_event)e) != NULL);
        for (unsigned s = 0; s < CRASH_STAGES; s++) {
            there += cell(e, s).outcome != CRASH_NOT_THERE;
        }
    }
    CHECK(there > 144);
}

static void going_back_is_a_new_attempt(void)
{
    for (unsigned e = 0; e < CRASH_EVENTS; e++) {
        for (unsigned s = 0; s < CRASH_STAGES; s++) {
            struct crash_expect x = cell(e, s);
            CHECK(x.stage >= crash_stages[s] || x.new_attempt);
        }
    }
}

/* I4, and "leaving FENCE or CUTOVER by anything but the cutover command is a new epoch". */
static void a_fence_is_left_with_a_new_epoch(void)
{
    for (unsigned e = 0; e < CRASH_EVENTS; e++) {
        for (unsigned s = 0; s < CRASH_STAGES; s++) {
            struct crash_expect x = cell(e, s);
            bool fenced =
                crash_stages[s] == DIR_STAGE_FENCE || crash_stages[s] == DIR_STAGE_CUTOVER;
            CHECK(!fenced || x.stage == crash_stages[s] || x.new_epoch);
            CHECK(x.new_epoch || x.owner != CRASH_OF_DESTINATION ||
                  crash_stages[s] >= DIR_STAGE_WINDOW);
        }
    }
}

/* I15: before the cutover an abort leaves the source its authority and the destination a duty;
 * after it nothing gives authority back. */
static void aborts_keep_and_cutovers_stay(void)
{
    for (unsigned e = 0; e < CRASH_EVENTS; e++) {
        for (unsigned s = 0; s < CRASH_STAGES; s++) {
            struct crash_expect x = cell(e, s);
            bool after = crash_stages[s] >= DIR_STAGE_WINDOW;
            CHECK(!after || x.owner != CRASH_OF_SOURCE);
            if (x.outcome == CRASH_ABORTED) {
                CHECK(!after && x.owner == CRASH_OF_SOURCE);
                CHECK(x.duty == (crash_stages[s] != DIR_STAGE_QUEUED));
            }
        }
    }
}

/* Only a joined and validated destination goes forward, and only when the source is gone. */
static void forward_is_narrow(void)
{
    for (unsigned e = 0; e < CRASH_EVENTS; e++) {
        for (unsigned s = 0; s < CRASH_STAGES; s++) {
            struct crash_expect x = cell(e, s);
            bool fenced =
                crash_stages[s] == DIR_STAGE_FENCE || crash_stages[s] == DIR_STAGE_CUTOVER;
            bool wanted = e == CRASH_SOURCE_DIES && fenced;
            CHECK((x.outcome == CRASH_FORWARD) == wanted);
        }
    }
}

static void old_words_change_nothing(void)
{
    for (unsigned s = 0; s < CRASH_STAGES; s++) {
        CHECK(cell(CRASH_OLD_REPORT, s).outcome == CRASH_NO_EFFECT);
        CHECK(cell(CRASH_LEADER_KILLED, s).outcome == CRASH_GOES_ON);
        bool holds = crash_stages[s] != DIR_STAGE_CLEANUP;
        CHECK(cell(CRASH_OTHER_COMMAND, s).outcome == (holds ? CRASH_REFUSED : CRASH_ALLOWED));
    }
}

int main(void)
{
    RUN(every_cell_has_an_outcome);
    RUN(going_back_is_a_new_attempt);
    RUN(a_fence_is_left_with_a_new_epoch);
    RUN(aborts_keep_and_cutovers_stay);
    RUN(forward_is_narrow);
    RUN(old_words_change_nothing);
    return tap_done();
}
