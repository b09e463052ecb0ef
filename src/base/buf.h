/* SPDX-License-Identifier: Apache-2.0 */
/* Growable bytes with a hard maximum. A write that would pass the maximum is dropped whole and sets
 * `overflow`, which stays set until buf_reset: check it once at the end. Zero-initialised with a
 * `max` is empty and ready. */
#ifndef BASE_BUF_H
#define BASE_BUF_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf {
    uint8_t *data; /* owns */
    size_t len, cap, max;
    bool overflow;
};

/* A borrowed run of bytes; its owner is told where it is used. */
struct slice {
    const uint8_t *data;
    size_t len;
};

void buf_init(struct buf *b, size_t max);
void buf_close(struct buf *b);
/* Forgets the content, keeps the memory. */
void buf_reset(struct buf *b);
/* Room for `n` more bytes to be written at data+len by the caller; false (and overflow) when it
 * can't be. */
bool buf_reserve(struct buf *b, size_t n);
void buf_put(struct buf *b, const void *bytes, size_t n);
void buf_put_u8(struct buf *b, uint8_t v);
void buf_put_str(struct buf *b, const char *s);
void buf_put_u64_dec(struct buf *b, uint64_t v);
void buf_printf(struct buf *b, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* The bytes leave with their ownership (mem_free them); `b` is empty after. */
uint8_t *buf_take(struct buf *b, size_t *ret_len);

static inline struct slice slice_of(const void *data, size_t len)
{
    return (struct slice){data, len};
}

/* For a message of protobuf-c, whose members are not const, when it is only read. */
static inline char *text_lent(const char *text)
{
    union {
        const char *in;
        char *out;
    } lent = {text};
    return lent.out;
}

/* memcmp order, a prefix sorts first. */
int slice_cmp(struct slice a, struct slice b);

static inline bool slice_eq(struct slice a, struct slice b)
{
    return slice_cmp(a, b) == 0;
}

#endif
