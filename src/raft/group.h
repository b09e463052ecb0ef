/* SPDX-License-Identifier: Apache-2.0 */
/* The log entry of a group of commands. Little-endian:
 *
 *     u32 magic, u16 version, u16 count, u64 XXH3-64 of what follows, then for each: u32 length,
 * bytes
 *
 * zero-padded to a multiple of 8, which libraft needs and does not check. Pure; any thread. */
#ifndef RAFT_GROUP_H
#define RAFT_GROUP_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GROUP_VERSION = 1, GROUP_HEADER_SIZE = 16, GROUP_COMMAND_OVERHEAD = 4 };

enum group_fault {
    GROUP_FINE,
    GROUP_DAMAGED, /* not what group_encode wrote */
    GROUP_NEWER    /* written by a later release */
};

/* Bytes of the entry, padding included, for commands that are `payload` bytes together. */
size_t group_size(size_t payload, unsigned count);

/* Fills `out` of group_size() bytes. 1 <= count <= UINT16_MAX. */
void group_encode(const struct slice *commands, unsigned count, uint8_t *out, size_t size);

struct group_reader {
    const uint8_t *at; /* borrows the entry */
    unsigned left;
};

/* Checks the whole entry, so that group_next can't fail. */
enum group_fault group_open(struct group_reader *r, const uint8_t *entry, size_t size) MUST_CHECK;
/* False after the last. */
bool group_next(struct group_reader *r, struct slice *ret_command);

#endif
