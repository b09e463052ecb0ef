/* SPDX-License-Identifier: Apache-2.0 */
#include "directory/internal.h"
#include "tests/harness/agents.h"
#include "tests/harness/tap.h"
#include "tests/harness/world.h"

#include <stdio.h>
#include <string.h>

static const struct dir_node *node(const struct world *w, const char *name)
{
    return view_node(world_state(w), slice_of(name, strlen(name)));
}

static const struct dir_result *remove_node(struct world *w, const char *name, bool force)
{
    Cadastre__NodeDelete m;
    cadastre__node_delete__init(&m);
    m.name = text_lent(name);
    m.force = force;
    return world_do(w, CADASTRE__COMMAND__BODY_NODE_DELETE, &m);
}

/* A keyspace with rules. */
struct rules {
    const char *name, *require_zone, *spread;
    uint32_t sync;
    uint64_t partitions;
};

static const struct dir_result *create(struct world *w, const struct rules *r)
{
    Cadastre__KeyspaceCreate m;
    Cadastre__Placement placement;
    Cadastre__Label label, *labels[] = {&label};
    cadastre__keyspace_create__init(&m);
    cadastre__placement__init(&placement);
    cadastre__label__init(&label);
    label.name = text_lent("zone");
    label.value = text_lent(r->require_zone != NULL ? r->require_zone : "");
    placement.n_require = r->require_zone != NULL;
    placement.require = labels;
    placement.spread = text_lent(r->spread);
    m.name = text_lent(r->name);
    m.scheme = DIR_SCHEME_HASH;
    m.key_encoding = DIR_ENCODING_HEX;
    m.authority = DIR_AUTHORITY_EXCLUSIVE;
    m.partitions = r->partitions;
    m.sync_replicas = r->sync;
    m.placement = &placement;
    return world_do(w, CADASTRE__COMMAND__BODY_KEYSPACE_CREATE, &m);
}

static uint64_t changes_at(const struct world *w, dir_rev revision, struct dir_change **out)
{
    dir_rev upto;
    int64_t n = feed_read(directory_feed(w->d), 0, revision - 1, revision, out, 8, &upto);
    CHECK(n >= 0);
    return (uint64_t)n;
}

static void drop(struct dir_change **changes, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        change_unref(changes[i]);
    }
}

static void load_is_level_and_ties_go_by_name(void)
{
    struct world w;
    world_open(&w);
    for (int i = 9; i >= 0; i--) {
        char name[4], address[16];
        (void)snprintf(name, sizeof name, "n%d", i);
        (void)snprintf(address, sizeof address, "h:%d", i);
        (void)world_node(&w, name, address);
    }
    struct rules r = {"a", NULL, "", 0, 1};
    (void)create(&w, &r);
    CHECK_U64(node(&w, "n0")->partition_count, 1);
    r = (struct rules){"b", NULL, "", 2, 103};
    (void)create(&w, &r);
    for (int i = 0; i < 10; i++) {
        char name[4];
        (void)snprintf(name, sizeof name, "n%d", i);
        CHECK_U64(node(&w, name)->partition_count, 31); /* (1 + 3 * 103) / 10 */
    }
    CHECK_U64(world_check(world_state(&w)), 0);
    world_close(&w);
}

static void copies_spread_while_there_are_enough_values(void)
{
    static const char *const zones[] = {"a", "a", "a", "b", "c"};
    struct world w;
    world_open(&w);
    for (int i = 0; i < 5; i++) {
        char name[4];
        (void)snprintf(name, sizeof name, "n%d", i);
        (void)world_zoned(&w, name, zones[i]);
    }
    struct rules r = {"spread", NULL, "zone", 2, 60};
    (void)create(&w, &r);
    const struct dir_partition *p;
    struct ptree_iter it;
    for (ptree_seek(view_map(world_state(&w), world_keyspace(&w, "spread")), slice_of(NULL, 0),
                    &it);
         (p = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        unsigned seen = 0;
        for (int c = 0; c < p->replica_count; c++) {
            const struct dir_node *n = view_node_by_id(world_state(&w), p->replicas[c].node);
            seen |= 1U << (place_label(n, "zone")[0] - 'a');
        }
        CHECK(p->replica_count == 3 && seen == 7);
        CHECK(p->replicas[0].role == DIR_ROLE_PRIMARY && p->replicas[2].role == DIR_ROLE_SYNC);
    }
    /* More copies than zones: the rest goes where there is room, never twice to one node. */
    r = (struct rules){"dense", NULL, "zone", 4, 20};
    (void)create(&w, &r);
    CHECK_U64(world_at(&w, "dense", "")->replica_count, 5);
    r = (struct rules){"over", NULL, "zone", 6, 3};
    (void)create(&w, &r);
    CHECK_U64(world_at(&w, "over", "")->replica_count, 5);
    CHECK_U64(world_check(world_state(&w)), 0);
    world_close(&w);
}

static void hard_rules_are_kept(void)
{
    struct world w;
    world_open(&w);
    (void)world_zoned(&w, "n1", "a");
    struct rules r = {"eu", "b", "", 0, 3};
    (void)create(&w, &r);
    CHECK_U64(world_state(&w)->unplaced, 3);
    CHECK_U64(world_at(&w, "eu", "")->state, DIR_UNAVAILABLE);
    CHECK_U64(world_at(&w, "eu", "")->replica_count, 0);
    /* What can't be placed does not keep others waiting. */
    r = (struct rules){"any", NULL, "", 0, 2};
    (void)create(&w, &r);
    CHECK_U64(world_state(&w)->unplaced, 3);
    const struct dir_result *moved = world_move(&w, world_at(&w, "eu", "")->id, "n1");
    CHECK_U64(moved->err.code, ERR_PLACEMENT_VIOLATED);
    (void)world_zoned(&w, "n2", "b");
    CHECK_U64(world_state(&w)->unplaced, 0);
    CHECK_U64(node(&w, "n2")->partition_count, 3);
    const struct dir_partition *p = world_at(&w, "eu", "");
    CHECK(p->cause == DIR_CHANGE_PLACE && p->epoch == world_state(&w)->revision);
    struct dir_change *changes[8];
    uint64_t n = changes_at(&w, world_state(&w)->revision, changes);
    CHECK(n == 1 && changes[0]->kind == DIR_CHANGE_PLACE && changes[0]->route_count == 3);
    drop(changes, n);
    CHECK_U64(world_check(world_state(&w)), 0);
    world_close(&w);
}

static void placing_goes_on_in_batches(void)
{
    struct world w;
    world_open(&w);
    struct rules r = {"a", NULL, "", 0, DIR_PLACE_BATCH - 1};
    (void)create(&w, &r);
    r.name = "b";
    (void)create(&w, &r);
    (void)world_node(&w, "n1", "h:1");
    CHECK_U64(world_state(&w)->unplaced, DIR_PLACE_BATCH - 2);
    struct dir_change *changes[8];
    uint64_t n = changes_at(&w, world_state(&w)->revision, changes);
    CHECK_U64(n, 2);
    CHECK_U64(changes[0]->route_count + changes[1]->route_count, DIR_PLACE_BATCH);
    drop(changes, n);
    Cadastre__Place m;
    cadastre__place__init(&m);
    dir_rev revision = world_state(&w)->revision;
    CHECK_U64(world_do(&w, CADASTRE__COMMAND__BODY_PLACE, &m)->revision, revision + 1);
    CHECK_U64(world_state(&w)->unplaced, 0);
    CHECK_U64(world_do(&w, CADASTRE__COMMAND__BODY_PLACE, &m)->revision, revision + 1);
    CHECK(!w.effects->changed);
    CHECK_U64(node(&w, "n1")->partition_count, 2 * (DIR_PLACE_BATCH - 1));
    CHECK_U64(world_check(world_state(&w)), 0);
    world_close(&w);
}

static void registering_again(void)
{
    struct world w;
    world_open(&w);
    struct rules r = {"a", NULL, "", 0, 4};
    const struct dir_result *got = world_node(&w, "n1", "h:1");
    CHECK(got->session == 1 && got->node->id == 1 && got->revision == 1);
    (void)create(&w, &r);
    (void)world_range(&w, "b");
    dir_rev before = world_state(&w)->revision;
    got = world_node(&w, "n1", "h:1");
    CHECK(got->revision == before && got->session == 1 && got->node->partition_count == 5);
    CHECK(!w.effects->changed);
    got = world_node(&w, "n1", "h:2");
    CHECK(got->revision == before + 1 && got->session == 1 && got->node->id == 1);
    CHECK(w.effects->kind == DIR_CHANGE_NODE);
    const struct dir_partition *p = world_at(&w, "b", "");
    CHECK(p->mod_revision < before + 1);
    CHECK_U64(view_route_revision(world_state(&w), p), before + 1);
    CHECK_STR(view_primary(world_state(&w), p)->address, "h:2");
    struct dir_change *changes[8];
    uint64_t n = changes_at(&w, before + 1, changes);
    CHECK_U64(n, 2);
    CHECK(changes[0]->kind == DIR_CHANGE_NODE && changes[0]->route_count == 4);
    CHECK(changes[1]->route_count == 1 && changes[1]->routes[0].mod_revision == before + 1);
    CHECK_STR(changes[1]->routes[0].nodes[0]->address, "h:2");
    drop(changes, n);
    got = world_node(&w, "n2", "h:2");
    CHECK_U64(got->err.code, ERR_NODE_IN_USE);
    CHECK_STR(got->err.detail, "\"n1\" has this address");
    CHECK_U64(world_node(&w, "n2", "h:1")->err.code, ERR_OK); /* it is free again */
    CHECK_U64(world_check(world_state(&w)), 0);
    world_close(&w);
}

static void a_node_can_not_leave_the_rules_it_serves(void)
{
    struct world w;
    world_open(&w);
    (void)world_zoned(&w, "n1", "a");
    struct rules r = {"eu", "a", "", 0, 1};
    (void)create(&w, &r);
    const struct dir_result *got = world_zoned(&w, "n1", "b");
    CHECK_U64(got->err.code, ERR_PLACEMENT_VIOLATED);
    CHECK_STR(got->err.pointer, "/labels");
    CHECK_STR(place_label(node(&w, "n1"), "zone"), "a");
    (void)world_zoned(&w, "n2", "a");
    (void)world_move(&w, world_at(&w, "eu", "")->id, "n2");
    CHECK_U64(world_zoned(&w, "n1", "b")->err.code, ERR_OK);
    CHECK_STR(place_label(node(&w, "n1"), "zone"), "b");
    world_close(&w);
}

static void wrong_nodes_are_refused(void)
{
    struct world w;
    world_open(&w);
    Cadastre__Label labels[DIR_LABELS_MAX + 1], *pointers[DIR_LABELS_MAX + 1];
    for (int i = 0; i <= DIR_LABELS_MAX; i++) {
        cadastre__label__init(&labels[i]);
        labels[i].name = text_lent("zone");
        labels[i].value = text_lent("7");
        pointers[i] = &labels[i];
    }
    Cadastre__NodePut m;
    cadastre__node_put__init(&m);
    m.name = text_lent("n1");
    m.address = text_lent("h:1");
    m.labels = m.capacity = pointers;
    CHECK_U64(world_node(&w, "N1", "h:1")->err.code, ERR_INVALID_REQUEST);
    CHECK_STR(world_node(&w, "n1", "")->err.pointer, "/address");
    CHECK_STR(world_node(&w, "n1", "h 1")->err.pointer, "/address");
    CHECK_STR(world_node(&w, "n1", "h\xc3\xa9:1")->err.pointer, "/address");
    m.n_labels = 2;
    CHECK_STR(world_do(&w, CADASTRE__COMMAND__BODY_NODE_PUT, &m)->err.detail,
              "\"zone\" is there twice");
    m.n_labels = DIR_LABELS_MAX + 1;
    CHECK_U64(world_do(&w, CADASTRE__COMMAND__BODY_NODE_PUT, &m)->err.code, ERR_LIMIT_EXCEEDED);
    m.n_labels = 1;
    labels[0].value = text_lent("");
    CHECK_STR(world_do(&w, CADASTRE__COMMAND__BODY_NODE_PUT, &m)->err.pointer, "/labels");
    labels[0].value = text_lent("a\nb");
    CHECK_STR(world_do(&w, CADASTRE__COMMAND__BODY_NODE_PUT, &m)->err.pointer, "/labels");
    m.n_labels = 0;
    m.n_capacity = 1;
    labels[0].value = text_lent("1.5");
    CHECK_STR(world_do(&w, CADASTRE__COMMAND__BODY_NODE_PUT, &m)->err.pointer, "/capacity");
    labels[0].value = text_lent("4096");
    CHECK_U64(world_do(&w, CADASTRE__COMMAND__BODY_NODE_PUT, &m)->err.code, ERR_OK);
    CHECK_STR(dir_node_capacity(node(&w, "n1"))[0].value, "4096");
    CHECK_U64(world_state(&w)->revision, 1);
    world_close(&w);
}

static void a_lost_node_leaves_its_data_unavailable(void)
{
    struct world w;
    world_open(&w);
    (void)world_node(&w, "n1", "h:1");
    (void)world_node(&w, "n2", "h:2");
    struct rules r = {"a", NULL, "", 1, 2};
    (void)create(&w, &r);
    const struct dir_partition *p = world_at(&w, "a", "");
    CHECK_STR(view_primary(world_state(&w), p)->name, "n1");
    dir_rev epoch = p->epoch;
    const struct dir_result *got = remove_node(&w, "n1", false);
    CHECK_U64(got->err.code, ERR_NODE_IN_USE);
    CHECK_STR(got->err.detail, "\"n1\" holds copies of 2 partitions");
    CHECK_U64(remove_node(&w, "n3", true)->err.code, ERR_NODE_NOT_FOUND);
    CHECK_U64(remove_node(&w, "n1", true)->err.code, ERR_OK);
    CHECK(node(&w, "n1") == NULL && w.effects->kind == DIR_CHANGE_LOST);
    p = world_at(&w, "a", "");
    CHECK(p->state == DIR_UNAVAILABLE && p->epoch == epoch && p->replica_count == 1);
    CHECK_U64(p->mod_revision, world_state(&w)->revision);
    CHECK(view_primary(world_state(&w), p) == NULL && p->replicas[0].role == DIR_ROLE_SYNC);
    /* It may hold data, so nobody but an operator gives it to another. */
    CHECK_U64(world_state(&w)->unplaced, 0);
    (void)world_node(&w, "n1", "h:1");
    CHECK(node(&w, "n1")->id > 2); /* the name comes back, the id does not */
    CHECK_U64(world_at(&w, "a", "")->state, DIR_UNAVAILABLE);
    got = world_split(&w, world_at(&w, "a", "")->id, "5");
    CHECK_U64(got->err.code, ERR_OK);
    CHECK_U64(got->routes[0].partition->state, DIR_UNAVAILABLE);
    uint64_t left = got->routes[0].partition->id, right = got->routes[1].partition->id;
    CHECK_U64(world_move(&w, left, "n2")->err.code, ERR_NO_DESTINATION); /* it has a copy */
    CHECK_U64(world_move(&w, left, "n1")->err.code, ERR_OK);
    p = world_at(&w, "a", "");
    CHECK(p->state == DIR_ACTIVE && p->replica_count == 2 && p->epoch > epoch);
    CHECK_STR(world_merge(&w, left, right)->err.detail,
              "one of them is active and the other is not");
    CHECK_U64(remove_node(&w, "n2", true)->err.code, ERR_OK);
    CHECK_U64(world_at(&w, "a", "")->state, DIR_ACTIVE); /* it lost a copy, not its primary */
    CHECK_U64(world_check(world_state(&w)), 0);
    world_close(&w);
}

static void an_unused_node_goes_without_a_trace(void)
{
    struct world w;
    world_open(&w);
    (void)world_node(&w, "n1", "h:1");
    CHECK_U64(remove_node(&w, "n1", false)->err.code, ERR_OK);
    CHECK_U64(world_state(&w)->nodes.count, 0);
    CHECK(w.effects->changed && w.effects->kind == 0);
    CHECK_U64(world_check(world_state(&w)), 0);
    world_close(&w);
}

static void names_of_any_length_are_looked_up(void)
{
    static char name[100000];
    struct world w;
    world_open(&w);
    (void)world_node(&w, "n1", "h:1");
    (void)world_range(&w, "orders");
    memset(name, 'n', sizeof name - 1);
    CHECK_U64(remove_node(&w, name, true)->err.code, ERR_NODE_NOT_FOUND);
    CHECK_U64(world_move(&w, world_at(&w, "orders", "")->id, name)->err.code, ERR_NODE_NOT_FOUND);
    CHECK_U64(world_node(&w, name, "h:2")->err.code, ERR_INVALID_REQUEST);
    CHECK_U64(world_range(&w, name)->err.code, ERR_INVALID_REQUEST);
    CHECK(view_keyspace(world_state(&w), slice_of(name, sizeof name - 1)) == NULL);
    world_close(&w);
}

static void a_leased_primary_is_not_reassigned(void)
{
    struct world w;
    world_open(&w);
    Cadastre__NodePut m;
    cadastre__node_put__init(&m);
    m.name = text_lent("n1");
    m.address = text_lent("h:1");
    (void)world_do(&w, CADASTRE__COMMAND__BODY_NODE_PUT, &m);
    (void)world_node(&w, "n2", "h:2");
    (void)world_range(&w, "orders");
    uint64_t id = world_at(&w, "orders", "")->id;
    CHECK_U64(world_move(&w, id, "n2")->err.code, ERR_LEASE_HELD);
    m.is_static = true;
    uint64_t leased = node(&w, "n1")->session;
    CHECK_U64(world_do(&w, CADASTRE__COMMAND__BODY_NODE_PUT, &m)->err.code, ERR_OK);
    CHECK_U64(world_move(&w, id, "n2")->err.code, ERR_LEASE_HELD); /* its old session may write */
    CHECK_U64(agent_end(&w, "n1", leased, false)->err.code, ERR_OK);
    CHECK_U64(world_move(&w, id, "n2")->err.code, ERR_OK);
    world_close(&w);
}

int main(void)
{
    RUN(load_is_level_and_ties_go_by_name);
    RUN(copies_spread_while_there_are_enough_values);
    RUN(hard_rules_are_kept);
    RUN(placing_goes_on_in_batches);
    RUN(registering_again);
    RUN(a_node_can_not_leave_the_rules_it_serves);
    RUN(wrong_nodes_are_refused);
    RUN(a_lost_node_leaves_its_data_unavailable);
    RUN(an_unused_node_goes_without_a_trace);
    RUN(names_of_any_length_are_looked_up);
    RUN(a_leased_primary_is_not_reassigned);
    return tap_done();
}
