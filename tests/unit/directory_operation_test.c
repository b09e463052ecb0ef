/* SPDX-License-Identifier: Apache-2.0 */
/* The stages of a move, one by one: what each asks for, what follows, and what goes wrong in it
 * (docs/movement.md). */
#include "directory/internal.h"
#include "directory/operation.h"
#include "directory/policy.h"
#include "directory/tasks.h"
#include "tests/harness/agents.h"
#include "tests/harness/tap.h"

#include <stdio.h>
#include <string.h>

static struct world w;
static uint64_t op, seq_s, seq_d;
static const char *from = "n1", *to = "n2"; /* of the steps below */

static const struct dir_partition *part(void)
{
    return agent_partition(&w, "k");
}

static const struct dir_operation *it(void)
{
    return view_operation(world_state(&w), op);
}

static const char *primary(void)
{
    const struct dir_node *n = view_primary(world_state(&w), part());
    return n != NULL ? n->name : "";
}

static int role_on(const char *name)
{
    int at = partition_copy_on(part(), agent_node(&w, name)->id);
    return at >= 0 ? part()->replicas[at].role : 0;
}

static const struct dir_result *
start(enum dir_operation_kind kind, const char *leaving, const char *taking)
{
    Cadastre__OperationStart m;
    cadastre__operation_start__init(&m);
    m.kind = kind;
    m.partition = part()->id;
    m.from = text_lent(leaving);
    m.to = text_lent(taking);
    m.role = kind == DIR_OPERATION_ADD_REPLICA ? DIR_ROLE_SYNC : 0;
    const struct dir_result *r = world_do(&w, CADASTRE__COMMAND__BODY_OPERATION_START, &m);
    if (r->err.code == ERR_OK) {
        op = r->operation->id;
    }
    return r;
}

static const struct dir_result *admit(void)
{
    Cadastre__OperationAdmit m;
    cadastre__operation_admit__init(&m);
    m.operation = op;
    m.attempt = it()->attempt;
    return world_do(&w, CADASTRE__COMMAND__BODY_OPERATION_ADMIT, &m);
}

static const struct dir_result *verb(Cadastre__OperationVerbKind kind)
{
    Cadastre__OperationVerb m;
    cadastre__operation_verb__init(&m);
    m.operation = op;
    m.verb = kind;
    m.reason = text_lent("a person said so");
    return world_do(&w, CADASTRE__COMMAND__BODY_OPERATION_VERB, &m);
}

static const struct dir_result *time_out(void)
{
    Cadastre__OperationTimeout m;
    cadastre__operation_timeout__init(&m);
    m.operation = op;
    m.attempt = it()->attempt;
    m.stage = it()->stage;
    m.since = it()->stage_revision;
    return world_do(&w, CADASTRE__COMMAND__BODY_OPERATION_TIMEOUT, &m);
}

/* A report of the present attempt and stage, to be filled. */
static Cadastre__OperationReport report(const char *node)
{
    Cadastre__OperationReport m;
    cadastre__operation_report__init(&m);
    m.operation = op;
    m.node = text_lent(node);
    m.session = agent_node(&w, node)->session;
    m.attempt = it()->attempt;
    m.stage = it()->stage;
    m.seq = agent_node(&w, node)->id == it()->source ? ++seq_s : ++seq_d;
    return m;
}

static const struct dir_result *tell(Cadastre__OperationReport *m)
{
    return world_do(&w, CADASTRE__COMMAND__BODY_OPERATION_REPORT, m);
}

/* --- one step of each stage, as it goes well --- */

static const struct dir_result *prepare(void)
{
    Cadastre__OperationReport m = report(to);
    m.has = DIR_REPORT_READY | DIR_REPORT_FREE_BYTES;
    m.ready = true;
    m.free_bytes = 1200;
    return tell(&m);
}

static const struct dir_result *snapshot(void)
{
    Cadastre__OperationReport m = report(from);
    m.has = DIR_REPORT_SNAPSHOT | DIR_REPORT_POSITION | DIR_REPORT_BYTES_TOTAL;
    m.snapshot = text_lent("s1");
    m.position = 100;
    m.bytes_total = 1000;
    return tell(&m);
}

static const struct dir_result *copy(void)
{
    Cadastre__OperationReport m = report(to);
    m.has = DIR_REPORT_CHUNK | DIR_REPORT_BYTES_DONE | DIR_REPORT_COMPLETE;
    m.chunk = 10;
    m.bytes_done = 1000;
    m.complete = true;
    return tell(&m);
}

static const struct dir_result *catch_up(void)
{
    Cadastre__OperationReport m = report(to);
    m.has = DIR_REPORT_APPLIED_POSITION | DIR_REPORT_LAG_BYTES;
    m.applied_position = 110;
    return tell(&m);
}

static const struct dir_result *active(void)
{
    Cadastre__OperationReport m = report(from);
    m.has = DIR_REPORT_ACTIVE | DIR_REPORT_FROM_POSITION;
    m.active = true;
    m.from_position = 120;
    return tell(&m);
}

static const struct dir_result *applied(uint64_t position)
{
    Cadastre__OperationReport m = report(to);
    m.has = DIR_REPORT_APPLIED_POSITION;
    m.applied_position = position;
    return tell(&m);
}

static const struct dir_result *sum(const char *node, uint64_t checksum)
{
    Cadastre__OperationReport m = report(node);
    m.has = DIR_REPORT_AT_POSITION | DIR_REPORT_ITEMS | DIR_REPORT_CHECKSUM;
    m.at_position = it()->validate_at;
    m.items = 7;
    m.checksum = checksum;
    return tell(&m);
}

static const struct dir_result *fence(void)
{
    Cadastre__OperationReport m = report(from);
    m.has = DIR_REPORT_FENCED | DIR_REPORT_FINAL_POSITION | DIR_REPORT_CHECKSUM;
    m.fenced = true;
    m.epoch = part()->epoch;
    m.final_position = 150;
    m.checksum = 77;
    return tell(&m);
}

static const struct dir_result *cut_over(uint64_t position, uint64_t checksum)
{
    Cadastre__OperationReport m = report(to);
    m.has = DIR_REPORT_APPLIED_POSITION | DIR_REPORT_CHECKSUM;
    m.applied_position = position;
    m.checksum = checksum;
    return tell(&m);
}

static void to_stage(enum dir_stage stage)
{
    for (int i = 0; i < 20 && it()->stage != stage && tap_failures() == 0; i++) {
        switch ((int)it()->stage) {
        case DIR_STAGE_QUEUED:
            (void)admit();
            break;
        case DIR_STAGE_PREPARE:
            (void)prepare();
            break;
        case DIR_STAGE_SNAPSHOT:
            (void)snapshot();
            break;
        case DIR_STAGE_COPY:
            (void)copy();
            break;
        case DIR_STAGE_CATCH_UP:
            (void)catch_up();
            break;
        case DIR_STAGE_DUAL_WRITE:
            (void)active();
            (void)applied(120);
            break;
        case DIR_STAGE_VALIDATE:
            (void)sum(from, 5);
            (void)sum(to, 5);
            break;
        case DIR_STAGE_FENCE:
            (void)fence();
            break;
        default:
            (void)cut_over(150, 77);
            break;
        }
        CHECK_U64(w.result->err.code, ERR_OK);
        CHECK_U64(world_check(world_state(&w)), 0);
    }
    CHECK_STR(dir_stage_name(it()->stage), dir_stage_name(stage));
}

/* n1 is the primary, n2 has nothing, n3 may be a sync replica. */
static void open_world(uint32_t sync)
{
    seq_s = seq_d = 0;
    from = "n1";
    to = "n2";
    world_open(&w);
    (void)agent_put(&w, "n1", 0);
    if (sync > 0) {
        (void)agent_put(&w, "n3", 0);
    }
    agent_keyspace(&w, sync);
    (void)agent_put(&w, "n2", 0);
    CHECK_STR(primary(), "n1");
    CHECK_U64(start(DIR_OPERATION_MOVE, "n1", "n2")->err.code, ERR_OK);
}

static void at(enum dir_stage stage, uint32_t sync)
{
    open_world(sync);
    to_stage(stage);
}

static bool has_duty(const char *node)
{
    struct ptree_iter iter;
    uint8_t key[16];
    uint64_t id = agent_node(&w, node)->id;
    ptree_seek(&world_state(&w)->duties_by_node, state_pair_key(id, 0, key), &iter);
    const struct dir_duty *d = ptree_iter_get(&iter, NULL);
    return d != NULL && d->node == id;
}

static void end_session(const char *node)
{
    (void)agent_end(&w, node, agent_node(&w, node)->session, false);
    CHECK_U64(w.result->err.code, ERR_OK);
}

/* --- the whole way --- */

static bool collect(void *arg, const struct dir_task *t)
{
    struct dir_task *out = arg;
    out[t->kind] = *t;
    return true;
}

static void collect_tasks(const char *node, struct dir_task got[DIR_TASK_CLEANUP + 1])
{
    memset(got, 0, sizeof got[0] * (DIR_TASK_CLEANUP + 1));
    (void)dir_tasks(world_state(&w), agent_node(&w, node), 0, collect, got);
}

static void a_move_goes_all_the_way(void)
{
    open_world(0);
    uint64_t epoch = part()->epoch;
    CHECK(it()->state == DIR_OPERATION_QUEUED && part()->operation == op);
    to_stage(DIR_STAGE_PREPARE);
    CHECK(role_on("n2") == DIR_ROLE_JOINING && part()->epoch == epoch);
    to_stage(DIR_STAGE_VALIDATE);
    CHECK(it()->joined && it()->joined_session == agent_node(&w, "n2")->session);
    CHECK(it()->validate_at > 120);
    to_stage(DIR_STAGE_FENCE);
    CHECK(part()->state == DIR_FENCING && part()->epoch == epoch);
    to_stage(DIR_STAGE_CUTOVER);
    CHECK_STR(primary(), "n1");
    to_stage(DIR_STAGE_WINDOW);
    CHECK_STR(primary(), "n2");
    CHECK(part()->epoch == world_state(&w)->revision && part()->start_position == 150);
    CHECK(part()->session == agent_node(&w, "n2")->session && role_on("n1") == DIR_ROLE_ASYNC);
    Cadastre__OperationReport m = report("n1");
    m.has = DIR_REPORT_OPEN_OPERATIONS | DIR_REPORT_STALE_READS;
    m.open_operations = 1;
    CHECK_U64(tell(&m)->err.code, ERR_OK);
    (void)time_out();
    CHECK_STR(it()->attention_code, "window_open");
    m = report("n1");
    m.has = DIR_REPORT_OPEN_OPERATIONS | DIR_REPORT_STALE_READS;
    (void)tell(&m);
    (void)time_out();
    CHECK(it()->stage == DIR_STAGE_CLEANUP && part()->operation == 0 && role_on("n1") == 0);
    CHECK_STR(it()->attention_code, "");
    CHECK(has_duty("n1"));
    struct dir_task got[DIR_TASK_CLEANUP + 1];
    collect_tasks("n1", got);
    CHECK(got[DIR_TASK_CLEANUP].operation == it()); /* which waits for it */
    m = report("n1");
    m.has = DIR_REPORT_OLD_EPOCH_WRITES;
    CHECK_U64(tell(&m)->err.code, ERR_OK);
    CHECK(it()->state == DIR_OPERATION_DONE && !has_duty("n1"));
    CHECK(it()->epoch_before == epoch && it()->epoch_after == part()->epoch);
    world_close_checked(&w);
}

static void old_writes_fail_the_operation_and_keep_the_data(void)
{
    at(DIR_STAGE_WINDOW, 0);
    CHECK_U64(verb(CADASTRE__OPERATION_VERB_KIND__FINISH_VALIDATION)->err.code, ERR_OK);
    Cadastre__OperationReport m = report("n1");
    m.has = DIR_REPORT_OLD_EPOCH_WRITES;
    m.old_epoch_writes = 2;
    (void)tell(&m);
    CHECK(it()->state == DIR_OPERATION_FAILED);
    CHECK_STR(it()->attention_code, "old_epoch_writes");
    CHECK(!has_duty("n1"));
    world_close_checked(&w);
}

/* --- each row's own ends --- */

static void prepare_may_refuse(void)
{
    static const char *const codes[] = {"destination_refused", "prepare_check_failed"};
    for (int i = 0; i < 2; i++) {
        at(DIR_STAGE_PREPARE, 0);
        Cadastre__OperationReport m = report("n2");
        Cadastre__Check check, *checks[] = {&check};
        cadastre__check__init(&check);
        check.name = text_lent("disk");
        m.refused = text_lent(i == 0 ? "no" : "");
        m.n_checks = i == 0 ? 0 : 1;
        m.checks = checks;
        CHECK_U64(tell(&m)->err.code, ERR_OK);
        CHECK(it()->state == DIR_OPERATION_ABORTED && role_on("n2") == 0 && has_duty("n2"));
        CHECK_STR(it()->attention_code, codes[i]);
        world_close_checked(&w);
    }
}

static void headroom_is_asked_for(void)
{
    at(DIR_STAGE_SNAPSHOT, 0);
    Cadastre__OperationReport m = report("n1");
    m.has = DIR_REPORT_SNAPSHOT | DIR_REPORT_POSITION | DIR_REPORT_BYTES_TOTAL;
    m.snapshot = text_lent("s1");
    m.bytes_total = 1100;
    (void)tell(&m);
    CHECK_STR(it()->attention_code, "insufficient_headroom");
    world_close_checked(&w);
}

static void damaged_chunks_abort(void)
{
    at(DIR_STAGE_COPY, 0);
    Cadastre__OperationReport m = report("n2");
    m.has = DIR_REPORT_CHUNK | DIR_REPORT_BYTES_DONE;
    m.chunk = 3;
    (void)tell(&m);
    CHECK(it()->stage == DIR_STAGE_COPY && it()->chunk == 3);
    m = report("n2");
    m.has = DIR_REPORT_CHUNK | DIR_REPORT_BYTES_DONE;
    m.checksum_failures = 1000;
    (void)tell(&m);
    CHECK_STR(it()->attention_code, "checksum_failures");
    world_close_checked(&w);
}

/* What the next report lacks, by pointer; nothing of it counts. */
static void a_report_says_what_it_lacks(void)
{
    static char long_name[DIR_TEXT_MAX + 2];
    Cadastre__Check check, *checks[] = {&check};
    at(DIR_STAGE_PREPARE, 0);
    Cadastre__OperationReport m = report("n2");
    m.has = DIR_REPORT_READY;
    CHECK_STR(tell(&m)->err.pointer, "/free_bytes");
    m.has = DIR_REPORT_FREE_BYTES;
    CHECK_STR(tell(&m)->err.pointer, "/ready");
    m.has = DIR_REPORT_READY | DIR_REPORT_FREE_BYTES;
    m.refused = text_lent("no\x1b[2J");
    CHECK_STR(tell(&m)->err.pointer, "/refused");
    m.refused = text_lent("");
    m.problem = text_lent("\xc3");
    CHECK_STR(tell(&m)->err.pointer, "/problem");
    m.problem = text_lent("");
    memset(long_name, 'a', sizeof long_name - 1);
    cadastre__check__init(&check);
    m.n_checks = 1;
    m.checks = checks;
    const char *const names[] = {"", "a\nb", long_name};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        check.name = text_lent(names[i]);
        const struct dir_result *r = tell(&m);
        CHECK(r->err.code == ERR_INVALID_REQUEST && strcmp(r->err.pointer, "/checks") == 0);
    }
    CHECK(it()->stage == DIR_STAGE_PREPARE && it()->destination_says.seq == 0);
    m.n_checks = 0;
    CHECK_U64(tell(&m)->err.code, ERR_OK);
    to_stage(DIR_STAGE_SNAPSHOT);
    m = report("n1");
    m.has = DIR_REPORT_SNAPSHOT | DIR_REPORT_BYTES_TOTAL;
    m.snapshot = text_lent("s1");
    CHECK_STR(tell(&m)->err.pointer, "/position");
    m.has |= DIR_REPORT_POSITION;
    m.snapshot = text_lent("s\n1");
    CHECK_STR(tell(&m)->err.pointer, "/snapshot");
    CHECK(it()->stage == DIR_STAGE_SNAPSHOT);
    to_stage(DIR_STAGE_WINDOW);
    m = report("n1");
    m.has = DIR_REPORT_OPEN_OPERATIONS;
    CHECK_STR(tell(&m)->err.pointer, "/stale_reads");
    world_close_checked(&w);
}

static void a_gap_begins_at_the_snapshot_again(void)
{
    at(DIR_STAGE_CATCH_UP, 0);
    uint64_t old = it()->copy;
    Cadastre__OperationReport m = report("n2");
    m.gap = true;
    (void)tell(&m);
    CHECK(it()->stage == DIR_STAGE_SNAPSHOT && it()->attempt == 2 && it()->copy > old);
    CHECK(has_duty("n2") && it()->snapshot[0] == '\0');
    world_close_checked(&w);
}

/* The source restarted without it, or made another in its place. */
static void a_lost_snapshot_is_made_again(void)
{
    at(DIR_STAGE_COPY, 0);
    uint64_t old = it()->copy;
    Cadastre__OperationReport m = report("n2");
    m.gap = true;
    CHECK_U64(tell(&m)->err.code, ERR_OK);
    CHECK(it()->stage == DIR_STAGE_SNAPSHOT && it()->attempt == 2 && it()->copy > old);
    CHECK(has_duty("n2") && it()->snapshot[0] == '\0');
    struct dir_task got[DIR_TASK_CLEANUP + 1];
    collect_tasks("n2", got);
    CHECK(got[DIR_TASK_CLEANUP].copy == old && got[DIR_TASK_CLEANUP].operation == NULL);
    world_close_checked(&w);
}

static void lag_keeps_it_in_catch_up(void)
{
    at(DIR_STAGE_CATCH_UP, 0);
    Cadastre__OperationReport m = report("n2");
    m.has = DIR_REPORT_APPLIED_POSITION | DIR_REPORT_LAG_BYTES;
    m.lag_bytes = (1 << 20) + 1;
    (void)tell(&m);
    CHECK_U64(it()->stage, DIR_STAGE_CATCH_UP);
    world_close_checked(&w);
}

static void joined_only_after_both_sides(void)
{
    at(DIR_STAGE_DUAL_WRITE, 0);
    (void)applied(500);
    CHECK(!it()->joined); /* the source has not said from where on */
    (void)active();
    CHECK(!it()->joined && it()->from_position == 120);
    (void)applied(119);
    CHECK(!it()->joined && it()->stage == DIR_STAGE_DUAL_WRITE);
    (void)applied(120);
    CHECK(it()->joined && it()->stage == DIR_STAGE_VALIDATE);
    world_close_checked(&w);
}

static void passed_positions_move_away(void)
{
    at(DIR_STAGE_VALIDATE, 0);
    uint64_t first = it()->validate_at;
    CHECK_U64(sum("n1", 5)->err.code, ERR_OK);
    Cadastre__OperationReport m = report("n2");
    m.passed = true;
    m.has = DIR_REPORT_AT_POSITION;
    m.at_position = first + 50;
    (void)tell(&m);
    CHECK(it()->validate_at > first + 50 && !it()->source_says.has_values);
    m = report("n1");
    m.has = DIR_REPORT_AT_POSITION | DIR_REPORT_ITEMS | DIR_REPORT_CHECKSUM;
    m.at_position = first;
    CHECK_U64(tell(&m)->err.code, ERR_STALE_REPORT);
    /* That the first one was passed is no reason to go further than the second. */
    uint64_t second = it()->validate_at;
    m = report("n1");
    m.passed = true;
    m.has = DIR_REPORT_AT_POSITION;
    m.at_position = second - 1;
    CHECK_U64(tell(&m)->err.code, ERR_STALE_REPORT);
    CHECK_U64(it()->validate_at, second);
    world_close_checked(&w);
}

static void a_mismatch_copies_once_more_then_aborts(void)
{
    at(DIR_STAGE_VALIDATE, 0);
    (void)sum("n1", 5);
    (void)sum("n2", 6);
    CHECK(it()->stage == DIR_STAGE_COPY && it()->attempt == 2 && !it()->joined);
    to_stage(DIR_STAGE_VALIDATE);
    (void)sum("n2", 6);
    (void)sum("n1", 5);
    CHECK(it()->state == DIR_OPERATION_ABORTED);
    CHECK_STR(it()->attention_code, "validation_mismatch");
    CHECK(it()->source_says.checksum == 5 && it()->destination_says.checksum == 6);
    world_close_checked(&w);
}

static void a_fence_is_of_its_epoch(void)
{
    at(DIR_STAGE_FENCE, 0);
    Cadastre__OperationReport m = report("n1");
    m.has = DIR_REPORT_FENCED | DIR_REPORT_FINAL_POSITION | DIR_REPORT_CHECKSUM;
    m.fenced = true;
    m.epoch = part()->epoch - 1;
    CHECK_U64(tell(&m)->err.code, ERR_STALE_REPORT);
    CHECK_U64(it()->stage, DIR_STAGE_FENCE);
    world_close_checked(&w);
}

static void the_cutover_waits_and_compares(void)
{
    at(DIR_STAGE_CUTOVER, 0);
    CHECK_U64(cut_over(149, 77)->err.code, ERR_OK);
    CHECK_U64(it()->stage, DIR_STAGE_CUTOVER);
    uint64_t epoch = part()->epoch;
    (void)cut_over(150, 78);
    CHECK(it()->state == DIR_OPERATION_ABORTED && part()->epoch > epoch);
    CHECK(part()->state == DIR_ACTIVE);
    CHECK_STR(primary(), "n1");
    world_close_checked(&w);
}

/* --- what the keyspace's policy changes --- */

static const struct dir_result *set_policy(Cadastre__PolicyRules *rules)
{
    Cadastre__KeyspacePatch m;
    cadastre__keyspace_patch__init(&m);
    m.keyspace = world_keyspace(&w, "orders")->id;
    m.has_policy = true;
    m.rules = rules;
    return world_do(&w, CADASTRE__COMMAND__BODY_KEYSPACE_PATCH, &m);
}

static void policy_value(enum dir_policy_value which, uint64_t value, enum err_code want)
{
    Cadastre__PolicyValue v, *values[] = {&v};
    Cadastre__PolicyRules rules;
    cadastre__policy_value__init(&v);
    cadastre__policy_rules__init(&rules);
    v.which = which;
    v.value = value;
    rules.n_values = 1;
    rules.values = values;
    CHECK_U64(set_policy(&rules)->err.code, want);
}

static void policy_checks(char **names, size_t count)
{
    Cadastre__PolicyRules rules;
    cadastre__policy_rules__init(&rules);
    rules.n_required_checks = count;
    rules.required_checks = names;
    CHECK_U64(set_policy(&rules)->err.code, ERR_OK);
}

static void prepare_with(const char *check, bool ready)
{
    Cadastre__OperationReport m = report("n2");
    Cadastre__Check c, *checks[] = {&c};
    cadastre__check__init(&c);
    c.name = text_lent(check != NULL ? check : "");
    c.ok = true;
    m.has = DIR_REPORT_READY | DIR_REPORT_FREE_BYTES;
    m.ready = ready;
    m.free_bytes = 1200;
    m.n_checks = check != NULL ? 1 : 0;
    m.checks = checks;
    CHECK_U64(tell(&m)->err.code, ERR_OK);
}

static void a_required_check_is_missed(void)
{
    char *names[] = {text_lent("schema"), text_lent("encryption")};
    at(DIR_STAGE_PREPARE, 0);
    policy_checks(names, 2);
    prepare_with(NULL, false); /* not ready: it may still come */
    CHECK_U64(it()->stage, DIR_STAGE_PREPARE);
    prepare_with("schema", true);
    CHECK(it()->state == DIR_OPERATION_ABORTED && has_duty("n2"));
    CHECK_STR(it()->attention_code, "prepare_check_failed");
    CHECK_STR(it()->attention, "encryption");
    world_close_checked(&w);
    at(DIR_STAGE_PREPARE, 0);
    policy_checks(names, 1);
    prepare_with("schema", true);
    CHECK_U64(it()->stage, DIR_STAGE_SNAPSHOT);
    policy_checks(NULL, 0);
    CHECK_U64(world_keyspace(&w, "orders")->rules.check_count, 0);
    world_close_checked(&w);
}

static void a_cold_destination_waits_before_the_fence(void)
{
    for (int late = 0; late < 2; late++) {
        at(DIR_STAGE_VALIDATE, 0);
        policy_value(DIR_POLICY_REQUIRE_WARM, 1, ERR_OK);
        (void)sum("n1", 5);
        CHECK_U64(sum("n2", 5)->err.code, ERR_OK);
        CHECK(it()->stage == DIR_STAGE_VALIDATE && part()->state == DIR_ACTIVE);
        Cadastre__OperationReport m = report(late != 0 ? "n1" : "n2");
        m.warm = true;
        CHECK_U64(tell(&m)->err.code, late != 0 ? ERR_INVALID_REQUEST : ERR_OK);
        CHECK_U64(it()->stage, late != 0 ? DIR_STAGE_VALIDATE : DIR_STAGE_FENCE);
        (void)time_out(); /* another attempt has to say it again */
        CHECK(!it()->warm);
        world_close_checked(&w);
    }
}

static void policy_goes_before_settings(void)
{
    at(DIR_STAGE_SNAPSHOT, 0);
    policy_value(DIR_POLICY_HEADROOM_PPM, 1300000, ERR_OK);
    Cadastre__OperationReport m = report("n1");
    m.has = DIR_REPORT_SNAPSHOT | DIR_REPORT_POSITION | DIR_REPORT_BYTES_TOTAL;
    m.snapshot = text_lent("s1");
    m.bytes_total = 1000;
    (void)tell(&m);
    CHECK_STR(it()->attention_code, "insufficient_headroom");
    world_close_checked(&w);
    at(DIR_STAGE_COPY, 0);
    policy_value(DIR_POLICY_MAX_CHECKSUM_FAILURES, 0, ERR_OK);
    m = report("n2");
    m.has = DIR_REPORT_CHUNK | DIR_REPORT_BYTES_DONE;
    m.checksum_failures = 1;
    (void)tell(&m);
    CHECK_STR(it()->attention_code, "checksum_failures");
    world_close_checked(&w);
    at(DIR_STAGE_CATCH_UP, 0);
    policy_value(DIR_POLICY_CUTOVER_LAG_BYTES, 5, ERR_OK);
    m = report("n2");
    m.has = DIR_REPORT_APPLIED_POSITION | DIR_REPORT_LAG_BYTES;
    m.lag_bytes = 6;
    (void)tell(&m);
    CHECK_U64(it()->stage, DIR_STAGE_CATCH_UP);
    policy_value(DIR_POLICY_FENCE_MAX_MS, 0, ERR_INVALID_REQUEST);
    CHECK_STR(w.result->err.pointer, "/policy/fence_max_ms");
    policy_value(DIR_POLICY_VALUES, 0, ERR_INVALID_REQUEST);
    const struct dir_keyspace *ks = world_keyspace(&w, "orders");
    CHECK_U64(dir_policy_get(world_state(&w), ks, DIR_POLICY_CUTOVER_LAG_BYTES), 5);
    CHECK_U64(dir_policy_get(world_state(&w), ks, DIR_POLICY_FENCE_MAX_MS),
              world_state(&w)->settings.fence_max_ms);
    CHECK_U64(dir_policy_space(world_state(&w), NULL, 1000001), 1200002);
    world_close_checked(&w);
}

/* --- reports that do not count --- */

static void the_same_report_is_answered_the_same(void)
{
    at(DIR_STAGE_PREPARE, 0);
    Cadastre__OperationReport m = report("n2");
    m.has = DIR_REPORT_READY | DIR_REPORT_FREE_BYTES;
    m.ready = true;
    m.free_bytes = 1200;
    (void)tell(&m);
    dir_rev revision = world_state(&w)->revision;
    CHECK_U64(tell(&m)->err.code, ERR_OK);
    CHECK_U64(world_state(&w)->revision, revision);
    m.free_bytes++;
    CHECK_U64(tell(&m)->err.code, ERR_STALE_REPORT);
    world_close_checked(&w);
}

static void reports_of_others_do_not_count(void)
{
    at(DIR_STAGE_COPY, 1);
    dir_rev revision = world_state(&w)->revision;
    for (int i = 0; i < 6; i++) {
        Cadastre__OperationReport m = report(i == 0 ? "n3" : i == 1 ? "n1" : "n2");
        m.has = DIR_REPORT_CHUNK | DIR_REPORT_BYTES_DONE;
        m.attempt += i == 2;
        m.stage -= i == 3;
        m.session -= i == 4;
        m.seq = i == 5 ? 1 : m.seq;
        CHECK_U64(tell(&m)->err.code, ERR_STALE_REPORT);
    }
    Cadastre__OperationReport m = report("n2");
    m.operation = 99999;
    CHECK_U64(tell(&m)->err.code, ERR_OPERATION_NOT_FOUND);
    CHECK_U64(world_state(&w)->revision, revision);
    world_close_checked(&w);
}

/* --- people and timers --- */

static void an_abort_before_the_fence_keeps_the_epoch(void)
{
    for (int s = DIR_STAGE_QUEUED; s <= DIR_STAGE_CUTOVER; s++) {
        at((enum dir_stage)s, 0);
        uint64_t epoch = part()->epoch;
        tap_note("abort in %s", dir_stage_name((enum dir_stage)s));
        CHECK_U64(verb(CADASTRE__OPERATION_VERB_KIND__ABORT)->err.code, ERR_OK);
        CHECK(it()->state == DIR_OPERATION_ABORTED && part()->operation == 0);
        CHECK(part()->state == DIR_ACTIVE && role_on("n2") == 0);
        CHECK((part()->epoch > epoch) == (s >= DIR_STAGE_FENCE));
        CHECK(has_duty("n2") == (s > DIR_STAGE_QUEUED));
        CHECK_STR(primary(), "n1");
        CHECK_U64(verb(CADASTRE__OPERATION_VERB_KIND__ABORT)->err.code, ERR_OK);
        world_close_checked(&w);
    }
    at(DIR_STAGE_WINDOW, 0);
    CHECK_U64(verb(CADASTRE__OPERATION_VERB_KIND__ABORT)->err.code, ERR_PAST_CUTOVER);
    world_close_checked(&w);
}

static void a_time_out_tries_again(void)
{
    for (int s = DIR_STAGE_PREPARE; s <= DIR_STAGE_CUTOVER; s++) {
        at((enum dir_stage)s, 0);
        uint64_t epoch = part()->epoch;
        tap_note("time-out in %s", dir_stage_name((enum dir_stage)s));
        CHECK_U64(time_out()->err.code, ERR_OK);
        CHECK_U64(it()->attempt, 2);
        CHECK_U64(it()->stage, s < DIR_STAGE_DUAL_WRITE ? s : DIR_STAGE_CATCH_UP);
        CHECK(!it()->joined && (part()->epoch > epoch) == (s >= DIR_STAGE_FENCE));
        /* One that is behind does nothing. */
        Cadastre__OperationTimeout m;
        cadastre__operation_timeout__init(&m);
        m.operation = op;
        m.attempt = 1;
        m.stage = (uint32_t)s;
        dir_rev revision = world_state(&w)->revision;
        (void)world_do(&w, CADASTRE__COMMAND__BODY_OPERATION_TIMEOUT, &m);
        CHECK_U64(world_state(&w)->revision, revision);
        to_stage(DIR_STAGE_WINDOW);
        world_close_checked(&w);
    }
}

static void attempts_are_bounded(void)
{
    at(DIR_STAGE_COPY, 0);
    for (int i = 0; i < DIR_ATTEMPTS_MAX; i++) {
        (void)time_out();
    }
    CHECK(it()->state == DIR_OPERATION_ABORTED);
    CHECK_STR(it()->attention_code, "attempts_exhausted");
    world_close_checked(&w);
}

static void a_busy_partition_is_left_alone(void)
{
    at(DIR_STAGE_COPY, 0);
    CHECK_U64(world_split(&w, part()->id, "m")->err.code, ERR_PARTITION_BUSY);
    CHECK_U64(start(DIR_OPERATION_MOVE, "", "n2")->err.code, ERR_PARTITION_BUSY);
    CHECK_U64(world_move(&w, part()->id, "n2")->err.code, ERR_PARTITION_BUSY);
    Cadastre__KeyspaceDelete m;
    cadastre__keyspace_delete__init(&m);
    m.keyspace = world_keyspace(&w, "orders")->id;
    CHECK_U64(world_do(&w, CADASTRE__COMMAND__BODY_KEYSPACE_DELETE, &m)->err.code,
              ERR_KEYSPACE_BUSY);
    world_close_checked(&w);
}

/* --- tried again --- */

#define RETRY CADASTRE__OPERATION_VERB_KIND__RETRY

static void an_aborted_move_begins_anew(void)
{
    for (int s = DIR_STAGE_QUEUED; s <= DIR_STAGE_CUTOVER; s++) {
        at((enum dir_stage)s, 0);
        uint64_t old_copy = it()->copy;
        tap_note("aborted in %s", dir_stage_name((enum dir_stage)s));
        (void)verb(CADASTRE__OPERATION_VERB_KIND__ABORT);
        CHECK_U64(verb(RETRY)->err.code, ERR_OK);
        CHECK(it()->state == DIR_OPERATION_QUEUED && part()->operation == op);
        CHECK(it()->attempt == 2 && it()->attention_code[0] == '\0' && it()->copy == 0);
        dir_rev revision = world_state(&w)->revision;
        CHECK_U64(verb(RETRY)->err.code, ERR_OK); /* it is on its way */
        CHECK_U64(world_state(&w)->revision, revision);
        if (s > DIR_STAGE_QUEUED) { /* the old candidate goes first */
            CHECK_U64(admit()->err.code, ERR_NO_DESTINATION);
            struct ptree_iter iter;
            ptree_seek(&world_state(&w)->duties, slice_of(NULL, 0), &iter);
            const struct dir_duty *d = ptree_iter_get(&iter, NULL);
            CHECK_U64(d->copy, old_copy);
            Cadastre__DutyDone m;
            cadastre__duty_done__init(&m);
            m.duty = d->id;
            m.node = text_lent("n2");
            m.session = agent_node(&w, "n2")->session;
            m.copy = d->copy;
            CHECK_U64(world_do(&w, CADASTRE__COMMAND__BODY_DUTY_DONE, &m)->err.code, ERR_OK);
        }
        to_stage(DIR_STAGE_WINDOW);
        CHECK(it()->copy > old_copy || s == DIR_STAGE_QUEUED);
        world_close_checked(&w);
    }
}

static void a_retry_has_its_own_attempts(void)
{
    at(DIR_STAGE_PREPARE, 0);
    for (int i = 0; i < DIR_ATTEMPTS_MAX; i++) {
        (void)time_out();
    }
    CHECK_STR(it()->attention_code, "attempts_exhausted");
    uint32_t attempts = it()->attempt;
    CHECK_U64(verb(RETRY)->err.code, ERR_OK);
    CHECK(it()->attempt == attempts + 1 && it()->state == DIR_OPERATION_QUEUED);
    world_close_checked(&w);
}

static void what_can_not_be_tried_again(void)
{
    open_world(1);
    uint64_t first = op;
    (void)verb(CADASTRE__OPERATION_VERB_KIND__ABORT);
    (void)start(DIR_OPERATION_MOVE, "n1", "n2");
    op = first;
    CHECK_U64(verb(RETRY)->err.code, ERR_PARTITION_BUSY);
    op = part()->operation;
    (void)verb(CADASTRE__OPERATION_VERB_KIND__ABORT);
    (void)agent_schedule(&w, "n2", CADASTRE__SCHEDULING_VERB__CORDON);
    CHECK_U64(verb(RETRY)->err.code, ERR_NO_DESTINATION);
    CHECK_STR(w.result->err.pointer, "");
    (void)agent_schedule(&w, "n2", CADASTRE__SCHEDULING_VERB__UNCORDON);
    end_session("n1");
    CHECK_STR(primary(), "n3");
    CHECK_U64(verb(RETRY)->err.code, ERR_NOT_OWNER);
    CHECK_U64(it()->state, DIR_OPERATION_ABORTED);
    (void)agent_put(&w, "n1", 0);
    (void)start(DIR_OPERATION_MOVE, "n1", "n2"); /* of what is another copy by now */
    (void)verb(CADASTRE__OPERATION_VERB_KIND__ABORT);
    end_session("n3");
    CHECK_U64(agent_failover(&w, part()->id, "n1", true)->err.code, ERR_OK);
    CHECK(it()->state == DIR_OPERATION_ABORTED && !it()->moves_primary);
    CHECK_U64(verb(RETRY)->err.code, ERR_NOT_OWNER);
    uint64_t id = part()->id;
    CHECK_U64(world_split(&w, id, "m")->err.code, ERR_OK);
    CHECK_U64(verb(RETRY)->err.code, ERR_STALE_EPOCH);
    CHECK(w.result->retired);
    op = 99999;
    Cadastre__OperationVerb m;
    cadastre__operation_verb__init(&m);
    m.operation = op;
    m.verb = RETRY;
    CHECK_U64(world_do(&w, CADASTRE__COMMAND__BODY_OPERATION_VERB, &m)->err.code,
              ERR_OPERATION_NOT_FOUND);
    world_close_checked(&w);
}

static void old_writes_are_known_at_the_second_time(void)
{
    at(DIR_STAGE_WINDOW, 0);
    uint64_t copy = part()->replicas[partition_copy_on(part(), agent_node(&w, "n1")->id)].copy;
    (void)verb(CADASTRE__OPERATION_VERB_KIND__FINISH_VALIDATION);
    for (uint64_t writes = 2; writes < 4; writes++) {
        Cadastre__OperationReport m = report("n1");
        m.has = DIR_REPORT_OLD_EPOCH_WRITES;
        m.old_epoch_writes = writes;
        (void)tell(&m);
        CHECK(it()->state == DIR_OPERATION_FAILED && !has_duty("n1"));
        CHECK_U64(verb(RETRY)->err.code, ERR_OK);
        CHECK(it()->stage == DIR_STAGE_CLEANUP && it()->attention_code[0] == '\0');
        CHECK(has_duty("n1") && duty_of_operation(world_state(&w), it())->copy == copy);
    }
    Cadastre__OperationReport m = report("n1");
    m.has = DIR_REPORT_OLD_EPOCH_WRITES;
    m.old_epoch_writes = 3;
    (void)tell(&m);
    CHECK(it()->state == DIR_OPERATION_DONE && it()->old_epoch_writes == 3);
    CHECK_U64(verb(RETRY)->err.code, ERR_PAST_CUTOVER);
    world_close_checked(&w);
}

static void a_copy_that_counts_again_is_not_cleaned_up(void)
{
    at(DIR_STAGE_WINDOW, 0);
    end_session("n2");
    CHECK_U64(agent_failover(&w, part()->id, "n1", true)->err.code, ERR_OK);
    uint64_t failed = it()->id;
    CHECK(it()->state == DIR_OPERATION_FAILED);
    CHECK_U64(verb(RETRY)->err.code, ERR_NODE_IN_USE);
    (void)agent_put(&w, "n2", 0);
    end_session("n1");
    CHECK_U64(agent_failover(&w, part()->id, "n2", true)->err.code, ERR_OK);
    op = failed;
    CHECK_U64(verb(RETRY)->err.code, ERR_OK);
    CHECK(it()->stage == DIR_STAGE_CLEANUP && role_on("n1") == 0 && has_duty("n1"));
    CHECK_STR(primary(), "n2");
    world_close_checked(&w);
}

/* --- the way back --- */

static const struct dir_result *finish(bool back)
{
    Cadastre__OperationVerb m;
    cadastre__operation_verb__init(&m);
    m.operation = op;
    m.verb = CADASTRE__OPERATION_VERB_KIND__FINISH_VALIDATION;
    m.back = back;
    return world_do(&w, CADASTRE__COMMAND__BODY_OPERATION_VERB, &m);
}

/* From here on the steps are those of the move back. */
static void go_back(void)
{
    uint64_t first = op;
    CHECK_U64(finish(true)->err.code, ERR_OK);
    CHECK(w.result->operation->id == first && w.result->operation->reversed_by != 0);
    op = it()->reversed_by;
    CHECK(op != 0 && it()->reverses == first && part()->operation == op);
    CHECK(view_operation(world_state(&w), first)->state == DIR_OPERATION_DONE);
    from = "n2";
    to = "n1";
}

static void the_way_back_begins_with_the_old_copy(void)
{
    at(DIR_STAGE_WINDOW, 0);
    uint64_t first = op, epoch = part()->epoch;
    uint64_t copy = part()->replicas[partition_copy_on(part(), agent_node(&w, "n1")->id)].copy;
    go_back();
    CHECK(it()->stage == DIR_STAGE_CATCH_UP && it()->copy == copy && !has_duty("n1"));
    CHECK(role_on("n1") == DIR_ROLE_JOINING && part()->epoch == epoch);
    CHECK(it()->base_position == 150 && it()->source_session == part()->session);
    dir_rev revision = world_state(&w)->revision;
    op = first;
    CHECK_U64(finish(true)->err.code, ERR_OK); /* once */
    CHECK_U64(finish(false)->err.code, ERR_STALE_REPORT);
    CHECK_U64(world_state(&w)->revision, revision);
    op = part()->operation;
    to_stage(DIR_STAGE_WINDOW);
    CHECK_STR(primary(), "n1");
    CHECK(part()->replicas[0].copy == copy && role_on("n2") == DIR_ROLE_ASYNC);
    world_close_checked(&w);
}

static void a_way_back_that_lost_its_base_begins_at_prepare(void)
{
    for (int how = 0; how < 3; how++) {
        at(DIR_STAGE_WINDOW, 0);
        go_back();
        uint64_t copy = it()->copy;
        Cadastre__OperationReport m;
        if (how == 0) {
            m = report(to);
            m.gap = true;
            CHECK_U64(tell(&m)->err.code, ERR_OK);
        } else if (how == 1) {
            (void)agent_put_copies(&w, "n1", NULL, 0);
        } else {
            to_stage(DIR_STAGE_VALIDATE);
            (void)sum(from, 5);
            (void)sum(to, 6);
        }
        CHECK(it()->stage == DIR_STAGE_PREPARE && it()->copy > copy && it()->base_position == 0);
        CHECK(has_duty("n1"));
        to_stage(DIR_STAGE_WINDOW);
        CHECK_STR(primary(), "n1");
        world_close_checked(&w);
    }
}

static void a_way_back_may_be_given_up(void)
{
    at(DIR_STAGE_WINDOW, 0);
    go_back();
    CHECK_U64(verb(CADASTRE__OPERATION_VERB_KIND__ABORT)->err.code, ERR_OK);
    CHECK(part()->operation == 0 && role_on("n1") == 0 && has_duty("n1"));
    CHECK_STR(primary(), "n2");
    world_close_checked(&w);
    at(DIR_STAGE_WINDOW, 0);
    end_session("n1");
    CHECK_U64(finish(true)->err.code, ERR_NO_DESTINATION);
    CHECK_U64(it()->stage, DIR_STAGE_WINDOW);
    world_close_checked(&w);
}

static void in_the_window_the_source_may_follow(void)
{
    struct dir_task got[DIR_TASK_CLEANUP + 1];
    for (int reverse = 0; reverse < 2; reverse++) {
        at(DIR_STAGE_CUTOVER, 1);
        policy_value(DIR_POLICY_REVERSE_REPLICATION, (uint64_t)reverse, ERR_OK);
        to_stage(DIR_STAGE_WINDOW);
        uint64_t copy = part()->replicas[partition_copy_on(part(), agent_node(&w, "n1")->id)].copy;
        for (int side = 0; side < 2; side++) {
            collect_tasks(side == 0 ? "n1" : "n2", got);
            const struct dir_task *t = &got[DIR_TASK_STAGE];
            CHECK(t->reverse == (reverse != 0) && t->is_source == (side == 0));
            CHECK(t->start_position == (reverse != 0 ? 150 : 0) && t->peer != NULL);
            CHECK(reverse == 0 || t->copy == (side == 0 ? copy : it()->copy));
        }
        CHECK(role_on("n1") == DIR_ROLE_ASYNC); /* and no heir, however well it follows */
        CHECK_U64(agent_insync(&w, part(), part()->session, "n1")->err.code, ERR_INVALID_REQUEST);
        CHECK_STR(w.result->err.pointer, "/insync/0");
        end_session("n3");
        end_session("n2");
        CHECK_STR(primary(), "");
        CHECK(role_on("n1") == DIR_ROLE_ASYNC);
        world_close_checked(&w);
    }
}

/* --- a part of a partition --- */

static const struct dir_result *
start_part(const char *key, const char *leaving, const char *part_start, const char *part_end)
{
    Cadastre__OperationStart m;
    cadastre__operation_start__init(&m);
    m.kind = DIR_OPERATION_MOVE;
    m.partition = agent_partition(&w, key)->id;
    m.from = text_lent(leaving);
    m.to = text_lent("n2");
    m.has_range = true;
    m.range_start.data = (uint8_t *)text_lent(part_start);
    m.range_start.len = strlen(part_start);
    m.range_end_open = part_end == NULL;
    m.range_end.data = (uint8_t *)text_lent(part_end != NULL ? part_end : "");
    m.range_end.len = part_end != NULL ? strlen(part_end) : 0;
    const struct dir_result *r = world_do(&w, CADASTRE__COMMAND__BODY_OPERATION_START, &m);
    if (r->err.code == ERR_OK) {
        op = r->operation->id;
    }
    return r;
}

static bool runs_from(const char *key, const char *start, const char *end)
{
    const struct dir_partition *p = agent_partition(&w, key);
    return slice_eq(dir_partition_start(p), slice_of(start, strlen(start))) &&
           (end == NULL
                ? p->end_open
                : !p->end_open && slice_eq(dir_partition_end(p), slice_of(end, strlen(end))));
}

static const char *owner_of(const char *key)
{
    const struct dir_node *n = view_primary(world_state(&w), agent_partition(&w, key));
    return n != NULL ? n->name : "";
}

static int role_at(const char *key, const char *node)
{
    const struct dir_partition *p = agent_partition(&w, key);
    int at = partition_copy_on(p, agent_node(&w, node)->id);
    return at >= 0 ? p->replicas[at].role : 0;
}

/* Of all keys, with or without a replica on n3, at this stage. */
static void part_at(enum dir_stage stage, uint32_t sync, const char *start, const char *end)
{
    open_world(sync);
    (void)verb(CADASTRE__OPERATION_VERB_KIND__ABORT);
    CHECK_U64(start_part("k", "", start, end)->err.code, ERR_OK);
    to_stage(stage);
}

static void which_parts_there_are(void)
{
    open_world(1);
    (void)verb(CADASTRE__OPERATION_VERB_KIND__ABORT);
    CHECK_U64(world_split(&w, part()->id, "t")->err.code, ERR_OK);
    static const struct {
        const char *key, *start, *end, *pointer;
    } rows[] = {
        {"k", "", NULL, "/range"},        {"k", "", "t", "/range"},
        {"k", "t", NULL, "/range/end"},   {"k", "f", "f", "/range/end"},
        {"k", "m", "f", "/range/end"},    {"k", "f", "z", "/range/end"},
        {"z", "f", NULL, "/range/start"}, {"z", "t", NULL, "/range"},
        {"z", "v", "", "/range/end"},     {"k", "f", "", "/range/end"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tap_note("row %zu", i);
        CHECK_U64(start_part(rows[i].key, "", rows[i].start, rows[i].end)->err.code,
                  ERR_BAD_SPLIT_KEY);
        CHECK_STR(w.result->err.pointer, rows[i].pointer);
    }
    CHECK_U64(start_part("k", "n3", "f", NULL)->err.code, ERR_INVALID_REQUEST);
    CHECK_STR(w.result->err.pointer, "/range");
    CHECK_U64(start_part("k", "n1", "f", NULL)->err.code, ERR_OK);
    CHECK(slice_eq(dir_part_end(&it()->part), slice_of("t", 1)) && !it()->part.end_open);
    (void)verb(CADASTRE__OPERATION_VERB_KIND__ABORT);
    CHECK_U64(start_part("z", "", "", "v")->err.code, ERR_OK); /* from its own start */
    CHECK(slice_eq(dir_part_start(&it()->part), slice_of("t", 1)));
    CHECK(runs_from("z", "t", NULL));
    world_close_checked(&w);
}

static void a_part_gets_an_id_of_its_own(void)
{
    static const struct {
        const char *start, *end; /* what moves */
        const char *moved;       /* a key of it */
        const char *left, *right;
    } rows[] = {{"f", "t", "k", "a", "z"}, {"", "t", "k", NULL, "z"}, {"f", NULL, "k", "a", NULL}};
    for (int i = 0; i < 3; i++) {
        part_at(DIR_STAGE_CUTOVER, 1, rows[i].start, rows[i].end);
        uint64_t old = part()->id, epoch = part()->epoch, candidate = it()->copy;
        uint64_t copy = part()->replicas[0].copy;
        tap_note("row %d", i);
        CHECK(part()->state == DIR_FENCING && it()->retired == 0);
        to_stage(DIR_STAGE_WINDOW);
        const struct dir_partition *p = part();
        CHECK(p->id != old && it()->partition == p->id && it()->retired == old);
        CHECK(p->operation == op && p->start_position == 150 && p->replicas[0].copy == candidate);
        CHECK(p->epoch == it()->epoch_after && p->epoch > epoch && p->created == p->epoch);
        CHECK_STR(primary(), "n2");
        CHECK(role_on("n1") == DIR_ROLE_ASYNC && role_on("n3") == DIR_ROLE_SYNC);
        CHECK(p->parent_count == 1 && dir_partition_parents(p)[0] == old);
        const char *rest[] = {rows[i].left, rows[i].right};
        for (int side = 0; side < 2; side++) {
            if (rest[side] == NULL) {
                continue;
            }
            p = agent_partition(&w, rest[side]);
            CHECK(p->id != old && p->operation == 0 && p->state == DIR_ACTIVE);
            CHECK(p->epoch == it()->epoch_after && p->replicas[0].copy == copy);
            CHECK_STR(owner_of(rest[side]), "n1");
            CHECK(role_at(rest[side], "n3") == DIR_ROLE_SYNC && role_at(rest[side], "n2") == 0);
            CHECK(runs_from(rest[side], side == 0 ? "" : "t", side == 0 ? "f" : NULL));
        }
        CHECK(runs_from("k", rows[i].start, rows[i].end));
        CHECK(w.effects->kind == DIR_CHANGE_SPLIT);
        CHECK_U64(world_split(&w, old, "g")->err.code, ERR_STALE_EPOCH);
        CHECK(w.result->retired && w.result->route_count == 2U + (i == 0));
        (void)finish(false);
        CHECK(it()->stage == DIR_STAGE_CLEANUP && role_on("n1") == 0);
        CHECK(duty_of_operation(world_state(&w), it())->partition == part()->id);
        world_close_checked(&w);
    }
}

static void a_part_that_does_not_move_changes_nothing(void)
{
    for (int s = DIR_STAGE_QUEUED; s <= DIR_STAGE_CUTOVER; s++) {
        part_at((enum dir_stage)s, 0, "f", "t");
        uint64_t id = part()->id;
        tap_note("abort in %s", dir_stage_name((enum dir_stage)s));
        CHECK_U64(verb(CADASTRE__OPERATION_VERB_KIND__ABORT)->err.code, ERR_OK);
        CHECK(part()->id == id && role_on("n2") == 0 && runs_from("k", "", NULL));
        CHECK_U64(verb(RETRY)->err.code, ERR_OK);
        CHECK(it()->part.is_set);
        world_close_checked(&w);
    }
}

/* How many routes the last command's change has; it retires this id. */
static uint64_t told_routes(uint64_t retired)
{
    struct dir_change *changes[8];
    dir_rev last, now = world_state(&w)->revision;
    int64_t n = feed_read(directory_feed(w.d), 0, now - 1, now, changes, 8, &last);
    uint64_t routes = 0;
    CHECK(n == 1 && changes[0]->removed_count == 1 && changes[0]->removed[0] == retired);
    for (int64_t i = 0; i < n; i++) {
        routes += changes[i]->route_count;
        change_unref(changes[i]);
    }
    return routes;
}

/* Its source lapses when the part has been validated: the part goes forward, the rest elsewhere. */
static void the_rest_of_a_lapsed_source_fails_over(void)
{
    for (uint32_t sync = 0; sync < 2; sync++) {
        for (int s = DIR_STAGE_FENCE; s <= DIR_STAGE_CUTOVER; s++) {
            part_at((enum dir_stage)s, sync, "f", "t");
            uint64_t id = part()->id;
            end_session("n1");
            CHECK_STR(owner_of("k"), "n2");
            CHECK_STR(owner_of("a"), sync > 0 ? "n3" : "");
            CHECK_STR(owner_of("z"), sync > 0 ? "n3" : "");
            CHECK(it()->stage == DIR_STAGE_WINDOW && role_on("n1") == DIR_ROLE_ASYNC);
            CHECK_U64(told_routes(id), 3);
            (void)agent_put(&w, "n1", 0);
            CHECK_STR(owner_of("a"), sync > 0 ? "n3" : "n1");
            world_close_checked(&w);
        }
    }
    part_at(DIR_STAGE_VALIDATE, 0, "f", "t");
    end_session("n1");
    CHECK_U64(verb(CADASTRE__OPERATION_VERB_KIND__PROMOTE_CANDIDATE)->err.code, ERR_OK);
    CHECK_STR(owner_of("k"), "n2");
    CHECK_STR(owner_of("a"), "");
    CHECK(agent_partition(&w, "a")->state == DIR_UNAVAILABLE);
    (void)agent_put(&w, "n1", 0);
    CHECK_STR(owner_of("a"), "n1");
    world_close_checked(&w);
}

static void a_part_comes_back_as_the_partition_that_it_is(void)
{
    part_at(DIR_STAGE_WINDOW, 0, "f", "t");
    uint64_t id = part()->id;
    go_back();
    CHECK(!it()->part.is_set && it()->partition == id);
    to_stage(DIR_STAGE_WINDOW);
    CHECK(part()->id == id && runs_from("k", "f", "t"));
    CHECK_STR(primary(), "n1");
    world_close_checked(&w);
}

static void tasks_say_which_part(void)
{
    struct dir_task got[DIR_TASK_CLEANUP + 1];
    part_at(DIR_STAGE_COPY, 0, "f", NULL);
    for (int side = 0; side < 2; side++) {
        collect_tasks(side == 0 ? "n1" : "n2", got);
        const struct dir_task *t = &got[DIR_TASK_STAGE];
        CHECK(slice_eq(t->start, slice_of("f", 1)) && t->end_open);
        t = &got[DIR_TASK_GRANT];
        CHECK_U64(t->start.len, side); /* the candidate has only that */
    }
    world_close_checked(&w);
}

/* --- when something dies --- */

static void the_source_lapses_before_joined(void)
{
    for (int s = DIR_STAGE_PREPARE; s <= DIR_STAGE_DUAL_WRITE; s++) {
        at((enum dir_stage)s, 1);
        tap_note("in %s", dir_stage_name((enum dir_stage)s));
        end_session("n1");
        CHECK_STR(primary(), "n3");
        CHECK(it()->state == DIR_OPERATION_ABORTED && role_on("n2") == 0 && has_duty("n2"));
        world_close_checked(&w);
        at((enum dir_stage)s, 0);
        end_session("n1");
        CHECK_STR(primary(), "");
        CHECK(it()->state == DIR_OPERATION_RUNNING);
        CHECK_STR(it()->attention_code, "source_lapsed");
        (void)agent_put(&w, "n1", 0);
        CHECK_STR(primary(), "n1");
        CHECK_STR(it()->attention_code, "");
        CHECK(it()->attempt == 2 && it()->epoch_before == part()->epoch);
        CHECK_U64(it()->stage, s < DIR_STAGE_DUAL_WRITE ? s : DIR_STAGE_CATCH_UP);
        to_stage(DIR_STAGE_WINDOW);
        world_close_checked(&w);
    }
}

static void nothing_waits_for_a_node_that_is_gone(void)
{
    open_world(0);
    Cadastre__NodeDelete m;
    cadastre__node_delete__init(&m);
    m.name = text_lent("n2");
    CHECK_U64(world_do(&w, CADASTRE__COMMAND__BODY_NODE_DELETE, &m)->err.code, ERR_OK);
    CHECK(it()->state == DIR_OPERATION_ABORTED && part()->operation == 0);
    CHECK_STR(it()->attention_code, "node_removed");
    world_close_checked(&w);
    at(DIR_STAGE_WINDOW, 0);
    end_session("n2");
    CHECK_STR(it()->attention_code, "destination_lapsed");
    (void)agent_put(&w, "n2", 0);
    CHECK_STR(it()->attention_code, "");
    world_close_checked(&w);
}

static void forward_only_after_an_equal_validation(void)
{
    at(DIR_STAGE_VALIDATE, 0);
    end_session("n1");
    CHECK_STR(primary(), "");
    CHECK(it()->joined);
    CHECK_STR(it()->attention_code, "source_lapsed");
    CHECK_U64(verb(CADASTRE__OPERATION_VERB_KIND__ABORT)->err.code, ERR_SOURCE_LAPSED);
    dir_rev revision = world_state(&w)->revision;
    (void)time_out();
    CHECK_U64(world_state(&w)->revision, revision);
    CHECK_U64(verb(CADASTRE__OPERATION_VERB_KIND__PROMOTE_CANDIDATE)->err.code, ERR_OK);
    CHECK_STR(primary(), "n2");
    CHECK_STR(it()->attention_code, "unvalidated");
    world_close_checked(&w);
    at(DIR_STAGE_VALIDATE, 1); /* a replica has every write, and is preferred */
    end_session("n1");
    CHECK_STR(primary(), "n3");
    CHECK(it()->state == DIR_OPERATION_ABORTED);
    world_close_checked(&w);
    for (int s = DIR_STAGE_FENCE; s <= DIR_STAGE_CUTOVER; s++) {
        at((enum dir_stage)s, 1);
        uint64_t epoch = part()->epoch;
        end_session("n1");
        CHECK_STR(primary(), "n2");
        CHECK(it()->stage == DIR_STAGE_WINDOW && part()->epoch > epoch);
        CHECK(part()->start_position == (s == DIR_STAGE_CUTOVER ? 150 : 0));
        world_close_checked(&w);
    }
}

static void the_destination_lapses(void)
{
    for (int s = DIR_STAGE_DUAL_WRITE; s <= DIR_STAGE_CUTOVER; s++) {
        at((enum dir_stage)s, 0);
        uint64_t epoch = part()->epoch;
        end_session("n2");
        CHECK(it()->stage == DIR_STAGE_CATCH_UP && it()->attempt == 2 && !it()->joined);
        CHECK((part()->epoch > epoch) == (s >= DIR_STAGE_FENCE) && part()->state == DIR_ACTIVE);
        CHECK_U64(catch_up()->err.code, ERR_STALE_REPORT);
        (void)agent_put(&w, "n2", 0);
        to_stage(DIR_STAGE_WINDOW);
        world_close_checked(&w);
    }
}

static void either_side_registers_again(void)
{
    for (int s = DIR_STAGE_PREPARE; s <= DIR_STAGE_CUTOVER; s++) {
        for (int who = 0; who < 2; who++) {
            at((enum dir_stage)s, 0);
            const char *name = who == 0 ? "n1" : "n2";
            uint64_t epoch = part()->epoch;
            tap_note("%s in %s", name, dir_stage_name((enum dir_stage)s));
            (void)agent_put(&w, name, agent_node(&w, name)->session);
            CHECK(!it()->joined && part()->state == DIR_ACTIVE);
            CHECK_U64(it()->stage, s < DIR_STAGE_DUAL_WRITE ? s : DIR_STAGE_CATCH_UP);
            CHECK((part()->epoch > epoch) == (who == 0 || s >= DIR_STAGE_FENCE));
            CHECK_U64(it()->attempt, 2); /* one restart is one attempt of eight */
            to_stage(DIR_STAGE_WINDOW);
            world_close_checked(&w);
        }
    }
}

static void a_lost_candidate_is_begun_again(void)
{
    at(DIR_STAGE_VALIDATE, 0);
    (void)agent_put_copies(&w, "n2", NULL, 0);
    CHECK(it()->stage == DIR_STAGE_SNAPSHOT && !it()->joined);
    world_close_checked(&w);
    at(DIR_STAGE_WINDOW, 0);
    end_session("n2"); /* as any primary's death: the old source is no heir */
    CHECK_STR(primary(), "");
    CHECK_U64(role_on("n1"), DIR_ROLE_ASYNC);
    world_close_checked(&w);
}

static void a_forced_failover_ends_it(void)
{
    at(DIR_STAGE_COPY, 1);
    (void)agent_insync(&w, part(), part()->session, "");
    end_session("n1");
    CHECK_STR(primary(), "");
    uint64_t id = op;
    CHECK_U64(agent_failover(&w, part()->id, "n3", true)->err.code, ERR_OK);
    CHECK(view_operation(world_state(&w), id)->state == DIR_OPERATION_ABORTED);
    CHECK_STR(primary(), "n3");
    world_close_checked(&w);
}

/* --- the other kinds --- */

static void a_replica_is_added_and_removed(void)
{
    open_world(0);
    (void)verb(CADASTRE__OPERATION_VERB_KIND__ABORT);
    CHECK_U64(start(DIR_OPERATION_ADD_REPLICA, "", "n2")->err.code, ERR_OK);
    uint64_t epoch = part()->epoch;
    to_stage(DIR_STAGE_VALIDATE);
    (void)sum("n1", 5);
    (void)sum("n2", 5);
    CHECK(it()->state == DIR_OPERATION_DONE && role_on("n2") == DIR_ROLE_SYNC);
    CHECK(part()->epoch == epoch && part()->operation == 0);
    CHECK_U64(start(DIR_OPERATION_TRANSFER, "", "n2")->err.code, ERR_OK);
    to_stage(DIR_STAGE_FENCE);
    (void)fence();
    (void)cut_over(150, 77);
    CHECK(it()->state == DIR_OPERATION_DONE);
    CHECK_STR(primary(), "n2");
    CHECK(role_on("n1") == DIR_ROLE_SYNC && part()->epoch > epoch);
    CHECK_U64(start(DIR_OPERATION_REMOVE_REPLICA, "n1", "")->err.code, ERR_OK);
    (void)admit();
    CHECK(it()->stage == DIR_STAGE_CLEANUP && role_on("n1") == 0 && has_duty("n1"));
    CHECK_U64(start(DIR_OPERATION_REMOVE_REPLICA, "n2", "")->err.code, ERR_NO_DESTINATION);
    world_close_checked(&w);
}

static void another_copy_moves_without_a_fence(void)
{
    open_world(1);
    (void)verb(CADASTRE__OPERATION_VERB_KIND__ABORT);
    CHECK_U64(start(DIR_OPERATION_MOVE, "n3", "n2")->err.code, ERR_OK);
    uint64_t epoch = part()->epoch;
    to_stage(DIR_STAGE_VALIDATE);
    (void)sum("n1", 5);
    (void)sum("n2", 5);
    CHECK(it()->stage == DIR_STAGE_CLEANUP && part()->epoch == epoch);
    CHECK(role_on("n2") == DIR_ROLE_SYNC && role_on("n3") == 0 && has_duty("n3"));
    CHECK_STR(primary(), "n1");
    world_close_checked(&w);
}

static void what_can_not_be_started(void)
{
    open_world(1);
    (void)verb(CADASTRE__OPERATION_VERB_KIND__ABORT);
    CHECK_U64(start(DIR_OPERATION_MOVE, "n2", "n2")->err.code, ERR_NOT_OWNER);
    CHECK_U64(start(DIR_OPERATION_MOVE, "n1", "n3")->err.code, ERR_NO_DESTINATION);
    CHECK_U64(start(DIR_OPERATION_MOVE, "n1", "n9")->err.code, ERR_NODE_NOT_FOUND);
    CHECK_U64(start(DIR_OPERATION_TRANSFER, "", "n2")->err.code, ERR_NO_DESTINATION);
    CHECK_U64(start(DIR_OPERATION_REMOVE_REPLICA, "n3", "")->err.code, ERR_PLACEMENT_VIOLATED);
    CHECK_U64(start(DIR_OPERATION_FAILOVER, "", "n3")->err.code, ERR_INVALID_REQUEST);
    CHECK_STR(start(DIR_OPERATION_MOVE, "", "n9")->err.pointer, "/to");
    CHECK_STR(start(DIR_OPERATION_ADD_REPLICA, "", "n9")->err.pointer, "/node");
    CHECK_STR(start(DIR_OPERATION_ADD_REPLICA, "", "n3")->err.pointer, "/node");
    CHECK_STR(start(DIR_OPERATION_REMOVE_REPLICA, "n9", "")->err.pointer, ""); /* in the path */
    (void)agent_schedule(&w, "n2", CADASTRE__SCHEDULING_VERB__CORDON);
    CHECK_U64(start(DIR_OPERATION_MOVE, "", "n2")->err.code, ERR_NO_DESTINATION);
    (void)world_node(&w, "n4", "n4:1");
    CHECK_U64(start(DIR_OPERATION_MOVE, "", "n4")->err.code, ERR_NEEDS_STAGED_MOVE);
    world_close_checked(&w);
}

static void tasks_say_what_each_side_does(void)
{
    struct dir_task got[DIR_TASK_CLEANUP + 1];
    at(DIR_STAGE_VALIDATE, 0);
    memset(got, 0, sizeof got);
    (void)dir_tasks(world_state(&w), agent_node(&w, "n1"), 0, collect, got);
    CHECK(got[DIR_TASK_STAGE].operation == it() && got[DIR_TASK_STAGE].is_source);
    CHECK_STR(got[DIR_TASK_STAGE].peer->name, "n2");
    CHECK(got[DIR_TASK_GRANT].must_have_count == 1);
    CHECK(got[DIR_TASK_GRANT].must_have[0].role == DIR_ROLE_JOINING);
    to_stage(DIR_STAGE_FENCE);
    memset(got, 0, sizeof got);
    (void)dir_tasks(world_state(&w), agent_node(&w, "n1"), 0, collect, got);
    CHECK(got[DIR_TASK_FENCE].epoch == part()->epoch && got[DIR_TASK_GRANT].fenced);
    memset(got, 0, sizeof got);
    (void)dir_tasks(world_state(&w), agent_node(&w, "n2"), 0, collect, got);
    CHECK(got[DIR_TASK_STAGE].copy == it()->copy && !got[DIR_TASK_STAGE].is_source);
    CHECK(got[DIR_TASK_GRANT].role == DIR_ROLE_JOINING);
    world_close_checked(&w);
}

int main(void)
{
    RUN(a_move_goes_all_the_way);
    RUN(old_writes_fail_the_operation_and_keep_the_data);
    RUN(prepare_may_refuse);
    RUN(headroom_is_asked_for);
    RUN(damaged_chunks_abort);
    RUN(a_report_says_what_it_lacks);
    RUN(a_gap_begins_at_the_snapshot_again);
    RUN(a_lost_snapshot_is_made_again);
    RUN(lag_keeps_it_in_catch_up);
    RUN(joined_only_after_both_sides);
    RUN(passed_positions_move_away);
    RUN(a_mismatch_copies_once_more_then_aborts);
    RUN(a_fence_is_of_its_epoch);
    RUN(the_cutover_waits_and_compares);
    RUN(a_required_check_is_missed);
    RUN(a_cold_destination_waits_before_the_fence);
    RUN(policy_goes_before_settings);
    RUN(the_same_report_is_answered_the_same);
    RUN(reports_of_others_do_not_count);
    RUN(an_abort_before_the_fence_keeps_the_epoch);
    RUN(a_time_out_tries_again);
    RUN(attempts_are_bounded);
    RUN(a_busy_partition_is_left_alone);
    RUN(an_aborted_move_begins_anew);
    RUN(a_retry_has_its_own_attempts);
    RUN(what_can_not_be_tried_again);
    RUN(old_writes_are_known_at_the_second_time);
    RUN(a_copy_that_counts_again_is_not_cleaned_up);
    RUN(the_way_back_begins_with_the_old_copy);
    RUN(a_way_back_that_lost_its_base_begins_at_prepare);
    RUN(a_way_back_may_be_given_up);
    RUN(in_the_window_the_source_may_follow);
    RUN(which_parts_there_are);
    RUN(a_part_gets_an_id_of_its_own);
    RUN(a_part_that_does_not_move_changes_nothing);
    RUN(the_rest_of_a_lapsed_source_fails_over);
    RUN(a_part_comes_back_as_the_partition_that_it_is);
    RUN(tasks_say_which_part);
    RUN(the_source_lapses_before_joined);
    RUN(nothing_waits_for_a_node_that_is_gone);
    RUN(forward_only_after_an_equal_validation);
    RUN(the_destination_lapses);
    RUN(either_side_registers_again);
    RUN(a_lost_candidate_is_begun_again);
    RUN(a_forced_failover_ends_it);
    RUN(a_replica_is_added_and_removed);
    RUN(another_copy_moves_without_a_fence);
    RUN(what_can_not_be_started);
    RUN(tasks_say_what_each_side_does);
    return tap_done();
}
