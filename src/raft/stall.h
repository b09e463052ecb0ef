/* SPDX-License-Identifier: Apache-2.0 */
/* Watches connections that libraft owns. It closes and frees them without telling us, so they are
 * looked up among the loop's handles before each use; and it writes without bound, so one that
 * takes nothing while bytes wait is cut (shut down: libraft then closes it and dials again). Loop
 * thread only. */
#ifndef RAFT_STALL_H
#define RAFT_STALL_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

enum {
    STALL_CONNECTIONS_MAX = 64
}; /* two for each of 16 peers, and those not noticed yet as closed */

struct stall_entry {
    const uv_tcp_t *tcp; /* not ours: only compared until found alive */
    uint64_t socket;     /* the address alone may be another connection's by now */
    uint64_t peer;
    uint64_t acked, since_ms; /* bytes the peer's kernel took, and when that last changed */
    bool incoming, alive, cut;
};

struct stall {
    uv_loop_t *loop;
    uv_timer_t timer;
    uint64_t limit_ms;
    unsigned count, stalled;
    struct stall_entry entries[STALL_CONNECTIONS_MAX];
};

void stall_init(struct stall *s, uv_loop_t *loop, uint64_t limit_ms);
/* libraft gets `tcp` now. An incoming one takes the place of the same peer's last one, which is
 * cut. */
void stall_watch(struct stall *s, const uv_tcp_t *tcp, uint64_t peer, bool incoming);
void stall_cut_incoming(struct stall *s, uint64_t peer);

#endif
