/* SPDX-License-Identifier: Apache-2.0 */
/* XXH3 and XXH64 (libxxhash), and the order-independent sum that the state hash is. */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

struct hash128 {
    uint64_t lo, hi;
};

#define HASH128_HEX_SIZE 33

uint64_t hash_xxh64(const void *data, size_t len);
uint64_t hash_xxh3_64(const void *data, size_t len);
struct hash128 hash_xxh3_128(const void *data, size_t len);

/* 128-bit addition and subtraction, wrapping: sum += h, sum -= h. */
void hash128_add(struct hash128 *sum, struct hash128 h);
void hash128_sub(struct hash128 *sum, struct hash128 h);

/* 32 lower-case hex digits, most significant first. */
void hash128_hex(struct hash128 h, char out[HASH128_HEX_SIZE]);

#endif
