/* SPDX-License-Identifier: Apache-2.0 */
/* Two readers of JSON over any bytes: ours takes what jansson takes, but for the limits that it
 * states, and sees the same in it. */
#include "api/json.h"
#include "api/scan.h"
#include "base/assert.h"
#include "base/mem.h"
#include "base/parse.h"
#include "tests/fuzz/target.h"

#include <string.h>

/* Whether a tree keeps the limits that scan.h states. */
static bool within_limits(const json_t *v, unsigned depth)
{
    const char *name;
    json_t *member;
    if (json_is_integer(v)) {
        json_int_t n = json_integer_value(v);
        return n <= (json_int_t)PARSE_INT_MAX && n >= -(json_int_t)PARSE_INT_MAX;
    }
    if ((json_is_array(v) || json_is_object(v)) && depth == JSON_DEPTH_MAX) {
        return false;
    }
    for (size_t i = 0; i < json_array_size(v); i++) {
        if (!within_limits(json_array_get(v, i), depth + 1)) {
            return false;
        }
    }
    if (json_object_size(v) > SCAN_MEMBERS_MAX) {
        return false;
    }
    json_object_foreach((json_t *)(uintptr_t)v, name, member)
    {
        if (!within_limits(member, depth + 1)) {
            return false;
        }
    }
    return true;
}

static struct slice text_of(const struct scan *s, uint8_t *out)
{
    size_t len = scan_copy(s, out, s->span.len);
    ASSERT(len <= s->span.len);
    return slice_of(out, len);
}

static void same_string(const struct scan *s, const json_t *v, uint8_t *scratch)
{
    struct slice ours = text_of(s, scratch);
    ASSERT(json_is_string(v));
    ASSERT(slice_eq(ours, slice_of(json_string_value(v), json_string_length(v))));
    ASSERT(parse_is_utf8(ours));
}

static void same_value(struct scan *s, enum scan_event event, const json_t *v, uint8_t *scratch);

static void same_members(struct scan *s, const json_t *v, uint8_t *scratch)
{
    size_t n = 0;
    enum scan_event event;
    while ((event = scan_next(s)) == SCAN_NAME) {
        struct slice name = text_of(s, scratch);
        const json_t *member = json_object_getn(v, (const char *)name.data, name.len);
        ASSERT(member != NULL);
        same_value(s, scan_next(s), member, scratch);
        n++;
    }
    ASSERT(event == SCAN_OBJECT_END && json_is_object(v) && json_object_size(v) == n);
}

static void same_elements(struct scan *s, const json_t *v, uint8_t *scratch)
{
    size_t n = 0;
    enum scan_event event;
    while ((event = scan_next(s)) != SCAN_ARRAY_END) {
        same_value(s, event, json_array_get(v, n++), scratch);
    }
    ASSERT(json_is_array(v) && json_array_size(v) == n);
}

/* The value at `event`, compared with jansson's; moves past it. */
static void same_value(struct scan *s, enum scan_event event, const json_t *v, uint8_t *scratch)
{
    if (event == SCAN_OBJECT) {
        same_members(s, v, scratch);
    } else if (event == SCAN_ARRAY) {
        same_elements(s, v, scratch);
    } else if (event == SCAN_STRING) {
        same_string(s, v, scratch);
    } else if (event == SCAN_INTEGER) {
        ASSERT(json_is_integer(v) && json_integer_value(v) == s->integer);
    } else if (event == SCAN_REAL) {
        ASSERT(json_is_real(v));
    } else {
        ASSERT((event == SCAN_TRUE && json_is_true(v)) ||
               (event == SCAN_FALSE && json_is_false(v)) ||
               (event == SCAN_NULL && json_is_null(v)));
    }
}

static bool scan_takes(struct slice text)
{
    struct scan s;
    struct err e;
    char pointer[96];
    enum scan_event event;
    scan_open(&s, text, true);
    while ((event = scan_next(&s)) != SCAN_END && event != SCAN_ERROR) {
        scan_pointer(&s, pointer, sizeof pointer);
        ASSERT(memchr(pointer, 0, sizeof pointer) != NULL);
    }
    if (event == SCAN_ERROR) {
        enum err_code code = scan_error(&s, &e);
        ASSERT(code == ERR_INVALID_REQUEST && e.detail[0] != '\0');
        ASSERT(parse_is_utf8(slice_of(e.pointer, strlen(e.pointer))));
    }
    scan_close(&s);
    return event == SCAN_END;
}

/* A number may be longer than we read, and jansson takes it; neither says so. */
static bool has_long_number(struct slice text)
{
    size_t run = 0;
    for (size_t i = 0; i < text.len; i++) {
        run = strchr("0123456789+-.eE", text.data[i]) != NULL && text.data[i] != 0 ? run + 1 : 0;
        if (run > SCAN_NUMBER_MAX) {
            return true;
        }
    }
    return false;
}

static void check_object(struct slice text, bool taken)
{
    struct err e;
    struct buf b, again;
    json_t *object = json_parse_object(text, &e);
    ASSERT((object != NULL) == taken);
    if (object == NULL) {
        return;
    }
    buf_init(&b, SIZE_MAX);
    buf_init(&again, SIZE_MAX);
    json_put_canonical(&b, object);
    json_t *reread = json_parse_object(slice_of(b.data, b.len), &e);
    ASSERT(reread != NULL && json_equal(reread, object));
    json_put_canonical(&again, reread);
    ASSERT(slice_eq(slice_of(b.data, b.len), slice_of(again.data, again.len)));
    json_decref(reread);
    json_decref(object);
    buf_close(&b);
    buf_close(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice text = slice_of(data, size);
    bool ours = scan_takes(text);
    json_t *theirs = json_loadb(size > 0 ? (const char *)data : "", size,
                                JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, NULL);
    if (ours) {
        struct scan s;
        uint8_t *scratch = mem_alloc(size + 1);
        ASSERT(theirs != NULL && within_limits(theirs, 0));
        scan_open(&s, text, true);
        same_value(&s, scan_next(&s), theirs, scratch);
        ASSERT(scan_next(&s) == SCAN_END);
        scan_close(&s);
        mem_free(scratch);
    } else if (theirs != NULL) {
        /* It passes over raw NUL bytes. */
        ASSERT(!within_limits(theirs, 0) || has_long_number(text) || memchr(data, 0, size) != NULL);
    }
    check_object(text, ours && json_is_object(theirs));
    json_decref(theirs);
    return 0;
}
