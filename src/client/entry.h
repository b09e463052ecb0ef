/* SPDX-License-Identifier: Apache-2.0 */
/* A cached route: one allocation, immutable but for when it was last confirmed. */
#ifndef CLIENT_ENTRY_H
#define CLIENT_ENTRY_H

#include "base/buf.h"
#include "client/cadastre.h"

#include <stdatomic.h>

enum {
    CL_BOUND_MAX = CADASTRE_KEY_MAX + 8, /* a routing key: a token, then the key */
    CL_REPLICAS_MAX = 64
};

struct cl_replica {
    struct slice node, address;
    enum cadastre_role role;
};

/* What an entry is made of; borrowed. */
struct cl_route {
    uint64_t partition, epoch, mod_revision, rate_limit, max_age_ms;
    enum cadastre_route_state state;
    enum cadastre_authority authority;
    struct slice start, end;
    bool end_open, has_primary;
    struct slice node, address;
    unsigned replica_count;
    struct cl_replica replicas[CL_REPLICAS_MAX];
};

struct cl_entry {
    _Atomic uint64_t seen_ms; /* by boot time, when it was last known to be right: not immutable */
    uint64_t partition, epoch, mod_revision;
    uint32_t rate_limit, max_age_ms;
    uint16_t start_len, end_len, replicas_len;
    uint8_t state, authority, replica_count, node_len, address_len;
    bool end_open;
    uint8_t bytes[]; /* start, node, address, end, replicas: role, node, address, with lengths */
};

struct cl_entry *cl_entry_new(const struct cl_route *route);
/* Where an entry was that can't be right any more and nothing better is known: `revision` is what
 * has been served there, so only what is newer may take its place. */
struct cl_entry *cl_gap_new(struct slice start, struct slice end, bool end_open, uint64_t revision);
struct cl_entry *cl_entry_copy(const struct cl_entry *e);

static inline struct slice cl_entry_start(const struct cl_entry *e)
{
    return slice_of(e->bytes, e->start_len);
}

static inline struct slice cl_entry_end(const struct cl_entry *e)
{
    return slice_of(e->bytes + e->start_len + e->node_len + e->address_len, e->end_len);
}

static inline bool cl_entry_is_gap(const struct cl_entry *e)
{
    return e->state == 0;
}

/* Is `key` below the entry's end? */
static inline bool cl_entry_reaches(const struct cl_entry *e, struct slice key)
{
    return e->end_open || slice_cmp(key, cl_entry_end(e)) < 0;
}

/* All but age_ms. */
void cl_entry_show(const struct cl_entry *e, struct cadastre_route *ret_route);
/* Writes up to `max`; returns how many there are. */
size_t
cl_entry_replicas(const struct cl_entry *e, struct cadastre_replica *ret_replicas, size_t max);

#endif
