/* SPDX-License-Identifier: Apache-2.0 */
/* What is seen of a run from a live state: its steps, what budgets came to, load before and after,
 * and what is left undone. */
#include "simulate/whatif_internal.h"

#include "base/mem.h"
#include "directory/policy.h"
#include "directory/repair.h"

#include <stdio.h>
#include <string.h>

static void put_name(struct whatif_name *to, const char *name)
{
    (void)snprintf(to->text, sizeof to->text, "%s", name);
}

/* --- steps --- */

/* NULL: there is no room to show it. */
static struct whatif_step *add_step(struct fm *x)
{
    struct whatif_answer *a = x->live->out;
    x->live->active_ms = x->now_ms;
    return a->step_count++ < WHATIF_STEPS_MAX ? &a->steps[a->step_count - 1] : NULL;
}

static struct whatif_step *step_of(struct fm *x, uint64_t operation)
{
    struct whatif_answer *a = x->live->out;
    uint64_t i = a->step_count < WHATIF_STEPS_MAX ? a->step_count : WHATIF_STEPS_MAX;
    while (i > 0 && a->steps[i - 1].operation != operation) {
        i--;
    }
    return i > 0 ? &a->steps[i - 1] : NULL;
}

static void update(const struct fm *x, struct whatif_step *s, const struct dir_operation *o)
{
    s->state = o->state;
    s->bytes = o->bytes_total > 0 ? o->bytes_total : o->size_bytes;
    put_name(&s->from, o->source_name);
    put_name(&s->to, o->destination_name);
    if (o->state != DIR_OPERATION_QUEUED && s->begin_ms == UINT64_MAX) {
        s->begin_ms = x->now_ms;
    }
    if (o->state >= DIR_OPERATION_DONE && s->end_ms == UINT64_MAX) {
        s->end_ms = x->now_ms;
    }
}

void fm_live_step(struct fm *x, const struct dir_operation *o)
{
    struct whatif_step *s = add_step(x);
    if (s == NULL) {
        return;
    }
    *s = (struct whatif_step){.kind = dir_operation_kind_name((enum dir_operation_kind)o->kind),
                              .operation = o->id,
                              .keyspace = o->keyspace,
                              .partition = o->partition,
                              .role = o->kind == DIR_OPERATION_ADD_REPLICA ? o->role : 0,
                              .class_of = o->class_of,
                              .queued_ms = x->now_ms,
                              .begin_ms = UINT64_MAX,
                              .end_ms = UINT64_MAX};
    memcpy(s->reason, o->reason, sizeof s->reason);
    update(x, s, o);
}

static void count_end(struct fm *x, const struct dir_operation *o)
{
    struct whatif_answer *a = x->live->out;
    bool routine = o->class_of < DIR_CLASS_DRAIN;
    if (o->state != DIR_OPERATION_DONE) {
        a->failed++;
        return;
    }
    a->last_ms = x->now_ms;
    *(routine ? &a->bytes : &a->recovery_bytes) += o->bytes_total;
    *(!routine                                            ? &a->recoveries
      : o->kind == DIR_OPERATION_TRANSFER                 ? &a->transfers
      : o->kind == DIR_OPERATION_MOVE && o->moves_primary ? &a->moves
                                                          : &a->copies) += 1;
}

static void
on_operation(struct fm *x, const struct dir_operation *was, const struct dir_operation *o)
{
    if (o == NULL) {
        return;
    }
    struct whatif_step *s = step_of(x, o->id);
    if (was == NULL) {
        fm_live_step(x, o);
    } else if (s != NULL) {
        update(x, s, o);
    }
    x->live->active_ms = x->now_ms;
    if (o->state >= DIR_OPERATION_DONE && (was == NULL || was->state < DIR_OPERATION_DONE)) {
        count_end(x, o);
    }
}

/* Of a proposal that was carried out: moves have operations, which say more. */
static void on_proposal(struct fm *x, const struct dir_proposal *was, const struct dir_proposal *p)
{
    struct whatif_answer *a = x->live->out;
    bool splits = p != NULL && p->kind == DIR_PROPOSAL_SPLIT;
    bool merges = p != NULL && p->kind == DIR_PROPOSAL_MERGE;
    if ((!splits && !merges) || (was != NULL && was->state == DIR_PROPOSAL_DONE) ||
        p->state != DIR_PROPOSAL_DONE) {
        return;
    }
    *(splits ? &a->splits : &a->merges) += 1;
    a->last_ms = x->now_ms;
    struct whatif_step *s = add_step(x);
    if (s == NULL) {
        return;
    }
    *s = (struct whatif_step){.kind = dir_proposal_kind_name((enum dir_proposal_kind)p->kind),
                              .keyspace = p->keyspace,
                              .partition = p->partition,
                              .with = p->with,
                              .state = DIR_OPERATION_DONE,
                              .class_of = p->class_of,
                              .queued_ms = x->now_ms,
                              .begin_ms = x->now_ms,
                              .end_ms = x->now_ms};
    memcpy(s->reason, p->reason, sizeof s->reason);
}

static uint64_t primary_of(const struct dir_partition *p)
{
    return p != NULL && p->replica_count > 0 && p->replicas[0].role == DIR_ROLE_PRIMARY
               ? p->replicas[0].node
               : 0;
}

static void
on_partition(struct fm *x, const struct dir_partition *was, const struct dir_partition *p)
{
    uint64_t before = primary_of(was), after = primary_of(p);
    if (p != NULL && p->cause == DIR_CHANGE_FAILOVER && before != 0 && after != 0) {
        x->live->out->failovers += before != after;
        x->live->active_ms = before != after ? x->now_ms : x->live->active_ms;
    }
}

void fm_live_rows(struct fm *x, const struct dir_effects *e)
{
    loads_on_rows(x->live->loads, e, x->live->s->mono_ms);
    balancer_births_add(&x->live->births, e);
    for (uint64_t i = 0; i < e->row_count; i++) {
        const void *was = e->rows[i].before, *is = e->rows[i].after;
        const struct dir_object *any = e->rows[i].after != NULL ? is : was;
        if (any->kind == DIR_KIND_OPERATION) {
            on_operation(x, was, is);
        } else if (any->kind == DIR_KIND_PROPOSAL) {
            on_proposal(x, was, is);
        } else if (any->kind == DIR_KIND_PARTITION) {
            on_partition(x, was, is);
        }
    }
}

uint64_t fm_live_bytes(const struct fm *x, uint64_t partition)
{
    struct load_entry e;
    bool known = loads_get(x->live->loads, partition, 0, &e) && (e.has >> LOAD_SIZE & 1) != 0;
    return known ? load_value(&e, LOAD_SIZE, LOAD_FAST) : 0;
}

void fm_live_advise(struct fm *x, const struct bal_proposal *b)
{
    struct whatif_answer *a = x->live->out;
    const struct dir_partition *p;
    uint8_t key[8];
    for (uint64_t i = 0; i < a->advice_count && i < WHATIF_ADVICE_MAX; i++) {
        if (a->advice[i].reason == b->reason && a->advice[i].partition == b->partition) {
            return;
        }
    }
    p = ptree_get(&fm_view(x)->partitions, ptree_u64_key(b->partition, key));
    if (a->advice_count++ < WHATIF_ADVICE_MAX) {
        a->advice[a->advice_count - 1] =
            (struct whatif_advice){b->reason, p != NULL ? p->keyspace : 0, b->partition, x->now_ms};
    }
}

/* --- budgets --- */

void fm_live_usage(struct fm *x, const struct dir_usage *u, struct dir_budget_limit all)
{
    struct whatif_peak *p = &x->live->out->peak[u->budget];
    const struct dir_node *n = u->node != 0 ? view_node_by_id(fm_view(x), u->node) : NULL;
    const char *of = n != NULL ? n->name : u->label;
    if (all.moves > p->used.moves) {
        p->used.moves = all.moves;
        (void)snprintf(p->moves_of, sizeof p->moves_of, "%s", of);
    }
    if (all.bytes_per_s > p->used.bytes_per_s) {
        p->used.bytes_per_s = all.bytes_per_s;
        (void)snprintf(p->bytes_of, sizeof p->bytes_of, "%s", of);
    }
}

/* --- load --- */

/* Where copies will be, and until then where they leave. */
static uint64_t stored_on(const struct bal_fleet *f, uint16_t n)
{
    return bal_more(f->node_load[(size_t)n * BAL_RESOURCES + BAL_BYTES], f->node_leaving[n]);
}

bool fm_live_fleet(struct fm *x, struct bal_fleet *f)
{
    struct fm_live *l = x->live;
    struct fleet_input in = {fm_view(x),   l->loads,     l->s->mono_ms,
                             fm_log_ms(x), l->births.of, l->births.count};
    struct err e;
    if (fleet_build(f, &in, &e) != ERR_OK) {
        fm_violated(x, "the planner's fleet: %s %s", e.pointer, e.detail);
        return false;
    }
    for (uint16_t n = 0; n < f->node_count; n++) {
        struct fm_node *node = fm_node_of(x, f->node_id[n]);
        if (node != NULL) {
            node->stored = stored_on(f, n);
        }
    }
    return true;
}

/* By the rows, as the planner's own names have it. */
static bool has_said(const struct dir_node *n, unsigned r)
{
    const char *name = fleet_resource_name(r);
    const struct dir_label *capacity = dir_node_capacity(n);
    size_t len = strlen(name);
    for (uint32_t i = 0; i < n->capacity_count; i++) {
        const char *said = capacity[i].name;
        if (strncmp(said, name, len) == 0 &&
            (said[len] == '\0' || strcmp(said + len, "_per_s") == 0)) {
            return true;
        }
    }
    return false;
}

struct sums {
    bal_u128 load[BAL_RESOURCES], capacity[BAL_RESOURCES];
};

static bool serves(const struct bal_fleet *f, uint16_t n)
{
    return f->node[n].state != BAL_DEAD && f->node[n].state != BAL_UNKNOWN;
}

static uint64_t at_least_one(bal_u128 v)
{
    return v > 0 ? bal_clamp128(v) : 1;
}

static uint64_t in_ppm(bal_u128 part, bal_u128 whole)
{
    return whole == 0 ? 0 : bal_clamp128(part * 1000000 / whole);
}

static struct sums sum_up(const struct bal_fleet *f)
{
    struct sums s = {{0}, {0}};
    for (uint16_t n = 0; n < f->node_count; n++) {
        for (unsigned r = 0; r < BAL_RESOURCES && serves(f, n); r++) {
            s.load[r] += f->node_load[(size_t)n * BAL_RESOURCES + r];
            s.capacity[r] += f->node[n].capacity[r];
        }
    }
    return s;
}

/* The one that is used most, of load. */
static uint8_t most_used(const struct bal_fleet *f, const struct sums *s)
{
    uint8_t most = BAL_QUEUE;
    for (uint8_t r = 0; r < BAL_RESOURCES; r++) {
        if (r != BAL_BYTES && (f->resources >> r & 1) != 0 &&
            in_ppm(s->load[r], s->capacity[r]) > in_ppm(s->load[most], s->capacity[most])) {
            most = r;
        }
    }
    return most;
}

static struct whatif_load load_of(const struct bal_fleet *f, uint16_t n, unsigned r)
{
    const uint64_t *load = &f->node_load[(size_t)n * BAL_RESOURCES];
    struct whatif_load l = {.requests = bal_more(load[BAL_READ], load[BAL_WRITE]),
                            .bytes = stored_on(f, n),
                            .serves = serves(f, n),
                            .copies = f->held_begin[n + 1] - f->held_begin[n]};
    for (uint32_t i = f->held_begin[n]; i < f->held_begin[n + 1]; i++) {
        l.primaries += f->held[i].copy == 0;
    }
    l.utilisation_ppm = in_ppm(load[r], at_least_one(f->node[n].capacity[r]));
    return l;
}

static uint64_t count_unserved(const struct dir_view *v)
{
    const struct dir_partition *p;
    struct ptree_iter it;
    uint64_t count = 0;
    ptree_seek(&v->partitions, slice_of(NULL, 0), &it);
    for (; (p = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        const struct dir_node *n = view_primary(v, p);
        count += n == NULL || !view_node_is_live(n);
    }
    return count;
}

static void
measure(struct fm *x, struct whatif_balance *b, struct whatif_load *(*of)(struct whatif_node *n))
{
    struct whatif_answer *a = x->live->out;
    struct bal_fleet f;
    if (!fm_live_fleet(x, &f)) {
        return;
    }
    struct sums s = sum_up(&f);
    b->resource = most_used(&f, &s);
    b->said = s.capacity[b->resource] > 0; /* where nobody serves, nothing is said */
    b->unserved = count_unserved(fm_view(x));
    b->mean_ppm = in_ppm(s.load[b->resource], s.capacity[b->resource]);
    for (uint16_t n = 0; n < f.node_count; n++) {
        struct whatif_load l = load_of(&f, n, b->resource);
        const struct dir_node *row = view_node_by_id(fm_view(x), f.node_id[n]);
        l.level_ppm = l.serves ? in_ppm(l.utilisation_ppm, b->mean_ppm) : 0;
        b->nodes += l.serves;
        b->said = b->said && (!l.serves || has_said(row, b->resource));
        b->most_ppm = l.level_ppm > b->most_ppm ? l.level_ppm : b->most_ppm;
        b->worst_ppm =
            l.serves && l.utilisation_ppm > b->worst_ppm ? l.utilisation_ppm : b->worst_ppm;
        for (uint32_t k = 0; k < x->node_count; k++) {
            if (x->node[k].id == f.node_id[n]) {
                *of(&a->nodes[k]) = l;
            }
        }
    }
    bal_fleet_close(&f);
}

static struct whatif_load *before_of(struct whatif_node *n)
{
    return &n->before;
}

static struct whatif_load *after_of(struct whatif_node *n)
{
    return &n->after;
}

void fm_live_before(struct fm *x)
{
    x->live->present = x->node_count;
    measure(x, &x->live->out->before, before_of);
}

/* --- what is left undone --- */

static bool is_gone(void *arg, const struct dir_node *n)
{
    const struct fm *x = arg;
    return n->ended && fm_log_ms(x) >= n->ended_ms + x->s->recovery_delay_ms;
}

static void
note_unplaced(struct fm *x, const struct dir_partition *p, const struct repair_step *step)
{
    struct whatif_answer *a = x->live->out;
    if (a->unplaced_count++ >= WHATIF_UNPLACED_MAX) {
        return;
    }
    struct whatif_unplaced *u = &a->unplaced[a->unplaced_count - 1];
    *u = (struct whatif_unplaced){p->keyspace, p->id, step->problems,
                                  step->code != NULL ? step->code : "not_yet", ""};
    if (step->code != NULL) {
        (void)snprintf(u->detail, sizeof u->detail, "%s", step->detail);
    } else {
        (void)snprintf(u->detail, sizeof u->detail, "%s",
                       p->operation != 0 ? "an operation is under way"
                                         : "its turn has not come yet");
    }
}

static void look_for_unplaced(struct fm *x)
{
    struct repair_clock clock = {fm_log_ms(x), is_gone, x};
    struct repair *r = repair_open(fm_view(x), &clock);
    struct dir_partition *p;
    struct ptree_iter it;
    ptree_seek(&fm_view(x)->partitions, slice_of(NULL, 0), &it);
    for (; (p = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        struct repair_step step = {0};
        repair_next(r, p, &step);
        if (step.problems != 0) {
            note_unplaced(x, p, &step);
        }
    }
    repair_close(r);
    x->live->out->breaker = repair_breaker(fm_view(x)).tripped;
}

static void name_nodes(struct fm *x)
{
    const struct whatif *w = x->live->w;
    struct whatif_answer *a = x->live->out;
    a->node_count = x->node_count;
    for (uint32_t i = 0; i < x->node_count; i++) {
        const struct fm_node *n = &x->node[i];
        put_name(&a->nodes[i].name, n->name);
        a->nodes[i].added = i >= x->live->present;
        a->nodes[i].lost = !n->up && n->changed_ms == x->epoch_ms && a->nodes[i].before.serves;
        for (uint32_t k = 0; k < w->drained_count; k++) {
            a->nodes[i].drained |= strcmp(w->drained[k].text, n->name) == 0;
        }
    }
}

void fm_live_after(struct fm *x)
{
    struct whatif_answer *a = x->live->out;
    measure(x, &a->after, after_of);
    look_for_unplaced(x);
    name_nodes(x);
    a->virtual_ms = x->now_ms;
    a->under_way = x->open_count + fm_view(x)->queued.count;
    for (int b = DIR_BUDGET_SOURCE; b <= DIR_BUDGETS; b++) {
        a->peak[b].limit = dir_budget_limit(fm_view(x), (enum dir_budget)b);
    }
    a->finding_count = x->out->violation_count;
    for (uint64_t i = 0; i < a->finding_count && i < WHATIF_FINDINGS_MAX; i++) {
        memcpy(a->findings[i], x->out->violations[i], sizeof a->findings[i]);
    }
}
