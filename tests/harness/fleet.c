/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/harness/fleet.h"

#include "tests/harness/agents.h"

#include "tests/harness/tap.h"

#include <stdio.h>
#include <string.h>

enum { STEPS_MAX = 40 };

static const struct dir_node *node_of(const struct world *w, const char *name)
{
    return view_node(world_state(w), slice_of(name, strlen(name)));
}

const struct dir_result *fleet_node(struct world *w,
                                    const char *name,
                                    const char *rack,
                                    const char *zone,
                                    const char *device)
{
    static const char *const names[] = {"device", "rack", "zone"};
    const char *values[] = {device, rack, zone};
    Cadastre__Label labels[3], *label_of[3];
    Cadastre__NodePut m;
    char address[96];
    cadastre__node_put__init(&m);
    (void)snprintf(address, sizeof address, "%s:9000", name);
    m.name = text_lent(name);
    m.address = address;
    m.labels = label_of;
    for (unsigned i = 0; i < 3; i++) {
        if (values[i][0] != '\0') {
            cadastre__label__init(&labels[m.n_labels]);
            labels[m.n_labels].name = text_lent(names[i]);
            labels[m.n_labels].value = text_lent(values[i]);
            label_of[m.n_labels] = &labels[m.n_labels];
            m.n_labels++;
        }
    }
    const struct dir_node *n = node_of(w, name);
    m.previous_session = n != NULL ? n->session : 0;
    return world_do(w, CADASTRE__COMMAND__BODY_NODE_PUT, &m);
}

/* What is of a drain is refused unless the node that it leaves drains. */
static void drain_source(struct world *w, const struct fleet_start *s)
{
    uint8_t key[8];
    const struct dir_partition *p =
        ptree_get(&world_state(w)->partitions, ptree_u64_key(s->partition, key));
    const struct dir_node *n = p != NULL ? view_primary(world_state(w), p) : NULL;
    if (n != NULL) {
        (void)agent_schedule(w, n->name, CADASTRE__SCHEDULING_VERB__DRAIN);
    }
}

uint64_t fleet_start(struct world *w, const struct fleet_start *s)
{
    Cadastre__OperationStart m;
    if (s->class_of == DIR_CLASS_DRAIN) {
        drain_source(w, s);
    }
    cadastre__operation_start__init(&m);
    m.kind = s->kind != 0 ? s->kind : DIR_OPERATION_MOVE;
    m.partition = s->partition;
    m.from = text_lent(s->from);
    m.to = text_lent(s->to);
    m.class_ = s->class_of;
    m.max_bytes_per_s = s->rate;
    m.has_size_bytes = s->has_size;
    m.size_bytes = s->size;
    m.has_live_bytes_per_s = s->has_live;
    m.live_bytes_per_s = s->live;
    m.role = m.kind == DIR_OPERATION_ADD_REPLICA ? DIR_ROLE_SYNC : 0;
    const struct dir_result *r = world_do(w, CADASTRE__COMMAND__BODY_OPERATION_START, &m);
    return r->err.code == ERR_OK ? r->operation->id : 0;
}

const struct dir_operation *fleet_operation(const struct world *w, uint64_t operation)
{
    return view_operation(world_state(w), operation);
}

static Cadastre__OperationAdmit admission(const struct world *w, uint64_t operation)
{
    Cadastre__OperationAdmit m;
    cadastre__operation_admit__init(&m);
    m.operation = operation;
    m.attempt = fleet_operation(w, operation)->attempt;
    return m;
}

enum err_code fleet_admit(struct world *w, uint64_t operation)
{
    Cadastre__OperationAdmit m = admission(w, operation);
    return world_do(w, CADASTRE__COMMAND__BODY_OPERATION_ADMIT, &m)->err.code;
}

enum err_code fleet_try_admit(struct world *w, uint64_t operation)
{
    Cadastre__OperationAdmit m = admission(w, operation);
    struct dir_result *r = world_try(w, CADASTRE__COMMAND__BODY_OPERATION_ADMIT, &m);
    enum err_code code = r->err.code;
    result_unref(r);
    return code;
}

static void time_out(struct world *w, const struct dir_operation *o)
{
    Cadastre__OperationTimeout m;
    cadastre__operation_timeout__init(&m);
    m.operation = o->id;
    m.attempt = o->attempt;
    m.stage = o->stage;
    m.since = o->stage_revision;
    (void)world_do(w, CADASTRE__COMMAND__BODY_OPERATION_TIMEOUT, &m);
}

static void report(struct world *w, const struct dir_operation *o, uint64_t node)
{
    Cadastre__OperationReport m;
    const struct dir_node *n = view_node_by_id(world_state(w), node);
    const struct dir_evidence *said = node == o->source ? &o->source_says : &o->destination_says;
    cadastre__operation_report__init(&m);
    m.operation = o->id;
    m.node = text_lent(n->name);
    m.session = n->session;
    m.attempt = o->attempt;
    m.stage = o->stage;
    m.seq = said->seq + 1;
    m.has = UINT64_MAX;
    m.ready = m.active = m.complete = m.fenced = true;
    m.free_bytes = UINT64_C(1) << 50;
    m.snapshot = text_lent("s");
    m.bytes_total = m.bytes_done = o->has_size ? o->size_bytes : 1000;
    m.chunk = 1;
    m.from_position = 100;
    m.applied_position = 1000;
    m.at_position = o->validate_at;
    m.items = 5;
    m.checksum = 7;
    m.epoch = o->epoch_before;
    m.final_position = 200;
    (void)world_do(w, CADASTRE__COMMAND__BODY_OPERATION_REPORT, &m);
}

void fleet_step(struct world *w, uint64_t operation)
{
    const struct dir_operation *o = fleet_operation(w, operation);
    switch ((int)o->stage) {
    case DIR_STAGE_QUEUED:
        (void)fleet_admit(w, operation);
        return;
    case DIR_STAGE_DUAL_WRITE:
    case DIR_STAGE_VALIDATE:
        report(w, o, o->source);
        report(w, fleet_operation(w, operation), o->destination);
        return;
    case DIR_STAGE_SNAPSHOT:
    case DIR_STAGE_FENCE:
        report(w, o, o->source);
        return;
    case DIR_STAGE_WINDOW:
        report(w, o, o->source);
        time_out(w, fleet_operation(w, operation));
        return;
    case DIR_STAGE_CLEANUP:
        report(w, o, o->leaving);
        return;
    default:
        if (o->state == DIR_OPERATION_RUNNING) {
            report(w, o, o->destination);
        }
        return;
    }
}

void fleet_to(struct world *w, uint64_t operation, enum dir_stage stage)
{
    for (int i = 0; i < STEPS_MAX && fleet_operation(w, operation)->stage != stage; i++) {
        fleet_step(w, operation);
    }
    CHECK_STR(dir_stage_name(fleet_operation(w, operation)->stage), dir_stage_name(stage));
}

static void verb(struct world *w, uint64_t operation, Cadastre__OperationVerbKind kind, bool back)
{
    Cadastre__OperationVerb m;
    cadastre__operation_verb__init(&m);
    m.operation = operation;
    m.verb = kind;
    m.back = back;
    m.reason = text_lent("enough");
    (void)world_do(w, CADASTRE__COMMAND__BODY_OPERATION_VERB, &m);
}

void fleet_abort(struct world *w, uint64_t operation)
{
    verb(w, operation, CADASTRE__OPERATION_VERB_KIND__ABORT, false);
}

void fleet_retry(struct world *w, uint64_t operation)
{
    verb(w, operation, CADASTRE__OPERATION_VERB_KIND__RETRY, false);
}

uint64_t fleet_back(struct world *w, uint64_t operation)
{
    verb(w, operation, CADASTRE__OPERATION_VERB_KIND__FINISH_VALIDATION, true);
    return fleet_operation(w, operation)->reversed_by;
}

const struct dir_result *fleet_release(struct world *w, uint64_t operation, uint32_t step)
{
    Cadastre__OperationRelease m;
    cadastre__operation_release__init(&m);
    m.operation = operation;
    m.step = step;
    return world_do(w, CADASTRE__COMMAND__BODY_OPERATION_RELEASE, &m);
}

enum err_code fleet_rate(struct world *w, uint64_t operation, uint32_t share_ppm)
{
    const struct dir_operation *o = fleet_operation(w, operation);
    Cadastre__OperationRate m;
    cadastre__operation_rate__init(&m);
    m.operation = operation;
    m.attempt = o->attempt;
    m.share_ppm = share_ppm;
    m.code = text_lent("queue_ms_p99");
    m.node = o->source;
    m.value = 90;
    m.limit = 50;
    return world_do(w, CADASTRE__COMMAND__BODY_OPERATION_RATE, &m)->err.code;
}

const struct dir_result *
fleet_limit(struct world *w, enum dir_budget budget, uint64_t moves, uint64_t bytes_per_s)
{
    Cadastre__BudgetLimit limit, *limits[] = {&limit};
    Cadastre__BalancerPatch m;
    cadastre__budget_limit__init(&limit);
    cadastre__balancer_patch__init(&m);
    limit.budget = budget;
    limit.has_moves = true;
    limit.moves = moves;
    limit.has_bytes_per_s = budget != DIR_BUDGET_TRANSFER;
    limit.bytes_per_s = bytes_per_s;
    m.n_limits = 1;
    m.limits = limits;
    return world_do(w, CADASTRE__COMMAND__BODY_BALANCER_PATCH, &m);
}

const struct dir_result *fleet_reserve(struct world *w, uint64_t percent)
{
    Cadastre__BalancerPatch m;
    cadastre__balancer_patch__init(&m);
    m.has_recovery_reserve_percent = true;
    m.recovery_reserve_percent = percent;
    return world_do(w, CADASTRE__COMMAND__BODY_BALANCER_PATCH, &m);
}

const struct dir_result *fleet_release_ms(struct world *w, uint64_t release_ms)
{
    Cadastre__BalancerPatch m;
    cadastre__balancer_patch__init(&m);
    m.has_release_ms = true;
    m.release_ms = release_ms;
    return world_do(w, CADASTRE__COMMAND__BODY_BALANCER_PATCH, &m);
}

void fleet_unlimited(struct world *w)
{
    for (int b = DIR_BUDGET_SOURCE; b <= DIR_BUDGETS; b++) {
        (void)fleet_limit(w, (enum dir_budget)b, DIR_BUDGET_MOVES_MAX, DIR_BUDGET_BYTES_MAX);
    }
    (void)fleet_reserve(w, 0);
}
