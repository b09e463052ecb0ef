/* SPDX-License-Identifier: Apache-2.0 */
/* route get|batch|range, validate, map. */
#include "cli/cmd.h"
#include "base/lines.h"

#include "base/parse.h"

#include <string.h>

static const struct out_column stale_columns[] = {{"PARTITION", "partition", NULL},
                                                  {"REASON", "reason", NULL},
                                                  {"ROUTES", "routes", cmd_put_routes},
                                                  {NULL, NULL, NULL}};
static const struct out_view stale_view = {"partition", stale_columns};

static int get_run(struct cli *c)
{
    struct target t;
    cmd_keyspace_target(&t, c);
    target_segment(&t, "route");
    target_query(&t, "key", c->args->operands[1]);
    target_flag(&t, c, "at_revision");
    target_read_flags(&t, c);
    return cli_show(c, &t, &out_route_view);
}

static int batch_run(struct cli *c)
{
    struct target t;
    json_t *body = json_object(), *keys = json_array(), *answer;
    for (unsigned i = 1; i < c->args->operand_count; i++) {
        (void)json_array_append_new(keys, json_string_nocheck(c->args->operands[i]));
    }
    (void)json_object_set_new(body, "keys", keys);
    cmd_keyspace_target(&t, c);
    target_segment(&t, "routes");
    target_read_flags(&t, c);
    int code = cli_ask(c, &t, body, &answer);
    return cmd_finish_rows(c, code, answer, "routes", &out_route_view);
}

static int range_run(struct cli *c)
{
    struct target t;
    cmd_keyspace_target(&t, c);
    target_segment(&t, "routes");
    target_flag(&t, c, "start");
    target_flag(&t, c, "end");
    target_read_flags(&t, c);
    return cli_list(c, &t, "routes", &out_route_view);
}

/* "17@42" or "17@42@45": partition, epoch, mod_revision. */
static bool put_cached(json_t *routes, const char *text)
{
    static const char *const members[] = {"partition", "epoch", "mod_revision"};
    json_t *route = json_object();
    (void)json_array_append_new(routes, route);
    for (unsigned n = 0; n < 3; n++) {
        char number[24];
        uint64_t value;
        size_t len = strcspn(text, "@");
        if (len >= sizeof number) {
            return false;
        }
        memcpy(number, text, len);
        number[len] = '\0';
        if (!parse_u64(number, PARSE_INT_MAX, &value)) {
            return false;
        }
        (void)json_object_set_new(route, members[n], json_integer((json_int_t)value));
        if (text[len] == '\0') {
            return n > 0;
        }
        text += len + 1;
    }
    return false;
}

static int validate_run(struct cli *c)
{
    struct target t;
    json_t *body = json_object(), *routes = json_array(), *answer;
    (void)json_object_set_new(body, "routes", routes);
    for (unsigned i = 1; i < c->args->operand_count; i++) {
        if (!put_cached(routes, c->args->operands[i])) {
            json_decref(body);
            return cli_fail(EXIT_USAGE,
                            "PARTITION@EPOCH[@MOD_REVISION] is three numbers at most, not '%s'",
                            c->args->operands[i]);
        }
    }
    cmd_keyspace_target(&t, c);
    target_segment(&t, "validate");
    target_read_flags(&t, c);
    int code = cli_ask(c, &t, body, &answer);
    return cmd_finish_rows(c, code, answer, "stale", &stale_view);
}

/* --- map --- */

struct map_output {
    struct cli *c;
    struct lines lines;
    uint64_t count;
    bool ends_line; /* the last byte that was passed through was a newline */
};

static bool on_map_line(void *arg, struct slice line)
{
    struct map_output *m = arg;
    if (line.len == 0) {
        return true;
    }
    json_t *row = json_loadb((const char *)line.data, line.len, 0, NULL);
    if (row == NULL) {
        return false;
    }
    json_t *rows = json_array();
    (void)json_array_append_new(rows, row);
    out_rows(&m->c->out, &out_route_view, rows);
    json_decref(rows);
    m->count++;
    return ferror(m->c->out.file) == 0;
}

/* JSON goes through as it is; names and tables are made line by line. */
static bool on_map_bytes(void *arg, struct slice bytes)
{
    struct map_output *m = arg;
    if (m->c->out.format == OUT_JSON || m->c->out.format == OUT_JSONL) {
        m->ends_line = bytes.len > 0 ? bytes.data[bytes.len - 1] == '\n' : m->ends_line;
        return fwrite(bytes.data, 1, bytes.len, m->c->out.file) == bytes.len;
    }
    return lines_feed(&m->lines, bytes, on_map_line, m);
}

static int map_send(struct cli *c, struct map_output *m, const char *target)
{
    struct http_request rq = {.method = "GET",
                              .target = target,
                              .accept = c->out.format == OUT_JSON ? "application/json"
                                                                  : "application/x-ndjson",
                              .sink = on_map_bytes,
                              .sink_arg = m};
    struct http_response r;
    struct err e;
    enum http_result result = http_send(c->http, &rq, &r, &e);
    int code = EXIT_DONE;
    if (result != HTTP_ANSWERED) {
        code = cli_fail_result(result, &e);
    } else if (r.status != 200) {
        code = cli_fail_response(&r);
    } else {
        if (c->out.format == OUT_JSON && !m->ends_line) {
            (void)fputc('\n', c->out.file);
        }
        if (c->out.format != OUT_JSON) {
            cli_note(c, "the map at revision %llu", (unsigned long long)r.revision);
        }
    }
    http_response_close(&r);
    return code;
}

static int map_run(struct cli *c)
{
    struct map_output m = {.c = c, .ends_line = true};
    struct target t;
    lines_init(&m.lines);
    cmd_keyspace_target(&t, c);
    target_segment(&t, "map");
    target_read_flags(&t, c);
    buf_put_u8(&t.b, '\0');
    /* Columns can't be measured before they are printed: a map may have millions of rows. */
    static const unsigned widths[] = {12, 9, 10, 24, 11, 12, 21, 9};
    memcpy(c->out.widths, widths, sizeof widths);
    int code = map_send(c, &m, (const char *)t.b.data);
    lines_close(&m.lines);
    target_close(&t);
    return code;
}

static const struct cli_flag get_flags[] = {
    {"at-revision", "R", "As it was at this revision", ARGS_NUMBER, 0, false, false},
    CLI_FLAGS_END};
static const struct cli_flag range_flags[] = {CLI_FLAG_START, CLI_FLAG_END, CLI_FLAG_LIMIT,
                                              CLI_FLAGS_END};

const struct cli_command route_commands[] = {
    {"get", "KEYSPACE KEY", "Show who owns a key",
     "cadastre route get orders melon\n"
     "cadastre route get orders melon --consistency linearizable -o json\n",
     get_flags, get_run},
    {"batch", "KEYSPACE KEY...", "Show who owns each of several keys, all at one revision",
     "cadastre route batch orders apple melon zebra\n", NULL, batch_run},
    {"range", "KEYSPACE", "List the partitions that overlap a range of keys",
     "cadastre route range orders --start g --end p\n", range_flags, range_run},
    {NULL, NULL, NULL, NULL, NULL, NULL}};

const struct cli_command validate_commands[] = {
    {"", "KEYSPACE PARTITION@EPOCH...",
     "Show which cached routes are stale, and what replaced them",
     "cadastre validate orders 17@42 18@44@45\n", NULL, validate_run},
    {NULL, NULL, NULL, NULL, NULL, NULL}};

const struct cli_command map_commands[] = {
    {"", "KEYSPACE", "Download the whole map of a keyspace at one revision",
     "cadastre map orders\ncadastre map orders -o jsonl > orders.jsonl\n", NULL, map_run},
    {NULL, NULL, NULL, NULL, NULL, NULL}};
