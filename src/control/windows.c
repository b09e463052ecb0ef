/* SPDX-License-Identifier: Apache-2.0 */
#include "control/windows.h"

#include "base/calendar.h"
#include "base/clock.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SECOND_MS = 1000 };

void windows_close(struct windows *w)
{
    for (uint32_t i = 0; i < w->count; i++) {
        zone_free(w->zone[i]);
    }
    *w = (struct windows){.count = 0};
}

void windows_read(struct windows *w, const struct dir_balancer *row, uint64_t mono_ms)
{
    struct err e;
    bool same = w->count == row->window_count && memcmp(w->of, row->windows, sizeof w->of) == 0;
    if (same && mono_ms < w->read_ms + (w->lacks_one ? WINDOWS_RETRY_MS : WINDOWS_READ_AGAIN_MS)) {
        return;
    }
    windows_close(w);
    w->count = row->window_count;
    memcpy(w->of, row->windows, sizeof w->of);
    w->read_ms = mono_ms;
    for (uint32_t i = 0; i < w->count; i++) {
        w->zone[i] = zone_load(ZONE_FOLDER, w->of[i].time_zone, &e);
        w->lacks_one = w->lacks_one || w->zone[i] == NULL;
    }
}

struct windows_state windows_state(const struct windows *w, uint32_t i, uint64_t wall_ms)
{
    const struct dir_window *o = &w->of[i];
    const struct calendar_week week = {o->days, o->start, o->end};
    struct windows_state s = {.open = false};
    int64_t change;
    if (o->days == 0) {
        s.open = wall_ms >= o->from_ms && wall_ms < o->to_ms;
        s.changes_ms = wall_ms < o->from_ms ? o->from_ms : wall_ms < o->to_ms ? o->to_ms : 0;
    } else if (w->zone[i] == NULL) {
        s.open = o->kind == DIR_WINDOW_FREEZE;
        s.unknown = true;
    } else {
        s.open = calendar_week_at(&week, w->zone[i], (int64_t)(wall_ms / SECOND_MS), &change);
        s.changes_ms = change != CALENDAR_NEVER ? (uint64_t)change * SECOND_MS : 0;
    }
    return s;
}

/* "night until 2026-12-01T05:00:00.000Z (2026-12-01 06:00 in Europe/Zurich)" */
static void say(const struct windows *w,
                uint32_t i,
                const struct windows_state *s,
                const char *verb,
                struct windows_hold *ret)
{
    const struct dir_window *o = &w->of[i];
    char at[CLOCK_RFC3339_SIZE], local[ZONE_TEXT_SIZE];
    if (s->unknown) {
        (void)snprintf(ret->detail, sizeof ret->detail, "%s: time zone %s can't be read here",
                       o->name, o->time_zone);
        return;
    }
    clock_rfc3339(s->changes_ms, at);
    if (s->changes_ms == 0) {
        (void)snprintf(ret->detail, sizeof ret->detail, "%s, without an end", o->name);
    } else if (w->zone[i] == NULL) {
        (void)snprintf(ret->detail, sizeof ret->detail, "%s %s %s", o->name, verb, at);
    } else {
        zone_text(w->zone[i], (int64_t)(s->changes_ms / SECOND_MS), local);
        (void)snprintf(ret->detail, sizeof ret->detail, "%s %s %s (%s in %s)", o->name, verb, at,
                       local, o->time_zone);
    }
}

/* Of the freezes in force that which ends last. */
static void look_at_freezes(const struct windows *w, uint64_t wall_ms, struct windows_hold *ret)
{
    uint64_t last = 0;
    for (uint32_t i = 0; i < w->count; i++) {
        struct windows_state s = windows_state(w, i, wall_ms);
        uint64_t ends = s.changes_ms != 0 ? s.changes_ms : UINT64_MAX;
        if (w->of[i].kind == DIR_WINDOW_FREEZE && s.open && ends > last) {
            last = ends;
            ret->code = WINDOWS_FREEZE;
            say(w, i, &s, "until", ret);
        }
    }
}

/* Of the maintenance windows, all of which are closed, that which opens first. */
static void look_at_maintenance(const struct windows *w, uint64_t wall_ms, struct windows_hold *ret)
{
    uint64_t first = UINT64_MAX;
    bool any = false;
    struct windows_hold h = {.code = WINDOWS_OUTSIDE};
    (void)snprintf(h.detail, sizeof h.detail, "no maintenance window opens in the next two weeks");
    for (uint32_t i = 0; i < w->count; i++) {
        struct windows_state s = windows_state(w, i, wall_ms);
        if (w->of[i].kind != DIR_WINDOW_MAINTENANCE) {
            continue;
        }
        if (s.open) {
            return;
        }
        any = true;
        if ((s.changes_ms != 0 && s.changes_ms < first) || (s.unknown && first == UINT64_MAX)) {
            first = s.changes_ms != 0 ? s.changes_ms : first;
            say(w, i, &s, "opens", &h);
        }
    }
    if (any) {
        *ret = h;
    }
}

void windows_look(const struct windows *w, uint64_t wall_ms, struct windows_hold *ret)
{
    *ret = (struct windows_hold){.code = NULL};
    look_at_freezes(w, wall_ms, ret);
    if (ret->code == NULL) {
        look_at_maintenance(w, wall_ms, ret);
    }
}

bool windows_is_routine(uint32_t class_of)
{
    return class_of < DIR_CLASS_DRAIN && class_of != DIR_CLASS_OPERATOR;
}

bool windows_is_own(const struct dir_proposal *p)
{
    return p->state == DIR_PROPOSAL_RUNNING && strcmp(p->settled_by, "balancer") == 0;
}

static int by_id(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* The operations of proposals that no person has approved, in order. Freed by the caller. */
static uint64_t *find_own(const struct dir_view *v, size_t *ret_count)
{
    uint64_t *ids = mem_alloc((2 * v->proposals.count + 1) * sizeof ids[0]);
    const struct dir_proposal *p;
    struct ptree_iter it;
    *ret_count = 0;
    ptree_seek(&v->proposals, slice_of(NULL, 0), &it);
    for (; (p = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        if (windows_is_own(p)) {
            ids[(*ret_count)++] = p->operation;
            ids[(*ret_count)++] = p->with_operation;
        }
    }
    qsort(ids, *ret_count, sizeof ids[0], by_id);
    return ids;
}

uint64_t windows_keep(const struct windows_hold *h,
                      const struct dir_view *v,
                      struct admission_candidate *waiting,
                      uint64_t count)
{
    uint64_t kept = 0, *own;
    size_t owned;
    if (h->code == NULL || count == 0) {
        return count;
    }
    bool all = strcmp(h->code, WINDOWS_FREEZE) == 0;
    own = find_own(v, &owned);
    for (uint64_t i = 0; i < count; i++) {
        const struct dir_operation *o = waiting[i].o;
        bool held = windows_is_routine(o->class_of) &&
                    (all || bsearch(&o->id, own, owned, sizeof own[0], by_id) != NULL);
        if (!held) {
            waiting[kept++] = waiting[i];
        }
    }
    mem_free(own);
    return kept;
}

bool windows_holds(const struct windows_hold *h,
                   const struct dir_view *v,
                   const struct dir_operation *o)
{
    const struct dir_proposal *p;
    struct ptree_iter it;
    if (h->code == NULL || !windows_is_routine(o->class_of)) {
        return false;
    }
    if (strcmp(h->code, WINDOWS_FREEZE) == 0) {
        return true;
    }
    ptree_seek(&v->proposals, slice_of(NULL, 0), &it);
    for (; (p = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        if (windows_is_own(p) && (p->operation == o->id || p->with_operation == o->id)) {
            return true;
        }
    }
    return false;
}
