/* SPDX-License-Identifier: Apache-2.0 */
#include "raft/transport.h"

#include "base/assert.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/parse.h"
#include "raft/link.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

/* --- a link's life --- */

void link_release(struct link *l)
{
    ASSERT(l->holds > 0);
    if (--l->holds > 0) {
        return;
    }
    if (l->addresses != NULL) {
        uv_freeaddrinfo(l->addresses);
    }
    mem_free(l);
}

static void on_timer_closed(uv_handle_t *handle)
{
    link_release(handle->data);
}

static void on_tcp_closed(uv_handle_t *handle)
{
    struct link *l = handle->data;
    raft_free(handle);
    link_release(l);
}

void link_close_tcp(struct link *l)
{
    if (l->tcp != NULL) {
        uv_close((uv_handle_t *)l->tcp, on_tcp_closed);
        l->tcp = NULL;
    }
}

/* Leaves the handshake: the link is no longer pending and frees itself once its handles are closed.
 */
static void link_end(struct link *l)
{
    ASSERT(!l->dead);
    l->dead = true;
    if (!l->dialling) {
        l->t->pending--;
    }
    uv_close((uv_handle_t *)&l->deadline, on_timer_closed);
    link_close_tcp(l);
    (void)uv_cancel(
        (uv_req_t *)&l->resolve); /* not running, or too late: its callback finds `dead` */
}

void link_fail(struct link *l)
{
    struct raft_uv_connect *request = l->request;
    transport_greet_cb greet_cb = l->greet_cb;
    l->request = NULL;
    l->greet_cb = NULL;
    link_end(l);
    if (request != NULL) {
        l->connect_cb(request, NULL, RAFT_NOCONNECTION);
    } else if (greet_cb != NULL) {
        greet_cb(l->greet_arg, NULL);
    }
}

static void on_deadline(uv_timer_t *timer)
{
    link_fail(timer->data);
}

struct link *link_new(struct transport *t, bool dialling)
{
    struct link *l = mem_zalloc(sizeof *l);
    l->t = t;
    l->dialling = dialling;
    l->holds = 1;
    l->in_want = HELLO_HEADER_SIZE;
    uv_timer_init(t->options.loop, &l->deadline);
    l->deadline.data = l;
    uv_timer_start(&l->deadline, on_deadline, t->options.handshake_ms, 0);
    if (!dialling) {
        t->pending++;
    }
    return l;
}

void link_open(struct link *l)
{
    l->tcp = raft_malloc(sizeof *l->tcp);
    ASSERT(l->tcp != NULL);
    uv_tcp_init(l->t->options.loop, l->tcp);
    l->tcp->data = l;
    l->holds++;
}

/* --- handing over --- */

/* The stream leaves with its ownership; only the link's other handles remain to be closed. */
static uv_stream_t *take_stream(struct link *l)
{
    uv_tcp_t *tcp = l->tcp;
    l->tcp = NULL;
    l->holds--; /* the deadline's hold is still there */
    (void)uv_read_stop((uv_stream_t *)tcp);
    tcp->data = NULL;
    stall_watch(&l->t->stall, tcp, l->peer.from, !l->dialling);
    return (uv_stream_t *)tcp;
}

static bool both_members(const struct link *l)
{
    struct hello self = {0};
    l->t->options.introduce(l->t->options.ctx, &self);
    return self.state == HELLO_MEMBER && l->peer.state == HELLO_MEMBER;
}

static void deliver(struct link *l)
{
    struct transport *t = l->t;
    if (!both_members(l) || (!l->dialling && t->accept_cb == NULL) ||
        (l->dialling && l->request == NULL)) {
        link_fail(l); /* two founders that met: there is nothing more to say */
        return;
    }
    struct raft_uv_connect *request = l->request;
    l->request = NULL;
    uv_stream_t *stream = take_stream(l);
    link_end(l);
    if (l->dialling) {
        l->connect_cb(request, stream, 0);
    } else {
        t->accept_cb(t->uv, l->peer.from, l->peer_address, stream);
    }
}

/* --- the handshake --- */

static void on_written(uv_write_t *request, int status)
{
    struct link *l = request->data;
    if (l->dead) {
        return;
    }
    if (status != 0) {
        link_fail(l);
    } else if (!l->dialling) {
        if (l->admit) {
            deliver(l);
        } else {
            link_fail(l);
        }
    }
}

static void send_hello(struct link *l, struct hello *h)
{
    h->to = l->dialling ? l->want : l->peer.from;
    l->out_len = hello_encode(h, l->out);
    l->write.data = l;
    uv_buf_t out = uv_buf_init((char *)l->out, (unsigned)l->out_len);
    if (uv_write(&l->write, (uv_stream_t *)l->tcp, &out, 1, on_written) != 0) {
        link_fail(l);
    }
}

static void answer(struct link *l, enum hello_refusal refusal)
{
    struct hello self = {0};
    struct transport *t = l->t;
    t->options.introduce(t->options.ctx, &self);
    self.type = refusal == REFUSE_NONE ? HELLO_ACCEPT : HELLO_REFUSE;
    self.refusal = refusal;
    l->admit = refusal == REFUSE_NONE;
    if (refusal != REFUSE_NONE) {
        t->options.refused(t->options.ctx, &l->peer, refusal);
    }
    send_hello(l, &self);
}

static void on_dialled(struct link *l)
{
    struct transport *t = l->t;
    (void)snprintf(l->peer_address, sizeof l->peer_address, "%s", l->peer.address);
    enum hello_refusal refusal = t->options.judge(t->options.ctx, &l->peer, false, l->peer_address);
    if (refusal == REFUSE_NONE && both_members(l) && t->accept_cb == NULL) {
        refusal = REFUSE_NOT_READY;
    }
    answer(l, refusal);
}

static void on_answered(struct link *l)
{
    struct transport *t = l->t;
    transport_greet_cb greet_cb = l->greet_cb;
    enum hello_refusal refusal = REFUSE_NONE;
    if (greet_cb != NULL) {
        l->greet_cb = NULL;
        struct hello peer = l->peer;
        void *arg = l->greet_arg;
        link_fail(l);
        greet_cb(arg, &peer);
        return;
    }
    if (l->peer.type == HELLO_ACCEPT) {
        refusal = l->peer.from == l->want
                      ? t->options.judge(t->options.ctx, &l->peer, true, l->peer_address)
                      : REFUSE_WRONG_SERVER;
    }
    if (l->peer.type != HELLO_ACCEPT || refusal != REFUSE_NONE) {
        t->options.refused(t->options.ctx, &l->peer, refusal);
        link_fail(l);
        return;
    }
    deliver(l);
}

static void on_frame(struct link *l)
{
    enum hello_type type;
    if (!hello_decode(l->in + HELLO_HEADER_SIZE, l->in_want - HELLO_HEADER_SIZE, &l->peer)) {
        link_fail(l);
        return;
    }
    type = l->peer.type;
    (void)uv_read_stop((uv_stream_t *)l->tcp);
    if (l->dialling != (type != HELLO_DIAL)) {
        link_fail(l);
    } else if (l->dialling) {
        on_answered(l);
    } else {
        on_dialled(l);
    }
}

static void on_header(struct link *l)
{
    size_t body_len = 0;
    enum hello_fault fault = hello_header(l->in, &body_len);
    if (fault == HELLO_FINE) {
        l->in_body = true;
        l->in_want += body_len;
    } else if (fault == HELLO_OTHER_VERSION && !l->dialling) {
        (void)uv_read_stop((uv_stream_t *)l->tcp);
        answer(l, REFUSE_VERSION);
    } else {
        link_fail(l);
    }
}

/* Never reads past the frame: what follows it is libraft's. */
static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *ret_buf)
{
    struct link *l = handle->data;
    (void)suggested;
    *ret_buf = uv_buf_init((char *)l->in + l->in_len, (unsigned)(l->in_want - l->in_len));
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct link *l = stream->data;
    (void)buf;
    if (n == 0 || l->dead) {
        return;
    }
    if (n < 0) {
        link_fail(l);
        return;
    }
    l->in_len += (size_t)n;
    if (l->in_len < l->in_want) {
        return;
    }
    if (l->in_body) {
        on_frame(l);
    } else {
        on_header(l);
    }
}

static void set_option(uv_os_fd_t fd, int level, int name, int value)
{
    (void)setsockopt(fd, level, name, &value, sizeof value); /* helps, and is not needed */
}

void link_greet(struct link *l)
{
    uv_os_fd_t fd;
    uv_tcp_nodelay(l->tcp, 1);
    uv_tcp_keepalive(l->tcp, 1, 5);
    if (uv_fileno((const uv_handle_t *)l->tcp, &fd) == 0) {
        set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 3);
        set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
        set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT,
                   (int)l->t->options.stall_ms * 2); /* stall.c comes first, and says so */
    }
    if (uv_read_start((uv_stream_t *)l->tcp, on_alloc, on_read) != 0) {
        link_fail(l);
        return;
    }
    if (l->dialling) {
        struct hello self = {0};
        l->t->options.introduce(l->t->options.ctx, &self);
        self.type = HELLO_DIAL;
        self.refusal = REFUSE_NONE;
        send_hello(l, &self);
    }
}

/* --- listening --- */

static void on_turned_away(uv_handle_t *handle)
{
    raft_free(handle);
}

static void turn_away(struct transport *t, uv_stream_t *listener)
{
    uv_tcp_t *tcp = raft_malloc(sizeof *tcp);
    ASSERT(tcp != NULL);
    uv_tcp_init(t->options.loop, tcp);
    (void)uv_accept(listener, (uv_stream_t *)tcp); /* closed either way */
    uv_close((uv_handle_t *)tcp, on_turned_away);
    t->turned_away++;
}

static void on_connection(uv_stream_t *listener, int status)
{
    struct transport *t = listener->data;
    if (status != 0) {
        log_event(LOG_WARN, "raft.accept.failed", "reason=%s", uv_err_name(status));
        return;
    }
    if (t->pending >= TRANSPORT_PENDING_MAX) {
        turn_away(t, listener);
        return;
    }
    struct link *l = link_new(t, false);
    link_open(l);
    if (uv_accept(listener, (uv_stream_t *)l->tcp) != 0) {
        link_fail(l);
        return;
    }
    link_greet(l);
}

static int bind_and_listen(struct transport *t, const struct sockaddr *address)
{
    int rv = uv_tcp_init(t->options.loop, &t->listener);
    ASSERT(rv == 0);
    t->listener.data = t;
    rv = uv_tcp_bind(&t->listener, address, 0);
    return rv != 0 ? rv : uv_listen((uv_stream_t *)&t->listener, 128, on_connection);
}

enum err_code transport_listen(struct transport *t, const char *bind, struct err *e)
{
    char host[REPLICA_ADDRESS_MAX + 1], port_text[8];
    uint16_t port;
    uv_getaddrinfo_t request;
    struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    if (!parse_host_port(bind, host, sizeof host, &port)) {
        return err_set(e, ERR_IO, "\"%s\" is not host:port", bind);
    }
    (void)snprintf(port_text, sizeof port_text, "%u", port);
    int rv = uv_getaddrinfo(t->options.loop, &request, NULL, host, port_text, &hints);
    if (rv == 0) {
        rv = bind_and_listen(t, request.addrinfo->ai_addr);
        uv_freeaddrinfo(request.addrinfo);
    }
    return rv == 0 ? ERR_OK : err_set(e, ERR_IO, "listen on %s: %s", bind, uv_strerror(rv));
}

uint16_t transport_port(const struct transport *t)
{
    struct sockaddr_storage name;
    int len = sizeof name;
    uint16_t port = 0;
    if (uv_tcp_getsockname(&t->listener, (struct sockaddr *)&name, &len) == 0) {
        port = name.ss_family == AF_INET6 ? ((const struct sockaddr_in6 *)&name)->sin6_port
                                          : ((const struct sockaddr_in *)&name)->sin_port;
    }
    return ntohs(port);
}

/* --- what libraft calls --- */

static int on_init(struct raft_uv_transport *uv, raft_id id, const char *address)
{
    (void)uv;
    (void)id;
    (void)address; /* introduce() says who we are */
    return 0;
}

static int on_listen(struct raft_uv_transport *uv, raft_uv_accept_cb cb)
{
    struct transport *t = uv->impl;
    t->accept_cb = cb; /* the socket has been listening for longer */
    return 0;
}

static int on_connect(struct raft_uv_transport *uv,
                      struct raft_uv_connect *request,
                      raft_id id,
                      const char *address,
                      raft_uv_connect_cb cb)
{
    struct transport *t = uv->impl;
    struct link *l = link_new(t, true);
    const char *better = t->options.locate != NULL ? t->options.locate(t->options.ctx, id) : NULL;
    l->want = id;
    (void)snprintf(l->address, sizeof l->address, "%s", better != NULL ? better : address);
    l->request = request;
    l->connect_cb = cb;
    request->cb = cb;
    dial_start(l);
    return 0;
}

static void on_close(struct raft_uv_transport *uv, raft_uv_transport_close_cb cb)
{
    (void)uv;
    (void)cb;
    UNREACHABLE(); /* only raft_close() calls it, and nothing calls that */
}

void transport_greet(struct transport *t,
                     uint64_t id,
                     const char *address,
                     transport_greet_cb cb,
                     void *arg)
{
    struct link *l = link_new(t, true);
    l->want = id;
    (void)snprintf(l->address, sizeof l->address, "%s", address);
    l->greet_cb = cb;
    l->greet_arg = arg;
    dial_start(l);
}

void transport_cut(struct transport *t, uint64_t id)
{
    stall_cut_incoming(&t->stall, id);
}

struct transport_counts transport_counts(const struct transport *t)
{
    return (struct transport_counts){t->pending, t->turned_away, t->stall.stalled};
}

struct transport *transport_new(const struct transport_options *options,
                                struct raft_uv_transport *ret_uv)
{
    struct transport *t = mem_zalloc(sizeof *t);
    t->options = *options;
    t->options.handshake_ms =
        options->handshake_ms != 0 ? options->handshake_ms : TRANSPORT_HANDSHAKE_MS;
    t->uv = ret_uv;
    stall_init(&t->stall, options->loop, options->stall_ms);
    *ret_uv = (struct raft_uv_transport){
        .impl = t, .init = on_init, .listen = on_listen, .connect = on_connect, .close = on_close};
    return t;
}
