/* SPDX-License-Identifier: Apache-2.0 */
/* The operation machine (docs/movement.md): one operation and its partition while a command changes
 * both. For src/directory/ alone.
 *
 * moving_open() takes copies, the moving_*() steps change them, moving_commit() puts them; each
 * command that is applied opens an operation at most once at a time. Every step checks nothing:
 * whoever calls it has. */
#ifndef DIRECTORY_OPERATION_H
#define DIRECTORY_OPERATION_H

#include "directory/internal.h"

struct moving {
    struct apply *a;
    const struct dir_partition *old; /* a reference */
    struct dir_operation *o;         /* owned until the commit */
    struct dir_partition *like;      /* of the partition as it will be, with these copies; owned */
    struct dir_replica replicas[DIR_REPLICAS_MAX];
    uint8_t replica_count;
    bool partition_changed;
    bool parts;        /* this command's cutover leaves new partitions behind */
    bool quiet_source; /* routers hear of the source's from somebody else */
    const char *by;    /* whose doing the stages are */
};

/* The partition's operation; it must have one. */
void moving_open(struct moving *m, struct apply *a, const struct dir_partition *p, const char *by);
/* Of one that has ended, on a partition that it does not hold (any more). */
void moving_open_again(struct moving *m,
                       struct apply *a,
                       const struct dir_operation *o,
                       const struct dir_partition *p);
/* Puts what changed. `quiet`: routers and counts are told by somebody who goes on changing the
 * partition. */
void moving_commit(struct moving *m, bool quiet);

/* Nothing of it happens. */
void moving_drop(struct moving *m);

/* Whether the stages are in [from, upto]. */
bool moving_in(const struct moving *m, enum dir_stage from, enum dir_stage upto);
/* D's copy among the replicas, or -1. */
int moving_copy(const struct moving *m, uint64_t node);
/* Has S lapsed with D joined? Then only forward is left. */
bool moving_only_forward(const struct moving *m);

void moving_enter(struct moving *m, enum dir_stage stage);
/* A new attempt at this stage; a fence is lifted by a new epoch. `discard`: the candidate is worth
 * nothing. Aborts when there were too many. */
void moving_back(struct moving *m, enum dir_stage stage, bool discard);
void moving_abort(struct moving *m, const char *code, const char *detail);
/* The same stage asks for something else: its sides are told. */
void moving_again(struct moving *m);
/* D is the primary, from `start_position` on. The point of no return. */
void moving_cutover(struct moving *m, uint64_t start_position);
/* D counts, and who leaves is gone. No authority changes hands. */
void moving_join(struct moving *m);
/* In WINDOW: done, and a move back begins with the source's copy. */
void moving_reverse(struct moving *m);
/* The source's copy is not needed any more. */
void moving_cleanup(struct moving *m);
void moving_attention(struct moving *m, const char *code, const char *detail);
void moving_fail(struct moving *m, const char *code, const char *detail);
/* Nobody is needed any more. */
void moving_calm(struct moving *m);
/* Aborted: another attempt from the beginning, with this source. It holds the partition again. */
void moving_queue_again(struct moving *m, uint64_t source);
/* Failed after its cutover: what it was to delete goes after all. */
void moving_cleanup_again(struct moving *m);

/* What a start asks for, or an operation that is to be tried again. */
struct operation_request {
    uint32_t kind, role;
    const struct dir_node *from, *to, *owner; /* or NULL */
    int from_at, to_at;                       /* their copies, or -1 */
    struct dir_part part;                     /* if set */
};
/* Fills in `owner` and the copies, and says whether all of it fits the partition as it is. */
enum err_code
operation_check(struct apply *a, struct dir_partition *p, struct operation_request *r) MUST_CHECK;
enum err_code operation_retry(struct apply *a, const struct dir_operation *o) MUST_CHECK;

/* A new row in QUEUED that holds the partition. */
struct dir_operation *operation_queue(struct apply *a,
                                      const struct dir_partition *p,
                                      const struct dir_operation *like,
                                      const char *reason);
const struct dir_operation *operation_of_partition(const struct dir_view *s,
                                                   const struct dir_partition *p);

/* The duty that its CLEANUP waits for, or NULL. */
const struct dir_duty *duty_of_operation(const struct dir_view *s, const struct dir_operation *o);
/* CLEANUP is over; writes of the old epoch fail it. */
void operation_cleaned(struct apply *a,
                       const struct dir_operation *o,
                       uint64_t old_epoch_writes,
                       uint64_t deleted_bytes);

/* --- operation_part.c: moves of a part --- */

/* The range that a start names, within p. Absent bounds are p's own. */
enum err_code
part_read(struct apply *a, const struct dir_partition *p, struct dir_part *out) MUST_CHECK;
/* Instead of the partition, the parts that it comes to: D's, and what S keeps. */
void part_put(struct moving *m);
/* The bounds of what a stage is about: the part's, or the partition's. */
bool part_bounds(const struct dir_operation *o,
                 const struct dir_partition *p,
                 struct slice *ret_start,
                 struct slice *ret_end);

/* --- check_operation.c: what is wrong, or NULL --- */
const char *check_partition_operation(const struct dir_view *v, const struct dir_partition *p);
const char *check_operation(const struct dir_view *v, const struct dir_operation *o);

/* --- what happens to sessions, seen from operations; each leaves the partition as state has it ---
 */

/* The node registered: `holds`: the copy that it has of p is still there. */
void operation_registered(struct apply *a,
                          const struct dir_partition *p,
                          const struct dir_node *n,
                          bool holds);
/* The node's present session has ended. */
void operation_session_ended(struct apply *a,
                             const struct dir_partition *p,
                             const struct dir_node *n);
/* Before the primary's own node gets p again, in a new session. */
void operation_regranted(struct apply *a, const struct dir_partition *p);
/* The primary lapsed: true when p went forward to the destination. */
bool operation_forward(struct apply *a, const struct dir_partition *p);
/* The primary lapsed and nobody follows. */
void operation_stranded(struct apply *a, const struct dir_partition *p);
/* The source has lapsed, the destination has every acknowledged write, and a person may say so. */
bool operation_may_promote(const struct dir_view *v,
                           const struct dir_operation *o,
                           const struct dir_partition *p);
/* Before anybody else gets p, and before a node of it is removed. `keep`: a candidate that may be
 * the only copy with every acknowledged write stays, as one that is not in sync. */
void operation_dropped(struct apply *a, const struct dir_partition *p, const char *code, bool keep);

#endif
