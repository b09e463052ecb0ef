/* SPDX-License-Identifier: Apache-2.0 */
/* Commands of nodes that have agents, on a world, for tests. */
#ifndef TESTS_AGENTS_H
#define TESTS_AGENTS_H

#include "tests/harness/world.h"

/* Registers a leased node. `previous` 0: none is named. */
const struct dir_result *agent_put(struct world *w, const char *name, uint64_t previous);
/* With the copies that its data directory holds: `count` pairs of partition and copy, of "orders".
 */
const struct dir_result *
agent_put_copies(struct world *w, const char *name, const uint64_t (*copies)[2], size_t count);
const struct dir_result *
agent_end(struct world *w, const char *name, uint64_t session, bool released);
const struct dir_result *
agent_insync(struct world *w, const struct dir_partition *p, uint64_t session, const char *name);
const struct dir_result *
agent_failover(struct world *w, uint64_t partition, const char *to, bool accept_loss);
const struct dir_result *
agent_schedule(struct world *w, const char *name, Cadastre__SchedulingVerb verb);
/* A range keyspace "orders" of one partition with this many sync replicas. */
void agent_keyspace(struct world *w, uint32_t sync);
/* Leased nodes n1 to n3, and a range keyspace "k" of one partition, which is n1's. */
void agent_three(struct world *w);
const struct dir_node *agent_node(const struct world *w, const char *name);
/* Its only partition, or the one at `key`. */
const struct dir_partition *agent_partition(const struct world *w, const char *key);

#endif
