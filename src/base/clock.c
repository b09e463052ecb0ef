/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#include <stdio.h>
#include <time.h>

static uint64_t read_ns(clockid_t id)
{
    struct timespec ts;
    (void)clock_gettime(id, &ts); /* can't fail for the ids below on Linux */
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

uint64_t clock_wall_ms(void)
{
    return read_ns(CLOCK_REALTIME) / 1000000u;
}

uint64_t clock_mono_ms(void)
{
    return read_ns(CLOCK_MONOTONIC) / 1000000u;
}

uint64_t clock_mono_ns(void)
{
    return read_ns(CLOCK_MONOTONIC);
}

uint64_t clock_boot_ms(void)
{
    return read_ns(CLOCK_BOOTTIME) / 1000000u;
}

uint64_t clock_thread_cpu_ms(void)
{
    return read_ns(CLOCK_THREAD_CPUTIME_ID) / 1000000u;
}

void clock_rfc3339(uint64_t wall_ms, char out[CLOCK_RFC3339_SIZE])
{
    time_t seconds = (time_t)(wall_ms / 1000);
    struct tm tm;
    char text[24] = "1970-01-01T00:00:00";
    if (gmtime_r(&seconds, &tm) != NULL) {
        (void)strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm);
    }
    (void)snprintf(out, CLOCK_RFC3339_SIZE, "%s.%03uZ", text, (unsigned)(wall_ms % 1000));
}
