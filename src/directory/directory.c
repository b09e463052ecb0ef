/* SPDX-License-Identifier: Apache-2.0 */
/* The state machine as its owner sees it: a working state that commands change, a published one
 * that readers see, and the feed between them. */
#include "directory/directory.h"

#include "base/assert.h"
#include "base/mem.h"
#include "directory/feed_internal.h"
#include "directory/internal.h"

#include <inttypes.h>

/* State hashes by index that are remembered for the leader's StateCheck. */
enum { HASHES = 1024 };

struct hash_at {
    uint64_t index;
    struct hash128 hash;
};

struct directory {
    struct dir_view state;
    struct dir_published published;
    struct dir_feed *feed;
    struct dir_change **pending; /* references; for the next publish */
    uint64_t pending_count, pending_cap;
    struct hash_at hashes[HASHES];
    struct dir_view *loading;  /* between load_begin and load_end */
    const char *loading_fault; /* static text */
};

static struct dir_view *snapshot(const struct dir_view *state)
{
    struct dir_view *v = mem_alloc(sizeof *v);
    state_copy(state, v);
    return v;
}

static struct directory *begin(void)
{
    struct directory *d = mem_zalloc(sizeof *d);
    d->feed = feed_new();
    return d;
}

struct directory *directory_new(void)
{
    struct directory *d = begin();
    state_init(&d->state);
    d->published.view = snapshot(&d->state);
    return d;
}

struct directory *directory_fork(const struct dir_view *v)
{
    struct directory *d = begin();
    state_copy(v, &d->state);
    d->published.view = snapshot(&d->state);
    feed_reset(d->feed, v->revision);
    return d;
}

static void drop_pending(struct directory *d)
{
    for (uint64_t i = 0; i < d->pending_count; i++) {
        change_unref(d->pending[i]);
    }
    d->pending_count = 0;
}

static void drop_loading(struct directory *d)
{
    if (d->loading != NULL) {
        state_close(d->loading);
        mem_free(d->loading);
        d->loading = NULL;
    }
}

void directory_free(struct directory *d)
{
    if (d == NULL) {
        return;
    }
    drop_loading(d);
    drop_pending(d);
    mem_free(d->pending);
    feed_free(d->feed);
    view_unpin(d->published.view);
    state_close(&d->state);
    mem_free(d);
}

const struct dir_published *directory_published(const struct directory *d)
{
    return &d->published;
}

struct dir_feed *directory_feed(struct directory *d)
{
    return d->feed;
}

const struct dir_view *directory_state(const struct directory *d)
{
    return &d->state;
}

static void retire_view(void *view)
{
    view_unpin(view);
}

static void publish_view(struct directory *d)
{
    struct dir_view *old = d->published.view;
    rcu_publish(&d->published.view, snapshot(&d->state));
    rcu_retire(retire_view, old);
    struct hash_at *h = &d->hashes[d->state.applied_index % HASHES];
    *h = (struct hash_at){d->state.applied_index, d->state.hash};
}

void directory_publish(struct directory *d)
{
    /* First the changes: a reader of the new view must not miss them. */
    for (uint64_t i = 0; i < d->pending_count; i++) {
        feed_publish(d->feed, d->pending[i]);
    }
    d->pending_count = 0;
    bool changed = d->published.view->revision != d->state.revision;
    publish_view(d);
    if (changed) {
        feed_wake(d->feed, d->state.revision);
    }
}

static void keep_changes(struct directory *d, struct apply_outcome *o)
{
    for (uint64_t i = 0; i < o->change_count; i++) {
        if (d->pending_count == d->pending_cap) {
            d->pending_cap = d->pending_cap > 0 ? d->pending_cap * 2 : 64;
            d->pending = mem_realloc(d->pending, d->pending_cap * sizeof d->pending[0]);
        }
        d->pending[d->pending_count++] = o->changes[i];
    }
    o->change_count = 0;
}

/* A server whose hash was another at that index has another state: its process must end. The state
 * itself does not depend on the answer. */
static void
compare_hash(const struct directory *d, const Cadastre__StateCheck *m, struct dir_result *r)
{
    const struct hash_at *h = &d->hashes[m->index % HASHES];
    struct hash128 leader = {m->hash_lo, m->hash_hi};
    char here[HASH128_HEX_SIZE], there[HASH128_HEX_SIZE];
    if (r->err.code != ERR_OK || m->index == 0 || h->index != m->index ||
        (h->hash.lo == leader.lo && h->hash.hi == leader.hi)) {
        return;
    }
    hash128_hex(h->hash, here);
    hash128_hex(leader, there);
    err_set(&r->err, ERR_CORRUPT,
            "the state at index %" PRIu64 " has hash %s here and %s at the leader", m->index, here,
            there);
}

struct dir_result *directory_apply(struct directory *d,
                                   uint64_t index,
                                   struct slice command,
                                   struct dir_effects **ret_effects)
{
    struct err e = {.code = ERR_OK};
    Cadastre__Command *cmd = apply_decode(command, &e);
    if (cmd == NULL) {
        return result_new(&e, d->state.revision, 0);
    }
    struct apply_outcome o;
    apply_run(&d->state, index, cmd, &o);
    struct dir_result *r = result_ref(o.result);
    if (cmd->body_case == CADASTRE__COMMAND__BODY_STATE_CHECK) {
        compare_hash(d, cmd->state_check, r);
    }
    while (*ret_effects != NULL) {
        ret_effects = &(*ret_effects)->next;
    }
    *ret_effects = o.effects;
    o.effects = NULL;
    keep_changes(d, &o);
    apply_outcome_close(&o);
    apply_free(cmd);
    return r;
}

struct dir_result *directory_try(const struct directory *d, const Cadastre__Command *command)
{
    struct dir_view copy;
    struct apply_outcome o;
    state_copy(&d->state, &copy);
    apply_run(&copy, copy.applied_index, command, &o);
    struct dir_result *r = result_ref(o.result);
    apply_outcome_close(&o);
    state_close(&copy);
    return r;
}

/* --- from a store's rows --- */

void directory_load_begin(struct directory *d, const struct dir_view_meta *meta)
{
    drop_loading(d);
    struct dir_view *v = mem_alloc(sizeof *v);
    state_init(v);
    memcpy(v->cluster, meta->cluster, sizeof v->cluster);
    v->generation = meta->generation;
    v->revision = meta->revision;
    v->applied_index = meta->applied_index;
    v->time_ms = meta->time_ms;
    v->compacted = meta->compacted;
    v->next_id = meta->next_id;
    v->hash = meta->hash;
    v->settings = meta->settings;
    memcpy(v->marks, meta->marks, sizeof v->marks);
    d->loading = v;
    d->loading_fault = NULL;
}

void directory_load_row(struct directory *d, struct dir_object *row)
{
    ASSERT(d->loading != NULL);
    bool is_row = (row->kind >= DIR_KIND_KEYSPACE && row->kind <= DIR_KIND_OPERATION) ||
                  row->kind == DIR_KIND_DUTY || row->kind == DIR_KIND_PROPOSAL ||
                  row->kind == DIR_KIND_BALANCER;
    if (!is_row) {
        d->loading_fault = "a row is of no kind that the directory has";
        dir_unref(row);
        return;
    }
    struct dir_object *before = state_put(d->loading, row);
    if (before != NULL) {
        d->loading_fault = "a row is there twice";
        dir_unref(before);
    }
}

struct first_fault {
    char line[300];
};

static void keep_first(void *arg, const char *line)
{
    struct first_fault *f = arg;
    size_t n = strnlen(line, sizeof f->line - 1);
    memcpy(f->line, line, n);
    f->line[n] = '\0';
}

enum err_code directory_load_end(struct directory *d, struct err *e)
{
    ASSERT(d->loading != NULL);
    struct first_fault fault = {""};
    if (d->loading_fault != NULL) {
        keep_first(&fault, d->loading_fault);
    } else {
        (void)dir_check(d->loading, keep_first, &fault, 1);
    }
    if (fault.line[0] != '\0') {
        drop_loading(d);
        return err_set(e, ERR_CORRUPT, "%s", fault.line);
    }
    drop_pending(d);
    state_close(&d->state);
    memcpy(&d->state, d->loading, sizeof d->state);
    mem_free(d->loading);
    d->loading = NULL;
    memset(d->hashes, 0, sizeof d->hashes);
    feed_reset(d->feed, d->state.revision);
    publish_view(d);
    feed_wake(d->feed, d->state.revision);
    return ERR_OK;
}
