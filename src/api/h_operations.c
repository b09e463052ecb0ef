/* SPDX-License-Identifier: Apache-2.0 */
/* Operations: what is done to partitions beyond one command. */
#include "api/endpoints.h"
#include "api/route_json.h"
#include "base/clock.h"
#include "directory/operation_authority.h"

#include "base/parse.h"
#include "directory/budget.h"

#include <inttypes.h>
#include <string.h>

static void put_node(struct buf *b, const char *member, const char *name)
{
    buf_printf(b, ",\"%s\":", member);
    if (name[0] != '\0') {
        json_put_cstring(b, name);
    } else {
        buf_put_str(b, "null");
    }
}

/* Bytes a second since the present stage began: 0 when it has not copied anything. */
static uint64_t copy_rate(const struct dir_operation *op, uint64_t now_ms)
{
    uint64_t took = now_ms > op->stage_since_ms ? now_ms - op->stage_since_ms : 0;
    bool copies = op->state == DIR_OPERATION_RUNNING && op->stage == DIR_STAGE_COPY;
    uint64_t done = op->bytes_done > op->stage_bytes ? op->bytes_done - op->stage_bytes : 0;
    return copies && took > 0 ? done * 1000 / took : 0;
}

/* By what was measured; before anything was, by what was reserved. 0: nothing is being copied. */
static uint64_t copy_eta_ms(const struct dir_operation *op, uint64_t rate)
{
    bool copies = op->state == DIR_OPERATION_RUNNING && op->stage == DIR_STAGE_COPY;
    uint64_t left = op->bytes_total > op->bytes_done ? op->bytes_total - op->bytes_done : 0;
    rate = rate > 0 ? rate : op->rate_bytes_per_s;
    return copies && rate > 0 ? left * 1000 / rate : 0;
}

static void put_progress(struct buf *b, const struct dir_operation *op, uint64_t now_ms)
{
    uint64_t rate = copy_rate(op, now_ms);
    buf_printf(
        b,
        ",\"progress\":{\"bytes_done\":%" PRIu64 ",\"bytes_total\":%" PRIu64 ",\"chunk\":%" PRIu64
        ",\"lag_bytes\":%" PRIu64 ",\"rate_bytes_per_s\":%" PRIu64 ",\"eta_ms\":%" PRIu64 "}",
        op->bytes_done, op->bytes_total, op->chunk, op->lag_bytes, rate, copy_eta_ms(op, rate));
}

/* What the agents counted. */
static void put_reported(struct buf *b, const struct dir_operation *op)
{
    buf_printf(b,
               ",\"reported\":{\"checksum_failures\":%" PRIu64 ",\"open_operations\":%" PRIu64
               ",\"stale_reads\":%" PRIu64 ",\"old_epoch_writes\":%" PRIu64
               ",\"deleted_bytes\":%" PRIu64 "}",
               op->checksum_failures, op->open_operations, op->stale_reads, op->old_epoch_writes,
               op->deleted_bytes);
}

static void put_stages(struct buf *b, const struct dir_operation *op)
{
    buf_put_str(b, ",\"stages\":[");
    for (uint32_t i = 0; i < op->stage_count; i++) {
        const struct dir_stage_entry *s = &op->stages[i];
        buf_printf(b, "%s{\"stage\":\"%s\",\"at\":", i > 0 ? "," : "", dir_stage_name(s->stage));
        json_put_time(b, s->at_ms);
        buf_put_str(b, ",\"by\":");
        json_put_cstring(b, s->by);
        buf_printf(b, ",\"revision\":%" PRIu64 "}", s->revision);
    }
    buf_put_u8(b, ']');
}

static void put_attention(struct buf *b, const struct dir_operation *op)
{
    if (op->attention_code[0] == '\0') {
        return;
    }
    buf_printf(b, ",\"attention\":{\"code\":\"%s\",\"detail\":", op->attention_code);
    json_put_cstring(b, op->attention);
    buf_put_str(b, ",\"since\":");
    json_put_time(b, op->attention_since_ms);
    buf_put_u8(b, '}');
}

/* Of a move of a part: the part, and the partition that it is since the cutover. */
static void put_part(struct buf *b, const struct dir_operation *op)
{
    const struct dir_part *part = &op->part;
    if (!part->is_set) {
        return;
    }
    buf_put_str(b, ",\"range\":{");
    if (part->start_len > 0) {
        buf_put_str(b, "\"start\":");
        bound_put(b, part->hex, dir_part_start(part));
    }
    if (!part->end_open) {
        buf_put_str(b, part->start_len > 0 ? ",\"end\":" : "\"end\":");
        bound_put(b, part->hex, dir_part_end(part));
    }
    buf_put_u8(b, '}');
    if (op->retired != 0) {
        buf_printf(b, ",\"partition_after\":%" PRIu64, op->partition);
    }
}

static void put_other(struct buf *b, const char *member, uint64_t id)
{
    if (id != 0) {
        buf_printf(b, ",\"%s\":%" PRIu64, member, id);
    }
}

void operation_put_open(struct buf *b, const struct dir_operation *op)
{
    buf_printf(b,
               "{\"id\":%" PRIu64 ",\"kind\":\"%s\",\"keyspace\":\"%s\",\"partition\":%" PRIu64
               ",\"attempt\":%" PRIu32 ",\"stage\":\"%s\",\"joined\":%s,\"state\":\"%s\"",
               op->id, dir_operation_kind_name(op->kind), op->keyspace_name,
               op->retired != 0 ? op->retired : op->partition, op->attempt,
               dir_stage_name(op->stage), op->joined ? "true" : "false",
               dir_operation_state_name(op->state));
    if (op->validate_at != 0) {
        buf_printf(b, ",\"validate_at\":%" PRIu64, op->validate_at);
    }
    buf_put_str(b, ",\"initiator\":");
    json_put_cstring(b, op->initiator);
    buf_put_str(b, ",\"reason\":");
    json_put_cstring(b, op->reason);
    put_node(b, "source", op->source_name);
    put_node(b, "destination", op->destination_name);
    buf_printf(b, ",\"epoch_before\":%" PRIu64, op->epoch_before);
    if (op->epoch_after != 0) {
        buf_printf(b, ",\"epoch_after\":%" PRIu64, op->epoch_after);
    }
    put_part(b, op);
    put_other(b, "reverses", op->reverses);
    put_other(b, "reversed_by", op->reversed_by);
    put_progress(b, op, clock_wall_ms());
    put_reported(b, op);
    put_stages(b, op);
    put_attention(b, op);
    buf_printf(b, ",\"rollback\":\"%s\"", operation_past_cutover(op) ? "forward_only" : "safe");
}

static void get_one(struct exchange *x, const struct dir_view *v)
{
    struct buf *out = exchange_out(x);
    uint64_t id;
    const struct dir_operation *op = path_id(x, 0, &id) ? view_operation(v, id) : NULL;
    if (op == NULL) {
        reply_missing(x, v, ERR_OPERATION_NOT_FOUND, "there is no operation of this id");
        return;
    }
    struct operation_queue queue;
    operation_queue_look(v, &queue);
    operation_put_open(out, op);
    operation_put_plan(out, v, op, &queue);
    buf_printf(out, ",\"revision\":%" PRIu64 "}", v->revision);
    reply_read(x, v->revision);
}

void h_operation_get(struct exchange *x)
{
    read_begin(x, get_one);
}

struct filters {
    char state[16], keyspace[DIR_NAME_MAX + 1], node[DIR_NAME_MAX + 1], kind[16];
};

static bool
one_of(struct exchange *x, const char *name, const char *value, const char *const *allowed)
{
    if (value[0] == '\0') {
        return true;
    }
    for (; *allowed != NULL; allowed++) {
        if (strcmp(value, *allowed) == 0) {
            return true;
        }
    }
    reply_problem(x, ERR_INVALID_REQUEST, "query parameter %s is not a known one", name);
    return false;
}

static bool read_filters(struct exchange *x, struct filters *f)
{
    static const char *const states[] = {"queued", "running", "done", "aborted", "failed", NULL};
    static const char *const kinds[] = {"move",     "add_replica", "remove_replica",
                                        "transfer", "failover",    NULL};
    return param_text(x, "state", f->state, sizeof f->state) &&
           param_text(x, "keyspace", f->keyspace, sizeof f->keyspace) &&
           param_text(x, "node", f->node, sizeof f->node) &&
           param_text(x, "kind", f->kind, sizeof f->kind) && one_of(x, "state", f->state, states) &&
           one_of(x, "kind", f->kind, kinds);
}

static bool is(const char *wanted, const char *value)
{
    return wanted[0] == '\0' || strcmp(wanted, value) == 0;
}

static bool passes(const struct filters *f, const struct dir_operation *op)
{
    return is(f->state, dir_operation_state_name(op->state)) &&
           is(f->kind, dir_operation_kind_name(op->kind)) && is(f->keyspace, op->keyspace_name) &&
           (is(f->node, op->source_name) || is(f->node, op->destination_name));
}

static void put_page(struct exchange *x, struct listing *l, const struct filters *f)
{
    struct buf *out = exchange_out(x);
    const struct dir_operation *op;
    struct slice key = slice_of(NULL, 0);
    struct ptree_iter it;
    struct operation_queue queue;
    operation_queue_look(l->view, &queue);
    buf_printf(out, "{\"revision\":%" PRIu64 ",\"operations\":[", l->revision);
    ptree_seek(&l->view->operations, slice_of(l->position, l->position_len), &it);
    for (; (op = ptree_iter_get(&it, &key)) != NULL; ptree_iter_next(&it)) {
        if (!passes(f, op)) {
            continue;
        }
        if (l->count == l->limit) {
            break;
        }
        if (l->count++ > 0) {
            buf_put_u8(out, ',');
        }
        operation_put_open(out, op);
        operation_put_plan(out, l->view, op, &queue);
        buf_put_u8(out, '}');
    }
    buf_put_u8(out, ']');
    if (op != NULL) {
        listing_next(x, l, key);
    }
    buf_put_u8(out, '}');
}

static void get_list(struct exchange *x, const struct dir_view *v)
{
    static const char *const names[] = {"state", "keyspace", "node", "kind", NULL};
    struct filters f;
    struct listing l;
    (void)v;
    if (read_filters(x, &f) && listing_begin(x, LIST_OPERATIONS, names, true, &l)) {
        put_page(x, &l, &f);
        reply_read(x, l.revision);
        listing_end(&l);
    }
}

void h_operations_list(struct exchange *x)
{
    read_begin(x, get_list);
}

/* --- verbs --- */

static void
render_operation_now(struct exchange *x, const struct mutation *m, const struct dir_result *r)
{
    struct buf *out = exchange_out(x);
    if (r->operation == NULL) {
        render_revision(x, m, r);
        return;
    }
    operation_put_open(out, r->operation);
    operation_put_plan_now(x, r->operation);
    buf_printf(out, ",\"revision\":%" PRIu64 "}", r->revision);
    exchange_reply(x, 200, NULL);
}

static void verb(struct exchange *x, const char *name, Cadastre__OperationVerbKind kind)
{
    struct mutation *m = mutation_begin(x, name, render_operation_now);
    Cadastre__OperationVerb *v;
    bool present = false;
    struct slice reason;
    if (m == NULL) {
        return;
    }
    v = exchange_alloc(x, sizeof *v);
    cadastre__operation_verb__init(v);
    v->verb = kind;
    reason = json_in_string(&m->in, "reason", false, 0, DIR_TEXT_MAX);
    v->reason = text_lent(reason.data != NULL ? (const char *)reason.data : "");
    if (strlen(v->reason) != reason.len) {
        json_in_fail(&m->in, "reason", ERR_INVALID_REQUEST, "must not hold NUL");
    }
    if (kind == CADASTRE__OPERATION_VERB_KIND__FINISH_VALIDATION) {
        v->back = json_in_bool(&m->in, "back", false, &present);
    }
    if (!mutation_close(x, m)) {
        return;
    }
    if (!path_id(x, 0, &v->operation)) {
        reply_problem(x, ERR_OPERATION_NOT_FOUND, "there is no operation of this id");
        return;
    }
    m->command.body_case = CADASTRE__COMMAND__BODY_OPERATION_VERB;
    m->command.operation_verb = v;
    mutation_submit(x, m);
}

void h_operation_abort(struct exchange *x)
{
    verb(x, "operation_abort", CADASTRE__OPERATION_VERB_KIND__ABORT);
}

void h_operation_retry(struct exchange *x)
{
    verb(x, "operation_retry", CADASTRE__OPERATION_VERB_KIND__RETRY);
}

void h_operation_finish_validation(struct exchange *x)
{
    verb(x, "operation_finish", CADASTRE__OPERATION_VERB_KIND__FINISH_VALIDATION);
}

void h_operation_promote(struct exchange *x)
{
    verb(x, "operation_promote", CADASTRE__OPERATION_VERB_KIND__PROMOTE_CANDIDATE);
}
