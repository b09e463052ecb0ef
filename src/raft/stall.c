/* SPDX-License-Identifier: Apache-2.0 */
#include "raft/stall.h"

#include "base/log.h"
#include "raft/acked.h"

#include <inttypes.h>
#include <sys/socket.h>

/* Bytes that wait here and in the kernel, and the count of those the peer took. False: can't be
 * asked. */
static bool look(const uv_handle_t *handle, uint64_t *ret_waiting, uint64_t *ret_acked)
{
    uv_os_fd_t fd;
    uint64_t in_kernel;
    if (uv_fileno(handle, &fd) != 0 || !acked_bytes(fd, ret_acked, &in_kernel)) {
        return false;
    }
    *ret_waiting = in_kernel + uv_stream_get_write_queue_size((const uv_stream_t *)handle);
    return true;
}

/* The kernel's name for the handle's socket. */
static uint64_t socket_of(const uv_handle_t *handle)
{
    uv_os_fd_t fd;
    return uv_fileno(handle, &fd) == 0 ? acked_socket(fd) : 0;
}

static bool is_of(const struct stall_entry *entry, const uv_handle_t *handle)
{
    return (const uv_handle_t *)entry->tcp == handle && uv_handle_get_type(handle) == UV_TCP &&
           !uv_is_closing(handle) && socket_of(handle) == entry->socket;
}

static void cut(struct stall_entry *entry, const uv_handle_t *handle)
{
    uv_os_fd_t fd;
    entry->cut = true;
    if (uv_fileno(handle, &fd) == 0) {
        (void)shutdown(fd, SHUT_RDWR); /* gone already is as good */
    }
}

static void check(struct stall *s, struct stall_entry *entry, uv_handle_t *handle)
{
    uint64_t acked = entry->acked, waiting = 0, now = uv_now(s->loop);
    bool known = look(handle, &waiting, &acked);
    if (!known || entry->cut || waiting == 0 || acked != entry->acked) {
        entry->since_ms = now;
        entry->acked = acked;
    } else if (now - entry->since_ms >= s->limit_ms) {
        log_event(LOG_WARN, "raft.peer.stalled",
                  "peer=%" PRIu64 " waiting_bytes=%" PRIu64 " stalled_ms=%" PRIu64, entry->peer,
                  waiting, now - entry->since_ms);
        s->stalled++;
        cut(entry, handle);
    }
}

static void on_handle(uv_handle_t *handle, void *arg)
{
    struct stall *s = arg;
    for (unsigned i = 0; i < s->count; i++) {
        if (is_of(&s->entries[i], handle)) {
            s->entries[i].alive = true;
            check(s, &s->entries[i], handle);
            return;
        }
    }
}

static void sweep(struct stall *s)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < s->count; i++) {
        s->entries[i].alive = false;
    }
    uv_walk(s->loop, on_handle, s);
    for (unsigned i = 0; i < s->count; i++) {
        if (s->entries[i].alive) {
            s->entries[kept++] = s->entries[i];
        }
    }
    s->count = kept;
}

static void on_timer(uv_timer_t *timer)
{
    sweep(timer->data);
}

void stall_init(struct stall *s, uv_loop_t *loop, uint64_t limit_ms)
{
    *s = (struct stall){.loop = loop, .limit_ms = limit_ms};
    uint64_t period = limit_ms / 8 < 20 ? 20 : limit_ms / 8;
    uv_timer_init(loop, &s->timer);
    s->timer.data = s;
    uv_timer_start(&s->timer, on_timer, period, period);
}

struct cut_search {
    struct stall *s;
    uint64_t peer;
};

static void on_handle_to_cut(uv_handle_t *handle, void *arg)
{
    const struct cut_search *search = arg;
    struct stall *s = search->s;
    for (unsigned i = 0; i < s->count; i++) {
        struct stall_entry *entry = &s->entries[i];
        if (entry->incoming && !entry->cut && entry->peer == search->peer && is_of(entry, handle)) {
            cut(entry, handle);
        }
    }
}

void stall_cut_incoming(struct stall *s, uint64_t peer)
{
    struct cut_search search = {s, peer};
    uv_walk(s->loop, on_handle_to_cut, &search);
}

void stall_watch(struct stall *s, const uv_tcp_t *tcp, uint64_t peer, bool incoming)
{
    if (incoming) {
        stall_cut_incoming(s, peer);
    }
    unsigned at = 0;
    while (at < s->count && s->entries[at].tcp != tcp) {
        at++;
    }
    if (at == STALL_CONNECTIONS_MAX) {
        sweep(s); /* drops what libraft has closed */
        at = s->count;
    }
    if (at == STALL_CONNECTIONS_MAX) {
        log_event(LOG_WARN, "raft.peer.unwatched", "peer=%" PRIu64, peer);
        return;
    }
    s->count = at == s->count ? s->count + 1 : s->count;
    s->entries[at] = (struct stall_entry){.tcp = tcp,
                                          .socket = socket_of((const uv_handle_t *)tcp),
                                          .peer = peer,
                                          .incoming = incoming,
                                          .since_ms = uv_now(s->loop)};
}
