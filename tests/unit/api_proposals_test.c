/* SPDX-License-Identifier: Apache-2.0 */
/* Proposals over HTTP: listed, shown with all that they go by, approved and rejected. */
#include "tests/harness/api_world.h"
#include "tests/harness/tap.h"

#include <inttypes.h>
#include <string.h>

static struct api_world w;
static uint64_t partition, epoch;

static void open_world(void)
{
    api_world_open(&w);
    for (int i = 1; i <= 3; i++) {
        CHECK(EXPECT(&w, text("PUT /v1/nodes/n%d", i),
                     text("{\"address\":\"n:%d\",\"lease\":\"static\"}", i), 200, NULL));
        if (i == 1) {
            CHECK(EXPECT(&w, "POST /v1/keyspaces", "{\"name\":\"ks\",\"scheme\":\"range\"}", 201,
                         NULL));
        }
    }
    CHECK(EXPECT(&w, "GET /v1/keyspaces/ks/partitions", NULL, 200, NULL));
    partition = api_u64(&w, "partitions/0/partition");
    epoch = api_u64(&w, "partitions/0/epoch");
}

static uint64_t make(enum dir_proposal_kind kind)
{
    Cadastre__ProposalMake m;
    Cadastre__Figure figures[3], *figure_of[3];
    Cadastre__Candidate candidate, *candidates[] = {&candidate};
    uint8_t key[] = {'m'};
    ProtobufCBinaryData at = {sizeof key, key};
    static const char *const names[] = {"from_level_ppm", "to_level_ppm", "bytes"};
    cadastre__proposal_make__init(&m);
    for (unsigned i = 0; i < 3; i++) {
        figure_of[i] = &figures[i];
        cadastre__figure__init(&figures[i]);
        figures[i].name = text_lent(names[i]);
        figures[i].group = DIR_FIGURE_EVIDENCE + i;
        figures[i].value = 10 + i;
    }
    cadastre__candidate__init(&candidate);
    candidate.node = text_lent("n2");
    candidate.code = text_lent("side_effect");
    m.kind = kind;
    m.partition = partition;
    m.epoch = epoch;
    m.from = text_lent("n1");
    m.to = text_lent(kind == DIR_PROPOSAL_MOVE ? "n3" : "");
    m.class_ = DIR_CLASS_HOT;
    m.reason_code = text_lent("hot_node");
    m.reason = text_lent("its node bears more than its share");
    m.figures = figure_of;
    m.n_figures = 3;
    m.candidates = candidates;
    m.n_candidates = 1;
    m.expires_in_ms = 600000;
    m.at = &at;
    m.n_at = kind == DIR_PROPOSAL_SPLIT ? 1 : 0;
    struct dir_result *r = local_control_run(w.control, CADASTRE__COMMAND__BODY_PROPOSAL_MAKE, &m);
    CHECK_U64(r->err.code, ERR_OK);
    uint64_t id = r->proposal != NULL ? r->proposal->id : 0;
    result_unref(r);
    return id;
}

static void all_of_it_is_shown(void)
{
    open_world();
    uint64_t id = make(DIR_PROPOSAL_MOVE);
    CHECK(EXPECT(&w, text("GET /v1/balancer/proposals/%" PRIu64, id), NULL, 200, NULL));
    CHECK_STR(api_text(&w, "kind"), "move");
    CHECK_STR(api_text(&w, "class"), "hot");
    CHECK_STR(api_text(&w, "state"), "open");
    CHECK_STR(api_text(&w, "from"), "n1");
    CHECK_STR(api_text(&w, "to"), "n3");
    CHECK_STR(api_text(&w, "code"), "hot_node");
    CHECK_U64(api_u64(&w, "evidence/from_level_ppm"), 10);
    CHECK_U64(api_u64(&w, "predicted/to_level_ppm"), 11);
    CHECK_U64(api_u64(&w, "cost/bytes"), 12);
    CHECK(json_is_null(api_at(&w, "measured")));
    CHECK_STR(api_text(&w, "rejected/0/code"), "side_effect");
    CHECK(json_is_string(api_at(&w, "expires")));
    CHECK(EXPECT(&w, "GET /v1/balancer/proposals/7777", NULL, 404, "proposal_not_found"));
    CHECK(EXPECT(&w, "GET /v1/balancer/proposals/x", NULL, 404, "proposal_not_found"));
    api_world_close(&w);
}

static void they_are_listed_by_state_and_page(void)
{
    open_world();
    uint64_t first = make(DIR_PROPOSAL_ADVICE), second = make(DIR_PROPOSAL_MOVE);
    CHECK(EXPECT(&w, text("POST /v1/balancer/proposals/%" PRIu64 "/reject", first),
                 "{\"reason\":\"no\"}", 200, NULL));
    CHECK_STR(api_text(&w, "state"), "rejected");
    CHECK_STR(api_text(&w, "settled_why"), "no");
    CHECK(EXPECT(&w, "GET /v1/balancer/proposals?state=open", NULL, 200, NULL));
    CHECK_U64(json_array_size(api_at(&w, "proposals")), 1);
    CHECK_U64(api_u64(&w, "proposals/0/id"), second);
    CHECK(EXPECT(&w, "GET /v1/balancer/proposals?keyspace=other", NULL, 200, NULL));
    CHECK_U64(json_array_size(api_at(&w, "proposals")), 0);
    CHECK(EXPECT(&w, "GET /v1/balancer/proposals?limit=1", NULL, 200, NULL));
    CHECK_U64(api_u64(&w, "proposals/0/id"), first);
    CHECK(EXPECT(&w, text("GET /v1/balancer/proposals?limit=1&cursor=%s", api_text(&w, "next")),
                 NULL, 200, NULL));
    CHECK_U64(api_u64(&w, "proposals/0/id"), second);
    CHECK(api_at(&w, "next") == NULL);
    CHECK(EXPECT(&w, "GET /v1/balancer/proposals?state=new", NULL, 400, "invalid_request"));
    api_world_close(&w);
}

static void approving_does_it_once(void)
{
    open_world();
    uint64_t id = make(DIR_PROPOSAL_SPLIT), late = make(DIR_PROPOSAL_SPLIT);
    CHECK(EXPECT(&w, text("POST /v1/balancer/proposals/%" PRIu64 "/approve", id), NULL, 200, NULL));
    CHECK_STR(api_text(&w, "state"), "done");
    CHECK_STR(api_text(&w, "at/0"), "m");
    CHECK(EXPECT(&w, "GET /v1/keyspaces/ks/partitions", NULL, 200, NULL));
    CHECK_U64(json_array_size(api_at(&w, "partitions")), 2);
    CHECK(EXPECT(&w, text("POST /v1/balancer/proposals/%" PRIu64 "/reject", id), NULL, 409,
                 "proposal_settled"));
    CHECK(EXPECT(&w, text("POST /v1/balancer/proposals/%" PRIu64 "/approve", late), NULL, 409,
                 "stale_epoch"));
    CHECK(EXPECT(&w, "POST /v1/balancer/proposals/7777/approve", NULL, 404, "proposal_not_found"));
    CHECK(EXPECT(&w, text("POST /v1/balancer/proposals/%" PRIu64 "/approve", late),
                 "{\"reason\":1}", 400, "invalid_request"));
    CHECK_STR(api_text(&w, "errors/0/pointer"), "/reason");
    api_world_close(&w);
}

static void what_is_to_be_explained_is_checked(void)
{
    open_world();
    CHECK(EXPECT(&w, "GET /v1/balancer/explain?keyspace=ks", NULL, 400, "invalid_request"));
    CHECK(EXPECT(&w, "GET /v1/balancer/explain?partition=1", NULL, 400, "invalid_request"));
    CHECK(EXPECT(&w, "GET /v1/balancer/explain?keyspace=ks&partition=x", NULL, 400,
                 "invalid_request"));
    CHECK(EXPECT(&w, "GET /v1/balancer/explain?keyspace=no&partition=1", NULL, 404,
                 "keyspace_not_found"));
    CHECK(EXPECT(&w, "GET /v1/balancer/explain?keyspace=ks&partition=7777", NULL, 404,
                 "partition_not_found"));
    CHECK(EXPECT(
        &w, text("GET /v1/balancer/explain?keyspace=ks&partition=%" PRIu64 "&to=n9", partition),
        NULL, 404, "node_not_found"));
    CHECK(EXPECT(&w, text("GET /v1/balancer/explain?keyspace=ks&partition=%" PRIu64, partition),
                 NULL, 503, "not_ready"));
    api_world_close(&w);
}

int main(void)
{
    RUN(all_of_it_is_shown);
    RUN(they_are_listed_by_state_and_page);
    RUN(approving_does_it_once);
    RUN(what_is_to_be_explained_is_checked);
    return tap_done();
}
