/* SPDX-License-Identifier: Apache-2.0 */
/* Which tenant, which time, or which tenant at which time has the load. */
#include "balancer/heat.h"

#include "base/mem.h"

#include <stdlib.h>

static const double peak_times = 2, /* the median, from which on a row is a peak */
    most = .5,                      /* of all load, from which on a tenant may be to blame */
    part_times = 2;                 /* what would be its part, from which on it is */

struct tally {
    uint32_t rows, groups;
    const uint32_t *row; /* of the map: those that count */
    double *cell;        /* [row][group], a second */
    double *all;         /* of each row */
};

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(const double *values, uint32_t n, double *scratch)
{
    for (uint32_t i = 0; i < n; i++) {
        scratch[i] = values[i];
    }
    qsort(scratch, n, sizeof scratch[0], by_value);
    return n == 0 ? 0 : n % 2 != 0 ? scratch[n / 2] : (scratch[n / 2 - 1] + scratch[n / 2]) / 2;
}

static uint32_t largest(const double *values, uint32_t n)
{
    uint32_t at = 0;
    for (uint32_t i = 1; i < n; i++) {
        at = values[i] > values[at] ? i : at;
    }
    return at;
}

/* Among enough rows, one that has `peak_times` the median of them. */
static bool is_peak(const double *values, uint32_t n, uint32_t at, double *scratch)
{
    double usual = median(values, n, scratch);
    return n >= HEAT_BLAME_ROWS_MIN && values[at] > 0 && values[at] >= peak_times * usual;
}

static double times(double value, double usual)
{
    return usual > 0 ? value / usual : 0;
}

static struct heat_blame of_tenant(const struct tally *t, const double *sums, double total)
{
    struct heat_blame b = {.kind = HEAT_EVEN, .group = HEAT_NONE, .row = HEAT_NONE};
    uint32_t g = t->groups > 0 ? largest(sums, t->groups) : 0;
    if (t->groups > 1 && sums[g] > most * total && sums[g] * t->groups >= part_times * total) {
        b = (struct heat_blame){HEAT_TENANT, g, HEAT_NONE, sums[g] / total, 0};
    }
    return b;
}

/* What made the peak: the tenant that rose most over its own median there. */
static struct heat_blame of_time(const struct tally *t, uint32_t at, double *scratch)
{
    double *series = scratch + t->rows, total = 0, rise = 0, usual = 0;
    uint32_t who = HEAT_NONE;
    for (uint32_t g = 0; g < t->groups; g++) {
        for (uint32_t i = 0; i < t->rows; i++) {
            series[i] = t->cell[(size_t)i * t->groups + g];
        }
        double typical = median(series, t->rows, scratch);
        if (series[at] - typical > rise) {
            rise = series[at] - typical;
            usual = typical;
            who = g;
        }
    }
    for (uint32_t i = 0; i < t->rows; i++) {
        total += t->all[i];
        series[i] = t->all[i] - (who == HEAT_NONE ? 0 : t->cell[(size_t)i * t->groups + who]);
    }
    if (who != HEAT_NONE && t->groups > 1 && !is_peak(series, t->rows, at, scratch)) {
        double there = t->cell[(size_t)at * t->groups + who];
        return (struct heat_blame){HEAT_TENANT_AND_TIME, who, t->row[at], there / t->all[at],
                                   times(there, usual)};
    }
    return (struct heat_blame){HEAT_TIME, HEAT_NONE, t->row[at], t->all[at] / total,
                               times(t->all[at], median(t->all, t->rows, scratch))};
}

static double add_up(struct tally *t, const struct heat_map *m, const uint32_t *group, double *sums)
{
    double total = 0;
    for (uint32_t i = 0; i < t->rows; i++) {
        const double *values = m->row[t->row[i]].values;
        for (uint32_t c = 0; c < m->columns; c++) {
            t->all[i] += values[c];
            if (group[c] != HEAT_NONE) {
                t->cell[(size_t)i * t->groups + group[c]] += values[c];
                sums[group[c]] += values[c];
            }
        }
        total += t->all[i];
    }
    return total;
}

struct heat_blame heat_blame(const struct heat_map *m, const uint32_t *group, uint32_t groups)
{
    struct heat_blame b = {.kind = HEAT_EVEN, .group = HEAT_NONE, .row = HEAT_NONE};
    uint32_t *rows = mem_alloc((m->rows + 1) * sizeof rows[0]);
    struct tally t = {.groups = groups, .row = rows};
    for (uint32_t i = 0; i < m->rows; i++) {
        /* Rows of one length, or a coarse one would hide what is in the fine ones. */
        if (m->row[i].heard_ms >= HEAT_BLAME_HEARD_MIN_MS &&
            m->row[i].to_ms - m->row[i].from_ms == HEAT_FINE_MS) {
            rows[t.rows++] = i;
        }
    }
    double *sums = mem_zalloc((groups + 1) * sizeof sums[0]);
    double *scratch = mem_alloc((2 * (size_t)t.rows + 1) * sizeof scratch[0]);
    t.all = mem_zalloc((t.rows + 1) * sizeof t.all[0]);
    t.cell = mem_zalloc(((size_t)t.rows * groups + 1) * sizeof t.cell[0]);
    double total = add_up(&t, m, group, sums);
    if (total > 0) {
        uint32_t at = largest(t.all, t.rows);
        b = is_peak(t.all, t.rows, at, scratch) ? of_time(&t, at, scratch)
                                                : of_tenant(&t, sums, total);
    }
    mem_free(t.cell);
    mem_free(t.all);
    mem_free(scratch);
    mem_free(sums);
    mem_free(rows);
    return b;
}
