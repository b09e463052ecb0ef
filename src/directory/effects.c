/* SPDX-License-Identifier: Apache-2.0 */
/* What a command changes, as it changes it: rows with the state hash, and what routers are told. */
#include "base/assert.h"
#include "base/mem.h"
#include "directory/internal.h"
#include "directory/repair.h"

#include <stdarg.h>
#include <stdio.h>

static void row_add(struct apply *a, struct dir_object *before, struct dir_object *after)
{
    if (a->row_count == a->row_cap) {
        a->row_cap = a->row_cap > 0 ? a->row_cap * 2 : 8;
        a->rows = mem_realloc(a->rows, a->row_cap * sizeof a->rows[0]);
    }
    a->rows[a->row_count++] = (struct dir_row){before, after};
}

void apply_put(struct apply *a, void *row)
{
    struct dir_object *after = row;
    if (after->kind == DIR_KIND_PARTITION) {
        struct dir_partition *p = row;
        uint8_t key[8];
        repair_note_version(a->s, ptree_get(&a->s->partitions, ptree_u64_key(p->id, key)), p);
    }
    hash128_add(&a->s->hash, state_row_hash(after, &a->scratch));
    struct dir_object *before = state_put(a->s, after);
    if (before != NULL) {
        hash128_sub(&a->s->hash, state_row_hash(before, &a->scratch));
    }
    row_add(a, before, dir_ref(after));
}

void apply_remove(struct apply *a, const void *row)
{
    struct dir_object *before = state_remove(a->s, row);
    ASSERT(before != NULL);
    hash128_sub(&a->s->hash, state_row_hash(before, &a->scratch));
    row_add(a, before, NULL);
}

uint64_t apply_id(struct apply *a)
{
    return a->s->next_id++;
}

void apply_subject(struct apply *a, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(a->subject, sizeof a->subject, fmt, args);
    va_end(args);
}

struct touched *apply_touch(struct apply *a, uint64_t keyspace, enum dir_change_kind kind)
{
    if (a->touched_count > 0 && a->touched[a->touched_count - 1].keyspace == keyspace) {
        return &a->touched[a->touched_count - 1];
    }
    if (a->touched_count == a->touched_cap) {
        a->touched_cap = a->touched_cap > 0 ? a->touched_cap * 2 : 2;
        a->touched = mem_realloc(a->touched, a->touched_cap * sizeof a->touched[0]);
    }
    struct touched *t = &a->touched[a->touched_count++];
    *t = (struct touched){.keyspace = keyspace, .kind = kind};
    return t;
}

void touched_route(struct touched *t, struct dir_partition *p)
{
    if (t->routes.count == DIR_CHANGE_ROUTES_MAX) {
        t->oversize = true;
        parts_close(&t->routes);
    }
    if (!t->oversize) {
        parts_add(&t->routes, dir_ref(p));
    }
}

void touched_removed(struct touched *t, uint64_t partition)
{
    if (t->removed_count == DIR_CHANGE_ROUTES_MAX) {
        t->oversize = true;
    }
    if (t->oversize) {
        return;
    }
    if (t->removed_count == t->removed_cap) {
        t->removed_cap = t->removed_cap > 0 ? t->removed_cap * 2 : 2;
        t->removed = mem_realloc(t->removed, t->removed_cap * sizeof t->removed[0]);
    }
    t->removed[t->removed_count++] = partition;
}

void apply_count(struct apply *a, const struct dir_partition *p, int64_t delta)
{
    for (uint8_t i = 0; i < p->replica_count; i++) {
        counts_add(&a->counts, p->replicas[i].node, delta);
    }
}

void dir_effects_free(struct dir_effects *e)
{
    while (e != NULL) {
        struct dir_effects *next = e->next;
        for (uint64_t i = 0; i < e->row_count; i++) {
            dir_unref(e->rows[i].before);
            dir_unref(e->rows[i].after);
        }
        mem_free(e->rows);
        mem_free(e);
        e = next;
    }
}
