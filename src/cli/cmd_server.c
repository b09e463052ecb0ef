/* SPDX-License-Identifier: Apache-2.0 */
/* server, watchers: the directory's own members, and who follows them. */
#include "cli/cmd.h"

#include <string.h>

static const struct out_column columns[] = {{"SERVER", "id", NULL},
                                            {"ROLE", "role", NULL},
                                            {"RAFT", "raft_address", NULL},
                                            {"API", "api_url", NULL},
                                            {"APPLIED", "applied_index", NULL},
                                            {"HASH", "state_hash", NULL},
                                            {NULL, NULL, NULL}};
static const struct out_view view = {"id", columns};

static const struct out_column watcher_columns[] = {
    {"WATCHER", "id", NULL},    {"KEYSPACE", "keyspace", NULL},
    {"REMOTE", "remote", NULL}, {"ACKNOWLEDGED", "acknowledged", NULL},
    {"SINCE", "since", NULL},   {NULL, NULL, NULL}};
static const struct out_view watcher_view = {"id", watcher_columns};

static const struct out_column setting_columns[] = {{"SETTING", "setting", NULL},
                                                    {"VALUE", "value", NULL},
                                                    {NULL, NULL, NULL}};
static const struct out_view setting_view = {"setting", setting_columns};

/* False after a message. */
static bool server_target(struct target *t, const struct cli *c)
{
    uint64_t id;
    if (!cli_operand_u64(c, 0, "SERVER", &id)) {
        return false;
    }
    target_init(t, "/v1/cluster/servers");
    target_segment(t, c->args->operands[0]);
    return true;
}

static int list_run(struct cli *c)
{
    struct target t;
    json_t *answer;
    target_init(&t, "/v1/cluster");
    int code = cli_read(c, &t, &answer);
    return cmd_finish_rows(c, code, answer, "servers", &view);
}

static int add_run(struct cli *c)
{
    struct target t;
    uint64_t id;
    if (!cli_operand_u64(c, 0, "SERVER", &id)) {
        return EXIT_USAGE;
    }
    json_t *body = json_object(), *answer;
    (void)json_object_set_new(body, "id", json_integer((json_int_t)id));
    body_text(body, c, "raft_address");
    body_text(body, c, "api_url");
    body_text(body, c, "role");
    body_text(body, c, "instance");
    target_init(&t, "/v1/cluster/servers");
    int code = cli_write(c, "POST", &t, body, &answer);
    return cmd_finish_rows(c, code, answer, "servers", &view);
}

static int set_role(struct cli *c, const char *role)
{
    struct target t;
    if (!server_target(&t, c)) {
        return EXIT_USAGE;
    }
    json_t *body = json_object(), *answer;
    (void)json_object_set_new(body, "role", json_string(role));
    int code = cli_write(c, "PATCH", &t, body, &answer);
    return cmd_finish_rows(c, code, answer, "servers", &view);
}

static int promote_run(struct cli *c)
{
    return set_role(c, "voter");
}

static int demote_run(struct cli *c)
{
    return set_role(c, "observer");
}

static int remove_run(struct cli *c)
{
    struct target t;
    json_t *answer;
    int code =
        cli_confirm(c, "Remove server %s? Its id is never used again.", c->args->operands[0]);
    if (code != EXIT_DONE || !server_target(&t, c)) {
        return code != EXIT_DONE ? code : EXIT_USAGE;
    }
    code = cli_write(c, "DELETE", &t, cmd_guard(c), &answer);
    return cmd_finish_rows(c, code, answer, "servers", &view);
}

static int transfer_run(struct cli *c)
{
    struct target t;
    json_t *body = json_object(), *answer;
    uint64_t id;
    if (c->args->operand_count > 0) {
        if (!cli_operand_u64(c, 0, "SERVER", &id)) {
            json_decref(body);
            return EXIT_USAGE;
        }
        (void)json_object_set_new(body, "to", json_integer((json_int_t)id));
    }
    target_init(&t, "/v1/cluster/transfer-leadership");
    int code = cli_write(c, "POST", &t, body, &answer);
    return cmd_finish_rows(c, code, answer, "servers", &view);
}

static int snapshot_run(struct cli *c)
{
    struct target t;
    json_t *answer;
    target_init(&t, "/v1/cluster/snapshot");
    int code = cli_ask(c, &t, NULL, &answer);
    return cmd_finish(c, code, answer, &out_revision_view);
}

static int watchers_run(struct cli *c)
{
    struct target t;
    target_init(&t, "/v1/cluster/watchers");
    target_flag(&t, c, "behind");
    return cli_list(c, &t, "watchers", &watcher_view);
}

static int settings_show(struct cli *c, struct target *t)
{
    const char *name;
    json_t *answer, *value, *rows = json_array();
    int code = cli_read(c, t, &answer);
    if (code == EXIT_DONE && c->out.format != OUT_JSON) {
        json_object_foreach(answer, name, value)
        {
            if (strcmp(name, "revision") != 0) {
                (void)json_array_append_new(
                    rows, json_pack("{s:s,s:O}", "setting", name, "value", value));
            }
        }
        out_rows(&c->out, &setting_view, rows);
        json_decref(answer);
    } else {
        code = cmd_finish(c, code, answer, &setting_view);
    }
    json_decref(rows);
    return code;
}

static int settings_run(struct cli *c)
{
    struct target t;
    target_init(&t, "/v1/cluster/settings");
    if (c->args->operand_count == 0) {
        target_read_flags(&t, c);
        return settings_show(c, &t);
    }
    json_t *body = json_object(), *answer;
    for (unsigned i = 0; i < c->args->operand_count; i++) {
        if (!body_setting(body, c->args->operands[i])) {
            json_decref(body);
            return EXIT_USAGE;
        }
    }
    body_number(body, c, "expect_revision");
    int code = cli_write(c, "PATCH", &t, body, &answer);
    return cmd_finish(c, code, answer, &out_revision_view);
}

static const struct cli_flag add_flags[] = {
    {"raft-address", "HOST:PORT", "Where its peers reach it", ARGS_TEXT, 0, true, false},
    {"api-url", "URL", "Where clients reach it", ARGS_TEXT, 0, true, false},
    {"instance", "HEX", "The id of its data directory", ARGS_TEXT, 0, true, false},
    {"role", "voter|observer", "What it is (voter)", ARGS_CHOICE, 0, false, false},
    CLI_FLAGS_END};
static const struct cli_flag settings_flags[] = {CLI_FLAG_EXPECT_REVISION, CLI_FLAGS_END};
static const struct cli_flag watchers_flags[] = {
    {"behind", "R", "Only those that have not seen this revision", ARGS_NUMBER, 0, false, false},
    CLI_FLAG_LIMIT,
    CLI_FLAGS_END};

const struct cli_command server_commands[] = {
    {"list", "", "List the directory's own servers", "cadastre server list\n", NULL, list_run},
    {"add", "SERVER", "Add a server (cadastred --join does this by itself)",
     "cadastre server add 2 --raft-address 10.0.0.2:7401 --api-url http://10.0.0.2:7400 "
     "--instance 9e107d9d372bb6826bd81d3542a419d6\n",
     add_flags, add_run},
    {"remove", "SERVER", "Remove a server, which may be down", "cadastre server remove 2 --yes\n",
     NULL, remove_run},
    {"promote", "SERVER", "Make an observer a voter", "cadastre server promote 2\n", NULL,
     promote_run},
    {"demote", "SERVER", "Make a voter an observer", "cadastre server demote 2\n", NULL,
     demote_run},
    {"transfer-leadership", "[SERVER]", "Hand leadership to a server, or to the most advanced one",
     "cadastre server transfer-leadership 2\n", NULL, transfer_run},
    {"snapshot", "", "Take a Raft snapshot now", "cadastre server snapshot\n", NULL, snapshot_run},
    {"settings", "[SETTING=VALUE...]", "Show the directory's settings, or change some",
     "cadastre server settings\n"
     "cadastre server settings lease_ms=10000 heartbeat_ms=3000\n",
     settings_flags, settings_run},
    {NULL, NULL, NULL, NULL, NULL, NULL}};

const struct cli_command watchers_commands[] = {
    {"", "", "List who follows changes, and up to which revision",
     "cadastre watchers --behind 45\n", watchers_flags, watchers_run},
    {NULL, NULL, NULL, NULL, NULL, NULL}};
