/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "cli/cmd.h"
#include "tests/harness/tap.h"

#include <stdlib.h>
#include <string.h>

static const char routes[] =
    "[{\"keyspace\":\"orders\",\"partition\":17,\"epoch\":42,\"end\":\"p\",\"state\":\"active\","
    "\"primary\":{\"node\":\"n1\",\"address\":\"10.0.0.1:9000\"},\"authority\":\"static\","
    "\"replicas\":[{\"node\":\"n1\",\"role\":\"primary\"},{\"node\":\"n2\",\"role\":\"sync\"}]},"
    "{\"keyspace\":\"orders\",\"partition\":18,\"epoch\":44,\"start\":\"p\",\"state\":"
    "\"unavailable\","
    "\"primary\":null,\"authority\":\"exclusive\",\"replicas\":[]}]";

/* What was printed; the caller frees it. */
static char *printed(struct out *o, const struct out_view *view, const char *json, bool object)
{
    char *text = NULL;
    size_t len = 0;
    o->file = open_memstream(&text, &len);
    json_t *value = json_loads(json, 0, NULL);
    if (object) {
        out_object(o, view, value);
    } else {
        out_rows(o, view, value);
    }
    json_decref(value);
    (void)fclose(o->file);
    return text;
}

static void prints_a_table(void)
{
    struct out o = {.format = OUT_TABLE, .headers = true};
    char *text = printed(&o, &out_route_view, routes, false);
    CHECK_STR(
        text,
        "KEYSPACE  PARTITION  EPOCH  RANGE  STATE        PRIMARY  ADDRESS        AUTHORITY  "
        "REPLICAS\n"
        "orders    17         42     [, p)  active       n1       10.0.0.1:9000  static     n1 "
        "n2(sync)\n"
        "orders    18         44     [p, )  unavailable  -        -              exclusive  -\n");
    mem_free(text);
    /* The next page goes on below the same header. */
    text = printed(&o, &out_revision_view, "[{\"revision\":7}]", false);
    CHECK_STR(text, "7\n");
    mem_free(text);
}

static void prints_without_headers(void)
{
    struct out o = {.format = OUT_TABLE};
    char *text = printed(&o, &out_revision_view, "{\"revision\":45}", true);
    CHECK_STR(text, "45\n");
    mem_free(text);
}

static void prints_bold_headers_only_when_told(void)
{
    struct out o = {.format = OUT_TABLE, .headers = true, .bold = true};
    char *text = printed(&o, &out_revision_view, "{\"revision\":45}", true);
    CHECK_STR(text, "\033[1mREVISION\n\033[0m45\n");
    mem_free(text);
}

static void json_is_not_decorated(void)
{
    struct out o = {.format = OUT_JSON, .headers = true, .bold = true};
    char *text = printed(&o, &out_revision_view, "{\"revision\":45,\"b\":[1,\"\xc3\xa9\"]}", true);
    CHECK_STR(text, "{\n  \"revision\": 45,\n  \"b\": [\n    1,\n    \"\xc3\xa9\"\n  ]\n}\n");
    mem_free(text);
    o.format = OUT_JSONL;
    text =
        printed(&o, &out_revision_view, "[{\"revision\":45},{\"revision\":46,\"x\":null}]", false);
    CHECK_STR(text, "{\"revision\":45}\n{\"revision\":46,\"x\":null}\n");
    mem_free(text);
}

static void prints_names(void)
{
    struct out o = {.format = OUT_NAME};
    char *text = printed(&o, &out_route_view, routes, false);
    CHECK_STR(text, "17\n18\n");
    mem_free(text);
    text = printed(&o, &cmd_operation_view, "{\"id\":\"19\"}", true);
    CHECK_STR(text, "19\n");
    mem_free(text);
}

static void escapes_what_would_move_the_cursor(void)
{
    struct buf cell;
    buf_init(&cell, 256);
    out_put_text(&cell, "a\n\x1b[2J\\\xc3\xa9\x00z", 10);
    buf_put_u8(&cell, '\0');
    CHECK_STR((const char *)cell.data, "a\\x0a\\x1b[2J\\x5c\xc3\xa9\\x00");
    buf_close(&cell);
    CHECK_U64(out_width("a\xc3\xa9", 3), 2);
}

static void aligns_by_code_points(void)
{
    struct out o = {.format = OUT_TABLE};
    char *text =
        printed(&o, &cmd_change_view,
                "[{\"revision\":1,\"kind\":\"\xc3\xa9\",\"removed\":[1,2],\"routes\":[]},"
                "{\"revision\":2,\"kind\":\"ab\",\"removed\":[],\"routes\":[{\"partition\":3,"
                "\"epoch\":2,\"primary\":{\"node\":\"n1\"}}]}]",
                false);
    CHECK_STR(text, "1         \xc3\xa9     1 2      -\n"
                    "2         ab    -        3[, )@2 n1\n");
    mem_free(text);
}

static void builds_targets(void)
{
    struct target t;
    target_init(&t, "/v1/keyspaces");
    target_segment(&t, "a/b?c");
    target_query(&t, "key", "m n&\xc3\xa9=");
    target_query_u64(&t, "since", 41);
    buf_put_u8(&t.b, '\0');
    CHECK_STR((const char *)t.b.data, "/v1/keyspaces/a%2Fb%3Fc?key=m%20n%26%C3%A9%3D&since=41");
    target_close(&t);
}

int main(void)
{
    json_set_alloc_funcs(mem_alloc, mem_free);
    RUN(prints_a_table);
    RUN(prints_without_headers);
    RUN(prints_bold_headers_only_when_told);
    RUN(json_is_not_decorated);
    RUN(prints_names);
    RUN(escapes_what_would_move_the_cursor);
    RUN(aligns_by_code_points);
    RUN(builds_targets);
    return tap_done();
}
