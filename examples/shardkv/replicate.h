/* SPDX-License-Identifier: Apache-2.0 */
/* A primary and its copies: who must have a write, and how that changes. */
#ifndef SHARDKV_REPLICATE_H
#define SHARDKV_REPLICATE_H

#include "examples/shardkv/node.h"

/* Brings every node that must have it to `position`; true when all have it. A copy that fails for
 * DROP_MS is given up, by asking the directory. With the part's `writer`. */
bool replicate(struct node *n, struct part *p, uint64_t epoch, uint64_t position);

/* Brings copies that fell out back in sync, over and over, until the node stops. */
void *replicate_repair(void *node);

#endif
