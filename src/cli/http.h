/* SPDX-License-Identifier: Apache-2.0 */
/* One request to whichever server answers it: failover over the endpoints, redirects to members
 * only, retries with the same Idempotency-Key. One thread. No proxies. */
#ifndef CLI_HTTP_H
#define CLI_HTTP_H

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    HTTP_ENDPOINTS_MAX = 32,
    HTTP_URL_MAX = 255,     /* of an endpoint: scheme and authority */
    HTTP_MEMBERS_MAX = 64,  /* endpoints, and what they say their members are */
    HTTP_REDIRECTS_MAX = 4, /* of one try */
    HTTP_ROUNDS_MAX = 100,  /* over all endpoints; the deadline comes first as a rule */
    HTTP_BACKOFF_MIN_MS = 50,
    HTTP_BACKOFF_MAX_MS = 2000,
    HTTP_STALL_S =
        45, /* a stream that gives nothing for so long is dead: servers send something every 15 s */
    HTTP_BODY_MAX = 256 << 20
};

struct http;

/* Bytes of a 2xx body as they come. False ends the transfer. */
typedef bool (*http_sink)(void *arg, struct slice bytes);

struct http_request {
    const char *method;
    const char *target;          /* path and query, escaped */
    const char *accept;          /* NULL: application/json */
    const char *idempotency_key; /* a mutation has one; NULL for a read */
    const char *last_event_id;   /* or NULL */
    const char *body;            /* JSON; NULL for none */
    http_sink
        sink; /* NULL: the body is collected; else it is a stream without a total time limit */
    void *sink_arg;
};

struct http_response {
    long status;
    struct buf body;
    uint64_t revision; /* of Cadastre-Revision, 0 without */
    uint64_t retry_after_ms;
    bool replayed;
    bool sent; /* the server may have got the request */
    char etag[64];
    char location[HTTP_URL_MAX * 4];
    char server[HTTP_URL_MAX + 1]; /* who answered */
};

enum http_result {
    HTTP_ANSWERED,    /* `status` and `body` are the answer, good or bad */
    HTTP_UNREACHABLE, /* no endpoint could be asked */
    HTTP_TIMED_OUT,
    HTTP_BROKEN, /* the body ended early, or the sink ended it */
    HTTP_REFUSED /* redirected to a server that no endpoint knows, or too often */
};

/* "http://a:7400,https://b": NULL and `e` when an address is not one. */
struct http *http_new(const char *endpoints, uint64_t timeout_ms, struct err *e) MUST_CHECK;
void http_free(struct http *h);

/* `response` is initialised here, and closed by the caller whatever the result is. `e` has the text
 * of all results but HTTP_ANSWERED; for a mutation whose fate is open it says so. */
enum http_result http_send(struct http *h,
                           const struct http_request *request,
                           struct http_response *ret_response,
                           struct err *e) MUST_CHECK;
/* The same to one server only, without redirects or retries. */
enum http_result http_ask(struct http *h,
                          const char *server,
                          const struct http_request *request,
                          struct http_response *ret_response,
                          struct err *e) MUST_CHECK;
void http_response_close(struct http_response *r);

/* Begins with another endpoint next time: for streams that broke. */
void http_rotate(struct http *h);
unsigned http_endpoint_count(const struct http *h);
const char *http_endpoint(const struct http *h, unsigned i);

/* What to do after an answer: see http_send. */
enum http_next { NEXT_DONE, NEXT_REDIRECT, NEXT_OTHER, NEXT_WAIT };
enum http_next http_next_after(long status, enum err_code code);

/* "http://Host:7400/v1/x?y" → "http://host:7400". False when it is no http(s) URL or too long. */
bool http_origin(const char *url, char out[HTTP_URL_MAX + 1]);

/* 32 random hex digits. */
#define HTTP_KEY_SIZE 33
void http_random_key(char out[HTTP_KEY_SIZE]);

#endif
