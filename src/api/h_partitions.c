/* SPDX-License-Identifier: Apache-2.0 */
/* Partitions: list, one, split, merge, change, and whether a node may write one. */
#include "api/endpoints.h"

#include "api/route_json.h"
#include "base/parse.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* --- reads --- */

static void put_partition(struct exchange *x,
                          const struct dir_view *v,
                          const struct dir_keyspace *ks,
                          const struct dir_partition *p)
{
    struct buf *out = exchange_out(x);
    struct route_image image;
    route_of_view(&image, v, ks, p);
    route_put_open(out, &image);
    partition_put_more(out, p);
    load_put_partition(out, control_loads(exchange_api(x)->control), p->id);
}

static void get_one(struct exchange *x, const struct dir_view *v)
{
    const struct dir_keyspace *ks = read_keyspace(x, v);
    const struct dir_partition *p = ks != NULL ? read_partition(x, v, ks) : NULL;
    struct buf *out = exchange_out(x);
    if (p != NULL) {
        put_partition(x, v, ks, p);
        buf_printf(out, ",\"revision\":%" PRIu64 "}", v->revision);
        reply_read(x, v->revision);
    }
}

void h_partition_get(struct exchange *x)
{
    read_begin(x, get_one);
}

static void put_page(struct exchange *x, struct listing *l, const struct dir_keyspace *ks)
{
    struct buf *out = exchange_out(x);
    const struct dir_partition *p;
    struct ptree_iter it;
    buf_printf(out, "{\"revision\":%" PRIu64 ",\"partitions\":[", l->revision);
    ptree_seek(view_map(l->view, ks), slice_of(l->position, l->position_len), &it);
    for (; (p = ptree_iter_get(&it, NULL)) != NULL && l->count < l->limit; ptree_iter_next(&it)) {
        if (l->count++ > 0) {
            buf_put_u8(out, ',');
        }
        put_partition(x, l->view, ks, p);
        buf_put_u8(out, '}');
    }
    buf_put_u8(out, ']');
    if (p != NULL) {
        listing_next(x, l, dir_partition_start(p));
    }
    buf_put_u8(out, '}');
}

static void get_list(struct exchange *x, const struct dir_view *v)
{
    const struct dir_keyspace *ks;
    struct listing l;
    (void)v;
    if (!listing_begin(x, LIST_PARTITIONS, NULL, true, &l)) {
        return;
    }
    ks = read_keyspace(x, l.view);
    if (ks != NULL) {
        put_page(x, &l, ks);
        reply_read(x, l.revision);
    }
    listing_end(&l);
}

void h_partitions_list(struct exchange *x)
{
    read_begin(x, get_list);
}

/* --- split --- */

static void render_split(struct exchange *x, const struct mutation *m, const struct dir_result *r)
{
    struct buf *out = exchange_out(x);
    (void)m;
    buf_printf(out, "{\"revision\":%" PRIu64 ",\"parent\":%" PRIu64 ",\"children\":", r->revision,
               r->partition);
    routes_put(out, r);
    buf_put_u8(out, '}');
    exchange_reply(x, 200, NULL);
}

/* The keys as bounds; false when answered. */
static bool read_keys(struct exchange *x, struct mutation *m, json_t *at, Cadastre__Split *split)
{
    const struct dir_keyspace *ks = read_keyspace(x, view_enter(api_slot(x)));
    struct slice *bounds = NULL;
    size_t bytes = 0;
    if (ks != NULL) {
        bounds = bounds_read(x, ks, at, "at", &m->err);
        if (bounds == NULL) {
            exchange_problem(x, &m->err, NULL, NULL);
        }
    }
    view_leave();
    if (bounds == NULL) {
        return false;
    }
    split->n_at = json_array_size(at);
    split->at = exchange_alloc(x, (split->n_at + 1) * sizeof *split->at);
    for (size_t i = 0; i < split->n_at; i++) {
        split->at[i] = bytes_lent(bounds[i]);
        bytes += bounds[i].len + 8;
    }
    if (bytes > DIR_COMMAND_MAX - 4096) {
        reply_problem(x, ERR_TOO_LARGE, "the keys are too large for one split: use several");
        return false;
    }
    return true;
}

void h_partition_split(struct exchange *x)
{
    struct mutation *m = mutation_begin(x, "split", render_split);
    Cadastre__Split *split;
    json_t *at;
    if (m == NULL) {
        return;
    }
    split = exchange_alloc(x, sizeof *split);
    cadastre__split__init(split);
    at = json_in_array(&m->in, "at", true, 1, DIR_SPLIT_KEYS_MAX);
    mutation_expect_epoch(m, &split->has_expect_epoch, &split->expect_epoch);
    if (!mutation_close(x, m) || !mutation_partition(x, &split->partition) ||
        !read_keys(x, m, at, split)) {
        return;
    }
    m->command.body_case = CADASTRE__COMMAND__BODY_SPLIT;
    m->command.split = split;
    mutation_submit(x, m);
}

/* --- merge --- */

static void render_merge(struct exchange *x, const struct mutation *m, const struct dir_result *r)
{
    struct buf *out = exchange_out(x);
    struct route_image image;
    (void)m;
    buf_printf(out, "{\"revision\":%" PRIu64, r->revision);
    if (r->route_count > 0) {
        buf_put_str(out, ",\"route\":");
        route_of_result(&image, &r->routes[0]);
        route_put(out, &image);
    }
    buf_put_u8(out, '}');
    exchange_reply(x, 200, NULL);
}

void h_partition_merge(struct exchange *x)
{
    struct mutation *m = mutation_begin(x, "merge", render_merge);
    Cadastre__Merge *merge;
    if (m == NULL) {
        return;
    }
    merge = exchange_alloc(x, sizeof *merge);
    cadastre__merge__init(merge);
    merge->with = json_in_u64(&m->in, "with", true, 0, PARSE_INT_MAX, NULL);
    mutation_expect_epoch(m, &merge->has_expect_epoch, &merge->expect_epoch);
    if (!mutation_close(x, m) || !mutation_partition(x, &merge->partition)) {
        return;
    }
    m->command.body_case = CADASTRE__COMMAND__BODY_MERGE;
    m->command.merge = merge;
    mutation_submit(x, m);
}

/* --- change --- */

static void render_patch(struct exchange *x, const struct mutation *m, const struct dir_result *r)
{
    struct buf *out = exchange_out(x);
    struct route_image image;
    if (r->route_count == 0) {
        render_revision(x, m, r);
        return;
    }
    route_of_result(&image, &r->routes[0]);
    route_put_open(out, &image);
    partition_put_more(out, r->routes[0].partition);
    buf_printf(out, ",\"revision\":%" PRIu64 "}", r->revision);
    exchange_reply(x, 200, NULL);
}

/* {"requests_per_s":n}, or null to lift it. */
static void read_rate_limit(struct mutation *m, Cadastre__PartitionPatch *patch)
{
    json_t *given;
    struct json_in in;
    patch->has_rate_limit = json_object_get(m->body, "rate_limit") != NULL;
    if (json_in_null(&m->in, "rate_limit")) {
        return;
    }
    given = json_in_object(&m->in, "rate_limit", false);
    if (given == NULL || m->in.code != ERR_OK) {
        return;
    }
    json_in_open(&in, given, "/rate_limit", &m->err);
    patch->rate_limit = json_in_u64(&in, "requests_per_s", true, 1, PARSE_INT_MAX, NULL);
    m->in.code = json_in_close(&in);
}

void h_partition_patch(struct exchange *x)
{
    struct mutation *m = mutation_begin(x, "partition_patch", render_patch);
    Cadastre__PartitionPatch *patch;
    bool present = false;
    if (m == NULL) {
        return;
    }
    patch = exchange_alloc(x, sizeof *patch);
    cadastre__partition_patch__init(patch);
    patch->pinned = json_in_bool(&m->in, "pinned", false, &present);
    patch->has_pinned = present;
    read_rate_limit(m, patch);
    mutation_expect_epoch(m, &patch->has_expect_epoch, &patch->expect_epoch);
    if (!mutation_close(x, m) || !mutation_partition(x, &patch->partition)) {
        return;
    }
    m->command.body_case = CADASTRE__COMMAND__BODY_PARTITION_PATCH;
    m->command.partition_patch = patch;
    mutation_submit(x, m);
}

/* --- may this node write it? --- */

void check_put_members(struct exchange *x, struct buf *out, void *arg)
{
    const struct check *c = arg;
    struct route_image image;
    put_revision(x, out, c->view->revision);
    if (c->partition != NULL) {
        route_of_view(&image, c->view, c->keyspace, c->partition);
        buf_printf(out,
                   ",\"partition\":%" PRIu64 ",\"epoch\":%" PRIu64 ",\"route\":", c->partition->id,
                   c->partition->epoch);
        route_put(out, &image);
    } else if (c->tombstone != NULL) {
        buf_printf(out,
                   ",\"partition\":%" PRIu64 ",\"epoch\":%" PRIu64 ",\"retired\":true,\"routes\":",
                   c->tombstone->id, c->tombstone->last_epoch);
        successors_put(out, c->view, c->tombstone);
    }
}

bool check_epoch(struct exchange *x, struct check *c, uint64_t epoch)
{
    struct err e;
    if (c->partition == NULL && c->tombstone == NULL) {
        reply_no_partition(x, c->view, NULL);
        return false;
    }
    if (c->partition == NULL) {
        (void)err_set(&e, ERR_STALE_EPOCH, "partition %" PRIu64 " was retired", c->tombstone->id);
    } else if (epoch < c->partition->epoch) {
        (void)err_set(&e, ERR_STALE_EPOCH, "the epoch is %" PRIu64 ", not %" PRIu64,
                      c->partition->epoch, epoch);
    } else if (epoch > c->partition->epoch) {
        (void)err_set(&e, ERR_FUTURE_EPOCH,
                      "the epoch is %" PRIu64 " here, %" PRIu64 " is ahead of it",
                      c->partition->epoch, epoch);
    } else {
        return true;
    }
    exchange_problem(x, &e, check_put_members, c);
    return false;
}

bool check_find(struct exchange *x, const struct dir_view *v, struct check *ret)
{
    uint64_t id;
    *ret = (struct check){.view = v, .keyspace = read_keyspace(x, v)};
    if (ret->keyspace == NULL) {
        return false;
    }
    if (path_id(x, 1, &id)) {
        ret->partition = view_partition(v, ret->keyspace, id, &ret->tombstone);
    }
    return true;
}

static void check(struct exchange *x, const struct dir_view *v)
{
    struct err e;
    struct json_in in;
    struct check c;
    struct slice node;
    json_t *body = json_parse_object(exchange_body(x), &e);
    uint64_t epoch, session;
    const struct dir_node *owner;
    bool owns, has_session = false;
    if (body == NULL) {
        exchange_problem(x, &e, NULL, NULL);
        return;
    }
    json_in_open(&in, body, "", &e);
    node = json_in_name(&in, "node", true);
    epoch = json_in_u64(&in, "epoch", true, 0, PARSE_INT_MAX, NULL);
    session = json_in_u64(&in, "session", false, 0, PARSE_INT_MAX, &has_session);
    if (json_in_close(&in) != ERR_OK) {
        exchange_problem(x, &e, NULL, NULL);
    } else if (check_find(x, v, &c) && check_epoch(x, &c, epoch)) {
        owner = view_primary(v, c.partition);
        owns = owner != NULL && c.partition->state == DIR_ACTIVE && view_node_is_live(owner) &&
               owner->session == c.partition->session &&
               (!has_session || session == owner->session) &&
               slice_eq(node, slice_of(owner->name, strlen(owner->name)));
        if (owns) {
            buf_printf(exchange_out(x),
                       "{\"revision\":%" PRIu64 ",\"partition\":%" PRIu64 ",\"epoch\":%" PRIu64 "}",
                       v->revision, c.partition->id, epoch);
            reply_read(x, v->revision);
        } else {
            (void)err_set(&e, ERR_NOT_OWNER, "the node is not its primary, or may not write now");
            exchange_problem(x, &e, check_put_members, &c);
        }
    }
    json_decref(body);
}

void h_partition_check(struct exchange *x)
{
    read_begin(x, check);
}
