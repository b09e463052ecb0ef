/* SPDX-License-Identifier: Apache-2.0 */
/* Membership: one change at a time, each a walk through enum change_step, with a barrier before
 * (the configuration that is there is committed, by this leader) and after. libraft rolls a change
 * back badly (canonical #250, #323), so none is begun without a healthy majority of the voters
 * before and after it. */
#include "raft/internal.h"

#include "base/assert.h"
#include "base/mem.h"

#include <string.h>

const struct raft_server *replica_server(const struct replica *r, uint64_t id)
{
    for (unsigned i = 0; i < r->raft.configuration.n; i++) {
        if (r->raft.configuration.servers[i].id == id) {
            return &r->raft.configuration.servers[i];
        }
    }
    return NULL;
}

uint64_t replica_match(const struct replica *r, uint64_t id)
{
    if (r->raft.state == RAFT_LEADER && r->raft.leader_state.progress != NULL) {
        for (unsigned i = 0; i < r->raft.configuration.n; i++) {
            if (r->raft.configuration.servers[i].id == id) {
                return r->raft.leader_state.progress[i].match_index;
            }
        }
    }
    return 0;
}

bool members_connected(const struct replica *r, uint64_t id)
{
    uint64_t heard = watch_heard_ms(r, id);
    return id == r->identity.is.id ||
           (heard != 0 && uv_now(r->loop) - heard < 2 * r->options.election_ms);
}

static unsigned count_voters(const struct replica *r)
{
    unsigned count = 0;
    for (unsigned i = 0; i < r->raft.configuration.n; i++) {
        count += r->raft.configuration.servers[i].role == RAFT_VOTER;
    }
    return count;
}

unsigned members_healthy_voters(const struct replica *r, uint64_t but)
{
    unsigned count = 0;
    for (unsigned i = 0; i < r->raft.configuration.n; i++) {
        const struct raft_server *s = &r->raft.configuration.servers[i];
        count += s->role == RAFT_VOTER && s->id != but && members_connected(r, s->id);
    }
    return count;
}

static bool is_majority(unsigned healthy, unsigned voters)
{
    return voters > 0 && healthy > voters / 2;
}

/* --- what may be begun --- */

static enum err_code check_add(const struct replica *r, const struct replica_peer *peer)
{
    for (unsigned i = 0; i < r->raft.configuration.n; i++) {
        const struct raft_server *s = &r->raft.configuration.servers[i];
        bool same_address = strcmp(s->address, peer->raft_address) == 0;
        if (s->id == peer->id && same_address && s->role == RAFT_SPARE) {
            return ERR_OK; /* an addition that was cut short: it is finished */
        }
        if (s->id == peer->id || same_address) {
            return ERR_SERVER_EXISTS;
        }
    }
    return r->raft.configuration.n < REPLICA_SERVERS_MAX ? ERR_OK : ERR_LIMIT_EXCEEDED;
}

static enum err_code check_change(const struct replica *r, const struct change *c)
{
    unsigned voters = count_voters(r), healthy = members_healthy_voters(r, 0);
    if (!is_majority(healthy, voters)) {
        return ERR_QUORUM_AT_RISK;
    }
    if (c->verb == CHANGE_ADD) {
        return check_add(r, &c->peer);
    }
    const struct raft_server *s = replica_server(r, c->peer.id);
    if (s == NULL || (s->role == RAFT_SPARE && c->verb == CHANGE_PROMOTE)) {
        return ERR_SERVER_NOT_FOUND; /* a spare's addition was cut short: it has to be added again
                                      */
    }
    bool loses_vote = c->verb != CHANGE_PROMOTE && s->role == RAFT_VOTER;
    if (loses_vote && !is_majority(members_healthy_voters(r, s->id), voters - 1)) {
        return ERR_QUORUM_AT_RISK;
    }
    return ERR_OK;
}

/* --- the walk --- */

static void finish(struct replica *r, enum err_code status)
{
    struct change *c = &r->change;
    replica_member_cb cb = c->cb;
    c->cb = NULL;
    if (!c->waiting) {
        c->step = STEP_IDLE;
    }
    if (cb != NULL) {
        cb(c->arg, status);
    }
}

static void on_changed(struct raft_change *request, int status)
{
    struct change *c = request->data;
    c->status = status;
    c->waiting = false;
}

static void on_barrier(struct raft_barrier *request, int status)
{
    struct change *c = request->data;
    c->status = status;
    c->waiting = false;
}

/* What libraft's refusal to begin means. */
static enum err_code refusal_of(int rv)
{
    switch (rv) {
    case RAFT_NOTLEADER:
        return ERR_NOT_LEADER;
    case RAFT_CANTCHANGE:
        return ERR_MEMBERSHIP_BUSY;
    case RAFT_DUPLICATEID:
    case RAFT_DUPLICATEADDRESS:
        return ERR_SERVER_EXISTS;
    case RAFT_NOTFOUND:
    case RAFT_BADID:
        return ERR_SERVER_NOT_FOUND;
    case RAFT_BADROLE:
        return ERR_OK; /* it has that role */
    default:
        return ERR_OUTCOME_UNKNOWN;
    }
}

/* libraft was asked (`rv` is what it returned) and calls back; or the change ends here. */
static void go_to(struct replica *r, enum change_step step, int rv)
{
    struct change *c = &r->change;
    c->waiting = rv == 0;
    c->step = step;
    if (rv != 0) {
        finish(r, refusal_of(rv));
    }
}

static int assign(struct replica *r, int role)
{
    struct change *c = &r->change;
    c->request.data = c;
    return raft_assign(&r->raft, &c->request, c->peer.id, role, on_changed);
}

static void send_barrier(struct replica *r, enum change_step step)
{
    struct change *c = &r->change;
    c->barrier.data = c;
    go_to(r, step, raft_barrier(&r->raft, &c->barrier, on_barrier));
}

static void begin(struct replica *r)
{
    struct change *c = &r->change;
    const struct raft_server *s = replica_server(r, c->peer.id);
    enum err_code refusal = check_change(r, c);
    if (refusal != ERR_OK) {
        finish(r, refusal);
        return;
    }
    c->request.data = c;
    switch (c->verb) {
    case CHANGE_ADD:
        if (s != NULL) {
            go_to(r, STEP_CHANGING, assign(r, RAFT_STANDBY));
        } else {
            go_to(r, STEP_ADDED,
                  raft_add(&r->raft, &c->request, c->peer.id, c->peer.raft_address, on_changed));
        }
        break;
    case CHANGE_PROMOTE:
        c->step = s->role == RAFT_VOTER ? STEP_BARRIER_AFTER : STEP_CATCHING_UP;
        c->status = 0;
        break;
    case CHANGE_DEMOTE:
        go_to(r, STEP_CHANGING, assign(r, RAFT_STANDBY));
        break;
    case CHANGE_REMOVE:
        go_to(r, STEP_CHANGING, raft_remove(&r->raft, &c->request, c->peer.id, on_changed));
        break;
    default:
        UNREACHABLE();
    }
}

static void catch_up(struct replica *r)
{
    struct change *c = &r->change;
    uint64_t last = raft_last_index(&r->raft);
    if (replica_server(r, c->peer.id) == NULL) {
        finish(r, ERR_SERVER_NOT_FOUND);
    } else if (members_connected(r, c->peer.id) &&
               replica_match(r, c->peer.id) + PROMOTE_CLOSE >= last) {
        enum err_code refusal = check_change(r, c);
        if (refusal != ERR_OK) {
            finish(r, refusal);
            return;
        }
        go_to(r, STEP_CHANGING, assign(r, RAFT_VOTER));
    }
}

/* The configuration entry is committed, or won't be by this leader. */
static void changed(struct replica *r)
{
    struct change *c = &r->change;
    if (c->status == 0 && c->verb == CHANGE_REMOVE) {
        transport_cut(r->transport, c->peer.id);
    }
    if (c->status == 0 && replica_leads(r)) {
        send_barrier(r, STEP_BARRIER_AFTER);
    } else if (c->status == 0) {
        finish(r, ERR_OK); /* it was this server that went: the next leader's own barrier follows */
    } else {
        finish(r, c->status == RAFT_NOCONNECTION ? ERR_QUORUM_AT_RISK : ERR_OUTCOME_UNKNOWN);
    }
}

static void walk(struct replica *r)
{
    struct change *c = &r->change;
    switch (c->step) {
    case STEP_ASKED:
        send_barrier(r, STEP_BARRIER_BEFORE);
        break;
    case STEP_BARRIER_BEFORE:
        if (c->status != 0 || !replica_leads(r)) {
            finish(r, ERR_NOT_LEADER);
        } else {
            begin(r);
        }
        break;
    case STEP_ADDED:
        if (c->status != 0 || !replica_leads(r)) {
            finish(r, ERR_OUTCOME_UNKNOWN);
        } else {
            go_to(r, STEP_CHANGING, assign(r, RAFT_STANDBY));
        }
        break;
    case STEP_CATCHING_UP:
        if (!replica_leads(r) || r->led_term != c->term) {
            finish(r, ERR_NOT_LEADER);
        } else {
            catch_up(r);
        }
        break;
    case STEP_CHANGING:
        changed(r);
        break;
    case STEP_BARRIER_AFTER:
        finish(r, ERR_OK); /* the change itself is committed, whatever came of the barrier */
        break;
    case STEP_IDLE:
    default:
        UNREACHABLE();
    }
}

void members_turn(struct replica *r)
{
    struct change *c = &r->change;
    if (c->step == STEP_IDLE) {
        return;
    }
    if (!c->waiting) {
        walk(r);
    }
    if (c->step != STEP_IDLE && c->cb != NULL && uv_now(r->loop) >= c->deadline_ms) {
        finish(r, c->step == STEP_CATCHING_UP ? ERR_QUORUM_AT_RISK : ERR_OUTCOME_UNKNOWN);
    }
}

/* --- asking --- */

struct refused {
    replica_member_cb cb;
    void *arg;
    enum err_code status;
};

static void tell_refused(void *arg)
{
    struct refused *refused = arg;
    refused->cb(refused->arg, refused->status);
    mem_free(refused);
}

void replica_refuse(struct replica *r, replica_member_cb cb, void *arg, enum err_code status)
{
    struct refused *refused = mem_alloc(sizeof *refused);
    *refused = (struct refused){cb, arg, status};
    replica_post(r, tell_refused, refused);
}

static void ask(struct replica *r,
                enum change_verb verb,
                const struct replica_peer *peer,
                replica_member_cb cb,
                void *arg)
{
    struct change *c = &r->change;
    struct change wanted = {.verb = verb, .peer = *peer};
    enum err_code status = !replica_leads(r)                          ? ERR_NOT_LEADER
                           : c->step != STEP_IDLE || r->transfer.busy ? ERR_MEMBERSHIP_BUSY
                                                                      : check_change(r, &wanted);
    if (status != ERR_OK) {
        replica_refuse(r, cb, arg, status);
        return;
    }
    c->verb = verb;
    c->peer = *peer;
    c->cb = cb;
    c->arg = arg;
    c->term = r->led_term;
    c->deadline_ms = uv_now(r->loop) + PROMOTE_TIMEOUT_MS;
    c->waiting = false;
    c->step = STEP_ASKED; /* the next turn begins: this may be inside one of libraft's callbacks */
}

static void
ask_by_id(struct replica *r, enum change_verb verb, uint64_t id, replica_member_cb cb, void *arg)
{
    struct replica_peer peer = {.id = id};
    ask(r, verb, &peer, cb, arg);
}

void replica_add(struct replica *r,
                 const struct replica_peer *peer,
                 replica_member_cb cb,
                 void *arg)
{
    ask(r, CHANGE_ADD, peer, cb, arg);
}

void replica_promote(struct replica *r, uint64_t id, replica_member_cb cb, void *arg)
{
    ask_by_id(r, CHANGE_PROMOTE, id, cb, arg);
}

void replica_demote(struct replica *r, uint64_t id, replica_member_cb cb, void *arg)
{
    ask_by_id(r, CHANGE_DEMOTE, id, cb, arg);
}

void replica_remove(struct replica *r, uint64_t id, replica_member_cb cb, void *arg)
{
    ask_by_id(r, CHANGE_REMOVE, id, cb, arg);
}
