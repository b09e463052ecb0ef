/* SPDX-License-Identifier: Apache-2.0 */
/* What partitions lack, and how far a drain is, as JSON: by the same function that the leader goes
 * by, over the view that is read. */
#ifndef API_REPAIR_JSON_H
#define API_REPAIR_JSON_H

#include "api/handlers.h"
#include "directory/repair.h"

/* Any server counts a node as gone by log time; the leader, which acts, by its own clock. */
struct repair *repair_json_open(const struct dir_view *v);
/* Milliseconds of log time, as far as it is known to have passed. */
uint64_t repair_json_now(const struct dir_view *v);
/* An object: what is wrong with the partition, and the next step or why there is none. */
void repair_json_put(struct buf *b,
                     const struct dir_view *v,
                     const struct dir_partition *p,
                     const struct repair_step *s);
/* The member "drain" of a node that drains, with its comma before; nothing of another. */
void repair_json_put_drain(struct buf *b, const struct dir_view *v, const struct dir_node *n);

#endif
