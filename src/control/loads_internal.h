/* SPDX-License-Identifier: Apache-2.0 */
/* What loads.c and summary.c share. */
#ifndef CONTROL_LOADS_INTERNAL_H
#define CONTROL_LOADS_INTERNAL_H

#include "control/loads.h"

#include <pthread.h>

enum { LOADS_SHARDS = LOADS_PAGES };

struct loads {
    struct {
        pthread_mutex_t lock;
        struct load *load;
    } shards[LOADS_SHARDS];
    struct heats *heats;      /* owns */
    pthread_mutex_t lock;     /* of what follows */
    struct loads_node *nodes; /* by id; owns */
    uint64_t count, cap;
    struct loads_pulls pulls;
};

/* The shard of a partition, locked. */
struct load *loads_enter(struct loads *l, uint64_t partition);
void loads_leave(struct loads *l, uint64_t partition);
/* Where a node is, or belongs; with the lock. */
uint64_t loads_find_node(const struct loads *l, uint64_t node);
bool loads_has_node(const struct loads *l, uint64_t at, uint64_t node);
void loads_insert_node(struct loads *l, uint64_t at);
/* Whether the node has a copy that is not the primary. */
bool loads_follows(const struct dir_partition *p, uint64_t node);

#endif
