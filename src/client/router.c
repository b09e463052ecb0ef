/* SPDX-License-Identifier: Apache-2.0 */
/* A router's life, and what its readers call. */
#include "client/router.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/parse.h"
#include "client/now.h"

#include <curl/curl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { TIMEOUT_DEFAULT_MS = 5000, CLOCK_LIMIT_MS = 86400000 };

struct timespec cl_deadline(uint64_t ms)
{
    struct timespec ts;
    uint64_t capped = ms < CLOCK_LIMIT_MS ? ms : CLOCK_LIMIT_MS;
    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    uint64_t ns = (uint64_t)ts.tv_nsec + capped % 1000 * 1000000;
    ts.tv_sec += (time_t)(capped / 1000 + ns / 1000000000);
    ts.tv_nsec = (long)(ns % 1000000000);
    return ts;
}

static uint64_t or_default(uint64_t value, uint64_t otherwise)
{
    return value > 0 ? value : otherwise;
}

static bool options_ok(const struct cadastre_router_options *o, struct cadastre_error *e)
{
    if (o->keyspace == NULL || !parse_is_name(slice_of(o->keyspace, strlen(o->keyspace)))) {
        (void)cl_error(e, CADASTRE_INVALID, "", "keyspace: not a name");
        return false;
    }
    if (o->mode != CADASTRE_WHOLE_MAP && o->mode != CADASTRE_LAZY) {
        (void)cl_error(e, CADASTRE_INVALID, "", "mode: there is no such mode");
        return false;
    }
    return true;
}

static void init_locks(struct cadastre_router *r)
{
    pthread_condattr_t attr;
    (void)pthread_mutex_init(&r->writing, NULL);
    (void)pthread_mutex_init(&r->lock, NULL);
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&r->changed, &attr);
    (void)pthread_condattr_destroy(&attr);
}

static void release(struct cadastre_router *r)
{
    cl_fetch_free(r->follow);
    cl_fetch_free(r->refresh);
    cl_map_close(&r->map);
    for (struct cl_codec *c = atomic_load(&r->codec), *before; c != NULL; c = before) {
        before = c->before;
        mem_free(c);
    }
    cl_hooks_close(&r->hooks);
    (void)pthread_cond_destroy(&r->changed);
    (void)pthread_mutex_destroy(&r->lock);
    (void)pthread_mutex_destroy(&r->writing);
    mem_free(r);
}

static void stop_threads(struct cadastre_router *r, bool refresher)
{
    (void)pthread_mutex_lock(&r->lock);
    r->stopping = true;
    (void)pthread_cond_broadcast(&r->changed);
    (void)pthread_mutex_unlock(&r->lock);
    cl_fetch_stop(r->follow);
    cl_fetch_stop(r->refresh);
    (void)pthread_join(r->follower, NULL);
    if (refresher) {
        (void)pthread_join(r->refresher, NULL);
    }
}

static bool start_threads(struct cadastre_router *r, struct cadastre_error *e)
{
    if (pthread_create(&r->follower, NULL, cl_router_follow, r) != 0) {
        (void)cl_error(e, CADASTRE_BUSY, "", "no thread can be started");
        return false;
    }
    if (pthread_create(&r->refresher, NULL, cl_router_refresh, r) != 0) {
        stop_threads(r, false);
        (void)cl_error(e, CADASTRE_BUSY, "", "no thread can be started");
        return false;
    }
    return true;
}

struct cadastre_router *cadastre_router_new(const struct cadastre_router_options *o,
                                            struct cadastre_error *e)
{
    if (!options_ok(o, e)) {
        return NULL;
    }
    struct cadastre_router *r = mem_zalloc(sizeof *r);
    cl_map_init(&r->map);
    cl_hooks_init(&r->hooks, o->ca_file);
    init_locks(r);
    r->hooks.credentials = o->credentials;
    r->hooks.event = o->event;
    r->hooks.credentials_arg = r->hooks.event_arg = o->arg;
    (void)snprintf(r->keyspace, sizeof r->keyspace, "%s", o->keyspace);
    r->lazy = o->mode == CADASTRE_LAZY;
    r->max_age_ms = or_default(o->max_age_ms, CL_MAX_AGE_MS);
    r->timeout_ms = or_default(o->timeout_ms, TIMEOUT_DEFAULT_MS);
    r->entries_max = or_default(o->entries_max, CL_ENTRIES_DEFAULT);
    atomic_init(&r->state, CADASTRE_MISS);
    r->follow = cl_fetch_new(o->endpoints, r->timeout_ms, &r->hooks, e);
    r->refresh = r->follow != NULL ? cl_fetch_new(o->endpoints, r->timeout_ms, &r->hooks, e) : NULL;
    if (r->refresh == NULL || !start_threads(r, e)) {
        release(r);
        return NULL;
    }
    return r;
}

void cadastre_router_free(struct cadastre_router *r)
{
    if (r != NULL) {
        stop_threads(r, true);
        release(r);
    }
}

enum cadastre_status
cadastre_router_ready(struct cadastre_router *r, uint64_t timeout_ms, struct cadastre_error *e)
{
    struct timespec until = cl_deadline(timeout_ms);
    int rc = 0;
    (void)pthread_mutex_lock(&r->lock);
    while (atomic_load(&r->state) == CADASTRE_MISS && rc == 0) {
        rc = pthread_cond_timedwait(&r->changed, &r->lock, &until);
    }
    enum cadastre_status state = (enum cadastre_status)atomic_load(&r->state);
    if (e != NULL) {
        *e = r->failure;
    }
    (void)pthread_mutex_unlock(&r->lock);
    state = state == CADASTRE_MISS ? CADASTRE_TIMEOUT : state;
    if (e != NULL) {
        e->status = state;
    }
    return state;
}

/* --- reading --- */

static uint64_t age_of(struct cadastre_router *r, const struct cl_entry *e, uint64_t now)
{
    uint64_t seen = atomic_load_explicit(&e->seen_ms, memory_order_relaxed);
    uint64_t all = atomic_load_explicit(&r->confirmed_ms, memory_order_relaxed);
    seen = seen > all ? seen : all;
    return now > seen ? now - seen : 0;
}

/* What is common to all reads: the state, then the entry, in a view that the caller leaves when the
 * status is CADASTRE_OK or CADASTRE_STALE. */
static inline enum cadastre_status find(struct cadastre_router *r,
                                        struct slice key,
                                        struct cl_map_view *ret_view,
                                        const struct cl_entry **ret_entry,
                                        uint64_t *ret_age)
{
    uint8_t space[CL_BOUND_MAX];
    int state = atomic_load_explicit(&r->state, memory_order_acquire);
    if (key.len > CADASTRE_KEY_MAX) {
        return CADASTRE_INVALID;
    }
    if (state != CADASTRE_OK) {
        return (enum cadastre_status)state;
    }
    *ret_view = cl_map_enter(&r->map);
    *ret_entry =
        cl_map_find(ret_view->root, cl_codec_routing_key(atomic_load(&r->codec), key, space));
    if (*ret_entry == NULL || cl_entry_is_gap(*ret_entry)) {
        cl_map_leave(*ret_view);
        return CADASTRE_MISS;
    }
    uint64_t max =
        (*ret_entry)->max_age_ms < r->max_age_ms ? (*ret_entry)->max_age_ms : r->max_age_ms;
    *ret_age = age_of(r, *ret_entry, cl_now_ms());
    return *ret_age <= max ? CADASTRE_OK : CADASTRE_STALE;
}

static bool found(enum cadastre_status status)
{
    return status == CADASTRE_OK || status == CADASTRE_STALE;
}

enum cadastre_status cadastre_route(struct cadastre_router *r,
                                    const void *key,
                                    size_t key_len,
                                    struct cadastre_route *ret_route)
{
    struct cl_map_view view;
    const struct cl_entry *e;
    enum cadastre_status status = find(r, slice_of(key, key_len), &view, &e, &ret_route->age_ms);
    if (found(status)) {
        cl_entry_show(e, ret_route);
        cl_map_leave(view);
    }
    return status;
}

enum cadastre_status cadastre_route_replicas(struct cadastre_router *r,
                                             const void *key,
                                             size_t key_len,
                                             struct cadastre_replica *ret_replicas,
                                             size_t max,
                                             size_t *ret_count)
{
    struct cl_map_view view;
    const struct cl_entry *e;
    uint64_t age;
    enum cadastre_status status = find(r, slice_of(key, key_len), &view, &e, &age);
    *ret_count = 0;
    if (found(status)) {
        *ret_count = cl_entry_replicas(e, ret_replicas, max);
        cl_map_leave(view);
    }
    return status;
}

enum cadastre_status cadastre_route_wait(struct cadastre_router *r,
                                         const void *key,
                                         size_t key_len,
                                         uint64_t timeout_ms,
                                         struct cadastre_route *ret_route)
{
    enum cadastre_status status = cadastre_route(r, key, key_len, ret_route);
    if (status != CADASTRE_MISS && status != CADASTRE_STALE) {
        return status;
    }
    const struct cl_doubt doubt = {slice_of(key, key_len), CADASTRE_NONE, 0};
    enum cadastre_status waited = cl_router_join(r, &doubt, timeout_ms);
    status = cadastre_route(r, key, key_len, ret_route);
    return status == CADASTRE_MISS && waited != CADASTRE_OK ? waited : status;
}

enum cadastre_status cadastre_router_stale(struct cadastre_router *r,
                                           const void *key,
                                           size_t key_len,
                                           uint64_t used_epoch,
                                           uint64_t known_epoch,
                                           uint64_t timeout_ms)
{
    struct cadastre_route route;
    const struct cl_doubt doubt = {slice_of(key, key_len), used_epoch, known_epoch};
    enum cadastre_status status = cadastre_route(r, key, key_len, &route);
    if (cl_router_knows_better(r, &doubt)) {
        return CADASTRE_OK; /* somebody else was faster */
    }
    if (!found(status) && status != CADASTRE_MISS) {
        return status;
    }
    return cl_router_join(r, &doubt, timeout_ms);
}

static bool show(struct cadastre_router *r,
                 const struct cl_entry *e,
                 uint64_t now,
                 cadastre_each_fn fn,
                 void *arg)
{
    struct cadastre_route route;
    struct slice low = cl_entry_start(e), high = cl_entry_end(e);
    cl_entry_show(e, &route);
    route.age_ms = age_of(r, e, now);
    return fn(arg, &route, low.data, low.len, e->end_open ? NULL : high.data, high.len);
}

uint64_t cadastre_router_each(struct cadastre_router *r,
                              const void *start,
                              size_t start_len,
                              const void *end,
                              size_t end_len,
                              cadastre_each_fn fn,
                              void *arg)
{
    struct slice from = slice_of(start, start_len), to = slice_of(end, end_len);
    struct cl_map_view v = cl_map_enter(&r->map);
    const struct cl_entry *e = cl_map_find(v.root, from);
    uint64_t count = 0, now = cl_now_ms();
    bool go_on = true;
    e = e != NULL ? e : cl_map_ceiling(v.root, from, false);
    while (go_on && e != NULL && (end == NULL || slice_cmp(cl_entry_start(e), to) < 0)) {
        if (!cl_entry_is_gap(e)) {
            go_on = show(r, e, now, fn, arg);
            count++;
        }
        e = cl_map_ceiling(v.root, cl_entry_start(e), true);
    }
    cl_map_leave(v);
    return count;
}

void cadastre_router_stats(struct cadastre_router *r, struct cadastre_router_stats *ret_stats)
{
    uint64_t confirmed = atomic_load(&r->confirmed_ms), now = clock_boot_ms();
    uint64_t age = confirmed == 0 ? CADASTRE_NONE : now > confirmed ? now - confirmed : 0;
    (void)pthread_mutex_lock(&r->writing);
    uint64_t entries = r->map.count;
    (void)pthread_mutex_unlock(&r->writing);
    *ret_stats = (struct cadastre_router_stats){
        .revision = atomic_load(&r->revision),
        .entries = entries,
        .age_ms = age,
        .maps = atomic_load(&r->maps),
        .deltas = atomic_load(&r->deltas),
        .changes = atomic_load(&r->changes),
        .refreshes = atomic_load(&r->refreshes),
        .refused = atomic_load(&r->refused),
        .failures = cl_fetch_failures(r->follow) + cl_fetch_failures(r->refresh),
    };
}

uint64_t cadastre_hash(const void *bytes, size_t len)
{
    return hash_xxh64(bytes, len);
}
