/* SPDX-License-Identifier: Apache-2.0 */
#include "base/assert.h"
#include "directory/ptree_node.h"

/* The deepest node whose next entry exists moves there; all below it start at their first. */
static void climb_and_go_right(struct ptree_iter *it)
{
    while (it->depth > 0 && it->at[it->depth - 1] >= it->nodes[it->depth - 1]->count) {
        it->depth--;
        if (it->depth > 0) {
            it->at[it->depth - 1]++;
        }
    }
    while (it->depth > 0 && it->nodes[it->depth - 1]->level > 0) {
        it->nodes[it->depth] = node_child(it->nodes[it->depth - 1], it->at[it->depth - 1]);
        it->at[it->depth] = 0;
        it->depth++;
    }
}

/* Down to the leaf of `key`; the position there is that of the first entry above `key`. */
static bool descend(const struct ptree *t, struct slice key, struct ptree_iter *it)
{
    bool exact = false;
    it->depth = 0;
    for (const struct ptree_node *n = t->root; n != NULL;) {
        unsigned end = node_search(n, key, &exact);
        ASSERT(it->depth < PTREE_DEPTH_MAX);
        it->nodes[it->depth] = n;
        it->at[it->depth++] = (uint16_t)(n->level > 0 ? end - 1 : end);
        n = n->level > 0 ? node_child(n, end - 1) : NULL;
    }
    return exact;
}

void ptree_seek(const struct ptree *t, struct slice from, struct ptree_iter *it)
{
    if (descend(t, from, it)) {
        it->at[it->depth - 1]--;
    }
    climb_and_go_right(it);
}

void ptree_seek_floor(const struct ptree *t, struct slice key, struct ptree_iter *it)
{
    (void)descend(t, key, it);
    if (it->depth == 0) {
        return;
    }
    unsigned depth = it->depth;
    while (depth > 0 && it->at[depth - 1] == 0) {
        depth--;
    }
    if (depth == 0) {
        climb_and_go_right(it); /* all zero: the first entry */
        return;
    }
    it->at[depth - 1]--;
    for (; it->nodes[depth - 1]->level > 0; depth++) {
        const struct ptree_node *n = node_child(it->nodes[depth - 1], it->at[depth - 1]);
        it->nodes[depth] = n;
        it->at[depth] = (uint16_t)(n->count - 1);
    }
    ASSERT(depth == it->depth);
}

void *ptree_iter_get(const struct ptree_iter *it, struct slice *ret_key)
{
    if (it->depth == 0) {
        return NULL;
    }
    const struct ptree_node *leaf = it->nodes[it->depth - 1];
    unsigned at = it->at[it->depth - 1];
    if (ret_key != NULL) {
        *ret_key = node_key(leaf, at);
    }
    return node_pointers(leaf)[at];
}

void ptree_iter_next(struct ptree_iter *it)
{
    if (it->depth > 0) {
        it->at[it->depth - 1]++;
        climb_and_go_right(it);
    }
}

/* What a subtree's keys have to be within: low <= key < high. */
struct bounds {
    struct slice low, high;
    bool high_open;
};

static void check_entries(const struct ptree_node *n, const struct bounds *b)
{
    struct slice prefix = slice_of(node_prefix(n), n->prefix_len), before = b->low;
    for (unsigned i = n->level > 0; i < n->count; i++) {
        struct slice key = node_key(n, i);
        ASSERT(node_common(prefix, key) == prefix.len);
        struct slice rest = slice_of(key.data + prefix.len, key.len - prefix.len);
        ASSERT(node_heads(n)[i] == node_head_of(rest.data, rest.len));
        int c = slice_cmp(before, key);
        ASSERT(c < 0 || (c == 0 && i == 0 && n->level == 0));
        ASSERT(b->high_open || slice_cmp(key, b->high) < 0);
        ASSERT(node_slots(n)[i].at + node_slots(n)[i].len <= n->heap_used);
        before = key;
    }
}

static uint64_t check_node(const struct ptree_node *n, const struct bounds *b, bool is_root)
{
    ASSERT(n->refs >= 1 && n->count >= 1 && n->count <= n->cap && n->cap <= NODE_FANOUT);
    ASSERT(n->heap_used <= n->heap_cap);
    ASSERT(is_root || b->high_open || n->count >= NODE_FILL_MIN);
    ASSERT(!is_root || n->level == 0 || n->count >= 2);
    check_entries(n, b);
    if (n->level == 0) {
        return n->count;
    }
    ASSERT(node_slots(n)[0].len == 0);
    uint64_t count = 0;
    for (unsigned i = 0; i < n->count; i++) {
        struct bounds under = *b;
        under.low = i > 0 ? node_key(n, i) : b->low;
        if (i + 1U < n->count) {
            under.high = node_key(n, i + 1);
            under.high_open = false;
        }
        ASSERT(node_child(n, i)->level + 1 == n->level);
        count += check_node(node_child(n, i), &under, false);
    }
    return count;
}

void ptree_check(const struct ptree *t)
{
    const struct bounds all = {.high_open = true};
    uint64_t count = t->root != NULL ? check_node(t->root, &all, true) : 0;
    ASSERT(count == t->count);
}
