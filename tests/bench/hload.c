/* SPDX-License-Identifier: Apache-2.0 */
/* A load generator for HTTP/1.1: one request in flight on each of N keep-alive connections.
 *
 *   hload PORT N SECONDS PREFIX             GET of the prefix and a random key
 *   hload PORT N SECONDS POST PATH KEYS     POST {"keys":[KEYS random keys]}
 *   hload PORT N SECONDS LINES PATH FILE    POST of a random line of FILE
 *   hload PORT N SECONDS MOVE PREFIX FILE   POST PREFIX<id>/move, one partition of FILE (an id a
 *                                           line) a connection, from n1 to n2 and back
 *   hload PORT N burst PREFIX               one GET on each connection at once
 *
 * Prints one JSON object: requests, seconds, errors, p50_us, p99_us, max_us, and of a burst the
 * time from the first answer to the last. */
#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/parse.h"
#include "tests/bench/load.h"
#include "tests/harness/tap.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { CONNECTIONS_MAX = 16384, EVENTS = 256, BURST_DEADLINE_MS = 10000, LINES_MAX = 4096 };

static struct load_conn conns[CONNECTIONS_MAX];
static struct load_samples samples;
static struct tap_rand rng = {42};
static uint64_t requests, errors;

struct plan {
    uint16_t port;
    uint64_t connections, seconds, keys;
    bool burst, move;
    const char *path;
    uint64_t *partitions; /* of MOVE, one a connection; owns */
    char **lines;         /* of LINES; owns */
    uint64_t line_count;
    struct buf request;
};

static void make_get(struct plan *p)
{
    buf_printf(&p->request, "GET %s%016" PRIx64 " HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", p->path,
               tap_rand(&rng));
}

static void make_line(struct plan *p)
{
    const char *line = p->lines[tap_rand_below(&rng, p->line_count)];
    buf_printf(&p->request,
               "POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
               "Content-Length: %zu\r\n\r\n",
               p->path, strlen(line));
    buf_put_str(&p->request, line);
}

static void make_post(struct plan *p)
{
    struct buf body;
    buf_init(&body, 8 << 20);
    for (uint64_t i = 0; i < p->keys; i++) {
        buf_printf(&body, "%s\"%016" PRIx64 "\"", i > 0 ? "," : "{\"keys\":[", tap_rand(&rng));
    }
    buf_put_str(&body, "]}");
    buf_printf(&p->request,
               "POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
               "Content-Length: %zu\r\n\r\n",
               p->path, body.len);
    buf_put(&p->request, body.data, body.len);
    buf_close(&body);
}

static void make_move(struct plan *p, const struct load_conn *c)
{
    static bool there[CONNECTIONS_MAX]; /* its partition is on n2 */
    size_t at = (size_t)(c - conns);
    int from = there[at] ? 2 : 1, to = there[at] ? 1 : 2;
    char body[96];
    int n =
        snprintf(body, sizeof body, "{\"from\":\"n%d\",\"to\":\"n%d\",\"empty\":true}", from, to);
    there[at] = !there[at];
    buf_printf(&p->request,
               "POST %s%" PRIu64 "/move HTTP/1.1\r\nHost: 127.0.0.1\r\n"
               "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
               p->path, p->partitions[at], n, body);
}

static void send_next(struct plan *p, struct load_conn *c)
{
    buf_reset(&p->request);
    if (p->move) {
        make_move(p, c);
    } else if (p->lines != NULL) {
        make_line(p);
    } else if (p->keys > 0) {
        make_post(p);
    } else {
        make_get(p);
    }
    c->sent_ns = clock_mono_ns();
    load_write(c->fd, (const char *)p->request.data, p->request.len);
}

/* True when a response was completed. */
static bool receive(struct load_conn *c)
{
    int status = 0;
    ssize_t n = read(c->fd, c->buffer + c->have, LOAD_BUFFER - c->have);
    if (n <= 0) {
        (void)fprintf(stderr, "hload: the server closed a connection\n");
        exit(1);
    }
    c->have += (size_t)n;
    size_t length = load_response(c->buffer, c->have, &status);
    if (length == 0) {
        return false;
    }
    c->have -= length;
    memmove(c->buffer, c->buffer + length, c->have);
    load_sample(&samples, clock_mono_ns() - c->sent_ns);
    requests++;
    errors += status != 200 && status != 202;
    return true;
}

static int open_all(struct plan *p)
{
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    for (uint64_t i = 0; i < p->connections; i++) {
        conns[i] =
            (struct load_conn){.fd = load_connect(p->port), .buffer = mem_alloc(LOAD_BUFFER)};
        struct epoll_event ev = {.events = EPOLLIN, .data.ptr = &conns[i]};
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, conns[i].fd, &ev) != 0) {
            exit(1);
        }
    }
    return epoll;
}

static void run(struct plan *p, int epoll)
{
    struct epoll_event events[EVENTS];
    uint64_t started = clock_mono_ns(), limit = p->burst ? BURST_DEADLINE_MS * UINT64_C(1000000)
                                                         : p->seconds * UINT64_C(1000000000);
    for (uint64_t i = 0; i < p->connections; i++) {
        send_next(p, &conns[i]);
    }
    uint64_t first = 0;
    while (clock_mono_ns() - started < limit && !(p->burst && requests == p->connections)) {
        int n = epoll_wait(epoll, events, EVENTS, 100);
        for (int i = 0; i < n; i++) {
            struct load_conn *c = events[i].data.ptr;
            if (receive(c)) {
                first = first == 0 ? clock_mono_ns() : first;
                if (!p->burst) {
                    send_next(p, c);
                }
            }
        }
    }
    uint64_t ended = clock_mono_ns();
    (void)printf("{\"requests\":%" PRIu64 ",\"seconds\":%.4f,\"errors\":%" PRIu64
                 ",\"p50_us\":%u,\"p99_us\":%u,\"max_us\":%u,\"spread_ms\":%.3f}\n",
                 requests, (double)(ended - started) / 1e9, errors, load_percentile(&samples, 0.5),
                 load_percentile(&samples, 0.99), load_percentile(&samples, 1.0),
                 first > 0 ? (double)(ended - first) / 1e6 : -1.0);
}

static bool read_partitions(struct plan *p, const char *path)
{
    char line[32];
    uint64_t n = 0;
    FILE *f = fopen(path, "r");
    p->partitions = mem_alloc(p->connections * sizeof *p->partitions);
    while (f != NULL && n < p->connections && fgets(line, sizeof line, f) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (!parse_u64(line, PARSE_INT_MAX, &p->partitions[n++])) {
            n = 0;
            break;
        }
    }
    if (f != NULL) {
        (void)fclose(f);
    }
    return n == p->connections;
}

static bool read_lines(struct plan *p, const char *path)
{
    char *line = NULL;
    size_t size = 0;
    ssize_t n;
    FILE *f = fopen(path, "r");
    p->lines = mem_alloc(LINES_MAX * sizeof *p->lines);
    while (f != NULL && p->line_count < LINES_MAX && (n = getline(&line, &size, f)) > 0) {
        line[strcspn(line, "\n")] = '\0';
        p->lines[p->line_count++] = mem_strdup(line);
    }
    free(line);
    if (f != NULL) {
        (void)fclose(f);
    }
    return p->line_count > 0;
}

int main(int argc, char **argv)
{
    uint64_t port = 0;
    struct plan p = {.path = argc > 4 ? argv[4] : NULL};
    bool ok = argc >= 5 && parse_u64(argv[1], 65535, &port) &&
              parse_u64(argv[2], CONNECTIONS_MAX, &p.connections) && p.connections > 0;
    p.burst = ok && strcmp(argv[3], "burst") == 0;
    ok = ok && (p.burst || parse_u64(argv[3], 3600, &p.seconds));
    if (ok && argc == 7 && strcmp(argv[4], "POST") == 0) {
        p.path = argv[5];
        ok = parse_u64(argv[6], 10000, &p.keys) && p.keys > 0;
    } else if (ok && argc == 7 && strcmp(argv[4], "MOVE") == 0) {
        p.path = argv[5];
        p.move = true;
        ok = read_partitions(&p, argv[6]);
    } else if (ok && argc == 7 && strcmp(argv[4], "LINES") == 0) {
        p.path = argv[5];
        ok = read_lines(&p, argv[6]);
    } else if (argc != 5) {
        ok = false;
    }
    if (!ok) {
        (void)fprintf(stderr, "usage: see the top of tests/bench/hload.c\n");
        return 2;
    }
    p.port = (uint16_t)port;
    buf_init(&p.request, 16 << 20);
    run(&p, open_all(&p));
    return errors > 0 ? 1 : 0;
}
