/* SPDX-License-Identifier: Apache-2.0 */
/* Operations: what was done to partitions beyond one command. Until moves are staged, each was done
 * when it began. */
#include "api/endpoints.h"

#include "base/parse.h"

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

void operation_put_open(struct buf *b, const struct dir_operation *op)
{
    buf_printf(b,
               "{\"id\":%" PRIu64 ",\"kind\":\"%s\",\"keyspace\":\"%s\",\"partition\":%" PRIu64
               ",\"attempt\":%" PRIu32 ",\"stage\":\"%s\",\"joined\":true,\"state\":\"%s\","
               "\"initiator\":",
               op->id, dir_operation_kind_name(op->kind), op->keyspace_name, op->partition,
               op->attempt, dir_stage_name(op->stage), dir_operation_state_name(op->state));
    json_put_cstring(b, op->initiator);
    buf_put_str(b, ",\"reason\":");
    json_put_cstring(b, op->reason);
    put_node(b, "source", op->source_name);
    put_node(b, "destination", op->destination_name);
    buf_printf(b,
               ",\"epoch_before\":%" PRIu64 ",\"epoch_after\":%" PRIu64
               ",\"progress\":{\"bytes_done\":0,\"bytes_total\":0,\"chunk\":0,\"lag_bytes\":0,"
               "\"rate_bytes_per_s\":0,\"eta_ms\":0},\"stages\":[{\"stage\":\"DONE\",\"at\":",
               op->epoch_before, op->epoch_after);
    json_put_time(b, op->at_ms);
    buf_put_str(b, ",\"by\":");
    json_put_cstring(b, op->initiator);
    buf_printf(b, ",\"revision\":%" PRIu64 "}],\"rollback\":\"forward_only\"", op->revision);
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
    operation_put_open(out, op);
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
