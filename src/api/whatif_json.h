/* SPDX-License-Identifier: Apache-2.0 */
/* A what-if as JSON: the question, strictly read, and its answer. Also for `cadastre simulate
 * --from`, which asks without a server: pure, no HTTP. */
#ifndef API_WHATIF_JSON_H
#define API_WHATIF_JSON_H

#include "api/json.h"
#include "simulate/whatif.h"

/* ERR_INVALID_REQUEST with the pointer; then there is nothing to close. Borrows nothing from
 * `body`. */
enum err_code whatif_read(json_t *body, struct whatif *ret, struct err *e) MUST_CHECK;
/* `v` is the state that it began with. */
void whatif_put(struct buf *b,
                const struct dir_view *v,
                const struct whatif *w,
                const struct whatif_answer *a);

#endif
