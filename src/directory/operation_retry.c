/* SPDX-License-Identifier: Apache-2.0 */
/* An operation that has ended badly, once more. */
#include "directory/operation.h"

#include <inttypes.h>

/* Its nodes are there, and what it moves is what it moved. */
static enum err_code
check_nodes(struct apply *a, const struct dir_operation *o, struct dir_partition *p)
{
    const struct dir_node *from = view_node_by_id(a->s, o->leaving);
    const struct dir_node *owner = view_primary(a->s, p);
    bool moves = o->kind == DIR_OPERATION_MOVE || o->kind == DIR_OPERATION_TRANSFER;
    if (o->destination != 0 && view_node_by_id(a->s, o->destination) == NULL) {
        return err_set(&a->err, ERR_NO_DESTINATION, "\"%s\" is gone", o->destination_name);
    }
    if (o->leaving != 0 && from == NULL) {
        return err_set(&a->err, ERR_NO_DESTINATION, "\"%s\" is gone", o->source_name);
    }
    if (owner != NULL && moves && o->moves_primary != (owner == from)) {
        /* Another way to move it, which nobody has asked for. */
        apply_show_present(a, p);
        return err_set(&a->err, ERR_NOT_OWNER, "\"%s\" is %s", o->source_name,
                       o->moves_primary ? "not the primary any more" : "the primary now");
    }
    return ERR_OK;
}

/* One that was aborted begins anew, if that is what could be asked for today. */
static enum err_code
again_from_the_start(struct apply *a, const struct dir_operation *o, struct dir_partition *p)
{
    struct operation_request r = {
        .kind = o->kind,
        .role = o->role,
        .part = o->part,
        .from = o->leaving != 0 ? view_node_by_id(a->s, o->leaving) : NULL,
        .to = o->destination != 0 ? view_node_by_id(a->s, o->destination) : NULL,
    };
    enum err_code code = operation_check_free(a, p);
    code = code == ERR_OK ? check_nodes(a, o, p) : code;
    code = code == ERR_OK ? operation_check(a, p, &r) : code;
    if (code != ERR_OK) {
        a->err.pointer[0] = '\0'; /* this request has no such member */
        return code;
    }
    struct moving m;
    moving_open_again(&m, a, o, p);
    moving_queue_again(&m, r.owner->id);
    moving_commit(&m, false);
    return ERR_OK;
}

/* One that failed after its cutover only has to clean up. */
static enum err_code
clean_up_again(struct apply *a, const struct dir_operation *o, struct dir_partition *p)
{
    int at = o->leaving != 0 ? partition_copy_on(p, o->leaving) : -1;
    bool there = at >= 0 && p->replicas[at].copy == o->leaving_copy;
    if (there && p->replicas[at].role != DIR_ROLE_ASYNC) {
        apply_show_present(a, p);
        return err_set(&a->err, ERR_NODE_IN_USE, "the copy on \"%s\" is a %s one again",
                       o->source_name, dir_role_name(p->replicas[at].role));
    }
    enum err_code code = there ? operation_check_free(a, p) : ERR_OK;
    if (code != ERR_OK) {
        return code;
    }
    struct moving m;
    moving_open_again(&m, a, o, p);
    moving_cleanup_again(&m);
    moving_commit(&m, false);
    return ERR_OK;
}

enum err_code operation_retry(struct apply *a, const struct dir_operation *o)
{
    struct dir_partition *p;
    if (o->state == DIR_OPERATION_QUEUED || o->state == DIR_OPERATION_RUNNING) {
        return ERR_OK; /* asked for again */
    }
    if (o->state == DIR_OPERATION_DONE) {
        return err_set(&a->err, ERR_PAST_CUTOVER, "operation %" PRIu64 " is done", o->id);
    }
    enum err_code code = apply_find_partition(a, o->partition, &p);
    if (code != ERR_OK) {
        return code;
    }
    return o->state == DIR_OPERATION_FAILED ? clean_up_again(a, o, p)
                                            : again_from_the_start(a, o, p);
}
