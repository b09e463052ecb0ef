/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of movement and of the balancer: what people ask for is in columns, the whole in the
 * object. */
#include "directory/store_internal.h"

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
    store_bind_bytes(st, 14, store_encode(&o->object, scratch));
    store_write_run(c, st);
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
    store_bind_bytes(st, 7, store_encode(&d->object, scratch));
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
    store_bind_bytes(st, 11, store_encode(&p->object, scratch));
    store_write_run(c, st);
}
