/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/load.h"

#include "base/mem.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void die(const char *what)
{
    (void)fprintf(stderr, "bench: %s: %s\n", what, strerror(errno));
    exit(1);
}

int load_connect(uint16_t port)
{
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || connect(fd, (const struct sockaddr *)(const void *)&to, sizeof to) != 0) {
        die("connect");
    }
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) != 0 ||
        fcntl(fd, F_SETFL, O_NONBLOCK) != 0) {
        die("socket options");
    }
    return fd;
}

void load_write(int fd, const char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t n = send(fd, bytes, len, MSG_NOSIGNAL);
        if (n > 0) {
            bytes += n;
            len -= (size_t)n;
        } else if (errno == EAGAIN) {
            (void)poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, 1000);
        } else if (errno != EINTR) {
            die("send");
        }
    }
}

size_t load_response(const char *buffer, size_t have, int *ret_status)
{
    const char *end = memmem(buffer, have, "\r\n\r\n", 4);
    if (end == NULL || have < 12) {
        return 0;
    }
    size_t head = (size_t)(end - buffer) + 4, length = 0;
    static const char name[] = "content-length:";
    for (const char *line = buffer; line != NULL && line < end;
         line = memchr(line, '\n', (size_t)(end - line))) {
        line += *line == '\n';
        if ((size_t)(end - line) > sizeof name && strncasecmp(line, name, sizeof name - 1) == 0) {
            length = strtoull(line + sizeof name - 1, NULL, 10);
        }
    }
    *ret_status = (buffer[9] - '0') * 100 + (buffer[10] - '0') * 10 + (buffer[11] - '0');
    return have >= head + length ? head + length : 0;
}

void load_sample(struct load_samples *s, uint64_t ns)
{
    if (s->us == NULL) {
        s->us = mem_alloc(LOAD_SAMPLES_MAX * sizeof *s->us);
    }
    if (s->count < LOAD_SAMPLES_MAX) {
        s->us[s->count++] = (uint32_t)(ns / 1000);
    }
}

static int by_value(const void *a, const void *b)
{
    uint32_t x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x > y) - (x < y);
}

uint32_t load_percentile(struct load_samples *s, double p)
{
    if (s->count == 0) {
        return 0;
    }
    qsort(s->us, s->count, sizeof *s->us, by_value);
    size_t at = (size_t)(p * (double)s->count);
    return s->us[at < s->count ? at : s->count - 1];
}
