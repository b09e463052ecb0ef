/* SPDX-License-Identifier: Apache-2.0 */
/* What the leader does over time, and the door from HTTP threads to the loop: commands,
 * confirmations, membership.
 *
 * Threads: control_submit, control_confirm, control_member and control_status are called from any
 * thread and answer through a callback that runs on the loop thread and must only hand the outcome
 * over. */
#ifndef CONTROL_CONTROL_H
#define CONTROL_CONTROL_H

#include "base/err.h"
#include "control/fleet.h"
#include "directory/directory.h"
#include "directory/store.h"
#include "raft/replica.h"

enum {
    CONTROL_QUEUE_MAX =
        8192, /* requests handed over and not yet answered; more are ERR_OVERLOADED at once */
    CONTROL_BEATS_MAX = 32768, /* heartbeats not yet answered */
    CONTROL_JOINED_MAX = 64    /* retries that wait for one command in flight with the same key */
};

struct control;

struct control_outcome {
    enum err_code
        status; /* ERR_OK: `result` says what came of it (which may be a refusal); else
                   ERR_NOT_LEADER, ERR_OUTCOME_UNKNOWN, ERR_OVERLOADED: there is no result */
    struct dir_result *result; /* borrowed for the callback: result_ref() to keep */
    char leader_url[DIR_ADDRESS_MAX +
                    1]; /* with ERR_NOT_LEADER: where the leader's API is, "" when unknown */
};
typedef void (*control_done)(void *arg, const struct control_outcome *outcome);

/* Runs one command to its outcome: answers a stored one; waits for one in flight with the same key;
 * refuses what apply would refuse now, without using up the key; else stamps the time and proposes.
 * Copies the command (its repeated fields too). ERR_OVERLOADED: refused, `done` is never called. */
enum err_code control_submit(struct control *c,
                             const Cadastre__Command *command,
                             control_done done,
                             void *arg) MUST_CHECK;

/* A linearizable read may run on the published view once `done` got ERR_OK. */
enum err_code control_confirm(struct control *c, control_done done, void *arg) MUST_CHECK;

/* A heartbeat: answered after a quorum confirmed this leader later than it arrived. ERR_OK: the
 * session is the node's present one, and its lease runs on from when the node sent it.
 * ERR_SESSION_ENDED, ERR_NODE_NOT_FOUND: confirmed too. ERR_NOT_LEADER, and ERR_NOT_READY while it
 * is being decided whether the session has lapsed: nothing is known. `node` is copied. */
struct control_beat {
    enum err_code status;
    uint64_t lease_ms, heartbeat_ms;
    dir_rev revision;
    char leader_url[DIR_ADDRESS_MAX + 1];
};
typedef void (*control_beat_done)(void *arg, const struct control_beat *beat);
enum err_code control_heartbeat(struct control *c,
                                const char *node,
                                uint64_t session,
                                control_beat_done done,
                                void *arg) MUST_CHECK;

/* What this server knows of a node's life; only a leader can tell that one is suspect.
 * `*ret_left_ms`: of its lease, as this leader counts it; UINT64_MAX when it doesn't. Any thread.
 */
enum control_node_state { CONTROL_NODE_UP, CONTROL_NODE_SUSPECT, CONTROL_NODE_DOWN };
enum control_node_state control_node_state(struct control *c,
                                           const struct dir_node *n,
                                           uint64_t heartbeat_ms,
                                           uint64_t *ret_left_ms);

/* A creation of any size: the keyspace appears whole or not at all (decisions.md 27). `bounds` are
 * the splits beyond the first command's own, in key order, copied; for a hash keyspace none, they
 * follow from `partitions`. */
enum err_code control_create_keyspace(struct control *c,
                                      const Cadastre__Command *create,
                                      const struct slice *bounds,
                                      uint64_t bound_count,
                                      control_done done,
                                      void *arg) MUST_CHECK;

/* Members of the directory's own group. `instance` is needed to add. The outcome has no result.
 * `status` is ERR_OK or one of replica.h's membership outcomes. */
enum control_member_verb {
    CONTROL_ADD_VOTER,
    CONTROL_ADD_OBSERVER,
    CONTROL_PROMOTE,
    CONTROL_DEMOTE,
    CONTROL_REMOVE,
    CONTROL_TRANSFER, /* id 0: anyone */
    CONTROL_SNAPSHOT
};
enum err_code control_member(struct control *c,
                             enum control_member_verb verb,
                             const struct replica_peer *peer,
                             const char *principal,
                             control_done done,
                             void *arg) MUST_CHECK;

/* What this server found when it last walked over all partitions (recovery.c). */
enum control_recovery_state {
    CONTROL_RECOVERY_FOLLOWS,  /* not the leader: it only looks */
    CONTROL_RECOVERY_OBSERVES, /* a new leader waits until it knows who lives */
    CONTROL_RECOVERY_PAUSED,   /* too many nodes are away at once */
    CONTROL_RECOVERY_ACTS
};
struct control_recovery {
    enum control_recovery_state state;
    uint64_t nodes, away; /* with an agent; of these, those away that hold copies */
    uint64_t partitions, under_replicated, unavailable, misplaced, draining;
    uint64_t blocked;   /* something is to be done, and nothing can be */
    uint64_t oldest_ms; /* log time since when one has been under-replicated; 0: none */
    uint64_t walk_ms;   /* how long the walk took */
    uint64_t proposed;  /* operations proposed since the start */
};

/* What this leader's rounds go by, copied: for explaining them. Any thread. False: no round has
 * been planned here. */
struct control_planning {
    struct bal_memory *memory;  /* bal_memory_free() */
    struct fleet_birth *births; /* mem_free() */
    uint32_t birth_count;
    uint64_t log_ms; /* log time now */
};
bool control_planning(struct control *c, struct control_planning *ret);

/* A copy of what the loop last saw, at most 100 ms old or as of the last publish. Any thread, no
 * wait. */
struct control_status {
    struct replica_status raft;
    char leader_url[DIR_ADDRESS_MAX + 1];
    uint64_t store_lag, loop_lag_ms, loop_lag_max_ms,
        loop_turned_ms;                                    /* loop_turned_ms: CLOCK_MONOTONIC */
    uint64_t commands, refused, replayed, confirms, beats; /* counters since the start */
    struct control_recovery recovery;
    bool stopping;
};
void control_status(const struct control *c, struct control_status *ret_status);

/* How old the applied state may be, in ms: now minus when a leader was last heard. On the active
 * leader 0 … one election timeout. UINT64_MAX: never heard one. Any thread. */
uint64_t control_staleness_ms(const struct control *c);

const struct dir_published *control_published(const struct control *c);
struct dir_feed *control_feed(const struct control *c);
struct store *control_store(const struct control *c);
/* Any thread. */
struct loads *control_loads(const struct control *c);
/* Its id and instance; the cluster's name is in the view. */
const struct replica_identity *control_identity(const struct control *c);

/* --- for server.c --- */

struct control_parts {
    struct uv_loop_s *loop;
    struct directory *directory;
    struct store *store;
    const struct replica_identity
        *identity; /* as opened: id and instance hold, the cluster may yet be founded */
    const char *raft_address,
        *api_url; /* this server's own, as advertised; live as long as the process */
};
/* The machine to give replica_start; then control_attach with the replica. */
struct control *control_new(const struct control_parts *parts);
const struct replica_machine *control_machine(struct control *c);
void control_attach(struct control *c, struct replica *r);
/* Refuses new work from now on: readyz fails. Any thread. */
void control_stop(struct control *c);

#endif
