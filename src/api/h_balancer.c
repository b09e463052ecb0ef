/* SPDX-License-Identifier: Apache-2.0 */
/* Budgets of movement: their limits, what is in use, and who waits; what is set of the balancer,
 * and whether it is paused. */
#include "api/balancer_json.h"
#include "api/balancer_patch.h"
#include "api/endpoints.h"
#include "api/windows_json.h"

#include "base/clock.h"
#include "base/parse.h"
#include "directory/budget.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { USAGES_SHOWN = 10000 };

/* --- reading --- */

static void put_limit(struct buf *b, const char *member, uint64_t value)
{
    if (value == DIR_BUDGET_COMPUTED) {
        buf_printf(b, "\"%s\":null", member);
    } else {
        buf_printf(b, "\"%s\":%" PRIu64, member, value);
    }
}

static void put_budgets(struct buf *b, const struct dir_budgets *budgets)
{
    buf_put_str(b, "\"budgets\":{");
    for (int i = DIR_BUDGET_SOURCE; i <= DIR_BUDGETS; i++) {
        const struct dir_budget_limit *l = &budgets->limits[i];
        buf_printf(b, "\"%s\":{", dir_budget_name((enum dir_budget)i));
        put_limit(b, "moves", l->moves);
        if (i != DIR_BUDGET_TRANSFER) {
            buf_put_u8(b, ',');
            put_limit(b, "bytes_per_s", l->bytes_per_s);
        }
        buf_put_str(b, "},");
    }
    buf_printf(b, "\"recovery_reserve_percent\":%" PRIu64 ",\"release_ms\":%" PRIu64 "}",
               budgets->reserve_percent, budgets->release_ms);
}

static void put_usage(struct buf *b, const struct dir_view *v, const struct dir_usage *u)
{
    enum dir_budget budget = (enum dir_budget)u->budget;
    const struct dir_node *n = u->node != 0 ? view_node_by_id(v, u->node) : NULL;
    struct dir_budget_limit all = dir_usage_total(u), limit = dir_budget_limit(v, budget);
    struct dir_budget_limit reserve = dir_budget_reserve(v, budget), down = {0, 0};
    for (int g = 0; g < DIR_USAGE_GROUPS; g++) {
        down.moves += u->used[g][DIR_USAGE_RELEASING].moves;
        down.bytes_per_s += u->used[g][DIR_USAGE_RELEASING].bytes_per_s;
    }
    buf_printf(b, "{\"budget\":\"%s\",\"value\":", dir_budget_name(budget));
    json_put_cstring(b, n != NULL ? n->name : u->label);
    buf_printf(b,
               ",\"moves\":%" PRIu64 ",\"moves_limit\":%" PRIu64 ",\"moves_reserve\":%" PRIu64
               ",\"moves_stepping_down\":%" PRIu64,
               all.moves, limit.moves, reserve.moves, down.moves);
    if (budget != DIR_BUDGET_TRANSFER) {
        buf_printf(b,
                   ",\"bytes_per_s\":%" PRIu64 ",\"bytes_per_s_limit\":%" PRIu64
                   ",\"bytes_per_s_reserve\":%" PRIu64 ",\"bytes_per_s_stepping_down\":%" PRIu64,
                   all.bytes_per_s, limit.bytes_per_s, reserve.bytes_per_s, down.bytes_per_s);
    }
    buf_put_u8(b, '}');
}

/* What is in use; those left out are counted. */
static void put_usages(struct buf *b, const struct dir_view *v)
{
    const struct dir_usage *u;
    struct ptree_iter it;
    uint64_t shown = 0;
    buf_put_str(b, ",\"usage\":[");
    for (ptree_seek(&v->usage, slice_of(NULL, 0), &it);
         shown < USAGES_SHOWN && (u = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        if (shown++ > 0) {
            buf_put_u8(b, ',');
        }
        put_usage(b, v, u);
    }
    buf_printf(b, "],\"usage_left_out\":%" PRIu64, v->usage.count - shown);
}

/* By class, the highest first: the index goes by it. */
static void put_queue(struct buf *b, const struct dir_view *v)
{
    const struct dir_operation *o;
    struct ptree_iter it;
    const char *name = NULL;
    uint64_t n = 0;
    buf_put_str(b, ",\"queue\":{");
    ptree_seek(&v->queued, slice_of(NULL, 0), &it);
    for (; (o = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it), n++) {
        const char *of_this = dir_class_name(o->class_of);
        if (name != NULL && strcmp(name, of_this) != 0) {
            buf_printf(b, "\"%s\":%" PRIu64 ",", name, n);
            n = 0;
        }
        name = of_this;
    }
    if (name != NULL) {
        buf_printf(b, "\"%s\":%" PRIu64, name, n);
    }
    buf_put_u8(b, '}');
}

static void get_balancer(struct exchange *x, const struct dir_view *v)
{
    struct buf *out = exchange_out(x);
    buf_put_u8(out, '{');
    balancer_put_settings(out, v, clock_wall_ms());
    put_budgets(out, &v->settings.budgets);
    put_usages(out, v);
    put_queue(out, v);
    buf_printf(out, ",\"revision\":%" PRIu64 "}", v->revision);
    reply_read(x, v->revision);
}

void h_balancer_get(struct exchange *x)
{
    read_begin(x, get_balancer);
}

/* --- changing --- */

void h_balancer_patch(struct exchange *x)
{
    struct mutation *m = mutation_begin(x, "balancer_patch", render_revision);
    struct balancer_patch *p;
    if (m == NULL) {
        return;
    }
    p = exchange_alloc(x, sizeof *p);
    balancer_read_patch(&m->in, p);
    if (!mutation_close(x, m)) {
        return;
    }
    m->command.body_case = CADASTRE__COMMAND__BODY_BALANCER_PATCH;
    m->command.balancer_patch = &p->m;
    mutation_submit(x, m);
}

/* --- pausing --- */

static void pause_or_resume(struct exchange *x, const char *verb, bool pause)
{
    struct mutation *m = mutation_begin(x, verb, render_revision);
    Cadastre__BalancerPause *p;
    struct slice reason;
    bool present = false;
    if (m == NULL) {
        return;
    }
    p = exchange_alloc(x, sizeof *p);
    cadastre__balancer_pause__init(p);
    p->pause = pause;
    if (pause) {
        reason = json_in_string(&m->in, "reason", true, 1, DIR_TEXT_MAX);
        p->reason = text_lent(reason.data != NULL ? (const char *)reason.data : "");
        if (strlen(p->reason) != reason.len) {
            json_in_fail(&m->in, "reason", ERR_INVALID_REQUEST, "must not hold NUL");
        }
        p->for_ms = json_in_u64(&m->in, "for_ms", false, 1, DIR_BALANCER_PAUSE_MAX, &present);
    }
    if (!mutation_close(x, m)) {
        return;
    }
    m->command.body_case = CADASTRE__COMMAND__BODY_BALANCER_PAUSE;
    m->command.balancer_pause = p;
    mutation_submit(x, m);
}

void h_balancer_pause(struct exchange *x)
{
    pause_or_resume(x, "balancer_pause", true);
}

void h_balancer_resume(struct exchange *x)
{
    pause_or_resume(x, "balancer_resume", false);
}
