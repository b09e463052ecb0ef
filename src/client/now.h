/* SPDX-License-Identifier: Apache-2.0 */
/* CLOCK_BOOTTIME for the data path: read once a tick of the kernel's coarse clock, because reading
 * it costs more than a mutex. A process that was stopped, or a machine that slept, is told right:
 * the coarse clock has ticked by the time a thread runs again. */
#ifndef CLIENT_NOW_H
#define CLIENT_NOW_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* A tick at the slowest usual rate (100 Hz), and another one for a late update. */
enum { CL_NOW_ERROR_MS = 20 };

/* clock_gettime, without the way through the C library where the kernel's own can be found. Set
 * before main(). */
extern int (*cl_clock)(clockid_t id, struct timespec *ret_time);

/* Names the present tick. */
static inline uint64_t cl_tick(void)
{
    struct timespec now;
    (void)cl_clock(CLOCK_MONOTONIC_COARSE, &now); /* can't fail on Linux */
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Milliseconds; behind by less than CL_NOW_ERROR_MS. */
uint64_t cl_now_ms(void);

/* A moment of boot time that has not come yet, as far as one looked: whoever finds in a tick that
 * it is still ahead writes down the tick, and spares the others of the same tick to look. */
struct cl_until {
    _Atomic uint64_t at_ms;
    _Atomic uint64_t tick; /* in which it was ahead by more than CL_NOW_ERROR_MS */
};

bool cl_until_look(struct cl_until *u, uint64_t tick);

/* Is it still ahead? No is said up to CL_NOW_ERROR_MS too early and never too late. */
static inline bool cl_until_ahead(struct cl_until *u)
{
    uint64_t tick = cl_tick();
    return tick == atomic_load_explicit(&u->tick, memory_order_relaxed) || cl_until_look(u, tick);
}

void cl_until_set(struct cl_until *u, uint64_t at_ms);

static inline uint64_t cl_until_get(const struct cl_until *u)
{
    return atomic_load_explicit(&u->at_ms, memory_order_relaxed);
}

#endif
