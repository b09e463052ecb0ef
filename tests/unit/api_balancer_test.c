/* SPDX-License-Identifier: Apache-2.0 */
/* Budgets over HTTP: limits, what is in use, what waits and why, and what a move is going to cost.
 */
#include "base/clock.h"
#include "directory/budget.h"
#include "tests/harness/api_world.h"
#include "tests/harness/tap.h"

#include <inttypes.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)

static struct api_world w;
static uint64_t partitions[3];

/* Three partitions of n1; n2 and n3 have nothing. */
static void open_world(void)
{
    api_world_open(&w);
    CHECK(EXPECT(&w, "PUT /v1/nodes/n1", "{\"address\":\"n1:1\",\"labels\":{\"rack\":\"r1\"}}", 200,
                 NULL));
    CHECK(EXPECT(&w, "POST /v1/keyspaces",
                 "{\"name\":\"ks\",\"scheme\":\"range\",\"splits\":[\"h\",\"p\"]}", 201, NULL));
    CHECK(EXPECT(&w, "PUT /v1/nodes/n2", "{\"address\":\"n2:1\"}", 200, NULL));
    CHECK(EXPECT(&w, "PUT /v1/nodes/n3", "{\"address\":\"n3:1\"}", 200, NULL));
    CHECK(EXPECT(&w, "GET /v1/keyspaces/ks/partitions", NULL, 200, NULL));
    for (unsigned i = 0; i < 3; i++) {
        partitions[i] = api_u64(&w, text("partitions/%u/partition", i));
    }
}

static uint64_t move(unsigned i, const char *to, const char *more)
{
    CHECK(EXPECT(&w, text("POST /v1/keyspaces/ks/partitions/%" PRIu64 "/move", partitions[i]),
                 text("{\"to\":\"%s\"%s}", to, more), 202, NULL));
    return api_u64(&w, "id");
}

static void admit(uint64_t operation)
{
    Cadastre__OperationAdmit m;
    cadastre__operation_admit__init(&m);
    m.operation = operation;
    m.attempt = 1;
    struct dir_result *r =
        local_control_run(w.control, CADASTRE__COMMAND__BODY_OPERATION_ADMIT, &m);
    CHECK_U64(r->err.code, ERR_OK);
    result_unref(r);
}

static void get(uint64_t operation)
{
    CHECK(EXPECT(&w, text("GET /v1/operations/%" PRIu64, operation), NULL, 200, NULL));
}

static void limits_are_read_and_changed(void)
{
    open_world();
    CHECK(EXPECT(&w, "GET /v1/balancer", NULL, 200, NULL));
    CHECK_U64(api_u64(&w, "budgets/source/moves"), 2);
    CHECK_U64(api_u64(&w, "budgets/source/bytes_per_s"), 96 * MIB);
    CHECK_U64(api_u64(&w, "budgets/rack/moves"), 8);
    CHECK_U64(api_u64(&w, "budgets/zone/moves"), 32);
    CHECK_U64(api_u64(&w, "budgets/device/moves"), 1);
    CHECK(json_is_null(api_at(&w, "budgets/cluster/moves")));
    CHECK_U64(api_u64(&w, "budgets/transfer/moves"), 30);
    CHECK_U64(api_u64(&w, "budgets/recovery_reserve_percent"), 50);
    CHECK_U64(api_u64(&w, "budgets/release_ms"), 60000);
    CHECK(EXPECT(&w, "PATCH /v1/balancer",
                 "{\"budgets\":{\"source\":{\"moves\":7},\"cluster\":{\"moves\":0},"
                 "\"recovery_reserve_percent\":20}}",
                 200, NULL));
    CHECK(EXPECT(&w, "GET /v1/balancer", NULL, 200, NULL));
    CHECK_U64(api_u64(&w, "budgets/source/moves"), 7);
    CHECK_U64(api_u64(&w, "budgets/source/bytes_per_s"), 96 * MIB);
    CHECK_U64(api_u64(&w, "budgets/cluster/moves"), 0);
    CHECK_U64(api_u64(&w, "budgets/recovery_reserve_percent"), 20);
    /* null is the default again, of one member and of all of a budget. */
    CHECK(EXPECT(&w, "PATCH /v1/balancer",
                 "{\"budgets\":{\"source\":null,\"cluster\":{\"moves\":null}}}", 200, NULL));
    CHECK(EXPECT(&w, "GET /v1/balancer", NULL, 200, NULL));
    CHECK_U64(api_u64(&w, "budgets/source/moves"), 2);
    CHECK(json_is_null(api_at(&w, "budgets/cluster/moves")));
    api_world_close(&w);
}

static void refused(const char *body, int status, const char *code, const char *pointer)
{
    CHECK(EXPECT(&w, "PATCH /v1/balancer", body, status, code));
    CHECK_STR(api_text(&w, "errors/0/pointer"), pointer);
}

static void nonsense_is_refused_by_name(void)
{
    open_world();
    CHECK(EXPECT(&w, "GET /v1/balancer", NULL, 200, NULL));
    uint64_t revision = api_u64(&w, "revision");
    refused("{\"budgets\":{\"rack\":{\"moves\":10001}}}", 422, "invalid_settings",
            "/budgets/rack/moves");
    refused("{\"budgets\":{\"zone\":{\"bytes_per_s\":9007199254740991}}}", 422, "invalid_settings",
            "/budgets/zone/bytes_per_s");
    refused("{\"budgets\":{\"source\":{\"moves\":1},\"recovery_reserve_percent\":101}}", 422,
            "invalid_settings", "/budgets/recovery_reserve_percent");
    refused("{\"budgets\":{\"release_ms\":86400001}}", 422, "invalid_settings",
            "/budgets/release_ms");
    refused("{\"budgets\":{\"device\":{\"moves\":\"1\"}}}", 400, "invalid_request",
            "/budgets/device/moves");
    refused("{\"budgets\":{\"device\":{\"speed\":1}}}", 400, "invalid_request",
            "/budgets/device/speed");
    refused("{\"budgets\":{\"transfer\":{\"bytes_per_s\":1}}}", 400, "invalid_request",
            "/budgets/transfer/bytes_per_s");
    refused("{\"budgets\":{\"disk\":{}}}", 400, "invalid_request", "/budgets/disk");
    refused("{\"budgets\":[]}", 400, "invalid_request", "/budgets");
    refused("{\"mode\":1}", 400, "invalid_request", "/mode");
    refused("{\"mode\":\"on\"}", 400, "invalid_request", "/mode");
    refused("{\"thresholds\":{\"high_ppm\":900001}}", 422, "invalid_settings",
            "/thresholds/high_ppm");
    refused("{\"mode\":\"auto\",\"thresholds\":{\"low_ppm\":100000}}", 422, "invalid_settings",
            "/thresholds/low_ppm");
    refused("{\"thresholds\":{\"merge_share_ppm\":100000}}", 422, "invalid_settings",
            "/thresholds/merge_share_ppm");
    refused("{\"classes\":{\"hot\":1}}", 400, "invalid_request", "/classes/hot");
    refused("{\"classes\":{\"drain\":false}}", 400, "invalid_request", "/classes/drain");
    refused("{\"guardrails\":{\"error_ppm\":1000001}}", 422, "invalid_settings",
            "/guardrails/error_ppm");
    refused("{\"guardrails\":7}", 400, "invalid_request", "/guardrails");
    CHECK(EXPECT(&w, "GET /v1/balancer", NULL, 200, NULL));
    CHECK_U64(api_u64(&w, "revision"), revision);
    CHECK_U64(api_u64(&w, "budgets/source/moves"), 2);
    api_world_close(&w);
}

static void settings_are_read_and_changed(void)
{
    open_world();
    CHECK(EXPECT(&w, "GET /v1/balancer", NULL, 200, NULL));
    CHECK_STR(api_text(&w, "mode"), "advise");
    CHECK_U64(api_u64(&w, "thresholds/high_ppm"), 100000);
    CHECK(json_is_true(api_at(&w, "classes/hot")));
    CHECK_U64(api_u64(&w, "guardrails/queue_ms_p99"), 0);
    CHECK(json_is_null(api_at(&w, "pause")));
    CHECK_STR(api_text(&w, "idle/code"), "no_load");
    CHECK(EXPECT(&w, "PATCH /v1/balancer",
                 "{\"mode\":\"auto\",\"thresholds\":{\"high_ppm\":200000,\"round_ms\":100},"
                 "\"classes\":{\"merge\":false},\"guardrails\":{\"queue_ms_p99\":50},"
                 "\"budgets\":{\"release_ms\":1}}",
                 200, NULL));
    uint64_t revision = api_u64(&w, "revision");
    CHECK(EXPECT(&w, "GET /v1/balancer", NULL, 200, NULL));
    CHECK_STR(api_text(&w, "mode"), "auto");
    CHECK_U64(api_u64(&w, "thresholds/high_ppm"), 200000);
    CHECK_U64(api_u64(&w, "thresholds/round_ms"), 100);
    CHECK_U64(api_u64(&w, "thresholds/low_ppm"), 30000);
    CHECK(json_is_false(api_at(&w, "classes/merge")));
    CHECK_U64(api_u64(&w, "guardrails/queue_ms_p99"), 50);
    CHECK_U64(api_u64(&w, "budgets/release_ms"), 1);
    CHECK(EXPECT(&w, "PATCH /v1/balancer", "{\"mode\":\"auto\"}", 200, NULL));
    CHECK_U64(api_u64(&w, "revision"), revision);
    CHECK(EXPECT(&w, "PATCH /v1/balancer",
                 "{\"mode\":null,\"thresholds\":{\"high_ppm\":null},\"classes\":null}", 200, NULL));
    CHECK(EXPECT(&w, "GET /v1/balancer", NULL, 200, NULL));
    CHECK_STR(api_text(&w, "mode"), "advise");
    CHECK_U64(api_u64(&w, "thresholds/high_ppm"), 100000);
    CHECK_U64(api_u64(&w, "thresholds/round_ms"), 100);
    CHECK(json_is_true(api_at(&w, "classes/merge")));
    CHECK(EXPECT(&w, "PATCH /v1/balancer", "{\"mode\":\"off\"}", 200, NULL));
    CHECK(EXPECT(&w, "GET /v1/balancer", NULL, 200, NULL));
    CHECK_STR(api_text(&w, "idle/code"), "off");
    api_world_close(&w);
}

static void it_is_paused_and_resumed(void)
{
    open_world();
    CHECK(EXPECT(&w, "POST /v1/balancer/pause", "{\"reason\":\"\"}", 400, "invalid_request"));
    CHECK_STR(api_text(&w, "errors/0/pointer"), "/reason");
    CHECK(EXPECT(&w, "POST /v1/balancer/pause", "{\"reason\":\"x\",\"for_ms\":0}", 400,
                 "invalid_request"));
    CHECK_STR(api_text(&w, "errors/0/pointer"), "/for_ms");
    CHECK(EXPECT(&w, "POST /v1/balancer/pause", "{\"reason\":\"migration\"}", 200, NULL));
    CHECK(EXPECT(&w, "GET /v1/balancer", NULL, 200, NULL));
    CHECK_STR(api_text(&w, "pause/reason"), "migration");
    CHECK(json_is_null(api_at(&w, "pause/until")));
    CHECK_STR(api_text(&w, "idle/code"), "paused");
    CHECK(
        EXPECT(&w, "POST /v1/balancer/pause", "{\"reason\":\"more\",\"for_ms\":60000}", 200, NULL));
    CHECK(EXPECT(&w, "GET /v1/balancer", NULL, 200, NULL));
    CHECK_STR(api_text(&w, "pause/reason"), "more");
    CHECK(json_is_string(api_at(&w, "pause/until")));
    CHECK(EXPECT(&w, "POST /v1/balancer/resume", NULL, 200, NULL));
    uint64_t revision = api_u64(&w, "revision");
    CHECK(EXPECT(&w, "GET /v1/balancer", NULL, 200, NULL));
    CHECK(json_is_null(api_at(&w, "pause")));
    CHECK(EXPECT(&w, "POST /v1/balancer/resume", NULL, 200, NULL));
    CHECK_U64(api_u64(&w, "revision"), revision);
    api_world_close(&w);
}

static void note(const char *code, const char *detail)
{
    union {
        const char *in;
        char *out;
    } c = {.in = code}, d = {.in = detail};
    char node[] = "n2", metric[] = "queue_ms_p99";
    Cadastre__BalancerNote m;
    cadastre__balancer_note__init(&m);
    m.code = c.out;
    m.detail = d.out;
    m.proposed = 3;
    m.rounds = 7;
    if (strcmp(code, "guardrail") == 0) {
        m.node = node;
        m.metric = metric;
        m.value = 80;
        m.limit = 50;
    }
    struct dir_result *r = local_control_run(w.control, CADASTRE__COMMAND__BODY_BALANCER_NOTE, &m);
    CHECK_U64(r->err.code, ERR_OK);
    result_unref(r);
}

static void why_it_is_idle_is_remembered(void)
{
    open_world();
    note("quiet", "");
    note("quiet", ""); /* says nothing new */
    note("active", "");
    CHECK(EXPECT(&w, "GET /v1/balancer", NULL, 200, NULL));
    CHECK(json_is_null(api_at(&w, "idle")));
    CHECK_U64(json_array_size(api_at(&w, "decisions")), 2);
    CHECK_STR(api_text(&w, "decisions/0/code"), "active");
    CHECK_U64(api_u64(&w, "decisions/0/proposed"), 3);
    for (int i = 0; i < 80; i++) {
        note("guardrail", text("round %d", i));
    }
    CHECK(EXPECT(&w, "GET /v1/balancer", NULL, 200, NULL));
    CHECK_STR(api_text(&w, "idle/code"), "guardrail");
    CHECK_STR(api_text(&w, "idle/detail"), "round 79");
    CHECK_U64(json_array_size(api_at(&w, "decisions")), 64);
    CHECK_STR(api_text(&w, "decisions/63/detail"), "round 16");
    CHECK_STR(api_text(&w, "idle/guardrail/node"), "n2");
    CHECK_STR(api_text(&w, "decisions/9/guardrail/metric"), "queue_ms_p99");
    CHECK(api_u64(&w, "idle/guardrail/value") == 80 && api_u64(&w, "idle/guardrail/limit") == 50);
    CHECK_U64(api_u64(&w, "decisions/0/rounds"), 7);
    api_world_close(&w);
}

/* The modeled split: 512 GiB at 64 MiB/s, 30 MiB/s of changes, 96 MiB/s, twelve minutes of dual
 * write. */
static void the_modeled_figures_come_out(void)
{
    open_world();
    CHECK(EXPECT(&w, "PATCH /v1/balancer", "{\"budgets\":{\"recovery_reserve_percent\":0}}", 200,
                 NULL));
    CHECK(EXPECT(&w, "PATCH /v1/cluster/settings", "{\"dual_write_max_ms\":720000}", 200, NULL));
    (void)move(0, "n2",
               ",\"size_bytes\":549755813888,\"live_bytes_per_s\":31457280,"
               "\"max_bytes_per_s\":67108864");
    CHECK_STR(api_text(&w, "state"), "queued");
    CHECK_STR(api_text(&w, "class"), "operator");
    CHECK_U64(api_u64(&w, "plan/bytes"), UINT64_C(512) << 30);
    CHECK_U64(api_u64(&w, "plan/duration_ms"), 8192000);
    CHECK_U64(api_u64(&w, "plan/peak_bytes_per_s"), 94 * MIB);
    CHECK_U64(api_u64(&w, "plan/margin_bytes_per_s"), 2 * MIB);
    CHECK_U64(api_u64(&w, "plan/dual_write_bytes"), UINT64_C(22649241600));
    CHECK_U64(api_u64(&w, "plan/advised_copy_bytes_per_s"), 59139686);
    CHECK_U64(api_u64(&w, "plan/advised_duration_ms"), 9296000);
    static const char *const names[] = {"source_reads",   "destination_writes", "checksums",
                                        "change_capture", "dual_writes",        "index_work",
                                        "cache_warmup",   "replica_work"};
    for (unsigned i = 0; i < 8; i++) {
        CHECK_STR(api_text(&w, text("plan/components/%u/name", i)), names[i]);
    }
    CHECK_U64(api_u64(&w, "plan/components/0/bytes"), UINT64_C(512) << 30);
    CHECK_U64(api_u64(&w, "plan/components/3/bytes"), UINT64_C(8192) * 30 * MIB);
    CHECK_STR(api_text(&w, "plan/advice/0"),
              "the margin of 2 MiB/s is too thin: a reserve of 10% is 9.6 MiB/s");
    CHECK_STR(api_text(&w, "plan/advice/1"),
              "copy at 56.4 MiB/s at most: the copy then takes 9296 s");
    CHECK(api_at(&w, "waiting") == NULL);
    api_world_close(&w);
}

static void what_is_not_known_is_null(void)
{
    open_world();
    uint64_t id = move(0, "n2", "");
    CHECK(json_is_null(api_at(&w, "plan/bytes")) && json_is_null(api_at(&w, "plan/duration_ms")));
    CHECK(json_is_null(api_at(&w, "plan/margin_bytes_per_s")));
    CHECK(json_is_null(api_at(&w, "plan/components/1/bytes")));
    CHECK_U64(api_u64(&w, "plan/copy_bytes_per_s"), 48 * MIB);
    CHECK_STR(api_text(&w, "plan/advice/0"),
              "its size is not known before SNAPSHOT: give size_bytes");
    CHECK_STR(api_text(&w, "plan/advice/1"),
              "how fast it changes is not known: give live_bytes_per_s");
    CHECK(EXPECT(&w, text("POST /v1/operations/%" PRIu64 "/abort", id), NULL, 200, NULL));
    CHECK(api_at(&w, "plan") == NULL);
    (void)move(1, "n2", ",\"size_bytes\":50331648000");
    CHECK_U64(api_u64(&w, "plan/duration_ms"), 1000000);
    CHECK_U64(api_u64(&w, "plan/components/0/bytes"), UINT64_C(50331648000));
    CHECK(json_is_null(api_at(&w, "plan/components/1/bytes")));
    CHECK(json_is_null(api_at(&w, "plan/peak_bytes_per_s")));
    api_world_close(&w);
}

static void what_waits_says_for_what(void)
{
    open_world();
    uint64_t first = move(0, "n2", ""), second = move(1, "n3", "");
    CHECK(api_at(&w, "waiting") == NULL);
    admit(first);
    get(first);
    CHECK_STR(api_text(&w, "stage"), "PREPARE");
    CHECK_U64(api_u64(&w, "reserved/moves"), 1);
    CHECK_U64(api_u64(&w, "reserved/bytes_per_s"), 48 * MIB);
    get(second);
    CHECK_STR(api_text(&w, "waiting/code"), "budget_exceeded");
    CHECK_STR(api_text(&w, "waiting/budget"), "source");
    CHECK_STR(api_text(&w, "waiting/value"), "n1");
    CHECK_STR(api_text(&w, "waiting/of"), "moves");
    CHECK_U64(api_u64(&w, "waiting/in_use"), 1);
    CHECK_U64(api_u64(&w, "waiting/needed"), 1);
    CHECK_U64(api_u64(&w, "waiting/limit"), 2);
    CHECK_U64(api_u64(&w, "waiting/reserve"), 1);
    CHECK(strstr(api_text(&w, "waiting/detail"), "the budget source of n1 has 1 moves") != NULL);
    CHECK(EXPECT(&w, "GET /v1/operations?state=queued", NULL, 200, NULL));
    CHECK_STR(api_text(&w, "operations/0/waiting/budget"), "source");
    CHECK(EXPECT(&w, "GET /v1/balancer", NULL, 200, NULL));
    CHECK_U64(api_u64(&w, "queue/operator"), 1);
    CHECK_STR(api_text(&w, "usage/0/budget"), "source");
    CHECK_STR(api_text(&w, "usage/0/value"), "n1");
    CHECK_U64(api_u64(&w, "usage/0/moves"), 1);
    CHECK_U64(api_u64(&w, "usage/0/moves_limit"), 2);
    CHECK_U64(api_u64(&w, "usage/0/bytes_per_s"), 48 * MIB);
    CHECK_U64(api_u64(&w, "usage/0/bytes_per_s_reserve"), 48 * MIB);
    CHECK_STR(api_text(&w, "usage/1/value"), "n2");
    CHECK_STR(api_text(&w, "usage/2/budget"), "rack");
    CHECK_STR(api_text(&w, "usage/2/value"), "r1");
    CHECK_STR(api_text(&w, "usage/3/budget"), "cluster");
    CHECK_U64(api_u64(&w, "usage/3/moves_limit"), 16);
    CHECK_U64(api_u64(&w, "usage_left_out"), 0);
    CHECK(EXPECT(&w, text("POST /v1/operations/%" PRIu64 "/abort", first), NULL, 200, NULL));
    get(second);
    CHECK(api_at(&w, "waiting") == NULL);
    api_world_close(&w);
}

static void agents_are_told_the_rate(void)
{
    open_world();
    uint64_t id = move(0, "n2", ",\"max_bytes_per_s\":1000");
    CHECK(EXPECT(&w, "GET /v1/nodes/n2", NULL, 200, NULL));
    uint64_t session = api_u64(&w, "session");
    admit(id);
    CHECK(EXPECT(&w, text("GET /v1/nodes/n2/tasks?session=%" PRIu64 "&since=0", session), NULL, 200,
                 NULL));
    CHECK_U64(api_u64(&w, "tasks/1/rate_bytes_per_s"), 1000);
    id = move(1, "n2", "");
    CHECK(EXPECT(&w, "PATCH /v1/balancer", "{\"budgets\":{\"source\":{\"moves\":8}}}", 200, NULL));
    CHECK(EXPECT(&w, "PATCH /v1/balancer", "{\"budgets\":{\"destination\":{\"moves\":6}}}", 200,
                 NULL));
    admit(id);
    CHECK(EXPECT(&w, text("GET /v1/nodes/n2/tasks?session=%" PRIu64 "&since=0", session), NULL, 200,
                 NULL));
    CHECK_U64(api_u64(&w, "tasks/3/rate_bytes_per_s"), 12 * MIB);
    api_world_close(&w);
}

static void
report(uint64_t operation, const char *node, unsigned seq, const char *stage, const char *more)
{
    CHECK(EXPECT(&w, text("GET /v1/nodes/%s", node), NULL, 200, NULL));
    uint64_t session = api_u64(&w, "session");
    CHECK(EXPECT(&w, text("POST /v1/operations/%" PRIu64 "/reports", operation),
                 text("{\"node\":\"%s\",\"session\":%" PRIu64
                      ",\"attempt\":1,\"seq\":%u,\"stage\":\"%s\",%s}",
                      node, session, seq, stage, more),
                 200, NULL));
}

static void what_holds_a_copy_back_shows(void)
{
    Cadastre__OperationRate m;
    char queue[] = "queue_ms_p99";
    open_world();
    uint64_t id = move(0, "n2", ",\"max_bytes_per_s\":1000");
    admit(id);
    get(id);
    CHECK(api_at(&w, "throttled") == NULL);
    cadastre__operation_rate__init(&m);
    CHECK(EXPECT(&w, "GET /v1/nodes/n2", NULL, 200, NULL));
    uint64_t session = api_u64(&w, "session");
    m.operation = id;
    m.attempt = 1;
    m.share_ppm = 250000;
    m.code = queue;
    m.value = 80;
    m.limit = 50;
    const struct dir_view *v = view_pin(control_published(w.control));
    m.node = view_node(v, slice_of("n2", 2))->id;
    view_unpin(v);
    struct dir_result *r = local_control_run(w.control, CADASTRE__COMMAND__BODY_OPERATION_RATE, &m);
    CHECK_U64(r->err.code, ERR_OK);
    result_unref(r);
    get(id);
    CHECK_STR(api_text(&w, "throttled/code"), "queue_ms_p99");
    CHECK_STR(api_text(&w, "throttled/node"), "n2");
    CHECK_U64(api_u64(&w, "throttled/value"), 80);
    CHECK_U64(api_u64(&w, "throttled/limit"), 50);
    CHECK_U64(api_u64(&w, "throttled/share_ppm"), 250000);
    CHECK_U64(api_u64(&w, "throttled/rate_bytes_per_s"), 250);
    CHECK_U64(api_u64(&w, "throttled/reserved_bytes_per_s"), 1000);
    CHECK_U64(api_u64(&w, "reserved/bytes_per_s"), 1000);
    CHECK(api_text(&w, "throttled/since") != NULL);
    CHECK(EXPECT(&w, text("GET /v1/nodes/n2/tasks?session=%" PRIu64 "&since=0", session), NULL, 200,
                 NULL));
    CHECK_U64(api_u64(&w, "tasks/1/rate_bytes_per_s"), 250);
    report(id, "n2", 1, "PREPARE", "\"ready\":true,\"free_bytes\":100000");
    report(id, "n1", 1, "SNAPSHOT", "\"snapshot\":\"s\",\"position\":1,\"bytes_total\":1000");
    report(id, "n2", 2, "COPY", "\"chunk\":0,\"bytes_done\":0");
    get(id);
    CHECK_U64(api_u64(&w, "progress/eta_ms"), 4000);
    report(id, "n2", 3, "COPY", "\"chunk\":1,\"bytes_done\":500"); /* faster than it may now */
    get(id);
    CHECK_U64(api_u64(&w, "progress/eta_ms"), 2000);
    CHECK(EXPECT(&w, "GET /metrics", NULL, 200, NULL));
    CHECK(strstr(api_body(&w), "\ncadastre_balancer_throttled_operations 1\n") != NULL);
    CHECK(strstr(api_body(&w), "\ncadastre_balancer_braked{class=\"hot\"} 0\n") != NULL);
    CHECK(EXPECT(&w, "GET /v1/balancer", NULL, 200, NULL));
    CHECK_U64(json_array_size(api_at(&w, "oscillation")), 5);
    CHECK_STR(api_text(&w, "oscillation/1/class"), "hot");
    CHECK(json_is_false(api_at(&w, "oscillation/1/braked")));
    api_world_close(&w);
}

/* What has failed for good shows, and what a person has stopped does not. */
static void what_needs_a_person_is_counted(void)
{
    open_world();
    uint64_t id = move(0, "n2", ""), other = move(1, "n3", "");
    CHECK(EXPECT(&w, "GET /metrics", NULL, 200, NULL));
    CHECK(strstr(api_body(&w), "\ncadastre_directory_operations_queued 2\n") != NULL);
    CHECK(strstr(api_body(&w), "\ncadastre_directory_operations_attention 0\n") != NULL);
    CHECK(EXPECT(&w, text("POST /v1/operations/%" PRIu64 "/abort", other), NULL, 200, NULL));
    admit(id);
    report(id, "n2", 1, "PREPARE", "\"refused\":\"no disk\"");
    CHECK(EXPECT(&w, "GET /metrics", NULL, 200, NULL));
    CHECK(strstr(api_body(&w), "\ncadastre_directory_operations_queued 0\n") != NULL);
    CHECK(strstr(api_body(&w), "\ncadastre_directory_operations_attention 1\n") != NULL);
    api_world_close(&w);
}

/* In milliseconds. */
static uint64_t oldest_stage(void)
{
    static const char name[] = "\ncadastre_directory_operations_oldest_stage_seconds ";
    CHECK(EXPECT(&w, "GET /metrics", NULL, 200, NULL));
    const char *at = strstr(api_body(&w), name);
    CHECK(at != NULL);
    uint64_t got = 0;
    for (at = at != NULL ? at + sizeof name - 1 : ""; *at != '\0' && *at != '\n'; at++) {
        got = *at == '.' ? got : got * 10 + (uint64_t)(*at - '0');
    }
    return got;
}

/* Of what nobody reports on any more; of what has ended it says nothing. */
static void what_stands_still_shows(void)
{
    open_world();
    CHECK_U64(oldest_stage(), 0);
    uint64_t id = move(0, "n2", "");
    admit(id);
    uint64_t until = clock_mono_ms() + 30000, last = 0;
    while (last < 20 && clock_mono_ms() < until) {
        last = oldest_stage();
    }
    CHECK(last >= 20);
    uint64_t younger = move(1, "n3", "");
    CHECK(oldest_stage() >= last);
    CHECK(EXPECT(&w, text("POST /v1/operations/%" PRIu64 "/abort", younger), NULL, 200, NULL));
    CHECK(EXPECT(&w, text("POST /v1/operations/%" PRIu64 "/abort", id), NULL, 200, NULL));
    CHECK_U64(oldest_stage(), 0);
    api_world_close(&w);
}

/* Before anything was measured, by what is reserved; and by the size that the snapshot has. */
static void progress_is_true_while_it_copies(void)
{
    open_world();
    uint64_t id = move(0, "n2", ",\"max_bytes_per_s\":1000,\"size_bytes\":7");
    CHECK_U64(api_u64(&w, "progress/eta_ms"), 0);
    admit(id);
    report(id, "n2", 1, "PREPARE", "\"ready\":true,\"free_bytes\":1000000000");
    report(id, "n1", 1, "SNAPSHOT", "\"snapshot\":\"s\",\"position\":1,\"bytes_total\":500000");
    get(id);
    CHECK_STR(api_text(&w, "stage"), "COPY");
    CHECK_U64(api_u64(&w, "progress/rate_bytes_per_s"), 0);
    CHECK_U64(api_u64(&w, "progress/eta_ms"), 500000);
    CHECK_U64(api_u64(&w, "plan/bytes"), 500000);
    CHECK_U64(api_u64(&w, "plan/duration_ms"), 500000);
    report(id, "n2", 2, "COPY", "\"chunk\":1,\"bytes_done\":500000,\"complete\":true");
    get(id);
    CHECK_STR(api_text(&w, "stage"), "CATCH_UP");
    CHECK_U64(api_u64(&w, "progress/eta_ms"), 0);
    api_world_close(&w);
}

int main(void)
{
    RUN(limits_are_read_and_changed);
    RUN(nonsense_is_refused_by_name);
    RUN(settings_are_read_and_changed);
    RUN(it_is_paused_and_resumed);
    RUN(why_it_is_idle_is_remembered);
    RUN(the_modeled_figures_come_out);
    RUN(what_is_not_known_is_null);
    RUN(what_waits_says_for_what);
    RUN(agents_are_told_the_rate);
    RUN(what_holds_a_copy_back_shows);
    RUN(what_stands_still_shows);
    RUN(progress_is_true_while_it_copies);
    RUN(what_needs_a_person_is_counted);
    return tap_done();
}
