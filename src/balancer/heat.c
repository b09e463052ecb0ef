/* SPDX-License-Identifier: Apache-2.0 */
#include "balancer/heat.h"

#include "base/assert.h"
#include "base/mem.h"

#include <string.h>

enum { ROWS = HEAT_FINE_ROWS + HEAT_COARSE_ROWS, LEVELS = 2 };

static const struct {
    uint32_t first, rows;
    uint64_t ms;
} levels[LEVELS] = {{0, HEAT_FINE_ROWS, HEAT_FINE_MS},
                    {HEAT_FINE_ROWS, HEAT_COARSE_ROWS, HEAT_COARSE_MS}};

/* Columns of some time, shared by its rows. */
struct layout {
    uint32_t refs, count;
    uint64_t partitions;
    size_t bytes;
    struct slice starts[]; /* then their bytes */
};

struct row {
    uint64_t from_ms, to_ms;       /* to_ms 0: empty */
    uint64_t heard_from, heard_to; /* what reports were about */
    struct layout *layout;         /* holds a reference */
    double *cells[LOAD_RESOURCES]; /* own; NULL: never reported. Counts; times: the largest;
                                      sizes: times the ms that they held */
};

struct field {
    uint64_t keyspace, minute, told_ms; /* minute: of which the columns are, and one more */
    struct layout *layout;              /* holds a reference; NULL: none yet */
    struct row rows[ROWS];
};

struct heat {
    uint64_t bytes, max;
    uint32_t count;
    struct field *fields[HEAT_KEYSPACES_MAX]; /* owns */
};

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

static void drop_layout(struct heat *h, struct layout *l)
{
    if (l != NULL && --l->refs == 0) {
        h->bytes -= l->bytes;
        mem_free(l);
    }
}

static void empty_row(struct heat *h, struct row *row)
{
    for (unsigned r = 0; r < LOAD_RESOURCES; r++) {
        if (row->cells[r] != NULL) {
            h->bytes -= cells_bytes(row->layout);
            mem_free(row->cells[r]);
        }
    }
    drop_layout(h, row->layout);
    *row = (struct row){0};
}

static void empty_field(struct heat *h, struct field *f)
{
    for (uint32_t i = 0; i < ROWS; i++) {
        empty_row(h, &f->rows[i]);
    }
    drop_layout(h, f->layout);
    f->layout = NULL;
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
        empty_row(h, oldest);
    }
    return oldest != NULL;
}

static struct layout *new_layout(struct heat *h, const struct heat_columns *from)
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

static bool is_same(const struct layout *l, const struct heat_columns *c)
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

struct span {
    uint32_t first, last;
};

static struct span
span_of(const struct slice *starts, uint32_t count, struct slice start, const struct slice *end)
{
    struct span s = {column_of(starts, count, start, false), count - 1};
    if (end != NULL) {
        s.last = column_of(starts, count, *end, true);
    }
    return s.last >= s.first ? s : (struct span){s.first, s.first};
}

/* --- keyspaces --- */

static struct field *find(const struct heat *h, uint64_t keyspace)
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
static struct field *find_or_add(struct heat *h, uint64_t keyspace, uint64_t now_ms)
{
    struct field *f = find(h, keyspace);
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
    const struct field *f = find(h, keyspace);
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
    struct field *f = find_or_add(h, keyspace, now_ms);
    if (f == NULL) {
        return;
    }
    f->minute = now_ms / HEAT_FINE_MS + 1;
    f->told_ms = now_ms;
    if (!is_same(f->layout, columns)) {
        struct layout *fresh = new_layout(h, columns); /* before: it may copy the old one's */
        drop_layout(h, f->layout);
        f->layout = fresh;
    }
}

struct heat_columns heat_columns_of(const struct heat *h, uint64_t keyspace)
{
    const struct field *f = find(h, keyspace);
    return f == NULL || f->layout == NULL
               ? (struct heat_columns){0}
               : (struct heat_columns){f->layout->starts, f->layout->count, f->layout->partitions};
}

/* --- putting --- */

/* NULL: it is older than what is kept. */
static struct row *row_at(struct heat *h, struct field *f, unsigned level, uint64_t index)
{
    struct row *row = &f->rows[levels[level].first + index % levels[level].rows];
    uint64_t from = index * levels[level].ms;
    if (row->to_ms != 0 && row->from_ms > from) {
        return NULL;
    }
    if (row->to_ms == 0 || row->from_ms < from) {
        empty_row(h, row);
        row->from_ms = from;
        row->to_ms = from + levels[level].ms;
        row->heard_from = row->to_ms;
        row->heard_to = from;
        row->layout = f->layout;
        row->layout->refs++;
    }
    return row;
}

static double *cells_of(struct heat *h, struct row *row, unsigned r)
{
    size_t need = cells_bytes(row->layout);
    if (row->cells[r] == NULL) {
        while (h->bytes + need > h->max && forget_oldest(h, row)) {
        }
        row->cells[r] = mem_zalloc(need);
        h->bytes += need;
    }
    return row->cells[r];
}

static bool is_time(unsigned r)
{
    return r == LOAD_QUEUE_P99 || r == LOAD_STORAGE_P99;
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
        double *cells = cells_of(h, row, r), value = (double)s->value[r];
        if (load_is_count((enum load_resource)r)) {
            value = value * (double)overlap_ms / (double)s->interval_ms / parts;
        } else if (!is_time(r)) {
            value = value * (double)overlap_ms / parts;
        }
        for (uint32_t c = at.first; c <= at.last; c++) {
            if (!is_time(r)) {
                cells[c] += value;
            } else if (value > cells[c]) {
                cells[c] = value;
            }
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
    struct field *f = find(h, keyspace);
    uint64_t from = now_ms > s->interval_ms ? now_ms - s->interval_ms : 0;
    if (f == NULL || f->layout == NULL || now_ms == 0) {
        return;
    }
    f->told_ms = now_ms;
    for (unsigned level = 0; level < LEVELS; level++) {
        uint64_t ms = levels[level].ms;
        for (uint64_t i = from / ms; i <= (now_ms - 1) / ms; i++) {
            struct row *row = row_at(h, f, level, i);
            if (row == NULL) {
                continue;
            }
            uint64_t begin = from > row->from_ms ? from : row->from_ms;
            uint64_t last = now_ms < row->to_ms ? now_ms : row->to_ms;
            put_row(h, row, span_of(row->layout->starts, row->layout->count, start, end), s,
                    last - begin);
            row->heard_from = begin < row->heard_from ? begin : row->heard_from;
            row->heard_to = last > row->heard_to ? last : row->heard_to;
        }
    }
}

/* --- reading --- */

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

static void copy_starts(struct heat_map *m, const struct layout *l)
{
    size_t bytes = 0, at = 0;
    for (uint32_t i = 0; i < l->count; i++) {
        bytes += l->starts[i].len;
    }
    m->columns = l->count;
    m->bytes = mem_alloc(bytes + 1);
    m->starts = mem_alloc(l->count * sizeof m->starts[0]);
    for (uint32_t i = 0; i < l->count; i++) {
        if (l->starts[i].len > 0) {
            memcpy(m->bytes + at, l->starts[i].data, l->starts[i].len);
        }
        m->starts[i] = slice_of(m->bytes + at, l->starts[i].len);
        at += l->starts[i].len;
    }
}

/* One row's cells, from its own columns to those of the map. */
static void lay(const struct heat_map *m, const struct row *row, unsigned r, double *values)
{
    const struct layout *l = row->layout;
    double heard = (double)(row->heard_to - row->heard_from);
    if (row->cells[r] == NULL || heard <= 0) {
        return;
    }
    for (uint32_t i = 0; i < l->count; i++) {
        const struct slice *end = i + 1 < l->count ? &l->starts[i + 1] : NULL;
        struct span at = span_of(m->starts, m->columns, l->starts[i], end);
        double value = row->cells[r][i];
        if (!is_time(r)) {
            value /= load_is_count((enum load_resource)r) ? heard / 1000 : heard;
            value /= at.last - at.first + 1;
        }
        for (uint32_t c = at.first; c <= at.last; c++) {
            if (!is_time(r)) {
                values[c] += value;
            } else if (value > values[c]) {
                values[c] = value;
            }
        }
    }
}

static void read_row(struct heat_map *m, const struct row *row, unsigned r)
{
    double *values = m->values + (size_t)m->rows * m->columns;
    m->row[m->rows++] = (struct heat_row){.from_ms = row->from_ms,
                                          .to_ms = row->to_ms,
                                          .heard_ms = row->heard_to - row->heard_from,
                                          .values = values};
    if (r == HEAT_REQUESTS) {
        lay(m, row, LOAD_READS, values);
        lay(m, row, LOAD_WRITES, values);
    } else {
        lay(m, row, r, values);
    }
}

bool heat_read(const struct heat *h,
               uint64_t keyspace,
               unsigned r,
               uint64_t from_ms,
               uint64_t to_ms,
               struct heat_map *ret)
{
    const struct field *f = find(h, keyspace);
    *ret = (struct heat_map){0};
    if (f == NULL || f->layout == NULL) {
        return false;
    }
    uint64_t border = fine_from(f);
    copy_starts(ret, f->layout);
    ret->row = mem_alloc(ROWS * sizeof ret->row[0]);
    ret->values = mem_zalloc((size_t)ROWS * ret->columns * sizeof ret->values[0]);
    for (unsigned level = LEVELS; level-- > 0;) {
        /* In time order from the ring's oldest, which follows the newest. */
        uint32_t newest = 0;
        const struct row *rows = &f->rows[levels[level].first];
        for (uint32_t i = 0; i < levels[level].rows; i++) {
            newest = rows[i].to_ms > rows[newest].to_ms ? i : newest;
        }
        for (uint32_t i = 1; i <= levels[level].rows; i++) {
            const struct row *row = &rows[(newest + i) % levels[level].rows];
            bool lap = row->to_ms + levels[level].rows * levels[level].ms > rows[newest].to_ms;
            bool finest = level == 0 ? row->from_ms >= border : row->to_ms <= border;
            if (row->to_ms > from_ms && row->from_ms < to_ms && row->to_ms != 0 && lap && finest) {
                read_row(ret, row, r);
            }
        }
    }
    return true;
}
