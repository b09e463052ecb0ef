/* SPDX-License-Identifier: Apache-2.0 */
/* What nodes are told: grants with who has to have a write, and what is theirs no more. */
#include "directory/tasks.h"

#include "directory/internal.h"
#include "tests/harness/agents.h"
#include "tests/harness/tap.h"

#include <string.h>

enum { TASKS = 32 };

static struct world w;
static struct dir_task got[TASKS];
static uint64_t count;

static bool collect(void *arg, const struct dir_task *t)
{
    (void)arg;
    got[count++] = *t;
    return count < TASKS;
}

static uint64_t tasks(const char *name, dir_rev since)
{
    count = 0;
    uint64_t called = dir_tasks(world_state(&w), agent_node(&w, name), since, collect, NULL);
    CHECK_U64(called, count);
    return count;
}

static dir_rev now(void)
{
    return world_state(&w)->revision;
}

static void open_world(uint32_t sync)
{
    world_open(&w);
    (void)agent_put(&w, "n1", 0);
    (void)agent_put(&w, "n2", 0);
    agent_keyspace(&w, sync);
}

static void a_primary_is_told_who_counts(void)
{
    open_world(1);
    const struct dir_partition *p = agent_partition(&w, "k");
    CHECK_U64(tasks("n1", 0), 1);
    CHECK(got[0].kind == DIR_TASK_GRANT && got[0].role == DIR_ROLE_PRIMARY && !got[0].fenced);
    CHECK(got[0].session == agent_node(&w, "n1")->session && got[0].epoch == p->epoch);
    CHECK(got[0].must_have_count == 1 && got[0].copy == p->replicas[0].copy);
    CHECK_STR(got[0].must_have[0].node->name, "n2");
    CHECK(got[0].must_have[0].role == DIR_ROLE_SYNC);
    CHECK_U64(got[0].must_have[0].session, agent_node(&w, "n2")->session);
    CHECK_U64(tasks("n2", 0), 1);
    CHECK(got[0].role == DIR_ROLE_SYNC && got[0].must_have_count == 0);
    CHECK_U64(tasks("n1", now()), 0);
    world_close(&w);
}

static void another_session_of_a_replica_is_news_to_the_primary(void)
{
    open_world(1);
    dir_rev before = now();
    (void)agent_put(&w, "n2", agent_node(&w, "n2")->session);
    CHECK(agent_node(&w, "n1")->task_revision == now());
    CHECK_U64(tasks("n1", before), 1);
    CHECK(got[0].revision == now() && got[0].must_have[0].session == now());
    CHECK_U64(tasks("n2", before), 1);
    world_close(&w);
}

static void a_grant_of_another_session_gives_no_right(void)
{
    open_world(0);
    uint64_t old = agent_node(&w, "n1")->session;
    (void)agent_put(&w, "n1", 0);
    CHECK_U64(tasks("n1", 0), 1);
    CHECK(got[0].session == old && got[0].session != agent_node(&w, "n1")->session);
    world_close(&w);
}

static void retired_ids_are_revoked(void)
{
    open_world(0);
    dir_rev before = now();
    uint64_t id = agent_partition(&w, "k")->id;
    (void)world_split(&w, id, "m");
    CHECK_U64(tasks("n1", before), 3);
    unsigned revoked = 0;
    for (uint64_t i = 0; i < count; i++) {
        revoked += got[i].kind == DIR_TASK_REVOKE && got[i].partition_id == id;
    }
    CHECK_U64(revoked, 1);
    CHECK_U64(tasks("n1", 0), 2);
    world_close(&w);
}

static const struct dir_result *done(uint64_t duty, uint64_t copy, uint64_t session)
{
    Cadastre__DutyDone m;
    char name[] = "n1";
    cadastre__duty_done__init(&m);
    m.duty = duty;
    m.node = name;
    m.session = session;
    m.copy = copy;
    return world_do(&w, CADASTRE__COMMAND__BODY_DUTY_DONE, &m);
}

static void a_removed_keyspace_is_cleaned_up(void)
{
    open_world(0);
    dir_rev before = now();
    Cadastre__KeyspaceDelete m;
    cadastre__keyspace_delete__init(&m);
    m.keyspace = world_keyspace(&w, "orders")->id;
    uint64_t copy = agent_partition(&w, "k")->replicas[0].copy;
    (void)world_do(&w, CADASTRE__COMMAND__BODY_KEYSPACE_DELETE, &m);
    CHECK_U64(world_check(world_state(&w)), 0);
    CHECK_U64(tasks("n1", before), 2);
    CHECK(got[0].kind == DIR_TASK_REVOKE && got[1].kind == DIR_TASK_CLEANUP);
    CHECK(got[1].copy == copy && got[1].partition == NULL);
    CHECK_STR(got[1].keyspace_name, "orders");
    uint64_t duty = got[1].duty, session = agent_node(&w, "n1")->session;
    CHECK_U64(done(duty, copy, session + 99)->err.code, ERR_SESSION_ENDED);
    CHECK_U64(done(duty, copy + 1, session)->err.code, ERR_INVALID_REQUEST);
    CHECK_U64(done(duty, copy, session)->err.code, ERR_OK);
    CHECK_U64(tasks("n1", 0), 0);
    before = now();
    CHECK_U64(done(duty, copy, session)->err.code, ERR_OK);
    CHECK_U64(now(), before);
    world_close(&w);
}

static bool first_only(void *arg, const struct dir_task *t)
{
    (void)t;
    ++*(int *)arg;
    return false;
}

static void a_caller_may_stop(void)
{
    int calls = 0;
    open_world(0);
    (void)world_split(&w, agent_partition(&w, "k")->id, "m");
    CHECK_U64(dir_tasks(world_state(&w), agent_node(&w, "n1"), 1, first_only, &calls), 1);
    CHECK(calls == 1);
    world_close(&w);
}

int main(void)
{
    RUN(a_primary_is_told_who_counts);
    RUN(another_session_of_a_replica_is_news_to_the_primary);
    RUN(a_grant_of_another_session_gives_no_right);
    RUN(retired_ids_are_revoked);
    RUN(a_removed_keyspace_is_cleaned_up);
    RUN(a_caller_may_stop);
    return tap_done();
}
