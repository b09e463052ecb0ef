/* SPDX-License-Identifier: Apache-2.0 */
#include "raft/group.h"

#include "base/assert.h"
#include "base/hash.h"
#include "raft/bytes.h"
#include "raft/replica.h"

#include <string.h>

static const uint32_t GROUP_MAGIC = 0x50524743; /* "CGRP" */

size_t group_size(size_t payload, unsigned count)
{
    size_t size = GROUP_HEADER_SIZE + payload + (size_t)count * GROUP_COMMAND_OVERHEAD;
    return (size + 7) & ~(size_t)7;
}

void group_encode(const struct slice *commands, unsigned count, uint8_t *out, size_t size)
{
    ASSERT(count > 0 && count <= UINT16_MAX);
    uint8_t *at = out + GROUP_HEADER_SIZE;
    for (unsigned i = 0; i < count; i++) {
        bytes_put_u32(at, (uint32_t)commands[i].len);
        at += GROUP_COMMAND_OVERHEAD;
        if (commands[i].len > 0) {
            memcpy(at, commands[i].data, commands[i].len);
        }
        at += commands[i].len;
    }
    ASSERT(size % 8 == 0 && at <= out + size && out + size - at < 8);
    memset(at, 0, (size_t)(out + size - at));
    bytes_put_u32(out, GROUP_MAGIC);
    bytes_put_u16(out + 4, GROUP_VERSION);
    bytes_put_u16(out + 6, (uint16_t)count);
    bytes_put_u64(out + 8, hash_xxh3_64(out + GROUP_HEADER_SIZE, size - GROUP_HEADER_SIZE));
}

/* Do `count` commands and less than 8 zero bytes fill [at, end)? */
static bool shape_is_right(const uint8_t *at, const uint8_t *end, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        if (end - at < GROUP_COMMAND_OVERHEAD) {
            return false;
        }
        size_t len = bytes_u32(at);
        at += GROUP_COMMAND_OVERHEAD;
        if (len > (size_t)(end - at)) {
            return false;
        }
        at += len;
    }
    if (end - at >= 8) {
        return false;
    }
    for (; at < end; at++) {
        if (*at != 0) {
            return false;
        }
    }
    return true;
}

enum group_fault group_open(struct group_reader *r, const uint8_t *entry, size_t size)
{
    if (size < GROUP_HEADER_SIZE || size % 8 != 0 || bytes_u32(entry) != GROUP_MAGIC) {
        return GROUP_DAMAGED;
    }
    if (bytes_u16(entry + 4) > GROUP_VERSION) {
        return GROUP_NEWER;
    }
    unsigned count = bytes_u16(entry + 6);
    const uint8_t *body = entry + GROUP_HEADER_SIZE;
    if (count == 0 || count > REPLICA_GROUP_MAX || bytes_u16(entry + 4) != GROUP_VERSION ||
        bytes_u64(entry + 8) != hash_xxh3_64(body, size - GROUP_HEADER_SIZE) ||
        !shape_is_right(body, entry + size, count)) {
        return GROUP_DAMAGED;
    }
    *r = (struct group_reader){body, count};
    return GROUP_FINE;
}

bool group_next(struct group_reader *r, struct slice *ret_command)
{
    if (r->left == 0) {
        return false;
    }
    size_t len = bytes_u32(r->at);
    *ret_command = slice_of(r->at + GROUP_COMMAND_OVERHEAD, len);
    r->at += GROUP_COMMAND_OVERHEAD + len;
    r->left--;
    return true;
}
