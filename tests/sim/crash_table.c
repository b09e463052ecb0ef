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
    case 't':
        return CRASH_TRIES_AGAIN;
    case 'a':
        return CRASH_ALLOWED;
    case 'd':
        return CRASH_SETTLED;
    case 'f':
        return CRASH_FAILED_OVER;
    case 'x':
        return CRASH_FAILED;
    case 'p':
        return CRASH_OTHERS_MATTER;
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
    /* QUEUED is no attempt yet. */
    [CRASH_SOURCE_RESTARTS] = {"source restarts", "ossssUUUU=="},
    /* Before it is joined, nothing depends on it; a primary's death in WINDOW does not go back. */
    [CRASH_DESTINATION_DIES] = {"destination dies for good", "=====uuUUnn"},
    /* The attempt's evidence is of its session: a new session is a new attempt, on the same copy.
     */
    [CRASH_DESTINATION_RESTARTS] = {"destination restarts", "=ttttuuUUoo"},
    [CRASH_DESTINATION_EMPTY] = {"destination restarts without its copy", "=ttSSSSSS--"},
    [CRASH_MISMATCH] = {"sums are unequal", "------C----"},
    [CRASH_GAP] = {"gap in the change log", "----SS-----"},
    /* Tried again, DIR_ATTEMPTS_MAX times in all; a window that is not quiet asks for a person; a
     * cleanup waits for its node however long that is away. */
    [CRASH_TIMEOUT] = {"stage times out", "-ttttuuUU!."},
    [CRASH_DUPLICATE_REPORT] = {"a report comes twice", "-.........."},
    [CRASH_OLD_REPORT] = {"a report of another attempt or session", "..........."},
    [CRASH_ABORT] = {"abort", "AAAAAAAAArr"},
    /* In CLEANUP the operation does not hold the partition any more. */
    [CRASH_OTHER_COMMAND] = {"split, merge or move of it", "rrrrrrrrrra"},
    /* The API says keyspace_busy while operations run. */
    [CRASH_DROP] = {"the keyspace is dropped", "rrrrrrrrrra"},
    [CRASH_SOURCE_REMOVED] = {"the source is removed", "rrrrrrrrrrd"},
    /* A node that holds nothing may go, and what was to move there does not. */
    [CRASH_DESTINATION_REMOVED] = {"the destination is removed", "Arrrrrrrrrr"},
    /* It is judged at admission; what runs, runs on. */
    [CRASH_BUDGET_ZERO] = {"the budget is lowered to nothing", "==========="},
    [CRASH_NO_HEADROOM] = {"the destination's disk fills", "=A=====----"},
};

const struct crash_replica_row crash_replica_rows[CRASH_REPLICA_ROWS] = {
    /* A replica in sync has every acknowledged write, and a validated destination too: who dies in
     * FENCE or CUTOVER is followed by the one that was to follow. */
    {"source of a move dies", CRASH_MOVE, CRASH_SOURCE_DIES, "fffffffFF=="},
    {"destination of a move dies", CRASH_MOVE, CRASH_DESTINATION_DIES, "=====uuUUxp"},
    {"source of a move restarts", CRASH_MOVE, CRASH_SOURCE_RESTARTS, "ossssUUUU=="},
    {"a move is aborted", CRASH_MOVE, CRASH_ABORT, "AAAAAAAAArr"},
    {"a move's stage times out", CRASH_MOVE, CRASH_TIMEOUT, "-ttttuuUU!."},
    /* No authority changes hands: nothing is fenced, and JOIN is one command with its end. */
    {"primary dies, a replica is added", CRASH_ADD_REPLICA, CRASH_SOURCE_DIES, "fffffff----"},
    {"primary restarts, a replica is added", CRASH_ADD_REPLICA, CRASH_SOURCE_RESTARTS,
     "ossssUU----"},
    {"new replica dies", CRASH_ADD_REPLICA, CRASH_DESTINATION_DIES, "=====uu----"},
    {"new replica restarts", CRASH_ADD_REPLICA, CRASH_DESTINATION_RESTARTS, "=ttttuu----"},
    {"new replica is empty", CRASH_ADD_REPLICA, CRASH_DESTINATION_EMPTY, "=ttSSSS----"},
    {"adding a replica is aborted", CRASH_ADD_REPLICA, CRASH_ABORT, "AAAAAAA----"},
    {"adding a replica times out", CRASH_ADD_REPLICA, CRASH_TIMEOUT, "-ttttuu----"},
    {"primary dies, a replica is moved", CRASH_MOVE_REPLICA, CRASH_SOURCE_DIES, "fffffff---p"},
    {"moved replica's new node dies", CRASH_MOVE_REPLICA, CRASH_DESTINATION_DIES, "=====uu---="},
    {"moving a replica is aborted", CRASH_MOVE_REPLICA, CRASH_ABORT, "AAAAAAA---r"},
    {"sums of a moved replica are unequal", CRASH_MOVE_REPLICA, CRASH_MISMATCH, "------C----"},
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

static struct crash_expect expect_of(enum crash_outcome outcome, unsigned stage_index)
{
    enum dir_stage at = crash_stages[stage_index];
    bool fenced = at == DIR_STAGE_FENCE || at == DIR_STAGE_CUTOVER;
    bool candidate = at > DIR_STAGE_QUEUED;
    struct crash_expect e = {.outcome = outcome, .stage = at};
    e.owner = at >= DIR_STAGE_WINDOW ? CRASH_OF_DESTINATION : CRASH_OF_SOURCE;
    switch (e.outcome) {
    case CRASH_NOT_THERE:
    case CRASH_GOES_ON:
    case CRASH_NO_EFFECT:
    case CRASH_REFUSED:
    case CRASH_ATTENTION:
    case CRASH_ALLOWED:
        break;
    case CRASH_TRIES_AGAIN:
        e.new_attempt = true;
        break;
    case CRASH_SETTLED:
        e.stage = DIR_STAGE_DONE;
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
        e.stage = DIR_STAGE_ABORTED;
        e.new_epoch = fenced;
        e.duty = candidate;
        break;
    case CRASH_FORWARD:
        e.stage = DIR_STAGE_WINDOW;
        e.new_epoch = true;
        e.owner = CRASH_OF_DESTINATION;
        break;
    case CRASH_NOBODY:
        e.owner = CRASH_OF_NOBODY;
        break;
    case CRASH_FAILED_OVER:
        e.duty = candidate;
        /* fall through */
    case CRASH_FAILED:
    case CRASH_OTHERS_MATTER:
        e.owner = CRASH_OF_REPLICA;
        e.new_epoch = true;
        e.stage = outcome == CRASH_FAILED_OVER ? DIR_STAGE_ABORTED
                  : outcome == CRASH_FAILED    ? DIR_STAGE_FAILED
                                               : at;
        break;
    }
    return e;
}

struct crash_expect crash_expect(enum crash_event event, unsigned stage_index)
{
    struct crash_expect e = expect_of(crash_outcome(event, stage_index), stage_index);
    /* With the keyspace every copy of it has to go. */
    e.duty = e.duty || (event == CRASH_DROP && e.outcome == CRASH_ALLOWED);
    return e;
}

struct crash_expect crash_replica_expect(const struct crash_replica_row *row, unsigned stage_index)
{
    struct crash_expect e = expect_of(outcome_of(row->cells[stage_index]), stage_index);
    if (row->kind != CRASH_MOVE && e.owner == CRASH_OF_DESTINATION) {
        e.owner = CRASH_OF_SOURCE;
    }
    if (row->kind == CRASH_MOVE_REPLICA && e.outcome == CRASH_OTHERS_MATTER) {
        e.owner = CRASH_OF_DESTINATION; /* it is the replica in sync */
    }
    return e;
}
