/* SPDX-License-Identifier: Apache-2.0 */
/* What has to come of each event in each stage of a move of a primary without synchronous replicas:
 * docs/movement.md as a table, to run the operation machine against. Before the move the source
 * holds authority at the epoch the attempt began with; VALIDATE, FENCE and CUTOVER are `joined`,
 * FENCE and CUTOVER validated; in WINDOW and CLEANUP the destination holds it. */
#ifndef TESTS_CRASH_TABLE_H
#define TESTS_CRASH_TABLE_H

#include "base/err.h"
#include "directory/types.h"

/* QUEUED … CUTOVER, WINDOW, CLEANUP: JOIN belongs to replicas. */
enum { CRASH_STAGES = 11 };
extern const enum dir_stage crash_stages[CRASH_STAGES];

enum crash_event {
    CRASH_LEADER_KILLED,
    CRASH_SOURCE_DIES,          /* for good: its session lapses */
    CRASH_SOURCE_RESTARTS,      /* names its previous session and its copy */
    CRASH_DESTINATION_DIES,     /* for good: its session lapses */
    CRASH_DESTINATION_RESTARTS, /* with its copy */
    CRASH_DESTINATION_EMPTY,    /* restarts without its copy */
    CRASH_MISMATCH,             /* unequal sums, the first time */
    CRASH_GAP,                  /* in the change log */
    CRASH_TIMEOUT,
    CRASH_DUPLICATE_REPORT,
    CRASH_OLD_REPORT, /* of an older attempt, another operation, or an ended session */
    CRASH_ABORT,
    CRASH_OTHER_COMMAND, /* a split, merge or move of the same partition */
    CRASH_DROP,          /* of the keyspace */
    CRASH_SOURCE_REMOVED,
    CRASH_DESTINATION_REMOVED,
    CRASH_BUDGET_ZERO,
    CRASH_NO_HEADROOM, /* the destination's disk fills */
    CRASH_EVENTS
};

enum crash_outcome {
    CRASH_NOT_THERE,   /* it can't happen in this stage */
    CRASH_GOES_ON,     /* same stage, attempt, epoch and owner */
    CRASH_NO_EFFECT,   /* the command or report is refused, or its answer repeated; all stays */
    CRASH_REFUSED,     /* 409, naming the operation */
    CRASH_SAME_STAGE,  /* a new attempt in the same stage, at the source's new epoch */
    CRASH_TRIES_AGAIN, /* a new attempt in the same stage; the epoch stays */
    CRASH_OWNER_AGAIN, /* the operation goes on; the owner's new session has a new epoch */
    CRASH_CATCH_UP,    /* a new attempt in CATCH_UP; the epoch is new if it was fenced */
    CRASH_CATCH_UP_NEW_EPOCH,
    CRASH_SNAPSHOT, /* a new attempt in SNAPSHOT, the candidate discarded with a duty */
    CRASH_COPY,     /* a new attempt in COPY */
    CRASH_ABORTED,  /* with a duty if there may be a candidate; a new epoch if it was fenced */
    CRASH_FORWARD,  /* the destination has authority at a new epoch */
    CRASH_NOBODY,   /* the owner's session has lapsed: unavailable, the epoch kept, the stage too */
    CRASH_ATTENTION, /* goes on, and a person is needed */
    CRASH_ALLOWED,   /* the command is taken: only the operation's duty is left, which stays */
    CRASH_SETTLED,   /* so is its node's removal: nobody will do the duty, and it is done */
    /* With a replica in sync beside the source: */
    CRASH_FAILED_OVER,  /* the replica has authority at a new epoch, and the operation is aborted */
    CRASH_FAILED,       /* the same after the cutover: it has failed, nothing is undone */
    CRASH_OTHERS_MATTER /* the same when only its duty is left: it goes on */
};

struct crash_expect {
    enum crash_outcome outcome;
    enum dir_stage stage; /* afterwards */
    bool new_attempt, new_epoch, duty;
    enum crash_owner {
        CRASH_OF_SOURCE,
        CRASH_OF_DESTINATION,
        CRASH_OF_REPLICA,
        CRASH_OF_NOBODY
    } owner;
};

enum crash_outcome crash_outcome(enum crash_event event, unsigned stage_index);
/* All that follows from the outcome. */
struct crash_expect crash_expect(enum crash_event event, unsigned stage_index);
const char *crash_event_name(enum crash_event event);

/* The same where a replica is in sync (n1 the primary, n2 in sync, another the destination), and of
 * the other kinds, which end in JOIN. */
struct crash_replica_row {
    const char *name;
    enum crash_kind { CRASH_MOVE, CRASH_ADD_REPLICA, CRASH_MOVE_REPLICA } kind;
    enum crash_event event;
    const char *cells;
};
enum { CRASH_REPLICA_ROWS = 16 };
extern const struct crash_replica_row crash_replica_rows[CRASH_REPLICA_ROWS];
struct crash_expect crash_replica_expect(const struct crash_replica_row *row, unsigned stage_index);

#endif
