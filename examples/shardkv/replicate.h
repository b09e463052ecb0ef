/* SPDX-License-Identifier: Apache-2.0 */
/* A primary and its copies: who must have a write, and how that changes. */
#ifndef SHARDKV_REPLICATE_H
#define SHARDKV_REPLICATE_H

#include "examples/shardkv/node.h"

enum { RETRY_MS = 20, ASK_MS = 2000 };

/* Brings every node that must have it to `position`; true when all have it. A copy that fails for
 * DROP_MS is given up, by asking the directory. With the part's `writer`. */
bool replicate(struct node *n, struct part *p, uint64_t epoch, uint64_t position);

/* Makes whole what fell behind, over and over, until the node stops (repair.c): a primary feeds the
 * copies that it need not wait for, and takes back as many in sync as the keyspace wants; a copy
 * that no log leads to fetches a snapshot. */
void *replicate_repair(void *node);

/* --- for repair.c; with the part's `writer` --- */

struct members {
    struct cadastre_member all[2 * MEMBERS_MAX];
    size_t count, ordered; /* the first `ordered` are those of the order in force */
    uint64_t revision;     /* of the order */
};
/* The order in force, and what was asked for and is not in it. False: the grant is over. */
bool replicate_members(struct part *p, uint64_t epoch, struct members *m);
/* Asks that all but `except` be in sync (or again for what was asked for, while that is open). */
void replicate_ask(struct node *n,
                   struct part *p,
                   uint64_t epoch,
                   const struct members *m,
                   size_t except);
bool replicate_has(const struct cadastre_member *all, size_t count, const char *node);
/* The primary's position when its epoch began. */
uint64_t replicate_start(struct part *p);

#endif
