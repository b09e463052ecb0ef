/* SPDX-License-Identifier: Apache-2.0 */
/* One server's part in a Raft group: libraft behind the guard (guard.h) and our transport
 * (transport.h), and nothing of either to be seen. Replicates opaque commands to a state machine
 * given as a vtable; knows nothing of the directory.
 *
 * Everything runs on the loop thread but replica_post(). Crash-only: a failed write, fsync or
 * append, an unreadable log, a second process on the directory ends the process through
 * log_fatal(EXIT_DATA, …) before anything more is acknowledged. There is no close: the process
 * exits. */
#ifndef RAFT_REPLICA_H
#define RAFT_REPLICA_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct uv_loop_s;
struct replica;

enum {
    REPLICA_GROUP_MAX = 256,   /* commands in one log entry */
    REPLICA_IN_FLIGHT_MAX = 2, /* entries proposed and not yet applied */
    REPLICA_QUEUE_MAX = 16384, /* proposals that wait for a place; more are ERR_OVERLOADED */
    REPLICA_GROUP_BYTES_MAX = 4 << 20,
    REPLICA_CONFIRMS_MAX = 65536, /* confirmations that wait */
    REPLICA_SERVERS_MAX = 16,
    REPLICA_ADDRESS_MAX = 255,
    REPLICA_INSTANCE_SIZE = 16
};

/* The state machine. `ctx` is passed to each. All on the loop thread but snapshot_wait. */
struct replica_machine {
    void *ctx;
    /* Applies one command of the entry at `index` (a group's commands share it). What it returns
     * goes to the proposer's callback on the server that proposed it, and to drop_result elsewhere.
     */
    void *(*apply)(void *ctx, uint64_t index, const uint8_t *command, size_t len);
    void (*drop_result)(void *ctx, void *result);
    /* After the last command of an entry: publish. */
    void (*applied)(void *ctx, uint64_t index);
    /* A snapshot at exactly this index, in three steps: begin marks the place (NULL: busy, asked
     * again later); wait (on a pool thread) blocks until the bytes are there, at most two pieces,
     * owned by the snapshot; end releases it. */
    void *(*snapshot_begin)(void *ctx, uint64_t index);
    int (*snapshot_wait)(void *ctx, void *snapshot, const uint8_t *ret_piece[2], size_t ret_len[2]);
    void (*snapshot_end)(void *ctx, void *snapshot);
    /* Replaces the state by a snapshot's bytes, borrowed for the call. Non-zero: damaged; the
     * process ends. */
    int (*restore)(void *ctx, const uint8_t *bytes, size_t len);
    /* Leadership, as the machine may act on it: `active` turns true after the barrier of this
     * server's own term, false as soon as it is lost (no replica_* call may be made from inside;
     * post instead). */
    void (*leadership)(void *ctx, bool active, uint64_t term);
    /* Does the machine's member table know this id with this instance? 1 yes, 0 the id has another
     * instance or was removed (refuse for good), -1 nothing known (the founding record decides). */
    int (*knows)(void *ctx, uint64_t id, const uint8_t instance[REPLICA_INSTANCE_SIZE]);
};

struct replica_peer {
    uint64_t id;
    char raft_address[REPLICA_ADDRESS_MAX + 1]; /* host:port; names are resolved at each connect */
    char api_url[REPLICA_ADDRESS_MAX + 1];
    uint8_t instance[REPLICA_INSTANCE_SIZE];
};

struct replica_options {
    const char
        *data_dir; /* raft files go to <data_dir>/raft, the identity to <data_dir>/identity */
    uint64_t id;   /* 0: take the directory's, or 1 for a new one */
    const char *raft_address; /* advertised */
    const char *raft_bind;    /* host:port to listen on */
    const char *api_url;
    /* First start of several, all listed, this server among them: waits until each has been heard
     * and is as fresh as this one, so that a wiped directory can never found a second cluster.
     * Ignored on a used directory. */
    const struct replica_peer *founders;
    unsigned founder_count; /* 0 and not `join`: a single server founds its own cluster */
    bool join; /* the cluster named by `join_*` was asked and has taken this server in */
    char join_cluster[33];
    uint64_t join_generation;
    const struct replica_peer *join_peers; /* its members, to accept and dial */
    unsigned join_peer_count;
    /* 0 takes the default. */
    uint64_t election_ms;        /* 1000 */
    uint64_t heartbeat_ms;       /* 100 */
    unsigned snapshot_threshold; /* entries since the last snapshot: 8192 */
    unsigned snapshot_trailing;  /* entries kept behind it: 16384 */
    uint64_t stall_ms;           /* a peer that takes nothing for so long is cut off: 10000 */
};

/* What the data directory says it is. */
struct replica_identity {
    uint64_t id, generation;
    char cluster[33]; /* 32 hex digits */
    uint8_t instance[REPLICA_INSTANCE_SIZE];
    struct replica_peer founders[REPLICA_SERVERS_MAX];
    unsigned founder_count;
    bool used; /* it has founded or joined a cluster */
};

/* Reads <data_dir>/identity, making a fresh one (random instance, not used) when there is none;
 * takes the lock that a process holds for life (ERR_IO naming the holder when another has it).
 * Checks `id` against it (ERR_INVALID_REQUEST on a contradiction). To be called before
 * replica_start. */
enum err_code replica_identity_open(const char *data_dir,
                                    uint64_t id,
                                    struct replica_identity *ret_identity,
                                    struct err *e) MUST_CHECK;

/* Starts on `loop`: loads snapshot and log (the machine's restore runs inside), or founds, or
 * joins. Returns when the replica listens; founding goes on in the loop. The machine and the
 * options' strings are borrowed for good. */
enum err_code replica_start(struct uv_loop_s *loop,
                            const struct replica_options *options,
                            const struct replica_machine *machine,
                            struct replica **ret_replica,
                            struct err *e) MUST_CHECK;

/* What the data directory says now: after founding or joining, all founders with their instances. A
 * copy; loop thread. */
void replica_identity(const struct replica *r, struct replica_identity *ret_identity);

/* Runs fn(arg) on the loop thread, soon. Any thread. Never refused: callers bound what they post.
 */
void replica_post(struct replica *r, void (*fn)(void *arg), void *arg);

/* Where the machine's member table has its servers now, by their ids and Raft addresses. Members
 * are dialled there rather than where Raft's configuration has them, where an address can't be
 * changed; also after a start, before the table is there again: what differs is written to the
 * identity file (a failure ends the process). False: not taken, because the log of the last start
 * is not applied yet and the table may be older than the file; to be told again. Loop thread. */
bool replica_locate(struct replica *r, const struct replica_peer *peers, unsigned count);

/* --- commands --- */

/* status: ERR_OK with the machine's result (the callee owns it); ERR_NOT_LEADER: surely not
 * applied; ERR_OUTCOME_UNKNOWN: may yet be applied. */
typedef void (*replica_propose_cb)(void *arg, enum err_code status, void *result);

/* Copies the command. Returns ERR_OK (then `cb` is called exactly once, later), ERR_NOT_LEADER (not
 * the leader, or its own term's barrier is not through), ERR_OVERLOADED (queue full),
 * ERR_TOO_LARGE. */
enum err_code replica_propose(struct replica *r,
                              const uint8_t *command,
                              size_t len,
                              replica_propose_cb cb,
                              void *arg) MUST_CHECK;

/* Holds proposals back (they queue, bounded) while true: for a store that lags. */
void replica_hold(struct replica *r, bool hold);

/* --- confirmation --- */

/* status: ERR_OK: a quorum confirmed, after the call, that this server leads, and everything
 * committed before is applied; ERR_NOT_LEADER otherwise. */
typedef void (*replica_confirm_cb)(void *arg, enum err_code status);

/* One barrier in flight; the next serves all that asked meanwhile. Returns as replica_propose. */
enum err_code replica_confirm(struct replica *r, replica_confirm_cb cb, void *arg) MUST_CHECK;

/* --- membership: each needs the leader, no other change under way, and a healthy majority; a
 * barrier goes before and after. `cb` is called once, with ERR_OK, ERR_NOT_LEADER,
 * ERR_MEMBERSHIP_BUSY, ERR_QUORUM_AT_RISK, ERR_SERVER_NOT_FOUND, ERR_SERVER_EXISTS,
 * ERR_NOT_A_VOTER, or ERR_OUTCOME_UNKNOWN. --- */

typedef void (*replica_member_cb)(void *arg, enum err_code status);

/* Adds as an observer: replicated to, without a vote. */
void replica_add(struct replica *r,
                 const struct replica_peer *peer,
                 replica_member_cb cb,
                 void *arg);
/* Gives the vote once it has caught up (waits for that, at most promote_timeout: 60 s, then
 * ERR_QUORUM_AT_RISK). */
void replica_promote(struct replica *r, uint64_t id, replica_member_cb cb, void *arg);
/* Takes the vote away. */
void replica_demote(struct replica *r, uint64_t id, replica_member_cb cb, void *arg);
void replica_remove(struct replica *r, uint64_t id, replica_member_cb cb, void *arg);
/* To `id`, or to the most caught-up voter when 0. */
void replica_transfer(struct replica *r, uint64_t id, replica_member_cb cb, void *arg);

/* Takes a snapshot at the next entry, whatever the threshold. */
void replica_snapshot(struct replica *r);

/* --- status: a copy, loop thread --- */

enum replica_role { REPLICA_FOUNDING, REPLICA_FOLLOWER, REPLICA_CANDIDATE, REPLICA_LEADER };

struct replica_member {
    uint64_t id, match_index; /* match_index: known on the leader only */
    bool voter, connected; /* connected: heard within two election timeouts; on the leader only */
    char raft_address[REPLICA_ADDRESS_MAX + 1];
};

struct replica_status {
    enum replica_role role;
    bool active;         /* leader, and its own term's barrier is through */
    uint64_t id, leader; /* leader: 0 when none is known */
    uint64_t term, commit_index, applied_index, last_index, snapshot_index;
    uint64_t heard_ms;  /* CLOCK_MONOTONIC when a leader was last heard (now, on the active leader
                           after a confirm) */
    uint64_t queue;     /* proposals that wait */
    uint64_t elections; /* times this server became leader */
    uint64_t snapshots; /* taken */
    unsigned member_count;
    struct replica_member members[REPLICA_SERVERS_MAX];
};

void replica_status(const struct replica *r, struct replica_status *ret_status);

/* Hands leadership over if it has it, waits at most two election timeouts, then calls `done`, after
 * which the caller ends the process. */
void replica_retire(struct replica *r, void (*done)(void *arg), void *arg);

#endif
