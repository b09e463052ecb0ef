/* SPDX-License-Identifier: Apache-2.0 */
/* Lingering close. A socket that is closed while bytes are unread sends a reset, which may overtake
 * the answer in the client. So the descriptor is kept open a moment longer, and what comes is
 * thrown away. */
#include "api/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LINGER_MS = 2000, LINGER_BYTES_MAX = 64 << 20, LINGER_PIECE = 64 << 10 };

void linger_start(struct worker *w, int fd)
{
    if (w->linger_count == WORKER_LINGER_MAX) {
        return;
    }
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP,
                                .data.u64 = (uint64_t)(unsigned)copy << 3 | WORKER_EVENT_LINGER};
    if (copy < 0 || epoll_ctl(w->epoll_fd, EPOLL_CTL_ADD, copy, &event) != 0) {
        if (copy >= 0) {
            (void)close(copy);
        }
        return;
    }
    w->lingerers[w->linger_count++] = (struct lingerer){copy, w->now_ms + LINGER_MS, 0};
}

static void end(struct worker *w, unsigned i)
{
    (void)close(w->lingerers[i].fd);
    w->lingerers[i] = w->lingerers[--w->linger_count];
}

void linger_event(struct worker *w, int fd)
{
    static _Thread_local uint8_t sink[LINGER_PIECE];
    for (unsigned i = 0; i < w->linger_count; i++) {
        struct lingerer *l = &w->lingerers[i];
        if (l->fd != fd) {
            continue;
        }
        ssize_t n = recv(fd, sink, sizeof sink, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
            end(w, i);
        } else if (n > 0 && (l->bytes += (uint64_t)n) > LINGER_BYTES_MAX) {
            end(w, i);
        }
        return;
    }
}

void linger_expire(struct worker *w, bool all)
{
    for (unsigned i = w->linger_count; i-- > 0;) {
        if (all || w->lingerers[i].until_ms <= w->now_ms) {
            end(w, i);
        }
    }
}
