/* SPDX-License-Identifier: Apache-2.0 */
/* Messages on their way into libraft. */
#include "base/mem.h"
#include "raft/guard_internal.h"

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
        raft_term term = guard_log_term(&r->log, a->prev_log_index + 1 + j);
        if (term == 0) {
            return false;
        }
        if (term != a->entries[j].term) {
            return true;
        }
    }
    return false;
}

/* Truncating overlaps with nothing that is being written. */
static bool must_wait(const struct guard *g)
{
    return g->writes > 0 || g->raft->snapshot.put.data != NULL;
}

static void before_append_entries(struct guard *g, struct raft_append_entries *a)
{
    struct raft *r = g->raft;
    if (a->term < r->current_term) {
        return; /* libraft rejects it */
    }
    if (guard_on(g, GUARD_TRIM) && !guard_installing(r)) {
        trim(g, a);
    }
    bool match = guard_prev_matches(r, a);
    bool cuts = match && truncates(r, a);
    if (cuts && guard_on(g, GUARD_TRUNCATE) && must_wait(g)) {
        take_entries_off(a);
        g->stats.entries_deferred++;
    } else if (cuts && guard_on(g, GUARD_CONFIG)) {
        /* Keeps libraft from rolling back, which looks for an entry that may be gone; settling does
         * it. */
        r->configuration_uncommitted_index = 0;
    }
    /* While a snapshot is being installed libraft drops what carries entries. */
    bool kept = match && !(guard_installing(r) && a->n_entries > 0);
    know_match(g, a->term, kept ? a->prev_log_index + a->n_entries : 0);
    if (guard_on(g, GUARD_ACK_CLAMP) && a->leader_commit > g->matched) {
        a->leader_commit = g->matched;
    }
}

static void before_install_snapshot(struct guard *g, const struct raft_install_snapshot *s)
{
    const struct raft *r = g->raft;
    if (s->term < r->current_term) {
        return;
    }
    raft_term term = guard_log_term(&r->log, s->last_index);
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
        if (have > guard_voters(r) / 2) {
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
    if (shown <= r->commit_index || guard_log_term(&r->log, shown) != r->current_term) {
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
    bool show =
        guard_on(g, GUARD_VOTES) && (guard_self(r) == NULL || guard_self(r)->role != RAFT_VOTER);
    if (show) {
        guard_configuration_copy(&real, &shown);
        if (guard_self(r) == NULL) {
            /* The address is not looked at, and ours may be another's in an old configuration. */
            int rv = raft_configuration_add(&shown, r->id, "-", RAFT_VOTER);
            ASSERT(rv == 0);
        }
        r->configuration = shown;
        guard_self(r)->role = RAFT_VOTER;
    }
    if (guard_on(g, GUARD_ONE_VOTE)) {
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
        if (guard_park(g, m)) {
            return false;
        }
        before_install_snapshot(g, &m->install_snapshot);
        return true;
    case RAFT_IO_TIMEOUT_NOW:
        if (guard_on(g, GUARD_NO_CANDIDACY) &&
            (g->writes > 0 || guard_installing(g->raft) ||
             guard_sole_voter(&g->raft->configuration, g->raft->id))) {
            g->stats.timeouts_dropped++;
            return false;
        }
        return true;
    default:
        return true;
    }
}

static void recv_parked(struct guard *g)
{
    struct raft_message m;
    char *address;
    if (guard_unpark(g, &m, &address)) {
        if (g->raft->state != RAFT_UNAVAILABLE) {
            before_install_snapshot(g, &m.install_snapshot);
        }
        g->recv(&g->outer, &m);
        mem_free(address);
        guard_settle(g);
    }
}

void guard_recv(struct raft_io *inner, struct raft_message *m)
{
    struct guard *g = guard_of_inner(inner);
    const struct raft *r = g->raft;
    guard_settle_capped(g);
    recv_parked(g);
    if (r->state == RAFT_UNAVAILABLE) {
        g->recv(&g->outer, m); /* it frees the message */
        return;
    }
    if (!before_recv(g, m)) {
        return;
    }
    if (m->type == RAFT_IO_APPEND_ENTRIES_RESULT && guard_on(g, GUARD_COMMIT) &&
        r->state == RAFT_LEADER && m->append_entries_result.term == r->current_term &&
        m->append_entries_result.rejected == 0) {
        recv_result_as_leader(g, m);
    } else if (m->type == RAFT_IO_REQUEST_VOTE) {
        recv_request_vote(g, m);
    } else {
        g->recv(&g->outer, m);
    }
    guard_settle(g);
}
