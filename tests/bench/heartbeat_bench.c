/* SPDX-License-Identifier: Apache-2.0 */
/* What the heartbeats of many nodes cost one server.
 *
 *   heartbeat_bench PORT PID NODES SECONDS INTERVAL_MS
 *
 * Registers the nodes, then renews each once an interval, over CONNECTIONS keep-alive connections. Prints one JSON
 * object: heartbeats, errors, p50_us, p99_us, and the share of one core that process PID used meanwhile. */
#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/parse.h"
#include "tests/bench/load.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { CONNECTIONS = 256, NODES_MAX = 20000, EVENTS = 256 };

struct slot {
    struct load_conn conn;
    uint64_t node; /* that it asks for, plus 1; 0: idle */
};

static struct slot slots[CONNECTIONS];
static uint64_t sessions[NODES_MAX];
static struct load_samples samples;
static uint64_t errors, done;
static int poll_fd;

static void send_text(struct slot *s, const struct buf *body, const char *line)
{
    struct buf b;
    buf_init(&b, 1 << 16);
    buf_printf(&b,
               "%s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
               "Content-Length: %zu\r\n\r\n",
               line, body->len);
    buf_put(&b, body->data, body->len);
    s->conn.sent_ns = clock_mono_ns();
    load_write(s->conn.fd, (const char *)b.data, b.len);
    buf_close(&b);
}

static void ask(struct slot *s, uint64_t node)
{
    struct buf body;
    char line[128];
    buf_init(&body, 4096);
    s->node = node + 1;
    if (sessions[node] == 0) {
        (void)snprintf(line, sizeof line, "PUT /v1/nodes/n%" PRIu64, node);
        buf_printf(&body, "{\"address\":\"10.0.0.1:%" PRIu64 "\"}", node);
    } else {
        (void)snprintf(line, sizeof line, "POST /v1/nodes/n%" PRIu64 "/heartbeat", node);
        buf_printf(&body, "{\"session\":%" PRIu64 "}", sessions[node]);
    }
    send_text(s, &body, line);
    buf_close(&body);
}

static void take(struct slot *s)
{
    int status = 0;
    uint64_t node = s->node - 1;
    ssize_t n = read(s->conn.fd, s->conn.buffer + s->conn.have, LOAD_BUFFER - s->conn.have - 1);
    s->conn.have += n > 0 ? (size_t)n : 0;
    if (load_response(s->conn.buffer, s->conn.have, &status) == 0) {
        return;
    }
    s->conn.buffer[s->conn.have] = '\0';
    const char *at = strstr(s->conn.buffer, "{\"session\":");
    if (sessions[node] == 0 && at != NULL) {
        sessions[node] = strtoull(at + strlen("{\"session\":"), NULL, 10);
    } else if (status == 200) {
        load_sample(&samples, clock_mono_ns() - s->conn.sent_ns);
    }
    errors += status != 200;
    done++;
    s->conn.have = 0;
    s->node = 0;
}

/* Asks for `count` nodes, from `first` on, at `per_s` a second (0: as fast as they are answered). */
static void run(uint64_t nodes, uint64_t count, uint64_t per_s)
{
    struct epoll_event events[EVENTS];
    uint64_t begun = clock_mono_ns(), sent = 0;
    done = 0;
    while (done < count) {
        uint64_t due = per_s == 0 ? count : (clock_mono_ns() - begun) * per_s / 1000000000;
        for (unsigned i = 0; i < CONNECTIONS && sent < count && sent < due; i++) {
            if (slots[i].node == 0) {
                ask(&slots[i], sent++ % nodes);
            }
        }
        int n = epoll_wait(poll_fd, events, EVENTS, 1);
        for (int i = 0; i < n; i++) {
            take(events[i].data.ptr);
        }
    }
}

static double cpu_s(const char *pid)
{
    char path[64], text[1024];
    (void)snprintf(path, sizeof path, "/proc/%s/stat", pid);
    FILE *f = fopen(path, "r");
    size_t n = f != NULL ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f != NULL) {
        (void)fclose(f);
    }
    text[n] = '\0';
    const char *at = strrchr(text, ')');
    uint64_t ticks = 0;
    for (int field = 2; at != NULL && field < 15; field++) {
        at = strchr(at + 1, ' ');
        if (at != NULL && field >= 13) { /* utime, stime */
            ticks += strtoull(at, NULL, 10);
        }
    }
    return (double)ticks / (double)sysconf(_SC_CLK_TCK);
}

int main(int argc, char **argv)
{
    uint64_t port, nodes, seconds, interval_ms;
    if (argc != 6 || !parse_u64(argv[1], 65535, &port) || !parse_u64(argv[3], NODES_MAX, &nodes) ||
        !parse_u64(argv[4], 3600, &seconds) || !parse_u64(argv[5], 60000, &interval_ms)) {
        (void)fprintf(stderr, "usage: heartbeat_bench PORT PID NODES SECONDS INTERVAL_MS\n");
        return 2;
    }
    poll_fd = epoll_create1(0);
    for (unsigned i = 0; i < CONNECTIONS; i++) {
        struct epoll_event ev = {.events = EPOLLIN, .data.ptr = &slots[i]};
        slots[i].conn.fd = load_connect((uint16_t)port);
        slots[i].conn.buffer = mem_alloc(LOAD_BUFFER);
        (void)epoll_ctl(poll_fd, EPOLL_CTL_ADD, slots[i].conn.fd, &ev);
    }
    run(nodes, nodes, 0);
    uint64_t refused = errors, per_s = nodes * 1000 / interval_ms;
    errors = 0;
    double cpu = cpu_s(argv[2]);
    uint64_t begun = clock_mono_ns();
    run(nodes, per_s * seconds, per_s);
    double took = (double)(clock_mono_ns() - begun) / 1e9;
    printf("{\"nodes\":%" PRIu64 ",\"refused\":%" PRIu64 ",\"heartbeats\":%" PRIu64
           ",\"errors\":%" PRIu64 ",\"per_s\":%.0f,\"p50_us\":%u,\"p99_us\":%u,\"cpu\":%.3f}\n",
           nodes, refused, done, errors, (double)done / took, load_percentile(&samples, 0.5),
           load_percentile(&samples, 0.99), (cpu_s(argv[2]) - cpu) / took);
    return errors > 0 || refused > 0;
}
