/* SPDX-License-Identifier: Apache-2.0 */
/* A request goes to the endpoints in turn until one gives an answer that another try can't better.
 * Trying again is always safe: reads change nothing, and mutations carry a key that makes the
 * second one answer what the first did. */
#include "cli/http.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/parse.h"
#include "client/transfer_setup.h"

#include <ctype.h>
#include <curl/curl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <time.h>

enum { CONNECT_MS = 2000, HEADER_MAX = 1024 };

struct http {
    CURL *curl;
    uint64_t timeout_ms;
    unsigned count, current;
    char endpoints[HTTP_ENDPOINTS_MAX][HTTP_URL_MAX + 1];
    unsigned member_count;
    char members[HTTP_MEMBERS_MAX][HTTP_URL_MAX + 1];
};

/* One transfer. */
struct transfer {
    CURL *curl;
    const struct http_request *request;
    struct http_response *response;
    uint64_t deadline_ms; /* for the first byte of a stream, else for all of it */
    bool streaming;       /* bytes went to the sink */
    bool stopped;         /* by the sink */
};

bool http_origin(const char *url, char out[HTTP_URL_MAX + 1])
{
    size_t scheme = strncasecmp(url, "http://", 7) == 0    ? 7
                    : strncasecmp(url, "https://", 8) == 0 ? 8
                                                           : 0;
    size_t len = scheme + strcspn(url + scheme, "/?#");
    if (scheme == 0 || len == scheme || len > HTTP_URL_MAX || memchr(url, '@', len) != NULL) {
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

void http_random_key(char out[HTTP_KEY_SIZE])
{
    uint64_t words[2] = {0};
    if (getrandom(words, sizeof words, 0) != (ssize_t)sizeof words) {
        words[0] = clock_wall_ms();
        words[1] = clock_mono_ns();
    }
    (void)snprintf(out, HTTP_KEY_SIZE, "%016" PRIx64 "%016" PRIx64, words[0], words[1]);
}

enum http_next http_next_after(long status, enum err_code code)
{
    if (status == 307 || status == 308) {
        return NEXT_REDIRECT;
    }
    if (status == 429) {
        return NEXT_WAIT;
    }
    if (status < 500) {
        return NEXT_DONE;
    }
    /* Another server may be ahead of this one; waiting was this one's own part. */
    bool elsewhere = code == ERR_BEHIND || code == ERR_TOO_STALE || code == ERR_NOT_READY;
    return status == 503 && !elsewhere ? NEXT_WAIT : NEXT_OTHER;
}

static bool add_member(struct http *h, const char *url)
{
    char origin[HTTP_URL_MAX + 1];
    if (!http_origin(url, origin)) {
        return false;
    }
    for (unsigned i = 0; i < h->member_count; i++) {
        if (strcmp(h->members[i], origin) == 0) {
            return true;
        }
    }
    if (h->member_count < HTTP_MEMBERS_MAX) {
        memcpy(h->members[h->member_count++], origin, sizeof origin);
    }
    return true;
}

static bool is_member(const struct http *h, const char *origin)
{
    for (unsigned i = 0; i < h->member_count; i++) {
        if (strcmp(h->members[i], origin) == 0) {
            return true;
        }
    }
    return false;
}

/* One element of the comma-separated list. */
static enum err_code add_endpoint(struct http *h, const char *text, size_t len, struct err *e)
{
    char url[HTTP_URL_MAX + 2];
    char origin[HTTP_URL_MAX + 1];
    if (h->count == HTTP_ENDPOINTS_MAX) {
        return err_set(e, ERR_INVALID_REQUEST, "more than %d endpoints", HTTP_ENDPOINTS_MAX);
    }
    (void)snprintf(url, sizeof url, "%.*s", (int)(len < sizeof url ? len : sizeof url - 1), text);
    bool ok = http_origin(url, origin);
    size_t used = ok ? strlen(origin) : 0;
    if (!ok || (len != used && (len != used + 1 || text[used] != '/'))) {
        return err_set(e, ERR_INVALID_REQUEST,
                       "'%.80s' is not an endpoint such as http://127.0.0.1:7400", url);
    }
    memcpy(h->endpoints[h->count++], origin, sizeof origin);
    (void)add_member(h, origin);
    return ERR_OK;
}

struct http *http_new(const char *endpoints, uint64_t timeout_ms, struct err *e)
{
    struct http *h = mem_zalloc(sizeof *h);
    h->timeout_ms = timeout_ms;
    for (const char *p = endpoints;; p++) {
        size_t len = strcspn(p, ",");
        if (add_endpoint(h, p, len, e) != ERR_OK) {
            http_free(h);
            return NULL;
        }
        p += len;
        if (*p == '\0') {
            break;
        }
    }
    h->curl = curl_easy_init();
    if (h->curl == NULL) {
        (void)err_set(e, ERR_INTERNAL, "libcurl does not start");
        http_free(h);
        return NULL;
    }
    return h;
}

void http_free(struct http *h)
{
    if (h != NULL) {
        curl_easy_cleanup(h->curl);
        mem_free(h);
    }
}

void http_rotate(struct http *h)
{
    h->current = (h->current + 1) % h->count;
}

unsigned http_endpoint_count(const struct http *h)
{
    return h->count;
}

const char *http_endpoint(const struct http *h, unsigned i)
{
    return h->endpoints[i];
}

void http_response_close(struct http_response *r)
{
    buf_close(&r->body);
}

static void reset_response(struct http_response *r)
{
    buf_close(&r->body);
    *r = (struct http_response){0};
    buf_init(&r->body, HTTP_BODY_MAX);
}

/* --- one transfer --- */

static void take_header(struct http_response *r, const char *line)
{
    const char *value;
    uint64_t number;
    if (transfer_header(line, "Cadastre-Revision", &value)) {
        r->revision = parse_u64(value, PARSE_INT_MAX, &number) ? number : 0;
    } else if (transfer_header(line, "Retry-After", &value)) {
        r->retry_after_ms = parse_u64(value, 3600, &number) ? number * 1000 : 0;
    } else if (transfer_header(line, "Idempotency-Replayed", &value)) {
        r->replayed = strcmp(value, "true") == 0;
    } else if (transfer_header(line, "Location", &value)) {
        (void)snprintf(r->location, sizeof r->location, "%s", value);
    } else if (transfer_header(line, "ETag", &value)) {
        (void)snprintf(r->etag, sizeof r->etag, "%s", value);
    }
}

static size_t on_header(char *data, size_t size, size_t count, void *arg)
{
    struct transfer *t = arg;
    size_t len = size * count;
    char line[HEADER_MAX];
    if (transfer_header_line(data, len, line, sizeof line)) {
        take_header(t->response, line);
    }
    return len;
}

static size_t on_body(char *data, size_t size, size_t count, void *arg)
{
    struct transfer *t = arg;
    size_t len = size * count;
    long status = 0;
    (void)curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &status);
    if (t->request->sink != NULL && status >= 200 && status < 300) {
        t->streaming = true;
        t->stopped = !t->request->sink(t->request->sink_arg, slice_of(data, len));
        return t->stopped ? 0 : len;
    }
    buf_put(&t->response->body, data, len);
    return t->response->body.overflow ? 0 : len;
}

static int on_progress(void *arg, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    (void)a, (void)b, (void)c, (void)d;
    const struct transfer *t = arg;
    long status = 0;
    (void)curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &status);
    bool begun = t->streaming || (t->request->sink != NULL && status >= 200 && status < 300);
    return !begun && clock_mono_ms() >= t->deadline_ms;
}

static struct curl_slist *headers_for(const struct http_request *rq)
{
    struct curl_slist *list = curl_slist_append(NULL, "User-Agent: cadastre/" CADASTRE_VERSION);
    struct {
        const char *name, *value;
    } headers[] = {{"Accept", rq->accept != NULL ? rq->accept : "application/json"},
                   {"Content-Type", rq->body != NULL ? "application/json" : NULL},
                   {"Idempotency-Key", rq->idempotency_key},
                   {"Last-Event-ID", rq->last_event_id},
                   {"Expect", ""}};
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
        if (headers[i].value != NULL) {
            char *line = mem_printf("%s: %s", headers[i].name, headers[i].value);
            /* "Expect:" with nothing after it takes the header away. */
            line[headers[i].value[0] == '\0' ? strlen(line) - 1 : strlen(line)] = '\0';
            list = curl_slist_append(list, line);
            mem_free(line);
        }
    }
    return list;
}

static void set_request(CURL *curl, const struct http_request *rq)
{
    transfer_setup_method(curl, rq->method, rq->body);
    if (rq->sink != NULL) {
        transfer_setup_stall(curl, HTTP_STALL_S);
    }
}

static void set_transfer(struct transfer *t, const char *url, struct curl_slist *headers)
{
    CURL *curl = t->curl;
    transfer_setup(curl, url, CONNECT_MS);
    (void)curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    (void)curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header);
    (void)curl_easy_setopt(curl, CURLOPT_HEADERDATA, t);
    (void)curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
    (void)curl_easy_setopt(curl, CURLOPT_WRITEDATA, t);
    (void)curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    (void)curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    (void)curl_easy_setopt(curl, CURLOPT_XFERINFODATA, t);
    set_request(curl, t->request);
}

static enum http_result
explain(const struct transfer *t, CURLcode rc, const char *server, struct err *e)
{
    const char *why = curl_easy_strerror(rc);
    if (t->stopped) {
        (void)err_set(e, ERR_INTERNAL, "%s: the output ended", server);
        return HTTP_BROKEN;
    }
    if (t->streaming) {
        (void)err_set(e, ERR_INTERNAL, "%s: the answer is incomplete: %s", server, why);
        return HTTP_BROKEN;
    }
    if (t->response->body.overflow) {
        (void)err_set(e, ERR_INTERNAL, "%s: the answer is too large", server);
        return HTTP_BROKEN;
    }
    bool late = rc == CURLE_ABORTED_BY_CALLBACK || rc == CURLE_OPERATION_TIMEDOUT;
    (void)err_set(e, ERR_INTERNAL, "%s: %s", server, late ? "no answer in time" : why);
    return late ? HTTP_TIMED_OUT : HTTP_UNREACHABLE;
}

/* `limit_ms` is for this transfer alone. */
static enum http_result transfer_run(struct http *h,
                                     const char *server,
                                     const struct http_request *rq,
                                     uint64_t limit_ms,
                                     struct http_response *response,
                                     struct err *e)
{
    reset_response(response);
    struct transfer t = {.curl = h->curl,
                         .request = rq,
                         .response = response,
                         .deadline_ms = clock_mono_ms() + limit_ms};
    char *url = mem_printf("%s%s", server, rq->target);
    struct curl_slist *headers = headers_for(rq);
    set_transfer(&t, url, headers);
    if (rq->sink == NULL) {
        (void)curl_easy_setopt(h->curl, CURLOPT_TIMEOUT_MS, (long)limit_ms);
    }
    CURLcode rc = curl_easy_perform(h->curl);
    curl_slist_free_all(headers);
    mem_free(url);
    (void)snprintf(response->server, sizeof response->server, "%s", server);
    (void)curl_easy_getinfo(h->curl, CURLINFO_RESPONSE_CODE, &response->status);
    curl_off_t ready_us = 0;
    (void)curl_easy_getinfo(h->curl, CURLINFO_PRETRANSFER_TIME_T, &ready_us);
    response->sent = ready_us > 0;
    if (rc != CURLE_OK) {
        return explain(&t, rc, server, e);
    }
    return HTTP_ANSWERED;
}

enum http_result http_ask(struct http *h,
                          const char *server,
                          const struct http_request *request,
                          struct http_response *ret_response,
                          struct err *e)
{
    *ret_response = (struct http_response){0};
    return transfer_run(h, server, request, h->timeout_ms, ret_response, e);
}

/* --- redirects --- */

/* Asks an endpoint who the members are. */
static void learn_members(struct http *h, const char *server, uint64_t limit_ms)
{
    struct http_request rq = {.method = "GET", .target = "/v1/cluster"};
    struct http_response r = {0};
    struct err ignored; /* then the redirect is refused, which says enough */
    if (transfer_run(h, server, &rq, limit_ms, &r, &ignored) == HTTP_ANSWERED && r.status == 200) {
        json_t *body = json_loadb((const char *)r.body.data, r.body.len, 0, NULL);
        json_t *servers = json_object_get(body, "servers");
        for (size_t i = 0; i < json_array_size(servers); i++) {
            const char *url =
                json_string_value(json_object_get(json_array_get(servers, i), "api_url"));
            if (url != NULL) {
                (void)add_member(h, url);
            }
        }
        json_decref(body);
    }
    http_response_close(&r);
}

static enum err_code problem_code(const struct http_response *r, uint64_t *ret_wait_ms)
{
    *ret_wait_ms = r->retry_after_ms;
    json_t *body = json_loadb((const char *)r->body.data, r->body.len, 0, NULL);
    const char *slug = json_string_value(json_object_get(body, "code"));
    const json_t *wait = json_object_get(body, "retry_after_ms");
    if (json_is_integer(wait) && json_integer_value(wait) >= 0) {
        *ret_wait_ms = (uint64_t)json_integer_value(wait);
    }
    enum err_code code = slug != NULL ? err_from_slug(slug) : ERR_COUNT;
    json_decref(body);
    return code;
}

/* What came of one endpoint. */
struct attempt {
    enum http_result result;
    enum http_next next;
    uint64_t wait_ms;
    bool in_doubt; /* a request went out and no answer came back */
};

static struct attempt attempt_run(struct http *h,
                                  const char *server,
                                  const struct http_request *rq,
                                  uint64_t limit_ms,
                                  struct http_response *response,
                                  struct err *e)
{
    struct attempt a = {0};
    char at[HTTP_URL_MAX + 1], origin[HTTP_URL_MAX + 1];
    (void)snprintf(at, sizeof at, "%s", server);
    for (unsigned hops = 0; hops <= HTTP_REDIRECTS_MAX; hops++) {
        a.result = transfer_run(h, at, rq, limit_ms, response, e);
        if (a.result != HTTP_ANSWERED) {
            /* A leader that does not answer may be gone, and its followers not know it yet. */
            a.next = a.result == HTTP_BROKEN ? NEXT_DONE : hops > 0 ? NEXT_WAIT : NEXT_OTHER;
            a.in_doubt = rq->idempotency_key != NULL && response->sent;
            return a;
        }
        a.next = http_next_after(response->status, problem_code(response, &a.wait_ms));
        if (a.next != NEXT_REDIRECT) {
            return a;
        }
        if (!http_origin(response->location, origin)) {
            break;
        }
        if (!is_member(h, origin)) {
            learn_members(h, at, limit_ms);
        }
        if (!is_member(h, origin)) {
            (void)err_set(e, ERR_INTERNAL, "%s redirects to %s, which is no member", at, origin);
            return (struct attempt){.result = HTTP_REFUSED, .next = NEXT_OTHER};
        }
        memcpy(at, origin, sizeof at);
    }
    (void)err_set(e, ERR_INTERNAL, "%s: redirected in circles", at);
    return (struct attempt){.result = HTTP_REFUSED, .next = NEXT_WAIT};
}

/* --- failover --- */

static void sleep_ms(uint64_t ms)
{
    struct timespec ts = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};
    while (nanosleep(&ts, &ts) != 0) {
    }
}

static uint64_t remaining_ms(uint64_t deadline_ms)
{
    uint64_t now = clock_mono_ms();
    return now < deadline_ms ? deadline_ms - now : 0;
}

/* All the endpoints once, from the current one on. What is left in `a` is the last answer. */
static bool round_run(struct http *h,
                      const struct http_request *rq,
                      uint64_t deadline_ms,
                      struct http_response *response,
                      struct attempt *a,
                      struct err *e)
{
    uint64_t wait_ms = 0;
    bool wait = false, in_doubt = a->in_doubt;
    for (unsigned i = 0; i < h->count; i++) {
        uint64_t left = remaining_ms(deadline_ms);
        if (left == 0) {
            return false;
        }
        /* A server that hangs must leave time for the next one. */
        uint64_t limit = i + 1 < h->count && left > 2 ? left / 2 : left;
        *a = attempt_run(h, h->endpoints[h->current], rq, limit, response, e);
        if (a->next == NEXT_DONE) {
            return false;
        }
        wait = wait || a->next == NEXT_WAIT;
        in_doubt = in_doubt || a->in_doubt;
        wait_ms = a->wait_ms > wait_ms ? a->wait_ms : wait_ms;
        http_rotate(h);
    }
    a->wait_ms = wait_ms;
    a->in_doubt = in_doubt;
    return wait || in_doubt;
}

enum http_result http_send(struct http *h,
                           const struct http_request *request,
                           struct http_response *ret_response,
                           struct err *e)
{
    *ret_response = (struct http_response){0};
    uint64_t deadline = clock_mono_ms() + h->timeout_ms, backoff = HTTP_BACKOFF_MIN_MS;
    struct attempt a = {.result = HTTP_TIMED_OUT};
    for (unsigned round = 0; round < HTTP_ROUNDS_MAX; round++) {
        if (!round_run(h, request, deadline, ret_response, &a, e)) {
            break;
        }
        uint64_t wait = a.wait_ms > backoff ? a.wait_ms : backoff;
        wait = wait < HTTP_BACKOFF_MAX_MS ? wait : HTTP_BACKOFF_MAX_MS;
        if (wait >= remaining_ms(deadline)) {
            break;
        }
        sleep_ms(wait);
        backoff = backoff * 2;
    }
    if (a.result != HTTP_ANSWERED && a.in_doubt) {
        char before[sizeof e->detail];
        memcpy(before, e->detail, sizeof before);
        (void)err_set(e, ERR_OUTCOME_UNKNOWN,
                      "%.200s; the outcome is unknown: cadastre command get %s", before,
                      request->idempotency_key);
    }
    return a.result;
}
