/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of partitions and sums by node that one command gathers. */
#include "base/assert.h"
#include "base/mem.h"
#include "directory/internal.h"

#include <stdlib.h>

void parts_add(struct part_list *l, struct dir_partition *p)
{
    if (l->count == l->cap) {
        l->cap = l->cap > 0 ? l->cap * 2 : 4;
        l->items = mem_realloc(l->items, l->cap * sizeof l->items[0]);
    }
    l->items[l->count++] = p;
}

void parts_close(struct part_list *l)
{
    for (uint64_t i = 0; i < l->count; i++) {
        dir_unref(l->items[i]);
    }
    mem_free(l->items);
    memset(l, 0, sizeof *l);
}

static int part_order(const void *x, const void *y)
{
    const struct dir_partition *a = *(struct dir_partition *const *)x;
    const struct dir_partition *b = *(struct dir_partition *const *)y;
    if (a->keyspace != b->keyspace) {
        return a->keyspace < b->keyspace ? -1 : 1;
    }
    return slice_cmp(dir_partition_start(a), dir_partition_start(b));
}

void parts_sort(struct part_list *l)
{
    if (l->count > 1) {
        qsort(l->items, l->count, sizeof l->items[0], part_order);
    }
}

static struct count_slot *count_slot(const struct counts *c, uint64_t node)
{
    uint64_t i = (node * UINT64_C(0x9e3779b97f4a7c15)) & (c->cap - 1);
    while (c->slots[i].node != 0 && c->slots[i].node != node) {
        i = (i + 1) & (c->cap - 1);
    }
    return &c->slots[i];
}

static void counts_grow(struct counts *c)
{
    struct counts bigger = {.used = c->used, .cap = c->cap > 0 ? c->cap * 2 : 16};
    bigger.slots = mem_zalloc(bigger.cap * sizeof bigger.slots[0]);
    for (uint64_t i = 0; i < c->cap; i++) {
        if (c->slots[i].node != 0) {
            *count_slot(&bigger, c->slots[i].node) = c->slots[i];
        }
    }
    mem_free(c->slots);
    *c = bigger;
}

void counts_add(struct counts *c, uint64_t node, int64_t delta)
{
    ASSERT(node != 0);
    if (c->used * 2 >= c->cap) {
        counts_grow(c);
    }
    struct count_slot *slot = count_slot(c, node);
    if (slot->node == 0) {
        slot->node = node;
        c->used++;
    }
    slot->delta += delta;
}

int64_t counts_get(const struct counts *c, uint64_t node)
{
    return c->cap > 0 ? count_slot(c, node)->delta : 0;
}

void counts_close(struct counts *c)
{
    mem_free(c->slots);
    memset(c, 0, sizeof *c);
}
