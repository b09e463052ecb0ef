/* SPDX-License-Identifier: Apache-2.0 */
/* Who may write in each stage with each side dead, what may be taken back, and what may be asked
 * (docs/movement.md, "When something dies"). */
#include "directory/internal.h"
#include "directory/operation_authority.h"
#include "tests/harness/agents.h"
#include "tests/harness/tap.h"

#include <stdio.h>
#include <string.h>

static struct world w;
static uint64_t op, seq;

static const struct dir_partition *part(void)
{
    return agent_partition(&w, "k");
}

static const struct dir_operation *it(void)
{
    return view_operation(world_state(&w), op);
}

static struct operation_authority now(void)
{
    struct operation_authority a;
    operation_authority_of(world_state(&w), it(), &a);
    return a;
}

static void start(enum dir_operation_kind kind, const char *from, const char *to)
{
    Cadastre__OperationStart m;
    cadastre__operation_start__init(&m);
    m.kind = kind;
    m.partition = part()->id;
    m.from = text_lent(from);
    m.to = text_lent(to);
    m.role = kind == DIR_OPERATION_ADD_REPLICA ? DIR_ROLE_SYNC : 0;
    const struct dir_result *r = world_do(&w, CADASTRE__COMMAND__BODY_OPERATION_START, &m);
    CHECK_U64(r->err.code, ERR_OK);
    op = r->operation != NULL ? r->operation->id : 0;
}

static enum err_code admit(void)
{
    Cadastre__OperationAdmit m;
    cadastre__operation_admit__init(&m);
    m.operation = op;
    m.attempt = it()->attempt;
    return world_do(&w, CADASTRE__COMMAND__BODY_OPERATION_ADMIT, &m)->err.code;
}

static enum err_code verb(Cadastre__OperationVerbKind kind)
{
    Cadastre__OperationVerb m;
    cadastre__operation_verb__init(&m);
    m.operation = op;
    m.verb = kind;
    m.reason = text_lent("a person said so");
    return world_do(&w, CADASTRE__COMMAND__BODY_OPERATION_VERB, &m)->err.code;
}

/* All that the stage may want to hear, as it goes well. */
static void report(uint64_t node, uint64_t old_writes)
{
    const struct dir_node *n = view_node_by_id(world_state(&w), node);
    Cadastre__OperationReport m;
    cadastre__operation_report__init(&m);
    m.operation = op;
    m.node = text_lent(n->name);
    m.session = n->session;
    m.attempt = it()->attempt;
    m.stage = it()->stage;
    m.seq = ++seq;
    m.has = UINT64_MAX;
    m.ready = m.complete = m.active = m.fenced = true;
    m.free_bytes = 10000;
    m.snapshot = text_lent("s");
    m.bytes_total = 1000;
    m.from_position = m.final_position = m.applied_position = 100;
    m.at_position = it()->validate_at;
    m.items = m.checksum = 7;
    m.epoch = part()->epoch;
    m.old_epoch_writes = old_writes;
    (void)world_do(&w, CADASTRE__COMMAND__BODY_OPERATION_REPORT, &m);
}

static void to_stage(enum dir_stage stage)
{
    for (int i = 0; i < 20 && it()->stage != stage && tap_failures() == 0; i++) {
        uint8_t was = it()->stage;
        if (was == DIR_STAGE_QUEUED) {
            CHECK_U64(admit(), ERR_OK);
        } else if (was == DIR_STAGE_WINDOW) {
            CHECK_U64(verb(CADASTRE__OPERATION_VERB_KIND__FINISH_VALIDATION), ERR_OK);
        } else if (was == DIR_STAGE_CLEANUP) {
            report(it()->leaving, stage == DIR_STAGE_FAILED);
        } else {
            report(it()->source, 0);
        }
        if (it()->stage == was) {
            report(it()->destination, 0);
        }
    }
    CHECK_STR(dir_stage_name(it()->stage), dir_stage_name(stage));
}

/* n1 is the primary, n2 has nothing; n3 may be a sync replica. */
static void open_at(enum dir_operation_kind kind, enum dir_stage stage, uint32_t sync)
{
    seq = 0;
    world_open(&w);
    (void)agent_put(&w, "n1", 0);
    if (sync > 0) {
        (void)agent_put(&w, "n3", 0);
    }
    agent_keyspace(&w, sync);
    (void)agent_put(&w, "n2", 0);
    start(kind, kind == DIR_OPERATION_MOVE ? "n1" : "",
          kind == DIR_OPERATION_TRANSFER ? "n3" : "n2");
    if (stage == DIR_STAGE_ABORTED) {
        to_stage(DIR_STAGE_COPY);
        CHECK_U64(verb(CADASTRE__OPERATION_VERB_KIND__ABORT), ERR_OK);
        return;
    }
    to_stage(stage);
}

static void die(const char *name)
{
    (void)agent_end(&w, name, agent_node(&w, name)->session, false);
    CHECK_U64(w.result->err.code, ERR_OK);
}

/* Without a word of the one before: what that held stays its own until it has lapsed. */
static void restart(const char *name)
{
    (void)agent_put(&w, name, 0);
    CHECK_U64(w.result->err.code, ERR_OK);
}

static void put(char *out, size_t size, const struct operation_authority *a)
{
    int n = snprintf(out, size, "%s %s %s %s %s", dir_stage_name((enum dir_stage)it()->stage),
                     a->node == NULL   ? dir_nobody_name(a->nobody)
                     : a->fenced       ? "fenced"
                     : a->session_live ? "live"
                                       : "ended",
                     a->node == NULL ? "-" : a->node->name, dir_way_back_name(a->way_back),
                     dir_recovery_name(a->recovery));
    for (unsigned v = 1; v <= DIR_VERB_LAST; v <<= 1) {
        if (a->verbs & v) {
            n += snprintf(out + n, size - (size_t)n, " %s", dir_verb_name((enum dir_verb)v));
        }
    }
}

/* What an abort does is what was said of it. */
static void check_abort(const struct operation_authority *a)
{
    dir_rev epoch = part()->epoch;
    bool was_open = it()->state <= DIR_OPERATION_RUNNING;
    enum err_code code = verb(CADASTRE__OPERATION_VERB_KIND__ABORT);
    CHECK(((a->verbs & DIR_VERB_ABORT) != 0) == (code == ERR_OK && was_open));
    CHECK((a->way_back == DIR_WAY_BACK_IMPOSSIBLE) == ((a->verbs & DIR_VERB_ABORT) == 0));
    CHECK((part()->epoch > epoch) == (a->way_back == DIR_WAY_BACK_NEW_EPOCH));
}

static void check_cell(const char *want)
{
    char got[256];
    struct operation_authority a = now();
    put(got, sizeof got, &a);
    CHECK_STR(got, want);
    CHECK(a.epoch == part()->epoch && (a.node == NULL || a.session == part()->session));
    bool removes = it()->kind == DIR_OPERATION_REMOVE_REPLICA; /* with no epoch of its own */
    CHECK(removes || a.past_cutover == (it()->epoch_after != 0));
    CHECK(strlen(a.why) > 20 && a.why[strlen(a.why) - 1] == '.');
    CHECK((a.node == NULL || a.fenced) == (strstr(a.why, "Nobody may write") != NULL));
    check_abort(&a);
    CHECK_U64(world_check(world_state(&w)), 0);
    world_close(&w);
}

struct row {
    enum dir_stage stage;
    const char *nobody, *source, *destination, *both, *restarted; /* who is dead; the source anew */
};

static void run(enum dir_operation_kind kind, const struct row *row, uint32_t sync, const char *d)
{
    open_at(kind, row->stage, sync);
    check_cell(row->nobody);
    open_at(kind, row->stage, sync);
    die("n1");
    check_cell(row->source);
    open_at(kind, row->stage, sync);
    die(d);
    check_cell(row->destination);
    open_at(kind, row->stage, sync);
    die(d);
    die("n1");
    check_cell(row->both);
    open_at(kind, row->stage, sync);
    restart("n1");
    check_cell(row->restarted);
}

static const struct row moves[] = {
    {DIR_STAGE_QUEUED, "QUEUED live n1 discard resume abort",
     "QUEUED lapsed - discard resume abort", "QUEUED live n1 discard resume abort",
     "QUEUED lapsed - discard resume abort", "QUEUED ended n1 discard resume abort"},
    {DIR_STAGE_PREPARE, "PREPARE live n1 discard resume abort",
     "PREPARE lapsed - discard resume abort", "PREPARE live n1 discard resume abort",
     "PREPARE lapsed - discard resume abort", "PREPARE ended n1 discard resume abort"},
    {DIR_STAGE_SNAPSHOT, "SNAPSHOT live n1 discard resume abort",
     "SNAPSHOT lapsed - discard resume abort", "SNAPSHOT live n1 discard resume abort",
     "SNAPSHOT lapsed - discard resume abort", "SNAPSHOT ended n1 discard resume abort"},
    {DIR_STAGE_COPY, "COPY live n1 discard resume abort", "COPY lapsed - discard resume abort",
     "COPY live n1 discard resume abort", "COPY lapsed - discard resume abort",
     "COPY ended n1 discard resume abort"},
    {DIR_STAGE_CATCH_UP, "CATCH_UP live n1 discard resume abort",
     "CATCH_UP lapsed - discard resume abort", "CATCH_UP live n1 discard resume abort",
     "CATCH_UP lapsed - discard resume abort", "CATCH_UP ended n1 discard resume abort"},
    {DIR_STAGE_DUAL_WRITE, "DUAL_WRITE live n1 discard resume abort",
     "DUAL_WRITE lapsed - discard resume abort", "CATCH_UP live n1 discard resume abort",
     "CATCH_UP lapsed - discard resume abort", "CATCH_UP ended n1 discard resume abort"},
    {DIR_STAGE_VALIDATE, "VALIDATE live n1 discard resume abort",
     "VALIDATE lapsed - impossible forward promote-candidate",
     "CATCH_UP live n1 discard resume abort", "CATCH_UP lapsed - discard resume abort",
     "CATCH_UP ended n1 discard resume abort"},
    {DIR_STAGE_FENCE, "FENCE fenced n1 new_epoch stay abort",
     "WINDOW live n2 impossible forward finish-validation", "CATCH_UP live n1 discard resume abort",
     "CATCH_UP lapsed - discard resume abort", "CATCH_UP ended n1 discard resume abort"},
    {DIR_STAGE_CUTOVER, "CUTOVER fenced n1 new_epoch stay abort",
     "WINDOW live n2 impossible forward finish-validation", "CATCH_UP live n1 discard resume abort",
     "CATCH_UP lapsed - discard resume abort", "CATCH_UP ended n1 discard resume abort"},
    {DIR_STAGE_WINDOW, "WINDOW live n2 impossible forward finish-validation finish-validation-back",
     "WINDOW live n2 impossible forward finish-validation", "WINDOW lapsed - impossible forward",
     "WINDOW lapsed - impossible forward",
     "WINDOW live n2 impossible forward finish-validation finish-validation-back"},
    {DIR_STAGE_CLEANUP, "CLEANUP live n2 impossible forward", "CLEANUP live n2 impossible forward",
     "CLEANUP lapsed - impossible forward", "CLEANUP lapsed - impossible forward",
     "CLEANUP live n2 impossible forward"},
    {DIR_STAGE_DONE, "DONE live n2 impossible stay", "DONE live n2 impossible stay",
     "DONE lapsed - impossible stay", "DONE lapsed - impossible stay",
     "DONE live n2 impossible stay"},
    {DIR_STAGE_ABORTED, "ABORTED live n1 impossible discard retry",
     "ABORTED lapsed - impossible discard", "ABORTED live n1 impossible discard",
     "ABORTED lapsed - impossible discard", "ABORTED ended n1 impossible discard retry"},
    {DIR_STAGE_FAILED, "FAILED live n2 impossible forward retry",
     "FAILED live n2 impossible forward retry", "FAILED lapsed - impossible forward retry",
     "FAILED lapsed - impossible forward retry", "FAILED live n2 impossible forward retry"},
};

static const struct row transfers[] = {
    {DIR_STAGE_FENCE, "FENCE fenced n1 new_epoch stay abort", "ABORTED live n3 impossible stay",
     "ABORTED live n1 impossible stay", "ABORTED lapsed - impossible stay",
     "ABORTED ended n1 impossible stay retry"},
    {DIR_STAGE_CUTOVER, "CUTOVER fenced n1 new_epoch stay abort", "ABORTED live n3 impossible stay",
     "ABORTED live n1 impossible stay", "ABORTED lapsed - impossible stay",
     "ABORTED ended n1 impossible stay retry"},
    {DIR_STAGE_DONE, "DONE live n3 impossible stay", "DONE live n3 impossible stay",
     "DONE live n1 impossible stay", "DONE lapsed - impossible stay",
     "DONE live n3 impossible stay"},
};

static void every_stage_of_a_move(void)
{
    for (unsigned i = 0; i < sizeof moves / sizeof moves[0]; i++) {
        run(DIR_OPERATION_MOVE, &moves[i], 0, "n2");
    }
}

static void every_stage_of_a_transfer(void)
{
    for (unsigned i = 0; i < sizeof transfers / sizeof transfers[0]; i++) {
        run(DIR_OPERATION_TRANSFER, &transfers[i], 1, "n3");
    }
}

/* No authority changes hands. */
static void a_replica_comes_and_goes(void)
{
    open_at(DIR_OPERATION_ADD_REPLICA, DIR_STAGE_VALIDATE, 1);
    check_cell("VALIDATE live n1 discard resume abort");
    open_at(DIR_OPERATION_ADD_REPLICA, DIR_STAGE_DONE, 1);
    check_cell("DONE live n1 impossible stay");
    open_at(DIR_OPERATION_ADD_REPLICA, DIR_STAGE_DONE, 1);
    start(DIR_OPERATION_REMOVE_REPLICA, "n3", "");
    check_cell("QUEUED live n1 discard resume abort");
    open_at(DIR_OPERATION_ADD_REPLICA, DIR_STAGE_DONE, 1);
    start(DIR_OPERATION_REMOVE_REPLICA, "n3", "");
    to_stage(DIR_STAGE_CLEANUP);
    check_cell("CLEANUP live n1 impossible forward");
}

/* A live sync replica follows, and the operation is over. */
static void a_replica_takes_over(void)
{
    for (enum dir_stage s = DIR_STAGE_PREPARE; s <= DIR_STAGE_VALIDATE; s++) {
        open_at(DIR_OPERATION_MOVE, s, 1);
        die("n1");
        check_cell("ABORTED live n3 impossible discard");
    }
}

static void both_are_away(void)
{
    open_at(DIR_OPERATION_MOVE, DIR_STAGE_VALIDATE, 0);
    die("n1");
    die("n2");
    check_cell("VALIDATE lapsed - impossible forward");
}

static void the_last_attempt_discards(void)
{
    open_at(DIR_OPERATION_MOVE, DIR_STAGE_COPY, 0);
    for (uint32_t i = 1; i < DIR_ATTEMPTS_MAX; i++) {
        CHECK_U64(now().recovery, DIR_RECOVERY_RESUME);
        (void)agent_put(&w, "n2", agent_node(&w, "n2")->session);
    }
    check_cell("COPY live n1 discard discard abort");
}

static void the_partition_may_be_gone(void)
{
    open_at(DIR_OPERATION_MOVE, DIR_STAGE_ABORTED, 0);
    (void)world_split(&w, part()->id, "m");
    struct operation_authority a = now();
    CHECK(a.node == NULL && a.nobody == DIR_NOBODY_RETIRED && a.epoch == 0 && a.verbs == 0);
    Cadastre__KeyspaceDelete m;
    cadastre__keyspace_delete__init(&m);
    m.keyspace = world_keyspace(&w, "orders")->id;
    CHECK_U64(world_do(&w, CADASTRE__COMMAND__BODY_KEYSPACE_DELETE, &m)->err.code, ERR_OK);
    a = now();
    CHECK(a.node == NULL && a.nobody == DIR_NOBODY_REMOVED && a.verbs == 0);
    world_close(&w);
}

int main(void)
{
    RUN(every_stage_of_a_move);
    RUN(every_stage_of_a_transfer);
    RUN(a_replica_comes_and_goes);
    RUN(a_replica_takes_over);
    RUN(both_are_away);
    RUN(the_last_attempt_discards);
    RUN(the_partition_may_be_gone);
    return tap_done();
}
