/* SPDX-License-Identifier: Apache-2.0 */
/* The balancer's windows over HTTP. */
#include "base/clock.h"
#include "tests/harness/api_world.h"
#include "tests/harness/tap.h"

#include <stdio.h>
#include <string.h>

static struct api_world w;

static void get(void)
{
    CHECK(EXPECT(&w, "GET /v1/balancer", NULL, 200, NULL));
}

static void patch(const char *body)
{
    CHECK(EXPECT(&w, "PATCH /v1/balancer", body, 200, NULL));
}

static void they_are_set_shown_and_cleared(void)
{
    api_world_open(&w);
    get();
    CHECK_U64(json_array_size(api_at(&w, "windows")), 0);
    patch("{\"windows\":[{\"name\":\"office\",\"kind\":\"freeze\",\"time_zone\":\"Europe/Zurich\","
          "\"days\":[\"fri\",\"mon\"],\"start\":\"08:00\",\"end\":\"18:30\"},"
          "{\"name\":\"xmas\",\"kind\":\"maintenance\",\"from\":\"2026-12-24T12:00:00Z\","
          "\"to\":\"2026-12-27T00:00:00.5Z\"}]}");
    get();
    CHECK_STR(api_text(&w, "windows/0/name"), "office");
    CHECK_STR(api_text(&w, "windows/0/kind"), "freeze");
    CHECK_STR(api_text(&w, "windows/0/time_zone"), "Europe/Zurich");
    CHECK_U64(json_array_size(api_at(&w, "windows/0/days")), 2);
    CHECK_STR(api_text(&w, "windows/0/days/0"), "mon");
    CHECK_STR(api_text(&w, "windows/0/days/1"), "fri");
    CHECK_STR(api_text(&w, "windows/0/start"), "08:00");
    CHECK_STR(api_text(&w, "windows/0/end"), "18:30");
    CHECK(json_is_boolean(api_at(&w, "windows/0/open")));
    CHECK(json_is_string(api_at(&w, "windows/0/changes_at")));
    CHECK(json_is_true(api_at(&w, "windows/0/zone_known")));
    CHECK(api_at(&w, "windows/0/from") == NULL && api_at(&w, "windows/1/days") == NULL);
    CHECK_STR(api_text(&w, "windows/1/time_zone"), "UTC");
    CHECK_STR(api_text(&w, "windows/1/from"), "2026-12-24T12:00:00.000Z");
    CHECK_STR(api_text(&w, "windows/1/to"), "2026-12-27T00:00:00.500Z");
    patch("{\"mode\":\"auto\"}");
    get();
    CHECK_U64(json_array_size(api_at(&w, "windows")), 2);
    patch("{\"windows\":[]}");
    get();
    CHECK_U64(json_array_size(api_at(&w, "windows")), 0);
    patch("{\"windows\":[{\"name\":\"all\",\"kind\":\"freeze\",\"time_zone\":\"Asia/Tokyo\","
          "\"days\":[\"mon\"],\"start\":\"22:00\",\"end\":\"24:00\"}]}");
    get();
    CHECK_STR(api_text(&w, "windows/0/end"), "24:00");
    patch("{\"windows\":null}");
    get();
    CHECK_U64(json_array_size(api_at(&w, "windows")), 0);
    api_world_close(&w);
}

/* What is set says at once why nothing begins. */
static void it_says_what_holds(void)
{
    char now[CLOCK_RFC3339_SIZE], past[CLOCK_RFC3339_SIZE], later[CLOCK_RFC3339_SIZE];
    clock_rfc3339(clock_wall_ms() - 7200000, past);
    clock_rfc3339(clock_wall_ms() - 3600000, now);
    clock_rfc3339(clock_wall_ms() + 3600000, later);
    api_world_open(&w);
    patch(text("{\"windows\":[{\"name\":\"f\",\"kind\":\"freeze\",\"from\":\"%s\",\"to\":\"%s\"}]}",
               now, later));
    get();
    CHECK_STR(api_text(&w, "idle/code"), "freeze");
    CHECK(strncmp(api_text(&w, "idle/detail"), text("f until %s (", later), 32) == 0);
    CHECK(json_is_true(api_at(&w, "windows/0/open")));
    CHECK_STR(api_text(&w, "windows/0/changes_at"), later);
    patch(
        text("{\"windows\":[{\"name\":\"m\",\"kind\":\"maintenance\",\"from\":\"%s\",\"to\":\"%s\"}"
             ",{\"name\":\"past\",\"kind\":\"freeze\",\"from\":\"%s\",\"to\":\"%s\"}]}",
             past, now, past, now));
    get();
    CHECK_STR(api_text(&w, "idle/code"), "outside_window");
    CHECK(json_is_false(api_at(&w, "windows/0/open")));
    CHECK(json_is_null(api_at(&w, "windows/1/changes_at")));
    patch(
        text("{\"windows\":[{\"name\":\"m\",\"kind\":\"maintenance\",\"from\":\"%s\",\"to\":\"%s\"}"
             "]}",
             now, later));
    get();
    CHECK_STR(api_text(&w, "idle/code"), "no_load");
    patch(
        "{\"mode\":\"off\",\"windows\":[{\"name\":\"a\",\"kind\":\"freeze\",\"time_zone\":\"UTC\","
        "\"days\":[\"mon\",\"tue\",\"wed\",\"thu\",\"fri\",\"sat\",\"sun\"],\"start\":\"00:00\","
        "\"end\":\"24:00\"}]}");
    get();
    CHECK_STR(api_text(&w, "idle/code"), "off");
    CHECK(json_is_true(api_at(&w, "windows/0/open")));
    CHECK(json_is_null(api_at(&w, "windows/0/changes_at")));
    api_world_close(&w);
}

/* Apply does not know which zones there are: another server's may have set one that we lack. */
static void a_zone_that_is_not_there_is_said(void)
{
    union {
        const char *in;
        char *out;
    } name = {.in = "odd"}, zone = {.in = "Europe/Atlantis"};
    Cadastre__BalancerWindow o, *list[] = {&o};
    Cadastre__BalancerPatch m;
    api_world_open(&w);
    cadastre__balancer_window__init(&o);
    cadastre__balancer_patch__init(&m);
    o.name = name.out;
    o.time_zone = zone.out;
    o.kind = DIR_WINDOW_FREEZE;
    o.days = 1;
    o.end = 60;
    m.has_windows = true;
    m.windows = list;
    m.n_windows = 1;
    struct dir_result *r = local_control_run(w.control, CADASTRE__COMMAND__BODY_BALANCER_PATCH, &m);
    CHECK_U64(r->err.code, ERR_OK);
    result_unref(r);
    get();
    CHECK_STR(api_text(&w, "idle/code"), "freeze");
    CHECK_STR(api_text(&w, "idle/detail"), "odd: time zone Europe/Atlantis can't be read here");
    CHECK(json_is_true(api_at(&w, "windows/0/open")));
    CHECK(json_is_false(api_at(&w, "windows/0/zone_known")));
    CHECK(json_is_null(api_at(&w, "windows/0/changes_at")));
    api_world_close(&w);
}

/* --- nonsense --- */

static void refused(const char *body, int status, const char *pointer)
{
    CHECK(EXPECT(&w, "PATCH /v1/balancer", body, status,
                 status == 422 ? "invalid_settings" : "invalid_request"));
    CHECK_STR(api_text(&w, "errors/0/pointer"), pointer);
}

/* A weekly freeze of these members, after one that is fine. */
static void weekly(const char *members, int status, const char *pointer)
{
    refused(text("{\"mode\":\"auto\",\"windows\":[{\"name\":\"a\",\"kind\":\"freeze\",\"from\":"
                 "\"2026-01-01T00:00:00Z\",\"to\":\"2026-01-02T00:00:00Z\"},"
                 "{\"kind\":\"freeze\",%s}]}",
                 members),
            status, pointer);
}

#define ZONE "\"time_zone\":\"Europe/Zurich\""
#define DAYS "\"days\":[\"mon\"]"

static void nonsense_is_refused_by_name(void)
{
    char many[4096] = "{\"windows\":[";
    api_world_open(&w);
    for (int i = 0; i < 17; i++) {
        size_t len = strlen(many);
        (void)snprintf(many + len, sizeof many - len,
                       "%s{\"name\":\"w%d\",\"kind\":\"freeze\",\"from\":\"2026-01-01T00:00:00Z\","
                       "\"to\":\"2026-01-02T00:00:00Z\"}",
                       i > 0 ? "," : "", i);
    }
    get();
    uint64_t revision = api_u64(&w, "revision");
    refused(text("%s]}", many), 422, "/windows");
    refused("{\"windows\":{}}", 400, "/windows");
    refused("{\"windows\":[7]}", 400, "/windows/0");
    refused("{\"windows\":[{}]}", 400, "/windows/0/name");
    refused("{\"windows\":[{\"name\":\"a\"}]}", 400, "/windows/0/kind");
    refused("{\"windows\":[{\"name\":\"a\",\"kind\":\"holiday\"}]}", 400, "/windows/0/kind");
    refused("{\"windows\":[{\"name\":\"a\",\"kind\":\"freeze\"}]}", 400, "/windows/0/from");
    weekly("\"name\":\"b\"," ZONE "," DAYS ",\"start\":\"08:00\"", 400, "/windows/1/end");
    weekly("\"name\":\"b\"," DAYS ",\"start\":\"08:00\",\"end\":\"09:00\"", 400,
           "/windows/1/time_zone");
    weekly("\"name\":\"b\"," ZONE ",\"start\":\"08:00\",\"end\":\"09:00\"", 400, "/windows/1/days");
    weekly("\"name\":\"b\"," ZONE "," DAYS ",\"start\":\"08:00\",\"end\":\"09:00\",\"every\":2",
           400, "/windows/1/every");
    weekly("\"name\":\"B\"," ZONE "," DAYS ",\"start\":\"08:00\",\"end\":\"09:00\"", 400,
           "/windows/1/name");
    weekly("\"name\":\"b\"," ZONE ",\"days\":[],\"start\":\"08:00\",\"end\":\"09:00\"", 400,
           "/windows/1/days");
    weekly("\"name\":\"a\"," ZONE "," DAYS ",\"start\":\"08:00\",\"end\":\"09:00\"", 422,
           "/windows/1/name");
    weekly("\"name\":\"b\",\"time_zone\":\"Europe/Atlantis\"," DAYS
           ",\"start\":\"08:00\",\"end\":\"09:00\"",
           422, "/windows/1/time_zone");
    weekly("\"name\":\"b\",\"time_zone\":\"../../../etc/passwd\"," DAYS
           ",\"start\":\"08:00\",\"end\":\"09:00\"",
           422, "/windows/1/time_zone");
    weekly("\"name\":\"b\",\"time_zone\":\"UTC\\u0000x\"," DAYS
           ",\"start\":\"08:00\",\"end\":\"09:00\"",
           422, "/windows/1/time_zone");
    weekly("\"name\":\"b\"," ZONE
           ",\"days\":[\"mon\",\"mon\"],\"start\":\"08:00\",\"end\":\"09:00\"",
           422, "/windows/1/days/1");
    weekly("\"name\":\"b\"," ZONE ",\"days\":[\"monday\"],\"start\":\"08:00\",\"end\":\"09:00\"",
           422, "/windows/1/days/0");
    weekly("\"name\":\"b\"," ZONE ",\"days\":[1],\"start\":\"08:00\",\"end\":\"09:00\"", 422,
           "/windows/1/days/0");
    weekly("\"name\":\"b\"," ZONE "," DAYS ",\"start\":\"8:00\",\"end\":\"09:00\"", 422,
           "/windows/1/start");
    weekly("\"name\":\"b\"," ZONE "," DAYS ",\"start\":\"24:00\",\"end\":\"09:00\"", 422,
           "/windows/1/start");
    weekly("\"name\":\"b\"," ZONE "," DAYS ",\"start\":\"08:60\",\"end\":\"09:00\"", 422,
           "/windows/1/start");
    weekly("\"name\":\"b\"," ZONE "," DAYS ",\"start\":\"08:00\",\"end\":\"24:01\"", 422,
           "/windows/1/end");
    weekly("\"name\":\"b\"," ZONE "," DAYS ",\"start\":\"08:00\",\"end\":\"08:00\"", 422,
           "/windows/1/end");
    weekly("\"name\":\"b\"," ZONE "," DAYS
           ",\"start\":\"08:00\",\"end\":\"09:00\",\"from\":\"2026-01-01T00:00:00Z\"",
           422, "/windows/1/from");
    weekly("\"name\":\"b\",\"from\":\"2026-01-01T00:00:00Z\",\"to\":\"2026-01-01T00:00:00Z\"", 422,
           "/windows/1/to");
    weekly("\"name\":\"b\",\"from\":\"2026-01-01T00:00:00+01:00\",\"to\":\"2026-01-01T00:00:00Z\"",
           422, "/windows/1/from");
    weekly(
        "\"name\":\"b\",\"from\":\"2026-01-01T00:00:00Z\\u0000\",\"to\":\"2026-02-01T00:00:00Z\"",
        422, "/windows/1/from");
    get();
    CHECK_U64(api_u64(&w, "revision"), revision);
    CHECK_STR(api_text(&w, "mode"), "advise");
    api_world_close(&w);
}

int main(void)
{
    RUN(they_are_set_shown_and_cleared);
    RUN(it_says_what_holds);
    RUN(a_zone_that_is_not_there_is_said);
    RUN(nonsense_is_refused_by_name);
    return tap_done();
}
