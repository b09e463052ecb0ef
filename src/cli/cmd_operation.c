/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cmd.h"

#include <string.h>

static const struct out_column columns[] = {{"OPERATION", "id", NULL},
                                            {"KIND", "kind", NULL},
                                            {"KEYSPACE", "keyspace", NULL},
                                            {"PARTITION", "partition", NULL},
                                            {"STATE", "state", NULL},
                                            {"STAGE", "stage", NULL},
                                            {"FROM", "source", NULL},
                                            {"TO", "destination", NULL},
                                            {"EPOCH", "epoch_after", NULL},
                                            {"THROTTLED", "throttled.code", NULL},
                                            {NULL, NULL, NULL}};
const struct out_view cmd_operation_view = {"id", columns};

static void put_verbs(struct buf *cell, const json_t *verbs)
{
    size_t at;
    json_t *name;
    json_array_foreach(verbs, at, name)
    {
        buf_put_str(cell, at > 0 ? " " : "");
        buf_put_str(cell, json_string_value(name) != NULL ? json_string_value(name) : "?");
    }
    if (cell->len == 0) {
        buf_put_u8(cell, '-');
    }
}

static const struct out_column authority_columns[] = {{"OPERATION", "operation", NULL},
                                                      {"STAGE", "stage", NULL},
                                                      {"NODE", "authority.node", NULL},
                                                      {"EPOCH", "epoch", NULL},
                                                      {"FENCED", "authority.fenced", NULL},
                                                      {"PAST_CUTOVER", "past_cutover", NULL},
                                                      {"WAY_BACK", "way_back", NULL},
                                                      {"RECOVERY", "recovery", NULL},
                                                      {"VERBS", "verbs", put_verbs},
                                                      {"WHY", "why", NULL},
                                                      {NULL, NULL, NULL}};
static const struct out_view authority_view = {"authority.node", authority_columns};

static const struct out_column stage_columns[] = {{"OPERATION", "id", NULL},
                                                  {"STAGE", "stage", NULL},
                                                  {"STATE", "state", NULL},
                                                  {"ATTEMPT", "attempt", NULL},
                                                  {"BYTES", "progress.bytes_done", NULL},
                                                  {"OF", "progress.bytes_total", NULL},
                                                  {"THROTTLED", "throttled.code", NULL},
                                                  {"ATTENTION", "attention.code", NULL},
                                                  {NULL, NULL, NULL}};
static const struct out_view stage_view = {"stage", stage_columns};

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

static bool operation_target(struct target *t, const struct cli *c, const char *verb)
{
    uint64_t id;
    if (!cli_operand_u64(c, 0, "OPERATION", &id)) {
        return false;
    }
    target_init(t, "/v1/operations");
    target_segment_u64(t, id);
    if (verb != NULL) {
        target_segment(t, verb);
    }
    return true;
}

static int get_run(struct cli *c)
{
    struct target t;
    if (!operation_target(&t, c, NULL)) {
        return EXIT_USAGE;
    }
    target_read_flags(&t, c);
    return cli_show(c, &t, &cmd_operation_view);
}

static int authority_run(struct cli *c)
{
    struct target t;
    if (!operation_target(&t, c, "authority")) {
        return EXIT_USAGE;
    }
    target_read_flags(&t, c);
    return cli_show(c, &t, &authority_view);
}

static int verb(struct cli *c, const char *name, json_t *body)
{
    struct target t;
    json_t *answer;
    if (!operation_target(&t, c, name)) {
        json_decref(body);
        return EXIT_USAGE;
    }
    body_text(body, c, "reason");
    body_number(body, c, "expect_revision");
    int code = cli_write(c, "POST", &t, body, &answer);
    return cmd_finish_operation(c, code, answer);
}

static int abort_run(struct cli *c)
{
    return verb(c, "abort", json_object());
}

static int retry_run(struct cli *c)
{
    return verb(c, "retry", json_object());
}

static int finish_run(struct cli *c)
{
    json_t *body = json_object();
    if (args_has(c->args, "back")) {
        (void)json_object_set_new(body, "back", json_true());
    }
    return verb(c, "finish-validation", body);
}

static int promote_run(struct cli *c)
{
    int code = cli_confirm(c, "Make the destination of operation %s the primary, unvalidated?",
                           c->args->operands[0]);
    return code == EXIT_DONE ? verb(c, "promote-candidate", json_object()) : code;
}

static void print_stage(struct cli *c, const json_t *operation)
{
    if (c->out.format == OUT_JSON || c->out.format == OUT_JSONL) {
        out_json(&c->out, operation, false);
    } else {
        out_object(&c->out, &stage_view, operation);
    }
    (void)fflush(c->out.file);
}

static int watch_run(struct cli *c)
{
    struct follow f = {.wait_ms = args_number(c->args, "wait", UINT64_MAX), .on_news = print_stage};
    json_t *last = NULL;
    if (!cli_operand_u64(c, 0, "OPERATION", &f.id)) {
        return EXIT_USAGE;
    }
    static const unsigned widths[] = {9, 10, 7, 8, 10, 10};
    memcpy(c->out.widths, widths, sizeof widths);
    int code = cmd_follow(c, &f, &last);
    json_decref(last);
    return code;
}

static const struct cli_flag list_flags[] = {
    {"state", "queued|running|done|aborted|failed", "Only those in this state", ARGS_CHOICE, 0,
     false, false},
    {"keyspace", "KEYSPACE", "Only those of this keyspace", ARGS_TEXT, 0, false, false},
    {"node", "NODE", "Only those from or to this node", ARGS_TEXT, 0, false, false},
    {"kind", "KIND", "Only those of this kind", ARGS_TEXT, 0, false, false},
    CLI_FLAG_LIMIT,
    CLI_FLAGS_END};

static const struct cli_flag watch_flags[] = {CMD_FLAG_WAIT, CLI_FLAGS_END};
static const struct cli_flag verb_flags[] = {CMD_FLAG_REASON, CMD_FLAG_WAIT,
                                             CLI_FLAG_EXPECT_REVISION, CLI_FLAGS_END};
static const struct cli_flag finish_flags[] = {
    {"back", NULL, "Move it back to the source", ARGS_SWITCH, 0, false, false},
    CMD_FLAG_REASON,
    CMD_FLAG_WAIT,
    CLI_FLAG_EXPECT_REVISION,
    CLI_FLAGS_END};
static const struct cli_flag promote_flags[] = {
    {"reason", "TEXT", "Why, for the audit", ARGS_TEXT, 0, true, false},
    CMD_FLAG_WAIT,
    CLI_FLAG_EXPECT_REVISION,
    CLI_FLAGS_END};

const struct cli_command operation_commands[] = {
    {"list", "", "List operations, in the order in which they began",
     "cadastre operation list --state running\n", list_flags, list_run},
    {"get", "OPERATION", "Show one operation", "cadastre operation get 19 -o json\n", NULL,
     get_run},
    {"authority", "OPERATION", "Show who may write meanwhile, and what can be asked now",
     "cadastre operation authority 19\n", NULL, authority_run},
    {"watch", "OPERATION", "Print a line for each stage until the operation has ended",
     "cadastre operation watch 19\ncadastre operation watch 19 --wait 10m -o jsonl\n", watch_flags,
     watch_run},
    {"abort", "OPERATION", "Stop an operation that is not past its cutover",
     "cadastre operation abort 19 --reason not-today\n", verb_flags, abort_run},
    {"retry", "OPERATION", "Try again what has failed", "cadastre operation retry 19 --wait 5m\n",
     verb_flags, retry_run},
    {"finish-validation", "OPERATION", "End the validation window early, or go back",
     "cadastre operation finish-validation 19\ncadastre operation finish-validation 19 --back\n",
     finish_flags, finish_run},
    {"promote-candidate", "OPERATION",
     "Make a joined destination the primary though it was not validated",
     "cadastre operation promote-candidate 19 --reason burnt-down --yes\n", promote_flags,
     promote_run},
    {NULL, NULL, NULL, NULL, NULL, NULL}};
