/* SPDX-License-Identifier: Apache-2.0 */
/* The balancer's windows as JSON. */
#ifndef API_WINDOWS_JSON_H
#define API_WINDOWS_JSON_H

#include "api/handlers.h"
#include "control/windows.h"

/* "windows":[…], with a comma at the end; whether each is open at `wall_ms` too. */
void windows_put_json(struct buf *b, const struct windows *w, uint64_t wall_ms);

struct window_list {
    Cadastre__BalancerWindow values[DIR_WINDOWS_MAX], *of[DIR_WINDOWS_MAX];
};
/* Takes the member "windows" of a merge-patch: the whole list, null for none. Zones that this
 * server does not know are refused. Errors are in m->in. */
void windows_read_json(struct mutation *m, struct window_list *list, Cadastre__BalancerPatch *into);

#endif
