/* SPDX-License-Identifier: Apache-2.0 */
/* From a handler's intent to a request, and from a response to what the handler can use or an exit
 * status. */
#include "cli/cli.h"

#include "base/mem.h"
#include "base/parse.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* --- targets --- */

static void put_escaped(struct buf *b, const char *text)
{
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                     strchr("-._~", c) != NULL;
        if (plain) {
            buf_put_u8(b, c);
        } else {
            buf_printf(b, "%%%02X", c);
        }
    }
}

void target_init(struct target *t, const char *path)
{
    *t = (struct target){0};
    buf_init(&t->b, CLI_TARGET_MAX);
    buf_put_str(&t->b, path);
}

void target_segment(struct target *t, const char *text)
{
    buf_put_str(&t->b, "/");
    put_escaped(&t->b, text);
}

void target_segment_u64(struct target *t, uint64_t value)
{
    buf_put_u8(&t->b, '/');
    buf_put_u64_dec(&t->b, value);
}

void target_query(struct target *t, const char *name, const char *value)
{
    buf_printf(&t->b, "%s%s=", t->has_query ? "&" : "?", name);
    put_escaped(&t->b, value);
    t->has_query = true;
}

void target_query_u64(struct target *t, const char *name, uint64_t value)
{
    buf_printf(&t->b, "%s%s=%llu", t->has_query ? "&" : "?", name, (unsigned long long)value);
    t->has_query = true;
}

/* The flag's text for a member or parameter: "min_revision" is --min-revision. */
static const char *flag_text(const struct cli *c, const char *member)
{
    char flag[48];
    (void)snprintf(flag, sizeof flag, "%s", member);
    for (char *p = flag; *p != '\0'; p++) {
        *p = *p == '_' ? '-' : *p;
    }
    return args_get(c->args, flag);
}

void target_flag(struct target *t, const struct cli *c, const char *name)
{
    const char *text = flag_text(c, name);
    if (text != NULL) {
        target_query(t, name, text);
    }
}

void target_read_flags(struct target *t, const struct cli *c)
{
    target_flag(t, c, "consistency");
    target_flag(t, c, "min_revision");
    if (args_has(c->args, "min-revision")) {
        /* The server's answer that it is behind should arrive before we stop listening. */
        uint64_t wait = c->timeout_ms - c->timeout_ms / 4;
        target_query_u64(t, "timeout_ms", wait < 60000 ? wait : 60000);
    }
    if (args_has(c->args, "max-staleness")) {
        target_query_u64(t, "max_staleness_ms", args_number(c->args, "max-staleness", 0));
    }
}

void target_close(struct target *t)
{
    buf_close(&t->b);
}

/* --- messages --- */

static void put_message(const char *fmt, va_list args)
{
    (void)fputs("cadastre: ", stderr);
    (void)vfprintf(stderr, fmt, args);
    (void)fputc('\n', stderr);
}

int cli_fail(int exit_code, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    put_message(fmt, args);
    va_end(args);
    return exit_code;
}

void cli_note(const struct cli *c, const char *fmt, ...)
{
    if (c->quiet) {
        return;
    }
    va_list args;
    va_start(args, fmt);
    put_message(fmt, args);
    va_end(args);
}

int cli_fail_result(enum http_result result, const struct err *e)
{
    int code = result == HTTP_UNREACHABLE ? EXIT_UNAVAILABLE
               : result == HTTP_TIMED_OUT ? EXIT_TIMED_OUT
                                          : EXIT_FAILED;
    return cli_fail(code, "%s", e->detail);
}

static int exit_of_status(long status)
{
    static const struct {
        long status;
        int exit_code;
    } table[] = {{401, 7}, {403, 7}, {404, 3}, {408, 6}, {409, 4}, {410, 3},
                 {412, 4}, {429, 5}, {502, 5}, {503, 5}, {504, 6}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (table[i].status == status) {
            return table[i].exit_code;
        }
    }
    return EXIT_FAILED;
}

/* A problem whose detail is that of its one field needs no second line. */
static void put_problem(const json_t *body, const char *slug, int exit_code)
{
    const json_t *errors = json_object_get(body, "errors");
    const char *detail = json_string_value(json_object_get(body, "detail"));
    const json_t *first = json_array_get(errors, 0);
    const char *pointer = json_string_value(json_object_get(first, "pointer"));
    const char *what = json_string_value(json_object_get(first, "detail"));
    detail = detail != NULL ? detail : json_string_value(json_object_get(body, "title"));
    detail = detail != NULL ? detail : "no detail";
    if (json_array_size(errors) == 1 && pointer != NULL && what != NULL &&
        strcmp(what, detail) == 0) {
        (void)cli_fail(exit_code, "%s: %s (%s)", pointer, detail, slug);
        return;
    }
    (void)cli_fail(exit_code, "%s (%s)", detail, slug);
    size_t at;
    json_t *error;
    json_array_foreach(errors, at, error)
    {
        pointer = json_string_value(json_object_get(error, "pointer"));
        what = json_string_value(json_object_get(error, "detail"));
        if (pointer != NULL && what != NULL) {
            (void)fprintf(stderr, "  %s: %s\n", pointer, what);
        }
    }
}

int cli_fail_response(const struct http_response *r)
{
    json_t *body = json_loadb((const char *)r->body.data, r->body.len, 0, NULL);
    const char *slug = json_string_value(json_object_get(body, "code"));
    enum err_code code = slug != NULL ? err_from_slug(slug) : ERR_COUNT;
    int exit_code = code != ERR_COUNT ? err_cli_exit(code) : exit_of_status(r->status);
    if (slug == NULL) {
        (void)cli_fail(exit_code, "%s answered with status %ld", r->server, r->status);
    } else {
        put_problem(body, slug, exit_code);
    }
    json_decref(body);
    return exit_code;
}

int cli_confirm(const struct cli *c, const char *fmt, ...)
{
    if (c->yes) {
        return EXIT_DONE;
    }
    if (isatty(STDIN_FILENO) == 0) {
        return cli_fail(EXIT_USAGE, "this can't be undone: say --yes");
    }
    va_list args;
    va_start(args, fmt);
    (void)vfprintf(stderr, fmt, args);
    va_end(args);
    (void)fputs(" [y/N] ", stderr);
    char line[8];
    bool yes = fgets(line, sizeof line, stdin) != NULL && (line[0] == 'y' || line[0] == 'Y');
    return yes ? EXIT_DONE : cli_fail(EXIT_FAILED, "nothing was done");
}

/* --- calls --- */

static int parse_body(const struct http_response *r, json_t **ret_body)
{
    json_error_t error;
    if (r->body.len == 0) {
        *ret_body = json_object();
        return EXIT_DONE;
    }
    *ret_body = json_loadb((const char *)r->body.data, r->body.len, 0, &error);
    return *ret_body != NULL
               ? EXIT_DONE
               : cli_fail(EXIT_FAILED, "%s answered with bad JSON: %s", r->server, error.text);
}

static bool is_excused(const struct cli *c, const struct http_response *r)
{
    json_t *body = json_loadb((const char *)r->body.data, r->body.len, 0, NULL);
    const char *slug = json_string_value(json_object_get(body, "code"));
    bool excused = c->excused != ERR_OK && slug != NULL && strcmp(slug, err_slug(c->excused)) == 0;
    json_decref(body);
    return excused;
}

static int send_request(struct cli *c, struct http_request *rq, struct target *t, json_t **ret_body)
{
    *ret_body = NULL;
    buf_put_u8(&t->b, '\0');
    if (t->b.overflow) {
        target_close(t);
        return cli_fail(EXIT_USAGE, "the request is too long");
    }
    rq->target = (const char *)t->b.data;
    struct http_response r;
    struct err e;
    enum http_result result = http_send(c->http, rq, &r, &e);
    int code;
    if (result != HTTP_ANSWERED) {
        code = cli_fail_result(result, &e);
    } else if (r.status < 200 || r.status >= 300) {
        code = is_excused(c, &r) ? CLI_EXCUSED : cli_fail_response(&r);
        if (r.status >= 500 && rq->idempotency_key != NULL) {
            cli_note(c, "see what came of it: cadastre command get %s", rq->idempotency_key);
        }
    } else {
        code = parse_body(&r, ret_body);
        if (r.replayed) {
            cli_note(c, "this was done before with the same key; that is its outcome");
        }
    }
    http_response_close(&r);
    target_close(t);
    return code;
}

static int
send_json(struct cli *c, struct http_request *rq, struct target *t, json_t *body, json_t **ret_body)
{
    char *text = body != NULL ? json_dumps(body, JSON_COMPACT) : NULL;
    if (body != NULL && text == NULL) {
        json_decref(body);
        target_close(t);
        *ret_body = NULL;
        return cli_fail(EXIT_USAGE, "an argument is not UTF-8");
    }
    rq->body = text;
    int code = send_request(c, rq, t, ret_body);
    mem_free(text);
    json_decref(body);
    return code;
}

int cli_read(struct cli *c, struct target *t, json_t **ret_body)
{
    struct http_request rq = {.method = "GET"};
    return send_request(c, &rq, t, ret_body);
}

int cli_ask(struct cli *c, struct target *t, json_t *body, json_t **ret_body)
{
    struct http_request rq = {.method = "POST"};
    return send_json(c, &rq, t, body, ret_body);
}

int cli_write(struct cli *c, const char *method, struct target *t, json_t *body, json_t **ret_body)
{
    char key[HTTP_KEY_SIZE];
    http_random_key(key);
    const char *given = args_get(c->args, "idempotency-key");
    struct http_request rq = {.method = method, .idempotency_key = given != NULL ? given : key};
    return send_json(c, &rq, t, body, ret_body);
}

int cli_show(struct cli *c, struct target *t, const struct out_view *view)
{
    json_t *body;
    int code = cli_read(c, t, &body);
    if (code == EXIT_DONE) {
        out_object(&c->out, view, body);
        json_decref(body);
    }
    return code;
}

/* --- lists --- */

/* The next page's target, from the one that stays. */
static void
page_target(struct target *page, const struct target *t, const char *cursor, uint64_t left)
{
    target_init(page, "");
    buf_put(&page->b, t->b.data, t->b.len);
    page->has_query = t->has_query;
    target_query_u64(page, "limit", left < CLI_PAGE_MAX ? left : CLI_PAGE_MAX);
    if (cursor != NULL) {
        target_query(page, "cursor", cursor);
    }
}

/* Keeps a page for -o json, or prints it. */
static void take_page(struct cli *c,
                      const struct out_view *view,
                      const char *member,
                      json_t *body,
                      json_t **whole)
{
    json_t *rows = json_object_get(body, member);
    if (c->out.format != OUT_JSON) {
        out_rows(&c->out, view, rows);
    } else if (*whole == NULL) {
        *whole = json_incref(body);
    } else {
        (void)json_array_extend(json_object_get(*whole, member), rows);
    }
}

int cli_list(struct cli *c, struct target *t, const char *member, const struct out_view *view)
{
    uint64_t left = args_number(c->args, "limit", UINT64_MAX);
    char *cursor = NULL;
    json_t *whole = NULL;
    int code = left == 0 ? cli_fail(EXIT_USAGE, "--limit is at least 1") : EXIT_DONE;
    bool more = code == EXIT_DONE;
    for (unsigned pages = 0; more && pages < CLI_PAGES_MAX; pages++) {
        struct target page;
        page_target(&page, t, cursor, left);
        json_t *body;
        code = cli_read(c, &page, &body);
        if (code != EXIT_DONE) {
            break;
        }
        size_t count = json_array_size(json_object_get(body, member));
        const char *next = json_string_value(json_object_get(body, "next"));
        left -= count < left ? count : left;
        mem_free(cursor);
        cursor = next != NULL ? mem_strdup(next) : NULL;
        (void)json_object_del(body, "next");
        take_page(c, view, member, body, &whole);
        json_decref(body);
        more = cursor != NULL && left > 0;
    }
    if (code == EXIT_DONE && whole != NULL) {
        out_json(&c->out, whole, true);
    }
    if (code == EXIT_DONE && cursor != NULL) {
        cli_note(c, "there are more");
    }
    json_decref(whole);
    mem_free(cursor);
    target_close(t);
    return code;
}

/* --- bodies --- */

bool cli_operand_u64(const struct cli *c, unsigned i, const char *what, uint64_t *ret_value)
{
    const char *text = c->args->operands[i];
    if (!parse_u64(text, PARSE_INT_MAX, ret_value)) {
        (void)cli_fail(EXIT_USAGE, "%s is a number, not '%s'", what, text);
        return false;
    }
    return true;
}

void body_text(json_t *body, const struct cli *c, const char *member)
{
    const char *text = flag_text(c, member);
    if (text != NULL) {
        (void)json_object_set_new(body, member, json_string_nocheck(text));
    }
}

void body_number(json_t *body, const struct cli *c, const char *member)
{
    const char *text = flag_text(c, member);
    uint64_t value;
    if (text != NULL && parse_u64(text, PARSE_INT_MAX, &value)) {
        (void)json_object_set_new(body, member, json_integer((json_int_t)value));
    }
}

void body_expect(json_t *body, const struct cli *c)
{
    body_number(body, c, "expect_epoch");
    body_number(body, c, "expect_revision");
}

/* "true", "12", "default" or a word. */
static json_t *value_of(const char *text)
{
    uint64_t number;
    if (strcmp(text, "default") == 0) {
        return json_null();
    }
    if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0) {
        return json_boolean(text[0] == 't');
    }
    return parse_u64(text, PARSE_INT_MAX, &number) ? json_integer((json_int_t)number)
                                                   : json_string(text);
}

bool body_setting(json_t *body, const char *setting)
{
    const char *equals = strchr(setting, '='), *dot = strchr(setting, '.');
    char group[64], name[64];
    size_t skip = dot != NULL && equals != NULL && dot < equals ? (size_t)(dot - setting) + 1 : 0;
    size_t len = equals != NULL ? (size_t)(equals - setting) - skip : 0;
    if (len == 0 || len >= sizeof name || skip > sizeof group) {
        (void)cli_fail(EXIT_USAGE, "'%.80s' is not of the form mode=auto or classes.merge=false",
                       setting);
        return false;
    }
    memcpy(name, setting + skip, len);
    name[len] = '\0';
    json_t *into = json_incref(body);
    if (skip > 0) {
        memcpy(group, setting, skip - 1);
        group[skip - 1] = '\0';
        json_decref(into);
        into = json_incref(json_object_get(body, group));
        if (into == NULL) {
            into = json_object();
            (void)json_object_set(body, group, into);
        }
    }
    bool ok = json_object_set_new(into, name, value_of(equals + 1)) == 0;
    json_decref(into);
    if (!ok) {
        (void)cli_fail(EXIT_USAGE, "'%.80s' can't be sent", setting);
    }
    return ok;
}
