/* SPDX-License-Identifier: Apache-2.0 */
/* Data nodes in virtual time, on a real directory and a real leader's lease table: sessions,
 * leases, replication, failover. The nodes are models that behave as docs/movement.md says; each
 * mutant is one way not to. One seed is one run, and the same seed is the same run. */
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

enum movement_mutant {
    MOVEMENT_AS_WRITTEN,
#define X(name) MOVEMENT_##name,
    MOVEMENT_MUTANTS(X)
#undef X
        MOVEMENT_MUTANT_COUNT
};

/* What happened in a run. */
struct movement_run {
    const char *violation; /* NULL: none */
    uint64_t accepted, acknowledged, refused, commands, lapses, failovers, regrants, faults;
    uint64_t insync_changes, stale_orders;
    bool recovered; /* with all faults over, a primary took and acknowledged writes again */
};

const char *movement_mutant_name(enum movement_mutant m);
struct movement_run movement_run(uint64_t seed, enum movement_mutant mutant);

#endif
