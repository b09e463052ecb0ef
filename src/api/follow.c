/* SPDX-License-Identifier: Apache-2.0 */
#include "api/follow.h"

#include "api/route_json.h"
#include "base/mem.h"
#include "base/parse.h"

#include <inttypes.h>
#include <string.h>

/* --- which part --- */

static void set_part(struct follow *f, struct slice start, struct slice end, bool end_open)
{
    struct bounds *part = f->part = mem_zalloc(sizeof *part);
    part->start_len = start.len;
    if (start.len > 0) {
        memcpy(part->start, start.data, start.len);
    }
    part->end_open = end_open;
    part->end_len = end_open ? 0 : end.len;
    if (part->end_len > 0) {
        memcpy(part->end, end.data, end.len);
    }
}

void follow_copy(const struct follow *f, struct follow *ret_copy)
{
    *ret_copy = *f;
    ret_copy->keyspace = dir_ref(f->keyspace);
    ret_copy->part = f->part != NULL ? mem_dup(f->part, sizeof *f->part) : NULL;
    ret_copy->watcher = NULL;
}

/* A partition is followed as its range, so that its successors are seen. */
static bool part_of_partition(struct exchange *x, const struct dir_view *v, struct follow *f)
{
    const struct dir_tombstone *t = NULL;
    const struct dir_partition *p;
    uint64_t id = 0;
    if (exchange_param(x, "start") != NULL || exchange_param(x, "end") != NULL) {
        reply_problem(x, ERR_INVALID_REQUEST, "give partition, or start and end, not both");
        return false;
    }
    if (!param_u64(x, "partition", 0, PARSE_INT_MAX, &id)) {
        return false;
    }
    p = view_partition(v, f->keyspace, id, &t);
    if (p != NULL) {
        set_part(f, dir_partition_start(p), dir_partition_end(p), p->end_open);
    } else if (t != NULL) {
        set_part(f, dir_tombstone_start(t), dir_tombstone_end(t), t->end_open);
    } else {
        reply_no_partition(x, v, NULL);
        return false;
    }
    return true;
}

bool follow_open(struct exchange *x, const struct dir_view *v, struct follow *f)
{
    const struct dir_keyspace *ks = read_keyspace(x, v);
    union {
        const struct dir_keyspace *in;
        struct dir_keyspace *out;
    } share = {ks};
    bool ok = true;
    memset(f, 0, sizeof *f);
    f->generation = v->generation;
    if (ks == NULL || !param_u64(x, "generation", 0, PARSE_INT_MAX, &f->generation)) {
        return false;
    }
    f->api = exchange_api(x);
    f->keyspace = dir_ref(share.out);
    if (exchange_param(x, "partition") != NULL) {
        ok = part_of_partition(x, v, f);
    } else if (exchange_param(x, "start") != NULL || exchange_param(x, "end") != NULL) {
        f->part = mem_zalloc(sizeof *f->part);
        ok = param_bounds(x, ks, f->part);
    }
    if (!ok) {
        follow_close(f);
    }
    return ok;
}

bool follow_covers(const struct follow *f, struct slice start, struct slice end, bool end_open)
{
    const struct bounds *part = f->part;
    if (part == NULL) {
        return true;
    }
    return (part->end_open || slice_cmp(start, slice_of(part->end, part->end_len)) < 0) &&
           (end_open || slice_cmp(slice_of(part->start, part->start_len), end) < 0);
}

bool follow_wants(const struct follow *f, const struct dir_change *c)
{
    return follow_covers(f, c->start, c->end, c->end.data == NULL);
}

/* --- writing a change --- */

struct encoded {
    size_t len;
    uint8_t json[];
};

static void put_removed(struct buf *b, const uint64_t *removed, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        buf_printf(b, i > 0 ? ",%" PRIu64 : "%" PRIu64, removed[i]);
    }
}

static struct encoded *encode(const struct dir_change *c)
{
    struct buf b;
    struct encoded *made;
    buf_init(&b, API_RESPONSE_MAX);
    buf_printf(&b, "{\"revision\":%" PRIu64 ",\"kind\":\"%s\",\"removed\":[", c->revision,
               dir_change_name(c->kind));
    put_removed(&b, c->removed, c->removed_count);
    buf_put_str(&b, "],\"routes\":[");
    for (uint32_t i = 0; i < c->route_count; i++) {
        struct route_image image;
        if (i > 0) {
            buf_put_u8(&b, ',');
        }
        route_of_result(&image, &c->routes[i]);
        route_put(&b, &image);
    }
    buf_put_str(&b, "]}");
    made = mem_alloc(sizeof *made + b.len);
    made->len = b.len;
    memcpy(made->json, b.data, b.len);
    buf_close(&b);
    return made;
}

struct slice change_json(struct dir_change *c)
{
    struct encoded *there = atomic_load(&c->encoded);
    if (there == NULL) {
        struct encoded *made = encode(c);
        void *expected = NULL;
        if (atomic_compare_exchange_strong(&c->encoded, &expected, made)) {
            c->encoded_free = mem_free;
            there = made;
        } else {
            mem_free(made);
            there = expected;
        }
    }
    return slice_of(there->json, there->len);
}

void change_put(struct buf *out, bool sse, bool first, dir_rev revision, struct slice json)
{
    if (sse) {
        buf_put_str(out, "id: ");
        buf_put_u64_dec(out, revision);
        buf_put_str(out, "\nevent: change\ndata: ");
        buf_put(out, json.data, json.len);
        buf_put_str(out, "\n\n");
    } else {
        if (!first) {
            buf_put_u8(out, ',');
        }
        buf_put(out, json.data, json.len);
    }
}

/* --- changes older than the ring --- */

/* The events of one revision, until the next one begins. */
struct group {
    struct catch_up *catch_up;
    const struct dir_view *view; /* pinned */
    struct buf *out;
    struct buf removed, routes;
    dir_rev revision; /* 0: none yet */
    enum dir_change_kind kind;
    bool wanted;
};

static void flush(struct group *g)
{
    struct catch_up *c = g->catch_up;
    struct buf json;
    if (g->revision == 0) {
        return;
    }
    if (g->wanted) {
        buf_init(&json, API_RESPONSE_MAX);
        buf_printf(&json, "{\"revision\":%" PRIu64 ",\"kind\":\"%s\",\"removed\":[", g->revision,
                   dir_change_name(g->kind));
        buf_put(&json, g->removed.data, g->removed.len);
        buf_put_str(&json, "],\"routes\":[");
        buf_put(&json, g->routes.data, g->routes.len);
        buf_put_str(&json, "]}");
        change_put(g->out, c->sse, c->count == 0, g->revision, slice_of(json.data, json.len));
        buf_close(&json);
        c->count++;
    }
    c->last = g->revision;
    buf_reset(&g->removed);
    buf_reset(&g->routes);
    g->revision = 0;
    g->wanted = false;
}

static bool on_event(void *arg, const struct store_event *ev)
{
    struct group *g = arg;
    struct catch_up *c = g->catch_up;
    const struct store_version *version = &ev->version;
    if (ev->revision != g->revision) {
        flush(g);
        if (c->count >= c->limit || g->out->len >= c->bytes_max) {
            c->cut = true;
            return false;
        }
        g->revision = ev->revision;
        g->kind = ev->kind;
    }
    g->wanted =
        g->wanted || follow_covers(c->follow, version->start, version->end, version->end_open);
    if (ev->removed) {
        buf_printf(&g->removed, g->removed.len > 0 ? ",%" PRIu64 : "%" PRIu64, version->partition);
    } else {
        struct route_image image;
        if (g->routes.len > 0) {
            buf_put_u8(&g->routes, ',');
        }
        route_of_version(&image, g->view, c->follow->keyspace, version);
        route_put(&g->routes, &image);
    }
    return true;
}

enum err_code catch_up_read(struct catch_up *c, struct buf *out, struct err *e)
{
    const struct follow *f = c->follow;
    struct store *store = control_store(f->api->control);
    struct group g = {.catch_up = c, .out = out};
    enum err_code code;
    c->last = f->since;
    code = store_await(store, c->upto, API_TIMEOUT_DEFAULT_MS, e);
    if (code != ERR_OK) {
        return code;
    }
    buf_init(&g.removed, API_RESPONSE_MAX);
    buf_init(&g.routes, API_RESPONSE_MAX);
    g.view = view_pin(control_published(f->api->control));
    code = store_events(store, f->keyspace->id, f->since, c->upto, on_event, &g, e);
    if (code == ERR_OK && !c->cut) {
        flush(&g);
        c->last = c->upto;
    }
    view_unpin(g.view);
    /* What was compacted while this ran may have been missed. */
    g.view = view_pin(control_published(f->api->control));
    if (code == ERR_OK && g.view->compacted > f->since) {
        code = err_set(e, ERR_COMPACTED, "changes since %" PRIu64 " are no longer kept", f->since);
    }
    view_unpin(g.view);
    buf_close(&g.removed);
    buf_close(&g.routes);
    return code;
}
