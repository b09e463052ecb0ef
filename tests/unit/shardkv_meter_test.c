/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/shardkv/meter.h"
#include "tests/harness/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void ask(struct meter *m, uint64_t epoch, const char *key, bool write, bool served)
{
    struct meter_request r = meter_start();
    const struct meter_asked a = {.epoch = epoch, .key = key, .bytes = 10, .write = write};
    if (served) {
        meter_serve(&r);
    }
    meter_note(m, &r, &a);
}

/* From the beginning of an interval on. */
static void begin(struct meter *m, uint64_t epoch)
{
    struct meter_counts c;
    meter_epoch(m, epoch);
    CHECK(!meter_take(m, epoch, &c));
}

static void counts_what_was_asked(void)
{
    struct meter m;
    struct meter_counts c;
    meter_open(&m);
    begin(&m, 5);
    for (unsigned i = 0; i < 30; i++) {
        ask(&m, 5, "k", i % 3 == 0, true);
    }
    ask(&m, 5, "k", true, false); /* its turn never came */
    meter_copied(&m, 5, 4, 100);
    CHECK(meter_take(&m, 5, &c));
    CHECK_U64(c.reads, 20);
    CHECK_U64(c.writes, 14);
    CHECK_U64(c.read_bytes, 200);
    CHECK_U64(c.write_bytes, 200);
    CHECK_U64(c.key_count, 30);
    meter_free(&c);
    CHECK(meter_take(&m, 5, &c));
    CHECK_U64(c.reads + c.writes + c.read_bytes + c.write_bytes + c.key_count, 0);
    meter_close(&m);
}

static void an_interval_with_a_change_of_epoch_is_left_out(void)
{
    struct meter m;
    struct meter_counts c;
    meter_open(&m);
    begin(&m, 5);
    ask(&m, 5, "before", true, true);
    meter_epoch(&m, 9);
    ask(&m, 5, "late", true, true);
    ask(&m, 9, "after", true, true);
    CHECK(!meter_take(&m, 9, &c)); /* it begins here */
    ask(&m, 5, "late", true, true);
    ask(&m, 9, "after", true, true);
    CHECK(!meter_take(&m, 5, &c)); /* whoever looked at the epoch before it changed */
    ask(&m, 9, "after", true, true);
    meter_epoch(&m, 9); /* the same grant once more */
    CHECK(meter_take(&m, 9, &c));
    CHECK_U64(c.writes, 1);
    CHECK_STR(c.keys[0], "after");
    meter_free(&c);
    meter_epoch(&m, 0);
    CHECK(!meter_take(&m, 0, &c));
    meter_close(&m);
}

static void every_request_has_the_same_chance_to_be_sampled(void)
{
    enum { ROUNDS = 100, ASKED = 1000 };
    struct meter m;
    struct meter_counts c;
    uint64_t hot = 0, early = 0;
    meter_open(&m);
    m.random = 1;
    begin(&m, 5);
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < ASKED; i++) {
            char key[16];
            (void)snprintf(key, sizeof key, i % 4 == 0 ? "hot" : "%03u", i);
            ask(&m, 5, key, false, true);
        }
        CHECK(meter_take(&m, 5, &c));
        CHECK_U64(c.key_count, METER_KEYS);
        for (size_t i = 0; i < c.key_count; i++) {
            hot += strcmp(c.keys[i], "hot") == 0;
            early += strcmp(c.keys[i], "hot") != 0 && strcmp(c.keys[i], "500") < 0;
        }
        meter_free(&c);
    }
    /* A quarter, and half of the rest, of 6 400; 5 % are nine and seven standard deviations. */
    CHECK(hot > 1600 - 320 && hot < 1600 + 320);
    CHECK(early > 2400 - 320 && early < 2400 + 320);
    meter_close(&m);
}

static void times_are_told_to_within_a_quarter(void)
{
    for (uint64_t ms = 0; ms < 60000; ms = ms + 1 + ms / 7) {
        struct meter m;
        struct meter_counts c;
        meter_open(&m);
        begin(&m, 5);
        struct meter_request r = meter_start();
        meter_serve(&r);
        r.begun_ns = r.served_ns - ms * 1000000;
        const struct meter_asked a = {.epoch = 5, .key = "k"};
        meter_note(&m, &r, &a);
        CHECK(meter_take(&m, 5, &c));
        uint64_t told = meter_p99_ms(&c.queue);
        if (!CHECK(told >= ms && told <= ms + ms / 4)) {
            tap_note("%u ms are %u", (unsigned)ms, (unsigned)told);
        }
        CHECK(meter_p99_ms(&c.whole) >= told);
        meter_free(&c);
        meter_close(&m);
    }
}

static void one_in_a_hundred_may_take_longer(void)
{
    struct meter_times t = {.count = {[1] = 99, [10] = 1}}, more = {.count = {[10] = 1}};
    CHECK_U64(meter_p99_ms(&t), 1);
    meter_add_times(&t, &more);
    CHECK_U64(meter_p99_ms(&t), 10);
    t = (struct meter_times){.count = {0}};
    CHECK_U64(meter_p99_ms(&t), 0);
}

int main(void)
{
    RUN(counts_what_was_asked);
    RUN(an_interval_with_a_change_of_epoch_is_left_out);
    RUN(every_request_has_the_same_chance_to_be_sampled);
    RUN(times_are_told_to_within_a_quarter);
    RUN(one_in_a_hundred_may_take_longer);
    return tap_done();
}
