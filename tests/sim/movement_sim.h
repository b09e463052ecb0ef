/* SPDX-License-Identifier: Apache-2.0 */
/* Data nodes in virtual time, on a real directory and a real leader's lease table: sessions,
 * leases, replication, failover, and moves stage by stage. The nodes are models that behave as
 * docs/movement.md says; each mutant is one way not to. One seed is one run, and the same seed is
 * the same run. */
#ifndef TESTS_MOVEMENT_SIM_H
#define TESTS_MOVEMENT_SIM_H

#include <stdbool.h>
#include <stdint.h>

#define MOVEMENT_MUTANTS(X)                                                                        \
    X(write_without_lease)    /* admits and acknowledges after its lease has run out */            \
    X(lease_from_receipt)     /* counts a lease from the answer's receipt */                       \
    X(order_of_any_revision)  /* obeys orders older than one it acted on */                        \
    X(order_of_any_session)   /* obeys orders made for another session */                          \
    X(ack_alone)              /* acknowledges without its replicas */                              \
    X(replica_not_cut)        /* a replica keeps its own tail under a new primary */               \
    X(change_of_any_epoch)    /* a replica takes changes of an old primary */                      \
    X(previous_unproven)      /* names its previous session although that process may run */       \
    X(unconfirmed_beat)       /* a deposed leader answers heartbeats */                            \
    X(answer_while_ending)    /* heartbeats are answered while the end is on its way */            \
    X(no_allowance)           /* the leader counts the lease without drift and delay */            \
    X(new_leader_at_once)     /* a new leader does not count anew */                               \
    X(in_sync_before_counted) /* a primary reports a replica in sync before it counts it */        \
    X(asked_and_forgotten)    /* a primary stops counting a replica that may be in sync by now */  \
    X(in_sync_replayed)       /* a late change of the in-sync set is taken */

/* Of moves: those of the nodes, then those of the directory. */
#define MOVEMENT_MOVE_MUTANTS(X)                                                                   \
    X(lease_not_checked)     /* the source of a move writes on after its lease */                  \
    X(stale_write_taken)     /* a node takes a write that carries an earlier epoch */              \
    X(attempt_unchecked)     /* chunks, changes and acknowledgements of any attempt count */       \
    X(dual_ack_not_awaited)  /* the source acknowledges without the destination */                 \
    X(active_before_sending) /* the source reports active and counts the destination later */      \
    X(applied_above_hole)    /* the destination reports its highest position as applied */         \
    X(sums_of_snapshot)      /* both sides sum at the snapshot's position, not at the named one */ \
    X(fence_admits)          /* the source admits and acknowledges after it reported its fence */  \
    X(cleanup_of_grant)      /* a cleanup deletes the copy of the node's grant */                  \
    X(duty_without_copy)     /* a cleanup deletes whichever candidate there is */                  \
    X(candidate_reused)      /* a candidate of before is taken for the present one */              \
    X(report_of_any_attempt) /* a report of another attempt counts */                              \
    X(fence_not_awaited)     /* the cutover does not wait for the source's fence */                \
    X(sums_ignored)          /* unequal sums pass */                                               \
    X(part_not_cut)          /* after the cutover of a part the source takes its keys on */        \
    X(rest_not_kept)         /* who held all of it keeps only the first part */                    \
    X(back_not_caught_up)    /* on the way back the old copy is said to have what it lacks */      \
    X(retry_keeps_candidate) /* a retry goes on with the candidate that was to be deleted */       \
    X(transfer_unfenced)     /* a transfer does not wait for the fence */                          \
    X(in_sync_of_any_session) /* a replica counts by what its node said in an earlier session */

enum movement_mutant {
    MOVEMENT_AS_WRITTEN,
#define X(name) MOVEMENT_##name,
    MOVEMENT_MUTANTS(X) MOVEMENT_MUTANTS_OF_MOVES, /* no mutant: those of moves follow */
    MOVEMENT_MOVE_MUTANTS(X)
#undef X
        MOVEMENT_MUTANT_COUNT
};

enum movement_profile {
    MOVEMENT_REPLICAS, /* three nodes, two of them in sync; nothing moves */
    MOVEMENT_MOVES,    /* three nodes, one copy that moves */
    MOVEMENT_MIXED     /* four nodes, one in sync; the primary moves */
};

/* What happened in a run. */
struct movement_run {
    const char *violation; /* NULL: none */
    uint64_t accepted, acknowledged, refused, commands, lapses, failovers, regrants, faults;
    uint64_t insync_changes, stale_orders, stale_writes;
    uint64_t moves, cutovers, forwards, aborts, backs, stale_reports, gaps, mismatches, cleanups;
    uint64_t promoted, parts, retries, returns, transfers;
    bool recovered; /* with all faults over, a primary took and acknowledged writes again */
    bool ended;     /* and operations that ran then have ended */
};

const char *movement_mutant_name(enum movement_mutant m);
struct movement_run
movement_run(uint64_t seed, enum movement_profile profile, enum movement_mutant mutant);

#endif
