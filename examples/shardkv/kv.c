/* SPDX-License-Identifier: Apache-2.0 */
/* The file: opened, asked, deleted. */
#include "examples/shardkv/kv_inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

static const char schema[] =
    "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; BEGIN IMMEDIATE;"
    "CREATE TABLE IF NOT EXISTS meta(one INTEGER PRIMARY KEY CHECK(one=1), copy INTEGER NOT NULL,"
    " start TEXT NOT NULL, end TEXT, running INTEGER NOT NULL, base INTEGER NOT NULL,"
    " base_epoch INTEGER NOT NULL, origin TEXT NOT NULL, install TEXT NOT NULL,"
    " chunk INTEGER NOT NULL);"
    "CREATE TABLE IF NOT EXISTS kv(key TEXT PRIMARY KEY, value TEXT NOT NULL,"
    " position INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS log(position INTEGER PRIMARY KEY, epoch INTEGER NOT NULL,"
    " id TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, old_value TEXT,"
    " old_position INTEGER);"
    "CREATE TABLE IF NOT EXISTS ids(id TEXT PRIMARY KEY, position INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE INDEX IF NOT EXISTS ids_position ON ids(position); COMMIT;";

static const char *const texts[STATEMENTS] = {
    [BEGIN] = "BEGIN IMMEDIATE",
    [COMMIT] = "COMMIT",
    [ROLLBACK] = "ROLLBACK",
    [META_NEW] = "INSERT OR IGNORE INTO meta VALUES(1,?1,?2,?3,0,0,0,'','',0)",
    [META_GET] = "SELECT copy,running,base,base_epoch,origin,install,chunk FROM meta"
                 " WHERE copy=?1 AND start=?2 AND end IS ?3",
    [META_PUT] = "UPDATE meta SET running=?1,base=?2,base_epoch=?3,origin=?4,install=?5,chunk=?6",
    [ITEM_GET] = "SELECT value,position FROM kv WHERE key=?1",
    [ITEM_PUT] = "INSERT OR REPLACE INTO kv VALUES(?1,?2,?3)",
    [ITEM_DELETE] = "DELETE FROM kv WHERE key=?1",
    [ITEM_SOME] = "SELECT key,value,position FROM kv WHERE key>=?1 AND (?2 IS NULL OR key<?2)",
    [ITEM_COUNT] = "SELECT count(*) FROM kv",
    [LOG_PUT] = "INSERT INTO log VALUES(?1,?2,?3,?4,?5,?6,?7)",
    [LOG_DELETE] = "DELETE FROM log WHERE position=?1",
    [LOG_TRIM] = "DELETE FROM log WHERE position<=?1",
    [LOG_AT] = "SELECT epoch,key,value,old_value,old_position,id FROM log WHERE position=?1",
    [LOG_AFTER] = "SELECT position,epoch,id,key,value FROM log WHERE position>?1"
                  " ORDER BY position LIMIT ?2",
    [LOG_LAST] = "SELECT position,epoch FROM log ORDER BY position DESC LIMIT 1",
    [LOG_COUNT] = "SELECT count(*) FROM log",
    [LOG_LATE] = "SELECT count(*) FROM log WHERE position>?1 AND epoch<=?2",
    [ID_GET] = "SELECT position FROM ids WHERE id=?1",
    [ID_PUT] = "INSERT INTO ids VALUES(?1,?2)",
    [ID_DELETE] = "DELETE FROM ids WHERE id=?1",
    [ID_TRIM] = "DELETE FROM ids WHERE position<=?1",
    [SIZE] = "SELECT page_count*page_size FROM pragma_page_count,pragma_page_size",
};

/* --- SQLite, shorter --- */

sqlite3_stmt *kv_use(struct kv *s, enum statement which)
{
    (void)sqlite3_reset(s->statements[which]);
    return s->statements[which];
}

bool kv_bind(sqlite3_stmt *q, int at, uint64_t v)
{
    return sqlite3_bind_int64(q, at, (sqlite3_int64)v) == SQLITE_OK;
}

bool kv_bind_text(sqlite3_stmt *q, int at, const char *v)
{
    return sqlite3_bind_text(q, at, v, -1, SQLITE_STATIC) == SQLITE_OK;
}

bool kv_done(sqlite3_stmt *q)
{
    bool ok = sqlite3_step(q) == SQLITE_DONE;
    (void)sqlite3_reset(q);
    return ok;
}

uint64_t kv_column(sqlite3_stmt *q, int at)
{
    return (uint64_t)sqlite3_column_int64(q, at);
}

const char *kv_text(sqlite3_stmt *q, int at)
{
    return (const char *)sqlite3_column_text(q, at);
}

uint64_t kv_digest(const char *key, const char *value, uint64_t position)
{
    XXH64_hash_t h = XXH3_64bits_withSeed(key, strlen(key), position);
    return XXH3_64bits_withSeed(value, strlen(value), h);
}

/* --- opening --- */

static bool read_meta(struct kv *s, const struct kv_spec *spec)
{
    sqlite3_stmt *q = kv_use(s, META_NEW);
    if (!kv_bind(q, 1, spec->copy) || !kv_bind_text(q, 2, spec->start) ||
        !kv_bind_text(q, 3, spec->end) || !kv_done(q)) {
        return false;
    }
    q = kv_use(s, META_GET);
    bool ok = kv_bind(q, 1, spec->copy) && kv_bind_text(q, 2, spec->start) &&
              kv_bind_text(q, 3, spec->end) && sqlite3_step(q) == SQLITE_ROW;
    if (ok) {
        s->running = kv_column(q, 1);
        s->position = s->base = kv_column(q, 2);
        s->epoch = s->base_epoch = kv_column(q, 3);
        (void)snprintf(s->origin, sizeof s->origin, "%s", kv_text(q, 4));
        (void)snprintf(s->install, sizeof s->install, "%s", kv_text(q, 5));
        s->chunk = kv_column(q, 6);
    }
    (void)sqlite3_reset(q);
    q = kv_use(s, LOG_LAST);
    if (ok && sqlite3_step(q) == SQLITE_ROW) {
        s->position = kv_column(q, 0);
        s->epoch = kv_column(q, 1);
    }
    (void)sqlite3_reset(q);
    return ok;
}

static bool load(struct kv *s, const struct kv_spec *spec)
{
    s->keep = KV_LOG_KEEP;
    s->pinned = UINT64_MAX;
    s->start = strdup(spec->start);
    s->end = spec->end != NULL ? strdup(spec->end) : NULL;
    bool ok = s->start != NULL && (spec->end == NULL || s->end != NULL) &&
              sqlite3_exec(s->db, schema, NULL, NULL, NULL) == SQLITE_OK;
    for (unsigned i = 0; ok && i < STATEMENTS; i++) {
        ok = sqlite3_prepare_v2(s->db, texts[i], -1, &s->statements[i], NULL) == SQLITE_OK;
    }
    return ok && read_meta(s, spec);
}

struct kv *kv_open(const char *path, const struct kv_spec *spec)
{
    struct kv *s = calloc(1, sizeof *s);
    if (s != NULL && (sqlite3_open(path, &s->db) != SQLITE_OK ||
                      sqlite3_busy_timeout(s->db, KV_BUSY_MS) != SQLITE_OK || !load(s, spec))) {
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
        free(s->start);
        free(s->end);
        free(s);
    }
}

int64_t kv_delete(const char *path)
{
    static const char *const ends[] = {"", "-wal", "-shm", "-journal"};
    int64_t bytes = 0;
    for (unsigned i = 0; i < sizeof ends / sizeof ends[0]; i++) {
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

/* --- asking --- */

void kv_keep(struct kv *s, uint64_t entries, uint64_t pinned)
{
    s->keep = entries;
    s->pinned = pinned;
}

uint64_t kv_position(const struct kv *s)
{
    return s->position;
}

uint64_t kv_epoch(const struct kv *s)
{
    return s->epoch;
}

uint64_t kv_base(const struct kv *s)
{
    return s->base;
}

const char *kv_origin(const struct kv *s)
{
    return s->origin;
}

uint64_t kv_running(const struct kv *s)
{
    return s->running;
}

bool kv_incomplete(const struct kv *s)
{
    return s->install[0] != '\0';
}

static uint64_t one_number(struct kv *s, enum statement which)
{
    sqlite3_stmt *q = kv_use(s, which);
    uint64_t number = sqlite3_step(q) == SQLITE_ROW ? kv_column(q, 0) : 0;
    (void)sqlite3_reset(q);
    return number;
}

uint64_t kv_bytes(struct kv *s)
{
    return one_number(s, SIZE);
}

uint64_t kv_items(struct kv *s)
{
    return one_number(s, ITEM_COUNT);
}

char *kv_bound(const void *bytes, size_t len)
{
    size_t text = len > 0 ? strnlen(bytes, len) : 0;
    char *bound = malloc(text + 2);
    if (bound == NULL) {
        abort();
    }
    memcpy(bound, text > 0 ? bytes : "", text);
    bound[text] = text < len ? 1 : 0;
    bound[text + 1] = '\0';
    return bound;
}

bool kv_in_range(const struct kv *s, const char *key)
{
    return strcmp(key, s->start) >= 0 && (s->end == NULL || strcmp(key, s->end) < 0);
}

bool kv_epoch_at(struct kv *s, uint64_t position, uint64_t *ret_epoch)
{
    sqlite3_stmt *q = kv_use(s, LOG_AT);
    *ret_epoch = 0;
    if (position == s->base) {
        *ret_epoch = s->base_epoch;
        return true;
    }
    bool ok = kv_bind(q, 1, position) && sqlite3_step(q) == SQLITE_ROW;
    *ret_epoch = ok ? kv_column(q, 0) : 0;
    (void)sqlite3_reset(q);
    return ok;
}

bool kv_changes(struct kv *s,
                uint64_t after,
                unsigned max,
                void (*fn)(void *arg, const struct change *c),
                void *arg)
{
    sqlite3_stmt *q = kv_use(s, LOG_AFTER);
    int step = kv_bind(q, 1, after) && kv_bind(q, 2, max) ? SQLITE_ROW : SQLITE_ERROR;
    while (step == SQLITE_ROW && (step = sqlite3_step(q)) == SQLITE_ROW) {
        const struct change c = {kv_column(q, 0), kv_column(q, 1), kv_text(q, 2), kv_text(q, 3),
                                 kv_text(q, 4)};
        fn(arg, &c);
    }
    (void)sqlite3_reset(q);
    return step == SQLITE_DONE;
}

uint64_t kv_late(struct kv *s, uint64_t epoch, uint64_t position)
{
    sqlite3_stmt *q = kv_use(s, LOG_LATE);
    bool ok = kv_bind(q, 1, position) && kv_bind(q, 2, epoch) && sqlite3_step(q) == SQLITE_ROW;
    uint64_t count = ok ? kv_column(q, 0) : 0;
    (void)sqlite3_reset(q);
    return count;
}

char *kv_get(struct kv *s, const char *key, uint64_t *ret_position)
{
    sqlite3_stmt *q = kv_use(s, ITEM_GET);
    char *value = NULL;
    if (kv_bind_text(q, 1, key) && sqlite3_step(q) == SQLITE_ROW) {
        value = strdup(kv_text(q, 0));
        *ret_position = kv_column(q, 1);
    }
    (void)sqlite3_reset(q);
    return value;
}

bool kv_sums(struct kv *s, struct kv_sums *ret_sums)
{
    return kv_sums_of(s, "", NULL, ret_sums);
}

bool kv_sums_of(struct kv *s, const char *start, const char *end, struct kv_sums *ret_sums)
{
    struct kv_sums sums = {.running = s->running};
    sqlite3_stmt *q = kv_use(s, ITEM_SOME);
    int step = kv_bind_text(q, 1, start) && kv_bind_text(q, 2, end) ? SQLITE_ROW : SQLITE_ERROR;
    if (step == SQLITE_ERROR) {
        return false;
    }
    while ((step = sqlite3_step(q)) == SQLITE_ROW) {
        sums.items++;
        sums.sum += kv_digest(kv_text(q, 0), kv_text(q, 1), kv_column(q, 2));
    }
    (void)sqlite3_reset(q);
    q = kv_use(s, LOG_COUNT);
    bool ok = step == SQLITE_DONE && sqlite3_step(q) == SQLITE_ROW;
    sums.mutations = ok ? s->base + kv_column(q, 0) : 0;
    (void)sqlite3_reset(q);
    *ret_sums = sums;
    return ok;
}
