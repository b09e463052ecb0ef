/* SPDX-License-Identifier: Apache-2.0 */
#include "base/calendar.h"

/* --- dates, by Howard Hinnant's days_from_civil: eras of 400 years that begin in March --- */

enum { ERA_DAYS = 146097, TO_1970 = 719468, LOOK_BACK_DAYS = 2, LOOK_AHEAD_DAYS = 16 };

static int64_t floor_div(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

int64_t calendar_days(struct calendar_date date)
{
    int64_t y = date.year - (date.month <= 2);
    int64_t era = floor_div(y, 400), of_era = y - era * 400;
    int64_t month = (date.month + 9) % 12;
    int64_t of_year = (153 * month + 2) / 5 + date.day - 1;
    return era * ERA_DAYS + of_era * 365 + of_era / 4 - of_era / 100 + of_year - TO_1970;
}

struct calendar_date calendar_date_of(int64_t days)
{
    int64_t z = days + TO_1970, era = floor_div(z, ERA_DAYS), of_era = z - era * ERA_DAYS;
    int64_t year =
        (of_era - of_era / 1460 + of_era / 36524 - of_era / (ERA_DAYS - 1)) / 365; /* of era */
    int64_t of_year = of_era - (365 * year + year / 4 - year / 100);
    int64_t month = (5 * of_year + 2) / 153;
    struct calendar_date d = {.day = (unsigned)(of_year - (153 * month + 2) / 5 + 1),
                              .month = (unsigned)(month < 10 ? month + 3 : month - 9)};
    d.year = year + era * 400 + (d.month <= 2);
    return d;
}

unsigned calendar_weekday(int64_t days)
{
    int64_t since_monday = (days + 3) % 7; /* 1970 began on a Thursday */
    return (unsigned)(since_monday < 0 ? since_monday + 7 : since_monday);
}

bool calendar_is_leap(int64_t year)
{
    return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
}

int64_t calendar_day_of(int64_t seconds)
{
    return floor_div(seconds, CALENDAR_DAY_S);
}

/* --- from what a clock shows to instants --- */

/* The first instant at which it shows `local` or later. */
static int64_t first_at(const struct zone *z, int64_t local)
{
    int64_t t = local - ZONE_OFFSET_MAX;
    for (;;) {
        struct zone_span s = zone_at(z, t);
        int64_t at = local - s.offset > t ? local - s.offset : t;
        if (at < s.end) {
            return at;
        }
        t = s.end;
    }
}

/* The end of the time in which it shows something before `local`. */
static int64_t last_at(const struct zone *z, int64_t local)
{
    int64_t t = local - ZONE_OFFSET_MAX - 1, last = t;
    while (t <= local + ZONE_OFFSET_MAX) {
        struct zone_span s = zone_at(z, t);
        if (t + s.offset < local) {
            last = local - s.offset < s.end ? local - s.offset : s.end;
        }
        t = s.end; /* INT64_MAX ends it */
    }
    return last;
}

bool calendar_week_at(const struct calendar_week *w,
                      const struct zone *z,
                      int64_t t,
                      int64_t *ret_change)
{
    int64_t today = calendar_day_of(t + zone_at(z, t).offset), end = t;
    bool open = false;
    for (int64_t day = today - LOOK_BACK_DAYS; day <= today + LOOK_AHEAD_DAYS; day++) {
        int64_t until = w->end > w->start ? day : day + 1;
        if ((w->days >> calendar_weekday(day) & 1) == 0) {
            continue;
        }
        int64_t from = first_at(z, day * CALENDAR_DAY_S + w->start * 60);
        int64_t to = last_at(z, until * CALENDAR_DAY_S + w->end * 60);
        if (from >= to || to <= end) {
            continue;
        }
        if (from > end) { /* a gap: what was open ends, or what was closed opens */
            *ret_change = open ? end : from;
            return open;
        }
        open = true;
        end = to;
    }
    *ret_change = CALENDAR_NEVER;
    return open;
}
