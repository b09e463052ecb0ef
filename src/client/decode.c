/* SPDX-License-Identifier: Apache-2.0 */
#include "client/decode.h"

#include "base/parse.h"

#include <string.h>

json_t *cl_json_parse(struct slice text)
{
    return json_loadb((const char *)text.data, text.len,
                      JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY, NULL);
}

bool cl_json_u64(const json_t *object, const char *name, uint64_t *ret_value)
{
    const json_t *v = json_object_get(object, name);
    json_int_t i = json_integer_value(v);
    if (!json_is_integer(v) || i < 0 || (uint64_t)i > PARSE_INT_MAX) {
        return false;
    }
    *ret_value = (uint64_t)i;
    return true;
}

bool cl_json_text(const json_t *object, const char *name, char *out, size_t size)
{
    const json_t *v = json_object_get(object, name);
    size_t len = json_string_length(v);
    const char *s = json_string_value(v);
    out[0] = '\0';
    if (s == NULL || len >= size || strlen(s) != len) {
        return false;
    }
    memcpy(out, s, len + 1);
    return true;
}

/* The position in `names` + 1, or 0. */
static unsigned name_read(const json_t *text, const char *const *names, unsigned count)
{
    const char *s = json_string_value(text);
    for (unsigned i = 0; s != NULL && i < count; i++) {
        if (strcmp(s, names[i]) == 0) {
            return i + 1;
        }
    }
    return 0;
}

enum cadastre_role cl_role_read(const json_t *text)
{
    static const char *const names[] = {"primary", "sync", "async", "joining"};
    return (enum cadastre_role)name_read(text, names, 4);
}

enum cadastre_authority cl_authority_read(const json_t *text)
{
    static const char *const names[] = {"exclusive", "affinity", "static"};
    return (enum cadastre_authority)name_read(text, names, 3);
}

static enum cadastre_route_state state_read(const json_t *text)
{
    static const char *const names[] = {"active", "fencing", "unavailable"};
    return (enum cadastre_route_state)name_read(text, names, 3);
}

/* Borrowed from `object`. */
static bool text_slice(const json_t *object, const char *name, size_t max, struct slice *ret)
{
    const json_t *v = json_object_get(object, name);
    const char *s = json_string_value(v);
    if (s == NULL || json_string_length(v) > max || strlen(s) != json_string_length(v)) {
        return false;
    }
    *ret = slice_of(s, json_string_length(v));
    return true;
}

static bool read_place(const json_t *object, struct slice *ret_node, struct slice *ret_address)
{
    return text_slice(object, "node", CADASTRE_NAME_MAX, ret_node) &&
           text_slice(object, "address", CADASTRE_ADDRESS_MAX, ret_address);
}

static bool read_replicas(const json_t *route, struct cl_route *r)
{
    const json_t *list = json_object_get(route, "replicas");
    size_t n = json_array_size(list);
    if (n > CL_REPLICAS_MAX) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *item = json_array_get(list, i);
        struct cl_replica *to = &r->replicas[i];
        if (!read_place(item, &to->node, &to->address)) {
            return false;
        }
        to->role = cl_role_read(json_object_get(item, "role"));
    }
    r->replica_count = (unsigned)n;
    return true;
}

static bool read_bounds(const struct cl_codec *c,
                        const json_t *route,
                        uint8_t *start,
                        uint8_t *end,
                        struct cl_route *r)
{
    const json_t *from = json_object_get(route, "start"), *to = json_object_get(route, "end");
    r->end_open = to == NULL;
    if (from != NULL && !cl_codec_read_bound(c, from, start, &r->start.len)) {
        return false;
    }
    if (to != NULL && !cl_codec_read_bound(c, to, end, &r->end.len)) {
        return false;
    }
    r->start.data = start;
    r->end.data = end;
    return r->end_open || slice_cmp(r->start, r->end) < 0;
}

struct cl_entry *cl_decode_route(const struct cl_codec *c, const json_t *route)
{
    uint8_t start[CL_BOUND_MAX], end[CL_BOUND_MAX];
    struct cl_route r = {0};
    const json_t *primary = json_object_get(route, "primary");
    if (!cl_json_u64(route, "partition", &r.partition) || !cl_json_u64(route, "epoch", &r.epoch) ||
        !cl_json_u64(route, "mod_revision", &r.mod_revision) ||
        !cl_json_u64(route, "max_age_ms", &r.max_age_ms) ||
        !read_bounds(c, route, start, end, &r) || !read_replicas(route, &r)) {
        return NULL;
    }
    if (json_is_object(primary) && !read_place(primary, &r.node, &r.address)) {
        return NULL;
    }
    r.state = state_read(json_object_get(route, "state"));
    r.authority = cl_authority_read(json_object_get(route, "authority"));
    (void)cl_json_u64(json_object_get(route, "rate_limit"), "requests_per_s", &r.rate_limit);
    return r.state != 0 && r.authority != 0 ? cl_entry_new(&r) : NULL;
}
