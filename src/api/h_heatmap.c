/* SPDX-License-Identifier: Apache-2.0 */
/* Where and when load was, as this leader has heard: by a job, for the matrix has to be laid. */
#include "api/endpoints.h"

#include "api/json.h"
#include "api/route_json.h"
#include "base/clock.h"
#include "base/parse.h"
#include "directory/codec.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { RESOURCE_NAME_MAX = 32 };

struct heat_job {
    struct job job;
    char keyspace[DIR_NAME_MAX + 1];
    unsigned resource;
    uint64_t from_ms, to_ms;   /* by this server's monotonic clock */
    uint64_t wall_ms, mono_ms; /* the same moment */
};

static uint64_t to_wall(const struct heat_job *j, uint64_t mono_ms)
{
    return mono_ms <= j->mono_ms ? j->wall_ms - (j->mono_ms - mono_ms)
                                 : j->wall_ms + (mono_ms - j->mono_ms);
}

static uint64_t to_mono(const struct heat_job *j, uint64_t wall_ms)
{
    uint64_t ago = j->wall_ms > wall_ms ? j->wall_ms - wall_ms : 0;
    return wall_ms > j->wall_ms ? j->mono_ms + (wall_ms - j->wall_ms)
                                : (j->mono_ms > ago ? j->mono_ms - ago : 0);
}

static void put_value(struct buf *b, double v)
{
    if (v == floor(v) && v < 1e15) {
        buf_printf(b, "%.0f", v);
    } else {
        buf_printf(b, "%.3f", v);
    }
}

static void put_columns(struct buf *b, const struct dir_keyspace *ks, const struct heat_map *m)
{
    bool hex = dir_codec_bounds_are_hex(ks);
    buf_put_str(b, ",\"columns\":[");
    for (uint32_t c = 0; c < m->columns; c++) {
        buf_put_str(b, c > 0 ? ",{\"start\":" : "{\"start\":");
        bound_put(b, hex, m->starts[c]);
        buf_put_str(b, ",\"end\":");
        if (c + 1 < m->columns) {
            bound_put(b, hex, m->starts[c + 1]);
        } else {
            buf_put_str(b, "null");
        }
        buf_put_u8(b, '}');
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

static void heatmap_work(struct job *job)
{
    struct heat_job *j = (struct heat_job *)(void *)job;
    struct control *control = job->api->control;
    const struct dir_view *v = view_pin(control_published(control));
    const struct dir_keyspace *ks = view_keyspace(v, slice_of(j->keyspace, strlen(j->keyspace)));
    struct heat_map m;
    job->revision = v->revision;
    if (ks == NULL) {
        (void)err_set(&job->err, ERR_KEYSPACE_NOT_FOUND, "there is no keyspace \"%s\"",
                      j->keyspace);
        view_unpin(v);
        return;
    }
    (void)heats_read(loads_heats(control_loads(control)), ks->id, j->resource, j->from_ms, j->to_ms,
                     &m);
    buf_printf(&job->out,
               "{\"revision\":%" PRIu64
               ",\"keyspace\":\"%s\",\"resource\":\"%s\",\"unit\":\"%s\",\"from\":",
               v->revision, ks->name,
               j->resource == HEAT_REQUESTS ? "requests"
                                            : load_name((enum load_resource)j->resource),
               unit_of(j->resource));
    json_put_time(&job->out, to_wall(j, j->from_ms));
    buf_put_str(&job->out, ",\"to\":");
    json_put_time(&job->out, to_wall(j, j->to_ms));
    put_columns(&job->out, ks, &m);
    put_rows(&job->out, j, &m);
    buf_put_u8(&job->out, '}');
    heat_map_close(&m);
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

void h_heatmap(struct exchange *x)
{
    const uint64_t kept_ms = HEAT_COARSE_ROWS * HEAT_COARSE_MS;
    char name[DIR_NAME_MAX + 1];
    unsigned resource;
    uint64_t wall = clock_wall_ms(), from = wall - kept_ms, to = wall;
    if (!leads(x) || !param_text(x, "keyspace", name, sizeof name) ||
        !take_resource(x, &resource) || !take_time(x, "from", &from) || !take_time(x, "to", &to)) {
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
    j->wall_ms = wall;
    j->mono_ms = clock_mono_ms();
    j->from_ms = to_mono(j, from);
    j->to_ms = to_mono(j, to);
    memcpy(j->keyspace, name, sizeof name);
    job_start(x, &j->job);
}
