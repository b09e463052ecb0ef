/* SPDX-License-Identifier: Apache-2.0 */
/* What a scenario expected beside what came. */
#include "simulate/simulate.h"

#include "balancer/plan.h"

#include <string.h>

struct verdicts {
    struct simulate_verdict *list;
    unsigned count;
};

static void at_most(struct verdicts *v, const char *what, double expected, double came)
{
    if (expected >= 0) {
        v->list[v->count++] = (struct simulate_verdict){
            .what = what, .expected = expected, .came = came, .met = came <= expected};
    }
}

static void at_least(struct verdicts *v, const char *what, double expected, double came)
{
    if (expected >= 0) {
        v->list[v->count++] = (struct simulate_verdict){
            .what = what, .expected = expected, .came = came, .met = came >= expected};
    }
}

/* What did not come to its end took for ever. */
static void within(struct verdicts *v, const char *what, double expected, int64_t came)
{
    if (expected >= 0) {
        v->list[v->count++] =
            (struct simulate_verdict){.what = what,
                                      .expected = expected,
                                      .came = (double)came,
                                      .met = came >= 0 && (double)came <= expected};
    }
}

static bool was_given(const struct simulate_outcome *o, const char *slug)
{
    for (uint32_t i = 0; i < o->advice_count; i++) {
        if (strcmp(bal_reason_slug((enum bal_reason)o->advice[i].reason), slug) == 0) {
            return true;
        }
    }
    return false;
}

unsigned simulate_judge(const struct scenario *s,
                        const struct simulate_outcome *o,
                        struct simulate_verdict ret[SIMULATE_VERDICTS_MAX])
{
    const struct scenario_expect *x = &s->expect;
    struct verdicts v = {.list = ret};
    at_most(&v, "violations", 0, (double)o->violation_count);
    at_most(&v, "median_max", x->median, o->median);
    at_most(&v, "p99_max", x->p99, o->p99);
    at_most(&v, "end_max", x->end, o->end);
    at_least(&v, "moves_min", x->moves_min, (double)o->moves);
    at_most(&v, "moves_max", x->moves_max, (double)o->moves);
    at_most(&v, "late_moves_max", x->late_moves_max, (double)o->late_moves);
    at_most(&v, "bounces_max", x->bounces_max, (double)o->bounces);
    at_most(&v, "returns_max", x->returns_max, (double)o->returns);
    at_least(&v, "splits_min", x->splits_min, (double)o->splits);
    at_most(&v, "splits_max", x->splits_max, (double)o->splits);
    at_least(&v, "merges_min", x->merges_min, (double)o->merges);
    at_most(&v, "merges_max", x->merges_max, (double)o->merges);
    at_least(&v, "recoveries_min", x->recoveries_min, (double)o->recoveries);
    within(&v, "recovered_within", x->recovered_ms, o->recovered_ms);
    within(&v, "drained_within", x->drained_ms, o->drained_ms);
    within(&v, "settled_within", x->settled_ms, o->settled_ms);
    for (uint32_t i = 0; i < x->advice_count; i++) {
        struct simulate_verdict *one = &ret[v.count++];
        bool given = was_given(o, x->advice[i]);
        *one =
            (struct simulate_verdict){.what = "advice", .expected = 1, .came = given, .met = given};
        memcpy(one->detail, x->advice[i], sizeof one->detail);
    }
    return v.count;
}
