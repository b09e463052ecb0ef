/* SPDX-License-Identifier: Apache-2.0 */
#include "api/windows_json.h"

#include "base/calendar.h"
#include "base/parse.h"

#include <stdio.h>
#include <string.h>

enum { DAYS = 7, TIME_LEN = 5 };
static const char *const day_names[DAYS] = {"mon", "tue", "wed", "thu", "fri", "sat", "sun"};

/* --- out --- */

static void put_week(struct buf *b, const struct dir_window *w)
{
    const char *comma = "";
    buf_put_str(b, ",\"days\":[");
    for (int i = 0; i < DAYS; i++) {
        if ((w->days >> i & 1) != 0) {
            buf_printf(b, "%s\"%s\"", comma, day_names[i]);
            comma = ",";
        }
    }
    buf_printf(b, "],\"start\":\"%02u:%02u\",\"end\":\"%02u:%02u\"", w->start / 60U, w->start % 60U,
               w->end / 60U, w->end % 60U);
}

static void put_one(struct buf *b, const struct windows *w, uint32_t i, uint64_t wall_ms)
{
    const struct dir_window *o = &w->of[i];
    struct windows_state s = windows_state(w, i, wall_ms);
    buf_printf(b, "{\"name\":\"%s\",\"kind\":\"%s\",\"time_zone\":\"%s\"", o->name,
               dir_window_kind_name(o->kind), o->time_zone);
    if (o->days != 0) {
        put_week(b, o);
    } else {
        buf_put_str(b, ",\"from\":");
        json_put_time(b, o->from_ms);
        buf_put_str(b, ",\"to\":");
        json_put_time(b, o->to_ms);
    }
    buf_put_str(b, ",\"open\":");
    json_put_bool(b, s.open);
    buf_put_str(b, ",\"changes_at\":");
    if (s.changes_ms != 0) {
        json_put_time(b, s.changes_ms);
    } else {
        buf_put_str(b, "null");
    }
    buf_put_str(b, ",\"zone_known\":");
    json_put_bool(b, w->zone[i] != NULL);
    buf_put_u8(b, '}');
}

void windows_put_json(struct buf *b, const struct windows *w, uint64_t wall_ms)
{
    buf_put_str(b, "\"windows\":[");
    for (uint32_t i = 0; i < w->count; i++) {
        buf_put_str(b, i > 0 ? "," : "");
        put_one(b, w, i, wall_ms);
    }
    buf_put_str(b, "],");
}

/* --- in --- */

static uint32_t two_digits(const uint8_t *p)
{
    bool digits = p[0] >= '0' && p[0] <= '9' && p[1] >= '0' && p[1] <= '9';
    return digits ? (uint32_t)((p[0] - '0') * 10 + (p[1] - '0')) : UINT32_MAX;
}

/* "HH:MM" in minutes; 24:00 is the end of the day. */
static uint32_t read_time(struct json_in *in, const char *member)
{
    struct slice text = json_in_string(in, member, true, 0, SIZE_MAX);
    if (in->code != ERR_OK) {
        return 0;
    }
    if (text.len == TIME_LEN && text.data[2] == ':') {
        uint32_t hour = two_digits(text.data), minute = two_digits(text.data + 3);
        if (hour <= 24 && minute < 60 && hour * 60 + minute <= CALENDAR_DAY_MINUTES) {
            return hour * 60 + minute;
        }
    }
    json_in_fail(in, member, ERR_INVALID_SETTINGS, "must be a time of the day, such as 08:00");
    return 0;
}

static uint32_t day_of(const json_t *value)
{
    for (uint32_t i = 0; i < DAYS && json_is_string(value); i++) {
        if (json_string_length(value) == 3 && strcmp(json_string_value(value), day_names[i]) == 0) {
            return UINT32_C(1) << i;
        }
    }
    return 0;
}

static uint32_t read_days(struct json_in *in)
{
    json_t *given = json_in_array(in, "days", true, 1, DAYS), *value;
    uint32_t days = 0;
    char pointer[96];
    size_t i;
    json_array_foreach(given, i, value)
    {
        uint32_t day = day_of(value);
        if (in->code == ERR_OK && (day == 0 || (days & day) != 0)) {
            (void)snprintf(pointer, sizeof pointer, "%s/days/%zu", in->base, i);
            in->code = err_set_at(in->e, ERR_INVALID_SETTINGS, pointer,
                                  "must be one of mon, tue, wed, thu, fri, sat and sun, once");
        }
        days |= day;
    }
    return days;
}

static uint64_t read_instant(struct json_in *in, const char *member)
{
    struct slice text = json_in_string(in, member, true, 0, SIZE_MAX);
    uint64_t ms = 0;
    if (in->code == ERR_OK && (strlen((const char *)text.data) != text.len ||
                               !parse_rfc3339((const char *)text.data, &ms))) {
        json_in_fail(in, member, ERR_INVALID_SETTINGS,
                     "must be a time in UTC, such as 2026-12-24T12:00:00Z");
    }
    return ms;
}

/* A window from one instant to another may leave it out. */
static char *read_zone(struct json_in *in, bool required)
{
    struct slice name = json_in_string(in, "time_zone", required, 0, SIZE_MAX);
    struct err why;
    if (in->code != ERR_OK || name.data == NULL) {
        return text_lent("UTC");
    }
    const char *text = (const char *)name.data;
    struct zone *z = zone_name_is_fine(name) ? zone_load(ZONE_FOLDER, text, &why) : NULL;
    if (z == NULL) {
        json_in_fail(in, "time_zone", ERR_INVALID_SETTINGS,
                     "is no time zone that this server knows; one is Europe/Zurich");
    }
    zone_free(z);
    return text_lent(text);
}

static bool has(const struct json_in *in, const char *member)
{
    return json_object_get(in->object, member) != NULL;
}

static void read_times(struct json_in *in, Cadastre__BalancerWindow *w)
{
    bool weekly = has(in, "days") || has(in, "start") || has(in, "end");
    const char *other = weekly ? has(in, "from") ? "from" : "to" : NULL;
    if (weekly && has(in, other)) {
        json_in_fail(in, other, ERR_INVALID_SETTINGS,
                     "a window has days, start and end, or from and to");
    } else if (weekly) {
        w->days = read_days(in);
        w->start = read_time(in, "start");
        w->end = read_time(in, "end");
    } else {
        w->from_ms = read_instant(in, "from");
        w->to_ms = read_instant(in, "to");
    }
    w->time_zone = read_zone(in, weekly);
}

static void read_one(struct json_in *in, Cadastre__BalancerWindow *w)
{
    static const char *const kinds[] = {"maintenance", "freeze", NULL};
    static const uint32_t kind_of[] = {DIR_WINDOW_MAINTENANCE, DIR_WINDOW_FREEZE};
    cadastre__balancer_window__init(w);
    struct slice name = json_in_name(in, "name", true);
    w->name = text_lent(name.data != NULL ? (const char *)name.data : "");
    int kind = json_in_enum(in, "kind", true, kinds, 0);
    w->kind = kind_of[kind];
    read_times(in, w);
}

void windows_read_json(struct json_in *in, struct window_list *list, Cadastre__BalancerPatch *into)
{
    bool none = json_in_null(in, "windows");
    json_t *given = none ? NULL : json_in_array(in, "windows", false, 0, SIZE_MAX), *value;
    size_t i;
    if (json_array_size(given) > DIR_WINDOWS_MAX) {
        json_in_fail(in, "windows", ERR_INVALID_SETTINGS, "there are at most %d", DIR_WINDOWS_MAX);
        return;
    }
    into->has_windows = none || given != NULL;
    into->windows = list->of;
    json_array_foreach(given, i, value)
    {
        struct json_in one;
        json_in_open_element(&one, in, value, "windows", i);
        if (one.code == ERR_OK) {
            read_one(&one, &list->values[i]);
        }
        in->code = one.code == ERR_OK ? json_in_close(&one) : one.code;
        if (in->code != ERR_OK) {
            return;
        }
        list->of[into->n_windows++] = &list->values[i];
    }
}
