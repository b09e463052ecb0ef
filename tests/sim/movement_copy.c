/* SPDX-License-Identifier: Apache-2.0 */
/* The copies on a disk. */
#include "tests/sim/movement_internal.h"

#include <string.h>

struct copy *copy_find(struct disk *d, uint64_t id)
{
    for (unsigned i = 0; id != 0 && i < COPIES; i++) {
        if (d->copies[i].id == id) {
            return &d->copies[i];
        }
    }
    return NULL;
}

struct copy *copy_make(struct disk *d, uint64_t id)
{
    struct copy *c = copy_find(d, id);
    for (unsigned i = 0; c == NULL && i < COPIES; i++) {
        if (d->copies[i].id == 0) {
            c = &d->copies[i];
            copy_delete(c);
            c->id = id;
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

uint64_t copy_sum(const struct copy *c, uint32_t end)
{
    uint64_t sum = UINT64_C(0xcbf29ce484222325);
    for (uint32_t i = 0; i < end && i < LOG_MAX; i++) {
        sum = (sum ^ c->log[i].id) * UINT64_C(0x9E3779B97F4A7C15);
        sum = (sum ^ (sum >> 29) ^ c->log[i].epoch) * UINT64_C(0xbf58476d1ce4e5b9);
    }
    return sum;
}
