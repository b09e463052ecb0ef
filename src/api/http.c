/* SPDX-License-Identifier: Apache-2.0 */
/* Starting and stopping: listen sockets, limits, threads, sums of counters. */
#include "api/internal.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/parse.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { THREADS_DEFAULT_MAX = 8, BACKLOG = 4096 };

/* --- limits --- */

/* How many connections the process can have. */
static uint64_t raise_files(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return HTTP_CONNECTIONS_MAX;
    }
    if (limit.rlim_cur < limit.rlim_max) {
        struct rlimit more = {limit.rlim_max, limit.rlim_max};
        limit.rlim_cur = setrlimit(RLIMIT_NOFILE, &more) == 0 ? limit.rlim_max : limit.rlim_cur;
    }
    uint64_t reserve = HTTP_FD_RESERVE + HTTP_EXCESS_MAX;
    return limit.rlim_cur > 2 * reserve ? limit.rlim_cur - reserve : limit.rlim_cur / 2;
}

static void settle_options(struct http_options *o)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    uint64_t files = raise_files();
    unsigned wanted = o->connections_max;
    if (o->threads == 0) {
        o->threads = cores < 1                     ? 1
                     : cores > THREADS_DEFAULT_MAX ? THREADS_DEFAULT_MAX
                                                   : (unsigned)cores;
    }
    o->threads = o->threads > HTTP_THREADS_MAX ? HTTP_THREADS_MAX : o->threads;
    if (wanted == 0 || wanted > HTTP_CONNECTIONS_MAX) {
        o->connections_max = HTTP_CONNECTIONS_MAX;
    }
    if (o->connections_max > files) {
        o->connections_max = (unsigned)files;
        log_event(wanted > files ? LOG_WARN : LOG_INFO, "api.connections",
                  "max=%u reason=\"the limit of open files\"", o->connections_max);
    }
    o->idle_ms = o->idle_ms > 0 ? o->idle_ms : HTTP_IDLE_MS;
    o->request_ms = o->request_ms > 0 ? o->request_ms : HTTP_REQUEST_MS;
    o->stall_ms = o->stall_ms > 0 ? o->stall_ms : HTTP_STALL_MS;
}

/* --- sockets --- */

struct address {
    struct sockaddr_storage to;
    socklen_t size;
};

static void set_port(struct address *a, uint16_t port)
{
    if (a->to.ss_family == AF_INET6) {
        ((struct sockaddr_in6 *)&a->to)->sin6_port = htons(port);
    } else {
        ((struct sockaddr_in *)&a->to)->sin_port = htons(port);
    }
}

static uint16_t port_of(int fd)
{
    struct address a = {.size = sizeof a.to};
    if (getsockname(fd, (struct sockaddr *)&a.to, &a.size) != 0) {
        return 0;
    }
    return ntohs(a.to.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&a.to)->sin6_port
                                            : ((struct sockaddr_in *)&a.to)->sin_port);
}

/* A listening socket, or -errno. */
static int listen_on(const struct address *a, bool shared)
{
    int one = 1, zero = 0;
    int fd = socket(a->to.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return -errno;
    }
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (shared) {
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one);
    }
    if (a->to.ss_family == AF_INET6) {
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
    }
    if (bind(fd, (const struct sockaddr *)&a->to, a->size) != 0 || listen(fd, BACKLOG) != 0) {
        int why = errno;
        (void)close(fd);
        return -why;
    }
    return fd;
}

static enum err_code find_address(const char *addr, struct address *ret, struct err *e)
{
    char host[256] = "";
    uint16_t port = 0;
    uint64_t number;
    if (addr[0] == ':' && parse_u64(addr + 1, 65535, &number)) {
        port = (uint16_t)number;
    } else if (!parse_host_port(addr, host, sizeof host, &port)) {
        return err_set(e, ERR_IO, "\"%s\" is not host:port", addr);
    }
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *list;
    /* Any address: of both families when there are both. */
    const char *name = host[0] != '\0' ? host : "::";
    int rc = getaddrinfo(name, NULL, &hints, &list);
    if (rc != 0) {
        return err_set(e, ERR_IO, "can't resolve \"%s\": %s", name, gai_strerror(rc));
    }
    *ret = (struct address){.size = list->ai_addrlen};
    memcpy(&ret->to, list->ai_addr, list->ai_addrlen);
    freeaddrinfo(list);
    set_port(ret, port);
    return ERR_OK;
}

static enum err_code open_sockets(struct http_server *s, const char *addr, struct err *e)
{
    struct address a;
    enum err_code code = find_address(addr, &a, e);
    if (code != ERR_OK) {
        return code;
    }
    /* Sockets that share a port may be of two processes, which would each get a part of the
     * requests. So first without sharing, which fails when anybody listens there. */
    int fd = listen_on(&a, false);
    if (fd == -EAFNOSUPPORT && addr[0] == ':') {
        struct sockaddr_in any = {.sin_family = AF_INET};
        uint16_t port = ntohs(((struct sockaddr_in6 *)&a.to)->sin6_port);
        a = (struct address){.size = sizeof any};
        memcpy(&a.to, &any, sizeof any);
        set_port(&a, port);
        fd = listen_on(&a, false);
    }
    if (fd >= 0) {
        s->port = port_of(fd);
        set_port(&a, s->port);
        (void)close(fd);
    }
    for (unsigned i = 0; i < s->worker_count && fd >= 0; i++) {
        fd = s->workers[i].listen_fd = listen_on(&a, true);
    }
    return fd >= 0 ? ERR_OK : err_set(e, ERR_IO, "can't listen on %s: %s", addr, strerror(-fd));
}

/* --- workers --- */

static bool watch(const struct worker *w, int fd, unsigned kind)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = kind};
    return epoll_ctl(w->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

static enum err_code open_worker(struct worker *w, struct err *e)
{
    int wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    w->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (wake_fd >= 0) {
        w->inbox = inbox_new(wake_fd);
    }
    if (wake_fd < 0 || w->epoll_fd < 0 || !mhd_open(w)) {
        return err_set(e, ERR_IO, "can't start an HTTP worker: %s", strerror(errno));
    }
    if (!watch(w, wake_fd, WORKER_EVENT_WAKE) || !watch(w, mhd_epoll_fd(w), WORKER_EVENT_MHD)) {
        return err_set(e, ERR_IO, "can't set up an HTTP worker: %s", strerror(errno));
    }
    return ERR_OK;
}

static void free_worker(struct worker *w)
{
    if (w->daemon != NULL) {
        mhd_close(w);
    }
    if (w->inbox != NULL) {
        (void)close(w->inbox->wake_fd);
        inbox_unref(w->inbox);
    }
    if (w->epoll_fd >= 0) {
        (void)close(w->epoll_fd);
    }
    if (w->listen_fd >= 0) {
        (void)close(w->listen_fd);
    }
    while (w->pool != NULL) {
        struct exchange *x = w->pool;
        w->pool = x->pool_next;
        buf_close(&x->body);
        buf_close(&x->out);
        mem_free(x);
    }
    buf_close(&w->scratch);
    buf_close(&w->head);
    mem_free(w->timers);
}

static void free_server(struct http_server *s)
{
    for (unsigned i = 0; i < s->worker_count; i++) {
        free_worker(&s->workers[i]);
    }
    router_free(s->router);
    mem_free(s->workers);
    mem_free(s);
}

static void stop_threads(struct http_server *s, unsigned count)
{
    atomic_store(&s->stopping, true);
    for (unsigned i = 0; i < count; i++) {
        inbox_wake(s->workers[i].inbox);
    }
    for (unsigned i = 0; i < count; i++) {
        (void)pthread_join(s->workers[i].thread, NULL);
    }
}

static enum err_code start_threads(struct http_server *s, struct err *e)
{
    /* Signals are the main thread's. */
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    unsigned started = 0;
    int rc = 0;
    while (started < s->worker_count && rc == 0) {
        struct worker *w = &s->workers[started];
        rc = pthread_create(&w->thread, NULL, worker_main, w);
        started += rc == 0;
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc != 0) {
        stop_threads(s, started);
        return err_set(e, ERR_IO, "can't start an HTTP thread: %s", strerror(rc));
    }
    return ERR_OK;
}

enum err_code http_server_start(const struct http_options *options,
                                struct http_server **ret_server,
                                struct err *e)
{
    struct http_server *s = mem_zalloc(sizeof *s);
    enum err_code code;
    s->options = *options;
    settle_options(&s->options);
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    (void)sigaction(SIGPIPE, &ignore, NULL);
    s->router = router_new(options->routes, options->route_count);
    s->worker_count = s->options.threads;
    s->workers = mem_zalloc(s->worker_count * sizeof *s->workers);
    for (unsigned i = 0; i < s->worker_count; i++) {
        struct worker *w = &s->workers[i];
        w->server = s;
        w->number = i;
        w->listen_fd = w->epoll_fd = -1;
        w->now_ms = clock_mono_ms();
        w->random = clock_mono_ns() + i;
        (void)!getrandom(&w->random, sizeof w->random, GRND_NONBLOCK);
        buf_init(&w->scratch, API_RESPONSE_MAX);
        buf_init(&w->head, X_HEADERS_MAX * HTTP_CONNECTION_MEMORY);
    }
    code = open_sockets(s, options->addr, e);
    for (unsigned i = 0; i < s->worker_count && code == ERR_OK; i++) {
        code = open_worker(&s->workers[i], e);
    }
    code = code == ERR_OK ? start_threads(s, e) : code;
    if (code != ERR_OK) {
        free_server(s);
        return code;
    }
    *ret_server = s;
    return ERR_OK;
}

void http_server_stop(struct http_server *s)
{
    stop_threads(s, s->worker_count);
    free_server(s);
}

uint16_t http_server_port(const struct http_server *s)
{
    return s->port;
}

void http_server_published(void *server, dir_rev revision)
{
    struct http_server *s = server;
    (void)revision;
    /* Pairs with exchange_follow_feed(). */
    atomic_thread_fence(memory_order_seq_cst);
    for (unsigned i = 0; i < s->worker_count; i++) {
        struct worker *w = &s->workers[i];
        if (atomic_load_explicit(&w->count.followers, memory_order_relaxed) > 0 &&
            !atomic_exchange(&w->inbox->kick, true)) {
            inbox_wake(w->inbox);
        }
    }
}

/* --- counters --- */

static uint64_t get(const _Atomic uint64_t *c)
{
    return atomic_load_explicit(c, memory_order_relaxed);
}

void http_server_stats(const struct http_server *s, struct http_stats *ret_stats)
{
    struct http_stats sum = {.connections = get(&s->connections)};
    for (unsigned i = 0; i < s->worker_count; i++) {
        const struct counters *c = &s->workers[i].count;
        for (unsigned k = 0; k < 6; k++) {
            sum.responses[k] += get(&c->responses[k]);
        }
        sum.bad_requests += get(&c->bad_requests);
        sum.accepted += get(&c->accepted);
        sum.timed_out += get(&c->timed_out);
        sum.client_gone += get(&c->client_gone);
        sum.feed_kicks += get(&c->feed_kicks);
        sum.exchanges += get(&c->exchanges);
        sum.parked += get(&c->parked);
        sum.streams += get(&c->streams);
        sum.followers += get(&c->followers);
    }
    *ret_stats = sum;
}
