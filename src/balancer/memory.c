/* SPDX-License-Identifier: Apache-2.0 */
#include "balancer/memory.h"

#include "balancer/internal.h"
#include "base/mem.h"
#include "base/wire.h"

#include <string.h>

enum { FORMAT = 2 };

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

static void save_node(const struct bal_node_memory *n, struct buf *out)
{
    wire_put_u64(out, n->node);
    for (unsigned r = 0; r < BAL_RESOURCES; r++) {
        wire_put_u64(out, n->over_ms[r]);
    }
    wire_put_u64(out, n->under_ms);
    buf_put_u8(out, n->relieving);
    buf_put_u8(out, n->filling);
    buf_put_u8(out, n->touched);
    buf_put_u8(out, n->samples);
    wire_put_u64(out, n->gained_ms);
    wire_put_u64(out, n->shed_ms);
    wire_put_u64(out, n->level1);
    wire_put_u64(out, n->level2);
    wire_put_u64(out, n->variance);
}

static struct bal_node_memory load_node(struct wire_reader *r)
{
    struct bal_node_memory n = {.node = wire_u64(r)};
    for (unsigned i = 0; i < BAL_RESOURCES; i++) {
        n.over_ms[i] = wire_u64(r);
    }
    n.under_ms = wire_u64(r);
    n.relieving = wire_enum(r, 0, (1 << BAL_RESOURCES) - 1, "resources");
    n.filling = wire_bool(r);
    n.touched = wire_bool(r);
    n.samples = wire_u8(r);
    n.gained_ms = wire_u64(r);
    n.shed_ms = wire_u64(r);
    n.level1 = wire_u64(r);
    n.level2 = wire_u64(r);
    n.variance = wire_u64(r);
    return n;
}

void bal_memory_save(const struct bal_memory *m, struct buf *out)
{
    const uint64_t times[] = {m->started_ms, m->sigma_ms, m->tokens_ms,  m->recovery_ms,
                              m->heal_ms,    m->tokens,   m->hot_tokens, m->rho,
                              m->high,       m->sigma};
    buf_put_u8(out, FORMAT);
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        wire_put_u64(out, times[i]);
    }
    wire_put_u32(out, m->node_count);
    for (uint32_t n = 0; n < m->node_count; n++) {
        save_node(&m->node[n], out);
    }
    wire_put_u32(out, m->partition_count);
    for (uint32_t i = 0; i < m->partition_count; i++) {
        const struct bal_partition_memory *p = &m->partition[i];
        wire_put_u64(out, p->partition);
        wire_put_u64(out, p->hot_ms);
        wire_put_u64(out, p->cold_ms);
        wire_put_u64(out, p->sibling);
        wire_put_u32(out, p->run);
    }
    wire_put_u32(out, m->past_count);
    for (uint32_t i = 0; i < m->past_count; i++) {
        const struct bal_past_move *p = &m->past[(m->past_first + i) % BAL_HISTORY_MAX];
        wire_put_u64(out, p->at_ms);
        wire_put_u64(out, p->partition);
        wire_put_u64(out, p->source);
        wire_put_u64(out, p->promised);
        buf_put_u8(out, p->resource);
    }
}

/* Room for as many as the rest of the bytes could hold, or nothing. */
static uint32_t count_of(struct wire_reader *r, size_t each)
{
    uint32_t count = wire_u32(r);
    if (count > r->rest.len / each) {
        wire_fail(r, "a count is beyond the bytes");
        return 0;
    }
    return count;
}

static void load_nodes(struct wire_reader *r, struct bal_memory *m)
{
    m->node_count = count_of(r, (7 + BAL_RESOURCES) * 8 + 4);
    m->node = mem_zalloc((m->node_count + 1) * sizeof *m->node);
    for (uint32_t n = 0; n < m->node_count; n++) {
        m->node[n] = load_node(r);
        if (n > 0 && m->node[n].node <= m->node[n - 1].node) {
            wire_fail(r, "nodes are out of order");
        }
    }
}

static void load_partitions(struct wire_reader *r, struct bal_memory *m)
{
    m->partition_count = count_of(r, 4 * 8 + 4);
    m->partition = mem_zalloc((m->partition_count + 1) * sizeof *m->partition);
    for (uint32_t i = 0; i < m->partition_count; i++) {
        struct bal_partition_memory *p = &m->partition[i];
        p->partition = wire_u64(r);
        p->hot_ms = wire_u64(r);
        p->cold_ms = wire_u64(r);
        p->sibling = wire_u64(r);
        p->run = wire_u32(r);
        if (i > 0 && p->partition <= p[-1].partition) {
            wire_fail(r, "partitions are out of order");
        }
    }
}

static void load_past(struct wire_reader *r, struct bal_memory *m)
{
    m->past_count = count_of(r, 4 * 8 + 1);
    if (m->past_count > BAL_HISTORY_MAX) {
        wire_fail(r, "too many moves");
        m->past_count = 0;
    }
    for (uint32_t i = 0; i < m->past_count; i++) {
        struct bal_past_move *p = &m->past[i];
        p->at_ms = wire_u64(r);
        p->partition = wire_u64(r);
        p->source = wire_u64(r);
        p->promised = wire_u64(r);
        p->resource = wire_enum(r, 0, BAL_RESOURCES - 1, "a resource");
    }
}

enum err_code bal_memory_load(struct slice bytes, struct bal_memory **ret_memory)
{
    struct wire_reader r = wire_reader(bytes);
    (void)wire_enum(&r, FORMAT, FORMAT, "a format");
    struct bal_memory *m = bal_memory_new(wire_u64(&r));
    m->sigma_ms = wire_u64(&r);
    m->tokens_ms = wire_u64(&r);
    m->recovery_ms = wire_u64(&r);
    m->heal_ms = wire_u64(&r);
    m->tokens = wire_u64(&r);
    m->hot_tokens = wire_u64(&r);
    m->rho = wire_u64(&r);
    m->high = wire_u64(&r);
    m->sigma = wire_u64(&r);
    load_nodes(&r, m);
    load_partitions(&r, m);
    load_past(&r, m);
    if (!wire_end(&r)) {
        bal_memory_free(m);
        return ERR_CORRUPT;
    }
    *ret_memory = m;
    return ERR_OK;
}
