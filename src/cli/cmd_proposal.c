/* SPDX-License-Identifier: Apache-2.0 */
/* proposal: what the balancer would do, and what came of it. */
#include "cli/cmd.h"

static const struct out_column columns[] = {{"PROPOSAL", "id", NULL},
                                            {"KIND", "kind", NULL},
                                            {"CLASS", "class", NULL},
                                            {"STATE", "state", NULL},
                                            {"KEYSPACE", "keyspace", NULL},
                                            {"PARTITION", "partition", NULL},
                                            {"FROM", "from", NULL},
                                            {"TO", "to", NULL},
                                            {"CODE", "code", NULL},
                                            {"REASON", "reason", NULL},
                                            {NULL, NULL, NULL}};
static const struct out_view view = {"id", columns};

static void put_rejected(struct buf *cell, const json_t *rejected)
{
    size_t at;
    json_t *one;
    json_array_foreach(rejected, at, one)
    {
        const char *node = json_string_value(json_object_get(one, "node"));
        const char *code = json_string_value(json_object_get(one, "code"));
        buf_printf(cell, "%s%s=%s", at > 0 ? " " : "", node != NULL ? node : "?",
                   code != NULL ? code : "?");
    }
    if (cell->len == 0) {
        buf_put_u8(cell, '-');
    }
}

static const struct out_column one_columns[] = {{"PROPOSAL", "id", NULL},
                                                {"KIND", "kind", NULL},
                                                {"STATE", "state", NULL},
                                                {"PARTITION", "partition", NULL},
                                                {"FROM", "from", NULL},
                                                {"TO", "to", NULL},
                                                {"REASON", "reason", NULL},
                                                {"EVIDENCE", "evidence", out_put_pairs},
                                                {"PREDICTED", "predicted", out_put_pairs},
                                                {"COST", "cost", out_put_pairs},
                                                {"MEASURED", "measured", out_put_pairs},
                                                {"REJECTED", "rejected", put_rejected},
                                                {NULL, NULL, NULL}};
static const struct out_view one_view = {"id", one_columns};

static int list_run(struct cli *c)
{
    struct target t;
    target_init(&t, "/v1/balancer/proposals");
    target_flag(&t, c, "state");
    target_flag(&t, c, "keyspace");
    target_read_flags(&t, c);
    return cli_list(c, &t, "proposals", &view);
}

static bool proposal_target(struct target *t, const struct cli *c, const char *verb)
{
    uint64_t id;
    if (!cli_operand_u64(c, 0, "PROPOSAL", &id)) {
        return false;
    }
    target_init(t, "/v1/balancer/proposals");
    target_segment_u64(t, id);
    if (verb != NULL) {
        target_segment(t, verb);
    }
    return true;
}

static int show_run(struct cli *c)
{
    struct target t;
    if (!proposal_target(&t, c, NULL)) {
        return EXIT_USAGE;
    }
    target_read_flags(&t, c);
    return cli_show(c, &t, &one_view);
}

static int settle(struct cli *c, const char *verb)
{
    struct target t;
    json_t *body, *answer;
    if (!proposal_target(&t, c, verb)) {
        return EXIT_USAGE;
    }
    body = json_object();
    body_text(body, c, "reason");
    body_number(body, c, "expect_revision");
    int code = cli_write(c, "POST", &t, body, &answer);
    return cmd_finish(c, code, answer, &view);
}

static int approve_run(struct cli *c)
{
    return settle(c, "approve");
}

static int reject_run(struct cli *c)
{
    return settle(c, "reject");
}

static const struct cli_flag list_flags[] = {
    {"state", "open|running|done|failed|rejected|expired", "Only those in this state", ARGS_CHOICE,
     0, false, false},
    {"keyspace", "KEYSPACE", "Only those of this keyspace", ARGS_TEXT, 0, false, false},
    CLI_FLAG_LIMIT,
    CLI_FLAGS_END};
static const struct cli_flag settle_flags[] = {CMD_FLAG_REASON, CLI_FLAG_EXPECT_REVISION,
                                               CLI_FLAGS_END};

const struct cli_command proposal_commands[] = {
    {"list", "", "List what the balancer proposes or has done",
     "cadastre proposal list --state open\n", list_flags, list_run},
    {"show", "PROPOSAL", "Show one: evidence, prediction, cost, effect, and what was rejected",
     "cadastre proposal show 19 -o json\n", NULL, show_run},
    {"approve", "PROPOSAL", "Do what it proposes", "cadastre proposal approve 19\n", settle_flags,
     approve_run},
    {"reject", "PROPOSAL", "Don't do it", "cadastre proposal reject 19 --reason busy-hour\n",
     settle_flags, reject_run},
    {NULL, NULL, NULL, NULL, NULL, NULL}};
