/* SPDX-License-Identifier: Apache-2.0 */
/* Operations: the rows of what is done to partitions beyond one command. */
#include "base/assert.h"
#include "base/mem.h"
#include "directory/internal.h"

#include <stdio.h>

static void note_stage(struct apply *a, struct dir_operation *o, enum dir_stage stage)
{
    struct dir_stage_entry *s = &o->stages[o->stage_count++];
    const char *by = a->cmd->principal[0] != '\0' ? a->cmd->principal : "directory";
    o->stage = (uint8_t)stage;
    o->stage_since_ms = a->s->time_ms;
    o->stage_revision = a->rev;
    s->stage = (uint8_t)stage;
    s->at_ms = a->s->time_ms;
    s->revision = a->rev;
    (void)snprintf(s->by, sizeof s->by, "%.*s", DIR_NAME_MAX, by);
}

static struct dir_operation *operation_new(struct apply *a,
                                           const struct dir_partition *p,
                                           const struct dir_node *to,
                                           uint32_t stages)
{
    const struct dir_node *from = view_primary(a->s, p);
    struct dir_operation *o = mem_zalloc(sizeof *o + stages * sizeof o->stages[0]);
    o->object.refs = 1;
    o->object.kind = DIR_KIND_OPERATION;
    o->id = apply_id(a);
    o->keyspace = p->keyspace;
    o->partition = p->id;
    o->source = from != NULL ? from->id : 0;
    o->destination = to->id;
    o->epoch_before = p->epoch;
    o->revision = a->rev;
    o->at_ms = a->s->time_ms;
    o->attempt = 1;
    (void)snprintf(o->keyspace_name, sizeof o->keyspace_name, "%s",
                   state_keyspace(a->s, p->keyspace)->name);
    (void)snprintf(o->source_name, sizeof o->source_name, "%s", from != NULL ? from->name : "");
    (void)snprintf(o->destination_name, sizeof o->destination_name, "%s", to->name);
    (void)snprintf(o->initiator, sizeof o->initiator, "%s", a->cmd->principal);
    return o;
}

static void make_room(struct apply *a)
{
    while (a->s->operations.count >= DIR_OPERATIONS_MAX) {
        struct ptree_iter it;
        ptree_seek(&a->s->operations, slice_of(NULL, 0), &it);
        apply_remove(a, ptree_iter_get(&it, NULL));
    }
}

struct dir_operation *operation_done(struct apply *a,
                                     const struct dir_partition *p,
                                     enum dir_operation_kind kind,
                                     const struct dir_node *to,
                                     const char *reason)
{
    struct dir_operation *o = operation_new(a, p, to, 1);
    o->kind = (uint8_t)kind;
    o->state = DIR_OPERATION_DONE;
    o->moves_primary = true;
    o->epoch_after = a->rev;
    (void)snprintf(o->reason, sizeof o->reason, "%s", reason);
    note_stage(a, o, DIR_STAGE_DONE);
    make_room(a);
    a->operation = dir_ref(o);
    apply_put(a, o);
    return o;
}
