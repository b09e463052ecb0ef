/* SPDX-License-Identifier: Apache-2.0 */
/* GET /v1/skew over a directory with nodes that report. */
#include "api/handlers.h"
#include "base/clock.h"
#include "tests/harness/api_world.h"
#include "tests/harness/tap.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

enum { NODES = 4 };

static struct api_world w;
static uint64_t sessions[NODES];
static json_t *partitions; /* of the keyspace, as listed; owned */

static void begin(const char *capacity)
{
    api_world_open(&w);
    for (unsigned i = 0; i < NODES; i++) {
        CHECK(
            EXPECT(&w, text("PUT /v1/nodes/n%u", i),
                   text("{\"address\":\"n%u:1\",\"lease\":\"static\",\"labels\":{\"zone\":\"z%u\"},"
                        "\"capacity\":{%s}}",
                        i, i / 2, capacity),
                   200, NULL));
        sessions[i] = api_u64(&w, "session");
    }
}

static void keyspace(const char *body)
{
    CHECK(EXPECT(&w, "POST /v1/keyspaces", body, 201, NULL));
    CHECK(EXPECT(&w, "GET /v1/keyspaces/ks/partitions", NULL, 200, NULL));
    partitions = json_deep_copy(api_at(&w, "partitions"));
}

static void end(void)
{
    json_decref(partitions);
    api_world_close(&w);
}

static const json_t *nth(size_t i)
{
    return json_array_get(partitions, i);
}

static uint64_t number(const json_t *object, const char *member)
{
    return (uint64_t)json_integer_value(json_object_get(object, member));
}

static unsigned owner(size_t i)
{
    const json_t *primary = json_object_get(nth(i), "primary");
    return (unsigned)(json_string_value(json_object_get(primary, "node"))[1] - '0');
}

/* A minute of this many writes a second. */
static void report(size_t i, uint64_t writes, uint64_t size, const char *more)
{
    CHECK(
        EXPECT(&w, text("POST /v1/nodes/n%u/load", owner(i)),
               text("{\"session\":%" PRIu64 ",\"interval_ms\":60000,\"partitions\":[{\"keyspace\":"
                    "\"ks\",\"partition\":%" PRIu64 ",\"epoch\":%" PRIu64
                    ",\"reads\":0,\"writes\":%" PRIu64 ",\"read_bytes\":0,\"write_bytes\":0,"
                    "\"cpu_ms\":0,\"size_bytes\":%" PRIu64 "%s}]}",
                    sessions[owner(i)], number(nth(i), "partition"), number(nth(i), "epoch"),
                    60 * writes, size, more),
               202, NULL));
    CHECK_U64(api_u64(&w, "counted"), 1);
}

static void skew(void)
{
    CHECK(EXPECT(&w, "GET /v1/skew?keyspace=ks", NULL, 200, NULL));
}

static double real(const char *path)
{
    return json_number_value(api_at(&w, path));
}

static void nothing_heard_is_no_skew(void)
{
    begin("\"requests_per_s\":1000");
    keyspace("{\"name\":\"ks\",\"scheme\":\"hash\",\"partitions\":8}");
    skew();
    CHECK_U64(api_u64(&w, "partitions"), 8);
    CHECK_U64(api_u64(&w, "known"), 0);
    CHECK_U64(json_object_size(api_at(&w, "resources")), 0);
    CHECK_U64(json_array_size(api_at(&w, "hot_partitions")), 0);
    CHECK(EXPECT(&w, "GET /v1/skew", NULL, 200, NULL));
    CHECK(EXPECT(&w, "GET /v1/skew?keyspace=none", NULL, 404, "keyspace_not_found"));
    CHECK(EXPECT(&w, "GET /v1/skew?keyspace=No", NULL, 404, "keyspace_not_found"));
    CHECK(EXPECT(&w, "GET /v1/skew?top=3", NULL, 400, "invalid_request"));
    local_control_lead(w.control, false, "http://10.0.0.2:7400");
    CHECK(EXPECT(&w, "GET /v1/skew", NULL, 307, NULL));
    end();
}

/* Items alike, demand not: six partitions of 520 to 4 680. */
static void demand_shows_what_an_inventory_does_not(void)
{
    static const uint64_t demand[] = {520, 560, 600, 630, 600, 4680};
    begin("");
    keyspace("{\"name\":\"ks\",\"scheme\":\"hash\",\"partitions\":6}");
    for (size_t i = 0; i < 6; i++) {
        report(i, demand[i], 1000 + i, "");
    }
    skew();
    CHECK_U64(api_u64(&w, "known"), 6);
    CHECK(fabs(real("resources/requests/partitions/max_to_mean") - 3.7) < .01);
    CHECK(fabs(real("resources/requests/partitions/max") - 4680) < 1);
    CHECK(fabs(real("resources/requests/partitions/max_to_median") - 7.8) < .01);
    CHECK(real("resources/size_bytes/partitions/max_to_mean") < 1.01);
    CHECK_U64(json_array_size(api_at(&w, "advisories")), 1);
    CHECK_STR(api_text(&w, "advisories/0/finding"), "uneven_access");
    CHECK_U64(api_u64(&w, "advisories/0/partition"), number(nth(5), "partition"));
    CHECK_U64(api_u64(&w, "hot_partitions/0/partition"), number(nth(5), "partition"));
    /* No keys were reported: it can't be told where to split. */
    CHECK_STR(api_text(&w, "hot_partitions/0/remedy"), "nothing");
    end();
}

static void a_hot_key_is_named_with_the_owners_of_its_salts(void)
{
    begin("\"requests_per_s\":100000");
    keyspace("{\"name\":\"ks\",\"scheme\":\"hash\",\"partitions\":16}");
    CHECK(EXPECT(&w, "GET /v1/keyspaces/ks/route?key=celebrity", NULL, 200, NULL));
    uint64_t its = api_u64(&w, "partition");
    for (size_t i = 0; i < 16; i++) {
        bool hot = number(nth(i), "partition") == its;
        report(i, hot ? 150000 : 2000, 1000,
               hot ? ",\"keys\":[{\"key\":\"celebrity\",\"weight\":15000}]" : "");
    }
    skew();
    CHECK_U64(json_array_size(api_at(&w, "hot_keys")), 1);
    CHECK_STR(api_text(&w, "hot_keys/0/key"), "celebrity");
    CHECK_STR(api_text(&w, "hot_keys/0/remedy"), "spread_key");
    CHECK(real("hot_keys/0/key_share") > .95 && real("hot_keys/0/key_share_at_least") > .9);
    CHECK(real("hot_keys/0/key_share_at_least") <= real("hot_keys/0/key_share"));
    CHECK_STR(api_text(&w, "hot_keys/0/salts/placed_by"), "key");
    uint64_t n = api_u64(&w, "hot_keys/0/salts/count");
    CHECK(n >= 2 && json_array_size(api_at(&w, "hot_keys/0/salts/owners")) == n);
    /* The owners are those that a router would be sent to. */
    const char *second = text("%s", api_text(&w, "hot_keys/0/salts/owners/1"));
    CHECK(EXPECT(&w, "GET /v1/keyspaces/ks/route?key=celebrity%231", NULL, 200, NULL));
    CHECK_STR(api_text(&w, "primary/node"), second);
    end();
}

static void a_hot_partition_is_split_where_it_says(void)
{
    begin("");
    keyspace("{\"name\":\"ks\",\"scheme\":\"range\",\"splits\":[\"g\",\"n\",\"t\"],"
             "\"policy\":{\"too_large_bytes\":5000,\"uneven_access\":10}}");
    struct buf keys;
    buf_init(&keys, 65536);
    for (unsigned i = 0; i < 50; i++) {
        buf_printf(&keys, "%s{\"key\":\"h%02u\",\"weight\":100}", i > 0 ? "," : "", i);
    }
    buf_put_u8(&keys, '\0');
    for (size_t i = 0; i < 4; i++) {
        report(i, i == 1 ? 9000 : 1000, i == 1 ? 6000 : 100,
               i == 1 ? text(",\"keys\":[%s]", (const char *)keys.data) : "");
    }
    buf_close(&keys);
    skew();
    CHECK_U64(json_array_size(api_at(&w, "hot_partitions")), 1);
    CHECK_STR(api_text(&w, "hot_partitions/0/remedy"), "split");
    CHECK(fabs(real("hot_partitions/0/left_share") - .5) < .1);
    CHECK_U64(json_array_size(api_at(&w, "hot_partitions/0/split_at")), 1);
    CHECK_STR(api_text(&w, "advisories/0/finding"), "too_large_bytes");
    CHECK_U64(json_array_size(api_at(&w, "advisories")), 1); /* uneven_access is the policy's */
    const char *at = text("%s", api_text(&w, "hot_partitions/0/split_at/0"));
    CHECK(EXPECT(
        &w, text("POST /v1/keyspaces/ks/partitions/%" PRIu64 "/split", number(nth(1), "partition")),
        text("{\"at\":[\"%s\"]}", at), 200, NULL));
    end();
}

/* Keys that are of other partitions say nothing of this one; of ranges counts what is in it. */
static void keys_of_elsewhere_do_not_count(void)
{
    static const char *const keys[] = {
        ",\"keys\":[{\"key\":\"zz\",\"weight\":900},{\"key\":\"a\",\"weight\":900},"
        "{\"key\":\"n\",\"weight\":900},{\"key\":\"a\",\"end\":\"g\",\"weight\":900},"
        "{\"key\":\"n\",\"end\":\"z\",\"weight\":900}]",
        ",\"keys\":[{\"key\":\"a\",\"end\":\"h\",\"weight\":10},{\"key\":\"h\",\"weight\":40},"
        "{\"key\":\"i\",\"weight\":40},{\"key\":\"m\",\"end\":\"z\",\"weight\":10}]"};
    for (unsigned k = 0; k < 2; k++) {
        begin("");
        keyspace("{\"name\":\"ks\",\"scheme\":\"range\",\"splits\":[\"g\",\"n\",\"t\"]}");
        for (size_t i = 0; i < 4; i++) {
            report(i, i == 1 ? 9000 : 1000, 100, i == 1 ? keys[k] : "");
        }
        skew();
        CHECK_U64(json_array_size(api_at(&w, "hot_partitions")), 1);
        CHECK_STR(api_text(&w, "hot_partitions/0/remedy"), k == 0 ? "nothing" : "split");
        CHECK(k == 0 ? api_at(&w, "hot_partitions/0/key") == NULL
                     : strcmp(api_text(&w, "hot_partitions/0/split_at/0"), "i") == 0);
        end();
    }
}

static void labels_tenants_and_headroom(void)
{
    begin("\"requests_per_s\":1000,\"bytes\":100000");
    keyspace(
        "{\"name\":\"ks\",\"scheme\":\"range\",\"splits\":[\"a/\",\"a/m\",\"a0\",\"b/\",\"b0\"]"
        ",\"placement\":{\"spread\":\"zone\"}}");
    for (size_t i = 0; i < 6; i++) {
        report(i, i == 1 ? 300 : i == 2 ? 500 : 100, 1000, "");
    }
    skew();
    CHECK_STR(api_text(&w, "groups/0/prefix"), "a/");
    CHECK_U64(api_u64(&w, "groups/0/partitions"), 2);
    CHECK_U64(api_u64(&w, "groups/0/requests_per_s"), 800);
    CHECK_STR(api_text(&w, "groups/1/prefix"), "b/");
    CHECK_U64(api_u64(&w, "groups/1/requests_per_s"), 100);
    CHECK_U64(json_array_size(api_at(&w, "groups")), 2);
    CHECK_U64(json_array_size(api_at(&w, "labels")), 2);
    CHECK_STR(api_text(&w, "labels/0/value"), "z0");
    CHECK_U64(api_u64(&w, "labels/0/requests_per_s") + api_u64(&w, "labels/1/requests_per_s"),
              1200);
    CHECK(fabs(real("labels/0/share") + real("labels/1/share") - 1) < .002);
    size_t at = 0;
    while (at < 8 && strcmp(api_text(&w, text("headroom/%zu/resource", at)), "requests") != 0) {
        at++;
    }
    CHECK(fabs(real(text("headroom/%zu/now", at)) - .7) < .002); /* 1 200 of 4 000 */
    CHECK(fabs(real(text("headroom/%zu/one_lost/headroom", at)) - .4) < .002);
    CHECK_STR(api_text(&w, text("headroom/%zu/one_lost/label", at)), "zone");
    end();
}

/* An hour of minutes, the last of which is yet to come: a machine may have no past. */
static void grows(size_t i, uint64_t bytes, uint64_t more)
{
    uint64_t now = clock_mono_ms();
    for (uint64_t k = 0; k < 60; k++) {
        struct load_sample s = {.partition = number(nth(i), "partition"),
                                .epoch = number(nth(i), "epoch"),
                                .interval_ms = 60000,
                                .has = 1U << LOAD_SIZE};
        s.value[LOAD_SIZE] = bytes + k * more;
        CHECK_U64(loads_put(control_loads(w.control), &s, now + 60000 * k), LOAD_COUNTED);
    }
}

static double days_of(const char *list, const char *member, const char *value)
{
    for (size_t i = 0; i < json_array_size(api_at(&w, list)); i++) {
        if (strcmp(api_text(&w, text("%s/%zu/%s", list, i, member)), value) == 0) {
            const json_t *days = api_at(&w, text("%s/%zu/days_to_limit", list, i));
            return days != NULL ? json_number_value(days) : -1;
        }
    }
    return -2;
}

static void growth_is_of_partitions_nodes_labels_and_tenants(void)
{
    const uint64_t minute = 1000, day = 1440 * minute;
    begin("\"bytes\":1000000");
    keyspace("{\"name\":\"ks\",\"scheme\":\"range\",\"splits\":[\"a/\",\"a/m\",\"a0\"],"
             "\"policy\":{\"too_large_bytes\":10000000}}");
    grows(1, 100000, minute);
    grows(2, 200000, minute);
    grows(3, 300000, 0);
    skew();
    CHECK_U64(json_array_size(api_at(&w, "growth/partitions")), 2);
    CHECK_U64(api_u64(&w, "growth/partitions/0/partition"), number(nth(2), "partition"));
    double left = 10000000 - 200000 - 59 * (double)minute;
    CHECK(fabs(real("growth/partitions/0/days_to_limit") - left / (double)day) < .1);
    CHECK(fabs(real("growth/partitions/0/bytes_per_day") - (double)day) < (double)day / 50);
    CHECK_U64(json_array_size(api_at(&w, "growth/groups")), 1);
    CHECK_STR(api_text(&w, "growth/groups/0/prefix"), "a/");
    CHECK(fabs(real("growth/groups/0/bytes_per_day") - 2 * (double)day) < (double)day / 25);
    CHECK(days_of("growth/groups", "prefix", "a/") == -1); /* nothing limits it */
    /* A label's limit is that of its living nodes together; here what its partitions grow by. */
    double all = 0;
    for (size_t i = 0; i < json_array_size(api_at(&w, "growth/labels")); i++) {
        all += real(text("growth/labels/%zu/bytes_per_day", i));
        CHECK_STR(api_text(&w, text("growth/labels/%zu/label", i)), "zone");
        double size = real(text("growth/labels/%zu/size_bytes", i));
        double a_day = real(text("growth/labels/%zu/bytes_per_day", i));
        CHECK(fabs(real(text("growth/labels/%zu/days_to_limit", i)) - (2000000 - size) / a_day) <
              .01);
    }
    CHECK(fabs(all - 2 * (double)day) < (double)day / 25);
    end();
}

/* What is being made of other requests leaves no room for another large one, but for a first. */
static void memory_of_answers_is_bounded(void)
{
    begin("");
    keyspace("{\"name\":\"ks\",\"scheme\":\"range\",\"splits\":[\"g\"]}");
    atomic_store(&w.api->skewed, 1 << 20);
    CHECK(EXPECT(&w, "GET /v1/skew?keyspace=ks", NULL, 503, "overloaded"));
    CHECK(api_header(&w, "Retry-After") != NULL);
    CHECK(EXPECT(&w, "GET /v1/skew", NULL, 503, "overloaded"));
    CHECK_U64(atomic_load(&w.api->skewed), 1 << 20);
    atomic_store(&w.api->skewed, (1 << 20) - 2);
    CHECK(EXPECT(&w, "GET /v1/skew?keyspace=ks", NULL, 200, NULL));
    CHECK_U64(atomic_load(&w.api->skewed), (1 << 20) - 2);
    atomic_store(&w.api->skewed, 0);
    CHECK(EXPECT(&w, "GET /v1/skew", NULL, 200, NULL));
    CHECK(EXPECT(&w, "GET /v1/skew?keyspace=none", NULL, 404, "keyspace_not_found"));
    CHECK_U64(atomic_load(&w.api->skewed), 0);
    end();
}

int main(void)
{
    RUN(nothing_heard_is_no_skew);
    RUN(demand_shows_what_an_inventory_does_not);
    RUN(a_hot_key_is_named_with_the_owners_of_its_salts);
    RUN(a_hot_partition_is_split_where_it_says);
    RUN(keys_of_elsewhere_do_not_count);
    RUN(labels_tenants_and_headroom);
    RUN(growth_is_of_partitions_nodes_labels_and_tenants);
    RUN(memory_of_answers_is_bounded);
    return tap_done();
}
