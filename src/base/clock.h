/* SPDX-License-Identifier: Apache-2.0 */
/* The three clocks. Wall time is a label; waits and deadlines use the monotonic clock; leases use
 * boot time, which also counts a suspended machine's sleep. Any thread. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>

uint64_t clock_wall_ms(void);
uint64_t clock_mono_ms(void);
uint64_t clock_mono_ns(void);
uint64_t clock_boot_ms(void);
/* Processor time that the calling thread has used: no clock, but a bound on work. */
uint64_t clock_thread_cpu_ms(void);

/* "2026-11-30T11:52:02.123Z" (RFC 3339); `out` holds CLOCK_RFC3339_SIZE bytes. */
#define CLOCK_RFC3339_SIZE 32
void clock_rfc3339(uint64_t wall_ms, char out[CLOCK_RFC3339_SIZE]);

#endif
