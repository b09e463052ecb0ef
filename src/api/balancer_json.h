/* SPDX-License-Identifier: Apache-2.0 */
/* The balancer's settings as JSON: `mode`, and one object for each group of values. */
#ifndef API_BALANCER_JSON_H
#define API_BALANCER_JSON_H

#include "api/json.h"
#include "directory/balancer.h"

/* "mode":…, with a comma at the end; pause, idle and decisions too. `now_ms`: wall clock, which
 * says whether a pause is over. */
void balancer_put_settings(struct buf *b, const struct dir_view *v, uint64_t now_ms);

#endif
