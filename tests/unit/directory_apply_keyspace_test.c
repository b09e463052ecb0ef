/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "tests/harness/tap.h"
#include "tests/harness/world.h"

#include <string.h>

static Cadastre__KeyspaceCreate create(const char *name)
{
    Cadastre__KeyspaceCreate m;
    cadastre__keyspace_create__init(&m);
    m.name = text_lent(name);
    m.scheme = DIR_SCHEME_RANGE;
    m.key_encoding = DIR_ENCODING_UTF8;
    m.authority = DIR_AUTHORITY_EXCLUSIVE;
    return m;
}

static const struct dir_result *send_create(struct world *w, Cadastre__KeyspaceCreate *m)
{
    return world_do(w, CADASTRE__COMMAND__BODY_KEYSPACE_CREATE, m);
}

static ProtobufCBinaryData bytes(const char *s)
{
    return (ProtobufCBinaryData){strlen(s), (uint8_t *)text_lent(s)};
}

static void splits_must_ascend_and_be_inside(void)
{
    static const struct {
        const char *splits[3];
        const char *pointer; /* NULL: accepted */
    } rows[] = {
        {{"b", "a", "c"}, "/splits/1"}, {{"a", "b", "b"}, "/splits/2"},
        {{"", "a", "b"}, "/splits/0"},  {{"a", "", "b"}, "/splits/1"},
        {{"a", "ab", "b"}, NULL},
    };
    struct world w;
    world_open(&w);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ProtobufCBinaryData splits[3] = {bytes(rows[i].splits[0]), bytes(rows[i].splits[1]),
                                         bytes(rows[i].splits[2])};
        Cadastre__KeyspaceCreate m = create("orders");
        m.splits = splits;
        m.n_splits = 3;
        const struct dir_result *r = send_create(&w, &m);
        if (rows[i].pointer != NULL) {
            CHECK_U64(r->err.code, ERR_INVALID_REQUEST);
            CHECK_STR(r->err.pointer, rows[i].pointer);
            CHECK_U64(world_state(&w)->revision, 0);
        } else {
            CHECK_U64(r->err.code, ERR_OK);
            CHECK_U64(view_map(world_state(&w), r->keyspace)->count, 4);
        }
    }
    static uint8_t longest[DIR_KEY_MAX + 1] = {1};
    ProtobufCBinaryData too_long = {sizeof longest, longest};
    Cadastre__KeyspaceCreate m = create("long");
    m.splits = &too_long;
    m.n_splits = 1;
    CHECK_STR(send_create(&w, &m)->err.pointer, "/splits/0");
    world_close(&w);
}

static void wrong_fields_are_named(void)
{
    struct world w;
    world_open(&w);
    ProtobufCBinaryData split = bytes("m");
    Cadastre__KeyspaceCreate m[13];
    static const struct {
        enum err_code code;
        const char *pointer;
    } want[13] = {
        {ERR_INVALID_REQUEST, "/name"},
        {ERR_UNSUPPORTED_SCHEME, "/scheme"},
        {ERR_INVALID_REQUEST, "/key_encoding"},
        {ERR_INVALID_REQUEST, "/authority"},
        {ERR_INVALID_REQUEST, "/replicas"},
        {ERR_UNSUPPORTED_SCHEME, "/partitions"},
        {ERR_UNSUPPORTED_SCHEME, "/partition_key"},
        {ERR_UNSUPPORTED_SCHEME, "/splits"},
        {ERR_INVALID_REQUEST, "/partitions"},
        {ERR_LIMIT_EXCEEDED, "/partitions"},
        {ERR_INVALID_REQUEST, "/partition_key"},
        {ERR_TOO_LARGE, "/policy"},
        {ERR_INVALID_REQUEST, "/policy"},
    };
    static uint8_t policy[DIR_POLICY_MAX + 1];
    for (size_t i = 0; i < 13; i++) {
        m[i] = create("orders");
        m[i].scheme = i >= 7 && i <= 10 ? DIR_SCHEME_HASH : DIR_SCHEME_RANGE;
        m[i].partitions = i >= 7 && i <= 10 ? 4 : 0;
    }
    m[0].name = text_lent("Orders");
    m[1].scheme = 3;
    m[2].key_encoding = 0;
    m[3].authority = 3;
    m[4].sync_replicas = UINT32_MAX;
    m[4].async_replicas = UINT32_MAX;
    m[5].partitions = 1;
    m[6].has_partition_key = true;
    m[7].splits = &split;
    m[7].n_splits = 1;
    m[8].partitions = 0;
    m[9].partitions = DIR_PARTITIONS_MAX + 1;
    m[10].has_partition_key = true;
    m[11].policy = (ProtobufCBinaryData){sizeof policy, policy};
    m[12].policy = (ProtobufCBinaryData){4, policy};
    for (size_t i = 0; i < 13; i++) {
        const struct dir_result *r = send_create(&w, &m[i]);
        CHECK_U64(r->err.code, want[i].code);
        CHECK_STR(r->err.pointer, want[i].pointer);
    }
    CHECK_U64(world_state(&w)->revision, 0);
    world_close(&w);
}

static void names_are_taken_once_and_come_back(void)
{
    struct world w;
    world_open(&w);
    uint64_t first = world_range(&w, "orders")->keyspace->id;
    CHECK_U64(world_range(&w, "orders")->err.code, ERR_KEYSPACE_EXISTS);
    uint64_t partition = world_at(&w, "orders", "")->id;
    Cadastre__KeyspaceDelete m;
    cadastre__keyspace_delete__init(&m);
    m.keyspace = first;
    CHECK_U64(world_do(&w, CADASTRE__COMMAND__BODY_KEYSPACE_DELETE, &m)->err.code, ERR_OK);
    CHECK(world_keyspace(&w, "orders") == NULL);
    CHECK_U64(world_state(&w)->partitions.count, 0);
    CHECK_U64(world_state(&w)->unplaced, 0);
    CHECK_U64(world_do(&w, CADASTRE__COMMAND__BODY_KEYSPACE_DELETE, &m)->err.code,
              ERR_KEYSPACE_NOT_FOUND);
    CHECK(world_range(&w, "orders")->keyspace->id > first);
    CHECK(world_at(&w, "orders", "")->id > partition);
    CHECK_U64(world_split(&w, partition, "m")->err.code, ERR_PARTITION_NOT_FOUND);
    CHECK_U64(world_check(world_state(&w)), 0);
    world_close(&w);
}

static void token_ranges_are_equal(void)
{
    struct world w;
    world_open(&w);
    (void)world_node(&w, "n1", "h:1");
    CHECK_U64(world_hash(&w, "logs", 3)->err.code, ERR_OK);
    const struct dir_keyspace *ks = world_keyspace(&w, "logs");
    static const uint8_t third[8] = {0x55, 0x55, 0x55, 0x55, 0x55, 0x55, 0x55, 0x55};
    const struct dir_partition *p = view_route(world_state(&w), ks, slice_of(third, 8));
    CHECK(slice_eq(dir_partition_start(p), slice_of(third, 8)));
    CHECK_U64(view_map(world_state(&w), ks)->count, 3);
    CHECK(w.effects->changed && w.effects->kind == DIR_CHANGE_CREATE);
    CHECK_STR(w.effects->what, "keyspace_create");
    CHECK_STR(w.effects->subject, "keyspace=logs");
    world_close(&w);
}

static const struct dir_result *grow(struct world *w, uint64_t keyspace, bool last)
{
    Cadastre__KeyspaceGrow m;
    cadastre__keyspace_grow__init(&m);
    m.keyspace = keyspace;
    m.last = last;
    return world_do(w, CADASTRE__COMMAND__BODY_KEYSPACE_GROW, &m);
}

static void a_large_creation_is_seen_whole_or_not_at_all(void)
{
    enum { N = 2 * DIR_CREATE_BATCH + 77 };
    struct world w;
    world_open(&w);
    (void)world_node(&w, "n1", "h:1");
    const struct dir_result *r = world_hash(&w, "logs", N);
    uint64_t id = r->keyspace->id;
    CHECK(r->keyspace->hidden && world_keyspace(&w, "logs") == NULL);
    CHECK(view_keyspace_by_id(world_state(&w), id) == NULL);
    CHECK_U64(world_state(&w)->partitions.count, DIR_CREATE_BATCH);
    CHECK_U64(world_check(world_state(&w)), 0);
    CHECK_U64(grow(&w, id, true)->err.code, ERR_INVALID_REQUEST);
    CHECK_U64(grow(&w, id, false)->err.code, ERR_OK);
    CHECK_U64(world_check(world_state(&w)), 0);
    CHECK(world_keyspace(&w, "logs") == NULL && w.effects->kind == 0);
    CHECK_U64(grow(&w, id, true)->err.code, ERR_OK);
    const struct dir_keyspace *ks = world_keyspace(&w, "logs");
    CHECK(ks != NULL && ks->id == id && w.effects->kind == DIR_CHANGE_CREATE);
    CHECK_U64(view_map(world_state(&w), ks)->count, N);
    CHECK_U64(view_node_by_id(world_state(&w), 1)->partition_count, N);
    CHECK_U64(grow(&w, id, true)->err.code, ERR_KEYSPACE_NOT_FOUND);
    CHECK_U64(world_check(world_state(&w)), 0);
    /* Each bound is where the last one of N equal ranges says. */
    struct ptree_iter it;
    static const uint8_t high[8] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    ptree_seek_floor(view_map(world_state(&w), ks), slice_of(high, 8), &it);
    const struct dir_partition *last = ptree_iter_get(&it, NULL);
    CHECK(last->end_open);
    CHECK_U64(dir_partition_start(last).data[0], 0xff);
    struct dir_change *change;
    dir_rev upto;
    CHECK_U64(feed_read(directory_feed(w.d), id, 0, UINT64_MAX, &change, 1, &upto), 1);
    CHECK(change->kind == DIR_CHANGE_CREATE && change->route_count == N && !change->oversize);
    CHECK_U64(change->revision, world_state(&w)->revision);
    change_unref(change);
    world_close(&w);
}

static const struct dir_result *
grow_range(struct world *w, uint64_t keyspace, const char *a, const char *b)
{
    ProtobufCBinaryData splits[2] = {bytes(a), bytes(b)};
    Cadastre__KeyspaceGrow m;
    cadastre__keyspace_grow__init(&m);
    m.keyspace = keyspace;
    m.last = true;
    m.n_splits = 2;
    m.splits = splits;
    return world_do(w, CADASTRE__COMMAND__BODY_KEYSPACE_GROW, &m);
}

static void a_range_creation_grows_from_its_open_end(void)
{
    struct world w;
    world_open(&w);
    ProtobufCBinaryData first = bytes("f");
    Cadastre__KeyspaceCreate m = create("orders");
    m.more = true;
    m.splits = &first;
    m.n_splits = 1;
    uint64_t abandoned = send_create(&w, &m)->keyspace->id;
    /* Whoever began it is gone; the next one takes the name. */
    uint64_t id = send_create(&w, &m)->keyspace->id;
    CHECK(id > abandoned);
    CHECK_U64(world_state(&w)->partitions.count, 2);
    CHECK_U64(grow_range(&w, abandoned, "m", "t")->err.code, ERR_KEYSPACE_NOT_FOUND);
    CHECK_STR(grow_range(&w, id, "f", "t")->err.pointer, "/splits/0");
    CHECK_STR(grow_range(&w, id, "t", "m")->err.pointer, "/splits/1");
    CHECK_U64(world_split(&w, world_state(&w)->next_id - 1, "x")->err.code,
              ERR_PARTITION_NOT_FOUND);
    CHECK_U64(grow_range(&w, id, "m", "t")->err.code, ERR_OK);
    CHECK_U64(view_map(world_state(&w), world_keyspace(&w, "orders"))->count, 4);
    const struct dir_partition *p = world_at(&w, "orders", "g");
    CHECK(slice_eq(dir_partition_end(p), slice_of("m", 1)));
    CHECK(p->epoch == world_state(&w)->revision);
    CHECK_U64(world_check(world_state(&w)), 0);
    world_close(&w);
}

static void one_command_makes_a_bounded_number(void)
{
    struct world w;
    world_open(&w);
    static ProtobufCBinaryData splits[DIR_CREATE_BATCH];
    static uint8_t keys[DIR_CREATE_BATCH][2];
    for (size_t i = 0; i < DIR_CREATE_BATCH; i++) {
        keys[i][0] = (uint8_t)((i + 1) >> 8);
        keys[i][1] = (uint8_t)(i + 1);
        splits[i] = (ProtobufCBinaryData){2, keys[i]};
    }
    Cadastre__KeyspaceCreate m = create("orders");
    m.splits = splits;
    m.n_splits = DIR_CREATE_BATCH;
    CHECK_U64(send_create(&w, &m)->err.code, ERR_LIMIT_EXCEEDED);
    m.n_splits = DIR_CREATE_BATCH - 1;
    CHECK_U64(send_create(&w, &m)->err.code, ERR_OK);
    CHECK_U64(world_state(&w)->unplaced, DIR_CREATE_BATCH);
    world_close(&w);
}

static Cadastre__KeyspacePatch patch(const struct world *w, const char *name)
{
    Cadastre__KeyspacePatch m;
    cadastre__keyspace_patch__init(&m);
    m.keyspace = world_keyspace(w, name)->id;
    return m;
}

static void patching_what_needs_no_data(void)
{
    struct world w;
    world_open(&w);
    (void)world_range(&w, "orders");
    Cadastre__KeyspacePatch m = patch(&w, "orders");
    m.has_replicas = true;
    m.sync_replicas = 1;
    const struct dir_result *r = world_do(&w, CADASTRE__COMMAND__BODY_KEYSPACE_PATCH, &m);
    CHECK_U64(r->err.code, ERR_OK); /* nothing is placed yet */
    CHECK_U64(r->keyspace->sync_replicas, 1);
    (void)world_node(&w, "n1", "h:1");
    (void)world_node(&w, "n2", "h:2");
    CHECK_U64(world_at(&w, "orders", "")->replica_count, 1); /* n1 was alone when it was placed */
    dir_rev revision = world_state(&w)->revision;
    CHECK_U64(world_do(&w, CADASTRE__COMMAND__BODY_KEYSPACE_PATCH, &m)->err.code, ERR_OK);
    CHECK_U64(world_state(&w)->revision, revision);
    m.sync_replicas = 2;
    r = world_do(&w, CADASTRE__COMMAND__BODY_KEYSPACE_PATCH, &m);
    CHECK_U64(r->err.code, ERR_NEEDS_STAGED_MOVE);
    CHECK_STR(r->err.pointer, "/replicas");
    m = patch(&w, "orders");
    m.has_policy = true;
    m.policy = bytes("{\"a\":1}");
    r = world_do(&w, CADASTRE__COMMAND__BODY_KEYSPACE_PATCH, &m);
    CHECK_STR(r->keyspace->policy, "{\"a\":1}");
    CHECK_U64(r->keyspace->mod_revision, world_state(&w)->revision);
    CHECK_U64(r->revision, revision + 1);
    m.policy = bytes("");
    r = world_do(&w, CADASTRE__COMMAND__BODY_KEYSPACE_PATCH, &m);
    CHECK_STR(r->keyspace->policy, "{}");
    m.keyspace = 999;
    CHECK_U64(world_do(&w, CADASTRE__COMMAND__BODY_KEYSPACE_PATCH, &m)->err.code,
              ERR_KEYSPACE_NOT_FOUND);
    world_close(&w);
}

static void new_rules_let_in_who_was_kept_out(void)
{
    struct world w;
    world_open(&w);
    Cadastre__Placement placement;
    Cadastre__Label label, *labels[] = {&label};
    cadastre__placement__init(&placement);
    cadastre__label__init(&label);
    label.name = text_lent("zone");
    label.value = text_lent("b");
    placement.n_require = 1;
    placement.require = labels;
    Cadastre__KeyspaceCreate c = create("orders");
    c.placement = &placement;
    (void)send_create(&w, &c);
    (void)world_zoned(&w, "n1", "a");
    CHECK_U64(world_state(&w)->unplaced, 1);
    CHECK_U64(world_at(&w, "orders", "")->state, DIR_UNAVAILABLE);
    label.value = text_lent("a");
    Cadastre__KeyspacePatch m = patch(&w, "orders");
    m.has_placement = true;
    m.placement = &placement;
    CHECK_U64(world_do(&w, CADASTRE__COMMAND__BODY_KEYSPACE_PATCH, &m)->err.code, ERR_OK);
    CHECK_U64(world_state(&w)->unplaced, 0);
    CHECK(w.effects->kind == DIR_CHANGE_PLACE);
    const struct dir_partition *p = world_at(&w, "orders", "");
    CHECK(p->state == DIR_ACTIVE && p->holds_data && p->epoch == world_state(&w)->revision);
    /* A rule that the owner breaks is accepted: it is for others to bring it about. */
    label.value = text_lent("c");
    CHECK_U64(world_do(&w, CADASTRE__COMMAND__BODY_KEYSPACE_PATCH, &m)->err.code, ERR_OK);
    CHECK_U64(world_at(&w, "orders", "")->state, DIR_ACTIVE);
    label.name = text_lent("Zone");
    CHECK_STR(world_do(&w, CADASTRE__COMMAND__BODY_KEYSPACE_PATCH, &m)->err.pointer,
              "/placement/require");
    label.name = text_lent("zone");
    placement.spread = text_lent("Zone");
    CHECK_STR(world_do(&w, CADASTRE__COMMAND__BODY_KEYSPACE_PATCH, &m)->err.pointer,
              "/placement/spread");
    CHECK_U64(world_check(world_state(&w)), 0);
    world_close(&w);
}

static void deleting_frees_the_nodes(void)
{
    struct world w;
    world_open(&w);
    (void)world_node(&w, "n1", "h:1");
    (void)world_hash(&w, "logs", 100);
    (void)world_hash(&w, "other", 10);
    CHECK_U64(view_node_by_id(world_state(&w), 1)->partition_count, 110);
    Cadastre__KeyspaceDelete m;
    cadastre__keyspace_delete__init(&m);
    m.keyspace = world_keyspace(&w, "logs")->id;
    CHECK_U64(world_do(&w, CADASTRE__COMMAND__BODY_KEYSPACE_DELETE, &m)->err.code, ERR_OK);
    CHECK_U64(view_node_by_id(world_state(&w), 1)->partition_count, 10);
    struct dir_change *changes[2];
    dir_rev upto;
    dir_rev now = world_state(&w)->revision;
    CHECK_U64(feed_read(directory_feed(w.d), 0, now - 1, now, changes, 2, &upto), 1);
    CHECK(changes[0]->kind == DIR_CHANGE_DELETE && changes[0]->removed_count == 100);
    change_unref(changes[0]);
    CHECK_U64(world_check(world_state(&w)), 0);
    world_close(&w);
}

int main(void)
{
    RUN(splits_must_ascend_and_be_inside);
    RUN(wrong_fields_are_named);
    RUN(names_are_taken_once_and_come_back);
    RUN(token_ranges_are_equal);
    RUN(a_large_creation_is_seen_whole_or_not_at_all);
    RUN(a_range_creation_grows_from_its_open_end);
    RUN(one_command_makes_a_bounded_number);
    RUN(patching_what_needs_no_data);
    RUN(new_rules_let_in_who_was_kept_out);
    RUN(deleting_frees_the_nodes);
    return tap_done();
}
