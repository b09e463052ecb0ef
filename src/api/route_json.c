/* SPDX-License-Identifier: Apache-2.0 */
/* A route is written into room reserved once for its worst case: a lookup's cost is mostly this.
 * Names need no escapes (they are [a-z0-9._-]); addresses and keys may. */
#include "api/route_json.h"

#include "base/clock.h"
#include "directory/codec.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *authority_of(const struct dir_keyspace *ks, const struct dir_node *primary)
{
    if (primary != NULL && primary->is_static) {
        return "static";
    }
    return ks->authority == DIR_AUTHORITY_AFFINITY ? "affinity" : "exclusive";
}

/* All but the replicas, authority and mod_revision. */
static void
fill(struct route_image *r, const struct dir_keyspace *ks, const struct dir_partition *p)
{
    r->keyspace = ks->name;
    r->partition = p->id;
    r->epoch = p->epoch;
    r->mod_revision = p->mod_revision;
    r->start = dir_partition_start(p);
    r->end = dir_partition_end(p);
    r->end_open = p->end_open;
    r->bounds_hex = dir_codec_bounds_are_hex(ks);
    r->state = p->state;
    r->rate_limit = p->rate_limit;
    r->operation = p->operation;
    r->moving = p->moving;
    r->replica_count = p->replica_count;
}

static void
fill_replica(struct route_replica *to, const struct dir_replica *from, const struct dir_node *node)
{
    to->node = node->name;
    to->address = node->address;
    to->role = from->role;
}

void route_of_view(struct route_image *r,
                   const struct dir_view *v,
                   const struct dir_keyspace *ks,
                   const struct dir_partition *p)
{
    const struct dir_node *primary = NULL;
    fill(r, ks, p);
    for (unsigned i = 0; i < p->replica_count; i++) {
        const struct dir_node *node = view_node_by_id(v, p->replicas[i].node);
        fill_replica(&r->replicas[i], &p->replicas[i], node);
        if (node->route_revision > r->mod_revision) {
            r->mod_revision = node->route_revision;
        }
        if (p->replicas[i].role == DIR_ROLE_PRIMARY) {
            primary = node;
        }
    }
    r->authority = authority_of(ks, primary);
}

void route_of_result(struct route_image *r, const struct dir_route *route)
{
    const struct dir_partition *p = route->partition;
    const struct dir_node *primary = NULL;
    fill(r, route->keyspace, p);
    r->mod_revision = route->mod_revision;
    for (unsigned i = 0; i < p->replica_count; i++) {
        fill_replica(&r->replicas[i], &p->replicas[i], route->nodes[i]);
        if (p->replicas[i].role == DIR_ROLE_PRIMARY) {
            primary = route->nodes[i];
        }
    }
    r->authority = authority_of(route->keyspace, primary);
}

void route_of_version(struct route_image *r,
                      const struct dir_view *v,
                      const struct dir_keyspace *ks,
                      const struct store_version *version)
{
    const struct dir_node *primary = NULL;
    *r = (struct route_image){
        .keyspace = ks->name,
        .partition = version->partition,
        .epoch = version->epoch,
        .mod_revision = version->mod_revision,
        .start = version->start,
        .end = version->end,
        .end_open = version->end_open,
        .bounds_hex = dir_codec_bounds_are_hex(ks),
        .state = version->state,
        .rate_limit = version->rate_limit,
        .operation = version->held_by,
        .moving = version->moving,
        .replica_count = version->replica_count,
    };
    for (unsigned i = 0; i < version->replica_count; i++) {
        r->replicas[i].node = version->replicas[i].name;
        r->replicas[i].address = version->replicas[i].address;
        r->replicas[i].role = version->replicas[i].role;
        if (version->replicas[i].role == DIR_ROLE_PRIMARY) {
            const char *name = version->replicas[i].name;
            primary = view_node(v, slice_of(name, strlen(name)));
        }
    }
    r->authority = authority_of(ks, primary);
}

/* --- writing, with the room already there --- */

static uint8_t *put(uint8_t *at, const char *text, size_t n)
{
    memcpy(at, text, n);
    return at + n;
}

#define PUT_LITERAL(at, literal) put((at), (literal), sizeof(literal) - 1)

static uint8_t *put_cstring(uint8_t *at, const char *text)
{
    return put(at, text, strlen(text));
}

static uint8_t *put_u64(uint8_t *at, uint64_t v)
{
    char digits[20];
    size_t i = sizeof digits;
    do {
        digits[--i] = (char)('0' + v % 10);
        v /= 10;
    } while (v > 0);
    return put(at, digits + i, sizeof digits - i);
}

static const char hex_digits[] = "0123456789abcdef";

/* At most 6 bytes for each of text's. */
static uint8_t *put_escaped(uint8_t *at, struct slice text)
{
    for (size_t i = 0; i < text.len; i++) {
        uint8_t c = text.data[i];
        if (c >= 0x20 && c != '"' && c != '\\') {
            *at++ = c;
        } else if (c >= 0x20) {
            *at++ = '\\';
            *at++ = c;
        } else {
            at = PUT_LITERAL(at, "\\u00");
            *at++ = (uint8_t)hex_digits[c >> 4];
            *at++ = (uint8_t)hex_digits[c & 15];
        }
    }
    return at;
}

static uint8_t *put_bound(uint8_t *at, bool hex, struct slice bound)
{
    *at++ = '"';
    if (hex) {
        for (size_t i = 0; i < bound.len; i++) {
            *at++ = (uint8_t)hex_digits[bound.data[i] >> 4];
            *at++ = (uint8_t)hex_digits[bound.data[i] & 15];
        }
    } else {
        at = put_escaped(at, bound);
    }
    *at++ = '"';
    return at;
}

static uint8_t *put_node(uint8_t *at, const struct route_replica *replica)
{
    at = PUT_LITERAL(at, "{\"node\":\"");
    at = put_cstring(at, replica->node);
    at = PUT_LITERAL(at, "\",\"address\":\"");
    at = put_escaped(at, slice_of(replica->address, strlen(replica->address)));
    *at++ = '"';
    return at;
}

static uint8_t *put_replicas(uint8_t *at, const struct route_image *r)
{
    at = PUT_LITERAL(at, ",\"replicas\":[");
    for (unsigned i = 0; i < r->replica_count; i++) {
        if (i > 0) {
            *at++ = ',';
        }
        at = put_node(at, &r->replicas[i]);
        at = PUT_LITERAL(at, ",\"role\":\"");
        at = put_cstring(at, dir_role_name(r->replicas[i].role));
        at = PUT_LITERAL(at, "\"}");
    }
    *at++ = ']';
    return at;
}

static uint8_t *put_primary(uint8_t *at, const struct route_image *r)
{
    bool has = r->replica_count > 0 && r->replicas[0].role == DIR_ROLE_PRIMARY &&
               r->state != DIR_UNAVAILABLE;
    at = PUT_LITERAL(at, ",\"primary\":");
    if (!has) {
        return PUT_LITERAL(at, "null");
    }
    at = put_node(at, &r->replicas[0]);
    *at++ = '}';
    return at;
}

static size_t worst_case(const struct route_image *r)
{
    size_t n = 512 + 6 * (r->start.len + (r->end_open ? 0 : r->end.len));
    for (unsigned i = 0; i < r->replica_count; i++) {
        size_t replica = 64 + strlen(r->replicas[i].node) + 6 * strlen(r->replicas[i].address);
        n += i == 0 ? 2 * replica : replica;
    }
    return n;
}

void route_put_open(struct buf *b, const struct route_image *r)
{
    uint8_t *at;
    if (!buf_reserve(b, worst_case(r))) {
        return;
    }
    at = b->data + b->len;
    at = PUT_LITERAL(at, "{\"keyspace\":\"");
    at = put_cstring(at, r->keyspace);
    at = PUT_LITERAL(at, "\",\"partition\":");
    at = put_u64(at, r->partition);
    at = PUT_LITERAL(at, ",\"epoch\":");
    at = put_u64(at, r->epoch);
    at = PUT_LITERAL(at, ",\"mod_revision\":");
    at = put_u64(at, r->mod_revision);
    if (r->start.len > 0) {
        at = PUT_LITERAL(at, ",\"start\":");
        at = put_bound(at, r->bounds_hex, r->start);
    }
    if (!r->end_open) {
        at = PUT_LITERAL(at, ",\"end\":");
        at = put_bound(at, r->bounds_hex, r->end);
    }
    at = PUT_LITERAL(at, ",\"state\":\"");
    at = put_cstring(at, dir_state_name(r->state));
    *at++ = '"';
    at = put_primary(at, r);
    at = PUT_LITERAL(at, ",\"authority\":\"");
    at = put_cstring(at, r->authority);
    *at++ = '"';
    at = put_replicas(at, r);
    if (r->operation != 0) {
        at = PUT_LITERAL(at, ",\"moving\":{\"operation\":");
        at = put_u64(at, r->operation);
        at = PUT_LITERAL(at, ",\"stage\":\"");
        at = put_cstring(at, dir_stage_name((enum dir_stage)r->moving));
        at = PUT_LITERAL(at, "\"}");
    }
    if (r->rate_limit > 0) {
        at = PUT_LITERAL(at, ",\"rate_limit\":{\"requests_per_s\":");
        at = put_u64(at, r->rate_limit);
        *at++ = '}';
    }
    at = PUT_LITERAL(at, ",\"max_age_ms\":");
    at = put_u64(at, API_ROUTE_MAX_AGE_MS);
    b->len = (size_t)(at - b->data);
}

void route_put(struct buf *b, const struct route_image *r)
{
    route_put_open(b, r);
    buf_put_u8(b, '}');
}

void route_etag(const struct route_image *r, char out[ROUTE_ETAG_SIZE])
{
    uint8_t *at = (uint8_t *)out;
    *at++ = '"';
    at = put_u64(at, r->partition);
    *at++ = '-';
    at = put_u64(at, r->epoch);
    *at++ = '-';
    at = put_u64(at, r->mod_revision);
    *at++ = '"';
    *at = '\0';
}

void bound_put(struct buf *b, bool hex, struct slice bound)
{
    if (buf_reserve(b, 6 * bound.len + 2)) {
        b->len = (size_t)(put_bound(b->data + b->len, hex, bound) - b->data);
    }
}

void routes_put(struct buf *b, const struct dir_result *r)
{
    struct route_image image;
    buf_put_u8(b, '[');
    for (uint64_t i = 0; i < r->route_count; i++) {
        if (i > 0) {
            buf_put_u8(b, ',');
        }
        route_of_result(&image, &r->routes[i]);
        route_put(b, &image);
    }
    buf_put_u8(b, ']');
}

struct successors {
    struct buf *out;
    const struct dir_view *view;
    const struct dir_keyspace *keyspace;
    bool any;
};

static bool put_successor(void *arg, const struct dir_partition *p)
{
    struct successors *s = arg;
    struct route_image image;
    if (s->any) {
        buf_put_u8(s->out, ',');
    }
    s->any = true;
    route_of_view(&image, s->view, s->keyspace, p);
    route_put(s->out, &image);
    return true;
}

void successors_put(struct buf *b, const struct dir_view *v, const struct dir_tombstone *t)
{
    struct successors s = {b, v, view_keyspace_by_id(v, t->keyspace), false};
    buf_put_u8(b, '[');
    if (s.keyspace != NULL) {
        (void)view_successors(v, t, put_successor, &s);
    }
    buf_put_u8(b, ']');
}

void partition_put_more(struct buf *b, const struct dir_partition *p)
{
    const uint64_t *parents = dir_partition_parents(p);
    buf_put_str(b, ",\"lineage\":{\"parents\":[");
    for (unsigned i = 0; i < p->parent_count; i++) {
        buf_printf(b, i > 0 ? ",%" PRIu64 : "%" PRIu64, parents[i]);
    }
    /* One with children is retired, and answered with their routes. */
    buf_put_str(b, "],\"children\":[]},\"pinned\":");
    json_put_bool(b, p->pinned);
    buf_printf(b, ",\"created_revision\":%" PRIu64 ",\"owner_since\":", p->created);
    if (p->owner_since_ms > 0) {
        json_put_time(b, p->owner_since_ms);
    } else {
        buf_put_str(b, "null");
    }
}
