/* SPDX-License-Identifier: Apache-2.0 */
/* Proposals as bytes, by the rules of object.c. */
#include "base/mem.h"
#include "base/wire.h"
#include "directory/internal.h"

#define PROPOSAL_NUMBERS(X)                                                                        \
    X(id)                                                                                          \
    X(keyspace)                                                                                    \
    X(partition)                                                                                   \
    X(with)                                                                                        \
    X(operation)                                                                                   \
    X(with_operation)                                                                              \
    X(epoch)                                                                                       \
    X(revision)                                                                                    \
    X(made_ms)                                                                                     \
    X(expires_ms)                                                                                  \
    X(settled_ms)                                                                                  \
    X(ended_ms)

#define PROPOSAL_TEXTS(X)                                                                          \
    X(reason_code)                                                                                 \
    X(reason)                                                                                      \
    X(settled_by)                                                                                  \
    X(settled_why)                                                                                 \
    X(keyspace_name)                                                                               \
    X(from_name)                                                                                   \
    X(to_name)

void object_put_proposal(struct buf *b, const struct dir_proposal *p)
{
#define X(field) wire_put_u64(b, p->field);
    PROPOSAL_NUMBERS(X)
#undef X
    buf_put_u8(b, p->kind);
    buf_put_u8(b, p->state);
    wire_put_u32(b, p->class_of);
#define X(field) wire_put_text(b, p->field);
    PROPOSAL_TEXTS(X)
#undef X
    wire_put_u32(b, p->figure_count);
    for (uint32_t i = 0; i < p->figure_count; i++) {
        wire_put_text(b, p->figures[i].name);
        buf_put_u8(b, p->figures[i].group);
        wire_put_u64(b, p->figures[i].value);
    }
    wire_put_u32(b, p->candidate_count);
    for (uint32_t i = 0; i < p->candidate_count; i++) {
        wire_put_text(b, p->candidates[i].node);
        wire_put_text(b, p->candidates[i].code);
    }
    wire_put_u32(b, p->key_count);
    for (uint32_t i = 0; i < p->key_count; i++) {
        wire_put_bytes(b, slice_of(p->keys[i].bytes, p->keys[i].len));
    }
}

static uint32_t get_count(struct wire_reader *r, uint32_t max)
{
    uint32_t n = wire_u32(r);
    if (n > max) {
        wire_fail(r, "a list is too long");
        n = 0;
    }
    return n;
}

static void get_lists(struct wire_reader *r, struct dir_proposal *p)
{
    p->figure_count = get_count(r, DIR_FIGURES_MAX);
    for (uint32_t i = 0; i < p->figure_count; i++) {
        struct dir_figure *f = &p->figures[i];
        wire_text(r, f->name, sizeof f->name, "a figure's name is wrong");
        f->group =
            wire_enum(r, DIR_FIGURE_EVIDENCE, DIR_FIGURE_MEASURED, "a figure's group is unknown");
        f->value = wire_u64(r);
    }
    p->candidate_count = get_count(r, DIR_CANDIDATES_MAX);
    for (uint32_t i = 0; i < p->candidate_count; i++) {
        struct dir_candidate *c = &p->candidates[i];
        wire_text(r, c->node, sizeof c->node, "a candidate's name is wrong");
        wire_text(r, c->code, sizeof c->code, "a candidate's code is wrong");
    }
    p->key_count = get_count(r, DIR_PROPOSAL_KEYS_MAX);
    for (uint32_t i = 0; i < p->key_count; i++) {
        struct slice key = wire_bytes(r, DIR_ROUTING_KEY_MAX, "a key is too long");
        p->keys[i].len = (uint16_t)key.len;
        memcpy(p->keys[i].bytes, key.len > 0 ? key.data : (const uint8_t *)"", key.len);
    }
}

void *object_get_proposal(struct wire_reader *r)
{
    struct dir_proposal *p = mem_zalloc(sizeof *p);
#define X(field) p->field = wire_u64(r);
    PROPOSAL_NUMBERS(X)
#undef X
    p->kind = wire_enum(r, DIR_PROPOSAL_MOVE, DIR_PROPOSAL_ADVICE, "the kind is unknown");
    p->state = wire_enum(r, DIR_PROPOSAL_OPEN, DIR_PROPOSAL_EXPIRED, "the state is unknown");
    p->class_of = wire_u32(r);
#define X(field) wire_text(r, p->field, sizeof p->field, "the text " #field " is wrong");
    PROPOSAL_TEXTS(X)
#undef X
    get_lists(r, p);
    return p;
}
