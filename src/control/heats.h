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
/* The clock that rows are of, when the monotonic one is `now_ms`: see heats_set_clock(). */
uint64_t heats_clock(struct heats *h, uint64_t now_ms);
/* By that clock, as heat_read() of a resource; with `filter` as heat_read_part(), with `by` as
 * heat_read_by(). */
struct heats_ask {
    uint64_t keyspace;
    unsigned resource;
    const struct heat_filter *filter; /* NULL: none */
    const struct heat_by *by;         /* NULL: by key range */
    uint64_t from_ms, to_ms;
};
bool heats_read(struct heats *h, const struct heats_ask *ask, struct heat_map *ret);
uint64_t heats_bytes(struct heats *h);

/* Rows are of whole minutes of a clock that servers share, so that a follower's are its leader's:
 * this one's monotonic clock and `ahead_ms`. Before any row is put. */
void heats_set_clock(struct heats *h, uint64_t ahead_ms);
/* One page for a follower; `since_ms` is by the shared clock. */
void heats_put_page(struct heats *h,
                    const struct heat_page *page,
                    size_t enough,
                    uint64_t now_ms,
                    struct buf *b);
/* Takes one over, and the leader's clock if this one is no longer near it: then nothing that was
 * here stays. `*ret_clock_ms`: the shared clock when the page was made. */
bool heats_take_page(struct heats *h,
                     struct slice bytes,
                     uint64_t now_ms,
                     struct heat_page *page,
                     uint64_t *ret_clock_ms);

#endif
