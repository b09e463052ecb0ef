/* SPDX-License-Identifier: Apache-2.0 */
/* What libraft asks of its backend, and what comes back of it. */
#include "base/mem.h"
#include "raft/guard_internal.h"

struct guarded_append {
    struct raft_io_append req;
    struct raft_io_append *orig;
    raft_io_append_cb cb;
    struct guard *guard;
    uint64_t number;
};

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
    g->capped[g->capped_count++] = (struct guard_capped){id, next};
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

int guard_send(struct raft_io *io,
               struct raft_io_send *req,
               const struct raft_message *message,
               raft_io_send_cb cb)
{
    struct guard *g = guard_of_outer(io);
    struct raft_message m = *message;
    if (m.type == RAFT_IO_APPEND_ENTRIES_RESULT) {
        if (guard_on(g, GUARD_NO_CANDIDACY) && m.server_id == 0) {
            return RAFT_NOCONNECTION;
        }
        if (guard_on(g, GUARD_ACK_CLAMP) && m.append_entries_result.rejected == 0) {
            clamp_ack(g, &m.append_entries_result);
        }
    } else if (m.type == RAFT_IO_APPEND_ENTRIES) {
        if (guard_on(g, GUARD_BATCH_CAP)) {
            cap_batch(g, &m);
        }
        guard_note_told(g, m.server_id, m.append_entries.leader_commit);
    } else if (m.type == RAFT_IO_REQUEST_VOTE_RESULT && guard_on(g, GUARD_VOTES)) {
        tell_term(g, &m.request_vote_result);
    }
    int rv = g->inner->send(g->inner, req, &m, cb);
    if (rv != 0) {
        memcpy(io->errmsg, g->inner->errmsg, sizeof io->errmsg);
    }
    return rv;
}

static void put_now(struct guard *g, const struct guard_held_put *p);

static void release_held_put(struct guard *g)
{
    if (g->truncate_until == 0 && g->held.req != NULL) {
        struct guard_held_put p = g->held;
        g->held.req = NULL;
        put_now(g, &p);
    }
}

static void append_done(struct raft_io_append *req, int status)
{
    struct guarded_append *a = (struct guarded_append *)(void *)req;
    struct guard *g = a->guard;
    guard_settle_capped(g);
    g->writes--;
    if (status != 0 && status != RAFT_CANCELED) {
        g->stats.appends_failed++;
        if (guard_on(g, GUARD_FAIL_STOP)) {
            guard_fatal(g, "a write to the log failed", status);
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
    guard_settle(g);
}

static void check_batch(struct guard *g, const struct raft_entry entries[], unsigned n)
{
    if (guard_on(g, GUARD_ENTRY_CHECK)) {
        for (unsigned i = 0; i < n; i++) {
            if (entries[i].buf.len % 8 != 0) {
                guard_fatal(g, "a log entry's length is not a multiple of 8", RAFT_INVALID);
            }
        }
    }
    if (guard_on(g, GUARD_BATCH_CAP) && n >= GUARD_BATCH_UNREADABLE) {
        guard_fatal(g, "a batch of log entries could not be read again", RAFT_TOOBIG);
    }
}

static void note_configurations(struct guard *g, const struct raft_entry entries[], unsigned n)
{
    raft_index first = guard_log_last(&g->raft->log) - n + 1;
    for (unsigned i = 0; i < n; i++) {
        if (entries[i].type == RAFT_CHANGE &&
            !guard_configs_add_entry(&g->configs, first + i, &entries[i].buf)) {
            guard_fatal(g, "a configuration in the log is malformed", RAFT_MALFORMED);
        }
    }
}

int guard_append(struct raft_io *io,
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
        if (guard_on(g, GUARD_FAIL_STOP)) {
            guard_fatal(g, "a write to the log was refused", rv);
        }
        return rv;
    }
    g->writes_asked++;
    g->writes++;
    return 0;
}

int guard_truncate(struct raft_io *io, raft_index index)
{
    struct guard *g = guard_of_outer(io);
    if (guard_on(g, GUARD_TRUNCATE) && g->raft->snapshot.put.data != NULL) {
        guard_fatal(g, "the log is truncated while a snapshot is being written", RAFT_BUSY);
    }
    /* The append that always follows a truncation waits for it in the backend. */
    g->truncate_until = g->writes_asked + 1;
    guard_configs_truncate(&g->configs, index);
    int rv = g->inner->truncate(g->inner, index);
    if (rv != 0) {
        memcpy(io->errmsg, g->inner->errmsg, sizeof io->errmsg);
        if (guard_on(g, GUARD_FAIL_STOP)) {
            guard_fatal(g, "truncating the log failed", rv);
        }
    }
    return rv;
}

/* --- snapshots --- */

static void put_done(struct raft_io_snapshot_put *req, int status)
{
    struct guard *g = (struct guard *)(void *)((char *)req - offsetof(struct guard, put));
    guard_settle_capped(g);
    if (g->put_install && status != 0 && status != RAFT_CANCELED && guard_on(g, GUARD_FAIL_STOP)) {
        guard_fatal(g, "a received snapshot could not be stored", status);
    }
    struct raft_io_snapshot_put *orig = g->put_orig;
    g->put_orig = NULL;
    g->put_cb(orig, status);
    if (g->put_install && status == 0) {
        guard_configs_reset(&g->configs, g->raft->configuration_index, &g->raft->configuration);
    }
    guard_settle(g);
}

static void put_now(struct guard *g, const struct guard_held_put *p)
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
    if (!guard_on(g, GUARD_CONFIG) || want == NULL) {
        return;
    }
    s->configuration_index = want->index;
    if (!guard_configuration_equal(&s->configuration, &want->configuration)) {
        raft_configuration_close(&s->configuration);
        guard_configuration_copy(&want->configuration, &s->configuration);
        g->stats.configurations_corrected++;
    }
}

int guard_snapshot_put(struct raft_io *io,
                       unsigned trailing,
                       struct raft_io_snapshot_put *req,
                       const struct raft_snapshot *snapshot,
                       raft_io_snapshot_put_cb cb)
{
    struct guard *g = guard_of_outer(io);
    ASSERT(g->put_orig == NULL); /* libraft has one at a time */
    struct guard_held_put p = {trailing, req, snapshot};
    req->cb = cb;
    g->put_orig = req;
    g->put_cb = cb;
    g->put_install = g->raft->snapshot.pending.term == 0;
    if (!g->put_install) {
        correct_snapshot(g);
    }
    if (guard_on(g, GUARD_TRUNCATE) && g->truncate_until != 0) {
        g->held = p;
        g->stats.snapshots_held++;
        return 0;
    }
    int rv = g->inner->snapshot_put(g->inner, trailing, &g->put, snapshot, put_done);
    if (rv != 0) {
        g->put_orig = NULL;
        memcpy(io->errmsg, g->inner->errmsg, sizeof io->errmsg);
        if (g->put_install && guard_on(g, GUARD_FAIL_STOP)) {
            guard_fatal(g, "a received snapshot could not be stored", rv);
        }
    }
    return rv;
}
