/* SPDX-License-Identifier: Apache-2.0 */
#include "api/scan.h"

#include "base/assert.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/parse.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum expect {
    EXPECT_VALUE,
    EXPECT_FIRST, /* a name or an element, or the end of what holds them */
    EXPECT_NEXT,  /* a comma, or the end */
    EXPECT_NOTHING
};

void scan_open(struct scan *s, struct slice text, bool unique)
{
    s->text = text;
    s->at = 0;
    s->unique = unique;
    s->depth = 0;
    s->expect = EXPECT_VALUE;
    s->span = slice_of(NULL, 0);
    s->escaped = false;
    s->integer = 0;
    s->error = NULL;
}

void scan_close(struct scan *s)
{
    while (s->depth > 0) {
        mem_free(s->levels[--s->depth].table);
    }
}

static enum scan_event fail(struct scan *s, const char *what)
{
    s->error = what;
    return SCAN_ERROR;
}

static int peek(const struct scan *s)
{
    return s->at < s->text.len ? s->text.data[s->at] : -1;
}

static void skip_blanks(struct scan *s)
{
    while (s->at < s->text.len) {
        uint8_t c = s->text.data[s->at];
        if (c != ' ' && c != '\n' && c != '\r' && c != '\t') {
            break;
        }
        s->at++;
    }
}

/* --- strings --- */

static int hex_digit(uint8_t c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The four digits at `p`, of which `room` bytes are there; -1 when they are not. */
static int32_t four_hex(const uint8_t *p, size_t room)
{
    int32_t v = 0;
    for (unsigned i = 0; i < 4; i++) {
        int digit = room > i ? hex_digit(p[i]) : -1;
        if (digit < 0) {
            return -1;
        }
        v = v * 16 + digit;
    }
    return v;
}

/* The code point of the \u at `p` (after the u), and how many bytes it took; -1 when it is none. */
static int32_t escaped_point(const uint8_t *p, size_t room, size_t *ret_used)
{
    int32_t high = four_hex(p, room);
    *ret_used = 4;
    if (high < 0 || (high & 0xfc00) == 0xdc00) {
        return -1;
    }
    if ((high & 0xfc00) != 0xd800) {
        return high;
    }
    int32_t low = room > 6 && p[4] == '\\' && p[5] == 'u' ? four_hex(p + 6, room - 6) : -1;
    if (low < 0 || (low & 0xfc00) != 0xdc00) {
        return -1;
    }
    *ret_used = 10;
    return 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
}

/* At the backslash. Moves past the escape. */
static bool check_escape(struct scan *s)
{
    const uint8_t *p = s->text.data + s->at;
    size_t room = s->text.len - s->at, used;
    s->escaped = true;
    if (room < 2) {
        return false;
    }
    if (p[1] != 'u') {
        s->at += 2;
        return p[1] != '\0' && strchr("\"\\/bfnrt", p[1]) != NULL;
    }
    int32_t point = escaped_point(p + 2, room - 2, &used);
    s->at += 2 + used;
    return point >= 0;
}

/* At the opening quote. */
static bool read_string(struct scan *s)
{
    size_t from = ++s->at;
    uint8_t high = 0;
    s->escaped = false;
    for (;;) {
        int c = peek(s);
        if (c < 0x20) {
            s->error = c < 0 ? "the text ends within a string" : "a string has a raw control byte";
            return false;
        }
        if (c == '"') {
            break;
        }
        if (c != '\\') {
            high |= (uint8_t)c;
            s->at++;
        } else if (!check_escape(s)) {
            s->error = "a string has a bad escape";
            return false;
        }
    }
    s->span = slice_of(s->text.data + from, s->at - from);
    s->at++;
    if (high >= 0x80 && !parse_is_utf8(s->span)) {
        s->error = "a string is not UTF-8";
        return false;
    }
    return true;
}

static size_t put_utf8(uint8_t *out, int32_t point)
{
    uint32_t p = (uint32_t)point;
    if (p < 0x80) {
        out[0] = (uint8_t)p;
        return 1;
    }
    size_t n = p < 0x800 ? 2 : p < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, p >>= 6) {
        out[i] = (uint8_t)(0x80 | (p & 0x3f));
    }
    out[0] = (uint8_t)((0xf00U >> n & 0xf0) | p);
    return n;
}

/* The escape at `p` was checked. Returns how long it is. */
static size_t unescape_one(const uint8_t *p, size_t room, uint8_t *out, size_t *ret_len)
{
    static const char from[] = "bfnrt", to[] = "\b\f\n\r\t";
    if (p[1] == 'u') {
        size_t used;
        *ret_len = put_utf8(out, escaped_point(p + 2, room - 2, &used));
        return 2 + used;
    }
    const char *letter = strchr(from, p[1]);
    out[0] = letter != NULL ? (uint8_t)to[letter - from] : p[1];
    *ret_len = 1;
    return 2;
}

size_t scan_copy(const struct scan *s, uint8_t *out, size_t size)
{
    size_t len = 0;
    if (!s->escaped) {
        if (s->span.len > size) {
            return SIZE_MAX;
        }
        if (s->span.len > 0) {
            memcpy(out, s->span.data, s->span.len);
        }
        return s->span.len;
    }
    for (size_t i = 0; i < s->span.len;) {
        uint8_t one[4];
        size_t n = 1;
        one[0] = s->span.data[i];
        i += one[0] == '\\' ? unescape_one(s->span.data + i, s->span.len - i, one, &n) : 1;
        if (size - len < n) {
            return SIZE_MAX;
        }
        memcpy(out + len, one, n);
        len += n;
    }
    return len;
}

bool scan_is(const struct scan *s, const char *word)
{
    size_t len = strlen(word);
    uint8_t text[128];
    if (!s->escaped) {
        return s->span.len == len && memcmp(s->span.data, word, len) == 0;
    }
    return scan_copy(s, text, sizeof text) == len && memcmp(text, word, len) == 0;
}

/* --- members that come twice --- */

static bool table_add(struct scan_level *l, uint64_t hash)
{
    size_t i = hash & (l->table_cap - 1);
    while (l->table[i] != 0) {
        if (l->table[i] == hash) {
            return false;
        }
        i = (i + 1) & (l->table_cap - 1);
    }
    l->table[i] = hash;
    return true;
}

static void table_grow(struct scan_level *l)
{
    uint64_t *old = l->table;
    size_t old_cap = l->table_cap;
    l->table_cap = old_cap > 0 ? 4 * old_cap : 8 * SCAN_FEW;
    l->table = mem_zalloc(l->table_cap * sizeof *l->table);
    for (size_t i = 0; i < old_cap; i++) {
        if (old[i] != 0) {
            (void)table_add(l, old[i]);
        }
    }
    for (unsigned i = 0; i < SCAN_FEW && old_cap == 0; i++) {
        (void)table_add(l, l->few[i]);
    }
    mem_free(old);
}

/* Whether this name is new in the present object. Names count as equal when their hashes are: that
 * refuses a pair in 2^64 by mistake, and lets none through. */
static bool name_is_new(struct scan *s, struct scan_level *l)
{
    uint64_t hash;
    if (s->escaped) {
        uint8_t *text = mem_alloc(s->span.len);
        hash = hash_xxh3_64(text, scan_copy(s, text, s->span.len));
        mem_free(text);
    } else {
        hash = hash_xxh3_64(s->span.data, s->span.len);
    }
    hash |= hash == 0;
    size_t count = (size_t)l->index;
    if (count < SCAN_FEW) {
        for (size_t i = 0; i < count; i++) {
            if (l->few[i] == hash) {
                return false;
            }
        }
        l->few[count] = hash;
        return true;
    }
    if (2 * count >= l->table_cap) {
        table_grow(l);
    }
    return table_add(l, hash);
}

/* The escapes were checked. A backslash that is itself escaped begins none. */
static bool has_nul(const struct scan *s)
{
    for (size_t i = 0; s->escaped && i < s->span.len; i++) {
        if (s->span.data[i] != '\\') {
            continue;
        }
        if (s->span.data[++i] == 'u' && memcmp(s->span.data + i + 1, "0000", 4) == 0) {
            return true;
        }
    }
    return false;
}

static enum scan_event read_name(struct scan *s)
{
    struct scan_level *l = &s->levels[s->depth - 1];
    if (peek(s) != '"') {
        return fail(s, "a member must begin with its name in quotes");
    }
    if (!read_string(s)) {
        return SCAN_ERROR;
    }
    l->name = s->span;
    if (has_nul(s)) {
        return fail(s, "a member's name has a NUL");
    }
    if (l->index == SCAN_MEMBERS_MAX) {
        return fail(s, "an object has too many members");
    }
    if (s->unique && !name_is_new(s, l)) {
        return fail(s, "the member comes twice");
    }
    l->index++;
    skip_blanks(s);
    if (peek(s) != ':') {
        return fail(s, "a : must follow the name");
    }
    s->at++;
    s->expect = EXPECT_VALUE;
    return SCAN_NAME;
}

/* --- values --- */

static enum scan_event done(struct scan *s, enum scan_event event)
{
    s->expect = s->depth > 0 ? EXPECT_NEXT : EXPECT_NOTHING;
    return event;
}

static enum scan_event open_level(struct scan *s, bool array)
{
    if (s->depth == JSON_DEPTH_MAX) {
        return fail(s, "the nesting is too deep");
    }
    struct scan_level *l = &s->levels[s->depth++];
    l->array = array;
    l->index = 0;
    l->name = slice_of(NULL, 0);
    l->table = NULL;
    l->table_cap = 0;
    s->at++;
    s->expect = EXPECT_FIRST;
    return array ? SCAN_ARRAY : SCAN_OBJECT;
}

static enum scan_event close_level(struct scan *s)
{
    struct scan_level *l = &s->levels[--s->depth];
    mem_free(l->table);
    s->at++;
    return done(s, l->array ? SCAN_ARRAY_END : SCAN_OBJECT_END);
}

static size_t digits(struct scan *s)
{
    size_t from = s->at;
    while (s->at < s->text.len && s->text.data[s->at] >= '0' && s->text.data[s->at] <= '9') {
        s->at++;
    }
    return s->at - from;
}

/* The grammar of RFC 8259, section 6. */
static bool number_syntax(struct scan *s, bool *ret_real)
{
    *ret_real = false;
    s->at += peek(s) == '-';
    bool zero = peek(s) == '0';
    size_t whole = digits(s);
    if (whole == 0 || (zero && whole > 1)) {
        return false;
    }
    if (peek(s) == '.') {
        *ret_real = true;
        s->at++;
        if (digits(s) == 0) {
            return false;
        }
    }
    if (peek(s) == 'e' || peek(s) == 'E') {
        *ret_real = true;
        s->at++;
        s->at += peek(s) == '+' || peek(s) == '-';
        return digits(s) > 0;
    }
    return true;
}

static enum scan_event read_number(struct scan *s)
{
    size_t from = s->at;
    bool real;
    if (!number_syntax(s, &real)) {
        return fail(s, "a number is malformed");
    }
    s->span = slice_of(s->text.data + from, s->at - from);
    char text[SCAN_NUMBER_MAX + 1];
    if (s->span.len > SCAN_NUMBER_MAX) {
        return fail(s, "a number is too long");
    }
    memcpy(text, s->span.data, s->span.len);
    text[s->span.len] = '\0';
    if (real) {
        return isinf(strtod(text, NULL)) ? fail(s, "a number is too large") : done(s, SCAN_REAL);
    }
    uint64_t magnitude;
    bool negative = text[0] == '-';
    if (!parse_u64(text + negative, PARSE_INT_MAX, &magnitude)) {
        return fail(s, "an integer is beyond 2^53-1");
    }
    s->integer = negative ? -(int64_t)magnitude : (int64_t)magnitude;
    return done(s, SCAN_INTEGER);
}

static enum scan_event read_word(struct scan *s, const char *word, enum scan_event event)
{
    size_t len = strlen(word);
    if (s->text.len - s->at < len || memcmp(s->text.data + s->at, word, len) != 0) {
        return fail(s, "a value is missing or malformed");
    }
    s->at += len;
    return done(s, event);
}

static enum scan_event read_value(struct scan *s)
{
    switch (peek(s)) {
    case '{':
        return open_level(s, false);
    case '[':
        return open_level(s, true);
    case '"':
        return read_string(s) ? done(s, SCAN_STRING) : SCAN_ERROR;
    case 't':
        return read_word(s, "true", SCAN_TRUE);
    case 'f':
        return read_word(s, "false", SCAN_FALSE);
    case 'n':
        return read_word(s, "null", SCAN_NULL);
    case -1:
        return fail(s, "the text ends too early");
    default:
        return read_number(s);
    }
}

/* Between two members or elements. */
static bool pass_comma(struct scan *s, struct scan_level *l)
{
    if (peek(s) != ',') {
        s->error = l->array ? "a , or ] is missing" : "a , or } is missing";
        return false;
    }
    s->at++;
    skip_blanks(s);
    l->index += l->array;
    l->name = slice_of(NULL, 0);
    s->expect = EXPECT_FIRST;
    return true;
}

enum scan_event scan_next(struct scan *s)
{
    if (s->error != NULL) {
        return SCAN_ERROR;
    }
    skip_blanks(s);
    if (s->expect == EXPECT_NOTHING) {
        return s->at == s->text.len ? SCAN_END : fail(s, "something follows the value");
    }
    if (s->depth == 0) {
        return read_value(s);
    }
    struct scan_level *l = &s->levels[s->depth - 1];
    if (s->expect != EXPECT_VALUE && peek(s) == (l->array ? ']' : '}')) {
        return close_level(s);
    }
    if (s->expect == EXPECT_NEXT && !pass_comma(s, l)) {
        return SCAN_ERROR;
    }
    return s->expect == EXPECT_FIRST && !l->array ? read_name(s) : read_value(s);
}

bool scan_skip(struct scan *s)
{
    unsigned depth = s->depth;
    enum scan_event event;
    do {
        event = scan_next(s);
    } while (event != SCAN_ERROR && event != SCAN_END && s->depth > depth);
    return event != SCAN_ERROR;
}

/* --- where --- */

void scan_pointer_add(char *out, size_t size, struct slice step)
{
    size_t len = strlen(out);
    if (len + 1 < size) {
        out[len++] = '/';
    }
    for (size_t i = 0; i < step.len; i++) {
        uint8_t c = step.data[i];
        const char text[3] = {c == '~' || c == '/' ? '~' : (char)c, c == '~' ? '0' : '1', '\0'};
        size_t n = text[0] == '~' ? 2 : 1;
        if (len + n >= size) {
            break;
        }
        memcpy(out + len, text, n);
        len += n;
    }
    out[len] = '\0';
    /* Not in the middle of a character. */
    while (len > 0 && !parse_is_utf8(slice_of(out, len))) {
        out[--len] = '\0';
    }
}

void scan_pointer(const struct scan *s, char *out, size_t size)
{
    ASSERT(size > 0);
    out[0] = '\0';
    for (unsigned i = 0; i < s->depth; i++) {
        const struct scan_level *l = &s->levels[i];
        char text[24];
        struct slice step = l->name;
        uint8_t name[256];
        if (l->array) {
            int n = snprintf(text, sizeof text, "%llu", (unsigned long long)l->index);
            step = slice_of(text, (size_t)n);
        } else if (l->name.data == NULL) {
            break;
        } else {
            struct scan copy = {.span = l->name, .escaped = true};
            copy.span.len = l->name.len < sizeof name ? l->name.len : 0;
            step = slice_of(name, scan_copy(&copy, name, sizeof name));
        }
        scan_pointer_add(out, size, step);
    }
}

enum err_code scan_refuse(const struct scan *s, struct err *e, const char *what)
{
    char pointer[sizeof e->pointer];
    scan_pointer(s, pointer, sizeof pointer);
    return err_set_at(e, ERR_INVALID_REQUEST, pointer, "%s", what);
}

enum err_code scan_error(const struct scan *s, struct err *e)
{
    char what[160];
    (void)snprintf(what, sizeof what, "the JSON is not valid at byte %zu: %s", s->at, s->error);
    return scan_refuse(s, e, what);
}
