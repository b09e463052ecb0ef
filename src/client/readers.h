/* SPDX-License-Identifier: Apache-2.0 */
/* Readers that hold something for an instant, and a writer that waits until all who may hold the
 * old one have left: what RCU does, for threads that nobody registers. C11 atomics alone, so that
 * the sanitizer sees it and nothing is shared with a program's own liburcu.
 *
 * A reader counts itself in one of two counters of its thread's stripe and only then reads the
 * published pointer; the writer publishes, then waits to see every counter at zero once. It moves
 * readers to the other counter first, so that a stream of new ones can't keep it waiting. */
#ifndef CLIENT_READERS_H
#define CLIENT_READERS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { CL_STRIPES = 64 };

struct cl_stripe {
    _Alignas(64) _Atomic uint64_t active[2];
};

struct cl_readers {
    _Atomic unsigned phase;
    unsigned step, old; /* the writer's: of the waiting under way; step 0: none */
    struct cl_stripe stripes[CL_STRIPES];
};

/* Of the calling thread, the same from then on. */
unsigned cl_stripe_new(void);

static inline _Atomic uint64_t *cl_readers_enter(struct cl_readers *r)
{
    static _Thread_local unsigned mine; /* its number + 1 */
    unsigned stripe = mine;
    if (stripe == 0) {
        mine = stripe = cl_stripe_new() + 1;
    }
    unsigned phase = atomic_load_explicit(&r->phase, memory_order_relaxed) & 1;
    _Atomic uint64_t *active = &r->stripes[stripe - 1].active[phase];
    atomic_fetch_add(active, 1); /* seq_cst: before the load of what is published */
    return active;
}

static inline void cl_readers_leave(_Atomic uint64_t *active)
{
    atomic_fetch_sub_explicit(active, 1, memory_order_release);
}

/* For the writer alone. Begins to wait for the readers of what was published before the call. */
void cl_readers_begin(struct cl_readers *r);
/* Have they left? Does not wait. True as well when nobody waits. */
bool cl_readers_left(struct cl_readers *r);
/* Waits until they have; not from a reader. */
void cl_readers_wait(struct cl_readers *r);

#endif
