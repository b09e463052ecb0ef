/* SPDX-License-Identifier: Apache-2.0 */
/* Followers apply what the leader has said is committed. libraft says it with entries and
 * heartbeats only: a follower of a cluster at rest is late by up to one heartbeat, and so is
 * whoever waits for a change there. */
#include "base/mem.h"
#include "raft/guard_internal.h"

static bool is_server(const struct raft *r, raft_id id)
{
    for (unsigned i = 0; i < r->configuration.n; i++) {
        if (r->configuration.servers[i].id == id) {
            return true;
        }
    }
    return false;
}

static struct guard_told *find_told(struct guard *g, raft_id id)
{
    for (unsigned k = 0; k < g->told_count; k++) {
        if (g->told[k].id == id) {
            return &g->told[k];
        }
    }
    return NULL;
}

/* Room is taken by servers that are, so it is as much as a configuration has at the most. */
static void forget_removed(struct guard *g)
{
    unsigned kept = 0;
    for (unsigned k = 0; k < g->told_count; k++) {
        if (is_server(g->raft, g->told[k].id)) {
            g->told[kept++] = g->told[k];
        }
    }
    g->told_count = kept;
}

void guard_note_told(struct guard *g, raft_id id, raft_index commit)
{
    struct guard_told *t = find_told(g, id);
    if (t != NULL) {
        t->commit = commit;
        return;
    }
    forget_removed(g);
    if (g->told_count == g->told_capacity) {
        g->told_capacity += g->raft->configuration.n;
        g->told = mem_realloc(g->told, g->told_capacity * sizeof *g->told);
    }
    g->told[g->told_count++] = (struct guard_told){id, commit};
}

void guard_tell(struct guard *g)
{
    struct raft *r = g->raft;
    bool due = false;
    if (!guard_on(g, GUARD_TELL) || r->state != RAFT_LEADER ||
        r->commit_index < guard_log_last(&r->log)) {
        return; /* what is under way will tell it */
    }
    for (unsigned i = 0; i < r->configuration.n; i++) {
        struct raft_progress *p = &r->leader_state.progress[i];
        raft_id id = r->configuration.servers[i].id;
        const struct guard_told *t = find_told(g, id);
        if (id != r->id && p->state == PROGRESS_PIPELINE && p->match_index >= r->commit_index &&
            (t == NULL || t->commit < r->commit_index)) {
            guard_note_told(g, id, r->commit_index); /* once, whatever becomes of the message */
            p->last_send = 0;                        /* so that a heartbeat is due */
            g->stats.commits_told++;
            due = true;
        }
    }
    if (due) {
        g->tick(&g->outer); /* all that it does goes by the clock: it sends these heartbeats */
        guard_settle_capped(g);
    }
}
