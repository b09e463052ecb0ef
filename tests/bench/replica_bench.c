/* SPDX-License-Identifier: Apache-2.0 */
/* Commands a second and barrier latency of src/raft with a counter as the machine, on 1 and 3 local
 * servers. The client is in the leader's process: no API is measured. */
#include "tests/harness/servers.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>

enum { RUN_MS = 2000, COMMAND_SIZE = 200 };

static struct servers set;

static void measure(struct server *leader, unsigned servers, const char *what, unsigned window)
{
    char answer[SERVERS_TEXT];
    if (!server_ask(leader, answer, "%s 0 %u %d %d", what, window, COMMAND_SIZE, RUN_MS)) {
        (void)printf("%u servers, %s, %u in flight: no answer\n", servers, what, window);
        return;
    }
    (void)printf("servers=%u what=%s in_flight=%u per_s=%" PRIu64 " p50_us=%" PRIu64
                 " p99_us=%" PRIu64 " max_us=%" PRIu64 " refused=%" PRIu64 "\n",
                 servers, what, window, answer_u64(answer, "per_s"), answer_u64(answer, "p50_us"),
                 answer_u64(answer, "p99_us"), answer_u64(answer, "max_us"),
                 answer_u64(answer, "refused"));
    (void)fflush(stdout);
}

int main(void)
{
    static const unsigned windows[] = {1, 64, 256, 1024}, sizes[] = {1, 3};
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    (void)sigaction(SIGPIPE, &ignore, NULL);
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        servers_open(&set, sizes[i], "election=1000");
        servers_start_all(&set);
        struct server *leader = servers_leader(&set, NULL);
        if (leader == NULL) {
            (void)printf("no leader\n");
            return 1;
        }
        for (unsigned k = 0; k < sizeof windows / sizeof windows[0]; k++) {
            measure(leader, sizes[i], "load", windows[k]);
        }
        measure(leader, sizes[i], "barriers", 1);
        measure(leader, sizes[i], "barriers", 256);
        servers_close(&set);
    }
    return 0;
}
