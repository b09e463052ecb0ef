/* SPDX-License-Identifier: Apache-2.0 */
/* What agents and operators of nodes call. */
#include "tests/harness/api_world.h"
#include "tests/harness/tap.h"

#include <inttypes.h>
#include <string.h>

static struct api_world w;

static uint64_t start(const char *node, const char *more)
{
    CHECK(EXPECT(&w, text("PUT /v1/nodes/%s", node), text("{\"address\":\"%s:1\"%s}", node, more),
                 200, NULL));
    return api_u64(&w, "session");
}

static void keyspace(unsigned sync)
{
    CHECK(EXPECT(&w, "POST /v1/keyspaces",
                 text("{\"name\":\"ks\",\"scheme\":\"range\",\"replicas\":{\"sync\":%u}}", sync),
                 201, NULL));
    CHECK(EXPECT(&w, "GET /v1/keyspaces/ks/route?key=a", NULL, 200, NULL));
}

static void a_session_begins_and_is_renewed(void)
{
    api_world_open(&w);
    uint64_t session = start("n1", "");
    CHECK_U64(api_u64(&w, "lease_ms"), 10000);
    CHECK_U64(api_u64(&w, "heartbeat_ms"), 3000);
    CHECK_U64(api_u64(&w, "revision"), session);
    CHECK(EXPECT(&w, "POST /v1/nodes/n1/heartbeat", text("{\"session\":%" PRIu64 "}", session), 200,
                 NULL));
    CHECK_U64(api_u64(&w, "lease_ms"), 10000);
    CHECK(EXPECT(&w, "POST /v1/nodes/n1/heartbeat", text("{\"session\":%" PRIu64 "}", session + 1),
                 409, "session_ended"));
    CHECK(EXPECT(&w, "POST /v1/nodes/n2/heartbeat", "{\"session\":1}", 404, "node_not_found"));
    CHECK(EXPECT(&w, "POST /v1/nodes/n1/heartbeat", "{\"session\":\"1\"}", 400, "invalid_request"));
    CHECK(EXPECT(&w, "POST /v1/nodes/n1/heartbeat", "{\"session\":1,\"x\":1}", 400,
                 "invalid_request"));
    uint64_t next = start("n1", text(",\"previous_session\":%" PRIu64, session));
    CHECK(next > session);
    CHECK(EXPECT(&w, "POST /v1/nodes/n1/heartbeat", text("{\"session\":%" PRIu64 "}", session), 409,
                 "session_ended"));
    CHECK(EXPECT(&w, "GET /v1/nodes/n1", NULL, 200, NULL));
    CHECK_STR(api_text(&w, "state"), "up");
    CHECK_U64(api_u64(&w, "lease/lease_ms"), 10000);
    api_world_close(&w);
}

static void a_registration_answers_whole_grants(void)
{
    api_world_open(&w);
    uint64_t session = start("n1", ""), other = start("n2", "");
    keyspace(1);
    uint64_t epoch = api_u64(&w, "epoch");
    uint64_t next = start("n1", text(",\"previous_session\":%" PRIu64, session));
    CHECK_STR(api_text(&w, "partitions/0/kind"), "grant");
    CHECK_STR(api_text(&w, "partitions/0/role"), "primary");
    CHECK_STR(api_text(&w, "partitions/0/authority"), "exclusive");
    CHECK_U64(api_u64(&w, "partitions/0/session"), next);
    CHECK_U64(api_u64(&w, "partitions/0/epoch"), next);
    CHECK(next > epoch && json_is_false(api_at(&w, "partitions/0/fenced")));
    CHECK_STR(api_text(&w, "partitions/0/must_have/0/node"), "n2");
    CHECK_U64(api_u64(&w, "partitions/0/must_have/0/session"), other);
    CHECK_STR(api_text(&w, "partitions/0/must_have/0/address"), "n2:1");
    CHECK_STR(api_text(&w, "partitions/0/must_have/0/role"), "sync");
    CHECK(api_at(&w, "partitions/0/parents") == NULL);
    /* Without naming it: what the old session holds is shown, and is not the new one's. */
    uint64_t third = start("n1", "");
    CHECK_U64(api_u64(&w, "partitions/0/session"), next);
    CHECK(third > next);
    api_world_close(&w);
}

static void grants_say_what_they_came_out_of(void)
{
    api_world_open(&w);
    uint64_t session = start("n1", "");
    keyspace(0);
    uint64_t p = api_u64(&w, "partition");
    CHECK(EXPECT(&w, text("POST /v1/keyspaces/ks/partitions/%" PRIu64 "/split", p),
                 "{\"at\":[\"m\"]}", 200, NULL));
    uint64_t left = api_u64(&w, "children/0/partition");
    uint64_t right = api_u64(&w, "children/1/partition");
    const char *tasks = text("GET /v1/nodes/n1/tasks?session=%" PRIu64 "&since=0", session);
    CHECK(EXPECT(&w, tasks, NULL, 200, NULL));
    CHECK_U64(api_u64(&w, "tasks/0/parents/0"), p);
    CHECK_U64(api_u64(&w, "tasks/1/parents/0"), p);
    CHECK(EXPECT(&w, text("POST /v1/keyspaces/ks/partitions/%" PRIu64 "/merge", left),
                 text("{\"with\":%" PRIu64 "}", right), 200, NULL));
    tasks = text("GET /v1/nodes/n1/tasks?session=%" PRIu64 "&since=0", session);
    CHECK(EXPECT(&w, tasks, NULL, 200, NULL));
    CHECK_U64(api_u64(&w, "tasks/0/parents/0"), left);
    CHECK_U64(api_u64(&w, "tasks/0/parents/1"), right);
    api_world_close(&w);
}

static void check_asks_for_the_session(void)
{
    api_world_open(&w);
    uint64_t session = start("n1", "");
    keyspace(0);
    uint64_t p = api_u64(&w, "partition"), epoch = api_u64(&w, "epoch");
    const char *path = text("POST /v1/keyspaces/ks/partitions/%" PRIu64 "/check", p);
    const char *plain = text("{\"node\":\"n1\",\"epoch\":%" PRIu64 "}", epoch);
    CHECK(EXPECT(&w, path, plain, 200, NULL));
    CHECK(EXPECT(
        &w, path,
        text("{\"node\":\"n1\",\"epoch\":%" PRIu64 ",\"session\":%" PRIu64 "}", epoch, session),
        200, NULL));
    CHECK(EXPECT(
        &w, path,
        text("{\"node\":\"n1\",\"epoch\":%" PRIu64 ",\"session\":%" PRIu64 "}", epoch, session + 1),
        409, "not_owner"));
    (void)start("n1", "");
    path = text("POST /v1/keyspaces/ks/partitions/%" PRIu64 "/check", p);
    CHECK(
        EXPECT(&w, path, text("{\"node\":\"n1\",\"epoch\":%" PRIu64 "}", epoch), 409, "not_owner"));
    api_world_close(&w);
}

static void a_session_is_given_up(void)
{
    api_world_open(&w);
    uint64_t session = start("n1", "");
    keyspace(0);
    CHECK(EXPECT(&w, "DELETE /v1/nodes/n1/session", NULL, 400, "invalid_request"));
    CHECK(
        EXPECT(&w, text("DELETE /v1/nodes/n1/session?session=%" PRIu64, session), NULL, 200, NULL));
    CHECK(EXPECT(&w, "DELETE /v1/nodes/n1/session", text("{\"session\":%" PRIu64 "}", session), 200,
                 NULL));
    CHECK(EXPECT(&w, "DELETE /v1/nodes/n1/session", "{\"session\":9999}", 409, "session_ended"));
    CHECK(EXPECT(&w, "GET /v1/keyspaces/ks/route?key=a", NULL, 200, NULL));
    CHECK_STR(api_text(&w, "state"), "unavailable");
    CHECK(json_is_null(api_at(&w, "primary")));
    CHECK(EXPECT(&w, "GET /v1/nodes/n1", NULL, 200, NULL));
    CHECK_STR(api_text(&w, "state"), "down");
    CHECK(json_is_null(api_at(&w, "lease")));
    api_world_close(&w);
}

static void tasks_follow_the_feed(void)
{
    api_world_open(&w);
    uint64_t session = start("n1", "");
    CHECK(EXPECT(&w, text("GET /v1/nodes/n1/tasks?session=%" PRIu64, session), NULL, 200, NULL));
    CHECK_U64(json_array_size(api_at(&w, "tasks")), 0);
    uint64_t since = api_u64(&w, "revision");
    keyspace(0);
    uint64_t p = api_u64(&w, "partition");
    CHECK(EXPECT(&w,
                 text("GET /v1/nodes/n1/tasks?session=%" PRIu64 "&since=%" PRIu64 "&wait_ms=10000",
                      session, since),
                 NULL, 200, NULL));
    CHECK_U64(json_array_size(api_at(&w, "tasks")), 1);
    CHECK_STR(api_text(&w, "tasks/0/id"), text("grant-%" PRIu64, p));
    since = api_u64(&w, "revision");
    CHECK(EXPECT(&w, text("GET /v1/nodes/n1/tasks?since=%" PRIu64 "&wait_ms=30", since), NULL, 200,
                 NULL));
    CHECK_U64(json_array_size(api_at(&w, "tasks")), 0);
    CHECK(EXPECT(&w, text("POST /v1/keyspaces/ks/partitions/%" PRIu64 "/split", p),
                 "{\"at\":[\"m\"]}", 200, NULL));
    CHECK(EXPECT(&w, text("GET /v1/nodes/n1/tasks?since=%" PRIu64, since), NULL, 200, NULL));
    CHECK_U64(json_array_size(api_at(&w, "tasks")), 3);
    CHECK_STR(api_text(&w, "tasks/2/kind"), "revoke");
    CHECK(EXPECT(&w, text("GET /v1/nodes/n1/tasks?session=%" PRIu64, session + 1), NULL, 409,
                 "session_ended"));
    CHECK(EXPECT(&w, "GET /v1/nodes/n1/tasks?session=9999", NULL, 503, "behind"));
    CHECK(EXPECT(&w, "GET /v1/nodes/n1/tasks?since=9999", NULL, 503, "behind"));
    CHECK(EXPECT(&w, "GET /v1/nodes/n9/tasks", NULL, 404, "node_not_found"));
    api_world_close(&w);
}

static void duties_are_listed_and_done(void)
{
    api_world_open(&w);
    uint64_t session = start("n1", "");
    keyspace(0);
    CHECK(EXPECT(&w, "GET /v1/nodes/n1/duties", NULL, 200, NULL));
    CHECK_U64(json_array_size(api_at(&w, "duties")), 0);
    CHECK(EXPECT(&w, "DELETE /v1/keyspaces/ks?confirm=ks", NULL, 200, NULL));
    CHECK(EXPECT(&w, "GET /v1/nodes/n1/duties", NULL, 200, NULL));
    uint64_t id = api_u64(&w, "duties/0/id"), copy = api_u64(&w, "duties/0/copy");
    CHECK_STR(api_text(&w, "duties/0/keyspace"), "ks");
    CHECK(EXPECT(&w, "GET /v1/nodes/n1/tasks", NULL, 200, NULL));
    CHECK_STR(api_text(&w, "tasks/0/kind"), "cleanup");
    CHECK_U64(api_u64(&w, "tasks/0/duty"), id);
    const char *done =
        text("{\"session\":%" PRIu64 ",\"copy\":%" PRIu64 ",\"deleted_bytes\":5}", session, copy);
    CHECK(EXPECT(&w, text("POST /v1/nodes/n1/duties/%" PRIu64, id), done, 200, NULL));
    CHECK(EXPECT(&w, text("POST /v1/nodes/n1/duties/%" PRIu64, id), done, 200, NULL));
    CHECK(EXPECT(&w, "GET /v1/nodes/n1/duties", NULL, 200, NULL));
    CHECK_U64(json_array_size(api_at(&w, "duties")), 0);
    CHECK(EXPECT(&w, "GET /v1/nodes/n9/duties", NULL, 404, "node_not_found"));
    CHECK(EXPECT(&w, "POST /v1/nodes/n1/duties/x", done, 404, "not_found"));
    api_world_close(&w);
}

static void the_in_sync_set_and_a_forced_failover(void)
{
    api_world_open(&w);
    uint64_t session = start("n1", "");
    (void)start("n2", "");
    keyspace(1);
    uint64_t p = api_u64(&w, "partition"), epoch = api_u64(&w, "epoch");
    const char *insync = text("POST /v1/keyspaces/ks/partitions/%" PRIu64 "/insync", p);
    CHECK(EXPECT(
        &w, insync,
        text("{\"session\":%" PRIu64 ",\"epoch\":%" PRIu64 ",\"insync\":[]}", session, epoch), 200,
        NULL));
    CHECK_STR(api_text(&w, "route/replicas/1/role"), "async");
    CHECK_U64(api_u64(&w, "route/epoch"), epoch);
    CHECK(EXPECT(
        &w, insync,
        text("{\"session\":%" PRIu64 ",\"epoch\":%" PRIu64 ",\"insync\":[]}", session, epoch + 100),
        409, "future_epoch"));
    CHECK(EXPECT(
        &w, insync,
        text("{\"session\":%" PRIu64 ",\"epoch\":%" PRIu64 ",\"insync\":[]}", session + 1, epoch),
        409, "not_owner"));
    CHECK(EXPECT(&w, insync, "{\"session\":1,\"epoch\":1,\"insync\":[1]}", 400, "invalid_request"));
    static const char *const sessions[] = {"{\"n9\":1}", "{\"n2\":true}", "{\"n2\":0}", "7"};
    for (size_t i = 0; i < sizeof sessions / sizeof sessions[0]; i++) {
        CHECK(EXPECT(
            &w, insync,
            text("{\"session\":1,\"epoch\":1,\"insync\":[\"n2\"],\"sessions\":%s}", sessions[i]),
            400, "invalid_request"));
        CHECK_STR(api_text(&w, "errors/0/pointer"), i == 0  ? "/sessions/n9"
                                                    : i < 3 ? "/sessions/n2"
                                                            : "/sessions");
    }
    const char *force = text("POST /v1/keyspaces/ks/partitions/%" PRIu64 "/failover", p);
    const char *body = "{\"to\":\"n2\",\"accept_loss\":true,\"reason\":\"gone\"}";
    CHECK(EXPECT(&w, force, body, 409, "lease_held"));
    CHECK(
        EXPECT(&w, text("DELETE /v1/nodes/n1/session?session=%" PRIu64, session), NULL, 200, NULL));
    CHECK(EXPECT(&w, force, "{\"to\":\"n2\",\"accept_loss\":false,\"reason\":\"gone\"}", 400,
                 "invalid_request"));
    CHECK(EXPECT(&w, force, body, 202, NULL));
    CHECK_STR(api_text(&w, "kind"), "failover");
    CHECK_STR(api_text(&w, "state"), "done");
    CHECK(EXPECT(&w, "GET /v1/keyspaces/ks/route?key=a", NULL, 200, NULL));
    CHECK_STR(api_text(&w, "primary/node"), "n2");
    CHECK(EXPECT(&w, "GET /v1/operations?kind=failover&state=done", NULL, 200, NULL));
    CHECK_U64(json_array_size(api_at(&w, "operations")), 1);
    api_world_close(&w);
}

static void nodes_are_cordoned_and_quarantined(void)
{
    api_world_open(&w);
    (void)start("n1", "");
    CHECK(EXPECT(&w, "POST /v1/nodes/n1/cordon", NULL, 200, NULL));
    CHECK_STR(api_text(&w, "scheduling"), "cordoned");
    CHECK(EXPECT(&w, "POST /v1/nodes/n1/uncordon", "{\"reason\":\"fixed\"}", 200, NULL));
    CHECK_STR(api_text(&w, "scheduling"), "open");
    CHECK(EXPECT(&w, "POST /v1/nodes/n1/quarantine", NULL, 200, NULL));
    CHECK_STR(api_text(&w, "scheduling"), "quarantined");
    CHECK(EXPECT(&w, "POST /v1/nodes/n1/unquarantine", NULL, 200, NULL));
    CHECK_STR(api_text(&w, "scheduling"), "open");
    CHECK(EXPECT(&w, "POST /v1/nodes/n9/cordon", NULL, 404, "node_not_found"));
    api_world_close(&w);
}

static void settings_are_read_and_changed(void)
{
    api_world_open(&w);
    CHECK(EXPECT(&w, "PATCH /v1/cluster/settings", "{\"lease_ms\":500,\"heartbeat_ms\":100}", 200,
                 NULL));
    CHECK(EXPECT(&w, "GET /v1/cluster/settings", NULL, 200, NULL));
    CHECK_U64(api_u64(&w, "lease_ms"), 500);
    CHECK_U64(api_u64(&w, "history_max"), 1000000);
    CHECK(EXPECT(&w, "PATCH /v1/cluster/settings", "{\"heartbeat_ms\":400}", 422,
                 "invalid_settings"));
    CHECK(EXPECT(&w, "PATCH /v1/cluster/settings", "{\"lease_ms\":1}", 422, "invalid_settings"));
    (void)start("n1", "");
    CHECK_U64(api_u64(&w, "lease_ms"), 500);
    api_world_close(&w);
}

int main(void)
{
    RUN(a_session_begins_and_is_renewed);
    RUN(a_registration_answers_whole_grants);
    RUN(grants_say_what_they_came_out_of);
    RUN(check_asks_for_the_session);
    RUN(a_session_is_given_up);
    RUN(tasks_follow_the_feed);
    RUN(duties_are_listed_and_done);
    RUN(the_in_sync_set_and_a_forced_failover);
    RUN(nodes_are_cordoned_and_quarantined);
    RUN(settings_are_read_and_changed);
    return tap_done();
}
