/* SPDX-License-Identifier: Apache-2.0 */
/* An explicit-state model of leases, epochs and movement: one partition, three nodes (S holds it, D
 * is to get it, R is a synchronous replica), a second process of S, up to three writes, one message
 * that is late or comes again, and a budget of faults. docs/protocol-model.md says what each step
 * and each mutant stands for.
 *
 * A state is bytes only, so that it is hashed and compared as memory. Orders carry no revision: of
 * the revision rule only one comparison matters, "has the receiver acted on a newer order than the
 * late one", and `late.stale` is that bit. */
#ifndef TESTS_MODEL_H
#define TESTS_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { NODES = 3, PROCS = 4, WRITES = 3 };
enum who {
    S,
    D,
    R,
    OLD,
    NOBODY
}; /* OLD: an earlier process of S that still runs; it shares S's disk. */
enum stage { IDLE, CATCH_UP, DUAL_WRITE, VALIDATE, FENCE, CUTOVER, WINDOW };
enum write_state { FREE, PENDING, ACKED, UNKNOWN };
/* A heartbeat: waits for confirmation, its answer is under way, the same but sent too long ago to
 * give a lease. */
enum beat { NO_BEAT, BEAT_WAITS, BEAT_ANSWERED, BEAT_TOO_OLD };
enum report_kind {
    NO_REPORT,
    ACTIVE,
    APPLIED,
    EQUAL,
    UNEQUAL,
    FENCED,
    FINAL,
    IN_SYNC,
    OUT_OF_SYNC
};
enum late_kind { NOTHING, LATE_ORDER, LATE_REPORT, LATE_DUAL, LATE_ACK, LATE_CLEANUP };
enum flaw { FINE, WAY_FORWARD_LOST, OWN_COPY_DELETED, SAME_EPOCH_TWICE, CUTOVER_BEHIND };

/* Marks in a log beside a write's number + 1. */
enum { HOLE = 0, FILLED = 0x40, DAMAGED = 0x80 };

struct order {
    uint8_t node, sess, epoch, fenced, must, att, source, dual, copy, version, active, pad;
};

struct report {
    uint8_t kind, node, sess, att, epoch, pos, about, version;
};

struct late {
    uint8_t kind, stale, write, att, epoch, copy, node, sess;
    struct order order;
    struct report report;
};

struct proc {
    uint8_t up, sess, lease, beat, epoch, fenced, must, counts, att, source, dual, version;
};

struct disk {
    uint8_t log[WRITES], copy, att, follows;
};

struct write {
    uint8_t state, by, epoch, sess, pos, acks;
};

struct directory {
    uint8_t home, epoch, grant,
        released; /* The session that holds authority over `home`'s copy, and whether it let go. */
    uint8_t stage, att, source, dest, joined, active, equal, from, named, final, copy, copies, ops;
    uint8_t sync, version; /* The synchronous replicas, and how often that set changed. */
    uint8_t sess[NODES], live[NODES], ending[NODES], duty[NODES];
};

struct state {
    struct directory d;
    struct proc p[PROCS];
    struct disk disk[NODES];
    struct write w[WRITES];
    struct late late;
    uint8_t faults, elected, flaw;
};

#define MUTANTS(X)                                                                                 \
    X(write_without_lease, "1", LEASES, "writes are admitted after the lease has run out")         \
    X(lease_from_receipt, "1", LEASES, "a lease is counted from the answer's receipt")             \
    X(unconfirmed_beat, "2", LEASES, "a leader answers heartbeats that no quorum confirmed")       \
    X(no_drift_allowance, "3", LEASES, "a session is counted as lapsed while its lease runs")      \
    X(new_leader_at_once, "3", LEASES, "a new leader counts from before its own first moment")     \
    X(end_with_beat_waiting, "3", LEASES,                                                          \
      "the end is proposed while a heartbeat waits, which is answered")                            \
    X(answer_while_ending, "3", LEASES, "heartbeats are answered while the end is proposed")       \
    X(revived_session, "4", LEASES, "a heartbeat brings an ended session back")                    \
    X(released_before_stop, "4", LEASES,                                                           \
      "a session is released before its agent has stopped writing")                                \
    X(ended_is_released, "4", TWINS, "a new registration releases what the old session held")      \
    X(same_epoch_regrant, "4", MOVES, "a new session gets its partitions at the old epoch")        \
    X(order_of_any_session, "5", TWINS, "an agent takes orders made for another session")          \
    X(order_of_any_revision, "5", MOVES, "an agent takes orders older than one it acted on")       \
    X(ack_across_grants, "6", MOVES, "a write is acknowledged under a later grant")                \
    X(change_of_any_epoch, "7", MOVES, "a new primary takes dual writes of the old one")           \
    X(primary_drops_alone, "9", MOVES, "the primary stops counting D by itself")                   \
    X(in_sync_replayed, "9", REPLICAS, "a change of the in-sync set is taken again later")         \
    X(in_sync_before_counted, "9", REPLICAS, "a replica is reported in sync before it is counted") \
    X(failover_to_async, "10", REPLICAS, "a failover takes a replica that is not in sync")         \
    X(forward_unjoined, "10", MOVES, "D is given authority without being joined")                  \
    X(forward_unvalidated, "10", MOVES, "D is given authority without equal sums")                 \
    X(back_after_lapse, "10", MOVES, "a time-out goes back though only D can go on")               \
    X(lost_copy_in_sync, "registration", REPLICAS, "a replica that lost its copy stays in sync")   \
    X(replica_not_cut, "11", REPLICAS, "a replica keeps its own tail under a new primary")         \
    X(cleanup_of_any_copy, "12", RETURNS, "a cleanup deletes whichever copy is there")             \
    X(report_of_any_attempt, "stages", MOVES, "a report of an older attempt counts")               \
    X(dual_of_any_attempt, "stages", RETURNS,                                                      \
      "D takes, and S counts, dual writes of another attempt")                                     \
    X(applied_by_highest, "CATCH_UP", POSITIONS,                                                   \
      "applied_position ignores holes, and sums do not show it")                                   \
    X(takeover_cuts_at_hole, "CATCH_UP", MOVES, "a new primary drops what lies above a hole")      \
    X(active_before_sending, "DUAL_WRITE", MOVES, "S reports active before it counts D")           \
    X(joined_without_active, "DUAL_WRITE", MOVES, "D's position alone sets the mark")              \
    X(sums_at_any_position, "VALIDATE", MOVES,                                                     \
      "sums count at another position than the named one")                                         \
    X(cutover_unfenced, "FENCE", MOVES, "the cutover does not wait for the fence")                 \
    X(fence_admits, "FENCE", MOVES, "S admits writes after it said that it is fenced")             \
    X(final_ignored, "CUTOVER", MOVES, "the cutover does not wait for final_position")             \
    X(sums_ignored, "CUTOVER", MOVES, "unequal sums pass VALIDATE and CUTOVER")                    \
    X(back_keeps_epoch, "leaving", MOVES, "leaving FENCE keeps S's epoch, and so its fence")       \
    X(back_keeps_marks, "leaving", MOVES, "going back keeps joined and validated")                 \
    X(stuck_in_cutover, "leaving", MOVES, "CUTOVER can't be left but forward")                     \
    X(destination_restart_ignored, "registration", MOVES,                                          \
      "D registers without its copy, and the attempt goes on")                                     \
    X(failover_keeps_operation, "other change", MIXED, "a failover leaves the attempt as it is")   \
    X(failover_in_window, "WINDOW", MOVES, "the old source is a failover's target")

enum mutant {
#define X(name, rule, scenario, text) MUT_##name,
    MUTANTS(X)
#undef X
        MUTANT_COUNT,
    NO_MUTANT = MUTANT_COUNT
};

/* What a scenario lets happen. */
struct scenario {
    const char *name;
    uint8_t writes, faults, ops, versions; /* How many of each there may be. */
    bool beats;    /* Heartbeats in steps of their own; else a renewal is one step. */
    bool replicas; /* R is there. */
    bool twins;    /* A second process of S may start beside the first. */
    bool late;     /* A message may be late and come again. */
    bool damage;   /* A chunk may arrive damaged. */
};

struct model {
    const struct scenario *bounds;
    enum mutant mutant;
};

extern struct model model;

static inline bool mutated(enum mutant m)
{
    return model.mutant == m;
}

/* --- agent.c: what the process of a node does --- */
enum who model_node(unsigned proc);
unsigned model_highest(const struct disk *disk); /* One above the highest position that is held. */
unsigned model_prefix(const struct disk *disk);  /* Positions held without a hole from the first. */
bool model_may_write(const struct state *s, unsigned proc);
void model_stop(struct state *s,
                unsigned proc); /* Its grant ends: what waits is answered "outcome unknown". */
void model_obey(struct state *s, const struct order *order);
/* What the node can report now. Returns whether there is anything to say. */
bool model_report(const struct state *s,
                  enum report_kind kind,
                  unsigned node,
                  struct report *ret_report);
bool model_clean_up(struct state *s,
                    unsigned node,
                    uint8_t copy); /* Returns whether anything was deleted. */
void model_follow(struct disk *replica,
                  const struct disk *primary,
                  uint8_t epoch,
                  const struct state *s);

/* --- control.c: the directory's commands. Each returns whether it was accepted; refused, the state
 * is as before. --- */
bool model_moving(const struct state *s);
struct order model_order(const struct state *s, unsigned node);
bool model_take(struct state *s, const struct report *report);
bool model_start(struct state *s);
bool model_dual_write(struct state *s);
bool model_back(struct state *s);
bool model_abort(struct state *s);
bool model_forward(struct state *s);
bool model_failover(struct state *s, unsigned node);
bool model_window_over(struct state *s);
void model_register(struct state *s, unsigned node);
void model_lapse(struct state *s, unsigned node);
bool model_regrant(struct state *s);
void model_cut_over(struct state *s);

/* --- steps.c, faults.c: everything that can happen next --- */
typedef void (*model_emit)(void *arg, const struct state *next, const char *label);
struct steps {
    const struct state *now;
    model_emit emit;
    void *arg;
    bool labels;
};
void model_say(struct steps *to, const struct state *next, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void model_steps(struct steps *to);
void model_faults(struct steps *to);

/* --- properties.c --- */
const char *model_violation(const struct state *s); /* NULL: none. */

/* --- explore.c --- */
struct verdict {
    const char *violation; /* NULL: none in the states that were seen. */
    bool complete;         /* Every reachable state was seen. */
    size_t states, depth;
};
void model_init(struct state *s);
/* Breadth first, so the trace printed with `trace` is a shortest one. */
struct verdict model_explore(size_t states_max, bool trace);

enum scenario_id { LEASES, TWINS, MOVES, REPLICAS, MIXED, RETURNS, POSITIONS, SCENARIO_COUNT };
struct mutant_row {
    const char *name, *rule, *text;
    enum scenario_id scenario;
};
extern const struct scenario model_scenarios[SCENARIO_COUNT];
extern const struct mutant_row model_mutants[MUTANT_COUNT];
extern const char *const model_stages[];
extern const char *const model_names[];

#endif
