/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/sim_disk.h"

#include "base/assert.h"
#include "base/mem.h"

#include <string.h>

void *sim_raft_copy(const void *p, size_t len)
{
    void *copy = raft_malloc(len > 0 ? len : 1);
    ASSERT(copy != NULL);
    if (len > 0) {
        memcpy(copy, p, len);
    }
    return copy;
}

void sim_copy_configuration(const struct raft_configuration *from, struct raft_configuration *to)
{
    raft_configuration_init(to);
    for (unsigned i = 0; i < from->n; i++) {
        int rv = raft_configuration_add(to, from->servers[i].id, from->servers[i].address,
                                        from->servers[i].role);
        ASSERT(rv == 0);
    }
}

/* As raft_uv receives and loads: one array, one batch that holds all the bytes. */
struct raft_entry *sim_copy_entries(const struct raft_entry *from, size_t n)
{
    if (n == 0) {
        return NULL;
    }
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++) {
        bytes += from[i].buf.len;
    }
    struct raft_entry *to = raft_malloc(n * sizeof *to);
    uint8_t *batch = raft_malloc(bytes > 0 ? bytes : 1);
    ASSERT(to != NULL && batch != NULL);
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        to[i] = from[i];
        to[i].batch = batch;
        to[i].buf.base = batch + at;
        if (from[i].buf.len > 0) {
            memcpy(batch + at, from[i].buf.base, from[i].buf.len);
        }
        at += from[i].buf.len;
    }
    return to;
}

struct sim_snapshot *sim_copy_snapshot(const struct raft_snapshot *from)
{
    struct sim_snapshot *to = mem_zalloc(sizeof *to);
    to->index = from->index;
    to->term = from->term;
    to->configuration_index = from->configuration_index;
    sim_copy_configuration(&from->configuration, &to->configuration);
    for (unsigned i = 0; i < from->n_bufs; i++) {
        to->data = mem_realloc(to->data, to->len + from->bufs[i].len + 1);
        memcpy(to->data + to->len, from->bufs[i].base, from->bufs[i].len);
        to->len += from->bufs[i].len;
    }
    return to;
}

struct raft_snapshot *sim_give_snapshot(const struct sim_snapshot *from)
{
    struct raft_snapshot *to = raft_calloc(1, sizeof *to);
    ASSERT(to != NULL);
    to->index = from->index;
    to->term = from->term;
    to->configuration_index = from->configuration_index;
    sim_copy_configuration(&from->configuration, &to->configuration);
    to->n_bufs = 1;
    to->bufs = raft_malloc(sizeof *to->bufs);
    ASSERT(to->bufs != NULL);
    to->bufs[0].base = sim_raft_copy(from->data, from->len);
    to->bufs[0].len = from->len;
    return to;
}

void sim_disk_append(struct sim_disk *d, const struct sim_entry *entries, unsigned n)
{
    if (d->n + n > d->capacity) {
        d->capacity = (d->n + n) * 2;
        d->entries = mem_realloc(d->entries, d->capacity * sizeof *d->entries);
    }
    memcpy(d->entries + d->n, entries, n * sizeof *d->entries);
    d->n += n;
}

void sim_disk_truncate(struct sim_disk *d, raft_index index)
{
    ASSERT(index >= d->start);
    if (index - d->start < d->n) {
        d->n = (size_t)(index - d->start);
    }
}

void sim_disk_install(struct sim_disk *d, struct sim_snapshot *snapshot)
{
    d->snapshot = snapshot;
    d->start = snapshot->index + 1;
    d->n = 0;
}

void sim_disk_put(struct sim_disk *d, struct sim_snapshot *snapshot, unsigned trailing)
{
    d->snapshot = snapshot;
    if (snapshot->index <= trailing) {
        return;
    }
    raft_index first = snapshot->index - trailing + 1;
    if (first > d->start) {
        size_t gone = (size_t)(first - d->start);
        gone = gone < d->n ? gone : d->n;
        memmove(d->entries, d->entries + gone, (d->n - gone) * sizeof *d->entries);
        d->n -= gone;
        d->start += gone;
    }
}

struct raft_entry *sim_disk_load(const struct sim_disk *d)
{
    struct raft_entry *borrowed = mem_zalloc((d->n + 1) * sizeof *borrowed);
    for (size_t i = 0; i < d->n; i++) {
        borrowed[i] = (struct raft_entry){
            d->entries[i].term, d->entries[i].type, {d->entries[i].data, d->entries[i].len}, NULL};
    }
    struct raft_entry *loaded = sim_copy_entries(borrowed, d->n);
    mem_free(borrowed);
    return loaded;
}
