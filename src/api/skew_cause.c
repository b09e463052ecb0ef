/* SPDX-License-Identifier: Apache-2.0 */
/* What the unevenness comes down to: one key, a tenant, a time, a tenant at a time, or a node, as
 * far as findings and the last hour of the heat map can tell. */
#include "api/skew_view.h"

#include "api/heat_view.h"
#include "api/json.h"
#include "api/route_json.h"
#include "base/clock.h"
#include "directory/codec.h"

#include <inttypes.h>
#include <string.h>

static void put_share(struct buf *b, const char *name, double v)
{
    buf_printf(b, ",\"%s\":%.3f", name, v);
}

/* The last hour of the heat map, with what it is told apart by. */
struct evidence {
    struct heat_map map;
    uint32_t group[HEAT_COLUMNS_MAX], groups;
    struct slice names[HEAT_COLUMNS_MAX]; /* of groups; the map's */
    bool keys;                            /* names are prefixes of keys */
};
_Static_assert(HEAT_SERIES_MAX < HEAT_COLUMNS_MAX, "a column for each name, and one more");

struct cause {
    const char *kind, *why;
    struct slice name[HEAT_NAMES]; /* what is to blame; len 0: it is not */
    bool tenant_is_prefix;
    const struct heat_row *row; /* NULL: no time is */
    double share, times_median;
};

/* heat_map_close(&e->map) is owed. */
static void read_hour(const struct skew_view *s, const struct heat_by *by, struct evidence *e)
{
    const uint64_t hour = HEAT_FINE_ROWS * HEAT_FINE_MS;
    struct heats_ask ask = {.keyspace = s->only->id,
                            .resource = HEAT_REQUESTS,
                            .by = by,
                            .from_ms = s->heat_ms > hour ? s->heat_ms - hour : 0,
                            .to_ms = s->heat_ms};
    e->groups = 0;
    (void)heats_read(loads_heats(s->loads), &ask, &e->map);
    for (uint32_t c = 0; c < e->map.columns; c++) {
        bool named = by != NULL && e->map.starts[c].data != NULL;
        e->names[c] = e->map.starts[c];
        e->group[c] = named ? e->groups++ : HEAT_NONE;
    }
}

/* Those that reports name, else the prefixes of keys. */
static void read_tenants(const struct skew_view *s, struct evidence *e)
{
    const struct heat_by by = {.name = HEAT_BY_TENANT};
    e->keys = false;
    read_hour(s, &by, e);
    if (e->groups == 0) {
        heat_map_close(&e->map);
        read_hour(s, NULL, e);
        e->keys = s->only->scheme == DIR_SCHEME_RANGE;
        e->groups = e->keys ? heat_groups(&e->map, e->group, e->names) : 0;
    }
}

/* The operation (outcome) without which that minute would have been none to speak of. */
static void
blame_name(const struct skew_view *s, enum heat_name name, struct evidence *e, struct cause *cause)
{
    const struct heat_by by = {.name = name};
    read_hour(s, &by, e);
    struct heat_blame b = heat_blame(&e->map, e->group, e->groups);
    if (b.kind != HEAT_TENANT_AND_TIME || e->map.row[b.row].from_ms != cause->row->from_ms ||
        slice_eq(e->names[b.group], slice_of("ok", 2))) { /* which explains nothing */
        return;
    }
    cause->name[name] = e->names[b.group];
    if (strcmp(cause->kind, "time") == 0) {
        bool operation = name == HEAT_BY_OPERATION;
        cause->kind = operation ? "operation_and_time" : "outcome_and_time";
        cause->why =
            operation ? "one operation was asked for much more in one minute than at other times"
                      : "requests that ended so were much more in one minute than at other times";
        cause->share = b.share;
        cause->times_median = b.times_median;
    }
}

static struct cause of_tenants(const struct evidence *e)
{
    static const struct cause causes[] = {
        [HEAT_EVEN] = {.kind = "none", .why = "nothing stands out"},
        [HEAT_TENANT] = {.kind = "tenant", .why = "one tenant has most of the load, at all times"},
        [HEAT_TIME] = {.kind = "time",
                       .why = "a minute had much more load than others, of all tenants alike"},
        [HEAT_TENANT_AND_TIME] = {
            .kind = "tenant_and_time",
            .why = "one tenant had much more load in one minute than at other times"}};
    struct heat_blame b = heat_blame(&e->map, e->group, e->groups);
    struct cause c = causes[b.kind];
    c.share = b.share;
    c.times_median = b.times_median;
    c.row = b.row != HEAT_NONE ? &e->map.row[b.row] : NULL;
    if (b.group != HEAT_NONE) {
        c.name[HEAT_BY_TENANT] = e->names[b.group];
        c.tenant_is_prefix = e->keys;
    }
    return c;
}

static void put_cause(struct buf *b, const struct skew_view *s, const struct cause *c)
{
    uint64_t wall = clock_wall_ms();
    buf_printf(b, ",\"cause\":{\"kind\":\"%s\"", c->kind);
    for (unsigned i = 0; i < HEAT_NAMES; i++) {
        if (c->name[i].len > 0) {
            bool hex = c->tenant_is_prefix && i == HEAT_BY_TENANT;
            buf_printf(b, ",\"%s\":", heat_member((enum heat_name)i));
            bound_put(b, hex && dir_codec_bounds_are_hex(s->only), c->name[i]);
        }
    }
    if (c->row != NULL) {
        buf_put_str(b, ",\"from\":");
        json_put_time(b, wall - s->heat_ms + c->row->from_ms);
        buf_put_str(b, ",\"to\":");
        json_put_time(b, wall - s->heat_ms + c->row->to_ms);
        put_share(b, "times_median", c->times_median);
    }
    if (strcmp(c->kind, "none") != 0) {
        put_share(b, "share", c->share);
    }
    buf_printf(b, ",\"why\":\"%s\"}", c->why);
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
    struct evidence e[HEAT_NAMES] = {0};
    read_tenants(s, &e[HEAT_BY_TENANT]);
    struct cause cause = of_tenants(&e[HEAT_BY_TENANT]);
    for (unsigned i = HEAT_BY_OPERATION; cause.row != NULL && i <= HEAT_BY_OUTCOME; i++) {
        blame_name(s, (enum heat_name)i, &e[i], &cause);
    }
    if (strcmp(cause.kind, "none") == 0 && node != NULL) {
        buf_printf(b,
                   ",\"cause\":{\"kind\":\"node\",\"node\":\"%s\",\"why\":\"a node bears more than "
                   "others, and no single partition, tenant or time explains it\"}",
                   s->fleet.nodes[node->node].name);
    } else {
        put_cause(b, s, &cause);
    }
    for (unsigned i = 0; i < HEAT_NAMES; i++) {
        heat_map_close(&e[i].map);
    }
}
