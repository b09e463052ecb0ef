/* SPDX-License-Identifier: Apache-2.0 */
/* Damage to a good snapshot behind a header that is right for it, so that no checksum hides what
 * reads the image: bytes written over its pages, or values put into its rows through SQL. (Raw
 * bytes as a whole snapshot as well.) Each is judged, and none ends the process. */
#include "base/assert.h"
#include "base/mem.h"
#include "directory/store_internal.h"
#include "tests/fuzz/target.h"
#include "tests/harness/world.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { CHANGES_MAX = 8, VALUE_MAX = 64, TABLES = 10 };

struct base {
    uint8_t *image;
    size_t len;
    uint64_t index;
    struct dir_view_meta meta;
};

static struct base base;

static const char *scratch(const char *name)
{
    static char path[96];
    (void)snprintf(path, sizeof path, "/dev/shm/cadastre-fuzz-%d-%s", (int)getpid(), name);
    return path;
}

/* --- the good one --- */

static void push(struct store *s, struct world *w)
{
    ASSERT(w->result->err.code == ERR_OK);
    base.meta = w->effects->meta;
    store_push(s, w->effects);
    w->effects = NULL;
}

static void populate(struct store *s, struct world *w)
{
    (void)world_node(w, "n1", "h:1");
    push(s, w);
    (void)world_zoned(w, "n2", "a");
    push(s, w);
    w->key = "k1";
    (void)world_range(w, "ks");
    push(s, w);
    (void)world_hash(w, "hs", 3);
    push(s, w);
    (void)world_split(w, world_at(w, "ks", "a")->id, "m");
    push(s, w);
    (void)world_split(w, world_at(w, "ks", "z")->id, "t");
    push(s, w);
    (void)world_merge(w, world_at(w, "ks", "n")->id, world_at(w, "ks", "z")->id);
    push(s, w);
    const struct dir_partition *p = world_at(w, "ks", "a");
    (void)world_move(w, p->id, p->replicas[0].node == 1 ? "n2" : "n1");
    push(s, w);
    (void)world_node(w, "n1", "h:3");
    push(s, w);
}

static void prepare(void)
{
    struct world w;
    struct store *s;
    struct err e;
    struct slice pieces[2];
    const char *path = scratch("base");
    char copy[96];
    (void)snprintf(copy, sizeof copy, "%s", path);
    world_open(&w);
    enum err_code code = store_open(copy, &s, &e);
    ASSERT(code == ERR_OK);
    populate(s, &w);
    base.index = w.index;
    struct store_snapshot *snap = store_snapshot_begin(s, base.index);
    code = store_snapshot_wait(snap, pieces, &e);
    ASSERT(code == ERR_OK);
    base.image = mem_dup(pieces[1].data, pieces[1].len);
    base.len = pieces[1].len;
    base.image[18] = base.image[19] = 1; /* no WAL */
    store_snapshot_end(snap);
    store_close(s);
    store_unlink(copy);
    world_close(&w);
}

/* --- damage --- */

struct input {
    const uint8_t *at;
    size_t left;
};

static uint32_t take(struct input *in, unsigned bytes)
{
    uint32_t v = 0;
    for (; bytes > 0; bytes--) {
        v = v << 8 | (in->left > 0 ? *in->at : 0);
        in->at += in->left > 0;
        in->left -= in->left > 0;
    }
    return v;
}

static struct slice take_bytes(struct input *in)
{
    size_t n = take(in, 1) % VALUE_MAX;
    n = n < in->left ? n : in->left;
    struct slice s = slice_of(in->at, n);
    in->at += n;
    in->left -= n;
    return s;
}

static void overwrite(uint8_t *image, size_t len, struct input *in)
{
    size_t at = take(in, 3) % len;
    struct slice bytes = take_bytes(in);
    size_t n = bytes.len < len - at ? bytes.len : len - at;
    if (n > 0) {
        memcpy(image + at, bytes.data, n);
    }
}

static sqlite3_stmt *prepared(sqlite3 *db, const char *sql)
{
    sqlite3_stmt *st = NULL;
    return sqlite3_prepare_v2(db, sql, -1, &st, NULL) == SQLITE_OK ? st : NULL;
}

/* The name of column `n` of the table, modulo how many it has. */
static bool column_name(sqlite3 *db, const char *table, uint32_t n, char *out, size_t size)
{
    sqlite3_stmt *st = prepared(db, "SELECT name, count(*) OVER () FROM pragma_table_info(?1)");
    bool found = false;
    if (st == NULL) {
        return false;
    }
    (void)sqlite3_bind_text(st, 1, table, -1, SQLITE_STATIC);
    for (uint32_t i = 0; !found && sqlite3_step(st) == SQLITE_ROW; i++) {
        found = i == n % (uint32_t)sqlite3_column_int(st, 1);
        (void)snprintf(out, size, "%s", (const char *)sqlite3_column_text(st, 0));
    }
    (void)sqlite3_finalize(st);
    return found;
}

static void bind_value(sqlite3_stmt *st, uint32_t kind, struct slice v)
{
    sqlite3_int64 n = 0;
    switch (kind % 4) {
    case 0:
        for (size_t i = 0; i < v.len && i < 8; i++) {
            n = (sqlite3_int64)((uint64_t)n << 8 | v.data[i]);
        }
        (void)sqlite3_bind_int64(st, 1, n);
        break;
    case 1:
        (void)sqlite3_bind_text(st, 1, v.len > 0 ? (const char *)v.data : "", (int)v.len,
                                SQLITE_TRANSIENT);
        break;
    case 2:
        (void)sqlite3_bind_blob(st, 1, v.len > 0 ? (const void *)v.data : "", (int)v.len,
                                SQLITE_TRANSIENT);
        break;
    default:
        (void)sqlite3_bind_null(st, 1);
    }
}

/* One value put into one row, or over a part of what is there; or the row removed. */
static void change_row(sqlite3 *db, struct input *in)
{
    static const char *const tables[TABLES][2] = {{"meta", "one"},
                                                  {"partition_versions", "id"},
                                                  {"keyspace_versions", "id"},
                                                  {"nodes", "id"},
                                                  {"node_versions", "id"},
                                                  {"tombstones", "id"},
                                                  {"servers", "id"},
                                                  {"operations", "id"},
                                                  {"dedupe", "arrival"},
                                                  {"partition_versions", "keyspace"}};
    const char *const *table = tables[take(in, 1) % TABLES];
    uint32_t column = take(in, 1), row = take(in, 1) % 16, kind = take(in, 1), at = take(in, 1);
    struct slice value = take_bytes(in);
    char name[64], sql[512];
    if (!column_name(db, table[0], column, name, sizeof name)) {
        return;
    }
    if (kind == 255) {
        (void)snprintf(sql, sizeof sql,
                       "DELETE FROM %s WHERE %s=(SELECT %s FROM %s LIMIT 1 OFFSET %u)", table[0],
                       table[1], table[1], table[0], row);
    } else if (kind >= 128) {
        kind = 2;
        (void)snprintf(sql, sizeof sql,
                       "UPDATE %s SET %s=CAST(substr(CAST(%s AS BLOB),1,%u)||?1||"
                       "substr(CAST(%s AS BLOB),%u) AS BLOB)"
                       " WHERE %s=(SELECT %s FROM %s LIMIT 1 OFFSET %u)",
                       table[0], name, name, at, name, at + (unsigned)value.len + 1, table[1],
                       table[1], table[0], row);
    } else {
        (void)snprintf(
            sql, sizeof sql,
            "UPDATE OR REPLACE %s SET %s=?1 WHERE %s=(SELECT %s FROM %s LIMIT 1 OFFSET %u)",
            table[0], name, table[1], table[1], table[0], row);
    }
    sqlite3_stmt *st = prepared(db, sql);
    if (st != NULL) {
        bind_value(st, kind, value);
        (void)sqlite3_step(st); /* what a constraint refuses is not changed */
        (void)sqlite3_finalize(st);
    }
}

static uint8_t *change_rows(struct input *in, size_t *ret_len)
{
    sqlite3 *db;
    sqlite3_int64 len = 0;
    int rc = sqlite3_open(":memory:", &db);
    ASSERT(rc == SQLITE_OK);
    unsigned char *copy = sqlite3_malloc64(base.len);
    ASSERT(copy != NULL);
    memcpy(copy, base.image, base.len);
    rc = sqlite3_deserialize(db, "main", copy, (sqlite3_int64)base.len, (sqlite3_int64)base.len,
                             SQLITE_DESERIALIZE_FREEONCLOSE | SQLITE_DESERIALIZE_RESIZEABLE);
    ASSERT(rc == SQLITE_OK);
    for (unsigned i = 0; i < CHANGES_MAX && in->left > 0; i++) {
        change_row(db, in);
    }
    unsigned char *bytes = sqlite3_serialize(db, "main", &len, 0);
    ASSERT(bytes != NULL);
    uint8_t *image = mem_dup(bytes, (size_t)len);
    *ret_len = (size_t)len;
    sqlite3_free(bytes);
    (void)sqlite3_close(db);
    return image;
}

/* --- the judgement --- */

static void ignore(void *arg, const char *line)
{
    (void)arg;
    ASSERT(line[0] != '\0');
}

static uint64_t judge(struct slice snapshot)
{
    struct err e;
    uint64_t violations = 0;
    enum err_code code =
        store_check_snapshot(snapshot, scratch("image"), ignore, NULL, &violations, &e);
    ASSERT(code == ERR_OK || code == ERR_IO);
    return code == ERR_OK ? violations : 1;
}

static uint64_t judge_image(const uint8_t *image, size_t len)
{
    uint8_t *whole = mem_alloc(STORE_HEADER_SIZE + len);
    memcpy(whole + STORE_HEADER_SIZE, image, len);
    store_header_encode(whole, base.index, &base.meta, slice_of(image, len));
    uint64_t violations = judge(slice_of(whole, STORE_HEADER_SIZE + len));
    mem_free(whole);
    return violations;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, size};
    if (base.image == NULL) {
        prepare();
        uint64_t violations = judge_image(base.image, base.len);
        ASSERT(violations == 0);
    }
    uint32_t how = take(&in, 1);
    size_t len = base.len;
    if (how == 0) {
        uint64_t violations = judge(slice_of(in.at, in.left));
        ASSERT(violations > 0);
        return 0;
    }
    uint8_t *image = how % 4 == 1 ? mem_dup(base.image, base.len) : change_rows(&in, &len);
    for (unsigned i = 0; how % 4 == 1 && i < CHANGES_MAX && in.left > 0; i++) {
        overwrite(image, len, &in);
    }
    (void)judge_image(image, len);
    mem_free(image);
    return 0;
}
