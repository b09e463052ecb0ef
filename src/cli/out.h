/* SPDX-License-Identifier: Apache-2.0 */
/* Data on stdout: a table for people, or JSON as the server gave it, never decorated. */
#ifndef CLI_OUT_H
#define CLI_OUT_H

#include "base/buf.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

enum out_format { OUT_TABLE, OUT_JSON, OUT_JSONL, OUT_NAME, OUT_SVG };

enum { OUT_COLUMNS_MAX = 12, OUT_CELL_MAX = 4096 };

/* A column's cell: `put` if there is one, else the value at `path` ("primary.node"; "-" when absent
 * or null). */
struct out_column {
    const char *title; /* NULL ends a table */
    const char *path;
    void (*put)(struct buf *cell, const json_t *row);
};

struct out_view {
    const char *name; /* path of what -o name prints */
    const struct out_column *columns;
};

struct out {
    FILE *file;
    enum out_format format;
    bool headers, bold;
    bool begun;                       /* the header line is out */
    unsigned widths[OUT_COLUMNS_MAX]; /* grow from page to page */
};

bool out_format_parse(const char *text, enum out_format *ret_format);

/* Rows of a list. For OUT_JSON nothing: the caller prints the whole body with out_json(). */
void out_rows(struct out *o, const struct out_view *v, const json_t *rows);
/* One object, in any format. */
void out_object(struct out *o, const struct out_view *v, const json_t *object);
/* Indented when `pretty`, else on one line; with a newline. */
void out_json(struct out *o, const json_t *value, bool pretty);
/* A new table begins. */
void out_restart(struct out *o);
/* False when something could not be written. */
bool out_flush(struct out *o);

/* Text for a cell, control bytes escaped. */
void out_put_text(struct buf *cell, const char *text, size_t len);
void out_put_json(struct buf *cell, const json_t *value);
/* Columns written columns on screen, not bytes: code points. */
unsigned out_width(const char *text, size_t len);

/* Cells and views that several nouns show. */
void out_put_range(struct buf *cell, const json_t *row);    /* [start, end) */
void out_put_replicas(struct buf *cell, const json_t *row); /* "n1 n2(sync)" */
void out_put_pairs(struct buf *cell, const json_t *object); /* "a=1 b=2" */
extern const struct out_view out_route_view;
extern const struct out_view out_revision_view;

#endif
