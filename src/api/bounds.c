/* SPDX-License-Identifier: Apache-2.0 */
/* Partition bounds, as parameters and in bodies. */
#include "api/handlers.h"

#include "base/mem.h"
#include "directory/codec.h"

#include <stdio.h>
#include <string.h>

bool param_bounds(struct exchange *x, const struct dir_keyspace *ks, struct bounds *ret_bounds)
{
    const struct slice *start = exchange_param(x, "start"), *end = exchange_param(x, "end");
    struct err e;
    ret_bounds->start_len = 0;
    ret_bounds->end_len = 0;
    ret_bounds->end_open = end == NULL;
    if ((start != NULL && start->len > 0 &&
         dir_codec_decode_bound(ks, *start, ret_bounds->start, &ret_bounds->start_len, &e) !=
             ERR_OK) ||
        (end != NULL && end->len > 0 &&
         dir_codec_decode_bound(ks, *end, ret_bounds->end, &ret_bounds->end_len, &e) != ERR_OK)) {
        exchange_problem(x, &e, NULL, NULL);
        return false;
    }
    if (end != NULL && slice_cmp(slice_of(ret_bounds->start, ret_bounds->start_len),
                                 slice_of(ret_bounds->end, ret_bounds->end_len)) >= 0) {
        reply_problem(x, ERR_INVALID_REQUEST, "query parameter end must be above start");
        return false;
    }
    return true;
}

enum err_code bound_read(struct exchange *x,
                         const struct dir_keyspace *ks,
                         const json_t *text,
                         const char *pointer,
                         struct slice *ret,
                         struct err *e)
{
    uint8_t *key = exchange_alloc(x, DIR_ROUTING_KEY_MAX);
    size_t len = 0;
    struct slice given = slice_of(json_string_value(text), json_string_length(text));
    enum err_code code = json_is_string(text) ? dir_codec_decode_bound(ks, given, key, &len, e)
                                              : err_set(e, ERR_INVALID_REQUEST, "must be a string");
    if (code != ERR_OK) {
        (void)snprintf(e->pointer, sizeof e->pointer, "%s", pointer);
    }
    *ret = slice_of(key, len);
    return code;
}

struct slice *bounds_read(struct exchange *x,
                          const struct dir_keyspace *ks,
                          const json_t *array,
                          const char *member,
                          struct err *e)
{
    size_t n = json_array_size(array), bytes = 0;
    struct slice *bounds = exchange_alloc(x, (n + 1) * sizeof *bounds);
    uint8_t *at, key[DIR_ROUTING_KEY_MAX];
    for (size_t i = 0; i < n; i++) {
        const json_t *item = json_array_get(array, i);
        bytes += json_is_string(item) ? json_string_length(item) : 0;
    }
    at = exchange_alloc(x, bytes + 1);
    for (size_t i = 0; i < n; i++) {
        const json_t *item = json_array_get(array, i);
        size_t len = 0;
        enum err_code code;
        if (json_is_string(item)) {
            struct slice text = slice_of(json_string_value(item), json_string_length(item));
            code = dir_codec_decode_bound(ks, text, key, &len, e);
        } else {
            code = err_set(e, ERR_INVALID_REQUEST, "must be a string");
        }
        if (code != ERR_OK) {
            (void)snprintf(e->pointer, sizeof e->pointer, "/%s/%zu", member, i);
            return NULL;
        }
        memcpy(at, key, len);
        bounds[i] = slice_of(at, len);
        at += len;
    }
    return bounds;
}

ProtobufCBinaryData bytes_lent(struct slice s)
{
    union {
        const uint8_t *in;
        uint8_t *out;
    } data = {s.data};
    return (ProtobufCBinaryData){s.len, data.out};
}
