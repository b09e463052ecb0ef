/* SPDX-License-Identifier: Apache-2.0 */
/* Proposals: made, settled, expired, carried out and measured. */
#include "directory/internal.h"
#include "tests/harness/agents.h"
#include "tests/harness/tap.h"

#include <stdio.h>
#include <string.h>

static struct world w;

/* Three live nodes, and a keyspace whose partitions are all on n1. */
static void begin(void)
{
    world_open(&w);
    agent_three(&w);
}

static const struct dir_partition *at(const char *key)
{
    return world_at(&w, "k", key);
}

static Cadastre__ProposalMake proposal(enum dir_proposal_kind kind, const struct dir_partition *p)
{
    Cadastre__ProposalMake m;
    cadastre__proposal_make__init(&m);
    m.kind = kind;
    m.partition = p->id;
    m.epoch = p->epoch;
    m.from = text_lent("n1");
    m.to = text_lent("n2");
    m.reason_code = text_lent("hot_node");
    m.reason = text_lent("n1 has 1.4 times the mean");
    m.expires_in_ms = 600000;
    return m;
}

static const struct dir_result *make(Cadastre__ProposalMake *m)
{
    return world_do(&w, CADASTRE__COMMAND__BODY_PROPOSAL_MAKE, m);
}

static const struct dir_proposal *get(uint64_t id)
{
    uint8_t key[8];
    return ptree_get(&world_state(&w)->proposals, ptree_u64_key(id, key));
}

static uint64_t made(Cadastre__ProposalMake *m)
{
    const struct dir_result *r = make(m);
    if (!CHECK_U64(r->err.code, ERR_OK) || !CHECK(r->proposal != NULL)) {
        tap_note("%s", r->err.detail);
        return 0;
    }
    return r->proposal->id;
}

static enum err_code settle(uint64_t id, Cadastre__ProposalVerb verb)
{
    Cadastre__ProposalSettle m;
    cadastre__proposal_settle__init(&m);
    m.proposal = id;
    m.verb = verb;
    m.reason = text_lent("looks right");
    w.principal = "ada";
    return world_do(&w, CADASTRE__COMMAND__BODY_PROPOSAL_SETTLE, &m)->err.code;
}

static enum err_code approve(uint64_t id)
{
    return settle(id, CADASTRE__PROPOSAL_VERB__APPROVE);
}

static enum err_code reject(uint64_t id)
{
    return settle(id, CADASTRE__PROPOSAL_VERB__REJECT);
}

static enum err_code abort_operation(uint64_t id)
{
    Cadastre__OperationVerb m;
    cadastre__operation_verb__init(&m);
    m.operation = id;
    m.verb = CADASTRE__OPERATION_VERB_KIND__ABORT;
    m.reason = text_lent("no");
    return world_do(&w, CADASTRE__COMMAND__BODY_OPERATION_VERB, &m)->err.code;
}

static enum err_code measure(uint64_t id, uint64_t value)
{
    Cadastre__ProposalMeasure m;
    Cadastre__Figure f, *figures[] = {&f};
    cadastre__proposal_measure__init(&m);
    cadastre__figure__init(&f);
    f.name = text_lent("relief_ppm");
    f.group = DIR_FIGURE_MEASURED;
    f.value = value;
    m.proposal = id;
    m.figures = figures;
    m.n_figures = 1;
    return world_do(&w, CADASTRE__COMMAND__BODY_PROPOSAL_MEASURE, &m)->err.code;
}

static void one_that_is_approved_starts_its_operation(void)
{
    begin();
    Cadastre__ProposalMake m = proposal(DIR_PROPOSAL_MOVE, at("a"));
    Cadastre__Figure f, *figures[] = {&f};
    Cadastre__Candidate c, *candidates[] = {&c};
    cadastre__figure__init(&f);
    cadastre__candidate__init(&c);
    f.name = text_lent("load_ppm");
    f.group = DIR_FIGURE_EVIDENCE;
    f.value = 1400000;
    c.node = text_lent("n3");
    c.code = text_lent("over_capacity");
    m.figures = figures;
    m.n_figures = 1;
    m.candidates = candidates;
    m.n_candidates = 1;
    m.class_ = DIR_CLASS_HOT;
    uint64_t id = made(&m);
    CHECK(get(id)->state == DIR_PROPOSAL_OPEN && get(id)->operation == 0);
    CHECK_STR(get(id)->candidates[0].code, "over_capacity");
    CHECK_U64(at("a")->operation, 0);

    CHECK_U64(approve(id), ERR_OK);
    const struct dir_operation *o = view_operation(world_state(&w), get(id)->operation);
    CHECK(get(id)->state == DIR_PROPOSAL_RUNNING && o != NULL);
    CHECK(o->class_of == DIR_CLASS_HOT && at("a")->operation == o->id);
    CHECK_STR(o->initiator, "ada");
    CHECK_STR(get(id)->settled_by, "ada");
    CHECK_STR(get(id)->settled_why, "looks right");
    CHECK_U64(approve(id), ERR_OK); /* said again */
    CHECK_U64(reject(id), ERR_PROPOSAL_SETTLED);

    CHECK_U64(measure(id, 5), ERR_OK); /* too early: nothing happens */
    CHECK(get(id)->state == DIR_PROPOSAL_RUNNING && get(id)->figure_count == 1);
    CHECK_U64(abort_operation(get(id)->operation), ERR_OK);
    CHECK_U64(measure(id, 7), ERR_OK);
    CHECK(get(id)->state == DIR_PROPOSAL_FAILED && get(id)->figures[1].value == 7);
    CHECK_U64(measure(id, 9), ERR_OK); /* the newest word counts, once */
    CHECK(get(id)->figure_count == 2 && get(id)->figures[1].value == 9);
    world_close_checked(&w);
}

static void one_that_is_rejected_or_too_old_does_nothing(void)
{
    begin();
    Cadastre__ProposalMake m = proposal(DIR_PROPOSAL_MOVE, at("a"));
    uint64_t rejected = made(&m), expired = made(&m);
    CHECK_U64(reject(rejected), ERR_OK);
    CHECK_U64(reject(rejected), ERR_OK);
    CHECK_U64(approve(rejected), ERR_PROPOSAL_SETTLED);
    w.time_ms += 600000;
    CHECK_U64(approve(expired), ERR_PROPOSAL_SETTLED);
    CHECK(get(expired)->state == DIR_PROPOSAL_EXPIRED);
    CHECK_U64(reject(expired), ERR_PROPOSAL_SETTLED);
    CHECK_U64(at("a")->operation, 0);
    CHECK_U64(approve(12345), ERR_PROPOSAL_NOT_FOUND);
    world_close_checked(&w);
}

static void it_holds_for_the_epoch_that_the_plan_saw(void)
{
    begin();
    Cadastre__ProposalMake m = proposal(DIR_PROPOSAL_MOVE, at("a"));
    uint64_t id = made(&m);
    CHECK_U64(world_split(&w, at("a")->id, "m")->err.code, ERR_OK);
    CHECK_U64(approve(id), ERR_STALE_EPOCH);
    CHECK(get(id)->state == DIR_PROPOSAL_OPEN);
    CHECK_U64(make(&m)->err.code, ERR_STALE_EPOCH);
    world_close_checked(&w);
}

static void splits_and_merges_are_done_at_once(void)
{
    begin();
    Cadastre__ProposalMake m = proposal(DIR_PROPOSAL_SPLIT, at("a"));
    ProtobufCBinaryData keys[] = {{1, (uint8_t[]){'g'}}, {1, (uint8_t[]){'p'}}};
    m.at = keys;
    m.n_at = 2;
    m.execute = true;
    uint64_t id = made(&m);
    CHECK(get(id)->state == DIR_PROPOSAL_DONE && at("a")->id != at("h")->id);
    CHECK(at("h")->id != at("q")->id);
    m = proposal(DIR_PROPOSAL_MERGE, at("a"));
    m.with = at("h")->id;
    m.execute = true;
    id = made(&m);
    CHECK(get(id)->state == DIR_PROPOSAL_DONE && at("a")->id == at("h")->id);
    CHECK_STR(get(id)->settled_by, "balancer");
    m = proposal(DIR_PROPOSAL_SPLIT, at("a"));
    m.at = keys + 1; /* outside */
    m.n_at = 1;
    m.execute = true;
    CHECK_U64(make(&m)->err.code, ERR_BAD_SPLIT_KEY);
    CHECK_U64(world_state(&w)->proposals.count, 2);
    world_close_checked(&w);
}

static void a_swap_begins_whole_or_not_at_all(void)
{
    begin();
    CHECK_U64(world_range(&w, "j")->err.code, ERR_OK); /* on n2 or n3, which hold nothing */
    const struct dir_partition *other = world_at(&w, "j", "a");
    Cadastre__ProposalMake m = proposal(DIR_PROPOSAL_SWAP, at("a"));
    char to[DIR_NAME_MAX + 1];
    (void)snprintf(to, sizeof to, "%s", view_primary(world_state(&w), other)->name);
    CHECK_U64(world_split(&w, at("a")->id, "m")->err.code, ERR_OK);
    m = proposal(DIR_PROPOSAL_SWAP, at("a"));
    m.to = to;
    m.with = at("z")->id; /* on n1 too, so it can't come from there */
    m.execute = true;
    CHECK_U64(make(&m)->err.code, ERR_NOT_OWNER);
    CHECK(at("a")->operation == 0 && at("z")->operation == 0);
    CHECK_U64(world_state(&w)->proposals.count, 0);
    m.with = other->id;
    uint64_t id = made(&m);
    CHECK(at("a")->operation == get(id)->operation && get(id)->operation != 0);
    CHECK(world_at(&w, "j", "a")->operation == get(id)->with_operation);
    CHECK_U64(abort_operation(get(id)->operation), ERR_OK);
    CHECK_U64(measure(id, 1), ERR_OK);
    CHECK(get(id)->state == DIR_PROPOSAL_RUNNING); /* half of it goes on */
    CHECK_U64(abort_operation(get(id)->with_operation), ERR_OK);
    CHECK_U64(measure(id, 1), ERR_OK);
    CHECK(get(id)->state == DIR_PROPOSAL_FAILED);
    world_close_checked(&w);
}

static void bad_ones_are_refused(void)
{
    begin();
    Cadastre__ProposalMake good = proposal(DIR_PROPOSAL_MOVE, at("a")), m = good;
    m.kind = 9;
    CHECK_U64(make(&m)->err.code, ERR_INVALID_REQUEST);
    m = good;
    m.partition = 99999;
    CHECK_U64(make(&m)->err.code, ERR_PARTITION_NOT_FOUND);
    m = good;
    m.reason = text_lent("");
    CHECK_U64(make(&m)->err.code, ERR_INVALID_REQUEST);
    m = good;
    char long_name[80];
    memset(long_name, 'n', sizeof long_name);
    long_name[sizeof long_name - 1] = '\0';
    m.to = long_name;
    CHECK_U64(make(&m)->err.code, ERR_INVALID_REQUEST);
    m = good;
    Cadastre__Figure f, *figures[DIR_FIGURES_MAX + 1];
    cadastre__figure__init(&f);
    f.name = text_lent("x");
    f.group = DIR_FIGURE_COST;
    for (int i = 0; i <= DIR_FIGURES_MAX; i++) {
        figures[i] = &f;
    }
    m.figures = figures;
    m.n_figures = DIR_FIGURES_MAX + 1;
    CHECK_U64(make(&m)->err.code, ERR_INVALID_REQUEST);
    m.n_figures = DIR_FIGURES_MAX;
    CHECK_U64(make(&m)->err.code, ERR_OK);
    f.group = 5;
    CHECK_U64(make(&m)->err.code, ERR_INVALID_REQUEST);
    m = proposal(DIR_PROPOSAL_ADVICE, at("a"));
    m.execute = true;
    CHECK_U64(make(&m)->err.code, ERR_INVALID_REQUEST);
    m.execute = false;
    CHECK_U64(approve(made(&m)), ERR_INVALID_REQUEST);
    world_close_checked(&w);
}

static void the_oldest_that_is_settled_makes_room(void)
{
    begin();
    Cadastre__ProposalMake m = proposal(DIR_PROPOSAL_MOVE, at("a"));
    uint64_t first = made(&m), second = made(&m);
    for (int i = 2; i < DIR_PROPOSALS_MAX; i++) {
        CHECK_U64(make(&m)->err.code, ERR_OK);
    }
    CHECK_U64(make(&m)->err.code, ERR_LIMIT_EXCEEDED);
    CHECK_U64(reject(second), ERR_OK);
    CHECK_U64(make(&m)->err.code, ERR_OK);
    CHECK(get(first) != NULL && get(second) == NULL);
    CHECK_U64(world_state(&w)->proposals.count, DIR_PROPOSALS_MAX);
    world_close_checked(&w);
}

int main(void)
{
    RUN(one_that_is_approved_starts_its_operation);
    RUN(one_that_is_rejected_or_too_old_does_nothing);
    RUN(it_holds_for_the_epoch_that_the_plan_saw);
    RUN(splits_and_merges_are_done_at_once);
    RUN(a_swap_begins_whole_or_not_at_all);
    RUN(bad_ones_are_refused);
    RUN(the_oldest_that_is_settled_makes_room);
    return tap_done();
}
