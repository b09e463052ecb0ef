/* SPDX-License-Identifier: Apache-2.0 */
/* The planner's picture of a directory: loads, capacities, rules, what is under way, what waits. */
#include "control/fleet.h"

#include "tests/harness/moves.h"
#include "tests/harness/tap.h"

#include <stdio.h>
#include <string.h>

static struct world w;
static struct loads *loads;
static struct bal_fleet f;

static char *text(const char *s)
{
    union {
        const char *in;
        char *out;
    } u = {.in = s};
    return u.out;
}

static void begin(void)
{
    world_open(&w);
    (void)agent_put(&w, "n1", 0);
    CHECK_U64(world_range(&w, "k")->err.code, ERR_OK);
    (void)agent_put(&w, "n2", 0);
    (void)agent_put(&w, "n3", 0);
    loads = loads_new();
}

static void end(void)
{
    bal_fleet_close(&f);
    loads_free(loads);
    world_close(&w);
}

static void build(const struct fleet_birth *births, uint32_t count)
{
    struct fleet_input in = {.view = world_state(&w),
                             .loads = loads,
                             .mono_ms = 200000,
                             .log_ms = world_state(&w)->time_ms,
                             .births = births,
                             .birth_count = count};
    struct err e = {0};
    bal_fleet_close(&f);
    if (!CHECK_U64(fleet_build(&f, &in, &e), ERR_OK)) {
        tap_note("%s %s", e.pointer, e.detail);
    }
}

static void report(const struct dir_partition *p, uint64_t reads, uint64_t writes, uint64_t bytes)
{
    struct load_sample s = {.partition = p->id, .epoch = p->epoch, .interval_ms = 100000};
    s.has = 1u << LOAD_READS | 1u << LOAD_WRITES | 1u << LOAD_SIZE;
    s.value[LOAD_READS] = reads * 100;
    s.value[LOAD_WRITES] = writes * 100;
    s.value[LOAD_SIZE] = bytes;
    CHECK_U64(loads_put(loads, &s, 200000), LOAD_COUNTED);
}

static const struct dir_partition *at(const char *key)
{
    return world_at(&w, "k", key);
}

static uint64_t node_id(const char *name)
{
    const struct dir_node *n = view_node(world_state(&w), slice_of(name, strlen(name)));
    return n != NULL ? n->id : 0;
}

static uint32_t index_of(const struct dir_partition *p)
{
    uint32_t i = bal_fleet_partition(&f, p->id);
    CHECK(i != BAL_NO_PARTITION);
    return i;
}

static uint64_t load_of(const struct dir_partition *p, unsigned r)
{
    return f.load[(size_t)index_of(p) * BAL_RESOURCES + r];
}

/* Packed means are a little off. */
static bool near(uint64_t is, uint64_t should)
{
    return is + should / 50 >= should && is <= should + should / 50;
}

static void loads_and_assumed_capacities(void)
{
    begin();
    report(at("a"), 600, 300, 7000000);
    build(NULL, 0);
    CHECK(near(load_of(at("a"), BAL_READ), 600000));
    CHECK(near(load_of(at("a"), BAL_WRITE), 300000));
    CHECK(near(load_of(at("a"), BAL_QUEUE), 900000));
    CHECK(near(load_of(at("a"), BAL_BYTES), 7000000));
    CHECK(!(f.flags[index_of(at("a"))] & BAL_STALE));
    /* Three nodes, 900 a second: 300 is the mean, and twice that is what each can. */
    CHECK_U64(f.node_count, 3);
    CHECK(near(f.node[0].capacity[BAL_READ], 600000));
    CHECK_U64(f.node[0].capacity[BAL_CPU], 0);
    CHECK_U64(f.resources, 1u << BAL_READ | 1u << BAL_WRITE | 1u << BAL_QUEUE);
    end();
}

static void unknown_is_not_zero(void)
{
    begin();
    build(NULL, 0);
    CHECK(f.flags[index_of(at("a"))] & BAL_STALE);
    CHECK_U64(f.node[0].capacity[BAL_READ], FLEET_REQUESTS_MIN);
    end();
}

/* An hour of minutes, from so many bytes on, by so many more each. */
static void hour_of(const struct dir_partition *p, uint64_t bytes, int64_t more)
{
    for (unsigned i = 0; i < 60; i++) {
        struct load_sample s = {.partition = p->id,
                                .epoch = p->epoch,
                                .interval_ms = 60000,
                                .has = 1U << LOAD_READS | 1U << LOAD_SIZE};
        s.value[LOAD_READS] = 60;
        s.value[LOAD_SIZE] = (uint64_t)((int64_t)bytes + more * i);
        CHECK_U64(loads_put(loads, &s, 200000 + 60000 * i), LOAD_COUNTED);
    }
}

/* What grows counts as what it will be in half an hour, the horizon; what shrinks as it is. */
static void bytes_are_the_larger_of_now_and_projected(void)
{
    begin();
    hour_of(at("a"), 1000000000, 100000000);
    build(NULL, 0);
    CHECK(near(load_of(at("a"), BAL_BYTES), 6900000000 + 30 * UINT64_C(100000000)));
    end();
    begin();
    hour_of(at("a"), 10000000000, -100000000);
    build(NULL, 0);
    CHECK(near(load_of(at("a"), BAL_BYTES), 4100000000));
    end();
    begin();
    hour_of(at("a"), 5000000000, 0);
    build(NULL, 0);
    CHECK(near(load_of(at("a"), BAL_BYTES), 5000000000));
    end();
    /* Beyond what is believed it does not wrap. */
    begin();
    hour_of(at("a"), UINT64_C(1) << 51, INT64_C(1) << 45);
    build(NULL, 0);
    CHECK_U64(load_of(at("a"), BAL_BYTES), BAL_LOAD_MAX);
    end();
}

static uint64_t make(enum dir_proposal_kind kind, const char *to)
{
    Cadastre__ProposalMake m;
    cadastre__proposal_make__init(&m);
    m.kind = kind;
    m.partition = at("a")->id;
    m.epoch = at("a")->epoch;
    m.from = text("n1");
    m.to = text(to);
    m.reason_code = text("hot_node");
    m.reason = text("hot_node");
    m.expires_in_ms = 600000;
    const struct dir_result *r = world_do(&w, CADASTRE__COMMAND__BODY_PROPOSAL_MAKE, &m);
    CHECK_U64(r->err.code, ERR_OK);
    return r->proposal->id;
}

static void what_waits_counts_where_it_would_be(void)
{
    begin();
    report(at("a"), 600, 300, 7000000);
    uint64_t id = make(DIR_PROPOSAL_MOVE, "n2");
    build(NULL, 0);
    uint32_t p = index_of(at("a"));
    CHECK(f.flags[p] & BAL_BUSY);
    CHECK_U64(f.copy_to[f.place[p].copy_begin], bal_fleet_node(&f, node_id("n2")));
    CHECK_U64(f.node_load[0 * BAL_RESOURCES + BAL_READ], 0);
    Cadastre__ProposalSettle m;
    cadastre__proposal_settle__init(&m);
    m.proposal = id;
    m.verb = CADASTRE__PROPOSAL_VERB__REJECT;
    CHECK_U64(world_do(&w, CADASTRE__COMMAND__BODY_PROPOSAL_SETTLE, &m)->err.code, ERR_OK);
    build(NULL, 0);
    p = index_of(at("a"));
    CHECK(!(f.flags[p] & BAL_BUSY) && (f.flags[p] & BAL_PINNED));
    CHECK_U64(f.copy_to[f.place[p].copy_begin], BAL_NO_NODE);
    end();
}

/* The owner's time says nothing of the other copies. */
static void any_copy_that_moved_keeps_the_partition_where_it_is(void)
{
    begin();
    report(at("a"), 600, 300, 7000000);
    uint64_t id = make(DIR_PROPOSAL_MOVE, "n2");
    Cadastre__ProposalSettle m;
    cadastre__proposal_settle__init(&m);
    m.proposal = id;
    m.verb = CADASTRE__PROPOSAL_VERB__APPROVE;
    w.time_ms += 60000;
    CHECK_U64(world_do(&w, CADASTRE__COMMAND__BODY_PROPOSAL_SETTLE, &m)->err.code, ERR_OK);
    build(NULL, 0);
    CHECK(at("a")->owner_since_ms < w.time_ms);
    CHECK_U64(f.moved_ms[index_of(at("a"))], w.time_ms);
    end();
}

static void an_operation_counts_at_its_destination(void)
{
    begin();
    Cadastre__OperationStart m;
    cadastre__operation_start__init(&m);
    m.kind = DIR_OPERATION_MOVE;
    m.partition = at("a")->id;
    m.from = text("n1");
    m.to = text("n3");
    CHECK_U64(world_do(&w, CADASTRE__COMMAND__BODY_OPERATION_START, &m)->err.code, ERR_OK);
    build(NULL, 0);
    uint32_t p = index_of(at("a"));
    CHECK((f.flags[p] & BAL_BUSY) && f.place[p].operation == DIR_CLASS_OPERATOR);
    CHECK_U64(f.copy_to[f.place[p].copy_begin], bal_fleet_node(&f, node_id("n3")));
    end();
}

/* cockroachdb/cockroach#93540: what its old owner measured comes after the cutover. The load has
 * gone with the partition, and neither owner looks hotter or colder for it. */
static void a_late_report_does_not_bring_the_load_back(void)
{
    begin();
    report(at("a"), 600, 300, 7000000);
    struct load_sample late = {.partition = at("a")->id, .epoch = at("a")->epoch};
    late.interval_ms = 100000;
    late.has = 1u << LOAD_READS | 1u << LOAD_WRITES;
    late.value[LOAD_READS] = 9000000;
    Cadastre__OperationStart m;
    cadastre__operation_start__init(&m);
    m.kind = DIR_OPERATION_MOVE;
    m.partition = at("a")->id;
    m.from = text("n1");
    m.to = text("n3");
    const struct dir_result *r = world_do(&w, CADASTRE__COMMAND__BODY_OPERATION_START, &m);
    CHECK_U64(r->err.code, ERR_OK);
    moves_until(&w, r->operation->id, DIR_STAGE_WINDOW);
    struct load_sample first = late;
    first.epoch = at("a")->epoch;
    CHECK(first.epoch > late.epoch);
    CHECK_U64(loads_put(loads, &first, 250000), LOAD_EARLY); /* measured in part before its epoch */
    CHECK_U64(loads_put(loads, &late, 260000), LOAD_STALE);
    build(NULL, 0);
    CHECK(near(load_of(at("a"), BAL_READ), 600000));
    CHECK(near(f.node_load[bal_fleet_node(&f, node_id("n3")) * BAL_RESOURCES + BAL_READ], 600000));
    /* Its old owner has a copy until the window ends, and bears what a copy does. */
    CHECK(f.node_load[bal_fleet_node(&f, node_id("n1")) * BAL_RESOURCES + BAL_READ] <= 60000);
    end();
}

static void a_split_is_remembered(void)
{
    begin();
    struct fleet_birth births[] = {{at("a")->id, 99, 1234, false}};
    build(births, 1);
    CHECK_U64(f.split_ms[index_of(at("a"))], 1234);
    CHECK_U64(f.merged_ms[index_of(at("a"))], 0);
    CHECK_U64(f.calm_ms[index_of(at("a"))], 0);
    /* 97 was split off at 1000, merged into 99 and split again. */
    struct fleet_birth again[] = {
        {at("a")->id, 99, 4000, false}, {97, 90, 1000, false}, {99, 97, 3000, true}};
    build(again, 3);
    CHECK_U64(f.calm_ms[index_of(at("a"))], 6000);
    end();
}

static void settings_make_sense_to_the_planner(void)
{
    struct dir_balancer row;
    struct bal_settings s;
    struct err e = {0};
    memset(&row, 0, sizeof row);
    for (int i = 0; i < DIR_BALANCER_VALUES; i++) {
        row.values[i] = dir_balancer_default((enum dir_balancer_value)i);
    }
    fleet_settings(&row, &s);
    CHECK_U64(bal_settings_check(&s, &e), ERR_OK);
    CHECK_U64(s.merge_fraction, 4);
    row.values[DIR_BALANCER_HIGH_PPM] = 900000;
    row.values[DIR_BALANCER_LOW_PPM] = 400000;
    row.values[DIR_BALANCER_RESIDENCE_MS] = 0;
    row.values[DIR_BALANCER_SPLIT_SHARE_PPM] = 1000;
    row.values[DIR_BALANCER_MERGE_SHARE_PPM] = 1;
    fleet_settings(&row, &s);
    if (!CHECK_U64(bal_settings_check(&s, &e), ERR_OK)) {
        tap_note("%s %s", e.pointer, e.detail);
    }
    /* Who wants rounds that act within seconds is not held up by minutes elsewhere. */
    row.values[DIR_BALANCER_SUSTAIN_MS] = 2000;
    fleet_settings(&row, &s);
    CHECK_U64(s.split_every_ms, 2000);
    CHECK_U64(s.recovery_hold_ms, 4000);
    CHECK_U64(s.merge_after_ms, 0);
}

int main(void)
{
    RUN(loads_and_assumed_capacities);
    RUN(unknown_is_not_zero);
    RUN(bytes_are_the_larger_of_now_and_projected);
    RUN(what_waits_counts_where_it_would_be);
    RUN(any_copy_that_moved_keeps_the_partition_where_it_is);
    RUN(an_operation_counts_at_its_destination);
    RUN(a_late_report_does_not_bring_the_load_back);
    RUN(a_split_is_remembered);
    RUN(settings_make_sense_to_the_planner);
    return tap_done();
}
