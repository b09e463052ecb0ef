/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a log entry, as they are and with a right header: refused, or read to commands that
 * encode to the same entry. */
#include "base/assert.h"
#include "base/hash.h"
#include "base/mem.h"
#include "raft/bytes.h"
#include "raft/group.h"
#include "raft/replica.h"
#include "tests/fuzz/target.h"

#include <string.h>

static void check(const uint8_t *entry, size_t size)
{
    struct group_reader r;
    struct slice commands[REPLICA_GROUP_MAX];
    size_t payload = 0;
    unsigned n = 0;
    if (group_open(&r, entry, size) != GROUP_FINE) {
        return;
    }
    while (n < REPLICA_GROUP_MAX && group_next(&r, &commands[n])) {
        payload += commands[n++].len;
    }
    struct slice more;
    ASSERT(n > 0 && !group_next(&r, &more) && group_size(payload, n) == size);
    uint8_t *again = mem_alloc(size);
    group_encode(commands, n, again, size);
    ASSERT(memcmp(again, entry, size) == 0);
    mem_free(again);
}

/* What follows the header, then the count. */
static void check_body(const uint8_t *data, size_t size)
{
    struct slice one = slice_of(data, 0);
    size_t body = size & ~(size_t)7, whole = GROUP_HEADER_SIZE + body;
    uint8_t *entry = mem_zalloc(whole < 24 ? 24 : whole);
    group_encode(&one, 1, entry, 24); /* for magic and version */
    memcpy(entry + GROUP_HEADER_SIZE, data, body);
    bytes_put_u16(entry + 6, (uint16_t)(size > body ? data[body] : 1));
    bytes_put_u64(entry + 8, hash_xxh3_64(entry + GROUP_HEADER_SIZE, body));
    check(entry, whole);
    mem_free(entry);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check(data, size);
    if (size > 0) {
        check_body(data, size);
    }
    return 0;
}
