/* SPDX-License-Identifier: Apache-2.0 */
/* Key codecs: what a client asks with -> the routing key that the map is ordered by
 * (docs/ARCHITECTURE.md, "The one idea"). Pure; any thread.
 *
 *   range   the key itself
 *   hash    big-endian XXH64(partition key, seed 0), then the key. The partition key is the key, or
 * its first `fields` fields split at `delimiter`; a key with fewer fields is hashed whole. */
#ifndef DIRECTORY_CODEC_H
#define DIRECTORY_CODEC_H

#include "base/err.h"
#include "directory/types.h"

/* Writes the routing key of `key` (at most DIR_KEY_MAX bytes, else ERR_INVALID_KEY) to `out`, which
 * holds DIR_ROUTING_KEY_MAX bytes. */
enum err_code dir_codec_routing_key(const struct dir_keyspace *ks,
                                    struct slice key,
                                    uint8_t *out,
                                    size_t *ret_len,
                                    struct err *e) MUST_CHECK;

/* Start of token range i of n (decisions.md 21): floor(i * 2^64 / n), big-endian. i = 0 gives an
 * empty key. `out` holds 8 bytes; returns the length, 0 or 8. */
size_t dir_codec_token_start(uint64_t i, uint64_t n, uint8_t out[8]);

/* A key as the API writes it (keyspace's key_encoding) -> bytes. ERR_INVALID_KEY when it does not
 * decode or is over DIR_KEY_MAX. `out` holds DIR_KEY_MAX bytes. */
enum err_code dir_codec_decode(const struct dir_keyspace *ks,
                               struct slice text,
                               uint8_t *out,
                               size_t *ret_len,
                               struct err *e) MUST_CHECK;

/* A partition bound as the API writes it. Bounds of a hash keyspace are routing keys, and always
 * written in hex (a bound made of token and key is not text); bounds of a range keyspace are
 * written in its key_encoding. The same for split keys, which are bounds: of a hash keyspace, hex
 * of 1 to DIR_ROUTING_KEY_MAX bytes. */
bool dir_codec_bounds_are_hex(const struct dir_keyspace *ks);
enum err_code dir_codec_decode_bound(const struct dir_keyspace *ks,
                                     struct slice text,
                                     uint8_t *out,
                                     size_t *ret_len,
                                     struct err *e) MUST_CHECK;

#endif
