/* SPDX-License-Identifier: Apache-2.0 */
/* Handing leadership over, on request and before the process ends. */
#include "raft/internal.h"

#include "base/mem.h"

static void on_transferred(struct raft_transfer *request)
{
    struct transfer *t = request->data;
    t->told = true;
}

static void finish(struct transfer *t, enum err_code status)
{
    replica_member_cb cb = t->cb;
    t->busy = false;
    cb(t->arg, status);
}

static uint64_t most_caught_up(const struct replica *r)
{
    uint64_t best = 0, best_match = 0;
    for (unsigned i = 0; i < r->raft.configuration.n; i++) {
        const struct raft_server *s = &r->raft.configuration.servers[i];
        uint64_t match = replica_match(r, s->id);
        if (s->role == RAFT_VOTER && s->id != r->identity.is.id && members_connected(r, s->id) &&
            match > best_match) {
            best = s->id;
            best_match = match;
        }
    }
    return best;
}

/* Picks and checks the target, in a turn. */
static void begin(struct replica *r)
{
    struct transfer *t = &r->transfer;
    uint64_t id = t->target != 0 ? t->target : most_caught_up(r);
    const struct raft_server *s = id != 0 ? replica_server(r, id) : NULL;
    if (id == r->identity.is.id) {
        finish(t, ERR_OK);
    } else if (id != 0 && s == NULL) {
        finish(t, ERR_SERVER_NOT_FOUND);
    } else if (id != 0 && s->role != RAFT_VOTER) {
        finish(t, ERR_NOT_A_VOTER);
    } else if (id == 0 || !members_connected(r, id)) {
        finish(t, ERR_QUORUM_AT_RISK);
    } else {
        t->target = id;
        t->asked = false;
        t->deadline_ms = uv_now(r->loop) + 2 * r->options.election_ms;
    }
}

/* The target must not be in the middle of a write when it is told, or it ignores that. Nothing is
 * proposed meanwhile. */
static bool target_is_idle(const struct replica *r)
{
    return !r->confirm.in_flight && propose_idle(r) &&
           replica_match(r, r->transfer.target) ==
               raft_last_index((struct raft *)(uintptr_t)&r->raft);
}

static void lead_out(struct replica *r)
{
    struct transfer *t = &r->transfer;
    if (t->asked && t->told) {
        t->asked = false; /* it did not take over in time: once more, if there is time */
    }
    if (uv_now(r->loop) >= t->deadline_ms && !t->asked) {
        finish(t, ERR_OUTCOME_UNKNOWN);
    } else if (!t->asked && target_is_idle(r)) {
        t->told = false;
        t->request.data = t;
        t->asked = raft_transfer(&r->raft, &t->request, t->target, on_transferred) == 0;
    }
}

void transfer_turn(struct replica *r)
{
    struct transfer *t = &r->transfer;
    raft_id leader = 0;
    const char *address;
    if (!t->busy) {
        return;
    }
    if (t->deadline_ms == 0) {
        if (replica_leads(r)) {
            begin(r);
        } else {
            finish(t, ERR_NOT_LEADER);
        }
        return;
    }
    if (r->raft.state == RAFT_LEADER) {
        lead_out(r);
        return;
    }
    raft_leader(&r->raft, &leader, &address);
    if (leader == t->target) {
        finish(t, ERR_OK);
    } else if (leader != 0 || uv_now(r->loop) >= t->deadline_ms + r->options.election_ms) {
        finish(t, ERR_OUTCOME_UNKNOWN); /* the target may yet act on what it was told */
    }
}

void replica_transfer(struct replica *r, uint64_t id, replica_member_cb cb, void *arg)
{
    struct transfer *t = &r->transfer;
    if (t->busy || r->change.step != STEP_IDLE || !replica_leads(r)) {
        replica_refuse(r, cb, arg, replica_leads(r) ? ERR_MEMBERSHIP_BUSY : ERR_NOT_LEADER);
        return;
    }
    t->busy = true;
    t->target = id;
    t->deadline_ms = 0; /* begins in the next turn */
    t->cb = cb;
    t->arg = arg;
}

struct retirement {
    void (*done)(void *arg);
    void *arg;
};

static void on_retired(void *arg, enum err_code status)
{
    struct retirement *retirement = arg;
    (void)status; /* the caller ends the process either way */
    retirement->done(retirement->arg);
    mem_free(retirement);
}

void replica_retire(struct replica *r, void (*done)(void *arg), void *arg)
{
    struct retirement *retirement = mem_alloc(sizeof *retirement);
    *retirement = (struct retirement){done, arg};
    if (replica_leads(r) && !r->transfer.busy) {
        replica_transfer(r, 0, on_retired, retirement);
    } else {
        replica_refuse(r, on_retired, retirement, ERR_NOT_LEADER);
    }
}
