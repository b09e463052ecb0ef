/* SPDX-License-Identifier: Apache-2.0 */
/* Exponentially decayed means over irregular intervals, in integers: two servers that are told the
 * same get the same to the last bit. Pure; any thread. */
#ifndef BALANCER_EWMA_H
#define BALANCER_EWMA_H

#include <stdint.h>

/* 1.0 as a factor. */
#define EWMA_ONE (UINT64_C(1) << 32)
/* Values are below this, so that a product with a factor fits. */
#define EWMA_VALUE_MAX (UINT64_MAX >> 1)

/* 2^(-elapsed/half_life) as a factor; within 2^-24 of it. `half_life_ms` > 0. */
uint64_t ewma_keep(uint64_t elapsed_ms, uint64_t half_life_ms);

/* How much a sample counts that ends `elapsed_ms` after the one before it, when the mean covers
 * `covered_ms` with this sample in it: (1 - 2^(-elapsed/h)) / (1 - 2^(-covered/h)). So the mean is
 * that of all samples so far, each weighted by its age; the first one counts wholly. */
uint64_t ewma_weight(uint64_t elapsed_ms, uint64_t covered_ms, uint64_t half_life_ms);

/* value * factor, rounded; factor <= EWMA_ONE. */
uint64_t ewma_scale(uint64_t value, uint64_t factor);
/* mean + (sample - mean) * weight. */
uint64_t ewma_mix(uint64_t mean, uint64_t sample, uint64_t weight);

/* A value in four bytes with 26 significant bits, for tables of millions: a means's own rounding at
 * each sample stays below 2^-27 of it. pack(unpack(p)) == p. */
uint32_t ewma_pack(uint64_t value);
uint64_t ewma_unpack(uint32_t packed);

#endif
