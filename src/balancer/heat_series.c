/* SPDX-License-Identifier: Apache-2.0 */
/* Operations, outcomes and tenants of a keyspace's requests: which of them the heat map tells
 * apart. */
#include "balancer/heat_internal.h"

#include "base/assert.h"

#include <string.h>

static bool has_names(const struct series *s, const struct slice names[HEAT_NAMES])
{
    return slice_eq(heat_series_name(s, HEAT_BY_OPERATION), names[HEAT_BY_OPERATION]) &&
           slice_eq(heat_series_name(s, HEAT_BY_OUTCOME), names[HEAT_BY_OUTCOME]) &&
           slice_eq(heat_series_name(s, HEAT_BY_TENANT), names[HEAT_BY_TENANT]);
}

/* Samples name them in the same order: the one after the last is looked at first. */
static uint32_t known_series(struct field *f, const struct slice names[HEAT_NAMES])
{
    for (uint32_t i = 1; i <= f->series_count; i++) {
        uint32_t at = (f->series_last + i) % f->series_count;
        if (has_names(&f->series[at], names)) {
            f->series_last = at;
            return at;
        }
    }
    return HEAT_NONE;
}

/* A place of its own, that of one that was silent for longer than is kept, or HEAT_NONE. */
static uint32_t free_series(struct field *f, uint32_t max, uint64_t now_ms)
{
    if (f->series_count < max) {
        return f->series_count++;
    }
    for (uint32_t i = 0; i < max; i++) {
        if (f->series[i].told_ms + HEAT_COARSE_ROWS * HEAT_COARSE_MS < now_ms) {
            return i; /* the rows that have it are a lap behind the one to come: none is read */
        }
    }
    return HEAT_NONE;
}

static uint32_t add_series(struct heat *h,
                           struct field *f,
                           const struct slice names[HEAT_NAMES],
                           uint32_t max,
                           uint64_t now_ms)
{
    if (f->series == NULL) {
        f->series = heat_take(h, HEAT_SERIES_MAX * sizeof f->series[0], NULL);
    }
    uint32_t at = free_series(f, max, now_ms);
    for (unsigned i = 0; at != HEAT_NONE && i < HEAT_NAMES; i++) {
        f->series[at].len[i] = (uint8_t)names[i].len;
        if (names[i].len > 0) {
            memcpy(f->series[at].name[i], names[i].data, names[i].len);
        }
    }
    return at;
}

uint32_t heat_series_of(struct heat *h,
                        struct field *f,
                        const struct slice names[HEAT_NAMES],
                        uint64_t now_ms)
{
    static const struct slice other = {(const uint8_t *)HEAT_OTHER, sizeof HEAT_OTHER - 1};
    const struct slice none = slice_of(NULL, 0);
    const struct slice tries[][HEAT_NAMES] = {
        {names[HEAT_BY_OPERATION], names[HEAT_BY_OUTCOME], names[HEAT_BY_TENANT]},
        {names[HEAT_BY_OPERATION], names[HEAT_BY_OUTCOME], none},
        {other, other, none}};
    /* The last place is kept for all others, and some for what has no tenant. */
    const uint32_t max[] = {names[HEAT_BY_TENANT].len > 0 ? HEAT_TENANT_SERIES_MAX
                                                          : HEAT_SERIES_MAX - 1,
                            HEAT_SERIES_MAX - 1, HEAT_SERIES_MAX};
    uint32_t at = HEAT_NONE;
    for (unsigned i = 0; at == HEAT_NONE && i < sizeof tries / sizeof tries[0]; i++) {
        at = known_series(f, tries[i]);
        at = at == HEAT_NONE ? add_series(h, f, tries[i], max[i], now_ms) : at;
    }
    ASSERT(at != HEAT_NONE);
    f->series[at].told_ms = now_ms > f->series[at].told_ms ? now_ms : f->series[at].told_ms;
    return at;
}
