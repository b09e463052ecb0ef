/* SPDX-License-Identifier: Apache-2.0 */
/* Names are resolved anew at each dial, on the pool, and every address that comes back is tried in
 * turn; the link's deadline covers it all. Literal addresses skip the pool: a busy disk must not
 * keep servers apart. */
#include "raft/link.h"

#include "base/parse.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

static void try_next(struct link *l);

static void on_connected(uv_connect_t *request, int status)
{
    struct link *l = request->data;
    if (l->dead) {
        return;
    }
    if (status != 0) {
        link_close_tcp(l);
        try_next(l);
        return;
    }
    link_greet(l);
}

static void connect_to(struct link *l, const struct sockaddr *address)
{
    link_open(l);
    l->connect.data = l;
    if (uv_tcp_connect(&l->connect, l->tcp, address, on_connected) != 0) {
        link_close_tcp(l);
        try_next(l);
    }
}

static void try_next(struct link *l)
{
    struct addrinfo *a = l->next_address;
    if (a == NULL) {
        link_fail(l);
        return;
    }
    l->next_address = a->ai_next;
    connect_to(l, a->ai_addr);
}

static void on_resolved(uv_getaddrinfo_t *request, int status, struct addrinfo *addresses)
{
    struct link *l = request->data;
    l->addresses = addresses;
    l->next_address = addresses;
    if (!l->dead) {
        if (status == 0) {
            try_next(l);
        } else {
            link_fail(l);
        }
    }
    link_release(l);
}

void dial_start(struct link *l)
{
    char host[REPLICA_ADDRESS_MAX + 1], port_text[8];
    uint16_t port;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    if (!parse_host_port(l->address, host, sizeof host, &port)) {
        link_fail(l);
        return;
    }
    if (uv_ip4_addr(host, port, &v4) == 0) {
        connect_to(l, (const struct sockaddr *)&v4);
        return;
    }
    if (uv_ip6_addr(host, port, &v6) == 0) {
        connect_to(l, (const struct sockaddr *)&v6);
        return;
    }
    (void)snprintf(port_text, sizeof port_text, "%u", port);
    l->resolve.data = l;
    if (uv_getaddrinfo(l->t->options.loop, &l->resolve, on_resolved, host, port_text, &hints) !=
        0) {
        link_fail(l);
        return;
    }
    l->holds++;
}
