/* SPDX-License-Identifier: Apache-2.0 */
/* Key codecs over any bytes: decoding is total, encoding keeps order, routing keys keep their
 * bounds. */
#include "base/assert.h"
#include "base/mem.h"
#include "directory/codec.h"
#include "tests/fuzz/target.h"

#include <string.h>

static struct dir_keyspace *keyspace(uint8_t scheme, uint8_t encoding, uint8_t delimiter)
{
    struct dir_keyspace *ks = mem_zalloc(sizeof *ks + 1);
    ks->scheme = scheme;
    ks->key_encoding = encoding;
    ks->custom_partition_key = delimiter != 0;
    ks->partition_key.delimiter = (char)delimiter;
    ks->partition_key.fields = 1 + delimiter % 3;
    return ks;
}

/* Two texts of a range keyspace that both decode: their keys are in the order of the texts' bytes.
 */
static void check_order(const struct dir_keyspace *ks, struct slice a, struct slice b)
{
    uint8_t key_a[DIR_KEY_MAX], key_b[DIR_KEY_MAX];
    size_t len_a, len_b;
    struct err e;
    if (dir_codec_decode(ks, a, key_a, &len_a, &e) == ERR_OK &&
        dir_codec_decode(ks, b, key_b, &len_b, &e) == ERR_OK) {
        int texts = slice_cmp(a, b),
            keys = slice_cmp(slice_of(key_a, len_a), slice_of(key_b, len_b));
        ASSERT((texts < 0) == (keys < 0) && (texts == 0) == (keys == 0));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 3) {
        return 0;
    }
    struct dir_keyspace *ks = keyspace(1 + data[0] % 2, 1 + data[1] % 2, data[2]);
    struct slice text = slice_of(data + 3, size - 3);
    uint8_t key[DIR_ROUTING_KEY_MAX], routing[DIR_ROUTING_KEY_MAX];
    size_t len, routing_len;
    struct err e;
    if (dir_codec_decode(ks, text, key, &len, &e) == ERR_OK) {
        ASSERT(len <= DIR_KEY_MAX);
        enum err_code code =
            dir_codec_routing_key(ks, slice_of(key, len), routing, &routing_len, &e);
        ASSERT(code == ERR_OK);
        ASSERT(routing_len == len + (ks->scheme == DIR_SCHEME_HASH ? 8 : 0));
    }
    if (dir_codec_decode_bound(ks, text, key, &len, &e) == ERR_OK) {
        ASSERT(len <= DIR_ROUTING_KEY_MAX);
    }
    check_order(ks, slice_of(text.data, text.len / 2),
                slice_of(text.data + text.len / 2, text.len - text.len / 2));
    mem_free(ks);
    return 0;
}
