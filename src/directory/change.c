/* SPDX-License-Identifier: Apache-2.0 */
/* From what a command touched to the changes that the feed carries. */
#include "base/mem.h"
#include "directory/internal.h"

#include <stdlib.h>

static int touched_order(const void *x, const void *y)
{
    const struct touched *a = x, *b = y;
    if (a->keyspace != b->keyspace) {
        return a->keyspace < b->keyspace ? -1 : 1;
    }
    return a->kind < b->kind ? -1 : a->kind > b->kind;
}

static void absorb(struct touched *into, struct touched *from)
{
    into->oversize = into->oversize || from->oversize;
    for (uint64_t i = 0; i < from->routes.count; i++) {
        touched_route(into, from->routes.items[i]);
    }
    for (uint32_t i = 0; i < from->removed_count; i++) {
        touched_removed(into, from->removed[i]);
    }
    parts_close(&from->routes);
    mem_free(from->removed);
}

void touched_coalesce(struct apply *a)
{
    if (a->touched_count < 2) {
        return;
    }
    qsort(a->touched, a->touched_count, sizeof a->touched[0], touched_order);
    uint64_t n = 1;
    for (uint64_t i = 1; i < a->touched_count; i++) {
        if (a->touched[i].keyspace == a->touched[n - 1].keyspace) {
            absorb(&a->touched[n - 1], &a->touched[i]);
        } else {
            a->touched[n++] = a->touched[i];
        }
    }
    a->touched_count = n;
}

static struct slice owned(struct slice in)
{
    return slice_of(mem_dup(in.data, in.len), in.len);
}

/* The range of the routes; without any, all of the keyspace. */
static void set_range(struct dir_change *c, const struct part_list *routes)
{
    if (routes->count == 0) {
        c->start = owned(slice_of("", 0));
        return;
    }
    const struct dir_partition *last = routes->items[routes->count - 1];
    c->start = owned(dir_partition_start(routes->items[0]));
    if (!last->end_open) {
        c->end = owned(dir_partition_end(last));
    }
}

struct dir_change *touched_change(const struct apply *a, struct touched *t)
{
    struct dir_change *c = mem_zalloc(sizeof *c);
    c->refs = 1;
    c->revision = a->s->revision;
    c->keyspace = t->keyspace;
    c->kind = t->kind;
    c->oversize = t->oversize;
    if (t->oversize) {
        parts_close(&t->routes);
    } else if (t->removed_count > 0) {
        c->removed = mem_dup(t->removed, t->removed_count * sizeof t->removed[0]);
        c->removed_count = t->removed_count;
    }
    parts_sort(&t->routes);
    set_range(c, &t->routes);
    c->route_count = (uint32_t)t->routes.count;
    if (c->route_count > 0) {
        c->routes = mem_alloc(c->route_count * sizeof c->routes[0]);
    }
    for (uint32_t i = 0; i < c->route_count; i++) {
        dir_route_open(&c->routes[i], a->s, t->routes.items[i]);
    }
    return c;
}
