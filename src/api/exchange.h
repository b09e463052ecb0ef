/* SPDX-License-Identifier: Apache-2.0 */
/* One HTTP request and its answer, as handlers see it. http.c makes it, on a worker thread that
 * owns it for life; every call below is made on that thread, but exchange_wake().
 *
 * A handler does one of: exchange_reply() & co; exchange_park() and goes on when woken;
 * exchange_stream(). */
#ifndef API_EXCHANGE_H
#define API_EXCHANGE_H

#include "base/buf.h"
#include "base/err.h"
#include "directory/directory.h"

struct api;      /* api.h */
struct exchange; /* http.c */
struct json_t;

enum {
    API_BODY_MAX = 8 << 20,
    API_RESPONSE_MAX = 256 << 20, /* of one buffered answer; larger ones are streamed */
    API_PARAMS_MAX = 32,          /* query parameters of one request */
    API_PATH_SEGMENTS_MAX = 8,
    API_STREAM_CHUNK = 64 << 10
};

enum api_method { API_GET, API_HEAD, API_POST, API_PUT, API_PATCH, API_DELETE, API_METHOD_OTHER };

/* A parsed target. Strings are unescaped, may hold NUL bytes, and live as long as the exchange. */
struct api_param {
    struct slice name, value;
};

/* --- the request --- */
struct api *exchange_api(const struct exchange *x);
/* The path variables of the matched route, in order: "orders", "17". */
struct slice exchange_path(const struct exchange *x, unsigned i);
/* The whole path as it came, for problems and logs. */
struct slice exchange_target(const struct exchange *x);
/* NULL when absent. A parameter that comes twice was refused before the handler ran. */
const struct slice *exchange_param(const struct exchange *x, const char *name);
/* NULL when absent. Repeated headers that matter were refused. */
const char *exchange_header(const struct exchange *x, const char *name);
/* The whole body (at most API_BODY_MAX). */
struct slice exchange_body(const struct exchange *x);
/* It came as application/x-protobuf. */
bool exchange_body_is_protobuf(const struct exchange *x);
/* "" without authentication; else the credential's name. */
const char *exchange_principal(const struct exchange *x);
const char *exchange_remote(const struct exchange *x);
const char *exchange_request_id(const struct exchange *x);
/* Memory that is freed with the exchange. */
void *exchange_alloc(struct exchange *x, size_t size);
/* `fn(arg)` runs when the exchange ends, however it ends (also when the client vanished). At
 * most 8. */
void exchange_on_end(struct exchange *x, void (*fn)(void *arg), void *arg);
/* One pointer of the handler's own, for `ready` and `gone`; NULL at first. Not owned:
 * exchange_alloc() and exchange_on_end() do that. */
void exchange_set_state(struct exchange *x, void *state);
void *exchange_state(const struct exchange *x);

/* --- the answer --- */
/* The name lives as long as the process (a literal); the value is copied. */
void exchange_set_header(struct exchange *x, const char *name, const char *value);
void exchange_printf_header(struct exchange *x, const char *name, const char *fmt, ...)
    PRINTF_LIKE(3, 4);
void exchange_u64_header(struct exchange *x, const char *name, uint64_t value);
/* The buffer to write the body to, empty at first. */
struct buf *exchange_out(struct exchange *x);
/* Answers with what is in exchange_out(). `content_type` is a literal; NULL: application/json. */
void exchange_reply(struct exchange *x, int status, const char *content_type);
/* Answers with application/problem+json for `e`. `members` (may be NULL) writes further members,
 * each with its leading comma, into the open object. */
void exchange_problem(struct exchange *x,
                      const struct err *e,
                      void (*members)(struct exchange *x, struct buf *out, void *arg),
                      void *arg);

/* --- waiting --- */
/* Suspends the connection until exchange_wake(). `ready` then runs on the worker with the argument
 * of the wake, and answers, or parks again. `gone` NULL, or runs instead when the client left
 * meanwhile or deadline_ms (monotonic, 0 none) passed with timed_out true (then it must answer).
 * Exactly one of the two runs; whoever holds a wake for an exchange that has gone is told by
 * exchange_wake's ticket. */
typedef void (*exchange_ready)(struct exchange *x, void *arg);
typedef void (*exchange_gone)(struct exchange *x, bool timed_out);
void exchange_park(struct exchange *x,
                   exchange_ready ready,
                   exchange_gone gone,
                   uint64_t deadline_ms);

/* A ticket wakes one parked exchange from any thread, at most once, and is safe to use after the
 * exchange has ended. */
struct exchange_ticket;
struct exchange_ticket *exchange_ticket(struct exchange *x);
/* Consumes the ticket. If the exchange still lives, ready(x, arg) runs on its worker; else
 * drop(arg) is called, on the worker or here. */
void exchange_wake(struct exchange_ticket *t, void *arg, void (*drop)(void *arg));

/* --- streaming --- */
enum stream_next { STREAM_MORE, STREAM_WAIT, STREAM_END, STREAM_ABORT };
struct stream_ops {
    /* Appends up to about API_STREAM_CHUNK bytes. STREAM_WAIT: nothing now; runs again after
     * stream_kick() or at
     * `*ret_again_ms` (monotonic; UINT64_MAX never). STREAM_ABORT: cut the connection, so that
     * nobody takes a part for the whole. */
    enum stream_next (*next)(void *state, struct buf *out, uint64_t *ret_again_ms);
    void (*end)(void *state); /* always called, once */
};
/* Starts a chunked answer. A client that takes nothing for API_STREAM_STALL_MS (30 s) is cut off.
 * gzip: compress at level 1 when the client accepts it. */
void exchange_stream(struct exchange *x,
                     int status,
                     const char *content_type,
                     bool may_gzip,
                     const struct stream_ops *ops,
                     void *state);
/* Joins the worker's list of streams and parked waits that follow the change feed: they are kicked
 * after each publish. For streams: next() runs again. For a parked exchange: ready(x, NULL) runs
 * again and again until it answers. */
void exchange_follow_feed(struct exchange *x);

#endif
