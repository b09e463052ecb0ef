/* SPDX-License-Identifier: Apache-2.0 */
/* The Route object of the API, and what is built around it. Hand-written, for it is the hot path.
 * Any thread. */
#ifndef API_ROUTE_JSON_H
#define API_ROUTE_JSON_H

#include "api/json.h"
#include "directory/directory.h"
#include "directory/store.h"

enum { API_ROUTE_MAX_AGE_MS = 30000 };

/* A route from wherever it comes, borrowed. */
struct route_image {
    const char *keyspace;
    uint64_t partition;
    dir_rev epoch, mod_revision;
    struct slice start, end; /* start of length 0: open; end meaningless when end_open */
    bool end_open, bounds_hex;
    uint8_t state;
    const char *authority;
    uint64_t rate_limit;
    uint64_t operation; /* that holds it, or 0 */
    uint8_t moving;     /* in which stage */
    unsigned replica_count;
    struct route_replica {
        const char *node, *address;
        uint8_t role;
    } replicas[DIR_REPLICAS_MAX];
};

void route_of_view(struct route_image *r,
                   const struct dir_view *v,
                   const struct dir_keyspace *ks,
                   const struct dir_partition *p);
void route_of_result(struct route_image *r, const struct dir_route *route);
/* As it was. Whether a node of then was static is judged by the present view. */
void route_of_version(struct route_image *r,
                      const struct dir_view *v,
                      const struct dir_keyspace *ks,
                      const struct store_version *version);

/* {"keyspace":… without the closing brace: the caller adds members. */
void route_put_open(struct buf *b, const struct route_image *r);
void route_put(struct buf *b, const struct route_image *r);
/* "P-E-V" with its quotes. */
#define ROUTE_ETAG_SIZE 72
void route_etag(const struct route_image *r, char out[ROUTE_ETAG_SIZE]);

/* A bound as the keyspace writes it, quoted. */
void bound_put(struct buf *b, bool hex, struct slice bound);
/* [Route,…] of a result. */
void routes_put(struct buf *b, const struct dir_result *r);
/* The present successors of a retired partition: [Route,…]. */
void successors_put(struct buf *b, const struct dir_view *v, const struct dir_tombstone *t);
/* Members that a partition has beyond its route, each with its comma. */
void partition_put_more(struct buf *b, const struct dir_partition *p);

#endif
