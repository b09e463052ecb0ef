/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions: who may write after one began, lapsed, was replaced or given up. */
#include "directory/internal.h"
#include "tests/harness/agents.h"
#include "tests/harness/tap.h"

static struct world w;

static const struct dir_partition *part(void)
{
    return agent_partition(&w, "k");
}

static uint64_t session_of(const char *name)
{
    return agent_node(&w, name)->session;
}

static const char *primary(void)
{
    const struct dir_node *n = view_primary(world_state(&w), part());
    return n != NULL ? n->name : "";
}

static uint8_t role_on(const char *name)
{
    int at = partition_copy_on(part(), agent_node(&w, name)->id);
    return at >= 0 ? part()->replicas[at].role : 0;
}

/* Nodes n1 and on, n1 being the primary of the one partition, the others its sync replicas. */
static void open_world(unsigned nodes, uint32_t sync)
{
    static const char *const names[] = {"n1", "n2", "n3"};
    world_open(&w);
    for (unsigned i = 0; i < nodes; i++) {
        (void)agent_put(&w, names[i], 0);
    }
    agent_keyspace(&w, sync);
    CHECK_STR(primary(), "n1");
}

static void a_registration_begins_a_session(void)
{
    world_open(&w);
    const struct dir_result *r = agent_put(&w, "n1", 0);
    CHECK(r->err.code == ERR_OK && r->session == r->revision && r->node->lease_ms == 10000);
    CHECK(!r->node->is_static && !r->node->ended);
    uint64_t first = r->session;
    r = agent_put(&w, "n1", 0);
    CHECK(r->session == r->revision && r->session > first);
    agent_keyspace(&w, 0);
    CHECK(part()->session == session_of("n1") && part()->replicas[0].copy == part()->epoch);
    world_close_checked(&w);
}

static void a_lapse_fails_over_to_a_live_sync_replica(void)
{
    open_world(2, 1);
    uint64_t epoch = part()->epoch, copy = part()->replicas[1].copy;
    const struct dir_result *r = agent_end(&w, "n1", session_of("n1"), false);
    CHECK_U64(r->err.code, ERR_OK);
    CHECK_STR(primary(), "n2");
    CHECK(part()->epoch == r->revision && part()->epoch > epoch);
    CHECK(part()->session == session_of("n2") && part()->cause == DIR_CHANGE_FAILOVER);
    CHECK(role_on("n1") == DIR_ROLE_ASYNC && part()->replicas[0].copy == copy);
    CHECK(agent_node(&w, "n1")->ended);
    /* Coming back gives nothing: what it has may be more than what counts. */
    (void)agent_put(&w, "n1", 0);
    CHECK_STR(primary(), "n2");
    CHECK_U64(role_on("n1"), DIR_ROLE_ASYNC);
    world_close_checked(&w);
}

static void live_sync_replicas_stay_so_under_a_new_primary(void)
{
    open_world(3, 2);
    (void)agent_end(&w, "n1", session_of("n1"), false);
    CHECK_STR(primary(), "n2");
    CHECK_U64(role_on("n3"), DIR_ROLE_SYNC);
    world_close_checked(&w);
}

static void distrust_grows_with_each_lapse(void)
{
    static const uint64_t until_s[] = {0, 30, 60, 120};
    open_world(3, 2);
    for (int i = 0; i < 4; i++) {
        (void)agent_end(&w, "n2", session_of("n2"), false);
        const struct dir_node *n = agent_node(&w, "n2");
        CHECK_U64(n->lapses, (uint64_t)i + 1);
        CHECK_U64(n->lapsed_ms, world_state(&w)->time_ms);
        CHECK_U64(view_node_distrusted_until(&world_state(&w)->settings, n),
                  until_s[i] != 0 ? n->lapsed_ms + until_s[i] * 1000 : 0);
        (void)agent_put(&w, "n2", 0);
        CHECK_U64(agent_node(&w, "n2")->lapses, (uint64_t)i + 1); /* coming back mends nothing */
        w.time_ms += 1000;
    }
    (void)agent_end(&w, "n2", session_of("n2"), true); /* what is given up did not lapse */
    CHECK_U64(agent_node(&w, "n2")->lapses, 4);
    (void)agent_put(&w, "n2", 0);
    for (int i = 0; i < 20; i++) {
        (void)agent_end(&w, "n2", session_of("n2"), false);
        (void)agent_put(&w, "n2", 0);
    }
    CHECK_U64(agent_node(&w, "n2")->lapses, DIR_LAPSES_MAX);
    CHECK_U64(view_node_distrusted_until(&world_state(&w)->settings, agent_node(&w, "n2")),
              agent_node(&w, "n2")->lapsed_ms + DIR_DISTRUST_MAX_MS);
    w.time_ms += DIR_LAPSES_FORGOTTEN_MS;
    (void)agent_end(&w, "n2", session_of("n2"), false);
    CHECK_U64(agent_node(&w, "n2")->lapses, 1);
    world_close_checked(&w);
}

static void who_stays_is_preferred(void)
{
    open_world(3, 2);
    for (int i = 0; i < 2; i++) {
        (void)agent_end(&w, "n2", session_of("n2"), false);
        (void)agent_put(&w, "n2", 0);
    }
    CHECK(role_on("n2") == DIR_ROLE_SYNC && role_on("n3") == DIR_ROLE_SYNC);
    CHECK(partition_copy_on(part(), agent_node(&w, "n2")->id) <
          partition_copy_on(part(), agent_node(&w, "n3")->id));
    (void)agent_end(&w, "n1", session_of("n1"), false);
    CHECK_STR(primary(), "n3");
    (void)agent_end(&w, "n3", session_of("n3"), false);
    CHECK_STR(primary(), "n2"); /* rather than nobody */
    world_close_checked(&w);
}

static void a_lapse_without_a_replica_leaves_nobody(void)
{
    open_world(2, 0);
    uint64_t epoch = part()->epoch, home = agent_node(&w, "n1")->id;
    (void)agent_end(&w, "n1", session_of("n1"), false);
    CHECK(part()->state == DIR_UNAVAILABLE && part()->session == 0 && part()->home == home);
    CHECK(part()->epoch == epoch && part()->cause == DIR_CHANGE_LAPSE);
    CHECK(part()->mod_revision == world_state(&w)->revision);
    const struct dir_result *r = agent_put(&w, "n1", 0);
    CHECK_STR(primary(), "n1");
    CHECK(part()->epoch == r->revision && part()->session == r->session);
    CHECK(part()->state == DIR_ACTIVE && part()->home == 0 && part()->cause == DIR_CHANGE_GRANT);
    world_close_checked(&w);
}

static void the_first_sync_replica_to_come_back_takes_over(void)
{
    open_world(3, 2);
    (void)agent_end(&w, "n3", session_of("n3"), false);
    (void)agent_end(&w, "n2", session_of("n2"), false);
    CHECK_STR(primary(), "n1");
    (void)agent_end(&w, "n1", session_of("n1"), false);
    CHECK_STR(primary(), "");
    (void)agent_put(&w, "n3", 0);
    CHECK_STR(primary(), "n3");
    CHECK(part()->cause == DIR_CHANGE_FAILOVER && role_on("n1") == DIR_ROLE_ASYNC);
    CHECK_U64(role_on("n2"), DIR_ROLE_ASYNC); /* it is away */
    world_close_checked(&w);
}

static void ended_is_not_released(void)
{
    open_world(2, 1);
    uint64_t epoch = part()->epoch, old = session_of("n1");
    const struct dir_result *r = agent_put(&w, "n1", 0);
    CHECK(part()->epoch == epoch && part()->session == old);
    CHECK(agent_node(&w, "n1")->ended_session == old);
    CHECK(agent_node(&w, "n1")->ended_lease_ms == 10000);
    uint64_t now = r->session;
    /* Until the old one has lapsed: then the new one has it, at a new epoch. */
    r = agent_end(&w, "n1", old, false);
    CHECK(part()->session == now && part()->epoch == r->revision);
    CHECK_STR(primary(), "n1");
    CHECK(agent_node(&w, "n1")->ended_session == 0 && !agent_node(&w, "n1")->ended);
    world_close_checked(&w);
}

static void the_present_one_may_lapse_before_the_old_one(void)
{
    open_world(2, 1);
    uint64_t old = session_of("n1");
    (void)agent_put(&w, "n1", 0);
    (void)agent_end(&w, "n1", session_of("n1"), false);
    CHECK(part()->session == old); /* somebody may still write */
    CHECK_STR(primary(), "n1");
    (void)agent_end(&w, "n1", old, false);
    CHECK_STR(primary(), "n2");
    world_close_checked(&w);
}

static void several_ended_sessions_are_released_together(void)
{
    open_world(1, 0);
    uint64_t first = session_of("n1");
    (void)agent_put(&w, "n1", 0);
    Cadastre__KeyspaceCreate m;
    cadastre__keyspace_create__init(&m);
    char name[] = "other";
    m.name = name;
    m.scheme = DIR_SCHEME_RANGE;
    m.key_encoding = DIR_ENCODING_UTF8;
    m.authority = DIR_AUTHORITY_EXCLUSIVE;
    (void)world_do(&w, CADASTRE__COMMAND__BODY_KEYSPACE_CREATE, &m);
    uint64_t second = session_of("n1");
    (void)agent_put(&w, "n1", 0);
    CHECK(part()->session == first && agent_node(&w, "n1")->ended_session == second);
    CHECK_U64(agent_end(&w, "n1", first, false)->revision, world_state(&w)->revision);
    CHECK(part()->session == first); /* a list that is behind: nothing happens */
    (void)agent_end(&w, "n1", second, false);
    CHECK(part()->session == session_of("n1"));
    CHECK(world_at(&w, "other", "k")->session == session_of("n1"));
    world_close_checked(&w);
}

static void naming_the_previous_session_releases_it(void)
{
    open_world(2, 1);
    uint64_t old = session_of("n1"), epoch = part()->epoch;
    const struct dir_result *r = agent_put(&w, "n1", old);
    CHECK(part()->session == r->session && part()->epoch == r->revision && part()->epoch > epoch);
    uint64_t second = r->session;
    CHECK_STR(primary(), "n1");
    CHECK_U64(agent_node(&w, "n1")->ended_session, 0);
    /* One that holds nothing proves nothing. */
    (void)agent_put(&w, "n1", old);
    CHECK(part()->session == second || part()->session == agent_node(&w, "n1")->ended_session);
    CHECK(agent_node(&w, "n1")->ended_session != 0);
    world_close_checked(&w);
}

static void giving_a_session_up_releases_it_at_once(void)
{
    open_world(2, 1);
    uint64_t session = session_of("n1");
    CHECK_U64(agent_end(&w, "n1", session, true)->err.code, ERR_OK);
    CHECK_STR(primary(), "n2");
    dir_rev revision = world_state(&w)->revision;
    CHECK_U64(agent_end(&w, "n1", session, true)->err.code, ERR_OK);
    CHECK_U64(world_state(&w)->revision, revision);
    CHECK_U64(agent_end(&w, "n1", session + 100, true)->err.code, ERR_SESSION_ENDED);
    CHECK_U64(agent_end(&w, "nobody", session, true)->err.code, ERR_NODE_NOT_FOUND);
    world_close_checked(&w);
}

static void an_old_process_may_give_up_what_it_holds(void)
{
    open_world(1, 0);
    uint64_t old = session_of("n1");
    const struct dir_result *r = agent_put(&w, "n1", 0);
    uint64_t now = r->session;
    r = agent_end(&w, "n1", old, true);
    CHECK(part()->session == now && part()->epoch == r->revision);
    CHECK(agent_node(&w, "n1")->ended_session == 0);
    world_close_checked(&w);
}

static void a_copy_that_is_gone_does_not_count(void)
{
    open_world(2, 1);
    uint64_t both[][2] = {{part()->id, part()->replicas[1].copy}};
    (void)agent_put_copies(&w, "n2", (const uint64_t(*)[2])both, 1);
    CHECK_U64(role_on("n2"), DIR_ROLE_SYNC);
    both[0][1]++; /* another copy of it */
    (void)agent_put_copies(&w, "n2", (const uint64_t(*)[2])both, 1);
    CHECK_U64(role_on("n2"), DIR_ROLE_ASYNC);
    (void)agent_put_copies(&w, "n1", NULL, 0);
    CHECK_STR(primary(), ""); /* nobody has it: a person has to say so */
    CHECK(part()->home == 0 && role_on("n1") == DIR_ROLE_ASYNC);
    (void)agent_put(&w, "n1", 0);
    CHECK_STR(primary(), "");
    world_close_checked(&w);
}

static void a_lost_primary_copy_fails_over(void)
{
    open_world(2, 1);
    (void)agent_put_copies(&w, "n1", NULL, 0);
    CHECK_STR(primary(), "n2");
    CHECK_U64(role_on("n1"), DIR_ROLE_ASYNC);
    world_close_checked(&w);
}

static void ids_of_before_a_split_and_a_merge_count(void)
{
    open_world(1, 0);
    uint64_t before[][2] = {{part()->id, part()->replicas[0].copy}};
    (void)world_split(&w, part()->id, "m");
    (void)agent_put_copies(&w, "n1", (const uint64_t(*)[2])before, 1);
    CHECK(agent_partition(&w, "a")->session == session_of("n1"));
    CHECK(agent_partition(&w, "z")->session == session_of("n1"));
    uint64_t halves[][2] = {{agent_partition(&w, "a")->id, 1}, {agent_partition(&w, "z")->id, 1}};
    (void)world_merge(&w, halves[0][0], halves[1][0]);
    (void)agent_put_copies(&w, "n1", (const uint64_t(*)[2])halves, 2);
    CHECK_STR(primary(), "n1");
    (void)agent_put_copies(&w, "n1", (const uint64_t(*)[2])halves, 1); /* one half is not all */
    CHECK_STR(primary(), "");
    world_close_checked(&w);
}

static void a_lapsed_partition_splits_and_merges(void)
{
    open_world(1, 0);
    (void)agent_end(&w, "n1", session_of("n1"), false);
    CHECK_U64(world_split(&w, part()->id, "m")->err.code, ERR_OK);
    uint64_t a = agent_partition(&w, "a")->id, z = agent_partition(&w, "z")->id;
    CHECK_U64(world_merge(&w, a, z)->err.code, ERR_OK);
    (void)agent_put(&w, "n1", 0);
    CHECK_STR(primary(), "n1");
    /* Two halves that are granted to two sessions are not one. */
    (void)world_split(&w, part()->id, "m");
    a = agent_partition(&w, "a")->id, z = agent_partition(&w, "z")->id;
    (void)world_merge(&w, a, z);
    world_close_checked(&w);
}

static void nothing_is_placed_where_nobody_is(void)
{
    world_open(&w);
    (void)agent_put(&w, "n1", 0);
    (void)agent_end(&w, "n1", session_of("n1"), false);
    agent_keyspace(&w, 0);
    CHECK_STR(primary(), "");
    (void)agent_put(&w, "n1", 0);
    CHECK_STR(primary(), "n1");
    world_close_checked(&w);
}

static void static_and_leased_change_into_each_other(void)
{
    world_open(&w);
    (void)world_node(&w, "n1", "n1:9000");
    agent_keyspace(&w, 0);
    uint64_t session = session_of("n1");
    (void)world_node(&w, "n1", "n1:9001");
    CHECK(session_of("n1") == session && part()->session == session);
    const struct dir_result *r = agent_put(&w, "n1", 0); /* a static one has no lease to wait for */
    CHECK(part()->session == r->session && part()->epoch == r->revision);
    uint64_t leased = r->session;
    (void)world_node(&w, "n1", "n1:9000");
    CHECK(part()->session == leased && agent_node(&w, "n1")->ended_session == leased);
    CHECK_U64(agent_end(&w, "n1", session_of("n1"), true)->err.code, ERR_SESSION_ENDED);
    world_close_checked(&w);
}

static void the_primary_says_who_is_in_sync(void)
{
    open_world(2, 1);
    uint64_t epoch = part()->epoch, session = part()->session;
    CHECK_U64(agent_insync(&w, part(), session_of("n2"), "")->err.code, ERR_NOT_OWNER);
    CHECK_U64(agent_insync(&w, part(), session, "nobody")->err.code, ERR_INVALID_REQUEST);
    CHECK_U64(agent_insync(&w, part(), session, "")->err.code, ERR_OK);
    CHECK(role_on("n2") == DIR_ROLE_ASYNC && part()->epoch == epoch);
    CHECK(part()->mod_revision == world_state(&w)->revision);
    CHECK_U64(agent_insync(&w, part(), session, "n2")->err.code, ERR_OK);
    CHECK_U64(role_on("n2"), DIR_ROLE_SYNC);
    (void)agent_insync(&w, part(), session, "");
    (void)agent_end(&w, "n2", session_of("n2"), false);
    CHECK_U64(agent_insync(&w, part(), session, "n2")->err.code, ERR_INVALID_REQUEST);
    (void)agent_put(&w, "n1", 0);
    CHECK_U64(agent_insync(&w, part(), session, "")->err.code, ERR_SESSION_ENDED);
    world_close_checked(&w);
}

/* A request to count n2 that was sent before n2 was dropped, and comes after. */
static void a_late_request_counts_nobody_again(void)
{
    open_world(2, 1);
    uint64_t session = part()->session;
    struct dir_partition *before = dir_ref(partition_copy(part()));
    char name[] = "n2", *names[] = {name};
    Cadastre__InsyncChange late;
    cadastre__insync_change__init(&late);
    late.partition = before->id;
    late.session = session;
    late.epoch = before->epoch;
    late.insync = names;
    late.n_insync = 1;
    late.has_mod_revision = true;
    late.mod_revision = before->mod_revision;
    CHECK_U64(agent_insync(&w, part(), session, "")->err.code, ERR_OK);
    const struct dir_result *r = world_do(&w, CADASTRE__COMMAND__BODY_INSYNC_CHANGE, &late);
    CHECK_U64(r->err.code, ERR_STALE_REVISION);
    CHECK_U64(r->current_revision, part()->mod_revision);
    late.has_mod_revision = false;
    r = world_do(&w, CADASTRE__COMMAND__BODY_INSYNC_CHANGE, &late);
    CHECK_U64(r->err.code, ERR_INVALID_REQUEST);
    CHECK_STR(r->err.pointer, "/mod_revision");
    CHECK_U64(role_on("n2"), DIR_ROLE_ASYNC);
    dir_unref(before);
    dir_unref(before);
    world_close_checked(&w);
}

/* What was seen in sync was another session's copy. */
static void another_session_does_not_count(void)
{
    open_world(2, 1);
    uint64_t seen[] = {session_of("n2")};
    char name[] = "n2", *names[] = {name};
    CHECK_U64(agent_insync(&w, part(), part()->session, "")->err.code, ERR_OK);
    (void)agent_put_copies(&w, "n2", NULL, 0);
    Cadastre__InsyncChange m;
    cadastre__insync_change__init(&m);
    m.partition = part()->id;
    m.session = part()->session;
    m.epoch = part()->epoch;
    m.insync = names;
    m.n_insync = 1;
    m.has_mod_revision = true;
    m.mod_revision = part()->mod_revision;
    m.insync_sessions = seen;
    m.n_insync_sessions = 1;
    const struct dir_result *r = world_do(&w, CADASTRE__COMMAND__BODY_INSYNC_CHANGE, &m);
    CHECK_U64(r->err.code, ERR_STALE_REVISION);
    CHECK_STR(r->err.pointer, "/sessions/n2");
    CHECK(r->current_revision == session_of("n2") && role_on("n2") == DIR_ROLE_ASYNC);
    seen[0] = session_of("n2");
    CHECK_U64(world_do(&w, CADASTRE__COMMAND__BODY_INSYNC_CHANGE, &m)->err.code, ERR_OK);
    CHECK_U64(role_on("n2"), DIR_ROLE_SYNC);
    world_close_checked(&w);
}

static void a_person_forces_what_no_lease_forbids(void)
{
    open_world(2, 1);
    (void)agent_insync(&w, part(), part()->session, "");
    CHECK_U64(agent_failover(&w, part()->id, "n2", true)->err.code, ERR_LEASE_HELD);
    (void)agent_end(&w, "n1", session_of("n1"), false);
    CHECK_STR(primary(), "");
    CHECK_U64(agent_failover(&w, part()->id, "n2", false)->err.code, ERR_INVALID_REQUEST);
    CHECK_U64(agent_failover(&w, part()->id, "n1", true)->err.code, ERR_NO_DESTINATION);
    const struct dir_result *r = agent_failover(&w, part()->id, "n2", true);
    CHECK_U64(r->err.code, ERR_OK);
    CHECK(r->operation->kind == DIR_OPERATION_FAILOVER && r->operation->epoch_after == r->revision);
    CHECK_STR(primary(), "n2");
    CHECK(part()->epoch == r->revision && role_on("n1") == DIR_ROLE_ASYNC);
    CHECK_U64(agent_failover(&w, part()->id, "n3", true)->err.code, ERR_NODE_NOT_FOUND);
    world_close_checked(&w);
}

static Cadastre__NodeDelete removal(char *name, bool force)
{
    Cadastre__NodeDelete m;
    cadastre__node_delete__init(&m);
    m.name = name;
    m.force = force;
    return m;
}

static void a_node_that_may_write_is_not_removed(void)
{
    char name[] = "n1";
    open_world(2, 1);
    Cadastre__NodeDelete m = removal(name, true);
    CHECK_U64(world_do(&w, CADASTRE__COMMAND__BODY_NODE_DELETE, &m)->err.code, ERR_LEASE_HELD);
    (void)agent_end(&w, "n1", session_of("n1"), false);
    CHECK_U64(world_do(&w, CADASTRE__COMMAND__BODY_NODE_DELETE, &m)->err.code, ERR_OK);
    CHECK(part()->replica_count == 1);
    CHECK_STR(primary(), "n2");
    world_close_checked(&w);
}

static void scheduling_is_remembered(void)
{
    open_world(2, 0);
    CHECK_U64(agent_schedule(&w, "n2", CADASTRE__SCHEDULING_VERB__CORDON)->node->scheduling, 1);
    CHECK_U64(agent_schedule(&w, "n2", CADASTRE__SCHEDULING_VERB__UNCORDON)->node->scheduling, 0);
    CHECK_U64(agent_schedule(&w, "n2", CADASTRE__SCHEDULING_VERB__QUARANTINE)->node->scheduling, 3);
    CHECK_U64(agent_schedule(&w, "n2", CADASTRE__SCHEDULING_VERB__UNCORDON)->node->scheduling, 3);
    (void)agent_put(&w, "n2", 0);
    CHECK_U64(agent_node(&w, "n2")->scheduling, 3);
    CHECK_U64(agent_schedule(&w, "n2", CADASTRE__SCHEDULING_VERB__UNQUARANTINE)->node->scheduling,
              0);
    CHECK_U64(agent_schedule(&w, "n9", CADASTRE__SCHEDULING_VERB__CORDON)->err.code,
              ERR_NODE_NOT_FOUND);
    world_close_checked(&w);
}

int main(void)
{
    RUN(a_registration_begins_a_session);
    RUN(a_lapse_fails_over_to_a_live_sync_replica);
    RUN(live_sync_replicas_stay_so_under_a_new_primary);
    RUN(distrust_grows_with_each_lapse);
    RUN(who_stays_is_preferred);
    RUN(a_lapse_without_a_replica_leaves_nobody);
    RUN(the_first_sync_replica_to_come_back_takes_over);
    RUN(ended_is_not_released);
    RUN(the_present_one_may_lapse_before_the_old_one);
    RUN(several_ended_sessions_are_released_together);
    RUN(naming_the_previous_session_releases_it);
    RUN(giving_a_session_up_releases_it_at_once);
    RUN(an_old_process_may_give_up_what_it_holds);
    RUN(a_copy_that_is_gone_does_not_count);
    RUN(a_lost_primary_copy_fails_over);
    RUN(ids_of_before_a_split_and_a_merge_count);
    RUN(a_lapsed_partition_splits_and_merges);
    RUN(nothing_is_placed_where_nobody_is);
    RUN(static_and_leased_change_into_each_other);
    RUN(the_primary_says_who_is_in_sync);
    RUN(a_late_request_counts_nobody_again);
    RUN(another_session_does_not_count);
    RUN(a_person_forces_what_no_lease_forbids);
    RUN(a_node_that_may_write_is_not_removed);
    RUN(scheduling_is_remembered);
    return tap_done();
}
