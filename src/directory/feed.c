/* SPDX-License-Identifier: Apache-2.0 */
/* Changes have sequence numbers; those in [tail, head) are in the ring, at slot number %
 * FEED_SLOTS. There are twice as many slots as changes may be kept, so a slot outlives its change's
 * place in the ring by DIR_FEED_CHANGES_MAX more. A reader loads tail, then head, inside an RCU
 * section: what it finds between them is not freed before the section ends, and is not overwritten
 * unless the writer laps it meanwhile, which it checks for at the end. */
#include "directory/feed.h"

#include "base/assert.h"
#include "base/mem.h"
#include "base/rcu.h"
#include "directory/directory.h"
#include "directory/feed_internal.h"

#include <stdatomic.h>

enum { FEED_SLOTS = 2 * DIR_FEED_CHANGES_MAX };
_Static_assert((FEED_SLOTS & (FEED_SLOTS - 1)) == 0, "sequence numbers wrap into slots");

struct listener {
    void (*fn)(void *arg, dir_rev revision);
    void *arg;
};

struct dir_feed {
    _Atomic uint64_t tail, head;
    _Atomic uint64_t
        oldest; /* revision of the newest change that is gone; stored before tail moves past it */
    uint64_t routes; /* of all in the ring; the writer's */
    unsigned listener_count;
    struct listener listeners[DIR_FEED_LISTENERS];
    struct dir_change *_Atomic slots[FEED_SLOTS];
};

struct dir_change *change_ref(struct dir_change *c)
{
    atomic_fetch_add_explicit(&c->refs, 1, memory_order_relaxed);
    return c;
}

static void free_slice(struct slice s)
{
    mem_free((void *)(uintptr_t)s.data);
}

void change_unref(struct dir_change *c)
{
    if (c == NULL || atomic_fetch_sub_explicit(&c->refs, 1, memory_order_acq_rel) != 1) {
        return;
    }
    for (uint32_t i = 0; i < c->route_count; i++) {
        dir_route_close(&c->routes[i]);
    }
    void *encoded = atomic_load_explicit(&c->encoded, memory_order_acquire);
    if (encoded != NULL) {
        c->encoded_free(encoded);
    }
    mem_free(c->routes);
    mem_free(c->removed);
    free_slice(c->start);
    free_slice(c->end);
    mem_free(c);
}

static void unref_retired(void *change)
{
    change_unref(change);
}

static struct dir_change *change_at(const struct dir_feed *f, uint64_t number)
{
    return atomic_load_explicit(&f->slots[number % FEED_SLOTS], memory_order_acquire);
}

/* --- the writer --- */

struct dir_feed *feed_new(void)
{
    return mem_zalloc(sizeof(struct dir_feed));
}

static void evict_oldest(struct dir_feed *f)
{
    uint64_t tail = atomic_load_explicit(&f->tail, memory_order_relaxed);
    struct dir_change *c = change_at(f, tail);
    f->routes -= c->route_count;
    atomic_store_explicit(&f->oldest, c->revision, memory_order_release);
    atomic_store_explicit(&f->tail, tail + 1, memory_order_release);
    rcu_retire(unref_retired, c);
}

void feed_publish(struct dir_feed *f, struct dir_change *change)
{
    uint64_t head = atomic_load_explicit(&f->head, memory_order_relaxed);
    ASSERT(change->route_count <= DIR_CHANGE_ROUTES_MAX);
    ASSERT(head == f->tail ? change->revision > f->oldest
                           : change->revision >= change_at(f, head - 1)->revision);
    while (head - f->tail == DIR_FEED_CHANGES_MAX ||
           f->routes + change->route_count > DIR_FEED_ROUTES_MAX) {
        evict_oldest(f);
    }
    f->routes += change->route_count;
    atomic_store_explicit(&f->slots[head % FEED_SLOTS], change, memory_order_release);
    atomic_store_explicit(&f->head, head + 1, memory_order_release);
}

void feed_reset(struct dir_feed *f, dir_rev revision)
{
    while (f->tail != f->head) {
        evict_oldest(f);
    }
    atomic_store_explicit(&f->oldest, revision, memory_order_release);
}

void feed_free(struct dir_feed *f)
{
    if (f != NULL) {
        for (uint64_t i = f->tail; i < f->head; i++) {
            change_unref(change_at(f, i));
        }
        mem_free(f);
    }
}

void feed_listen(struct dir_feed *f, void (*fn)(void *arg, dir_rev revision), void *arg)
{
    ASSERT(f->listener_count < DIR_FEED_LISTENERS);
    f->listeners[f->listener_count++] = (struct listener){fn, arg};
}

void feed_wake(struct dir_feed *f, dir_rev revision)
{
    for (unsigned i = 0; i < f->listener_count; i++) {
        f->listeners[i].fn(f->listeners[i].arg, revision);
    }
}

/* --- readers --- */

dir_rev feed_oldest(const struct dir_feed *f)
{
    return atomic_load_explicit(&f->oldest, memory_order_acquire);
}

/* The first in [low, high) with a revision above `since`. */
static uint64_t first_after(const struct dir_feed *f, uint64_t low, uint64_t high, dir_rev since)
{
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (change_at(f, middle)->revision <= since) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Borrows the changes of [at, end) into `out`; at `max`, gives up the revision that would be cut
 * and sets `*ret_cut`. */
static uint64_t collect(const struct dir_feed *f,
                        uint64_t keyspace,
                        const uint64_t range[2],
                        struct dir_change **out,
                        uint64_t max,
                        bool *ret_cut)
{
    uint64_t count = 0;
    *ret_cut = false;
    for (uint64_t at = range[0]; at < range[1]; at++) {
        struct dir_change *c = change_at(f, at);
        if (keyspace != 0 && c->keyspace != keyspace) {
            continue;
        }
        if (count == max) {
            while (count > 0 && out[count - 1]->revision == c->revision) {
                count--;
            }
            *ret_cut = true;
            break;
        }
        out[count++] = c;
    }
    return count;
}

/* One try, inside an RCU section; -2 when the writer lapped it. */
static int64_t read_once(const struct dir_feed *f,
                         uint64_t keyspace,
                         const dir_rev revisions[2],
                         struct dir_change **out,
                         uint64_t max,
                         dir_rev *ret_last)
{
    uint64_t tail = atomic_load_explicit(&f->tail, memory_order_acquire);
    uint64_t head = atomic_load_explicit(&f->head, memory_order_acquire);
    if (revisions[0] < feed_oldest(f)) {
        return -1;
    }
    uint64_t range[2];
    range[0] = first_after(f, tail, head, revisions[0]);
    range[1] = first_after(f, range[0], head, revisions[1]);
    bool cut;
    uint64_t count = collect(f, keyspace, range, out, max, &cut);
    if (atomic_load_explicit(&f->head, memory_order_acquire) - tail >= FEED_SLOTS) {
        return -2;
    }
    if (cut && count == 0) {
        return -1;
    }
    for (uint64_t i = 0; i < count; i++) {
        (void)change_ref(out[i]);
    }
    *ret_last = cut ? out[count - 1]->revision : revisions[1];
    return (int64_t)count;
}

int64_t feed_read(const struct dir_feed *f,
                  uint64_t keyspace,
                  dir_rev since,
                  dir_rev upto,
                  struct dir_change **out,
                  uint64_t max,
                  dir_rev *ret_last)
{
    enum { TRIES = 3 };
    const dir_rev revisions[2] = {since, upto > since ? upto : since};
    int64_t count = -2;
    for (unsigned i = 0; i < TRIES && count == -2; i++) {
        rcu_enter();
        count = read_once(f, keyspace, revisions, out, max, ret_last);
        rcu_leave();
    }
    return count == -2 ? -1 : count;
}
