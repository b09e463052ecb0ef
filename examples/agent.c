/* SPDX-License-Identifier: Apache-2.0 */
/* A data node without data: it registers, keeps its lease, takes what it is granted, and counts how
 * often it would have been allowed to write. Stop it with Ctrl-D; its session is released then.
 *
 *     cc -o agent agent.c $(pkg-config --cflags --libs libcadastre)
 *     mkdir n1 && ./agent http://127.0.0.1:7400 n1 127.0.0.1:9001 n1
 *
 * examples/shardkv is a node with data. */
#include <cadastre.h>

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>

enum { STOP_MS = 5000, REPORT_MS = 10000, LINE_SIZE = 128 };

struct node {
    struct cadastre_agent *agent;
    _Atomic uint64_t granted, refused;
};

static void on_session(void *arg, enum cadastre_session_event event, uint64_t session)
{
    static const char *const names[] = {"", "started", "ended", "lease expired", "lease renewed"};
    (void)arg;
    (void)printf("session %" PRIu64 ": %s\n", session, names[event]);
}

/* A real node opens the partition here, and says false until it is ready to serve it. That it holds
 * this copy is recorded first: a copy that the next registration does not name is taken for lost.
 */
static bool on_grant(void *arg, struct cadastre_partition *p, const struct cadastre_task *task)
{
    struct node *node = arg;
    (void)p;
    if (task->copy != CADASTRE_NONE &&
        cadastre_agent_set_copy(node->agent, task->keyspace, task->partition, task->copy) !=
            CADASTRE_OK) {
        return false;
    }
    (void)printf("%s/%" PRIu64 ": granted at epoch %" PRIu64
                 ", %zu other nodes must have a write\n",
                 task->keyspace, task->partition, task->epoch, task->must_have_count);
    atomic_fetch_add(&node->granted, 1);
    return true;
}

/* Nothing can be under way in this node, so what it was asked to settle is settled. */
static void on_fence(void *arg, struct cadastre_partition *p, const struct cadastre_task *task)
{
    struct node *node = arg;
    char fields[LINE_SIZE];
    struct cadastre_error error;
    (void)p;
    (void)snprintf(fields, sizeof fields,
                   "{\"fenced\":true,\"epoch\":%" PRIu64
                   ",\"final_position\":0,\"checksum\":\"0000000000000000\"}",
                   task->epoch);
    if (cadastre_agent_report(node->agent, task, fields, REPORT_MS, &error) != CADASTRE_OK) {
        (void)printf("%s: %s\n", task->operation, error.detail);
    }
}

static void on_revoke(void *arg, struct cadastre_partition *p, const struct cadastre_task *task)
{
    (void)arg;
    (void)p;
    (void)printf("%s/%" PRIu64 ": revoked\n", task->keyspace, task->partition);
}

/* There is no copy to take part with: say so, instead of letting others wait. */
static void on_stage(void *arg, struct cadastre_partition *p, const struct cadastre_task *task)
{
    struct node *node = arg;
    struct cadastre_error error;
    (void)p;
    (void)printf("%s: stage %s\n", task->operation, task->stage_name);
    if (task->stage == CADASTRE_STAGE_PREPARE &&
        cadastre_agent_report(node->agent, task, "{\"refused\":\"this node keeps no data\"}",
                              REPORT_MS, &error) != CADASTRE_OK) {
        (void)printf("%s: %s\n", task->operation, error.detail);
    }
}

static void on_cleanup(void *arg, struct cadastre_partition *p, const struct cadastre_task *task)
{
    struct node *node = arg;
    struct cadastre_error error;
    (void)p;
    if (cadastre_agent_cleaned(node->agent, task, 0, REPORT_MS, &error) != CADASTRE_OK) {
        (void)printf("%s/%" PRIu64 ": %s\n", task->keyspace, task->partition, error.detail);
    }
}

static void on_event(void *arg, const char *name, const char *detail)
{
    (void)arg;
    (void)fprintf(stderr, "%s: %s\n", name, detail);
}

/* "KEYSPACE PARTITION EPOCH" a line: may this node write there, now? */
static void answer(struct node *node, char *line)
{
    char keyspace[CADASTRE_NAME_MAX + 1] = "";
    uint64_t numbers[2] = {0, 0};
    unsigned at = 0, word = 0;
    for (char *c = line; *c != '\0' && *c != '\n'; c++) {
        if (*c == ' ') {
            word++;
        } else if (word == 0 && at < CADASTRE_NAME_MAX) {
            keyspace[at++] = *c;
        } else if (word <= 2 && word > 0 && *c >= '0' && *c <= '9') {
            numbers[word - 1] = numbers[word - 1] * 10 + (uint64_t)(*c - '0');
        }
    }
    struct cadastre_partition *p = cadastre_agent_partition(node->agent, keyspace, numbers[0]);
    bool may = cadastre_may_write(node->agent, p, numbers[1]);
    atomic_fetch_add(&node->refused, !may);
    (void)printf("%s\n", may ? "yes" : "no");
}

int main(int argc, char **argv)
{
    struct node node = {NULL, 0, 0};
    struct cadastre_error error = {CADASTRE_OK, "", ""};
    char line[LINE_SIZE];
    if (argc != 5) {
        (void)fprintf(stderr, "usage: agent ENDPOINTS NODE ADDRESS DIRECTORY\n");
        return 2;
    }
    struct cadastre_agent_options options = {
        .endpoints = argv[1],
        .node = argv[2],
        .address = argv[3],
        .data_dir = argv[4],
        .callbacks = {on_session, on_grant, on_fence, on_revoke, on_stage, on_cleanup, on_event},
        .arg = &node,
    };
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    node.agent = cadastre_agent_new(&options, &error);
    if (node.agent == NULL) {
        (void)fprintf(stderr, "agent: %s: %s\n", cadastre_status_name(error.status), error.detail);
        return 1;
    }
    cadastre_agent_start(node.agent);
    while (fgets(line, sizeof line, stdin) != NULL) {
        answer(&node, line);
    }
    enum cadastre_status status = cadastre_agent_stop(node.agent, STOP_MS, &error);
    (void)printf("%s; %" PRIu64 " grants, %" PRIu64 " refusals\n",
                 status == CADASTRE_OK ? "released" : error.detail, atomic_load(&node.granted),
                 atomic_load(&node.refused));
    cadastre_agent_free(node.agent);
    return status == CADASTRE_OK ? 0 : 1;
}
