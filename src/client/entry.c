/* SPDX-License-Identifier: Apache-2.0 */
#include "client/entry.h"

#include "base/mem.h"

#include <string.h>

static uint8_t *put(uint8_t *at, struct slice s)
{
    if (s.len > 0) {
        memcpy(at, s.data, s.len);
    }
    return at + s.len;
}

static size_t replicas_size(const struct cl_route *r)
{
    size_t n = 0;
    for (unsigned i = 0; i < r->replica_count; i++) {
        n += 3 + r->replicas[i].node.len + r->replicas[i].address.len;
    }
    return n;
}

struct cl_entry *cl_entry_new(const struct cl_route *r)
{
    size_t replicas = replicas_size(r), end_len = r->end_open ? 0 : r->end.len;
    struct cl_entry *e =
        mem_alloc(sizeof *e + r->start.len + r->node.len + r->address.len + end_len + replicas);
    *e = (struct cl_entry){
        .partition = r->partition,
        .epoch = r->epoch,
        .mod_revision = r->mod_revision,
        .rate_limit = r->rate_limit < UINT32_MAX ? (uint32_t)r->rate_limit : UINT32_MAX,
        .max_age_ms = r->max_age_ms < UINT32_MAX ? (uint32_t)r->max_age_ms : UINT32_MAX,
        .start_len = (uint16_t)r->start.len,
        .end_len = (uint16_t)end_len,
        .replicas_len = (uint16_t)replicas,
        .state = (uint8_t)r->state,
        .authority = (uint8_t)r->authority,
        .replica_count = (uint8_t)r->replica_count,
        .node_len = (uint8_t)r->node.len,
        .address_len = (uint8_t)r->address.len,
        .end_open = r->end_open,
    };
    uint8_t *at = put(put(put(e->bytes, r->start), r->node), r->address);
    at = put(at, slice_of(r->end.data, end_len));
    for (unsigned i = 0; i < r->replica_count; i++) {
        const struct cl_replica *replica = &r->replicas[i];
        *at++ = (uint8_t)replica->role;
        *at++ = (uint8_t)replica->node.len;
        *at++ = (uint8_t)replica->address.len;
        at = put(put(at, replica->node), replica->address);
    }
    return e;
}

struct cl_entry *cl_gap_new(struct slice start, struct slice end, bool end_open, uint64_t revision)
{
    struct cl_route r = {
        .mod_revision = revision, .start = start, .end = end, .end_open = end_open};
    return cl_entry_new(&r);
}

struct cl_entry *cl_entry_copy(const struct cl_entry *e)
{
    struct cl_entry *copy = mem_dup(e, sizeof *e + e->start_len + e->node_len + e->address_len +
                                           e->end_len + (size_t)e->replicas_len);
    atomic_init(&copy->seen_ms, atomic_load_explicit(&e->seen_ms, memory_order_relaxed));
    return copy;
}

static const uint8_t *show_text(const uint8_t *at, size_t len, char *out)
{
    memcpy(out, at, len);
    out[len] = '\0';
    return at + len;
}

void cl_entry_show(const struct cl_entry *e, struct cadastre_route *ret_route)
{
    ret_route->partition = e->partition;
    ret_route->epoch = e->epoch;
    ret_route->mod_revision = e->mod_revision;
    ret_route->rate_limit = e->rate_limit;
    ret_route->state = e->state;
    ret_route->authority = e->authority;
    const uint8_t *at = show_text(e->bytes + e->start_len, e->node_len, ret_route->node);
    (void)show_text(at, e->address_len, ret_route->address);
}

size_t
cl_entry_replicas(const struct cl_entry *e, struct cadastre_replica *ret_replicas, size_t max)
{
    const uint8_t *at = cl_entry_end(e).data + e->end_len;
    for (size_t i = 0; i < e->replica_count && i < max; i++) {
        size_t node_len = at[1], address_len = at[2];
        ret_replicas[i].role = at[0];
        at = show_text(at + 3, node_len, ret_replicas[i].node);
        at = show_text(at, address_len, ret_replicas[i].address);
    }
    return e->replica_count;
}
