/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by transport.c and dial.c: one connection until it is handed to libraft or dropped. */
#ifndef RAFT_LINK_H
#define RAFT_LINK_H

#include "raft/stall.h"
#include "raft/transport.h"

#include <netdb.h>

struct link {
    struct transport *t;
    bool dialling, dead;
    unsigned holds; /* open handles and requests that point here; freed at 0 */
    uv_tcp_t *tcp;  /* raft_malloc'd: libraft frees what it is handed. NULL while there is none */
    uv_timer_t deadline;
    uv_getaddrinfo_t resolve;
    uv_connect_t connect;
    uv_write_t write;
    uint64_t want; /* dialling: the server that has to answer */
    char address[REPLICA_ADDRESS_MAX + 1];
    struct addrinfo *addresses, *next_address; /* owned; what resolving gave */
    size_t in_len, in_want, out_len;
    bool in_body;
    uint8_t in[HELLO_FRAME_MAX], out[HELLO_FRAME_MAX];
    struct hello peer;
    bool admit; /* accepting: the answer that is being written is a yes */
    char peer_address[REPLICA_ADDRESS_MAX + 1];
    /* dialling: exactly one of the two is told, once */
    struct raft_uv_connect *request;
    raft_uv_connect_cb connect_cb;
    transport_greet_cb greet_cb;
    void *greet_arg;
};

struct transport {
    struct transport_options options;
    struct raft_uv_transport *uv;
    raft_uv_accept_cb accept_cb; /* NULL until libraft listens */
    uv_tcp_t listener;
    unsigned pending, turned_away;
    struct stall stall;
};

struct link *link_new(struct transport *t, bool dialling);
/* A fresh TCP handle for the link. */
void link_open(struct link *l);
/* Closes the handle and leaves the link without one. */
void link_close_tcp(struct link *l);
/* Ends the link, whatever it waits for; who waits for it is told that nothing came of it. */
void link_fail(struct link *l);
void link_release(struct link *l);
/* The connection stands: sets its options, starts reading; a dialler says hello. */
void link_greet(struct link *l);

/* dial.c: resolves `address` and tries what comes of it in turn, then link_greet(). */
void dial_start(struct link *l);

#endif
