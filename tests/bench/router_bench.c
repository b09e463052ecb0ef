/* SPDX-License-Identifier: Apache-2.0 */
/* What a router's readers and a node's writers pay: a lookup among a million routes while updates
 * arrive, against bsearch in a plain sorted array of the same routes; cadastre_may_write against an
 * uncontended mutex. All ratios are of one run, the median of alternating rounds.
 *
 *     router_bench [partitions...]
 *
 * Exit 1 when a target is missed. */
#include "base/clock.h"
#include "base/mem.h"
#include "base/parse.h"
#include "client/agent.h"
#include "client/router.h"
#include "tests/harness/tap.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 31, PASS = 20000, QUERIES = 1 << 18, UPDATES_PER_S = 1000, KEY_MAX = 32 };

struct bench {
    const char *kind;
    size_t count, key_len;
    bool text; /* keys share their beginnings */
    struct cl_entry **sorted;
    struct cadastre_router router;
    uint8_t (*queries)[KEY_MAX];
    _Atomic bool stop;
    _Atomic uint64_t updates;
    uint64_t revision;
};

static volatile uint64_t
    zero; /* the compiler can't know that results don't choose the next query */

static void make_key(const struct bench *b, uint64_t i, uint8_t out[KEY_MAX])
{
    if (b->text) {
        (void)snprintf((char *)out, KEY_MAX, "tenant-%06u/user-%08u", (unsigned)(i / 1000),
                       (unsigned)(i * 7));
    } else {
        uint64_t spread = __builtin_bswap64(i * (UINT64_MAX / b->count));
        memcpy(out, &spread, sizeof spread);
    }
}

static struct cl_entry *make_entry(const struct bench *b, uint64_t i, uint64_t revision)
{
    uint8_t start[KEY_MAX], end[KEY_MAX];
    make_key(b, i, start);
    make_key(b, i + 1, end);
    static const char node[] = "node-17", address[] = "10.0.0.17:9000";
    struct cl_route r = {.partition = i,
                         .epoch = revision,
                         .mod_revision = revision,
                         .max_age_ms = 30000,
                         .state = CADASTRE_ACTIVE,
                         .authority = CADASTRE_EXCLUSIVE,
                         .start = slice_of(start, i > 0 ? b->key_len : 0),
                         .end = slice_of(end, b->key_len),
                         .end_open = i + 1 == b->count,
                         .node = slice_of(node, sizeof node - 1),
                         .address = slice_of(address, sizeof address - 1),
                         .replica_count = 1};
    r.replicas[0] = (struct cl_replica){r.node, r.address, CADASTRE_ROLE_PRIMARY};
    struct cl_entry *e = cl_entry_new(&r);
    atomic_init(&e->seen_ms, clock_boot_ms());
    return e;
}

/* --- lookups --- */

static int by_start(const void *key, const void *element)
{
    const struct slice *k = key;
    return slice_cmp(*k, cl_entry_start(*(struct cl_entry *const *)element));
}

/* The greatest start <= key, as bsearch's comparison can't: written out, inline. */
static const struct cl_entry *array_find(const struct bench *b, struct slice key)
{
    size_t low = 0, high = b->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (by_start(&key, &b->sorted[middle]) >= 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return b->sorted[low - 1];
}

static struct slice query(const struct bench *b, uint64_t i)
{
    return slice_of(b->queries[i % QUERIES], b->key_len);
}

static uint64_t array_pass(const struct bench *b, uint64_t from)
{
    uint64_t sum = 0;
    for (uint64_t i = from; i < from + PASS; i++) {
        struct cadastre_route route;
        cl_entry_show(array_find(b, query(b, i + (sum & zero))), &route);
        sum += route.partition;
    }
    return sum;
}

static uint64_t router_pass(struct bench *b, uint64_t from)
{
    uint64_t sum = 0;
    for (uint64_t i = from; i < from + PASS; i++) {
        struct cadastre_route route;
        struct slice key = query(b, i + (sum & zero));
        if (cadastre_route(&b->router, key.data, key.len, &route) == CADASTRE_OK) {
            sum += route.partition;
        }
    }
    return sum;
}

static void *updater(void *arg)
{
    struct bench *b = arg;
    struct tap_rand r = {99};
    uint64_t start = clock_mono_ns();
    while (!atomic_load(&b->stop)) {
        uint64_t due = (clock_mono_ns() - start) / (UINT64_C(1000000000) / UPDATES_PER_S);
        for (; b->updates < due; b->updates++) {
            (void)cl_map_offer(&b->router.map,
                               make_entry(b, tap_rand_below(&r, b->count), ++b->revision));
            cl_map_publish(&b->router.map);
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

/* Prints a row; false when its target (0: none) is missed. */
static bool
row(const char *what, const char *kind, size_t n, double target, double ns, double ratio)
{
    char name[80];
    (void)snprintf(name, sizeof name, "%s.%s.%zu", what, kind, n);
    if (target > 0) {
        (void)printf("%-40s %8.2f %10.1f %8.3f\n", name, target, ns, ratio);
    } else {
        (void)printf("%-40s %8s %10.1f %8.3f\n", name, "-", ns, ratio);
    }
    (void)fflush(stdout);
    return target <= 0 || ratio <= target;
}

static bool compare(struct bench *b, const char *what)
{
    double array[ROUNDS], router[ROUNDS], ratio[ROUNDS];
    for (unsigned i = 0; i < ROUNDS; i++) {
        uint64_t from = i * (uint64_t)PASS, t0 = clock_mono_ns();
        uint64_t one = array_pass(b, from), t1 = clock_mono_ns();
        uint64_t two = router_pass(b, from), t2 = clock_mono_ns();
        if (one != two) {
            (void)fprintf(stderr, "the two do not agree\n");
            exit(2);
        }
        array[i] = (double)(t1 - t0) / PASS;
        router[i] = (double)(t2 - t1) / PASS;
        ratio[i] = router[i] / array[i];
    }
    (void)row("array", b->kind, b->count, 0, median(array), 1);
    return row(what, b->kind, b->count, b->count >= 1000000 ? 0.65 : 0, median(router),
               median(ratio));
}

static bool lookups(const char *kind, bool text, size_t count)
{
    struct bench *b = mem_zalloc(sizeof *b);
    struct tap_rand r = {7};
    struct cl_codec codec = {0};
    b->kind = kind;
    b->count = count;
    b->text = text;
    b->key_len = text ? strlen("tenant-000000/user-00000000") : 8;
    b->revision = 1;
    b->sorted = mem_alloc(count * sizeof(struct cl_entry *));
    struct cl_entry **loaded = mem_alloc(count * sizeof(struct cl_entry *));
    for (size_t i = 0; i < count; i++) {
        b->sorted[i] = make_entry(b, i, 1);
        loaded[i] = make_entry(b, i, 1);
    }
    b->queries = mem_alloc(QUERIES * sizeof *b->queries);
    for (size_t i = 0; i < QUERIES; i++) {
        make_key(b, tap_rand_below(&r, count), b->queries[i]);
        b->queries[i][b->key_len - 1] |= 1; /* inside a partition more often than at its start */
    }
    cl_map_init(&b->router.map);
    cl_map_load(&b->router.map, loaded, count);
    cl_map_publish(&b->router.map);
    mem_free(loaded);
    atomic_init(&b->router.codec, &codec);
    atomic_init(&b->router.state, CADASTRE_OK);
    b->router.max_age_ms = 3600000;
    atomic_store(&b->router.confirmed_ms, clock_boot_ms());
    bool ok = compare(b, "route");
    pthread_t thread;
    uint64_t start = clock_mono_ns();
    if (pthread_create(&thread, NULL, updater, b) != 0) {
        exit(2);
    }
    ok = compare(b, "route_updating") && ok;
    atomic_store(&b->stop, true);
    (void)pthread_join(thread, NULL);
    double seconds = (double)(clock_mono_ns() - start) / 1e9;
    (void)row("updates_per_s", kind, count, 0, (double)b->updates / seconds, 1);
    cl_map_close(&b->router.map);
    for (size_t i = 0; i < count; i++) {
        mem_free(b->sorted[i]);
    }
    mem_free(b->sorted);
    mem_free(b->queries);
    mem_free(b);
    return ok;
}

/* --- may_write --- */

static bool may_write(void)
{
    enum { CALLS = 200000, EPOCH = 42 };
    struct cadastre_agent *a = mem_zalloc(sizeof *a);
    struct cadastre_partition *p = mem_zalloc(sizeof *p);
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    double locked[ROUNDS], asked[ROUNDS], ratio[ROUNDS];
    uint64_t held = 0, allowed = 0;
    atomic_store(&p->may, EPOCH * 2);
    cl_until_set(&a->lease, clock_boot_ms() + 3600000);
    for (unsigned i = 0; i < ROUNDS; i++) {
        uint64_t t0 = clock_mono_ns();
        for (unsigned k = 0; k < CALLS; k++) {
            (void)pthread_mutex_lock(&mutex);
            held += 1 + zero;
            (void)pthread_mutex_unlock(&mutex);
        }
        uint64_t t1 = clock_mono_ns();
        for (unsigned k = 0; k < CALLS; k++) {
            allowed += cadastre_may_write(a, p, EPOCH + zero);
        }
        uint64_t t2 = clock_mono_ns();
        locked[i] = (double)(t1 - t0) / CALLS;
        asked[i] = (double)(t2 - t1) / CALLS;
        ratio[i] = asked[i] / locked[i];
    }
    if (held != allowed) {
        (void)fprintf(stderr, "writing was refused\n");
        exit(2);
    }
    mem_free(a);
    mem_free(p);
    (void)row("mutex", "uncontended", 1, 0, median(locked), 1);
    return row("may_write", "exclusive", 1, 1.0, median(asked), median(ratio));
}

/* The C library's locks cost less in a process of one thread, which no user of this is. */
static void *sleeper(void *arg)
{
    struct timespec pause = {0, 10000000};
    while (!atomic_load((_Atomic bool *)arg)) {
        (void)nanosleep(&pause, NULL);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    static const char *const sizes[] = {"10000", "1000000"};
    int count = argc > 1 ? argc - 1 : 2;
    (void)printf("%-40s %8s %10s %8s\n", "# name", "target", "measured", "ratio");
    static _Atomic bool stop;
    pthread_t other;
    if (pthread_create(&other, NULL, sleeper, &stop) != 0) {
        return 2;
    }
    bool ok = may_write();
    for (int i = 0; i < count; i++) {
        uint64_t n;
        if (!parse_u64(argc > 1 ? argv[i + 1] : sizes[i], 20000000, &n) || n == 0) {
            (void)fprintf(stderr, "usage: router_bench [partitions...]\n");
            return 2;
        }
        ok = lookups("token", false, n) && ok;
        ok = lookups("text", true, n) && ok;
    }
    atomic_store(&stop, true);
    (void)pthread_join(other, NULL);
    return ok ? 0 : 1;
}
