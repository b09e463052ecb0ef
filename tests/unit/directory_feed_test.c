/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "base/rcu.h"
#include "directory/directory.h"
#include "directory/feed.h"
#include "directory/feed_internal.h"
#include "directory/internal.h"
#include "tests/harness/tap.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>

static struct dir_change *change_new(dir_rev revision, uint64_t keyspace)
{
    struct dir_change *c = mem_zalloc(sizeof *c);
    c->refs = 1;
    c->revision = revision;
    c->keyspace = keyspace;
    c->kind = DIR_CHANGE_MOVE;
    return c;
}

static void publish(struct dir_feed *f, dir_rev from, dir_rev to, uint64_t keyspace)
{
    for (dir_rev r = from; r <= to; r++) {
        feed_publish(f, change_new(r, keyspace));
    }
}

static void close_feed(struct dir_feed *f)
{
    rcu_drain();
    feed_free(f);
}

static void unref_all(struct dir_change **changes, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        change_unref(changes[i]);
    }
}

/* Reads, compares with what is wanted, and gives the changes back. */
static void check_read(const struct dir_feed *f,
                       uint64_t keyspace,
                       const dir_rev range[2],
                       uint64_t max,
                       const int64_t want[2])
{
    struct dir_change *out[16];
    dir_rev last = 0;
    int64_t count = feed_read(f, keyspace, range[0], range[1], out, max, &last);
    CHECK(count == want[0]);
    CHECK_U64(last, want[1]);
    for (int64_t i = 0; i < count; i++) {
        CHECK(out[i]->revision > range[0] && out[i]->revision <= range[1]);
        CHECK(keyspace == 0 || out[i]->keyspace == keyspace);
        CHECK(i == 0 || out[i]->revision >= out[i - 1]->revision);
    }
    unref_all(out, count);
}

static void reads_give_what_is_between(void)
{
    /* revision: keyspace... */
    static const struct {
        dir_rev revision;
        uint64_t keyspace;
    } changes[] = {{2, 1}, {3, 2}, {5, 1}, {5, 2}, {5, 3}, {9, 1}, {10, 2}};
    static const struct {
        uint64_t keyspace, since, upto, max;
        int64_t count;
        dir_rev last;
    } rows[] = {
        {0, 0, 10, 16, 7, 10},                          /* all */
        {0, 10, 10, 16, 0, 10}, {0, 10, 20, 16, 0, 20}, /* ahead: nothing new yet */
        {0, 20, 10, 16, 0, 20}, {0, 2, 5, 16, 4, 5},
        {0, 3, 8, 16, 3, 8},    {1, 0, 10, 16, 3, 10}, /* of one keyspace */
        {2, 3, 9, 16, 1, 9},    {7, 0, 10, 16, 0, 10},
        {0, 0, 10, 2, 2, 3}, /* cut between revisions */
        {0, 0, 10, 3, 2, 3}, /* 5 is not cut in half */
        {0, 0, 10, 4, 2, 3},    {0, 0, 10, 5, 5, 5},
        {0, 3, 10, 3, 3, 5},    {0, 3, 10, 2, -1, 0}, /* 5 alone is too much */
        {1, 0, 10, 2, 2, 5},    {1, 0, 10, 3, 3, 10},
    };
    struct dir_feed *f = feed_new();
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        feed_publish(f, change_new(changes[i].revision, changes[i].keyspace));
    }
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tap_note("row %zu", i);
        check_read(f, rows[i].keyspace, (const dir_rev[]){rows[i].since, rows[i].upto}, rows[i].max,
                   (const int64_t[]){rows[i].count, (int64_t)rows[i].last});
    }
    close_feed(f);
}

static void an_empty_feed_reaches_back_to_its_start(void)
{
    struct dir_feed *f = feed_new();
    CHECK_U64(feed_oldest(f), 0);
    check_read(f, 0, (const dir_rev[]){0, 0}, 16, (const int64_t[]){0, 0});
    feed_reset(f, 500);
    CHECK_U64(feed_oldest(f), 500);
    check_read(f, 0, (const dir_rev[]){499, 600}, 16, (const int64_t[]){-1, 0});
    check_read(f, 0, (const dir_rev[]){500, 600}, 16, (const int64_t[]){0, 600});
    close_feed(f);
}

static void the_oldest_fall_out(void)
{
    struct dir_feed *f = feed_new();
    publish(f, 1, DIR_FEED_CHANGES_MAX, 1);
    CHECK_U64(feed_oldest(f), 0);
    /* More than once around the slots. */
    publish(f, DIR_FEED_CHANGES_MAX + 1, 3 * DIR_FEED_CHANGES_MAX + 10, 1);
    dir_rev newest = 3 * DIR_FEED_CHANGES_MAX + 10, oldest = newest - DIR_FEED_CHANGES_MAX;
    CHECK_U64(feed_oldest(f), oldest);
    check_read(f, 1, (const dir_rev[]){oldest - 1, newest}, 16, (const int64_t[]){-1, 0});
    check_read(f, 1, (const dir_rev[]){oldest, newest}, 16,
               (const int64_t[]){16, (int64_t)oldest + 16});
    check_read(f, 1, (const dir_rev[]){newest - 3, newest}, 16,
               (const int64_t[]){3, (int64_t)newest});
    feed_reset(f, newest + 5);
    check_read(f, 1, (const dir_rev[]){newest, newest + 5}, 16, (const int64_t[]){-1, 0});
    publish(f, newest + 6, newest + 7, 1);
    check_read(f, 1, (const dir_rev[]){newest + 5, newest + 7}, 16,
               (const int64_t[]){2, (int64_t)newest + 7});
    close_feed(f);
}

/* A change with `count` routes that all show one partition. */
static struct dir_change *change_with_routes(dir_rev revision,
                                             uint32_t count,
                                             struct dir_partition *p,
                                             struct dir_keyspace *ks)
{
    struct dir_change *c = change_new(revision, 1);
    c->route_count = count;
    c->routes = mem_zalloc(count * sizeof *c->routes);
    for (uint32_t i = 0; i < count; i++) {
        c->routes[i].partition = dir_ref(p);
        c->routes[i].keyspace = dir_ref(ks);
    }
    return c;
}

static void routes_are_bounded_and_released(void)
{
    const struct partition_arrays none = {.end_open = true};
    struct dir_partition *p = partition_new(&(const struct dir_partition){.id = 1}, &none);
    struct dir_keyspace *ks = mem_zalloc(sizeof *ks + 1);
    ks->object = (struct dir_object){1, DIR_KIND_KEYSPACE};
    struct dir_feed *f = feed_new();
    enum { EACH = DIR_CHANGE_ROUTES_MAX, KEPT = DIR_FEED_ROUTES_MAX / EACH };
    for (dir_rev r = 1; r <= KEPT + 3; r++) {
        feed_publish(f, change_with_routes(r, EACH, p, ks));
    }
    CHECK_U64(feed_oldest(f), 3);
    rcu_drain();
    CHECK_U64(p->object.refs, 1 + KEPT * EACH);
    publish(f, KEPT + 4, KEPT + 4, 1); /* one without routes costs nobody a place */
    CHECK_U64(feed_oldest(f), 3);
    close_feed(f);
    CHECK_U64(p->object.refs, 1);
    CHECK_U64(ks->object.refs, 1);
    dir_unref(p);
    dir_unref(ks);
}

static unsigned encoded_freed;

static void free_encoded(void *encoded)
{
    CHECK(encoded == &encoded_freed);
    encoded_freed++;
}

static void the_last_reference_frees_all_of_a_change(void)
{
    struct dir_change *c = change_new(1, 1);
    c->removed_count = 2;
    c->removed = mem_zalloc(2 * sizeof *c->removed);
    c->start = slice_of(mem_dup("a", 1), 1);
    c->end = slice_of(mem_dup("b", 1), 1);
    c->encoded_free = free_encoded;
    atomic_store(&c->encoded, &encoded_freed);
    encoded_freed = 0;
    change_unref(change_ref(c));
    CHECK_U64(encoded_freed, 0);
    change_unref(c);
    CHECK_U64(encoded_freed, 1);
    change_unref(NULL);
}

/* A change that fell out lives on with who read it. */
static void readers_keep_what_they_read(void)
{
    struct dir_feed *f = feed_new();
    struct dir_change *out[2];
    dir_rev last;
    publish(f, 1, 2, 1);
    CHECK(feed_read(f, 1, 0, 2, out, 2, &last) == 2);
    feed_reset(f, 2);
    close_feed(f);
    CHECK(out[0]->revision == 1 && out[1]->revision == 2 && out[0]->refs == 1);
    unref_all(out, 2);
}

static void listen_to(void *arg, dir_rev revision)
{
    *(dir_rev *)arg += revision;
}

static void listeners_are_woken(void)
{
    struct dir_feed *f = feed_new();
    dir_rev heard[2] = {0, 100};
    feed_listen(f, listen_to, &heard[0]);
    feed_listen(f, listen_to, &heard[1]);
    feed_wake(f, 7);
    CHECK_U64(heard[0], 7);
    CHECK_U64(heard[1], 107);
    close_feed(f);
}

/* A follower sees every revision once and in order, or is told that it fell out. */
enum { LIVE_CHANGES = 40000, PER_REVISION = 3 };

struct follower {
    pthread_t thread;
    const struct dir_feed *feed;
    const _Atomic uint64_t *published;
    uint64_t keyspace; /* 0 or 1..PER_REVISION */
    uint64_t max;
    uint64_t wrong, seen, fell_out;
};

static void follow_batch(struct follower *w, struct dir_change **out, int64_t count, dir_rev since)
{
    uint64_t each = w->keyspace == 0 ? PER_REVISION : 1;
    for (int64_t i = 0; i < count; i++) {
        dir_rev want = since + 1 + (uint64_t)i / each;
        w->wrong += out[i]->revision != want;
        w->wrong += w->keyspace != 0 && out[i]->keyspace != w->keyspace;
    }
    w->wrong += (uint64_t)count % each != 0;
    w->seen += (uint64_t)count;
}

static void *follow(void *arg)
{
    struct follower *w = arg;
    struct dir_change *out[512];
    dir_rev since = 0;
    rcu_reader_start();
    while (since < LIVE_CHANGES) {
        dir_rev upto = atomic_load(w->published), last = 0;
        int64_t count = feed_read(w->feed, w->keyspace, since, upto, out, w->max, &last);
        if (count < 0) {
            w->fell_out++;
            w->wrong += since >= feed_oldest(w->feed);
            since = feed_oldest(w->feed);
            continue;
        }
        follow_batch(w, out, count, since);
        uint64_t each = w->keyspace == 0 ? PER_REVISION : 1;
        w->wrong += last != since + (uint64_t)count / each;
        unref_all(out, count);
        since = last;
    }
    rcu_reader_stop();
    return NULL;
}

static void followers_miss_nothing_while_it_is_written(void)
{
    struct dir_feed *f = feed_new();
    _Atomic uint64_t published = 0;
    struct follower followers[3] = {
        {.keyspace = 0, .max = 512}, {.keyspace = 2, .max = 7}, {.keyspace = 1, .max = 512}};
    for (unsigned i = 0; i < 3; i++) {
        followers[i].feed = f;
        followers[i].published = &published;
        CHECK(pthread_create(&followers[i].thread, NULL, follow, &followers[i]) == 0);
    }
    for (dir_rev r = 1; r <= LIVE_CHANGES; r++) {
        for (uint64_t k = 1; k <= PER_REVISION; k++) {
            feed_publish(f, change_new(r, k));
        }
        atomic_store(&published, r);
    }
    for (unsigned i = 0; i < 3; i++) {
        CHECK(pthread_join(followers[i].thread, NULL) == 0);
        tap_note("follower %u", i);
        CHECK_U64(followers[i].wrong, 0);
        CHECK(followers[i].seen > 0 || followers[i].fell_out > 0);
    }
    close_feed(f);
}

int main(void)
{
    rcu_reader_start();
    RUN(an_empty_feed_reaches_back_to_its_start);
    RUN(reads_give_what_is_between);
    RUN(the_oldest_fall_out);
    RUN(routes_are_bounded_and_released);
    RUN(the_last_reference_frees_all_of_a_change);
    RUN(readers_keep_what_they_read);
    RUN(listeners_are_woken);
    RUN(followers_miss_nothing_while_it_is_written);
    rcu_reader_stop();
    return tap_done();
}
