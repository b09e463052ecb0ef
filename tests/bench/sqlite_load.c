/* SPDX-License-Identifier: Apache-2.0 */
/* What a restart is held against: reads every column of every row of a SQLite file, and keeps a
 * copy of each row in memory.
 *
 *   sqlite_load FILE        prints one JSON object: rows, bytes, seconds */
#include "base/clock.h"
#include "base/mem.h"

#include <inttypes.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_MAX_BYTES = 256, ROW_MAX_BYTES = 65536 };

static uint64_t rows, bytes;

static void die(sqlite3 *db)
{
    (void)fprintf(stderr, "sqlite_load: %s\n", sqlite3_errmsg(db));
    exit(1);
}

/* Kept until the process ends, as a server keeps its rows. */
static void keep(sqlite3_stmt *st)
{
    uint8_t row[ROW_MAX_BYTES];
    size_t size = 0;
    int columns = sqlite3_column_count(st);
    for (int i = 0; i < columns; i++) {
        int type = sqlite3_column_type(st, i);
        int64_t number = sqlite3_column_int64(st, i);
        const void *from = &number;
        size_t len = sizeof number;
        if (type == SQLITE_TEXT || type == SQLITE_BLOB) {
            from = sqlite3_column_blob(st, i);
            len = (size_t)sqlite3_column_bytes(st, i);
        }
        if (len > 0 && len <= sizeof row - size) {
            memcpy(row + size, from, len);
            size += len;
        }
    }
    memcpy(mem_alloc(size), row, size);
    rows++;
    bytes += size;
}

static void load_table(sqlite3 *db, const char *name)
{
    char sql[NAME_MAX_BYTES + 32];
    sqlite3_stmt *st;
    (void)snprintf(sql, sizeof sql, "SELECT * FROM \"%s\"", name);
    if (sqlite3_prepare_v2(db, sql, -1, &st, NULL) != SQLITE_OK) {
        die(db);
    }
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        keep(st);
    }
    if (rc != SQLITE_DONE || sqlite3_finalize(st) != SQLITE_OK) {
        die(db);
    }
}

int main(int argc, char **argv)
{
    sqlite3 *db;
    sqlite3_stmt *tables;
    if (argc != 2) {
        (void)fprintf(stderr, "usage: sqlite_load FILE\n");
        return 2;
    }
    uint64_t from = clock_mono_ns();
    if (sqlite3_open_v2(argv[1], &db, SQLITE_OPEN_READWRITE, NULL) != SQLITE_OK ||
        sqlite3_prepare_v2(db, "SELECT name FROM sqlite_schema WHERE type = 'table'", -1, &tables,
                           NULL) != SQLITE_OK) {
        die(db);
    }
    while (sqlite3_step(tables) == SQLITE_ROW) {
        char name[NAME_MAX_BYTES];
        (void)snprintf(name, sizeof name, "%s", (const char *)sqlite3_column_text(tables, 0));
        load_table(db, name);
    }
    double seconds = (double)(clock_mono_ns() - from) / 1e9;
    (void)printf("{\"rows\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"seconds\":%.4f}\n", rows, bytes,
                 seconds);
    return 0;
}
