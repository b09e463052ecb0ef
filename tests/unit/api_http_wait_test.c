/* SPDX-License-Identifier: Apache-2.0 */
/* Parking, waking, streams and the feed, over real sockets. */
#include "api/http.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/mem.h"
#include "tests/harness/http_client.h"
#include "tests/harness/tap.h"

#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zlib.h>

/* --- the application: a door where requests wait, and a revision that is published --- */

struct api {
    pthread_mutex_t lock;
    struct exchange_ticket *tickets[4096];
    unsigned ticket_count;
    _Atomic uint64_t revision;
    _Atomic unsigned gone, timed_out, ended, dropped, stream_ends, polls;
};

static struct api app = {.lock = PTHREAD_MUTEX_INITIALIZER};
static struct http_server *server;

static void count_end(void *counter)
{
    atomic_fetch_add((_Atomic unsigned *)counter, 1);
}

static void on_door_open(struct exchange *x, void *arg)
{
    buf_printf(exchange_out(x), "woken with %s", (const char *)arg);
    mem_free(arg);
    exchange_reply(x, 200, "text/plain");
}

static void on_door_gone(struct exchange *x, bool timed_out)
{
    atomic_fetch_add(timed_out ? &app.timed_out : &app.gone, 1);
    if (timed_out) {
        struct err e;
        (void)err_set(&e, ERR_BEHIND, "nobody came");
        exchange_problem(x, &e, NULL, NULL);
    }
}

static void on_door(struct exchange *x)
{
    const struct slice *ms = exchange_param(x, "ms");
    uint64_t deadline = ms != NULL ? clock_mono_ms() + 50 : 0;
    exchange_on_end(x, count_end, &app.ended);
    struct exchange_ticket *t = exchange_ticket(x);
    /* Parked after the ticket is out: whoever is fast may use it before. */
    (void)pthread_mutex_lock(&app.lock);
    ASSERT(app.ticket_count < 4096);
    app.tickets[app.ticket_count++] = t;
    (void)pthread_mutex_unlock(&app.lock);
    exchange_park(x, on_door_open, on_door_gone, deadline);
}

static void drop(void *arg)
{
    mem_free(arg);
    atomic_fetch_add(&app.dropped, 1);
}

static unsigned open_door(void)
{
    (void)pthread_mutex_lock(&app.lock);
    unsigned n = app.ticket_count;
    for (unsigned i = 0; i < n; i++) {
        exchange_wake(app.tickets[i], mem_printf("%u", i), drop);
    }
    app.ticket_count = 0;
    (void)pthread_mutex_unlock(&app.lock);
    return n;
}

static void on_wait_open(struct exchange *x, void *arg)
{
    uint64_t revision = atomic_load(&app.revision);
    const struct slice *since = exchange_param(x, "since");
    (void)arg;
    atomic_fetch_add(&app.polls, 1);
    if (revision > (uint64_t)(since->data[0] - '0')) {
        buf_printf(exchange_out(x), "%llu", (unsigned long long)revision);
        exchange_reply(x, 200, "text/plain");
    }
}

static void on_wait_gone(struct exchange *x, bool timed_out)
{
    atomic_fetch_add(timed_out ? &app.timed_out : &app.gone, 1);
    if (timed_out) {
        exchange_reply(x, 204, NULL);
    }
}

/* A long poll: ?since=N, for 5 s, or 100 ms with &short. */
static void on_wait(struct exchange *x)
{
    exchange_follow_feed(x);
    exchange_park(x, on_wait_open, on_wait_gone,
                  clock_mono_ms() + (exchange_param(x, "short") != NULL ? 100 : 5000));
}

/* --- streams --- */

enum kind { NUMBERS, ENDLESS, SILENT, ABORTED, TICKS, FEED };

struct source {
    enum kind kind;
    unsigned at;
    uint64_t seen;
};

enum { NUMBER_COUNT = 200000, ABORT_AT = 20000 };

static enum stream_next next_number(struct source *s, struct buf *out)
{
    unsigned until = s->at + 1000;
    if (s->kind == ABORTED && s->at == ABORT_AT) {
        return STREAM_ABORT;
    }
    for (; s->at < until; s->at++) {
        buf_printf(out, "%u\n", s->at);
    }
    return s->kind != ENDLESS && s->at >= NUMBER_COUNT ? STREAM_END : STREAM_MORE;
}

static enum stream_next next(void *state, struct buf *out, uint64_t *ret_again_ms)
{
    struct source *s = state;
    uint64_t revision = atomic_load(&app.revision);
    switch (s->kind) {
    case NUMBERS:
    case ENDLESS:
    case ABORTED:
        return next_number(s, out);
    case SILENT:
        return STREAM_WAIT;
    case TICKS:
        buf_printf(out, "tick %u\n", s->at);
        *ret_again_ms = clock_mono_ms() + 10;
        return ++s->at == 5 ? STREAM_END : STREAM_WAIT;
    case FEED:
        if (s->at++ == 0 || revision > s->seen) {
            buf_printf(out, "id: %llu\n\n", (unsigned long long)revision);
            s->seen = revision;
        }
        return STREAM_WAIT;
    }
    return STREAM_ABORT;
}

static void end(void *state)
{
    mem_free(state);
    atomic_fetch_add(&app.stream_ends, 1);
}

static void on_stream(struct exchange *x)
{
    static const struct stream_ops ops = {next, end};
    struct source *s = mem_zalloc(sizeof *s);
    struct slice name = exchange_path(x, 0);
    static const char *const names[] = {"numbers", "endless", "silent", "aborted", "ticks", "feed"};
    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (name.len == strlen(names[i]) && memcmp(name.data, names[i], name.len) == 0) {
            s->kind = (enum kind)i;
        }
    }
    if (s->kind == FEED) {
        exchange_follow_feed(x);
    }
    exchange_stream(x, 200, "text/plain", true, &ops, s);
}

static void on_ping(struct exchange *x)
{
    buf_put_str(exchange_out(x), "pong");
    exchange_reply(x, 200, "text/plain");
}

static const struct api_route routes[] = {
    {API_GET, "/ping", on_ping, NULL, 0},
    {API_GET, "/door", on_door, (const char *const[]){"ms", NULL}, 0},
    {API_GET, "/wait", on_wait, (const char *const[]){"since", "short", NULL}, 0},
    {API_GET, "/stream/{kind}", on_stream, NULL, 0},
};

/* --- helpers --- */

static uint16_t port(void)
{
    return http_server_port(server);
}

static struct http_stats stats(void)
{
    struct http_stats s;
    http_server_stats(server, &s);
    return s;
}

static void start(struct http_options o)
{
    struct err e;
    o.addr = "127.0.0.1:0";
    o.routes = routes;
    o.route_count = sizeof routes / sizeof routes[0];
    o.app = &app;
    atomic_store(&app.revision, 0);
    atomic_store(&app.gone, 0);
    atomic_store(&app.timed_out, 0);
    atomic_store(&app.ended, 0);
    atomic_store(&app.dropped, 0);
    atomic_store(&app.stream_ends, 0);
    atomic_store(&app.polls, 0);
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

static bool parked_are(void *n)
{
    return stats().parked == *(unsigned *)n;
}

static bool followers_are(void *n)
{
    return stats().followers == *(unsigned *)n;
}

static bool streams_are(void *n)
{
    return stats().streams == *(unsigned *)n;
}

static bool connections_are(void *n)
{
    return stats().connections == *(unsigned *)n;
}

static bool wait_for(bool (*fn)(void *arg), unsigned n)
{
    return wait_until(fn, &n);
}

static void ask(struct client *c, const char *target)
{
    client_open(c, port());
    (void)client_print(c, "GET %s HTTP/1.1\r\nHost: t\r\n\r\n", target);
}

static unsigned open_files(void)
{
    unsigned n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (readdir(d) != NULL) {
        n++;
    }
    (void)closedir(d);
    return n;
}

static void publish(void)
{
    atomic_fetch_add(&app.revision, 1);
    http_server_published(server, atomic_load(&app.revision));
}

/* --- parking --- */

static void wakes_from_another_thread(void)
{
    enum { COUNT = 300 };
    static struct client c[COUNT];
    start((struct http_options){.threads = 2});
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < COUNT; i++) {
            if (round == 0) {
                client_open(&c[i], port());
            }
            (void)client_print(&c[i], "GET /door HTTP/1.1\r\nHost: t\r\n\r\n");
        }
        CHECK(wait_for(parked_are, COUNT));
        CHECK_U64(open_door(), COUNT);
        for (unsigned i = 0; i < COUNT; i++) {
            struct answer a;
            client_read(&c[i], &a, false, 5000);
            CHECK_U64(a.status, 200);
            CHECK(strncmp(answer_text(&a), "woken with ", 11) == 0);
            answer_close(&a);
        }
    }
    CHECK(wait_for(parked_are, 0));
    for (unsigned i = 0; i < COUNT; i++) {
        client_close(&c[i]);
    }
    CHECK(wait_for(connections_are, 0));
    CHECK_U64(atomic_load(&app.ended), 3 * COUNT);
    stop();
}

static _Atomic bool stop_waking;

static void *keep_waking(void *unused)
{
    (void)unused;
    while (!atomic_load(&stop_waking)) {
        (void)open_door();
    }
    return NULL;
}

/* A wake may come before the handler has parked. */
static void wakes_at_once(void)
{
    pthread_t thread;
    struct client c;
    start((struct http_options){.threads = 1});
    atomic_store(&stop_waking, false);
    CHECK(pthread_create(&thread, NULL, keep_waking, NULL) == 0);
    client_open(&c, port());
    for (int i = 0; i < 2000 && tap_failures() == 0; i++) {
        struct answer a;
        (void)client_print(&c, "GET /door HTTP/1.1\r\nHost: t\r\n\r\n");
        client_read(&c, &a, false, 5000);
        CHECK_U64(a.status, 200);
        answer_close(&a);
    }
    atomic_store(&stop_waking, true);
    (void)pthread_join(thread, NULL);
    client_close(&c);
    stop();
}

static void parked_in_a_pipeline(void)
{
    struct client c;
    struct answer a;
    start((struct http_options){.threads = 1});
    ask(&c, "/door");
    (void)client_print(
        &c, "GET /ping HTTP/1.1\r\nHost: t\r\n\r\nGET /door HTTP/1.1\r\nHost: t\r\n\r\n");
    for (int i = 0; i < 3; i++) {
        if (i != 1) {
            CHECK(wait_for(parked_are, 1));
            CHECK_U64(open_door(), 1);
        }
        client_read(&c, &a, false, 5000);
        CHECK_STR(answer_text(&a), i == 1 ? "pong" : "woken with 0");
        answer_close(&a);
    }
    client_close(&c);
    stop();
}

static void client_leaves_while_parked(void)
{
    enum { COUNT = 50 };
    struct client c[COUNT];
    start((struct http_options){.threads = 1});
    struct answer a;
    http_get(port(), "/ping", &a);
    answer_close(&a);
    CHECK(wait_for(connections_are, 0));
    unsigned before = open_files();
    for (unsigned i = 0; i < COUNT; i++) {
        ask(&c[i], "/door");
    }
    CHECK(wait_for(parked_are, COUNT));
    for (unsigned i = 0; i < COUNT; i++) {
        if (i % 2 == 0) {
            client_close(&c[i]);
        } else {
            client_reset(&c[i]);
        }
    }
    CHECK(wait_for(connections_are, 0));
    CHECK_U64(atomic_load(&app.gone), COUNT);
    CHECK_U64(atomic_load(&app.ended), COUNT);
    CHECK_U64(stats().client_gone, COUNT);
    CHECK_U64(open_files(), before);
    /* The tickets are still there. */
    CHECK_U64(open_door(), COUNT);
    http_get(port(), "/ping", &a);
    CHECK_U64(a.status, 200);
    answer_close(&a);
    stop();
    CHECK_U64(atomic_load(&app.dropped), COUNT);
}

static void park_deadline(void)
{
    struct client c;
    struct answer a;
    start((struct http_options){.threads = 1});
    ask(&c, "/door?ms=50");
    client_read(&c, &a, false, 5000);
    CHECK_U64(a.status, 503);
    CHECK(strstr(answer_text(&a), "nobody came") != NULL);
    answer_close(&a);
    CHECK_U64(atomic_load(&app.timed_out), 1);
    CHECK_U64(open_door(), 1);
    /* The connection lives on, and the late wake does not touch its next request. */
    (void)client_print(&c, "GET /ping HTTP/1.1\r\nHost: t\r\n\r\n");
    client_read(&c, &a, false, 5000);
    CHECK_STR(answer_text(&a), "pong");
    answer_close(&a);
    client_close(&c);
    stop();
    CHECK_U64(atomic_load(&app.dropped), 1);
}

static void stops_with_parked_ones(void)
{
    enum { COUNT = 40 };
    struct client c[COUNT];
    static const char *const targets[] = {"/door", "/wait?since=0", "/stream/silent",
                                          "/stream/endless"};
    start((struct http_options){.threads = 2});
    for (unsigned i = 0; i < COUNT; i++) {
        ask(&c[i], targets[i % 4]);
    }
    CHECK(wait_for(parked_are, COUNT / 2));
    CHECK(wait_for(streams_are, COUNT / 2));
    stop();
    CHECK_U64(atomic_load(&app.ended), COUNT / 4);
    CHECK_U64(atomic_load(&app.gone), COUNT / 2);
    CHECK_U64(atomic_load(&app.stream_ends), COUNT / 2);
    for (unsigned i = 0; i < COUNT; i++) {
        CHECK(client_ended(&c[i], 5000));
        client_close(&c[i]);
    }
    CHECK_U64(open_door(), COUNT / 4);
    CHECK_U64(atomic_load(&app.dropped), COUNT / 4);
}

/* --- the feed --- */

static void long_polls(void)
{
    enum { COUNT = 200 };
    static struct client c[COUNT];
    struct answer a;
    start((struct http_options){.threads = 2});
    for (unsigned i = 0; i < COUNT; i++) {
        ask(&c[i], i % 2 == 0 ? "/wait?since=0" : "/wait?since=1");
    }
    CHECK(wait_for(followers_are, COUNT));
    publish();
    CHECK(wait_for(followers_are, COUNT / 2));
    publish();
    for (unsigned i = 0; i < COUNT; i++) {
        client_read(&c[i], &a, false, 5000);
        CHECK_STR(answer_text(&a), i % 2 == 0 ? "1" : "2");
        answer_close(&a);
        client_close(&c[i]);
    }
    CHECK(wait_for(followers_are, 0));
    /* What was published before the request came is seen without another publish. */
    http_get(port(), "/wait?since=1", &a);
    CHECK_STR(answer_text(&a), "2");
    answer_close(&a);
    http_get(port(), "/wait?since=9&short", &a);
    CHECK_U64(a.status, 204);
    answer_close(&a);
    stop();
}

static void *keep_publishing(void *unused)
{
    (void)unused;
    while (!atomic_load(&stop_waking)) {
        http_server_published(server, atomic_load(&app.revision));
    }
    return NULL;
}

/* Publishes race with requests that begin to follow: none of them may miss one and wait for ever.
 */
static void no_publish_is_missed(void)
{
    struct client c;
    pthread_t thread;
    start((struct http_options){.threads = 1});
    atomic_store(&stop_waking, false);
    CHECK(pthread_create(&thread, NULL, keep_publishing, NULL) == 0);
    client_open(&c, port());
    for (int i = 0; i < 500 && tap_failures() == 0; i++) {
        struct answer a;
        atomic_store(&app.revision, 0);
        (void)client_print(&c, "GET /wait?since=0 HTTP/1.1\r\nHost: t\r\n\r\n");
        if (i % 2 == 0) {
            CHECK(wait_for(followers_are, 1));
        }
        atomic_store(&app.revision, 1);
        if (i % 4 == 3) {
            http_server_published(server, 1);
        }
        client_read(&c, &a, false, 4000);
        CHECK_U64(a.status, 200);
        answer_close(&a);
    }
    atomic_store(&stop_waking, true);
    (void)pthread_join(thread, NULL);
    client_close(&c);
    stop();
}

static void read_event(struct client *c, const char *event)
{
    uint64_t until = clock_mono_ms() + 10000;
    while (c->in.len == 0 || memmem(c->in.data, c->in.len, event, strlen(event)) == NULL) {
        uint64_t now = clock_mono_ms();
        if (!CHECK(now < until && client_more(c, (unsigned)(until - now)))) {
            return;
        }
    }
    c->in.len = 0;
}

static void many_followers(void)
{
    enum { COUNT = 2000 };
    static struct client c[COUNT];
    start((struct http_options){.threads = 2});
    for (unsigned i = 0; i < COUNT; i++) {
        ask(&c[i], "/stream/feed");
        read_event(&c[i], "id: 0\n\n");
    }
    for (unsigned round = 1; round <= 3 && tap_failures() == 0; round++) {
        char event[32];
        (void)snprintf(event, sizeof event, "id: %u\n\n", round);
        publish();
        for (unsigned i = 0; i < COUNT && tap_failures() == 0; i++) {
            read_event(&c[i], event);
        }
    }
    CHECK_U64(stats().followers, COUNT);
    for (unsigned i = 0; i < COUNT; i++) {
        client_close(&c[i]);
    }
    CHECK(wait_for(connections_are, 0));
    CHECK_U64(atomic_load(&app.stream_ends), COUNT);
    stop();
}

/* --- streams --- */

static void numbers(struct buf *out)
{
    *out = (struct buf){.max = 64 << 20};
    for (unsigned i = 0; i < NUMBER_COUNT; i++) {
        buf_printf(out, "%u\n", i);
    }
}

static void streams_in_chunks(void)
{
    struct client c;
    struct answer a;
    struct buf want;
    char value[64];
    numbers(&want);
    start((struct http_options){.threads = 1});
    ask(&c, "/stream/numbers");
    client_read(&c, &a, false, 20000);
    CHECK(a.status == 200 && !a.cut);
    CHECK(a.body.len == want.len && memcmp(a.body.data, want.data, want.len) == 0);
    CHECK_STR(answer_header(&a, "Transfer-Encoding", value, sizeof value), "chunked");
    CHECK_STR(answer_header(&a, "Vary", value, sizeof value), "Accept-Encoding");
    CHECK(answer_header(&a, "Content-Encoding", value, sizeof value) == NULL);
    answer_close(&a);
    (void)client_print(&c,
                       "HEAD /stream/numbers HTTP/1.1\r\nHost: t\r\nAccept-Encoding: gzip\r\n\r\n");
    client_read(&c, &a, true, 5000);
    CHECK_U64(a.status, 200);
    answer_close(&a);
    CHECK(client_ended(&c, 5000));
    client_close(&c);
    ask(&c, "/stream/ticks");
    client_read(&c, &a, false, 5000);
    CHECK_STR(answer_text(&a), "tick 0\ntick 1\ntick 2\ntick 3\ntick 4\n");
    answer_close(&a);
    (void)client_print(&c, "GET /stream/numbers HTTP/1.0\r\n\r\n");
    client_read(&c, &a, false, 20000);
    CHECK(a.body.len == want.len && memcmp(a.body.data, want.data, want.len) == 0);
    answer_close(&a);
    client_close(&c);
    CHECK(wait_for(connections_are, 0));
    CHECK_U64(atomic_load(&app.stream_ends), 4);
    stop();
    buf_close(&want);
}

static size_t gunzip(struct slice in, uint8_t *out, size_t size)
{
    z_stream z = {.avail_in = (unsigned)in.len, .avail_out = (unsigned)size, .next_out = out};
    uint8_t *copy = mem_dup(in.data, in.len);
    z.next_in = copy;
    CHECK(inflateInit2(&z, 15 + 16) == Z_OK);
    CHECK(inflate(&z, Z_FINISH) == Z_STREAM_END);
    size_t n = z.total_out;
    (void)inflateEnd(&z);
    mem_free(copy);
    return n;
}

static void compresses(void)
{
    static const struct {
        const char *accept;
        bool gzip;
    } rows[] = {{"gzip", true},          {"br, GZip;q=0.5", true},
                {"gzip;q=0", false},     {"gzip; q=0.0, br", false},
                {"identity", false},     {"xgzip", false},
                {"deflate, gzip", true}, {"*", false}};
    struct buf want;
    numbers(&want);
    uint8_t *got = mem_alloc(want.len + 1);
    start((struct http_options){.threads = 1});
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct client c;
        struct answer a;
        char value[64];
        tap_note("%s", rows[i].accept);
        client_open(&c, port());
        (void)client_print(&c,
                           "GET /stream/numbers HTTP/1.1\r\nHost: t\r\nAccept-Encoding: %s\r\n\r\n",
                           rows[i].accept);
        client_read(&c, &a, false, 20000);
        CHECK(a.status == 200 && !a.cut);
        bool gzip = answer_header(&a, "Content-Encoding", value, sizeof value) != NULL;
        CHECK(gzip == rows[i].gzip);
        CHECK(gzip == (a.body.len < want.len / 2));
        if (gzip) {
            CHECK_U64(gunzip(slice_of(a.body.data, a.body.len), got, want.len + 1), want.len);
            CHECK(memcmp(got, want.data, want.len) == 0);
        }
        answer_close(&a);
        client_close(&c);
    }
    stop();
    mem_free(got);
    buf_close(&want);
}

/* What a waiting reader of a compressed stream has must be complete up to the wait. */
static void compressed_waits_are_flushed(void)
{
    struct client c;
    struct answer a;
    uint8_t got[64];
    start((struct http_options){.threads = 1});
    client_open(&c, port());
    (void)client_print(&c,
                       "GET /stream/ticks HTTP/1.1\r\nHost: t\r\nAccept-Encoding: gzip\r\n\r\n");
    client_read(&c, &a, false, 5000);
    size_t n = gunzip(slice_of(a.body.data, a.body.len), got, sizeof got);
    CHECK(n == 35 && memcmp(got, "tick 0\ntick 1\ntick 2\ntick 3\ntick 4\n", n) == 0);
    answer_close(&a);
    client_close(&c);
    stop();
}

static void abort_is_seen(void)
{
    static const char *const requests[] = {
        "GET /stream/aborted HTTP/1.1\r\nHost: t\r\n\r\n",
        "GET /stream/aborted HTTP/1.1\r\nHost: t\r\nAccept-Encoding: gzip\r\n\r\n"};
    start((struct http_options){.threads = 1});
    for (int i = 0; i < 2; i++) {
        struct client c;
        struct answer a;
        client_open(&c, port());
        (void)client_print(&c, "%s", requests[i]);
        client_read(&c, &a, false, 5000);
        CHECK_U64(a.status, 200);
        CHECK(a.cut);
        CHECK(i > 0 || a.body.len > 0);
        answer_close(&a);
        client_close(&c);
    }
    /* Without chunks only a reset shows it. */
    struct client c;
    char sink[4096];
    ssize_t n;
    client_open(&c, port());
    (void)client_print(&c, "GET /stream/aborted HTTP/1.0\r\n\r\n");
    do {
        n = recv(c.fd, sink, sizeof sink, 0);
    } while (n > 0);
    CHECK(n < 0);
    client_close(&c);
    CHECK(wait_for(connections_are, 0));
    CHECK_U64(atomic_load(&app.stream_ends), 3);
    stop();
}

static bool one_timed_out(void *unused)
{
    (void)unused;
    return stats().timed_out == 1;
}

static void slow_reader_is_cut(void)
{
    struct client slow, fast;
    struct answer a;
    start((struct http_options){.threads = 1, .stall_ms = 200});
    ask(&slow, "/stream/endless");
    ask(&fast, "/stream/endless");
    uint64_t until = clock_mono_ms() + 10000;
    while (stats().timed_out == 0 && clock_mono_ms() < until) {
        (void)client_more(&fast, 10);
        fast.in.len = 0;
        http_get(port(), "/ping", &a);
        CHECK_U64(a.status, 200);
        answer_close(&a);
    }
    CHECK(wait_until(one_timed_out, NULL));
    client_read(&slow, &a, false, 5000);
    CHECK(a.cut);
    answer_close(&a);
    /* The other one is served on. */
    for (int i = 0; i < 20; i++) {
        CHECK(client_more(&fast, 5000));
        fast.in.len = 0;
    }
    client_close(&slow);
    client_close(&fast);
    stop();
}

/* Nothing to send is no stall. */
static void silent_streams_live(void)
{
    struct client c;
    struct answer a;
    start((struct http_options){.threads = 1, .stall_ms = 100, .idle_ms = 100, .request_ms = 100});
    ask(&c, "/stream/feed");
    read_event(&c, "id: 0\n\n");
    uint64_t until = clock_mono_ms() + 500;
    while (clock_mono_ms() < until) {
        http_get(port(), "/ping", &a);
        answer_close(&a);
    }
    publish();
    read_event(&c, "id: 1\n\n");
    CHECK_U64(stats().timed_out, 0);
    client_close(&c);
    stop();
}

static void vanished_reader_is_noticed(void)
{
    enum { COUNT = 20 };
    struct client c[COUNT];
    static const char *const targets[] = {"/stream/silent", "/stream/endless", "/stream/feed"};
    start((struct http_options){.threads = 1});
    for (unsigned i = 0; i < COUNT; i++) {
        ask(&c[i], targets[i % 3]);
        CHECK(client_more(&c[i], 5000));
    }
    CHECK(wait_for(streams_are, COUNT));
    for (unsigned i = 0; i < COUNT; i++) {
        if (i % 2 == 0) {
            client_close(&c[i]);
        } else {
            client_reset(&c[i]);
        }
    }
    CHECK(wait_for(connections_are, 0));
    CHECK_U64(atomic_load(&app.stream_ends), COUNT);
    CHECK_U64(stats().followers, 0);
    stop();
}

int main(void)
{
    RUN(wakes_from_another_thread);
    RUN(wakes_at_once);
    RUN(parked_in_a_pipeline);
    RUN(client_leaves_while_parked);
    RUN(park_deadline);
    RUN(stops_with_parked_ones);
    RUN(long_polls);
    RUN(no_publish_is_missed);
    RUN(many_followers);
    RUN(streams_in_chunks);
    RUN(compresses);
    RUN(compressed_waits_are_flushed);
    RUN(abort_is_seen);
    RUN(slow_reader_is_cut);
    RUN(silent_streams_live);
    RUN(vanished_reader_is_noticed);
    return tap_done();
}
