/* SPDX-License-Identifier: Apache-2.0 */
/* What the planner remembers from round to round: how long nodes have been over or under, how noisy
 * they are, what moves delivered of what they promised, tokens. The caller keeps it; bal_plan is
 * given it and brings it up to date. Without it (a new leader) nothing wrong is planned, only
 * later. One thread at a time. */
#ifndef BALANCER_MEMORY_H
#define BALANCER_MEMORY_H

#include "balancer/fleet.h"

struct bal_proposal;
struct bal_settings;

enum {
    BAL_HISTORY_MAX = 4096
}; /* moves whose effect is yet to be measured; the oldest makes room */

struct bal_node_memory {
    uint64_t node;
    /* Since when all samples were; 0: the last one was not. */
    uint64_t over_ms[BAL_RESOURCES], under_ms;
    uint8_t relieving; /* a bit for each resource: sustained, until the low mark is reached */
    bool filling;
    bool touched; /* a move since the last sample of noise */
    uint8_t samples;
    uint64_t gained_ms, shed_ms; /* the last routine move in and out */
    bal_q32 level1, level2;      /* samples before: the last, the one before it */
    bal_q32 variance;
};

struct bal_partition_memory {
    uint64_t partition;
    uint64_t hot_ms;  /* since when above the split threshold */
    uint64_t cold_ms; /* since when it and its right neighbour may merge */
    uint64_t sibling; /* split off together */
    uint32_t run;     /* successive splits after which one side was as hot as before */
};

struct bal_past_move {
    uint64_t at_ms, partition, source, promised;
    uint8_t resource;
};

struct bal_memory {
    uint64_t started_ms, sigma_ms, tokens_ms, recovery_ms, heal_ms;
    uint64_t tokens, hot_tokens; /* in milliseconds of an hour: one move is 3 600 000 */
    bal_q32 rho, high;           /* high: the present mark, for those who watch */
    bal_q32 sigma;
    struct bal_node_memory *node; /* by id */
    uint32_t node_count;
    struct bal_partition_memory *partition; /* by id; only what is hot, cold or lately split */
    uint32_t partition_count;
    struct bal_past_move past[BAL_HISTORY_MAX];
    uint32_t past_first, past_count;
};

/* now_ms: when this planner starts. Allocated (the struct is large); free with bal_memory_free. */
struct bal_memory *bal_memory_new(uint64_t now_ms);
void bal_memory_free(struct bal_memory *m);
struct bal_memory *bal_memory_copy(const struct bal_memory *m);

/* A proposal was begun: tokens are spent, its effect will be measured. */
void bal_memory_began(struct bal_memory *m, const struct bal_proposal *p, uint64_t now_ms);

/* `parent` was split into two. */
void bal_memory_split(struct bal_memory *m, uint64_t parent, uint64_t left, uint64_t right);

/* The entry of a node or a partition, or NULL. */
struct bal_node_memory *bal_memory_node(const struct bal_memory *m, uint64_t node);
struct bal_partition_memory *bal_memory_partition(const struct bal_memory *m, uint64_t partition);

#endif
