/* SPDX-License-Identifier: Apache-2.0 */
#include "balancer/heat_internal.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

void heat_map_close(struct heat_map *m)
{
    mem_free(m->starts);
    mem_free(m->row);
    mem_free(m->bytes);
    mem_free(m->values);
    *m = (struct heat_map){0};
}

/* From when on there are fine rows, at the border of a coarse one. */
static uint64_t fine_from(const struct field *f)
{
    uint64_t newest = 0;
    for (uint32_t i = 0; i < HEAT_FINE_ROWS; i++) {
        newest = f->rows[i].to_ms > newest ? f->rows[i].to_ms : newest;
    }
    uint64_t kept = HEAT_FINE_ROWS * HEAT_FINE_MS;
    uint64_t from = newest > kept ? newest - kept : 0;
    return (from + HEAT_COARSE_MS - 1) / HEAT_COARSE_MS * HEAT_COARSE_MS;
}

static void copy_starts(struct heat_map *m, const struct slice *starts, uint32_t count)
{
    size_t bytes = 0, at = 0;
    for (uint32_t i = 0; i < count; i++) {
        bytes += starts[i].len;
    }
    m->columns = count;
    m->bytes = mem_alloc(bytes + 1);
    m->starts = mem_alloc(count * sizeof m->starts[0]);
    for (uint32_t i = 0; i < count; i++) {
        if (starts[i].len > 0) {
            memcpy(m->bytes + at, starts[i].data, starts[i].len);
        }
        m->starts[i] = slice_of(m->bytes + at, starts[i].len);
        at += starts[i].len;
    }
}

/* One row's cells, from its own columns to those of the map. */
static void lay(const struct heat_map *m,
                const struct row *row,
                const double *cells,
                unsigned r,
                double *values)
{
    const struct layout *l = row->layout;
    double heard = (double)(row->heard_to - row->heard_from);
    if (cells == NULL || heard <= 0) {
        return;
    }
    for (uint32_t i = 0; i < l->count; i++) {
        const struct slice *end = i + 1 < l->count ? &l->starts[i + 1] : NULL;
        struct span at = heat_span(m->starts, m->columns, l->starts[i], end);
        double value = cells[i];
        if (!heat_is_time(r)) {
            value /= load_is_count((enum load_resource)r) ? heard / 1000 : heard;
            value /= at.last - at.first + 1;
        }
        for (uint32_t c = at.first; c <= at.last; c++) {
            if (!heat_is_time(r)) {
                values[c] += value;
            } else if (value > values[c]) {
                values[c] = value;
            }
        }
    }
}

/* --- what is asked for --- */

struct reading {
    const struct field *f;
    unsigned r;                       /* without a filter */
    const struct heat_filter *filter; /* NULL: all requests, told apart or not */
    const uint32_t *column;           /* of each series; NULL: columns are those of keys */
};

static bool matches(const struct series *s, const struct heat_filter *filter)
{
    bool all = true;
    for (unsigned i = 0; i < HEAT_NAMES; i++) {
        all = all && (filter->name[i].len == 0 ||
                      slice_eq(filter->name[i], heat_series_name(s, (enum heat_name)i)));
    }
    return all;
}

static bool is_any(const struct heat_filter *filter)
{
    return filter->name[HEAT_BY_OPERATION].len == 0 && filter->name[HEAT_BY_OUTCOME].len == 0 &&
           filter->name[HEAT_BY_TENANT].len == 0;
}

static double sum_of(const struct row *row, const double *cells)
{
    double sum = 0;
    for (uint32_t i = 0; cells != NULL && i < row->layout->count; i++) {
        sum += cells[i];
    }
    return sum;
}

/* Each series to its column; what none of them has to the last one. */
static void
add_up(const struct reading *g, const struct heat_map *m, const struct row *row, double *values)
{
    double heard = (double)(row->heard_to - row->heard_from) / 1000;
    double rest = sum_of(row, row->cells[LOAD_READS]) + sum_of(row, row->cells[LOAD_WRITES]);
    if (heard <= 0) {
        return;
    }
    for (uint32_t i = 0; row->by != NULL && i < g->f->series_count; i++) {
        double sum = sum_of(row, row->by[i]);
        rest -= sum;
        if (matches(&g->f->series[i], g->filter)) {
            values[g->column[i]] += sum / heard;
        }
    }
    /* Each was at most its sample's own requests; below a millionth of one it is rounding. */
    if (is_any(g->filter) && rest > 1e-6) {
        values[m->columns - 1] += rest / heard;
    }
}

static void read_row(const struct reading *g, struct heat_map *m, const struct row *row)
{
    double *values = m->values + (size_t)m->rows * m->columns;
    m->row[m->rows++] = (struct heat_row){.from_ms = row->from_ms,
                                          .to_ms = row->to_ms,
                                          .heard_ms = row->heard_to - row->heard_from,
                                          .values = values};
    if (g->column != NULL) {
        add_up(g, m, row, values);
    } else if (g->filter != NULL) {
        for (uint32_t i = 0; row->by != NULL && i < g->f->series_count; i++) {
            if (matches(&g->f->series[i], g->filter)) {
                lay(m, row, row->by[i], LOAD_READS, values);
            }
        }
    } else if (g->r == HEAT_REQUESTS) {
        lay(m, row, row->cells[LOAD_READS], LOAD_READS, values);
        lay(m, row, row->cells[LOAD_WRITES], LOAD_WRITES, values);
    } else {
        lay(m, row, row->cells[g->r], g->r, values);
    }
}

/* The map has its columns. */
static void
read_rows(const struct reading *g, uint64_t from_ms, uint64_t to_ms, struct heat_map *ret)
{
    uint64_t border = fine_from(g->f);
    ret->row = mem_alloc(ROWS * sizeof ret->row[0]);
    ret->values = mem_zalloc((size_t)ROWS * ret->columns * sizeof ret->values[0]);
    for (unsigned level = LEVELS; level-- > 0;) {
        /* In time order from the ring's oldest, which follows the newest. */
        uint32_t newest = 0, count = heat_levels[level].rows;
        const struct row *rows = &g->f->rows[heat_levels[level].first];
        for (uint32_t i = 0; i < count; i++) {
            newest = rows[i].to_ms > rows[newest].to_ms ? i : newest;
        }
        for (uint32_t i = 1; i <= count; i++) {
            const struct row *row = &rows[(newest + i) % count];
            bool lap = row->to_ms + count * heat_levels[level].ms > rows[newest].to_ms;
            bool finest = level == 0 ? row->from_ms >= border : row->to_ms <= border;
            if (row->to_ms > from_ms && row->from_ms < to_ms && row->to_ms != 0 && lap && finest) {
                read_row(g, ret, row);
            }
        }
    }
}

/* With a column for each of the newest ranges. */
static bool
read_ranges(const struct reading *g, uint64_t from_ms, uint64_t to_ms, struct heat_map *ret)
{
    *ret = (struct heat_map){0};
    if (g->f == NULL || g->f->layout == NULL) {
        return false;
    }
    copy_starts(ret, g->f->layout->starts, g->f->layout->count);
    read_rows(g, from_ms, to_ms, ret);
    return true;
}

bool heat_read(const struct heat *h,
               uint64_t keyspace,
               unsigned r,
               uint64_t from_ms,
               uint64_t to_ms,
               struct heat_map *ret)
{
    const struct reading g = {.f = heat_find(h, keyspace), .r = r};
    return read_ranges(&g, from_ms, to_ms, ret);
}

bool heat_read_part(const struct heat *h,
                    uint64_t keyspace,
                    const struct heat_filter *filter,
                    uint64_t from_ms,
                    uint64_t to_ms,
                    struct heat_map *ret)
{
    const struct reading g = {.f = heat_find(h, keyspace), .filter = filter};
    return read_ranges(&g, from_ms, to_ms, ret);
}

/* --- by name --- */

static int by_bytes(const void *a, const void *b)
{
    return slice_cmp(*(const struct slice *)a, *(const struct slice *)b);
}

/* The names of what matches, in order, each once; how many. */
static uint32_t
names_of(const struct field *f, const struct heat_by *by, struct slice names[HEAT_SERIES_MAX + 1])
{
    uint32_t n = 0, count = 0;
    for (uint32_t i = 0; i < f->series_count; i++) {
        struct slice name = heat_series_name(&f->series[i], by->name);
        if (name.len > 0 && matches(&f->series[i], &by->filter)) {
            names[n++] = name;
        }
    }
    qsort(names, n, sizeof names[0], by_bytes);
    for (uint32_t i = 0; i < n; i++) {
        if (count == 0 || !slice_eq(names[count - 1], names[i])) {
            names[count++] = names[i];
        }
    }
    return count;
}

bool heat_read_by(const struct heat *h,
                  uint64_t keyspace,
                  const struct heat_by *by,
                  uint64_t from_ms,
                  uint64_t to_ms,
                  struct heat_map *ret)
{
    struct slice names[HEAT_SERIES_MAX + 1];
    uint32_t column[HEAT_SERIES_MAX] = {0};
    struct reading g = {.f = heat_find(h, keyspace), .filter = &by->filter, .column = column};
    *ret = (struct heat_map){0};
    if (g.f == NULL || g.f->layout == NULL) {
        return false;
    }
    uint32_t count = names_of(g.f, by, names);
    for (uint32_t i = 0; i < g.f->series_count; i++) {
        struct slice name = heat_series_name(&g.f->series[i], by->name);
        while (column[i] < count && !slice_eq(names[column[i]], name)) {
            column[i]++;
        }
    }
    names[count] = slice_of(NULL, 0);
    copy_starts(ret, names, count + 1);
    ret->starts[count] = slice_of(NULL, 0);
    read_rows(&g, from_ms, to_ms, ret);
    return true;
}
