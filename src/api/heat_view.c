/* SPDX-License-Identifier: Apache-2.0 */
#include "api/heat_view.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define SHARES_MS UINT64_C(600000) /* that shares are of: the last so many */

struct slice heat_prefix(struct slice start, const struct slice *open_end)
{
    const uint8_t *slash = start.len > 0 ? memchr(start.data, '/', start.len) : NULL;
    if (slash == NULL || open_end == NULL) {
        return slice_of(NULL, 0);
    }
    struct slice end = *open_end;
    struct slice prefix = slice_of(start.data, (size_t)(slash - start.data) + 1);
    bool same = end.len >= prefix.len && memcmp(end.data, prefix.data, prefix.len) == 0;
    /* Or it ends just where the prefix does: '0' follows '/'. */
    bool to_its_end = end.len == prefix.len && memcmp(end.data, prefix.data, prefix.len - 1) == 0 &&
                      end.data[end.len - 1] == '/' + 1;
    return same || to_its_end ? prefix : slice_of(NULL, 0);
}

/* Columns come in key order: those of a prefix follow each other. */
uint32_t heat_groups(const struct heat_map *m, uint32_t *group, struct slice *prefixes)
{
    uint32_t groups = 0;
    for (uint32_t c = 0; c < m->columns; c++) {
        struct slice prefix =
            heat_prefix(m->starts[c], c + 1 < m->columns ? &m->starts[c + 1] : NULL);
        group[c] = HEAT_NONE;
        if (prefix.len == 0) {
            continue;
        }
        if (groups == 0 || !slice_eq(prefixes[groups - 1], prefix)) {
            prefixes[groups++] = prefix;
        }
        group[c] = groups - 1;
    }
    return groups;
}

void heat_by_prefix(struct heat_map *m, unsigned r)
{
    uint32_t group[HEAT_COLUMNS_MAX];
    struct slice prefixes[HEAT_COLUMNS_MAX + 1];
    bool largest = r == LOAD_QUEUE_P99 || r == LOAD_STORAGE_P99;
    uint32_t groups = heat_groups(m, group, prefixes), columns = groups + 1;
    double *values = mem_zalloc(((size_t)m->rows * columns + 1) * sizeof values[0]);
    for (uint32_t i = 0; i < m->rows; i++) {
        double *to = values + (size_t)i * columns;
        for (uint32_t c = 0; c < m->columns; c++) {
            double *at = &to[group[c] != HEAT_NONE ? group[c] : groups], v = m->row[i].values[c];
            *at = !largest ? *at + v : v > *at ? v : *at;
        }
        m->row[i].values = to;
    }
    mem_free(m->values);
    mem_free(m->starts);
    prefixes[groups] = slice_of(NULL, 0);
    m->values = values;
    m->starts = mem_dup(prefixes, columns * sizeof prefixes[0]);
    m->columns = columns;
}

void heat_of_prefix(struct heat_map *m, struct slice tenant)
{
    uint32_t group[HEAT_COLUMNS_MAX];
    struct slice prefixes[HEAT_COLUMNS_MAX];
    (void)heat_groups(m, group, prefixes);
    for (uint32_t c = 0; c < m->columns; c++) {
        struct slice prefix = group[c] != HEAT_NONE ? prefixes[group[c]] : slice_of(NULL, 0);
        struct slice name = slice_of(prefix.data, prefix.len > 0 ? prefix.len - 1 : 0);
        if (prefix.len > 0 && (slice_eq(tenant, prefix) || slice_eq(tenant, name))) {
            continue;
        }
        for (uint32_t i = 0; i < m->rows; i++) {
            m->row[i].values[c] = 0;
        }
    }
}

/* --- shares --- */

const char *heat_member(enum heat_name name)
{
    static const char *const members[HEAT_NAMES] = {"operation", "outcome", "tenant"};
    return members[name];
}

struct share {
    struct slice name;
    double requests;
};

static int largest_first(const void *a, const void *b)
{
    const struct share *x = a, *y = b;
    if (x->requests != y->requests) {
        return x->requests > y->requests ? -1 : 1;
    }
    return slice_cmp(x->name, y->name);
}

void heat_put_shares(struct buf *b,
                     struct heats *h,
                     uint64_t keyspace,
                     uint64_t now_ms,
                     enum heat_name name)
{
    struct heat_by by = {.name = name};
    struct heats_ask ask = {.keyspace = keyspace,
                            .by = &by,
                            .from_ms = now_ms > SHARES_MS ? now_ms - SHARES_MS : 0,
                            .to_ms = now_ms};
    struct share shares[HEAT_SERIES_MAX + 1] = {0};
    struct heat_map m;
    double all = 0;
    bool any = false;
    (void)heats_read(h, &ask, &m);
    for (uint32_t c = 0; c < m.columns; c++) {
        shares[c].name = m.starts[c];
        for (uint32_t i = 0; i < m.rows; i++) {
            shares[c].requests += m.row[i].values[c] * (double)m.row[i].heard_ms;
        }
        all += shares[c].requests;
    }
    buf_put_u8(b, '[');
    qsort(shares, m.columns, sizeof shares[0], largest_first);
    for (uint32_t c = 0; c < m.columns; c++) {
        if (shares[c].name.len > 0 && shares[c].requests > 0) {
            buf_printf(b, "%s{\"%s\":\"%.*s\",\"share\":%.3f}", any ? "," : "", heat_member(name),
                       (int)shares[c].name.len, (const char *)shares[c].name.data,
                       shares[c].requests / all);
            any = true;
        }
    }
    buf_put_u8(b, ']');
    heat_map_close(&m);
}
