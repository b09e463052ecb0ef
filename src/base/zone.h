/* SPDX-License-Identifier: Apache-2.0 */
/* Time zones of the IANA database: what their clocks show at an instant. Pure but for zone_load().
 * Instants are seconds since 1970 in UTC. Any thread; a zone does not change. */
#ifndef BASE_ZONE_H
#define BASE_ZONE_H

#include "base/buf.h"
#include "base/err.h"

enum {
    ZONE_NAME_MAX = 64,
    ZONE_FILE_MAX = 64 << 10,    /* larger files are refused */
    ZONE_OFFSET_MAX = 26 * 3600, /* seconds, either side of UTC */
    ZONE_TEXT_SIZE = 24
};
#define ZONE_FOLDER "/usr/share/zoneinfo"

/* "Europe/Zurich": parts of letters, digits, "_", "+" and "-" between slashes; so it never leaves
 * the folder. `localtime` and `posixrules` are another thing on each server, and no names. */
bool zone_name_is_fine(struct slice name);

struct zone;
/* TZif (RFC 9636), versions 1 to 4; without leap seconds. NULL: ERR_CORRUPT says why. */
struct zone *zone_parse(struct slice bytes, struct err *e) MUST_CHECK;
/* From the folder; "UTC" needs no file. NULL: ERR_INVALID_REQUEST, ERR_IO or ERR_CORRUPT. */
struct zone *zone_load(const char *folder, const char *name, struct err *e) MUST_CHECK;
void zone_free(struct zone *z); /* NULL is fine */

/* The time around an instant in which nothing changes: [begin, end). */
struct zone_span {
    int64_t begin, end; /* INT64_MIN, INT64_MAX: always was, for ever */
    int32_t offset;     /* seconds to add to UTC */
};
struct zone_span zone_at(const struct zone *z, int64_t t);

/* What the clocks show, to the minute: "2026-12-01 07:00". */
void zone_text(const struct zone *z, int64_t t, char out[ZONE_TEXT_SIZE]);

/* --- what holds after the table of a file: its footer, as POSIX writes TZ --- */

enum zone_day_kind {
    ZONE_DAY_JULIAN, /* Jn: 1 to 365, without the 29th of February */
    ZONE_DAY_COUNT,  /* n: 0 to 365 */
    ZONE_DAY_MONTH   /* Mm.w.d: the w-th (5: the last) weekday d, 0 being Sunday, of the month */
};
struct zone_change {
    enum zone_day_kind kind;
    uint16_t day;
    uint8_t month, week;
    int32_t seconds; /* of that day, by the clock before the change; may be on other days */
};
struct zone_rule {
    int32_t standard, daylight; /* offsets */
    bool has_daylight;
    struct zone_change to_daylight, to_standard;
};
/* "CET-1CEST,M3.5.0,M10.5.0/3". False, and nothing is written, when it is not understood whole. */
bool zone_rule_parse(struct slice text, struct zone_rule *ret);
struct zone_span zone_rule_at(const struct zone_rule *r, int64_t t);

#endif
