/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "directory/internal.h"
#include "tests/harness/tap.h"
#include "tests/harness/world.h"

#include <string.h>

static void open_orders(struct world *w)
{
    world_open(w);
    (void)world_node(w, "n1", "h:1");
    (void)world_node(w, "n2", "h:2");
    (void)world_range(w, "orders");
}

static const struct dir_result *limit(struct world *w, uint64_t id, uint64_t rate)
{
    Cadastre__PartitionPatch m;
    cadastre__partition_patch__init(&m);
    m.partition = id;
    m.has_rate_limit = true;
    m.rate_limit = rate;
    return world_do(w, CADASTRE__COMMAND__BODY_PARTITION_PATCH, &m);
}

static const struct dir_result *pin(struct world *w, uint64_t id, bool pinned)
{
    Cadastre__PartitionPatch m;
    cadastre__partition_patch__init(&m);
    m.partition = id;
    m.has_pinned = true;
    m.pinned = pinned;
    return world_do(w, CADASTRE__COMMAND__BODY_PARTITION_PATCH, &m);
}

static void a_split_gives_children_what_the_parent_had(void)
{
    struct world w;
    open_orders(&w);
    uint64_t parent = world_at(&w, "orders", "")->id;
    uint64_t since = world_at(&w, "orders", "")->owner_since_ms;
    (void)limit(&w, parent, 100);
    (void)pin(&w, parent, true);
    w.time_ms += 5000;
    const struct dir_result *r = world_split(&w, parent, "m");
    CHECK_U64(r->route_count, 2);
    CHECK_U64(r->partition, parent);
    for (int i = 0; i < 2; i++) {
        const struct dir_partition *p = r->routes[i].partition;
        CHECK_U64(p->epoch, r->revision);
        CHECK_U64(p->rate_limit, 50);
        CHECK(p->pinned && p->holds_data && p->state == DIR_ACTIVE && p->replica_count == 1);
        CHECK(p->parent_count == 1 && dir_partition_parents(p)[0] == parent);
        CHECK_U64(p->owner_since_ms, since);
        CHECK_STR(r->routes[i].nodes[0]->name, "n1");
    }
    const struct dir_tombstone *t;
    CHECK(view_partition(world_state(&w), world_keyspace(&w, "orders"), parent, &t) == NULL);
    CHECK(t != NULL && t->successor_count == 2 && t->cause == DIR_CHANGE_SPLIT);
    (void)limit(&w, world_at(&w, "orders", "")->id, 1);
    r = world_split(&w, world_at(&w, "orders", "")->id, "f");
    CHECK_U64(r->routes[1].partition->rate_limit, 1); /* never 0, which would mean none */
    CHECK_U64(view_node(world_state(&w), slice_of("n1", 2))->partition_count, 3);
    CHECK_U64(world_check(world_state(&w)), 0);
    world_close(&w);
}

static void bad_split_keys_are_named(void)
{
    static const struct {
        const char *at[2];
        const char *pointer, *detail;
    } rows[] = {
        {{"f", "f"}, "/at/0", "it is a boundary already"},
        {{"h", "t"}, "/at/1", "it is a boundary already"},
        {{"a", "h"}, "/at/0", "it is outside of the partition"},
        {{"h", "z"}, "/at/1", "it is outside of the partition"},
        {{"j", "h"}, "/at/1", "it is not above the one before it"},
        {{"h", "h"}, "/at/1", "it is not above the one before it"},
        {{"", "h"}, "/at/0", "it is outside of the partition"},
    };
    struct world w;
    open_orders(&w);
    (void)world_split(&w, world_at(&w, "orders", "")->id, "f");
    (void)world_split(&w, world_at(&w, "orders", "g")->id, "t");
    uint64_t id = world_at(&w, "orders", "g")->id;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ProtobufCBinaryData at[2];
        for (int k = 0; k < 2; k++) {
            at[k] =
                (ProtobufCBinaryData){strlen(rows[i].at[k]), (uint8_t *)text_lent(rows[i].at[k])};
        }
        Cadastre__Split m;
        cadastre__split__init(&m);
        m.partition = id;
        m.n_at = 2;
        m.at = at;
        const struct dir_result *r = world_do(&w, CADASTRE__COMMAND__BODY_SPLIT, &m);
        CHECK_U64(r->err.code, ERR_BAD_SPLIT_KEY);
        CHECK_STR(r->err.pointer, rows[i].pointer);
        CHECK_STR(r->err.detail, rows[i].detail);
        CHECK(!w.effects->changed);
    }
    Cadastre__Split none;
    cadastre__split__init(&none);
    none.partition = id;
    CHECK_STR(world_do(&w, CADASTRE__COMMAND__BODY_SPLIT, &none)->err.pointer, "/at");
    static ProtobufCBinaryData many[DIR_SPLIT_KEYS_MAX + 1];
    none.n_at = DIR_SPLIT_KEYS_MAX + 1;
    none.at = many;
    CHECK_U64(world_do(&w, CADASTRE__COMMAND__BODY_SPLIT, &none)->err.code, ERR_BAD_SPLIT_KEY);
    world_close(&w);
}

static void the_number_of_partitions_is_bounded(void)
{
    struct world w;
    open_orders(&w);
    struct dir_view s;
    state_copy(world_state(&w), &s);
    s.partitions.count = DIR_PARTITIONS_MAX; /* only the count is looked at */
    Cadastre__Split m;
    ProtobufCBinaryData at = {1, (uint8_t *)text_lent("m")};
    cadastre__split__init(&m);
    m.partition = world_at(&w, "orders", "")->id;
    m.n_at = 1;
    m.at = &at;
    Cadastre__Command c;
    cadastre__command__init(&c);
    c.body_case = CADASTRE__COMMAND__BODY_SPLIT;
    c.split = &m;
    struct apply_outcome o;
    apply_run(&s, 1, &c, &o);
    CHECK_U64(o.result->err.code, ERR_LIMIT_EXCEEDED);
    apply_outcome_close(&o);
    state_close(&s);
    world_close(&w);
}

static void a_wide_split_is_one_change(void)
{
    enum { N = DIR_SPLIT_KEYS_MAX };
    static ProtobufCBinaryData at[N];
    static uint8_t keys[N][2];
    struct world w;
    open_orders(&w);
    for (size_t i = 0; i < N; i++) {
        keys[i][0] = (uint8_t)((i + 1) >> 8);
        keys[i][1] = (uint8_t)(i + 1);
        at[i] = (ProtobufCBinaryData){2, keys[i]};
    }
    Cadastre__Split m;
    cadastre__split__init(&m);
    m.partition = world_at(&w, "orders", "")->id;
    m.n_at = N;
    m.at = at;
    w.key = "wide";
    const struct dir_result *r = world_do(&w, CADASTRE__COMMAND__BODY_SPLIT, &m);
    CHECK_U64(r->err.code, ERR_OK);
    CHECK_U64(r->route_count, N + 1);
    w.key = "wide";
    r = world_do(&w, CADASTRE__COMMAND__BODY_SPLIT, &m);
    CHECK(r->replayed && r->route_count == N + 1);
    CHECK(slice_eq(dir_partition_start(r->routes[N].partition), slice_of(keys[N - 1], 2)));
    CHECK_U64(world_check(world_state(&w)), 0);
    world_close(&w);
}

static void a_retired_id_is_told_from_a_stale_epoch(void)
{
    struct world w;
    open_orders(&w);
    uint64_t first = world_at(&w, "orders", "")->id;
    (void)world_split(&w, first, "m");
    (void)world_split(&w, world_at(&w, "orders", "n")->id, "t");
    const struct dir_result *r = world_split(&w, first, "c");
    CHECK_U64(r->err.code, ERR_STALE_EPOCH);
    CHECK(r->retired && r->route_count == 3 && r->partition == first);
    CHECK(r->routes[2].partition == world_at(&w, "orders", "z"));
    Cadastre__Split m;
    ProtobufCBinaryData at = {1, (uint8_t *)text_lent("c")};
    cadastre__split__init(&m);
    m.partition = world_at(&w, "orders", "a")->id;
    m.n_at = 1;
    m.at = &at;
    m.has_expect_epoch = true;
    m.expect_epoch = world_at(&w, "orders", "a")->epoch - 1;
    r = world_do(&w, CADASTRE__COMMAND__BODY_SPLIT, &m);
    CHECK_U64(r->err.code, ERR_STALE_EPOCH);
    CHECK(!r->retired && r->route_count == 1 &&
          r->current_epoch == world_at(&w, "orders", "a")->epoch);
    m.expect_epoch += 2;
    CHECK_U64(world_do(&w, CADASTRE__COMMAND__BODY_SPLIT, &m)->err.code, ERR_FUTURE_EPOCH);
    m.partition = 12345;
    CHECK_U64(world_do(&w, CADASTRE__COMMAND__BODY_SPLIT, &m)->err.code, ERR_PARTITION_NOT_FOUND);
    world_close(&w);
}

static void merges_want_neighbours_alike(void)
{
    struct world w;
    open_orders(&w);
    (void)world_range(&w, "other");
    (void)world_split(&w, world_at(&w, "orders", "")->id, "f");
    (void)world_split(&w, world_at(&w, "orders", "g")->id, "t");
    uint64_t a = world_at(&w, "orders", "")->id, b = world_at(&w, "orders", "g")->id;
    uint64_t c = world_at(&w, "orders", "z")->id, other = world_at(&w, "other", "")->id;
    CHECK_STR(world_merge(&w, a, a)->err.detail, "a partition can't be merged with itself");
    CHECK_STR(world_merge(&w, a, c)->err.detail, "they are not neighbours");
    CHECK_STR(world_merge(&w, a, other)->err.detail, "they are of two keyspaces");
    (void)world_move(&w, b, "n2");
    CHECK_STR(world_merge(&w, a, b)->err.detail,
              "their copies are not on the same nodes in the same roles");
    CHECK_U64(w.result->err.code, ERR_NOT_MERGEABLE);
    CHECK_U64(world_merge(&w, a, 999)->err.code, ERR_PARTITION_NOT_FOUND);
    (void)world_move(&w, b, "n1");
    (void)limit(&w, a, 10);
    (void)limit(&w, b, 5);
    (void)pin(&w, b, true);
    dir_rev before = world_at(&w, "orders", "g")->epoch;
    const struct dir_result *r = world_merge(&w, b, a); /* the left one is `with` */
    CHECK_U64(r->err.code, ERR_OK);
    const struct dir_partition *p = r->routes[0].partition;
    CHECK(p->epoch > before && p->rate_limit == 15 && p->pinned && p->parent_count == 2);
    CHECK(dir_partition_parents(p)[0] == a && dir_partition_parents(p)[1] == b);
    CHECK(p->start_len == 0 && slice_eq(dir_partition_end(p), slice_of("t", 1)));
    uint64_t merged = p->id;
    r = world_merge(&w, c, b); /* retired: what is there now */
    CHECK_U64(r->err.code, ERR_STALE_EPOCH);
    CHECK(r->retired && r->partition == b && r->route_count == 1);
    CHECK(r->routes[0].partition->id == merged);
    r = world_merge(&w, merged, c);
    CHECK_U64(r->err.code, ERR_OK);
    CHECK_U64(r->routes[0].partition->rate_limit, 0); /* one had none */
    CHECK(r->routes[0].partition->end_open);
    CHECK_U64(view_node(world_state(&w), slice_of("n1", 2))->partition_count, 1);
    CHECK_U64(world_check(world_state(&w)), 0);
    world_close(&w);
}

static const struct dir_result *
reassign(struct world *w, uint64_t id, const char *from, const char *to)
{
    Cadastre__Reassign m;
    cadastre__reassign__init(&m);
    m.partition = id;
    m.from = text_lent(from);
    m.to = text_lent(to);
    m.reason = text_lent("it was empty");
    return world_do(w, CADASTRE__COMMAND__BODY_REASSIGN, &m);
}

static void a_reassignment_is_an_operation(void)
{
    struct world w;
    open_orders(&w);
    uint64_t id = world_at(&w, "orders", "")->id;
    dir_rev epoch = world_at(&w, "orders", "")->epoch;
    w.time_ms = 77000;
    w.principal = "alice";
    const struct dir_result *r = reassign(&w, id, "n1", "n2");
    CHECK_U64(r->err.code, ERR_OK);
    const struct dir_operation *o = r->operation;
    CHECK(o != NULL && view_operation(world_state(&w), o->id) == o);
    CHECK(o->epoch_before == epoch && o->epoch_after == r->revision && o->at_ms == 77000);
    CHECK_STR(o->source_name, "n1");
    CHECK_STR(o->destination_name, "n2");
    CHECK_STR(o->initiator, "alice");
    CHECK_STR(o->reason, "it was empty");
    const struct dir_partition *p = world_at(&w, "orders", "");
    CHECK(p->id == id && p->epoch == r->revision && p->owner_since_ms == 77000);
    CHECK_U64(view_node(world_state(&w), slice_of("n1", 2))->partition_count, 0);
    CHECK_U64(view_node(world_state(&w), slice_of("n2", 2))->partition_count, 1);
    CHECK(w.effects->kind == DIR_CHANGE_MOVE);
    CHECK_STR(w.effects->principal, "alice");
    r = reassign(&w, id, "n1", "n2");
    CHECK_U64(r->err.code, ERR_NOT_OWNER);
    CHECK_STR(r->err.detail, "the primary of partition 4 is \"n2\"");
    CHECK_U64(reassign(&w, id, "n2", "n2")->err.code, ERR_NO_DESTINATION);
    CHECK_U64(reassign(&w, id, "", "n3")->err.code, ERR_NODE_NOT_FOUND);
    CHECK_STR(w.result->err.pointer, "/to");
    world_close(&w);
}

static void who_may_take_a_partition(void)
{
    struct world w;
    open_orders(&w);
    struct dir_view s;
    state_copy(world_state(&w), &s);
    Cadastre__Reassign m;
    cadastre__reassign__init(&m);
    m.partition = world_at(&w, "orders", "")->id;
    m.to = text_lent("n2");
    Cadastre__Command c;
    cadastre__command__init(&c);
    c.body_case = CADASTRE__COMMAND__BODY_REASSIGN;
    c.reassign = &m;
    const struct dir_node *n2 = view_node(&s, slice_of("n2", 2));
    struct dir_node *n = mem_dup(n2, dir_node_size(n2));
    n->object.refs = 1;
    n->scheduling = 2; /* draining; no command sets it yet */
    dir_unref(state_put(&s, &n->object));
    struct apply_outcome o;
    apply_run(&s, 1, &c, &o);
    CHECK_U64(o.result->err.code, ERR_NO_DESTINATION);
    apply_outcome_close(&o);
    state_close(&s);
    world_close(&w);
}

static void the_oldest_operation_makes_room(void)
{
    struct world w;
    open_orders(&w);
    uint64_t id = world_at(&w, "orders", "")->id, first = 0;
    for (int i = 0; i <= DIR_OPERATIONS_MAX; i++) {
        const struct dir_result *r = world_move(&w, id, i % 2 == 0 ? "n2" : "n1");
        first = i == 0 ? r->operation->id : first;
        if (!CHECK(r->err.code == ERR_OK)) {
            break;
        }
    }
    CHECK_U64(world_state(&w)->operations.count, DIR_OPERATIONS_MAX);
    CHECK(view_operation(world_state(&w), first) == NULL);
    CHECK_U64(world_check(world_state(&w)), 0);
    world_close(&w);
}

static void pins_and_limits(void)
{
    struct world w;
    open_orders(&w);
    const struct dir_partition *p = world_at(&w, "orders", "");
    dir_rev epoch = p->epoch, mod = p->mod_revision, revision = world_state(&w)->revision;
    CHECK_U64(pin(&w, p->id, true)->revision, revision + 1);
    p = world_at(&w, "orders", "");
    CHECK(p->pinned && p->epoch == epoch && p->mod_revision == mod);
    CHECK(w.effects->kind == DIR_CHANGE_PIN);
    CHECK_U64(pin(&w, p->id, true)->revision, revision + 1);
    CHECK(!w.effects->changed);
    CHECK_U64(limit(&w, p->id, 9000)->revision, revision + 2);
    p = world_at(&w, "orders", "");
    CHECK(p->rate_limit == 9000 && p->epoch == epoch && p->mod_revision == revision + 2);
    struct dir_change *change;
    dir_rev upto;
    CHECK_U64(feed_read(directory_feed(w.d), 0, revision, revision + 2, &change, 1, &upto), 1);
    CHECK(change->kind == DIR_CHANGE_LIMIT && change->revision == revision + 2);
    change_unref(change);
    CHECK_U64(limit(&w, p->id, DIR_REVISION_MAX + 1)->err.code, ERR_INVALID_REQUEST);
    CHECK_U64(limit(&w, p->id, 0)->err.code, ERR_OK);
    CHECK_U64(world_at(&w, "orders", "")->rate_limit, 0);
    world_close(&w);
}

int main(void)
{
    RUN(a_split_gives_children_what_the_parent_had);
    RUN(bad_split_keys_are_named);
    RUN(the_number_of_partitions_is_bounded);
    RUN(a_wide_split_is_one_change);
    RUN(a_retired_id_is_told_from_a_stale_epoch);
    RUN(merges_want_neighbours_alike);
    RUN(a_reassignment_is_an_operation);
    RUN(who_may_take_a_partition);
    RUN(the_oldest_operation_makes_room);
    RUN(pins_and_limits);
    return tap_done();
}
