/* SPDX-License-Identifier: Apache-2.0 */
#include "base/calendar.h"
#include "control/windows.h"
#include "tests/harness/tap.h"

#include <stdio.h>
#include <string.h>

enum { SAT = 32, SUN = 64, WEEKDAYS = 31, DAY_S = CALENDAR_DAY_S };

static struct dir_balancer row;
static struct windows w;
static struct windows_hold hold;

/* In milliseconds. */
static uint64_t at(unsigned year, unsigned month, unsigned day, unsigned hour)
{
    int64_t days = calendar_days((struct calendar_date){year, month, day});
    return (uint64_t)(days * DAY_S + hour * 3600) * 1000;
}

static struct dir_window *add(const char *name, uint8_t kind, const char *zone)
{
    struct dir_window *o = &row.windows[row.window_count++];
    (void)snprintf(o->name, sizeof o->name, "%s", name);
    (void)snprintf(o->time_zone, sizeof o->time_zone, "%s", zone);
    o->kind = kind;
    return o;
}

static void
weekly(const char *name, uint8_t kind, const char *zone, uint8_t days, uint16_t start, uint16_t end)
{
    struct dir_window *o = add(name, kind, zone);
    o->days = days;
    o->start = start;
    o->end = end;
}

static void once(const char *name, uint8_t kind, uint64_t from_ms, uint64_t to_ms)
{
    struct dir_window *o = add(name, kind, "UTC");
    o->from_ms = from_ms;
    o->to_ms = to_ms;
}

static void begin(void)
{
    memset(&row, 0, sizeof row);
}

static const char *look(uint64_t wall_ms)
{
    windows_read(&w, &row, 0);
    windows_look(&w, wall_ms, &hold);
    return hold.code != NULL ? hold.code : "";
}

static void without_windows_nothing_holds(void)
{
    begin();
    CHECK_STR(look(at(2026, 11, 30, 12)), "");
    CHECK_STR(hold.detail, "");
}

static void a_freeze_holds_while_it_lasts(void)
{
    begin();
    weekly("office", DIR_WINDOW_FREEZE, "Europe/Zurich", WEEKDAYS, 8 * 60, 18 * 60);
    CHECK_STR(look(at(2026, 11, 30, 7) - 1), "");
    CHECK_STR(look(at(2026, 11, 30, 7)), WINDOWS_FREEZE);
    CHECK_STR(hold.detail,
              "office until 2026-11-30T17:00:00.000Z (2026-11-30 18:00 in Europe/Zurich)");
    CHECK_STR(look(at(2026, 11, 30, 17) - 1), WINDOWS_FREEZE);
    CHECK_STR(look(at(2026, 11, 30, 17)), "");
    struct windows_state s = windows_state(&w, 0, at(2026, 11, 30, 17));
    CHECK(!s.open && !s.unknown);
    CHECK_U64(s.changes_ms, at(2026, 12, 1, 7));
    /* In summer an hour earlier; also in 2040, which no table has. */
    CHECK_STR(look(at(2040, 7, 2, 6)), WINDOWS_FREEZE);
    CHECK_STR(look(at(2040, 7, 2, 6) - 1), "");
    windows_close(&w);
}

static void the_freeze_that_ends_last_is_named(void)
{
    begin();
    uint64_t from = at(2026, 12, 1, 0);
    once("short", DIR_WINDOW_FREEZE, from, from + 1000);
    once("long", DIR_WINDOW_FREEZE, from, from + 3000);
    once("other", DIR_WINDOW_FREEZE, from, from + 2000);
    CHECK_STR(look(from - 1), "");
    CHECK_STR(look(from), WINDOWS_FREEZE);
    CHECK_STR(hold.detail, "long until 2026-12-01T00:00:03.000Z (2026-12-01 00:00 in UTC)");
    weekly("always", DIR_WINDOW_FREEZE, "Asia/Tokyo", 127, 0, 1440);
    CHECK_STR(look(from), WINDOWS_FREEZE);
    CHECK_STR(hold.detail, "always, without an end");
    windows_close(&w);
}

static void routine_work_waits_for_a_maintenance_window(void)
{
    begin();
    weekly("night", DIR_WINDOW_MAINTENANCE, "America/New_York", SAT | SUN, 22 * 60, 4 * 60);
    once("once", DIR_WINDOW_MAINTENANCE, at(2026, 12, 1, 0), at(2026, 12, 1, 1));
    CHECK_STR(look(at(2026, 11, 30, 12)), WINDOWS_OUTSIDE);
    CHECK_STR(hold.detail, "once opens 2026-12-01T00:00:00.000Z (2026-12-01 00:00 in UTC)");
    CHECK_STR(look(at(2026, 12, 1, 0)), "");
    CHECK_STR(look(at(2026, 12, 1, 1)), WINDOWS_OUTSIDE);
    CHECK_STR(hold.detail,
              "night opens 2026-12-06T03:00:00.000Z (2026-12-05 22:00 in America/New_York)");
    CHECK_STR(look(at(2026, 12, 6, 3)), "");
    CHECK_STR(look(at(2026, 12, 7, 9)), WINDOWS_OUTSIDE); /* Sunday's, into Monday */
    CHECK_STR(look(at(2026, 12, 7, 9) - 1), "");
    /* A freeze goes before. */
    once("xmas", DIR_WINDOW_FREEZE, at(2026, 12, 6, 4), at(2026, 12, 6, 5));
    CHECK_STR(look(at(2026, 12, 6, 4)), WINDOWS_FREEZE);
    CHECK_STR(look(at(2026, 12, 6, 5)), "");
    windows_close(&w);
    begin();
    once("past", DIR_WINDOW_MAINTENANCE, 1000, 2000);
    CHECK_STR(look(at(2026, 12, 6, 4)), WINDOWS_OUTSIDE);
    CHECK_STR(hold.detail, "no maintenance window opens in the next two weeks");
    windows_close(&w);
}

static void a_zone_that_is_not_there_holds(void)
{
    begin();
    weekly("odd", DIR_WINDOW_MAINTENANCE, "Europe/Atlantis", 127, 0, 1440);
    CHECK_STR(look(at(2026, 12, 6, 4)), WINDOWS_OUTSIDE);
    CHECK_STR(hold.detail, "odd: time zone Europe/Atlantis can't be read here");
    CHECK(windows_state(&w, 0, 5).unknown && !windows_state(&w, 0, 5).open);
    /* Another maintenance window is open all the same. */
    once("once", DIR_WINDOW_MAINTENANCE, at(2026, 12, 1, 0), at(2026, 12, 1, 1));
    CHECK_STR(look(at(2026, 12, 1, 0)), "");
    CHECK_STR(look(at(2026, 11, 1, 0)), WINDOWS_OUTSIDE);
    CHECK(strncmp(hold.detail, "once opens", 10) == 0);
    weekly("cold", DIR_WINDOW_FREEZE, "Europe/Atlantis", SAT, 60, 120);
    CHECK_STR(look(at(2026, 12, 1, 0)), WINDOWS_FREEZE);
    CHECK_STR(hold.detail, "cold: time zone Europe/Atlantis can't be read here");
    CHECK(windows_state(&w, 2, 5).unknown && windows_state(&w, 2, 5).open);
    CHECK_U64(windows_state(&w, 2, 5).changes_ms, 0);
    windows_close(&w);
    begin(); /* instants need no zone */
    once("once", DIR_WINDOW_FREEZE, 1000, 2000);
    (void)snprintf(row.windows[0].time_zone, sizeof row.windows[0].time_zone, "Europe/Atlantis");
    CHECK_STR(look(1500), WINDOWS_FREEZE);
    CHECK_STR(hold.detail, "once until 1970-01-01T00:00:02.000Z");
    CHECK_STR(look(2000), "");
    windows_close(&w);
}

/* Nothing is read twice for nothing, and what is missing is looked for soon. */
static void zones_are_read_again(void)
{
    begin();
    weekly("a", DIR_WINDOW_FREEZE, "Europe/Zurich", 1, 0, 60);
    windows_read(&w, &row, 5);
    struct zone *z = w.zone[0];
    windows_read(&w, &row, 5 + WINDOWS_READ_AGAIN_MS - 1);
    CHECK(w.zone[0] == z && w.read_ms == 5 && !w.lacks_one);
    windows_read(&w, &row, 5 + WINDOWS_READ_AGAIN_MS);
    CHECK_U64(w.read_ms, 5 + WINDOWS_READ_AGAIN_MS);
    (void)snprintf(row.windows[0].time_zone, sizeof row.windows[0].time_zone, "Europe/Atlantis");
    windows_read(&w, &row, 7 + WINDOWS_READ_AGAIN_MS);
    CHECK(w.lacks_one && w.zone[0] == NULL);
    windows_read(&w, &row, 7 + WINDOWS_READ_AGAIN_MS + WINDOWS_RETRY_MS);
    CHECK_U64(w.read_ms, 7 + WINDOWS_READ_AGAIN_MS + WINDOWS_RETRY_MS);
    windows_close(&w);
}

/* Bounded by the note that it goes into. */
static void long_names_are_cut(void)
{
    begin();
    weekly("x", DIR_WINDOW_FREEZE, "America/Argentina/ComodRivadavia", 127, 0, 600);
    memset(row.windows[0].name, 'n', DIR_NAME_MAX);
    CHECK_STR(look(at(2026, 12, 6, 4)), WINDOWS_FREEZE);
    CHECK_U64(strlen(hold.detail), DIR_BALANCER_NOTE_TEXT_MAX);
    CHECK(strstr(hold.detail, "until 2026-12-06T13:00:00.000Z") != NULL);
    windows_close(&w);
}

static void what_is_routine(void)
{
    CHECK(windows_is_routine(DIR_CLASS_OPTIMISE) && windows_is_routine(DIR_CLASS_OVERLOAD));
    CHECK(!windows_is_routine(DIR_CLASS_OPERATOR) && !windows_is_routine(DIR_CLASS_DRAIN));
    CHECK(!windows_is_routine(DIR_CLASS_UNAVAILABLE));
}

int main(void)
{
    RUN(without_windows_nothing_holds);
    RUN(a_freeze_holds_while_it_lasts);
    RUN(the_freeze_that_ends_last_is_named);
    RUN(routine_work_waits_for_a_maintenance_window);
    RUN(a_zone_that_is_not_there_holds);
    RUN(zones_are_read_again);
    RUN(long_names_are_cut);
    RUN(what_is_routine);
    return tap_done();
}
