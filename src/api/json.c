/* SPDX-License-Identifier: Apache-2.0 */
/* JSON out. */
#include "api/json.h"

#include "base/clock.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes that can't be in a string as they are. */
static bool must_escape(uint8_t c)
{
    return c < 0x20 || c == '"' || c == '\\';
}

static void put_escaped(struct buf *b, uint8_t c)
{
    static const char hex[] = "0123456789abcdef";
    static const char letters[] = "btn?fr"; /* of 8 to 13 */
    char text[6] = {'\\', (char)c, '0', '0', hex[c >> 4], hex[c & 15]};
    size_t len = 2;
    if (c >= 8 && c <= 13 && c != 11) {
        text[1] = letters[c - 8];
    } else if (c < 0x20) {
        text[1] = 'u';
        len = 6;
    }
    buf_put(b, text, len);
}

void json_put_string(struct buf *b, struct slice text)
{
    buf_put_u8(b, '"');
    size_t from = 0;
    for (size_t i = 0; i < text.len; i++) {
        if (must_escape(text.data[i])) {
            buf_put(b, text.data + from, i - from);
            put_escaped(b, text.data[i]);
            from = i + 1;
        }
    }
    if (text.len > from) {
        buf_put(b, text.data + from, text.len - from);
    }
    buf_put_u8(b, '"');
}

void json_put_cstring(struct buf *b, const char *text)
{
    json_put_string(b, slice_of(text, strlen(text)));
}

void json_put_bool(struct buf *b, bool v)
{
    buf_put_str(b, v ? "true" : "false");
}

void json_put_time(struct buf *b, uint64_t wall_ms)
{
    char text[CLOCK_RFC3339_SIZE];
    clock_rfc3339(wall_ms, text);
    json_put_cstring(b, text);
}

/* --- canonical form --- */

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void put_object(struct buf *b, const json_t *object)
{
    size_t count = json_object_size(object), n = 0;
    const char **names = mem_alloc(count * sizeof *names);
    /* Iterators are of objects that may change; this one does not. */
    json_t *walk = (json_t *)(uintptr_t)object;
    for (void *i = json_object_iter(walk); i != NULL; i = json_object_iter_next(walk, i)) {
        names[n++] = json_object_iter_key(i);
    }
    qsort(names, n, sizeof *names, by_name);
    buf_put_u8(b, '{');
    for (size_t i = 0; i < n; i++) {
        if (i > 0) {
            buf_put_u8(b, ',');
        }
        json_put_cstring(b, names[i]);
        buf_put_u8(b, ':');
        json_put_canonical(b, json_object_get(object, names[i]));
    }
    buf_put_u8(b, '}');
    mem_free(names);
}

static void put_array(struct buf *b, const json_t *array)
{
    buf_put_u8(b, '[');
    for (size_t i = 0; i < json_array_size(array); i++) {
        if (i > 0) {
            buf_put_u8(b, ',');
        }
        json_put_canonical(b, json_array_get(array, i));
    }
    buf_put_u8(b, ']');
}

/* Reads back to the same double, and as a real. */
static void put_real(struct buf *b, double v)
{
    char text[40];
    int n = snprintf(text, sizeof text, "%.17g", v);
    buf_put(b, text, (size_t)n);
    if (strpbrk(text, ".e") == NULL) {
        buf_put_str(b, ".0");
    }
}

void json_put_canonical(struct buf *b, const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        put_object(b, value);
        break;
    case JSON_ARRAY:
        put_array(b, value);
        break;
    case JSON_STRING:
        json_put_string(b, slice_of(json_string_value(value), json_string_length(value)));
        break;
    case JSON_INTEGER:
        buf_printf(b, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        break;
    case JSON_REAL:
        put_real(b, json_real_value(value));
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        json_put_bool(b, json_is_true(value));
        break;
    case JSON_NULL:
        buf_put_str(b, "null");
        break;
    }
}
