/* SPDX-License-Identifier: Apache-2.0 */
/* The copies that a data directory holds, as its agent names them when it registers. An agent that
 * stopped before it learned of a split or a merge names the ids of before: what they covered, it
 * holds. */
#include "base/mem.h"
#include "directory/internal.h"

struct named {
    uint64_t keyspace, partition;
    dir_rev copy;
    const struct dir_tombstone *tombstone; /* borrowed; NULL: it was not retired */
};

struct copies {
    bool given;
    uint64_t count;
    struct named items[];
};

struct copies *copies_read(const struct dir_view *s, const Cadastre__NodePut *m)
{
    struct copies *c = mem_zalloc(sizeof *c + m->n_copies * sizeof c->items[0]);
    c->given = m->has_copies;
    for (size_t i = 0; m->has_copies && i < m->n_copies; i++) {
        const Cadastre__Copy *in = m->copies[i];
        const struct dir_keyspace *ks =
            view_keyspace(s, slice_of(in->keyspace, strlen(in->keyspace)));
        uint8_t key[8];
        if (ks != NULL) {
            c->items[c->count++] = (struct named){
                .keyspace = ks->id,
                .partition = in->partition,
                .copy = in->copy,
                .tombstone = ptree_get(&s->tombstones, ptree_u64_key(in->partition, key)),
            };
        }
    }
    return c;
}

void copies_free(struct copies *c)
{
    mem_free(c);
}

/* How far the named retired ids cover from `at` on: the end of one that holds `at`, or NULL. */
static const struct dir_tombstone *
covering(const struct copies *c, uint64_t keyspace, struct slice at)
{
    const struct dir_tombstone *best = NULL;
    for (uint64_t i = 0; i < c->count; i++) {
        const struct dir_tombstone *t = c->items[i].tombstone;
        if (t == NULL || t->keyspace != keyspace || slice_cmp(dir_tombstone_start(t), at) > 0 ||
            (!t->end_open && slice_cmp(dir_tombstone_end(t), at) <= 0)) {
            continue;
        }
        if (t->end_open) {
            return t;
        }
        if (best == NULL || slice_cmp(dir_tombstone_end(t), dir_tombstone_end(best)) > 0) {
            best = t;
        }
    }
    return best;
}

bool copies_hold(const struct copies *c, const struct dir_partition *p, const struct dir_replica *r)
{
    if (!c->given) {
        return true;
    }
    for (uint64_t i = 0; i < c->count; i++) {
        if (c->items[i].partition == p->id && c->items[i].copy == r->copy) {
            return true;
        }
    }
    struct slice at = dir_partition_start(p);
    for (uint64_t i = 0; i < c->count; i++) { /* each step takes another one */
        const struct dir_tombstone *t = covering(c, p->keyspace, at);
        if (t == NULL) {
            return false;
        }
        if (t->end_open ||
            (!p->end_open && slice_cmp(dir_tombstone_end(t), dir_partition_end(p)) >= 0)) {
            return true;
        }
        at = dir_tombstone_end(t);
    }
    return false;
}
