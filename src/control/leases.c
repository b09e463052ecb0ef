/* SPDX-License-Identifier: Apache-2.0 */
#include "control/leases.h"

#include "base/assert.h"
#include "base/mem.h"

void leases_open(struct leases *t)
{
    *t = (struct leases){.slots = NULL};
    (void)pthread_mutex_init(&t->lock, NULL);
}

void leases_close(struct leases *t)
{
    mem_free(t->slots);
    (void)pthread_mutex_destroy(&t->lock);
}

static uint64_t slot_of(const struct leases *t, uint64_t node)
{
    uint64_t i = (node * UINT64_C(0x9e3779b97f4a7c15)) & (t->cap - 1);
    while (t->slots[i].node != 0 && t->slots[i].node != node) {
        i = (i + 1) & (t->cap - 1);
    }
    return i;
}

static void grow(struct leases *t)
{
    struct leases bigger = {.cap = t->cap > 0 ? t->cap * 2 : 64};
    bigger.slots = mem_zalloc(bigger.cap * sizeof bigger.slots[0]);
    for (uint64_t i = 0; i < t->cap; i++) {
        if (t->slots[i].node != 0) {
            bigger.slots[slot_of(&bigger, t->slots[i].node)] = t->slots[i];
        }
    }
    mem_free(t->slots);
    t->slots = bigger.slots;
    t->cap = bigger.cap;
}

static struct lease_entry *get(struct leases *t, uint64_t node)
{
    return t->cap > 0 && t->slots[slot_of(t, node)].node == node ? &t->slots[slot_of(t, node)]
                                                                 : NULL;
}

static struct lease_entry *add(struct leases *t, uint64_t node)
{
    struct lease_entry *e = get(t, node);
    if (e != NULL) {
        return e;
    }
    if (t->used * 2 >= t->cap) {
        grow(t);
    }
    e = &t->slots[slot_of(t, node)];
    *e = (struct lease_entry){.node = node};
    t->used++;
    return e;
}

/* Closes the gap, so that what was pushed past it is still found. */
static void drop(struct leases *t, uint64_t node)
{
    if (get(t, node) == NULL) {
        return;
    }
    uint64_t i = slot_of(t, node);
    t->slots[i] = (struct lease_entry){.node = 0};
    t->used--;
    for (uint64_t j = (i + 1) & (t->cap - 1); t->slots[j].node != 0; j = (j + 1) & (t->cap - 1)) {
        struct lease_entry e = t->slots[j];
        t->slots[j].node = 0;
        t->slots[slot_of(t, e.node)] = e;
    }
}

static void begin(struct lease *l, dir_rev session, uint64_t lease_ms, uint64_t now_ms)
{
    *l = (struct lease){.session = session, .lease_ms = lease_ms, .renewed_ms = now_ms};
}

static void note_before(struct lease_entry *e, const struct dir_node *n, uint64_t now_ms)
{
    if (n->ended_session == 0) {
        e->before = (struct lease){.session = 0};
        return;
    }
    if (n->ended_session == e->before.session) {
        return;
    }
    /* The present session has joined them, so its last renewal counts. */
    uint64_t renewed = e->present.session != 0 ? e->present.renewed_ms : now_ms;
    if (e->before.session != 0 && e->before.renewed_ms > renewed) {
        renewed = e->before.renewed_ms;
    }
    begin(&e->before, n->ended_session, n->ended_lease_ms, renewed);
}

static void note(struct leases *t, const struct dir_node *n, uint64_t now_ms)
{
    bool live = !n->is_static && !n->ended;
    if (!live && n->ended_session == 0) {
        drop(t, n->id);
        return;
    }
    struct lease_entry *e = add(t, n->id);
    note_before(e, n, now_ms);
    if (!live) {
        e->present = (struct lease){.session = 0};
    } else if (e->present.session != n->session) {
        begin(&e->present, n->session, n->lease_ms, now_ms);
    }
}

void leases_note(struct leases *t, uint64_t node, const struct dir_node *after, uint64_t now_ms)
{
    (void)pthread_mutex_lock(&t->lock);
    if (after == NULL) {
        drop(t, node);
    } else {
        note(t, after, now_ms);
    }
    (void)pthread_mutex_unlock(&t->lock);
}

void leases_restart(struct leases *t, const struct dir_view *v, uint64_t now_ms)
{
    const struct dir_node *n;
    struct ptree_iter it;
    (void)pthread_mutex_lock(&t->lock);
    mem_free(t->slots);
    t->slots = NULL;
    t->used = t->cap = 0;
    for (ptree_seek(&v->nodes, slice_of(NULL, 0), &it); (n = ptree_iter_get(&it, NULL)) != NULL;
         ptree_iter_next(&it)) {
        note(t, n, now_ms);
    }
    (void)pthread_mutex_unlock(&t->lock);
}

void leases_extend(struct leases *t, uint64_t now_ms)
{
    (void)pthread_mutex_lock(&t->lock);
    for (uint64_t i = 0; i < t->cap; i++) {
        t->slots[i].present.renewed_ms = now_ms;
        t->slots[i].before.renewed_ms = now_ms;
    }
    (void)pthread_mutex_unlock(&t->lock);
}

struct lease *leases_find(struct leases *t, uint64_t node, dir_rev session)
{
    struct lease_entry *e = get(t, node);
    return e != NULL && session != 0 && e->present.session == session ? &e->present : NULL;
}

struct lease *leases_find_before(struct leases *t, uint64_t node, dir_rev session)
{
    struct lease_entry *e = get(t, node);
    return e != NULL && session != 0 && e->before.session == session ? &e->before : NULL;
}

void leases_renew(struct leases *t, struct lease *l, uint64_t now_ms)
{
    (void)pthread_mutex_lock(&t->lock);
    l->renewed_ms = now_ms;
    (void)pthread_mutex_unlock(&t->lock);
}

static bool has_lapsed(const struct lease *l, uint64_t now_ms)
{
    return l->session != 0 && l->waiting == 0 && !l->proposed &&
           now_ms > l->renewed_ms + l->lease_ms + leases_allowance_ms(l->lease_ms);
}

void leases_lapsed(struct leases *t,
                   uint64_t now_ms,
                   uint32_t max,
                   bool (*fn)(void *arg, uint64_t node, struct lease *l),
                   void *arg)
{
    bool more = true;
    for (uint64_t i = 0; i < t->cap && more && max > 0; i++) {
        struct lease_entry *e = &t->slots[i];
        if (has_lapsed(&e->present, now_ms)) {
            more = fn(arg, e->node, &e->present);
            max--;
        }
        if (more && max > 0 && has_lapsed(&e->before, now_ms)) {
            more = fn(arg, e->node, &e->before);
            max--;
        }
    }
}

struct leases_seen leases_look(struct leases *t, uint64_t node, uint64_t now_ms)
{
    struct leases_seen seen = {.known = false};
    (void)pthread_mutex_lock(&t->lock);
    const struct lease_entry *e = get(t, node);
    if (e != NULL && e->present.session != 0) {
        const struct lease *l = &e->present;
        seen.known = true;
        seen.since_ms = now_ms > l->renewed_ms ? now_ms - l->renewed_ms : 0;
        seen.left_ms = l->lease_ms > seen.since_ms ? l->lease_ms - seen.since_ms : 0;
    }
    (void)pthread_mutex_unlock(&t->lock);
    return seen;
}
