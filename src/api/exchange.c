/* SPDX-License-Identifier: Apache-2.0 */
/* The life of one request and what handlers do with it.
 *
 * X_HEAD -> X_BODY -> X_RUNNING -> X_ANSWERING | X_STREAMING, with X_RUNNING <-> X_PARKED in
 * between. A refusal goes from X_HEAD or X_BODY to X_ANSWERING. X_GONE is for those whose
 * connection is to be closed without an answer. libmicrohttpd ends every exchange, by
 * exchange_close(). */
#include "api/internal.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct arena_block {
    struct arena_block *next;
    max_align_t bytes[];
};

enum { ARENA_BLOCK = 4096 };

/* --- begin and end --- */

struct exchange *exchange_open(struct conn *c)
{
    struct worker *w = c->worker;
    struct exchange *x = w->pool;
    struct buf body, out;
    if (x != NULL) {
        w->pool = x->pool_next;
        w->pool_count--;
        body = x->body;
        out = x->out;
    } else {
        x = mem_alloc(sizeof *x);
        buf_init(&body, API_BODY_MAX);
        buf_init(&out, API_RESPONSE_MAX);
    }
    memset(x, 0, offsetof(struct exchange, arena_inline));
    x->worker = w;
    x->conn = c;
    x->body = body;
    x->out = out;
    x->principal = "";
    x->deadline_ms = UINT64_MAX;
    x->started_ms = w->now_ms;
    x->arena_at = x->arena_inline;
    x->arena_end = x->arena_inline + sizeof x->arena_inline;
    c->x = x;
    count_add(&w->count.exchanges, 1);
    return x;
}

static void set_state(struct exchange *x, enum x_state state)
{
    struct counters *n = &x->worker->count;
    count_add(&n->parked, (state == X_PARKED) - (x->state == X_PARKED));
    count_add(&n->streams, (state == X_STREAMING) - (x->state == X_STREAMING));
    x->state = state;
}

static void unfollow(struct exchange *x)
{
    if (!x->follows) {
        return;
    }
    x->follows = false;
    if (x->follow_prev != NULL) {
        x->follow_prev->follow_next = x->follow_next;
    } else {
        x->worker->follow_first = x->follow_next;
    }
    if (x->follow_next != NULL) {
        x->follow_next->follow_prev = x->follow_prev;
    }
    count_add(&x->worker->count.followers, -1);
}

static void keep_or_free(struct buf *b)
{
    if (b->cap > WORKER_KEEP_BYTES) {
        buf_close(b);
    }
    buf_reset(b);
}

void exchange_close(struct exchange *x)
{
    struct worker *w = x->worker;
    stream_close(x);
    while (x->end_count > 0) {
        x->end_count--;
        x->ends[x->end_count].fn(x->ends[x->end_count].arg);
    }
    for (struct exchange_ticket *t = x->tickets; t != NULL; t = t->next) {
        t->x = NULL;
    }
    unfollow(x);
    timer_clear(x);
    if (x->status == 0) {
        count_add(&w->count.responses[0], 1);
    }
    set_state(x, X_GONE);
    count_add(&w->count.exchanges, -1);
    atomic_fetch_sub_explicit(&w->server->body_bytes, x->body_charged, memory_order_relaxed);
    while (x->blocks != NULL) {
        struct arena_block *next = x->blocks->next;
        mem_free(x->blocks);
        x->blocks = next;
    }
    x->conn->x = NULL;
    x->conn->served++;
    x->conn->since_ms = w->now_ms;
    keep_or_free(&x->body);
    keep_or_free(&x->out);
    if (w->pool_count < WORKER_POOL_MAX) {
        x->pool_next = w->pool;
        w->pool = x;
        w->pool_count++;
    } else {
        buf_close(&x->body);
        buf_close(&x->out);
        mem_free(x);
    }
}

void *exchange_alloc(struct exchange *x, size_t size)
{
    const size_t align = _Alignof(max_align_t);
    size_t pad = (align - (uintptr_t)x->arena_at % align) % align;
    if ((size_t)(x->arena_end - x->arena_at) >= size &&
        (size_t)(x->arena_end - x->arena_at) - size >= pad) {
        uint8_t *p = x->arena_at + pad;
        x->arena_at = p + size;
        return p;
    }
    size_t room = size > ARENA_BLOCK ? size : ARENA_BLOCK;
    struct arena_block *b = mem_alloc(sizeof *b + room);
    b->next = x->blocks;
    x->blocks = b;
    if (room > size) { /* the rest of a block made for one big thing is not worth having */
        x->arena_at = (uint8_t *)b->bytes + size;
        x->arena_end = (uint8_t *)b->bytes + room;
    }
    return b->bytes;
}

char *exchange_strdup(struct exchange *x, struct slice text)
{
    char *s = exchange_alloc(x, text.len + 1);
    if (text.len > 0) {
        memcpy(s, text.data, text.len);
    }
    s[text.len] = '\0';
    return s;
}

void exchange_on_end(struct exchange *x, void (*fn)(void *arg), void *arg)
{
    ASSERT(x->end_count < X_ENDS_MAX);
    x->ends[x->end_count].fn = fn;
    x->ends[x->end_count].arg = arg;
    x->end_count++;
}

void exchange_set_state(struct exchange *x, void *state)
{
    x->state_of_handler = state;
}

void *exchange_state(const struct exchange *x)
{
    return x->state_of_handler;
}

/* --- the request --- */

struct api *exchange_api(const struct exchange *x)
{
    return x->worker->server->options.app;
}

struct http_server *exchange_server(const struct exchange *x)
{
    return x->worker->server;
}

const struct api_route *exchange_route(const struct exchange *x)
{
    return x->route;
}

struct slice exchange_path(const struct exchange *x, unsigned i)
{
    ASSERT(i < x->variable_count);
    return x->target.segments[x->variables[i]];
}

struct slice exchange_target(const struct exchange *x)
{
    return x->raw;
}

const struct slice *exchange_param(const struct exchange *x, const char *name)
{
    size_t len = strlen(name);
    for (unsigned i = 0; i < x->target.param_count; i++) {
        const struct api_param *p = &x->target.params[i];
        if (p->name.len == len && memcmp(p->name.data, name, len) == 0) {
            return &p->value;
        }
    }
    return NULL;
}

const char *exchange_header(const struct exchange *x, const char *name)
{
    return mhd_header(x, name);
}

struct slice exchange_body(const struct exchange *x)
{
    return slice_of(x->body.data, x->body.len);
}

bool exchange_body_is_protobuf(const struct exchange *x)
{
    return x->protobuf;
}

const char *exchange_principal(const struct exchange *x)
{
    return x->principal;
}

void exchange_set_principal(struct exchange *x, const char *name)
{
    x->principal = exchange_strdup(x, slice_of(name, strlen(name)));
}

const char *exchange_remote(const struct exchange *x)
{
    return x->conn->remote;
}

const char *exchange_request_id(const struct exchange *x)
{
    return x->request_id;
}

/* --- the answer --- */

/* Both live as long as the exchange. */
static void lend_header(struct exchange *x, const char *name, const char *value)
{
    ASSERT(x->header_count < X_HEADERS_MAX);
    if (value[0] != '\0') {
        x->headers[x->header_count++] = (struct x_header){name, value};
    }
}

/* `value` is in the arena already. What came in with a request must not make a header of its own.
 */
static void add_header(struct exchange *x, const char *name, char *value)
{
    for (char *p = value; *p != '\0'; p++) {
        if ((unsigned char)*p < 0x20 || *p == 0x7f) {
            *p = '?';
        }
    }
    lend_header(x, name, value);
}

void exchange_set_header(struct exchange *x, const char *name, const char *value)
{
    add_header(x, name, exchange_strdup(x, slice_of(value, strlen(value))));
}

void exchange_printf_header(struct exchange *x, const char *name, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    ASSERT(n >= 0);
    char *value = exchange_alloc(x, (size_t)n + 1);
    va_start(args, fmt);
    (void)vsnprintf(value, (size_t)n + 1, fmt, args);
    va_end(args);
    add_header(x, name, value);
}

void exchange_u64_header(struct exchange *x, const char *name, uint64_t value)
{
    enum { DIGITS = 20 };
    char *end = (char *)exchange_alloc(x, DIGITS + 1) + DIGITS, *at = end;
    *end = '\0';
    do {
        *--at = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    lend_header(x, name, at);
}

struct buf *exchange_out(struct exchange *x)
{
    return &x->out;
}

/* Leaves what it waited for, and lets libmicrohttpd go on. */
void exchange_answer(struct exchange *x, int status, bool stream)
{
    struct worker *w = x->worker;
    ASSERT(x->state == X_RUNNING || x->state == X_HEAD || x->state == X_BODY);
    ASSERT(status >= 200 && status < 600);
    x->status = status;
    timer_clear(x);
    x->conn->taken_ms = w->now_ms;
    set_state(x, stream ? X_STREAMING : X_ANSWERING);
    count_add(&w->count.responses[status / 100], 1);
    if (x->conn->cut || !mhd_answer(x, stream)) {
        set_state(x, X_GONE);
    }
    if (x->suspended) {
        mhd_resume(x);
    }
}

void exchange_reply(struct exchange *x, int status, const char *content_type)
{
    if (x->out.overflow) {
        struct err e;
        (void)err_set(&e, ERR_INTERNAL, "the answer is larger than %d bytes: ask for less",
                      API_RESPONSE_MAX);
        exchange_problem(x, &e, NULL, NULL);
        return;
    }
    unfollow(x);
    if (x->out.len > 0 || content_type != NULL) {
        lend_header(x, "Content-Type", content_type != NULL ? content_type : "application/json");
    }
    exchange_answer(x, status, false);
}

void exchange_problem(struct exchange *x,
                      const struct err *e,
                      void (*members)(struct exchange *x, struct buf *out, void *arg),
                      void *arg)
{
    struct err shown;
    problem_public(e, &shown);
    if (shown.code == ERR_INTERNAL) {
        char quoted[sizeof e->detail * 2];
        log_event(LOG_ERROR, "api.internal", "request=%s detail=%s", x->request_id,
                  log_quote(e->detail, quoted, sizeof quoted));
    }
    int status = err_http_status(shown.code);
    uint64_t retry_ms = status == 429 || status == 503 ? 1000 + worker_random(x->worker) % 2000 : 0;
    if (retry_ms > 0) {
        exchange_printf_header(x, "Retry-After", "%u", (unsigned)((retry_ms + 999) / 1000));
    }
    buf_reset(&x->out);
    problem_write(&x->out, &shown, x->request_id, retry_ms);
    if (members != NULL) {
        x->out.len--; /* the closing brace */
        members(x, &x->out, arg);
        buf_put_u8(&x->out, '}');
    }
    if (x->out.overflow) {
        buf_reset(&x->out);
        problem_write(&x->out, &shown, x->request_id, retry_ms);
    }
    exchange_reply(x, status, "application/problem+json");
}

void exchange_refuse(struct exchange *x, const struct err *e)
{
    x->close_after = true;
    x->conn->linger = true;
    count_add(&x->worker->count.bad_requests, 1);
    exchange_problem(x, e, NULL, NULL);
}

/* --- waiting --- */

void exchange_arm(struct exchange *x)
{
    timer_set(x, x->kick || x->conn->gone ? x->worker->now_ms : x->deadline_ms);
}

void exchange_suspend(struct exchange *x)
{
    if (!x->suspended) {
        conn_watch(x->conn);
        mhd_suspend(x);
    }
    exchange_arm(x);
}

void exchange_park(struct exchange *x,
                   exchange_ready ready,
                   exchange_gone gone,
                   uint64_t deadline_ms)
{
    ASSERT(x->state == X_RUNNING && ready != NULL);
    x->ready = ready;
    x->gone = gone;
    x->deadline_ms = deadline_ms > 0 ? deadline_ms : UINT64_MAX;
    set_state(x, X_PARKED);
    exchange_suspend(x);
}

/* After a callback: it answered, parked again, or did nothing, and then waits on as before. */
static void settle(struct exchange *x)
{
    if (x->state == X_RUNNING) {
        set_state(x, X_PARKED);
    }
    if (x->state == X_PARKED) {
        exchange_arm(x);
    }
}

void exchange_run_ready(struct exchange *x, void *arg)
{
    ASSERT(x->state == X_PARKED);
    set_state(x, X_RUNNING);
    x->ready(x, arg);
    settle(x);
}

void exchange_run_gone(struct exchange *x, bool timed_out)
{
    ASSERT(x->state == X_PARKED);
    x->deadline_ms = UINT64_MAX;
    set_state(x, X_RUNNING);
    if (x->gone != NULL) {
        x->gone(x, timed_out);
    }
    if (timed_out && x->state == X_RUNNING) {
        struct err e;
        (void)err_set(&e, ERR_OVERLOADED, "the request waited too long");
        exchange_problem(x, &e, NULL, NULL);
    }
}

void exchange_abandon(struct exchange *x)
{
    ASSERT(x->suspended);
    timer_clear(x);
    if (x->state == X_PARKED) {
        x->conn->cut = true; /* an answer of the callback goes nowhere */
        exchange_run_gone(x, false);
        if (x->state == X_RUNNING || x->state == X_PARKED) {
            set_state(x, X_GONE);
        }
    }
    x->conn->cut = true;
    if (x->suspended) {
        mhd_resume(x);
    }
}

struct exchange_ticket *exchange_ticket(struct exchange *x)
{
    struct exchange_ticket *t = mem_alloc(sizeof *t);
    *t = (struct exchange_ticket){.inbox = x->worker->inbox, .x = x, .next = x->tickets};
    if (x->tickets != NULL) {
        x->tickets->prev = t;
    }
    x->tickets = t;
    atomic_fetch_add(&t->inbox->refs, 1);
    return t;
}

void exchange_follow_feed(struct exchange *x)
{
    struct worker *w = x->worker;
    if (x->follows) {
        return;
    }
    x->follows = true;
    x->follow_prev = NULL;
    x->follow_next = w->follow_first;
    if (w->follow_first != NULL) {
        w->follow_first->follow_prev = x;
    }
    w->follow_first = x;
    count_add(&w->count.followers, 1);
    /* Pairs with http_server_published(): either it sees a follower, or the run that this causes
     * sees what was published. */
    atomic_thread_fence(memory_order_seq_cst);
    x->kick = true;
    if (x->suspended) {
        exchange_arm(x);
    }
}
