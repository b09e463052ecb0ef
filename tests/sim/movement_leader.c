/* SPDX-License-Identifier: Apache-2.0 */
/* Operations at the directory: who starts, ends and times them, and the reports that come. All of
 * it as commands on the real state machine. */
#include "base/parse.h"
#include "tests/sim/movement_internal.h"

#include <stdio.h>
#include <string.h>

enum { TURN_MS = 250 };

static bool is_frozen(const struct sim *s)
{
    return s->frozen_until > s->now;
}

const struct dir_operation *leader_operation(const struct sim *s)
{
    return s->operation != 0 ? view_operation(world_state(&s->world), s->operation) : NULL;
}

void leader_settings(struct sim *s, const struct limits *l)
{
    Cadastre__SettingsPatch m;
    cadastre__settings_patch__init(&m);
    m.has_validation_window_ms = m.has_stage_timeout_ms = true;
    m.has_dual_write_max_ms = m.has_fence_max_ms = true;
    m.validation_window_ms = l->window_s * 1000;
    m.stage_timeout_ms = l->stage_s * 1000;
    m.dual_write_max_ms = l->dual_write_s * 1000;
    m.fence_max_ms = l->fence_s * 1000;
    (void)world_do(&s->world, CADASTRE__COMMAND__BODY_SETTINGS_PATCH, &m);
}

const struct dir_result *leader_put(struct sim *s, unsigned node, uint64_t previous)
{
    Cadastre__NodePut m;
    Cadastre__Copy items[COPIES], *pointers[COPIES];
    char address[16];
    const struct disk *d = &s->disks[node];
    cadastre__node_put__init(&m);
    (void)snprintf(address, sizeof address, "%s:9000", sim_names[node]);
    m.name = text_lent(sim_names[node]);
    m.address = address;
    m.previous_session = previous;
    m.has_copies = true;
    m.copies = pointers;
    for (unsigned i = 0; i < COPIES; i++) {
        if (d->copies[i].id != 0) {
            Cadastre__Copy *c = &items[m.n_copies];
            cadastre__copy__init(c);
            c->keyspace = text_lent("orders");
            c->partition = d->copies[i].partition;
            c->copy = d->copies[i].id;
            pointers[m.n_copies++] = c;
        }
    }
    const struct dir_result *r = world_do(&s->world, CADASTRE__COMMAND__BODY_NODE_PUT, &m);
    sim_commanded(s);
    return r;
}

const struct dir_partition *leader_partition(const struct sim *s, const struct dir_operation *o)
{
    uint8_t key[8];
    return ptree_get(&world_state(&s->world)->partitions, ptree_u64_key(o->partition, key));
}

struct keys leader_keys(const struct sim *s, const struct dir_operation *o)
{
    const struct dir_partition *p = leader_partition(s, o);
    if (o->part.is_set) {
        return sim_keys(dir_part_start(&o->part), dir_part_end(&o->part), o->part.end_open);
    }
    return p != NULL ? sim_keys_of(p) : (struct keys){0, SLOTS};
}

static ProtobufCBinaryData bound(unsigned slot)
{
    union {
        const char *in;
        uint8_t *out;
    } u = {.in = sim_bounds[slot % SLOTS]};
    return (ProtobufCBinaryData){.data = u.out, .len = strlen(sim_bounds[slot % SLOTS])};
}

const struct dir_result *leader_start(struct sim *s, const struct leader_start *of)
{
    Cadastre__OperationStart m;
    cadastre__operation_start__init(&m);
    m.kind = of->kind;
    m.partition = of->partition != NULL ? of->partition->id : sim_partition(s)->id;
    m.from = text_lent(of->from != NULL ? of->from : "");
    m.to = text_lent(sim_names[of->to]);
    m.role = of->kind == DIR_OPERATION_ADD_REPLICA ? DIR_ROLE_SYNC : 0;
    if (of->keys.upto > 0) {
        m.has_range = true;
        m.range_start = bound(of->keys.from);
        m.range_end_open = of->keys.upto == SLOTS;
        m.range_end = bound(of->keys.upto);
    }
    const struct dir_result *r = world_do(&s->world, CADASTRE__COMMAND__BODY_OPERATION_START, &m);
    if (r->err.code == ERR_OK) {
        s->operation = r->operation->id;
        s->run.moves++;
    }
    sim_commanded(s);
    return r;
}

static const struct dir_result *say(struct sim *s, Cadastre__OperationVerbKind verb, bool back)
{
    Cadastre__OperationVerb m;
    cadastre__operation_verb__init(&m);
    m.operation = s->operation;
    m.verb = verb;
    m.back = back;
    m.reason = text_lent("a person said so");
    const struct dir_result *r = world_do(&s->world, CADASTRE__COMMAND__BODY_OPERATION_VERB, &m);
    sim_commanded(s);
    return r;
}

const struct dir_result *leader_verb(struct sim *s, Cadastre__OperationVerbKind verb)
{
    return say(s, verb, false);
}

const struct dir_result *leader_finish(struct sim *s, bool back)
{
    const struct dir_result *r = say(s, CADASTRE__OPERATION_VERB_KIND__FINISH_VALIDATION, back);
    if (back && r->err.code == ERR_OK) {
        s->operation = leader_operation(s)->reversed_by;
        s->run.returns++;
    }
    return r;
}

void leader_policy(struct sim *s, bool reverse)
{
    Cadastre__PolicyValue v, *values[] = {&v};
    Cadastre__PolicyRules rules;
    Cadastre__KeyspacePatch m;
    static uint8_t policy[] = "{}";
    cadastre__policy_value__init(&v);
    cadastre__policy_rules__init(&rules);
    cadastre__keyspace_patch__init(&m);
    v.which = DIR_POLICY_REVERSE_REPLICATION;
    v.value = reverse;
    rules.n_values = 1;
    rules.values = values;
    m.keyspace = world_keyspace(&s->world, "orders")->id;
    m.has_policy = true;
    m.policy = (ProtobufCBinaryData){.data = policy, .len = sizeof policy - 1};
    m.rules = &rules;
    (void)world_do(&s->world, CADASTRE__COMMAND__BODY_KEYSPACE_PATCH, &m);
}

const struct dir_result *leader_timeout(struct sim *s, const struct event *e)
{
    Cadastre__OperationTimeout m;
    cadastre__operation_timeout__init(&m);
    m.operation = e->operation;
    m.attempt = e->attempt;
    m.stage = e->stage;
    m.since = e->changed;
    const struct dir_result *r = world_do(&s->world, CADASTRE__COMMAND__BODY_OPERATION_TIMEOUT, &m);
    sim_commanded(s);
    return r;
}

void leader_duty(struct sim *s, const struct event *e)
{
    const struct dir_operation *o =
        e->operation != 0 ? view_operation(world_state(&s->world), e->operation) : NULL;
    if (is_frozen(s)) {
        return;
    }
    if (e->mask != 0 && o != NULL && o->stage == DIR_STAGE_CLEANUP && o->attempt == e->attempt) {
        struct event r = *e;
        r.kind = EV_REPORT;
        r.stage = DIR_STAGE_CLEANUP;
        r.said = (struct said){.has = DIR_REPORT_OLD_EPOCH_WRITES};
        (void)leader_report(s, &r);
        return;
    }
    Cadastre__DutyDone m;
    cadastre__duty_done__init(&m);
    m.duty = e->changed;
    m.node = text_lent(sim_names[sim_node(e->proc)]);
    m.session = e->session;
    m.copy = e->previous;
    (void)world_do(&s->world, CADASTRE__COMMAND__BODY_DUTY_DONE, &m);
    sim_commanded(s);
}

/* --- reports --- */

/* A directory that is not as written: what it would take, it is given. */
static void mutate(const struct sim *s, Cadastre__OperationReport *m)
{
    const struct dir_operation *o = view_operation(world_state(&s->world), m->operation);
    if (o == NULL) {
        return;
    }
    bool other = m->attempt != o->attempt && m->stage == o->stage;
    if (sim_mutated(s, MOVEMENT_report_of_any_attempt) && other) {
        bool source = agent_node(&s->world, m->node)->id == o->source;
        m->attempt = o->attempt;
        m->seq = (source ? o->source_says.seq : o->destination_says.seq) + 1;
    }
    bool sums = m->stage == DIR_STAGE_VALIDATE || m->stage == DIR_STAGE_CUTOVER;
    if (sim_mutated(s, MOVEMENT_sums_ignored) && sums) {
        m->checksum = m->stage == DIR_STAGE_CUTOVER ? o->checksum : 1;
    }
}

static void fill(const struct sim *s, const struct event *e, Cadastre__OperationReport *m)
{
    const struct said *r = &e->said;
    cadastre__operation_report__init(m);
    m->operation = e->operation;
    m->node = text_lent(sim_names[sim_node(e->proc)]);
    m->session = e->session;
    m->attempt = e->attempt;
    m->stage = e->stage;
    m->seq = r->seq;
    m->has = r->has;
    m->ready = r->ready;
    m->free_bytes = r->free_bytes;
    m->position = m->applied_position = m->from_position = m->at_position = m->final_position =
        r->position;
    m->bytes_total = m->bytes_done = r->bytes;
    m->chunk = r->chunk;
    m->checksum_failures = r->failures;
    m->complete = r->complete;
    m->lag_bytes = r->lag;
    m->gap = r->gap;
    m->active = r->active;
    m->items = r->items;
    m->checksum = r->checksum;
    m->passed = r->passed;
    m->fenced = r->fenced;
    m->epoch = r->epoch;
    m->open_operations = r->open;
    mutate(s, m);
}

const struct dir_result *leader_report(struct sim *s, const struct event *e)
{
    Cadastre__OperationReport m;
    char name[24];
    fill(s, e, &m);
    (void)snprintf(name, sizeof name, "s%u", (unsigned)e->said.chunk);
    m.snapshot = e->stage == DIR_STAGE_SNAPSHOT ? name : m.snapshot;
    const struct dir_result *r = world_do(&s->world, CADASTRE__COMMAND__BODY_OPERATION_REPORT, &m);
    s->run.stale_reports += r->err.code == ERR_STALE_REPORT;
    if (r->err.code == ERR_OK) {
        s->last_report = *e;
    }
    sim_commanded(s);
    return r;
}

/* The cutover as if the source had said that it is fenced. */
static void not_awaited(struct sim *s)
{
    const struct dir_operation *o = leader_operation(s);
    unsigned d = o != NULL ? sim_node_of(s, o->destination) : NODES;
    bool transfer = o != NULL && o->kind == DIR_OPERATION_TRANSFER;
    bool not = sim_mutated(s, MOVEMENT_fence_not_awaited) ||
               (transfer && sim_mutated(s, MOVEMENT_transfer_unfenced));
    if (!not || d == NODES || o->stage != DIR_STAGE_FENCE ||
        view_primary(world_state(&s->world), leader_partition(s, o)) == NULL) {
        return;
    }
    const struct copy *c = sim_copy(s, leader_partition(s, o), d, o->copy);
    struct event e = {.kind = EV_REPORT, .proc = sim_node_of(s, o->source)};
    if (c == NULL) {
        return;
    }
    e.session = o->source_session;
    e.operation = o->id;
    e.attempt = o->attempt;
    e.stage = o->stage;
    e.said.has = DIR_REPORT_FENCED | DIR_REPORT_FINAL_POSITION | DIR_REPORT_CHECKSUM;
    e.said.seq = 1000000 + s->births;
    e.said.fenced = true;
    e.said.position = c->prefix;
    e.said.checksum = copy_sum(c, c->prefix, leader_keys(s, o));
    e.said.epoch = leader_partition(s, o)->epoch;
    (void)leader_report(s, &e);
}

/* --- time --- */

static uint64_t limit_of(const struct dir_view *v, const struct dir_operation *o)
{
    switch ((int)o->stage) {
    case DIR_STAGE_DUAL_WRITE:
        return v->settings.dual_write_max_ms;
    case DIR_STAGE_FENCE:
    case DIR_STAGE_CUTOVER:
        return v->settings.fence_max_ms;
    case DIR_STAGE_WINDOW:
        return v->settings.validation_window_ms;
    case DIR_STAGE_CLEANUP:
        return UINT64_MAX / SECOND;
    default:
        return v->settings.stage_timeout_ms;
    }
}

struct event leader_timer(const struct sim *s)
{
    const struct dir_operation *o = leader_operation(s);
    struct event e = {.kind = EV_TIMEOUT, .term = s->term, .operation = o->id};
    e.attempt = o->attempt;
    e.stage = o->stage;
    e.changed = o->stage_revision;
    return e;
}

static void admit(struct sim *s, const struct dir_operation *o)
{
    Cadastre__OperationAdmit m;
    cadastre__operation_admit__init(&m);
    m.operation = o->id;
    m.attempt = o->attempt;
    (void)world_do(&s->world, CADASTRE__COMMAND__BODY_OPERATION_ADMIT, &m);
    sim_commanded(s);
}

/* As the leader's loop does it: where progress counts, the stage takes too long only when nothing
 * moves; what it proposes comes late, and may have been overtaken. */
static void time_stage(struct sim *s, const struct dir_operation *o)
{
    bool progresses = o->stage == DIR_STAGE_COPY || o->stage == DIR_STAGE_CATCH_UP;
    uint64_t mark = progresses ? o->revision : o->stage_revision;
    if (mark != s->timer_mark) {
        s->timer_mark = mark;
        s->timer_since = s->now;
        s->timer_asked = 0;
    }
    bool late = s->now - s->timer_since > limit_of(world_state(&s->world), o) * MS;
    bool asked = s->timer_asked != 0 && s->now < s->timer_asked + 2 * SECOND;
    if (late && !asked) {
        struct event e = leader_timer(s);
        s->timer_asked = s->now;
        sim_post(s, &e, MS + sim_below(s, sim_chance(s, 20) ? 6 * SECOND : 60 * MS));
    }
}

/* A person: aborts, ends windows, tries again, promotes a whole candidate of a source that stays
 * away. */
static void meddle(struct sim *s, const struct dir_operation *o)
{
    const struct dir_partition *p = leader_partition(s, o);
    uint64_t what = sim_below(s, 1000);
    bool stranded = o->joined && view_primary(world_state(&s->world), p) == NULL;
    if (what < 5) {
        (void)leader_verb(s, CADASTRE__OPERATION_VERB_KIND__ABORT);
    } else if (what < 50 && o->stage == DIR_STAGE_WINDOW) {
        (void)leader_finish(s, what < 35);
    } else if (what < 100 && o->state > DIR_OPERATION_DONE) {
        (void)leader_verb(s, CADASTRE__OPERATION_VERB_KIND__RETRY);
        s->run.retries += s->world.result->err.code == ERR_OK;
    } else if (what < 60 && stranded) {
        const struct copy *c = sim_copy(s, p, sim_node_of(s, o->destination), o->copy);
        if (c != NULL && !c->damaged) {
            (void)leader_verb(s, CADASTRE__OPERATION_VERB_KIND__PROMOTE_CANDIDATE);
            s->run.promoted += s->world.result->err.code == ERR_OK;
        }
    }
}

/* The move's keys: all of it, or, when it can be, a part. */
static struct keys some_keys(struct sim *s, const struct dir_partition *p)
{
    struct keys all = sim_keys_of(p), part = all;
    if (all.upto - all.from < 2 || !sim_chance(s, 40)) {
        return (struct keys){0, 0};
    }
    while (part.from == all.from && part.upto == all.upto) {
        part.from = (uint8_t)(all.from + sim_below(s, (uint64_t)(all.upto - all.from)));
        part.upto = (uint8_t)(part.from + 1 + sim_below(s, (uint64_t)(all.upto - part.from)));
    }
    return part;
}

static void start_one(struct sim *s)
{
    const struct dir_operation *o = leader_operation(s);
    struct leader_start m = {.kind = DIR_OPERATION_MOVE, .to = (unsigned)sim_below(s, s->nodes)};
    const struct dir_partition *p = m.partition = sim_at(s, (unsigned)sim_below(s, SLOTS));
    bool running = o != NULL && o->state < DIR_OPERATION_DONE && o->stage != DIR_STAGE_CLEANUP;
    if (running || p->operation != 0 || view_primary(world_state(&s->world), p) == NULL) {
        return;
    }
    int at = partition_copy_on(p, agent_node(&s->world, sim_names[m.to])->id);
    if (at >= 0 && (p->replicas[at].role != DIR_ROLE_SYNC || !sim_chance(s, 20))) {
        return;
    }
    m.kind = at >= 0 ? DIR_OPERATION_TRANSFER : DIR_OPERATION_MOVE;
    m.keys = at >= 0 ? m.keys : some_keys(s, p);
    bool ok = leader_start(s, &m)->err.code == ERR_OK;
    s->run.transfers += ok && at >= 0;
    s->next_start = s->now + SECOND + sim_below(s, 8 * SECOND);
}

void leader_turn(struct sim *s)
{
    if (s->now % (TURN_MS * MS) != 0 || is_frozen(s) || s->held) {
        return;
    }
    const struct dir_operation *o = leader_operation(s);
    if (s->automatic && s->next_start <= s->now) {
        start_one(s);
        o = leader_operation(s);
    }
    if (o == NULL) {
        return;
    }
    if (o->state == DIR_OPERATION_QUEUED) {
        admit(s, o);
    } else if (o->state == DIR_OPERATION_RUNNING) {
        time_stage(s, o);
        not_awaited(s);
        o = leader_operation(s);
    }
    if (s->automatic) {
        meddle(s, o);
    }
}
