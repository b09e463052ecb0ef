/* SPDX-License-Identifier: Apache-2.0 */
#include "base/parse.h"

#include <stdio.h>
#include <string.h>

/* Digits at the start of `text`; returns what follows them, or NULL. */
static const char *leading_u64(const char *text, uint64_t *ret_value)
{
    uint64_t value = 0;
    const char *p = text;
    for (; *p >= '0' && *p <= '9'; p++) {
        uint64_t digit = (uint64_t)(*p - '0');
        if (value > (UINT64_MAX - digit) / 10) {
            return NULL;
        }
        value = value * 10 + digit;
    }
    if (p == text || (text[0] == '0' && p != text + 1)) {
        return NULL;
    }
    *ret_value = value;
    return p;
}

bool parse_u64(const char *text, uint64_t max, uint64_t *ret_value)
{
    uint64_t value;
    const char *end = leading_u64(text, &value);
    if (end == NULL || *end != '\0' || value > max) {
        return false;
    }
    *ret_value = value;
    return true;
}

struct unit {
    const char *suffix;
    uint64_t factor;
};

static bool parse_with_unit(const char *text, const struct unit *units, uint64_t *ret_value)
{
    uint64_t value;
    const char *end = leading_u64(text, &value);
    for (; end != NULL && units->suffix != NULL; units++) {
        if (strcmp(end, units->suffix) == 0) {
            if (value > UINT64_MAX / units->factor) {
                return false;
            }
            *ret_value = value * units->factor;
            return true;
        }
    }
    return false;
}

bool parse_duration_ms(const char *text, uint64_t *ret_ms)
{
    static const struct unit units[] = {{"ms", 1},      {"s", 1000},     {"m", 60000},
                                        {"h", 3600000}, {"d", 86400000}, {NULL, 0}};
    return parse_with_unit(text, units, ret_ms);
}

bool parse_size_bytes(const char *text, uint64_t *ret_bytes)
{
    static const struct unit units[] = {{"", 1},
                                        {"B", 1},
                                        {"KiB", UINT64_C(1) << 10},
                                        {"MiB", UINT64_C(1) << 20},
                                        {"GiB", UINT64_C(1) << 30},
                                        {"TiB", UINT64_C(1) << 40},
                                        {"KB", UINT64_C(1000)},
                                        {"MB", UINT64_C(1000000)},
                                        {"GB", UINT64_C(1000000000)},
                                        {"TB", UINT64_C(1000000000000)},
                                        {NULL, 0}};
    return parse_with_unit(text, units, ret_bytes);
}

bool parse_rate_bytes(const char *text, uint64_t *ret_bytes_per_s)
{
    char size[32];
    size_t len = strlen(text);
    if (len < 3 || len - 2 >= sizeof size || strcmp(text + len - 2, "/s") != 0) {
        return false;
    }
    (void)snprintf(size, sizeof size, "%.*s", (int)(len - 2), text);
    return parse_size_bytes(size, ret_bytes_per_s);
}

bool parse_percent_ppm(const char *text, uint32_t max_ppm, uint32_t *ret_ppm)
{
    enum { PPM_PER_PERCENT = 10000 };
    uint64_t value;
    const char *p = leading_u64(text, &value);
    if (p == NULL || value > max_ppm / PPM_PER_PERCENT) {
        return false;
    }
    value *= PPM_PER_PERCENT;
    if (*p == '.') {
        uint64_t place = PPM_PER_PERCENT / 10;
        if (p[1] < '0' || p[1] > '9') {
            return false;
        }
        for (p++; *p >= '0' && *p <= '9' && place > 0; p++, place /= 10) {
            value += (uint64_t)(*p - '0') * place;
        }
    }
    if (strcmp(p, "%") != 0 || value > max_ppm) {
        return false;
    }
    *ret_ppm = (uint32_t)value;
    return true;
}

bool parse_host_port(const char *text, char *ret_host, size_t host_size, uint16_t *ret_port)
{
    const char *colon = strrchr(text, ':');
    uint64_t port;
    if (colon == NULL || colon == text || !parse_u64(colon + 1, 65535, &port)) {
        return false;
    }
    const char *start = text, *end = colon;
    if (*start == '[') {
        if (end[-1] != ']') {
            return false;
        }
        start++;
        end--;
    } else if (memchr(start, ':', (size_t)(end - start)) != NULL) {
        return false; /* an IPv6 address needs its brackets */
    }
    if (end == start || (size_t)(end - start) >= host_size) {
        return false;
    }
    (void)snprintf(ret_host, host_size, "%.*s", (int)(end - start), start);
    *ret_port = (uint16_t)port;
    return true;
}

static int hex_digit(uint8_t c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool parse_hex(struct slice text, uint8_t *out, size_t out_max, size_t *ret_len)
{
    if (text.len % 2 != 0 || text.len / 2 > out_max) {
        return false;
    }
    for (size_t i = 0; i < text.len; i += 2) {
        int high = hex_digit(text.data[i]), low = hex_digit(text.data[i + 1]);
        if (high < 0 || low < 0) {
            return false;
        }
        out[i / 2] = (uint8_t)(high * 16 + low);
    }
    *ret_len = text.len / 2;
    return true;
}

bool parse_is_name(struct slice text)
{
    if (text.len < 1 || text.len > 63) {
        return false;
    }
    for (size_t i = 0; i < text.len; i++) {
        uint8_t c = text.data[i];
        bool alnum = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
        if (!alnum && (i == 0 || (c != '.' && c != '_' && c != '-'))) {
            return false;
        }
    }
    return true;
}

/* Length of the sequence that starts with `lead`, and the range its second byte must be in; 0 when
 * it can't lead. */
static size_t utf8_sequence(uint8_t lead, uint8_t *ret_low, uint8_t *ret_high)
{
    *ret_low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    *ret_high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    if (lead < 0x80) {
        return 1;
    }
    if (lead < 0xc2 || lead > 0xf4) {
        return 0;
    }
    return lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}

bool parse_is_utf8(struct slice text)
{
    for (size_t i = 0; i < text.len;) {
        uint8_t low, high;
        size_t n = utf8_sequence(text.data[i], &low, &high);
        if (n == 0 || n > text.len - i) {
            return false;
        }
        for (size_t k = 1; k < n; k++, low = 0x80, high = 0xbf) {
            if (text.data[i + k] < low || text.data[i + k] > high) {
                return false;
            }
        }
        i += n;
    }
    return true;
}

/* --- times --- */

/* `n` digits; returns what follows, or NULL. */
static const char *digits(const char *text, unsigned n, unsigned *ret)
{
    *ret = 0;
    for (unsigned i = 0; text != NULL && i < n; i++) {
        if (text[i] < '0' || text[i] > '9') {
            return NULL;
        }
        *ret = 10 * *ret + (unsigned)(text[i] - '0');
    }
    return text != NULL ? text + n : NULL;
}

static const char *skip(const char *text, char c)
{
    return text != NULL && *text == c ? text + 1 : NULL;
}

static unsigned days_of_month(unsigned year, unsigned month)
{
    static const uint8_t days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    return days[month - 1] + (month == 2 && leap ? 1U : 0U);
}

/* ".1" is 100 ms. */
static const char *decimals(const char *text, unsigned *ret_ms)
{
    unsigned scale = 100;
    *ret_ms = 0;
    if (text == NULL || *text != '.') {
        return text;
    }
    for (text++; *text >= '0' && *text <= '9' && scale > 0; text++, scale /= 10) {
        *ret_ms += scale * (unsigned)(*text - '0');
    }
    return scale == 100 ? NULL : text;
}

bool parse_rfc3339(const char *text, uint64_t *ret_wall_ms)
{
    unsigned year, month, day, hour, minute, second, ms;
    const char *at = skip(digits(text, 4, &year), '-');
    at = skip(digits(at, 2, &month), '-');
    at = skip(digits(at, 2, &day), 'T');
    at = skip(digits(at, 2, &hour), ':');
    at = skip(digits(at, 2, &minute), ':');
    at = skip(decimals(digits(at, 2, &second), &ms), 'Z');
    if (at == NULL || *at != '\0' || year < 1970 || month < 1 || month > 12 || day < 1 ||
        day > days_of_month(year, month) || hour > 23 || minute > 59 || second > 59) {
        return false;
    }
    uint64_t days = day - 1;
    for (unsigned y = 1970; y < year; y++) {
        days += 337 + days_of_month(y, 2);
    }
    for (unsigned m = 1; m < month; m++) {
        days += days_of_month(year, m);
    }
    *ret_wall_ms = (((days * 24 + hour) * 60 + minute) * 60 + second) * 1000 + ms;
    return true;
}
