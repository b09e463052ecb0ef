/* SPDX-License-Identifier: Apache-2.0 */
/* Since when too few copies live. What nobody has to write down at that moment follows from what is
 * replicated: when a node's session ended, when a keyspace began to want more, and since when the
 * partition's own version has had too few. */
#include "directory/internal.h"
#include "directory/repair.h"

#include <stdlib.h>

struct have {
    uint32_t copies, lived;
    uint32_t away_count;
    uint64_t away_ms[DIR_REPLICAS_MAX]; /* since when its node has been away */
};

static bool counts_as(uint8_t role, uint8_t wanted)
{
    return role == wanted || (wanted == DIR_ROLE_SYNC && role == DIR_ROLE_PRIMARY);
}

static struct have have_of(const struct dir_view *v, const struct dir_partition *p, uint8_t role)
{
    struct have h = {0};
    for (uint8_t i = 0; i < p->replica_count; i++) {
        if (!counts_as(p->replicas[i].role, role)) {
            continue;
        }
        const struct dir_node *n = view_node_by_id(v, p->replicas[i].node);
        h.copies++;
        if (view_node_is_live(n)) {
            h.lived++;
        } else {
            h.away_ms[h.away_count++] = n != NULL ? n->ended_ms : 0;
        }
    }
    return h;
}

static uint32_t wanted(const struct dir_keyspace *ks, uint8_t role)
{
    return role == DIR_ROLE_SYNC ? 1 + ks->sync_replicas : ks->async_replicas;
}

bool repair_is_short(const struct dir_view *v,
                     const struct dir_keyspace *ks,
                     const struct dir_partition *p,
                     uint8_t role)
{
    return have_of(v, p, role).lived < wanted(ks, role);
}

static int earlier(const void *x, const void *y)
{
    uint64_t a = *(const uint64_t *)x, b = *(const uint64_t *)y;
    return a < b ? -1 : a > b;
}

/* When the first of those left that could not be done without; 0: they can all be. */
static uint64_t role_since(const struct dir_view *v,
                           const struct dir_keyspace *ks,
                           const struct dir_partition *p,
                           uint8_t role)
{
    struct have h = have_of(v, p, role);
    uint32_t want = wanted(ks, role);
    if (h.lived >= want) {
        return 0;
    }
    uint64_t since = UINT64_MAX;
    if (h.copies < want) {
        since = p->under_since_ms > ks->replicas_ms ? p->under_since_ms : ks->replicas_ms;
    }
    if (h.away_count > 0) {
        uint32_t spare = h.copies > want ? h.copies - want : 0;
        qsort(h.away_ms, h.away_count, sizeof h.away_ms[0], earlier);
        uint64_t left = h.away_ms[spare];
        left = left > ks->replicas_ms ? left : ks->replicas_ms;
        since = left < since ? left : since;
    }
    return since > 0 ? since : 1; /* 0 says that there are enough */
}

uint64_t repair_under_since(const struct dir_view *v,
                            const struct dir_keyspace *ks,
                            const struct dir_partition *p)
{
    uint64_t sync = role_since(v, ks, p, DIR_ROLE_SYNC);
    uint64_t async = role_since(v, ks, p, DIR_ROLE_ASYNC);
    return sync == 0 || (async != 0 && async < sync) ? async : sync;
}

bool repair_needs_agents(const struct dir_view *v, const struct dir_keyspace *ks)
{
    const struct dir_partition *p;
    struct ptree_iter it;
    for (ptree_seek(state_map(v, ks->id), slice_of(NULL, 0), &it);
         (p = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        uint32_t of[DIR_ROLE_JOINING + 1] = {0};
        for (uint8_t i = 0; i < p->replica_count; i++) {
            of[p->replicas[i].role]++;
        }
        if (p->replica_count > 0 && view_node_by_id(v, p->replicas[0].node)->is_static &&
            (of[DIR_ROLE_SYNC] != ks->sync_replicas || of[DIR_ROLE_ASYNC] != ks->async_replicas)) {
            return true;
        }
    }
    return false;
}

void repair_note_version(const struct dir_view *v,
                         const struct dir_partition *before,
                         struct dir_partition *p)
{
    const struct dir_keyspace *ks = state_keyspace(v, p->keyspace);
    uint32_t of[DIR_ROLE_JOINING + 1] = {0};
    for (uint8_t i = 0; i < p->replica_count; i++) {
        of[p->replicas[i].role]++;
    }
    bool enough = ks == NULL || (of[DIR_ROLE_PRIMARY] + of[DIR_ROLE_SYNC] > ks->sync_replicas &&
                                 of[DIR_ROLE_ASYNC] >= ks->async_replicas);
    if (enough) {
        p->under_since_ms = 0;
    } else if (p->under_since_ms == 0) {
        /* A copy that stops counting may have been on a node that left before. */
        uint64_t since = before != NULL ? repair_under_since(v, ks, before) : 0;
        p->under_since_ms = since != 0 ? since : v->time_ms;
    }
}

struct repair_breaker repair_breaker(const struct dir_view *v)
{
    struct repair_breaker b = {0};
    const struct dir_node *n;
    struct ptree_iter it;
    for (ptree_seek(&v->nodes, slice_of(NULL, 0), &it); (n = ptree_iter_get(&it, NULL)) != NULL;
         ptree_iter_next(&it)) {
        b.nodes += !n->is_static;
        b.away += !view_node_is_live(n) && n->partition_count > 0;
    }
    b.tripped = b.away > REPAIR_BREAKER_NODES ||
                (b.away > 1 && b.away * 100 > b.nodes * REPAIR_BREAKER_PERCENT);
    return b;
}
