/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hash.h"

#include <inttypes.h>
#include <stdio.h>
#include <xxhash.h>

uint64_t hash_xxh64(const void *data, size_t len)
{
    return XXH64(data, len, 0);
}

uint64_t hash_xxh3_64(const void *data, size_t len)
{
    return XXH3_64bits(data, len);
}

struct hash128 hash_xxh3_128(const void *data, size_t len)
{
    XXH128_hash_t h = XXH3_128bits(data, len);
    return (struct hash128){h.low64, h.high64};
}

void hash128_add(struct hash128 *sum, struct hash128 h)
{
    sum->lo += h.lo;
    sum->hi += h.hi + (sum->lo < h.lo);
}

void hash128_sub(struct hash128 *sum, struct hash128 h)
{
    uint64_t borrow = sum->lo < h.lo;
    sum->lo -= h.lo;
    sum->hi -= h.hi + borrow;
}

void hash128_hex(struct hash128 h, char out[HASH128_HEX_SIZE])
{
    (void)snprintf(out, HASH128_HEX_SIZE, "%016" PRIx64 "%016" PRIx64, h.hi, h.lo);
}
