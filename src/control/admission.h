/* SPDX-License-Identifier: Apache-2.0 */
/* Which queued operations a leader proposes to admit, and in which order: by class, lifted while
 * they wait, then by id. Pure but for `admission.offset`; apply decides again.
 *
 * Nobody starves: waiting lifts routine work up to just below recovery, and once it has waited for
 * ADMISSION_STARVED_MS nothing behind it takes what it waits for. */
#ifndef CONTROL_ADMISSION_H
#define CONTROL_ADMISSION_H

#include "directory/budget.h"

enum {
    ADMISSION_AGE_MS = 60000,                            /* so long a wait lifts an operation by */
    ADMISSION_AGE_CLASS = 50,                            /* so much, */
    ADMISSION_AGED_MAX = DIR_CLASS_UNDER_REPLICATED - 1, /* at the most to here */
    ADMISSION_STARVED_MS = 300000,
    ADMISSION_KEPT_MAX = 16,     /* budgets kept for the starved; when there are more, all wait */
    ADMISSION_LOOKED_AT = 1024,  /* operations judged each time: the first ones, */
    ADMISSION_ALWAYS = 256,      /* and of those behind them each in its turn */
    ADMISSION_BACKOFF_MS = 1000, /* before a second try; twice as long before each further one */
    ADMISSION_BACKOFF_MAX_MS = 600000
};

struct admission_candidate {
    const struct dir_operation *o; /* queued; borrowed from the view */
    uint64_t waited_ms;            /* as this leader has counted */
    bool asked;                    /* proposed a moment ago: not again */
    uint64_t tag;                  /* the caller's */
};

struct admission {
    uint64_t offset; /* where the next look behind the first ones begins */
};

/* What it is worth by now. */
uint32_t admission_class(const struct dir_operation *o, uint64_t waited_ms);
/* How long it waits in the queue when it has been put there so often. */
uint64_t admission_backoff_ms(uint32_t times);
/* Sorts the candidates, and writes at most `max` that should be admitted now. Returns how many. */
unsigned admission_choose(struct admission *a,
                          const struct dir_view *v,
                          struct admission_candidate *candidates,
                          uint64_t count,
                          const struct admission_candidate **ret_chosen,
                          unsigned max);

#endif
