/* SPDX-License-Identifier: Apache-2.0 */
/* One cell of the crash table on the real state machine: simulated nodes carry an operation to the
 * stage, the event happens, what came of it is compared with the table, and the run goes on until
 * the operation ends or asks for a person. */
#ifndef TESTS_CRASH_RUN_H
#define TESTS_CRASH_RUN_H

#include "tests/sim/crash_table.h"
#include "tests/sim/movement_internal.h"

#include <stddef.h>

struct crash_case {
    enum crash_kind kind;
    bool replica;     /* one is in sync beside the primary */
    struct keys keys; /* of the part that moves; none: all of it */
    enum crash_event event;
    unsigned stage_index;
    struct crash_expect expect;
    uint64_t seed;       /* the order of messages, and where in the stage the event comes */
    bool leader_changes; /* another leader is elected while it happens */
};

/* Writes what is wrong into `flaw`, or "". */
void crash_run(const struct crash_case *c, char *flaw, size_t size);

#endif
