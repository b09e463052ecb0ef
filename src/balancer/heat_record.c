/* SPDX-License-Identifier: Apache-2.0 */
/* What one server tells another of its heat map: rows that changed, with their columns and names.
 * A page is a header, then fields, each followed by rows of it. */
#include "balancer/heat_internal.h"

#include "base/mem.h"
#include "base/wire.h"

#include <math.h>
#include <string.h>

enum record { RECORD_END, RECORD_FIELD, RECORD_ROW, RECORD_LAST = RECORD_ROW };
/* Which columns a row has: those of its field, of the row before, or its own that follow. */
enum columns { COLUMNS_FIELD, COLUMNS_LAST, COLUMNS_OWN, COLUMNS_MOST = COLUMNS_OWN };
#define HEAT_MAGIC UINT32_C(0x31484443) /* the last byte counts versions */
#define CELL_MAX   1e24                 /* above what any count can be */
#define ALL_CELLS  ((1U << LOAD_RESOURCES) - 1)

/* --- putting --- */

static void put_columns(struct buf *b, const struct layout *l)
{
    wire_put_u32(b, l->count);
    wire_put_u64(b, l->partitions);
    for (uint32_t i = 0; i < l->count; i++) {
        wire_put_bytes(b, l->starts[i]);
    }
}

static void put_field(struct buf *b, const struct field *f)
{
    buf_put_u8(b, RECORD_FIELD);
    wire_put_u64(b, f->keyspace);
    wire_put_u64(b, f->told_ms);
    put_columns(b, f->layout);
    wire_put_u32(b, f->series_count);
    for (uint32_t i = 0; i < f->series_count; i++) {
        wire_put_u64(b, f->series[i].told_ms);
        for (unsigned n = 0; n < HEAT_NAMES; n++) {
            wire_put_bytes(b, heat_series_name(&f->series[i], (enum heat_name)n));
        }
    }
}

static void put_cells(struct buf *b, const double *cells, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        uint64_t bits;
        memcpy(&bits, &cells[i], sizeof bits);
        wire_put_u64(b, bits);
    }
}

static void put_row(struct buf *b,
                    const struct field *f,
                    uint32_t level,
                    const struct row *row,
                    const struct layout *last)
{
    uint32_t has = 0, series = 0;
    enum columns columns = row->layout == f->layout ? COLUMNS_FIELD
                           : row->layout == last    ? COLUMNS_LAST
                                                    : COLUMNS_OWN;
    buf_put_u8(b, RECORD_ROW);
    buf_put_u8(b, (uint8_t)level);
    wire_put_u64(b, row->from_ms / heat_levels[level].ms);
    wire_put_u32(b, (uint32_t)(row->heard_from - row->from_ms));
    wire_put_u32(b, (uint32_t)(row->heard_to - row->from_ms));
    wire_put_u64(b, row->told_ms);
    buf_put_u8(b, (uint8_t)columns);
    if (columns == COLUMNS_OWN) {
        put_columns(b, row->layout);
    }
    for (unsigned r = 0; r < LOAD_RESOURCES; r++) {
        has |= row->cells[r] != NULL ? 1U << r : 0;
    }
    wire_put_u32(b, has);
    for (unsigned r = 0; r < LOAD_RESOURCES; r++) {
        put_cells(b, row->cells[r], row->cells[r] != NULL ? row->layout->count : 0);
    }
    for (uint32_t i = 0; row->by != NULL && i < HEAT_SERIES_MAX; i++) {
        series += row->by[i] != NULL ? 1 : 0;
    }
    wire_put_u32(b, series);
    for (uint32_t i = 0; row->by != NULL && i < HEAT_SERIES_MAX; i++) {
        if (row->by[i] != NULL) {
            wire_put_u32(b, i);
            put_cells(b, row->by[i], row->layout->count);
        }
    }
}

static void overwrite_u32(struct buf *b, size_t at, uint32_t v)
{
    for (unsigned i = 0; i < 4 && at + i < b->len; i++) {
        b->data[at + i] = (uint8_t)(v >> 8 * i);
    }
}

static uint32_t level_of(uint32_t row)
{
    return row < heat_levels[1].first ? 0 : 1;
}

void heat_put_page(const struct heat *h,
                   const struct heat_page *page,
                   size_t enough,
                   uint64_t now_ms,
                   struct buf *b)
{
    size_t begun = b->len, next_at = b->len + 12;
    uint32_t at = page->next, most = h->count * ROWS;
    const struct field *headed = NULL;
    const struct layout *last = NULL;
    wire_put_u32(b, HEAT_MAGIC);
    wire_put_u64(b, now_ms);
    wire_put_u32(b, 0);
    for (; at < most && (headed == NULL || b->len - begun < enough); at++) {
        const struct field *f = h->fields[at / ROWS];
        const struct row *row = &f->rows[at % ROWS];
        if (row->to_ms == 0 || row->told_ms < page->since_ms) {
            continue;
        }
        if (f != headed) {
            put_field(b, f);
            headed = f;
            last = NULL;
        }
        put_row(b, f, level_of(at % ROWS), row, last);
        last = row->layout;
    }
    buf_put_u8(b, RECORD_END);
    overwrite_u32(b, next_at, at < most ? at : 0);
}

/* --- taking --- */

struct taking {
    struct heat *heat;
    struct wire_reader *r;
    uint64_t now_ms;                       /* the other's */
    struct field *field;                   /* NULL: none yet, or there is no room for it */
    struct layout *columns;                /* holds a reference: of the field */
    struct layout *last;                   /* the same: of the row before, or NULL */
    uint32_t series;                       /* that the field has */
    struct slice starts[HEAT_COLUMNS_MAX]; /* scratch */
};

/* One that the field has already, or NULL. */
static struct layout *known_columns(const struct field *f, const struct heat_columns *c)
{
    if (f == NULL || heat_is_layout(f->layout, c)) {
        return f != NULL ? f->layout : NULL;
    }
    for (uint32_t i = 0; i < ROWS; i++) {
        if (heat_is_layout(f->rows[i].layout, c)) {
            return f->rows[i].layout;
        }
    }
    return NULL;
}

/* With a reference; NULL when they can't be read. */
static struct layout *take_columns(struct taking *t)
{
    struct heat_columns c = {.starts = t->starts, .count = wire_u32(t->r)};
    c.partitions = wire_u64(t->r);
    if (c.count == 0 || c.count > HEAT_COLUMNS_MAX) {
        wire_fail(t->r, "how many columns there are");
    }
    for (uint32_t i = 0; i < c.count && t->r->wrong == NULL; i++) {
        t->starts[i] = wire_bytes(t->r, DIR_ROUTING_KEY_MAX, "where a column begins");
        if (i == 0 ? t->starts[i].len != 0 : slice_cmp(t->starts[i - 1], t->starts[i]) >= 0) {
            wire_fail(t->r, "columns are not in order");
        }
    }
    if (t->r->wrong != NULL) {
        return NULL;
    }
    struct layout *known = known_columns(t->field, &c);
    if (known != NULL) {
        known->refs++;
    }
    return known != NULL ? known : heat_new_layout(t->heat, &c);
}

static void take_name(struct taking *t, struct series *s, enum heat_name which)
{
    struct slice name = wire_bytes(t->r, LOAD_PART_NAME_MAX, "the name of a series");
    s->len[which] = (uint8_t)name.len;
    if (name.len > 0) {
        memcpy(s->name[which], name.data, name.len);
    }
}

static bool is_same_series(const struct series *a, const struct series *b)
{
    bool same = true;
    for (unsigned n = 0; n < HEAT_NAMES; n++) {
        same = same && slice_eq(heat_series_name(a, (enum heat_name)n),
                                heat_series_name(b, (enum heat_name)n));
    }
    return same;
}

/* The field's are these from now on; rows forget what is another one now. */
static void set_series(struct taking *t, const struct series *fresh)
{
    struct field *f = t->field;
    for (uint32_t i = 0; i < f->series_count; i++) {
        for (uint32_t k = 0;
             (i >= t->series || !is_same_series(&f->series[i], &fresh[i])) && k < ROWS; k++) {
            heat_drop_series(t->heat, &f->rows[k], i);
        }
    }
    if (f->series == NULL && t->series > 0) {
        f->series = heat_take(t->heat, HEAT_SERIES_MAX * sizeof f->series[0], NULL);
    }
    if (t->series > 0) {
        memcpy(f->series, fresh, t->series * sizeof fresh[0]);
    }
    f->series_count = t->series;
    f->series_last = 0;
}

static void take_series(struct taking *t)
{
    struct series *fresh = mem_zalloc(HEAT_SERIES_MAX * sizeof fresh[0]);
    t->series = wire_u32(t->r);
    if (t->series > HEAT_SERIES_MAX) {
        wire_fail(t->r, "how many series there are");
        t->series = 0;
    }
    for (uint32_t i = 0; i < t->series && t->r->wrong == NULL; i++) {
        fresh[i].told_ms = wire_u64(t->r);
        for (unsigned n = 0; n < HEAT_NAMES; n++) {
            take_name(t, &fresh[i], (enum heat_name)n);
        }
    }
    /* The last place is that of all others: heat_series_of() relies on it. */
    struct slice other = slice_of(HEAT_OTHER, sizeof HEAT_OTHER - 1);
    if (t->series == HEAT_SERIES_MAX &&
        !slice_eq(heat_series_name(&fresh[HEAT_SERIES_MAX - 1], HEAT_BY_OPERATION), other)) {
        wire_fail(t->r, "the last series");
    }
    if (t->r->wrong == NULL && t->field != NULL) {
        set_series(t, fresh);
    }
    mem_free(fresh);
}

static void leave_field(struct taking *t)
{
    heat_drop_layout(t->heat, t->last);
    heat_drop_layout(t->heat, t->columns);
    t->last = t->columns = NULL;
    t->field = NULL;
}

static void take_field(struct taking *t)
{
    leave_field(t);
    uint64_t keyspace = wire_u64(t->r), told = wire_u64(t->r);
    if (told > t->now_ms) {
        wire_fail(t->r, "a time that is yet to come");
    }
    if (t->r->wrong == NULL) {
        t->field = heat_find_or_add(t->heat, keyspace, t->now_ms);
    }
    struct field *f = t->field;
    t->columns = take_columns(t);
    if (t->columns != NULL && f != NULL && told >= f->told_ms && f->layout != t->columns) {
        heat_drop_layout(t->heat, f->layout);
        f->layout = t->columns;
        t->columns->refs++;
        f->told_ms = told;
    }
    take_series(t);
}

/* Into `cells`, or nowhere. */
static void take_cells(struct taking *t, uint32_t count, double *cells)
{
    for (uint32_t i = 0; i < count && t->r->wrong == NULL; i++) {
        uint64_t bits = wire_u64(t->r);
        double v;
        memcpy(&v, &bits, sizeof v);
        if (!isfinite(v) || v < 0 || v > CELL_MAX) {
            wire_fail(t->r, "a value of a row");
        } else if (cells != NULL) {
            cells[i] = v;
        }
    }
}

/* The row to fill, empty; NULL when what is here is as new. */
static struct row *
place_of(struct taking *t, const struct heat_level *level, const struct row *from, struct layout *l)
{
    if (t->field == NULL) {
        return NULL;
    }
    struct row *row = &t->field->rows[level->first + from->from_ms / level->ms % level->rows];
    if (row->to_ms != 0 && (row->from_ms > from->from_ms ||
                            (row->from_ms == from->from_ms && row->told_ms >= from->told_ms))) {
        return NULL;
    }
    heat_empty_row(t->heat, row);
    *row = *from;
    row->layout = l;
    l->refs++;
    return row;
}

static void take_values(struct taking *t, struct row *row, uint32_t count)
{
    uint32_t has = wire_u32(t->r);
    if ((has & ~ALL_CELLS) != 0) {
        wire_fail(t->r, "resources of a row");
    }
    for (unsigned r = 0; r < LOAD_RESOURCES && t->r->wrong == NULL; r++) {
        if ((has & 1U << r) != 0) {
            take_cells(t, count, row != NULL ? heat_cells(t->heat, row, &row->cells[r]) : NULL);
        }
    }
    uint32_t series = wire_u32(t->r);
    for (uint32_t i = 0; i < series && t->r->wrong == NULL; i++) {
        uint32_t which = wire_u32(t->r);
        if (which >= t->series) {
            wire_fail(t->r, "a series that is none");
        } else {
            take_cells(t, count, row != NULL ? heat_cells_by(t->heat, row, which) : NULL);
        }
    }
}

static void take_row(struct taking *t)
{
    struct row from = {0};
    const struct heat_level *level =
        &heat_levels[wire_enum(t->r, 0, LEVELS - 1, "the level of a row")];
    uint64_t index = wire_u64(t->r);
    uint32_t heard_from = wire_u32(t->r), heard_to = wire_u32(t->r);
    from.told_ms = wire_u64(t->r);
    enum columns columns = wire_enum(t->r, 0, COLUMNS_MOST, "columns of a row");
    if (t->columns == NULL || index > t->now_ms / level->ms || from.told_ms > t->now_ms ||
        heard_from > heard_to || heard_to > level->ms ||
        (columns == COLUMNS_LAST && t->last == NULL)) {
        wire_fail(t->r, "a row");
        return;
    }
    from.from_ms = index * level->ms;
    from.to_ms = from.from_ms + level->ms;
    from.heard_from = from.from_ms + heard_from;
    from.heard_to = from.from_ms + heard_to;
    struct layout *l = columns == COLUMNS_FIELD ? t->columns : t->last;
    if (columns == COLUMNS_OWN) {
        l = take_columns(t);
    } else {
        l->refs++;
    }
    if (l == NULL) {
        return;
    }
    heat_drop_layout(t->heat, t->last);
    t->last = l; /* with its reference */
    struct row *row = place_of(t, level, &from, l);
    take_values(t, row, l->count);
    if (t->r->wrong != NULL && row != NULL) {
        heat_empty_row(t->heat, row);
    }
}

bool heat_page_begin(struct slice bytes, uint64_t *ret_now_ms)
{
    struct wire_reader r = wire_reader(bytes);
    bool is = wire_u32(&r) == HEAT_MAGIC;
    *ret_now_ms = wire_u64(&r);
    return is && r.wrong == NULL;
}

bool heat_take_page(struct heat *h, struct slice bytes, struct heat_page *page)
{
    struct wire_reader r = wire_reader(bytes);
    struct taking *t = mem_zalloc(sizeof *t);
    *t = (struct taking){.heat = h, .r = &r};
    if (wire_u32(&r) != HEAT_MAGIC) {
        wire_fail(&r, "this is no page of a heat map");
    }
    t->now_ms = wire_u64(&r);
    uint32_t next = wire_u32(&r);
    if (next != 0 && (next <= page->next || next >= HEAT_PAGES)) {
        wire_fail(&r, "the next page");
    }
    for (bool more = true; more && r.wrong == NULL;) {
        switch (wire_enum(&r, 0, RECORD_LAST, "the kind of a record")) {
        case RECORD_FIELD:
            take_field(t);
            break;
        case RECORD_ROW:
            take_row(t);
            break;
        default:
            more = false;
            break;
        }
    }
    leave_field(t);
    mem_free(t);
    page->next = r.wrong == NULL ? next : 0;
    return wire_end(&r);
}
