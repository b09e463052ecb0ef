/* SPDX-License-Identifier: Apache-2.0 */
/* A node's part in the stages of a move: as the source S or as the destination D. */
#ifndef SHARDKV_MOVE_H
#define SHARDKV_MOVE_H

#include "examples/shardkv/node.h"

/* Does what the task (of kind STAGE or FENCE) asks for and reports it; returns early when a later
 * task of the partition has come. On a worker. */
void move_stage(struct node *n, const struct job *job);

#endif
