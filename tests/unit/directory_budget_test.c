/* SPDX-License-Identifier: Apache-2.0 */
/* Budgets of movement: each kind and class, what is given back and when, and what is said of what
 * waits. */
#include "directory/budget_internal.h"
#include "tests/harness/agents.h"
#include "tests/harness/fleet.h"
#include "tests/harness/tap.h"

#include <stdio.h>
#include <string.h>

enum { SOURCES = 6, TARGETS = 6, PARTITIONS = 60 };
#define MIB (UINT64_C(1) << 20)

static struct world w;

/* s0…s5 in one rack, zone and on one device, with ten partitions each; d0…d5 without labels. */
static void open_world(void)
{
    char name[16];
    world_open(&w);
    for (int i = 0; i < SOURCES; i++) {
        (void)snprintf(name, sizeof name, "s%d", i);
        (void)fleet_node(&w, name, "r1", "z1", "disk1");
    }
    (void)world_hash(&w, "k", PARTITIONS);
    for (int i = 0; i < TARGETS; i++) {
        (void)snprintf(name, sizeof name, "d%d", i);
        (void)fleet_node(&w, name, "", "", "");
    }
}

/* A partition of this node that nothing holds. */
static uint64_t free_partition(const char *node)
{
    const struct dir_partition *p;
    struct ptree_iter it;
    for (ptree_seek(&world_state(&w)->partitions, slice_of(NULL, 0), &it);
         (p = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        const struct dir_node *n = view_primary(world_state(&w), p);
        if (p->operation == 0 && n != NULL && strcmp(n->name, node) == 0) {
            return p->id;
        }
    }
    CHECK(false);
    return 0;
}

static uint64_t queue_of(const char *from, const char *to, uint32_t class_of, uint64_t rate)
{
    struct fleet_start s = {
        .partition = free_partition(from), .to = to, .class_of = class_of, .rate = rate};
    uint64_t id = fleet_start(&w, &s);
    CHECK(id != 0);
    return id;
}

static struct dir_waiting waiting(uint64_t operation)
{
    struct dir_waiting why;
    CHECK(dir_budget_waits(world_state(&w), fleet_operation(&w, operation), &why));
    return why;
}

static const struct dir_usage *used(enum dir_budget budget, const char *name)
{
    const struct dir_node *n = view_node(world_state(&w), slice_of(name, strlen(name)));
    const struct dir_usage *u;
    struct ptree_iter it;
    for (ptree_seek(&world_state(&w)->usage, slice_of(NULL, 0), &it);
         (u = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        if (u->budget == budget &&
            (n != NULL ? u->node == n->id : u->node == 0 && strcmp(u->label, name) == 0)) {
            return u;
        }
    }
    return NULL;
}

static uint64_t moves_of(enum dir_budget budget, const char *name)
{
    const struct dir_usage *u = used(budget, name);
    return u != NULL ? dir_usage_total(u).moves : 0;
}

static uint64_t bytes_of(enum dir_budget budget, const char *name)
{
    const struct dir_usage *u = used(budget, name);
    return u != NULL ? dir_usage_total(u).bytes_per_s : 0;
}

/* --- every budget, by count and by bytes --- */

/* The i-th pair that shares this budget and no other. */
static void pair_of(enum dir_budget budget, int i, char from[16], char to[16])
{
    bool same_source = budget == DIR_BUDGET_SOURCE;
    bool same_target = budget == DIR_BUDGET_DESTINATION;
    (void)snprintf(from, 16, "s%d", same_source ? 0 : i);
    (void)snprintf(to, 16, "d%d", same_target ? 0 : i);
}

static const char *value_of(enum dir_budget budget)
{
    static const char *const values[] = {
        [DIR_BUDGET_SOURCE] = "s0", [DIR_BUDGET_DESTINATION] = "d0", [DIR_BUDGET_RACK] = "r1",
        [DIR_BUDGET_ZONE] = "z1",   [DIR_BUDGET_DEVICE] = "disk1",   [DIR_BUDGET_CLUSTER] = "",
        [DIR_BUDGET_TRANSFER] = "",
    };
    return values[budget];
}

static uint64_t pair(enum dir_budget budget, int i, uint32_t class_of, uint64_t rate)
{
    char from[16], to[16];
    pair_of(budget, i, from, to);
    return queue_of(from, to, class_of, rate);
}

/* Of four, half are kept for recovery: two routine moves, then two recoveries, and no more. */
static void one_budget(enum dir_budget budget, bool of_bytes, uint32_t routine, uint32_t recovery)
{
    open_world();
    fleet_unlimited(&w);
    (void)fleet_reserve(&w, 50);
    (void)fleet_limit(&w, budget, of_bytes ? 100 : 4, of_bytes ? 40 * MIB : DIR_BUDGET_BYTES_MAX);
    CHECK_U64(fleet_admit(&w, pair(budget, 0, routine, 10 * MIB)), ERR_OK);
    CHECK_U64(fleet_admit(&w, pair(budget, 1, routine, 10 * MIB)), ERR_OK);
    uint64_t third = pair(budget, 2, routine, 10 * MIB);
    CHECK_U64(fleet_admit(&w, third), ERR_BUDGET_EXCEEDED);
    struct dir_waiting why = waiting(third);
    CHECK(why.budget == budget && why.of_bytes == of_bytes && why.operation == 0);
    CHECK_STR(why.value, value_of(budget));
    CHECK_U64(why.used, of_bytes ? 20 * MIB : 2);
    CHECK_U64(why.wanted, of_bytes ? 10 * MIB : 1);
    CHECK_U64(why.limit, of_bytes ? 40 * MIB : 4);
    CHECK_U64(why.reserve, of_bytes ? 20 * MIB : 2);
    CHECK_U64(fleet_admit(&w, pair(budget, 3, recovery, 10 * MIB)), ERR_OK);
    CHECK_U64(fleet_admit(&w, pair(budget, 4, recovery, 10 * MIB)), ERR_OK);
    CHECK_U64(fleet_admit(&w, pair(budget, 5, recovery, 10 * MIB)), ERR_BUDGET_EXCEEDED);
    CHECK(of_bytes || moves_of(budget, value_of(budget)) == 4);
    CHECK(!of_bytes || bytes_of(budget, value_of(budget)) == 40 * MIB);
    CHECK_U64(fleet_admit(&w, third), ERR_BUDGET_EXCEEDED);
    world_close_checked(&w);
}

static void every_budget_is_kept_for_every_class(void)
{
    static const uint32_t routine[] = {DIR_CLASS_OPTIMISE,  DIR_CLASS_BALANCE,  DIR_CLASS_OPERATOR,
                                       DIR_CLASS_HOT,       DIR_CLASS_OVERLOAD, DIR_CLASS_DRAIN,
                                       DIR_CLASS_CONSTRAINT};
    static const uint32_t recovery[] = {DIR_CLASS_UNDER_REPLICATED, DIR_CLASS_LAST_COPY,
                                        DIR_CLASS_UNAVAILABLE};
    unsigned n = 0;
    for (int b = DIR_BUDGET_SOURCE; b <= DIR_BUDGET_CLUSTER; b++) {
        for (unsigned i = 0; i < sizeof routine / sizeof routine[0]; i++, n++) {
            tap_note("%s, class %u", dir_budget_name((enum dir_budget)b), routine[i]);
            one_budget((enum dir_budget)b, n % 2 == 0, routine[i], recovery[n % 3]);
            one_budget((enum dir_budget)b, n % 2 != 0, routine[i], recovery[n % 3]);
        }
    }
}

static void recoveries_may_take_all_of_it(void)
{
    open_world();
    fleet_unlimited(&w);
    (void)fleet_reserve(&w, 50);
    (void)fleet_limit(&w, DIR_BUDGET_CLUSTER, 2, DIR_BUDGET_COMPUTED);
    for (int i = 0; i < 2; i++) {
        CHECK_U64(fleet_admit(&w, pair(DIR_BUDGET_CLUSTER, i, DIR_CLASS_LAST_COPY, 0)), ERR_OK);
    }
    CHECK_U64(fleet_admit(&w, pair(DIR_BUDGET_CLUSTER, 2, DIR_CLASS_OPERATOR, 0)),
              ERR_BUDGET_EXCEEDED);
    world_close_checked(&w);
}

static void the_cluster_grows_with_its_nodes(void)
{
    open_world();
    CHECK_U64(dir_budget_limit(world_state(&w), DIR_BUDGET_CLUSTER).moves, 16);
    for (int i = 0; i < 8; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "x%d", i);
        (void)fleet_node(&w, name, "", "", "");
    }
    CHECK_U64(world_state(&w)->nodes.count, 20);
    CHECK_U64(dir_budget_limit(world_state(&w), DIR_BUDGET_CLUSTER).moves, 17);
    CHECK_U64(dir_budget_reserve(world_state(&w), DIR_BUDGET_DEVICE).moves, 0);
    CHECK_U64(dir_budget_reserve(world_state(&w), DIR_BUDGET_SOURCE).moves, 1);
    world_close_checked(&w);
}

/* --- the modeled figures --- */

static void the_modeled_move_fits_and_three_more_do_not(void)
{
    open_world();
    fleet_unlimited(&w);
    (void)fleet_limit(&w, DIR_BUDGET_SOURCE, 8, 96 * MIB);
    struct fleet_start s = {.partition = free_partition("s0"),
                            .to = "d0",
                            .rate = 64 * MIB,
                            .has_live = true,
                            .live = 30 * MIB};
    uint64_t first = fleet_start(&w, &s);
    CHECK_U64(fleet_admit(&w, first), ERR_OK);
    CHECK_U64(fleet_operation(&w, first)->rate_bytes_per_s, 64 * MIB);
    CHECK_U64(bytes_of(DIR_BUDGET_SOURCE, "s0"), 94 * MIB);
    uint64_t more = queue_of("s0", "d1", DIR_CLASS_OPERATOR, 3 * MIB);
    CHECK_U64(fleet_admit(&w, more), ERR_BUDGET_EXCEEDED);
    struct dir_waiting why = waiting(more);
    CHECK(why.budget == DIR_BUDGET_SOURCE && why.of_bytes);
    CHECK(why.used == 94 * MIB && why.wanted == 3 * MIB && why.limit == 96 * MIB);
    CHECK_U64(fleet_admit(&w, queue_of("s0", "d2", DIR_CLASS_OPERATOR, 2 * MIB)), ERR_OK);
    world_close_checked(&w);
}

static void the_rate_is_the_smallest_share(void)
{
    open_world();
    fleet_unlimited(&w);
    (void)fleet_reserve(&w, 50);
    (void)fleet_limit(&w, DIR_BUDGET_SOURCE, 4, 96 * MIB);
    (void)fleet_limit(&w, DIR_BUDGET_RACK, 8, 160 * MIB);
    uint64_t routine = queue_of("s0", "d0", DIR_CLASS_BALANCE, 0);
    CHECK_U64(dir_budget_rate(world_state(&w), fleet_operation(&w, routine)).copy, 20 * MIB);
    CHECK_U64(dir_budget_rate(world_state(&w), fleet_operation(&w, routine)).limit, 48 * MIB);
    CHECK_U64(fleet_admit(&w, routine), ERR_OK);
    CHECK_U64(fleet_operation(&w, routine)->rate_bytes_per_s, 20 * MIB);
    uint64_t slow = queue_of("s1", "d1", DIR_CLASS_BALANCE, MIB);
    CHECK_U64(fleet_admit(&w, slow), ERR_OK);
    CHECK_U64(fleet_operation(&w, slow)->rate_bytes_per_s, MIB);
    /* More than there can be is cut down to what there can be, else it would wait for ever. */
    uint64_t greedy = queue_of("s2", "d2", DIR_CLASS_BALANCE, 4096 * MIB);
    CHECK_U64(dir_budget_rate(world_state(&w), fleet_operation(&w, greedy)).copy, 48 * MIB);
    world_close_checked(&w);
}

/* Its live changes alone are more than routine work may have. */
static void what_can_never_fit_says_why(void)
{
    open_world();
    struct fleet_start s = {
        .partition = free_partition("s0"), .to = "d0", .has_live = true, .live = 60 * MIB};
    uint64_t id = fleet_start(&w, &s);
    CHECK_U64(fleet_admit(&w, id), ERR_BUDGET_EXCEEDED);
    struct dir_waiting why = waiting(id);
    CHECK(why.of_bytes && why.budget == DIR_BUDGET_SOURCE && why.used == 0);
    CHECK(strstr(why.detail, "the budget source of s0 has 0 bytes/s in use of 100663296") != NULL);
    world_close_checked(&w);
}

/* --- where bytes flow --- */

/* The copy comes from the primary, whichever replica is to leave. */
static void the_source_is_where_bytes_come_from(void)
{
    world_open(&w);
    (void)fleet_node(&w, "a", "", "", "");
    (void)fleet_node(&w, "b", "", "", "");
    (void)fleet_node(&w, "c", "", "", "");
    agent_keyspace(&w, 1);
    const struct dir_partition *p = agent_partition(&w, "");
    const struct dir_view *v = world_state(&w);
    const char *from = view_node_by_id(v, p->replicas[1].node)->name;
    const char *primary = view_primary(v, p)->name;
    struct fleet_start s = {.partition = p->id, .from = from, .to = "c"};
    uint64_t id = fleet_start(&w, &s);
    CHECK_U64(fleet_admit(&w, id), ERR_OK);
    CHECK_U64(moves_of(DIR_BUDGET_SOURCE, primary), 1);
    CHECK_U64(moves_of(DIR_BUDGET_SOURCE, from), 0);
    CHECK_U64(moves_of(DIR_BUDGET_DESTINATION, "c"), 1);
    world_close_checked(&w);
}

static void a_shared_device_reads_and_writes(void)
{
    open_world();
    fleet_unlimited(&w);
    (void)fleet_limit(&w, DIR_BUDGET_DEVICE, 4, 40 * MIB);
    uint64_t id = queue_of("s0", "s1", DIR_CLASS_OPERATOR, 15 * MIB);
    CHECK_U64(fleet_admit(&w, id), ERR_OK);
    CHECK_U64(bytes_of(DIR_BUDGET_DEVICE, "disk1"), 30 * MIB);
    CHECK_U64(moves_of(DIR_BUDGET_DEVICE, "disk1"), 1);
    CHECK_U64(bytes_of(DIR_BUDGET_RACK, "r1"), 15 * MIB);
    CHECK_U64(fleet_admit(&w, queue_of("s2", "s3", DIR_CLASS_OPERATOR, 6 * MIB)),
              ERR_BUDGET_EXCEEDED);
    CHECK_U64(fleet_admit(&w, queue_of("s2", "d0", DIR_CLASS_OPERATOR, 10 * MIB)), ERR_OK);
    world_close_checked(&w);
}

static void labels_are_those_of_the_admission(void)
{
    open_world();
    fleet_unlimited(&w);
    uint64_t id = queue_of("s0", "d0", DIR_CLASS_OPERATOR, MIB);
    CHECK_U64(fleet_admit(&w, id), ERR_OK);
    (void)fleet_node(&w, "s0", "r2", "z2", "disk2");
    (void)fleet_node(&w, "d0", "r2", "", "");
    CHECK_U64(moves_of(DIR_BUDGET_RACK, "r1"), 1);
    CHECK_U64(moves_of(DIR_BUDGET_RACK, "r2"), 0);
    fleet_abort(&w, id);
    CHECK_U64(world_state(&w)->usage.count, 0);
    world_close_checked(&w);
}

static void what_copies_nothing_takes_no_bytes(void)
{
    world_open(&w);
    (void)fleet_node(&w, "a", "r1", "", "");
    (void)fleet_node(&w, "b", "r1", "", "");
    agent_keyspace(&w, 1);
    const struct dir_partition *p = agent_partition(&w, "");
    struct fleet_start s = {.kind = DIR_OPERATION_TRANSFER,
                            .partition = p->id,
                            .to = view_node_by_id(world_state(&w), p->replicas[1].node)->name};
    (void)fleet_limit(&w, DIR_BUDGET_TRANSFER, 0, 0);
    uint64_t id = fleet_start(&w, &s);
    CHECK_U64(fleet_admit(&w, id), ERR_BUDGET_EXCEEDED);
    CHECK(waiting(id).budget == DIR_BUDGET_TRANSFER);
    (void)fleet_limit(&w, DIR_BUDGET_TRANSFER, 3, 0);
    (void)fleet_limit(&w, DIR_BUDGET_CLUSTER, 0, 0);
    CHECK_U64(fleet_admit(&w, id), ERR_OK);
    CHECK_U64(fleet_operation(&w, id)->stage, DIR_STAGE_FENCE);
    CHECK(moves_of(DIR_BUDGET_TRANSFER, "a") == 1 && moves_of(DIR_BUDGET_TRANSFER, "b") == 1);
    CHECK_U64(world_state(&w)->usage.count, 2);
    fleet_to(&w, id, DIR_STAGE_DONE);
    CHECK_U64(world_state(&w)->usage.count, 0);
    world_close_checked(&w);
}

static void a_node_does_not_give_and_take_at_once(void)
{
    open_world();
    fleet_unlimited(&w);
    CHECK_U64(fleet_admit(&w, queue_of("s0", "s1", DIR_CLASS_OPERATOR, MIB)), ERR_OK);
    uint64_t out = queue_of("s1", "d0", DIR_CLASS_BALANCE, MIB);
    uint64_t in = queue_of("s2", "s0", DIR_CLASS_OPERATOR, MIB);
    CHECK_U64(fleet_admit(&w, out), ERR_BUDGET_EXCEEDED);
    struct dir_waiting why = waiting(out);
    CHECK(why.budget == DIR_BUDGET_DESTINATION && why.used == 1);
    CHECK_STR(why.value, "s1");
    CHECK_U64(fleet_admit(&w, in), ERR_BUDGET_EXCEEDED);
    CHECK(waiting(in).budget == DIR_BUDGET_SOURCE);
    CHECK_U64(fleet_admit(&w, queue_of("s1", "d1", DIR_CLASS_DRAIN, MIB)), ERR_OK);
    CHECK_U64(fleet_admit(&w, queue_of("s1", "d2", DIR_CLASS_LAST_COPY, MIB)), ERR_OK);
    world_close_checked(&w);
}

/* --- recovery first --- */

static void nothing_routine_passes_a_recovery(void)
{
    open_world();
    fleet_unlimited(&w);
    uint64_t routine = queue_of("s0", "d0", DIR_CLASS_CONSTRAINT, MIB);
    uint64_t recovery = queue_of("s1", "d1", DIR_CLASS_UNDER_REPLICATED, MIB);
    CHECK_U64(fleet_admit(&w, routine), ERR_BUDGET_EXCEEDED);
    struct dir_waiting why = waiting(routine);
    CHECK(why.budget == 0 && why.operation == recovery);
    CHECK_U64(fleet_admit(&w, recovery), ERR_OK);
    CHECK_U64(fleet_admit(&w, routine), ERR_OK);
    world_close_checked(&w);
}

static void a_recovery_that_can_not_begin_stops_nobody(void)
{
    open_world();
    fleet_unlimited(&w);
    uint64_t routine = queue_of("s0", "d0", DIR_CLASS_BALANCE, MIB);
    uint64_t recovery = queue_of("s1", "d1", DIR_CLASS_UNDER_REPLICATED, MIB);
    (void)agent_end(&w, "d1", agent_node(&w, "d1")->session, false);
    CHECK_U64(waiting(recovery).code, ERR_NO_DESTINATION);
    CHECK_U64(fleet_admit(&w, routine), ERR_OK);
    world_close_checked(&w);
}

/* What the dead node's own budgets hold does not matter: others copy, to others. */
static void a_dead_node_does_not_bind_its_recovery(void)
{
    world_open(&w);
    (void)fleet_node(&w, "a", "r1", "", "x1");
    (void)fleet_node(&w, "b", "r2", "", "");
    agent_keyspace(&w, 1);
    (void)world_split(&w, agent_partition(&w, "a")->id, "m");
    (void)fleet_node(&w, "c", "r3", "", "");
    const char *dead = view_primary(world_state(&w), agent_partition(&w, "a"))->name;
    const char *live = strcmp(dead, "a") == 0 ? "b" : "a";
    (void)fleet_limit(&w, DIR_BUDGET_SOURCE, 1, 96 * MIB);
    struct fleet_start s = {.partition = agent_partition(&w, "a")->id, .to = "c"};
    uint64_t running = fleet_start(&w, &s);
    CHECK_U64(fleet_admit(&w, running), ERR_OK);
    s = (struct fleet_start){.kind = DIR_OPERATION_ADD_REPLICA,
                             .partition = agent_partition(&w, "z")->id,
                             .to = "c",
                             .class_of = DIR_CLASS_OPERATOR};
    uint64_t before = fleet_start(&w, &s);
    CHECK_U64(fleet_admit(&w, before), ERR_BUDGET_EXCEEDED);
    CHECK_STR(waiting(before).value, dead);
    fleet_abort(&w, before);
    (void)agent_end(&w, dead, agent_node(&w, dead)->session, false);
    CHECK_STR(view_primary(world_state(&w), agent_partition(&w, "z"))->name, live);
    s.class_of = DIR_CLASS_LAST_COPY; /* now that a copy is lost */
    CHECK_U64(fleet_admit(&w, fleet_start(&w, &s)), ERR_OK);
    CHECK_U64(moves_of(DIR_BUDGET_SOURCE, live), 1);
    world_close_checked(&w);
}

/* --- giving back --- */

static void a_reservation_steps_down_after_the_work(void)
{
    open_world();
    fleet_unlimited(&w);
    (void)fleet_limit(&w, DIR_BUDGET_SOURCE, 1, 80 * MIB);
    uint64_t id = queue_of("s0", "d0", DIR_CLASS_OPERATOR, 40 * MIB);
    fleet_to(&w, id, DIR_STAGE_WINDOW);
    CHECK_U64(bytes_of(DIR_BUDGET_SOURCE, "s0"), 40 * MIB);
    CHECK(fleet_release(&w, id, 1)->err.code == ERR_OK && w.effects != NULL && !w.effects->changed);
    fleet_to(&w, id, DIR_STAGE_DONE);
    CHECK(fleet_operation(&w, id)->reserved.releasing);
    uint64_t balance = queue_of("s0", "d1", DIR_CLASS_BALANCE, MIB);
    uint64_t person = queue_of("s0", "d2", DIR_CLASS_OPERATOR, MIB);
    CHECK_U64(fleet_admit(&w, balance), ERR_BUDGET_EXCEEDED);
    for (uint32_t step = 1; step < DIR_RELEASE_STEPS; step++) {
        CHECK_U64(fleet_release(&w, id, step)->err.code, ERR_OK);
        CHECK_U64(bytes_of(DIR_BUDGET_SOURCE, "s0"), (4 - step) * 10 * MIB);
        (void)fleet_release(&w, id, step); /* the same again, and one that is to come */
        (void)fleet_release(&w, id, step + 2);
        CHECK_U64(bytes_of(DIR_BUDGET_SOURCE, "s0"), (4 - step) * 10 * MIB);
        CHECK_U64(world_check(world_state(&w)), 0);
    }
    CHECK_U64(fleet_try_admit(&w, balance), ERR_BUDGET_EXCEEDED);
    CHECK_U64(fleet_admit(&w, person), ERR_OK);
    fleet_abort(&w, person);
    (void)fleet_release(&w, id, DIR_RELEASE_STEPS);
    CHECK_U64(world_state(&w)->usage.count, 0);
    CHECK_U64(fleet_admit(&w, balance), ERR_OK);
    world_close_checked(&w);
}

static void the_way_back_takes_over_what_the_move_held(void)
{
    open_world();
    fleet_unlimited(&w);
    uint64_t id = queue_of("s0", "d0", DIR_CLASS_OPERATOR, 8 * MIB);
    fleet_to(&w, id, DIR_STAGE_WINDOW);
    uint64_t back = fleet_back(&w, id);
    CHECK(back != 0 && fleet_operation(&w, id)->state == DIR_OPERATION_DONE);
    CHECK_U64(fleet_operation(&w, id)->reserved.moves, 0);
    CHECK_U64(bytes_of(DIR_BUDGET_SOURCE, "s0"), 0);
    CHECK_U64(bytes_of(DIR_BUDGET_DESTINATION, "s0"), 8 * MIB);
    CHECK_U64(bytes_of(DIR_BUDGET_SOURCE, "d0"), 8 * MIB);
    CHECK_U64(moves_of(DIR_BUDGET_RACK, "r1"), 1);
    CHECK_U64(moves_of(DIR_BUDGET_CLUSTER, ""), 1);
    CHECK_U64(fleet_operation(&w, back)->rate_bytes_per_s, 8 * MIB);
    CHECK_U64(world_check(world_state(&w)), 0);
    fleet_abort(&w, back);
    CHECK_U64(world_state(&w)->usage.count, 0);
    world_close_checked(&w);
}

static void what_is_tried_again_reserves_anew(void)
{
    open_world();
    uint64_t id = queue_of("s0", "d0", DIR_CLASS_OPERATOR, MIB);
    fleet_to(&w, id, DIR_STAGE_COPY);
    fleet_abort(&w, id);
    fleet_retry(&w, id);
    CHECK_U64(fleet_operation(&w, id)->state, DIR_OPERATION_QUEUED);
    CHECK_U64(world_state(&w)->usage.count, 0);
    CHECK_U64(world_state(&w)->queued.count, 1);
    world_close_checked(&w);
}

static void without_a_time_to_step_down_all_is_given_back_at_once(void)
{
    open_world();
    (void)fleet_release_ms(&w, 0);
    uint64_t id = queue_of("s0", "d0", DIR_CLASS_OPERATOR, MIB);
    fleet_to(&w, id, DIR_STAGE_CLEANUP);
    CHECK_U64(world_state(&w)->usage.count, 0);
    world_close_checked(&w);
}

static void what_has_failed_holds_nothing(void)
{
    open_world();
    uint64_t id = queue_of("s0", "d0", DIR_CLASS_OPERATOR, MIB);
    fleet_to(&w, id, DIR_STAGE_COPY);
    CHECK(world_state(&w)->usage.count > 0);
    fleet_abort(&w, id);
    CHECK_U64(fleet_operation(&w, id)->state, DIR_OPERATION_ABORTED);
    CHECK_U64(world_state(&w)->usage.count, 0);
    world_close_checked(&w);
}

static void a_lowered_limit_ends_nothing_and_lets_nothing_in(void)
{
    open_world();
    fleet_unlimited(&w);
    uint64_t running = queue_of("s0", "d0", DIR_CLASS_OPERATOR, MIB);
    CHECK_U64(fleet_admit(&w, running), ERR_OK);
    (void)fleet_limit(&w, DIR_BUDGET_CLUSTER, 0, 0);
    uint64_t next = queue_of("s1", "d1", DIR_CLASS_LAST_COPY, MIB);
    CHECK_U64(fleet_admit(&w, next), ERR_BUDGET_EXCEEDED);
    struct dir_waiting why = waiting(next);
    CHECK(why.budget == DIR_BUDGET_CLUSTER && why.limit == 0 && why.used == 1);
    fleet_to(&w, running, DIR_STAGE_WINDOW);
    CHECK_U64(fleet_operation(&w, next)->state, DIR_OPERATION_QUEUED);
    (void)fleet_limit(&w, DIR_BUDGET_CLUSTER, DIR_BUDGET_COMPUTED, DIR_BUDGET_COMPUTED);
    CHECK_U64(fleet_admit(&w, next), ERR_OK);
    world_close_checked(&w);
}

static void limits_have_bounds(void)
{
    open_world();
    CHECK_STR(fleet_limit(&w, DIR_BUDGET_RACK, DIR_BUDGET_MOVES_MAX + 1, 0)->err.pointer,
              "/budgets/rack/moves");
    CHECK_STR(fleet_limit(&w, DIR_BUDGET_ZONE, 0, DIR_BUDGET_BYTES_MAX + 1)->err.pointer,
              "/budgets/zone/bytes_per_s");
    CHECK_STR(fleet_limit(&w, DIR_BUDGET_SOURCE, DIR_BUDGET_COMPUTED, 0)->err.pointer,
              "/budgets/source/moves");
    CHECK_STR(fleet_reserve(&w, 101)->err.pointer, "/budgets/recovery_reserve_percent");
    CHECK_STR(fleet_release_ms(&w, UINT64_MAX)->err.pointer, "/budgets/release_ms");
    CHECK_U64(w.result->err.code, ERR_INVALID_SETTINGS);
    struct fleet_start s = {.partition = free_partition("s0"),
                            .to = "d0",
                            .has_live = true,
                            .live = DIR_REVISION_MAX + 1};
    CHECK_U64(fleet_start(&w, &s), 0);
    CHECK_STR(w.result->err.pointer, "/live_bytes_per_s");
    world_close_checked(&w);
}

/* --- check --- */

static bool finds(const struct dir_view *v, const char *text)
{
    const char *wrong = check_budgets(v);
    return wrong != NULL && strstr(wrong, text) != NULL;
}

static void damage_is_found(void)
{
    open_world();
    uint64_t running = queue_of("s0", "d0", DIR_CLASS_OPERATOR, MIB);
    uint64_t queued = queue_of("s1", "d1", DIR_CLASS_OPERATOR, MIB);
    CHECK_U64(fleet_admit(&w, running), ERR_OK);
    struct dir_view s;
    struct ptree_iter it;
    struct slice key;
    state_copy(world_state(&w), &s);
    CHECK(check_budgets(&s) == NULL);
    ptree_seek(&s.usage, slice_of(NULL, 0), &it);
    struct dir_usage *u = row_copy(ptree_iter_get(&it, &key), sizeof *u);
    u->used[DIR_USAGE_ROUTINE][DIR_USAGE_HELD].bytes_per_s++;
    dir_unref(ptree_put(&s.usage, key, u));
    CHECK(finds(&s, "not the sum of the reservations"));
    state_close(&s);
    state_copy(world_state(&w), &s);
    ptree_unref(&s.queued);
    s.queued = (struct ptree){NULL, 0};
    CHECK(finds(&s, "index of queued operations"));
    state_close(&s);
    const struct dir_operation *o = fleet_operation(&w, running);
    struct dir_operation *bad = row_copy(o, operation_size(o));
    memset(&bad->reserved, 0, sizeof bad->reserved);
    CHECK_STR(check_reservation(bad), "it runs without a reservation");
    bad->reserved = o->reserved;
    bad->reserved.step = 1;
    CHECK_STR(check_reservation(bad), "its reservation does not add up");
    bad->reserved = o->reserved;
    bad->state = DIR_OPERATION_ABORTED;
    bad->stage = DIR_STAGE_ABORTED;
    CHECK_STR(check_reservation(bad), "it holds a reservation that it has no use for");
    dir_unref(bad);
    CHECK(check_reservation(fleet_operation(&w, queued)) == NULL);
    world_close_checked(&w);
}

int main(void)
{
    RUN(every_budget_is_kept_for_every_class);
    RUN(recoveries_may_take_all_of_it);
    RUN(the_cluster_grows_with_its_nodes);
    RUN(the_modeled_move_fits_and_three_more_do_not);
    RUN(the_rate_is_the_smallest_share);
    RUN(what_can_never_fit_says_why);
    RUN(the_source_is_where_bytes_come_from);
    RUN(a_shared_device_reads_and_writes);
    RUN(labels_are_those_of_the_admission);
    RUN(what_copies_nothing_takes_no_bytes);
    RUN(a_node_does_not_give_and_take_at_once);
    RUN(nothing_routine_passes_a_recovery);
    RUN(a_recovery_that_can_not_begin_stops_nobody);
    RUN(a_dead_node_does_not_bind_its_recovery);
    RUN(a_reservation_steps_down_after_the_work);
    RUN(the_way_back_takes_over_what_the_move_held);
    RUN(what_is_tried_again_reserves_anew);
    RUN(without_a_time_to_step_down_all_is_given_back_at_once);
    RUN(what_has_failed_holds_nothing);
    RUN(a_lowered_limit_ends_nothing_and_lets_nothing_in);
    RUN(limits_have_bounds);
    RUN(damage_is_found);
    return tap_done();
}
