/* SPDX-License-Identifier: Apache-2.0 */
#include "client/readers.h"

#include <sched.h>
#include <stddef.h>
#include <time.h>

enum { SPINS = 100 };

unsigned cl_stripe_new(void)
{
    static _Atomic unsigned next;
    return atomic_fetch_add_explicit(&next, 1, memory_order_relaxed) % CL_STRIPES;
}

static bool is_empty(struct cl_readers *r)
{
    for (size_t i = 0; i < CL_STRIPES; i++) {
        if (atomic_load(&r->stripes[i].active[r->old]) != 0) {
            return false;
        }
    }
    return true;
}

static void flip(struct cl_readers *r)
{
    r->old = atomic_fetch_add(&r->phase, 1) & 1;
    r->step++;
}

void cl_readers_begin(struct cl_readers *r)
{
    r->step = 0;
    flip(r);
}

bool cl_readers_left(struct cl_readers *r)
{
    while (r->step > 0 && is_empty(r)) {
        if (r->step == 2) {
            r->step = 0;
        } else {
            flip(r); /* a reader may have chosen its counter before the first one */
        }
    }
    return r->step == 0;
}

void cl_readers_wait(struct cl_readers *r)
{
    for (unsigned spins = 0; !cl_readers_left(r); spins++) {
        if (spins < SPINS) {
            (void)sched_yield();
        } else {
            struct timespec pause = {0, 50000};
            (void)nanosleep(&pause, NULL);
        }
    }
}
