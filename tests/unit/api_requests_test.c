/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes, servers and the process; and the conventions of all requests: idempotency, leaders,
 * consistency. */
#include "tests/harness/api_world.h"
#include "tests/harness/tap.h"

#include "base/mem.h"

#include <inttypes.h>
#include <string.h>

#define ROWS(w, rows) api_rows((w), (rows), sizeof(rows) / sizeof((rows)[0]), __FILE__)

static void nodes_come_and_go(void)
{
    static const struct api_row rows[] = {
        ROW("PUT /v1/nodes/N1", "{\"address\":\"a:1\"}", 400, "invalid_request", NULL),
        ROW("PUT /v1/nodes/n1", "{}", 400, "invalid_request", "\"/address\""),
        ROW("PUT /v1/nodes/n1", "{\"address\":\"a b\"}", 400, "invalid_request", "\"/address\""),
        ROW("PUT /v1/nodes/n1", "{\"address\":\"a:1\",\"lease\":\"forever\"}", 400,
            "invalid_request", "\"/lease\""),
        ROW("PUT /v1/nodes/n1", "{\"address\":\"a:1\",\"labels\":{\"zone\":1}}", 400,
            "invalid_request", "\"/labels/zone\""),
        ROW("PUT /v1/nodes/n1", "{\"address\":\"a:1\",\"labels\":{\"Zone\":\"a\"}}", 400,
            "invalid_request", "\"/labels/Zone\""),
        ROW("PUT /v1/nodes/n1", "{\"address\":\"a:1\",\"capacity\":{\"cpu\":1.5}}", 400,
            "invalid_request", "\"/capacity/cpu\""),
        ROW("PUT /v1/nodes/n1", "{\"address\":\"a:1\",\"capacity\":{\"cpu\":-1}}", 400,
            "invalid_request", "\"/capacity/cpu\""),
        ROW("PUT /v1/nodes/n1", "{\"address\":\"a:1\",\"previous_session\":\"x\"}", 400,
            "invalid_request", "\"/previous_session\""),
        ROW("PUT /v1/nodes/n1", "{\"address\":\"a:1\",\"copies\":[{\"keyspace\":\"o\"}]}", 400,
            "invalid_request", "\"/copies/0/partition\""),
        ROW("GET /v1/nodes/n1", NULL, 404, "node_not_found", NULL),
        ROW("DELETE /v1/nodes/n1", NULL, 404, "node_not_found", NULL),
        ROW("DELETE /v1/nodes/n1?force=maybe", NULL, 400, "invalid_request", "force"),
    };
    struct api_world w;
    uint64_t session;
    api_world_open(&w);
    ROWS(&w, rows);
    CHECK(EXPECT(&w, "PUT /v1/nodes/n1",
                 "{\"address\":\"10.0.0.1:9000\",\"lease\":\"static\",\"labels\":{\"zone\":\"a\"},"
                 "\"capacity\":{\"bytes\":"
                 "1000000,\"cpu\":4},\"previous_session\":7,\"copies\":[{"
                 "\"keyspace\":\"o\",\"partition\":1,\"copy\":2}]}",
                 200, NULL));
    session = api_u64(&w, "session");
    CHECK_U64(api_u64(&w, "lease_ms"), 0);
    CHECK_U64(json_array_size(api_at(&w, "partitions")), 0);
    CHECK(EXPECT(&w, "POST /v1/keyspaces",
                 "{\"name\":\"o\",\"scheme\":\"range\",\"splits\":[\"g\",\"p\"]}", 201, NULL));
    CHECK(EXPECT(&w, "PUT /v1/nodes/n1",
                 "{\"address\":\"10.0.0.2:9000\",\"lease\":\"static\",\"labels\":{\"zone\":\"a\"},"
                 "\"capacity\":{\"cpu\":8}}",
                 200, NULL));
    CHECK_U64(json_array_size(api_at(&w, "partitions")), 3);
    CHECK_STR(api_text(&w, "partitions/1/start"), "g");
    CHECK_STR(api_text(&w, "partitions/1/role"), "primary");
    CHECK_STR(api_text(&w, "partitions/1/keyspace"), "o");
    CHECK(api_at(&w, "partitions/0/start") == NULL);
    CHECK(EXPECT(&w, "GET /v1/nodes/n1", NULL, 200, NULL));
    CHECK_STR(api_text(&w, "address"), "10.0.0.2:9000");
    CHECK_STR(api_text(&w, "state"), "up");
    CHECK_STR(api_text(&w, "scheduling"), "open");
    CHECK_STR(api_text(&w, "lease"), "static");
    CHECK_STR(api_text(&w, "labels/zone"), "a");
    CHECK_U64(api_u64(&w, "capacity/cpu"), 8);
    CHECK_U64(api_u64(&w, "partitions/primary"), 3);
    CHECK_U64(api_u64(&w, "session"), session);
    CHECK(EXPECT(&w, "PUT /v1/nodes/n2", "{\"address\":\"10.0.0.7:9000\",\"lease\":\"static\"}",
                 200, NULL));
    CHECK(EXPECT(&w, "GET /v1/nodes", NULL, 200, NULL));
    CHECK_U64(json_array_size(api_at(&w, "nodes")), 2);
    CHECK_U64(api_u64(&w, "nodes/0/partitions/total"), 3);
    CHECK_U64(api_u64(&w, "nodes/1/partitions/primary"), 0);
    CHECK(EXPECT(&w, "DELETE /v1/nodes/n1", NULL, 409, "node_in_use"));
    CHECK(EXPECT(&w, "DELETE /v1/nodes/n2", NULL, 200, NULL));
    CHECK(EXPECT(&w, "DELETE /v1/nodes/n1?force=true", NULL, 200, NULL));
    CHECK(EXPECT(&w, "GET /v1/keyspaces/o/route?key=a", NULL, 200, NULL));
    CHECK(json_is_null(api_at(&w, "primary")));
    CHECK_STR(api_text(&w, "state"), "unavailable");
    api_world_close(&w);
}

/* Twice with one key: the same bytes; another request with it: a mismatch. */
static void replay(struct api_world *w, const char *request, const char *body, int status)
{
    static unsigned n;
    const char *header = text("Idempotency-Key: key-%u\r\n", ++n);
    char *first, *head;
    CHECK(EXPECT_WITH(w, request, header, body, status, NULL));
    CHECK_STR(api_header(w, "Idempotency-Replayed"), "");
    first = mem_strdup(api_body(w));
    head = mem_strdup(api_header(w, "Cadastre-Revision"));
    CHECK(EXPECT_WITH(w, request, header, body, status, NULL));
    CHECK_STR(api_header(w, "Idempotency-Replayed"), "true");
    CHECK_STR(api_body(w), first);
    CHECK_STR(api_header(w, "Cadastre-Revision"), head);
    CHECK(EXPECT_WITH(w, request, header, "{\"expect_revision\":0}", 422, "idempotency_mismatch") ||
          w->answer.status == 400);
    mem_free(first);
    mem_free(head);
}

static void replays_give_the_same_bytes(void)
{
    struct api_world w;
    uint64_t p, q, r;
    api_world_open(&w);
    replay(&w, "PUT /v1/nodes/n1", "{\"address\":\"10.0.0.1:9000\",\"lease\":\"static\"}", 200);
    replay(&w, "PUT /v1/nodes/n2", "{\"address\":\"10.0.0.2:9000\",\"lease\":\"static\"}", 200);
    replay(&w, "POST /v1/keyspaces",
           "{\"name\":\"o\",\"scheme\":\"range\",\"splits\":[\"g\",\"p\"],\"policy\":{\"b\":1,"
           "\"a\":[2]}}",
           201);
    replay(&w, "POST /v1/keyspaces", "{\"name\":\"h\",\"scheme\":\"hash\",\"partitions\":3}", 201);
    replay(&w, "PATCH /v1/keyspaces/o", "{\"policy\":{\"b\":2}}", 200);
    CHECK(EXPECT(&w, "GET /v1/keyspaces/o/routes", NULL, 200, NULL));
    p = api_u64(&w, "routes/0/partition");
    replay(&w, text("POST /v1/keyspaces/o/partitions/%" PRIu64 "/split", p), "{\"at\":[\"c\"]}",
           200);
    CHECK(EXPECT(&w, "GET /v1/keyspaces/o/routes", NULL, 200, NULL));
    p = api_u64(&w, "routes/0/partition");
    q = api_u64(&w, "routes/1/partition");
    r = api_u64(&w, "routes/2/partition");
    const char *to = strcmp(api_text(&w, "routes/2/primary/node"), "n1") == 0 ? "n2" : "n1";
    replay(&w, text("POST /v1/keyspaces/o/partitions/%" PRIu64 "/merge", p),
           text("{\"with\":%" PRIu64 "}", q), 200);
    replay(&w, text("POST /v1/keyspaces/o/partitions/%" PRIu64 "/move", r),
           text("{\"to\":\"%s\",\"empty\":true}", to), 202);
    replay(&w, text("PATCH /v1/keyspaces/o/partitions/%" PRIu64, r),
           "{\"pinned\":true,\"rate_limit\":{\"requests_per_s\":7}}", 200);
    replay(&w, "DELETE /v1/nodes/n2?force=true", NULL, 200);
    replay(&w, "DELETE /v1/keyspaces/h?confirm=h", NULL, 200);
    api_world_close(&w);
}

static void keys_and_equal_requests(void)
{
    struct api_world w;
    char key[160];
    api_world_open(&w);
    CHECK(EXPECT_WITH(
        &w, "PUT /v1/nodes/n1", "Idempotency-Key: k1\r\n",
        "{\"address\":\"a:1\",\"lease\":\"static\",\"labels\":{\"x\":\"1\",\"y\":\"2\"}}", 200,
        NULL));
    /* Blanks and the order of members make no other request; the path does. */
    CHECK(EXPECT_WITH(
        &w, "PUT /v1/nodes/n1", "Idempotency-Key: k1\r\n",
        "{ \"labels\" : {\"y\":\"2\",\"x\":\"1\"}, \"address\":\"a:1\",\"lease\":\"static\" }", 200,
        NULL));
    CHECK_STR(api_header(&w, "Idempotency-Replayed"), "true");
    CHECK(EXPECT_WITH(
        &w, "PUT /v1/nodes/n2", "Idempotency-Key: k1\r\n",
        "{\"address\":\"a:1\",\"lease\":\"static\",\"labels\":{\"x\":\"1\",\"y\":\"2\"}}", 422,
        "idempotency_mismatch"));
    CHECK(EXPECT_WITH(&w, "DELETE /v1/nodes/n9", "Idempotency-Key: a b\r\n", NULL, 400,
                      "invalid_request"));
    (void)memset(key, 'k', sizeof key);
    key[129] = '\0';
    CHECK(EXPECT_WITH(&w, "DELETE /v1/nodes/n9", text("Idempotency-Key: %s\r\n", key), NULL, 400,
                      "invalid_request"));
    key[128] = '\0';
    CHECK(EXPECT_WITH(&w, "DELETE /v1/nodes/n9", text("Idempotency-Key: %s\r\n", key), NULL, 404,
                      "node_not_found"));
    /* What became of a key. A refusal before the proposal did not use it. */
    CHECK(EXPECT(&w, "GET /v1/commands/k1", NULL, 200, NULL));
    CHECK_STR(api_text(&w, "status"), "applied");
    CHECK_STR(api_text(&w, "node"), "n1");
    CHECK(api_u64(&w, "applied_revision") <= api_u64(&w, "revision"));
    CHECK(EXPECT(&w, text("GET /v1/commands/%s", key), NULL, 404, "command_not_found"));
    CHECK(strstr(api_body(&w), "\"retained_since\":\"") != NULL);
    api_world_close(&w);
}

static void followers_send_on(void)
{
    struct api_world w;
    api_world_open(&w);
    api_nodes(&w, 1);
    local_control_lead(w.control, false, "http://10.1.1.1:7400");
    CHECK(EXPECT(&w, "POST /v1/keyspaces?", "{\"name\":\"o\",\"scheme\":\"range\"}", 307, NULL));
    CHECK_STR(api_header(&w, "Location"), "http://10.1.1.1:7400/v1/keyspaces?");
    CHECK(EXPECT(&w, "DELETE /v1/nodes/n1?force=true", NULL, 307, NULL));
    CHECK_STR(api_header(&w, "Location"), "http://10.1.1.1:7400/v1/nodes/n1?force=true");
    CHECK(EXPECT(&w, "GET /v1/nodes?consistency=linearizable", NULL, 307, NULL));
    CHECK(EXPECT(&w, "GET /v1/commands/k", NULL, 307, NULL));
    CHECK(EXPECT(&w, "POST /v1/cluster/transfer-leadership", NULL, 307, NULL));
    CHECK(EXPECT(&w, "GET /v1/nodes", NULL, 200, NULL));
    CHECK(EXPECT(&w, "POST /v1/cluster/snapshot", NULL, 202, NULL));
    local_control_lead(w.control, false, "");
    CHECK(EXPECT(&w, "DELETE /v1/nodes/n1", NULL, 503, "no_leader"));
    CHECK(strlen(api_header(&w, "Retry-After")) > 0);
    CHECK(EXPECT(&w, "GET /v1/nodes?consistency=linearizable", NULL, 503, "no_leader"));
    local_control_lead(w.control, true, "");
    CHECK(EXPECT(&w, "GET /v1/nodes?consistency=linearizable", NULL, 200, NULL));
    local_control_lose(w.control, true);
    CHECK(EXPECT(&w, "DELETE /v1/nodes/n1", NULL, 503, "outcome_unknown"));
    local_control_lose(w.control, false);
    local_control_overload(w.control, true);
    CHECK(EXPECT(&w, "DELETE /v1/nodes/n1", NULL, 503, "overloaded"));
    CHECK(EXPECT(&w, "GET /v1/nodes?consistency=linearizable", NULL, 503, "overloaded"));
    local_control_overload(w.control, false);
    CHECK(EXPECT(&w, "DELETE /v1/nodes/n1", NULL, 200, NULL));
    api_world_close(&w);
}

static void reads_as_fresh_as_asked_for(void)
{
    struct api_world w;
    struct client waiter;
    struct answer a;
    uint64_t revision;
    api_world_open(&w);
    api_nodes(&w, 1);
    CHECK(EXPECT(&w, "GET /v1/nodes?consistency=eventual", NULL, 400, "invalid_request"));
    CHECK(EXPECT(&w, "GET /v1/nodes?min_revision=-1", NULL, 400, "invalid_request"));
    CHECK(EXPECT(&w, "GET /v1/nodes?timeout_ms=60001", NULL, 400, "invalid_request"));
    CHECK(EXPECT(&w, "GET /v1/nodes", NULL, 200, NULL));
    revision = api_u64(&w, "revision");
    CHECK(EXPECT(&w, text("GET /v1/nodes?min_revision=%" PRIu64, revision), NULL, 200, NULL));
    CHECK(EXPECT(&w, text("GET /v1/nodes?min_revision=%" PRIu64 "&timeout_ms=1", revision + 1),
                 NULL, 503, "behind"));
    CHECK_U64(api_u64(&w, "revision"), revision);
    client_open(&waiter, w.port);
    (void)client_print(
        &waiter,
        "GET /v1/nodes?consistency=linearizable&timeout_ms=60000&min_revision=%" PRIu64
        " HTTP/1.1\r\nHost: t\r\n\r\n",
        revision + 1);
    CHECK(EXPECT(&w, "PUT /v1/nodes/n2", "{\"address\":\"b:1\",\"lease\":\"static\"}", 200, NULL));
    client_read(&waiter, &a, false, 20000);
    CHECK_U64(a.status, 200);
    CHECK(strstr(answer_text(&a), "\"n2\"") != NULL);
    answer_close(&a);
    client_close(&waiter);
    local_control_staleness(w.control, 700);
    CHECK(EXPECT(&w, "GET /v1/nodes?max_staleness_ms=699", NULL, 503, "too_stale"));
    CHECK(EXPECT(&w, "GET /v1/nodes?max_staleness_ms=700", NULL, 200, NULL));
    CHECK_STR(api_header(&w, "Cadastre-Staleness-Ms"), "700");
    local_control_staleness(w.control, UINT64_MAX);
    CHECK(EXPECT(&w, "GET /v1/nodes?max_staleness_ms=9007199254740991", NULL, 503, "too_stale"));
    api_world_close(&w);
}

static void a_held_confirmation_times_out(void)
{
    struct api_world w;
    api_world_open(&w);
    local_control_hold(w.control, true);
    CHECK(
        EXPECT(&w, "GET /v1/nodes?consistency=linearizable&timeout_ms=20", NULL, 503, "no_leader"));
    local_control_hold(w.control, false);
    CHECK(EXPECT(&w, "GET /v1/nodes?consistency=linearizable", NULL, 200, NULL));
    api_world_close(&w);
}

static void the_cluster_and_its_servers(void)
{
    static const struct api_row rows[] = {
        ROW("POST /v1/cluster/servers", "{}", 400, "invalid_request", "\"/id\""),
        ROW("POST /v1/cluster/servers",
            "{\"id\":2,\"raft_address\":\"b\",\"api_url\":\"http://b:7400\",\"role\":\"voter\","
            "\"instance\":\"00112233445566778899aabbccddeeff\"}",
            400, "invalid_request", "\"/raft_address\""),
        ROW("POST /v1/cluster/servers",
            "{\"id\":2,\"raft_address\":\"b:7401\",\"api_url\":\"ftp://b:7400\",\"role\":\"voter\","
            "\"instance\":\"00112233445566778899aabbccddeeff\"}",
            400, "invalid_request", "\"/api_url\""),
        ROW("POST /v1/cluster/servers",
            "{\"id\":2,\"raft_address\":\"b:7401\",\"api_url\":\"http://b:7400\",\"role\":\"boss\","
            "\"instance\":\"00112233445566778899aabbccddeeff\"}",
            400, "invalid_request", "\"/role\""),
        ROW("POST /v1/cluster/servers",
            "{\"id\":2,\"raft_address\":\"b:7401\",\"api_url\":\"http://b:7400\","
            "\"instance\":\"00112233445566778899AABBCCDDEEFF\"}",
            400, "invalid_request", "\"/instance\""),
        ROW("POST /v1/cluster/servers",
            "{\"id\":1,\"raft_address\":\"b:7401\",\"api_url\":\"http://b:7400\","
            "\"instance\":\"00112233445566778899aabbccddeeff\"}",
            409, "server_exists", "\"revision\""),
        ROW("PATCH /v1/cluster/servers/9", "{\"role\":\"voter\"}", 404, "server_not_found", NULL),
        ROW("PATCH /v1/cluster/servers/1", "{}", 400, "invalid_request", "\"/role\""),
        ROW("DELETE /v1/cluster/servers/x", NULL, 404, "server_not_found", NULL),
        ROW("DELETE /v1/cluster/servers/1", NULL, 409, "quorum_at_risk", NULL),
        ROW("DELETE /v1/cluster/servers/1", "{\"expect_revision\":99999}", 409, "stale_revision",
            NULL),
        ROW("POST /v1/cluster/transfer-leadership", "{\"to\":7}", 404, "server_not_found", NULL),
        ROW("POST /v1/cluster/transfer-leadership", NULL, 200, NULL, "\"leader\":1"),
        ROW("POST /v1/cluster/snapshot", "{\"x\":1}", 400, "invalid_request", "\"/x\""),
        ROW("POST /v1/cluster/snapshot", NULL, 202, NULL, "\"applied_index\":"),
    };
    struct api_world w;
    api_world_open(&w);
    CHECK(EXPECT(&w, "GET /v1/cluster", NULL, 200, NULL));
    CHECK_STR(api_text(&w, "cluster"), "00112233445566778899aabbccddeeff");
    CHECK_U64(api_u64(&w, "generation"), 1);
    CHECK_U64(api_u64(&w, "id"), 1);
    CHECK_U64(api_u64(&w, "leader"), 1);
    CHECK_U64(api_u64(&w, "term"), 1);
    CHECK(api_u64(&w, "commit_index") >= api_u64(&w, "applied_index"));
    CHECK_U64(strlen(api_text(&w, "state_hash")), 32);
    CHECK_STR(api_text(&w, "servers/0/raft_address"), "127.0.0.1:7401");
    CHECK_STR(api_text(&w, "servers/0/state_hash"), api_text(&w, "state_hash"));
    ROWS(&w, rows);
    CHECK(EXPECT(&w, "POST /v1/cluster/servers",
                 "{\"id\":2,\"raft_address\":\"b:7401\",\"api_url\":\"http://b:7400\",\"role\":"
                 "\"observer\",\"instance\":\"0a112233445566778899aabbccddeeff\"}",
                 201, NULL));
    CHECK_STR(api_text(&w, "server/role"), "observer");
    CHECK_STR(api_text(&w, "server/instance"), "0a112233445566778899aabbccddeeff");
    CHECK_STR(api_text(&w, "cluster"), "00112233445566778899aabbccddeeff");
    CHECK_U64(json_array_size(api_at(&w, "servers")), 2);
    CHECK(json_is_null(api_at(&w, "servers/1/applied_index")));
    CHECK(EXPECT(&w, "PATCH /v1/cluster/servers/2", "{\"role\":\"voter\"}", 200, NULL));
    CHECK_STR(api_text(&w, "server/role"), "voter");
    CHECK(EXPECT(&w, "DELETE /v1/cluster/servers/2", NULL, 200, NULL));
    CHECK(EXPECT(&w, "GET /v1/cluster/servers", NULL, 200, NULL));
    CHECK_U64(json_array_size(api_at(&w, "servers")), 1);
    api_world_close(&w);
}

static void the_process(void)
{
    static const struct api_row rows[] = {
        ROW("GET /livez", NULL, 200, NULL, "ok"),
        ROW("GET /readyz", NULL, 200, NULL, "ok"),
        ROW("GET /readyz?verbose", NULL, 200, NULL, "[+]leader ok"),
        ROW("GET /", NULL, 200, NULL, "/v1/keyspaces/{keyspace}/route"),
        ROW("GET /openapi.yaml", NULL, 200, NULL, "openapi: 3.1.0"),
        ROW("GET /metrics", NULL, 200, NULL, "cadastre_build_info{version=\"1.2.3\"} 1"),
        ROW("GET /metrics", NULL, 200, NULL, "cadastre_http_responses_total{class=\"2xx\"} "),
        ROW("GET /nothing", NULL, 404, "not_found", NULL),
        ROW("GET /v1/nodes/n1/nothing", NULL, 404, "not_found", NULL),
        ROW("POST /metrics", NULL, 405, "method_not_allowed", NULL),
    };
    struct api_world w;
    api_world_open(&w);
    ROWS(&w, rows);
    CHECK(EXPECT(&w, "GET /", NULL, 200, NULL));
    CHECK(json_array_size(api_at(&w, "endpoints")) > 40);
    local_control_staleness(w.control, 2001);
    CHECK(EXPECT(&w, "GET /readyz", NULL, 503, "not_ready"));
    CHECK(EXPECT(&w, "GET /livez", NULL, 200, NULL));
    api_call(&w, "GET /readyz?verbose", NULL, NULL);
    CHECK_U64(w.answer.status, 503);
    CHECK(strstr(api_body(&w), "[-]leader ") != NULL);
    api_world_close(&w);
}

int main(void)
{
    RUN(nodes_come_and_go);
    RUN(replays_give_the_same_bytes);
    RUN(keys_and_equal_requests);
    RUN(followers_send_on);
    RUN(reads_as_fresh_as_asked_for);
    RUN(a_held_confirmation_times_out);
    RUN(the_cluster_and_its_servers);
    RUN(the_process);
    return tap_done();
}
