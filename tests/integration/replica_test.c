/* SPDX-License-Identifier: Apache-2.0 */
/* src/raft with real processes, disks and sockets: elections, crashes, pauses, lost disks,
 * membership, full disks. */
#include "tests/harness/servers.h"
#include "tests/harness/tap.h"

#include <errno.h>
#include <ftw.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

static struct servers set;
static char answer[SERVERS_TEXT];

static const char USUAL[] = "election=300";
static const char SMALL_LOG[] = "election=300 threshold=64 trailing=16";

static void open_three(const char *extra)
{
    servers_open(&set, 3, extra);
    servers_start_all(&set);
}

/* --- one server --- */

static void one_server_founds_counts_and_restarts(void)
{
    servers_open(&set, 1, USUAL);
    struct server *v = &set.at[1];
    uint64_t acked = 0, unknown = 0;
    CHECK(server_start(v));
    CHECK(servers_count(&set, 50, &acked, &unknown));
    CHECK(server_ask(v, answer, "confirm"));
    CHECK_STR(answer, "ok");
    server_kill(v);
    CHECK(server_start(v));
    CHECK(servers_count(&set, 1, &acked, &unknown));
    servers_check_count(&set, 51, 0);
    servers_close(&set);
}

static void held_proposals_wait(void)
{
    servers_open(&set, 1, USUAL);
    struct server *v = &set.at[1];
    CHECK(server_start(v));
    CHECK(servers_leader(&set, NULL) == v);
    CHECK(server_ask(v, answer, "hold 1"));
    unsigned tag = server_send(v, "inc 7");
    CHECK(server_ask(v, answer, "confirm"));
    CHECK_STR(answer, "ok");
    CHECK(server_ask(v, answer, "status"));
    CHECK_U64(answer_u64(answer, "queue"), 1);
    CHECK_U64(answer_u64(answer, "total"), 0);
    CHECK(server_ask(v, answer, "hold 0"));
    CHECK(server_answer(v, tag, SERVERS_WAIT_MS, answer));
    CHECK_U64(answer_u64(answer, "total"), 7);
    servers_close(&set);
}

static void queue_is_bounded(void)
{
    servers_open(&set, 1, USUAL);
    struct server *v = &set.at[1];
    CHECK(server_start(v));
    CHECK(servers_leader(&set, NULL) == v);
    CHECK(server_ask(v, answer, "hold 1"));
    unsigned tag = server_send(v, "load 20000 20000 16");
    CHECK(server_ask(v, answer, "inc 1"));
    CHECK_STR(answer, "overloaded");
    CHECK(server_ask(v, answer, "status"));
    CHECK_U64(answer_u64(answer, "queue"), 16384);
    CHECK(server_ask(v, answer, "hold 0"));
    CHECK(server_answer(v, tag, SERVERS_WAIT_MS, answer));
    CHECK_U64(answer_u64(answer, "done"), 16384);
    servers_close(&set);
}

static void second_process_and_contradictions_are_refused(void)
{
    servers_open(&set, 2, USUAL);
    struct server *v = &set.at[1], *w = &set.at[2];
    char holder[64];
    v->extra[0][0] = w->extra[0][0] = '\0';
    CHECK(server_start(v));
    (void)snprintf(holder, sizeof holder, "in use by process %d", (int)v->pid);

    struct server second = *v; /* another process on the same directory */
    server_spawn(&second);
    CHECK(server_event(&second, "failed", SERVERS_WAIT_MS, answer));
    CHECK(strstr(answer, holder) != NULL);
    CHECK_U64(server_exit(&second, SERVERS_WAIT_MS), 3);

    w->port = v->port; /* the same address */
    server_spawn(w);
    CHECK_U64(server_exit(w, SERVERS_WAIT_MS), 5);
    CHECK(server_logged(w, "address already in use"));

    server_kill(v);
    v->id = 2; /* another id on a directory that has one */
    server_spawn(v);
    CHECK_U64(server_exit(v, SERVERS_WAIT_MS), 2);
    v->id = 1;
    servers_close(&set);
}

static void lost_log_is_not_started_anew(void)
{
    char raft_dir[600], path[700];
    servers_open(&set, 1, USUAL);
    struct server *v = &set.at[1];
    CHECK(server_start(v));
    CHECK(servers_leader(&set, NULL) == v);
    server_kill(v);
    (void)snprintf(raft_dir, sizeof raft_dir, "%s/raft", v->dir);
    (void)snprintf(path, sizeof path, "%s-gone", raft_dir);
    CHECK(rename(raft_dir, path) == 0);
    server_spawn(v);
    CHECK_U64(server_exit(v, SERVERS_WAIT_MS), 3);
    CHECK(server_logged(v, "use --join, as a new server"));
    servers_close(&set);
}

static char victim[700];

static int find_closed_segment(const char *path, const struct stat *st, int type, struct FTW *where)
{
    const char *name = path + where->base;
    if (type == FTW_F && strchr(name, '-') != NULL && name[0] == '0' && st->st_size > 100) {
        (void)snprintf(victim, sizeof victim, "%s", path);
    }
    return 0;
}

static void damaged_log_is_not_started(void)
{
    servers_open(&set, 1, SMALL_LOG);
    struct server *v = &set.at[1];
    CHECK(server_start(v));
    CHECK(servers_leader(&set, NULL) == v);
    CHECK(server_ask(v, answer, "load 30 1 64"));
    CHECK(server_ask(v, answer, "snapshot")); /* closes the segment, and keeps its last entries */
    CHECK(server_wait_logged(v, "raft.snapshot.taken"));
    server_kill(v);
    victim[0] = '\0';
    CHECK(nftw(v->dir, find_closed_segment, 8, FTW_PHYS) == 0 && victim[0] != '\0');
    FILE *f = fopen(victim, "r+e");
    CHECK(f != NULL && fseek(f, 60, SEEK_SET) == 0 && fputc(0x55, f) == 0x55 && fclose(f) == 0);
    server_spawn(v);
    CHECK_U64(server_exit(v, SERVERS_WAIT_MS), 3);
    CHECK(server_logged(v, "raft.start.failed"));
    servers_close(&set);
}

/* --- three servers --- */

static void three_elect_and_count(void)
{
    open_three(USUAL);
    struct server *leader = servers_leader(&set, NULL);
    if (CHECK(leader != NULL)) {
        CHECK(server_ask(leader, answer, "load 1000 16 64"));
        CHECK_U64(answer_u64(answer, "done"), 1000);
        struct server *follower = servers_other(&set, leader, NULL);
        CHECK(server_ask(follower, answer, "inc 1"));
        CHECK_STR(answer, "not_leader");
        CHECK(server_ask(follower, answer, "confirm"));
        CHECK_STR(answer, "not_leader");
        servers_check_count(&set, 1000, 0);
        CHECK(server_ask(follower, answer, "status"));
        CHECK_U64(answer_u64(answer, "leader"), leader->id);
    }
    servers_close(&set);
}

static void founding_waits_for_every_founder(void)
{
    servers_open(&set, 3, USUAL);
    CHECK(server_start(&set.at[1]));
    CHECK(server_start(&set.at[2]));
    for (unsigned id = 1; id <= 2; id++) {
        char role[32];
        CHECK(server_wait_logged(&set.at[id], "raft.founder.heard"));
        CHECK(server_ask(&set.at[id], answer, "status"));
        answer_word(answer, "role", role, sizeof role);
        CHECK_STR(role, "founding");
        CHECK(server_ask(&set.at[id], answer, "inc 1"));
        CHECK_STR(answer, "not_leader");
    }
    CHECK(server_start(&set.at[3]));
    CHECK(servers_leader(&set, NULL) != NULL);
    servers_check_count(&set, 0, 0);
    servers_close(&set);
}

static void founder_that_crashed_takes_the_record_over(void)
{
    servers_open(&set, 3, USUAL);
    CHECK(server_start(&set.at[1]));
    CHECK(server_start(&set.at[3]));
    CHECK(server_wait_logged(&set.at[1], "raft.founder.heard peer=3"));
    server_kill(&set.at[3]); /* it has been heard, and wrote nothing down */
    CHECK(server_start(&set.at[2]));
    uint64_t acked = 0, unknown = 0;
    CHECK(servers_count(&set, 20, &acked, &unknown)); /* the two are a majority of the three */
    CHECK(server_logged(&set.at[2], "raft.founded"));
    CHECK(!server_logged(&set.at[3], "raft.founded"));
    CHECK(server_start(&set.at[3]));
    CHECK(servers_count(&set, 20, &acked, &unknown));
    servers_check_count(&set, acked, unknown);
    CHECK(server_logged(&set.at[3], "raft.founded"));
    servers_close(&set);
}

static void leader_killed_others_go_on(void)
{
    open_three(USUAL);
    uint64_t acked = 0, unknown = 0;
    for (int round = 0; round < 3; round++) {
        struct server *leader = servers_leader(&set, NULL);
        if (!CHECK(leader != NULL)) {
            break;
        }
        CHECK(servers_count(&set, 30, &acked, &unknown));
        (void)server_send(leader, "load 500 64 64"); /* in the middle of it */
        unknown += 500;
        server_kill(leader);
        CHECK(servers_count(&set, 30, &acked, &unknown));
        CHECK(server_start(leader));
    }
    servers_check_count(&set, acked, unknown);
    servers_close(&set);
}

static void restarts_in_any_order(void)
{
    static const unsigned orders[3][3] = {{1, 2, 3}, {3, 1, 2}, {2, 3, 1}};
    open_three(SMALL_LOG);
    uint64_t acked = 0, unknown = 0;
    for (int round = 0; round < 3; round++) {
        CHECK(servers_count(&set, 100, &acked, &unknown));
        for (unsigned id = 1; id <= 3; id++) {
            server_kill(&set.at[id]);
        }
        for (int i = 0; i < 3; i++) {
            CHECK(server_start(&set.at[orders[round][i]]));
        }
    }
    CHECK(servers_count(&set, 1, &acked, &unknown));
    servers_check_count(&set, acked, unknown);
    servers_close(&set);
}

static void paused_follower_catches_up(void)
{
    open_three("election=300 threshold=64 trailing=16 stall=1000");
    struct server *leader = servers_leader(&set, NULL);
    if (CHECK(leader != NULL)) {
        struct server *follower = servers_other(&set, leader, NULL);
        server_signal(follower, SIGSTOP);
        /* More than the kernel's buffers take. */
        CHECK(server_ask(leader, answer, "load 300 8 65536"));
        CHECK_U64(answer_u64(answer, "done"), 300);
        CHECK(server_wait_logged(leader, "raft.peer.stalled"));
        server_signal(follower, SIGCONT);
        servers_check_count(&set, 300, 0);
    }
    servers_close(&set);
}

static void paused_leader_confirms_nothing(void)
{
    open_three(USUAL);
    uint64_t acked = 0, unknown = 0;
    struct server *old = servers_leader(&set, NULL);
    CHECK(servers_count(&set, 10, &acked, &unknown));
    if (CHECK(old != NULL)) {
        server_signal(old, SIGSTOP);
        CHECK(servers_leader(&set, old) != NULL);
        /* The first things it reads when it wakes, believing that it leads. */
        unsigned confirm = server_send(old, "confirm"), inc = server_send(old, "inc 1");
        struct server *leader = servers_leader(&set, old);
        CHECK(leader != NULL && server_ask(leader, answer, "inc 1") && answer_is(answer, "ok"));
        server_signal(old, SIGCONT);
        CHECK(server_answer(old, confirm, SERVERS_WAIT_MS, answer));
        CHECK_STR(answer, "not_leader");
        CHECK(server_answer(old, inc, SERVERS_WAIT_MS, answer));
        CHECK(!answer_is(answer, "ok"));
        servers_check_count(&set, acked + 1, unknown);
    }
    servers_close(&set);
}

static void alone_leader_steps_down(void)
{
    open_three(USUAL);
    struct server *leader = servers_leader(&set, NULL);
    if (CHECK(leader != NULL)) {
        struct server *a = servers_other(&set, leader, NULL);
        struct server *b = servers_other(&set, leader, a);
        server_signal(a, SIGSTOP);
        server_signal(b, SIGSTOP);
        unsigned inc = server_send(leader, "inc 1"), confirm = server_send(leader, "confirm");
        CHECK(server_answer(leader, inc, SERVERS_WAIT_MS, answer));
        CHECK_STR(answer, "outcome_unknown");
        CHECK(server_answer(leader, confirm, SERVERS_WAIT_MS, answer));
        CHECK_STR(answer, "not_leader");
        server_signal(a, SIGCONT);
        server_signal(b, SIGCONT);
        servers_check_count(&set, 0, 1);
    }
    servers_close(&set);
}

/* --- lost disks --- */

static void wiped_member_is_refused_and_a_new_one_taken_in(void)
{
    open_three(SMALL_LOG);
    uint64_t acked = 0, unknown = 0;
    CHECK(servers_count(&set, 200, &acked, &unknown));
    struct server *leader = servers_leader(&set, NULL);
    if (!CHECK(leader != NULL)) {
        servers_close(&set);
        return;
    }
    struct server *lost = servers_other(&set, leader, NULL);
    server_kill(lost);
    server_wipe(lost);
    server_spawn(lost);
    CHECK_U64(server_exit(lost, SERVERS_WAIT_MS), 3);
    CHECK(server_logged(lost, "use --join, as a new server"));

    /* The log was trimmed: the new one gets a snapshot. */
    struct server *fresh = servers_joiner(&set, 4, leader);
    CHECK(server_start(fresh));
    CHECK(server_ask(fresh, answer, "identity"));
    char instance[64];
    answer_word(answer, "instance", instance, sizeof instance);
    leader = servers_leader(&set, NULL);
    CHECK(leader != NULL &&
          server_ask(leader, answer, "add 4 127.0.0.1:%u %s", fresh->port, instance));
    CHECK_STR(answer, "ok");
    CHECK(servers_do(&set, "ok", "promote 4"));
    CHECK(servers_do(&set, "ok", "remove %" PRIu64, lost->id));
    servers_check_count(&set, acked, unknown);
    CHECK(server_ask(fresh, answer, "status"));
    CHECK(strstr(answer, "4v") != NULL);

    server_kill(fresh); /* what it was sent is its own now */
    CHECK(server_start(fresh));
    CHECK(servers_count(&set, 10, &acked, &unknown));
    servers_check_count(&set, acked, unknown);
    servers_close(&set);
}

static void wiped_majority_founds_nothing(void)
{
    open_three(USUAL);
    uint64_t acked = 0, unknown = 0;
    CHECK(servers_count(&set, 20, &acked, &unknown));
    CHECK(servers_agree(&set));
    for (unsigned id = 1; id <= 3; id++) {
        server_kill(&set.at[id]);
    }
    server_wipe(&set.at[2]);
    server_wipe(&set.at[3]);
    CHECK(server_start(&set.at[2]));
    CHECK(server_start(&set.at[3]));
    CHECK(server_ask(&set.at[2], answer, "inc 1"));
    CHECK_STR(answer, "not_leader");
    server_spawn(&set.at[1]); /* the survivor tells them */
    CHECK_U64(server_exit(&set.at[2], SERVERS_WAIT_MS), 3);
    CHECK_U64(server_exit(&set.at[3], SERVERS_WAIT_MS), 3);
    CHECK(server_logged(&set.at[2], "use --join, as a new server"));
    CHECK(server_ask(&set.at[1], answer, "status"));
    CHECK_U64(answer_u64(answer, "active"), 0);
    servers_close(&set);
}

/* --- snapshots --- */

static void snapshot_is_taken_on_request(void)
{
    open_three(USUAL);
    uint64_t acked = 0, unknown = 0;
    CHECK(servers_count(&set, 10, &acked, &unknown));
    struct server *leader = servers_leader(&set, NULL);
    if (CHECK(leader != NULL)) {
        CHECK(server_ask(leader, answer, "blob 3000000"));
        CHECK(server_ask(leader, answer, "snapshot"));
        CHECK(server_wait_logged(leader, "raft.snapshot.taken"));
        CHECK(server_ask(leader, answer, "status"));
        CHECK_U64(answer_u64(answer, "snapshots"), 1);
        CHECK(answer_u64(answer, "snapshot") > 0);
        server_kill(leader);
        CHECK(server_start(leader));
        CHECK(server_logged(leader, "raft.snapshot.taken"));
        servers_check_count(&set, acked, unknown);
        CHECK(server_ask(leader, answer, "status"));
        CHECK_U64(answer_u64(answer, "blob"), 3000000);
    }
    servers_close(&set);
}

/* --- a full disk --- */

static void full_disk_ends_one_server_and_loses_nothing(void)
{
    servers_open(&set, 3, USUAL);
    struct server *small = &set.at[3];
    if (geteuid() != 0 || mkdir(small->dir, 0700) != 0 ||
        mount("none", small->dir, "tmpfs", 0, "size=40m") != 0) {
        (void)printf("# skipped: a small tmpfs can't be mounted: %s\n", strerror(errno));
        servers_close(&set);
        return;
    }
    uint64_t acked = 0, unknown = 0;
    servers_start_all(&set);
    struct server *leader = servers_leader(&set, NULL);
    if (leader == small) { /* it refuses commands: its space is below the watermark */
        CHECK(server_ask(small, answer, "inc 1"));
        CHECK_STR(answer, "overloaded");
        CHECK(server_ask(small, answer, "transfer 1"));
        leader = servers_leader(&set, small);
    }
    if (CHECK(leader != NULL && leader != small)) {
        CHECK(server_ask(leader, answer, "load 900 16 65536"));
        acked += answer_u64(answer, "done");
        CHECK_U64(acked, 900);
        CHECK_U64(server_exit(small, SERVERS_WAIT_MS), 3);
        CHECK(server_logged(small, "raft.write.failed"));
        CHECK(servers_count(&set, 20, &acked, &unknown));
        servers_check_count(&set, acked, unknown);
    }
    if (small->pid != 0) {
        server_kill(small);
    }
    CHECK(umount2(small->dir, MNT_DETACH) == 0);
    servers_close(&set);
}

int main(void)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    (void)sigaction(SIGPIPE, &ignore, NULL);
    RUN(one_server_founds_counts_and_restarts);
    RUN(held_proposals_wait);
    RUN(queue_is_bounded);
    RUN(second_process_and_contradictions_are_refused);
    RUN(lost_log_is_not_started_anew);
    RUN(damaged_log_is_not_started);
    RUN(three_elect_and_count);
    RUN(founding_waits_for_every_founder);
    RUN(founder_that_crashed_takes_the_record_over);
    RUN(leader_killed_others_go_on);
    RUN(restarts_in_any_order);
    RUN(paused_follower_catches_up);
    RUN(paused_leader_confirms_nothing);
    RUN(alone_leader_steps_down);
    RUN(wiped_member_is_refused_and_a_new_one_taken_in);
    RUN(wiped_majority_founds_nothing);
    RUN(snapshot_is_taken_on_request);
    RUN(full_disk_ends_one_server_and_loses_nothing);
    return tap_done();
}
