/* SPDX-License-Identifier: Apache-2.0 */
/* A persistent ordered map: byte-string keys (memcmp order) to reference-counted objects, as a
 * B+tree whose nodes are reference-counted and copied on write (path copying: Driscoll, Sarnak,
 * Sleator, Tarjan 1989; per-node prefix truncation and 8-byte heads: Graefe & Larson 2001, "B-tree
 * indexes and CPU caches").
 *
 * A `struct ptree` is a value: copying it with ptree_ref() is O(1) and gives an independent map. A
 * node with one reference is changed in place, so a run of changes between two ptree_ref() costs
 * one copy per touched node. One thread changes a given value; any thread may read one that nobody
 * changes. Keys are copied into the tree. */
#ifndef DIRECTORY_PTREE_H
#define DIRECTORY_PTREE_H

#include "base/buf.h"
#include "directory/types.h"

struct ptree_node;

enum { PTREE_KEY_MAX = 1280 }; /* bytes; longer ones are our own mistake */

struct ptree {
    struct ptree_node *root; /* owns a reference; NULL when empty */
    uint64_t count;
};

struct ptree ptree_ref(const struct ptree *t);
void ptree_unref(struct ptree *t);

/* Takes over one reference of `value`. Returns the value that was there, with its reference, or
 * NULL. */
void *ptree_put(struct ptree *t, struct slice key, void *value) MUST_CHECK;
/* Returns the removed value with its reference, or NULL when there was none. */
void *ptree_remove(struct ptree *t, struct slice key) MUST_CHECK;

/* Borrowed, or NULL. */
void *ptree_get(const struct ptree *t, struct slice key);
/* The entry with the greatest key <= `key`, borrowed, or NULL. */
void *ptree_floor(const struct ptree *t, struct slice key);

/* An iterator borrows the tree, which must not change under it. */
enum { PTREE_DEPTH_MAX = 12 };
struct ptree_iter {
    const struct ptree_node *nodes[PTREE_DEPTH_MAX];
    uint16_t at[PTREE_DEPTH_MAX];
    uint8_t depth; /* 0: at the end */
};

/* To the first entry with a key >= `from` (an empty slice: the first of all). */
void ptree_seek(const struct ptree *t, struct slice from, struct ptree_iter *it);
/* To the entry that ptree_floor finds, or, when there is none, to the first. */
void ptree_seek_floor(const struct ptree *t, struct slice key, struct ptree_iter *it);
/* The entry here, borrowed, or NULL at the end. `ret_key` may be NULL. */
void *ptree_iter_get(const struct ptree_iter *it, struct slice *ret_key);
void ptree_iter_next(struct ptree_iter *it);

/* Aborts when order, fill, counts or prefixes are wrong. O(n), for tests. */
void ptree_check(const struct ptree *t);

/* 8 big-endian bytes: integers as keys. */
static inline struct slice ptree_u64_key(uint64_t v, uint8_t out[8])
{
    for (int i = 7; i >= 0; i--) {
        out[i] = (uint8_t)v;
        v >>= 8;
    }
    return slice_of(out, 8);
}

#endif
