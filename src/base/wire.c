/* SPDX-License-Identifier: Apache-2.0 */
#include "base/wire.h"

#include "base/assert.h"

#include <string.h>

static void put_integer(struct buf *b, uint64_t v, size_t size)
{
    uint8_t bytes[8];
    for (size_t i = 0; i < size; i++) {
        bytes[i] = (uint8_t)(v >> (8 * i));
    }
    buf_put(b, bytes, size);
}

void wire_put_u16(struct buf *b, uint16_t v)
{
    put_integer(b, v, sizeof v);
}

void wire_put_u32(struct buf *b, uint32_t v)
{
    put_integer(b, v, sizeof v);
}

void wire_put_u64(struct buf *b, uint64_t v)
{
    put_integer(b, v, sizeof v);
}

void wire_put_bytes(struct buf *b, struct slice bytes)
{
    ASSERT(bytes.len <= UINT16_MAX);
    wire_put_u16(b, (uint16_t)bytes.len);
    buf_put(b, bytes.data, bytes.len);
}

void wire_put_long(struct buf *b, struct slice bytes)
{
    ASSERT(bytes.len <= UINT32_MAX);
    wire_put_u32(b, (uint32_t)bytes.len);
    buf_put(b, bytes.data, bytes.len);
}

void wire_put_text(struct buf *b, const char *text)
{
    wire_put_bytes(b, slice_of(text, strlen(text)));
}

struct wire_reader wire_reader(struct slice bytes)
{
    return (struct wire_reader){bytes, NULL};
}

void wire_fail(struct wire_reader *r, const char *what)
{
    r->wrong = r->wrong != NULL ? r->wrong : what;
    r->rest.len = 0;
}

struct slice wire_raw(struct wire_reader *r, size_t n)
{
    if (n > r->rest.len) {
        wire_fail(r, "it ends early");
        return slice_of(NULL, 0);
    }
    struct slice bytes = slice_of(r->rest.data, n);
    if (n > 0) {
        r->rest.data += n;
        r->rest.len -= n;
    }
    return bytes;
}

static uint64_t integer(struct wire_reader *r, size_t size)
{
    struct slice bytes = wire_raw(r, size);
    uint64_t v = 0;
    for (size_t i = bytes.len; i > 0; i--) {
        v = v << 8 | bytes.data[i - 1];
    }
    return v;
}

uint8_t wire_u8(struct wire_reader *r)
{
    return (uint8_t)integer(r, 1);
}

uint16_t wire_u16(struct wire_reader *r)
{
    return (uint16_t)integer(r, 2);
}

uint32_t wire_u32(struct wire_reader *r)
{
    return (uint32_t)integer(r, 4);
}

uint64_t wire_u64(struct wire_reader *r)
{
    return integer(r, 8);
}

bool wire_bool(struct wire_reader *r)
{
    return wire_enum(r, 0, 1, "a flag is neither 0 nor 1") != 0;
}

uint8_t wire_enum(struct wire_reader *r, uint8_t low, uint8_t high, const char *what)
{
    uint8_t v = wire_u8(r);
    if (v < low || v > high) {
        wire_fail(r, what);
        return low;
    }
    return v;
}

static struct slice at_most(struct wire_reader *r, size_t len, size_t max, const char *what)
{
    if (len > max) {
        wire_fail(r, what);
        len = 0;
    }
    return wire_raw(r, len);
}

struct slice wire_bytes(struct wire_reader *r, size_t max, const char *what)
{
    return at_most(r, wire_u16(r), max, what);
}

struct slice wire_long(struct wire_reader *r, size_t max, const char *what)
{
    return at_most(r, wire_u32(r), max, what);
}

void wire_text(struct wire_reader *r, char *out, size_t size, const char *what)
{
    struct slice text = wire_bytes(r, size - 1, what);
    if (text.len > 0 && memchr(text.data, '\0', text.len) != NULL) {
        wire_fail(r, what);
        text.len = 0;
    }
    if (text.len > 0) {
        memcpy(out, text.data, text.len);
    }
    out[text.len] = '\0';
}

bool wire_end(struct wire_reader *r)
{
    if (r->rest.len > 0) {
        wire_fail(r, "there is more than there should be");
    }
    return r->wrong == NULL;
}
