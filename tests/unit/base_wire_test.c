/* SPDX-License-Identifier: Apache-2.0 */
#include "base/wire.h"
#include "tests/harness/tap.h"

#include <string.h>

static void fields_come_back(void)
{
    struct buf b;
    char text[8];
    buf_init(&b, 1000);
    buf_put_u8(&b, 7);
    wire_put_u16(&b, 0x1234);
    wire_put_u32(&b, 0x12345678);
    wire_put_u64(&b, UINT64_C(0x123456789abcdef0));
    wire_put_text(&b, "seven77");
    wire_put_bytes(&b, slice_of("\0x", 2));
    wire_put_long(&b, slice_of("long", 4));
    buf_put_u8(&b, 1);
    CHECK(b.data[1] == 0x34 && b.data[2] == 0x12); /* little-endian */
    struct wire_reader r = wire_reader(slice_of(b.data, b.len));
    CHECK_U64(wire_u8(&r), 7);
    CHECK_U64(wire_u16(&r), 0x1234);
    CHECK_U64(wire_u32(&r), 0x12345678);
    CHECK_U64(wire_u64(&r), UINT64_C(0x123456789abcdef0));
    wire_text(&r, text, sizeof text, "text");
    CHECK_STR(text, "seven77");
    CHECK(slice_eq(wire_bytes(&r, 2, "bytes"), slice_of("\0x", 2)));
    CHECK(slice_eq(wire_long(&r, 4, "long"), slice_of("long", 4)));
    CHECK(wire_bool(&r));
    CHECK(wire_end(&r));
    buf_close(&b);
}

static void what_is_wrong_first_is_remembered(void)
{
    const uint8_t bytes[] = {2, 9, 9, 9};
    struct wire_reader r = wire_reader(slice_of(bytes, sizeof bytes));
    CHECK(!wire_bool(&r));
    CHECK_STR(r.wrong, "a flag is neither 0 nor 1");
    CHECK_U64(wire_u8(&r), 0);
    CHECK_U64(wire_u64(&r), 0);
    CHECK(!wire_end(&r));
    CHECK_STR(r.wrong, "a flag is neither 0 nor 1");
}

static void bounds_hold(void)
{
    static const struct {
        const char *bytes;
        size_t len;
        const char *wrong;
    } rows[] = {
        {"\5\0abcd", 6, "it ends early"}, /* one byte short */
        {"\5\0abcde", 7, "too long"},     /* over what fits */
        {"\xff\xff"
         "a",
         3, "too long"},
        {"\2\0a\0", 4, "too long"}, /* a NUL in text */
        {"\1", 1, "it ends early"},
        {"\1\0ab", 4, "there is more than there should be"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[6] = "old";
        size_t size = i == 0 ? 6 : 5;
        struct wire_reader r = wire_reader(slice_of(rows[i].bytes, rows[i].len));
        tap_note("row %zu", i);
        wire_text(&r, text, size, "too long");
        CHECK(!wire_end(&r));
        CHECK_STR(r.wrong, rows[i].wrong);
    }
    struct wire_reader r = wire_reader(slice_of("\3", 1));
    CHECK_U64(wire_enum(&r, 1, 2, "unknown"), 1);
    CHECK_STR(r.wrong, "unknown");
    r = wire_reader(slice_of("\xff\xff\xff\xff", 4));
    CHECK_U64(wire_long(&r, SIZE_MAX, "long").len, 0);
    CHECK_STR(r.wrong, "it ends early");
}

int main(void)
{
    RUN(fields_come_back);
    RUN(what_is_wrong_first_is_remembered);
    RUN(bounds_hold);
    return tap_done();
}
