/* SPDX-License-Identifier: Apache-2.0 */
/* The guard's state, and libraft's as the guard reads it. Private to guard*.c.
 *
 * Shape: every entry into libraft from the loop (tick, message, finished write) goes through the
 * guard: prepare, let libraft do its part, settle (guard.c, guard_recv.c). Every request that
 * libraft makes of its backend that can do harm goes through it too (guard_io.c); the others find
 * the backend by `impl`, which the outer io shares.
 *
 * What is relied on of libraft's inside, beyond its header: replicationQuorum() tries to commit
 * exactly last_stored when a result arrives; progress state 0 is "probe", 1 is "pipeline", in which
 * next_index runs ahead of the acks, 2 is "snapshot"; last_stored is 0 while a received snapshot is
 * being stored; io->append is called with the tail of the log; an uncommitted change is rolled back
 * only if configuration_uncommitted_index says that there is one. */
#ifndef RAFT_GUARD_INTERNAL_H
#define RAFT_GUARD_INTERNAL_H

#include "base/assert.h"
#include "raft/guard.h"
#include "raft/guard_config.h"

#include <string.h>

enum { PROGRESS_PROBE = 0, PROGRESS_PIPELINE = 1, PROGRESS_SNAPSHOT = 2 };

/* A server whose last AppendEntries was cut short: libraft believes that all went out. */
struct guard_capped {
    raft_id id;
    raft_index next; /* the first index that did not go out */
};

/* What a server has been told of the leader's commit index. */
struct guard_told {
    raft_id id;
    raft_index commit;
};

struct guard_held_put {
    unsigned trailing;
    struct raft_io_snapshot_put *req; /* NULL: none is held */
    const struct raft_snapshot *snapshot;
};

struct guard {
    struct raft_io outer;
    struct raft_io *inner;
    struct raft *raft;
    struct guard_options options;
    struct guard_stats stats;
    raft_io_tick_cb tick;
    raft_io_recv_cb recv;
    raft_io_close_cb closed;
    int state; /* as last told */
    /* The highest index up to which the log is known to equal that of the leader of `matched_term`.
     */
    raft_term matched_term;
    raft_index matched;
    unsigned writes;         /* appends in flight */
    uint64_t writes_asked;   /* appends ever asked for */
    uint64_t truncate_until; /* a truncation is through when the append with this number is; 0: none
                                under way */
    struct guard_capped *capped; /* one for each server at most */
    unsigned capped_count;
    unsigned capped_capacity;
    struct guard_told *told; /* of the present servers, since they were first sent something */
    unsigned told_count;
    unsigned told_capacity;
    struct raft_io_snapshot_put put; /* the write that the backend knows; one at a time */
    struct raft_io_snapshot_put *put_orig;
    raft_io_snapshot_put_cb put_cb;
    bool put_install;
    struct guard_held_put held;
    struct raft_message parked; /* an InstallSnapshot, with what it owns */
    char *parked_address;       /* its sender's, own; NULL: none is parked */
    struct guard_configs configs;
};

static inline bool guard_on(const struct guard *g, enum guard_measure m)
{
    return (g->options.measures & (unsigned)m) != 0;
}

static inline struct guard *guard_of_outer(struct raft_io *io)
{
    return (struct guard *)(void *)((char *)io - offsetof(struct guard, outer));
}

static inline struct guard *guard_of_inner(struct raft_io *io)
{
    return io->data;
}

static inline void guard_fatal(struct guard *g, const char *why, int status)
{
    g->options.fatal(g->options.ctx, g->raft, why, status);
    UNREACHABLE();
}

static inline size_t guard_log_count(const struct raft_log *l)
{
    return l->front <= l->back ? l->back - l->front : l->size - l->front + l->back;
}

static inline raft_index guard_log_last(const struct raft_log *l)
{
    return l->offset + guard_log_count(l);
}

/* 0: the log does not know the entry. */
static inline raft_term guard_log_term(const struct raft_log *l, raft_index index)
{
    if (index == 0) {
        return 0;
    }
    if (index == l->snapshot.last_index) {
        return l->snapshot.last_term;
    }
    if (index <= l->offset || index > guard_log_last(l)) {
        return 0;
    }
    return l->entries[(l->front + (size_t)(index - 1 - l->offset)) % l->size].term;
}

static inline unsigned guard_voters(const struct raft *r)
{
    unsigned count = 0;
    for (unsigned i = 0; i < r->configuration.n; i++) {
        count += r->configuration.servers[i].role == RAFT_VOTER ? 1 : 0;
    }
    return count;
}

static inline bool guard_installing(const struct raft *r)
{
    return r->last_stored == 0 && r->snapshot.put.data != NULL;
}

static inline bool guard_prev_matches(const struct raft *r, const struct raft_append_entries *a)
{
    return a->prev_log_index == 0 ||
           (a->prev_log_term != 0 &&
            guard_log_term(&r->log, a->prev_log_index) == a->prev_log_term);
}

static inline struct raft_server *guard_self(const struct raft *r)
{
    for (unsigned i = 0; i < r->configuration.n; i++) {
        if (r->configuration.servers[i].id == r->id) {
            return &r->configuration.servers[i];
        }
    }
    return NULL;
}

static inline bool guard_sole_voter(const struct raft_configuration *c, raft_id id)
{
    unsigned others = 0;
    bool me = false;
    for (unsigned i = 0; i < c->n; i++) {
        bool voter = c->servers[i].role == RAFT_VOTER;
        me = me || (voter && c->servers[i].id == id);
        others += voter && c->servers[i].id != id ? 1 : 0;
    }
    return me && others == 0;
}

/* guard.c: before and after each event. */
void guard_settle_capped(struct guard *g);
void guard_settle(struct guard *g);
int guard_begin_term(struct guard *g, raft_term term);

/* guard_tell.c */
/* That `id` is sent `commit` as the leader's commit index. */
void guard_note_told(struct guard *g, raft_id id, raft_index commit);
/* GUARD_TELL, after an event. */
void guard_tell(struct guard *g);

/* guard_park.c */
/* True: it is kept for later, with what it owns. */
bool guard_park(struct guard *g, const struct raft_message *m);
/* True: it is later. The caller frees the address after libraft has had the message. */
bool guard_unpark(struct guard *g, struct raft_message *ret_message, char **ret_address);
void guard_park_drop(struct guard *g);

/* guard_recv.c */
void guard_recv(struct raft_io *inner, struct raft_message *m);

/* guard_io.c */
int guard_send(struct raft_io *io,
               struct raft_io_send *req,
               const struct raft_message *message,
               raft_io_send_cb cb);
int guard_append(struct raft_io *io,
                 struct raft_io_append *req,
                 const struct raft_entry entries[],
                 unsigned n,
                 raft_io_append_cb cb);
int guard_truncate(struct raft_io *io, raft_index index);
int guard_snapshot_put(struct raft_io *io,
                       unsigned trailing,
                       struct raft_io_snapshot_put *req,
                       const struct raft_snapshot *snapshot,
                       raft_io_snapshot_put_cb cb);

#endif
