/* SPDX-License-Identifier: Apache-2.0 */
/* The past over HTTP: routes as they were, ledgers, differences, old changes, audit and backups. */
#include "tests/harness/api_world.h"
#include "tests/harness/tap.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static uint64_t partition_of(struct api_world *w, const char *key)
{
    CHECK(EXPECT(w, text("GET /v1/keyspaces/o/route?key=%s", key), NULL, 200, NULL));
    return api_u64(w, "partition");
}

static void split(struct api_world *w, const char *key)
{
    uint64_t p = partition_of(w, key);
    CHECK(EXPECT(w, text("POST /v1/keyspaces/o/partitions/%" PRIu64 "/split", p),
                 text("{\"at\":[\"%s\"]}", key), 200, NULL));
}

enum { STEPS = 9 };

/* One kind of change after another. */
static void step(struct api_world *w, unsigned i)
{
    uint64_t p;
    switch (i) {
    case 0:
        CHECK(EXPECT(w, "POST /v1/keyspaces",
                     "{\"name\":\"o\",\"scheme\":\"range\",\"splits\":[\"m\"]}", 201, NULL));
        break;
    case 1:
        split(w, "c");
        break;
    case 2:
        CHECK(EXPECT(w, "PUT /v1/nodes/n2", "{\"address\":\"10.0.0.2:9000\",\"lease\":\"static\"}",
                     200, NULL));
        break;
    case 3:
        p = partition_of(w, "c");
        CHECK(EXPECT(w, text("POST /v1/keyspaces/o/partitions/%" PRIu64 "/move", p),
                     "{\"to\":\"n2\",\"empty\":true,\"reason\":\"r\"}", 202, NULL));
        break;
    case 4:
        CHECK(EXPECT(w, "PUT /v1/nodes/n2", "{\"address\":\"10.0.0.22:9000\",\"lease\":\"static\"}",
                     200, NULL));
        break;
    case 5:
        p = partition_of(w, "c");
        CHECK(EXPECT(w, text("PATCH /v1/keyspaces/o/partitions/%" PRIu64, p),
                     "{\"rate_limit\":{\"requests_per_s\":5},\"pinned\":true}", 200, NULL));
        break;
    case 6:
        split(w, "x");
        break;
    case 7:
        p = partition_of(w, "m");
        CHECK(EXPECT(w, text("POST /v1/keyspaces/o/partitions/%" PRIu64 "/merge", p),
                     text("{\"with\":%" PRIu64 "}", partition_of(w, "x")), 200, NULL));
        break;
    default:
        CHECK(EXPECT(w, "POST /v1/keyspaces",
                     "{\"name\":\"z\",\"scheme\":\"hash\",\"partitions\":2}", 201, NULL));
        break;
    }
}

struct past {
    uint64_t revision[STEPS];
    json_t *map[STEPS]; /* of "o" after each step */
};

static void make_past(struct api_world *w, struct past *past)
{
    api_world_open(w);
    api_nodes(w, 1);
    for (unsigned i = 0; i < STEPS; i++) {
        step(w, i);
        CHECK(EXPECT(w, "GET /v1/keyspaces/o/map", NULL, 200, NULL));
        past->revision[i] = api_u64(w, "revision");
        past->map[i] = json_incref(api_at(w, "routes"));
    }
}

static void end_past(struct api_world *w, struct past *past)
{
    for (unsigned i = 0; i < STEPS; i++) {
        json_decref(past->map[i]);
    }
    api_world_close(w);
}

static json_t *route_of(json_t *map, uint64_t partition)
{
    for (size_t i = 0; i < json_array_size(map); i++) {
        json_t *route = json_array_get(map, i);
        if ((uint64_t)json_integer_value(json_object_get(route, "partition")) == partition) {
            return route;
        }
    }
    return NULL;
}

static void routes_as_they_were(void)
{
    static const char *const keys[] = {"", "b", "c", "d", "m", "w", "x", "zz"};
    struct api_world w;
    struct past past;
    make_past(&w, &past);
    for (unsigned i = 0; i < STEPS; i++) {
        for (unsigned k = 0; k < sizeof keys / sizeof keys[0]; k++) {
            const char *target = text("GET /v1/keyspaces/o/route?key=%s&at_revision=%" PRIu64,
                                      keys[k], past.revision[i]);
            if (!CHECK(EXPECT(&w, target, NULL, 200, NULL))) {
                continue;
            }
            CHECK_U64(api_u64(&w, "revision"), past.revision[i]);
            CHECK_STR(api_header(&w, "Cadastre-Revision"), text("%" PRIu64, past.revision[i]));
            CHECK(json_object_del(w.json, "revision") == 0);
            CHECK(json_equal(w.json, route_of(past.map[i], api_u64(&w, "partition"))));
            CHECK(EXPECT_WITH(&w, target, text("If-None-Match: %s\r\n", api_header(&w, "ETag")),
                              NULL, 304, NULL));
        }
    }
    CHECK(EXPECT(&w, "GET /v1/keyspaces/z/route?key=a&at_revision=3", NULL, 404,
                 "keyspace_not_found"));
    CHECK(EXPECT(&w, "GET /v1/keyspaces/o/route?key=a&at_revision=99999", NULL, 503, "behind"));
    CHECK(EXPECT(&w, "GET /v1/keyspaces/o/route?key=a&at_revision=0", NULL, 404,
                 "keyspace_not_found"));
    CHECK(
        EXPECT(&w, "GET /v1/keyspaces/o/route?key=a&at_revision=x", NULL, 400, "invalid_request"));
    CHECK(EXPECT(&w, text("GET /v1/keyspaces/o/route?at_revision=%" PRIu64, past.revision[0]), NULL,
                 400, "invalid_request"));
    CHECK(EXPECT(&w,
                 text("GET /v1/keyspaces/o/route?key=%%ff&at_revision=%" PRIu64, past.revision[0]),
                 NULL, 400, "invalid_key"));
    end_past(&w, &past);
}

static void ledgers(void)
{
    struct api_world w;
    struct past past;
    uint64_t p, merged;
    make_past(&w, &past);
    p = partition_of(&w, "c");
    CHECK(
        EXPECT(&w, text("GET /v1/keyspaces/o/partitions/%" PRIu64 "/history", p), NULL, 200, NULL));
    CHECK_U64(api_u64(&w, "partition"), p);
    CHECK_U64(json_array_size(api_at(&w, "history")), 2);
    CHECK_U64(api_u64(&w, "history/0/from_revision"), past.revision[1]);
    CHECK_U64(api_u64(&w, "history/0/to_revision"), past.revision[3]);
    CHECK_STR(api_text(&w, "history/0/primary/node"), "n1");
    CHECK_STR(api_text(&w, "history/0/cause"), "split");
    CHECK_STR(api_text(&w, "history/0/start"), "c");
    CHECK_STR(api_text(&w, "history/1/primary/node"), "n2");
    CHECK_STR(api_text(&w, "history/1/cause"), "move");
    CHECK_U64(api_u64(&w, "history/1/epoch"), past.revision[3]);
    CHECK(api_u64(&w, "history/1/operation") != UINT64_MAX);
    CHECK(api_at(&w, "history/1/to_revision") == NULL);
    /* A retired id keeps its ledger. */
    merged =
        (uint64_t)json_integer_value(json_object_get(json_array_get(past.map[6], 2), "partition"));
    CHECK(EXPECT(&w, text("GET /v1/keyspaces/o/partitions/%" PRIu64 "/history", merged), NULL, 200,
                 NULL));
    CHECK_U64(api_u64(&w, "history/0/to_revision"), past.revision[7]);
    CHECK(EXPECT(&w, "GET /v1/keyspaces/o/partitions/99999/history", NULL, 404,
                 "partition_not_found"));
    end_past(&w, &past);
}

/* A difference from step i to step k is what their maps say. */
static void check_diff(struct api_world *w, const struct past *past, unsigned i, unsigned k)
{
    size_t expected = 0;
    CHECK(EXPECT(w,
                 text("GET /v1/keyspaces/o/diff?from=%" PRIu64 "&to=%" PRIu64, past->revision[i],
                      past->revision[k]),
                 NULL, 200, NULL));
    json_t *shown = api_at(w, "partitions");
    for (unsigned side = 0; side < 2; side++) {
        json_t *map = past->map[side == 0 ? i : k], *other = past->map[side == 0 ? k : i];
        for (size_t n = 0; n < json_array_size(map); n++) {
            json_t *route = json_array_get(map, n);
            uint64_t id = (uint64_t)json_integer_value(json_object_get(route, "partition"));
            bool there = route_of(other, id) != NULL;
            expected += !there || (side == 0 && !json_equal(route, route_of(other, id)));
        }
    }
    CHECK_U64(json_array_size(shown), expected);
    for (size_t n = 0; n < json_array_size(shown); n++) {
        json_t *item = json_array_get(shown, n), *before = json_object_get(item, "before"),
               *after = json_object_get(item, "after");
        uint64_t id = (uint64_t)json_integer_value(json_object_get(item, "partition"));
        const char *change = before == NULL ? "created" : after == NULL ? "retired" : "changed";
        CHECK_STR(json_string_value(json_object_get(item, "change")), change);
        CHECK(before == route_of(past->map[i], id) ||
              json_equal(before, route_of(past->map[i], id)));
        CHECK(after == route_of(past->map[k], id) || json_equal(after, route_of(past->map[k], id)));
    }
}

static void differences(void)
{
    struct api_world w;
    struct past past;
    make_past(&w, &past);
    for (unsigned i = 0; i < STEPS; i++) {
        for (unsigned k = i; k < STEPS; k++) {
            tap_note("%u to %u", i, k);
            check_diff(&w, &past, i, k);
        }
    }
    /* Pages. */
    CHECK(EXPECT(&w, text("GET /v1/keyspaces/o/diff?from=%" PRIu64, past.revision[0]), NULL, 200,
                 NULL));
    CHECK_U64(api_u64(&w, "to"), past.revision[STEPS - 1]);
    json_t *whole = json_incref(api_at(&w, "partitions")), *paged = json_array();
    char *next = mem_strdup("");
    while (next != NULL) {
        CHECK(EXPECT(&w,
                     text("GET /v1/keyspaces/o/diff?from=%" PRIu64 "&limit=1%s%s", past.revision[0],
                          next[0] != '\0' ? "&cursor=" : "", next),
                     NULL, 200, NULL));
        CHECK(json_array_extend(paged, api_at(&w, "partitions")) == 0);
        mem_free(next);
        next = api_at(&w, "next") != NULL ? mem_strdup(api_text(&w, "next")) : NULL;
    }
    CHECK(json_equal(whole, paged));
    json_decref(whole);
    json_decref(paged);
    CHECK(EXPECT(&w, "GET /v1/keyspaces/o/diff", NULL, 400, "invalid_request"));
    CHECK(EXPECT(&w, "GET /v1/keyspaces/o/diff?from=5&to=4", NULL, 400, "invalid_request"));
    CHECK(EXPECT(&w, "GET /v1/keyspaces/o/diff?from=5&to=99999", NULL, 503, "behind"));
    CHECK(EXPECT(&w, "GET /v1/keyspaces/nope/diff?from=5", NULL, 404, "keyspace_not_found"));
    end_past(&w, &past);
}

static bool holds(const struct buf *b, const char *want)
{
    return b->len > 0 && memmem(b->data, b->len, want, strlen(want)) != NULL;
}

/* What the ring says before a restart, the store says after it. */
static void old_changes_come_from_the_store(void)
{
    static const char *const filters[] = {"", "&start=n", "&end=b", "&limit=2"};
    struct api_world w;
    struct past past;
    json_t *ring[4];
    make_past(&w, &past);
    for (unsigned i = 0; i < 4; i++) {
        CHECK(EXPECT(
            &w,
            text("GET /v1/keyspaces/o/changes?since=%" PRIu64 "%s", past.revision[0], filters[i]),
            NULL, 200, NULL));
        ring[i] = json_incref(w.json);
        CHECK(json_array_size(api_at(&w, "changes")) >= 1);
    }
    local_control_restart(w.control);
    for (unsigned i = 0; i < 4; i++) {
        tap_note("%s", filters[i]);
        CHECK(EXPECT(
            &w,
            text("GET /v1/keyspaces/o/changes?since=%" PRIu64 "%s", past.revision[0], filters[i]),
            NULL, 200, NULL));
        if (!CHECK(json_equal(w.json, ring[i]))) {
            char *dump = json_dumps(ring[i], JSON_COMPACT);
            (void)printf("# ring:  %s\n# store: %s\n", dump, api_body(&w));
            json_free_t release;
            json_malloc_t unused;
            json_get_alloc_funcs(&unused, &release);
            release(dump);
        }
        json_decref(ring[i]);
    }
    /* A watch reads them too, then goes on from the ring. */
    struct client c;
    client_open(&c, w.port);
    (void)client_print(&c,
                       "GET /v1/keyspaces/o/watch?since=%" PRIu64 " HTTP/1.1\r\nHost: t\r\n\r\n",
                       past.revision[0]);
    split(&w, "f");
    const char *want = text("id: %" PRIu64 "\nevent: change\n", api_u64(&w, "revision"));
    while (!holds(&c.in, want) && CHECK(client_more(&c, 10000))) {
    }
    want = text("id: %" PRIu64 "\nevent: change\n", past.revision[1]);
    CHECK(holds(&c.in, want));
    client_close(&c);
    end_past(&w, &past);
}

static void the_audit_names_every_command(void)
{
    struct api_world w;
    struct past past;
    make_past(&w, &past);
    CHECK(EXPECT_WITH(&w, "DELETE /v1/keyspaces/z?confirm=z",
                      "Idempotency-Key: gone\r\nX-Request-Id: req-7\r\n", NULL, 200, NULL));
    uint64_t revision = api_u64(&w, "revision");
    CHECK(EXPECT(&w, "GET /v1/audit", NULL, 200, NULL));
    size_t all = json_array_size(api_at(&w, "entries"));
    CHECK(all > STEPS);
    CHECK_STR(api_text(&w, "entries/0/command"), "keyspace_delete");
    CHECK_STR(api_text(&w, "entries/0/outcome"), "ok");
    CHECK_STR(api_text(&w, "entries/0/request_id"), "req-7");
    CHECK_STR(api_text(&w, "entries/0/idempotency_key"), "gone");
    CHECK_U64(api_u64(&w, "entries/0/revision"), revision);
    CHECK(strncmp(api_text(&w, "entries/0/remote"), "127.0.0.1", 9) == 0);
    CHECK(api_at(&w, "entries/0/reason") == NULL);
    json_t *whole = json_incref(api_at(&w, "entries")), *paged = json_array();
    char *next = mem_strdup("");
    while (next != NULL) {
        CHECK(EXPECT(&w, text("GET /v1/audit?limit=3%s%s", next[0] != '\0' ? "&cursor=" : "", next),
                     NULL, 200, NULL));
        CHECK_U64(api_u64(&w, "revision"), revision);
        CHECK(json_array_extend(paged, api_at(&w, "entries")) == 0);
        mem_free(next);
        next = api_at(&w, "next") != NULL ? mem_strdup(api_text(&w, "next")) : NULL;
    }
    CHECK(json_equal(whole, paged));
    json_decref(whole);
    json_decref(paged);
    /* Why, in the words of whoever did it. */
    CHECK(EXPECT(&w, "POST /v1/nodes/n1/cordon", "{\"reason\":\"new disk\"}", 200, NULL));
    CHECK(EXPECT(&w, "GET /v1/audit?limit=1", NULL, 200, NULL));
    CHECK_STR(api_text(&w, "entries/0/reason"), "new disk");
    end_past(&w, &past);
}

static bool nothing_is_left(void *arg)
{
    struct api_world *w = arg;
    api_call(w, "GET /metrics", NULL, NULL);
    return strstr(api_body(w), "cadastre_http_streams 0\n") != NULL;
}

static void a_backup_is_a_database(void)
{
    struct api_world w;
    struct past past;
    uint64_t violations = 1;
    struct err e;
    make_past(&w, &past);
    CHECK(EXPECT(&w, "GET /v1/backup", NULL, 200, NULL));
    CHECK_STR(api_header(&w, "Cadastre-Revision"), text("%" PRIu64, past.revision[STEPS - 1]));
    CHECK(w.answer.body.len > 4096 && memcmp(w.answer.body.data, "SQLite format 3", 16) == 0);
    const char *path = text("%s/copy.db", w.dir);
    FILE *f = fopen(path, "w");
    CHECK(f != NULL && fwrite(w.answer.body.data, 1, w.answer.body.len, f) == w.answer.body.len);
    CHECK(f != NULL && fclose(f) == 0);
    CHECK_U64(store_check_file(path, NULL, NULL, &violations, &e), ERR_OK);
    CHECK_U64(violations, 0);
    CHECK(unlink(path) == 0);
    /* More than four times in a row: each gives its place back. */
    for (unsigned i = 0; i < 6; i++) {
        CHECK(EXPECT(&w, "GET /v1/backup", NULL, 200, NULL));
        CHECK(wait_until(nothing_is_left, &w));
    }
    end_past(&w, &past);
}

int main(void)
{
    RUN(routes_as_they_were);
    RUN(ledgers);
    RUN(differences);
    RUN(old_changes_come_from_the_store);
    RUN(the_audit_names_every_command);
    RUN(a_backup_is_a_database);
    return tap_done();
}
