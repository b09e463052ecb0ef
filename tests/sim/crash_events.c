/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/crash_internal.h"

#include <string.h>

static const struct dir_node *node(const struct crash *c, unsigned n)
{
    return agent_node(&c->s->world, sim_names[n]);
}

static struct copy *candidate(const struct crash *c)
{
    return sim_copy(c->s, sim_partition(c->s), c->destination, leader_operation(c->s)->copy);
}

static struct part *part_of(const struct crash *c, unsigned n)
{
    return &c->s->holds[sim_seat(sim_partition(c->s), n)].part;
}

static bool has_left(const struct crash *c)
{
    const struct dir_operation *o = leader_operation(c->s);
    return o->attempt != c->attempt || o->stage != crash_stages[c->of->stage_index];
}

static void go_on_until_left(struct crash *c)
{
    c->attempt = leader_operation(c->s)->attempt;
    c->s->held = false;
    (void)crash_until(c, has_left);
    c->s->held = true;
}

/* --- nodes --- */

static bool is_led(const struct crash *c)
{
    return c->s->frozen_until <= c->s->now;
}

static void elect(struct crash *c)
{
    sim_change_leader(c->s);
    (void)crash_until(c, is_led);
}

/* What is on the network is lost. */
static void lose(struct sim *s, enum event_kind kind)
{
    for (uint32_t i = 0; i < s->heap_count; i++) {
        if (s->heap[i].kind == kind) {
            s->heap[i].kind = EV_DUAL_ACK; /* of nothing */
            s->heap[i].operation = 0;
        }
    }
}

static bool has_lapsed(const struct crash *c)
{
    return node(c, c->dead)->ended;
}

static void die(struct crash *c, unsigned n)
{
    c->dead = n;
    lose(c->s, EV_PUT); /* a registration that comes late would be another event */
    node_crash(c->s, n);
    c->s->procs[n].retry_at = UINT64_MAX;
    if (!crash_until(c, has_lapsed)) {
        crash_wrong(c, "its session has not lapsed");
    }
}

static bool source_is_back(const struct crash *c)
{
    return node(c, c->source)->session != c->session;
}

static bool destination_is_back(const struct crash *c)
{
    return node(c, c->destination)->session != c->session;
}

static void restart(struct crash *c, unsigned n)
{
    bool source = n == c->source;
    c->session = node(c, n)->session;
    lose(c->s, EV_PUT);
    node_crash(c->s, n);
    c->s->procs[n].retry_at = c->s->now + sim_below(c->s, SECOND);
    if (!crash_until(c, source ? source_is_back : destination_is_back)) {
        crash_wrong(c, "it has not registered: %s", c->s->run.violation);
    }
}

static void restart_empty(struct crash *c)
{
    struct copy *copy = candidate(c);
    if (copy != NULL) {
        copy_delete(copy);
    }
    node_crash(c->s, c->destination);
    restart(c, c->destination);
}

/* --- data --- */

static void damage(struct crash *c)
{
    struct copy *d = candidate(c);
    if (d == NULL || d->prefix == 0) {
        crash_wrong(c, "there is nothing to damage");
        return;
    }
    uint32_t at = (uint32_t)sim_below(c->s, d->prefix);
    while (d->log[at].id == OUTSIDE) {
        at = (at + 1) % d->prefix; /* of a part some are nothing but their position */
    }
    d->log[at].id ^= UINT64_C(1) << 61;
    d->damaged = true;
    /* A sum that was not reported yet is made again. */
    part_of(c, c->destination)->summed = part_of(c, c->source)->summed = false;
    lose(c->s, EV_REPORT);
    go_on_until_left(c);
}

/* The source has trimmed what the destination still lacks. */
static void trim(struct crash *c)
{
    struct sim *s = c->s;
    struct copy *d = candidate(c);
    struct copy *source =
        sim_copy(s, sim_partition(s), c->source, sim_partition(s)->replicas[0].copy);
    lose(s, EV_PULL_CHANGES);
    lose(s, EV_CHANGES);
    lose(s, EV_DUAL);
    lose(s, EV_REPORT);
    copy_cut(d, d->len > 4 ? d->len - 4 : 0);
    source->trimmed = source->len;
    part_of(c, c->destination)->counted = 0;
    go_on_until_left(c);
}

/* --- reports --- */

/* Of the present stage, by whoever reports in it first, as far as a report's fields go. */
static struct event plausible(const struct crash *c)
{
    const struct dir_operation *o = leader_operation(c->s);
    bool source = o->stage == DIR_STAGE_SNAPSHOT || o->stage == DIR_STAGE_FENCE ||
                  o->stage == DIR_STAGE_WINDOW || o->stage == DIR_STAGE_CLEANUP;
    struct event e = {.kind = EV_REPORT, .proc = source ? c->source : c->destination};
    e.session = node(c, sim_node(e.proc))->session;
    e.operation = o->id;
    e.attempt = o->attempt;
    e.stage = o->stage;
    e.said.has = ~UINT64_C(0);
    e.said.seq = 1000000;
    e.said.chunk = 4;
    e.said.free_bytes = UINT64_C(1) << 40;
    e.said.position = o->validate_at > o->final_position ? o->validate_at : o->final_position;
    e.said.epoch = sim_partition(c->s)->epoch;
    e.said.ready = e.said.complete = e.said.active = e.said.fenced = true;
    return e;
}

static void repeat_report(struct crash *c)
{
    struct sim *s = c->s;
    if (leader_operation(s)->stage == DIR_STAGE_PREPARE) {
        struct event e = plausible(c); /* the first that there is: not ready yet */
        e.said.ready = false;
        e.said.seq = 1;
        (void)leader_report(s, &e);
        c->changed = 1;
    }
    c->session = world_state(&s->world)->revision;
    struct event again = s->last_report;
    enum err_code code = leader_report(s, &again)->err.code;
    bool cleanup = leader_operation(s)->stage == DIR_STAGE_CLEANUP;
    if (code != ERR_OK && !cleanup) {
        crash_wrong(c, "the same report was answered otherwise: %s", s->world.result->err.detail);
    }
    if (world_state(&s->world)->revision != c->session) {
        crash_wrong(c, "the same report had an effect");
    }
}

static void old_report(struct crash *c)
{
    struct sim *s = c->s;
    struct event e = plausible(c);
    switch (c->of->seed % 4) {
    case 0:
        e.attempt--;
        break;
    case 1:
        e.attempt++;
        break;
    case 2:
        e.operation += 1000;
        break;
    default:
        e.session--;
        break;
    }
    if (leader_report(s, &e)->err.code == ERR_OK) {
        crash_wrong(c, "it was taken");
    }
}

/* --- commands --- */

static void judge_answer(struct crash *c, const struct dir_result *r, bool names_operation)
{
    enum crash_outcome want = c->of->expect.outcome;
    bool refused = want == CRASH_REFUSED;
    if ((r->err.code != ERR_OK) != refused) {
        crash_wrong(c, "it was %s: %s", refused ? "taken" : "refused", r->err.detail);
    } else if (refused && err_http_status(r->err.code) != 409) {
        crash_wrong(c, "it was refused with %d", err_http_status(r->err.code));
    }
    uint64_t named = r->operation != NULL ? r->operation->id : 0;
    if (refused && names_operation && named != leader_operation(c->s)->id) {
        crash_wrong(c, "the refusal does not name the operation");
    }
}

static void other_command(struct crash *c)
{
    struct world *w = &c->s->world;
    const struct dir_partition *p = sim_partition(c->s);
    Cadastre__OperationStart m;
    switch (c->of->seed % 3) {
    case 0:
        judge_answer(c, world_split(w, p->id, "m"), true);
        c->over = c->of->expect.outcome == CRASH_ALLOWED; /* the id is retired */
        break;
    case 1:
        cadastre__operation_start__init(&m);
        m.kind = DIR_OPERATION_MOVE;
        m.partition = p->id;
        m.to = text_lent(sim_names[3 - c->source - c->destination]);
        judge_answer(c, world_do(w, CADASTRE__COMMAND__BODY_OPERATION_START, &m), true);
        break;
    default:
        cadastre__operation_start__init(&m);
        m.kind = DIR_OPERATION_ADD_REPLICA;
        m.partition = p->id;
        m.role = DIR_ROLE_SYNC;
        m.to = text_lent(sim_names[3 - c->source - c->destination]);
        judge_answer(c, world_do(w, CADASTRE__COMMAND__BODY_OPERATION_START, &m), true);
        break;
    }
    sim_commanded(c->s);
}

static void drop(struct crash *c)
{
    Cadastre__KeyspaceDelete m;
    cadastre__keyspace_delete__init(&m);
    m.keyspace = world_keyspace(&c->s->world, "orders")->id;
    c->over = c->of->expect.outcome == CRASH_ALLOWED;
    judge_answer(c, world_do(&c->s->world, CADASTRE__COMMAND__BODY_KEYSPACE_DELETE, &m), false);
    if (!c->over) {
        sim_commanded(c->s);
    }
}

static void remove_node(struct crash *c, unsigned n)
{
    Cadastre__NodeDelete m;
    cadastre__node_delete__init(&m);
    m.name = text_lent(sim_names[n]);
    c->over = c->of->expect.outcome != CRASH_REFUSED;
    judge_answer(c, world_do(&c->s->world, CADASTRE__COMMAND__BODY_NODE_DELETE, &m), false);
}

static void fill_disk(struct crash *c)
{
    c->s->disks[c->destination].free_bytes = c->s->entry_bytes;
    lose(c->s, EV_REPORT);
    while (c->of->expect.outcome == CRASH_ABORTED &&
           leader_operation(c->s)->state < DIR_OPERATION_DONE && c->flaw[0] == '\0') {
        go_on_until_left(c);
        if (leader_operation(c->s)->stage > DIR_STAGE_SNAPSHOT &&
            leader_operation(c->s)->state < DIR_OPERATION_DONE) {
            crash_wrong(c, "the copy began without room for it");
        }
        c->s->held = false;
        sim_turn(c->s);
    }
    c->s->held = true;
}

static void spend_everything(struct crash *c)
{
    static const uint32_t budgets[] = {DIR_BUDGET_SOURCE, DIR_BUDGET_DESTINATION,
                                       DIR_BUDGET_CLUSTER};
    enum { COUNT = sizeof budgets / sizeof budgets[0] };
    Cadastre__BudgetLimit limits[COUNT], *pointers[COUNT];
    Cadastre__BalancerPatch m;
    cadastre__balancer_patch__init(&m);
    for (size_t i = 0; i < COUNT; i++) {
        cadastre__budget_limit__init(&limits[i]);
        limits[i].budget = budgets[i];
        limits[i].has_moves = true;
        pointers[i] = &limits[i];
    }
    m.n_limits = COUNT;
    m.limits = pointers;
    const struct dir_result *r = world_do(&c->s->world, CADASTRE__COMMAND__BODY_BALANCER_PATCH, &m);
    if (r->err.code != ERR_OK) {
        crash_wrong(c, "the budgets were not lowered: %s", r->err.detail);
    }
    sim_commanded(c->s);
}

void crash_inject(struct crash *c)
{
    struct sim *s = c->s;
    struct event timer = leader_timer(s);
    if (c->of->leader_changes) {
        elect(c);
    }
    switch (c->of->event) {
    case CRASH_LEADER_KILLED:
        elect(c);
        break;
    case CRASH_SOURCE_DIES:
        die(c, c->source);
        break;
    case CRASH_SOURCE_RESTARTS:
        restart(c, c->source);
        break;
    case CRASH_DESTINATION_DIES:
        die(c, c->destination);
        break;
    case CRASH_DESTINATION_RESTARTS:
        restart(c, c->destination);
        break;
    case CRASH_DESTINATION_EMPTY:
        restart_empty(c);
        break;
    case CRASH_MISMATCH:
        damage(c);
        break;
    case CRASH_GAP:
        trim(c);
        break;
    case CRASH_TIMEOUT:
        (void)leader_timeout(s, &timer);
        break;
    case CRASH_DUPLICATE_REPORT:
        repeat_report(c);
        break;
    case CRASH_OLD_REPORT:
        old_report(c);
        break;
    case CRASH_ABORT:
        judge_answer(c, leader_verb(s, CADASTRE__OPERATION_VERB_KIND__ABORT), false);
        break;
    case CRASH_OTHER_COMMAND:
        other_command(c);
        break;
    case CRASH_DROP:
        drop(c);
        break;
    case CRASH_SOURCE_REMOVED:
        remove_node(c, c->source);
        break;
    case CRASH_DESTINATION_REMOVED:
        remove_node(c, c->destination);
        break;
    case CRASH_BUDGET_ZERO:
        spend_everything(c);
        break;
    case CRASH_EVENTS:
        break;
    case CRASH_NO_HEADROOM:
        fill_disk(c);
        break;
    }
    if (c->of->leader_changes && !c->over) {
        elect(c);
    }
}
