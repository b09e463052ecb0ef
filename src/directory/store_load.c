/* SPDX-License-Identifier: Apache-2.0 */
/* A file's rows -> struct directory. Everything is read before the directory is touched. */
#include "directory/store_internal.h"

#include "base/mem.h"

struct rows {
    struct dir_object **items; /* owns */
    uint64_t count, cap;
};

static void add(struct rows *r, struct dir_object *row)
{
    if (r->count == r->cap) {
        r->cap = r->cap == 0 ? 1024 : r->cap * 2;
        r->items = mem_realloc(r->items, r->cap * sizeof *r->items);
    }
    r->items[r->count++] = row;
}

static enum err_code
read_table(struct store_conn *c, enum store_sql which, struct rows *rows, struct err *e)
{
    sqlite3_stmt *st = store_conn_stmt(c, which);
    if (st == NULL) {
        return store_judge_failed(c, e);
    }
    int rc;
    enum err_code code = ERR_OK;
    while (code == ERR_OK && (rc = sqlite3_step(st)) != SQLITE_DONE) {
        struct dir_object *row = NULL;
        if (rc != SQLITE_ROW) {
            code = store_judge_failed(c, e);
        } else if ((row = store_read_row(which, st, e)) == NULL) {
            code = ERR_CORRUPT;
        } else {
            add(rows, row);
        }
    }
    (void)sqlite3_reset(st); /* the step's outcome is known */
    return code;
}

static enum err_code read_all(struct store_conn *c, struct rows *rows, struct err *e)
{
    static const enum store_sql tables[] = {
        SQL_LOAD_KEYSPACES, SQL_LOAD_PARTITIONS, SQL_LOAD_TOMBSTONES, SQL_LOAD_NODES,
        SQL_LOAD_SERVERS,   SQL_LOAD_OPERATIONS, SQL_LOAD_DUTIES,     SQL_LOAD_PROPOSALS,
        SQL_LOAD_BALANCER,  SQL_LOAD_DEDUPE};
    enum err_code code = ERR_OK;
    for (unsigned i = 0; i < sizeof tables / sizeof tables[0] && code == ERR_OK; i++) {
        code = read_table(c, tables[i], rows, e);
    }
    return code;
}

enum err_code store_load(struct store_conn *c, struct directory *d, uint64_t index, struct err *e)
{
    struct rows rows = {0};
    struct dir_view_meta meta;
    enum err_code code = store_read_begin(c, e);
    if (code != ERR_OK) {
        return code;
    }
    code = store_read_meta(c, &meta, e);
    if (code == ERR_OK) {
        code = read_all(c, &rows, e);
    }
    store_read_end(c);
    if (code == ERR_OK) {
        meta.applied_index = index != 0 ? index : meta.applied_index;
        directory_load_begin(d, &meta);
        for (uint64_t i = 0; i < rows.count; i++) {
            directory_load_row(d, rows.items[i]);
        }
        code = directory_load_end(d, e);
    } else {
        for (uint64_t i = 0; i < rows.count; i++) {
            dir_unref(rows.items[i]);
        }
    }
    mem_free(rows.items);
    return code;
}

enum err_code store_read_file(const char *path, struct directory **ret_directory, struct err *e)
{
    struct store_conn c;
    enum err_code code = store_conn_open(&c, path, STORE_READ, e);
    if (code != ERR_OK) {
        return code;
    }
    struct directory *d = directory_new();
    c.is_lent = true;
    code = store_load(&c, d, 0, e);
    store_conn_close(&c);
    if (code == ERR_OK) {
        *ret_directory = d;
    } else {
        directory_free(d);
    }
    return code;
}
