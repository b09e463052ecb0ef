/* SPDX-License-Identifier: Apache-2.0 */
/* A node's tasks: what its copies, the operations that hold them, and its duties come to. */
#include "directory/tasks.h"

#include "base/assert.h"
#include "directory/operation.h"

const char *dir_task_kind_name(enum dir_task_kind kind)
{
    static const char *const names[] = {
        [DIR_TASK_GRANT] = "grant", [DIR_TASK_FENCE] = "fence",     [DIR_TASK_REVOKE] = "revoke",
        [DIR_TASK_STAGE] = "stage", [DIR_TASK_CLEANUP] = "cleanup",
    };
    ASSERT(kind >= DIR_TASK_GRANT && kind <= DIR_TASK_CLEANUP);
    return names[kind];
}

struct feed {
    const struct dir_view *v;
    const struct dir_node *node;
    dir_rev since;
    bool (*fn)(void *arg, const struct dir_task *task);
    void *arg;
    uint64_t called;
    bool stopped;
};

static void newest(dir_rev *revision, dir_rev other)
{
    *revision = other > *revision ? other : *revision;
}

static bool emit(struct feed *f, const struct dir_task *t)
{
    if (!f->stopped && t->revision > f->since) {
        f->called++;
        f->stopped = !f->fn(f->arg, t);
    }
    return !f->stopped;
}

/* Who has to have a write before the primary may acknowledge it. */
static void put_must_have(const struct feed *f, const struct dir_partition *p, struct dir_task *t)
{
    const struct dir_operation *o = operation_of_partition(f->v, p);
    bool dual = o != NULL && o->stage >= DIR_STAGE_DUAL_WRITE && o->stage <= DIR_STAGE_CUTOVER;
    for (uint8_t i = 1; i < p->replica_count; i++) {
        if (p->replicas[i].role == DIR_ROLE_SYNC ||
            (dual && p->replicas[i].role == DIR_ROLE_JOINING)) {
            const struct dir_node *n = view_node_by_id(f->v, p->replicas[i].node);
            t->must_have[t->must_have_count++] =
                (struct dir_task_peer){n, n->session, p->replicas[i].role};
            newest(&t->revision, n->session);
            newest(&t->revision, n->route_revision);
        }
    }
}

/* Its part in the operation that holds p, when it has one. */
static void put_stage(struct feed *f, const struct dir_task *grant, const struct dir_operation *o)
{
    struct dir_task t = *grant;
    t.end_open = part_bounds(o, grant->partition, &t.start, &t.end);
    t.is_source = o->source == f->node->id;
    if (o->state != DIR_OPERATION_RUNNING || (!t.is_source && o->destination != f->node->id)) {
        return;
    }
    const struct dir_node *peer = view_node_by_id(f->v, t.is_source ? o->destination : o->source);
    bool fences = t.is_source && o->stage == DIR_STAGE_FENCE;
    t.kind = fences ? DIR_TASK_FENCE : DIR_TASK_STAGE;
    t.role = 0;
    t.session = f->node->session;
    t.must_have_count = 0;
    t.copy = o->copy;
    t.reverse = o->reverse && o->stage == DIR_STAGE_WINDOW;
    t.start_position = t.reverse ? o->final_position : o->base_position;
    if (t.reverse && t.is_source) {
        t.copy = grant->copy;
    }
    t.operation = o;
    t.peer = peer;
    newest(&t.revision, o->stage_revision);
    newest(&t.revision, o->rate_revision);
    newest(&t.revision, peer != NULL ? peer->route_revision : 0);
    (void)emit(f, &t);
}

static bool put_grant(void *arg, struct dir_partition *p)
{
    struct feed *f = arg;
    const struct dir_keyspace *ks = view_keyspace_by_id(f->v, p->keyspace);
    const struct dir_replica *r = &p->replicas[partition_copy_on(p, f->node->id)];
    if (ks == NULL) {
        return true; /* it is still being created */
    }
    struct dir_task t = {
        .kind = DIR_TASK_GRANT,
        .revision = p->mod_revision,
        .keyspace = ks,
        .keyspace_name = ks->name,
        .partition = p,
        .partition_id = p->id,
        .role = r->role,
        .epoch = p->epoch,
        .session = f->node->session,
        .copy = r->copy,
        .start_position = p->start_position,
    };
    newest(&t.revision, ks->created);
    newest(&t.revision, f->node->session);
    t.operation = operation_of_partition(f->v, p);
    t.end_open = part_bounds(r->role == DIR_ROLE_JOINING ? t.operation : NULL, p, &t.start, &t.end);
    if (r->role == DIR_ROLE_PRIMARY) {
        t.session = p->session;
        t.fenced = p->state == DIR_FENCING;
        put_must_have(f, p, &t);
    }
    if (emit(f, &t) && t.operation != NULL) {
        put_stage(f, &t, t.operation);
    }
    return !f->stopped;
}

static void put_revoke(struct feed *f, const struct dir_task *of)
{
    struct dir_task t = *of;
    t.kind = DIR_TASK_REVOKE;
    t.partition = NULL;
    (void)emit(f, &t);
}

/* The one that waits for this duty, and no other. */
static const struct dir_operation *waits_for(const struct dir_view *v, const struct dir_duty *d)
{
    const struct dir_operation *o = d->operation != 0 ? view_operation(v, d->operation) : NULL;
    return o != NULL && o->stage == DIR_STAGE_CLEANUP && o->leaving == d->node ? o : NULL;
}

static void put_duties(struct feed *f)
{
    const struct dir_duty *d;
    struct ptree_iter it;
    uint8_t key[16];
    for (ptree_seek(&f->v->duties_by_node, state_pair_key(f->node->id, 0, key), &it);
         (d = ptree_iter_get(&it, NULL)) != NULL && d->node == f->node->id && !f->stopped;
         ptree_iter_next(&it)) {
        const struct dir_partition *p =
            ptree_get(&f->v->partitions, ptree_u64_key(d->partition, key));
        struct dir_task t = {
            .kind = DIR_TASK_CLEANUP,
            .revision = d->revision,
            .keyspace = view_keyspace_by_id(f->v, d->keyspace),
            .keyspace_name = d->keyspace_name,
            .partition = p,
            .partition_id = d->partition,
            .session = f->node->session,
            .copy = d->copy,
            .duty = d->id,
            .operation = waits_for(f->v, d),
        };
        newest(&t.revision, f->node->session);
        if (f->since > 0 && (p == NULL || partition_copy_on(p, f->node->id) < 0)) {
            put_revoke(f, &t);
        }
        (void)emit(f, &t);
    }
}

/* Whoever held a retired id is told so; others don't mind. Newest first would be nicer, but the
 * index goes by age. */
static void put_retired(struct feed *f)
{
    const struct dir_tombstone *tomb;
    struct ptree_iter it;
    uint8_t key[16];
    for (ptree_seek(&f->v->tombstones_by_age, state_pair_key(f->since + 1, 0, key), &it);
         (tomb = ptree_iter_get(&it, NULL)) != NULL && !f->stopped; ptree_iter_next(&it)) {
        const struct dir_keyspace *ks = view_keyspace_by_id(f->v, tomb->keyspace);
        if (ks != NULL) {
            put_revoke(f, &(struct dir_task){
                              .revision = tomb->retired,
                              .keyspace = ks,
                              .keyspace_name = ks->name,
                              .partition_id = tomb->id,
                              .epoch = tomb->last_epoch,
                              .session = f->node->session,
                          });
        }
    }
}

uint64_t dir_tasks(const struct dir_view *v,
                   const struct dir_node *node,
                   dir_rev since,
                   bool (*fn)(void *arg, const struct dir_task *task),
                   void *arg)
{
    struct feed f = {.v = v, .node = node, .since = since, .fn = fn, .arg = arg};
    view_node_partitions(v, node->id, put_grant, &f);
    if (!f.stopped) {
        put_duties(&f);
    }
    if (!f.stopped && since > 0) {
        put_retired(&f);
    }
    return f.called;
}
