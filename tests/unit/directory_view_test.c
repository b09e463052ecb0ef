/* SPDX-License-Identifier: Apache-2.0 */
/* Publishing, views, the feed as apply fills it, loading, and stored outcomes. */
#include "base/mem.h"
#include "directory/internal.h"
#include "tests/harness/tap.h"
#include "tests/harness/world.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

static bool same_hash(struct hash128 a, struct hash128 b)
{
    return a.lo == b.lo && a.hi == b.hi;
}

static void readers_see_what_was_published(void)
{
    struct world w;
    world_open(&w);
    (void)world_range(&w, "orders");
    const struct dir_published *slot = directory_published(w.d);
    const struct dir_view *old = view_pin(slot);
    struct dir_effects *effects = NULL;
    (void)world_split(&w, world_at(&w, "orders", "")->id, "m");
    Cadastre__Command *c;
    struct err e;
    c = apply_decode(slice_of(w.bytes, w.len), &e);
    c->split->partition = world_at(&w, "orders", "")->id;
    c->split->at[0].data[0] = 'c';
    size_t n = cadastre__command__get_packed_size(c);
    uint8_t *bytes = mem_alloc(n);
    (void)cadastre__command__pack(c, bytes);
    apply_free(c);
    struct dir_result *r = directory_apply(w.d, 99, slice_of(bytes, n), &effects);
    CHECK_U64(r->err.code, ERR_OK);
    result_unref(r);
    dir_effects_free(effects);
    /* Applied, not published: only the working state has it. */
    const struct dir_view *v = view_enter(slot);
    CHECK(v->revision == 2 && v->applied_index == 2 && directory_state(w.d)->revision == 3);
    view_leave();
    struct dir_change *change;
    dir_rev upto;
    CHECK_U64(feed_read(directory_feed(w.d), 0, 2, UINT64_MAX, &change, 1, &upto), 0);
    directory_publish(w.d);
    v = view_enter(slot);
    CHECK(v->revision == 3 && v->applied_index == 99);
    view_leave();
    CHECK_U64(feed_read(directory_feed(w.d), 0, 2, UINT64_MAX, &change, 1, &upto), 1);
    change_unref(change);
    /* A pinned view stays what it was, long after. */
    CHECK(old->revision == 1 && old->partitions.count == 1);
    CHECK_U64(world_check(old), 0);
    view_unpin(old);
    mem_free(bytes);
    world_close(&w);
}

static void changes_carry_what_routes_show(void)
{
    struct world w;
    world_open(&w);
    (void)world_node(&w, "n1", "h:1");
    const struct dir_result *r = world_range(&w, "orders");
    uint64_t keyspace = r->keyspace->id, parent = world_at(&w, "orders", "")->id;
    (void)world_split(&w, parent, "m");
    uint64_t left = world_at(&w, "orders", "")->id;
    (void)world_split(&w, left, "f");
    (void)world_node(&w, "n2", "h:2"); /* nothing that routes show */
    struct dir_change *c[4];
    dir_rev upto;
    CHECK_U64(feed_read(directory_feed(w.d), keyspace, 0, UINT64_MAX, c, 4, &upto), 3);
    CHECK(c[0]->kind == DIR_CHANGE_CREATE && c[0]->route_count == 1 && c[0]->revision == 2);
    CHECK(c[0]->start.data != NULL && c[0]->start.len == 0 && c[0]->end.data == NULL);
    CHECK(c[1]->kind == DIR_CHANGE_SPLIT && c[1]->removed_count == 1 && c[1]->removed[0] == parent);
    CHECK(c[1]->route_count == 2 && c[1]->routes[0].partition->id == left);
    CHECK(c[2]->removed[0] == left && c[2]->route_count == 2 && c[2]->revision == 4);
    CHECK(c[2]->start.len == 0 && slice_eq(c[2]->end, slice_of("m", 1)));
    CHECK_STR(c[2]->routes[0].nodes[0]->name, "n1");
    CHECK_STR(c[2]->routes[0].keyspace->name, "orders");
    for (int i = 0; i < 3; i++) {
        change_unref(c[i]);
    }
    world_close(&w);
}

static void finders_skip_what_is_hidden(void)
{
    struct world w;
    world_open(&w);
    uint64_t id = world_hash(&w, "logs", DIR_CREATE_BATCH + 1)->keyspace->id;
    const struct dir_view *s = world_state(&w);
    CHECK(view_keyspace(s, slice_of("logs", 4)) == NULL && view_keyspace_by_id(s, id) == NULL);
    CHECK(state_keyspace(s, id) != NULL);
    CHECK(view_node(s, slice_of("x", 1)) == NULL && view_node_by_id(s, 1) == NULL);
    CHECK(view_operation(s, 1) == NULL);
    (void)world_range(&w, "orders");
    const struct dir_tombstone *t;
    CHECK(view_partition(world_state(&w), world_keyspace(&w, "orders"), 2, &t) == NULL);
    CHECK(t == NULL); /* of another keyspace */
    world_close(&w);
}

static bool refuse(void *arg, const struct dir_partition *p)
{
    (void)p;
    (*(int *)arg)++;
    return false;
}

static void successors_stop_when_told(void)
{
    struct world w;
    world_open(&w);
    (void)world_range(&w, "orders");
    uint64_t id = world_at(&w, "orders", "")->id;
    (void)world_split(&w, id, "m");
    const struct dir_tombstone *t;
    int called = 0;
    (void)view_partition(world_state(&w), world_keyspace(&w, "orders"), id, &t);
    CHECK_U64(view_successors(world_state(&w), t, refuse, &called), 1);
    CHECK_U64(called, 1);
    world_close(&w);
}

/* A merge with a neighbour and another split leave successors of successors that lie beside the
 * range: they are not shown. */
static void successors_cover_the_range_and_no_more(void)
{
    struct world w;
    world_open(&w);
    (void)world_range(&w, "orders");
    (void)world_split(&w, world_at(&w, "orders", "")->id, "m");
    uint64_t right = world_at(&w, "orders", "z")->id;
    (void)world_merge(&w, world_at(&w, "orders", "")->id, right);
    (void)world_split(&w, world_at(&w, "orders", "")->id, "c");
    const struct dir_result *r = world_split(&w, right, "x");
    CHECK(r->retired && r->route_count == 1);
    CHECK(r->routes[0].partition == world_at(&w, "orders", "z"));
    world_close(&w);
}

static void results_read_back(void)
{
    struct world w;
    world_open(&w);
    (void)world_node(&w, "n1", "h:1");
    const struct dir_result *r = world_node(&w, "n2", "h:2");
    struct err e = {.code = ERR_OK};
    for (int i = 0; i < 5; i++) {
        struct buf b;
        buf_init(&b, 1 << 20);
        result_encode(r, &b);
        struct dir_result *back = result_decode(slice_of(b.data, b.len), &e);
        CHECK(back != NULL && back->replayed);
        CHECK(back->err.code == r->err.code && strcmp(back->err.detail, r->err.detail) == 0);
        CHECK(strcmp(back->err.pointer, r->err.pointer) == 0 && back->revision == r->revision);
        CHECK(back->session == r->session && back->partition == r->partition);
        CHECK((back->keyspace != NULL) == (r->keyspace != NULL));
        CHECK((back->node != NULL) == (r->node != NULL));
        CHECK((back->operation != NULL) == (r->operation != NULL));
        CHECK_U64(back->partitions, r->partitions);
        CHECK_U64(back->route_count, r->route_count);
        for (uint64_t k = 0; k < r->route_count; k++) {
            const struct dir_route *x = &r->routes[k], *y = &back->routes[k];
            CHECK(x->partition->id == y->partition->id && x->mod_revision == y->mod_revision);
            CHECK(slice_eq(dir_partition_start(x->partition), dir_partition_start(y->partition)));
            CHECK(x->partition->end_open == y->partition->end_open);
            CHECK_U64(y->partition->created, x->partition->created);
            CHECK_U64(y->partition->owner_since_ms, x->partition->owner_since_ms);
            CHECK_U64(y->partition->parent_count, x->partition->parent_count);
            CHECK_STR(y->nodes[0]->address, x->nodes[0]->address);
            CHECK(y->nodes[0]->is_static && strcmp(y->keyspace->name, "orders") == 0);
        }
        /* Encoding what was read gives the same bytes. */
        struct buf again;
        buf_init(&again, 1 << 20);
        result_encode(back, &again);
        CHECK(slice_eq(slice_of(again.data, again.len), slice_of(b.data, b.len)));
        for (size_t cut = 0; cut < b.len; cut++) { /* cut short: an error or a shorter result */
            result_unref(result_decode(slice_of(b.data, cut), &e));
        }
        result_unref(back);
        buf_close(&again);
        buf_close(&b);
        r = i == 0   ? world_range(&w, "orders")
            : i == 1 ? world_split(&w, world_at(&w, "orders", "")->id, "m")
            : i == 2 ? world_move(&w, world_at(&w, "orders", "")->id, "n2")
                     : world_merge(&w, world_at(&w, "orders", "")->id, 999);
    }
    world_close(&w);
}

static void begin_load(struct directory *d, const struct dir_view *s)
{
    struct dir_view_meta meta;
    dir_meta_of(s, &meta);
    directory_load_begin(d, &meta);
}

static struct dir_object *ref_of(const struct ptree *t)
{
    struct ptree_iter it;
    ptree_seek(t, slice_of(NULL, 0), &it);
    return dir_ref(ptree_iter_get(&it, NULL));
}

static void a_load_that_fails_changes_nothing(void)
{
    struct world w;
    world_open(&w);
    (void)world_node(&w, "n1", "h:1");
    (void)world_range(&w, "orders");
    const struct dir_view *s = world_state(&w);
    struct directory *d = directory_new();
    struct err e;
    struct hash128 empty = directory_state(d)->hash;
    begin_load(d, s); /* rows are missing */
    directory_load_row(d, ref_of(&s->nodes));
    CHECK_U64(directory_load_end(d, &e), ERR_CORRUPT);
    CHECK(same_hash(directory_state(d)->hash, empty));
    begin_load(d, s); /* a row comes twice */
    directory_load_row(d, ref_of(&s->nodes));
    directory_load_row(d, ref_of(&s->nodes));
    CHECK_U64(directory_load_end(d, &e), ERR_CORRUPT);
    CHECK_STR(e.detail, "a row is there twice");
    begin_load(d, s); /* abandoned */
    directory_load_row(d, ref_of(&s->nodes));
    begin_load(d, s); /* in any order */
    directory_load_row(d, ref_of(&s->partitions));
    directory_load_row(d, ref_of(&s->keyspaces));
    directory_load_row(d, ref_of(&s->nodes));
    CHECK_U64(directory_load_end(d, &e), ERR_OK);
    CHECK(same_hash(directory_state(d)->hash, s->hash));
    const struct dir_view *v = view_enter(directory_published(d));
    CHECK(v->revision == s->revision && view_keyspace(v, slice_of("orders", 6)) != NULL);
    view_leave();
    CHECK_U64(feed_oldest(directory_feed(d)), s->revision); /* nobody can follow from before */
    directory_free(d);
    world_close(&w);
}

static void scalars_read_back(void)
{
    struct world w;
    world_open(&w);
    (void)world_node(&w, "n1", "h:1");
    struct dir_view_meta m, back;
    struct buf b;
    struct err e;
    buf_init(&b, 4096);
    dir_meta_of(world_state(&w), &m);
    dir_meta_encode(&m, &b);
    CHECK_U64(dir_meta_decode(slice_of(b.data, b.len), &back, &e), ERR_OK);
    CHECK(back.revision == m.revision && back.next_id == m.next_id && back.time_ms == m.time_ms);
    CHECK(memcmp(back.marks, m.marks, sizeof m.marks) == 0);
    CHECK(memcmp(&back.settings, &m.settings, sizeof m.settings) == 0);
    CHECK_U64(dir_meta_decode(slice_of(b.data, b.len - 1), &back, &e), ERR_CORRUPT);
    buf_close(&b);
    world_close(&w);
}

struct reader {
    const struct dir_published *slot;
    _Atomic bool stop;
    _Atomic uint64_t reads;
    uint64_t wrong;
};

/* Every view that a reader meets is whole: all of the range is covered, revisions never go back. */
static void *read_on(void *arg)
{
    struct reader *r = arg;
    dir_rev last = 0;
    rcu_reader_start();
    while (!atomic_load(&r->stop)) {
        bool pin = atomic_fetch_add(&r->reads, 1) % 3 == 0;
        const struct dir_view *v = pin ? view_pin(r->slot) : view_enter(r->slot);
        const struct dir_keyspace *ks = view_keyspace(v, slice_of("orders", 6));
        const struct dir_partition *p, *before = NULL;
        struct ptree_iter it;
        for (ptree_seek(view_map(v, ks), slice_of(NULL, 0), &it);
             (p = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
            r->wrong +=
                before != NULL && !slice_eq(dir_partition_end(before), dir_partition_start(p));
            r->wrong += p->epoch > v->revision;
            before = p;
        }
        r->wrong += before == NULL || !before->end_open || v->revision < last;
        last = v->revision;
        if (pin) {
            view_unpin(v);
        } else {
            view_leave();
        }
    }
    rcu_reader_stop();
    return NULL;
}

static void readers_and_the_writer_do_not_meet(void)
{
    struct world w;
    struct reader readers[2];
    pthread_t threads[2];
    world_open(&w);
    (void)world_range(&w, "orders");
    for (int i = 0; i < 2; i++) {
        readers[i] = (struct reader){.slot = directory_published(w.d)};
        CHECK(pthread_create(&threads[i], NULL, read_on, &readers[i]) == 0);
    }
    int done = 0;
    while (done < 1000 || atomic_load(&readers[0].reads) < 100 ||
           atomic_load(&readers[1].reads) < 100) {
        char at[2] = {(char)('a' + done % 20), '\0'};
        if (world_split(&w, world_at(&w, "orders", at)->id, at)->err.code != ERR_OK) {
            const struct dir_partition *p = world_at(&w, "orders", at);
            if (!p->end_open) {
                char end[2] = {(char)dir_partition_end(p).data[0], '\0'};
                (void)world_merge(&w, p->id, world_at(&w, "orders", end)->id);
            }
        }
        done++;
    }
    for (int i = 0; i < 2; i++) {
        atomic_store(&readers[i].stop, true);
        (void)pthread_join(threads[i], NULL);
        CHECK_U64(readers[i].wrong, 0);
    }
    CHECK(world_state(&w)->revision > 300);
    world_close(&w);
}

int main(void)
{
    rcu_reader_start();
    RUN(readers_see_what_was_published);
    RUN(changes_carry_what_routes_show);
    RUN(finders_skip_what_is_hidden);
    RUN(successors_stop_when_told);
    RUN(successors_cover_the_range_and_no_more);
    RUN(results_read_back);
    RUN(a_load_that_fails_changes_nothing);
    RUN(scalars_read_back);
    RUN(readers_and_the_writer_do_not_meet);
    rcu_reader_stop();
    rcu_drain();
    return tap_done();
}
