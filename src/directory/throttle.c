/* SPDX-License-Identifier: Apache-2.0 */
/* Running copies that are held back while a guardrail is tripped: the command, the row's part, and
 * what must hold of it. */
#include "directory/budget_internal.h"

#include "base/wire.h"

#include <inttypes.h>
#include <stdio.h>

/* --- reading --- */

uint64_t dir_operation_rate(const struct dir_operation *o)
{
    uint64_t all = o->rate_bytes_per_s, ppm = o->throttle.share_ppm;
    if (ppm == 0 || all == 0) {
        return all;
    }
    uint64_t rate =
        all / DIR_SHARE_FULL_PPM * ppm + all % DIR_SHARE_FULL_PPM * ppm / DIR_SHARE_FULL_PPM;
    return rate > 0 ? rate : 1;
}

static bool copies_now(const struct dir_operation *o)
{
    return dir_operation_copies(o) && o->state == DIR_OPERATION_RUNNING &&
           o->stage >= DIR_STAGE_PREPARE && o->stage <= DIR_STAGE_CATCH_UP;
}

bool dir_operation_may_slow(const struct dir_operation *o)
{
    return copies_now(o) && o->class_of < DIR_CLASS_DRAIN;
}

/* --- the command --- */

void throttle_on_stage(struct dir_operation *o)
{
    if (!copies_now(o)) {
        memset(&o->throttle, 0, sizeof o->throttle);
    }
}

static enum err_code check_rate(struct apply *a, const struct dir_operation *o)
{
    const Cadastre__OperationRate *m = a->cmd->operation_rate;
    if (!copies_now(o) || o->attempt != m->attempt) {
        return err_set(&a->err, ERR_STALE_REPORT, "operation %" PRIu64 " copies nothing now",
                       o->id);
    }
    if (m->share_ppm == 0 || m->share_ppm > DIR_SHARE_FULL_PPM) {
        return err_set(&a->err, ERR_INVALID_REQUEST, "a rate is a part of what was reserved");
    }
    if (m->share_ppm == DIR_SHARE_FULL_PPM) {
        return ERR_OK;
    }
    if (o->class_of >= DIR_CLASS_DRAIN) {
        return err_set(&a->err, ERR_INVALID_REQUEST, "%s is never held back",
                       dir_class_name(o->class_of));
    }
    if (!valid_text(m->code, DIR_NAME_MAX) || (m->node != o->source && m->node != o->destination)) {
        return err_set(&a->err, ERR_INVALID_REQUEST, "what holds it back is not of its nodes");
    }
    return ERR_OK;
}

static struct dir_throttle next_throttle(const struct apply *a, const struct dir_operation *o)
{
    const Cadastre__OperationRate *m = a->cmd->operation_rate;
    struct dir_throttle t;
    memset(&t, 0, sizeof t);
    if (m->share_ppm < DIR_SHARE_FULL_PPM) {
        t.share_ppm = m->share_ppm;
        t.since_ms = o->throttle.share_ppm != 0 ? o->throttle.since_ms : a->s->time_ms;
        t.node = m->node;
        t.value = m->value;
        t.limit = m->limit;
        (void)snprintf(t.code, sizeof t.code, "%s", m->code);
    }
    return t;
}

/* What is only said anew, at the same rate, is not worth a change. */
enum err_code apply_operation_rate(struct apply *a)
{
    const Cadastre__OperationRate *m = a->cmd->operation_rate;
    const struct dir_operation *o = view_operation(a->s, m->operation);
    apply_subject(a, "operation=%" PRIu64, m->operation);
    if (o == NULL) {
        return err_set(&a->err, ERR_OPERATION_NOT_FOUND, "there is no such operation");
    }
    enum err_code code = check_rate(a, o);
    if (code != ERR_OK) {
        return code;
    }
    struct dir_throttle throttle = next_throttle(a, o);
    if (throttle.share_ppm == o->throttle.share_ppm) {
        return ERR_OK;
    }
    struct dir_operation *next = row_copy(o, operation_size(o));
    next->throttle = throttle;
    next->revision = a->rev;
    if (o->stage >= DIR_STAGE_COPY) { /* before it, the stage's own task says the rate */
        next->rate_revision = a->rev;
        counts_add(&a->counts, o->source, 0);
        counts_add(&a->counts, o->destination, 0);
    }
    a->operation = dir_ref(next);
    a->changed = true;
    apply_put(a, next);
    return ERR_OK;
}

/* --- bytes --- */

void throttle_put(struct buf *b, const struct dir_throttle *t)
{
    wire_put_u64(b, t->share_ppm);
    if (t->share_ppm != 0) {
        wire_put_u64(b, t->since_ms);
        wire_put_u64(b, t->node);
        wire_put_u64(b, t->value);
        wire_put_u64(b, t->limit);
        wire_put_text(b, t->code);
    }
}

void throttle_get(struct wire_reader *r, struct dir_throttle *ret)
{
    ret->share_ppm = wire_u64(r);
    if (ret->share_ppm != 0) {
        ret->since_ms = wire_u64(r);
        ret->node = wire_u64(r);
        ret->value = wire_u64(r);
        ret->limit = wire_u64(r);
        wire_text(r, ret->code, sizeof ret->code, "what holds it back is wrong");
    }
}

/* --- what must hold --- */

const char *check_throttle(const struct dir_view *v, const struct dir_operation *o)
{
    const struct dir_throttle *t = &o->throttle;
    if (o->rate_revision > v->revision) {
        return "its rate is of a revision that never was";
    }
    if (t->share_ppm == 0) {
        return NULL;
    }
    if (!dir_operation_may_slow(o)) {
        return "it is held back, and must not be";
    }
    return t->share_ppm >= DIR_SHARE_FULL_PPM || t->code[0] == '\0' || t->since_ms > v->time_ms ||
                   (t->node != o->source && t->node != o->destination)
               ? "what holds it back does not fit"
               : NULL;
}
