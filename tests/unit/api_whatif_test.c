/* SPDX-License-Identifier: Apache-2.0 */
/* What-if over HTTP: what is refused, one at a time, and that a server that stops does not wait for
 * it. */
#include "base/clock.h"
#include "tests/harness/api_world.h"
#include "tests/harness/tap.h"

#include <stdio.h>
#include <string.h>

#define ASK "POST /v1/balancer/simulate"

static struct api_world w;

static void open_world(void)
{
    api_world_open(&w);
    CHECK(EXPECT(&w, "PUT /v1/nodes/n1", "{\"address\":\"n1:1\"}", 200, NULL));
    CHECK(EXPECT(&w, "POST /v1/keyspaces",
                 "{\"name\":\"ks\",\"scheme\":\"range\",\"splits\":[\"h\",\"p\"]}", 201, NULL));
    CHECK(EXPECT(&w, "PUT /v1/nodes/n2", "{\"address\":\"n2:1\",\"labels\":{\"zone\":\"a\"}}", 200,
                 NULL));
}

static void expect_pointer(const char *body, int status, const char *code, const char *pointer)
{
    CHECK(EXPECT(&w, ASK, body, status, code));
    CHECK_STR(api_text(&w, "errors/0/pointer"), pointer);
}

static void what_is_wrong_is_named(void)
{
    open_world();
    CHECK(EXPECT(&w, ASK, NULL, 400, "invalid_request"));
    expect_pointer("{\"hours\":0}", 400, "invalid_request", "/hours");
    expect_pointer("{\"hours\":169}", 400, "invalid_request", "/hours");
    expect_pointer("{\"changes\":{\"x\":1}}", 400, "invalid_request", "/changes/x");
    expect_pointer("{\"changes\":{\"nodes_lost\":[\"n1\",\"n1\"]}}", 400, "invalid_request",
                   "/changes/nodes_lost/1");
    expect_pointer("{\"changes\":{\"nodes_added\":[{\"name\":\"x\",\"like\":\"n1\","
                   "\"labels\":{\"a\":\"b\"}}]}}",
                   400, "invalid_request", "/changes/nodes_added/0/like");
    expect_pointer("{\"changes\":{\"nodes_added\":[{\"name\":\"x\",\"capacity\":{\"cpu\":1.5}}]}}",
                   400, "invalid_request", "/changes/nodes_added/0/capacity/cpu");
    expect_pointer("{\"changes\":{\"load_scaled\":[{\"factor_ppm\":1},{\"keyspace\":\"ks\"}]}}",
                   400, "invalid_request", "/changes/load_scaled/1/factor_ppm");
    expect_pointer("{\"changes\":{\"policy\":{\"budgets\":{\"rack\":{\"moves\":\"1\"}}}}}", 400,
                   "invalid_request", "/changes/policy/budgets/rack/moves");
    expect_pointer("{\"changes\":{\"policy\":{\"budgets\":{\"rack\":{\"moves\":10001}}}}}", 422,
                   "invalid_settings", "/changes/policy/budgets/rack/moves");
    expect_pointer("{\"changes\":{\"policy\":{\"thresholds\":{\"round_ms\":1}}}}", 422,
                   "invalid_settings", "/changes/policy/thresholds/round_ms");
    expect_pointer(
        "{\"changes\":{\"policy\":{\"windows\":[{\"name\":\"x\",\"kind\":\"freeze\",\"days\":"
        "[\"mon\",\"mo\"],\"start\":\"1:00\"}]}}}",
        422, "invalid_settings", "/changes/policy/windows/0/days/1");
    expect_pointer("{\"changes\":{\"zone_lost\":\"b\"}}", 422, "invalid_settings",
                   "/changes/zone_lost");
    api_world_close(&w);
}

static void it_answers_and_the_state_stays(void)
{
    open_world();
    CHECK(EXPECT(&w, "GET /v1/cluster", NULL, 200, NULL));
    uint64_t revision = api_u64(&w, "revision");
    CHECK(EXPECT(&w, ASK, "{\"changes\":{\"zone_lost\":\"a\",\"nodes_added\":[{\"name\":\"x\"}]}}",
                 200, NULL));
    CHECK_U64(api_u64(&w, "revision"), revision);
    CHECK_STR(api_text(&w, "nodes/1/change"), "lost");
    CHECK_STR(api_text(&w, "nodes/2/change"), "added");
    CHECK_U64(api_u64(&w, "nodes/0/before/primaries"), 3);
    CHECK_U64(api_u64(&w, "load/before/nodes"), 2);
    CHECK(json_is_true(api_at(&w, "settled")));
    CHECK(EXPECT(&w, "GET /v1/cluster", NULL, 200, NULL));
    CHECK_U64(api_u64(&w, "revision"), revision);
    CHECK(EXPECT(&w, "GET /v1/nodes/x", NULL, 404, "node_not_found"));
    api_world_close(&w);
}

static void capacities_that_all_say_are_shown(void)
{
    api_world_open(&w);
    CHECK(EXPECT(&w, "PUT /v1/nodes/n1",
                 "{\"address\":\"n1:1\",\"capacity\":{\"requests_per_s\":1000}}", 200, NULL));
    CHECK(EXPECT(&w, ASK, "{\"changes\":{\"nodes_added\":[{\"name\":\"x\",\"like\":\"n1\"}]}}", 200,
                 NULL));
    CHECK_STR(api_text(&w, "load/before/resource"), "requests");
    CHECK_U64(api_u64(&w, "load/before/utilisation_ppm"), 0);
    CHECK_U64(api_u64(&w, "nodes/1/after/utilisation_ppm"), 0);
    CHECK(EXPECT(&w, ASK, "{\"changes\":{\"nodes_added\":[{\"name\":\"x\"}]}}", 200, NULL));
    CHECK_U64(api_u64(&w, "load/before/utilisation_ppm"), 0);
    CHECK(json_is_null(api_at(&w, "load/after/utilisation_ppm")));
    CHECK(json_is_null(api_at(&w, "nodes/0/after/utilisation_ppm")));
    api_world_close(&w);
}

/* A drain that no budget lets begin: a week of rounds each second, which is more than the bound of
 * processor time. */
static void ask_without_end(struct client *c)
{
    static const char endless[] =
        "{\"hours\":168,\"changes\":{\"nodes_drained\":[\"n1\"],\"policy\":{\"thresholds\":"
        "{\"round_ms\":1000},\"budgets\":{\"cluster\":{\"moves\":0}}}}}";
    CHECK(client_print(c,
                       ASK " HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n"
                           "Content-Length: %zu\r\n\r\n%s",
                       strlen(endless), endless));
}

/* Another one is refused; unless that came first, and this one was. */
static bool goes_on(void *arg)
{
    struct client *other = arg;
    api_call(&w, ASK, NULL, "{}");
    if (w.answer.status != 503 && client_more(other, 0)) {
        struct answer refused = {0};
        client_read(other, &refused, false, 5000);
        answer_close(&refused);
        ask_without_end(other);
    }
    return w.answer.status == 503;
}

static void it_ends_with_the_server(void)
{
    struct client other;
    open_world();
    client_open(&other, w.port);
    ask_without_end(&other);
    CHECK(wait_until(goes_on, &other));
    CHECK_STR(api_text(&w, "code"), "overloaded");
    CHECK(api_header(&w, "Retry-After")[0] != '\0');
    CHECK(EXPECT(&w, "GET /v1/skew", NULL, 200, NULL)); /* other long reads go on */
    uint64_t began = clock_mono_ms();
    api_world_close(&w);
    CHECK(clock_mono_ms() - began < 10000);
    client_close(&other);
}

int main(void)
{
    RUN(what_is_wrong_is_named);
    RUN(it_answers_and_the_state_stays);
    RUN(capacities_that_all_say_are_shown);
    RUN(it_ends_with_the_server);
    return tap_done();
}
