/* SPDX-License-Identifier: Apache-2.0 */
/* CLOCK_BOOTTIME, cheaply: read at most once a tick of the kernel's coarse clock and thread. */
#ifndef CLIENT_NOW_H
#define CLIENT_NOW_H

#include <stdint.h>

/* A tick at the slowest usual rate (100 Hz), and another one for a late update. */
enum { CL_NOW_ERROR_MS = 20 };

/* Milliseconds; behind by less than CL_NOW_ERROR_MS. A process that was stopped, or a machine that
 * slept, gets the time after it: the coarse clock has ticked by the time a thread runs again. */
uint64_t cl_now_ms(void);

#endif
