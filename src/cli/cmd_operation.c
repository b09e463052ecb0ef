/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cmd.h"

static const struct out_column columns[] = {
    {"OPERATION", "id", NULL},      {"KIND", "kind", NULL},
    {"KEYSPACE", "keyspace", NULL}, {"PARTITION", "partition", NULL},
    {"STATE", "state", NULL},       {"STAGE", "stage", NULL},
    {"FROM", "source", NULL},       {"TO", "destination", NULL},
    {"EPOCH", "epoch_after", NULL}, {NULL, NULL, NULL}};
const struct out_view cmd_operation_view = {"id", columns};

static int list_run(struct cli *c)
{
    struct target t;
    target_init(&t, "/v1/operations");
    target_flag(&t, c, "state");
    target_flag(&t, c, "keyspace");
    target_flag(&t, c, "node");
    target_flag(&t, c, "kind");
    target_read_flags(&t, c);
    return cli_list(c, &t, "operations", &cmd_operation_view);
}

static int get_run(struct cli *c)
{
    struct target t;
    target_init(&t, "/v1/operations");
    target_segment(&t, c->args->operands[0]);
    target_read_flags(&t, c);
    return cli_show(c, &t, &cmd_operation_view);
}

static const struct cli_flag list_flags[] = {
    {"state", "queued|running|done|aborted|failed", "Only those in this state", ARGS_CHOICE, 0,
     false, false},
    {"keyspace", "KEYSPACE", "Only those of this keyspace", ARGS_TEXT, 0, false, false},
    {"node", "NODE", "Only those from or to this node", ARGS_TEXT, 0, false, false},
    {"kind", "KIND", "Only those of this kind", ARGS_TEXT, 0, false, false},
    CLI_FLAG_LIMIT,
    CLI_FLAGS_END};

const struct cli_command operation_commands[] = {
    {"list", "", "List operations, in the order in which they began",
     "cadastre operation list --state running\n", list_flags, list_run},
    {"get", "OPERATION", "Show one operation", "cadastre operation get 19 -o json\n", NULL,
     get_run},
    {NULL, NULL, NULL, NULL, NULL, NULL}};
