/* SPDX-License-Identifier: Apache-2.0 */
/* The leader's rounds: from the view and the loads, by the planner, to proposals that apply checks
 * again. A round is planned on a thread of libuv's pool, on a pinned view, and all that is kept
 * between rounds (the planner's memory) is the leader's alone: a new one begins with a quiet
 * window.
 *
 * Classes from DIR_CLASS_DRAIN on are recovery.c's. */
#include "control/balancer.h"
#include "control/internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { MEASURES_A_ROUND = 16 };

struct balancer {
    struct bal_memory *memory; /* owns; the round's while it runs */
    struct balancer_births births;
    uint64_t term, began_ms; /* of the last round, monotonic; 0: none */
    bool busy;
    uint64_t noted_rounds, noted_proposed; /* since the last note */
    struct balancer_levels levels;         /* of the last round; owns */
    pthread_mutex_t lock;                  /* of what follows */
    struct control_planning shown;         /* as of the last round; owns */
    uint64_t shown_ms;                     /* monotonic, when that was */
};

/* --- the round, on another thread --- */

struct round {
    uv_work_t work;
    struct control *control;
    const struct dir_view *view; /* pinned */
    struct bal_memory *memory;   /* borrowed from the balancer, which is busy meanwhile */
    struct fleet_birth *births;  /* owns */
    struct fleet_input in;
    uint64_t term;
    struct bal_plan plan;
    struct balancer_levels levels;
    uint32_t known; /* partitions whose load is */
    struct err err;
};

static void plan_round(uv_work_t *work)
{
    struct round *r = work->data;
    struct bal_settings settings;
    struct bal_fleet fleet;
    fleet_settings(view_balancer(r->view), &settings);
    if (fleet_build(&fleet, &r->in, &r->err) != ERR_OK) {
        return;
    }
    for (uint32_t p = 0; p < fleet.partition_count; p++) {
        r->known += (fleet.flags[p] & BAL_STALE) == 0;
    }
    bal_plan(&fleet, &settings, r->in.log_ms, r->memory, &r->plan);
    balancer_measure_levels(&fleet, &settings, &r->plan, &r->levels);
    bal_fleet_close(&fleet);
}

/* --- why nothing routine begins --- */

struct gate {
    const char *code; /* NULL: it may */
    char detail[DIR_BALANCER_NOTE_TEXT_MAX + 1];
    struct throttle_reading why; /* of a guardrail, and whose it is */
    char node[DIR_NAME_MAX + 1];
};

/* What was noted stays the same while the figures change. */
static void check_guardrails(const struct round *r, struct gate *g)
{
    const struct dir_node *n;
    if (guardrails_stop(r->control, &g->why)) {
        n = view_node_by_id(r->view, g->why.node);
        g->code = "guardrail";
        (void)snprintf(g->node, sizeof g->node, "%s", n != NULL ? n->name : "");
        (void)snprintf(g->detail, sizeof g->detail, "%.60s of %s", g->why.code, g->node);
    }
}

/* By what is set now: it may have changed since the round began. */
static void check_gate(const struct round *r, struct gate *g)
{
    const struct dir_balancer *row = view_balancer(directory_state(r->control->parts.directory));
    struct windows_hold h;
    *g = (struct gate){.code = NULL};
    hold_look(r->control, &h);
    if (r->err.code != ERR_OK) {
        g->code = "not_planned";
        (void)snprintf(g->detail, sizeof g->detail, "%.100s", r->err.detail);
    } else if (row->values[DIR_BALANCER_MODE] == DIR_BALANCER_OFF) {
        g->code = "off";
    } else if (dir_balancer_is_paused(row, r->in.log_ms)) {
        g->code = "paused";
        (void)snprintf(g->detail, sizeof g->detail, "%.100s", row->pause_reason);
    } else if (h.code != NULL) {
        g->code = h.code;
        (void)snprintf(g->detail, sizeof g->detail, "%s", h.detail);
    } else if (r->plan.breaker) {
        g->code = "breaker";
    } else if (r->plan.quiet) {
        g->code = "quiet";
    } else if (r->plan.recovering) {
        g->code = "recovering";
    } else {
        check_guardrails(r, g);
    }
}

/* --- what came of earlier ones --- */

static void measure(struct control *c, const struct dir_proposal *p, bool effect)
{
    struct balancer_figures figures;
    Cadastre__ProposalMeasure m;
    Cadastre__Command command;
    cadastre__proposal_measure__init(&m);
    cadastre__command__init(&command);
    balancer_figures_open(&figures);
    if (effect) {
        balancer_put_effect(&figures, directory_state(c->parts.directory), &c->balancer->levels, p);
    }
    m.proposal = p->id;
    m.figures = figures.of;
    m.n_figures = figures.count;
    command.body_case = CADASTRE__COMMAND__BODY_PROPOSAL_MEASURE;
    command.proposal_measure = &m;
    (void)control_propose_own(c, &command, NULL, NULL);
}

static void measure_some(struct control *c)
{
    const struct dir_view *v = directory_state(c->parts.directory);
    const struct dir_proposal *p;
    struct ptree_iter it;
    unsigned count = 0;
    uint64_t now = control_log_time(c);
    ptree_seek(&v->proposals, slice_of(NULL, 0), &it);
    for (; count < MEASURES_A_ROUND && (p = ptree_iter_get(&it, NULL)) != NULL;
         ptree_iter_next(&it)) {
        bool effect;
        if (balancer_is_due(v, p, now, &effect)) {
            measure(c, p, effect);
            count++;
        }
    }
}

/* --- new ones --- */

/* What waits for a person. */
static uint64_t count_open(const struct dir_view *v, uint64_t now_ms)
{
    const struct dir_proposal *p;
    struct ptree_iter it;
    uint64_t count = v->proposals_open.count;
    ptree_seek(&v->proposals_open, slice_of(NULL, 0), &it); /* what expires first comes first */
    for (; (p = ptree_iter_get(&it, NULL)) != NULL && !fleet_waits(p, now_ms);
         ptree_iter_next(&it)) {
        count--;
    }
    return count;
}

static bool is_done_at_once(const struct dir_view *v, const struct bal_proposal *p)
{
    return dir_balancer_value(v, DIR_BALANCER_MODE) == DIR_BALANCER_AUTO && p->kind != BAL_ADVICE;
}

/* False when it would be refused now, or could not be proposed. */
static bool propose(struct control *c, const struct round *r, const struct bal_proposal *p)
{
    const struct dir_view *v = directory_state(c->parts.directory);
    struct balancer_make *m = mem_zalloc(sizeof *m);
    bool ok = balancer_make_open(m, v, c->loads, &r->plan, p);
    if (ok) {
        m->body.execute = is_done_at_once(v, p);
        m->body.expires_in_ms = view_balancer(v)->values[DIR_BALANCER_EXPIRY_MS];
        struct dir_result *expected = directory_try(c->parts.directory, &m->command);
        ok = expected->err.code == ERR_OK;
        result_unref(expected);
    }
    ok = ok && control_propose_own(c, &m->command, NULL, NULL);
    if (ok && m->body.execute) {
        bal_memory_began(c->balancer->memory, p, r->in.log_ms);
    }
    mem_free(m);
    return ok;
}

static uint64_t propose_some(struct control *c, const struct round *r, struct gate *g)
{
    const struct dir_view *v = directory_state(c->parts.directory);
    const uint64_t *set = view_balancer(r->view)->values;
    uint64_t count = 0, braked = 0, open = count_open(v, r->in.log_ms);
    struct brake brake;
    brake_measure(v, r->in.log_ms, &brake);
    for (uint32_t i = 0; i < r->plan.proposal_count && count < set[DIR_BALANCER_PER_ROUND]; i++) {
        const struct bal_proposal *p = &r->plan.proposal[i];
        enum balancer_verdict verdict = balancer_judge(v, r->in.log_ms, &brake, p);
        bool waits = !is_done_at_once(v, p);
        braked = verdict == BALANCER_BRAKED ? p->class_of : braked;
        if (verdict != BALANCER_WANTED) {
            continue;
        }
        if (waits && open >= set[DIR_BALANCER_OPEN_MAX]) {
            g->code = "too_many_open";
            break;
        }
        bool made = propose(c, r, p);
        count += made;
        open += made && waits;
    }
    if (count == 0 && braked != 0) {
        g->code = "braked";
        (void)snprintf(g->detail, sizeof g->detail, "%s moved partitions there and back",
                       dir_class_name((uint32_t)braked));
    }
    return count;
}

/* --- saying so --- */

static void name_reason(const struct round *r, struct gate *g)
{
    unsigned most = BAL_REASON_NONE;
    for (unsigned i = BAL_REASON_NONE + 1; i < BAL_REASON_COUNT; i++) {
        most = r->plan.rejected[i] > r->plan.rejected[most] ? i : most;
    }
    if (r->known == 0) {
        g->code = "no_load";
        (void)snprintf(g->detail, sizeof g->detail, "no partition's load is known");
        return;
    }
    if (r->plan.cluster_hot) {
        most = BAL_REASON_HOT_CLUSTER;
    }
    g->code = most == BAL_REASON_NONE ? "balanced" : bal_reason_slug((enum bal_reason)most);
    (void)snprintf(g->detail, sizeof g->detail, "%s",
                   most == BAL_REASON_NONE ? "" : bal_reason_text((enum bal_reason)most));
}

static void note(struct control *c, const struct round *r, const struct gate *g, uint64_t proposed)
{
    const struct dir_view *v = directory_state(c->parts.directory);
    const struct dir_balancer *row = view_balancer(v);
    struct balancer *b = c->balancer;
    Cadastre__BalancerNote m;
    Cadastre__Command command;
    char code[DIR_NAME_MAX + 1], detail[DIR_BALANCER_NOTE_TEXT_MAX + 1];
    char node[DIR_NAME_MAX + 1], metric[DIR_NAME_MAX + 1];
    (void)snprintf(code, sizeof code, "%s", g->code);
    (void)snprintf(detail, sizeof detail, "%s", g->detail);
    (void)snprintf(node, sizeof node, "%s", g->node);
    (void)snprintf(metric, sizeof metric, "%s", g->why.code != NULL ? g->why.code : "");
    b->noted_rounds++;
    b->noted_proposed += proposed;
    cadastre__balancer_note__init(&m);
    cadastre__command__init(&command);
    m.code = code;
    m.detail = detail;
    m.node = node;
    m.metric = metric;
    m.value = g->why.value;
    m.limit = g->why.limit;
    m.rounds = b->noted_rounds;
    m.proposed = b->noted_proposed;
    for (unsigned i = 0; i < BAL_REASON_COUNT; i++) {
        m.rejected += r->plan.rejected[i];
    }
    m.open = v->proposals_open.count + proposed;
    command.body_case = CADASTRE__COMMAND__BODY_BALANCER_NOTE;
    command.balancer_note = &m;
    /* A directory of nodes that report no load stays at its revision. */
    if ((dir_balancer_last(row) != NULL || r->known > 0) &&
        dir_balancer_is_news(row, code, detail, r->in.log_ms)) {
        log_event(LOG_INFO, "balancer.round", "code=%s detail=\"%s\" proposed=%" PRIu64, code,
                  detail, proposed);
        (void)control_propose_own(c, &command, NULL, NULL);
        b->noted_rounds = b->noted_proposed = 0;
    }
}

/* Something of the balancer's waits for a person, or goes on. */
static bool is_under_way(const struct dir_view *v)
{
    const struct dir_proposal *p;
    struct ptree_iter it;
    ptree_seek(&v->proposals, slice_of(NULL, 0), &it);
    while ((p = ptree_iter_get(&it, NULL)) != NULL && p->state > DIR_PROPOSAL_RUNNING) {
        ptree_iter_next(&it);
    }
    return p != NULL;
}

static void finish(struct control *c, const struct round *r)
{
    struct gate g;
    uint64_t proposed = 0;
    check_gate(r, &g);
    if (g.code == NULL) {
        proposed = propose_some(c, r, &g);
    }
    if (g.code == NULL && (proposed > 0 || is_under_way(directory_state(c->parts.directory)))) {
        g.code = DIR_BALANCER_ACTIVE;
    } else if (g.code == NULL) {
        name_reason(r, &g);
    }
    note(c, r, &g, proposed);
}

/* For whoever asks; takes the round's births over. */
static void show(struct balancer *b, struct round *r)
{
    (void)pthread_mutex_lock(&b->lock);
    bal_memory_free(b->shown.memory);
    mem_free(b->shown.births);
    b->shown = (struct control_planning){bal_memory_copy(b->memory), r->births, r->in.birth_count,
                                         r->in.log_ms};
    b->shown_ms = r->in.mono_ms;
    r->births = NULL;
    (void)pthread_mutex_unlock(&b->lock);
}

bool control_planning(struct control *c, struct control_planning *ret)
{
    struct balancer *b = c->balancer;
    (void)pthread_mutex_lock(&b->lock);
    bool any = b->shown.memory != NULL;
    if (any) {
        *ret = b->shown;
        ret->memory = bal_memory_copy(b->shown.memory);
        ret->births = mem_dup(ret->births, (ret->birth_count + 1) * sizeof ret->births[0]);
        ret->log_ms += clock_mono_ms() - b->shown_ms;
    }
    (void)pthread_mutex_unlock(&b->lock);
    return any;
}

static void round_done(uv_work_t *work, int status)
{
    struct round *r = work->data;
    struct control *c = r->control;
    struct balancer *b = c->balancer;
    b->busy = false;
    if (b->term != r->term) { /* led by another meanwhile: the memory is of no use */
        bal_memory_free(r->memory);
    } else if (status == 0 && c->active) {
        mem_free(b->levels.of);
        b->levels = r->levels;
        r->levels.of = NULL;
        finish(c, r);
        show(b, r);
    }
    view_unpin(r->view);
    bal_plan_close(&r->plan);
    mem_free(r->levels.of);
    mem_free(r->births);
    mem_free(r);
}

static void begin(struct control *c)
{
    struct balancer *b = c->balancer;
    struct round *r = mem_zalloc(sizeof *r);
    balancer_births_tell(&b->births, b->memory);
    r->work.data = r;
    r->control = c;
    r->term = b->term;
    r->memory = b->memory;
    r->view = view_pin(directory_published(c->parts.directory));
    r->births = mem_dup(b->births.of, (b->births.count + 1) * sizeof b->births.of[0]);
    r->in = (struct fleet_input){.view = r->view,
                                 .loads = c->loads,
                                 .mono_ms = clock_mono_ms(),
                                 .log_ms = control_log_time(c),
                                 .births = r->births,
                                 .birth_count = b->births.count};
    bal_plan_init(&r->plan);
    b->busy = true;
    if (uv_queue_work(c->parts.loop, &r->work, plan_round, round_done) != 0) {
        round_done(&r->work, UV_ENOMEM);
    }
}

/* --- for the rest of control --- */

void balancer_init(struct control *c)
{
    c->balancer = mem_zalloc(sizeof *c->balancer);
    (void)pthread_mutex_init(&c->balancer->lock, NULL);
}

bool balancer_requests(const struct control *c, uint64_t node, uint64_t *ret_requests)
{
    const struct balancer_levels *levels = &c->balancer->levels;
    for (uint32_t i = 0; i < levels->count; i++) {
        if (levels->of[i].node == node) {
            *ret_requests = levels->of[i].requests;
            return true;
        }
    }
    return false;
}

void balancer_on_active(struct control *c)
{
    struct balancer *b = c->balancer;
    if (!b->busy) {
        bal_memory_free(b->memory); /* else the round that has it does that */
    }
    b->memory = bal_memory_new(control_log_time(c));
    b->term = c->term;
    b->births.count = b->births.told = 0;
    b->began_ms = b->noted_rounds = b->noted_proposed = 0;
}

void balancer_on_rows(struct control *c, const struct dir_effects *effects)
{
    balancer_births_add(&c->balancer->births, effects);
}

void balancer_on_sample(struct control *c)
{
    struct balancer *b = c->balancer;
    const struct dir_view *v = directory_state(c->parts.directory);
    const uint64_t *set = view_balancer(v)->values;
    uint64_t now = clock_mono_ms();
    bool due = b->began_ms == 0 || now >= b->began_ms + set[DIR_BALANCER_ROUND_MS];
    if (!c->active || b->memory == NULL || b->busy || !due || v->cluster[0] == '\0') {
        return;
    }
    b->began_ms = now;
    bool fast = load_horizon_of(set[DIR_BALANCER_HALF_LIFE_MS]) == LOAD_FAST;
    loads_set_fast(c->loads, fast ? set[DIR_BALANCER_HALF_LIFE_MS] : LOAD_HALF_LIFE_FAST_MS);
    measure_some(c);
    if (set[DIR_BALANCER_MODE] != DIR_BALANCER_OFF) {
        begin(c);
    }
}
