/* SPDX-License-Identifier: Apache-2.0 */
/* Readers of the cached map while a writer replaces all of it, again and again: what they hold
 * stays whole, and no route gets older. For the sanitizers above all. And of a lease, while it is
 * moved. */
#include "base/clock.h"
#include "base/mem.h"
#include "client/map.h"
#include "client/now.h"
#include "tests/harness/tap.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>

enum { KEYS = 600, ROUNDS = 150, CHANGES = 20, READERS = 4, MARK = 0x5a };

static struct cl_map map;
static _Atomic bool stop;

struct reader {
    pthread_t thread;
    uint64_t reads, wrong;
};

static void make_key(uint64_t i, uint8_t out[4])
{
    out[0] = MARK;
    out[1] = (uint8_t)(i >> 8);
    out[2] = (uint8_t)i;
    out[3] = MARK;
}

/* The partition is the key, the node's name says the revision. */
static struct cl_entry *make_entry(uint64_t i, uint64_t revision)
{
    uint8_t start[4], end[4], node[8];
    make_key(i, start);
    make_key(i + 1, end);
    memcpy(node, &revision, sizeof node);
    struct cl_route r = {.partition = i,
                         .epoch = revision,
                         .mod_revision = revision,
                         .state = CADASTRE_ACTIVE,
                         .start = slice_of(start, i > 0 ? 4 : 0),
                         .end = slice_of(end, 4),
                         .end_open = i + 1 == KEYS,
                         .node = slice_of(node, sizeof node)};
    return cl_entry_new(&r);
}

static void *read_on(void *arg)
{
    struct reader *r = arg;
    uint64_t seen[KEYS] = {0};
    for (uint64_t i = 0; !atomic_load(&stop); i = (i + 7) % KEYS) {
        uint8_t key[4];
        make_key(i, key);
        struct cl_map_view v = cl_map_enter(&map);
        const struct cl_entry *e = cl_map_find(v.root, slice_of(key, 4));
        uint64_t named = 0;
        if (e == NULL) {
            r->wrong++;
        } else {
            memcpy(&named, e->bytes + e->start_len, sizeof named);
            r->wrong += e->partition != i || named != e->mod_revision || named < seen[i];
            seen[i] = named;
        }
        cl_map_leave(v);
        r->reads++;
    }
    return NULL;
}

static void start(struct reader *readers)
{
    atomic_store(&stop, false);
    for (unsigned i = 0; i < READERS; i++) {
        readers[i] = (struct reader){0};
        CHECK(pthread_create(&readers[i].thread, NULL, read_on, &readers[i]) == 0);
    }
}

static void finish(struct reader *readers)
{
    atomic_store(&stop, true);
    for (unsigned i = 0; i < READERS; i++) {
        (void)pthread_join(readers[i].thread, NULL);
        CHECK_U64(readers[i].wrong, 0);
    }
}

static void readers_see_whole_versions(void)
{
    struct reader readers[READERS];
    struct tap_rand rand = {tap_seed(5)};
    struct cl_entry *all[KEYS];
    uint64_t revision = 1;
    cl_map_init(&map);
    for (uint64_t i = 0; i < KEYS; i++) {
        all[i] = make_entry(i, revision);
    }
    cl_map_load(&map, all, KEYS);
    cl_map_publish(&map);
    start(readers);
    for (unsigned round = 0; round < ROUNDS; round++) {
        revision++;
        if (round % 50 == 0) {
            for (uint64_t i = 0; i < KEYS; i++) {
                all[i] = make_entry(i, revision);
            }
            cl_map_load(&map, all, KEYS);
        }
        for (unsigned i = 0; i < CHANGES; i++) {
            (void)cl_map_offer(&map, make_entry(tap_rand_below(&rand, KEYS), revision));
        }
        cl_map_publish(&map);
        (void)sched_yield();
    }
    finish(readers);
    cl_map_check(&map);
    cl_map_close(&map);
}

/* --- a moment that is moved --- */

static struct cl_until lease;

static void *ask_on(void *arg)
{
    struct reader *r = arg;
    while (!atomic_load(&stop)) {
        uint64_t before = clock_boot_ms(), until = cl_until_get(&lease);
        bool ahead = cl_until_ahead(&lease);
        /* It only moves on, so what was there before is the least that may be said. */
        r->wrong += !ahead && before + 2000 < until;
        r->reads++;
    }
    return NULL;
}

static void a_lease_is_never_good_when_it_is_over(void)
{
    struct reader readers[READERS] = {{0}};
    cl_until_set(&lease, clock_boot_ms() + 60000);
    CHECK(cl_until_ahead(&lease));
    atomic_store(&stop, false);
    for (unsigned i = 0; i < READERS; i++) {
        CHECK(pthread_create(&readers[i].thread, NULL, ask_on, &readers[i]) == 0);
    }
    for (unsigned i = 0; i < 2000; i++) {
        cl_until_set(&lease, clock_boot_ms() + 60000 + i);
    }
    finish(readers);
    /* Taken back: at once, within the tick that was found good. */
    cl_until_set(&lease, 0);
    CHECK(!cl_until_ahead(&lease));
    /* It runs out by itself, no later than it says. */
    for (unsigned i = 0; i < 3; i++) {
        cl_until_set(&lease, clock_boot_ms() + 100);
        uint64_t asked = clock_boot_ms();
        while (cl_until_ahead(&lease)) {
            CHECK(asked < cl_until_get(&lease)); /* it was good when it was asked */
            asked = clock_boot_ms();
        }
    }
}

int main(void)
{
    RUN(readers_see_whole_versions);
    RUN(a_lease_is_never_good_when_it_is_over);
    return tap_done();
}
