/* SPDX-License-Identifier: Apache-2.0 */
/* The simulation's own: movement_run.c (a run, orders), movement_sim.c (time, network, sessions at
 * the leader), movement_leader.c (operations at the leader), movement_node.c (sessions, writes,
 * replicas), movement_agent.c (a node's part in an operation), movement_copy.c (what a disk holds),
 * movement_checks.c (what must hold). */
#ifndef TESTS_MOVEMENT_INTERNAL_H
#define TESTS_MOVEMENT_INTERNAL_H

#include "control/leases.h"
#include "directory/internal.h"
#include "directory/tasks.h"
#include "tests/harness/agents.h"
#include "tests/harness/tap.h"
#include "tests/harness/writers.h"
#include "tests/sim/movement_sim.h"

#define SECOND UINT64_C(1000000) /* virtual time is in microseconds */
#define MS     UINT64_C(1000)

enum {
    NODES = 4,
    PROCS = 2 * NODES,
    SLOTS = 4, /* of keys: the least that a partition may have; a write's is in its id's low bits */
    SEATS = SLOTS * PROCS,
    LOG_MAX = 2048,
    BATCH = 8,
    COPIES = 12,   /* on one disk; a candidate that finds no room waits */
    DUTIES = 4,    /* of a node in one order; the others come when these are done */
    ORDERS = 4096, /* on the network; one that is late by more is lost */
    EVENTS_MAX = 8192
};
#define FILLED  UINT64_MAX       /* the id of what stands where nothing ever came */
#define OUTSIDE (UINT64_MAX - 1) /* of a change outside of the copy's range: only its position */

/* Slots [from, upto). */
struct keys {
    uint8_t from, upto;
};

/* One part of an operation, as an order says it. */
struct assignment {
    uint64_t operation, copy, epoch;
    uint64_t position, validate_at, final_position, base;
    uint32_t attempt, chunk_entries; /* entries of a chunk of the present snapshot */
    uint8_t stage, peer;
    struct keys keys; /* that move */
    bool source, active, reverse;
    bool returns; /* the candidate is the copy of before, up to `base` */
};

/* What a node is told of one partition. */
struct holding {
    uint64_t partition;
    struct keys keys;
    dir_rev grant_session, epoch;
    uint64_t changed; /* mod_revision of the partition */
    uint64_t copy;    /* of the grant; 0: none, or a candidate */
    uint8_t role, must, async;
    uint8_t joining; /* of `must`: the destination */
    uint8_t leaving; /* of `async`: the source in its window */
    bool fenced;
    struct assignment work;
};

/* What a node reads: from any server, and so from any moment of the past. A partition is at the
 * first of its slots. */
struct order {
    dir_rev session, revision;
    struct holding holdings[SLOTS];
    uint8_t duty_count;
    struct duty {
        uint64_t id, partition, copy;
    } duties[DUTIES];
};

/* A report. */
struct said {
    uint64_t has, seq, position, checksum, lag, free_bytes, bytes, items, epoch, chunk, failures;
    uint64_t open;
    bool ready, gap, passed, complete, active, fenced;
};

struct entry {
    uint64_t epoch, id; /* id 0: a hole */
};

struct copy {
    uint64_t id; /* 0: a free slot */
    uint64_t partition;
    struct keys keys;
    struct entry log[LOG_MAX];
    uint32_t len, prefix; /* one above the highest; one above the highest without a hole below */
    uint32_t trimmed;     /* the change log begins here */
    bool damaged;
    /* Of a candidate: what it was begun for, durable before anything is acknowledged. */
    uint64_t operation;
    uint32_t attempt, chunk;
};

struct disk {
    struct copy copies[COPIES];
    uint64_t epochs[SLOTS]; /* the highest that was acted on, of the partition that begins there */
    dir_rev session;        /* of the last registration, by the holder of the lock */
    bool doomed;            /* its copies are gone when the node registers next */
    uint64_t free_bytes;
};

/* What a process does in an operation. */
struct part {
    struct assignment work;
    bool summed, passed, gap, told_active;
    uint64_t sum, passed_at;
    uint64_t failures;
    uint64_t next_report, next_pull;
    /* The source's: the destination durably has all below, it said in this attempt, and these. The
     * destination's: how far the source was. */
    uint32_t counted;
    uint8_t dual[LOG_MAX];
};

/* A process of a node: the present one, or one that still runs beside it (index + NODES). */
struct proc {
    bool up;
    uint32_t born; /* messages to an earlier process don't reach a later one */
    uint64_t paused_until;
    dir_rev session, acted;
    uint64_t lease_until; /* on the node's clock */
    uint64_t next_beat, next_poll;
    uint64_t retry_at;
    uint64_t seq, clean_at;
    uint64_t was_operation; /* the part that it had last */
    uint32_t was_attempt;
    struct duty duties[DUTIES];
    uint8_t duty_count;
};

/* A process at one partition: a seat, which is numbered process + slot * PROCS, where the slot is
 * the partition's first. */
struct hold {
    uint64_t partition;
    struct keys keys;
    uint64_t next_send;
    bool granted, fenced;
    uint64_t epoch, changed, copy;
    uint8_t must, async, joining, leaving, counts;
    uint8_t asked; /* to be in sync: that may be taken until a newer order says what came of it */
    uint32_t count_from[NODES];
    uint32_t match[NODES], next[NODES];
    uint64_t heard[NODES];
    dir_rev sessions[NODES]; /* in which they have what they say that they have */
    uint32_t acked;          /* entries below are settled */
    uint32_t first;          /* of the present grant */
    uint8_t done[LOG_MAX];
    struct part part;
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
    EV_END,
    EV_REPORT,
    EV_DUTY,
    EV_TIMEOUT,
    EV_PULL_CHUNK,
    EV_CHUNK,
    EV_PULL_CHANGES,
    EV_CHANGES,
    EV_DUAL,
    EV_DUAL_ACK
};

struct event {
    uint64_t at, order_of_birth;
    enum event_kind kind;
    uint32_t proc, born, peer, term; /* proc, peer: seats, where it is about a partition */
    uint64_t partition;
    dir_rev session;
    uint64_t sent, epoch, changed;
    enum err_code status;
    uint8_t mask, stage;
    bool deposed, gap;
    uint64_t operation;
    uint32_t attempt, chunk;
    uint32_t position, count;
    uint64_t previous, sum;
    union {
        uint64_t order; /* its number */
        dir_rev sessions[NODES];
        struct said said;
        struct entry entries[BATCH];
    };
};

/* How hard the network and the nodes are to each other. */
enum noise { NOISE_NONE, NOISE_MILD, NOISE_FULL };

struct sim {
    struct tap_rand rand;
    enum movement_profile profile;
    enum movement_mutant mutant;
    unsigned nodes;
    uint64_t now, births, next_id;
    struct world world;
    struct leases leases;
    uint32_t term;
    uint64_t frozen_until; /* there is no leader */
    struct proc procs[PROCS];
    struct hold holds[SEATS];
    struct disk disks[NODES];
    int64_t drift_ppm[NODES];
    uint64_t cut_until[NODES];
    uint64_t link_until[NODES][NODES]; /* these two don't hear each other; the directory they do */
    enum noise noise;
    struct event *heap;
    uint32_t heap_count;
    struct order *orders;
    uint64_t order_count;
    struct writers history;
    struct movement_run run;
    uint64_t last_epoch[SLOTS], last_owner[SLOTS], last_session[SLOTS], old_epoch[SLOTS];
    uint64_t acknowledged[SLOTS];
    /* --- operations --- */
    bool automatic; /* moves are started, and aborted, at random; their stages draw trouble */
    bool held;      /* no report, no timer: a test looks at what one event does */
    uint64_t operation, next_start; /* operation: the last one that was started */
    uint64_t timer_mark, timer_since, timer_asked;
    uint64_t trouble_at, trouble_seen; /* seen: the stage that has drawn its lot */
    unsigned trouble_node;
    bool trouble_kills, trouble_empties; /* and its disk is lost */
    struct event last_report;            /* that was taken */
    uint64_t entry_bytes, entry_wait;    /* sizes and rates as data: of an entry; its copy takes */
    uint64_t write_every;                /* 0: at random */
};

static inline bool sim_mutated(const struct sim *s, enum movement_mutant m)
{
    return s->mutant == m;
}
static inline unsigned sim_node(unsigned seat)
{
    return seat % NODES;
}
static inline struct proc *sim_proc(struct sim *s, unsigned seat)
{
    return &s->procs[seat % PROCS];
}
/* Is it the node's present process? */
static inline bool sim_is_present(unsigned seat)
{
    return seat % PROCS < NODES;
}
static inline unsigned sim_slot(uint64_t id)
{
    return (unsigned)(id % SLOTS);
}
static inline bool keys_have(struct keys k, unsigned slot)
{
    return slot >= k.from && slot < k.upto;
}

extern const char *const sim_names[NODES];
uint64_t sim_below(struct sim *s, uint64_t n);
bool sim_chance(struct sim *s, unsigned percent);
uint64_t sim_clock(const struct sim *s, unsigned node); /* the node's own CLOCK_BOOTTIME */
/* On the network: late, lost or twice. Not `from` or `to` a node that is cut off. */
void sim_send(struct sim *s, const struct event *e, unsigned a, unsigned b);
void sim_trouble_in_sync(struct sim *s, const struct event *e);
void sim_post(struct sim *s, const struct event *e, uint64_t delay);
void sim_fail(struct sim *s, const char *why);
uint64_t sim_order(struct sim *s, unsigned node);                       /* its number */
const struct order *sim_order_of(const struct sim *s, uint64_t number); /* NULL: it is lost */
extern const char *const sim_bounds[SLOTS];                             /* where a slot begins */
const struct dir_partition *sim_at(const struct sim *s, unsigned slot);
/* Of "k": that which the tests of one partition are about, and the part that moves. */
const struct dir_partition *sim_partition(const struct sim *s);
struct keys sim_keys(struct slice start, struct slice end, bool end_open);
struct keys sim_keys_of(const struct dir_partition *p);
unsigned sim_seat(const struct dir_partition *p, unsigned proc);
struct copy *sim_copy(struct sim *s, const struct dir_partition *p, unsigned node, uint64_t id);
unsigned sim_node_of(const struct sim *s, uint64_t id); /* NODES: none */
/* After each command: leases, checks. */
void sim_commanded(struct sim *s);
/* A whole run, in pieces. */
void sim_begin(struct sim *s, uint64_t seed, enum movement_profile p, enum movement_mutant m);
/* The primary has taken so many writes before the run; before anything else. */
void sim_fill(struct sim *s, uint64_t writes);
void sim_turn(struct sim *s);
void sim_heal(struct sim *s);
void sim_change_leader(struct sim *s);
void sim_end_session(struct sim *s, unsigned node, dir_rev session);
void sim_judge(struct sim *s);
void sim_close(struct sim *s);

/* --- movement_leader.c --- */
const struct dir_operation *leader_operation(const struct sim *s); /* the last that was started */
struct leader_start {
    enum dir_operation_kind kind;
    const struct dir_partition *partition; /* NULL: that of "k" */
    const char *from;                      /* NULL: the primary's */
    unsigned to;
    struct keys keys; /* only these; none: all */
};
const struct dir_result *leader_start(struct sim *s, const struct leader_start *of);
/* What it is about now; NULL: it is gone. */
const struct dir_partition *leader_partition(const struct sim *s, const struct dir_operation *o);
struct keys leader_keys(const struct sim *s, const struct dir_operation *o); /* that move */
const struct dir_result *leader_finish(struct sim *s, bool back);
void leader_policy(struct sim *s, bool reverse);
const struct dir_result *leader_verb(struct sim *s, Cadastre__OperationVerbKind verb);
const struct dir_result *leader_timeout(struct sim *s, const struct event *e);
const struct dir_result *leader_report(struct sim *s, const struct event *e);
const struct dir_result *leader_put(struct sim *s, unsigned node, uint64_t previous);
void leader_duty(struct sim *s, const struct event *e);
struct limits {
    uint64_t stage_s, dual_write_s, fence_s, window_s;
};
void leader_settings(struct sim *s, const struct limits *l);
struct event leader_timer(const struct sim *s); /* what its timer would propose now */
void leader_turn(struct sim *s);

/* --- movement_checks.c --- */
void check_command(struct sim *s);
void check_acknowledged(struct sim *s, const struct hold *h, uint32_t position, uint64_t id);
/* A replica was called in sync. */
void check_counted(struct sim *s, unsigned seat, uint8_t added);

/* --- movement_copy.c --- */
struct copy *copy_find(struct disk *d, uint64_t partition, uint64_t id); /* of id 0 NULL */
/* The same, or an empty one; NULL: no room. */
struct copy *copy_make(struct disk *d, uint64_t partition, uint64_t id, struct keys keys);
void copy_delete(struct copy *c);
/* What is there already stays. */
void copy_store(struct copy *c, uint32_t position, struct entry e);
void copy_cut(struct copy *c, uint32_t len);
uint64_t copy_sum(const struct copy *c, uint32_t end, struct keys keys);
struct entry copy_within(struct entry e, struct keys keys); /* or only its position */
/* What is granted instead of a partition that was here is made from what it had. */
void copy_divide(struct sim *s, struct disk *d, const struct order *o);

/* --- movement_node.c --- */
bool node_may_write(const struct sim *s, unsigned seat);
bool node_holds(const struct sim *s, unsigned seat); /* may acknowledge what it has admitted */
void node_turn(struct sim *s, unsigned proc);
/* epoch 0: the one that it has. */
void node_client(struct sim *s, unsigned proc, unsigned slot, uint64_t epoch);
void node_event(struct sim *s, const struct event *e);
void node_stop(struct sim *s, unsigned seat);
void node_crash(struct sim *s, unsigned proc);
void node_acknowledge(struct sim *s, unsigned seat);

/* --- movement_agent.c --- */
void agent_take(struct sim *s, unsigned seat, const struct assignment *w);
void agent_duties(struct sim *s, unsigned proc);
void agent_turn(struct sim *s, unsigned seat);
void agent_event(struct sim *s, const struct event *e);
/* A write was assigned the last position: the destination is to have it too. */
void agent_written(struct sim *s, unsigned seat, uint32_t position);
bool agent_counted(const struct hold *h, uint32_t end);

#endif
