/* SPDX-License-Identifier: Apache-2.0 */
/* Routes: of one key, of many, of a range; and whether routes that a client holds are still good.
 */
#include "api/endpoints.h"

#include "api/route_json.h"
#include "api/scan.h"
#include "base/parse.h"
#include "directory/codec.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* --- one --- */

static void get_route(struct exchange *x, const struct dir_view *v)
{
    const struct dir_keyspace *ks = read_keyspace(x, v);
    const struct slice *key = exchange_param(x, "key");
    uint8_t decoded[DIR_KEY_MAX], routing[DIR_ROUTING_KEY_MAX];
    size_t decoded_len = 0, routing_len = 0;
    char etag[ROUTE_ETAG_SIZE];
    struct route_image image;
    struct buf *out = exchange_out(x);
    struct err e;
    if (ks == NULL) {
        return;
    }
    if (key == NULL) {
        reply_problem(x, ERR_INVALID_REQUEST, "query parameter key is missing");
        return;
    }
    if (dir_codec_decode(ks, *key, decoded, &decoded_len, &e) != ERR_OK ||
        dir_codec_routing_key(ks, slice_of(decoded, decoded_len), routing, &routing_len, &e) !=
            ERR_OK) {
        exchange_problem(x, &e, NULL, NULL);
        return;
    }
    route_of_view(&image, v, ks, view_route(v, ks, slice_of(routing, routing_len)));
    route_etag(&image, etag);
    if (reply_not_modified(x, etag, v->revision)) {
        return;
    }
    route_put_open(out, &image);
    buf_put_str(out, ",\"revision\":");
    buf_put_u64_dec(out, v->revision);
    buf_put_u8(out, '}');
    reply_read(x, v->revision);
}

void h_route(struct exchange *x)
{
    read_begin(x, exchange_param(x, "at_revision") != NULL ? route_at : get_route);
}

/* --- many --- */

static void decref(void *json)
{
    json_decref(json);
}

/* The body's one array, or NULL when answered. */
static json_t *body_array(struct exchange *x, const char *member)
{
    struct err e;
    struct json_in in;
    json_t *body = json_parse_object(exchange_body(x), &e), *array;
    if (body == NULL) {
        exchange_problem(x, &e, NULL, NULL);
        return NULL;
    }
    exchange_on_end(x, decref, body);
    json_in_open(&in, body, "", &e);
    array = json_in_array(&in, member, true, 0, API_BATCH_MAX);
    if (json_in_close(&in) != ERR_OK) {
        exchange_problem(x, &e, NULL, NULL);
        return NULL;
    }
    return array;
}

struct batch {
    const struct dir_view *view;
    const struct dir_keyspace *keyspace;
    struct buf *out;
    uint64_t count;
    bool seen; /* the array */
};

static enum err_code put_key_route(struct batch *b, struct slice text, struct err *e)
{
    uint8_t decoded[DIR_KEY_MAX], routing[DIR_ROUTING_KEY_MAX];
    size_t decoded_len = 0, routing_len = 0;
    const struct dir_keyspace *ks = b->keyspace;
    struct route_image image;
    enum err_code code = dir_codec_decode(ks, text, decoded, &decoded_len, e);
    if (code == ERR_OK) {
        code = dir_codec_routing_key(ks, slice_of(decoded, decoded_len), routing, &routing_len, e);
    }
    if (code == ERR_OK) {
        if (b->count++ > 0) {
            buf_put_u8(b->out, ',');
        }
        route_of_view(&image, b->view, ks, view_route(b->view, ks, slice_of(routing, routing_len)));
        route_put(b->out, &image);
    }
    return code;
}

/* The string that was just read. */
static enum err_code put_scanned(struct batch *b, const struct scan *s, struct err *e)
{
    enum { TEXT_MAX = 2 * DIR_KEY_MAX + 1 }; /* hex digits of a key, and one more than that */
    uint8_t text[TEXT_MAX];
    struct slice key = s->span;
    enum err_code code;
    if (s->escaped) {
        size_t n = scan_copy(s, text, sizeof text);
        key = slice_of(text, n <= sizeof text ? n : sizeof text);
    }
    code = put_key_route(b, key, e);
    if (code != ERR_OK) {
        scan_pointer(s, e->pointer, sizeof e->pointer);
    }
    return code;
}

static enum err_code put_keys(struct batch *b, struct scan *s, struct err *e)
{
    enum scan_event event = scan_next(s);
    enum err_code code = ERR_OK;
    b->seen = true;
    if (event != SCAN_ARRAY) {
        return event == SCAN_ERROR ? scan_error(s, e) : scan_refuse(s, e, "must be an array");
    }
    while (code == ERR_OK && (event = scan_next(s)) != SCAN_ARRAY_END) {
        if (event == SCAN_ERROR) {
            code = scan_error(s, e);
        } else if (event != SCAN_STRING) {
            code = scan_refuse(s, e, "must be a string");
        } else if (b->count == API_BATCH_MAX) {
            code = err_set_at(e, ERR_INVALID_REQUEST, "/keys", "must have 0 to %d elements",
                              API_BATCH_MAX);
        } else {
            code = put_scanned(b, s, e);
        }
    }
    return code;
}

/* Answers as it reads: a body of many keys is not worth a tree. What is found wrong later takes the
 * place of all that was written. */
static enum err_code put_batch(struct batch *b, struct scan *s, struct err *e)
{
    enum scan_event event = scan_next(s);
    enum err_code code = ERR_OK;
    if (event != SCAN_OBJECT && event != SCAN_ERROR) {
        return scan_refuse(s, e, "the body must be a JSON object");
    }
    while (code == ERR_OK && event != SCAN_END) {
        if (event == SCAN_ERROR) {
            code = scan_error(s, e);
        } else if (event == SCAN_NAME && scan_is(s, "keys")) {
            code = put_keys(b, s, e);
        } else if (event == SCAN_NAME) {
            code = scan_refuse(s, e, "is not a member that is known here");
        }
        event = code == ERR_OK ? scan_next(s) : event;
    }
    if (code == ERR_OK && !b->seen) {
        code = err_set_at(e, ERR_INVALID_REQUEST, "/keys", "is required");
    }
    return code;
}

static void get_batch(struct exchange *x, const struct dir_view *v)
{
    struct batch b = {.view = v, .keyspace = read_keyspace(x, v), .out = exchange_out(x)};
    struct scan s;
    struct err e;
    if (b.keyspace == NULL) {
        return;
    }
    buf_put_str(b.out, "{\"revision\":");
    buf_put_u64_dec(b.out, v->revision);
    buf_put_str(b.out, ",\"routes\":[");
    scan_open(&s, exchange_body(x), true);
    enum err_code code = put_batch(&b, &s, &e);
    scan_close(&s);
    if (code != ERR_OK) {
        exchange_problem(x, &e, NULL, NULL);
        return;
    }
    buf_put_str(b.out, "]}");
    reply_read(x, v->revision);
}

void h_routes_batch(struct exchange *x)
{
    read_begin(x, get_batch);
}

/* --- a range --- */

static void
put_range(struct exchange *x, struct listing *l, const struct dir_keyspace *ks, struct bounds *b)
{
    struct buf *out = exchange_out(x);
    struct slice from =
        l->resumed ? slice_of(l->position, l->position_len) : slice_of(b->start, b->start_len);
    struct slice end = slice_of(b->end, b->end_len), start = slice_of(NULL, 0);
    const struct dir_partition *p;
    struct ptree_iter it;
    bool more;
    ptree_seek_floor(view_map(l->view, ks), from, &it);
    buf_printf(out, "{\"revision\":%" PRIu64 ",\"routes\":[", l->revision);
    for (;; ptree_iter_next(&it)) {
        struct route_image image;
        p = ptree_iter_get(&it, &start);
        more = p != NULL && (b->end_open || slice_cmp(start, end) < 0);
        if (!more || l->count == l->limit) {
            break;
        }
        if (l->count++ > 0) {
            buf_put_u8(out, ',');
        }
        route_of_view(&image, l->view, ks, p);
        route_put(out, &image);
    }
    buf_put_u8(out, ']');
    if (more) {
        listing_next(x, l, dir_partition_start(p));
    }
    buf_put_u8(out, '}');
}

static void get_range(struct exchange *x, const struct dir_view *v)
{
    static const char *const filters[] = {"start", "end", NULL};
    const struct dir_keyspace *ks;
    struct listing l;
    struct bounds b;
    (void)v;
    if (!listing_begin(x, LIST_ROUTES, filters, true, &l)) {
        return;
    }
    ks = read_keyspace(x, l.view);
    if (ks != NULL && param_bounds(x, ks, &b)) {
        put_range(x, &l, ks, &b);
        reply_read(x, l.revision);
    }
    listing_end(&l);
}

void h_routes_range(struct exchange *x)
{
    read_begin(x, get_range);
}

/* --- are these still good? --- */

struct held {
    uint64_t partition;
    dir_rev epoch, mod_revision;
    bool has_mod_revision;
};

struct validation {
    struct exchange *x;
    const struct dir_view *view;
    const struct dir_keyspace *keyspace;
    struct buf *out;
    struct buf ahead;
    bool any_stale;
};

static void stale_open(struct validation *val, const struct held *held, const char *reason)
{
    buf_printf(val->out, "%s{\"partition\":%" PRIu64 ",\"reason\":\"%s\",\"routes\":",
               val->any_stale ? "," : "", held->partition, reason);
    val->any_stale = true;
}

static void put_ahead(struct validation *val, const struct held *held)
{
    buf_printf(&val->ahead, "%s{\"partition\":%" PRIu64 ",\"epoch\":%" PRIu64 "}",
               val->ahead.len > 0 ? "," : "", held->partition, held->epoch);
}

static void
judge_live(struct validation *val, const struct held *held, const struct dir_partition *p)
{
    struct route_image image;
    const char *reason = NULL;
    route_of_view(&image, val->view, val->keyspace, p);
    if (held->epoch > p->epoch || (held->epoch == p->epoch && held->has_mod_revision &&
                                   held->mod_revision > image.mod_revision)) {
        put_ahead(val, held);
        return;
    }
    if (held->epoch < p->epoch) {
        reason = "moved";
    } else if (held->has_mod_revision && held->mod_revision < image.mod_revision) {
        reason = "changed";
    }
    if (reason != NULL) {
        stale_open(val, held, reason);
        buf_put_u8(val->out, '[');
        route_put(val->out, &image);
        buf_put_str(val->out, "]}");
    }
}

/* What this server has not reached is never called stale. */
static void judge(struct validation *val, const struct held *held)
{
    const struct dir_tombstone *t = NULL;
    const struct dir_partition *p = view_partition(val->view, val->keyspace, held->partition, &t);
    if (p != NULL) {
        judge_live(val, held, p);
    } else if (held->epoch > val->view->revision) {
        put_ahead(val, held);
    } else if (t != NULL && (t->cause == DIR_CHANGE_SPLIT || t->cause == DIR_CHANGE_MERGE)) {
        stale_open(val, held, t->cause == DIR_CHANGE_SPLIT ? "split" : "merged");
        successors_put(val->out, val->view, t);
        buf_put_u8(val->out, '}');
    } else {
        stale_open(val, held, "unknown");
        buf_put_str(val->out, "[]}");
    }
}

static bool read_held(struct exchange *x, json_t *item, size_t i, struct held *ret)
{
    struct json_in in;
    struct err e;
    char base[40];
    (void)snprintf(base, sizeof base, "/routes/%zu", i);
    if (!json_is_object(item)) {
        (void)err_set_at(&e, ERR_INVALID_REQUEST, base, "must be an object");
        exchange_problem(x, &e, NULL, NULL);
        return false;
    }
    json_in_open(&in, item, base, &e);
    ret->partition = json_in_u64(&in, "partition", true, 0, PARSE_INT_MAX, NULL);
    ret->epoch = json_in_u64(&in, "epoch", true, 0, PARSE_INT_MAX, NULL);
    ret->has_mod_revision = false;
    ret->mod_revision =
        json_in_u64(&in, "mod_revision", false, 0, PARSE_INT_MAX, &ret->has_mod_revision);
    if (json_in_close(&in) != ERR_OK) {
        exchange_problem(x, &e, NULL, NULL);
        return false;
    }
    return true;
}

static void validate(struct exchange *x, const struct dir_view *v)
{
    struct validation val = {
        .x = x, .view = v, .keyspace = read_keyspace(x, v), .out = exchange_out(x)};
    json_t *routes = val.keyspace != NULL ? body_array(x, "routes") : NULL;
    bool ok = true;
    if (routes == NULL) {
        return;
    }
    buf_init(&val.ahead, API_RESPONSE_MAX);
    buf_printf(val.out, "{\"revision\":%" PRIu64 ",\"stale\":[", v->revision);
    for (size_t i = 0; i < json_array_size(routes) && ok; i++) {
        struct held held;
        ok = read_held(x, json_array_get(routes, i), i, &held);
        if (ok) {
            judge(&val, &held);
        }
    }
    if (ok) {
        buf_put_u8(val.out, ']');
        if (val.ahead.len > 0) {
            buf_put_str(val.out, ",\"ahead\":[");
            buf_put(val.out, val.ahead.data, val.ahead.len);
            buf_put_u8(val.out, ']');
        }
        buf_put_u8(val.out, '}');
        reply_read(x, v->revision);
    }
    buf_close(&val.ahead);
}

void h_validate(struct exchange *x)
{
    read_begin(x, validate);
}
