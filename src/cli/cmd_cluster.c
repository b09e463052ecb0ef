/* SPDX-License-Identifier: Apache-2.0 */
/* status, command, audit, backup. */
#include "cli/cmd.h"

#include "base/mem.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static const struct out_column command_columns[] = {{"STATUS", "status", NULL},
                                                    {"CODE", "code", NULL},
                                                    {"APPLIED", "applied_revision", NULL},
                                                    {"REVISION", "revision", NULL},
                                                    {NULL, NULL, NULL}};
static const struct out_view command_view = {"status", command_columns};

static const struct out_column audit_columns[] = {{"AT", "at", NULL},
                                                  {"REVISION", "revision", NULL},
                                                  {"COMMAND", "command", NULL},
                                                  {"OUTCOME", "outcome", NULL},
                                                  {"SUBJECT", "subject", NULL},
                                                  {"REASON", "reason", NULL},
                                                  {"PRINCIPAL", "principal", NULL},
                                                  {"REMOTE", "remote", NULL},
                                                  {"KEY", "idempotency_key", NULL},
                                                  {NULL, NULL, NULL}};
static const struct out_view audit_view = {"index", audit_columns};

static const struct out_column cluster_columns[] = {{"CLUSTER", "cluster", NULL},
                                                    {"GENERATION", "generation", NULL},
                                                    {"LEADER", "leader", NULL},
                                                    {"TERM", "term", NULL},
                                                    {"REVISION", "revision", NULL},
                                                    {"ASKED", "id", NULL},
                                                    {NULL, NULL, NULL}};
static const struct out_view cluster_view = {"cluster", cluster_columns};

static const struct out_column server_columns[] = {{"SERVER", "id", NULL},
                                                   {"ROLE", "role", NULL},
                                                   {"API", "api_url", NULL},
                                                   {"APPLIED", "applied_index", NULL},
                                                   {NULL, NULL, NULL}};
static const struct out_view server_view = {"id", server_columns};

static int status_run(struct cli *c)
{
    struct target t;
    json_t *answer;
    target_init(&t, "/v1/cluster");
    int code = cli_read(c, &t, &answer);
    if (code != EXIT_DONE) {
        return code;
    }
    out_object(&c->out, &cluster_view, answer);
    if (c->out.format == OUT_TABLE) {
        (void)fputc('\n', c->out.file);
        out_restart(&c->out);
        out_rows(&c->out, &server_view, json_object_get(answer, "servers"));
    }
    json_decref(answer);
    return code;
}

static int command_get_run(struct cli *c)
{
    struct target t;
    target_init(&t, "/v1/commands");
    target_segment(&t, c->args->operands[0]);
    return cli_show(c, &t, &command_view);
}

static int audit_run(struct cli *c)
{
    struct target t;
    target_init(&t, "/v1/audit");
    return cli_list(c, &t, "entries", &audit_view);
}

/* --- backup --- */

static const char sqlite_magic[] = "SQLite format 3"; /* with its NUL: 16 bytes */

struct backup {
    FILE *file;
    uint64_t bytes;
    char head[sizeof sqlite_magic];
    int error; /* errno of a failed write */
};

static bool on_backup_bytes(void *arg, struct slice bytes)
{
    struct backup *b = arg;
    for (size_t i = 0; i < bytes.len && b->bytes + i < sizeof b->head; i++) {
        b->head[b->bytes + i] = (char)bytes.data[i];
    }
    b->bytes += bytes.len;
    if (fwrite(bytes.data, 1, bytes.len, b->file) != bytes.len) {
        b->error = errno;
        return false;
    }
    return true;
}

/* On the disk, or an errno. */
static int backup_sync(const struct backup *b)
{
    if (b->error != 0) {
        return b->error;
    }
    if (fflush(b->file) != 0) {
        return errno;
    }
    bool regular = b->file != stdout;
    return regular && fsync(fileno(b->file)) != 0 ? errno : 0;
}

static int backup_receive(struct cli *c, struct backup *b, const char *name)
{
    struct http_request rq = {.method = "GET",
                              .target = "/v1/backup",
                              .accept = "application/vnd.sqlite3",
                              .sink = on_backup_bytes,
                              .sink_arg = b};
    struct http_response r;
    struct err e;
    enum http_result result = http_send(c->http, &rq, &r, &e);
    int error = backup_sync(b);
    int code = EXIT_DONE;
    if (error != 0) {
        code = cli_fail(EXIT_FAILED, "%s: %s", name, strerror(error));
    } else if (result != HTTP_ANSWERED) {
        code = cli_fail_result(result, &e);
    } else if (r.status != 200) {
        code = cli_fail_response(&r);
    } else if (b->bytes < sizeof b->head || memcmp(b->head, sqlite_magic, sizeof b->head) != 0) {
        code = cli_fail(EXIT_FAILED, "%s did not send a SQLite file", r.server);
    } else {
        cli_note(c, "%s: %llu bytes at revision %llu", name, (unsigned long long)b->bytes,
                 (unsigned long long)r.revision);
    }
    http_response_close(&r);
    return code;
}

/* Under another name first: FILE is there whole or not at all. */
static int backup_to_file(struct cli *c, const char *path)
{
    char *partial = mem_printf("%s.partial", path);
    struct backup b = {.file = fopen(partial, "wbe")};
    int code;
    if (b.file == NULL) {
        code = cli_fail(EXIT_FAILED, "%s: %s", partial, strerror(errno));
    } else {
        code = backup_receive(c, &b, path);
        if (fclose(b.file) != 0 && code == EXIT_DONE) {
            code = cli_fail(EXIT_FAILED, "%s: %s", partial, strerror(errno));
        }
        if (code == EXIT_DONE && rename(partial, path) != 0) {
            code = cli_fail(EXIT_FAILED, "%s: %s", path, strerror(errno));
        }
        if (code != EXIT_DONE) {
            (void)unlink(partial);
        }
    }
    mem_free(partial);
    return code;
}

static int backup_run(struct cli *c)
{
    const char *path = c->args->operands[0];
    if (strcmp(path, "-") == 0) {
        struct backup b = {.file = stdout};
        return backup_receive(c, &b, "stdout");
    }
    if (access(path, F_OK) == 0) {
        int code = cli_confirm(c, "Overwrite %s?", path);
        if (code != EXIT_DONE) {
            return code;
        }
    }
    return backup_to_file(c, path);
}

static const struct cli_flag audit_flags[] = {CLI_FLAG_LIMIT, CLI_FLAGS_END};

const struct cli_command status_commands[] = {
    {"", "", "Show the cluster as one server sees it", "cadastre status\n", NULL, status_run},
    {NULL, NULL, NULL, NULL, NULL, NULL}};

const struct cli_command command_commands[] = {
    {"get", "KEY", "Show what came of the request with this idempotency key",
     "cadastre command get 5f0c7a52-create-orders\n", NULL, command_get_run},
    {NULL, NULL, NULL, NULL, NULL, NULL}};

const struct cli_command audit_commands[] = {{"", "", "List who did what, newest first",
                                              "cadastre audit --limit 50\n", audit_flags,
                                              audit_run},
                                             {NULL, NULL, NULL, NULL, NULL, NULL}};

const struct cli_command backup_commands[] = {
    {"", "FILE", "Download the directory as a SQLite file (- for stdout)",
     "cadastre backup cadastre.db\n", NULL, backup_run},
    {NULL, NULL, NULL, NULL, NULL, NULL}};
