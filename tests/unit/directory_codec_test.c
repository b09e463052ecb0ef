/* SPDX-License-Identifier: Apache-2.0 */
#include "base/parse.h"
#include "directory/codec.h"
#include "tests/harness/tap.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static struct slice text_slice(const char *text)
{
    return slice_of(text, strlen(text));
}

static struct dir_keyspace hash_keyspace(char delimiter, uint32_t fields)
{
    return (struct dir_keyspace){.scheme = DIR_SCHEME_HASH,
                                 .key_encoding = DIR_ENCODING_UTF8,
                                 .custom_partition_key = delimiter != 0,
                                 .partition_key = {delimiter, fields}};
}

/* The routing key as hex, at most 64 digits of it. */
static const char *routing_hex(const struct dir_keyspace *ks, struct slice key)
{
    static char text[65];
    static uint8_t out[DIR_ROUTING_KEY_MAX];
    size_t len = 0;
    text[0] = '\0';
    if (dir_codec_routing_key(ks, key, out, &len, NULL) == ERR_OK) {
        for (size_t i = 0; i < len && i < 32; i++) {
            (void)snprintf(text + 2 * i, 3, "%02x", out[i]);
        }
    }
    return text;
}

/* XXH64, seed 0, of well-known inputs: what other implementations answer. */
static void hash_tokens_are_xxh64(void)
{
    static const struct {
        const char *key;
        uint64_t token;
    } rows[] = {
        {"", UINT64_C(0xef46db3751d8e999)},
        {"a", UINT64_C(0xd24ec4f1a98c6e5b)},
        {"abc", UINT64_C(0x44bc2cf5ad770999)},
        {"xxhash", UINT64_C(0x32dd38952c4bc720)},
        {"Nobody inspects the spammish repetition", UINT64_C(0xfbcea83c8a378bf1)},
    };
    struct dir_keyspace ks = hash_keyspace(0, 0);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint8_t out[DIR_ROUTING_KEY_MAX];
        size_t len = 0, n = strlen(rows[i].key);
        tap_note("key %s", rows[i].key);
        CHECK(dir_codec_routing_key(&ks, text_slice(rows[i].key), out, &len, NULL) == ERR_OK);
        CHECK_U64(len, n + 8);
        uint64_t token = 0;
        for (unsigned k = 0; k < 8; k++) {
            token = token << 8 | out[k];
        }
        CHECK_U64(token, rows[i].token);
        CHECK(memcmp(out + 8, rows[i].key, n) == 0);
    }
}

static void range_keys_are_themselves(void)
{
    struct dir_keyspace ks = {.scheme = DIR_SCHEME_RANGE, .key_encoding = DIR_ENCODING_UTF8};
    CHECK_STR(routing_hex(&ks, text_slice("kl")), "6b6c");
    CHECK_STR(routing_hex(&ks, slice_of(NULL, 0)), "");
}

/* The partition key is the first fields; with fewer the whole key is. */
static void partition_keys_are_the_first_fields(void)
{
    static const struct {
        const char *key, *partition_key;
        uint32_t fields;
    } rows[] = {
        {"a:b:c", "a", 1}, {"a:b:c", "a:b", 2}, {"a:b:c", "a:b:c", 3}, {"a:b:c", "a:b:c", 4},
        {"a:b", "a:b", 2}, {"a", "a", 2},       {":b", "", 1},         {"::", ":", 2},
        {"", "", 1},       {"a:", "a", 1},
    };
    struct dir_keyspace whole = hash_keyspace(0, 0);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct dir_keyspace ks = hash_keyspace(':', rows[i].fields);
        char want[17];
        tap_note("key %s, fields %" PRIu32, rows[i].key, rows[i].fields);
        (void)snprintf(want, sizeof want, "%s",
                       routing_hex(&whole, text_slice(rows[i].partition_key)));
        CHECK(memcmp(routing_hex(&ks, text_slice(rows[i].key)), want, 16) == 0);
    }
    /* A delimiter above 0x7f is a byte like any other. */
    struct dir_keyspace ks = hash_keyspace((char)0xe9, 1);
    CHECK(memcmp(routing_hex(&ks, text_slice("a\xe9z")), routing_hex(&ks, text_slice("a\xe9y")),
                 16) == 0);
}

static void long_keys_are_refused(void)
{
    static uint8_t key[DIR_KEY_MAX + 1], out[DIR_ROUTING_KEY_MAX];
    size_t len = 7;
    struct err e = {0};
    struct dir_keyspace ks = hash_keyspace(0, 0);
    CHECK(dir_codec_routing_key(&ks, slice_of(key, DIR_KEY_MAX + 1), out, &len, &e) ==
          ERR_INVALID_KEY);
    CHECK(len == 7 && e.code == ERR_INVALID_KEY);
    CHECK(dir_codec_routing_key(&ks, slice_of(key, DIR_KEY_MAX), out, &len, &e) == ERR_OK);
    CHECK_U64(len, DIR_ROUTING_KEY_MAX);
}

static void token_ranges_start_at_equal_distances(void)
{
    static const struct {
        uint64_t i, n, start;
    } rows[] = {
        {1, 2, UINT64_C(1) << 63},
        {1, 3, UINT64_C(0x5555555555555555)},
        {2, 3, UINT64_C(0xaaaaaaaaaaaaaaaa)},
        {3, 256, UINT64_C(3) << 56},
        {1, 1000000, UINT64_C(18446744073709)},
        {999999, 1000000, UINT64_C(18446725626965477906)},
    };
    uint8_t out[8], want[8];
    CHECK_U64(dir_codec_token_start(0, 3, out), 0);
    CHECK_U64(dir_codec_token_start(0, 1, out), 0);
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        tap_note("%" PRIu64 " of %" PRIu64, rows[k].i, rows[k].n);
        CHECK_U64(dir_codec_token_start(rows[k].i, rows[k].n, out), 8);
        for (unsigned b = 0; b < 8; b++) {
            want[b] = (uint8_t)(rows[k].start >> (56 - 8 * b));
        }
        CHECK(memcmp(out, want, 8) == 0);
    }
}

static void keys_decode_as_the_keyspace_says(void)
{
    static const struct {
        uint8_t encoding;
        const char *text;
        enum err_code code;
        size_t len;
    } rows[] = {
        {DIR_ENCODING_UTF8, "", ERR_OK, 0},
        {DIR_ENCODING_UTF8, "k\xc3\xa9y", ERR_OK, 4},
        {DIR_ENCODING_UTF8, "\xff", ERR_INVALID_KEY, 0},
        {DIR_ENCODING_HEX, "", ERR_OK, 0},
        {DIR_ENCODING_HEX, "00ff", ERR_OK, 2},
        {DIR_ENCODING_HEX, "00f", ERR_INVALID_KEY, 0},
        {DIR_ENCODING_HEX, "0G", ERR_INVALID_KEY, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct dir_keyspace ks = {.scheme = DIR_SCHEME_RANGE, .key_encoding = rows[i].encoding};
        uint8_t out[DIR_KEY_MAX];
        size_t len = 99;
        tap_note("row %zu", i);
        CHECK(dir_codec_decode(&ks, text_slice(rows[i].text), out, &len, NULL) == rows[i].code);
        CHECK_U64(len, rows[i].code == ERR_OK ? rows[i].len : 99);
        CHECK(dir_codec_decode_bound(&ks, text_slice(rows[i].text), out, &len, NULL) ==
              rows[i].code);
    }
}

static void limits_are_on_the_decoded_bytes(void)
{
    static char text[2 * DIR_ROUTING_KEY_MAX + 3];
    static uint8_t out[DIR_ROUTING_KEY_MAX];
    size_t len;
    struct dir_keyspace utf8 = {.scheme = DIR_SCHEME_RANGE, .key_encoding = DIR_ENCODING_UTF8};
    struct dir_keyspace hex = {.scheme = DIR_SCHEME_RANGE, .key_encoding = DIR_ENCODING_HEX};
    struct dir_keyspace hash = hash_keyspace(0, 0);
    memset(text, 'a', sizeof text);
    CHECK(dir_codec_decode(&utf8, slice_of(text, DIR_KEY_MAX), out, &len, NULL) == ERR_OK);
    CHECK(dir_codec_decode(&utf8, slice_of(text, DIR_KEY_MAX + 1), out, &len, NULL) ==
          ERR_INVALID_KEY);
    CHECK(dir_codec_decode(&hex, slice_of(text, 2 * DIR_KEY_MAX), out, &len, NULL) == ERR_OK);
    CHECK(dir_codec_decode(&hex, slice_of(text, 2 * DIR_KEY_MAX + 2), out, &len, NULL) ==
          ERR_INVALID_KEY);
    size_t longest = 2 * (size_t)DIR_ROUTING_KEY_MAX;
    CHECK(dir_codec_decode_bound(&hash, slice_of(text, longest), out, &len, NULL) == ERR_OK);
    CHECK_U64(len, DIR_ROUTING_KEY_MAX);
    CHECK(dir_codec_decode_bound(&hash, slice_of(text, longest + 2), out, &len, NULL) ==
          ERR_INVALID_KEY);
}

static void bounds_of_hash_keyspaces_are_hex(void)
{
    struct dir_keyspace hash = hash_keyspace(0, 0);
    struct dir_keyspace utf8 = {.scheme = DIR_SCHEME_RANGE, .key_encoding = DIR_ENCODING_UTF8};
    struct dir_keyspace hex = {.scheme = DIR_SCHEME_RANGE, .key_encoding = DIR_ENCODING_HEX};
    uint8_t out[DIR_ROUTING_KEY_MAX];
    size_t len = 0;
    CHECK(dir_codec_bounds_are_hex(&hash) && dir_codec_bounds_are_hex(&hex));
    CHECK(!dir_codec_bounds_are_hex(&utf8));
    CHECK(dir_codec_decode_bound(&hash, text_slice("80"), out, &len, NULL) == ERR_OK);
    CHECK(len == 1 && out[0] == 0x80);
    CHECK(dir_codec_decode_bound(&hash, text_slice("zz"), out, &len, NULL) == ERR_INVALID_KEY);
    CHECK(dir_codec_decode_bound(&utf8, text_slice("zz"), out, &len, NULL) == ERR_OK);
}

int main(void)
{
    RUN(hash_tokens_are_xxh64);
    RUN(range_keys_are_themselves);
    RUN(partition_keys_are_the_first_fields);
    RUN(long_keys_are_refused);
    RUN(token_ranges_start_at_equal_distances);
    RUN(keys_decode_as_the_keyspace_says);
    RUN(limits_are_on_the_decoded_bytes);
    RUN(bounds_of_hash_keyspaces_are_hex);
    return tap_done();
}
