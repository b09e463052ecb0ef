/* SPDX-License-Identifier: Apache-2.0 */
/* What is moved there and back, and what that stops: counted on made-up moves, and found by the
 * planner itself, in virtual time, over a load that follows its owner. */
#include "control/balancer.h"
#include "control/brake.h"

#include "base/mem.h"
#include "tests/harness/agents.h"
#include "tests/harness/fleet.h"
#include "tests/harness/tap.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    PARTITIONS = 24,
    COLD = 150, /* more than a fleet of three needs */
    HOUR = 3600000,
    DAY = 24 * HOUR,
    WINDOW = 8 * 2 * HOUR, /* of return_ms as it is by default */
    ROUND_MS = 30000,
    REPORT_MS = 10000
};

static struct world w;

static const struct dir_partition *row(uint64_t partition)
{
    uint8_t key[8];
    return ptree_get(&world_state(&w)->partitions, ptree_u64_key(partition, key));
}

static const char *owner(uint64_t partition)
{
    return view_primary(world_state(&w), row(partition))->name;
}

static void open_world(void)
{
    world_open(&w);
    w.time_ms = DAY;
    (void)fleet_node(&w, "n1", "", "", "");
    (void)world_hash(&w, "k", PARTITIONS);
    (void)fleet_node(&w, "n2", "", "", "");
    (void)fleet_node(&w, "n3", "", "", "");
    fleet_unlimited(&w);
}

static uint64_t first_partition(void)
{
    struct ptree_iter it;
    ptree_seek(&world_state(&w)->partitions, slice_of(NULL, 0), &it);
    const struct dir_partition *p = ptree_iter_get(&it, NULL);
    return p->id;
}

/* What the proposal began, and the proposal with it, is over. */
static void carry_out(uint64_t proposal, uint64_t operation)
{
    Cadastre__ProposalMeasure m;
    cadastre__proposal_measure__init(&m);
    for (int i = 0; i < 40 && fleet_operation(&w, operation)->state < DIR_OPERATION_DONE; i++) {
        fleet_step(&w, operation);
    }
    CHECK_U64(fleet_operation(&w, operation)->state, DIR_OPERATION_DONE);
    m.proposal = proposal;
    (void)world_do(&w, CADASTRE__COMMAND__BODY_PROPOSAL_MEASURE, &m);
}

/* --- on made-up moves --- */

static void figure(Cadastre__Figure *f, uint32_t group, uint64_t value)
{
    cadastre__figure__init(f);
    f->name = text_lent("from_level_ppm");
    f->group = group;
    f->value = value;
}

/* Relieves its source of 0.3 of its share. */
static void goes(uint64_t partition, const char *to, uint32_t class_of)
{
    Cadastre__ProposalMake m;
    Cadastre__Figure figures[2], *of[] = {&figures[0], &figures[1]};
    cadastre__proposal_make__init(&m);
    figure(&figures[0], DIR_FIGURE_EVIDENCE, 1500000);
    figure(&figures[1], DIR_FIGURE_PREDICTED, 1200000);
    m.kind = DIR_PROPOSAL_MOVE;
    m.partition = partition;
    m.epoch = row(partition)->epoch;
    m.from = text_lent(owner(partition));
    m.to = text_lent(to);
    m.class_ = class_of;
    m.reason_code = text_lent("hot_node");
    m.reason = text_lent("hot_node");
    m.figures = of;
    m.n_figures = 2;
    m.expires_in_ms = 600000;
    m.execute = true;
    const struct dir_result *r = world_do(&w, CADASTRE__COMMAND__BODY_PROPOSAL_MAKE, &m);
    if (CHECK_U64(r->err.code, ERR_OK)) {
        carry_out(r->proposal->id, r->proposal->operation);
    }
}

static struct brake_class measured(uint32_t class_of)
{
    struct brake b;
    brake_measure(world_state(&w), w.time_ms, &b);
    for (unsigned i = 0; i < BRAKE_CLASSES; i++) {
        if (b.of[i].class_of == class_of) {
            CHECK(brake_holds(&b, class_of) == b.of[i].braked);
            return b.of[i];
        }
    }
    CHECK(false);
    return b.of[0];
}

static void what_stays_is_no_oscillation(void)
{
    open_world();
    uint64_t p = first_partition();
    goes(p, "n2", DIR_CLASS_BALANCE);
    goes(p, "n3", DIR_CLASS_BALANCE);
    struct brake_class c = measured(DIR_CLASS_BALANCE);
    CHECK(c.moves == 2 && c.returns == 0 && !c.braked);
    CHECK_U64(c.variation_ppm, 600000);
    CHECK_U64(c.net_ppm, 300000); /* two ways to where one would have been enough */
    CHECK_U64(measured(DIR_CLASS_HOT).moves, 0);
    world_close(&w);
}

static void three_returns_brake_the_class_alone(void)
{
    open_world();
    uint64_t p = first_partition();
    goes(p, "n2", DIR_CLASS_BALANCE);
    for (uint64_t i = 1; i <= 3; i++) {
        CHECK(!measured(DIR_CLASS_BALANCE).braked);
        w.time_ms += HOUR;
        goes(p, i % 2 == 1 ? "n1" : "n2", DIR_CLASS_BALANCE);
        CHECK_U64(measured(DIR_CLASS_BALANCE).returns, i);
    }
    struct brake_class c = measured(DIR_CLASS_BALANCE);
    CHECK(c.braked && c.net_ppm == 0 && c.variation_ppm > 900000);
    CHECK(!measured(DIR_CLASS_HOT).braked && !measured(DIR_CLASS_OVERLOAD).braked);
    w.time_ms += WINDOW - 3 * HOUR;
    CHECK(measured(DIR_CLASS_BALANCE).braked);
    w.time_ms += 1; /* what the first return went back from is forgotten */
    CHECK(!measured(DIR_CLASS_BALANCE).braked);
    world_close(&w);
}

static void a_circle_is_a_return_too(void)
{
    open_world();
    uint64_t p = first_partition();
    goes(p, "n2", DIR_CLASS_HOT);
    goes(p, "n3", DIR_CLASS_HOT);
    CHECK_U64(measured(DIR_CLASS_HOT).returns, 0);
    goes(p, "n1", DIR_CLASS_HOT);
    struct brake_class c = measured(DIR_CLASS_HOT);
    CHECK(c.returns == 1 && c.net_ppm == 0);
    goes(p, "n2", DIR_CLASS_HOT);
    goes(p, "n3", DIR_CLASS_HOT);
    CHECK(measured(DIR_CLASS_HOT).braked);
    world_close(&w);
}

static void who_lets_things_return_is_not_braked(void)
{
    open_world();
    uint64_t p = first_partition();
    Cadastre__BalancerPatch m;
    Cadastre__BalancerValue value, *of[] = {&value};
    cadastre__balancer_patch__init(&m);
    cadastre__balancer_value__init(&value);
    value.which = DIR_BALANCER_RETURN_MS;
    m.values = of;
    m.n_values = 1;
    CHECK_U64(world_do(&w, CADASTRE__COMMAND__BODY_BALANCER_PATCH, &m)->err.code, ERR_OK);
    CHECK_U64(dir_balancer_value(world_state(&w), DIR_BALANCER_RETURN_MS), 0);
    for (int i = 0; i < 8; i++) {
        goes(p, i % 2 == 0 ? "n2" : "n1", DIR_CLASS_HOT);
    }
    struct brake b;
    brake_measure(world_state(&w), w.time_ms, &b);
    CHECK(!brake_holds(&b, DIR_CLASS_HOT));
    world_close(&w);
}

static void what_is_old_counts_less(void)
{
    open_world();
    goes(first_partition(), "n2", DIR_CLASS_HOT);
    CHECK_U64(measured(DIR_CLASS_HOT).variation_ppm, 300000);
    w.time_ms += WINDOW / 8;
    CHECK_U64(measured(DIR_CLASS_HOT).variation_ppm, 225000);
    w.time_ms += WINDOW / 8;
    CHECK_U64(measured(DIR_CLASS_HOT).variation_ppm, 150000);
    w.time_ms += WINDOW / 2;
    CHECK_U64(measured(DIR_CLASS_HOT).net_ppm, 37500);
    w.time_ms += WINDOW / 4 + 1;
    CHECK_U64(measured(DIR_CLASS_HOT).moves, 0);
    world_close(&w);
}

/* --- the planner, misled --- */

/* Whoever owns `bait` seems to have three times the load on all that it has. */
struct misled {
    struct loads *loads;
    struct bal_memory *memory;
    uint64_t bait;
    uint64_t moved, dropped; /* of the bait: moves done, and those that the brake kept back */
    uint64_t others;         /* proposals of a class that is not braked */
    uint32_t class_of;       /* of its last move */
};

/* Commands change what an iterator would walk over. */
static uint64_t all_partitions(uint64_t ids[PARTITIONS])
{
    struct ptree_iter it;
    const struct dir_partition *p;
    uint64_t count = 0;
    ptree_seek(&world_state(&w)->partitions, slice_of(NULL, 0), &it);
    for (; (p = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        ids[count++] = p->id;
    }
    return count;
}

static void pin_all_but(uint64_t bait)
{
    uint64_t ids[PARTITIONS], count = all_partitions(ids);
    for (uint64_t i = 0; i < count; i++) {
        Cadastre__PartitionPatch m;
        cadastre__partition_patch__init(&m);
        m.partition = ids[i];
        m.has_pinned = true;
        m.pinned = ids[i] != bait;
        (void)world_do(&w, CADASTRE__COMMAND__BODY_PARTITION_PATCH, &m);
    }
}

static void report(struct misled *x)
{
    struct ptree_iter it;
    const struct dir_partition *p;
    uint64_t hot = row(x->bait)->replicas[0].node;
    ptree_seek(&world_state(&w)->partitions, slice_of(NULL, 0), &it);
    for (; (p = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        struct load_sample s = {.partition = p->id, .epoch = p->epoch, .interval_ms = REPORT_MS};
        bool cold = p->keyspace != row(x->bait)->keyspace;
        uint64_t rate = cold ? 0 : p->replicas[0].node == hot ? 60 : 20;
        s.has = 1u << LOAD_READS | 1u << LOAD_WRITES | 1u << LOAD_SIZE;
        s.value[LOAD_READS] = rate * REPORT_MS / 1000;
        s.value[LOAD_SIZE] = 1 << 20;
        (void)loads_put(x->loads, &s, w.time_ms);
    }
}

/* As control/balancer.c goes through what was planned. */
static void propose(struct misled *x, const struct bal_plan *plan, const struct bal_proposal *p)
{
    struct brake brake;
    brake_measure(world_state(&w), w.time_ms, &brake);
    enum balancer_verdict verdict = balancer_judge(world_state(&w), w.time_ms, &brake, p);
    x->dropped += verdict == BALANCER_BRAKED && p->partition == x->bait;
    if (verdict != BALANCER_WANTED) {
        return;
    }
    struct balancer_make *m = mem_zalloc(sizeof *m);
    if (balancer_make_open(m, world_state(&w), x->loads, plan, p)) {
        m->body.execute = true;
        m->body.expires_in_ms = 600000;
        const struct dir_result *r = world_do(&w, CADASTRE__COMMAND__BODY_PROPOSAL_MAKE, &m->body);
        if (r->err.code == ERR_OK) {
            bal_memory_began(x->memory, p, w.time_ms);
            x->moved += p->partition == x->bait;
            x->others += p->partition != x->bait;
            x->class_of = p->partition == x->bait ? p->class_of : x->class_of;
            if (r->proposal->operation != 0) {
                carry_out(r->proposal->id, r->proposal->operation);
            }
        }
    }
    mem_free(m);
}

static void round_of(struct misled *x)
{
    struct fleet_input in = {
        .view = world_state(&w), .loads = x->loads, .mono_ms = w.time_ms, .log_ms = w.time_ms};
    struct bal_settings settings;
    struct bal_fleet f;
    struct bal_plan plan;
    struct err e;
    fleet_settings(view_balancer(world_state(&w)), &settings);
    bal_plan_init(&plan);
    if (CHECK_U64(fleet_build(&f, &in, &e), ERR_OK)) {
        bal_plan(&f, &settings, w.time_ms, x->memory, &plan);
        bal_fleet_close(&f);
        for (uint32_t i = 0; i < plan.proposal_count; i++) {
            propose(x, &plan, &plan.proposal[i]);
        }
    }
    bal_plan_close(&plan);
}

static void go_on(struct misled *x, uint64_t ms)
{
    for (uint64_t end = w.time_ms + ms; w.time_ms < end;) {
        w.time_ms += REPORT_MS;
        report(x);
        if (w.time_ms % ROUND_MS == 0) {
            round_of(x);
        }
    }
}

/* Two on one node, of a keyspace that nobody asks for anything and that has far too many. */
static void cold_neighbours(void)
{
    (void)world_hash(&w, "cold", COLD);
    const struct dir_keyspace *ks = world_keyspace(&w, "cold");
    struct ptree_iter it;
    const struct dir_partition *p;
    uint64_t ids[2], count = 0;
    ptree_seek(&world_state(&w)->partitions, slice_of(NULL, 0), &it);
    for (; (p = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        if (p->keyspace == ks->id && count < 2) {
            ids[count++] = p->id;
        }
    }
    if (strcmp(owner(ids[0]), owner(ids[1])) != 0) {
        goes(ids[0], owner(ids[1]), DIR_CLASS_OPTIMISE);
    }
}

static void a_misleading_load_is_braked_and_others_go_on(void)
{
    open_world();
    struct misled x = {.loads = loads_new(), .bait = first_partition()};
    x.memory = bal_memory_new(w.time_ms);
    uint64_t ids[PARTITIONS], count = all_partitions(ids);
    for (uint64_t i = 0; i < count; i++) { /* eight on each node */
        if (i % 3 != 0) {
            goes(ids[i], i % 3 == 1 ? "n2" : "n3", DIR_CLASS_OPTIMISE);
        }
    }
    pin_all_but(x.bait);
    go_on(&x, DAY / 2);
    struct brake_class c = measured(x.class_of);
    tap_note("%" PRIu64 " moves, %" PRIu64 " returns, %" PRIu64 " kept back; variation %" PRIu64
             ", net %" PRIu64,
             x.moved, c.returns, x.dropped, c.variation_ppm, c.net_ppm);
    CHECK(c.braked && x.dropped > 0 && c.returns >= BRAKE_RETURNS_MAX);
    CHECK(c.net_ppm < c.variation_ppm / 2);
    uint64_t moved = x.moved, others = x.others;
    cold_neighbours();
    go_on(&x, 3 * HOUR);
    CHECK_U64(x.moved, moved);
    CHECK(x.others > others); /* the merge of the cold ones */
    CHECK(!measured(DIR_CLASS_MERGE).braked);
    CHECK_U64(world_check(world_state(&w)), 0);
    bal_memory_free(x.memory);
    loads_free(x.loads);
    world_close(&w);
}

int main(void)
{
    RUN(what_stays_is_no_oscillation);
    RUN(three_returns_brake_the_class_alone);
    RUN(a_circle_is_a_return_too);
    RUN(who_lets_things_return_is_not_braked);
    RUN(what_is_old_counts_less);
    RUN(a_misleading_load_is_braked_and_others_go_on);
    return tap_done();
}
