/* SPDX-License-Identifier: Apache-2.0 */
/* Is this state one that apply could have made? Every table is walked and held against every other;
 * nothing is taken from an index that is itself in question. Rules: docs/ARCHITECTURE.md,
 * "Invariants". */
#include "base/mem.h"
#include "directory/balancer.h"
#include "directory/budget_internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

struct checker {
    const struct dir_view *v;
    void (*report)(void *arg, const char *line);
    void *arg;
    uint64_t max, found;
    struct counts counts; /* copies by node */
    uint64_t mapped;      /* partitions met in maps */
    uint64_t waiting;     /* partitions that wait for an owner */
    uint64_t copies;      /* replicas of all partitions */
    struct hash128 hash;
    struct buf scratch;
};

PRINTF_LIKE(2, 3) static void wrong(struct checker *c, const char *fmt, ...)
{
    char line[400];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    if (c->found < c->max && c->report != NULL) {
        c->report(c->arg, line);
    }
    c->found++;
}

static bool is_revision(const struct checker *c, dir_rev r)
{
    return r > 0 && r <= c->v->revision;
}

static bool is_id(const struct checker *c, uint64_t id)
{
    return id > 0 && id < c->v->next_id;
}

static void *by_id(const struct ptree *t, uint64_t id)
{
    uint8_t key[8];
    return ptree_get(t, ptree_u64_key(id, key));
}

static void add_hash(struct checker *c, const struct dir_object *row)
{
    hash128_add(&c->hash, state_row_hash(row, &c->scratch));
}

static bool key_is(struct slice key, uint64_t id)
{
    uint8_t bytes[8];
    return slice_eq(key, ptree_u64_key(id, bytes));
}

static bool pair_is(struct slice key, uint64_t a, uint64_t b)
{
    return key.len == 16 && key_is(slice_of(key.data, 8), a) &&
           key_is(slice_of(key.data + 8, 8), b);
}

#define EACH(tree, it, key, row)                                                                   \
    for (ptree_seek((tree), slice_of(NULL, 0), &(it));                                             \
         ((row) = ptree_iter_get(&(it), &(key))) != NULL; ptree_iter_next(&(it)))

static void check_scalars(struct checker *c)
{
    const struct dir_view *v = c->v;
    if (v->revision > DIR_REVISION_MAX || v->next_id > DIR_REVISION_MAX || v->next_id == 0) {
        wrong(c, "the revision or the next id is out of range");
    }
    if (v->compacted > v->revision) {
        wrong(c, "compacted to revision %" PRIu64 ", which is to come", v->compacted);
    }
    for (int i = 0; i < DIR_MARKS_MAX; i++) {
        const struct dir_mark *m = &v->marks[i];
        if (m->at_ms > v->time_ms || m->revision > v->revision ||
            (i > 0 && m->at_ms != 0 &&
             (m->at_ms < m[-1].at_ms || m->revision < m[-1].revision || m[-1].at_ms == 0))) {
            wrong(c, "mark %d is out of order", i);
        }
    }
    if (memchr(v->cluster, 0, sizeof v->cluster) == NULL) {
        wrong(c, "the cluster's id does not end");
    }
}

/* Who may write is somebody who is there. */
static void check_grant(struct checker *c, const struct dir_partition *p)
{
    if (!partition_has_primary(p)) {
        if (p->session != 0 || (p->home != 0 && partition_copy_on(p, p->home) < 0)) {
            wrong(c, "partition %" PRIu64 ": granted to session %" PRIu64 " of nobody", p->id,
                  p->session);
        }
        return;
    }
    const struct dir_node *n = by_id(&c->v->nodes, p->replicas[0].node);
    if (p->home != 0 || p->session == 0 || p->session > p->epoch) {
        wrong(c, "partition %" PRIu64 ": epoch %" PRIu64 " is granted to session %" PRIu64, p->id,
              p->epoch, p->session);
    }
    if (n == NULL) {
        return;
    }
    bool present = p->session == n->session && view_node_is_live(n);
    bool before = p->session < n->session && p->session <= n->ended_session;
    if (!present && !before) {
        wrong(c, "partition %" PRIu64 ": session %" PRIu64 " of node %s may not hold it", p->id,
              p->session, n->name);
    }
}

static void check_copy(struct checker *c, const struct dir_partition *p, uint8_t i)
{
    const struct dir_replica *r = &p->replicas[i];
    uint8_t key[16];
    if (ptree_get(&c->v->by_node, state_pair_key(r->node, p->id, key)) == NULL) {
        wrong(c, "partition %" PRIu64 ": node %" PRIu64 " does not know its copy", p->id, r->node);
    }
    if (!is_revision(c, r->copy)) {
        wrong(c, "partition %" PRIu64 ": copy %u has no id", p->id, i);
    }
}

static void check_replicas(struct checker *c, const struct dir_partition *p)
{
    c->copies += p->replica_count;
    for (uint8_t i = 0; i < p->replica_count; i++) {
        const struct dir_replica *r = &p->replicas[i];
        if (r->node == 0 || by_id(&c->v->nodes, r->node) == NULL) {
            wrong(c, "partition %" PRIu64 ": there is no node %" PRIu64, p->id, r->node);
        } else {
            counts_add(&c->counts, r->node, 1);
        }
        check_copy(c, p, i);
        if (partition_copy_on(p, r->node) != i) {
            wrong(c, "partition %" PRIu64 ": two copies on node %" PRIu64, p->id, r->node);
        }
        if (r->role < DIR_ROLE_PRIMARY || r->role > DIR_ROLE_JOINING ||
            (i > 0 && r->role == DIR_ROLE_PRIMARY)) {
            wrong(c, "partition %" PRIu64 ": copy %u has role %u", p->id, i, r->role);
        }
    }
    if (p->state < DIR_ACTIVE || p->state > DIR_UNAVAILABLE ||
        partition_has_primary(p) != (p->state != DIR_UNAVAILABLE)) {
        wrong(c, "partition %" PRIu64 ": state %u %s a primary", p->id, p->state,
              partition_has_primary(p) ? "with" : "without");
    }
    if (p->replica_count > 0 && !p->holds_data) {
        wrong(c, "partition %" PRIu64 ": it has copies and holds no data", p->id);
    }
}

static bool has_successor(const struct dir_tombstone *t, uint64_t id)
{
    for (uint32_t i = 0; i < t->successor_count; i++) {
        if (t->successors[i] == id) {
            return true;
        }
    }
    return false;
}

static void check_parents(struct checker *c, const struct dir_partition *p)
{
    for (uint8_t i = 0; i < p->parent_count; i++) {
        uint64_t parent = dir_partition_parents(p)[i];
        const struct dir_tombstone *t = by_id(&c->v->tombstones, parent);
        if (parent == 0 || parent >= p->id || by_id(&c->v->partitions, parent) != NULL) {
            wrong(c, "partition %" PRIu64 ": its parent %" PRIu64 " lives", p->id, parent);
        } else if (t != NULL && (t->last_epoch >= p->epoch || t->retired != p->created ||
                                 t->keyspace != p->keyspace || !has_successor(t, p->id))) {
            wrong(c,
                  "partition %" PRIu64 " of epoch %" PRIu64 " does not follow its parent %" PRIu64
                  " of epoch %" PRIu64,
                  p->id, p->epoch, parent, t->last_epoch);
        }
    }
}

static void check_partition(struct checker *c, const struct dir_partition *p)
{
    add_hash(c, &p->object);
    c->waiting += state_is_waiting(p);
    if (!is_id(c, p->id)) {
        wrong(c, "partition %" PRIu64 ": its id was never given out", p->id);
    }
    if (!is_revision(c, p->epoch) || !is_revision(c, p->mod_revision) ||
        !is_revision(c, p->created) || p->created > p->epoch || p->epoch > p->mod_revision) {
        wrong(c,
              "partition %" PRIu64 ": epoch %" PRIu64 ", changed at %" PRIu64
              ", created at %" PRIu64 ", at revision %" PRIu64,
              p->id, p->epoch, p->mod_revision, p->created, c->v->revision);
    }
    if (by_id(&c->v->tombstones, p->id) != NULL) {
        wrong(c, "partition %" PRIu64 ": it lives and is retired", p->id);
    }
    check_replicas(c, p);
    if (p->under_since_ms > c->v->time_ms) {
        wrong(c, "partition %" PRIu64 ": it will have too few copies", p->id);
    }
    check_grant(c, p);
    const char *of_operation = check_partition_operation(c->v, p);
    if (of_operation != NULL) {
        wrong(c, "partition %" PRIu64 ": %s", p->id, of_operation);
    }
    check_parents(c, p);
}

/* I1: from the lowest key to past the highest, each bound the next one's start. */
static void check_map(struct checker *c, const struct dir_keyspace *ks, const struct ptree *map)
{
    const struct dir_partition *p, *before = NULL;
    struct ptree_iter it;
    struct slice key;
    EACH(map, it, key, p)
    {
        struct slice start = dir_partition_start(p);
        c->mapped++;
        if (!slice_eq(key, start)) {
            wrong(c, "keyspace %s: partition %" PRIu64 " is in another place", ks->name, p->id);
        }
        if (by_id(&c->v->partitions, p->id) != p || p->keyspace != ks->id) {
            wrong(c, "keyspace %s: the map has another partition %" PRIu64, ks->name, p->id);
        }
        if (!p->end_open && slice_cmp(start, dir_partition_end(p)) >= 0) {
            wrong(c, "keyspace %s: partition %" PRIu64 " is empty", ks->name, p->id);
        }
        int gap = before == NULL     ? slice_cmp(start, slice_of(NULL, 0))
                  : before->end_open ? -1
                                     : slice_cmp(start, dir_partition_end(before));
        if (gap != 0) {
            wrong(c, "keyspace %s: %s before partition %" PRIu64, ks->name,
                  gap > 0 ? "a gap" : "an overlap", p->id);
        }
        before = p;
    }
    if (before == NULL || !before->end_open) {
        wrong(c, "keyspace %s: a gap at the end", ks->name);
    }
}

static void check_keyspaces(struct checker *c)
{
    const struct dir_view *v = c->v;
    const struct dir_keyspace *ks;
    struct ptree_iter it;
    struct slice key;
    EACH(&v->keyspaces, it, key, ks)
    {
        const struct dir_map *map = by_id(&v->keyspace_maps, ks->id);
        add_hash(c, &ks->object);
        if (!key_is(key, ks->id) || !is_id(c, ks->id) || !is_revision(c, ks->mod_revision) ||
            !is_revision(c, ks->created) || ks->created > ks->mod_revision) {
            wrong(c, "keyspace %s: its id or revisions are out of range", ks->name);
        }
        if (!policy_in_range(&ks->rules)) {
            wrong(c, "keyspace %s: a value of its policy is out of range", ks->name);
        }
        if (ptree_get(&v->keyspaces_by_name, slice_of(ks->name, strlen(ks->name))) != ks) {
            wrong(c, "keyspace %s: it is not found by its name", ks->name);
        }
        if (1 + (uint64_t)ks->sync_replicas + ks->async_replicas > DIR_REPLICAS_MAX) {
            wrong(c, "keyspace %s: it wants too many copies", ks->name);
        }
        if (map == NULL) {
            wrong(c, "keyspace %s: it has no map", ks->name);
        } else {
            check_map(c, ks, &map->by_start);
        }
    }
    if (v->keyspaces_by_name.count != v->keyspaces.count ||
        v->keyspace_maps.count != v->keyspaces.count) {
        wrong(c, "the indexes of keyspaces have other sizes");
    }
}

static void check_partitions(struct checker *c)
{
    const struct dir_view *v = c->v;
    const struct dir_partition *p;
    struct ptree_iter it;
    struct slice key;
    EACH(&v->partitions, it, key, p)
    {
        if (!key_is(key, p->id)) {
            wrong(c, "partition %" PRIu64 ": it is found by another id", p->id);
        }
        if (by_id(&v->keyspaces, p->keyspace) == NULL) {
            wrong(c, "partition %" PRIu64 ": its keyspace is gone", p->id);
        }
        check_partition(c, p);
    }
    if (v->by_node.count != c->copies) {
        wrong(c, "the index of copies has another size");
    }
    if (c->mapped != v->partitions.count) {
        wrong(c, "the maps have %" PRIu64 " partitions of %" PRIu64, c->mapped,
              v->partitions.count);
    }
    EACH(&v->waiting, it, key, p)
    {
        if (!pair_is(key, p->keyspace, p->id) || by_id(&v->partitions, p->id) != p ||
            !state_is_waiting(p)) {
            wrong(c, "partition %" PRIu64 ": it does not wait for an owner", p->id);
        }
    }
    if (v->waiting.count != c->waiting || v->unplaced != c->waiting) {
        wrong(c, "%" PRIu64 " partitions wait for an owner, not %" PRIu64, c->waiting, v->unplaced);
    }
}

static void check_tombstone(struct checker *c, const struct dir_tombstone *t)
{
    add_hash(c, &t->object);
    if (!is_id(c, t->id) || !is_revision(c, t->retired) || t->last_epoch == 0 ||
        t->last_epoch >= t->retired) {
        wrong(c, "retired partition %" PRIu64 ": its id or revisions are out of range", t->id);
    }
    if (!t->end_open && slice_cmp(dir_tombstone_start(t), dir_tombstone_end(t)) >= 0) {
        wrong(c, "retired partition %" PRIu64 ": its range is empty", t->id);
    }
    /* A removed keyspace took its partitions with it. */
    bool removed = by_id(&c->v->keyspaces, t->keyspace) == NULL;
    for (uint32_t i = 0; !removed && i < t->successor_count; i++) {
        uint64_t id = t->successors[i];
        const struct dir_tombstone *next = by_id(&c->v->tombstones, id);
        if (id <= t->id || (by_id(&c->v->partitions, id) == NULL &&
                            (next == NULL || next->retired <= t->retired))) {
            wrong(c, "retired partition %" PRIu64 ": its successor %" PRIu64 " is lost", t->id, id);
        }
    }
}

static void check_tombstones(struct checker *c)
{
    const struct dir_view *v = c->v;
    const struct dir_tombstone *t;
    struct ptree_iter it;
    struct slice key;
    EACH(&v->tombstones, it, key, t)
    {
        if (!key_is(key, t->id)) {
            wrong(c, "retired partition %" PRIu64 ": it is found by another id", t->id);
        }
        check_tombstone(c, t);
    }
    EACH(&v->tombstones_by_age, it, key, t)
    {
        if (!pair_is(key, t->retired, t->id) || by_id(&v->tombstones, t->id) != t) {
            wrong(c, "retired partition %" PRIu64 ": its age is another", t->id);
        }
    }
    if (v->tombstones.count != v->tombstones_by_age.count) {
        wrong(c, "the index of retired partitions has another size");
    }
}

/* A session that has ended and waits is one that something is granted to. */
static void check_sessions(struct checker *c, const struct dir_node *n)
{
    dir_rev newest = grant_newest_ended(c->v, n);
    if (n->ended_session != newest || (newest == 0) != (n->ended_lease_ms == 0)) {
        /* A static node's grants have no lease to wait for. */
        wrong(c, "node %s: session %" PRIu64 " waits to be released, not %" PRIu64, n->name, newest,
              n->ended_session);
    }
    if (n->ended_ms > c->v->time_ms || n->scheduling_ms > c->v->time_ms ||
        (n->ended_ms != 0 && !n->ended)) {
        wrong(c, "node %s: its session ended, or its scheduling changed, at another time", n->name);
    }
    if (n->lapsed_ms > c->v->time_ms || (n->lapses == 0) != (n->lapsed_ms == 0)) {
        wrong(c, "node %s: it lapsed %u times, and at another time", n->name, n->lapses);
    }
    if (n->is_static ? n->lease_ms != 0 || n->ended : n->lease_ms == 0) {
        wrong(c, "node %s: its lease of %" PRIu32 " ms is not that of its kind", n->name,
              n->lease_ms);
    }
}

static void check_nodes(struct checker *c)
{
    const struct dir_view *v = c->v;
    const struct dir_node *n;
    struct ptree_iter it;
    struct slice key;
    EACH(&v->nodes, it, key, n)
    {
        uint64_t copies = (uint64_t)counts_get(&c->counts, n->id);
        add_hash(c, &n->object);
        if (!key_is(key, n->id) || !is_id(c, n->id) || !is_revision(c, n->session) ||
            !is_revision(c, n->mod_revision) || !is_revision(c, n->route_revision) ||
            !is_revision(c, n->task_revision) || n->created > n->mod_revision ||
            n->route_revision > n->mod_revision) {
            wrong(c, "node %s: its id or revisions are out of range", n->name);
        }
        if (ptree_get(&v->nodes_by_name, slice_of(n->name, strlen(n->name))) != n) {
            wrong(c, "node %s: it is not found by its name", n->name);
        }
        check_sessions(c, n);
        if (copies != n->partition_count) {
            wrong(c, "node %s: it holds %" PRIu64 " copies, not %" PRIu64, n->name, copies,
                  n->partition_count);
        }
    }
    if (v->nodes_by_name.count != v->nodes.count) {
        wrong(c, "the index of nodes has another size");
    }
}

static void check_dedupe(struct checker *c)
{
    const struct dir_view *v = c->v;
    const struct dir_dedupe *d;
    struct ptree_iter it;
    struct slice key;
    EACH(&v->dedupe, it, key, d)
    {
        uint8_t bytes[STATE_DEDUPE_KEY_MAX];
        struct slice want =
            state_dedupe_key(slice_of(d->bytes, d->principal_len),
                             slice_of(d->bytes + d->principal_len, d->key_len), bytes);
        struct err e;
        struct slice stored = slice_of(d->bytes + d->principal_len + d->key_len, d->result_len);
        struct dir_result *r = result_decode(stored, &e);
        add_hash(c, &d->object);
        if (!slice_eq(key, want) || !is_id(c, d->index) ||
            by_id(&v->dedupe_by_age, d->index) != d || d->revision > v->revision ||
            d->at_ms > v->time_ms) {
            wrong(c, "idempotency key %" PRIu64 ": it does not fit", d->index);
        }
        if (r == NULL) {
            wrong(c, "idempotency key %" PRIu64 ": %s", d->index, e.detail);
        }
        result_unref(r);
    }
    if (v->dedupe.count != v->dedupe_by_age.count) {
        wrong(c, "the index of idempotency keys has another size");
    }
}

static void check_duties(struct checker *c)
{
    const struct dir_view *v = c->v;
    struct ptree_iter it;
    struct slice key;
    const struct dir_duty *d;
    EACH(&v->duties, it, key, d)
    {
        uint8_t pair[16];
        add_hash(c, &d->object);
        if (!key_is(key, d->id) || !is_id(c, d->id) || !is_revision(c, d->revision) ||
            !is_revision(c, d->copy) || by_id(&v->nodes, d->node) == NULL ||
            ptree_get(&v->duties_by_node, state_pair_key(d->node, d->id, pair)) != d) {
            wrong(c, "duty %" PRIu64 ": it does not fit", d->id);
        }
    }
    if (v->duties.count != v->duties_by_node.count) {
        wrong(c, "the index of duties has another size");
    }
}

static void check_proposals(struct checker *c)
{
    const struct dir_view *v = c->v;
    const struct dir_proposal *p;
    struct ptree_iter it;
    struct slice key;
    uint64_t open = 0;
    EACH(&v->proposals, it, key, p)
    {
        uint8_t pair[16];
        bool waits = p->state == DIR_PROPOSAL_OPEN;
        const void *indexed =
            ptree_get(&v->proposals_open, state_pair_key(p->expires_ms, p->id, pair));
        open += waits;
        add_hash(c, &p->object);
        if (!key_is(key, p->id) || !is_id(c, p->id) || !is_revision(c, p->revision) ||
            !is_revision(c, p->epoch) || p->made_ms > v->time_ms || p->settled_ms > v->time_ms ||
            (p->state == DIR_PROPOSAL_RUNNING && p->operation == 0) ||
            indexed != (waits ? p : NULL)) {
            wrong(c, "proposal %" PRIu64 ": it does not fit", p->id);
        }
    }
    if (v->proposals_open.count != open || v->proposals.count > DIR_PROPOSALS_MAX) {
        wrong(c, "the proposals or their index have another size");
    }
}

static void check_rest(struct checker *c)
{
    const struct dir_view *v = c->v;
    const struct dir_server *s;
    const struct dir_operation *o;
    struct ptree_iter it;
    struct slice key;
    EACH(&v->servers, it, key, s)
    {
        add_hash(c, &s->object);
        if (!key_is(key, s->id) || s->id == 0 || !is_revision(c, s->mod_revision)) {
            wrong(c, "server %" PRIu64 ": its id or revision is out of range", s->id);
        }
    }
    EACH(&v->operations, it, key, o)
    {
        add_hash(c, &o->object);
        if (!key_is(key, o->id) || !is_id(c, o->id) || !is_revision(c, o->revision) ||
            (o->state == DIR_OPERATION_DONE && o->moves_primary &&
             o->epoch_before >= o->epoch_after) ||
            o->epoch_after > o->revision) {
            wrong(c, "operation %" PRIu64 ": its id or revisions are out of range", o->id);
        }
        const char *why = check_operation(v, o);
        if (why != NULL) {
            wrong(c, "operation %" PRIu64 ": %s", o->id, why);
        }
    }
    const char *budgets = check_budgets(v);
    if (budgets != NULL) {
        wrong(c, "%s", budgets);
    }
    check_duties(c);
    check_proposals(c);
    const char *balancer = check_balancer(v);
    const struct dir_object *row = by_id(&v->balancer, DIR_BALANCER_ID);
    if (balancer != NULL) {
        wrong(c, "%s", balancer);
    }
    if (row != NULL) {
        add_hash(c, row);
    }
}

uint64_t dir_check(const struct dir_view *v,
                   void (*report)(void *arg, const char *line),
                   void *arg,
                   uint64_t max)
{
    struct checker c = {.v = v, .report = report, .arg = arg, .max = max};
    char is[HASH128_HEX_SIZE], should[HASH128_HEX_SIZE];
    buf_init(&c.scratch, 64 << 20);
    check_scalars(&c);
    check_keyspaces(&c);
    check_partitions(&c); /* counts the copies for the nodes */
    check_tombstones(&c);
    check_nodes(&c);
    check_dedupe(&c);
    check_rest(&c);
    hash128_add(&c.hash, state_scalar_hash(v));
    hash128_hex(v->hash, is);
    hash128_hex(c.hash, should);
    if (strcmp(is, should) != 0) {
        wrong(&c, "the state's hash is %s, and of its rows %s", is, should);
    }
    counts_close(&c.counts);
    buf_close(&c.scratch);
    return c.found;
}
