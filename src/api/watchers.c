/* SPDX-License-Identifier: Apache-2.0 */
/* Who follows what, how far: for waiting until nobody routes by an older map. There are no more of
 * them than connections. */
#include "api/endpoints.h"

#include "api/follow.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/parse.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

struct watcher {
    struct watchers *all;
    struct watcher *prev, *next; /* by id */
    uint64_t id, since_ms;
    _Atomic dir_rev acknowledged;
    char keyspace[DIR_NAME_MAX + 1];
    char remote[64];
};

struct watchers {
    pthread_mutex_t lock;
    struct watcher *first, *last;
    uint64_t last_id, count;
};

struct watchers *watchers_new(void)
{
    struct watchers *w = mem_zalloc(sizeof *w);
    (void)pthread_mutex_init(&w->lock, NULL);
    return w;
}

void watchers_free(struct watchers *w)
{
    (void)pthread_mutex_destroy(&w->lock);
    mem_free(w);
}

uint64_t watchers_count(struct watchers *w)
{
    uint64_t count;
    (void)pthread_mutex_lock(&w->lock);
    count = w->count;
    (void)pthread_mutex_unlock(&w->lock);
    return count;
}

void follow_register(struct follow *f, const struct exchange *x)
{
    struct watchers *all = f->api->watchers;
    struct watcher *w = mem_zalloc(sizeof *w);
    w->all = all;
    w->since_ms = clock_wall_ms();
    atomic_init(&w->acknowledged, f->since);
    (void)snprintf(w->keyspace, sizeof w->keyspace, "%s", f->keyspace->name);
    (void)snprintf(w->remote, sizeof w->remote, "%s", exchange_remote(x));
    (void)pthread_mutex_lock(&all->lock);
    w->id = ++all->last_id;
    w->prev = all->last;
    if (all->last != NULL) {
        all->last->next = w;
    } else {
        all->first = w;
    }
    all->last = w;
    all->count++;
    (void)pthread_mutex_unlock(&all->lock);
    f->watcher = w;
}

static void unregister(struct watcher *w)
{
    struct watchers *all = w->all;
    (void)pthread_mutex_lock(&all->lock);
    if (w->prev != NULL) {
        w->prev->next = w->next;
    } else {
        all->first = w->next;
    }
    if (w->next != NULL) {
        w->next->prev = w->prev;
    } else {
        all->last = w->prev;
    }
    all->count--;
    (void)pthread_mutex_unlock(&all->lock);
    mem_free(w);
}

void follow_close(struct follow *f)
{
    if (f->watcher != NULL) {
        unregister(f->watcher);
        f->watcher = NULL;
    }
    dir_unref(f->keyspace);
    f->keyspace = NULL;
    mem_free(f->part);
    f->part = NULL;
}

void follow_seen(struct follow *f, dir_rev revision)
{
    f->since = revision;
    if (f->watcher != NULL) {
        atomic_store_explicit(&f->watcher->acknowledged, revision, memory_order_relaxed);
    }
}

/* --- the list --- */

static void put_watcher(struct buf *out, const struct watcher *w, dir_rev acknowledged)
{
    buf_printf(out, "{\"id\":%" PRIu64 ",\"keyspace\":\"%s\",\"remote\":", w->id, w->keyspace);
    json_put_cstring(out, w->remote);
    buf_printf(out, ",\"acknowledged_revision\":%" PRIu64 ",\"since\":", acknowledged);
    json_put_time(out, w->since_ms);
    buf_put_u8(out, '}');
}

static void put_page(struct exchange *x, struct listing *l, dir_rev behind)
{
    struct watchers *all = exchange_api(x)->watchers;
    struct buf *out = exchange_out(x);
    uint64_t from = listing_u64(l, 0), next = 0;
    uint8_t key[8];
    buf_printf(out, "{\"revision\":%" PRIu64 ",\"watchers\":[", l->revision);
    (void)pthread_mutex_lock(&all->lock);
    for (const struct watcher *w = all->first; w != NULL && next == 0; w = w->next) {
        dir_rev acknowledged = atomic_load_explicit(&w->acknowledged, memory_order_relaxed);
        if (w->id < from || acknowledged >= behind) {
            continue;
        }
        if (l->count == l->limit) {
            next = w->id;
            continue;
        }
        if (l->count++ > 0) {
            buf_put_u8(out, ',');
        }
        put_watcher(out, w, acknowledged);
    }
    (void)pthread_mutex_unlock(&all->lock);
    buf_put_u8(out, ']');
    if (next > 0) {
        listing_next(x, l, ptree_u64_key(next, key));
    }
    buf_put_u8(out, '}');
}

static void get_watchers(struct exchange *x, const struct dir_view *v)
{
    static const char *const filters[] = {"behind", NULL};
    struct listing l;
    dir_rev behind = UINT64_MAX;
    (void)v;
    if (!param_u64(x, "behind", 0, PARSE_INT_MAX, &behind) ||
        !listing_begin(x, LIST_WATCHERS, filters, false, &l)) {
        return;
    }
    put_page(x, &l, behind);
    reply_read(x, l.revision);
    listing_end(&l);
}

void h_watchers(struct exchange *x)
{
    read_begin(x, get_watchers);
}
