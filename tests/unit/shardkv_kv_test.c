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

static const char *path_of(const char *name)
{
    static char path[128];
    (void)snprintf(path, sizeof path, "%s/%s.db", directory, name);
    return path;
}

static struct kv *fresh(const char *name)
{
    CHECK(kv_delete(path_of(name)) >= 0);
    return kv_open(path_of(name), 7);
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
    CHECK(kv_open(path_of("keeps"), 8) == NULL); /* another copy's */
    s = kv_open(path_of("keeps"), 7);
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
    const struct kv_batch b = {.epoch = 5, .start = 3, .after = 2, .after_epoch = 1};
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
    while (batches-- > 0) {
        struct kept k = {.count = 0};
        uint64_t epoch = 0, before = at;
        CHECK(kv_epoch_at(from, at, &epoch) && kv_changes(from, at, BATCH, keep, &k));
        struct kv_batch b = *as;
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
    static const char *const names[] = {"once",   "cuts",   "left",  "whole",
                                        "copy-0", "copy-1", "copy-2"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        (void)kv_delete(path_of(names[i]));
    }
    (void)rmdir(directory);
    return tap_done();
}
