/* SPDX-License-Identifier: Apache-2.0 */
/* Files made of other files: snapshots, what is installed from one, and the copies of partitions
 * that came out of a split or a merge. A file that is made gets its name when it is whole and on
 * the disk. */
#include "examples/shardkv/kv_inside.h"

#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

enum { PATH_SIZE = 1280, SQL_SIZE = 1024 };

/* --- files --- */

static bool sync_path(const char *path, int flags)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | flags);
    bool ok = fd >= 0 && fsync(fd) == 0;
    if (fd >= 0) {
        (void)close(fd);
    }
    return ok;
}

static bool give_name(const char *from, const char *to)
{
    char folder[PATH_SIZE], log[PATH_SIZE];
    (void)snprintf(folder, sizeof folder, "%s", to);
    (void)snprintf(log, sizeof log, "%s-wal", from);
    return access(log, F_OK) != 0 && sync_path(from, 0) && rename(from, to) == 0 &&
           sync_path(dirname(folder), O_DIRECTORY);
}

/* Opens `main` with `other` attached as it; NULL when it can't. */
static sqlite3 *open_two(const char *path, int flags, const char *other)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *q = NULL;
    bool ok = sqlite3_open_v2(path, &db, flags, NULL) == SQLITE_OK &&
              sqlite3_busy_timeout(db, KV_BUSY_MS) == SQLITE_OK &&
              sqlite3_prepare_v2(db, "ATTACH ?1 AS other", -1, &q, NULL) == SQLITE_OK &&
              kv_bind_text(q, 1, other) && sqlite3_step(q) == SQLITE_DONE;
    (void)sqlite3_finalize(q);
    if (!ok) {
        (void)sqlite3_close(db);
        return NULL;
    }
    return db;
}

/* Runs one statement with a few texts bound; NULL ends them. */
static bool run(sqlite3 *db, const char *sql, const char *const *values, int count)
{
    sqlite3_stmt *q = NULL;
    bool ok = sqlite3_prepare_v2(db, sql, -1, &q, NULL) == SQLITE_OK;
    for (int i = 0; ok && i < count; i++) {
        ok = kv_bind_text(q, i + 1, values[i]);
    }
    ok = ok && sqlite3_step(q) == SQLITE_DONE;
    (void)sqlite3_finalize(q);
    return ok;
}

/* --- snapshots --- */

/* Its own sum: of a part it is not the store's. */
static bool sum_items(sqlite3 *db)
{
    sqlite3_stmt *q = NULL, *put = NULL;
    uint64_t sum = 0;
    bool ok =
        sqlite3_prepare_v2(db, "SELECT key,value,position FROM other.item WHERE value IS NOT NULL",
                           -1, &q, NULL) == SQLITE_OK &&
        sqlite3_prepare_v2(db, "UPDATE other.info SET running=?1", -1, &put, NULL) == SQLITE_OK;
    int step = SQLITE_DONE;
    while (ok && (step = sqlite3_step(q)) == SQLITE_ROW) {
        sum += kv_digest(kv_text(q, 0), kv_text(q, 1), kv_column(q, 2));
    }
    ok = ok && step == SQLITE_DONE && kv_bind(put, 1, sum) && sqlite3_step(put) == SQLITE_DONE;
    (void)sqlite3_finalize(q);
    (void)sqlite3_finalize(put);
    return ok;
}

bool kv_snapshot_make(const struct kv_piece *from, const char *to, const char *name)
{
    static const char make[] =
        "PRAGMA other.journal_mode=OFF; PRAGMA other.synchronous=OFF;"
        "BEGIN; CREATE TABLE other.info(position INTEGER, epoch INTEGER, running INTEGER,"
        " origin TEXT, bytes INTEGER, name TEXT);"
        "CREATE TABLE other.item(n INTEGER PRIMARY KEY, position INTEGER, key TEXT, value TEXT);"
        "INSERT INTO other.info SELECT base,base_epoch,running,origin,"
        " (SELECT page_count*page_size FROM pragma_page_count,pragma_page_size),''"
        " FROM main.meta WHERE install='';"
        "UPDATE other.info SET position=l.position,epoch=l.epoch FROM"
        " (SELECT position,epoch FROM main.log ORDER BY position DESC LIMIT 1) AS l;";
    static const char items[] =
        "INSERT INTO other.item(position,key,value) SELECT position,key,value FROM main.kv"
        " WHERE key>=?1 AND (?2 IS NULL OR key<?2) ORDER BY key";
    static const char ids[] =
        "INSERT INTO other.item(position,key) SELECT position,id FROM main.ids ORDER BY position";
    const char *const range[] = {from->start, from->end};
    char whole[PATH_SIZE];
    (void)snprintf(whole, sizeof whole, "%s.new", to);
    if (kv_delete(whole) < 0) {
        return false;
    }
    sqlite3 *db = open_two(from->path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, whole);
    bool ok = db != NULL && sqlite3_exec(db, make, NULL, NULL, NULL) == SQLITE_OK &&
              run(db, items, range, 2) && run(db, ids, NULL, 0) && sum_items(db) &&
              run(db, "UPDATE other.info SET name=?1", &name, 1) && run(db, "COMMIT", NULL, 0);
    (void)sqlite3_close(db);
    return ok && give_name(whole, to);
}

static sqlite3 *open_to_read(const char *path)
{
    sqlite3 *db = NULL;
    if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL) != SQLITE_OK ||
        sqlite3_busy_timeout(db, KV_BUSY_MS) != SQLITE_OK) {
        (void)sqlite3_close(db);
        return NULL;
    }
    return db;
}

bool kv_snapshot_read(const char *path, struct kv_snapshot *ret)
{
    sqlite3 *db = open_to_read(path);
    sqlite3_stmt *q = NULL;
    bool ok = db != NULL &&
              sqlite3_prepare_v2(db,
                                 "SELECT position,epoch,running,origin,bytes,name,"
                                 "(SELECT count(value) FROM item),(SELECT count(*) FROM item)"
                                 " FROM info",
                                 -1, &q, NULL) == SQLITE_OK &&
              sqlite3_step(q) == SQLITE_ROW;
    if (ok) {
        *ret = (struct kv_snapshot){.position = kv_column(q, 0),
                                    .epoch = kv_column(q, 1),
                                    .running = kv_column(q, 2),
                                    .bytes = kv_column(q, 4),
                                    .items = kv_column(q, 6),
                                    .ids = kv_column(q, 7) - kv_column(q, 6)};
        (void)snprintf(ret->origin, sizeof ret->origin, "%s", kv_text(q, 3));
        (void)snprintf(ret->name, sizeof ret->name, "%s", kv_text(q, 5));
    }
    (void)sqlite3_finalize(q);
    (void)sqlite3_close(db);
    return ok;
}

bool kv_snapshot_chunk(const char *path,
                       uint64_t chunk,
                       void (*fn)(void *arg, const struct kv_row *row),
                       void *arg)
{
    sqlite3 *db = open_to_read(path);
    sqlite3_stmt *q = NULL;
    bool ok = db != NULL &&
              sqlite3_prepare_v2(db,
                                 "SELECT position,key,value FROM item WHERE n>?1 AND n<=?2"
                                 " ORDER BY n",
                                 -1, &q, NULL) == SQLITE_OK &&
              kv_bind(q, 1, chunk * KV_CHUNK) && kv_bind(q, 2, (chunk + 1) * KV_CHUNK);
    int step = SQLITE_DONE;
    while (ok && (step = sqlite3_step(q)) == SQLITE_ROW) {
        const struct kv_row row = {kv_column(q, 0), kv_text(q, 1), kv_text(q, 2)};
        fn(arg, &row);
    }
    (void)sqlite3_finalize(q);
    (void)sqlite3_close(db);
    return ok && step == SQLITE_DONE;
}

/* --- installing --- */

uint64_t kv_chunks(const struct kv_snapshot *of)
{
    uint64_t rows = of->items + of->ids;
    return rows > 0 ? (rows + KV_CHUNK - 1) / KV_CHUNK : 1;
}

static bool forget_all(struct kv *s)
{
    s->position = s->epoch = s->running = s->base = s->base_epoch = s->chunk = 0;
    s->origin[0] = '\0';
    return sqlite3_exec(s->db, "DELETE FROM kv; DELETE FROM log; DELETE FROM ids;", NULL, NULL,
                        NULL) == SQLITE_OK;
}

bool kv_lose(struct kv *s)
{
    const struct kv before = *s;
    bool ok = kv_done(kv_use(s, BEGIN)) && forget_all(s);
    (void)snprintf(s->install, sizeof s->install, "?");
    return kv_finish(s, &before, ok);
}

static bool has_installed(const struct kv *s, const struct kv_snapshot *of)
{
    return !kv_incomplete(s) && s->position >= of->position && s->base >= of->position &&
           strcmp(s->origin, of->origin) == 0;
}

uint64_t kv_install_next(struct kv *s, const struct kv_snapshot *of)
{
    return has_installed(s, of) ? kv_chunks(of) : strcmp(s->install, of->name) == 0 ? s->chunk : 0;
}

static bool put_row(struct kv *s, const struct kv_row *row)
{
    sqlite3_stmt *id = kv_use(s, ID_PUT);
    if (row->value != NULL) {
        return !kv_in_range(s, row->key) || kv_put_item(s, row->key, row->value, row->position);
    }
    return kv_bind_text(id, 1, row->key) && kv_bind(id, 2, row->position) && kv_done(id);
}

static void become_whole(struct kv *s, const struct kv_snapshot *of)
{
    s->install[0] = '\0';
    s->position = s->base = of->position;
    s->epoch = s->base_epoch = of->epoch;
    (void)snprintf(s->origin, sizeof s->origin, "%s", of->origin);
}

enum kv_result kv_install(struct kv *s, const struct kv_chunk *c)
{
    const struct kv before = *s;
    const struct kv_snapshot *of = c->of;
    if (c->number != kv_install_next(s, of) || c->number >= kv_chunks(of) || of->name[0] == '\0') {
        return KV_ELSEWHERE;
    }
    bool ok = kv_done(kv_use(s, BEGIN)) && (c->number > 0 || forget_all(s));
    for (size_t i = 0; ok && i < c->count; i++) {
        ok = put_row(s, &c->rows[i]);
    }
    bool last = c->number + 1 == kv_chunks(of), gap = last && s->running != of->running;
    (void)snprintf(s->install, sizeof s->install, "%s", of->name);
    s->chunk = last ? 0 : c->number + 1;
    if (last && !gap) {
        become_whole(s, of);
    }
    if (!kv_finish(s, &before, ok)) {
        return KV_IO;
    }
    return gap ? KV_GAP : KV_OK;
}

/* --- children --- */

enum kv_result kv_describe(const char *path, uint64_t *ret_copy, char **ret_start, char **ret_end)
{
    sqlite3 *db = open_to_read(path);
    sqlite3_stmt *q = NULL;
    bool ok = db != NULL &&
              sqlite3_prepare_v2(db, "SELECT copy,start,end,install='' FROM meta", -1, &q, NULL) ==
                  SQLITE_OK &&
              sqlite3_step(q) == SQLITE_ROW;
    bool whole = ok && kv_column(q, 3) != 0;
    if (ok) {
        *ret_copy = kv_column(q, 0);
        *ret_start = strdup(kv_text(q, 1));
        *ret_end = kv_text(q, 2) != NULL ? strdup(kv_text(q, 2)) : NULL;
        ok = *ret_start != NULL && (kv_text(q, 2) == NULL || *ret_end != NULL);
    }
    (void)sqlite3_finalize(q);
    (void)sqlite3_close(db);
    return !ok ? KV_IO : whole ? KV_OK : KV_GAP;
}

/* What of a file is in the piece; of the log, which has the past of all, only for a single one. */
static bool take_piece(const char *path, const struct kv_piece *piece, bool with_log)
{
    static const char items[] = "INSERT INTO main.kv SELECT * FROM other.kv WHERE key>=?1"
                                " AND (?2 IS NULL OR key<?2)";
    static const char log[] =
        "INSERT INTO main.log SELECT * FROM other.log;"
        "UPDATE main.meta SET base=o.base,base_epoch=o.base_epoch,origin=o.origin"
        " FROM other.meta AS o;";
    const char *const range[] = {piece->start, piece->end};
    sqlite3 *db = open_two(path, SQLITE_OPEN_READWRITE, piece->path);
    bool ok = db != NULL && run(db, "BEGIN", NULL, 0) && run(db, items, range, 2) &&
              run(db, "INSERT OR IGNORE INTO main.ids SELECT * FROM other.ids", NULL, 0) &&
              (!with_log || sqlite3_exec(db, log, NULL, NULL, NULL) == SQLITE_OK) &&
              run(db, "COMMIT", NULL, 0);
    (void)sqlite3_close(db);
    return ok;
}

/* Where a file that goes into a merged one has come to: its part of the new origin. */
static bool add_origin(const struct kv_piece *piece, XXH3_state_t *origin, struct kv *s)
{
    uint64_t copy;
    char *start = NULL, *end = NULL, text[128];
    struct kv *from = NULL;
    if (kv_describe(piece->path, &copy, &start, &end) == KV_OK) {
        const struct kv_spec spec = {copy, start, end};
        from = kv_open(piece->path, &spec);
    }
    if (from != NULL) {
        (void)snprintf(text, sizeof text, "%s %" PRIu64 " %" PRIu64 "\n", from->origin,
                       from->position, from->epoch);
        (void)XXH3_64bits_update(origin, text, strlen(text));
        s->base = s->position = from->position > s->position ? from->position : s->position;
        s->base_epoch = s->epoch = from->epoch > s->epoch ? from->epoch : s->epoch;
    }
    kv_close(from);
    free(start);
    free(end);
    return from != NULL;
}

static bool sum_up(struct kv *s, const struct kv_piece *pieces, size_t count)
{
    struct kv_sums sums;
    XXH3_state_t origin;
    bool ok = XXH3_64bits_reset(&origin) == XXH_OK;
    for (size_t i = 0; ok && count > 1 && i < count; i++) {
        ok = add_origin(&pieces[i], &origin, s);
    }
    if (count > 1) {
        (void)snprintf(s->origin, sizeof s->origin, "%016" PRIx64,
                       (uint64_t)XXH3_64bits_digest(&origin));
    }
    ok = ok && kv_sums(s, &sums);
    const struct kv before = *s;
    s->running = ok ? sums.sum : 0;
    return kv_finish(s, &before, ok && kv_done(kv_use(s, BEGIN)));
}

bool kv_derive(const char *path,
               const struct kv_spec *spec,
               const struct kv_piece *pieces,
               size_t count)
{
    char whole[PATH_SIZE];
    (void)snprintf(whole, sizeof whole, "%s.new", path);
    struct kv *s = kv_delete(whole) >= 0 ? kv_open(whole, spec) : NULL;
    bool ok = s != NULL && count > 0;
    kv_close(s);
    for (size_t i = 0; ok && i < count; i++) {
        ok = take_piece(whole, &pieces[i], count == 1);
    }
    s = ok ? kv_open(whole, spec) : NULL;
    ok = s != NULL && sum_up(s, pieces, count);
    kv_close(s);
    return ok && give_name(whole, path);
}
