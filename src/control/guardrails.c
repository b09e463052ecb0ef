/* SPDX-License-Identifier: Apache-2.0 */
/* What nodes say of themselves against the guardrails: the leader's steps, and the commands that
 * tell running copies another rate. All that is kept is a hint, which a new leader takes from the
 * rows; apply decides. */
#include "control/internal.h"

#include "balancer/fixed.h"
#include "base/clock.h"
#include "directory/balancer.h"

#include <stdio.h>
#include <string.h>

enum {
    LOST_REPORT_MS = 60000, /* a node's word on itself counts for so long */
    FAILING_MAX = 256       /* copies whose damage is counted; of more the first ones */
};

/* --- what is read --- */

/* Running copies that something was found wrong with. */
struct failing {
    struct {
        uint64_t node, count;
    } of[FAILING_MAX];
    unsigned count;
};

static void gather_failing(const struct dir_view *v, struct failing *f)
{
    const struct dir_operation *o;
    struct ptree_iter it;
    f->count = 0;
    ptree_seek(&v->operations, slice_of(NULL, 0), &it);
    for (; f->count < FAILING_MAX && (o = ptree_iter_get(&it, NULL)) != NULL;
         ptree_iter_next(&it)) {
        uint64_t count = o->checksum_failures + o->validations;
        if (o->state == DIR_OPERATION_RUNNING && count > 0) {
            f->of[f->count].node = o->destination;
            f->of[f->count++].count = count;
        }
    }
}

struct look {
    struct control *control;
    const struct dir_view *view;
    const uint64_t *set;
    uint64_t mono_ms;
    struct failing failing;
};

static void open_look(struct look *l, struct control *c)
{
    l->control = c;
    l->view = directory_state(c->parts.directory);
    l->set = view_balancer(l->view)->values;
    l->mono_ms = clock_mono_ms();
    l->failing.count = 0;
    if (l->set[DIR_BALANCER_GUARD_CHECKSUMS] != 0) {
        gather_failing(l->view, &l->failing);
    }
}

static bool is_watched(const uint64_t *set)
{
    return set[DIR_BALANCER_GUARD_LATENCY] != 0 || set[DIR_BALANCER_GUARD_QUEUE] != 0 ||
           set[DIR_BALANCER_GUARD_ERRORS] != 0 || set[DIR_BALANCER_GUARD_CHECKSUMS] != 0;
}

static uint64_t figure(const struct loads_node *said, enum loads_figure which)
{
    return (said->has >> which & 1) != 0 ? said->figure[which] : 0;
}

/* Failed requests in a million, of those that the node's partitions had; 0 while that is unknown.
 */
static uint64_t error_ppm(const struct control *c, const struct loads_node *said)
{
    uint64_t all = 0, errors = figure(said, LOADS_ERRORS);
    if (errors == 0 || said->interval_ms == 0 || !balancer_requests(c, said->node, &all)) {
        return 0;
    }
    errors = errors * 1000 * 1000 / said->interval_ms; /* below 2^60: thousandths a second */
    all = all > errors ? all : errors;
    return (uint64_t)((bal_u128)errors * 1000000 / all);
}

/* Keeps the one that is closest to its limit, or furthest beyond it. */
static void
weigh(const struct look *l, struct throttle_reading *r, enum dir_balancer_value which, uint64_t v)
{
    uint64_t limit = l->set[which];
    bool closer = r->limit == 0 || (bal_u128)v * r->limit > (bal_u128)r->value * limit;
    if (limit != 0 && v > 0 && closer) {
        r->code = dir_balancer_name(which);
        r->value = v;
        r->limit = limit;
    }
}

static struct throttle_reading read_node(const struct look *l, const struct dir_node *n)
{
    struct throttle_reading r = {.node = n->id, .code = ""};
    struct loads_node said;
    uint64_t damage = 0;
    if (!view_node_is_live(n)) {
        return r;
    }
    for (unsigned i = 0; i < l->failing.count; i++) {
        damage += l->failing.of[i].node == n->id ? l->failing.of[i].count : 0;
    }
    if (loads_node(l->control->loads, n->id, &said) && l->mono_ms <= said.at_ms + LOST_REPORT_MS) {
        weigh(l, &r, DIR_BALANCER_GUARD_LATENCY, figure(&said, LOADS_LATENCY_P99));
        weigh(l, &r, DIR_BALANCER_GUARD_QUEUE, figure(&said, LOADS_QUEUE_P99));
        weigh(l, &r, DIR_BALANCER_GUARD_ERRORS, error_ppm(l->control, &said));
        damage += figure(&said, LOADS_CHECKSUM_FAILURES);
    }
    weigh(l, &r, DIR_BALANCER_GUARD_CHECKSUMS, damage);
    return r;
}

bool guardrails_stop(struct control *c, struct throttle_reading *ret)
{
    const struct throttle_reading *kept = throttle_stops(&c->guardrails.throttle);
    const struct dir_node *n;
    struct ptree_iter it;
    struct look l;
    open_look(&l, c);
    if (kept != NULL) {
        *ret = *kept;
        return true;
    }
    ptree_seek(&l.view->nodes, slice_of(NULL, 0), &it);
    for (; is_watched(l.set) && (n = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        *ret = read_node(&l, n);
        if (throttle_is_over(ret)) {
            return true;
        }
    }
    return false;
}

/* --- the steps --- */

static void step(struct control *c)
{
    struct guardrails *g = &c->guardrails;
    const struct dir_node *n;
    struct ptree_iter it;
    struct look l;
    open_look(&l, c);
    if (!is_watched(l.set) && g->throttle.count == 0 && !g->held) {
        return;
    }
    throttle_prune(&g->throttle, l.view);
    ptree_seek(&l.view->nodes, slice_of(NULL, 0), &it);
    for (; (n = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        struct throttle_reading r = read_node(&l, n);
        throttle_take(&g->throttle, &r, l.set[DIR_BALANCER_GUARD_RESUME_MS], l.mono_ms);
    }
    g->telling = true;
    g->told = 0;
    g->held = false;
}

static bool propose(struct control *c,
                    const struct dir_operation *o,
                    uint64_t share,
                    const struct throttle_reading *why)
{
    Cadastre__OperationRate body;
    Cadastre__Command command;
    char code[DIR_NAME_MAX + 1] = "";
    cadastre__operation_rate__init(&body);
    cadastre__command__init(&command);
    body.operation = o->id;
    body.attempt = o->attempt;
    body.share_ppm = (uint32_t)share;
    body.code = code;
    if (why != NULL) {
        (void)snprintf(code, sizeof code, "%s", why->code);
        body.node = why->node;
        body.value = why->value;
        body.limit = why->limit;
    }
    command.body_case = CADASTRE__COMMAND__BODY_OPERATION_RATE;
    command.operation_rate = &body;
    return control_propose_own(c, &command, NULL, NULL);
}

/* Goes on behind the last operation that was told. */
static void tell_some(struct control *c)
{
    struct guardrails *g = &c->guardrails;
    const struct dir_operation *o;
    struct ptree_iter it;
    uint8_t key[8];
    unsigned count = 0;
    ptree_seek(&directory_state(c->parts.directory)->operations, ptree_u64_key(g->told + 1, key),
               &it);
    for (; count < CONTROL_RATES_A_TURN && (o = ptree_iter_get(&it, NULL)) != NULL;
         ptree_iter_next(&it)) {
        const struct throttle_reading *why;
        uint64_t share = throttle_share(&g->throttle, o->source, o->destination, &why);
        uint64_t has = o->throttle.share_ppm != 0 ? o->throttle.share_ppm : DIR_SHARE_FULL_PPM;
        g->told = o->id;
        if (dir_operation_may_slow(o) && share != has) {
            count += propose(c, o, share, why);
        }
    }
    g->telling = count == CONTROL_RATES_A_TURN;
    g->held = g->held || count > 0; /* one more step looks whether all were told */
}

void guardrails_on_sample(struct control *c)
{
    struct guardrails *g = &c->guardrails;
    uint64_t now = clock_mono_ms();
    const struct dir_view *v = directory_state(c->parts.directory);
    if (!c->active) {
        return;
    }
    if (now >= g->stepped_ms + dir_balancer_value(v, DIR_BALANCER_GUARD_STEP_MS)) {
        g->stepped_ms = now;
        step(c);
    }
    if (g->telling) {
        tell_some(c);
    }
}

/* --- a new leader --- */

static const char *guard_named(const char *code)
{
    static const enum dir_balancer_value guards[] = {
        DIR_BALANCER_GUARD_LATENCY, DIR_BALANCER_GUARD_QUEUE, DIR_BALANCER_GUARD_ERRORS};
    for (unsigned i = 0; i < sizeof guards / sizeof guards[0]; i++) {
        if (strcmp(dir_balancer_name(guards[i]), code) == 0) {
            return dir_balancer_name(guards[i]);
        }
    }
    return dir_balancer_name(DIR_BALANCER_GUARD_CHECKSUMS);
}

void guardrails_on_active(struct control *c)
{
    struct guardrails *g = &c->guardrails;
    const struct dir_operation *o;
    struct ptree_iter it;
    uint64_t now = clock_mono_ms();
    throttle_close(&g->throttle);
    ptree_seek(&directory_state(c->parts.directory)->operations, slice_of(NULL, 0), &it);
    for (; (o = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        const struct dir_throttle *t = &o->throttle;
        if (t->share_ppm != 0) {
            struct throttle_reading r = {t->node, guard_named(t->code), t->value, t->limit};
            throttle_restore(&g->throttle, &r, t->share_ppm, now);
        }
    }
    g->held = g->throttle.count > 0;
    g->telling = false;
    g->stepped_ms = now;
}
