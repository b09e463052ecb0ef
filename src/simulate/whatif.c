/* SPDX-License-Identifier: Apache-2.0 */
/* The loop of a run from a live state, and the leader's rounds in it. */
#include "simulate/whatif_internal.h"

#include "base/assert.h"
#include "base/mem.h"

#include <string.h>

#define TICK_MIN_MS      UINT64_C(1000)
#define TICK_MS          UINT64_C(10000)
#define SETTLED_MS       UINT64_C(3600000) /* so long without a step is the end, */
#define PER_RESIDENCE    2                 /* or so many residences; */
#define SETTLED_LEAST_MS UINT64_C(600000)  /* when the hours are over, this will do */

enum { POLICY_MAX = 1 << 20 };

static bool makes_too_many(const struct fm *x, const struct bal_proposal *b)
{
    return b->kind == BAL_SPLIT && fm_view(x)->partitions.count + 2 > WHATIF_PARTITIONS_MAX;
}

/* As the leader does it in mode auto. */
static bool propose(struct fm *x, const struct bal_proposal *b)
{
    struct balancer_make *m = mem_zalloc(sizeof *m);
    bool ok = balancer_make_open(m, fm_view(x), x->live->loads, &x->plan, b);
    if (ok) {
        m->body.execute = b->kind != BAL_ADVICE;
        m->body.expires_in_ms = view_balancer(fm_view(x))->values[DIR_BALANCER_EXPIRY_MS];
        ok = fm_try(x, CADASTRE__COMMAND__BODY_PROPOSAL_MAKE, &m->body);
    }
    if (ok && b->kind != BAL_ADVICE) {
        bal_memory_began(x->memory, b, fm_log_ms(x));
    } else if (ok) {
        fm_live_advise(x, b);
    } else {
        x->live->out->refused++;
    }
    mem_free(m);
    return ok;
}

/* What waits for a window to open, or a freeze to end, is yet to come. */
static void wait_for_window(struct fm *x, const struct bal_proposal *b)
{
    if (b->kind != BAL_ADVICE && x->now_ms > x->live->waits_ms) {
        x->live->waits_ms = x->now_ms;
    }
}

static void propose_some(struct fm *x)
{
    uint64_t count = 0;
    bool held = fm_is_held(x);
    struct brake brake;
    brake_measure(fm_view(x), fm_log_ms(x), &brake);
    for (uint32_t i = 0; i < x->plan.proposal_count; i++) {
        const struct bal_proposal *b = &x->plan.proposal[i];
        const struct dir_view *v = fm_view(x);
        if (count >= dir_balancer_value(v, DIR_BALANCER_PER_ROUND)) {
            return;
        }
        if (balancer_judge(v, fm_log_ms(x), &brake, b) == BALANCER_WANTED &&
            !makes_too_many(x, b)) {
            if (held) {
                wait_for_window(x, b);
            } else {
                count += propose(x, b);
            }
        }
    }
}

/* Proposals whose operations are over. */
static void settle(struct fm *x)
{
    enum { AT_ONCE = 64 };
    const struct dir_proposal *p;
    struct ptree_iter it;
    uint64_t due[AT_ONCE], count = 0;
    bool effect;
    ptree_seek(&fm_view(x)->proposals, slice_of(NULL, 0), &it);
    for (; count < AT_ONCE && (p = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        if (p->state == DIR_PROPOSAL_RUNNING &&
            balancer_is_due(fm_view(x), p, fm_log_ms(x), &effect)) {
            due[count++] = p->id;
        }
    }
    for (uint64_t i = 0; i < count; i++) {
        Cadastre__ProposalMeasure m;
        cadastre__proposal_measure__init(&m);
        m.proposal = due[i];
        (void)fm_do(x, CADASTRE__COMMAND__BODY_PROPOSAL_MEASURE, &m);
    }
}

static void plan(struct fm *x)
{
    struct bal_settings settings;
    struct bal_fleet f;
    if (!fm_live_fleet(x, &f)) {
        return;
    }
    fleet_settings(view_balancer(fm_view(x)), &settings);
    settings.seed = x->live->w->seed;
    balancer_births_tell(&x->live->births, x->memory);
    bal_plan(&f, &settings, fm_log_ms(x), x->memory, &x->plan);
    bal_fleet_close(&f);
    x->live->out->rounds++;
    memcpy(x->live->out->turned_down, x->plan.rejected, sizeof x->plan.rejected);
    if (!x->plan.breaker && !x->plan.quiet && !x->plan.recovering) {
        propose_some(x);
    }
}

static void place(struct fm *x)
{
    Cadastre__Place m;
    cadastre__place__init(&m);
    if (fm_view(x)->unplaced > 0) {
        (void)fm_do(x, CADASTRE__COMMAND__BODY_PLACE, &m);
    }
}

static void tick(struct fm *x)
{
    fm_sessions(x);
    fm_timers(x);
    fm_agents(x);
    if (x->now_ms % x->s->round_ms == 0) {
        settle(x);
        place(x);
        fm_recover(x);
        if (!x->live->off) {
            plan(x);
        }
    }
    fm_admit(x);
    fm_agents(x); /* of what began now */
    directory_publish(x->d);
}

static bool is_up(const struct fm *x, uint64_t node)
{
    const struct fm_node *n = fm_node_of(x, node);
    return n == NULL || n->up;
}

/* An operation whose node is away waits for it, or for a person, for ever: in the queue too. */
static bool goes_on(const struct fm *x)
{
    for (uint32_t i = 0; i < x->open_count; i++) {
        const struct dir_operation *o = view_operation(fm_view(x), x->open[i].id);
        if (o != NULL &&
            (o->reserved.releasing || (is_up(x, o->source) && is_up(x, o->destination)))) {
            return true;
        }
    }
    const struct dir_operation *o;
    struct ptree_iter it;
    ptree_seek(&fm_view(x)->queued, slice_of(NULL, 0), &it);
    for (; (o = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        if (is_up(x, o->source) && is_up(x, o->destination)) {
            return true;
        }
    }
    return false;
}

/* Nothing has gone on for so long, and nothing is waited for. */
static bool is_settled(const struct fm *x, uint64_t for_ms)
{
    const struct fm_live *l = x->live;
    uint64_t since = l->active_ms > l->waits_ms ? l->active_ms : l->waits_ms;
    return x->now_ms >= since + for_ms && !goes_on(x);
}

static void run(struct fm *x)
{
    const struct whatif_state *s = x->live->s;
    struct whatif_answer *a = x->live->out;
    for (x->now_ms = 0; x->now_ms < x->s->duration_ms; x->now_ms += x->s->tick_ms) {
        if (s->stop != NULL && s->stop(s->stop_arg)) {
            a->end = WHATIF_STOPPED;
            return;
        }
        if (is_settled(x, x->live->settled_after_ms)) {
            a->end = WHATIF_SETTLED;
            return;
        }
        tick(x);
    }
    a->end = is_settled(x, SETTLED_LEAST_MS) ? WHATIF_SETTLED : WHATIF_OUT_OF_HOURS;
}

/* --- opening and closing --- */

static struct scenario *scenario_of(const struct whatif *w, const struct dir_view *v)
{
    struct scenario *s = mem_zalloc(sizeof *s);
    s->duration_ms = w->hours * 3600000;
    s->lease_ms = v->settings.lease_ms;
    s->recovery_delay_ms = v->settings.recovery_delay_ms;
    return s;
}

/* By the settings that the question has changed. Rounds are as often as they are set, at the most
 * once a second; ticks at least every ten seconds, a whole number to a round. */
static void set_times(struct fm *x, struct scenario *s)
{
    uint64_t round = dir_balancer_value(fm_view(x), DIR_BALANCER_ROUND_MS);
    uint64_t residences = PER_RESIDENCE * dir_balancer_value(fm_view(x), DIR_BALANCER_RESIDENCE_MS);
    uint64_t ticks = (round + TICK_MS - 1) / TICK_MS;
    s->tick_ms = round / ticks > TICK_MIN_MS ? round / ticks : TICK_MIN_MS;
    s->round_ms = s->tick_ms * ticks;
    x->live->settled_after_ms = residences > SETTLED_MS ? residences : SETTLED_MS;
}

static void open_answer(struct whatif_answer *a, const struct dir_view *v)
{
    memset(a, 0, sizeof *a);
    a->revision = v->revision;
    a->steps = mem_zalloc(WHATIF_STEPS_MAX * sizeof a->steps[0]);
    a->nodes = mem_zalloc(WHATIF_NODES_MAX * sizeof a->nodes[0]);
    a->unplaced = mem_zalloc(WHATIF_UNPLACED_MAX * sizeof a->unplaced[0]);
    a->advice = mem_zalloc(WHATIF_ADVICE_MAX * sizeof a->advice[0]);
}

static void close_run(struct fm *x)
{
    fm_close(x);
    if (x->live->loads != NULL) {
        loads_free(x->live->loads);
    }
    mem_free(x->live->groups);
    mem_free(x->live);
    mem_free(x->out);
}

enum err_code whatif_run(const struct whatif *w,
                         const struct whatif_state *s,
                         struct whatif_answer *ret,
                         struct err *e)
{
    struct fm *x = mem_zalloc(sizeof *x);
    struct scenario *scenario = scenario_of(w, s->view);
    open_answer(ret, s->view);
    *x = (struct fm){.s = scenario, .epoch_ms = s->log_ms};
    x->out = mem_zalloc(sizeof *x->out);
    x->node = mem_zalloc(WHATIF_NODES_MAX * sizeof x->node[0]);
    x->live = mem_zalloc(sizeof *x->live);
    x->live->w = w;
    x->live->s = s;
    x->live->out = ret;
    x->live->groups = mem_zalloc(WHATIF_NODES_MAX * sizeof x->live->groups[0]);
    bal_plan_init(&x->plan);
    enum err_code code = fm_live_begin(x, e);
    if (code == ERR_OK) {
        set_times(x, scenario);
        run(x);
        fm_check_all(x);
        fm_live_after(x);
    } else {
        whatif_answer_close(ret);
    }
    close_run(x);
    mem_free(scenario);
    mem_free(x);
    return code;
}

void whatif_answer_close(struct whatif_answer *a)
{
    mem_free(a->steps);
    mem_free(a->nodes);
    mem_free(a->unplaced);
    mem_free(a->advice);
    *a = (struct whatif_answer){0};
}

void whatif_init(struct whatif *w)
{
    memset(w, 0, sizeof *w);
    w->hours = WHATIF_HOURS_DEFAULT;
    w->seed = 1;
    buf_init(&w->policy, POLICY_MAX);
}

void whatif_close(struct whatif *w)
{
    mem_free(w->added);
    mem_free(w->lost);
    mem_free(w->drained);
    buf_close(&w->policy);
}
