/* SPDX-License-Identifier: Apache-2.0 */
/* The balancer's windows as commands set them, as rows keep them, and as a check sees them. */
#include "base/mem.h"
#include "directory/balancer.h"
#include "directory/internal.h"
#include "tests/harness/tap.h"
#include "tests/harness/world.h"

#include <stdio.h>
#include <string.h>

static struct world w;
static Cadastre__BalancerWindow messages[DIR_WINDOWS_MAX + 1], *message_of[DIR_WINDOWS_MAX + 1];

/* `n` freezes that are fine: weekly, and once each third time. */
static Cadastre__BalancerPatch patch_of(size_t n)
{
    static char names[DIR_WINDOWS_MAX + 1][16];
    Cadastre__BalancerPatch m;
    cadastre__balancer_patch__init(&m);
    for (size_t i = 0; i < n; i++) {
        Cadastre__BalancerWindow *o = &messages[i];
        cadastre__balancer_window__init(o);
        (void)snprintf(names[i], sizeof names[i], "w%zu", i);
        o->name = names[i];
        o->kind = i % 2 == 0 ? DIR_WINDOW_FREEZE : DIR_WINDOW_MAINTENANCE;
        o->time_zone = text_lent("Europe/Zurich");
        if (i % 3 == 0) {
            o->from_ms = 1000;
            o->to_ms = 2000 + i;
        } else {
            o->days = 1 + (uint32_t)i;
            o->start = 480;
            o->end = 1440;
        }
        message_of[i] = o;
    }
    m.has_windows = true;
    m.n_windows = n;
    m.windows = message_of;
    return m;
}

static const struct dir_result *patch(Cadastre__BalancerPatch *m)
{
    return world_do(&w, CADASTRE__COMMAND__BODY_BALANCER_PATCH, m);
}

static const struct dir_balancer *row(void)
{
    return view_balancer(world_state(&w));
}

static void they_are_set_kept_and_cleared(void)
{
    world_open(&w);
    CHECK_U64(row()->window_count, 0);
    Cadastre__BalancerPatch m = patch_of(DIR_WINDOWS_MAX);
    CHECK_U64(patch(&m)->err.code, ERR_OK);
    CHECK_U64(row()->window_count, DIR_WINDOWS_MAX);
    CHECK_STR(row()->windows[1].name, "w1");
    CHECK_STR(row()->windows[1].time_zone, "Europe/Zurich");
    CHECK_U64(row()->windows[1].kind, DIR_WINDOW_MAINTENANCE);
    CHECK(row()->windows[1].days == 2 && row()->windows[1].end == 1440);
    CHECK_U64(row()->windows[3].to_ms, 2003);
    CHECK_U64(world_check(world_state(&w)), 0);
    struct err e;
    struct directory *again = world_reload(&w, &e);
    CHECK(again != NULL);
    if (again != NULL) {
        CHECK(memcmp(view_balancer(directory_state(again))->windows, row()->windows,
                     sizeof row()->windows) == 0);
        directory_free(again);
    }
    uint64_t revision = row()->revision;
    CHECK_U64(patch(&m)->err.code, ERR_OK); /* the same again */
    CHECK_U64(row()->revision, revision);
    /* The list is replaced whole; a patch without one leaves it. */
    m = patch_of(2);
    CHECK_U64(patch(&m)->err.code, ERR_OK);
    CHECK_U64(row()->window_count, 2);
    CHECK_STR(row()->windows[2].name, "");
    Cadastre__BalancerPatch other;
    cadastre__balancer_patch__init(&other);
    other.has_release_ms = true;
    other.release_ms = 5;
    CHECK_U64(patch(&other)->err.code, ERR_OK);
    CHECK_U64(row()->window_count, 2);
    m = patch_of(0);
    CHECK_U64(patch(&m)->err.code, ERR_OK);
    CHECK_U64(row()->window_count, 0);
    CHECK_U64(world_check(world_state(&w)), 0);
    world_close(&w);
}

/* Refused at this pointer, and nothing is done, not even what else was in it. */
static void refused(Cadastre__BalancerPatch *m, const char *pointer)
{
    m->has_release_ms = true;
    m->release_ms = 4321;
    const struct dir_result *r = patch(m);
    tap_note("%s", pointer);
    CHECK_U64(r->err.code, ERR_INVALID_SETTINGS);
    CHECK_STR(r->err.pointer, pointer);
    CHECK(r->err.detail[0] != '\0');
    CHECK_U64(row()->window_count, 1);
    CHECK(world_state(&w)->settings.budgets.release_ms != 4321);
}

/* A list of three (once, weekly, weekly) with one member of the last two changed. */
#define REFUSED(i, member, value, pointer)                                                         \
    do {                                                                                           \
        Cadastre__BalancerPatch m = patch_of(3);                                                   \
        messages[i].member = (value);                                                              \
        refused(&m, pointer);                                                                      \
    } while (0)

static void nonsense_is_refused_by_pointer(void)
{
    char longest[128];
    memset(longest, 'a', sizeof longest);
    longest[100] = '\0';
    world_open(&w);
    Cadastre__BalancerPatch one = patch_of(1), many = patch_of(DIR_WINDOWS_MAX + 1);
    CHECK_U64(patch(&one)->err.code, ERR_OK);
    many = patch_of(DIR_WINDOWS_MAX + 1);
    refused(&many, "/windows");
    REFUSED(2, name, text_lent("w1"), "/windows/2/name");
    REFUSED(1, name, text_lent(""), "/windows/1/name");
    REFUSED(1, name, text_lent("A b"), "/windows/1/name");
    REFUSED(1, name, longest, "/windows/1/name");
    REFUSED(1, kind, 0, "/windows/1/kind");
    REFUSED(1, kind, 3, "/windows/1/kind");
    REFUSED(1, kind, 257, "/windows/1/kind");
    REFUSED(1, time_zone, text_lent(""), "/windows/1/time_zone");
    REFUSED(1, time_zone, text_lent("../x"), "/windows/1/time_zone");
    REFUSED(1, time_zone, longest, "/windows/1/time_zone");
    REFUSED(1, days, 128, "/windows/1/days");
    REFUSED(1, days, 257, "/windows/1/days");
    REFUSED(1, days, 0, "/windows/1/days");
    REFUSED(1, start, 1440, "/windows/1/start");
    REFUSED(1, start, 65536 + 5, "/windows/1/start");
    REFUSED(1, end, 1441, "/windows/1/end");
    REFUSED(1, end, 480, "/windows/1/end");
    REFUSED(1, from_ms, 1, "/windows/1/from");
    REFUSED(1, to_ms, 1, "/windows/1/to");
    REFUSED(0, to_ms, 1000, "/windows/0/to");
    REFUSED(0, to_ms, 0, "/windows/0/to");
    REFUSED(0, to_ms, UINT64_C(253402300800000), "/windows/0/to");
    REFUSED(0, start, 1, "/windows/0/days");
    world_close(&w);
}

static void damaged(void (*damage)(struct dir_balancer *b), const char *text)
{
    struct dir_view s;
    struct dir_balancer *b = row_copy(row(), sizeof *b);
    state_copy(world_state(&w), &s);
    damage(b);
    dir_unref(state_put(&s, &b->object));
    CHECK_STR(check_balancer(&s), text);
    state_close(&s);
}

static void damage_name(struct dir_balancer *b)
{
    memcpy(b->windows[1].name, b->windows[0].name, sizeof b->windows[0].name);
}

static void damage_end(struct dir_balancer *b)
{
    b->windows[1].end = b->windows[1].start;
}

static void damage_zone(struct dir_balancer *b)
{
    b->windows[0].time_zone[0] = '.';
}

static void a_check_finds_damage(void)
{
    world_open(&w);
    Cadastre__BalancerPatch m = patch_of(2);
    CHECK_U64(patch(&m)->err.code, ERR_OK);
    damaged(damage_name, "two windows of the balancer have one name");
    damaged(damage_end, "a window of the balancer makes no sense");
    damaged(damage_zone, "a window of the balancer makes no sense");
    world_close(&w);
}

int main(void)
{
    RUN(they_are_set_kept_and_cleared);
    RUN(nonsense_is_refused_by_pointer);
    RUN(a_check_finds_damage);
    return tap_done();
}
