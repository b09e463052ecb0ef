/* SPDX-License-Identifier: Apache-2.0 */
/* What skew says of modeled fleets. */
#include "balancer/skew.h"

#include "tests/harness/tap.h"

#include <math.h>
#include <string.h>

enum { MANY = 64 };

static struct skew_partition partitions[MANY];
static struct skew_node nodes[MANY];
static struct skew_keys keys[MANY];
static struct skew_finding findings[SKEW_FINDINGS_MAX * SKEW_KINDS];
static struct skew_fleet f;
static uint32_t found, left_out;

static bool near(double got, double want)
{
    bool ok = fabs(got - want) <= 1e-6 * fabs(want) + 1e-9;
    if (!ok) {
        tap_note("got %.9g want %.9g", got, want);
    }
    return ok;
}

/* Each partition on a node of its own, each node of this capacity of writes (0: not said). */
static void fleet(uint32_t n, uint64_t capacity)
{
    memset(partitions, 0, sizeof partitions);
    memset(nodes, 0, sizeof nodes);
    memset(keys, 0, sizeof keys);
    f = (struct skew_fleet){.partitions = partitions,
                            .partition_count = n,
                            .nodes = nodes,
                            .node_count = n,
                            .limits = skew_limits_default};
    for (uint32_t i = 0; i < n; i++) {
        partitions[i] =
            (struct skew_partition){.id = 100 + i, .node = i, .group = SKEW_NONE, .known = true};
        nodes[i].name = "n";
        nodes[i].alive = true;
        nodes[i].capacity[LOAD_WRITES] = nodes[i].capacity[SKEW_REQUESTS] = (double)capacity * 1000;
    }
}

static void judge(void)
{
    skew_add_up(&f);
    found = skew_findings(&f, findings, &left_out);
}

static const struct skew_finding *find(enum skew_kind kind, uint32_t partition)
{
    for (uint32_t i = 0; i < found; i++) {
        if (findings[i].kind == kind && findings[i].partition == partition) {
            return &findings[i];
        }
    }
    return NULL;
}

static unsigned count(enum skew_kind kind)
{
    unsigned n = 0;
    for (uint32_t i = 0; i < found; i++) {
        n += findings[i].kind == kind;
    }
    return n;
}

static void statistics_of_known_lists(void)
{
    struct skew_stats s;
    double even[] = {5, 5, 5, 5}, one[] = {0, 8, 0, 0}, none[] = {0, 0}, five[] = {4, 1, 3, 2, 10};
    skew_measure(even, 4, 4, &s);
    CHECK(near(s.max_to_mean, 1) && near(s.jain, 1) && near(s.gini, 0) && near(s.cv2, 0));
    CHECK(near(s.above_bound, .2) && near(s.top1, .25) && near(s.top10, 1));
    skew_measure(one, 4, 0, &s);
    CHECK(near(s.max_to_mean, 4) && near(s.jain, .25) && near(s.gini, .75) && near(s.cv2, 3));
    CHECK(near(s.max_to_median, 0)); /* no median to compare with: not infinite */
    skew_measure(none, 2, 0, &s);
    CHECK(near(s.max_to_mean, 0) && near(s.jain, 1) && near(s.gini, 0) && near(s.above_bound, 0));
    skew_measure(none, 0, 0, &s);
    CHECK_U64(s.count, 0);
    skew_measure(five, 5, 6, &s);
    CHECK(near(s.median, 3) && near(s.mean, 4) && near(s.p90, 10) && near(s.p99, 10));
    CHECK(near(s.above_bound, .2) && near(s.max_to_median, 10. / 3));
}

/* Items within 4 %, demand from 520 to 4 680: what an inventory does not show. */
static void six_partitions_of_like_size_and_unlike_demand(void)
{
    static const uint64_t demand[] = {520, 560, 600, 630, 600, 4680};
    static const uint64_t items[] = {50000, 51000, 49500, 50500, 50000, 50200};
    double scratch[MANY];
    struct skew_stats s;
    fleet(6, 0);
    for (unsigned i = 0; i < 6; i++) {
        partitions[i].load[LOAD_READS] = (float)(demand[i] * 1000);
        partitions[i].load[LOAD_ITEMS] = (float)(items[i]);
        partitions[i].load[LOAD_SIZE] = (float)(items[i] * 100);
    }
    judge();
    const struct skew_finding *x = find(SKEW_UNEVEN_ACCESS, 5);
    CHECK(x != NULL && near(x->value, 4680e3) && near(x->bound, 1200e3));
    CHECK_U64(count(SKEW_UNEVEN_ACCESS), 1);
    CHECK(count(SKEW_UNEVEN_SIZE) + count(SKEW_TOO_MANY_ITEMS) + count(SKEW_TOO_LARGE) == 0);
    CHECK(find(SKEW_HOT_PARTITION, 5) != NULL && count(SKEW_HOT_PARTITION) == 1);
    skew_of_nodes(&f, SKEW_REQUESTS, scratch, &s);
    CHECK(s.max_to_mean > 3.69 && s.max_to_mean < 3.71);
    skew_of_partitions(&f, LOAD_ITEMS, scratch, &s);
    CHECK(s.max_to_mean < 1.04);
}

static void limits_are_the_keyspaces_own(void)
{
    fleet(4, 0);
    for (unsigned i = 0; i < 4; i++) {
        partitions[i].load[LOAD_READS] = (float)(1000 * (i + 1));
        partitions[i].load[LOAD_ITEMS] = 10;
        partitions[i].load[LOAD_SIZE] = 1000;
    }
    partitions[3].load[LOAD_SIZE] = 50000;
    judge();
    CHECK(count(SKEW_UNEVEN_ACCESS) + count(SKEW_UNEVEN_SIZE) == 0);
    f.limits.uneven_access = 1.5;
    f.limits.uneven_size = 20;
    f.limits.too_many_items = 9;
    f.limits.too_large_bytes = 49999;
    judge();
    CHECK(find(SKEW_UNEVEN_ACCESS, 3) != NULL && count(SKEW_UNEVEN_ACCESS) == 1);
    CHECK(find(SKEW_UNEVEN_SIZE, 3) != NULL && count(SKEW_UNEVEN_SIZE) == 1);
    CHECK(find(SKEW_TOO_LARGE, 3) != NULL && count(SKEW_TOO_LARGE) == 1);
    CHECK_U64(count(SKEW_TOO_MANY_ITEMS), 4);
}

/* 80 000 writes/s over 16 partitions, 32 000 of them on one key. */
static void the_hot_key(uint64_t capacity)
{
    fleet(16, capacity);
    for (unsigned i = 0; i < 16; i++) {
        partitions[i].load[LOAD_WRITES] = 3000 * 1000;
    }
    partitions[4].load[LOAD_WRITES] = 35000 * 1000;
    keys[4] = (struct skew_keys){.has_top = true,
                                 .top = {.key = slice_of("k", 1),
                                         .share_ppm = 914286, /* 32 000 of 35 000 */
                                         .share_low_ppm = 875000},
                                 .split = {.verdict = SKETCH_ISOLATE}};
    partitions[4].keys = &keys[4];
}

static uint32_t spread_out(void *arg, uint32_t partition, uint32_t i, uint32_t n)
{
    (void)arg;
    (void)partition;
    (void)n;
    return (uint32_t)(2 * i + 1) % 16;
}

static uint32_t two_together(void *arg, uint32_t partition, uint32_t i, uint32_t n)
{
    return i == 5 ? spread_out(arg, partition, 2, n) : spread_out(arg, partition, i, n);
}

static void one_hot_key_is_told_apart_and_salts_are_predicted(void)
{
    the_hot_key(10000);
    f.salt_owner = spread_out;
    judge();
    const struct skew_finding *x = find(SKEW_HOT_KEY, 4);
    CHECK(x != NULL && count(SKEW_HOT_PARTITION) == 0 && count(SKEW_HOT_KEY) == 1);
    CHECK(count(SKEW_HOT_NODE) == 0); /* the key is at fault, not its node */
    if (x == NULL) {
        return;
    }
    CHECK(x->remedy == SKEW_DO_SPREAD_KEY && near(round(x->salts.unsplit_load), 35000e3));
    CHECK_U64(x->salts.salts, 8);
    CHECK(x->salts.placed && x->salts.fits && x->salts.shared == 0);
    CHECK(near(round(x->salts.largest_load / 1000), 7000) && near(x->salts.limit, 10000e3));
    f.salt_owner = two_together;
    judge();
    x = find(SKEW_HOT_KEY, 4);
    CHECK(x != NULL && x->salts.shared >= 1 && x->salts.salts > 8);
    /* Without a mapping of its own a key may go where it is quietest: never back home. */
    f.salt_owner = NULL;
    judge();
    x = find(SKEW_HOT_KEY, 4);
    CHECK(x != NULL && !x->salts.placed && x->salts.shared == 0);
}

/* Where nodes say how much they can write and nothing else, all requests being writes. */
static void what_nodes_say_their_limit_of_is_judged_first(void)
{
    the_hot_key(10000);
    for (unsigned i = 0; i < 16; i++) {
        nodes[i].capacity[SKEW_REQUESTS] = 0;
    }
    partitions[4].load[LOAD_READS] = 1000 * 1000; /* so that there are more requests than writes */
    f.salt_owner = spread_out;
    judge();
    const struct skew_finding *x = find(SKEW_HOT_KEY, 4);
    CHECK(x != NULL && x->resource == LOAD_WRITES && near(x->salts.limit, 10000e3));
    CHECK(x != NULL && x->salts.salts == 8 && near(round(x->salts.largest_load / 1000), 7000));
}

static void salts_that_share_an_owner_are_said_to(void)
{
    double cold[16], limits[16];
    struct skew_salts s = {.salts = 8};
    for (unsigned i = 0; i < 16; i++) {
        cold[i] = 3000;
        limits[i] = 10000;
    }
    for (uint32_t i = 0; i < 8; i++) {
        s.owner[i] = i;
    }
    skew_salt(cold, 32000, limits, &s);
    CHECK(s.fits && near(s.largest_load, 7000) && s.shared == 0);
    s.owner[7] = 3;
    skew_salt(cold, 32000, limits, &s);
    CHECK(!s.fits && near(s.largest_load, 11000) && s.shared == 1 && near(s.limit, 10000));
    s.owner[6] = 3;
    skew_salt(cold, 32000, limits, &s);
    CHECK(near(s.largest_load, 15000) && s.shared == 2);
}

static void a_key_that_is_read_asks_for_replicas(void)
{
    the_hot_key(10000);
    for (unsigned i = 0; i < 16; i++) {
        partitions[i].load[LOAD_READS] = partitions[i].load[LOAD_WRITES] * 9 / 10;
        partitions[i].load[LOAD_WRITES] /= 10;
        nodes[i].capacity[LOAD_WRITES] = 0;
    }
    judge();
    const struct skew_finding *x = find(SKEW_HOT_KEY, 4);
    CHECK(x != NULL && x->remedy == SKEW_DO_READ_REPLICAS && x->replicas == DIR_REPLICAS_MAX);
}

static void a_lump_of_many_keys_is_split(void)
{
    the_hot_key(10000);
    keys[4] = (struct skew_keys){.has_top = true,
                                 .top = {.share_ppm = 20000, .share_low_ppm = 9000},
                                 .split = {.verdict = SKETCH_BALANCED, .at = slice_of("m", 1)}};
    judge();
    const struct skew_finding *x = find(SKEW_HOT_PARTITION, 4);
    CHECK(x != NULL && x->remedy == SKEW_DO_SPLIT && count(SKEW_HOT_KEY) == 0);
    keys[4].frontier = SKETCH_RISING;
    judge();
    x = find(SKEW_FRONTIER, 4);
    CHECK(x != NULL && x->remedy == SKEW_DO_PREFIX);
    keys[4].frontier = SKETCH_STILL;
    keys[4].split.verdict = SKETCH_CONTAINED;
    judge();
    x = find(SKEW_HOT_PARTITION, 4);
    CHECK(x != NULL && x->remedy == SKEW_DO_MOVE);
    partitions[4].keys = NULL;
    judge();
    x = find(SKEW_HOT_PARTITION, 4);
    CHECK(x != NULL && x->remedy == SKEW_DO_NOTHING && strstr(x->why, "keys") != NULL);
}

/* 40 partitions of 100: 16 on the first of 4 nodes, 8 on each other. */
static void a_node_with_too_many_small_ones_is_hot(void)
{
    fleet(40, 0);
    f.node_count = 4;
    for (unsigned i = 0; i < 40; i++) {
        partitions[i].load[LOAD_WRITES] = 100 * 1000;
        partitions[i].node = i < 16 ? 0 : 1 + i % 3;
    }
    judge();
    CHECK_U64(count(SKEW_HOT_NODE), 2); /* by requests and by writes */
    for (uint32_t i = 0; i < found; i++) {
        CHECK(findings[i].node == 0 && findings[i].remedy == SKEW_DO_MOVE);
    }
    CHECK(near(skew_floor(&f, LOAD_WRITES), 1));
}

static void capacities_are_what_counts(void)
{
    fleet(3, 1000);
    nodes[2].capacity[LOAD_WRITES] = nodes[2].capacity[SKEW_REQUESTS] = 8000 * 1000;
    partitions[0].load[LOAD_WRITES] = partitions[1].load[LOAD_WRITES] = 500 * 1000;
    partitions[2].load[LOAD_WRITES] = 4000 * 1000;
    double scratch[MANY];
    struct skew_stats s;
    judge();
    skew_of_nodes(&f, LOAD_WRITES, scratch, &s);
    CHECK(near(s.max_to_mean, 1) && near(s.max, .5));
    CHECK_U64(count(SKEW_HOT_NODE) + count(SKEW_HOT_PARTITION) + count(SKEW_HOT_KEY), 0);
}

static void a_full_fleet_needs_capacity_not_moves(void)
{
    fleet(40, 0);
    f.node_count = 4;
    for (unsigned i = 0; i < 40; i++) {
        partitions[i].load[LOAD_WRITES] = 100 * 1000;
        partitions[i].node = i < 16 ? 0 : 1 + i % 3;
    }
    for (unsigned i = 0; i < 4; i++) {
        nodes[i].capacity[LOAD_WRITES] = 1200 * 1000;
    }
    judge();
    CHECK_U64(count(SKEW_HOT_CLUSTER), 1);
    CHECK(findings[0].kind == SKEW_HOT_CLUSTER && findings[0].remedy == SKEW_DO_ADD_CAPACITY);
    bool said = false;
    for (uint32_t i = 0; i < found; i++) {
        said |= findings[i].kind == SKEW_HOT_NODE && findings[i].resource == LOAD_WRITES &&
                findings[i].remedy == SKEW_DO_NOTHING;
    }
    CHECK(said);
}

static void an_idle_fleet_is_left_alone(void)
{
    fleet(4, 100000);
    partitions[0].load[LOAD_WRITES] = 9000 * 1000;
    partitions[1].load[LOAD_WRITES] = 10 * 1000;
    judge();
    CHECK_U64(count(SKEW_HOT_NODE) + count(SKEW_HOT_PARTITION), 0);
}

static void headroom_is_of_what_survives(void)
{
    static const struct dir_label zones[] = {{"zone", "a"}, {"zone", "b"}, {"zone", "c"}};
    fleet(6, 1000);
    for (unsigned i = 0; i < 6; i++) {
        partitions[i].load[LOAD_WRITES] = 400 * 1000;
        nodes[i].labels = &zones[i / 2];
        nodes[i].label_count = 1;
    }
    judge();
    CHECK(near(skew_headroom(&f, LOAD_WRITES, NULL, NULL), .6));
    CHECK(near(skew_headroom(&f, LOAD_WRITES, "zone", "b"), .4));
    nodes[0].alive = nodes[1].alive = false; /* zone a is lost: its load is still to be borne */
    CHECK(near(skew_headroom(&f, LOAD_WRITES, NULL, NULL), .4));
    CHECK(near(skew_headroom(&f, LOAD_WRITES, "zone", "b"), -.2));
    nodes[2].alive = nodes[3].alive = nodes[4].alive = nodes[5].alive = false;
    CHECK(near(skew_headroom(&f, LOAD_WRITES, NULL, NULL), -1));
    judge(); /* nobody lives: no finding divides by nothing */
    for (uint32_t i = 0; i < found; i++) {
        CHECK(isfinite(findings[i].value) && isfinite(findings[i].bound));
    }
}

static void the_floor_is_what_one_key_allows(void)
{
    the_hot_key(0);
    keys[4].top.share_low_ppm = 914286;
    judge();
    /* The mean is 5 000: a key of 32 000 keeps its node at 6.4 times that. */
    CHECK(skew_floor(&f, LOAD_WRITES) > 6.39 && skew_floor(&f, LOAD_WRITES) < 6.41);
}

static void the_worst_come_first_and_the_rest_is_counted(void)
{
    enum { N = 1000 };
    static struct skew_partition many[N];
    fleet(1, 0);
    f.partitions = many;
    f.partition_count = N;
    for (uint32_t i = 0; i < N; i++) {
        many[i] = (struct skew_partition){.id = i, .node = 0, .group = SKEW_NONE};
        many[i].load[LOAD_ITEMS] = (float)(100001 + (i * 7919) % N);
    }
    judge();
    CHECK_U64(count(SKEW_TOO_MANY_ITEMS), SKEW_FINDINGS_MAX);
    CHECK_U64(left_out, N - SKEW_FINDINGS_MAX);
    CHECK(near(findings[0].value, 100001 + N - 1));
    CHECK(near(findings[SKEW_FINDINGS_MAX - 1].value, 100001 + N - SKEW_FINDINGS_MAX));
}

int main(void)
{
    RUN(statistics_of_known_lists);
    RUN(six_partitions_of_like_size_and_unlike_demand);
    RUN(limits_are_the_keyspaces_own);
    RUN(one_hot_key_is_told_apart_and_salts_are_predicted);
    RUN(what_nodes_say_their_limit_of_is_judged_first);
    RUN(salts_that_share_an_owner_are_said_to);
    RUN(a_key_that_is_read_asks_for_replicas);
    RUN(a_lump_of_many_keys_is_split);
    RUN(a_node_with_too_many_small_ones_is_hot);
    RUN(capacities_are_what_counts);
    RUN(a_full_fleet_needs_capacity_not_moves);
    RUN(an_idle_fleet_is_left_alone);
    RUN(headroom_is_of_what_survives);
    RUN(the_floor_is_what_one_key_allows);
    RUN(the_worst_come_first_and_the_rest_is_counted);
    return tap_done();
}
