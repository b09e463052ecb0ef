/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cmd.h"

#include "base/parse.h"

#include <string.h>

static const struct out_column history_columns[] = {{"EPOCH", "epoch", NULL},
                                                    {"RANGE", NULL, out_put_range},
                                                    {"PRIMARY", "primary.node", NULL},
                                                    {"CAUSE", "cause", NULL},
                                                    {"FROM", "from_time", NULL},
                                                    {"TO", "to_time", NULL},
                                                    {"REVISION", "from_revision", NULL},
                                                    {"OPERATION", "operation", NULL},
                                                    {NULL, NULL, NULL}};
static const struct out_view history_view = {"epoch", history_columns};

static const struct out_column check_columns[] = {{"PARTITION", "partition", NULL},
                                                  {"EPOCH", "epoch", NULL},
                                                  {"REVISION", "revision", NULL},
                                                  {NULL, NULL, NULL}};
static const struct out_view check_view = {"partition", check_columns};

/* False after a message: the partition is a number. */
static bool partition_target(struct target *t, const struct cli *c, const char *verb)
{
    uint64_t id;
    if (!cli_operand_u64(c, 1, "PARTITION", &id)) {
        return false;
    }
    cmd_keyspace_target(t, c);
    target_segment(t, "partitions");
    target_segment(t, c->args->operands[1]);
    if (verb != NULL) {
        target_segment(t, verb);
    }
    return true;
}

static int list_run(struct cli *c)
{
    struct target t;
    cmd_keyspace_target(&t, c);
    target_segment(&t, "partitions");
    target_read_flags(&t, c);
    return cli_list(c, &t, "partitions", &out_route_view);
}

static int get_run(struct cli *c)
{
    struct target t;
    if (!partition_target(&t, c, NULL)) {
        return EXIT_USAGE;
    }
    target_read_flags(&t, c);
    return cli_show(c, &t, &out_route_view);
}

static int history_run(struct cli *c)
{
    struct target t;
    json_t *answer;
    if (!partition_target(&t, c, "history")) {
        return EXIT_USAGE;
    }
    int code = cli_read(c, &t, &answer);
    return cmd_finish_rows(c, code, answer, "history", &history_view);
}

static int split_run(struct cli *c)
{
    struct target t;
    if (!partition_target(&t, c, "split")) {
        return EXIT_USAGE;
    }
    json_t *body = json_object(), *keys = json_array(), *answer;
    unsigned at = 0;
    const char *key = args_next(c->args, "at", &at);
    for (; key != NULL; key = args_next(c->args, "at", &at)) {
        (void)json_array_append_new(keys, json_string_nocheck(key));
    }
    (void)json_object_set_new(body, "at", keys);
    body_expect(body, c);
    int code = cli_write(c, "POST", &t, body, &answer);
    return cmd_finish_rows(c, code, answer, "children", &out_route_view);
}

static int merge_run(struct cli *c)
{
    struct target t;
    if (!partition_target(&t, c, "merge")) {
        return EXIT_USAGE;
    }
    json_t *body = json_object(), *answer;
    body_number(body, c, "with");
    body_expect(body, c);
    int code = cli_write(c, "POST", &t, body, &answer);
    if (code == EXIT_DONE && c->out.format != OUT_JSON) {
        out_object(&c->out, &out_route_view, json_object_get(answer, "route"));
        json_decref(answer);
        return code;
    }
    return cmd_finish(c, code, answer, &out_route_view);
}

/* A part of the partition: without a start, or an end, up to its own. */
static void body_range(json_t *body, const struct cli *c)
{
    json_t *range = json_object();
    body_text(range, c, "start");
    body_text(range, c, "end");
    if (json_object_size(range) > 0) {
        (void)json_object_set(body, "range", range);
    }
    json_decref(range);
}

static int move_run(struct cli *c)
{
    struct target t;
    if (!partition_target(&t, c, "move")) {
        return EXIT_USAGE;
    }
    json_t *body = json_object(), *answer;
    body_text(body, c, "from");
    body_text(body, c, "to");
    if (args_has(c->args, "empty")) {
        (void)json_object_set_new(body, "empty", json_true());
    }
    body_range(body, c);
    body_number(body, c, "max_bytes_per_s");
    body_number(body, c, "size_bytes");
    body_number(body, c, "live_bytes_per_s");
    body_text(body, c, "reason");
    body_expect(body, c);
    int code = cli_write(c, "POST", &t, body, &answer);
    return cmd_finish_operation(c, code, answer);
}

static int transfer_run(struct cli *c)
{
    struct target t;
    if (!partition_target(&t, c, "transfer")) {
        return EXIT_USAGE;
    }
    json_t *body = json_object(), *answer;
    body_text(body, c, "to");
    body_text(body, c, "reason");
    body_expect(body, c);
    int code = cli_write(c, "POST", &t, body, &answer);
    return cmd_finish_operation(c, code, answer);
}

static int add_replica_run(struct cli *c)
{
    struct target t;
    if (!partition_target(&t, c, "replicas")) {
        return EXIT_USAGE;
    }
    json_t *body = json_object(), *answer;
    (void)json_object_set_new(body, "node", json_string_nocheck(c->args->operands[2]));
    body_text(body, c, "role");
    body_number(body, c, "max_bytes_per_s");
    body_text(body, c, "reason");
    body_expect(body, c);
    int code = cli_write(c, "POST", &t, body, &answer);
    return cmd_finish_operation(c, code, answer);
}

static int remove_replica_run(struct cli *c)
{
    struct target t;
    if (!partition_target(&t, c, "replicas")) {
        return EXIT_USAGE;
    }
    target_segment(&t, c->args->operands[2]);
    json_t *body = json_object(), *answer;
    body_text(body, c, "reason");
    body_expect(body, c);
    int code = cli_write(c, "DELETE", &t, body, &answer);
    return cmd_finish_operation(c, code, answer);
}

static int failover_run(struct cli *c)
{
    struct target t;
    int code = cli_confirm(c, "Give partition %s to '%s', and give up what that has not got?",
                           c->args->operands[1], args_get(c->args, "to"));
    if (code != EXIT_DONE || !partition_target(&t, c, "failover")) {
        return code != EXIT_DONE ? code : EXIT_USAGE;
    }
    json_t *body = json_object(), *answer;
    (void)json_object_set_new(body, "accept_loss", json_true());
    body_text(body, c, "to");
    body_text(body, c, "reason");
    body_expect(body, c);
    code = cli_write(c, "POST", &t, body, &answer);
    return cmd_finish_operation(c, code, answer);
}

static int insync_run(struct cli *c)
{
    struct target t;
    if (!partition_target(&t, c, "insync")) {
        return EXIT_USAGE;
    }
    json_t *body = json_object(), *nodes = json_array(), *answer;
    unsigned at = 0;
    const char *node = args_next(c->args, "insync", &at);
    for (; node != NULL; node = args_next(c->args, "insync", &at)) {
        (void)json_array_append_new(nodes, json_string_nocheck(node));
    }
    (void)json_object_set_new(body, "insync", nodes);
    body_number(body, c, "session");
    body_number(body, c, "epoch");
    body_number(body, c, "mod_revision");
    int code = cli_write(c, "POST", &t, body, &answer);
    if (code == EXIT_DONE && c->out.format != OUT_JSON) {
        out_object(&c->out, &out_route_view, json_object_get(answer, "route"));
        json_decref(answer);
        return code;
    }
    return cmd_finish(c, code, answer, &out_route_view);
}

static int patch(struct cli *c, const char *member, json_t *value)
{
    struct target t;
    if (!partition_target(&t, c, NULL)) {
        json_decref(value);
        return EXIT_USAGE;
    }
    json_t *body = json_object(), *answer;
    (void)json_object_set_new(body, member, value);
    body_expect(body, c);
    int code = cli_write(c, "PATCH", &t, body, &answer);
    return cmd_finish(c, code, answer, &out_route_view);
}

static int pin_run(struct cli *c)
{
    return patch(c, "pinned", json_true());
}

static int unpin_run(struct cli *c)
{
    return patch(c, "pinned", json_false());
}

static int limit_run(struct cli *c)
{
    uint64_t rate;
    if (strcmp(c->args->operands[2], "none") == 0) {
        return patch(c, "rate_limit", json_null());
    }
    if (!parse_u64(c->args->operands[2], PARSE_INT_MAX, &rate) || rate == 0) {
        return cli_fail(EXIT_USAGE, "RATE is requests per second, or none, not '%s'",
                        c->args->operands[2]);
    }
    json_t *limit = json_object();
    (void)json_object_set_new(limit, "requests_per_s", json_integer((json_int_t)rate));
    return patch(c, "rate_limit", limit);
}

static int check_run(struct cli *c)
{
    struct target t;
    if (!partition_target(&t, c, "check")) {
        return EXIT_USAGE;
    }
    target_read_flags(&t, c);
    json_t *body = json_object(), *answer;
    body_text(body, c, "node");
    body_number(body, c, "epoch");
    int code = cli_ask(c, &t, body, &answer);
    return cmd_finish(c, code, answer, &check_view);
}

static const struct cli_flag list_flags[] = {CLI_FLAG_LIMIT, CLI_FLAGS_END};
static const struct cli_flag expect_flags[] = {CLI_FLAG_EXPECT_EPOCH, CLI_FLAG_EXPECT_REVISION,
                                               CLI_FLAGS_END};
static const struct cli_flag split_flags[] = {
    {"at", "KEY", "Where a part begins, strictly inside and ascending", ARGS_TEXT, 0, true, true},
    CLI_FLAG_EXPECT_EPOCH,
    CLI_FLAG_EXPECT_REVISION,
    CLI_FLAGS_END};
static const struct cli_flag merge_flags[] = {
    {"with", "PARTITION", "The neighbour to merge with", ARGS_NUMBER, 0, true, false},
    CLI_FLAG_EXPECT_EPOCH,
    CLI_FLAG_EXPECT_REVISION,
    CLI_FLAGS_END};
static const struct cli_flag move_flags[] = {
    {"from", "NODE", "The present primary", ARGS_TEXT, 0, false, false},
    {"to", "NODE", "The new primary", ARGS_TEXT, 0, true, false},
    {"empty", NULL, "It holds no data: reassign it at once", ARGS_SWITCH, 0, false, false},
    {"start", "KEY", "Only what is from here on", ARGS_TEXT, 0, false, false},
    {"end", "KEY", "Only what is before it", ARGS_TEXT, 0, false, false},
    {"max-bytes-per-s", "N", "Copy no faster", ARGS_NUMBER, 0, false, false},
    {"size-bytes", "N", "How large it is, for the plan", ARGS_NUMBER, 0, false, false},
    {"live-bytes-per-s", "N", "How fast it changes, for the plan and the budgets", ARGS_NUMBER, 0,
     false, false},
    CMD_FLAG_REASON,
    CMD_FLAG_WAIT,
    CLI_FLAG_EXPECT_EPOCH,
    CLI_FLAG_EXPECT_REVISION,
    CLI_FLAGS_END};
static const struct cli_flag transfer_flags[] = {
    {"to", "NODE", "The new primary", ARGS_TEXT, 0, true, false},
    CMD_FLAG_REASON,
    CMD_FLAG_WAIT,
    CLI_FLAG_EXPECT_EPOCH,
    CLI_FLAG_EXPECT_REVISION,
    CLI_FLAGS_END};
static const struct cli_flag add_replica_flags[] = {
    {"role", "sync|async", "What it is (sync)", ARGS_CHOICE, 0, false, false},
    {"max-bytes-per-s", "N", "Copy no faster", ARGS_NUMBER, 0, false, false},
    CMD_FLAG_REASON,
    CMD_FLAG_WAIT,
    CLI_FLAG_EXPECT_EPOCH,
    CLI_FLAG_EXPECT_REVISION,
    CLI_FLAGS_END};
static const struct cli_flag remove_replica_flags[] = {
    CMD_FLAG_REASON, CMD_FLAG_WAIT, CLI_FLAG_EXPECT_EPOCH, CLI_FLAG_EXPECT_REVISION, CLI_FLAGS_END};
static const struct cli_flag failover_flags[] = {
    {"to", "NODE", "The new primary", ARGS_TEXT, 0, true, false},
    {"reason", "TEXT", "Why, for the audit", ARGS_TEXT, 0, true, false},
    CMD_FLAG_WAIT,
    CLI_FLAG_EXPECT_EPOCH,
    CLI_FLAG_EXPECT_REVISION,
    CLI_FLAGS_END};
static const struct cli_flag insync_flags[] = {
    {"session", "S", "The primary's session", ARGS_NUMBER, 0, true, false},
    {"epoch", "E", "The epoch it has", ARGS_NUMBER, 0, true, false},
    {"insync", "NODE", "Counts as in sync; all others do not", ARGS_TEXT, 0, false, true},
    {"mod-revision", "R", "The route's mod_revision that was seen", ARGS_NUMBER, 0, false, false},
    CLI_FLAGS_END};
static const struct cli_flag check_flags[] = {
    {"node", "NODE", "Who wants to write", ARGS_TEXT, 0, true, false},
    {"epoch", "E", "The epoch it has", ARGS_NUMBER, 0, true, false},
    CLI_FLAGS_END};

const struct cli_command partition_commands[] = {
    {"list", "KEYSPACE", "List the partitions of a keyspace", "cadastre partition list orders\n",
     list_flags, list_run},
    {"get", "KEYSPACE PARTITION", "Show one partition",
     "cadastre partition get orders 17 -o json\n", NULL, get_run},
    {"history", "KEYSPACE PARTITION", "Show who owned it when, and why that changed",
     "cadastre partition history orders 17\n", NULL, history_run},
    {"split", "KEYSPACE PARTITION", "Split a partition at keys",
     "cadastre partition split orders 17 --at m --expect-epoch 42\n", split_flags, split_run},
    {"merge", "KEYSPACE PARTITION", "Merge a partition with its neighbour",
     "cadastre partition merge orders 17 --with 18\n", merge_flags, merge_run},
    {"move", "KEYSPACE PARTITION", "Move a partition, or a part of one, to another node",
     "cadastre partition move orders 17 --from n1 --to n2 --empty\n"
     "cadastre partition move orders 17 --to n2 --start m --end p --wait 10m\n",
     move_flags, move_run},
    {"transfer", "KEYSPACE PARTITION", "Make a replica that is in sync the primary",
     "cadastre partition transfer orders 17 --to n2 --wait 30s\n", transfer_flags, transfer_run},
    {"add-replica", "KEYSPACE PARTITION NODE", "Add a copy",
     "cadastre partition add-replica orders 17 n3 --role async\n", add_replica_flags,
     add_replica_run},
    {"remove-replica", "KEYSPACE PARTITION NODE", "Remove a copy",
     "cadastre partition remove-replica orders 17 n3\n", remove_replica_flags, remove_replica_run},
    {"failover", "KEYSPACE PARTITION",
     "Give a partition without a primary to a replica, whatever that lacks",
     "cadastre partition failover orders 17 --to n2 --reason burnt-down --yes\n", failover_flags,
     failover_run},
    {"insync", "KEYSPACE PARTITION", "Say as the primary which replicas are in sync",
     "cadastre partition insync orders 17 --session 12 --epoch 42 --insync n2\n", insync_flags,
     insync_run},
    {"pin", "KEYSPACE PARTITION", "Keep the balancer away from a partition",
     "cadastre partition pin orders 17\n", expect_flags, pin_run},
    {"unpin", "KEYSPACE PARTITION", "Let the balancer have it again",
     "cadastre partition unpin orders 17\n", expect_flags, unpin_run},
    {"limit", "KEYSPACE PARTITION RATE", "Set the admission limit in requests per second, or none",
     "cadastre partition limit orders 17 9000\ncadastre partition limit orders 17 none\n",
     expect_flags, limit_run},
    {"check", "KEYSPACE PARTITION", "Ask whether a node may write at an epoch",
     "cadastre partition check orders 17 --node n1 --epoch 42\n", check_flags, check_run},
    {NULL, NULL, NULL, NULL, NULL, NULL}};
