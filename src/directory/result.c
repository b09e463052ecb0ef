/* SPDX-License-Identifier: Apache-2.0 */
/* Outcomes of commands, and their stored form (message Result), which a later version must be able
 * to read: so it names outcomes by slug, and shows routes as the API shows them rather than as
 * rows. */
#include "base/assert.h"
#include "base/mem.h"
#include "directory/internal.h"

#include <stdatomic.h>
#include <stdio.h>

struct dir_result *result_new(const struct err *e, dir_rev revision, uint64_t route_count)
{
    struct dir_result *r = mem_zalloc(sizeof *r + route_count * sizeof r->routes[0]);
    r->refs = 1;
    r->err = *e;
    r->revision = revision;
    r->route_count = route_count;
    return r;
}

struct dir_result *result_ref(struct dir_result *r)
{
    atomic_fetch_add_explicit(&r->refs, 1, memory_order_relaxed);
    return r;
}

void result_unref(struct dir_result *r)
{
    if (r == NULL || atomic_fetch_sub_explicit(&r->refs, 1, memory_order_acq_rel) > 1) {
        return;
    }
    dir_unref(r->keyspace);
    dir_unref(r->node);
    dir_unref(r->operation);
    dir_unref(r->proposal);
    for (uint64_t i = 0; i < r->route_count; i++) {
        dir_route_close(&r->routes[i]);
    }
    mem_free(r);
}

/* protobuf-c's structs want pointers that are not const; it does not write through them when it
 * packs. */
static char *text_of(const char *s)
{
    union {
        const char *in;
        char *out;
    } u = {.in = s};
    return u.out;
}

static ProtobufCBinaryData bytes_of(struct slice s)
{
    union {
        const uint8_t *in;
        uint8_t *out;
    } u = {.in = s.data};
    return (ProtobufCBinaryData){s.len, u.out};
}

static uint64_t *parents_of(const struct dir_partition *p)
{
    union {
        const uint64_t *in;
        uint64_t *out;
    } u = {.in = dir_partition_parents(p)};
    return u.out;
}

/* A route's images in one allocation, with the pointers that protobuf-c wants. */
struct image {
    Cadastre__RouteImage route;
    Cadastre__ReplicaImage replicas[DIR_REPLICAS_MAX];
    Cadastre__ReplicaImage *pointers[DIR_REPLICAS_MAX];
};

static uint32_t image_authority(const struct dir_route *r)
{
    const struct dir_partition *p = r->partition;
    return partition_has_primary(p) && r->nodes[0]->is_static ? 3 : r->keyspace->authority;
}

static void image_fill(struct image *image, const struct dir_route *r)
{
    const struct dir_partition *p = r->partition;
    Cadastre__RouteImage *m = &image->route;
    cadastre__route_image__init(m);
    m->keyspace = text_of(r->keyspace->name);
    m->partition = p->id;
    m->epoch = p->epoch;
    m->mod_revision = r->mod_revision;
    m->start = bytes_of(dir_partition_start(p));
    m->end = bytes_of(p->end_open ? slice_of(NULL, 0) : dir_partition_end(p));
    m->end_open = p->end_open;
    m->state = p->state;
    m->rate_limit = p->rate_limit;
    m->pinned = p->pinned;
    m->authority = image_authority(r);
    m->bounds_hex =
        r->keyspace->scheme == DIR_SCHEME_HASH || r->keyspace->key_encoding == DIR_ENCODING_HEX;
    m->n_parents = p->parent_count;
    m->parents = parents_of(p);
    m->created = p->created;
    m->owner_since_ms = p->owner_since_ms;
    m->operation = p->operation;
    m->moving = p->moving;
    m->n_replicas = p->replica_count;
    m->replicas = image->pointers;
    for (uint8_t i = 0; i < p->replica_count; i++) {
        Cadastre__ReplicaImage *replica = &image->replicas[i];
        cadastre__replica_image__init(replica);
        replica->node = text_of(r->nodes[i]->name);
        replica->address = text_of(r->nodes[i]->address);
        replica->role = p->replicas[i].role;
        image->pointers[i] = replica;
    }
}

static const struct dir_object *body_of(const struct dir_result *r)
{
    if (r->keyspace != NULL) {
        return &r->keyspace->object;
    }
    if (r->node != NULL) {
        return &r->node->object;
    }
    if (r->proposal != NULL) {
        return &r->proposal->object;
    }
    return r->operation != NULL ? &r->operation->object : NULL;
}

static void fill_scalars(Cadastre__Result *m, const struct dir_result *r)
{
    m->code = (uint32_t)r->err.code;
    m->slug = text_of(err_slug(r->err.code));
    m->detail = text_of(r->err.detail);
    m->pointer = text_of(r->err.pointer);
    m->revision = r->revision;
    m->partition = r->partition;
    m->current_epoch = r->current_epoch;
    m->current_revision = r->current_revision;
    m->session = r->session;
    m->retired = r->retired;
    m->partitions = r->partitions;
    m->keyspace = r->route_count > 0 ? r->routes[0].keyspace->id : 0;
}

void result_encode(const struct dir_result *r, struct buf *out)
{
    Cadastre__Result m;
    cadastre__result__init(&m);
    fill_scalars(&m, r);
    struct buf body;
    buf_init(&body, DIR_COMMAND_MAX);
    if (body_of(r) != NULL) {
        dir_object_encode(body_of(r), &body);
        m.body = bytes_of(slice_of(body.data, body.len));
    }
    struct image *images = mem_zalloc((r->route_count + 1) * sizeof *images);
    Cadastre__RouteImage **routes = mem_zalloc((r->route_count + 1) * sizeof(void *));
    for (uint64_t i = 0; i < r->route_count; i++) {
        image_fill(&images[i], &r->routes[i]);
        routes[i] = &images[i].route;
    }
    m.n_routes = r->route_count;
    m.routes = routes;
    size_t size = cadastre__result__get_packed_size(&m);
    if (buf_reserve(out, size)) {
        out->len += cadastre__result__pack(&m, out->data + out->len);
    }
    mem_free(routes);
    mem_free(images);
    buf_close(&body);
}

static struct dir_node *decode_node(const Cadastre__ReplicaImage *m, bool is_static, struct err *e)
{
    if (strlen(m->node) > DIR_NAME_MAX || strlen(m->address) > DIR_ADDRESS_MAX) {
        err_set(e, ERR_CORRUPT, "a stored replica's name or address is too long");
        return NULL;
    }
    struct dir_node *n = mem_zalloc(sizeof *n);
    n->object.refs = 1;
    n->object.kind = DIR_KIND_NODE;
    n->is_static = is_static;
    (void)snprintf(n->name, sizeof n->name, "%s", m->node);
    (void)snprintf(n->address, sizeof n->address, "%s", m->address);
    return n;
}

static struct dir_keyspace *decode_keyspace(const Cadastre__RouteImage *m, uint64_t id)
{
    struct dir_keyspace *ks = mem_zalloc(sizeof *ks + 1);
    ks->object.refs = 1;
    ks->object.kind = DIR_KIND_KEYSPACE;
    ks->id = id;
    (void)snprintf(ks->name, sizeof ks->name, "%s", m->keyspace);
    ks->scheme = DIR_SCHEME_RANGE;
    ks->key_encoding = m->bounds_hex != 0 ? DIR_ENCODING_HEX : DIR_ENCODING_UTF8;
    ks->authority =
        m->authority == DIR_AUTHORITY_AFFINITY ? DIR_AUTHORITY_AFFINITY : DIR_AUTHORITY_EXCLUSIVE;
    return ks;
}

static bool is_route_image(const Cadastre__RouteImage *m)
{
    return strlen(m->keyspace) <= DIR_NAME_MAX && m->start.len <= DIR_ROUTING_KEY_MAX &&
           m->end.len <= DIR_ROUTING_KEY_MAX && m->n_replicas <= DIR_REPLICAS_MAX &&
           m->n_parents <= DIR_PARENTS_MAX && m->state >= DIR_ACTIVE &&
           m->state <= DIR_UNAVAILABLE && m->moving <= DIR_STAGE_FAILED &&
           (m->operation == 0) == (m->moving == 0);
}

static enum err_code
decode_route(struct dir_route *r, const Cadastre__RouteImage *m, uint64_t keyspace, struct err *e)
{
    if (!is_route_image(m)) {
        return err_set(e, ERR_CORRUPT, "a stored route is out of bounds");
    }
    struct dir_replica replicas[DIR_REPLICAS_MAX] = {{0}};
    struct dir_partition like = {
        .pinned = m->pinned,
        .state = (uint8_t)m->state,
        .id = m->partition,
        .keyspace = keyspace,
        .epoch = m->epoch,
        .mod_revision = m->mod_revision,
        .rate_limit = m->rate_limit,
        .created = m->created,
        .owner_since_ms = m->owner_since_ms,
        .operation = m->operation,
        .moving = (uint8_t)m->moving,
    };
    for (size_t i = 0; i < m->n_replicas; i++) {
        uint32_t role = m->replicas[i]->role;
        if (role < DIR_ROLE_PRIMARY || role > DIR_ROLE_JOINING) {
            return err_set(e, ERR_CORRUPT, "a stored replica has no role");
        }
        replicas[i].role = (uint8_t)role;
    }
    struct partition_arrays arrays = {
        .replicas = replicas,
        .replica_count = (uint8_t)m->n_replicas,
        .parents = m->parents,
        .parent_count = (uint8_t)m->n_parents,
        .end_open = m->end_open,
        .start = slice_of(m->start.data, m->start.len),
        .end = slice_of(m->end.data, m->end.len),
    };
    r->partition = partition_new(&like, &arrays);
    r->keyspace = decode_keyspace(m, keyspace);
    r->mod_revision = m->mod_revision;
    for (size_t i = 0; i < m->n_replicas; i++) {
        r->nodes[i] = decode_node(m->replicas[i], i == 0 && m->authority == 3, e);
        if (r->nodes[i] == NULL) {
            return ERR_CORRUPT;
        }
    }
    return ERR_OK;
}

static enum err_code
decode_body(struct dir_result *r, const ProtobufCBinaryData *body, struct err *e)
{
    if (body->len == 0) {
        return ERR_OK;
    }
    struct dir_object *o = dir_object_decode(slice_of(body->data, body->len), e);
    if (o == NULL) {
        return ERR_CORRUPT;
    }
    if (o->kind == DIR_KIND_KEYSPACE) {
        r->keyspace = (struct dir_keyspace *)(void *)o;
    } else if (o->kind == DIR_KIND_NODE) {
        r->node = (struct dir_node *)(void *)o;
    } else if (o->kind == DIR_KIND_OPERATION) {
        r->operation = (struct dir_operation *)(void *)o;
    } else if (o->kind == DIR_KIND_PROPOSAL) {
        r->proposal = (struct dir_proposal *)(void *)o;
    } else {
        dir_unref(o);
        return err_set(e, ERR_CORRUPT, "a stored outcome has a row of another kind");
    }
    return ERR_OK;
}

static enum err_code decode_all(struct dir_result *r, const Cadastre__Result *m, struct err *e)
{
    enum err_code code = err_from_slug(m->slug);
    if (code == ERR_COUNT) {
        return err_set(e, ERR_CORRUPT, "a stored outcome has an unknown code");
    }
    r->err.code = code;
    (void)snprintf(r->err.detail, sizeof r->err.detail, "%s", m->detail);
    (void)snprintf(r->err.pointer, sizeof r->err.pointer, "%s", m->pointer);
    r->replayed = true;
    r->partition = m->partition;
    r->retired = m->retired;
    r->partitions = m->partitions;
    r->current_epoch = m->current_epoch;
    r->current_revision = m->current_revision;
    r->session = m->session;
    for (size_t i = 0; i < m->n_routes; i++) {
        if (decode_route(&r->routes[i], m->routes[i], m->keyspace, e) != ERR_OK) {
            return ERR_CORRUPT;
        }
    }
    return decode_body(r, &m->body, e);
}

struct dir_result *result_decode(struct slice bytes, struct err *e)
{
    Cadastre__Result *m = cadastre__result__unpack(NULL, bytes.len, bytes.data);
    if (m == NULL) {
        err_set(e, ERR_CORRUPT, "a stored outcome does not decode");
        return NULL;
    }
    struct err none = {.code = ERR_OK};
    struct dir_result *r = result_new(&none, m->revision, m->n_routes);
    if (decode_all(r, m, e) != ERR_OK) {
        result_unref(r);
        r = NULL;
    }
    cadastre__result__free_unpacked(m, NULL);
    return r;
}

struct dir_result *directory_lookup(const struct dir_view *v,
                                    const char *principal,
                                    const char *idempotency_key,
                                    const uint8_t *digest)
{
    const struct dir_dedupe *d = retain_find(v, principal, idempotency_key);
    if (d == NULL) {
        return NULL;
    }
    struct err e = {.code = ERR_OK};
    if (digest != NULL && memcmp(digest, d->digest, sizeof d->digest) != 0) {
        err_set(&e, ERR_IDEMPOTENCY_MISMATCH, "the key \"%s\" belongs to another request",
                idempotency_key);
        return result_new(&e, v->revision, 0);
    }
    struct slice stored = slice_of(d->bytes + d->principal_len + d->key_len, d->result_len);
    struct dir_result *r = result_decode(stored, &e);
    /* A row's content was checked when it was read in; what apply wrote itself reads back. */
    return r != NULL ? r : result_new(&e, v->revision, 0);
}
