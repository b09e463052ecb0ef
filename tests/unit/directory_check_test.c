/* SPDX-License-Identifier: Apache-2.0 */
/* Each way in which a state can be damaged is found and named. */
#include "base/mem.h"
#include "directory/internal.h"
#include "tests/harness/tap.h"
#include "tests/harness/world.h"

#include <string.h>

struct looked_for {
    const char *text;
    bool found;
};

static void look(void *arg, const char *line)
{
    struct looked_for *l = arg;
    l->found = l->found || strstr(line, l->text) != NULL;
}

static void expect(const struct dir_view *s, const char *text)
{
    struct looked_for l = {text, false};
    uint64_t n = dir_check(s, look, &l, UINT64_MAX);
    if (!CHECK(n > 0 && l.found)) {
        tap_note("not found: %s", text);
        (void)world_check(s);
    }
}

/* Two keyspaces, two nodes, a split, a merge, a move, a key. */
static void open_world(struct world *w, struct dir_view *s)
{
    world_open(w);
    (void)world_node(w, "n1", "h:1");
    (void)world_node(w, "n2", "h:2");
    (void)world_range(w, "orders");
    (void)world_split(w, world_at(w, "orders", "")->id, "f");
    (void)world_split(w, world_at(w, "orders", "z")->id, "m");
    (void)world_split(w, world_at(w, "orders", "z")->id, "t");
    (void)world_merge(w, world_at(w, "orders", "n")->id, world_at(w, "orders", "z")->id);
    (void)world_range(w, "other");
    w->key = "k";
    (void)world_move(w, world_at(w, "other", "")->id, "n1");
    (void)world_move(w, world_at(w, "other", "")->id, "n2");
    CHECK_U64(world_check(world_state(w)), 0);
    state_copy(world_state(w), s);
}

static void put(struct dir_view *s, void *row)
{
    dir_unref(state_put(s, row));
}

static struct dir_partition *part(struct dir_view *s, const struct world *w, const char *key)
{
    struct dir_partition *p = partition_copy(world_at(w, "orders", key));
    (void)s;
    return p;
}

enum damage {
    GAP,
    OVERLAP,
    EMPTY,
    NO_END,
    EPOCH_AHEAD,
    EPOCH_AFTER_VERSION,
    CHILD_NOT_ABOVE,
    PARENT_LIVES,
    UNKNOWN_NODE,
    TWICE_ON_A_NODE,
    SECOND_PRIMARY,
    ACTIVE_WITHOUT,
    UNAVAILABLE_WITH,
    COPIES_WITHOUT_DATA,
    SESSION_TO_COME,
    SESSION_OF_BEFORE,
    SESSION_WITHOUT,
    COPY_WITHOUT_ID,
    COPY_INDEX,
    ID_TO_COME,
    LIVES_AND_RETIRED,
    KEYSPACE_GONE,
    NODE_COUNT,
    NODE_NAME,
    NODE_REVISION,
    UNPLACED,
    WAITING_INDEX,
    LOST_SUCCESSOR,
    TOMBSTONE_REVISION,
    TOMBSTONE_AGE,
    MAP_OF_OTHERS,
    KEYSPACE_NAME,
    KEYSPACE_COPIES,
    KEYSPACE_POLICY,
    DEDUPE_AGE,
    DEDUPE_RESULT,
    OPERATION_EPOCHS,
    COMPACTED_AHEAD,
    MARKS,
    NEXT_ID,
    HASH,
    DAMAGES
};

static const char *const texts[DAMAGES] = {
    [GAP] = "a gap before partition",
    [OVERLAP] = "an overlap before partition",
    [EMPTY] = "is empty",
    [NO_END] = "a gap at the end",
    [EPOCH_AHEAD] = ", at revision ",
    [EPOCH_AFTER_VERSION] = ", at revision ",
    [CHILD_NOT_ABOVE] = "does not follow its parent",
    [PARENT_LIVES] = "lives",
    [UNKNOWN_NODE] = "there is no node 777",
    [TWICE_ON_A_NODE] = "two copies on node",
    [SECOND_PRIMARY] = "copy 1 has role 1",
    [ACTIVE_WITHOUT] = "state 1 without a primary",
    [UNAVAILABLE_WITH] = "state 3 with a primary",
    [COPIES_WITHOUT_DATA] = "it has copies and holds no data",
    [SESSION_TO_COME] = "is granted to session",
    [SESSION_OF_BEFORE] = "may not hold it",
    [SESSION_WITHOUT] = "of nobody",
    [COPY_WITHOUT_ID] = "has no id",
    [COPY_INDEX] = "does not know its copy",
    [ID_TO_COME] = "its id was never given out",
    [LIVES_AND_RETIRED] = "it lives and is retired",
    [KEYSPACE_GONE] = "its keyspace is gone",
    [NODE_COUNT] = "node n1: it holds 3 copies, not 9",
    [NODE_NAME] = "node n1: it is not found by its name",
    [NODE_REVISION] = "node n1: its id or revisions are out of range",
    [UNPLACED] = "partitions wait for an owner, not 5",
    [WAITING_INDEX] = "it does not wait for an owner",
    [LOST_SUCCESSOR] = "is lost",
    [TOMBSTONE_REVISION] = "its id or revisions are out of range",
    [TOMBSTONE_AGE] = "the index of retired partitions has another size",
    [MAP_OF_OTHERS] = "the map has another partition",
    [KEYSPACE_NAME] = "it is not found by its name",
    [KEYSPACE_COPIES] = "it wants too many copies",
    [KEYSPACE_POLICY] = "a value of its policy is out of range",
    [DEDUPE_AGE] = "it does not fit",
    [DEDUPE_RESULT] = "a stored outcome does not decode",
    [OPERATION_EPOCHS] = "operation ",
    [COMPACTED_AHEAD] = "compacted to revision",
    [MARKS] = "out of order",
    [NEXT_ID] = "the revision or the next id is out of range",
    [HASH] = "the state's hash is",
};

static struct dir_partition *with_range(struct dir_partition *p, const char *start, const char *end)
{
    struct partition_arrays arrays = partition_arrays(p);
    arrays.start = start != NULL ? slice_of(start, strlen(start)) : arrays.start;
    arrays.end_open = end == NULL ? arrays.end_open : false;
    arrays.end = end != NULL ? slice_of(end, strlen(end)) : arrays.end;
    struct dir_partition *q = partition_new(p, &arrays);
    dir_unref(p);
    return q;
}

static struct dir_partition *
with_copies(struct dir_partition *p, const struct dir_replica *copies, uint8_t n)
{
    struct partition_arrays arrays = partition_arrays(p);
    arrays.replicas = copies;
    arrays.replica_count = n;
    struct dir_partition *q = partition_new(p, &arrays);
    dir_unref(p);
    return q;
}

static void damage_partition(struct dir_view *s, const struct world *w, enum damage what)
{
    struct dir_partition *p = part(s, w, "g");
    uint64_t node = p->replicas[0].node;
    const struct dir_replica strange[] = {{777, 1, DIR_ROLE_PRIMARY, false}};
    const struct dir_replica twice[] = {{node, 1, DIR_ROLE_PRIMARY, false},
                                        {node, 1, DIR_ROLE_SYNC, false}};
    const struct dir_replica two[] = {{node, 1, DIR_ROLE_PRIMARY, false},
                                      {node + 1, 1, DIR_ROLE_PRIMARY, false}};
    switch ((int)what) {
    case GAP:
        p = with_range(p, NULL, "j");
        break;
    case OVERLAP:
        p = with_range(p, NULL, "n");
        break;
    case EMPTY:
        p = with_range(p, NULL, "f");
        break;
    case NO_END:
        dir_unref(p);
        p = with_range(part(s, w, "z"), NULL, "zz");
        break;
    case EPOCH_AHEAD:
        p->epoch = p->mod_revision = s->revision + 1;
        break;
    case EPOCH_AFTER_VERSION:
        p->epoch = p->mod_revision + 1;
        break;
    case CHILD_NOT_ABOVE:
        p->epoch = p->created = 3;
        break;
    case UNKNOWN_NODE:
        p = with_copies(p, strange, 1);
        break;
    case TWICE_ON_A_NODE:
        p = with_copies(p, twice, 2);
        break;
    case SECOND_PRIMARY:
        p = with_copies(p, two, 2);
        break;
    case ACTIVE_WITHOUT:
        p = with_copies(p, two, 0);
        break;
    case UNAVAILABLE_WITH:
        p->state = DIR_UNAVAILABLE;
        break;
    case COPIES_WITHOUT_DATA:
        p->holds_data = false;
        break;
    case SESSION_TO_COME:
        p->session = p->epoch + 1;
        break;
    case SESSION_OF_BEFORE:
        p->session = p->replicas[0].copy + 1;
        break;
    case SESSION_WITHOUT:
        p = with_copies(p, two, 0);
        p->state = DIR_UNAVAILABLE;
        break;
    case COPY_WITHOUT_ID:
        p->replicas[0].copy = 0;
        break;
    case COPY_INDEX: {
        uint8_t key[16];
        dir_unref(ptree_remove(&s->by_node, state_pair_key(node, p->id, key)));
        dir_unref(p);
        return;
    }
    default:
        p->keyspace = 12345;
        break;
    }
    put(s, p);
}

static struct dir_node *a_node(const struct dir_view *s)
{
    const struct dir_node *n1 = view_node(s, slice_of("n1", 2));
    struct dir_node *n = mem_dup(n1, dir_node_size(n1));
    n->object.refs = 1;
    return n;
}

static void damage_node(struct dir_view *s, enum damage what)
{
    struct dir_node *n = a_node(s);
    if (what == NODE_COUNT) {
        n->partition_count = 9;
        put(s, n);
    } else if (what == NODE_REVISION) {
        n->route_revision = s->revision + 1;
        put(s, n);
    } else {
        dir_unref(ptree_put(&s->nodes_by_name, slice_of("n1", 2), n));
    }
}

static struct dir_tombstone *a_tombstone(const struct dir_view *s)
{
    struct ptree_iter it;
    ptree_seek(&s->tombstones, slice_of(NULL, 0), &it);
    const struct dir_tombstone *t = ptree_iter_get(&it, NULL);
    struct dir_tombstone *copy =
        mem_dup(t, sizeof *t + t->successor_count * sizeof(uint64_t) + t->start_len + t->end_len);
    copy->object.refs = 1;
    return copy;
}

static void damage_tombstone(struct dir_view *s, const struct world *w, enum damage what)
{
    struct dir_tombstone *t = a_tombstone(s);
    uint8_t key[8];
    if (what == LOST_SUCCESSOR) {
        t->successors[0] = 9999;
        put(s, t);
    } else if (what == TOMBSTONE_REVISION) {
        t->last_epoch = t->retired;
        put(s, t);
    } else if (what == TOMBSTONE_AGE) {
        dir_unref(t);
        struct ptree_iter it;
        struct slice age;
        ptree_seek(&s->tombstones_by_age, slice_of(NULL, 0), &it);
        (void)ptree_iter_get(&it, &age);
        uint8_t copy[16];
        memcpy(copy, age.data, sizeof copy);
        dir_unref(ptree_remove(&s->tombstones_by_age, slice_of(copy, sizeof copy)));
    } else {
        t->id = world_at(w, "orders", "g")->id;
        dir_unref(ptree_put(&s->tombstones, ptree_u64_key(t->id, key), t));
    }
}

static struct dir_keyspace *a_keyspace(const struct dir_view *s)
{
    const struct dir_keyspace *ks = view_keyspace(s, slice_of("other", 5));
    struct dir_keyspace *copy = mem_dup(ks, sizeof *ks + ks->policy_len + 1);
    copy->object.refs = 1;
    return copy;
}

static struct dir_dedupe *a_key(const struct dir_view *s)
{
    const struct dir_dedupe *d = retain_find(s, "", "k");
    struct dir_dedupe *copy =
        mem_dup(d, sizeof *d + d->principal_len + d->key_len + (size_t)d->result_len);
    copy->object.refs = 1;
    return copy;
}

static void damage_rest(struct dir_view *s, const struct world *w, enum damage what)
{
    uint8_t key[16];
    struct dir_keyspace *ks = a_keyspace(s);
    struct dir_dedupe *d = a_key(s);
    switch ((int)what) {
    case PARENT_LIVES:
    case WAITING_INDEX: {
        struct dir_partition *p = part(s, w, "g");
        (void)ptree_u64_key(p->keyspace, key);
        (void)ptree_u64_key(p->id, key + 8);
        if (what == WAITING_INDEX) {
            dir_unref(ptree_put(&s->waiting, slice_of(key, 16), dir_ref(p)));
        } else {
            p->id = dir_partition_parents(p)[0];
            dir_unref(ptree_put(&s->partitions, ptree_u64_key(p->id, key), dir_ref(p)));
        }
        dir_unref(p);
        break;
    }
    case ID_TO_COME:
    case NEXT_ID:
        s->next_id = what == NEXT_ID ? 0 : 3;
        break;
    case MAP_OF_OTHERS: {
        struct dir_partition *p = part(s, w, "g");
        dir_unref(ptree_put(&s->partitions, ptree_u64_key(p->id, key), p));
        break;
    }
    case KEYSPACE_NAME:
        dir_unref(ptree_put(&s->keyspaces_by_name, slice_of("other", 5), dir_ref(ks)));
        break;
    case KEYSPACE_COPIES:
        ks->sync_replicas = UINT32_MAX;
        put(s, dir_ref(ks));
        break;
    case KEYSPACE_POLICY:
        ks->rules.set = 1U << DIR_POLICY_REQUIRE_WARM;
        ks->rules.values[DIR_POLICY_REQUIRE_WARM] = 2;
        put(s, dir_ref(ks));
        break;
    case DEDUPE_AGE:
        dir_unref(ptree_remove(&s->dedupe_by_age, ptree_u64_key(d->index, key)));
        break;
    case DEDUPE_RESULT:
        memset(d->bytes + d->principal_len + d->key_len, 0xff, d->result_len);
        put(s, dir_ref(d));
        break;
    case OPERATION_EPOCHS: {
        struct ptree_iter it;
        ptree_seek(&s->operations, slice_of(NULL, 0), &it);
        const struct dir_operation *is = ptree_iter_get(&it, NULL);
        struct dir_operation *o = mem_dup(is, operation_size(is));
        o->object.refs = 1;
        o->epoch_after = o->epoch_before;
        put(s, o);
        break;
    }
    case UNPLACED:
        s->unplaced = 5;
        break;
    case COMPACTED_AHEAD:
        s->compacted = s->revision + 1;
        break;
    case MARKS:
        s->marks[1] = (struct dir_mark){1, 0};
        break;
    default:
        s->hash.lo++;
        break;
    }
    dir_unref(ks);
    dir_unref(d);
}

static void every_damage_is_found(void)
{
    for (int i = 0; i < DAMAGES; i++) {
        struct world w;
        struct dir_view s;
        open_world(&w, &s);
        enum damage what = (enum damage)i;
        if (i < PARENT_LIVES || (i >= UNKNOWN_NODE && i <= COPY_INDEX) || i == KEYSPACE_GONE) {
            damage_partition(&s, &w, what);
        } else if (i >= NODE_COUNT && i <= NODE_REVISION) {
            damage_node(&s, what);
        } else if (i == LIVES_AND_RETIRED || (i >= LOST_SUCCESSOR && i <= TOMBSTONE_AGE)) {
            damage_tombstone(&s, &w, what);
        } else {
            damage_rest(&s, &w, what);
        }
        tap_note("damage %d", i);
        expect(&s, texts[i]);
        state_close(&s);
        world_close(&w);
    }
}

static void count_line(void *arg, const char *line)
{
    (void)line;
    (*(int *)arg)++;
}

static void reports_are_bounded(void)
{
    struct world w;
    struct dir_view s;
    int lines = 0;
    open_world(&w, &s);
    s.next_id = 1;
    uint64_t found = dir_check(&s, count_line, &lines, 2);
    CHECK(found > 2 && lines == 2);
    CHECK_U64(dir_check(&s, NULL, NULL, 10), found);
    state_close(&s);
    world_close(&w);
}

int main(void)
{
    RUN(every_damage_is_found);
    RUN(reports_are_bounded);
    return tap_done();
}
