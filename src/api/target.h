/* SPDX-License-Identifier: Apache-2.0 */
/* Request targets, parsed once and strictly: what could be read in two ways is refused, nothing is
 * normalised. In a query `+` is a plus sign; any byte, NUL too, may come escaped in a value. */
#ifndef API_TARGET_H
#define API_TARGET_H

#include "api/exchange.h"

struct target {
    struct slice segments[API_PATH_SEGMENTS_MAX]; /* unescaped; "/" has none */
    unsigned segment_count; /* API_PATH_SEGMENTS_MAX + 1: more than any route has */
    struct api_param *params;
    unsigned param_count;
};

/* Parses `text` (not NUL-terminated), unescaping in place: the segments and parameters point into
 * it. `params` holds API_PARAMS_MAX. ERR_INVALID_REQUEST saying what is wrong. */
enum err_code target_parse(uint8_t *text,
                           size_t len,
                           struct api_param *params,
                           struct target *ret_target,
                           struct err *e) MUST_CHECK;

#endif
