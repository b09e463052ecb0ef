/* SPDX-License-Identifier: Apache-2.0 */
/* JSON out: appended to a buf by hand, because building trees costs tens of times more. JSON in:
 * jansson, made strict (duplicates, nesting, trailing bytes, NaN, floats for integers are refused,
 * naming the field by JSON Pointer). */
#ifndef API_JSON_H
#define API_JSON_H

#include "base/buf.h"
#include "base/err.h"

#include <jansson.h>

/* --- out --- */
/* A quoted string; `text` must be UTF-8. Control bytes, quote and backslash are escaped. */
void json_put_string(struct buf *b, struct slice text);
void json_put_cstring(struct buf *b, const char *text);
void json_put_bool(struct buf *b, bool v);
/* "2026-…Z" in quotes. */
void json_put_time(struct buf *b, uint64_t wall_ms);

/* --- in --- */
enum { JSON_DEPTH_MAX = 32 };

/* Parses a whole body that must be one JSON object. The caller json_decref()s. NULL: `e` is
 * ERR_INVALID_REQUEST with pointer. */
json_t *json_parse_object(struct slice body, struct err *e) MUST_CHECK;

/* Reading members, each of a known type, in any order, nothing unknown left over:
 *
 *     struct json_in in;
 *     json_in_open(&in, object, "", e);
 *     name = json_in_name(&in, "name", true);
 *     n = json_in_u64(&in, "partitions", false, 0, DIR_PARTITIONS_MAX, &has_n);
 *     return json_in_close(&in);        // ERR_OK, or the first thing wrong, with its pointer
 *
 * After the first error all calls give zero values. */
struct json_in {
    json_t *object;
    char base[64];
    struct err *e;
    enum err_code code;
    size_t taken; /* members asked for and present */
    const char *asked[48];
    unsigned asked_count;
};

void json_in_open(struct json_in *in, json_t *object, const char *base_pointer, struct err *e);
/* `given` is a member of what `outer` reads, or element `i` of one that is an array. */
void json_in_open_member(struct json_in *in,
                         const struct json_in *outer,
                         json_t *given,
                         const char *member);
void json_in_open_element(struct json_in *in,
                          const struct json_in *outer,
                          json_t *given,
                          const char *member,
                          size_t i);
/* Borrowed from the object; {NULL, 0} when absent. May hold NUL bytes. */
struct slice
json_in_string(struct json_in *in, const char *member, bool required, size_t min, size_t max);
/* A string that is a name ([a-z0-9]([a-z0-9._-]{0,62})). */
struct slice json_in_name(struct json_in *in, const char *member, bool required);
uint64_t json_in_u64(struct json_in *in,
                     const char *member,
                     bool required,
                     uint64_t min,
                     uint64_t max,
                     bool *ret_present);
bool json_in_bool(struct json_in *in, const char *member, bool required, bool *ret_present);
/* One of `names` (NULL-terminated); its index, or `absent`. */
int json_in_enum(struct json_in *in,
                 const char *member,
                 bool required,
                 const char *const *names,
                 int absent);
json_t *json_in_object(struct json_in *in, const char *member, bool required);
json_t *
json_in_array(struct json_in *in, const char *member, bool required, size_t min, size_t max);
/* Whether the member is there as null (merge-patch); taken if so. */
bool json_in_null(struct json_in *in, const char *member);
/* Says what is wrong with a member after reading it. */
void json_in_fail(struct json_in *in, const char *member, enum err_code code, const char *fmt, ...)
    PRINTF_LIKE(4, 5);
enum err_code json_in_close(struct json_in *in) MUST_CHECK;

/* A canonical form (sorted members, no blanks) for storing and comparing; appended. */
void json_put_canonical(struct buf *b, const json_t *value);

#endif
