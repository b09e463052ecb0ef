/* SPDX-License-Identifier: Apache-2.0 */
#include "api/task_json.h"

#include "api/route_json.h"
#include "directory/budget.h"
#include "directory/codec.h"

#include <inttypes.h>

static void put_u64(struct buf *b, const char *member, uint64_t v)
{
    if (v != 0) {
        buf_printf(b, ",\"%s\":%" PRIu64, member, v);
    }
}

static void put_range(struct buf *b, const struct dir_task *t)
{
    bool hex = dir_codec_bounds_are_hex(t->keyspace);
    if (t->start.len > 0) {
        buf_put_str(b, ",\"start\":");
        bound_put(b, hex, t->start);
    }
    if (!t->end_open) {
        buf_put_str(b, ",\"end\":");
        bound_put(b, hex, t->end);
    }
}

static void put_must_have(struct buf *b, const struct dir_task *t)
{
    buf_put_str(b, ",\"must_have\":[");
    for (uint32_t i = 0; i < t->must_have_count; i++) {
        const struct dir_task_peer *peer = &t->must_have[i];
        buf_printf(b, "%s{\"node\":\"%s\",\"session\":%" PRIu64 ",\"role\":\"%s\",\"address\":",
                   i > 0 ? "," : "", peer->node->name, peer->session, dir_role_name(peer->role));
        json_put_cstring(b, peer->node->address);
        buf_put_u8(b, '}');
    }
    buf_put_u8(b, ']');
}

/* The retired partitions whose data this one's came out of. */
static void put_parents(struct buf *b, const struct dir_partition *p)
{
    const uint64_t *parents = dir_partition_parents(p);
    for (unsigned i = 0; i < p->parent_count; i++) {
        buf_printf(b, "%s%" PRIu64, i == 0 ? ",\"parents\":[" : ",", parents[i]);
    }
    if (p->parent_count > 0) {
        buf_put_u8(b, ']');
    }
}

static const char *authority_of(const struct dir_task *t, const struct dir_node *primary)
{
    if (primary != NULL && primary->is_static) {
        return "static";
    }
    return t->keyspace->authority == DIR_AUTHORITY_AFFINITY ? "affinity" : "exclusive";
}

static void put_grant(struct buf *b, const struct dir_task *t, const struct dir_node *node)
{
    put_range(b, t);
    put_parents(b, t->partition);
    if (t->role == DIR_ROLE_PRIMARY) {
        buf_printf(b, ",\"authority\":\"%s\",\"fenced\":%s", authority_of(t, node),
                   t->fenced ? "true" : "false");
        put_must_have(b, t);
        put_u64(b, "start_position", t->start_position);
    }
}

/* What either side needs to know of its part in the operation. */
static void put_operation(struct buf *b, const struct dir_task *t)
{
    const struct dir_operation *o = t->operation;
    buf_printf(b, ",\"operation\":%" PRIu64 ",\"attempt\":%" PRIu32 ",\"stage\":\"%s\"", o->id,
               o->attempt, dir_stage_name(o->stage));
    if (t->kind == DIR_TASK_GRANT || t->kind == DIR_TASK_CLEANUP) {
        return;
    }
    buf_printf(b, ",\"side\":\"%s\",\"operation_kind\":\"%s\"",
               t->is_source ? "source" : "destination", dir_operation_kind_name(o->kind));
    put_range(b, t);
    if (o->snapshot[0] != '\0') {
        buf_put_str(b, ",\"snapshot\":");
        json_put_cstring(b, o->snapshot);
        buf_printf(b, ",\"position\":%" PRIu64, o->position);
    }
    put_u64(b, "validate_at", o->stage == DIR_STAGE_VALIDATE ? o->validate_at : 0);
    if (o->fenced) {
        buf_printf(b, ",\"final_position\":%" PRIu64, o->final_position);
    }
    put_u64(b, "start_position", t->start_position);
    if (t->reverse) {
        buf_put_str(b, ",\"reverse\":true");
    }
    put_u64(b, "rate_bytes_per_s", dir_operation_rate(o));
    if (t->peer != NULL) {
        buf_printf(b, ",\"peer\":{\"node\":\"%s\",\"address\":", t->peer->name);
        json_put_cstring(b, t->peer->address);
        buf_put_u8(b, '}');
    }
}

static void put_task(struct buf *b, const struct dir_task *t, const struct dir_node *node)
{
    bool of_operation = t->kind == DIR_TASK_STAGE || t->kind == DIR_TASK_FENCE;
    uint64_t about = t->kind == DIR_TASK_CLEANUP ? t->duty
                     : of_operation              ? t->operation->id
                                                 : t->partition_id;
    buf_printf(b,
               "{\"id\":\"%s-%" PRIu64 "\",\"kind\":\"%s\",\"revision\":%" PRIu64
               ",\"keyspace\":\"%s\",\"partition\":%" PRIu64,
               dir_task_kind_name(t->kind), about, dir_task_kind_name(t->kind), t->revision,
               t->keyspace_name, t->partition_id);
    if (t->role != 0) {
        buf_printf(b, ",\"role\":\"%s\"", dir_role_name(t->role));
    }
    put_u64(b, "epoch", t->epoch);
    put_u64(b, "session", t->session);
    put_u64(b, "copy", t->copy);
    if (t->kind == DIR_TASK_GRANT) {
        put_grant(b, t, node);
    }
    if (t->operation != NULL && t->kind != DIR_TASK_REVOKE) {
        put_operation(b, t);
    }
    if (t->kind == DIR_TASK_CLEANUP) {
        put_u64(b, "duty", t->duty);
    }
    buf_put_u8(b, '}');
}

struct putter {
    struct buf *out;
    const struct dir_node *node;
    dir_rev upto;
    bool any;
};

static bool put_one(void *arg, const struct dir_task *t)
{
    struct putter *p = arg;
    if (p->upto != 0 && (t->kind != DIR_TASK_GRANT || t->revision > p->upto)) {
        return true;
    }
    if (p->any) {
        buf_put_u8(p->out, ',');
    }
    p->any = true;
    put_task(p->out, t, p->node);
    return true;
}

void tasks_put(struct buf *b,
               const struct dir_view *v,
               const struct dir_node *node,
               dir_rev since,
               dir_rev upto)
{
    struct putter p = {.out = b, .node = node, .upto = upto};
    buf_put_u8(b, '[');
    (void)dir_tasks(v, node, since, put_one, &p);
    buf_put_u8(b, ']');
}
