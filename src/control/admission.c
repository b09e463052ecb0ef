/* SPDX-License-Identifier: Apache-2.0 */
#include "control/admission.h"

#include <stdlib.h>
#include <string.h>

uint32_t admission_class(const struct dir_operation *o, uint64_t waited_ms)
{
    uint64_t lifted = o->class_of + waited_ms / ADMISSION_AGE_MS * ADMISSION_AGE_CLASS;
    if (o->class_of > ADMISSION_AGED_MAX) {
        return o->class_of;
    }
    return lifted < ADMISSION_AGED_MAX ? (uint32_t)lifted : ADMISSION_AGED_MAX;
}

uint64_t admission_backoff_ms(uint32_t times)
{
    uint64_t wait = ADMISSION_BACKOFF_MS;
    if (times < 2) {
        return 0;
    }
    for (uint32_t i = 2; i < times && wait < ADMISSION_BACKOFF_MAX_MS; i++) {
        wait *= 2;
    }
    return wait < ADMISSION_BACKOFF_MAX_MS ? wait : ADMISSION_BACKOFF_MAX_MS;
}

static int by_rank(const void *x, const void *y)
{
    const struct admission_candidate *a = x, *b = y;
    uint32_t p = admission_class(a->o, a->waited_ms), q = admission_class(b->o, b->waited_ms);
    if (p != q) {
        return p > q ? -1 : 1;
    }
    return a->o->id < b->o->id ? -1 : a->o->id > b->o->id;
}

/* One look through the queue. */
struct turn {
    const struct dir_view *v;
    uint64_t first; /* a recovery that comes before all that is routine */
    struct {
        enum dir_budget budget;
        char value[DIR_NAME_MAX + 1];
    } kept[ADMISSION_KEPT_MAX];
    unsigned kept_count;
    bool closed; /* more is kept than can be remembered: nobody passes */
    const struct admission_candidate **chosen;
    unsigned count;
};

static bool takes_what_is_kept(const struct turn *t, const struct dir_operation *o)
{
    bool takes = t->closed;
    for (unsigned i = 0; i < t->kept_count && !takes; i++) {
        takes = dir_budget_touches(t->v, o, t->kept[i].budget, t->kept[i].value);
    }
    return takes;
}

/* What is never going to fit keeps nothing from others. */
static bool could_fit(const struct dir_operation *o, const struct dir_waiting *w)
{
    uint64_t reserve = o->class_of < DIR_CLASS_UNDER_REPLICATED ? w->reserve : 0;
    return w->budget != 0 && w->limit >= reserve && w->wanted <= w->limit - reserve;
}

static void keep(struct turn *t, const struct dir_waiting *w)
{
    if (t->kept_count == ADMISSION_KEPT_MAX) {
        t->closed = true;
        return;
    }
    t->kept[t->kept_count].budget = w->budget;
    memcpy(t->kept[t->kept_count].value, w->value, sizeof w->value);
    t->kept_count++;
}

/* The view does not know yet what this turn has chosen: of one node's copies one at a time. */
static bool shares_a_node(const struct turn *t, const struct dir_operation *o)
{
    for (unsigned i = 0; i < t->count && dir_operation_copies(o); i++) {
        const struct dir_operation *c = t->chosen[i]->o;
        if (dir_operation_copies(c) &&
            (c->source == o->source || c->source == o->destination || c->destination == o->source ||
             c->destination == o->destination)) {
            return true;
        }
    }
    return false;
}

/* As far back as its stages are remembered. */
static uint32_t times_queued(const struct dir_operation *o)
{
    uint32_t times = 0;
    for (uint32_t i = 0; i < o->stage_count; i++) {
        times += o->stages[i].stage == DIR_STAGE_QUEUED;
    }
    return times;
}

static void judge(struct turn *t, const struct admission_candidate *c)
{
    struct dir_waiting w;
    if (c->asked || c->waited_ms < admission_backoff_ms(times_queued(c->o))) {
        return;
    }
    if (dir_budget_lacks(t->v, c->o, &w)) {
        if (c->waited_ms >= ADMISSION_STARVED_MS && could_fit(c->o, &w)) {
            keep(t, &w);
        }
        return;
    }
    if (!dir_budget_yields(c->o, t->first, &w) && !takes_what_is_kept(t, c->o) &&
        !shares_a_node(t, c->o)) {
        t->chosen[t->count++] = c;
    }
}

unsigned admission_choose(struct admission *a,
                          const struct dir_view *v,
                          struct admission_candidate *candidates,
                          uint64_t count,
                          const struct admission_candidate **chosen,
                          unsigned max)
{
    struct turn t = {.v = v, .first = dir_budget_first(v), .chosen = chosen};
    uint64_t looks = count < ADMISSION_LOOKED_AT ? count : ADMISSION_LOOKED_AT;
    uint64_t behind = count > ADMISSION_ALWAYS ? count - ADMISSION_ALWAYS : 1;
    if (count > 1) {
        qsort(candidates, count, sizeof candidates[0], by_rank);
    }
    a->offset = count > ADMISSION_LOOKED_AT ? a->offset % behind : 0;
    for (uint64_t i = 0; i < looks && t.count < max; i++) {
        uint64_t at = i < ADMISSION_ALWAYS
                          ? i
                          : ADMISSION_ALWAYS + (a->offset + i - ADMISSION_ALWAYS) % behind;
        judge(&t, &candidates[at]);
    }
    a->offset += ADMISSION_LOOKED_AT - ADMISSION_ALWAYS;
    return t.count;
}
