/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/crash_run.h"

#include "base/mem.h"
#include "tests/sim/crash_internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define REACH (90 * SECOND)  /* a stage, or what an event leads to */
#define END   (600 * SECOND) /* every attempt there may be, each of which times out */

void crash_wrong(struct crash *c, const char *format, ...)
{
    va_list args;
    if (c->flaw[0] != '\0') {
        return; /* the first says it */
    }
    va_start(args, format);
    (void)vsnprintf(c->flaw, c->size, format, args);
    va_end(args);
}

struct crash_state crash_look(const struct sim *s)
{
    const struct dir_operation *o = leader_operation(s);
    const struct dir_partition *p = sim_partition(s);
    struct crash_state now = {
        .stage = o->stage, .attempt = o->attempt, .revision = world_state(&s->world)->revision};
    const struct dir_node *owner = p != NULL ? view_primary(world_state(&s->world), p) : NULL;
    now.epoch = p != NULL ? p->epoch : 0;
    now.owner = owner != NULL ? owner->id : 0;
    now.attention = o->attention_code[0] != '\0';
    const struct dir_duty *d;
    struct ptree_iter it;
    ptree_seek(&world_state(&s->world)->duties, slice_of(NULL, 0), &it);
    for (; (d = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        now.duties += d->node == o->destination;
    }
    return now;
}

bool crash_until(struct crash *c, bool (*fn)(const struct crash *c))
{
    struct sim *s = c->s;
    uint64_t limit = s->now + REACH;
    while (!fn(c) && s->now < limit && s->run.violation == NULL) {
        sim_turn(s);
    }
    return fn(c);
}

static bool at_stage(const struct crash *c)
{
    return leader_operation(c->s)->stage == crash_stages[c->of->stage_index];
}

/* --- the way to the stage --- */

static void start(struct crash *c)
{
    struct sim *s = c->s;
    enum dir_operation_kind kind =
        c->of->kind == CRASH_ADD_REPLICA ? DIR_OPERATION_ADD_REPLICA : DIR_OPERATION_MOVE;
    unsigned to = s->nodes - 1 - (unsigned)sim_below(s, 2); /* one that holds nothing */
    const char *from = c->of->kind == CRASH_MOVE_REPLICA ? sim_names[1] : "";
    c->source = sim_node_of(s, sim_partition(s)->replicas[0].node);
    c->destination = to;
    struct leader_start m = {.kind = kind, .from = from, .to = to, .keys = c->of->keys};
    if (leader_start(s, &m)->err.code != ERR_OK) {
        crash_wrong(c, "the operation did not start: %s", s->world.result->err.detail);
    }
}

/* An answer to the first registration may be lost: then the next has to wait for a lapse. */
static bool all_is_well(const struct crash *c)
{
    const struct sim *s = c->s;
    const struct dir_partition *p = sim_partition(s);
    const struct dir_node *owner = view_primary(world_state(&s->world), p);
    bool well = owner != NULL && node_may_write(s, sim_seat(p, sim_node_of(s, owner->id)));
    for (unsigned n = 0; n < s->nodes; n++) {
        well = well && s->procs[n].session == agent_node(&s->world, sim_names[n])->session;
    }
    return well;
}

static void drive(struct crash *c)
{
    struct sim *s = c->s;
    uint64_t begin = SECOND + sim_below(s, 3 * SECOND);
    while (s->now < begin || (!all_is_well(c) && s->now < REACH)) {
        sim_turn(s);
    }
    start(c);
    if (c->flaw[0] == '\0' && !crash_until(c, at_stage)) {
        crash_wrong(c, "the stage was not reached: %s in %s", s->run.violation,
                    dir_stage_name((enum dir_stage)leader_operation(s)->stage));
    }
    /* Somewhere in the stage: nothing of the operation is heard at the directory any more, and its
     * nodes go on among themselves. */
    s->held = true;
    bool first = c->of->event == CRASH_MISMATCH || c->of->event == CRASH_GAP;
    uint64_t upto = s->now + (first ? 0 : sim_below(s, 400 * MS));
    while (s->now < upto) {
        sim_turn(s);
    }
}

/* --- what came of it --- */

static uint64_t id_of(const struct sim *s, unsigned node)
{
    const struct dir_node *n = agent_node(&s->world, sim_names[node]);
    return n != NULL ? n->id : 0;
}

void crash_compare(struct crash *c, const struct crash_state *was)
{
    const struct crash_expect *e = &c->of->expect;
    struct sim *s = c->s;
    struct crash_state is = crash_look(s);
    static const char *const owners[] = {"source", "destination", "replica", "nobody"};
    uint64_t owner = e->owner == CRASH_OF_SOURCE        ? id_of(s, c->source)
                     : e->owner == CRASH_OF_DESTINATION ? id_of(s, c->destination)
                     : e->owner == CRASH_OF_REPLICA     ? id_of(s, 1)
                                                        : 0;
    if (is.stage != e->stage) {
        crash_wrong(c, "it is in %s, not in %s", dir_stage_name((enum dir_stage)is.stage),
                    dir_stage_name(e->stage));
    }
    if (is.attempt != was->attempt + e->new_attempt) {
        crash_wrong(c, "attempt %" PRIu32 ", before %" PRIu32, is.attempt, was->attempt);
    }
    if (!c->over && (e->new_epoch ? is.epoch <= was->epoch : is.epoch != was->epoch)) {
        crash_wrong(c, "epoch %" PRIu64 ", before %" PRIu64, is.epoch, was->epoch);
    }
    if (!c->over && is.owner != owner) {
        crash_wrong(c, "the owner is %" PRIu64 ", not %s (%" PRIu64 ")", is.owner, owners[e->owner],
                    owner);
    }
    if ((is.duties > was->duties) != e->duty) {
        crash_wrong(c, "%" PRIu64 " duties of the destination, before %" PRIu64, is.duties,
                    was->duties);
    }
    if (e->outcome == CRASH_NO_EFFECT && is.revision != was->revision + c->changed) {
        crash_wrong(c, "it had an effect");
    }
    if (e->outcome == CRASH_ATTENTION && !is.attention) {
        crash_wrong(c, "nobody is asked for");
    }
}

/* --- how it ends --- */

/* Ended, or waiting for what is said: a person, a node that is away, room in a budget. */
static bool is_settled(const struct crash *c)
{
    const struct dir_operation *o = leader_operation(c->s);
    const struct sim *s = c->s;
    bool gone = c->dead < NODES || c->of->event == CRASH_BUDGET_ZERO;
    if (o->state >= DIR_OPERATION_DONE || o->attention_code[0] != '\0') {
        return true;
    }
    return gone && (o->stage == DIR_STAGE_QUEUED ||
                    (o->stage == DIR_STAGE_CLEANUP && s->now > c->since + 60 * SECOND));
}

void crash_finish(struct crash *c)
{
    struct sim *s = c->s;
    s->held = false;
    uint64_t limit = s->now + (c->patience > 0 ? c->patience : END);
    while (!is_settled(c) && s->now < limit && s->run.violation == NULL) {
        sim_turn(s);
    }
    if (!is_settled(c) && s->run.violation == NULL) {
        crash_wrong(c, "the operation stays in %s without asking for anybody",
                    dir_stage_name((enum dir_stage)leader_operation(s)->stage));
    }
    uint64_t acknowledged = s->acknowledged[1];
    limit = s->now + 40 * SECOND + 2 * SLOTS * s->write_every;
    while (s->now < limit && s->run.violation == NULL) {
        sim_turn(s);
    }
    const struct dir_node *owner = view_primary(world_state(&s->world), sim_partition(s));
    if (owner != NULL && s->acknowledged[1] == acknowledged) {
        crash_wrong(c, "\"%s\" has the authority, and acknowledges nothing", owner->name);
    }
}

void crash_open(struct crash *c)
{
    c->s = mem_alloc(sizeof *c->s);
    c->dead = NODES;
    c->flaw[0] = '\0';
    sim_begin(c->s, c->of->seed, c->of->replica ? MOVEMENT_MIXED : MOVEMENT_MOVES,
              MOVEMENT_AS_WRITTEN);
    c->s->noise = NOISE_MILD;
    drive(c);
    c->since = c->s->now;
}

void crash_close(struct crash *c)
{
    if (c->s->run.violation != NULL) {
        crash_wrong(c, "%s", c->s->run.violation);
    }
    sim_close(c->s);
    mem_free(c->s);
}

void crash_run(const struct crash_case *of, char *flaw, size_t size)
{
    struct crash c = {.of = of, .flaw = flaw, .size = size};
    crash_open(&c);
    if (flaw[0] == '\0') {
        struct crash_state was = crash_look(c.s);
        crash_inject(&c);
        crash_compare(&c, &was);
    }
    if (flaw[0] == '\0' && !c.over) {
        crash_finish(&c);
        sim_judge(c.s);
    }
    crash_close(&c);
}
