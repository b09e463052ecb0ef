/* SPDX-License-Identifier: Apache-2.0 */
/* Cleanup duties: copies that their nodes have to delete (docs/movement.md, 12). */
#include "base/mem.h"
#include "directory/operation.h"

#include <inttypes.h>

void duty_make(struct apply *a,
               const struct dir_keyspace *ks,
               const struct dir_partition *p,
               const struct dir_replica *r,
               uint64_t operation)
{
    struct dir_duty *d = mem_zalloc(sizeof *d);
    d->object.refs = 1;
    d->object.kind = DIR_KIND_DUTY;
    d->id = apply_id(a);
    d->node = r->node;
    d->keyspace = p->keyspace;
    d->partition = p->id;
    d->operation = operation;
    d->copy = r->copy;
    d->revision = a->rev;
    memcpy(d->keyspace_name, ks->name, sizeof d->keyspace_name);
    counts_add(&a->counts, r->node, 0);
    apply_put(a, d);
}

static const struct dir_duty *next_duty(const struct dir_view *s, uint64_t node)
{
    uint8_t key[16];
    struct ptree_iter it;
    ptree_seek(&s->duties_by_node, state_pair_key(node, 0, key), &it);
    const struct dir_duty *d = ptree_iter_get(&it, NULL);
    return d != NULL && d->node == node ? d : NULL;
}

void duty_drop_all(struct apply *a, uint64_t node)
{
    const struct dir_duty *d;
    while ((d = next_duty(a->s, node)) != NULL) {
        const struct dir_operation *o = view_operation(a->s, d->operation);
        if (o != NULL && o->stage == DIR_STAGE_CLEANUP && o->leaving == node) {
            operation_cleaned(a, o, 0, 0);
        }
        apply_remove(a, d);
    }
}

bool duty_is_owed(const struct dir_view *s, uint64_t node, uint64_t partition)
{
    const struct dir_duty *d;
    struct ptree_iter it;
    uint8_t key[16];
    for (ptree_seek(&s->duties_by_node, state_pair_key(node, 0, key), &it);
         (d = ptree_iter_get(&it, NULL)) != NULL && d->node == node; ptree_iter_next(&it)) {
        if (d->partition == partition) {
            return true;
        }
    }
    return false;
}

const struct dir_duty *duty_of_operation(const struct dir_view *s, const struct dir_operation *o)
{
    const struct dir_duty *d;
    struct ptree_iter it;
    uint8_t key[16];
    for (ptree_seek(&s->duties_by_node, state_pair_key(o->leaving, 0, key), &it);
         (d = ptree_iter_get(&it, NULL)) != NULL && d->node == o->leaving; ptree_iter_next(&it)) {
        if (d->operation == o->id) {
            return d;
        }
    }
    return NULL;
}

enum err_code apply_duty_done(struct apply *a)
{
    const Cadastre__DutyDone *m = a->cmd->duty_done;
    const struct dir_node *n = view_node(a->s, slice_of(m->node, strlen(m->node)));
    uint8_t key[8];
    const struct dir_duty *d = ptree_get(&a->s->duties, ptree_u64_key(m->duty, key));
    if (n == NULL) {
        return err_set(&a->err, ERR_NODE_NOT_FOUND, "there is no such node");
    }
    apply_subject(a, "node=%s duty=%" PRIu64, n->name, m->duty);
    if (n->session != m->session || !view_node_is_live(n)) {
        return err_set(&a->err, ERR_SESSION_ENDED, "session %" PRIu64 " of \"%s\" has ended",
                       m->session, n->name);
    }
    if (d == NULL || d->node != n->id) {
        return ERR_OK; /* it was done before: saying so again is fine */
    }
    if (d->copy != m->copy) {
        return err_set_at(&a->err, ERR_INVALID_REQUEST, "/copy",
                          "the duty is about copy %" PRIu64 ", not %" PRIu64, d->copy, m->copy);
    }
    const struct dir_operation *o = d->operation != 0 ? view_operation(a->s, d->operation) : NULL;
    if (o != NULL && o->stage == DIR_STAGE_CLEANUP && o->leaving == n->id) {
        operation_cleaned(a, o, 0, m->deleted_bytes);
    }
    counts_add(&a->counts, n->id, 0);
    apply_remove(a, d);
    a->changed = true;
    return ERR_OK;
}
