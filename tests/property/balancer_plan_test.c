/* SPDX-License-Identifier: Apache-2.0 */
/* Random fleets: whatever they look like, a plan breaks no hard rule and no budget, names no
 * partition twice, leaves alone what lately moved, does not depend on the order of the input,
 * inverts nothing, and comes to rest. BALANCER_SEEDS says how many (1000). */
#include "base/assert.h"
#include "base/mem.h"
#include "base/parse.h"
#include "tests/harness/fleets.h"
#include "tests/harness/tap.h"

#include <stdlib.h>
#include <string.h>

static uint64_t seeds(uint64_t divided_by)
{
    const char *text = getenv("BALANCER_SEEDS");
    uint64_t count = text == NULL ? 1000 : strtoull(text, NULL, 10);
    return count / divided_by + 1;
}

static uint64_t below(struct tap_rand *r, uint64_t n)
{
    return tap_rand_below(r, n);
}

static void random_node(struct tap_rand *r, struct bal_node_spec *n, bool calm)
{
    static const uint64_t capacities[] = {500, 1000, 1000, 1000, 2500};
    n->capacity[BAL_CPU] = capacities[below(r, 5)] * 1000;
    n->capacity[BAL_WRITE] = below(r, 30) == 0 ? 0 : 1000000;
    n->capacity[BAL_BYTES] = UINT64_C(1) << 33;
    n->zone = (uint32_t)(1 + n->id % 3);
    n->rack = (uint32_t)(1 + n->id % 7);
    n->device = below(r, 3) == 0 ? (uint32_t)(1 + below(r, 4)) : 0;
    n->rules = 1 | (below(r, 2) << 1) | (below(r, 4) != 0 ? 4 : 0);
    if (!calm && below(r, 8) == 0) {
        n->state = (uint8_t)(BAL_CORDONED + below(r, 4));
        n->state_since_ms = FLEETS_START_MS + below(r, 3600000);
    }
    n->stalled = !calm && below(r, 20) == 0;
    n->joined_ms = !calm && below(r, 10) == 0 ? FLEETS_START_MS + below(r, 3600000) : 0;
    n->rate_in = below(r, 6) == 0 ? UINT64_C(96) << 20 : 0;
    n->rate_out = below(r, 6) == 0 ? UINT64_C(200) << 20 : 0;
}

static void random_copies(struct tap_rand *r, const struct fleets *x, struct bal_partition_spec *p)
{
    unsigned copies = (unsigned)(below(r, 3) == 0 ? 1 : 1 + below(r, 3));
    for (unsigned tries = 0; p->copies < copies && tries < 20; tries++) {
        uint64_t skewed = below(r, 3) == 0 ? x->nodes / 3 + 1 : x->nodes;
        uint64_t node = 1 + below(r, skewed);
        bool there = false;
        for (unsigned c = 0; c < p->copies; c++) {
            there |= p->copy[c].node == node;
        }
        if (!there) {
            p->copy[p->copies++] = (struct bal_copy_spec){.node = node, .insync = below(r, 2) == 0};
        }
    }
}

static void random_part(struct tap_rand *r, struct fleets *x, bool calm)
{
    struct bal_partition_spec *p = fleets_add(x, 0, 1);
    p->copies = 0;
    random_copies(r, x, p);
    uint64_t heat = 1 + below(r, 40);
    p->load[BAL_CPU] = heat * (200 + below(r, 800));
    p->load[BAL_WRITE] = heat * (100 + below(r, 400));
    p->load[BAL_BYTES] = (1 + below(r, 64)) << 20;
    p->next = below(r, 4) == 0 ? 0 : p->id + 1;
    p->rule = (uint16_t)(below(r, 4) == 0 ? 1 + below(r, 2) : 0);
    p->spread = (uint8_t)(p->copies > 1 && below(r, 2) == 0 ? BAL_SPREAD_ZONE : 0);
    p->group = below(r, 20) == 0 ? (uint32_t)(1 + below(r, 5)) : 0;
    p->hint = (struct bal_hint){.samples = (uint32_t)below(r, 300),
                                .left = below(r, BAL_ONE),
                                .contained = below(r, BAL_ONE) / 2,
                                .top = below(r, BAL_ONE)};
    if (below(r, 3) == 0) {
        p->moved_ms = x->now_ms - below(r, 7200000);
        p->previous = 1 + below(r, x->nodes);
    }
    p->split_ms = below(r, 5) == 0 ? x->now_ms - below(r, 7200000) : 0;
    static const uint16_t flags[] = {BAL_PINNED, BAL_BUSY, BAL_ONE_KEY, BAL_STALE, BAL_QUARANTINED};
    p->flags = below(r, 3) == 0 ? BAL_REBUILDABLE : 0;
    if (!calm && below(r, 6) == 0) {
        p->flags |= flags[below(r, 5)];
    }
    if (!calm && p->copies > 0 && below(r, 40) == 0) {
        p->copy[below(r, p->copies)].lost = true;
    }
}

static void random_flight(struct tap_rand *r, struct fleets *x, struct bal_partition_spec *p)
{
    static const uint16_t classes[] = {DIR_CLASS_BALANCE, DIR_CLASS_HOT, DIR_CLASS_DRAIN,
                                       DIR_CLASS_LAST_COPY};
    uint64_t to = 1 + below(r, x->nodes);
    for (unsigned c = 0; c < p->copies; c++) {
        if (p->copy[c].node == to) {
            return;
        }
    }
    p->copy[0].to = to;
    p->operation = classes[below(r, 4)];
}

static struct fleets *random_fleet(uint64_t seed, bool calm)
{
    struct tap_rand r = {seed};
    struct fleets *x = fleets_new((uint32_t)(2 + below(&r, 20)));
    x->settings.seed = seed;
    for (uint32_t n = 0; n < x->nodes; n++) {
        random_node(&r, &x->node[n], calm);
    }
    uint64_t parts = x->nodes * (2 + below(&r, 20));
    for (uint64_t p = 0; p < parts; p++) {
        random_part(&r, x, calm);
        struct bal_partition_spec *last = &x->part[x->parts - 1];
        if (!calm && (last->flags & BAL_BUSY) != 0 && last->copies > 0) {
            random_flight(&r, x, last);
        }
    }
    x->part[x->parts - 1].next = 0;
    return x;
}

static const struct bal_node_spec *node(const struct fleets *x, uint64_t id)
{
    return &x->node[id - 1];
}

static bool routine(const struct bal_proposal *made)
{
    return made->class_of < DIR_CLASS_DRAIN;
}

static bool carries(const struct bal_proposal *made)
{
    return made->kind == BAL_MOVE || made->kind == BAL_MOVE_COPY || made->kind == BAL_ADD_COPY ||
           made->kind == BAL_SWAP;
}

/* --- what no plan may do, asked of the specs and not of the planner's own functions --- */

static void check_place(const struct fleets *x, uint64_t partition, uint64_t from, uint64_t to)
{
    const struct bal_partition_spec *p = &x->part[partition - 1];
    const struct bal_node_spec *n = node(x, to);
    CHECK(n->state == BAL_ELIGIBLE);
    CHECK(!n->stalled);
    CHECK(n->capacity[BAL_CPU] > 0 && n->capacity[BAL_WRITE] > 0);
    CHECK(p->rule == 0 || (n->rules >> p->rule & 1) != 0);
    for (unsigned c = 0; c < p->copies; c++) {
        const struct bal_copy_spec *copy = &p->copy[c];
        if (copy->node == from || copy->lost) {
            continue;
        }
        CHECK(copy->node != to);
        if ((p->spread & BAL_SPREAD_ZONE) != 0 && node(x, copy->node)->state != BAL_DEAD) {
            CHECK(node(x, copy->node)->zone != n->zone);
        }
    }
}

static void check_free(const struct fleets *x, uint64_t partition, const struct bal_proposal *made)
{
    const struct bal_partition_spec *p = &x->part[partition - 1];
    CHECK((p->flags & (BAL_BUSY | BAL_QUARANTINED)) == 0);
    if (!routine(made)) {
        return;
    }
    CHECK((p->flags & (BAL_PINNED | BAL_STALE)) == 0);
    if (carries(made) || made->kind == BAL_TRANSFER) {
        uint64_t least = made->class_of == DIR_CLASS_HOT ? x->settings.residence_urgent_ms
                                                         : x->settings.residence_ms;
        CHECK(p->moved_ms == 0 || x->now_ms - p->moved_ms >= least);
    }
}

static void check_once(const struct fleets *x)
{
    uint8_t *seen = mem_zalloc(x->parts + 1);
    for (uint32_t i = 0; i < x->plan.proposal_count; i++) {
        const struct bal_proposal *made = &x->plan.proposal[i];
        if (made->kind == BAL_ADVICE) {
            continue;
        }
        CHECK(seen[made->partition]++ == 0);
        CHECK(made->partner == 0 || seen[made->partner]++ == 0);
    }
    mem_free(seen);
}

struct ends {
    uint32_t in, out, ordinary_in, ordinary_out;
};

static void
count_one(struct ends *ends, const struct fleets *x, uint64_t from, uint64_t to, uint32_t class_of)
{
    bool ordinary = class_of < DIR_CLASS_UNDER_REPLICATED;
    ends[to].in++;
    ends[to].ordinary_in += ordinary;
    if (from != 0 && node(x, from)->state != BAL_DEAD) {
        ends[from].out++;
        ends[from].ordinary_out += ordinary;
    }
}

/* Copies that even out loads never go in and out of a node at once; two that change places are one
 * proposal, whose halves the directory admits one after the other. */
static void check_one_way(const struct fleets *x)
{
    enum { IN = 1, OUT = 2, SWAP = 4 };
    uint8_t *ways = mem_zalloc(x->nodes + 1);
    for (uint32_t p = 0; p < x->parts; p++) {
        const struct bal_copy_spec *c = &x->part[p].copy[0];
        if (c->to != 0 && x->part[p].operation < DIR_CLASS_DRAIN) {
            ways[c->node] |= OUT;
            ways[c->to] |= IN;
        }
    }
    for (uint32_t i = 0; i < x->plan.proposal_count; i++) {
        const struct bal_proposal *made = &x->plan.proposal[i];
        if (!carries(made) || !routine(made)) {
            continue;
        }
        if (made->kind == BAL_SWAP) {
            CHECK(((ways[made->from] | ways[made->to]) & (IN | OUT)) == 0);
            ways[made->from] |= SWAP;
            ways[made->to] |= SWAP;
            continue;
        }
        CHECK((ways[made->from] & (IN | SWAP)) == 0 && (ways[made->to] & (OUT | SWAP)) == 0);
        ways[made->from] |= OUT;
        ways[made->to] |= IN;
    }
    mem_free(ways);
}

/* At no node more under way than it may have, unless it was so before. */
static void check_budgets(const struct fleets *x)
{
    struct ends *ends = mem_zalloc((x->nodes + 1) * sizeof *ends);
    struct ends *before = mem_zalloc((x->nodes + 1) * sizeof *ends);
    uint32_t routine_moves = 0, hot_moves = 0;
    for (uint32_t p = 0; p < x->parts; p++) {
        const struct bal_copy_spec *c = &x->part[p].copy[0];
        if (c->to != 0) {
            count_one(ends, x, c->node, c->to, x->part[p].operation);
        }
    }
    memcpy(before, ends, (x->nodes + 1) * sizeof *ends);
    for (uint32_t i = 0; i < x->plan.proposal_count; i++) {
        const struct bal_proposal *made = &x->plan.proposal[i];
        if (!carries(made) || made->queued) {
            continue;
        }
        count_one(ends, x, made->from, made->to, made->class_of);
        if (made->kind == BAL_SWAP) {
            count_one(ends, x, made->to, made->from, made->class_of);
        }
        uint32_t each = made->kind == BAL_SWAP ? 2 : 1;
        hot_moves += made->class_of == DIR_CLASS_HOT ? each : 0;
        routine_moves += routine(made) && made->class_of != DIR_CLASS_HOT ? each : 0;
    }
    const struct bal_settings *s = &x->settings;
    for (uint64_t n = 1; n <= x->nodes; n++) {
        CHECK(ends[n].in <= s->total.node_in || ends[n].in == before[n].in);
        CHECK(ends[n].out <= s->total.node_out || ends[n].out == before[n].out);
        CHECK(ends[n].ordinary_in <= s->hot.node_in ||
              ends[n].ordinary_in == before[n].ordinary_in);
        CHECK(ends[n].ordinary_out <= s->hot.node_out ||
              ends[n].ordinary_out == before[n].ordinary_out);
    }
    CHECK(routine_moves <= s->moves_burst && hot_moves <= s->hot_burst);
    mem_free(before);
    mem_free(ends);
}

static void check_plan(const struct fleets *x)
{
    bool lost_waits = false;
    for (uint32_t i = 0; i < x->plan.proposal_count; i++) {
        const struct bal_proposal *made = &x->plan.proposal[i];
        CHECK(i == 0 || made[-1].class_of >= made->class_of);
        CHECK(made->expires_ms > x->now_ms);
        lost_waits |= made->kind == BAL_ADD_COPY;
        if (made->kind == BAL_ADVICE) {
            continue;
        }
        CHECK(made->version == 7);
        check_free(x, made->partition, made);
        if (made->partner != 0) {
            check_free(x, made->partner, made);
        }
        if (carries(made)) {
            check_place(x, made->partition, made->kind == BAL_ADD_COPY ? 0 : made->from, made->to);
            CHECK(!(routine(made) && lost_waits));
        }
        if (made->reason == BAL_REASON_HOT_NODE || made->reason == BAL_REASON_HOT_NODE_URGENT) {
            CHECK(made->to_after < made->from_level);
            CHECK(made->benefit > 0);
        }
    }
    check_once(x);
    check_budgets(x);
    check_one_way(x);
}

static void nothing_is_broken(void)
{
    uint64_t first = tap_seed(1), moves = 0, recoveries = 0, splits = 0;
    for (uint64_t k = 0; k < seeds(1) && tap_failures() == 0; k++) {
        struct fleets *x = random_fleet(first + k, k % 2 == 0);
        tap_note("seed %llu", (unsigned long long)(first + k));
        for (int round = 0; round < 6; round++) {
            fleets_plan(x);
            check_plan(x);
            moves += fleets_count(x, BAL_MOVE) + fleets_count(x, BAL_MOVE_COPY);
            recoveries += fleets_count(x, BAL_ADD_COPY);
            splits += fleets_count(x, BAL_SPLIT);
            x->now_ms += 30000;
        }
        fleets_free(x);
    }
    tap_note("%llu moves, %llu recoveries, %llu splits", (unsigned long long)moves,
             (unsigned long long)recoveries, (unsigned long long)splits);
    CHECK(moves > 0 && recoveries > 0 && splits > 0);
}

static void order_of_input_does_not_matter(void)
{
    uint64_t first = tap_seed(1), compared = 0;
    for (uint64_t k = 0; k < seeds(1) && tap_failures() == 0; k++) {
        struct fleets *x = random_fleet(first + k, k % 2 == 0);
        struct tap_rand r = {first + k};
        uint32_t *order = mem_alloc(x->parts * sizeof *order);
        struct bal_memory *other = bal_memory_copy(x->memory);
        struct bal_plan plan;
        bal_plan_init(&plan);
        tap_note("seed %llu", (unsigned long long)(first + k));
        for (int round = 0; round < 4; round++) {
            for (uint32_t i = 0; i < x->parts; i++) {
                uint32_t at = (uint32_t)below(&r, i + 1);
                order[i] = order[at];
                order[at] = i;
            }
            struct bal_fleet f;
            fleets_build(x, &f, order);
            bal_plan(&f, &x->settings, x->now_ms, other, &plan);
            bal_fleet_close(&f);
            fleets_plan(x);
            CHECK_U64(plan.proposal_count, x->plan.proposal_count);
            for (uint32_t i = 0; i < plan.proposal_count && tap_failures() == 0; i++) {
                const struct bal_proposal *a = &plan.proposal[i], *b = &x->plan.proposal[i];
                CHECK(a->kind == b->kind && a->partition == b->partition && a->from == b->from &&
                      a->to == b->to && a->partner == b->partner && a->benefit == b->benefit &&
                      a->reason == b->reason && a->to_after == b->to_after);
                compared++;
            }
            x->now_ms += 30000;
        }
        bal_plan_close(&plan);
        bal_memory_free(other);
        mem_free(order);
        fleets_free(x);
    }
    CHECK(compared > 0);
}

static bool some_go(const struct fleets *x)
{
    return fleets_count(x, BAL_MOVE) + fleets_count(x, BAL_MOVE_COPY) + fleets_count(x, BAL_SWAP) +
               fleets_count(x, BAL_TRANSFER) >
           0;
}

/* Constant load, moves that arrive by the next round: in the end nothing is proposed any more. */
static void it_comes_to_rest(void)
{
    uint64_t first = tap_seed(1);
    for (uint64_t k = 0; k < seeds(10) && tap_failures() == 0; k++) {
        struct fleets *x = random_fleet(first + k, true);
        uint32_t calm = 0, moves = 0;
        tap_note("seed %llu", (unsigned long long)(first + k));
        for (int round = 0; round < 1000 && calm < 130; round++) {
            fleets_plan(x);
            check_plan(x);
            uint32_t some = fleets_count(x, BAL_MOVE) + fleets_count(x, BAL_MOVE_COPY) +
                            fleets_count(x, BAL_SWAP) + fleets_count(x, BAL_TRANSFER);
            moves += some;
            calm = some == 0 ? calm + 1 : 0;
            fleets_begin(x, true);
            x->now_ms += 30000;
        }
        CHECK(calm >= 130); /* longer than residence: nothing waits for that either */
        CHECK(moves < 3 * x->parts);
        fleets_free(x);
    }
}

/* At rest another leader begins, and again and again: it knows only the fleet, and moves nothing.
 */
static void another_leader_moves_nothing(void)
{
    uint64_t first = tap_seed(1), at_rest = 0;
    for (uint64_t k = 0; k < seeds(20) && tap_failures() == 0; k++) {
        struct fleets *x = random_fleet(first + k, true);
        uint32_t calm = 0;
        tap_note("seed %llu", (unsigned long long)(first + k));
        for (int round = 0; round < 1000 && calm < 260; round++) {
            fleets_plan(x);
            calm = some_go(x) ? 0 : calm + 1;
            fleets_begin(x, true);
            x->now_ms += 30000;
        }
        at_rest += calm == 260;
        for (int leader = 0; leader < 4 && calm == 260; leader++) {
            bal_memory_free(x->memory);
            x->memory = bal_memory_new(x->now_ms);
            for (int round = 0; round < 30; round++) {
                fleets_plan(x);
                CHECK(!some_go(x));
                x->now_ms += 30000;
            }
        }
        fleets_free(x);
    }
    CHECK(at_rest > 0);
}

/* Loads that swing by less than the band around an even fleet move nothing. */
static void noise_moves_nothing(void)
{
    uint64_t first = tap_seed(1);
    for (uint64_t k = 0; k < seeds(10) && tap_failures() == 0; k++) {
        struct tap_rand r = {first + k};
        struct fleets *x = fleets_new((uint32_t)(2 + below(&r, 20)));
        tap_note("seed %llu", (unsigned long long)(first + k));
        for (uint32_t i = 0; i < x->nodes * 20; i++) {
            (void)fleets_add(x, 0, 1 + i % x->nodes);
        }
        for (int round = 0; round < 60; round++) {
            for (uint32_t i = 0; i < x->parts; i++) {
                x->part[i].load[BAL_CPU] = 20 + below(&r, 4);
            }
            fleets_plan(x);
            CHECK_U64(x->plan.proposal_count, 0);
            x->now_ms += 30000;
        }
        fleets_free(x);
    }
}

int main(void)
{
    RUN(nothing_is_broken);
    RUN(order_of_input_does_not_matter);
    RUN(it_comes_to_rest);
    RUN(another_leader_moves_nothing);
    RUN(noise_moves_nothing);
    return tap_done();
}
