/* SPDX-License-Identifier: Apache-2.0 */
/* Commands about budgets, the row's part as bytes, and what must hold at every revision. */
#include "directory/budget_internal.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>

/* --- a figure of a start --- */

enum err_code budget_check_start(struct apply *a)
{
    const Cadastre__OperationStart *m = a->cmd->operation_start;
    const char *pointer = m->max_bytes_per_s > DIR_REVISION_MAX    ? "/max_bytes_per_s"
                          : m->size_bytes > DIR_REVISION_MAX       ? "/size_bytes"
                          : m->live_bytes_per_s > DIR_REVISION_MAX ? "/live_bytes_per_s"
                                                                   : NULL;
    if (pointer != NULL) {
        return err_set_at(&a->err, ERR_INVALID_REQUEST, pointer, "it is out of range");
    }
    return ERR_OK;
}

/* --- stepping down --- */

static void step_down(struct dir_operation *o)
{
    o->reserved.step++;
    if (o->reserved.step >= DIR_RELEASE_STEPS) {
        memset(&o->reserved, 0, sizeof o->reserved);
    }
}

enum err_code apply_operation_release(struct apply *a)
{
    const Cadastre__OperationRelease *m = a->cmd->operation_release;
    const struct dir_operation *o = view_operation(a->s, m->operation);
    apply_subject(a, "operation=%" PRIu64, m->operation);
    if (o == NULL || !o->reserved.releasing || m->step != o->reserved.step + UINT32_C(1)) {
        return ERR_OK; /* it has passed that step, or is gone */
    }
    struct dir_operation *next = row_copy(o, operation_size(o));
    step_down(next);
    next->revision = a->rev;
    a->operation = dir_ref(next);
    a->changed = true;
    apply_put(a, next);
    return ERR_OK;
}

/* --- limits --- */

static bool is_limit(uint64_t v, uint64_t max, bool may_be_computed)
{
    return v <= max || (may_be_computed && v == DIR_BUDGET_COMPUTED);
}

static enum err_code refuse(struct apply *a, enum dir_budget budget, const char *member)
{
    char pointer[64];
    (void)snprintf(pointer, sizeof pointer, "/budgets/%s/%s", dir_budget_name(budget), member);
    return err_set_at(&a->err, ERR_INVALID_SETTINGS, pointer, "it is out of range");
}

static enum err_code
take_limit(struct apply *a, struct dir_budgets *b, const Cadastre__BudgetLimit *m)
{
    if (m->budget < DIR_BUDGET_SOURCE || m->budget > DIR_BUDGETS) {
        return err_set_at(&a->err, ERR_INVALID_SETTINGS, "/budgets", "there is no such budget");
    }
    enum dir_budget budget = (enum dir_budget)m->budget;
    struct dir_budget_limit *l = &b->limits[budget];
    bool computed = budget == DIR_BUDGET_CLUSTER;
    if (m->has_moves && !is_limit(m->moves, DIR_BUDGET_MOVES_MAX, computed)) {
        return refuse(a, budget, "moves");
    }
    if (m->has_bytes_per_s && (budget == DIR_BUDGET_TRANSFER ||
                               !is_limit(m->bytes_per_s, DIR_BUDGET_BYTES_MAX, computed))) {
        return refuse(a, budget, "bytes_per_s");
    }
    l->moves = m->has_moves ? m->moves : l->moves;
    l->bytes_per_s = m->has_bytes_per_s ? m->bytes_per_s : l->bytes_per_s;
    return ERR_OK;
}

enum err_code budget_take_patch(struct apply *a, struct dir_budgets *next)
{
    const Cadastre__BalancerPatch *m = a->cmd->balancer_patch;
    if (m->n_limits > DIR_BUDGETS) {
        return err_set_at(&a->err, ERR_INVALID_SETTINGS, "/budgets", "there are too many");
    }
    for (size_t i = 0; i < m->n_limits; i++) {
        enum err_code code = take_limit(a, next, m->limits[i]);
        if (code != ERR_OK) {
            return code;
        }
    }
    next->reserve_percent =
        m->has_recovery_reserve_percent ? m->recovery_reserve_percent : next->reserve_percent;
    next->release_ms = m->has_release_ms ? m->release_ms : next->release_ms;
    if (next->reserve_percent > 100) {
        return err_set_at(&a->err, ERR_INVALID_SETTINGS, "/budgets/recovery_reserve_percent",
                          "it is out of range");
    }
    if (next->release_ms > DIR_BUDGET_RELEASE_MS_MAX) {
        return err_set_at(&a->err, ERR_INVALID_SETTINGS, "/budgets/release_ms",
                          "it is out of range");
    }
    return ERR_OK;
}

/* --- bytes --- */

void budget_put(struct buf *b, const struct dir_reservation *r)
{
    wire_put_u64(b, r->source);
    wire_put_u64(b, r->destination);
    wire_put_u64(b, r->bytes_per_s);
    buf_put_u8(b, r->moves);
    buf_put_u8(b, r->step);
    buf_put_u8(b, r->transfer);
    buf_put_u8(b, r->releasing);
    for (unsigned i = 0; i < DIR_RESERVED_LABELS; i++) {
        wire_put_text(b, r->source_labels[i]);
        wire_put_text(b, r->destination_labels[i]);
    }
}

void budget_get(struct wire_reader *r, struct dir_reservation *ret)
{
    ret->source = wire_u64(r);
    ret->destination = wire_u64(r);
    ret->bytes_per_s = wire_u64(r);
    ret->moves = wire_enum(r, 0, 1, "what it reserves is wrong");
    ret->step = wire_enum(r, 0, DIR_RELEASE_STEPS - 1, "its reservation's step is unknown");
    ret->transfer = wire_bool(r);
    ret->releasing = wire_bool(r);
    for (unsigned i = 0; i < DIR_RESERVED_LABELS; i++) {
        wire_text(r, ret->source_labels[i], sizeof ret->source_labels[i], "a label is wrong");
        wire_text(r, ret->destination_labels[i], sizeof ret->destination_labels[i],
                  "a label is wrong");
    }
}

/* --- what must hold --- */

static const char *check_sums(const struct dir_operation *o)
{
    const struct dir_reservation *r = &o->reserved;
    bool steps = r->step == 0 || (r->releasing && r->step < DIR_RELEASE_STEPS);
    bool bytes =
        r->moves > 0 ? r->transfer || r->bytes_per_s >= o->rate_bytes_per_s : r->bytes_per_s == 0;
    return steps && bytes ? NULL : "its reservation does not add up";
}

/* A reservation goes with work that runs, and ends with it; one that steps down with what was done.
 */
const char *check_reservation(const struct dir_operation *o)
{
    const struct dir_reservation *r = &o->reserved;
    bool runs = o->state == DIR_OPERATION_RUNNING && o->stage < DIR_STAGE_CLEANUP;
    bool over = o->stage == DIR_STAGE_CLEANUP || o->stage == DIR_STAGE_DONE;
    bool transfer = o->kind == DIR_OPERATION_TRANSFER;
    if (runs && (transfer || dir_operation_copies(o)) && (r->moves == 0 || r->releasing)) {
        return "it runs without a reservation";
    }
    if (r->moves > 0 && (r->releasing ? !over : !runs)) {
        return "it holds a reservation that it has no use for";
    }
    if (r->moves > 0 && r->transfer != transfer) {
        return "its reservation is another kind's";
    }
    return check_sums(o);
}

static bool same_usage(const struct dir_usage *a, const struct dir_usage *b)
{
    return b != NULL && a->budget == b->budget && a->node == b->node &&
           strcmp(a->label, b->label) == 0 && memcmp(a->used, b->used, sizeof a->used) == 0;
}

static bool same_tree(const struct ptree *is, const struct ptree *should, bool usages)
{
    struct ptree_iter it;
    struct slice key;
    const void *row;
    if (is->count != should->count) {
        return false;
    }
    ptree_seek(should, slice_of(NULL, 0), &it);
    for (; (row = ptree_iter_get(&it, &key)) != NULL; ptree_iter_next(&it)) {
        const void *there = ptree_get(is, key);
        if (usages ? !same_usage(row, there) : row != there) {
            return false;
        }
    }
    return true;
}

const char *check_budgets(const struct dir_view *v)
{
    struct ptree usage = {NULL, 0}, queued = {NULL, 0};
    struct ptree_iter it;
    struct dir_operation *o;
    const char *wrong = NULL;
    ptree_seek(&v->operations, slice_of(NULL, 0), &it);
    for (; (o = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        budget_index(&usage, &queued, NULL, o);
    }
    if (!same_tree(&v->usage, &usage, true)) {
        wrong = "the budgets in use are not the sum of the reservations";
    } else if (!same_tree(&v->queued, &queued, false)) {
        wrong = "the index of queued operations does not fit";
    }
    ptree_unref(&usage);
    ptree_unref(&queued);
    return wrong;
}
