/* SPDX-License-Identifier: Apache-2.0 */
#include "directory/codec.h"

#include "base/assert.h"
#include "base/parse.h"
#include "directory/ptree.h"

#include <string.h>

enum { TOKEN_SIZE = 8 };
_Static_assert(DIR_ROUTING_KEY_MAX == DIR_KEY_MAX + TOKEN_SIZE, "token, then key");

__extension__ typedef unsigned __int128 uint128;

/* What of the key is hashed. */
static struct slice partition_key(const struct dir_keyspace *ks, struct slice key)
{
    uint32_t fields = ks->partition_key.fields;
    if (!ks->custom_partition_key || ks->partition_key.delimiter == 0 || fields == 0) {
        return key;
    }
    for (size_t i = 0; i < key.len; i++) {
        if (key.data[i] == (uint8_t)ks->partition_key.delimiter && --fields == 0) {
            return slice_of(key.data, i);
        }
    }
    return key;
}

enum err_code dir_codec_routing_key(const struct dir_keyspace *ks,
                                    struct slice key,
                                    uint8_t *out,
                                    size_t *ret_len,
                                    struct err *e)
{
    if (key.len > DIR_KEY_MAX) {
        return err_set(e, ERR_INVALID_KEY, "a key has at most %d bytes", DIR_KEY_MAX);
    }
    size_t at = 0;
    if (ks->scheme == DIR_SCHEME_HASH) {
        struct slice hashed = partition_key(ks, key);
        at = ptree_u64_key(hash_xxh64(hashed.data, hashed.len), out).len;
    }
    if (key.len > 0) {
        memcpy(out + at, key.data, key.len);
    }
    *ret_len = at + key.len;
    return ERR_OK;
}

size_t dir_codec_token_start(uint64_t i, uint64_t n, uint8_t out[8])
{
    ASSERT(i < n);
    if (i == 0) {
        return 0;
    }
    return ptree_u64_key((uint64_t)(((uint128)i << 64) / n), out).len;
}

static enum err_code
decode_hex(struct slice text, size_t max, uint8_t *out, size_t *ret_len, struct err *e)
{
    if (text.len / 2 > max) {
        return err_set(e, ERR_INVALID_KEY, "at most %zu bytes, %zu hex digits", max, 2 * max);
    }
    if (!parse_hex(text, out, max, ret_len)) {
        return err_set(e, ERR_INVALID_KEY, "not an even number of lower-case hex digits");
    }
    return ERR_OK;
}

enum err_code dir_codec_decode(const struct dir_keyspace *ks,
                               struct slice text,
                               uint8_t *out,
                               size_t *ret_len,
                               struct err *e)
{
    if (ks->key_encoding == DIR_ENCODING_HEX) {
        return decode_hex(text, DIR_KEY_MAX, out, ret_len, e);
    }
    if (text.len > DIR_KEY_MAX) {
        return err_set(e, ERR_INVALID_KEY, "a key has at most %d bytes", DIR_KEY_MAX);
    }
    if (!parse_is_utf8(text)) {
        return err_set(e, ERR_INVALID_KEY, "not UTF-8");
    }
    if (text.len > 0) {
        memcpy(out, text.data, text.len);
    }
    *ret_len = text.len;
    return ERR_OK;
}

bool dir_codec_bounds_are_hex(const struct dir_keyspace *ks)
{
    return ks->scheme == DIR_SCHEME_HASH || ks->key_encoding == DIR_ENCODING_HEX;
}

enum err_code dir_codec_decode_bound(const struct dir_keyspace *ks,
                                     struct slice text,
                                     uint8_t *out,
                                     size_t *ret_len,
                                     struct err *e)
{
    if (ks->scheme == DIR_SCHEME_HASH) {
        return decode_hex(text, DIR_ROUTING_KEY_MAX, out, ret_len, e);
    }
    return dir_codec_decode(ks, text, out, ret_len, e);
}
