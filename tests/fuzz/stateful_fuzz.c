/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes as a sequence of well-formed commands: whatever the order, every invariant holds after
 * each, a refusal changes nothing, dry runs say what apply says, the rows told of are the whole
 * state, and a replay gives the first outcome. */
#include "base/assert.h"
#include "base/mem.h"
#include "tests/fuzz/target.h"
#include "tests/harness/world.h"

#include <stdio.h>
#include <string.h>

enum { COMMANDS_MAX = 48, KEYS_MAX = 4 };

struct input {
    const uint8_t *at;
    size_t left;
};

static uint8_t take(struct input *in)
{
    if (in->left == 0) {
        return 0;
    }
    in->left--;
    return *in->at++;
}

/* Few names and few keys, so that commands meet. */
static char *pick_node(struct input *in)
{
    static char names[][4] = {"n1", "n2", "n3", "n4", "", "N", "n-5"};
    return names[take(in) % (sizeof names / sizeof names[0])];
}

static char *pick_keyspace(struct input *in)
{
    static char names[][4] = {"a", "b", "c", "", "A"};
    return names[take(in) % (sizeof names / sizeof names[0])];
}

static uint64_t pick_id(const struct world *w, struct input *in)
{
    uint8_t b = take(in);
    const struct dir_view *v = world_state(w);
    if (b >= 250) {
        return b == 255 ? UINT64_MAX : b - 250U;
    }
    return v->next_id > b ? v->next_id - b : b;
}

static uint64_t pick_epoch(const struct world *w, struct input *in)
{
    uint8_t b = take(in);
    return b == 255 ? UINT64_MAX : world_state(w)->revision + 2 - b % 8;
}

struct keys {
    uint8_t bytes[KEYS_MAX][3];
    ProtobufCBinaryData of[KEYS_MAX];
    size_t count;
};

static void pick_keys(struct input *in, struct keys *k)
{
    k->count = take(in) % (KEYS_MAX + 1);
    for (size_t i = 0; i < k->count; i++) {
        uint8_t b = take(in);
        k->bytes[i][0] = b;
        k->bytes[i][1] = take(in);
        k->bytes[i][2] = 0;
        k->of[i] = (ProtobufCBinaryData){b % 4, k->bytes[i]};
    }
}

struct labels {
    Cadastre__Label label[2], *of[2];
};

static size_t pick_labels(struct input *in, struct labels *l)
{
    static char names[][8] = {"zone", "rack", "", "zone"};
    static char values[][4] = {"a", "b", "", "7"};
    size_t n = take(in) % 3;
    for (size_t i = 0; i < n; i++) {
        uint8_t b = take(in);
        cadastre__label__init(&l->label[i]);
        l->label[i].name = names[b % 4];
        l->label[i].value = values[b / 4 % 4];
        l->of[i] = &l->label[i];
    }
    return n;
}

/* The room of one command's body and what it points to. */
struct made {
    Cadastre__Command__BodyCase which;
    void *body;
    union {
        Cadastre__KeyspaceCreate create;
        Cadastre__KeyspaceGrow grow;
        Cadastre__KeyspacePatch patch;
        Cadastre__KeyspaceDelete delete_keyspace;
        Cadastre__Split split;
        Cadastre__Merge merge;
        Cadastre__Reassign reassign;
        Cadastre__PartitionPatch change;
        Cadastre__NodePut put;
        Cadastre__NodeDelete delete_node;
        Cadastre__Place place;
        Cadastre__ServerPut server;
        Cadastre__ServerRemove remove;
        Cadastre__SettingsPatch settings;
        Cadastre__StateCheck check;
        Cadastre__Tick tick;
    } u;
    Cadastre__Placement placement;
    struct labels labels, capacity;
    struct keys keys;
    uint8_t instance[16];
};

static void placement(struct input *in, struct made *m)
{
    cadastre__placement__init(&m->placement);
    m->placement.n_require = pick_labels(in, &m->labels);
    m->placement.require = m->labels.of;
    static char spread[][8] = {"", "zone", "rack"};
    m->placement.spread = spread[take(in) % 3];
}

static void make_create(struct input *in, struct made *m)
{
    static uint8_t policy[] = "{}";
    Cadastre__KeyspaceCreate *c = &m->u.create;
    cadastre__keyspace_create__init(c);
    c->name = pick_keyspace(in);
    uint8_t how = take(in);
    c->scheme = how % 4 == 3 ? 9 : 1 + how % 2;
    c->key_encoding = 1 + how / 4 % 2;
    c->authority = 1 + how / 8 % 2;
    c->more = how >= 224;
    c->sync_replicas = how / 16 % 4;
    c->async_replicas = how / 64;
    pick_keys(in, &m->keys);
    c->n_splits = m->keys.count;
    c->splits = m->keys.of;
    c->partitions = c->scheme == DIR_SCHEME_HASH ? take(in) % 40 : 0;
    placement(in, m);
    c->placement = &m->placement;
    c->policy = (ProtobufCBinaryData){2, policy};
    m->which = CADASTRE__COMMAND__BODY_KEYSPACE_CREATE;
}

static void make_keyspace_change(const struct world *w, struct input *in, struct made *m)
{
    uint8_t how = take(in);
    if (how % 4 == 0) {
        cadastre__keyspace_delete__init(&m->u.delete_keyspace);
        m->u.delete_keyspace.keyspace = pick_id(w, in);
        m->which = CADASTRE__COMMAND__BODY_KEYSPACE_DELETE;
    } else if (how % 4 == 1) {
        cadastre__keyspace_grow__init(&m->u.grow);
        m->u.grow.keyspace = pick_id(w, in);
        pick_keys(in, &m->keys);
        m->u.grow.n_splits = m->keys.count;
        m->u.grow.splits = m->keys.of;
        m->u.grow.last = how >= 128;
        m->which = CADASTRE__COMMAND__BODY_KEYSPACE_GROW;
    } else {
        cadastre__keyspace_patch__init(&m->u.patch);
        m->u.patch.keyspace = pick_id(w, in);
        m->u.patch.has_placement = (how & 8) != 0;
        m->u.patch.has_replicas = (how & 16) != 0;
        m->u.patch.sync_replicas = how / 32 % 4;
        m->u.patch.async_replicas = how / 128;
        placement(in, m);
        m->u.patch.placement = &m->placement;
        m->which = CADASTRE__COMMAND__BODY_KEYSPACE_PATCH;
    }
}

static void make_split(const struct world *w, struct input *in, struct made *m)
{
    cadastre__split__init(&m->u.split);
    m->u.split.partition = pick_id(w, in);
    pick_keys(in, &m->keys);
    m->u.split.n_at = m->keys.count;
    m->u.split.at = m->keys.of;
    m->u.split.has_expect_epoch = take(in) % 8 == 1;
    m->u.split.expect_epoch = pick_epoch(w, in);
    m->which = CADASTRE__COMMAND__BODY_SPLIT;
}

static void make_merge(const struct world *w, struct input *in, struct made *m)
{
    cadastre__merge__init(&m->u.merge);
    m->u.merge.partition = pick_id(w, in);
    m->u.merge.with = pick_id(w, in);
    m->u.merge.has_expect_epoch = take(in) % 8 == 1;
    m->u.merge.expect_epoch = pick_epoch(w, in);
    m->which = CADASTRE__COMMAND__BODY_MERGE;
}

static void make_reassign(const struct world *w, struct input *in, struct made *m)
{
    static char reason[] = "fuzz";
    cadastre__reassign__init(&m->u.reassign);
    m->u.reassign.partition = pick_id(w, in);
    m->u.reassign.from = pick_node(in);
    m->u.reassign.to = pick_node(in);
    m->u.reassign.has_expect_epoch = take(in) % 8 == 1;
    m->u.reassign.expect_epoch = pick_epoch(w, in);
    m->u.reassign.reason = reason;
    m->which = CADASTRE__COMMAND__BODY_REASSIGN;
}

static void make_partition_patch(const struct world *w, struct input *in, struct made *m)
{
    uint8_t how = take(in);
    cadastre__partition_patch__init(&m->u.change);
    m->u.change.partition = pick_id(w, in);
    m->u.change.has_pinned = how & 1;
    m->u.change.pinned = (how & 2) != 0;
    m->u.change.has_rate_limit = (how & 4) != 0;
    m->u.change.rate_limit = how == 255 ? UINT64_MAX : how / 16;
    m->which = CADASTRE__COMMAND__BODY_PARTITION_PATCH;
}

static void make_node(struct input *in, struct made *m)
{
    static char addresses[][8] = {"h:1", "h:2", "h:3", "", "x"};
    uint8_t how = take(in);
    if (how % 4 == 3) {
        cadastre__node_delete__init(&m->u.delete_node);
        m->u.delete_node.name = pick_node(in);
        m->u.delete_node.force = how >= 128;
        m->which = CADASTRE__COMMAND__BODY_NODE_DELETE;
        return;
    }
    cadastre__node_put__init(&m->u.put);
    m->u.put.name = pick_node(in);
    m->u.put.address = addresses[how / 4 % 5];
    m->u.put.n_labels = pick_labels(in, &m->labels);
    m->u.put.labels = m->labels.of;
    m->u.put.n_capacity = pick_labels(in, &m->capacity);
    m->u.put.capacity = m->capacity.of;
    m->u.put.is_static = how < 224;
    m->which = CADASTRE__COMMAND__BODY_NODE_PUT;
}

static void make_server(struct input *in, struct made *m)
{
    static char raft[][8] = {"h:1", "h:2", ""}, api[][12] = {"http://h:1", "http://h:2", ""};
    uint8_t how = take(in);
    if (how % 4 == 0) {
        cadastre__server_remove__init(&m->u.remove);
        m->u.remove.id = how / 4 % 8;
        m->which = CADASTRE__COMMAND__BODY_SERVER_REMOVE;
        return;
    }
    cadastre__server_put__init(&m->u.server);
    m->u.server.id = how / 4 % 8;
    m->u.server.raft_address = raft[how / 32 % 3];
    m->u.server.api_url = api[take(in) % 3];
    m->u.server.role = take(in) % 4;
    m->instance[0] = take(in) % 4;
    m->u.server.instance = (ProtobufCBinaryData){how < 240 ? 16 : 15, m->instance};
    m->which = CADASTRE__COMMAND__BODY_SERVER_PUT;
}

static void make_settings(struct input *in, struct made *m)
{
    cadastre__settings_patch__init(&m->u.settings);
    uint8_t how = take(in);
    m->u.settings.has_history_max = how & 1;
    m->u.settings.history_max = take(in);
    m->u.settings.has_history_retention_ms = (how & 2) != 0;
    m->u.settings.history_retention_ms = 100 * (uint64_t)take(in);
    m->u.settings.has_dedupe_retention_ms = (how & 4) != 0;
    m->u.settings.dedupe_retention_ms = 100 * (uint64_t)take(in);
    m->which = CADASTRE__COMMAND__BODY_SETTINGS_PATCH;
}

static void make_small(struct input *in, struct made *m)
{
    uint8_t how = take(in);
    if (how % 2 == 0) {
        cadastre__tick__init(&m->u.tick);
        m->which = CADASTRE__COMMAND__BODY_TICK;
    } else {
        cadastre__place__init(&m->u.place);
        m->which = CADASTRE__COMMAND__BODY_PLACE;
    }
}

static void make(const struct world *w, struct input *in, struct made *m)
{
    memset(m, 0, sizeof *m);
    m->body = &m->u;
    switch (take(in) % 16) {
    case 0:
    case 1:
        make_create(in, m);
        break;
    case 2:
        make_keyspace_change(w, in, m);
        break;
    case 3:
    case 4:
    case 5:
        make_split(w, in, m);
        break;
    case 6:
    case 7:
        make_merge(w, in, m);
        break;
    case 8:
    case 9:
        make_reassign(w, in, m);
        break;
    case 10:
        make_partition_patch(w, in, m);
        break;
    case 11:
        make_server(in, m);
        break;
    case 12:
        make_settings(in, m);
        break;
    case 13:
        make_small(in, m);
        break;
    default:
        make_node(in, m);
    }
}

static void fail(void *arg, const char *line)
{
    (void)arg;
    (void)fprintf(stderr, "violated: %s\n", line);
}

static void check(const struct world *w)
{
    ASSERT(dir_check(world_state(w), fail, NULL, 8) == 0);
    ASSERT(w->rows_consistent);
}

static void reload(const struct world *w)
{
    struct err e;
    struct directory *again = world_reload(w, &e);
    if (again == NULL) {
        (void)fprintf(stderr, "reload: %s\n", e.detail);
    }
    ASSERT(again != NULL);
    directory_free(again);
}

static void step(struct world *w, struct input *in)
{
    static const char *const keys[] = {NULL, NULL, NULL, "k1", "k2", "k3"};
    struct made m;
    make(w, in, &m);
    uint8_t how = take(in);
    dir_rev before = world_state(w)->revision;
    w->time_ms += how / 8;
    w->principal = how % 2 == 0 ? "p" : "q";
    w->key = keys[how % 6];
    struct dir_result *dry = world_try(w, m.which, m.body);
    enum err_code expected = dry->err.code;
    bool replayed = dry->replayed;
    result_unref(dry);
    const struct dir_result *r = world_do(w, m.which, m.body);
    dir_rev after = world_state(w)->revision;
    ASSERT(r->err.code == expected && r->replayed == replayed);
    ASSERT(after == before || (after == before + 1 && r->err.code == ERR_OK && !r->replayed));
    check(w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, size};
    struct world w;
    world_open(&w);
    (void)world_node(&w, "n1", "h:1");
    for (unsigned i = 0; i < COMMANDS_MAX && in.left > 0; i++) {
        step(&w, &in);
    }
    reload(&w);
    world_close(&w);
    return 0;
}
