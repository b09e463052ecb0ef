/* SPDX-License-Identifier: Apache-2.0 */
/* `cadastre simulate`: a scenario file to src/simulate, and its outcome to a table, JSON or SVG. */
#include "cli/cmd.h"

#include "balancer/plan.h"
#include "base/mem.h"
#include "base/rcu.h"
#include "simulate/simulate.h"

#include <inttypes.h>
#include <string.h>

enum { THOUSANDTHS = 1000 };

static const struct cli_flag simulate_flags[] = {
    {"from", "BACKUP", "From this backup instead of a scenario; FILE is then the question",
     ARGS_TEXT, 0, false, false},
    {"load", "FILE", "What GET /v1/load/summary answered; several pages are several files",
     ARGS_TEXT, 0, false, true},
    {"size", "SIZE", "Of a partition that no --load tells of, such as 4GiB (0)", ARGS_TEXT, 0,
     false, false},
    CMD_WHATIF_FLAGS,
    CLI_FLAGS_END};

/* --- JSON --- */

static json_t *number(uint64_t v)
{
    return json_integer((json_int_t)v);
}

/* To three decimals. */
static json_t *fraction(double v)
{
    return json_real((double)(int64_t)(v * THOUSANDTHS + (v < 0 ? -0.5 : 0.5)) / THOUSANDTHS);
}

static json_t *seconds(int64_t ms)
{
    return ms < 0 ? json_null() : fraction((double)ms / 1000);
}

static void set(json_t *object, const char *name, json_t *value)
{
    (void)json_object_set_new(object, name, value);
}

static json_t *figures_of(const struct simulate_outcome *o)
{
    json_t *f = json_object();
    set(f, "max_over_mean_median", fraction(o->median));
    set(f, "max_over_mean_p99", fraction(o->p99));
    set(f, "max_over_mean_worst", fraction(o->worst));
    set(f, "max_over_mean_end", fraction(o->end));
    set(f, "overload_node_s", fraction(o->overload_s));
    set(f, "moves", number(o->moves));
    set(f, "late_moves", number(o->late_moves));
    set(f, "bytes_moved", number(o->bytes));
    set(f, "copies_moved", number(o->copies));
    set(f, "transfers", number(o->transfers));
    set(f, "bounces", number(o->bounces));
    set(f, "returns", number(o->returns));
    set(f, "splits", number(o->splits));
    set(f, "merges", number(o->merges));
    set(f, "recoveries", number(o->recoveries));
    set(f, "recovery_bytes", number(o->recovery_bytes));
    set(f, "operations_failed", number(o->failed));
    set(f, "recovered_s", seconds(o->recovered_ms));
    set(f, "drained_s", seconds(o->drained_ms));
    set(f, "settled_s", seconds(o->settled_ms));
    set(f, "last_move_s", fraction((double)o->last_move_ms / 1000));
    set(f, "partitions", number(o->partitions));
    set(f, "rounds", number(o->rounds));
    set(f, "proposals", number(o->proposals));
    set(f, "refused", number(o->refused));
    set(f, "commands", number(o->commands));
    set(f, "revision", number(o->revision));
    return f;
}

static json_t *nodes_of(const struct simulate_outcome *o)
{
    json_t *list = json_array();
    for (uint32_t n = 0; n < o->node_count; n++) {
        json_t *one = json_object();
        set(one, "node", json_string(o->nodes[n].name));
        set(one, "utilisation_before", fraction(o->nodes[n].before));
        set(one, "utilisation_after", fraction(o->nodes[n].after));
        set(one, "partitions", number(o->nodes[n].partitions));
        set(one, "serves", json_boolean(o->nodes[n].serves));
        (void)json_array_append_new(list, one);
    }
    return list;
}

static json_t *samples_of(const struct simulate_outcome *o)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < o->sample_count; i++) {
        const struct simulate_sample *s = &o->samples[i];
        json_t *one = json_object();
        set(one, "at_s", fraction((double)s->at_ms / 1000));
        set(one, "max_over_mean", fraction(s->ratio));
        set(one, "moves", number(s->moves));
        set(one, "under_way", number(s->under_way));
        set(one, "lacking", number(s->lacking));
        (void)json_array_append_new(list, one);
    }
    return list;
}

static json_t *advice_of(const struct simulate_outcome *o)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < o->advice_count; i++) {
        const struct simulate_advice *a = &o->advice[i];
        json_t *one = json_object();
        set(one, "reason", json_string(bal_reason_slug((enum bal_reason)a->reason)));
        set(one, "text", json_string(bal_reason_text((enum bal_reason)a->reason)));
        set(one, "partition", number(a->partition));
        set(one, "first_s", fraction((double)a->at_ms / 1000));
        set(one, "times", number(a->times));
        (void)json_array_append_new(list, one);
    }
    return list;
}

static json_t *verdicts_of(const struct simulate_verdict *v, unsigned count)
{
    json_t *list = json_array();
    for (unsigned i = 0; i < count; i++) {
        json_t *one = json_object();
        set(one, "what", json_string(v[i].what));
        set(one, "detail", json_string(v[i].detail));
        set(one, "expected", fraction(v[i].expected));
        set(one, "came", fraction(v[i].came));
        set(one, "met", json_boolean(v[i].met));
        (void)json_array_append_new(list, one);
    }
    return list;
}

static json_t *violations_of(const struct simulate_outcome *o)
{
    json_t *list = json_array();
    for (uint64_t i = 0; i < o->violation_count && i < SIMULATE_VIOLATIONS_MAX; i++) {
        (void)json_array_append_new(list, json_string(o->violations[i]));
    }
    return list;
}

/* --- printing --- */

static const struct out_column figure_columns[] = {{"FIGURE", "figure", NULL},
                                                   {"VALUE", "value", NULL},
                                                   {NULL, NULL, NULL}};
static const struct out_view figure_view = {"figure", figure_columns};
static const struct out_column node_columns[] = {{"NODE", "node", NULL},
                                                 {"BEFORE", "utilisation_before", NULL},
                                                 {"AFTER", "utilisation_after", NULL},
                                                 {"PARTITIONS", "partitions", NULL},
                                                 {"SERVES", "serves", NULL},
                                                 {NULL, NULL, NULL}};
static const struct out_view node_view = {"node", node_columns};
static const struct out_column verdict_columns[] = {
    {"EXPECTED", "what", NULL}, {"OF", "detail", NULL}, {"VALUE", "expected", NULL},
    {"CAME", "came", NULL},     {"MET", "met", NULL},   {NULL, NULL, NULL}};
static const struct out_view verdict_view = {"what", verdict_columns};
static const struct out_column advice_columns[] = {{"ADVICE", "reason", NULL},
                                                   {"PARTITION", "partition", NULL},
                                                   {"FIRST_S", "first_s", NULL},
                                                   {"TIMES", "times", NULL},
                                                   {NULL, NULL, NULL}};
static const struct out_view advice_view = {"reason", advice_columns};

static void print_rows(struct cli *c, const struct out_view *view, const json_t *rows)
{
    if (json_array_size(rows) > 0) {
        out_restart(&c->out);
        out_rows(&c->out, view, rows);
        (void)fputc('\n', c->out.file);
    }
}

static void print_table(struct cli *c, json_t *answer)
{
    json_t *rows = json_array(), *value;
    const char *name;
    json_object_foreach(json_object_get(answer, "figures"), name, value)
    {
        (void)json_array_append_new(rows, json_pack("{sssO}", "figure", name, "value", value));
    }
    print_rows(c, &figure_view, rows);
    json_decref(rows);
    print_rows(c, &node_view, json_object_get(answer, "nodes"));
    print_rows(c, &advice_view, json_object_get(answer, "advice"));
    print_rows(c, &verdict_view, json_object_get(answer, "expect"));
}

static void
print_svg(struct cli *c, const struct scenario *s, uint64_t seed, const struct simulate_outcome *o)
{
    struct buf picture;
    buf_init(&picture, SIMULATE_SVG_MAX);
    simulate_svg(s, seed, o, &picture);
    (void)fwrite(picture.data, 1, picture.len, c->out.file);
    buf_close(&picture);
}

static void print(struct cli *c,
                  const struct scenario *s,
                  uint64_t seed,
                  const struct simulate_outcome *o,
                  json_t *verdicts)
{
    if (c->out.format == OUT_SVG) {
        print_svg(c, s, seed, o);
        return;
    }
    json_t *answer = json_object();
    set(answer, "scenario", json_string(s->name));
    set(answer, "seed", number(seed));
    set(answer, "figures", figures_of(o));
    set(answer, "nodes", nodes_of(o));
    set(answer, "advice", advice_of(o));
    set(answer, "violations", violations_of(o));
    set(answer, "expect", json_incref(verdicts));
    if (c->out.format == OUT_TABLE) {
        print_table(c, answer);
    } else {
        set(answer, "samples", samples_of(o));
        out_json(&c->out, answer, c->out.format == OUT_JSON);
    }
    json_decref(answer);
}

/* What was not met, on stderr; the exit status. */
static int judge(const struct scenario *s,
                 const struct simulate_outcome *o,
                 const struct simulate_verdict *v,
                 unsigned count)
{
    int code = EXIT_DONE;
    for (uint64_t i = 0; i < o->violation_count && i < SIMULATE_VIOLATIONS_MAX; i++) {
        (void)cli_fail(EXIT_FAILED, "%s: %s", s->name, o->violations[i]);
    }
    for (unsigned i = 0; i < count; i++) {
        if (!v[i].met) {
            code =
                cli_fail(EXIT_FAILED, "%s: expected %s%s%s %.10g, came %.10g", s->name, v[i].what,
                         v[i].detail[0] != '\0' ? " " : "", v[i].detail, v[i].expected, v[i].came);
        }
    }
    return code;
}

static int simulate(struct cli *c, const struct scenario *s, uint64_t seed)
{
    struct simulate_outcome o;
    struct simulate_verdict v[SIMULATE_VERDICTS_MAX];
    struct err e;
    rcu_reader_start();
    enum err_code code = simulate_run(s, seed, &o, &e);
    rcu_drain();
    rcu_reader_stop();
    if (code != ERR_OK) {
        return cli_fail(EXIT_USAGE, "%s: %s", e.pointer, e.detail);
    }
    unsigned count = simulate_judge(s, &o, v);
    json_t *verdicts = verdicts_of(v, count);
    print(c, s, seed, &o, verdicts);
    int status = judge(s, &o, v, count);
    json_decref(verdicts);
    simulate_close(&o);
    return status;
}

static int run_scenario(struct cli *c)
{
    const char *path = c->args->operands[0];
    struct scenario *s = mem_zalloc(sizeof *s);
    struct buf text;
    struct err e;
    int status;
    buf_init(&text, SCENARIO_BYTES_MAX);
    if (c->out.format == OUT_NAME) {
        status = cli_fail(EXIT_USAGE, "simulate prints table, json, jsonl or svg");
    } else if (!cmd_read_file(path, &text)) {
        status = cli_fail(EXIT_USAGE, "'%s' can't be read, or is larger than %d bytes", path,
                          SCENARIO_BYTES_MAX);
    } else if (scenario_read((const char *)text.data, text.len, s, &e) != ERR_OK) {
        status = cli_fail(EXIT_USAGE, "%s: %s%s%s", path, e.pointer,
                          e.pointer[0] != '\0' ? ": " : "", e.detail);
    } else {
        status = simulate(c, s, args_number(c->args, "seed", s->seed));
        scenario_close(s);
    }
    buf_close(&text);
    mem_free(s);
    return status;
}

static int simulate_command(struct cli *c)
{
    if (args_has(c->args, "from")) {
        return cmd_whatif_from(c);
    }
    for (const struct cli_flag *f = simulate_flags; f->name != NULL; f++) {
        if (strcmp(f->name, "seed") != 0 && args_has(c->args, f->name)) {
            return cli_fail(EXIT_USAGE, "--%s is of a saved state: it wants --from", f->name);
        }
    }
    return c->args->operand_count > 0 ? run_scenario(c)
                                      : cli_fail(EXIT_USAGE, "FILE or --from is needed");
}

const struct cli_command simulate_commands[] = {
    {"", "[FILE]", "Run the planner, the directory and a modeled fleet in virtual time",
     "cadastre simulate tests/scenarios/zipf.json\n"
     "cadastre simulate scenario.json --seed 7 -o svg > run.svg\n"
     "cadastre simulate --from backup.db --load load.bin --lose-zone eu-1a\n",
     simulate_flags, simulate_command},
    {NULL, NULL, NULL, NULL, NULL, NULL}};
