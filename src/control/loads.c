/* SPDX-License-Identifier: Apache-2.0 */
#include "control/loads_internal.h"

#include "base/mem.h"

#include <string.h>

enum { PPM = 1000000 };

struct loads *loads_new(void)
{
    struct loads *l = mem_zalloc(sizeof *l);
    for (unsigned i = 0; i < LOADS_SHARDS; i++) {
        (void)pthread_mutex_init(&l->shards[i].lock, NULL);
        l->shards[i].load =
            load_new(LOAD_ENTRIES_MAX / LOADS_SHARDS, LOAD_SKETCH_BYTES_MAX / LOADS_SHARDS);
    }
    (void)pthread_mutex_init(&l->lock, NULL);
    l->heats = heats_new();
    return l;
}

void loads_free(struct loads *l)
{
    for (unsigned i = 0; i < LOADS_SHARDS; i++) {
        load_free(l->shards[i].load);
        (void)pthread_mutex_destroy(&l->shards[i].lock);
    }
    (void)pthread_mutex_destroy(&l->lock);
    heats_free(l->heats);
    mem_free(l->nodes);
    mem_free(l);
}

void loads_set_fast(struct loads *l, uint64_t half_life_ms)
{
    for (unsigned i = 0; i < LOADS_SHARDS; i++) {
        load_set_fast(loads_enter(l, i), half_life_ms);
        loads_leave(l, i);
    }
}

struct heats *loads_heats(struct loads *l)
{
    return l->heats;
}

struct load *loads_enter(struct loads *l, uint64_t partition)
{
    (void)pthread_mutex_lock(&l->shards[partition % LOADS_SHARDS].lock);
    return l->shards[partition % LOADS_SHARDS].load;
}

void loads_leave(struct loads *l, uint64_t partition)
{
    (void)pthread_mutex_unlock(&l->shards[partition % LOADS_SHARDS].lock);
}

enum load_outcome loads_put(struct loads *l, const struct load_sample *s, uint64_t now_ms)
{
    enum load_outcome outcome = load_put(loads_enter(l, s->partition), s, now_ms);
    loads_leave(l, s->partition);
    return outcome;
}

bool loads_get(struct loads *l, uint64_t partition, uint64_t node, struct load_entry *ret)
{
    const struct load_entry *e = load_get(loads_enter(l, partition), partition, node);
    if (e != NULL) {
        *ret = *e;
        ret->sketch = NULL;
    }
    loads_leave(l, partition);
    return e != NULL;
}

static uint64_t bounded(uint64_t v)
{
    return v < DIR_REVISION_MAX ? v : DIR_REVISION_MAX;
}

void loads_fill_start(struct loads *l, Cadastre__OperationStart *start)
{
    struct load_entry e;
    if (!loads_get(l, start->partition, 0, &e)) {
        return;
    }
    /* A part of a partition has a part of its size, which nobody has measured. */
    if (!start->has_size_bytes && !start->has_range && (e.has >> LOAD_SIZE & 1) != 0) {
        start->has_size_bytes = true;
        start->size_bytes = bounded(load_value(&e, LOAD_SIZE, LOAD_FAST));
    }
    /* It is reserved beside the copy's rate: the leader's own work must not wait for a budget that
     * its partition's writes fill alone. */
    bool own = start->class_ >= DIR_CLASS_DRAIN;
    if (!start->has_live_bytes_per_s && !own && (e.has >> LOAD_WRITE_BYTES & 1) != 0) {
        start->has_live_bytes_per_s = true;
        start->live_bytes_per_s = bounded(load_value(&e, LOAD_WRITE_BYTES, LOAD_MEAN) / 1000);
    }
}

void loads_look(struct loads *l,
                uint64_t partition,
                void (*fn)(void *arg, const struct load_entry *e),
                void *arg)
{
    const struct load_entry *e = load_get(loads_enter(l, partition), partition, 0);
    if (e != NULL) {
        fn(arg, e);
    }
    loads_leave(l, partition);
}

void loads_scale(struct loads *l, const struct dir_partition *p, uint32_t ppm)
{
    struct load *load = loads_enter(l, p->id);
    load_scale(load, p->id, 0, ppm);
    for (uint8_t i = 0; i < p->replica_count; i++) {
        load_scale(load, p->id, p->replicas[i].node, ppm);
    }
    loads_leave(l, p->id);
}

struct visit {
    void (*fn)(void *arg, const struct load_entry *e);
    void *arg;
};

static bool visit(void *arg, const struct load_entry *e)
{
    struct visit *v = arg;
    v->fn(v->arg, e);
    return true;
}

void loads_each(struct loads *l, void (*fn)(void *arg, const struct load_entry *e), void *arg)
{
    struct visit v = {fn, arg};
    for (unsigned i = 0; i < LOADS_SHARDS; i++) {
        load_each(loads_enter(l, i), visit, &v);
        loads_leave(l, i);
    }
}

uint64_t loads_count(struct loads *l)
{
    uint64_t n = 0;
    for (unsigned i = 0; i < LOADS_SHARDS; i++) {
        n += load_count(loads_enter(l, i));
        loads_leave(l, i);
    }
    return n;
}

/* --- nodes --- */

/* Where it is, or belongs. */
uint64_t loads_find_node(const struct loads *l, uint64_t node)
{
    uint64_t low = 0, high = l->count;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (l->nodes[middle].node < node) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

bool loads_has_node(const struct loads *l, uint64_t at, uint64_t node)
{
    return at < l->count && l->nodes[at].node == node;
}

void loads_insert_node(struct loads *l, uint64_t at)
{
    if (l->count == l->cap) {
        l->cap = l->cap == 0 ? 16 : 2 * l->cap;
        l->nodes = mem_realloc(l->nodes, l->cap * sizeof l->nodes[0]);
    }
    memmove(&l->nodes[at + 1], &l->nodes[at], (l->count - at) * sizeof l->nodes[0]);
    l->count++;
}

/* Of a session's batches one has the figures, and not all need have a number. */
static void keep(struct loads_node *n, const struct loads_node *report, bool known)
{
    struct loads_node before = *n;
    *n = *report;
    if (!known || before.session != report->session) {
        return;
    }
    n->seq = report->seq != 0 ? report->seq : before.seq;
    if (report->has == 0) {
        n->has = before.has;
        n->at_ms = before.at_ms;
        n->interval_ms = before.interval_ms;
        memcpy(n->figure, before.figure, sizeof n->figure);
    }
}

bool loads_begin(struct loads *l, const struct loads_node *report)
{
    (void)pthread_mutex_lock(&l->lock);
    uint64_t at = loads_find_node(l, report->node);
    bool known = loads_has_node(l, at, report->node);
    bool again = known && report->seq != 0 && l->nodes[at].session == report->session &&
                 report->seq <= l->nodes[at].seq;
    if (!again) {
        if (!known) {
            loads_insert_node(l, at);
        }
        keep(&l->nodes[at], report, known);
    }
    (void)pthread_mutex_unlock(&l->lock);
    return !again;
}

bool loads_node(struct loads *l, uint64_t node, struct loads_node *ret)
{
    (void)pthread_mutex_lock(&l->lock);
    uint64_t at = loads_find_node(l, node);
    bool known = loads_has_node(l, at, node);
    if (known) {
        *ret = l->nodes[at];
    }
    (void)pthread_mutex_unlock(&l->lock);
    return known;
}

static void drop_node(struct loads *l, uint64_t node)
{
    (void)pthread_mutex_lock(&l->lock);
    uint64_t at = loads_find_node(l, node);
    if (loads_has_node(l, at, node)) {
        l->count--;
        memmove(&l->nodes[at], &l->nodes[at + 1], (l->count - at) * sizeof l->nodes[0]);
    }
    (void)pthread_mutex_unlock(&l->lock);
}

/* --- following the directory --- */

static unsigned kind_of(const struct dir_row *row)
{
    const void *any = row->after != NULL ? row->after : row->before;
    return any != NULL ? ((const struct dir_object *)any)->kind : 0;
}

/* What each of a parent's successors gets when nothing is known of its keys. */
static uint32_t even_share(const struct dir_effects *effects, uint64_t parent)
{
    for (uint64_t i = 0; i < effects->row_count; i++) {
        const struct dir_tombstone *t = (const void *)effects->rows[i].after;
        if (kind_of(&effects->rows[i]) == DIR_KIND_TOMBSTONE && t != NULL && t->id == parent &&
            t->successor_count > 0) {
            return PPM / t->successor_count;
        }
    }
    return PPM;
}

static void inherit(struct loads *l,
                    const struct dir_effects *effects,
                    const struct dir_partition *child,
                    uint64_t parent,
                    uint64_t now_ms)
{
    struct slice start = dir_partition_start(child), end = dir_partition_end(child);
    struct load_entry copy;
    uint32_t share = 0, even = even_share(effects, parent);
    const struct load_entry *e = load_get(loads_enter(l, parent), parent, 0);
    bool known = e != NULL;
    if (known) {
        share = load_share(e, start, child->end_open ? NULL : &end, even);
        copy = *e;
        copy.sketch = NULL;
    }
    loads_leave(l, parent);
    if (known) {
        load_inherit(loads_enter(l, child->id), child->id, child->epoch, &copy, share, now_ms);
        loads_leave(l, child->id);
    }
}

bool loads_follows(const struct dir_partition *p, uint64_t node)
{
    for (unsigned i = 0; p != NULL && i < p->replica_count; i++) {
        if (p->replicas[i].node == node && p->replicas[i].role != DIR_ROLE_PRIMARY) {
            return true;
        }
    }
    return false;
}

/* Loads of copies that are gone, or lead now. */
static void drop_followers(struct loads *l,
                           const struct dir_partition *before,
                           const struct dir_partition *after)
{
    for (unsigned i = 0; i < before->replica_count; i++) {
        if (!loads_follows(after, before->replicas[i].node)) {
            load_drop_copy(loads_enter(l, before->id), before->id, before->replicas[i].node);
            loads_leave(l, before->id);
        }
    }
}

static void follow_partition(struct loads *l, const struct dir_row *row)
{
    const struct dir_partition *before = (const void *)row->before;
    if (before != NULL && row->after == NULL) {
        load_drop(loads_enter(l, before->id), before->id);
        loads_leave(l, before->id);
    } else if (before != NULL) {
        drop_followers(l, before, (const void *)row->after);
    }
}

void loads_on_rows(struct loads *l, const struct dir_effects *effects, uint64_t now_ms)
{
    for (uint64_t i = 0; i < effects->row_count; i++) {
        const struct dir_row *row = &effects->rows[i];
        if (kind_of(row) == DIR_KIND_PARTITION && row->before == NULL) {
            const struct dir_partition *child = (const void *)row->after;
            for (unsigned k = 0; k < child->parent_count; k++) {
                inherit(l, effects, child, dir_partition_parents(child)[k], now_ms);
            }
        }
    }
    for (uint64_t i = 0; i < effects->row_count; i++) {
        const struct dir_row *row = &effects->rows[i];
        if (kind_of(row) == DIR_KIND_PARTITION) {
            follow_partition(l, row);
        } else if (kind_of(row) == DIR_KIND_NODE && row->after == NULL) {
            drop_node(l, ((const struct dir_node *)(const void *)row->before)->id);
        }
    }
}

struct orphans {
    const struct dir_view *view;
    uint64_t *ids; /* owns */
    uint64_t count, cap;
};

static bool note_orphan(void *arg, const struct load_entry *e)
{
    struct orphans *o = arg;
    uint8_t key[8];
    if (ptree_get(&o->view->partitions, ptree_u64_key(e->partition, key)) == NULL) {
        if (o->count == o->cap) {
            o->cap = o->cap == 0 ? 64 : 2 * o->cap;
            o->ids = mem_realloc(o->ids, o->cap * sizeof o->ids[0]);
        }
        o->ids[o->count++] = e->partition;
    }
    return true;
}

void loads_sweep(struct loads *l, const struct dir_view *v)
{
    for (unsigned i = 0; i < LOADS_SHARDS; i++) {
        struct orphans o = {.view = v};
        struct load *load = loads_enter(l, i);
        load_each(load, note_orphan, &o);
        for (uint64_t k = 0; k < o.count; k++) {
            load_drop(load, o.ids[k]);
        }
        loads_leave(l, i);
        mem_free(o.ids);
    }
}
