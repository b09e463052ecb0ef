/* SPDX-License-Identifier: Apache-2.0 */
/* What each node should bear. One mean would do if every copy could go anywhere; where placement
 * rules or spreading confine some, it is the least uneven placement that counts: of all sets of
 * nodes the one with most load that can go nowhere else, by capacity, bears that; then the same of
 * the rest. Without it the nodes of a rule that has more than its part are all "hot", none of them
 * is a destination, and nothing is evened out among them.
 *
 * Nodes that the rules can't tell apart are a group; loads that may go to the same groups a pool.
 */
#include "balancer/internal.h"

#include "base/mem.h"

#include <string.h>

enum {
    POOLS_MAX = 256, /* with more of them spreading confines nothing here */
    WORDS = BAL_GROUPS_MAX / 64
};

struct set {
    uint64_t bits[WORDS]; /* of groups */
};

struct pool {
    struct set may; /* where it may be */
    uint64_t load[BAL_RESOURCES];
    bool placed; /* while levels are found: it has one */
};

struct pools {
    struct pool pool[POOLS_MAX];
    uint32_t count;
    uint64_t capacity[BAL_GROUPS_MAX][BAL_RESOURCES]; /* of those that serve */
    uint32_t zones[BAL_RULES_MAX];                    /* that serve, by rule */
    bool open[BAL_RULES_MAX];                         /* a node without a zone serves */
    uint16_t at[BAL_RULES_MAX][BAL_ZONES_MAX + 1];    /* pool by rule and zone; 0: any zone */
    bool by_zone;
};

/* --- groups --- */

static bool group_nodes(struct bal_groups *g, const struct bal_fleet *f, uint64_t rules)
{
    g->count = 0;
    for (uint16_t n = 0; n < f->node_count; n++) {
        uint64_t mine = rules == 0 ? UINT64_MAX : f->node[n].rules & rules;
        uint32_t i = 0;
        while (i < g->count && (g->zone[i] != f->zone_of[n] || g->rules[i] != mine)) {
            i++;
        }
        if (i == BAL_GROUPS_MAX) {
            return false;
        }
        if (i == g->count) {
            g->zone[i] = f->zone_of[n];
            g->rules[i] = mine;
            g->count++;
        }
        g->of[n] = (uint16_t)i;
    }
    return true;
}

void bal_groups_open(struct bal_state *st)
{
    struct bal_groups *g = &st->groups;
    g->of = mem_zalloc((st->f->node_count + 1) * sizeof *g->of);
    if (!group_nodes(g, st->f, st->f->rules & ~UINT64_C(1))) {
        (void)group_nodes(g, st->f, 0); /* by zone alone: fewer than there may be groups */
    }
}

void bal_groups_close(struct bal_state *st)
{
    mem_free(st->groups.of);
}

bool bal_group_allowed(const struct bal_groups *g, uint32_t group, uint8_t rule)
{
    return rule == 0 || (g->rules[group] >> rule & 1) != 0;
}

/* --- sets --- */

static bool has(const struct set *s, uint32_t group)
{
    return (s->bits[group / 64] >> group % 64 & 1) != 0;
}

static void put(struct set *s, uint32_t group)
{
    s->bits[group / 64] |= UINT64_C(1) << group % 64;
}

static struct set both(const struct set *a, const struct set *b)
{
    struct set s;
    for (int i = 0; i < WORDS; i++) {
        s.bits[i] = a->bits[i] & b->bits[i];
    }
    return s;
}

static struct set either(const struct set *a, const struct set *b)
{
    struct set s;
    for (int i = 0; i < WORDS; i++) {
        s.bits[i] = a->bits[i] | b->bits[i];
    }
    return s;
}

static bool within(const struct set *a, const struct set *b)
{
    uint64_t outside = 0;
    for (int i = 0; i < WORDS; i++) {
        outside |= a->bits[i] & ~b->bits[i];
    }
    return outside == 0;
}

/* --- pools --- */

static bool serves(const struct bal_state *st, uint16_t n)
{
    return st->takes[n] || st->f->node[n].state == BAL_CORDONED;
}

static void count_zones(const struct bal_state *st, struct pools *x)
{
    const struct bal_fleet *f = st->f;
    const struct bal_groups *g = &st->groups;
    uint64_t seen[BAL_RULES_MAX] = {0};
    for (uint16_t n = 0; n < f->node_count; n++) {
        if (!serves(st, n)) {
            continue;
        }
        for (unsigned r = 0; r < BAL_RESOURCES; r++) {
            x->capacity[g->of[n]][r] += f->node[n].capacity[r];
        }
        for (uint8_t rule = 0; rule < BAL_RULES_MAX; rule++) {
            if ((f->rules >> rule & 1) == 0 || !bal_group_allowed(g, g->of[n], rule)) {
                continue;
            }
            if (f->zone_of[n] == BAL_NO_NODE) {
                x->open[rule] = true;
            } else if ((seen[rule] >> f->zone_of[n] & 1) == 0) {
                seen[rule] |= UINT64_C(1) << f->zone_of[n];
                x->zones[rule]++;
            }
        }
    }
}

/* Each of its copies has a zone to itself and all are taken: none can change its zone. */
static bool confined(const struct pools *x, uint8_t rule, uint8_t spread, uint32_t copies)
{
    return x->by_zone && (spread & BAL_SPREAD_ZONE) != 0 && copies > 1 && !x->open[rule] &&
           copies >= x->zones[rule];
}

/* POOLS_MAX: there is no room for another. */
static uint32_t pool_of(const struct bal_state *st, struct pools *x, uint8_t rule, uint16_t zone)
{
    const struct bal_groups *g = &st->groups;
    uint16_t *at = &x->at[rule][zone == BAL_NO_NODE ? 0 : zone + 1];
    if (*at == 0 && x->count < POOLS_MAX) {
        struct pool *p = &x->pool[x->count++];
        *at = (uint16_t)x->count;
        for (uint32_t i = 0; i < g->count; i++) {
            if (bal_group_allowed(g, i, rule) && (zone == BAL_NO_NODE || g->zone[i] == zone)) {
                put(&p->may, i);
            }
        }
    }
    return *at == 0 ? POOLS_MAX : *at - UINT32_C(1);
}

static bool counts(const struct bal_state *st, uint16_t n)
{
    return serves(st, n) || st->f->node[n].state == BAL_DRAINING;
}

/* Where all copies are alike, sums of nodes are all that is needed. */
static bool from_nodes(const struct bal_state *st, struct pools *x)
{
    const struct bal_fleet *f = st->f;
    uint32_t bound = 0;
    for (uint32_t copies = 2; copies <= BAL_COPIES_MAX; copies++) {
        bound += confined(x, 0, BAL_SPREAD_ZONE, copies) ? f->spread_count[copies] : 0;
    }
    if ((f->rules & ~UINT64_C(1)) != 0 || (bound != 0 && bound != f->partition_count)) {
        return false;
    }
    for (uint16_t n = 0; n < f->node_count; n++) {
        uint32_t i = pool_of(st, x, 0, bound == 0 ? BAL_NO_NODE : f->zone_of[n]);
        for (unsigned r = 0; r < BAL_RESOURCES && counts(st, n); r++) {
            x->pool[i].load[r] += st->load[bal_cell(n, r)];
        }
    }
    return true;
}

static bool from_copies(const struct bal_state *st, struct pools *x)
{
    const struct bal_fleet *f = st->f;
    for (uint32_t p = 0; p < f->partition_count; p++) {
        uint32_t begin = f->place[p].copy_begin, end = f->place[p + 1].copy_begin;
        bool bound = confined(x, f->place[p].rule, f->place[p].spread, end - begin);
        for (uint32_t c = begin; c < end; c++) {
            uint16_t n = st->at[c];
            uint32_t i = pool_of(st, x, f->place[p].rule, bound ? f->zone_of[n] : BAL_NO_NODE);
            if (i == POOLS_MAX) {
                return false;
            }
            for (unsigned r = 0; r < BAL_RESOURCES && counts(st, n); r++) {
                x->pool[i].load[r] += bal_copy_load(f, c, r);
            }
        }
    }
    return true;
}

static void make_pools(const struct bal_state *st, struct pools *x)
{
    count_zones(st, x);
    x->by_zone = true;
    if (from_nodes(st, x) || from_copies(st, x)) {
        return;
    }
    x->by_zone = false;
    x->count = 0;
    memset(x->at, 0, sizeof x->at);
    memset(x->pool, 0, sizeof x->pool);
    (void)from_copies(st, x); /* a pool for each rule: there is room */
}

/* --- levels --- */

/* The load that can be nowhere but in `s`, by its capacity; 0 without any. */
static bal_q32 density(const struct pools *x,
                       const struct bal_groups *g,
                       unsigned r,
                       const struct set *left,
                       const struct set *s)
{
    bal_u128 load = 0, capacity = 0;
    for (uint32_t i = 0; i < x->count; i++) {
        struct set may = both(&x->pool[i].may, left);
        load += !x->pool[i].placed && within(&may, s) ? x->pool[i].load[r] : 0;
    }
    for (uint32_t i = 0; i < g->count; i++) {
        capacity += has(s, i) ? x->capacity[i][r] : 0;
    }
    return capacity == 0 ? 0 : bal_clamp128((load << 32) / capacity);
}

/* The set of what is left that has to bear most. */
static bal_q32 densest(const struct pools *x,
                       const struct bal_groups *g,
                       unsigned r,
                       const struct set *left,
                       struct set *ret)
{
    bal_q32 most = 0;
    bool grows = true;
    *ret = (struct set){0};
    while (grows) {
        struct set from = *ret;
        grows = false;
        for (uint32_t i = 0; i < x->count; i++) {
            struct set more = both(&x->pool[i].may, left);
            if (x->pool[i].placed || within(&more, &from)) {
                continue;
            }
            more = either(&more, &from);
            bal_q32 d = density(x, g, r, left, &more);
            if (d > most) {
                most = d;
                *ret = more;
                grows = true;
            }
        }
    }
    return most;
}

static void set_level(struct pools *x, const struct bal_groups *g, unsigned r, bal_q32 *mean)
{
    struct set left = {0}, s;
    for (uint32_t i = 0; i < g->count; i++) {
        if (x->capacity[i][r] > 0) {
            put(&left, i);
        }
    }
    for (uint32_t i = 0; i < x->count; i++) {
        struct set may = both(&x->pool[i].may, &left), none = {0};
        x->pool[i].placed = within(&may, &none); /* nobody serves it */
    }
    bal_q32 d;
    while ((d = densest(x, g, r, &left, &s)) > 0) {
        for (uint32_t i = 0; i < x->count; i++) {
            struct set may = both(&x->pool[i].may, &left);
            x->pool[i].placed = x->pool[i].placed || within(&may, &s);
        }
        for (uint32_t i = 0; i < g->count; i++) {
            if (has(&s, i)) {
                mean[(size_t)i * BAL_RESOURCES + r] = d;
            }
        }
        for (int i = 0; i < WORDS; i++) {
            left.bits[i] &= ~s.bits[i];
        }
    }
}

void bal_groups_level(struct bal_state *st, bal_q32 *mean)
{
    struct pools *x = mem_zalloc(sizeof *x);
    make_pools(st, x);
    for (unsigned r = 0; r < BAL_RESOURCES; r++) {
        if (bal_uses(st, r)) {
            set_level(x, &st->groups, r, mean);
        }
    }
    mem_free(x);
}
