/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/harness/world.h"

#include "base/assert.h"
#include "base/mem.h"
#include "directory/balancer.h"
#include "tests/harness/tap.h"

#include <stdio.h>
#include <string.h>

void world_open(struct world *w)
{
    memset(w, 0, sizeof *w);
    w->d = directory_new();
    w->time_ms = 1000;
    w->rows_consistent = true;
}

void world_close(struct world *w)
{
    result_unref(w->result);
    dir_effects_free(w->effects);
    ptree_unref(&w->rows);
    directory_free(w->d);
    mem_free(w->bytes);
}

static uint64_t id_of(const struct dir_object *o)
{
    const void *row = o;
    switch (o->kind) {
    case DIR_KIND_KEYSPACE:
        return ((const struct dir_keyspace *)row)->id;
    case DIR_KIND_PARTITION:
        return ((const struct dir_partition *)row)->id;
    case DIR_KIND_TOMBSTONE:
        return ((const struct dir_tombstone *)row)->id;
    case DIR_KIND_NODE:
        return ((const struct dir_node *)row)->id;
    case DIR_KIND_SERVER:
        return ((const struct dir_server *)row)->id;
    case DIR_KIND_DEDUPE:
        return ((const struct dir_dedupe *)row)->index;
    case DIR_KIND_BALANCER:
        return DIR_BALANCER_ID;
    default:
        return ((const struct dir_operation *)row)->id;
    }
}

static void keep_rows(struct world *w, const struct dir_effects *e)
{
    for (uint64_t i = 0; i < e->row_count; i++) {
        struct dir_object *before = e->rows[i].before, *after = e->rows[i].after;
        uint8_t key[9];
        key[0] = before != NULL ? before->kind : after->kind;
        (void)ptree_u64_key(id_of(before != NULL ? before : after), key + 1);
        struct slice k = slice_of(key, sizeof key);
        void *was =
            after != NULL ? ptree_put(&w->rows, k, dir_ref(after)) : ptree_remove(&w->rows, k);
        w->rows_consistent = w->rows_consistent && was == before;
        dir_unref(was);
    }
}

const struct dir_result *world_apply(struct world *w, const uint8_t *bytes, size_t len)
{
    result_unref(w->result);
    dir_effects_free(w->effects);
    w->effects = NULL;
    w->result = directory_apply(w->d, ++w->index, slice_of(bytes, len), &w->effects);
    if (w->effects != NULL) {
        keep_rows(w, w->effects);
    }
    directory_publish(w->d);
    return w->result;
}

static void
envelope(const struct world *w, Cadastre__Command *c, Cadastre__Command__BodyCase which, void *body)
{
    static uint8_t digest[16] = "same request";
    cadastre__command__init(c);
    c->body_case = which;
    c->bootstrap = body; /* one pointer of the union is all of them */
    c->time_ms = w->time_ms;
    union {
        const char *in;
        char *out;
    } principal = {.in = w->principal}, key = {.in = w->key};
    union {
        const uint8_t *in;
        uint8_t *out;
    } d = {.in = w->digest != NULL ? w->digest : digest};
    if (w->principal != NULL) {
        c->principal = principal.out;
    }
    if (w->key != NULL) {
        c->idempotency_key = key.out;
        c->digest = (ProtobufCBinaryData){16, d.out};
    }
    c->has_expect_revision = w->has_expect;
    c->expect_revision = w->expect;
}

const struct dir_result *world_do(struct world *w, Cadastre__Command__BodyCase which, void *body)
{
    Cadastre__Command c;
    envelope(w, &c, which, body);
    mem_free(w->bytes);
    w->len = cadastre__command__get_packed_size(&c);
    w->bytes = mem_alloc(w->len);
    (void)cadastre__command__pack(&c, w->bytes);
    w->principal = w->key = NULL;
    w->digest = NULL;
    w->has_expect = false;
    return world_apply(w, w->bytes, w->len);
}

struct dir_result *world_try(struct world *w, Cadastre__Command__BodyCase which, void *body)
{
    Cadastre__Command c;
    envelope(w, &c, which, body);
    return directory_try(w->d, &c);
}

struct directory *world_reload(const struct world *w, struct err *e)
{
    const struct dir_view *s = directory_state(w->d);
    struct dir_view_meta meta;
    memset(&meta, 0, sizeof meta);
    if (w->effects != NULL) {
        meta = w->effects->meta;
    }
    ASSERT(meta.hash.lo == s->hash.lo && meta.hash.hi == s->hash.hi);
    struct directory *d = directory_new();
    struct ptree_iter it;
    void *row;
    directory_load_begin(d, &meta);
    for (ptree_seek(&w->rows, slice_of(NULL, 0), &it); (row = ptree_iter_get(&it, NULL)) != NULL;
         ptree_iter_next(&it)) {
        struct buf b;
        buf_init(&b, 64 << 20);
        dir_object_encode(row, &b);
        struct dir_object *copy = dir_object_decode(slice_of(b.data, b.len), e);
        buf_close(&b);
        if (copy == NULL) {
            directory_free(d);
            return NULL;
        }
        directory_load_row(d, copy);
    }
    if (directory_load_end(d, e) != ERR_OK) {
        directory_free(d);
        return NULL;
    }
    return d;
}

static void note(void *arg, const char *line)
{
    (void)arg;
    tap_note("%s", line);
}

uint64_t world_check(const struct dir_view *v)
{
    return dir_check(v, note, NULL, 20);
}

void world_close_checked(struct world *w)
{
    struct err e = {.code = ERR_OK};
    CHECK_U64(world_check(world_state(w)), 0);
    CHECK(w->rows_consistent);
    struct directory *d = world_reload(w, &e);
    const struct dir_view *v = d != NULL ? directory_state(d) : NULL;
    if (!CHECK(v != NULL && memcmp(&v->hash, &world_state(w)->hash, sizeof v->hash) == 0 &&
               v->usage.count == world_state(w)->usage.count)) {
        tap_note("loaded from its rows: %s", e.detail);
    }
    directory_free(d);
    world_close(w);
}

const struct dir_result *world_node(struct world *w, const char *name, const char *address)
{
    Cadastre__NodePut m;
    cadastre__node_put__init(&m);
    m.name = text_lent(name);
    m.address = text_lent(address);
    m.is_static = true;
    return world_do(w, CADASTRE__COMMAND__BODY_NODE_PUT, &m);
}

const struct dir_result *world_zoned(struct world *w, const char *name, const char *zone)
{
    Cadastre__NodePut m;
    Cadastre__Label label, *labels[] = {&label};
    char address[80];
    cadastre__node_put__init(&m);
    cadastre__label__init(&label);
    (void)snprintf(address, sizeof address, "%s:9000", name);
    m.name = text_lent(name);
    m.address = address;
    m.is_static = true;
    label.name = text_lent("zone");
    label.value = text_lent(zone);
    m.n_labels = 1;
    m.labels = labels;
    return world_do(w, CADASTRE__COMMAND__BODY_NODE_PUT, &m);
}

const struct dir_result *world_range(struct world *w, const char *name)
{
    Cadastre__KeyspaceCreate m;
    cadastre__keyspace_create__init(&m);
    m.name = text_lent(name);
    m.scheme = DIR_SCHEME_RANGE;
    m.key_encoding = DIR_ENCODING_UTF8;
    m.authority = DIR_AUTHORITY_EXCLUSIVE;
    return world_do(w, CADASTRE__COMMAND__BODY_KEYSPACE_CREATE, &m);
}

const struct dir_result *world_hash(struct world *w, const char *name, uint64_t partitions)
{
    Cadastre__KeyspaceCreate m;
    cadastre__keyspace_create__init(&m);
    m.name = text_lent(name);
    m.scheme = DIR_SCHEME_HASH;
    m.key_encoding = DIR_ENCODING_UTF8;
    m.authority = DIR_AUTHORITY_EXCLUSIVE;
    m.partitions = partitions;
    return world_do(w, CADASTRE__COMMAND__BODY_KEYSPACE_CREATE, &m);
}

const struct dir_result *world_split(struct world *w, uint64_t partition, const char *at)
{
    Cadastre__Split m;
    ProtobufCBinaryData key = {strlen(at), (uint8_t *)text_lent(at)};
    cadastre__split__init(&m);
    m.partition = partition;
    m.n_at = 1;
    m.at = &key;
    return world_do(w, CADASTRE__COMMAND__BODY_SPLIT, &m);
}

const struct dir_result *world_merge(struct world *w, uint64_t partition, uint64_t with)
{
    Cadastre__Merge m;
    cadastre__merge__init(&m);
    m.partition = partition;
    m.with = with;
    return world_do(w, CADASTRE__COMMAND__BODY_MERGE, &m);
}

const struct dir_result *world_move(struct world *w, uint64_t partition, const char *to)
{
    Cadastre__Reassign m;
    cadastre__reassign__init(&m);
    m.partition = partition;
    m.to = text_lent(to);
    return world_do(w, CADASTRE__COMMAND__BODY_REASSIGN, &m);
}

const struct dir_keyspace *world_keyspace(const struct world *w, const char *name)
{
    return view_keyspace(world_state(w), slice_of(name, strlen(name)));
}

const struct dir_partition *world_at(const struct world *w, const char *keyspace, const char *key)
{
    const struct dir_keyspace *ks = world_keyspace(w, keyspace);
    return ks == NULL ? NULL : view_route(world_state(w), ks, slice_of(key, strlen(key)));
}
