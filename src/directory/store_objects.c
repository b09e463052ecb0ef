/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of the kinds that are stored with their canonical bytes: the columns that matter are held
 * against them at each load. */
#include "directory/store_internal.h"

#include "base/assert.h"
#include "directory/balancer.h"

#include <string.h>

static struct slice encode(const struct dir_object *o, struct buf *scratch)
{
    buf_reset(scratch);
    dir_object_encode(o, scratch);
    ASSERT(!scratch->overflow);
    return slice_of(scratch->data, scratch->len);
}

void store_put_keyspace(struct store_conn *c,
                        const struct dir_keyspace *ks,
                        const struct store_span *span,
                        struct buf *scratch)
{
    sqlite3_stmt *st = store_write_stmt(c, SQL_KEYSPACE_PUT);
    store_bind_u64(st, 1, ks->id);
    store_bind_u64(st, 2, span->from);
    store_bind_u64(st, 3, span->from_ms);
    store_bind_text(st, 4, ks->name);
    store_bind_text(st, 5, dir_scheme_name(ks->scheme));
    store_bind_u64(st, 6, ks->hidden);
    store_bind_u64(st, 7, ks->sync_replicas);
    store_bind_u64(st, 8, ks->async_replicas);
    store_bind_text(st, 9, ks->policy);
    store_bind_u64(st, 10, ks->created);
    store_bind_bytes(st, 11, encode(&ks->object, scratch));
    store_write_run(c, st);
}

void store_put_node(struct store_conn *c, const struct dir_node *n, struct buf *scratch)
{
    sqlite3_stmt *st = store_write_stmt(c, SQL_NODE_PUT);
    store_bind_u64(st, 1, n->id);
    store_bind_text(st, 2, n->name);
    store_bind_text(st, 3, n->address);
    store_bind_u64(st, 4, n->is_static);
    store_bind_u64(st, 5, n->lost);
    store_bind_u64(st, 6, n->scheduling);
    store_bind_u64(st, 7, n->session);
    store_bind_u64(st, 8, n->ended);
    store_bind_u64(st, 9, n->partition_count);
    store_bind_u64(st, 10, n->created);
    store_bind_u64(st, 11, n->mod_revision);
    store_bind_bytes(st, 12, encode(&n->object, scratch));
    store_write_run(c, st);
}

void store_put_server(struct store_conn *c, const struct dir_server *v, struct buf *scratch)
{
    sqlite3_stmt *st = store_write_stmt(c, SQL_SERVER_PUT);
    store_bind_u64(st, 1, v->id);
    store_bind_u64(st, 2, v->role);
    store_bind_text(st, 3, v->raft_address);
    store_bind_text(st, 4, v->api_url);
    store_bind_u64(st, 5, v->removed);
    store_bind_bytes(st, 6, encode(&v->object, scratch));
    store_write_run(c, st);
}

void store_put_operation(struct store_conn *c, const struct dir_operation *o, struct buf *scratch)
{
    sqlite3_stmt *st = store_write_stmt(c, SQL_OPERATION_PUT);
    store_bind_u64(st, 1, o->id);
    store_bind_u64(st, 2, o->keyspace);
    store_bind_u64(st, 3, o->partition);
    store_bind_text(st, 4, dir_operation_kind_name(o->kind));
    store_bind_text(st, 5, dir_operation_state_name(o->state));
    store_bind_text(st, 6, dir_stage_name(o->stage));
    store_bind_u64(st, 7, o->attempt);
    store_bind_u64(st, 8, o->revision);
    store_bind_u64(st, 9, o->at_ms);
    store_bind_text(st, 10, o->source_name);
    store_bind_text(st, 11, o->destination_name);
    store_bind_text(st, 12, o->initiator);
    store_bind_text(st, 13, o->reason);
    store_bind_bytes(st, 14, encode(&o->object, scratch));
    store_write_run(c, st);
}

static bool text_is(sqlite3_stmt *st, int at, const char *want)
{
    char text[DIR_ADDRESS_MAX + 1];
    return store_column_text(st, at, text, sizeof text) && strcmp(text, want) == 0;
}

void store_put_duty(struct store_conn *c, const struct dir_duty *d, struct buf *scratch)
{
    sqlite3_stmt *st = store_write_stmt(c, SQL_DUTY_PUT);
    store_bind_u64(st, 1, d->id);
    store_bind_u64(st, 2, d->node);
    store_bind_u64(st, 3, d->partition);
    store_bind_u64(st, 4, d->copy);
    store_bind_text(st, 5, d->keyspace_name);
    store_bind_u64(st, 6, d->revision);
    store_bind_bytes(st, 7, encode(&d->object, scratch));
    store_write_run(c, st);
}

void store_put_proposal(struct store_conn *c, const struct dir_proposal *p, struct buf *scratch)
{
    sqlite3_stmt *st = store_write_stmt(c, SQL_PROPOSAL_PUT);
    store_bind_u64(st, 1, p->id);
    store_bind_text(st, 2, dir_proposal_kind_name(p->kind));
    store_bind_text(st, 3, dir_proposal_state_name(p->state));
    store_bind_u64(st, 4, p->class_of);
    store_bind_text(st, 5, p->keyspace_name);
    store_bind_u64(st, 6, p->partition);
    store_bind_text(st, 7, p->from_name);
    store_bind_text(st, 8, p->to_name);
    store_bind_text(st, 9, p->reason);
    store_bind_u64(st, 10, p->made_ms);
    store_bind_bytes(st, 11, encode(&p->object, scratch));
    store_write_run(c, st);
}

void store_put_balancer(struct store_conn *c, const struct dir_balancer *b, struct buf *scratch)
{
    sqlite3_stmt *st = store_write_stmt(c, SQL_BALANCER_PUT);
    store_bind_u64(st, 1, DIR_BALANCER_ID);
    store_bind_text(st, 2, dir_balancer_mode_name(b->values[DIR_BALANCER_MODE]));
    store_bind_u64(st, 3, b->pause_since_ms != 0);
    store_bind_u64(st, 4, b->revision);
    store_bind_bytes(st, 5, encode(&b->object, scratch));
    store_write_run(c, st);
}

/* What the columns say of a decoded object: do they agree? */
static bool columns_agree(sqlite3_stmt *st, const struct dir_object *o)
{
    const void *object = o; /* each kind begins with it */
    uint64_t id = store_column_u64(st, 1);
    if (o->kind == DIR_KIND_KEYSPACE) {
        const struct dir_keyspace *ks = object;
        return ks->id == id && text_is(st, 2, ks->name);
    }
    if (o->kind == DIR_KIND_NODE) {
        const struct dir_node *n = object;
        return n->id == id && text_is(st, 2, n->name) && text_is(st, 3, n->address);
    }
    if (o->kind == DIR_KIND_SERVER) {
        const struct dir_server *v = object;
        return v->id == id && text_is(st, 2, v->raft_address);
    }
    if (o->kind == DIR_KIND_DUTY) {
        const struct dir_duty *d = object;
        return d->id == id && d->node == store_column_u64(st, 2);
    }
    if (o->kind == DIR_KIND_PROPOSAL) {
        const struct dir_proposal *p = object;
        return p->id == id && p->partition == store_column_u64(st, 2);
    }
    if (o->kind == DIR_KIND_BALANCER) {
        const struct dir_balancer *b = object;
        return id == DIR_BALANCER_ID && b->revision == store_column_u64(st, 2);
    }
    const struct dir_operation *op = object;
    return op->id == id && op->partition == store_column_u64(st, 2);
}

/* What the objects of a statement have to be. */
static uint8_t kind_of(enum store_sql which)
{
    switch ((int)which) {
    case SQL_LOAD_KEYSPACES:
    case SQL_KEYSPACE_AT:
        return DIR_KIND_KEYSPACE;
    case SQL_LOAD_NODES:
        return DIR_KIND_NODE;
    case SQL_LOAD_SERVERS:
        return DIR_KIND_SERVER;
    case SQL_LOAD_DUTIES:
        return DIR_KIND_DUTY;
    case SQL_LOAD_PROPOSALS:
        return DIR_KIND_PROPOSAL;
    case SQL_LOAD_BALANCER:
        return DIR_KIND_BALANCER;
    case SQL_LOAD_OPERATIONS:
        return DIR_KIND_OPERATION;
    default:
        UNREACHABLE();
    }
}

struct dir_object *store_read_object(enum store_sql which, sqlite3_stmt *st, struct err *e)
{
    struct dir_object *o = dir_object_decode(store_column_bytes(st, 0), e);
    if (o == NULL) {
        (void)err_set(e, ERR_CORRUPT, "row %llu: its object does not decode",
                      (unsigned long long)store_column_u64(st, 1));
        return NULL;
    }
    if (o->kind != kind_of(which) || !columns_agree(st, o)) {
        (void)err_set(e, ERR_CORRUPT, "row %llu: its columns and its object differ",
                      (unsigned long long)store_column_u64(st, 1));
        dir_unref(o);
        return NULL;
    }
    return o;
}
