/* SPDX-License-Identifier: Apache-2.0 */
/* The balancer's row: what commands do to it, and its bytes. */
#include "directory/balancer.h"

#include "base/mem.h"
#include "base/wire.h"
#include "directory/budget_internal.h"

#include <stdio.h>

static const struct {
    const char *group, *name;
    uint64_t def, min, max;
} known[DIR_BALANCER_VALUES] = {
#define X(name, group, member, def, min, max) {group, member, def, min, max},
    DIR_BALANCER_LIST(X)
#undef X
};

static const struct dir_balancer defaults = {.object = {.refs = 1, .kind = DIR_KIND_BALANCER},
                                             .values = {
#define X(name, group, member, def, min, max) def,
                                                 DIR_BALANCER_LIST(X)
#undef X
                                             }};

enum { NOTE_AGAIN_MS = 3600000 };

/* --- reading --- */

static const struct dir_balancer *row_of(const struct dir_view *v)
{
    uint8_t key[8];
    return ptree_get(&v->balancer, ptree_u64_key(DIR_BALANCER_ID, key));
}

const struct dir_balancer *view_balancer(const struct dir_view *v)
{
    const struct dir_balancer *row = row_of(v);
    return row != NULL ? row : &defaults;
}

uint64_t dir_balancer_value(const struct dir_view *v, enum dir_balancer_value which)
{
    return view_balancer(v)->values[which];
}

bool dir_balancer_is_paused(const struct dir_balancer *b, uint64_t now_ms)
{
    return b->pause_since_ms != 0 && (b->pause_until_ms == 0 || now_ms < b->pause_until_ms);
}

const struct dir_balancer_note *dir_balancer_last(const struct dir_balancer *b)
{
    return b->note_count > 0 ? &b->notes[b->note_count - 1] : NULL;
}

const char *dir_balancer_group(enum dir_balancer_value which)
{
    return known[which].group;
}

const char *dir_balancer_name(enum dir_balancer_value which)
{
    return known[which].name;
}

uint64_t dir_balancer_default(enum dir_balancer_value which)
{
    return known[which].def;
}

const char *dir_balancer_mode_name(uint64_t mode)
{
    return mode == DIR_BALANCER_OFF ? "off" : mode == DIR_BALANCER_AUTO ? "auto" : "advise";
}

enum dir_balancer_value dir_balancer_switch(uint32_t class_of)
{
    switch (class_of) {
    case DIR_CLASS_OVERLOAD:
        return DIR_BALANCER_OVERLOAD;
    case DIR_CLASS_HOT:
        return DIR_BALANCER_HOT;
    case DIR_CLASS_BALANCE:
        return DIR_BALANCER_BALANCE;
    case DIR_CLASS_MERGE:
        return DIR_BALANCER_MERGE;
    case DIR_CLASS_OPTIMISE:
        return DIR_BALANCER_OPTIMISE;
    default:
        return DIR_BALANCER_VALUES;
    }
}

/* --- settings --- */

static enum err_code refuse(struct apply *a, enum dir_balancer_value which, const char *why)
{
    char pointer[96];
    const char *group = known[which].group;
    (void)snprintf(pointer, sizeof pointer, "%s%s/%s", group[0] != '\0' ? "/" : "", group,
                   known[which].name);
    return err_set_at(&a->err, ERR_INVALID_SETTINGS, pointer, "%s", why);
}

static enum err_code check_values(struct apply *a, const uint64_t *v)
{
    for (int i = 0; i < DIR_BALANCER_VALUES; i++) {
        if (v[i] < known[i].min || v[i] > known[i].max) {
            return refuse(a, (enum dir_balancer_value)i, "it is out of range");
        }
    }
    if (v[DIR_BALANCER_LOW_PPM] >= v[DIR_BALANCER_HIGH_PPM]) {
        return refuse(a, DIR_BALANCER_LOW_PPM, "it must be below high_ppm");
    }
    if (v[DIR_BALANCER_MERGE_SHARE_PPM] * 3 > v[DIR_BALANCER_SPLIT_SHARE_PPM]) {
        return refuse(a, DIR_BALANCER_MERGE_SHARE_PPM,
                      "two that merge would be split again: at most a third of split_share_ppm");
    }
    return ERR_OK;
}

static enum err_code take_values(struct apply *a, uint64_t *values)
{
    const Cadastre__BalancerPatch *m = a->cmd->balancer_patch;
    for (size_t i = 0; i < m->n_values; i++) {
        if (m->values[i]->which >= DIR_BALANCER_VALUES) {
            return err_set_at(&a->err, ERR_INVALID_SETTINGS, "", "there is no such setting");
        }
        values[m->values[i]->which] = m->values[i]->value;
    }
    return check_values(a, values);
}

static struct dir_balancer *next_row(const struct apply *a)
{
    return row_copy(view_balancer(a->s), sizeof(struct dir_balancer));
}

/* Takes over the reference. */
static void put(struct apply *a, struct dir_balancer *b)
{
    b->revision = a->rev;
    a->changed = true;
    apply_put(a, b);
}

enum err_code apply_balancer_patch(struct apply *a)
{
    struct dir_budgets budgets = a->s->settings.budgets;
    const struct dir_balancer *was = view_balancer(a->s);
    const Cadastre__BalancerPatch *m = a->cmd->balancer_patch;
    uint64_t values[DIR_BALANCER_VALUES];
    struct dir_window windows[DIR_WINDOWS_MAX];
    uint32_t window_count = was->window_count;
    memcpy(values, was->values, sizeof values);
    memcpy(windows, was->windows, sizeof windows);
    apply_subject(a, "%s", m->n_values > 0 ? "settings" : m->has_windows ? "windows" : "budgets");
    enum err_code code = budget_take_patch(a, &budgets);
    if (code == ERR_OK) {
        code = take_values(a, values);
    }
    if (code == ERR_OK) {
        code = windows_take_patch(a, windows, &window_count);
    }
    if (code != ERR_OK) {
        return code;
    }
    if (memcmp(&budgets, &a->s->settings.budgets, sizeof budgets) != 0) {
        a->s->settings.budgets = budgets;
        a->changed = true;
    }
    if (memcmp(values, was->values, sizeof values) != 0 ||
        memcmp(windows, was->windows, sizeof windows) != 0) {
        struct dir_balancer *b = next_row(a);
        memcpy(b->values, values, sizeof values);
        memcpy(b->windows, windows, sizeof windows);
        b->window_count = window_count;
        put(a, b);
    }
    return ERR_OK;
}

/* --- pause --- */

static void begin_pause(struct dir_balancer *b, const struct apply *a)
{
    const Cadastre__BalancerPause *m = a->cmd->balancer_pause;
    b->pause_since_ms = a->s->time_ms > 0 ? a->s->time_ms : 1;
    b->pause_until_ms = m->for_ms > 0 ? b->pause_since_ms + m->for_ms : 0;
    (void)snprintf(b->pause_by, sizeof b->pause_by, "%s",
                   a->cmd->principal[0] != '\0' ? a->cmd->principal : "operator");
    (void)snprintf(b->pause_reason, sizeof b->pause_reason, "%s", m->reason);
}

enum err_code apply_balancer_pause(struct apply *a)
{
    const Cadastre__BalancerPause *m = a->cmd->balancer_pause;
    apply_subject(a, "%s", m->pause ? "pause" : "resume");
    if (m->pause && !valid_text(m->reason, DIR_TEXT_MAX)) {
        return err_set_at(&a->err, ERR_INVALID_REQUEST, "/reason",
                          "a reason is a text of 1 to %d bytes", DIR_TEXT_MAX);
    }
    if (m->for_ms > DIR_BALANCER_PAUSE_MAX) {
        return err_set_at(&a->err, ERR_INVALID_REQUEST, "/for_ms", "a pause is at most a year");
    }
    if (!m->pause && view_balancer(a->s)->pause_since_ms == 0) {
        return ERR_OK;
    }
    struct dir_balancer *b = next_row(a);
    b->pause_since_ms = b->pause_until_ms = 0;
    memset(b->pause_by, 0, sizeof b->pause_by);
    memset(b->pause_reason, 0, sizeof b->pause_reason);
    if (m->pause) {
        begin_pause(b, a);
    }
    put(a, b);
    return ERR_OK;
}

/* --- notes --- */

static bool says_the_same(const struct dir_balancer_note *last,
                          const Cadastre__BalancerNote *m,
                          uint64_t now_ms)
{
    return last != NULL && strcmp(last->code, m->code) == 0 &&
           strcmp(last->detail, m->detail) == 0 && now_ms < last->at_ms + NOTE_AGAIN_MS;
}

enum err_code apply_balancer_note(struct apply *a)
{
    const Cadastre__BalancerNote *m = a->cmd->balancer_note;
    const struct dir_balancer *was = view_balancer(a->s);
    apply_subject(a, "%s", m->code);
    if (!valid_text(m->code, DIR_NAME_MAX) ||
        (m->detail[0] != '\0' && !valid_text(m->detail, DIR_BALANCER_NOTE_TEXT_MAX))) {
        return err_set(&a->err, ERR_INVALID_REQUEST, "a note's text is wrong");
    }
    if (says_the_same(dir_balancer_last(was), m, a->s->time_ms)) {
        return ERR_OK;
    }
    struct dir_balancer *b = next_row(a);
    if (b->note_count == DIR_BALANCER_NOTES_MAX) {
        memmove(b->notes, b->notes + 1, sizeof b->notes - sizeof b->notes[0]);
        b->note_count--;
    }
    struct dir_balancer_note *n = &b->notes[b->note_count++];
    memset(n, 0, sizeof *n);
    n->at_ms = a->s->time_ms;
    (void)snprintf(n->code, sizeof n->code, "%s", m->code);
    (void)snprintf(n->detail, sizeof n->detail, "%s", m->detail);
    n->proposed = m->proposed;
    n->rejected = m->rejected;
    n->open = m->open;
    put(a, b);
    return ERR_OK;
}

/* --- bytes, by the rules of object.c --- */

void object_put_balancer(struct buf *out, const struct dir_balancer *b)
{
    wire_put_u64(out, b->revision);
    wire_put_u32(out, DIR_BALANCER_VALUES);
    for (int i = 0; i < DIR_BALANCER_VALUES; i++) {
        wire_put_u64(out, b->values[i]);
    }
    wire_put_u64(out, b->pause_since_ms);
    wire_put_u64(out, b->pause_until_ms);
    wire_put_text(out, b->pause_by);
    wire_put_text(out, b->pause_reason);
    wire_put_u32(out, b->note_count);
    for (uint32_t i = 0; i < b->note_count; i++) {
        const struct dir_balancer_note *n = &b->notes[i];
        wire_put_u64(out, n->at_ms);
        wire_put_text(out, n->code);
        wire_put_text(out, n->detail);
        wire_put_u64(out, n->proposed);
        wire_put_u64(out, n->rejected);
        wire_put_u64(out, n->open);
    }
    windows_put(out, b);
}

void *object_get_balancer(struct wire_reader *r)
{
    struct dir_balancer *b = mem_zalloc(sizeof *b);
    b->revision = wire_u64(r);
    if (wire_u32(r) != DIR_BALANCER_VALUES) {
        wire_fail(r, "it has another number of settings");
    }
    for (int i = 0; i < DIR_BALANCER_VALUES; i++) {
        b->values[i] = wire_u64(r);
    }
    b->pause_since_ms = wire_u64(r);
    b->pause_until_ms = wire_u64(r);
    wire_text(r, b->pause_by, sizeof b->pause_by, "who paused it is wrong");
    wire_text(r, b->pause_reason, sizeof b->pause_reason, "the pause's reason is wrong");
    b->note_count = wire_u32(r);
    if (b->note_count > DIR_BALANCER_NOTES_MAX) {
        wire_fail(r, "there are too many notes");
        b->note_count = 0;
    }
    for (uint32_t i = 0; i < b->note_count; i++) {
        struct dir_balancer_note *n = &b->notes[i];
        n->at_ms = wire_u64(r);
        wire_text(r, n->code, sizeof n->code, "a note's code is wrong");
        wire_text(r, n->detail, sizeof n->detail, "a note's detail is wrong");
        n->proposed = wire_u64(r);
        n->rejected = wire_u64(r);
        n->open = wire_u64(r);
    }
    windows_get(r, b);
    return b;
}

/* --- what must hold --- */

static bool pause_fits(const struct dir_view *v, const struct dir_balancer *b)
{
    bool paused = b->pause_since_ms != 0;
    return paused == (b->pause_by[0] != '\0') && paused == (b->pause_reason[0] != '\0') &&
           b->pause_since_ms <= (v->time_ms > 0 ? v->time_ms : 1) &&
           (b->pause_until_ms == 0 || b->pause_until_ms > b->pause_since_ms);
}

const char *check_balancer(const struct dir_view *v)
{
    const struct dir_balancer *b = row_of(v);
    if (v->balancer.count > 1 || (v->balancer.count == 1 && b == NULL)) {
        return "the balancer has another row than its own";
    }
    if (b == NULL) {
        return NULL;
    }
    struct apply scratch = {.s = NULL};
    bool order = true;
    for (uint32_t i = 1; i < b->note_count; i++) {
        order = order && b->notes[i].at_ms >= b->notes[i - 1].at_ms;
    }
    if (check_values(&scratch, b->values) != ERR_OK) {
        return "a setting of the balancer is out of range";
    }
    const char *wrong = windows_check(b);
    if (wrong != NULL) {
        return wrong;
    }
    return !pause_fits(v, b)                               ? "the balancer's pause does not fit"
           : !order                                        ? "the balancer's notes are not in order"
           : b->revision == 0 || b->revision > v->revision ? "the balancer's revision is wrong"
                                                           : NULL;
}
