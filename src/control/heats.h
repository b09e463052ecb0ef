/* SPDX-License-Identifier: Apache-2.0 */
/* The heat map of this server, for all threads: balancer/heat.h behind a lock, with columns that
 * follow the directory's partitions. */
#ifndef CONTROL_HEATS_H
#define CONTROL_HEATS_H

#include "balancer/heat.h"
#include "directory/view.h"

struct heats; /* opaque */
struct heats *heats_new(void);
void heats_free(struct heats *h);

/* A sample of a primary that counts. Not on the loop: a keyspace's columns are chosen anew now and
 * then, which looks at all of its partitions. */
void heats_put(struct heats *h,
               const struct dir_view *v,
               const struct dir_partition *p,
               const struct load_sample *s,
               uint64_t now_ms);
/* As heat_read() of a resource; with `filter` as heat_read_part(), with `by` as heat_read_by(). */
struct heats_ask {
    uint64_t keyspace;
    unsigned resource;
    const struct heat_filter *filter; /* NULL: none */
    const struct heat_by *by;         /* NULL: by key range */
    uint64_t from_ms, to_ms;
};
bool heats_read(struct heats *h, const struct heats_ask *ask, struct heat_map *ret);
uint64_t heats_bytes(struct heats *h);

#endif
