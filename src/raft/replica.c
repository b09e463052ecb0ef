/* SPDX-License-Identifier: Apache-2.0 */
#include "raft/replica.h"

#include "base/log.h"
#include "base/mem.h"
#include "raft/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    DEFAULT_ELECTION_MS = 1000,
    DEFAULT_HEARTBEAT_MS = 100,
    DEFAULT_THRESHOLD = 8192,
    DEFAULT_TRAILING = 16384,
    DEFAULT_STALL_MS = 10000,
    STALL_MAX_MS = 600000
};

/* --- leadership --- */

static void lose(struct replica *r)
{
    bool was_active = r->active;
    uint64_t term = r->led_term;
    r->leading = false;
    r->active = false;
    r->term_barrier_done = false;
    if (was_active) {
        log_event(LOG_INFO, "raft.leadership.lost", "term=%" PRIu64, term);
        r->machine.leadership(r->machine.ctx, false, term);
    }
}

static void on_term_barrier(struct raft_barrier *request, int status)
{
    struct replica *r = request->data;
    r->term_barrier_sent = false;
    r->term_barrier_done = status == 0 && r->leading && r->raft.current_term == r->led_term;
}

/* Leads, and does not know yet what of earlier terms is committed: a barrier of its own term
 * settles it. */
static void settle_term(struct replica *r)
{
    if (!r->term_barrier_sent && !r->term_barrier_done) {
        r->term_barrier.data = r;
        r->term_barrier_sent = raft_barrier(&r->raft, &r->term_barrier, on_term_barrier) == 0;
    }
    if (r->term_barrier_done) {
        r->active = true;
        r->confirmed_ms = uv_now(r->loop);
        log_event(LOG_INFO, "raft.leadership.won", "term=%" PRIu64 " index=%llu", r->led_term,
                  raft_last_applied(&r->raft));
        r->machine.leadership(r->machine.ctx, true, r->led_term);
    }
}

/* A server that was taken out may never hear it (nobody sends to it any more), or may read it in
 * its log. */
static void membership_turn(struct replica *r)
{
    bool member = replica_server(r, r->identity.is.id) != NULL;
    if (r->member && !member) {
        log_event(LOG_WARN, "raft.removed", "id=%" PRIu64 " hint=\"it is not a member: stop it\"",
                  r->identity.is.id);
    }
    r->member = member;
}

static void role_turn(struct replica *r)
{
    int state = raft_state(&r->raft);
    if (state == RAFT_UNAVAILABLE) {
        log_fatal(EXIT_DATA, "raft.unavailable", "dir=%s term=%llu index=%llu reason=\"%s\"",
                  r->raft_dir, r->raft.current_term, raft_last_applied(&r->raft),
                  r->raft.errmsg[0] != '\0' ? r->raft.errmsg : r->io.errmsg);
    }
    bool leads = state == RAFT_LEADER;
    if (r->leading && (!leads || r->raft.current_term != r->led_term)) {
        lose(r);
    }
    if (leads && !r->leading) {
        r->leading = true;
        r->led_term = r->raft.current_term;
        r->elections++;
    }
    if (leads && !r->active) {
        settle_term(r);
    }
}

void replica_turn(struct replica *r)
{
    if (!r->up || r->turning) {
        return;
    }
    r->turning = true; /* a callback that runs the loop or asks again must not come back in here */
    membership_turn(r);
    role_turn(r);
    if (!r->active) {
        propose_fail_queue(r);
        confirm_fail_waiting(r);
    }
    transfer_turn(r);
    members_turn(r);
    propose_turn(r);
    confirm_turn(r);
    r->turning = false;
}

static void on_before_poll(uv_prepare_t *handle)
{
    replica_turn(handle->data);
}

static void on_after_poll(uv_check_t *handle)
{
    replica_turn(handle->data);
}

/* --- the start --- */

static void fill_defaults(struct replica_options *o)
{
    o->election_ms = o->election_ms != 0 ? o->election_ms : DEFAULT_ELECTION_MS;
    o->heartbeat_ms = o->heartbeat_ms != 0 ? o->heartbeat_ms : DEFAULT_HEARTBEAT_MS;
    o->snapshot_threshold = o->snapshot_threshold != 0 ? o->snapshot_threshold : DEFAULT_THRESHOLD;
    o->snapshot_trailing = o->snapshot_trailing != 0 ? o->snapshot_trailing : DEFAULT_TRAILING;
    o->stall_ms = o->stall_ms != 0 ? o->stall_ms : DEFAULT_STALL_MS;
}

static enum err_code check_options(const struct replica *r, struct err *e)
{
    const struct replica_options *o = &r->options;
    if (o->heartbeat_ms * 2 > o->election_ms || o->election_ms > 60000) {
        return err_set(e, ERR_INVALID_REQUEST,
                       "a heartbeat of %" PRIu64 " ms does not go with elections of %" PRIu64 " ms",
                       o->heartbeat_ms, o->election_ms);
    }
    if (o->stall_ms > STALL_MAX_MS) {
        return err_set(e, ERR_INVALID_REQUEST, "stalled peers are cut after %d ms at most",
                       STALL_MAX_MS);
    }
    if (r->identity.is.used) {
        if (o->founder_count > 1 || o->join) {
            log_event(LOG_INFO, "raft.founding.ignored",
                      "cluster=%s reason=\"the data directory belongs to a cluster\"",
                      r->identity.is.cluster);
        }
        return ERR_OK;
    }
    return formation_check(r, e);
}

static enum err_code become_member(struct replica *r, struct err *e)
{
    enum err_code code = ERR_OK;
    if (!r->identity.is.used && r->options.join) {
        code = formation_join(r, e);
    } else if (!r->identity.is.used && r->options.founder_count <= 1) {
        code = formation_alone(r, e);
    } else if (!r->identity.is.used) {
        formation_start(r);
        return ERR_OK;
    }
    if (code == ERR_OK) {
        start_raft(r);
    }
    return code;
}

static void start_turning(struct replica *r)
{
    uv_prepare_init(r->loop, &r->before_poll);
    r->before_poll.data = r;
    uv_prepare_start(&r->before_poll, on_before_poll);
    uv_check_init(r->loop, &r->after_poll);
    r->after_poll.data = r;
    uv_check_start(&r->after_poll, on_after_poll);
}

enum err_code replica_start(struct uv_loop_s *loop,
                            const struct replica_options *options,
                            const struct replica_machine *machine,
                            struct replica **ret_replica,
                            struct err *e)
{
    struct replica *r = mem_zalloc(sizeof *r);
    r->loop = loop;
    r->options = *options;
    r->machine = *machine;
    fill_defaults(&r->options);
    if (options->founder_count > 0 && options->founder_count <= REPLICA_SERVERS_MAX) {
        memcpy(r->founders, options->founders, options->founder_count * sizeof r->founders[0]);
        r->options.founders = r->founders; /* founding goes on after this call */
    }
    (void)snprintf(r->raft_dir, sizeof r->raft_dir, "%s/raft", options->data_dir);
    enum err_code code = identity_load(options->data_dir, &r->identity, e);
    if (code == ERR_OK) {
        code = check_options(r, e);
    }
    if (code != ERR_OK) {
        mem_free(r); /* nothing points to it yet */
        return code;
    }
    struct transport_options transport = {.loop = loop,
                                          .stall_ms = r->options.stall_ms,
                                          .ctx = r,
                                          .introduce = peers_introduce,
                                          .judge = peers_judge,
                                          .locate = peers_locate,
                                          .refused = peers_refused};
    r->transport = transport_new(&transport, &r->uv_transport);
    struct err listening = {0};
    if (transport_listen(r->transport, options->raft_bind, &listening) != ERR_OK) {
        log_fatal(EXIT_ADDRESS, "raft.listen.failed", "reason=\"%s\"", listening.detail);
    }
    propose_init(r);
    post_init(r);
    start_turning(r);
    code = become_member(r, e);
    if (code == ERR_OK) {
        *ret_replica = r;
    }
    return code; /* with an error: the caller exits; the handles are in its loop */
}

/* --- status --- */

void replica_identity(const struct replica *r, struct replica_identity *ret_identity)
{
    *ret_identity = r->identity.is;
}

static enum replica_role role_of(const struct replica *r)
{
    switch (r->up ? r->raft.state : RAFT_UNAVAILABLE) {
    case RAFT_FOLLOWER:
        return REPLICA_FOLLOWER;
    case RAFT_CANDIDATE:
        return REPLICA_CANDIDATE;
    case RAFT_LEADER:
        return REPLICA_LEADER;
    default:
        return REPLICA_FOUNDING;
    }
}

static uint64_t leader_of(const struct replica *r)
{
    return r->raft.state == RAFT_LEADER     ? r->identity.is.id
           : r->raft.state == RAFT_FOLLOWER ? r->raft.follower_state.current_leader.id
                                            : 0;
}

/* When a majority of the voters, this leader among them, was last heard: the leader's own age. */
static uint64_t quorum_heard_ms(const struct replica *r)
{
    uint64_t heard[REPLICA_SERVERS_MAX], best = 0;
    unsigned voters = 0;
    for (unsigned i = 0; i < r->raft.configuration.n && voters < REPLICA_SERVERS_MAX; i++) {
        const struct raft_server *s = &r->raft.configuration.servers[i];
        if (s->role == RAFT_VOTER) {
            heard[voters++] =
                s->id == r->identity.is.id ? uv_now(r->loop) : watch_heard_ms(r, s->id);
        }
    }
    for (unsigned i = 0; i < voters; i++) {
        unsigned as_late = 0;
        for (unsigned k = 0; k < voters; k++) {
            as_late += heard[k] >= heard[i];
        }
        best = as_late > voters / 2 && heard[i] > best ? heard[i] : best;
    }
    return best > r->confirmed_ms ? best : r->confirmed_ms;
}

static void fill_members(const struct replica *r, struct replica_status *s)
{
    bool leads = r->raft.state == RAFT_LEADER;
    for (unsigned i = 0; i < r->raft.configuration.n && i < REPLICA_SERVERS_MAX; i++) {
        const struct raft_server *server = &r->raft.configuration.servers[i];
        struct replica_member *m = &s->members[s->member_count++];
        m->id = server->id;
        m->voter = server->role == RAFT_VOTER;
        m->connected = leads && members_connected(r, server->id);
        m->match_index = replica_match(r, server->id);
        (void)snprintf(m->raft_address, sizeof m->raft_address, "%s", server->address);
    }
}

void replica_status(const struct replica *r, struct replica_status *ret_status)
{
    struct replica_status s = {.role = role_of(r), .id = r->identity.is.id};
    if (r->up) {
        s.active = replica_leads(r);
        s.leader = leader_of(r);
        s.term = r->raft.current_term;
        s.commit_index = r->raft.commit_index;
        s.applied_index = r->raft.last_applied;
        s.last_index = raft_last_index((struct raft *)(uintptr_t)&r->raft);
        s.snapshot_index = r->raft.log.snapshot.last_index;
        s.heard_ms = s.active ? quorum_heard_ms(r) : r->watch.leader_ms;
        s.queue = r->propose.count;
        s.elections = r->elections;
        s.snapshots = r->snapshot.taken;
        fill_members(r, &s);
    }
    *ret_status = s;
}
