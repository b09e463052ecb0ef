/* SPDX-License-Identifier: Apache-2.0 */
/* Shape: every entry into libraft from the loop (tick, message, finished write) goes through here:
 * prepare, let libraft do its part, settle. Every request that libraft makes of its backend that
 * can do harm (send, append, truncate, snapshot_put) goes through here too; the others find the
 * backend by `impl`, which the outer io shares.
 *
 * What is relied on of libraft's inside, beyond its header: replicationQuorum() tries to commit
 * exactly `last_stored` when a result arrives; progress state 1 is "pipeline", in which next_index
 * runs ahead of the acks; last_stored is 0 while a received snapshot is being stored; io->append is
 * called with the tail of the log. */
#include "raft/guard.h"

#include "base/assert.h"
#include "base/mem.h"
#include "raft/guard_config.h"

#include <string.h>

_Static_assert(sizeof(struct raft) == 656, "the guard knows libraft 0.15.0 and no other");
_Static_assert(sizeof(struct raft_io) == 408, "the guard knows libraft 0.15.0 and no other");
_Static_assert(sizeof(struct raft_progress) == 56, "the guard knows libraft 0.15.0 and no other");
_Static_assert(offsetof(struct raft, io) == 16, "struct raft");
_Static_assert(offsetof(struct raft, current_term) == 48, "struct raft");
_Static_assert(offsetof(struct raft, log) == 64, "struct raft");
_Static_assert(offsetof(struct raft, configuration) == 136, "struct raft");
_Static_assert(offsetof(struct raft, configuration_index) == 152, "struct raft");
_Static_assert(offsetof(struct raft, configuration_uncommitted_index) == 160, "struct raft");
_Static_assert(offsetof(struct raft, commit_index) == 184, "struct raft");
_Static_assert(offsetof(struct raft, last_stored) == 200, "struct raft");
_Static_assert(offsetof(struct raft, state) == 208, "struct raft");
_Static_assert(offsetof(struct raft, leader_state.progress) == 216, "struct raft");
_Static_assert(offsetof(struct raft, election_timer_start) == 280, "struct raft");
_Static_assert(offsetof(struct raft, snapshot.pending) == 304, "struct raft");
_Static_assert(offsetof(struct raft, snapshot.put) == 360, "struct raft");

enum { PROGRESS_PROBE = 0, PROGRESS_PIPELINE = 1, PROGRESS_SNAPSHOT = 2 };

/* A server whose last AppendEntries was cut short: libraft believes that all went out. */
struct capped {
    raft_id id;
    raft_index next; /* the first index that did not go out */
};

struct held_put {
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
    struct capped *capped;   /* one for each server at most */
    unsigned capped_count;
    unsigned capped_capacity;
    struct raft_io_snapshot_put put; /* the write that the backend knows; one at a time */
    struct raft_io_snapshot_put *put_orig;
    raft_io_snapshot_put_cb put_cb;
    bool put_install;
    struct held_put held;
    struct guard_configs configs;
};

struct guarded_append {
    struct raft_io_append req;
    struct raft_io_append *orig;
    raft_io_append_cb cb;
    struct guard *guard;
    uint64_t number;
};

static bool on(const struct guard *g, enum guard_measure m)
{
    return (g->options.measures & (unsigned)m) != 0;
}

static struct guard *guard_of_outer(struct raft_io *io)
{
    return (struct guard *)(void *)((char *)io - offsetof(struct guard, outer));
}

static struct guard *guard_of_inner(struct raft_io *io)
{
    return io->data;
}

static void fatal(struct guard *g, const char *why, int status)
{
    g->options.fatal(g->options.ctx, g->raft, why, status);
    UNREACHABLE();
}

/* --- libraft's log and state, read only --- */

static size_t log_count(const struct raft_log *l)
{
    return l->front <= l->back ? l->back - l->front : l->size - l->front + l->back;
}

static raft_index log_last(const struct raft_log *l)
{
    return l->offset + log_count(l);
}

/* 0: the log does not know the entry. */
static raft_term log_term(const struct raft_log *l, raft_index index)
{
    if (index == 0) {
        return 0;
    }
    if (index == l->snapshot.last_index) {
        return l->snapshot.last_term;
    }
    if (index <= l->offset || index > log_last(l)) {
        return 0;
    }
    return l->entries[(l->front + (size_t)(index - 1 - l->offset)) % l->size].term;
}

static unsigned voters(const struct raft *r)
{
    unsigned count = 0;
    for (unsigned i = 0; i < r->configuration.n; i++) {
        count += r->configuration.servers[i].role == RAFT_VOTER ? 1 : 0;
    }
    return count;
}

static bool installing(const struct raft *r)
{
    return r->last_stored == 0 && r->snapshot.put.data != NULL;
}

static bool prev_matches(const struct raft *r, const struct raft_append_entries *a)
{
    return a->prev_log_index == 0 ||
           (a->prev_log_term != 0 && log_term(&r->log, a->prev_log_index) == a->prev_log_term);
}

/* --- settling: before and after each event --- */

static void settle_capped(struct guard *g)
{
    const struct raft *r = g->raft;
    if (r->state == RAFT_LEADER) {
        for (unsigned k = 0; k < g->capped_count; k++) {
            for (unsigned i = 0; i < r->configuration.n; i++) {
                struct raft_progress *p = &r->leader_state.progress[i];
                if (r->configuration.servers[i].id == g->capped[k].id &&
                    p->state == PROGRESS_PIPELINE && p->next_index > g->capped[k].next) {
                    p->next_index = g->capped[k].next;
                }
            }
        }
    }
    g->capped_count = 0;
}

/* L20: libraft lets a late rejection take next_index below what the server is known to have, and
 * waits for a snapshot that the server already has to be installed; it may then never leave that
 * state. */
static void settle_progress(const struct guard *g)
{
    const struct raft *r = g->raft;
    if (r->state != RAFT_LEADER || !on(g, GUARD_PROGRESS)) {
        return;
    }
    for (unsigned i = 0; i < r->configuration.n; i++) {
        struct raft_progress *p = &r->leader_state.progress[i];
        if (p->state == PROGRESS_SNAPSHOT && p->match_index >= p->snapshot_index) {
            p->state = PROGRESS_PROBE;
            p->snapshot_index = 0;
        }
        if (p->state == PROGRESS_PROBE && p->next_index <= p->match_index) {
            p->next_index = p->match_index + 1;
        }
    }
}

/* L10: the configuration in force is the latest in the log, whatever libraft has made of it. Only a
 * follower's needs correcting, and only a follower's can be: a candidate's votes and a leader's
 * progress have its size. */
static void settle_configuration(struct guard *g)
{
    struct raft *r = g->raft;
    guard_configs_prune(&g->configs, r->commit_index);
    if (r->state != RAFT_FOLLOWER || !on(g, GUARD_CONFIG) || installing(r)) {
        return;
    }
    const struct guard_config *want = guard_configs_at(&g->configs, log_last(&r->log));
    const struct guard_config *committed = guard_configs_at(&g->configs, r->commit_index);
    if (want == NULL) {
        return; /* a new server that has not received anything */
    }
    if (!guard_configuration_equal(&want->configuration, &r->configuration)) {
        raft_configuration_close(&r->configuration);
        guard_configuration_copy(&want->configuration, &r->configuration);
        g->stats.configurations_corrected++;
    }
    r->configuration_uncommitted_index = want->index > r->commit_index ? want->index : 0;
    r->configuration_index = committed != NULL ? committed->index : 0;
}

static void barrier_done(struct raft_barrier *req, int status)
{
    (void)status; /* lost leadership or not, there is nobody to tell */
    mem_free(req);
}

static void settle(struct guard *g)
{
    struct raft *r = g->raft;
    settle_capped(g);
    settle_progress(g);
    settle_configuration(g);
    int state = r->state;
    if (state == g->state) {
        return;
    }
    int old = g->state;
    g->state = state;
    if (state == RAFT_LEADER && on(g, GUARD_BARRIER) && voters(r) > 1) {
        struct raft_barrier *req = mem_zalloc(sizeof *req);
        if (raft_barrier(r, req, barrier_done) != 0) {
            mem_free(req);
        } else {
            g->stats.barriers++;
        }
        settle_capped(g);
    }
    if (g->options.on_state != NULL) {
        g->options.on_state(g->options.ctx, r, old, state);
    }
}

static struct raft_server *self(const struct raft *r)
{
    for (unsigned i = 0; i < r->configuration.n; i++) {
        if (r->configuration.servers[i].id == r->id) {
            return &r->configuration.servers[i];
        }
    }
    return NULL;
}

/* L21: libraft's follower forgets its leader only by becoming a candidate, so one without a vote
 * never does, and then refuses to vote for anybody. */
static void forget_leader(struct guard *g)
{
    struct raft *r = g->raft;
    const struct raft_server *me = self(r);
    raft_time silence = g->inner->time(g->inner) - r->election_timer_start;
    if (!on(g, GUARD_VOTES) || r->state != RAFT_FOLLOWER ||
        r->follower_state.current_leader.id == 0 || (me != NULL && me->role == RAFT_VOTER) ||
        silence < r->follower_state.randomized_election_timeout) {
        return;
    }
    raft_free(r->follower_state.current_leader.address);
    r->follower_state.current_leader.address = NULL;
    r->follower_state.current_leader.id = 0;
    g->stats.leaders_forgotten++;
}

static bool sole_voter(const struct raft_configuration *c, raft_id id)
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

/* L23: the only voter elects itself without a new term, so that after a crash it may put other
 * entries, of the same term, in the places of those that it lost and that an observer has. */
static int begin_term(struct guard *g, raft_term term)
{
    int rv = g->inner->set_term(g->inner, term);
    return rv != 0 ? rv : g->inner->set_vote(g->inner, g->raft->id);
}

static void before_self_election(struct guard *g)
{
    struct raft *r = g->raft;
    if (!on(g, GUARD_TERM) || r->state != RAFT_FOLLOWER || !sole_voter(&r->configuration, r->id) ||
        g->inner->time(g->inner) - r->election_timer_start <
            r->follower_state.randomized_election_timeout) {
        return;
    }
    int rv = begin_term(g, r->current_term + 1);
    if (rv != 0) {
        fatal(g, "a new term could not be stored", rv);
    }
    r->current_term++;
    r->voted_for = r->id;
}

static void guard_tick(struct raft_io *inner)
{
    struct guard *g = guard_of_inner(inner);
    struct raft *r = g->raft;
    settle_capped(g);
    if (on(g, GUARD_NO_CANDIDACY) && r->state == RAFT_FOLLOWER &&
        (g->writes > 0 || installing(r))) {
        r->election_timer_start = inner->time(inner);
        g->stats.ticks_held++;
    }
    forget_leader(g);
    before_self_election(g);
    g->tick(&g->outer);
    settle(g);
}

/* --- messages in --- */

static void know_match(struct guard *g, raft_term term, raft_index index)
{
    if (term != g->matched_term) {
        g->matched_term = term;
        g->matched = 0;
    }
    if (index > g->matched) {
        g->matched = index;
    }
}

/* Leaves an empty AppendEntries, which keeps the leader known and the follower quiet. */
static void take_entries_off(struct raft_append_entries *a)
{
    if (a->n_entries > 0) {
        raft_free(a->entries[0].batch);
        raft_free(a->entries);
    }
    a->entries = NULL;
    a->n_entries = 0;
    if (a->leader_commit > a->prev_log_index) {
        a->leader_commit = a->prev_log_index;
    }
}

/* L19: entries that a snapshot of ours covers may be gone from the log. libraft rejects what
 * follows a gone entry, and with prev_log_index 0 appends the gone entries again, at the log's end.
 * They are committed, so they equal ours: the message is made to begin where the snapshot ends. */
static void trim(struct guard *g, struct raft_append_entries *a)
{
    const struct raft_log *l = &g->raft->log;
    raft_index covered = l->snapshot.last_index;
    if (l->offset == 0 || a->prev_log_index > l->offset || a->prev_log_index >= covered) {
        return;
    }
    raft_index gone = covered - a->prev_log_index;
    if (a->n_entries <= gone) {
        take_entries_off(a);
    } else {
        a->n_entries -= (unsigned)gone;
        memmove(a->entries, a->entries + gone, a->n_entries * sizeof *a->entries);
    }
    a->prev_log_index = covered;
    a->prev_log_term = l->snapshot.last_term;
    g->stats.batches_trimmed++;
}

static bool truncates(const struct raft *r, const struct raft_append_entries *a)
{
    for (unsigned j = 0; j < a->n_entries; j++) {
        raft_term term = log_term(&r->log, a->prev_log_index + 1 + j);
        if (term == 0) {
            return false;
        }
        if (term != a->entries[j].term) {
            return true;
        }
    }
    return false;
}

static void before_append_entries(struct guard *g, struct raft_append_entries *a)
{
    struct raft *r = g->raft;
    if (a->term < r->current_term) {
        return; /* libraft rejects it */
    }
    if (on(g, GUARD_TRIM) && !installing(r)) {
        trim(g, a);
    }
    bool match = prev_matches(r, a);
    if (on(g, GUARD_TRUNCATE) && match && (g->writes > 0 || r->snapshot.put.data != NULL) &&
        truncates(r, a)) {
        take_entries_off(a);
        g->stats.entries_deferred++;
    }
    if (on(g, GUARD_CONFIG) && match && truncates(r, a)) {
        /* Keeps libraft from rolling back, which looks for an entry that may be gone;
         * settle_configuration does it. */
        r->configuration_uncommitted_index = 0;
    }
    /* While a snapshot is being installed libraft drops what carries entries. */
    bool kept = match && !(installing(r) && a->n_entries > 0);
    know_match(g, a->term, kept ? a->prev_log_index + a->n_entries : 0);
    if (on(g, GUARD_ACK_CLAMP) && a->leader_commit > g->matched) {
        a->leader_commit = g->matched;
    }
}

static void before_install_snapshot(struct guard *g, const struct raft_install_snapshot *s)
{
    const struct raft *r = g->raft;
    if (s->term < r->current_term) {
        return;
    }
    raft_term term = log_term(&r->log, s->last_index);
    bool covered = r->log.snapshot.last_index >= s->last_index || term == s->last_term;
    bool busy = r->snapshot.put.data != NULL || r->snapshot.pending.term != 0;
    /* With a higher term in that place libraft claims to have the entry, which is not this one. */
    bool installs = !busy && term < s->last_term;
    know_match(g, s->term, covered || installs ? s->last_index : 0);
}

/* The highest index that a majority of the voters, this leader's stored log included, is known to
 * have, were `from` to have `acked`. */
static raft_index quorum_index(const struct raft *r, raft_id from, raft_index acked)
{
    raft_index best = 0;
    const struct raft_server *servers = r->configuration.servers;
    const struct raft_progress *progress = r->leader_state.progress;
    for (unsigned i = 0; i < r->configuration.n; i++) {
        raft_index index = servers[i].id == from && acked > progress[i].match_index
                               ? acked
                               : progress[i].match_index;
        index = index < r->last_stored ? index : r->last_stored;
        if (servers[i].role != RAFT_VOTER || index <= best) {
            continue;
        }
        unsigned have = 0;
        for (unsigned k = 0; k < r->configuration.n; k++) {
            bool more =
                progress[k].match_index >= index || (servers[k].id == from && acked >= index);
            have += servers[k].role == RAFT_VOTER && more ? 1 : 0;
        }
        if (have > voters(r) / 2) {
            best = index;
        }
    }
    return best;
}

/* libraft will try to commit exactly last_stored: shows it the index that may be committed instead,
 * or none. */
static void recv_result_as_leader(struct guard *g, struct raft_message *m)
{
    struct raft *r = g->raft;
    raft_index stored = r->last_stored;
    raft_index shown = quorum_index(r, m->server_id, m->append_entries_result.last_log_index);
    if (shown <= r->commit_index || log_term(&r->log, shown) != r->current_term) {
        shown = r->commit_index < stored ? r->commit_index : stored;
        g->stats.commits_held++;
    }
    r->last_stored = shown;
    g->recv(&g->outer, m);
    if (r->last_stored == shown) {
        r->last_stored = stored;
    }
}

/* L21: whether a vote counts is for the candidate's configuration to say, which may be newer than
 * ours, or older (dissertation, 4.1). libraft's server does not vote when its own calls it no
 * voter. So libraft is shown one that does. L25: libraft's server votes a second time in a term if
 * the candidate is one that it once wanted to hand over to. */
static void recv_request_vote(struct guard *g, struct raft_message *m)
{
    struct raft *r = g->raft;
    struct raft_transfer *transfer = r->transfer;
    struct raft_configuration real = r->configuration;
    struct raft_configuration shown;
    bool show = on(g, GUARD_VOTES) && (self(r) == NULL || self(r)->role != RAFT_VOTER);
    if (show) {
        guard_configuration_copy(&real, &shown);
        if (self(r) == NULL) {
            /* The address is not looked at, and ours may be another's in an old configuration. */
            int rv = raft_configuration_add(&shown, r->id, "-", RAFT_VOTER);
            ASSERT(rv == 0);
        }
        r->configuration = shown;
        self(r)->role = RAFT_VOTER;
    }
    if (on(g, GUARD_VOTES)) {
        r->transfer = NULL;
    }
    g->recv(&g->outer, m);
    r->transfer = transfer;
    if (show) {
        raft_configuration_close(&r->configuration);
        r->configuration = real;
    }
}

/* Whether libraft is to see the message. */
static bool before_recv(struct guard *g, struct raft_message *m)
{
    switch (m->type) {
    case RAFT_IO_APPEND_ENTRIES:
        before_append_entries(g, &m->append_entries);
        return true;
    case RAFT_IO_INSTALL_SNAPSHOT:
        before_install_snapshot(g, &m->install_snapshot);
        return true;
    case RAFT_IO_TIMEOUT_NOW:
        if (on(g, GUARD_NO_CANDIDACY) && (g->writes > 0 || installing(g->raft) ||
                                          sole_voter(&g->raft->configuration, g->raft->id))) {
            g->stats.timeouts_dropped++;
            return false;
        }
        return true;
    default:
        return true;
    }
}

static void guard_recv(struct raft_io *inner, struct raft_message *m)
{
    struct guard *g = guard_of_inner(inner);
    const struct raft *r = g->raft;
    settle_capped(g);
    if (r->state == RAFT_UNAVAILABLE) {
        g->recv(&g->outer, m); /* it frees the message */
        return;
    }
    if (!before_recv(g, m)) {
        return;
    }
    if (m->type == RAFT_IO_APPEND_ENTRIES_RESULT && on(g, GUARD_COMMIT) &&
        r->state == RAFT_LEADER && m->append_entries_result.term == r->current_term &&
        m->append_entries_result.rejected == 0) {
        recv_result_as_leader(g, m);
    } else if (m->type == RAFT_IO_REQUEST_VOTE) {
        recv_request_vote(g, m);
    } else {
        g->recv(&g->outer, m);
    }
    settle(g);
}

/* --- requests out --- */

/* L24: libraft frees the batch that loaded entries share once none of them is in the log, even
 * while one is being sent. With their own bytes they are counted one by one. */
static int unshare(struct raft_entry *entries, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct raft_entry *e = &entries[i];
        void *copy = raft_malloc(e->buf.len + 1); /* never of size 0 */
        if (copy == NULL) {
            return RAFT_NOMEM;
        }
        memcpy(copy, e->buf.base, e->buf.len);
        bool last = i + 1 == n || entries[i + 1].batch != e->batch;
        if (e->batch == NULL) {
            raft_free(e->buf.base);
        } else if (last) {
            raft_free(e->batch);
        }
        e->buf.base = copy;
        e->batch = NULL;
    }
    return 0;
}

static int note_loaded(struct guard *g,
                       const struct raft_snapshot *snapshot,
                       raft_index start,
                       const struct raft_entry *entries,
                       size_t n)
{
    raft_index known = 0;
    if (snapshot != NULL) {
        known = snapshot->configuration_index;
        guard_configs_reset(&g->configs, known, &snapshot->configuration);
    }
    for (size_t i = 0; i < n; i++) {
        if (entries[i].type == RAFT_CHANGE && start + i > known &&
            !guard_configs_add_entry(&g->configs, start + i, &entries[i].buf)) {
            return RAFT_MALFORMED;
        }
    }
    return 0;
}

static int guard_load(struct raft_io *io,
                      raft_term *term,
                      raft_id *voted_for,
                      struct raft_snapshot **snapshot,
                      raft_index *start_index,
                      struct raft_entry *entries[],
                      size_t *n_entries)
{
    struct guard *g = guard_of_outer(io);
    int rv = g->inner->load(g->inner, term, voted_for, snapshot, start_index, entries, n_entries);
    if (rv != 0) {
        memcpy(io->errmsg, g->inner->errmsg, sizeof io->errmsg);
        return rv;
    }
    rv = note_loaded(g, *snapshot, *start_index, *entries, *n_entries);
    if (rv == 0 && on(g, GUARD_SHARED)) {
        rv = unshare(*entries, *n_entries);
    }
    const struct guard_config *last = guard_configs_at(&g->configs, *start_index + *n_entries);
    if (rv == 0 && on(g, GUARD_TERM) && last != NULL &&
        sole_voter(&last->configuration, g->raft->id)) {
        rv = begin_term(g, *term + 1);
        *term += 1;
        *voted_for = g->raft->id;
    }
    return rv;
}

static int
guard_start(struct raft_io *io, unsigned msecs, raft_io_tick_cb tick, raft_io_recv_cb recv)
{
    struct guard *g = guard_of_outer(io);
    g->tick = tick;
    g->recv = recv;
    g->state = RAFT_FOLLOWER;
    int rv = g->inner->start(g->inner, msecs, guard_tick, guard_recv);
    memcpy(io->errmsg, g->inner->errmsg, sizeof io->errmsg);
    return rv;
}

static void note_capped(struct guard *g, raft_id id, raft_index next)
{
    for (unsigned k = 0; k < g->capped_count; k++) {
        if (g->capped[k].id == id) {
            g->capped[k].next = next < g->capped[k].next ? next : g->capped[k].next;
            return;
        }
    }
    if (g->capped_count == g->capped_capacity) {
        g->capped_capacity = g->raft->configuration.n + g->capped_capacity;
        g->capped = mem_realloc(g->capped, g->capped_capacity * sizeof *g->capped);
    }
    g->capped[g->capped_count++] = (struct capped){id, next};
}

/* Shortens the message if it must. The entries stay libraft's: it releases all of them when the
 * send is done. */
static void cap_batch(struct guard *g, struct raft_message *m)
{
    struct raft_append_entries *a = &m->append_entries;
    unsigned n = 0;
    size_t bytes = 0;
    while (n < a->n_entries && n < g->options.batch_entries_max &&
           (n == 0 || bytes + a->entries[n].buf.len <= g->options.batch_bytes_max)) {
        bytes += a->entries[n].buf.len;
        n++;
    }
    if (n == a->n_entries) {
        return;
    }
    a->n_entries = n;
    raft_index last = a->prev_log_index + n;
    /* A follower must not commit, of leftovers, what it was not sent. */
    if (a->leader_commit > last) {
        a->leader_commit = last;
    }
    note_capped(g, m->server_id, last + 1);
    g->stats.batches_capped++;
}

static void clamp_ack(struct guard *g, struct raft_append_entries_result *result)
{
    const struct raft *r = g->raft;
    raft_index limit = g->matched_term == r->current_term ? g->matched : 0;
    limit = limit < r->last_stored ? limit : r->last_stored;
    if (result->last_log_index > limit) {
        result->last_log_index = limit;
        g->stats.acks_clamped++;
    }
}

/* L22: libraft repeats the candidate's own term when it refuses a pre-vote, even to one that is
 * behind, which then asks with its old term for ever. */
static void tell_term(const struct guard *g, struct raft_request_vote_result *result)
{
    if (result->pre_vote == raft_tribool_true && !result->vote_granted &&
        result->term < g->raft->current_term) {
        result->term = g->raft->current_term;
    }
}

static int guard_send(struct raft_io *io,
                      struct raft_io_send *req,
                      const struct raft_message *message,
                      raft_io_send_cb cb)
{
    struct guard *g = guard_of_outer(io);
    struct raft_message m = *message;
    if (m.type == RAFT_IO_APPEND_ENTRIES_RESULT) {
        if (on(g, GUARD_NO_CANDIDACY) && m.server_id == 0) {
            return RAFT_NOCONNECTION;
        }
        if (on(g, GUARD_ACK_CLAMP) && m.append_entries_result.rejected == 0) {
            clamp_ack(g, &m.append_entries_result);
        }
    } else if (m.type == RAFT_IO_APPEND_ENTRIES && on(g, GUARD_BATCH_CAP)) {
        cap_batch(g, &m);
    } else if (m.type == RAFT_IO_REQUEST_VOTE_RESULT && on(g, GUARD_VOTES)) {
        tell_term(g, &m.request_vote_result);
    }
    int rv = g->inner->send(g->inner, req, &m, cb);
    if (rv != 0) {
        memcpy(io->errmsg, g->inner->errmsg, sizeof io->errmsg);
    }
    return rv;
}

static void put_now(struct guard *g, const struct held_put *p);

static void release_held_put(struct guard *g)
{
    if (g->truncate_until == 0 && g->held.req != NULL) {
        struct held_put p = g->held;
        g->held.req = NULL;
        put_now(g, &p);
    }
}

static void append_done(struct raft_io_append *req, int status)
{
    struct guarded_append *a = (struct guarded_append *)(void *)req;
    struct guard *g = a->guard;
    settle_capped(g);
    g->writes--;
    if (status != 0 && status != RAFT_CANCELED) {
        g->stats.appends_failed++;
        if (on(g, GUARD_FAIL_STOP)) {
            fatal(g, "a write to the log failed", status);
        }
    }
    if (g->truncate_until != 0 && a->number >= g->truncate_until) {
        g->truncate_until = 0;
    }
    struct raft_io_append *orig = a->orig;
    raft_io_append_cb cb = a->cb;
    mem_free(a);
    cb(orig, status);
    release_held_put(g);
    settle(g);
}

static void check_batch(struct guard *g, const struct raft_entry entries[], unsigned n)
{
    if (on(g, GUARD_ENTRY_CHECK)) {
        for (unsigned i = 0; i < n; i++) {
            if (entries[i].buf.len % 8 != 0) {
                fatal(g, "a log entry's length is not a multiple of 8", RAFT_INVALID);
            }
        }
    }
    if (on(g, GUARD_BATCH_CAP) && n >= GUARD_BATCH_UNREADABLE) {
        fatal(g, "a batch of log entries could not be read again", RAFT_TOOBIG);
    }
}

static void note_configurations(struct guard *g, const struct raft_entry entries[], unsigned n)
{
    raft_index first = log_last(&g->raft->log) - n + 1;
    for (unsigned i = 0; i < n; i++) {
        if (entries[i].type == RAFT_CHANGE &&
            !guard_configs_add_entry(&g->configs, first + i, &entries[i].buf)) {
            fatal(g, "a configuration in the log is malformed", RAFT_MALFORMED);
        }
    }
}

static int guard_append(struct raft_io *io,
                        struct raft_io_append *req,
                        const struct raft_entry entries[],
                        unsigned n,
                        raft_io_append_cb cb)
{
    struct guard *g = guard_of_outer(io);
    check_batch(g, entries, n);
    note_configurations(g, entries, n);
    struct guarded_append *a = mem_zalloc(sizeof *a);
    a->orig = req;
    a->cb = cb;
    a->guard = g;
    a->number = g->writes_asked + 1;
    req->cb = cb;
    int rv = g->inner->append(g->inner, &a->req, entries, n, append_done);
    if (rv != 0) {
        mem_free(a);
        memcpy(io->errmsg, g->inner->errmsg, sizeof io->errmsg);
        g->stats.appends_failed++;
        if (on(g, GUARD_FAIL_STOP)) {
            fatal(g, "a write to the log was refused", rv);
        }
        return rv;
    }
    g->writes_asked++;
    g->writes++;
    return 0;
}

static int guard_truncate(struct raft_io *io, raft_index index)
{
    struct guard *g = guard_of_outer(io);
    if (on(g, GUARD_TRUNCATE) && g->raft->snapshot.put.data != NULL) {
        fatal(g, "the log is truncated while a snapshot is being written", RAFT_BUSY);
    }
    /* The append that always follows a truncation waits for it in the backend. */
    g->truncate_until = g->writes_asked + 1;
    guard_configs_truncate(&g->configs, index);
    int rv = g->inner->truncate(g->inner, index);
    if (rv != 0) {
        memcpy(io->errmsg, g->inner->errmsg, sizeof io->errmsg);
        if (on(g, GUARD_FAIL_STOP)) {
            fatal(g, "truncating the log failed", rv);
        }
    }
    return rv;
}

/* --- snapshots --- */

static void put_done(struct raft_io_snapshot_put *req, int status)
{
    struct guard *g = (struct guard *)(void *)((char *)req - offsetof(struct guard, put));
    settle_capped(g);
    if (g->put_install && status != 0 && status != RAFT_CANCELED && on(g, GUARD_FAIL_STOP)) {
        fatal(g, "a received snapshot could not be stored", status);
    }
    struct raft_io_snapshot_put *orig = g->put_orig;
    g->put_orig = NULL;
    g->put_cb(orig, status);
    if (g->put_install && status == 0) {
        guard_configs_reset(&g->configs, g->raft->configuration_index, &g->raft->configuration);
    }
    settle(g);
}

static void put_now(struct guard *g, const struct held_put *p)
{
    int rv = g->inner->snapshot_put(g->inner, p->trailing, &g->put, p->snapshot, put_done);
    if (rv != 0) {
        put_done(&g->put, rv);
    }
}

/* L10: libraft puts the configuration in force into a snapshot of its own, committed or not. */
static void correct_snapshot(struct guard *g)
{
    struct raft_snapshot *s = &g->raft->snapshot.pending;
    const struct guard_config *want = guard_configs_at(&g->configs, s->index);
    if (!on(g, GUARD_CONFIG) || want == NULL) {
        return;
    }
    s->configuration_index = want->index;
    if (!guard_configuration_equal(&s->configuration, &want->configuration)) {
        raft_configuration_close(&s->configuration);
        guard_configuration_copy(&want->configuration, &s->configuration);
        g->stats.configurations_corrected++;
    }
}

static int guard_snapshot_put(struct raft_io *io,
                              unsigned trailing,
                              struct raft_io_snapshot_put *req,
                              const struct raft_snapshot *snapshot,
                              raft_io_snapshot_put_cb cb)
{
    struct guard *g = guard_of_outer(io);
    ASSERT(g->put_orig == NULL); /* libraft has one at a time */
    struct held_put p = {trailing, req, snapshot};
    req->cb = cb;
    g->put_orig = req;
    g->put_cb = cb;
    g->put_install = g->raft->snapshot.pending.term == 0;
    if (!g->put_install) {
        correct_snapshot(g);
    }
    if (on(g, GUARD_TRUNCATE) && g->truncate_until != 0) {
        g->held = p;
        g->stats.snapshots_held++;
        return 0;
    }
    int rv = g->inner->snapshot_put(g->inner, trailing, &g->put, snapshot, put_done);
    if (rv != 0) {
        g->put_orig = NULL;
        memcpy(io->errmsg, g->inner->errmsg, sizeof io->errmsg);
        if (g->put_install && on(g, GUARD_FAIL_STOP)) {
            fatal(g, "a received snapshot could not be stored", rv);
        }
    }
    return rv;
}

/* --- life --- */

static void inner_closed(struct raft_io *inner)
{
    struct guard *g = guard_of_inner(inner);
    g->closed(&g->outer);
}

static void guard_close(struct raft_io *io, raft_io_close_cb cb)
{
    struct guard *g = guard_of_outer(io);
    g->closed = cb;
    g->inner->close(g->inner, inner_closed);
}

void guard_options_default(struct guard_options *ret_options)
{
    *ret_options = (struct guard_options){
        .measures = GUARD_ALL,
        .batch_entries_max = GUARD_BATCH_ENTRIES_MAX,
        .batch_bytes_max = GUARD_BATCH_BYTES_MAX,
    };
}

struct guard *guard_install(struct raft *r, struct raft_io *io, const struct guard_options *options)
{
    ASSERT(r->io == io && io->data == r);
    ASSERT(r->state == RAFT_UNAVAILABLE);
    ASSERT(options->fatal != NULL);
    ASSERT(options->batch_entries_max > 0);
    struct guard *g = mem_zalloc(sizeof *g);
    g->inner = io;
    g->raft = r;
    g->options = *options;
    g->state = RAFT_UNAVAILABLE;
    g->outer = *io;
    g->outer.load = guard_load;
    g->outer.start = guard_start;
    g->outer.close = guard_close;
    g->outer.send = guard_send;
    g->outer.append = guard_append;
    g->outer.truncate = guard_truncate;
    g->outer.snapshot_put = guard_snapshot_put;
    io->data = g;
    r->io = &g->outer;
    return g;
}

void guard_free(struct guard *g)
{
    if (g != NULL) {
        guard_configs_close(&g->configs);
        mem_free(g->capped);
        mem_free(g);
    }
}

const struct guard_stats *guard_stats(const struct guard *g)
{
    return &g->stats;
}

bool guard_recently_truncated(const struct guard *g)
{
    return g->truncate_until != 0;
}

unsigned guard_writes_in_flight(const struct guard *g)
{
    return g->writes;
}
