/* SPDX-License-Identifier: Apache-2.0 */
#include "api/router.h"
#include "tests/harness/tap.h"

#include <string.h>

static void nothing(struct exchange *x)
{
    (void)x;
}

static const struct api_route routes[] = {
    {API_GET, "/", nothing, NULL, 0},
    {API_GET, "/v1/ks", nothing, NULL, 0},
    {API_POST, "/v1/ks", nothing, NULL, 0},
    {API_GET, "/v1/ks/{ks}", nothing, (const char *const[]){"limit", "cursor", NULL}, 0},
    {API_DELETE, "/v1/ks/{ks}", nothing, NULL, 0},
    {API_GET, "/v1/ks/{ks}/parts/{p}", nothing, NULL, API_ROUTE_READS},
    {API_POST, "/v1/ks/special/parts", nothing, NULL, 0},
};

static struct router *router;

/* The pattern found for a path; "405" and "404" otherwise. */
static const char *look(enum api_method method, const char *path, struct router_match *m)
{
    struct slice segments[API_PATH_SEGMENTS_MAX + 1];
    unsigned n = 0;
    for (const char *p = path; *p == '/' && p[1] != '\0' && n <= API_PATH_SEGMENTS_MAX;) {
        size_t len = strcspn(p + 1, "/");
        segments[n++] = slice_of(p + 1, len);
        p += 1 + len;
    }
    if (!router_find(router, method, segments, n, m)) {
        return "404";
    }
    return m->route != NULL ? m->route->pattern : "405";
}

static void finds(void)
{
    static const struct {
        enum api_method method;
        const char *path, *want, *allow;
    } rows[] = {
        {API_GET, "/", "/", "GET, HEAD"},
        {API_HEAD, "/", "/", "GET, HEAD"},
        {API_POST, "/", "405", "GET, HEAD"},
        {API_GET, "/v1/ks", "/v1/ks", "GET, HEAD, POST"},
        {API_POST, "/v1/ks", "/v1/ks", "GET, HEAD, POST"},
        {API_METHOD_OTHER, "/v1/ks", "405", "GET, HEAD, POST"},
        {API_GET, "/v1", "404", ""},
        {API_GET, "/v1/k", "404", ""},
        {API_GET, "/v1/ks/a", "/v1/ks/{ks}", "GET, HEAD, DELETE"},
        {API_GET, "/v1/ks/special", "/v1/ks/{ks}", "GET, HEAD, DELETE"},
        {API_PUT, "/v1/ks/special", "405", "GET, HEAD, DELETE"},
        {API_GET, "/v1/ks/a/parts/1", "/v1/ks/{ks}/parts/{p}", "GET, HEAD"},
        {API_GET, "/v1/ks/special/parts/1", "/v1/ks/{ks}/parts/{p}", "GET, HEAD"},
        {API_POST, "/v1/ks/special/parts", "/v1/ks/special/parts", "POST"},
        {API_POST, "/v1/ks/other/parts", "404", ""},
        {API_GET, "/a/b/c/d/e/f/g/h/i", "404", ""},
    };
    router = router_new(routes, sizeof routes / sizeof routes[0]);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct router_match m;
        char allow[ROUTER_ALLOW_SIZE];
        tap_note("%s", rows[i].path);
        CHECK_STR(look(rows[i].method, rows[i].path, &m), rows[i].want);
        router_allow(m.allowed, allow);
        CHECK_STR(allow, rows[i].allow);
    }
    struct router_match m;
    (void)look(API_GET, "/v1/ks/special/parts/1", &m);
    CHECK_U64(m.variable_count, 2);
    CHECK_U64(m.variables[0], 2);
    CHECK_U64(m.variables[1], 4);
    router_free(router);
}

static void params(void)
{
    CHECK(router_takes_param(&routes[3], slice_of("limit", 5)));
    CHECK(!router_takes_param(&routes[3], slice_of("limi", 4)));
    CHECK(!router_takes_param(&routes[3], slice_of("consistency", 11)));
    CHECK(router_takes_param(&routes[5], slice_of("consistency", 11)));
    CHECK(router_takes_param(&routes[5], slice_of("min_revision", 12)));
    CHECK(!router_takes_param(&routes[5], slice_of("limit", 5)));
    CHECK(!router_takes_param(&routes[0], slice_of("", 0)));
}

int main(void)
{
    RUN(finds);
    RUN(params);
    return tap_done();
}
