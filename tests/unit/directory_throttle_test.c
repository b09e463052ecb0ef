/* SPDX-License-Identifier: Apache-2.0 */
/* Copies that are held back: which may be, what they are told, and when it is over. */
#include "directory/budget_internal.h"
#include "directory/tasks.h"
#include "tests/harness/agents.h"
#include "tests/harness/fleet.h"
#include "tests/harness/tap.h"

enum { MIB = 1 << 20, QUARTER = 250000, FULL = DIR_SHARE_FULL_PPM };

static struct world w;

static void open_world(void)
{
    world_open(&w);
    (void)fleet_node(&w, "a", "", "", "");
    (void)world_hash(&w, "k", 8);
    (void)fleet_node(&w, "b", "", "", "");
    (void)fleet_node(&w, "c", "", "", "");
    fleet_unlimited(&w);
}

static uint64_t begin(uint32_t class_of, enum dir_stage stage)
{
    const struct dir_partition *p, *found = NULL;
    struct ptree_iter it;
    for (ptree_seek(&world_state(&w)->partitions, slice_of(NULL, 0), &it);
         (p = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        bool of_a = p->replicas[0].node == agent_node(&w, "a")->id;
        found = p->operation == 0 && of_a ? p : found;
    }
    struct fleet_start s = {
        .partition = found->id, .to = "b", .class_of = class_of, .rate = 40 * MIB};
    uint64_t id = fleet_start(&w, &s);
    CHECK(id != 0);
    fleet_to(&w, id, stage);
    return id;
}

static const struct dir_throttle *of(uint64_t operation)
{
    return &fleet_operation(&w, operation)->throttle;
}

static uint64_t told_rate, told;

static bool note(void *arg, const struct dir_task *t)
{
    (void)arg;
    if (t->kind == DIR_TASK_STAGE) {
        told_rate = dir_operation_rate(t->operation);
        told++;
    }
    return true;
}

static uint64_t tasks_since(const char *node, dir_rev since)
{
    told = told_rate = 0;
    (void)dir_tasks(world_state(&w), agent_node(&w, node), since, note, NULL);
    return told;
}

static void a_routine_copy_goes_slower_and_faster(void)
{
    open_world();
    uint64_t id = begin(DIR_CLASS_BALANCE, DIR_STAGE_COPY);
    dir_rev before = world_state(&w)->revision;
    struct dir_reservation reserved = fleet_operation(&w, id)->reserved;
    w.time_ms = 5000;
    CHECK_U64(fleet_rate(&w, id, QUARTER), ERR_OK);
    CHECK(of(id)->share_ppm == QUARTER && of(id)->since_ms == 5000);
    CHECK(of(id)->value == 90 && of(id)->limit == 50);
    CHECK_STR(of(id)->code, "queue_ms_p99");
    CHECK_U64(of(id)->node, agent_node(&w, "a")->id);
    CHECK_U64(dir_operation_rate(fleet_operation(&w, id)), 10 * MIB);
    CHECK_U64(fleet_operation(&w, id)->rate_bytes_per_s, 40 * MIB);
    CHECK(tasks_since("b", before) == 1 && told_rate == 10 * MIB);
    CHECK(tasks_since("a", before) == 1 && agent_node(&w, "b")->task_revision > before);
    before = world_state(&w)->revision;
    CHECK_U64(fleet_rate(&w, id, QUARTER), ERR_OK); /* the same again */
    CHECK(world_state(&w)->revision == before && tasks_since("b", before) == 0);
    w.time_ms = 9000;
    CHECK_U64(fleet_rate(&w, id, 350000), ERR_OK);
    CHECK(of(id)->since_ms == 5000 && dir_operation_rate(fleet_operation(&w, id)) == 14 * MIB);
    CHECK_U64(fleet_rate(&w, id, FULL), ERR_OK);
    CHECK(of(id)->share_ppm == 0 && of(id)->code[0] == '\0' && of(id)->since_ms == 0);
    CHECK(tasks_since("b", before) == 1 && told_rate == 40 * MIB);
    CHECK(memcmp(&reserved, &fleet_operation(&w, id)->reserved, sizeof reserved) == 0);
    world_close_checked(&w);
}

static void what_has_yet_to_copy_begins_slowly(void)
{
    open_world();
    uint64_t id = begin(DIR_CLASS_HOT, DIR_STAGE_PREPARE);
    dir_rev before = world_state(&w)->revision;
    CHECK_U64(fleet_rate(&w, id, QUARTER), ERR_OK);
    CHECK_U64(tasks_since("b", before), 0); /* nobody prepares anew for that */
    fleet_to(&w, id, DIR_STAGE_COPY);
    CHECK(tasks_since("b", before) == 1 && told_rate == 10 * MIB);
    world_close_checked(&w);
}

static void recovery_and_drains_are_not_held_back(void)
{
    static const uint32_t classes[] = {DIR_CLASS_DRAIN, DIR_CLASS_CONSTRAINT};
    open_world();
    for (unsigned i = 0; i < 2; i++) {
        uint64_t id = begin(classes[i], DIR_STAGE_COPY);
        dir_rev before = world_state(&w)->revision;
        CHECK_U64(fleet_rate(&w, id, QUARTER), ERR_INVALID_REQUEST);
        CHECK(of(id)->share_ppm == 0 && world_state(&w)->revision == before);
    }
    uint64_t id = begin(DIR_CLASS_OPERATOR, DIR_STAGE_COPY);
    CHECK_U64(fleet_rate(&w, id, QUARTER), ERR_OK);
    world_close_checked(&w);
}

static void only_while_something_is_copied(void)
{
    static const enum dir_stage late[] = {DIR_STAGE_DUAL_WRITE, DIR_STAGE_VALIDATE, DIR_STAGE_FENCE,
                                          DIR_STAGE_CUTOVER,    DIR_STAGE_WINDOW,   DIR_STAGE_DONE};
    open_world();
    uint64_t id = begin(DIR_CLASS_BALANCE, DIR_STAGE_QUEUED);
    CHECK_U64(fleet_rate(&w, id, QUARTER), ERR_STALE_REPORT);
    fleet_to(&w, id, DIR_STAGE_CATCH_UP);
    CHECK_U64(fleet_rate(&w, id, QUARTER), ERR_OK);
    for (unsigned i = 0; i < sizeof late / sizeof late[0]; i++) {
        fleet_to(&w, id, late[i]);
        CHECK_U64(of(id)->share_ppm, 0);
        CHECK_U64(fleet_rate(&w, id, QUARTER), ERR_STALE_REPORT);
        CHECK_U64(fleet_rate(&w, id, FULL), ERR_STALE_REPORT);
    }
    uint64_t stopped = begin(DIR_CLASS_BALANCE, DIR_STAGE_COPY);
    CHECK_U64(fleet_rate(&w, stopped, QUARTER), ERR_OK);
    fleet_abort(&w, stopped);
    CHECK_U64(of(stopped)->share_ppm, 0);
    world_close_checked(&w);
}

static enum err_code
order(uint64_t operation, uint64_t attempt, uint32_t share, uint64_t node, char *code)
{
    Cadastre__OperationRate m;
    cadastre__operation_rate__init(&m);
    m.operation = operation;
    m.attempt = attempt;
    m.share_ppm = share;
    m.node = node;
    m.code = code;
    return world_do(&w, CADASTRE__COMMAND__BODY_OPERATION_RATE, &m)->err.code;
}

static void nonsense_is_refused(void)
{
    char code[] = "error_ppm", none[] = "";
    open_world();
    uint64_t id = begin(DIR_CLASS_BALANCE, DIR_STAGE_COPY), a = agent_node(&w, "a")->id;
    CHECK_U64(order(id + 1000, 1, QUARTER, a, code), ERR_OPERATION_NOT_FOUND);
    CHECK_U64(order(id, 2, QUARTER, a, code), ERR_STALE_REPORT);
    CHECK_U64(order(id, 1, 0, a, code), ERR_INVALID_REQUEST);
    CHECK_U64(order(id, 1, FULL + 1, a, code), ERR_INVALID_REQUEST);
    CHECK_U64(order(id, 1, QUARTER, agent_node(&w, "c")->id, code), ERR_INVALID_REQUEST);
    CHECK_U64(order(id, 1, QUARTER, a, none), ERR_INVALID_REQUEST);
    CHECK_U64(of(id)->share_ppm, 0);
    CHECK_U64(order(id, 1, 1, agent_node(&w, "b")->id, code), ERR_OK);
    CHECK_U64(dir_operation_rate(fleet_operation(&w, id)), 40 * MIB / 1000000);
    world_close_checked(&w);
}

static void damage_is_found(void)
{
    open_world();
    uint64_t id = begin(DIR_CLASS_BALANCE, DIR_STAGE_COPY);
    CHECK_U64(fleet_rate(&w, id, QUARTER), ERR_OK);
    const struct dir_operation *o = fleet_operation(&w, id);
    struct dir_operation *bad = row_copy(o, operation_size(o));
    CHECK(check_throttle(world_state(&w), bad) == NULL);
    bad->class_of = DIR_CLASS_UNAVAILABLE;
    CHECK_STR(check_throttle(world_state(&w), bad), "it is held back, and must not be");
    bad->class_of = DIR_CLASS_BALANCE;
    bad->throttle.share_ppm = FULL;
    CHECK_STR(check_throttle(world_state(&w), bad), "what holds it back does not fit");
    bad->throttle.share_ppm = QUARTER;
    bad->throttle.node = 999999;
    CHECK_STR(check_throttle(world_state(&w), bad), "what holds it back does not fit");
    bad->throttle = o->throttle;
    bad->rate_revision = world_state(&w)->revision + 1;
    CHECK_STR(check_throttle(world_state(&w), bad), "its rate is of a revision that never was");
    dir_unref(bad);
    world_close_checked(&w);
}

int main(void)
{
    RUN(a_routine_copy_goes_slower_and_faster);
    RUN(what_has_yet_to_copy_begins_slowly);
    RUN(recovery_and_drains_are_not_held_back);
    RUN(only_while_something_is_copied);
    RUN(nonsense_is_refused);
    RUN(damage_is_found);
    return tap_done();
}
