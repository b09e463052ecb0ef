/* SPDX-License-Identifier: Apache-2.0 */
/* History against what routes showed at each revision: random commands, every revision kept in a
 * naive model. */
#include "base/mem.h"
#include "tests/harness/past.h"
#include "tests/harness/tap.h"

#include <inttypes.h>
#include <string.h>

enum { COMMANDS = 400, PAIRS = 150 };

static struct past w;

static void keep_text(void *arg, const struct store_version *v)
{
    char **text = arg;
    *text = past_version_text(v);
}

static bool same_route(uint64_t keyspace, struct slice key, dir_rev at, const char *want)
{
    struct err e;
    char *text = NULL;
    enum err_code code = store_route_at(w.s, keyspace, key, at, keep_text, &text, &e);
    bool same = want != NULL ? CHECK(code == ERR_OK) && CHECK_STR(text, want)
                             : CHECK(code == ERR_PARTITION_NOT_FOUND);
    mem_free(text);
    return same;
}

static void check_map_at(dir_rev at, const struct past_map *m)
{
    for (uint64_t i = 0; i < m->count && tap_failures() == 0; i++) {
        const struct past_route *r = &m->routes[i];
        uint8_t key[64];
        size_t len = r->start_len;
        if (len > 0) {
            memcpy(key, r->start, len);
        }
        (void)same_route(m->keyspace, slice_of(key, len), at, r->text);
        key[len++] = 0; /* the next key is in it too, unless the next one starts there */
        const struct past_route *next = i + 1 < m->count ? &m->routes[i + 1] : NULL;
        bool taken =
            next != NULL && slice_eq(slice_of(next->start, next->start_len), slice_of(key, len));
        (void)same_route(m->keyspace, slice_of(key, len), at, taken ? next->text : r->text);
    }
    struct dir_keyspace *ks = store_keyspace_at(w.s, slice_of(m->name, strlen(m->name)), at);
    CHECK(ks != NULL && ks->id == m->keyspace);
    dir_unref(ks);
}

static void open_random(uint64_t seed, unsigned commands)
{
    tap_note("seed %" PRIu64, seed);
    past_open(&w, seed, true);
    past_start(&w, 5);
    for (unsigned i = 0; i < commands; i++) {
        (void)past_random(&w);
    }
    store_flush(w.s);
}

static void every_revision_reads_back(void)
{
    uint64_t seed = tap_seed(11);
    for (uint64_t k = 0; k < 3 && tap_failures() == 0; k++) {
        open_random(seed + k, COMMANDS);
        CHECK_U64(store_revision(w.s), directory_state(w.d)->revision);
        CHECK_U64(store_lag(w.s), 0);
        for (dir_rev r = 0; r < w.state_count; r++) {
            for (uint64_t i = 0; i < w.states[r].count && tap_failures() == 0; i++) {
                check_map_at(r, &w.states[r].maps[i]);
            }
        }
        past_close(&w);
    }
}

/* A map by id, changed by events. */
struct replay {
    uint64_t *ids;
    char **texts;
    uint64_t count, cap;
    dir_rev last;
    dir_rev from, to;
};

static void replay_remove(struct replay *p, uint64_t id)
{
    for (uint64_t i = 0; i < p->count; i++) {
        if (p->ids[i] == id) {
            mem_free(p->texts[i]);
            p->count--;
            p->ids[i] = p->ids[p->count];
            p->texts[i] = p->texts[p->count];
            return;
        }
    }
}

static void replay_put(struct replay *p, uint64_t id, char *text)
{
    replay_remove(p, id);
    if (p->count == p->cap) {
        p->cap = p->cap == 0 ? 16 : p->cap * 2;
        p->ids = mem_realloc(p->ids, p->cap * sizeof *p->ids);
        p->texts = mem_realloc(p->texts, p->cap * sizeof(char *));
    }
    p->ids[p->count] = id;
    p->texts[p->count++] = text;
}

static bool replay_event(void *arg, const struct store_event *ev)
{
    struct replay *p = arg;
    CHECK(ev->revision >= p->last && ev->revision > p->from && ev->revision <= p->to);
    p->last = ev->revision;
    if (ev->removed) {
        uint64_t before = p->count;
        replay_remove(p, ev->version.partition);
        /* what came and went inside the interval is told too */
        CHECK(p->count == before - 1);
    } else {
        replay_put(p, ev->version.partition, past_version_text(&ev->version));
    }
    return tap_failures() == 0;
}

static void check_replay(uint64_t keyspace, dir_rev from, dir_rev to)
{
    struct err e = {0};
    struct replay p = {.from = from, .to = to};
    const struct past_map *before = past_map_at(&w, from, keyspace);
    const struct past_map *after = past_map_at(&w, to, keyspace);
    for (uint64_t i = 0; before != NULL && i < before->count; i++) {
        replay_put(&p, before->routes[i].id, mem_strdup(before->routes[i].text));
    }
    tap_note("keyspace %" PRIu64 " from %" PRIu64 " to %" PRIu64, keyspace, from, to);
    if (!CHECK(store_events(w.s, keyspace, from, to, replay_event, &p, &e) == ERR_OK)) {
        tap_note("%s", e.detail);
    }
    CHECK_U64(p.count, after != NULL ? after->count : 0);
    for (uint64_t i = 0; after != NULL && i < after->count && tap_failures() == 0; i++) {
        uint64_t j = 0;
        while (j < p.count && p.ids[j] != after->routes[i].id) {
            j++;
        }
        CHECK_STR(j < p.count ? p.texts[j] : NULL, after->routes[i].text);
    }
    while (p.count > 0) {
        replay_remove(&p, p.ids[0]);
    }
    mem_free(p.ids);
    mem_free(p.texts);
}

static void events_turn_one_map_into_another(void)
{
    uint64_t seed = tap_seed(21);
    for (uint64_t k = 0; k < 3 && tap_failures() == 0; k++) {
        open_random(seed + k, COMMANDS);
        for (unsigned i = 0; i < PAIRS && tap_failures() == 0; i++) {
            dir_rev a = tap_rand_below(&w.rand, w.state_count);
            dir_rev b = tap_rand_below(&w.rand, w.state_count);
            dir_rev from = a < b ? a : b, to = a < b ? b : a;
            const struct past_state *st = &w.states[tap_rand_below(&w.rand, 2) == 0 ? from : to];
            if (st->count > 0) {
                check_replay(st->maps[tap_rand_below(&w.rand, st->count)].keyspace, from, to);
            }
        }
        past_close(&w);
    }
}

struct ledger {
    dir_rev next, epoch;
    uint64_t count;
};

static bool check_ledger(void *arg, const struct store_version *v)
{
    struct ledger *l = arg;
    CHECK(l->count == 0 || l->next == v->from_revision);
    CHECK(v->epoch >= l->epoch && v->epoch <= v->from_revision);
    l->next = v->to_revision;
    l->epoch = v->epoch;
    l->count++;
    return true;
}

static void history_of_a_partition_has_no_holes(void)
{
    struct err e;
    open_random(tap_seed(31), COMMANDS);
    for (uint64_t id = 1; id < directory_state(w.d)->next_id; id++) {
        struct ledger l = {0};
        CHECK(store_history(w.s, id, check_ledger, &l, &e) == ERR_OK);
        uint8_t key[8];
        bool live = ptree_get(&directory_state(w.d)->partitions, ptree_u64_key(id, key)) != NULL;
        CHECK(l.count == 0 || (l.next == 0) == live);
        CHECK(l.count > 0 || !live);
    }
    past_close(&w);
}

static void long_histories_come_in_pages(void)
{
    struct err e;
    struct ledger l = {0};
    past_open(&w, 1, false);
    past_start(&w, 2);
    CHECK(past_keyspace(&w, "a", 1) == ERR_OK);
    uint64_t id = past_any_partition(&w)->id;
    dir_rev from = directory_state(w.d)->revision;
    for (unsigned i = 0; i < 500; i++) {
        CHECK(past_move(&w, id, i % 2 == 0 ? "n1" : "n0") == ERR_OK ||
              past_move(&w, id, i % 2 == 0 ? "n0" : "n1") == ERR_OK);
    }
    store_flush(w.s);
    CHECK(store_history(w.s, id, check_ledger, &l, &e) == ERR_OK);
    CHECK(l.count >= 500 && l.next == 0);
    CHECK(directory_state(w.d)->revision >= from + 500);
    past_close(&w);
}

static void trimmed_history_is_refused_and_the_rest_reads_back(void)
{
    struct err e;
    char *text = NULL;
    open_random(tap_seed(41), COMMANDS);
    CHECK(past_history_max(&w, 120) == ERR_OK);
    for (unsigned i = 0; i < 1200; i++) {
        (void)past_random(&w);
    }
    store_flush(w.s);
    const struct dir_view *v = directory_state(w.d);
    CHECK(v->compacted > 256);
    for (dir_rev r = v->compacted; r < w.state_count; r++) {
        for (uint64_t i = 0; i < w.states[r].count && tap_failures() == 0; i++) {
            check_map_at(r, &w.states[r].maps[i]);
        }
    }
    const struct dir_partition *p = past_any_partition(&w);
    uint64_t keyspace = p->keyspace;
    CHECK(store_route_at(w.s, keyspace, slice_of("", 0), v->compacted - 1, keep_text, &text, &e) ==
          ERR_COMPACTED);
    CHECK(store_route_at(w.s, keyspace, slice_of("", 0), v->revision + 1, keep_text, &text, &e) ==
          ERR_BEHIND);
    struct replay replay = {0};
    CHECK(store_events(w.s, keyspace, v->compacted - 1, v->revision, replay_event, &replay, &e) ==
          ERR_COMPACTED);
    for (unsigned i = 0; i < 50 && tap_failures() == 0; i++) {
        check_replay(keyspace, v->compacted + tap_rand_below(&w.rand, v->revision - v->compacted),
                     v->revision);
    }
    past_close(&w);
}

int main(void)
{
    RUN(every_revision_reads_back);
    RUN(events_turn_one_map_into_another);
    RUN(history_of_a_partition_has_no_holes);
    RUN(long_histories_come_in_pages);
    RUN(trimmed_history_is_refused_and_the_rest_reads_back);
    return tap_done();
}
