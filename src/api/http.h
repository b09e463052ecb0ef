/* SPDX-License-Identifier: Apache-2.0 */
/* The HTTP server: worker threads, each with a listen socket (SO_REUSEPORT), a libmicrohttpd daemon
 * and an epoll loop of its own, that parse requests strictly, find their route and run its handler
 * (api/exchange.h). It knows nothing of the directory: api.c gives it the routes and the
 * application they work on. */
#ifndef API_HTTP_H
#define API_HTTP_H

#include "api/router.h"

enum {
    HTTP_THREADS_MAX = 64,
    HTTP_CONNECTIONS_MAX = 20000,
    HTTP_REQUEST_LINE_MAX = 4096,
    HTTP_CONNECTION_MEMORY = 8192,
    HTTP_IDLE_MS = 75000,    /* a kept-alive connection without a request */
    HTTP_REQUEST_MS = 30000, /* from a request's first byte to its last */
    HTTP_STALL_MS = 30000    /* a client that takes nothing of its answer */
};

struct http_server;

struct http_options {
    const char
        *addr; /* "host:port", "[v6]:port"; ":port" is any address; port 0 takes a free one */
    unsigned threads;         /* 0: the number of cores, at most 8 */
    unsigned connections_max; /* of all workers together; 0: HTTP_CONNECTIONS_MAX, or what
                                 RLIMIT_NOFILE leaves */
    const struct api_route *routes;
    size_t route_count;
    struct api *app; /* what exchange_api() gives; borrowed until http_server_stop() */
    /* Runs before each handler, when route, parameters, body and headers are known to be
     * well-formed. False: it has answered itself (401, 429, …) and the handler does not run. May
     * call exchange_set_principal(). NULL: no check. */
    bool (*admit)(struct exchange *x, const struct api_route *route);
    /* 0: the defaults above. */
    unsigned idle_ms, request_ms, stall_ms;
};

/* Raises the soft RLIMIT_NOFILE to the hard one, binds, starts the threads. ERR_IO naming the
 * address when it can't be bound. Ignores SIGPIPE for the process. Copies the options but what they
 * point to. */
enum err_code http_server_start(const struct http_options *options,
                                struct http_server **ret_server,
                                struct err *e) MUST_CHECK;

/* Ends every exchange (parked ones as gone, streams cut) and joins the threads. Tickets that are
 * still held must not be woken after this but by exchange_wake(), which then only drops its
 * argument. */
void http_server_stop(struct http_server *s);

/* The port really bound. */
uint16_t http_server_port(const struct http_server *s);

/* Kicks all that follow the feed; costs one write per worker that has followers. Any thread. The
 * signature is that of feed_listen(): feed_listen(feed, http_server_published, server). */
void http_server_published(void *server, dir_rev revision);

struct http_stats {
    uint64_t responses[6]; /* by status class: [2] of 2xx; [0] ended without an answer */
    uint64_t bad_requests; /* refused before routing: ambiguous, malformed, too long; also counted
                              above */
    uint64_t accepted;     /* connections, ever */
    uint64_t timed_out;    /* requests and readers that were too slow */
    uint64_t client_gone;  /* exchanges whose client left before the answer */
    uint64_t feed_kicks;   /* publishes seen by workers with followers */
    uint64_t connections;  /* open now */
    uint64_t exchanges;    /* requests in progress now */
    uint64_t parked, streams, followers; /* now */
};

/* Sums over the workers. Any thread. */
void http_server_stats(const struct http_server *s, struct http_stats *ret_stats);

/* The server an exchange belongs to. */
struct http_server *exchange_server(const struct exchange *x);
/* The route that matched; NULL before. */
const struct api_route *exchange_route(const struct exchange *x);
/* For `admit`: name is copied. */
void exchange_set_principal(struct exchange *x, const char *name);

#endif
