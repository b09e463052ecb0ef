/* SPDX-License-Identifier: Apache-2.0 */
/* balancer: its settings, its pause, and the budgets of movement. */
#include "cli/cmd.h"

#include "base/parse.h"

#include <string.h>

static const struct out_column budget_columns[] = {{"BUDGET", "budget", NULL},
                                                   {"MOVES", "moves", NULL},
                                                   {"BYTES/S", "bytes_per_s", NULL},
                                                   {NULL, NULL, NULL}};
static const struct out_view budget_view = {"budget", budget_columns};

static const struct out_column usage_columns[] = {{"BUDGET", "budget", NULL},
                                                  {"OF", "value", NULL},
                                                  {"MOVES", "moves", NULL},
                                                  {"LIMIT", "moves_limit", NULL},
                                                  {"RESERVE", "moves_reserve", NULL},
                                                  {"BYTES/S", "bytes_per_s", NULL},
                                                  {"LIMIT", "bytes_per_s_limit", NULL},
                                                  {"RESERVE", "bytes_per_s_reserve", NULL},
                                                  {NULL, NULL, NULL}};
static const struct out_view usage_view = {"value", usage_columns};

/* A row for each limit; what is computed is shown as absent. */
static void add_rows(json_t *answer)
{
    json_t *rows = json_array(), *value;
    const char *name;
    json_object_foreach(json_object_get(answer, "budgets"), name, value)
    {
        json_t *row = json_is_object(value) ? json_copy(value) : json_object();
        (void)json_object_set_new(row, "budget", json_string(name));
        if (!json_is_object(value)) {
            (void)json_object_set(row, "moves", value);
        }
        (void)json_array_append_new(rows, row);
    }
    (void)json_object_set_new(answer, "rows", rows);
}

static int show(struct cli *c)
{
    struct target t;
    json_t *answer;
    target_init(&t, "/v1/balancer");
    target_read_flags(&t, c);
    int code = cli_read(c, &t, &answer);
    if (code == EXIT_DONE && c->out.format != OUT_JSON) {
        add_rows(answer);
    }
    return cmd_finish_rows(c, code, answer, "rows", &budget_view);
}

/* The flag as a number, or null for "default"; nothing when it was not given. False after a
 * message. */
static bool take(json_t *into,
                 const struct cli *c,
                 const char *flag,
                 const char *member,
                 bool (*parse)(const char *text, uint64_t *ret_value))
{
    const char *text = args_get(c->args, flag);
    uint64_t value;
    if (text == NULL) {
        return true;
    }
    if (strcmp(text, "default") == 0) {
        (void)json_object_set_new(into, member, json_null());
    } else if (parse(text, &value)) {
        (void)json_object_set_new(into, member, json_integer((json_int_t)value));
    } else {
        (void)cli_fail(EXIT_USAGE, "--%s does not take '%.80s'", flag, text);
        return false;
    }
    return true;
}

static bool parse_count(const char *text, uint64_t *ret_value)
{
    return parse_u64(text, PARSE_INT_MAX, ret_value);
}

/* {"budgets":{…}}, or NULL after a message. */
static json_t *patch_of(const struct cli *c)
{
    json_t *limit = json_object(), *budgets = json_object();
    bool named = c->args->operand_count > 0;
    bool ok = take(limit, c, "moves", "moves", parse_count) &&
              take(limit, c, "bytes-per-s", "bytes_per_s", parse_rate_bytes) &&
              take(budgets, c, "recovery-reserve", "recovery_reserve_percent", parse_count) &&
              take(budgets, c, "release", "release_ms", parse_duration_ms);
    if (ok && named != (json_object_size(limit) > 0)) {
        (void)cli_fail(EXIT_USAGE, "--moves and --bytes-per-s are of a BUDGET, and it wants one");
        ok = false;
    }
    if (ok && named) {
        (void)json_object_set(budgets, c->args->operands[0], limit);
    }
    json_decref(limit);
    if (!ok) {
        json_decref(budgets);
        return NULL;
    }
    json_t *body = json_object();
    (void)json_object_set_new(body, "budgets", budgets);
    return body;
}

static int budgets_run(struct cli *c)
{
    struct target t;
    json_t *body = patch_of(c), *answer;
    if (body == NULL) {
        return EXIT_USAGE;
    }
    if (json_object_size(json_object_get(body, "budgets")) == 0) {
        json_decref(body);
        return show(c);
    }
    body_number(body, c, "expect_revision");
    target_init(&t, "/v1/balancer");
    int code = cli_write(c, "PATCH", &t, body, &answer);
    return cmd_finish(c, code, answer, &out_revision_view);
}

static int usage_run(struct cli *c)
{
    struct target t;
    json_t *answer;
    target_init(&t, "/v1/balancer");
    target_read_flags(&t, c);
    int code = cli_read(c, &t, &answer);
    return cmd_finish_rows(c, code, answer, "usage", &usage_view);
}

/* --- settings --- */

static const struct out_column balancer_columns[] = {{"MODE", "mode", NULL},
                                                     {"IDLE", "idle.code", NULL},
                                                     {"WHY", "idle.detail", NULL},
                                                     {"PAUSED_BY", "pause.by", NULL},
                                                     {"UNTIL", "pause.until", NULL},
                                                     {"WINDOWS", "windows", cmd_put_windows},
                                                     {"CLASSES", "classes", out_put_pairs},
                                                     {"GUARDRAILS", "guardrails", out_put_pairs},
                                                     {NULL, NULL, NULL}};
static const struct out_view balancer_view = {"mode", balancer_columns};

static int show_run(struct cli *c)
{
    struct target t;
    target_init(&t, "/v1/balancer");
    target_read_flags(&t, c);
    return cli_show(c, &t, &balancer_view);
}

static int set_run(struct cli *c)
{
    struct target t;
    json_t *body = json_object(), *answer;
    for (unsigned i = 0; i < c->args->operand_count; i++) {
        if (!body_setting(body, c->args->operands[i])) {
            json_decref(body);
            return EXIT_USAGE;
        }
    }
    body_number(body, c, "expect_revision");
    target_init(&t, "/v1/balancer");
    int code = cli_write(c, "PATCH", &t, body, &answer);
    return cmd_finish(c, code, answer, &out_revision_view);
}

static int post(struct cli *c, const char *verb, json_t *body)
{
    struct target t;
    json_t *answer;
    body_number(body, c, "expect_revision");
    target_init(&t, "/v1/balancer");
    target_segment(&t, verb);
    int code = cli_write(c, "POST", &t, body, &answer);
    return cmd_finish(c, code, answer, &out_revision_view);
}

static int pause_run(struct cli *c)
{
    json_t *body = json_object();
    uint64_t for_ms = args_number(c->args, "for", 0);
    body_text(body, c, "reason");
    if (for_ms > 0) {
        (void)json_object_set_new(body, "for_ms", json_integer((json_int_t)for_ms));
    }
    return post(c, "pause", body);
}

static int resume_run(struct cli *c)
{
    return post(c, "resume", json_object());
}

static const struct out_column explain_columns[] = {
    {"PARTITION", "partition", NULL},  {"NODE", "node", NULL},
    {"LEVEL_PPM", "level_ppm", NULL},  {"ROUND", "round.code", NULL},
    {"NODE_IS", "source.code", NULL},  {"MOVE", "move.code", NULL},
    {"SPLIT", "split.code", NULL},     {"MERGE", "merge.code", NULL},
    {"TO", "to.node", NULL},           {"THERE", "to.code", NULL},
    {"PLANNED", "planned.kind", NULL}, {NULL, NULL, NULL}};
static const struct out_view explain_view = {"partition", explain_columns};

static int explain_run(struct cli *c)
{
    struct target t;
    uint64_t partition;
    if (!cli_operand_u64(c, 1, "PARTITION", &partition)) {
        return EXIT_USAGE;
    }
    target_init(&t, "/v1/balancer/explain");
    target_query(&t, "keyspace", c->args->operands[0]);
    target_query_u64(&t, "partition", partition);
    target_flag(&t, c, "to");
    return cli_show(c, &t, &explain_view);
}

static const struct cli_flag explain_flags[] = {
    {"to", "NODE", "Why not to this node", ARGS_TEXT, 0, false, false},
    CLI_FLAGS_END};
static const struct cli_flag set_flags[] = {CLI_FLAG_EXPECT_REVISION, CLI_FLAGS_END};
static const struct cli_flag pause_flags[] = {
    {"reason", "TEXT", "Why, for everybody who asks", ARGS_TEXT, 0, true, false},
    {"for", "DURATION", "For so long (until it is resumed)", ARGS_DURATION, 0, false, false},
    CLI_FLAG_EXPECT_REVISION,
    CLI_FLAGS_END};

static const struct cli_flag budgets_flags[] = {
    {"moves", "N|default", "So many at a time", ARGS_TEXT, 0, false, false},
    {"bytes-per-s", "RATE|default", "So much of it, such as 96MiB/s", ARGS_TEXT, 0, false, false},
    {"recovery-reserve", "PERCENT|default", "Of every budget, for recovery alone", ARGS_TEXT, 0,
     false, false},
    {"release", "DURATION|default", "In which reservations step down", ARGS_TEXT, 0, false, false},
    CLI_FLAG_EXPECT_REVISION,
    CLI_FLAGS_END};

const struct cli_command balancer_commands[] = {
    {"show", "", "Show the mode, why nothing is begun, and what is set", "cadastre balancer show\n",
     NULL, show_run},
    {"set", "SETTING=VALUE...", "Change settings; default is a value of each",
     "cadastre balancer set mode=auto classes.merge=false\n"
     "cadastre balancer set thresholds.high_ppm=150000 guardrails.queue_ms_p99=default\n",
     set_flags, set_run},
    {"explain", "KEYSPACE PARTITION", "Why a partition is or is not moved, split or merged",
     "cadastre balancer explain orders 17 --to n3\n", explain_flags, explain_run},
    {"simulate", "[FILE]", "What would come of a change, from the present state; changes nothing",
     "cadastre balancer simulate --drain n3 --add 2 --like n1\n"
     "cadastre balancer simulate --lose-zone eu-1a --scale 1.5 -o json\n"
     "cadastre balancer simulate --set thresholds.split_share_ppm=150000\n",
     cmd_whatif_flags, cmd_whatif_ask},
    {"pause", "", "Begin nothing routine", "cadastre balancer pause --reason migration --for 2h\n",
     pause_flags, pause_run},
    {"resume", "", "End the pause", "cadastre balancer resume\n", set_flags, resume_run},
    {"window", "[add|remove] [NAME]", "Show the windows of time, add one or remove it",
     "cadastre balancer window\n"
     "cadastre balancer window add office --kind freeze --zone Europe/Zurich --days "
     "mon,tue,wed,thu,fri "
     "--start 08:00 --end 18:00\n"
     "cadastre balancer window add xmas --kind freeze --from 2026-12-24T12:00:00Z --to "
     "2026-12-27T00:00:00Z\n"
     "cadastre balancer window remove office\n",
     cmd_window_flags, cmd_window_run},
    {"budgets", "[BUDGET]", "Show the limits of movement, or set some",
     "cadastre balancer budgets\n"
     "cadastre balancer budgets source --moves 4 --bytes-per-s 200MiB/s\n"
     "cadastre balancer budgets cluster --moves 0\n"
     "cadastre balancer budgets --recovery-reserve 30\n",
     budgets_flags, budgets_run},
    {"usage", "", "Show what is in use of every budget", "cadastre balancer usage\n", NULL,
     usage_run},
    {NULL, NULL, NULL, NULL, NULL, NULL}};
