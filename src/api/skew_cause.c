/* SPDX-License-Identifier: Apache-2.0 */
/* What the unevenness comes down to: one key, a tenant, a time, a tenant at a time, or a node, as
 * far as findings and the last hour of the heat map can tell. */
#include "api/skew_view.h"

#include "api/json.h"
#include "api/route_json.h"
#include "base/clock.h"
#include "base/mem.h"
#include "directory/codec.h"

#include <inttypes.h>

static void put_share(struct buf *b, const char *name, double v)
{
    buf_printf(b, ",\"%s\":%.3f", name, v);
}

/* Columns that lie whole within a prefix up to '/'; they come in key order. */
static uint32_t group_columns(const struct heat_map *m, uint32_t *group, struct slice *prefixes)
{
    uint32_t groups = 0;
    for (uint32_t c = 0; c < m->columns; c++) {
        struct slice prefix =
            skew_prefix(m->starts[c], c + 1 < m->columns ? &m->starts[c + 1] : NULL);
        group[c] = HEAT_NONE;
        if (prefix.len == 0) {
            continue;
        }
        if (groups == 0 || !slice_eq(prefixes[groups - 1], prefix)) {
            prefixes[groups++] = prefix;
        }
        group[c] = groups - 1;
    }
    return groups;
}

static const char *const kinds[] = {[HEAT_EVEN] = "none",
                                    [HEAT_TENANT] = "tenant",
                                    [HEAT_TIME] = "time",
                                    [HEAT_TENANT_AND_TIME] = "tenant_and_time"};
static const char *const whys[] = {
    [HEAT_EVEN] = "nothing stands out",
    [HEAT_TENANT] = "one tenant has most of the load, at all times",
    [HEAT_TIME] = "a minute had much more load than others, of all tenants alike",
    [HEAT_TENANT_AND_TIME] = "one tenant had much more load in one minute than at other times"};

static void put_blame(struct buf *b,
                      const struct skew_view *s,
                      const struct heat_map *m,
                      const struct slice *prefixes,
                      const struct heat_blame *blame)
{
    uint64_t wall = clock_wall_ms();
    buf_printf(b, ",\"cause\":{\"kind\":\"%s\"", kinds[blame->kind]);
    if (blame->group != HEAT_NONE) {
        buf_put_str(b, ",\"tenant\":");
        bound_put(b, dir_codec_bounds_are_hex(s->only), prefixes[blame->group]);
    }
    if (blame->row != HEAT_NONE) {
        const struct heat_row *row = &m->row[blame->row];
        buf_put_str(b, ",\"from\":");
        json_put_time(b, wall - s->now_ms + row->from_ms);
        buf_put_str(b, ",\"to\":");
        json_put_time(b, wall - s->now_ms + row->to_ms);
        put_share(b, "times_median", blame->times_median);
    }
    if (blame->kind != HEAT_EVEN) {
        put_share(b, "share", blame->share);
    }
    buf_printf(b, ",\"why\":\"%s\"}", whys[blame->kind]);
}

/* The first finding of a kind, or NULL. */
static const struct skew_finding *
first_of(const struct skew_finding *findings, uint32_t count, enum skew_kind kind)
{
    for (uint32_t i = 0; i < count; i++) {
        if (findings[i].kind == kind) {
            return &findings[i];
        }
    }
    return NULL;
}

void skew_put_cause(struct buf *b,
                    const struct skew_view *s,
                    const struct skew_finding *findings,
                    uint32_t count)
{
    const struct skew_finding *key = first_of(findings, count, SKEW_HOT_KEY);
    const struct skew_finding *node = first_of(findings, count, SKEW_HOT_NODE);
    uint32_t group[HEAT_COLUMNS_MAX];
    struct slice prefixes[HEAT_COLUMNS_MAX];
    struct heat_map m;
    if (s->only == NULL) {
        return;
    }
    if (key != NULL) {
        buf_printf(b,
                   ",\"cause\":{\"kind\":\"key\",\"partition\":%" PRIu64
                   ",\"why\":\"one key has most of the load of its partition: see hot_keys\"}",
                   s->fleet.partitions[key->partition].id);
        return;
    }
    const uint64_t hour = HEAT_FINE_ROWS * HEAT_FINE_MS;
    (void)heats_read(loads_heats(s->loads), s->only->id, HEAT_REQUESTS,
                     s->now_ms > hour ? s->now_ms - hour : 0, s->now_ms, &m);
    uint32_t groups = s->only->scheme == DIR_SCHEME_RANGE ? group_columns(&m, group, prefixes) : 0;
    for (uint32_t c = 0; groups == 0 && c < m.columns; c++) {
        group[c] = HEAT_NONE;
    }
    struct heat_blame blame = heat_blame(&m, group, groups);
    if (blame.kind == HEAT_EVEN && node != NULL) {
        buf_printf(b,
                   ",\"cause\":{\"kind\":\"node\",\"node\":\"%s\",\"why\":\"a node bears more than "
                   "others, and no single partition, tenant or time explains it\"}",
                   s->fleet.nodes[node->node].name);
    } else {
        put_blame(b, s, &m, prefixes, &blame);
    }
    heat_map_close(&m);
}
