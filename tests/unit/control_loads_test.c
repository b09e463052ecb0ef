/* SPDX-License-Identifier: Apache-2.0 */
/* Loads for all threads: reports by node, and many threads at once. */
#include "control/loads.h"

#include "tests/harness/tap.h"

#include <pthread.h>

enum { THREADS = 4, PUTS = 20000, PARTITIONS = 300 };

static struct loads *l;

static bool begin(uint64_t node, dir_rev session, uint64_t seq, uint64_t at_ms)
{
    struct loads_node report = {.node = node, .session = session, .seq = seq, .at_ms = at_ms};
    return loads_begin(l, &report);
}

static void a_report_counts_once(void)
{
    struct loads_node seen;
    l = loads_new();
    CHECK(!loads_node(l, 5, &seen));
    CHECK(begin(5, 40, 1, 10) && begin(3, 41, 1, 10) && begin(9, 42, 7, 10));
    CHECK(!begin(5, 40, 1, 20));
    CHECK(loads_node(l, 5, &seen) && seen.at_ms == 10);
    CHECK(begin(5, 40, 2, 30) && !begin(5, 40, 1, 40));
    CHECK(begin(5, 50, 1, 50)); /* another session counts anew */
    CHECK(begin(5, 50, 0, 60)); /* without a number there is nothing to tell by */
    CHECK(loads_node(l, 5, &seen) && seen.session == 50);
    CHECK(loads_node(l, 3, &seen) && seen.session == 41);
    CHECK(loads_node(l, 9, &seen) && seen.session == 42);
    loads_free(l);
}

/* The batches of one report: one of them has the figures, and all or none a number. */
static void a_batch_leaves_what_it_does_not_say(void)
{
    struct loads_node seen, with = {.node = 5, .session = 40, .seq = 7, .at_ms = 10};
    l = loads_new();
    with.has = 1U << LOADS_CPU;
    with.figure[LOADS_CPU] = 250;
    CHECK(loads_begin(l, &with));
    CHECK(begin(5, 40, 8, 20));
    CHECK(loads_node(l, 5, &seen) && seen.seq == 8);
    CHECK(seen.at_ms == 10 && seen.has == 1U << LOADS_CPU && seen.figure[LOADS_CPU] == 250);
    CHECK(begin(5, 40, 0, 30));
    CHECK(!begin(5, 40, 8, 40) && begin(5, 40, 9, 50));
    CHECK(begin(5, 41, 1, 60)); /* what its node said before it restarted is of no use */
    CHECK(loads_node(l, 5, &seen) && seen.has == 0 && seen.at_ms == 60);
    loads_free(l);
}

static void a_start_takes_what_was_measured(void)
{
    Cadastre__OperationStart m;
    struct load_sample s = {.partition = 7,
                            .epoch = 1,
                            .interval_ms = 1000,
                            .has = 1U << LOAD_WRITE_BYTES | 1U << LOAD_SIZE};
    l = loads_new();
    s.value[LOAD_WRITE_BYTES] = 5000;
    s.value[LOAD_SIZE] = 123456;
    (void)loads_put(l, &s, 1000);
    s.value[LOAD_SIZE] = 234567;
    CHECK_U64(loads_put(l, &s, 3000), LOAD_COUNTED);
    cadastre__operation_start__init(&m);
    m.partition = 8;
    loads_fill_start(l, &m);
    CHECK(!m.has_size_bytes && !m.has_live_bytes_per_s); /* nothing was heard of it */
    m.partition = 7;
    loads_fill_start(l, &m);
    CHECK(m.has_size_bytes && m.has_live_bytes_per_s);
    CHECK(m.size_bytes > 230000 && m.size_bytes < 240000);
    CHECK(m.live_bytes_per_s > 4900 && m.live_bytes_per_s < 5100);
    m.size_bytes = m.live_bytes_per_s = 1; /* whoever asks knows better */
    loads_fill_start(l, &m);
    CHECK(m.size_bytes == 1 && m.live_bytes_per_s == 1);
    cadastre__operation_start__init(&m);
    m.partition = 7;
    m.class_ = DIR_CLASS_UNDER_REPLICATED;
    m.has_range = true;
    loads_fill_start(l, &m);
    CHECK(!m.has_size_bytes && !m.has_live_bytes_per_s);
    loads_free(l);
}

static void *put_many(void *arg)
{
    struct tap_rand r = {*(const uint64_t *)arg};
    struct load_key key = {.key = slice_of("k", 1), .weight = 5};
    for (uint64_t i = 0; i < PUTS; i++) {
        struct load_sample s = {.partition = 1 + tap_rand_below(&r, PARTITIONS),
                                .node = tap_rand_below(&r, 2),
                                .epoch = 1,
                                .interval_ms = 1000,
                                .has = 1U << LOAD_WRITES,
                                .keys = &key,
                                .key_count = 1};
        s.value[LOAD_WRITES] = 500;
        (void)loads_put(l, &s, 1000 + i);
    }
    return NULL;
}

static void see(void *arg, const struct load_entry *e)
{
    uint64_t *seen = arg;
    *seen += load_value(e, LOAD_WRITES, LOAD_MEAN) == 500000 ? 1 : 0;
}

static void threads_do_not_meet(void)
{
    pthread_t threads[THREADS];
    uint64_t seeds[THREADS], seen = 0;
    struct load_entry e;
    l = loads_new();
    for (unsigned i = 0; i < THREADS; i++) {
        seeds[i] = i;
        CHECK(pthread_create(&threads[i], NULL, put_many, &seeds[i]) == 0);
    }
    for (unsigned i = 0; i < 100; i++) {
        (void)loads_get(l, 1 + i, 0, &e);
        seen = 0;
        loads_each(l, see, &seen);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    seen = 0;
    loads_each(l, see, &seen);
    CHECK_U64(loads_count(l), 2 * PARTITIONS);
    CHECK_U64(seen, 2 * PARTITIONS);
    loads_free(l);
}

/* The view of another snapshot has none of them. */
static void what_a_view_does_not_have_is_forgotten(void)
{
    const struct dir_view empty = {.revision = 1};
    struct load_sample s = {.epoch = 1, .interval_ms = 1000};
    l = loads_new();
    for (s.partition = 1; s.partition <= 1000; s.partition++) {
        s.node = s.partition % 3;
        CHECK(loads_put(l, &s, 1000) == LOAD_COUNTED);
    }
    CHECK_U64(loads_count(l), 1000);
    loads_sweep(l, &empty);
    CHECK_U64(loads_count(l), 0);
    loads_free(l);
}

int main(void)
{
    RUN(a_report_counts_once);
    RUN(a_batch_leaves_what_it_does_not_say);
    RUN(a_start_takes_what_was_measured);
    RUN(threads_do_not_meet);
    RUN(what_a_view_does_not_have_is_forgotten);
    return tap_done();
}
