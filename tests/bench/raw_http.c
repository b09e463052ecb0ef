/* SPDX-License-Identifier: Apache-2.0 */
/* The practical limit of HTTP/1.1 on loopback, to hold the API against: one thread, one epoll, no
 * HTTP library. It looks a key up among N equal token ranges by binary search and sends an answer
 * of the same bytes as the API's; and it can hold Server-Sent Event streams and broadcast to them.
 *
 *   raw_http PORT N
 *   GET …key=K        the route of K
 *   GET /sse          a stream; POST /publish writes one event to all streams
 *   GET /bytes/N      N bytes, and the end of the connection */
#include "base/hash.h"
#include "base/mem.h"
#include "base/parse.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <poll.h>
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
    char start[17] = "", end[17] = "", body[BODY_MAX];
    put_hex(start, starts[at]);
    put_hex(end, at + 1 < start_count ? starts[at + 1] : UINT64_MAX);
    int len = snprintf(
        body, sizeof body,
        "{\"keyspace\":\"bench\",\"partition\":%" PRIu64 ",\"epoch\":37,\"mod_revision\":37,"
        "\"start\":\"%s\",\"end\":\"%s\",\"state\":\"active\","
        "\"primary\":{\"node\":\"n1\",\"address\":\"127.0.0.1:9001\"},\"authority\":\"static\","
        "\"replicas\":[{\"node\":\"n1\",\"address\":\"127.0.0.1:9001\",\"role\":\"primary\"}],"
        "\"max_age_ms\":30000,\"revision\":127}",
        at, start, end);
    int n = snprintf(out, size,
                     "HTTP/1.1 200 OK\r\nX-Request-Id: 0123456789abcdef\r\nServer: cadastre\r\n"
                     "ETag: \"%" PRIu64 "-37-37\"\r\nCadastre-Revision: 127\r\n"
                     "Cadastre-Staleness-Ms: 10\r\nContent-Type: application/json\r\n"
                     "Content-Length: %d\r\n\r\n",
                     at, len);
    memcpy(out + n, body, (size_t)len);
    return (size_t)n + (size_t)len;
}

/* As bytes are taken; nothing else is served meanwhile. */
static void send_bytes(int fd, uint64_t count)
{
    static char block[256 << 10];
    int n = snprintf(block, sizeof block, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
    ssize_t sent = send(fd, block, (size_t)n, MSG_NOSIGNAL);
    while (count > 0 && sent > 0) {
        sent = send(fd, block, count < sizeof block ? count : sizeof block, MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN) {
            (void)poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, 1000);
            sent = 1;
            continue;
        }
        count -= sent > 0 ? (uint64_t)sent : 0;
    }
    (void)shutdown(fd, SHUT_WR);
}

static void broadcast(void)
{
    static const char event[] =
        "181\r\nid: 129\nevent: change\ndata: {\"revision\":129,\"kind\":\"move\",\"removed\":[],"
        "\"routes\":[{\"keyspace\":\"bench\",\"partition\":361347,\"epoch\":129,"
        "\"mod_revision\":129,\"start\":\"5c80b673c4f3ba77\",\"end\":\"5c80c73abc947064\","
        "\"state\":\"active\",\"primary\":{\"node\":\"n2\",\"address\":\"127.0.0.1:9002\"},"
        "\"authority\":\"static\",\"replicas\":[{\"node\":\"n2\",\"address\":\"127.0.0.1:9002\","
        "\"role\":\"primary\"}],\"max_age_ms\":30000}]}\n\n\r\n";
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
    } else if (strncmp(c->request, "GET /bytes/", 11) == 0) {
        uint64_t count = 0;
        c->request[strcspn(c->request + 11, " ") + 11] = '\0';
        if (parse_u64(c->request + 11, INT64_MAX, &count)) {
            send_bytes(c->fd, count);
        }
        return;
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
