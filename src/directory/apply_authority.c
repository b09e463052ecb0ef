/* SPDX-License-Identifier: Apache-2.0 */
/* Who counts: what a primary asks of its replicas, and what a person forces. */
#include "base/mem.h"
#include "directory/operation.h"

#include <inttypes.h>
#include <stdio.h>

/* Only the present primary's live session, at its epoch, may change who has to have a write. */
static enum err_code check_primary(struct apply *a, struct dir_partition *p)
{
    const Cadastre__InsyncChange *m = a->cmd->insync_change;
    enum err_code code = apply_expect_epoch(a, p, true, m->epoch);
    if (code != ERR_OK) {
        return code;
    }
    const struct dir_node *owner = view_primary(a->s, p);
    if (owner == NULL || p->session != m->session) {
        apply_show_present(a, p);
        return err_set(&a->err, ERR_NOT_OWNER,
                       "partition %" PRIu64 " is not granted to session %" PRIu64, p->id,
                       m->session);
    }
    if (owner->session != m->session || !view_node_is_live(owner)) {
        return err_set(&a->err, ERR_SESSION_ENDED, "session %" PRIu64 " has ended", m->session);
    }
    if (m->has_mod_revision && m->mod_revision < p->mod_revision) {
        a->current_revision = p->mod_revision;
        return err_set_at(&a->err, ERR_STALE_REVISION, "/mod_revision",
                          "the partition changed at revision %" PRIu64, p->mod_revision);
    }
    return ERR_OK;
}

/* A failover may never go back to the source of a move by itself. */
static bool
is_old_source(const struct apply *a, const struct dir_partition *p, const struct dir_node *n)
{
    const struct dir_operation *o = operation_of_partition(a->s, p);
    return o != NULL && o->stage == DIR_STAGE_WINDOW && o->source == n->id;
}

/* A copy that was in sync is so in its node's session of then: what registered since may have lost
 * it, or stand elsewhere. */
static enum err_code check_session(struct apply *a, size_t at, const struct dir_node *n)
{
    const Cadastre__InsyncChange *m = a->cmd->insync_change;
    uint64_t wanted = at < m->n_insync_sessions ? m->insync_sessions[at] : 0;
    if (wanted == 0 || wanted == n->session) {
        return ERR_OK;
    }
    char pointer[DIR_NAME_MAX + 16];
    (void)snprintf(pointer, sizeof pointer, "/sessions/%s", n->name);
    a->current_revision = n->session;
    return err_set_at(&a->err, ERR_STALE_REVISION, pointer, "\"%s\" is in session %" PRIu64,
                      n->name, n->session);
}

/* The roles that are asked for, into `replicas`. */
static enum err_code
read_roles(struct apply *a, const struct dir_partition *p, struct dir_replica *replicas)
{
    const Cadastre__InsyncChange *m = a->cmd->insync_change;
    for (uint8_t i = 1; i < p->replica_count; i++) {
        if (replicas[i].role == DIR_ROLE_SYNC) {
            replicas[i].role = DIR_ROLE_ASYNC;
        }
    }
    for (size_t i = 0; i < m->n_insync; i++) {
        const struct dir_node *n = view_node(a->s, slice_of(m->insync[i], strlen(m->insync[i])));
        int at = n != NULL ? partition_copy_on(p, n->id) : -1;
        char pointer[32];
        (void)snprintf(pointer, sizeof pointer, "/insync/%zu", i);
        if (at < 0 || p->replicas[at].role == DIR_ROLE_JOINING) {
            return err_set_at(&a->err, ERR_INVALID_REQUEST, pointer,
                              "it has no copy that could be in sync");
        }
        if (p->replicas[at].role == DIR_ROLE_ASYNC && !view_node_is_live(n)) {
            return err_set_at(&a->err, ERR_INVALID_REQUEST, pointer, "it has no session");
        }
        /* Session and epoch do not order two changes: one that was sent before the node was
         * dropped, and comes late, must not count it again (docs/adr/0009). */
        if (p->replicas[at].role == DIR_ROLE_ASYNC && !m->has_mod_revision) {
            return err_set_at(&a->err, ERR_INVALID_REQUEST, "/mod_revision",
                              "is needed to count \"%s\" as in sync again", n->name);
        }
        if (check_session(a, i, n) != ERR_OK) {
            return a->err.code;
        }
        if (p->replicas[at].role == DIR_ROLE_ASYNC && is_old_source(a, p, n)) {
            return err_set_at(&a->err, ERR_INVALID_REQUEST, pointer,
                              "it is the source of a move whose validation window is open");
        }
        if (at > 0) { /* the primary may name itself */
            replicas[at].role = DIR_ROLE_SYNC;
        }
    }
    return ERR_OK;
}

enum err_code apply_insync_change(struct apply *a)
{
    struct dir_partition *p;
    enum err_code code = apply_find_partition(a, a->cmd->insync_change->partition, &p);
    if (code == ERR_OK) {
        code = check_primary(a, p);
    }
    if (code != ERR_OK) {
        return code;
    }
    struct dir_replica replicas[DIR_REPLICAS_MAX];
    memcpy(replicas, p->replicas, p->replica_count * sizeof replicas[0]);
    code = read_roles(a, p, replicas);
    if (code != ERR_OK) {
        return code;
    }
    struct partition_arrays arrays = partition_arrays(p);
    struct dir_partition like = partition_like(p);
    bool changes = false;
    for (uint8_t i = 0; i < p->replica_count; i++) {
        changes = changes || replicas[i].role != p->replicas[i].role;
    }
    if (!changes) {
        parts_add(&a->routes, dir_ref(p));
        return ERR_OK;
    }
    arrays.replicas = replicas;
    like.cause = DIR_CHANGE_ROLES;
    like.mod_revision = a->rev;
    struct dir_partition *now = partition_new(&like, &arrays);
    apply_count(a, now, 0);
    touched_route(apply_touch(a, now->keyspace, DIR_CHANGE_ROLES), now);
    parts_add(&a->routes, dir_ref(now));
    apply_put(a, now);
    a->changed = true;
    a->kind = DIR_CHANGE_ROLES;
    return ERR_OK;
}

static enum err_code
check_failover(struct apply *a, struct dir_partition *p, const struct dir_node *to)
{
    const Cadastre__ForcedFailover *m = a->cmd->forced_failover;
    if (!m->accept_loss) {
        return err_set_at(&a->err, ERR_INVALID_REQUEST, "/accept_loss",
                          "it has to be true: what \"%s\" has not got is lost", to->name);
    }
    if (!valid_text(m->reason, DIR_TEXT_MAX)) {
        return err_set_at(&a->err, ERR_INVALID_REQUEST, "/reason",
                          "a reason is a text of 1 to %d bytes", DIR_TEXT_MAX);
    }
    enum err_code code = apply_expect_epoch(a, p, m->has_expect_epoch, m->expect_epoch);
    if (code != ERR_OK) {
        return code;
    }
    int at = partition_copy_on(p, to->id);
    const char *why = NULL;
    if (at < 0 || p->replicas[at].role == DIR_ROLE_JOINING) {
        why = "it has no copy";
    } else if (p->replicas[at].role == DIR_ROLE_PRIMARY) {
        why = "it is the primary";
    } else if (!view_node_is_live(to)) {
        why = "it has no session";
    }
    if (why != NULL) {
        return err_set_at(&a->err, ERR_NO_DESTINATION, "/to", "\"%s\" can't take over: %s",
                          to->name, why);
    }
    const struct dir_node *owner = view_primary(a->s, p);
    if (grant_is_leased(a->s, p)) {
        apply_show_present(a, p);
        return err_set(&a->err, ERR_LEASE_HELD,
                       "\"%s\" may write the partition while it holds its lease", owner->name);
    }
    return ERR_OK;
}

enum err_code apply_forced_failover(struct apply *a)
{
    const Cadastre__ForcedFailover *m = a->cmd->forced_failover;
    struct dir_partition *p;
    enum err_code code = apply_find_partition(a, m->partition, &p);
    if (code != ERR_OK) {
        return code;
    }
    const struct dir_node *to = view_node(a->s, slice_of(m->to, strlen(m->to)));
    if (to == NULL) {
        return err_set_at(&a->err, ERR_NODE_NOT_FOUND, "/to", "there is no such node");
    }
    code = check_failover(a, p, to);
    if (code != ERR_OK) {
        return code;
    }
    uint64_t id = p->id;
    uint8_t key[8];
    operation_dropped(a, p, "failover", false);
    p = ptree_get(&a->s->partitions, ptree_u64_key(id, key));
    (void)operation_done(a, p, DIR_OPERATION_FAILOVER, to, m->reason);
    grant_to(a, p, partition_copy_on(p, to->id), DIR_CHANGE_FAILOVER);
    parts_add(&a->routes, dir_ref(ptree_get(&a->s->partitions, ptree_u64_key(id, key))));
    a->changed = true;
    a->kind = DIR_CHANGE_FAILOVER;
    return ERR_OK;
}
