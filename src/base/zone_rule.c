/* SPDX-License-Identifier: Apache-2.0 */
/* The TZ of POSIX, with the longer times of RFC 9636, version 3. */
#include "base/calendar.h"

enum { HOURS_MAX = 167, OFFSET_HOURS_MAX = 24, YEARS_AROUND = 2, CHANGES = 4 * YEARS_AROUND + 2 };

/* --- reading: each takes from the front, and says whether it was there --- */

static bool take_char(struct slice *s, char c)
{
    if (s->len == 0 || s->data[0] != (uint8_t)c) {
        return false;
    }
    *s = slice_of(s->data + 1, s->len - 1);
    return true;
}

static bool take_number(struct slice *s, unsigned low, unsigned high, unsigned *ret)
{
    unsigned value = 0;
    size_t n = 0;
    for (; n < s->len && n < 3 && s->data[n] >= '0' && s->data[n] <= '9'; n++) {
        value = value * 10 + (s->data[n] - '0');
    }
    *s = slice_of(s->data + n, s->len - n);
    *ret = value;
    return n > 0 && value >= low && value <= high;
}

static bool is_letter(uint8_t c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

/* "CEST" or "<+0330>". */
static bool take_name(struct slice *s)
{
    size_t n = 0;
    if (!take_char(s, '<')) {
        while (n < s->len && is_letter(s->data[n])) {
            n++;
        }
        *s = slice_of(s->data + n, s->len - n);
        return n >= 3;
    }
    while (n < s->len && s->data[n] != '>') {
        n++;
    }
    *s = slice_of(s->data + n, s->len - n);
    return n > 0 && take_char(s, '>');
}

/* "[+-]h[:mm[:ss]]" in seconds. */
static bool take_time(struct slice *s, unsigned hours_max, int32_t *ret)
{
    unsigned hours, minutes = 0, seconds = 0;
    bool minus = take_char(s, '-');
    if (!minus) {
        (void)take_char(s, '+');
    }
    if (!take_number(s, 0, hours_max, &hours)) {
        return false;
    }
    if (take_char(s, ':')) {
        if (!take_number(s, 0, 59, &minutes) ||
            (take_char(s, ':') && !take_number(s, 0, 59, &seconds))) {
            return false;
        }
    }
    int32_t value = (int32_t)(hours * 3600 + minutes * 60 + seconds);
    *ret = minus ? -value : value;
    return true;
}

static bool take_day(struct slice *s, struct zone_change *c)
{
    unsigned month, week, day;
    if (take_char(s, 'J')) {
        c->kind = ZONE_DAY_JULIAN;
        if (!take_number(s, 1, 365, &day)) {
            return false;
        }
    } else if (take_char(s, 'M')) {
        c->kind = ZONE_DAY_MONTH;
        if (!take_number(s, 1, 12, &month) || !take_char(s, '.') || !take_number(s, 1, 5, &week) ||
            !take_char(s, '.') || !take_number(s, 0, 6, &day)) {
            return false;
        }
        c->month = (uint8_t)month;
        c->week = (uint8_t)week;
    } else {
        c->kind = ZONE_DAY_COUNT;
        if (!take_number(s, 0, 365, &day)) {
            return false;
        }
    }
    c->day = (uint16_t)day;
    return true;
}

/* ",M10.5.0/3" */
static bool take_change(struct slice *s, struct zone_change *c)
{
    c->seconds = 2 * 3600;
    return take_char(s, ',') && take_day(s, c) &&
           (!take_char(s, '/') || take_time(s, HOURS_MAX, &c->seconds));
}

bool zone_rule_parse(struct slice text, struct zone_rule *ret)
{
    struct zone_rule r = {.has_daylight = false};
    struct slice s = text;
    if (!take_name(&s) || !take_time(&s, OFFSET_HOURS_MAX, &r.standard)) {
        return false;
    }
    r.standard = -r.standard; /* POSIX counts westward */
    if (s.len > 0) {
        r.has_daylight = true;
        r.daylight = r.standard + 3600;
        if (!take_name(&s)) {
            return false;
        }
        if (s.len > 0 && s.data[0] != ',') {
            if (!take_time(&s, OFFSET_HOURS_MAX, &r.daylight)) {
                return false;
            }
            r.daylight = -r.daylight;
        }
        if (!take_change(&s, &r.to_daylight) || !take_change(&s, &r.to_standard)) {
            return false;
        }
    }
    if (s.len > 0) {
        return false;
    }
    *ret = r;
    return true;
}

/* --- what it says --- */

static int64_t day_in(const struct zone_change *c, int64_t year)
{
    int64_t january = calendar_days((struct calendar_date){year, 1, 1});
    if (c->kind == ZONE_DAY_COUNT) {
        return january + c->day;
    }
    if (c->kind == ZONE_DAY_JULIAN) {
        return january + c->day - 1 + (calendar_is_leap(year) && c->day >= 60);
    }
    int64_t first = calendar_days((struct calendar_date){year, c->month, 1});
    int64_t next = calendar_days(
        (struct calendar_date){year + (c->month == 12), c->month == 12 ? 1 : c->month + 1u, 1});
    unsigned sunday_is_0 = (calendar_weekday(first) + 1) % 7;
    int64_t day = first + (c->day + 7 - sunday_is_0) % 7 + (c->week - 1) * 7;
    return day < next ? day : day - 7; /* the fifth is the last one */
}

struct change {
    int64_t at;
    int32_t offset; /* from then on */
};

/* In order of time; of two at the same instant the earlier year's first, so that a rule which ends
 * its daylight time when the next one begins has no standard time. */
static unsigned changes_around(const struct zone_rule *r, int64_t year, struct change *ret)
{
    unsigned count = 0;
    for (int64_t y = year - YEARS_AROUND; y <= year + YEARS_AROUND; y++) {
        struct change both[2] = {
            {day_in(&r->to_daylight, y) * CALENDAR_DAY_S + r->to_daylight.seconds - r->standard,
             r->daylight},
            {day_in(&r->to_standard, y) * CALENDAR_DAY_S + r->to_standard.seconds - r->daylight,
             r->standard}};
        for (unsigned i = 0; i < 2; i++) {
            unsigned n = count++;
            for (; n > 0 && ret[n - 1].at > both[i].at; n--) {
                ret[n] = ret[n - 1];
            }
            ret[n] = both[i];
        }
    }
    return count;
}

struct zone_span zone_rule_at(const struct zone_rule *r, int64_t t)
{
    const int64_t far = INT64_C(1) << 50;
    struct change changes[CHANGES];
    struct zone_span s = {INT64_MIN, INT64_MAX, r->standard};
    if (!r->has_daylight || t < -far || t > far) {
        return s;
    }
    unsigned count =
        changes_around(r, calendar_date_of(calendar_day_of(t + r->standard)).year, changes);
    for (unsigned i = 0; i < count; i++) {
        if (changes[i].at > t) {
            s.end = changes[i].at;
            break;
        }
        s.begin = changes[i].at;
        s.offset = changes[i].offset;
    }
    return s;
}
