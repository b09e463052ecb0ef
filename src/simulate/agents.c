/* SPDX-License-Identifier: Apache-2.0 */
/* What the nodes' agents report: a copy takes as long as its bytes at the rate that was reserved,
 * everything else of a stage is done within a tick. */
#include "simulate/internal.h"

#include "base/mem.h"

#include <string.h>

enum { STEPS_A_TICK = 12, DUTIES_A_TICK = 256, CHECKSUM = 1 };

static bool report(struct fm *x, Cadastre__OperationReport *m, const struct fm_node *n)
{
    m->node = text_lent(n->name);
    m->session = n->session;
    m->seq = ++x->seq;
    return fm_try(x, CADASTRE__COMMAND__BODY_OPERATION_REPORT, m);
}

static bool copied(const struct fm *x, const struct dir_operation *o)
{
    uint64_t ms = fm_log_ms(x) - o->stage_since_ms;
    uint64_t rate = o->rate_bytes_per_s > 0 ? o->rate_bytes_per_s : 1;
    return (double)o->bytes_total <= (double)rate * (double)ms / 1000;
}

static uint64_t free_bytes(const struct fm_node *n)
{
    return n->group->bytes > n->stored ? n->group->bytes - n->stored : 0;
}

/* The sides agree, also where one of them has spoken before the run. */
static void say_values(Cadastre__OperationReport *m,
                       const struct dir_operation *o,
                       const struct dir_evidence *other)
{
    m->has = DIR_REPORT_AT_POSITION | DIR_REPORT_ITEMS | DIR_REPORT_CHECKSUM | DIR_REPORT_EXTRAS;
    m->at_position = o->validate_at;
    m->items = other->has_values ? other->items : 0;
    m->extras = other->has_values ? other->extras : 0;
    m->checksum = other->has_values ? other->checksum : CHECKSUM;
}

/* Fields of what the destination says of this stage; false: nothing yet. */
static bool destination_says(struct fm *x,
                             const struct dir_operation *o,
                             const struct fm_node *d,
                             Cadastre__OperationReport *m)
{
    switch ((int)o->stage) {
    case DIR_STAGE_PREPARE:
        m->has = DIR_REPORT_READY | DIR_REPORT_FREE_BYTES;
        m->ready = true;
        m->free_bytes = free_bytes(d);
        return true;
    case DIR_STAGE_COPY:
        m->has = DIR_REPORT_CHUNK | DIR_REPORT_BYTES_DONE | DIR_REPORT_COMPLETE;
        m->chunk = o->chunk + 1;
        m->bytes_done = o->bytes_total;
        m->complete = true;
        return copied(x, o);
    case DIR_STAGE_CATCH_UP:
        m->has = DIR_REPORT_APPLIED_POSITION | DIR_REPORT_LAG_BYTES;
        m->applied_position = o->position;
        return true;
    case DIR_STAGE_DUAL_WRITE:
        m->has = DIR_REPORT_APPLIED_POSITION;
        m->applied_position = o->from_position;
        return o->active;
    case DIR_STAGE_VALIDATE:
        say_values(m, o, &o->source_says);
        return !o->destination_says.has_values;
    case DIR_STAGE_CUTOVER:
        m->has = DIR_REPORT_APPLIED_POSITION | DIR_REPORT_CHECKSUM;
        m->applied_position = o->final_position;
        m->checksum = o->checksum;
        return true;
    default:
        return false;
    }
}

static bool source_says(struct fm *x, const struct dir_operation *o, Cadastre__OperationReport *m)
{
    switch ((int)o->stage) {
    case DIR_STAGE_SNAPSHOT:
        m->has = DIR_REPORT_SNAPSHOT | DIR_REPORT_POSITION | DIR_REPORT_BYTES_TOTAL;
        m->snapshot = text_lent("s1");
        m->position = 1;
        m->bytes_total = fm_bytes_of(x, o->partition);
        return true;
    case DIR_STAGE_DUAL_WRITE:
        m->has = DIR_REPORT_ACTIVE | DIR_REPORT_FROM_POSITION;
        m->active = true;
        m->from_position = o->position + 1;
        return !o->active;
    case DIR_STAGE_VALIDATE:
        say_values(m, o, &o->destination_says);
        return !o->source_says.has_values;
    case DIR_STAGE_FENCE:
        m->has = DIR_REPORT_FENCED | DIR_REPORT_FINAL_POSITION | DIR_REPORT_CHECKSUM;
        m->fenced = true;
        m->epoch = o->epoch_before;
        m->final_position = o->validate_at;
        m->checksum = CHECKSUM;
        return true;
    case DIR_STAGE_WINDOW: /* nothing of the old epoch is left; then the window runs out */
        m->has = DIR_REPORT_OPEN_OPERATIONS | DIR_REPORT_STALE_READS;
        return !o->source_says.has_values;
    default:
        return false;
    }
}

/* All that a keyspace asks of a destination, as passed. */
struct checks {
    char names[DIR_CHECKS_MAX][DIR_NAME_MAX + 1];
    Cadastre__Check of[DIR_CHECKS_MAX], *pointers[DIR_CHECKS_MAX];
};

static void pass_checks(struct checks *c,
                        const struct fm *x,
                        const struct dir_operation *o,
                        Cadastre__OperationReport *m)
{
    const struct dir_keyspace *ks = view_keyspace_by_id(fm_view(x), o->keyspace);
    for (uint32_t i = 0; ks != NULL && i < ks->rules.check_count; i++) {
        memcpy(c->names[i], ks->rules.checks[i], sizeof c->names[i]);
        cadastre__check__init(&c->of[i]);
        c->of[i].name = c->names[i];
        c->of[i].ok = true;
        c->pointers[i] = &c->of[i];
        m->n_checks = i + 1;
    }
    m->checks = c->pointers;
}

/* One report of either side, if there is one to make. */
static bool step(struct fm *x, uint64_t id)
{
    const struct dir_operation *o = view_operation(fm_view(x), id);
    if (o == NULL || o->state != DIR_OPERATION_RUNNING) {
        return false;
    }
    struct fm_node *s = fm_node_of(x, o->source), *d = fm_node_of(x, o->destination);
    Cadastre__OperationReport m;
    cadastre__operation_report__init(&m);
    m.operation = o->id;
    m.attempt = o->attempt;
    m.stage = o->stage;
    if (s != NULL && s->up && s->session != 0 && source_says(x, o, &m)) {
        return report(x, &m, s);
    }
    if (d != NULL && d->up && d->session != 0 && destination_says(x, o, d, &m)) {
        struct checks checks;
        if (o->stage == DIR_STAGE_PREPARE) {
            pass_checks(&checks, x, o, &m);
        }
        m.warm = true;
        return report(x, &m, d);
    }
    return false;
}

struct owed {
    uint64_t id, copy;
    const struct fm_node *node;
};

static uint32_t gather_duties(const struct fm *x, struct owed *owed)
{
    const struct dir_duty *d;
    struct ptree_iter it;
    uint32_t count = 0;
    ptree_seek(&fm_view(x)->duties, slice_of(NULL, 0), &it);
    for (; count < DUTIES_A_TICK && (d = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        const struct fm_node *n = fm_node_of(x, d->node);
        if (n != NULL && n->up && n->session != 0) {
            owed[count++] = (struct owed){d->id, d->copy, n};
        }
    }
    return count;
}

/* Copies that are to be deleted are, in no time. */
static void do_duties(struct fm *x)
{
    struct owed owed[DUTIES_A_TICK];
    uint32_t count = gather_duties(x, owed);
    for (uint32_t i = 0; i < count; i++) {
        Cadastre__DutyDone m;
        cadastre__duty_done__init(&m);
        m.duty = owed[i].id;
        m.node = text_lent(owed[i].node->name);
        m.session = owed[i].node->session;
        m.copy = owed[i].copy;
        (void)fm_do(x, CADASTRE__COMMAND__BODY_DUTY_DONE, &m);
    }
}

void fm_agents(struct fm *x)
{
    uint32_t count = x->open_count;
    struct fm_open *open = mem_alloc((count + 1) * sizeof *open);
    for (uint32_t i = 0; i < count; i++) {
        open[i] = x->open[i]; /* it changes with each command */
    }
    for (uint32_t i = 0; i < count; i++) {
        for (int k = 0; k < STEPS_A_TICK && step(x, open[i].id); k++) {
        }
    }
    mem_free(open);
    do_duties(x);
}
