/* SPDX-License-Identifier: Apache-2.0 */
/* What heat.c, heat_read.c and heat_record.c share. */
#ifndef BALANCER_HEAT_INTERNAL_H
#define BALANCER_HEAT_INTERNAL_H

#include "balancer/heat.h"

enum { ROWS = HEAT_FINE_ROWS + HEAT_COARSE_ROWS, LEVELS = 2 };

struct heat_level {
    uint32_t first, rows;
    uint64_t ms;
};
extern const struct heat_level heat_levels[LEVELS];

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
    uint64_t told_ms;              /* when one came last */
    struct layout *layout;         /* holds a reference */
    double *cells[LOAD_RESOURCES]; /* own; NULL: never reported. Counts; times: the largest;
                                      sizes: times the ms that they held */
    double **by;                   /* owns, HEAT_SERIES_MAX of them: requests of each series; NULL:
                                      none were reported */
};

/* One operation with one outcome of one tenant. */
struct series {
    uint64_t told_ms;
    uint8_t len[HEAT_NAMES];
    char name[HEAT_NAMES][LOAD_PART_NAME_MAX];
};

struct field {
    uint64_t keyspace, minute, told_ms; /* minute: of which the columns are, and one more */
    struct layout *layout;              /* holds a reference; NULL: none yet */
    struct row rows[ROWS];
    struct series *series; /* owns, HEAT_SERIES_MAX of them; NULL: none were reported */
    uint32_t series_count, series_last;
};

struct heat {
    uint64_t bytes, max;
    uint32_t count;
    struct field *fields[HEAT_KEYSPACES_MAX]; /* owns */
};

struct span {
    uint32_t first, last;
};

struct field *heat_find(const struct heat *h, uint64_t keyspace);
/* NULL when there is no room. */
struct field *heat_find_or_add(struct heat *h, uint64_t keyspace, uint64_t now_ms);
/* Copied; with one reference. The oldest rows make room. */
struct layout *heat_new_layout(struct heat *h, const struct heat_columns *from);
void heat_drop_layout(struct heat *h, struct layout *l);
bool heat_is_layout(const struct layout *l, const struct heat_columns *c);
void heat_empty_row(struct heat *h, struct row *row);
/* Zeroed memory that counts; the oldest rows but `keep` (or NULL) make room. */
void *heat_take(struct heat *h, size_t need, const struct row *keep);
/* The row forgets a series. */
void heat_drop_series(struct heat *h, struct row *row, uint32_t series);
/* The row's cells there, made if there are none yet; the oldest rows make room. */
double *heat_cells(struct heat *h, struct row *row, double **at);
/* The same for requests of a series. */
double *heat_cells_by(struct heat *h, struct row *row, uint32_t series);
/* The columns that a range touches. */
struct span
heat_span(const struct slice *starts, uint32_t count, struct slice start, const struct slice *end);
static inline bool heat_is_time(unsigned r)
{
    return r == LOAD_QUEUE_P99 || r == LOAD_STORAGE_P99;
}
static inline struct slice heat_series_name(const struct series *s, enum heat_name which)
{
    return slice_of(s->name[which], s->len[which]);
}
/* heat_series.c: of which series this is: its own, a new one if there is room; else that of its
 * operation and outcome, else that of all others. */
uint32_t heat_series_of(struct heat *h,
                        struct field *f,
                        const struct slice names[HEAT_NAMES],
                        uint64_t now_ms);

#endif
