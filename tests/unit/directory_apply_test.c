/* SPDX-License-Identifier: Apache-2.0 */
/* What holds for all commands: the envelope, idempotency keys, retention, and the small commands.
 */
#include "base/mem.h"
#include "directory/internal.h"
#include "tests/harness/tap.h"
#include "tests/harness/world.h"

#include <stdio.h>
#include <string.h>

static bool same_hash(struct hash128 a, struct hash128 b)
{
    return a.lo == b.lo && a.hi == b.hi;
}

static const struct dir_result *send(struct world *w, const Cadastre__Command *c)
{
    static uint8_t bytes[4096];
    size_t n = cadastre__command__get_packed_size(c);
    CHECK(n <= sizeof bytes);
    (void)cadastre__command__pack(c, bytes);
    return world_apply(w, bytes, n);
}

static const struct dir_result *tick(struct world *w, uint64_t at_ms)
{
    Cadastre__Tick m;
    cadastre__tick__init(&m);
    w->time_ms = at_ms;
    return world_do(w, CADASTRE__COMMAND__BODY_TICK, &m);
}

static void what_is_no_command_leaves_no_trace(void)
{
    struct world w;
    world_open(&w);
    (void)world_node(&w, "n1", "h:1");
    struct hash128 before = world_state(&w)->hash;
    static const uint8_t garbage[] = {0xff, 0xff, 0xff, 0xff};
    Cadastre__Command c;
    cadastre__command__init(&c);
    c.time_ms = 99999;
    CHECK_U64(send(&w, &c)->err.code, ERR_INVALID_REQUEST); /* no body */
    CHECK(w.effects == NULL);
    CHECK_U64(world_apply(&w, garbage, sizeof garbage)->err.code, ERR_INVALID_REQUEST);
    CHECK_U64(world_apply(&w, garbage, 0)->err.code, ERR_INVALID_REQUEST);
    uint8_t *large = mem_zalloc(DIR_COMMAND_MAX + 1);
    CHECK_U64(world_apply(&w, large, DIR_COMMAND_MAX + 1)->err.code, ERR_TOO_LARGE);
    mem_free(large);
    Cadastre__Tick m;
    cadastre__tick__init(&m);
    c.body_case = CADASTRE__COMMAND__BODY_TICK;
    c.tick = &m;
    c.required_version = DIR_COMMAND_VERSION + 1;
    const struct dir_result *r = send(&w, &c);
    CHECK_U64(r->err.code, ERR_NOT_READY);
    CHECK(strncmp(r->err.detail, "needs version 2 ", 16) == 0 && w.effects == NULL);
    c.required_version = DIR_COMMAND_VERSION;
    c.time_ms = DIR_REVISION_MAX + 1;
    CHECK_U64(send(&w, &c)->err.code, ERR_INVALID_REQUEST);
    c.time_ms = 99999;
    c.principal = text_lent("\xff");
    CHECK_U64(send(&w, &c)->err.code, ERR_INVALID_REQUEST);
    c.principal = text_lent("");
    c.idempotency_key = text_lent("two words");
    CHECK_U64(send(&w, &c)->err.code, ERR_INVALID_REQUEST);
    c.idempotency_key = text_lent("key"); /* and no digest */
    CHECK_U64(send(&w, &c)->err.code, ERR_INVALID_REQUEST);
    CHECK(same_hash(before, world_state(&w)->hash));
    CHECK_U64(world_state(&w)->time_ms, 1000);
    world_close(&w);
}

static void log_time_never_goes_back(void)
{
    struct world w;
    world_open(&w);
    struct hash128 before = world_state(&w)->hash;
    (void)tick(&w, 5000);
    CHECK_U64(world_state(&w)->time_ms, 5000);
    CHECK(!same_hash(before, world_state(&w)->hash));
    CHECK(w.effects != NULL && !w.effects->changed && w.effects->meta.time_ms == 5000);
    before = world_state(&w)->hash;
    CHECK_U64(tick(&w, 4000)->revision, 0);
    CHECK_U64(world_state(&w)->time_ms, 5000);
    CHECK(same_hash(before, world_state(&w)->hash));
    world_close(&w);
}

static void an_expected_revision_is_exact(void)
{
    struct world w;
    world_open(&w);
    (void)world_node(&w, "n1", "h:1");
    w.has_expect = true;
    w.expect = 2;
    const struct dir_result *r = world_node(&w, "n2", "h:2");
    CHECK(r->err.code == ERR_STALE_REVISION && r->current_revision == 1);
    w.has_expect = true;
    w.expect = 0;
    CHECK_U64(world_node(&w, "n2", "h:2")->err.code, ERR_STALE_REVISION);
    w.has_expect = true;
    w.expect = 1;
    CHECK_U64(world_node(&w, "n2", "h:2")->err.code, ERR_OK);
    world_close(&w);
}

static void revisions_end_before_they_wrap(void)
{
    struct world w;
    world_open(&w);
    struct dir_view s;
    state_copy(world_state(&w), &s);
    s.revision = DIR_REVISION_MAX - 1;
    Cadastre__NodePut m;
    cadastre__node_put__init(&m);
    m.name = text_lent("n1");
    m.address = text_lent("h:1");
    Cadastre__Command c;
    cadastre__command__init(&c);
    c.body_case = CADASTRE__COMMAND__BODY_NODE_PUT;
    c.node_put = &m;
    struct apply_outcome o;
    apply_run(&s, 1, &c, &o);
    CHECK(o.result->err.code == ERR_OK && s.revision == DIR_REVISION_MAX);
    apply_outcome_close(&o);
    m.name = text_lent("n2");
    m.address = text_lent("h:2");
    apply_run(&s, 2, &c, &o);
    CHECK(o.result->err.code == ERR_LIMIT_EXCEEDED && s.revision == DIR_REVISION_MAX);
    apply_outcome_close(&o);
    state_close(&s);
    world_close(&w);
}

static void a_key_has_one_effect(void)
{
    static const uint8_t other[16] = "another request";
    struct world w;
    world_open(&w);
    (void)world_range(&w, "orders");
    uint64_t id = world_at(&w, "orders", "")->id;
    w.key = "k1";
    w.principal = "alice";
    const struct dir_result *r = world_split(&w, id, "m");
    CHECK(r->err.code == ERR_OK && !r->replayed);
    dir_rev revision = r->revision;
    uint64_t left = r->routes[0].partition->id;
    (void)world_split(&w, left, "f");
    w.key = "k1";
    w.principal = "alice";
    r = world_split(&w, id, "m");
    CHECK(r->err.code == ERR_OK && r->replayed && r->revision == revision && r->route_count == 2);
    CHECK(r->routes[0].partition->id == left); /* as it was then */
    CHECK(!w.effects->changed && w.effects->row_count == 0);
    w.key = "k1";
    w.principal = "alice";
    w.digest = other;
    CHECK_U64(world_split(&w, id, "m")->err.code, ERR_IDEMPOTENCY_MISMATCH);
    CHECK(w.effects->row_count == 0);
    /* Another principal's key of the same name is another key. */
    w.key = "k1";
    w.principal = "bob";
    r = world_split(&w, id, "m");
    CHECK(r->err.code == ERR_STALE_EPOCH && r->retired && !r->replayed);
    w.key = "k1";
    w.principal = "bob";
    r = world_split(&w, id, "m");
    CHECK(r->err.code == ERR_STALE_EPOCH && r->retired && r->replayed && r->route_count == 3);
    CHECK_U64(world_state(&w)->dedupe.count, 2);
    CHECK_U64(world_check(world_state(&w)), 0);
    struct dir_result *found =
        directory_lookup(world_state(&w), "alice", "k1", (const uint8_t *)"same request\0\0\0");
    CHECK(found != NULL && found->err.code == ERR_OK && found->replayed);
    result_unref(found);
    found = directory_lookup(world_state(&w), "alice", "k1", other);
    CHECK(found != NULL && found->err.code == ERR_IDEMPOTENCY_MISMATCH);
    result_unref(found);
    found = directory_lookup(world_state(&w), "alice", "k1", NULL);
    CHECK(found != NULL && found->revision == revision);
    result_unref(found);
    CHECK(directory_lookup(world_state(&w), "alice", "k2", NULL) == NULL);
    CHECK(directory_lookup(world_state(&w), "", "k1", NULL) == NULL);
    world_close(&w);
}

static void keys_are_forgotten_by_log_time(void)
{
    struct world w;
    world_open(&w);
    uint64_t day = world_state(&w)->settings.dedupe_retention_ms;
    for (int i = 0; i < 100; i++) {
        char key[8];
        (void)snprintf(key, sizeof key, "k%d", i);
        w.key = key;
        (void)world_node(&w, "n1", "h:1");
    }
    (void)tick(&w, 999 + day);
    CHECK_U64(world_state(&w)->dedupe.count, 100);
    CHECK_U64(directory_dedupe_since_ms(world_state(&w)), 999);
    (void)tick(&w, 1000 + day);
    CHECK_U64(world_state(&w)->dedupe.count, 36); /* a bounded number at a time */
    CHECK_U64(w.effects->row_count, 64);
    CHECK_U64(directory_dedupe_since_ms(world_state(&w)), 1000);
    (void)tick(&w, 1000 + day);
    CHECK_U64(world_state(&w)->dedupe.count, 0);
    w.key = "k1";
    CHECK(!world_node(&w, "n1", "h:2")->replayed); /* the key is new again */
    CHECK(w.rows_consistent);
    CHECK_U64(world_check(world_state(&w)), 0);
    world_close(&w);
}

static void the_oldest_key_makes_room(void)
{
    struct world w;
    world_open(&w);
    struct dir_view s;
    state_copy(world_state(&w), &s);
    for (uint64_t i = 0; i < DIR_DEDUPE_MAX; i++) {
        struct dir_dedupe *d = mem_zalloc(sizeof *d + 12);
        d->object.refs = 1;
        d->object.kind = DIR_KIND_DEDUPE;
        d->index = s.next_id++;
        d->at_ms = i / 1000;
        d->key_len = 12;
        (void)snprintf((char *)d->bytes, 12, "k%010d", (int)i);
        dir_unref(state_put(&s, &d->object));
    }
    s.time_ms = 500;
    Cadastre__Tick m;
    cadastre__tick__init(&m);
    Cadastre__Command c;
    cadastre__command__init(&c);
    c.body_case = CADASTRE__COMMAND__BODY_TICK;
    c.tick = &m;
    c.idempotency_key = text_lent("new");
    uint8_t digest[16] = {1};
    c.digest = (ProtobufCBinaryData){16, digest};
    for (int i = 0; i < 2; i++) {
        struct apply_outcome o;
        c.idempotency_key = text_lent(i == 0 ? "new" : "newer");
        apply_run(&s, 1, &c, &o);
        CHECK_U64(o.effects->row_count, 2);
        apply_outcome_close(&o);
    }
    CHECK_U64(s.dedupe.count, DIR_DEDUPE_MAX);
    CHECK(retain_find(&s, "", "new") != NULL && retain_find(&s, "", "newer") != NULL);
    s.time_ms = s.settings.dedupe_retention_ms;
    CHECK_U64(directory_dedupe_since_ms(&s), 0);
    state_close(&s);
    world_close(&w);
}

static const struct dir_result *settings(struct world *w, uint64_t retention, uint64_t max)
{
    Cadastre__SettingsPatch m;
    cadastre__settings_patch__init(&m);
    m.has_history_retention_ms = retention > 0;
    m.history_retention_ms = retention;
    m.has_history_max = max > 0;
    m.history_max = max;
    return world_do(w, CADASTRE__COMMAND__BODY_SETTINGS_PATCH, &m);
}

static void history_is_compacted_by_count(void)
{
    struct world w;
    world_open(&w);
    (void)world_range(&w, "orders");
    (void)settings(&w, 0, 100);
    uint64_t first = world_at(&w, "orders", "")->id;
    for (int i = 0; i < 150; i++) {
        char at[4];
        (void)snprintf(at, sizeof at, "%03d", i);
        (void)world_split(&w, world_at(&w, "orders", "z")->id, at);
    }
    const struct dir_view *s = world_state(&w);
    CHECK_U64(s->compacted, s->revision - 1 - 100); /* as of the last command's begin */
    const struct dir_tombstone *t;
    CHECK(view_partition(s, world_keyspace(&w, "orders"), first, &t) == NULL && t == NULL);
    CHECK_U64(s->tombstones.count, 101);
    CHECK_U64(world_split(&w, first, "x")->err.code, ERR_PARTITION_NOT_FOUND);
    CHECK_U64(world_check(s), 0);
    CHECK(w.rows_consistent);
    world_close(&w);
}

static void history_is_compacted_by_age(void)
{
    struct world w;
    world_open(&w);
    (void)settings(&w, 8000, 0);
    uint64_t seen = 0;
    for (uint64_t t = 2000; t < 60000; t += 250) {
        w.time_ms = t;
        char address[16];
        (void)snprintf(address, sizeof address, "h:%d", (int)t);
        (void)world_node(&w, "n1", address); /* one revision each 250 ms: 4 a second */
        const struct dir_view *s = world_state(&w);
        uint64_t kept = s->revision - s->compacted;
        CHECK(s->compacted >= seen);
        seen = s->compacted;
        /* Never less than 8 s of history, and not much more. */
        CHECK(t < 12000 || (kept >= 32 && kept <= 42));
        CHECK(t >= 9000 || s->compacted == 0);
    }
    world_close_checked(&w);
}

static void settings_have_bounds(void)
{
    struct world w;
    world_open(&w);
    CHECK_STR(settings(&w, 999, 0)->err.pointer, "/history_retention_ms");
    CHECK_U64(w.result->err.code, ERR_INVALID_SETTINGS);
    CHECK_STR(settings(&w, 0, 99)->err.pointer, "/history_max");
    Cadastre__SettingsPatch m;
    cadastre__settings_patch__init(&m);
    m.has_dedupe_retention_ms = true;
    m.dedupe_retention_ms = UINT64_MAX;
    CHECK_STR(world_do(&w, CADASTRE__COMMAND__BODY_SETTINGS_PATCH, &m)->err.pointer,
              "/dedupe_retention_ms");
    CHECK_U64(world_state(&w)->revision, 0);
    m.dedupe_retention_ms = 1000;
    CHECK_U64(world_do(&w, CADASTRE__COMMAND__BODY_SETTINGS_PATCH, &m)->revision, 1);
    CHECK_U64(world_do(&w, CADASTRE__COMMAND__BODY_SETTINGS_PATCH, &m)->revision, 1);
    CHECK_U64(world_state(&w)->settings.dedupe_retention_ms, 1000);
    CHECK_U64(world_check(world_state(&w)), 0);
    world_close(&w);
}

static Cadastre__ServerPut server(uint64_t id, uint8_t *instance)
{
    Cadastre__ServerPut m;
    cadastre__server_put__init(&m);
    m.id = id;
    m.raft_address = text_lent("h:7401");
    m.api_url = text_lent("http://h:7400");
    m.role = 1;
    m.instance = (ProtobufCBinaryData){instance != NULL ? 16 : 0, instance};
    return m;
}

static const struct dir_result *put_server(struct world *w, Cadastre__ServerPut *m)
{
    return world_do(w, CADASTRE__COMMAND__BODY_SERVER_PUT, m);
}

static const struct dir_result *remove_server(struct world *w, uint64_t id)
{
    Cadastre__ServerRemove m;
    cadastre__server_remove__init(&m);
    m.id = id;
    return world_do(w, CADASTRE__COMMAND__BODY_SERVER_REMOVE, &m);
}

static void a_cluster_begins_once(void)
{
    struct world w;
    world_open(&w);
    Cadastre__ServerPut one = server(1, NULL), two = server(2, NULL), *servers[] = {&one, &one};
    Cadastre__Bootstrap m;
    cadastre__bootstrap__init(&m);
    m.cluster = text_lent("0123456789abcdef0123456789abcdef");
    m.generation = 1;
    CHECK_U64(world_do(&w, CADASTRE__COMMAND__BODY_BOOTSTRAP, &m)->err.code, ERR_INVALID_REQUEST);
    m.servers = servers;
    m.n_servers = 2;
    CHECK_U64(world_do(&w, CADASTRE__COMMAND__BODY_BOOTSTRAP, &m)->err.code, ERR_INVALID_REQUEST);
    servers[1] = &two;
    CHECK_U64(world_do(&w, CADASTRE__COMMAND__BODY_BOOTSTRAP, &m)->revision, 1);
    CHECK_STR(world_state(&w)->cluster, m.cluster);
    CHECK_U64(world_state(&w)->servers.count, 2);
    m.cluster = text_lent("another");
    CHECK_U64(world_do(&w, CADASTRE__COMMAND__BODY_BOOTSTRAP, &m)->err.code, ERR_OK);
    CHECK(!w.effects->changed && world_state(&w)->cluster[0] == '0');
    struct err e = {.code = ERR_OK};
    struct directory *d = world_reload(&w, &e);
    CHECK(d != NULL && strcmp(directory_state(d)->cluster, world_state(&w)->cluster) == 0);
    directory_free(d);
    world_close(&w);
}

static void a_server_id_is_one_data_directory_for_ever(void)
{
    uint8_t mine[16] = {1}, yours[16] = {2};
    struct world w;
    world_open(&w);
    Cadastre__ServerPut m = server(1, mine);
    CHECK_U64(put_server(&w, &m)->revision, 1);
    CHECK_U64(put_server(&w, &m)->revision, 1);
    m = server(1, yours);
    CHECK_U64(put_server(&w, &m)->err.code, ERR_SERVER_EXISTS);
    m = server(1, NULL);
    m.raft_address = text_lent("h:7501");
    CHECK_U64(put_server(&w, &m)->revision, 2); /* who does not say keeps what is known */
    CHECK_U64(remove_server(&w, 1)->err.code, ERR_QUORUM_AT_RISK);
    m = server(2, NULL);
    CHECK_U64(put_server(&w, &m)->revision, 3);
    m = server(2, yours);
    CHECK_U64(put_server(&w, &m)->revision, 4); /* it was not known yet */
    CHECK_U64(remove_server(&w, 2)->revision, 5);
    CHECK_U64(remove_server(&w, 2)->err.code, ERR_SERVER_NOT_FOUND);
    CHECK_U64(remove_server(&w, 9)->err.code, ERR_SERVER_NOT_FOUND);
    CHECK_U64(put_server(&w, &m)->err.code, ERR_SERVER_EXISTS);
    CHECK_STR(w.result->err.detail, "server 2 was removed, and its id is never used again");
    m = server(0, NULL);
    CHECK_STR(put_server(&w, &m)->err.pointer, "/id");
    m = server(3, NULL);
    m.role = 3;
    CHECK_STR(put_server(&w, &m)->err.pointer, "/role");
    m = server(3, NULL);
    m.raft_address = text_lent("");
    CHECK_STR(put_server(&w, &m)->err.pointer, "/raft_address");
    for (uint64_t id = 3; id < 3 + DIR_SERVERS_MAX - 1; id++) {
        m = server(id, NULL);
        CHECK_U64(put_server(&w, &m)->err.code, ERR_OK);
    }
    m = server(99, NULL);
    CHECK_U64(put_server(&w, &m)->err.code, ERR_LIMIT_EXCEEDED);
    CHECK_U64(world_check(world_state(&w)), 0);
    world_close(&w);
}

static const struct dir_result *state_check(struct world *w, uint64_t index, struct hash128 hash)
{
    Cadastre__StateCheck m;
    cadastre__state_check__init(&m);
    m.index = index;
    m.hash_lo = hash.lo;
    m.hash_hi = hash.hi;
    return world_do(w, CADASTRE__COMMAND__BODY_STATE_CHECK, &m);
}

static void another_hash_at_an_index_is_told(void)
{
    struct world w;
    world_open(&w);
    (void)world_node(&w, "n1", "h:1");
    struct hash128 then = world_state(&w)->hash;
    uint64_t index = w.index;
    (void)world_node(&w, "n2", "h:2");
    dir_rev revision = world_state(&w)->revision;
    CHECK_U64(state_check(&w, index, then)->err.code, ERR_OK);
    then.lo++;
    CHECK_U64(state_check(&w, index, then)->err.code, ERR_CORRUPT);
    CHECK_U64(state_check(&w, index + 1000, then)->err.code, ERR_OK); /* not known here */
    CHECK_U64(world_state(&w)->revision, revision);
    world_close(&w);
}

static void effects_say_who_and_what(void)
{
    struct world w;
    world_open(&w);
    Cadastre__NodePut m;
    cadastre__node_put__init(&m);
    m.name = text_lent("n1");
    m.address = text_lent("h:1");
    Cadastre__Command c;
    cadastre__command__init(&c);
    c.body_case = CADASTRE__COMMAND__BODY_NODE_PUT;
    c.node_put = &m;
    c.time_ms = 1234;
    c.principal = text_lent("alice");
    c.remote = text_lent("10.0.0.1:5000");
    c.request_id = text_lent("id\twith tab");
    uint8_t digest[16] = {0};
    c.idempotency_key = text_lent("k");
    c.digest = (ProtobufCBinaryData){16, digest};
    (void)send(&w, &c);
    const struct dir_effects *e = w.effects;
    CHECK_STR(e->what, "node_put");
    CHECK_STR(e->subject, "node=n1");
    CHECK_STR(e->principal, "alice");
    CHECK_STR(e->remote, "10.0.0.1:5000");
    CHECK_STR(e->request_id, "id?with tab");
    CHECK_STR(e->idempotency_key, "k");
    CHECK(e->index == 1 && e->time_ms == 1234 && e->revision == 1 && e->changed && e->kind == 0);
    CHECK(e->outcome == ERR_OK && e->row_count == 2);
    CHECK(same_hash(e->meta.hash, world_state(&w)->hash));
    m.address = text_lent("");
    c.idempotency_key = text_lent("");
    (void)send(&w, &c);
    CHECK(w.effects->outcome == ERR_INVALID_REQUEST && !w.effects->changed);
    CHECK_U64(w.effects->row_count, 0);
    world_close(&w);
}

static void effects_form_a_list(void)
{
    struct world w;
    world_open(&w);
    (void)world_node(&w, "n1", "h:1");
    uint8_t *first = mem_dup(w.bytes, w.len);
    size_t first_len = w.len;
    (void)world_node(&w, "n2", "h:2");
    struct directory *d = directory_new();
    struct dir_effects *list = NULL;
    result_unref(directory_apply(d, 7, slice_of(first, first_len), &list));
    result_unref(directory_apply(d, 7, slice_of(w.bytes, w.len), &list));
    CHECK(list->revision == 1 && list->next->revision == 2 && list->next->next == NULL);
    CHECK_U64(list->next->meta.applied_index, 7);
    dir_effects_free(list);
    CHECK_U64(directory_state(d)->revision, 2);
    directory_free(d);
    mem_free(first);
    world_close(&w);
}

int main(void)
{
    RUN(what_is_no_command_leaves_no_trace);
    RUN(log_time_never_goes_back);
    RUN(an_expected_revision_is_exact);
    RUN(revisions_end_before_they_wrap);
    RUN(a_key_has_one_effect);
    RUN(keys_are_forgotten_by_log_time);
    RUN(the_oldest_key_makes_room);
    RUN(history_is_compacted_by_count);
    RUN(history_is_compacted_by_age);
    RUN(settings_have_bounds);
    RUN(a_cluster_begins_once);
    RUN(a_server_id_is_one_data_directory_for_ever);
    RUN(another_hash_at_an_index_is_told);
    RUN(effects_say_who_and_what);
    RUN(effects_form_a_list);
    return tap_done();
}
