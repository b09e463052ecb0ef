/* SPDX-License-Identifier: Apache-2.0 */
/* Little-endian fields in a buffer, and a reader of them that believes nothing: every length is
 * checked against what is there, and the first thing wrong is remembered. After that all reads give
 * zeros, so a decoder checks once, at the end (or before it allocates by a count that it read). Any
 * thread. */
#ifndef BASE_WIRE_H
#define BASE_WIRE_H

#include "base/buf.h"

void wire_put_u16(struct buf *b, uint16_t v);
void wire_put_u32(struct buf *b, uint32_t v);
void wire_put_u64(struct buf *b, uint64_t v);
/* 16 bits of length, then the bytes. */
void wire_put_bytes(struct buf *b, struct slice bytes);
/* 32 bits of length, then the bytes. */
void wire_put_long(struct buf *b, struct slice bytes);
/* As bytes, without the NUL. */
void wire_put_text(struct buf *b, const char *text);

struct wire_reader {
    struct slice rest; /* borrowed */
    const char *wrong; /* NULL, or what was: a literal for a person */
};

struct wire_reader wire_reader(struct slice bytes);
/* Remembers `what` unless something was wrong before; takes the rest away. */
void wire_fail(struct wire_reader *r, const char *what);
uint8_t wire_u8(struct wire_reader *r);
uint16_t wire_u16(struct wire_reader *r);
uint32_t wire_u32(struct wire_reader *r);
uint64_t wire_u64(struct wire_reader *r);
/* One byte, 0 or 1. */
bool wire_bool(struct wire_reader *r);
/* One byte in [low, high]. */
uint8_t wire_enum(struct wire_reader *r, uint8_t low, uint8_t high, const char *what);
/* `n` bytes, borrowed; empty when they are not there. */
struct slice wire_raw(struct wire_reader *r, size_t n);
/* Length-prefixed, at most `max` bytes, borrowed. */
struct slice wire_bytes(struct wire_reader *r, size_t max, const char *what);
struct slice wire_long(struct wire_reader *r, size_t max, const char *what);
/* Length-prefixed text without a NUL in it; `out` holds `size` bytes and gets one at the end. */
void wire_text(struct wire_reader *r, char *out, size_t size, const char *what);
/* Nothing may be left. True when all went well. */
bool wire_end(struct wire_reader *r);

#endif
