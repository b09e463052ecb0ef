/* SPDX-License-Identifier: Apache-2.0 */
/* Dates of the Gregorian calendar, and windows of time that come back each week. Pure; any thread.
 * Instants are seconds since 1970 in UTC, days are counted from 1970-01-01. */
#ifndef BASE_CALENDAR_H
#define BASE_CALENDAR_H

#include "base/zone.h"

enum { CALENDAR_DAY_S = 86400, CALENDAR_DAY_MINUTES = 1440 };

struct calendar_date {
    int64_t year;
    unsigned month, day; /* from 1 */
};
int64_t calendar_days(struct calendar_date date);
struct calendar_date calendar_date_of(int64_t days);
unsigned calendar_weekday(int64_t days); /* 0: Monday */
bool calendar_is_leap(int64_t year);
/* Towards the past, also before 1970. */
int64_t calendar_day_of(int64_t seconds);

/* On each of `days` from minute `start` to minute `end` of the local day; to that of the day after
 * when it is not above `start`. 1440 is midnight at the end of the day.
 *
 * It lasts from the first instant to the last at which the clocks show a time in it. So one that
 * begins in an hour that is left out begins when that hour would; one that lies in it whole does
 * not take place; and of an hour that comes twice both belong to it. */
struct calendar_week {
    uint8_t days; /* bit 0: Monday */
    uint16_t start, end;
};
#define CALENDAR_NEVER INT64_MAX
/* Whether it is open at `t`, and when that changes (CALENDAR_NEVER: in the next two weeks not). */
bool calendar_week_at(const struct calendar_week *w,
                      const struct zone *z,
                      int64_t t,
                      int64_t *ret_change);

#endif
