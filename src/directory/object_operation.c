/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of movement as bytes, by the rules of object.c. Numbers go in the order of one table for
 * both ways, so that a field cannot be forgotten in one of them. */
#include "base/mem.h"
#include "base/wire.h"
#include "directory/budget_internal.h"
#include "directory/internal.h"

#define OPERATION_NUMBERS(X)                                                                       \
    X(id)                                                                                          \
    X(keyspace)                                                                                    \
    X(partition)                                                                                   \
    X(source)                                                                                      \
    X(destination)                                                                                 \
    X(leaving)                                                                                     \
    X(leaving_copy)                                                                                \
    X(retired)                                                                                     \
    X(reverses)                                                                                    \
    X(reversed_by)                                                                                 \
    X(base_position)                                                                               \
    X(epoch_before)                                                                                \
    X(epoch_after)                                                                                 \
    X(revision)                                                                                    \
    X(at_ms)                                                                                       \
    X(stage_since_ms)                                                                              \
    X(stage_revision)                                                                              \
    X(copy)                                                                                        \
    X(source_session)                                                                              \
    X(destination_session)                                                                         \
    X(joined_session)                                                                              \
    X(position)                                                                                    \
    X(bytes_total)                                                                                 \
    X(items_total)                                                                                 \
    X(chunk)                                                                                       \
    X(bytes_done)                                                                                  \
    X(checksum_failures)                                                                           \
    X(free_bytes)                                                                                  \
    X(applied_position)                                                                            \
    X(lag_bytes)                                                                                   \
    X(from_position)                                                                               \
    X(validate_at)                                                                                 \
    X(final_position)                                                                              \
    X(checksum)                                                                                    \
    X(open_operations)                                                                             \
    X(stale_reads)                                                                                 \
    X(old_epoch_writes)                                                                            \
    X(deleted_bytes)                                                                               \
    X(max_bytes_per_s)                                                                             \
    X(rate_bytes_per_s)                                                                            \
    X(size_bytes)                                                                                  \
    X(live_bytes_per_s)                                                                            \
    X(stage_bytes)                                                                                 \
    X(rate_revision)                                                                               \
    X(attention_since_ms)

#define OPERATION_FLAGS(X)                                                                         \
    X(moves_primary)                                                                               \
    X(complete)                                                                                    \
    X(active)                                                                                      \
    X(fenced)                                                                                      \
    X(joined)                                                                                      \
    X(warm)                                                                                        \
    X(reverse)                                                                                     \
    X(has_size)                                                                                    \
    X(has_live)

#define OPERATION_TEXTS(X)                                                                         \
    X(snapshot)                                                                                    \
    X(attention_code)                                                                              \
    X(attention)                                                                                   \
    X(keyspace_name)                                                                               \
    X(source_name)                                                                                 \
    X(destination_name)                                                                            \
    X(initiator)                                                                                   \
    X(reason)

#define EVIDENCE_NUMBERS(X)                                                                        \
    X(session) X(seq) X(digest) X(at_position) X(items) X(checksum) X(extras)

static void put_evidence(struct buf *b, const struct dir_evidence *e)
{
#define X(field) wire_put_u64(b, e->field);
    EVIDENCE_NUMBERS(X)
#undef X
    buf_put_u8(b, e->has_values);
    buf_put_u8(b, e->passed);
}

static void get_evidence(struct wire_reader *r, struct dir_evidence *e)
{
#define X(field) e->field = wire_u64(r);
    EVIDENCE_NUMBERS(X)
#undef X
    e->has_values = wire_bool(r);
    e->passed = wire_bool(r);
}

static void copy_key(uint8_t *to, struct slice from)
{
    if (from.len > 0) {
        memcpy(to, from.data, from.len);
    }
}

static void put_part(struct buf *b, const struct dir_part *part)
{
    buf_put_u8(b, part->is_set);
    if (part->is_set) {
        buf_put_u8(b, part->hex);
        buf_put_u8(b, part->end_open);
        wire_put_bytes(b, dir_part_start(part));
        wire_put_bytes(b, part->end_open ? slice_of(NULL, 0) : dir_part_end(part));
    }
}

static void get_part(struct wire_reader *r, struct dir_part *part)
{
    part->is_set = wire_bool(r);
    if (part->is_set) {
        part->hex = wire_bool(r);
        part->end_open = wire_bool(r);
        struct slice start = wire_bytes(r, DIR_ROUTING_KEY_MAX, "the part's start is too long");
        struct slice end = wire_bytes(r, DIR_ROUTING_KEY_MAX, "the part's end is too long");
        if (part->end_open && end.len > 0) {
            wire_fail(r, "an open end has a key");
            end.len = 0;
        }
        part->start_len = (uint16_t)start.len;
        part->end_len = (uint16_t)end.len;
        copy_key(part->start, start);
        copy_key(part->end, end);
    }
}

void object_put_operation(struct buf *b, const struct dir_operation *o)
{
#define X(field) wire_put_u64(b, o->field);
    OPERATION_NUMBERS(X)
#undef X
    buf_put_u8(b, o->kind);
    buf_put_u8(b, o->state);
    buf_put_u8(b, o->stage);
    buf_put_u8(b, o->role);
#define X(field) buf_put_u8(b, o->field);
    OPERATION_FLAGS(X)
#undef X
    wire_put_u32(b, o->attempt);
    wire_put_u32(b, o->first_attempt);
    wire_put_u32(b, o->validations);
    wire_put_u32(b, o->class_of);
    put_part(b, &o->part);
    put_evidence(b, &o->source_says);
    put_evidence(b, &o->destination_says);
    budget_put(b, &o->reserved);
    throttle_put(b, &o->throttle);
#define X(field) wire_put_text(b, o->field);
    OPERATION_TEXTS(X)
#undef X
    wire_put_u32(b, o->stage_count);
    for (uint32_t i = 0; i < o->stage_count; i++) {
        buf_put_u8(b, o->stages[i].stage);
        wire_put_u64(b, o->stages[i].at_ms);
        wire_put_u64(b, o->stages[i].revision);
        wire_put_text(b, o->stages[i].by);
    }
}

static void get_scalars(struct wire_reader *r, struct dir_operation *o)
{
#define X(field) o->field = wire_u64(r);
    OPERATION_NUMBERS(X)
#undef X
    o->kind = wire_enum(r, DIR_OPERATION_MOVE, DIR_OPERATION_FAILOVER, "the kind is unknown");
    o->state = wire_enum(r, DIR_OPERATION_QUEUED, DIR_OPERATION_FAILED, "the state is unknown");
    o->stage = wire_enum(r, DIR_STAGE_QUEUED, DIR_STAGE_FAILED, "the stage is unknown");
    o->role = wire_enum(r, 0, DIR_ROLE_JOINING, "the role is unknown");
#define X(field) o->field = wire_bool(r);
    OPERATION_FLAGS(X)
#undef X
    o->attempt = wire_u32(r);
    o->first_attempt = wire_u32(r);
    o->validations = wire_u32(r);
    o->class_of = wire_u32(r);
    get_part(r, &o->part);
    get_evidence(r, &o->source_says);
    get_evidence(r, &o->destination_says);
    budget_get(r, &o->reserved);
    throttle_get(r, &o->throttle);
#define X(field) wire_text(r, o->field, sizeof o->field, "the text " #field " is wrong");
    OPERATION_TEXTS(X)
#undef X
}

void *object_get_operation(struct wire_reader *r)
{
    struct dir_operation *o = mem_zalloc(sizeof *o + DIR_STAGES_MAX * sizeof o->stages[0]);
    get_scalars(r, o);
    uint32_t count = wire_u32(r);
    if (count > DIR_STAGES_MAX) {
        wire_fail(r, "there are too many stages");
        count = 0;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct dir_stage_entry *s = &o->stages[i];
        s->stage = wire_enum(r, DIR_STAGE_QUEUED, DIR_STAGE_FAILED, "a stage is unknown");
        s->at_ms = wire_u64(r);
        s->revision = wire_u64(r);
        wire_text(r, s->by, sizeof s->by, "who made a stage is wrong");
    }
    o->stage_count = count;
    return mem_realloc(o, operation_size(o));
}

void object_put_duty(struct buf *b, const struct dir_duty *d)
{
    wire_put_u64(b, d->id);
    wire_put_u64(b, d->node);
    wire_put_u64(b, d->keyspace);
    wire_put_u64(b, d->partition);
    wire_put_u64(b, d->operation);
    wire_put_u64(b, d->copy);
    wire_put_u64(b, d->revision);
    wire_put_text(b, d->keyspace_name);
}

void *object_get_duty(struct wire_reader *r)
{
    struct dir_duty *d = mem_zalloc(sizeof *d);
    d->id = wire_u64(r);
    d->node = wire_u64(r);
    d->keyspace = wire_u64(r);
    d->partition = wire_u64(r);
    d->operation = wire_u64(r);
    d->copy = wire_u64(r);
    d->revision = wire_u64(r);
    wire_text(r, d->keyspace_name, sizeof d->keyspace_name, "the keyspace's name is wrong");
    return d;
}
