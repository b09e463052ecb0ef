/* SPDX-License-Identifier: Apache-2.0 */
/* Getting hold of the present state when changes alone do not lead there: at the start, and after
 * `410 compacted`. The last good map stays in use until the new one is whole. */
#include "base/clock.h"
#include "base/lines.h"
#include "base/mem.h"
#include "client/router.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TARGET_MAX = 256, LOAD_FIRST = 1024 };

/* --- the keyspace: how keys become routing keys --- */

static bool codec_same(const struct cl_codec *a, const struct cl_codec *b)
{
    return a->hash == b->hash && a->hex == b->hex && a->has_fields == b->has_fields &&
           a->delimiter == b->delimiter && a->fields == b->fields;
}

/* Another codec makes all that is cached meaningless. */
static void take_codec(struct cadastre_router *r, const struct cl_codec *codec)
{
    struct cl_codec *present = atomic_load(&r->codec);
    if (present != NULL && codec_same(present, codec)) {
        return;
    }
    struct cl_codec *next = mem_dup(codec, sizeof *codec);
    next->before = present;
    if (present != NULL) {
        cl_router_set_state(r, CADASTRE_MISS);
        cl_map_load(&r->map, NULL, 0);
        cl_map_publish(&r->map);
    }
    atomic_store(&r->codec, next);
}

static enum cadastre_status fetch_keyspace(struct cadastre_router *r,
                                           bool linearizable,
                                           uint64_t *ret_revision,
                                           struct cadastre_error *e)
{
    char target[TARGET_MAX];
    struct cl_answer a;
    struct cl_codec codec;
    (void)snprintf(target, sizeof target, "/v1/keyspaces/%s?min_revision=%" PRIu64 "%s",
                   r->keyspace, atomic_load(&r->revision),
                   linearizable ? "&consistency=linearizable" : "");
    struct cl_request rq = {
        .method = "GET", .target = target, .deadline_ms = clock_boot_ms() + 2 * r->timeout_ms};
    enum cadastre_status status = cl_fetch_send(r->follow, &rq, &a, e);
    if (status == CADASTRE_OK) {
        json_t *body = cl_json_parse(slice_of(a.body.data, a.body.len));
        status = cl_codec_read(body, &codec);
        json_decref(body);
        if (status == CADASTRE_OK) {
            *ret_revision = a.revision;
            (void)pthread_mutex_lock(&r->writing);
            take_codec(r, &codec);
            (void)pthread_mutex_unlock(&r->writing);
        } else {
            (void)cl_error(e, status, "", "%s: the keyspace's scheme is not known here", a.server);
        }
    }
    cl_answer_close(&a);
    return status;
}

/* --- the whole map --- */

struct load {
    struct cadastre_router *router;
    struct lines lines;
    struct cl_entry **entries; /* owns */
    size_t count, cap;
};

static void load_forget(struct load *l)
{
    for (size_t i = 0; i < l->count; i++) {
        mem_free(l->entries[i]);
    }
    l->count = 0;
}

static void load_restart(void *arg)
{
    struct load *l = arg;
    load_forget(l);
    lines_close(&l->lines);
    lines_init(&l->lines);
}

static bool load_line(void *arg, struct slice line)
{
    struct load *l = arg;
    if (line.len == 0) {
        return true;
    }
    json_t *route = cl_json_parse(line);
    struct cl_entry *e = cl_decode_route(atomic_load(&l->router->codec), route);
    json_decref(route);
    if (e == NULL) {
        return false;
    }
    atomic_init(&e->seen_ms, 0);
    if (l->count > 0) {
        const struct cl_entry *last = l->entries[l->count - 1];
        if (last->end_open || slice_cmp(cl_entry_end(last), cl_entry_start(e)) > 0) {
            mem_free(e);
            return false;
        }
    }
    if (l->count == l->cap) {
        l->cap = l->cap > 0 ? 2 * l->cap : LOAD_FIRST;
        l->entries = mem_realloc(l->entries, l->cap * sizeof(struct cl_entry *));
    }
    l->entries[l->count++] = e;
    return true;
}

static bool load_bytes(void *arg, struct slice bytes)
{
    struct load *l = arg;
    return lines_feed(&l->lines, bytes, load_line, l);
}

/* Entries that are newer than the fetched map: refreshes were faster. */
static size_t keep_newer(struct cadastre_router *r, uint64_t revision, struct cl_entry ***ret_kept)
{
    struct cl_entry **kept = NULL;
    size_t count = 0;
    const struct cl_entry *e = cl_map_ceiling(r->map.next, slice_of(NULL, 0), false);
    for (; e != NULL; e = cl_map_ceiling(r->map.next, cl_entry_start(e), true)) {
        if (e->mod_revision > revision) {
            kept = mem_realloc(kept, (count + 1) * sizeof(struct cl_entry *));
            kept[count++] = cl_entry_copy(e);
        }
    }
    *ret_kept = kept;
    return count;
}

static void load_done(struct load *l, const struct cl_answer *a)
{
    struct cadastre_router *r = l->router;
    struct cl_entry **kept;
    (void)pthread_mutex_lock(&r->writing);
    size_t n = keep_newer(r, a->revision, &kept);
    cl_map_load(&r->map, l->entries, l->count);
    l->count = 0; /* they are the map's */
    for (size_t i = 0; i < n; i++) {
        (void)cl_map_offer(&r->map, kept[i]);
    }
    mem_free(kept);
    cl_router_publish(r);
    atomic_store(&r->revision, a->revision);
    atomic_fetch_add(&r->starts, 1);
    cl_router_confirm(r, a);
    (void)pthread_mutex_unlock(&r->writing);
    atomic_fetch_add_explicit(&r->maps, 1, memory_order_relaxed);
}

static enum cadastre_status fetch_map(struct cadastre_router *r, struct cadastre_error *e)
{
    char target[TARGET_MAX];
    struct cl_answer a;
    struct load l = {.router = r};
    lines_init(&l.lines);
    (void)snprintf(target, sizeof target, "/v1/keyspaces/%s/map?min_revision=%" PRIu64, r->keyspace,
                   atomic_load(&r->revision));
    struct cl_request rq = {.method = "GET",
                            .target = target,
                            .accept = "application/x-ndjson",
                            .deadline_ms = clock_boot_ms() + 2 * r->timeout_ms,
                            .sink = load_bytes,
                            .restart = load_restart,
                            .sink_arg = &l};
    enum cadastre_status status = cl_fetch_send(r->follow, &rq, &a, e);
    if (status == CADASTRE_OK && (l.lines.partial.len > 0 || a.revision == 0)) {
        status = cl_error(e, CADASTRE_INVALID, "", "%s: the map is cut off", a.server);
    }
    if (status == CADASTRE_OK) {
        load_done(&l, &a);
    }
    load_forget(&l);
    mem_free(l.entries);
    lines_close(&l.lines);
    cl_answer_close(&a);
    return status;
}

/* --- lazy: are the cached routes still good? --- */

struct held {
    uint64_t partition, epoch, mod_revision;
    size_t start_len;
    uint8_t *start; /* owns */
};

static int held_order(const void *a, const void *b)
{
    uint64_t x = ((const struct held *)a)->partition, y = ((const struct held *)b)->partition;
    return (x > y) - (x < y);
}

/* All that is cached, by partition. */
static struct held *held_all(struct cadastre_router *r, size_t *ret_count)
{
    size_t n = 0;
    (void)pthread_mutex_lock(&r->writing);
    struct held *held = mem_zalloc((r->map.count + 1) * sizeof *held);
    const struct cl_entry *e = cl_map_ceiling(r->map.next, slice_of(NULL, 0), false);
    for (; e != NULL; e = cl_map_ceiling(r->map.next, cl_entry_start(e), true)) {
        if (cl_entry_is_gap(e)) {
            continue;
        }
        held[n++] = (struct held){.partition = e->partition,
                                  .epoch = e->epoch,
                                  .mod_revision = e->mod_revision,
                                  .start_len = e->start_len,
                                  .start = mem_dup(e->bytes, e->start_len)};
    }
    (void)pthread_mutex_unlock(&r->writing);
    qsort(held, n, sizeof *held, held_order);
    *ret_count = n;
    return held;
}

static char *validate_body(const struct held *held, size_t n)
{
    json_t *routes = json_array(), *body = json_object();
    for (size_t i = 0; i < n; i++) {
        json_t *route = json_object();
        (void)json_object_set_new(route, "partition", json_integer((json_int_t)held[i].partition));
        (void)json_object_set_new(route, "epoch", json_integer((json_int_t)held[i].epoch));
        (void)json_object_set_new(route, "mod_revision",
                                  json_integer((json_int_t)held[i].mod_revision));
        (void)json_array_append_new(routes, route);
    }
    (void)json_object_set_new(body, "routes", routes);
    char *text = json_dumps(body, JSON_COMPACT);
    json_decref(body);
    return text;
}

/* Takes out what is not good any more, unless it was replaced meanwhile, and puts in what is. */
static void take_stale(struct cadastre_router *r,
                       const struct held *held,
                       size_t n,
                       const json_t *stale,
                       uint64_t seen_ms)
{
    struct cl_applied applied = {0};
    for (size_t i = 0; i < json_array_size(stale); i++) {
        const json_t *item = json_array_get(stale, i);
        struct held want = {0};
        if (!cl_json_u64(item, "partition", &want.partition)) {
            continue;
        }
        const struct held *h = bsearch(&want, held, n, sizeof *held, held_order);
        struct slice start = h != NULL ? slice_of(h->start, h->start_len) : slice_of(NULL, 0);
        const struct cl_entry *e = h != NULL ? cl_map_find(r->map.next, start) : NULL;
        if (e != NULL && e->partition == h->partition && e->mod_revision == h->mod_revision) {
            cl_map_remove(&r->map, start);
        }
        cl_router_offer(r, json_object_get(item, "routes"), seen_ms, NULL, &applied);
    }
}

static enum cadastre_status validate_batch(struct cadastre_router *r,
                                           const struct held *held,
                                           size_t n,
                                           uint64_t min_revision,
                                           struct cl_answer *ret_answer,
                                           struct cadastre_error *e)
{
    char target[TARGET_MAX], *body = validate_body(held, n);
    (void)snprintf(target, sizeof target, "/v1/keyspaces/%s/validate?min_revision=%" PRIu64,
                   r->keyspace, min_revision);
    struct cl_request rq = {.method = "POST",
                            .target = target,
                            .body = body,
                            .deadline_ms = clock_boot_ms() + 2 * r->timeout_ms};
    enum cadastre_status status = cl_fetch_send(r->follow, &rq, ret_answer, e);
    if (status == CADASTRE_OK) {
        json_t *answer = cl_json_parse(slice_of(ret_answer->body.data, ret_answer->body.len));
        (void)pthread_mutex_lock(&r->writing);
        take_stale(r, held, n, json_object_get(answer, "stale"), ret_answer->sent_ms);
        cl_router_publish(r);
        (void)pthread_mutex_unlock(&r->writing);
        json_decref(answer);
    }
    mem_free(body);
    return status;
}

/* Changes are followed from the keyspace's answer on, which no batch is behind. */
static enum cadastre_status
validate_all(struct cadastre_router *r, uint64_t revision, struct cadastre_error *e)
{
    size_t count;
    struct held *held = held_all(r, &count);
    enum cadastre_status status = CADASTRE_OK;
    for (size_t at = 0; at < count && status == CADASTRE_OK; at += CL_VALIDATE_MAX) {
        struct cl_answer a;
        size_t n = count - at < CL_VALIDATE_MAX ? count - at : CL_VALIDATE_MAX;
        status = validate_batch(r, held + at, n, revision, &a, e);
        cl_answer_close(&a);
    }
    if (status == CADASTRE_OK) {
        (void)pthread_mutex_lock(&r->writing);
        atomic_store(&r->revision, revision);
        atomic_fetch_add(&r->starts, 1);
        (void)pthread_mutex_unlock(&r->writing);
    }
    for (size_t i = 0; i < count; i++) {
        mem_free(held[i].start);
    }
    mem_free(held);
    return status;
}

enum cadastre_status cl_router_sync(struct cadastre_router *r, struct cadastre_error *e)
{
    uint64_t revision = 0;
    enum cadastre_status status = fetch_keyspace(r, false, &revision, e);
    if (status == CADASTRE_NOT_FOUND) {
        status = fetch_keyspace(r, true, &revision, e);
    }
    if (status == CADASTRE_OK) {
        status = r->lazy ? validate_all(r, revision, e) : fetch_map(r, e);
    }
    return status;
}
