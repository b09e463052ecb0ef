/* SPDX-License-Identifier: Apache-2.0 */
#include "api/scan.h"
#include "base/mem.h"
#include "base/parse.h"
#include "tests/harness/tap.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Walks it all. Returns the code; on error `e` tells. */
static enum err_code walk(struct slice text, struct err *e)
{
    struct scan s;
    enum scan_event event;
    scan_open(&s, text, true);
    while ((event = scan_next(&s)) != SCAN_END && event != SCAN_ERROR) {
    }
    enum err_code code = event == SCAN_ERROR ? scan_error(&s, e) : ERR_OK;
    scan_close(&s);
    return code;
}

static void events_in_order(void)
{
    static const char text[] = " {\"a\" : [1, -2, 3.5e1, true, false, null, "
                               "\"x\\n\\u00e9\\ud83d\\ude00\"], \"b\":{}, \"c\":[] } ";
    static const enum scan_event want[] = {
        SCAN_OBJECT,    SCAN_NAME,      SCAN_ARRAY,      SCAN_INTEGER,    SCAN_INTEGER,
        SCAN_REAL,      SCAN_TRUE,      SCAN_FALSE,      SCAN_NULL,       SCAN_STRING,
        SCAN_ARRAY_END, SCAN_NAME,      SCAN_OBJECT,     SCAN_OBJECT_END, SCAN_NAME,
        SCAN_ARRAY,     SCAN_ARRAY_END, SCAN_OBJECT_END, SCAN_END,        SCAN_END};
    struct scan s;
    scan_open(&s, slice_of(text, sizeof text - 1), true);
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        tap_note("event %zu", i);
        CHECK_U64(scan_next(&s), want[i]);
        if (i == 1) {
            CHECK(scan_is(&s, "a") && !scan_is(&s, "b"));
        } else if (i == 4) {
            CHECK(s.integer == -2);
        } else if (i == 5) {
            CHECK(s.span.len == 5 && memcmp(s.span.data, "3.5e1", 5) == 0);
        } else if (i == 9) {
            uint8_t out[16];
            char at[32];
            CHECK_U64(scan_copy(&s, out, sizeof out), 8);
            CHECK(memcmp(out, "x\n\xc3\xa9\xf0\x9f\x98\x80", 8) == 0);
            CHECK(scan_copy(&s, out, 7) == SIZE_MAX);
            scan_pointer(&s, at, sizeof at);
            CHECK_STR(at, "/a/6");
        }
    }
    scan_close(&s);
}

static void errors_say_where(void)
{
    static const struct {
        const char *text, *pointer, *detail;
    } rows[] = {
        {"", "", "byte 0: the text ends too early"},
        {"{", "", "a member must begin"},
        {"[1,]", "/1", "a number is malformed"},
        {"[1 2]", "/0", ", or ]"},
        {"{\"a\":1 \"b\":2}", "/a", ", or }"},
        {"{\"a\":1,}", "", "a member must begin"},
        {"{\"a\" 1}", "/a", "a : must"},
        {"{a:1}", "", "a member must begin"},
        {"{\"a\":}", "/a", "a number is malformed"},
        {"{\"a\":1}x", "", "byte 7: something follows"},
        {"{\"a\":1}{}", "", "something follows"},
        {"{\"a\":1,\"a\":2}", "/a", "twice"},
        {"{\"x\":{\"a/b~\":1,\"\\u0061/b~\":2}}", "/x/a~1b~0", "twice"},
        {"{\"x\":[{},{\"y\":nul}]}", "/x/1/y", "malformed"},
        {"[tru]", "/0", "malformed"},
        {"[01]", "/0", "a number"},
        {"[-]", "/0", "a number"},
        {"[+1]", "/0", "a number"},
        {"[1.]", "/0", "a number"},
        {"[.5]", "/0", "a number"},
        {"[1e]", "/0", "a number"},
        {"[1e+]", "/0", "a number"},
        {"[0x5]", "/0", ", or ]"},
        {"[NaN]", "/0", "a number"},
        {"[-Infinity]", "/0", "a number"},
        {"[1e999]", "/0", "too large"},
        {"[9007199254740992]", "/0", "2^53"},
        {"[-9007199254740992]", "/0", "2^53"},
        {"[99999999999999999999999]", "/0", "2^53"},
        {"[\"a]", "/0", "within a string"},
        {"[\"a\n\"]", "/0", "control byte"},
        {"[\"\\x\"]", "/0", "escape"},
        {"[\"\\u12\"]", "/0", "escape"},
        {"[\"\\ud800\"]", "/0", "escape"},
        {"[\"\\ud800\\u0041\"]", "/0", "escape"},
        {"[\"\\udc00\"]", "/0", "escape"},
        {"[\"\xff\"]", "/0", "UTF-8"},
        {"[\"\xc0\x80\"]", "/0", "UTF-8"},
        {"[\"\xed\xa0\x80\"]", "/0", "UTF-8"},
        {"{\"\\u0000\":1}", "/", "NUL"},
        {"\xef\xbb\xbf{}", "", "a number"},
        {"{\"a\":1]", "/a", ", or }"},
        {"[1}", "/0", ", or ]"},
        {"'a'", "", "a number"},
        {"[1,/**/2]", "/1", "a number"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct err e = {.code = ERR_OK};
        tap_note("text %s", rows[i].text);
        CHECK_U64(walk(slice_of(rows[i].text, strlen(rows[i].text)), &e), ERR_INVALID_REQUEST);
        if (rows[i].pointer[0] != '/' || rows[i].pointer[1] != '\0') {
            CHECK_STR(e.pointer, rows[i].pointer);
        }
        if (!CHECK(strstr(e.detail, rows[i].detail) != NULL)) {
            tap_note("detail %s", e.detail);
            CHECK(false);
        }
    }
}

static void good_ones(void)
{
    static const char *const rows[] = {
        "{}",       "[]",          "0",
        "-0",       "1.5",         "-1E-5",
        "\"\"",     "null",        "[9007199254740991,-9007199254740991]",
        "[1e-999]", "\"\\u0000\"", "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"",
        "\"\x7f\"", "{\"\":1}",    "{\"a\":{\"a\":{\"a\":1}},\"b\":{\"a\":1}}"};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct err e = {.code = ERR_OK};
        tap_note("text %s", rows[i]);
        CHECK_U64(walk(slice_of(rows[i], strlen(rows[i])), &e), ERR_OK);
    }
}

static void depth(void)
{
    for (unsigned n = JSON_DEPTH_MAX; n <= JSON_DEPTH_MAX + 1; n++) {
        char text[2 * (JSON_DEPTH_MAX + 1)];
        struct err e;
        memset(text, '[', n);
        memset(text + n, ']', n);
        CHECK_U64(walk(slice_of(text, 2 * n), &e),
                  n > JSON_DEPTH_MAX ? ERR_INVALID_REQUEST : ERR_OK);
        memset(text, '[', sizeof text);
        CHECK_U64(walk(slice_of(text, sizeof text), &e), ERR_INVALID_REQUEST);
    }
}

/* An object of n members, m0 to m(n-1), and then mN again when `again` is one of them. */
static enum err_code members(unsigned n, int again, struct err *e)
{
    struct buf b = {.max = 1 << 20};
    buf_put_u8(&b, '{');
    for (unsigned i = 0; i < n; i++) {
        buf_printf(&b, "%s\"m%u\":%u", i > 0 ? "," : "", i, i);
    }
    if (again >= 0) {
        buf_printf(&b, ",\"m%d\":0", again);
    }
    buf_put_u8(&b, '}');
    enum err_code code = walk(slice_of(b.data, b.len), e);
    buf_close(&b);
    return code;
}

static void many_members(void)
{
    static const unsigned counts[] = {1, 2, 15, 16, 17, 18, 63, 64, 65, 200, 600, 5000, 9999};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        unsigned n = counts[i];
        struct err e;
        char want[16];
        tap_note("%u members", n);
        CHECK_U64(members(n, -1, &e), ERR_OK);
        for (unsigned k = 0; k < n; k += 1 + n / 3) {
            (void)snprintf(want, sizeof want, "/m%u", k);
            CHECK_U64(members(n, (int)k, &e), ERR_INVALID_REQUEST);
            CHECK_STR(e.pointer, want);
        }
    }
    struct err e;
    CHECK_U64(members(SCAN_MEMBERS_MAX, -1, &e), ERR_OK);
    CHECK_U64(members(SCAN_MEMBERS_MAX + 1, -1, &e), ERR_INVALID_REQUEST);
    CHECK(strstr(e.detail, "too many members") != NULL);
}

static void skipping(void)
{
    static const char text[] = "{\"a\":[1,{\"b\":[]}],\"c\":7}";
    struct scan s;
    scan_open(&s, slice_of(text, sizeof text - 1), false);
    CHECK_U64(scan_next(&s), SCAN_OBJECT);
    CHECK_U64(scan_next(&s), SCAN_NAME);
    CHECK(scan_skip(&s));
    CHECK_U64(scan_next(&s), SCAN_NAME);
    CHECK(scan_is(&s, "c"));
    CHECK(scan_skip(&s));
    CHECK_U64(scan_next(&s), SCAN_OBJECT_END);
    CHECK_U64(scan_next(&s), SCAN_END);
    scan_close(&s);
}

/* --- random values, against jansson --- */

static json_t *make(struct tap_rand *r, unsigned depth)
{
    uint64_t kind = tap_rand_below(r, depth > 4 ? 6 : 9);
    char text[24];
    size_t len = tap_rand_below(r, sizeof text);
    json_t *v;
    switch (kind) {
    case 0:
        return json_null();
    case 1:
        return json_boolean(tap_rand_below(r, 2));
    case 2:
        return json_integer((json_int_t)tap_rand_below(r, PARSE_INT_MAX) -
                            (json_int_t)(PARSE_INT_MAX / 2));
    case 3:
        return json_real((double)(int64_t)tap_rand(r) / 1e9);
    case 4:
    case 5:
        for (size_t i = 0; i < len; i++) {
            text[i] = (char)tap_rand_below(r, 128);
        }
        return json_stringn(text, len);
    case 6:
        v = json_array();
        for (uint64_t n = tap_rand_below(r, 5); n > 0; n--) {
            (void)json_array_append_new(v, make(r, depth + 1));
        }
        return v;
    default:
        v = json_object();
        for (uint64_t n = tap_rand_below(r, 5); n > 0; n--) {
            (void)snprintf(text, sizeof text, "%c%c", (int)('a' + tap_rand_below(r, 26)),
                           (int)(1 + tap_rand_below(r, 127)));
            (void)json_object_set_new(v, text, make(r, depth + 1));
        }
        return v;
    }
}

/* Builds from events what jansson would. */
static json_t *build(struct scan *s, enum scan_event event)
{
    uint8_t text[256];
    char name[256], number[SCAN_NUMBER_MAX + 1];
    json_t *v;
    switch (event) {
    case SCAN_NULL:
        return json_null();
    case SCAN_TRUE:
    case SCAN_FALSE:
        return json_boolean(event == SCAN_TRUE);
    case SCAN_INTEGER:
        return json_integer(s->integer);
    case SCAN_REAL:
        (void)snprintf(number, sizeof number, "%.*s", (int)s->span.len, (const char *)s->span.data);
        return json_loads(number, JSON_DECODE_ANY, NULL);
    case SCAN_STRING:
        return json_stringn((const char *)text, scan_copy(s, text, sizeof text));
    case SCAN_ARRAY:
        v = json_array();
        while ((event = scan_next(s)) != SCAN_ARRAY_END) {
            (void)json_array_append_new(v, build(s, event));
        }
        return v;
    case SCAN_OBJECT:
        v = json_object();
        while (scan_next(s) == SCAN_NAME) {
            size_t n = scan_copy(s, (uint8_t *)name, sizeof name - 1);
            name[n] = '\0';
            (void)json_object_set_new(v, name, build(s, scan_next(s)));
        }
        return v;
    case SCAN_OBJECT_END:
    case SCAN_ARRAY_END:
    case SCAN_NAME:
    case SCAN_END:
    case SCAN_ERROR:
        break;
    }
    return NULL;
}

static void same_as_jansson(void)
{
    uint64_t seed = tap_seed(11);
    struct tap_rand r = {seed};
    for (int i = 0; i < 3000 && tap_failures() == 0; i++) {
        static const size_t flags[] = {JSON_COMPACT, JSON_INDENT(2), JSON_ENSURE_ASCII,
                                       JSON_ESCAPE_SLASH};
        json_t *want = make(&r, 0);
        char *text = json_dumps(want, JSON_ENCODE_ANY | flags[i % 4]);
        tap_note("seed %" PRIu64 " case %d: %s", seed, i, text);
        struct scan s;
        scan_open(&s, slice_of(text, strlen(text)), true);
        json_t *got = build(&s, scan_next(&s));
        CHECK(json_equal(got, want));
        CHECK_U64(scan_next(&s), SCAN_END);
        scan_close(&s);
        json_decref(got);
        json_decref(want);
        free(text);
    }
}

/* Truncated and changed texts: we never accept what jansson refuses, and refuse what it accepts
 * only by our own rules. */
static void mutations(void)
{
    uint64_t seed = tap_seed(13);
    struct tap_rand r = {seed};
    static const char likely[] = "{}[]\",:\\u0dD8e.-+19tfn \n\x80\xc3";
    for (int i = 0; i < 20000 && tap_failures() == 0; i++) {
        json_t *v = make(&r, 0);
        char *text = json_dumps(v, JSON_ENCODE_ANY | (i % 2 ? JSON_ENSURE_ASCII : 0));
        size_t len = strlen(text);
        char *copy = mem_dup(text, len); /* of its exact size, for the address sanitizer */
        if (i % 3 == 0 && len > 0) {
            len = tap_rand_below(&r, len);
        }
        for (uint64_t n = tap_rand_below(&r, 3); n > 0 && len > 0; n--) {
            copy[tap_rand_below(&r, len)] = likely[tap_rand_below(&r, sizeof likely - 1)];
        }
        char *exact = mem_dup(copy, len);
        struct err e = {.code = ERR_OK};
        json_error_t why;
        bool ours = walk(slice_of(exact, len), &e) == ERR_OK;
        json_t *theirs =
            json_loadb(exact, len, JSON_ALLOW_NUL | JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &why);
        tap_note("seed %" PRIu64 " case %d: %.*s: %s, %s", seed, i, (int)len, exact, e.detail,
                 theirs != NULL ? "ok" : why.text);
        if (ours) {
            CHECK(theirs != NULL);
        } else if (theirs != NULL) {
            CHECK(strstr(e.detail, "2^53") != NULL || strstr(e.detail, "too long") != NULL);
        }
        json_decref(theirs);
        json_decref(v);
        free(text);
        mem_free(copy);
        mem_free(exact);
    }
}

int main(void)
{
    RUN(events_in_order);
    RUN(errors_say_where);
    RUN(good_ones);
    RUN(depth);
    RUN(many_members);
    RUN(skipping);
    RUN(same_as_jansson);
    RUN(mutations);
    return tap_done();
}
