/* SPDX-License-Identifier: Apache-2.0 */
/* A zone file of any bytes, or none; and a rule. What is taken has one span around each instant,
 * and windows by it change later than now. */
#include "base/assert.h"
#include "base/calendar.h"
#include "tests/fuzz/target.h"

static void look(const struct zone *z)
{
    static const int64_t instants[] = {
        INT64_MIN,        -(INT64_C(1) << 50), -1, 0, 1774746000, 4102444800, INT64_C(253402300799),
        INT64_C(1) << 51, INT64_MAX - 1};
    for (unsigned i = 0; i < sizeof instants / sizeof instants[0]; i++) {
        int64_t t = instants[i], change;
        struct zone_span s = zone_at(z, t);
        ASSERT(s.begin <= t && t < s.end);
        ASSERT(s.offset >= -ZONE_OFFSET_MAX && s.offset <= ZONE_OFFSET_MAX);
        if (t >= 0 && t <= INT64_C(253402300799)) {
            struct calendar_week w = {(uint8_t)(1 + i * 37 % 127), (uint16_t)(i * 173 % 1440), 120};
            bool open = calendar_week_at(&w, z, t, &change);
            ASSERT(change > t);
            ASSERT(change == CALENDAR_NEVER || calendar_week_at(&w, z, change, &t) != open);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err e;
    struct zone_rule r;
    struct zone *z = zone_parse(slice_of(data, size), &e);
    if (z != NULL) {
        look(z);
        zone_free(z);
    }
    if (zone_rule_parse(slice_of(data, size), &r)) {
        struct zone_span s = zone_rule_at(&r, 1774746000);
        ASSERT(s.begin <= 1774746000 && 1774746000 < s.end);
    }
    return 0;
}
