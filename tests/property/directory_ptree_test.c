/* SPDX-License-Identifier: Apache-2.0 */
/* ptree against a sorted array, with old versions kept and looked at again. */
#include "base/mem.h"
#include "directory/ptree.h"
#include "tests/harness/tap.h"

#include <stdlib.h>
#include <string.h>

enum { MODEL_MAX = 20000, OPERATIONS = 100000, SNAPSHOTS = 20, KEY_MAX = 1032 };

struct value {
    struct dir_object object;
    uint64_t number;
};

struct pair {
    uint8_t *key; /* owns, in the working model; of a snapshot too */
    size_t len;
    uint64_t number;
};

struct model {
    struct pair *pairs;
    size_t count;
};

static struct value *value_new(uint64_t number)
{
    struct value *v = mem_zalloc(sizeof *v);
    v->object.refs = 1;
    v->object.kind = DIR_KIND_BYTES;
    v->number = number;
    return v;
}

static struct slice key_of(const struct pair *p)
{
    return slice_of(p->key, p->len);
}

/* How many keys are < (or <=) `key`. */
static size_t model_rank(const struct model *m, struct slice key, bool or_equal)
{
    size_t low = 0, high = m->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        int c = slice_cmp(key_of(&m->pairs[middle]), key);
        if (c < 0 || (c == 0 && or_equal)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static bool model_has(const struct model *m, struct slice key)
{
    return model_rank(m, key, true) != model_rank(m, key, false);
}

static void model_put(struct model *m, struct slice key, uint64_t number)
{
    size_t at = model_rank(m, key, false);
    if (!model_has(m, key)) {
        memmove(m->pairs + at + 1, m->pairs + at, (m->count - at) * sizeof *m->pairs);
        m->pairs[at] = (struct pair){mem_dup(key.data, key.len), key.len, 0};
        m->count++;
    }
    m->pairs[at].number = number;
}

static void model_remove(struct model *m, struct slice key)
{
    size_t at = model_rank(m, key, false);
    mem_free(m->pairs[at].key);
    m->count--;
    memmove(m->pairs + at, m->pairs + at + 1, (m->count - at) * sizeof *m->pairs);
}

static struct model model_copy(const struct model *m)
{
    struct model copy = {mem_alloc((m->count + 1) * sizeof *m->pairs), m->count};
    for (size_t i = 0; i < m->count; i++) {
        copy.pairs[i] = m->pairs[i];
        copy.pairs[i].key = mem_dup(m->pairs[i].key, m->pairs[i].len);
    }
    return copy;
}

static void model_close(struct model *m)
{
    for (size_t i = 0; i < m->count; i++) {
        mem_free(m->pairs[i].key);
    }
    mem_free(m->pairs);
}

/* Kinds of keys that each strain another part: prefixes, heads, ties, padding, order at the edges.
 */
static struct slice random_key(struct tap_rand *r, unsigned flavour, uint8_t *out)
{
    size_t len = 0;
    switch (flavour) {
    case 0: /* short, of few letters: ties and zero padding */
        len = tap_rand_below(r, 13);
        for (size_t i = 0; i < len; i++) {
            static const uint8_t letters[] = {0x00, 0x01, 0x7f, 0xff};
            out[i] = letters[tap_rand_below(r, 4)];
        }
        break;
    case 1: /* a long common prefix, then a difference anywhere */
        len = tap_rand_below(r, KEY_MAX + 1);
        memset(out, 'p', len);
        if (len > 0) {
            out[tap_rand_below(r, len)] = (uint8_t)tap_rand(r);
        }
        break;
    case 2: /* eight random bytes */
        len = 8;
        for (size_t i = 0; i < len; i++) {
            out[i] = (uint8_t)tap_rand(r);
        }
        break;
    case 3: /* composite: a few groups, buckets in them */
        len = 44;
        memset(out, 0, len);
        memset(out, (int)tap_rand_below(r, 5) * 51, 24);
        (void)ptree_u64_key(tap_rand_below(r, 3000), out + 24);
        break;
    default: /* ff... and 00..., of any length */
        len = tap_rand_below(r, 40);
        memset(out, tap_rand_below(r, 2) == 0 ? 0 : 0xff, len);
        break;
    }
    return slice_of(out, len);
}

static void check_same(const struct ptree *t, const struct model *m)
{
    struct ptree_iter it;
    struct slice key;
    const struct value *v;
    size_t at = 0;
    bool same = t->count == m->count;
    for (ptree_seek(t, slice_of(NULL, 0), &it); (v = ptree_iter_get(&it, &key)) != NULL; at++) {
        same = same && at < m->count && v->number == m->pairs[at].number &&
               slice_eq(key, key_of(&m->pairs[at]));
        ptree_iter_next(&it);
    }
    CHECK(same && at == m->count);
}

static void check_lookups(const struct ptree *t, const struct model *m, struct slice key)
{
    size_t below = model_rank(m, key, false), up_to = model_rank(m, key, true);
    const struct value *got = ptree_get(t, key), *floor = ptree_floor(t, key), *v;
    struct ptree_iter it;
    struct slice there;
    CHECK((got != NULL) == (up_to > below));
    CHECK(got == NULL || got->number == m->pairs[below].number);
    CHECK((floor != NULL) == (up_to > 0));
    CHECK(floor == NULL || floor->number == m->pairs[up_to - 1].number);
    ptree_seek(t, key, &it);
    for (size_t i = below; i < below + 3; i++) {
        v = ptree_iter_get(&it, &there);
        CHECK((v != NULL) == (i < m->count));
        CHECK(v == NULL ||
              (v->number == m->pairs[i].number && slice_eq(there, key_of(&m->pairs[i]))));
        ptree_iter_next(&it);
    }
    ptree_seek_floor(t, key, &it);
    for (size_t i = up_to > 0 ? up_to - 1 : 0, end = i + 3; i < end; i++) {
        v = ptree_iter_get(&it, NULL);
        CHECK((v != NULL) == (i < m->count));
        CHECK(v == NULL || v->number == m->pairs[i].number);
        ptree_iter_next(&it);
    }
}

struct world {
    struct tap_rand rand;
    struct ptree tree;
    struct model model;
    struct ptree old_trees[SNAPSHOTS];
    struct model old_models[SNAPSHOTS];
};

static void one_put(struct world *w, struct slice key, uint64_t number)
{
    bool had = model_has(&w->model, key);
    struct value *old = ptree_put(&w->tree, key, value_new(number));
    CHECK((old != NULL) == had);
    CHECK(old == NULL || old->number == w->model.pairs[model_rank(&w->model, key, false)].number);
    dir_unref(old);
    model_put(&w->model, key, number);
}

static void one_remove(struct world *w, struct slice key)
{
    bool had = model_has(&w->model, key);
    struct value *old = ptree_remove(&w->tree, key);
    CHECK((old != NULL) == had);
    if (old != NULL && had) {
        CHECK_U64(old->number, w->model.pairs[model_rank(&w->model, key, false)].number);
        model_remove(&w->model, key);
    }
    dir_unref(old);
}

static void take_snapshot(struct world *w, size_t at)
{
    check_same(&w->old_trees[at], &w->old_models[at]);
    ptree_check(&w->old_trees[at]);
    ptree_unref(&w->old_trees[at]);
    model_close(&w->old_models[at]);
    w->old_trees[at] = ptree_ref(&w->tree);
    w->old_models[at] = model_copy(&w->model);
}

static void one_operation(struct world *w, unsigned i)
{
    uint8_t bytes[KEY_MAX];
    unsigned flavour = (unsigned)tap_rand_below(&w->rand, 5);
    struct slice key = random_key(&w->rand, flavour, bytes);
    bool growing = i / 10000 % 2 == 0; /* the tree waxes and wanes: splits, then merges */
    bool known = w->model.count > 0 && tap_rand_below(&w->rand, 4) > 0;
    if (tap_rand_below(&w->rand, 10) < (growing ? 7 : 3)) {
        one_put(w, key, i);
    } else if (known) {
        size_t at = tap_rand_below(&w->rand, w->model.count);
        size_t len = w->model.pairs[at].len;
        memcpy(bytes, w->model.pairs[at].key, len);
        one_remove(w, slice_of(bytes, len));
    } else {
        one_remove(w, key);
    }
    check_lookups(&w->tree, &w->model, random_key(&w->rand, flavour, bytes));
}

static void random_operations_match_a_sorted_array(void)
{
    static struct world w;
    w.rand.state = tap_seed(20261130);
    w.model.pairs = mem_alloc(MODEL_MAX * sizeof *w.model.pairs);
    for (unsigned i = 0; i < OPERATIONS && tap_failures() == 0; i++) {
        tap_note("operation %u", i);
        one_operation(&w, i);
        if (i % 500 == 0) {
            ptree_check(&w.tree);
        }
        if (i % 2500 == 0) {
            take_snapshot(&w, tap_rand_below(&w.rand, SNAPSHOTS));
        }
    }
    check_same(&w.tree, &w.model);
    for (size_t i = 0; i < SNAPSHOTS; i++) {
        check_same(&w.old_trees[i], &w.old_models[i]);
        ptree_unref(&w.old_trees[i]);
        model_close(&w.old_models[i]);
    }
    while (w.model.count > 0 && tap_failures() == 0) {
        one_remove(&w, key_of(&w.model.pairs[tap_rand_below(&w.rand, w.model.count)]));
        if (w.model.count % 500 == 0) {
            ptree_check(&w.tree);
        }
    }
    CHECK(w.tree.root == NULL && w.tree.count == 0);
    ptree_unref(&w.tree);
    model_close(&w.model);
}

/* The tree is made of `count` keys in an order, then taken down in an order. */
static void up_and_down(uint64_t count, bool ascending, bool front_first)
{
    struct ptree t = {NULL, 0};
    uint8_t bytes[8];
    for (uint64_t i = 0; i < count; i++) {
        uint64_t key = ascending ? i : count - 1 - i;
        CHECK(ptree_put(&t, ptree_u64_key(key, bytes), value_new(key)) == NULL);
    }
    ptree_check(&t);
    struct ptree whole = ptree_ref(&t);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t key = front_first ? i : count - 1 - i;
        struct value *v = ptree_remove(&t, ptree_u64_key(key, bytes));
        CHECK(v != NULL && v->number == key);
        dir_unref(v);
        if (i % 1000 == 0) {
            ptree_check(&t);
        }
    }
    CHECK(t.root == NULL && whole.count == count);
    ptree_check(&whole);
    ptree_unref(&whole);
}

static void sequential_keys_in_and_out(void)
{
    for (unsigned i = 0; i < 4; i++) {
        tap_note("ascending %u, front first %u", i & 1, i >> 1);
        up_and_down(20000, (i & 1) != 0, (i >> 1) != 0);
    }
}

/* A value is held once for each distinct leaf that names it, and by whoever else holds it; never
 * more or less. */
static void reference_counts_are_exact(void)
{
    enum { COUNT = 3000 };
    static struct value *values[COUNT];
    struct ptree t = {NULL, 0}, copies[10];
    uint8_t bytes[8];
    for (uint64_t i = 0; i < COUNT; i++) {
        values[i] = value_new(i);
        CHECK(ptree_put(&t, ptree_u64_key(i * 7919 % COUNT, bytes), dir_ref(values[i])) == NULL);
    }
    for (unsigned i = 0; i < 10; i++) {
        copies[i] = ptree_ref(&t);
        dir_unref(ptree_remove(&t, ptree_u64_key(i * 311, bytes)));
        dir_unref(ptree_put(&t, ptree_u64_key(i * 101 + 1, bytes), value_new(0)));
    }
    ptree_unref(&t);
    for (unsigned i = 0; i < 10; i++) {
        CHECK_U64(copies[i].count, COUNT - i);
        ptree_unref(&copies[i]);
    }
    for (uint64_t i = 0; i < COUNT; i++) {
        CHECK_U64(values[i]->object.refs, 1);
        dir_unref(values[i]);
    }
}

static void an_empty_tree_has_nothing(void)
{
    struct ptree t = {NULL, 0}, other = ptree_ref(&t);
    struct ptree_iter it;
    struct slice key = slice_of("k", 1);
    CHECK(ptree_get(&t, key) == NULL && ptree_floor(&t, key) == NULL);
    CHECK(ptree_remove(&t, key) == NULL);
    ptree_seek(&t, key, &it);
    CHECK(ptree_iter_get(&it, NULL) == NULL);
    ptree_seek_floor(&t, key, &it);
    CHECK(ptree_iter_get(&it, NULL) == NULL);
    ptree_iter_next(&it);
    CHECK(ptree_iter_get(&it, NULL) == NULL);
    ptree_check(&t);
    ptree_unref(&other);
    ptree_unref(&t);
}

/* The longest keys allowed, all of them: heap offsets stay within 16 bits. */
static void the_longest_keys_fit(void)
{
    static uint8_t bytes[PTREE_KEY_MAX];
    struct ptree t = {NULL, 0};
    struct tap_rand r = {7};
    for (uint64_t i = 0; i < 4000; i++) {
        uint64_t key = tap_rand_below(&r, 500);
        memset(bytes, (int)(key % 3), sizeof bytes);
        (void)ptree_u64_key(key, bytes + sizeof bytes - 8);
        if (i % 3 == 0) {
            dir_unref(ptree_remove(&t, slice_of(bytes, sizeof bytes)));
        } else {
            dir_unref(ptree_put(&t, slice_of(bytes, sizeof bytes), value_new(key)));
        }
    }
    ptree_check(&t);
    ptree_unref(&t);
}

int main(void)
{
    RUN(an_empty_tree_has_nothing);
    RUN(sequential_keys_in_and_out);
    RUN(reference_counts_are_exact);
    RUN(the_longest_keys_fit);
    RUN(random_operations_match_a_sorted_array);
    return tap_done();
}
