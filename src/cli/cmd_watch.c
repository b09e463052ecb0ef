/* SPDX-License-Identifier: Apache-2.0 */
/* watch: a line a change, for ever. A stream that ends is taken up again, at the next endpoint,
 * after the last change that was printed; what can't be taken up again is said with a line `reset`.
 */
#include "base/lines.h"
#include "cli/cmd.h"

#include <inttypes.h>
#include <string.h>

enum {
    WATCH_RETRY_MS = 1000,
    WATCH_RETRY_MAX_MS = 30000,
    WATCH_FAILURES_MAX = 60 /* in a row, without a change or a heartbeat between */
};

struct watch {
    struct cli *c;
    struct sse sse;
    uint64_t since; /* what to ask for while no event has an id */
    uint64_t left;  /* changes still to print */
    bool reset;     /* the stream said so */
    bool bad;       /* an event that can't be read: the connection is dropped */
    bool alive;     /* the connection gave something */
    bool deleted;   /* the keyspace is gone: there is nothing more to come */
};

static void print_change(struct cli *c, const json_t *change)
{
    if (c->out.format == OUT_JSON || c->out.format == OUT_JSONL) {
        out_json(&c->out, change, false);
    } else {
        out_object(&c->out, &cmd_change_view, change);
    }
    (void)fflush(c->out.file);
}

static bool on_event(void *arg, const char *name, struct slice data)
{
    struct watch *w = arg;
    w->alive = true;
    if (strcmp(name, "reset") == 0) {
        w->reset = true;
        return false;
    }
    if (strcmp(name, "change") != 0) {
        return true;
    }
    json_t *change = json_loadb((const char *)data.data, data.len, 0, NULL);
    if (change == NULL) {
        w->bad = true;
        return false;
    }
    print_change(w->c, change);
    const json_t *revision = json_object_get(change, "revision");
    w->since = json_is_integer(revision) ? (uint64_t)json_integer_value(revision) : w->since;
    const char *kind = json_string_value(json_object_get(change, "kind"));
    w->deleted = kind != NULL && strcmp(kind, "delete") == 0;
    json_decref(change);
    w->left--;
    return w->left > 0 && !w->deleted && ferror(w->c->out.file) == 0;
}

static bool on_bytes(void *arg, struct slice bytes)
{
    struct watch *w = arg;
    uint64_t comments = w->sse.comments;
    bool go_on = sse_feed(&w->sse, bytes, on_event, w);
    w->alive = w->alive || w->sse.comments != comments;
    return go_on;
}

/* The keyspace's present revision: where a watch without --since begins, and what a reset goes on
 * from. */
static int present_revision(struct cli *c, uint64_t *ret_revision)
{
    struct target t;
    json_t *answer;
    cmd_keyspace_target(&t, c);
    int code = cli_read(c, &t, &answer);
    if (code == EXIT_DONE) {
        *ret_revision = (uint64_t)json_integer_value(json_object_get(answer, "revision"));
        json_decref(answer);
    }
    return code;
}

static int after_reset(struct watch *w)
{
    int code = present_revision(w->c, &w->since);
    if (code != EXIT_DONE) {
        return code;
    }
    w->reset = false;
    w->sse.id[0] = '\0';
    json_t *line = json_object();
    (void)json_object_set_new(line, "revision", json_integer((json_int_t)w->since));
    (void)json_object_set_new(line, "kind", json_string("reset"));
    print_change(w->c, line);
    json_decref(line);
    cli_note(w->c, "changes up to revision %" PRIu64 " were missed: fetch the map again", w->since);
    return EXIT_DONE;
}

/* What came of one connection. False when the watch is over, with the exit status. */
static bool judge(struct watch *w,
                  enum http_result result,
                  const struct http_response *r,
                  const struct err *e,
                  bool last_try,
                  int *ret_code)
{
    bool answered = result == HTTP_ANSWERED;
    bool failed = answered ? r->status >= 400 : result != HTTP_BROKEN;
    bool final = answered && r->status < 500 && r->status != 429;
    *ret_code = EXIT_DONE;
    if (w->left == 0 || w->deleted || ferror(w->c->out.file) != 0) {
        return false;
    }
    if (answered && r->status == 410) {
        w->reset = true;
        return true;
    }
    if (failed && (final || last_try)) {
        *ret_code = result == HTTP_ANSWERED ? cli_fail_response(r) : cli_fail_result(result, e);
        return false;
    }
    if (last_try && !w->alive) {
        *ret_code = cli_fail(EXIT_UNAVAILABLE, "%s ends every stream at once", r->server);
        return false;
    }
    return true;
}

/* One connection, until it ends. As judge(). */
static bool connect_once(struct watch *w, bool last_try, int *ret_code)
{
    struct cli *c = w->c;
    struct target t;
    cmd_keyspace_target(&t, c);
    target_segment(&t, "watch");
    target_query_u64(&t, "since", w->since);
    target_flag(&t, c, "start");
    target_flag(&t, c, "end");
    target_flag(&t, c, "partition");
    buf_put_u8(&t.b, '\0');
    struct http_request rq = {.method = "GET",
                              .target = (const char *)t.b.data,
                              .accept = "text/event-stream",
                              .last_event_id = w->sse.id[0] != '\0' ? w->sse.id : NULL,
                              .sink = on_bytes,
                              .sink_arg = w};
    struct http_response r;
    struct err e;
    sse_restart(&w->sse);
    enum http_result result = http_send(c->http, &rq, &r, &e);
    bool go_on = judge(w, result, &r, &e, last_try, ret_code);
    http_response_close(&r);
    target_close(&t);
    return go_on;
}

static int follow(struct watch *w)
{
    int code = EXIT_DONE;
    unsigned failures = 0;
    while (connect_once(w, failures + 1 >= WATCH_FAILURES_MAX, &code)) {
        failures = w->alive ? 0 : failures + 1;
        w->alive = false;
        if (w->bad) {
            return cli_fail(EXIT_FAILED, "an event that is not JSON");
        }
        /* Not for a reset: nothing is wrong with the server. */
        if (w->reset) {
            code = after_reset(w);
            if (code != EXIT_DONE) {
                return code;
            }
        } else {
            http_rotate(w->c->http);
        }
        uint64_t wait = w->sse.retry_ms > 0 ? w->sse.retry_ms : WATCH_RETRY_MS;
        cmd_pause_ms(wait < WATCH_RETRY_MAX_MS ? wait : WATCH_RETRY_MAX_MS);
    }
    return code;
}

static int watch_run(struct cli *c)
{
    struct watch w = {.c = c, .left = args_number(c->args, "count", UINT64_MAX)};
    int code = EXIT_DONE;
    if (w.left == 0) {
        return cli_fail(EXIT_USAGE, "--count is at least 1");
    }
    if (args_has(c->args, "since")) {
        w.since = args_number(c->args, "since", 0);
    } else {
        code = present_revision(c, &w.since);
    }
    if (code != EXIT_DONE) {
        return code;
    }
    cli_note(c, "changes after revision %" PRIu64 ", until Ctrl-C:", w.since);
    static const unsigned widths[] = {10, 7, 9};
    memcpy(c->out.widths, widths, sizeof widths);
    sse_init(&w.sse);
    code = follow(&w);
    sse_close(&w.sse);
    return code;
}

static const struct cli_flag flags[] = {
    {"since", "R", "Changes after this revision (from now on)", ARGS_NUMBER, 0, false, false},
    {"count", "N", "End after N changes", ARGS_NUMBER, 0, false, false},
    CLI_FLAG_START,
    CLI_FLAG_END,
    CLI_FLAG_PARTITION,
    CLI_FLAGS_END};

const struct cli_command watch_commands[] = {
    {"", "KEYSPACE", "Print a line for each change, for ever",
     "cadastre watch orders\n"
     "cadastre watch orders --since 41 --start g --end p -o jsonl\n",
     flags, watch_run},
    {NULL, NULL, NULL, NULL, NULL, NULL}};
