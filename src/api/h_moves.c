/* SPDX-License-Identifier: Apache-2.0 */
/* Moving a partition's authority and copies: operations are started; a partition that holds no data
 * can be given to another node at once. */
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
    operation_put_plan_now(x, r->operation);
    buf_printf(out, ",\"revision\":%" PRIu64 "}", r->revision);
    exchange_printf_header(x, "Location", "/v1/operations/%" PRIu64, r->operation->id);
    exchange_reply(x, 202, NULL);
}

/* A name as a string (json strings end in NUL), or NULL. */
static const char *name_of(struct slice name)
{
    return (const char *)name.data;
}

/* An operation to start. Names are NULL when there are none. */
struct wanted {
    enum dir_operation_kind kind;
    const char *from, *to, *reason;
    uint32_t role;
    uint64_t max_bytes_per_s, epoch;
    bool has_epoch;
    bool has_range, end_open;
    struct slice start, end; /* of the range; an empty start is the partition's own */
    bool has_size, has_live;
    uint64_t size_bytes, live_bytes_per_s;
};

/* What whoever asks knows of it: how large it is, and how fast it changes. */
static void read_figures(struct json_in *in, struct wanted *w)
{
    bool present = false;
    w->max_bytes_per_s = json_in_u64(in, "max_bytes_per_s", false, 1, PARSE_INT_MAX, &present);
    w->size_bytes = json_in_u64(in, "size_bytes", false, 0, PARSE_INT_MAX, &w->has_size);
    w->live_bytes_per_s =
        json_in_u64(in, "live_bytes_per_s", false, 0, PARSE_INT_MAX, &w->has_live);
}

/* Its body is closed. Answers. */
static void start(struct exchange *x, struct mutation *m, const struct wanted *w)
{
    Cadastre__OperationStart *s = exchange_alloc(x, sizeof *s);
    cadastre__operation_start__init(s);
    if (!mutation_partition(x, &s->partition)) {
        return;
    }
    s->kind = w->kind;
    s->from = text_lent(w->from != NULL ? w->from : "");
    s->to = text_lent(w->to != NULL ? w->to : "");
    s->reason = text_lent(w->reason != NULL ? w->reason : "");
    s->role = w->role;
    s->max_bytes_per_s = w->max_bytes_per_s;
    s->has_size_bytes = w->has_size;
    s->size_bytes = w->size_bytes;
    s->has_live_bytes_per_s = w->has_live;
    s->live_bytes_per_s = w->live_bytes_per_s;
    s->has_expect_epoch = w->has_epoch;
    s->expect_epoch = w->epoch;
    s->has_range = w->has_range;
    s->range_start = bytes_lent(w->start);
    s->range_end_open = w->end_open;
    s->range_end = bytes_lent(w->end);
    loads_fill_start(control_loads(exchange_api(x)->control), s);
    m->command.body_case = CADASTRE__COMMAND__BODY_OPERATION_START;
    m->command.operation_start = s;
    mutation_submit(x, m);
}

/* {"start"?,"end"?}: its bounds as the keyspace writes keys. False when answered. */
static bool
decode_range(struct exchange *x, struct mutation *m, const json_t *range, struct wanted *w)
{
    const json_t *start = json_object_get(range, "start"), *end = json_object_get(range, "end");
    const struct dir_keyspace *ks = read_keyspace(x, view_enter(api_slot(x)));
    enum err_code code = ERR_OK;
    w->has_range = range != NULL;
    w->end_open = end == NULL;
    w->start = w->end = slice_of("", 0);
    if (ks != NULL && start != NULL && json_string_length(start) > 0) {
        code = bound_read(x, ks, start, "/range/start", &w->start, &m->err);
    }
    if (ks != NULL && end != NULL && code == ERR_OK) {
        code = bound_read(x, ks, end, "/range/end", &w->end, &m->err);
    }
    if (code != ERR_OK) {
        exchange_problem(x, &m->err, NULL, NULL);
    }
    view_leave();
    return ks != NULL && code == ERR_OK;
}

/* Only strings, and nothing else in it; what they say is seen when the keyspace is known. */
static json_t *read_range(struct mutation *m)
{
    json_t *range = json_in_object(&m->in, "range", false);
    struct json_in in;
    if (range == NULL || m->in.code != ERR_OK) {
        return NULL;
    }
    json_in_open(&in, range, "/range", &m->err);
    (void)json_in_string(&in, "start", false, 0, 2 * DIR_ROUTING_KEY_MAX);
    (void)json_in_string(&in, "end", false, 0, 2 * DIR_ROUTING_KEY_MAX);
    m->in.code = json_in_close(&in);
    return range;
}

/* Its body is closed. Gives a partition that holds no data away at once. */
static void reassign(struct exchange *x, struct mutation *m, const struct wanted *w)
{
    Cadastre__Reassign *move = exchange_alloc(x, sizeof *move);
    cadastre__reassign__init(move);
    if (!mutation_partition(x, &move->partition)) {
        return;
    }
    move->from = text_lent(w->from != NULL ? w->from : "");
    move->to = text_lent(w->to);
    move->reason = text_lent(w->reason != NULL ? w->reason : "");
    move->has_expect_epoch = w->has_epoch;
    move->expect_epoch = w->epoch;
    m->command.body_case = CADASTRE__COMMAND__BODY_REASSIGN;
    m->command.reassign = move;
    mutation_submit(x, m);
}

void h_partition_move(struct exchange *x)
{
    struct mutation *m = mutation_begin(x, "move", render_operation);
    struct wanted w = {.kind = DIR_OPERATION_MOVE};
    protobuf_c_boolean has_epoch = false;
    struct slice reason;
    json_t *range;
    bool empty, present = false;
    if (m == NULL) {
        return;
    }
    w.from = name_of(json_in_name(&m->in, "from", false));
    w.to = name_of(json_in_name(&m->in, "to", true));
    empty = json_in_bool(&m->in, "empty", false, &present);
    reason = json_in_string(&m->in, "reason", false, 0, DIR_TEXT_MAX);
    w.reason = (const char *)reason.data;
    read_figures(&m->in, &w);
    mutation_expect_epoch(m, &has_epoch, &w.epoch);
    w.has_epoch = has_epoch;
    if (w.reason != NULL && strlen(w.reason) != reason.len) {
        json_in_fail(&m->in, "reason", ERR_INVALID_REQUEST, "must not hold NUL");
    }
    range = read_range(m);
    if (empty && range != NULL) {
        json_in_fail(&m->in, "range", ERR_INVALID_REQUEST, "an empty partition moves as a whole");
    }
    if (!mutation_close(x, m)) {
        return;
    }
    if (empty) {
        reassign(x, m, &w);
    } else if (range == NULL || decode_range(x, m, range, &w)) {
        start(x, m, &w);
    }
}

/* What is asked of another copy. */
static void start_of_copy(struct exchange *x, const char *verb, struct wanted *w)
{
    static const char *const roles[] = {"sync", "async", NULL};
    struct mutation *m = mutation_begin(x, verb, render_operation);
    protobuf_c_boolean has_epoch = false;
    struct slice reason, leaving = exchange_path(x, path_count(x) - 1);
    char *name;
    if (m == NULL) {
        return;
    }
    if (w->kind == DIR_OPERATION_TRANSFER) {
        w->to = name_of(json_in_name(&m->in, "to", true));
    } else if (w->kind == DIR_OPERATION_ADD_REPLICA) {
        w->to = name_of(json_in_name(&m->in, "node", true));
        w->role =
            json_in_enum(&m->in, "role", false, roles, 0) == 1 ? DIR_ROLE_ASYNC : DIR_ROLE_SYNC;
    } else {
        name = exchange_alloc(x, leaving.len + 1);
        memcpy(name, leaving.data, leaving.len);
        name[leaving.len] = '\0';
        w->from = name;
    }
    reason = json_in_string(&m->in, "reason", false, 0, DIR_TEXT_MAX);
    w->reason = (const char *)reason.data;
    if (w->kind == DIR_OPERATION_ADD_REPLICA) {
        read_figures(&m->in, w);
    } else {
        w->max_bytes_per_s = json_in_u64(&m->in, "max_bytes_per_s", false, 1, PARSE_INT_MAX, NULL);
    }
    mutation_expect_epoch(m, &has_epoch, &w->epoch);
    w->has_epoch = has_epoch;
    if (w->reason != NULL && strlen(w->reason) != reason.len) {
        json_in_fail(&m->in, "reason", ERR_INVALID_REQUEST, "must not hold NUL");
    }
    if (mutation_close(x, m)) {
        start(x, m, w);
    }
}

void h_partition_transfer(struct exchange *x)
{
    start_of_copy(x, "transfer", &(struct wanted){.kind = DIR_OPERATION_TRANSFER});
}

void h_replica_add(struct exchange *x)
{
    start_of_copy(x, "replica_add", &(struct wanted){.kind = DIR_OPERATION_ADD_REPLICA});
}

void h_replica_remove(struct exchange *x)
{
    start_of_copy(x, "replica_remove", &(struct wanted){.kind = DIR_OPERATION_REMOVE_REPLICA});
}
