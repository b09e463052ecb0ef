/* SPDX-License-Identifier: Apache-2.0 */
/* A load generator for ZooKeeper, in its own protocol: one request in flight on each of N sessions.
 *
 *   zkload PORT SESSIONS SECONDS get|set NODES     of /bench/0 … /bench/<NODES-1>, made first
 *
 * Prints one JSON object, as hload does. */
#include "base/clock.h"
#include "base/mem.h"
#include "base/parse.h"
#include "tests/bench/load.h"
#include "tests/harness/tap.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum {
    SESSIONS_MAX = 1024,
    EVENTS = 256,
    BUFFER = 4096,
    DATA = 150,
    OP_CREATE = 1,
    OP_GET = 4,
    OP_SET = 5,
    ERR_NODE_EXISTS = -110
};

struct session {
    int fd;
    uint64_t sent_ns;
    size_t have;
    uint8_t buffer[BUFFER];
};

/* A message under construction: its length goes into the first four bytes. */
struct message {
    size_t len;
    uint8_t bytes[BUFFER];
};

static struct session sessions[SESSIONS_MAX];
static struct load_samples samples;
static struct tap_rand rng = {42};
static uint64_t requests, errors;

static void put_u32(struct message *m, uint32_t v)
{
    v = htonl(v);
    memcpy(m->bytes + m->len, &v, 4);
    m->len += 4;
}

static void put_bytes(struct message *m, const void *bytes, size_t len)
{
    put_u32(m, (uint32_t)len);
    memcpy(m->bytes + m->len, bytes, len);
    m->len += len;
}

static uint32_t get_u32(const uint8_t *at)
{
    uint32_t v;
    memcpy(&v, at, 4);
    return ntohl(v);
}

static void begin(struct message *m, uint32_t op)
{
    m->len = 4;
    put_u32(m, 1); /* the number of the request: one is in flight */
    put_u32(m, op);
}

static void send_message(struct session *s, struct message *m)
{
    uint32_t len = htonl((uint32_t)(m->len - 4));
    memcpy(m->bytes, &len, 4);
    s->sent_ns = clock_mono_ns();
    load_write(s->fd, (const char *)m->bytes, m->len);
}

/* Length of the reply's payload, when it is whole; 0. */
static size_t receive(struct session *s)
{
    ssize_t n = read(s->fd, s->buffer + s->have, sizeof s->buffer - s->have);
    if (n <= 0) {
        (void)fprintf(stderr, "zkload: the server closed a session\n");
        exit(1);
    }
    s->have += (size_t)n;
    size_t want = s->have >= 4 ? 4 + (size_t)get_u32(s->buffer) : 0;
    if (want == 0 || s->have < want) {
        return 0;
    }
    s->have = 0;
    return want - 4;
}

static void wait_reply(struct session *s)
{
    do {
        (void)poll(&(struct pollfd){.fd = s->fd, .events = POLLIN}, 1, -1);
    } while (receive(s) == 0);
}

static void open_session(struct session *s, uint16_t port)
{
    static const uint8_t zeros[16];
    struct message m = {.len = 4};
    s->fd = load_connect(port);
    for (int i = 0; i < 3; i++) { /* version, last transaction seen */
        put_u32(&m, 0);
    }
    put_u32(&m, 30000);
    put_u32(&m, 0); /* no session yet */
    put_u32(&m, 0);
    put_bytes(&m, zeros, sizeof zeros);
    m.bytes[m.len++] = 0; /* not read-only */
    send_message(s, &m);
    wait_reply(s);
}

static size_t path_of(uint64_t node, char *out, size_t size)
{
    return (size_t)snprintf(out, size, "/bench/%" PRIu64, node);
}

static void create(struct session *s, const char *path, size_t path_len)
{
    static const uint8_t data[DATA];
    struct message m;
    begin(&m, OP_CREATE);
    put_bytes(&m, path, path_len);
    put_bytes(&m, data, sizeof data);
    put_u32(&m, 1); /* one entry: everybody may do everything */
    put_u32(&m, 31);
    put_bytes(&m, "world", 5);
    put_bytes(&m, "anyone", 6);
    put_u32(&m, 0); /* it stays when the session ends */
    send_message(s, &m);
    wait_reply(s);
    int32_t err = (int32_t)get_u32(s->buffer + 16);
    if (err != 0 && err != ERR_NODE_EXISTS) {
        (void)fprintf(stderr, "zkload: error %d creating %s\n", err, path);
        exit(1);
    }
}

static void send_next(struct session *s, bool set, uint64_t nodes)
{
    static const uint8_t data[DATA];
    struct message m;
    char path[32];
    size_t len = path_of(tap_rand_below(&rng, nodes), path, sizeof path);
    begin(&m, set ? OP_SET : OP_GET);
    put_bytes(&m, path, len);
    if (set) {
        put_bytes(&m, data, sizeof data);
        put_u32(&m, UINT32_MAX); /* whatever its version */
    } else {
        m.bytes[m.len++] = 0; /* no watch */
    }
    send_message(s, &m);
}

static void run(uint64_t count, uint64_t seconds, bool set, uint64_t nodes)
{
    struct epoll_event events[EVENTS];
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    uint64_t from = clock_mono_ns();
    for (uint64_t i = 0; i < count; i++) {
        struct epoll_event ev = {.events = EPOLLIN, .data.ptr = &sessions[i]};
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, sessions[i].fd, &ev) != 0) {
            exit(1);
        }
        send_next(&sessions[i], set, nodes);
    }
    while (clock_mono_ns() - from < seconds * UINT64_C(1000000000)) {
        int n = epoll_wait(epoll, events, EVENTS, 100);
        for (int i = 0; i < n; i++) {
            struct session *s = events[i].data.ptr;
            size_t len = receive(s);
            if (len > 0) {
                load_sample(&samples, clock_mono_ns() - s->sent_ns);
                requests++;
                errors += len < 16 || get_u32(s->buffer + 16) != 0;
                send_next(s, set, nodes);
            }
        }
    }
    (void)printf("{\"requests\":%" PRIu64 ",\"seconds\":%.4f,\"errors\":%" PRIu64
                 ",\"p50_us\":%u,\"p99_us\":%u}\n",
                 requests, (double)(clock_mono_ns() - from) / 1e9, errors,
                 load_percentile(&samples, 0.5), load_percentile(&samples, 0.99));
}

int main(int argc, char **argv)
{
    uint64_t port = 0, count = 0, seconds = 0, nodes = 0;
    char path[32];
    if (argc != 6 || !parse_u64(argv[1], 65535, &port) ||
        !parse_u64(argv[2], SESSIONS_MAX, &count) || count == 0 ||
        !parse_u64(argv[3], 3600, &seconds) || !parse_u64(argv[5], 1000000, &nodes) || nodes == 0) {
        (void)fprintf(stderr, "usage: zkload PORT SESSIONS SECONDS get|set NODES\n");
        return 2;
    }
    for (uint64_t i = 0; i < count; i++) {
        open_session(&sessions[i], (uint16_t)port);
    }
    create(&sessions[0], "/bench", 6);
    for (uint64_t i = 0; i < nodes; i++) {
        create(&sessions[0], path, path_of(i, path, sizeof path));
    }
    run(count, seconds, strcmp(argv[4], "set") == 0, nodes);
    return errors > 0 ? 1 : 0;
}
