/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cmd.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/parse.h"

#include <string.h>

enum { DRAIN_POLL_MS = 500 };

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

/* --- scheduling --- */

static int schedule(struct cli *c, const char *verb)
{
    struct target t;
    json_t *body = json_object(), *answer;
    body_text(body, c, "reason");
    body_number(body, c, "expect_revision");
    node_target(&t, c);
    target_segment(&t, verb);
    int code = cli_write(c, "POST", &t, body, &answer);
    return cmd_finish(c, code, answer, &view);
}

static int cordon_run(struct cli *c)
{
    return schedule(c, "cordon");
}

static int uncordon_run(struct cli *c)
{
    return schedule(c, "uncordon");
}

static int quarantine_run(struct cli *c)
{
    return schedule(c, "quarantine");
}

static int unquarantine_run(struct cli *c)
{
    return schedule(c, "unquarantine");
}

/* What is left of a drain, on stderr; 0 when the node is empty or does not drain any more. */
static uint64_t say_progress(const struct cli *c, const json_t *node)
{
    const json_t *drain = json_object_get(node, "drain");
    const json_t *first = json_array_get(json_object_get(drain, "blocked"), 0);
    uint64_t left = (uint64_t)json_integer_value(json_object_get(drain, "copies_left"));
    if (left > 0) {
        cli_note(c, "%llu copies left, %lld operations running, %lld blocked%s%s",
                 (unsigned long long)left,
                 (long long)json_integer_value(json_object_get(drain, "operations_running")),
                 (long long)json_integer_value(json_object_get(drain, "blocked_count")),
                 first != NULL ? ": " : "",
                 first != NULL ? json_string_value(json_object_get(first, "detail")) : "");
    }
    return left;
}

static int wait_until_empty(struct cli *c, uint64_t wait_ms)
{
    uint64_t until = clock_mono_ms() + wait_ms, said = 0;
    for (;;) {
        struct target t;
        json_t *node;
        node_target(&t, c);
        int code = cli_read(c, &t, &node);
        if (code != EXIT_DONE) {
            return code;
        }
        uint64_t left = (uint64_t)json_integer_value(
            json_object_get(json_object_get(node, "drain"), "copies_left"));
        bool drains = json_object_get(node, "drain") != NULL;
        if (left != said) {
            said = say_progress(c, node);
        }
        json_decref(node);
        if (!drains) {
            return cli_fail(EXIT_FAILED, "node '%s' does not drain any more", c->args->operands[0]);
        }
        if (left == 0) {
            return EXIT_DONE;
        }
        if (clock_mono_ms() >= until) {
            return cli_fail(EXIT_TIMED_OUT, "node '%s' is not empty yet", c->args->operands[0]);
        }
        cmd_pause_ms(DRAIN_POLL_MS);
    }
}

static int drain_run(struct cli *c)
{
    int code = schedule(c, "drain");
    if (code == EXIT_DONE && args_has(c->args, "wait")) {
        code = wait_until_empty(c, args_number(c->args, "wait", 0));
    }
    return code;
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

static const struct cli_flag scheduling_flags[] = {CMD_FLAG_REASON, CLI_FLAG_EXPECT_REVISION,
                                                   CLI_FLAGS_END};
static const struct cli_flag drain_flags[] = {
    {"wait", "DURATION", "Wait at most so long for it to be empty", ARGS_DURATION, 0, false, false},
    CMD_FLAG_REASON,
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
    {"cordon", "NODE", "Give a node nothing new; what it holds stays",
     "cadastre node cordon n1 --reason maintenance\n", scheduling_flags, cordon_run},
    {"drain", "NODE", "Move everything off a node, and give it nothing new",
     "cadastre node drain n1 --wait 1h\n", drain_flags, drain_run},
    {"uncordon", "NODE", "Let a node take copies again; ends a drain",
     "cadastre node uncordon n1\n", scheduling_flags, uncordon_run},
    {"quarantine", "NODE", "Take a node out of consideration until it is let in again",
     "cadastre node quarantine n1\n", scheduling_flags, quarantine_run},
    {"unquarantine", "NODE", "Let a node in again", "cadastre node unquarantine n1\n",
     scheduling_flags, unquarantine_run},
    {NULL, NULL, NULL, NULL, NULL, NULL}};
