/* SPDX-License-Identifier: Apache-2.0 */
#include "raft/group.h"

#include "base/mem.h"
#include "raft/bytes.h"
#include "raft/replica.h"
#include "tests/harness/tap.h"

#include <string.h>

/* An entry of `count` commands with random bytes. The caller frees it. */
static uint8_t *make_entry(struct tap_rand *rand, unsigned count, size_t len_max, size_t *ret_size)
{
    static uint8_t bytes[REPLICA_GROUP_MAX][300];
    struct slice commands[REPLICA_GROUP_MAX];
    size_t payload = 0;
    for (unsigned i = 0; i < count; i++) {
        size_t len = tap_rand_below(rand, len_max + 1);
        memset(bytes[i], (int)tap_rand_below(rand, 256), len);
        commands[i] = slice_of(bytes[i], len);
        payload += len;
    }
    *ret_size = group_size(payload, count);
    uint8_t *entry = mem_alloc(*ret_size);
    group_encode(commands, count, entry, *ret_size);
    return entry;
}

static void decode_gives_back_what_was_encoded(void)
{
    struct tap_rand rand = {tap_seed(11)};
    for (unsigned round = 0; round < 300 && tap_failures() == 0; round++) {
        unsigned count = 1 + (unsigned)tap_rand_below(&rand, REPLICA_GROUP_MAX);
        static uint8_t bytes[REPLICA_GROUP_MAX][64];
        struct slice commands[REPLICA_GROUP_MAX], got;
        struct group_reader reader;
        size_t payload = 0;
        for (unsigned i = 0; i < count; i++) {
            commands[i] = slice_of(bytes[i], tap_rand_below(&rand, sizeof bytes[i] + 1));
            memset(bytes[i], (int)tap_rand_below(&rand, 256), sizeof bytes[i]);
            payload += commands[i].len;
        }
        size_t size = group_size(payload, count);
        uint8_t *entry = mem_alloc(size);
        group_encode(commands, count, entry, size);
        tap_note("round=%u count=%u size=%zu", round, count, size);
        CHECK_U64(size % 8, 0);
        CHECK_U64(group_open(&reader, entry, size), GROUP_FINE);
        for (unsigned i = 0; i < count; i++) {
            CHECK(group_next(&reader, &got) && slice_eq(got, commands[i]));
        }
        CHECK(!group_next(&reader, &got));
        mem_free(entry);
    }
}

static void every_flipped_bit_is_noticed(void)
{
    struct tap_rand rand = {5};
    struct group_reader reader;
    size_t size;
    uint8_t *entry = make_entry(&rand, 7, 40, &size);
    for (size_t bit = 0; bit < size * 8; bit++) {
        entry[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        tap_note("bit=%zu", bit);
        CHECK(group_open(&reader, entry, size) != GROUP_FINE);
        entry[bit / 8] ^= (uint8_t)(1u << (bit % 8));
    }
    CHECK_U64(group_open(&reader, entry, size), GROUP_FINE);
    mem_free(entry);
}

static void every_shorter_or_longer_entry_is_noticed(void)
{
    struct tap_rand rand = {6};
    struct group_reader reader;
    size_t size;
    uint8_t *entry = make_entry(&rand, 5, 40, &size);
    for (size_t len = 0; len < size; len++) {
        uint8_t *cut = mem_dup(entry, len); /* exact, so that a read past it is seen */
        tap_note("len=%zu of %zu", len, size);
        CHECK_U64(group_open(&reader, cut, len), GROUP_DAMAGED);
        mem_free(cut);
    }
    uint8_t *longer = mem_zalloc(size + 8);
    memcpy(longer, entry, size);
    CHECK_U64(group_open(&reader, longer, size + 8), GROUP_DAMAGED);
    mem_free(longer);
    mem_free(entry);
}

static void later_version_is_told_apart(void)
{
    struct tap_rand rand = {7};
    struct group_reader reader;
    size_t size;
    uint8_t *entry = make_entry(&rand, 1, 8, &size);
    bytes_put_u16(entry + 4, GROUP_VERSION + 1);
    CHECK_U64(group_open(&reader, entry, size), GROUP_NEWER);
    mem_free(entry);
}

static void random_bytes_are_never_an_entry(void)
{
    struct tap_rand rand = {tap_seed(12)};
    struct group_reader reader;
    for (unsigned round = 0; round < 2000; round++) {
        size_t size = tap_rand_below(&rand, 200);
        uint8_t *bytes = mem_alloc(size);
        for (size_t i = 0; i < size; i++) {
            bytes[i] = (uint8_t)tap_rand(&rand);
        }
        CHECK(group_open(&reader, bytes, size) != GROUP_FINE);
        mem_free(bytes);
    }
}

int main(void)
{
    RUN(decode_gives_back_what_was_encoded);
    RUN(every_flipped_bit_is_noticed);
    RUN(every_shorter_or_longer_entry_is_noticed);
    RUN(later_version_is_told_apart);
    RUN(random_bytes_are_never_an_entry);
    return tap_done();
}
