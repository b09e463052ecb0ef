/* SPDX-License-Identifier: Apache-2.0 */
#include "api/load_in.h"

#include "api/exchange.h"
#include "base/mem.h"
#include "base/parse.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const uint32_t required = 1U << LOAD_READS | 1U << LOAD_WRITES | 1U << LOAD_READ_BYTES |
                                 1U << LOAD_WRITE_BYTES | 1U << LOAD_CPU | 1U << LOAD_SIZE;

void load_batch_free(struct load_batch *b)
{
    mem_free(b->samples);
    mem_free(b->keys);
    mem_free(b->parts);
    buf_close(&b->text);
}

struct batch_sample *batch_add(struct load_batch *b)
{
    if (b->count == LOAD_BATCH_MAX) {
        return NULL;
    }
    if (b->count == b->cap) {
        b->cap = b->cap == 0 ? 64 : 2 * b->cap;
        b->samples = mem_realloc(b->samples, b->cap * sizeof b->samples[0]);
    }
    b->samples[b->count] =
        (struct batch_sample){.key_from = b->key_count, .part_from = b->part_count};
    return &b->samples[b->count++];
}

struct batch_key *batch_add_key(struct load_batch *b)
{
    if (b->key_count == b->key_cap) {
        b->key_cap = b->key_cap == 0 ? 64 : 2 * b->key_cap;
        b->keys = mem_realloc(b->keys, b->key_cap * sizeof b->keys[0]);
    }
    b->samples[b->count - 1].key_count++;
    b->keys[b->key_count] = (struct batch_key){.weight = 0};
    return &b->keys[b->key_count++];
}

struct batch_part *batch_add_part(struct load_batch *b)
{
    if (b->part_count == b->part_cap) {
        b->part_cap = b->part_cap == 0 ? 64 : 2 * b->part_cap;
        b->parts = mem_realloc(b->parts, b->part_cap * sizeof b->parts[0]);
    }
    b->samples[b->count - 1].part_count++;
    b->parts[b->part_count] = (struct batch_part){.requests = 0};
    return &b->parts[b->part_count++];
}

struct batch_text batch_put(struct load_batch *b, struct slice text)
{
    struct batch_text t = {(uint32_t)b->text.len, (uint32_t)text.len};
    buf_put(&b->text, text.data, text.len);
    return t;
}

/* --- checks --- */

static enum err_code refuse(struct err *e, const char *pointer, const char *what)
{
    return err_set_at(e, ERR_INVALID_REQUEST, pointer, "%s", what);
}

static enum err_code refuse_in(struct err *e, uint32_t sample, const char *member, const char *what)
{
    char pointer[96];
    (void)snprintf(pointer, sizeof pointer, "/partitions/%" PRIu32 "%s", sample, member);
    return refuse(e, pointer, what);
}

static enum err_code check_value(uint64_t interval_ms,
                                 const struct batch_sample *s,
                                 uint32_t i,
                                 enum load_resource r,
                                 struct err *e)
{
    char member[64], what[96];
    uint64_t most = load_limit(r);
    if (load_is_count(r)) {
        most = most / 1000 * interval_ms + most % 1000 * interval_ms / 1000;
    }
    if (s->value[r] <= most) {
        return ERR_OK;
    }
    (void)snprintf(member, sizeof member, "/%s", load_name(r));
    (void)snprintf(what, sizeof what, "more than %" PRIu64 " is not believed%s", most,
                   load_is_count(r) ? " of this interval" : "");
    return refuse_in(e, i, member, what);
}

static enum err_code
check_keys(const struct load_batch *b, const struct batch_sample *s, uint32_t i, struct err *e)
{
    char member[64];
    if (s->key_count > LOAD_KEYS_MAX) {
        return refuse_in(e, i, "/keys", "at most 64 of them");
    }
    for (uint32_t k = 0; k < s->key_count; k++) {
        const struct batch_key *key = &b->keys[s->key_from + k];
        if (!key->has_key) {
            (void)snprintf(member, sizeof member, "/keys/%" PRIu32 "/key", k);
            return refuse_in(e, i, member, "is missing");
        }
        if (!key->has_weight || key->weight == 0 || key->weight > SKETCH_WEIGHT_MAX) {
            (void)snprintf(member, sizeof member, "/keys/%" PRIu32 "/weight", k);
            return refuse_in(e, i, member,
                             key->has_weight ? "must be from 1 to 2^40" : "is missing");
        }
    }
    return ERR_OK;
}

static enum err_code
refuse_part(struct err *e, uint32_t sample, uint32_t part, const char *member, const char *what)
{
    char pointer[96];
    (void)snprintf(pointer, sizeof pointer, "/partitions/%" PRIu32 "/by/%" PRIu32 "%s", sample,
                   part, member);
    return refuse(e, pointer, what);
}

static bool
are_same(const struct load_batch *b, const struct batch_part *x, const struct batch_part *y)
{
    bool same = true;
    for (unsigned n = 0; n < HEAT_NAMES; n++) {
        same = same && slice_eq(batch_slice(b, x->name[n]), batch_slice(b, y->name[n]));
    }
    return same;
}

static enum err_code check_names(const struct load_batch *b, uint32_t i, uint32_t k, struct err *e)
{
    static const char *const members[HEAT_NAMES] = {"/operation", "/outcome", "/tenant"};
    const struct batch_part *parts = b->parts + b->samples[i].part_from;
    for (unsigned n = 0; n < HEAT_NAMES; n++) {
        struct slice name = batch_slice(b, parts[k].name[n]);
        if ((n != HEAT_BY_TENANT || parts[k].has_tenant) && !parse_is_name(name)) {
            return refuse_part(e, i, k, members[n],
                               name.len > 0 || n == HEAT_BY_TENANT ? "is no name" : "is missing");
        }
    }
    for (uint32_t j = 0; j < k; j++) {
        if (are_same(b, &parts[j], &parts[k])) {
            return refuse_part(e, i, k, "", "is repeated");
        }
    }
    return ERR_OK;
}

/* A part of the requests can't be more than all of them. */
static enum err_code check_parts(const struct load_batch *b, uint32_t i, struct err *e)
{
    const struct batch_sample *s = &b->samples[i];
    uint64_t left = s->value[LOAD_READS] + s->value[LOAD_WRITES];
    if (s->part_count > LOAD_PARTS_MAX) {
        return refuse_in(e, i, "/by", "at most 16 of them");
    }
    for (uint32_t k = 0; k < s->part_count; k++) {
        const struct batch_part *p = &b->parts[s->part_from + k];
        if (check_names(b, i, k, e) != ERR_OK) {
            return e->code;
        }
        if (!p->has_requests || p->requests > left) {
            return refuse_part(e, i, k, "/requests",
                               p->has_requests ? "all together are more than reads and writes"
                                               : "is missing");
        }
        left -= p->requests;
    }
    return ERR_OK;
}

static enum err_code check_sample(const struct load_batch *b, uint32_t i, struct err *e)
{
    const struct batch_sample *s = &b->samples[i];
    char member[64];
    if (!parse_is_name(batch_slice(b, s->keyspace))) {
        return refuse_in(e, i, "/keyspace", s->keyspace.len > 0 ? "is no name" : "is missing");
    }
    if (s->partition == 0 || s->epoch == 0) {
        return refuse_in(e, i, s->partition == 0 ? "/partition" : "/epoch",
                         "must be given, and be at least 1");
    }
    for (unsigned r = 0; r < LOAD_RESOURCES; r++) {
        if ((s->has & 1U << r) == 0 && (required & 1U << r) != 0) {
            (void)snprintf(member, sizeof member, "/%s", load_name((enum load_resource)r));
            return refuse_in(e, i, member, "is missing");
        }
        if (check_value(b->interval_ms, s, i, (enum load_resource)r, e) != ERR_OK) {
            return e->code;
        }
    }
    return check_keys(b, s, i, e) != ERR_OK ? e->code : check_parts(b, i, e);
}

/* An id that comes twice, through a table of indices + 1. */
static enum err_code check_repeats(const struct load_batch *b, struct err *e)
{
    size_t cap = 64;
    enum err_code code = ERR_OK;
    while (cap < 2 * (size_t)b->count) {
        cap *= 2;
    }
    uint32_t *table = mem_zalloc(cap * sizeof table[0]);
    for (uint32_t i = 0; i < b->count && code == ERR_OK; i++) {
        uint64_t hash = b->samples[i].partition * UINT64_C(0x9e3779b97f4a7c15);
        size_t at = (hash ^ hash >> 32) & (cap - 1);
        while (table[at] != 0 && b->samples[table[at] - 1].partition != b->samples[i].partition) {
            at = (at + 1) & (cap - 1);
        }
        if (table[at] != 0) {
            code = refuse_in(e, i, "/partition", "is repeated in this report");
        }
        table[at] = i + 1;
    }
    mem_free(table);
    return code;
}

static enum err_code check_node(const struct load_batch *b, struct err *e)
{
    static const struct {
        const char *pointer;
        uint64_t max;
    } figures[LOADS_FIGURES] = {
#define X(name, member, max) {"/node/" member, max},
        LOADS_FIGURE_LIST(X)
#undef X
    };
    for (unsigned f = 0; f < LOADS_FIGURES; f++) {
        if (b->node.figure[f] > figures[f].max) {
            return refuse(e, figures[f].pointer, "is more than is believed");
        }
    }
    return ERR_OK;
}

enum err_code batch_check(const struct load_batch *b, struct err *e)
{
    if (b->session == 0) {
        return refuse(e, "/session", "must be given, and be at least 1");
    }
    if (b->interval_ms < LOAD_INTERVAL_MIN_MS || b->interval_ms > LOAD_INTERVAL_MAX_MS) {
        return refuse(e, "/interval_ms", "must be from 100 to 600000");
    }
    if (b->has_seq && b->seq == 0) {
        return refuse(e, "/seq", "must be at least 1");
    }
    if (!b->has_partitions) {
        return refuse(e, "/partitions", "is missing");
    }
    for (uint32_t i = 0; i < b->count; i++) {
        if (check_sample(b, i, e) != ERR_OK) {
            return e->code;
        }
    }
    return check_repeats(b, e) != ERR_OK ? e->code : check_node(b, e);
}
