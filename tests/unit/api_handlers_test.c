/* SPDX-License-Identifier: Apache-2.0 */
/* Every resource over HTTP: what is answered, and every refusal. */
#include "tests/harness/api_world.h"
#include "tests/harness/tap.h"

#include <inttypes.h>
#include <string.h>

#define ROWS(w, rows) api_rows((w), (rows), sizeof(rows) / sizeof((rows)[0]), __FILE__)

static void keyspaces_are_created_and_shown(void)
{
    struct api_world w;
    api_world_open(&w);
    CHECK(EXPECT(&w, "GET /v1/keyspaces", NULL, 200, NULL));
    CHECK_U64(json_array_size(api_at(&w, "keyspaces")), 0);
    CHECK(EXPECT(&w, "POST /v1/keyspaces",
                 "{\"name\":\"orders\",\"scheme\":\"range\",\"splits\":[\"g\",\"p\"],"
                 "\"placement\":{\"require\":{\"zone\":[\"b\",\"a\"],\"disk\":\"ssd\"},"
                 "\"spread\":\"zone\"},\"policy\":{\"too_many_items\":5,\"uneven_access\":2.5}}",
                 201, NULL));
    CHECK_STR(api_header(&w, "Location"), "/v1/keyspaces/orders");
    CHECK_STR(api_text(&w, "name"), "orders");
    CHECK_STR(api_text(&w, "scheme"), "range");
    CHECK_STR(api_text(&w, "key_encoding"), "utf8");
    CHECK_STR(api_text(&w, "authority"), "exclusive");
    CHECK_U64(api_u64(&w, "partitions"), 3);
    CHECK_U64(api_u64(&w, "revision"), api_u64(&w, "created_revision"));
    CHECK_STR(api_text(&w, "placement/require/zone/0"), "a");
    CHECK_STR(api_text(&w, "placement/require/disk"), "ssd");
    CHECK_U64(api_u64(&w, "policy/too_many_items"), 5);
    CHECK(EXPECT(&w, "GET /v1/keyspaces/orders", NULL, 200, NULL));
    CHECK_U64(api_u64(&w, "partitions"), 3);
    CHECK_U64(api_u64(&w, "unavailable"), 3);
    CHECK_STR(api_header(&w, "Cadastre-Revision"), text("%" PRIu64, api_u64(&w, "revision")));
    CHECK_STR(api_header(&w, "Cadastre-Staleness-Ms"), "0");
    CHECK(
        EXPECT(&w, "POST /v1/keyspaces",
               "{\"name\":\"users\",\"scheme\":\"hash\",\"partitions\":4,\"key_encoding\":\"hex\","
               "\"partition_key\":{\"delimiter\":\"/\",\"fields\":1},\"authority\":\"affinity\"}",
               201, NULL));
    CHECK_U64(api_u64(&w, "partitions"), 4);
    CHECK_STR(api_text(&w, "partition_key/delimiter"), "/");
    CHECK_STR(api_text(&w, "authority"), "affinity");
    CHECK(EXPECT(&w, "GET /v1/keyspaces", NULL, 200, NULL));
    CHECK_STR(api_text(&w, "keyspaces/1/name"), "users");
    api_world_close(&w);
}

static const struct api_row refused_keyspaces[] = {
    ROW("POST /v1/keyspaces", "{\"name\":\"a\",\"scheme\":\"range\"}", 201, NULL, NULL),
    ROW("POST /v1/keyspaces",
        "{\"name\":\"a\",\"scheme\":\"range\"}",
        409,
        "keyspace_exists",
        NULL),
    ROW("POST /v1/keyspaces", NULL, 400, "invalid_request", NULL),
    ROW("POST /v1/keyspaces", "[]", 400, "invalid_request", NULL),
    ROW("POST /v1/keyspaces", "{}", 400, "invalid_request", "\"/name\""),
    ROW("POST /v1/keyspaces",
        "{\"name\":\"A\",\"scheme\":\"range\"}",
        400,
        "invalid_request",
        "\"/name\""),
    ROW("POST /v1/keyspaces",
        "{\"name\":5,\"scheme\":\"range\"}",
        400,
        "invalid_request",
        "\"/name\""),
    ROW("POST /v1/keyspaces",
        "{\"name\":\"b\",\"scheme\":\"tree\"}",
        400,
        "invalid_request",
        "\"/scheme\""),
    ROW("POST /v1/keyspaces",
        "{\"name\":\"b\",\"scheme\":\"composite\"}",
        422,
        "unsupported_scheme",
        NULL),
    ROW("POST /v1/keyspaces",
        "{\"name\":\"b\",\"scheme\":\"range\",\"layout\":{}}",
        422,
        "unsupported_scheme",
        "\"/layout\""),
    ROW("POST /v1/keyspaces",
        "{\"name\":\"b\",\"scheme\":\"range\",\"partitions\":4}",
        422,
        "unsupported_scheme",
        "\"/partitions\""),
    ROW("POST /v1/keyspaces",
        "{\"name\":\"b\",\"scheme\":\"hash\",\"splits\":[\"a\"]}",
        422,
        "unsupported_scheme",
        "\"/splits\""),
    ROW("POST /v1/keyspaces",
        "{\"name\":\"b\",\"scheme\":\"range\",\"partition_key\":{\"delimiter\":\"/"
        "\",\"fields\":1}}",
        422,
        "unsupported_scheme",
        "\"/partition_key\""),
    ROW("POST /v1/keyspaces",
        "{\"name\":\"b\",\"scheme\":\"hash\",\"partition_key\":{\"delimiter\":\"//"
        "\",\"fields\":1}}",
        400,
        "invalid_request",
        "\"/partition_key/delimiter\""),
    ROW("POST /v1/keyspaces",
        "{\"name\":\"b\",\"scheme\":\"hash\",\"partitions\":2.5}",
        400,
        "invalid_request",
        "\"/partitions\""),
    ROW("POST /v1/keyspaces",
        "{\"name\":\"b\",\"scheme\":\"hash\",\"partitions\":0}",
        400,
        "invalid_request",
        "\"/partitions\""),
    ROW("POST /v1/keyspaces",
        "{\"name\":\"b\",\"scheme\":\"hash\",\"partitions\":3000000}",
        400,
        "invalid_request",
        "\"/partitions\""),
    ROW("POST /v1/keyspaces",
        "{\"name\":\"b\",\"scheme\":\"range\",\"splits\":[\"b\",\"a\"]}",
        422,
        "bad_split_key",
        "\"/splits/1\""),
    ROW("POST /v1/keyspaces",
        "{\"name\":\"b\",\"scheme\":\"range\",\"splits\":[\"\"]}",
        422,
        "bad_split_key",
        "\"/splits/0\""),
    ROW("POST /v1/keyspaces",
        "{\"name\":\"b\",\"scheme\":\"range\",\"splits\":[7]}",
        400,
        "invalid_request",
        "\"/splits/0\""),
    ROW("POST /v1/keyspaces",
        "{\"name\":\"b\",\"scheme\":\"range\",\"key_encoding\":\"hex\",\"splits\":[\"zz\"]}",
        400,
        "invalid_key",
        "\"/splits/0\""),
    ROW("POST /v1/keyspaces",
        "{\"name\":\"b\",\"scheme\":\"range\",\"colour\":1}",
        400,
        "invalid_request",
        "\"/colour\""),
    ROW("POST /v1/keyspaces",
        "{\"name\":\"b\",\"scheme\":\"range\",\"replicas\":{\"sync\":8}}",
        400,
        "invalid_request",
        "\"/replicas/sync\""),
    ROW("POST /v1/keyspaces",
        "{\"name\":\"b\",\"scheme\":\"range\",\"replicas\":{\"sync\":4,\"async\":4}}",
        400,
        "invalid_request",
        "\"/replicas\""),
    ROW("POST /v1/keyspaces",
        "{\"name\":\"b\",\"scheme\":\"range\",\"placement\":{\"require\":{\"Zone\":\"a\"}}}",
        400,
        "invalid_request",
        "\"/placement/require\""),
    ROW("POST /v1/keyspaces",
        "{\"name\":\"b\",\"scheme\":\"range\",\"placement\":{\"require\":{\"zone\":1}}}",
        400,
        "invalid_request",
        "\"/placement/require/zone\""),
    ROW("POST /v1/keyspaces",
        "{\"name\":\"b\",\"scheme\":\"range\",\"policy\":{\"x\":{}}}",
        400,
        "invalid_request",
        "\"/policy/x\""),
    ROW("POST /v1/keyspaces",
        "{\"name\":\"b\",\"scheme\":\"range\",\"policy\":{\"uneven_access\":\"2\"}}",
        400,
        "invalid_request",
        "\"/policy/uneven_access\""),
    ROW("POST /v1/keyspaces",
        "{\"name\":\"b\",\"scheme\":\"range\",\"policy\":{\"headroom\":0.5}}",
        400,
        "invalid_request",
        "\"/policy/headroom\""),
    ROW("POST /v1/keyspaces",
        "{\"name\":\"b\",\"scheme\":\"range\",\"policy\":{\"stage_timeout_ms\":0}}",
        400,
        "invalid_request",
        "\"/policy/stage_timeout_ms\""),
    ROW("POST /v1/keyspaces",
        "{\"name\":\"b\",\"scheme\":\"range\",\"policy\":{\"reverse_replication\":1}}",
        400,
        "invalid_request",
        "\"/policy/reverse_replication\""),
    ROW("POST /v1/keyspaces",
        "{\"name\":\"b\",\"scheme\":\"range\",\"policy\":{\"required_checks\":[\"a\",\"a\",\"a\","
        "\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\"]}}",
        400,
        "invalid_request",
        "\"/policy/required_checks\""),
    ROW("POST /v1/keyspaces",
        "{\"name\":\"b\",\"scheme\":\"range\",\"policy\":{\"required_checks\":[1]}}",
        400,
        "invalid_request",
        "\"/policy/required_checks\""),
    ROW("POST /v1/keyspaces",
        "{\"name\":\"b\",\"scheme\":\"range\",\"expect_revision\":1}",
        409,
        "stale_revision",
        "\"revision\":"),
    ROW("GET /v1/keyspaces/nope", NULL, 404, "keyspace_not_found", NULL),
    ROW("PATCH /v1/keyspaces/nope", "{}", 404, "keyspace_not_found", NULL),
    ROW("DELETE /v1/keyspaces/nope?confirm=nope", NULL, 404, "keyspace_not_found", NULL),
    ROW("DELETE /v1/keyspaces/a", NULL, 400, "invalid_request", "confirm"),
    ROW("DELETE /v1/keyspaces/a?confirm=b", NULL, 400, "invalid_request", "confirm"),
    ROW("DELETE /v1/keyspaces/a?confirm=a", "{\"x\":1}", 400, "invalid_request", "\"/x\""),
    ROW("DELETE /v1/keyspaces/a?confirm=a", "{\"expect_revision\":1}", 409, "stale_revision", NULL),
    ROW("DELETE /v1/keyspaces/a?confirm=a", NULL, 200, NULL, "\"revision\":"),
    ROW("GET /v1/keyspaces/a", NULL, 404, "keyspace_not_found", NULL),
    ROW("PUT /v1/keyspaces/a", "{}", 405, "method_not_allowed", NULL),
    ROW("GET /v1/keyspaces?colour=1", NULL, 400, "invalid_request", "colour"),
    ROW("GET /v1/keyspaces?limit=0", NULL, 400, "invalid_request", "limit"),
    ROW("GET /v1/keyspaces?cursor=zz", NULL, 400, "invalid_request", "cursor"),
};

static void keyspace_refusals(void)
{
    struct api_world w;
    api_world_open(&w);
    ROWS(&w, refused_keyspaces);
    api_world_close(&w);
}

static void keyspace_patch_merges(void)
{
    struct api_world w;
    api_world_open(&w);
    CHECK(EXPECT(
        &w, "POST /v1/keyspaces",
        "{\"name\":\"a\",\"scheme\":\"range\",\"placement\":{\"require\":{\"zone\":\"z1\","
        "\"disk\":[\"ssd\",\"nvme\"]},\"spread\":\"zone\"},\"policy\":{\"x\":1,\"y\":[1,\"b\"]}}",
        201, NULL));
    CHECK(EXPECT(
        &w, "PATCH /v1/keyspaces/a",
        "{\"placement\":{\"require\":{\"zone\":null,\"rack\":\"r1\"}},\"policy\":{\"x\":null,"
        "\"z\":true}}",
        200, NULL));
    CHECK(api_at(&w, "placement/require/zone") == NULL);
    CHECK_STR(api_text(&w, "placement/require/rack"), "r1");
    CHECK_STR(api_text(&w, "placement/require/disk/0"), "nvme");
    CHECK_STR(api_text(&w, "placement/spread"), "zone");
    CHECK(api_at(&w, "policy/x") == NULL);
    CHECK(json_is_true(api_at(&w, "policy/z")));
    CHECK_STR(api_text(&w, "policy/y/1"), "b");
    CHECK(EXPECT(&w, "PATCH /v1/keyspaces/a",
                 "{\"placement\":null,\"policy\":null,\"replicas\":{\"sync\":2}}", 200, NULL));
    CHECK_U64(json_object_size(api_at(&w, "placement/require")), 0);
    CHECK_U64(json_object_size(api_at(&w, "policy")), 0);
    CHECK_U64(api_u64(&w, "replicas/sync"), 2);
    CHECK_U64(api_u64(&w, "partitions"), 1);
    CHECK(EXPECT(&w, "PATCH /v1/keyspaces/a", "{\"name\":\"b\"}", 400, "invalid_request"));
    CHECK_STR(api_text(&w, "errors/0/pointer"), "/name");
    api_world_close(&w);
}

static void routes_of_one_and_many_keys(void)
{
    static const struct api_row rows[] = {
        ROW("GET /v1/keyspaces/o/route", NULL, 400, "invalid_request", "key"),
        ROW("GET /v1/keyspaces/nope/route?key=a", NULL, 404, "keyspace_not_found", NULL),
        ROW("GET /v1/keyspaces/o/route?key=%ff", NULL, 400, "invalid_key", NULL),
        ROW("GET /v1/keyspaces/h/route?key=f", NULL, 400, "invalid_key", NULL),
        ROW("GET /v1/keyspaces/h/route?key=FF", NULL, 400, "invalid_key", NULL),
        ROW("GET /v1/keyspaces/h/route?key=ff", NULL, 200, NULL, "\"partition\":"),
        ROW("GET /v1/keyspaces/h/route?key=", NULL, 200, NULL, "\"partition\":"),
        ROW("GET /v1/keyspaces/o/route?key=a%00b", NULL, 200, NULL, "\"end\":\"m\""),
        ROW("POST /v1/keyspaces/o/routes", "{}", 400, "invalid_request", "\"/keys\""),
        ROW("POST /v1/keyspaces/o/routes", "{\"keys\":[1]}", 400, "invalid_request", "\"/keys/0\""),
        ROW("POST /v1/keyspaces/h/routes", "{\"keys\":[\"00\",\"x\"]}", 400, "invalid_key",
            "\"/keys/1\""),
        ROW("POST /v1/keyspaces/o/routes", "{\"keys\":[],\"x\":1}", 400, "invalid_request",
            "\"/x\""),
        ROW("POST /v1/keyspaces/o/routes", "{\"keys\":[]}", 200, NULL, "\"routes\":[]"),
        ROW("GET /v1/keyspaces/o/routes?start=z&end=a", NULL, 400, "invalid_request", "end"),
        ROW("GET /v1/keyspaces/o/routes?start=a&end=a", NULL, 400, "invalid_request", "end"),
    };
    struct api_world w;
    api_world_open(&w);
    api_nodes(&w, 1);
    CHECK(EXPECT(&w, "POST /v1/keyspaces",
                 "{\"name\":\"o\",\"scheme\":\"range\",\"splits\":[\"m\"]}", 201, NULL));
    CHECK(EXPECT(&w, "POST /v1/keyspaces",
                 "{\"name\":\"h\",\"scheme\":\"hash\",\"partitions\":4,\"key_encoding\":\"hex\"}",
                 201, NULL));
    ROWS(&w, rows);
    CHECK(EXPECT(&w, "GET /v1/keyspaces/o/route?key=zebra", NULL, 200, NULL));
    CHECK_STR(api_text(&w, "keyspace"), "o");
    CHECK_STR(api_text(&w, "start"), "m");
    CHECK(api_at(&w, "end") == NULL);
    CHECK_STR(api_text(&w, "state"), "active");
    CHECK_STR(api_text(&w, "primary/node"), "n1");
    CHECK_STR(api_text(&w, "primary/address"), "10.0.0.1:9000");
    CHECK_STR(api_text(&w, "authority"), "static");
    CHECK_STR(api_text(&w, "replicas/0/role"), "primary");
    CHECK_U64(api_u64(&w, "max_age_ms"), 30000);
    CHECK(api_at(&w, "rate_limit") == NULL && api_at(&w, "moving") == NULL);
    CHECK(api_at(&w, "lineage") == NULL);
    CHECK(EXPECT(&w, "POST /v1/keyspaces/o/routes", "{\"keys\":[\"z\",\"a\",\"z\"]}", 200, NULL));
    CHECK_U64(json_array_size(api_at(&w, "routes")), 3);
    CHECK_STR(api_text(&w, "routes/0/start"), "m");
    CHECK_STR(api_text(&w, "routes/1/end"), "m");
    CHECK(json_equal(api_at(&w, "routes/0"), api_at(&w, "routes/2")));
    CHECK(EXPECT(&w, "GET /v1/keyspaces/o/routes?start=n", NULL, 200, NULL));
    CHECK_U64(json_array_size(api_at(&w, "routes")), 1);
    CHECK(EXPECT(&w, "GET /v1/keyspaces/o/routes?start=&end=m", NULL, 200, NULL));
    CHECK_U64(json_array_size(api_at(&w, "routes")), 1);
    CHECK(EXPECT(&w, "GET /v1/keyspaces/h/routes", NULL, 200, NULL));
    CHECK_STR(api_text(&w, "routes/1/start"), "4000000000000000");
    api_world_close(&w);
}

static void etags_of_routes(void)
{
    struct api_world w;
    const char *etag, *match;
    api_world_open(&w);
    api_nodes(&w, 1);
    CHECK(EXPECT(&w, "POST /v1/keyspaces", "{\"name\":\"o\",\"scheme\":\"range\"}", 201, NULL));
    CHECK(EXPECT(&w, "GET /v1/keyspaces/o/route?key=a", NULL, 200, NULL));
    etag = text("\"%" PRIu64 "-%" PRIu64 "-%" PRIu64 "\"", api_u64(&w, "partition"),
                api_u64(&w, "epoch"), api_u64(&w, "mod_revision"));
    CHECK_STR(api_header(&w, "ETag"), etag);
    match = text("If-None-Match: %s\r\n", etag);
    CHECK(EXPECT_WITH(&w, "GET /v1/keyspaces/o/route?key=a", match, NULL, 304, NULL));
    CHECK_U64(w.answer.body.len, 0);
    CHECK_STR(api_header(&w, "ETag"), etag);
    CHECK(EXPECT_WITH(&w, "GET /v1/keyspaces/o/route?key=a",
                      text("If-None-Match: \"1-2-3\", W/%s\r\n", etag), NULL, 304, NULL));
    CHECK(EXPECT_WITH(&w, "GET /v1/keyspaces/o/route?key=a", "If-None-Match: *\r\n", NULL, 304,
                      NULL));
    CHECK(EXPECT_WITH(&w, "GET /v1/keyspaces/o/route?key=a",
                      text("If-None-Match: %.*s9\"\r\n", (int)strlen(etag) - 1, etag), NULL, 200,
                      NULL));
    CHECK(EXPECT_WITH(&w, "HEAD /v1/keyspaces/o/route?key=a", NULL, NULL, 200, NULL));
    CHECK_U64(w.answer.body.len, 0);
    /* A node's new address is another version of the same epoch. */
    CHECK(
        EXPECT(&w, "PUT /v1/nodes/n1",
               "{\"address\":\"10.0.0.9:9000\",\"lease\":\"static\",\"labels\":{\"zone\":\"z1\"}}",
               200, NULL));
    CHECK(EXPECT_WITH(&w, "GET /v1/keyspaces/o/route?key=a", match, NULL, 200, NULL));
    CHECK_STR(api_text(&w, "primary/address"), "10.0.0.9:9000");
    CHECK(api_u64(&w, "mod_revision") > api_u64(&w, "epoch"));
    api_world_close(&w);
}

static void splits_merges_and_stale_epochs(void)
{
    struct api_world w;
    uint64_t parent, epoch, left, right, merged;
    api_world_open(&w);
    api_nodes(&w, 1);
    CHECK(EXPECT(&w, "POST /v1/keyspaces", "{\"name\":\"o\",\"scheme\":\"range\"}", 201, NULL));
    CHECK(EXPECT(&w, "GET /v1/keyspaces/o/partitions", NULL, 200, NULL));
    parent = api_u64(&w, "partitions/0/partition");
    epoch = api_u64(&w, "partitions/0/epoch");
    CHECK(json_is_false(api_at(&w, "partitions/0/pinned")));
    CHECK_U64(json_array_size(api_at(&w, "partitions/0/lineage/parents")), 0);
    CHECK(EXPECT(&w, text("POST /v1/keyspaces/o/partitions/%" PRIu64 "/split", parent),
                 text("{\"at\":[\"g\"],\"expect_epoch\":%" PRIu64 "}", epoch - 1), 409,
                 "stale_epoch"));
    CHECK_U64(api_u64(&w, "epoch"), epoch);
    CHECK_U64(api_u64(&w, "route/partition"), parent);
    CHECK(EXPECT(&w, text("POST /v1/keyspaces/o/partitions/%" PRIu64 "/split", parent),
                 text("{\"at\":[\"g\"],\"expect_epoch\":%" PRIu64 "}", epoch + 1), 409,
                 "future_epoch"));
    CHECK_U64(api_u64(&w, "epoch"), epoch);
    CHECK(EXPECT(&w, text("POST /v1/keyspaces/o/partitions/%" PRIu64 "/split", parent),
                 "{\"at\":[\"g\",\"g\"]}", 422, "bad_split_key"));
    CHECK(EXPECT(&w, text("POST /v1/keyspaces/o/partitions/%" PRIu64 "/split", parent),
                 text("{\"at\":[\"g\",\"p\"],\"expect_epoch\":%" PRIu64 "}", epoch), 200, NULL));
    CHECK_U64(api_u64(&w, "parent"), parent);
    CHECK_U64(json_array_size(api_at(&w, "children")), 3);
    left = api_u64(&w, "children/0/partition");
    right = api_u64(&w, "children/1/partition");
    CHECK(api_u64(&w, "children/0/epoch") > epoch);
    /* The retired id: commands are told what is there now, GET is gone. */
    CHECK(EXPECT(&w, text("POST /v1/keyspaces/o/partitions/%" PRIu64 "/split", parent),
                 "{\"at\":[\"k\"]}", 409, "stale_epoch"));
    CHECK(json_is_true(api_at(&w, "retired")));
    CHECK_U64(json_array_size(api_at(&w, "routes")), 3);
    CHECK(EXPECT(&w, text("GET /v1/keyspaces/o/partitions/%" PRIu64, parent), NULL, 410,
                 "partition_retired"));
    CHECK_U64(json_array_size(api_at(&w, "routes")), 3);
    CHECK(EXPECT(&w, text("GET /v1/keyspaces/o/partitions/%" PRIu64, left), NULL, 200, NULL));
    CHECK_U64(api_u64(&w, "lineage/parents/0"), parent);
    CHECK(EXPECT(&w, text("POST /v1/keyspaces/o/partitions/%" PRIu64 "/merge", left),
                 text("{\"with\":%" PRIu64 "}", left), 409, "not_mergeable"));
    CHECK(EXPECT(&w, text("POST /v1/keyspaces/o/partitions/%" PRIu64 "/merge", left),
                 text("{\"with\":%" PRIu64 "}", right), 200, NULL));
    merged = api_u64(&w, "route/partition");
    CHECK_STR(api_text(&w, "route/end"), "p");
    CHECK(EXPECT(&w, text("GET /v1/keyspaces/o/partitions/%" PRIu64, parent), NULL, 410,
                 "partition_retired"));
    CHECK_U64(json_array_size(api_at(&w, "routes")), 2);
    CHECK_U64(api_u64(&w, "routes/0/partition"), merged);
    api_world_close(&w);
}

static void partition_refusals(void)
{
    static const struct api_row rows[] = {
        ROW("GET /v1/keyspaces/o/partitions/99999", NULL, 404, "partition_not_found", NULL),
        ROW("GET /v1/keyspaces/o/partitions/x", NULL, 404, "partition_not_found", NULL),
        ROW("GET /v1/keyspaces/nope/partitions/1", NULL, 404, "keyspace_not_found", NULL),
        ROW("GET /v1/keyspaces/nope/partitions", NULL, 404, "keyspace_not_found", NULL),
        ROW("POST /v1/keyspaces/o/partitions/99999/split", "{\"at\":[\"a\"]}", 404,
            "partition_not_found", NULL),
        ROW("POST /v1/keyspaces/o/partitions/1/split", "{}", 400, "invalid_request", "\"/at\""),
        ROW("POST /v1/keyspaces/o/partitions/1/split", "{\"at\":[]}", 400, "invalid_request",
            "\"/at\""),
        ROW("POST /v1/keyspaces/o/partitions/1/split", "{\"at\":\"a\"}", 400, "invalid_request",
            "\"/at\""),
        ROW("POST /v1/keyspaces/o/partitions/1/merge", "{\"with\":\"2\"}", 400, "invalid_request",
            "\"/with\""),
        ROW("POST /v1/keyspaces/o/partitions/99999/merge", "{\"with\":2}", 404,
            "partition_not_found", NULL),
        ROW("POST /v1/keyspaces/o/partitions/99999/move", "{\"from\":\"n1\",\"to\":\"n2\"}", 404,
            "partition_not_found", NULL),
        ROW("POST /v1/keyspaces/o/partitions/1/move", "{\"from\":\"n1\"}", 400, "invalid_request",
            "\"/to\""),
        ROW("POST /v1/keyspaces/o/partitions/99999/check", "{\"node\":\"n1\",\"epoch\":1}", 404,
            "partition_not_found", NULL),
        ROW("POST /v1/keyspaces/o/partitions/1/check", "{\"node\":\"n1\"}", 400, "invalid_request",
            "\"/epoch\""),
        ROW("PATCH /v1/keyspaces/o/partitions/99999", "{\"pinned\":true}", 404,
            "partition_not_found", NULL),
        ROW("PATCH /v1/keyspaces/o/partitions/1", "{\"pinned\":1}", 400, "invalid_request",
            "\"/pinned\""),
        ROW("PATCH /v1/keyspaces/o/partitions/1", "{\"rate_limit\":{}}", 400, "invalid_request",
            "\"/rate_limit/requests_per_s\""),
        ROW("PATCH /v1/keyspaces/o/partitions/1", "{\"rate_limit\":{\"requests_per_s\":0}}", 400,
            "invalid_request", "\"/rate_limit/requests_per_s\""),
    };
    struct api_world w;
    api_world_open(&w);
    CHECK(EXPECT(&w, "POST /v1/keyspaces", "{\"name\":\"o\",\"scheme\":\"range\"}", 201, NULL));
    ROWS(&w, rows);
    api_world_close(&w);
}

static void partitions_are_checked_pinned_and_limited(void)
{
    struct api_world w;
    uint64_t p, epoch;
    const char *path;
    api_world_open(&w);
    api_nodes(&w, 2);
    CHECK(EXPECT(&w, "POST /v1/keyspaces", "{\"name\":\"o\",\"scheme\":\"range\"}", 201, NULL));
    CHECK(EXPECT(&w, "GET /v1/keyspaces/o/route?key=", NULL, 200, NULL));
    p = api_u64(&w, "partition");
    epoch = api_u64(&w, "epoch");
    const char *owner = strcmp(api_text(&w, "primary/node"), "n1") == 0 ? "n1" : "n2";
    const char *other = strcmp(owner, "n1") == 0 ? "n2" : "n1";
    path = text("POST /v1/keyspaces/o/partitions/%" PRIu64 "/check", p);
    CHECK(
        EXPECT(&w, path, text("{\"node\":\"%s\",\"epoch\":%" PRIu64 "}", owner, epoch), 200, NULL));
    CHECK_U64(api_u64(&w, "epoch"), epoch);
    CHECK(EXPECT(&w, path, text("{\"node\":\"%s\",\"epoch\":%" PRIu64 "}", other, epoch), 409,
                 "not_owner"));
    CHECK(EXPECT(&w, path, text("{\"node\":\"%s\",\"epoch\":%" PRIu64 "}", owner, epoch - 1), 409,
                 "stale_epoch"));
    CHECK(EXPECT(&w, path, text("{\"node\":\"%s\",\"epoch\":%" PRIu64 "}", owner, epoch + 1), 409,
                 "future_epoch"));
    path = text("PATCH /v1/keyspaces/o/partitions/%" PRIu64, p);
    CHECK(
        EXPECT(&w, path, "{\"pinned\":true,\"rate_limit\":{\"requests_per_s\":9000}}", 200, NULL));
    CHECK_U64(api_u64(&w, "rate_limit/requests_per_s"), 9000);
    CHECK(json_is_true(api_at(&w, "pinned")));
    CHECK(api_u64(&w, "created_revision") > 0);
    CHECK(json_is_array(api_at(&w, "lineage/parents")));
    CHECK_U64(api_u64(&w, "epoch"), epoch);
    CHECK(EXPECT(&w, path, "{\"rate_limit\":null}", 200, NULL));
    CHECK(api_at(&w, "rate_limit") == NULL);
    CHECK(json_is_true(api_at(&w, "pinned")));
    api_world_close(&w);
}

static void moves_of_empty_partitions(void)
{
    struct api_world w;
    uint64_t p, epoch, op;
    api_world_open(&w);
    api_nodes(&w, 2);
    CHECK(EXPECT(&w, "POST /v1/keyspaces", "{\"name\":\"o\",\"scheme\":\"range\"}", 201, NULL));
    CHECK(EXPECT(&w, "GET /v1/keyspaces/o/route?key=", NULL, 200, NULL));
    p = api_u64(&w, "partition");
    epoch = api_u64(&w, "epoch");
    const char *from = strcmp(api_text(&w, "primary/node"), "n1") == 0 ? "n1" : "n2";
    const char *to = strcmp(from, "n1") == 0 ? "n2" : "n1";
    const char *path = text("POST /v1/keyspaces/o/partitions/%" PRIu64 "/move", p);
    CHECK(EXPECT(&w, path, text("{\"from\":\"%s\",\"to\":\"%s\"}", from, to), 409,
                 "needs_staged_move"));
    CHECK(EXPECT(&w, path, text("{\"from\":\"%s\",\"to\":\"n7\"}", from), 404, "node_not_found"));
    CHECK(EXPECT(
        &w, path,
        text("{\"from\":\"%s\",\"to\":\"%s\",\"expect_epoch\":%" PRIu64 "}", from, to, epoch - 1),
        409, "stale_epoch"));
    CHECK(
        EXPECT(&w, path,
               text("{\"from\":\"%s\",\"to\":\"%s\",\"empty\":true,\"reason\":\"test\"}", from, to),
               202, NULL));
    op = api_u64(&w, "id");
    CHECK_STR(api_header(&w, "Location"), text("/v1/operations/%" PRIu64, op));
    CHECK_STR(api_text(&w, "state"), "done");
    CHECK_STR(api_text(&w, "destination"), to);
    CHECK_U64(api_u64(&w, "epoch_before"), epoch);
    CHECK(api_u64(&w, "epoch_after") > epoch);
    CHECK(EXPECT(&w, text("GET /v1/operations/%" PRIu64, op), NULL, 200, NULL));
    CHECK_STR(api_text(&w, "reason"), "test");
    CHECK(EXPECT(&w, "GET /v1/operations/77777", NULL, 404, "operation_not_found"));
    CHECK(
        EXPECT(&w, text("GET /v1/operations?keyspace=o&node=%s&state=done", to), NULL, 200, NULL));
    CHECK_U64(json_array_size(api_at(&w, "operations")), 1);
    CHECK(EXPECT(&w, "GET /v1/operations?state=queued", NULL, 200, NULL));
    CHECK_U64(json_array_size(api_at(&w, "operations")), 0);
    CHECK(EXPECT(&w, "GET /v1/operations?state=odd", NULL, 400, "invalid_request"));
    CHECK(EXPECT(&w, "GET /v1/keyspaces/o/route?key=", NULL, 200, NULL));
    CHECK_STR(api_text(&w, "primary/node"), to);
    path = text("POST /v1/keyspaces/o/partitions/%" PRIu64 "/transfer", p);
    CHECK(EXPECT(&w, path, text("{\"to\":\"%s\"}", from), 409, "needs_staged_move"));
    path = text("POST /v1/keyspaces/o/partitions/%" PRIu64 "/replicas", p);
    CHECK(EXPECT(&w, path, text("{\"node\":\"%s\",\"role\":\"sync\"}", from), 409,
                 "needs_staged_move"));
    CHECK(EXPECT(&w, path, "{\"node\":\"n1\",\"role\":\"primary\"}", 400, "invalid_request"));
    path = text("DELETE /v1/keyspaces/o/partitions/%" PRIu64 "/replicas/%s", p, from);
    CHECK(EXPECT(&w, path, NULL, 409, "needs_staged_move"));
    path = text("DELETE /v1/keyspaces/o/partitions/%" PRIu64 "/replicas/nobody", p);
    CHECK(EXPECT(&w, path, NULL, 404, "node_not_found"));
    CHECK(api_u64(&w, "revision") > 0);
    api_world_close(&w);
}

static void validation_of_held_routes(void)
{
    struct api_world w;
    uint64_t parent, epoch, child, child_epoch;
    api_world_open(&w);
    api_nodes(&w, 1);
    CHECK(EXPECT(&w, "POST /v1/keyspaces", "{\"name\":\"o\",\"scheme\":\"range\"}", 201, NULL));
    CHECK(EXPECT(&w, "GET /v1/keyspaces/o/route?key=", NULL, 200, NULL));
    parent = api_u64(&w, "partition");
    epoch = api_u64(&w, "epoch");
    const char *held =
        text("{\"routes\":[{\"partition\":%" PRIu64 ",\"epoch\":%" PRIu64 "}]}", parent, epoch);
    CHECK(EXPECT(&w, "POST /v1/keyspaces/o/validate", held, 200, NULL));
    CHECK_U64(json_array_size(api_at(&w, "stale")), 0);
    CHECK(EXPECT(&w, text("POST /v1/keyspaces/o/partitions/%" PRIu64 "/split", parent),
                 "{\"at\":[\"m\"]}", 200, NULL));
    child = api_u64(&w, "children/0/partition");
    child_epoch = api_u64(&w, "children/0/epoch");
    CHECK(EXPECT(&w, "POST /v1/keyspaces/o/validate", held, 200, NULL));
    CHECK_STR(api_text(&w, "stale/0/reason"), "split");
    CHECK_U64(json_array_size(api_at(&w, "stale/0/routes")), 2);
    CHECK(EXPECT(&w, text("PATCH /v1/keyspaces/o/partitions/%" PRIu64, child),
                 "{\"rate_limit\":{\"requests_per_s\":5}}", 200, NULL));
    CHECK(EXPECT(&w, "POST /v1/keyspaces/o/validate",
                 text("{\"routes\":[{\"partition\":%" PRIu64 ",\"epoch\":%" PRIu64
                      ",\"mod_revision\":%" PRIu64 "},{\"partition\":%" PRIu64 ",\"epoch\":%" PRIu64
                      "},{\"partition\":%" PRIu64 ",\"epoch\":99999},{\"partition\":%" PRIu64
                      ",\"epoch\":2},{\"partition\":777777,\"epoch\":1},"
                      "{\"partition\":777777,\"epoch\":99999}]}",
                      child, child_epoch, child_epoch, child, child_epoch, child, child),
                 200, NULL));
    CHECK_U64(json_array_size(api_at(&w, "stale")), 3);
    CHECK_STR(api_text(&w, "stale/0/reason"), "changed");
    CHECK_STR(api_text(&w, "stale/1/reason"), "moved");
    CHECK_STR(api_text(&w, "stale/2/reason"), "unknown");
    CHECK_U64(json_array_size(api_at(&w, "stale/2/routes")), 0);
    CHECK_U64(json_array_size(api_at(&w, "ahead")), 2);
    CHECK(EXPECT(&w, "POST /v1/keyspaces/o/validate", "{\"routes\":[{\"partition\":1}]}", 400,
                 "invalid_request"));
    CHECK_STR(api_text(&w, "errors/0/pointer"), "/routes/0/epoch");
    CHECK(EXPECT(&w, "POST /v1/keyspaces/o/validate", "{\"routes\":[1]}", 400, "invalid_request"));
    api_world_close(&w);
}

int main(void)
{
    RUN(keyspaces_are_created_and_shown);
    RUN(keyspace_refusals);
    RUN(keyspace_patch_merges);
    RUN(routes_of_one_and_many_keys);
    RUN(etags_of_routes);
    RUN(splits_merges_and_stale_epochs);
    RUN(partition_refusals);
    RUN(partitions_are_checked_pinned_and_limited);
    RUN(moves_of_empty_partitions);
    RUN(validation_of_held_routes);
    return tap_done();
}
