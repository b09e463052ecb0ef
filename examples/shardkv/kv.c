/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/shardkv/kv.h"

#include <inttypes.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

static const char schema[] =
    "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"
    "CREATE TABLE IF NOT EXISTS meta(one INTEGER PRIMARY KEY CHECK(one=1), copy INTEGER NOT NULL,"
    " running INTEGER NOT NULL);"
    "CREATE TABLE IF NOT EXISTS kv(key TEXT PRIMARY KEY, value TEXT NOT NULL,"
    " position INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS log(position INTEGER PRIMARY KEY, epoch INTEGER NOT NULL,"
    " id TEXT NOT NULL UNIQUE, key TEXT NOT NULL, value TEXT NOT NULL, old_value TEXT,"
    " old_position INTEGER);";

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
    ITEM_ALL,
    LOG_PUT,
    LOG_DELETE,
    LOG_AT,
    LOG_ID,
    LOG_AFTER,
    LOG_LAST,
    LOG_COUNT,
    SIZE,
    STATEMENTS
};

static const char *const texts[STATEMENTS] = {
    [BEGIN] = "BEGIN IMMEDIATE",
    [COMMIT] = "COMMIT",
    [ROLLBACK] = "ROLLBACK",
    [META_NEW] = "INSERT OR IGNORE INTO meta VALUES(1,?1,0)",
    [META_GET] = "SELECT copy,running FROM meta",
    [META_PUT] = "UPDATE meta SET running=?1",
    [ITEM_GET] = "SELECT value,position FROM kv WHERE key=?1",
    [ITEM_PUT] = "INSERT OR REPLACE INTO kv VALUES(?1,?2,?3)",
    [ITEM_DELETE] = "DELETE FROM kv WHERE key=?1",
    [ITEM_ALL] = "SELECT key,value,position FROM kv",
    [LOG_PUT] = "INSERT INTO log VALUES(?1,?2,?3,?4,?5,?6,?7)",
    [LOG_DELETE] = "DELETE FROM log WHERE position=?1",
    [LOG_AT] = "SELECT epoch,key,value,old_value,old_position FROM log WHERE position=?1",
    [LOG_ID] = "SELECT position FROM log WHERE id=?1",
    [LOG_AFTER] = "SELECT position,epoch,id,key,value FROM log WHERE position>?1"
                  " ORDER BY position LIMIT ?2",
    [LOG_LAST] = "SELECT position,epoch FROM log ORDER BY position DESC LIMIT 1",
    [LOG_COUNT] = "SELECT count(*) FROM log",
    [SIZE] = "SELECT page_count*page_size FROM pragma_page_count,pragma_page_size",
};

struct kv {
    sqlite3 *db;
    sqlite3_stmt *statements[STATEMENTS];
    uint64_t position, epoch, running; /* as of the last commit, or of the open transaction */
};

/* --- SQLite, shorter --- */

static sqlite3_stmt *use(struct kv *s, enum statement which)
{
    (void)sqlite3_reset(s->statements[which]);
    return s->statements[which];
}

static bool bind_u64(sqlite3_stmt *q, int at, uint64_t v)
{
    return sqlite3_bind_int64(q, at, (sqlite3_int64)v) == SQLITE_OK;
}

/* Borrows the text until the statement is reset; NULL is NULL. */
static bool bind_text(sqlite3_stmt *q, int at, const char *v)
{
    return sqlite3_bind_text(q, at, v, -1, SQLITE_STATIC) == SQLITE_OK;
}

static bool done(sqlite3_stmt *q)
{
    bool ok = sqlite3_step(q) == SQLITE_DONE;
    (void)sqlite3_reset(q);
    return ok;
}

static uint64_t column_u64(sqlite3_stmt *q, int at)
{
    return (uint64_t)sqlite3_column_int64(q, at);
}

static const char *column_text(sqlite3_stmt *q, int at)
{
    return (const char *)sqlite3_column_text(q, at);
}

static uint64_t digest(const char *key, const char *value, uint64_t position)
{
    XXH64_hash_t h = XXH3_64bits_withSeed(key, strlen(key), position);
    return XXH3_64bits_withSeed(value, strlen(value), h);
}

/* --- opening --- */

static bool load(struct kv *s, uint64_t copy)
{
    if (sqlite3_exec(s->db, schema, NULL, NULL, NULL) != SQLITE_OK) {
        return false;
    }
    for (unsigned i = 0; i < STATEMENTS; i++) {
        if (sqlite3_prepare_v2(s->db, texts[i], -1, &s->statements[i], NULL) != SQLITE_OK) {
            return false;
        }
    }
    sqlite3_stmt *q = use(s, META_NEW);
    if (!bind_u64(q, 1, copy) || !done(q)) {
        return false;
    }
    q = use(s, META_GET);
    bool ok = sqlite3_step(q) == SQLITE_ROW && column_u64(q, 0) == copy;
    s->running = column_u64(q, 1);
    (void)sqlite3_reset(q);
    q = use(s, LOG_LAST);
    if (sqlite3_step(q) == SQLITE_ROW) {
        s->position = column_u64(q, 0);
        s->epoch = column_u64(q, 1);
    }
    (void)sqlite3_reset(q);
    return ok;
}

struct kv *kv_open(const char *path, uint64_t copy)
{
    struct kv *s = calloc(1, sizeof *s);
    if (s != NULL && (sqlite3_open(path, &s->db) != SQLITE_OK || !load(s, copy))) {
        kv_close(s);
        return NULL;
    }
    return s;
}

void kv_close(struct kv *s)
{
    if (s != NULL) {
        for (unsigned i = 0; i < STATEMENTS; i++) {
            (void)sqlite3_finalize(s->statements[i]);
        }
        (void)sqlite3_close(s->db);
        free(s);
    }
}

int64_t kv_delete(const char *path)
{
    static const char *const ends[] = {"", "-wal", "-shm"};
    int64_t bytes = 0;
    for (unsigned i = 0; i < 3; i++) {
        char file[4096];
        struct stat st;
        (void)snprintf(file, sizeof file, "%s%s", path, ends[i]);
        if (stat(file, &st) == 0) {
            bytes += st.st_size;
            if (unlink(file) != 0) {
                return -1;
            }
        }
    }
    return bytes;
}

uint64_t kv_position(const struct kv *s)
{
    return s->position;
}

uint64_t kv_epoch(const struct kv *s)
{
    return s->epoch;
}

uint64_t kv_running(const struct kv *s)
{
    return s->running;
}

uint64_t kv_bytes(struct kv *s)
{
    sqlite3_stmt *q = use(s, SIZE);
    uint64_t bytes = sqlite3_step(q) == SQLITE_ROW ? column_u64(q, 0) : 0;
    (void)sqlite3_reset(q);
    return bytes;
}

/* --- changing, inside a transaction --- */

static bool log_it(struct kv *s, const struct change *c, const char *old_value, uint64_t old)
{
    sqlite3_stmt *q = use(s, LOG_PUT);
    return bind_u64(q, 1, c->position) && bind_u64(q, 2, c->epoch) && bind_text(q, 3, c->id) &&
           bind_text(q, 4, c->key) && bind_text(q, 5, c->value) && bind_text(q, 6, old_value) &&
           bind_u64(q, 7, old) && done(q);
}

static bool put_item(struct kv *s, const char *key, const char *value, uint64_t position)
{
    sqlite3_stmt *q = use(s, ITEM_PUT);
    s->running += digest(key, value, position);
    return bind_text(q, 1, key) && bind_text(q, 2, value) && bind_u64(q, 3, position) && done(q);
}

static bool drop_item(struct kv *s, const char *key)
{
    sqlite3_stmt *q = use(s, ITEM_DELETE);
    return bind_text(q, 1, key) && done(q);
}

static bool add(struct kv *s, const struct change *c)
{
    sqlite3_stmt *old = use(s, ITEM_GET);
    int step = bind_text(old, 1, c->key) ? sqlite3_step(old) : SQLITE_ERROR;
    bool ok;
    if (step == SQLITE_ROW) {
        const char *value = column_text(old, 0);
        uint64_t position = column_u64(old, 1);
        s->running -= digest(c->key, value, position);
        ok = log_it(s, c, value, position);
    } else {
        ok = step == SQLITE_DONE && log_it(s, c, NULL, 0);
    }
    (void)sqlite3_reset(old);
    ok = ok && put_item(s, c->key, c->value, c->position);
    s->position = c->position;
    s->epoch = c->epoch;
    return ok;
}

/* Takes the last change back. */
static bool undo(struct kv *s)
{
    sqlite3_stmt *log = use(s, LOG_AT), *gone = use(s, LOG_DELETE);
    if (!bind_u64(log, 1, s->position) || sqlite3_step(log) != SQLITE_ROW) {
        return false;
    }
    const char *key = column_text(log, 1), *old_value = column_text(log, 3);
    uint64_t old_position = column_u64(log, 4), before = 0;
    s->running -= digest(key, column_text(log, 2), s->position);
    bool ok = old_value != NULL ? put_item(s, key, old_value, old_position) : drop_item(s, key);
    (void)sqlite3_reset(log);
    ok = ok && bind_u64(gone, 1, s->position) && done(gone);
    s->position--;
    ok = ok && kv_epoch_at(s, s->position, &before);
    s->epoch = before;
    return ok;
}

static bool undo_after(struct kv *s, uint64_t position)
{
    bool ok = true;
    while (ok && s->position > position) {
        ok = undo(s);
    }
    return ok;
}

/* Commits when `ok`; else nothing of the transaction stays, and `s` is as it was `before`. */
static bool finish(struct kv *s, const struct kv *before, bool ok)
{
    sqlite3_stmt *q = use(s, META_PUT);
    ok = ok && bind_u64(q, 1, s->running) && done(q) && done(use(s, COMMIT));
    if (!ok) {
        (void)done(use(s, ROLLBACK));
        *s = *before;
    }
    return ok;
}

enum kv_result kv_put(struct kv *s,
                      uint64_t epoch,
                      const char *id,
                      const char *key,
                      const char *value,
                      uint64_t *ret_position)
{
    const struct kv before = *s;
    sqlite3_stmt *q = use(s, LOG_ID);
    int step = bind_text(q, 1, id) ? sqlite3_step(q) : SQLITE_ERROR;
    *ret_position = step == SQLITE_ROW ? column_u64(q, 0) : s->position + 1;
    (void)sqlite3_reset(q);
    if (step != SQLITE_DONE) {
        return step == SQLITE_ROW ? KV_REPEATED : KV_IO;
    }
    const struct change c = {*ret_position, epoch, id, key, value};
    bool ok = done(use(s, BEGIN)) && add(s, &c);
    return finish(s, &before, ok) ? KV_OK : KV_IO;
}

/* One of the primary's changes: there already, or in the place of what is there, or new. */
static bool follow_one(struct kv *s, const struct change *c)
{
    uint64_t epoch = 0;
    if (c->position <= s->position) {
        if (!kv_epoch_at(s, c->position, &epoch)) {
            return false;
        }
        if (epoch == c->epoch) {
            return true;
        }
        if (!undo_after(s, c->position - 1)) {
            return false;
        }
    }
    return c->position == s->position + 1 && add(s, c);
}

/* Entries of earlier epochs past the start of this one are not in the primary's log. */
static bool cut(struct kv *s, const struct kv_batch *b)
{
    bool ok = true;
    while (ok && s->position > b->start && s->epoch < b->epoch) {
        ok = undo(s);
    }
    return ok;
}

enum kv_result kv_follow(struct kv *s, const struct kv_batch *b, uint64_t *ret_position)
{
    const struct kv before = *s;
    uint64_t epoch = 0;
    bool ok = done(use(s, BEGIN)) && cut(s, b);
    bool elsewhere = b->after > s->position;
    if (ok && !elsewhere) {
        ok = kv_epoch_at(s, b->after, &epoch);
        elsewhere = epoch != b->after_epoch;
        if (ok && elsewhere) {
            ok = undo_after(s, b->after - 1); /* entry 0 is the same everywhere */
        }
    }
    for (unsigned i = 0; ok && !elsewhere && i < b->count; i++) {
        ok = follow_one(s, &b->changes[i]);
    }
    *ret_position = elsewhere ? s->position : b->after + b->count;
    if (!finish(s, &before, ok)) {
        return KV_IO;
    }
    return elsewhere ? KV_ELSEWHERE : KV_OK;
}

/* --- reading --- */

bool kv_epoch_at(struct kv *s, uint64_t position, uint64_t *ret_epoch)
{
    sqlite3_stmt *q = use(s, LOG_AT);
    *ret_epoch = 0;
    if (position == 0) {
        return true;
    }
    bool ok = bind_u64(q, 1, position) && sqlite3_step(q) == SQLITE_ROW;
    *ret_epoch = ok ? column_u64(q, 0) : 0;
    (void)sqlite3_reset(q);
    return ok;
}

bool kv_changes(struct kv *s,
                uint64_t after,
                unsigned max,
                void (*fn)(void *arg, const struct change *c),
                void *arg)
{
    sqlite3_stmt *q = use(s, LOG_AFTER);
    int step = bind_u64(q, 1, after) && bind_u64(q, 2, max) ? SQLITE_ROW : SQLITE_ERROR;
    while (step == SQLITE_ROW && (step = sqlite3_step(q)) == SQLITE_ROW) {
        const struct change c = {column_u64(q, 0), column_u64(q, 1), column_text(q, 2),
                                 column_text(q, 3), column_text(q, 4)};
        fn(arg, &c);
    }
    (void)sqlite3_reset(q);
    return step == SQLITE_DONE;
}

char *kv_get(struct kv *s, const char *key, uint64_t *ret_position)
{
    sqlite3_stmt *q = use(s, ITEM_GET);
    char *value = NULL;
    if (bind_text(q, 1, key) && sqlite3_step(q) == SQLITE_ROW) {
        value = strdup(column_text(q, 0));
        *ret_position = column_u64(q, 1);
    }
    (void)sqlite3_reset(q);
    return value;
}

bool kv_sums(struct kv *s, struct kv_sums *ret_sums)
{
    struct kv_sums sums = {.running = s->running};
    sqlite3_stmt *q = use(s, ITEM_ALL);
    int step;
    while ((step = sqlite3_step(q)) == SQLITE_ROW) {
        sums.items++;
        sums.sum += digest(column_text(q, 0), column_text(q, 1), column_u64(q, 2));
    }
    (void)sqlite3_reset(q);
    q = use(s, LOG_COUNT);
    bool ok = step == SQLITE_DONE && sqlite3_step(q) == SQLITE_ROW;
    sums.mutations = ok ? column_u64(q, 0) : 0;
    (void)sqlite3_reset(q);
    *ret_sums = sums;
    return ok;
}
