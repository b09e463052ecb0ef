/* SPDX-License-Identifier: Apache-2.0 */
/* The cached map: non-overlapping entries by start, a B+tree whose published versions never change.
 * One writer makes the next version by copying the nodes it touches, once a batch, publishes its
 * root, and frees what was replaced when the last reader of the version before has left.
 *
 * The first 8 bytes of each key after what a node's keys share are kept beside each other as
 * integers, and the next 8 too, so that a search reads a few cache lines a level and entries only
 * to break a tie of 16 bytes. */
#ifndef CLIENT_MAP_H
#define CLIENT_MAP_H

#include "client/entry.h"
#include "client/readers.h"

struct cl_node;

enum { CL_RETIRED_MAX = 1 << 16 };

struct cl_map {
    _Atomic(struct cl_node *) root; /* what readers see; NULL: empty */
    struct cl_readers readers;
    /* The writer's: */
    struct cl_node *next; /* the version being made; the same as `root` between batches */
    uint64_t batch, count;
    /* Nodes and entries that newer versions do not have: of late, and those that are freed when the
     * readers of before have left. */
    struct cl_retired {
        void **items; /* owns, and owns them */
        size_t count, cap;
    } retired, leaving;
};

void cl_map_init(struct cl_map *m);
/* No reader is left. */
void cl_map_close(struct cl_map *m);

/* --- readers; any thread --- */

/* The entry with the greatest start <= key under `root`, or NULL. */
struct cl_entry *cl_map_floor(const struct cl_node *root, struct slice key);
/* The first entry with a start >= key, or NULL; `after`: with a start > key. */
struct cl_entry *cl_map_ceiling(const struct cl_node *root, struct slice key, bool after);

struct cl_map_view {
    const struct cl_node *root;
    _Atomic uint64_t *active;
};

/* What is found in a view is valid until it is left. */
static inline struct cl_map_view cl_map_enter(struct cl_map *m)
{
    _Atomic uint64_t *active = cl_readers_enter(&m->readers);
    return (struct cl_map_view){atomic_load(&m->root), active};
}

static inline void cl_map_leave(struct cl_map_view v)
{
    cl_readers_leave(v.active);
}

/* The entry that holds `key`, or NULL. It may be a gap. */
static inline struct cl_entry *cl_map_find(const struct cl_node *root, struct slice key)
{
    struct cl_entry *e = cl_map_floor(root, key);
    return e != NULL && cl_entry_reaches(e, key) ? e : NULL;
}

/* --- the writer; one thread at a time, and nothing is seen before cl_map_publish() --- */

enum cl_offer { CL_TAKEN, CL_KNOWN, CL_OLDER };

/* Takes over `e`. An entry that overlaps a newer one, by mod_revision, is refused; whatever an
 * entry overlaps that is older than it, taken or not, is removed, because it can't be right any
 * more. Where that leaves nothing, a gap remembers what was there, so that no older answer comes
 * back in its place. CL_KNOWN: this very version is there. */
enum cl_offer cl_map_offer(struct cl_map *m, struct cl_entry *e);
/* Removes the entry that starts here, if there is one. */
void cl_map_remove(struct cl_map *m, struct slice start);
/* Replaces all by `entries`, which are in order and do not overlap; takes over the entries. */
void cl_map_load(struct cl_map *m, struct cl_entry **entries, size_t count);
/* Shows the batch to readers, and frees what no reader holds any more. Waits for readers only when
 * CL_RETIRED_MAX pieces wait for them. */
void cl_map_publish(struct cl_map *m);

/* Aborts when order, counts, heads or prefixes are wrong, or entries overlap. For tests. */
void cl_map_check(const struct cl_map *m);

#endif
