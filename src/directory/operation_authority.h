/* SPDX-License-Identifier: Apache-2.0 */
/* Who may write while an operation is under way, whether it can still be taken back, and what a
 * person may ask of it now. Read from a view: any thread. */
#ifndef DIRECTORY_OPERATION_AUTHORITY_H
#define DIRECTORY_OPERATION_AUTHORITY_H

#include "directory/view.h"

/* What an abort would do. */
enum dir_way_back {
    DIR_WAY_BACK_DISCARD,   /* the candidate goes, epoch and authority stay */
    DIR_WAY_BACK_NEW_EPOCH, /* as well, but a fence is lifted: the source gets a new epoch */
    DIR_WAY_BACK_IMPOSSIBLE
};

/* What comes of it when those who take part die or restart now. */
enum dir_recovery {
    DIR_RECOVERY_RESUME,  /* it goes on with the copy that is there */
    DIR_RECOVERY_DISCARD, /* what was copied is worth nothing: it is being deleted, or will be */
    DIR_RECOVERY_STAY,    /* authority stays where it is */
    DIR_RECOVERY_FORWARD  /* only the destination can have it, or has it */
};

enum dir_nobody {
    DIR_NOBODY_NOT_SO,   /* somebody has it */
    DIR_NOBODY_LAPSED,   /* the primary lapsed, and nobody could follow */
    DIR_NOBODY_UNPLACED, /* it never had a primary */
    DIR_NOBODY_RETIRED,  /* the partition was split or merged */
    DIR_NOBODY_REMOVED   /* with its keyspace */
};

enum dir_verb {
    DIR_VERB_ABORT = 1 << 0,
    DIR_VERB_RETRY = 1 << 1,
    DIR_VERB_FINISH_VALIDATION = 1 << 2,
    DIR_VERB_FINISH_VALIDATION_BACK = 1 << 3,
    DIR_VERB_PROMOTE_CANDIDATE = 1 << 4,
    DIR_VERB_LAST = DIR_VERB_PROMOTE_CANDIDATE
};

struct operation_authority {
    const struct dir_node *node; /* who has it, borrowed from the view; NULL: nobody */
    enum dir_nobody nobody;
    uint64_t session;  /* that it is granted to */
    bool session_live; /* else it has ended, and is released once its lease is surely over */
    bool fenced;       /* it has to refuse writes */
    dir_rev epoch;     /* of the partition; 0 when that is gone */
    bool past_cutover;
    enum dir_way_back way_back;
    enum dir_recovery recovery;
    unsigned verbs; /* of enum dir_verb: those that apply would take and that would change it */
    char why[512];  /* a sentence for a person */
};

/* `o` is of this view. Asks apply itself, on a copy, what it would answer to each verb. */
void operation_authority_of(const struct dir_view *v,
                            const struct dir_operation *o,
                            struct operation_authority *ret);

/* D has the authority, or counts as a copy: nothing can be taken back any more. */
static inline bool operation_past_cutover(const struct dir_operation *o)
{
    return (o->stage >= DIR_STAGE_JOIN && o->stage <= DIR_STAGE_CLEANUP) ||
           o->state == DIR_OPERATION_DONE || o->state == DIR_OPERATION_FAILED;
}

const char *dir_way_back_name(enum dir_way_back way_back); /* "new_epoch" */
const char *dir_recovery_name(enum dir_recovery recovery);
const char *dir_nobody_name(enum dir_nobody nobody);
const char *dir_verb_name(enum dir_verb verb); /* "finish-validation" */

#endif
