/* SPDX-License-Identifier: Apache-2.0 */
/* Building and sealing a fleet. Columns grow together and are permuted together, so that the sealed
 * arrays are in the order of ids: everything that the planner does in array order is then
 * independent of the order in which the caller happened to list things. */
#include "balancer/fleet.h"

#include "base/assert.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

struct bal_building {
    uint64_t *next; /* ids, until they are resolved */
    uint32_t partition_room, copy_room, node_room, hint_room;
    bool nodes_done;
};

struct column {
    size_t at;   /* of the pointer in struct bal_fleet */
    size_t size; /* of an element */
};

#define COLUMN(name)                                                                               \
    {                                                                                              \
        offsetof(struct bal_fleet, name), sizeof *((struct bal_fleet *)0)->name                    \
    }

static const struct column partition_columns[] = {
    COLUMN(id),
    COLUMN(version),
    COLUMN(moved_ms),
    COLUMN(split_ms),
    COLUMN(merged_ms),
    COLUMN(calm_ms),
    COLUMN(next),
    COLUMN(tenant),
    COLUMN(flags),
    COLUMN(place),
    {offsetof(struct bal_fleet, load), BAL_RESOURCES * sizeof(uint64_t)},
};

static const struct column copy_columns[] = {
    COLUMN(copy_node),
    COLUMN(copy_to),
    COLUMN(copy_flags),
    COLUMN(copy_partition),
};

static void *column_data(struct bal_fleet *f, const struct column *c)
{
    void *p;
    memcpy(&p, (char *)f + c->at, sizeof p);
    return p;
}

static void column_set(struct bal_fleet *f, const struct column *c, void *p)
{
    memcpy((char *)f + c->at, &p, sizeof p);
}

static void grow(struct bal_fleet *f, const struct column *columns, size_t count, size_t room)
{
    for (size_t i = 0; i < count; i++) {
        void *data = column_data(f, &columns[i]);
        column_set(f, &columns[i], mem_realloc(data, room * columns[i].size));
    }
}

static uint32_t doubled(uint32_t room)
{
    return room < 64 ? 64 : room * 2;
}

void bal_fleet_init(struct bal_fleet *f)
{
    *f = (struct bal_fleet){0};
    f->building = mem_zalloc(sizeof *f->building);
    f->follower[BAL_CPU] = BAL_PERCENT(30);
    f->follower[BAL_READ] = BAL_PERCENT(10);
    f->follower[BAL_WRITE] = BAL_ONE;
    f->follower[BAL_BYTES] = BAL_ONE;
    f->follower[BAL_QUEUE] = BAL_PERCENT(20);
}

static void building_free(struct bal_fleet *f)
{
    if (f->building != NULL) {
        mem_free(f->building->next);
        mem_free(f->building);
        f->building = NULL;
    }
}

void bal_fleet_close(struct bal_fleet *f)
{
    building_free(f);
    for (size_t i = 0; i < sizeof partition_columns / sizeof *partition_columns; i++) {
        mem_free(column_data(f, &partition_columns[i]));
    }
    for (size_t i = 0; i < sizeof copy_columns / sizeof *copy_columns; i++) {
        mem_free(column_data(f, &copy_columns[i]));
    }
    mem_free(f->node_id);
    mem_free(f->node);
    mem_free(f->zone_of);
    mem_free(f->rack_of);
    mem_free(f->device_of);
    mem_free(f->node_load);
    mem_free(f->node_leaving);
    mem_free(f->held_begin);
    mem_free(f->held);
    mem_free(f->odd);
    mem_free(f->grouped);
    mem_free(f->hints);
    *f = (struct bal_fleet){0};
}

enum err_code bal_fleet_add_node(struct bal_fleet *f, const struct bal_node_spec *s, struct err *e)
{
    ASSERT(f->building != NULL && !f->building->nodes_done);
    if (s->id == 0) {
        return err_set_at(e, ERR_INVALID_REQUEST, "/id", "a node needs an id");
    }
    if (s->state < BAL_ELIGIBLE || s->state > BAL_DEAD) {
        return err_set_at(e, ERR_INVALID_REQUEST, "/state", "no such state");
    }
    if (f->node_count == BAL_NODES_MAX) {
        return err_set_at(e, ERR_INVALID_REQUEST, "", "more than %d nodes", BAL_NODES_MAX);
    }
    if (f->node_count == f->building->node_room) {
        f->building->node_room = doubled(f->building->node_room);
        f->node = mem_realloc(f->node, f->building->node_room * sizeof *f->node);
    }
    f->node[f->node_count] = *s;
    for (unsigned r = 0; r < BAL_RESOURCES; r++) {
        uint64_t capacity = bal_min(s->capacity[r], BAL_CAPACITY_MAX);
        f->node[f->node_count].capacity[r] = capacity;
        f->resources |= capacity > 0 ? 1U << r : 0;
    }
    f->node_count++;
    return ERR_OK;
}

static int by_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static int by_u32(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static int by_node_id(const void *a, const void *b)
{
    return by_u64(&((const struct bal_node_spec *)a)->id, &((const struct bal_node_spec *)b)->id);
}

/* Distinct labels get dense numbers, in the order of the labels. */
static uint32_t dense(const struct bal_fleet *f, size_t at, uint16_t **ret_of, uint32_t *ret_labels)
{
    uint32_t *labels = mem_alloc((f->node_count + 1) * sizeof *labels), count = 0;
    *ret_of = mem_alloc((f->node_count + 1) * sizeof **ret_of);
    for (uint32_t n = 0; n < f->node_count; n++) {
        memcpy(&labels[n], (const char *)&f->node[n] + at, sizeof labels[n]);
    }
    qsort(labels, f->node_count, sizeof *labels, by_u32);
    for (uint32_t n = 0; n < f->node_count; n++) {
        if (labels[n] != 0 && (count == 0 || labels[count - 1] != labels[n])) {
            labels[count++] = labels[n];
        }
    }
    for (uint32_t n = 0; n < f->node_count; n++) {
        uint32_t label;
        memcpy(&label, (const char *)&f->node[n] + at, sizeof label);
        const uint32_t *found = bsearch(&label, labels, count, sizeof *labels, by_u32);
        (*ret_of)[n] = found == NULL ? BAL_NO_NODE : (uint16_t)(found - labels);
    }
    if (ret_labels != NULL) {
        memcpy(ret_labels, labels, bal_min(count, BAL_ZONES_MAX) * sizeof *labels);
    }
    mem_free(labels);
    return count;
}

static void nodes_done(struct bal_fleet *f)
{
    if (f->building->nodes_done) {
        return;
    }
    f->building->nodes_done = true;
    if (f->node_count > 0) {
        qsort(f->node, f->node_count, sizeof *f->node, by_node_id);
    }
    f->node_id = mem_alloc((f->node_count + 1) * sizeof *f->node_id);
    for (uint32_t n = 0; n < f->node_count; n++) {
        f->node_id[n] = f->node[n].id;
    }
    f->zone_count = dense(f, offsetof(struct bal_node_spec, zone), &f->zone_of, f->zone_label);
    f->rack_count = dense(f, offsetof(struct bal_node_spec, rack), &f->rack_of, NULL);
    f->device_count = dense(f, offsetof(struct bal_node_spec, device), &f->device_of, NULL);
}

static enum err_code
check_partition(const struct bal_fleet *f, const struct bal_partition_spec *s, struct err *e)
{
    if (s->id == 0) {
        return err_set_at(e, ERR_INVALID_REQUEST, "/id", "a partition needs an id");
    }
    if (s->rule >= BAL_RULES_MAX) {
        return err_set_at(e, ERR_INVALID_REQUEST, "/rule", "more than %d rules", BAL_RULES_MAX);
    }
    if (s->copies > BAL_COPIES_MAX || s->wanted > BAL_COPIES_MAX) {
        return err_set_at(e, ERR_INVALID_REQUEST, "/copies", "more than %d copies", BAL_COPIES_MAX);
    }
    for (unsigned r = 0; r < BAL_RESOURCES; r++) {
        if (s->load[r] > BAL_LOAD_MAX) {
            return err_set_at(e, ERR_INVALID_REQUEST, "/load", "a load is beyond any node's");
        }
    }
    for (unsigned i = 0; i < s->copies; i++) {
        const struct bal_copy_spec *c = &s->copy[i];
        if (bal_fleet_node(f, c->node) == BAL_NO_NODE ||
            (c->to != 0 && bal_fleet_node(f, c->to) == BAL_NO_NODE)) {
            return err_set_at(e, ERR_INVALID_REQUEST, "/copy", "no such node");
        }
    }
    if (f->partition_count == BAL_PARTITIONS_MAX) {
        return err_set_at(e, ERR_INVALID_REQUEST, "", "more than %u partitions",
                          BAL_PARTITIONS_MAX);
    }
    return ERR_OK;
}

static void make_room(struct bal_fleet *f, uint32_t copies, bool hint)
{
    struct bal_building *b = f->building;
    if (f->partition_count == b->partition_room) {
        b->partition_room = doubled(b->partition_room);
        grow(f, partition_columns, sizeof partition_columns / sizeof *partition_columns,
             b->partition_room);
        b->next = mem_realloc(b->next, b->partition_room * sizeof *b->next);
    }
    if (f->copy_count + copies > b->copy_room) {
        b->copy_room = doubled(b->copy_room);
        grow(f, copy_columns, sizeof copy_columns / sizeof *copy_columns, b->copy_room);
    }
    if (hint && f->hint_count == b->hint_room) {
        b->hint_room = doubled(b->hint_room);
        f->hints = mem_realloc(f->hints, b->hint_room * sizeof *f->hints);
    }
}

enum err_code
bal_fleet_add_partition(struct bal_fleet *f, const struct bal_partition_spec *s, struct err *e)
{
    ASSERT(f->building != NULL);
    nodes_done(f);
    if (check_partition(f, s, e) != ERR_OK) {
        return ERR_INVALID_REQUEST;
    }
    make_room(f, s->copies, s->hint.samples > 0);
    uint32_t p = f->partition_count++;
    f->building->next[p] = s->next;
    f->id[p] = s->id;
    f->version[p] = s->version;
    f->moved_ms[p] = s->moved_ms;
    f->split_ms[p] = s->split_ms;
    f->merged_ms[p] = s->merged_ms;
    f->calm_ms[p] = s->calm_ms;
    f->place[p].group = s->group;
    f->tenant[p] = s->tenant;
    f->flags[p] = s->flags;
    f->place[p].rule = (uint8_t)s->rule;
    f->place[p].operation = s->operation;
    f->place[p].previous = s->previous == 0 ? BAL_NO_NODE : bal_fleet_node(f, s->previous);
    f->place[p].spread = s->spread;
    f->place[p].fanout = s->fanout == 0 ? 8 : s->fanout;
    f->place[p].wanted = s->wanted == 0 ? s->copies : s->wanted;
    memcpy(&f->load[(size_t)p * BAL_RESOURCES], s->load, sizeof s->load);
    f->place[p].copy_begin = f->copy_count;
    for (unsigned i = 0; i < s->copies; i++) {
        uint32_t c = f->copy_count++;
        f->copy_node[c] = bal_fleet_node(f, s->copy[i].node);
        f->copy_to[c] = s->copy[i].to == 0 ? BAL_NO_NODE : bal_fleet_node(f, s->copy[i].to);
        f->copy_flags[c] = (uint8_t)((s->copy[i].lost ? BAL_COPY_LOST : 0) |
                                     (s->copy[i].insync ? BAL_COPY_INSYNC : 0));
        f->copy_partition[c] = p;
    }
    if (s->hint.samples > 0) {
        f->hints[f->hint_count++] = (struct bal_hint_at){p, s->hint};
    }
    return ERR_OK;
}

struct numbered {
    uint64_t id;
    uint32_t index;
};

static void permute(struct bal_fleet *f, const struct numbered *order)
{
    uint32_t count = f->partition_count;
    for (size_t i = 0; i < sizeof partition_columns / sizeof *partition_columns; i++) {
        const struct column *c = &partition_columns[i];
        const char *from = column_data(f, c);
        char *to = mem_alloc(count * c->size);
        for (uint32_t p = 0; p < count; p++) {
            memcpy(to + p * c->size, from + order[p].index * c->size, c->size);
        }
        mem_free(column_data(f, c));
        column_set(f, c, to);
    }
    uint64_t *next = mem_alloc(count * sizeof *next);
    uint32_t *now_at = mem_alloc(count * sizeof *now_at);
    for (uint32_t p = 0; p < count; p++) {
        next[p] = f->building->next[order[p].index];
        now_at[order[p].index] = p;
    }
    mem_free(f->building->next);
    f->building->next = next;
    for (uint32_t h = 0; h < f->hint_count; h++) {
        f->hints[h].partition = now_at[f->hints[h].partition];
    }
    mem_free(now_at);
}

static int by_hint(const void *a, const void *b)
{
    return by_u32(&((const struct bal_hint_at *)a)->partition,
                  &((const struct bal_hint_at *)b)->partition);
}

/* The copies in the order of their partitions; copy_begin has the old places when `order` moved
 * them. */
static void permute_copies(struct bal_fleet *f, const uint32_t *counts)
{
    uint32_t *from = mem_alloc((f->copy_count + 1) * sizeof *from), at = 0;
    for (uint32_t p = 0; p < f->partition_count; p++) {
        uint32_t begin = f->place[p].copy_begin;
        f->place[p].copy_begin = at;
        for (uint32_t i = 0; i < counts[p]; i++) {
            from[at++] = begin + i;
        }
    }
    for (size_t i = 0; i < sizeof copy_columns / sizeof *copy_columns; i++) {
        const struct column *c = &copy_columns[i];
        const char *old = column_data(f, c);
        char *to = mem_alloc((f->copy_count + 1) * c->size);
        for (uint32_t k = 0; k < f->copy_count; k++) {
            memcpy(to + k * c->size, old + from[k] * c->size, c->size);
        }
        mem_free(column_data(f, c));
        column_set(f, c, to);
    }
    for (uint32_t p = 0; p < f->partition_count; p++) {
        for (uint32_t i = 0; i < counts[p]; i++) {
            f->copy_partition[f->place[p].copy_begin + i] = p;
        }
    }
    mem_free(from);
}

static void sort_partitions(struct bal_fleet *f)
{
    uint32_t count = f->partition_count;
    bool sorted = true;
    for (uint32_t p = 1; p < count && sorted; p++) {
        sorted = f->id[p - 1] <= f->id[p];
    }
    if (sorted) {
        return;
    }
    struct numbered *order = mem_alloc(count * sizeof *order);
    uint32_t *counts = mem_alloc(count * sizeof *counts);
    for (uint32_t p = 0; p < count; p++) {
        order[p] = (struct numbered){f->id[p], p};
    }
    qsort(order, count, sizeof *order, by_u64);
    for (uint32_t p = 0; p < count; p++) {
        uint32_t old = order[p].index;
        counts[p] = (old + 1 < count ? f->place[old + 1].copy_begin : f->copy_count) -
                    f->place[old].copy_begin;
    }
    permute(f, order);
    permute_copies(f, counts);
    if (f->hint_count > 0) {
        qsort(f->hints, f->hint_count, sizeof *f->hints, by_hint);
    }
    mem_free(counts);
    mem_free(order);
}

static void resolve_next(struct bal_fleet *f)
{
    for (uint32_t p = 0; p < f->partition_count; p++) {
        uint64_t id = f->building->next[p];
        bool beside = p + 1 < f->partition_count && f->id[p + 1] == id;
        f->next[p] = id == 0 ? BAL_NO_PARTITION : beside ? p + 1 : bal_fleet_partition(f, id);
    }
}

static void collect_groups(struct bal_fleet *f)
{
    struct numbered *all = NULL;
    uint32_t count = 0, room = 0;
    for (uint32_t p = 0; p < f->partition_count; p++) {
        if (f->place[p].group == 0) {
            continue;
        }
        if (count == room) {
            room = doubled(room);
            all = mem_realloc(all, room * sizeof *all);
        }
        all[count++] = (struct numbered){((uint64_t)f->place[p].group << 32) | p, p};
    }
    f->grouped = mem_alloc((count + 1) * sizeof *f->grouped);
    f->grouped_count = count;
    if (count > 0) {
        qsort(all, count, sizeof *all, by_u64);
    }
    for (uint32_t i = 0; i < count; i++) {
        f->grouped[i] = all[i].index;
    }
    mem_free(all);
}

enum err_code bal_fleet_seal(struct bal_fleet *f, struct err *e)
{
    ASSERT(f->building != NULL);
    nodes_done(f);
    sort_partitions(f);
    for (uint32_t n = 1; n < f->node_count; n++) {
        if (f->node_id[n] == f->node_id[n - 1]) {
            return err_set(e, ERR_INVALID_REQUEST, "a node is there twice");
        }
    }
    for (uint32_t p = 1; p < f->partition_count; p++) {
        if (f->id[p] == f->id[p - 1]) {
            return err_set(e, ERR_INVALID_REQUEST, "a partition is there twice");
        }
    }
    if (f->zone_count > BAL_ZONES_MAX) {
        return err_set(e, ERR_INVALID_REQUEST, "more than %d zones", BAL_ZONES_MAX);
    }
    make_room(f, 1, false);
    f->place = mem_realloc(f->place, (f->partition_count + 1) * sizeof *f->place);
    f->place[f->partition_count] = (struct bal_place){.copy_begin = f->copy_count};
    resolve_next(f);
    bal_fleet_recount(f);
    collect_groups(f);
    building_free(f);
    return ERR_OK;
}

static uint32_t find_id(const uint64_t *ids, uint32_t count, uint64_t id)
{
    uint32_t low = 0, high = count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (ids[middle] < id) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < count && ids[low] == id ? low : BAL_NO_PARTITION;
}

uint32_t bal_fleet_partition(const struct bal_fleet *f, uint64_t id)
{
    return find_id(f->id, f->partition_count, id);
}

uint16_t bal_fleet_node(const struct bal_fleet *f, uint64_t id)
{
    uint32_t at = find_id(f->node_id, f->node_count, id);
    return at == BAL_NO_PARTITION ? BAL_NO_NODE : (uint16_t)at;
}

const struct bal_hint *bal_fleet_hint(const struct bal_fleet *f, uint32_t p)
{
    const struct bal_hint_at key = {.partition = p};
    const struct bal_hint_at *found =
        f->hint_count == 0 ? NULL : bsearch(&key, f->hints, f->hint_count, sizeof key, by_hint);
    return found == NULL ? NULL : &found->hint;
}
