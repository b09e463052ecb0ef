/* SPDX-License-Identifier: Apache-2.0 */
/* The balancer's settings as JSON: `mode`, and one object for each group of values. */
#ifndef API_BALANCER_JSON_H
#define API_BALANCER_JSON_H

#include "api/json.h"
#include "directory/balancer.h"
#include "directory/directory.h"

/* "mode":…, with a comma at the end; pause, idle and decisions too. `now_ms`: wall clock, which
 * says whether a pause is over. */
void balancer_put_settings(struct buf *b, const struct dir_view *v, uint64_t now_ms);

/* A merge-patch, and what it points to: it lives where it was read. */
struct balancer_patch {
    Cadastre__BalancerPatch m;
    Cadastre__BudgetLimit limits[DIR_BUDGETS], *limit_of[DIR_BUDGETS];
    Cadastre__BalancerValue values[DIR_BALANCER_VALUES], *value_of[DIR_BALANCER_VALUES];
};
/* Takes its members; null is the default again. Errors are in `in`. */
void balancer_read_patch(struct json_in *in, struct balancer_patch *ret);

#endif
