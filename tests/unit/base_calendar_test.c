/* SPDX-License-Identifier: Apache-2.0 */
#include "base/calendar.h"
#include "tests/harness/tap.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MON = 1, SAT = 32, SUN = 64, ALL = 127 };

static int64_t utc(int64_t year, unsigned month, unsigned day, unsigned hour, unsigned minute)
{
    return calendar_days((struct calendar_date){year, month, day}) * CALENDAR_DAY_S + hour * 3600 +
           minute * 60;
}

static struct zone *load(const char *name)
{
    struct err e;
    struct zone *z = zone_load(ZONE_FOLDER, name, &e);
    tap_note("%s", name);
    CHECK(z != NULL);
    return z;
}

static void dates_go_both_ways(void)
{
    CHECK(calendar_days((struct calendar_date){1970, 1, 1}) == 0);
    CHECK(calendar_days((struct calendar_date){2000, 2, 29}) == 11016);
    CHECK(calendar_weekday(0) == 3 && calendar_weekday(-4) == 6 && calendar_weekday(-3) == 0);
    CHECK(calendar_day_of(-1) == -1 && calendar_day_of(86400) == 1);
    CHECK(calendar_is_leap(2000) && !calendar_is_leap(2100) && calendar_is_leap(2028));
    for (int64_t day = -1000000; day < 1000000; day += 97) {
        struct calendar_date d = calendar_date_of(day);
        CHECK(calendar_days(d) == day && d.month >= 1 && d.month <= 12 && d.day <= 31);
    }
}

static void names_stay_in_the_folder(void)
{
    static const char *const fine[] = {"UTC", "Europe/Zurich", "America/Argentina/Ushuaia",
                                       "Etc/GMT+5", "America/Port-au-Prince"};
    static const char *const bad[] = {
        "",    "/etc/passwd", "../passwd", "Europe/../../x", "Europe//Zurich", "Europe/", "Zürich",
        "a b", "zone.tab",    "localtime", "posixrules",     "a\nb",           "."};
    struct err e;
    char longest[ZONE_NAME_MAX + 2];
    memset(longest, 'a', sizeof longest);
    CHECK(zone_name_is_fine(slice_of(longest, ZONE_NAME_MAX)));
    CHECK(!zone_name_is_fine(slice_of(longest, ZONE_NAME_MAX + 1)));
    CHECK(!zone_name_is_fine(slice_of("UTC\0x", 5)));
    for (unsigned i = 0; i < sizeof fine / sizeof fine[0]; i++) {
        zone_free(load(fine[i]));
    }
    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        tap_note("%s", bad[i]);
        CHECK(!zone_name_is_fine(slice_of(bad[i], strlen(bad[i]))));
        CHECK(zone_load(ZONE_FOLDER, bad[i], &e) == NULL && e.code == ERR_INVALID_REQUEST);
    }
    CHECK(zone_load(ZONE_FOLDER, "Europe/Atlantis", &e) == NULL && e.code == ERR_IO);
    CHECK(zone_load(ZONE_FOLDER, "Europe", &e) == NULL && e.code == ERR_IO);
}

/* What lies in the folder and is no zone. */
static void other_files_are_refused(void)
{
    char folder[] = "/tmp/zones.XXXXXX", path[64];
    struct err e;
    CHECK(mkdtemp(folder) != NULL);
    (void)snprintf(path, sizeof path, "%s/Pipe", folder);
    CHECK(mkfifo(path, 0600) == 0);
    CHECK(zone_load(folder, "Pipe", &e) == NULL && e.code == ERR_IO);
    CHECK(unlink(path) == 0);
    (void)snprintf(path, sizeof path, "%s/Large", folder);
    FILE *f = fopen(path, "wb");
    CHECK(f != NULL && fputs("TZif2", f) >= 0 && ftruncate(fileno(f), ZONE_FILE_MAX + 1) == 0);
    if (f != NULL) {
        (void)fclose(f);
    }
    CHECK(zone_load(folder, "Large", &e) == NULL && e.code == ERR_IO);
    CHECK(truncate(path, 20) == 0);
    CHECK(zone_load(folder, "Large", &e) == NULL && e.code == ERR_CORRUPT);
    CHECK(unlink(path) == 0 && rmdir(folder) == 0);
    struct zone *z = zone_load(folder, "UTC", &e);
    CHECK(z != NULL && zone_at(z, 0).offset == 0); /* without a folder */
    zone_free(z);
}

/* --- rules --- */

static bool parse(const char *text, struct zone_rule *r)
{
    return zone_rule_parse(slice_of(text, strlen(text)), r);
}

static void rules_are_read_whole_or_not(void)
{
    static const char *const bad[] = {"",
                                      "CE-1",
                                      "CET",
                                      "CET-1CEST",
                                      "CET-25",
                                      "CET-1CEST,M13.5.0,M10.5.0",
                                      "CET-1CEST,M3.6.0,M10.5.0",
                                      "CET-1CEST,M3.5.7,M10.5.0",
                                      "CET-1CEST,M3.5.0",
                                      "CET-1CEST,M3.5.0,M10.5.0/168",
                                      "CET-1CEST,J0,J366",
                                      "CET-1CEST,366,1",
                                      "CET-1CEST,M3.5.0,M10.5.0/3x",
                                      "<+03-3",
                                      "CET-1:60"};
    struct zone_rule r = {.standard = 7};
    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        tap_note("%s", bad[i]);
        CHECK(!parse(bad[i], &r) && r.standard == 7);
    }
    CHECK(parse("<+0330>-3:30", &r) && r.standard == 12600 && !r.has_daylight);
    CHECK(parse("IST-1GMT0,M10.5.0,M3.5.0/1", &r) && r.standard == 3600 && r.daylight == 0);
    CHECK(parse("<-02>2<-01>,M3.5.0/-1,M10.5.0/0", &r) && r.daylight == -3600 &&
          r.to_daylight.seconds == -3600);
}

static void expect(const char *rule, int64_t t, int32_t offset)
{
    struct zone_rule r;
    tap_note("%s", rule);
    CHECK(parse(rule, &r));
    struct zone_span s = zone_rule_at(&r, t);
    CHECK(s.begin <= t && t < s.end);
    CHECK(s.offset == offset);
}

static void rules_say_what_they_mean(void)
{
    expect("CET-1CEST,M3.5.0,M10.5.0/3", utc(2040, 3, 25, 0, 59), 3600);
    expect("CET-1CEST,M3.5.0,M10.5.0/3", utc(2040, 3, 25, 1, 0), 7200);
    expect("CET-1CEST,M3.5.0,M10.5.0/3", utc(2040, 10, 28, 0, 59), 7200);
    expect("CET-1CEST,M3.5.0,M10.5.0/3", utc(2040, 10, 28, 1, 0), 3600);
    /* South of the equator, and 50 o'clock of the Thursday: Saturday at two. */
    expect("AEST-10AEDT,M10.1.0,M4.1.0/3", utc(2041, 1, 1, 0, 0), 39600);
    expect("EET-2EEST,M3.4.4/50,M10.4.4/50", utc(2041, 3, 29, 23, 59), 7200);
    expect("EET-2EEST,M3.4.4/50,M10.4.4/50", utc(2041, 3, 30, 0, 0), 10800);
    /* Jn passes over the leap day, n counts it. */
    expect("AAA0BBB,J60/0,J300/0", utc(2040, 2, 29, 12, 0), 0);
    expect("AAA0BBB,J60/0,J300/0", utc(2040, 3, 1, 0, 0), 3600);
    expect("AAA0BBB,59/0,300/0", utc(2040, 2, 29, 0, 0), 3600);
    /* Daylight time all the year: it has no other. */
    for (unsigned month = 1; month <= 12; month++) {
        expect("XXX3EDT4,0/0,J365/23", utc(2039, month, 1, 3, 0), -4 * 3600);
        expect("XXX3EDT4,0/0,J365/23", utc(2039, month, 1, 4, 0), -4 * 3600);
    }
}

/* --- windows --- */

static void
window(const char *zone, struct calendar_week w, int64_t from, int64_t to, int64_t before)
{
    struct zone *z = load(zone);
    int64_t change;
    CHECK(!calendar_week_at(&w, z, before, &change));
    CHECK_U64(change, from);
    CHECK(!calendar_week_at(&w, z, from - 1, &change));
    CHECK_U64(change, from);
    CHECK(calendar_week_at(&w, z, from, &change));
    CHECK_U64(change, to);
    CHECK(calendar_week_at(&w, z, to - 1, &change));
    CHECK(!calendar_week_at(&w, z, to, &change));
    zone_free(z);
}

static void an_ordinary_week(void)
{
    struct calendar_week night = {MON, 22 * 60, 6 * 60}, day = {MON, 0, 1440};
    /* The 30th of November 2026 is a Monday. */
    window("Europe/Zurich", night, utc(2026, 11, 30, 21, 0), utc(2026, 12, 1, 5, 0),
           utc(2026, 11, 28, 0, 0));
    window("Europe/Zurich", day, utc(2026, 11, 29, 23, 0), utc(2026, 11, 30, 23, 0),
           utc(2026, 11, 28, 0, 0));
    window("Asia/Kathmandu", night, utc(2026, 11, 30, 16, 15), utc(2026, 12, 1, 0, 15),
           utc(2026, 11, 28, 0, 0));
    window("Pacific/Kiritimati", night, utc(2026, 11, 30, 8, 0), utc(2026, 11, 30, 16, 0),
           utc(2026, 11, 28, 0, 0));
    window("UTC", night, utc(2026, 11, 30, 22, 0), utc(2026, 12, 1, 6, 0), utc(2026, 11, 28, 0, 0));
}

static void days_that_touch_are_one(void)
{
    struct calendar_week days = {SAT | SUN, 0, 1440}, all = {ALL, 0, 1440};
    struct zone *z = load("Europe/Zurich");
    int64_t change;
    CHECK(calendar_week_at(&days, z, utc(2026, 12, 5, 12, 0), &change));
    CHECK_U64(change, utc(2026, 12, 6, 23, 0));
    CHECK(calendar_week_at(&all, z, utc(2026, 12, 5, 12, 0), &change));
    CHECK(change == CALENDAR_NEVER);
    zone_free(z);
}

/* In Zurich two o'clock becomes three on the 28th of March 2027, in 2040 on the 25th. */
static void an_hour_that_is_left_out(void)
{
    struct calendar_week begins_in_it = {SUN, 150, 240}, ends_in_it = {SUN, 60, 150};
    struct calendar_week in_it = {SUN, 135, 165};
    window("Europe/Zurich", begins_in_it, utc(2027, 3, 28, 1, 0), utc(2027, 3, 28, 2, 0),
           utc(2027, 3, 27, 0, 0));
    window("Europe/Zurich", ends_in_it, utc(2027, 3, 28, 0, 0), utc(2027, 3, 28, 1, 0),
           utc(2027, 3, 27, 0, 0));
    window("Europe/Zurich", begins_in_it, utc(2040, 3, 25, 1, 0), utc(2040, 3, 25, 2, 0),
           utc(2040, 3, 24, 0, 0));
    /* It does not take place, and is there a week later. */
    window("Europe/Zurich", in_it, utc(2027, 4, 4, 0, 15), utc(2027, 4, 4, 0, 45),
           utc(2027, 3, 27, 0, 0));
    /* Samoa had no 30th of December 2011, a Friday. */
    struct calendar_week friday = {16, 0, 1440};
    window("Pacific/Apia", friday, utc(2012, 1, 5, 10, 0), utc(2012, 1, 6, 10, 0),
           utc(2011, 12, 27, 0, 0));
}

/* Three o'clock becomes two on the 25th of October 2026. */
static void an_hour_that_comes_twice(void)
{
    struct calendar_week begins_in_it = {SUN, 150, 240}, ends_in_it = {SUN, 60, 150};
    struct calendar_week in_it = {SUN, 135, 165}, before_it = {SUN, 60, 120};
    int64_t saturday = utc(2026, 10, 24, 12, 0);
    window("Europe/Zurich", begins_in_it, utc(2026, 10, 25, 0, 30), utc(2026, 10, 25, 3, 0),
           saturday);
    window("Europe/Zurich", ends_in_it, utc(2026, 10, 24, 23, 0), utc(2026, 10, 25, 1, 30),
           saturday);
    window("Europe/Zurich", in_it, utc(2026, 10, 25, 0, 15), utc(2026, 10, 25, 1, 45), saturday);
    window("Europe/Zurich", before_it, utc(2026, 10, 24, 23, 0), utc(2026, 10, 25, 0, 0), saturday);
    window("America/New_York", in_it, utc(2026, 11, 1, 7, 15), utc(2026, 11, 1, 7, 45),
           utc(2026, 10, 31, 12, 0));
    struct calendar_week one = {SUN, 75, 105};
    window("America/New_York", one, utc(2040, 11, 4, 5, 15), utc(2040, 11, 4, 6, 45),
           utc(2040, 11, 3, 12, 0));
}

static void texts_are_local(void)
{
    struct zone *z = load("Europe/Zurich");
    char text[ZONE_TEXT_SIZE];
    zone_text(z, utc(2040, 7, 1, 22, 5), text);
    CHECK_STR(text, "2040-07-02 00:05");
    zone_text(z, utc(2026, 12, 31, 23, 0), text);
    CHECK_STR(text, "2027-01-01 00:00");
    zone_free(z);
}

int main(void)
{
    RUN(dates_go_both_ways);
    RUN(names_stay_in_the_folder);
    RUN(other_files_are_refused);
    RUN(rules_are_read_whole_or_not);
    RUN(rules_say_what_they_mean);
    RUN(an_ordinary_week);
    RUN(days_that_touch_are_one);
    RUN(an_hour_that_is_left_out);
    RUN(an_hour_that_comes_twice);
    RUN(texts_are_local);
    return tap_done();
}
