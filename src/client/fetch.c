/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/mem.h"
#include "base/parse.h"
#include "client/decode.h"
#include "client/fetch_internal.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

enum { EVENT_MAX = 400 };

/* --- small things --- */

void cl_hooks_init(struct cl_hooks *h, const char *ca_file)
{
    *h = (struct cl_hooks){.ca_file = ca_file != NULL ? mem_strdup(ca_file) : NULL};
    (void)pthread_mutex_init(&h->lock, NULL);
}

void cl_hooks_close(struct cl_hooks *h)
{
    (void)pthread_mutex_destroy(&h->lock);
    mem_free(h->ca_file);
}

void cl_event(struct cl_hooks *h, const char *name, const char *fmt, ...)
{
    char text[EVENT_MAX];
    va_list args;
    if (h->event == NULL) {
        return;
    }
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    (void)pthread_mutex_lock(&h->lock);
    h->event(h->event_arg, name, text);
    (void)pthread_mutex_unlock(&h->lock);
}

enum cadastre_status cl_error(struct cadastre_error *e,
                              enum cadastre_status status,
                              const char *code,
                              const char *fmt,
                              ...)
{
    va_list args;
    if (e != NULL) {
        e->status = status;
        (void)snprintf(e->code, sizeof e->code, "%s", code);
        va_start(args, fmt);
        (void)vsnprintf(e->detail, sizeof e->detail, fmt, args);
        va_end(args);
    }
    return status;
}

uint64_t cl_random_below(uint64_t n)
{
    uint64_t x = 0;
    if (getrandom(&x, sizeof x, GRND_NONBLOCK) != (ssize_t)sizeof x) {
        x = clock_mono_ns() * UINT64_C(0x9e3779b97f4a7c15);
    }
    return n > 0 ? x % n : 0;
}

void cl_random_key(char out[33])
{
    (void)snprintf(out, 33, "%016" PRIx64 "%016" PRIx64, cl_random_below(UINT64_MAX),
                   cl_random_below(UINT64_MAX));
}

bool cl_origin(const char *url, char out[CL_URL_MAX + 1])
{
    size_t scheme = strncasecmp(url, "http://", 7) == 0    ? 7
                    : strncasecmp(url, "https://", 8) == 0 ? 8
                                                           : 0;
    size_t len = scheme + strcspn(url + scheme, "/?#");
    if (scheme == 0 || len == scheme || len > CL_URL_MAX || memchr(url, '@', len) != NULL) {
        return false;
    }
    for (size_t i = 0; i < len; i++) {
        if (isspace((unsigned char)url[i]) || iscntrl((unsigned char)url[i])) {
            return false;
        }
        out[i] = (char)tolower((unsigned char)url[i]);
    }
    out[len] = '\0';
    return true;
}

/* --- servers --- */

static struct server *find_server(struct cl_fetch *f, const char *origin)
{
    for (unsigned i = 0; i < f->count; i++) {
        if (strcmp(f->servers[i].url, origin) == 0) {
            return &f->servers[i];
        }
    }
    return NULL;
}

static void add_server(struct cl_fetch *f, const char *origin, bool endpoint)
{
    if (find_server(f, origin) == NULL && f->count < CL_SERVERS_MAX) {
        struct server *s = &f->servers[f->count++];
        *s = (struct server){.endpoint = endpoint};
        (void)snprintf(s->url, sizeof s->url, "%s", origin);
    }
}

static bool add_endpoints(struct cl_fetch *f, const char *list)
{
    for (const char *p = list;; p++) {
        char url[CL_URL_MAX + 2], origin[CL_URL_MAX + 1];
        size_t len = strcspn(p, ",");
        (void)snprintf(url, sizeof url, "%.*s", (int)(len < sizeof url ? len : sizeof url - 1), p);
        bool ok = f->count < CL_ENDPOINTS_MAX && cl_origin(url, origin);
        size_t used = ok ? strlen(origin) : 0;
        if (!ok || (len != used && (len != used + 1 || p[used] != '/'))) {
            return false;
        }
        add_server(f, origin, true);
        p += len;
        if (*p == '\0') {
            return true;
        }
    }
}

struct cl_fetch *cl_fetch_new(const char *endpoints,
                              uint64_t timeout_ms,
                              struct cl_hooks *hooks,
                              struct cadastre_error *e)
{
    struct cl_fetch *f = mem_zalloc(sizeof *f);
    f->hooks = hooks;
    f->timeout_ms = timeout_ms;
    if (endpoints == NULL || !add_endpoints(f, endpoints)) {
        (void)cl_error(e, CADASTRE_INVALID, "", "endpoints: not a list such as http://a:7400");
        cl_fetch_free(f);
        return NULL;
    }
    f->easy = curl_easy_init();
    f->multi = curl_multi_init();
    if (f->easy == NULL || f->multi == NULL) {
        (void)cl_error(e, CADASTRE_IO, "", "libcurl does not start");
        cl_fetch_free(f);
        return NULL;
    }
    /* Not all clients begin with the same server. */
    f->current = (unsigned)cl_random_below(f->count);
    return f;
}

void cl_fetch_free(struct cl_fetch *f)
{
    if (f != NULL) {
        curl_easy_cleanup(f->easy);
        (void)curl_multi_cleanup(f->multi);
        mem_free(f);
    }
}

void cl_fetch_stop(struct cl_fetch *f)
{
    atomic_store(&f->stopped, true);
    (void)curl_multi_wakeup(f->multi);
}

void cl_fetch_interrupt(struct cl_fetch *f)
{
    atomic_store(&f->interrupted, true);
    (void)curl_multi_wakeup(f->multi);
}

static void pause_more(struct cl_fetch *f, uint64_t ms)
{
    uint64_t until = clock_boot_ms() + ms;
    for (uint64_t now = clock_boot_ms(); now < until && !cl_fetch_ended(f); now = clock_boot_ms()) {
        uint64_t left = until - now < 1000 ? until - now : 1000;
        (void)curl_multi_poll(f->multi, NULL, 0, (int)left, NULL);
    }
}

void cl_fetch_pause(struct cl_fetch *f, uint64_t ms)
{
    atomic_store(&f->interrupted, false);
    pause_more(f, ms);
}

uint64_t cl_fetch_failures(const struct cl_fetch *f)
{
    return atomic_load_explicit(&f->failures, memory_order_relaxed);
}

/* The first server from the present one on that may be asked at `now`; endpoints before members.
 * NULL, with the earliest moment, when none may. */
static struct server *pick(struct cl_fetch *f, uint64_t now, uint64_t *ret_at_ms)
{
    *ret_at_ms = UINT64_MAX;
    for (unsigned i = 0; i < f->count; i++) {
        struct server *s = &f->servers[(f->current + i) % f->count];
        if (s->not_before_ms <= now) {
            f->current = (unsigned)(s - f->servers);
            return s;
        }
        *ret_at_ms = s->not_before_ms < *ret_at_ms ? s->not_before_ms : *ret_at_ms;
    }
    return NULL;
}

/* It works, but its state is too old for this request. */
static bool only_behind(const struct cl_answer *a)
{
    return strcmp(a->code, "behind") == 0 || strcmp(a->code, "too_stale") == 0;
}

/* Leaves the server alone for a while: what it wishes, or twice as long each time. */
static void avoid(struct cl_fetch *f, struct server *s, uint64_t wish_ms, bool failed)
{
    uint64_t pause = CL_BACKOFF_MIN_MS;
    for (unsigned i = 0; i < s->failures && pause < CL_BACKOFF_MAX_MS; i++) {
        pause *= 2;
    }
    pause = pause < CL_BACKOFF_MAX_MS ? pause : CL_BACKOFF_MAX_MS;
    wish_ms = wish_ms < CL_RETRY_AFTER_MAX_MS ? wish_ms : CL_RETRY_AFTER_MAX_MS;
    if (wish_ms > 0) {
        pause = wish_ms + cl_random_below(wish_ms / 2 + 1); /* never earlier than it asked for */
    } else {
        pause = pause / 2 + cl_random_below(pause / 2 + 1);
    }
    s->failures += failed;
    s->not_before_ms = clock_boot_ms() + pause;
    atomic_fetch_add_explicit(&f->failures, 1, memory_order_relaxed);
    cl_fetch_rotate(f);
}

void cl_fetch_rotate(struct cl_fetch *f)
{
    f->current = (f->current + 1) % f->count;
}

void cl_fetch_prefer(struct cl_fetch *f, const char *origin)
{
    if (origin[0] != '\0') {
        add_server(f, origin, false);
    }
    const struct server *s = find_server(f, origin);
    if (s != NULL) {
        f->current = (unsigned)(s - f->servers);
    }
}

/* --- redirects --- */

static void learn_members(struct cl_fetch *f, const char *server, uint64_t limit_ms)
{
    struct cl_request rq = {.method = "GET", .target = "/v1/cluster"};
    struct cl_answer a = {0};
    struct attempt t;
    buf_init(&a.body, CL_BODY_MAX);
    cl_transfer(f, server, &rq, limit_ms, &a, &t);
    json_t *body = t.end == TRY_ANSWERED && a.status == 200
                       ? cl_json_parse(slice_of(a.body.data, a.body.len))
                       : NULL;
    json_t *servers = json_object_get(body, "servers");
    for (size_t i = 0; i < json_array_size(servers); i++) {
        char url[CL_URL_MAX + 1], origin[CL_URL_MAX + 1];
        if (cl_json_text(json_array_get(servers, i), "api_url", url, sizeof url) &&
            cl_origin(url, origin)) {
            add_server(f, origin, false);
        }
    }
    json_decref(body);
    cl_answer_close(&a);
}

static bool is_redirect(const struct cl_answer *a)
{
    return a->status == 307 || a->status == 308;
}

/* One try, along its redirects. The server that gave the answer is the next request's first. */
static void try_server(struct cl_fetch *f,
                       struct server *s,
                       const struct cl_request *rq,
                       uint64_t limit_ms,
                       struct cl_answer *answer,
                       struct attempt *t)
{
    char origin[CL_URL_MAX + 1];
    for (unsigned hops = 0; hops <= CL_HOPS_MAX; hops++) {
        cl_transfer(f, s->url, rq, limit_ms, answer, t);
        if (t->end != TRY_ANSWERED || !is_redirect(answer)) {
            f->current = (unsigned)(s - f->servers);
            return;
        }
        if (!cl_origin(t->location, origin)) {
            break;
        }
        if (find_server(f, origin) == NULL) {
            learn_members(f, s->url, limit_ms);
        }
        struct server *next = find_server(f, origin);
        if (next == NULL) {
            break;
        }
        s = next;
    }
    f->current = (unsigned)(s - f->servers);
    t->end = TRY_FAILED;
    (void)snprintf(t->why, sizeof t->why, "redirected to no member, or in circles: %.80s",
                   t->location);
}

/* --- one request --- */

static void read_problem(struct cl_answer *a, struct attempt *t, char *detail, size_t size)
{
    json_t *body = cl_json_parse(slice_of(a->body.data, a->body.len));
    (void)cl_json_text(body, "code", a->code, sizeof a->code);
    (void)cl_json_text(body, "detail", detail, size);
    (void)cl_json_u64(body, "retry_after_ms", &t->retry_after_ms);
    json_decref(body);
}

static enum cadastre_status final_status(const struct cl_answer *a)
{
    if (a->status == 404) {
        return CADASTRE_NOT_FOUND;
    }
    return a->status == 401 || a->status == 403 ? CADASTRE_DENIED : CADASTRE_REFUSED;
}

/* Judges a try. False: another one may do better, and its server was told off. */
static bool settle(struct cl_fetch *f,
                   struct cl_answer *a,
                   struct attempt *t,
                   enum cadastre_status *ret_status,
                   struct cadastre_error *e)
{
    struct server *s = &f->servers[f->current];
    char detail[200] = "";
    if (t->end == TRY_STOPPED) {
        *ret_status = cl_error(e, CADASTRE_CLOSED, "", "it is being stopped");
        return true;
    }
    if (t->end == TRY_ANSWERED && a->status >= 200 && a->status < 300) {
        s->failures = 0;
        *ret_status = CADASTRE_OK;
        return true;
    }
    if (t->end == TRY_ANSWERED) {
        read_problem(a, t, detail, sizeof detail);
        if (a->status < 500 && a->status != 429) {
            *ret_status = cl_error(e, final_status(a), a->code, "%s: %ld %s", s->url, a->status,
                                   detail[0] != '\0' ? detail : a->code);
            return true;
        }
        (void)snprintf(t->why, sizeof t->why, "%ld %.60s", a->status, a->code);
    }
    *ret_status = t->end == TRY_BROKEN ? CADASTRE_INVALID : CADASTRE_UNAVAILABLE;
    (void)cl_error(e, *ret_status, a->code, "%s: %s", s->url, t->why);
    cl_event(f->hooks, "fetch.failed", "%s: %s", s->url, t->why);
    avoid(f, s, only_behind(a) ? 0 : t->retry_after_ms, !only_behind(a));
    return false;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

enum cadastre_status cl_fetch_send(struct cl_fetch *f,
                                   const struct cl_request *rq,
                                   struct cl_answer *ret_answer,
                                   struct cadastre_error *e)
{
    uint64_t deadline = rq->deadline_ms > 0 ? rq->deadline_ms : UINT64_MAX;
    enum cadastre_status status = CADASTRE_UNAVAILABLE;
    *ret_answer = (struct cl_answer){0};
    buf_init(&ret_answer->body, CL_BODY_MAX);
    (void)cl_error(e, CADASTRE_TIMEOUT, "", "no time was left");
    atomic_store(&f->interrupted, false);
    for (;;) {
        uint64_t now = clock_boot_ms(), at_ms;
        struct attempt t;
        if (cl_fetch_ended(f)) {
            return cl_error(e, CADASTRE_CLOSED, "", "it is being stopped");
        }
        struct server *s = pick(f, now, &at_ms);
        if (now >= deadline || (s == NULL && at_ms >= deadline)) {
            return CADASTRE_TIMEOUT;
        }
        if (s == NULL) {
            pause_more(f, at_ms - now);
            continue;
        }
        uint64_t limit = least(rq->try_ms > 0 ? rq->try_ms : f->timeout_ms, deadline - now);
        try_server(f, s, rq, limit, ret_answer, &t);
        if (settle(f, ret_answer, &t, &status, e) || rq->once) {
            return status;
        }
    }
}

void cl_answer_close(struct cl_answer *a)
{
    buf_close(&a->body);
}
