/* SPDX-License-Identifier: Apache-2.0 */
/* When each session was last renewed, as this leader counted: what decides that one has lapsed. Not
 * replicated, because only a leader's own clock counts; a new leader begins anew at full length.
 *
 * Times are CLOCK_BOOTTIME in ms and given by the caller. One thread changes the table;
 * leases_look() may be called by any. */
#ifndef CONTROL_LEASES_H
#define CONTROL_LEASES_H

#include "directory/view.h"

#include <pthread.h>

/* What clocks may differ, and an answer take: beyond the lease itself. */
static inline uint64_t leases_allowance_ms(uint64_t lease_ms)
{
    return lease_ms / 100 + 500;
}

struct lease {
    dir_rev session; /* 0: none */
    uint64_t lease_ms, renewed_ms;
    uint32_t waiting; /* heartbeats of it that are not confirmed yet */
    bool proposed;    /* the command that ends it is on its way */
    bool ending;      /* it was proposed, and its fate is not known: no heartbeat is answered */
};

struct lease_entry {
    uint64_t node; /* 0: a free slot */
    struct lease present;
    struct lease before; /* the ended sessions whose grants are not released, as one */
};

struct leases {
    pthread_mutex_t lock;
    struct lease_entry *slots; /* open addressing by node id */
    uint64_t used, cap;
};

void leases_open(struct leases *t);
void leases_close(struct leases *t);

/* All of the view's sessions, each renewed now. */
void leases_restart(struct leases *t, const struct dir_view *v, uint64_t now_ms);
/* Each counts anew from now: the process stood still, and renewals may have been missed. */
void leases_extend(struct leases *t, uint64_t now_ms);
/* A node's row has changed; `after` NULL: it is gone. */
void leases_note(struct leases *t, uint64_t node, const struct dir_node *after, uint64_t now_ms);

/* The node's present lease of this session, or NULL. Borrowed until the next change. */
struct lease *leases_find(struct leases *t, uint64_t node, dir_rev session);
/* The same of its ended sessions. */
struct lease *leases_find_before(struct leases *t, uint64_t node, dir_rev session);
void leases_renew(struct leases *t, struct lease *l, uint64_t now_ms);

/* Calls `fn` for sessions that have lapsed, of which no heartbeat waits and whose end is not
 * proposed; until it returns false, and for at most `max`. It may change the lease, not the table.
 */
void leases_lapsed(struct leases *t,
                   uint64_t now_ms,
                   uint32_t max,
                   bool (*fn)(void *arg, uint64_t node, struct lease *l),
                   void *arg);

struct leases_seen {
    bool known;
    uint64_t since_ms; /* since the last renewal */
    uint64_t left_ms;  /* of the lease, without the allowance */
};
/* Of the node's present session. */
struct leases_seen leases_look(struct leases *t, uint64_t node, uint64_t now_ms);

#endif
