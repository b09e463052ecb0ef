/* SPDX-License-Identifier: Apache-2.0 */
/* What a partition lacks and the next step towards it, case by case; and what apply does with
 * operations when a node drains, or does not any more. */
#include "directory/internal.h"
#include "tests/harness/moves.h"
#include "tests/harness/tap.h"

#include <stdio.h>
#include <string.h>

static struct world w;
static const char *gone_names; /* of nodes that are not waited for */

static bool gone(void *arg, const struct dir_node *n)
{
    (void)arg;
    return strstr(gone_names, n->name) != NULL;
}

static const struct dir_partition *part(void)
{
    return agent_partition(&w, "k");
}

static uint64_t id_of(const char *name)
{
    return agent_node(&w, name)->id;
}

static struct repair_step next(void)
{
    struct repair_clock clock = {w.time_ms, gone, NULL};
    struct repair *r = repair_open(world_state(&w), &clock);
    struct repair_step s;
    repair_next(r, part(), &s);
    repair_close(r);
    return s;
}

static bool is_moot(void)
{
    struct repair_clock clock = {w.time_ms, gone, NULL};
    struct repair *r = repair_open(world_state(&w), &clock);
    bool moot = repair_is_moot(r, part(), view_operation(world_state(&w), part()->operation));
    repair_close(r);
    return moot;
}

/* The step is this one; "" for no node. */
static void expect(const struct repair_step *s,
                   enum dir_operation_kind kind,
                   const char *from,
                   const char *to,
                   enum dir_class class_of)
{
    CHECK_STR(s->kind != 0 ? dir_operation_kind_name(s->kind) : s->detail,
              dir_operation_kind_name(kind));
    CHECK_U64(s->from, from[0] != '\0' ? id_of(from) : 0);
    CHECK_U64(s->to, to[0] != '\0' ? id_of(to) : 0);
    CHECK_U64(s->class_of, class_of);
    CHECK(s->code == NULL && s->reason != NULL);
}

static void expect_blocked(const char *code)
{
    struct repair_step s = next();
    CHECK_U64(s.kind, 0);
    CHECK_STR(s.code != NULL ? s.code : "nothing", code);
    CHECK(s.detail[0] != '\0');
}

static void expect_rest(void)
{
    struct repair_step s = next();
    CHECK_U64(s.kind, 0);
    CHECK(s.code == NULL && s.problems == 0);
}

/* Nodes in zones za, zb, zc, za, zb, …; the first ones get the only partition of "orders". */
static void open_world(unsigned holders, unsigned others, const struct moves_wish *wish)
{
    static const char *const zones[] = {"za", "zb", "zc"};
    char name[8];
    gone_names = "";
    world_open(&w);
    w.time_ms = 1000;
    for (unsigned i = 0; i < holders + others; i++) {
        if (i == holders) {
            moves_keyspace(&w, "orders", wish);
        }
        (void)snprintf(name, sizeof name, "n%u", i + 1);
        (void)moves_node(&w, name, zones[i % 3], i % 2 == 0 ? "ssd" : "hdd");
    }
    if (others == 0) {
        moves_keyspace(&w, "orders", wish);
    }
}

static void close_world(void)
{
    CHECK_U64(world_check(world_state(&w)), 0);
    world_close(&w);
}

static void end(const char *name)
{
    w.time_ms += 1000;
    CHECK_U64(agent_end(&w, name, agent_node(&w, name)->session, false)->err.code, ERR_OK);
}

static void carry_out(const struct repair_step *s)
{
    const struct dir_result *r = moves_start(&w, part(), s);
    CHECK_U64(r->err.code, ERR_OK);
    if (r->err.code == ERR_OK) {
        moves_finish(&w, r->operation->id);
    }
}

static const struct dir_operation *begin(const struct repair_step *s)
{
    const struct dir_result *r = moves_start(&w, part(), s);
    CHECK_U64(r->err.code, ERR_OK);
    return view_operation(world_state(&w), r->operation->id);
}

static const struct moves_wish pair = {.sync = 1, .partitions = 1, .spread = "", .disk = ""};

static void a_copy_that_is_lost_is_made_anew(void)
{
    open_world(2, 2, &pair);
    expect_rest();
    CHECK_U64(repair_under_since(world_state(&w), world_keyspace(&w, "orders"), part()), 0);
    end("n2");
    struct repair_step s = next();
    CHECK_U64(s.problems, REPAIR_UNDER_REPLICATED);
    CHECK_U64(s.under_since_ms, 2000);
    CHECK(s.sync_live == 1 && s.sync_wanted == 2);
    expect_blocked("waiting");
    w.time_ms += 1000;
    gone_names = "n2";
    s = next();
    expect(&s, DIR_OPERATION_ADD_REPLICA, "", "n3", DIR_CLASS_LAST_COPY);
    CHECK_U64(s.role, DIR_ROLE_SYNC);
    carry_out(&s);
    s = next();
    CHECK_U64(s.problems, REPAIR_DEAD_COPY);
    expect(&s, DIR_OPERATION_REMOVE_REPLICA, "n2", "", DIR_CLASS_CONSTRAINT);
    const struct dir_operation *o = begin(&s);
    moves_finish(&w, o->id);
    /* Its node is away: only the duty is left, and the operation waits for nobody. */
    CHECK_U64(view_operation(world_state(&w), o->id)->state, DIR_OPERATION_DONE);
    CHECK(duty_is_owed(world_state(&w), id_of("n2"), part()->id));
    expect_rest();
    close_world();
}

static void flap(const char *name)
{
    for (int i = 0; i < 2; i++) {
        end(name);
        (void)agent_put(&w, name, 0);
    }
}

static void who_comes_and_goes_gets_nothing_while_there_is_another(void)
{
    open_world(2, 2, &pair);
    flap("n3");
    end("n2");
    gone_names = "n2";
    struct repair_step s = next();
    expect(&s, DIR_OPERATION_ADD_REPLICA, "", "n4", DIR_CLASS_LAST_COPY);
    flap("n4");
    flap("n4");
    end("n3");
    gone_names = "n2 n3";
    s = next();
    expect(&s, DIR_OPERATION_ADD_REPLICA, "", "n4",
           DIR_CLASS_LAST_COPY); /* rather than to nobody */
    (void)agent_put(&w, "n3", 0);
    gone_names = "n2";
    w.time_ms += 120001; /* n3's distrust after three, not n4's after four: both are over */
    s = next();
    expect(&s, DIR_OPERATION_ADD_REPLICA, "", "n3", DIR_CLASS_LAST_COPY);
    const struct dir_result *r = world_hash(&w, "later", 8);
    CHECK_U64(r->err.code, ERR_OK);
    flap("n3");
    uint64_t before = agent_node(&w, "n3")->partition_count;
    CHECK_U64(world_hash(&w, "latest", 8)->err.code, ERR_OK);
    CHECK_U64(agent_node(&w, "n3")->partition_count, before);
    close_world();
}

static void the_last_copies_are_the_most_urgent(void)
{
    const struct moves_wish three = {
        .sync = 2, .async = 1, .partitions = 1, .spread = "", .disk = ""};
    open_world(4, 1, &three);
    end("n2");
    gone_names = "n2";
    struct repair_step s = next();
    expect(&s, DIR_OPERATION_ADD_REPLICA, "", "n5", DIR_CLASS_UNDER_REPLICATED);
    end("n4");
    gone_names = "n4";
    s = next();
    expect(&s, DIR_OPERATION_ADD_REPLICA, "", "n5", DIR_CLASS_CONSTRAINT);
    CHECK_U64(s.role, DIR_ROLE_ASYNC);
    CHECK_U64(s.under_since_ms, 2000); /* the first of them that it can't do without */
    close_world();
}

static void a_copy_that_may_catch_up_is_waited_for(void)
{
    open_world(2, 1, &pair);
    w.time_ms = 5000;
    CHECK_U64(agent_insync(&w, part(), part()->session, "")->err.code, ERR_OK);
    CHECK_U64(part()->under_since_ms, 5000);
    expect_blocked("waiting");
    w.time_ms = 5000 + 299999;
    expect_blocked("waiting");
    w.time_ms = 5000 + 300000;
    struct repair_step s = next();
    expect(&s, DIR_OPERATION_ADD_REPLICA, "", "n3", DIR_CLASS_UNDER_REPLICATED);
    CHECK_U64(s.under_since_ms, 5000);
    CHECK_U64(agent_insync(&w, part(), part()->session, "n2")->err.code, ERR_OK);
    CHECK_U64(part()->under_since_ms, 0);
    expect_rest();
    close_world();
}

/* What stops counting was lost when its node left. */
static void the_time_of_a_loss_is_kept(void)
{
    open_world(2, 0, &pair);
    end("n2"); /* at 2000 */
    w.time_ms = 9000;
    CHECK_U64(agent_insync(&w, part(), part()->session, "")->err.code, ERR_OK);
    CHECK_U64(part()->under_since_ms, 2000);
    CHECK_U64(next().under_since_ms, 2000);
    close_world();
}

static void without_a_source_nothing_is_done(void)
{
    const struct moves_wish one = {.partitions = 1, .spread = "", .disk = ""};
    open_world(0, 0, &one);
    expect_blocked("no_destination"); /* for a first copy */
    close_world();
    open_world(2, 1, &pair);
    end("n2");
    end("n1");
    gone_names = "n1 n2";
    CHECK_U64(next().problems & REPAIR_UNAVAILABLE, REPAIR_UNAVAILABLE);
    expect_blocked("no_source");
    close_world();
    open_world(2, 1, &pair);
    (void)agent_put(&w, "n1", 0); /* a new process, while the old one's lease may run */
    end("n2");
    expect_blocked("source_lapsed");
    close_world();
}

static void without_a_destination_the_reason_is_given(void)
{
    const struct moves_wish ssd = {.sync = 1, .partitions = 1, .spread = "", .disk = "ssd"};
    open_world(3, 3, &ssd); /* n1 and n3 have it; of n2, n4, n6 the disk is wrong */
    (void)agent_schedule(&w, "n5", CADASTRE__SCHEDULING_VERB__CORDON);
    end("n3");
    end("n4");
    gone_names = "n3 n4";
    expect_blocked("no_destination");
    CHECK_STR(
        next().detail,
        "no node may take a copy: 2 hold one, 1 have no session, 1 take nothing new, 2 are not "
        "allowed by the placement, 0 have no agent");
    (void)agent_schedule(&w, "n5", CADASTRE__SCHEDULING_VERB__UNCORDON);
    struct repair_step s = next();
    expect(&s, DIR_OPERATION_ADD_REPLICA, "", "n5", DIR_CLASS_LAST_COPY);
    close_world();
}

static void a_node_without_an_agent_says_so(void)
{
    world_open(&w);
    (void)world_node(&w, "s1", "s1:1");
    (void)world_range(&w, "orders");
    (void)agent_put(&w, "n1", 0);
    (void)agent_schedule(&w, "s1", CADASTRE__SCHEDULING_VERB__DRAIN);
    CHECK_U64(next().problems, REPAIR_DRAINS);
    expect_blocked("static");
    close_world();
}

static void what_is_too_much_goes(void)
{
    const struct moves_wish one = {.partitions = 1, .spread = "", .disk = ""};
    open_world(2, 1, &pair);
    CHECK_U64(moves_patch(&w, "orders", &one)->err.code, ERR_OK);
    struct repair_step s = next();
    CHECK_U64(s.problems, REPAIR_SURPLUS);
    expect(&s, DIR_OPERATION_REMOVE_REPLICA, "n2", "", DIR_CLASS_CONSTRAINT);
    carry_out(&s);
    expect_rest();
    /* More are wanted than there are, from when that was said. */
    w.time_ms = 7000;
    CHECK_U64(moves_patch(&w, "orders", &pair)->err.code, ERR_OK);
    CHECK_U64(next().under_since_ms, 7000);
    close_world();
}

static void of_too_many_the_one_that_drains_goes(void)
{
    const struct moves_wish three = {.sync = 2, .partitions = 1, .spread = "", .disk = ""};
    open_world(3, 1, &three);
    (void)agent_schedule(&w, "n2", CADASTRE__SCHEDULING_VERB__DRAIN);
    CHECK_U64(moves_patch(&w, "orders", &pair)->err.code, ERR_OK);
    struct repair_step s = next();
    expect(&s, DIR_OPERATION_REMOVE_REPLICA, "n2", "", DIR_CLASS_CONSTRAINT);
    close_world();
}

static void what_a_person_asked_for_stays(void)
{
    const struct moves_wish one = {.partitions = 1, .spread = "", .disk = ""};
    open_world(1, 2, &one);
    struct repair_step s = {
        .kind = DIR_OPERATION_ADD_REPLICA, .role = DIR_ROLE_SYNC, .reason = "for a transfer"};
    s.to = id_of("n2");
    carry_out(&s);
    CHECK_U64(part()->replica_count, 2);
    CHECK(part()->replicas[1].asked);
    expect_rest();
    close_world();
}

/* What a failed move has left may be the only copy with some write. */
static void an_asynchronous_copy_beside_a_sole_one_stays(void)
{
    const struct moves_wish both = {.async = 1, .partitions = 1, .spread = "", .disk = ""};
    const struct moves_wish one = {.partitions = 1, .spread = "", .disk = ""};
    open_world(2, 0, &both);
    CHECK_U64(moves_patch(&w, "orders", &one)->err.code, ERR_OK);
    struct repair_step s = next();
    expect(&s, DIR_OPERATION_REMOVE_REPLICA, "n2", "",
           DIR_CLASS_CONSTRAINT); /* older than the wish */
    close_world();
    open_world(1, 1, &one);
    s = (struct repair_step){
        .kind = DIR_OPERATION_ADD_REPLICA, .role = DIR_ROLE_ASYNC, .reason = "x"};
    s.class_of = DIR_CLASS_BALANCE; /* nobody asked */
    s.to = id_of("n2");
    carry_out(&s);
    CHECK_U64(part()->replica_count, 2);
    CHECK_U64(next().kind, 0);
    close_world();
}

static void what_the_placement_forbids_moves(void)
{
    const struct moves_wish ssd = {.sync = 1, .partitions = 1, .spread = "", .disk = "ssd"};
    const struct moves_wish hdd = {.sync = 1, .partitions = 1, .spread = "", .disk = "hdd"};
    open_world(3, 3, &ssd); /* on n1 and n3 */
    CHECK_U64(moves_patch(&w, "orders", &hdd)->err.code, ERR_OK);
    struct repair_step s = next();
    CHECK_U64(s.problems, REPAIR_MISPLACED);
    expect(&s, DIR_OPERATION_MOVE, "n3", "n2", DIR_CLASS_CONSTRAINT);
    carry_out(&s);
    s = next(); /* its replica may stay where it is: it takes over first */
    expect(&s, DIR_OPERATION_TRANSFER, "n1", "n2", DIR_CLASS_CONSTRAINT);
    carry_out(&s);
    s = next();
    expect(&s, DIR_OPERATION_MOVE, "n1", "n4", DIR_CLASS_CONSTRAINT);
    carry_out(&s);
    expect_rest();
    close_world();
}

static void copies_spread_while_they_can(void)
{
    const struct moves_wish spread = {.sync = 1, .partitions = 1, .spread = "zone", .disk = ""};
    const struct moves_wish ssd = {.sync = 1, .partitions = 1, .spread = "zone", .disk = "ssd"};
    open_world(2, 2, &spread); /* n1 in za, n2 in zb, n3 in zc, n4 in za */
    end("n2");
    gone_names = "n2";
    struct repair_step s = next();
    expect(&s, DIR_OPERATION_ADD_REPLICA, "", "n3", DIR_CLASS_LAST_COPY);
    (void)agent_schedule(&w, "n3", CADASTRE__SCHEDULING_VERB__CORDON);
    s = next(); /* rather in one zone than not at all */
    expect(&s, DIR_OPERATION_ADD_REPLICA, "", "n4", DIR_CLASS_LAST_COPY);
    carry_out(&s);
    s = next();
    carry_out(&s); /* the copy of n2 */
    expect_rest(); /* nowhere is better now */
    (void)agent_schedule(&w, "n3", CADASTRE__SCHEDULING_VERB__UNCORDON);
    s = next();
    CHECK_U64(s.problems, REPAIR_CROWDED);
    expect(&s, DIR_OPERATION_MOVE, "n4", "n3", DIR_CLASS_CONSTRAINT);
    carry_out(&s);
    expect_rest();
    CHECK_U64(moves_patch(&w, "orders", &ssd)->err.code, ERR_OK);
    expect_rest(); /* n1 and n3 are what it asks for */
    close_world();
}

static void a_drain_moves_everything_off(void)
{
    open_world(2, 1, &pair);
    CHECK_U64(agent_schedule(&w, "n1", CADASTRE__SCHEDULING_VERB__DRAIN)->node->scheduling,
              DIR_DRAINING);
    CHECK_U64(agent_node(&w, "n1")->scheduling_ms, w.time_ms);
    struct repair_step s = next();
    expect(&s, DIR_OPERATION_TRANSFER, "n1", "n2", DIR_CLASS_DRAIN);
    carry_out(&s);
    s = next();
    expect(&s, DIR_OPERATION_MOVE, "n1", "n3", DIR_CLASS_DRAIN);
    carry_out(&s);
    expect_rest();
    CHECK_U64(agent_node(&w, "n1")->partition_count, 0);
    close_world();
    const struct moves_wish one = {.partitions = 1, .spread = "", .disk = ""};
    open_world(1, 1, &one); /* a sole copy moves with its authority */
    (void)agent_schedule(&w, "n1", CADASTRE__SCHEDULING_VERB__DRAIN);
    s = next();
    expect(&s, DIR_OPERATION_MOVE, "n1", "n2", DIR_CLASS_DRAIN);
    carry_out(&s);
    expect_rest();
    close_world();
}

static void the_end_of_a_drain_ends_what_was_begun(void)
{
    const struct moves_wish one = {.partitions = 1, .spread = "", .disk = ""};
    open_world(1, 1, &one);
    (void)agent_schedule(&w, "n1", CADASTRE__SCHEDULING_VERB__DRAIN);
    struct repair_step s = next();
    uint64_t id = begin(&s)->id;
    expect_blocked("busy");
    CHECK(!is_moot());
    const struct dir_result *r = agent_schedule(&w, "n1", CADASTRE__SCHEDULING_VERB__UNCORDON);
    CHECK(r->err.code == ERR_OK && r->node != NULL && r->operation == NULL);
    const struct dir_operation *o = view_operation(world_state(&w), id);
    CHECK_U64(o->state, DIR_OPERATION_ABORTED);
    CHECK_STR(o->attention_code, "drain_cancelled");
    CHECK_U64(part()->operation, 0);
    expect_rest();
    /* One that a deposed leader proposes late is refused. */
    r = moves_start(&w, part(), &s);
    CHECK_U64(r->err.code, ERR_NO_DESTINATION);
    /* Begun again, and to a node that drains in its turn. */
    (void)agent_schedule(&w, "n1", CADASTRE__SCHEDULING_VERB__DRAIN);
    id = begin(&s)->id;
    (void)agent_schedule(&w, "n2", CADASTRE__SCHEDULING_VERB__DRAIN);
    CHECK_STR(view_operation(world_state(&w), id)->attention_code, "destination_closed");
    expect_blocked("no_destination");
    close_world();
}

static void a_node_that_goes_takes_what_waits_for_it_along(void)
{
    const struct moves_wish one = {.partitions = 1, .spread = "", .disk = ""};
    open_world(1, 1, &one);
    (void)agent_schedule(&w, "n1", CADASTRE__SCHEDULING_VERB__DRAIN);
    struct repair_step s = next();
    uint64_t id = begin(&s)->id;
    Cadastre__NodeDelete m;
    char name[] = "n2";
    cadastre__node_delete__init(&m);
    m.name = name;
    CHECK_U64(world_do(&w, CADASTRE__COMMAND__BODY_NODE_DELETE, &m)->err.code, ERR_OK);
    CHECK_STR(view_operation(world_state(&w), id)->attention_code, "node_removed");
    CHECK_U64(part()->operation, 0);
    close_world();
}

static void what_is_not_needed_any_more_is_moot(void)
{
    open_world(2, 2, &pair);
    end("n2");
    gone_names = "n2";
    struct repair_step s = next();
    uint64_t id = begin(&s)->id;
    CHECK(!is_moot());
    (void)moves_node(&w, "n2", "zb", "hdd"); /* it is back, with all that it had */
    CHECK(is_moot());
    CHECK_U64(view_operation(world_state(&w), id)->class_of, DIR_CLASS_LAST_COPY);
    close_world();
    open_world(2, 2, &pair);
    end("n2");
    gone_names = "n2";
    s = next();
    (void)moves_node(&w, "n2", "zb", "hdd");
    CHECK_U64(moves_start(&w, part(), &s)->err.code, ERR_NO_DESTINATION); /* apply sees it too */
    close_world();
}

static void what_waits_for_a_lost_node_is_moot(void)
{
    const struct moves_wish one = {.partitions = 1, .spread = "", .disk = ""};
    static const enum dir_class classes[] = {DIR_CLASS_BALANCE, DIR_CLASS_OPERATOR};
    for (unsigned i = 0; i < 2; i++) {
        open_world(1, 1, &one);
        struct repair_step s = {.kind = DIR_OPERATION_MOVE,
                                .from = id_of("n1"),
                                .to = id_of("n2"),
                                .class_of = classes[i],
                                .reason = "it is there for it"};
        (void)begin(&s);
        end("n2");
        CHECK(!is_moot()); /* it may come back */
        gone_names = "n2";
        CHECK(is_moot() == (classes[i] != DIR_CLASS_OPERATOR));
        close_world();
    }
    open_world(2, 2, &pair); /* a copy that is made anew, and then the node that is to have it */
    end("n2");
    gone_names = "n2";
    struct repair_step s = next();
    (void)begin(&s);
    CHECK(!is_moot());
    end(s.to == id_of("n3") ? "n3" : "n4");
    gone_names = "n2 n3 n4";
    CHECK(is_moot());
    close_world();
}

static void copies_on_their_way_count(void)
{
    const struct moves_wish four = {.sync = 1, .partitions = 4, .spread = "", .disk = ""};
    open_world(2, 3, &four);
    end("n2");
    gone_names = "n2";
    struct repair_clock clock = {w.time_ms, gone, NULL};
    struct repair *r = repair_open(world_state(&w), &clock);
    static const char *const keys[] = {"a", "b", "c", "d"};
    static const char *const to[] = {"n3", "n4", "n5", "n3"};
    for (unsigned i = 0; i < 4; i++) {
        struct repair_step s;
        repair_next(r, agent_partition(&w, keys[i]), &s);
        CHECK_U64(s.to, id_of(to[i]));
        repair_take(r, &s);
    }
    CHECK_U64(repair_queued(r, DIR_CLASS_LAST_COPY), 4);
    CHECK_U64(repair_open_operations(r), 4);
    repair_close(r);
    /* What waits counts as well: n3 is to get one. */
    struct repair_step s;
    r = repair_open(world_state(&w), &clock);
    repair_next(r, agent_partition(&w, "a"), &s);
    repair_close(r);
    CHECK_U64(moves_start(&w, agent_partition(&w, "a"), &s)->err.code, ERR_OK);
    r = repair_open(world_state(&w), &clock);
    repair_next(r, agent_partition(&w, "b"), &s);
    CHECK_U64(s.to, id_of("n4"));
    CHECK_U64(repair_queued(r, DIR_CLASS_LAST_COPY), 1);
    repair_close(r);
    close_world();
}

/* linkedin/cruise-control#1516, #402: two leaders find out of the same failure, and one of them
 * late. */
static void a_failure_is_repaired_once_whoever_leads(void)
{
    open_world(2, 2, &pair);
    end("n2");
    gone_names = "n2";
    struct repair_step first = next(), second = next();
    uint64_t id = begin(&first)->id;
    CHECK_U64(next().kind, 0); /* a third one sees that it is under way */
    CHECK_U64(moves_start(&w, part(), &second)->err.code, ERR_PARTITION_BUSY);
    moves_finish(&w, id);
    CHECK_U64(part()->operation, 0);
    CHECK_U64(moves_start(&w, part(), &second)->err.code, ERR_NO_DESTINATION);
    CHECK_U64(world_state(&w)->operations.count, 1);
    close_world();
    /* Its destination does not exist any more: it is refused, and what is missing is said. */
    open_world(2, 1, &pair);
    end("n2");
    gone_names = "n2";
    first = next();
    expect(&first, DIR_OPERATION_ADD_REPLICA, "", "n3", DIR_CLASS_LAST_COPY);
    Cadastre__NodeDelete m;
    char name[] = "n3";
    cadastre__node_delete__init(&m);
    m.name = name;
    CHECK_U64(world_do(&w, CADASTRE__COMMAND__BODY_NODE_DELETE, &m)->err.code, ERR_OK);
    expect_blocked("no_destination");
    CHECK_U64(world_state(&w)->operations.count, 0);
    close_world();
}

static void a_node_that_has_to_delete_first_is_passed_over(void)
{
    open_world(2, 2, &pair);
    (void)agent_schedule(&w, "n2", CADASTRE__SCHEDULING_VERB__DRAIN);
    struct repair_step s = next();
    expect(&s, DIR_OPERATION_MOVE, "n2", "n3", DIR_CLASS_DRAIN);
    const struct dir_operation *o = begin(&s);
    Cadastre__OperationAdmit m;
    cadastre__operation_admit__init(&m);
    m.operation = o->id;
    m.attempt = 1;
    CHECK_U64(world_do(&w, CADASTRE__COMMAND__BODY_OPERATION_ADMIT, &m)->err.code, ERR_OK);
    (void)agent_schedule(&w, "n2", CADASTRE__SCHEDULING_VERB__UNCORDON);
    CHECK(duty_is_owed(world_state(&w), id_of("n3"), part()->id));
    (void)agent_schedule(&w, "n2", CADASTRE__SCHEDULING_VERB__DRAIN);
    s = next();
    expect(&s, DIR_OPERATION_MOVE, "n2", "n4", DIR_CLASS_DRAIN);
    (void)agent_schedule(&w, "n4", CADASTRE__SCHEDULING_VERB__CORDON);
    s = next(); /* rather than none */
    expect(&s, DIR_OPERATION_MOVE, "n2", "n3", DIR_CLASS_DRAIN);
    close_world();
}

static void many_away_at_once_are_waited_for(void)
{
    const struct moves_wish spread = {.sync = 1, .partitions = 12, .spread = "", .disk = ""};
    open_world(8, 0, &spread);
    CHECK(!repair_breaker(world_state(&w)).tripped);
    end("n1");
    CHECK(!repair_breaker(world_state(&w)).tripped);
    end("n2");
    struct repair_breaker b = repair_breaker(world_state(&w));
    CHECK(b.nodes == 8 && b.away == 2 && !b.tripped); /* a quarter, and not more */
    end("n3");
    CHECK(repair_breaker(world_state(&w)).tripped);
    (void)moves_node(&w, "n3", "zc", "ssd");
    CHECK(!repair_breaker(world_state(&w)).tripped);
    close_world();
}

int main(void)
{
    RUN(a_copy_that_is_lost_is_made_anew);
    RUN(who_comes_and_goes_gets_nothing_while_there_is_another);
    RUN(the_last_copies_are_the_most_urgent);
    RUN(a_copy_that_may_catch_up_is_waited_for);
    RUN(the_time_of_a_loss_is_kept);
    RUN(without_a_source_nothing_is_done);
    RUN(without_a_destination_the_reason_is_given);
    RUN(a_node_without_an_agent_says_so);
    RUN(what_is_too_much_goes);
    RUN(of_too_many_the_one_that_drains_goes);
    RUN(what_a_person_asked_for_stays);
    RUN(an_asynchronous_copy_beside_a_sole_one_stays);
    RUN(what_the_placement_forbids_moves);
    RUN(copies_spread_while_they_can);
    RUN(a_drain_moves_everything_off);
    RUN(the_end_of_a_drain_ends_what_was_begun);
    RUN(a_node_that_goes_takes_what_waits_for_it_along);
    RUN(what_is_not_needed_any_more_is_moot);
    RUN(what_waits_for_a_lost_node_is_moot);
    RUN(copies_on_their_way_count);
    RUN(a_failure_is_repaired_once_whoever_leads);
    RUN(a_node_that_has_to_delete_first_is_passed_over);
    RUN(many_away_at_once_are_waited_for);
    return tap_done();
}
