/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"

#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void buf_init(struct buf *b, size_t max)
{
    *b = (struct buf){.max = max};
}

void buf_close(struct buf *b)
{
    mem_free(b->data);
    *b = (struct buf){.max = b->max};
}

void buf_reset(struct buf *b)
{
    b->len = 0;
    b->overflow = false;
}

bool buf_reserve(struct buf *b, size_t n)
{
    if (b->overflow || n > b->max - b->len) {
        b->overflow = true;
        return false;
    }
    if (b->cap - b->len < n) {
        size_t cap = b->cap < 256 ? 256 : b->cap;
        while (cap - b->len < n) {
            cap *= 2;
        }
        if (cap > b->max) {
            cap = b->max;
        }
        b->data = mem_realloc(b->data, cap);
        b->cap = cap;
    }
    return true;
}

void buf_put(struct buf *b, const void *bytes, size_t n)
{
    if (n > 0 && buf_reserve(b, n)) {
        memcpy(b->data + b->len, bytes, n);
        b->len += n;
    }
}

void buf_put_u8(struct buf *b, uint8_t v)
{
    if (buf_reserve(b, 1)) {
        b->data[b->len++] = v;
    }
}

void buf_put_str(struct buf *b, const char *s)
{
    buf_put(b, s, strlen(s));
}

void buf_put_u64_dec(struct buf *b, uint64_t v)
{
    char digits[20];
    size_t at = sizeof digits;
    do {
        digits[--at] = (char)('0' + v % 10);
        v /= 10;
    } while (v > 0);
    buf_put(b, digits + at, sizeof digits - at);
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
    va_list args;
    char text[512];
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (n >= 0 && (size_t)n < sizeof text) {
        buf_put(b, text, (size_t)n);
    } else if (n >= 0 && buf_reserve(b, (size_t)n + 1)) {
        va_start(args, fmt);
        (void)vsnprintf((char *)b->data + b->len, (size_t)n + 1, fmt, args);
        va_end(args);
        b->len += (size_t)n;
    }
}

uint8_t *buf_take(struct buf *b, size_t *ret_len)
{
    uint8_t *data = b->data;
    *ret_len = b->len;
    *b = (struct buf){.max = b->max};
    return data;
}

int slice_cmp(struct slice a, struct slice b)
{
    size_t n = a.len < b.len ? a.len : b.len;
    int c = n > 0 ? memcmp(a.data, b.data, n) : 0;
    return c != 0 ? c : (a.len > b.len) - (a.len < b.len);
}
