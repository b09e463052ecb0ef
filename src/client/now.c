/* SPDX-License-Identifier: Apache-2.0 */
#include "client/now.h"

#include "base/clock.h"

#include <time.h>

uint64_t cl_now_ms(void)
{
    static _Thread_local struct timespec tick = {-1, 0};
    static _Thread_local uint64_t boot_ms;
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC_COARSE, &now); /* can't fail on Linux */
    if (now.tv_nsec != tick.tv_nsec || now.tv_sec != tick.tv_sec) {
        boot_ms = clock_boot_ms();
        tick = now;
    }
    return boot_ms;
}
