/* SPDX-License-Identifier: Apache-2.0 */
/* Random fleets that lose nodes, drain, and change their minds: what repair proposes never breaks a
 * hard rule, is always accepted by apply, and done at once comes to rest: every partition has what
 * its keyspace wants where it wants it, drained nodes are empty, and what is not so says why. The
 * oracle counts for itself. */
#include "directory/internal.h"
#include "tests/harness/moves.h"
#include "tests/harness/tap.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { SEEDS = 400, NODES_MAX = 14, KEYSPACES = 2, ROUNDS_MAX = 60, EVENTS = 6 };

static struct world w;
static struct tap_rand rng;
static unsigned nodes;
static uint64_t proposals[DIR_OPERATION_FAILOVER + 1], blocked, settled, drained;

static uint64_t below(uint64_t n)
{
    return tap_rand_below(&rng, n);
}

static const char *node_name(uint64_t i)
{
    static char names[NODES_MAX][8];
    (void)snprintf(names[i], sizeof names[i], "n%02u", (unsigned)i);
    return names[i];
}

static const char *keyspace_name(uint64_t i)
{
    return i == 0 ? "orders" : "users";
}

static bool gone(void *arg, const struct dir_node *n)
{
    (void)arg;
    (void)n;
    return true;
}

static const struct repair_clock at_once = {0, gone, NULL};

static struct moves_wish any_wish(void)
{
    return (struct moves_wish){
        .sync = (uint32_t)below(3),
        .async = (uint32_t)below(2),
        .partitions = 1 + (uint32_t)below(6),
        .spread = below(2) == 0 ? "zone" : "",
        .disk = below(3) == 0 ? "ssd" : "",
    };
}

static void put_node(uint64_t i)
{
    char zone[8];
    (void)snprintf(zone, sizeof zone, "z%u", (unsigned)below(4));
    const struct dir_node *known = agent_node(&w, node_name(i));
    if (known != NULL) {
        /* The labels that it had: its data stays where it may be. */
        (void)moves_node(&w, node_name(i), place_label(known, "zone"), place_label(known, "disk"));
        return;
    }
    (void)moves_node(&w, node_name(i), zone, below(2) == 0 ? "ssd" : "hdd");
}

static void end_session(uint64_t i)
{
    const struct dir_node *n = agent_node(&w, node_name(i));
    if (n != NULL && !n->ended) {
        (void)agent_end(&w, n->name, n->session, false);
    }
}

static void any_event(void)
{
    static const Cadastre__SchedulingVerb verbs[] = {
        CADASTRE__SCHEDULING_VERB__DRAIN, CADASTRE__SCHEDULING_VERB__CORDON,
        CADASTRE__SCHEDULING_VERB__UNCORDON, CADASTRE__SCHEDULING_VERB__DRAIN};
    uint64_t i = below(nodes);
    struct moves_wish wish = any_wish();
    switch (below(6)) {
    case 0:
    case 1:
        end_session(i);
        break;
    case 2:
        put_node(i);
        break;
    case 3:
        (void)moves_patch(&w, keyspace_name(below(KEYSPACES)), &wish);
        break;
    default:
        if (agent_node(&w, node_name(i)) != NULL) {
            (void)agent_schedule(&w, node_name(i), verbs[below(4)]);
        }
        break;
    }
}

static const struct dir_partition *partition_at(uint64_t after)
{
    struct ptree_iter it;
    uint8_t key[8];
    ptree_seek(&world_state(&w)->partitions, ptree_u64_key(after + 1, key), &it);
    return ptree_iter_get(&it, NULL);
}

/* What may never be. */
static void check_step(const struct dir_partition *p, const struct repair_step *s)
{
    const struct dir_view *v = world_state(&w);
    if (s->kind == DIR_OPERATION_MOVE || s->kind == DIR_OPERATION_ADD_REPLICA) {
        const struct dir_node *to = view_node_by_id(v, s->to);
        CHECK(to != NULL && !to->ended && !to->is_static && to->scheduling == DIR_OPEN);
        CHECK(place_allows(&state_keyspace(v, p->keyspace)->placement, to));
        CHECK(partition_copy_on(p, s->to) < 0);
    }
    if (s->kind == DIR_OPERATION_REMOVE_REPLICA) {
        int at = partition_copy_on(p, s->from);
        CHECK(at > 0);
        CHECK(s->sync_live >= s->sync_wanted);
    }
}

/* The next step of one partition, done at once; false when there is none. */
static bool improve(const struct dir_partition *p)
{
    struct repair *r = repair_open(world_state(&w), &at_once);
    struct repair_step s;
    repair_next(r, p, &s);
    repair_close(r);
    if (s.kind == 0) {
        return false;
    }
    uint64_t id = p->id;
    check_step(p, &s);
    const struct dir_result *result = moves_start(&w, p, &s);
    if (result->err.code != ERR_OK) {
        tap_note("partition %" PRIu64 ": %s refused: %s", id, dir_operation_kind_name(s.kind),
                 result->err.detail);
    }
    CHECK_U64(result->err.code, ERR_OK);
    if (result->err.code != ERR_OK) {
        return false;
    }
    proposals[s.kind]++;
    uint64_t operation = result->operation->id;
    moves_clean(&w);
    moves_finish(&w, operation);
    p = partition_at(id - 1);
    if (p->operation != 0) {
        const struct dir_operation *o = view_operation(world_state(&w), p->operation);
        tap_note("%s from %s to %s stays in %s: %s", dir_operation_kind_name(o->kind),
                 o->source_name, o->destination_name, dir_stage_name(o->stage),
                 w.result->err.detail);
    }
    CHECK(p->id == id && p->operation == 0);
    return true;
}

static bool converge(void)
{
    for (int round = 0; round < ROUNDS_MAX; round++) {
        bool any = false;
        const struct dir_partition *p;
        for (uint64_t id = 0; (p = partition_at(id)) != NULL; id = p->id) {
            uint64_t at = p->id;
            any = improve(p) || any;
            p = partition_at(at - 1);
        }
        moves_clean(&w);
        if (!any) {
            return true;
        }
    }
    return false;
}

/* Two copies share a zone, and a node of another could have one of them. */
static bool could_spread(const struct dir_partition *p, const struct dir_keyspace *ks)
{
    const struct dir_view *v = world_state(&w);
    bool used[4] = {false}, shared = false;
    for (uint8_t i = 0; i < p->replica_count; i++) {
        const char *zone = place_label(view_node_by_id(v, p->replicas[i].node), "zone");
        shared = shared || used[zone[1] - '0'];
        used[zone[1] - '0'] = true;
    }
    for (uint64_t i = 0; i < nodes && shared && ks->placement.spread[0] != '\0'; i++) {
        const struct dir_node *n = agent_node(&w, node_name(i));
        if (!n->ended && n->scheduling == DIR_OPEN && place_allows(&ks->placement, n) &&
            !used[place_label(n, "zone")[1] - '0']) {
            return true;
        }
    }
    return false;
}

/* Counted here, not by repair. */
static void check_rest(const struct dir_partition *p, const struct repair_step *s)
{
    const struct dir_view *v = world_state(&w);
    const struct dir_keyspace *ks = state_keyspace(v, p->keyspace);
    uint32_t sync = 0, async = 0;
    bool whole_fleet = true;
    for (uint8_t i = 0; i < p->replica_count; i++) {
        const struct dir_node *n = view_node_by_id(v, p->replicas[i].node);
        bool counts = p->replicas[i].role != DIR_ROLE_ASYNC;
        whole_fleet = whole_fleet && !n->ended;
        sync += counts;
        async += !counts;
        CHECK(place_allows(&ks->placement, n));
        CHECK(n->scheduling != DIR_DRAINING);
        drained += n->scheduling == DIR_DRAINING;
    }
    CHECK(whole_fleet);
    CHECK(!could_spread(p, ks));
    CHECK(s->problems == 0 && repair_under_since(v, ks, p) == 0);
    CHECK_U64(sync, 1 + ks->sync_replicas);
    /* What a failed move may have left stays where there is no other copy to compare it with. */
    CHECK(async == ks->async_replicas || (ks->sync_replicas == 0 && async > ks->async_replicas));
    settled++;
}

static void check_all(void)
{
    const struct dir_partition *p;
    struct repair *r = repair_open(world_state(&w), &at_once);
    for (uint64_t id = 0; (p = partition_at(id)) != NULL; id = p->id) {
        struct repair_step s;
        repair_next(r, p, &s);
        CHECK_U64(s.kind, 0);
        if (s.code != NULL) {
            CHECK(s.detail[0] != '\0' && s.problems != 0);
            blocked++;
        } else {
            check_rest(p, &s);
        }
    }
    repair_close(r);
}

static void one_fleet(uint64_t seed)
{
    rng = (struct tap_rand){seed};
    nodes = 3 + (unsigned)below(NODES_MAX - 2);
    world_open(&w);
    for (uint64_t i = 0; i < nodes; i++) {
        put_node(i);
    }
    for (uint64_t i = 0; i < KEYSPACES; i++) {
        struct moves_wish wish = any_wish();
        moves_keyspace(&w, keyspace_name(i), &wish);
    }
    for (int e = 0; e < EVENTS; e++) {
        w.time_ms += 1000;
        any_event();
        if (below(2) == 0) {
            CHECK(converge());
            check_all();
        }
    }
    CHECK(converge());
    check_all();
    CHECK_U64(world_check(world_state(&w)), 0);
    world_close(&w);
    if (tap_failures() > 0) {
        tap_note("seed %" PRIu64, seed);
    }
}

static void fleets_come_to_rest(void)
{
    for (uint64_t seed = 1; seed <= SEEDS && tap_failures() == 0; seed++) {
        one_fleet(seed);
    }
    tap_note("moves %" PRIu64 " adds %" PRIu64 " removals %" PRIu64 " transfers %" PRIu64
             " settled %" PRIu64 " blocked %" PRIu64,
             proposals[DIR_OPERATION_MOVE], proposals[DIR_OPERATION_ADD_REPLICA],
             proposals[DIR_OPERATION_REMOVE_REPLICA], proposals[DIR_OPERATION_TRANSFER], settled,
             blocked);
    /* All of it happened. */
    CHECK(proposals[DIR_OPERATION_MOVE] > 100 && proposals[DIR_OPERATION_ADD_REPLICA] > 100);
    CHECK(proposals[DIR_OPERATION_REMOVE_REPLICA] > 100 && proposals[DIR_OPERATION_TRANSFER] > 20);
    CHECK(settled > 10 * SEEDS && blocked > SEEDS);
}

int main(void)
{
    RUN(fleets_come_to_rest);
    return tap_done();
}
