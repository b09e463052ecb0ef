/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the HTTP server share. Everything in here but the inbox and what is marked
 * atomic belongs to one worker thread.
 *
 *   http.c      sockets, threads, counters          worker.c    the epoll loop, deadlines, wakes
 *   mhd.c       all that touches libmicrohttpd      request.c   checks of a request's head, its
 * body, routing exchange.c  what handlers call                  stream.c    chunked answers, gzip
 *   linger.c    closing without losing the answer   timers.c    a heap of exchanges by time */
#ifndef API_INTERNAL_H
#define API_INTERNAL_H

#include "api/http.h"
#include "api/target.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    X_HEADERS_MAX = 16, /* response headers of one answer */
    X_ENDS_MAX = 8,     /* exchange_on_end calls of one exchange */
    X_ARENA_INLINE = 1024,
    WORKER_POOL_MAX = 256,        /* ended exchanges a worker keeps for reuse */
    WORKER_KEEP_BYTES = 64 << 10, /* buffers larger than this are not kept with them */
    WORKER_EVENTS_MAX = 256,      /* of one turn */
    WORKER_LINGER_MAX = 16,       /* connections that are being closed slowly */
    HTTP_EXCESS_MAX =
        64, /* connections over the limit that are told so (503); more are just closed */
    HTTP_FD_RESERVE = 256, /* descriptors left to the rest of the process */
    HTTP_BODIES_MAX =
        1 << 30 /* bytes of request bodies held by one server at a time; more is 503 */
};

/* The low bits of an epoll event's data; the rest is a pointer to a conn, or a descriptor. */
enum { WORKER_EVENT_CONN, WORKER_EVENT_WAKE, WORKER_EVENT_MHD, WORKER_EVENT_LINGER };

struct conn;
struct worker;
struct MHD_Connection;
struct MHD_Daemon;

enum x_state {
    X_HEAD,      /* the request line has been seen */
    X_BODY,      /* the head was good; the body is read */
    X_RUNNING,   /* a handler or a callback of it runs */
    X_PARKED,    /* suspended */
    X_ANSWERING, /* a whole answer was queued */
    X_STREAMING, /* a stream's answer was queued */
    X_GONE       /* nobody is there to answer */
};

struct arena_block;

struct x_header {
    const char *name, *value;
};

struct stream;

struct exchange {
    struct worker *worker;
    struct conn *conn;
    enum x_state state;
    enum api_method method;
    bool http_1_0;
    bool close_after;   /* say Connection: close */
    bool protobuf;      /* the body is */
    bool follows, kick; /* the feed; to be run at the next turn */
    bool suspended;     /* libmicrohttpd has it so */
    int status;         /* of the answer; 0 until then */
    struct slice raw;   /* the target as it came */
    const char *wire;   /* where it came, for as long as the head is judged */
    uint64_t body_seen; /* bytes of body so far, thrown away ones too */
    uint64_t stuck_at;  /* 1 + body_seen when more was waiting in the socket; 0 */
    struct target target;
    const struct api_route *route;
    uint8_t variables[API_PATH_SEGMENTS_MAX];
    unsigned variable_count;
    const char *request_id, *principal;
    struct err *problem; /* known before the body was read; answered after it */
    unsigned allowed;    /* of a 405 */
    struct buf body, out;
    size_t body_charged; /* bytes of it in the server's account */
    struct x_header headers[X_HEADERS_MAX];
    unsigned header_count, end_count;
    struct {
        void (*fn)(void *arg);
        void *arg;
    } ends[X_ENDS_MAX];
    struct exchange_ticket *tickets;
    exchange_ready ready;
    exchange_gone gone;
    void *state_of_handler; /* its own: exchange_set_state() */
    uint64_t deadline_ms;   /* of a park, or when a waiting stream runs again; UINT64_MAX none */
    uint64_t started_ms;
    uint64_t timer_ms;
    size_t timer_at; /* 1 + index in the heap; 0: not in it */
    struct stream *stream;
    struct exchange *follow_prev, *follow_next;
    struct exchange *pool_next;
    struct arena_block *blocks;
    uint8_t *arena_at, *arena_end;
    uint8_t arena_inline[X_ARENA_INLINE];
};

struct conn {
    struct worker *worker;
    struct MHD_Connection *mhd;
    struct conn *prev, *next;
    struct exchange *x; /* the present request, or NULL */
    int fd;
    bool gone;                  /* the peer closed its side */
    bool excess;                /* over the limit of connections */
    bool watched, watched_room; /* is in the worker's own epoll set; for room to write, too */
    bool linger;                /* unread bytes may be on their way: close slowly */
    bool cut;
    uint32_t served;
    uint64_t since_ms;   /* of the accept, or the end of the last request */
    uint64_t taken_ms;   /* when the peer last took something, or had nothing to take */
    uint64_t checked_ms; /* when that was looked at */
    uint64_t acked;      /* bytes it had taken then */
    char remote[56];
};

/* Where other threads leave word for a worker. Outlives it while tickets are held. */
struct inbox {
    pthread_mutex_t lock;
    struct exchange_ticket *first, **last; /* woken ones, by woken_next */
    bool closed;
    int wake_fd;
    _Atomic unsigned refs;
    _Atomic bool kick; /* the feed moved */
};

struct exchange_ticket {
    struct inbox *inbox;
    struct exchange *x;                  /* worker's; NULL when it has ended */
    struct exchange_ticket *prev, *next; /* the exchange's list: the worker's */
    struct exchange_ticket *woken_next;  /* the inbox's list */
    void *arg;
    void (*drop)(void *arg);
};

struct counters {
    _Atomic uint64_t responses[6];
    _Atomic uint64_t bad_requests, accepted, timed_out, client_gone, feed_kicks, exchanges, parked,
        streams, followers;
};

struct lingerer {
    int fd;
    uint64_t until_ms;
    uint64_t bytes;
};

struct worker {
    struct http_server *server;
    unsigned number;
    pthread_t thread;
    struct MHD_Daemon *daemon;
    int listen_fd, epoll_fd;
    struct inbox *inbox;
    struct conn *conns; /* all open ones */
    struct exchange *pool;
    unsigned pool_count;
    struct exchange *follow_first; /* those that follow the feed */
    struct exchange **timers;
    size_t timer_count, timer_cap;
    uint64_t now_ms;   /* of this turn */
    uint64_t sweep_ms; /* when connections are looked at next */
    uint64_t random;
    struct api_param params[API_PARAMS_MAX]; /* scratch for parsing */
    struct buf scratch;                      /* a stream's piece before it is compressed */
    struct buf head;                         /* an answer's headers while they are put together */
    struct lingerer lingerers[WORKER_LINGER_MAX];
    unsigned linger_count, gzip_count;
    uint64_t progress; /* counts libmicrohttpd's callbacks */
    unsigned spins;    /* turns in a row that it wanted, and made no callback in */
    struct counters count;
};

struct http_server {
    struct http_options options;
    struct router *router;
    uint16_t port;
    unsigned worker_count;
    struct worker *workers;
    _Atomic bool stopping;
    _Atomic uint64_t connections;
    _Atomic uint64_t body_bytes;
};

/* A counter that one thread writes and others read. */
static inline void count_add(_Atomic uint64_t *c, int64_t n)
{
    uint64_t v = atomic_load_explicit(c, memory_order_relaxed);
    atomic_store_explicit(c, v + (uint64_t)n, memory_order_relaxed);
}

/* worker.c */
void *worker_main(void *worker);
uint64_t worker_random(struct worker *w);
struct inbox *inbox_new(int wake_fd);
void inbox_unref(struct inbox *inbox);
void inbox_wake(const struct inbox *inbox);
/* Ends the connection now; nothing more is sent. Its exchange, if any, ends at the next turn. */
void conn_cut(struct conn *c);
void conn_reset(struct conn *c);
void conn_opened(struct conn *c);
/* Before it is suspended: from now on the worker notices that the peer leaves. */
void conn_watch(struct conn *c);
/* After its socket was full: stream_room() is called when it takes more. */
void conn_watch_room(struct conn *c);
void conn_closed(struct conn *c);

/* timers.c: each exchange is in the heap once, at the time that was set last. */
void timer_set(struct exchange *x, uint64_t at_ms);
void timer_clear(struct exchange *x);
/* The first one that is due, taken out; NULL when none is. */
struct exchange *timer_due(struct worker *w);
uint64_t timer_next_ms(const struct worker *w); /* UINT64_MAX: none */

/* linger.c */
/* Goes on reading what the peer sends for a moment, so that the reset that unread bytes cause does
 * not destroy the answer on its way. Takes a duplicate of the descriptor. */
void linger_start(struct worker *w, int fd);
void linger_event(struct worker *w, int fd);
void linger_expire(struct worker *w, bool all);

/* exchange.c */
struct exchange *exchange_open(struct conn *c);
void exchange_close(struct exchange *x);
/* Runs what waits, because something came: the argument of a wake, or NULL for the feed. */
void exchange_run_ready(struct exchange *x, void *arg);
void exchange_run_gone(struct exchange *x, bool timed_out);
/* The peer of a suspended exchange left, or it is to end for another reason. */
void exchange_abandon(struct exchange *x);
void exchange_refuse(struct exchange *x, const struct err *e); /* answers and closes */
void exchange_answer(struct exchange *x, int status, bool stream);
/* Sets the timer of a suspended exchange, and suspends it first. */
void exchange_arm(struct exchange *x);
void exchange_suspend(struct exchange *x);
char *exchange_strdup(struct exchange *x, struct slice text);

/* request.c, called by mhd.c in this order */
void request_begin(struct exchange *x, const char *target);
struct head {
    struct exchange *x;
    const char *at;  /* where the next line must begin */
    const char *bad; /* why the head is refused, or NULL */
    const char *repeated;
    unsigned seen; /* bit for each header that may come once */
    bool has_length, has_encoding, encoding_ok, length_ok, type_ok, type_merge, type_protobuf,
        has_type, coded, expects;
    uint64_t length;
    size_t line_len; /* of the request line */
    const char *request_id;
};
void request_head_open(struct head *h, struct exchange *x, const char *method, const char *version);
void request_head_line(struct head *h, struct slice name, struct slice value);
void request_head_close(struct head *h, const char *end);
/* In place of the head: its Content-Length can't be read. */
void request_bad_length(struct exchange *x);
/* False: the connection must be closed at once. */
bool request_body(struct exchange *x, const char *data, size_t len);
void request_complete(struct exchange *x);

/* stream.c */
/* Sends, or copies into `buf`, what comes next; 0: nothing for now (and the exchange was
 * suspended), -1 the end, -2 abort. */
int64_t stream_pull(struct exchange *x, char *buf, size_t max);
/* Runs a waiting stream. */
void stream_run(struct exchange *x);
/* The socket takes more. */
void stream_room(struct exchange *x);
void stream_close(struct exchange *x);

/* problem.c */
void problem_write(struct buf *out,
                   const struct err *e,
                   const char *instance,
                   uint64_t retry_after_ms);
/* An error as the API may show it: private codes become ERR_INTERNAL without their text. */
void problem_public(const struct err *e, struct err *ret_public);

/* mhd.c */
bool mhd_open(struct worker *w);
/* Serves what is ready. Returns how long to wait at most, -1 for no limit. */
int mhd_run(struct worker *w);
int mhd_epoll_fd(const struct worker *w);
void mhd_quiesce(struct worker *w);
void mhd_close(struct worker *w);
void mhd_suspend(struct exchange *x);
void mhd_resume(struct exchange *x);
const char *mhd_header(const struct exchange *x, const char *name);
/* Queues the headers and x->out, or the stream. False: can't; the connection must go. */
bool mhd_answer(struct exchange *x, bool stream);

#endif
