/* SPDX-License-Identifier: Apache-2.0 */
/* The replica's parts, for src/raft/ alone. libraft calls back from deep inside; there nothing of
 * libraft may be called (in a LEADERSHIPLOST callback it crashes). So callbacks only note what
 * happened, and replica_turn(), once before and once after each poll of the loop, acts on it: it is
 * the one place that proposes, confirms and changes members. */
#ifndef RAFT_INTERNAL_H
#define RAFT_INTERNAL_H

#include "raft/guard.h"
#include "raft/identity.h"
#include "raft/replica.h"
#include "raft/transport.h"

#include <raft.h>
#include <raft/uv.h>
#include <stdatomic.h>
#include <uv.h>

enum {
    QUEUE_BYTES_MAX = 256 << 20, /* commands that wait, together; more are ERR_OVERLOADED */
    SPACE_LOW_BYTES = 64 << 20,  /* less free space: no new commands */
    SPACE_PERIOD_MS = 1000,
    PROMOTE_TIMEOUT_MS = 60000,
    PROMOTE_CLOSE = 64, /* entries behind, at most, when the vote is asked for */
    FORMATION_PERIOD_MS = 200,
    REFUSAL_LOG_SLOTS = 16
};

/* --- propose.c --- */

struct proposal {
    struct proposal *next;
    replica_propose_cb cb;
    void *arg;
    size_t len;
    uint8_t bytes[];
};

struct group {
    struct raft_apply request; /* first: libraft hands it back */
    struct replica *r;
    enum { GROUP_FREE, GROUP_IN_FLIGHT, GROUP_LOST } state;
    struct proposal *first; /* owned */
    unsigned count;
    void *results[REPLICA_GROUP_MAX];
};

struct propose {
    struct proposal *first, **last; /* the queue */
    uint64_t count;
    size_t bytes;
    struct group groups[REPLICA_IN_FLIGHT_MAX];
    bool hold;
};

void propose_init(struct replica *r);
void propose_turn(struct replica *r);
/* Nothing in flight? */
bool propose_idle(const struct replica *r);
/* Leadership went: what waits is surely not applied. */
void propose_fail_queue(struct replica *r);
int propose_apply(struct raft_fsm *fsm, const struct raft_buffer *buf, void **result);

/* --- confirm.c --- */

struct confirm_waiter {
    struct confirm_waiter *next;
    replica_confirm_cb cb;
    void *arg;
};

struct confirm {
    struct raft_barrier request;
    bool in_flight;
    bool nudged;                                    /* a barrier is wanted for its own sake */
    struct confirm_waiter *waiting, *riding, *lost; /* owned; order does not matter */
    uint64_t count;                                 /* of all three */
    uint64_t submitted_ms;
};

void confirm_turn(struct replica *r);
void confirm_fail_waiting(struct replica *r);

/* --- members.c --- */

enum change_verb { CHANGE_ADD, CHANGE_PROMOTE, CHANGE_DEMOTE, CHANGE_REMOVE };
enum change_step {
    STEP_IDLE,
    STEP_ASKED,
    STEP_BARRIER_BEFORE,
    STEP_ADDED,       /* the spare is in; it has to become a standby */
    STEP_CATCHING_UP, /* nothing asked of libraft yet */
    STEP_CHANGING,    /* the last configuration entry is under way */
    STEP_BARRIER_AFTER
};

struct change {
    enum change_verb verb;
    enum change_step step;
    struct replica_peer peer; /* of which `id`, and for an addition the address */
    replica_member_cb cb;     /* NULL once answered */
    void *arg;
    uint64_t deadline_ms, term;
    bool waiting; /* libraft will call back */
    int status;   /* what it said */
    struct raft_change request;
    struct raft_barrier barrier;
};

void members_turn(struct replica *r);
/* Answers soon, not from inside the call. */
void replica_refuse(struct replica *r, replica_member_cb cb, void *arg, enum err_code status);
/* Voters that were heard within two election timeouts (this server among them), without `but`. */
unsigned members_healthy_voters(const struct replica *r, uint64_t but);
bool members_connected(const struct replica *r, uint64_t id);

/* --- transfer.c --- */

struct transfer {
    struct raft_transfer request; /* libraft's send still points here after the callback: it lives
                                     as long as we do */
    bool busy, asked, told;       /* asked: libraft has the request; told: it called back */
    uint64_t target, deadline_ms;
    replica_member_cb cb;
    void *arg;
};

void transfer_turn(struct replica *r);

/* --- snapshot.c --- */

struct snapshot {
    void *held; /* the machine's, between begin and end */
    uint64_t index;
    bool written, forced; /* written: wait() gave the bytes */
    unsigned threshold;
    struct raft_buffer pieces[2];
    uint64_t taken;
};

int snapshot_begin(struct raft_fsm *fsm, struct raft_buffer *bufs[], unsigned *n);
int snapshot_wait(struct raft_fsm *fsm, struct raft_buffer *bufs[], unsigned *n);
int snapshot_end(struct raft_fsm *fsm, struct raft_buffer *bufs[], unsigned *n);
int snapshot_restore(struct raft_fsm *fsm, struct raft_buffer *buf);

/* --- post.c --- */

struct posted {
    struct posted *next;
    void (*fn)(void *arg);
    void *arg;
};

struct post {
    uv_async_t wake;
    _Atomic(struct posted *) newest; /* a stack; taken whole and turned round */
};

void post_init(struct replica *r);

/* --- peers.c --- */

struct refusal_log {
    uint64_t id, at_ms;
    enum hello_refusal refusal;
};

void peers_introduce(void *ctx, struct hello *ret_self);
const char *peers_locate(void *ctx, uint64_t id);
enum hello_refusal peers_judge(void *ctx,
                               const struct hello *peer,
                               bool answer,
                               char ret_address[REPLICA_ADDRESS_MAX + 1]);
void peers_refused(void *ctx, const struct hello *peer, enum hello_refusal by_us);

/* --- formation.c --- */

struct formation {
    uv_timer_t timer;
    bool done;
    uint64_t since_ms, logged_ms;
    struct {
        struct replica *r;
        bool heard, dialling;
        uint8_t instance[REPLICA_INSTANCE_SIZE];
    } founders[REPLICA_SERVERS_MAX]; /* as options.founders */
};

enum err_code formation_check(const struct replica *r, struct err *e) MUST_CHECK;
void formation_start(struct replica *r);
enum hello_refusal formation_judge(struct replica *r, const struct hello *peer);
/* Becomes a cluster of one. */
enum err_code formation_alone(struct replica *r, struct err *e) MUST_CHECK;
/* Takes over what the running cluster said. */
enum err_code formation_join(struct replica *r, struct err *e) MUST_CHECK;

/* --- start.c --- */

/* The identity is `used`: brings libraft up. */
void start_raft(struct replica *r);

/* --- space.c --- */

struct space {
    uv_timer_t timer;
    uv_fs_t request;
    bool busy, low;
};

void space_init(struct replica *r);

/* --- watch.c: what libraft does not tell --- */

struct watch {
    int (*inner_start)(struct raft_io *io, unsigned ms, raft_io_tick_cb tick, raft_io_recv_cb recv);
    raft_io_recv_cb recv;
    int (*inner_put)(struct raft_io *io,
                     unsigned trailing,
                     struct raft_io_snapshot_put *req,
                     const struct raft_snapshot *snapshot,
                     raft_io_snapshot_put_cb cb);
    struct raft_io_snapshot_put put, *outer_put; /* one at a time */
    raft_io_snapshot_put_cb put_cb;
    struct {
        uint64_t id, at_ms;
    } heard[REPLICA_SERVERS_MAX * 2]; /* answers to this server as the leader */
    uint64_t leader_ms;               /* a leader of the present term was heard */
};

/* Between raft_uv_init and guard_install. */
void watch_install(struct replica *r);
/* 0: never. */
uint64_t watch_heard_ms(const struct replica *r, uint64_t id);

/* --- the whole --- */

struct replica {
    uv_loop_t *loop;
    struct replica_options options; /* defaults filled in */
    struct replica_peer founders[REPLICA_SERVERS_MAX];
    struct replica_machine machine;
    struct identity identity;
    char raft_dir[4096];
    struct transport *transport;
    struct raft_uv_transport uv_transport;
    struct raft raft;
    struct raft_io io;
    struct raft_fsm fsm;
    struct guard *guard;
    uv_prepare_t before_poll;
    uv_check_t after_poll;
    bool up;      /* raft_start is through */
    bool turning; /* inside replica_turn */
    bool member;  /* of the configuration, as replica_turn last saw it */
    bool leading; /* as replica_turn last saw it */
    bool term_barrier_sent, term_barrier_done, active;
    uint64_t led_term, elections, confirmed_ms;
    struct raft_barrier term_barrier;
    struct propose propose;
    struct confirm confirm;
    struct change change;
    struct transfer transfer;
    struct snapshot snapshot;
    struct post post;
    struct formation formation;
    struct space space;
    struct watch watch;
    struct refusal_log refusals[REFUSAL_LOG_SLOTS];
    uint64_t refusal_logged_ms;
    uint64_t start_last_index;        /* of the log that the start found */
    uint64_t twice_ms, twice_last_ms; /* REFUSE_TWICE: the first of a row, and the last */
};

/* The leader, beyond doubt as far as this server can know. */
static inline bool replica_leads(const struct replica *r)
{
    return r->active && r->raft.state == RAFT_LEADER && r->raft.current_term == r->led_term;
}

void replica_turn(struct replica *r);

/* The member in libraft's present configuration, or NULL. */
const struct raft_server *replica_server(const struct replica *r, uint64_t id);
/* `match_index` on the leader, else 0. */
uint64_t replica_match(const struct replica *r, uint64_t id);

#endif
