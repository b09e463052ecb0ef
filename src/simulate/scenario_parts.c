/* SPDX-License-Identifier: Apache-2.0 */
#include "simulate/scenario_parts.h"

#include "directory/budget.h"

#include <stdio.h>
#include <string.h>

#define HOUR_MS UINT64_C(3600000)

/* --- what is left out --- */

void scenario_default_load(struct scenario_load *l)
{
    enum scenario_generator g = l->generator;
    bool steep = g == SCENARIO_ZIPF || g == SCENARIO_ZIPFORD || g == SCENARIO_SHIFT;
    *l = (struct scenario_load){
        .generator = g,
        .utilisation = 0.5,
        .sigma = g == SCENARIO_LISTED ? 0 : 0.2,
        .correlation_ms = 60000,
        .exponent = steep ? 0.99 : 0.5,
        .cut = steep                  ? 20
               : g == SCENARIO_HOTKEY ? 100
                                      : 1,
        .share = g == SCENARIO_DRIFT  ? 0.3
                 : g == SCENARIO_MONO ? 0.02
                                      : 0.01,
        .width = g == SCENARIO_MONO ? 0.0001 : 0.01,
        .times = g == SCENARIO_FLASH ? 20 : 3,
        .begin = 0.3,
        .advance = 0.1,
        .per_day = 2,
        .from_ms = g == SCENARIO_FLASH ? 3 * HOUR_MS : 0,
        .every_ms = g == SCENARIO_DIURNAL ? 24 * HOUR_MS : 2 * HOUR_MS,
        .lasts_ms = HOUR_MS / 2,
        .tenants = 100,
        .swing_min = 0.3,
        .swing_max = 0.7,
    };
}

void scenario_defaults(struct scenario *s)
{
    *s = (struct scenario){.seed = 1,
                           .tick_ms = 10000,
                           .round_ms = 30000,
                           .balance = true,
                           .window_ms = 600000,
                           .lease_ms = 10000,
                           .recovery_delay_ms = 300000};
    bal_settings_default(&s->planner);
    dir_budget_defaults(&s->budgets);
}

/* --- windows --- */

static const struct field window_fields[] = {
    {"name", FIELD_NAME, offsetof(struct scenario_window, name), 0, 0, true},
    {"kind", FIELD_OTHER, 0, 0, 0, true},
    {"from", FIELD_DURATION, offsetof(struct scenario_window, from_ms), 0, 0, true},
    {"to", FIELD_DURATION, offsetof(struct scenario_window, to_ms), 0, 0, true},
    {NULL, FIELD_OTHER, 0, 0, 0, false}};

void scenario_read_windows(struct reading *r, const json_t *list, struct scenario *s)
{
    char at[FIELD_AT_MAX];
    if (!json_is_array(list) || json_array_size(list) > DIR_WINDOWS_MAX) {
        fields_fail(r, "/windows", "", "it must be a list of at most 16");
        return;
    }
    for (size_t i = 0; i < json_array_size(list) && !r->failed; i++) {
        struct scenario_window *w = &s->windows[s->window_count++];
        const json_t *one = json_array_get(list, i);
        (void)snprintf(at, sizeof at, "/windows/%zu", i);
        fields_read(r, one, at, window_fields, w);
        const char *kind = json_string_value(json_object_get(one, "kind"));
        w->kind = kind != NULL && strcmp(kind, "freeze") == 0 ? DIR_WINDOW_FREEZE
                                                              : DIR_WINDOW_MAINTENANCE;
        if (kind == NULL || strcmp(kind, dir_window_kind_name(w->kind)) != 0) {
            fields_fail(r, at, "kind", "it must be maintenance or freeze");
        }
    }
}
