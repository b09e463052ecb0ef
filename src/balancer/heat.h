/* SPDX-License-Identifier: Apache-2.0 */
/* Where and when load was: time by key range, for each keyspace and resource, as reports told it. A
 * ring of minutes for an hour and one of ten minutes for a day; what is older goes. Columns are
 * runs of whole partitions; each row keeps those of its time, and a read lays all rows over the
 * newest ones. For people and for skew's reasons, and so in floating point. One thread at a time;
 * times are CLOCK_MONOTONIC in ms and given by the caller. */
#ifndef BALANCER_HEAT_H
#define BALANCER_HEAT_H

#include "balancer/load.h"

enum {
    HEAT_COLUMNS_MAX = 128,
    HEAT_FINE_ROWS = 60,
    HEAT_COARSE_ROWS = 144,
    HEAT_KEYSPACES_MAX = 64, /* of more nothing is kept, until one was silent for a day */
    /* Of a keyspace, operations with an outcome and a tenant that are told apart; so many with a
     * tenant. What is beyond counts as its operation and outcome, or as HEAT_OTHER. */
    HEAT_SERIES_MAX = 64,
    HEAT_TENANT_SERIES_MAX = 48
};
#define HEAT_OTHER "other"
#define HEAT_NONE  UINT32_MAX
enum heat_name { HEAT_BY_OPERATION, HEAT_BY_OUTCOME, HEAT_BY_TENANT, HEAT_NAMES };

#define HEAT_FINE_MS   UINT64_C(60000)
#define HEAT_COARSE_MS UINT64_C(600000)     /* a multiple of the fine one */
#define HEAT_BYTES_MAX (UINT64_C(64) << 20) /* all in all; beyond, the oldest rows go */

struct heat; /* opaque */
struct heat *heat_new(uint64_t bytes_max);
void heat_free(struct heat *h);
uint64_t heat_bytes(const struct heat *h);

/* Whether a new minute begins for this keyspace, and there is room for it: then heat_set_columns()
 * comes before heat_put().
 */
bool heat_is_due(const struct heat *h, uint64_t keyspace, uint64_t now_ms);
struct heat_columns {
    const struct slice *starts; /* borrowed: ascending, the first one empty */
    uint32_t count;             /* 1 to HEAT_COLUMNS_MAX */
    uint64_t partitions;        /* that there were when they were chosen */
};
/* These are the columns from now on; copied. */
void heat_set_columns(struct heat *h,
                      uint64_t keyspace,
                      const struct heat_columns *columns,
                      uint64_t now_ms);
/* Those in force; a count of 0 when there are none. */
struct heat_columns heat_columns_of(const struct heat *h, uint64_t keyspace);

/* What a sample says of a partition's range (`end` NULL: open), shared equally among the columns
 * that it lies in; counts are spread over their interval. Nothing, if there are no columns. */
void heat_put(struct heat *h,
              uint64_t keyspace,
              struct slice start,
              const struct slice *end,
              const struct load_sample *s,
              uint64_t now_ms);

/* --- reading --- */

struct heat_row {
    uint64_t from_ms, to_ms; /* the row's time */
    uint64_t heard_ms;       /* how much of it reports were about */
    double *values;          /* by column: a second; sizes and times: as reported */
};
struct heat_map {
    uint32_t columns, rows;
    struct slice *starts; /* all of these are the map's own */
    struct heat_row *row; /* in time order */
    uint8_t *bytes;
    double *values;
};
enum { HEAT_REQUESTS = LOAD_RESOURCES }; /* reads and writes together */

/* The rows that touch [from_ms, to_ms), fine ones where there are. `r` may be HEAT_REQUESTS. False,
 * and an empty map, when nothing is kept of the keyspace. heat_map_close() is owed either way. */
bool heat_read(const struct heat *h,
               uint64_t keyspace,
               unsigned r,
               uint64_t from_ms,
               uint64_t to_ms,
               struct heat_map *ret);
/* The same of the requests that have these names (len 0: any), as far as reports told. */
struct heat_filter {
    struct slice name[HEAT_NAMES];
};
bool heat_read_part(const struct heat *h,
                    uint64_t keyspace,
                    const struct heat_filter *filter,
                    uint64_t from_ms,
                    uint64_t to_ms,
                    struct heat_map *ret);
/* The same, but with a column for each operation (outcome, tenant), whose `starts` are the names in
 * order, and a last one, of no name (data NULL), for what no report told of. */
struct heat_by {
    enum heat_name name;
    struct heat_filter filter;
};
bool heat_read_by(const struct heat *h,
                  uint64_t keyspace,
                  const struct heat_by *by,
                  uint64_t from_ms,
                  uint64_t to_ms,
                  struct heat_map *ret);
void heat_map_close(struct heat_map *m);

/* --- for another server --- */

/* Which rows: those that something was told of at or after `since_ms`, from place `next` on (0: the
 * first). */
enum { HEAT_PAGES = HEAT_KEYSPACES_MAX * (HEAT_FINE_ROWS + HEAT_COARSE_ROWS) };
struct heat_page {
    uint64_t since_ms;
    uint32_t next;
};
/* Whole rows while they take less than `enough` bytes; a row takes less than half a MiB. */
void heat_put_page(const struct heat *h,
                   const struct heat_page *page,
                   size_t enough,
                   uint64_t now_ms,
                   struct buf *b);
/* Takes the rows that are newer than those here, and says where the next page begins (0: this was
 * the last). The other's clock is taken to be this one's: its `now_ms` comes with the page. False
 * when it can't be read: what came before the fault stays. */
bool heat_take_page(struct heat *h, struct slice bytes, struct heat_page *page);
/* False: it is no page. */
bool heat_page_begin(struct slice bytes, uint64_t *ret_now_ms);

/* --- what stands out --- */

enum heat_blame_kind { HEAT_EVEN, HEAT_TENANT, HEAT_TIME, HEAT_TENANT_AND_TIME };
struct heat_blame {
    enum heat_blame_kind kind;
    uint32_t group, row; /* HEAT_NONE where they do not apply */
    double share; /* of the load: the group's of all, or of that row; the row's of all rows */
    double times_median; /* the row's (the group's in it), by the median of rows */
};
enum {
    HEAT_BLAME_ROWS_MIN = 5,        /* fewer rows blame no time */
    HEAT_BLAME_HEARD_MIN_MS = 20000 /* a row of which less was heard is left out */
};
/* `group` of each column: below `groups`, or HEAT_NONE. A tenant is to blame that has most of the
 * load and twice its part; a row that has twice the median; the two together when that row is no
 * peak without that tenant. */
struct heat_blame heat_blame(const struct heat_map *m, const uint32_t *group, uint32_t groups);

#endif
