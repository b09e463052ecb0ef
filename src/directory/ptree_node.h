/* SPDX-License-Identifier: Apache-2.0 */
/* One node of a ptree: a single allocation that holds everything a search in it needs.
 *
 *     header | prefix, padded to 8 | heads[cap] | pointers[cap] | slots[cap] | heap: the keys,
 * whole
 *
 * `prefix` is shared by all keys (not always the longest such); heads[i] is the 8 bytes of key i
 * after it, big-endian in a native integer and zero-padded, so that one integer comparison decides
 * unless two heads are equal.
 *
 * An inner node's key i is a separator: above every key under child i-1, at most the first under
 * child i. Its key 0 is empty, counts as below everything, and has no part in the prefix. */
#ifndef DIRECTORY_PTREE_NODE_H
#define DIRECTORY_PTREE_NODE_H

#include "directory/ptree.h"

#include <string.h>

enum {
    NODE_FANOUT = 32,
    NODE_FILL_MIN =
        8, /* but for the root and the right edge, which appending leaves nearly empty */
    NODE_MERGE_MAX = 28, /* two siblings that fit in this are merged */
    NODE_ROUND = 4       /* capacity grows by this */
};

struct ptree_node {
    _Atomic uint32_t refs;
    uint16_t prefix_len;
    uint16_t heap_used,
        heap_cap;  /* bytes; what removed keys occupied is used until the node is built anew */
    uint8_t level; /* 0: a leaf, its pointers are values */
    uint8_t count, cap;
    uint8_t unused[3];
};

enum { NODE_HEADER = 16 };
_Static_assert(sizeof(struct ptree_node) == NODE_HEADER, "the prefix follows the header");

struct node_slot {
    uint16_t at, len; /* of a key, in the heap */
};

/* A key and what it leads to, on the way from one node to another. */
struct node_entry {
    struct slice key;
    void *pointer;
};

static inline const uint8_t *node_prefix(const struct ptree_node *n)
{
    return (const uint8_t *)n + NODE_HEADER;
}

static inline size_t node_heads_at(size_t prefix_len)
{
    return NODE_HEADER + ((prefix_len + 7) & ~(size_t)7);
}

static inline uint64_t *node_heads(const struct ptree_node *n)
{
    return (uint64_t *)((uintptr_t)n + node_heads_at(n->prefix_len));
}

static inline void **node_pointers(const struct ptree_node *n)
{
    return (void **)(node_heads(n) + n->cap);
}

static inline struct node_slot *node_slots(const struct ptree_node *n)
{
    return (struct node_slot *)(node_pointers(n) + n->cap);
}

static inline uint8_t *node_heap(const struct ptree_node *n)
{
    return (uint8_t *)(node_slots(n) + n->cap);
}

static inline struct slice node_key(const struct ptree_node *n, unsigned i)
{
    struct node_slot s = node_slots(n)[i];
    return slice_of(node_heap(n) + s.at, s.len);
}

static inline struct ptree_node *node_child(const struct ptree_node *n, unsigned i)
{
    return node_pointers(n)[i];
}

static inline struct ptree_node **node_child_slot(const struct ptree_node *n, unsigned i)
{
    return (struct ptree_node **)&node_pointers(n)[i];
}

static inline uint64_t node_head_of(const uint8_t *rest, size_t len)
{
    uint64_t head = 0;
    if (len >= sizeof head) {
        memcpy(&head, rest, sizeof head);
    } else if (len > 0) {
        memcpy(&head, rest, len);
    }
    return __builtin_bswap64(head);
}

/* How many of the n ascending heads are <= x: first by fours, then one by one; neither branches on
 * the heads, and the comparisons of each step do not wait for one another. */
static inline unsigned node_heads_up_to(const uint64_t *heads, unsigned n, uint64_t x)
{
    unsigned whole = n / 4 * 4, at = 0;
    for (unsigned i = 3; i < whole; i += 4) {
        at += heads[i] <= x;
    }
    at *= 4;
    unsigned left = n - at < 3 ? n - at : 3, more = 0;
    for (unsigned i = 0; i < left; i++) {
        more += heads[at + i] <= x;
    }
    return at + more;
}

/* Settles a search among entries [0, end) whose last head equals that of `key`. */
unsigned
node_search_ties(const struct ptree_node *n, unsigned end, struct slice key, bool *ret_exact);

/* The order of a key, at least as long as the prefix, and the prefix. */
static inline int node_prefix_cmp(const struct ptree_node *n, struct slice key)
{
    for (size_t at = 0; at < n->prefix_len; at += 8) {
        size_t left = n->prefix_len - at;
        unsigned shift = left < 8 ? (unsigned)(64 - 8 * left) : 0;
        uint64_t mine = node_head_of(key.data + at, key.len - at) >> shift;
        uint64_t other = node_head_of(node_prefix(n) + at, 8) >> shift;
        if (mine != other) {
            return mine < other ? -1 : 1;
        }
    }
    return 0;
}

/* How many entries have a key <= `key` (of an inner node at least 1), and whether the last of them
 * is `key`. */
static inline unsigned node_search(const struct ptree_node *n, struct slice key, bool *ret_exact)
{
    unsigned first = n->level > 0;
    size_t prefix_len = n->prefix_len;
    *ret_exact = false;
    if (key.len < prefix_len) {
        return slice_cmp(key, slice_of(node_prefix(n), prefix_len)) < 0 ? first : n->count;
    }
    int c = node_prefix_cmp(n, key);
    if (c != 0) {
        return c < 0 ? first : n->count;
    }
    const uint64_t *heads = node_heads(n);
    uint64_t head = node_head_of(key.data + prefix_len, key.len - prefix_len);
    unsigned end = first + node_heads_up_to(heads + first, n->count - first, head);
    if (end == first || heads[end - 1] != head) {
        return end;
    }
    return node_search_ties(n, end, key, ret_exact);
}

/* Starts loading what a search will read. */
static inline void node_prefetch(const struct ptree_node *n)
{
    for (unsigned line = 0; line < 10; line++) {
        __builtin_prefetch((const char *)n + line * 64);
    }
}

/* A node with one reference, of these entries in order, with room for `spare` more whose keys have
 * `spare_bytes`. Takes over the references; copies the keys. */
struct ptree_node *node_build(uint8_t level,
                              const struct node_entry *entries,
                              unsigned count,
                              unsigned spare,
                              size_t spare_bytes);

/* Writes all entries, borrowing the keys from `n`; returns how many. */
unsigned node_gather(const struct ptree_node *n, struct node_entry *ret_entries);

/* Frees a node whose entries went elsewhere. */
void node_free_shell(struct ptree_node *n);

/* Drops one reference, and with the last one all that is under it (recursion as deep as the tree).
 * Accepts NULL. */
void node_unref(struct ptree_node *n);

/* Makes *slot a node that only *slot refers to, a copy if need be, and returns it. The slot itself
 * has to be in a node (or a struct ptree) of one owner. */
struct ptree_node *node_own(struct ptree_node **slot);

/* Both change an owned node; insert may put another in its place. Takes over the reference of
 * `pointer`. */
void node_insert(struct ptree_node **slot, unsigned i, struct slice key, void *pointer);
/* Gives the pointer with its reference. */
void *node_remove(struct ptree_node *n, unsigned i);

/* Length of what both begin with. */
size_t node_common(struct slice a, struct slice b);

#endif
