/* SPDX-License-Identifier: Apache-2.0 */
/* Partitions: split, merged, given to another node at once, pinned and limited. */
#include "base/assert.h"
#include "base/mem.h"
#include "directory/internal.h"

#include <inttypes.h>
#include <stdio.h>

static bool add_route(void *arg, const struct dir_partition *p)
{
    struct apply *a = arg;
    uint8_t key[8];
    parts_add(&a->routes, dir_ref(ptree_get(&a->s->partitions, ptree_u64_key(p->id, key))));
    return a->routes.count < DIR_CHANGE_ROUTES_MAX;
}

enum err_code apply_find_partition(struct apply *a, uint64_t id, struct dir_partition **ret_p)
{
    uint8_t bytes[8];
    struct slice key = ptree_u64_key(id, bytes);
    struct dir_partition *p = ptree_get(&a->s->partitions, key);
    const struct dir_tombstone *t = ptree_get(&a->s->tombstones, key);
    uint64_t keyspace = p != NULL ? p->keyspace : t != NULL ? t->keyspace : 0;
    const struct dir_keyspace *ks = state_keyspace(a->s, keyspace);
    apply_subject(a, "partition=%" PRIu64, id);
    if (ks == NULL || ks->hidden) {
        return err_set(&a->err, ERR_PARTITION_NOT_FOUND, "no partition has id %" PRIu64, id);
    }
    apply_subject(a, "keyspace=%s partition=%" PRIu64, ks->name, id);
    a->partition = id;
    if (p != NULL) {
        *ret_p = p;
        return ERR_OK;
    }
    a->retired = true;
    (void)view_successors(a->s, t, add_route, a);
    return err_set(&a->err, ERR_STALE_EPOCH,
                   "partition %" PRIu64 " was retired at revision %" PRIu64, id, t->retired);
}

void apply_show_present(struct apply *a, struct dir_partition *p)
{
    a->current_epoch = p->epoch;
    parts_add(&a->routes, dir_ref(p));
}

enum err_code
apply_expect_epoch(struct apply *a, struct dir_partition *p, bool has_expected, uint64_t expected)
{
    if (!has_expected || expected == p->epoch) {
        return ERR_OK;
    }
    apply_show_present(a, p);
    return err_set(&a->err, expected < p->epoch ? ERR_STALE_EPOCH : ERR_FUTURE_EPOCH,
                   "the epoch of partition %" PRIu64 " is %" PRIu64 ", not %" PRIu64, p->id,
                   p->epoch, expected);
}

void partition_retire(struct apply *a,
                      const struct dir_partition *p,
                      enum dir_change_kind cause,
                      const uint64_t *successors,
                      uint32_t count)
{
    struct slice start = dir_partition_start(p);
    struct slice end = p->end_open ? slice_of(NULL, 0) : dir_partition_end(p);
    struct dir_tombstone *t =
        mem_zalloc(sizeof *t + count * sizeof successors[0] + start.len + end.len);
    t->object.refs = 1;
    t->object.kind = DIR_KIND_TOMBSTONE;
    t->cause = (uint8_t)cause;
    t->id = p->id;
    t->keyspace = p->keyspace;
    t->retired = a->rev;
    t->last_epoch = p->epoch;
    t->end_open = p->end_open;
    t->start_len = (uint16_t)start.len;
    t->end_len = (uint16_t)end.len;
    t->successor_count = count;
    memcpy(t->successors, successors, count * sizeof successors[0]);
    uint8_t *keys = (uint8_t *)(t->successors + count);
    memcpy(keys, start.data, start.len);
    if (end.len > 0) {
        memcpy(keys + start.len, end.data, end.len);
    }
    apply_remove(a, p);
    apply_put(a, t);
}

static const char *why_not_there(const struct dir_partition *p, struct slice key, struct slice last)
{
    if (slice_cmp(key, dir_partition_start(p)) == 0 ||
        (!p->end_open && slice_cmp(key, dir_partition_end(p)) == 0)) {
        return "it is a boundary already";
    }
    if (slice_cmp(key, dir_partition_start(p)) < 0 ||
        (!p->end_open && slice_cmp(key, dir_partition_end(p)) > 0)) {
        return "it is outside of the partition";
    }
    if (slice_cmp(key, last) <= 0) {
        return "it is not above the one before it";
    }
    return NULL;
}

static enum err_code check_split(struct apply *a, const struct dir_partition *p)
{
    const Cadastre__Split *m = a->cmd->split;
    const struct dir_keyspace *ks = state_keyspace(a->s, p->keyspace);
    size_t max = ks->scheme == DIR_SCHEME_HASH ? DIR_ROUTING_KEY_MAX : DIR_KEY_MAX;
    if (m->n_at == 0 || m->n_at > DIR_SPLIT_KEYS_MAX) {
        return err_set_at(&a->err, ERR_BAD_SPLIT_KEY, "/at", "a split has 1 to %d keys",
                          DIR_SPLIT_KEYS_MAX);
    }
    struct slice last = dir_partition_start(p);
    for (size_t i = 0; i < m->n_at; i++) {
        struct slice key = slice_of(m->at[i].data, m->at[i].len);
        const char *wrong =
            key.len > max ? "it is longer than a key may be" : why_not_there(p, key, last);
        if (wrong != NULL) {
            char pointer[32];
            (void)snprintf(pointer, sizeof pointer, "/at/%zu", i);
            return err_set_at(&a->err, ERR_BAD_SPLIT_KEY, pointer, "%s", wrong);
        }
        last = key;
    }
    if (a->s->partitions.count + m->n_at > DIR_PARTITIONS_MAX) {
        return err_set(&a->err, ERR_LIMIT_EXCEEDED,
                       "the directory holds at most %" PRIu64 " partitions", DIR_PARTITIONS_MAX);
    }
    return ERR_OK;
}

uint64_t partition_share(uint64_t rate_limit, uint64_t parts)
{
    uint64_t share = rate_limit / parts;
    return share == 0 && rate_limit > 0 ? 1 : share;
}

enum err_code apply_split(struct apply *a)
{
    const Cadastre__Split *m = a->cmd->split;
    struct dir_partition *p;
    enum err_code code = apply_find_partition(a, m->partition, &p);
    if (code == ERR_OK) {
        code = apply_expect_epoch(a, p, m->has_expect_epoch, m->expect_epoch);
    }
    if (code == ERR_OK) {
        code = operation_check_free(a, p);
    }
    if (code == ERR_OK) {
        code = check_split(a, p);
    }
    if (code != ERR_OK) {
        return code;
    }
    struct touched *t = apply_touch(a, p->keyspace, DIR_CHANGE_SPLIT);
    struct partition_arrays arrays = partition_arrays(p);
    struct dir_partition like = partition_like(p);
    arrays.parents = &p->id;
    arrays.parent_count = 1;
    like.epoch = like.mod_revision = like.created = a->rev;
    like.cause = DIR_CHANGE_SPLIT;
    like.start_position = 0;
    like.rate_limit = partition_share(p->rate_limit, m->n_at + 1);
    uint64_t *ids = mem_alloc((m->n_at + 1) * sizeof ids[0]);
    touched_removed(t, p->id);
    dir_ref(p); /* until its arrays have been used */
    for (size_t i = 0; i <= m->n_at; i++) {
        bool is_last = i == m->n_at;
        arrays.end_open = is_last && p->end_open;
        arrays.end = is_last ? dir_partition_end(p) : slice_of(m->at[i].data, m->at[i].len);
        like.id = ids[i] = apply_id(a);
        struct dir_partition *child = partition_new(&like, &arrays);
        touched_route(t, child);
        parts_add(&a->routes, dir_ref(child));
        apply_put(a, child);
        arrays.start = arrays.end;
    }
    apply_count(a, p, (int64_t)m->n_at);
    partition_retire(a, p, DIR_CHANGE_SPLIT, ids, (uint32_t)m->n_at + 1);
    dir_unref(p);
    mem_free(ids);
    a->changed = true;
    a->kind = DIR_CHANGE_SPLIT;
    return ERR_OK;
}

static bool same_copies(const struct dir_partition *p, const struct dir_partition *q)
{
    for (uint8_t i = 0; i < p->replica_count; i++) {
        int at = partition_copy_on(q, p->replicas[i].node);
        if (at < 0 || q->replicas[at].role != p->replicas[i].role) {
            return false;
        }
    }
    return p->replica_count == q->replica_count;
}

static bool follows(const struct dir_partition *left, const struct dir_partition *right)
{
    return !left->end_open && slice_eq(dir_partition_end(left), dir_partition_start(right));
}

static enum err_code
check_merge(struct apply *a, const struct dir_partition *p, const struct dir_partition *q)
{
    const char *why = NULL;
    if (p->id == q->id) {
        why = "a partition can't be merged with itself";
    } else if (p->keyspace != q->keyspace) {
        why = "they are of two keyspaces";
    } else if (!follows(p, q) && !follows(q, p)) {
        why = "they are not neighbours";
    } else if (p->state != q->state || p->state == DIR_FENCING) {
        why = "one of them is active and the other is not";
    } else if (!same_copies(p, q)) {
        why = "their copies are not on the same nodes in the same roles";
    } else if (p->session != q->session || p->home != q->home) {
        why = "they are not granted to the same session";
    }
    return why == NULL ? ERR_OK : err_set(&a->err, ERR_NOT_MERGEABLE, "%s", why);
}

static uint64_t merged_limit(const struct dir_partition *p, const struct dir_partition *q)
{
    if (p->rate_limit == 0 || q->rate_limit == 0) {
        return 0;
    }
    uint64_t sum = p->rate_limit + q->rate_limit;
    return sum < DIR_REVISION_MAX ? sum : DIR_REVISION_MAX;
}

static struct dir_partition *
merged(struct apply *a, const struct dir_partition *left, const struct dir_partition *right)
{
    const uint64_t parents[DIR_PARENTS_MAX] = {left->id, right->id};
    struct partition_arrays arrays = partition_arrays(left);
    struct dir_partition like = partition_like(left);
    arrays.parents = parents;
    arrays.parent_count = 2;
    arrays.end_open = right->end_open;
    arrays.end = dir_partition_end(right);
    like.id = apply_id(a);
    like.epoch = like.mod_revision = like.created = a->rev;
    like.cause = DIR_CHANGE_MERGE;
    like.start_position = 0;
    like.pinned = left->pinned || right->pinned;
    like.holds_data = left->holds_data || right->holds_data;
    like.rate_limit = merged_limit(left, right);
    if (right->under_since_ms != 0 &&
        (like.under_since_ms == 0 || right->under_since_ms < like.under_since_ms)) {
        like.under_since_ms = right->under_since_ms;
    }
    if (right->owner_since_ms > like.owner_since_ms) {
        like.owner_since_ms = right->owner_since_ms;
    }
    return partition_new(&like, &arrays);
}

enum err_code apply_merge(struct apply *a)
{
    const Cadastre__Merge *m = a->cmd->merge;
    struct dir_partition *p, *q;
    enum err_code code = apply_find_partition(a, m->partition, &p);
    if (code == ERR_OK) {
        code = apply_expect_epoch(a, p, m->has_expect_epoch, m->expect_epoch);
    }
    if (code == ERR_OK) {
        code = apply_find_partition(a, m->with, &q);
    }
    if (code == ERR_OK) {
        a->partition = p->id;
        code = operation_check_free(a, p);
    }
    if (code == ERR_OK) {
        code = operation_check_free(a, q);
    }
    if (code == ERR_OK) {
        code = check_merge(a, p, q);
    }
    if (code != ERR_OK) {
        return code;
    }
    apply_subject(a, "keyspace=%s partition=%" PRIu64 " with=%" PRIu64,
                  state_keyspace(a->s, p->keyspace)->name, p->id, q->id);
    struct dir_partition *left = dir_ref(follows(p, q) ? p : q);
    struct dir_partition *right = dir_ref(left == p ? q : p);
    struct dir_partition *now = merged(a, left, right);
    struct touched *t = apply_touch(a, left->keyspace, DIR_CHANGE_MERGE);
    touched_removed(t, left->id);
    touched_removed(t, right->id);
    touched_route(t, now);
    parts_add(&a->routes, dir_ref(now));
    uint64_t id = now->id;
    partition_retire(a, left, DIR_CHANGE_MERGE, &id, 1);
    partition_retire(a, right, DIR_CHANGE_MERGE, &id, 1);
    apply_put(a, now);
    apply_count(a, now, -1);
    dir_unref(left);
    dir_unref(right);
    a->changed = true;
    a->kind = DIR_CHANGE_MERGE;
    return ERR_OK;
}

static const struct dir_node *primary_of(const struct apply *a, const struct dir_partition *p)
{
    return view_primary(a->s, p);
}

static enum err_code check_from(struct apply *a, struct dir_partition *p, const char *from)
{
    const struct dir_node *owner = primary_of(a, p);
    if (from[0] == '\0' || (owner != NULL && strcmp(owner->name, from) == 0)) {
        return ERR_OK;
    }
    apply_show_present(a, p);
    return owner == NULL
               ? err_set(&a->err, ERR_NOT_OWNER, "partition %" PRIu64 " has no primary at present",
                         p->id)
               : err_set(&a->err, ERR_NOT_OWNER, "the primary of partition %" PRIu64 " is \"%s\"",
                         p->id, owner->name);
}

static enum err_code
check_to(struct apply *a, const struct dir_partition *p, const struct dir_node *to)
{
    const char *why = NULL;
    if (partition_copy_on(p, to->id) == 0 && partition_has_primary(p)) {
        why = "it is the primary already";
    } else if (partition_copy_on(p, to->id) >= 0) {
        why = "it holds a copy";
    } else if (to->lost) {
        why = "it was declared lost";
    } else if (to->scheduling != 0) {
        why = "it takes nothing new";
    } else if (!partition_has_primary(p) && p->replica_count == DIR_REPLICAS_MAX) {
        why = "the partition has as many copies as there may be";
    }
    if (why != NULL) {
        return err_set(&a->err, ERR_NO_DESTINATION, "\"%s\" can't take the partition: %s", to->name,
                       why);
    }
    const struct dir_keyspace *ks = state_keyspace(a->s, p->keyspace);
    if (!place_allows(&ks->placement, to)) {
        return err_set(&a->err, ERR_PLACEMENT_VIOLATED,
                       "the placement of \"%s\" does not allow \"%s\"", ks->name, to->name);
    }
    if (!view_node_is_live(to)) {
        return err_set(&a->err, ERR_NO_DESTINATION, "\"%s\" has no session", to->name);
    }
    const struct dir_node *owner = primary_of(a, p);
    if (grant_is_leased(a->s, p)) {
        return err_set(&a->err, ERR_LEASE_HELD,
                       "\"%s\" may write the partition while it holds its lease", owner->name);
    }
    return ERR_OK;
}

static enum err_code
check_reassign(struct apply *a, struct dir_partition *p, const struct dir_node **ret_to)
{
    const Cadastre__Reassign *m = a->cmd->reassign;
    if (m->reason[0] != '\0' && !valid_text(m->reason, DIR_TEXT_MAX)) {
        return err_set_at(&a->err, ERR_INVALID_REQUEST, "/reason",
                          "a reason is a text of at most %d bytes", DIR_TEXT_MAX);
    }
    enum err_code code = apply_expect_epoch(a, p, m->has_expect_epoch, m->expect_epoch);
    if (code == ERR_OK) {
        code = check_from(a, p, m->from);
    }
    if (code != ERR_OK) {
        return code;
    }
    const struct dir_node *to = view_node(a->s, slice_of(m->to, strlen(m->to)));
    if (to == NULL) {
        return err_set_at(&a->err, ERR_NODE_NOT_FOUND, "/to", "there is no such node");
    }
    *ret_to = to;
    return check_to(a, p, to);
}

enum err_code apply_reassign(struct apply *a)
{
    struct dir_partition *p;
    const struct dir_node *to = NULL;
    enum err_code code = apply_find_partition(a, a->cmd->reassign->partition, &p);
    if (code == ERR_OK) {
        code = operation_check_free(a, p);
    }
    if (code == ERR_OK) {
        code = check_reassign(a, p, &to);
    }
    if (code != ERR_OK) {
        return code;
    }
    struct dir_replica replicas[DIR_REPLICAS_MAX] = {
        {.node = to->id, .copy = a->rev, .role = DIR_ROLE_PRIMARY}};
    struct partition_arrays arrays = partition_arrays(p);
    struct dir_partition like = partition_like(p);
    uint8_t n = 1;
    for (uint8_t i = partition_has_primary(p) ? 1 : 0; i < p->replica_count; i++) {
        replicas[n++] = p->replicas[i];
    }
    arrays.replicas = replicas;
    arrays.replica_count = n;
    like.state = DIR_ACTIVE;
    like.holds_data = true;
    like.cause = DIR_CHANGE_MOVE;
    like.epoch = like.mod_revision = a->rev;
    like.owner_since_ms = a->s->time_ms;
    like.session = to->session;
    like.home = 0;
    like.start_position = 0;
    struct dir_partition *now = partition_new(&like, &arrays);
    (void)operation_done(a, p, DIR_OPERATION_MOVE, to, a->cmd->reassign->reason);
    apply_count(a, p, -1);
    apply_count(a, now, 1);
    touched_route(apply_touch(a, now->keyspace, DIR_CHANGE_MOVE), now);
    parts_add(&a->routes, dir_ref(now));
    apply_put(a, now);
    a->changed = true;
    a->kind = DIR_CHANGE_MOVE;
    return ERR_OK;
}

enum err_code apply_partition_patch(struct apply *a)
{
    const Cadastre__PartitionPatch *m = a->cmd->partition_patch;
    struct dir_partition *p;
    enum err_code code = apply_find_partition(a, m->partition, &p);
    if (code == ERR_OK) {
        code = apply_expect_epoch(a, p, m->has_expect_epoch, m->expect_epoch);
    }
    if (code == ERR_OK && m->has_rate_limit && m->rate_limit > DIR_REVISION_MAX) {
        code = err_set_at(&a->err, ERR_INVALID_REQUEST, "/rate_limit", "it is out of range");
    }
    if (code != ERR_OK) {
        return code;
    }
    bool pins = m->has_pinned && (m->pinned != 0) != p->pinned;
    bool limits = m->has_rate_limit && m->rate_limit != p->rate_limit;
    if (!pins && !limits) {
        parts_add(&a->routes, dir_ref(p));
        return ERR_OK;
    }
    struct dir_partition *now = partition_copy(p);
    a->kind = limits ? DIR_CHANGE_LIMIT : DIR_CHANGE_PIN;
    now->cause = (uint8_t)a->kind;
    now->pinned = pins ? !p->pinned : p->pinned;
    if (limits) {
        /* A pin is not part of a route, so it makes no new version of it. */
        now->rate_limit = m->rate_limit;
        now->mod_revision = a->rev;
        touched_route(apply_touch(a, now->keyspace, DIR_CHANGE_LIMIT), now);
    }
    parts_add(&a->routes, dir_ref(now));
    apply_put(a, now);
    a->changed = true;
    return ERR_OK;
}
