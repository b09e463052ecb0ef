/* SPDX-License-Identifier: Apache-2.0 */
/* Following an operation to its end: asked again and again, seldom while nothing happens. */
#include "cli/cmd.h"

#include <errno.h>
#include <string.h>
#include <time.h>

enum { FOLLOW_MIN_MS = 100, FOLLOW_MAX_MS = 2000 };

static uint64_t now_ms(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

void cmd_pause_ms(uint64_t ms)
{
    struct timespec ts = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};
    while (nanosleep(&ts, &ts) != 0 && errno == EINTR) {
    }
}

static const char *text_of(const json_t *operation, const char *member)
{
    const char *text = json_string_value(json_object_get(operation, member));
    return text != NULL ? text : "";
}

static bool has_ended(const json_t *operation)
{
    const char *state = text_of(operation, "state");
    return strcmp(state, "done") == 0 || strcmp(state, "aborted") == 0 ||
           strcmp(state, "failed") == 0;
}

/* What a line is worth: its stage, attempt, or that somebody is needed. */
static bool is_news(const json_t *was, const json_t *operation)
{
    static const char *const members[] = {"state", "stage", "attempt", "attention"};
    for (size_t i = 0; was != NULL && i < sizeof members / sizeof members[0]; i++) {
        const json_t *a = json_object_get(was, members[i]);
        const json_t *b = json_object_get(operation, members[i]);
        if ((a == NULL) != (b == NULL) || (a != NULL && !json_equal(a, b))) {
            return true;
        }
    }
    return was == NULL;
}

static int ask(struct cli *c, uint64_t id, uint64_t min_revision, json_t **ret_operation)
{
    struct target t;
    target_init(&t, "/v1/operations");
    target_segment_u64(&t, id);
    if (min_revision > 0) {
        target_query_u64(&t, "min_revision", min_revision);
    }
    return cli_read(c, &t, ret_operation);
}

static int judge(const json_t *operation)
{
    const json_t *attention = json_object_get(operation, "attention");
    if (strcmp(text_of(operation, "state"), "done") == 0) {
        return EXIT_DONE;
    }
    return cli_fail(EXIT_FAILED, "the operation has %s: %s (%s)", text_of(operation, "state"),
                    text_of(attention, "detail"), text_of(attention, "code"));
}

int cmd_follow(struct cli *c, const struct follow *f, json_t **ret_operation)
{
    uint64_t until = f->wait_ms < UINT64_MAX ? now_ms() + f->wait_ms : UINT64_MAX;
    uint64_t pause = FOLLOW_MIN_MS, revision = f->min_revision;
    json_t *was = NULL, *operation = NULL;
    int code;
    while ((code = ask(c, f->id, revision, &operation)) == EXIT_DONE) {
        bool news = is_news(was, operation);
        uint64_t now = now_ms();
        if (news) {
            f->on_news(c, operation);
        }
        /* The next server that is asked may not know what this one did. */
        revision = (uint64_t)json_integer_value(json_object_get(operation, "revision"));
        json_decref(was);
        was = operation;
        if (has_ended(operation)) {
            code = judge(operation);
            break;
        }
        if (now >= until) {
            code = cli_fail(EXIT_TIMED_OUT, "the operation is still in %s",
                            text_of(operation, "stage"));
            break;
        }
        pause = news ? FOLLOW_MIN_MS : pause * 2 < FOLLOW_MAX_MS ? pause * 2 : FOLLOW_MAX_MS;
        cmd_pause_ms(pause < until - now ? pause : until - now);
    }
    *ret_operation = was;
    return code;
}

static void say(struct cli *c, const json_t *operation)
{
    const json_t *attention = json_object_get(operation, "attention");
    cli_note(c, "operation %lld is in %s%s%s", json_integer_value(json_object_get(operation, "id")),
             text_of(operation, "stage"), attention != NULL ? ": " : "",
             text_of(attention, "detail"));
}

int cmd_finish_operation(struct cli *c, int code, json_t *answer)
{
    json_t *last = NULL;
    if (code != EXIT_DONE || !args_has(c->args, "wait") || json_object_get(answer, "id") == NULL) {
        return cmd_finish(c, code, answer, &cmd_operation_view);
    }
    struct follow f = {
        .id = (uint64_t)json_integer_value(json_object_get(answer, "id")),
        .min_revision = (uint64_t)json_integer_value(json_object_get(answer, "revision")),
        .wait_ms = args_number(c->args, "wait", 0),
        .on_news = say,
    };
    json_decref(answer);
    code = cmd_follow(c, &f, &last);
    if (last != NULL) {
        out_object(&c->out, &cmd_operation_view, last);
        json_decref(last);
    }
    return code;
}
