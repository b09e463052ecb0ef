/* SPDX-License-Identifier: Apache-2.0 */
/* The practical limit of HTTP/1.1 on loopback, to hold the API against: one thread, one epoll, no
 * HTTP library. It looks a key up among N equal token ranges by binary search and sends an answer
 * of the same bytes as the API's; and it can hold Server-Sent Event streams and broadcast to them.
 *
 *   raw_http PORT N
 *   GET …key=K        the route of K
 *   GET /sse          a stream; POST /publish writes one event to all streams */
#include "base/buf.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/parse.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { REQUEST_MAX = 8192, EVENTS = 256, STREAMS_MAX = 16384, BODY_MAX = 1024 };

struct conn {
    int fd;
    size_t have;
    char request[REQUEST_MAX];
};

__extension__ typedef unsigned __int128 wide;

static uint64_t *starts, start_count;
static struct conn *streams[STREAMS_MAX];
static size_t stream_count;

static uint64_t find(uint64_t token)
{
    uint64_t low = 0, high = start_count;
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        if (starts[middle] <= token) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

static void put_hex(char *out, uint64_t v)
{
    for (int i = 15; i >= 0; i--, v >>= 4) {
        out[i] = "0123456789abcdef"[v & 15];
    }
}

/* The API's answer for one route, with this route's numbers in it. */
static size_t route_answer(const char *key, size_t key_len, char *out, size_t size)
{
    uint64_t at = find(hash_xxh64(key, key_len));
    char start[17] = "", end[17] = "";
    put_hex(start, starts[at]);
    put_hex(end, at + 1 < start_count ? starts[at + 1] : UINT64_MAX);
    struct buf body;
    buf_init(&body, BODY_MAX);
    buf_put_str(&body, "{\"revision\":1234,\"keyspace\":\"bench\",\"partition\":");
    buf_put_u64_dec(&body, at);
    buf_put_str(&body, ",\"epoch\":125,\"mod_revision\":125,\"start\":\"");
    buf_put(&body, start, 16);
    buf_put_str(&body, "\",\"end\":\"");
    buf_put(&body, end, 16);
    buf_put_str(
        &body,
        "\",\"state\":\"active\",\"primary\":{\"node\":\"n1\",\"address\":\"127.0.0.1:9001\"},"
        "\"authority\":\"static\",\"replicas\":[{\"node\":\"n1\",\"address\":\"127.0.0.1:9001\","
        "\"role\":\"primary\"}],\"max_age_ms\":30000}");
    int n = snprintf(out, size,
                     "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\nContent-Type: application/json\r\n"
                     "Cadastre-Revision: 1234\r\nCadastre-Staleness-Ms: 0\r\nETag: \"%" PRIu64
                     "-125-125\"\r\nX-Request-Id: 0123456789abcdef\r\n\r\n%.*s",
                     body.len, at, (int)body.len, (const char *)body.data);
    buf_close(&body);
    return (size_t)n;
}

static void broadcast(void)
{
    static const char event[] =
        "96\r\nid: 1235\nevent: change\ndata: "
        "{\"revision\":1235,\"kind\":\"move\",\"removed\":[],\"routes\":[{"
        "\"keyspace\":\"bench\",\"partition\":1,\"epoch\":1235,\"mod_revision\":1235}]}\n\n\r\n";
    for (size_t i = 0; i < stream_count; i++) {
        ssize_t n = send(streams[i]->fd, event, sizeof event - 1, MSG_NOSIGNAL);
        (void)n; /* a slow reader is not this program's business */
    }
}

static void answer(struct conn *c, size_t length)
{
    char out[2048];
    size_t n = 0;
    const char *key = memmem(c->request, length, "key=", 4);
    if (strncmp(c->request, "GET /sse", 8) == 0) {
        n = (size_t)snprintf(out, sizeof out,
                             "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                             "Transfer-Encoding: chunked\r\n\r\n8\r\n: hello\n\r\n");
        if (stream_count < STREAMS_MAX) {
            streams[stream_count++] = c;
        }
    } else if (strncmp(c->request, "POST /publish", 13) == 0) {
        broadcast();
        n = (size_t)snprintf(out, sizeof out, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    } else if (key != NULL) {
        size_t key_len = strcspn(key + 4, " &");
        n = route_answer(key + 4, key_len, out, sizeof out);
    }
    if (send(c->fd, out, n, MSG_NOSIGNAL) != (ssize_t)n) {
        (void)fprintf(stderr, "raw_http: short write\n");
    }
}

static void on_readable(struct conn *c)
{
    ssize_t n = read(c->fd, c->request + c->have, sizeof c->request - 1 - c->have);
    if (n <= 0) {
        if (n == 0 || errno != EAGAIN) {
            (void)close(c->fd);
            for (size_t i = 0; i < stream_count; i++) {
                if (streams[i] == c) {
                    streams[i] = streams[--stream_count];
                }
            }
            mem_free(c);
        }
        return;
    }
    c->have += (size_t)n;
    c->request[c->have] = '\0';
    for (char *end; (end = strstr(c->request, "\r\n\r\n")) != NULL;) {
        size_t length = (size_t)(end - c->request) + 4;
        answer(c, length);
        c->have -= length;
        memmove(c->request, c->request + length, c->have + 1);
    }
}

static int listen_on(uint16_t port)
{
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (const struct sockaddr *)(const void *)&at, sizeof at) != 0 ||
        listen(fd, 4096) != 0) {
        (void)fprintf(stderr, "raw_http: %s\n", strerror(errno));
        exit(1);
    }
    return fd;
}

static void on_connection(int epoll, int listener)
{
    int one = 1, fd;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        struct conn *c = mem_zalloc(sizeof *c);
        struct epoll_event ev = {.events = EPOLLIN, .data.ptr = c};
        c->fd = fd;
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        (void)epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &ev);
    }
}

int main(int argc, char **argv)
{
    uint64_t port = 0;
    struct rlimit files;
    struct epoll_event events[EVENTS];
    if (argc != 3 || !parse_u64(argv[1], 65535, &port) ||
        !parse_u64(argv[2], UINT64_C(100000000), &start_count) || start_count == 0) {
        (void)fprintf(stderr, "usage: raw_http PORT RANGES\n");
        return 2;
    }
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    starts = mem_alloc(start_count * sizeof *starts);
    for (uint64_t i = 0; i < start_count; i++) {
        starts[i] = (uint64_t)(((wide)i << 64) / start_count);
    }
    int listener = listen_on((uint16_t)port), epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = NULL};
    (void)epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &ev);
    for (;;) {
        int n = epoll_wait(epoll, events, EVENTS, -1);
        for (int i = 0; i < n; i++) {
            if (events[i].data.ptr == NULL) {
                on_connection(epoll, listener);
            } else {
                on_readable(events[i].data.ptr);
            }
        }
    }
}
