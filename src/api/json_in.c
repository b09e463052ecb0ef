/* SPDX-License-Identifier: Apache-2.0 */
/* JSON in: checked by api/scan.h, which knows where each thing is, then read by jansson. */
#include "api/json.h"
#include "api/scan.h"

#include "base/assert.h"
#include "base/parse.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static enum err_code check(struct slice body, struct err *e)
{
    struct scan s;
    scan_open(&s, body, true);
    enum scan_event event = scan_next(&s);
    enum err_code code = ERR_OK;
    if (event != SCAN_OBJECT && event != SCAN_ERROR) {
        code = err_set(e, ERR_INVALID_REQUEST, "the body must be a JSON object");
    }
    while (code == ERR_OK && event != SCAN_END) {
        if (event == SCAN_ERROR) {
            code = scan_error(&s, e);
        } else {
            event = scan_next(&s);
        }
    }
    scan_close(&s);
    return code;
}

json_t *json_parse_object(struct slice body, struct err *e)
{
    if (body.len == 0) {
        (void)err_set(e, ERR_INVALID_REQUEST, "the body is empty; it must be a JSON object");
        return NULL;
    }
    if (check(body, e) != ERR_OK) {
        return NULL;
    }
    json_error_t why;
    json_t *object = json_loadb((const char *)body.data, body.len, JSON_ALLOW_NUL, &why);
    if (object == NULL) {
        (void)err_set(e, ERR_INVALID_REQUEST, "the JSON is not valid at byte %d: %s", why.position,
                      why.text);
    }
    return object;
}

/* --- members --- */

void json_in_open(struct json_in *in, json_t *object, const char *base_pointer, struct err *e)
{
    *in = (struct json_in){.object = object, .e = e, .code = ERR_OK};
    (void)snprintf(in->base, sizeof in->base, "%s", base_pointer);
    if (!json_is_object(object)) {
        in->code = err_set_at(e, ERR_INVALID_REQUEST, in->base, "must be an object");
    }
}

void json_in_open_member(struct json_in *in,
                         const struct json_in *outer,
                         json_t *given,
                         const char *member)
{
    char pointer[sizeof outer->base];
    (void)snprintf(pointer, sizeof pointer, "%.32s/%.30s", outer->base, member);
    json_in_open(in, given, pointer, outer->e);
}

void json_in_open_element(struct json_in *in,
                          const struct json_in *outer,
                          json_t *given,
                          const char *member,
                          size_t i)
{
    char pointer[sizeof outer->base];
    (void)snprintf(pointer, sizeof pointer, "%.24s/%.16s/%zu", outer->base, member, i);
    json_in_open(in, given, pointer, outer->e);
}

void json_in_fail(struct json_in *in, const char *member, enum err_code code, const char *fmt, ...)
{
    char pointer[sizeof in->e->pointer], detail[sizeof in->e->detail];
    va_list args;
    if (in->code != ERR_OK) {
        return;
    }
    (void)snprintf(pointer, sizeof pointer, "%s", in->base);
    scan_pointer_add(pointer, sizeof pointer, slice_of(member, strlen(member)));
    va_start(args, fmt);
    (void)vsnprintf(detail, sizeof detail, fmt, args);
    va_end(args);
    in->code = err_set_at(in->e, code, pointer, "%s", detail);
}

/* The member, of the type that it must have; NULL when absent or after an error. */
static json_t *
take(struct json_in *in, const char *member, bool required, json_type type, const char *type_name)
{
    if (in->code != ERR_OK) {
        return NULL;
    }
    ASSERT(in->asked_count < sizeof in->asked / sizeof in->asked[0]);
    in->asked[in->asked_count++] = member;
    json_t *value = json_object_get(in->object, member);
    if (value == NULL) {
        if (required) {
            json_in_fail(in, member, ERR_INVALID_REQUEST, "is required");
        }
        return NULL;
    }
    in->taken++;
    bool same = type == JSON_TRUE ? json_is_boolean(value) : json_typeof(value) == type;
    if (!same) {
        json_in_fail(in, member, ERR_INVALID_REQUEST, "must be %s", type_name);
        return NULL;
    }
    return value;
}

struct slice
json_in_string(struct json_in *in, const char *member, bool required, size_t min, size_t max)
{
    const json_t *v = take(in, member, required, JSON_STRING, "a string");
    if (v == NULL) {
        return slice_of(NULL, 0);
    }
    struct slice text = slice_of(json_string_value(v), json_string_length(v));
    if (text.len < min || text.len > max) {
        json_in_fail(in, member, ERR_INVALID_REQUEST, "must have %zu to %zu bytes", min, max);
        return slice_of(NULL, 0);
    }
    return text;
}

struct slice json_in_name(struct json_in *in, const char *member, bool required)
{
    const json_t *v = take(in, member, required, JSON_STRING, "a string");
    if (v == NULL) {
        return slice_of(NULL, 0);
    }
    struct slice text = slice_of(json_string_value(v), json_string_length(v));
    if (!parse_is_name(text)) {
        json_in_fail(in, member, ERR_INVALID_REQUEST,
                     "must be a name: [a-z0-9]([a-z0-9._-]{0,62})");
        return slice_of(NULL, 0);
    }
    return text;
}

uint64_t json_in_u64(struct json_in *in,
                     const char *member,
                     bool required,
                     uint64_t min,
                     uint64_t max,
                     bool *ret_present)
{
    const json_t *v = take(in, member, required, JSON_INTEGER, "an integer");
    if (ret_present != NULL) {
        *ret_present = false;
    }
    if (v == NULL) {
        return 0;
    }
    json_int_t n = json_integer_value(v);
    if (n < 0 || (uint64_t)n < min || (uint64_t)n > max) {
        json_in_fail(in, member, ERR_INVALID_REQUEST, "must be from %" PRIu64 " to %" PRIu64, min,
                     max);
        return 0;
    }
    if (ret_present != NULL) {
        *ret_present = true;
    }
    return (uint64_t)n;
}

bool json_in_bool(struct json_in *in, const char *member, bool required, bool *ret_present)
{
    const json_t *v = take(in, member, required, JSON_TRUE, "true or false");
    if (ret_present != NULL) {
        *ret_present = v != NULL;
    }
    return json_is_true(v);
}

int json_in_enum(struct json_in *in,
                 const char *member,
                 bool required,
                 const char *const *names,
                 int absent)
{
    const json_t *v = take(in, member, required, JSON_STRING, "a string");
    char list[256] = "";
    if (v == NULL) {
        return absent;
    }
    for (int i = 0; names[i] != NULL; i++) {
        if (strlen(names[i]) == json_string_length(v) &&
            strcmp(names[i], json_string_value(v)) == 0) {
            return i;
        }
        size_t len = strlen(list);
        (void)snprintf(list + len, sizeof list - len, "%s%s", i > 0 ? ", " : "", names[i]);
    }
    json_in_fail(in, member, ERR_INVALID_REQUEST, "must be one of %s", list);
    return absent;
}

json_t *json_in_object(struct json_in *in, const char *member, bool required)
{
    return take(in, member, required, JSON_OBJECT, "an object");
}

json_t *json_in_array(struct json_in *in, const char *member, bool required, size_t min, size_t max)
{
    json_t *v = take(in, member, required, JSON_ARRAY, "an array");
    if (v != NULL && (json_array_size(v) < min || json_array_size(v) > max)) {
        json_in_fail(in, member, ERR_INVALID_REQUEST, "must have %zu to %zu elements", min, max);
        return NULL;
    }
    return v;
}

bool json_in_null(struct json_in *in, const char *member)
{
    if (in->code != ERR_OK || !json_is_null(json_object_get(in->object, member))) {
        return false;
    }
    return take(in, member, false, JSON_NULL, "null") != NULL;
}

static bool was_asked(const struct json_in *in, const char *name)
{
    for (unsigned i = 0; i < in->asked_count; i++) {
        if (strcmp(in->asked[i], name) == 0) {
            return true;
        }
    }
    return false;
}

enum err_code json_in_close(struct json_in *in)
{
    for (void *i = json_object_iter(in->object); i != NULL && in->code == ERR_OK;
         i = json_object_iter_next(in->object, i)) {
        const char *name = json_object_iter_key(i);
        if (!was_asked(in, name)) {
            json_in_fail(in, name, ERR_INVALID_REQUEST, "is not a member that is known here");
        }
    }
    return in->code;
}
