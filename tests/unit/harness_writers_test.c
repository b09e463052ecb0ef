/* SPDX-License-Identifier: Apache-2.0 */
/* The writer-interval checker on histories made by hand: each kind of violation is seeded once, and
 * nothing is found where there is none. */
#include "tests/harness/tap.h"
#include "tests/harness/writers.h"

#include <string.h>

enum { EVENTS_MAX = 8 };

#define ACT(n, e, t)                                                                               \
    {                                                                                              \
        .kind = WRITERS_ACTED, .node = (n), .epoch = (e), .time = (t), .key = 1                    \
    }
#define TAKE(n, e, s, i, t)                                                                        \
    {                                                                                              \
        .kind = WRITERS_ACCEPTED, .node = (n), .epoch = (e), .sequence = (s), .id = (i),           \
        .time = (t), .key = 1                                                                      \
    }
#define ACK(e, i, t)                                                                               \
    {                                                                                              \
        .kind = WRITERS_ACKNOWLEDGED, .epoch = (e), .id = (i), .time = (t), .key = 1               \
    }
#define REFUSE(n, e, i, t)                                                                         \
    {                                                                                              \
        .kind = WRITERS_REFUSED, .node = (n), .epoch = (e), .id = (i), .time = (t), .key = 1       \
    }
#define HAVE(i)                                                                                    \
    {                                                                                              \
        .kind = WRITERS_FINAL, .id = (i), .key = 1                                                 \
    }

enum { NOTHING = WRITERS_FLAW_COUNT };

struct row {
    const char *name;
    unsigned want; /* the one flaw, or NOTHING */
    bool partial, no_final;
    struct writers_event events[EVENTS_MAX];
};

static const struct row rows[] = {
    {"a move",
     NOTHING,
     false,
     false,
     {TAKE(1, 1, 1, 10, 100), ACK(1, 10, 110), REFUSE(1, 1, 11, 120), ACT(2, 2, 130),
      TAKE(2, 2, 2, 11, 140), ACK(2, 11, 150), HAVE(10), HAVE(11)}},
    {"an unknown outcome that took effect",
     NOTHING,
     false,
     false,
     {TAKE(1, 1, 1, 10, 100), HAVE(10)}},
    {"an unknown outcome that did not", NOTHING, false, false, {TAKE(1, 1, 1, 10, 100)}},
    {"accepted again after it was not known",
     NOTHING,
     false,
     false,
     {TAKE(1, 1, 1, 10, 100), TAKE(2, 2, 1, 10, 200), ACK(2, 10, 210), HAVE(10)}},
    {"intervals that touch",
     NOTHING,
     false,
     false,
     {TAKE(1, 1, 1, 10, 100), TAKE(2, 2, 2, 11, 100)}},
    {"another key's epochs",
     NOTHING,
     false,
     false,
     {TAKE(1, 9, 1, 10, 100),
      {.kind = WRITERS_ACCEPTED, .node = 2, .epoch = 2, .id = 11, .time = 50, .key = 2}}},
    {"not certain",
     NOTHING,
     false,
     false,
     {{.kind = WRITERS_ACCEPTED,
       .node = 1,
       .epoch = 1,
       .id = 1,
       .since = 90,
       .time = 120,
       .key = 1},
      TAKE(2, 2, 2, 11, 100)}},
    {"the old node goes on",
     WRITERS_TWO_WRITERS,
     false,
     false,
     {TAKE(1, 1, 1, 10, 100), TAKE(2, 2, 2, 11, 200), TAKE(1, 1, 3, 12, 201)}},
    {"a later epoch first",
     WRITERS_TWO_WRITERS,
     false,
     false,
     {TAKE(2, 2, 1, 10, 100), TAKE(1, 1, 1, 11, 300)}},
    {"inside of another's interval",
     WRITERS_TWO_WRITERS,
     false,
     false,
     {TAKE(1, 1, 1, 10, 100), TAKE(1, 1, 2, 11, 400), TAKE(2, 2, 3, 12, 200)}},
    {"two epochs apart",
     WRITERS_TWO_WRITERS,
     false,
     false,
     {TAKE(1, 1, 1, 10, 500), TAKE(2, 2, 2, 11, 600), TAKE(3, 5, 3, 12, 499)}},
    {"stale after the grant was acted upon",
     WRITERS_TWO_WRITERS,
     false,
     false,
     {ACT(2, 2, 150), TAKE(1, 1, 1, 10, 160)}},
    {"stale at the same node",
     WRITERS_STALE_EPOCH,
     false,
     false,
     {ACT(1, 2, 150), TAKE(1, 1, 1, 10, 160)}},
    {"one epoch, two nodes",
     WRITERS_EPOCH_SHARED,
     false,
     false,
     {TAKE(1, 1, 1, 10, 100), TAKE(2, 1, 2, 11, 200)}},
    {"one epoch, two sessions",
     WRITERS_EPOCH_SHARED,
     false,
     false,
     {{.kind = WRITERS_ACCEPTED, .node = 1, .session = 1, .epoch = 1, .id = 1, .time = 1, .key = 1},
      {.kind = WRITERS_ACTED, .node = 1, .session = 2, .epoch = 1, .time = 2, .key = 1}}},
    {"a sequence number twice",
     WRITERS_SEQUENCE_TWICE,
     false,
     false,
     {TAKE(1, 1, 7, 10, 100), TAKE(1, 1, 7, 11, 110)}},
    {"a sequence number back in time",
     WRITERS_SEQUENCE_ORDER,
     false,
     false,
     {TAKE(1, 1, 7, 10, 100), TAKE(1, 1, 6, 11, 110)}},
    {"acknowledged out of nothing", WRITERS_ACK_UNACCEPTED, false, true, {ACK(1, 10, 100)}},
    {"acknowledged before it was accepted",
     WRITERS_ACK_UNACCEPTED,
     false,
     true,
     {ACK(1, 10, 100), TAKE(1, 1, 1, 10, 101)}},
    {"acknowledged under a later grant",
     WRITERS_ACK_OTHER_EPOCH,
     false,
     true,
     {TAKE(1, 1, 1, 10, 100), ACK(2, 10, 200)}},
    {"lost", WRITERS_LOST, false, false, {TAKE(1, 1, 1, 10, 100), ACK(1, 10, 110)}},
    {"lost, and the node wrote nothing down", WRITERS_LOST, true, false, {ACK(1, 10, 110)}},
    {"nothing to look for it in", NOTHING, false, true, {TAKE(1, 1, 1, 10, 100), ACK(1, 10, 110)}},
    {"there twice",
     WRITERS_APPLIED_TWICE,
     false,
     false,
     {TAKE(1, 1, 1, 10, 100), HAVE(10), HAVE(10)}},
    {"a refused write is there", WRITERS_GHOST, false, false, {REFUSE(1, 1, 10, 100), HAVE(10)}},
    {"a write out of nothing", WRITERS_GHOST, false, false, {HAVE(10)}},
    {"not written down", NOTHING, true, false, {ACK(1, 10, 100), HAVE(10)}},
};

struct seen {
    size_t flaws[WRITERS_FLAW_COUNT], all;
};

static void see(void *arg, enum writers_flaw flaw, size_t a, size_t b)
{
    struct seen *seen = arg;
    (void)a;
    (void)b;
    seen->flaws[flaw]++;
    seen->all++;
}

static void each_violation_is_found(void)
{
    bool covered[WRITERS_FLAW_COUNT + 1] = {false};
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        const struct row *row = &rows[r];
        struct writers w;
        struct seen seen = {.all = 0};
        writers_init(&w);
        w.partial = row->partial;
        w.no_final = row->no_final;
        for (size_t i = 0; i < EVENTS_MAX && row->events[i].key != 0; i++) {
            writers_add(&w, &row->events[i]);
        }
        tap_note("history: %s", row->name);
        CHECK_U64(writers_check(&w, see, &seen), row->want == NOTHING ? 0 : 1);
        CHECK(row->want == NOTHING || seen.flaws[row->want] == 1);
        CHECK_U64(writers_check(&w, NULL, NULL), seen.all);
        covered[row->want] = true;
        writers_close(&w);
    }
    for (unsigned flaw = 0; flaw < WRITERS_FLAW_COUNT; flaw++) {
        tap_note("flaw %s", writers_flaw_text((enum writers_flaw)flaw));
        CHECK(covered[flaw]);
    }
}

/* A long correct history of many keys, made in shuffled order, and one bad event hidden in it. */
static void long_histories_are_judged_alike(void)
{
    enum { KEYS = 40, EPOCHS = 20, WRITES = 25 };
    struct tap_rand rand = {.state = tap_seed(7)};
    for (unsigned bad = 0; bad < 2; bad++) {
        struct writers w;
        uint64_t id = 0;
        writers_init(&w);
        for (uint64_t n = 0; n < (uint64_t)KEYS * EPOCHS * WRITES; n++) {
            uint64_t key = n % KEYS, at = n / KEYS, epoch = 1 + at / WRITES;
            struct writers_event e = {.kind = WRITERS_ACCEPTED,
                                      .node = 1 + (epoch + key) % 3,
                                      .key = 1 + key,
                                      .epoch = epoch,
                                      .sequence = 1 + at,
                                      .id = ++id,
                                      .time = 1000 + at * 10 + tap_rand_below(&rand, 9)};
            writers_add(&w, &e);
            if (tap_rand_below(&rand, 2) == 0) {
                e.kind = WRITERS_ACKNOWLEDGED;
                e.time += tap_rand_below(&rand, 100);
                writers_add(&w, &e);
            }
            e.kind = WRITERS_FINAL;
            writers_add(&w, &e);
        }
        for (size_t i = w.count - 1; i > 0; i--) {
            size_t j = tap_rand_below(&rand, i + 1);
            struct writers_event swap = w.events[i];
            w.events[i] = w.events[j];
            w.events[j] = swap;
        }
        struct writers_counts counts = writers_count(&w);
        CHECK_U64(counts.accepted, (uint64_t)KEYS * EPOCHS * WRITES);
        CHECK_U64(counts.keys, KEYS);
        CHECK_U64(counts.most_epochs, EPOCHS);
        if (bad == 1) {
            struct writers_event late = {.kind = WRITERS_ACCEPTED,
                                         .node = 1 + (EPOCHS - 1 + 5) % 3,
                                         .key = 6,
                                         .epoch = EPOCHS - 1,
                                         .id = ++id,
                                         .time = 1000 + (uint64_t)(EPOCHS - 1) * WRITES * 10 + 20};
            writers_add(&w, &late);
        }
        struct seen seen = {.all = 0};
        CHECK_U64(writers_check(&w, see, &seen), bad);
        CHECK_U64(seen.flaws[WRITERS_TWO_WRITERS], bad);
        writers_close(&w);
    }
}

static void an_empty_history_proves_nothing(void)
{
    struct writers w;
    writers_init(&w);
    CHECK_U64(writers_check(&w, NULL, NULL), 0);
    CHECK_U64(writers_count(&w).accepted, 0);
    writers_close(&w);
}

int main(void)
{
    RUN(each_violation_is_found);
    RUN(long_histories_are_judged_alike);
    RUN(an_empty_history_proves_nothing);
    return tap_done();
}
