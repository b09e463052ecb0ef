/* SPDX-License-Identifier: Apache-2.0 */
/* The heat map as the API shows it: by key range, operation, outcome or tenant. Any thread. */
#ifndef API_HEAT_VIEW_H
#define API_HEAT_VIEW_H

#include "base/buf.h"
#include "control/heats.h"

/* The prefix up to the first '/', if all of the range (`open_end` NULL: open) lies in it; else
 * empty. */
struct slice heat_prefix(struct slice start, const struct slice *open_end);
/* Tenants by prefix: the group of each column that lies whole within one, else HEAT_NONE, and its
 * prefix (HEAT_COLUMNS_MAX of both; borrowed from the map). Returns how many groups. */
uint32_t heat_groups(const struct heat_map *m, uint32_t *group, struct slice *prefixes);
/* Makes the map one with a column for each such tenant and, last, one for what has none. `r`: what
 * it is of. */
void heat_by_prefix(struct heat_map *m, unsigned r);
/* Leaves nothing but what columns of the tenant have. */
void heat_of_prefix(struct heat_map *m, struct slice tenant);

/* "operation", … */
const char *heat_member(enum heat_name name);
/* What share of the last ten minutes' requests had which operation (outcome, tenant), as far as
 * reports told: a JSON array, the largest first. */
void heat_put_shares(struct buf *b,
                     struct heats *h,
                     uint64_t keyspace,
                     uint64_t now_ms,
                     enum heat_name name);

#endif
