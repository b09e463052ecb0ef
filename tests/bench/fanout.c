/* SPDX-License-Identifier: Apache-2.0 */
/* One change to N watchers: opens N Server-Sent Event streams, sends one request that makes an
 * event, and takes the time from before that to the event's arrival at each stream.
 *
 *   fanout PORT WATCHERS ROUNDS SSE-PATH POST-PORT POST-PATH [BODY…]     one body a round, the last
 * one again
 *
 * Prints one JSON object a round: last_ms, median_ms. Streams must carry "event: " lines; comments
 * are skipped. */
#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/parse.h"
#include "tests/bench/load.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

enum { WATCHERS_MAX = 16384, EVENTS = 512, TAIL = 64, DEADLINE_MS = 60000, READ_BYTES = 65536 };

struct watcher {
    int fd;
    bool open;       /* its response began */
    uint64_t round;  /* the last one whose event it has */
    char tail[TAIL]; /* the end of what was read, so that a mark cut in two is seen */
    size_t tail_len;
};

static struct watcher watchers[WATCHERS_MAX];
static uint64_t watcher_count;

/* Does the stream, over the edge of two reads, contain "event: "? */
static bool saw_event(struct watcher *w, const char *data, size_t len)
{
    static char joined[READ_BYTES + TAIL];
    memcpy(joined, w->tail, w->tail_len);
    memcpy(joined + w->tail_len, data, len);
    size_t n = w->tail_len + len;
    bool found = memmem(joined, n, "event: ", 7) != NULL;
    w->tail_len = found ? 0 : n < 6 ? n : 6;
    memcpy(w->tail, joined + n - w->tail_len, w->tail_len);
    return found;
}

/* Returns how many watchers changed: got their response (round 0), or the round's event. */
static uint64_t pump(int epoll, uint64_t round, struct load_samples *samples, uint64_t since_ns)
{
    static char data[READ_BYTES];
    struct epoll_event events[EVENTS];
    uint64_t changed = 0;
    int n = epoll_wait(epoll, events, EVENTS, 100);
    for (int i = 0; i < n; i++) {
        struct watcher *w = events[i].data.ptr;
        ssize_t got = read(w->fd, data, sizeof data);
        if (got <= 0) {
            if (got < 0 && errno == EAGAIN) {
                continue;
            }
            (void)fprintf(stderr, "fanout: a stream was closed\n");
            exit(1);
        }
        if (!w->open) {
            w->open = true;
            changed += round == 0;
        }
        if (saw_event(w, data, (size_t)got) && w->round < round) {
            w->round = round;
            load_sample(samples, clock_mono_ns() - since_ns);
            changed++;
        }
    }
    return changed;
}

static bool pump_all(int epoll, uint64_t round, struct load_samples *samples, uint64_t since_ns)
{
    uint64_t until = clock_mono_ms() + DEADLINE_MS, done = 0;
    while (done < watcher_count && clock_mono_ms() < until) {
        done += pump(epoll, round, samples, since_ns);
    }
    return done == watcher_count;
}

static int open_streams(uint16_t port, const char *path)
{
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    char request[1024];
    int n = snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", path);
    for (uint64_t i = 0; i < watcher_count; i++) {
        struct epoll_event ev = {.events = EPOLLIN, .data.ptr = &watchers[i]};
        watchers[i].fd = load_connect(port);
        load_write(watchers[i].fd, request, (size_t)n);
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, watchers[i].fd, &ev) != 0) {
            exit(1);
        }
    }
    return epoll;
}

static void post(int fd, const char *path, const char *body)
{
    struct buf b;
    buf_init(&b, 1 << 20);
    buf_printf(&b,
               "POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
               "Content-Length: %zu\r\n\r\n%s",
               path, strlen(body), body);
    load_write(fd, (const char *)b.data, b.len);
    buf_close(&b);
}

int main(int argc, char **argv)
{
    uint64_t port = 0, post_port = 0, rounds = 0;
    struct rlimit files;
    if (argc < 7 || !parse_u64(argv[1], 65535, &port) ||
        !parse_u64(argv[2], WATCHERS_MAX, &watcher_count) || !parse_u64(argv[3], 1000, &rounds) ||
        !parse_u64(argv[5], 65535, &post_port)) {
        (void)fprintf(stderr, "usage: see the top of tests/bench/fanout.c\n");
        return 2;
    }
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    struct load_samples ignored = {0};
    int epoll = open_streams((uint16_t)port, argv[4]);
    if (!pump_all(epoll, 0, &ignored, 0)) {
        (void)fprintf(stderr, "fanout: not every stream was opened\n");
        return 1;
    }
    int command = load_connect((uint16_t)post_port);
    for (uint64_t round = 1; round <= rounds; round++) {
        struct load_samples samples = {0};
        int last = argc - 1, at = 6 + (int)round;
        uint64_t since = clock_mono_ns();
        post(command, argv[6], argc == 7 ? "" : argv[at < last ? at : last]);
        if (!pump_all(epoll, round, &samples, since)) {
            (void)fprintf(stderr, "fanout: round %" PRIu64 " did not reach everyone\n", round);
            return 1;
        }
        (void)printf("{\"last_ms\":%.3f,\"median_ms\":%.3f}\n",
                     load_percentile(&samples, 1.0) / 1000.0,
                     load_percentile(&samples, 0.5) / 1000.0);
        mem_free(samples.us);
    }
    return 0;
}
