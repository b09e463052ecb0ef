/* SPDX-License-Identifier: Apache-2.0 */
/* Decayed means and key samples against naive ones in floating point; the table against a plain
 * array. */
#include "balancer/ewma.h"
#include "balancer/load.h"

#include "tests/harness/tap.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void powers_are_within_2_to_the_minus_24(void)
{
    struct tap_rand r = {tap_seed(11)};
    for (unsigned i = 0; i < 20000; i++) {
        uint64_t half = 1 + tap_rand_below(&r, i % 2 == 0 ? 1000 : 30000000);
        uint64_t elapsed = tap_rand_below(&r, 40 * half);
        double want = exp2(-(double)elapsed / (double)half);
        double got = (double)ewma_keep(elapsed, half) / (double)EWMA_ONE;
        if (!CHECK(fabs(got - want) < 0x1p-24)) {
            tap_note("elapsed %llu half %llu got %.12f want %.12f", (unsigned long long)elapsed,
                     (unsigned long long)half, got, want);
            break;
        }
    }
    CHECK(ewma_keep(0, 5) == EWMA_ONE && ewma_keep(5, 5) == EWMA_ONE / 2);
}

static void packing_keeps_26_bits(void)
{
    struct tap_rand r = {tap_seed(12)};
    for (unsigned i = 0; i < 100000; i++) {
        uint64_t v = tap_rand(&r) >> tap_rand_below(&r, 64);
        v = v > EWMA_VALUE_MAX ? EWMA_VALUE_MAX : v;
        uint64_t back = ewma_unpack(ewma_pack(v));
        uint64_t off = back > v ? back - v : v - back;
        CHECK(off <= v >> 26);
        CHECK_U64(ewma_pack(back), ewma_pack(v));
        if (tap_failures() > 0) {
            tap_note("%llu", (unsigned long long)v);
            break;
        }
    }
}

/* Samples at irregular times, each weighted by 2^(-age/h) times its length, all summed anew. */
struct naive {
    double at[400], length[400], value[400];
    unsigned n;
};

static double naive_mean(const struct naive *m, double half)
{
    double sum = 0, weights = 0;
    for (unsigned i = 0; i < m->n; i++) {
        double age = m->at[m->n - 1] - m->at[i];
        double w = exp2(-age / half) * (1 - exp2(-m->length[i] / half));
        sum += w * m->value[i];
        weights += w;
    }
    return sum / weights;
}

static void means_are_those_of_the_naive_model(void)
{
    const uint64_t first = tap_seed(100);
    static const double halves[] = {20000, 120000, 600000};
    double worst = 0;
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct tap_rand r = {first + seed};
        struct load *l = load_new(10, 0);
        struct naive m = {.n = 0};
        uint64_t now = 1000000, interval = 10000;
        uint64_t scale = UINT64_C(1) << tap_rand_below(&r, 30);
        for (unsigned i = 0; i < 400; i++) {
            uint64_t elapsed = i == 0 ? interval : 200 + tap_rand_below(&r, 30000);
            now += elapsed;
            uint64_t count = tap_rand_below(&r, 10 * scale + 1);
            struct load_sample s = {
                .partition = 1, .epoch = 1, .interval_ms = interval, .has = 1U << LOAD_WRITES};
            s.value[LOAD_WRITES] = count;
            CHECK_U64(load_put(l, &s, now), LOAD_COUNTED);
            m.at[m.n] = (double)now;
            m.length[m.n] = (double)elapsed;
            m.value[m.n++] = (double)count * 1000 * 1000 / (double)interval;
            for (unsigned h = 0; h < LOAD_HORIZONS; h++) {
                double got = (double)load_value(load_get(l, 1, 0), LOAD_WRITES, h);
                double want = naive_mean(&m, halves[h]);
                double off = fabs(got - want) / (want + 1000);
                worst = off > worst ? off : worst;
            }
        }
        load_free(l);
    }
    tap_note("largest relative error %.2e", worst);
    CHECK(worst < 1e-3);
}

/* Zipf-like weights, some keys told in bulk: the drawn share of a random range. */
static void shares_are_unbiased_and_within_their_deviation(void)
{
    const uint64_t first = tap_seed(500);
    double sum = 0, squares = 0, expected = 0;
    unsigned runs = 400;
    for (unsigned run = 0; run < runs; run++) {
        struct tap_rand r = {first + run};
        struct sketch *s = sketch_new(tap_rand(&r), 0);
        uint64_t left = 0, all = 0;
        for (unsigned i = 0; i < 1000; i++) {
            char key[8];
            unsigned k = (unsigned)tap_rand_below(&r, 200);
            uint64_t w = 1 + (k == 30 ? 3000 : tap_rand_below(&r, 20)) / (1 + i % 7);
            (void)snprintf(key, sizeof key, "%03u", k);
            (void)sketch_add(s, slice_of(key, 3), NULL, w, 1 << 20, 0);
            all += w;
            left += k < 60 ? w : 0;
        }
        struct slice end = slice_of("060", 3);
        double p = (double)left / (double)all;
        double off = (double)sketch_share(s, slice_of("", 0), &end, 0) / 1e6 - p;
        sum += off;
        squares += off * off;
        expected += p * (1 - p) / SKETCH_SLOTS;
        sketch_free(s);
    }
    double sd = sqrt(squares / runs), want = sqrt(expected / runs);
    tap_note("mean error %.4f, sd %.4f, expected %.4f", sum / runs, sd, want);
    CHECK(fabs(sum / runs) < 4 * want / sqrt(runs));
    CHECK(sd < 1.15 * want && sd > 0.85 * want);
    CHECK(sd <= .0315);
}

static void the_lower_bound_of_the_top_key_holds(void)
{
    const uint64_t first = tap_seed(900);
    unsigned below = 0, runs = 1000;
    for (unsigned run = 0; run < runs; run++) {
        struct tap_rand r = {first + run};
        struct sketch *s = sketch_new(tap_rand(&r), 0);
        struct sketch_top top = {.share_ppm = 0};
        for (unsigned i = 0; i < 1000; i++) {
            char key[8];
            (void)snprintf(key, sizeof key, "%03u", i % 5 < 3 ? 500 : i % 400);
            (void)sketch_add(s, slice_of(key, 3), NULL, 1, 1 << 20, 0);
        }
        CHECK(sketch_top(s, &top));
        below += top.share_low_ppm <= 600000;
        sketch_free(s);
    }
    tap_note("%u of %u", below, runs);
    CHECK(below >= 955); /* 97.5 %, less 4 sd */
}

/* Puts and drops in random order: what is found is what a plain array says. */
static void the_table_is_the_naive_one(void)
{
    enum { PARTITIONS = 300, NODES = 3 };
    const uint64_t first = tap_seed(700);
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct tap_rand r = {first + seed};
        bool there[PARTITIONS][NODES] = {{false}};
        struct load *l = load_new(1 << 20, 0);
        uint64_t count = 0;
        for (unsigned i = 0; i < 5000; i++) {
            uint64_t p = tap_rand_below(&r, PARTITIONS), n = tap_rand_below(&r, NODES);
            if (tap_rand_below(&r, 3) > 0) {
                struct load_sample s = {.partition = p, .node = n, .epoch = 1, .interval_ms = 1000};
                CHECK_U64(load_put(l, &s, 1000 + i), LOAD_COUNTED);
                there[p][n] = true;
            } else if (tap_rand_below(&r, 2) == 0) {
                load_drop_copy(l, p, n);
                there[p][n] = false;
            } else {
                load_drop(l, p);
                memset(there[p], 0, sizeof there[p]);
            }
        }
        for (uint64_t p = 0; p < PARTITIONS; p++) {
            for (uint64_t n = 0; n < NODES; n++) {
                const struct load_entry *e = load_get(l, p, n);
                CHECK((e != NULL) == there[p][n]);
                CHECK(e == NULL || (e->partition == p && e->node == n));
                count += there[p][n];
            }
        }
        CHECK_U64(load_count(l), count);
        load_free(l);
        if (tap_failures() > 0) {
            tap_note("seed %llu", (unsigned long long)seed);
            return;
        }
    }
}

int main(void)
{
    RUN(powers_are_within_2_to_the_minus_24);
    RUN(packing_keeps_26_bits);
    RUN(means_are_those_of_the_naive_model);
    RUN(shares_are_unbiased_and_within_their_deviation);
    RUN(the_lower_bound_of_the_top_key_holds);
    RUN(the_table_is_the_naive_one);
    return tap_done();
}
