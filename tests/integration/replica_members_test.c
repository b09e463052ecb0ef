/* SPDX-License-Identifier: Apache-2.0 */
/* Membership and leadership of real servers. */
#include "tests/harness/servers.h"
#include "tests/harness/tap.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static struct servers set;
static char answer[SERVERS_TEXT];

static const char USUAL[] = "election=300";

static void open_three(const char *extra)
{
    servers_open(&set, 3, extra);
    servers_start_all(&set);
}

static void members_come_and_go(void)
{
    open_three(USUAL);
    uint64_t acked = 0, unknown = 0;
    char instance[64];
    CHECK(servers_count(&set, 50, &acked, &unknown));
    struct server *leader = servers_leader(&set, NULL);
    if (!CHECK(leader != NULL)) {
        servers_close(&set);
        return;
    }
    struct server *fourth = servers_joiner(&set, 4, leader);
    CHECK(server_start(fourth));
    CHECK(server_ask(fourth, answer, "identity"));
    answer_word(answer, "instance", instance, sizeof instance);
    CHECK(servers_do(&set, "server_not_found", "promote 4"));
    CHECK(server_ask(leader, answer, "add 4 127.0.0.1:%u %s", fourth->port, instance));
    CHECK_STR(answer, "ok");
    CHECK(server_ask(leader, answer, "add 4 127.0.0.1:%u %s", fourth->port, instance));
    CHECK_STR(answer, "server_exists");
    servers_check_count(&set, acked, unknown);
    CHECK(server_ask(leader, answer, "status"));
    CHECK(strstr(answer, "4o+") != NULL);
    CHECK(servers_do(&set, "ok", "promote 4"));
    CHECK(servers_do(&set, "ok", "promote 4")); /* has it already */
    CHECK(servers_do(&set, "ok", "demote 4"));
    CHECK(servers_do(&set, "ok", "promote 4"));

    /* The leader itself loses its vote, and stays as an observer. */
    leader = servers_leader(&set, NULL);
    uint64_t demoted = leader->id;
    CHECK(servers_do(&set, "ok", "demote %" PRIu64, demoted));
    CHECK(servers_leader(&set, &set.at[demoted]) != NULL);
    CHECK(servers_do(&set, "ok", "promote %" PRIu64, demoted));

    /* The leader itself: the others elect another, and the removed one counts no more. */
    leader = servers_leader(&set, NULL);
    uint64_t gone = leader->id;
    CHECK(servers_do(&set, "ok", "remove %" PRIu64, gone));
    CHECK(servers_leader(&set, &set.at[gone]) != NULL);
    server_kill(&set.at[gone]);
    CHECK(servers_count(&set, 20, &acked, &unknown));
    servers_check_count(&set, acked, unknown);
    CHECK(servers_do(&set, "server_not_found", "remove %" PRIu64, gone));
    CHECK(server_start(&set.at[gone])); /* its own log says that it is no member: it is quiet */
    CHECK(server_wait_logged(&set.at[gone], "raft.removed"));
    CHECK(servers_count(&set, 20, &acked, &unknown));
    server_kill(&set.at[gone]);
    servers_check_count(&set, acked, unknown);
    servers_close(&set);
}

struct unconnected {
    struct server *leader;
    uint64_t id;
};

static bool is_unconnected(void *arg)
{
    const struct unconnected *u = arg;
    char text[SERVERS_TEXT], member[32];
    (void)snprintf(member, sizeof member, "%" PRIu64 "v-", u->id);
    return server_ask(u->leader, text, "status") && strstr(text, member) != NULL;
}

static bool wait_unconnected(struct server *leader, uint64_t id)
{
    struct unconnected u = {leader, id};
    return wait_for(is_unconnected, &u, SERVERS_WAIT_MS);
}

static void changes_that_cost_the_majority_are_refused(void)
{
    open_three(USUAL);
    struct server *leader = servers_leader(&set, NULL);
    if (CHECK(leader != NULL)) {
        CHECK(servers_agree(&set));
        struct server *a = servers_other(&set, leader, NULL);
        struct server *b = servers_other(&set, leader, a);
        server_signal(a, SIGSTOP);
        CHECK(wait_unconnected(leader, a->id));
        /* Two of three answer: taking a healthy one away would leave one of two. */
        CHECK(servers_do(&set, "quorum_at_risk", "demote %" PRIu64, b->id));
        CHECK(servers_do(&set, "quorum_at_risk", "remove %" PRIu64, b->id));
        CHECK(servers_do(&set, "quorum_at_risk", "transfer %" PRIu64, a->id));
        CHECK(servers_do(&set, "ok", "remove %" PRIu64, a->id)); /* the one that is down may go */
        server_signal(a, SIGCONT);
        CHECK(servers_do(&set, "server_not_found", "transfer %" PRIu64, a->id));
        server_kill(a);
        servers_check_count(&set, 0, 0);
        CHECK(servers_do(&set, "ok", "forget %" PRIu64, a->id));
        server_spawn(a); /* it never heard of it, and would be elected */
        CHECK_U64(server_exit(a, SERVERS_WAIT_MS), 3);
        CHECK(server_logged(a, "raft.refused"));
    }
    servers_close(&set);
}

static void one_change_at_a_time(void)
{
    open_three(USUAL);
    struct server *leader = servers_leader(&set, NULL);
    if (CHECK(leader != NULL)) {
        struct server *a = servers_other(&set, leader, NULL);
        unsigned first = server_send(leader, "demote %" PRIu64, a->id);
        unsigned second = server_send(leader, "remove %" PRIu64, a->id);
        unsigned third = server_send(leader, "transfer 0");
        CHECK(server_answer(leader, second, SERVERS_WAIT_MS, answer));
        CHECK_STR(answer, "membership_busy");
        CHECK(server_answer(leader, third, SERVERS_WAIT_MS, answer));
        CHECK_STR(answer, "membership_busy");
        CHECK(server_answer(leader, first, SERVERS_WAIT_MS, answer));
        CHECK_STR(answer, "ok");
        servers_check_count(&set, 0, 0);
    }
    servers_close(&set);
}

static void leadership_is_handed_over(void)
{
    open_three(USUAL);
    uint64_t acked = 0, unknown = 0;
    CHECK(servers_count(&set, 50, &acked, &unknown));
    for (int i = 0; i < 3; i++) {
        struct server *leader = servers_leader(&set, NULL);
        if (!CHECK(leader != NULL)) {
            break;
        }
        struct server *target = servers_other(&set, leader, NULL);
        unsigned load = server_send(leader, "load 2000 32 64");
        CHECK(server_ask(leader, answer, "transfer %" PRIu64, i == 0 ? 0 : target->id));
        CHECK_STR(answer, "ok");
        CHECK(server_answer(leader, load, SERVERS_WAIT_MS, answer));
        acked += answer_u64(answer, "done");
        unknown += answer_u64(answer, "unknown");
        struct server *next = servers_leader(&set, NULL);
        CHECK(next != NULL && next != leader && (i == 0 || next == target));
    }
    servers_check_count(&set, acked, unknown);

    struct server *leader = servers_leader(&set, NULL);
    if (CHECK(leader != NULL)) {
        (void)server_send(leader, "retire");
        CHECK_U64(server_exit(leader, SERVERS_WAIT_MS), 0);
        CHECK(servers_leader(&set, NULL) != NULL);
        servers_check_count(&set, acked, unknown);
    }
    servers_close(&set);
}

int main(void)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    (void)sigaction(SIGPIPE, &ignore, NULL);
    RUN(members_come_and_go);
    RUN(changes_that_cost_the_majority_are_refused);
    RUN(one_change_at_a_time);
    RUN(leadership_is_handed_over);
    return tap_done();
}
