/* SPDX-License-Identifier: Apache-2.0 */
#include "base/lines.h"

#include "base/parse.h"

#include <stdio.h>
#include <string.h>

void lines_init(struct lines *l)
{
    *l = (struct lines){0};
    buf_init(&l->partial, LINES_MAX);
}

void lines_close(struct lines *l)
{
    buf_close(&l->partial);
}

bool lines_feed(struct lines *l, struct slice bytes, lines_fn fn, void *arg)
{
    size_t begin = 0;
    for (size_t i = 0; i < bytes.len; i++) {
        uint8_t c = bytes.data[i];
        bool pair = l->after_cr && c == '\n';
        l->after_cr = c == '\r';
        if (pair) {
            begin = i + 1;
        } else if (c == '\n' || c == '\r') {
            buf_put(&l->partial, bytes.data + begin, i - begin);
            begin = i + 1;
            if (l->partial.overflow || !fn(arg, slice_of(l->partial.data, l->partial.len))) {
                return false;
            }
            buf_reset(&l->partial);
        }
    }
    buf_put(&l->partial, bytes.data + begin, bytes.len - begin);
    return !l->partial.overflow;
}

void sse_init(struct sse *s)
{
    *s = (struct sse){0};
    lines_init(&s->lines);
    buf_init(&s->data, LINES_MAX);
}

void sse_close(struct sse *s)
{
    lines_close(&s->lines);
    buf_close(&s->data);
}

void sse_restart(struct sse *s)
{
    buf_reset(&s->lines.partial);
    s->lines.after_cr = false;
    buf_reset(&s->data);
    s->name[0] = '\0';
}

struct feeding {
    struct sse *sse;
    sse_fn fn;
    void *arg;
};

static bool dispatch(const struct feeding *f)
{
    struct sse *s = f->sse;
    bool go_on = true;
    if (s->data.overflow) {
        return false;
    }
    if (s->data.len > 0 || s->name[0] != '\0') {
        /* Every data line ended in LF; the last one's is not part of the data. */
        const char *name = s->name[0] != '\0' ? s->name : "message";
        size_t len = s->data.len > 0 ? s->data.len - 1 : 0;
        go_on = f->fn(f->arg, name, slice_of(s->data.data, len));
    }
    buf_reset(&s->data);
    s->name[0] = '\0';
    return go_on;
}

static void take_field(struct sse *s, struct slice name, struct slice value)
{
    char text[SSE_ID_MAX + 1];
    if (slice_eq(name, slice_of("data", 4))) {
        buf_put(&s->data, value.data, value.len);
        buf_put_u8(&s->data, '\n');
        return;
    }
    if (value.len >= sizeof text ||
        (value.len > 0 && memchr(value.data, '\0', value.len) != NULL)) {
        return;
    }
    (void)snprintf(text, sizeof text, "%.*s", (int)value.len, (const char *)value.data);
    if (slice_eq(name, slice_of("id", 2))) {
        memcpy(s->id, text, sizeof s->id);
    } else if (slice_eq(name, slice_of("event", 5))) {
        (void)snprintf(s->name, sizeof s->name, "%s", text);
    } else if (slice_eq(name, slice_of("retry", 5))) {
        (void)parse_u64(text, 3600000, &s->retry_ms);
    }
}

static bool on_line(void *arg, struct slice line)
{
    const struct feeding *f = arg;
    if (line.len == 0) {
        return dispatch(f);
    }
    const uint8_t *colon = memchr(line.data, ':', line.len);
    size_t name_len = colon != NULL ? (size_t)(colon - line.data) : line.len;
    if (name_len == 0) {
        f->sse->comments++;
        return true;
    }
    size_t at = name_len + (colon != NULL);
    at += at < line.len && line.data[at] == ' ';
    take_field(f->sse, slice_of(line.data, name_len), slice_of(line.data + at, line.len - at));
    return true;
}

bool sse_feed(struct sse *s, struct slice bytes, sse_fn fn, void *arg)
{
    struct feeding f = {s, fn, arg};
    return lines_feed(&s->lines, bytes, on_line, &f);
}
