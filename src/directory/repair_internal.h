/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of repair share. */
#ifndef DIRECTORY_REPAIR_INTERNAL_H
#define DIRECTORY_REPAIR_INTERNAL_H

#include "directory/internal.h"
#include "directory/repair.h"

enum repair_life { REPAIR_LIVE, REPAIR_AWAY, REPAIR_GONE };

/* A node, found by its id. */
struct repair_spot {
    const struct dir_node *node; /* borrowed from the view; NULL: free */
    uint64_t coming;             /* copies on their way to it that it does not hold yet */
    uint32_t order;              /* by name */
    uint8_t life;                /* enum repair_life */
};

enum { REPAIR_CLASSES = DIR_CLASS_UNAVAILABLE / 50 + 1 };

struct repair {
    const struct dir_view *v;
    struct repair_clock clock;
    struct repair_spot *spots; /* open addressing; owns */
    uint64_t cap;
    uint64_t queued[REPAIR_CLASSES], open;
    uint64_t cost;
    /* The values of one keyspace's spread label that its open nodes have, sorted; owns the array.
     * Of keyspace 0: none. */
    uint64_t values_of;
    dir_rev values_revision;
    const char **values;
    uint64_t value_count;
};

struct repair_copy {
    const struct dir_replica *replica;
    struct repair_spot *spot;
    const char *spread; /* its value of the spread label; "" without one */
    bool allowed;       /* by the hard rules */
};

/* A partition and its copies, in the order of its replicas. */
struct repair_tally {
    const struct dir_partition *p;
    const struct dir_keyspace *ks;
    struct repair_copy copies[DIR_REPLICAS_MAX];
    uint8_t sync_live, sync_away, async_live, async_away;
    uint8_t asked_sync, asked_async; /* of the live ones */
};

static inline uint64_t repair_load(const struct repair_spot *s)
{
    return s->node->partition_count + s->coming;
}

/* NULL when there is no such node. */
struct repair_spot *repair_spot(const struct repair *r, uint64_t node);
/* It may get a copy from an agent. */
bool repair_is_open(const struct repair_spot *s, const struct dir_keyspace *ks);
/* Some open node has a value of the spread label that none of these copies has, but for the one at
 * `without` (-1: none). */
bool repair_can_spread(struct repair *r, const struct repair_tally *t, int without);
PRINTF_LIKE(3, 4)
void repair_block(struct repair_step *s, const char *code, const char *fmt, ...);
void repair_tally(const struct repair *r, const struct dir_partition *p, struct repair_tally *t);

#endif
