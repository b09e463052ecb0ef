/* SPDX-License-Identifier: Apache-2.0 */
#include "balancer/heat_internal.h"

#include "base/assert.h"
#include "base/mem.h"

#include <string.h>

enum { BY_BYTES = HEAT_SERIES_MAX * sizeof(double *) };

const struct heat_level heat_levels[LEVELS] = {{0, HEAT_FINE_ROWS, HEAT_FINE_MS},
                                               {HEAT_FINE_ROWS, HEAT_COARSE_ROWS, HEAT_COARSE_MS}};

struct heat *heat_new(uint64_t bytes_max)
{
    struct heat *h = mem_zalloc(sizeof *h);
    h->max = bytes_max;
    return h;
}

uint64_t heat_bytes(const struct heat *h)
{
    return h->bytes;
}

/* --- layouts and rows --- */

static size_t cells_bytes(const struct layout *l)
{
    return l->count * sizeof(double);
}

void heat_drop_layout(struct heat *h, struct layout *l)
{
    if (l != NULL && --l->refs == 0) {
        h->bytes -= l->bytes;
        mem_free(l);
    }
}

void heat_drop_series(struct heat *h, struct row *row, uint32_t series)
{
    if (row->by != NULL && row->by[series] != NULL) {
        h->bytes -= cells_bytes(row->layout);
        mem_free(row->by[series]);
        row->by[series] = NULL;
    }
}

void heat_empty_row(struct heat *h, struct row *row)
{
    for (unsigned r = 0; r < LOAD_RESOURCES; r++) {
        if (row->cells[r] != NULL) {
            h->bytes -= cells_bytes(row->layout);
            mem_free(row->cells[r]);
        }
    }
    for (uint32_t i = 0; i < HEAT_SERIES_MAX; i++) {
        heat_drop_series(h, row, i);
    }
    if (row->by != NULL) {
        h->bytes -= BY_BYTES;
        mem_free(row->by);
    }
    heat_drop_layout(h, row->layout);
    *row = (struct row){0};
}

static void empty_field(struct heat *h, struct field *f)
{
    for (uint32_t i = 0; i < ROWS; i++) {
        heat_empty_row(h, &f->rows[i]);
    }
    heat_drop_layout(h, f->layout);
    f->layout = NULL;
    if (f->series != NULL) {
        h->bytes -= HEAT_SERIES_MAX * sizeof f->series[0];
        mem_free(f->series);
        f->series = NULL;
    }
}

void heat_free(struct heat *h)
{
    for (uint32_t i = 0; i < h->count; i++) {
        empty_field(h, h->fields[i]);
        mem_free(h->fields[i]);
    }
    mem_free(h);
}

/* The oldest row of all goes, but `keep`; false when there is none. */
static bool forget_oldest(struct heat *h, const struct row *keep)
{
    struct row *oldest = NULL;
    for (uint32_t i = 0; i < h->count; i++) {
        for (uint32_t k = 0; k < ROWS; k++) {
            struct row *row = &h->fields[i]->rows[k];
            if (row->to_ms != 0 && row != keep && (oldest == NULL || row->to_ms < oldest->to_ms)) {
                oldest = row;
            }
        }
    }
    if (oldest != NULL) {
        heat_empty_row(h, oldest);
    }
    return oldest != NULL;
}

struct layout *heat_new_layout(struct heat *h, const struct heat_columns *from)
{
    size_t bytes = sizeof(struct layout) + from->count * sizeof from->starts[0];
    for (uint32_t i = 0; i < from->count; i++) {
        bytes += from->starts[i].len;
    }
    while (h->bytes + bytes > h->max && forget_oldest(h, NULL)) {
    }
    struct layout *l = mem_alloc(bytes);
    uint8_t *at = (uint8_t *)&l->starts[from->count];
    *l = (struct layout){
        .refs = 1, .count = from->count, .partitions = from->partitions, .bytes = bytes};
    for (uint32_t i = 0; i < l->count; i++) {
        size_t len = from->starts[i].len;
        if (len > 0) {
            memcpy(at, from->starts[i].data, len);
        }
        l->starts[i] = slice_of(at, len);
        at += len;
    }
    h->bytes += bytes;
    return l;
}

bool heat_is_layout(const struct layout *l, const struct heat_columns *c)
{
    bool same = l != NULL && l->count == c->count && l->partitions == c->partitions;
    for (uint32_t i = 0; same && i < c->count; i++) {
        same = slice_eq(l->starts[i], c->starts[i]);
    }
    return same;
}

/* The last start that is not above `key`, or, for an end, that is below it. */
static uint32_t column_of(const struct slice *starts, uint32_t count, struct slice key, bool end)
{
    uint32_t low = 0, high = count - 1;
    while (low < high) {
        uint32_t middle = low + (high - low + 1) / 2;
        if (slice_cmp(starts[middle], key) < (end ? 0 : 1)) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

struct span
heat_span(const struct slice *starts, uint32_t count, struct slice start, const struct slice *end)
{
    struct span s = {column_of(starts, count, start, false), count - 1};
    if (end != NULL) {
        s.last = column_of(starts, count, *end, true);
    }
    return s.last >= s.first ? s : (struct span){s.first, s.first};
}

/* --- keyspaces --- */

struct field *heat_find(const struct heat *h, uint64_t keyspace)
{
    for (uint32_t i = 0; i < h->count; i++) {
        if (h->fields[i]->keyspace == keyspace) {
            return h->fields[i];
        }
    }
    return NULL;
}

/* One that was silent for longer than is kept, or NULL. */
static struct field *forgotten(const struct heat *h, uint64_t now_ms)
{
    for (uint32_t i = 0; i < h->count; i++) {
        if (h->fields[i]->told_ms + HEAT_COARSE_ROWS * HEAT_COARSE_MS < now_ms) {
            return h->fields[i];
        }
    }
    return NULL;
}

/* NULL when there is no room. */
struct field *heat_find_or_add(struct heat *h, uint64_t keyspace, uint64_t now_ms)
{
    struct field *f = heat_find(h, keyspace);
    if (f != NULL) {
        return f;
    }
    if (h->count < HEAT_KEYSPACES_MAX) {
        f = h->fields[h->count++] = mem_zalloc(sizeof *f);
    } else if ((f = forgotten(h, now_ms)) != NULL) {
        empty_field(h, f);
    } else {
        return NULL;
    }
    *f = (struct field){.keyspace = keyspace};
    return f;
}

bool heat_is_due(const struct heat *h, uint64_t keyspace, uint64_t now_ms)
{
    const struct field *f = heat_find(h, keyspace);
    if (f == NULL) {
        return h->count < HEAT_KEYSPACES_MAX || forgotten(h, now_ms) != NULL;
    }
    return f->minute < now_ms / HEAT_FINE_MS + 1;
}

void heat_set_columns(struct heat *h,
                      uint64_t keyspace,
                      const struct heat_columns *columns,
                      uint64_t now_ms)
{
    ASSERT(columns->count > 0 && columns->count <= HEAT_COLUMNS_MAX && columns->starts[0].len == 0);
    struct field *f = heat_find_or_add(h, keyspace, now_ms);
    if (f == NULL) {
        return;
    }
    f->minute = now_ms / HEAT_FINE_MS + 1;
    f->told_ms = now_ms;
    if (!heat_is_layout(f->layout, columns)) {
        struct layout *fresh = heat_new_layout(h, columns); /* before: it may copy the old one's */
        heat_drop_layout(h, f->layout);
        f->layout = fresh;
    }
}

struct heat_columns heat_columns_of(const struct heat *h, uint64_t keyspace)
{
    const struct field *f = heat_find(h, keyspace);
    return f == NULL || f->layout == NULL
               ? (struct heat_columns){0}
               : (struct heat_columns){f->layout->starts, f->layout->count, f->layout->partitions};
}

/* --- putting --- */

/* NULL: it is older than what is kept. */
static struct row *row_at(struct heat *h, struct field *f, unsigned level, uint64_t index)
{
    struct row *row = &f->rows[heat_levels[level].first + index % heat_levels[level].rows];
    uint64_t from = index * heat_levels[level].ms;
    if (row->to_ms != 0 && row->from_ms > from) {
        return NULL;
    }
    if (row->to_ms == 0 || row->from_ms < from) {
        heat_empty_row(h, row);
        row->from_ms = from;
        row->to_ms = from + heat_levels[level].ms;
        row->heard_from = row->to_ms;
        row->heard_to = from;
        row->layout = f->layout;
        row->layout->refs++;
    }
    return row;
}

void *heat_take(struct heat *h, size_t need, const struct row *keep)
{
    while (h->bytes + need > h->max && forget_oldest(h, keep)) {
    }
    h->bytes += need;
    return mem_zalloc(need);
}

double *heat_cells(struct heat *h, struct row *row, double **at)
{
    if (*at == NULL) {
        *at = heat_take(h, cells_bytes(row->layout), row);
    }
    return *at;
}

double *heat_cells_by(struct heat *h, struct row *row, uint32_t series)
{
    if (row->by == NULL) {
        row->by = heat_take(h, BY_BYTES, row);
    }
    return heat_cells(h, row, &row->by[series]);
}

/* `overlap_ms` of the interval lie in this row. */
static void put_row(struct heat *h,
                    struct row *row,
                    struct span at,
                    const struct load_sample *s,
                    uint64_t overlap_ms)
{
    double parts = at.last - at.first + 1;
    for (unsigned r = 0; r < LOAD_RESOURCES; r++) {
        if ((s->has & 1U << r) == 0) {
            continue;
        }
        double *cells = heat_cells(h, row, &row->cells[r]), value = (double)s->value[r];
        if (load_is_count((enum load_resource)r)) {
            value = value * (double)overlap_ms / (double)s->interval_ms / parts;
        } else if (!heat_is_time(r)) {
            value = value * (double)overlap_ms / parts;
        }
        for (uint32_t c = at.first; c <= at.last; c++) {
            if (!heat_is_time(r)) {
                cells[c] += value;
            } else if (value > cells[c]) {
                cells[c] = value;
            }
        }
    }
}

static void put_parts(struct heat *h,
                      struct row *row,
                      struct span at,
                      const struct load_sample *s,
                      const uint32_t *series,
                      uint64_t overlap_ms)
{
    double scale = (double)overlap_ms / (double)s->interval_ms / (at.last - at.first + 1);
    for (uint32_t i = 0; i < s->part_count; i++) {
        double *cells = heat_cells_by(h, row, series[i]);
        for (uint32_t c = at.first; c <= at.last; c++) {
            cells[c] += (double)s->parts[i].requests * scale;
        }
    }
}

void heat_put(struct heat *h,
              uint64_t keyspace,
              struct slice start,
              const struct slice *end,
              const struct load_sample *s,
              uint64_t now_ms)
{
    struct field *f = heat_find(h, keyspace);
    uint64_t from = now_ms > s->interval_ms ? now_ms - s->interval_ms : 0;
    uint32_t series[LOAD_PARTS_MAX];
    if (f == NULL || f->layout == NULL || now_ms == 0) {
        return;
    }
    f->told_ms = now_ms;
    for (uint32_t i = 0; i < s->part_count; i++) {
        const struct load_part *p = &s->parts[i];
        const struct slice names[HEAT_NAMES] = {p->operation, p->outcome, p->tenant};
        series[i] = heat_series_of(h, f, names, now_ms);
    }
    for (unsigned level = 0; level < LEVELS; level++) {
        uint64_t ms = heat_levels[level].ms;
        for (uint64_t i = from / ms; i <= (now_ms - 1) / ms; i++) {
            struct row *row = row_at(h, f, level, i);
            if (row == NULL) {
                continue;
            }
            uint64_t begin = from > row->from_ms ? from : row->from_ms;
            uint64_t last = now_ms < row->to_ms ? now_ms : row->to_ms;
            struct span at = heat_span(row->layout->starts, row->layout->count, start, end);
            put_row(h, row, at, s, last - begin);
            put_parts(h, row, at, s, series, last - begin);
            row->told_ms = now_ms > row->told_ms ? now_ms : row->told_ms;
            row->heard_from = begin < row->heard_from ? begin : row->heard_from;
            row->heard_to = last > row->heard_to ? last : row->heard_to;
        }
    }
}
