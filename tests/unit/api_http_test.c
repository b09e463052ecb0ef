/* SPDX-License-Identifier: Apache-2.0 */
/* Requests and answers over real sockets: framing, limits, refusals, slow clients. Waiting and
 * streams: api_http_wait_test.c. */
#include "api/http.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/mem.h"
#include "tests/harness/http_client.h"
#include "tests/harness/tap.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Atomic uint64_t executed;
static struct http_server *server;

static uint16_t port(void)
{
    return http_server_port(server);
}

/* --- handlers --- */

static void on_ping(struct exchange *x)
{
    atomic_fetch_add(&executed, 1);
    buf_put_str(exchange_out(x), "pong");
    exchange_reply(x, 200, "text/plain");
}

static void on_echo(struct exchange *x)
{
    struct buf *out = exchange_out(x);
    const struct slice *key = exchange_param(x, "key");
    struct slice name = exchange_path(x, 0), raw = exchange_target(x);
    buf_printf(out, "name=%.*s", (int)name.len, (const char *)name.data);
    if (key != NULL) {
        buf_put_str(out, " key=");
        for (size_t i = 0; i < key->len; i++) {
            buf_printf(out, "%02x", key->data[i]);
        }
    }
    buf_printf(out, " target=%.*s", (int)raw.len, (const char *)raw.data);
    buf_printf(out, " remote=%.10s", exchange_remote(x));
    buf_printf(out, " principal=%s", exchange_principal(x));
    exchange_printf_header(x, "X-Answer", "%d", 42);
    exchange_reply(x, 200, "text/plain");
}

static void on_body(struct exchange *x)
{
    struct slice body = exchange_body(x);
    atomic_fetch_add(&executed, 1);
    buf_printf(exchange_out(x), "%zu %016" PRIx64, body.len, hash_xxh3_64(body.data, body.len));
    exchange_reply(x, 200, "text/plain");
}

static void more_members(struct exchange *x, struct buf *out, void *arg)
{
    (void)x;
    buf_printf(out, ",\"more\":%d", *(int *)arg);
}

static void on_problem(struct exchange *x)
{
    struct err e;
    int more = 7;
    const struct slice *code = exchange_param(x, "code");
    char slug[64];
    (void)snprintf(slug, sizeof slug, "%.*s", (int)code->len, (const char *)code->data);
    enum err_code c = strcmp(slug, "io") == 0 ? ERR_IO : err_from_slug(slug);
    (void)err_set_at(&e, c, "/a/0", "it is \"%s\"", "bad");
    exchange_problem(x, &e, more_members, &more);
}

static void on_nothing(struct exchange *x)
{
    (void)x;
}

static void on_status(struct exchange *x)
{
    exchange_set_header(x, "ETag", "\"1-2-3\"");
    exchange_reply(x, 304, NULL);
}

static void on_big(struct exchange *x)
{
    struct buf *out = exchange_out(x);
    for (int i = 0; i < 1 << 17; i++) {
        buf_put(out, "0123456789abcdef0123456789abcdef", 32);
    }
    exchange_reply(x, 200, "text/plain");
}

static const char *const key_param[] = {"key", NULL};
static const char *const code_param[] = {"code", NULL};

static const struct api_route routes[] = {
    {API_GET, "/ping", on_ping, NULL, 0},
    {API_GET, "/echo/{name}", on_echo, key_param, 0},
    {API_POST, "/body", on_body, NULL, API_ROUTE_BODY | API_ROUTE_MUTATES},
    {API_POST, "/need", on_body, NULL, API_ROUTE_BODY_NEEDED},
    {API_PATCH, "/merge", on_body, NULL, API_ROUTE_BODY | API_ROUTE_MERGE_PATCH},
    {API_GET, "/problem", on_problem, code_param, 0},
    {API_GET, "/nothing", on_nothing, NULL, 0},
    {API_GET, "/not-modified", on_status, NULL, 0},
    {API_GET, "/big", on_big, NULL, 0},
};

static bool admit(struct exchange *x, const struct api_route *route)
{
    const char *token = exchange_header(x, "Authorization");
    (void)route;
    if (token == NULL) {
        return true;
    }
    if (strcmp(token, "Bearer good") == 0) {
        exchange_set_principal(x, "ann");
        return true;
    }
    struct err e;
    (void)err_set(&e, ERR_UNAUTHORIZED, "no such token");
    exchange_problem(x, &e, NULL, NULL);
    return false;
}

static void start(struct http_options o)
{
    struct err e;
    o.addr = "127.0.0.1:0";
    o.routes = routes;
    o.route_count = sizeof routes / sizeof routes[0];
    o.admit = admit;
    if (http_server_start(&o, &server, &e) != ERR_OK) {
        (void)fprintf(stderr, "can't start: %s\n", e.detail);
        abort();
    }
}

static void stop(void)
{
    http_server_stop(server);
    server = NULL;
}

/* --- good requests --- */

static void answers(void)
{
    struct answer a;
    char value[64];
    http_get(port(), "/ping", &a);
    CHECK_U64(a.status, 200);
    CHECK_STR(answer_text(&a), "pong");
    CHECK_STR(answer_header(&a, "Content-Type", value, sizeof value), "text/plain");
    CHECK_STR(answer_header(&a, "Server", value, sizeof value), "cadastre");
    CHECK(strlen(answer_header(&a, "X-Request-Id", value, sizeof value)) == 16);
    CHECK(answer_header(&a, "Date", value, sizeof value) == NULL);
    CHECK(answer_header(&a, "Connection", value, sizeof value) == NULL);
    answer_close(&a);
    http_get(port(), "/echo/a%2Bb?key=%00%ff+", &a);
    CHECK_STR(answer_text(&a),
              "name=a+b key=00ff2b target=/echo/a%2Bb?key=%00%ff+ remote=127.0.0.1: principal=");
    CHECK_STR(answer_header(&a, "X-Answer", value, sizeof value), "42");
    answer_close(&a);
    http_get(port(), "/not-modified", &a);
    CHECK_U64(a.status, 304);
    CHECK_STR(answer_header(&a, "ETag", value, sizeof value), "\"1-2-3\"");
    answer_close(&a);
    http_get(port(), "/nothing", &a);
    CHECK_U64(a.status, 500);
    answer_close(&a);
    http_get(port(), "/big", &a);
    CHECK_U64(a.body.len, 32 << 17);
    answer_close(&a);
}

static void problems(void)
{
    struct answer a;
    char value[128], want[512];
    http_get(port(), "/problem?code=stale_epoch", &a);
    CHECK_U64(a.status, 409);
    CHECK_STR(answer_header(&a, "Content-Type", value, sizeof value), "application/problem+json");
    (void)answer_header(&a, "X-Request-Id", value, sizeof value);
    (void)snprintf(
        want, sizeof want,
        "{\"type\":\"/problems/stale_epoch\",\"title\":\"The epoch is not the present "
        "one\",\"status\":409,"
        "\"code\":\"stale_epoch\",\"detail\":\"it is \\\"bad\\\"\",\"instance\":\"%s\","
        "\"errors\":[{\"pointer\":\"/a/0\",\"detail\":\"it is \\\"bad\\\"\"}],\"more\":7}",
        value);
    CHECK_STR(answer_text(&a), want);
    answer_close(&a);
    http_get(port(), "/problem?code=no_leader", &a);
    CHECK_U64(a.status, 503);
    CHECK(strcmp(answer_header(&a, "Retry-After", value, sizeof value), "1") >= 0);
    CHECK(strcmp(value, "3") <= 0);
    CHECK(strstr(answer_text(&a), "\"retry_after_ms\":") != NULL);
    answer_close(&a);
    http_get(port(), "/problem?code=io", &a);
    CHECK_U64(a.status, 500);
    CHECK(strstr(answer_text(&a), "\"code\":\"internal\"") != NULL);
    CHECK(strstr(answer_text(&a), "it is") == NULL); /* "bad" may be in the random id */
    answer_close(&a);
}

static void request_ids(void)
{
    static const struct {
        const char *given;
        bool taken;
    } rows[] = {{"abc-123", true}, {"a b", false}, {"a\"b", false}, {"", false}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct client c;
        struct answer a;
        char value[80];
        client_open(&c, port());
        (void)client_print(&c, "GET /ping HTTP/1.1\r\nHost: t\r\nX-Request-Id: %s\r\n\r\n",
                           rows[i].given);
        client_read(&c, &a, false, 5000);
        CHECK_U64(a.status, 200);
        CHECK((strcmp(answer_header(&a, "X-Request-Id", value, sizeof value), rows[i].given) ==
               0) == rows[i].taken);
        answer_close(&a);
        client_close(&c);
    }
}

static void keeps_alive(void)
{
    struct client c;
    struct http_stats before, after;
    client_open(&c, port());
    http_server_stats(server, &before);
    for (int i = 0; i < 100; i++) {
        struct answer a;
        (void)client_print(&c, i % 3 == 0   ? "HEAD /ping HTTP/1.1\r\nHost: t\r\n\r\n"
                               : i % 3 == 1 ? "GET /ping HTTP/1.1\r\nHost: t\r\n\r\n"
                                            : "GET /none HTTP/1.1\r\nHost: t\r\n\r\n");
        client_read(&c, &a, i % 3 == 0, 5000);
        CHECK_U64(a.status, i % 3 == 2 ? 404 : 200);
        answer_close(&a);
    }
    http_server_stats(server, &after);
    CHECK(after.accepted - before.accepted <= 1);
    CHECK(after.responses[2] - before.responses[2] >= 67);
    CHECK(after.responses[4] - before.responses[4] >= 33);
    client_close(&c);
}

static void pipelines(void)
{
    struct client c;
    struct buf b = {.max = 65536};
    client_open(&c, port());
    for (int i = 0; i < 64; i++) {
        buf_printf(&b, "%s /echo/n%d HTTP/1.1\r\nHost: t\r\n\r\n", "GET", i);
        if (i % 4 == 3) {
            buf_printf(&b, "POST /body HTTP/1.1\r\nHost: t\r\nContent-Length: 3\r\n\r\nab%d",
                       i % 10);
        }
    }
    CHECK(client_send(&c, b.data, b.len));
    for (int i = 0; i < 64; i++) {
        struct answer a;
        char want[64];
        client_read(&c, &a, false, 5000);
        (void)snprintf(want, sizeof want, "name=n%d target=/echo/n%d ", i, i);
        CHECK(a.status == 200 && strncmp(answer_text(&a), want, strlen(want)) == 0);
        answer_close(&a);
        if (i % 4 == 3) {
            client_read(&c, &a, false, 5000);
            CHECK(a.status == 200 && strncmp(answer_text(&a), "3 ", 2) == 0);
            answer_close(&a);
        }
    }
    buf_close(&b);
    client_close(&c);
}

static void old_clients(void)
{
    struct client c;
    struct answer a;
    client_open(&c, port());
    (void)client_print(&c, "GET /ping HTTP/1.0\r\n\r\n");
    client_read(&c, &a, false, 5000);
    CHECK_U64(a.status, 200);
    CHECK(client_ended(&c, 5000));
    answer_close(&a);
    client_close(&c);
    client_open(&c, port());
    for (int i = 0; i < 2; i++) {
        (void)client_print(&c, "GET /ping HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
        client_read(&c, &a, false, 5000);
        CHECK_U64(a.status, 200);
        answer_close(&a);
    }
    client_close(&c);
}

static void authentication_hook(void)
{
    static const struct {
        const char *token;
        int status;
    } rows[] = {{"Bearer good", 200}, {"Bearer bad", 401}};
    for (int i = 0; i < 2; i++) {
        struct client c;
        struct answer a;
        client_open(&c, port());
        (void)client_print(&c, "GET /echo/x HTTP/1.1\r\nHost: t\r\nAuthorization: %s\r\n\r\n",
                           rows[i].token);
        client_read(&c, &a, false, 5000);
        CHECK_U64(a.status, rows[i].status);
        CHECK((strstr(answer_text(&a), "principal=ann") != NULL) == (i == 0));
        answer_close(&a);
        client_close(&c);
    }
}

/* --- bodies --- */

static void send_body(struct client *c, const uint8_t *body, size_t len, size_t chunk)
{
    if (chunk == 0) {
        (void)client_print(c, "POST /body HTTP/1.1\r\nHost: t\r\nContent-Length: %zu\r\n\r\n", len);
        (void)client_send(c, body, len);
        return;
    }
    (void)client_print(c, "POST /body HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (size_t at = 0; at < len; at += chunk) {
        size_t n = len - at < chunk ? len - at : chunk;
        if (!client_print(c, "%zx\r\n", n) || !client_send(c, body + at, n) ||
            !client_print(c, "\r\n")) {
            return;
        }
    }
    (void)client_print(c, "0\r\n\r\n");
}

static void bodies(void)
{
    static const size_t sizes[] = {0, 1, 4095, 4096, 100000, API_BODY_MAX, API_BODY_MAX + 1};
    static const size_t chunks[] = {0, 7000, 1 << 20};
    uint8_t *body = mem_alloc(API_BODY_MAX + 1);
    struct tap_rand r = {1};
    for (size_t i = 0; i < API_BODY_MAX + 1; i += 8) {
        uint64_t v = tap_rand(&r);
        memcpy(body + i, &v, API_BODY_MAX + 1 - i < 8 ? API_BODY_MAX + 1 - i : 8);
    }
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (size_t k = 0; k < sizeof chunks / sizeof chunks[0]; k++) {
            struct client c;
            struct answer a;
            char want[64];
            bool fits = sizes[i] <= API_BODY_MAX;
            tap_note("%zu bytes in chunks of %zu", sizes[i], chunks[k]);
            client_open(&c, port());
            send_body(&c, body, sizes[i], chunks[k]);
            client_read(&c, &a, false, 10000);
            CHECK_U64(a.status, fits ? 200 : 413);
            (void)snprintf(want, sizeof want, "%zu %016" PRIx64, sizes[i],
                           hash_xxh3_64(body, sizes[i]));
            CHECK(fits ? strcmp(answer_text(&a), want) == 0
                       : strstr(answer_text(&a), "\"too_large\"") != NULL);
            CHECK(fits || client_ended(&c, 5000));
            answer_close(&a);
            client_close(&c);
        }
    }
    mem_free(body);
}

/* A client that says how much it will send is told before it sends. */
static void expects_continue(void)
{
    struct client c;
    struct answer a;
    client_open(&c, port());
    (void)client_print(
        &c, "POST /body HTTP/1.1\r\nHost: t\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
    client_read(&c, &a, true, 5000);
    CHECK_U64(a.status, 100);
    answer_close(&a);
    (void)client_print(&c, "abc");
    client_read(&c, &a, false, 5000);
    CHECK_U64(a.status, 200);
    answer_close(&a);
    (void)client_print(&c, "POST /body HTTP/1.1\r\nHost: t\r\nContent-Length: 9000000\r\nExpect: "
                           "100-continue\r\n\r\n");
    client_read(&c, &a, false, 5000);
    CHECK_U64(a.status, 413);
    CHECK(client_ended(&c, 5000));
    answer_close(&a);
    client_close(&c);
}

static void media_types(void)
{
    static const struct {
        const char *line, *type, *header;
        int status;
    } rows[] = {
        {"POST /body", "application/json", "", 200},
        {"POST /body", "application/json; charset=utf-8", "", 200},
        {"POST /body", "Application/JSON ;charset=utf-8", "", 200},
        {"POST /body", "application/jsonx", "", 415},
        {"POST /body", "text/plain", "", 415},
        {"POST /body", "application/x-www-form-urlencoded", "", 415},
        {"POST /body", "multipart/form-data; boundary=x", "", 415},
        {"POST /body", "application/merge-patch+json", "", 415},
        {"PATCH /merge", "application/merge-patch+json", "", 200},
        {"PATCH /merge", "application/json", "", 200},
        {"POST /body", "application/json", "Content-Encoding: gzip\r\n", 415},
        {"POST /body", "application/json", "Content-Encoding: identity\r\n", 200},
        {"GET /ping", "application/json", "", 400},
        {"POST /none", "text/plain", "", 404},
        {"PUT /body", "text/plain", "", 405},
    };
    struct client c;
    client_open(&c, port());
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct answer a;
        tap_note("%s %s %s", rows[i].line, rows[i].type, rows[i].header);
        (void)client_print(
            &c, "%s HTTP/1.1\r\nHost: t\r\nContent-Type: %s\r\n%sContent-Length: 2\r\n\r\n{}",
            rows[i].line, rows[i].type, rows[i].header);
        /* All on one connection: these are not reasons to close it. */
        client_read(&c, &a, false, 5000);
        CHECK_U64(a.status, rows[i].status);
        answer_close(&a);
    }
    struct answer a;
    (void)client_print(&c, "POST /need HTTP/1.1\r\nHost: t\r\nContent-Length: 0\r\n\r\n");
    client_read(&c, &a, false, 5000);
    CHECK_U64(a.status, 400);
    answer_close(&a);
    (void)client_print(&c, "POST /body HTTP/1.1\r\nHost: t\r\n\r\n");
    client_read(&c, &a, false, 5000);
    CHECK_U64(a.status, 200);
    answer_close(&a);
    client_close(&c);
}

/* --- refusals --- */

static void allowed_methods(void)
{
    static const char *const methods[] = {"POST",    "PUT",   "PATCH", "DELETE",
                                          "OPTIONS", "TRACE", "BREW"};
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
        struct client c;
        struct answer a;
        char value[64];
        tap_note("%s", methods[i]);
        client_open(&c, port());
        (void)client_print(&c, "%s /ping HTTP/1.1\r\nHost: t\r\n\r\n", methods[i]);
        client_read(&c, &a, false, 5000);
        CHECK_U64(a.status, 405);
        CHECK_STR(answer_header(&a, "Allow", value, sizeof value), "GET, HEAD");
        CHECK(strstr(answer_text(&a), "\"method_not_allowed\"") != NULL);
        answer_close(&a);
        client_close(&c);
    }
}

static void parameters(void)
{
    static const struct {
        const char *target, *what;
    } rows[] = {{"/echo/a?key=1&key=2", "\\\"key\\\" comes twice"},
                {"/echo/a?kee=1", "\\\"kee\\\""},
                {"/echo/a?%22x=1", "unknown query parameter"},
                {"/echo/a?key=%zz", "hex digits"},
                {"/ping?x", "\\\"x\\\""}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct answer a;
        tap_note("%s", rows[i].target);
        http_get(port(), rows[i].target, &a);
        CHECK_U64(a.status, 400);
        CHECK(strstr(answer_text(&a), "\"invalid_request\"") != NULL);
        CHECK(strstr(answer_text(&a), rows[i].what) != NULL);
        answer_close(&a);
    }
}

/* Thousands of parameters are no trouble to anybody. */
static void many_parameters(void)
{
    struct buf b = {.max = 1 << 16};
    struct answer a;
    buf_put_str(&b, "/ping?");
    while (b.len < 3900) {
        buf_put_str(&b, "a&");
    }
    buf_put_u8(&b, 0);
    http_get(port(), (const char *)b.data, &a);
    CHECK_U64(a.status, 400);
    answer_close(&a);
    buf_close(&b);
}

static void long_targets(void)
{
    static const struct {
        size_t len;
        int status;
    } rows[] = {{HTTP_REQUEST_LINE_MAX - 13, 200},
                {HTTP_REQUEST_LINE_MAX - 12, 414},
                {HTTP_REQUEST_LINE_MAX, 414},
                {6000, 414},
                {100000, 414}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct answer a;
        struct client c;
        struct buf b = {.max = 1 << 20};
        tap_note("%zu bytes", rows[i].len);
        buf_put_str(&b, "GET /echo/a?key=");
        while (b.len < rows[i].len + 4) {
            buf_put_u8(&b, 'k');
        }
        buf_put_str(&b, " HTTP/1.1\r\nHost: t\r\n\r\n");
        client_open(&c, port());
        (void)client_send(&c, b.data, b.len);
        client_read(&c, &a, false, 5000);
        CHECK_U64(a.status, rows[i].status);
        if (rows[i].status == 414 && rows[i].len < 8000) {
            CHECK(strstr(answer_text(&a), "POST /v1/keyspaces/{ks}/routes") != NULL);
        }
        answer_close(&a);
        client_close(&c);
        buf_close(&b);
    }
}

#define HOST "Host: t\r\n"
/* By whom it is refused: by us; by libmicrohttpd, which answers in HTML; or by closing without a
 * word. */
enum how { HOW_ANSWER, HOW_BY_LIBRARY, HOW_CLOSED };
#define BY_LIBRARY(text)                                                                           \
    {                                                                                              \
        text, sizeof(text) - 1, HOW_BY_LIBRARY                                                     \
    }
#define CLOSED(text)                                                                               \
    {                                                                                              \
        text, sizeof(text) - 1, HOW_CLOSED                                                         \
    }
#define ROW(text)                                                                                  \
    {                                                                                              \
        text, sizeof(text) - 1, HOW_ANSWER                                                         \
    }

/* Each could be read in two ways, or is not HTTP. What follows on the connection must not be taken
 * for a request. */
static const struct {
    const char *text;
    size_t len;
    enum how how;
} refused[] = {
    ROW("POST /body HTTP/1.1\r\n" HOST
        "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    ROW("POST /body HTTP/1.1\r\n" HOST
        "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n"),
    ROW("POST /body HTTP/1.1\r\n" HOST "Content-Length: 0\r\nContent-Length: 0\r\n\r\n"),
    ROW("POST /body HTTP/1.1\r\n" HOST "Content-Length: 0\r\nContent-Length: 40\r\n\r\n"),
    ROW("POST /body HTTP/1.1\r\n" HOST "Content-Length: +0\r\n\r\n"),
    ROW("POST /body HTTP/1.1\r\n" HOST "Content-Length: -1\r\n\r\n"),
    ROW("POST /body HTTP/1.1\r\n" HOST "Content-Length: 0x0\r\n\r\n"),
    ROW("POST /body HTTP/1.1\r\n" HOST "Content-Length: 0,0\r\n\r\n"),
    ROW("POST /body HTTP/1.1\r\n" HOST "Content-Length: 00\r\n\r\n"),
    ROW("POST /body HTTP/1.1\r\n" HOST "Content-Length: 0 \r\n\r\n"),
    ROW("POST /body HTTP/1.1\r\n" HOST "Content-Length: 0 0\r\n\r\n"),
    ROW("POST /body HTTP/1.1\r\n" HOST "Content-Length:\r\n\r\n"),
    ROW("POST /body HTTP/1.1\r\n" HOST "Content-Length: 0;a\r\n\r\n"),
    ROW("POST /body HTTP/1.1\r\n" HOST "Content-Length : 0\r\n\r\n"),
    ROW("POST /body HTTP/1.1\r\n" HOST "Content-Length\t: 0\r\n\r\n"),
    ROW("POST /body HTTP/1.1\r\n" HOST " Content-Length: 0\r\n\r\n"),
    ROW("POST /body HTTP/1.1\r\n Content-Length: 0\r\n" HOST "\r\n"),
    ROW("POST /body HTTP/1.1\r\n" HOST "Content-Length: 0\r\n 0\r\n\r\n"),
    ROW("POST /body HTTP/1.1\r\n" HOST "Content-Length: 0\0"
        "1\r\n\r\n"),
    ROW("POST /body HTTP/1.1\r\n" HOST "Content-Length: 99999999999999999999\r\n\r\n"),
    ROW("POST /body HTTP/1.1\r\n" HOST
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    ROW("POST /body HTTP/1.1\r\n" HOST "Transfer-Encoding: identity\r\n\r\n"),
    ROW("POST /body HTTP/1.1\r\n" HOST "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
    ROW("POST /body HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n"),
    ROW("POST /body HTTP/1.1\r\n" HOST "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"),
    ROW("POST /body HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked \r\n\r\n0\r\n\r\n"),
    ROW("POST /body HTTP/1.1\r\n" HOST "Transfer-Encoding:\r\n\r\n0\r\n\r\n"),
    ROW("POST /body HTTP/1.1\r\n" HOST "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n"),
    ROW("POST /body HTTP/1.1\r\n" HOST "Transfer-Encoding: \x0b"
        "chunked\r\n\r\n0\r\n\r\n"),
    ROW("POST /body HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    ROW("GET /ping HTTP/1.1\r\n\r\n"),
    ROW("GET /ping HTTP/1.1\r\n" HOST HOST "\r\n"),
    ROW("GET /ping HTTP/1.1\r\n" HOST "host: u\r\n\r\n"),
    ROW("GET /ping HTTP/1.1\r\n" HOST "Authorization: a\r\nAuthorization: b\r\n\r\n"),
    ROW("GET /ping HTTP/1.1\r\n" HOST "Idempotency-Key: a\r\nidempotency-key: a\r\n\r\n"),
    ROW("GET /ping HTTP/1.1\r\n" HOST "Content-Type: a\r\nContent-Type: a\r\n\r\n"),
    ROW("GET /ping HTTP/1.1\r\n" HOST "X: a\rContent-Length: 5\r\n\r\n"),
    ROW("GET /ping HTTP/1.1\r\n" HOST "X: a\0b\r\n\r\n"),
    BY_LIBRARY("GET /ping HTTP/1.1\r\n" HOST "X\0: a\r\n\r\n"),
    ROW("GET /ping HTTP/1.1\r\n" HOST "X(: a\r\n\r\n"),
    ROW("GET /ping HTTP/1.1\r\n" HOST ": a\r\n\r\n"),
    ROW("GET /ping HTTP/1.1\r\n" HOST "X: \x01\r\n\r\n"),
    BY_LIBRARY("GET /ping HTTP/1.1\r\n" HOST "nonsense\r\n\r\n"),
    ROW("GET /ping HTTP/1.1\n" HOST "\r\n"),
    ROW("GET /ping HTTP/1.1\r\nHost: t\n\r\n"),
    ROW("GET /ping HTTP/1.1\r\n" HOST "\n"),
    ROW("get /ping HTTP/1.1\r\n" HOST "\r\n"),
    ROW("Get /ping HTTP/1.1\r\n" HOST "\r\n"),
    ROW("GET\0 /ping HTTP/1.1\r\n" HOST "\r\n"),
    ROW("GET  /ping HTTP/1.1\r\n" HOST "\r\n"),
    ROW("GET /ping  HTTP/1.1\r\n" HOST "\r\n"),
    BY_LIBRARY("GET /ping HTTP/1.1 \r\n" HOST "\r\n"),
    ROW("GET /pi ng HTTP/1.1\r\n" HOST "\r\n"),
    ROW("GET /ping\0x HTTP/1.1\r\n" HOST "\r\n"),
    ROW("GET /ping?\0x HTTP/1.1\r\n" HOST "\r\n"),
    ROW("GET /ping%00 HTTP/1.1\r\n" HOST "\r\n"),
    ROW("GET /echo/a%2fb HTTP/1.1\r\n" HOST "\r\n"),
    ROW("GET /echo/a%5Cb HTTP/1.1\r\n" HOST "\r\n"),
    ROW("GET /echo/../ping HTTP/1.1\r\n" HOST "\r\n"),
    ROW("GET /echo/%2e%2e/ping HTTP/1.1\r\n" HOST "\r\n"),
    ROW("GET //ping HTTP/1.1\r\n" HOST "\r\n"),
    ROW("GET http://t/ping HTTP/1.1\r\n" HOST "\r\n"),
    ROW("GET ping HTTP/1.1\r\n" HOST "\r\n"),
    ROW("GET /ping#x HTTP/1.1\r\n" HOST "\r\n"),
    ROW("OPTIONS * HTTP/1.1\r\n" HOST "\r\n"),
    ROW("CONNECT t:80 HTTP/1.1\r\n" HOST "\r\n"),
    BY_LIBRARY("GET /ping\r\n" HOST "\r\n"),
    BY_LIBRARY("GET /ping HTTP/1.12\r\n" HOST "\r\n"),
    BY_LIBRARY("GET /ping http/1.1\r\n" HOST "\r\n"),
    BY_LIBRARY("GET /ping HTTP/2.0\r\n" HOST "\r\n"),
    BY_LIBRARY("GET /ping HTTP/0.9\r\n" HOST "\r\n"),
    CLOSED("GET\r\n\r\n"),
    BY_LIBRARY("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    CLOSED("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"),
};

static void ambiguous(void)
{
    static const char after[] = "GET /ping HTTP/1.1\r\nHost: t\r\n\r\n";
    uint64_t before = atomic_load(&executed);
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        struct client c;
        struct answer a;
        tap_note("row %zu: %.200s", i, refused[i].text);
        client_open(&c, port());
        (void)client_send(&c, refused[i].text, refused[i].len);
        (void)client_send(&c, after, sizeof after - 1);
        client_read(&c, &a, false, 5000);
        CHECK(refused[i].how == HOW_CLOSED ? a.status == 0
                                           : a.status == 400 || a.status == 413 || a.status == 505);
        CHECK(refused[i].how == HOW_BY_LIBRARY || c.in.len == 0);
        CHECK(refused[i].how != HOW_ANSWER ||
              strstr(answer_text(&a), "\"code\":\"invalid_request\"") != NULL);
        CHECK(client_ended(&c, 5000));
        answer_close(&a);
        client_close(&c);
    }
    CHECK_U64(atomic_load(&executed), before);
}

static void fat_heads(void)
{
    static const size_t sizes[] = {1000, 3000, 5000, 7000, 9000, 60000};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct client c;
        struct answer a;
        struct buf b = {.max = 1 << 20};
        buf_put_str(&b, "GET /ping HTTP/1.1\r\nHost: t\r\n");
        for (int k = 0; b.len < sizes[i]; k++) {
            buf_printf(&b, "X-Header-%d: some value of a header that has some length\r\n", k);
        }
        buf_put_str(&b, "\r\n");
        tap_note("head of %zu bytes", b.len);
        client_open(&c, port());
        (void)client_send(&c, b.data, b.len);
        client_read(&c, &a, false, 5000);
        CHECK(a.status == (sizes[i] <= 3000 ? 200 : sizes[i] >= 9000 ? 431 : a.status));
        CHECK(a.status == 200 || a.status == 431 || a.status == 413);
        answer_close(&a);
        client_close(&c);
        buf_close(&b);
    }
}

int main(void)
{
    start((struct http_options){.threads = 2});
    RUN(answers);
    RUN(problems);
    RUN(request_ids);
    RUN(keeps_alive);
    RUN(pipelines);
    RUN(old_clients);
    RUN(authentication_hook);
    RUN(bodies);
    RUN(expects_continue);
    RUN(media_types);
    RUN(allowed_methods);
    RUN(parameters);
    RUN(many_parameters);
    RUN(long_targets);
    RUN(ambiguous);
    RUN(fat_heads);
    stop();
    return tap_done();
}
