/* SPDX-License-Identifier: Apache-2.0 */
/* A run from a live state. For src/simulate/whatif*.c alone. */
#ifndef SIMULATE_WHATIF_INTERNAL_H
#define SIMULATE_WHATIF_INTERNAL_H

#include "simulate/internal.h"

#include "control/balancer.h"
#include "simulate/whatif.h"

struct fm_live {
    const struct whatif *w;
    const struct whatif_state *s;
    struct whatif_answer *out;
    struct loads *loads;           /* a copy; owned */
    struct scenario_group *groups; /* what nodes can hold, by their index; owned */
    struct balancer_births births;
    uint32_t present;          /* nodes that were there before the changes */
    bool off;                  /* without the planner */
    uint64_t active_ms;        /* when anything last began or ended */
    uint64_t waits_ms;         /* until then nodes that are away, or windows, are waited for */
    uint64_t settled_after_ms; /* so long without anything is the end */
};

/* whatif_begin.c: the fork, and the changes. */
enum err_code fm_live_begin(struct fm *x, struct err *e) MUST_CHECK;

/* whatif_seen.c */
/* The fleet as the planner sees it now; false after a finding. */
bool fm_live_fleet(struct fm *x, struct bal_fleet *f);
/* An operation that was there, or has begun, among the steps. */
void fm_live_step(struct fm *x, const struct dir_operation *o);
void fm_live_before(struct fm *x);
void fm_live_after(struct fm *x);
void fm_live_advise(struct fm *x, const struct bal_proposal *b);

#endif
