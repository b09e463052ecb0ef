/* SPDX-License-Identifier: Apache-2.0 */
/* What a follower takes over from its leader: the same loads, never for newer ones, whatever comes.
 */
#include "control/loads.h"

#include "base/mem.h"
#include "tests/harness/tap.h"
#include "tests/harness/world.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PARTITIONS = 300, LEADS_MS = 5000000, FOLLOWS_MS = 90000000 }; /* two machines' clocks */

static struct world w;
static struct loads *leader, *follower;
static uint64_t ids[PARTITIONS], node;

static void begin(void)
{
    struct ptree_iter it;
    const struct dir_partition *p;
    unsigned n = 0;
    world_open(&w);
    (void)world_node(&w, "n1", "n1:1");
    (void)world_hash(&w, "ks", PARTITIONS);
    node = view_node(world_state(&w), slice_of("n1", 2))->id;
    ptree_seek(&world_state(&w)->partitions, slice_of(NULL, 0), &it);
    for (; (p = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        ids[n++] = p->id;
    }
    CHECK_U64(n, PARTITIONS);
    leader = loads_new();
    follower = loads_new();
}

static void end(void)
{
    loads_free(leader);
    loads_free(follower);
    world_close(&w);
}

static enum load_outcome
put(struct loads *l, uint64_t partition, dir_rev epoch, uint64_t writes, uint64_t now_ms)
{
    char names[40][8];
    struct load_key keys[40];
    struct load_sample s = {.partition = partition,
                            .epoch = epoch,
                            .interval_ms = 60000,
                            .has = 1U << LOAD_WRITES | 1U << LOAD_SIZE | 1U << LOAD_QUEUE_P99,
                            .keys = keys,
                            .key_count = partition % 3 == 0 ? 40 : 0};
    for (unsigned i = 0; i < 40; i++) { /* one has half of all */
        (void)snprintf(names[i], sizeof names[i], "k%02u", i);
        keys[i] = (struct load_key){.key = slice_of(names[i], 3), .weight = i == 13 ? 3900 : 100};
    }
    s.value[LOAD_WRITES] = writes * 60;
    s.value[LOAD_SIZE] = 1000 * partition + now_ms / 60;
    s.value[LOAD_QUEUE_P99] = 7;
    return loads_put(l, &s, now_ms);
}

/* All pages; returns how many. `bytes` may be NULL. */
static unsigned carry(size_t enough, uint64_t from_ms, uint64_t to_ms, uint64_t *bytes)
{
    unsigned next = 0, pages = 0;
    while (next < LOADS_PAGES) {
        struct buf b;
        uint64_t records;
        unsigned page = next;
        buf_init(&b, 64 << 20);
        loads_put_summary(leader, page, enough, from_ms, &b);
        CHECK(!b.overflow);
        CHECK(loads_take_summary(follower, world_state(&w), slice_of(b.data, b.len), to_ms, &next,
                                 &records));
        CHECK(next > page);
        if (bytes != NULL) {
            *bytes += b.len;
        }
        buf_close(&b);
        pages++;
    }
    return pages;
}

static void the_same_is_known_afterwards(void)
{
    uint64_t bytes = 0;
    begin();
    for (uint64_t minute = 0; minute < 30; minute++) {
        for (unsigned i = 0; i < PARTITIONS; i++) {
            CHECK_U64(put(leader, ids[i], 5, 100 + i, LEADS_MS + 60000 * minute), LOAD_COUNTED);
        }
    }
    uint64_t told = LEADS_MS + 29 * 60000;
    struct loads_node said = {
        .node = node, .session = 0, .seq = 30, .at_ms = told, .has = 1, .figure = {2500}};
    said.session = view_node_by_id(world_state(&w), node)->session;
    CHECK(loads_begin(leader, &said));
    CHECK(carry(SIZE_MAX, told + 2000, FOLLOWS_MS, &bytes) == 1);
    CHECK_U64(loads_count(follower), PARTITIONS);
    for (unsigned i = 0; i < PARTITIONS; i++) {
        struct load_entry a, b;
        CHECK(loads_get(leader, ids[i], 0, &a) && loads_get(follower, ids[i], 0, &b));
        CHECK_U64(load_value(&b, LOAD_WRITES, LOAD_MEAN), load_value(&a, LOAD_WRITES, LOAD_MEAN));
        CHECK_U64(load_value(&b, LOAD_SIZE, LOAD_FAST), load_value(&a, LOAD_SIZE, LOAD_FAST));
        CHECK(load_growth(&a, LOAD_SIZE) > 0 &&
              load_growth(&b, LOAD_SIZE) == load_growth(&a, LOAD_SIZE));
        CHECK(load_growth(&b, LOAD_WRITES) == 0); /* what did not come is not made up */
        CHECK(b.has == a.has && b.epoch == 5 && b.last_ms == FOLLOWS_MS - 2000);
        CHECK(load_known(&b, FOLLOWS_MS) && !load_known(&b, FOLLOWS_MS + 300000));
    }
    CHECK(loads_node(follower, node, &said) && said.seq == 30 && said.at_ms == FOLLOWS_MS - 2000 &&
          said.figure[0] == 2500);
    CHECK(!loads_begin(follower, &said)); /* sent again to the new leader, it counts once */
    tap_note("%llu bytes for %d", (unsigned long long)bytes, PARTITIONS);
    CHECK(bytes < 100 * PARTITIONS + 450 * (PARTITIONS / 3) + 4096);
    end();
}

struct seen {
    struct sketch_top top;
    struct sketch_split split;
    uint32_t left;
    bool any;
    char key[8];
};

static void look(void *arg, const struct load_entry *e)
{
    struct seen *s = arg;
    struct slice middle = slice_of("k14", 3);
    s->any = e->sketch != NULL && sketch_top(e->sketch, &s->top);
    if (s->any) {
        s->split = sketch_split(e->sketch, slice_of(NULL, 0));
        s->left = sketch_share(e->sketch, slice_of(NULL, 0), &middle, 0);
        (void)snprintf(s->key, sizeof s->key, "%.*s", (int)s->top.key.len,
                       (const char *)s->top.key.data);
    }
}

static void keys_come_as_a_digest(void)
{
    begin();
    for (unsigned i = 0; i < PARTITIONS; i++) {
        (void)put(leader, ids[i], 5, 1000, LEADS_MS);
    }
    (void)carry(1, LEADS_MS, FOLLOWS_MS, NULL);
    for (unsigned i = 0; i < PARTITIONS; i++) {
        struct seen a = {0}, b = {0};
        loads_look(leader, ids[i], look, &a);
        loads_look(follower, ids[i], look, &b);
        CHECK(a.any == b.any && a.any == (ids[i] % 3 == 0));
        if (a.any) {
            CHECK(strcmp(a.key, "k13") == 0 && strcmp(b.key, "k13") == 0);
            CHECK_U64(b.top.share_ppm, a.top.share_ppm);
            CHECK(a.split.verdict == b.split.verdict);
            CHECK(fabs((double)a.left - (double)b.left) < 90000); /* a run or so of 13 */
        }
    }
    /* It goes on: what is reported now counts beside it. */
    unsigned k = 0;
    while (ids[k] % 3 != 0) {
        k++;
    }
    CHECK_U64(put(follower, ids[k], 5, 1000, FOLLOWS_MS + 60000), LOAD_COUNTED);
    struct load_entry e;
    CHECK(loads_get(follower, ids[k], 0, &e) && e.covered_ms == 120000);
    end();
}

static void pages_are_as_small_as_asked(void)
{
    begin();
    for (unsigned i = 0; i < PARTITIONS; i++) {
        (void)put(leader, ids[i], 5, 1000, LEADS_MS);
    }
    CHECK_U64(carry(1, LEADS_MS, FOLLOWS_MS, NULL), LOADS_PAGES);
    CHECK_U64(loads_count(follower), PARTITIONS);
    end();
}

static void newer_knowledge_stays(void)
{
    struct load_entry e;
    begin();
    (void)put(leader, ids[0], 5, 100, LEADS_MS);
    (void)put(leader, ids[1], 5, 100, LEADS_MS);
    (void)put(leader, ids[2], 5, 100, LEADS_MS);
    (void)put(leader, 999999, 5, 100, LEADS_MS);             /* no partition of the directory */
    (void)put(follower, ids[0], 5, 900, FOLLOWS_MS);         /* heard just now */
    (void)put(follower, ids[1], 6, 900, FOLLOWS_MS - 90000); /* of a later epoch */
    (void)put(follower, ids[2], 4, 900, FOLLOWS_MS - 90000); /* long ago, of an earlier one */
    (void)carry(SIZE_MAX, LEADS_MS + 1000, FOLLOWS_MS, NULL);
    CHECK(loads_get(follower, ids[0], 0, &e) && load_value(&e, LOAD_WRITES, LOAD_MEAN) == 900000);
    CHECK(loads_get(follower, ids[1], 0, &e) && load_value(&e, LOAD_WRITES, LOAD_MEAN) == 900000);
    CHECK(loads_get(follower, ids[2], 0, &e) && load_value(&e, LOAD_WRITES, LOAD_MEAN) == 100000);
    CHECK_U64(loads_count(follower), 3);
    /* A sample of before the epoch that came along does not count. */
    CHECK_U64(put(follower, ids[2], 4, 900, FOLLOWS_MS + 60000), LOAD_STALE);
    end();
}

static void what_is_no_summary_is_refused(void)
{
    struct buf b;
    unsigned next;
    uint64_t records, refused = 0;
    struct tap_rand r = {tap_seed(77)};
    begin();
    for (unsigned i = 0; i < 12; i++) {
        (void)put(leader, ids[i], 5, 100, LEADS_MS);
    }
    buf_init(&b, 1 << 20);
    loads_put_summary(leader, 0, SIZE_MAX, LEADS_MS, &b);
    for (size_t len = 0; len < b.len; len++) { /* cut off anywhere */
        uint8_t *copy = mem_alloc(len + 1);    /* its own, so that a read beyond is seen */
        memcpy(copy, b.data, len);
        CHECK(!loads_take_summary(follower, world_state(&w), slice_of(copy, len), FOLLOWS_MS, &next,
                                  &records));
        mem_free(copy);
    }
    for (unsigned i = 0; i < 3000; i++) { /* damaged anywhere: refused or not, it does no harm */
        uint8_t *copy = mem_dup(b.data, b.len);
        copy[tap_rand_below(&r, b.len)] ^= (uint8_t)(1 + tap_rand_below(&r, 255));
        refused += loads_take_summary(follower, world_state(&w), slice_of(copy, b.len), FOLLOWS_MS,
                                      &next, &records)
                       ? 0
                       : 1;
        mem_free(copy);
    }
    CHECK(refused > 100);
    CHECK(loads_count(follower) <= PARTITIONS); /* copies that there are, at most */
    buf_close(&b);
    end();
}

int main(void)
{
    RUN(the_same_is_known_afterwards);
    RUN(keys_come_as_a_digest);
    RUN(pages_are_as_small_as_asked);
    RUN(newer_knowledge_stays);
    RUN(what_is_no_summary_is_refused);
    return tap_done();
}
