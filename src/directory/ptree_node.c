/* SPDX-License-Identifier: Apache-2.0 */
#include "directory/ptree_node.h"

#include "base/assert.h"
#include "base/mem.h"

#include <stdatomic.h>

/* node_insert leaves at most an eighth of slack. */
_Static_assert(NODE_FANOUT *PTREE_KEY_MAX * 8 / 7 < UINT16_MAX, "heap offsets are 16 bits");

size_t node_common(struct slice a, struct slice b)
{
    size_t n = a.len < b.len ? a.len : b.len, i = 0;
    while (i < n && a.data[i] == b.data[i]) {
        i++;
    }
    return i;
}

unsigned
node_search_ties(const struct ptree_node *n, unsigned end, struct slice key, bool *ret_exact)
{
    const uint64_t *heads = node_heads(n);
    size_t skip = n->prefix_len;
    struct slice rest = slice_of(key.data + skip, key.len - skip);
    uint64_t head = heads[end - 1];
    unsigned low = end - 1, first = n->level > 0;
    while (low > first && heads[low - 1] == head) {
        low--;
    }
    while (low < end) { /* entries before low are <= key, from end on they are above it */
        unsigned middle = (low + end) / 2;
        struct slice other = node_key(n, middle);
        int c = slice_cmp(slice_of(other.data + skip, other.len - skip), rest);
        if (c == 0) {
            *ret_exact = true;
            return middle + 1;
        }
        if (c < 0) {
            low = middle + 1;
        } else {
            end = middle;
        }
    }
    return low;
}

static void put_key(struct ptree_node *n, unsigned i, struct slice key)
{
    size_t skip = n->prefix_len;
    bool below_all = n->level > 0 && i == 0;
    ASSERT(key.len <= (size_t)(n->heap_cap - n->heap_used));
    node_slots(n)[i] = (struct node_slot){n->heap_used, (uint16_t)key.len};
    node_heads(n)[i] = below_all ? 0 : node_head_of(key.data + skip, key.len - skip);
    if (key.len > 0) {
        memcpy(node_heap(n) + n->heap_used, key.data, key.len);
    }
    n->heap_used = (uint16_t)(n->heap_used + key.len);
}

static size_t node_size(const struct ptree_node *n)
{
    return (size_t)(node_heap(n) - (const uint8_t *)n) + n->heap_used;
}

static struct ptree_node *
node_new(uint8_t level, struct slice prefix, unsigned cap, size_t heap_bytes)
{
    size_t fixed = node_heads_at(prefix.len) +
                   cap * (sizeof(uint64_t) + sizeof(void *) + sizeof(struct node_slot));
    size_t size = ((fixed + heap_bytes + 7) & ~(size_t)15) + 8; /* what malloc would round it to */
    ASSERT(size - fixed <= UINT16_MAX);
    struct ptree_node *n = mem_alloc(size);
    *n = (struct ptree_node){.level = level,
                             .prefix_len = (uint16_t)prefix.len,
                             .cap = (uint8_t)cap,
                             .heap_cap = (uint16_t)(size - fixed)};
    atomic_init(&n->refs, 1);
    if (prefix.len > 0) {
        memset((uint8_t *)n + NODE_HEADER, 0, node_heads_at(prefix.len) - NODE_HEADER);
        memcpy((uint8_t *)n + NODE_HEADER, prefix.data, prefix.len);
    }
    return n;
}

struct ptree_node *node_build(uint8_t level,
                              const struct node_entry *entries,
                              unsigned count,
                              unsigned spare,
                              size_t spare_bytes)
{
    unsigned first = level > 0, cap = (count + spare + NODE_ROUND - 1) / NODE_ROUND * NODE_ROUND;
    struct slice prefix = {NULL, 0};
    size_t bytes = spare_bytes;
    ASSERT(count > 0 && count <= NODE_FANOUT);
    if (count > first) {
        prefix = entries[first].key;
        prefix.len = node_common(prefix, entries[count - 1].key);
    }
    for (unsigned i = 0; i < count; i++) {
        bytes += entries[i].key.len;
    }
    struct ptree_node *n = node_new(level, prefix, cap > NODE_FANOUT ? NODE_FANOUT : cap, bytes);
    n->count = (uint8_t)count;
    for (unsigned i = 0; i < count; i++) {
        node_pointers(n)[i] = entries[i].pointer;
        put_key(n, i, entries[i].key);
    }
    return n;
}

unsigned node_gather(const struct ptree_node *n, struct node_entry *ret_entries)
{
    for (unsigned i = 0; i < n->count; i++) {
        ret_entries[i] = (struct node_entry){node_key(n, i), node_pointers(n)[i]};
    }
    return n->count;
}

void node_free_shell(struct ptree_node *n)
{
    mem_free(n);
}

void node_unref(struct ptree_node *n)
{
    if (n == NULL || atomic_fetch_sub_explicit(&n->refs, 1, memory_order_acq_rel) != 1) {
        return;
    }
    for (unsigned i = 0; i < n->count; i++) {
        if (n->level > 0) {
            node_unref(node_child(n, i));
        } else {
            dir_unref(node_pointers(n)[i]);
        }
    }
    mem_free(n);
}

static void ref_pointers(const struct ptree_node *n)
{
    void **pointers = node_pointers(n);
    for (unsigned i = 0; i < n->count; i++) {
        __builtin_prefetch(pointers[i], 1); /* they lie anywhere: let the misses overlap */
    }
    for (unsigned i = 0; i < n->count; i++) {
        if (n->level > 0) {
            atomic_fetch_add_explicit(&node_child(n, i)->refs, 1, memory_order_relaxed);
        } else {
            (void)dir_ref(pointers[i]);
        }
    }
}

struct ptree_node *node_own(struct ptree_node **slot)
{
    struct ptree_node *n = *slot;
    if (atomic_load_explicit(&n->refs, memory_order_acquire) == 1) {
        return n;
    }
    size_t full = node_size(n) + (size_t)(n->heap_cap - n->heap_used);
    struct ptree_node *copy = mem_alloc(full);
    size_t skip = sizeof n->refs; /* others may be changing it */
    memcpy((uint8_t *)copy + skip, (const uint8_t *)n + skip, node_size(n) - skip);
    atomic_init(&copy->refs, 1);
    ref_pointers(copy);
    node_unref(n);
    *slot = copy;
    return copy;
}

static bool fits(const struct ptree_node *n, struct slice key)
{
    return n->count < n->cap && key.len <= (size_t)(n->heap_cap - n->heap_used) &&
           key.len >= n->prefix_len &&
           (n->prefix_len == 0 || memcmp(key.data, node_prefix(n), n->prefix_len) == 0);
}

void node_insert(struct ptree_node **slot, unsigned i, struct slice key, void *pointer)
{
    struct ptree_node *n = *slot;
    ASSERT(n->count < NODE_FANOUT && i <= n->count && (n->level == 0 || i > 0));
    if (!fits(n, key)) {
        struct node_entry entries[NODE_FANOUT];
        unsigned count = node_gather(n, entries);
        memmove(entries + i + 1, entries + i, (count - i) * sizeof entries[0]);
        entries[i] = (struct node_entry){key, pointer};
        *slot = node_build(n->level, entries, count + 1, 0, n->heap_used / 8U);
        node_free_shell(n);
        return;
    }
    unsigned behind = n->count - i;
    void **pointers = node_pointers(n);
    memmove(node_heads(n) + i + 1, node_heads(n) + i, behind * sizeof(uint64_t));
    memmove(pointers + i + 1, pointers + i, behind * sizeof pointers[0]);
    memmove(node_slots(n) + i + 1, node_slots(n) + i, behind * sizeof(struct node_slot));
    n->count++;
    pointers[i] = pointer;
    put_key(n, i, key);
}

void *node_remove(struct ptree_node *n, unsigned i)
{
    ASSERT(i < n->count && (n->level == 0 || i > 0));
    void **pointers = node_pointers(n), *pointer = pointers[i];
    unsigned behind = n->count - i - 1U;
    memmove(node_heads(n) + i, node_heads(n) + i + 1, behind * sizeof(uint64_t));
    memmove(pointers + i, pointers + i + 1, behind * sizeof pointers[0]);
    memmove(node_slots(n) + i, node_slots(n) + i + 1, behind * sizeof(struct node_slot));
    n->count--;
    return pointer;
}
