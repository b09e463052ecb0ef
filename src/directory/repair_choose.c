/* SPDX-License-Identifier: Apache-2.0 */
/* Where a copy goes: to a node that the hard rules allow, of a spread value that no other copy has
 * while there is one, rather to one that does not lapse again and again, with the fewest copies
 * (those on their way included), ties by name. */
#include "base/mem.h"
#include "directory/repair_internal.h"

#include <stdlib.h>

enum { PASSED_OVER_MAX = 4 }; /* best ones that have to delete an older copy first */

bool repair_is_open(const struct repair_spot *s, const struct dir_keyspace *ks)
{
    return s->life == REPAIR_LIVE && !s->node->is_static && s->node->scheduling == DIR_OPEN &&
           place_allows(&ks->placement, s->node);
}

/* --- spread --- */

static int by_value(const void *x, const void *y)
{
    return strcmp(*(const char *const *)x, *(const char *const *)y);
}

static void read_values(struct repair *r, const struct dir_keyspace *ks)
{
    uint64_t n = 0;
    r->cost += r->v->nodes.count / REPAIR_NODE_COST + 1;
    r->values_of = ks->id;
    r->values_revision = ks->mod_revision;
    for (uint64_t i = 0; i < r->cap; i++) {
        if (r->spots[i].node != NULL && repair_is_open(&r->spots[i], ks)) {
            r->values[n++] = place_label(r->spots[i].node, ks->placement.spread);
        }
    }
    qsort(r->values, n, sizeof r->values[0], by_value);
    r->value_count = 0;
    for (uint64_t i = 0; i < n; i++) {
        if (i == 0 || strcmp(r->values[i], r->values[i - 1]) != 0) {
            r->values[r->value_count++] = r->values[i];
        }
    }
}

static bool is_used(const struct repair_tally *t, int without, const char *value)
{
    for (int i = 0; i < t->p->replica_count; i++) {
        if (i != without && t->copies[i].spot->life != REPAIR_GONE &&
            strcmp(t->copies[i].spread, value) == 0) {
            return true;
        }
    }
    return false;
}

bool repair_can_spread(struct repair *r, const struct repair_tally *t, int without)
{
    if (r->values_of != t->ks->id || r->values_revision != t->ks->mod_revision) {
        read_values(r, t->ks);
    }
    for (uint64_t i = 0; i < r->value_count; i++) {
        if (!is_used(t, without, r->values[i])) {
            return true;
        }
    }
    return false;
}

/* --- the choice --- */

struct choice {
    const struct repair_tally *t;
    int leaving;    /* the copy that goes, or -1 */
    uint64_t avoid; /* a node that did not do lately */
    uint64_t passed[PASSED_OVER_MAX];
    unsigned passed_count;
    /* Why nodes were no candidates. */
    uint64_t away, closed, forbidden, holding, without_agent;
};

static bool is_passed(const struct choice *c, uint64_t node)
{
    for (unsigned i = 0; i < c->passed_count; i++) {
        if (c->passed[i] == node) {
            return true;
        }
    }
    return false;
}

static bool is_candidate(struct choice *c, const struct repair_spot *s)
{
    if (partition_copy_on(c->t->p, s->node->id) >= 0) {
        c->holding++;
    } else if (s->life != REPAIR_LIVE) {
        c->away++;
    } else if (s->node->is_static) {
        c->without_agent++;
    } else if (s->node->scheduling != DIR_OPEN) {
        c->closed++;
    } else if (!place_allows(&c->t->ks->placement, s->node)) {
        c->forbidden++;
    } else {
        return true;
    }
    return false;
}

/* What speaks against it, the worst first. */
struct rank {
    bool crowds, distrusted, avoided;
    uint64_t load;
    uint32_t order;
};

static struct rank
rank_of(const struct repair *r, const struct choice *c, const struct repair_spot *s)
{
    const char *spread = c->t->ks->placement.spread;
    return (struct rank){
        .crowds = spread[0] != '\0' && is_used(c->t, c->leaving, place_label(s->node, spread)),
        .distrusted = view_node_distrusted_until(&r->v->settings, s->node) > r->clock.now_ms,
        .avoided = s->node->id == c->avoid,
        .load = repair_load(s),
        .order = s->order,
    };
}

static bool is_better(const struct rank *a, const struct rank *b)
{
    if (a->crowds != b->crowds) {
        return b->crowds;
    }
    if (a->distrusted != b->distrusted) {
        return b->distrusted;
    }
    if (a->avoided != b->avoided) {
        return b->avoided;
    }
    return a->load != b->load ? a->load < b->load : a->order < b->order;
}

static struct repair_spot *best_of(struct repair *r, struct choice *c, struct rank *ret_rank)
{
    struct repair_spot *best = NULL;
    c->away = c->closed = c->forbidden = c->holding = c->without_agent = 0;
    r->cost += r->v->nodes.count / REPAIR_NODE_COST + 1;
    for (uint64_t i = 0; i < r->cap; i++) {
        struct repair_spot *s = &r->spots[i];
        if (s->node == NULL || !is_candidate(c, s) || is_passed(c, s->node->id)) {
            continue;
        }
        struct rank rank = rank_of(r, c, s);
        if (best == NULL || is_better(&rank, ret_rank)) {
            best = s;
            *ret_rank = rank;
        }
    }
    return best;
}

/* Rather one that has not to delete an older copy of the partition first. */
static struct repair_spot *choose(struct repair *r, struct choice *c, struct rank *ret_rank)
{
    struct repair_spot *first = NULL;
    struct rank first_rank = {0};
    while (c->passed_count < PASSED_OVER_MAX) {
        struct repair_spot *s = best_of(r, c, ret_rank);
        if (s == NULL || (first != NULL && ret_rank->crowds != first_rank.crowds)) {
            break;
        }
        if (!duty_is_owed(r->v, s->node->id, c->t->p->id)) {
            return s;
        }
        if (first == NULL) {
            first = s;
            first_rank = *ret_rank;
        }
        c->passed[c->passed_count++] = s->node->id;
    }
    *ret_rank = first_rank;
    return first;
}

void repair_choose(struct repair *r,
                   const struct dir_partition *p,
                   uint64_t avoid,
                   struct repair_step *s)
{
    struct repair_tally t;
    struct rank rank = {0};
    if (!s->needs_destination) {
        return;
    }
    repair_tally(r, p, &t);
    struct choice c = {.t = &t, .leaving = -1, .avoid = avoid};
    if (s->kind == DIR_OPERATION_MOVE) {
        c.leaving = partition_copy_on(p, s->from);
    }
    struct repair_spot *best = choose(r, &c, &rank);
    s->needs_destination = false;
    if (best != NULL && !(s->must_spread && rank.crowds)) {
        s->to = best->node->id;
        return;
    }
    s->kind = 0;
    if (s->must_spread) {
        s->problems &= ~(unsigned)REPAIR_CROWDED; /* there is no better place */
        return;
    }
    repair_block(
        s, "no_destination",
        "no node may take a copy: %u hold one, %u have no session, %u take nothing new, %u "
        "are not allowed by the placement, %u have no agent",
        (unsigned)c.holding, (unsigned)c.away, (unsigned)c.closed, (unsigned)c.forbidden,
        (unsigned)c.without_agent);
}
