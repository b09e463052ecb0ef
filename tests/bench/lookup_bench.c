/* SPDX-License-Identifier: Apache-2.0 */
/* In-process lookups: a ptree against the plain way (a sorted array of pointers to key structs,
 * searched with memcmp), in the same run and over the same objects, each lookup waiting for the one
 * before. One line a row:
 *
 *     name  target  measured  ratio
 *
 * `measured` is nanoseconds (or bytes) and `ratio` is measured against the array (or the target).
 * Sizes are arguments; without any: 10000 100000 1000000. Exit 1 when a target of a size >= 1000000
 * is missed. */
#include "base/clock.h"
#include "base/mem.h"
#include "base/parse.h"
#include "base/rcu.h"
#include "directory/ptree.h"
#include "tests/harness/tap.h"

#include <inttypes.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    QUERIES = 1 << 18,
    PASS = QUERIES / 4, /* of one round; the next round takes the next ones */
    ROUNDS = 15,
    UPDATES_PER_S = 1000,
    GROUP_PARTITIONS = 64, /* of one composite group */
    KEY_MAX = 48,
    REPLICAS = 3
};

struct entry {
    struct dir_object object;
    uint64_t number;
    uint16_t len;
    uint8_t key[];
};

struct query {
    uint8_t key[KEY_MAX];
};

struct bench {
    const char *kind;
    uint64_t count;
    size_t key_len;
    struct entry **sorted;
    struct ptree tree; /* the writer's */
    struct ptree *published;
    struct query *queries;
    _Atomic bool stop;
    _Atomic uint64_t updates;
};

static volatile uint64_t
    zero; /* the compiler can't know that results don't choose the next query */

static struct slice entry_key(const struct entry *e)
{
    return slice_of(e->key, e->len);
}

static int compare_entries(const void *a, const void *b)
{
    return slice_cmp(entry_key(*(struct entry *const *)a), entry_key(*(struct entry *const *)b));
}

/* Big-endian hash of the group, the group's name, the start of a time bucket, a subshard, an entry:
 * 44 bytes. */
static void composite_key(uint64_t i, uint64_t entry, uint8_t *out)
{
    uint64_t group = i / GROUP_PARTITIONS, within = i % GROUP_PARTITIONS;
    char name[17];
    (void)snprintf(name, sizeof name, "tenant-%09u", (unsigned)group);
    (void)ptree_u64_key(hash_xxh64(name, 16), out);
    memcpy(out + 8, name, 16);
    (void)ptree_u64_key(1700000000000 + within / 4 * 86400000, out + 24);
    memset(out + 32, 0, 4);
    out[35] = (uint8_t)(within % 4);
    (void)ptree_u64_key(entry, out + 36);
}

static void
make_key(const struct bench *b, uint64_t i, struct tap_rand *r, bool query, uint8_t *out)
{
    if (b->key_len == 8) {
        (void)ptree_u64_key(tap_rand(r), out);
    } else {
        composite_key(i, query ? tap_rand(r) : 0, out);
    }
}

static struct entry *entry_new(struct slice key, uint64_t number)
{
    struct entry *e = mem_alloc(sizeof *e + key.len);
    *e = (struct entry){{1, DIR_KIND_BYTES}, number, (uint16_t)key.len};
    memcpy(e->key, key.data, key.len);
    return e;
}

static size_t heap_bytes(void)
{
    struct mallinfo2 m = mallinfo2();
    return m.uordblks + m.hblkhd;
}

/* Prints a row; false when a target that counts (0: none) is missed. A target above 1 is one for
 * `measured`. */
static bool
row(const struct bench *b, const char *what, double target, double measured, double ratio)
{
    char name[96];
    (void)snprintf(name, sizeof name, "%s.%s.%" PRIu64, what, b->kind, b->count);
    if (target > 0) {
        (void)printf("%-36s %8.2f %10.1f %8.3f\n", name, target, measured, ratio);
    } else {
        (void)printf("%-36s %8s %10.1f %8.3f\n", name, "-", measured, ratio);
    }
    (void)fflush(stdout);
    return target <= 0 || b->count < 1000000 || (target > 1 ? measured : ratio) <= target;
}

static uint64_t array_pass(const struct bench *b, uint64_t from)
{
    uint64_t sum = 0;
    for (uint64_t i = from; i < from + PASS; i++) {
        struct slice key = slice_of(b->queries[(i + (sum & zero)) % QUERIES].key, b->key_len);
        uint64_t low = 0, high = b->count;
        while (low < high) {
            uint64_t middle = (low + high) / 2;
            if (slice_cmp(entry_key(b->sorted[middle]), key) <= 0) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        sum += low > 0 ? b->sorted[low - 1]->number : 0;
    }
    return sum;
}

static uint64_t tree_pass(struct bench *b, uint64_t from)
{
    uint64_t sum = 0;
    for (uint64_t i = from; i < from + PASS; i++) {
        struct slice key = slice_of(b->queries[(i + (sum & zero)) % QUERIES].key, b->key_len);
        rcu_enter();
        const struct entry *e = ptree_floor(rcu_get(&b->published), key);
        sum += e != NULL ? e->number : 0;
        rcu_leave();
    }
    return sum;
}

static void drop_tree(void *arg)
{
    ptree_unref(arg);
    mem_free(arg);
}

static void publish(struct bench *b)
{
    struct ptree *next = mem_alloc(sizeof *next), *before = b->published;
    *next = ptree_ref(&b->tree);
    rcu_publish(&b->published, next);
    if (before != NULL) {
        rcu_retire(drop_tree, before);
    }
}

/* Replaces one value as a move would, and publishes. */
static void update(struct bench *b, struct tap_rand *r)
{
    const struct entry *e = b->sorted[tap_rand_below(r, b->count)];
    dir_unref(ptree_put(&b->tree, entry_key(e), entry_new(entry_key(e), e->number)));
    publish(b);
}

static void *updater(void *arg)
{
    struct bench *b = arg;
    struct tap_rand r = {99};
    uint64_t start = clock_mono_ns();
    while (!atomic_load(&b->stop)) {
        uint64_t due = (clock_mono_ns() - start) / (UINT64_C(1000000000) / UPDATES_PER_S);
        for (; b->updates < due; b->updates++) {
            update(b, &r);
        }
        struct timespec pause = {0, 200000};
        (void)nanosleep(&pause, NULL);
    }
    return NULL;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values)
{
    qsort(values, ROUNDS, sizeof *values, compare_doubles);
    return values[ROUNDS / 2];
}

/* Alternates, so that a noisy time hits both: the ratio is the median of the rounds' ratios. */
static bool compare(struct bench *b, const char *what)
{
    double array[ROUNDS], tree[ROUNDS], ratio[ROUNDS];
    uint64_t sum_array = 0, sum_tree = 0;
    for (unsigned i = 0; i < ROUNDS; i++) {
        uint64_t from = i * (uint64_t)PASS % QUERIES, t0 = clock_mono_ns();
        sum_array += array_pass(b, from);
        uint64_t t1 = clock_mono_ns();
        sum_tree += tree_pass(b, from);
        uint64_t t2 = clock_mono_ns();
        array[i] = (double)(t1 - t0) / PASS;
        tree[i] = (double)(t2 - t1) / PASS;
        ratio[i] = tree[i] / array[i];
    }
    if (sum_array != sum_tree) {
        (void)fprintf(stderr, "the two do not agree\n");
        exit(2);
    }
    char name[64];
    (void)snprintf(name, sizeof name, "%s_array", what);
    (void)row(b, name, 0, median(array), 1);
    return row(b, what, 0.65, median(tree), median(ratio));
}

static void compare_while_updating(struct bench *b, bool *ok)
{
    pthread_t thread;
    b->stop = false;
    b->updates = 0;
    uint64_t start = clock_mono_ns();
    if (pthread_create(&thread, NULL, updater, b) != 0) {
        exit(2);
    }
    *ok = compare(b, "floor_updating") && *ok;
    b->stop = true;
    (void)pthread_join(thread, NULL);
    double seconds = (double)(clock_mono_ns() - start) / 1e9;
    (void)row(b, "updates_per_s", 0, (double)b->updates / seconds, 1);
    rcu_drain();
}

/* What a partition with three replicas costs beside the nodes of its two trees. */
static size_t partition_bytes(size_t key_len)
{
    void *p = mem_alloc(sizeof(struct dir_partition) + REPLICAS * sizeof(struct dir_replica) +
                        sizeof(uint64_t) + 2 * key_len);
    size_t bytes = malloc_usable_size(p) + sizeof(size_t);
    mem_free(p);
    return bytes;
}

/* Keys arrive in no order, which leaves nodes as full as splits leave them; ids ascend. */
static bool build(struct bench *b)
{
    struct tap_rand r = {42};
    struct ptree by_id = {NULL, 0};
    uint64_t *order = mem_alloc(b->count * sizeof *order);
    b->sorted = mem_alloc(b->count * sizeof(struct entry *));
    for (uint64_t i = 0; i < b->count; i++) {
        uint64_t j = tap_rand_below(&r, i + 1);
        order[i] = order[j];
        order[j] = i;
    }
    for (uint64_t i = 0; i < b->count; i++) {
        uint8_t key[KEY_MAX];
        make_key(b, order[i], &r, false, key);
        b->sorted[i] = entry_new(slice_of(key, b->key_len), i + 1);
    }
    mem_free(order);
    size_t before = heap_bytes();
    uint64_t start = clock_mono_ns();
    for (uint64_t i = 0; i < b->count; i++) {
        dir_unref(ptree_put(&b->tree, entry_key(b->sorted[i]), dir_ref(b->sorted[i])));
    }
    double put_ns = (double)(clock_mono_ns() - start) / (double)b->count;
    double by_start = (double)(heap_bytes() - before) / (double)b->count;
    before = heap_bytes();
    for (uint64_t i = 0; i < b->count; i++) {
        uint8_t id[8];
        dir_unref(ptree_put(&by_id, ptree_u64_key(i, id), dir_ref(b->sorted[i])));
    }
    double ids = (double)(heap_bytes() - before) / (double)b->count;
    ptree_unref(&by_id);
    qsort(b->sorted, b->count, sizeof(struct entry *), compare_entries);
    (void)row(b, "put_fresh", 0, put_ns, 1);
    (void)row(b, "bytes_by_start", 0, by_start, 1);
    (void)row(b, "bytes_by_id", 0, ids, 1);
    double all = by_start + ids + (double)partition_bytes(b->key_len);
    return row(b, "bytes_partition", 400, all, all / 400);
}

static bool run(const char *kind, size_t key_len, uint64_t count)
{
    struct bench b = {.kind = kind, .count = count, .key_len = key_len};
    struct tap_rand r = {7};
    bool ok = build(&b);
    b.queries = mem_alloc(QUERIES * sizeof *b.queries);
    for (uint64_t i = 0; i < QUERIES; i++) {
        make_key(&b, tap_rand_below(&r, count), &r, true, b.queries[i].key);
    }
    publish(&b);
    ok = compare(&b, "floor") && ok;
    compare_while_updating(&b, &ok);
    enum { UPDATES = 20000 };
    uint64_t start = clock_mono_ns();
    for (unsigned i = 0; i < UPDATES; i++) {
        update(&b, &r);
    }
    (void)row(&b, "put_publish", 0, (double)(clock_mono_ns() - start) / UPDATES, 1);
    rcu_drain();
    ptree_unref(b.published);
    mem_free(b.published);
    ptree_unref(&b.tree);
    for (uint64_t i = 0; i < count; i++) {
        dir_unref(b.sorted[i]);
    }
    mem_free(b.sorted);
    mem_free(b.queries);
    return ok;
}

int main(int argc, char **argv)
{
    static const char *const sizes[] = {"10000", "100000", "1000000"};
    bool ok = true;
    int count = argc > 1 ? argc - 1 : 3;
    rcu_reader_start();
    (void)printf("%-36s %8s %10s %8s\n", "# name", "target", "measured", "ratio");
    for (int i = 0; i < count; i++) {
        uint64_t n;
        if (!parse_u64(argc > 1 ? argv[i + 1] : sizes[i], 100000000, &n) || n == 0) {
            (void)fprintf(stderr, "usage: lookup_bench [partitions...]\n");
            return 2;
        }
        ok = run("random", 8, n) && ok;
        ok = run("composite", 44, n) && ok;
    }
    rcu_reader_stop();
    return ok ? 0 : 1;
}
