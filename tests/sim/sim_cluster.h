/* SPDX-License-Identifier: Apache-2.0 */
/* A cluster of libraft servers on sim_io, each with a small machine that keeps what it applied, and
 * the checks that hold after every event:
 *  - no two servers, and no two lives of one, apply different commands at one index, or commit
 * different entries;
 *  - at most one leader in a term;
 *  - within a life, the commit index never goes back, and what is applied is committed;
 *  - when a disk is quiet, it holds the log that libraft believes to be there;
 *  - no server becomes "unavailable", and the backend is never asked for what raft_uv cannot do
 * (not looked at without a guard, to see what comes of it). At the end (cluster_settle): everything
 * converges, and every acknowledged command is where it was acknowledged. */
#ifndef TESTS_SIM_CLUSTER_H
#define TESTS_SIM_CLUSTER_H

#include "raft/guard.h"
#include "tests/sim/sim_io.h"

enum { CLUSTER_INDEX_MAX = 16384, CLUSTER_TERM_MAX = 4096 };

struct cluster_options {
    unsigned servers;  /* voters at first */
    unsigned measures; /* of the guard; 0: bare libraft, no guard installed */
    unsigned snapshot_threshold, snapshot_trailing;
    unsigned batch_entries_max; /* the guard's cap: small, to be met often */
    bool careless; /* changes of the membership do not wait for all voters to be well */
};

struct cluster_counts {
    uint64_t acked, refused, elections, crashes, fatals, restarts, restores, changes, transfers;
};

struct cluster_applied {
    raft_index index;
    uint64_t command;
};

struct cluster;

struct cluster_server {
    struct cluster *cluster;
    unsigned number; /* the raft id less one */
    struct raft *raft;
    struct raft_io *io;
    struct guard *guard;
    struct raft_fsm fsm;
    bool alive, used, retired; /* used: it ever ran; retired: it was removed and never comes back */
    uint64_t restart_at;
    struct cluster_applied *applied;
    size_t applied_n;
    raft_index seen_commit;
    int seen_state;
};

/* One change of the membership at a time, as the operator sees it. */
struct cluster_change {
    bool active;
    unsigned leader; /* who was asked */
    bool removes;
    unsigned subject;
};

/* What committed at an index, as first seen. */
struct cluster_entry {
    raft_term term;
    uint64_t hash;
    uint64_t command; /* 0: not applied anywhere yet */
};

struct cluster_acked {
    raft_index index;
    uint64_t command;
};

struct cluster {
    struct sim *sim;
    struct tap_rand *rand;
    struct cluster_options options;
    struct cluster_server servers[SIM_NODES_MAX];
    struct cluster_entry entries[CLUSTER_INDEX_MAX];
    uint8_t leaders[CLUSTER_TERM_MAX]; /* of each term: number + 1 */
    struct cluster_acked *acked;
    size_t acked_n;
    uint64_t last_command;
    struct cluster_change change;
    struct cluster_counts counts;
    struct guard_stats guard; /* summed over lives */
    char violation[200];      /* "" : none */
};

/* Starts `options->servers` voters. Borrows `rand`. Never freed. */
struct cluster *cluster_new(struct tap_rand *rand, const struct cluster_options *options);

/* Runs one event that is due by `until`, with the checks. False: none was left. *ret_became_leader
 * tells the server that became leader in it, or SIM_NODES_MAX. */
bool cluster_step(struct cluster *c, uint64_t until, unsigned *ret_became_leader);

/* Faults and requests; each does nothing where it makes no sense. */
void cluster_crash(struct cluster *c, unsigned server, uint64_t down_ms);
void cluster_propose(struct cluster *c, unsigned server);
void cluster_transfer(struct cluster *c, unsigned server);
/* A random change, at the leader, when all voters are alive and linked, and the leader has
 * committed in its term. */
bool cluster_change_members(struct cluster *c);

bool cluster_leads(const struct cluster *c, unsigned server);

/* Ends all faults and waits until all members agree; a violation if they do not, or if an
 * acknowledged command is missing. */
void cluster_settle(struct cluster *c);

#endif
