/* SPDX-License-Identifier: Apache-2.0 */
/* Changes and watch: delivery, resuming, filters, waiting, what is too old; and who watches. */
#include "tests/harness/api_world.h"
#include "tests/harness/tap.h"

#include "base/clock.h"
#include "base/mem.h"

#include <inttypes.h>
#include <string.h>

/* --- a server-sent event stream --- */

struct sse {
    struct client client;
    struct buf text; /* unchunked, not yet taken */
    char id[32], event[32];
    json_t *data; /* of the last event; owned */
    bool ended;
};

static void
sse_open(struct sse *s, const struct api_world *w, const char *target, const char *headers)
{
    memset(s, 0, sizeof *s);
    buf_init(&s->text, 64 << 20);
    client_open(&s->client, w->port);
    (void)client_print(&s->client, "GET %s HTTP/1.1\r\nHost: t\r\n%s\r\n", target,
                       headers != NULL ? headers : "");
}

static void sse_close(struct sse *s)
{
    client_close(&s->client);
    buf_close(&s->text);
    json_decref(s->data);
}

static bool more(struct sse *s, uint64_t until)
{
    uint64_t now = clock_mono_ms();
    return now < until && client_more(&s->client, (unsigned)(until - now));
}

static void consume(struct buf *b, size_t n)
{
    memmove(b->data, b->data + n, b->len - n);
    b->len -= n;
}

static char *line_end(const struct buf *in)
{
    return in->len > 0 ? memmem(in->data, in->len, "\r\n", 2) : NULL;
}

/* Reads the head, which must be a 200 of text/event-stream. */
static bool sse_head(struct sse *s)
{
    struct buf *in = &s->client.in;
    uint64_t until = clock_mono_ms() + 10000;
    char *end;
    while ((end = in->len > 0 ? memmem(in->data, in->len, "\r\n\r\n", 4) : NULL) == NULL) {
        if (!more(s, until)) {
            return false;
        }
    }
    bool ok = memcmp(in->data, "HTTP/1.1 200", 12) == 0 &&
              memmem(in->data, (size_t)(end - (char *)in->data), "text/event-stream", 17) != NULL;
    consume(in, (size_t)(end - (char *)in->data) + 4);
    return ok;
}

/* One more chunk into s->text; false at the end. */
static bool sse_chunk(struct sse *s, uint64_t until)
{
    struct buf *in = &s->client.in;
    char *end;
    while ((end = line_end(in)) == NULL) {
        if (!more(s, until)) {
            return false;
        }
    }
    size_t size = 0, head = (size_t)(end - (char *)in->data) + 2;
    for (const char *p = (const char *)in->data; *p != '\r'; p++) {
        size = size * 16 + (size_t)(*p <= '9' ? *p - '0' : (*p | 0x20) - 'a' + 10);
    }
    while (in->len < head + size + 2) {
        if (!more(s, until)) {
            return false;
        }
    }
    buf_put(&s->text, in->data + head, size);
    consume(in, head + size + 2);
    s->ended = size == 0;
    return size > 0;
}

static void take_field(struct sse *s, const char *line, size_t len)
{
    if (strncmp(line, "id: ", 4) == 0) {
        memset(s->id, 0, sizeof s->id);
        memcpy(s->id, line + 4, len - 4 < 31 ? len - 4 : 31);
    } else if (strncmp(line, "event: ", 7) == 0) {
        memset(s->event, 0, sizeof s->event);
        memcpy(s->event, line + 7, len - 7 < 31 ? len - 7 : 31);
    } else if (strncmp(line, "data: ", 6) == 0) {
        json_decref(s->data);
        s->data = json_loadb(line + 6, len - 6, JSON_ALLOW_NUL, NULL);
    }
}

/* The next event with data; false at the end of the stream, or when none comes. */
static bool sse_next(struct sse *s)
{
    uint64_t until = clock_mono_ms() + 10000;
    s->event[0] = '\0';
    json_decref(s->data);
    s->data = NULL;
    for (;;) {
        char *end = s->text.len > 0 ? memmem(s->text.data, s->text.len, "\n", 1) : NULL;
        if (end == NULL) {
            if (!sse_chunk(s, until)) {
                return false;
            }
            continue;
        }
        size_t len = (size_t)(end - (char *)s->text.data);
        take_field(s, (const char *)s->text.data, len);
        consume(&s->text, len + 1);
        if (len == 0 && s->data != NULL) {
            return true;
        }
    }
}

static uint64_t data_u64(const struct sse *s, const char *member)
{
    const json_t *v = json_object_get(s->data, member);
    return json_is_integer(v) ? (uint64_t)json_integer_value(v) : UINT64_MAX;
}

/* --- a world with one keyspace, and changes of it --- */

static void open_world(struct api_world *w)
{
    api_world_open(w);
    api_nodes(w, 1);
    CHECK(EXPECT(w, "POST /v1/keyspaces",
                 "{\"name\":\"o\",\"scheme\":\"range\",\"splits\":[\"m\"]}", 201, NULL));
}

static uint64_t partition_of(struct api_world *w, const char *key)
{
    CHECK(EXPECT(w, text("GET /v1/keyspaces/o/route?key=%s", key), NULL, 200, NULL));
    return api_u64(w, "partition");
}

/* Splits what holds the key there; gives the revision. */
static uint64_t split(struct api_world *w, const char *key)
{
    uint64_t p = partition_of(w, key);
    CHECK(EXPECT(w, text("POST /v1/keyspaces/o/partitions/%" PRIu64 "/split", p),
                 text("{\"at\":[\"%s\"]}", key), 200, NULL));
    return api_u64(w, "revision");
}

static void changes_since_a_revision(void)
{
    struct api_world w;
    uint64_t begin, r1, r2, parent;
    open_world(&w);
    begin = api_u64(&w, "revision");
    parent = partition_of(&w, "c");
    r1 = split(&w, "c");
    r2 = split(&w, "x");
    CHECK(EXPECT(&w, text("GET /v1/keyspaces/o/changes?since=%" PRIu64, begin), NULL, 200, NULL));
    CHECK_U64(api_u64(&w, "from"), begin);
    CHECK_U64(api_u64(&w, "revision"), r2);
    CHECK_U64(json_array_size(api_at(&w, "changes")), 2);
    CHECK_STR(api_text(&w, "changes/0/kind"), "split");
    CHECK_U64(api_u64(&w, "changes/0/revision"), r1);
    CHECK_U64(api_u64(&w, "changes/0/removed/0"), parent);
    CHECK_U64(json_array_size(api_at(&w, "changes/0/routes")), 2);
    CHECK_STR(api_text(&w, "changes/0/routes/1/start"), "c");
    CHECK(EXPECT(&w, text("GET /v1/keyspaces/o/changes?since=%" PRIu64 "&limit=1", begin), NULL,
                 200, NULL));
    CHECK_U64(json_array_size(api_at(&w, "changes")), 1);
    CHECK_U64(api_u64(&w, "revision"), r1);
    CHECK(EXPECT(&w, text("GET /v1/keyspaces/o/changes?since=%" PRIu64, r2), NULL, 200, NULL));
    CHECK_U64(json_array_size(api_at(&w, "changes")), 0);
    CHECK_U64(api_u64(&w, "revision"), r2);
    /* A part of it. */
    CHECK(EXPECT(&w, text("GET /v1/keyspaces/o/changes?since=%" PRIu64 "&start=n", begin), NULL,
                 200, NULL));
    CHECK_U64(json_array_size(api_at(&w, "changes")), 1);
    CHECK_U64(api_u64(&w, "changes/0/revision"), r2);
    CHECK(EXPECT(&w, text("GET /v1/keyspaces/o/changes?since=%" PRIu64 "&end=m", begin), NULL, 200,
                 NULL));
    CHECK_U64(json_array_size(api_at(&w, "changes")), 1);
    CHECK_U64(api_u64(&w, "changes/0/revision"), r1);
    CHECK_U64(api_u64(&w, "revision"), r2);
    CHECK(EXPECT(
        &w, text("GET /v1/keyspaces/o/changes?since=%" PRIu64 "&partition=%" PRIu64, begin, parent),
        NULL, 200, NULL));
    CHECK_U64(json_array_size(api_at(&w, "changes")), 1);
    CHECK_U64(api_u64(&w, "changes/0/revision"), r1);
    api_world_close(&w);
}

static void change_refusals(void)
{
    static const struct api_row rows[] = {
        ROW("GET /v1/keyspaces/o/changes", NULL, 400, "invalid_request", "since"),
        ROW("GET /v1/keyspaces/o/changes?since=x", NULL, 400, "invalid_request", "since"),
        ROW("GET /v1/keyspaces/o/changes?since=1&wait_ms=60001", NULL, 400, "invalid_request",
            "wait_ms"),
        ROW("GET /v1/keyspaces/o/changes?since=1&limit=0", NULL, 400, "invalid_request", "limit"),
        ROW("GET /v1/keyspaces/o/changes?since=99999", NULL, 503, "behind", "\"revision\":"),
        ROW("GET /v1/keyspaces/o/changes?since=99999&wait_ms=10", NULL, 503, "behind", NULL),
        ROW("GET /v1/keyspaces/o/changes?since=1&generation=2", NULL, 410, "compacted",
            "\"generation\":1"),
        ROW("GET /v1/keyspaces/o/changes?since=1&partition=99999", NULL, 404, "partition_not_found",
            NULL),
        ROW("GET /v1/keyspaces/o/changes?since=1&partition=3&start=a", NULL, 400, "invalid_request",
            NULL),
        ROW("GET /v1/keyspaces/o/changes?since=1&start=b&end=a", NULL, 400, "invalid_request",
            "end"),
        ROW("GET /v1/keyspaces/nope/changes?since=1", NULL, 404, "keyspace_not_found", NULL),
        ROW("GET /v1/keyspaces/nope/watch", NULL, 404, "keyspace_not_found", NULL),
        ROW("GET /v1/keyspaces/o/watch?since=99999", NULL, 503, "behind", NULL),
        ROW("GET /v1/keyspaces/o/watch?since=x", NULL, 400, "invalid_request", "since"),
    };
    struct api_world w;
    open_world(&w);
    api_rows(&w, rows, sizeof rows / sizeof rows[0], __FILE__);
    CHECK(EXPECT_WITH(&w, "GET /v1/keyspaces/o/watch", "Last-Event-ID: soon\r\n", NULL, 400,
                      "invalid_request"));
    api_world_close(&w);
}

static bool one_watcher(void *arg)
{
    struct api_world *w = arg;
    api_call(w, "GET /v1/cluster/watchers", NULL, NULL);
    return json_array_size(api_at(w, "watchers")) == 1;
}

static bool no_watcher(void *arg)
{
    struct api_world *w = arg;
    api_call(w, "GET /v1/cluster/watchers", NULL, NULL);
    return json_array_size(api_at(w, "watchers")) == 0;
}

static void a_long_poll_waits_for_the_first_change(void)
{
    struct api_world w;
    struct client c;
    struct answer a;
    uint64_t begin, at;
    open_world(&w);
    begin = api_u64(&w, "revision");
    client_open(&c, w.port);
    (void)client_print(&c,
                       "GET /v1/keyspaces/o/changes?since=%" PRIu64
                       "&wait_ms=60000&start=x HTTP/1.1\r\nHost: t\r\n\r\n",
                       begin);
    CHECK(wait_until(one_watcher, &w));
    CHECK_U64(api_u64(&w, "watchers/0/acknowledged_revision"), begin);
    (void)split(&w, "c"); /* not of its part */
    at = split(&w, "y");
    client_read(&c, &a, false, 20000);
    CHECK_U64(a.status, 200);
    json_t *body = json_loads(answer_text(&a), 0, NULL);
    json_t *changes = json_object_get(body, "changes");
    CHECK_U64(json_array_size(changes), 1);
    CHECK_U64(json_integer_value(json_object_get(body, "revision")), at);
    CHECK_U64(json_integer_value(json_object_get(json_array_get(changes, 0), "revision")), at);
    json_decref(body);
    answer_close(&a);
    CHECK(wait_until(no_watcher, &w));
    /* In vain. */
    CHECK(EXPECT(&w, text("GET /v1/keyspaces/o/changes?since=%" PRIu64 "&wait_ms=30", at), NULL,
                 200, NULL));
    CHECK_U64(json_array_size(api_at(&w, "changes")), 0);
    CHECK_U64(api_u64(&w, "revision"), at);
    /* A waiting client that leaves is forgotten. */
    (void)client_print(&c,
                       "GET /v1/keyspaces/o/changes?since=%" PRIu64
                       "&wait_ms=60000 HTTP/1.1\r\nHost: t\r\n\r\n",
                       at);
    CHECK(wait_until(one_watcher, &w));
    client_close(&c);
    CHECK(wait_until(no_watcher, &w));
    api_world_close(&w);
}

static void a_watch_streams_and_resumes(void)
{
    struct api_world w;
    struct sse s;
    uint64_t begin, r1, r2, r3;
    open_world(&w);
    begin = api_u64(&w, "revision");
    sse_open(&s, &w, "/v1/keyspaces/o/watch", NULL);
    CHECK(sse_head(&s));
    CHECK(wait_until(one_watcher, &w));
    CHECK_U64(api_u64(&w, "watchers/0/acknowledged_revision"), begin);
    CHECK_STR(api_text(&w, "watchers/0/keyspace"), "o");
    r1 = split(&w, "c");
    CHECK(sse_next(&s));
    CHECK_STR(s.event, "change");
    CHECK_STR(s.id, text("%" PRIu64, r1));
    CHECK_U64(data_u64(&s, "revision"), r1);
    CHECK_STR(json_string_value(json_object_get(s.data, "kind")), "split");
    CHECK(EXPECT(&w, text("GET /v1/cluster/watchers?behind=%" PRIu64, r1), NULL, 200, NULL));
    CHECK_U64(json_array_size(api_at(&w, "watchers")), 0);
    CHECK(EXPECT(&w, text("GET /v1/cluster/watchers?behind=%" PRIu64, r1 + 1), NULL, 200, NULL));
    CHECK_U64(json_array_size(api_at(&w, "watchers")), 1);
    sse_close(&s);
    CHECK(wait_until(no_watcher, &w));
    r2 = split(&w, "d");
    r3 = split(&w, "x");
    /* The id wins over the URL's since, as a browser sends both. */
    sse_open(&s, &w, text("/v1/keyspaces/o/watch?since=%" PRIu64, begin),
             text("Last-Event-ID: %" PRIu64 "\r\n", r1));
    CHECK(sse_head(&s));
    CHECK(sse_next(&s));
    CHECK_U64(data_u64(&s, "revision"), r2);
    CHECK(sse_next(&s));
    CHECK_U64(data_u64(&s, "revision"), r3);
    sse_close(&s);
    sse_open(&s, &w, text("/v1/keyspaces/o/watch?since=%" PRIu64 "&start=n", begin), NULL);
    CHECK(sse_head(&s));
    CHECK(sse_next(&s));
    CHECK_U64(data_u64(&s, "revision"), r3);
    sse_close(&s);
    api_world_close(&w);
}

static void a_watch_of_another_generation_is_reset(void)
{
    struct api_world w;
    struct sse s;
    open_world(&w);
    sse_open(&s, &w, "/v1/keyspaces/o/watch?since=1&generation=7", NULL);
    CHECK(sse_head(&s));
    CHECK(sse_next(&s));
    CHECK_STR(s.event, "reset");
    CHECK_U64(data_u64(&s, "generation"), 1);
    CHECK(!sse_next(&s) && s.ended);
    sse_close(&s);
    sse_open(&s, &w, "/v1/keyspaces/o/watch", "Last-Event-ID: 7-1\r\n");
    CHECK(sse_head(&s));
    CHECK(sse_next(&s));
    CHECK_STR(s.event, "reset");
    sse_close(&s);
    api_world_close(&w);
}

static void a_removed_keyspace_ends_its_watch(void)
{
    struct api_world w;
    struct sse s;
    open_world(&w);
    sse_open(&s, &w, "/v1/keyspaces/o/watch", NULL);
    CHECK(sse_head(&s));
    CHECK(wait_until(one_watcher, &w));
    CHECK(EXPECT(&w, "DELETE /v1/keyspaces/o?confirm=o", NULL, 200, NULL));
    CHECK(sse_next(&s));
    CHECK_STR(json_string_value(json_object_get(s.data, "kind")), "delete");
    CHECK_U64(json_array_size(json_object_get(s.data, "removed")), 2);
    CHECK(!sse_next(&s) && s.ended);
    sse_close(&s);
    api_world_close(&w);
}

/* Every field that a route shows raises the revision and reaches watchers. */
static void all_that_routes_show_is_delivered(void)
{
    struct api_world w;
    struct sse s;
    uint64_t p;
    open_world(&w);
    p = partition_of(&w, "a");
    CHECK(EXPECT(&w, "PUT /v1/nodes/n2", "{\"address\":\"10.0.0.2:9000\",\"lease\":\"static\"}",
                 200, NULL));
    sse_open(&s, &w, "/v1/keyspaces/o/watch", NULL);
    CHECK(sse_head(&s));
    CHECK(wait_until(one_watcher, &w));
    CHECK(EXPECT(&w, text("PATCH /v1/keyspaces/o/partitions/%" PRIu64, p),
                 "{\"rate_limit\":{\"requests_per_s\":5}}", 200, NULL));
    CHECK(sse_next(&s));
    CHECK_U64(data_u64(&s, "revision"), api_u64(&w, "revision"));
    CHECK(json_equal(
        json_object_get(json_array_get(json_object_get(s.data, "routes"), 0), "rate_limit"),
        api_at(&w, "rate_limit")));
    CHECK(
        EXPECT(&w, "PUT /v1/nodes/n1",
               "{\"address\":\"10.9.9.9:9000\",\"lease\":\"static\",\"labels\":{\"zone\":\"z1\"}}",
               200, NULL));
    CHECK(sse_next(&s));
    CHECK_U64(data_u64(&s, "revision"), api_u64(&w, "revision"));
    CHECK(EXPECT(&w, text("POST /v1/keyspaces/o/partitions/%" PRIu64 "/move", p),
                 "{\"to\":\"n2\",\"empty\":true}", 202, NULL));
    CHECK(sse_next(&s));
    CHECK_STR(json_string_value(json_object_get(s.data, "kind")), "move");
    CHECK(EXPECT(&w, "DELETE /v1/nodes/n2?force=true", NULL, 200, NULL));
    CHECK(sse_next(&s));
    CHECK(json_is_null(
        json_object_get(json_array_get(json_object_get(s.data, "routes"), 0), "primary")));
    sse_close(&s);
    api_world_close(&w);
}

static void compacted_changes(void)
{
    struct api_world w;
    struct sse s;
    Cadastre__SettingsPatch settings;
    uint64_t last;
    open_world(&w);
    cadastre__settings_patch__init(&settings);
    settings.has_history_max = true;
    settings.history_max = 1000;
    struct dir_result *r =
        local_control_run(w.control, CADASTRE__COMMAND__BODY_SETTINGS_PATCH, &settings);
    CHECK_U64(r->err.code, ERR_OK);
    result_unref(r);
    for (unsigned i = 0; i < 1010; i++) {
        Cadastre__NodePut put;
        cadastre__node_put__init(&put);
        char name[] = "n9", address[32];
        (void)memcpy(address, text("a:%u", i), 32);
        put.name = name;
        put.address = address;
        put.is_static = true;
        result_unref(local_control_run(w.control, CADASTRE__COMMAND__BODY_NODE_PUT, &put));
    }
    local_control_advance(w.control, 1);
    CHECK(EXPECT(&w, "GET /v1/nodes", NULL, 200, NULL));
    last = api_u64(&w, "revision");
    CHECK(EXPECT(&w, text("GET /v1/keyspaces/o/changes?since=%" PRIu64, last - 1001), NULL, 410,
                 "compacted"));
    CHECK_U64(api_u64(&w, "revision"), last);
    CHECK_U64(api_u64(&w, "generation"), 1);
    CHECK(EXPECT(&w, text("GET /v1/keyspaces/o/changes?since=%" PRIu64, last - 1000), NULL, 200,
                 NULL));
    CHECK(EXPECT(&w, text("GET /v1/keyspaces/o/route?key=a&at_revision=%" PRIu64, last - 1001),
                 NULL, 410, "compacted"));
    CHECK(EXPECT(&w, text("GET /v1/keyspaces/o/route?key=a&at_revision=%" PRIu64, last - 1000),
                 NULL, 200, NULL));
    CHECK(EXPECT(&w, text("GET /v1/keyspaces/o/diff?from=%" PRIu64, last - 1001), NULL, 410,
                 "compacted"));
    sse_open(&s, &w, text("/v1/keyspaces/o/watch?since=%" PRIu64, last - 1001), NULL);
    CHECK(sse_head(&s));
    CHECK(sse_next(&s));
    CHECK_STR(s.event, "reset");
    CHECK_U64(data_u64(&s, "revision"), last);
    sse_close(&s);
    api_world_close(&w);
}

/* 8000 routes in a change, sent in pieces, to a client that takes nothing until the ring has moved
 * on. */
static void a_slow_watcher_is_reset(void)
{
    struct api_world w;
    struct sse s;
    enum { CHANGES = 12 };
    unsigned got = 0;
    api_world_open(&w);
    api_nodes(&w, 1);
    CHECK(EXPECT(&w, "POST /v1/keyspaces",
                 "{\"name\":\"o\",\"scheme\":\"hash\",\"partitions\":8000}", 201, NULL));
    sse_open(&s, &w, "/v1/keyspaces/o/watch", NULL);
    CHECK(sse_head(&s));
    CHECK(wait_until(one_watcher, &w));
    for (unsigned i = 0; i < CHANGES; i++) {
        CHECK(EXPECT(&w, "PUT /v1/nodes/n1",
                     text("{\"address\":\"10.1.1.%u:9000\",\"lease\":\"static\",\"labels\":{"
                          "\"zone\":\"z1\"}}",
                          i),
                     200, NULL));
    }
    local_control_restart(w.control);
    uint64_t last = 0;
    while (sse_next(&s) && strcmp(s.event, "change") == 0) {
        CHECK_U64(json_array_size(json_object_get(s.data, "routes")), 8000);
        CHECK(data_u64(&s, "revision") > last);
        last = data_u64(&s, "revision");
        got++;
    }
    CHECK_STR(s.event, "reset");
    CHECK(got < CHANGES);
    CHECK(data_u64(&s, "revision") > last);
    CHECK(!sse_next(&s) && s.ended);
    sse_close(&s);
    api_world_close(&w);
}

static void a_change_too_large_to_carry(void)
{
    struct api_world w;
    struct sse s;
    uint64_t begin;
    api_world_open(&w);
    api_nodes(&w, 1);
    CHECK(EXPECT(&w, "GET /v1/nodes", NULL, 200, NULL));
    begin = api_u64(&w, "revision");
    CHECK(EXPECT(&w, "POST /v1/keyspaces",
                 "{\"name\":\"o\",\"scheme\":\"hash\",\"partitions\":20001}", 201, NULL));
    CHECK(EXPECT(&w, text("GET /v1/keyspaces/o/changes?since=%" PRIu64, begin), NULL, 410,
                 "compacted"));
    sse_open(&s, &w, text("/v1/keyspaces/o/watch?since=%" PRIu64, begin), NULL);
    CHECK(sse_head(&s));
    CHECK(sse_next(&s));
    CHECK_STR(s.event, "reset");
    sse_close(&s);
    api_world_close(&w);
}

int main(void)
{
    RUN(changes_since_a_revision);
    RUN(change_refusals);
    RUN(a_long_poll_waits_for_the_first_change);
    RUN(a_watch_streams_and_resumes);
    RUN(a_watch_of_another_generation_is_reset);
    RUN(a_removed_keyspace_ends_its_watch);
    RUN(all_that_routes_show_is_delivered);
    RUN(compacted_changes);
    RUN(a_slow_watcher_is_reset);
    RUN(a_change_too_large_to_carry);
    return tap_done();
}
