/* SPDX-License-Identifier: Apache-2.0 */
/* Little-endian integers in bytes of any alignment: the log entry and the handshake. */
#ifndef RAFT_BYTES_H
#define RAFT_BYTES_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

static inline void bytes_put_u16(uint8_t *at, uint16_t v)
{
    v = htole16(v);
    memcpy(at, &v, sizeof v);
}

static inline void bytes_put_u32(uint8_t *at, uint32_t v)
{
    v = htole32(v);
    memcpy(at, &v, sizeof v);
}

static inline void bytes_put_u64(uint8_t *at, uint64_t v)
{
    v = htole64(v);
    memcpy(at, &v, sizeof v);
}

static inline uint16_t bytes_u16(const uint8_t *at)
{
    uint16_t v;
    memcpy(&v, at, sizeof v);
    return le16toh(v);
}

static inline uint32_t bytes_u32(const uint8_t *at)
{
    uint32_t v;
    memcpy(&v, at, sizeof v);
    return le32toh(v);
}

static inline uint64_t bytes_u64(const uint8_t *at)
{
    uint64_t v;
    memcpy(&v, at, sizeof v);
    return le64toh(v);
}

#endif
