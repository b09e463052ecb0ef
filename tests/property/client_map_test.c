/* SPDX-License-Identifier: Apache-2.0 */
/* The cached map against a naive one, under answers that come late, twice, out of order and in
 * part: what is served never gets older, nothing overlaps, and in the end both are the truth. */
#include "base/mem.h"
#include "client/map.h"
#include "tests/harness/tap.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { POINTS = 400, STEPS = 1500, LATE_MAX = 64, RUNS = 6, PREFIX_RUNS = 3 };

/* A partition's version: [start, end) in points; end POINTS is open. */
struct version {
    unsigned start, end;
    uint64_t partition, revision;
};

struct world {
    struct version truth[POINTS]; /* in order, contiguous */
    unsigned count;
    uint64_t revision, next_id;
    struct version naive[POINTS];  /* by point; revision 0: nothing */
    uint64_t floor[POINTS];        /* by point: the highest revision that was ever there */
    struct version late[LATE_MAX]; /* delivered some time, or never */
    unsigned late_count;
    struct cl_map map;
    unsigned shape;          /* how points become keys */
    uint64_t served[POINTS]; /* the highest revision that a lookup of the point ever gave */
};

/* Ascending in `point`: short ones, ones that share more than a node keeps, ones with NULs where
 * padding could be mistaken for them. */
static size_t make_key(unsigned shape, unsigned point, uint8_t *out)
{
    if (point == 0) {
        return 0;
    }
    if (shape == 0) {
        return (size_t)snprintf((char *)out, 16, "k%05u", point);
    }
    if (shape == 1) {
        memset(out, 'p', 70);
        return 70 + (size_t)snprintf((char *)out + 70, 16, "/%05u", point);
    }
    /* 1, 1 0, 1 0 0, … 2, 2 0, …: seven lengths a letter */
    out[0] = (uint8_t)(point / 7 + 1);
    memset(out + 1, 0, 7);
    return 1 + point % 7;
}

static struct cl_entry *entry_of(const struct world *w, const struct version *v)
{
    uint8_t start[128], end[128];
    struct cl_route r = {.partition = v->partition,
                         .epoch = v->revision,
                         .mod_revision = v->revision,
                         .max_age_ms = 30000,
                         .state = CADASTRE_ACTIVE,
                         .authority = CADASTRE_STATIC,
                         .end_open = v->end == POINTS};
    r.start = slice_of(start, make_key(w->shape, v->start, start));
    r.end = slice_of(end, r.end_open ? 0 : make_key(w->shape, v->end, end));
    return cl_entry_new(&r);
}

/* --- the naive map: the same rule, point by point --- */

/* What the map must say, and what is left after it. */
static enum cl_offer naive_offer(struct world *w, const struct version *v)
{
    const struct version *there = &w->naive[v->start];
    bool known = there->revision == v->revision && there->partition == v->partition;
    bool newest = true;
    for (unsigned p = v->start; p < v->end; p++) {
        newest = newest && w->floor[p] < v->revision;
    }
    for (unsigned p = v->start; p < v->end; p++) {
        struct version o = w->naive[p];
        for (unsigned q = o.start; o.revision > 0 && o.revision < v->revision && q < o.end; q++) {
            w->naive[q] = (struct version){0};
        }
    }
    for (unsigned p = v->start; newest && p < v->end; p++) {
        w->naive[p] = *v;
        w->floor[p] = v->revision;
    }
    return known ? CL_KNOWN : newest ? CL_TAKEN : CL_OLDER;
}

/* --- the truth moves on --- */

static void remember(struct world *w, const struct version *v, struct tap_rand *r)
{
    unsigned at =
        w->late_count < LATE_MAX ? w->late_count++ : (unsigned)tap_rand_below(r, LATE_MAX);
    w->late[at] = *v;
}

static void split(struct world *w, struct tap_rand *r)
{
    unsigned i = (unsigned)tap_rand_below(r, w->count);
    struct version v = w->truth[i];
    if (v.end - v.start < 2 || w->count == POINTS) {
        return;
    }
    unsigned at = v.start + 1 + (unsigned)tap_rand_below(r, v.end - v.start - 1);
    memmove(&w->truth[i + 1], &w->truth[i], (w->count - i) * sizeof w->truth[0]);
    w->count++;
    w->revision++;
    w->truth[i] = (struct version){v.start, at, w->next_id++, w->revision};
    w->truth[i + 1] = (struct version){at, v.end, w->next_id++, w->revision};
    remember(w, &w->truth[i], r);
    remember(w, &w->truth[i + 1], r);
}

static void merge(struct world *w, struct tap_rand *r)
{
    unsigned i = (unsigned)tap_rand_below(r, w->count);
    if (i + 1 >= w->count) {
        return;
    }
    w->revision++;
    w->truth[i] =
        (struct version){w->truth[i].start, w->truth[i + 1].end, w->next_id++, w->revision};
    w->count--;
    memmove(&w->truth[i + 1], &w->truth[i + 2], (w->count - i - 1) * sizeof w->truth[0]);
    remember(w, &w->truth[i], r);
}

static void move(struct world *w, struct tap_rand *r)
{
    unsigned i = (unsigned)tap_rand_below(r, w->count);
    w->truth[i].revision = ++w->revision;
    remember(w, &w->truth[i], r);
}

static void deliver(struct world *w, const struct version *v)
{
    enum cl_offer offer = cl_map_offer(&w->map, entry_of(w, v));
    CHECK(offer == naive_offer(w, v));
}

static void compare(struct world *w)
{
    cl_map_check(&w->map);
    struct cl_map_view view = cl_map_enter(&w->map);
    for (unsigned p = 0; p < POINTS; p++) {
        uint8_t key[128];
        struct slice k = slice_of(key, make_key(w->shape, p, key));
        const struct cl_entry *e = cl_map_find(view.root, k), *next;
        bool there = e != NULL && !cl_entry_is_gap(e);
        CHECK(there == (w->naive[p].revision > 0));
        if (there) {
            CHECK_U64(e->mod_revision, w->naive[p].revision);
            CHECK_U64(e->partition, w->naive[p].partition);
            CHECK(e->mod_revision >= w->served[p]);
            w->served[p] = e->mod_revision;
        }
        next = cl_map_ceiling(view.root, k, false);
        CHECK(next == NULL || slice_cmp(cl_entry_start(next), k) >= 0);
        CHECK(next != NULL || cl_map_ceiling(view.root, k, true) == NULL);
    }
    cl_map_leave(view);
}

static void load_truth(struct world *w)
{
    struct cl_entry *entries[POINTS];
    for (unsigned i = 0; i < w->count; i++) {
        entries[i] = entry_of(w, &w->truth[i]);
    }
    cl_map_load(&w->map, entries, w->count);
    for (unsigned p = 0, i = 0; p < POINTS; p++) {
        i += p == w->truth[i].end;
        w->naive[p] = w->truth[i];
        w->floor[p] = w->truth[i].revision;
    }
}

static void step(struct world *w, struct tap_rand *r)
{
    switch (tap_rand_below(r, 10)) {
    case 0:
    case 1:
    case 2:
        split(w, r);
        break;
    case 3:
        merge(w, r);
        break;
    case 4:
        move(w, r);
        break;
    case 5: { /* a refresh: the present version of one range */
        deliver(w, &w->truth[tap_rand_below(r, w->count)]);
        break;
    }
    default:
        if (w->late_count > 0) {
            deliver(w, &w->late[tap_rand_below(r, w->late_count)]);
        }
    }
}

static void run(unsigned shape, uint64_t seed)
{
    struct world *w = mem_zalloc(sizeof *w);
    struct tap_rand r = {seed};
    w->shape = shape;
    w->count = 1;
    w->revision = w->next_id = 1;
    w->truth[0] = (struct version){0, POINTS, 0, 1};
    cl_map_init(&w->map);
    for (unsigned i = 0; i < STEPS && tap_failures() == 0; i++) {
        step(w, &r);
        if (tap_rand_below(&r, 4) == 0) {
            cl_map_publish(&w->map);
            compare(w);
        }
        if (tap_rand_below(&r, 500) == 0) {
            load_truth(w);
        }
    }
    for (unsigned i = 0; i < w->count; i++) {
        deliver(w, &w->truth[i]);
    }
    cl_map_publish(&w->map);
    compare(w);
    CHECK_U64(w->map.count, w->count);
    for (unsigned p = 0; p < POINTS; p++) {
        CHECK(w->naive[p].revision > 0);
    }
    cl_map_close(&w->map);
    mem_free(w);
}

static void late_and_repeated_answers_never_win(void)
{
    uint64_t seed = tap_seed(20261130);
    for (unsigned i = 0; i < RUNS && tap_failures() == 0; i++) {
        tap_note("seed %" PRIu64 ", run %u", seed, i);
        run(i % PREFIX_RUNS, seed + i);
    }
}

/* Splits down to single points and back to one partition: nodes split, empty and merge. */
static void grows_and_shrinks(void)
{
    enum { COUNT = 20000 };
    struct cl_map m;
    struct tap_rand r = {tap_seed(7)};
    cl_map_init(&m);
    for (unsigned turn = 0; turn < 2; turn++) {
        for (unsigned i = 0; i < COUNT; i++) {
            uint32_t n = (uint32_t)(i * UINT64_C(7919) % COUNT) * 2;
            uint8_t start[4] = {(uint8_t)(n >> 24), (uint8_t)(n >> 16), (uint8_t)(n >> 8),
                                (uint8_t)n};
            uint8_t end[4] = {start[0], start[1], start[2], (uint8_t)(n + 1)};
            struct cl_route route = {.partition = n,
                                     .mod_revision = 1,
                                     .state = CADASTRE_ACTIVE,
                                     .start = slice_of(start, 4),
                                     .end = slice_of(end, 4)};
            CHECK(cl_map_offer(&m, cl_entry_new(&route)) == CL_TAKEN);
            if (tap_rand_below(&r, 100) == 0) {
                cl_map_publish(&m);
            }
        }
        cl_map_check(&m);
        CHECK_U64(m.count, COUNT);
        if (turn == 0) {
            for (unsigned i = 0; i < COUNT; i++) {
                uint32_t n = (uint32_t)(i * UINT64_C(104729) % COUNT) * 2;
                uint8_t start[4] = {(uint8_t)(n >> 24), (uint8_t)(n >> 16), (uint8_t)(n >> 8),
                                    (uint8_t)n};
                cl_map_remove(&m, slice_of(start, 4));
                if (i % 1000 == 0) {
                    cl_map_check(&m);
                    cl_map_publish(&m);
                }
            }
            CHECK_U64(m.count, 0);
            CHECK(m.next == NULL);
        }
    }
    struct cl_route whole = {
        .partition = 1, .mod_revision = 2, .state = CADASTRE_ACTIVE, .end_open = true};
    CHECK(cl_map_offer(&m, cl_entry_new(&whole)) == CL_TAKEN);
    CHECK_U64(m.count, 1);
    cl_map_check(&m);
    cl_map_close(&m);
}

int main(void)
{
    RUN(late_and_repeated_answers_never_win);
    RUN(grows_and_shrinks);
    return tap_done();
}
