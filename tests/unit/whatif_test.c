/* SPDX-License-Identifier: Apache-2.0 */
/* What-if from a state: it begins with all that the state has, is the same each time, ends where it
 * is told to, and leaves the state alone. */
#include "simulate/whatif.h"

#include "api/whatif_json.h"
#include "base/clock.h"
#include "tests/harness/agents.h"
#include "tests/harness/tap.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MONO_MS = 200000, REQUESTS = 40, PARTS = 12 };
#define SIZE UINT64_C(7000000)

static struct world w;
static struct loads *loads;
static struct whatif question;
static struct whatif_answer answer;

static const struct dir_partition *at(const char *key)
{
    return world_at(&w, "k", key);
}

static void report(const struct dir_partition *p, uint64_t reads)
{
    struct load_sample s = {.partition = p->id, .epoch = p->epoch, .interval_ms = 100000};
    s.has = 1u << LOAD_READS | 1u << LOAD_SIZE;
    s.value[LOAD_READS] = reads * 100;
    s.value[LOAD_SIZE] = SIZE;
    CHECK_U64(loads_put(loads, &s, MONO_MS), LOAD_COUNTED);
}

static const char *key_of(unsigned i)
{
    static char keys[PARTS][2];
    keys[i][0] = (char)('a' + i);
    return keys[i];
}

/* All partitions on n1, one as busy as the other. */
static void begin(void)
{
    world_open(&w);
    agent_three(&w);
    for (unsigned i = 1; i < PARTS; i++) {
        CHECK_U64(world_split(&w, at(key_of(i))->id, key_of(i))->err.code, ERR_OK);
    }
    loads = loads_new();
    for (unsigned i = 0; i < PARTS; i++) {
        report(at(key_of(i)), REQUESTS);
    }
    whatif_init(&question);
}

static void end(void)
{
    whatif_close(&question);
    whatif_answer_close(&answer);
    loads_free(loads);
    world_close(&w);
}

static void ask(const char *body)
{
    struct err e = {0};
    json_t *json = json_parse_object(slice_of(body, strlen(body)), &e);
    whatif_close(&question);
    CHECK_U64(whatif_read(json, &question, &e), ERR_OK);
    json_decref(json);
}

static struct whatif_state here(void)
{
    return (struct whatif_state){.view = world_state(&w),
                                 .loads = loads,
                                 .mono_ms = MONO_MS,
                                 .log_ms = world_state(&w)->time_ms + 3600000};
}

static enum err_code run_from(const struct whatif_state *s)
{
    struct err e = {0};
    whatif_answer_close(&answer);
    enum err_code code = whatif_run(&question, s, &answer, &e);
    if (code != ERR_OK) {
        tap_note("%s %s", e.pointer, e.detail);
    }
    return code;
}

static void run(void)
{
    struct whatif_state s = here();
    CHECK_U64(run_from(&s), ERR_OK);
}

static const struct whatif_node *node(const char *name)
{
    static const struct whatif_node none;
    for (uint64_t i = 0; i < answer.node_count; i++) {
        if (strcmp(answer.nodes[i].name.text, name) == 0) {
            return &answer.nodes[i];
        }
    }
    tap_note("no node %s", name);
    return &none;
}

static char *as_text(void)
{
    struct buf b;
    buf_init(&b, 8 << 20);
    whatif_put(&b, world_state(&w), &question, &answer);
    buf_put_u8(&b, '\0');
    char *copy = strdup((const char *)b.data);
    buf_close(&b);
    return copy;
}

static void it_begins_with_what_is_there(void)
{
    begin();
    ask("{\"changes\":{\"policy\":{\"mode\":\"off\"}}}");
    run();
    CHECK_U64(answer.revision, world_state(&w)->revision);
    CHECK_U64(answer.step_count, 0);
    CHECK_U64(answer.end, WHATIF_SETTLED);
    CHECK_U64(answer.node_count, 3);
    CHECK_U64(node("n1")->before.primaries, PARTS);
    CHECK_U64(node("n1")->before.bytes / 1000000, PARTS * SIZE / 1000000);
    CHECK_U64((node("n1")->before.requests + 500) / 1000, PARTS * REQUESTS);
    CHECK_U64(node("n1")->before.level_ppm, 3000000);
    CHECK(memcmp(&node("n1")->before, &node("n1")->after, sizeof answer.nodes[0].after) == 0);
    CHECK_U64(answer.before.most_ppm, 3000000);
    CHECK(!answer.before.said);
    end();
}

static void the_same_question_gets_the_same_answer(void)
{
    begin();
    struct hash128 hash = world_state(&w)->hash;
    uint64_t revision = world_state(&w)->revision;
    ask("{\"seed\":5,\"changes\":{\"nodes_lost\":[\"n2\"],"
        "\"nodes_added\":[{\"name\":\"x\",\"count\":2,\"like\":\"n1\"}],"
        "\"load_scaled\":[{\"factor_ppm\":1500000}]}}");
    run();
    char *first = as_text();
    CHECK(answer.moves > 0 && answer.finding_count == 0);
    CHECK(node("n2")->lost && node("x2")->added);
    run();
    char *second = as_text();
    CHECK_STR(first, second);
    CHECK_U64(world_state(&w)->revision, revision);
    CHECK(memcmp(&hash, &world_state(&w)->hash, sizeof hash) == 0);
    CHECK_U64(loads_count(loads), PARTS);
    /* And the state goes on as if nothing had been. */
    CHECK_U64(world_split(&w, at("a")->id, "ab")->err.code, ERR_OK);
    CHECK_U64(world_check(world_state(&w)), 0);
    free(first);
    free(second);
    end();
}

static void load_is_scaled_by_keyspace(void)
{
    begin();
    ask("{\"hours\":1,\"changes\":{\"policy\":{\"mode\":\"off\"},\"load_scaled\":["
        "{\"factor_ppm\":9000000},{\"keyspace\":\"k\",\"factor_ppm\":500000}]}}");
    run();
    CHECK_U64((node("n1")->before.requests + 500) / 1000, PARTS * REQUESTS / 2);
    CHECK_U64(node("n1")->before.bytes / 1000000, PARTS * SIZE / 1000000);
    end();
}

/* One partition with half of all load, spread over its keys. */
static void what_is_hot_is_split(void)
{
    static char names[LOAD_KEYS_MAX][3];
    struct load_key keys[LOAD_KEYS_MAX];
    begin();
    for (unsigned i = 0; i < LOAD_KEYS_MAX; i++) {
        names[i][0] = 'c';
        names[i][1] = (char)('A' + i / 8);
        names[i][2] = (char)('A' + i % 8);
        keys[i] = (struct load_key){.key = slice_of(names[i], 3), .weight = 1000};
    }
    const struct dir_partition *hot = at("c");
    struct load_sample s = {.partition = hot->id,
                            .epoch = hot->epoch,
                            .interval_ms = 100000,
                            .has = 1u << LOAD_READS,
                            .keys = keys,
                            .key_count = LOAD_KEYS_MAX};
    s.value[LOAD_READS] = UINT64_C(100) * REQUESTS * PARTS;
    CHECK_U64(loads_put(loads, &s, MONO_MS + 100000), LOAD_COUNTED);
    ask("{\"changes\":{\"policy\":{\"classes\":{\"merge\":false}}}}");
    run();
    const struct whatif_step *step = NULL;
    for (uint64_t i = 0; i < answer.step_count && step == NULL; i++) {
        step = strcmp(answer.steps[i].kind, "split") == 0 ? &answer.steps[i] : NULL;
    }
    CHECK(step != NULL && step->partition == hot->id && step->begin_ms == step->end_ms);
    CHECK(answer.splits > 0 && answer.merges == 0 && answer.finding_count == 0);
    CHECK_U64(answer.before.most_ppm, 3000000);
    CHECK(answer.after.most_ppm < 1300000);
    CHECK(at("c") == hot);
    end();
}

/* A freeze that is over after two hours: nothing begins before it. */
static void windows_count(void)
{
    char body[512], from[CLOCK_RFC3339_SIZE], to[CLOCK_RFC3339_SIZE];
    begin();
    ask("{\"hours\":24}");
    run();
    CHECK(answer.moves > 0);
    CHECK(answer.steps[0].begin_ms < 3600000);
    clock_rfc3339(here().log_ms - 1000, from);
    clock_rfc3339(here().log_ms + 7200000, to);
    (void)snprintf(body, sizeof body,
                   "{\"changes\":{\"policy\":{\"windows\":[{\"name\":\"x\",\"kind\":\"freeze\","
                   "\"from\":\"%s\",\"to\":\"%s\"}]}}}",
                   from, to);
    ask(body);
    run();
    CHECK(answer.moves > 0);
    CHECK(answer.steps[0].begin_ms >= 7200000);
    end();
}

static uint64_t start_move(const struct dir_partition *p, const char *to)
{
    Cadastre__OperationStart m;
    cadastre__operation_start__init(&m);
    m.kind = DIR_OPERATION_MOVE;
    m.partition = p->id;
    m.from = text_lent("n1");
    m.to = text_lent(to);
    m.class_ = DIR_CLASS_OPERATOR;
    m.reason = text_lent("somebody asked");
    const struct dir_result *r = world_do(&w, CADASTRE__COMMAND__BODY_OPERATION_START, &m);
    CHECK_U64(r->err.code, ERR_OK);
    return r->operation->id;
}

static void admit(uint64_t operation)
{
    Cadastre__OperationAdmit m;
    cadastre__operation_admit__init(&m);
    m.operation = operation;
    m.attempt = 1;
    CHECK_U64(world_do(&w, CADASTRE__COMMAND__BODY_OPERATION_ADMIT, &m)->err.code, ERR_OK);
}

static uint64_t start_proposed(const struct dir_partition *p, const char *to, bool approved)
{
    Cadastre__ProposalMake m;
    Cadastre__ProposalSettle s;
    cadastre__proposal_make__init(&m);
    cadastre__proposal_settle__init(&s);
    m.kind = DIR_PROPOSAL_MOVE;
    m.class_ = DIR_CLASS_BALANCE;
    m.partition = p->id;
    m.epoch = p->epoch;
    m.from = text_lent("n1");
    m.to = text_lent(to);
    m.reason_code = text_lent("hot_node");
    m.reason = text_lent("n1 has three times the mean");
    m.expires_in_ms = 600000;
    m.execute = !approved;
    const struct dir_result *r = world_do(&w, CADASTRE__COMMAND__BODY_PROPOSAL_MAKE, &m);
    CHECK_U64(r->err.code, ERR_OK);
    uint64_t operation = r->proposal->operation;
    if (approved) {
        s.proposal = r->proposal->id;
        s.verb = CADASTRE__PROPOSAL_VERB__APPROVE;
        r = world_do(&w, CADASTRE__COMMAND__BODY_PROPOSAL_SETTLE, &s);
        CHECK_U64(r->err.code, ERR_OK);
        operation = r->proposal->operation;
    }
    return operation;
}

/* Outside of the windows what a person approved begins, and the balancer's own waits. */
static void approved_work_does_not_wait_for_a_window(void)
{
    char body[512], from[CLOCK_RFC3339_SIZE], to[CLOCK_RFC3339_SIZE];
    begin();
    uint64_t own = start_proposed(at("a"), "n2", false);
    uint64_t approved = start_proposed(at("b"), "n3", true);
    clock_rfc3339(here().log_ms + 7200000, from);
    clock_rfc3339(here().log_ms + 14400000, to);
    (void)snprintf(body, sizeof body,
                   "{\"changes\":{\"policy\":{\"mode\":\"off\",\"windows\":[{\"name\":\"x\","
                   "\"kind\":\"maintenance\",\"from\":\"%s\",\"to\":\"%s\"}]}}}",
                   from, to);
    ask(body);
    run();
    CHECK_U64(answer.step_count, 2);
    for (uint64_t i = 0; i < answer.step_count; i++) {
        const struct whatif_step *s = &answer.steps[i];
        CHECK(s->operation == own ? s->begin_ms >= 7200000 : s->begin_ms < 60000);
        CHECK(s->operation == own || s->operation == approved);
        CHECK_U64(s->state, DIR_OPERATION_DONE);
    }
    end();
}

/* Also where more is reserved already than the question's budgets let. */
static void what_is_under_way_goes_on(void)
{
    begin();
    uint64_t one = start_move(at("a"), "n2");
    admit(one);
    uint64_t two = start_move(at("b"), "n3");
    ask("{\"changes\":{\"policy\":{\"mode\":\"off\","
        "\"budgets\":{\"source\":{\"bytes_per_s\":1048576}}}}}");
    run();
    CHECK_U64(answer.step_count, 2);
    CHECK_U64(answer.steps[0].operation, one);
    CHECK_U64(answer.steps[1].operation, two);
    CHECK_U64(answer.steps[0].begin_ms, 0);
    CHECK_U64(answer.steps[1].state, DIR_OPERATION_DONE);
    CHECK(answer.steps[1].end_ms > answer.steps[1].begin_ms);
    CHECK_U64(answer.moves, 2);
    CHECK_U64(answer.bytes, 2 * SIZE);
    CHECK_U64(node("n2")->after.primaries, 1);
    CHECK_U64(answer.finding_count, 0);
    end();
}

/* --- beside a state that changes --- */

struct beside {
    const struct dir_view *view; /* pinned */
    uint64_t recoveries, findings;
    _Atomic bool over;
};

static void *simulate(void *arg)
{
    struct beside *b = arg;
    struct whatif_answer mine;
    struct whatif_state s = {
        .view = b->view, .loads = loads, .mono_ms = MONO_MS, .log_ms = b->view->time_ms + 3600000};
    struct err e;
    rcu_reader_start();
    for (int i = 0; i < 3; i++) {
        if (whatif_run(&question, &s, &mine, &e) == ERR_OK) {
            b->recoveries = mine.recoveries;
            b->findings += mine.finding_count;
            whatif_answer_close(&mine);
        }
    }
    rcu_reader_stop();
    atomic_store(&b->over, true);
    return NULL;
}

static void beside_a_state_that_changes(void)
{
    begin();
    ask("{\"changes\":{\"nodes_drained\":[\"n1\"]}}");
    run();
    struct beside b = {.view = view_pin(directory_published(w.d))};
    pthread_t thread;
    CHECK_U64(pthread_create(&thread, NULL, simulate, &b), 0);
    for (unsigned i = 0; i < 20 || !atomic_load(&b.over); i++) {
        Cadastre__NodeScheduling m;
        cadastre__node_scheduling__init(&m);
        m.node = text_lent(i % 2 == 0 ? "n2" : "n3");
        m.verb =
            i % 4 < 2 ? CADASTRE__SCHEDULING_VERB__CORDON : CADASTRE__SCHEDULING_VERB__UNCORDON;
        (void)world_do(&w, CADASTRE__COMMAND__BODY_NODE_SCHEDULING, &m);
        if (i < 20) {
            const char key[] = {(char)('a' + i % PARTS), (char)('z' - i / PARTS), '\0'};
            CHECK_U64(world_split(&w, at(key)->id, key)->err.code, ERR_OK);
        }
    }
    CHECK_U64(pthread_join(thread, NULL), 0);
    CHECK_U64(b.findings, 0);
    CHECK_U64(world_check(b.view), 0);
    CHECK_U64(world_check(world_state(&w)), 0);
    CHECK_U64(b.recoveries, PARTS);
    view_unpin(b.view);
    end();
}

struct fuse {
    int left;
};

static bool burns(void *arg)
{
    struct fuse *f = arg;
    return f->left-- == 0;
}

static void it_stops_when_it_is_told(void)
{
    begin();
    struct fuse fuse = {30};
    struct whatif_state s = here();
    s.stop = burns;
    s.stop_arg = &fuse;
    CHECK_U64(run_from(&s), ERR_OK);
    CHECK_U64(answer.end, WHATIF_STOPPED);
    CHECK_U64(answer.virtual_ms, 300000);
    CHECK(answer.under_way > 0);
    char *text = as_text();
    CHECK(strstr(text, "\"truncated\":\"time\"") != NULL);
    free(text);
    end();
}

static void hours_are_over(void)
{
    begin();
    ask("{\"hours\":1,\"changes\":{\"policy\":{\"budgets\":{\"source\":{\"bytes_per_s\":2000}}}}}");
    run();
    CHECK_U64(answer.end, WHATIF_OUT_OF_HOURS);
    CHECK_U64(answer.virtual_ms, 3600000);
    CHECK(answer.under_way > 0);
    CHECK_U64(answer.finding_count, 0);
    end();
}

/* A name of any length is whole, with and without a number. */
static void names_are_not_cut(void)
{
    begin();
    char body[512], a[64], b[64], numbered[64];
    (void)memset(a, 'a', 63);
    a[63] = '\0';
    (void)memcpy(b, a, sizeof b);
    b[62] = 'b';
    (void)snprintf(numbered, sizeof numbered, "%.54sz", a);
    (void)snprintf(body, sizeof body,
                   "{\"changes\":{\"nodes_added\":[{\"name\":\"%s\"},{\"name\":\"%s\"},"
                   "{\"name\":\"%s\",\"count\":2}],\"nodes_drained\":[\"%s\"]}}",
                   a, b, numbered, b);
    ask(body);
    run();
    CHECK(node(a)->added && node(b)->drained);
    (void)snprintf(numbered + 55, sizeof numbered - 55, "2");
    CHECK(node(numbered)->added);
    end();
}

/* Nobody serves: no share of no capacity; and what waits for who is away is no reason to go on. */
static void all_are_lost(void)
{
    begin();
    ask("{\"changes\":{\"nodes_lost\":[\"n1\",\"n2\",\"n3\"]}}");
    run();
    CHECK_U64(answer.end, WHATIF_SETTLED);
    CHECK(answer.under_way > 0);
    CHECK(!answer.after.said);
    CHECK_U64(answer.after.nodes, 0);
    end();
}

static void a_queue_for_who_is_lost_is_let_go(void)
{
    begin();
    ask("{\"changes\":{\"nodes_added\":[{\"name\":\"x\"}],\"nodes_lost\":[\"x\"],"
        "\"policy\":{\"thresholds\":{\"quiet_ms\":0,\"sustain_ms\":0}}}}");
    run();
    CHECK_U64(answer.end, WHATIF_SETTLED);
    CHECK_U64(answer.under_way, 0);
    CHECK_U64(answer.finding_count, 0);
    end();
}

static void refused(const char *body, enum err_code code, const char *pointer)
{
    struct whatif_state s = here();
    struct err e = {0};
    ask(body);
    whatif_answer_close(&answer);
    CHECK_U64(whatif_run(&question, &s, &answer, &e), code);
    CHECK_STR(e.pointer, pointer);
}

static void what_can_not_be_is_named(void)
{
    begin();
    refused("{\"changes\":{\"nodes_lost\":[\"no\"]}}", ERR_INVALID_SETTINGS,
            "/changes/nodes_lost/0");
    refused("{\"changes\":{\"zone_lost\":\"no\"}}", ERR_INVALID_SETTINGS, "/changes/zone_lost");
    refused("{\"changes\":{\"nodes_added\":[{\"name\":\"y\"},{\"name\":\"y\"}]}}",
            ERR_INVALID_SETTINGS, "/changes/nodes_added/1/name");
    refused("{\"changes\":{\"load_scaled\":[{\"factor_ppm\":1},{\"factor_ppm\":1}]}}",
            ERR_INVALID_SETTINGS, "/changes/load_scaled/1");
    refused(
        "{\"changes\":{\"load_scaled\":[{\"keyspace\":\"k\",\"factor_ppm\":1},{\"factor_ppm\":1},"
        "{\"keyspace\":\"k\",\"factor_ppm\":2}]}}",
        ERR_INVALID_SETTINGS, "/changes/load_scaled/2/keyspace");
    refused("{\"changes\":{\"policy\":{\"thresholds\":{\"low_ppm\":399999}}}}",
            ERR_INVALID_SETTINGS, "/changes/policy/thresholds/low_ppm");
    refused("{\"changes\":{\"policy\":{\"windows\":[{\"name\":\"x\",\"kind\":\"freeze\","
            "\"from\":\"2026-12-24T12:00:00Z\",\"to\":\"2026-12-24T12:00:00Z\"}]}}}",
            ERR_INVALID_SETTINGS, "/changes/policy/windows/0/to");
    CHECK_U64(world_node(&w, "s1", "s1:1")->err.code, ERR_OK);
    refused("{\"changes\":{\"nodes_lost\":[\"s1\"]}}", ERR_INVALID_SETTINGS,
            "/changes/nodes_lost/0");
    (void)agent_end(&w, "n3", agent_node(&w, "n3")->session, false);
    refused("{\"changes\":{\"nodes_lost\":[\"n1\",\"n3\"]}}", ERR_INVALID_SETTINGS,
            "/changes/nodes_lost/1");
    whatif_answer_close(&answer);
    end();
}

int main(void)
{
    rcu_reader_start();
    RUN(it_begins_with_what_is_there);
    RUN(the_same_question_gets_the_same_answer);
    RUN(load_is_scaled_by_keyspace);
    RUN(what_is_hot_is_split);
    RUN(windows_count);
    RUN(approved_work_does_not_wait_for_a_window);
    RUN(what_is_under_way_goes_on);
    RUN(beside_a_state_that_changes);
    RUN(it_stops_when_it_is_told);
    RUN(hours_are_over);
    RUN(names_are_not_cut);
    RUN(all_are_lost);
    RUN(a_queue_for_who_is_lost_is_let_go);
    RUN(what_can_not_be_is_named);
    rcu_drain();
    rcu_reader_stop();
    return tap_done();
}
