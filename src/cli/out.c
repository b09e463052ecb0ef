/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/out.h"

#include "base/mem.h"

#include <string.h>

/* All the digits that a double surely keeps, so that 56.4 stays 56.4. */
enum { GAP = 2, REAL_DIGITS = 15 };

bool out_format_parse(const char *text, enum out_format *ret_format)
{
    static const char *const names[] = {"table", "json", "jsonl", "name", "svg"};
    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(text, names[i]) == 0) {
            *ret_format = (enum out_format)i;
            return true;
        }
    }
    return false;
}

void out_put_text(struct buf *cell, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c < 0x20 || c == 0x7f || c == '\\') {
            buf_printf(cell, "\\x%02x", c);
        } else {
            buf_put_u8(cell, c);
        }
    }
}

void out_put_json(struct buf *cell, const json_t *value)
{
    if (value == NULL || json_is_null(value)) {
        buf_put_str(cell, "-");
    } else if (json_is_string(value)) {
        size_t len = json_string_length(value);
        out_put_text(cell, len > 0 ? json_string_value(value) : "-", len > 0 ? len : 1);
    } else {
        char *text =
            json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(REAL_DIGITS));
        if (text != NULL) {
            buf_put_str(cell, text);
            mem_free(text);
        }
    }
}

unsigned out_width(const char *text, size_t len)
{
    unsigned width = 0;
    for (size_t i = 0; i < len; i++) {
        width += ((unsigned char)text[i] & 0xc0) != 0x80;
    }
    return width;
}

/* The value at "a.b". */
static const json_t *value_at(const json_t *row, const char *path)
{
    char name[64];
    while (row != NULL && *path != '\0') {
        size_t len = strcspn(path, ".");
        (void)snprintf(name, sizeof name, "%.*s", (int)len, path);
        row = json_object_get(row, name);
        path += len + (path[len] == '.');
    }
    return row;
}

static void put_cell(struct buf *cell, const struct out_column *column, const json_t *row)
{
    buf_reset(cell);
    if (column->put != NULL) {
        column->put(cell, column->path != NULL ? value_at(row, column->path) : row);
    } else {
        out_put_json(cell, value_at(row, column->path));
    }
    if (cell->len == 0) {
        buf_put_str(cell, "-");
    }
}

static void measure(struct out *o, const struct out_view *v, const json_t *rows, struct buf *cell)
{
    for (unsigned i = 0; i < OUT_COLUMNS_MAX && v->columns[i].title != NULL; i++) {
        unsigned width = out_width(v->columns[i].title, strlen(v->columns[i].title));
        o->widths[i] = o->widths[i] < width ? width : o->widths[i];
        size_t at;
        json_t *row;
        json_array_foreach(rows, at, row)
        {
            put_cell(cell, &v->columns[i], row);
            width = out_width((const char *)cell->data, cell->len);
            o->widths[i] = o->widths[i] < width ? width : o->widths[i];
        }
    }
}

/* The last column is not padded. */
static void print_cell(struct out *o, const struct out_view *v, unsigned i, struct slice text)
{
    const char *bytes = (const char *)text.data;
    unsigned width = out_width(bytes, text.len);
    bool last = v->columns[i + 1].title == NULL;
    int pad = last || width > o->widths[i] ? 0 : (int)(o->widths[i] - width);
    (void)fprintf(o->file, "%.*s%*s%s", (int)text.len, bytes, pad + (last ? 0 : GAP), "",
                  last ? "\n" : "");
}

static void print_header(struct out *o, const struct out_view *v)
{
    o->begun = true;
    if (!o->headers) {
        return;
    }
    (void)fputs(o->bold ? "\033[1m" : "", o->file);
    for (unsigned i = 0; i < OUT_COLUMNS_MAX && v->columns[i].title != NULL; i++) {
        const char *title = v->columns[i].title;
        print_cell(o, v, i, slice_of(title, strlen(title)));
    }
    (void)fputs(o->bold ? "\033[0m" : "", o->file);
}

static void print_table(struct out *o, const struct out_view *v, const json_t *rows)
{
    struct buf cell;
    buf_init(&cell, OUT_CELL_MAX);
    measure(o, v, rows, &cell);
    if (!o->begun) {
        print_header(o, v);
    }
    size_t at;
    json_t *row;
    json_array_foreach(rows, at, row)
    {
        for (unsigned i = 0; i < OUT_COLUMNS_MAX && v->columns[i].title != NULL; i++) {
            put_cell(&cell, &v->columns[i], row);
            print_cell(o, v, i, slice_of(cell.data, cell.len));
        }
    }
    buf_close(&cell);
}

static void print_name(struct out *o, const struct out_view *v, const json_t *row)
{
    const json_t *value = value_at(row, v->name);
    if (json_is_string(value)) {
        (void)fprintf(o->file, "%s\n", json_string_value(value));
    } else if (value != NULL) {
        (void)json_dumpf(value, o->file, JSON_ENCODE_ANY | JSON_COMPACT);
        (void)fputc('\n', o->file);
    }
}

void out_rows(struct out *o, const struct out_view *v, const json_t *rows)
{
    if (o->format == OUT_TABLE) {
        print_table(o, v, rows);
        return;
    }
    size_t at;
    json_t *row;
    json_array_foreach(rows, at, row)
    {
        if (o->format == OUT_JSONL) {
            out_json(o, row, false);
        } else if (o->format == OUT_NAME) {
            print_name(o, v, row);
        }
    }
}

void out_object(struct out *o, const struct out_view *v, const json_t *object)
{
    if (o->format == OUT_JSON || o->format == OUT_JSONL) {
        out_json(o, object, o->format == OUT_JSON);
        return;
    }
    json_t *rows = json_array();
    (void)json_array_append(rows, (json_t *)(uintptr_t)object);
    out_rows(o, v, rows);
    json_decref(rows);
}

void out_json(struct out *o, const json_t *value, bool pretty)
{
    (void)json_dumpf(value, o->file,
                     JSON_ENCODE_ANY | JSON_REAL_PRECISION(REAL_DIGITS) |
                         (pretty ? JSON_INDENT(2) : JSON_COMPACT));
    (void)fputc('\n', o->file);
}

void out_restart(struct out *o)
{
    o->begun = false;
    memset(o->widths, 0, sizeof o->widths);
}

bool out_flush(struct out *o)
{
    return fflush(o->file) == 0 && ferror(o->file) == 0;
}

/* --- shared cells --- */

static void put_bound(struct buf *cell, const json_t *bound, const char *open)
{
    if (json_is_string(bound)) {
        out_put_text(cell, json_string_value(bound), json_string_length(bound));
    } else {
        buf_put_str(cell, open);
    }
}

void out_put_range(struct buf *cell, const json_t *row)
{
    buf_put_str(cell, "[");
    put_bound(cell, json_object_get(row, "start"), "");
    buf_put_str(cell, ", ");
    put_bound(cell, json_object_get(row, "end"), "");
    buf_put_str(cell, ")");
}

void out_put_replicas(struct buf *cell, const json_t *row)
{
    size_t at;
    json_t *replica;
    json_array_foreach(json_object_get(row, "replicas"), at, replica)
    {
        const char *role = json_string_value(json_object_get(replica, "role"));
        buf_put_str(cell, at > 0 ? " " : "");
        out_put_json(cell, json_object_get(replica, "node"));
        if (role != NULL && strcmp(role, "primary") != 0) {
            buf_printf(cell, "(%s)", role);
        }
    }
}

void out_put_pairs(struct buf *cell, const json_t *object)
{
    const char *before = "", *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, name, value)
    {
        buf_put_str(cell, before);
        out_put_text(cell, name, strlen(name));
        buf_put_str(cell, "=");
        out_put_json(cell, value);
        before = " ";
    }
}

static const struct out_column route_columns[] = {{"KEYSPACE", "keyspace", NULL},
                                                  {"PARTITION", "partition", NULL},
                                                  {"EPOCH", "epoch", NULL},
                                                  {"RANGE", NULL, out_put_range},
                                                  {"STATE", "state", NULL},
                                                  {"PRIMARY", "primary.node", NULL},
                                                  {"ADDRESS", "primary.address", NULL},
                                                  {"AUTHORITY", "authority", NULL},
                                                  {"REPLICAS", NULL, out_put_replicas},
                                                  {NULL, NULL, NULL}};
const struct out_view out_route_view = {"partition", route_columns};

static const struct out_column revision_columns[] = {{"REVISION", "revision", NULL},
                                                     {NULL, NULL, NULL}};
const struct out_view out_revision_view = {"revision", revision_columns};
