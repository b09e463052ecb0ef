/* SPDX-License-Identifier: Apache-2.0 */
/* Operations under random reports, verbs, time-outs and sessions, sensible ones and others:
 *
 *   a stage follows one that it may follow, attempts only grow, what has ended stays so until a
 *   person asks for it again, and then begins with nothing proven (I13);
 *   authority passes to a destination only when the source was fenced and both agree, or when the
 *   source has lapsed after an equal validation, or a person said so (I14);
 *   an abort leaves authority where it was and the candidate with a duty (I15);
 *   the verbs that the authority answer lists are those that apply takes, and its way back is what
 *   an abort does;
 *   and all that dir_check knows. */
#include "base/mem.h"
#include "directory/internal.h"
#include "directory/operation_authority.h"
#include "tests/harness/agents.h"
#include "tests/harness/fleet.h"
#include "tests/harness/tap.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { NODES = 4, ROUNDS = 24, COMMANDS = 1500, IDS = 1 << 18 };

static struct world w;
static struct tap_rand rng;
static dir_rev epochs[IDS]; /* by partition id */
static uint64_t reached[DIR_STAGE_FAILED + 1], refused, counted, forwards, cutovers, restarts,
    retries, reverses, parts;
static uint64_t seq, listed;

static uint64_t below(uint64_t n)
{
    return tap_rand_below(&rng, n);
}

static bool chance(unsigned percent)
{
    return below(100) < percent;
}

static const char *name_of(uint64_t i)
{
    static const char *const names[NODES] = {"n0", "n1", "n2", "n3"};
    return names[i];
}

static const struct dir_partition *any_partition(void)
{
    static const char *const keys[] = {"a", "h", "p", "z"};
    return agent_partition(&w, keys[below(4)]);
}

/* What happened to one operation in one command. */
struct step {
    bool is_report, is_promotion, is_retry;
    uint64_t applied, checksum, seq;
};

static struct dir_operation *before[IDS / 64];
static struct step step;

static const struct dir_operation *open_operation(void)
{
    const struct dir_partition *p = any_partition();
    return p->operation != 0 ? view_operation(world_state(&w), p->operation) : NULL;
}

static void do_start(void)
{
    static const enum dir_operation_kind kinds[] = {
        DIR_OPERATION_MOVE, DIR_OPERATION_MOVE, DIR_OPERATION_ADD_REPLICA,
        DIR_OPERATION_REMOVE_REPLICA, DIR_OPERATION_TRANSFER};
    Cadastre__OperationStart m;
    cadastre__operation_start__init(&m);
    m.kind = kinds[below(5)];
    m.partition = any_partition()->id;
    m.from = text_lent(chance(70) ? "" : name_of(below(NODES)));
    m.to = text_lent(m.kind == DIR_OPERATION_REMOVE_REPLICA ? "" : name_of(below(NODES)));
    if (m.kind == DIR_OPERATION_REMOVE_REPLICA) {
        m.from = text_lent(name_of(below(NODES)));
    }
    uint8_t bound[2] = {(uint8_t)('a' + below(26)), (uint8_t)('a' + below(26))};
    m.has_range = m.kind == DIR_OPERATION_MOVE && chance(60);
    m.range_start = (ProtobufCBinaryData){chance(60), &bound[0]};
    m.range_end_open = m.range_start.len > 0 && chance(70);
    m.range_end = (ProtobufCBinaryData){1, &bound[1]};
    m.role = chance(50) ? DIR_ROLE_SYNC : DIR_ROLE_ASYNC;
    (void)world_do(&w, CADASTRE__COMMAND__BODY_OPERATION_START, &m);
}

static void do_admit(const struct dir_operation *o)
{
    Cadastre__OperationAdmit m;
    cadastre__operation_admit__init(&m);
    m.operation = o->id;
    m.attempt = o->attempt;
    (void)world_do(&w, CADASTRE__COMMAND__BODY_OPERATION_ADMIT, &m);
}

static const char *reporter(const struct dir_operation *o)
{
    bool source = o->stage == DIR_STAGE_SNAPSHOT || o->stage == DIR_STAGE_FENCE ||
                  ((o->stage == DIR_STAGE_DUAL_WRITE || o->stage == DIR_STAGE_VALIDATE ||
                    o->stage == DIR_STAGE_WINDOW || o->stage == DIR_STAGE_CLEANUP) &&
                   chance(50));
    uint64_t id = o->stage == DIR_STAGE_CLEANUP ? o->leaving : source ? o->source : o->destination;
    const struct dir_node *n = view_node_by_id(world_state(&w), id);
    return n == NULL || chance(5) ? name_of(below(NODES)) : n->name;
}

static void do_report(const struct dir_operation *o)
{
    Cadastre__OperationReport m;
    cadastre__operation_report__init(&m);
    const char *name = reporter(o);
    const struct dir_node *n = agent_node(&w, name);
    m.operation = o->id;
    m.node = text_lent(name);
    m.session = n->session - (chance(3) ? 1 : 0);
    m.attempt = o->attempt + (chance(3) ? 1 : 0);
    m.stage = chance(4) ? 1 + (uint32_t)below(DIR_STAGE_FAILED) : o->stage;
    m.seq = chance(4) ? seq : ++seq;
    m.has = chance(3) ? below(1 << 21) : UINT64_MAX;
    m.ready = chance(95);
    m.refused = text_lent(chance(2) ? "no" : "");
    m.free_bytes = chance(97) ? 10000 : 1;
    m.snapshot = text_lent("s");
    m.bytes_total = 1000;
    m.chunk = below(10);
    m.complete = chance(60);
    m.gap = chance(3);
    m.lag_bytes = chance(80) ? 0 : 1 << 30;
    m.active = chance(95);
    m.from_position = 100;
    m.applied_position = chance(80) ? 1000 : 50;
    m.passed = chance(10);
    m.at_position = o->validate_at;
    m.items = 5;
    m.checksum = chance(95) ? 7 : 8;
    m.fenced = chance(95);
    const struct dir_partition *p = any_partition();
    m.epoch = o->partition == p->id || chance(95) ? o->epoch_before : p->epoch;
    m.final_position = 200 + below(100);
    m.old_epoch_writes = chance(10);
    step = (struct step){true, false, false, m.applied_position, m.checksum, m.seq};
    const struct dir_result *r = world_do(&w, CADASTRE__COMMAND__BODY_OPERATION_REPORT, &m);
    counted += r->err.code == ERR_OK;
    refused += r->err.code == ERR_STALE_REPORT;
    if (r->err.code == ERR_OK &&
        chance(20)) { /* the same again: the same answer, and nothing more */
        dir_rev revision = world_state(&w)->revision;
        r = world_do(&w, CADASTRE__COMMAND__BODY_OPERATION_REPORT, &m);
        bool cleaned = view_operation(world_state(&w), m.operation)->stage > DIR_STAGE_WINDOW;
        CHECK(cleaned || (r->err.code == ERR_OK && world_state(&w)->revision == revision));
    }
}

static const struct {
    Cadastre__OperationVerbKind kind;
    bool back;
    enum dir_verb listed;
} verbs[] = {
    {CADASTRE__OPERATION_VERB_KIND__ABORT, false, DIR_VERB_ABORT},
    {CADASTRE__OPERATION_VERB_KIND__FINISH_VALIDATION, false, DIR_VERB_FINISH_VALIDATION},
    {CADASTRE__OPERATION_VERB_KIND__FINISH_VALIDATION, true, DIR_VERB_FINISH_VALIDATION_BACK},
    {CADASTRE__OPERATION_VERB_KIND__PROMOTE_CANDIDATE, false, DIR_VERB_PROMOTE_CANDIDATE},
    {CADASTRE__OPERATION_VERB_KIND__RETRY, false, DIR_VERB_RETRY}};
enum { VERBS = sizeof verbs / sizeof verbs[0] };

static Cadastre__OperationVerb verb_of(const struct dir_operation *o, uint64_t i)
{
    Cadastre__OperationVerb m;
    cadastre__operation_verb__init(&m);
    m.operation = o->id;
    m.verb = verbs[i].kind;
    m.back = verbs[i].back;
    m.reason = text_lent("why not");
    step.is_retry = m.verb == CADASTRE__OPERATION_VERB_KIND__RETRY;
    return m;
}

/* Of any operation, ended ones too. */
static void check_listed(const struct dir_operation *o)
{
    struct operation_authority a;
    operation_authority_of(world_state(&w), o, &a);
    for (uint64_t i = 0; i < VERBS; i++) {
        Cadastre__OperationVerb m = verb_of(o, i);
        struct dir_result *r = world_try(&w, CADASTRE__COMMAND__BODY_OPERATION_VERB, &m);
        bool changes = r->err.code == ERR_OK && r->revision > world_state(&w)->revision;
        CHECK(((a.verbs & verbs[i].listed) != 0) == changes);
        listed += changes;
        result_unref(r);
    }
    CHECK((a.way_back == DIR_WAY_BACK_IMPOSSIBLE) == ((a.verbs & DIR_VERB_ABORT) == 0));
    CHECK(a.node == NULL || a.epoch != 0);
}

static void do_verb(const struct dir_operation *o)
{
    uint8_t key[8];
    struct operation_authority a;
    Cadastre__OperationVerb m = verb_of(o, below(VERBS));
    uint64_t partition = o->partition;
    operation_authority_of(world_state(&w), o, &a);
    step.is_promotion = m.verb == CADASTRE__OPERATION_VERB_KIND__PROMOTE_CANDIDATE;
    const struct dir_result *r = world_do(&w, CADASTRE__COMMAND__BODY_OPERATION_VERB, &m);
    const struct dir_partition *p =
        ptree_get(&world_state(&w)->partitions, ptree_u64_key(partition, key));
    if (m.verb == CADASTRE__OPERATION_VERB_KIND__ABORT && r->err.code == ERR_OK && p != NULL) {
        CHECK((p->epoch > a.epoch) == (a.way_back == DIR_WAY_BACK_NEW_EPOCH));
    }
}

/* One that has ended, to be asked for again. */
static void do_retry(void)
{
    const struct dir_operation *o;
    struct ptree_iter it;
    uint64_t skip = below(world_state(&w)->operations.count + 1);
    for (ptree_seek(&world_state(&w)->operations, slice_of(NULL, 0), &it);
         (o = ptree_iter_get(&it, NULL)) != NULL && (skip > 0 || o->state <= DIR_OPERATION_DONE);
         ptree_iter_next(&it)) {
        skip -= skip > 0;
    }
    if (o != NULL) {
        Cadastre__OperationVerb m;
        cadastre__operation_verb__init(&m);
        m.operation = o->id;
        m.verb = CADASTRE__OPERATION_VERB_KIND__RETRY;
        step.is_retry = true;
        (void)world_do(&w, CADASTRE__COMMAND__BODY_OPERATION_VERB, &m);
    }
}

static void do_timeout(const struct dir_operation *o)
{
    Cadastre__OperationTimeout m;
    cadastre__operation_timeout__init(&m);
    m.operation = o->id;
    m.attempt = o->attempt;
    m.stage = o->stage;
    m.since = o->stage_revision - (chance(20) ? 1 : 0);
    (void)world_do(&w, CADASTRE__COMMAND__BODY_OPERATION_TIMEOUT, &m);
}

static void do_session(void)
{
    const char *name = name_of(below(NODES));
    const struct dir_node *n = agent_node(&w, name);
    switch (below(4)) {
    case 0:
        (void)agent_end(&w, name,
                        n->ended_session != 0 && chance(50) ? n->ended_session : n->session,
                        chance(50));
        break;
    case 1:
        (void)agent_put(&w, name, 0);
        break;
    case 2:
        (void)agent_put_copies(&w, name, NULL, 0);
        break;
    default:
        (void)agent_put(&w, name, n->session);
        break;
    }
    restarts++;
}

/* A cleanup that nothing else would end. */
static void do_duty(void)
{
    struct ptree_iter it;
    ptree_seek(&world_state(&w)->duties, slice_of(NULL, 0), &it);
    const struct dir_duty *d = ptree_iter_get(&it, NULL);
    if (d == NULL) {
        return;
    }
    const struct dir_node *n = view_node_by_id(world_state(&w), d->node);
    Cadastre__DutyDone m;
    cadastre__duty_done__init(&m);
    m.duty = d->id;
    m.node = text_lent(n->name);
    m.session = n->session;
    m.copy = d->copy;
    (void)world_do(&w, CADASTRE__COMMAND__BODY_DUTY_DONE, &m);
}

static void recover(void)
{
    for (uint64_t i = 0; i < NODES; i++) {
        const struct dir_node *n = agent_node(&w, name_of(i));
        if (!view_node_is_live(n)) {
            (void)agent_put(&w, name_of(i), 0);
            return;
        }
        if (n->ended_session != 0) {
            (void)agent_end(&w, name_of(i), n->ended_session, false);
            return;
        }
    }
    const struct dir_partition *p = any_partition();
    if (!partition_has_primary(p) && p->replica_count > 0) {
        const struct dir_node *to = view_node_by_id(world_state(&w), p->replicas[0].node);
        (void)agent_failover(&w, p->id, to->name, true);
    }
}

static void do_something(void)
{
    const struct dir_operation *o = open_operation();
    uint64_t dice = below(100);
    memset(&step, 0, sizeof step);
    if (dice < 4) {
        do_session();
    } else if (dice < 14) {
        recover();
    } else if (dice < 20) {
        do_duty();
    } else if (dice < 22) {
        (void)agent_insync(&w, any_partition(), any_partition()->session, name_of(below(NODES)));
    } else if (dice < 26) {
        do_retry();
    } else if (o == NULL) {
        do_start();
    } else if (o->state == DIR_OPERATION_QUEUED && dice < 97) {
        do_admit(o);
    } else if (dice < 95 && !(o->stage == DIR_STAGE_WINDOW && chance(30))) {
        do_report(o);
    } else if (dice < 98) {
        do_verb(o);
    } else {
        do_timeout(o);
    }
}

/* --- what must hold --- */

/* The stages that may follow each other, as docs/movement.md has them. */
static bool may_follow(const struct dir_operation *o, uint8_t a, uint8_t b)
{
    if (o->reverses != 0 &&
        ((a == DIR_STAGE_QUEUED && b == DIR_STAGE_CATCH_UP) ||
         (a >= DIR_STAGE_CATCH_UP && a <= DIR_STAGE_CUTOVER && b == DIR_STAGE_PREPARE))) {
        return true; /* it begins with a copy, and may have to do without */
    }
    bool copying = b >= DIR_STAGE_SNAPSHOT && b <= DIR_STAGE_CATCH_UP;
    if (b == DIR_STAGE_ABORTED) {
        return a <= DIR_STAGE_CUTOVER;
    }
    if (a == DIR_STAGE_ABORTED || a == DIR_STAGE_FAILED) {
        return b == (a == DIR_STAGE_ABORTED ? DIR_STAGE_QUEUED : DIR_STAGE_CLEANUP);
    }
    if (a >= DIR_STAGE_COPY && a <= DIR_STAGE_CUTOVER && copying && (b <= a)) {
        return true;
    }
    switch ((int)a) {
    case DIR_STAGE_QUEUED:
        return b == DIR_STAGE_PREPARE || b == DIR_STAGE_FENCE || b == DIR_STAGE_CLEANUP ||
               b == DIR_STAGE_DONE;
    case DIR_STAGE_VALIDATE:
        return b == DIR_STAGE_FENCE || b == DIR_STAGE_JOIN || b == DIR_STAGE_CUTOVER;
    case DIR_STAGE_CUTOVER:
        return b == DIR_STAGE_WINDOW || b == DIR_STAGE_DONE;
    case DIR_STAGE_FENCE:
        return b == DIR_STAGE_CUTOVER;
    case DIR_STAGE_JOIN:
    case DIR_STAGE_WINDOW:
        return b == DIR_STAGE_CLEANUP || b == DIR_STAGE_DONE ||
               (a == DIR_STAGE_WINDOW && b == DIR_STAGE_FAILED);
    case DIR_STAGE_CLEANUP:
        return b == DIR_STAGE_DONE || b == DIR_STAGE_FAILED;
    default:
        return b == a || b == a + 1;
    }
}

static void check_path(const struct dir_operation *o)
{
    for (uint32_t i = 1; i < o->stage_count; i++) {
        uint8_t a = o->stages[i - 1].stage, b = o->stages[i].stage;
        if (!CHECK(may_follow(o, a, b))) {
            tap_note("operation %" PRIu64 ": %s after %s", o->id, dir_stage_name(b),
                     dir_stage_name(a));
        }
        CHECK(o->stages[i].revision >= o->stages[i - 1].revision && o->stages[i].by[0] != '\0');
    }
}

static void check_cutover(const struct dir_operation *was, const struct dir_operation *o)
{
    const struct dir_partition *p = any_partition();
    const struct dir_node *d = view_node_by_id(world_state(&w), o->destination);
    (void)p;
    CHECK(o->epoch_after == world_state(&w)->revision && view_node_is_live(d));
    if (o->part.is_set) {
        uint8_t key[8];
        const struct dir_tombstone *t =
            ptree_get(&world_state(&w)->tombstones, ptree_u64_key(was->partition, key));
        CHECK(t != NULL && o->retired == was->partition && t->successor_count >= 2);
        parts++;
    }
    if (step.is_report) {
        cutovers++;
        CHECK(was->stage == DIR_STAGE_CUTOVER && was->fenced);
        CHECK(step.applied >= was->final_position && step.checksum == was->checksum);
    } else if (!step.is_promotion) {
        forwards++;
        CHECK(was->joined && was->joined_session == d->session);
        CHECK(was->stage == DIR_STAGE_FENCE || was->stage == DIR_STAGE_CUTOVER);
    } else {
        CHECK(was->joined);
    }
}

static bool owes(uint64_t node, uint64_t operation)
{
    const struct dir_duty *d;
    struct ptree_iter it;
    uint8_t key[16];
    for (ptree_seek(&world_state(&w)->duties_by_node, state_pair_key(node, 0, key), &it);
         (d = ptree_iter_get(&it, NULL)) != NULL && d->node == node; ptree_iter_next(&it)) {
        if (d->operation == operation) {
            return true;
        }
    }
    return false;
}

/* The two rows of a move that is taken back name each other. */
static void check_reverse(const struct dir_operation *o)
{
    const struct dir_operation *other = view_operation(world_state(&w), o->reversed_by);
    if (o->reversed_by != 0 && CHECK(other != NULL)) {
        CHECK(other->reverses == o->id && other->source == o->destination &&
              other->destination == o->source && o->state == DIR_OPERATION_DONE);
        reverses++;
    }
}

static void check_change(const struct dir_operation *was, const struct dir_operation *o)
{
    CHECK(o->attempt >= was->attempt);
    check_reverse(o);
    if (was->state >= DIR_OPERATION_DONE && o->state != was->state) {
        retries++;
        CHECK(step.is_retry && was->state != DIR_OPERATION_DONE && o->attention_code[0] == '\0');
        CHECK(was->state == DIR_OPERATION_FAILED ||
              (o->stage == DIR_STAGE_QUEUED && o->attempt > was->attempt && o->copy == 0 &&
               !o->joined && !o->fenced && o->final_position == 0));
    }
    bool over = o->stage == DIR_STAGE_WINDOW ||
                (o->kind == DIR_OPERATION_TRANSFER && o->state == DIR_OPERATION_DONE);
    if (over && was->stage != o->stage) {
        check_cutover(was, o);
    }
    if (o->state == DIR_OPERATION_ABORTED && was->state == DIR_OPERATION_RUNNING &&
        o->kind != DIR_OPERATION_TRANSFER) {
        CHECK(owes(o->destination, o->id) && o->epoch_after == 0);
    }
}

static void check_operations(void)
{
    const struct dir_operation *o;
    struct ptree_iter it;
    for (ptree_seek(&world_state(&w)->operations, slice_of(NULL, 0), &it);
         (o = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        struct dir_operation **was = &before[o->id % (IDS / 64)];
        reached[o->stage]++;
        if (*was != NULL && (*was)->id == o->id) {
            if ((*was)->revision == o->revision) {
                continue;
            }
            check_change(*was, o);
        }
        check_path(o);
        check_listed(o);
        mem_free(*was);
        *was = mem_dup(o, operation_size(o));
    }
}

static void check_partitions(void)
{
    const struct dir_partition *p;
    struct ptree_iter it;
    for (ptree_seek(&world_state(&w)->partitions, slice_of(NULL, 0), &it);
         (p = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        CHECK(p->epoch >= epochs[p->id]);
        epochs[p->id] = p->epoch;
    }
}

static void reload(void)
{
    struct err e = {.code = ERR_OK};
    struct directory *d = world_reload(&w, &e);
    CHECK(d != NULL && directory_state(d)->hash.lo == world_state(&w)->hash.lo);
    directory_free(d);
}

static void one_world(void)
{
    world_open(&w);
    memset(epochs, 0, sizeof epochs);
    for (uint64_t i = 0; i < NODES; i++) {
        (void)agent_put(&w, name_of(i), 0);
    }
    fleet_unlimited(&w); /* budgets have a test of their own */
    agent_keyspace(&w, 1);
    (void)world_split(&w, agent_partition(&w, "a")->id, "g");
    (void)world_split(&w, agent_partition(&w, "h")->id, "n");
    (void)world_split(&w, agent_partition(&w, "p")->id, "t");
    for (unsigned i = 0; i < COMMANDS && tap_failures() == 0; i++) {
        do_something();
        tap_note("command %" PRIu64 " was %s", w.index, w.effects != NULL ? w.effects->what : "");
        check_partitions();
        check_operations();
        CHECK_U64(world_check(world_state(&w)), 0);
    }
    reload();
    for (uint64_t i = 0; i < IDS / 64; i++) {
        mem_free(before[i]);
        before[i] = NULL;
    }
    world_close(&w);
}

static void random_operations_keep_the_rules(void)
{
    rng.state = tap_seed(20261202);
    tap_note("seed %" PRIu64, rng.state);
    for (int i = 0; i < ROUNDS && tap_failures() == 0; i++) {
        one_world();
    }
    for (int s = DIR_STAGE_QUEUED; s <= DIR_STAGE_FAILED; s++) {
        /* JOIN is passed through in one command. */
        if (!CHECK(reached[s] > 0 || s == DIR_STAGE_JOIN)) {
            tap_note("%s was never reached", dir_stage_name((enum dir_stage)s));
        }
    }
    tap_note("%" PRIu64 " counted, %" PRIu64 " stale, %" PRIu64 " cutovers, %" PRIu64
             " forward, %" PRIu64 " tried again, %" PRIu64 " taken back",
             counted, refused, cutovers, forwards, retries, reverses);
    CHECK(counted > ROUNDS * COMMANDS / 10 && refused > 200 && cutovers > 10 &&
          listed > ROUNDS * 100);
    CHECK(retries > 10 && reverses > 5 && parts > 0);
}

int main(void)
{
    RUN(random_operations_keep_the_rules);
    return tap_done();
}
