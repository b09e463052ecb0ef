/* SPDX-License-Identifier: Apache-2.0 */
/* Keyspaces: list, one, create, change, remove. */
#include "api/endpoints.h"

#include "api/keyspace_json.h"
#include "api/policy_json.h"
#include "base/mem.h"
#include "base/parse.h"
#include "directory/codec.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* --- reads --- */

static uint64_t count_unavailable(const struct ptree *map)
{
    struct ptree_iter it;
    const struct dir_partition *p;
    uint64_t n = 0;
    if (map->count > API_COUNTED_MAX) {
        return UINT64_MAX;
    }
    ptree_seek(map, slice_of(NULL, 0), &it);
    for (; (p = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        n += p->state == DIR_UNAVAILABLE;
    }
    return n;
}

static void get_one(struct exchange *x, const struct dir_view *v)
{
    const struct dir_keyspace *ks = read_keyspace(x, v);
    const struct ptree *map;
    struct buf *out = exchange_out(x);
    if (ks == NULL) {
        return;
    }
    map = view_map(v, ks);
    keyspace_put_open(out, ks, map->count, count_unavailable(map));
    buf_printf(out, ",\"revision\":%" PRIu64 "}", v->revision);
    reply_read(x, v->revision);
}

void h_keyspace_get(struct exchange *x)
{
    read_begin(x, get_one);
}

static void put_page(struct exchange *x, struct listing *l)
{
    struct buf *out = exchange_out(x);
    struct ptree_iter it;
    struct slice name;
    const struct dir_keyspace *ks;
    buf_printf(out, "{\"revision\":%" PRIu64 ",\"keyspaces\":[", l->revision);
    ptree_seek(&l->view->keyspaces_by_name, slice_of(l->position, l->position_len), &it);
    for (; (ks = ptree_iter_get(&it, &name)) != NULL && l->count < l->limit; ptree_iter_next(&it)) {
        if (ks->hidden) {
            continue;
        }
        if (l->count++ > 0) {
            buf_put_u8(out, ',');
        }
        keyspace_put_open(out, ks, view_map(l->view, ks)->count, UINT64_MAX);
        buf_put_u8(out, '}');
    }
    buf_put_u8(out, ']');
    if (ks != NULL) {
        listing_next(x, l, name);
    }
    buf_put_u8(out, '}');
}

static void get_list(struct exchange *x, const struct dir_view *v)
{
    struct listing l;
    (void)v;
    if (listing_begin(x, LIST_KEYSPACES, NULL, true, &l)) {
        put_page(x, &l);
        reply_read(x, l.revision);
        listing_end(&l);
    }
}

void h_keyspaces_list(struct exchange *x)
{
    read_begin(x, get_list);
}

/* --- create --- */

/* What a body said, until it is a command. */
struct creation {
    struct dir_keyspace *shape; /* scheme, encoding and placement, for the codecs */
    struct buf policy;
    struct policy_rules rules;
    json_t *splits;
    Cadastre__KeyspaceCreate create;
    Cadastre__Placement placement;
    Cadastre__Label *label_of[DIR_REQUIRE_MAX];
    Cadastre__Label labels[DIR_REQUIRE_MAX];
};

static void close_policy(void *arg)
{
    buf_close(arg);
}

static void read_partition_key(struct mutation *m, struct creation *c, json_t *object, bool is_hash)
{
    struct json_in in;
    struct slice delimiter;
    uint64_t fields;
    if (object == NULL) {
        return;
    }
    if (!is_hash) {
        json_in_fail(&m->in, "partition_key", ERR_UNSUPPORTED_SCHEME, "is for hash keyspaces");
        return;
    }
    json_in_open(&in, object, "/partition_key", &m->err);
    delimiter = json_in_string(&in, "delimiter", true, 1, 1);
    fields = json_in_u64(&in, "fields", true, 1, 1024, NULL);
    if (delimiter.len == 1 && (delimiter.data[0] == 0 || delimiter.data[0] > 0x7e)) {
        json_in_fail(&in, "delimiter", ERR_INVALID_REQUEST, "must be one ASCII character");
    }
    m->in.code = json_in_close(&in);
    c->create.has_partition_key = true;
    c->create.delimiter = delimiter.len == 1 ? delimiter.data[0] : 0;
    c->create.fields = (uint32_t)fields;
}

static void read_scheme(struct mutation *m, struct creation *c)
{
    static const char *const schemes[] = {"range", "hash", "composite", NULL};
    static const char *const encodings[] = {"utf8", "hex", NULL};
    static const char *const authorities[] = {"exclusive", "affinity", NULL};
    int scheme = json_in_enum(&m->in, "scheme", true, schemes, 0);
    bool has_partitions = false;
    json_t *layout = json_in_object(&m->in, "layout", false);
    json_t *key = json_in_object(&m->in, "partition_key", false);
    c->shape->scheme = scheme == 1 ? DIR_SCHEME_HASH : DIR_SCHEME_RANGE;
    c->shape->key_encoding = json_in_enum(&m->in, "key_encoding", false, encodings, 0) == 1
                                 ? DIR_ENCODING_HEX
                                 : DIR_ENCODING_UTF8;
    c->shape->authority = json_in_enum(&m->in, "authority", false, authorities, 0) == 1
                              ? DIR_AUTHORITY_AFFINITY
                              : DIR_AUTHORITY_EXCLUSIVE;
    c->create.partitions =
        json_in_u64(&m->in, "partitions", false, 1, DIR_PARTITIONS_MAX, &has_partitions);
    c->splits = json_in_array(&m->in, "splits", false, 0, DIR_PARTITIONS_MAX - 1);
    if (m->in.code != ERR_OK) {
        return;
    }
    if (scheme == 2) {
        json_in_fail(&m->in, "scheme", ERR_UNSUPPORTED_SCHEME, "composite is not there yet");
    } else if (layout != NULL) {
        json_in_fail(&m->in, "layout", ERR_UNSUPPORTED_SCHEME, "is for composite keyspaces");
    } else if (scheme == 1 && c->splits != NULL) {
        json_in_fail(&m->in, "splits", ERR_UNSUPPORTED_SCHEME, "is for range keyspaces");
    } else if (scheme == 0 && has_partitions) {
        json_in_fail(&m->in, "partitions", ERR_UNSUPPORTED_SCHEME, "is for hash keyspaces");
    } else {
        read_partition_key(m, c, key, scheme == 1);
    }
    if (scheme == 1 && !has_partitions) {
        c->create.partitions = 1;
    }
}

static void read_rules(struct mutation *m, struct creation *c)
{
    json_t *replicas = json_in_object(&m->in, "replicas", false);
    json_t *placement = json_in_object(&m->in, "placement", false);
    json_t *policy = json_in_object(&m->in, "policy", false);
    if (m->in.code == ERR_OK && replicas != NULL) {
        m->in.code =
            replicas_read(replicas, &c->create.sync_replicas, &c->create.async_replicas, &m->err);
    }
    if (m->in.code == ERR_OK && placement != NULL) {
        m->in.code = placement_read(placement, &c->shape->placement, &m->err);
    }
    if (m->in.code == ERR_OK && policy != NULL) {
        m->in.code = policy_merge(policy, slice_of("{}", 2), &c->policy, &c->rules, &m->err);
    }
}

static struct slice *
read_splits(struct exchange *x, struct mutation *m, struct creation *c, uint64_t *ret_count)
{
    struct slice *bounds = bounds_read(x, c->shape, c->splits, "splits", &m->err);
    size_t n = json_array_size(c->splits);
    for (size_t i = 0; i < n && bounds != NULL; i++) {
        if (bounds[i].len == 0 || (i > 0 && slice_cmp(bounds[i - 1], bounds[i]) >= 0)) {
            char pointer[40];
            (void)snprintf(pointer, sizeof pointer, "/splits/%zu", i);
            (void)err_set_at(&m->err, ERR_BAD_SPLIT_KEY, pointer,
                             "split keys are above the lowest key and strictly ascending");
            return NULL;
        }
    }
    *ret_count = n;
    return bounds;
}

/* As many bounds as one command takes; the rest goes in later ones. */
static void chunk(struct exchange *x,
                  struct mutation *m,
                  struct creation *c,
                  const struct slice *bounds,
                  uint64_t count)
{
    size_t bytes = 0, first = 0;
    while (first < count && first < DIR_CREATE_BATCH - 1 && bytes < DIR_COMMAND_MAX / 2) {
        bytes += bounds[first++].len + 8;
    }
    c->create.splits = exchange_alloc(x, (first + 1) * sizeof *c->create.splits);
    c->create.n_splits = first;
    for (size_t i = 0; i < first; i++) {
        c->create.splits[i] = bytes_lent(bounds[i]);
    }
    m->bounds = bounds + first;
    m->bound_count = count - first;
    m->chunked = m->bound_count > 0 || c->create.partitions > DIR_CREATE_BATCH;
    c->create.more = m->bound_count > 0; /* apply knows the chunks of tokens by their number */
}

/* A placement as protobuf wants it. */
static void to_labels(Cadastre__Placement *to,
                      Cadastre__Label *labels,
                      Cadastre__Label **label_of,
                      struct dir_placement *from)
{
    cadastre__placement__init(to);
    to->spread = from->spread;
    to->n_require = from->require_count;
    to->require = label_of;
    for (unsigned i = 0; i < from->require_count; i++) {
        cadastre__label__init(&labels[i]);
        labels[i].name = from->require[i].name;
        labels[i].value = from->require[i].value;
        label_of[i] = &labels[i];
    }
}

/* Partitions of a creation, as its body says: a replay must say the same. */
static uint64_t asked_partitions(const struct mutation *m)
{
    const json_t *splits = json_object_get(m->body, "splits");
    const json_t *partitions = json_object_get(m->body, "partitions");
    if (json_is_integer(partitions)) {
        return (uint64_t)json_integer_value(partitions);
    }
    return json_array_size(splits) + 1;
}

static void render_created(struct exchange *x, const struct mutation *m, const struct dir_result *r)
{
    struct buf *out = exchange_out(x);
    keyspace_put_open(out, r->keyspace, asked_partitions(m), UINT64_MAX);
    buf_printf(out, ",\"revision\":%" PRIu64 "}", r->revision);
    exchange_printf_header(x, "Location", "/v1/keyspaces/%s", r->keyspace->name);
    exchange_reply(x, 201, NULL);
}

void h_keyspaces_create(struct exchange *x)
{
    struct mutation *m = mutation_begin(x, "keyspace_create", render_created);
    struct creation *c;
    struct slice name, *bounds;
    uint64_t count = 0;
    if (m == NULL) {
        return;
    }
    c = exchange_alloc(x, sizeof *c);
    memset(c, 0, sizeof *c);
    c->shape = exchange_alloc(x, sizeof *c->shape);
    memset(c->shape, 0, sizeof *c->shape);
    buf_init(&c->policy, API_BODY_MAX);
    policy_rules_init(&c->rules);
    exchange_on_end(x, close_policy, &c->policy);
    cadastre__keyspace_create__init(&c->create);
    name = json_in_name(&m->in, "name", true);
    read_scheme(m, c);
    read_rules(m, c);
    if (!mutation_close(x, m)) {
        return;
    }
    bounds = read_splits(x, m, c, &count);
    if (bounds == NULL) {
        exchange_problem(x, &m->err, NULL, NULL);
        return;
    }
    memcpy(c->shape->name, name.data, name.len);
    c->create.name = c->shape->name;
    c->create.scheme = c->shape->scheme;
    c->create.key_encoding = c->shape->key_encoding;
    c->create.authority = c->shape->authority;
    to_labels(&c->placement, c->labels, c->label_of, &c->shape->placement);
    c->create.placement = &c->placement;
    c->create.policy = (ProtobufCBinaryData){c->policy.len, c->policy.data};
    c->create.rules = &c->rules.message;
    chunk(x, m, c, bounds, count);
    m->command.body_case = CADASTRE__COMMAND__BODY_KEYSPACE_CREATE;
    m->command.keyspace_create = &c->create;
    mutation_submit(x, m);
}

/* --- change --- */

/* A merge-patch reads what it changes, so there is one at a time for a keyspace. */
enum { PATCHES_MAX = 64 };

struct patch_gate {
    pthread_mutex_t lock;
    uint64_t keyspaces[PATCHES_MAX]; /* 0: free */
};

struct patch_gate *patch_gate_new(void)
{
    struct patch_gate *g = mem_zalloc(sizeof *g);
    (void)pthread_mutex_init(&g->lock, NULL);
    return g;
}

void patch_gate_free(struct patch_gate *g)
{
    (void)pthread_mutex_destroy(&g->lock);
    mem_free(g);
}

struct patch {
    struct patch_gate *gate;
    uint64_t *place;
    struct buf policy;
    struct policy_rules policy_rules;
    struct dir_placement placement;
    uint32_t sync, async;
    Cadastre__KeyspacePatch command;
    Cadastre__Placement rules;
    Cadastre__Label *label_of[DIR_REQUIRE_MAX];
    Cadastre__Label labels[DIR_REQUIRE_MAX];
};

/* Before the answer is sent: who has it may send the next change at once. */
static void patch_leave(void *arg)
{
    struct patch *p = arg;
    if (p->place != NULL) {
        (void)pthread_mutex_lock(&p->gate->lock);
        *p->place = 0;
        (void)pthread_mutex_unlock(&p->gate->lock);
        p->place = NULL;
    }
}

static void patch_end(void *arg)
{
    struct patch *p = arg;
    patch_leave(p);
    buf_close(&p->policy);
}

static bool patch_enter(struct exchange *x, struct patch *p, uint64_t keyspace)
{
    uint64_t *free_place = NULL;
    bool busy = false;
    (void)pthread_mutex_lock(&p->gate->lock);
    for (unsigned i = 0; i < PATCHES_MAX; i++) {
        if (p->gate->keyspaces[i] == keyspace) {
            busy = true;
        } else if (p->gate->keyspaces[i] == 0) {
            free_place = &p->gate->keyspaces[i];
        }
    }
    if (!busy && free_place != NULL) {
        *free_place = keyspace;
        p->place = free_place;
    }
    (void)pthread_mutex_unlock(&p->gate->lock);
    if (busy) {
        reply_problem(x, ERR_KEYSPACE_BUSY, "another change of this keyspace is under way");
    } else if (free_place == NULL) {
        reply_unavailable(x, ERR_OVERLOADED, "too many keyspaces are being changed");
    }
    return p->place != NULL;
}

/* What the keyspace has now, before the patch. */
static bool patch_base(struct exchange *x, struct patch *p, struct buf *policy)
{
    const struct dir_keyspace *ks = read_keyspace(x, view_enter(api_slot(x)));
    if (ks != NULL) {
        p->command.keyspace = ks->id;
        p->placement = ks->placement;
        p->sync = ks->sync_replicas;
        p->async = ks->async_replicas;
        buf_put(policy, ks->policy, ks->policy_len);
    }
    view_leave();
    return ks != NULL;
}

static void patch_placement(struct mutation *m, struct patch *p)
{
    json_t *given;
    p->command.has_placement = json_object_get(m->body, "placement") != NULL;
    if (json_in_null(&m->in, "placement")) {
        memset(&p->placement, 0, sizeof p->placement);
        return;
    }
    given = json_in_object(&m->in, "placement", false);
    if (m->in.code == ERR_OK && given != NULL) {
        m->in.code = placement_read(given, &p->placement, &m->err);
    }
}

static void patch_rest(struct mutation *m, struct patch *p, struct slice old_policy)
{
    json_t *given;
    p->command.has_policy = json_object_get(m->body, "policy") != NULL;
    if (json_in_null(&m->in, "policy")) {
        buf_put_str(&p->policy, "{}");
    } else {
        given = json_in_object(&m->in, "policy", false);
        if (m->in.code == ERR_OK && given != NULL) {
            m->in.code = policy_merge(given, old_policy, &p->policy, &p->policy_rules, &m->err);
        }
    }
    p->command.has_replicas = json_object_get(m->body, "replicas") != NULL;
    if (json_in_null(&m->in, "replicas")) {
        p->sync = p->async = 0;
    } else {
        given = json_in_object(&m->in, "replicas", false);
        if (m->in.code == ERR_OK && given != NULL) {
            m->in.code = replicas_read(given, &p->sync, &p->async, &m->err);
        }
    }
}

static void
render_keyspace(struct exchange *x, const struct mutation *m, const struct dir_result *r)
{
    struct buf *out = exchange_out(x);
    (void)m;
    keyspace_put_open(out, r->keyspace, r->partitions, UINT64_MAX);
    buf_printf(out, ",\"revision\":%" PRIu64 "}", r->revision);
    exchange_reply(x, 200, NULL);
}

void h_keyspace_patch(struct exchange *x)
{
    struct mutation *m = mutation_begin(x, "keyspace_patch", render_keyspace);
    struct patch *p;
    struct buf old_policy;
    uint64_t keyspace;
    bool submitted = false;
    if (m == NULL || !mutation_keyspace(x, &keyspace)) {
        return;
    }
    p = exchange_alloc(x, sizeof *p);
    memset(p, 0, sizeof *p);
    p->gate = exchange_api(x)->patches;
    buf_init(&p->policy, API_BODY_MAX);
    policy_rules_init(&p->policy_rules);
    exchange_on_end(x, patch_end, p);
    cadastre__keyspace_patch__init(&p->command);
    buf_init(&old_policy, API_BODY_MAX);
    if (patch_enter(x, p, keyspace) && patch_base(x, p, &old_policy)) {
        patch_placement(m, p);
        patch_rest(m, p, slice_of(old_policy.data, old_policy.len));
        if (mutation_close(x, m)) {
            to_labels(&p->rules, p->labels, p->label_of, &p->placement);
            p->command.placement = &p->rules;
            p->command.policy = (ProtobufCBinaryData){p->policy.len, p->policy.data};
            p->command.rules = &p->policy_rules.message;
            p->command.sync_replicas = p->sync;
            p->command.async_replicas = p->async;
            m->command.body_case = CADASTRE__COMMAND__BODY_KEYSPACE_PATCH;
            m->command.keyspace_patch = &p->command;
            m->settled = patch_leave;
            m->settled_arg = p;
            mutation_submit(x, m);
            submitted = true;
        }
    }
    if (!submitted) {
        patch_leave(p);
    }
    buf_close(&old_policy);
}

/* --- remove --- */

void h_keyspace_delete(struct exchange *x)
{
    struct mutation *m = mutation_begin(x, "keyspace_delete", render_revision);
    const struct slice *confirm = exchange_param(x, "confirm");
    Cadastre__KeyspaceDelete *command;
    uint64_t keyspace;
    if (m == NULL || !mutation_close(x, m)) {
        return;
    }
    if (confirm == NULL || !slice_eq(*confirm, exchange_path(x, 0))) {
        reply_problem(x, ERR_INVALID_REQUEST,
                      "query parameter confirm must repeat the keyspace's name");
        return;
    }
    if (!mutation_keyspace(x, &keyspace)) {
        return;
    }
    command = exchange_alloc(x, sizeof *command);
    cadastre__keyspace_delete__init(command);
    command->keyspace = keyspace;
    m->command.body_case = CADASTRE__COMMAND__BODY_KEYSPACE_DELETE;
    m->command.keyspace_delete = command;
    mutation_submit(x, m);
}
