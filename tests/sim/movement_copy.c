/* SPDX-License-Identifier: Apache-2.0 */
/* The copies on a disk. */
#include "tests/sim/movement_internal.h"

#include <string.h>

struct copy *copy_find(struct disk *d, uint64_t partition, uint64_t id)
{
    for (unsigned i = 0; id != 0 && i < COPIES; i++) {
        if (d->copies[i].id == id && d->copies[i].partition == partition) {
            return &d->copies[i];
        }
    }
    return NULL;
}

struct copy *copy_make(struct disk *d, uint64_t partition, uint64_t id, struct keys keys)
{
    struct copy *c = copy_find(d, partition, id);
    for (unsigned i = 0; c == NULL && i < COPIES; i++) {
        if (d->copies[i].id == 0) {
            c = &d->copies[i];
            copy_delete(c);
            c->id = id;
            c->partition = partition;
            c->keys = keys;
        }
    }
    return c;
}

void copy_delete(struct copy *c)
{
    memset(c, 0, sizeof *c);
}

void copy_store(struct copy *c, uint32_t position, struct entry e)
{
    if (position >= LOG_MAX || c->log[position].id != 0) {
        return;
    }
    c->log[position] = e;
    c->len = position + 1 > c->len ? position + 1 : c->len;
    while (c->prefix < c->len && c->log[c->prefix].id != 0) {
        c->prefix++;
    }
}

void copy_cut(struct copy *c, uint32_t len)
{
    if (len < c->len) {
        memset(&c->log[len], 0, (c->len - len) * sizeof c->log[0]);
        c->len = len;
        c->prefix = c->prefix < len ? c->prefix : len;
    }
}

struct entry copy_within(struct entry e, struct keys keys)
{
    bool in = e.id == 0 || e.id == FILLED || (e.id != OUTSIDE && keys_have(keys, sim_slot(e.id)));
    return (struct entry){e.epoch, in ? e.id : OUTSIDE};
}

uint64_t copy_sum(const struct copy *c, uint32_t end, struct keys keys)
{
    uint64_t sum = UINT64_C(0xcbf29ce484222325);
    for (uint32_t i = 0; i < end && i < LOG_MAX; i++) {
        sum = (sum ^ copy_within(c->log[i], keys).id) * UINT64_C(0x9E3779B97F4A7C15);
        sum = (sum ^ (sum >> 29) ^ c->log[i].epoch) * UINT64_C(0xbf58476d1ce4e5b9);
    }
    return sum;
}

/* The copy with this id that has all of these keys: of the partition, or of one that it was a part
 * of. */
static struct copy *source_of(struct disk *d, const struct holding *h)
{
    for (unsigned i = 0; i < COPIES; i++) {
        struct copy *c = &d->copies[i];
        if (c->id == h->copy && c->keys.from <= h->keys.from && c->keys.upto >= h->keys.upto) {
            return c;
        }
    }
    return NULL;
}

static bool is_divided(const struct copy *c, const struct order *o)
{
    bool parts = false;
    for (unsigned i = 0; i < SLOTS; i++) {
        const struct holding *h = &o->holdings[i];
        if (h->partition == c->partition) {
            return false;
        }
        bool within = h->keys.from >= c->keys.from && h->keys.upto <= c->keys.upto;
        parts = parts || (h->copy == c->id && within);
    }
    return parts;
}

void copy_divide(struct sim *s, struct disk *d, const struct order *o)
{
    for (unsigned i = 0; i < SLOTS; i++) {
        const struct holding *h = &o->holdings[i];
        struct copy *from = source_of(d, h);
        bool forgets = sim_mutated(s, MOVEMENT_rest_not_kept) && i > 0;
        if (h->copy == 0 || from == NULL || copy_find(d, h->partition, h->copy) != NULL) {
            continue;
        }
        struct copy *c = copy_make(d, h->partition, h->copy, h->keys);
        for (uint32_t at = 0; c != NULL && !forgets && at < from->len; at++) {
            c->log[at] = copy_within(from->log[at], h->keys);
        }
        if (c != NULL && !forgets) {
            c->len = from->len;
            c->prefix = from->prefix;
            c->trimmed = from->trimmed;
            c->damaged = from->damaged;
        }
    }
    for (unsigned i = 0; i < COPIES; i++) {
        struct copy *c = &d->copies[i];
        if (c->id != 0 && is_divided(c, o)) {
            copy_delete(c);
        }
    }
}
