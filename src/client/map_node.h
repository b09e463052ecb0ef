/* SPDX-License-Identifier: Apache-2.0 */
/* A node of the cached map. */
#ifndef CLIENT_MAP_NODE_H
#define CLIENT_MAP_NODE_H

#include "client/map.h"

#include <string.h>

enum {
    CL_NODE_FANOUT = 128,
    CL_NODE_FILL = 112,    /* of a map that is loaded whole: room for what comes */
    CL_NODE_FILL_MIN = 32, /* below it, a node is merged with a sibling if both fit in the next */
    CL_NODE_MERGE_MAX = 96,
    CL_NODE_PREFIX_MAX = 53, /* longer shared prefixes are compared as ties */
    CL_NODE_STEP = 16
};

struct cl_node {
    uint64_t batch; /* that made it: it may change until that is published */
    uint8_t level;  /* 0: a leaf, its pointers are entries */
    uint8_t count, prefix_len;
    uint8_t prefix[CL_NODE_PREFIX_MAX];
    uint64_t heads[CL_NODE_FANOUT]; /* the 8 bytes of each key after the prefix */
    uint64_t tails[CL_NODE_FANOUT]; /* the 8 after those: read only where heads are equal */
    void *pointers[CL_NODE_FANOUT];
    struct cl_entry *low[]; /* inner nodes: the lowest entry under each child */
};
_Static_assert(offsetof(struct cl_node, heads) == 64, "the header is one cache line");

static inline struct cl_node *cl_node_child(const struct cl_node *n, unsigned i)
{
    return n->pointers[i];
}

/* The entry whose start is key i. */
static inline struct cl_entry *cl_node_entry(const struct cl_node *n, unsigned i)
{
    return n->level > 0 ? n->low[i] : n->pointers[i];
}

static inline struct slice cl_node_key(const struct cl_node *n, unsigned i)
{
    return cl_entry_start(cl_node_entry(n, i));
}

/* The 8 bytes of `key` from `at` on, as an integer that compares like them; zeros past its end. */
static inline uint64_t cl_node_head(struct slice key, size_t at)
{
    uint64_t head = 0;
    if (key.len >= at + sizeof head) {
        memcpy(&head, key.data + at, sizeof head);
    } else if (key.len > at) {
        memcpy(&head, key.data + at, key.len - at);
    }
    return __builtin_bswap64(head);
}

/* How many keys are <= `key`. */
unsigned cl_node_search(const struct cl_node *n, struct slice key);

struct cl_node *cl_node_new(uint64_t batch, uint8_t level);
struct cl_node *cl_node_copy(const struct cl_node *n, uint64_t batch);
/* Finds the prefix and all heads anew. */
void cl_node_rekey(struct cl_node *n);
/* Changes a node that nobody else sees, and that has room. */
void cl_node_insert(struct cl_node *n, unsigned i, void *pointer, struct cl_entry *low);
void cl_node_remove(struct cl_node *n, unsigned i);
/* Key i has changed. */
void cl_node_set_low(struct cl_node *n, unsigned i, struct cl_entry *low);
/* Moves the entries from `from` on to the end of `to`. */
void cl_node_move(struct cl_node *n, unsigned from, struct cl_node *to);

#endif
