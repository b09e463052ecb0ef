/* SPDX-License-Identifier: Apache-2.0 */
/* What a follower takes over of its leader's heat map: the same, page by page and again and again,
 * never for what is newer here, whatever comes. */
#include "control/heats.h"

#include "base/mem.h"
#include "tests/harness/tap.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { KEYSPACES = 3, LETTERS = 26, PAGE_MAX = 64 << 20 };

static uint8_t letters[LETTERS];

static void set_columns(struct heat *h, uint64_t keyspace, uint32_t set, uint64_t now_ms)
{
    struct slice starts[LETTERS];
    struct heat_columns c = {.starts = starts, .partitions = 26};
    for (unsigned i = 0; i < LETTERS; i++) {
        letters[i] = (uint8_t)('a' + i);
        if (i == 0 || (set & 1U << i) != 0) {
            starts[c.count++] = slice_of(&letters[i], i > 0 ? 1 : 0);
        }
    }
    heat_set_columns(h, keyspace, &c, now_ms);
}

/* Some report or other. */
static void put(struct heat *h, struct tap_rand *r, uint64_t keyspace, uint64_t now_ms)
{
    static const char *const names[] = {"get", "put", "scan", "ok", "error", "acme"};
    struct load_part parts[2];
    struct load_sample s = {.interval_ms = 10000,
                            .has = 1U << LOAD_READS | 1U << LOAD_SIZE | 1U << LOAD_QUEUE_P99,
                            .parts = parts,
                            .part_count = (uint32_t)tap_rand_below(r, 3)};
    for (unsigned i = 0; i < 2; i++) {
        const char *operation = names[tap_rand_below(r, 3)], *outcome = names[3 + i];
        parts[i] = (struct load_part){slice_of(operation, strlen(operation)),
                                      slice_of(outcome, strlen(outcome)),
                                      slice_of(names[5], tap_rand_below(r, 2) * 4), 100 * i};
    }
    s.value[LOAD_READS] = 100 + tap_rand_below(r, 1000);
    s.value[LOAD_SIZE] = tap_rand_below(r, 1 << 20);
    s.value[LOAD_QUEUE_P99] = tap_rand_below(r, 100);
    if (heat_is_due(h, keyspace, now_ms)) {
        set_columns(h, keyspace, (uint32_t)tap_rand(r), now_ms);
    }
    unsigned start = (unsigned)tap_rand_below(r, LETTERS - 1);
    struct slice first = slice_of(&letters[start], 1), end = slice_of(&letters[start + 1], 1);
    heat_put(h, keyspace, first, tap_rand_below(r, 5) == 0 ? NULL : &end, &s, now_ms);
}

/* All pages from `since_ms` on; returns how many. */
static unsigned
carry(const struct heat *from, struct heat *to, uint64_t since_ms, size_t enough, uint64_t now_ms)
{
    struct heat_page ask = {.since_ms = since_ms}, got = {0};
    unsigned pages = 0;
    do {
        struct buf b;
        uint64_t clock;
        buf_init(&b, PAGE_MAX);
        heat_put_page(from, &ask, enough, now_ms, &b);
        CHECK(!b.overflow && heat_page_begin(slice_of(b.data, b.len), &clock) && clock == now_ms);
        CHECK(heat_take_page(to, slice_of(b.data, b.len), &got));
        ask.next = got.next;
        buf_close(&b);
        pages++;
    } while (ask.next != 0 && tap_failures() == 0);
    return pages;
}

static void expect_same_map(const struct heat_map *a, const struct heat_map *b)
{
    CHECK_U64(b->columns, a->columns);
    CHECK_U64(b->rows, a->rows);
    for (uint32_t c = 0; c < a->columns && tap_failures() == 0; c++) {
        CHECK(slice_eq(a->starts[c], b->starts[c]));
    }
    for (uint32_t i = 0; i < a->rows && tap_failures() == 0; i++) {
        CHECK(a->row[i].from_ms == b->row[i].from_ms && a->row[i].to_ms == b->row[i].to_ms &&
              a->row[i].heard_ms == b->row[i].heard_ms);
        for (uint32_t c = 0; c < a->columns; c++) {
            CHECK(a->row[i].values[c] == b->row[i].values[c]);
        }
    }
}

static void expect_same(const struct heat *a, const struct heat *b)
{
    static const unsigned resources[] = {HEAT_REQUESTS, LOAD_SIZE, LOAD_QUEUE_P99};
    for (uint64_t keyspace = 1; keyspace <= KEYSPACES; keyspace++) {
        for (unsigned k = 0; k < 3 + HEAT_NAMES; k++) {
            struct heat_by by = {.name = (enum heat_name)(k % 3)};
            struct heat_map x, y;
            bool any = k < 3 ? heat_read(a, keyspace, resources[k], 0, UINT64_MAX, &x)
                             : heat_read_by(a, keyspace, &by, 0, UINT64_MAX, &x);
            CHECK(any == (k < 3 ? heat_read(b, keyspace, resources[k], 0, UINT64_MAX, &y)
                                : heat_read_by(b, keyspace, &by, 0, UINT64_MAX, &y)));
            expect_same_map(&x, &y);
            heat_map_close(&x);
            heat_map_close(&y);
        }
    }
}

static void a_follower_has_the_same_all_the_time(void)
{
    const uint64_t first = tap_seed(300);
    for (uint64_t seed = 0; seed < 8 && tap_failures() == 0; seed++) {
        struct tap_rand r = {first + seed};
        struct heat *leader = heat_new(HEAT_BYTES_MAX), *follower = heat_new(HEAT_BYTES_MAX);
        uint64_t now = 9000 * HEAT_COARSE_MS + tap_rand_below(&r, HEAT_COARSE_MS), since = 0;
        for (unsigned i = 0; i < 40; i++) {
            for (unsigned k = 0; k < 30; k++) {
                now += tap_rand_below(&r, 8000);
                put(leader, &r, 1 + tap_rand_below(&r, KEYSPACES), now);
            }
            /* Only what changed since the last time comes. */
            unsigned pages = carry(leader, follower, since, 20000, now);
            CHECK(pages > 0);
            since = now;
            expect_same(leader, follower);
        }
        CHECK_U64(heat_bytes(follower), heat_bytes(leader));
        /* It leads now, and goes on; the old one follows. */
        for (unsigned k = 0; k < 100; k++) {
            now += tap_rand_below(&r, 8000);
            put(follower, &r, 1 + tap_rand_below(&r, KEYSPACES), now);
        }
        (void)carry(follower, leader, since, 20000, now);
        expect_same(follower, leader);
        heat_free(leader);
        heat_free(follower);
    }
}

/* A page ends after the row that makes it large enough, and what has not changed does not come. */
static void pages_are_bounded(void)
{
    struct tap_rand r = {tap_seed(301)};
    struct heat *leader = heat_new(HEAT_BYTES_MAX), *follower = heat_new(HEAT_BYTES_MAX);
    uint64_t now = 9000 * HEAT_COARSE_MS;
    for (unsigned i = 0; i < 600; i++) {
        now += 5000;
        put(leader, &r, 1, now);
    }
    struct heat_page page = {0};
    struct buf b;
    buf_init(&b, PAGE_MAX);
    heat_put_page(leader, &page, 20000, now, &b);
    CHECK(b.len > 19000 && b.len < 60000);
    CHECK(carry(leader, follower, 0, 1, now) > 50); /* a row each */
    expect_same(leader, follower);
    buf_reset(&b);
    page.since_ms = now + 1;
    heat_put_page(leader, &page, SIZE_MAX, now, &b);
    CHECK(b.len < 32);
    buf_close(&b);
    heat_free(leader);
    heat_free(follower);
}

/* What was heard here later stays, also of a minute that the other one has too. */
static void newer_rows_stay(void)
{
    struct tap_rand r = {tap_seed(302)};
    struct heat *old = heat_new(HEAT_BYTES_MAX), *new = heat_new(HEAT_BYTES_MAX),
                *copy = heat_new(HEAT_BYTES_MAX);
    uint64_t now = 9000 * HEAT_COARSE_MS;
    for (unsigned i = 0; i < 100; i++) {
        now += 5000;
        put(old, &r, 1, now);
    }
    (void)carry(old, new, 0, SIZE_MAX, now);
    for (unsigned i = 0; i < 100; i++) {
        now += 5000;
        put(new, &r, 1, now);
    }
    (void)carry(new, copy, 0, SIZE_MAX, now);
    (void)carry(old, new, 0, SIZE_MAX, now); /* one that does not know that it leads no more */
    expect_same(copy, new);
    heat_free(old);
    heat_free(new);
    heat_free(copy);
}

static void what_is_no_page_is_refused(void)
{
    struct tap_rand r = {tap_seed(303)};
    struct heat *leader = heat_new(HEAT_BYTES_MAX);
    struct heat_page page = {0};
    struct buf b;
    uint64_t now = 9000 * HEAT_COARSE_MS, refused = 0;
    for (unsigned i = 0; i < 60; i++) {
        now += 20000;
        put(leader, &r, 1 + i % 2, now);
    }
    buf_init(&b, PAGE_MAX);
    heat_put_page(leader, &page, SIZE_MAX, now, &b);
    for (size_t len = 0; len < b.len; len += 1 + len / 50) { /* cut off */
        uint8_t *copy = mem_alloc(len + 1); /* its own, so that a read beyond is seen */
        struct heat *h = heat_new(HEAT_BYTES_MAX);
        memcpy(copy, b.data, len);
        page = (struct heat_page){0};
        CHECK(!heat_take_page(h, slice_of(copy, len), &page));
        heat_free(h);
        mem_free(copy);
    }
    struct heat *h = heat_new(200000);
    for (unsigned i = 0; i < 3000; i++) { /* damaged: refused or not, it does no harm */
        uint8_t *copy = mem_dup(b.data, b.len);
        copy[tap_rand_below(&r, b.len)] ^= (uint8_t)(1 + tap_rand_below(&r, 255));
        page = (struct heat_page){0};
        refused += heat_take_page(h, slice_of(copy, b.len), &page) ? 0 : 1;
        CHECK(heat_bytes(h) <= 200000);
        put(h, &r, 1 + i % 2, now + i);
        mem_free(copy);
    }
    CHECK(refused > 100);
    for (uint64_t keyspace = 1; keyspace <= 2; keyspace++) {
        struct heat_map m;
        (void)heat_read(h, keyspace, HEAT_REQUESTS, 0, UINT64_MAX, &m);
        for (size_t i = 0; i < (size_t)m.rows * m.columns; i++) {
            CHECK(isfinite(m.values[i]) && m.values[i] >= 0);
        }
        heat_map_close(&m);
    }
    heat_free(h);
    heat_free(leader);
    buf_close(&b);
}

/* Servers' clocks: near ones are taken to be the same; another one is taken over with its rows. */
static void the_leaders_clock_counts(void)
{
    struct heats *leader = heats_new(), *near = heats_new(), *far = heats_new();
    struct heat_page page = {0};
    struct buf b;
    uint64_t clock = 0;
    heats_set_clock(leader, 5000000);
    heats_set_clock(near, 5000000 - 900 + 100); /* its monotonic clock is 900 ahead */
    heats_set_clock(far, 77);
    buf_init(&b, PAGE_MAX);
    heats_put_page(leader, &page, SIZE_MAX, 1000, &b);
    CHECK(heats_take_page(near, slice_of(b.data, b.len), 1900, &page, &clock));
    CHECK_U64(clock, 5001000);
    CHECK_U64(heats_clock(near, 1900), 5001100);
    CHECK(heats_take_page(far, slice_of(b.data, b.len), 9000000, &page, &clock));
    CHECK_U64(heats_clock(far, 9000000), 5001000); /* though its own was ahead by hours */
    CHECK_U64(heats_clock(far, 9000500), 5001500);
    CHECK(!heats_take_page(far, slice_of("HEAT", 4), 9000000, &page, &clock));
    buf_close(&b);
    heats_free(leader);
    heats_free(near);
    heats_free(far);
}

int main(void)
{
    RUN(a_follower_has_the_same_all_the_time);
    RUN(pages_are_bounded);
    RUN(newer_rows_stay);
    RUN(what_is_no_page_is_refused);
    RUN(the_leaders_clock_counts);
    return tap_done();
}
