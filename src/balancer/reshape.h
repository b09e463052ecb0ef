/* SPDX-License-Identifier: Apache-2.0 */
/* What reshape.c (which partitions are hot or cold), split.c and merge.c share. */
#ifndef BALANCER_RESHAPE_H
#define BALANCER_RESHAPE_H

#include "balancer/internal.h"

/* The highest of a partition's loads, relative to where it would be split. */
bal_q32 bal_heat(const struct bal_state *st, uint32_t p);

/* Two neighbours that together stay far below that. */
bool bal_cold_pair(const struct bal_state *st, uint32_t p);

/* What p's heat calls for; BAL_REASON_NONE: `ret` is to be proposed. */
enum bal_reason bal_split_of(const struct bal_state *st,
                             uint32_t p,
                             struct bal_partition_memory *m,
                             struct bal_proposal *ret);

/* BAL_REASON_NONE: p and its right neighbour may merge. BAL_REASON_CO_LOCATE: once they lie
 * together. */
enum bal_reason
bal_merge_of(const struct bal_state *st, uint32_t p, const struct bal_partition_memory *m);

/* Could they merge at all, or after one of them has moved? */
bool bal_may_pair(const struct bal_state *st, uint32_t p);

/* Is there any point in looking for merges? */
bool bal_merges_wanted(const struct bal_state *st);

struct bal_hot {
    bal_q32 heat;
    uint64_t tie;
    uint32_t partition, memory; /* indices */
};

void bal_split_hot(struct bal_state *st, struct bal_hot *hot, uint32_t count);
/* Have p and its right neighbour, cold since then, been so for long enough to merge? */
bool bal_cold_enough(const struct bal_state *st, uint32_t p, uint64_t cold_ms);
void bal_merge_cold(struct bal_state *st, const uint32_t *cold, uint32_t count);
void bal_check_groups(struct bal_state *st);

#endif
