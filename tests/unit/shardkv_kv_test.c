/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "examples/shardkv/kv.h"
#include "tests/harness/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STORES = 3, ROUNDS = 120, BATCH = 7, KEYS = 5, TEXT_SIZE = 32 };

static char directory[] = "/tmp/shardkv-store-XXXXXX";

static const struct kv_spec whole = {7, "", NULL};

static const char *path_of(const char *name)
{
    static char path[128];
    (void)snprintf(path, sizeof path, "%s/%s.db", directory, name);
    return path;
}

static struct kv *fresh(const char *name)
{
    CHECK(kv_delete(path_of(name)) >= 0);
    return kv_open(path_of(name), &whole);
}

static uint64_t put(struct kv *s, uint64_t epoch, const char *id, const char *key, const char *v)
{
    uint64_t position = 0;
    CHECK(kv_put(s, epoch, id, key, v, &position) == KV_OK);
    return position;
}

static void holds(struct kv *s, const char *key, const char *want)
{
    uint64_t position;
    char *value = kv_get(s, key, &position);
    if (want == NULL) {
        CHECK(value == NULL);
    } else if (CHECK(value != NULL)) {
        CHECK_STR(value, want);
    }
    free(value);
}

static void sums_up(struct kv *s, struct kv_sums *ret)
{
    CHECK(kv_sums(s, ret));
    CHECK_U64(ret->sum, ret->running);
    CHECK_U64(ret->mutations, kv_position(s));
}

static void applies_each_mutation_once(void)
{
    struct kv *s = fresh("once");
    struct kv_sums sums;
    uint64_t position = 0;
    CHECK_U64(put(s, 3, "m1", "a", "1"), 1);
    CHECK_U64(put(s, 3, "m2", "a", "2"), 2);
    CHECK(kv_put(s, 4, "m1", "a", "1", &position) == KV_REPEATED);
    CHECK_U64(position, 1);
    holds(s, "a", "2");
    holds(s, "b", NULL);
    sums_up(s, &sums);
    CHECK_U64(sums.items, 1);
    kv_close(s);
}

static void keeps_what_it_has(void)
{
    struct kv *s = fresh("keeps");
    struct kv_sums before, after;
    (void)put(s, 3, "m1", "a", "1");
    (void)put(s, 5, "m2", "b", "");
    sums_up(s, &before);
    kv_close(s);
    CHECK(kv_open(path_of("keeps"), &(struct kv_spec){8, "", NULL}) == NULL); /* another copy's */
    s = kv_open(path_of("keeps"), &whole);
    if (CHECK(s != NULL)) {
        CHECK_U64(kv_position(s), 2);
        CHECK_U64(kv_epoch(s), 5);
        sums_up(s, &after);
        CHECK_U64(after.sum, before.sum);
        holds(s, "b", "");
        kv_close(s);
    }
    CHECK(kv_delete(path_of("keeps")) > 0);
    CHECK_U64(kv_delete(path_of("keeps")), 0);
}

static enum kv_result follow(struct kv *s,
                             uint64_t after,
                             uint64_t after_epoch,
                             const struct change *changes,
                             unsigned count,
                             uint64_t *ret_position)
{
    const struct kv_batch b = {.epoch = 2,
                               .start = UINT64_MAX,
                               .last = UINT64_MAX,
                               .origin = "",
                               .after = after,
                               .after_epoch = after_epoch,
                               .changes = changes,
                               .count = count};
    return kv_follow(s, &b, ret_position);
}

static void cuts_its_log_to_the_primarys(void)
{
    struct kv *s = fresh("cuts");
    struct kv_sums sums;
    uint64_t at = 0;
    (void)put(s, 1, "m1", "a", "1");
    (void)put(s, 1, "m2", "a", "2");
    (void)put(s, 1, "m3", "b", "3");
    const struct change theirs[] = {{2, 2, "n2", "c", "9"}, {3, 2, "n3", "a", "8"}};
    /* It has no entry 4, and its entry 3 is of another epoch, which goes. */
    CHECK(follow(s, 4, 2, NULL, 0, &at) == KV_ELSEWHERE && at == 3);
    CHECK(follow(s, 3, 2, NULL, 0, &at) == KV_ELSEWHERE && at == 2);
    CHECK_U64(kv_position(s), 2);
    CHECK(follow(s, 1, 1, theirs, 2, &at) == KV_OK && at == 3);
    holds(s, "a", "8");
    holds(s, "b", NULL);
    holds(s, "c", "9");
    sums_up(s, &sums);
    /* Once more changes nothing; nor does a part of it, and what follows stays. */
    CHECK(follow(s, 1, 1, theirs, 2, &at) == KV_OK && at == 3);
    CHECK(follow(s, 1, 1, theirs, 1, &at) == KV_OK && at == 2);
    CHECK_U64(kv_position(s), 3);
    /* A mutation that was undone can be applied again. */
    CHECK_U64(put(s, 2, "m3", "b", "3"), 4);
    kv_close(s);
}

static void cuts_what_an_earlier_epoch_left(void)
{
    struct kv *s = fresh("left");
    struct kv_sums sums;
    uint64_t at = 0;
    for (unsigned i = 1; i <= 4; i++) {
        char id[TEXT_SIZE];
        (void)snprintf(id, sizeof id, "m%u", i);
        (void)put(s, 1, id, "a", id);
    }
    /* The primary of epoch 5 began with three entries and has written nothing since. */
    const struct kv_batch b = {
        .epoch = 5, .start = 3, .last = 4, .origin = "", .after = 2, .after_epoch = 1};
    CHECK(kv_follow(s, &b, &at) == KV_OK && at == 2);
    CHECK_U64(kv_position(s), 3);
    holds(s, "a", "m3");
    sums_up(s, &sums);
    /* What it has from that epoch itself stays. */
    (void)put(s, 5, "m5", "a", "5");
    CHECK(kv_follow(s, &b, &at) == KV_OK);
    CHECK_U64(kv_position(s), 4);
    kv_close(s);
}

static void refuses_a_batch_as_a_whole(void)
{
    struct kv *s = fresh("whole");
    struct kv_sums sums;
    uint64_t at = 0;
    (void)put(s, 1, "m1", "a", "1");
    /* The second has the id of one that is there. */
    const struct change bad[] = {{2, 1, "m2", "a", "2"}, {3, 1, "m1", "b", "3"}};
    CHECK(follow(s, 1, 1, bad, 2, &at) == KV_IO);
    CHECK_U64(kv_position(s), 1);
    holds(s, "a", "1");
    sums_up(s, &sums);
    CHECK_U64(put(s, 1, "m2", "b", "2"), 2);
    kv_close(s);
}

/* --- copies that follow each other in turns --- */

struct kept {
    struct change changes[BATCH];
    char texts[BATCH][3][TEXT_SIZE];
    unsigned count;
};

static void keep(void *arg, const struct change *c)
{
    struct kept *k = arg;
    unsigned i = k->count++;
    (void)snprintf(k->texts[i][0], TEXT_SIZE, "%s", c->id);
    (void)snprintf(k->texts[i][1], TEXT_SIZE, "%s", c->key);
    (void)snprintf(k->texts[i][2], TEXT_SIZE, "%s", c->value);
    k->changes[i] =
        (struct change){c->position, c->epoch, k->texts[i][0], k->texts[i][1], k->texts[i][2]};
}

/* As a primary does, in batches; `batches` of them at the most. */
static void bring(struct kv *from, struct kv *to, const struct kv_batch *as, unsigned batches)
{
    uint64_t at = kv_position(from);
    while (batches-- > 0 && tap_failures() == 0) {
        struct kept k = {.count = 0};
        uint64_t epoch = 0, before = at;
        CHECK(kv_epoch_at(from, at, &epoch) && kv_changes(from, at, BATCH, keep, &k));
        struct kv_batch b = *as;
        b.base = kv_base(from);
        b.last = kv_position(from);
        b.origin = kv_origin(from);
        b.after = at;
        b.after_epoch = epoch;
        b.changes = k.changes;
        b.count = k.count;
        enum kv_result r = kv_follow(to, &b, &at);
        CHECK(r == KV_OK ? at >= before : r == KV_ELSEWHERE && at < before);
        if (r == KV_OK && at == kv_position(from)) {
            return;
        }
    }
}

static void copies_agree_in_the_end(void)
{
    struct tap_rand r = {tap_seed(1)};
    struct kv *all[STORES];
    uint64_t made = 0;
    for (unsigned i = 0; i < STORES; i++) {
        char name[TEXT_SIZE];
        (void)snprintf(name, sizeof name, "copy-%u", i);
        all[i] = fresh(name);
    }
    unsigned primary = 0;
    struct kv_batch as = {.epoch = 0};
    for (uint64_t epoch = 1; epoch <= ROUNDS && tap_failures() == 0; epoch++) {
        primary = (unsigned)tap_rand_below(&r, STORES);
        as = (struct kv_batch){.epoch = epoch, .start = kv_position(all[primary])};
        for (uint64_t n = tap_rand_below(&r, 6); n > 0; n--) {
            char id[TEXT_SIZE], key[TEXT_SIZE], value[TEXT_SIZE];
            (void)snprintf(id, sizeof id, "m%u", (unsigned)++made);
            (void)snprintf(key, sizeof key, "k%u", (unsigned)tap_rand_below(&r, KEYS));
            (void)snprintf(value, sizeof value, "v%u", (unsigned)made);
            (void)put(all[primary], epoch, id, key, value);
        }
        bring(all[primary], all[tap_rand_below(&r, STORES)], &as, (unsigned)tap_rand_below(&r, 3));
    }
    struct kv_sums want, got;
    sums_up(all[primary], &want);
    for (unsigned i = 0; i < STORES; i++) {
        bring(all[primary], all[i], &as, UINT16_MAX);
        sums_up(all[i], &got);
        CHECK_U64(got.sum, want.sum);
        CHECK_U64(got.items, want.items);
        CHECK_U64(kv_position(all[i]), kv_position(all[primary]));
    }
    for (unsigned i = 0; i < STORES; i++) {
        kv_close(all[i]);
    }
}

/* --- trimming, and what no log leads to --- */

static void fill(struct kv *s, uint64_t epoch, unsigned from, unsigned upto)
{
    for (unsigned i = from; i < upto; i++) {
        char id[TEXT_SIZE], key[TEXT_SIZE];
        (void)snprintf(id, sizeof id, "m%u", i);
        (void)snprintf(key, sizeof key, "k%03u", i % 700);
        (void)put(s, epoch, id, key, id);
    }
}

static void trims_its_log(void)
{
    struct kv *s = fresh("trims");
    struct kv_sums sums;
    uint64_t epoch = 0, at = 0;
    kv_keep(s, 20, UINT64_MAX);
    fill(s, 1, 0, 200);
    CHECK(kv_base(s) >= 170 && kv_base(s) <= 180);
    CHECK(!kv_epoch_at(s, kv_base(s) - 1, &epoch));
    CHECK(kv_epoch_at(s, kv_base(s), &epoch) && epoch == 1);
    sums_up(s, &sums);
    CHECK(kv_put(s, 1, "m150", "x", "y", &at) == KV_REPEATED); /* known longer than the log is */
    CHECK(kv_put(s, 1, "m3", "x", "y", &at) == KV_OK);
    kv_keep(s, 20, 190); /* a snapshot of there needs what comes after it */
    fill(s, 1, 200, 300);
    CHECK(kv_base(s) <= 190);
    fill(s, 1, 300, 800); /* but not for ever */
    CHECK(kv_base(s) >= 800 - 20 * KV_LOG_PINNED - 20);
    kv_close(s);
    s = kv_open(path_of("trims"), &whole);
    if (CHECK(s != NULL)) {
        sums_up(s, &sums);
        CHECK_U64(kv_position(s), 801);
        kv_close(s);
    }
}

static void tells_a_gap(void)
{
    struct kv *s = fresh("gaps");
    uint64_t at = 0;
    kv_keep(s, 20, UINT64_MAX);
    fill(s, 1, 0, 100);
    uint64_t base = kv_base(s);
    struct kv_batch b = {.epoch = 2, .start = UINT64_MAX, .last = UINT64_MAX, .origin = ""};
    b.after = b.base = 101; /* the primary's log begins past this copy's end */
    b.after_epoch = 1;
    CHECK(kv_follow(s, &b, &at) == KV_GAP);
    b.base = 0;
    b.after = b.last = base - 1; /* or ends before its beginning */
    CHECK(kv_follow(s, &b, &at) == KV_GAP);
    b.last = 100;
    CHECK(kv_follow(s, &b, &at) == KV_ELSEWHERE && at == base);
    b.after = base;
    b.after_epoch = 9; /* or parts from it before */
    CHECK(kv_follow(s, &b, &at) == KV_GAP);
    b.after_epoch = 1;
    b.origin = "0123456789abcdef"; /* or is another merge's */
    CHECK(kv_follow(s, &b, &at) == KV_GAP);
    b.origin = "";
    CHECK(kv_follow(s, &b, &at) == KV_OK && at == base);
    b.start = base - 1; /* what was trimmed would have to be undone */
    CHECK(kv_follow(s, &b, &at) == KV_GAP);
    CHECK_U64(kv_position(s), 100);
    kv_close(s);
}

/* --- snapshots --- */

struct rows {
    struct kv_row all[KV_CHUNK];
    char texts[KV_CHUNK][2][TEXT_SIZE];
    size_t count;
};

static void keep_row(void *arg, const struct kv_row *row)
{
    struct rows *k = arg;
    size_t i = k->count++;
    (void)snprintf(k->texts[i][0], TEXT_SIZE, "%s", row->key);
    (void)snprintf(k->texts[i][1], TEXT_SIZE, "%s", row->value != NULL ? row->value : "");
    k->all[i] =
        (struct kv_row){row->position, k->texts[i][0], row->value != NULL ? k->texts[i][1] : NULL};
}

static bool make_snapshot(const char *to, const char *start, const char *end)
{
    const struct kv_piece piece = {path_of("from"), start, end};
    return kv_snapshot_make(&piece, to, "one");
}

static enum kv_result install(struct kv *to, const char *path, const struct kv_snapshot *of)
{
    static struct rows rows;
    struct kv_chunk c = {.of = of, .number = kv_install_next(to, of), .rows = rows.all};
    rows.count = 0;
    CHECK(kv_snapshot_chunk(path, c.number, keep_row, &rows));
    c.count = rows.count;
    return kv_install(to, &c);
}

static void installs_a_snapshot_chunk_by_chunk(void)
{
    struct kv *s = fresh("from"), *to = fresh("to");
    struct kv_snapshot of;
    struct kv_sums want, got;
    char path[160];
    uint64_t at = 0;
    (void)snprintf(path, sizeof path, "%s.snapshot", path_of("from"));
    fill(s, 3, 0, 1000);
    (void)put(to, 1, "old", "zzz", "gone"); /* what an earlier attempt left */
    CHECK(make_snapshot(path, "", NULL) && kv_snapshot_read(path, &of));
    CHECK_STR(of.name, "one");
    CHECK_U64(of.position, 1000);
    CHECK_U64(of.items, 700);
    CHECK_U64(of.ids, 1000);
    CHECK_U64(kv_chunks(&of), 7);
    fill(s, 3, 1000, 1100); /* it is of one moment */
    for (unsigned i = 0; i < 3; i++) {
        CHECK(install(to, path, &of) == KV_OK);
    }
    CHECK(kv_incomplete(to) && kv_position(to) == 0);
    const struct kv_batch b = {.epoch = 3, .last = 1100, .origin = "", .start = UINT64_MAX};
    CHECK(kv_follow(to, &b, &at) == KV_GAP); /* no copy before it is whole */
    kv_close(to);
    to = kv_open(path_of("to"), &whole); /* it goes on after the last durable one */
    CHECK_U64(kv_install_next(to, &of), 3);
    while (kv_install_next(to, &of) < kv_chunks(&of) && tap_failures() == 0) {
        CHECK(install(to, path, &of) == KV_OK);
    }
    CHECK(!kv_incomplete(to) && kv_position(to) == 1000 && kv_epoch(to) == 3);
    sums_up(to, &got);
    CHECK_U64(got.sum, of.running);
    holds(to, "zzz", NULL);
    CHECK(kv_put(to, 3, "m999", "x", "y", &at) == KV_REPEATED);
    struct kv_batch as = {.epoch = 3, .start = 0};
    bring(s, to, &as, UINT16_MAX);
    sums_up(s, &want);
    sums_up(to, &got);
    CHECK_U64(got.sum, want.sum);
    kv_close(s);
    kv_close(to);
    CHECK(kv_delete(path) > 0);
}

static void begins_anew_when_the_whole_is_damaged(void)
{
    struct kv *s = fresh("from"), *to = fresh("to");
    struct kv_snapshot of;
    char path[160];
    (void)snprintf(path, sizeof path, "%s.snapshot", path_of("from"));
    fill(s, 3, 0, 100);
    CHECK(make_snapshot(path, "", NULL) && kv_snapshot_read(path, &of));
    of.running ^= 1;
    CHECK(install(to, path, &of) == KV_GAP);
    CHECK(kv_incomplete(to) && kv_install_next(to, &of) == 0);
    of.running ^= 1;
    CHECK(install(to, path, &of) == KV_OK && !kv_incomplete(to));
    CHECK(kv_lose(to) && kv_incomplete(to) && kv_position(to) == 0);
    CHECK(install(to, path, &of) == KV_OK && kv_position(to) == 100);
    kv_close(s);
    kv_close(to);
    CHECK(kv_delete(path) > 0);
}

static void takes_a_part(void)
{
    const struct kv_spec spec = {7, "k100", "k300"};
    struct kv *s = fresh("from");
    CHECK(kv_delete(path_of("to")) >= 0);
    struct kv *to = kv_open(path_of("to"), &spec);
    struct kv_snapshot of;
    struct kv_sums part, got;
    char path[160];
    (void)snprintf(path, sizeof path, "%s.snapshot", path_of("from"));
    fill(s, 3, 0, 500);
    CHECK(make_snapshot(path, "k100", "k300") && kv_snapshot_read(path, &of));
    CHECK_U64(of.items, 200);
    while (kv_install_next(to, &of) < kv_chunks(&of) && tap_failures() == 0) {
        CHECK(install(to, path, &of) == KV_OK);
    }
    fill(s, 3, 500, 900); /* of all keys: those of others are positions and nothing else */
    struct kv_batch as = {.epoch = 3, .start = 0};
    bring(s, to, &as, UINT16_MAX);
    CHECK(kv_sums_of(s, "k100", "k300", &part));
    sums_up(to, &got);
    CHECK(got.items == 200 && part.items == 200 && kv_position(to) == 900);
    CHECK_U64(got.sum, part.sum);
    kv_close(s);
    kv_close(to);
    CHECK(kv_delete(path) > 0);
}

/* --- children --- */

static struct kv *
derive(const char *name, const struct kv_spec *spec, const struct kv_piece *pieces, size_t n)
{
    CHECK(kv_delete(path_of(name)) >= 0 && kv_derive(path_of(name), spec, pieces, n));
    struct kv *s = kv_open(path_of(name), spec);
    CHECK(s != NULL);
    return s;
}

static char *own_path(const char *name)
{
    return mem_strdup(path_of(name));
}

static void splits_and_merges(void)
{
    struct kv *s = fresh("parent");
    struct kv_sums left_sums, right_sums, all, merged;
    const struct kv_spec low = {7, "", "k300"}, high = {7, "k300", NULL};
    char *parent = own_path("parent"), *one = own_path("left"), *two = own_path("right");
    uint64_t at = 0;
    fill(s, 3, 0, 500);
    sums_up(s, &all);
    struct kv *left = derive("left", &low, &(struct kv_piece){parent, "", "k300"}, 1);
    struct kv *right = derive("right", &high, &(struct kv_piece){parent, "k300", NULL}, 1);
    sums_up(left, &left_sums);
    sums_up(right, &right_sums);
    CHECK(left_sums.items == 300 && right_sums.items == 200);
    CHECK_U64(left_sums.sum + right_sums.sum, all.sum);
    CHECK(kv_position(left) == 500 && kv_epoch(left) == 3); /* the log is the parent's */
    CHECK(kv_put(left, 4, "m400", "k000", "x", &at) == KV_REPEATED);
    CHECK(!kv_in_range(left, "k300") && kv_in_range(right, "k300") && kv_in_range(left, "k2999"));
    /* A copy of a child that was behind gets what is left of the parent's log. */
    (void)put(left, 4, "left", "k001", "new");
    struct kv_batch as = {.epoch = 4, .start = 500};
    kv_close(derive("late", &low, &(struct kv_piece){parent, "", "k300"}, 1));
    struct kv *late = kv_open(path_of("late"), &low);
    bring(left, late, &as, UINT16_MAX);
    holds(late, "k001", "new");
    CHECK(kv_running(late) == kv_running(left));
    /* Merged again, on two nodes, from equal files. */
    const struct kv_piece both[] = {{one, "", "k300"}, {two, "k300", NULL}};
    struct kv *whole_again = derive("merged", &whole, both, 2);
    struct kv *other = derive("other", &whole, both, 2);
    sums_up(whole_again, &merged);
    CHECK_U64(merged.items, 500);
    CHECK_U64(merged.sum, kv_running(left) + kv_running(right));
    CHECK(kv_position(whole_again) == 501 && kv_base(whole_again) == 501);
    CHECK(kv_put(whole_again, 5, "left", "k001", "new", &at) == KV_REPEATED);
    CHECK_STR(kv_origin(whole_again), kv_origin(other));
    as = (struct kv_batch){.epoch = 5, .start = 501};
    (void)put(whole_again, 5, "m", "k400", "new");
    bring(whole_again, other, &as, UINT16_MAX);
    CHECK_U64(kv_running(other), kv_running(whole_again));
    /* One that was made of another state shares no log with it. */
    (void)put(right, 4, "right", "k400", "lost");
    kv_close(other);
    other = derive("other", &whole, both, 2);
    struct kv_batch b = {.epoch = 5,
                         .start = 501,
                         .last = 502,
                         .base = 501,
                         .after = 501,
                         .after_epoch = 4,
                         .origin = kv_origin(whole_again)};
    CHECK(kv_follow(other, &b, &at) == KV_GAP);
    struct kv *all_of_them[] = {s, left, right, late, whole_again, other};
    for (size_t i = 0; i < 6; i++) {
        kv_close(all_of_them[i]);
    }
    mem_free(parent);
    mem_free(one);
    mem_free(two);
}

static void a_bound(const char *bytes, size_t len, const char *want)
{
    char *bound = kv_bound(bytes, len);
    CHECK_STR(bound, want);
    free(bound);
}

static void bounds_are_texts(void)
{
    a_bound(NULL, 0, "");
    a_bound("abc", 3, "abc");
    a_bound("abc\0", 4, "abc\001");
    a_bound("a\0bc", 4, "a\001");
    a_bound("\0", 1, "\001");
    const struct kv_spec one = {7, "key", "key\001"};
    CHECK(kv_delete(path_of("bound")) >= 0);
    struct kv *s = kv_open(path_of("bound"), &one);
    CHECK(kv_in_range(s, "key") && !kv_in_range(s, "ke") && !kv_in_range(s, "key\001"));
    CHECK(!kv_in_range(s, "key2") && !kv_in_range(s, "kez"));
    kv_close(s);
}

static void describes_a_file(void)
{
    const struct kv_spec spec = {9, "b", "d"};
    uint64_t copy = 0;
    char *start = NULL, *end = NULL;
    CHECK(kv_delete(path_of("range")) >= 0);
    kv_close(kv_open(path_of("range"), &spec));
    if (CHECK(kv_describe(path_of("range"), &copy, &start, &end) == KV_OK)) {
        CHECK_U64(copy, 9);
        CHECK_STR(start, "b");
        CHECK_STR(end, "d");
    }
    free(start);
    free(end);
    CHECK(kv_open(path_of("range"), &(struct kv_spec){9, "b", "e"}) == NULL);
    CHECK(kv_describe(path_of("nowhere"), &copy, &start, &end) == KV_IO);
}

int main(void)
{
    if (mkdtemp(directory) == NULL) {
        return 1;
    }
    RUN(applies_each_mutation_once);
    RUN(keeps_what_it_has);
    RUN(cuts_its_log_to_the_primarys);
    RUN(cuts_what_an_earlier_epoch_left);
    RUN(refuses_a_batch_as_a_whole);
    RUN(copies_agree_in_the_end);
    RUN(trims_its_log);
    RUN(tells_a_gap);
    RUN(installs_a_snapshot_chunk_by_chunk);
    RUN(begins_anew_when_the_whole_is_damaged);
    RUN(takes_a_part);
    RUN(splits_and_merges);
    RUN(describes_a_file);
    RUN(bounds_are_texts);
    static const char *const names[] = {
        "once", "cuts",   "left", "whole", "copy-0", "copy-1", "copy-2", "trims", "gaps", "from",
        "to",   "parent", "left", "right", "late",   "merged", "other",  "range", "bound"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        (void)kv_delete(path_of(names[i]));
    }
    (void)rmdir(directory);
    return tap_done();
}
