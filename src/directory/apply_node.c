/* SPDX-License-Identifier: Apache-2.0 */
/* Data nodes: registered, changed, removed, declared lost. */
#include "base/assert.h"
#include "base/mem.h"
#include "base/parse.h"
#include "directory/operation.h"

#include <inttypes.h>
#include <stdio.h>

static enum err_code check_capacity(struct err *e, const struct dir_node *n)
{
    const struct dir_label *capacity = dir_node_capacity(n);
    for (uint32_t i = 0; i < n->capacity_count; i++) {
        uint64_t value;
        if (!parse_u64(capacity[i].value, PARSE_INT_MAX, &value)) {
            return err_set_at(e, ERR_INVALID_REQUEST, "/capacity",
                              "\"%s\" is not a whole number in range", capacity[i].name);
        }
    }
    return ERR_OK;
}

/* What the command says a node is, into `out`, of DIR_NODE_SIZE_MAX. */
static enum err_code read_node(struct apply *a, const Cadastre__NodePut *m, struct dir_node *out)
{
    if (!parse_is_name(slice_of(m->name, strlen(m->name)))) {
        return err_set_at(&a->err, ERR_INVALID_REQUEST, "/node", "it is not a valid name");
    }
    apply_subject(a, "node=%s", m->name);
    if (!valid_address(m->address)) {
        return err_set_at(&a->err, ERR_INVALID_REQUEST, "/address",
                          "an address is 1 to %d printable characters without blanks",
                          DIR_ADDRESS_MAX);
    }
    (void)snprintf(out->name, sizeof out->name, "%s", m->name);
    (void)snprintf(out->address, sizeof out->address, "%s", m->address);
    out->is_static = m->is_static;
    enum err_code code = valid_labels(&a->err, "/labels", m->labels, m->n_labels, out->tags);
    if (code == ERR_OK) {
        out->label_count = (uint32_t)m->n_labels;
        code = valid_labels(&a->err, "/capacity", m->capacity, m->n_capacity,
                            out->tags + out->label_count);
    }
    if (code == ERR_OK) {
        out->capacity_count = (uint32_t)m->n_capacity;
        code = check_capacity(&a->err, out);
    }
    return code;
}

static enum err_code check_address(struct apply *a, const struct dir_node *next)
{
    const struct dir_node *n;
    struct ptree_iter it;
    for (ptree_seek(&a->s->nodes_by_name, slice_of(NULL, 0), &it);
         (n = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        if (!n->lost && strcmp(n->address, next->address) == 0 &&
            strcmp(n->name, next->name) != 0) {
            return err_set_at(&a->err, ERR_NODE_IN_USE, "/address", "\"%s\" has this address",
                              n->name);
        }
    }
    return ERR_OK;
}

static bool same_labels(const struct dir_label *a,
                        uint32_t a_count,
                        const struct dir_label *b,
                        uint32_t b_count)
{
    bool same = a_count == b_count;
    for (uint32_t i = 0; same && i < a_count; i++) {
        same = strcmp(a[i].name, b[i].name) == 0 && strcmp(a[i].value, b[i].value) == 0;
    }
    return same;
}

/* A node can't leave what its partitions' placement requires by changing its labels. */
static enum err_code check_labels(struct apply *a,
                                  const struct dir_node *old,
                                  const struct dir_node *next,
                                  const struct part_list *held)
{
    for (uint64_t i = 0; i < held->count; i++) {
        uint64_t id = held->items[i]->keyspace;
        if (i > 0 && id == held->items[i - 1]->keyspace) {
            continue;
        }
        const struct dir_keyspace *ks = state_keyspace(a->s, id);
        if (place_allows(&ks->placement, old) && !place_allows(&ks->placement, next)) {
            return err_set_at(&a->err, ERR_PLACEMENT_VIOLATED, "/labels",
                              "the node holds partitions of \"%s\", whose placement would not "
                              "allow it any more",
                              ks->name);
        }
    }
    return ERR_OK;
}

static void touch_routes(struct apply *a, const struct part_list *held, enum dir_change_kind kind)
{
    for (uint64_t i = 0; i < held->count; i++) {
        touched_route(apply_touch(a, held->items[i]->keyspace, kind), held->items[i]);
        apply_count(a, held->items[i], 0);
    }
}

static void finish_put(struct apply *a, struct dir_node *next)
{
    next->object.refs = 1;
    next->object.kind = DIR_KIND_NODE;
    next->mod_revision = next->task_revision = a->rev;
    a->session = next->session;
    a->changed = true;
    apply_put(a, row_copy(next, dir_node_size(next)));
}

/* The result shows the node as it is after what the command placed on it. */
static void show_node(struct apply *a, uint64_t id)
{
    uint8_t key[8];
    struct dir_node *n = ptree_get(&a->s->nodes, ptree_u64_key(id, key));
    struct dir_node *copy = row_copy(n, dir_node_size(n));
    copy->partition_count = (uint64_t)((int64_t)n->partition_count + counts_get(&a->counts, id));
    a->node = copy;
    a->session = n->session;
}

static enum err_code put_new(struct apply *a, struct dir_node *next)
{
    if (a->s->nodes.count >= DIR_NODES_MAX) {
        return err_set(&a->err, ERR_LIMIT_EXCEEDED, "the directory knows at most %d nodes",
                       DIR_NODES_MAX);
    }
    next->id = apply_id(a);
    next->lease_ms = next->is_static ? 0 : (uint32_t)a->s->settings.lease_ms;
    next->session = next->created = next->route_revision = a->rev;
    finish_put(a, next);
    return ERR_OK;
}

/* What differs from the last registration. */
struct difference {
    bool labels;
    bool routes; /* what routes show: the address, and whether the authority is static */
    bool any;
};

static struct difference compare(const struct dir_node *old, const struct dir_node *next)
{
    struct difference d;
    d.labels = !same_labels(old->tags, old->label_count, next->tags, next->label_count);
    d.routes = strcmp(old->address, next->address) != 0 || old->is_static != next->is_static;
    d.any = d.labels || d.routes ||
            !same_labels(dir_node_capacity(old), old->capacity_count, dir_node_capacity(next),
                         next->capacity_count);
    return d;
}

static enum err_code put_known(struct apply *a, const struct dir_node *old, struct dir_node *next)
{
    struct difference d = compare(old, next);
    if (!d.any) {
        return ERR_OK;
    }
    struct part_list held = {NULL, 0, 0};
    if (d.labels || d.routes) {
        grant_held(a->s, old, &held);
    }
    enum err_code code = d.labels ? check_labels(a, old, next, &held) : ERR_OK;
    if (code == ERR_OK) {
        next->id = old->id;
        next->session = old->session;
        next->lost = old->lost;
        next->scheduling = old->scheduling;
        next->scheduling_ms = old->scheduling_ms;
        next->lapses = old->lapses;
        next->lapsed_ms = old->lapsed_ms;
        next->created = old->created;
        next->partition_count = old->partition_count;
        next->ended_session = old->ended_session;
        next->ended_lease_ms = old->ended_lease_ms;
        next->route_revision = d.routes ? a->rev : old->route_revision;
        finish_put(a, next);
        if (d.routes && held.count > 0) {
            a->kind = DIR_CHANGE_NODE;
            touch_routes(a, &held, DIR_CHANGE_NODE);
        }
    }
    parts_close(&held);
    return code;
}

/* What a new session means for one partition that the node holds a copy of. */
static void
settle(struct apply *a, const struct dir_node *old, const struct copies *copies, uint64_t id)
{
    uint8_t key[8];
    const struct dir_partition *p = ptree_get(&a->s->partitions, ptree_u64_key(id, key));
    int at = partition_copy_on(p, old->id);
    const struct dir_replica *r = &p->replicas[at];
    bool holds = copies_hold(copies, p, r);
    operation_registered(a, p, view_node_by_id(a->s, old->id), holds);
    p = ptree_get(&a->s->partitions, ptree_u64_key(id, key));
    at = partition_copy_on(p, old->id);
    if (at < 0) {
        return; /* it was a candidate's, and is given up */
    }
    r = &p->replicas[at];
    uint64_t proven = a->cmd->node_put->previous_session;
    if (r->role == DIR_ROLE_PRIMARY) {
        if (p->session == proven || (old->is_static && p->session == old->session)) {
            grant_release(a, p, holds);
        } else {
            apply_count(a, p, 0); /* it waits until the old session is released */
        }
        return;
    }
    if (r->role == DIR_ROLE_SYNC && !holds) {
        grant_demote(a, p, at);
    } else {
        apply_count(a, p, 0); /* the primary has to know the new session */
    }
    grant_recover(a, ptree_get(&a->s->partitions, ptree_u64_key(id, key)));
}

static void note_ended(struct apply *a, const struct dir_node *old, uint64_t id)
{
    uint8_t key[8];
    const struct dir_node *n = ptree_get(&a->s->nodes, ptree_u64_key(id, key));
    dir_rev newest = grant_newest_ended(a->s, n);
    struct dir_node *next = row_copy(n, dir_node_size(n));
    next->ended_session = newest;
    next->ended_lease_ms = 0;
    if (newest != 0) {
        uint32_t before = old->ended_session != 0 ? old->ended_lease_ms : 0;
        next->ended_lease_ms = before > old->lease_ms ? before : old->lease_ms;
    }
    apply_put(a, next);
}

/* A new session of a known node: the old one has ended, which is not yet to say that what it was
 * granted is released. */
static enum err_code put_session(struct apply *a, const struct dir_node *old, struct dir_node *next)
{
    struct difference d = compare(old, next);
    struct part_list held = {NULL, 0, 0};
    grant_held(a->s, old, &held);
    enum err_code code = d.labels ? check_labels(a, old, next, &held) : ERR_OK;
    if (code == ERR_OK) {
        struct copies *copies = copies_read(a->s, a->cmd->node_put);
        next->id = old->id;
        next->session = a->rev;
        next->lease_ms = next->is_static ? 0 : (uint32_t)a->s->settings.lease_ms;
        next->scheduling = old->scheduling;
        next->scheduling_ms = old->scheduling_ms;
        next->lapses = old->lapses;
        next->lapsed_ms = old->lapsed_ms;
        next->created = old->created;
        next->partition_count = old->partition_count;
        next->route_revision = d.routes ? a->rev : old->route_revision;
        finish_put(a, next);
        if (d.routes && held.count > 0) {
            touch_routes(a, &held, DIR_CHANGE_NODE);
        }
        for (uint64_t i = 0; i < held.count; i++) {
            settle(a, old, copies, held.items[i]->id);
        }
        note_ended(a, old, next->id);
        a->kind = a->touched_count > 0 ? DIR_CHANGE_GRANT : 0;
        copies_free(copies);
    }
    parts_close(&held);
    return code;
}

static enum err_code check_copies_named(struct apply *a, const Cadastre__NodePut *m)
{
    enum { COPIES_MAX = 10000 };
    if (m->n_copies > COPIES_MAX) {
        return err_set_at(&a->err, ERR_LIMIT_EXCEEDED, "/copies", "there are more than %d",
                          COPIES_MAX);
    }
    return ERR_OK;
}

static enum err_code put_said(struct apply *a, const Cadastre__NodePut *m, struct dir_node *next)
{
    enum err_code code = read_node(a, m, next);
    if (code == ERR_OK) {
        code = check_address(a, next);
    }
    if (code == ERR_OK) {
        code = check_copies_named(a, m);
    }
    if (code != ERR_OK) {
        return code;
    }
    const struct dir_node *old = view_node(a->s, slice_of(m->name, strlen(m->name)));
    if (old == NULL) {
        code = put_new(a, next);
    } else if (old->is_static && next->is_static) {
        code = put_known(a, old, next);
    } else {
        code = put_session(a, old, next);
    }
    if (code != ERR_OK) {
        return code;
    }
    if (a->changed && place_waiting(a, 0) > 0) {
        a->kind = DIR_CHANGE_PLACE;
    }
    show_node(a, old != NULL ? old->id : next->id);
    return ERR_OK;
}

enum err_code apply_node_put(struct apply *a)
{
    struct dir_node *next = mem_zalloc(DIR_NODE_SIZE_MAX);
    enum err_code code = put_said(a, a->cmd->node_put, next);
    mem_free(next);
    return code;
}

static void drop_copy(struct apply *a, struct dir_partition *p, const struct dir_node *n)
{
    struct dir_replica replicas[DIR_REPLICAS_MAX];
    struct partition_arrays arrays = partition_arrays(p);
    struct dir_partition like = partition_like(p);
    uint8_t count = 0;
    for (uint8_t i = 0; i < p->replica_count; i++) {
        if (p->replicas[i].node != n->id) {
            replicas[count++] = p->replicas[i];
        }
    }
    arrays.replicas = replicas;
    arrays.replica_count = count;
    if (p->replicas[0].node == n->id && p->replicas[0].role == DIR_ROLE_PRIMARY) {
        /* Nobody else may write yet, so the epoch stays (decisions.md 7 in the design): the next
         * grant sets one. */
        like.state = DIR_UNAVAILABLE;
        like.session = 0;
    }
    like.home = p->home == n->id ? 0 : p->home;
    like.mod_revision = a->rev;
    like.cause = DIR_CHANGE_LOST;
    struct dir_partition *now = partition_new(&like, &arrays);
    apply_count(a, now, 0);
    touched_route(apply_touch(a, now->keyspace, DIR_CHANGE_LOST), now);
    apply_put(a, now);
}

/* The candidate of a part holds no copy of the partition, so it can't stay as one: it has to get
 * its part before the source is forgotten. */
static enum err_code
check_parts_taken(struct apply *a, const struct part_list *held, const struct dir_node *n)
{
    for (uint64_t i = 0; i < held->count; i++) {
        const struct dir_partition *p = held->items[i];
        const struct dir_operation *o = operation_of_partition(a->s, p);
        if (o != NULL && o->part.is_set && o->destination != n->id &&
            operation_may_promote(a->s, o, p)) {
            return err_set(&a->err, ERR_NODE_IN_USE,
                           "operation %" PRIu64
                           " has the only other copy of what it moves: promote its candidate first",
                           o->id);
        }
    }
    return ERR_OK;
}

enum err_code apply_node_delete(struct apply *a)
{
    const Cadastre__NodeDelete *m = a->cmd->node_delete;
    const struct dir_node *n = view_node(a->s, slice_of(m->name, strlen(m->name)));
    if (n == NULL) {
        return err_set(&a->err, ERR_NODE_NOT_FOUND, "there is no such node");
    }
    apply_subject(a, "node=%s", n->name);
    if (n->ended_session != 0 ||
        (!n->is_static && !n->ended && n->partition_count > 0 && m->force)) {
        return err_set(&a->err, ERR_LEASE_HELD,
                       "\"%s\" may write what it holds until its session has lapsed or is released",
                       n->name);
    }
    if (n->partition_count > 0 && !m->force) {
        return err_set(&a->err, ERR_NODE_IN_USE, "\"%s\" holds copies of %" PRIu64 " partitions",
                       n->name, n->partition_count);
    }
    struct part_list held = {NULL, 0, 0};
    grant_held(a->s, n, &held);
    enum err_code code = check_parts_taken(a, &held, n);
    if (code != ERR_OK) {
        parts_close(&held);
        return code;
    }
    for (uint64_t i = 0; i < held.count; i++) {
        uint8_t key[8];
        operation_dropped(a, held.items[i], "node_removed", true);
        struct dir_partition *p =
            ptree_get(&a->s->partitions, ptree_u64_key(held.items[i]->id, key));
        if (partition_copy_on(p, n->id) >= 0) {
            drop_copy(a, p, n);
        }
    }
    a->kind = held.count > 0 ? DIR_CHANGE_LOST : 0;
    parts_close(&held);
    duty_drop_all(a, n->id);
    drain_divert(a, n->id, "node_removed");
    a->changed = true;
    apply_remove(a, n);
    return ERR_OK;
}
