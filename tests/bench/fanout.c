/* SPDX-License-Identifier: Apache-2.0 */
/* One change to N watchers: opens N streams, sends one request that makes an event, and takes the
 * time from before that to the event's arrival at each stream.
 *
 *   fanout PORT WATCHERS ROUNDS MARK PATH OPEN-BODY POST-PORT POST-PATH [BODY…]
 *
 * MARK is what every event has once ("event: "). A stream is opened with GET, or with POST when
 * OPEN-BODY is not empty. One BODY a round, then from the first again. Prints {"open":N}, waits for
 * a line on its input, and prints one JSON object a round: last_ms, median_ms, bytes. */
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
static uint64_t watcher_count, bytes_read;
static const char *mark;
static size_t mark_len;

/* Does the stream, over the edge of two reads, contain the mark? */
static bool saw_event(struct watcher *w, const char *data, size_t len)
{
    static char joined[READ_BYTES + TAIL];
    memcpy(joined, w->tail, w->tail_len);
    memcpy(joined + w->tail_len, data, len);
    size_t n = w->tail_len + len;
    bool found = memmem(joined, n, mark, mark_len) != NULL;
    w->tail_len = found ? 0 : n < mark_len - 1 ? n : mark_len - 1;
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
        bytes_read += (uint64_t)got;
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

static void send_request(int fd, const char *path, const char *body, bool post)
{
    struct buf b;
    buf_init(&b, 1 << 20);
    buf_printf(&b, "%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\n", post ? "POST" : "GET", path);
    if (post) {
        buf_printf(&b, "Content-Type: application/json\r\nContent-Length: %zu\r\n", strlen(body));
    }
    buf_printf(&b, "\r\n%s", body);
    load_write(fd, (const char *)b.data, b.len);
    buf_close(&b);
}

static int open_streams(uint16_t port, const char *path, const char *body)
{
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    for (uint64_t i = 0; i < watcher_count; i++) {
        struct epoll_event ev = {.events = EPOLLIN, .data.ptr = &watchers[i]};
        watchers[i].fd = load_connect(port);
        send_request(watchers[i].fd, path, body, body[0] != '\0');
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, watchers[i].fd, &ev) != 0) {
            exit(1);
        }
    }
    return epoll;
}

static bool run_round(int epoll, int command, const char *path, const char *body, uint64_t round)
{
    struct load_samples samples = {0};
    uint64_t since = clock_mono_ns(), before = bytes_read;
    send_request(command, path, body, true);
    if (!pump_all(epoll, round, &samples, since)) {
        (void)fprintf(stderr, "fanout: round %" PRIu64 " did not reach everyone\n", round);
        return false;
    }
    (void)printf("{\"last_ms\":%.3f,\"median_ms\":%.3f,\"bytes\":%" PRIu64 "}\n",
                 load_percentile(&samples, 1.0) / 1000.0, load_percentile(&samples, 0.5) / 1000.0,
                 (bytes_read - before) / watcher_count);
    mem_free(samples.us);
    return true;
}

int main(int argc, char **argv)
{
    uint64_t port = 0, post_port = 0, rounds = 0;
    struct rlimit files;
    if (argc < 9 || !parse_u64(argv[1], 65535, &port) ||
        !parse_u64(argv[2], WATCHERS_MAX, &watcher_count) || !parse_u64(argv[3], 1000, &rounds) ||
        !parse_u64(argv[7], 65535, &post_port)) {
        (void)fprintf(stderr, "usage: see the top of tests/bench/fanout.c\n");
        return 2;
    }
    mark = argv[4];
    mark_len = strlen(mark);
    if (mark_len < 1 || mark_len > TAIL) {
        return 2;
    }
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    struct load_samples ignored = {0};
    int epoll = open_streams((uint16_t)port, argv[5], argv[6]);
    if (!pump_all(epoll, 0, &ignored, 0)) {
        (void)fprintf(stderr, "fanout: not every stream was opened\n");
        return 1;
    }
    (void)printf("{\"open\":%" PRIu64 "}\n", watcher_count);
    (void)fflush(stdout);
    char line[16];
    if (fgets(line, sizeof line, stdin) == NULL) {
        return 1;
    }
    int command = load_connect((uint16_t)post_port), bodies = argc - 9;
    for (uint64_t round = 1; round <= rounds; round++) {
        const char *body = bodies > 0 ? argv[9 + (int)((round - 1) % (uint64_t)bodies)] : "";
        if (!run_round(epoll, command, argv[8], body, round)) {
            return 1;
        }
    }
    return 0;
}
