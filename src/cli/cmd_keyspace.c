/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cmd.h"

#include "base/mem.h"

#include <errno.h>
#include <string.h>

enum { SPLITS_FILE_LINE_MAX = 4096 };

static const struct out_column columns[] = {{"NAME", "name", NULL},
                                            {"SCHEME", "scheme", NULL},
                                            {"KEYS", "key_encoding", NULL},
                                            {"PARTITIONS", "partitions", NULL},
                                            {"SYNC", "replicas.sync", NULL},
                                            {"ASYNC", "replicas.async", NULL},
                                            {"AUTHORITY", "authority", NULL},
                                            {"REQUIRE", "placement.require", out_put_pairs},
                                            {"SPREAD", "placement.spread", NULL},
                                            {"CREATED", "created_at", NULL},
                                            {NULL, NULL, NULL}};
static const struct out_view view = {"name", columns};

static int list_run(struct cli *c)
{
    struct target t;
    target_init(&t, "/v1/keyspaces");
    target_read_flags(&t, c);
    return cli_list(c, &t, "keyspaces", &view);
}

static int get_run(struct cli *c)
{
    struct target t;
    cmd_keyspace_target(&t, c);
    target_read_flags(&t, c);
    return cli_show(c, &t, &view);
}

/* "region=eu-1,eu-2": the alternatives of one label. */
static int put_require(json_t *require, const char *text)
{
    const char *equals = strchr(text, '=');
    if (equals == NULL || equals == text || equals[1] == '\0') {
        return cli_fail(EXIT_USAGE, "--require takes LABEL=VALUE[,VALUE...], not '%s'", text);
    }
    json_t *values = json_array();
    for (const char *p = equals + 1;; p++) {
        size_t len = strcspn(p, ",");
        (void)json_array_append_new(values, json_stringn_nocheck(p, len));
        p += len;
        if (*p == '\0') {
            break;
        }
    }
    char *label = mem_dup(text, (size_t)(equals - text) + 1);
    label[equals - text] = '\0';
    (void)json_object_set_new_nocheck(require, label, values);
    mem_free(label);
    return EXIT_DONE;
}

static int put_placement(const struct cli *c, json_t *body)
{
    json_t *placement = json_object(), *require = json_object();
    unsigned at = 0;
    int code = EXIT_DONE;
    const char *text = args_next(c->args, "require", &at);
    for (; code == EXIT_DONE && text != NULL; text = args_next(c->args, "require", &at)) {
        code = put_require(require, text);
    }
    if (json_object_size(require) > 0) {
        (void)json_object_set(placement, "require", require);
    }
    body_text(placement, c, "spread");
    if (json_object_size(placement) > 0) {
        (void)json_object_set(body, "placement", placement);
    }
    json_decref(require);
    json_decref(placement);
    return code;
}

static int put_policy(const struct cli *c, json_t *body)
{
    const char *text = args_get(c->args, "policy");
    if (text == NULL) {
        return EXIT_DONE;
    }
    json_error_t error;
    json_t *policy = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    if (!json_is_object(policy)) {
        json_decref(policy);
        return cli_fail(EXIT_USAGE, "--policy takes a JSON object, not '%s'", text);
    }
    (void)json_object_set_new(body, "policy", policy);
    return EXIT_DONE;
}

/* What create and update share. */
static int put_settings(const struct cli *c, json_t *body)
{
    json_t *replicas = json_object();
    body_number(replicas, c, "sync");
    body_number(replicas, c, "async");
    if (json_object_size(replicas) > 0) {
        (void)json_object_set(body, "replicas", replicas);
    }
    json_decref(replicas);
    body_number(body, c, "expect_revision");
    int code = put_placement(c, body);
    return code != EXIT_DONE ? code : put_policy(c, body);
}

/* A key a line. */
static int read_splits(const char *path, json_t *splits)
{
    bool standard = strcmp(path, "-") == 0;
    FILE *f = standard ? stdin : fopen(path, "r");
    if (f == NULL) {
        return cli_fail(EXIT_FAILED, "%s: %s", path, strerror(errno));
    }
    char line[SPLITS_FILE_LINE_MAX];
    int code = EXIT_DONE;
    while (code == EXIT_DONE && fgets(line, sizeof line, f) != NULL) {
        size_t len = strcspn(line, "\r\n");
        if (line[len] == '\0' && feof(f) == 0) {
            code = cli_fail(EXIT_USAGE, "%s: a line is too long", path);
        } else if (len > 0) {
            (void)json_array_append_new(splits, json_stringn_nocheck(line, len));
        }
    }
    if (code == EXIT_DONE && ferror(f) != 0) {
        code = cli_fail(EXIT_FAILED, "%s: %s", path, strerror(errno));
    }
    if (!standard) {
        (void)fclose(f);
    }
    return code;
}

static int put_splits(const struct cli *c, json_t *body)
{
    json_t *splits = json_array();
    unsigned at = 0;
    const char *text = args_next(c->args, "split", &at);
    for (; text != NULL; text = args_next(c->args, "split", &at)) {
        (void)json_array_append_new(splits, json_string_nocheck(text));
    }
    const char *path = args_get(c->args, "splits-file");
    int code = path != NULL ? read_splits(path, splits) : EXIT_DONE;
    if (json_array_size(splits) > 0) {
        (void)json_object_set(body, "splits", splits);
    }
    json_decref(splits);
    return code;
}

static int put_scheme(const struct cli *c, json_t *body)
{
    const char *scheme = args_get(c->args, "scheme");
    (void)json_object_set_new(body, "scheme", json_string(scheme != NULL ? scheme : "range"));
    body_text(body, c, "key_encoding");
    body_text(body, c, "authority");
    body_number(body, c, "partitions");
    bool delimiter = args_has(c->args, "delimiter"), fields = args_has(c->args, "fields");
    if (delimiter != fields) {
        return cli_fail(EXIT_USAGE, "--delimiter and --fields go together");
    }
    if (delimiter) {
        json_t *key = json_object();
        body_text(key, c, "delimiter");
        body_number(key, c, "fields");
        (void)json_object_set_new(body, "partition_key", key);
    }
    return put_splits(c, body);
}

static int create_run(struct cli *c)
{
    struct target t;
    json_t *body = json_object(), *answer;
    (void)json_object_set_new(body, "name", json_string_nocheck(c->args->operands[0]));
    int code = put_scheme(c, body);
    code = code != EXIT_DONE ? code : put_settings(c, body);
    if (code != EXIT_DONE) {
        json_decref(body);
        return code;
    }
    target_init(&t, "/v1/keyspaces");
    code = cli_write(c, "POST", &t, body, &answer);
    return cmd_finish(c, code, answer, &view);
}

static int update_run(struct cli *c)
{
    struct target t;
    json_t *body = json_object(), *answer;
    int code = put_settings(c, body);
    if (code == EXIT_DONE && json_object_size(body) == 0) {
        code = cli_fail(EXIT_USAGE, "nothing to change was given");
    }
    if (code != EXIT_DONE) {
        json_decref(body);
        return code;
    }
    cmd_keyspace_target(&t, c);
    code = cli_write(c, "PATCH", &t, body, &answer);
    return cmd_finish(c, code, answer, &view);
}

static int delete_run(struct cli *c)
{
    const char *name = c->args->operands[0];
    int code = cli_confirm(c, "Delete keyspace '%s' with all its partitions?", name);
    if (code != EXIT_DONE) {
        return code;
    }
    struct target t;
    json_t *answer;
    cmd_keyspace_target(&t, c);
    target_query(&t, "confirm", name);
    code = cli_write(c, "DELETE", &t, cmd_guard(c), &answer);
    return cmd_finish(c, code, answer, &out_revision_view);
}

#define SETTINGS                                                                                   \
    {"sync", "N", "Synchronous copies beside the primary", ARGS_NUMBER, 0, false, false},          \
        {"async", "N", "Asynchronous copies beside the primary", ARGS_NUMBER, 0, false, false},    \
        {"require",                                                                                \
         "LABEL=VALUE[,VALUE...]",                                                                 \
         "Only nodes with one of these values",                                                    \
         ARGS_TEXT,                                                                                \
         0,                                                                                        \
         false,                                                                                    \
         true},                                                                                    \
        {"spread", "LABEL", "Copies on nodes that differ in this label", ARGS_TEXT, 0,             \
         false,    false},                                                                         \
        {"policy", "JSON", "Settings, as a JSON object", ARGS_TEXT, 0, false, false},              \
        CLI_FLAG_EXPECT_REVISION

static const struct cli_flag list_flags[] = {CLI_FLAG_LIMIT, CLI_FLAGS_END};
static const struct cli_flag delete_flags[] = {CLI_FLAG_EXPECT_REVISION, CLI_FLAGS_END};
static const struct cli_flag update_flags[] = {SETTINGS, CLI_FLAGS_END};
static const struct cli_flag create_flags[] = {
    {"scheme", "range|hash|composite", "How keys become partitions (range)", ARGS_CHOICE, 0, false,
     false},
    {"key-encoding", "utf8|hex", "How keys are written (utf8)", ARGS_CHOICE, 0, false, false},
    {"split", "KEY", "A range begins here", ARGS_TEXT, 0, false, true},
    {"splits-file", "FILE", "The same from a file, a key a line; - for stdin", ARGS_TEXT, 0, false,
     false},
    {"partitions", "N", "Of a hash keyspace: so many equal ranges", ARGS_NUMBER, 0, false, false},
    {"delimiter", "C", "Of a hash keyspace: what parts the key's fields", ARGS_TEXT, 0, false,
     false},
    {"fields", "N", "Of a hash keyspace: hash the first N fields only", ARGS_NUMBER, 0, false,
     false},
    {"authority", "exclusive|affinity", "What a lease promises (exclusive)", ARGS_CHOICE, 0, false,
     false},
    SETTINGS,
    CLI_FLAGS_END};

const struct cli_command keyspace_commands[] = {
    {"list", "", "List the keyspaces", "cadastre keyspace list\n", list_flags, list_run},
    {"get", "KEYSPACE", "Show one keyspace", "cadastre keyspace get orders -o json\n", NULL,
     get_run},
    {"create", "KEYSPACE", "Create a keyspace",
     "cadastre keyspace create orders --split g --split p\n"
     "cadastre keyspace create sessions --scheme hash --partitions 64 --delimiter / --fields 1\n"
     "cadastre keyspace create invoices --sync 1 --require region=eu-1,eu-2 --spread zone\n",
     create_flags, create_run},
    {"update", "KEYSPACE", "Change copies, placement or policy",
     "cadastre keyspace update orders --sync 2 --spread zone\n", update_flags, update_run},
    {"delete", "KEYSPACE", "Delete a keyspace and all its partitions",
     "cadastre keyspace delete orders --yes\n", delete_flags, delete_run},
    {NULL, NULL, NULL, NULL, NULL, NULL}};
