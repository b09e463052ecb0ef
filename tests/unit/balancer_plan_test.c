/* SPDX-License-Identifier: Apache-2.0 */
/* The planner's rules, one by one, on fleets of a few nodes. */
#include "base/assert.h"
#include "base/mem.h"
#include "tests/harness/fleets.h"
#include "tests/harness/tap.h"

#define GIB UINT64_C(1073741824)

/* `each` partitions of `load` on every node from `first` to `last`. */
static void fill(struct fleets *x, uint64_t first, uint64_t last, unsigned each, uint64_t load)
{
    for (uint64_t n = first; n <= last; n++) {
        for (unsigned i = 0; i < each; i++) {
            (void)fleets_add(x, load, n);
        }
    }
}

/* Node 1 bears 600 of 1000 in 30 partitions, three others 400. */
static struct fleets *hot_node(void)
{
    struct fleets *x = fleets_new(4);
    fill(x, 1, 1, 30, 20);
    fill(x, 2, 4, 20, 20);
    return x;
}

static void a_hot_node_is_relieved_when_it_stays_hot(void)
{
    struct fleets *x = hot_node();
    fleets_plan(x);
    CHECK_U64(x->plan.proposal_count, 0);
    x->now_ms += 30000;
    fleets_plan(x);
    CHECK_U64(x->plan.proposal_count, 0);
    x->now_ms += 30000;
    fleets_plan(x);
    CHECK_U64(fleets_count(x, BAL_MOVE), 2); /* as many as may leave a node at once */
    const struct bal_proposal *made = fleets_find(x, BAL_MOVE);
    CHECK_U64(made->from, 1);
    CHECK_U64(made->class_of, DIR_CLASS_BALANCE);
    CHECK_U64(made->reason, BAL_REASON_HOT_NODE);
    CHECK_U64(made->load, 20);
    CHECK_U64(made->version, 7);
    CHECK(made->from_after < made->from_level && made->to_after > made->to_level);
    CHECK(made->benefit > 0 && made->bytes == 1 << 20 && made->time_ms > 0);
    fleets_free(x);
}

static void advice_costs_no_tokens(void)
{
    struct fleets *x = hot_node();
    fleets_wait(x, 3600000);
    uint64_t tokens = x->memory->tokens;
    CHECK_U64(fleets_count(x, BAL_MOVE), 2);
    fleets_wait(x, 600000);
    CHECK_U64(x->memory->tokens, tokens);
    fleets_begin(x, false);
    CHECK(x->memory->tokens < tokens);
    fleets_free(x);
}

/* What goes comes back only with the load: three nodes at 60, 40, 40, moves that take a minute, a
 * decision each second. */
static void what_is_under_way_counts_where_it_goes(void)
{
    struct fleets *x = fleets_new(3);
    fill(x, 1, 1, 30, 20);
    fill(x, 2, 3, 20, 20);
    uint32_t moves = 0;
    for (unsigned second = 0; second < 1800; second++) {
        fleets_plan(x);
        for (uint32_t i = 0; i < x->plan.proposal_count; i++) {
            CHECK_U64(x->plan.proposal[i].from, 1);
        }
        moves += x->plan.proposal_count;
        fleets_begin(x, false);
        if (second % 60 == 59) {
            fleets_arrive(x);
        }
        x->now_ms += 1000;
    }
    CHECK(moves > 0 && moves <= 7); /* (600 - 1.03 * 466) / 20, rounded up */
    fleets_free(x);
}

static void no_load_is_inverted(void)
{
    struct fleets *x = fleets_new(2);
    struct bal_partition_spec *big = fleets_add(x, 600, 1);
    fleets_add(x, 300, 1)->flags = BAL_PINNED;
    fleets_add(x, 500, 2)->flags = BAL_PINNED;
    x->node[0].capacity[BAL_CPU] = x->node[1].capacity[BAL_CPU] = 2000;
    big->flags = BAL_ONE_KEY; /* nothing else to do about it */
    x->settings.pin_share = BAL_ONE * 4;
    fleets_wait(x, 600000);
    for (uint32_t i = 0; i < x->plan.proposal_count; i++) {
        CHECK(x->plan.proposal[i].kind == BAL_ADVICE);
    }
    CHECK_U64(fleets_explain(x, big->id, 2).partition_reason, BAL_REASON_NONE);
    CHECK_U64(fleets_explain(x, big->id, 2).node_reason, BAL_REASON_OVERSHOOT);
    fleets_free(x);
}

static void equal_nodes_exchange_nothing(void)
{
    struct fleets *x = fleets_new(2);
    fill(x, 1, 2, 10, 60);
    fleets_wait(x, 3600000);
    CHECK_U64(x->plan.proposal_count, 0);
    fleets_free(x);
}

static void a_spike_or_a_square_wave_moves_nothing(void)
{
    struct fleets *x = fleets_new(4);
    fill(x, 1, 4, 20, 25);
    for (unsigned t = 0; t < 240; t++) {
        uint64_t high = t == 100 ? 250 : t % 2 == 0 ? 60 : 25;
        x->part[0].load[BAL_CPU] = t < 150 && t != 100 ? high : 25;
        fleets_plan(x);
        CHECK_U64(fleets_count(x, BAL_MOVE), 0);
        x->now_ms += 15000;
    }
    fleets_free(x);
}

/* --- why a partition stays, and why it may not go there --- */

struct stays {
    const char *name;
    uint8_t reason;
    uint16_t flags;
    uint64_t moved_ago_ms, load;
};

static void reasons_to_stay(void)
{
    static const struct stays rows[] = {
        {"free", BAL_REASON_NONE, 0, 0, 20},
        {"busy", BAL_REASON_BUSY, BAL_BUSY, 0, 20},
        {"pinned", BAL_REASON_PINNED, BAL_PINNED, 0, 20},
        {"quarantined", BAL_REASON_QUARANTINED, BAL_QUARANTINED, 0, 20},
        {"not reported", BAL_REASON_STALE, BAL_STALE, 0, 20},
        {"just moved", BAL_REASON_RESIDENCE, 0, 1799000, 20},
        {"moved long ago", BAL_REASON_NONE, 0, 1800000, 20},
        {"next to nothing", BAL_REASON_TOO_SMALL, 0, 0, 1},
        {"one hot key", BAL_REASON_UNSPLITTABLE, BAL_ONE_KEY, 0, 400},
        {"one cool key", BAL_REASON_NONE, BAL_ONE_KEY, 0, 20},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct fleets *x = hot_node();
        x->settings.routine.node_out = 0; /* nothing moves: only the reason is asked */
        x->settings.piece_min = BAL_PERCENT(1);
        fleets_wait(x, 120000);
        x->part[0].flags = rows[i].flags;
        x->part[0].load[BAL_CPU] = rows[i].load;
        x->part[0].moved_ms = rows[i].moved_ago_ms == 0 ? 0 : x->now_ms - rows[i].moved_ago_ms;
        struct bal_explanation why = fleets_explain(x, 1, 0);
        tap_note("%s: %s", rows[i].name, bal_reason_slug(why.partition_reason));
        CHECK_U64(why.partition_reason, rows[i].reason);
        fleets_free(x);
    }
}

static void set_dead(struct fleets *x)
{
    x->node[3].state = BAL_DEAD;
}
static void set_draining(struct fleets *x)
{
    x->node[3].state = BAL_DRAINING;
}
static void set_unknown(struct fleets *x)
{
    x->node[3].state = BAL_UNKNOWN;
}
static void set_stalled(struct fleets *x)
{
    x->node[3].stalled = true;
}
static void set_no_capacity(struct fleets *x)
{
    x->node[3].capacity[BAL_CPU] = 0;
}
static void set_rule(struct fleets *x)
{
    for (unsigned n = 0; n < 3; n++) {
        x->node[n].rules = 4;
    }
    x->part[0].rule = 2;
}
static void set_copy_there(struct fleets *x)
{
    x->part[0].copies = 2;
    x->part[0].copy[1].node = 4;
}
static void set_spread(struct fleets *x)
{
    x->node[2].zone = x->node[3].zone = 9;
    x->part[0].copies = 2;
    x->part[0].copy[1].node = 3;
    x->part[0].spread = BAL_SPREAD_ZONE;
}
static void set_group(struct fleets *x)
{
    x->part[0].group = 5;
    x->part[89].group = 5; /* on node 4 */
}
static void set_disk(struct fleets *x)
{
    x->part[0].load[BAL_BYTES] = 950 * GIB;
    x->part[0].load[BAL_CPU] = 100;
}
static void set_returning(struct fleets *x)
{
    x->part[0].previous = 4;
    x->part[0].moved_ms = x->now_ms - 3600000;
}
static void set_no_intake(struct fleets *x)
{
    x->settings.routine.node_in = 0;
}
static void set_rate(struct fleets *x)
{
    x->node[3].rate_in = 100 << 20;
    x->part[89].copy[0].to = 4;
    x->part[89].copy[0].node = 3;
    x->part[89].operation = DIR_CLASS_DRAIN;
    x->part[89].flags = BAL_BUSY;
}
static void set_both_ways(struct fleets *x)
{
    x->part[89].copy[0].to = 2;
    x->part[89].operation = DIR_CLASS_BALANCE;
    x->part[89].flags = BAL_BUSY;
}
static void set_zone_full(struct fleets *x)
{
    for (unsigned n = 0; n < 4; n++) {
        x->node[n].zone = 1;
    }
    x->settings.routine.zone = 0;
}
static void set_all_full(struct fleets *x)
{
    x->settings.routine.all = 0;
    x->settings.routine.all_per_nodes = 0;
}
static void set_expensive(struct fleets *x)
{
    x->part[0].load[BAL_BYTES] = 300 * GIB;
    x->part[0].load[BAL_CPU] = 8;
}
static void set_too_big(struct fleets *x)
{
    x->settings.urgent_level = 4 * BAL_ONE;
    x->settings.urgent_utilisation = 4 * BAL_ONE;
    x->part[0].load[BAL_CPU] = 400;
    x->part[89].load[BAL_CPU] = 600;
    x->settings.floor[BAL_CPU] = 0;
    for (unsigned n = 0; n < 4; n++) {
        x->node[n].capacity[BAL_CPU] = 3000;
    }
}

struct refuses {
    const char *name;
    void (*set)(struct fleets *x);
    uint8_t reason;
};

static void reasons_against_a_node(void)
{
    static const struct refuses rows[] = {
        {"dead", set_dead, BAL_REASON_NODE_STATE},
        {"draining", set_draining, BAL_REASON_NODE_STATE},
        {"unknown", set_unknown, BAL_REASON_NODE_STATE},
        {"stalled", set_stalled, BAL_REASON_NODE_STALLED},
        {"capacity 0", set_no_capacity, BAL_REASON_NO_CAPACITY},
        {"placement", set_rule, BAL_REASON_PLACEMENT_RULE},
        {"a copy there", set_copy_there, BAL_REASON_COPY_THERE},
        {"the zone of a copy", set_spread, BAL_REASON_SPREAD},
        {"a sub-shard there", set_group, BAL_REASON_GROUP_THERE},
        {"the disk", set_disk, BAL_REASON_DISK},
        {"where it came from", set_returning, BAL_REASON_RETURNING},
        {"no more in", set_no_intake, BAL_REASON_BUDGET_NODE},
        {"the rate", set_rate, BAL_REASON_BUDGET_RATE},
        {"it gives itself", set_both_ways, BAL_REASON_BOTH_WAYS},
        {"the zone's budget", set_zone_full, BAL_REASON_BUDGET_DOMAIN},
        {"the fleet's budget", set_all_full, BAL_REASON_BUDGET_ALL},
        {"not worth it", set_expensive, BAL_REASON_NOT_WORTH},
        {"too big", set_too_big, BAL_REASON_OVERSHOOT},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct fleets *x = hot_node();
        rows[i].set(x);
        struct bal_explanation why = fleets_explain(x, 1, 4);
        tap_note("%s: %s", rows[i].name, bal_reason_slug(why.node_reason));
        CHECK_U64(why.node_reason, rows[i].reason);
        fleets_free(x);
    }
    struct fleets *x = hot_node();
    CHECK_U64(fleets_explain(x, 1, 4).node_reason, BAL_REASON_NONE);
    fleets_free(x);
}

static void explain_says_what_the_round_does(void)
{
    struct fleets *x = hot_node();
    struct bal_explanation why = fleets_explain(x, 1, 4);
    CHECK_U64(why.source_reason, BAL_REASON_NOT_SUSTAINED);
    CHECK(!why.planned);
    fleets_wait(x, 60000);
    const struct bal_proposal *made = fleets_find(x, BAL_MOVE);
    why = fleets_explain(x, made->partition, made->to);
    CHECK(why.planned);
    CHECK_U64(why.proposal.to, made->to);
    CHECK_U64(why.partition_reason, BAL_REASON_PLANNED);
    CHECK_U64(fleets_explain(x, 35, 0).source_reason, BAL_REASON_NOT_OVERLOADED);
    struct bal_fleet f;
    fleets_build(x, &f, NULL);
    struct bal_question nobody = {9999, 0}, nowhere = {1, 77};
    CHECK_U64(bal_explain(&f, &x->settings, x->now_ms, x->memory, &nobody, &why),
              ERR_PARTITION_NOT_FOUND);
    CHECK_U64(bal_explain(&f, &x->settings, x->now_ms, x->memory, &nowhere, &why),
              ERR_NODE_NOT_FOUND);
    bal_fleet_close(&f);
    fleets_free(x);
}

/* --- shape --- */

static struct fleets *hot_partition(uint64_t load)
{
    struct fleets *x = fleets_new(4);
    fill(x, 1, 4, 20, 20);
    x->part[0].load[BAL_CPU] = load;
    x->part[0].hint =
        (struct bal_hint){.samples = 256, .left = BAL_PERCENT(48), .top = BAL_PERCENT(5)};
    return x;
}

struct cuts {
    const char *name;
    struct bal_hint hint;
    uint16_t flags;
    uint8_t kind, cut, reason; /* kind 0: refused for the reason */
};

static void hot_partitions_are_split_where_the_sample_says(void)
{
    static const struct cuts rows[] = {
        {"even", {256, BAL_PERCENT(48), 0, BAL_PERCENT(5)}, 0, BAL_SPLIT, BAL_CUT_LOAD, 0},
        {"one key", {256, BAL_PERCENT(20), 0, BAL_PERCENT(70)}, 0, BAL_SPLIT, BAL_CUT_KEY, 0},
        {"a strong key", {256, BAL_PERCENT(15), 0, BAL_PERCENT(40)}, 0, BAL_SPLIT, BAL_CUT_KEY, 0},
        {"few samples", {99, BAL_PERCENT(48), 0, 0}, 0, 0, 0, BAL_REASON_NO_EVIDENCE},
        {"no samples", {0, 0, 0, 0}, 0, 0, 0, BAL_REASON_NO_EVIDENCE},
        {"no boundary", {256, 0, 0, BAL_PERCENT(40)}, 0, 0, 0, BAL_REASON_NO_EVIDENCE},
        {"ranges across",
         {256, BAL_PERCENT(48), BAL_PERCENT(50), 0},
         0,
         0,
         0,
         BAL_REASON_NO_EVIDENCE},
        {"pinned", {256, BAL_PERCENT(48), 0, 0}, BAL_PINNED, 0, 0, BAL_REASON_PINNED},
        {"busy", {256, BAL_PERCENT(48), 0, 0}, BAL_BUSY, 0, 0, BAL_REASON_BUSY},
        {"one key already", {0, 0, 0, 0}, BAL_ONE_KEY, BAL_ADVICE, 0, BAL_REASON_HOT_KEY},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct fleets *x = hot_partition(150);
        x->part[0].hint = rows[i].hint;
        x->part[0].flags = rows[i].flags;
        fleets_plan(x);
        CHECK_U64(x->plan.proposal_count, 0);
        x->now_ms += 60000;
        fleets_plan(x);
        const struct bal_proposal *made =
            rows[i].kind == 0 ? NULL : fleets_find(x, (enum bal_kind)rows[i].kind);
        tap_note("%s", rows[i].name);
        CHECK((made != NULL) == (rows[i].kind != 0));
        CHECK_U64(made == NULL ? 0 : made->cut, rows[i].cut);
        CHECK_U64(fleets_count(x, BAL_SPLIT), rows[i].kind == BAL_SPLIT);
        CHECK(rows[i].reason == 0 || made != NULL || x->plan.rejected[rows[i].reason] > 0);
        fleets_free(x);
    }
}

static void a_very_hot_partition_is_split_at_once(void)
{
    struct fleets *x = hot_partition(400);
    fleets_plan(x);
    CHECK_U64(fleets_count(x, BAL_SPLIT), 1);
    CHECK_U64(fleets_find(x, BAL_SPLIT)->class_of, DIR_CLASS_OVERLOAD);
    x->part[0].split_ms = x->now_ms - 59000;
    fleets_plan(x);
    CHECK_U64(fleets_count(x, BAL_SPLIT), 0);
    x->part[0].split_ms = x->now_ms - 60000;
    fleets_plan(x);
    CHECK_U64(fleets_count(x, BAL_SPLIT), 1);
    fleets_free(x);
}

static void a_large_partition_is_split_by_bytes(void)
{
    struct fleets *x = hot_partition(20);
    x->part[0].hint.samples = 0;
    x->part[0].load[BAL_BYTES] = 65 * GIB;
    fleets_wait(x, 60000);
    CHECK_U64(fleets_find(x, BAL_SPLIT)->cut, BAL_CUT_BYTES);
    CHECK_U64(fleets_find(x, BAL_SPLIT)->reason, BAL_REASON_TOO_LARGE);
    fleets_free(x);
}

/* Split after split, one child as hot as its parent was: the split is not what helps. */
static void a_frontier_is_split_seldom(void)
{
    struct fleets *x = hot_partition(400);
    uint32_t splits = 0;
    uint64_t id = 1;
    for (unsigned round = 0; round < 60; round++) {
        fleets_plan(x);
        if (fleets_count(x, BAL_SPLIT) == 1) {
            bal_memory_split(x->memory, id, 5000 + id, 6000 + id);
            x->part[0].id = 6000 + id;
            x->part[0].split_ms = x->now_ms;
            x->part[1].id = 5000 + id; /* the cold side */
            id = x->part[0].id;
            splits++;
        }
        x->now_ms += 30000;
    }
    CHECK(splits >= 4 && splits <= 7); /* of 30 that once a minute would allow */
    CHECK(x->plan.rejected[BAL_REASON_FRONTIER] > 0);
    fleets_free(x);
}

static void a_hot_key_gets_the_remedy_it_allows(void)
{
    static const struct {
        uint16_t flags;
        uint64_t reads, writes;
        uint8_t remedy, ways;
    } rows[] = {
        {BAL_MAY_REPLICATE, 400, 20, BAL_REMEDY_REPLICAS, 7},
        {BAL_MAY_REPLICATE, 100, 300, BAL_REMEDY_LIMIT, 0},
        {BAL_MAY_SALT, 100, 300, BAL_REMEDY_SALT, 8},
        {0, 400, 20, BAL_REMEDY_LIMIT, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct fleets *x = hot_partition(400);
        x->part[0].flags = (uint16_t)(BAL_ONE_KEY | rows[i].flags);
        x->part[0].load[BAL_READ] = rows[i].reads;
        x->part[0].load[BAL_WRITE] = rows[i].writes;
        fleets_plan(x);
        const struct bal_proposal *made = fleets_find(x, BAL_ADVICE);
        CHECK(made != NULL);
        CHECK_U64(made->reason, BAL_REASON_HOT_KEY);
        CHECK_U64(made->remedy, rows[i].remedy);
        CHECK_U64(made->ways, rows[i].ways);
        fleets_free(x);
    }
}

static void two_salts_on_one_owner_are_named(void)
{
    struct fleets *x = fleets_new(4);
    fill(x, 1, 4, 10, 40);
    for (unsigned i = 0; i < 4; i++) {
        x->part[i * 10].group = 3;
    }
    fleets_wait(x, 60000);
    CHECK_U64(fleets_count(x, BAL_ADVICE), 0);
    x->part[0].copy[0].node = 2;
    x->part[1].copy[0].node = 1;
    fleets_plan(x);
    CHECK_U64(fleets_find(x, BAL_ADVICE)->reason, BAL_REASON_SALT_INEFFECTIVE);
    fleets_free(x);
}

static struct fleets *cold_pair(void)
{
    struct fleets *x = fleets_new(2);
    x->settings.per_node_target = 4;
    fill(x, 1, 2, 6, 80);
    x->part[0].load[BAL_CPU] = x->part[1].load[BAL_CPU] = 2;
    x->part[0].next = 2;
    return x;
}

static void cold_neighbours_merge_late(void)
{
    struct fleets *x = cold_pair();
    fleets_plan(x);
    uint64_t since = x->now_ms;
    while (fleets_count(x, BAL_MERGE) == 0 && x->now_ms < since + 3600000) {
        x->now_ms += 30000;
        fleets_plan(x);
    }
    CHECK_U64(x->now_ms - since, 600000);
    CHECK_U64(fleets_find(x, BAL_MERGE)->partner, 2);
    x->part[1].split_ms = x->now_ms - 1700000;
    fleets_plan(x);
    CHECK_U64(fleets_count(x, BAL_MERGE), 0);
    x->now_ms += 100000;
    fleets_plan(x);
    CHECK_U64(fleets_count(x, BAL_MERGE), 1);
    x->part[1].load[BAL_CPU] = 80; /* once hot, all of the wait again */
    fleets_plan(x);
    x->part[1].load[BAL_CPU] = 2;
    fleets_wait(x, 570000);
    CHECK_U64(fleets_count(x, BAL_MERGE), 0);
    fleets_free(x);
}

static void what_was_split_again_merges_later(void)
{
    CHECK_U64(bal_regret(5000, 0), 0);
    CHECK_U64(bal_regret(5000, 2000), 6000);
    struct fleets *x = cold_pair();
    x->part[1].calm_ms = 2400000; /* of either */
    fleets_plan(x);
    fleets_wait(x, 2370000);
    CHECK_U64(fleets_count(x, BAL_MERGE), 0);
    fleets_wait(x, 60000);
    CHECK_U64(fleets_count(x, BAL_MERGE), 1);
    fleets_free(x);
}

static void what_differs_does_not_merge(void)
{
    for (unsigned i = 0; i < 4; i++) {
        struct fleets *x = cold_pair();
        x->part[1].tenant = i == 0 ? 9 : 0;
        x->part[1].flags = i == 1 ? BAL_PINNED : 0;
        x->part[1].copy[0].node = i == 2 ? 2 : 1;
        x->settings.per_node_target = i == 3 ? 9 : 4; /* fewer than three quarters of these */
        fleets_wait(x, 900000);
        CHECK_U64(fleets_count(x, BAL_MERGE), 0);
        fleets_free(x);
    }
}

/* --- recovery --- */

/* 100 partitions on a node that dies: over all others, and nothing else until they are whole. */
static void a_loss_is_spread(void)
{
    struct fleets *x = fleets_new(5);
    fill(x, 1, 5, 100, 5);
    for (uint32_t p = 0; p < x->parts; p++) {
        x->part[p].flags = BAL_REBUILDABLE;
    }
    x->node[0].state = BAL_DEAD;
    x->node[0].state_since_ms = x->now_ms;
    fleets_plan(x);
    CHECK_U64(fleets_count(x, BAL_ADD_COPY), 100);
    uint32_t to[6] = {0}, at_once = 0;
    for (uint32_t i = 0; i < x->plan.proposal_count; i++) {
        to[x->plan.proposal[i].to]++;
        at_once += !x->plan.proposal[i].queued;
        CHECK_U64(x->plan.proposal[i].class_of, DIR_CLASS_UNAVAILABLE);
    }
    for (unsigned n = 2; n <= 5; n++) {
        CHECK(to[n] >= 22 && to[n] <= 28);
    }
    CHECK_U64(at_once, 16); /* four nodes, four in each */
    CHECK(x->plan.recovering);
    fleets_free(x);
}

static void the_last_copy_goes_first(void)
{
    struct fleets *x = fleets_new(6);
    struct bal_partition_spec *two = fleets_add(x, 10, 1), *one = fleets_add(x, 10, 1);
    two->copies = one->copies = 3;
    for (unsigned c = 0; c < 3; c++) {
        two->copy[c].node = one->copy[c].node = c + 1;
    }
    two->copy[2].lost = true;
    one->copy[1].lost = one->copy[2].lost = true;
    struct bal_partition_spec *none = fleets_add(x, 10, 1);
    none->copy[0].lost = true;
    struct bal_partition_spec *missing = fleets_add(x, 10, 5);
    missing->wanted = 2;
    fleets_plan(x);
    CHECK_U64(x->plan.proposal_count, 3);
    CHECK_U64(x->plan.proposal[0].class_of, DIR_CLASS_LAST_COPY);
    CHECK(x->plan.proposal[0].to != 5 || x->plan.proposal[0].partition != missing->id);
    CHECK_U64(x->plan.proposal[2].class_of, DIR_CLASS_UNDER_REPLICATED);
    CHECK_U64(x->plan.proposal[2].partition, two->id);
    CHECK_U64(x->plan.rejected[BAL_REASON_NO_LIVE_COPY], 1);
    fleets_free(x);
}

static void recovery_goes_first_and_routine_waits(void)
{
    struct fleets *x = hot_node();
    fleets_wait(x, 120000);
    CHECK_U64(fleets_count(x, BAL_MOVE), 2);
    x->part[80].copies = 2;
    x->part[80].copy[1] = (struct bal_copy_spec){.node = 1, .lost = true};
    fleets_plan(x);
    CHECK_U64(x->plan.proposal_count, 1);
    CHECK_U64(x->plan.proposal[0].kind, BAL_ADD_COPY);
    fleets_begin(x, true);
    fleets_wait(x, 90000);
    CHECK_U64(x->plan.proposal_count, 0); /* and two minutes after */
    fleets_wait(x, 60000);
    CHECK_U64(fleets_count(x, BAL_MOVE), 2);
    fleets_free(x);
}

/* A copy that nobody can take does not hold up the rest for ever. */
static void what_can_not_be_recovered_holds_up_nothing(void)
{
    struct fleets *x = hot_node();
    x->part[80].copy[0].lost = true;
    fleets_wait(x, 120000);
    CHECK_U64(fleets_count(x, BAL_MOVE), 2);
    CHECK(x->plan.rejected[BAL_REASON_NO_LIVE_COPY] > 0);
    fleets_free(x);
}

static void too_many_losses_stop_it(void)
{
    static const struct {
        const char *name;
        unsigned nodes, dead, zones;
        bool confirmed, trips;
    } rows[] = {
        {"a quarter", 40, 10, 0, false, false},
        {"more", 40, 11, 0, false, true},
        {"more than a quarter of few", 8, 3, 0, false, true},
        {"a zone of three", 9, 3, 3, false, false},
        {"a zone of two", 8, 4, 2, false, true},
        {"and a person has seen it", 40, 20, 0, true, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct fleets *x = fleets_new(rows[i].nodes);
        fill(x, 1, rows[i].nodes, 4, 5);
        for (unsigned n = 0; n < rows[i].nodes; n++) {
            x->node[n].zone = rows[i].zones == 0 ? 0 : 1 + n / (rows[i].nodes / rows[i].zones);
            x->node[n].state = n < rows[i].dead ? BAL_DEAD : BAL_ELIGIBLE;
            x->node[n].state_since_ms = x->now_ms;
        }
        for (uint32_t p = 0; p < x->parts; p++) {
            x->part[p].flags = BAL_REBUILDABLE;
        }
        x->settings.breaker_confirmed = rows[i].confirmed;
        fleets_plan(x);
        tap_note("%s", rows[i].name);
        CHECK(x->plan.breaker == rows[i].trips);
        CHECK((fleets_count(x, BAL_ADD_COPY) > 0) == !rows[i].trips);
        fleets_free(x);
    }
}

static void a_drained_node_is_emptied_within_the_budgets(void)
{
    struct fleets *x = fleets_new(4);
    fill(x, 1, 4, 10, 20);
    x->node[0].state = BAL_DRAINING;
    unsigned rounds = 0;
    for (; rounds < 20; rounds++) {
        fleets_plan(x);
        CHECK(x->plan.proposal_count <= 2);
        if (x->plan.proposal_count == 0) {
            break;
        }
        CHECK_U64(x->plan.proposal[0].class_of, DIR_CLASS_DRAIN);
        fleets_begin(x, true);
        x->now_ms += 30000;
    }
    CHECK_U64(rounds, 5);
    fleets_free(x);
}

static void a_misplaced_copy_leaves(void)
{
    struct fleets *x = fleets_new(4);
    fill(x, 1, 4, 4, 20);
    x->node[2].rules = 2;
    x->part[0].rule = 1;
    fleets_plan(x);
    CHECK_U64(x->plan.proposal_count, 1);
    CHECK_U64(x->plan.proposal[0].class_of, DIR_CLASS_CONSTRAINT);
    CHECK_U64(x->plan.proposal[0].to, 3);
    fleets_free(x);
}

/* --- capacity --- */

static void room_is_taken_once(void)
{
    struct fleets *x = fleets_new(3);
    fill(x, 1, 1, 4, 200);
    fill(x, 2, 2, 5, 100);
    for (unsigned p = 0; p < 4; p++) {
        x->part[p].load[BAL_BYTES] = 60 * GIB;
    }
    x->settings.split_bytes = 0;
    x->settings.kappa = 0;
    x->node[2].capacity[BAL_BYTES] = 110 * GIB; /* 99 GiB of them usable */
    x->settings.high = BAL_PERCENT(10);
    fleets_wait(x, 120000);
    CHECK(fleets_count(x, BAL_MOVE) > 0);
    uint32_t to_third = 0;
    for (uint32_t i = 0; i < x->plan.proposal_count; i++) {
        to_third += x->plan.proposal[i].kind == BAL_MOVE && x->plan.proposal[i].to == 3;
    }
    CHECK_U64(to_third, 1);
    fleets_free(x);
}

static void one_that_fits_nowhere_holds_up_nothing(void)
{
    struct fleets *x = hot_node();
    x->part[0].load[BAL_BYTES] = 900 * GIB;
    x->part[0].load[BAL_CPU] = 60;
    x->settings.split_bytes = 0;
    x->node[0].capacity[BAL_BYTES] *= 4;
    for (unsigned n = 1; n < 4; n++) {
        x->node[n].capacity[BAL_BYTES] = 800 * GIB;
    }
    x->settings.kappa = 0;
    fleets_wait(x, 120000);
    CHECK_U64(fleets_count(x, BAL_MOVE), 2);
    CHECK_U64(fleets_explain(x, 1, 3).node_reason, BAL_REASON_DISK);
    fleets_free(x);
}

static void shares_follow_capacity(void)
{
    struct fleets *x = fleets_new(3);
    x->node[0].capacity[BAL_CPU] = 2000;
    fill(x, 1, 1, 40, 20);
    fill(x, 2, 3, 20, 20);
    fleets_wait(x, 600000);
    CHECK_U64(fleets_count(x, BAL_MOVE), 0);
    CHECK_U64(x->plan.mean[BAL_CPU], BAL_PERCENT(40));
    fleets_free(x);
}

static void a_hot_cluster_needs_nodes_not_moves(void)
{
    struct fleets *x = hot_node();
    for (uint32_t p = 0; p < x->parts; p++) {
        x->part[p].load[BAL_CPU] = 39;
    }
    x->node[0].capacity[BAL_CPU] = 1200;
    fleets_wait(x, 120000);
    CHECK(x->plan.cluster_hot);
    CHECK_U64(fleets_count(x, BAL_MOVE), 0);
    CHECK_U64(fleets_find(x, BAL_ADVICE)->reason, BAL_REASON_HOT_CLUSTER);
    fleets_free(x);
}

static void a_new_node_is_filled_a_little_at_a_time(void)
{
    struct fleets *x = fleets_new(12);
    fill(x, 1, 11, 20, 25);
    x->node[11].joined_ms = x->now_ms;
    unsigned in[20], rounds = 0;
    for (; rounds < 20; rounds++) {
        fleets_plan(x);
        in[rounds] = fleets_count(x, BAL_MOVE);
        for (uint32_t i = 0; i < x->plan.proposal_count; i++) {
            CHECK_U64(x->plan.proposal[i].to, 12);
            CHECK_U64(x->plan.proposal[i].reason, BAL_REASON_COLD_NODE);
        }
        fleets_begin(x, true);
        x->now_ms += 30000;
    }
    CHECK_U64(in[0] + in[1], 0); /* a minute of being cold */
    CHECK_U64(in[2], 2);
    unsigned sum = 0;
    for (unsigned i = 0; i < 20; i++) {
        CHECK(in[i] <= 2);
        sum += in[i];
    }
    CHECK(sum >= 16 && sum <= 18); /* to 1 - low of its share */
    fleets_free(x);
}

static void roles_move_before_bytes(void)
{
    struct fleets *x = fleets_new(4);
    for (unsigned p = 0; p < 24; p++) {
        struct bal_partition_spec *s = fleets_add(x, 20, 1);
        s->copies = 2;
        s->copy[1] = (struct bal_copy_spec){.node = 2 + p % 3, .insync = true};
    }
    fill(x, 2, 4, 12, 20);
    fleets_wait(x, 60000);
    CHECK_U64(fleets_count(x, BAL_TRANSFER), 9); /* each takes 15 of the 134 above the mark */
    CHECK_U64(fleets_find(x, BAL_TRANSFER)->bytes, 0);
    CHECK_U64(fleets_count(x, BAL_MOVE), 0);
    fleets_free(x);
}

/* Neither of the big ones fits anywhere by itself. */
static void two_change_places_when_none_can_go(void)
{
    struct fleets *x = fleets_new(2);
    (void)fleets_add(x, 200, 1);
    (void)fleets_add(x, 200, 1);
    (void)fleets_add(x, 200, 1);
    (void)fleets_add(x, 120, 2);
    (void)fleets_add(x, 150, 2);
    (void)fleets_add(x, 150, 2);
    x->settings.split_share = BAL_ONE;
    fleets_wait(x, 120000);
    const struct bal_proposal *made = fleets_find(x, BAL_SWAP);
    CHECK(made != NULL);
    if (made != NULL) {
        CHECK_U64(made->from, 1);
        CHECK(made->partition <= 3 && made->partner >= 4);
        CHECK(made->to_after < made->from_level);
    }
    fleets_free(x);
}

static void tokens_bound_an_hour(void)
{
    struct fleets *x = fleets_new(20);
    fill(x, 1, 10, 30, 20);
    fill(x, 11, 20, 20, 20);
    x->settings.moves_burst = 5;
    x->settings.moves_per_node_hour = 1;
    fleets_wait(x, 60000);
    CHECK_U64(fleets_count(x, BAL_MOVE), 5);
    fleets_begin(x, true);
    x->now_ms += 30000;
    fleets_plan(x);
    CHECK_U64(fleets_count(x, BAL_MOVE), 0);
    CHECK(x->plan.rejected[BAL_REASON_BUDGET_TOKENS] > 0);
    fleets_wait(x, 600000);
    CHECK(fleets_count(x, BAL_MOVE) >= 3 && fleets_count(x, BAL_MOVE) <= 5);
    fleets_free(x);
}

/* The buckets are full when the first nodes come, however late that is. */
static void a_start_without_nodes_costs_no_tokens(void)
{
    struct bal_settings s;
    struct fleets *x = fleets_new(20);
    struct bal_fleet none;
    struct bal_plan plan;
    struct err e;
    bal_settings_default(&s);
    bal_fleet_init(&none);
    bal_plan_init(&plan);
    CHECK_U64(bal_fleet_seal(&none, &e), ERR_OK);
    bal_plan(&none, &s, x->now_ms, x->memory, &plan);
    bal_plan_close(&plan);
    bal_fleet_close(&none);
    fill(x, 1, 10, 30, 20);
    fill(x, 11, 20, 20, 20);
    fleets_wait(x, 60000);
    CHECK(fleets_count(x, BAL_MOVE) >= 5);
    CHECK_U64(x->plan.rejected[BAL_REASON_BUDGET_TOKENS], 0);
    fleets_free(x);
}

static void a_new_leader_waits_and_moves_nothing_because_of_it(void)
{
    struct fleets *x = hot_node();
    fleets_wait(x, 120000);
    CHECK_U64(fleets_count(x, BAL_MOVE), 2);
    for (uint32_t p = 0; p < x->parts; p++) {
        x->part[p].flags = p < 15 ? BAL_STALE : 0;
    }
    bal_memory_free(x->memory);
    x->memory = bal_memory_new(x->now_ms);
    for (uint64_t began = x->now_ms; x->now_ms < began + 300000; x->now_ms += 30000) {
        fleets_plan(x);
        CHECK(x->plan.quiet);
        CHECK_U64(x->plan.proposal_count, 0);
    }
    fleets_plan(x);
    CHECK_U64(fleets_count(x, BAL_MOVE), 2);
    fleets_free(x);
}

static void memory_is_saved_and_loaded(void)
{
    struct fleets *x = hot_node();
    x->part[3].load[BAL_CPU] = 300;
    fleets_wait(x, 900000);
    fleets_begin(x, false);
    bal_memory_split(x->memory, 1, 5001, 5002);
    struct buf bytes, again;
    buf_init(&bytes, 1 << 20);
    buf_init(&again, 1 << 20);
    bal_memory_save(x->memory, &bytes);
    struct bal_memory *loaded = NULL;
    CHECK_U64(bal_memory_load(slice_of(bytes.data, bytes.len), &loaded), ERR_OK);
    bal_memory_save(loaded, &again);
    CHECK(slice_eq(slice_of(bytes.data, bytes.len), slice_of(again.data, again.len)));
    CHECK_U64(loaded->past_count, x->memory->past_count);
    CHECK(loaded->past_count > 0 && loaded->partition_count > 0 && loaded->node_count == 4);
    bal_memory_free(loaded);
    struct bal_memory *other = NULL;
    for (size_t len = 0; len < bytes.len; len++) {
        CHECK_U64(bal_memory_load(slice_of(bytes.data, len), &other), ERR_CORRUPT);
    }
    bytes.data[0] = 99;
    CHECK_U64(bal_memory_load(slice_of(bytes.data, bytes.len), &other), ERR_CORRUPT);
    buf_close(&bytes);
    buf_close(&again);
    fleets_free(x);
}

/* Moves that do not bring what they promise make it ask for more of the next ones. */
static void broken_promises_raise_the_price(void)
{
    struct fleets *x = hot_node();
    fleets_wait(x, 60000);
    fleets_begin(x, true);
    CHECK_U64(x->memory->rho, BAL_ONE);
    for (uint32_t p = 0; p < 30; p++) {
        x->part[p].load[BAL_CPU] = 1; /* the heat went away by itself */
    }
    fleets_wait(x, 960000);
    CHECK(x->memory->rho < BAL_ONE);
    CHECK(x->memory->rho > BAL_PERCENT(90));
    fleets_free(x);
}

static void noise_widens_the_band_and_a_trend_does_not(void)
{
    struct tap_rand r = {5};
    for (unsigned noisy = 0; noisy < 2; noisy++) {
        struct fleets *x = fleets_new(4);
        fill(x, 1, 4, 10, 50);
        for (unsigned t = 0; t < 480; t++) {
            for (uint32_t p = 0; p < x->parts; p++) {
                uint64_t trend = p < 10 ? 48 + t / 120 : 50;
                x->part[p].load[BAL_CPU] = noisy == 1 ? 25 + tap_rand_below(&r, 50) : trend;
            }
            fleets_plan(x);
            x->now_ms += 30000;
        }
        tap_note("sigma %llu", (unsigned long long)x->memory->sigma);
        CHECK((x->plan.high > BAL_PERCENT(10)) == (noisy == 1));
        CHECK(x->plan.high <= BAL_PERCENT(30));
        fleets_free(x);
    }
}

static void settings_that_make_no_sense_are_named(void)
{
    struct bal_settings s;
    struct err e = {0};
    bal_settings_default(&s);
    CHECK_U64(bal_settings_check(&s, &e), ERR_OK);
    s.low = s.high;
    CHECK_U64(bal_settings_check(&s, &e), ERR_INVALID_SETTINGS);
    CHECK_STR(e.pointer, "/low");
    bal_settings_default(&s);
    s.merge_fraction = 2;
    CHECK_U64(bal_settings_check(&s, &e), ERR_INVALID_SETTINGS);
    CHECK_STR(e.pointer, "/merge_fraction");
}

static void bad_input_is_refused_by_field(void)
{
    struct bal_fleet f;
    struct err e = {0};
    bal_fleet_init(&f);
    struct bal_node_spec n = {.id = 1};
    CHECK_U64(bal_fleet_add_node(&f, &n, &e), ERR_INVALID_REQUEST);
    CHECK_STR(e.pointer, "/state");
    n.state = BAL_ELIGIBLE;
    CHECK_U64(bal_fleet_add_node(&f, &n, &e), ERR_OK);
    struct bal_partition_spec p = {.id = 1, .copies = 1, .copy = {{.node = 2}}};
    CHECK_U64(bal_fleet_add_partition(&f, &p, &e), ERR_INVALID_REQUEST);
    CHECK_STR(e.pointer, "/copy");
    p.copy[0].node = 1;
    p.load[BAL_WRITE] = BAL_LOAD_MAX + 1;
    CHECK_U64(bal_fleet_add_partition(&f, &p, &e), ERR_INVALID_REQUEST);
    CHECK_STR(e.pointer, "/load");
    p.load[BAL_WRITE] = 0;
    CHECK_U64(bal_fleet_add_partition(&f, &p, &e), ERR_OK);
    CHECK_U64(bal_fleet_add_partition(&f, &p, &e), ERR_OK);
    CHECK_U64(bal_fleet_seal(&f, &e), ERR_INVALID_REQUEST); /* twice */
    bal_fleet_close(&f);
}

/* Sums that are kept by differences stay those of a new count. */
static void changed_loads_keep_the_sums(void)
{
    struct tap_rand r = {3};
    struct fleets *x = fleets_new(5);
    for (unsigned p = 0; p < 50; p++) {
        struct bal_partition_spec *s = fleets_add(x, 10, 1 + p % 5);
        s->copies = 2;
        s->copy[1] = (struct bal_copy_spec){.node = 1 + (p + 1) % 5, .to = 1 + (p + 2) % 5};
    }
    struct bal_fleet f;
    fleets_build(x, &f, NULL);
    for (unsigned i = 0; i < 1000; i++) {
        uint64_t load[BAL_RESOURCES];
        for (unsigned k = 0; k < BAL_RESOURCES; k++) {
            load[k] = tap_rand_below(&r, 1000);
        }
        bal_fleet_set_load(&f, (uint32_t)tap_rand_below(&r, 50), load);
    }
    uint64_t *sums = mem_dup(f.node_load, 5 * BAL_RESOURCES * sizeof *sums);
    uint64_t *stored = mem_dup(f.node_leaving, 5 * sizeof *stored);
    bal_fleet_recount(&f);
    for (unsigned i = 0; i < 5 * BAL_RESOURCES; i++) {
        CHECK_U64(sums[i], f.node_load[i]);
    }
    for (unsigned n = 0; n < 5; n++) {
        CHECK_U64(stored[n], f.node_leaving[n]);
    }
    mem_free(sums);
    mem_free(stored);
    bal_fleet_close(&f);
    fleets_free(x);
}

static void an_empty_fleet_needs_no_plan(void)
{
    struct fleets *x = fleets_new(0);
    fleets_wait(x, 120000);
    CHECK_U64(x->plan.proposal_count, 0);
    fleets_free(x);
    x = fleets_new(3);
    fleets_wait(x, 120000);
    CHECK_U64(x->plan.proposal_count, 0);
    fleets_free(x);
}

static void reasons_have_words(void)
{
    for (unsigned i = 0; i < BAL_REASON_COUNT; i++) {
        CHECK(bal_reason_slug((enum bal_reason)i)[0] != 0);
        CHECK(bal_reason_text((enum bal_reason)i)[0] != 0);
    }
    CHECK_STR(bal_reason_slug(BAL_REASON_HOT_NODE), "hot_node");
    CHECK_STR(bal_kind_name(BAL_ADVICE), "advice");
}

int main(void)
{
    RUN(a_hot_node_is_relieved_when_it_stays_hot);
    RUN(advice_costs_no_tokens);
    RUN(what_is_under_way_counts_where_it_goes);
    RUN(no_load_is_inverted);
    RUN(equal_nodes_exchange_nothing);
    RUN(a_spike_or_a_square_wave_moves_nothing);
    RUN(reasons_to_stay);
    RUN(reasons_against_a_node);
    RUN(explain_says_what_the_round_does);
    RUN(hot_partitions_are_split_where_the_sample_says);
    RUN(a_very_hot_partition_is_split_at_once);
    RUN(a_large_partition_is_split_by_bytes);
    RUN(a_frontier_is_split_seldom);
    RUN(a_hot_key_gets_the_remedy_it_allows);
    RUN(two_salts_on_one_owner_are_named);
    RUN(cold_neighbours_merge_late);
    RUN(what_was_split_again_merges_later);
    RUN(what_differs_does_not_merge);
    RUN(a_loss_is_spread);
    RUN(the_last_copy_goes_first);
    RUN(recovery_goes_first_and_routine_waits);
    RUN(what_can_not_be_recovered_holds_up_nothing);
    RUN(too_many_losses_stop_it);
    RUN(a_drained_node_is_emptied_within_the_budgets);
    RUN(a_misplaced_copy_leaves);
    RUN(room_is_taken_once);
    RUN(one_that_fits_nowhere_holds_up_nothing);
    RUN(shares_follow_capacity);
    RUN(a_hot_cluster_needs_nodes_not_moves);
    RUN(a_new_node_is_filled_a_little_at_a_time);
    RUN(roles_move_before_bytes);
    RUN(two_change_places_when_none_can_go);
    RUN(tokens_bound_an_hour);
    RUN(a_start_without_nodes_costs_no_tokens);
    RUN(a_new_leader_waits_and_moves_nothing_because_of_it);
    RUN(memory_is_saved_and_loaded);
    RUN(broken_promises_raise_the_price);
    RUN(noise_widens_the_band_and_a_trend_does_not);
    RUN(settings_that_make_no_sense_are_named);
    RUN(bad_input_is_refused_by_field);
    RUN(changed_loads_keep_the_sums);
    RUN(an_empty_fleet_needs_no_plan);
    RUN(reasons_have_words);
    return tap_done();
}
