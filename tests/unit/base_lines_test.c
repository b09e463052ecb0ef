/* SPDX-License-Identifier: Apache-2.0 */
#include "base/lines.h"
#include "tests/harness/tap.h"

#include <string.h>

struct seen {
    struct buf text;
    unsigned stop_after; /* 0: never */
    unsigned count;
};

static bool on_line(void *arg, struct slice line)
{
    struct seen *s = arg;
    buf_printf(&s->text, "<%.*s>", (int)line.len, (const char *)line.data);
    return ++s->count != s->stop_after;
}

static bool on_event(void *arg, const char *name, struct slice data)
{
    struct seen *s = arg;
    buf_printf(&s->text, "%s=%.*s;", name, (int)data.len, (const char *)data.data);
    return ++s->count != s->stop_after;
}

static const char *text_of(struct seen *s)
{
    buf_put_u8(&s->text, '\0');
    return (const char *)s->text.data;
}

/* In pieces of every size, the same lines come out. */
static void splits_lines_however_they_arrive(void)
{
    static const char input[] = "one\n\ntwo\r\nthree\rfour\r\n\r\nrest";
    for (size_t piece = 1; piece <= sizeof input; piece++) {
        struct seen seen = {0};
        struct lines l;
        tap_note("pieces of %zu", piece);
        buf_init(&seen.text, 1024);
        lines_init(&l);
        for (size_t at = 0; at < sizeof input - 1; at += piece) {
            size_t left = sizeof input - 1 - at;
            CHECK(
                lines_feed(&l, slice_of(input + at, piece < left ? piece : left), on_line, &seen));
        }
        CHECK_STR(text_of(&seen), "<one><><two><three><four><>");
        CHECK(slice_eq(slice_of(l.partial.data, l.partial.len), slice_of("rest", 4)));
        lines_close(&l);
        buf_close(&seen.text);
    }
}

static void stops_when_told(void)
{
    struct seen seen = {.stop_after = 1};
    struct lines l;
    buf_init(&seen.text, 1024);
    lines_init(&l);
    CHECK(!lines_feed(&l, slice_of("a\nb\n", 4), on_line, &seen));
    CHECK_STR(text_of(&seen), "<a>");
    lines_close(&l);
    buf_close(&seen.text);
}

static void reads_events(void)
{
    static const char input[] =
        "retry: 250\n\n: beat\n\nid: 44\nevent: change\ndata: {\"a\":\ndata:1}\n\n"
        "data:  x\n\nid:45\nevent:change\n\nevent: reset\ndata\n\nid\ndata: y\n\n"
        "unknown: 1\nid: 46\nretry: soon\ndata: half";
    for (size_t piece = 1; piece <= sizeof input; piece++) {
        struct seen seen = {0};
        struct sse s;
        tap_note("pieces of %zu", piece);
        buf_init(&seen.text, 1024);
        sse_init(&s);
        for (size_t at = 0; at < sizeof input - 1; at += piece) {
            size_t left = sizeof input - 1 - at;
            CHECK(sse_feed(&s, slice_of(input + at, piece < left ? piece : left), on_event, &seen));
        }
        CHECK_STR(text_of(&seen), "change={\"a\":\n1};message= x;change=;reset=;message=y;");
        CHECK_U64(s.retry_ms, 250);
        CHECK_U64(s.comments, 1);
        CHECK_STR(s.id, "46");
        sse_close(&s);
        buf_close(&seen.text);
    }
}

static void a_new_connection_forgets_half_an_event(void)
{
    struct seen seen = {0};
    struct sse s;
    buf_init(&seen.text, 1024);
    sse_init(&s);
    CHECK(sse_feed(&s, slice_of("id: 7\nevent: change\ndata: ha", 28), on_event, &seen));
    sse_restart(&s);
    CHECK(sse_feed(&s, slice_of("data: whole\n\n", 13), on_event, &seen));
    CHECK_STR(text_of(&seen), "message=whole;");
    CHECK_STR(s.id, "7");
    sse_close(&s);
    buf_close(&seen.text);
}

int main(void)
{
    RUN(splits_lines_however_they_arrive);
    RUN(stops_when_told);
    RUN(reads_events);
    RUN(a_new_connection_forgets_half_an_event);
    return tap_done();
}
