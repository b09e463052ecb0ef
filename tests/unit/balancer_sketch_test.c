/* SPDX-License-Identifier: Apache-2.0 */
/* Key samples: where to split, which key is hot, whether the load runs ahead. */
#include "balancer/sketch.h"

#include "tests/harness/tap.h"

#include <stdio.h>
#include <string.h>

enum { ROOM = 1 << 20 };

static struct sketch *s;

static struct slice text(const char *t)
{
    return slice_of(t, strlen(t));
}

static void add(const char *key, uint64_t weight, uint64_t now_ms)
{
    CHECK(sketch_add(s, text(key), NULL, weight, ROOM, now_ms));
}

static void add_range(const char *key, const char *end, uint64_t weight)
{
    struct slice last = text(end);
    CHECK(sketch_add(s, text(key), &last, weight, ROOM, 0));
}

/* k000 … of `n` keys, one each, `rounds` times. */
static void add_even(unsigned n, unsigned rounds)
{
    for (unsigned i = 0; i < n * rounds; i++) {
        char key[16];
        (void)snprintf(key, sizeof key, "k%03u", i % n);
        add(key, 1, 0);
    }
}

static bool is(struct slice got, const char *want)
{
    return slice_eq(got, text(want));
}

static void too_little_evidence_concludes_nothing(void)
{
    struct sketch_top top;
    s = sketch_new(1, 0);
    CHECK(sketch_split(s, text("")).verdict == SKETCH_UNKNOWN);
    CHECK_U64(sketch_share(s, text(""), NULL, 77), 77);
    add("a", SKETCH_EVIDENCE_MIN - 1, 0);
    CHECK(sketch_split(s, text("")).verdict == SKETCH_UNKNOWN && !sketch_top(s, &top));
    add("b", 1, 0);
    CHECK(sketch_split(s, text("")).verdict != SKETCH_UNKNOWN && sketch_top(s, &top));
    sketch_free(s);
}

static void even_load_is_split_in_the_middle(void)
{
    s = sketch_new(2, 0);
    add_even(100, 50);
    struct sketch_split split = sketch_split(s, text(""));
    tap_note("at %.*s", (int)split.at.len, (const char *)split.at.data);
    CHECK(split.verdict == SKETCH_BALANCED);
    CHECK(slice_cmp(split.at, text("k035")) > 0 && slice_cmp(split.at, text("k065")) < 0);
    CHECK(split.left_ppm > 450000 && split.left_ppm < 550000 && split.contained_ppm == 0);
    CHECK_U64(split.left_ppm + split.right_ppm, 1000000);
    sketch_free(s);
}

static void one_key_with_most_of_it_is_isolated(void)
{
    struct sketch_top top;
    s = sketch_new(3, 0);
    add_even(100, 4);
    add("k050", 800, 0);
    struct sketch_split split = sketch_split(s, text(""));
    CHECK(split.verdict == SKETCH_ISOLATE && is(split.at, "k050"));
    CHECK(sketch_top(s, &top) && is(top.key, "k050"));
    CHECK(top.share_ppm > 570000 && top.share_ppm < 770000); /* 2/3, sd .03 */
    CHECK(top.share_low_ppm < top.share_ppm && top.share_low_ppm > top.share_ppm - 70000);
    sketch_free(s);
    /* At the partition's start there is nothing left of it. */
    s = sketch_new(4, 0);
    add("m", 500, 0);
    split = sketch_split(s, text("m"));
    CHECK(split.verdict == SKETCH_ISOLATE && is(split.at, "m"));
    sketch_free(s);
}

static void ranges_that_any_split_would_cut_are_told(void)
{
    s = sketch_new(5, 0);
    add_range("b", "y", 900);
    add("m", 100, 0);
    struct sketch_split split = sketch_split(s, text(""));
    CHECK(split.verdict == SKETCH_CONTAINED);
    CHECK(split.contained_ppm > 800000);
    sketch_free(s);
    /* Ranges on either side of a border don't hold it up. */
    s = sketch_new(6, 0);
    add_range("b", "d", 500);
    add_range("p", "r", 500);
    split = sketch_split(s, text(""));
    CHECK(split.verdict == SKETCH_BALANCED && is(split.at, "p") && split.contained_ppm == 0);
    struct slice m = text("m");
    uint32_t share = sketch_share(s, text(""), &m, 0);
    CHECK(share > 380000 && share < 620000);
    struct slice c = text("c");
    CHECK(sketch_share(s, text("b"), &c, 0) * 2 >= share - 2);
    sketch_free(s);
}

static void a_moving_edge_is_a_frontier(void)
{
    uint64_t now = 0, next = 1000;
    s = sketch_new(7, 0);
    for (unsigned window = 0; window < 6; window++) {
        CHECK(sketch_frontier(s) == (window >= 5 ? SKETCH_RISING : SKETCH_STILL));
        for (unsigned i = 0; i < 100; i++) {
            char key[16];
            (void)snprintf(key, sizeof key, "t%06u", (unsigned)next++);
            add(key, 2, now);
            add("t000100", 1, now);
        }
        now += SKETCH_WINDOW_MS;
    }
    for (unsigned i = 0; i < 100; i++) {
        add("t000100", 2, now);
    }
    add("t000100", 2, now + SKETCH_WINDOW_MS);
    CHECK(sketch_frontier(s) == SKETCH_STILL);
    sketch_free(s);
    s = sketch_new(8, 0);
    for (unsigned window = 0; window < 6; window++) {
        for (unsigned i = 0; i < 100; i++) {
            char key[16];
            (void)snprintf(key, sizeof key, "t%06u", (unsigned)(900000 - next++));
            add(key, 2, now);
        }
        now += SKETCH_WINDOW_MS;
    }
    CHECK(sketch_frontier(s) == SKETCH_FALLING);
    sketch_free(s);
}

static void the_load_of_today_displaces_that_of_before(void)
{
    struct slice m = text("m");
    s = sketch_new(9, 0);
    for (unsigned i = 0; i < 1000; i++) {
        add("a", 1, 0);
    }
    for (unsigned window = 1; window <= 8; window++) {
        for (unsigned i = 0; i < 1000; i++) {
            add("z", 1, window * SKETCH_WINDOW_MS);
        }
    }
    CHECK(sketch_share(s, text(""), &m, 0) < 20000);
    sketch_free(s);
}

static void memory_is_bounded(void)
{
    s = sketch_new(10, 0);
    unsigned refused = 0;
    for (unsigned i = 0; i < 2000; i++) {
        char key[1032];
        memset(key, 'k', sizeof key);
        (void)snprintf(key, 16, "%08u", i);
        refused += !sketch_add(s, slice_of(key, sizeof key), NULL, 100, ROOM, 0);
        CHECK(sketch_bytes(s) < SKETCH_BYTES_MAX + 16384);
        if (tap_failures() > 0) {
            break;
        }
    }
    CHECK(refused > 0 && refused < 2000);
    CHECK(!sketch_add(s, text("x"), NULL, 1, 3, 0));
    CHECK(sketch_add(s, text("x"), NULL, UINT64_C(1) << 40, ROOM, 0) || refused > 0);
    sketch_free(s);
}

int main(void)
{
    RUN(too_little_evidence_concludes_nothing);
    RUN(even_load_is_split_in_the_middle);
    RUN(one_key_with_most_of_it_is_isolated);
    RUN(ranges_that_any_split_would_cut_are_told);
    RUN(a_moving_edge_is_a_frontier);
    RUN(the_load_of_today_displaces_that_of_before);
    RUN(memory_is_bounded);
    return tap_done();
}
