/* SPDX-License-Identifier: Apache-2.0 */
#include "base/zone.h"

#include "base/calendar.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEADER_BYTES = 44, TYPE_BYTES = 6, TYPES_MAX = 256 };

struct zone {
    uint32_t count;
    int64_t *at;     /* owns: when each change was, ascending */
    int32_t *offset; /* owns: and the offset from then on */
    int32_t first;   /* before the first change */
    bool has_rule;
    struct zone_rule rule; /* after the last change */
};

/* --- names --- */

static bool is_name_byte(uint8_t c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '+' || c == '-';
}

bool zone_name_is_fine(struct slice name)
{
    bool part = false; /* the last byte was of one */
    for (size_t i = 0; i < name.len; i++) {
        if (!is_name_byte(name.data[i]) && !(part && name.data[i] == '/')) {
            return false;
        }
        part = name.data[i] != '/';
    }
    return part && name.len <= ZONE_NAME_MAX && !slice_eq(name, slice_of("localtime", 9)) &&
           !slice_eq(name, slice_of("posixrules", 10));
}

/* --- TZif --- */

static uint64_t big_endian(const uint8_t *p, size_t n)
{
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++) {
        v = v << 8 | p[i];
    }
    return v;
}

/* One header with its block. */
struct block {
    uint8_t version;
    uint32_t is_ut, is_std, leaps, times, types, chars;
    size_t time_bytes;   /* of a time: 4 in the first block, 8 in the second */
    const uint8_t *data; /* what follows the header */
    size_t len;          /* of that */
};

/* False: it is cut short, or no such block. */
static bool take_block(struct slice *s, size_t time_bytes, struct block *b)
{
    if (s->len < HEADER_BYTES || memcmp(s->data, "TZif", 4) != 0) {
        return false;
    }
    const uint8_t *counts = s->data + 20;
    *b = (struct block){.version = s->data[4],
                        .is_ut = (uint32_t)big_endian(counts, 4),
                        .is_std = (uint32_t)big_endian(counts + 4, 4),
                        .leaps = (uint32_t)big_endian(counts + 8, 4),
                        .times = (uint32_t)big_endian(counts + 12, 4),
                        .types = (uint32_t)big_endian(counts + 16, 4),
                        .chars = (uint32_t)big_endian(counts + 20, 4),
                        .time_bytes = time_bytes,
                        .data = s->data + HEADER_BYTES};
    /* Each count is below 2^32: no sum of them overflows. */
    uint64_t len = (uint64_t)b->times * (time_bytes + 1) + (uint64_t)b->types * TYPE_BYTES +
                   b->chars + (uint64_t)b->leaps * (time_bytes + 4) + b->is_std + b->is_ut;
    if (len > s->len - HEADER_BYTES) {
        return false;
    }
    b->len = (size_t)len;
    *s = slice_of(b->data + len, s->len - HEADER_BYTES - (size_t)len);
    return true;
}

static int32_t type_offset(const struct block *b, uint8_t type)
{
    const uint8_t *types = b->data + (size_t)b->times * (b->time_bytes + 1);
    return (int32_t)(uint32_t)big_endian(types + (size_t)type * TYPE_BYTES, 4);
}

static int64_t time_of(const struct block *b, uint32_t i)
{
    uint64_t raw = big_endian(b->data + (size_t)i * b->time_bytes, b->time_bytes);
    return b->time_bytes == 4 ? (int32_t)(uint32_t)raw : (int64_t)raw;
}

static const char *check_types(const struct block *b)
{
    if (b->types == 0 || b->types > TYPES_MAX || b->chars == 0) {
        return "it has no types of time, or too many";
    }
    if (b->leaps > 0) {
        return "it counts leap seconds";
    }
    for (uint32_t i = 0; i < b->types; i++) {
        int32_t offset = type_offset(b, (uint8_t)i);
        if (offset < -ZONE_OFFSET_MAX || offset > ZONE_OFFSET_MAX) {
            return "an offset is out of range";
        }
    }
    return NULL;
}

static const char *take_changes(struct zone *z, const struct block *b)
{
    const uint8_t *which = b->data + (size_t)b->times * b->time_bytes;
    z->first = type_offset(b, 0);
    z->at = mem_alloc(((size_t)b->times + 1) * sizeof z->at[0]);
    z->offset = mem_alloc(((size_t)b->times + 1) * sizeof z->offset[0]);
    for (uint32_t i = 0; i < b->times; i++) {
        if (which[i] >= b->types) {
            return "a change is to no type";
        }
        z->at[i] = time_of(b, i);
        z->offset[i] = type_offset(b, which[i]);
        if (i > 0 && z->at[i] <= z->at[i - 1]) {
            return "its changes are not in order";
        }
    }
    z->count = b->times;
    return NULL;
}

/* "\n" TZ "\n"; an empty one says nothing. */
static const char *take_footer(struct zone *z, struct slice s)
{
    const uint8_t *end = s.len > 1 ? memchr(s.data + 1, '\n', s.len - 1) : NULL;
    if (end == NULL || s.data[0] != '\n') {
        return "its footer is cut short";
    }
    struct slice text = slice_of(s.data + 1, (size_t)(end - s.data) - 1);
    z->has_rule = text.len > 0;
    return text.len == 0 || zone_rule_parse(text, &z->rule) ? NULL : "its footer is not understood";
}

static const char *take_all(struct zone *z, struct slice bytes)
{
    struct slice s = bytes;
    struct block b;
    if (!take_block(&s, 4, &b)) {
        return "it is no TZif, or cut short";
    }
    bool longer = b.version >= '2';
    if (longer && !take_block(&s, 8, &b)) {
        return "its second block is cut short";
    }
    const char *why = check_types(&b);
    why = why == NULL ? take_changes(z, &b) : why;
    return why == NULL && longer ? take_footer(z, s) : why;
}

struct zone *zone_parse(struct slice bytes, struct err *e)
{
    struct zone *z = mem_zalloc(sizeof *z);
    const char *why = bytes.len > ZONE_FILE_MAX ? "it is too large" : take_all(z, bytes);
    if (why != NULL) {
        (void)err_set(e, ERR_CORRUPT, "not a time zone: %s", why);
        zone_free(z);
        return NULL;
    }
    return z;
}

void zone_free(struct zone *z)
{
    if (z != NULL) {
        mem_free(z->at);
        mem_free(z->offset);
        mem_free(z);
    }
}

/* --- files --- */

static struct zone *read_from(int fd, const char *name, struct err *e)
{
    struct stat st;
    size_t len = 0;
    ssize_t n = 1;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size > ZONE_FILE_MAX) {
        (void)err_set(e, ERR_IO, "the time zone %s is no file of its kind", name);
        return NULL;
    }
    uint8_t *bytes = mem_alloc((size_t)st.st_size + 1);
    while (len < (size_t)st.st_size && n > 0) {
        n = read(fd, bytes + len, (size_t)st.st_size - len);
        len += n > 0 ? (size_t)n : 0;
    }
    struct zone *z = zone_parse(slice_of(bytes, len), e);
    mem_free(bytes);
    return z;
}

struct zone *zone_load(const char *folder, const char *name, struct err *e)
{
    char path[256];
    if (!zone_name_is_fine(slice_of(name, strlen(name)))) {
        (void)err_set(e, ERR_INVALID_REQUEST, "not the name of a time zone");
        return NULL;
    }
    if (strcmp(name, "UTC") == 0) {
        return mem_zalloc(sizeof(struct zone));
    }
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) {
        (void)err_set(e, ERR_IO, "the folder of time zones has too long a name");
        return NULL;
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        (void)err_set(e, ERR_IO, "the time zone %s: %s", name, strerror(errno));
        return NULL;
    }
    struct zone *z = read_from(fd, name, e);
    (void)close(fd);
    return z;
}

/* --- what the clocks show --- */

struct zone_span zone_at(const struct zone *z, int64_t t)
{
    uint32_t low = 0, high = z->count; /* changes below `low` are at or before t */
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (z->at[middle] <= t) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    struct zone_span s = {low > 0 ? z->at[low - 1] : INT64_MIN,
                          low < z->count ? z->at[low] : INT64_MAX,
                          low > 0 ? z->offset[low - 1] : z->first};
    if (low == z->count && z->has_rule) {
        struct zone_span ruled = zone_rule_at(&z->rule, t);
        ruled.begin = ruled.begin > s.begin ? ruled.begin : s.begin;
        return ruled;
    }
    return s;
}

void zone_text(const struct zone *z, int64_t t, char out[ZONE_TEXT_SIZE])
{
    int64_t local = t + zone_at(z, t).offset, day = calendar_day_of(local);
    struct calendar_date d = calendar_date_of(day);
    int64_t minute = (local - day * CALENDAR_DAY_S) / 60;
    (void)snprintf(out, ZONE_TEXT_SIZE, "%04d-%02u-%02u %02u:%02u", (int)(d.year % 10000), d.month,
                   d.day, (unsigned)(minute / 60) % 24, (unsigned)(minute % 60));
}
