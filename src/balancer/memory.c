/* SPDX-License-Identifier: Apache-2.0 */
#include "balancer/memory.h"

#include "balancer/internal.h"
#include "base/mem.h"

#include <string.h>

struct bal_memory *bal_memory_new(uint64_t now_ms)
{
    struct bal_memory *m = mem_zalloc(sizeof *m);
    m->started_ms = now_ms;
    m->rho = BAL_ONE;
    return m;
}

void bal_memory_free(struct bal_memory *m)
{
    if (m != NULL) {
        mem_free(m->node);
        mem_free(m->partition);
        mem_free(m);
    }
}

struct bal_memory *bal_memory_copy(const struct bal_memory *m)
{
    struct bal_memory *copy = mem_dup(m, sizeof *m);
    copy->node = mem_dup(m->node, m->node_count * sizeof *m->node);
    copy->partition = mem_dup(m->partition, m->partition_count * sizeof *m->partition);
    return copy;
}

struct bal_node_memory *bal_memory_node(const struct bal_memory *m, uint64_t node)
{
    uint32_t low = 0, high = m->node_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (m->node[middle].node < node) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < m->node_count && m->node[low].node == node ? &m->node[low] : NULL;
}

static uint32_t partition_place(const struct bal_memory *m, uint64_t partition)
{
    uint32_t low = 0, high = m->partition_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (m->partition[middle].partition < partition) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

struct bal_partition_memory *bal_memory_partition(const struct bal_memory *m, uint64_t partition)
{
    uint32_t at = partition_place(m, partition);
    bool there = at < m->partition_count && m->partition[at].partition == partition;
    return there ? &m->partition[at] : NULL;
}

/* One entry for each node of the fleet, in its order. */
void bal_memory_sync(struct bal_memory *m, const struct bal_fleet *f)
{
    bool same = m->node_count == f->node_count;
    for (uint32_t n = 0; same && n < f->node_count; n++) {
        same = m->node[n].node == f->node_id[n];
    }
    if (same) {
        return;
    }
    struct bal_node_memory *nodes = mem_zalloc((f->node_count + 1) * sizeof *nodes);
    for (uint32_t n = 0; n < f->node_count; n++) {
        const struct bal_node_memory *old = bal_memory_node(m, f->node_id[n]);
        nodes[n] = old != NULL ? *old : (struct bal_node_memory){.node = f->node_id[n]};
    }
    mem_free(m->node);
    m->node = nodes;
    m->node_count = f->node_count;
}

static void touch(struct bal_memory *m, uint64_t node, uint64_t *which_ms, uint64_t now_ms)
{
    struct bal_node_memory *n = bal_memory_node(m, node);
    if (n != NULL) {
        n->touched = true;
    }
    if (which_ms != NULL) {
        *which_ms = now_ms;
    }
}

static void remember(struct bal_memory *m, const struct bal_proposal *p, uint64_t now_ms)
{
    if (m->past_count == BAL_HISTORY_MAX) {
        m->past_first = (m->past_first + 1) % BAL_HISTORY_MAX;
        m->past_count--;
    }
    m->past[(m->past_first + m->past_count++) % BAL_HISTORY_MAX] =
        (struct bal_past_move){now_ms, p->partition, p->from, p->benefit, p->resource};
}

void bal_memory_began(struct bal_memory *m, const struct bal_proposal *p, uint64_t now_ms)
{
    if (p->kind == BAL_SPLIT || p->kind == BAL_MERGE || p->kind == BAL_ADVICE) {
        return;
    }
    bool routine = p->class_of < DIR_CLASS_DRAIN;
    struct bal_node_memory *from = bal_memory_node(m, p->from), *to = bal_memory_node(m, p->to);
    touch(m, p->from, from != NULL && routine ? &from->shed_ms : NULL, now_ms);
    touch(m, p->to, to != NULL && routine ? &to->gained_ms : NULL, now_ms);
    if (!routine || p->kind == BAL_TRANSFER) {
        return;
    }
    uint64_t cost = (p->kind == BAL_SWAP ? 2 : 1) * UINT64_C(3600000);
    uint64_t *tokens = p->class_of == DIR_CLASS_HOT ? &m->hot_tokens : &m->tokens;
    *tokens = bal_less(*tokens, cost);
    if (p->reason == BAL_REASON_HOT_NODE || p->reason == BAL_REASON_HOT_NODE_URGENT) {
        remember(m, p, now_ms);
    }
}

static void put_partition(struct bal_memory *m, struct bal_partition_memory one)
{
    uint32_t at = partition_place(m, one.partition);
    if (at == m->partition_count || m->partition[at].partition != one.partition) {
        m->partition = mem_realloc(m->partition, (m->partition_count + 1) * sizeof one);
        memmove(&m->partition[at + 1], &m->partition[at], (m->partition_count - at) * sizeof one);
        m->partition_count++;
    }
    m->partition[at] = one;
}

void bal_memory_split(struct bal_memory *m, uint64_t parent, uint64_t left, uint64_t right)
{
    const struct bal_partition_memory *old = bal_memory_partition(m, parent);
    uint32_t run = old == NULL ? 0 : old->run;
    put_partition(m,
                  (struct bal_partition_memory){.partition = left, .sibling = right, .run = run});
    put_partition(m,
                  (struct bal_partition_memory){.partition = right, .sibling = left, .run = run});
}
