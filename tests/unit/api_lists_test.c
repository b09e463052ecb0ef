/* SPDX-License-Identifier: Apache-2.0 */
/* Lists in pages that show one revision whatever happens meanwhile, and the streamed map. */
#include "tests/harness/api_world.h"
#include "tests/harness/tap.h"

#include "base/mem.h"

#include <inttypes.h>
#include <string.h>
#include <zlib.h>

/* Reads all pages and gives the items in one array; a change is made between the pages. */
static json_t *
all_pages(struct api_world *w, const char *path, const char *noun, uint64_t *ret_revision)
{
    json_t *all = json_array();
    char *next = NULL;
    for (unsigned i = 0; i < 200; i++) {
        const char *sep = strchr(path, '?') != NULL ? "&" : "?";
        const char *request = next == NULL ? text("GET %s%slimit=2", path, sep)
                                           : text("GET %s%slimit=2&cursor=%s", path, sep, next);
        if (!CHECK(EXPECT(w, request, NULL, 200, NULL))) {
            break;
        }
        if (next == NULL) {
            *ret_revision = api_u64(w, "revision");
        }
        CHECK_U64(api_u64(w, "revision"), *ret_revision);
        CHECK_STR(api_header(w, "Cadastre-Revision"), text("%" PRIu64, *ret_revision));
        CHECK(json_array_size(api_at(w, noun)) <= 2);
        CHECK(json_array_extend(all, api_at(w, noun)) == 0);
        mem_free(next);
        next = api_at(w, "next") != NULL ? mem_strdup(api_text(w, "next")) : NULL;
        if (next == NULL) {
            break;
        }
        CHECK(EXPECT(w, text("PUT /v1/nodes/late%u", i),
                     text("{\"address\":\"late%u:1\",\"lease\":\"static\"}", i), 200, NULL));
        CHECK(EXPECT(w, "GET /v1/keyspaces/o/route?key=b0", NULL, 200, NULL));
        CHECK(EXPECT(
            w, text("POST /v1/keyspaces/o/partitions/%" PRIu64 "/split", api_u64(w, "partition")),
            text("{\"at\":[\"b0%c\"]}", 'z' - (int)i), 200, NULL));
    }
    mem_free(next);
    return all;
}

static void fill(struct api_world *w)
{
    struct buf body;
    api_nodes(w, 3);
    CHECK(EXPECT(
        w, "POST /v1/keyspaces",
        "{\"name\":\"o\",\"scheme\":\"range\",\"splits\":[\"a\",\"b\",\"b0\",\"c\",\"d\",\"e\","
        "\"\\u0001\\\"x\\\\\"]}",
        422, "bad_split_key"));
    buf_init(&body, 1 << 20);
    buf_put_str(&body,
                "{\"name\":\"o\",\"scheme\":\"range\",\"splits\":[\"\\u0001\\\"x\\\\\\u0000\"");
    for (char c = 'a'; c <= 'i'; c++) {
        buf_printf(&body, ",\"%c\"", c);
    }
    buf_put_str(&body, "]}");
    buf_put_u8(&body, 0);
    CHECK(EXPECT(w, "POST /v1/keyspaces", (const char *)body.data, 201, NULL));
    buf_close(&body);
    for (char c = 'p'; c <= 's'; c++) {
        CHECK(EXPECT(w, "POST /v1/keyspaces",
                     text("{\"name\":\"k%c\",\"scheme\":\"hash\",\"partitions\":2}", c), 201,
                     NULL));
    }
}

static void pages_show_one_revision(void)
{
    static const char *const lists[][2] = {
        {"/v1/keyspaces", "keyspaces"},
        {"/v1/nodes", "nodes"},
        {"/v1/keyspaces/o/partitions", "partitions"},
        {"/v1/keyspaces/o/routes", "routes"},
        {"/v1/keyspaces/o/routes?start=b&end=f", "routes"},
    };
    struct api_world w;
    api_world_open(&w);
    fill(&w);
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        uint64_t revision = 0;
        json_t *before, *paged;
        tap_note("%s", lists[i][0]);
        CHECK(EXPECT(&w, text("GET %s", lists[i][0]), NULL, 200, NULL));
        before = json_incref(api_at(&w, lists[i][1]));
        paged = all_pages(&w, lists[i][0], lists[i][1], &revision);
        CHECK(json_array_size(before) > 2);
        CHECK(json_equal(before, paged));
        json_decref(before);
        json_decref(paged);
        /* Other pages for the next list: what late nodes and splits were made is gone again. */
        api_world_close(&w);
        api_world_open(&w);
        fill(&w);
    }
    api_world_close(&w);
}

static void cursors_are_checked(void)
{
    struct api_world w;
    char *cursor;
    api_world_open(&w);
    api_nodes(&w, 5);
    CHECK(EXPECT(&w, "GET /v1/nodes?limit=2", NULL, 200, NULL));
    cursor = mem_strdup(api_text(&w, "next"));
    CHECK(EXPECT(&w, text("GET /v1/nodes?cursor=%s", cursor), NULL, 200, NULL));
    CHECK_U64(json_array_size(api_at(&w, "nodes")), 3);
    CHECK(EXPECT(&w, text("GET /v1/keyspaces?cursor=%s", cursor), NULL, 400, "invalid_request"));
    CHECK(EXPECT(&w, text("GET /v1/nodes?cursor=%s00", cursor), NULL, 400, "invalid_request"));
    cursor[20] = cursor[20] == '0' ? '1' : '0';
    CHECK(EXPECT(&w, text("GET /v1/nodes?cursor=%s", cursor), NULL, 400, "invalid_request"));
    CHECK(EXPECT(&w, "GET /v1/nodes?cursor=", NULL, 400, "invalid_request"));
    mem_free(cursor);
    CHECK(EXPECT(&w, "POST /v1/keyspaces",
                 "{\"name\":\"o\",\"scheme\":\"range\",\"splits\":[\"b\",\"c\"]}", 201, NULL));
    CHECK(EXPECT(&w, "GET /v1/keyspaces/o/routes?start=a&limit=1", NULL, 200, NULL));
    cursor = mem_strdup(api_text(&w, "next"));
    CHECK(EXPECT(&w, text("GET /v1/keyspaces/o/routes?start=c&limit=1&cursor=%s", cursor), NULL,
                 400, "invalid_request"));
    CHECK(EXPECT(&w, text("GET /v1/keyspaces/o/routes?start=a&limit=1&cursor=%s", cursor), NULL,
                 200, NULL));
    mem_free(cursor);
    api_world_close(&w);
}

static void the_oldest_cursor_makes_room(void)
{
    struct api_world w;
    char *first, *second = NULL;
    api_world_open(&w);
    api_nodes(&w, 3);
    CHECK(EXPECT(&w, "GET /v1/nodes?limit=1", NULL, 200, NULL));
    first = mem_strdup(api_text(&w, "next"));
    for (unsigned i = 0; i < 64; i++) {
        CHECK(EXPECT(&w, "PUT /v1/nodes/n1",
                     text("{\"address\":\"x%u:1\",\"lease\":\"static\"}", i), 200, NULL));
        CHECK(EXPECT(&w, "GET /v1/nodes?limit=1", NULL, 200, NULL));
        if (i == 0) {
            second = mem_strdup(api_text(&w, "next"));
        }
        if (i == 62) { /* all 64 places are taken, and the first is renewed */
            CHECK(EXPECT(&w, text("GET /v1/nodes?cursor=%s", first), NULL, 200, NULL));
        }
    }
    CHECK(EXPECT(&w, text("GET /v1/nodes?cursor=%s", first), NULL, 200, NULL));
    CHECK_STR(api_text(&w, "nodes/0/node"), "n2");
    CHECK(EXPECT(&w, text("GET /v1/nodes?cursor=%s", second), NULL, 410, "cursor_expired"));
    mem_free(first);
    mem_free(second);
    api_world_close(&w);
}

static void inflate_all(const struct buf *in, struct buf *out)
{
    z_stream z = {.next_in = in->data, .avail_in = (unsigned)in->len};
    int rc = inflateInit2(&z, 15 + 16);
    while (rc == Z_OK && buf_reserve(out, 65536)) {
        z.next_out = out->data + out->len;
        z.avail_out = 65536;
        rc = inflate(&z, Z_NO_FLUSH);
        out->len += 65536 - z.avail_out;
    }
    CHECK_U64(rc, Z_STREAM_END);
    (void)inflateEnd(&z);
}

static void the_map_is_all_routes(void)
{
    struct api_world w;
    json_t *map, *routes;
    struct buf plain;
    const char *etag;
    api_world_open(&w);
    fill(&w);
    CHECK(EXPECT(&w, "GET /v1/keyspaces/o/map", NULL, 200, NULL));
    map = json_incref(w.json);
    etag = api_header(&w, "ETag");
    CHECK_STR(etag, text("\"%" PRIu64 "\"", api_u64(&w, "revision")));
    CHECK_STR(api_header(&w, "Cadastre-Revision"), text("%" PRIu64, api_u64(&w, "revision")));
    CHECK(EXPECT(&w, "GET /v1/keyspaces/o/routes", NULL, 200, NULL));
    CHECK(json_equal(map, w.json));
    routes = json_object_get(map, "routes");
    CHECK_U64(json_array_size(routes), 11);
    CHECK(EXPECT_WITH(&w, "GET /v1/keyspaces/o/map",
                      text("If-None-Match: \"%" PRIu64 "\"\r\n",
                           (uint64_t)json_integer_value(json_object_get(map, "revision"))),
                      NULL, 304, NULL));
    CHECK(EXPECT_WITH(&w, "GET /v1/keyspaces/o/map", "Accept-Encoding: gzip\r\n", NULL, 200, NULL));
    CHECK_STR(api_header(&w, "Content-Encoding"), "gzip");
    buf_init(&plain, 1 << 20);
    inflate_all(&w.answer.body, &plain);
    json_t *again = json_loadb((const char *)plain.data, plain.len, JSON_ALLOW_NUL, NULL);
    CHECK(json_equal(map, again));
    json_decref(again);
    buf_close(&plain);
    CHECK(EXPECT_WITH(&w, "GET /v1/keyspaces/o/map", "Accept: application/x-ndjson\r\n", NULL, 200,
                      NULL));
    CHECK_STR(api_header(&w, "Content-Type"), "application/x-ndjson");
    const char *line = api_body(&w);
    for (size_t i = 0; i < json_array_size(routes); i++) {
        size_t len = strcspn(line, "\n");
        json_t *route = json_loadb(line, len, JSON_ALLOW_NUL, NULL);
        CHECK(json_equal(route, json_array_get(routes, i)));
        json_decref(route);
        line += len + 1;
    }
    CHECK_STR(line, "");
    CHECK(EXPECT(&w, "GET /v1/keyspaces/nope/map", NULL, 404, "keyspace_not_found"));
    json_decref(map);
    api_world_close(&w);
}

static void large_keyspaces_in_chunks(void)
{
    struct api_world w;
    struct buf body;
    char key[] = "Idempotency-Key: big\r\n", *first;
    api_world_open(&w);
    api_nodes(&w, 2);
    CHECK(EXPECT_WITH(&w, "POST /v1/keyspaces", key,
                      "{\"name\":\"h\",\"scheme\":\"hash\",\"partitions\":20000}", 201, NULL));
    CHECK_U64(api_u64(&w, "partitions"), 20000);
    first = mem_strdup(api_body(&w));
    CHECK(EXPECT_WITH(&w, "POST /v1/keyspaces", key,
                      "{\"name\":\"h\",\"scheme\":\"hash\",\"partitions\":20000}", 201, NULL));
    CHECK_STR(api_body(&w), first);
    mem_free(first);
    CHECK(EXPECT(&w, "GET /v1/keyspaces/h", NULL, 200, NULL));
    CHECK_U64(api_u64(&w, "partitions"), 20000);
    buf_init(&body, 8 << 20);
    buf_put_str(&body, "{\"name\":\"r\",\"scheme\":\"range\",\"splits\":[");
    for (unsigned i = 0; i < 20000; i++) {
        buf_printf(&body, "%s\"key-%06u\"", i > 0 ? "," : "", i);
    }
    buf_put_str(&body, "]}");
    buf_put_u8(&body, 0);
    CHECK(EXPECT(&w, "POST /v1/keyspaces", (const char *)body.data, 201, NULL));
    CHECK_U64(api_u64(&w, "partitions"), 20001);
    CHECK(EXPECT(&w, "GET /v1/keyspaces/r/map", NULL, 200, NULL));
    CHECK_U64(json_array_size(api_at(&w, "routes")), 20001);
    CHECK_STR(api_text(&w, "routes/20000/start"), "key-019999");
    buf_close(&body);
    api_world_close(&w);
}

int main(void)
{
    RUN(pages_show_one_revision);
    RUN(cursors_are_checked);
    RUN(the_oldest_cursor_makes_room);
    RUN(the_map_is_all_routes);
    RUN(large_keyspaces_in_chunks);
    return tap_done();
}
