/* SPDX-License-Identifier: Apache-2.0 */
/* Keyspaces: created whole or in hidden chunks, patched, removed. */
#include "base/assert.h"
#include "base/mem.h"
#include "base/parse.h"
#include "directory/codec.h"
#include "directory/internal.h"
#include "directory/repair.h"

#include <inttypes.h>
#include <stdio.h>

enum { FIELDS_MAX = 1024 };

static enum err_code
check_splits(struct err *e, const ProtobufCBinaryData *splits, size_t count, struct slice above)
{
    char pointer[32];
    for (size_t i = 0; i < count; i++) {
        struct slice key = slice_of(splits[i].data, splits[i].len);
        const char *wrong = NULL;
        if (key.len == 0) {
            wrong = "it is empty, and the lowest key is a boundary already";
        } else if (key.len > DIR_KEY_MAX) {
            wrong = "it is longer than a key may be";
        } else if (slice_cmp(key, above) <= 0) {
            wrong = "it is not above the one before it";
        }
        if (wrong != NULL) {
            (void)snprintf(pointer, sizeof pointer, "/splits/%zu", i);
            return err_set_at(e, ERR_INVALID_REQUEST, pointer, "%s", wrong);
        }
        above = key;
    }
    return ERR_OK;
}

static enum err_code check_count(struct apply *a, uint64_t added, uint64_t freed)
{
    if (a->s->partitions.count - freed + added > DIR_PARTITIONS_MAX) {
        return err_set(&a->err, ERR_LIMIT_EXCEEDED,
                       "the directory holds at most %" PRIu64 " partitions", DIR_PARTITIONS_MAX);
    }
    return ERR_OK;
}

static enum err_code check_copies(struct err *e, uint64_t sync, uint64_t async)
{
    if (sync + async >= DIR_REPLICAS_MAX) {
        return err_set_at(e, ERR_INVALID_REQUEST, "/replicas",
                          "a partition has at most %d copies, the primary included",
                          DIR_REPLICAS_MAX);
    }
    return ERR_OK;
}

static enum err_code check_range(struct apply *a, const Cadastre__KeyspaceCreate *m)
{
    if (m->partitions != 0) {
        return err_set_at(&a->err, ERR_UNSUPPORTED_SCHEME, "/partitions",
                          "a range keyspace is divided by its splits");
    }
    if (m->has_partition_key) {
        return err_set_at(&a->err, ERR_UNSUPPORTED_SCHEME, "/partition_key",
                          "a range keyspace has no partition key");
    }
    if (m->n_splits >= DIR_CREATE_BATCH) {
        return err_set_at(&a->err, ERR_LIMIT_EXCEEDED, "/splits",
                          "one command makes at most %d partitions", DIR_CREATE_BATCH);
    }
    return check_splits(&a->err, m->splits, m->n_splits, slice_of(NULL, 0));
}

static enum err_code check_hash(struct apply *a, const Cadastre__KeyspaceCreate *m)
{
    if (m->n_splits > 0) {
        return err_set_at(&a->err, ERR_UNSUPPORTED_SCHEME, "/splits",
                          "a hash keyspace is divided by its number of partitions");
    }
    if (m->partitions == 0) {
        return err_set_at(&a->err, ERR_INVALID_REQUEST, "/partitions",
                          "there has to be one at least");
    }
    if (m->has_partition_key &&
        (m->delimiter == 0 || m->delimiter > 0x7f || m->fields == 0 || m->fields > FIELDS_MAX)) {
        return err_set_at(&a->err, ERR_INVALID_REQUEST, "/partition_key",
                          "it is one ASCII delimiter and 1 to %d fields", FIELDS_MAX);
    }
    return ERR_OK;
}

static enum err_code check_kinds(struct apply *a, const Cadastre__KeyspaceCreate *m)
{
    if (m->scheme != DIR_SCHEME_RANGE && m->scheme != DIR_SCHEME_HASH) {
        return err_set_at(&a->err, ERR_UNSUPPORTED_SCHEME, "/scheme",
                          "it is none of range and hash");
    }
    if (m->key_encoding != DIR_ENCODING_UTF8 && m->key_encoding != DIR_ENCODING_HEX) {
        return err_set_at(&a->err, ERR_INVALID_REQUEST, "/key_encoding",
                          "it is none of utf8 and hex");
    }
    if (m->authority != DIR_AUTHORITY_EXCLUSIVE && m->authority != DIR_AUTHORITY_AFFINITY) {
        return err_set_at(&a->err, ERR_INVALID_REQUEST, "/authority",
                          "it is none of exclusive and affinity");
    }
    return m->scheme == DIR_SCHEME_RANGE ? check_range(a, m) : check_hash(a, m);
}

static struct dir_keyspace *keyspace_named(const struct apply *a, const char *name)
{
    return ptree_get(&a->s->keyspaces_by_name, slice_of(name, strlen(name)));
}

static enum err_code check_create(struct apply *a, const Cadastre__KeyspaceCreate *m)
{
    if (!parse_is_name(slice_of(m->name, strlen(m->name)))) {
        return err_set_at(&a->err, ERR_INVALID_REQUEST, "/name", "it is not a valid name");
    }
    apply_subject(a, "keyspace=%s", m->name);
    const struct dir_keyspace *old = keyspace_named(a, m->name);
    if (old != NULL && !old->hidden) {
        return err_set(&a->err, ERR_KEYSPACE_EXISTS, "\"%s\" exists", m->name);
    }
    if (old == NULL && a->s->keyspaces.count >= DIR_KEYSPACES_MAX) {
        return err_set(&a->err, ERR_LIMIT_EXCEEDED, "the directory holds at most %d keyspaces",
                       DIR_KEYSPACES_MAX);
    }
    enum err_code code = check_kinds(a, m);
    if (code == ERR_OK) {
        code = check_copies(&a->err, m->sync_replicas, m->async_replicas);
    }
    if (code == ERR_OK) {
        code = policy_check_text(&a->err, &m->policy);
    }
    uint64_t wanted = m->scheme == DIR_SCHEME_HASH ? m->partitions : m->n_splits + 1;
    if (code == ERR_OK && wanted > DIR_PARTITIONS_MAX) {
        code = err_set_at(&a->err, ERR_LIMIT_EXCEEDED,
                          m->scheme == DIR_SCHEME_HASH ? "/partitions" : "/splits",
                          "the directory holds at most %" PRIu64 " partitions", DIR_PARTITIONS_MAX);
    }
    if (code == ERR_OK) {
        code = check_count(a, wanted, old != NULL ? state_map(a->s, old->id)->count : 0);
    }
    return code;
}

static struct dir_keyspace *keyspace_with_policy(const struct dir_keyspace *like,
                                                 struct slice policy)
{
    if (policy.len == 0) {
        policy = slice_of("{}", 2);
    }
    struct dir_keyspace *ks = mem_zalloc(sizeof *ks + policy.len + 1);
    object_assign(ks, like, sizeof *ks);
    ks->object.refs = 1;
    ks->object.kind = DIR_KIND_KEYSPACE;
    ks->policy_len = (uint32_t)policy.len;
    memcpy(ks->policy, policy.data, policy.len);
    ks->policy[policy.len] = '\0';
    return ks;
}

static struct dir_keyspace *keyspace_copy(const struct dir_keyspace *ks)
{
    return keyspace_with_policy(ks, slice_of(ks->policy, ks->policy_len));
}

static struct dir_keyspace *new_keyspace(struct apply *a,
                                         const Cadastre__KeyspaceCreate *m,
                                         bool hidden,
                                         const struct dir_keyspace *asked)
{
    struct dir_keyspace like = {
        .id = apply_id(a),
        .scheme = (uint8_t)m->scheme,
        .key_encoding = (uint8_t)m->key_encoding,
        .authority = (uint8_t)m->authority,
        .hidden = hidden,
        .custom_partition_key = m->has_partition_key,
        .sync_replicas = m->sync_replicas,
        .async_replicas = m->async_replicas,
        .replicas_ms = a->s->time_ms,
        .replicas_revision = a->rev,
        .placement = asked->placement,
        .rules = asked->rules,
        .created = a->rev,
        .mod_revision = a->rev,
        .created_ms = a->s->time_ms,
    };
    memcpy(like.name, m->name, strlen(m->name));
    if (m->has_partition_key) {
        like.partition_key.delimiter = (char)m->delimiter;
        like.partition_key.fields = m->fields;
    }
    return keyspace_with_policy(&like, slice_of(m->policy.data, m->policy.len));
}

/* One more partition at the end of the map. */
static void add_partition(struct apply *a,
                          struct placer *placer,
                          const struct dir_keyspace *ks,
                          struct slice start,
                          const struct slice *end)
{
    struct dir_replica replicas[DIR_REPLICAS_MAX];
    struct partition_arrays arrays = {
        .replicas = replicas,
        .replica_count = placer_pick(placer, ks, replicas),
        .end_open = end == NULL,
        .start = start,
    };
    if (end != NULL) {
        arrays.end = *end;
    }
    bool placed = arrays.replica_count > 0;
    struct dir_partition like = {
        .id = apply_id(a),
        .keyspace = ks->id,
        .holds_data = placed, /* whoever is told that it is primary may write */
        .state = placed ? DIR_ACTIVE : DIR_UNAVAILABLE,
        .cause = DIR_CHANGE_CREATE,
        .epoch = a->rev,
        .mod_revision = a->rev,
        .created = a->rev,
        .owner_since_ms = a->s->time_ms,
        .session = placed ? view_node_by_id(a->s, replicas[0].node)->session : 0,
    };
    apply_put(a, partition_new(&like, &arrays));
}

/* Bounds `from` … `upto`-1 of `n` token ranges; range n-1 has no end, and so has the last one while
 * more will come. */
static void add_token_ranges(struct apply *a,
                             struct placer *placer,
                             const struct dir_keyspace *ks,
                             const uint64_t from_upto_n[3])
{
    uint64_t from = from_upto_n[0], upto = from_upto_n[1], n = from_upto_n[2];
    uint8_t start[8], end[8];
    for (uint64_t i = from; i < upto; i++) {
        struct slice s = slice_of(start, dir_codec_token_start(i, n, start));
        struct slice e = slice_of(end, i + 1 < upto ? dir_codec_token_start(i + 1, n, end) : 0);
        add_partition(a, placer, ks, s, i + 1 < upto ? &e : NULL);
    }
}

static void add_ranges(struct apply *a,
                       struct placer *placer,
                       const struct dir_keyspace *ks,
                       const ProtobufCBinaryData *starts,
                       size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct slice s = slice_of(starts[i].data, starts[i].len), e = slice_of(NULL, 0);
        if (i + 1 < count) {
            e = slice_of(starts[i + 1].data, starts[i + 1].len);
        }
        add_partition(a, placer, ks, s, i + 1 < count ? &e : NULL);
    }
}

/* Routers learn of all of it at once, at the revision where it can be seen. */
static void touch_all(struct apply *a, uint64_t keyspace, enum dir_change_kind kind)
{
    struct touched *t = apply_touch(a, keyspace, kind);
    struct dir_partition *p;
    struct ptree_iter it;
    for (ptree_seek(state_map(a->s, keyspace), slice_of(NULL, 0), &it);
         !t->oversize && (p = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        touched_route(t, p);
    }
}

/* Its nodes' agents have to delete what they hold of it; of nodes without one nobody would ever say
 * that it is done. */
static void
owe_cleanup(struct apply *a, const struct dir_keyspace *ks, const struct dir_partition *p)
{
    for (uint8_t i = 0; i < p->replica_count; i++) {
        if (!view_node_by_id(a->s, p->replicas[i].node)->is_static) {
            duty_make(a, ks, p, &p->replicas[i], 0);
        }
    }
}

static void remove_keyspace(struct apply *a, const struct dir_keyspace *ks, struct touched *t)
{
    struct dir_map *map = state_detach_map(a->s, ks->id);
    struct dir_partition *p;
    struct ptree_iter it;
    for (ptree_seek(&map->by_start, slice_of(NULL, 0), &it);
         (p = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        if (t != NULL) {
            touched_removed(t, p->id);
        }
        owe_cleanup(a, ks, p);
        apply_count(a, p, -1);
        apply_remove(a, p);
    }
    dir_unref(map);
    apply_remove(a, ks);
}

enum err_code apply_keyspace_create(struct apply *a)
{
    const Cadastre__KeyspaceCreate *m = a->cmd->keyspace_create;
    struct dir_keyspace asked;
    enum err_code code = check_create(a, m);
    if (code == ERR_OK) {
        code = valid_placement(&a->err, m->placement, &asked.placement);
    }
    if (code == ERR_OK) {
        code = policy_read(&a->err, m->rules, &asked.rules);
    }
    if (code != ERR_OK) {
        return code;
    }
    const struct dir_keyspace *hidden = keyspace_named(a, m->name);
    if (hidden != NULL) {
        remove_keyspace(a, hidden, NULL); /* somebody's unfinished creation */
    }
    bool is_hash = m->scheme == DIR_SCHEME_HASH;
    bool more = m->more || (is_hash && m->partitions > DIR_CREATE_BATCH);
    struct dir_keyspace *ks = new_keyspace(a, m, more, &asked);
    apply_put(a, ks);
    struct placer *placer = placer_new(a);
    if (is_hash) {
        uint64_t upto = m->partitions < DIR_CREATE_BATCH ? m->partitions : DIR_CREATE_BATCH;
        add_token_ranges(a, placer, ks, (uint64_t[]){0, upto, m->partitions});
    } else {
        struct slice end = slice_of(NULL, 0);
        if (m->n_splits > 0) {
            end = slice_of(m->splits[0].data, m->splits[0].len);
        }
        add_partition(a, placer, ks, slice_of(NULL, 0), m->n_splits > 0 ? &end : NULL);
        add_ranges(a, placer, ks, m->splits, m->n_splits);
    }
    placer_free(placer);
    a->changed = true;
    a->keyspace = dir_ref(ks);
    if (!more) {
        a->kind = DIR_CHANGE_CREATE;
        touch_all(a, ks->id, DIR_CHANGE_CREATE);
    }
    return ERR_OK;
}

static struct dir_partition *last_partition(const struct apply *a, uint64_t keyspace)
{
    uint8_t top[DIR_ROUTING_KEY_MAX];
    memset(top, 0xff, sizeof top);
    return ptree_floor(state_map(a->s, keyspace), slice_of(top, sizeof top));
}

/* How many token ranges a keyspace is to have: nobody can have moved its first inner bound,
 * floor(2^64 / n), while it is hidden, and for n below 2^32 that has one n. */
static uint64_t wanted_ranges(const struct apply *a, uint64_t keyspace)
{
    struct ptree_iter it;
    ptree_seek(state_map(a->s, keyspace), slice_of("", 0), &it);
    const struct dir_partition *p = ptree_iter_get(&it, NULL);
    if (p == NULL || p->end_open || p->end_len != 8) {
        return 1;
    }
    uint64_t bound = 0;
    for (int i = 0; i < 8; i++) {
        bound = bound << 8 | dir_partition_end(p).data[i];
    }
    return (UINT64_MAX - bound + 1) / bound + 1; /* floor(2^64 / bound) */
}

/* The map's open end moves up to the first new bound. Nobody has seen the keyspace yet. */
static void close_last(struct apply *a, const struct dir_partition *last, struct slice end)
{
    struct partition_arrays arrays = partition_arrays(last);
    arrays.end_open = false;
    arrays.end = end;
    struct dir_partition *p = partition_new(last, &arrays);
    p->epoch = a->rev;
    p->mod_revision = a->rev;
    apply_put(a, p);
}

static enum err_code
check_grow(struct apply *a, const Cadastre__KeyspaceGrow *m, const struct dir_keyspace *ks)
{
    if (ks == NULL || !ks->hidden) {
        return err_set(&a->err, ERR_KEYSPACE_NOT_FOUND,
                       "no keyspace of id %" PRIu64 " is being created", m->keyspace);
    }
    apply_subject(a, "keyspace=%s", ks->name);
    uint64_t present = state_map(a->s, ks->id)->count;
    if (ks->scheme == DIR_SCHEME_HASH) {
        if (m->n_splits > 0) {
            return err_set_at(&a->err, ERR_UNSUPPORTED_SCHEME, "/splits",
                              "a hash keyspace has no splits");
        }
        if (m->last && wanted_ranges(a, ks->id) - present > DIR_CREATE_BATCH) {
            return err_set(&a->err, ERR_INVALID_REQUEST, "more token ranges have to come first");
        }
        return check_count(a, wanted_ranges(a, ks->id) - present, 0);
    }
    if (m->n_splits > DIR_CREATE_BATCH) {
        return err_set_at(&a->err, ERR_LIMIT_EXCEEDED, "/splits",
                          "one command makes at most %d partitions", DIR_CREATE_BATCH);
    }
    enum err_code code = check_splits(&a->err, m->splits, m->n_splits,
                                      dir_partition_start(last_partition(a, ks->id)));
    return code != ERR_OK ? code : check_count(a, m->n_splits, 0);
}

static void grow_hash(struct apply *a, struct placer *placer, const struct dir_keyspace *ks)
{
    uint8_t bound[8];
    uint64_t n = wanted_ranges(a, ks->id), from = state_map(a->s, ks->id)->count;
    uint64_t upto = n - from < DIR_CREATE_BATCH ? n : from + DIR_CREATE_BATCH;
    if (from < upto) {
        close_last(a, last_partition(a, ks->id),
                   slice_of(bound, dir_codec_token_start(from, n, bound)));
        add_token_ranges(a, placer, ks, (uint64_t[]){from, upto, n});
    }
}

/* What nodes hold of a keyspace is told to them once it can be seen. */
static void touch_nodes(struct apply *a)
{
    const struct dir_node *n;
    struct ptree_iter it;
    for (ptree_seek(&a->s->nodes, slice_of(NULL, 0), &it); (n = ptree_iter_get(&it, NULL)) != NULL;
         ptree_iter_next(&it)) {
        if (n->partition_count > 0) {
            counts_add(&a->counts, n->id, 0);
        }
    }
}

enum err_code apply_keyspace_grow(struct apply *a)
{
    const Cadastre__KeyspaceGrow *m = a->cmd->keyspace_grow;
    const struct dir_keyspace *ks = state_keyspace(a->s, m->keyspace);
    enum err_code code = check_grow(a, m, ks);
    if (code != ERR_OK) {
        return code;
    }
    struct placer *placer = placer_new(a);
    if (ks->scheme == DIR_SCHEME_HASH) {
        grow_hash(a, placer, ks);
    } else if (m->n_splits > 0) {
        close_last(a, last_partition(a, ks->id), slice_of(m->splits[0].data, m->splits[0].len));
        add_ranges(a, placer, ks, m->splits, m->n_splits);
    }
    placer_free(placer);
    struct dir_keyspace *now = keyspace_copy(ks);
    now->mod_revision = a->rev;
    now->hidden = !m->last;
    if (m->last) {
        now->created = a->rev;
        now->created_ms = a->s->time_ms;
    }
    a->keyspace = dir_ref(now);
    apply_put(a, now);
    a->changed = true;
    if (m->last) {
        a->kind = DIR_CHANGE_CREATE;
        touch_all(a, now->id, DIR_CHANGE_CREATE);
        touch_nodes(a);
    }
    return ERR_OK;
}

static enum err_code
check_patch(struct apply *a, const struct dir_keyspace *ks, struct dir_keyspace *next)
{
    const Cadastre__KeyspacePatch *m = a->cmd->keyspace_patch;
    enum err_code code = ERR_OK;
    if (m->has_placement) {
        code = valid_placement(&a->err, m->placement, &next->placement);
    }
    if (code == ERR_OK && m->has_policy) {
        code = policy_check_text(&a->err, &m->policy);
    }
    if (code == ERR_OK && m->has_policy) {
        code = policy_read(&a->err, m->rules, &next->rules);
    }
    if (code != ERR_OK || !m->has_replicas) {
        return code;
    }
    next->sync_replicas = m->sync_replicas;
    next->async_replicas = m->async_replicas;
    code = check_copies(&a->err, m->sync_replicas, m->async_replicas);
    bool same = m->sync_replicas == ks->sync_replicas && m->async_replicas == ks->async_replicas;
    if (code == ERR_OK && !same && repair_needs_agents(a->s, next)) {
        code = err_set_at(&a->err, ERR_NEEDS_STAGED_MOVE, "/replicas",
                          "partitions of \"%s\" on nodes without an agent have another number of "
                          "copies, and data would have to be copied or dropped",
                          ks->name);
    }
    return code;
}

static bool
same_keyspace(const struct dir_keyspace *ks, const struct dir_keyspace *next, struct slice policy)
{
    return place_equal(&ks->placement, &next->placement) &&
           policy_equal(&ks->rules, &next->rules) && ks->sync_replicas == next->sync_replicas &&
           ks->async_replicas == next->async_replicas &&
           slice_eq(policy, slice_of(ks->policy, ks->policy_len));
}

enum err_code apply_keyspace_patch(struct apply *a)
{
    const Cadastre__KeyspacePatch *m = a->cmd->keyspace_patch;
    const struct dir_keyspace *ks;
    enum err_code code = apply_find_keyspace(a, m->keyspace, &ks);
    if (code != ERR_OK) {
        return code;
    }
    apply_subject(a, "keyspace=%s", ks->name);
    struct dir_keyspace next;
    memset(&next, 0, sizeof next);
    object_assign(&next, ks, sizeof next);
    code = check_patch(a, ks, &next);
    if (code != ERR_OK) {
        return code;
    }
    struct slice policy = slice_of(ks->policy, ks->policy_len);
    if (m->has_policy) {
        policy = m->policy.len > 0 ? slice_of(m->policy.data, m->policy.len) : slice_of("{}", 2);
    }
    if (same_keyspace(ks, &next, policy)) {
        a->keyspace = dir_ref(state_keyspace(a->s, ks->id));
        return ERR_OK;
    }
    if (ks->sync_replicas != next.sync_replicas || ks->async_replicas != next.async_replicas) {
        next.replicas_ms = a->s->time_ms;
        next.replicas_revision = a->rev;
    }
    next.mod_revision = a->rev;
    struct dir_keyspace *now = keyspace_with_policy(&next, policy);
    a->keyspace = dir_ref(now);
    apply_put(a, now);
    a->changed = true;
    /* New rules may let in a node for what waits. */
    if (place_waiting(a, now->id) > 0) {
        a->kind = DIR_CHANGE_PLACE;
    }
    return ERR_OK;
}

/* Operations that run in it have to end first. */
static enum err_code check_idle(struct apply *a, const struct dir_keyspace *ks)
{
    const struct dir_partition *p;
    struct ptree_iter it;
    for (ptree_seek(state_map(a->s, ks->id), slice_of(NULL, 0), &it);
         (p = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        if (p->operation != 0) {
            return err_set(&a->err, ERR_KEYSPACE_BUSY,
                           "operation %" PRIu64 " holds partition %" PRIu64, p->operation, p->id);
        }
    }
    return ERR_OK;
}

enum err_code apply_keyspace_delete(struct apply *a)
{
    const struct dir_keyspace *ks;
    enum err_code code = apply_find_keyspace(a, a->cmd->keyspace_delete->keyspace, &ks);
    if (code != ERR_OK) {
        return code;
    }
    apply_subject(a, "keyspace=%s", ks->name);
    code = check_idle(a, ks);
    if (code != ERR_OK) {
        return code;
    }
    a->keyspace = dir_ref(state_keyspace(a->s, ks->id));
    remove_keyspace(a, ks, apply_touch(a, ks->id, DIR_CHANGE_DELETE));
    a->changed = true;
    a->kind = DIR_CHANGE_DELETE;
    return ERR_OK;
}
