/* SPDX-License-Identifier: Apache-2.0 */
/* What reaches its limit of bytes first: partitions, nodes, labels and tenants. */
#include "api/skew_view.h"

#include "api/json.h"
#include "api/route_json.h"
#include "directory/codec.h"

#include <inttypes.h>

struct growing {
    uint32_t i;
    double size, a_day, days; /* days < 0: there is no limit to reach */
};

/* The soonest so many, in order. */
struct soonest {
    struct growing list[SKEW_LISTED_MAX];
    uint32_t count;
};

static bool is_sooner(const struct growing *x, const struct growing *y)
{
    if ((x->days < 0) != (y->days < 0)) {
        return y->days < 0;
    }
    return x->days != y->days ? x->days < y->days : x->a_day > y->a_day;
}

/* `limit` 0: there is none. What does not grow is left out. */
static void keep(struct soonest *all, uint32_t i, double size, double a_day, double limit)
{
    struct growing g = {i, size, a_day, -1};
    if (a_day <= 0) {
        return;
    }
    if (limit > 0) {
        g.days = size >= limit ? 0 : (limit - size) / a_day;
    }
    uint32_t at = all->count < SKEW_LISTED_MAX ? all->count++ : SKEW_LISTED_MAX;
    for (; at > 0 && is_sooner(&g, &all->list[at - 1]); at--) {
        if (at < SKEW_LISTED_MAX) {
            all->list[at] = all->list[at - 1];
        }
    }
    if (at < SKEW_LISTED_MAX) {
        all->list[at] = g;
    }
}

static void put_growing(struct buf *b, const struct growing *g)
{
    buf_printf(b, ",\"size_bytes\":%.0f,\"bytes_per_day\":%.0f", g->size, g->a_day);
    if (g->days >= 0) {
        buf_put_u8(b, ',');
        skew_put_number(b, "days_to_limit", g->days);
    }
    buf_put_u8(b, '}');
}

static void put_partitions(struct buf *b, const struct skew_view *s)
{
    struct soonest all = {.count = 0};
    for (uint32_t i = 0; i < s->fleet.partition_count; i++) {
        const struct skew_partition *p = &s->fleet.partitions[i];
        keep(&all, i, (double)p->load[LOAD_SIZE], (double)p->size_growth,
             (double)s->fleet.limits.too_large_bytes);
    }
    buf_put_str(b, "\"partitions\":[");
    for (uint32_t i = 0; i < all.count; i++) {
        buf_printf(b, "%s{\"keyspace\":\"%s\",\"partition\":%" PRIu64, i > 0 ? "," : "",
                   skew_keyspace(s, all.list[i].i)->name, s->fleet.partitions[all.list[i].i].id);
        put_growing(b, &all.list[i]);
    }
    buf_put_u8(b, ']');
}

static void put_nodes(struct buf *b, const struct skew_view *s)
{
    struct soonest all = {.count = 0};
    for (uint32_t i = 0; i < s->fleet.node_count; i++) {
        const struct skew_node *n = &s->fleet.nodes[i];
        keep(&all, i, n->load[LOAD_SIZE], n->size_growth, n->capacity[LOAD_SIZE]);
    }
    buf_put_str(b, ",\"nodes\":[");
    for (uint32_t i = 0; i < all.count; i++) {
        buf_printf(b, "%s{\"node\":\"%s\"", i > 0 ? "," : "", s->fleet.nodes[all.list[i].i].name);
        put_growing(b, &all.list[i]);
    }
    buf_put_u8(b, ']');
}

/* The limit is that of its living nodes, when all of them have said theirs. */
static void put_labels(struct buf *b, const struct skew_view *s)
{
    struct soonest all = {.count = 0};
    for (uint32_t i = 0; i < s->label_count; i++) {
        const struct skew_label *l = &s->labels[i];
        keep(&all, i, l->load[LOAD_SIZE], l->size_growth,
             l->sized == l->nodes ? l->capacity[LOAD_SIZE] : 0);
    }
    buf_put_str(b, ",\"labels\":[");
    for (uint32_t i = 0; i < all.count; i++) {
        const struct dir_label *label = s->labels[all.list[i].i].label;
        buf_printf(b, "%s{\"label\":\"%s\",\"value\":", i > 0 ? "," : "", label->name);
        json_put_cstring(b, label->value);
        put_growing(b, &all.list[i]);
    }
    buf_put_u8(b, ']');
}

static void put_groups(struct buf *b, const struct skew_view *s)
{
    struct soonest all = {.count = 0};
    for (uint32_t i = 0; i < s->group_count; i++) {
        keep(&all, i, s->groups[i].load[LOAD_SIZE], s->groups[i].size_growth, 0);
    }
    buf_put_str(b, ",\"groups\":[");
    for (uint32_t i = 0; i < all.count; i++) {
        buf_put_str(b, i > 0 ? ",{\"prefix\":" : "{\"prefix\":");
        bound_put(b, dir_codec_bounds_are_hex(s->only), s->groups[all.list[i].i].prefix);
        put_growing(b, &all.list[i]);
    }
    buf_put_u8(b, ']');
}

void skew_put_growth(struct buf *b, const struct skew_view *s)
{
    buf_put_str(b, ",\"growth\":{");
    put_partitions(b, s);
    put_nodes(b, s);
    put_labels(b, s);
    put_groups(b, s);
    buf_put_u8(b, '}');
}
