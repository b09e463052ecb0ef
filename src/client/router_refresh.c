/* SPDX-License-Identifier: Apache-2.0 */
/* Refreshes of single ranges. Whoever has reason to doubt a route joins the flight of its range;
 * one thread collects what waits into a request and is never ahead of its answer, so however many
 * callers complain, the directory gets one request at a time from a router. */
#include "base/clock.h"
#include "base/mem.h"
#include "client/router.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { TARGET_MAX = 256 };

/* --- joining --- */

static uint64_t partition_of(struct cadastre_router *r, struct slice key)
{
    uint8_t space[CL_BOUND_MAX];
    struct slice routing = cl_codec_routing_key(atomic_load(&r->codec), key, space);
    struct cl_map_view v = cl_map_enter(&r->map);
    const struct cl_entry *e = cl_map_find(v.root, routing);
    uint64_t partition = e != NULL && !cl_entry_is_gap(e) ? e->partition : CADASTRE_NONE;
    cl_map_leave(v);
    return partition;
}

static bool is_of(const struct cl_flight *f, struct slice key, uint64_t partition)
{
    return f->used && ((partition != CADASTRE_NONE && f->partition == partition) ||
                       slice_eq(slice_of(f->key, f->key_len), key));
}

/* The range's flight, or a free one. NULL: all are in use. */
static struct cl_flight *
flight_find(struct cadastre_router *r, struct slice key, uint64_t partition)
{
    struct cl_flight *unused = NULL;
    uint64_t now = clock_boot_ms();
    for (unsigned i = 0; i < CL_FLIGHTS_MAX; i++) {
        struct cl_flight *f = &r->flights[i];
        if (is_of(f, key, partition)) {
            return f;
        }
        if (!f->used || (f->state == FLIGHT_DONE && f->waiters == 0 && f->not_before_ms <= now)) {
            unused = f;
        }
    }
    if (unused != NULL) {
        *unused = (struct cl_flight){
            .used = true, .state = FLIGHT_DONE, .partition = partition, .key_len = key.len};
        if (key.len > 0) {
            memcpy(unused->key, key.data, key.len);
        }
    }
    return unused;
}

/* Which round answers what was just learned. */
static uint64_t round_for(struct cl_flight *f, uint64_t known_epoch)
{
    if (f->state == FLIGHT_FLIES && known_epoch <= f->flying_epoch) {
        return f->rounds + 1;
    }
    f->known_epoch = known_epoch > f->known_epoch ? known_epoch : f->known_epoch;
    f->wanted = f->rounds + (f->state == FLIGHT_FLIES ? 2 : 1);
    if (f->state == FLIGHT_DONE) {
        f->state = FLIGHT_WAITS;
    }
    return f->wanted;
}

bool cl_router_knows_better(struct cadastre_router *r, const struct cl_doubt *d)
{
    struct cadastre_route route;
    return d->used_epoch != CADASTRE_NONE &&
           cadastre_route(r, d->key.data, d->key.len, &route) == CADASTRE_OK &&
           route.epoch > d->used_epoch && route.epoch >= d->known_epoch;
}

static enum cadastre_status wait_for(struct cadastre_router *r,
                                     struct cl_flight *f,
                                     uint64_t round,
                                     const struct cl_doubt *doubt,
                                     uint64_t timeout_ms)
{
    struct timespec until = cl_deadline(timeout_ms);
    int rc = 0;
    bool better = false;
    f->waiters++;
    atomic_fetch_add(&r->waiting, 1); /* before it looks: see cl_router_publish() */
    while (f->rounds < round && !r->stopping && rc == 0) {
        better = cl_router_knows_better(r, doubt);
        if (better) {
            break;
        }
        rc = pthread_cond_timedwait(&r->changed, &r->lock, &until);
    }
    atomic_fetch_sub(&r->waiting, 1);
    f->waiters--;
    if (better || f->rounds >= round) {
        return better ? CADASTRE_OK : f->status;
    }
    return r->stopping ? CADASTRE_CLOSED : CADASTRE_TIMEOUT;
}

enum cadastre_status
cl_router_join(struct cadastre_router *r, const struct cl_doubt *doubt, uint64_t timeout_ms)
{
    uint64_t until = clock_boot_ms() + timeout_ms;
    enum cadastre_status status = cadastre_router_ready(r, timeout_ms, NULL);
    if (status != CADASTRE_OK) {
        return status;
    }
    uint64_t partition = partition_of(r, doubt->key), now = clock_boot_ms();
    (void)pthread_mutex_lock(&r->lock);
    struct cl_flight *f = flight_find(r, doubt->key, partition);
    status = CADASTRE_BUSY;
    if (f != NULL) {
        uint64_t round = round_for(f, doubt->known_epoch);
        (void)pthread_cond_broadcast(&r->changed);
        status = wait_for(r, f, round, doubt, until > now ? until - now : 0);
    }
    (void)pthread_mutex_unlock(&r->lock);
    return status;
}

/* --- flying --- */

struct batch {
    struct cl_flight *flights[CL_BATCH_MAX];
    unsigned count;
    uint64_t min_revision, starts;
    bool ahead; /* of what this router has seen: the server may have to be waited for */
};

/* Takes the flights that are due: those first that no server has to be waited for. */
static void batch_collect(struct cadastre_router *r, struct batch *b, uint64_t now, bool ahead)
{
    uint64_t starts = atomic_load(&r->starts); /* first: see load_done() and validate_all() */
    uint64_t revision = atomic_load(&r->revision);
    *b = (struct batch){.min_revision = revision, .starts = starts, .ahead = ahead};
    for (unsigned i = 0; i < CL_FLIGHTS_MAX && b->count < CL_BATCH_MAX; i++) {
        struct cl_flight *f = &r->flights[i];
        if (!f->used || f->state != FLIGHT_WAITS || f->not_before_ms > now ||
            (f->known_epoch > revision) != ahead) {
            continue;
        }
        f->state = FLIGHT_FLIES;
        f->flying_epoch = f->known_epoch;
        b->flights[b->count++] = f;
        if (ahead) {
            b->min_revision = f->known_epoch;
            break; /* alone: what it waits for may never come */
        }
    }
}

/* Until something is due. False: stopping. */
static bool batch_take(struct cadastre_router *r, struct batch *b)
{
    (void)pthread_mutex_lock(&r->lock);
    b->count = 0;
    while (!r->stopping) {
        uint64_t now = clock_boot_ms(), next = now + CL_SULK_MS;
        batch_collect(r, b, now, false);
        if (b->count == 0) {
            batch_collect(r, b, now, true);
        }
        if (b->count > 0) {
            break;
        }
        for (unsigned i = 0; i < CL_FLIGHTS_MAX; i++) {
            const struct cl_flight *f = &r->flights[i];
            if (f->used && f->state == FLIGHT_WAITS && f->not_before_ms < next) {
                next = f->not_before_ms;
            }
        }
        struct timespec until = cl_deadline(next > now ? next - now : 1);
        (void)pthread_cond_timedwait(&r->changed, &r->lock, &until);
    }
    bool go_on = !r->stopping;
    (void)pthread_mutex_unlock(&r->lock);
    return go_on;
}

/* {"keys":[…]} for those that can be written; the others are marked. */
static char *batch_body(struct cadastre_router *r, struct batch *b, bool *written)
{
    json_t *keys = json_array(), *body = json_object();
    for (unsigned i = 0; i < b->count; i++) {
        const struct cl_flight *f = b->flights[i];
        json_t *key = cl_codec_write_key(atomic_load(&r->codec), slice_of(f->key, f->key_len));
        written[i] = key != NULL && json_array_append_new(keys, key) == 0;
    }
    (void)json_object_set_new(body, "keys", keys);
    char *text = json_dumps(body, JSON_COMPACT);
    json_decref(body);
    return text;
}

/* CADASTRE_MISS: following began anew meanwhile, so the answer may be of before what it skipped. */
static enum cadastre_status
batch_apply(struct cadastre_router *r, const struct batch *b, const struct cl_answer *a)
{
    json_t *body = cl_json_parse(slice_of(a->body.data, a->body.len));
    json_t *routes = json_object_get(body, "routes");
    enum cadastre_status status = json_is_array(routes) ? CADASTRE_OK : CADASTRE_INVALID;
    struct cl_applied applied = {0};
    (void)pthread_mutex_lock(&r->writing);
    if (status == CADASTRE_OK && atomic_load(&r->starts) != b->starts) {
        status = CADASTRE_MISS;
    }
    if (status == CADASTRE_OK) {
        uint64_t stale = a->staleness_ms < a->sent_ms ? a->staleness_ms : a->sent_ms;
        cl_router_offer(r, routes, a->sent_ms - stale, NULL, &applied);
        cl_router_publish(r);
    }
    (void)pthread_mutex_unlock(&r->writing);
    json_decref(body);
    return applied.broken > 0 ? CADASTRE_INVALID : status;
}

static enum cadastre_status batch_send(struct cadastre_router *r, struct batch *b, bool *written)
{
    char target[TARGET_MAX], *body = batch_body(r, b, written);
    struct cadastre_error e = {0};
    struct cl_answer a;
    uint64_t limit = b->ahead ? 2 * CL_BEHIND_MS : r->timeout_ms;
    (void)snprintf(target, sizeof target,
                   "/v1/keyspaces/%s/routes?min_revision=%" PRIu64
                   "&timeout_ms=%d&max_staleness_ms=%d",
                   r->keyspace, b->min_revision, CL_BEHIND_MS, CL_MAX_AGE_MS / CL_AGE_PARTS);
    struct cl_request rq = {
        .method = "POST", .target = target, .body = body, .deadline_ms = clock_boot_ms() + limit};
    enum cadastre_status status = cl_fetch_send(r->refresh, &rq, &a, &e);
    atomic_fetch_add_explicit(&r->refreshes, 1, memory_order_relaxed);
    if (status == CADASTRE_OK) {
        status = batch_apply(r, b, &a);
    } else {
        cl_router_failed(r, &e);
        status = status == CADASTRE_TIMEOUT ? CADASTRE_UNAVAILABLE : status;
    }
    cl_answer_close(&a);
    mem_free(body);
    return status;
}

static void batch_done(struct cadastre_router *r,
                       struct batch *b,
                       const bool *written,
                       enum cadastre_status status)
{
    uint64_t now = clock_boot_ms();
    (void)pthread_mutex_lock(&r->lock);
    for (unsigned i = 0; i < b->count; i++) {
        struct cl_flight *f = b->flights[i];
        f->not_before_ms = now + CL_COOL_MS + cl_random_below(CL_COOL_MS / 2);
        if (status == CADASTRE_MISS && written[i]) {
            f->state = FLIGHT_WAITS;
            continue;
        }
        f->rounds++;
        f->status = written[i] ? status : CADASTRE_INVALID;
        f->state = f->wanted > f->rounds ? FLIGHT_WAITS : FLIGHT_DONE;
        if (f->state == FLIGHT_DONE) {
            f->known_epoch = 0;
        }
    }
    (void)pthread_cond_broadcast(&r->changed);
    (void)pthread_mutex_unlock(&r->lock);
}

void *cl_router_refresh(void *router)
{
    struct cadastre_router *r = router;
    struct batch b;
    while (batch_take(r, &b)) {
        bool written[CL_BATCH_MAX] = {false};
        batch_done(r, &b, written, batch_send(r, &b, written));
    }
    return NULL;
}
