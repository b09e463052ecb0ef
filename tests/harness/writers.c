/* SPDX-License-Identifier: Apache-2.0 */
/* Two sorts and two sweeps. The first goes through a key's epochs from the lowest: the latest
 * acceptance of all lower epochs must not be after the earliest of this one. That one comparison
 * says that intervals are disjoint, that they are in order, and that nothing stale was accepted.
 * The second goes through the fate of each write. */
#include "tests/harness/writers.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

struct check {
    const struct writers *w;
    const struct writers_event **order; /* owns; borrows the events */
    writers_found found;
    void *arg;
    size_t flaws;
};

void writers_init(struct writers *w)
{
    memset(w, 0, sizeof *w);
}

void writers_close(struct writers *w)
{
    mem_free(w->events);
    memset(w, 0, sizeof *w);
}

void writers_add(struct writers *w, const struct writers_event *event)
{
    enum { ROOM_FIRST = 256 };
    if (w->count == w->room) {
        w->room = w->room == 0 ? ROOM_FIRST : 2 * w->room;
        w->events = mem_realloc(w->events, w->room * sizeof *w->events);
    }
    w->events[w->count] = *event;
    if (event->since == 0 || event->since > event->time) {
        w->events[w->count].since = event->time;
    }
    w->count++;
}

static int order_of(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

static int by_epoch(const void *pa, const void *pb)
{
    const struct writers_event *a = *(const struct writers_event *const *)pa;
    const struct writers_event *b = *(const struct writers_event *const *)pb;
    int c = order_of(a->key, b->key);
    c = c != 0 ? c : order_of(a->epoch, b->epoch);
    c = c != 0 ? c : order_of(a->sequence, b->sequence);
    c = c != 0 ? c : order_of(a->time, b->time);
    return c != 0 ? c : order_of((uintptr_t)a, (uintptr_t)b);
}

static int by_write(const void *pa, const void *pb)
{
    const struct writers_event *a = *(const struct writers_event *const *)pa;
    const struct writers_event *b = *(const struct writers_event *const *)pb;
    int c = order_of(a->key, b->key);
    c = c != 0 ? c : order_of(a->id, b->id);
    c = c != 0 ? c : order_of(a->kind, b->kind);
    c = c != 0 ? c : order_of(a->since, b->since);
    return c != 0 ? c : order_of((uintptr_t)a, (uintptr_t)b);
}

static void tell(struct check *c,
                 enum writers_flaw flaw,
                 const struct writers_event *a,
                 const struct writers_event *b)
{
    c->flaws++;
    if (c->found != NULL) {
        c->found(c->arg, flaw, (size_t)(a - c->w->events), (size_t)(b - c->w->events));
    }
}

static size_t choose(struct check *c, unsigned kinds)
{
    size_t n = 0;
    for (size_t i = 0; i < c->w->count; i++) {
        if ((kinds & 1U << c->w->events[i].kind) != 0) {
            c->order[n++] = &c->w->events[i];
        }
    }
    return n;
}

static bool same_writer(const struct writers_event *a, const struct writers_event *b)
{
    bool sessions = a->session != 0 && b->session != 0;
    return a->node == b->node && (!sessions || a->session == b->session);
}

/* One epoch of one key, by sequence. */
static void check_epoch(struct check *c, const struct writers_event *const *e, size_t n)
{
    const struct writers_event *latest = NULL, *last = NULL;
    for (size_t i = 0; i < n; i++) {
        if (!same_writer(e[0], e[i])) {
            tell(c, WRITERS_EPOCH_SHARED, e[0], e[i]);
            return;
        }
        if (e[i]->kind != WRITERS_ACCEPTED || e[i]->sequence == 0) {
            continue;
        }
        if (last != NULL && last->sequence == e[i]->sequence) {
            if (last->id != e[i]->id) {
                tell(c, WRITERS_SEQUENCE_TWICE, last, e[i]);
            }
        } else if (latest != NULL && latest->since > e[i]->time) {
            tell(c, WRITERS_SEQUENCE_ORDER, latest, e[i]);
        }
        last = e[i];
        if (latest == NULL || latest->since < e[i]->since) {
            latest = e[i];
        }
    }
}

/* The events of one epoch of one key: the earliest of all, and the latest acceptance or NULL. */
struct span {
    const struct writers_event *earliest, *latest;
    size_t end;
};

static struct span span_from(const struct check *c, size_t at, size_t n)
{
    const struct writers_event *first = c->order[at];
    struct span span = {.earliest = first, .end = at};
    while (span.end < n && c->order[span.end]->key == first->key &&
           c->order[span.end]->epoch == first->epoch) {
        const struct writers_event *e = c->order[span.end++];
        bool later = span.latest == NULL || e->since > span.latest->since;
        span.earliest = e->time < span.earliest->time ? e : span.earliest;
        if (e->kind == WRITERS_ACCEPTED && later) {
            span.latest = e;
        }
    }
    return span;
}

static void check_intervals(struct check *c)
{
    size_t n = choose(c, 1U << WRITERS_ACTED | 1U << WRITERS_ACCEPTED);
    qsort(c->order, n, sizeof c->order[0], by_epoch);
    const struct writers_event *below = NULL; /* the latest that a lower epoch accepted */
    for (size_t at = 0; at < n;) {
        struct span span = span_from(c, at, n);
        if (at > 0 && c->order[at - 1]->key != span.earliest->key) {
            below = NULL;
        }
        if (below != NULL && below->since > span.earliest->time) {
            bool same = below->node == span.earliest->node;
            tell(c, same ? WRITERS_STALE_EPOCH : WRITERS_TWO_WRITERS, below, span.earliest);
        }
        check_epoch(c, c->order + at, span.end - at);
        if (span.latest != NULL && (below == NULL || span.latest->since > below->since)) {
            below = span.latest;
        }
        at = span.end;
    }
}

static void check_acknowledged(struct check *c,
                               const struct writers_event *const *e,
                               size_t n,
                               const struct writers_event *ack)
{
    const struct writers_event *other = NULL;
    for (size_t i = 0; i < n && e[i]->kind == WRITERS_ACCEPTED; i++) {
        if (e[i]->since <= ack->time) {
            if (ack->epoch == 0 || ack->epoch == e[i]->epoch) {
                return;
            }
            other = e[i];
        }
    }
    if (!c->w->partial) {
        tell(c, other != NULL ? WRITERS_ACK_OTHER_EPOCH : WRITERS_ACK_UNACCEPTED, ack,
             other != NULL ? other : ack);
    }
}

/* All that happened to one write, by kind. */
static void check_write(struct check *c, const struct writers_event *const *e, size_t n)
{
    const struct writers_event *ack = NULL, *final = NULL;
    bool accepted = e[0]->kind == WRITERS_ACCEPTED;
    for (size_t i = 0; i < n; i++) {
        if (e[i]->kind == WRITERS_ACKNOWLEDGED) {
            ack = e[i];
            check_acknowledged(c, e, n, ack);
        } else if (e[i]->kind == WRITERS_FINAL) {
            if (final != NULL) {
                tell(c, WRITERS_APPLIED_TWICE, final, e[i]);
            }
            final = e[i];
        }
    }
    if (ack != NULL && final == NULL && !c->w->no_final) {
        tell(c, WRITERS_LOST, ack, ack);
    }
    if (final != NULL && !accepted && !c->w->partial) {
        tell(c, WRITERS_GHOST, final, e[0]);
    }
}

static void check_writes(struct check *c)
{
    unsigned kinds = 1U << WRITERS_ACCEPTED | 1U << WRITERS_ACKNOWLEDGED | 1U << WRITERS_REFUSED |
                     1U << WRITERS_FINAL;
    size_t n = choose(c, kinds), end = 0;
    qsort(c->order, n, sizeof c->order[0], by_write);
    for (size_t at = 0; at < n; at = end) {
        const struct writers_event *first = c->order[at];
        for (end = at;
             end < n && c->order[end]->key == first->key && c->order[end]->id == first->id;) {
            end++;
        }
        check_write(c, c->order + at, end - at);
    }
}

size_t writers_check(const struct writers *w, writers_found found, void *arg)
{
    struct check c = {.w = w, .found = found, .arg = arg};
    if (w->count == 0) {
        return 0;
    }
    c.order = mem_alloc(w->count * sizeof *c.order);
    check_intervals(&c);
    check_writes(&c);
    mem_free(c.order);
    return c.flaws;
}

struct writers_counts writers_count(const struct writers *w)
{
    struct writers_counts counts = {0};
    struct check c = {.w = w};
    c.order = mem_alloc((w->count + 1) * sizeof *c.order);
    size_t n = choose(&c, 1U << WRITERS_ACCEPTED);
    qsort(c.order, n, sizeof c.order[0], by_epoch);
    uint64_t here = 0;
    for (size_t i = 0; i < n; i++) {
        bool key = i == 0 || c.order[i]->key != c.order[i - 1]->key;
        bool epoch = key || c.order[i]->epoch != c.order[i - 1]->epoch;
        here = key ? 1 : here + epoch;
        counts.keys += key;
        counts.epochs += epoch;
        counts.most_epochs = here > counts.most_epochs ? here : counts.most_epochs;
    }
    mem_free(c.order);
    for (size_t i = 0; i < w->count; i++) {
        counts.accepted += w->events[i].kind == WRITERS_ACCEPTED;
        counts.acknowledged += w->events[i].kind == WRITERS_ACKNOWLEDGED;
        counts.refused += w->events[i].kind == WRITERS_REFUSED;
    }
    return counts;
}

const char *writers_flaw_text(enum writers_flaw flaw)
{
    static const char *const texts[WRITERS_FLAW_COUNT] = {
        [WRITERS_TWO_WRITERS] = "two nodes accepted writes at the same time",
        [WRITERS_STALE_EPOCH] =
            "a write of an earlier epoch was accepted after a later one was acted upon",
        [WRITERS_EPOCH_SHARED] = "two nodes or sessions have one epoch",
        [WRITERS_SEQUENCE_TWICE] = "one sequence number was given twice",
        [WRITERS_SEQUENCE_ORDER] = "sequence numbers are not in the order of time",
        [WRITERS_ACK_UNACCEPTED] = "acknowledged, but never accepted before",
        [WRITERS_ACK_OTHER_EPOCH] = "acknowledged under another epoch than it was accepted at",
        [WRITERS_LOST] = "an acknowledged write is lost",
        [WRITERS_APPLIED_TWICE] = "a write is there twice",
        [WRITERS_GHOST] = "a write is there that nobody accepted"};
    return flaw < WRITERS_FLAW_COUNT ? texts[flaw] : "?";
}
