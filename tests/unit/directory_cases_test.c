/* SPDX-License-Identifier: Apache-2.0 */
/* What went wrong in other systems, as tests of the state machine (docs/cases.md has the list). */
#include "directory/budget.h"
#include "directory/internal.h"
#include "directory/operation.h"
#include "tests/harness/moves.h"
#include "tests/harness/tap.h"

#include <stdio.h>
#include <string.h>

static struct world w;
static uint64_t op;

static const struct dir_partition *part(void)
{
    return agent_partition(&w, "a");
}

static const struct dir_operation *it(void)
{
    return view_operation(world_state(&w), op);
}

static int role_on(const char *name)
{
    const struct dir_node *n = agent_node(&w, name);
    int at = n != NULL ? partition_copy_on(part(), n->id) : -1;
    return at >= 0 ? part()->replicas[at].role : 0;
}

static const char *part_from; /* of what is started next; NULL for all of it */

static enum err_code
start(enum dir_operation_kind kind, const struct dir_partition *p, const char *to)
{
    Cadastre__OperationStart m;
    cadastre__operation_start__init(&m);
    if (part_from != NULL) {
        m.has_range = m.range_end_open = true;
        m.range_start.data = (void *)text_lent(part_from);
        m.range_start.len = strlen(part_from);
    }
    m.kind = kind;
    m.partition = p->id;
    m.to = text_lent(to);
    m.role = kind == DIR_OPERATION_ADD_REPLICA ? DIR_ROLE_SYNC : 0;
    const struct dir_result *r = world_do(&w, CADASTRE__COMMAND__BODY_OPERATION_START, &m);
    op = r->err.code == ERR_OK ? r->operation->id : op;
    return r->err.code;
}

static enum err_code verb(Cadastre__OperationVerbKind kind)
{
    Cadastre__OperationVerb m;
    cadastre__operation_verb__init(&m);
    m.operation = op;
    m.verb = kind;
    m.reason = text_lent("a person said so");
    return world_do(&w, CADASTRE__COMMAND__BODY_OPERATION_VERB, &m)->err.code;
}

static enum err_code delete_node(const char *name)
{
    Cadastre__NodeDelete m;
    cadastre__node_delete__init(&m);
    m.name = text_lent(name);
    m.force = true;
    return world_do(&w, CADASTRE__COMMAND__BODY_NODE_DELETE, &m)->err.code;
}

static void time_out(void)
{
    Cadastre__OperationTimeout m;
    cadastre__operation_timeout__init(&m);
    m.operation = op;
    m.attempt = it()->attempt;
    m.stage = it()->stage;
    m.since = it()->stage_revision;
    (void)world_do(&w, CADASTRE__COMMAND__BODY_OPERATION_TIMEOUT, &m);
}

static void die(const char *name)
{
    (void)agent_end(&w, name, agent_node(&w, name)->session, false);
    CHECK_U64(w.result->err.code, ERR_OK);
}

/* n1 has all `partitions`, n2 nothing. */
static void open_world(uint32_t partitions)
{
    const struct moves_wish wish = {.partitions = partitions, .spread = "", .disk = ""};
    world_open(&w);
    (void)agent_put(&w, "n1", 0);
    moves_keyspace(&w, "orders", &wish);
    (void)agent_put(&w, "n2", 0);
}

static void open_at(enum dir_operation_kind kind, enum dir_stage stage)
{
    open_world(1);
    CHECK_U64(start(kind, part(), "n2"), ERR_OK);
    moves_until(&w, op, stage);
    CHECK_STR(dir_stage_name((enum dir_stage)it()->stage), dir_stage_name(stage));
}

static void close_world(void)
{
    CHECK_U64(world_check(world_state(&w)), 0);
    world_close(&w);
}

/* scylladb/scylladb#18699: fencing one partition must refuse nobody another. */
static void a_move_touches_no_other_partition(void)
{
    open_world(3);
    const struct dir_partition *left = part(), *right = agent_partition(&w, "c");
    dir_rev seen[] = {left->mod_revision, right->mod_revision};
    dir_rev epochs[] = {left->epoch, right->epoch};
    uint64_t middle = agent_partition(&w, "b")->id;
    CHECK_U64(start(DIR_OPERATION_MOVE, agent_partition(&w, "b"), "n2"), ERR_OK);
    for (int s = DIR_STAGE_PREPARE; s <= DIR_STAGE_DONE; s++) {
        moves_until(&w, op, (enum dir_stage)s);
        left = part();
        right = agent_partition(&w, "c");
        CHECK(left->mod_revision == seen[0] && right->mod_revision == seen[1]);
        CHECK(left->epoch == epochs[0] && right->epoch == epochs[1]);
        CHECK(left->state == DIR_ACTIVE && right->state == DIR_ACTIVE);
    }
    CHECK(it()->state == DIR_OPERATION_DONE && agent_partition(&w, "b")->id == middle);
    CHECK(agent_partition(&w, "b")->epoch > epochs[0]);
    close_world();
}

/* tikv/pd#3234: nothing is begun towards a node that can't take it. */
static void a_move_to_a_node_that_can_not_take_it_is_refused_at_once(void)
{
    static const struct {
        Cadastre__SchedulingVerb verb;
        bool dies;
    } rows[] = {{CADASTRE__SCHEDULING_VERB__UNCORDON, true},
                {CADASTRE__SCHEDULING_VERB__CORDON, false},
                {CADASTRE__SCHEDULING_VERB__DRAIN, false},
                {CADASTRE__SCHEDULING_VERB__QUARANTINE, false}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        open_world(1);
        (void)agent_schedule(&w, "n2", rows[i].verb);
        if (rows[i].dies) {
            die("n2");
        }
        tap_note("row %zu", i);
        dir_rev revision = world_state(&w)->revision;
        CHECK_U64(start(DIR_OPERATION_MOVE, part(), "n2"), ERR_NO_DESTINATION);
        CHECK_STR(w.result->err.pointer, "/to");
        CHECK_U64(start(DIR_OPERATION_MOVE, part(), "n1"), ERR_NO_DESTINATION);
        CHECK_U64(start(DIR_OPERATION_MOVE, part(), "n9"), ERR_NODE_NOT_FOUND);
        CHECK_U64(world_state(&w)->revision, revision);
        CHECK(world_state(&w)->operations.count == 0 && part()->operation == 0);
        close_world();
    }
}

/* linkedin/cruise-control#664: it ends, gives back what it held, and others go on meanwhile. */
static void a_destination_that_never_comes_back_holds_nothing_for_ever(void)
{
    const struct moves_wish wish = {.partitions = 2, .spread = "", .disk = ""};
    world_open(&w);
    (void)agent_put(&w, "n1", 0);
    (void)agent_put(&w, "n3", 0);
    moves_keyspace(&w, "orders", &wish);
    (void)agent_put(&w, "n2", 0);
    (void)agent_put(&w, "n4", 0);
    CHECK_U64(start(DIR_OPERATION_MOVE, part(), "n2"), ERR_OK);
    uint64_t stuck = op;
    moves_until(&w, op, DIR_STAGE_COPY);
    die("n2");
    CHECK_U64(start(DIR_OPERATION_MOVE, agent_partition(&w, "b"), "n4"), ERR_OK);
    moves_finish(&w, op);
    CHECK_U64(it()->state, DIR_OPERATION_DONE);
    op = stuck;
    CHECK_U64(it()->reserved.moves, 1);
    for (int i = 0; i < DIR_ATTEMPTS_MAX && it()->state == DIR_OPERATION_RUNNING; i++) {
        time_out();
    }
    CHECK_U64(it()->state, DIR_OPERATION_ABORTED);
    CHECK_STR(it()->attention_code, "attempts_exhausted");
    CHECK(part()->operation == 0 && part()->state == DIR_ACTIVE);
    CHECK_U64(start(DIR_OPERATION_MOVE, part(), "n4"), ERR_OK);
    moves_finish(&w, op);
    CHECK_U64(it()->state, DIR_OPERATION_DONE);
    close_world();
}

/* scylladb/scylladb#16527, #20227: whoever dies, and whenever, can be removed, and the operation
 * ends: at once, or with the duty of a source that lives. */
static void dead_nodes_can_be_removed_in_every_stage(void)
{
    for (int s = DIR_STAGE_QUEUED; s <= DIR_STAGE_CLEANUP; s++) {
        for (unsigned dead = 1; dead <= 3; dead++) {
            if (s == DIR_STAGE_JOIN) {
                continue; /* of replicas only, and over in the command that enters it */
            }
            open_at(DIR_OPERATION_MOVE, (enum dir_stage)s);
            tap_note("in %s: %s%s", dir_stage_name((enum dir_stage)s), dead & 1 ? "source " : "",
                     dead & 2 ? "destination" : "");
            for (unsigned who = 1; who <= 2; who <<= 1) {
                if (dead & who) {
                    die(who == 1 ? "n1" : "n2");
                }
            }
            for (unsigned who = 1; who <= 2; who <<= 1) {
                if (dead & who) {
                    CHECK_U64(delete_node(who == 1 ? "n1" : "n2"), ERR_OK);
                    CHECK_U64(world_check(world_state(&w)), 0);
                }
            }
            if (s == DIR_STAGE_CLEANUP) {
                moves_clean(&w);
            }
            CHECK(it()->state != DIR_OPERATION_RUNNING && it()->state != DIR_OPERATION_QUEUED);
            CHECK(part()->operation == 0 && part()->state != DIR_FENCING);
            close_world();
        }
    }
}

/* apache/kafka KAFKA-14424, tikv/pd#3343: the source is gone for good, and the destination was
 * joined, so that it has every acknowledged write. It is not given up: not by an abort, and not by
 * the source's removal. */
static void the_only_copy_left_is_kept(void)
{
    static const enum dir_operation_kind kinds[] = {DIR_OPERATION_MOVE, DIR_OPERATION_ADD_REPLICA};
    for (int i = 0; i < 2; i++) {
        for (int both = 0; both < 2; both++) {
            open_at(kinds[i], DIR_STAGE_VALIDATE);
            tap_note("%s%s", dir_operation_kind_name(kinds[i]), both ? ", both away" : "");
            CHECK(it()->joined && role_on("n2") == DIR_ROLE_JOINING);
            dir_rev epoch = part()->epoch;
            die("n1");
            if (both) {
                die("n2");
            }
            CHECK_U64(verb(CADASTRE__OPERATION_VERB_KIND__ABORT), ERR_SOURCE_LAPSED);
            CHECK_U64(delete_node("n1"), ERR_OK);
            CHECK_U64(it()->state, DIR_OPERATION_ABORTED);
            CHECK_U64(world_state(&w)->duties.count, 0);
            CHECK(part()->replica_count == 1 && role_on("n2") == DIR_ROLE_ASYNC);
            CHECK(part()->state == DIR_UNAVAILABLE && part()->epoch == epoch);
            if (both) {
                (void)agent_put(&w, "n2", agent_node(&w, "n2")->session);
            }
            /* It was not compared, so a person has to say it. */
            CHECK(view_primary(world_state(&w), part()) == NULL);
            CHECK_U64(agent_failover(&w, part()->id, "n2", true)->err.code, ERR_OK);
            CHECK(role_on("n2") == DIR_ROLE_PRIMARY && part()->epoch > epoch);
            close_world();
        }
    }
    /* One that had not joined lacks writes, and goes. */
    open_at(DIR_OPERATION_MOVE, DIR_STAGE_CATCH_UP);
    die("n1");
    CHECK_U64(delete_node("n1"), ERR_OK);
    CHECK(part()->replica_count == 0 && world_state(&w)->duties.count == 1);
    close_world();
}

/* The same for a part: its candidate is no copy of the whole, so it has to be promoted before. */
static void the_only_copy_of_a_part_is_kept(void)
{
    part_from = "m";
    open_at(DIR_OPERATION_MOVE, DIR_STAGE_VALIDATE);
    part_from = NULL;
    die("n1");
    dir_rev revision = world_state(&w)->revision;
    CHECK_U64(delete_node("n1"), ERR_NODE_IN_USE);
    CHECK_U64(world_state(&w)->revision, revision);
    CHECK_U64(verb(CADASTRE__OPERATION_VERB_KIND__PROMOTE_CANDIDATE), ERR_OK);
    CHECK_U64(delete_node("n1"), ERR_OK);
    const struct dir_partition *moved = agent_partition(&w, "m");
    CHECK_STR(view_primary(world_state(&w), moved)->name, "n2");
    CHECK(view_primary(world_state(&w), part()) == NULL && part()->replica_count == 0);
    close_world();
    /* With both gone a person may still forget the source. */
    part_from = "m";
    open_at(DIR_OPERATION_MOVE, DIR_STAGE_VALIDATE);
    part_from = NULL;
    die("n1");
    die("n2");
    CHECK_U64(delete_node("n1"), ERR_OK);
    CHECK(part()->replica_count == 0 && it()->state == DIR_OPERATION_ABORTED);
    close_world();
}

/* tikv/pd#4467: where the rule allows two zones, three copies stay in them, however much they are
 * to spread; and one that is lost waits. */
static void a_hard_rule_goes_before_spreading(void)
{
    const struct moves_wish wish = {.sync = 2, .partitions = 4, .spread = "zone", .disk = "ssd"};
    world_open(&w);
    (void)moves_node(&w, "n1", "za", "ssd");
    (void)moves_node(&w, "n2", "za", "ssd");
    (void)moves_node(&w, "n3", "zb", "ssd");
    (void)moves_node(&w, "n4", "zc", "hdd");
    moves_keyspace(&w, "orders", &wish);
    CHECK_U64(agent_node(&w, "n4")->partition_count, 0);
    CHECK(part()->replica_count == 3 && role_on("n3") != 0 && role_on("n4") == 0);
    CHECK_U64(start(DIR_OPERATION_MOVE, part(), "n4"), ERR_PLACEMENT_VIOLATED);
    die("n3");
    CHECK_U64(delete_node("n3"), ERR_OK);
    const struct dir_keyspace *ks = world_keyspace(&w, "orders");
    CHECK(repair_is_short(world_state(&w), ks, part(), DIR_ROLE_SYNC));
    struct repair_clock clock = {w.time_ms, NULL, NULL};
    struct repair *r = repair_open(world_state(&w), &clock);
    struct repair_step s;
    repair_next(r, part(), &s);
    repair_close(r);
    CHECK(s.kind == 0 && s.to == 0);
    CHECK_STR(s.code != NULL ? s.code : "nothing", "no_destination");
    close_world();
}

int main(void)
{
    RUN(a_move_touches_no_other_partition);
    RUN(a_move_to_a_node_that_can_not_take_it_is_refused_at_once);
    RUN(a_destination_that_never_comes_back_holds_nothing_for_ever);
    RUN(dead_nodes_can_be_removed_in_every_stage);
    RUN(the_only_copy_left_is_kept);
    RUN(the_only_copy_of_a_part_is_kept);
    RUN(a_hard_rule_goes_before_spreading);
    return tap_done();
}
