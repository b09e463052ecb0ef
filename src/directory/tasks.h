/* SPDX-License-Identifier: Apache-2.0 */
/* What one node has to do and may do: a pure function of a view, so that any server answers it
 * alike. Any thread.
 *
 * A task is named by what it is about and carries the revision at which its content last changed:
 * asking again with `since` gives what is newer. What a node acts on, it checks against its own
 * (session, revision) first. */
#ifndef DIRECTORY_TASKS_H
#define DIRECTORY_TASKS_H

#include "directory/view.h"

enum dir_task_kind {
    /* The node holds a copy, in `role`. As primary, and only if `session` is its present session,
     * `fenced` is false and its lease runs, it may write at `epoch`. A primary's grant of another
     * session says what it will be granted once that session is released. */
    DIR_TASK_GRANT = 1,
    DIR_TASK_FENCE,  /* admit nothing more at `epoch`, then report in FENCE */
    DIR_TASK_REVOKE, /* this id is gone, or the node's copy of it is none any more: stop serving it
                      */
    DIR_TASK_STAGE,  /* its part in a stage of a running operation */
    DIR_TASK_CLEANUP /* delete `copy`, unless it is that of a grant or of a present candidate, then
                        complete the duty */
};

struct dir_task_peer {
    const struct dir_node *node;
    uint64_t session;
    uint8_t role; /* enum dir_role: SYNC, or JOINING of a destination */
};

/* Everything is borrowed from the view. 0 and NULL: not there. */
struct dir_task {
    enum dir_task_kind kind;
    dir_rev revision;
    const struct dir_keyspace *keyspace; /* NULL: removed; then only the name is known */
    const char *keyspace_name;
    const struct dir_partition
        *partition; /* NULL for revoke, and for a cleanup whose partition is gone */
    uint64_t partition_id;
    /* What it is about: the partition's range, or the part of it that moves. With `partition` only.
     */
    struct slice start, end;
    bool end_open;
    uint8_t role;   /* enum dir_role; of a stage task: 0 */
    bool is_source; /* of a stage task: the node is the source, else the destination */
    dir_rev epoch;
    uint64_t session; /* that the grant is for; of the others: the node's own */
    uint64_t copy;    /* id of the node's copy, of the candidate, or of what is to be deleted */
    bool fenced;
    uint32_t must_have_count; /* primary only */
    struct dir_task_peer must_have[DIR_REPLICAS_MAX];
    /* Of a grant: the epoch's first change. Of a stage: up to where the two sides' logs are the
     * same, where a move back begins, or a source follows. */
    uint64_t start_position;
    bool reverse; /* of a stage task in WINDOW: the destination feeds the source */
    const struct dir_operation *operation; /* stage, fence, the grant of a partition that one holds,
                                              and the cleanup that one waits for */
    const struct dir_node *peer;           /* the other side of the operation */
    uint64_t duty;                         /* cleanup: the id to complete */
};

/* Calls `fn` for each task of the node with a revision above `since`, in no particular order, until
 * it returns false. With `since` 0 all that holds, and no revokes: what is not named is not the
 * node's. Returns how many it called. */
uint64_t dir_tasks(const struct dir_view *v,
                   const struct dir_node *node,
                   dir_rev since,
                   bool (*fn)(void *arg, const struct dir_task *task),
                   void *arg);

/* "grant", "fence", …: the API's words. */
const char *dir_task_kind_name(enum dir_task_kind kind);

#endif
