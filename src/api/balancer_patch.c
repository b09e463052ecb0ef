/* SPDX-License-Identifier: Apache-2.0 */
#include "api/balancer_patch.h"

#include "base/parse.h"
#include "directory/budget.h"

#include <stdio.h>
#include <string.h>

static const char *const groups[] = {"thresholds", "classes", "guardrails"};
enum { GROUPS = sizeof groups / sizeof groups[0] };

static bool is_switch(int which)
{
    return strcmp(dir_balancer_group((enum dir_balancer_value)which), "classes") == 0;
}

static void add(struct balancer_patch *ret, enum dir_balancer_value which, uint64_t value)
{
    Cadastre__BalancerValue *v = &ret->values[ret->m.n_values];
    cadastre__balancer_value__init(v);
    v->which = which;
    v->value = value;
    ret->value_of[ret->m.n_values++] = v;
}

static void read_value(struct json_in *in, struct balancer_patch *ret, int i)
{
    enum dir_balancer_value which = (enum dir_balancer_value)i;
    const char *name = dir_balancer_name(which);
    bool present = false;
    if (json_in_null(in, name)) {
        add(ret, which, dir_balancer_default(which));
        return;
    }
    uint64_t value = is_switch(i) ? json_in_bool(in, name, false, &present)
                                  : json_in_u64(in, name, false, 0, PARSE_INT_MAX, &present);
    if (present) {
        add(ret, which, value);
    }
}

static void read_group(struct json_in *outer, const char *group, struct balancer_patch *ret)
{
    bool all_default = json_in_null(outer, group);
    json_t *given = all_default ? NULL : json_in_object(outer, group, false);
    struct json_in in;
    if (!all_default && given == NULL) {
        return;
    }
    if (given != NULL) {
        json_in_open_member(&in, outer, given, group);
    }
    for (int i = 0; i < DIR_BALANCER_VALUES; i++) {
        enum dir_balancer_value which = (enum dir_balancer_value)i;
        if (strcmp(dir_balancer_group(which), group) != 0) {
            continue;
        }
        if (all_default) {
            add(ret, which, dir_balancer_default(which));
        } else {
            read_value(&in, ret, i);
        }
    }
    if (given != NULL) {
        outer->code = json_in_close(&in);
    }
}

/* A number, or null for the default. */
static uint64_t
take(struct json_in *in, const char *member, uint64_t of_null, protobuf_c_boolean *has)
{
    bool present = false;
    uint64_t value;
    if (json_in_null(in, member)) {
        *has = true;
        return of_null;
    }
    value = json_in_u64(in, member, false, 0, PARSE_INT_MAX, &present);
    *has = present;
    return value;
}

static void add_limit(struct balancer_patch *p, const Cadastre__BudgetLimit *l)
{
    if (l->has_moves || l->has_bytes_per_s) {
        p->limits[p->m.n_limits] = *l;
        p->limit_of[p->m.n_limits] = &p->limits[p->m.n_limits];
        p->m.n_limits++;
    }
}

/* {"moves":2,"bytes_per_s":null}; null as a whole: both defaults. */
static void read_limit(struct json_in *outer, struct balancer_patch *p, enum dir_budget budget)
{
    const char *name = dir_budget_name(budget);
    struct dir_budgets defaults;
    struct json_in in;
    Cadastre__BudgetLimit l;
    json_t *given;
    dir_budget_defaults(&defaults);
    cadastre__budget_limit__init(&l);
    l.budget = budget;
    l.moves = defaults.limits[budget].moves;
    l.bytes_per_s = defaults.limits[budget].bytes_per_s;
    if (json_in_null(outer, name)) {
        l.has_moves = true;
        l.has_bytes_per_s = budget != DIR_BUDGET_TRANSFER;
        add_limit(p, &l);
        return;
    }
    given = json_in_object(outer, name, false);
    if (given == NULL) {
        return;
    }
    json_in_open_member(&in, outer, given, name);
    l.moves = take(&in, "moves", l.moves, &l.has_moves);
    if (budget != DIR_BUDGET_TRANSFER) {
        l.bytes_per_s = take(&in, "bytes_per_s", l.bytes_per_s, &l.has_bytes_per_s);
    }
    outer->code = json_in_close(&in);
    add_limit(p, &l);
}

static void read_budgets(struct json_in *outer, struct balancer_patch *p)
{
    json_t *given = json_in_object(outer, "budgets", false);
    struct dir_budgets defaults;
    struct json_in in;
    if (given == NULL || outer->code != ERR_OK) {
        return;
    }
    dir_budget_defaults(&defaults);
    json_in_open_member(&in, outer, given, "budgets");
    for (int i = DIR_BUDGET_SOURCE; i <= DIR_BUDGETS; i++) {
        read_limit(&in, p, (enum dir_budget)i);
    }
    p->m.recovery_reserve_percent = take(&in, "recovery_reserve_percent", defaults.reserve_percent,
                                         &p->m.has_recovery_reserve_percent);
    p->m.release_ms = take(&in, "release_ms", defaults.release_ms, &p->m.has_release_ms);
    outer->code = json_in_close(&in);
}

void balancer_read_patch(struct json_in *in, struct balancer_patch *ret)
{
    static const char *const modes[] = {"off", "advise", "auto", NULL};
    memset(ret, 0, sizeof *ret);
    cadastre__balancer_patch__init(&ret->m);
    ret->m.limits = ret->limit_of;
    ret->m.values = ret->value_of;
    read_budgets(in, ret);
    if (json_in_null(in, "mode")) {
        add(ret, DIR_BALANCER_MODE, dir_balancer_default(DIR_BALANCER_MODE));
    } else {
        int mode = json_in_enum(in, "mode", false, modes, -1);
        if (mode >= 0) {
            add(ret, DIR_BALANCER_MODE, (uint64_t)mode);
        }
    }
    for (unsigned i = 0; i < GROUPS && in->code == ERR_OK; i++) {
        read_group(in, groups[i], ret);
    }
    windows_read_json(in, &ret->windows, &ret->m);
}
