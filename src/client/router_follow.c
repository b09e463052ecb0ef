/* SPDX-License-Identifier: Apache-2.0 */
/* The thread that keeps the map up to date: a long poll for changes after another. Each answer also
 * confirms the map, because the server says how long ago it heard from a leader. An error is never
 * taken for news: the last good map stays, and ages. */
#include "base/clock.h"
#include "client/router.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { TARGET_MAX = 320 };

static uint64_t wait_ms(const struct cadastre_router *r)
{
    uint64_t age = r->max_age_ms < CL_MAX_AGE_MS ? r->max_age_ms : CL_MAX_AGE_MS;
    uint64_t wait = age / CL_AGE_PARTS;
    return wait < CL_WAIT_MIN_MS ? CL_WAIT_MIN_MS : wait < CL_WAIT_MAX_MS ? wait : CL_WAIT_MAX_MS;
}

/* Whether the keyspace is another one than before, or whole ranges of revisions were skipped. */
static bool begins_anew(const json_t *change)
{
    const char *kind = json_string_value(json_object_get(change, "kind"));
    return kind == NULL || strcmp(kind, "create") == 0 || strcmp(kind, "delete") == 0 ||
           strcmp(kind, "restore") == 0;
}

/* Applies an answer as one batch. False: the map has to be fetched again. */
static bool apply(struct cadastre_router *r, const struct cl_answer *a, size_t *ret_count)
{
    json_t *body = cl_json_parse(slice_of(a->body.data, a->body.len));
    json_t *changes = json_object_get(body, "changes");
    struct cl_applied applied = {0};
    uint64_t revision = 0;
    bool ok = json_is_array(changes) && cl_json_u64(body, "revision", &revision) &&
              revision >= atomic_load(&r->revision);
    *ret_count = json_array_size(changes);
    atomic_fetch_add_explicit(&r->changes, *ret_count, memory_order_relaxed);
    atomic_fetch_add_explicit(&r->deltas, *ret_count > 0, memory_order_relaxed);
    (void)pthread_mutex_lock(&r->writing);
    for (size_t i = 0; ok && i < *ret_count; i++) {
        const json_t *change = json_array_get(changes, i);
        ok = !begins_anew(change);
        if (ok) {
            cl_router_offer(r, json_object_get(change, "routes"), 0,
                            r->lazy ? cl_router_wants : NULL, &applied);
        }
    }
    ok = ok && applied.broken == 0;
    cl_router_publish(r); /* without changes too: frees what is left of the batch before */
    if (ok) {
        atomic_store(&r->revision, revision);
        if (*ret_count < CL_CHANGES_MAX && a->body.len < CL_CUT_BYTES) {
            cl_router_confirm(r, a); /* else there may be more */
        }
    }
    (void)pthread_mutex_unlock(&r->writing);
    json_decref(body);
    return ok;
}

/* After an answer: a server that answers at once, again and again, must not be asked as often. */
static void pace(struct cadastre_router *r, const struct cl_answer *a, size_t count)
{
    uint64_t took = clock_boot_ms() - a->sent_ms, least = wait_ms(r) / 2;
    if (count == 0 && took < least) {
        cl_fetch_pause(r->follow, least - took);
    } else if (count > 0 && count < CL_CHANGES_MAX && took < CL_GAP_MS) {
        cl_fetch_pause(r->follow, CL_GAP_MS - took);
    }
}

/* One long poll. */
static enum cadastre_status poll(struct cadastre_router *r, struct cadastre_error *e)
{
    char target[TARGET_MAX];
    struct cl_answer a;
    uint64_t since = atomic_load(&r->revision), wait = wait_ms(r);
    size_t count = 0;
    (void)snprintf(target, sizeof target,
                   "/v1/keyspaces/%s/changes?since=%" PRIu64 "&min_revision=%" PRIu64
                   "&wait_ms=%" PRIu64 "&limit=%d&timeout_ms=%d&max_staleness_ms=%" PRIu64,
                   r->keyspace, since, since, wait, CL_CHANGES_MAX, CL_BEHIND_MS, 2 * wait);
    struct cl_request rq = {.method = "GET",
                            .target = target,
                            .try_ms = wait + r->timeout_ms,
                            .deadline_ms = clock_boot_ms() + wait + 2 * r->timeout_ms};
    enum cadastre_status status = cl_fetch_send(r->follow, &rq, &a, e);
    if (status == CADASTRE_OK && !apply(r, &a, &count)) {
        status = cl_error(e, CADASTRE_MISS, "", "%s: the map has to be fetched again", a.server);
    } else if (status == CADASTRE_OK) {
        pace(r, &a, count);
    }
    cl_answer_close(&a);
    return status;
}

static bool is_code(const struct cadastre_error *e, const char *code)
{
    return strcmp(e->code, code) == 0;
}

/* A quorum says that there is no such keyspace. */
static void keyspace_gone(struct cadastre_router *r)
{
    cl_router_set_state(r, CADASTRE_NOT_FOUND);
    (void)pthread_mutex_lock(&r->writing);
    cl_map_load(&r->map, NULL, 0);
    cl_router_publish(r);
    (void)pthread_mutex_unlock(&r->writing);
}

/* What a failure means. True: following must begin anew. */
static bool failed(struct cadastre_router *r,
                   bool synced,
                   enum cadastre_status status,
                   struct cadastre_error *e)
{
    bool fresh = atomic_load(&r->state) == CADASTRE_MISS;
    cl_router_failed(r, e);
    if (status == CADASTRE_MISS) {
        return true; /* at once: nothing failed */
    }
    if (status == CADASTRE_REFUSED && is_code(e, "compacted")) {
        cl_event(&r->hooks, "router.reset", "%s: %s", r->keyspace, e->detail);
        return true;
    }
    if (status == CADASTRE_TIMEOUT || status == CADASTRE_CLOSED) {
        return false;
    }
    if (synced && status == CADASTRE_NOT_FOUND) {
        return true; /* beginning anew makes sure */
    }
    if (status == CADASTRE_NOT_FOUND && is_code(e, "keyspace_not_found")) {
        keyspace_gone(r);
    } else if ((fresh && status == CADASTRE_DENIED) || status == CADASTRE_UNSUPPORTED) {
        cl_router_set_state(r, status);
    }
    cl_fetch_pause(r->follow, CL_SULK_MS + cl_random_below(CL_SULK_MS));
    return status == CADASTRE_NOT_FOUND || status == CADASTRE_INVALID;
}

void *cl_router_follow(void *router)
{
    struct cadastre_router *r = router;
    enum cadastre_status status = CADASTRE_OK;
    bool synced = false;
    while (status != CADASTRE_CLOSED) {
        struct cadastre_error e = {0};
        bool anew = !synced;
        status = synced ? poll(r, &e) : cl_router_sync(r, &e);
        if (status == CADASTRE_OK && anew) {
            synced = true;
            cl_router_set_state(r, CADASTRE_OK);
        } else if (status != CADASTRE_OK && failed(r, !anew, status, &e)) {
            synced = false;
        }
    }
    return NULL;
}
