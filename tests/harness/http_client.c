/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/harness/http_client.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/parse.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { BODY_MAX = 64 << 20 };

/* From 127.0.0.`source`. 0, or why not. */
static int connect_from(struct client *c, uint16_t port, unsigned source)
{
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in from = {.sin_family = AF_INET,
                               .sin_addr.s_addr = htonl((INADDR_LOOPBACK & ~0xffU) | source)};
    int yes = 1;
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT(c->fd >= 0);
    ASSERT(setsockopt(c->fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &yes, sizeof yes) == 0);
    ASSERT(bind(c->fd, (struct sockaddr *)&from, sizeof from) == 0);
    if (connect(c->fd, (struct sockaddr *)&to, sizeof to) == 0) {
        return 0;
    }
    int why = errno;
    (void)close(c->fd);
    return why;
}

/* A fuzzer's timer interrupts; and an address may have no port left, after many connections. */
void client_open(struct client *c, uint16_t port)
{
    unsigned source = 1;
    int why;
    buf_init(&c->in, BODY_MAX);
    while ((why = connect_from(c, port, source)) != 0) {
        ASSERT(why == EINTR || why == EADDRNOTAVAIL);
        source += why == EADDRNOTAVAIL;
        ASSERT(source < 255);
    }
}

void client_close(struct client *c)
{
    if (c->fd >= 0) {
        (void)close(c->fd);
    }
    c->fd = -1;
    buf_close(&c->in);
}

void client_reset(struct client *c)
{
    struct linger reset = {.l_onoff = 1, .l_linger = 0};
    (void)setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    client_close(c);
}

bool client_send(struct client *c, const void *bytes, size_t len)
{
    const uint8_t *p = bytes;
    while (len > 0) {
        ssize_t n = send(c->fd, p, len, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return false;
        }
        p += n;
        len -= (size_t)n;
    }
    return true;
}

bool client_print(struct client *c, const char *fmt, ...)
{
    char text[16384];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    ASSERT(n >= 0 && (size_t)n < sizeof text);
    return client_send(c, text, (size_t)n);
}

bool client_more(struct client *c, unsigned timeout_ms)
{
    struct pollfd p = {.fd = c->fd, .events = POLLIN};
    int ready;
    do {
        ready = poll(&p, 1, (int)timeout_ms);
    } while (ready < 0 && errno == EINTR);
    if (ready <= 0 || !buf_reserve(&c->in, 65536)) {
        return false;
    }
    ssize_t n;
    do {
        n = recv(c->fd, c->in.data + c->in.len, 65536, 0);
    } while (n < 0 && errno == EINTR);
    if (n <= 0) {
        return false;
    }
    c->in.len += (size_t)n;
    return true;
}

bool client_ended(struct client *c, unsigned timeout_ms)
{
    uint64_t until = clock_mono_ms() + timeout_ms;
    for (;;) {
        uint64_t now = clock_mono_ms();
        struct pollfd p = {.fd = c->fd, .events = POLLIN};
        char sink[4096];
        if (now >= until || poll(&p, 1, (int)(until - now)) <= 0) {
            return false;
        }
        ssize_t n = recv(c->fd, sink, sizeof sink, 0);
        if (n == 0 || (n < 0 && errno != EINTR)) {
            return true;
        }
    }
}

/* --- reading an answer --- */

struct reader {
    struct client *c;
    uint64_t until;
    size_t at; /* of c->in */
};

static bool more(struct reader *r)
{
    uint64_t now = clock_mono_ms();
    return now < r->until && client_more(r->c, (unsigned)(r->until - now));
}

/* A line without its CRLF; at most `size` with the NUL. */
static bool read_line(struct reader *r, char *out, size_t size)
{
    struct buf *in = &r->c->in;
    for (;;) {
        uint8_t *end =
            in->len > r->at ? memmem(in->data + r->at, in->len - r->at, "\r\n", 2) : NULL;
        if (end != NULL) {
            size_t n = (size_t)(end - in->data) - r->at;
            if (n >= size) {
                return false;
            }
            memcpy(out, in->data + r->at, n);
            out[n] = '\0';
            r->at += n + 2;
            return true;
        }
        if (!more(r)) {
            return false;
        }
    }
}

static bool read_bytes(struct reader *r, struct buf *out, uint64_t n)
{
    while (r->c->in.len - r->at < n) {
        if (!more(r)) {
            buf_put(out, r->c->in.data + r->at, r->c->in.len - r->at);
            r->at = r->c->in.len;
            return false;
        }
    }
    buf_put(out, r->c->in.data + r->at, (size_t)n);
    r->at += (size_t)n;
    return true;
}

static bool read_chunks(struct reader *r, struct buf *out)
{
    char line[32];
    for (;;) {
        uint64_t size = 0;
        if (!read_line(r, line, sizeof line) || line[0] == '\0') {
            return false;
        }
        for (const char *p = line; *p != '\0'; p++) {
            const char *digits = "0123456789abcdef", *d = strchr(digits, *p | 0x20);
            if (d == NULL) {
                return false;
            }
            size = size * 16 + (uint64_t)(d - digits);
        }
        if (!read_bytes(r, out, size) || !read_line(r, line, sizeof line) || line[0] != '\0') {
            return false;
        }
        if (size == 0) {
            return true;
        }
    }
}

static bool read_head(struct reader *r, struct answer *a)
{
    size_t len = 0;
    char line[4096];
    while (read_line(r, line, sizeof line)) {
        int n = snprintf(a->head + len, sizeof a->head - len, "%s\n", line);
        len += (size_t)n;
        if (len >= sizeof a->head) {
            return false;
        }
        if (line[0] == '\0') {
            uint64_t status;
            char digits[4] = "";
            memcpy(digits, a->head + 9, 3);
            bool ok = strncmp(a->head, "HTTP/1.1 ", 9) == 0 && parse_u64(digits, 599, &status);
            a->status = ok ? (int)status : 0;
            return ok;
        }
    }
    return false;
}

void client_read(struct client *c, struct answer *a, bool head_only, unsigned timeout_ms)
{
    struct reader r = {c, clock_mono_ms() + timeout_ms, 0};
    char value[64];
    uint64_t length;
    *a = (struct answer){.body = {.max = BODY_MAX}};
    if (!read_head(&r, a)) {
        a->cut = true;
    } else if (a->status == 100) {
        a->cut = false;
    } else if (head_only || a->status == 204 || a->status == 304) {
        a->cut = false;
    } else if (answer_header(a, "Transfer-Encoding", value, sizeof value) != NULL) {
        a->cut = !read_chunks(&r, &a->body);
    } else if (answer_header(a, "Content-Length", value, sizeof value) != NULL) {
        a->cut = !parse_u64(value, UINT64_MAX, &length) || !read_bytes(&r, &a->body, length);
    } else {
        while (more(&r)) {
        }
        (void)read_bytes(&r, &a->body, c->in.len - r.at);
    }
    if (r.at > 0) {
        memmove(c->in.data, c->in.data + r.at, c->in.len - r.at);
    }
    c->in.len -= r.at;
}

void answer_close(struct answer *a)
{
    buf_close(&a->body);
}

const char *answer_header(const struct answer *a, const char *name, char *out, size_t size)
{
    size_t len = strlen(name);
    for (const char *line = a->head; line != NULL && *line != '\0'; line = strchr(line, '\n')) {
        line += line != a->head;
        if (strncasecmp(line, name, len) == 0 && line[len] == ':') {
            const char *value = line + len + 1 + strspn(line + len + 1, " ");
            (void)snprintf(out, size, "%.*s", (int)strcspn(value, "\n"), value);
            return out;
        }
    }
    return NULL;
}

const char *answer_text(struct answer *a)
{
    buf_put_u8(&a->body, 0);
    a->body.len--;
    return (const char *)a->body.data;
}

void http_get(uint16_t port, const char *target, struct answer *a)
{
    struct client c;
    client_open(&c, port);
    (void)client_print(&c, "GET %s HTTP/1.1\r\nHost: t\r\n\r\n", target);
    client_read(&c, a, false, 5000);
    client_close(&c);
}

bool wait_until(bool (*fn)(void *arg), void *arg)
{
    uint64_t until = clock_mono_ms() + 10000;
    while (!fn(arg)) {
        struct timespec ms = {.tv_nsec = 1000000};
        if (clock_mono_ms() >= until) {
            return false;
        }
        (void)nanosleep(&ms, NULL);
    }
    return true;
}
