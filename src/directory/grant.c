/* SPDX-License-Identifier: Apache-2.0 */
/* Who may write a partition: granted to a session at a new epoch, or to nobody at the old one
 * (docs/movement.md, "Sessions and leases"). Every change of a primary but a move's own goes
 * through here. */
#include "base/assert.h"
#include "directory/operation.h"

bool view_node_is_live(const struct dir_node *n)
{
    return n != NULL && !n->lost && (n->is_static || !n->ended);
}

uint64_t view_node_distrusted_until(const struct dir_settings *s, const struct dir_node *n)
{
    if (n->lapses < 2 || s->distrust_ms == 0) {
        return 0;
    }
    uint64_t ms = s->distrust_ms << (n->lapses - 2);
    return n->lapsed_ms + (ms < DIR_DISTRUST_MAX_MS ? ms : DIR_DISTRUST_MAX_MS);
}

bool grant_is_leased(const struct dir_view *s, const struct dir_partition *p)
{
    const struct dir_node *owner = view_primary(s, p);
    return owner != NULL && !(owner->is_static && p->session == owner->session);
}

static void put_version(struct apply *a,
                        const struct dir_partition *like,
                        const struct partition_arrays *arrays)
{
    struct dir_partition *now = partition_new(like, arrays);
    apply_count(a, now, 0); /* their tasks have changed */
    touched_route(apply_touch(a, now->keyspace, like->cause), now);
    apply_put(a, now);
}

/* What another copy counts as under a new primary. The old primary may hold what nobody
 * acknowledged, and counts again once it has cut its log; so do all, when the new one lacks what
 * was acknowledged. Those that are away are not waited for: the new primary could only ask to drop
 * them. */
static uint8_t
role_after(const struct apply *a, const struct dir_replica *r, const struct dir_replica *primary)
{
    bool stays = primary->role == DIR_ROLE_PRIMARY;
    bool whole =
        primary->role == DIR_ROLE_SYNC && view_node_is_live(view_node_by_id(a->s, r->node));
    if (r->role == DIR_ROLE_PRIMARY || (r->role == DIR_ROLE_SYNC && !stays && !whole)) {
        return DIR_ROLE_ASYNC;
    }
    return r->role;
}

void grant_to(struct apply *a, const struct dir_partition *p, int copy, enum dir_change_kind cause)
{
    struct dir_replica replicas[DIR_REPLICAS_MAX];
    struct partition_arrays arrays = partition_arrays(p);
    struct dir_partition like = partition_like(p);
    uint8_t n = 0;
    ASSERT(copy >= 0 && copy < p->replica_count);
    const struct dir_node *node = view_node_by_id(a->s, p->replicas[copy].node);
    replicas[n] = p->replicas[copy];
    replicas[n++].role = DIR_ROLE_PRIMARY;
    for (int i = 0; i < p->replica_count; i++) {
        if (i != copy) {
            replicas[n] = p->replicas[i];
            replicas[n++].role = role_after(a, &p->replicas[i], &p->replicas[copy]);
        }
    }
    arrays.replicas = replicas;
    if (p->replicas[0].role != DIR_ROLE_PRIMARY ? p->home != node->id : copy != 0) {
        like.owner_since_ms = a->s->time_ms;
    }
    like.state = DIR_ACTIVE;
    like.holds_data = true;
    like.cause = (uint8_t)cause;
    like.epoch = like.mod_revision = a->rev;
    like.session = node->session;
    like.home = 0;
    like.start_position = 0;
    put_version(a, &like, &arrays);
}

/* Nobody may write: the route says so, at the epoch of before (decisions.md 7 in the design). */
static void grant_to_nobody(struct apply *a, const struct dir_partition *p, bool holds)
{
    struct dir_replica replicas[DIR_REPLICAS_MAX];
    struct partition_arrays arrays = partition_arrays(p);
    struct dir_partition like = partition_like(p);
    memcpy(replicas, p->replicas, p->replica_count * sizeof replicas[0]);
    replicas[0].role = holds ? DIR_ROLE_SYNC : DIR_ROLE_ASYNC;
    arrays.replicas = replicas;
    like.state = DIR_UNAVAILABLE;
    like.cause = DIR_CHANGE_LAPSE;
    like.mod_revision = a->rev;
    like.session = 0;
    like.home = holds ? replicas[0].node : 0;
    put_version(a, &like, &arrays);
}

/* The first replica that has every acknowledged write and can be granted something, rather of a
 * node that stays; or -1. */
static int heir(const struct apply *a, const struct dir_partition *p)
{
    int distrusted = -1;
    for (int i = 0; i < p->replica_count; i++) {
        const struct dir_node *n = view_node_by_id(a->s, p->replicas[i].node);
        if (p->replicas[i].role != DIR_ROLE_SYNC || !view_node_is_live(n)) {
            continue;
        }
        if (view_node_distrusted_until(&a->s->settings, n) <= a->s->time_ms) {
            return i;
        }
        distrusted = distrusted < 0 ? i : distrusted;
    }
    return distrusted;
}

/* As the state has it now: an operation may have changed it in this very command. */
static const struct dir_partition *again(const struct apply *a, const struct dir_partition *p)
{
    uint8_t key[8];
    return ptree_get(&a->s->partitions, ptree_u64_key(p->id, key));
}

/* Only a part of p went forward to a destination: of the rest its node is still the primary, in the
 * session that is no more. */
static void release_rest(struct apply *a, uint64_t id, uint64_t node, bool holds)
{
    uint8_t key[8];
    const struct dir_tombstone *t = ptree_get(&a->s->tombstones, ptree_u64_key(id, key));
    for (uint32_t i = 0; t != NULL && i < t->successor_count; i++) {
        const struct dir_partition *q =
            ptree_get(&a->s->partitions, ptree_u64_key(t->successors[i], key));
        if (q->replicas[0].node == node && partition_has_primary(q)) {
            grant_release(a, q, holds);
        }
    }
}

void grant_release(struct apply *a, const struct dir_partition *p, bool holds)
{
    ASSERT(partition_has_primary(p));
    const struct dir_node *owner = view_node_by_id(a->s, p->replicas[0].node);
    uint64_t id = p->id, node = owner->id;
    if (holds && view_node_is_live(owner)) {
        operation_regranted(a, p);
        grant_to(a, again(a, p), 0, DIR_CHANGE_GRANT);
    } else if (operation_forward(a, p)) {
        release_rest(a, id, node, holds);
    } else if (heir(a, p) >= 0) {
        operation_dropped(a, p, "source_lapsed", false);
        p = again(a, p);
        grant_to(a, p, heir(a, p), DIR_CHANGE_FAILOVER);
    } else {
        operation_stranded(a, p);
        grant_to_nobody(a, again(a, p), holds);
    }
}

void grant_recover(struct apply *a, const struct dir_partition *p)
{
    int next = heir(a, p);
    if (!partition_has_primary(p) && p->holds_data && next >= 0) {
        bool back = p->home == p->replicas[next].node;
        if (back) {
            operation_regranted(a, p);
        } else {
            operation_dropped(a, p, "source_lapsed", false);
        }
        p = again(a, p);
        next = heir(a, p);
        grant_to(a, p, next, back ? DIR_CHANGE_GRANT : DIR_CHANGE_FAILOVER);
    }
}

void grant_demote(struct apply *a, const struct dir_partition *p, int copy)
{
    struct dir_replica replicas[DIR_REPLICAS_MAX];
    struct partition_arrays arrays = partition_arrays(p);
    struct dir_partition like = partition_like(p);
    memcpy(replicas, p->replicas, p->replica_count * sizeof replicas[0]);
    replicas[copy].role = DIR_ROLE_ASYNC;
    arrays.replicas = replicas;
    like.cause = DIR_CHANGE_ROLES;
    like.mod_revision = a->rev;
    like.home = p->home == replicas[copy].node ? 0 : p->home;
    put_version(a, &like, &arrays);
}

struct waiting_sessions {
    uint64_t node, below, newest;
};

static bool note_session(void *arg, struct dir_partition *p)
{
    struct waiting_sessions *w = arg;
    if (partition_has_primary(p) && p->replicas[0].node == w->node && p->session < w->below &&
        p->session > w->newest) {
        w->newest = p->session;
    }
    return true;
}

uint64_t grant_newest_ended(const struct dir_view *s, const struct dir_node *n)
{
    struct waiting_sessions w = {.node = n->id, .below = n->session};
    view_node_partitions(s, n->id, note_session, &w);
    return w.newest;
}

static bool add_part(void *arg, struct dir_partition *p)
{
    parts_add(arg, dir_ref(p));
    return true;
}

void grant_held(const struct dir_view *s, const struct dir_node *n, struct part_list *out)
{
    view_node_partitions(s, n->id, add_part, out);
    parts_sort(out);
}
