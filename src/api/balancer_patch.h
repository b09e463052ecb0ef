/* SPDX-License-Identifier: Apache-2.0 */
/* The balancer's settings as a merge-patch gives them. Pure, no HTTP. */
#ifndef API_BALANCER_PATCH_H
#define API_BALANCER_PATCH_H

#include "api/windows_json.h"
#include "directory/balancer.h"

/* A merge-patch, and what it points to: it lives where it was read, and no longer than the JSON,
 * of which it borrows the windows' texts. */
struct balancer_patch {
    Cadastre__BalancerPatch m;
    Cadastre__BudgetLimit limits[DIR_BUDGETS], *limit_of[DIR_BUDGETS];
    Cadastre__BalancerValue values[DIR_BALANCER_VALUES], *value_of[DIR_BALANCER_VALUES];
    struct window_list windows;
};
/* Takes its members; null is the default again. Errors are in `in`. */
void balancer_read_patch(struct json_in *in, struct balancer_patch *ret);

#endif
