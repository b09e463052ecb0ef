/* SPDX-License-Identifier: Apache-2.0 */
/* Load reports over the API: what is refused, what is ignored, what is seen afterwards. */
#include "api/load.pb-c.h"
#include "tests/harness/api_world.h"
#include "tests/harness/tap.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static struct api_world w;
static uint64_t session, partition, epoch;

#define VALUES                                                                                     \
    "\"reads\":60000,\"writes\":30000,\"read_bytes\":600000,\"write_bytes\":6000,\"cpu_ms\":6000," \
    "\"size_bytes\":4096"

#define PART(operation, outcome, requests)                                                         \
    "{\"operation\":\"" operation "\",\"outcome\":\"" outcome "\",\"requests\":" requests "}"
#define FOUR(operation)                                                                            \
    PART(operation, "ok", "1")                                                                     \
    "," PART(operation, "error", "1") "," PART(operation, "slow", "1") "," PART(operation, "no",   \
                                                                                "1")

static void begin(void)
{
    api_world_open(&w);
    CHECK(EXPECT(&w, "PUT /v1/nodes/n1", "{\"address\":\"n1:1\",\"lease\":\"static\"}", 200, NULL));
    session = api_u64(&w, "session");
    CHECK(EXPECT(&w, "POST /v1/keyspaces", "{\"name\":\"ks\",\"scheme\":\"range\"}", 201, NULL));
    CHECK(EXPECT(&w, "GET /v1/keyspaces/ks/route?key=a", NULL, 200, NULL));
    partition = api_u64(&w, "partition");
    epoch = api_u64(&w, "epoch");
}

/* A report of one partition: `more` follows its values, `rest` its end. */
static const char *report(uint64_t p, uint64_t e, const char *more, const char *rest)
{
    return text("{\"session\":%" PRIu64 ",\"interval_ms\":60000,\"partitions\":[{\"keyspace\":"
                "\"ks\",\"partition\":%" PRIu64 ",\"epoch\":%" PRIu64 "," VALUES "%s}]%s}",
                session, p, e, more, rest);
}

static void get_partition(uint64_t p)
{
    CHECK(EXPECT(&w, text("GET /v1/keyspaces/ks/partitions/%" PRIu64, p), NULL, 200, NULL));
}

static void a_report_is_seen(void)
{
    begin();
    get_partition(partition);
    CHECK(api_at(&w, "load") == NULL && api_at(&w, "size_bytes") == NULL);
    CHECK(EXPECT(&w, "POST /v1/nodes/n1/load",
                 report(partition, epoch,
                        ",\"items\":7,\"queue_ms_p99\":12,\"throttles\":600,\"keys\":[{\"key\":"
                        "\"a\",\"weight\":5},{\"key\":\"b\",\"end\":\"c\",\"weight\":1}]",
                        text(",\"revision\":%" PRIu64 ",\"node\":{\"cpu\":3.25,"
                             "\"latency_ms_p99\":9,\"disk_free_bytes\":1000}",
                             epoch)),
                 202, NULL));
    CHECK_U64(api_u64(&w, "counted"), 1);
    CHECK_U64(api_u64(&w, "ignored_count"), 0);
    CHECK_U64(api_u64(&w, "keys_dropped"), 0);
    get_partition(partition);
    CHECK(json_is_true(api_at(&w, "load/known")));
    CHECK_U64(api_u64(&w, "load/reads_per_s"), 1000);
    CHECK_U64(api_u64(&w, "load/writes_per_s"), 500);
    CHECK_U64(api_u64(&w, "load/cpu_ms_per_s"), 100);
    CHECK_U64(api_u64(&w, "load/throttles_per_s"), 10);
    CHECK_U64(api_u64(&w, "load/queue_ms_p99"), 12);
    CHECK_U64(api_u64(&w, "load/items"), 7);
    CHECK_U64(api_u64(&w, "size_bytes"), 4096);
    CHECK(api_at(&w, "load/tombstones") == NULL); /* not reported, so not shown as 0 */
    CHECK(EXPECT(&w, "GET /v1/nodes/n1", NULL, 200, NULL));
    CHECK_U64(api_u64(&w, "reported/latency_ms_p99"), 9);
    CHECK_U64(api_u64(&w, "reported/disk_free_bytes"), 1000);
    CHECK(json_real_value(api_at(&w, "reported/cpu")) == 3.25);
    CHECK_U64(api_u64(&w, "load/writes_per_s"), 500);
    CHECK_U64(api_u64(&w, "load/partitions"), 1);
    CHECK(EXPECT(&w, "GET /v1/nodes", NULL, 200, NULL));
    CHECK_U64(api_u64(&w, "nodes/0/reported/latency_ms_p99"), 9);
    api_world_close(&w);
}

struct wrong {
    int line;
    const char *more, *rest, *pointer;
};

static void what_is_wrong_is_named_and_nothing_counts(void)
{
    static const struct wrong rows[] = {
        {__LINE__, ",\"items\":-1", "", "/partitions/0/items"},
        {__LINE__, ",\"items\":-0", "", "/partitions/0/items"},
        {__LINE__, ",\"items\":1.5", "", "/partitions/0/items"},
        {__LINE__, ",\"items\":1e3", "", "/partitions/0/items"},
        {__LINE__, ",\"items\":1e999", "", "/partitions/0/items"},
        {__LINE__, ",\"items\":NaN", "", "/partitions/0/items"},
        {__LINE__, ",\"items\":\"NaN\"", "", "/partitions/0/items"},
        {__LINE__, ",\"items\":null", "", "/partitions/0/items"},
        {__LINE__, ",\"items\":281474976710657", "", "/partitions/0/items"},
        {__LINE__, ",\"items\":9007199254740992", "", "/partitions/0/items"},
        {__LINE__, ",\"throttles\":64424509441", "", "/partitions/0/throttles"},
        {__LINE__, ",\"queue_ms_p99\":3600001", "", "/partitions/0/queue_ms_p99"},
        {__LINE__, ",\"reads\":1", "", "/partitions/0/reads"}, /* twice */
        {__LINE__, ",\"loads\":1", "", "/partitions/0/loads"},
        {__LINE__, ",\"keys\":{}", "", "/partitions/0/keys"},
        {__LINE__, ",\"keys\":[1]", "", "/partitions/0/keys/0"},
        {__LINE__, ",\"keys\":[{\"key\":\"a\"}]", "", "/partitions/0/keys/0/weight"},
        {__LINE__, ",\"keys\":[{\"key\":\"a\",\"weight\":0}]", "", "/partitions/0/keys/0/weight"},
        {__LINE__, ",\"keys\":[{\"key\":\"a\",\"weight\":1099511627777}]", "",
         "/partitions/0/keys/0/weight"},
        {__LINE__, ",\"keys\":[{\"weight\":1}]", "", "/partitions/0/keys/0/key"},
        {__LINE__, ",\"keys\":[{\"key\":\"a\",\"weight\":1,\"end\":7}]", "",
         "/partitions/0/keys/0/end"},
        {__LINE__, ",\"keys\":[{\"key\":\"b\",\"weight\":1,\"end\":\"a\"}]", "",
         "/partitions/0/keys/0/end"},
        {__LINE__, ",\"keys\":[{\"key\":\"b\",\"weight\":1,\"end\":\"b\"}]", "",
         "/partitions/0/keys/0/end"},
        {__LINE__, ",\"by\":{}", "", "/partitions/0/by"},
        {__LINE__, ",\"by\":[\"get\"]", "", "/partitions/0/by/0"},
        {__LINE__, ",\"by\":[[]]", "", "/partitions/0/by/0"},
        {__LINE__, ",\"by\":[[[1]]]", "", "/partitions/0/by/0"},
        {__LINE__, ",\"by\":[{\"outcome\":\"ok\",\"requests\":1}]", "",
         "/partitions/0/by/0/operation"},
        {__LINE__, ",\"by\":[" PART("get", "ok", "1") ",{\"operation\":\"put\",\"requests\":1}]",
         "", "/partitions/0/by/1/outcome"},
        {__LINE__, ",\"by\":[" PART("Get it", "ok", "1") "]", "", "/partitions/0/by/0/operation"},
        {__LINE__, ",\"by\":[" PART("get", "", "1") "]", "", "/partitions/0/by/0/outcome"},
        {__LINE__, ",\"by\":[" PART("get", "ok", "1,\"tenant\":\"\"") "]", "",
         "/partitions/0/by/0/tenant"},
        {__LINE__, ",\"by\":[" PART("get", "ok", "1,\"tenant\":7") "]", "",
         "/partitions/0/by/0/tenant"},
        {__LINE__,
         ",\"by\":[{\"operation\":"
         "\"a234567890123456789012345678901234567890123456789012345678901234\"}]",
         "", "/partitions/0/by/0/operation"},
        {__LINE__, ",\"by\":[{\"operation\":\"get\",\"outcome\":\"ok\"}]", "",
         "/partitions/0/by/0/requests"},
        {__LINE__, ",\"by\":[" PART("get", "ok", "-1") "]", "", "/partitions/0/by/0/requests"},
        {__LINE__, ",\"by\":[" PART("get", "ok", "1.5") "]", "", "/partitions/0/by/0/requests"},
        {__LINE__, ",\"by\":[" PART("get", "ok", "90001") "]", "", "/partitions/0/by/0/requests"},
        {__LINE__, ",\"by\":[" PART("get", "ok", "60000") "," PART("put", "ok", "30001") "]", "",
         "/partitions/0/by/1/requests"},
        {__LINE__, ",\"by\":[" PART("get", "ok", "1") "," PART("get", "ok", "2") "]", "",
         "/partitions/0/by/1"},
        {__LINE__, ",\"by\":[" PART("get", "ok", "1,\"weight\":2") "]", "",
         "/partitions/0/by/0/weight"},
        {__LINE__,
         ",\"by\":[" FOUR("a") "," FOUR("b") "," FOUR("c") "," FOUR("d") "," FOUR("e") "]", "",
         "/partitions/0/by"},
        {__LINE__, "", ",\"session\":1", "/session"}, /* twice */
        {__LINE__, "", ",\"seq\":0", "/seq"},
        {__LINE__, "", ",\"node\":[]", "/node"},
        {__LINE__, "", ",\"node\":{\"cpu\":-1}", "/node/cpu"},
        {__LINE__, "", ",\"node\":{\"cpu\":1e2}", "/node/cpu"},
        {__LINE__, "", ",\"node\":{\"cpu\":4097}", "/node/cpu"},
        {__LINE__, "", ",\"node\":{\"disk_free_bytes\":1.5}", "/node/disk_free_bytes"},
        {__LINE__, "", ",\"node\":{\"speed\":1}", "/node/speed"},
    };
    begin();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        api_call(&w, "POST /v1/nodes/n1/load", NULL,
                 report(partition, epoch, rows[i].more, rows[i].rest));
        if (!CHECK_U64(w.answer.status, 400) ||
            !CHECK_STR(api_text(&w, "errors/0/pointer"), rows[i].pointer)) {
            tap_note("line %d: %s", rows[i].line, api_body(&w));
        }
    }
    get_partition(partition);
    CHECK(api_at(&w, "load") == NULL);
    CHECK(EXPECT(&w, "GET /v1/nodes/n1", NULL, 200, NULL));
    CHECK(api_at(&w, "reported") == NULL);
    api_world_close(&w);
}

/* Bodies whose fault is not of one partition's values. */
static void whole_reports_are_refused_by_pointer(void)
{
    static const struct {
        const char *body, *pointer;
    } rows[] = {
        {"{}", "/session"},
        {"{\"session\":1}", "/interval_ms"},
        {"{\"session\":1,\"interval_ms\":99,\"partitions\":[]}", "/interval_ms"},
        {"{\"session\":1,\"interval_ms\":600001,\"partitions\":[]}", "/interval_ms"},
        {"{\"session\":1,\"interval_ms\":100}", "/partitions"},
        {"{\"session\":1,\"interval_ms\":100,\"partitions\":{}}", "/partitions"},
        {"{\"session\":1,\"interval_ms\":100,\"partitions\":[{}]}", "/partitions/0/keyspace"},
        {"{\"session\":1,\"interval_ms\":100,\"partitions\":[{\"keyspace\":\"KS\"}]}",
         "/partitions/0/keyspace"},
        {"{\"session\":1,\"interval_ms\":100,\"partitions\":[{\"keyspace\":\"ks\"}]}",
         "/partitions/0/partition"},
        {"{\"session\":1,\"interval_ms\":100,\"partitions\":[{\"keyspace\":\"ks\",\"partition\":1}"
         "]}",
         "/partitions/0/epoch"},
        {"{\"session\":1,\"interval_ms\":100,\"partitions\":[{\"keyspace\":\"ks\",\"partition\":1,"
         "\"epoch\":1}]}",
         "/partitions/0/reads"},
        {"{\"session\":1,\"interval_ms\":60000,\"partitions\":[{\"keyspace\":\"ks\",\"partition\":"
         "1,\"epoch\":1," VALUES "},{\"keyspace\":\"ks\",\"partition\":1,\"epoch\":1," VALUES "}]}",
         "/partitions/1/partition"},
        {"{\"session\":1,\"interval_ms\":60000,\"partitions\":[]} ,", ""},
        {"[]", ""},
    };
    begin();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        CHECK(EXPECT(&w, "POST /v1/nodes/n1/load", rows[i].body, 400, "invalid_request"));
        if (rows[i].pointer[0] != '\0' &&
            !CHECK_STR(api_text(&w, "errors/0/pointer"), rows[i].pointer)) {
            tap_note("%s: %s", rows[i].body, api_body(&w));
        }
    }
    CHECK(EXPECT(&w, "POST /v1/nodes/n1/load", report(partition, epoch, "", ""), 202, NULL));
    CHECK(EXPECT(&w, "POST /v1/nodes/n2/load", report(partition, epoch, "", ""), 404,
                 "node_not_found"));
    CHECK(EXPECT(&w, "POST /v1/nodes/n1/load", report(partition, epoch, "", ",\"revision\":99999"),
                 503, "behind"));
    session++;
    CHECK(EXPECT(&w, "POST /v1/nodes/n1/load", report(partition, epoch, "", ""), 409,
                 "session_ended"));
    api_world_close(&w);
}

static void expect_ignored(uint64_t p, uint64_t e, const char *code)
{
    CHECK(EXPECT(&w, "POST /v1/nodes/n1/load", report(p, e, "", ""), 202, NULL));
    CHECK_U64(api_u64(&w, "counted"), 0);
    CHECK_U64(api_u64(&w, "ignored_count"), 1);
    CHECK_STR(api_text(&w, "ignored/0/pointer"), "/partitions/0");
    CHECK_STR(api_text(&w, "ignored/0/code"), code);
}

static void what_came_too_late_or_from_elsewhere_is_ignored(void)
{
    begin();
    expect_ignored(partition, epoch - 1, "stale_epoch");
    CHECK_U64(api_u64(&w, "ignored/0/epoch"), epoch);
    expect_ignored(partition, epoch + 1, "future_epoch");
    expect_ignored(partition + 99, epoch, "partition_not_found");
    CHECK(EXPECT(&w, "POST /v1/nodes/n1/load",
                 report(partition, epoch, "", text(",\"revision\":%" PRIu64, epoch - 1)), 202,
                 NULL));
    CHECK_STR(api_text(&w, "ignored/0/code"), "before_epoch");
    CHECK(EXPECT(&w, "POST /v1/nodes/n1/load",
                 text("{\"session\":%" PRIu64 ",\"interval_ms\":60000,\"partitions\":[{"
                      "\"keyspace\":\"other\",\"partition\":1,\"epoch\":1," VALUES "}]}",
                      session),
                 202, NULL));
    CHECK_STR(api_text(&w, "ignored/0/code"), "keyspace_not_found");
    CHECK(EXPECT(&w, "PUT /v1/nodes/n2", "{\"address\":\"n2:1\",\"lease\":\"static\"}", 200, NULL));
    uint64_t mine = session, other = api_u64(&w, "session");
    session = other;
    CHECK(EXPECT(&w, "POST /v1/nodes/n2/load", report(partition, epoch, "", ""), 202, NULL));
    CHECK_STR(api_text(&w, "ignored/0/code"), "not_owner");
    session = mine;
    CHECK(EXPECT(&w, "POST /v1/nodes/n1/load", report(partition, epoch, "", ""), 202, NULL));
    /* It moves: what its old owner measured no longer counts, and its load stays. */
    CHECK(EXPECT(&w, text("POST /v1/keyspaces/ks/partitions/%" PRIu64 "/move", partition),
                 "{\"from\":\"n1\",\"to\":\"n2\",\"empty\":true}", 202, NULL));
    expect_ignored(partition, epoch, "stale_epoch");
    epoch = api_u64(&w, "ignored/0/epoch");
    session = other;
    CHECK(EXPECT(&w, "POST /v1/nodes/n2/load", report(partition, epoch, "", ""), 202, NULL));
    CHECK_STR(api_text(&w, "ignored/0/code"), "before_epoch");
    get_partition(partition);
    CHECK_U64(api_u64(&w, "load/writes_per_s"), 500);
    api_world_close(&w);
}

static void children_and_merged_ones_carry_the_load_on(void)
{
    begin();
    CHECK(EXPECT(&w, "POST /v1/nodes/n1/load",
                 report(partition, epoch,
                        ",\"keys\":[{\"key\":\"a\",\"weight\":300},{\"key\":\"x\",\"weight\":100}]",
                        ""),
                 202, NULL));
    CHECK(EXPECT(&w, text("POST /v1/keyspaces/ks/partitions/%" PRIu64 "/split", partition),
                 "{\"at\":[\"m\"]}", 200, NULL));
    uint64_t left = api_u64(&w, "children/0/partition"),
             right = api_u64(&w, "children/1/partition");
    expect_ignored(partition, epoch, "partition_retired");
    get_partition(left);
    uint64_t of_left = api_u64(&w, "load/writes_per_s");
    CHECK(of_left > 300 && of_left < 450); /* 375, sd 14 */
    get_partition(right);
    CHECK(api_u64(&w, "load/writes_per_s") + of_left >= 499);
    CHECK(api_u64(&w, "load/writes_per_s") + of_left <= 501);
    CHECK(EXPECT(&w, text("POST /v1/keyspaces/ks/partitions/%" PRIu64 "/merge", left),
                 text("{\"with\":%" PRIu64 "}", right), 200, NULL));
    get_partition(api_u64(&w, "route/partition"));
    CHECK(api_u64(&w, "load/writes_per_s") >= 499 && api_u64(&w, "load/writes_per_s") <= 501);
    CHECK(api_u64(&w, "size_bytes") >= 4094 && api_u64(&w, "size_bytes") <= 4096);
    api_world_close(&w);
}

static void a_repeated_report_does_not_count_again(void)
{
    begin();
    const char *one = report(partition, epoch, "", ",\"seq\":5");
    CHECK(EXPECT(&w, "POST /v1/nodes/n1/load", one, 202, NULL));
    CHECK(EXPECT(&w, "POST /v1/nodes/n1/load", report(partition, epoch, "", ",\"seq\":5"), 409,
                 "stale_report"));
    CHECK_STR(api_text(&w, "errors/0/pointer"), "/seq");
    CHECK(EXPECT(&w, "POST /v1/nodes/n1/load", report(partition, epoch, "", ",\"seq\":4"), 409,
                 "stale_report"));
    CHECK(EXPECT(&w, "POST /v1/nodes/n1/load", report(partition, epoch, "", ",\"seq\":6"), 202,
                 NULL));
    local_control_lead(w.control, false, "http://10.0.0.2:7400");
    CHECK(EXPECT(&w, "POST /v1/nodes/n1/load", report(partition, epoch, "", ""), 307, NULL));
    CHECK_STR(api_header(&w, "Location"), "http://10.0.0.2:7400/v1/nodes/n1/load");
    api_world_close(&w);
}

static void send_protobuf(Cadastre__LoadReport *m)
{
    uint8_t bytes[4096];
    size_t len = cadastre__load_report__get_packed_size(m);
    CHECK(len <= sizeof bytes);
    (void)cadastre__load_report__pack(m, bytes);
    api_send(&w, "POST /v1/nodes/n1/load", NULL, "application/x-protobuf", slice_of(bytes, len));
}

#define SET(m, field, v) ((m).has_##field = true, (m).field = (v))

/* Both forms put the same operations into the heat map. */
static void what_requests_were_is_told_apart(void)
{
    begin();
    CHECK(EXPECT(&w, "POST /v1/nodes/n1/load",
                 report(partition, epoch,
                        ",\"by\":[" PART("get", "ok", "60000,\"tenant\":\"acme\"") "," PART(
                            "put", "error", "30000") "]",
                        ""),
                 202, NULL));
    CHECK(EXPECT(&w, "GET /v1/heatmap?keyspace=ks&by=operation", NULL, 200, NULL));
    json_t *columns = json_deep_copy(api_at(&w, "columns"));
    json_t *values = json_deep_copy(api_at(&w, "rows/0/values"));
    CHECK_STR(api_text(&w, "columns/0/operation"), "get");
    CHECK_STR(api_text(&w, "columns/1/operation"), "put");
    CHECK(json_is_null(api_at(&w, "columns/2/operation")));
    CHECK(json_number_value(api_at(&w, "rows/0/values/0")) == 1000 &&
          json_number_value(api_at(&w, "rows/0/values/1")) == 500 &&
          json_number_value(api_at(&w, "rows/0/values/2")) == 0);
    CHECK(EXPECT(&w, "GET /v1/skew?keyspace=ks", NULL, 200, NULL));
    CHECK_STR(api_text(&w, "operations/0/operation"), "get");
    CHECK(json_number_value(api_at(&w, "operations/0/share")) == .667);
    CHECK_STR(api_text(&w, "outcomes/1/outcome"), "error");
    CHECK(json_number_value(api_at(&w, "outcomes/1/share")) == .333);
    CHECK_STR(api_text(&w, "tenants/0/tenant"), "acme");
    CHECK_U64(json_array_size(api_at(&w, "tenants")), 1);
    api_world_close(&w);
    begin();
    CHECK(EXPECT(&w, "GET /v1/skew?keyspace=ks", NULL, 200, NULL));
    CHECK_U64(json_array_size(api_at(&w, "operations")), 0);
    Cadastre__LoadReport m;
    Cadastre__PartitionLoad load, *loads[] = {&load};
    Cadastre__PartLoad get, put, *parts[] = {&get, &put};
    cadastre__load_report__init(&m);
    cadastre__partition_load__init(&load);
    cadastre__part_load__init(&get);
    cadastre__part_load__init(&put);
    SET(m, session, session);
    SET(m, interval_ms, 60000);
    m.n_partitions = 1;
    m.partitions = loads;
    load.keyspace = text_lent("ks");
    SET(load, partition, partition);
    SET(load, epoch, epoch);
    SET(load, reads, 60000);
    SET(load, writes, 30000);
    SET(load, read_bytes, 0);
    SET(load, write_bytes, 0);
    SET(load, cpu_ms, 0);
    SET(load, size_bytes, 0);
    load.n_by = 2;
    load.by = parts;
    get.operation = text_lent("get");
    get.outcome = text_lent("ok");
    get.tenant = text_lent("acme");
    SET(get, requests, 60000);
    put.operation = text_lent("put");
    SET(put, requests, 30000);
    send_protobuf(&m);
    CHECK_STR(api_text(&w, "errors/0/pointer"), "/partitions/0/by/1/outcome");
    put.outcome = text_lent("error");
    SET(put, requests, 30001);
    send_protobuf(&m);
    CHECK_STR(api_text(&w, "errors/0/pointer"), "/partitions/0/by/1/requests");
    put.requests = 30000;
    send_protobuf(&m);
    CHECK_U64(w.answer.status, 202);
    CHECK(EXPECT(&w, "GET /v1/heatmap?keyspace=ks&by=operation", NULL, 200, NULL));
    CHECK(json_equal(api_at(&w, "columns"), columns));
    for (size_t i = 0; i < 3; i++) {
        CHECK(json_number_value(api_at(&w, text("rows/0/values/%zu", i))) ==
              json_number_value(json_array_get(values, i)));
    }
    json_decref(columns);
    json_decref(values);
    api_world_close(&w);
}

/* The same as the JSON of report(), of another partition: the same is seen. */
static void protobuf_says_the_same_as_json(void)
{
    begin();
    CHECK(EXPECT(&w, "POST /v1/keyspaces",
                 "{\"name\":\"other\",\"scheme\":\"range\",\"key_encoding\":\"hex\"}", 201, NULL));
    CHECK(EXPECT(&w, "GET /v1/keyspaces/other/route?key=00", NULL, 200, NULL));
    uint64_t p = api_u64(&w, "partition");
    Cadastre__LoadReport m;
    Cadastre__PartitionLoad load, *loads[] = {&load};
    Cadastre__KeyWeight key, *keys[] = {&key};
    Cadastre__NodeLoad node;
    uint8_t raw[] = {0, 255};
    cadastre__load_report__init(&m);
    cadastre__partition_load__init(&load);
    cadastre__key_weight__init(&key);
    cadastre__node_load__init(&node);
    SET(m, session, session);
    SET(m, interval_ms, 60000);
    m.n_partitions = 1;
    m.partitions = loads;
    m.node = &node;
    SET(node, cpu_milli, 3250);
    load.keyspace = text_lent("other");
    SET(load, partition, p);
    SET(load, epoch, api_u64(&w, "epoch"));
    SET(load, reads, 60000);
    SET(load, writes, 30000);
    SET(load, read_bytes, 600000);
    SET(load, write_bytes, 6000);
    SET(load, cpu_ms, 6000);
    SET(load, size_bytes, 4096);
    SET(load, items, 7);
    load.n_keys = 1;
    load.keys = keys;
    SET(key, key, ((ProtobufCBinaryData){sizeof raw, raw}));
    SET(key, weight, 500);
    send_protobuf(&m);
    CHECK_U64(w.answer.status, 202);
    CHECK_U64(api_u64(&w, "counted"), 1);
    CHECK(EXPECT(&w, "GET /v1/nodes/n1", NULL, 200, NULL));
    CHECK(json_real_value(api_at(&w, "reported/cpu")) == 3.25);
    CHECK(EXPECT(&w, text("GET /v1/keyspaces/other/partitions/%" PRIu64, p), NULL, 200, NULL));
    json_t *seen = json_deep_copy(api_at(&w, "load"));
    CHECK_U64(api_u64(&w, "size_bytes"), 4096);
    CHECK(EXPECT(&w, "POST /v1/nodes/n1/load", report(partition, epoch, ",\"items\":7", ""), 202,
                 NULL));
    get_partition(partition);
    json_t *json = json_deep_copy(api_at(&w, "load"));
    (void)json_object_del(seen, "measured_ms_ago");
    (void)json_object_del(json, "measured_ms_ago");
    CHECK(json_equal(seen, json));
    json_decref(seen);
    json_decref(json);
    /* The same refusals. */
    load.has_writes = false;
    send_protobuf(&m);
    CHECK_STR(api_text(&w, "errors/0/pointer"), "/partitions/0/writes");
    SET(load, writes, UINT64_MAX);
    send_protobuf(&m);
    CHECK_STR(api_text(&w, "errors/0/pointer"), "/partitions/0/writes");
    load.writes = 1;
    key.weight = 0;
    send_protobuf(&m);
    CHECK_STR(api_text(&w, "errors/0/pointer"), "/partitions/0/keys/0/weight");
    key.weight = 1;
    m.interval_ms = 0;
    send_protobuf(&m);
    CHECK_STR(api_text(&w, "errors/0/pointer"), "/interval_ms");
    api_send(&w, "POST /v1/nodes/n1/load", NULL, "application/x-protobuf", slice_of("\x0a\xff", 2));
    CHECK_U64(w.answer.status, 400);
    api_send(&w, "POST /v1/nodes/n1/heartbeat", NULL, "application/x-protobuf",
             slice_of("\x0a\xff", 2));
    CHECK_U64(w.answer.status, 415);
    api_world_close(&w);
}

static void keys_that_are_none_are_refused(void)
{
    begin();
    CHECK(EXPECT(&w, "POST /v1/keyspaces",
                 "{\"name\":\"hashed\",\"scheme\":\"hash\",\"partitions\":1}", 201, NULL));
    CHECK(EXPECT(&w, "GET /v1/keyspaces/hashed/route?key=00", NULL, 200, NULL));
    const char *shape = "{\"session\":%" PRIu64 ",\"interval_ms\":60000,\"partitions\":[{"
                        "\"keyspace\":\"hashed\",\"partition\":%" PRIu64 ",\"epoch\":%" PRIu64
                        "," VALUES ",\"keys\":[{\"key\":\"a\",\"weight\":3%s}]}]}";
    uint64_t p = api_u64(&w, "partition"), e = api_u64(&w, "epoch");
    CHECK(EXPECT(&w, "POST /v1/nodes/n1/load", text(shape, session, p, e, ",\"end\":\"b\""), 400,
                 "invalid_key"));
    CHECK_STR(api_text(&w, "errors/0/pointer"), "/partitions/0/keys/0/end");
    CHECK(EXPECT(&w, "POST /v1/nodes/n1/load", text(shape, session, p, e, ""), 202, NULL));
    api_world_close(&w);
}

/* More than a worker takes at once: it goes through a job. */
static void a_large_report_counts_whole(void)
{
    enum { N = 4000 };
    begin();
    CHECK(EXPECT(&w, "POST /v1/keyspaces",
                 text("{\"name\":\"wide\",\"scheme\":\"hash\",\"partitions\":%d}", N), 201, NULL));
    CHECK(EXPECT(&w, "GET /v1/keyspaces/wide/partitions?limit=4000", NULL, 200, NULL));
    json_t *all = json_deep_copy(api_at(&w, "partitions"));
    struct buf b;
    buf_init(&b, 8 << 20);
    buf_printf(&b, "{\"session\":%" PRIu64 ",\"interval_ms\":60000,\"partitions\":[", session);
    CHECK_U64(json_array_size(all), N);
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *p = json_array_get(all, i);
        buf_printf(&b, "%s{\"keyspace\":\"wide\",\"partition\":%lld,\"epoch\":%lld," VALUES "}",
                   i > 0 ? "," : "", json_integer_value(json_object_get(p, "partition")),
                   json_integer_value(json_object_get(p, "epoch")) - (i < 150));
    }
    buf_put_str(&b, "]}");
    CHECK(b.len > 300 << 10);
    api_send(&w, "POST /v1/nodes/n1/load", NULL, "application/json", slice_of(b.data, b.len));
    CHECK_U64(w.answer.status, 202);
    CHECK_U64(api_u64(&w, "counted"), N - 150);
    CHECK_U64(api_u64(&w, "ignored_count"), 150);
    CHECK_U64(json_array_size(api_at(&w, "ignored")), 100);
    CHECK(EXPECT(&w, "GET /v1/nodes/n1", NULL, 200, NULL));
    CHECK_U64(api_u64(&w, "load/writes_per_s"), (N - 150) * 500);
    buf_close(&b);
    json_decref(all);
    api_world_close(&w);
}

int main(void)
{
    RUN(a_report_is_seen);
    RUN(what_is_wrong_is_named_and_nothing_counts);
    RUN(whole_reports_are_refused_by_pointer);
    RUN(what_came_too_late_or_from_elsewhere_is_ignored);
    RUN(children_and_merged_ones_carry_the_load_on);
    RUN(a_repeated_report_does_not_count_again);
    RUN(protobuf_says_the_same_as_json);
    RUN(keys_that_are_none_are_refused);
    RUN(what_requests_were_is_told_apart);
    RUN(a_large_report_counts_whole);
    return tap_done();
}
