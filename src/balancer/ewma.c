/* SPDX-License-Identifier: Apache-2.0 */
#include "balancer/ewma.h"

#include "base/assert.h"

enum { FRACTION_BITS = 24, MANTISSA_BITS = 26 };

/* 2^(-1/2), 2^(-1/4), … 2^(-1/2^24), times 2^32. */
static const uint32_t powers[FRACTION_BITS] = {
    0xb504f334, 0xd744fccb, 0xeac0c6e8, 0xf5257d15, 0xfa83b2db, 0xfd3e0c0d, 0xfe9e115c, 0xff4ecb59,
    0xffa75652, 0xffd3a752, 0xffe9d2b3, 0xfff4e91c, 0xfffa747f, 0xfffd3a3b, 0xfffe9d1d, 0xffff4e8e,
    0xffffa747, 0xffffd3a3, 0xffffe9d2, 0xfffff4e9, 0xfffffa74, 0xfffffd3a, 0xfffffe9d, 0xffffff4f,
};

uint64_t ewma_scale(uint64_t value, uint64_t factor)
{
    uint64_t low = (value & 0xffffffff) * factor;
    if (factor == EWMA_ONE) {
        return value;
    }
    return (value >> 32) * factor + (low >> 32) + ((low >> 31) & 1);
}

uint64_t ewma_keep(uint64_t elapsed_ms, uint64_t half_life_ms)
{
    uint64_t whole = elapsed_ms / half_life_ms, rest = elapsed_ms % half_life_ms;
    uint64_t factor = EWMA_ONE;
    ASSERT(half_life_ms > 0 && half_life_ms < UINT64_C(1) << 38);
    if (whole >= 32) {
        return 0;
    }
    uint64_t fraction = ((rest << FRACTION_BITS) + half_life_ms / 2) / half_life_ms;
    if (fraction >> FRACTION_BITS != 0) {
        fraction = 0;
        whole++;
    }
    for (int bit = 0; fraction != 0; bit++) {
        uint64_t mask = UINT64_C(1) << (FRACTION_BITS - 1 - bit);
        if ((fraction & mask) != 0) {
            factor = ewma_scale(factor, powers[bit]);
            fraction &= ~mask;
        }
    }
    return factor >> whole;
}

uint64_t ewma_weight(uint64_t elapsed_ms, uint64_t covered_ms, uint64_t half_life_ms)
{
    uint64_t fresh = EWMA_ONE - ewma_keep(elapsed_ms, half_life_ms);
    uint64_t all = EWMA_ONE - ewma_keep(covered_ms, half_life_ms);
    if (fresh >= all) {
        return EWMA_ONE;
    }
    return ((fresh << 31) / all) << 1;
}

uint64_t ewma_mix(uint64_t mean, uint64_t sample, uint64_t weight)
{
    return sample >= mean ? mean + ewma_scale(sample - mean, weight)
                          : mean - ewma_scale(mean - sample, weight);
}

uint32_t ewma_pack(uint64_t value)
{
    uint32_t shift = 0;
    if (value >> MANTISSA_BITS != 0) {
        shift = 64 - (uint32_t)__builtin_clzll(value) - MANTISSA_BITS;
        uint64_t top = value >> shift;
        if (((value >> (shift - 1)) & 1) != 0 && ++top >> MANTISSA_BITS != 0) {
            top >>= 1;
            shift++;
        }
        value = top;
    }
    return shift << MANTISSA_BITS | (uint32_t)value;
}

uint64_t ewma_unpack(uint32_t packed)
{
    return (uint64_t)(packed & ((UINT32_C(1) << MANTISSA_BITS) - 1)) << (packed >> MANTISSA_BITS);
}
