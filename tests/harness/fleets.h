/* SPDX-License-Identifier: Apache-2.0 */
/* Small fleets for tests of the planner: described in plain arrays that a test changes between
 * rounds, planned, and applied. */
#ifndef TESTS_HARNESS_FLEETS_H
#define TESTS_HARNESS_FLEETS_H

#include "balancer/plan.h"

enum { FLEETS_NODES_MAX = 64, FLEETS_PARTS_MAX = 2048 };
#define FLEETS_START_MS UINT64_C(10000000)

struct fleets {
    struct bal_settings settings;
    struct bal_node_spec node[FLEETS_NODES_MAX];
    struct bal_partition_spec part[FLEETS_PARTS_MAX];
    uint32_t nodes, parts;
    uint64_t now_ms;
    struct bal_memory *memory;
    struct bal_plan plan;
};

/* `nodes` of capacity 1000 (and 1 TiB), ids from 1, all in a zone and rack of their own label 0. */
struct fleets *fleets_new(uint32_t nodes);
void fleets_free(struct fleets *x);

/* A partition of one copy with this load of BAL_CPU and 1 MiB; its id is its place plus 1. */
struct bal_partition_spec *fleets_add(struct fleets *x, uint64_t load, uint64_t node);

/* Builds the fleet, in the order of `order` (of parts, NULL: as they are). */
void fleets_build(const struct fleets *x, struct bal_fleet *f, const uint32_t *order);

/* One round: x->plan. */
void fleets_plan(struct fleets *x);
/* Rounds of 30 s until `ms` have passed, nothing applied; the last one is in x->plan. */
void fleets_wait(struct fleets *x, uint64_t ms);
/* What was proposed is begun; `instantly` also done. */
void fleets_begin(struct fleets *x, bool instantly);
/* All that is under way arrives. */
void fleets_arrive(struct fleets *x);

/* The first proposal of the kind, or NULL. */
const struct bal_proposal *fleets_find(const struct fleets *x, enum bal_kind kind);
uint32_t fleets_count(const struct fleets *x, enum bal_kind kind);
struct bal_explanation fleets_explain(const struct fleets *x, uint64_t partition, uint64_t to);

#endif
