/* SPDX-License-Identifier: Apache-2.0 */
/* The decisions of http.c; its transfers are tested against a mock server in
 * tests/integration/cli_test.py. */
#include "cli/http.h"
#include "tests/harness/tap.h"

#include <string.h>

static void decides_what_to_do_next(void)
{
    static const struct {
        long status;
        enum err_code code;
        enum http_next next;
    } table[] = {{200, ERR_COUNT, NEXT_DONE},           {304, ERR_COUNT, NEXT_DONE},
                 {307, ERR_COUNT, NEXT_REDIRECT},       {308, ERR_COUNT, NEXT_REDIRECT},
                 {400, ERR_INVALID_REQUEST, NEXT_DONE}, {404, ERR_NOT_FOUND, NEXT_DONE},
                 {409, ERR_STALE_EPOCH, NEXT_DONE},     {429, ERR_RATE_LIMITED, NEXT_WAIT},
                 {500, ERR_INTERNAL, NEXT_OTHER},       {502, ERR_COUNT, NEXT_OTHER},
                 {503, ERR_NO_LEADER, NEXT_WAIT},       {503, ERR_OUTCOME_UNKNOWN, NEXT_WAIT},
                 {503, ERR_OVERLOADED, NEXT_WAIT},      {503, ERR_COUNT, NEXT_WAIT},
                 {503, ERR_BEHIND, NEXT_OTHER},         {503, ERR_TOO_STALE, NEXT_OTHER},
                 {503, ERR_NOT_READY, NEXT_OTHER}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        tap_note("status %ld, row %zu", table[i].status, i);
        CHECK_U64(http_next_after(table[i].status, table[i].code), table[i].next);
    }
}

static void takes_origins_apart(void)
{
    static const struct {
        const char *url, *origin;
    } table[] = {{"http://a:7400", "http://a:7400"},
                 {"http://a:7400/", "http://a:7400"},
                 {"HTTP://Host.Example:7400/v1/x?y#z", "http://host.example:7400"},
                 {"https://[::1]:7400?x", "https://[::1]:7400"},
                 {"http://", NULL},
                 {"http:///v1", NULL},
                 {"ftp://a", NULL},
                 {"/v1/keyspaces", NULL},
                 {"http://user@a:7400/", NULL},
                 {"http://a b/", NULL},
                 {"http://a\r\nX: y", NULL},
                 {"", NULL}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        char out[HTTP_URL_MAX + 1] = "";
        tap_note("%s", table[i].url);
        CHECK(http_origin(table[i].url, out) == (table[i].origin != NULL));
        if (table[i].origin != NULL) {
            CHECK_STR(out, table[i].origin);
        }
    }
    char longer[HTTP_URL_MAX + 2], out[HTTP_URL_MAX + 1];
    memset(longer, 'a', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    memcpy(longer, "http://", 7);
    CHECK(!http_origin(longer, out));
    longer[HTTP_URL_MAX] = '\0';
    CHECK(http_origin(longer, out));
}

static void reads_the_list_of_endpoints(void)
{
    struct err e;
    struct http *h = http_new("http://a:1,https://B/,http://[::1]:3", 1000, &e);
    CHECK(h != NULL);
    if (h != NULL) {
        CHECK_U64(http_endpoint_count(h), 3);
        CHECK_STR(http_endpoint(h, 0), "http://a:1");
        CHECK_STR(http_endpoint(h, 1), "https://b");
        CHECK_STR(http_endpoint(h, 2), "http://[::1]:3");
    }
    http_free(h);
    static const char *const bad[] = {"",           "a:1",      "http://a,", "http://a/v1",
                                      "http://a?x", ",http://a"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        tap_note("'%s'", bad[i]);
        h = http_new(bad[i], 1000, &e);
        CHECK(h == NULL);
        http_free(h);
    }
    char many[HTTP_ENDPOINTS_MAX * 10 + 10] = "http://a";
    for (int i = 0; i < HTTP_ENDPOINTS_MAX; i++) {
        memcpy(many + 8 + (size_t)i * 9, ",http://a", 10);
    }
    CHECK(http_new(many, 1000, &e) == NULL);
}

static void keys_differ(void)
{
    char a[HTTP_KEY_SIZE], b[HTTP_KEY_SIZE];
    http_random_key(a);
    http_random_key(b);
    CHECK_U64(strlen(a), 32);
    CHECK_U64(strspn(a, "0123456789abcdef"), 32);
    CHECK(strcmp(a, b) != 0);
}

int main(void)
{
    RUN(decides_what_to_do_next);
    RUN(takes_origins_apart);
    RUN(reads_the_list_of_endpoints);
    RUN(keys_differ);
    return tap_done();
}
