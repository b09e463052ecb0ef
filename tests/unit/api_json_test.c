/* SPDX-License-Identifier: Apache-2.0 */
#include "api/json.h"
#include "tests/harness/tap.h"

#include <stdio.h>
#include <string.h>

static json_t *parse(const char *text, struct err *e)
{
    *e = (struct err){.code = ERR_OK};
    return json_parse_object(slice_of(text, strlen(text)), e);
}

static const char *text_of(struct buf *b)
{
    buf_put_u8(b, 0);
    return (const char *)b->data;
}

static void strings_out(void)
{
    struct buf b = {.max = 4096};
    json_put_string(&b, slice_of("a\"b\\c\n\x01\x1f\x7f/\xc3\xa9\0z", 14));
    CHECK_STR(text_of(&b), "\"a\\\"b\\\\c\\n\\u0001\\u001f\x7f/\xc3\xa9\\u0000z\"");
    buf_reset(&b);
    json_put_cstring(&b, "\b\t\v\f\r");
    json_put_cstring(&b, "");
    json_put_bool(&b, true);
    json_put_time(&b, 0);
    CHECK_STR(text_of(&b), "\"\\b\\t\\u000b\\f\\r\"\"\"true\"1970-01-01T00:00:00.000Z\"");
    buf_close(&b);
}

/* What we write jansson reads back. */
static void strings_round_trip(void)
{
    struct tap_rand r = {tap_seed(3)};
    for (int i = 0; i < 2000 && tap_failures() == 0; i++) {
        struct buf b = {.max = 4096};
        uint8_t text[64];
        size_t len = tap_rand_below(&r, sizeof text);
        for (size_t k = 0; k < len; k++) {
            text[k] = (uint8_t)tap_rand_below(&r, 128);
        }
        json_put_string(&b, slice_of(text, len));
        json_t *v = json_loadb((const char *)b.data, b.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
        CHECK(json_string_length(v) == len && memcmp(json_string_value(v), text, len) == 0);
        json_decref(v);
        buf_close(&b);
    }
}

static void bodies_that_are_no_object(void)
{
    static const char *const rows[] = {"",  " ",   "[]",    "1",        "null", "\"a\"",
                                       "{", "{}}", "{} {}", "nonsense", "true"};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct err e;
        tap_note("%s", rows[i]);
        CHECK(parse(rows[i], &e) == NULL);
        CHECK_U64(e.code, ERR_INVALID_REQUEST);
        CHECK(e.detail[0] != '\0');
    }
}

static void reads_members(void)
{
    static const char *const colours[] = {"red", "green", NULL};
    struct err e;
    bool has;
    json_t *v = parse(
        "{\"s\":\"a\\u0000b\",\"n\":\"name-1\",\"u\":9007199254740991,\"b\":true,\"e\":\"green\","
        "\"o\":{\"x\":1},\"a\":[1,2],\"z\":null}",
        &e);
    struct json_in in;
    json_in_open(&in, v, "", &e);
    CHECK_U64(json_in_string(&in, "s", true, 1, 10).len, 3);
    CHECK_U64(json_in_name(&in, "n", true).len, 6);
    CHECK_U64(json_in_u64(&in, "u", true, 0, (UINT64_C(1) << 53) - 1, &has),
              (UINT64_C(1) << 53) - 1);
    CHECK(has);
    CHECK(json_in_bool(&in, "b", true, &has) && has);
    CHECK_U64(json_in_enum(&in, "e", true, colours, -1), 1);
    CHECK(json_object_size(json_in_object(&in, "o", true)) == 1);
    CHECK(json_array_size(json_in_array(&in, "a", true, 1, 2)) == 2);
    CHECK(json_in_null(&in, "z"));
    CHECK(!json_in_null(&in, "s"));
    CHECK(json_in_string(&in, "missing", false, 1, 10).data == NULL);
    CHECK(json_in_u64(&in, "missing2", false, 1, 10, &has) == 0 && !has);
    CHECK(!json_in_bool(&in, "missing3", false, &has) && !has);
    CHECK(json_in_enum(&in, "missing4", false, colours, 7) == 7);
    CHECK(json_in_object(&in, "missing5", false) == NULL);
    CHECK_U64(json_in_close(&in), ERR_OK);
    json_decref(v);
}

/* One rule is broken in each; `where` is the pointer. */
static void refuses_members(void)
{
    static const struct {
        const char *text, *where;
    } rows[] = {
        {"{}", "/base/s"},
        {"{\"s\":1}", "/base/s"},
        {"{\"s\":null}", "/base/s"},
        {"{\"s\":\"\"}", "/base/s"},
        {"{\"s\":\"abcd\"}", "/base/s"},
        {"{\"s\":\"a\",\"u\":1.0}", "/base/u"},
        {"{\"s\":\"a\",\"u\":\"1\"}", "/base/u"},
        {"{\"s\":\"a\",\"u\":-1}", "/base/u"},
        {"{\"s\":\"a\",\"u\":11}", "/base/u"},
        {"{\"s\":\"a\",\"u\":true}", "/base/u"},
        {"{\"s\":\"a\",\"n\":\"Upper\"}", "/base/n"},
        {"{\"s\":\"a\",\"n\":\"\"}", "/base/n"},
        {"{\"s\":\"a\",\"b\":0}", "/base/b"},
        {"{\"s\":\"a\",\"e\":\"blue\"}", "/base/e"},
        {"{\"s\":\"a\",\"e\":\"red\\u0000\"}", "/base/e"},
        {"{\"s\":\"a\",\"a\":[]}", "/base/a"},
        {"{\"s\":\"a\",\"a\":{}}", "/base/a"},
        {"{\"s\":\"a\",\"o\":[]}", "/base/o"},
        {"{\"s\":\"a\",\"extra/~\":1}", "/base/extra~1~0"},
    };
    static const char *const colours[] = {"red", "green", NULL};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct err e;
        struct json_in in;
        json_t *v = parse(rows[i].text, &e);
        tap_note("%s", rows[i].text);
        json_in_open(&in, v, "/base", &e);
        (void)json_in_string(&in, "s", true, 1, 3);
        (void)json_in_u64(&in, "u", false, 0, 10, NULL);
        (void)json_in_name(&in, "n", false);
        (void)json_in_bool(&in, "b", false, NULL);
        (void)json_in_enum(&in, "e", false, colours, -1);
        (void)json_in_array(&in, "a", false, 1, 2);
        (void)json_in_object(&in, "o", false);
        CHECK_U64(json_in_close(&in), ERR_INVALID_REQUEST);
        CHECK_STR(e.pointer, rows[i].where);
        json_decref(v);
    }
}

static void fails_once(void)
{
    struct err e;
    struct json_in in;
    json_t *v = parse("{\"a\":1,\"b\":2}", &e);
    json_in_open(&in, v, "", &e);
    (void)json_in_u64(&in, "a", true, 0, 10, NULL);
    json_in_fail(&in, "a", ERR_BAD_SPLIT_KEY, "is %s", "odd");
    CHECK(json_in_u64(&in, "b", true, 0, 10, NULL) == 0);
    json_in_fail(&in, "b", ERR_INVALID_KEY, "later");
    CHECK_U64(json_in_close(&in), ERR_BAD_SPLIT_KEY);
    CHECK_STR(e.pointer, "/a");
    CHECK_STR(e.detail, "is odd");
    json_decref(v);
    v = json_array();
    json_in_open(&in, v, "/x", &e);
    CHECK(json_in_string(&in, "s", true, 0, 1).data == NULL);
    CHECK_U64(json_in_close(&in), ERR_INVALID_REQUEST);
    CHECK_STR(e.pointer, "/x");
    json_decref(v);
}

static void canonical(void)
{
    struct err e;
    struct buf b = {.max = 4096};
    json_t *v = parse("{ \"b\" : [1, 2.0, -0.5, 1e300, true, null], \"a\" : "
                      "{\"\\u00e9\":\"\\u0001\", \"B\":false}, \"\":{} }",
                      &e);
    json_put_canonical(&b, v);
    CHECK_STR(text_of(&b), "{\"\":{},\"a\":{\"B\":false,\"\xc3\xa9\":\"\\u0001\"},\"b\":[1,2.0,-0."
                           "5,1.0000000000000001e+300,true,null]}");
    b.len--;
    json_t *again = json_parse_object(slice_of(b.data, b.len), &e);
    CHECK(json_equal(v, again));
    json_decref(v);
    json_decref(again);
    buf_close(&b);
}

int main(void)
{
    RUN(strings_out);
    RUN(strings_round_trip);
    RUN(bodies_that_are_no_object);
    RUN(reads_members);
    RUN(refuses_members);
    RUN(fails_once);
    RUN(canonical);
    return tap_done();
}
