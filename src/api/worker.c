/* SPDX-License-Identifier: Apache-2.0 */
/* A worker's loop: libmicrohttpd's epoll set, wakes from other threads, peers that leave, and time.
 *
 * libmicrohttpd is only ever run with a timeout of zero: its own epoll loop hangs when exactly 128
 * events are ready at once. It does not notice that the peer of a suspended connection left, so
 * a connection that was ever suspended is also in this loop's set, edge-triggered, for that event
 * alone. And its idle
 * timeout is fed by any byte, so requests that trickle in and answers that nobody takes are found
 * by looking at all connections every now and then. */
#include "api/internal.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SWEEP_LEAST_MS = 5, SWEEP_MOST_MS = 1000, SPINS_MAX = 64 };

uint64_t worker_random(struct worker *w)
{
    uint64_t z = w->random += UINT64_C(0x9e3779b97f4a7c15); /* SplitMix64 */
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* --- the inbox --- */

struct inbox *inbox_new(int wake_fd)
{
    struct inbox *inbox = mem_zalloc(sizeof *inbox);
    ASSERT(pthread_mutex_init(&inbox->lock, NULL) == 0);
    inbox->last = &inbox->first;
    inbox->wake_fd = wake_fd;
    atomic_init(&inbox->refs, 1);
    return inbox;
}

void inbox_unref(struct inbox *inbox)
{
    if (inbox != NULL && atomic_fetch_sub(&inbox->refs, 1) == 1) {
        (void)pthread_mutex_destroy(&inbox->lock);
        mem_free(inbox);
    }
}

void inbox_wake(const struct inbox *inbox)
{
    static const uint64_t one = 1;
    /* It can only fail when the counter is at its end, and then the loop is awake already. */
    (void)!write(inbox->wake_fd, &one, sizeof one);
}

static void drop_ticket(struct exchange_ticket *t)
{
    if (t->drop != NULL) {
        t->drop(t->arg);
    }
    inbox_unref(t->inbox);
    mem_free(t);
}

void exchange_wake(struct exchange_ticket *t, void *arg, void (*drop)(void *arg))
{
    struct inbox *inbox = t->inbox;
    t->arg = arg;
    t->drop = drop;
    (void)pthread_mutex_lock(&inbox->lock);
    bool closed = inbox->closed;
    if (!closed) {
        bool first = inbox->first == NULL;
        /* The links that the exchange uses stay as they are: this thread may not touch its list. */
        t->woken_next = NULL;
        *inbox->last = t;
        inbox->last = &t->woken_next;
        if (first) {
            inbox_wake(inbox);
        }
    }
    (void)pthread_mutex_unlock(&inbox->lock);
    if (closed) {
        drop_ticket(t);
    }
}

static void unlink_ticket(struct exchange_ticket *t)
{
    if (t->x == NULL) {
        return;
    }
    if (t->prev != NULL) {
        t->prev->next = t->next;
    } else {
        t->x->tickets = t->next;
    }
    if (t->next != NULL) {
        t->next->prev = t->prev;
    }
}

static void deliver(struct exchange_ticket *t)
{
    struct exchange *x = t->x;
    unlink_ticket(t);
    if (x != NULL && x->state == X_PARKED) {
        void *arg = t->arg;
        t->drop = NULL;
        drop_ticket(t);
        exchange_run_ready(x, arg);
    } else {
        drop_ticket(t);
    }
}

static void read_inbox(struct worker *w)
{
    struct inbox *inbox = w->inbox;
    uint64_t count;
    (void)!read(inbox->wake_fd, &count, sizeof count);
    (void)pthread_mutex_lock(&inbox->lock);
    struct exchange_ticket *t = inbox->first;
    inbox->first = NULL;
    inbox->last = &inbox->first;
    (void)pthread_mutex_unlock(&inbox->lock);
    while (t != NULL) {
        struct exchange_ticket *next = t->woken_next;
        deliver(t);
        t = next;
    }
    if (!atomic_exchange(&inbox->kick, false)) {
        return;
    }
    count_add(&w->count.feed_kicks, 1);
    for (struct exchange *x = w->follow_first, *next; x != NULL; x = next) {
        next = x->follow_next;
        if (x->state == X_PARKED) {
            exchange_run_ready(x, NULL);
        } else if (x->state == X_STREAMING && x->suspended) {
            stream_run(x);
        } else {
            x->kick = true;
        }
    }
}

/* --- connections --- */

void conn_opened(struct conn *c)
{
    struct worker *w = c->worker;
    c->since_ms = c->taken_ms = c->checked_ms = w->now_ms;
    c->next = w->conns;
    if (w->conns != NULL) {
        w->conns->prev = c;
    } else {
        w->sweep_ms = 0; /* it was not kept while there was nothing to look at */
    }
    w->conns = c;
    count_add(&w->count.accepted, 1);
}

static void watch(struct conn *c, bool room)
{
    int op = c->watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
    struct epoll_event event = {.events = EPOLLRDHUP | EPOLLET | (room ? EPOLLOUT : 0),
                                .data.u64 = (uintptr_t)c};
    if (epoll_ctl(c->worker->epoll_fd, op, c->fd, &event) != 0) {
        c->gone = true; /* nobody would notice, so it is given up now */
    }
    c->watched = true;
    c->watched_room = room;
}

void conn_watch(struct conn *c)
{
    if (!c->watched) {
        watch(c, false);
    }
}

void conn_watch_room(struct conn *c)
{
    if (!c->watched_room) {
        watch(c, true);
    }
}

void conn_closed(struct conn *c)
{
    struct worker *w = c->worker;
    ASSERT(c->x == NULL);
    if (c->watched) {
        /* A duplicate of the descriptor would keep the registration alive. */
        (void)epoll_ctl(w->epoll_fd, EPOLL_CTL_DEL, c->fd, NULL);
    }
    if (c->linger && !c->gone) {
        linger_start(w, c->fd);
    }
    if (c->prev != NULL) {
        c->prev->next = c->next;
    } else {
        w->conns = c->next;
    }
    if (c->next != NULL) {
        c->next->prev = c->prev;
    }
    mem_free(c);
}

void conn_reset(struct conn *c)
{
    /* Taking the peer's address away is how Linux resets a connection that is not to be closed
     * here. */
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    (void)connect(c->fd, &none, sizeof none);
}

void conn_cut(struct conn *c)
{
    if (c->cut) {
        return;
    }
    c->cut = true;
    c->linger = false;
    /* libmicrohttpd, which owns the descriptor, sees the end of the connection and closes it.
     * Within a request it is a reset, so that nobody takes the part for the whole and nothing stays
     * in the kernel. */
    if (c->x != NULL) {
        conn_reset(c);
        if (c->x->suspended) {
            exchange_abandon(c->x);
        }
    } else {
        (void)shutdown(c->fd, SHUT_RDWR);
    }
}

static void peer_left(struct conn *c)
{
    c->gone = true;
    if (c->x != NULL && c->x->suspended) {
        count_add(&c->worker->count.client_gone, 1);
        exchange_abandon(c->x);
    }
}

/* Has the peer taken anything lately, of what it has to take? */
static bool stalled(struct conn *c, uint64_t now_ms, uint64_t stall_ms)
{
    if (now_ms - c->checked_ms < stall_ms / 4) {
        return false;
    }
    c->checked_ms = now_ms;
    int owed = 0;
    struct tcp_info info = {0};
    socklen_t size = sizeof info;
    if (ioctl(c->fd, SIOCOUTQ, &owed) != 0 || owed == 0 ||
        getsockopt(c->fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 ||
        info.tcpi_bytes_acked != c->acked) {
        c->acked = info.tcpi_bytes_acked;
        c->taken_ms = now_ms;
        return false;
    }
    return now_ms - c->taken_ms >= stall_ms;
}

/* When a chunk's size line does not fit into the connection's memory, libmicrohttpd neither reads
 * on nor gives up, but asks to be run again at once, for ever. So: bytes wait in the socket, and
 * did when it was looked at before, and none was taken in between. */
static bool stuck(const struct conn *c)
{
    struct exchange *x = c->x;
    int waiting = 0;
    if (x == NULL || x->state != X_BODY || ioctl(c->fd, FIONREAD, &waiting) != 0 || waiting == 0) {
        return false;
    }
    bool before = x->stuck_at == x->body_seen + 1;
    x->stuck_at = x->body_seen + 1;
    return before;
}

static void cut_stuck(struct worker *w)
{
    for (struct conn *c = w->conns; c != NULL; c = c->next) {
        if (!c->cut && stuck(c)) {
            count_add(&w->count.bad_requests, 1);
            conn_cut(c);
        }
    }
}

static bool too_slow(struct conn *c, uint64_t now_ms, const struct http_options *o)
{
    const struct exchange *x = c->x;
    if (x == NULL) {
        /* The first request is due sooner, or connecting alone would hold a place for long. */
        return now_ms - c->since_ms >= (c->served == 0 ? o->request_ms : o->idle_ms);
    }
    if (x->state == X_HEAD || x->state == X_BODY) {
        return now_ms - x->started_ms >= o->request_ms || c->gone;
    }
    return x->status != 0 && stalled(c, now_ms, o->stall_ms);
}

static void sweep(struct worker *w)
{
    const struct http_options *o = &w->server->options;
    uint64_t every = o->idle_ms < o->request_ms ? o->idle_ms : o->request_ms;
    every = (every < o->stall_ms ? every : o->stall_ms) / 8;
    every = every < SWEEP_LEAST_MS ? SWEEP_LEAST_MS : every > SWEEP_MOST_MS ? SWEEP_MOST_MS : every;
    w->sweep_ms = w->now_ms + every;
    for (struct conn *c = w->conns; c != NULL; c = c->next) {
        if (!c->cut && too_slow(c, w->now_ms, o)) {
            if (c->x != NULL) {
                count_add(&w->count.timed_out, 1);
            }
            conn_cut(c);
        }
    }
    cut_stuck(w);
}

/* Between sweeps a connection that is stuck would take a whole core, and one that filled its memory
 * exactly, so that nothing waits in its socket, until its time is over. Returns how long to wait,
 * given what libmicrohttpd wants. */
static int notice_spinning(struct worker *w, int mhd_ms, uint64_t progress_before)
{
    if (mhd_ms != 0 || w->progress != progress_before) {
        w->spins = 0;
        return mhd_ms;
    }
    if (++w->spins < SPINS_MAX) {
        return mhd_ms;
    }
    if (w->spins % SPINS_MAX == 0) {
        cut_stuck(w);
    }
    return 1;
}

/* --- the loop --- */

static void run_timer(struct exchange *x)
{
    bool kick = x->kick;
    x->kick = false;
    if (x->conn->gone && x->suspended) {
        peer_left(x->conn);
        return;
    }
    if (x->state == X_STREAMING && x->suspended) {
        stream_run(x);
    } else if (x->state == X_PARKED && kick) {
        exchange_run_ready(x, NULL);
    } else if (x->state == X_PARKED) {
        exchange_run_gone(x, true);
    }
}

static void run_timers(struct worker *w)
{
    /* Not those that are set meanwhile: the sockets come in between. */
    for (size_t n = w->timer_count; n > 0; n--) {
        struct exchange *x = timer_due(w);
        if (x == NULL) {
            break;
        }
        run_timer(x);
    }
}

/* How long to sleep, given what libmicrohttpd allows. */
static int wait_ms(const struct worker *w, int mhd_ms)
{
    uint64_t at = timer_next_ms(w);
    if (w->conns != NULL && w->sweep_ms < at) {
        at = w->sweep_ms;
    }
    for (unsigned i = 0; i < w->linger_count; i++) {
        at = w->lingerers[i].until_ms < at ? w->lingerers[i].until_ms : at;
    }
    if (at == UINT64_MAX) {
        return mhd_ms;
    }
    uint64_t ms = at > w->now_ms ? at - w->now_ms : 0;
    int wait = ms > SWEEP_MOST_MS ? SWEEP_MOST_MS : (int)ms;
    return mhd_ms >= 0 && mhd_ms < wait ? mhd_ms : wait;
}

static void conn_event(struct conn *c, uint32_t events)
{
    if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) {
        peer_left(c);
    } else if (c->x != NULL) {
        stream_room(c->x);
    }
}

static void handle_events(struct worker *w, const struct epoll_event *events, int count)
{
    bool wake = false;
    for (int i = 0; i < count; i++) {
        uint64_t data = events[i].data.u64;
        switch ((int)(data & 7)) {
        case WORKER_EVENT_WAKE:
            wake = true;
            break;
        case WORKER_EVENT_MHD:
            break;
        case WORKER_EVENT_LINGER:
            linger_event(w, (int)(data >> 3));
            break;
        default:
            /* Connections are freed in mhd_run() only, so this one is there. */
            conn_event((struct conn *)(uintptr_t)data, events[i].events);
            break;
        }
    }
    if (wake) {
        read_inbox(w);
    }
}

/* Ends all that is suspended, which libmicrohttpd wants done before it stops. */
static void finish(struct worker *w)
{
    mhd_quiesce(w);
    for (struct conn *c = w->conns; c != NULL; c = c->next) {
        conn_cut(c);
    }
    for (int i = 0; i < 8 && w->conns != NULL; i++) {
        (void)mhd_run(w);
    }
    mhd_close(w);
    linger_expire(w, true);
    (void)pthread_mutex_lock(&w->inbox->lock);
    w->inbox->closed = true;
    (void)pthread_mutex_unlock(&w->inbox->lock);
    read_inbox(w);
    ASSERT(w->conns == NULL);
}

void *worker_main(void *worker)
{
    struct worker *w = worker;
    struct epoll_event events[WORKER_EVENTS_MAX];
    int mhd_ms = 0;
    rcu_reader_start();
    while (!atomic_load(&w->server->stopping)) {
        int n = epoll_wait(w->epoll_fd, events, WORKER_EVENTS_MAX, wait_ms(w, mhd_ms));
        w->now_ms = clock_mono_ms();
        handle_events(w, events, n);
        run_timers(w);
        if (w->sweep_ms <= w->now_ms) {
            sweep(w);
        }
        if (w->linger_count > 0) {
            linger_expire(w, false);
        }
        uint64_t progress = w->progress;
        mhd_ms = notice_spinning(w, mhd_run(w), progress);
    }
    finish(w);
    rcu_reader_stop();
    return NULL;
}
