/* SPDX-License-Identifier: Apache-2.0 */
/* changes, diff: what happened, as a list. */
#include "cli/cmd.h"

static void put_removed(struct buf *cell, const json_t *removed)
{
    size_t at;
    json_t *id;
    json_array_foreach(removed, at, id)
    {
        buf_put_str(cell, at > 0 ? " " : "");
        out_put_json(cell, id);
    }
}

/* Nothing when it is absent. */
static void put_route(struct buf *cell, const json_t *route)
{
    if (route == NULL) {
        return;
    }
    out_put_json(cell, json_object_get(route, "partition"));
    out_put_range(cell, route);
    buf_put_str(cell, "@");
    out_put_json(cell, json_object_get(route, "epoch"));
    buf_put_str(cell, " ");
    out_put_json(cell, json_object_get(json_object_get(route, "primary"), "node"));
}

void cmd_put_routes(struct buf *cell, const json_t *routes)
{
    size_t at;
    json_t *route;
    json_array_foreach(routes, at, route)
    {
        buf_put_str(cell, at > 0 ? " " : "");
        put_route(cell, route);
    }
}

static const struct out_column change_columns[] = {{"REVISION", "revision", NULL},
                                                   {"KIND", "kind", NULL},
                                                   {"REMOVED", "removed", put_removed},
                                                   {"ROUTES", "routes", cmd_put_routes},
                                                   {NULL, NULL, NULL}};
const struct out_view cmd_change_view = {"revision", change_columns};

static const struct out_column difference_columns[] = {{"PARTITION", "partition", NULL},
                                                       {"CHANGE", "change", NULL},
                                                       {"BEFORE", "before", put_route},
                                                       {"AFTER", "after", put_route},
                                                       {NULL, NULL, NULL}};
static const struct out_view difference_view = {"partition", difference_columns};

static int changes_run(struct cli *c)
{
    struct target t;
    json_t *answer;
    cmd_keyspace_target(&t, c);
    target_segment(&t, "changes");
    target_flag(&t, c, "since");
    target_flag(&t, c, "start");
    target_flag(&t, c, "end");
    target_flag(&t, c, "partition");
    target_flag(&t, c, "limit");
    if (args_has(c->args, "wait")) {
        uint64_t wait = args_number(c->args, "wait", 0), most = c->timeout_ms - c->timeout_ms / 4;
        target_query_u64(&t, "wait_ms", wait < most ? wait : most);
    }
    int code = cli_read(c, &t, &answer);
    return cmd_finish_rows(c, code, answer, "changes", &cmd_change_view);
}

static int diff_run(struct cli *c)
{
    struct target t;
    cmd_keyspace_target(&t, c);
    target_segment(&t, "diff");
    target_flag(&t, c, "from");
    target_flag(&t, c, "to");
    return cli_list(c, &t, "partitions", &difference_view);
}

static const struct cli_flag changes_flags[] = {
    {"since", "R", "Changes after this revision", ARGS_NUMBER, 0, true, false},
    {"wait", "DURATION", "Wait so long for the first one", ARGS_DURATION, 0, false, false},
    CLI_FLAG_START,
    CLI_FLAG_END,
    CLI_FLAG_PARTITION,
    CLI_FLAG_LIMIT,
    CLI_FLAGS_END};
static const struct cli_flag diff_flags[] = {
    {"from", "R", "The earlier revision", ARGS_NUMBER, 0, true, false},
    {"to", "R", "The later revision (the present one)", ARGS_NUMBER, 0, false, false},
    CLI_FLAG_LIMIT,
    CLI_FLAGS_END};

const struct cli_command changes_commands[] = {
    {"", "KEYSPACE", "List what changed since a revision",
     "cadastre changes orders --since 41 --wait 5s\n", changes_flags, changes_run},
    {NULL, NULL, NULL, NULL, NULL, NULL}};

const struct cli_command diff_commands[] = {{"", "KEYSPACE", "Compare a keyspace at two revisions",
                                             "cadastre diff orders --from 41 --to 44\n", diff_flags,
                                             diff_run},
                                            {NULL, NULL, NULL, NULL, NULL, NULL}};
