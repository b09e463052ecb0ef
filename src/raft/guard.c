/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "raft/guard_internal.h"

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

void guard_settle_capped(struct guard *g)
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
    if (r->state != RAFT_LEADER || !guard_on(g, GUARD_PROGRESS)) {
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
    if (r->state != RAFT_FOLLOWER || !guard_on(g, GUARD_CONFIG) || guard_installing(r)) {
        return;
    }
    const struct guard_config *want = guard_configs_at(&g->configs, guard_log_last(&r->log));
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

void guard_settle(struct guard *g)
{
    struct raft *r = g->raft;
    guard_settle_capped(g);
    settle_progress(g);
    guard_tell(g);
    settle_configuration(g);
    int state = r->state;
    if (state == g->state) {
        return;
    }
    int old = g->state;
    g->state = state;
    if (state == RAFT_LEADER && guard_on(g, GUARD_BARRIER) && guard_voters(r) > 1) {
        struct raft_barrier *req = mem_zalloc(sizeof *req);
        if (raft_barrier(r, req, barrier_done) != 0) {
            mem_free(req);
        } else {
            g->stats.barriers++;
        }
        guard_settle_capped(g);
    }
    if (g->options.on_state != NULL) {
        g->options.on_state(g->options.ctx, r, old, state);
    }
}

/* L21: libraft's follower forgets its leader only by becoming a candidate, so one without a vote
 * never does, and then refuses to vote for anybody. */
static void forget_leader(struct guard *g)
{
    struct raft *r = g->raft;
    const struct raft_server *me = guard_self(r);
    raft_time silence = g->inner->time(g->inner) - r->election_timer_start;
    if (!guard_on(g, GUARD_VOTES) || r->state != RAFT_FOLLOWER ||
        r->follower_state.current_leader.id == 0 || (me != NULL && me->role == RAFT_VOTER) ||
        silence < r->follower_state.randomized_election_timeout) {
        return;
    }
    raft_free(r->follower_state.current_leader.address);
    r->follower_state.current_leader.address = NULL;
    r->follower_state.current_leader.id = 0;
    g->stats.leaders_forgotten++;
}

/* L23: the only voter elects itself without a new term, so that after a crash it may put other
 * entries, of the same term, in the places of those that it lost and that an observer has. */
int guard_begin_term(struct guard *g, raft_term term)
{
    int rv = g->inner->set_term(g->inner, term);
    return rv != 0 ? rv : g->inner->set_vote(g->inner, g->raft->id);
}

static void before_self_election(struct guard *g)
{
    struct raft *r = g->raft;
    if (!guard_on(g, GUARD_TERM) || r->state != RAFT_FOLLOWER ||
        !guard_sole_voter(&r->configuration, r->id) ||
        g->inner->time(g->inner) - r->election_timer_start <
            r->follower_state.randomized_election_timeout) {
        return;
    }
    int rv = guard_begin_term(g, r->current_term + 1);
    if (rv != 0) {
        guard_fatal(g, "a new term could not be stored", rv);
    }
    r->current_term++;
    r->voted_for = r->id;
}

static void guard_tick(struct raft_io *inner)
{
    struct guard *g = guard_of_inner(inner);
    struct raft *r = g->raft;
    guard_settle_capped(g);
    if (guard_on(g, GUARD_NO_CANDIDACY) && r->state == RAFT_FOLLOWER &&
        (g->writes > 0 || guard_installing(r))) {
        r->election_timer_start = inner->time(inner);
        g->stats.ticks_held++;
    }
    forget_leader(g);
    before_self_election(g);
    g->tick(&g->outer);
    guard_settle(g);
}

/* --- start --- */

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
    if (rv == 0 && guard_on(g, GUARD_SHARED)) {
        rv = unshare(*entries, *n_entries);
    }
    const struct guard_config *last = guard_configs_at(&g->configs, *start_index + *n_entries);
    if (rv == 0 && guard_on(g, GUARD_TERM) && last != NULL &&
        guard_sole_voter(&last->configuration, g->raft->id)) {
        rv = guard_begin_term(g, *term + 1);
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
        .measures = GUARD_ALL | GUARD_TELL | GUARD_PARK,
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
        guard_park_drop(g);
        guard_configs_close(&g->configs);
        mem_free(g->capped);
        mem_free(g->told);
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
