/* SPDX-License-Identifier: Apache-2.0 */
/* The change feed: what routes show changed, by revision, in a bounded ring that readers walk with
 * a cursor of their own. The writer (loop thread) never waits for a reader; a reader that fell out
 * of the ring is told so. */
#ifndef DIRECTORY_FEED_H
#define DIRECTORY_FEED_H

#include "directory/types.h"

enum {
    DIR_FEED_CHANGES_MAX = 65536,  /* changes kept in memory */
    DIR_FEED_ROUTES_MAX = 1 << 20, /* routes kept by all of them together */
    DIR_CHANGE_ROUTES_MAX =
        20000 /* a change of more routes is not carried: watchers of it are reset */
};

struct dir_route;

/* One committed change of one keyspace. Immutable, reference-counted (change_ref/change_unref, any
 * thread). */
struct dir_change {
    _Atomic uint32_t refs;
    dir_rev revision;
    uint64_t keyspace;
    enum dir_change_kind kind;
    bool oversize; /* too many routes to carry: fetch the map */
    uint32_t removed_count, route_count;
    uint64_t *removed;        /* retired partition ids */
    struct dir_route *routes; /* the new versions, in key order */
    /* The range that it touched: for watchers of a part. */
    struct slice start, end; /* owned, each from mem_alloc or NULL; end.data NULL: open */
    /* What the API made of it, once for all watchers. The first to set it (compare and swap) wins;
     * change_unref frees it with `encoded_free`. */
    _Atomic(void *) encoded;
    void (*encoded_free)(void *encoded);
};

struct dir_change *change_ref(struct dir_change *c);
void change_unref(struct dir_change *c);

struct dir_feed;

/* Collects references to the changes of one keyspace (0: of any) with revision in (since, upto],
 * oldest first, at most `max`, never cutting a revision in half. Returns the count, or -1 when the
 * ring no longer reaches back to `since` (the caller asks history, or answers `compacted`), or when
 * one revision alone has more than `max`.
 * `*ret_last` is the revision up to which the caller has now seen everything. Any thread that has
 * called rcu_reader_start(). */
int64_t feed_read(const struct dir_feed *f,
                  uint64_t keyspace,
                  dir_rev since,
                  dir_rev upto,
                  struct dir_change **out,
                  uint64_t max,
                  dir_rev *ret_last);

/* States after this revision can be followed from memory. Any thread. */
dir_rev feed_oldest(const struct dir_feed *f);

/* `fn` runs on the loop thread after each publish that changed a revision, and must only wake
 * somebody. At most DIR_FEED_LISTENERS of them, set before the loop runs. */
enum { DIR_FEED_LISTENERS = 64 };
void feed_listen(struct dir_feed *f, void (*fn)(void *arg, dir_rev revision), void *arg);

#endif
