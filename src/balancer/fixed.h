/* SPDX-License-Identifier: Apache-2.0 */
/* Fixed point for decisions: Q32.32 in 64 bits, so that every server and every build gets the same
 * answer. Results that do not fit saturate; division by zero gives the largest value. */
#ifndef BALANCER_FIXED_H
#define BALANCER_FIXED_H

#include <stdint.h>

typedef uint64_t bal_q32;
__extension__ typedef unsigned __int128 bal_u128;

#define BAL_ONE          (UINT64_C(1) << 32)
#define BAL_Q(num, den)  ((bal_q32)(((uint64_t)(num) << 32) / (uint64_t)(den)))
#define BAL_SATURATED    UINT64_MAX
#define BAL_PERCENT(num) BAL_Q(num, 100)

static inline uint64_t bal_clamp128(bal_u128 v)
{
    return v > UINT64_MAX ? BAL_SATURATED : (uint64_t)v;
}

/* v * q. */
static inline uint64_t bal_scale(uint64_t v, bal_q32 q)
{
    return bal_clamp128(((bal_u128)v * q) >> 32);
}

/* a / b. */
static inline bal_q32 bal_ratio(uint64_t a, uint64_t b)
{
    if (b == 0) {
        return a == 0 ? 0 : BAL_SATURATED;
    }
    return bal_clamp128(((bal_u128)a << 32) / b);
}

/* What bal_by_inverse multiplies with in place of a division by `b`. */
static inline uint64_t bal_inverse(uint64_t b)
{
    return b <= 1 ? UINT64_MAX : UINT64_MAX / b;
}

/* a / b for inverse = bal_inverse(b), a little low. */
static inline bal_q32 bal_by_inverse(uint64_t a, uint64_t inverse)
{
    return bal_clamp128(((bal_u128)a * inverse) >> 32);
}

static inline uint64_t bal_less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static inline uint64_t bal_min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t bal_max(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static inline uint64_t bal_more(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? BAL_SATURATED : a + b;
}

/* The square root of q, which is below 2^32 (as a number, 1). */
static inline bal_q32 bal_sqrt(bal_q32 q)
{
    uint64_t v = q >= BAL_ONE ? UINT64_MAX : q << 32, root = 0;
    for (uint64_t bit = UINT64_C(1) << 62; bit != 0; bit >>= 2) {
        if (v >= root + bit) {
            v -= root + bit;
            root = (root >> 1) + bit;
        } else {
            root >>= 1;
        }
    }
    return root;
}

/* Breaks ties in the same way whatever the order of the input. */
static inline uint64_t bal_tie(uint64_t seed, uint64_t partition, uint64_t node)
{
    uint64_t z =
        seed + partition * UINT64_C(0x9e3779b97f4a7c15) + node * UINT64_C(0xd1b54a32d192ed03);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

#endif
