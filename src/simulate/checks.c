/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold at every revision: of what a command changed at once, of the whole now and then.
 */
#include "simulate/internal.h"

#include "directory/budget.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void fm_violated(struct fm *x, const char *fmt, ...)
{
    uint64_t at = x->out->violation_count++;
    if (at >= SIMULATE_VIOLATIONS_MAX) {
        return;
    }
    char *line = x->out->violations[at];
    size_t room = sizeof x->out->violations[0];
    int n = snprintf(line, room, "revision %" PRIu64 ": ", fm_view(x)->revision);
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(line + n, room - (size_t)n, fmt, args);
    va_end(args);
}

/* No copy is where the placement forbids one, no node has two. */
void fm_check_row(struct fm *x, const struct dir_partition *p)
{
    for (uint8_t i = 0; i < p->replica_count; i++) {
        for (uint8_t k = (uint8_t)(i + 1); k < p->replica_count; k++) {
            if (p->replicas[i].node == p->replicas[k].node) {
                fm_violated(x, "partition %" PRIu64 " has two copies on a node", p->id);
            }
        }
        const struct fm_node *n = fm_node_of(x, p->replicas[i].node);
        bool allowed = n != NULL && (x->live != NULL || fm_is_allowed(x, n));
        if (!allowed) {
            fm_violated(x, "partition %" PRIu64 " has a copy where none may be", p->id);
        }
    }
    const struct dir_operation *o =
        p->operation != 0 ? view_operation(fm_view(x), p->operation) : NULL;
    if (p->operation != 0 && (o == NULL || o->partition != p->id)) {
        fm_violated(x, "partition %" PRIu64 " is held by another's operation", p->id);
    }
}

/* What steps down after its work is not counted: recovery need not wait for it. */
static struct dir_budget_limit held(const struct dir_usage *u, int groups)
{
    struct dir_budget_limit sum = {0, 0};
    for (int g = 0; g < groups; g++) {
        sum.moves += u->used[g][DIR_USAGE_HELD].moves;
        sum.bytes_per_s += u->used[g][DIR_USAGE_HELD].bytes_per_s;
    }
    return sum;
}

/* Whether more is taken than may be. */
static bool check_usage(struct fm *x, const struct dir_usage *u)
{
    enum dir_budget budget = (enum dir_budget)u->budget;
    struct dir_budget_limit limit = dir_budget_limit(fm_view(x), budget);
    struct dir_budget_limit reserve = dir_budget_reserve(fm_view(x), budget);
    struct dir_budget_limit all = held(u, DIR_USAGE_GROUPS), mine = held(u, DIR_USAGE_RECOVERY);
    bool bytes = budget != DIR_BUDGET_TRANSFER;
    bool over = all.moves > limit.moves || (bytes && all.bytes_per_s > limit.bytes_per_s);
    if (x->live != NULL) {
        fm_live_usage(x, u, all);
    }
    if (over && !x->settling) {
        fm_violated(x, "budget %s of %" PRIu64 "%s: %" PRIu64 " moves, %" PRIu64 " bytes/s",
                    dir_budget_name(budget), u->node, u->label, all.moves, all.bytes_per_s);
    }
    bool taken = mine.moves > limit.moves - reserve.moves ||
                 (bytes && mine.bytes_per_s > limit.bytes_per_s - reserve.bytes_per_s);
    if (taken && !x->settling) {
        fm_violated(x, "the reserve of budget %s of %" PRIu64 "%s was taken",
                    dir_budget_name(budget), u->node, u->label);
    }
    return over || taken;
}

void fm_check_budgets(struct fm *x)
{
    const struct dir_usage *u;
    struct ptree_iter it;
    bool over = false;
    ptree_seek(&fm_view(x)->usage, slice_of(NULL, 0), &it);
    for (; (u = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        over |= check_usage(x, u);
    }
    x->settling = x->settling && over;
}

/* What is to even out loads never goes in and out of one node at once. */
void fm_check_ways(struct fm *x)
{
    enum { IN = 1, OUT = 2 };
    uint8_t ways[SCENARIO_NODES_MAX] = {0};
    for (uint32_t i = 0; i < x->open_count; i++) {
        const struct dir_operation *o = view_operation(fm_view(x), x->open[i].id);
        const struct fm_node *from = NULL, *to = NULL;
        if (o != NULL && dir_operation_evens_out(o) && dir_operation_is_copying(o)) {
            from = fm_node_of(x, o->source);
            to = fm_node_of(x, o->destination);
        }
        if (from == NULL || to == NULL) {
            continue;
        }
        ways[from - x->node] |= OUT;
        ways[to - x->node] |= IN;
        if (ways[from - x->node] == (IN | OUT) || ways[to - x->node] == (IN | OUT)) {
            fm_violated(x,
                        "operation %" PRIu64 " takes from %s to %s, of which one does the opposite",
                        o->id, from->name, to->name);
        }
    }
}

static void on_line(void *arg, const char *line)
{
    fm_violated(arg, "%s", line);
}

void fm_check_all(struct fm *x)
{
    (void)dir_check(fm_view(x), on_line, x, SIMULATE_VIOLATIONS_MAX);
    x->checked_ms = x->now_ms;
}
