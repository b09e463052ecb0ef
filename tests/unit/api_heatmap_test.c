/* SPDX-License-Identifier: Apache-2.0 */
/* GET /v1/heatmap, and the cause that GET /v1/skew names from it. */
#include "base/clock.h"
#include "base/parse.h"
#include "tests/harness/api_world.h"
#include "tests/harness/tap.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static struct api_world w;
static uint64_t session;
static json_t *partitions; /* owned */

static void list(void)
{
    json_decref(partitions);
    CHECK(EXPECT(&w, "GET /v1/keyspaces/ks/partitions", NULL, 200, NULL));
    partitions = json_deep_copy(api_at(&w, "partitions"));
}

static void begin(const char *keyspace)
{
    api_world_open(&w);
    CHECK(EXPECT(&w, "PUT /v1/nodes/n1", "{\"address\":\"n1:1\",\"lease\":\"static\"}", 200, NULL));
    session = api_u64(&w, "session");
    /* There is a past, also on a machine that has just started. */
    heats_set_clock(loads_heats(control_loads(w.control)), 86400000);
    CHECK(EXPECT(&w, "POST /v1/keyspaces", keyspace, 201, NULL));
    list();
}

static void end(void)
{
    json_decref(partitions);
    partitions = NULL;
    api_world_close(&w);
}

static uint64_t number(size_t i, const char *member)
{
    return (uint64_t)json_integer_value(json_object_get(json_array_get(partitions, i), member));
}

/* A minute of so many reads a second. */
static void report(size_t i, uint64_t reads, uint64_t size)
{
    CHECK(
        EXPECT(&w, "POST /v1/nodes/n1/load",
               text("{\"session\":%" PRIu64 ",\"interval_ms\":60000,\"partitions\":[{\"keyspace\":"
                    "\"ks\",\"partition\":%" PRIu64 ",\"epoch\":%" PRIu64 ",\"reads\":%" PRIu64
                    ",\"writes\":60,\"read_bytes\":0,\"write_bytes\":0,\"cpu_ms\":0,"
                    "\"size_bytes\":%" PRIu64 "}]}",
                    session, number(i, "partition"), number(i, "epoch"), 60 * reads, size),
               202, NULL));
    CHECK_U64(api_u64(&w, "counted"), 1);
}

static double real(const char *path)
{
    return json_number_value(api_at(&w, path));
}

static void what_was_reported_is_in_its_columns(void)
{
    begin("{\"name\":\"ks\",\"scheme\":\"range\",\"splits\":[\"g\",\"p\"]}");
    CHECK(EXPECT(&w, "GET /v1/heatmap?keyspace=ks", NULL, 200, NULL));
    CHECK_U64(json_array_size(api_at(&w, "rows")), 0);
    CHECK_STR(api_text(&w, "resource"), "requests");
    for (size_t i = 0; i < 3; i++) {
        report(i, 100 * (i + 1), 1000);
    }
    CHECK(EXPECT(&w, "GET /v1/heatmap?keyspace=ks", NULL, 200, NULL));
    CHECK_STR(api_text(&w, "unit"), "per_s");
    CHECK_U64(json_array_size(api_at(&w, "columns")), 3);
    CHECK_STR(api_text(&w, "columns/0/start"), "");
    CHECK_STR(api_text(&w, "columns/1/start"), "g");
    CHECK_STR(api_text(&w, "columns/1/end"), "p");
    CHECK(json_is_null(api_at(&w, "columns/2/end")));
    /* The minute lies in one row or in two of the clock's; in each it was the same a second, but
     * for the moments between the reports. */
    size_t rows = json_array_size(api_at(&w, "rows"));
    CHECK(rows >= 1 && rows <= 3);
    for (size_t i = 0; i < rows; i++) {
        uint64_t from = 0, to = 0;
        CHECK(parse_rfc3339(api_text(&w, text("rows/%zu/from", i)), &from) &&
              parse_rfc3339(api_text(&w, text("rows/%zu/to", i)), &to));
        CHECK(to - from == 60000 || to - from == 600000);
        CHECK(from < clock_wall_ms() && to > clock_wall_ms() - 700000);
    }
    double sum[3] = {0};
    for (size_t i = 0; i < rows; i++) {
        for (size_t c = 0; c < 3; c++) {
            sum[c] +=
                real(text("rows/%zu/values/%zu", i, c)) * real(text("rows/%zu/heard_ms", i)) / 1000;
        }
    }
    for (size_t c = 0; c < 3; c++) { /* nothing is lost */
        CHECK(fabs(sum[c] - 60 * (100 * (double)(c + 1) + 1)) < .2);
    }
    CHECK(EXPECT(&w, "GET /v1/heatmap?keyspace=ks&resource=size_bytes", NULL, 200, NULL));
    CHECK_STR(api_text(&w, "unit"), "bytes");
    CHECK(real("rows/0/values/0") > 0 && real("rows/0/values/0") <= 1000.001);
    end();
}

static void columns_are_bounded_and_a_range_of_time_is_kept_to(void)
{
    begin("{\"name\":\"ks\",\"scheme\":\"hash\",\"partitions\":200}");
    report(0, 100, 1);
    CHECK(EXPECT(&w, "GET /v1/heatmap?keyspace=ks", NULL, 200, NULL));
    CHECK_U64(json_array_size(api_at(&w, "columns")), 128); /* two partitions in most */
    CHECK_U64(strlen(api_text(&w, "columns/1/start")), 16); /* hex */
    CHECK(EXPECT(&w,
                 "GET /v1/heatmap?keyspace=ks&from=2001-01-01T00:00:00Z&to=2001-01-02T00:00:00Z",
                 NULL, 200, NULL));
    CHECK_U64(json_array_size(api_at(&w, "rows")), 0);
    CHECK(EXPECT(&w,
                 "GET /v1/heatmap?keyspace=ks&from=2999-01-01T00:00:00.5Z&to=2999-01-02T00:00:00Z",
                 NULL, 200, NULL));
    CHECK_STR(api_text(&w, "from"), "2999-01-01T00:00:00.500Z");
    CHECK_U64(json_array_size(api_at(&w, "rows")), 0);
    end();
}

static void what_is_asked_wrongly_is_refused(void)
{
    static const struct api_row rows[] = {
        ROW("GET /v1/heatmap", NULL, 400, "invalid_request", "keyspace is required"),
        ROW("GET /v1/heatmap?keyspace=none", NULL, 404, "keyspace_not_found", NULL),
        ROW("GET /v1/heatmap?keyspace=No", NULL, 404, "keyspace_not_found", NULL),
        ROW("GET /v1/heatmap?keyspace=ks&resource=heat", NULL, 400, "invalid_request", "resource"),
        ROW("GET /v1/heatmap?keyspace=ks&resource=", NULL, 400, "invalid_request", "resource"),
        ROW("GET /v1/heatmap?keyspace=ks&from=yesterday", NULL, 400, "invalid_request", "from"),
        ROW("GET /v1/heatmap?keyspace=ks&from=2026-02-29T00:00:00Z", NULL, 400, "invalid_request",
            "from"),
        ROW("GET /v1/heatmap?keyspace=ks&to=2026-01-01T00:00:00%2B01:00", NULL, 400,
            "invalid_request", "to"),
        ROW("GET /v1/heatmap?keyspace=ks&to=2001-01-01T00:00:00Z", NULL, 400, "invalid_request",
            "after from"),
        ROW("GET /v1/heatmap?keyspace=ks&by=key", NULL, 400, "invalid_request", "by must be"),
        ROW("GET /v1/heatmap?keyspace=ks&by=", NULL, 400, "invalid_request", "by must be"),
        ROW("GET /v1/heatmap?keyspace=ks&operation=", NULL, 400, "invalid_request", "operation"),
        ROW("GET /v1/heatmap?keyspace=ks&outcome=Not%20OK", NULL, 400, "invalid_request",
            "outcome"),
        ROW("GET /v1/heatmap?keyspace=ks&tenant=", NULL, 400, "invalid_request", "tenant"),
        ROW("GET /v1/heatmap?keyspace=ks&by=operation&resource=writes", NULL, 400,
            "invalid_request", "resource"),
        ROW("GET /v1/heatmap?keyspace=ks&outcome=ok&resource=errors", NULL, 400, "invalid_request",
            "resource"),
        ROW("GET /v1/heatmap?keyspace=hashed&by=tenant&resource=errors", NULL, 400,
            "invalid_request", "hash keyspace"),
        ROW("GET /v1/heatmap?keyspace=ks&limit=3", NULL, 400, "invalid_request", NULL),
        ROW("POST /v1/heatmap?keyspace=ks", "{}", 405, "method_not_allowed", NULL),
    };
    begin("{\"name\":\"ks\",\"scheme\":\"range\"}");
    CHECK(EXPECT(&w, "POST /v1/keyspaces",
                 "{\"name\":\"hashed\",\"scheme\":\"hash\",\"partitions\":1}", 201, NULL));
    api_rows(&w, rows, sizeof rows / sizeof rows[0], __FILE__);
    local_control_lead(w.control, false, "http://10.0.0.2:7400");
    CHECK(EXPECT(&w, "GET /v1/heatmap?keyspace=ks", NULL, 307, NULL));
    CHECK_STR(api_header(&w, "Location"), "http://10.0.0.2:7400/v1/heatmap?keyspace=ks");
    end();
}

static void skew_names_the_tenant(void)
{
    begin("{\"name\":\"ks\",\"scheme\":\"range\",\"splits\":[\"a/\",\"a/m\",\"a0\",\"b/\",\"b0\","
          "\"c/\",\"c0\"]}");
    CHECK(EXPECT(&w, "GET /v1/skew?keyspace=ks", NULL, 200, NULL));
    CHECK_STR(api_text(&w, "cause/kind"), "none");
    for (size_t i = 0; i < 8; i++) { /* [a/, a/m), [a/m, a0) are a's */
        report(i, i == 1 || i == 2 ? 500 : 50, 1000);
    }
    CHECK(EXPECT(&w, "GET /v1/skew?keyspace=ks", NULL, 200, NULL));
    CHECK_STR(api_text(&w, "cause/kind"), "tenant");
    CHECK_STR(api_text(&w, "cause/tenant"), "a/");
    CHECK(fabs(real("cause/share") - 1002.0 / 1308) < .01);
    CHECK(EXPECT(&w, "GET /v1/skew", NULL, 200, NULL));
    CHECK(api_at(&w, "cause") == NULL);
    end();
}

/* --- by operation, outcome and tenant --- */

struct part {
    const char *operation, *outcome, *tenant;
    uint64_t requests;
};

/* A minute that ended so many minutes ago, of the i-th partition; all of it reads. */
static void
past_minute(size_t i, uint64_t minutes_ago, uint64_t reads, const struct part *parts, uint32_t n)
{
    struct load_part told[LOAD_PARTS_MAX];
    uint8_t key[8];
    uint64_t id = number(i, "partition");
    const struct dir_view *v = view_pin(control_published(w.control));
    const struct dir_partition *p = ptree_get(&v->partitions, ptree_u64_key(id, key));
    for (uint32_t k = 0; k < n; k++) {
        const char *tenant = parts[k].tenant != NULL ? parts[k].tenant : "";
        told[k] = (struct load_part){slice_of(parts[k].operation, strlen(parts[k].operation)),
                                     slice_of(parts[k].outcome, strlen(parts[k].outcome)),
                                     slice_of(tenant, strlen(tenant)), parts[k].requests};
    }
    struct load_sample s = {.partition = id,
                            .epoch = number(i, "epoch"),
                            .interval_ms = 60000,
                            .has = 1U << LOAD_READS,
                            .parts = told,
                            .part_count = n};
    s.value[LOAD_READS] = reads;
    heats_put(loads_heats(control_loads(w.control)), v, p, &s,
              clock_mono_ms() - minutes_ago * 60000);
    view_unpin(v);
}

/* What the last row but one has, a whole minute: of the column with this name. */
static double whole_minute(const char *member, const char *name)
{
    size_t rows = json_array_size(api_at(&w, "rows"));
    for (size_t c = 0; c < json_array_size(api_at(&w, "columns")); c++) {
        const json_t *one = api_at(&w, text("columns/%zu/%s", c, member));
        if (name == NULL
                ? json_is_null(one)
                : one != NULL && !json_is_null(one) && strcmp(json_string_value(one), name) == 0) {
            return real(text("rows/%zu/values/%zu", rows - 2, c));
        }
    }
    return -1;
}

static void rows_are_told_apart_by_name(void)
{
    static const struct part parts[] = {{"get", "ok", "acme", 2400},
                                        {"get", "error", NULL, 600},
                                        {"put", "ok", "acme", 1200},
                                        {"put", "ok", "zoo", 600}};
    begin("{\"name\":\"ks\",\"scheme\":\"range\",\"splits\":[\"g\"]}");
    for (uint64_t ago = 8; ago-- > 0;) {
        past_minute(0, ago, 6000, parts, 4); /* 1 200 of it are nobody's */
        past_minute(1, ago, 6000, parts, 1);
    }
    CHECK(EXPECT(&w, "GET /v1/heatmap?keyspace=ks&by=operation", NULL, 200, NULL));
    CHECK_STR(api_text(&w, "by"), "operation");
    CHECK(api_at(&w, "tenants_from") == NULL);
    CHECK(fabs(whole_minute("operation", "get") - 90) < .1);
    CHECK(fabs(whole_minute("operation", "put") - 30) < .1);
    CHECK(fabs(whole_minute("operation", NULL) - 80) < .1);
    CHECK(EXPECT(&w, "GET /v1/heatmap?keyspace=ks&by=tenant", NULL, 200, NULL));
    CHECK_STR(api_text(&w, "tenants_from"), "reports");
    CHECK(fabs(whole_minute("tenant", "acme") - 100) < .1);
    CHECK(fabs(whole_minute("tenant", "zoo") - 10) < .1);
    CHECK(fabs(whole_minute("tenant", NULL) - 90) < .1);
    CHECK(EXPECT(&w, "GET /v1/heatmap?keyspace=ks&by=outcome&operation=get", NULL, 200, NULL));
    CHECK_STR(api_text(&w, "operation"), "get");
    CHECK(fabs(whole_minute("outcome", "ok") - 80) < .1);
    CHECK(fabs(whole_minute("outcome", "error") - 10) < .1);
    CHECK(whole_minute("outcome", NULL) == 0);
    /* By key range, of some requests only. */
    CHECK(EXPECT(&w, "GET /v1/heatmap?keyspace=ks&tenant=acme&outcome=ok", NULL, 200, NULL));
    CHECK(api_at(&w, "by") == NULL);
    CHECK(fabs(whole_minute("start", "") - 60) < .1);
    CHECK(fabs(whole_minute("start", "g") - 40) < .1);
    CHECK(EXPECT(&w, "GET /v1/heatmap?keyspace=ks&tenant=nobody", NULL, 200, NULL));
    CHECK(whole_minute("start", "g") == 0);
    end();
}

static void tenants_are_prefixes_where_no_report_names_any(void)
{
    begin(
        "{\"name\":\"ks\",\"scheme\":\"range\",\"splits\":[\"a/\",\"a/m\",\"a0\",\"b/\",\"b0\"]}");
    for (uint64_t ago = 8; ago-- > 0;) {
        for (size_t i = 0; i < 6; i++) { /* [a/, a/m), [a/m, a0) are a's, [b/, b0) b's */
            past_minute(i, ago, 600 * (i + 1), NULL, 0);
        }
    }
    CHECK(EXPECT(&w, "GET /v1/heatmap?keyspace=ks&by=tenant", NULL, 200, NULL));
    CHECK_STR(api_text(&w, "tenants_from"), "keys");
    CHECK_U64(json_array_size(api_at(&w, "columns")), 3);
    CHECK(fabs(whole_minute("tenant", "a/") - 50) < .1);
    CHECK(fabs(whole_minute("tenant", "b/") - 50) < .1);
    CHECK(fabs(whole_minute("tenant", NULL) - 110) < .1);
    CHECK(EXPECT(&w, "GET /v1/heatmap?keyspace=ks&tenant=a&resource=reads", NULL, 200, NULL));
    CHECK(fabs(whole_minute("start", "a/m") - 30) < .1);
    CHECK(whole_minute("start", "b/") == 0 && whole_minute("start", "") == 0);
    CHECK(EXPECT(&w, "GET /v1/heatmap?keyspace=ks&tenant=b/&by=tenant", NULL, 200, NULL));
    CHECK(whole_minute("tenant", "a/") == 0 && fabs(whole_minute("tenant", "b/") - 50) < .1);
    end();
}

/* Which operation, and with which outcome, the minute was of. */
static void skew_names_the_operation_of_a_burst(void)
{
    begin("{\"name\":\"ks\",\"scheme\":\"hash\",\"partitions\":2}");
    for (uint64_t ago = 20; ago-- > 1;) {
        bool burst = ago == 7 || ago == 8; /* so that one row is full of it */
        const struct part parts[] = {{"get", "ok", NULL, 6000},
                                     {"scan", burst ? "timeout" : "ok", NULL, burst ? 30000 : 600}};
        for (size_t i = 0; i < 2; i++) {
            past_minute(i, ago, burst ? 36000 : 6600, parts, 2);
        }
    }
    CHECK(EXPECT(&w, "GET /v1/skew?keyspace=ks", NULL, 200, NULL));
    CHECK_STR(api_text(&w, "cause/kind"), "operation_and_time");
    CHECK_STR(api_text(&w, "cause/operation"), "scan");
    CHECK_STR(api_text(&w, "cause/outcome"), "timeout");
    CHECK(real("cause/times_median") > 40 && real("cause/share") > .8);
    end();
    /* A tenant's minute, and what it did in it. */
    begin("{\"name\":\"ks\",\"scheme\":\"hash\",\"partitions\":2}");
    for (uint64_t ago = 20; ago-- > 1;) {
        bool burst = ago == 7 || ago == 8;
        const struct part parts[] = {{"get", "ok", "acme", 6000},
                                     {"get", "ok", "zoo", 6000},
                                     {"put", "ok", "zoo", burst ? 60000 : 600}};
        past_minute(0, ago, burst ? 72000 : 12600, parts, 3);
    }
    CHECK(EXPECT(&w, "GET /v1/skew?keyspace=ks", NULL, 200, NULL));
    CHECK_STR(api_text(&w, "cause/kind"), "tenant_and_time");
    CHECK_STR(api_text(&w, "cause/tenant"), "zoo");
    CHECK_STR(api_text(&w, "cause/operation"), "put");
    CHECK(api_at(&w, "cause/outcome") == NULL);
    end();
}

/* What a follower asks for: a leader's loads, in a form that it can read. */
static void a_summary_is_for_followers(void)
{
    begin("{\"name\":\"ks\",\"scheme\":\"range\",\"splits\":[\"g\",\"p\"]}");
    for (size_t i = 0; i < 3; i++) {
        report(i, 100, 1000);
    }
    api_call(&w, "GET /v1/load/summary", NULL, NULL);
    CHECK_U64(w.answer.status, 200);
    CHECK_STR(api_header(&w, "Content-Type"), "application/octet-stream");
    struct loads *other = loads_new();
    const struct dir_view *v = view_pin(control_published(w.control));
    unsigned next;
    uint64_t records;
    CHECK(loads_take_summary(other, v, slice_of(w.answer.body.data, w.answer.body.len),
                             clock_mono_ms(), &next, &records));
    view_unpin(v);
    CHECK_U64(records, 3);
    CHECK_U64(next, LOADS_PAGES);
    struct load_entry e;
    CHECK(loads_get(other, number(0, "partition"), 0, &e));
    CHECK(load_value(&e, LOAD_READS, LOAD_MEAN) == 100000 && load_known(&e, clock_mono_ms()));
    loads_free(other);
    CHECK(EXPECT(&w, "GET /v1/load/summary?page=64", NULL, 400, "invalid_request"));
    CHECK(EXPECT(&w, "GET /v1/load/summary?page=x", NULL, 400, "invalid_request"));
    CHECK(EXPECT(&w, "GET /v1/load/summary?limit=1", NULL, 400, "invalid_request"));
    local_control_lead(w.control, false, "http://10.0.0.2:7400");
    CHECK(EXPECT(&w, "GET /v1/load/summary", NULL, 307, NULL));
    end();
}

int main(void)
{
    RUN(what_was_reported_is_in_its_columns);
    RUN(columns_are_bounded_and_a_range_of_time_is_kept_to);
    RUN(what_is_asked_wrongly_is_refused);
    RUN(skew_names_the_tenant);
    RUN(rows_are_told_apart_by_name);
    RUN(tenants_are_prefixes_where_no_report_names_any);
    RUN(skew_names_the_operation_of_a_burst);
    RUN(a_summary_is_for_followers);
    return tap_done();
}
