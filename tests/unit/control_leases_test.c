/* SPDX-License-Identifier: Apache-2.0 */
/* The leader's count of sessions, at any time that a test likes. */
#include "control/leases.h"

#include "tests/harness/agents.h"
#include "tests/harness/tap.h"

static struct leases t;
static struct world w;
static uint64_t lapsed[64];
static unsigned count;

static bool note(void *arg, uint64_t node, struct lease *l)
{
    bool *take = arg;
    (void)node;
    lapsed[count++] = l->session;
    l->proposed = l->ending = *take;
    return true;
}

static unsigned lapse(uint64_t now_ms, bool take)
{
    count = 0;
    leases_lapsed(&t, now_ms, 64, note, &take);
    return count;
}

/* A node with a session, as its row says. */
static struct dir_node row(uint64_t id, uint64_t session)
{
    struct dir_node n = {.id = id, .session = session, .lease_ms = 1000};
    return n;
}

enum { WHOLE = 1000 + 10 + 500 }; /* lease, 1%, 500 ms */

static void a_session_lapses_after_lease_and_allowance(void)
{
    leases_open(&t);
    struct dir_node n = row(1, 7);
    leases_note(&t, 1, &n, 100);
    CHECK_U64(lapse(100 + WHOLE, false), 0);
    CHECK_U64(lapse(101 + WHOLE, false), 1);
    CHECK_U64(lapsed[0], 7);
    struct lease *l = leases_find(&t, 1, 7);
    leases_renew(&t, l, 2000);
    CHECK_U64(lapse(2000 + WHOLE, false), 0);
    CHECK_U64(leases_look(&t, 1, 2400).left_ms, 600);
    CHECK(leases_find(&t, 1, 8) == NULL && leases_find(&t, 2, 7) == NULL);
    leases_close(&t);
}

static void one_that_waits_or_ends_is_left_alone(void)
{
    leases_open(&t);
    struct dir_node n = row(1, 7);
    leases_note(&t, 1, &n, 0);
    struct lease *l = leases_find(&t, 1, 7);
    l->waiting = 1;
    CHECK_U64(lapse(100000, false), 0);
    l->waiting = 0;
    CHECK_U64(lapse(100000, true), 1);
    CHECK_U64(lapse(100000, true), 0);
    leases_close(&t);
}

static void what_a_registration_ends_is_counted_on(void)
{
    leases_open(&t);
    struct dir_node n = row(1, 7);
    leases_note(&t, 1, &n, 0);
    leases_renew(&t, leases_find(&t, 1, 7), 500);
    n = row(1, 9);
    n.ended_session = 7;
    n.ended_lease_ms = 2000;
    leases_note(&t, 1, &n, 900);
    CHECK(leases_find_before(&t, 1, 7) != NULL && leases_find(&t, 1, 9) != NULL);
    CHECK_U64(lapse(500 + 2000 + 20 + 500, false), 1); /* the new one, never renewed */
    CHECK_U64(lapsed[0], 9);
    leases_renew(&t, leases_find(&t, 1, 9), 3000);
    CHECK_U64(lapse(501 + 2000 + 20 + 500, false), 1);
    CHECK_U64(lapsed[0], 7);
    /* One more joins them: they lapse together, when the last of them does. */
    n = row(1, 11);
    n.ended_session = 9;
    n.ended_lease_ms = 2000;
    leases_note(&t, 1, &n, 3100);
    CHECK_U64(leases_find_before(&t, 1, 9)->renewed_ms, 3000);
    n.ended_session = 0;
    leases_note(&t, 1, &n, 3200);
    CHECK(leases_find_before(&t, 1, 9) == NULL);
    leases_close(&t);
}

static void a_new_leader_and_a_stall_count_anew(void)
{
    leases_open(&t);
    world_open(&w);
    (void)agent_put(&w, "n1", 0);
    (void)agent_put(&w, "n2", 0);
    (void)world_node(&w, "n3", "n3:9000");
    leases_restart(&t, world_state(&w), 50000);
    CHECK_U64(lapse(50000 + 10600, false), 0);
    CHECK_U64(lapse(50001 + 10600, false), 2); /* not the static one */
    leases_extend(&t, 60000);
    CHECK_U64(lapse(60000 + 10600, false), 0);
    (void)agent_end(&w, "n1", agent_node(&w, "n1")->session, false);
    leases_note(&t, agent_node(&w, "n1")->id, agent_node(&w, "n1"), 60000);
    CHECK(leases_find(&t, agent_node(&w, "n1")->id, agent_node(&w, "n1")->session) == NULL);
    CHECK(!leases_look(&t, agent_node(&w, "n1")->id, 60000).known);
    world_close(&w);
    leases_close(&t);
}

static void many_come_and_go(void)
{
    enum { NODES = 5000 };
    struct tap_rand r = {tap_seed(8)};
    static uint64_t session[NODES + 1];
    leases_open(&t);
    for (unsigned i = 0; i < 50000; i++) {
        uint64_t id = 1 + tap_rand_below(&r, NODES);
        if (tap_rand_below(&r, 3) == 0) {
            leases_note(&t, id, NULL, i);
            session[id] = 0;
        } else {
            struct dir_node n = row(id, i + 1);
            leases_note(&t, id, &n, i);
            session[id] = i + 1;
        }
    }
    uint64_t there = 0;
    for (uint64_t id = 1; id <= NODES; id++) {
        there += session[id] != 0;
        CHECK(session[id] == 0 ? !leases_look(&t, id, 0).known
                               : leases_find(&t, id, session[id]) != NULL);
    }
    CHECK_U64(t.used, there);
    leases_close(&t);
}

int main(void)
{
    RUN(a_session_lapses_after_lease_and_allowance);
    RUN(one_that_waits_or_ends_is_left_alone);
    RUN(what_a_registration_ends_is_counted_on);
    RUN(a_new_leader_and_a_stall_count_anew);
    RUN(many_come_and_go);
    return tap_done();
}
