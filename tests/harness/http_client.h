/* SPDX-License-Identifier: Apache-2.0 */
/* A small HTTP/1.1 client on raw sockets, for tests: it sends any bytes, and reads answers
 * strictly. */
#ifndef TESTS_HTTP_CLIENT_H
#define TESTS_HTTP_CLIENT_H

#include "base/buf.h"

struct client {
    int fd;
    struct buf in; /* read, and not yet taken */
};

struct answer {
    int status;      /* 0: there was none, or it was malformed */
    char head[8192]; /* status line and header lines */
    struct buf body; /* without the chunks' framing */
    bool cut;        /* the connection ended within it */
};

/* To 127.0.0.1. Aborts when it can't. */
void client_open(struct client *c, uint16_t port);
void client_close(struct client *c);
/* Closes with a reset. */
void client_reset(struct client *c);
/* False when the peer does not take it all. */
bool client_send(struct client *c, const void *bytes, size_t len);
bool client_print(struct client *c, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Reads one answer; `timeout_ms` is for all of it. `head_only`: it is the answer to a HEAD. */
void client_read(struct client *c, struct answer *a, bool head_only, unsigned timeout_ms);
/* Waits for more bytes; false at the end of the connection or of the time. */
bool client_more(struct client *c, unsigned timeout_ms);
/* Whether the peer has closed, or does within the time. What still comes is thrown away. */
bool client_ended(struct client *c, unsigned timeout_ms);

void answer_close(struct answer *a);
/* The value of a header, copied to `out` (of `size`); NULL when it is not there. */
const char *answer_header(const struct answer *a, const char *name, char *out, size_t size);
/* The body with a NUL at its end. */
const char *answer_text(struct answer *a);

/* "GET target" and its answer on a connection of its own, 5 s. */
void http_get(uint16_t port, const char *target, struct answer *a);

/* Waits until `fn(arg)` is true, looking each millisecond; false when it is not within 10 s. */
bool wait_until(bool (*fn)(void *arg), void *arg);

#endif
