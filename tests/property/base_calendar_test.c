/* SPDX-License-Identifier: Apache-2.0 */
/* Zones and weekly windows against the C library, over all zones of zone1970.tab: the offset at
 * random instants and around each change, beyond the tables too; and whether a window is open, and
 * when that changes, against a walk over the library's clock minute by minute. */
#include "base/calendar.h"
#include "base/mem.h"
#include "tests/harness/tap.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    ZONES_MAX = 600,
    INSTANTS = 120,
    WALKS = 40,
    WINDOWS_A_WALK = 12,
    MINUTES = 14 * 24 * 60,
    BEFORE_M = 4 * 24 * 60 /* of a walk, before what is compared */
};
#define YEAR_1980 INT64_C(315532800)
#define YEAR_2100 INT64_C(4102444800)

static char names[ZONES_MAX][ZONE_NAME_MAX + 1];
static unsigned name_count;
static struct tap_rand rng;

/* The third column of each line. */
static void read_names(void)
{
    char line[512], name[ZONE_NAME_MAX + 1];
    FILE *f = fopen(ZONE_FOLDER "/zone1970.tab", "r");
    CHECK(f != NULL);
    while (f != NULL && fgets(line, sizeof line, f) != NULL && name_count < ZONES_MAX) {
        const char *at = strchr(line, '\t');
        at = line[0] != '#' && at != NULL ? strchr(at + 1, '\t') : NULL;
        if (at != NULL) {
            size_t len = strcspn(at + 1, "\t\n");
            (void)snprintf(name, sizeof name, "%.*s", (int)len, at + 1);
            memcpy(names[name_count++], name, sizeof name);
        }
    }
    if (f != NULL) {
        (void)fclose(f);
    }
    CHECK(name_count > 250);
}

static void enter(const char *zone)
{
    (void)setenv("TZ", zone, 1);
    tzset();
}

static long library_offset(int64_t t)
{
    time_t at = (time_t)t;
    struct tm tm;
    (void)localtime_r(&at, &tm);
    return tm.tm_gmtoff;
}

static int64_t random_instant(int64_t from, int64_t to)
{
    return from + (int64_t)tap_rand_below(&rng, (uint64_t)(to - from));
}

static void compare_at(const struct zone *z, int64_t t)
{
    struct zone_span s = zone_at(z, t);
    if (!CHECK(s.offset == library_offset(t))) {
        tap_note("at %" PRId64 ": %d, the library says %ld", t, s.offset, library_offset(t));
    }
    CHECK(s.begin <= t && t < s.end);
}

static void offsets_are_the_librarys(void)
{
    read_names();
    for (unsigned i = 0; i < name_count && tap_failures() < 5; i++) {
        struct err e;
        struct zone *z = zone_load(ZONE_FOLDER, names[i], &e);
        tap_note("%s", names[i]);
        if (!CHECK(z != NULL)) {
            continue;
        }
        enter(names[i]);
        for (unsigned n = 0; n < INSTANTS; n++) {
            int64_t t = random_instant(0, YEAR_2100);
            struct zone_span s = zone_at(z, t);
            compare_at(z, t);
            if (s.end < YEAR_2100) {
                compare_at(z, s.end - 1);
                compare_at(z, s.end);
            }
            if (s.begin > 0) {
                compare_at(z, s.begin - 1);
                compare_at(z, s.begin);
            }
        }
        zone_free(z);
    }
}

/* --- windows --- */

static int64_t shown[MINUTES]; /* local minute at each minute of the walk */
static bool open_at[MINUTES];

/* From the first to the last minute at which the clock shows one of [from, to). */
static void mark(int64_t from, int64_t to)
{
    int first = -1, last = -1;
    for (int m = 0; m < MINUTES; m++) {
        if (shown[m] >= from && shown[m] < to) {
            first = first < 0 ? m : first;
            last = m;
        }
    }
    for (int m = first; first >= 0 && m <= last; m++) {
        open_at[m] = true;
    }
}

static void mark_all(const struct calendar_week *w)
{
    int64_t first = shown[0] / CALENDAR_DAY_MINUTES - 2;
    memset(open_at, 0, sizeof open_at);
    for (int64_t day = first; day < first + 20; day++) {
        if ((w->days >> (day + 3) % 7 & 1) != 0) {
            int64_t from = day * CALENDAR_DAY_MINUTES + w->start;
            int64_t to = (day + (w->end <= w->start)) * CALENDAR_DAY_MINUTES + w->end;
            mark(from, to);
        }
    }
}

static void compare_window(const struct zone *z, const struct calendar_week *w, int64_t t0)
{
    int next = MINUTES - BEFORE_M; /* when it changes; no change was seen up to there */
    bool known = false;
    mark_all(w);
    for (int m = next; m >= BEFORE_M; m--) {
        int64_t change;
        bool open = calendar_week_at(w, z, t0 + m * 60 + 30, &change);
        if (open_at[m] != open_at[m + 1]) {
            next = m + 1;
            known = true;
        }
        if (!CHECK(open == open_at[m]) ||
            !CHECK(known ? change == t0 + next * 60 : change > t0 + next * 60)) {
            tap_note("days %x, %u to %u, at %" PRId64, w->days, w->start, w->end, t0 + m * 60);
            return;
        }
    }
}

/* The start of a walk in which the clocks change, if one is found. */
static int64_t around_a_change(const struct zone *z)
{
    int64_t t = random_instant(YEAR_1980, YEAR_2100);
    for (int i = 0; i < 8; i++) {
        struct zone_span s = zone_at(z, t);
        if (s.end < YEAR_2100) {
            t = s.end;
        }
    }
    return (t - MINUTES / 2 * 60) / 60 * 60;
}

static void windows_are_those_of_the_librarys_clock(void)
{
    for (unsigned i = 0; i < WALKS && tap_failures() == 0; i++) {
        const char *name = names[tap_rand_below(&rng, name_count)];
        struct err e;
        struct zone *z = zone_load(ZONE_FOLDER, name, &e);
        if (!CHECK(z != NULL)) {
            continue;
        }
        int64_t t0 = around_a_change(z);
        enter(name);
        for (int m = 0; m < MINUTES; m++) {
            shown[m] = (t0 + m * 60 + library_offset(t0 + m * 60)) / 60;
        }
        for (unsigned n = 0; n < WINDOWS_A_WALK; n++) {
            struct calendar_week w = {.days = (uint8_t)(1 + tap_rand_below(&rng, 127))};
            w.start = (uint16_t)(tap_rand_below(&rng, n % 2 == 0 ? 48 : 8) * 30);
            w.end = (uint16_t)(tap_rand_below(&rng, n % 2 == 0 ? 49 : 9) * 30);
            if (w.start != w.end) {
                tap_note("%s from %" PRId64, name, t0);
                compare_window(z, &w, t0);
            }
        }
        zone_free(z);
    }
}

/* --- any bytes --- */

static void broken_files_are_no_zones_or_whole_ones(void)
{
    static uint8_t bytes[8192];
    for (unsigned i = 0; i < 3000 && tap_failures() == 0; i++) {
        char path[128];
        struct err e;
        (void)snprintf(path, sizeof path, ZONE_FOLDER "/%s",
                       names[tap_rand_below(&rng, name_count)]);
        FILE *f = fopen(path, "rb");
        size_t len = f != NULL ? fread(bytes, 1, sizeof bytes, f) : 0;
        if (f != NULL) {
            (void)fclose(f);
        }
        if (!CHECK(len > 44)) {
            return;
        }
        size_t kept = tap_rand_below(&rng, 2) == 0 ? len : tap_rand_below(&rng, len);
        for (unsigned n = 0; n < 1 + tap_rand_below(&rng, 4); n++) {
            bytes[tap_rand_below(&rng, len)] = (uint8_t)tap_rand(&rng);
        }
        struct zone *z = zone_parse(slice_of(bytes, kept), &e);
        CHECK(z != NULL || (e.code == ERR_CORRUPT && e.detail[0] != '\0'));
        for (unsigned n = 0; z != NULL && n < 20; n++) {
            int64_t t = random_instant(-YEAR_2100, YEAR_2100), change;
            struct calendar_week w = {0x55, 1380, 60};
            struct zone_span s = zone_at(z, t);
            CHECK(s.begin <= t && t < s.end);
            (void)calendar_week_at(&w, z, t, &change);
            CHECK(change > t);
        }
        zone_free(z);
    }
}

int main(void)
{
    rng.state = tap_seed(20261130);
    RUN(offsets_are_the_librarys);
    RUN(windows_are_those_of_the_librarys_clock);
    RUN(broken_files_are_no_zones_or_whole_ones);
    return tap_done();
}
