/* SPDX-License-Identifier: Apache-2.0 */
/* The state machine against a naive model: sorted lists of ranges, written from the API's text.
 * Every command's outcome is foretold by the model, tried, applied to two directories and compared;
 * the second directory is rebuilt from the rows of the first now and then. */
#include "base/mem.h"
#include "tests/harness/tap.h"
#include "tests/harness/world.h"
#include "tests/property/naive.h"

#include <stdio.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { COMMANDS = 40000 };
#else
enum { COMMANDS = 100000 };
#endif

struct run {
    struct tap_rand rand;
    struct world a, b;
    struct model m;
    uint64_t codes[ERR_COUNT];
    uint64_t accepted, nothing;
};

static uint64_t below(struct run *r, uint64_t n)
{
    return tap_rand_below(&r->rand, n);
}

static bool chance(struct run *r, uint64_t percent)
{
    return below(r, 100) < percent;
}

static bool same_key(const struct key *k, struct slice s)
{
    return k->len == s.len && memcmp(k->bytes, s.data, s.len) == 0;
}

static struct key random_key(struct run *r)
{
    static const uint8_t bytes[] = {0x00, 0x01, 0x61, 0x7f, 0x80, 0xfe, 0xff};
    struct key k = {.len = below(r, KEY_MAX + 1)};
    for (size_t i = 0; i < k.len; i++) {
        k.bytes[i] = bytes[below(r, sizeof bytes)];
    }
    return k;
}

static const char *const keyspace_names[KEYSPACES] = {"one", "two", "three"};
static const char *const node_names[NODES] = {"n0", "n1", "n2", "n3", "n4", "n5"};
static const char *const zones[] = {"a", "b"};

static int random_keyspace(struct run *r)
{
    return (int)below(r, KEYSPACES);
}

/* Mostly a live one, else a retired one, else one that never was. */
static uint64_t random_id(struct run *r)
{
    struct model *m = &r->m;
    if (chance(r, 6) && m->retired_count > 0) {
        uint64_t n = m->retired_count < RETIRED_MAX ? m->retired_count : RETIRED_MAX;
        return m->retired[below(r, n)].id;
    }
    for (int tries = 0; tries < 8 && !chance(r, 3); tries++) {
        const struct keyspace *ks = &m->keyspaces[random_keyspace(r)];
        if (ks->exists) {
            return ks->parts[below(r, (uint64_t)ks->count)].id;
        }
    }
    return UINT64_C(1) << 40;
}

static struct target random_target(struct run *r)
{
    struct target t = {.id = random_id(r)};
    t.code = judge_id(&r->m, t.id, &t.part, &t.keyspace);
    if (chance(r, 30)) {
        uint64_t present = t.part != NULL ? t.part->epoch : 1;
        t.has_epoch = true;
        t.epoch = present + (chance(r, 15) ? 1 + below(r, 3) : 0);
        if (t.epoch == present && present > 1 && chance(r, 15)) {
            t.epoch = present - 1;
        }
        if (t.code == ERR_OK && t.epoch != present) {
            t.code = t.epoch < present ? ERR_STALE_EPOCH : ERR_FUTURE_EPOCH;
        }
    }
    return t;
}

/* --- sending --- */

static bool same_routes(const struct dir_result *x, const struct dir_result *y)
{
    bool same = x->route_count == y->route_count;
    for (uint64_t i = 0; same && i < x->route_count; i++) {
        const struct dir_partition *p = x->routes[i].partition, *q = y->routes[i].partition;
        same = p->id == q->id && p->epoch == q->epoch && p->mod_revision == q->mod_revision &&
               slice_eq(dir_partition_start(p), dir_partition_start(q)) &&
               x->routes[i].mod_revision == y->routes[i].mod_revision;
    }
    return same;
}

static bool same_result(const struct dir_result *x, const struct dir_result *y)
{
    return x->err.code == y->err.code && strcmp(x->err.detail, y->err.detail) == 0 &&
           strcmp(x->err.pointer, y->err.pointer) == 0 && x->revision == y->revision &&
           x->retired == y->retired && x->current_epoch == y->current_epoch &&
           x->current_revision == y->current_revision && same_routes(x, y);
}

static bool same_hash(struct hash128 x, struct hash128 y)
{
    return x.lo == y.lo && x.hi == y.hi;
}

static const struct dir_result *
send(struct run *r, Cadastre__Command__BodyCase which, void *body, enum err_code want)
{
    struct world *w = &r->a;
    struct hash128 before = world_state(w)->hash;
    uint64_t revision = world_state(w)->revision;
    if (chance(r, 4)) {
        w->has_expect = true;
        w->expect = revision;
        if (chance(r, 40)) {
            w->expect = chance(r, 50) ? revision + 1 : revision - 1;
            want = ERR_STALE_REVISION;
        }
    }
    struct dir_result *tried = world_try(w, which, body);
    CHECK(same_hash(before, world_state(w)->hash));
    const struct dir_result *got = world_do(w, which, body);
    CHECK(same_result(tried, got));
    result_unref(tried);
    if (!CHECK_U64(got->err.code, want)) {
        tap_note("answered %s: %s", err_slug(got->err.code), got->err.detail);
    }
    bool changed = world_state(w)->revision != revision;
    CHECK(!changed || world_state(w)->revision == revision + 1);
    CHECK(w->effects != NULL && w->effects->changed == changed);
    if (got->err.code != ERR_OK || !changed) {
        CHECK(same_hash(before, world_state(w)->hash));
    }
    CHECK_U64(got->revision, world_state(w)->revision);
    r->codes[got->err.code]++;
    r->accepted += changed;
    r->nothing += got->err.code == ERR_OK && !changed;
    r->m.revision += changed;
    (void)world_apply(&r->b, w->bytes, w->len);
    CHECK(same_hash(world_state(&r->b)->hash, world_state(w)->hash));
    return got;
}

/* --- what the directory has -> the model, where the model can't know: ids, and who was chosen ---
 */

static int node_index(const char *name)
{
    return name[1] - '0';
}

static void learn_copies(const struct dir_view *v, const struct dir_partition *p, struct part *out)
{
    out->copy_count = p->replica_count;
    for (uint8_t i = 0; i < p->replica_count; i++) {
        out->copies[i].node = node_index(view_node_by_id(v, p->replicas[i].node)->name);
        out->copies[i].role = p->replicas[i].role;
    }
}

/* After a command that may have placed what waited: the chosen nodes must be allowed, and as many
 * as there are. */
static void learn_placed(struct run *r)
{
    struct model *m = &r->m;
    const struct dir_view *v = world_state(&r->a);
    for (int k = 0; r->a.effects->changed && k < KEYSPACES; k++) {
        struct keyspace *ks = &m->keyspaces[k];
        for (int i = 0; ks->exists && i < ks->count; i++) {
            struct part *p = &ks->parts[i];
            const struct dir_partition *now =
                view_partition(v, world_keyspace(&r->a, keyspace_names[k]), p->id, NULL);
            if (p->copy_count > 0 || now->holds_data == false || now->epoch != v->revision) {
                continue;
            }
            learn_copies(v, now, p);
            p->epoch = v->revision;
            unsigned allowed = 0;
            for (int n = 0; n < NODES; n++) {
                allowed += model_may_hold(m, ks, n);
            }
            CHECK_U64(p->copy_count, allowed < 1 + ks->sync ? allowed : 1 + ks->sync);
            for (int c = 0; c < p->copy_count; c++) {
                CHECK(model_may_hold(m, ks, p->copies[c].node));
            }
        }
    }
}

/* --- commands --- */

static size_t split_keys(struct run *r, const struct part *p, struct key out[4])
{
    size_t n = 0, want = below(r, 4) + (chance(r, 95) ? 1 : 0);
    for (int tries = 0; n < want && tries < 60; tries++) {
        struct key k = random_key(r);
        bool wild = p == NULL || chance(r, 1);
        if (wild || (part_inside(p, &k) && key_compare(&k, &p->start) != 0 &&
                     (n == 0 || key_compare(&out[n - 1], &k) < 0))) {
            out[n++] = k;
        }
    }
    if (p != NULL && n > 0 && chance(r, 3)) {
        out[below(r, n)] = chance(r, 50) || p->open ? p->start : p->end;
    }
    return n;
}

static void model_split(struct run *r,
                        const struct target *t,
                        const struct key *keys,
                        size_t n,
                        const struct dir_result *got)
{
    struct keyspace *ks = &r->m.keyspaces[t->keyspace];
    int at = (int)(t->part - ks->parts);
    struct part old = *t->part;
    keyspace_make_room(ks, at, (int)n);
    CHECK_U64(got->route_count, n + 1);
    for (size_t i = 0; i <= n; i++) {
        struct part *p = &ks->parts[(size_t)at + i];
        *p = old;
        p->id = got->routes[i].partition->id;
        p->epoch = r->m.revision;
        CHECK(p->epoch > old.epoch);
        CHECK(p->id > old.id);
        p->start = i == 0 ? old.start : keys[i - 1];
        p->open = i == n && old.open;
        p->end = i == n ? old.end : keys[i];
        if (old.limit > 0) {
            p->limit = old.limit / (n + 1) > 0 ? old.limit / (n + 1) : 1;
        }
    }
    model_retire(&r->m, old.id, t->keyspace);
}

static void do_split(struct run *r)
{
    struct target t = random_target(r);
    struct key keys[4];
    ProtobufCBinaryData at[4];
    Cadastre__Split m;
    cadastre__split__init(&m);
    size_t n = split_keys(r, t.part, keys);
    for (size_t i = 0; i < n; i++) {
        at[i] = (ProtobufCBinaryData){keys[i].len, keys[i].bytes};
    }
    m.partition = t.id;
    m.at = at;
    m.n_at = n;
    m.has_expect_epoch = t.has_epoch;
    m.expect_epoch = t.epoch;
    enum err_code want = t.code == ERR_OK ? judge_keys(t.part, keys, n) : t.code;
    const struct dir_result *got = send(r, CADASTRE__COMMAND__BODY_SPLIT, &m, want);
    if (got->err.code == ERR_OK) {
        model_split(r, &t, keys, n, got);
    }
}

static void do_merge(struct run *r)
{
    struct target t = random_target(r);
    Cadastre__Merge m;
    cadastre__merge__init(&m);
    m.partition = t.id;
    m.has_expect_epoch = t.has_epoch;
    m.expect_epoch = t.epoch;
    m.with = random_id(r);
    if (t.part != NULL && chance(r, 85)) {
        const struct keyspace *ks = &r->m.keyspaces[t.keyspace];
        int64_t at = t.part - ks->parts;
        int64_t other = at + (chance(r, 50) ? 1 : -1);
        m.with = ks->parts[other < 0 || other >= ks->count ? at : other].id;
    }
    struct part *q;
    int other_keyspace = 0;
    enum err_code want = t.code;
    if (want == ERR_OK) {
        want = judge_id(&r->m, m.with, &q, &other_keyspace);
    }
    if (want == ERR_OK) {
        want = judge_merge(t.part, q, t.keyspace == other_keyspace);
    }
    const struct dir_result *got = send(r, CADASTRE__COMMAND__BODY_MERGE, &m, want);
    if (got->err.code != ERR_OK) {
        return;
    }
    struct keyspace *ks = &r->m.keyspaces[t.keyspace];
    struct part *left = t.part < q ? t.part : q, *right = left + 1;
    CHECK(r->m.revision > left->epoch && r->m.revision > right->epoch);
    model_retire(&r->m, left->id, t.keyspace);
    model_retire(&r->m, right->id, t.keyspace);
    CHECK_U64(got->route_count, 1);
    left->id = got->routes[0].partition->id;
    left->epoch = r->m.revision;
    left->end = right->end;
    left->open = right->open;
    left->pinned = left->pinned || right->pinned;
    left->limit = left->limit > 0 && right->limit > 0 ? left->limit + right->limit : 0;
    memmove(right, right + 1, (size_t)(&ks->parts[ks->count] - right - 1) * sizeof *right);
    ks->count--;
}

static void do_move(struct run *r)
{
    struct target t = random_target(r);
    Cadastre__Reassign m;
    cadastre__reassign__init(&m);
    m.partition = t.id;
    m.has_expect_epoch = t.has_epoch;
    m.expect_epoch = t.epoch;
    int from = -1, to = (int)below(r, NODES);
    if (chance(r, 50)) {
        from = t.part != NULL && part_has_primary(t.part) && chance(r, 90) ? t.part->copies[0].node
                                                                           : (int)below(r, NODES);
        m.from = text_lent(node_names[from]);
    }
    m.to = text_lent(node_names[to]);
    if (chance(r, 2)) {
        m.to = text_lent("nobody");
        to = NODES;
    }
    m.reason = text_lent("because");
    enum err_code want = t.code == ERR_OK ? judge_move(&r->m, &t, from, to) : t.code;
    const struct dir_result *got = send(r, CADASTRE__COMMAND__BODY_REASSIGN, &m, want);
    if (got->err.code != ERR_OK) {
        return;
    }
    struct part *p = t.part;
    CHECK(got->operation != NULL && got->operation->epoch_before == p->epoch &&
          got->operation->epoch_after == r->m.revision);
    if (!part_has_primary(p)) {
        memmove(&p->copies[1], &p->copies[0], (size_t)p->copy_count * sizeof p->copies[0]);
        p->copy_count++;
    }
    p->copies[0] = (struct copy){to, DIR_ROLE_PRIMARY};
    p->epoch = r->m.revision;
}

static void do_patch(struct run *r)
{
    struct target t = random_target(r);
    Cadastre__PartitionPatch m;
    cadastre__partition_patch__init(&m);
    m.partition = t.id;
    m.has_expect_epoch = t.has_epoch;
    m.expect_epoch = t.epoch;
    m.has_pinned = chance(r, 60);
    m.pinned = chance(r, 50);
    m.has_rate_limit = chance(r, 60);
    m.rate_limit = below(r, 6) * 3;
    enum err_code want = t.code;
    if (want == ERR_OK && m.has_rate_limit && chance(r, 3)) {
        m.rate_limit = DIR_REVISION_MAX + 1;
        want = ERR_INVALID_REQUEST;
    }
    if (send(r, CADASTRE__COMMAND__BODY_PARTITION_PATCH, &m, want)->err.code == ERR_OK) {
        t.part->pinned = m.has_pinned ? m.pinned : t.part->pinned;
        t.part->limit = m.has_rate_limit ? m.rate_limit : t.part->limit;
    }
}

static void do_node_put(struct run *r)
{
    int n = (int)below(r, NODES);
    struct node next = r->m.nodes[n];
    if (!next.exists || chance(r, 70)) {
        next = (struct node){true, true, (int)below(r, 2), n};
        next.address = chance(r, 90) ? n + (chance(r, 50) ? 100 : 0) : (int)below(r, NODES);
    }
    char address[32];
    Cadastre__NodePut m;
    Cadastre__Label label, *labels[] = {&label};
    cadastre__node_put__init(&m);
    cadastre__label__init(&label);
    (void)snprintf(address, sizeof address, "10.0.0.1:%d", next.address);
    label.name = text_lent("zone");
    label.value = text_lent(zones[next.zone]);
    m.name = text_lent(node_names[n]);
    m.address = address;
    m.labels = labels;
    m.n_labels = 1;
    m.is_static = next.is_static;
    enum err_code want = judge_node(&r->m, n, &next);
    const struct dir_result *got = send(r, CADASTRE__COMMAND__BODY_NODE_PUT, &m, want);
    if (got->err.code == ERR_OK) {
        CHECK(got->session > 0 && got->node != NULL);
        r->m.nodes[n] = next;
        learn_placed(r);
    }
}

static void model_lost(struct run *r, int n)
{
    for (int k = 0; k < KEYSPACES; k++) {
        struct keyspace *ks = &r->m.keyspaces[k];
        for (int i = 0; ks->exists && i < ks->count; i++) {
            struct part *p = &ks->parts[i];
            int at = part_copy_on(p, n);
            if (at >= 0) {
                memmove(&p->copies[at], &p->copies[at + 1],
                        (size_t)(p->copy_count - at - 1) * sizeof p->copies[0]);
                p->copy_count--;
            }
        }
    }
}

static void do_node_delete(struct run *r)
{
    int n = (int)below(r, NODES);
    Cadastre__NodeDelete m;
    cadastre__node_delete__init(&m);
    m.name = text_lent(node_names[n]);
    m.force = chance(r, 40);
    enum err_code want = !r->m.nodes[n].exists                    ? ERR_NODE_NOT_FOUND
                         : model_copies(&r->m, n) > 0 && !m.force ? ERR_NODE_IN_USE
                                                                  : ERR_OK;
    if (send(r, CADASTRE__COMMAND__BODY_NODE_DELETE, &m, want)->err.code == ERR_OK) {
        model_lost(r, n);
        r->m.nodes[n].exists = false;
    }
}

static size_t create_splits(struct run *r, struct key out[8], bool *ret_ok)
{
    size_t n = 0, want = below(r, 8);
    *ret_ok = true;
    for (int tries = 0; n < want && tries < 100; tries++) {
        struct key k = random_key(r);
        bool good = k.len > 0 && (n == 0 || key_compare(&out[n - 1], &k) < 0);
        if (good || chance(r, 1)) {
            *ret_ok = *ret_ok && good;
            out[n++] = k;
        }
    }
    return n;
}

static void learn_keyspace(struct run *r, int k, const struct key *splits, size_t n)
{
    struct keyspace *ks = &r->m.keyspaces[k];
    const struct dir_view *v = world_state(&r->a);
    const struct dir_keyspace *now = world_keyspace(&r->a, keyspace_names[k]);
    const struct dir_partition *p;
    struct ptree_iter it;
    ks->exists = true;
    ks->id = now->id;
    ks->count = (int)n + 1;
    ptree_seek(view_map(v, now), slice_of(NULL, 0), &it);
    for (size_t i = 0; i <= n && (p = ptree_iter_get(&it, NULL)) != NULL; i++) {
        struct part *out = &ks->parts[i];
        memset(out, 0, sizeof *out);
        out->id = p->id;
        out->epoch = r->m.revision;
        out->start = i > 0 ? splits[i - 1] : (struct key){.len = 0};
        out->open = i == n;
        out->end = i < n ? splits[i] : (struct key){.len = 0};
        learn_copies(v, p, out);
        ptree_iter_next(&it);
    }
}

static void do_create(struct run *r)
{
    int k = random_keyspace(r);
    struct key splits[8];
    ProtobufCBinaryData bytes[8];
    bool ok;
    size_t n = create_splits(r, splits, &ok);
    for (size_t i = 0; i < n; i++) {
        bytes[i] = (ProtobufCBinaryData){splits[i].len, splits[i].bytes};
    }
    Cadastre__KeyspaceCreate m;
    Cadastre__Placement placement;
    Cadastre__Label label, *labels[] = {&label};
    cadastre__keyspace_create__init(&m);
    cadastre__placement__init(&placement);
    cadastre__label__init(&label);
    label.name = text_lent("zone");
    label.value = text_lent("a");
    bool zoned = chance(r, 40);
    placement.require = labels;
    placement.n_require = zoned;
    placement.spread = text_lent(chance(r, 50) ? "zone" : "");
    m.name = text_lent(chance(r, 97) ? keyspace_names[k] : "Wrong!");
    m.scheme = chance(r, 97) ? DIR_SCHEME_RANGE : 7;
    m.key_encoding = DIR_ENCODING_HEX;
    m.authority = DIR_AUTHORITY_EXCLUSIVE;
    m.splits = bytes;
    m.n_splits = n;
    m.sync_replicas = (uint32_t)below(r, COPIES);
    m.placement = &placement;
    enum err_code want = m.name[0] == 'W'               ? ERR_INVALID_REQUEST
                         : r->m.keyspaces[k].exists     ? ERR_KEYSPACE_EXISTS
                         : m.scheme != DIR_SCHEME_RANGE ? ERR_UNSUPPORTED_SCHEME
                         : ok                           ? ERR_OK
                                                        : ERR_INVALID_REQUEST;
    if (send(r, CADASTRE__COMMAND__BODY_KEYSPACE_CREATE, &m, want)->err.code == ERR_OK) {
        r->m.keyspaces[k].zoned = zoned;
        r->m.keyspaces[k].sync = m.sync_replicas;
        learn_keyspace(r, k, splits, n);
    }
}

static void do_patch_keyspace(struct run *r)
{
    int k = random_keyspace(r);
    struct keyspace *ks = &r->m.keyspaces[k];
    Cadastre__KeyspacePatch m;
    cadastre__keyspace_patch__init(&m);
    m.keyspace = ks->exists ? ks->id : 1 + below(r, 5);
    m.has_replicas = true;
    m.sync_replicas = (uint32_t)below(r, COPIES);
    enum err_code want = ERR_KEYSPACE_NOT_FOUND;
    if (ks->exists) {
        want = ERR_OK;
        for (int i = 0; m.sync_replicas != ks->sync && i < ks->count; i++) {
            unsigned sync = 0;
            for (int c = 0; c < ks->parts[i].copy_count; c++) {
                sync += ks->parts[i].copies[c].role == DIR_ROLE_SYNC;
            }
            if (ks->parts[i].copy_count > 0 && sync != m.sync_replicas) {
                want = ERR_NEEDS_STAGED_MOVE;
            }
        }
    } else {
        for (int i = 0; i < KEYSPACES; i++) {
            if (r->m.keyspaces[i].exists && r->m.keyspaces[i].id == m.keyspace) {
                return;
            }
        }
    }
    if (send(r, CADASTRE__COMMAND__BODY_KEYSPACE_PATCH, &m, want)->err.code == ERR_OK) {
        ks->sync = m.sync_replicas;
        learn_placed(r);
    }
}

static void do_delete(struct run *r)
{
    int k = random_keyspace(r);
    Cadastre__KeyspaceDelete m;
    cadastre__keyspace_delete__init(&m);
    m.keyspace = r->m.keyspaces[k].id;
    enum err_code want = r->m.keyspaces[k].exists ? ERR_OK : ERR_KEYSPACE_NOT_FOUND;
    if (send(r, CADASTRE__COMMAND__BODY_KEYSPACE_DELETE, &m, want)->err.code == ERR_OK) {
        r->m.keyspaces[k].exists = false;
    }
}

static void do_something(struct run *r)
{
    uint64_t dice = below(r, 1000);
    int k = random_keyspace(r);
    bool full = r->m.keyspaces[k].exists && r->m.keyspaces[k].count > PARTS_MAX / 2;
    for (int i = 0; i < KEYSPACES; i++) {
        full = full || (r->m.keyspaces[i].exists && r->m.keyspaces[i].count > PARTS_MAX - 20);
    }
    if (dice < 330) {
        full ? do_merge(r) : do_split(r);
    } else if (dice < 620) {
        do_merge(r);
    } else if (dice < 820) {
        do_move(r);
    } else if (dice < 900) {
        do_patch(r);
    } else if (dice < 940) {
        do_node_put(r);
    } else if (dice < 955) {
        do_node_delete(r);
    } else if (dice < 985) {
        do_create(r);
    } else if (dice < 995) {
        do_patch_keyspace(r);
    } else {
        do_delete(r);
    }
}

/* --- comparing --- */

static void
compare_part(const struct dir_view *v, const struct part *want, const struct dir_partition *got)
{
    bool same = got->id == want->id && got->epoch == want->epoch &&
                same_key(&want->start, dir_partition_start(got)) && got->end_open == want->open &&
                (want->open || same_key(&want->end, dir_partition_end(got))) &&
                got->pinned == want->pinned && got->rate_limit == want->limit &&
                got->replica_count == want->copy_count &&
                (got->state == DIR_ACTIVE) == part_has_primary(want);
    for (int i = 0; same && i < want->copy_count; i++) {
        const struct dir_node *n = view_node_by_id(v, got->replicas[i].node);
        same = n != NULL && node_index(n->name) == want->copies[i].node &&
               got->replicas[i].role == want->copies[i].role;
    }
    if (!CHECK(same)) {
        tap_note("partition %llu differs from the model", (unsigned long long)want->id);
    }
}

static void compare_all(struct run *r)
{
    const struct dir_view *v = world_state(&r->a);
    CHECK_U64(v->revision, r->m.revision);
    for (int k = 0; k < KEYSPACES; k++) {
        const struct keyspace *ks = &r->m.keyspaces[k];
        const struct dir_keyspace *now = world_keyspace(&r->a, keyspace_names[k]);
        CHECK((now != NULL) == ks->exists);
        if (now == NULL) {
            continue;
        }
        const struct dir_partition *p;
        struct ptree_iter it;
        int i = 0;
        for (ptree_seek(view_map(v, now), slice_of(NULL, 0), &it);
             i < ks->count && (p = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
            compare_part(v, &ks->parts[i++], p);
        }
        CHECK_U64(view_map(v, now)->count, ks->count);
        struct key key = random_key(r);
        for (i = 0; i < ks->count && !part_inside(&ks->parts[i], &key); i++) {
        }
        CHECK_U64(view_route(v, now, slice_of(key.bytes, key.len))->id, ks->parts[i].id);
    }
}

struct covered {
    const struct dir_view *v;
    const struct dir_partition *last;
    bool ok;
};

static bool cover(void *arg, const struct dir_partition *p)
{
    struct covered *c = arg;
    c->ok =
        c->ok && (c->last == NULL || slice_eq(dir_partition_end(c->last), dir_partition_start(p)));
    c->last = p;
    return true;
}

/* A retired id names exactly the live partitions over its range. */
static void compare_retired(struct run *r)
{
    const struct dir_view *v = world_state(&r->a);
    const struct dir_tombstone *t;
    struct ptree_iter it;
    uint8_t from[8];
    ptree_seek(&v->tombstones, ptree_u64_key(below(r, v->next_id), from), &it);
    if ((t = ptree_iter_get(&it, NULL)) == NULL || view_keyspace_by_id(v, t->keyspace) == NULL) {
        return;
    }
    struct covered c = {v, NULL, true};
    uint64_t n = view_successors(v, t, cover, &c);
    const struct dir_partition *first =
        view_route(v, view_keyspace_by_id(v, t->keyspace), dir_tombstone_start(t));
    CHECK(n > 0 && c.ok && slice_cmp(dir_partition_start(first), dir_tombstone_start(t)) <= 0);
    CHECK(c.last->end_open ||
          (!t->end_open && slice_cmp(dir_partition_end(c.last), dir_tombstone_end(t)) >= 0));
    CHECK(t->end_open || slice_cmp(dir_partition_start(c.last), dir_tombstone_end(t)) < 0);
}

static void rebuild(struct run *r)
{
    struct err e = {.code = ERR_OK};
    struct directory *d = world_reload(&r->a, &e);
    if (!CHECK(d != NULL)) {
        tap_note("%s", e.detail);
        return;
    }
    CHECK(same_hash(directory_state(d)->hash, world_state(&r->a)->hash));
    /* It goes on from there as the second directory. */
    directory_free(r->b.d);
    r->b.d = d;
}

static void random_commands_agree_with_the_model(void)
{
    static const enum err_code reached[] = {
        ERR_INVALID_REQUEST,    ERR_KEYSPACE_NOT_FOUND, ERR_PARTITION_NOT_FOUND,
        ERR_NODE_NOT_FOUND,     ERR_KEYSPACE_EXISTS,    ERR_STALE_EPOCH,
        ERR_FUTURE_EPOCH,       ERR_STALE_REVISION,     ERR_NOT_OWNER,
        ERR_NOT_MERGEABLE,      ERR_NEEDS_STAGED_MOVE,  ERR_NODE_IN_USE,
        ERR_NO_DESTINATION,     ERR_PLACEMENT_VIOLATED, ERR_BAD_SPLIT_KEY,
        ERR_UNSUPPORTED_SCHEME,
    };
    struct run *r = mem_zalloc(sizeof *r);
    r->rand.state = tap_seed(20261130);
    tap_note("seed %llu", (unsigned long long)r->rand.state);
    world_open(&r->a);
    world_open(&r->b);
    /* The first command moves the time; the others of this run share it, so that a refusal changes
     * nothing at all. */
    (void)world_node(&r->a, "n0", "10.0.0.1:0");
    (void)world_apply(&r->b, r->a.bytes, r->a.len);
    r->m.nodes[0] = (struct node){true, true, 1, 0};
    r->m.revision = 1;
    for (int i = 1; i <= COMMANDS && tap_failures() == 0; i++) {
        do_something(r);
        compare_all(r);
        compare_retired(r);
        if (i % 500 == 0) {
            CHECK_U64(world_check(world_state(&r->a)), 0);
            CHECK(r->a.rows_consistent);
        }
        if (i % 2500 == 0) {
            rebuild(r);
        }
    }
    for (size_t i = 0; i < sizeof reached / sizeof reached[0]; i++) {
        if (!CHECK(r->codes[reached[i]] > 0)) {
            tap_note("%s was never reached", err_slug(reached[i]));
        }
    }
    CHECK(r->accepted > COMMANDS / 4 && r->nothing > 0);
    world_close(&r->a);
    world_close(&r->b);
    mem_free(r);
}

int main(void)
{
    RUN(random_commands_agree_with_the_model);
    return tap_done();
}
