/* SPDX-License-Identifier: Apache-2.0 */
/* What-if: the question from flags and a file, to a server or to a saved state, and the answer as
 * tables. */
#include "cli/cmd.h"

#include "api/whatif_json.h"
#include "base/mem.h"
#include "base/parse.h"
#include "base/rcu.h"
#include "simulate/saved.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    QUESTION_BYTES_MAX = 8 << 20,
    LOAD_BYTES_MAX = 1 << 30,
    ANSWER_BYTES_MAX = 256 << 20,
    SHOWN_MAX = 100 /* steps, or partitions, of a table */
};
#define FACTOR_MAX 100.0

const struct cli_flag cmd_whatif_flags[] = {CMD_WHATIF_FLAGS, CLI_FLAGS_END};

/* --- the question --- */

/* The member of `object`, made when it is not there. Borrowed. */
static json_t *member(json_t *object, const char *name, bool list)
{
    json_t *value = json_object_get(object, name);
    if (value == NULL) {
        value = list ? json_array() : json_object();
        (void)json_object_set_new(object, name, value);
    }
    return value;
}

static void add_names(const struct cli *c, json_t *changes, const char *flag, const char *name)
{
    unsigned at = 0;
    const char *text;
    while ((text = args_next(c->args, flag, &at)) != NULL) {
        (void)json_array_append_new(member(changes, name, true), json_string(text));
    }
}

static bool add_nodes(const struct cli *c, json_t *changes)
{
    const char *like = args_get(c->args, "like");
    uint64_t count = args_number(c->args, "add", 0);
    if (count == 0 && like == NULL) {
        return true;
    }
    if (count == 0 || like == NULL) {
        (void)cli_fail(EXIT_USAGE, "--add N and --like NODE go together");
        return false;
    }
    (void)json_array_append_new(
        member(changes, "nodes_added", true),
        json_pack("{sssIss}", "name", "added-", "count", (json_int_t)count, "like", like));
    return true;
}

/* "1.5", "orders=2". */
static bool add_scale(json_t *changes, const char *text)
{
    const char *equals = strchr(text, '='), *number = equals != NULL ? equals + 1 : text;
    char *end;
    double factor = strtod(number, &end);
    bool digits = strspn(number, "0123456789.") == strlen(number) && number[0] != '\0';
    if (!digits || *end != '\0' || !isfinite(factor) || factor > FACTOR_MAX) {
        (void)cli_fail(EXIT_USAGE, "--scale takes 1.5 or orders=1.5, at most 100; not '%.80s'",
                       text);
        return false;
    }
    json_t *one = json_pack("{sI}", "factor_ppm", (json_int_t)(factor * 1e6 + 0.5));
    if (equals != NULL) {
        (void)json_object_set_new(one, "keyspace", json_stringn(text, (size_t)(equals - text)));
    }
    (void)json_array_append_new(member(changes, "load_scaled", true), one);
    return true;
}

static bool add_changes(const struct cli *c, json_t *changes)
{
    const char *zone = args_get(c->args, "lose-zone"), *text;
    unsigned at = 0;
    add_names(c, changes, "lose", "nodes_lost");
    add_names(c, changes, "drain", "nodes_drained");
    if (zone != NULL) {
        (void)json_object_set_new(changes, "zone_lost", json_string(zone));
    }
    while ((text = args_next(c->args, "scale", &at)) != NULL) {
        if (!add_scale(changes, text)) {
            return false;
        }
    }
    at = 0;
    while ((text = args_next(c->args, "set", &at)) != NULL) {
        if (!body_setting(member(changes, "policy", false), text)) {
            return false;
        }
    }
    return add_nodes(c, changes);
}

/* The body of FILE; {} without one; NULL after a message. */
static json_t *read_question(const struct cli *c)
{
    const char *path = c->args->operand_count > 0 ? c->args->operands[0] : NULL;
    json_t *body = NULL;
    struct buf text;
    struct err e;
    if (path == NULL) {
        return json_object();
    }
    buf_init(&text, QUESTION_BYTES_MAX);
    if (!cmd_read_file(path, &text)) {
        (void)cli_fail(EXIT_USAGE, "'%s' can't be read, or is larger than %d bytes", path,
                       QUESTION_BYTES_MAX);
    } else if ((body = json_parse_object(slice_of(text.data, text.len), &e)) == NULL) {
        (void)cli_fail(EXIT_USAGE, "%s: %s%s%s", path, e.pointer, e.pointer[0] != '\0' ? ": " : "",
                       e.detail);
    }
    buf_close(&text);
    return body;
}

/* NULL after a message. */
static json_t *question(const struct cli *c)
{
    json_t *body = read_question(c);
    if (body == NULL) {
        return NULL;
    }
    body_number(body, c, "hours");
    body_number(body, c, "seed");
    json_t *changes = member(body, "changes", false);
    if (json_is_object(changes) && !add_changes(c, changes)) {
        json_decref(body);
        return NULL;
    }
    return body;
}

/* --- the answer --- */

static const struct out_column figure_columns[] = {{"FIGURE", "figure", NULL},
                                                   {"VALUE", "value", NULL},
                                                   {NULL, NULL, NULL}};
static const struct out_view figure_view = {"figure", figure_columns};
static const struct out_column load_columns[] = {{"LOAD", "when", NULL},
                                                 {"MAX/MEAN_PPM", "max_over_mean_ppm", NULL},
                                                 {"RESOURCE", "resource", NULL},
                                                 {"USED_PPM", "utilisation_ppm", NULL},
                                                 {"USED_MAX_PPM", "utilisation_max_ppm", NULL},
                                                 {"NODES", "nodes", NULL},
                                                 {"UNAVAILABLE", "unavailable", NULL},
                                                 {NULL, NULL, NULL}};
static const struct out_view load_view = {"when", load_columns};
static const struct out_column node_columns[] = {{"NODE", "node", NULL},
                                                 {"CHANGE", "change", NULL},
                                                 {"LEVEL_PPM", "before.level_ppm", NULL},
                                                 {"AFTER", "after.level_ppm", NULL},
                                                 {"REQUESTS/S", "before.requests_per_s", NULL},
                                                 {"AFTER", "after.requests_per_s", NULL},
                                                 {"BYTES", "before.bytes", NULL},
                                                 {"AFTER", "after.bytes", NULL},
                                                 {"PRIMARIES", "before.primaries", NULL},
                                                 {"AFTER", "after.primaries", NULL},
                                                 {NULL, NULL, NULL}};
static const struct out_view node_view = {"node", node_columns};
static const struct out_column plan_columns[] = {{"BEGIN_MS", "begin_ms", NULL},
                                                 {"END_MS", "end_ms", NULL},
                                                 {"KIND", "kind", NULL},
                                                 {"CLASS", "class", NULL},
                                                 {"KEYSPACE", "keyspace", NULL},
                                                 {"PARTITION", "partition", NULL},
                                                 {"FROM", "from", NULL},
                                                 {"TO", "to", NULL},
                                                 {"BYTES", "bytes", NULL},
                                                 {"STATE", "state", NULL},
                                                 {NULL, NULL, NULL}};
static const struct out_view plan_view = {"partition", plan_columns};
static const struct out_column budget_columns[] = {
    {"BUDGET", "budget", NULL}, {"MOVES", "moves", NULL},         {"OF", "moves_limit", NULL},
    {"AT", "moves_of", NULL},   {"BYTES/S", "bytes_per_s", NULL}, {"OF", "bytes_per_s_limit", NULL},
    {NULL, NULL, NULL}};
static const struct out_view budget_view = {"budget", budget_columns};
static const struct out_column unplaced_columns[] = {{"LACKS", "keyspace", NULL},
                                                     {"PARTITION", "partition", NULL},
                                                     {"WHY", "code", NULL},
                                                     {"DETAIL", "detail", NULL},
                                                     {NULL, NULL, NULL}};
static const struct out_view unplaced_view = {"partition", unplaced_columns};
static const struct out_column advice_columns[] = {{"ADVICE", "code", NULL},
                                                   {"KEYSPACE", "keyspace", NULL},
                                                   {"PARTITION", "partition", NULL},
                                                   {"TEXT", "text", NULL},
                                                   {NULL, NULL, NULL}};
static const struct out_view advice_view = {"code", advice_columns};

/* The first ones, and how many more there are. */
static void print_rows(struct cli *c, const struct out_view *view, const json_t *rows, uint64_t out)
{
    size_t n = json_array_size(rows);
    json_t *shown = json_array();
    for (size_t i = 0; i < n && i < SHOWN_MAX; i++) {
        (void)json_array_append(shown, json_array_get(rows, i));
    }
    if (n > 0) {
        out_restart(&c->out);
        out_rows(&c->out, view, shown);
        if (n - json_array_size(shown) + out > 0) {
            (void)fprintf(c->out.file, "and %zu more: -o json\n",
                          n - json_array_size(shown) + (size_t)out);
        }
        (void)fputc('\n', c->out.file);
    }
    json_decref(shown);
}

static uint64_t number_at(const json_t *answer, const char *name)
{
    return (uint64_t)json_integer_value(json_object_get(answer, name));
}

static void add_row(json_t *rows, const char *name, json_t *value)
{
    (void)json_array_append_new(rows, json_pack("{sssO}", "figure", name, "value", value));
}

static void print_figures(struct cli *c, json_t *answer)
{
    static const char *const ends[] = {"virtual_ms", "settled", "truncated", "breaker"};
    json_t *rows = json_array(), *value;
    const char *name;
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        add_row(rows, ends[i], json_object_get(answer, ends[i]));
    }
    json_object_foreach(json_object_get(answer, "totals"), name, value)
    {
        add_row(rows, name, value);
    }
    out_restart(&c->out);
    out_rows(&c->out, &figure_view, rows);
    (void)fputc('\n', c->out.file);
    json_decref(rows);
}

static void print_load(struct cli *c, json_t *answer)
{
    static const char *const whens[] = {"before", "after"};
    json_t *rows = json_array();
    for (int i = 0; i < 2; i++) {
        json_t *one = json_copy(json_object_get(json_object_get(answer, "load"), whens[i]));
        (void)json_object_set_new(one, "when", json_string(whens[i]));
        (void)json_array_append_new(rows, one);
    }
    print_rows(c, &load_view, rows, 0);
    json_decref(rows);
}

/* Prints and drops it; the exit status. */
static int finish(struct cli *c, json_t *answer)
{
    size_t i;
    json_t *finding;
    if (c->out.format != OUT_TABLE) {
        out_json(&c->out, answer, c->out.format == OUT_JSON);
    } else {
        print_figures(c, answer);
        print_load(c, answer);
        print_rows(c, &node_view, json_object_get(answer, "nodes"), 0);
        print_rows(c, &plan_view, json_object_get(answer, "plan"),
                   number_at(answer, "plan_left_out"));
        print_rows(c, &budget_view, json_object_get(answer, "budgets"), 0);
        print_rows(c, &unplaced_view, json_object_get(answer, "unplaced"),
                   number_at(answer, "unplaced_left_out"));
        print_rows(c, &advice_view, json_object_get(answer, "advice"), 0);
    }
    json_array_foreach(json_object_get(answer, "findings"), i, finding)
    {
        (void)cli_fail(EXIT_FAILED, "%s", json_string_value(finding));
    }
    int code = json_array_size(json_object_get(answer, "findings")) > 0 ? EXIT_FAILED : EXIT_DONE;
    json_decref(answer);
    return code;
}

static bool can_print(const struct cli *c)
{
    if (c->out.format == OUT_NAME || c->out.format == OUT_SVG) {
        (void)cli_fail(EXIT_USAGE,
                       "simulate of a saved or present state prints table, json or jsonl");
        return false;
    }
    return true;
}

int cmd_whatif_ask(struct cli *c)
{
    struct target t;
    json_t *body = can_print(c) ? question(c) : NULL, *answer;
    if (body == NULL) {
        return EXIT_USAGE;
    }
    target_init(&t, "/v1/balancer/simulate");
    int code = cli_ask(c, &t, body, &answer);
    return code == EXIT_DONE ? finish(c, answer) : code;
}

/* --- of a saved state --- */

static enum err_code take_loads(const struct cli *c, struct saved *s, struct err *e)
{
    enum err_code code = ERR_OK;
    const char *path;
    unsigned at = 0;
    while (code == ERR_OK && (path = args_next(c->args, "load", &at)) != NULL) {
        struct buf page;
        buf_init(&page, LOAD_BYTES_MAX);
        if (!cmd_read_file(path, &page)) {
            code = err_set(e, ERR_INVALID_REQUEST, "'%s' can't be read", path);
        } else if (saved_take_loads(s, slice_of(page.data, page.len), e) != ERR_OK) {
            code = err_set(e, ERR_INVALID_REQUEST, "'%s' is no page of GET /v1/load/summary", path);
        }
        buf_close(&page);
    }
    return code;
}

static enum err_code
run(const struct saved *s, const struct whatif *w, json_t **ret_answer, struct err *e)
{
    struct whatif_state state = saved_state(s);
    struct whatif_answer answer;
    struct buf text;
    enum err_code code = whatif_run(w, &state, &answer, e);
    if (code != ERR_OK) {
        return code;
    }
    buf_init(&text, ANSWER_BYTES_MAX);
    whatif_put(&text, state.view, w, &answer);
    *ret_answer = json_loadb((const char *)text.data, text.len, 0, NULL);
    buf_close(&text);
    whatif_answer_close(&answer);
    return ERR_OK;
}

static enum err_code
simulate(const struct cli *c, const struct whatif *w, json_t **ret_answer, struct err *e)
{
    const char *size = args_get(c->args, "size");
    uint64_t bytes = 0;
    struct saved *s;
    if (size != NULL && !parse_size_bytes(size, &bytes)) {
        return err_set(e, ERR_INVALID_REQUEST, "--size takes such as 4GiB, not '%.80s'", size);
    }
    enum err_code code = saved_open(args_get(c->args, "from"), &s, e);
    if (code != ERR_OK) {
        return code;
    }
    code = take_loads(c, s, e);
    if (code == ERR_OK) {
        uint64_t assumed = saved_assume_loads(s, bytes);
        if (assumed > 0) {
            cli_note(c, "of %zu partitions no load is known: %d requests a second are assumed",
                     (size_t)assumed, SAVED_REQUESTS);
        }
        code = run(s, w, ret_answer, e);
    }
    saved_close(s);
    return code;
}

int cmd_whatif_from(struct cli *c)
{
    json_t *body = can_print(c) ? question(c) : NULL, *answer = NULL;
    struct whatif w;
    struct err e;
    if (body == NULL) {
        return EXIT_USAGE;
    }
    enum err_code code = whatif_read(body, &w, &e);
    json_decref(body);
    if (code == ERR_OK) {
        rcu_reader_start();
        code = simulate(c, &w, &answer, &e);
        rcu_drain();
        rcu_reader_stop();
        whatif_close(&w);
    }
    if (code != ERR_OK) {
        return cli_fail(EXIT_USAGE, "%s%s%s", e.pointer, e.pointer[0] != '\0' ? ": " : "",
                        e.detail);
    }
    return finish(c, answer);
}
