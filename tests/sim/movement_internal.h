/* SPDX-License-Identifier: Apache-2.0 */
/* The simulation's own: movement_sim.c (time, network, leader), movement_node.c (data nodes). */
#ifndef TESTS_MOVEMENT_INTERNAL_H
#define TESTS_MOVEMENT_INTERNAL_H

#include "control/leases.h"
#include "directory/tasks.h"
#include "tests/harness/agents.h"
#include "tests/harness/tap.h"
#include "tests/harness/writers.h"
#include "tests/sim/movement_sim.h"

#define SECOND UINT64_C(1000000) /* virtual time is in microseconds */
#define MS     UINT64_C(1000)

enum { NODES = 3, PROCS = 2 * NODES, LOG_MAX = 4096, BATCH = 8, EVENTS_MAX = 8192 };

/* What a node reads of its copy: from any server, and so from any moment of the past. */
struct order {
    dir_rev session, revision, grant_session, epoch;
    uint64_t changed; /* mod_revision of the partition */
    uint8_t role, must, async;
    bool fenced;
};

struct entry {
    uint64_t epoch, id;
};

/* A node's disk. */
struct disk {
    struct entry log[LOG_MAX];
    uint32_t len;
    uint64_t epoch;  /* the highest that was acted on */
    dir_rev session; /* of the last registration, by the holder of the lock */
};

/* A process of a node: the present one, or one that still runs beside it (index + NODES). */
struct proc {
    bool up;
    uint32_t born; /* messages to an earlier process don't reach a later one */
    uint64_t paused_until;
    dir_rev session, acted;
    uint64_t lease_until; /* on the node's clock */
    uint64_t next_beat, next_poll, next_send;
    bool registering;
    uint64_t retry_at;
    bool granted;
    uint64_t epoch, changed;
    uint8_t must, async, counts;
    uint8_t asked; /* to be in sync: that may be taken until a newer order says what came of it */
    uint32_t count_from[NODES];
    uint32_t match[NODES], next[NODES];
    uint64_t heard[NODES];
    uint32_t acked; /* entries below are settled */
    uint32_t first; /* of the present grant */
};

enum event_kind {
    EV_BEAT,
    EV_CONFIRMED,
    EV_BEAT_ANSWER,
    EV_PUT,
    EV_PUT_ANSWER,
    EV_ORDER,
    EV_REPLICATE,
    EV_REPLICATED,
    EV_IN_SYNC,
    EV_END
};

struct event {
    uint64_t at, order_of_birth;
    enum event_kind kind;
    uint32_t proc, born, peer, term;
    dir_rev session;
    uint64_t sent, epoch, changed;
    enum err_code status;
    uint8_t mask;
    bool deposed;
    struct order order;
    uint32_t position, count;
    uint64_t previous;
    struct entry entries[BATCH];
};

struct sim {
    struct tap_rand rand;
    enum movement_mutant mutant;
    uint64_t now, births, next_id;
    struct world world;
    struct leases leases;
    uint32_t term;
    uint64_t frozen_until; /* there is no leader */
    struct proc procs[PROCS];
    struct disk disks[NODES];
    int64_t drift_ppm[NODES];
    uint64_t cut_until[NODES];
    uint64_t link_until[NODES][NODES]; /* these two don't hear each other; the directory they do */
    bool healed;
    struct event *heap;
    uint32_t heap_count;
    struct writers history;
    struct movement_run run;
    uint64_t last_epoch, last_owner, last_session;
};

static inline bool sim_mutated(const struct sim *s, enum movement_mutant m)
{
    return s->mutant == m;
}
static inline unsigned sim_node(unsigned proc)
{
    return proc % NODES;
}

extern const char *const sim_names[NODES];
uint64_t sim_below(struct sim *s, uint64_t n);
bool sim_chance(struct sim *s, unsigned percent);
uint64_t sim_clock(const struct sim *s, unsigned node); /* the node's own CLOCK_BOOTTIME */
/* On the network: late, lost or twice. Not `from` or `to` a node that is cut off. */
void sim_send(struct sim *s, const struct event *e, unsigned a, unsigned b);
void sim_post(struct sim *s, const struct event *e, uint64_t delay);
void sim_fail(struct sim *s, const char *why);
struct order sim_order(const struct sim *s, unsigned node);

bool node_may_write(const struct sim *s, unsigned proc);
void node_turn(struct sim *s, unsigned proc);
void node_client(struct sim *s, unsigned proc);
void node_event(struct sim *s, const struct event *e);
void node_stop(struct sim *s, unsigned proc);
void node_crash(struct sim *s, unsigned proc);

#endif
