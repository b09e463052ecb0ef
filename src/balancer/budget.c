/* SPDX-License-Identifier: Apache-2.0 */
/* How much may be under way at once: counts at each end, in each failure domain and in all, rates
 * at each end, and moves in an hour. All or nothing: bal_budget asks every limit, bal_budget_take
 * charges every one. */
#include "balancer/internal.h"

#include "base/assert.h"
#include "base/mem.h"

#define HOUR_MS UINT64_C(3600000)

static bool recovers(uint32_t class_of)
{
    return class_of >= DIR_CLASS_UNDER_REPLICATED;
}

static const struct bal_limits *limits_of(const struct bal_state *st, uint32_t class_of)
{
    return recovers(class_of)          ? &st->s->total
           : class_of == DIR_CLASS_HOT ? &st->s->hot
                                       : &st->s->routine;
}

static bool full(const struct bal_usage *u, uint32_t limit, uint32_t total, uint32_t class_of)
{
    return u->all >= total || (!recovers(class_of) && u->ordinary >= limit);
}

static uint32_t limit_of_all(const struct bal_state *st, const struct bal_limits *l)
{
    return l->all + (l->all_per_nodes == 0 ? 0 : st->f->node_count / l->all_per_nodes);
}

/* A new node's caches are cold: it starts with one copy at a time. */
static uint32_t intake_ramp(const struct bal_state *st, uint16_t node)
{
    uint64_t joined = st->f->node[node].joined_ms;
    uint64_t age = joined == 0 ? UINT64_MAX : bal_less(st->now, joined);
    return age < st->s->intake_one_ms ? 1 : age < st->s->intake_two_ms ? 2 : UINT32_MAX;
}

static bool
rate_used(const struct bal_state *st, const struct bal_usage *u, uint64_t rate, uint32_t class_of)
{
    uint64_t each = st->s->copy_bytes_per_s;
    if (rate == 0) {
        return false;
    }
    uint64_t open = recovers(class_of) ? rate : rate / 2;
    uint64_t used = recovers(class_of) ? u->all : u->ordinary;
    return (used + 1) * each > bal_max(open, u->all == 0 ? bal_min(each, rate) : 0);
}

enum bal_reason bal_budget_intake(const struct bal_state *st, uint16_t node, uint32_t class_of)
{
    const struct bal_limits *l = limits_of(st, class_of);
    uint32_t ramp = recovers(class_of) ? UINT32_MAX : intake_ramp(st, node);
    const struct bal_usage *u = &st->in[node];
    if (full(u, (uint32_t)bal_min(l->node_in, ramp), st->s->total.node_in, class_of)) {
        return BAL_REASON_BUDGET_NODE;
    }
    if (rate_used(st, u, st->f->node[node].rate_in, class_of)) {
        return BAL_REASON_BUDGET_RATE;
    }
    if (st->s->one_way && class_of < DIR_CLASS_DRAIN && st->out[node].ordinary > 0) {
        return BAL_REASON_BOTH_WAYS;
    }
    return BAL_REASON_NONE;
}

enum bal_reason bal_budget_source(const struct bal_state *st, uint16_t node, uint32_t class_of)
{
    const struct bal_usage *u = &st->out[node];
    if (full(u, limits_of(st, class_of)->node_out, st->s->total.node_out, class_of)) {
        return BAL_REASON_BUDGET_NODE;
    }
    if (rate_used(st, u, st->f->node[node].rate_out, class_of)) {
        return BAL_REASON_BUDGET_RATE;
    }
    if (st->s->one_way && class_of < DIR_CLASS_DRAIN && st->in[node].ordinary > 0) {
        return BAL_REASON_BOTH_WAYS;
    }
    return BAL_REASON_NONE;
}

static bool domain_full(const struct bal_usage *usage,
                        uint16_t domain,
                        uint32_t limit,
                        uint32_t total,
                        uint32_t class_of)
{
    return domain != BAL_NO_NODE && full(&usage[domain], limit, total, class_of);
}

static bool domains_full(const struct bal_state *st, uint16_t node, uint32_t class_of)
{
    const struct bal_fleet *f = st->f;
    const struct bal_limits *l = limits_of(st, class_of), *t = &st->s->total;
    return domain_full(st->rack, f->rack_of[node], l->rack, t->rack, class_of) ||
           domain_full(st->zone, f->zone_of[node], l->zone, t->zone, class_of) ||
           domain_full(st->device, f->device_of[node], l->device, t->device, class_of);
}

enum bal_reason
bal_budget(const struct bal_state *st, uint16_t from, uint16_t to, uint32_t class_of)
{
    enum bal_reason reason = bal_budget_intake(st, to, class_of);
    bool flows = from != BAL_NO_NODE && st->f->node[from].state != BAL_DEAD;
    if (reason == BAL_REASON_NONE && flows) {
        reason = bal_budget_source(st, from, class_of);
    }
    if (reason != BAL_REASON_NONE) {
        return reason;
    }
    if (domains_full(st, to, class_of) || (flows && domains_full(st, from, class_of))) {
        return BAL_REASON_BUDGET_DOMAIN;
    }
    uint32_t used = class_of == DIR_CLASS_HOT ? st->all_hot : st->all_routine;
    if (st->all >= limit_of_all(st, &st->s->total) + limit_of_all(st, &st->s->routine) ||
        (!recovers(class_of) && used >= limit_of_all(st, limits_of(st, class_of)))) {
        return BAL_REASON_BUDGET_ALL;
    }
    return BAL_REASON_NONE;
}

static void charge(struct bal_usage *u, uint32_t class_of)
{
    u->all++;
    u->ordinary += !recovers(class_of);
}

static void charge_domain(struct bal_usage *usage,
                          const uint16_t *domain,
                          uint16_t from,
                          uint16_t to,
                          uint32_t class_of)
{
    if (domain[to] != BAL_NO_NODE) {
        charge(&usage[domain[to]], class_of);
    }
    if (from != BAL_NO_NODE && domain[from] != BAL_NO_NODE && domain[from] != domain[to]) {
        charge(&usage[domain[from]], class_of);
    }
}

void bal_budget_take(struct bal_state *st, uint16_t from, uint16_t to, uint32_t class_of)
{
    const struct bal_fleet *f = st->f;
    if (from != BAL_NO_NODE && f->node[from].state == BAL_DEAD) {
        from = BAL_NO_NODE;
    }
    charge(&st->in[to], class_of);
    if (from != BAL_NO_NODE) {
        charge(&st->out[from], class_of);
    }
    charge_domain(st->rack, f->rack_of, from, to, class_of);
    charge_domain(st->zone, f->zone_of, from, to, class_of);
    charge_domain(st->device, f->device_of, from, to, class_of);
    st->all++;
    if (class_of == DIR_CLASS_HOT) {
        st->all_hot++;
    } else if (!recovers(class_of)) {
        st->all_routine++;
    }
}

/* What runs already, as the fleet says. */
void bal_budget_open(struct bal_state *st)
{
    const struct bal_fleet *f = st->f;
    st->in = mem_zalloc((f->node_count + 1) * sizeof *st->in);
    st->out = mem_zalloc((f->node_count + 1) * sizeof *st->out);
    st->rack = mem_zalloc((f->rack_count + 1) * sizeof *st->rack);
    st->zone = mem_zalloc((f->zone_count + 1) * sizeof *st->zone);
    st->device = mem_zalloc((f->device_count + 1) * sizeof *st->device);
    for (uint32_t c = 0; f->moving_count > 0 && c < f->copy_count; c++) {
        if (f->copy_to[c] != BAL_NO_NODE) {
            bal_budget_take(st, f->copy_node[c], f->copy_to[c],
                            f->place[f->copy_partition[c]].operation);
        }
    }
    st->tokens = st->m->tokens;
    st->hot_tokens = st->m->hot_tokens;
}

enum bal_reason bal_tokens(const struct bal_state *st, uint32_t class_of, uint32_t moves)
{
    uint64_t have = class_of == DIR_CLASS_HOT ? st->hot_tokens : st->tokens;
    return class_of >= DIR_CLASS_DRAIN || have >= moves * HOUR_MS ? BAL_REASON_NONE
                                                                  : BAL_REASON_BUDGET_TOKENS;
}

void bal_tokens_take(struct bal_state *st, uint32_t class_of, uint32_t moves)
{
    if (class_of >= DIR_CLASS_DRAIN) {
        return;
    }
    uint64_t *have = class_of == DIR_CLASS_HOT ? &st->hot_tokens : &st->tokens;
    ASSERT(*have >= moves * HOUR_MS);
    *have -= moves * HOUR_MS;
}

static void refill(uint64_t *tokens, uint64_t elapsed, uint64_t per_hour, uint64_t burst)
{
    *tokens = bal_min(bal_more(*tokens, elapsed * per_hour), burst * HOUR_MS);
}

void bal_tokens_refill(struct bal_memory *m,
                       const struct bal_settings *s,
                       uint32_t nodes,
                       uint64_t now)
{
    if (nodes == 0) {
        return; /* nobody to move anything: the time that passes is not counted */
    }
    /* A memory without a past starts with full buckets: they bound bursts, not starts. */
    uint64_t elapsed =
        m->tokens_ms == 0 ? HOUR_MS * 24 : bal_min(bal_less(now, m->tokens_ms), HOUR_MS * 24);
    refill(&m->tokens, elapsed, (uint64_t)s->moves_per_node_hour * nodes, s->moves_burst);
    refill(&m->hot_tokens, elapsed, (uint64_t)s->hot_per_node_hour * nodes, s->hot_burst);
    m->tokens_ms = now;
}
