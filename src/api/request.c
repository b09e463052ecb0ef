/* SPDX-License-Identifier: Apache-2.0 */
/* From libmicrohttpd's reading of a request to a handler, strictly.
 *
 * libmicrohttpd 0.9.75 is lenient where that is dangerous behind or before another parser: it takes
 * the first of repeated headers, lets Transfer-Encoding win over Content-Length, reads names with a
 * blank before the colon (so that "Content-Length : 5" is no length), cuts values at a NUL, joins
 * folded lines and accepts bare line feeds. What it hands out are pointers into the request as it
 * came, so all of this is found by looking where each one lies: a name must begin right after the
 * CRLF of the line before. */
#include "api/internal.h"

#include "base/log.h"
#include "base/parse.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

/* --- the request line --- */

void request_begin(struct exchange *x, const char *target)
{
    size_t len = strlen(target);
    x->wire = target;
    x->raw = slice_of(exchange_strdup(x, slice_of(target, len)), len);
}

static bool is_upper_word(const char *text)
{
    const char *p = text;
    while (*p >= 'A' && *p <= 'Z') {
        p++;
    }
    return p != text && *p == '\0';
}

void request_head_open(struct head *h, struct exchange *x, const char *method, const char *version)
{
    size_t method_len = strlen(method);
    *h = (struct head){.x = x, .at = version + strlen("HTTP/1.1") + 2};
    x->method = api_method_of(method);
    x->http_1_0 = strcmp(version, "HTTP/1.0") == 0;
    if (method + method_len + 1 != x->wire || x->wire + x->raw.len + 1 != version) {
        h->bad = "the request line has a NUL byte or more than one blank in a row";
    } else if (!is_upper_word(method)) {
        h->bad = "the method is not in upper case";
    }
    h->line_len = (size_t)(version + strlen("HTTP/1.1") - method);
}

/* --- header lines --- */

static bool is_token(struct slice s)
{
    for (size_t i = 0; i < s.len; i++) {
        uint8_t c = s.data[i], lower = c | 0x20;
        bool plain = (lower >= 'a' && lower <= 'z') || (c >= '0' && c <= '9') || c == '-';
        if (!plain && (c == 0 || strchr("_!#$%&'*+.^`|~", c) == NULL)) {
            return false;
        }
    }
    return s.len > 0;
}

static bool has_control(struct slice s)
{
    bool found = false;
    for (size_t i = 0; i < s.len; i++) {
        uint8_t c = s.data[i];
        found |= (c < 0x20 && c != '\t') || c == 0x7f;
    }
    return found;
}

static bool is_word(struct slice s, const char *word)
{
    return s.len == strlen(word) && strncasecmp((const char *)s.data, word, s.len) == 0;
}

enum once {
    ONCE_HOST,
    ONCE_LENGTH,
    ONCE_ENCODING,
    ONCE_TYPE,
    ONCE_REQUEST_ID,
    ONCE_EXPECT,
    ONCE_CODING,
    ONCE_AUTHORIZATION,
    ONCE_IDEMPOTENCY,
    ONCE_IF_NONE_MATCH,
    ONCE_EVENT_ID,
    ONCE_COUNT
};

#define NAME(text)                                                                                 \
    {                                                                                              \
        (const uint8_t *)(text), sizeof(text) - 1                                                  \
    }
static const struct slice once_names[ONCE_COUNT] = {[ONCE_HOST] = NAME("Host"),
                                                    [ONCE_LENGTH] = NAME("Content-Length"),
                                                    [ONCE_ENCODING] = NAME("Transfer-Encoding"),
                                                    [ONCE_TYPE] = NAME("Content-Type"),
                                                    [ONCE_REQUEST_ID] = NAME("X-Request-Id"),
                                                    [ONCE_EXPECT] = NAME("Expect"),
                                                    [ONCE_CODING] = NAME("Content-Encoding"),
                                                    [ONCE_AUTHORIZATION] = NAME("Authorization"),
                                                    [ONCE_IDEMPOTENCY] = NAME("Idempotency-Key"),
                                                    [ONCE_IF_NONE_MATCH] = NAME("If-None-Match"),
                                                    [ONCE_EVENT_ID] = NAME("Last-Event-ID")};

static void take_type(struct head *h, struct slice value)
{
    const uint8_t *semicolon = memchr(value.data, ';', value.len);
    size_t len = semicolon != NULL ? (size_t)(semicolon - value.data) : value.len;
    while (len > 0 && (value.data[len - 1] == ' ' || value.data[len - 1] == '\t')) {
        len--;
    }
    h->has_type = true;
    h->type_ok = is_word(slice_of(value.data, len), "application/json");
    h->type_merge = is_word(slice_of(value.data, len), "application/merge-patch+json");
    h->type_protobuf = is_word(slice_of(value.data, len), "application/x-protobuf");
}

/* An id that came along is taken over when it can be put into a log line and a header. */
static void take_request_id(struct head *h, struct slice value)
{
    for (size_t i = 0; i < value.len; i++) {
        if (value.data[i] <= 0x20 || value.data[i] >= 0x7f || value.data[i] == '"') {
            return;
        }
    }
    if (value.len >= 1 && value.len <= 64) {
        h->request_id = (const char *)value.data;
    }
}

static void take(struct head *h, enum once which, struct slice value)
{
    switch (which) {
    case ONCE_LENGTH:
        h->has_length = true;
        h->length_ok = parse_u64((const char *)value.data, INT64_MAX, &h->length);
        break;
    case ONCE_ENCODING:
        h->has_encoding = true;
        h->encoding_ok = is_word(value, "chunked");
        break;
    case ONCE_TYPE:
        take_type(h, value);
        break;
    case ONCE_REQUEST_ID:
        take_request_id(h, value);
        break;
    case ONCE_EXPECT:
        h->expects = true;
        break;
    case ONCE_CODING:
        h->coded = !is_word(value, "identity");
        break;
    case ONCE_HOST:
    case ONCE_AUTHORIZATION:
    case ONCE_IDEMPOTENCY:
    case ONCE_IF_NONE_MATCH:
    case ONCE_EVENT_ID:
    case ONCE_COUNT:
        break;
    }
}

void request_head_line(struct head *h, struct slice name, struct slice value)
{
    const char *name_at = (const char *)name.data, *value_at = (const char *)value.data;
    if (name_at != h->at || value_at < name_at + name.len + 1) {
        h->bad = "a header line is folded, has a NUL byte, or does not end in CRLF";
    } else if (!is_token(name)) {
        h->bad = "a header's name is not a token that ends at the colon";
    } else if (has_control(value)) {
        h->bad = "a header's value has a control byte";
    }
    h->at = value_at + value.len + 2;
    for (unsigned i = 0; i < ONCE_COUNT; i++) {
        if (name.len != once_names[i].len ||
            strncasecmp((const char *)name.data, (const char *)once_names[i].data, name.len) != 0) {
            continue;
        }
        if ((h->seen & 1U << i) != 0) {
            h->repeated = (const char *)once_names[i].data;
        }
        h->seen |= 1U << i;
        take(h, (enum once)i, value);
    }
}

/* --- judging the head --- */

static enum err_code check_framing(const struct head *h, const char *end, struct err *e)
{
    if (h->bad != NULL) {
        return err_set(e, ERR_INVALID_REQUEST, "%s", h->bad);
    }
    if (h->at + 2 != end) {
        return err_set(e, ERR_INVALID_REQUEST,
                       "the head has a NUL byte, or lines that do not end in CRLF");
    }
    if (h->repeated != NULL) {
        return err_set(e, ERR_INVALID_REQUEST, "the header %s comes twice", h->repeated);
    }
    if (h->has_length && h->has_encoding) {
        return err_set(e, ERR_INVALID_REQUEST,
                       "both Content-Length and Transfer-Encoding are there");
    }
    if (h->has_encoding && (!h->encoding_ok || h->x->http_1_0)) {
        return err_set(e, ERR_INVALID_REQUEST,
                       "Transfer-Encoding must be \"chunked\", in HTTP/1.1");
    }
    if (h->has_length && !h->length_ok) {
        return err_set(e, ERR_INVALID_REQUEST, "Content-Length is not a plain number");
    }
    if (!h->x->http_1_0 && (h->seen & 1U << ONCE_HOST) == 0) {
        return err_set(e, ERR_INVALID_REQUEST, "the Host header is missing");
    }
    return ERR_OK;
}

static enum err_code check_target(struct exchange *x, struct err *e)
{
    struct worker *w = x->worker;
    uint8_t *text = (uint8_t *)exchange_strdup(x, x->raw);
    struct target t;
    enum err_code code = target_parse(text, x->raw.len, w->params, &t, e);
    if (code != ERR_OK) {
        return code;
    }
    t.params = exchange_alloc(x, t.param_count * sizeof *t.params);
    memcpy(t.params, w->params, t.param_count * sizeof *t.params);
    x->target = t;
    return ERR_OK;
}

static enum err_code find_route(struct exchange *x, struct err *e)
{
    struct router_match m;
    if (!router_find(x->worker->server->router, x->method, x->target.segments,
                     x->target.segment_count, &m)) {
        return err_set(e, ERR_NOT_FOUND, "there is nothing at this path");
    }
    if (m.route == NULL) {
        x->allowed = m.allowed;
        return err_set(e, ERR_METHOD_NOT_ALLOWED, "this path does not have that method");
    }
    x->route = m.route;
    x->variable_count = m.variable_count;
    memcpy(x->variables, m.variables, sizeof x->variables);
    for (unsigned i = 0; i < x->target.param_count; i++) {
        struct slice name = x->target.params[i].name;
        if (!router_takes_param(m.route, name)) {
            bool plain = is_token(name) && name.len <= 64;
            return err_set(e, ERR_INVALID_REQUEST, "unknown query parameter \"%.*s\"",
                           plain ? (int)name.len : 1, plain ? (const char *)name.data : "?");
        }
    }
    return ERR_OK;
}

static enum err_code check_body(struct exchange *x, const struct head *h, struct err *e)
{
    unsigned flags = x->route->flags;
    if (!h->has_encoding && h->length == 0) {
        return ERR_OK;
    }
    if ((flags & (API_ROUTE_BODY | API_ROUTE_BODY_NEEDED)) == 0) {
        return err_set(e, ERR_INVALID_REQUEST, "this request takes no body");
    }
    bool type_ok = !h->has_type || h->type_ok ||
                   (h->type_merge && (flags & API_ROUTE_MERGE_PATCH) != 0) ||
                   (h->type_protobuf && (flags & API_ROUTE_PROTOBUF) != 0);
    if (!type_ok || h->coded) {
        return err_set(
            e, ERR_UNSUPPORTED_MEDIA_TYPE,
            "send the body as Content-Type: application/json%s%s, without Content-Encoding",
            (flags & API_ROUTE_MERGE_PATCH) != 0 ? " or application/merge-patch+json" : "",
            (flags & API_ROUTE_PROTOBUF) != 0 ? " or application/x-protobuf" : "");
    }
    x->protobuf = h->type_protobuf;
    return ERR_OK;
}

static void name_request(struct head *h)
{
    struct exchange *x = h->x;
    if (h->request_id != NULL) {
        x->request_id = exchange_strdup(x, slice_of(h->request_id, strlen(h->request_id)));
        return;
    }
    char *id = exchange_alloc(x, 17);
    uint64_t random = worker_random(x->worker);
    for (int i = 0; i < 16; i++, random >>= 4) {
        id[i] = "0123456789abcdef"[random & 15];
    }
    id[16] = '\0';
    x->request_id = id;
}

/* What is wrong with a request whose framing is sound. Its body may be read, and the connection
 * kept. */
static enum err_code check_request(struct head *h, struct err *e)
{
    enum err_code code = find_route(h->x, e);
    return code != ERR_OK ? code : check_body(h->x, h, e);
}

/* What leaves no choice but to answer and close. */
static enum err_code check_head(struct head *h, const char *end, struct err *e)
{
    if (h->x->conn->excess) {
        return err_set(e, ERR_OVERLOADED, "the server has as many connections as it may have");
    }
    if (h->line_len > HTTP_REQUEST_LINE_MAX) {
        return err_set(e, ERR_URI_TOO_LONG,
                       "the request line is longer than %d bytes: look keys up with POST "
                       "/v1/keyspaces/{ks}/routes, which takes them in its body",
                       HTTP_REQUEST_LINE_MAX);
    }
    enum err_code code = check_framing(h, end, e);
    return code != ERR_OK ? code : check_target(h->x, e);
}

void request_head_close(struct head *h, const char *end)
{
    struct exchange *x = h->x;
    struct err e = {.code = ERR_OK};
    name_request(h);
    if (check_head(h, end, &e) != ERR_OK) {
        exchange_refuse(x, &e);
        return;
    }
    bool huge = h->has_length && h->length > API_BODY_MAX;
    if (check_request(h, &e) == ERR_OK && huge) {
        (void)err_set(&e, ERR_TOO_LARGE, "the body is larger than %d bytes", API_BODY_MAX);
    }
    x->state = X_BODY;
    if (e.code == ERR_OK) {
        return;
    }
    x->problem = exchange_alloc(x, sizeof e);
    *x->problem = e;
    if (huge || h->expects) {
        /* The client should not send, or go on sending, what nobody wants. */
        x->close_after = true;
        x->conn->linger = true;
        request_complete(x);
    }
}

/* --- body and handler --- */

static void allow(struct exchange *x)
{
    if (x->allowed != 0) {
        char text[ROUTER_ALLOW_SIZE];
        router_allow(x->allowed, text);
        exchange_set_header(x, "Allow", text);
    }
}

/* libmicrohttpd can't answer in the middle of a body, but nothing has been sent yet, so a whole
 * answer can be put into the socket by hand before the connection is closed. */
static bool answer_by_hand(struct exchange *x, const struct err *e)
{
    struct buf *out = &x->out;
    struct buf body = {.max = 4096};
    int status = err_http_status(e->code);
    uint64_t retry_ms = status == 503 ? 1000 + worker_random(x->worker) % 2000 : 0;
    problem_write(&body, e, x->request_id, retry_ms);
    buf_reset(out);
    buf_printf(out, "HTTP/1.1 %d %s\r\nConnection: close\r\n", status, err_title(e->code));
    buf_printf(out, "Content-Type: application/problem+json\r\nX-Request-Id: %s\r\n",
               x->request_id);
    if (retry_ms > 0) {
        buf_printf(out, "Retry-After: %u\r\n", (unsigned)((retry_ms + 999) / 1000));
    }
    buf_printf(out, "Content-Length: %zu\r\n\r\n", body.len);
    buf_put(out, body.data, body.len);
    buf_close(&body);
    x->status = status;
    x->conn->linger = true;
    count_add(&x->worker->count.responses[status / 100], 1);
    (void)send(x->conn->fd, out->data, out->len, MSG_DONTWAIT | MSG_NOSIGNAL);
    x->state = X_GONE;
    return false;
}

void request_bad_length(struct exchange *x)
{
    struct head h = {.x = x};
    struct err e;
    name_request(&h);
    (void)err_set(&e, ERR_INVALID_REQUEST, "Content-Length is not a plain number");
    count_add(&x->worker->count.bad_requests, 1);
    (void)answer_by_hand(x, &e);
}

/* Memory for bodies is one account of the whole server. */
static bool charge(struct exchange *x)
{
    size_t more = x->body.cap > x->body_charged ? x->body.cap - x->body_charged : 0;
    if (more == 0) {
        return true;
    }
    x->body_charged += more;
    _Atomic uint64_t *all = &x->worker->server->body_bytes;
    return atomic_fetch_add_explicit(all, more, memory_order_relaxed) + more <= HTTP_BODIES_MAX;
}

bool request_body(struct exchange *x, const char *data, size_t len)
{
    struct err e;
    x->body_seen += len;
    if (x->body_seen > API_BODY_MAX) {
        (void)err_set(&e, ERR_TOO_LARGE, "the body is larger than %d bytes", API_BODY_MAX);
        return answer_by_hand(x, x->problem != NULL ? x->problem : &e);
    }
    if (x->problem != NULL) {
        return true; /* thrown away: the answer does not depend on it */
    }
    buf_put(&x->body, data, len);
    if (!charge(x)) {
        (void)err_set(&e, ERR_OVERLOADED, "too many large requests at once");
        return answer_by_hand(x, &e);
    }
    return true;
}

void request_complete(struct exchange *x)
{
    const struct http_options *o = &x->worker->server->options;
    struct err e;
    if (x->problem != NULL) {
        allow(x);
        exchange_problem(x, x->problem, NULL, NULL);
        return;
    }
    if (x->body.len == 0 && (x->route->flags & API_ROUTE_BODY_NEEDED) != 0) {
        (void)err_set(&e, ERR_INVALID_REQUEST, "this request needs a JSON body");
        exchange_problem(x, &e, NULL, NULL);
        return;
    }
    x->state = X_RUNNING;
    if (o->admit == NULL || o->admit(x, x->route)) {
        x->route->handler(x);
    }
    if (x->state == X_RUNNING) {
        (void)err_set(&e, ERR_INTERNAL, "the handler of %s did not answer", x->route->pattern);
        exchange_problem(x, &e, NULL, NULL);
    }
}
