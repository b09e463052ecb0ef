/* SPDX-License-Identifier: Apache-2.0 */
/* All that touches libmicrohttpd. One daemon a worker, driven by the worker's loop through
 * mhd_run(). */
#include "api/internal.h"

#include "base/assert.h"
#include "base/mem.h"
#include "base/parse.h"

#include <arpa/inet.h>
#include <microhttpd.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

enum { MHD_RUNS_MAX = 16 };

/* --- connections --- */

/* Over the limit some are let in, to be told so. */
static enum MHD_Result on_accept(void *worker, const struct sockaddr *addr, socklen_t addr_len)
{
    struct worker *w = worker;
    (void)addr, (void)addr_len;
    uint64_t most = (uint64_t)w->server->options.connections_max + HTTP_EXCESS_MAX;
    return atomic_load_explicit(&w->server->connections, memory_order_relaxed) < most ? MHD_YES
                                                                                      : MHD_NO;
}

static void write_remote(struct conn *c)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c->mhd, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    char host[INET6_ADDRSTRLEN] = "?";
    uint16_t port = 0;
    if (info != NULL && info->client_addr->sa_family == AF_INET) {
        struct sockaddr_in in;
        memcpy(&in, info->client_addr, sizeof in);
        (void)inet_ntop(AF_INET, &in.sin_addr, host, sizeof host);
        port = ntohs(in.sin_port);
    } else if (info != NULL && info->client_addr->sa_family == AF_INET6) {
        struct sockaddr_in6 in;
        memcpy(&in, info->client_addr, sizeof in);
        bool is_v4 = IN6_IS_ADDR_V4MAPPED(&in.sin6_addr);
        const uint8_t *bytes = in.sin6_addr.s6_addr;
        (void)inet_ntop(is_v4 ? AF_INET : AF_INET6, is_v4 ? bytes + 12 : bytes, host, sizeof host);
        port = ntohs(in.sin6_port);
    }
    (void)snprintf(c->remote, sizeof c->remote, strchr(host, ':') != NULL ? "[%s]:%u" : "%s:%u",
                   host, port);
}

static void on_connection(void *worker,
                          struct MHD_Connection *mhd,
                          void **socket_context,
                          enum MHD_ConnectionNotificationCode code)
{
    struct worker *w = worker;
    struct http_server *server = w->server;
    if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
        conn_closed(*socket_context);
        *socket_context = NULL;
        atomic_fetch_sub_explicit(&server->connections, 1, memory_order_relaxed);
        return;
    }
    struct conn *c = mem_zalloc(sizeof *c);
    c->worker = w;
    c->mhd = mhd;
    c->fd = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    uint64_t before = atomic_fetch_add_explicit(&server->connections, 1, memory_order_relaxed);
    c->excess = before >= server->options.connections_max;
    write_remote(c);
    *socket_context = c;
    conn_opened(c);
}

/* --- requests --- */

static void *on_target(void *worker, const char *target, struct MHD_Connection *mhd)
{
    (void)worker;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct exchange *x = exchange_open(info->socket_context);
    request_begin(x, target != NULL ? target : "");
    /* After this libmicrohttpd would split the query, for each parameter taking memory of the
     * connection; when that is used up it reads a request that it has thrown away, for ever. It has
     * one buffer for the whole head, and works in it, so the query can be made empty here. */
    const char *query = target != NULL ? strchr(target, '?') : NULL;
    if (query != NULL && query[1] != '\0') {
        *(char *)((uintptr_t)query + 1) = '\0';
    }
    return x;
}

/* The target is unescaped by api/target.h. */
static size_t on_unescape(void *cls, struct MHD_Connection *mhd, char *text)
{
    (void)cls, (void)mhd;
    return strlen(text);
}

static enum MHD_Result on_header(void *head,
                                 enum MHD_ValueKind kind,
                                 const char *name,
                                 size_t name_len,
                                 const char *value,
                                 size_t value_len)
{
    (void)kind;
    request_head_line(head, slice_of(name, name_len), slice_of(value, value_len));
    return MHD_YES;
}

static void judge_head(struct exchange *x, const char *method, const char *version)
{
    struct head head;
    struct MHD_Connection *mhd = x->conn->mhd;
    request_head_open(&head, x, method, version);
    (void)MHD_get_connection_values_n(mhd, MHD_HEADER_KIND, on_header, &head);
    size_t size =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE)->header_size;
    request_head_close(&head, method + size);
}

/* Called with the head, with each piece of the body, and when the request is complete. An answer to
 * the first call closes the connection, so those are only for what is refused. */
static enum MHD_Result on_request(void *worker,
                                  struct MHD_Connection *mhd,
                                  const char *url,
                                  const char *method,
                                  const char *version,
                                  const char *data,
                                  size_t *size,
                                  void **context)
{
    (void)worker, (void)mhd, (void)url;
    struct exchange *x = *context;
    x->worker->progress++;
    if (x->conn->cut) {
        x->state = x->state == X_HEAD || x->state == X_BODY ? X_GONE : x->state;
        return MHD_NO;
    }
    if (x->state == X_HEAD) {
        judge_head(x, method, version);
    } else if (x->state == X_BODY && *size > 0) {
        (void)request_body(x, data, *size);
        *size = 0;
    } else if (x->state == X_BODY) {
        request_complete(x);
    }
    return x->state == X_GONE ? MHD_NO : MHD_YES;
}

static void on_completed(void *worker,
                         struct MHD_Connection *mhd,
                         void **context,
                         enum MHD_RequestTerminationCode code)
{
    (void)mhd, (void)code;
    struct exchange *x = *context;
    ((struct worker *)worker)->progress++;
    *context = NULL;
    if (x != NULL) {
        exchange_close(x);
    }
}

const char *mhd_header(const struct exchange *x, const char *name)
{
    return MHD_lookup_connection_value(x->conn->mhd, MHD_HEADER_KIND, name);
}

void mhd_suspend(struct exchange *x)
{
    MHD_suspend_connection(x->conn->mhd);
    x->suspended = true;
}

void mhd_resume(struct exchange *x)
{
    x->suspended = false;
    MHD_resume_connection(x->conn->mhd);
}

/* --- what it refuses by itself --- */

/* Whether it can't read the length that this request claims. */
static bool length_is_bad(const struct exchange *x)
{
    const char *value = NULL;
    size_t len = 0;
    uint64_t n;
    return MHD_lookup_connection_value_n(x->conn->mhd, MHD_HEADER_KIND, "Content-Length", 14,
                                         &value, &len) == MHD_YES &&
           mhd_header(x, "Transfer-Encoding") == NULL &&
           (value == NULL || strlen(value) != len || !parse_u64(value, UINT64_MAX, &n));
}

/* libmicrohttpd 0.9.75 answers such a length itself, before it asks anybody, and sends the head of
 * that answer twice. Its log tells just before; which request it means is found by looking. After
 * an answer by hand the socket takes no other. */
static void on_log(void *worker, const char *fmt, va_list args)
{
    struct worker *w = worker;
    (void)args;
    if (strstr(fmt, "Content-Length") == NULL) {
        return;
    }
    for (struct conn *c = w->conns; c != NULL; c = c->next) {
        if (c->x != NULL && c->x->state == X_HEAD && length_is_bad(c->x)) {
            request_bad_length(c->x);
            (void)shutdown(c->fd, SHUT_WR);
        }
    }
}

/* --- answers --- */

static ssize_t on_pull(void *exchange, uint64_t pos, char *buf, size_t max)
{
    (void)pos;
    ((struct exchange *)exchange)->worker->progress++;
    int64_t n = stream_pull(exchange, buf, max);
    return n >= 0    ? (ssize_t)n
           : n == -1 ? (ssize_t)MHD_CONTENT_READER_END_OF_STREAM
                     : (ssize_t)MHD_CONTENT_READER_END_WITH_ERROR;
}

/* For each header libmicrohttpd makes three allocations, so all go in as one, with marks where
 * lines end: it refuses line ends, and they are put into its copy afterwards. No value has the
 * mark, which is a control byte. */
static bool add_headers(const struct exchange *x, struct MHD_Response *r)
{
    enum { MARK = 1 };
    static const char first[] = "X-Request-Id", server[] = "\1\1Server: cadastre";
    struct buf *head = &x->worker->head;
    buf_reset(head);
    buf_put_str(head, x->request_id);
    buf_put(head, server, sizeof server - 1);
    for (unsigned i = 0; i < x->header_count; i++) {
        buf_put(head, "\1\1", 2);
        buf_put_str(head, x->headers[i].name);
        buf_put(head, ": ", 2);
        buf_put_str(head, x->headers[i].value);
    }
    buf_put_u8(head, '\0');
    if (head->overflow || MHD_add_response_header(r, first, (const char *)head->data) != MHD_YES) {
        return false;
    }
    char *at = (char *)(uintptr_t)MHD_get_response_header(r, first);
    while ((at = strchr(at, MARK)) != NULL) {
        *at++ = '\r';
        *at++ = '\n';
    }
    return true;
}

bool mhd_answer(struct exchange *x, bool stream)
{
    static char nothing[1];
    struct MHD_Response *r;
    if (stream) {
        /* For chunks libmicrohttpd uses the connection's memory, and the block only for HTTP/1.0.
         */
        size_t block = x->http_1_0 ? 16384 : 16;
        r = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, block, on_pull, x, NULL);
    } else {
        /* The bytes stay where they are until the exchange is closed, which is after they were
         * sent. */
        void *data = x->out.len > 0 ? (void *)x->out.data : nothing;
        r = MHD_create_response_from_buffer(x->out.len, data, MHD_RESPMEM_PERSISTENT);
    }
    if (r == NULL) {
        return false;
    }
    if (stream && x->method == API_HEAD) {
        /* To a HEAD libmicrohttpd would send the last chunk. Not chunked, it closes the connection
         * instead. */
        (void)MHD_set_response_options(r, MHD_RF_HTTP_1_0_COMPATIBLE_STRICT, MHD_RO_END);
    }
    bool ok = add_headers(x, r);
    if (ok && x->close_after) {
        ok = MHD_add_response_header(r, "Connection", "close") == MHD_YES;
    }
    ok = ok && MHD_queue_response(x->conn->mhd, (unsigned)x->status, r) == MHD_YES;
    MHD_destroy_response(r);
    return ok;
}

/* --- the daemon --- */

bool mhd_open(struct worker *w)
{
    const struct http_options *o = &w->server->options;
    struct MHD_OptionItem options[] = {
        {MHD_OPTION_EXTERNAL_LOGGER, (intptr_t)on_log, w},
        {MHD_OPTION_LISTEN_SOCKET, w->listen_fd, NULL},
        {MHD_OPTION_CONNECTION_MEMORY_LIMIT, HTTP_CONNECTION_MEMORY, NULL},
        {MHD_OPTION_CONNECTION_LIMIT, (intptr_t)o->connections_max + 2 * HTTP_EXCESS_MAX, NULL},
        {MHD_OPTION_CONNECTION_TIMEOUT, (intptr_t)(o->idle_ms + 999) / 1000, NULL},
        /* Of the two things that 1 would add, one closes without an answer and the other answers in
         * HTML; request.c checks both. */
        {MHD_OPTION_STRICT_FOR_CLIENT, 0, NULL},
        {MHD_OPTION_NOTIFY_CONNECTION, (intptr_t)on_connection, w},
        {MHD_OPTION_NOTIFY_COMPLETED, (intptr_t)on_completed, w},
        {MHD_OPTION_URI_LOG_CALLBACK, (intptr_t)on_target, w},
        {MHD_OPTION_UNESCAPE_CALLBACK, (intptr_t)on_unescape, w},
        {MHD_OPTION_END, 0, NULL}};
    unsigned flags = MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_SUPPRESS_DATE_NO_CLOCK |
                     MHD_USE_ERROR_LOG;
    w->daemon = MHD_start_daemon(flags, 0, on_accept, w, on_request, w, MHD_OPTION_ARRAY, options,
                                 MHD_OPTION_END);
    return w->daemon != NULL;
}

int mhd_run(struct worker *w)
{
    MHD_UNSIGNED_LONG_LONG ms;
    /* It sends one chunk of a stream in a run: a few more runs are cheaper than turns of the loop.
     */
    for (unsigned i = 0; i < MHD_RUNS_MAX; i++) {
        ASSERT(MHD_run(w->daemon) == MHD_YES);
        if (MHD_get_timeout(w->daemon, &ms) != MHD_YES) {
            return -1;
        }
        if (ms > 0) {
            break;
        }
    }
    return ms > 60000 ? 60000 : (int)ms;
}

int mhd_epoll_fd(const struct worker *w)
{
    return MHD_get_daemon_info(w->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
}

void mhd_quiesce(struct worker *w)
{
    int fd = MHD_quiesce_daemon(w->daemon);
    ASSERT(fd == w->listen_fd || fd == MHD_INVALID_SOCKET);
}

void mhd_close(struct worker *w)
{
    MHD_stop_daemon(w->daemon);
    w->daemon = NULL;
}
