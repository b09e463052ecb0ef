/* SPDX-License-Identifier: Apache-2.0 */
/* What an open operation waits for, has reserved, and is going to cost. Nothing of it is stored:
 * each is a function of the view. */
#include "api/endpoints.h"

#include "base/clock.h"
#include "base/plan.h"
#include "directory/budget.h"
#include "directory/policy.h"

#include <inttypes.h>

enum { RESERVE_PPM = 100000 }; /* for what is not known, as `cadastre plan move` has it */

void operation_queue_look(const struct dir_view *v, struct operation_queue *ret)
{
    struct windows w = {.count = 0};
    windows_read(&w, view_balancer(v), clock_mono_ms());
    windows_look(&w, clock_wall_ms(), &ret->hold);
    windows_close(&w);
    ret->first = dir_budget_first(v);
}

/* The view's own row says whether it waits still: `op` may be of before. */
static void put_waiting(struct buf *b,
                        const struct dir_view *v,
                        const struct dir_operation *op,
                        const struct operation_queue *queue)
{
    const struct dir_operation *now = view_operation(v, op->id);
    struct dir_waiting w;
    if (now == NULL || now->state != DIR_OPERATION_QUEUED) {
        return;
    }
    if (windows_holds(&queue->hold, v, now)) {
        buf_printf(b, ",\"waiting\":{\"code\":\"%s\",\"detail\":", queue->hold.code);
        json_put_cstring(b, queue->hold.detail);
        buf_put_u8(b, '}');
        return;
    }
    if (!dir_budget_lacks(v, now, &w) && !dir_budget_yields(now, queue->first, &w)) {
        return;
    }
    buf_printf(b, ",\"waiting\":{\"code\":\"%s\",\"detail\":", err_slug(w.code));
    json_put_cstring(b, w.detail);
    if (w.operation != 0) {
        buf_printf(b, ",\"operation\":%" PRIu64, w.operation);
    }
    if (w.budget != 0) {
        buf_printf(b, ",\"budget\":\"%s\",\"value\":", dir_budget_name(w.budget));
        json_put_cstring(b, w.value);
        buf_printf(b,
                   ",\"of\":\"%s\",\"in_use\":%" PRIu64 ",\"needed\":%" PRIu64 ",\"limit\":%" PRIu64
                   ",\"reserve\":%" PRIu64,
                   w.of_bytes ? "bytes_per_s" : "moves", w.used, w.wanted, w.limit, w.reserve);
    }
    buf_put_u8(b, '}');
}

static void put_reserved(struct buf *b, const struct dir_operation *op)
{
    const struct dir_reservation *r = &op->reserved;
    if (r->moves > 0) {
        buf_printf(b,
                   ",\"reserved\":{\"moves\":%u,\"bytes_per_s\":%" PRIu64
                   ",\"steps_given_back\":%u,\"steps\":%d}",
                   r->moves, dir_reserved_bytes(r), r->step, DIR_RELEASE_STEPS);
    }
}

/* What is known of a copy. */
struct figures {
    bool has_size, has_live;
    struct plan_move_input in;
    struct plan_move plan;
    bool fits; /* else `plan` is nothing */
    struct err err;
};

static void reckon(const struct dir_view *v, const struct dir_operation *op, struct figures *f)
{
    struct dir_budget_rate rate = dir_budget_rate(v, op);
    bool counted = op->bytes_total > 0 || op->stage > DIR_STAGE_SNAPSHOT;
    f->has_size = counted || op->has_size;
    f->has_live = op->has_live;
    f->in = (struct plan_move_input){
        .size = counted ? op->bytes_total : op->size_bytes,
        .copy_rate = rate.copy,
        .live_rate = op->live_bytes_per_s,
        .budget = rate.limit,
        .dual_write_ms =
            dir_policy_get(v, view_keyspace_by_id(v, op->keyspace), DIR_POLICY_DUAL_WRITE_MAX_MS),
        .checksum_passes = 1,
        .reserve_ppm = RESERVE_PPM};
    f->fits = rate.copy > 0 && plan_move(&f->in, &f->plan, &f->err) == ERR_OK;
}

static void put_figure(struct buf *b, const char *member, bool known, uint64_t value)
{
    if (known) {
        buf_printf(b, ",\"%s\":%" PRIu64, member, value);
    } else {
        buf_printf(b, ",\"%s\":null", member);
    }
}

static void put_margin(struct buf *b, bool known, int64_t margin)
{
    if (known) {
        buf_printf(b, ",\"margin_bytes_per_s\":%" PRId64, margin);
    } else {
        buf_put_str(b, ",\"margin_bytes_per_s\":null");
    }
}

static void put_components(struct buf *b, const struct figures *f)
{
    buf_put_str(b, ",\"components\":[");
    for (unsigned i = 0; f->fits && i < PLAN_COMPONENTS; i++) {
        const struct plan_component *c = &f->plan.components[i];
        bool known = (f->has_size || !c->of_size) && (f->has_live || !c->of_live);
        buf_printf(b, "%s{\"name\":\"%s\"", i > 0 ? "," : "", c->name);
        put_figure(b, "bytes", known, c->bytes);
        buf_put_u8(b, '}');
    }
    buf_put_u8(b, ']');
}

static void put_advice(struct buf *b, const struct figures *f)
{
    char lines[PLAN_ADVICE + 2][PLAN_ADVICE_MAX];
    unsigned n = f->fits && f->has_live ? plan_move_advice(&f->plan, RESERVE_PPM, lines) : 0;
    const char *unknown[3] = {
        f->has_size ? NULL : "its size is not known before SNAPSHOT: give size_bytes",
        f->has_live ? NULL : "how fast it changes is not known: give live_bytes_per_s",
        f->fits ? NULL : "the budgets leave nothing for the copy",
    };
    const char *between = "";
    buf_put_str(b, ",\"advice\":[");
    for (unsigned i = 0; i < n; i++, between = ",") {
        buf_put_str(b, between);
        json_put_cstring(b, lines[i]);
    }
    for (unsigned i = 0; i < 3; i++) {
        if (unknown[i] != NULL) {
            buf_put_str(b, between);
            json_put_cstring(b, unknown[i]);
            between = ",";
        }
    }
    buf_put_u8(b, ']');
}

static void put_plan(struct buf *b, const struct dir_view *v, const struct dir_operation *op)
{
    struct figures f = {.fits = false};
    reckon(v, op, &f);
    bool size = f.fits && f.has_size, live = f.fits && f.has_live;
    bool advised = size && live && f.plan.advised_rate > 0;
    buf_printf(b, ",\"plan\":{\"copy_bytes_per_s\":%" PRIu64 ",\"budget_bytes_per_s\":%" PRIu64,
               f.in.copy_rate, f.in.budget);
    put_figure(b, "bytes", f.has_size, f.in.size);
    put_figure(b, "live_bytes_per_s", f.has_live, f.in.live_rate);
    put_figure(b, "duration_ms", size, f.plan.copy_s * 1000);
    put_figure(b, "peak_bytes_per_s", live, f.plan.peak);
    put_margin(b, live, f.plan.margin);
    put_figure(b, "dual_write_bytes", live, f.plan.dual_write_bytes);
    put_figure(b, "advised_copy_bytes_per_s", live, f.plan.advised_rate);
    put_figure(b, "advised_duration_ms", advised, f.plan.advised_s * 1000);
    put_components(b, &f);
    put_advice(b, &f);
    buf_put_u8(b, '}');
}

void operation_put_plan(struct buf *b,
                        const struct dir_view *v,
                        const struct dir_operation *op,
                        const struct operation_queue *queue)
{
    buf_printf(b, ",\"class\":\"%s\"", dir_class_name(op->class_of));
    put_waiting(b, v, op, queue);
    put_reserved(b, op);
    if (dir_operation_copies(op) &&
        (op->state == DIR_OPERATION_QUEUED || op->state == DIR_OPERATION_RUNNING)) {
        put_plan(b, v, op);
    }
}

void operation_put_plan_now(struct exchange *x, const struct dir_operation *op)
{
    const struct dir_view *v = view_enter(api_slot(x));
    struct operation_queue queue;
    operation_queue_look(v, &queue);
    operation_put_plan(exchange_out(x), v, op, &queue);
    view_leave();
}
