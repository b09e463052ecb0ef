/* SPDX-License-Identifier: Apache-2.0 */
/* Time downwards; keys, operations, outcomes or tenants across, one character a column. */
#include "cli/cmd.h"

static const char shades[] = " .:-=+*#%@";
enum { SHADES = sizeof shades - 1, HEAT_COLUMNS_SHOWN = 256 };

static double value_at(const json_t *row, size_t column)
{
    return json_number_value(json_array_get(json_object_get(row, "values"), column));
}

/* The hottest of all, and where. */
struct hottest {
    double value;
    const json_t *row;
    size_t column;
};

static struct hottest find_hottest(const json_t *rows)
{
    struct hottest h = {0, NULL, 0};
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row)
    {
        for (size_t c = 0; c < json_array_size(json_object_get(row, "values")); c++) {
            if (value_at(row, c) > h.value) {
                h = (struct hottest){value_at(row, c), row, c};
            }
        }
    }
    return h;
}

/* With "heat", the shades, and "largest" for the table. */
static json_t *shaded(const json_t *row, double hottest)
{
    char heat[HEAT_COLUMNS_SHOWN + 3];
    size_t n = json_array_size(json_object_get(row, "values")), at = 0;
    double largest = 0;
    heat[at++] = '|';
    for (size_t c = 0; c < n && c < HEAT_COLUMNS_SHOWN; c++) {
        double v = value_at(row, c);
        /* rounded up: a little shows */
        unsigned shade = hottest > 0 ? (unsigned)(v / hottest * (SHADES - 1) + .999) : 0;
        heat[at++] = shades[shade < SHADES ? shade : SHADES - 1];
        largest = v > largest ? v : largest;
    }
    heat[at++] = '|';
    json_t *copy = json_copy((json_t *)(uintptr_t)row);
    (void)json_object_set_new(copy, "heat", json_stringn(heat, at));
    (void)json_object_set_new(copy, "largest", json_real(largest));
    return copy;
}

static const struct out_column columns[] = {{"FROM", "from", NULL},
                                            {"LARGEST", "largest", NULL},
                                            {"HEAT", "heat", NULL},
                                            {NULL, NULL, NULL}};
static const struct out_view view = {"from", columns};

/* A range of keys, or the name of an operation, an outcome or a tenant; "-" of none. */
static void put_column(struct buf *text, const json_t *answer, size_t column)
{
    const json_t *one = json_array_get(json_object_get(answer, "columns"), column);
    const char *by = json_string_value(json_object_get(answer, "by"));
    if (by == NULL) {
        out_put_range(text, one);
    } else if (json_is_null(json_object_get(one, by))) {
        buf_put_u8(text, '-');
    } else {
        out_put_json(text, json_object_get(one, by));
    }
}

static void print_names(struct cli *c, const json_t *answer)
{
    size_t n = json_array_size(json_object_get(answer, "columns"));
    struct buf text;
    if (json_object_get(answer, "by") == NULL || !c->out.headers) {
        return;
    }
    buf_init(&text, OUT_CELL_MAX);
    for (size_t i = 0; i < n; i++) {
        buf_put_str(&text, i > 0 ? ", " : "");
        put_column(&text, answer, i);
    }
    (void)fprintf(c->out.file, "by %s: %.*s\n", json_string_value(json_object_get(answer, "by")),
                  (int)text.len, (const char *)text.data);
    buf_close(&text);
}

static void print_legend(struct cli *c, const json_t *answer, const struct hottest *h)
{
    struct buf text;
    if (h->row == NULL || !c->out.headers) {
        return;
    }
    buf_init(&text, OUT_CELL_MAX);
    put_column(&text, answer, h->column);
    (void)fprintf(c->out.file, "\n%zu columns; %c is %.0f %s of %s, in column %zu: %.*s\n",
                  json_array_size(json_object_get(answer, "columns")), shades[SHADES - 1], h->value,
                  json_string_value(json_object_get(answer, "unit")),
                  json_string_value(json_object_get(answer, "resource")), h->column + 1,
                  (int)text.len, (const char *)text.data);
    buf_close(&text);
}

static void print(struct cli *c, const json_t *answer)
{
    const json_t *rows = json_object_get(answer, "rows");
    struct hottest h = find_hottest(rows);
    json_t *shown = json_array(), *row;
    size_t i;
    json_array_foreach(rows, i, row)
    {
        (void)json_array_append_new(shown, c->out.format == OUT_TABLE ? shaded(row, h.value)
                                                                      : json_incref(row));
    }
    out_rows(&c->out, &view, shown);
    if (c->out.format == OUT_TABLE) {
        print_legend(c, answer, &h);
        print_names(c, answer);
    }
    json_decref(shown);
}

static int run(struct cli *c)
{
    struct target t;
    json_t *answer;
    target_init(&t, "/v1/heatmap");
    target_query(&t, "keyspace", c->args->operands[0]);
    target_flag(&t, c, "resource");
    target_flag(&t, c, "by");
    target_flag(&t, c, "operation");
    target_flag(&t, c, "outcome");
    target_flag(&t, c, "tenant");
    target_flag(&t, c, "from");
    target_flag(&t, c, "to");
    int code = cli_read(c, &t, &answer);
    if (code != EXIT_DONE) {
        return code;
    }
    if (c->out.format == OUT_JSON) {
        out_json(&c->out, answer, true);
    } else {
        print(c, answer);
    }
    json_decref(answer);
    return code;
}

static const struct cli_flag flags[] = {
    {"resource", "RESOURCE", "Of this one, as in reports: reads, cpu_ms … (requests)", ARGS_TEXT, 0,
     false, false},
    {"by", "NAME", "Across: operation, outcome or tenant (key ranges)", ARGS_TEXT, 0, false, false},
    {"operation", "OPERATION", "Of this operation's requests only", ARGS_TEXT, 0, false, false},
    {"outcome", "OUTCOME", "Of requests that ended so only", ARGS_TEXT, 0, false, false},
    {"tenant", "TENANT", "Of this tenant only", ARGS_TEXT, 0, false, false},
    {"from", "TIME", "From this time on, 2026-11-30T09:00:00Z (a day ago)", ARGS_TEXT, 0, false,
     false},
    {"to", "TIME", "Before this time (now)", ARGS_TEXT, 0, false, false},
    CLI_FLAGS_END};

const struct cli_command heatmap_commands[] = {
    {"", "KEYSPACE", "Show where and when the load was: time downwards, keys across",
     "cadastre heatmap orders\ncadastre heatmap orders --by operation --tenant acme\n"
     "cadastre heatmap orders --resource writes --from 2026-11-30T09:00:00Z -o json\n",
     flags, run},
    {NULL, NULL, NULL, NULL, NULL, NULL}};
