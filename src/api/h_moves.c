/* SPDX-License-Identifier: Apache-2.0 */
/* Moving a partition's authority and copies. What holds data needs staged moves; until they are
 * there, a partition that holds none can be given to another node at once, and everything else is
 * told so after its names and epoch have been checked. */
#include "api/endpoints.h"

#include "base/parse.h"

#include <inttypes.h>
#include <string.h>

void render_operation(struct exchange *x, const struct mutation *m, const struct dir_result *r)
{
    struct buf *out = exchange_out(x);
    if (r->operation == NULL) {
        render_revision(x, m, r);
        return;
    }
    operation_put_open(out, r->operation);
    buf_printf(out, ",\"revision\":%" PRIu64 "}", r->revision);
    exchange_printf_header(x, "Location", "/v1/operations/%" PRIu64, r->operation->id);
    exchange_reply(x, 202, NULL);
}

/* The nodes are there, the epoch is the expected one: it is the data that is in the way. */
struct refusal {
    struct slice nodes[2]; /* names that must be registered; no data for none */
    bool has_epoch;
    uint64_t epoch;
};

static void refuse(struct exchange *x, const struct dir_view *v, const struct refusal *r)
{
    struct check c;
    struct err e;
    if (!check_find(x, v, &c)) {
        return;
    }
    if (c.partition == NULL || r->has_epoch) {
        if (!check_epoch(x, &c, r->epoch)) {
            return;
        }
    }
    for (unsigned i = 0; i < 2; i++) {
        if (r->nodes[i].data != NULL && view_node(v, r->nodes[i]) == NULL) {
            reply_missing(x, v, ERR_NODE_NOT_FOUND, "there is no node of this name");
            return;
        }
    }
    (void)err_set(&e, ERR_NEEDS_STAGED_MOVE,
                  "this needs a staged move, which this version does not have; a partition that "
                  "holds no data can be moved with 'empty'");
    exchange_problem(x, &e, check_put_members, &c);
}

static void refuse_now(struct exchange *x, const struct refusal *r)
{
    refuse(x, view_enter(api_slot(x)), r);
    view_leave();
}

/* A name as a string (json strings end in NUL), or NULL. */
static const char *name_of(struct slice name)
{
    return (const char *)name.data;
}

void h_partition_move(struct exchange *x)
{
    struct mutation *m = mutation_begin(x, "move", render_operation);
    Cadastre__Reassign *move;
    struct slice from, to, reason;
    bool empty, present = false;
    if (m == NULL) {
        return;
    }
    move = exchange_alloc(x, sizeof *move);
    cadastre__reassign__init(move);
    from = json_in_name(&m->in, "from", false);
    to = json_in_name(&m->in, "to", true);
    empty = json_in_bool(&m->in, "empty", false, &present);
    reason = json_in_string(&m->in, "reason", false, 0, DIR_TEXT_MAX);
    (void)json_in_u64(&m->in, "max_bytes_per_s", false, 1, PARSE_INT_MAX, &present);
    mutation_expect_epoch(m, &move->has_expect_epoch, &move->expect_epoch);
    if (reason.data != NULL && strlen((const char *)reason.data) != reason.len) {
        json_in_fail(&m->in, "reason", ERR_INVALID_REQUEST, "must not hold NUL");
    }
    if (!mutation_close(x, m)) {
        return;
    }
    if (!empty) {
        refuse_now(x, &(struct refusal){.nodes = {from, to},
                                        .has_epoch = move->has_expect_epoch,
                                        .epoch = move->expect_epoch});
        return;
    }
    if (!mutation_partition(x, &move->partition)) {
        return;
    }
    move->from = text_lent(from.data != NULL ? name_of(from) : "");
    move->to = text_lent(name_of(to));
    move->reason = text_lent(reason.data != NULL ? (const char *)reason.data : "");
    m->command.body_case = CADASTRE__COMMAND__BODY_REASSIGN;
    m->command.reassign = move;
    mutation_submit(x, m);
}

/* Whatever is asked of another copy: its body is checked, then refused. `member` names the node;
 * NULL: the path does. */
static void
refuse_copy(struct exchange *x, const char *verb, const char *member, const char *const *roles)
{
    struct mutation *m = mutation_begin(x, verb, render_operation);
    struct refusal r = {.has_epoch = false};
    protobuf_c_boolean has_epoch = false;
    bool present = false;
    if (m == NULL) {
        return;
    }
    r.nodes[0] = member != NULL ? json_in_name(&m->in, member, true) : exchange_path(x, 2);
    if (roles != NULL) {
        (void)json_in_enum(&m->in, "role", false, roles, 0);
    }
    (void)json_in_u64(&m->in, "max_bytes_per_s", false, 1, PARSE_INT_MAX, &present);
    mutation_expect_epoch(m, &has_epoch, &r.epoch);
    r.has_epoch = has_epoch;
    if (mutation_close(x, m)) {
        refuse_now(x, &r);
    }
}

void h_partition_transfer(struct exchange *x)
{
    refuse_copy(x, "transfer", "to", NULL);
}

void h_replica_add(struct exchange *x)
{
    static const char *const roles[] = {"sync", "async", NULL};
    refuse_copy(x, "replica_add", "node", roles);
}

void h_replica_remove(struct exchange *x)
{
    refuse_copy(x, "replica_remove", NULL, NULL);
}
