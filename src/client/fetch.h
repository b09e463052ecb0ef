/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to whichever server answers: failover over the endpoints, redirects to members only, and
 * pauses between tries that grow, are jittered and heed Retry-After. One thread at a time, but for
 * cl_fetch_stop(). */
#ifndef CLIENT_FETCH_H
#define CLIENT_FETCH_H

#include "base/buf.h"
#include "client/cadastre.h"

#include <pthread.h>

enum {
    CL_ENDPOINTS_MAX = 32,
    CL_SERVERS_MAX = 64, /* endpoints and the members they name */
    CL_URL_MAX = 255,
    CL_HOPS_MAX = 4,
    CL_CONNECT_MS = 2000,
    CL_BACKOFF_MIN_MS = 50,
    CL_BACKOFF_MAX_MS = 5000,
    CL_RETRY_AFTER_MAX_MS = 60000,
    CL_BODY_MAX = 64 << 20, /* of an answer that is collected */
    CL_STALL_S = 20,        /* a stream that gives nothing for so long is dead */
    CL_TOKEN_MAX = 8192
};

/* What all the threads of one object share. The hooks are called one at a time. */
struct cl_hooks {
    pthread_mutex_t lock;
    cadastre_credentials_fn credentials;
    cadastre_event_fn event;
    void *credentials_arg, *event_arg;
    char *ca_file; /* owns; or NULL */
};

void cl_hooks_init(struct cl_hooks *h, const char *ca_file);
void cl_hooks_close(struct cl_hooks *h);
void cl_event(struct cl_hooks *h, const char *name, const char *fmt, ...) PRINTF_LIKE(3, 4);

struct cl_fetch;

/* Bytes of a 200's body as they come. False ends the transfer. */
typedef bool (*cl_sink_fn)(void *arg, struct slice bytes);

struct cl_request {
    const char *method, *target;
    const char *accept;          /* NULL: application/json */
    const char *body;            /* JSON, or NULL */
    const char *idempotency_key; /* or NULL */
    uint64_t try_ms;             /* for one try; 0: the fetch's timeout */
    uint64_t deadline_ms;        /* boot time, for all tries; 0: as long as it takes */
    bool once;                   /* one try at one server, and its redirects */
    cl_sink_fn sink;             /* NULL: the body is collected; else no limit but CL_STALL_S */
    void (*restart)(void *arg);  /* before each try that has a sink */
    void *sink_arg;
};

struct cl_answer {
    long status; /* 0: none */
    struct buf body;
    uint64_t revision, staleness_ms;
    uint64_t sent_ms;  /* boot time, just before the request of this answer was sent */
    uint64_t first_ms; /* the same of the first try */
    char code[48];     /* of a problem */
    char server[CL_URL_MAX + 1];
};

/* NULL and `e` when the endpoints are no list of origins. `hooks` is borrowed. */
struct cl_fetch *cl_fetch_new(const char *endpoints,
                              uint64_t timeout_ms,
                              struct cl_hooks *hooks,
                              struct cadastre_error *e);
void cl_fetch_free(struct cl_fetch *f);
/* Ends the present request and all later ones with CADASTRE_CLOSED. Any thread. */
void cl_fetch_stop(struct cl_fetch *f);
/* Ends the present request or pause, if there is one, with CADASTRE_CLOSED. Any thread. */
void cl_fetch_interrupt(struct cl_fetch *f);
/* Waits, or is stopped or interrupted. */
void cl_fetch_pause(struct cl_fetch *f, uint64_t ms);

/* CADASTRE_OK: a 2xx. CADASTRE_NOT_FOUND, _DENIED, _REFUSED: other answers below 500, that another
 * try does not better. CADASTRE_TIMEOUT: the deadline came first. CADASTRE_UNAVAILABLE: the one try
 * failed. CADASTRE_INVALID: the answer was broken off by the sink or is too large. `ret_answer` is
 * initialised here and closed by the caller; `e` says what failed last. */
enum cadastre_status cl_fetch_send(struct cl_fetch *f,
                                   const struct cl_request *request,
                                   struct cl_answer *ret_answer,
                                   struct cadastre_error *e) MUST_CHECK;
void cl_answer_close(struct cl_answer *a);

/* Requests that failed, of all time. Any thread. */
uint64_t cl_fetch_failures(const struct cl_fetch *f);

/* Not to begin with the present server next time: it is too far behind. */
void cl_fetch_rotate(struct cl_fetch *f);

/* To begin the next request with this member ("": whichever it is), unless it is avoided. */
void cl_fetch_prefer(struct cl_fetch *f, const char *origin);

/* In [0, n). */
uint64_t cl_random_below(uint64_t n);
/* 32 hex digits. */
void cl_random_key(char out[33]);
enum cadastre_status cl_error(struct cadastre_error *e,
                              enum cadastre_status status,
                              const char *code,
                              const char *fmt,
                              ...) PRINTF_LIKE(4, 5);
/* "http://Host:7400/v1/x" → "http://host:7400". */
bool cl_origin(const char *url, char out[CL_URL_MAX + 1]);

#endif
