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

static void wait_for(_Atomic uint64_t *active)
{
    for (unsigned spins = 0; atomic_load(active) != 0; spins++) {
        if (spins < SPINS) {
            (void)sched_yield();
        } else {
            struct timespec pause = {0, 50000};
            (void)nanosleep(&pause, NULL);
        }
    }
}

void cl_readers_wait(struct cl_readers *r)
{
    for (unsigned turn = 0; turn < 2; turn++) {
        unsigned old = atomic_fetch_add(&r->phase, 1) & 1;
        for (size_t i = 0; i < CL_STRIPES; i++) {
            wait_for(&r->stripes[i].active[old]);
        }
    }
}
