/* SPDX-License-Identifier: Apache-2.0 */
/* Random crashes, pauses, transfers and snapshots under load: nothing acknowledged is lost, and all
 * end up the same. TEST_SEED=n for another run, CHAOS_SECONDS=n for a longer one. */
#include "base/clock.h"
#include "base/parse.h"
#include "tests/harness/servers.h"
#include "tests/harness/tap.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

enum { DEFAULT_SECONDS = 8, LOAD = 300 };

static struct servers set;
static struct tap_rand dice;
static uint64_t acked, unknown;

static struct server *any(void)
{
    return &set.at[1 + tap_rand_below(&dice, 3)];
}

static void count_some(void)
{
    CHECK(servers_count(&set, 1 + tap_rand_below(&dice, 20), &acked, &unknown));
}

/* In the middle of what the leader does. */
static void load(void)
{
    struct server *leader = servers_leader(&set, NULL);
    if (CHECK(leader != NULL) &&
        server_send(leader, "load %d 32 %d", LOAD, 16 << tap_rand_below(&dice, 8)) != 0) {
        unknown += LOAD;
    }
}

static void crash(struct server *v)
{
    load();
    server_kill(v);
    count_some();
    CHECK(server_start(v));
}

static void crash_all(void)
{
    load();
    for (unsigned id = 1; id <= 3; id++) {
        server_kill(&set.at[id]);
    }
    for (unsigned i = 0, first = (unsigned)tap_rand_below(&dice, 3); i < 3; i++) {
        CHECK(server_start(&set.at[1 + (first + i) % 3]));
    }
}

static void freeze(struct server *v)
{
    load();
    server_signal(v, SIGSTOP);
    count_some();
    server_signal(v, SIGCONT);
}

static void hand_over(void)
{
    char answer[SERVERS_TEXT];
    struct server *leader = servers_leader(&set, NULL);
    load();
    CHECK(leader != NULL && server_ask(leader, answer, "transfer 0"));
}

static void step(void)
{
    char answer[SERVERS_TEXT];
    switch (tap_rand_below(&dice, 6)) {
    case 0:
    case 1:
        crash(any());
        break;
    case 2:
        crash_all();
        break;
    case 3:
        freeze(any());
        break;
    case 4:
        hand_over();
        break;
    default:
        load();
        CHECK(server_ask(any(), answer, "snapshot"));
        break;
    }
    count_some();
}

static void nothing_acknowledged_is_lost(void)
{
    uint64_t seconds = DEFAULT_SECONDS, steps = 0;
    const char *text = getenv("CHAOS_SECONDS");
    if (text != NULL) {
        CHECK(parse_u64(text, 86400, &seconds));
    }
    dice.state = tap_seed(1);
    servers_open(&set, 3, "election=300 threshold=50 trailing=50 stall=1000");
    servers_start_all(&set);
    uint64_t deadline = clock_mono_ms() + seconds * 1000;
    while (clock_mono_ms() < deadline && tap_failures() == 0) {
        step();
        steps++;
        tap_note("step=%" PRIu64, steps);
    }
    servers_check_count(&set, acked, unknown);
    (void)printf("# %" PRIu64 " steps, %" PRIu64 " acknowledged\n", steps, acked);
    servers_close(&set);
}

int main(void)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    (void)sigaction(SIGPIPE, &ignore, NULL);
    RUN(nothing_acknowledged_is_lost);
    return tap_done();
}
