/* SPDX-License-Identifier: Apache-2.0 */
/* Where and when load was, as this leader has heard: by a job, for the matrix has to be laid. */
#include "api/endpoints.h"

#include "api/heat_view.h"
#include "api/json.h"
#include "api/route_json.h"
#include "base/clock.h"
#include "base/parse.h"
#include "directory/codec.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { RESOURCE_NAME_MAX = 32, TENANT_MAX = 255, BY_KEYS = HEAT_NAMES };

struct heat_job {
    struct job job;
    char keyspace[DIR_NAME_MAX + 1];
    unsigned resource;
    unsigned by;                           /* an enum heat_name, or BY_KEYS */
    char only[HEAT_NAMES][TENANT_MAX + 1]; /* "": all */
    bool by_prefix;                        /* tenants are those of keys: no report named any */
    uint64_t from_ms, to_ms;               /* by the heat map's clock */
    uint64_t wall_ms, clock_ms;            /* the same moment */
};

static uint64_t to_wall(const struct heat_job *j, uint64_t clock_ms)
{
    return clock_ms <= j->clock_ms ? j->wall_ms - (j->clock_ms - clock_ms)
                                   : j->wall_ms + (clock_ms - j->clock_ms);
}

static uint64_t to_clock(const struct heat_job *j, uint64_t wall_ms)
{
    uint64_t ago = j->wall_ms > wall_ms ? j->wall_ms - wall_ms : 0;
    return wall_ms > j->wall_ms ? j->clock_ms + (wall_ms - j->wall_ms)
                                : (j->clock_ms > ago ? j->clock_ms - ago : 0);
}

static void put_value(struct buf *b, double v)
{
    if (v == floor(v) && v < 1e15) {
        buf_printf(b, "%.0f", v);
    } else {
        buf_printf(b, "%.3f", v);
    }
}

static void
put_column(struct buf *b, const struct heat_job *j, bool hex, const struct heat_map *m, uint32_t c)
{
    if (j->by == BY_KEYS) {
        buf_put_str(b, "{\"start\":");
        bound_put(b, hex, m->starts[c]);
        buf_put_str(b, ",\"end\":");
        if (c + 1 < m->columns) {
            bound_put(b, hex, m->starts[c + 1]);
        } else {
            buf_put_str(b, "null");
        }
    } else {
        buf_printf(b, "{\"%s\":", heat_member((enum heat_name)j->by));
        if (m->starts[c].data != NULL) {
            bound_put(b, hex && j->by_prefix, m->starts[c]);
        } else {
            buf_put_str(b, "null");
        }
    }
    buf_put_u8(b, '}');
}

static void put_columns(struct buf *b,
                        const struct heat_job *j,
                        const struct dir_keyspace *ks,
                        const struct heat_map *m)
{
    bool hex = dir_codec_bounds_are_hex(ks);
    buf_put_str(b, ",\"columns\":[");
    for (uint32_t c = 0; c < m->columns; c++) {
        buf_put_str(b, c > 0 ? "," : "");
        put_column(b, j, hex, m, c);
    }
    buf_put_u8(b, ']');
}

static void put_rows(struct buf *b, const struct heat_job *j, const struct heat_map *m)
{
    buf_put_str(b, ",\"rows\":[");
    for (uint32_t i = 0; i < m->rows; i++) {
        const struct heat_row *row = &m->row[i];
        buf_put_str(b, i > 0 ? ",{\"from\":" : "{\"from\":");
        json_put_time(b, to_wall(j, row->from_ms));
        buf_put_str(b, ",\"to\":");
        json_put_time(b, to_wall(j, row->to_ms));
        buf_printf(b, ",\"heard_ms\":%" PRIu64 ",\"values\":[", row->heard_ms);
        for (uint32_t c = 0; c < m->columns; c++) {
            buf_put_str(b, c > 0 ? "," : "");
            put_value(b, row->values[c]);
        }
        buf_put_str(b, "]}");
    }
    buf_put_u8(b, ']');
}

static const char *unit_of(unsigned r)
{
    if (r == HEAT_REQUESTS || load_is_count((enum load_resource)r)) {
        return "per_s";
    }
    return r < LOAD_SIZE ? "ms" : r == LOAD_SIZE ? "bytes" : "count";
}

/* Whether reports of the keyspace have named tenants, in what is kept. */
static bool names_tenants(struct heats *h, uint64_t keyspace)
{
    struct heat_by by = {.name = HEAT_BY_TENANT};
    struct heats_ask ask = {.keyspace = keyspace, .by = &by, .to_ms = 0};
    struct heat_map m;
    (void)heats_read(h, &ask, &m);
    bool named = m.columns > 1;
    heat_map_close(&m);
    return named;
}

static bool wants_tenants(const struct heat_job *j)
{
    return j->by == HEAT_BY_TENANT || j->only[HEAT_BY_TENANT][0] != '\0';
}

static bool is_filtered(const struct heat_filter *filter)
{
    return filter->name[HEAT_BY_OPERATION].len > 0 || filter->name[HEAT_BY_OUTCOME].len > 0 ||
           filter->name[HEAT_BY_TENANT].len > 0;
}

/* A prefix of keys; `bytes` holds DIR_ROUTING_KEY_MAX. */
static enum err_code
decode_tenant(const struct dir_keyspace *ks, uint8_t *bytes, struct slice *tenant, struct err *ret)
{
    size_t len = 0;
    struct err e;
    if (ks->scheme != DIR_SCHEME_RANGE) {
        return err_set(ret, ERR_INVALID_REQUEST,
                       "query parameter resource must be requests: keys of "
                       "a hash keyspace tell no tenants");
    }
    if (tenant->len > 0 && dir_codec_decode_bound(ks, *tenant, bytes, &len, &e) != ERR_OK) {
        return err_set(ret, ERR_INVALID_REQUEST,
                       "query parameter tenant is no prefix of keys of this keyspace");
    }
    *tenant = slice_of(bytes, len);
    return ERR_OK;
}

/* heat_map_close() is owed. */
static enum err_code
read_map(struct heat_job *j, struct heats *h, const struct dir_keyspace *ks, struct heat_map *m)
{
    uint8_t bytes[DIR_ROUTING_KEY_MAX];
    struct slice tenant = slice_of(NULL, 0);
    struct heat_by by = {.name = (enum heat_name)j->by};
    struct heats_ask ask = {
        .keyspace = ks->id, .resource = j->resource, .from_ms = j->from_ms, .to_ms = j->to_ms};
    *m = (struct heat_map){0};
    if (wants_tenants(j)) {
        j->by_prefix = j->resource != HEAT_REQUESTS ||
                       (ks->scheme == DIR_SCHEME_RANGE && !names_tenants(h, ks->id));
    }
    for (unsigned i = 0; i < HEAT_NAMES; i++) {
        by.filter.name[i] = slice_of(j->only[i], strlen(j->only[i]));
    }
    if (j->by_prefix) {
        tenant = by.filter.name[HEAT_BY_TENANT];
        if (decode_tenant(ks, bytes, &tenant, &j->job.err) != ERR_OK) {
            return j->job.err.code;
        }
        by.filter.name[HEAT_BY_TENANT] = slice_of(NULL, 0);
    }
    bool across = j->by == HEAT_BY_TENANT && j->by_prefix;
    ask.filter = is_filtered(&by.filter) ? &by.filter : NULL;
    ask.by = j->by != BY_KEYS && !across ? &by : NULL;
    (void)heats_read(h, &ask, m);
    if (tenant.len > 0) {
        heat_of_prefix(m, tenant);
    }
    if (across) {
        heat_by_prefix(m, j->resource);
    }
    return ERR_OK;
}

static void put_asked(struct buf *b, const struct heat_job *j)
{
    if (j->by != BY_KEYS) {
        buf_printf(b, ",\"by\":\"%s\"", heat_member((enum heat_name)j->by));
    }
    for (unsigned i = 0; i < HEAT_NAMES; i++) {
        if (j->only[i][0] != '\0') {
            buf_printf(b, ",\"%s\":", heat_member((enum heat_name)i));
            json_put_cstring(b, j->only[i]);
        }
    }
    if (wants_tenants(j)) {
        buf_printf(b, ",\"tenants_from\":\"%s\"", j->by_prefix ? "keys" : "reports");
    }
    buf_put_str(b, ",\"from\":");
    json_put_time(b, to_wall(j, j->from_ms));
    buf_put_str(b, ",\"to\":");
    json_put_time(b, to_wall(j, j->to_ms));
}

static void put_map(struct heat_job *j, const struct dir_view *v, const struct dir_keyspace *ks)
{
    struct buf *out = &j->job.out;
    struct heat_map m;
    if (read_map(j, loads_heats(control_loads(j->job.api->control)), ks, &m) == ERR_OK) {
        buf_printf(
            out,
            "{\"revision\":%" PRIu64 ",\"keyspace\":\"%s\",\"resource\":\"%s\",\"unit\":\"%s\"",
            v->revision, ks->name,
            j->resource == HEAT_REQUESTS ? "requests" : load_name((enum load_resource)j->resource),
            unit_of(j->resource));
        put_asked(out, j);
        put_columns(out, j, ks, &m);
        put_rows(out, j, &m);
        buf_put_u8(out, '}');
    }
    heat_map_close(&m);
}

static void heatmap_work(struct job *job)
{
    struct heat_job *j = (struct heat_job *)(void *)job;
    const struct dir_view *v = view_pin(control_published(job->api->control));
    const struct dir_keyspace *ks = view_keyspace(v, slice_of(j->keyspace, strlen(j->keyspace)));
    job->revision = v->revision;
    if (ks != NULL) {
        put_map(j, v, ks);
    } else {
        (void)err_set(&job->err, ERR_KEYSPACE_NOT_FOUND, "there is no keyspace \"%s\"",
                      j->keyspace);
    }
    view_unpin(v);
}

/* `*wall_ms` stays as it is when it is absent. */
static bool take_time(struct exchange *x, const char *name, uint64_t *wall_ms)
{
    char text[CLOCK_RFC3339_SIZE];
    if (!param_text(x, name, text, sizeof text)) {
        return false;
    }
    if (exchange_param(x, name) != NULL && !parse_rfc3339(text, wall_ms)) {
        reply_problem(x, ERR_INVALID_REQUEST,
                      "query parameter %s must be a time, as 2026-11-30T09:00:00Z", name);
        return false;
    }
    return true;
}

static bool take_resource(struct exchange *x, unsigned *ret)
{
    char name[RESOURCE_NAME_MAX];
    if (!param_text(x, "resource", name, sizeof name)) {
        return false;
    }
    *ret = HEAT_REQUESTS;
    if (exchange_param(x, "resource") == NULL || strcmp(name, "requests") == 0) {
        return true;
    }
    *ret = load_by_name(slice_of(name, strlen(name)));
    if (*ret == LOAD_RESOURCES) {
        reply_problem(x, ERR_INVALID_REQUEST,
                      "query parameter resource must be requests or one that reports have");
        return false;
    }
    return true;
}

/* A tenant may be a prefix of keys: any text. */
static bool take_name(struct exchange *x, enum heat_name name, char only[TENANT_MAX + 1])
{
    const char *member = heat_member(name);
    bool any = name == HEAT_BY_TENANT;
    if (!param_text(x, member, only, any ? TENANT_MAX + 1 : LOAD_PART_NAME_MAX + 1)) {
        return false;
    }
    if (exchange_param(x, member) != NULL &&
        (any ? only[0] == '\0' : !parse_is_name(slice_of(only, strlen(only))))) {
        reply_problem(x, ERR_INVALID_REQUEST, "query parameter %s is no name", member);
        return false;
    }
    return true;
}

/* By what, and of which of these only. */
static bool take_names(struct exchange *x,
                       unsigned resource,
                       unsigned *by,
                       char only[HEAT_NAMES][TENANT_MAX + 1])
{
    char text[RESOURCE_NAME_MAX];
    bool told_apart = false;
    if (!param_text(x, "by", text, sizeof text)) {
        return false;
    }
    *by = BY_KEYS;
    for (unsigned i = 0; i < HEAT_NAMES; i++) {
        const char *member = heat_member((enum heat_name)i);
        *by = strcmp(text, member) == 0 ? i : *by;
        if (!take_name(x, (enum heat_name)i, only[i])) {
            return false;
        }
        told_apart |= i != HEAT_BY_TENANT && (*by == i || only[i][0] != '\0');
    }
    if (exchange_param(x, "by") != NULL && *by == BY_KEYS) {
        reply_problem(x, ERR_INVALID_REQUEST,
                      "query parameter by must be operation, outcome or tenant");
        return false;
    }
    if (told_apart && resource != HEAT_REQUESTS) {
        reply_problem(x, ERR_INVALID_REQUEST,
                      "query parameter resource must be requests with operations and outcomes");
        return false;
    }
    return true;
}

void h_heatmap(struct exchange *x)
{
    const uint64_t kept_ms = HEAT_COARSE_ROWS * HEAT_COARSE_MS;
    char name[DIR_NAME_MAX + 1];
    char only[HEAT_NAMES][TENANT_MAX + 1];
    unsigned resource, by;
    uint64_t wall = clock_wall_ms(), from = wall - kept_ms, to = wall;
    if (!leads(x) || !param_text(x, "keyspace", name, sizeof name) ||
        !take_resource(x, &resource) || !take_names(x, resource, &by, only) ||
        !take_time(x, "from", &from) || !take_time(x, "to", &to)) {
        return;
    }
    if (exchange_param(x, "keyspace") == NULL) {
        reply_problem(x, ERR_INVALID_REQUEST, "query parameter keyspace is required");
        return;
    }
    if (!parse_is_name(slice_of(name, strlen(name)))) {
        reply_problem(x, ERR_KEYSPACE_NOT_FOUND, "there is no keyspace of this name");
        return;
    }
    if (from >= to) {
        reply_problem(x, ERR_INVALID_REQUEST, "query parameter to must be after from");
        return;
    }
    struct heat_job *j = job_new(x, sizeof *j);
    j->job.work = heatmap_work;
    j->job.answer = job_reply;
    j->resource = resource;
    j->by = by;
    memcpy(j->only, only, sizeof only);
    j->wall_ms = wall;
    j->clock_ms =
        heats_clock(loads_heats(control_loads(exchange_api(x)->control)), clock_mono_ms());
    j->from_ms = to_clock(j, from);
    j->to_ms = to_clock(j, to);
    memcpy(j->keyspace, name, sizeof name);
    job_start(x, &j->job);
}
