/* SPDX-License-Identifier: Apache-2.0 */
/* Slow clients, many clients, limits, starting and stopping. */
#include "api/http.h"
#include "base/clock.h"
#include "tests/harness/http_client.h"
#include "tests/harness/tap.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct http_server *server;

static uint16_t port(void)
{
    return http_server_port(server);
}

static void on_ping(struct exchange *x)
{
    buf_put_str(exchange_out(x), "pong");
    exchange_reply(x, 200, "text/plain");
}

static void on_body(struct exchange *x)
{
    buf_put_u64_dec(exchange_out(x), exchange_body(x).len);
    exchange_reply(x, 200, "text/plain");
}

static void on_big(struct exchange *x)
{
    struct buf *out = exchange_out(x);
    for (int i = 0; i < 1 << 17; i++) {
        buf_put(out, "0123456789abcdef0123456789abcdef", 32);
    }
    exchange_reply(x, 200, "text/plain");
}

static _Atomic bool holding, released;

static bool is_true(void *flag)
{
    return atomic_load((_Atomic bool *)flag);
}

/* Keeps its worker until it is released. */
static void on_hold(struct exchange *x)
{
    atomic_store(&holding, true);
    CHECK(wait_until(is_true, &released));
    on_ping(x);
}

static const struct api_route routes[] = {
    {API_GET, "/hold", on_hold, NULL, 0},
    {API_GET, "/ping", on_ping, NULL, 0},
    {API_POST, "/body", on_body, NULL, API_ROUTE_BODY},
    {API_GET, "/big", on_big, NULL, 0},
};

static void start(struct http_options o)
{
    struct err e;
    o.addr = "127.0.0.1:0";
    o.routes = routes;
    o.route_count = sizeof routes / sizeof routes[0];
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

/* --- slow clients --- */

static void cuts_slow_clients(void)
{
    static const char *const starts[] = {
        "", "GE", "GET /ping HTTP/1.1\r\nHost: t\r\nX: ",
        "POST /body HTTP/1.1\r\nHost: t\r\nContent-Length: 100000\r\n\r\n",
        "POST /body HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n400000\r\n"};
    enum { COUNT = sizeof starts / sizeof starts[0] };
    struct client c[COUNT];
    bool ended[COUNT] = {false};
    unsigned left = COUNT, pings = 0;
    start((struct http_options){.threads = 1, .request_ms = 200, .idle_ms = 300});
    for (unsigned i = 0; i < COUNT; i++) {
        client_open(&c[i], port());
        (void)client_print(&c[i], "%s", starts[i]);
    }
    uint64_t until = clock_mono_ms() + 10000;
    while (left > 0 && clock_mono_ms() < until) {
        struct answer a;
        for (unsigned i = 0; i < COUNT; i++) {
            if (!ended[i] && ((i > 0 && !client_print(&c[i], "a")) || client_ended(&c[i], 5))) {
                ended[i] = true;
                left--;
            }
        }
        http_get(port(), "/ping", &a);
        CHECK_U64(a.status, 200);
        pings++;
        answer_close(&a);
    }
    CHECK_U64(left, 0);
    CHECK(pings > 3);
    struct http_stats s;
    http_server_stats(server, &s);
    CHECK(s.timed_out >= 3);
    for (unsigned i = 0; i < COUNT; i++) {
        client_close(&c[i]);
    }
    stop();
}

static void closes_idle_connections(void)
{
    struct client c;
    struct answer a;
    start((struct http_options){.threads = 1, .request_ms = 150, .idle_ms = 300});
    client_open(&c, port());
    (void)client_print(&c, "GET /ping HTTP/1.1\r\nHost: t\r\n\r\n");
    client_read(&c, &a, false, 5000);
    uint64_t from = clock_mono_ms();
    answer_close(&a);
    /* Dripping a request line does not keep it open. */
    while (client_print(&c, "G") && !client_ended(&c, 10) && clock_mono_ms() - from < 8000) {
    }
    CHECK(clock_mono_ms() - from >= 290);
    CHECK(clock_mono_ms() - from < 8000);
    client_close(&c);
    stop();
}

/* A client that asks for much and takes nothing. */
static void cuts_readers_that_stall(void)
{
    struct client c;
    struct answer a;
    start((struct http_options){.threads = 1, .stall_ms = 200});
    client_open(&c, port());
    (void)client_print(&c,
                       "GET /big HTTP/1.1\r\nHost: t\r\n\r\nGET /big HTTP/1.1\r\nHost: t\r\n\r\n");
    struct http_stats s = {0};
    uint64_t until = clock_mono_ms() + 10000;
    while (s.timed_out == 0 && clock_mono_ms() < until) {
        http_get(port(), "/ping", &a);
        answer_close(&a);
        http_server_stats(server, &s);
    }
    CHECK_U64(s.timed_out, 1);
    client_read(&c, &a, false, 5000);
    CHECK(a.cut || a.status == 200);
    answer_close(&a);
    client_close(&c);
    stop();
}

/* Lines within a chunked body that never end and do not fit: libmicrohttpd would ask to be run
 * again for ever. */
static void cuts_what_is_stuck(void)
{
    static const char *const starts[] = {"5;", "0", "1\r\na\r\n0\r\nX: ", "1\r\na\r\n7;"};
    char filler[1024];
    memset(filler, '0', sizeof filler);
    start((struct http_options){.threads = 1});
    for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++) {
        struct client c;
        tap_note("%s", starts[i]);
        client_open(&c, port());
        (void)client_print(&c,
                           "POST /body HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n%s",
                           starts[i]);
        for (int k = 0; k < 30 && client_send(&c, filler, sizeof filler); k++) {
        }
        CHECK(client_ended(&c, 5000));
        client_close(&c);
    }
    stop();
}

/* --- many at once --- */

/* All requests are there before the worker looks: libmicrohttpd's own loop stops for ever at
 * multiples of 128. */
static void bursts(void)
{
    static const unsigned counts[] = {127, 128, 129, 256, 384, 512, 1000};
    enum { MOST = 1000 };
    static struct client c[MOST];
    struct client holder;
    start((struct http_options){.threads = 1});
    client_open(&holder, port());
    for (unsigned i = 0; i < MOST; i++) {
        struct answer a;
        client_open(&c[i], port());
        (void)client_print(&c[i], "GET /ping HTTP/1.1\r\nHost: t\r\n\r\n");
        client_read(&c[i], &a, false, 5000);
        CHECK_U64(a.status, 200);
        answer_close(&a);
    }
    for (size_t k = 0; k < sizeof counts / sizeof counts[0] && tap_failures() == 0; k++) {
        tap_note("%u at once", counts[k]);
        atomic_store(&holding, false);
        atomic_store(&released, false);
        (void)client_print(&holder, "GET /hold HTTP/1.1\r\nHost: t\r\n\r\n");
        CHECK(wait_until(is_true, &holding));
        for (unsigned i = 0; i < counts[k]; i++) {
            (void)client_print(&c[i], "GET /ping HTTP/1.1\r\nHost: t\r\n\r\n");
        }
        atomic_store(&released, true);
        uint64_t until = clock_mono_ms() + 5000;
        for (unsigned i = 0; i < counts[k]; i++) {
            struct answer a;
            uint64_t now = clock_mono_ms();
            client_read(&c[i], &a, false, now < until ? (unsigned)(until - now) : 0);
            CHECK_U64(a.status, 200);
            answer_close(&a);
        }
        struct answer a;
        client_read(&holder, &a, false, 5000);
        CHECK_U64(a.status, 200);
        answer_close(&a);
    }
    for (unsigned i = 0; i < MOST; i++) {
        client_close(&c[i]);
    }
    client_close(&holder);
    stop();
}

static void limits_connections(void)
{
    enum { MOST = 8, ALL = MOST + 64 + 8 };
    struct client c[ALL];
    unsigned ok = 0, busy = 0, closed = 0;
    start((struct http_options){.threads = 2, .connections_max = MOST});
    for (unsigned i = 0; i < ALL; i++) {
        struct answer a;
        client_open(&c[i], port());
        (void)client_print(&c[i], "GET /ping HTTP/1.1\r\nHost: t\r\n");
        if (i < MOST) {
            (void)client_print(&c[i], "\r\n");
            client_read(&c[i], &a, false, 5000);
            ok += a.status == 200;
            answer_close(&a);
        }
    }
    for (unsigned i = MOST; i < ALL; i++) {
        struct answer a;
        (void)client_print(&c[i], "\r\n");
        client_read(&c[i], &a, false, 5000);
        busy += a.status == 503;
        closed += a.status == 0;
        CHECK(client_ended(&c[i], 5000));
        answer_close(&a);
    }
    CHECK_U64(ok, MOST);
    CHECK(busy >= 32 && closed >= 1);
    for (unsigned i = 0; i < ALL; i++) {
        client_close(&c[i]);
    }
    stop();
}

/* --- start and stop --- */

static void addresses(void)
{
    static const char *const bad[] = {
        "", "nonsense", "127.0.0.1", "127.0.0.1:x", ":", "[::1", "no.such.host.invalid:1"};
    struct http_options o = {.routes = routes, .threads = 1};
    o.route_count = sizeof routes / sizeof routes[0];
    struct http_server *s, *again;
    struct err e;
    char taken[32];
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        o.addr = bad[i];
        tap_note("%s", bad[i]);
        CHECK_U64(http_server_start(&o, &s, &e), ERR_IO);
    }
    o.addr = ":0";
    CHECK_U64(http_server_start(&o, &s, &e), ERR_OK);
    struct answer a;
    http_get(http_server_port(s), "/ping", &a);
    CHECK_U64(a.status, 200);
    answer_close(&a);
    (void)snprintf(taken, sizeof taken, "127.0.0.1:%u", http_server_port(s));
    o.addr = taken;
    CHECK_U64(http_server_start(&o, &again, &e), ERR_IO);
    CHECK(strstr(e.detail, taken) != NULL && strstr(e.detail, "in use") != NULL);
    http_server_stop(s);
}

int main(void)
{
    RUN(cuts_slow_clients);
    RUN(closes_idle_connections);
    RUN(cuts_readers_that_stall);
    RUN(cuts_what_is_stuck);
    RUN(bursts);
    RUN(limits_connections);
    RUN(addresses);
    return tap_done();
}
