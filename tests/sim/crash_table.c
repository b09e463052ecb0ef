/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/crash_table.h"

#include "base/assert.h"

const enum dir_stage crash_stages[CRASH_STAGES] = {
    DIR_STAGE_QUEUED,   DIR_STAGE_PREPARE,    DIR_STAGE_SNAPSHOT, DIR_STAGE_COPY,
    DIR_STAGE_CATCH_UP, DIR_STAGE_DUAL_WRITE, DIR_STAGE_VALIDATE, DIR_STAGE_FENCE,
    DIR_STAGE_CUTOVER,  DIR_STAGE_WINDOW,     DIR_STAGE_CLEANUP};

/* The letters of the rows below. */
static enum crash_outcome outcome_of(char letter)
{
    switch (letter) {
    case '=':
        return CRASH_GOES_ON;
    case '.':
        return CRASH_NO_EFFECT;
    case 'r':
        return CRASH_REFUSED;
    case 's':
        return CRASH_SAME_STAGE;
    case 'o':
        return CRASH_OWNER_AGAIN;
    case 'u':
        return CRASH_CATCH_UP;
    case 'U':
        return CRASH_CATCH_UP_NEW_EPOCH;
    case 'S':
        return CRASH_SNAPSHOT;
    case 'C':
        return CRASH_COPY;
    case 'A':
        return CRASH_ABORTED;
    case 'F':
        return CRASH_FORWARD;
    case 'n':
        return CRASH_NOBODY;
    case '!':
        return CRASH_ATTENTION;
    case 'k':
        return CRASH_CANCELLED;
    default:
        ASSERT(letter == '-');
        return CRASH_NOT_THERE;
    }
}

/* One letter for each of QUEUED PREPARE SNAPSHOT COPY CATCH_UP DUAL_WRITE VALIDATE FENCE CUTOVER
 * WINDOW CLEANUP. */
static const struct {
    const char *name, *cells;
} rows[CRASH_EVENTS] = {
    [CRASH_LEADER_KILLED] = {"leader killed", "==========="},
    /* Not validated in VALIDATE: only an operator may promote the candidate. Later, forward only.
     */
    [CRASH_SOURCE_DIES] = {"source dies for good", "nnnnnnnFF=="},
    [CRASH_SOURCE_RESTARTS] = {"source restarts", "sssssUUUU=="},
    /* Before it is joined, nothing depends on it; a primary's death in WINDOW does not go back. */
    [CRASH_DESTINATION_DIES] = {"destination dies for good", "=====uuUUnn"},
    [CRASH_DESTINATION_RESTARTS] = {"destination restarts", "=====uuUUoo"},
    [CRASH_DESTINATION_EMPTY] = {"destination restarts without its copy", "===SSSSSS--"},
    [CRASH_MISMATCH] = {"sums are unequal", "------C----"},
    [CRASH_GAP] = {"gap in the change log", "----SS-----"},
    [CRASH_TIMEOUT] = {"stage times out", "-AAAAuuUU=!"},
    [CRASH_DUPLICATE_REPORT] = {"a report comes twice", "-.........."},
    [CRASH_OLD_REPORT] = {"a report of another attempt or session", "..........."},
    [CRASH_ABORT] = {"abort", "AAAAAAAAArr"},
    [CRASH_OTHER_COMMAND] = {"split, merge or move of it", "rrrrrrrrrrr"},
    [CRASH_DROP] = {"the keyspace is dropped", "kkkkkkkkkkk"},
    [CRASH_SOURCE_REMOVED] = {"the source is removed", "rrrrrrrrrrr"},
    [CRASH_DESTINATION_REMOVED] = {"the destination is removed", "rrrrrrrrrrr"},
    /* It is judged at admission; what runs, runs on. */
    [CRASH_BUDGET_ZERO] = {"the budget is lowered to nothing", "==========="},
    [CRASH_NO_HEADROOM] = {"the destination's disk fills", "=A=====----"},
};

const char *crash_event_name(enum crash_event event)
{
    return rows[event].name;
}

enum crash_outcome crash_outcome(enum crash_event event, unsigned stage_index)
{
    ASSERT(event < CRASH_EVENTS && stage_index < CRASH_STAGES);
    return outcome_of(rows[event].cells[stage_index]);
}

struct crash_expect crash_expect(enum crash_event event, unsigned stage_index)
{
    enum dir_stage at = crash_stages[stage_index];
    bool fenced = at == DIR_STAGE_FENCE || at == DIR_STAGE_CUTOVER;
    bool candidate = at > DIR_STAGE_QUEUED;
    struct crash_expect e = {.outcome = crash_outcome(event, stage_index), .stage = at};
    e.owner = at >= DIR_STAGE_WINDOW ? CRASH_OF_DESTINATION : CRASH_OF_SOURCE;
    switch (e.outcome) {
    case CRASH_NOT_THERE:
    case CRASH_GOES_ON:
    case CRASH_NO_EFFECT:
    case CRASH_REFUSED:
    case CRASH_ATTENTION:
        break;
    case CRASH_SAME_STAGE:
        e.new_attempt = e.new_epoch = true;
        break;
    case CRASH_OWNER_AGAIN:
        e.new_epoch = true;
        break;
    case CRASH_CATCH_UP:
    case CRASH_CATCH_UP_NEW_EPOCH:
        e.stage = DIR_STAGE_CATCH_UP;
        e.new_attempt = true;
        e.new_epoch = e.outcome == CRASH_CATCH_UP_NEW_EPOCH;
        break;
    case CRASH_SNAPSHOT:
    case CRASH_COPY:
        e.stage = e.outcome == CRASH_COPY ? DIR_STAGE_COPY : DIR_STAGE_SNAPSHOT;
        e.new_attempt = true;
        e.new_epoch = fenced;
        e.duty = true; /* the candidate that was is nobody's */
        break;
    case CRASH_ABORTED:
    case CRASH_CANCELLED:
        e.stage = DIR_STAGE_ABORTED;
        e.new_epoch = fenced && e.outcome == CRASH_ABORTED;
        e.duty = candidate;
        e.owner = e.outcome == CRASH_CANCELLED ? CRASH_OF_NOBODY : e.owner;
        break;
    case CRASH_FORWARD:
        e.stage = DIR_STAGE_WINDOW;
        e.new_epoch = true;
        e.owner = CRASH_OF_DESTINATION;
        break;
    case CRASH_NOBODY:
        e.owner = CRASH_OF_NOBODY;
        break;
    }
    return e;
}
