/* SPDX-License-Identifier: Apache-2.0 */
#include "api/skew_view.h"

#include "api/heat_view.h"
#include "api/json.h"
#include "base/mem.h"
#include "base/parse.h"
#include "directory/codec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a sketch says, copied: it goes on while we look. */
struct kept_keys {
    struct kept_keys *next;
    struct skew_keys keys;
    uint8_t bytes[];
};

const struct dir_keyspace *skew_keyspace(const struct skew_view *s, uint32_t partition)
{
    return s->only != NULL ? s->only : view_keyspace_by_id(s->view, s->rows[partition]->keyspace);
}

/* --- nodes --- */

static void take_capacity(struct skew_node *to, const struct dir_node *n)
{
    const struct dir_label *capacity = dir_node_capacity(n);
    for (uint32_t i = 0; i < n->capacity_count; i++) {
        uint64_t value = 0, unit;
        for (unsigned r = 0; r < SKEW_RESOURCES; r++) {
            const char *name = skew_capacity_name(r, &unit);
            if (name != NULL && strcmp(name, capacity[i].name) == 0 &&
                parse_u64(capacity[i].value, PARSE_INT_MAX, &value)) {
                to->capacity[r] = (double)value * (double)unit;
            }
        }
    }
}

static void take_nodes(struct skew_view *s)
{
    struct ptree_iter it;
    const struct dir_node *n;
    uint32_t at = 0;
    s->fleet.nodes = mem_zalloc((s->view->nodes.count + 1) * sizeof s->fleet.nodes[0]);
    s->node_rows = mem_zalloc((s->view->nodes.count + 1) * sizeof(void *));
    ptree_seek(&s->view->nodes, slice_of(NULL, 0), &it);
    for (; (n = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        s->node_rows[at] = n;
        s->fleet.nodes[at++] = (struct skew_node){.name = n->name,
                                                  .labels = n->tags,
                                                  .label_count = n->label_count,
                                                  .alive = view_node_is_live(n) && !n->lost};
        take_capacity(&s->fleet.nodes[at - 1], n);
    }
    s->fleet.node_count = at;
}

static int by_id(const void *a, const void *b)
{
    const struct dir_node *x = *(const struct dir_node *const *)a;
    const struct dir_node *y = *(const struct dir_node *const *)b;
    return x->id < y->id ? -1 : x->id > y->id;
}

static uint32_t node_index(const struct skew_view *s, const struct dir_node *n)
{
    const struct dir_node **found =
        n == NULL ? NULL
                  : bsearch(&n, s->node_rows, s->fleet.node_count, sizeof s->node_rows[0], by_id);
    return found != NULL ? (uint32_t)(found - s->node_rows) : SKEW_NONE;
}

/* --- partitions --- */

static struct slice keep(uint8_t **at, struct slice key)
{
    struct slice kept = slice_of(*at, key.len);
    memcpy(*at, key.data, key.len);
    *at += key.len;
    return kept;
}

static void take_keys(struct skew_view *s, uint32_t i, const struct sketch *sketch)
{
    struct skew_keys k = {.frontier = sketch_frontier(sketch)};
    k.has_top = sketch_top(sketch, &k.top);
    k.split = sketch_split(sketch, dir_partition_start(s->rows[i]));
    struct kept_keys *kept =
        mem_alloc(sizeof *kept + (k.has_top ? k.top.key.len : 0) + k.split.at.len);
    uint8_t *at = kept->bytes;
    if (k.has_top) {
        k.top.key = keep(&at, k.top.key);
    }
    if (k.split.at.data != NULL) {
        k.split.at = keep(&at, k.split.at);
    }
    kept->keys = k;
    kept->next = s->kept;
    s->kept = kept;
    s->fleet.partitions[i].keys = &kept->keys;
}

struct taking {
    struct skew_view *view;
    uint32_t i;
};

static void take_load(void *arg, const struct load_entry *e)
{
    struct taking *t = arg;
    struct skew_partition *p = &t->view->fleet.partitions[t->i];
    for (unsigned r = 0; r < LOAD_RESOURCES; r++) {
        p->load[r] =
            (float)load_value(e, (enum load_resource)r, r < LOAD_SIZE ? LOAD_MEAN : LOAD_FAST);
    }
    p->size_growth = (float)load_growth(e, LOAD_SIZE);
    p->known = load_known(e, t->view->now_ms);
    t->view->known += p->known ? 1 : 0;
    if (e->sketch != NULL) {
        take_keys(t->view, t->i, e->sketch);
    }
}

/* Partitions come in key order: those of a prefix follow each other. */
static uint32_t group_of(struct skew_view *s, const struct dir_partition *p)
{
    struct slice end = dir_partition_end(p);
    struct slice prefix = heat_prefix(dir_partition_start(p), p->end_open ? NULL : &end);
    uint32_t last = s->group_count - 1;
    if (prefix.len == 0) {
        return SKEW_NONE;
    }
    if (s->group_count > 0 && slice_eq(s->groups[last].prefix, prefix)) {
        return last;
    }
    if (s->group_count == SKEW_GROUPS_MAX) {
        return SKEW_NONE;
    }
    s->groups[s->group_count].prefix = prefix;
    return s->group_count++;
}

static void take_partitions(struct skew_view *s, const struct dir_keyspace *ks)
{
    struct ptree_iter it;
    const struct dir_partition *p;
    ptree_seek(view_map(s->view, ks), slice_of(NULL, 0), &it);
    for (; (p = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        struct taking t = {s, s->fleet.partition_count++};
        s->rows[t.i] = p;
        s->fleet.partitions[t.i] = (struct skew_partition){
            .id = p->id,
            .node = node_index(s, view_primary(s->view, p)),
            .group =
                s->only != NULL && ks->scheme == DIR_SCHEME_RANGE ? group_of(s, p) : SKEW_NONE};
        loads_look(s->loads, p->id, take_load, &t);
    }
}

static void take_keyspaces(struct skew_view *s)
{
    struct ptree_iter it;
    const struct dir_keyspace *ks;
    if (s->only != NULL) {
        take_partitions(s, s->only);
        return;
    }
    ptree_seek(&s->view->keyspaces_by_name, slice_of(NULL, 0), &it);
    for (; (ks = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        if (!ks->hidden) {
            take_partitions(s, ks);
        }
    }
}

/* --- limits --- */

static void take_limits(struct skew_limits *limits, const struct dir_keyspace *ks)
{
    json_t *policy = json_loadb(ks->policy, ks->policy_len, 0, NULL), *value;
    if ((value = json_object_get(policy, "uneven_access")) != NULL) {
        limits->uneven_access = json_number_value(value);
    }
    if ((value = json_object_get(policy, "uneven_size")) != NULL) {
        limits->uneven_size = json_number_value(value);
    }
    if ((value = json_object_get(policy, "too_many_items")) != NULL) {
        limits->too_many_items = (uint64_t)json_integer_value(value);
    }
    if ((value = json_object_get(policy, "too_large_bytes")) != NULL) {
        limits->too_large_bytes = (uint64_t)json_integer_value(value);
    }
    json_decref(policy);
}

/* --- salts --- */

/* "key#i" has a place of its own only where keys are hashed. */
static uint32_t salt_owner(void *arg, uint32_t partition, uint32_t i, uint32_t n)
{
    const struct skew_view *s = arg;
    const struct dir_keyspace *ks = skew_keyspace(s, partition);
    const struct skew_keys *k = s->fleet.partitions[partition].keys;
    uint8_t key[DIR_KEY_MAX + 16], routing[DIR_ROUTING_KEY_MAX];
    size_t len;
    struct err e;
    (void)n;
    if (ks->scheme != DIR_SCHEME_HASH || k->top.key.len < 8) {
        return SKEW_NONE;
    }
    len = k->top.key.len - 8; /* the token comes first */
    memcpy(key, k->top.key.data + 8, len);
    len += (size_t)snprintf((char *)key + len, 16, "#%u", (unsigned)i);
    if (dir_codec_routing_key(ks, slice_of(key, len), routing, &len, &e) != ERR_OK) {
        return SKEW_NONE;
    }
    return node_index(s, view_primary(s->view, view_route(s->view, ks, slice_of(routing, len))));
}

/* --- labels --- */

static struct skew_label *
find_label(struct skew_label *sums, uint32_t *count, const struct dir_label *label)
{
    for (uint32_t i = 0; i < *count; i++) {
        if (strcmp(sums[i].label->name, label->name) == 0 &&
            strcmp(sums[i].label->value, label->value) == 0) {
            return &sums[i];
        }
    }
    if (*count == SKEW_LISTED_MAX) {
        return NULL;
    }
    sums[*count].label = label;
    return &sums[(*count)++];
}

static int by_label(const void *a, const void *b)
{
    const struct dir_label *x = ((const struct skew_label *)a)->label;
    const struct dir_label *y = ((const struct skew_label *)b)->label;
    int order = strcmp(x->name, y->name);
    return order != 0 ? order : strcmp(x->value, y->value);
}

static void add_labels(struct skew_view *s)
{
    s->labels = mem_zalloc(SKEW_LISTED_MAX * sizeof s->labels[0]);
    for (uint32_t i = 0; i < s->fleet.node_count; i++) {
        const struct skew_node *n = &s->fleet.nodes[i];
        for (uint32_t k = 0; n->alive && k < n->label_count; k++) {
            struct skew_label *sum = find_label(s->labels, &s->label_count, &n->labels[k]);
            if (sum == NULL) {
                continue;
            }
            sum->nodes++;
            sum->sized += n->capacity[LOAD_SIZE] > 0 ? 1 : 0;
            sum->size_growth += n->size_growth;
            for (unsigned r = 0; r < SKEW_RESOURCES; r++) {
                sum->load[r] += n->load[r];
                sum->capacity[r] += n->capacity[r];
            }
        }
    }
    qsort(s->labels, s->label_count, sizeof s->labels[0], by_label);
}

/* --- all of it --- */

static void add_groups(struct skew_view *s)
{
    for (uint32_t i = 0; i < s->fleet.partition_count; i++) {
        const struct skew_partition *p = &s->fleet.partitions[i];
        if (p->group == SKEW_NONE) {
            continue;
        }
        s->groups[p->group].partitions++;
        s->groups[p->group].size_growth += (double)p->size_growth;
        for (unsigned r = 0; r < SKEW_RESOURCES; r++) {
            s->groups[p->group].load[r] += (double)p->load[r];
        }
    }
}

void skew_view_open(struct skew_view *s,
                    const struct dir_view *v,
                    const struct dir_keyspace *only,
                    struct loads *loads,
                    uint64_t now_ms)
{
    uint64_t most = only != NULL ? view_map(v, only)->count : v->partitions.count;
    *s = (struct skew_view){.view = v, .only = only, .loads = loads, .now_ms = now_ms};
    s->heat_ms = heats_clock(loads_heats(loads), now_ms);
    s->fleet.limits = skew_limits_default;
    s->fleet.salt_owner = salt_owner;
    s->fleet.arg = s;
    s->fleet.partitions = mem_zalloc((most + 1) * sizeof s->fleet.partitions[0]);
    s->rows = mem_zalloc((most + 1) * sizeof(void *));
    s->groups = mem_zalloc(SKEW_GROUPS_MAX * sizeof s->groups[0]);
    if (only != NULL) {
        take_limits(&s->fleet.limits, only);
    }
    take_nodes(s);
    take_keyspaces(s);
    skew_add_up(&s->fleet);
    add_groups(s);
    add_labels(s);
}

void skew_view_close(struct skew_view *s)
{
    mem_free(s->fleet.partitions);
    mem_free(s->fleet.nodes);
    mem_free(s->rows);
    mem_free(s->node_rows);
    mem_free(s->groups);
    mem_free(s->labels);
    for (struct kept_keys *kept = s->kept; kept != NULL;) {
        struct kept_keys *next = kept->next;
        mem_free(kept);
        kept = next;
    }
}
