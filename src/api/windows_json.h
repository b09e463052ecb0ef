/* SPDX-License-Identifier: Apache-2.0 */
/* The balancer's windows as JSON. */
#ifndef API_WINDOWS_JSON_H
#define API_WINDOWS_JSON_H

#include "api/json.h"
#include "control/windows.h"
#include "directory/directory.h"

/* "windows":[…], with a comma at the end; whether each is open at `wall_ms` too. */
void windows_put_json(struct buf *b, const struct windows *w, uint64_t wall_ms);

struct window_list {
    Cadastre__BalancerWindow values[DIR_WINDOWS_MAX], *of[DIR_WINDOWS_MAX];
};
/* Takes the member "windows" of a merge-patch: the whole list, null for none; `into` points into
 * `list` and borrows texts of the JSON. Zones that are not known here are refused. Errors are in
 * `in`. */
void windows_read_json(struct json_in *in, struct window_list *list, Cadastre__BalancerPatch *into);

#endif
