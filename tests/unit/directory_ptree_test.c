/* SPDX-License-Identifier: Apache-2.0 */
/* One writer that changes in place what only it holds, readers of what it published. For
 * ThreadSanitizer above all. */
#include "base/mem.h"
#include "base/rcu.h"
#include "directory/ptree.h"
#include "tests/harness/tap.h"

#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { KEYS = 500, VERSIONS = 3000, CHANGES_A_VERSION = 4, READERS = 2 };

struct value {
    struct dir_object object;
    uint64_t key, version;
};

/* All values of one version were put at or before it, and `total` is the sum of their keys. */
struct version {
    struct ptree tree;
    uint64_t number, total;
};

static struct version *published;
static _Atomic bool stop;

struct reader {
    pthread_t thread;
    _Atomic uint64_t reads;
    uint64_t wrong;
};

static void drop_version(void *arg)
{
    struct version *v = arg;
    ptree_unref(&v->tree);
    mem_free(v);
}

static void read_whole(struct reader *r, const struct version *v)
{
    struct ptree_iter it;
    struct slice key;
    const struct value *value;
    uint64_t total = 0, count = 0;
    for (ptree_seek(&v->tree, slice_of(NULL, 0), &it); (value = ptree_iter_get(&it, &key)) != NULL;
         ptree_iter_next(&it)) {
        total += value->key;
        count++;
        r->wrong += value->version > v->number;
        r->wrong += ptree_get(&v->tree, key) != value;
    }
    r->wrong += total != v->total;
    r->wrong += count != v->tree.count;
}

static void *read_on(void *arg)
{
    struct reader *r = arg;
    rcu_reader_start();
    while (!atomic_load(&stop)) {
        rcu_enter();
        read_whole(r, rcu_get(&published));
        rcu_leave();
        atomic_fetch_add(&r->reads, 1);
    }
    rcu_reader_stop();
    return NULL;
}

static void change(struct version *work, struct tap_rand *rand)
{
    uint64_t key = tap_rand_below(rand, KEYS);
    uint8_t bytes[8];
    struct value *old;
    if (tap_rand_below(rand, 2) == 0) {
        struct value *v = mem_zalloc(sizeof *v);
        *v = (struct value){{1, DIR_KIND_BYTES}, key, work->number};
        old = ptree_put(&work->tree, ptree_u64_key(key, bytes), v);
        work->total += key;
    } else {
        old = ptree_remove(&work->tree, ptree_u64_key(key, bytes));
    }
    work->total -= old != NULL ? old->key : 0;
    dir_unref(old);
}

static void publish(struct version *work)
{
    struct version *next = mem_alloc(sizeof *next), *before = published;
    *next = *work;
    next->tree = ptree_ref(&work->tree);
    rcu_publish(&published, next);
    if (before != NULL) {
        rcu_retire(drop_version, before);
    }
}

static void readers_see_whole_versions(void)
{
    struct version work = {.number = 0};
    struct reader readers[READERS] = {{.wrong = 0}};
    struct tap_rand rand = {tap_seed(3)};
    publish(&work);
    for (unsigned i = 0; i < READERS; i++) {
        CHECK(pthread_create(&readers[i].thread, NULL, read_on, &readers[i]) == 0);
    }
    for (work.number = 1; work.number <= VERSIONS; work.number++) {
        for (unsigned i = 0; i < CHANGES_A_VERSION; i++) {
            change(&work, &rand);
        }
        publish(&work);
    }
    for (unsigned i = 0; i < READERS; i++) {
        while (atomic_load(&readers[i].reads) == 0) {
            (void)sched_yield();
        }
    }
    atomic_store(&stop, true);
    for (unsigned i = 0; i < READERS; i++) {
        CHECK(pthread_join(readers[i].thread, NULL) == 0);
        CHECK_U64(readers[i].wrong, 0);
    }
    rcu_drain();
    ptree_check(&work.tree);
    drop_version(published);
    ptree_unref(&work.tree);
}

int main(void)
{
    RUN(readers_see_whole_versions);
    return tap_done();
}
