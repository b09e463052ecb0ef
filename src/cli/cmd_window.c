/* SPDX-License-Identifier: Apache-2.0 */
/* balancer window: its maintenance windows and freezes. The API knows the list as a whole: it is
 * read, changed and written for the revision at which it was read. */
#include "cli/cmd.h"

#include <stdio.h>
#include <string.h>

enum { TRIES = 8, PAUSE_MS = 50 };

static const char *text_of(const json_t *window, const char *member)
{
    const char *text = json_string_value(json_object_get(window, member));
    return text != NULL ? text : "";
}

/* "mon,tue 08:00-18:00", or "2026-… to 2026-…". */
static void put_when(struct buf *cell, const json_t *window)
{
    const json_t *days = json_object_get(window, "days"), *day;
    size_t i;
    if (days == NULL) {
        buf_printf(cell, "%s to %s", text_of(window, "from"), text_of(window, "to"));
        return;
    }
    json_array_foreach(days, i, day)
    {
        buf_put_str(cell, i > 0 ? "," : "");
        out_put_json(cell, day);
    }
    buf_printf(cell, " %s-%s", text_of(window, "start"), text_of(window, "end"));
}

static const struct out_column window_columns[] = {
    {"NAME", "name", NULL},        {"KIND", "kind", NULL}, {"ZONE", "time_zone", NULL},
    {"WHEN", NULL, put_when},      {"OPEN", "open", NULL}, {"CHANGES", "changes_at", NULL},
    {"KNOWN", "zone_known", NULL}, {NULL, NULL, NULL}};
static const struct out_view window_view = {"name", window_columns};

void cmd_put_windows(struct buf *cell, const json_t *windows)
{
    const json_t *window;
    size_t i;
    json_array_foreach(windows, i, window)
    {
        bool open = json_is_true(json_object_get(window, "open"));
        buf_printf(cell, "%s%s=%s", i > 0 ? " " : "", text_of(window, "name"),
                   open ? "open" : "closed");
    }
}

static int list(struct cli *c)
{
    struct target t;
    json_t *answer;
    target_init(&t, "/v1/balancer");
    target_read_flags(&t, c);
    int code = cli_read(c, &t, &answer);
    return cmd_finish_rows(c, code, answer, "windows", &window_view);
}

/* --- changing it --- */

/* The new one, as the flags say it. What is missing or wrong the server says. */
static json_t *window_of(const struct cli *c)
{
    const char *days = args_get(c->args, "days");
    json_t *window = json_object(), *listed = json_array();
    (void)json_object_set_new(window, "name", json_string(c->args->operands[1]));
    body_text(window, c, "kind");
    body_text(window, c, "start");
    body_text(window, c, "end");
    body_text(window, c, "from");
    body_text(window, c, "to");
    if (args_has(c->args, "zone")) {
        (void)json_object_set_new(window, "time_zone",
                                  json_string_nocheck(args_get(c->args, "zone")));
    }
    for (const char *p = days; p != NULL && *p != '\0'; p += *p == ',') {
        size_t len = strcspn(p, ",");
        (void)json_array_append_new(listed, json_stringn_nocheck(p, len));
        p += len;
    }
    if (days != NULL) {
        (void)json_object_set(window, "days", listed);
    }
    json_decref(listed);
    return window;
}

/* Those that are set, as they are sent, but for `without`; whether that was there. */
static json_t *windows_but(const json_t *shown, const char *without, bool *ret_was_there)
{
    static const char *const members[] = {"name",  "kind", "time_zone", "days",
                                          "start", "end",  "from",      "to"};
    json_t *windows = json_array(), *window;
    size_t i;
    *ret_was_there = false;
    json_array_foreach(json_object_get(shown, "windows"), i, window)
    {
        if (without != NULL && strcmp(text_of(window, "name"), without) == 0) {
            *ret_was_there = true;
            continue;
        }
        json_t *kept = json_object();
        for (size_t m = 0; m < sizeof members / sizeof members[0]; m++) {
            json_t *value = json_object_get(window, members[m]);
            if (value != NULL) {
                (void)json_object_set(kept, members[m], value);
            }
        }
        (void)json_array_append_new(windows, kept);
    }
    return windows;
}

/* The whole list with the change in it, or NULL after a message. */
static json_t *patch_of(const struct cli *c, const json_t *shown, bool adds)
{
    const char *name = c->args->operands[1];
    bool was_there;
    json_t *windows = windows_but(shown, adds ? NULL : name, &was_there);
    if (adds) {
        (void)json_array_append_new(windows, window_of(c));
    } else if (!was_there) {
        (void)cli_fail(err_cli_exit(ERR_NOT_FOUND), "there is no window '%.80s'", name);
        json_decref(windows);
        return NULL;
    }
    json_t *body = json_object();
    (void)json_object_set_new(body, "windows", windows);
    (void)json_object_set(body, "expect_revision", json_object_get(shown, "revision"));
    body_number(body, c, "expect_revision");
    return body;
}

/* CLI_EXCUSED: the directory had moved on. */
static int change(struct cli *c, bool adds, json_t **ret_answer)
{
    struct target t;
    json_t *shown;
    target_init(&t, "/v1/balancer");
    target_query(&t, "consistency", "linearizable");
    int code = cli_read(c, &t, &shown);
    if (code != EXIT_DONE) {
        return code;
    }
    json_t *body = patch_of(c, shown, adds);
    json_decref(shown);
    if (body == NULL) {
        return err_cli_exit(ERR_NOT_FOUND);
    }
    target_init(&t, "/v1/balancer");
    return cli_write(c, "PATCH", &t, body, ret_answer);
}

static int change_some_time(struct cli *c, bool adds)
{
    json_t *answer = NULL;
    int code = CLI_EXCUSED;
    /* With a revision, or a key, of the user's own there is one attempt. */
    bool once = args_has(c->args, "expect-revision") || args_has(c->args, "idempotency-key");
    for (int i = 0; i < TRIES && code == CLI_EXCUSED; i++) {
        c->excused = once || i + 1 == TRIES ? ERR_OK : ERR_STALE_REVISION;
        if (i > 0) {
            cmd_pause_ms(PAUSE_MS);
        }
        code = change(c, adds, &answer);
    }
    return cmd_finish(c, code, answer, &out_revision_view);
}

static const char *const add_flags[] = {"kind", "zone", "days", "start", "end", "from", "to"};

int cmd_window_run(struct cli *c)
{
    const char *action = c->args->operand_count > 0 ? c->args->operands[0] : NULL;
    bool adds = action != NULL && strcmp(action, "add") == 0;
    if (action != NULL && !adds && strcmp(action, "remove") != 0) {
        return cli_fail(EXIT_USAGE, "add and remove are what can be done, not '%.80s'", action);
    }
    if (action != NULL && c->args->operand_count < 2) {
        return cli_fail(EXIT_USAGE, "NAME is missing");
    }
    for (size_t i = 0; i < sizeof add_flags / sizeof add_flags[0] && !adds; i++) {
        if (args_has(c->args, add_flags[i])) {
            return cli_fail(EXIT_USAGE, "--%s is for add", add_flags[i]);
        }
    }
    if (adds && !args_has(c->args, "kind")) {
        return cli_fail(EXIT_USAGE, "--kind is missing");
    }
    return action == NULL ? list(c) : change_some_time(c, adds);
}

const struct cli_flag cmd_window_flags[] = {
    {"kind", "maintenance|freeze", "When routine work may begin, or may not", ARGS_TEXT, 0, false,
     false},
    {"zone", "ZONE", "Whose clocks count, such as Europe/Zurich", ARGS_TEXT, 0, false, false},
    {"days", "DAY[,DAY...]", "mon to sun: on which it begins each week", ARGS_TEXT, 0, false,
     false},
    {"start", "HH:MM", "When it begins on those days", ARGS_TEXT, 0, false, false},
    {"end", "HH:MM", "When it ends, on the day after if that is not later", ARGS_TEXT, 0, false,
     false},
    {"from", "TIME", "Once, from this time on: 2026-12-24T12:00:00Z", ARGS_TEXT, 0, false, false},
    {"to", "TIME", "Before this time", ARGS_TEXT, 0, false, false},
    CLI_FLAG_EXPECT_REVISION,
    CLI_FLAGS_END};
