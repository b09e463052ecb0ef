/* SPDX-License-Identifier: Apache-2.0 */
/* The scalars of a state <-> the one row of the table meta. */
#include "directory/store_internal.h"

#include "base/assert.h"
#include "base/parse.h"

void store_put_meta(struct store_conn *c, const struct dir_view_meta *m, struct buf *scratch)
{
    char hash[HASH128_HEX_SIZE];
    hash128_hex(m->hash, hash);
    buf_reset(scratch);
    dir_meta_encode(m, scratch);
    ASSERT(!scratch->overflow);
    sqlite3_stmt *st = store_write_stmt(c, SQL_META_PUT);
    store_bind_u64(st, 1, STORE_FORMAT);
    store_bind_text(st, 2, m->cluster);
    store_bind_u64(st, 3, m->generation);
    store_bind_u64(st, 4, m->applied_index);
    store_bind_u64(st, 5, m->revision);
    store_bind_u64(st, 6, m->time_ms);
    store_bind_u64(st, 7, m->compacted);
    store_bind_u64(st, 8, m->next_id);
    store_bind_u64(st, 9, m->unplaced);
    store_bind_text(st, 10, hash);
    store_bind_u64(st, 11, m->settings.history_retention_ms);
    store_bind_u64(st, 12, m->settings.history_max);
    store_bind_u64(st, 13, m->settings.dedupe_retention_ms);
    store_bind_u64(st, 14, m->settings.lease_ms);
    store_bind_u64(st, 15, m->settings.heartbeat_ms);
    store_bind_bytes(st, 16, slice_of(scratch->data, scratch->len));
    store_write_run(c, st);
}

static bool read_hash(sqlite3_stmt *st, int at, struct hash128 *ret_hash)
{
    uint8_t bytes[16];
    size_t len;
    if (!parse_hex(store_column_bytes(st, at), bytes, sizeof bytes, &len) || len != sizeof bytes) {
        return false;
    }
    *ret_hash = (struct hash128){0};
    for (unsigned i = 0; i < 8; i++) {
        ret_hash->hi = ret_hash->hi << 8 | bytes[i];
        ret_hash->lo = ret_hash->lo << 8 | bytes[8 + i];
    }
    return true;
}

static enum err_code
meta_of_row(const struct store_conn *c, sqlite3_stmt *st, struct dir_view_meta *m, struct err *e)
{
    uint64_t format = store_column_u64(st, 1);
    if (format != STORE_FORMAT) {
        return err_set(e, ERR_CORRUPT, "%s: format %llu, this server knows %d", c->path,
                       (unsigned long long)format, STORE_FORMAT);
    }
    if (dir_meta_decode(store_column_bytes(st, 0), m, e) != ERR_OK || !read_hash(st, 6, &m->hash) ||
        m->generation != store_column_u64(st, 2) || m->revision != store_column_u64(st, 4) ||
        m->compacted != store_column_u64(st, 5)) {
        return err_set(e, ERR_CORRUPT, "%s: its meta row is damaged", c->path);
    }
    m->applied_index = store_column_u64(st, 3);
    return ERR_OK;
}

enum err_code store_read_meta(struct store_conn *c, struct dir_view_meta *m, struct err *e)
{
    sqlite3_stmt *st = store_conn_stmt(c, SQL_META_GET);
    int rc = st != NULL ? sqlite3_step(st) : SQLITE_ERROR;
    if (rc != SQLITE_ROW && rc != SQLITE_DONE) {
        return store_judge_failed(c, e);
    }
    enum err_code code = rc == SQLITE_ROW
                             ? meta_of_row(c, st, m, e)
                             : err_set(e, ERR_CORRUPT, "%s: it has no meta row", c->path);
    (void)sqlite3_reset(st); /* the step's outcome is known */
    return code;
}
