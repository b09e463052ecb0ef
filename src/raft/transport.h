/* SPDX-License-Identifier: Apache-2.0 */
/* Our raft_uv_transport: TCP with a handshake (hello.h) in which both sides prove to belong
 * together before a byte reaches libraft. Knows how to listen, resolve, dial and cut; who may talk
 * is judged by its user.
 *
 * A connection that passed is handed to libraft as a plain uv_tcp_t: no copy, no extra turn of the
 * loop. Stalled ones are found by TCP_INFO (stall.h). TLS has its place where links are handed over
 * (transport.c, deliver()). Loop thread only. Never closed: the process exits. */
#ifndef RAFT_TRANSPORT_H
#define RAFT_TRANSPORT_H

#include "raft/hello.h"

#include <raft/uv.h>

struct transport;

enum {
    TRANSPORT_PENDING_MAX =
        64, /* accepted connections in the handshake; one more is closed at once */
    TRANSPORT_HANDSHAKE_MS = 3000 /* for name, connection and handshake together */
};

struct transport_options {
    uv_loop_t *loop;
    uint64_t stall_ms;
    uint64_t handshake_ms; /* 0: TRANSPORT_HANDSHAKE_MS */
    void *ctx;
    /* Fills what this server says of itself: all but type, refusal and `to`. */
    void (*introduce)(void *ctx, struct hello *ret_self);
    /* Judges what a peer says of itself (its hello, or its answer when `answer`). With REFUSE_NONE
     * it may replace `ret_address`, the address libraft will answer to. */
    enum hello_refusal (*judge)(void *ctx,
                                const struct hello *peer,
                                bool answer,
                                char ret_address[REPLICA_ADDRESS_MAX + 1]);
    /* Where a server is, when it is known better than by libraft; else NULL. Borrowed for the call.
     */
    const char *(*locate)(void *ctx, uint64_t id);
    /* Why no connection came of dialling or accepting: for the log. */
    void (*refused)(void *ctx, const struct hello *peer, enum hello_refusal by_us);
};

/* Borrows `options`' ctx for good. Fills `ret_uv` (which outlives the replica) for raft_uv_init().
 */
struct transport *transport_new(const struct transport_options *options,
                                struct raft_uv_transport *ret_uv);

/* Binds and listens, before Raft does. `bind` is host:port; port 0 takes a free one. ERR_IO with
 * the reason. */
enum err_code transport_listen(struct transport *t, const char *bind, struct err *e) MUST_CHECK;
/* The port that transport_listen got. */
uint16_t transport_port(const struct transport *t);

/* One dial with its handshake, and no Raft after it. `answer` is NULL when none came, else what the
 * peer said: it may be a refusal. Called once, later. */
typedef void (*transport_greet_cb)(void *arg, const struct hello *answer);
void transport_greet(struct transport *t,
                     uint64_t id,
                     const char *address,
                     transport_greet_cb cb,
                     void *arg);

/* Cuts what was accepted from a server: it was removed. */
void transport_cut(struct transport *t, uint64_t id);

struct transport_counts {
    unsigned pending, turned_away, stalled; /* now; since the start; since the start */
};
struct transport_counts transport_counts(const struct transport *t);

#endif
