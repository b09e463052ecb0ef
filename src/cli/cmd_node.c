/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cmd.h"

#include "base/mem.h"
#include "base/parse.h"

#include <string.h>

static const struct out_column columns[] = {{"NODE", "node", NULL},
                                            {"ADDRESS", "address", NULL},
                                            {"STATE", "state", NULL},
                                            {"SCHEDULING", "scheduling", NULL},
                                            {"PRIMARY", "partitions.primary", NULL},
                                            {"SYNC", "partitions.sync", NULL},
                                            {"ASYNC", "partitions.async", NULL},
                                            {"LABELS", "labels", out_put_pairs},
                                            {"CAPACITY", "capacity", out_put_pairs},
                                            {NULL, NULL, NULL}};
static const struct out_view view = {"node", columns};

static void put_count(struct buf *cell, const json_t *array)
{
    buf_put_u64_dec(cell, json_array_size(array));
}

static const struct out_column session_columns[] = {{"SESSION", "session", NULL},
                                                    {"LEASE_MS", "lease_ms", NULL},
                                                    {"PARTITIONS", "partitions", put_count},
                                                    {"REVISION", "revision", NULL},
                                                    {NULL, NULL, NULL}};
static const struct out_view session_view = {"session", session_columns};

static const struct out_column duty_columns[] = {
    {"DUTY", "id", NULL},   {"KEYSPACE", "keyspace", NULL},   {"PARTITION", "partition", NULL},
    {"COPY", "copy", NULL}, {"OPERATION", "operation", NULL}, {"SINCE", "revision", NULL},
    {NULL, NULL, NULL}};
static const struct out_view duty_view = {"id", duty_columns};

static void node_target(struct target *t, const struct cli *c)
{
    target_init(t, "/v1/nodes");
    target_segment(t, c->args->operands[0]);
}

static int list_run(struct cli *c)
{
    struct target t;
    target_init(&t, "/v1/nodes");
    target_read_flags(&t, c);
    return cli_list(c, &t, "nodes", &view);
}

static int get_run(struct cli *c)
{
    struct target t;
    node_target(&t, c);
    target_read_flags(&t, c);
    return cli_show(c, &t, &view);
}

/* NAME=VALUE flags into an object; the values as numbers or sizes when `numbers`. */
static int
put_pairs(const struct cli *c, json_t *body, const char *member, const char *flag, bool numbers)
{
    json_t *object = json_object();
    unsigned at = 0;
    int code = EXIT_DONE;
    const char *text = args_next(c->args, flag, &at);
    for (; code == EXIT_DONE && text != NULL; text = args_next(c->args, flag, &at)) {
        const char *equals = strchr(text, '=');
        uint64_t number = 0;
        bool ok = equals != NULL && equals != text && equals[1] != '\0' &&
                  (!numbers || (parse_size_bytes(equals + 1, &number) && number <= PARSE_INT_MAX));
        if (!ok) {
            code = cli_fail(EXIT_USAGE, "--%s takes NAME=%s, not '%s'", flag,
                            numbers ? "NUMBER" : "VALUE", text);
            break;
        }
        char *name = mem_dup(text, (size_t)(equals - text) + 1);
        name[equals - text] = '\0';
        json_t *value =
            numbers ? json_integer((json_int_t)number) : json_string_nocheck(equals + 1);
        (void)json_object_set_new_nocheck(object, name, value);
        mem_free(name);
    }
    if (json_object_size(object) > 0) {
        (void)json_object_set(body, member, object);
    }
    json_decref(object);
    return code;
}

static int register_run(struct cli *c)
{
    struct target t;
    json_t *body = json_object(), *answer;
    (void)json_object_set_new(body, "address", json_string_nocheck(c->args->operands[1]));
    (void)json_object_set_new(body, "lease", json_string("static"));
    body_number(body, c, "expect_revision");
    int code = put_pairs(c, body, "labels", "label", false);
    code = code != EXIT_DONE ? code : put_pairs(c, body, "capacity", "capacity", true);
    if (code != EXIT_DONE) {
        json_decref(body);
        return code;
    }
    node_target(&t, c);
    code = cli_write(c, "PUT", &t, body, &answer);
    return cmd_finish(c, code, answer, &session_view);
}

static int remove_run(struct cli *c)
{
    bool force = args_has(c->args, "force");
    int code = cli_confirm(
        c, force ? "Declare node '%s' lost for good, with all it held?" : "Remove node '%s'?",
        c->args->operands[0]);
    if (code != EXIT_DONE) {
        return code;
    }
    struct target t;
    json_t *answer;
    node_target(&t, c);
    if (force) {
        target_query(&t, "force", "true");
    }
    code = cli_write(c, "DELETE", &t, cmd_guard(c), &answer);
    return cmd_finish(c, code, answer, &out_revision_view);
}

static int duties_run(struct cli *c)
{
    struct target t;
    json_t *answer;
    node_target(&t, c);
    target_segment(&t, "duties");
    target_read_flags(&t, c);
    int code = cli_read(c, &t, &answer);
    return cmd_finish_rows(c, code, answer, "duties", &duty_view);
}

static const struct cli_flag list_flags[] = {CLI_FLAG_LIMIT, CLI_FLAGS_END};
static const struct cli_flag register_flags[] = {
    {"label", "NAME=VALUE", "What placement rules look at", ARGS_TEXT, 0, false, true},
    {"capacity", "NAME=NUMBER", "requests_per_s=20000, bytes=1TiB", ARGS_TEXT, 0, false, true},
    CLI_FLAG_EXPECT_REVISION,
    CLI_FLAGS_END};
static const struct cli_flag remove_flags[] = {
    {"force", NULL, "It is lost for good, with all it held", ARGS_SWITCH, 0, false, false},
    CLI_FLAG_EXPECT_REVISION,
    CLI_FLAGS_END};

const struct cli_command node_commands[] = {
    {"list", "", "List the nodes", "cadastre node list\n", list_flags, list_run},
    {"get", "NODE", "Show one node", "cadastre node get n1 -o json\n", NULL, get_run},
    {"duties", "NODE", "List the copies that a node has still to delete",
     "cadastre node duties n1\n", NULL, duties_run},
    {"register", "NODE ADDRESS", "Register a node that has no agent (its lease is static)",
     "cadastre node register n1 10.0.0.1:9000 --label zone=eu-1a --capacity requests_per_s=20000\n",
     register_flags, register_run},
    {"remove", "NODE", "Remove a node that holds nothing, or is lost",
     "cadastre node remove n1 --yes\ncadastre node remove n1 --force --yes\n", remove_flags,
     remove_run},
    {NULL, NULL, NULL, NULL, NULL, NULL}};
