/* SPDX-License-Identifier: Apache-2.0 */
/* A node's part in the stages of a move: as the source S or as the destination D. */
#ifndef SHARDKV_MOVE_H
#define SHARDKV_MOVE_H

#include "examples/shardkv/node.h"

/* Does what the task (of kind STAGE or FENCE) asks for and reports it; returns early when a later
 * task of the partition has come. On a worker. */
void move_stage(struct node *n, const struct job *job);

/* What S sends to D: changes after its entry (*epoch_at, after), as peer_read_changes() takes them.
 * The caller frees the text. NULL: S is not the primary at this epoch, or has another entry there,
 * of the epoch that `*epoch_at` then is (0: none). */
char *
move_changes(struct part *p, uint64_t epoch, uint64_t after, uint64_t *epoch_at, uint64_t upto);
/* 16 hex digits and a NUL. */
void move_checksum(const char *bytes, size_t len, char *out);

#endif
