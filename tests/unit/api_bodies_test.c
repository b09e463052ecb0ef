/* SPDX-License-Identifier: Apache-2.0 */
/* Every member of every body, replaced by values of every type, left out, or joined by another:
 * what is refused changes nothing. */
#include "tests/harness/api_world.h"
#include "tests/harness/tap.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

static const struct body {
    const char *request, *body;
} bodies[] = {
    {"POST /v1/keyspaces",
     "{\"name\":\"k\",\"scheme\":\"range\",\"key_encoding\":\"utf8\",\"splits\":[\"a\"],"
     "\"replicas\":{"
     "\"sync\":0,\"async\":0},\"authority\":\"affinity\",\"placement\":{\"require\":{\"zone\":"
     "\"a\"},"
     "\"spread\":\"zone\"},\"policy\":{\"uneven_access\":2,\"required_checks\":[\"a\"]},"
     "\"expect_revision\":99999}"},
    {"POST /v1/keyspaces",
     "{\"name\":\"k\",\"scheme\":\"hash\",\"partitions\":2,\"partition_key\":{\"delimiter\":\"/\","
     "\"fields\":1},\"layout\":{},\"expect_revision\":99999}"},
    {"PATCH /v1/keyspaces/o",
     "{\"placement\":{\"require\":{\"zone\":\"a\"},\"spread\":\"zone\"},\"policy\":{\"x\":1},"
     "\"replicas\":{\"sync\":0,\"async\":0},\"expect_revision\":99999}"},
    {"POST /v1/keyspaces/o/partitions/@/split",
     "{\"at\":[\"g\"],\"expect_epoch\":99999,\"expect_revision\":99999}"},
    {"POST /v1/keyspaces/o/partitions/@/merge",
     "{\"with\":1,\"expect_epoch\":99999,\"expect_revision\":99999}"},
    {"POST /v1/keyspaces/o/partitions/@/move",
     "{\"from\":\"n1\",\"to\":\"n1\",\"empty\":true,\"reason\":\"r\",\"max_bytes_per_s\":1,"
     "\"size_bytes\":1,\"live_bytes_per_s\":0,"
     "\"expect_epoch\":99999,\"expect_revision\":99999}"},
    {"POST /v1/keyspaces/o/partitions/@/move",
     "{\"to\":\"n1\",\"range\":{\"start\":\"a\",\"end\":\"b\"},\"expect_epoch\":99999}"},
    {"POST /v1/keyspaces/o/partitions/@/transfer", "{\"to\":\"n1\",\"expect_epoch\":99999}"},
    {"POST /v1/keyspaces/o/partitions/@/replicas", "{\"node\":\"n1\",\"role\":\"sync\"}"},
    {"PATCH /v1/keyspaces/o/partitions/@",
     "{\"pinned\":true,\"rate_limit\":{\"requests_per_s\":5},\"expect_epoch\":99999,"
     "\"expect_revision\":99999}"},
    {"POST /v1/keyspaces/o/partitions/@/check", "{\"node\":\"n1\",\"epoch\":1}"},
    {"POST /v1/keyspaces/o/routes", "{\"keys\":[\"a\"]}"},
    {"POST /v1/keyspaces/o/validate",
     "{\"routes\":[{\"partition\":1,\"epoch\":2,\"mod_revision\":3}]}"},
    {"PUT /v1/nodes/n1",
     "{\"address\":\"a:1\",\"labels\":{\"zone\":\"a\"},\"capacity\":{\"cpu\":4},\"lease\":"
     "\"static\","
     "\"previous_session\":1,\"copies\":[{\"keyspace\":\"o\",\"partition\":1,\"copy\":2}],"
     "\"expect_revision\":99999}"},
    {"DELETE /v1/nodes/n1", "{\"expect_revision\":99999}"},
    {"POST /v1/cluster/servers", "{\"id\":1,\"raft_address\":\"a:1\",\"api_url\":\"http://"
                                 "a:1\",\"role\":\"voter\",\"instance\":"
                                 "\"00112233445566778899aabbccddeeff\"}"},
    {"PATCH /v1/balancer",
     "{\"budgets\":{\"source\":{\"moves\":1,\"bytes_per_s\":1},\"transfer\":{\"moves\":1},"
     "\"recovery_reserve_percent\":1,\"release_ms\":1},\"mode\":\"auto\","
     "\"thresholds\":{\"high_ppm\":100000},\"classes\":{\"hot\":true},"
     "\"guardrails\":{\"queue_ms_p99\":1},\"expect_revision\":99999}"},
    {"POST /v1/balancer/pause", "{\"reason\":\"x\",\"for_ms\":1,\"expect_revision\":99999}"},
    {"PATCH /v1/cluster/servers/9", "{\"role\":\"voter\",\"expect_revision\":99999}"},
    {"POST /v1/cluster/transfer-leadership", "{\"to\":9}"},
};

static const char *const values[] = {
    "null",        "true", "0",  "-1",   "1.5",    "9007199254740992",   "\"\"", "\"A\\u0000\"",
    "\"\\u00e9\"", "[]",   "{}", "[{}]", "[null]", "{\"a\":{\"b\":[]}}", "NaN",  "1e999",
};

struct state {
    struct api_world w;
    char hash[40];
    uint64_t partition;
    unsigned sent, refused;
};

static void check_same_state(struct state *s)
{
    api_call(&s->w, "GET /v1/cluster", NULL, NULL);
    CHECK_STR(api_text(&s->w, "state_hash"), s->hash);
}

/* None of these may take effect, for each expects a revision or an epoch that is not there, or asks
 * for what can't be. But PATCH and validate may answer well when the odd value means nothing. */
static int send(struct state *s, const struct body *b, const char *text_of_body)
{
    char request[128], *at;
    (void)memcpy(request, b->request, strlen(b->request) + 1);
    at = strchr(request, '@');
    if (at != NULL) {
        const char *rest = b->request + (at - request) + 1;
        (void)memcpy(at, text("%llu%s", (unsigned long long)s->partition, rest),
                     strlen(text("%llu%s", (unsigned long long)s->partition, rest)) + 1);
    }
    api_call(&s->w, request, NULL, text_of_body);
    int status = s->w.answer.status;
    s->sent++;
    s->refused += status >= 400 && status < 500;
    if (!CHECK(status >= 200 && status < 500)) {
        tap_note("%s %s: %d", request, text_of_body, status);
    }
    check_same_state(s);
    return status;
}

static void with_each_value(struct state *s, const struct body *b, json_t *whole, json_t *object)
{
    const char *name;
    json_t *value;
    void *next;
    json_object_foreach_safe(object, next, name, value)
    {
        char *member = mem_strdup(name);
        json_t *was = json_incref(value);
        for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
            struct buf out;
            char *dump, *mark;
            (void)json_object_set_new(object, member, json_string("@HERE@"));
            dump = json_dumps(whole, JSON_COMPACT);
            mark = strstr(dump, "\"@HERE@\"");
            buf_init(&out, 1 << 20);
            buf_put(&out, dump, (size_t)(mark - dump));
            buf_put_str(&out, values[i]);
            buf_put_str(&out, mark + 8);
            buf_put_u8(&out, '\0');
            (void)send(s, b, (const char *)out.data);
            buf_close(&out);
            (free)(dump); /* jansson's, from the libc */
        }
        (void)json_object_set(object, member, was);
        if (json_is_object(was)) {
            with_each_value(s, b, whole, was);
        }
        json_decref(was);
        mem_free(member);
    }
}

static void odd_members_are_refused(void)
{
    static struct state s;
    memset(&s, 0, sizeof s);
    api_world_open(&s.w);
    api_nodes(&s.w, 2);
    CHECK(EXPECT(&s.w, "POST /v1/keyspaces", "{\"name\":\"o\",\"scheme\":\"range\"}", 201, NULL));
    CHECK(EXPECT(&s.w, "GET /v1/keyspaces/o/route?key=", NULL, 200, NULL));
    s.partition = api_u64(&s.w, "partition");
    CHECK(EXPECT(&s.w, "GET /v1/cluster", NULL, 200, NULL));
    (void)memcpy(s.hash, api_text(&s.w, "state_hash"), 33);
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0] && tap_failures() == 0; i++) {
        json_t *body = json_loads(bodies[i].body, 0, NULL);
        tap_note("%s", bodies[i].request);
        CHECK(body != NULL);
        (void)send(&s, &bodies[i], bodies[i].body);
        with_each_value(&s, &bodies[i], body, body);
        (void)json_object_set_new(body, "colour", json_integer(1));
        char *dump = json_dumps(body, JSON_COMPACT);
        int status = send(&s, &bodies[i], dump);
        CHECK(status == 400 || status == 422);
        (free)(dump); /* as above */
        json_decref(body);
    }
    CHECK(s.sent > 500 && s.refused > s.sent / 2);
    api_world_close(&s.w);
}

int main(void)
{
    RUN(odd_members_are_refused);
    return tap_done();
}
