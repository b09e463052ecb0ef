/* SPDX-License-Identifier: Apache-2.0 */
/* The table of everything that the command can do. */
#include "cli/cmd.h"
#include "cli/help.h"

enum { COMPLETION_MAX = 1 << 20 };

static int completion_run(struct cli *c)
{
    struct buf script;
    buf_init(&script, COMPLETION_MAX);
    int code = EXIT_DONE;
    if (completion_put(c->grammar, c->args->operands[0], &script)) {
        (void)fwrite(script.data, 1, script.len, c->out.file);
    } else {
        code = cli_fail(EXIT_USAGE, "SHELL is bash, zsh or fish");
    }
    buf_close(&script);
    return code;
}

const struct cli_command completion_commands[] = {
    {"", "SHELL", "Print a completion script for bash, zsh or fish",
     "eval \"$(cadastre completion bash)\"\n"
     "cadastre completion fish > ~/.config/fish/completions/cadastre.fish\n",
     NULL, completion_run},
    {NULL, NULL, NULL, NULL, NULL, NULL}};

static const struct cli_noun nouns[] = {
    {"status", "The cluster as one server sees it", status_commands},
    {"keyspace", "Ordered spaces of keys, cut into partitions", keyspace_commands},
    {"partition", "Key ranges, each owned by one node at one epoch", partition_commands},
    {"route", "Who owns a key", route_commands},
    {"map", "The whole map of a keyspace", map_commands},
    {"watch", "Changes as they come", watch_commands},
    {"changes", "Changes since a revision", changes_commands},
    {"diff", "A keyspace at two revisions", diff_commands},
    {"validate", "Which cached routes are stale", validate_commands},
    {"node", "Data-plane processes that hold partitions", node_commands},
    {"operation", "Staged pieces of work", operation_commands},
    {"replication", "Which partitions lack copies", replication_commands},
    {"balancer", "What evens out the load, and the budgets of movement", balancer_commands},
    {"proposal", "What the balancer would do, or has done", proposal_commands},
    {"skew", "How uneven the load is", skew_commands},
    {"heatmap", "Where and when the load was", heatmap_commands},
    {"server", "The directory's own servers", server_commands},
    {"watchers", "Who follows changes", watchers_commands},
    {"command", "What came of a request", command_commands},
    {"audit", "Who did what", audit_commands},
    {"backup", "The directory as a SQLite file", backup_commands},
    {"doctor", "Whether every server is well", doctor_commands},
    {"plan", "The arithmetic of moves, shards and salts; asks no server", plan_commands},
    {"simulate", "What the balancer would do with a fleet; asks no server", simulate_commands},
    {"completion", "A completion script for a shell", completion_commands},
    {NULL, NULL, NULL}};

static const struct cli_flag globals[] = {
    {"endpoints", "URL[,URL...]", "Servers to ask (CADASTRE_ENDPOINTS; http://127.0.0.1:7400)",
     ARGS_TEXT, 'e', false, false},
    {"timeout", "DURATION", "How long to try (10s)", ARGS_DURATION, 0, false, false},
    {"output", "table|json|jsonl|name|svg", "How to print (table; svg: simulate alone)",
     ARGS_CHOICE, 'o', false, false},
    {"consistency", "local|linearizable", "How fresh reads are (local)", ARGS_CHOICE, 0, false,
     false},
    {"min-revision", "R", "Reads wait until the server has this revision", ARGS_NUMBER, 0, false,
     false},
    {"max-staleness", "DURATION", "Reads refuse an older state", ARGS_DURATION, 0, false, false},
    {"idempotency-key", "KEY", "The key of a mutation (random)", ARGS_TEXT, 0, false, false},
    {"yes", NULL, "Don't ask before what can't be undone", ARGS_SWITCH, 'y', false, false},
    {"quiet", NULL, "No messages but errors", ARGS_SWITCH, 'q', false, false},
    {"no-headers", NULL, "No header line above a table", ARGS_SWITCH, 0, false, false},
    {"version", NULL, "Print the version", ARGS_SWITCH, 0, false, false},
    {"help", NULL, "Print help about the command", ARGS_SWITCH, 'h', false, false},
    CLI_FLAGS_END};

const struct cli_grammar cli_grammar = {nouns, globals};
