/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cmd.h"

static const char *const lists[] = {"hot_cluster",    "hot_keys",  "frontiers",
                                    "hot_partitions", "hot_nodes", "advisories"};

/* "8 to 7000", and how many share an owner. */
static void put_salts(struct buf *cell, const json_t *row)
{
    const json_t *salts = json_object_get(row, "salts");
    if (salts == NULL) {
        buf_put_u8(cell, '-');
        return;
    }
    out_put_json(cell, json_object_get(salts, "count"));
    buf_put_str(cell, " salts, at most ");
    out_put_json(cell, json_object_get(salts, "largest_owner_load"));
    if (json_integer_value(json_object_get(salts, "sharing_an_owner")) > 0) {
        buf_put_str(cell, ", ");
        out_put_json(cell, json_object_get(salts, "sharing_an_owner"));
        buf_put_str(cell, " share an owner");
    }
}

static const struct out_column resource_columns[] = {
    {"RESOURCE", "name", NULL},
    {"UNIT", "unit", NULL},
    {"MEAN", "partitions.mean", NULL},
    {"MEDIAN", "partitions.median", NULL},
    {"P99", "partitions.p99", NULL},
    {"MAX", "partitions.max", NULL},
    {"MAX/MEAN", "partitions.max_to_mean", NULL},
    {"MAX/MEDIAN", "partitions.max_to_median", NULL},
    {"TOP10", "partitions.top10_share", NULL},
    {"NODES MAX/MEAN", "nodes.max_to_mean", NULL},
    {"LEAST", "nodes.least_max_to_mean", NULL},
    {NULL, NULL, NULL}};
static const struct out_view resource_view = {"name", resource_columns};

static const struct out_column finding_columns[] = {
    {"FINDING", "finding", NULL},   {"RESOURCE", "resource", NULL},
    {"KEYSPACE", "keyspace", NULL}, {"PARTITION", "partition", NULL},
    {"NODE", "node", NULL},         {"KEY", "key", NULL},
    {"VALUE", "value", NULL},       {"BOUND", "bound", NULL},
    {"REMEDY", "remedy", NULL},     {"AT", "split_at", NULL},
    {"SALTS", NULL, put_salts},     {NULL, NULL, NULL}};
static const struct out_view finding_view = {"finding", finding_columns};

static void print_resources(struct cli *c, json_t *answer)
{
    json_t *rows = json_array(), *value;
    const char *name;
    json_object_foreach(json_object_get(answer, "resources"), name, value)
    {
        json_t *row = json_copy(value);
        (void)json_object_set_new(row, "name", json_string(name));
        (void)json_array_append_new(rows, row);
    }
    out_rows(&c->out, &resource_view, rows);
    json_decref(rows);
}

static void print_findings(struct cli *c, const json_t *answer)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        (void)json_array_extend(rows, json_object_get(answer, lists[i]));
    }
    if (c->out.format == OUT_TABLE && json_array_size(rows) > 0) {
        (void)fputc('\n', c->out.file);
        out_restart(&c->out);
    }
    out_rows(&c->out, &finding_view, rows);
    json_decref(rows);
}

/* "operations: get 0.9, put 0.1", as far as reports told them apart. */
static void print_shares(struct cli *c, const json_t *answer)
{
    static const struct {
        const char *list, *member;
    } told[] = {{"operations", "operation"}, {"outcomes", "outcome"}, {"tenants", "tenant"}};
    for (size_t i = 0; i < sizeof told / sizeof told[0]; i++) {
        const json_t *list = json_object_get(answer, told[i].list), *one;
        struct buf line;
        size_t k;
        if (json_array_size(list) == 0) {
            continue;
        }
        buf_init(&line, OUT_CELL_MAX);
        json_array_foreach(list, k, one)
        {
            buf_put_str(&line, k > 0 ? ", " : "");
            out_put_json(&line, json_object_get(one, told[i].member));
            buf_printf(&line, " %.3g", json_number_value(json_object_get(one, "share")));
        }
        (void)fprintf(c->out.file, "%s: %.*s\n", told[i].list, (int)line.len,
                      (const char *)line.data);
        buf_close(&line);
    }
}

/* The one sentence that it comes down to. */
static void print_cause(struct cli *c, const json_t *answer)
{
    const json_t *cause = json_object_get(answer, "cause");
    const char *what[] = {"tenant", "operation", "outcome", "from", "node"};
    if (cause == NULL) {
        return;
    }
    struct buf line;
    buf_init(&line, OUT_CELL_MAX);
    out_put_json(&line, json_object_get(cause, "kind"));
    for (size_t i = 0; i < sizeof what / sizeof what[0]; i++) {
        if (json_object_get(cause, what[i]) != NULL) {
            buf_put_u8(&line, ' ');
            out_put_json(&line, json_object_get(cause, what[i]));
        }
    }
    buf_put_str(&line, ": ");
    out_put_json(&line, json_object_get(cause, "why"));
    (void)fprintf(c->out.file, "\ncause: %.*s\n", (int)line.len, (const char *)line.data);
    buf_close(&line);
}

static int run(struct cli *c)
{
    struct target t;
    json_t *answer;
    target_init(&t, "/v1/skew");
    if (c->args->operand_count > 0) {
        target_query(&t, "keyspace", c->args->operands[0]);
    }
    int code = cli_read(c, &t, &answer);
    if (code != EXIT_DONE) {
        return code;
    }
    if (c->out.format == OUT_JSON) {
        out_json(&c->out, answer, true);
    } else {
        if (c->out.format == OUT_TABLE) {
            print_resources(c, answer);
        }
        print_findings(c, answer);
        if (c->out.format == OUT_TABLE) {
            print_cause(c, answer);
            print_shares(c, answer);
        }
    }
    json_decref(answer);
    return code;
}

const struct cli_command skew_commands[] = {
    {"", "[KEYSPACE]", "Show how uneven the load is, what is at fault, and what would help",
     "cadastre skew orders\ncadastre skew orders -o json\n", NULL, run},
    {NULL, NULL, NULL, NULL, NULL, NULL}};
