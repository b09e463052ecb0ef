/* SPDX-License-Identifier: Apache-2.0 */
#include "client/map_node.h"

#include "base/mem.h"

/* How many of the ascending heads are <= x: by steps, then one by one. No comparison waits for
 * another, and none is a branch. */
static unsigned heads_up_to(const uint64_t *heads, unsigned n, uint64_t x)
{
    unsigned at = 0, more = 0;
    for (unsigned i = CL_NODE_STEP - 1; i < n; i += CL_NODE_STEP) {
        at += heads[i] <= x;
    }
    at *= CL_NODE_STEP;
    unsigned left = n - at < CL_NODE_STEP ? n - at : CL_NODE_STEP;
    for (unsigned i = 0; i < left; i++) {
        more += heads[at + i] <= x;
    }
    return at + more;
}

/* Among the keys whose head is that of `key`, of which the last is end - 1: by their tails, and
 * among equal ones of those by the keys themselves. */
static unsigned search_ties(const struct cl_node *n, unsigned end, struct slice key)
{
    uint64_t head = n->heads[end - 1], tail = cl_node_head(key, n->prefix_len + sizeof head);
    unsigned low = end - 1;
    while (low > 0 && n->heads[low - 1] == head) {
        low--;
    }
    while (end > low && n->tails[end - 1] > tail) {
        end--;
    }
    for (unsigned i = end; i > low && n->tails[i - 1] == tail; i--) {
        if (slice_cmp(cl_node_key(n, i - 1), key) <= 0) {
            return i;
        }
        end = i - 1;
    }
    return end;
}

unsigned cl_node_search(const struct cl_node *n, struct slice key)
{
    size_t prefix_len = n->prefix_len;
    if (prefix_len > 0) {
        size_t common = key.len < prefix_len ? key.len : prefix_len;
        int c = common > 0 ? memcmp(key.data, n->prefix, common) : 0;
        if (c < 0 || (c == 0 && key.len < prefix_len)) {
            return 0;
        }
        if (c > 0) {
            return n->count;
        }
    }
    uint64_t head = cl_node_head(key, prefix_len);
    unsigned end = heads_up_to(n->heads, n->count, head);
    if (end == 0 || n->heads[end - 1] != head) {
        return end;
    }
    return search_ties(n, end, key);
}

static size_t node_size(uint8_t level)
{
    return sizeof(struct cl_node) + (level > 0 ? CL_NODE_FANOUT * sizeof(struct cl_entry *) : 0);
}

struct cl_node *cl_node_new(uint64_t batch, uint8_t level)
{
    struct cl_node *n = mem_alloc(node_size(level));
    n->batch = batch;
    n->level = level;
    n->count = n->prefix_len = 0;
    return n;
}

struct cl_node *cl_node_copy(const struct cl_node *n, uint64_t batch)
{
    struct cl_node *copy = mem_alloc(node_size(n->level));
    memcpy(copy, n, offsetof(struct cl_node, heads) + n->count * sizeof n->heads[0]);
    memcpy(copy->tails, n->tails, n->count * sizeof n->tails[0]);
    memcpy(copy->pointers, n->pointers, n->count * sizeof n->pointers[0]);
    if (n->level > 0) {
        memcpy(copy->low, n->low, n->count * sizeof(struct cl_entry *));
    }
    copy->batch = batch;
    return copy;
}

void cl_node_rekey(struct cl_node *n)
{
    n->prefix_len = 0;
    if (n->count == 0) {
        return;
    }
    struct slice first = cl_node_key(n, 0), last = cl_node_key(n, n->count - 1u);
    size_t common = 0, most = first.len < last.len ? first.len : last.len;
    most = most < CL_NODE_PREFIX_MAX ? most : CL_NODE_PREFIX_MAX;
    while (common < most && first.data[common] == last.data[common]) {
        n->prefix[common] = first.data[common];
        common++;
    }
    n->prefix_len = (uint8_t)common;
    for (unsigned i = 0; i < n->count; i++) {
        n->heads[i] = cl_node_head(cl_node_key(n, i), common);
        n->tails[i] = cl_node_head(cl_node_key(n, i), common + sizeof n->heads[0]);
    }
}

/* Key i is new; the prefix may not be one of it. */
static void set_head(struct cl_node *n, unsigned i)
{
    struct slice key = cl_node_key(n, i);
    if (key.len < n->prefix_len ||
        (n->prefix_len > 0 && memcmp(key.data, n->prefix, n->prefix_len) != 0)) {
        cl_node_rekey(n);
    } else {
        n->heads[i] = cl_node_head(key, n->prefix_len);
        n->tails[i] = cl_node_head(key, n->prefix_len + sizeof n->heads[0]);
    }
}

void cl_node_insert(struct cl_node *n, unsigned i, void *pointer, struct cl_entry *low)
{
    size_t after = n->count - i;
    memmove(&n->heads[i + 1], &n->heads[i], after * sizeof n->heads[0]);
    memmove(&n->tails[i + 1], &n->tails[i], after * sizeof n->tails[0]);
    memmove(&n->pointers[i + 1], &n->pointers[i], after * sizeof n->pointers[0]);
    n->pointers[i] = pointer;
    if (n->level > 0) {
        memmove(&n->low[i + 1], &n->low[i], after * sizeof n->low[0]);
        n->low[i] = low;
    }
    n->count++;
    set_head(n, i);
}

void cl_node_remove(struct cl_node *n, unsigned i)
{
    size_t after = n->count - i - 1u;
    memmove(&n->heads[i], &n->heads[i + 1], after * sizeof n->heads[0]);
    memmove(&n->tails[i], &n->tails[i + 1], after * sizeof n->tails[0]);
    memmove(&n->pointers[i], &n->pointers[i + 1], after * sizeof n->pointers[0]);
    if (n->level > 0) {
        memmove(&n->low[i], &n->low[i + 1], after * sizeof n->low[0]);
    }
    n->count--;
}

void cl_node_set_low(struct cl_node *n, unsigned i, struct cl_entry *low)
{
    n->low[i] = low;
    set_head(n, i);
}

void cl_node_move(struct cl_node *n, unsigned from, struct cl_node *to)
{
    size_t moved = n->count - from;
    memcpy(&to->pointers[to->count], &n->pointers[from], moved * sizeof n->pointers[0]);
    if (n->level > 0) {
        memcpy(&to->low[to->count], &n->low[from], moved * sizeof n->low[0]);
    }
    to->count = (uint8_t)(to->count + moved);
    n->count = (uint8_t)from;
    cl_node_rekey(n);
    cl_node_rekey(to);
}
