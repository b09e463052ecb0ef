/* SPDX-License-Identifier: Apache-2.0 */
/* What the bench programs share: keep-alive connections on one epoll, responses cut at
 * Content-Length. */
#ifndef BENCH_LOAD_H
#define BENCH_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LOAD_BUFFER = 256 << 10, LOAD_SAMPLES_MAX = 4 << 20 };

struct load_conn {
    int fd;
    uint64_t sent_ns;
    size_t have;
    char *buffer; /* LOAD_BUFFER bytes, owns */
};

/* Connected to 127.0.0.1:port, non-blocking, NODELAY; exits with a message when it can't be. */
int load_connect(uint16_t port);
/* Writes all, spinning over a full socket buffer; exits on an error. */
void load_write(int fd, const char *bytes, size_t len);
/* Length of the response at the start of the buffer, when it is whole; 0 when more must come.
 * `ret_status` its status. */
size_t load_response(const char *buffer, size_t have, int *ret_status);

/* Latencies, and what is said of them. */
struct load_samples {
    uint32_t *us; /* owns */
    size_t count;
};
void load_sample(struct load_samples *s, uint64_t ns);
/* In µs; 0 without samples. Sorts. */
uint32_t load_percentile(struct load_samples *s, double p);

#endif
