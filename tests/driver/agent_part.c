/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's half of client_driver. Orders are shown as they come, "*task {…}" with a number `n`
 * by which a later command names them.
 *
 *     agent ENDPOINTS NODE ADDRESS DIR HEARTBEAT_MS TIMEOUT_MS | start | stop MS | free
 *     may KEYSPACE PARTITION EPOCH | must KEYSPACE PARTITION EPOCH | state
 *     take 0|1               what grants are answered with from here on
 *     report N JSON MS | cleaned N BYTES MS | insync KEYSPACE PARTITION EPOCH NODE MS
 *     load KEYSPACE PARTITION EPOCH COUNT MS  of COUNT partitions from this id on
 *     set-copy KEYSPACE PARTITION COPY | copy KEYSPACE PARTITION */
#include "base/mem.h"
#include "base/parse.h"
#include "client/cadastre.h"
#include "tests/driver/driver.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { TASKS_MAX = 1024, LINE_SIZE = 512, MEMBERS_MAX = 16 };

static struct cadastre_agent *agent;
static char directory[1024];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct cadastre_task *tasks[TASKS_MAX];
static unsigned task_count;
static _Atomic bool takes = true;

static unsigned keep(const struct cadastre_task *task)
{
    (void)pthread_mutex_lock(&lock);
    unsigned n = task_count < TASKS_MAX ? task_count++ : TASKS_MAX - 1;
    cadastre_task_free(tasks[n]);
    tasks[n] = cadastre_task_copy(task);
    (void)pthread_mutex_unlock(&lock);
    return n;
}

/* What the disk says at this moment. */
static uint64_t epoch_on_disk(const struct cadastre_task *t)
{
    char path[1100], line[LINE_SIZE], want[LINE_SIZE];
    uint64_t epoch = 0;
    (void)snprintf(path, sizeof path, "%s/cadastre-agent.state", directory);
    (void)snprintf(want, sizeof want, "epoch %s %" PRIu64 " ", t->keyspace, t->partition);
    FILE *f = fopen(path, "r");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, want, strlen(want)) == 0) {
            (void)parse_u64(line + strlen(want), UINT64_MAX, &epoch);
        }
    }
    if (f != NULL) {
        (void)fclose(f);
    }
    return epoch;
}

static const char *show_parents(const struct cadastre_task *t, char *out, size_t size)
{
    size_t at = 0;
    out[0] = '\0';
    for (size_t i = 0; i < t->parent_count && at < size; i++) {
        at += (size_t)snprintf(out + at, size - at, "%s%" PRIu64, i > 0 ? "," : "", t->parents[i]);
    }
    return out;
}

static void show(const char *what, struct cadastre_partition *p, const struct cadastre_task *t)
{
    char must[LINE_SIZE] = "", parents[LINE_SIZE];
    size_t at = 0;
    for (size_t i = 0; i < t->must_have_count && at < sizeof must; i++) {
        at += (size_t)snprintf(must + at, sizeof must - at, "%s\"%s:%" PRIu64 "\"",
                               i > 0 ? "," : "", t->must_have[i].node, t->must_have[i].session);
    }
    driver_say(
        "*task {\"n\":%u,\"what\":\"%s\",\"id\":\"%s\",\"keyspace\":\"%s\",\"partition\":%" PRIu64
        ",\"revision\":%" PRIu64 ",\"session\":%" PRIu64 ",\"role\":%d,\"epoch\":%" PRId64
        ",\"disk\":%" PRIu64 ",\"fenced\":%s,\"may\":%s,\"operation\":\"%s\",\"attempt\":%" PRId64
        ",\"stage\":%d,\"stage_name\":\"%s\",\"source\":%s,\"copy\":%" PRId64
        ",\"start\":\"%.*s\",\"end\":\"%.*s\",\"open\":%s,\"peer\":\"%s %s\",\"must\":[%s],"
        "\"parents\":[%s],\"roles\":%d}",
        keep(t), what, t->id, t->keyspace, t->partition, t->revision, t->session, (int)t->role,
        (int64_t)t->epoch, epoch_on_disk(t), t->fenced ? "true" : "false",
        cadastre_may_write(agent, p, t->epoch) ? "true" : "false", t->operation,
        (int64_t)t->attempt, (int)t->stage, t->stage_name, t->is_source ? "true" : "false",
        (int64_t)t->copy, (int)t->start_len, (const char *)t->start, (int)t->end_len,
        (const char *)t->end, t->end_open ? "true" : "false", t->peer.node, t->peer.address, must,
        show_parents(t, parents, sizeof parents),
        t->must_have_count > 0 ? (int)t->must_have[0].role : 0);
}

static void on_session(void *arg, enum cadastre_session_event event, uint64_t session)
{
    (void)arg;
    driver_say("*session %d %" PRIu64, (int)event, session);
}

static bool on_grant(void *arg, struct cadastre_partition *p, const struct cadastre_task *t)
{
    (void)arg;
    show("grant", p, t);
    bool taken = atomic_load(&takes);
    return taken &&
           (t->copy == CADASTRE_NONE ||
            cadastre_agent_set_copy(agent, t->keyspace, t->partition, t->copy) == CADASTRE_OK);
}

static void on_fence(void *arg, struct cadastre_partition *p, const struct cadastre_task *t)
{
    (void)arg;
    show("fence", p, t);
}

static void on_revoke(void *arg, struct cadastre_partition *p, const struct cadastre_task *t)
{
    (void)arg;
    show("revoke", p, t);
}

static void on_stage(void *arg, struct cadastre_partition *p, const struct cadastre_task *t)
{
    (void)arg;
    show("stage", p, t);
}

static void on_cleanup(void *arg, struct cadastre_partition *p, const struct cadastre_task *t)
{
    (void)arg;
    show("cleanup", p, t);
}

static void say_status(enum cadastre_status status, const struct cadastre_error *e)
{
    driver_say("{\"status\":\"%s\",\"code\":\"%s\"}", cadastre_status_name(status), e->code);
}

/* --- commands --- */

static void do_agent(char *const *w)
{
    struct cadastre_error e = {0};
    const struct cadastre_label labels[] = {{"zone", "z1"}};
    const struct cadastre_capacity capacity[] = {{"bytes", 1000000}};
    struct cadastre_agent_options o = {
        .endpoints = w[1],
        .node = w[2],
        .address = w[3],
        .labels = labels,
        .label_count = 1,
        .capacity = capacity,
        .capacity_count = 1,
        .data_dir = w[4],
        .heartbeat_ms = driver_number(w[5]),
        .timeout_ms = driver_number(w[6]),
        .callbacks = {on_session, on_grant, on_fence, on_revoke, on_stage, on_cleanup,
                      driver_event},
    };
    (void)snprintf(directory, sizeof directory, "%s", w[4]);
    cadastre_agent_free(agent);
    agent = cadastre_agent_new(&o, &e);
    say_status(agent != NULL ? CADASTRE_OK : e.status, &e);
}

static void do_start(char *const *w)
{
    (void)w;
    cadastre_agent_start(agent);
    driver_say("{\"status\":\"ok\"}");
}

static void do_stop(char *const *w)
{
    struct cadastre_error e = {0};
    say_status(cadastre_agent_stop(agent, driver_number(w[1]), &e), &e);
}

static void do_free(char *const *w)
{
    (void)w;
    cadastre_agent_free(agent);
    agent = NULL;
    driver_say("{\"status\":\"ok\"}");
}

static void do_may(char *const *w)
{
    struct cadastre_partition *p = cadastre_agent_partition(agent, w[1], driver_number(w[2]));
    driver_say("{\"may\":%s,\"epoch\":%" PRIu64 ",\"known\":%" PRIu64 ",\"revision\":%" PRIu64 "}",
               cadastre_may_write(agent, p, driver_number(w[3])) ? "true" : "false",
               cadastre_partition_epoch(p), cadastre_partition_known_epoch(p),
               cadastre_partition_revision(p));
}

static void do_must(char *const *w)
{
    struct cadastre_partition *p = cadastre_agent_partition(agent, w[1], driver_number(w[2]));
    struct cadastre_member members[MEMBERS_MAX];
    char text[LINE_SIZE] = "";
    size_t n, at = 0;
    enum cadastre_status status =
        cadastre_must_have(p, driver_number(w[3]), members, MEMBERS_MAX, &n);
    for (size_t i = 0; i < n && i < MEMBERS_MAX && at < sizeof text; i++) {
        at += (size_t)snprintf(text + at, sizeof text - at, "%s\"%s\"", i > 0 ? "," : "",
                               members[i].node);
    }
    driver_say("{\"status\":\"%s\",\"nodes\":[%s]}", cadastre_status_name(status), text);
}

static void do_state(char *const *w)
{
    (void)w;
    driver_say("{\"session\":%" PRIu64 ",\"lease_left_ms\":%" PRIu64 "}",
               cadastre_agent_session(agent), cadastre_agent_lease_left_ms(agent));
}

static void do_take(char *const *w)
{
    atomic_store(&takes, w[1][0] == '1');
    driver_say("{\"status\":\"ok\"}");
}

static struct cadastre_task *task_of(const char *number)
{
    (void)pthread_mutex_lock(&lock);
    uint64_t n = driver_number(number);
    struct cadastre_task *t = n < task_count ? tasks[n] : NULL;
    (void)pthread_mutex_unlock(&lock);
    return t;
}

static void do_report(char *const *w)
{
    struct cadastre_error e = {0};
    say_status(cadastre_agent_report(agent, task_of(w[1]), w[2], driver_number(w[3]), &e), &e);
}

static void do_cleaned(char *const *w)
{
    struct cadastre_error e = {0};
    say_status(
        cadastre_agent_cleaned(agent, task_of(w[1]), driver_number(w[2]), driver_number(w[3]), &e),
        &e);
}

static void do_insync(char *const *w)
{
    struct cadastre_error e = {0};
    const char *nodes[] = {w[4]};
    struct cadastre_partition *p = cadastre_agent_partition(agent, w[1], driver_number(w[2]));
    say_status(cadastre_agent_insync(agent, p, driver_number(w[3]), nodes, 1, driver_number(w[5])),
               &e);
}

static void do_load(char *const *w)
{
    struct cadastre_error e = {0};
    uint64_t count = driver_number(w[4]);
    struct cadastre_load *loads = mem_zalloc((count + 1) * sizeof loads[0]);
    struct cadastre_load_key keys[] = {
        {.key = "a\"b", .key_len = 3, .weight = 9},
        {.key = "c", .key_len = 1, .end = "d", .end_len = 1, .weight = 1}};
    static const struct cadastre_load_by by[] = {
        {.operation = "get", .outcome = "ok", .tenant = "acme", .requests = 600},
        {.operation = "put", .outcome = "error", .requests = 60}};
    for (uint64_t i = 0; i < count; i++) {
        loads[i] = (struct cadastre_load){.keyspace = w[1],
                                          .partition = driver_number(w[2]) + i,
                                          .epoch = driver_number(w[3]),
                                          .reads = 600,
                                          .writes = 60,
                                          .size_bytes = 1000,
                                          .has = CADASTRE_LOAD_ITEMS | CADASTRE_LOAD_QUEUE,
                                          .items = 5,
                                          .queue_ms_p99 = 2,
                                          .keys = keys,
                                          .key_count = 2,
                                          .by = by,
                                          .by_count = 2};
    }
    struct cadastre_load_report report = {
        .interval_ms = 60000, .loads = loads, .count = count, .node = "{\"cpu\":1.5}"};
    size_t counted = 0;
    enum cadastre_status status =
        cadastre_agent_report_load(agent, &report, driver_number(w[5]), &counted, &e);
    mem_free(loads);
    driver_say("{\"status\":\"%s\",\"code\":\"%s\",\"counted\":%zu}", cadastre_status_name(status),
               e.code, counted);
}

static void do_set_copy(char *const *w)
{
    struct cadastre_error e = {0};
    say_status(cadastre_agent_set_copy(agent, w[1], driver_number(w[2]), driver_number(w[3])), &e);
}

static void do_copy(char *const *w)
{
    driver_say("{\"copy\":%" PRIu64 "}", cadastre_agent_copy(agent, w[1], driver_number(w[2])));
}

const struct driver_command driver_agent_commands[] = {
    {"agent", 7, do_agent},     {"start", 1, do_start},   {"stop", 2, do_stop},
    {"free", 1, do_free},       {"may", 4, do_may},       {"must", 4, do_must},
    {"state", 1, do_state},     {"take", 2, do_take},     {"report", 4, do_report},
    {"cleaned", 4, do_cleaned}, {"insync", 6, do_insync}, {"set-copy", 4, do_set_copy},
    {"copy", 3, do_copy},       {"load", 6, do_load},     {NULL, 0, NULL},
};

void driver_agent_end(void)
{
    cadastre_agent_free(agent);
    for (unsigned i = 0; i < task_count; i++) {
        cadastre_task_free(tasks[i]);
    }
}
