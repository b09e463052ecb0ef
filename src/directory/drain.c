/* SPDX-License-Identifier: Apache-2.0 */
/* What the scheduling of a node does to operations that wait or have only begun: in the same
 * command, so that nothing of a cancelled drain is left to run by itself. */
#include "base/mem.h"
#include "directory/operation.h"

#include <stdio.h>

struct id_list {
    uint64_t *ids;
    uint64_t count, cap;
};

/* Gathered first, because ending one changes the table. */
static void gather(const struct dir_view *s,
                   bool (*wanted)(const struct dir_operation *o, uint64_t node),
                   uint64_t node,
                   struct id_list *out)
{
    const struct dir_operation *o;
    struct ptree_iter it;
    for (ptree_seek(&s->operations, slice_of(NULL, 0), &it);
         (o = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        if (wanted(o, node)) {
            if (out->count == out->cap) {
                out->cap = out->cap > 0 ? out->cap * 2 : 16;
                out->ids = mem_realloc(out->ids, out->cap * sizeof out->ids[0]);
            }
            out->ids[out->count++] = o->id;
        }
    }
}

static void abort_all(struct apply *a, struct id_list *list, const char *code, const char *detail)
{
    for (uint64_t i = 0; i < list->count; i++) {
        uint8_t key[8];
        const struct dir_operation *o = view_operation(a->s, list->ids[i]);
        const struct dir_partition *p =
            ptree_get(&a->s->partitions, ptree_u64_key(o->partition, key));
        struct moving m;
        moving_open(&m, a, p, "directory");
        moving_abort(&m, code, detail);
        moving_commit(&m, false);
    }
    mem_free(list->ids);
    /* The command is about the node: its result shows none of them. */
    dir_unref(a->operation);
    a->operation = NULL;
}

static bool is_of_drain(const struct dir_operation *o, uint64_t node)
{
    bool early = o->state == DIR_OPERATION_QUEUED ||
                 (o->state == DIR_OPERATION_RUNNING && o->stage < DIR_STAGE_DUAL_WRITE);
    return early && o->class_of == DIR_CLASS_DRAIN && o->leaving == node;
}

static bool waits_for(const struct dir_operation *o, uint64_t node)
{
    return o->state == DIR_OPERATION_QUEUED && o->destination == node &&
           o->kind != DIR_OPERATION_TRANSFER;
}

void drain_cancel(struct apply *a, uint64_t node)
{
    struct id_list list = {NULL, 0, 0};
    gather(a->s, is_of_drain, node, &list);
    abort_all(a, &list, "drain_cancelled", "the node does not drain any more");
}

void drain_divert(struct apply *a, uint64_t node, const char *code)
{
    struct id_list list = {NULL, 0, 0};
    gather(a->s, waits_for, node, &list);
    abort_all(a, &list, code, "the node takes nothing new");
}
