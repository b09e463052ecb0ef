/* SPDX-License-Identifier: Apache-2.0 */
/* The load of partitions: what counts, what travels, what is forgotten. */
#include "balancer/load.h"

#include "tests/harness/tap.h"

#include <string.h>

enum { S = 1000 };

static struct load *l;

static struct slice text(const char *s)
{
    return slice_of(s, strlen(s));
}

static enum load_outcome
put(uint64_t partition, uint64_t node, dir_rev epoch, uint64_t writes, uint64_t now_ms)
{
    struct load_sample s = {.partition = partition,
                            .node = node,
                            .epoch = epoch,
                            .interval_ms = 10 * S,
                            .has = 1U << LOAD_WRITES | 1U << LOAD_SIZE};
    s.value[LOAD_WRITES] = writes;
    s.value[LOAD_SIZE] = 100 * writes;
    return load_put(l, &s, now_ms);
}

static uint64_t writes_of(uint64_t partition, uint64_t node)
{
    const struct load_entry *e = load_get(l, partition, node);
    return e != NULL ? load_value(e, LOAD_WRITES, LOAD_MEAN) : UINT64_MAX;
}

static void begin(void)
{
    l = load_new(1000, 1 << 20);
}

static void a_sample_of_another_epoch_does_not_count(void)
{
    begin();
    CHECK_U64(put(7, 0, 42, 5000, 100 * S), LOAD_COUNTED);
    CHECK_U64(writes_of(7, 0), 500 * 1000);
    CHECK_U64(put(7, 0, 41, 90000, 101 * S), LOAD_STALE);
    /* The first one of a new epoch was measured in part before it. */
    CHECK_U64(put(7, 0, 50, 90000, 110 * S), LOAD_EARLY);
    CHECK_U64(put(7, 0, 50, 90000, 119 * S), LOAD_EARLY);
    CHECK_U64(put(7, 0, 42, 90000, 119 * S), LOAD_STALE);
    CHECK_U64(writes_of(7, 0), 500 * 1000);
    CHECK_U64(put(7, 0, 50, 5000, 120 * S), LOAD_COUNTED);
    CHECK_U64(writes_of(7, 0), 500 * 1000);
    load_free(l);
}

static void a_follower_has_a_load_of_its_own(void)
{
    begin();
    (void)put(7, 0, 42, 5000, 100 * S);
    (void)put(7, 3, 42, 1000, 100 * S);
    CHECK_U64(writes_of(7, 0), 500 * 1000);
    CHECK_U64(writes_of(7, 3), 100 * 1000);
    CHECK_U64(load_count(l), 2);
    load_drop_copy(l, 7, 3);
    CHECK(load_get(l, 7, 3) == NULL && load_get(l, 7, 0) != NULL);
    (void)put(7, 3, 42, 1000, 100 * S);
    load_drop(l, 7);
    CHECK_U64(load_count(l), 0);
    load_free(l);
}

static void the_fast_mean_may_be_faster(void)
{
    begin();
    load_set_fast(l, 5 * S);
    (void)put(7, 0, 42, 1000, 10 * S);
    (void)put(7, 0, 42, 0, 15 * S);
    /* The last 5 s weigh 1 - 1/2 of 1 - 1/8. */
    uint64_t fast = load_value(load_get(l, 7, 0), LOAD_WRITES, LOAD_FAST);
    load_set_fast(l, LOAD_HALF_LIFE_FAST_MS);
    (void)put(8, 0, 42, 1000, 10 * S);
    (void)put(8, 0, 42, 0, 15 * S);
    uint64_t slow = load_value(load_get(l, 8, 0), LOAD_WRITES, LOAD_FAST);
    CHECK(fast > 42000 && fast < 43700);
    CHECK(slow > 60000 && slow < 61500);
    load_free(l);
}

static void unknown_is_not_zero(void)
{
    begin();
    for (uint64_t t = 10; t <= 50; t += 10) {
        (void)put(7, 0, 42, 5000, t * S);
    }
    CHECK(!load_known(load_get(l, 7, 0), 50 * S)); /* 50 s are not a minute */
    CHECK(load_known_of(load_get(l, 7, 0), 50 * S, 50 * S));
    CHECK(!load_known_of(load_get(l, 7, 0), 51 * S, 50 * S));
    CHECK(!load_known_of(load_get(l, 7, 0), 600 * S, 50 * S));
    CHECK(load_horizon_of(20000) == LOAD_FAST && load_horizon_of(119999) == LOAD_FAST);
    CHECK(load_horizon_of(120000) == LOAD_MEAN && load_horizon_of(600000) == LOAD_SLOW);
    (void)put(7, 0, 42, 5000, 60 * S);
    CHECK(load_known(load_get(l, 7, 0), 60 * S));
    CHECK(load_known(load_get(l, 7, 0), 359 * S));
    CHECK(!load_known(load_get(l, 7, 0), 360 * S));
    CHECK_U64(writes_of(7, 0), 500 * 1000);
    load_free(l);
}

static void a_full_table_says_so(void)
{
    l = load_new(3, 0);
    for (uint64_t p = 1; p <= 3; p++) {
        CHECK_U64(put(p, 0, 1, 10, S), LOAD_COUNTED);
    }
    CHECK_U64(put(4, 0, 1, 10, S), LOAD_FULL);
    CHECK_U64(put(3, 0, 1, 10, 11 * S), LOAD_COUNTED);
    load_drop(l, 2);
    CHECK_U64(put(4, 0, 1, 10, S), LOAD_COUNTED);
    load_free(l);
}

static enum load_outcome
put_keys(uint64_t partition, const char *first, uint32_t n, uint64_t now_ms)
{
    char names[64][8];
    struct load_key keys[64];
    for (uint32_t i = 0; i < n; i++) {
        memcpy(names[i], first, 1);
        names[i][1] = (char)('0' + i / 10);
        names[i][2] = (char)('0' + i % 10);
        keys[i] = (struct load_key){.key = slice_of(names[i], 3), .weight = 10};
    }
    struct load_sample s = {.partition = partition,
                            .epoch = 1,
                            .interval_ms = S,
                            .has = 1U << LOAD_READS,
                            .keys = keys,
                            .key_count = n};
    s.value[LOAD_READS] = 10 * n;
    return load_put(l, &s, now_ms);
}

static void key_samples_have_a_bound_and_say_when_it_is_reached(void)
{
    l = load_new(1000, 6000);
    CHECK_U64(put_keys(1, "a", 20, S), LOAD_COUNTED);
    uint64_t one = load_sketch_bytes(l);
    CHECK(one > 1000 && one <= 6000);
    unsigned dropped = 0;
    for (uint64_t p = 2; p < 20; p++) {
        dropped += put_keys(p, "a", 20, S) == LOAD_KEYS_DROPPED;
    }
    CHECK(dropped > 10);
    CHECK(load_sketch_bytes(l) <= 6000 + 1024);
    CHECK_U64(load_value(load_get(l, 19, 0), LOAD_READS, LOAD_FAST), 200 * 1000);
    for (uint64_t p = 1; p < 20; p++) {
        load_drop(l, p);
    }
    CHECK_U64(load_sketch_bytes(l), 0);
    load_free(l);
}

static void children_get_their_share_and_a_merge_adds_up(void)
{
    begin();
    (void)put(1, 0, 1, 8000, 100 * S);
    (void)put_keys(1, "a", 30, 101 * S);
    (void)put_keys(1, "m", 10, 102 * S);
    const struct load_entry *parent = load_get(l, 1, 0);
    struct slice m = text("m");
    uint32_t left = load_share(parent, text(""), &m, 1), right = load_share(parent, m, NULL, 1);
    CHECK(left + right >= 999999 && left + right <= 1000000);
    CHECK(left > 650000 && left < 850000); /* 3/4, sd .027 */
    load_inherit(l, 2, 9, parent, left, 110 * S);
    load_inherit(l, 3, 9, parent, 1000000 - left, 110 * S);
    uint64_t whole = writes_of(1, 0);
    CHECK(writes_of(2, 0) > whole * 6 / 10 && writes_of(2, 0) < whole * 9 / 10);
    CHECK(writes_of(2, 0) + writes_of(3, 0) - whole + 2 <= 4);
    /* What was measured before the split does not count for a child. */
    CHECK_U64(put(2, 0, 9, 1, 112 * S), LOAD_EARLY);
    CHECK_U64(put(2, 0, 9, 1, 120 * S), LOAD_COUNTED);
    load_drop(l, 2);
    load_inherit(l, 2, 9, parent, left, 110 * S);
    load_inherit(l, 4, 12, load_get(l, 2, 0), 1000000, 130 * S);
    load_inherit(l, 4, 12, load_get(l, 3, 0), 1000000, 130 * S);
    CHECK(writes_of(4, 0) - whole + 2 <= 4);
    CHECK_U64(load_value(load_get(l, 4, 0), LOAD_SIZE, LOAD_FAST), 800000);
    /* Without key samples the caller's guess holds. */
    (void)put(20, 0, 1, 8000, 100 * S);
    CHECK_U64(load_share(load_get(l, 20, 0), text(""), &m, 333333), 333333);
    load_free(l);
}

static void growth_is_the_slope(void)
{
    begin();
    CHECK_U64(put(1, 0, 1, 1000, 10 * S), LOAD_COUNTED);
    CHECK(load_growth(load_get(l, 1, 0), LOAD_SIZE) == 0); /* one point has no slope */
    /* 100 bytes a report, each 10 s: 864 000 a day. */
    for (uint64_t i = 1; i <= 1000; i++) {
        (void)put(1, 0, 1, 1000 + i, (10 + 10 * i) * S);
    }
    int64_t a_day = load_growth(load_get(l, 1, 0), LOAD_SIZE);
    tap_note("%lld a day", (long long)a_day);
    CHECK(a_day > 860000 && a_day < 868000);
    for (uint64_t i = 1; i <= 1000; i++) {
        (void)put(2, 0, 1, 5000 - i, (10 + 10 * i) * S);
    }
    a_day = load_growth(load_get(l, 2, 0), LOAD_SIZE);
    CHECK(a_day < -860000 && a_day > -868000);
    load_free(l);
}

static void largest_values_do_not_wrap(void)
{
    begin();
    for (unsigned i = 0; i < 100; i++) {
        struct load_sample s = {
            .partition = 1, .epoch = 1, .interval_ms = 600 * S, .has = (1U << LOAD_RESOURCES) - 1};
        for (unsigned r = 0; r < LOAD_RESOURCES; r++) {
            uint64_t most = load_limit((enum load_resource)r);
            s.value[r] = load_is_count((enum load_resource)r) ? 600 * most : most;
        }
        CHECK_U64(load_put(l, &s, (i + 1) * 600 * S), LOAD_COUNTED);
    }
    for (unsigned r = 0; r < LOAD_RESOURCES; r++) {
        uint64_t most = load_limit((enum load_resource)r) * (r < LOAD_SIZE ? 1000 : 1);
        uint64_t got = load_value(load_get(l, 1, 0), (enum load_resource)r, LOAD_SLOW);
        CHECK(got >= most - most / 1000000 && got <= most + most / 1000000);
    }
    load_free(l);
}

int main(void)
{
    RUN(a_sample_of_another_epoch_does_not_count);
    RUN(a_follower_has_a_load_of_its_own);
    RUN(the_fast_mean_may_be_faster);
    RUN(unknown_is_not_zero);
    RUN(a_full_table_says_so);
    RUN(key_samples_have_a_bound_and_say_when_it_is_reached);
    RUN(children_get_their_share_and_a_merge_adds_up);
    RUN(growth_is_the_slope);
    RUN(largest_values_do_not_wrap);
    return tap_done();
}
