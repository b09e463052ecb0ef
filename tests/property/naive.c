/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/property/naive.h"

#include <string.h>

int key_compare(const struct key *a, const struct key *b)
{
    for (size_t i = 0; i < a->len && i < b->len; i++) {
        if (a->bytes[i] != b->bytes[i]) {
            return a->bytes[i] < b->bytes[i] ? -1 : 1;
        }
    }
    return a->len < b->len ? -1 : a->len > b->len;
}

bool part_inside(const struct part *p, const struct key *k)
{
    return key_compare(&p->start, k) <= 0 && (p->open || key_compare(k, &p->end) < 0);
}

bool part_has_primary(const struct part *p)
{
    return p->copy_count > 0 && p->copies[0].role == DIR_ROLE_PRIMARY;
}

int part_copy_on(const struct part *p, int node)
{
    for (int i = 0; i < p->copy_count; i++) {
        if (p->copies[i].node == node) {
            return i;
        }
    }
    return -1;
}

int model_copies(const struct model *m, int node)
{
    int n = 0;
    for (int k = 0; k < KEYSPACES; k++) {
        for (int i = 0; m->keyspaces[k].exists && i < m->keyspaces[k].count; i++) {
            n += part_copy_on(&m->keyspaces[k].parts[i], node) >= 0;
        }
    }
    return n;
}

struct part *model_find(struct model *m, uint64_t id, int *ret_keyspace)
{
    for (int k = 0; k < KEYSPACES; k++) {
        for (int i = 0; m->keyspaces[k].exists && i < m->keyspaces[k].count; i++) {
            if (m->keyspaces[k].parts[i].id == id) {
                *ret_keyspace = k;
                return &m->keyspaces[k].parts[i];
            }
        }
    }
    return NULL;
}

static bool model_is_retired(const struct model *m, uint64_t id)
{
    for (uint64_t i = 0; i < m->retired_count && i < RETIRED_MAX; i++) {
        const struct retired *t = &m->retired[i];
        if (t->id == id) {
            return m->keyspaces[t->keyspace].exists &&
                   m->keyspaces[t->keyspace].id == t->keyspace_id;
        }
    }
    return false;
}

void model_retire(struct model *m, uint64_t id, int keyspace)
{
    m->retired[m->retired_count++ % RETIRED_MAX] =
        (struct retired){id, keyspace, m->keyspaces[keyspace].id};
}

bool model_may_hold(const struct model *m, const struct keyspace *ks, int node)
{
    return m->nodes[node].exists && (!ks->zoned || m->nodes[node].zone == 0);
}

void keyspace_make_room(struct keyspace *ks, int at, int more)
{
    memmove(&ks->parts[at + 1 + more], &ks->parts[at + 1],
            (size_t)(ks->count - at - 1) * sizeof ks->parts[0]);
    ks->count += more;
}

enum err_code judge_id(struct model *m, uint64_t id, struct part **ret_part, int *ret_ks)
{
    *ret_part = model_find(m, id, ret_ks);
    if (*ret_part != NULL) {
        return ERR_OK;
    }
    return model_is_retired(m, id) ? ERR_STALE_EPOCH : ERR_PARTITION_NOT_FOUND;
}

enum err_code judge_keys(const struct part *p, const struct key *keys, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bool strictly = part_inside(p, &keys[i]) && key_compare(&keys[i], &p->start) != 0;
        if (!strictly || (i > 0 && key_compare(&keys[i - 1], &keys[i]) >= 0)) {
            return ERR_BAD_SPLIT_KEY;
        }
    }
    return n > 0 ? ERR_OK : ERR_BAD_SPLIT_KEY;
}

static bool part_same_copies(const struct part *p, const struct part *q)
{
    bool same = p->copy_count == q->copy_count;
    for (int i = 0; same && i < p->copy_count; i++) {
        int at = part_copy_on(q, p->copies[i].node);
        same = at >= 0 && q->copies[at].role == p->copies[i].role;
    }
    return same;
}

enum err_code judge_merge(const struct part *p, const struct part *q, bool one_keyspace)
{
    bool touch = (!p->open && key_compare(&p->end, &q->start) == 0) ||
                 (!q->open && key_compare(&q->end, &p->start) == 0);
    bool ok = one_keyspace && p != q && touch && part_same_copies(p, q);
    return ok ? ERR_OK : ERR_NOT_MERGEABLE;
}

enum err_code judge_move(const struct model *m, const struct target *t, int from, int to)
{
    const struct part *p = t->part;
    if (from >= 0 && (!part_has_primary(p) || p->copies[0].node != from)) {
        return ERR_NOT_OWNER;
    }
    if (to >= NODES || !m->nodes[to].exists) {
        return ERR_NODE_NOT_FOUND;
    }
    if (part_copy_on(p, to) >= 0) {
        return ERR_NO_DESTINATION;
    }
    if (!model_may_hold(m, &m->keyspaces[t->keyspace], to)) {
        return ERR_PLACEMENT_VIOLATED;
    }
    return part_has_primary(p) && !m->nodes[p->copies[0].node].is_static ? ERR_LEASE_HELD : ERR_OK;
}

enum err_code judge_node(const struct model *m, int n, const struct node *next)
{
    for (int i = 0; i < NODES; i++) {
        if (i != n && m->nodes[i].exists && m->nodes[i].address == next->address) {
            return ERR_NODE_IN_USE;
        }
    }
    if (!m->nodes[n].exists || m->nodes[n].zone != 0 || next->zone == 0) {
        return ERR_OK;
    }
    for (int k = 0; k < KEYSPACES; k++) {
        const struct keyspace *ks = &m->keyspaces[k];
        for (int i = 0; ks->exists && ks->zoned && i < ks->count; i++) {
            if (part_copy_on(&ks->parts[i], n) >= 0) {
                return ERR_PLACEMENT_VIOLATED;
            }
        }
    }
    return ERR_OK;
}
