/* SPDX-License-Identifier: Apache-2.0 */
/* The balancer's windows: what may be set, and their bytes. Whether a server knows a time zone is
 * no part of this: apply reads no files. */
#include "base/calendar.h"
#include "base/parse.h"
#include "base/wire.h"
#include "directory/balancer.h"
#include "directory/internal.h"

#include <stdio.h>
#include <string.h>

#define WINDOW_MS_MAX UINT64_C(253402300799999) /* the end of the year 9999 */
enum { ALL_DAYS = 127 };

const char *dir_window_kind_name(uint8_t kind)
{
    return kind == DIR_WINDOW_FREEZE ? "freeze" : "maintenance";
}

/* --- what may be set --- */

/* The member that is wrong, and why; NULL when it is fine. */
static const char *wrong_week(const struct dir_window *w, const char **ret_why)
{
    *ret_why = "a window has days, or from and to";
    if (w->from_ms != 0 || w->to_ms != 0) {
        return w->from_ms != 0 ? "from" : "to";
    }
    *ret_why = "it is out of range";
    if (w->days > ALL_DAYS) {
        return "days";
    }
    if (w->start >= CALENDAR_DAY_MINUTES || w->end > CALENDAR_DAY_MINUTES) {
        return w->end > CALENDAR_DAY_MINUTES ? "end" : "start";
    }
    *ret_why = "it must not be the start; a whole day is from 00:00 to 24:00";
    return w->start == w->end ? "end" : NULL;
}

static const char *wrong_instants(const struct dir_window *w, const char **ret_why)
{
    *ret_why = "a window with a start and an end has days";
    if (w->start != 0 || w->end != 0) {
        return "days";
    }
    *ret_why = "it must be after from, and before the year 10000";
    return w->to_ms > WINDOW_MS_MAX || w->to_ms <= w->from_ms ? "to" : NULL;
}

static const char *wrong_member(const struct dir_window *w, const char **ret_why)
{
    *ret_why = "it must be a name: [a-z0-9]([a-z0-9._-]{0,62})";
    if (!parse_is_name(slice_of(w->name, strlen(w->name)))) {
        return "name";
    }
    *ret_why = "it must be maintenance or freeze";
    if (w->kind != DIR_WINDOW_MAINTENANCE && w->kind != DIR_WINDOW_FREEZE) {
        return "kind";
    }
    *ret_why = "it must be the name of a time zone, such as Europe/Zurich";
    if (!zone_name_is_fine(slice_of(w->time_zone, strlen(w->time_zone)))) {
        return "time_zone";
    }
    return w->days != 0 ? wrong_week(w, ret_why) : wrong_instants(w, ret_why);
}

static bool is_named(const struct dir_window *windows, uint32_t count, const char *name)
{
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(windows[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

/* A number of the message that may be larger than the field: then it is out of range there too. */
static uint16_t narrow(uint32_t value)
{
    return value < UINT16_MAX ? (uint16_t)value : UINT16_MAX;
}

static bool take_one(const Cadastre__BalancerWindow *m, struct dir_window *w)
{
    bool fits = strlen(m->name) < sizeof w->name && strlen(m->time_zone) < sizeof w->time_zone;
    memset(w, 0, sizeof *w);
    (void)snprintf(w->name, sizeof w->name, "%s", m->name);
    (void)snprintf(w->time_zone, sizeof w->time_zone, "%s", m->time_zone);
    w->kind = m->kind < UINT8_MAX ? (uint8_t)m->kind : UINT8_MAX;
    w->days = m->days < UINT8_MAX ? (uint8_t)m->days : UINT8_MAX;
    w->start = narrow(m->start);
    w->end = narrow(m->end);
    w->from_ms = m->from_ms;
    w->to_ms = m->to_ms;
    return fits;
}

enum err_code windows_take_patch(struct apply *a, struct dir_window *into, uint32_t *count)
{
    const Cadastre__BalancerPatch *m = a->cmd->balancer_patch;
    char pointer[64];
    if (!m->has_windows) {
        return ERR_OK;
    }
    if (m->n_windows > DIR_WINDOWS_MAX) {
        return err_set_at(&a->err, ERR_INVALID_SETTINGS, "/windows", "there are at most %d",
                          DIR_WINDOWS_MAX);
    }
    memset(into, 0, DIR_WINDOWS_MAX * sizeof into[0]);
    for (uint32_t i = 0; i < m->n_windows; i++) {
        const char *why = NULL;
        bool fits = take_one(m->windows[i], &into[i]);
        const char *member = wrong_member(&into[i], &why);
        if (member == NULL && !fits) {
            member = strlen(m->windows[i]->name) > DIR_NAME_MAX ? "name" : "time_zone";
            why = "it is too long";
        }
        if (member == NULL && is_named(into, i, into[i].name)) {
            member = "name";
            why = "another window has this name";
        }
        if (member != NULL) {
            (void)snprintf(pointer, sizeof pointer, "/windows/%u/%s", i, member);
            return err_set_at(&a->err, ERR_INVALID_SETTINGS, pointer, "%s", why);
        }
    }
    *count = (uint32_t)m->n_windows;
    return ERR_OK;
}

/* --- bytes --- */

void windows_put(struct buf *out, const struct dir_balancer *b)
{
    wire_put_u32(out, b->window_count);
    for (uint32_t i = 0; i < b->window_count; i++) {
        const struct dir_window *w = &b->windows[i];
        wire_put_text(out, w->name);
        wire_put_text(out, w->time_zone);
        buf_put_u8(out, w->kind);
        buf_put_u8(out, w->days);
        wire_put_u16(out, w->start);
        wire_put_u16(out, w->end);
        wire_put_u64(out, w->from_ms);
        wire_put_u64(out, w->to_ms);
    }
}

void windows_get(struct wire_reader *r, struct dir_balancer *b)
{
    b->window_count = wire_u32(r);
    if (b->window_count > DIR_WINDOWS_MAX) {
        wire_fail(r, "there are too many windows");
        b->window_count = 0;
    }
    for (uint32_t i = 0; i < b->window_count; i++) {
        struct dir_window *w = &b->windows[i];
        wire_text(r, w->name, sizeof w->name, "a window's name is wrong");
        wire_text(r, w->time_zone, sizeof w->time_zone, "a window's time zone is wrong");
        w->kind = wire_u8(r);
        w->days = wire_u8(r);
        w->start = wire_u16(r);
        w->end = wire_u16(r);
        w->from_ms = wire_u64(r);
        w->to_ms = wire_u64(r);
    }
}

/* --- what must hold --- */

const char *windows_check(const struct dir_balancer *b)
{
    for (uint32_t i = 0; i < b->window_count; i++) {
        const char *why;
        if (wrong_member(&b->windows[i], &why) != NULL) {
            return "a window of the balancer makes no sense";
        }
        if (is_named(b->windows, i, b->windows[i].name)) {
            return "two windows of the balancer have one name";
        }
    }
    return NULL;
}
