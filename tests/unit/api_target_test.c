/* SPDX-License-Identifier: Apache-2.0 */
#include "api/target.h"
#include "tests/harness/tap.h"

#include <stdio.h>
#include <string.h>

/* "seg|seg?name=value&name=value" with bytes outside of printable ASCII as \xx; or NULL where it is
 * refused. */
static void show(const struct target *t, char *out, size_t size)
{
    struct buf b = {.max = size};
    for (unsigned i = 0; i < t->segment_count && i < API_PATH_SEGMENTS_MAX; i++) {
        buf_put_str(&b, i > 0 ? "|" : "");
        buf_put(&b, t->segments[i].data, t->segments[i].len);
    }
    for (unsigned i = 0; i < t->param_count; i++) {
        buf_put_str(&b, i > 0 ? "&" : "?");
        for (int k = 0; k < 2; k++) {
            struct slice s = k == 0 ? t->params[i].name : t->params[i].value;
            buf_put_str(&b, k > 0 ? "=" : "");
            for (size_t j = 0; j < s.len; j++) {
                if (s.data[j] >= 0x20 && s.data[j] < 0x7f) {
                    buf_put_u8(&b, s.data[j]);
                } else {
                    buf_printf(&b, "\\%02x", s.data[j]);
                }
            }
        }
    }
    buf_put_u8(&b, 0);
    memcpy(out, b.data, b.len);
    buf_close(&b);
}

static const struct {
    const char *text, *want;
} rows[] = {
    {"/", ""},
    {"/v1", "v1"},
    {"/v1/", "v1|"},
    {"/v1/keyspaces/orders/route?key=a", "v1|keyspaces|orders|route?key=a"},
    {"/v1/keyspaces/o%72ders", "v1|keyspaces|orders"},
    {"/a?", "a"},
    {"/a?x", "a?x="},
    {"/a?x=", "a?x="},
    {"/a?x=1&y=2", "a?x=1&y=2"},
    {"/a?x=1+2", "a?x=1+2"},
    {"/a?x=1%2B2", "a?x=1+2"},
    {"/a?x=%00%ff", "a?x=\\00\\ff"},
    {"/a?x=\xc3\xa9", "a?x=\\c3\\a9"},
    {"/a?x=a=b", "a?x=a=b"},
    {"/a?k%65y=v", "a?key=v"},
    {"/a?x=%26&y=%3d", "a?x=&&y=="},
    {"/a?x=/../b", "a?x=/../b"},
    {"/a?x=?", "a?x=?"},
    {"/a;x=1/b", "a;x=1|b"},
    {"/...", "..."},
    {"/.a/b.", ".a|b."},
    {"", NULL},
    {"*", NULL},
    {"a", NULL},
    {"http://h/a", NULL},
    {"h:80", NULL},
    {"//", NULL},
    {"//a", NULL},
    {"/a//b", NULL},
    {"/a//", NULL},
    {"/.", NULL},
    {"/..", NULL},
    {"/a/../b", NULL},
    {"/a/./b", NULL},
    {"/a/%2e%2e/b", NULL},
    {"/a/%2E./b", NULL},
    {"/a/%2e", NULL},
    {"/a%2fb", NULL},
    {"/a%2Fb", NULL},
    {"/a%5cb", NULL},
    {"/a\\b", NULL},
    {"/a%00", NULL},
    {"/a%0a", NULL},
    {"/a%7f", NULL},
    {"/a%", NULL},
    {"/a%1", NULL},
    {"/a%1g", NULL},
    {"/a%%", NULL},
    {"/a\x01", NULL},
    {"/a b", NULL},
    {"/a?x= y", NULL},
    {"/a?x=\x7f", NULL},
    {"/a\xc3\xa9", NULL},
    {"/a#f", NULL},
    {"/a?x=1#f", NULL},
    {"/a?x=%", NULL},
    {"/a?x=%0", NULL},
    {"/a?x%=1", NULL},
    {"/a?=1", NULL},
    {"/a?&", NULL},
    {"/a?x=1&&y=2", NULL},
    {"/a?x=1&x=2", NULL},
    {"/a?x&x", NULL},
    {"/a?x=1&%78=2", NULL},
};

static void table(void)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint8_t text[128];
        char got[256];
        struct api_param params[API_PARAMS_MAX];
        struct target t;
        struct err e = {.code = ERR_OK};
        size_t len = strlen(rows[i].text);
        memcpy(text, rows[i].text, len);
        tap_note("target \"%s\"", rows[i].text);
        enum err_code code = target_parse(text, len, params, &t, &e);
        if (rows[i].want == NULL) {
            CHECK_U64(code, ERR_INVALID_REQUEST);
            CHECK(e.detail[0] != '\0');
        } else if (CHECK_U64(code, ERR_OK)) {
            show(&t, got, sizeof got);
            CHECK_STR(got, rows[i].want);
        }
    }
}

static void a_nul_byte_is_refused(void)
{
    uint8_t path[] = "/a\0b", query[] = "/a?x=\0b";
    struct api_param params[API_PARAMS_MAX];
    struct target t;
    struct err e;
    CHECK_U64(target_parse(path, sizeof path - 1, params, &t, &e), ERR_INVALID_REQUEST);
    CHECK_U64(target_parse(query, sizeof query - 1, params, &t, &e), ERR_INVALID_REQUEST);
}

static void limits(void)
{
    char text[512];
    struct api_param params[API_PARAMS_MAX];
    struct target t;
    struct err e;
    size_t len = 0;
    for (int i = 0; i < API_PATH_SEGMENTS_MAX + 3; i++) {
        len += (size_t)snprintf(text + len, sizeof text - len, "/s");
    }
    CHECK_U64(target_parse((uint8_t *)text, len, params, &t, &e), ERR_OK);
    CHECK_U64(t.segment_count, API_PATH_SEGMENTS_MAX + 1);
    for (int more = 0; more < 2; more++) {
        len = (size_t)snprintf(text, sizeof text, "/a?p=0");
        for (int i = 1; i < API_PARAMS_MAX + more; i++) {
            len += (size_t)snprintf(text + len, sizeof text - len, "&p%d=%d", i, i);
        }
        CHECK_U64(target_parse((uint8_t *)text, len, params, &t, &e),
                  more ? ERR_INVALID_REQUEST : ERR_OK);
    }
    CHECK(strstr(e.detail, "32") != NULL);
}

/* Whatever comes, it ends, stays within bounds (the address sanitizer looks), and what is accepted
 * has no way up. */
static void random_bytes(void)
{
    struct tap_rand r = {tap_seed(7)};
    static const char likely[] = "/.%2eEfF5c0?&=+a\\#";
    for (int i = 0; i < 200000 && tap_failures() == 0; i++) {
        uint8_t text[24];
        struct api_param params[API_PARAMS_MAX];
        struct target t;
        struct err e;
        size_t len = tap_rand_below(&r, sizeof text + 1);
        for (size_t k = 0; k < len; k++) {
            uint64_t n = tap_rand_below(&r, 32);
            text[k] = n < sizeof likely - 1 ? (uint8_t)likely[n] : (uint8_t)tap_rand(&r);
        }
        if (len > 0) {
            text[0] = '/';
        }
        if (target_parse(text, len, params, &t, &e) != ERR_OK) {
            continue;
        }
        for (unsigned k = 0; k < t.segment_count && k < API_PATH_SEGMENTS_MAX; k++) {
            struct slice s = t.segments[k];
            CHECK(s.len == 0 || memchr(s.data, '/', s.len) == NULL);
            CHECK(s.len != 2 || memcmp(s.data, "..", 2) != 0);
            CHECK(s.len > 0 || k + 1 == t.segment_count);
        }
    }
}

int main(void)
{
    RUN(table);
    RUN(a_nul_byte_is_refused);
    RUN(limits);
    RUN(random_bytes);
    return tap_done();
}
