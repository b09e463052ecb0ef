/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes with agents and labels, and operations that go well from beginning to end, on a world. */
#ifndef TESTS_MOVES_H
#define TESTS_MOVES_H

#include "tests/harness/agents.h"

#include "directory/repair.h"

/* Registers a leased node in a zone, with a disk ("" for none). */
const struct dir_result *
moves_node(struct world *w, const char *name, const char *zone, const char *disk);

/* A range keyspace whose partitions are split at "b", "c", …. `spread` and `disk` may be "". */
struct moves_wish {
    uint32_t sync, async, partitions;
    const char *spread, *disk;
};
void moves_keyspace(struct world *w, const char *name, const struct moves_wish *wish);
const struct dir_result *
moves_patch(struct world *w, const char *name, const struct moves_wish *wish);

/* What a leader would propose. */
const struct dir_result *
moves_start(struct world *w, const struct dir_partition *p, const struct repair_step *s);
/* Its agents report what goes well, until it has ended or nothing more can be reported. */
void moves_finish(struct world *w, uint64_t operation);
/* The same up to where it enters a stage. */
void moves_until(struct world *w, uint64_t operation, enum dir_stage stage_wanted);
/* Live agents delete what they owe. */
void moves_clean(struct world *w);

#endif
