/* SPDX-License-Identifier: Apache-2.0 */
/* A round, in order of what matters: recovery, constraints and drain, splits and merges, balance.
 * Each step sees the state that the ones before it have planned. */
#include "balancer/plan.h"

#include "balancer/internal.h"
#include "balancer/reshape.h"
#include "base/assert.h"
#include "base/mem.h"

#include <stdlib.h>

const char *bal_reason_slug(enum bal_reason reason)
{
    static const char *const slugs[] = {
#define X(name, slug, text) slug,
        BAL_REASONS(X)
#undef X
    };
    ASSERT(reason < BAL_REASON_COUNT);
    return slugs[reason];
}

const char *bal_reason_text(enum bal_reason reason)
{
    static const char *const texts[] = {
#define X(name, slug, text) text,
        BAL_REASONS(X)
#undef X
    };
    ASSERT(reason < BAL_REASON_COUNT);
    return texts[reason];
}

const char *bal_kind_name(enum bal_kind kind)
{
    static const char *const names[] = {"none", "transfer", "move",  "move_replica", "add_replica",
                                        "swap", "split",    "merge", "advice"};
    ASSERT(kind >= BAL_TRANSFER && kind <= BAL_ADVICE);
    return names[kind];
}

void bal_plan_init(struct bal_plan *plan)
{
    *plan = (struct bal_plan){0};
}

void bal_plan_close(struct bal_plan *plan)
{
    mem_free(plan->proposal);
    *plan = (struct bal_plan){0};
}

static void empty(struct bal_plan *plan)
{
    struct bal_proposal *kept = plan->proposal;
    uint32_t room = plan->proposal_room;
    *plan = (struct bal_plan){.proposal = kept, .proposal_room = room};
}

static int by_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* A whole failure domain is what placement is made to lose; its loss alone trips nothing. */
static bool one_zone(const struct bal_fleet *f)
{
    uint16_t zone = BAL_NO_NODE;
    for (uint16_t n = 0; n < f->node_count; n++) {
        if (f->node[n].state != BAL_DEAD) {
            continue;
        }
        if (f->zone_of[n] == BAL_NO_NODE || (zone != BAL_NO_NODE && zone != f->zone_of[n])) {
            return false;
        }
        zone = f->zone_of[n];
    }
    return f->zone_count >= 3;
}

/* Many nodes gone in one window, or a large part of all: more likely that we are cut off, or that
 * something kills whoever takes over, than that they all died. */
static bool vanished(const struct bal_state *st)
{
    const struct bal_fleet *f = st->f;
    const struct bal_settings *s = st->s;
    uint64_t *since = mem_alloc((f->node_count + 1) * sizeof *since);
    uint32_t dead = 0, most = 0;
    for (uint16_t n = 0; n < f->node_count; n++) {
        if (f->node[n].state == BAL_DEAD) {
            since[dead++] = f->node[n].state_since_ms;
        }
    }
    if (dead > 0) {
        qsort(since, dead, sizeof *since, by_u64);
    }
    for (uint32_t first = 0, i = 0; i < dead; i++) {
        while (since[i] - since[first] > s->vanished_window_ms) {
            first++;
        }
        most = (uint32_t)bal_max(most, i - first + 1);
    }
    mem_free(since);
    bool many = most > s->vanished_max || dead > bal_scale(f->node_count, s->vanished_share);
    return many && !s->breaker_confirmed && !one_zone(f);
}

/* A planner that has just started has not seen enough: at least one window, and until most have
 * reported, or long enough. */
static bool quiet(const struct bal_state *st)
{
    const struct bal_fleet *f = st->f;
    uint64_t age = bal_less(st->now, st->m->started_ms);
    if (age < st->s->sustain_ms) {
        return true;
    }
    if (age >= st->s->quiet_ms) {
        return false;
    }
    uint32_t reported = 0;
    for (uint32_t p = 0; p < f->partition_count; p++) {
        reported += (f->flags[p] & BAL_STALE) == 0;
    }
    return reported < bal_scale(f->partition_count, st->s->quiet_reported);
}

static bool cluster_hot(const struct bal_state *st)
{
    for (unsigned r = 0; r < BAL_RESOURCES; r++) {
        if (bal_uses(st, r) && st->plan->mean[r] > st->s->cluster_hot) {
            return true;
        }
    }
    return false;
}

static void balance(struct bal_state *st)
{
    struct bal_plan *plan = st->plan;
    if (plan->recovering || plan->quiet) {
        bal_reject(st, BAL_NO_PARTITION, BAL_NO_NODE,
                   plan->recovering ? BAL_REASON_RECOVERING : BAL_REASON_QUIET);
        return;
    }
    plan->cluster_hot = cluster_hot(st);
    if (plan->cluster_hot) {
        (void)bal_propose(st, &(struct bal_proposal){.class_of = DIR_CLASS_OPTIMISE,
                                                     .kind = BAL_ADVICE,
                                                     .reason = BAL_REASON_HOT_CLUSTER,
                                                     .threshold = st->s->cluster_hot});
        return;
    }
    bal_relieve(st);
    bal_fill(st);
}

static const uint32_t classes[] = {
    DIR_CLASS_UNAVAILABLE, DIR_CLASS_LAST_COPY, DIR_CLASS_UNDER_REPLICATED,
    DIR_CLASS_CONSTRAINT,  DIR_CLASS_DRAIN,     DIR_CLASS_OVERLOAD,
    DIR_CLASS_HOT,         DIR_CLASS_BALANCE,   DIR_CLASS_MERGE,
    DIR_CLASS_OPTIMISE};
enum { CLASSES = sizeof classes / sizeof *classes };

static unsigned class_index(uint32_t class_of)
{
    for (unsigned i = 0; i < CLASSES; i++) {
        if (classes[i] == class_of) {
            return i;
        }
    }
    UNREACHABLE();
}

/* Stable: within a class the order in which they were planned. */
static void order(struct bal_plan *plan)
{
    uint32_t count = plan->proposal_count, begin[CLASSES + 1] = {0};
    bool sorted = true;
    for (uint32_t i = 0; i < count; i++) {
        begin[class_index(plan->proposal[i].class_of) + 1]++;
        sorted &= i == 0 || plan->proposal[i - 1].class_of >= plan->proposal[i].class_of;
    }
    if (sorted) {
        return;
    }
    for (unsigned i = 0; i < CLASSES; i++) {
        begin[i + 1] += begin[i];
    }
    struct bal_proposal *all = mem_alloc((count + 1) * sizeof *all);
    for (uint32_t i = 0; i < count; i++) {
        all[begin[class_index(plan->proposal[i].class_of)]++] = plan->proposal[i];
    }
    mem_free(plan->proposal);
    plan->proposal = all;
    plan->proposal_room = count + 1;
}

static void run(struct bal_state *st)
{
    bal_tokens_refill(st->m, st->s, st->f->node_count, st->now);
    bal_memory_sync(st->m, st->f);
    bal_state_open(st);
    bal_observe(st);
    st->plan->breaker = vanished(st);
    st->plan->quiet = quiet(st);
    if (st->plan->breaker) {
        bal_reject(st, BAL_NO_PARTITION, BAL_NO_NODE, BAL_REASON_BREAKER);
        bal_reshape(st, false);
    } else {
        bal_recover(st);
        bal_evacuate(st);
        bal_reshape(st, !st->plan->quiet);
        balance(st);
    }
    order(st->plan);
}

void bal_plan(const struct bal_fleet *f,
              const struct bal_settings *s,
              uint64_t now_ms,
              struct bal_memory *m,
              struct bal_plan *plan)
{
    ASSERT(f->building == NULL);
    struct bal_state st = {.f = f, .s = s, .m = m, .plan = plan, .now = now_ms};
    empty(plan);
    run(&st);
    bal_state_close(&st);
}

static const struct bal_proposal *proposal_of(const struct bal_plan *plan, uint64_t partition)
{
    for (uint32_t i = 0; i < plan->proposal_count; i++) {
        const struct bal_proposal *p = &plan->proposal[i];
        if (p->kind != BAL_ADVICE && (p->partition == partition || p->partner == partition)) {
            return p;
        }
    }
    return NULL;
}

/* Whether the copy may leave, and whether it may go there: the rules that the round went by, asked
 * of the state that it left. */
static void explain_move(struct bal_state *st, uint32_t p, uint16_t to, struct bal_explanation *ret)
{
    const struct bal_fleet *f = st->f;
    uint32_t copy = bal_primary(f, p);
    uint16_t from = st->at[copy];
    uint32_t hot = bal_to_relieve(st, from, DIR_CLASS_HOT);
    uint32_t mask = hot != 0 ? hot : bal_to_relieve(st, from, DIR_CLASS_BALANCE);
    unsigned resource = mask != 0 ? bal_dominant_of(st, from, mask) : bal_dominant(st, from);
    bool urgent = hot != 0;
    struct bal_step step;
    bal_step_of(st, copy, resource, urgent ? DIR_CLASS_HOT : DIR_CLASS_BALANCE, &step);
    ret->from_level = st->level[from];
    ret->source_reason = (uint8_t)bal_source(st, from);
    ret->partition_reason = (uint8_t)bal_movable(st, copy, resource, urgent);
    if (to == BAL_NO_NODE) {
        return;
    }
    step.to = to;
    ret->to_level = st->level[to];
    enum bal_reason reason = bal_may_hold(st, &step, to);
    if (reason == BAL_REASON_NONE) {
        ret->from_after = bal_level_with(st, from, step.vector, false);
        ret->to_after = bal_level_with(st, to, step.vector, true);
        reason = bal_returns(st, &step, to) ? BAL_REASON_RETURNING
                                            : bal_budget(st, from, to, step.class_of);
    }
    ret->node_reason = reason != BAL_REASON_NONE ? (uint8_t)reason : bal_judge(st, &step).reason;
}

enum err_code bal_explain(const struct bal_fleet *f,
                          const struct bal_settings *s,
                          uint64_t now_ms,
                          const struct bal_memory *m,
                          const struct bal_question *question,
                          struct bal_explanation *ret)
{
    uint32_t p = bal_fleet_partition(f, question->partition);
    uint16_t to = question->to == 0 ? BAL_NO_NODE : bal_fleet_node(f, question->to);
    if (p == BAL_NO_PARTITION) {
        return ERR_PARTITION_NOT_FOUND;
    }
    if (question->to != 0 && to == BAL_NO_NODE) {
        return ERR_NODE_NOT_FOUND;
    }
    struct bal_plan plan;
    bal_plan_init(&plan);
    struct bal_memory *copy = bal_memory_copy(m);
    struct bal_state st = {.f = f, .s = s, .m = copy, .plan = &plan, .now = now_ms};
    run(&st);
    *ret = (struct bal_explanation){0};
    const struct bal_proposal *made = proposal_of(&plan, question->partition);
    if (made != NULL) {
        ret->planned = true;
        ret->proposal = *made;
    }
    if (plan.breaker || plan.recovering || plan.quiet) {
        ret->round_reason = plan.breaker      ? BAL_REASON_BREAKER
                            : plan.recovering ? BAL_REASON_RECOVERING
                                              : BAL_REASON_QUIET;
    }
    if (f->place[p].copy_begin < f->place[p + 1].copy_begin) {
        explain_move(&st, p, to, ret);
    }
    struct bal_partition_memory *known = bal_memory_partition(copy, question->partition);
    struct bal_partition_memory none = {.partition = question->partition};
    struct bal_proposal split;
    ret->split_reason =
        (uint8_t)(known == NULL || known->hot_ms == 0 ? BAL_REASON_TOO_SMALL
                                                      : bal_split_of(&st, p, known, &split));
    ret->merge_reason = (uint8_t)bal_merge_of(&st, p, known != NULL ? known : &none);
    bal_state_close(&st);
    bal_memory_free(copy);
    bal_plan_close(&plan);
    return ERR_OK;
}
