/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the store share. */
#ifndef SHARDKV_KV_INSIDE_H
#define SHARDKV_KV_INSIDE_H

#include "examples/shardkv/kv.h"

#include <sqlite3.h>

/* Another connection may be about to close the file, or to recover it. */
enum { KV_BUSY_MS = 5000 };

enum statement {
    BEGIN,
    COMMIT,
    ROLLBACK,
    META_NEW,
    META_GET,
    META_PUT,
    ITEM_GET,
    ITEM_PUT,
    ITEM_DELETE,
    ITEM_SOME,
    ITEM_COUNT,
    LOG_PUT,
    LOG_DELETE,
    LOG_TRIM,
    LOG_AT,
    LOG_AFTER,
    LOG_LAST,
    LOG_COUNT,
    LOG_LATE,
    ID_GET,
    ID_PUT,
    ID_DELETE,
    ID_TRIM,
    SIZE,
    STATEMENTS
};

struct kv {
    sqlite3 *db;
    sqlite3_stmt *statements[STATEMENTS];
    char *start, *end; /* own */
    uint64_t keep, pinned;
    /* As of the last commit, or of the open transaction: */
    uint64_t position, epoch, running;
    uint64_t base, base_epoch;
    char origin[KV_ORIGIN_SIZE];
    char install[KV_NAME_SIZE]; /* the snapshot that is being stored; "": it is whole */
    uint64_t chunk;             /* of it, the next */
};

sqlite3_stmt *kv_use(struct kv *s, enum statement which);
bool kv_bind(sqlite3_stmt *q, int at, uint64_t v);
/* Borrows the text until the statement is reset; NULL is NULL. */
bool kv_bind_text(sqlite3_stmt *q, int at, const char *v);
bool kv_done(sqlite3_stmt *q);
uint64_t kv_column(sqlite3_stmt *q, int at);
const char *kv_text(sqlite3_stmt *q, int at);

uint64_t kv_digest(const char *key, const char *value, uint64_t position);
/* Commits when `ok`; else nothing of the transaction stays, and `s` is as it was `before`. */
bool kv_finish(struct kv *s, const struct kv *before, bool ok);
bool kv_put_item(struct kv *s, const char *key, const char *value, uint64_t position);

#endif
