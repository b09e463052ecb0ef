/* SPDX-License-Identifier: Apache-2.0 */
/* What answers do to a router's map. */
#include "base/mem.h"
#include "client/router.h"

#include <string.h>

void cl_router_set_state(struct cadastre_router *r, enum cadastre_status state)
{
    (void)pthread_mutex_lock(&r->lock);
    if (atomic_load(&r->state) != (int)state) {
        atomic_store_explicit(&r->state, state, memory_order_release);
        cl_event(&r->hooks, "router.state", "%s: %s", r->keyspace, cadastre_status_name(state));
    }
    (void)pthread_cond_broadcast(&r->changed);
    (void)pthread_mutex_unlock(&r->lock);
}

void cl_router_failed(struct cadastre_router *r, const struct cadastre_error *e)
{
    (void)pthread_mutex_lock(&r->lock);
    r->failure = *e;
    (void)pthread_mutex_unlock(&r->lock);
}

/* All of the map was right when the answer was given: at the earliest when it was asked for. */
void cl_router_confirm(struct cadastre_router *r, const struct cl_answer *a)
{
    uint64_t right = a->sent_ms > a->staleness_ms ? a->sent_ms - a->staleness_ms : 0;
    if (right > atomic_load_explicit(&r->confirmed_ms, memory_order_relaxed)) {
        atomic_store_explicit(&r->confirmed_ms, right, memory_order_relaxed);
    }
}

void cl_router_offer(struct cadastre_router *r,
                     const json_t *routes,
                     uint64_t seen_ms,
                     bool (*wanted)(struct cadastre_router *r, const struct cl_entry *e),
                     struct cl_applied *applied)
{
    for (size_t i = 0; i < json_array_size(routes); i++) {
        struct cl_entry *e = cl_decode_route(atomic_load(&r->codec), json_array_get(routes, i));
        if (e == NULL) {
            applied->broken++;
            continue;
        }
        atomic_store_explicit(&e->seen_ms, seen_ms, memory_order_relaxed);
        if (wanted != NULL && !wanted(r, e)) {
            mem_free(e);
            continue;
        }
        enum cl_offer offer = cl_map_offer(&r->map, e);
        applied->taken += offer == CL_TAKEN;
        applied->older += offer == CL_OLDER;
    }
    atomic_fetch_add_explicit(&r->refused, applied->older, memory_order_relaxed);
}

static bool asked_for(struct cadastre_router *r, const struct cl_entry *e)
{
    bool asked = false;
    (void)pthread_mutex_lock(&r->lock);
    for (unsigned i = 0; i < CL_FLIGHTS_MAX && !asked; i++) {
        const struct cl_flight *f = &r->flights[i];
        if (f->used && f->state != FLIGHT_DONE) {
            uint8_t space[CL_BOUND_MAX];
            struct slice key =
                cl_codec_routing_key(atomic_load(&r->codec), slice_of(f->key, f->key_len), space);
            asked = slice_cmp(cl_entry_start(e), key) <= 0 && cl_entry_reaches(e, key);
        }
    }
    (void)pthread_mutex_unlock(&r->lock);
    return asked;
}

/* A route that is being fetched counts: the answer may be of before this change. */
bool cl_router_wants(struct cadastre_router *r, const struct cl_entry *e)
{
    const struct cl_entry *o = cl_map_find(r->map.next, cl_entry_start(e));
    if (o == NULL) {
        o = cl_map_ceiling(r->map.next, cl_entry_start(e), false);
    }
    return (o != NULL && cl_entry_reaches(e, cl_entry_start(o))) || asked_for(r, e);
}

/* Out goes what comes after what went out last: no better than by chance, and costs nothing. */
static void evict(struct cadastre_router *r)
{
    while (r->lazy && r->map.count > r->entries_max) {
        const struct cl_entry *e =
            cl_map_ceiling(r->map.next, slice_of(r->evict_at, r->evict_at_len), true);
        if (e == NULL) {
            e = cl_map_ceiling(r->map.next, slice_of(NULL, 0), false);
        }
        struct slice start = cl_entry_start(e);
        r->evict_at_len = start.len;
        if (start.len > 0) {
            memcpy(r->evict_at, start.data, start.len);
        }
        cl_map_remove(&r->map, slice_of(r->evict_at, r->evict_at_len));
    }
}

void cl_router_publish(struct cadastre_router *r)
{
    evict(r);
    cl_map_publish(&r->map);
    if (atomic_load(&r->waiting) > 0) { /* who doubts a route may see a newer one now */
        (void)pthread_mutex_lock(&r->lock);
        (void)pthread_cond_broadcast(&r->changed);
        (void)pthread_mutex_unlock(&r->lock);
    }
}
