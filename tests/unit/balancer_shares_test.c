/* SPDX-License-Identifier: Apache-2.0 */
/* What a node is held against: the mean of those that may hold the same, each resource by itself,
 * and what can't leave it. */
#include "base/assert.h"
#include "base/mem.h"
#include "tests/harness/fleets.h"
#include "tests/harness/tap.h"

#define GIB UINT64_C(1073741824)

static void fill(struct fleets *x, uint64_t node, unsigned count, uint64_t load, uint16_t rule)
{
    for (unsigned i = 0; i < count; i++) {
        fleets_add(x, load, node)->rule = rule;
    }
}

/* Rounds of which each move has arrived by the next one. Returns how many moves. */
static uint32_t settle(struct fleets *x, unsigned rounds)
{
    uint32_t moves = 0;
    for (unsigned i = 0; i < rounds; i++) {
        fleets_plan(x);
        moves += fleets_count(x, BAL_MOVE) + fleets_count(x, BAL_MOVE_COPY);
        fleets_begin(x, true);
        x->now_ms += 30000;
    }
    return moves;
}

static uint64_t load_on(const struct fleets *x, uint64_t node, unsigned r)
{
    uint64_t sum = 0;
    for (uint32_t p = 0; p < x->parts; p++) {
        for (unsigned c = 0; c < x->part[p].copies; c++) {
            bool here = x->part[p].copy[c].node == node;
            uint64_t load = x->part[p].load[r];
            sum += !here ? 0 : c == 0 || r == BAL_BYTES ? load : load * 3 / 10;
        }
    }
    return sum;
}

static bool is_level(bal_q32 level, unsigned percent)
{
    bal_q32 wanted = BAL_PERCENT(percent), off = BAL_PERCENT(1);
    return level > wanted - off && level < wanted + off;
}

static bal_q32 level_at_first(struct fleets *x, uint64_t partition)
{
    uint64_t kept = x->now_ms;
    x->now_ms = FLEETS_START_MS + 1; /* nothing is planned so early */
    bal_q32 level = fleets_explain(x, partition, 0).from_level;
    x->now_ms = kept;
    return level;
}

/* Nodes 1 and 2 may have rule 1, 2 and 3 rule 2, all of them the rest. */
static struct fleets *ruled(void)
{
    struct fleets *x = fleets_new(5);
    x->node[0].rules = 1 << 1;
    x->node[1].rules = 1 << 1 | 1 << 2;
    x->node[2].rules = 1 << 2;
    return x;
}

static void nodes_of_a_rule_are_held_against_each_other(void)
{
    struct fleets *x = ruled();
    fill(x, 1, 30, 30, 1);
    fill(x, 2, 10, 30, 1);
    fill(x, 4, 5, 20, 0);
    fill(x, 5, 5, 20, 0);
    CHECK(is_level(level_at_first(x, 1), 150)); /* of 600, not of 280 */
    CHECK(is_level(level_at_first(x, 31), 50));
    CHECK(settle(x, 60) >= 9);
    CHECK(load_on(x, 1, BAL_CPU) <= 630 && load_on(x, 2, BAL_CPU) >= 570);
    CHECK_U64(load_on(x, 3, BAL_CPU), 0);
    fleets_free(x);
}

/* Neither rule by itself needs so much of its nodes as both together of all three. */
static void rules_that_share_a_node_share_its_room(void)
{
    struct fleets *x = ruled();
    fill(x, 1, 36, 25, 1);
    fill(x, 3, 36, 25, 2);
    CHECK(is_level(level_at_first(x, 1), 150));
    CHECK(is_level(level_at_first(x, 37), 150));
    CHECK(settle(x, 200) >= 22);
    CHECK(load_on(x, 1, BAL_CPU) <= 625 && load_on(x, 3, BAL_CPU) <= 625);
    CHECK_U64(load_on(x, 4, BAL_CPU) + load_on(x, 5, BAL_CPU), 0);
    fleets_free(x);
}

/* What may go anywhere makes room for what may not. */
static void what_is_confined_has_the_room_first(void)
{
    struct fleets *x = ruled();
    fill(x, 1, 20, 30, 1);
    fill(x, 2, 20, 30, 1);
    fill(x, 1, 10, 20, 0);
    fill(x, 3, 20, 20, 0);
    fill(x, 4, 20, 20, 0);
    fill(x, 5, 10, 20, 0);
    CHECK(is_level(level_at_first(x, 1), 133)); /* 800 of 600 */
    CHECK(settle(x, 60) >= 9);
    CHECK(load_on(x, 1, BAL_CPU) <= 660 && load_on(x, 2, BAL_CPU) <= 660);
    fleets_free(x);
}

/* Three copies in three zones, of which one is small: its two nodes have a third of all copies,
 * and there is nobody else to give them to. */
static void a_zone_that_has_to_bear_more_is_even_within(void)
{
    struct fleets *x = fleets_new(6);
    for (uint32_t n = 0; n < 6; n++) {
        x->node[n].zone = 1 + n / 2;
        x->node[n].capacity[BAL_CPU] = n < 4 ? 1000 : 200;
    }
    for (unsigned i = 0; i < 20; i++) {
        struct bal_partition_spec *p = fleets_add(x, 50, 1 + i % 2);
        p->spread = BAL_SPREAD_ZONE;
        p->copies = 3;
        p->copy[1].node = 3 + i % 2;
        p->copy[2].node = i < 16 ? 5 : 6;
    }
    CHECK(settle(x, 60) >= 3);
    CHECK(load_on(x, 5, BAL_CPU) <= 165 && load_on(x, 6, BAL_CPU) >= 135);
    fleets_free(x);
}

/* The coldest forty nodes may not have it; the one that may is found behind them. */
static void few_nodes_of_many_are_found(void)
{
    struct fleets *x = fleets_new(50);
    for (uint32_t n = 48; n < 50; n++) {
        x->node[n].rules = 1 << 3;
    }
    fill(x, 49, 30, 25, 3);
    fill(x, 50, 10, 25, 3);
    CHECK(settle(x, 60) >= 9);
    CHECK(load_on(x, 49, BAL_CPU) <= 525);
    fleets_free(x);
}

/* Node 1 has a heap of bytes that no disk has room for, and bears more than its part. */
static struct fleets *stored(uint64_t gib, uint16_t flags)
{
    struct fleets *x = fleets_new(4);
    for (uint32_t n = 0; n < 4; n++) {
        x->node[n].capacity[BAL_BYTES] = 100 * GIB;
    }
    struct bal_partition_spec *p = fleets_add(x, 10, 1);
    p->load[BAL_BYTES] = gib * GIB;
    p->flags = flags;
    fill(x, 1, 20, 25, 0);
    for (uint64_t n = 2; n <= 4; n++) {
        fleets_add(x, 360, n)->load[BAL_BYTES] = 44 * GIB;
    }
    x->settings.split_bytes = 0;
    x->settings.split_share = BAL_ONE;
    return x;
}

static void a_resource_that_is_stuck_holds_up_no_other(void)
{
    for (uint64_t gib = 72; gib <= 88; gib += 16) { /* over, and urgently */
        struct fleets *x = stored(gib, 0);
        CHECK(settle(x, 20) >= 3);
        CHECK(load_on(x, 1, BAL_CPU) <= 425);
        CHECK_U64(load_on(x, 1, BAL_BYTES) / GIB, gib);
        fleets_free(x);
    }
}

/* Of which one is over says nothing of the others: those wait for their own evidence. */
static void each_resource_is_sustained_by_itself(void)
{
    struct fleets *x = stored(72, 0);
    for (unsigned i = 0; i < 20; i++) {
        x->part[1 + i].load[BAL_CPU] = 19; /* 390 of 367: above the low mark, below the high */
    }
    CHECK_U64(settle(x, 60), 0);
    fleets_free(x);
}

/* A copy too big to fit goes when what it relieves falls clearly, however much of another resource
 * stays. */
static void a_lump_is_judged_by_what_it_relieves(void)
{
    struct fleets *x = stored(72, 0);
    x->parts = 1;
    (void)fleets_add(x, 300, 1);
    (void)fleets_add(x, 260, 1);
    fleets_add(x, 200, 2)->load[BAL_BYTES] = 44 * GIB;
    fleets_add(x, 330, 3)->load[BAL_BYTES] = 44 * GIB;
    fleets_add(x, 330, 4)->load[BAL_BYTES] = 44 * GIB;
    CHECK_U64(settle(x, 10), 1);
    CHECK(load_on(x, 1, BAL_CPU) < 400);
    fleets_free(x);
}

/* One hot key bears three shares. The rest leaves, as long as it is more than a trifle beside it.
 */
static void what_can_not_leave_is_what_a_node_is_relieved_to(void)
{
    struct fleets *x = fleets_new(8);
    fleets_add(x, 600, 1)->flags = BAL_ONE_KEY;
    fill(x, 1, 20, 9, 0);
    for (uint64_t n = 2; n <= 8; n++) {
        fill(x, n, 20, 8, 0);
    }
    uint32_t moves = settle(x, 60);
    CHECK_U64(moves, 19); /* 18 of 600 were 3 %, and a little more */
    CHECK_U64(load_on(x, 1, BAL_CPU), 609);
    CHECK_U64(x->part[0].copy[0].node, 1);
    for (unsigned i = 0; i < 6; i++) {
        fleets_add(x, 6, 1); /* 45 beside 600: below the high mark */
    }
    CHECK_U64(settle(x, 60), 0);
    fleets_free(x);
}

/* While one key holds the highest node up, nothing among the others lowers it: what is there below
 * the widest band is left, what is above is not. */
static void nobody_is_moved_for_a_maximum_that_stays(void)
{
    static const struct {
        unsigned parts;
        uint16_t flags;
        bool moves;
    } rows[] = {{46, 0, true}, {46, BAL_ONE_KEY, false}, {56, BAL_ONE_KEY, true}};
    for (unsigned k = 0; k < 3; k++) {
        struct fleets *x = fleets_new(8);
        fleets_add(x, rows[k].flags != 0 ? 1200 : 400, 1)->flags = rows[k].flags;
        fill(x, 2, rows[k].parts, 12, 0); /* of about 450 */
        for (uint64_t n = 3; n <= 8; n++) {
            fill(x, n, 30, 12, 0);
        }
        x->settings.split_share = BAL_ONE;
        x->settings.cluster_hot = 2 * BAL_ONE;
        uint32_t moves = settle(x, 60);
        tap_note("row %u", k);
        CHECK((moves > 0) == rows[k].moves);
        CHECK_U64(x->part[0].copy[0].node, 1);
        fleets_free(x);
    }
}

/* The hottest one has nothing that may go: the next one gives. */
static void a_node_with_nothing_to_give_holds_up_no_filling(void)
{
    struct fleets *x = fleets_new(4);
    fill(x, 1, 20, 22, 0);
    fill(x, 2, 20, 20, 0);
    fill(x, 3, 20, 20, 0);
    for (unsigned i = 0; i < 20; i++) {
        x->part[i].flags = BAL_PINNED;
    }
    CHECK(settle(x, 60) >= 8);
    CHECK(load_on(x, 4, BAL_CPU) >= 160);
    fleets_free(x);
}

int main(void)
{
    RUN(nodes_of_a_rule_are_held_against_each_other);
    RUN(rules_that_share_a_node_share_its_room);
    RUN(what_is_confined_has_the_room_first);
    RUN(a_zone_that_has_to_bear_more_is_even_within);
    RUN(few_nodes_of_many_are_found);
    RUN(a_resource_that_is_stuck_holds_up_no_other);
    RUN(each_resource_is_sustained_by_itself);
    RUN(a_lump_is_judged_by_what_it_relieves);
    RUN(what_can_not_leave_is_what_a_node_is_relieved_to);
    RUN(nobody_is_moved_for_a_maximum_that_stays);
    RUN(a_node_with_nothing_to_give_holds_up_no_filling);
    return tap_done();
}
