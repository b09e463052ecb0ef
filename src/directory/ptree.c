/* SPDX-License-Identifier: Apache-2.0 */
/* Changes go down once: put splits every full node it meets and remove refills every thin one, so
 * that nothing has to be mended on the way back, and each node on the path is owned (copied if
 * somebody else holds it) before the next is looked at. */
#include "directory/ptree.h"

#include "base/assert.h"
#include "base/mem.h"
#include "directory/ptree_node.h"

#include <stdatomic.h>

struct ptree ptree_ref(const struct ptree *t)
{
    if (t->root != NULL) {
        atomic_fetch_add_explicit(&t->root->refs, 1, memory_order_relaxed);
    }
    return *t;
}

void ptree_unref(struct ptree *t)
{
    node_unref(t->root);
    *t = (struct ptree){NULL, 0};
}

/* The shortest key above `below` and at most `key`. */
static struct slice separator(struct slice below, struct slice key)
{
    return slice_of(key.data, node_common(below, key) + 1);
}

/* Where to cut entries in two: near the middle, between the two keys that have least in common,
 * which keeps separators short and what is on either side alike (Bayer & Unterauer 1977, "Prefix
 * B-trees"). */
static unsigned place_to_cut(const struct node_entry *entries, unsigned count)
{
    unsigned best = count / 2, from = count * 3 / 8;
    size_t least = SIZE_MAX;
    for (unsigned i = from; i <= count - from; i++) {
        size_t common = node_common(entries[i - 1].key, entries[i].key);
        if (common < least) {
            least = common;
            best = i;
        }
    }
    return best;
}

/* Builds two nodes from entries that came from one, or from neighbours; the key between them is
 * borrowed from the entries. */
static void build_two(uint8_t level,
                      struct node_entry *entries,
                      unsigned count,
                      unsigned left_count,
                      struct node_entry ret_two[2])
{
    struct slice middle = entries[left_count].key;
    if (level > 0) {
        entries[left_count].key = slice_of(NULL, 0);
    } else {
        middle = separator(entries[left_count - 1].key, middle);
    }
    ret_two[0].pointer = node_build(level, entries, left_count, 0, 0);
    ret_two[1].key = middle;
    ret_two[1].pointer = node_build(level, entries + left_count, count - left_count, 0, 0);
}

/* Splits the full, owned child `at` of *slot, which has room. On the right edge keys arrive in
 * ascending order, so what is left behind there stays full. */
static void split_child(struct ptree_node **slot, unsigned at, bool right_edge)
{
    struct ptree_node *child = node_child(*slot, at);
    struct node_entry entries[NODE_FANOUT], two[2];
    unsigned count = node_gather(child, entries);
    build_two(child->level, entries, count, right_edge ? count - 2 : place_to_cut(entries, count),
              two);
    node_pointers(*slot)[at] = two[0].pointer;
    node_insert(slot, at + 1, two[1].key, two[1].pointer);
    node_free_shell(child);
}

static void grow_root(struct ptree *t)
{
    struct node_entry only = {slice_of(NULL, 0), t->root};
    ASSERT(t->root->level + 2 < PTREE_DEPTH_MAX);
    t->root = node_build((uint8_t)(t->root->level + 1), &only, 1, 1, 0);
}

/* Can an entry of `key` be put under this node without splitting it? */
static bool has_room(const struct ptree_node *n, struct slice key)
{
    bool exact = false;
    if (n->count == NODE_FANOUT && n->level == 0) {
        (void)node_search(n, key, &exact);
    }
    return n->count < NODE_FANOUT || exact;
}

/* The slot of the owned leaf that `key` belongs into, with room for it. */
static struct ptree_node **descend_to_put(struct ptree *t, struct slice key)
{
    struct ptree_node **slot = &t->root;
    bool exact, right_edge = true;
    if (!has_room(node_own(slot), key)) {
        grow_root(t);
    }
    while ((*slot)->level > 0) {
        unsigned at = node_search(*slot, key, &exact) - 1;
        struct ptree_node *child = node_own(node_child_slot(*slot, at));
        right_edge = right_edge && at + 1U == (*slot)->count;
        if (!has_room(child, key)) {
            bool ascending = right_edge && node_search(child, key, &exact) == NODE_FANOUT;
            split_child(slot, at, ascending);
            at = node_search(*slot, key, &exact) - 1;
            right_edge = right_edge && at + 1U == (*slot)->count;
        }
        slot = node_child_slot(*slot, at);
    }
    return slot;
}

void *ptree_put(struct ptree *t, struct slice key, void *value)
{
    ASSERT(key.len <= PTREE_KEY_MAX && value != NULL);
    if (t->root == NULL) {
        struct node_entry only = {key, value};
        t->root = node_build(0, &only, 1, 0, 0);
        t->count = 1;
        return NULL;
    }
    struct ptree_node **slot = descend_to_put(t, key);
    bool exact;
    unsigned at = node_search(*slot, key, &exact);
    if (exact) {
        void **place = &node_pointers(*slot)[at - 1], *old = *place;
        *place = value;
        return old;
    }
    node_insert(slot, at, key, value);
    t->count++;
    return NULL;
}

/* Gives the thin child `at` of the owned node `*slot` more entries: one node of it and a neighbour,
 * or two of equal size. */
static void refill_child(struct ptree_node **slot, unsigned at)
{
    unsigned left = at > 0 ? at - 1 : at, right = left + 1;
    struct ptree_node *a = node_own(node_child_slot(*slot, left));
    struct ptree_node *b = node_own(node_child_slot(*slot, right));
    struct node_entry entries[2 * NODE_FANOUT], two[2];
    unsigned count = node_gather(a, entries), first_of_b = count;
    count += node_gather(b, entries + count);
    if (a->level > 0) {
        entries[first_of_b].key = node_key(*slot, right);
    }
    (void)node_remove(*slot, right);
    if (count <= NODE_MERGE_MAX) {
        node_pointers(*slot)[left] = node_build(a->level, entries, count, 0, 0);
    } else {
        build_two(a->level, entries, count, place_to_cut(entries, count), two);
        node_pointers(*slot)[left] = two[0].pointer;
        node_insert(slot, right, two[1].key, two[1].pointer);
    }
    node_free_shell(a);
    node_free_shell(b);
}

void *ptree_remove(struct ptree *t, struct slice key)
{
    bool exact;
    if (ptree_get(t, key) == NULL) {
        return NULL;
    }
    struct ptree_node **slot = &t->root;
    while (node_own(slot)->level > 0) {
        unsigned at = node_search(*slot, key, &exact) - 1;
        if (node_child(*slot, at)->count <= NODE_FILL_MIN) {
            refill_child(slot, at);
            if ((*slot)->count == 1) { /* only the root gets here */
                struct ptree_node *old = *slot;
                *slot = node_child(old, 0);
                node_free_shell(old);
                continue;
            }
            at = node_search(*slot, key, &exact) - 1;
        }
        slot = node_child_slot(*slot, at);
    }
    unsigned at = node_search(*slot, key, &exact);
    ASSERT(exact);
    void *value = node_remove(*slot, at - 1);
    if (--t->count == 0) {
        ASSERT(slot == &t->root);
        node_free_shell(t->root);
        t->root = NULL;
    }
    return value;
}

void *ptree_get(const struct ptree *t, struct slice key)
{
    const struct ptree_node *n = t->root;
    bool exact;
    if (n == NULL) {
        return NULL;
    }
    while (n->level > 0) {
        n = node_child(n, node_search(n, key, &exact) - 1);
        node_prefetch(n);
    }
    unsigned end = node_search(n, key, &exact);
    return exact ? node_pointers(n)[end - 1] : NULL;
}

void *ptree_floor(const struct ptree *t, struct slice key)
{
    const struct ptree_node *n = t->root,
                            *before = NULL; /* the nearest subtree that is wholly below `key` */
    bool exact;
    if (n == NULL) {
        return NULL;
    }
    while (n->level > 0) {
        unsigned at = node_search(n, key, &exact) - 1;
        before = at > 0 ? node_child(n, at - 1) : before;
        n = node_child(n, at);
        node_prefetch(n);
    }
    unsigned end = node_search(n, key, &exact);
    if (end > 0) {
        return node_pointers(n)[end - 1];
    }
    if (before == NULL) {
        return NULL;
    }
    while (before->level > 0) {
        before = node_child(before, before->count - 1U);
    }
    return node_pointers(before)[before->count - 1];
}
