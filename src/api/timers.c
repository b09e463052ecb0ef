/* SPDX-License-Identifier: Apache-2.0 */
/* A binary heap of pointers; every exchange knows its place, so that it can be moved or taken out.
 */
#include "api/internal.h"

#include "base/mem.h"

static void place(struct worker *w, size_t i, struct exchange *x)
{
    w->timers[i] = x;
    x->timer_at = i + 1;
}

static void sift_up(struct worker *w, size_t i, struct exchange *x)
{
    while (i > 0 && w->timers[(i - 1) / 2]->timer_ms > x->timer_ms) {
        place(w, i, w->timers[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    place(w, i, x);
}

static void sift_down(struct worker *w, size_t i, struct exchange *x)
{
    for (;;) {
        size_t c = 2 * i + 1;
        if (c + 1 < w->timer_count && w->timers[c + 1]->timer_ms < w->timers[c]->timer_ms) {
            c++;
        }
        if (c >= w->timer_count || w->timers[c]->timer_ms >= x->timer_ms) {
            break;
        }
        place(w, i, w->timers[c]);
        i = c;
    }
    place(w, i, x);
}

void timer_clear(struct exchange *x)
{
    struct worker *w = x->worker;
    if (x->timer_at == 0) {
        return;
    }
    size_t i = x->timer_at - 1;
    struct exchange *last = w->timers[--w->timer_count];
    x->timer_at = 0;
    if (last != x) {
        if (i > 0 && w->timers[(i - 1) / 2]->timer_ms > last->timer_ms) {
            sift_up(w, i, last);
        } else {
            sift_down(w, i, last);
        }
    }
}

void timer_set(struct exchange *x, uint64_t at_ms)
{
    struct worker *w = x->worker;
    timer_clear(x);
    if (at_ms == UINT64_MAX) {
        return;
    }
    if (w->timer_count == w->timer_cap) {
        w->timer_cap = w->timer_cap > 0 ? 2 * w->timer_cap : 64;
        w->timers = mem_realloc(w->timers, w->timer_cap * sizeof(struct exchange *));
    }
    x->timer_ms = at_ms;
    sift_up(w, w->timer_count++, x);
}

uint64_t timer_next_ms(const struct worker *w)
{
    return w->timer_count > 0 ? w->timers[0]->timer_ms : UINT64_MAX;
}

struct exchange *timer_due(struct worker *w)
{
    struct exchange *x = w->timer_count > 0 ? w->timers[0] : NULL;
    if (x == NULL || x->timer_ms > w->now_ms) {
        return NULL;
    }
    timer_clear(x);
    return x;
}
