/* SPDX-License-Identifier: Apache-2.0 */
/* The files that a node's copies are in: which to open, which to make of others, which to delete.
 */
#ifndef SHARDKV_COPY_H
#define SHARDKV_COPY_H

#include "examples/shardkv/node.h"

enum { COPY_PATH_SIZE = 1024 };

/* Opens the copy that the grant names. False: not yet, or this node does not have what it is
 * thought to have. On the agent's thread. */
bool copy_ready(struct node *n, struct part *p, const struct cadastre_task *grant);
/* Makes the copy of a grant's new partition from those of its parents. On a worker. */
void copy_derive(struct node *n, struct part *p, const struct cadastre_task *grant);
/* Carries out a cleanup and tells the directory. On a worker. */
void copy_clean(struct node *n, struct part *p, const struct cadastre_task *cleanup);
/* Deletes the files of retired partitions whose children are all here. */
void copy_collect(struct node *n);

struct copy_part {
    const char *name, *start, *end; /* of what is taken; end NULL: open */
};
/* A snapshot of some of the open copy, in a file of its own. `what` NULL: of all, and the one that
 * is there will do if the log still goes on from it. */
bool copy_snapshot(struct node *n,
                   struct part *p,
                   const struct copy_part *what,
                   struct kv_snapshot *ret);
/* Where it is. With `lock`. */
void copy_snapshot_path(const struct node *n, const struct part *p, char *out);
/* Deletes a snapshot that nobody asks for any more, and keeps the log long for one that is used. */
void copy_snapshot_age(struct node *n, struct part *p);

/* Where a copy is, into COPY_PATH_SIZE bytes. */
void copy_path(const struct node *n, const char *keyspace, uint64_t id, uint64_t copy, char *out);
uint64_t copy_now_ms(void);
void copy_pause_ms(uint64_t ms);

#endif
