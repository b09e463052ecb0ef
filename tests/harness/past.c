/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/harness/past.h"

#include "base/assert.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- what routes show --- */

static void put_hex(struct buf *out, struct slice bytes)
{
    for (size_t i = 0; i < bytes.len; i++) {
        buf_printf(out, "%02x", bytes.data[i]);
    }
}

static char *take_text(struct buf *b)
{
    size_t len;
    buf_put_u8(b, '\0');
    ASSERT(!b->overflow);
    return (char *)buf_take(b, &len);
}

static char *route_text(const struct dir_view *v, const struct dir_partition *p)
{
    struct buf b;
    buf_init(&b, 1 << 16);
    buf_printf(&b, "%" PRIu64 " ", p->id);
    put_hex(&b, dir_partition_start(p));
    buf_put_str(&b, "..");
    if (!p->end_open) {
        put_hex(&b, dir_partition_end(p));
    }
    buf_printf(&b, " e%" PRIu64 " m%" PRIu64 " s%u l%" PRIu64 " p%d", p->epoch,
               view_route_revision(v, p), p->state, p->rate_limit, p->pinned);
    for (unsigned i = 0; i < p->replica_count; i++) {
        const struct dir_node *n = view_node_by_id(v, p->replicas[i].node);
        ASSERT(n != NULL);
        buf_printf(&b, " %s@%s:%u%s", n->name, n->address, p->replicas[i].role,
                   n->is_static ? "!" : "");
    }
    return take_text(&b);
}

char *past_version_text(const struct store_version *v)
{
    struct buf b;
    buf_init(&b, 1 << 16);
    buf_printf(&b, "%" PRIu64 " ", v->partition);
    put_hex(&b, v->start);
    buf_put_str(&b, "..");
    if (!v->end_open) {
        put_hex(&b, v->end);
    }
    buf_printf(&b, " e%" PRIu64 " m%" PRIu64 " s%u l%" PRIu64 " p%d", v->epoch, v->mod_revision,
               v->state, v->rate_limit, v->pinned);
    for (unsigned i = 0; i < v->replica_count; i++) {
        buf_printf(&b, " %s@%s:%u%s", v->replicas[i].name, v->replicas[i].address,
                   v->replicas[i].role, v->replicas[i].is_static ? "!" : "");
    }
    return take_text(&b);
}

static void
remember_map(struct past_map *m, const struct dir_view *v, const struct dir_keyspace *ks)
{
    const struct ptree *map = view_map(v, ks);
    struct ptree_iter it;
    const struct dir_partition *p;
    *m = (struct past_map){.keyspace = ks->id};
    memcpy(m->name, ks->name, sizeof m->name);
    m->routes = mem_zalloc(map->count * sizeof *m->routes);
    for (ptree_seek(map, slice_of(NULL, 0), &it); (p = ptree_iter_get(&it, NULL)) != NULL;
         ptree_iter_next(&it)) {
        struct slice start = dir_partition_start(p);
        m->routes[m->count++] = (struct past_route){
            .id = p->id,
            .start = mem_dup(start.data, start.len),
            .start_len = start.len,
            .text = route_text(v, p),
        };
    }
}

static void forget(struct past_state *st)
{
    for (uint64_t i = 0; i < st->count; i++) {
        for (uint64_t j = 0; j < st->maps[i].count; j++) {
            mem_free(st->maps[i].routes[j].start);
            mem_free(st->maps[i].routes[j].text);
        }
        mem_free(st->maps[i].routes);
    }
    mem_free(st->maps);
    *st = (struct past_state){0};
}

static void remember(struct past *w)
{
    const struct dir_view *v = directory_state(w->d);
    if (!w->remember || v->revision < w->state_count) {
        return;
    }
    w->states = mem_realloc(w->states, (v->revision + 1) * sizeof *w->states);
    while (w->state_count <= v->revision) {
        w->states[w->state_count++] = (struct past_state){0};
    }
    struct past_state *st = &w->states[v->revision];
    st->maps = mem_zalloc(v->keyspaces.count * sizeof *st->maps);
    struct ptree_iter it;
    const struct dir_keyspace *ks;
    for (ptree_seek(&v->keyspaces, slice_of(NULL, 0), &it);
         (ks = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        if (!ks->hidden) {
            remember_map(&st->maps[st->count++], v, ks);
        }
    }
}

const struct past_map *past_map_at(const struct past *w, dir_rev revision, uint64_t keyspace)
{
    if (revision >= w->state_count) {
        return NULL;
    }
    const struct past_state *st = &w->states[revision];
    for (uint64_t i = 0; i < st->count; i++) {
        if (st->maps[i].keyspace == keyspace) {
            return &st->maps[i];
        }
    }
    return NULL;
}

/* --- life --- */

void past_open(struct past *w, uint64_t seed, bool remember_states)
{
    struct err e;
    *w = (struct past){.rand = {seed}, .time_ms = 1000, .remember = remember_states};
    const char *base = getenv("TMPDIR");
    w->folder = mem_printf("%s/store-past-XXXXXX", base != NULL ? base : "/tmp");
    ASSERT(mkdtemp(w->folder) != NULL);
    w->path = mem_printf("%s/store.db", w->folder);
    w->d = directory_new();
    enum err_code code = store_open(w->path, &w->s, &e);
    ASSERT(code == ERR_OK);
    remember(w);
}

void past_close(struct past *w)
{
    store_close(w->s);
    directory_free(w->d);
    for (uint64_t i = 0; i < w->state_count; i++) {
        forget(&w->states[i]);
    }
    mem_free(w->states);
    static const char *const ends[] = {"", "-wal", "-shm", ".restore", ".copy", ".backup"};
    for (unsigned i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        char *name = mem_printf("%s%s", w->path, ends[i]);
        (void)unlink(name); /* most are not there */
        mem_free(name);
    }
    CHECK(rmdir(w->folder) == 0);
    mem_free(w->path);
    mem_free(w->folder);
}

/* --- commands --- */

enum err_code past_apply(struct past *w, Cadastre__Command *cmd)
{
    struct dir_effects *effects = NULL;
    w->time_ms += 1 + tap_rand_below(&w->rand, 50);
    cmd->time_ms = w->time_ms;
    size_t len = cadastre__command__get_packed_size(cmd);
    uint8_t *bytes = mem_alloc(len);
    (void)cadastre__command__pack(cmd, bytes);
    w->index += tap_rand_below(&w->rand, 3) > 0; /* some share an entry */
    struct dir_result *r = directory_apply(w->d, w->index, slice_of(bytes, len), &effects);
    mem_free(bytes);
    enum err_code code = r->err.code;
    result_unref(r);
    directory_publish(w->d);
    remember(w);
    store_push(w->s, effects);
    return code;
}

static Cadastre__Command command(Cadastre__Command__BodyCase body)
{
    static char who[] = "tester", from[] = "127.0.0.1", id[] = "r-1";
    Cadastre__Command c;
    cadastre__command__init(&c);
    c.principal = who;
    c.remote = from;
    c.request_id = id;
    c.body_case = body;
    return c;
}

enum err_code past_node(struct past *w, const char *name, const char *address)
{
    Cadastre__NodePut m;
    cadastre__node_put__init(&m);
    Cadastre__Command c = command(CADASTRE__COMMAND__BODY_NODE_PUT);
    m.name = mem_strdup(name);
    m.address = mem_strdup(address);
    m.is_static = true;
    c.node_put = &m;
    enum err_code code = past_apply(w, &c);
    mem_free(m.name);
    mem_free(m.address);
    return code;
}

void past_start(struct past *w, unsigned nodes)
{
    static char cluster[] = "0123456789abcdef0123456789abcdef";
    static char raft[] = "127.0.0.1:7401", api[] = "http://127.0.0.1:7400";
    static uint8_t instance[16] = {7};
    Cadastre__ServerPut member, *server = &member;
    cadastre__server_put__init(&member);
    member.id = 1;
    member.raft_address = raft;
    member.api_url = api;
    member.role = 1;
    member.instance = (ProtobufCBinaryData){sizeof instance, instance};
    Cadastre__Bootstrap m;
    cadastre__bootstrap__init(&m);
    Cadastre__Command c = command(CADASTRE__COMMAND__BODY_BOOTSTRAP);
    m.cluster = cluster;
    m.generation = 1;
    m.servers = &server;
    m.n_servers = 1;
    c.bootstrap = &m;
    CHECK(past_apply(w, &c) == ERR_OK);
    for (unsigned i = 0; i < nodes; i++) {
        char name[16], address[32];
        (void)snprintf(name, sizeof name, "n%u", i);
        (void)snprintf(address, sizeof address, "10.0.0.%u:1", i);
        CHECK(past_node(w, name, address) == ERR_OK);
    }
}

static enum err_code
create(struct past *w, const char *name, uint64_t hash_partitions, unsigned splits, bool more)
{
    Cadastre__KeyspaceCreate m;
    cadastre__keyspace_create__init(&m);
    Cadastre__Command c = command(CADASTRE__COMMAND__BODY_KEYSPACE_CREATE);
    ProtobufCBinaryData at[8];
    uint8_t keys[8];
    for (unsigned i = 0; i < splits; i++) {
        keys[i] = (uint8_t)(10 * (i + 1));
        at[i] = (ProtobufCBinaryData){1, &keys[i]};
    }
    m.name = mem_strdup(name);
    m.scheme = hash_partitions > 0 ? DIR_SCHEME_HASH : DIR_SCHEME_RANGE;
    m.key_encoding = DIR_ENCODING_HEX;
    m.authority = DIR_AUTHORITY_AFFINITY;
    m.partitions = hash_partitions;
    m.splits = at;
    m.n_splits = splits;
    m.more = more;
    m.sync_replicas = (uint32_t)tap_rand_below(&w->rand, 3);
    c.keyspace_create = &m;
    enum err_code code = past_apply(w, &c);
    mem_free(m.name);
    return code;
}

enum err_code past_keyspace(struct past *w, const char *name, uint64_t hash_partitions)
{
    return create(w, name, hash_partitions, 0, false);
}

static enum err_code grow(struct past *w, uint64_t keyspace, unsigned first, bool last)
{
    Cadastre__KeyspaceGrow m;
    cadastre__keyspace_grow__init(&m);
    Cadastre__Command c = command(CADASTRE__COMMAND__BODY_KEYSPACE_GROW);
    ProtobufCBinaryData at[4];
    uint8_t keys[4];
    for (unsigned i = 0; i < 4; i++) {
        keys[i] = (uint8_t)(first + i);
        at[i] = (ProtobufCBinaryData){1, &keys[i]};
    }
    m.keyspace = keyspace;
    m.splits = at;
    m.n_splits = 4;
    m.last = last;
    c.keyspace_grow = &m;
    return past_apply(w, &c);
}

static enum err_code create_in_chunks(struct past *w, const char *name)
{
    uint64_t id = directory_state(w->d)->next_id;
    enum err_code code = create(w, name, 0, 3, true);
    if (code == ERR_OK) {
        code = grow(w, id, 100, false);
        (void)past_random(w); /* goes on meanwhile */
    }
    if (code == ERR_OK && tap_rand_below(&w->rand, 4) > 0) {
        code = grow(w, id, 200, true);
    }
    return code;
}

void past_large(struct past *w, const char *name, uint64_t partitions)
{
    uint64_t id = directory_state(w->d)->next_id;
    enum err_code code = create(w, name, partitions, 0, false);
    for (uint64_t done = DIR_CREATE_BATCH; done < partitions && code == ERR_OK;
         done += DIR_CREATE_BATCH) {
        Cadastre__KeyspaceGrow m;
        cadastre__keyspace_grow__init(&m);
        Cadastre__Command c = command(CADASTRE__COMMAND__BODY_KEYSPACE_GROW);
        m.keyspace = id;
        m.last = done + DIR_CREATE_BATCH >= partitions;
        c.keyspace_grow = &m;
        code = past_apply(w, &c);
    }
    CHECK(code == ERR_OK);
}

enum err_code past_split(struct past *w, uint64_t partition, const void *at, size_t at_len)
{
    Cadastre__Split m;
    cadastre__split__init(&m);
    Cadastre__Command c = command(CADASTRE__COMMAND__BODY_SPLIT);
    ProtobufCBinaryData key = {at_len, mem_dup(at, at_len)};
    m.partition = partition;
    m.n_at = 1;
    m.at = &key;
    c.split = &m;
    enum err_code code = past_apply(w, &c);
    mem_free(key.data);
    return code;
}

enum err_code past_move(struct past *w, uint64_t partition, const char *to)
{
    Cadastre__Reassign m;
    cadastre__reassign__init(&m);
    Cadastre__Command c = command(CADASTRE__COMMAND__BODY_REASSIGN);
    static char none[] = "", digest[] = "0123456789abcdef";
    char key[32];
    (void)snprintf(key, sizeof key, "move-%" PRIu64, tap_rand(&w->rand));
    m.partition = partition;
    m.from = none;
    m.to = mem_strdup(to);
    m.reason = none;
    c.reassign = &m;
    c.idempotency_key = key;
    c.digest = (ProtobufCBinaryData){16, (uint8_t *)digest};
    enum err_code code = past_apply(w, &c);
    mem_free(m.to);
    return code;
}

enum err_code past_delete(struct past *w, uint64_t keyspace)
{
    Cadastre__KeyspaceDelete m;
    cadastre__keyspace_delete__init(&m);
    Cadastre__Command c = command(CADASTRE__COMMAND__BODY_KEYSPACE_DELETE);
    m.keyspace = keyspace;
    c.keyspace_delete = &m;
    return past_apply(w, &c);
}

enum err_code past_history_max(struct past *w, uint64_t revisions)
{
    Cadastre__SettingsPatch m;
    cadastre__settings_patch__init(&m);
    Cadastre__Command c = command(CADASTRE__COMMAND__BODY_SETTINGS_PATCH);
    m.has_history_max = true;
    m.history_max = revisions;
    c.settings_patch = &m;
    return past_apply(w, &c);
}

/* --- at random --- */

static void *any(struct past *w, const struct ptree *t)
{
    struct ptree_iter it;
    uint64_t n = t->count > 0 ? tap_rand_below(&w->rand, t->count) : 0;
    ptree_seek(t, slice_of(NULL, 0), &it);
    while (n-- > 0) {
        ptree_iter_next(&it);
    }
    return ptree_iter_get(&it, NULL);
}

const struct dir_partition *past_any_partition(struct past *w)
{
    return any(w, &directory_state(w->d)->partitions);
}

static enum err_code random_split(struct past *w)
{
    const struct dir_partition *p = past_any_partition(w);
    uint8_t key[24];
    struct slice start;
    if (p == NULL || (start = dir_partition_start(p)).len > 16) {
        return ERR_OK;
    }
    if (start.len > 0) {
        memcpy(key, start.data, start.len);
    }
    size_t len = start.len + 1 + tap_rand_below(&w->rand, 3);
    for (size_t i = start.len; i < len; i++) {
        key[i] = (uint8_t)tap_rand(&w->rand);
    }
    return past_split(w, p->id, key, len);
}

static enum err_code random_merge(struct past *w)
{
    const struct dir_view *v = directory_state(w->d);
    const struct dir_partition *p = past_any_partition(w), *q;
    const struct dir_keyspace *ks = p != NULL ? view_keyspace_by_id(v, p->keyspace) : NULL;
    struct ptree_iter it;
    if (ks == NULL) {
        return ERR_OK;
    }
    ptree_seek(view_map(v, ks), dir_partition_start(p), &it);
    ptree_iter_next(&it);
    q = ptree_iter_get(&it, NULL);
    Cadastre__Merge m;
    cadastre__merge__init(&m);
    Cadastre__Command c = command(CADASTRE__COMMAND__BODY_MERGE);
    m.partition = p->id;
    m.with = q != NULL ? q->id : p->id;
    c.merge = &m;
    return past_apply(w, &c);
}

static enum err_code random_move(struct past *w)
{
    const struct dir_partition *p = past_any_partition(w);
    const struct dir_node *n = any(w, &directory_state(w->d)->nodes);
    return p != NULL && n != NULL ? past_move(w, p->id, n->name) : ERR_OK;
}

static enum err_code random_node(struct past *w)
{
    char name[16], address[32];
    uint64_t n = tap_rand_below(&w->rand, 8);
    (void)snprintf(name, sizeof name, "n%" PRIu64, n);
    (void)snprintf(address, sizeof address, "10.0.%" PRIu64 ".%" PRIu64 ":1",
                   tap_rand_below(&w->rand, 4), n);
    return past_node(w, name, address);
}

static enum err_code random_node_delete(struct past *w)
{
    Cadastre__NodeDelete m;
    cadastre__node_delete__init(&m);
    Cadastre__Command c = command(CADASTRE__COMMAND__BODY_NODE_DELETE);
    const struct dir_node *n = any(w, &directory_state(w->d)->nodes);
    if (n == NULL) {
        return ERR_OK;
    }
    m.name = mem_strdup(n->name);
    m.force = tap_rand_below(&w->rand, 2) == 0;
    c.node_delete = &m;
    enum err_code code = past_apply(w, &c);
    mem_free(m.name);
    return code;
}

static enum err_code random_patch(struct past *w)
{
    const struct dir_partition *p = past_any_partition(w);
    Cadastre__PartitionPatch m;
    cadastre__partition_patch__init(&m);
    Cadastre__Command c = command(CADASTRE__COMMAND__BODY_PARTITION_PATCH);
    m.partition = p != NULL ? p->id : 1;
    m.has_pinned = tap_rand_below(&w->rand, 2) == 0;
    m.pinned = tap_rand_below(&w->rand, 2) == 0;
    m.has_rate_limit = tap_rand_below(&w->rand, 2) == 0;
    m.rate_limit = tap_rand_below(&w->rand, 3) * 100;
    c.partition_patch = &m;
    return past_apply(w, &c);
}

static enum err_code random_keyspace(struct past *w)
{
    char name[16];
    (void)snprintf(name, sizeof name, "ks%" PRIu64, tap_rand_below(&w->rand, 4));
    uint64_t how = tap_rand_below(&w->rand, 3);
    if (how == 0) {
        return create(w, name, 1 + tap_rand_below(&w->rand, 12), 0, false);
    }
    return how == 1 ? create(w, name, 0, (unsigned)tap_rand_below(&w->rand, 6), false)
                    : create_in_chunks(w, name);
}

static enum err_code random_keyspace_patch(struct past *w)
{
    Cadastre__KeyspacePatch m;
    cadastre__keyspace_patch__init(&m);
    Cadastre__Command c = command(CADASTRE__COMMAND__BODY_KEYSPACE_PATCH);
    const struct dir_keyspace *ks = any(w, &directory_state(w->d)->keyspaces);
    char policy[] = "{\"a\":0}";
    if (ks == NULL) {
        return ERR_OK;
    }
    policy[5] = (char)('0' + tap_rand_below(&w->rand, 10));
    m.keyspace = ks->id;
    m.has_policy = true;
    m.policy = (ProtobufCBinaryData){sizeof policy - 1, (uint8_t *)policy};
    c.keyspace_patch = &m;
    return past_apply(w, &c);
}

static enum err_code random_delete(struct past *w)
{
    const struct dir_keyspace *ks = any(w, &directory_state(w->d)->keyspaces);
    return ks != NULL ? past_delete(w, ks->id) : ERR_OK;
}

static enum err_code random_tick(struct past *w)
{
    Cadastre__Tick m;
    cadastre__tick__init(&m);
    Cadastre__Command c = command(CADASTRE__COMMAND__BODY_TICK);
    c.tick = &m;
    return past_apply(w, &c);
}

static enum err_code random_place(struct past *w)
{
    Cadastre__Place m;
    cadastre__place__init(&m);
    Cadastre__Command c = command(CADASTRE__COMMAND__BODY_PLACE);
    c.place = &m;
    return past_apply(w, &c);
}

enum err_code past_random(struct past *w)
{
    static enum err_code (*const kinds[])(struct past *) = {
        random_split,    random_split, random_split,         random_split, random_merge,
        random_merge,    random_move,  random_move,          random_move,  random_move,
        random_node,     random_node,  random_patch,         random_tick,  random_keyspace,
        random_keyspace, random_place, random_keyspace_patch};
    uint64_t n = tap_rand_below(&w->rand, 60);
    if (n == 59) {
        return random_delete(w);
    }
    return n == 58 ? random_node_delete(w) : kinds[n % (sizeof kinds / sizeof kinds[0])](w);
}

/* --- snapshots --- */

uint8_t *past_snapshot(struct past *w, size_t *ret_len)
{
    struct err e;
    struct slice pieces[2];
    struct store_snapshot *snap = store_snapshot_begin(w->s, w->index);
    ASSERT(snap != NULL);
    enum err_code code = store_snapshot_wait(snap, pieces, &e);
    ASSERT(code == ERR_OK);
    uint8_t *bytes = mem_alloc(pieces[0].len + pieces[1].len);
    memcpy(bytes, pieces[0].data, pieces[0].len);
    memcpy(bytes + pieces[0].len, pieces[1].data, pieces[1].len);
    *ret_len = pieces[0].len + pieces[1].len;
    store_snapshot_end(snap);
    return bytes;
}
