/* SPDX-License-Identifier: Apache-2.0 */
/* GET /v1/skew's answer. */
#include "api/skew_view.h"

#include "api/heat_view.h"
#include "api/json.h"
#include "api/route_json.h"
#include "base/mem.h"
#include "directory/codec.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What a figure of a resource is divided by to be shown: thousandths, but sizes. */
static double unit_of(unsigned r)
{
    return r >= LOAD_SIZE && r != SKEW_REQUESTS ? 1 : 1000;
}

static bool is_rate(unsigned r)
{
    return r == SKEW_REQUESTS || load_is_count((enum load_resource)r);
}

void skew_put_number(struct buf *b, const char *name, double v)
{
    v = isfinite(v) ? v : 0;
    if (name != NULL) {
        buf_printf(b, "\"%s\":", name);
    }
    if (v == floor(v) && fabs(v) < 1e15) {
        buf_printf(b, "%.0f", v == 0 ? 0 : v); /* not -0 */
    } else {
        buf_printf(b, "%.3f", v);
    }
}

static void put_next(struct buf *b, const char *name, double v)
{
    buf_put_u8(b, ',');
    skew_put_number(b, name, v);
}

static void put_load(struct buf *b, unsigned r, double v)
{
    buf_printf(b, ",\"%s%s\":", skew_resource_name(r), is_rate(r) ? "_per_s" : "");
    skew_put_number(b, NULL, round(v / unit_of(r)));
}

/* --- statistics --- */

static void put_stats(struct buf *b, const struct skew_stats *s, double unit)
{
    buf_printf(b, "{\"count\":%" PRIu64, s->count);
    put_next(b, "mean", s->mean / unit);
    put_next(b, "median", s->median / unit);
    put_next(b, "p90", s->p90 / unit);
    put_next(b, "p99", s->p99 / unit);
    put_next(b, "max", s->max / unit);
    put_next(b, "max_to_mean", s->max_to_mean);
    put_next(b, "max_to_median", s->max_to_median);
    put_next(b, "p99_to_median", s->p99_to_median);
    put_next(b, "p90_to_median", s->p90_to_median);
    put_next(b, "top1_share", s->top1);
    put_next(b, "top10_share", s->top10);
    put_next(b, "top100_share", s->top100);
    put_next(b, "above_safe_share", s->above_bound);
    put_next(b, "jain", s->jain);
    put_next(b, "cv2", s->cv2);
    put_next(b, "gini", s->gini);
}

static void put_resource(struct buf *b, const struct skew_view *s, unsigned r, double *scratch)
{
    struct skew_stats stats;
    bool by_capacity = skew_has_capacity(&s->fleet, r);
    double least = skew_floor(&s->fleet, r);
    skew_of_partitions(&s->fleet, r, scratch, &stats);
    buf_printf(b, "\"%s\":{\"unit\":\"%s\",\"partitions\":", skew_resource_name(r),
               is_rate(r)       ? "per_s"
               : r < LOAD_SIZE  ? "ms"
               : r == LOAD_SIZE ? "bytes"
                                : "count");
    put_stats(b, &stats, unit_of(r));
    buf_put_str(b, "},\"nodes\":");
    skew_of_nodes(&s->fleet, r, scratch, &stats);
    put_stats(b, &stats, by_capacity ? 1 : unit_of(r));
    buf_printf(b, ",\"by_capacity\":%s", by_capacity ? "true" : "false");
    put_next(b, "least_max_to_mean", least);
    put_next(b, "max_to_least", stats.max_to_mean / least);
    buf_put_str(b, "}}");
}

static void put_resources(struct buf *b, const struct skew_view *s)
{
    uint32_t n = s->fleet.partition_count > s->fleet.node_count ? s->fleet.partition_count
                                                                : s->fleet.node_count;
    double *scratch = mem_alloc((n + 1) * sizeof scratch[0]);
    bool any = false;
    buf_put_str(b, ",\"resources\":{");
    for (unsigned i = 0; i < SKEW_RESOURCES; i++) {
        unsigned r = i == 0 ? SKEW_REQUESTS : i - 1;
        bool used = false;
        for (uint32_t k = 0; k < s->fleet.partition_count && !used; k++) {
            used = s->fleet.partitions[k].load[r] > 0;
        }
        if (used) {
            buf_put_str(b, any ? "," : "");
            put_resource(b, s, r, scratch);
            any = true;
        }
    }
    buf_put_u8(b, '}');
    mem_free(scratch);
}

/* --- by label, by tenant --- */

static double total_of(const struct skew_view *s, unsigned r)
{
    double sum = 0;
    for (uint32_t i = 0; i < s->fleet.partition_count; i++) {
        sum += (double)s->fleet.partitions[i].load[r];
    }
    return sum;
}

static double share(double part, double all)
{
    return all > 0 ? part / all : 0;
}

static void put_labels(struct buf *b, const struct skew_view *s)
{
    const struct skew_label *sums = s->labels;
    double all = total_of(s, SKEW_REQUESTS);
    buf_put_str(b, ",\"labels\":[");
    for (uint32_t i = 0; i < s->label_count; i++) {
        buf_printf(b, "%s{\"label\":\"%s\",\"value\":", i > 0 ? "," : "", sums[i].label->name);
        json_put_cstring(b, sums[i].label->value);
        buf_printf(b, ",\"nodes\":%" PRIu64, sums[i].nodes);
        put_load(b, SKEW_REQUESTS, sums[i].load[SKEW_REQUESTS]);
        put_load(b, LOAD_CPU, sums[i].load[LOAD_CPU]);
        put_load(b, LOAD_SIZE, sums[i].load[LOAD_SIZE]);
        put_next(b, "share", share(sums[i].load[SKEW_REQUESTS], all));
        put_next(b, "mean_of_nodes_per_s",
                 round(sums[i].load[SKEW_REQUESTS] / 1000 / (double)sums[i].nodes));
        if (sums[i].capacity[SKEW_REQUESTS] > 0) {
            put_next(b, "utilization",
                     sums[i].load[SKEW_REQUESTS] / sums[i].capacity[SKEW_REQUESTS]);
        }
        buf_put_u8(b, '}');
    }
    buf_put_u8(b, ']');
}

static int busiest_group(const void *a, const void *b)
{
    double x = ((const struct skew_group *)a)->load[SKEW_REQUESTS];
    double y = ((const struct skew_group *)b)->load[SKEW_REQUESTS];
    return x > y ? -1 : x < y;
}

static void put_groups(struct buf *b, const struct skew_view *s)
{
    double all = total_of(s, SKEW_REQUESTS);
    bool hex = s->only != NULL && dir_codec_bounds_are_hex(s->only);
    struct skew_group *groups = mem_dup(s->groups, (s->group_count + 1) * sizeof groups[0]);
    qsort(groups, s->group_count, sizeof groups[0], busiest_group);
    buf_put_str(b, ",\"groups\":[");
    for (uint32_t i = 0; i < s->group_count && i < SKEW_LISTED_MAX; i++) {
        buf_put_str(b, i > 0 ? ",{\"prefix\":" : "{\"prefix\":");
        bound_put(b, hex, groups[i].prefix);
        buf_printf(b, ",\"partitions\":%" PRIu64, groups[i].partitions);
        put_load(b, SKEW_REQUESTS, groups[i].load[SKEW_REQUESTS]);
        put_load(b, LOAD_CPU, groups[i].load[LOAD_CPU]);
        put_load(b, LOAD_SIZE, groups[i].load[LOAD_SIZE]);
        put_next(b, "share", share(groups[i].load[SKEW_REQUESTS], all));
        buf_put_u8(b, '}');
    }
    buf_put_u8(b, ']');
    mem_free(groups);
}

/* --- headroom --- */

/* The value of the label whose loss would leave the least; NULL when no node has the label. */
static const char *worst_loss(const struct skew_view *s, unsigned r, const char *label, double *ret)
{
    const char *worst = NULL;
    for (uint32_t i = 0; i < s->fleet.node_count; i++) {
        const struct skew_node *n = &s->fleet.nodes[i];
        for (uint32_t k = 0; n->alive && k < n->label_count; k++) {
            if (strcmp(n->labels[k].name, label) != 0) {
                continue;
            }
            double left = skew_headroom(&s->fleet, r, label, n->labels[k].value);
            if (worst == NULL || left < *ret) {
                worst = n->labels[k].value;
                *ret = left;
            }
        }
    }
    return worst;
}

static void put_headroom(struct buf *b, const struct skew_view *s)
{
    const char *label = s->only != NULL && s->only->placement.spread[0] != '\0'
                            ? s->only->placement.spread
                            : "zone";
    bool any = false;
    buf_put_str(b, ",\"headroom\":[");
    for (unsigned r = 0; r < SKEW_RESOURCES; r++) {
        double left = 0;
        if (!skew_has_capacity(&s->fleet, r)) {
            continue;
        }
        buf_printf(b, "%s{\"resource\":\"%s\"", any ? "," : "", skew_resource_name(r));
        put_next(b, "now", skew_headroom(&s->fleet, r, NULL, NULL));
        const char *value = worst_loss(s, r, label, &left);
        if (value != NULL) {
            buf_printf(b, ",\"one_lost\":{\"label\":\"%s\",\"value\":", label);
            json_put_cstring(b, value);
            put_next(b, "headroom", left);
            buf_put_u8(b, '}');
        }
        buf_put_u8(b, '}');
        any = true;
    }
    buf_put_u8(b, ']');
}

/* --- findings --- */

static void put_key(struct buf *b, const struct dir_keyspace *ks, struct slice routing)
{
    size_t token = ks->scheme == DIR_SCHEME_HASH && routing.len >= 8 ? 8 : 0;
    bound_put(b, ks->key_encoding == DIR_ENCODING_HEX,
              slice_of(routing.data + token, routing.len - token));
}

static void put_salts(struct buf *b, const struct skew_view *s, const struct skew_finding *x)
{
    const struct skew_salts *salts = &x->salts;
    double unit = unit_of(x->resource);
    if (salts->salts == 0) {
        return;
    }
    buf_printf(b, ",\"salts\":{\"count\":%" PRIu32 ",\"placed_by\":\"%s\"", salts->salts,
               salts->placed ? "key" : "load");
    put_next(b, "owner_load_now", round(salts->unsplit_load / unit));
    put_next(b, "largest_owner_load", round(salts->largest_load / unit));
    put_next(b, "limit", round(salts->limit / unit));
    buf_printf(b, ",\"fits\":%s,\"sharing_an_owner\":%" PRIu32 ",\"owners\":[",
               salts->fits ? "true" : "false", salts->shared);
    for (uint32_t i = 0; i < salts->salts; i++) {
        buf_printf(b, "%s\"%s\"", i > 0 ? "," : "", s->fleet.nodes[salts->owner[i]].name);
    }
    buf_put_str(b, "]}");
}

/* At the key and, if it alone is hot, just after it; what lies outside of the range is left out. */
static void put_split(struct buf *b, const struct skew_view *s, uint32_t i)
{
    const struct sketch_split *split = &s->fleet.partitions[i].keys->split;
    const struct dir_partition *p = s->rows[i];
    struct slice end = dir_partition_end(p);
    bool hex = dir_codec_bounds_are_hex(skew_keyspace(s, i)), any = false;
    uint8_t after[DIR_ROUTING_KEY_MAX + 1];
    struct slice at[2] = {split->at, slice_of(after, split->at.len + 1)};
    memcpy(after, split->at.data, split->at.len);
    after[split->at.len] = 0;
    buf_put_str(b, ",\"split_at\":[");
    for (unsigned k = 0; k < (split->verdict == SKETCH_ISOLATE ? 2U : 1U); k++) {
        if (slice_cmp(at[k], dir_partition_start(p)) > 0 && at[k].len <= DIR_ROUTING_KEY_MAX &&
            (p->end_open || slice_cmp(at[k], end) < 0)) {
            buf_put_str(b, any ? "," : "");
            bound_put(b, hex, at[k]);
            any = true;
        }
    }
    buf_put_u8(b, ']');
    put_next(b, "left_share", split->left_ppm / 1e6);
    put_next(b, "contained_share", split->contained_ppm / 1e6);
}

/* What the key may be asked for so that its node stays safe with all else that it bears. */
static void put_safe_rate(struct buf *b, const struct skew_view *s, const struct skew_finding *x)
{
    const struct skew_node *n = &s->fleet.nodes[x->node];
    const struct skew_partition *p = &s->fleet.partitions[x->partition];
    double hot = x->value * p->keys->top.share_ppm / 1e6;
    double safe = s->fleet.limits.safe * n->capacity[x->resource] - (n->load[x->resource] - hot);
    if (n->capacity[x->resource] > 0) {
        put_next(b, "safe_rate", round(safe > 0 ? safe / unit_of(x->resource) : 0));
    }
}

static void put_partition(struct buf *b, const struct skew_view *s, const struct skew_finding *x)
{
    const struct skew_partition *p = &s->fleet.partitions[x->partition];
    const struct dir_keyspace *ks = skew_keyspace(s, x->partition);
    bool key = x->kind == SKEW_HOT_KEY, split = x->remedy == SKEW_DO_SPLIT;
    buf_printf(b,
               ",\"keyspace\":\"%s\",\"partition\":%" PRIu64 ",\"epoch\":%" PRIu64 ",\"known\":%s",
               ks->name, p->id, s->rows[x->partition]->epoch, p->known ? "true" : "false");
    if (p->keys == NULL) {
        return;
    }
    if (p->keys->has_top) {
        buf_put_str(b, ",\"key\":");
        put_key(b, ks, p->keys->top.key);
        put_next(b, "key_share", p->keys->top.share_ppm / 1e6);
        put_next(b, "key_share_at_least", p->keys->top.share_low_ppm / 1e6);
    }
    if (split &&
        (p->keys->split.verdict == SKETCH_BALANCED || p->keys->split.verdict == SKETCH_ISOLATE)) {
        put_split(b, s, x->partition);
    }
    if (key && x->replicas > 0) {
        buf_printf(b, ",\"read_replicas\":%" PRIu32, x->replicas);
    }
    if (key && x->node != SKEW_NONE) {
        put_safe_rate(b, s, x);
        put_salts(b, s, x);
    }
}

static void put_finding(struct buf *b, const struct skew_view *s, const struct skew_finding *x)
{
    double unit = x->kind == SKEW_HOT_CLUSTER ? 1 : unit_of(x->resource);
    buf_printf(b, "{\"finding\":\"%s\",\"resource\":\"%s\"", skew_kind_name(x->kind),
               skew_resource_name(x->resource));
    if (x->node != SKEW_NONE) {
        buf_printf(b, ",\"node\":\"%s\"", s->fleet.nodes[x->node].name);
    }
    if (x->partition != SKEW_NONE) {
        put_partition(b, s, x);
    }
    put_next(b, "value", x->value / unit);
    put_next(b, "bound", x->bound / unit);
    buf_printf(b, ",\"remedy\":\"%s\",\"why\":\"%s\"}", skew_remedy_name(x->remedy), x->why);
}

static void put_findings(struct buf *b, const struct skew_view *s)
{
    static const struct {
        const char *name;
        enum skew_kind first, last;
    } lists[] = {{"hot_cluster", SKEW_HOT_CLUSTER, SKEW_HOT_CLUSTER},
                 {"hot_keys", SKEW_HOT_KEY, SKEW_HOT_KEY},
                 {"frontiers", SKEW_FRONTIER, SKEW_FRONTIER},
                 {"hot_partitions", SKEW_HOT_PARTITION, SKEW_HOT_PARTITION},
                 {"hot_nodes", SKEW_HOT_NODE, SKEW_HOT_NODE},
                 {"advisories", SKEW_UNEVEN_ACCESS, SKEW_TOO_LARGE}};
    struct skew_finding *all = mem_alloc(SKEW_FINDINGS_MAX * SKEW_KINDS * sizeof all[0]);
    uint32_t left_out, count = skew_findings(&s->fleet, all, &left_out), i = 0;
    for (size_t k = 0; k < sizeof lists / sizeof lists[0]; k++) {
        bool any = false;
        buf_printf(b, ",\"%s\":[", lists[k].name);
        for (; i < count && all[i].kind <= lists[k].last; i++) {
            buf_put_str(b, any ? "," : "");
            put_finding(b, s, &all[i]);
            any = true;
        }
        buf_put_u8(b, ']');
    }
    buf_printf(b, ",\"left_out\":%" PRIu32, left_out);
    skew_put_cause(b, s, all, count);
    mem_free(all);
}

/* By operation, outcome and tenant, as reports told them apart. */
static void put_shares(struct buf *b, const struct skew_view *s)
{
    static const char *const lists[HEAT_NAMES] = {"operations", "outcomes", "tenants"};
    for (unsigned i = 0; s->only != NULL && i < HEAT_NAMES; i++) {
        buf_printf(b, ",\"%s\":", lists[i]);
        heat_put_shares(b, loads_heats(s->loads), s->only->id, s->heat_ms, (enum heat_name)i);
    }
}

void skew_put(struct buf *b, const struct skew_view *s)
{
    uint32_t alive = 0;
    for (uint32_t i = 0; i < s->fleet.node_count; i++) {
        alive += s->fleet.nodes[i].alive ? 1 : 0;
    }
    buf_printf(b, "{\"revision\":%" PRIu64, s->view->revision);
    if (s->only != NULL) {
        buf_printf(b, ",\"keyspace\":\"%s\"", s->only->name);
    }
    buf_printf(b,
               ",\"partitions\":%" PRIu32 ",\"known\":%" PRIu64 ",\"nodes\":%" PRIu32
               ",\"nodes_lost\":%" PRIu32,
               s->fleet.partition_count, s->known, alive, s->fleet.node_count - alive);
    put_resources(b, s);
    put_labels(b, s);
    put_groups(b, s);
    put_shares(b, s);
    put_headroom(b, s);
    skew_put_growth(b, s);
    put_findings(b, s);
    buf_put_u8(b, '}');
}
