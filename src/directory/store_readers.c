/* SPDX-License-Identifier: Apache-2.0 */
/* The readers' pool of connections, and their short transactions. */
#include "directory/store_internal.h"

#include "base/assert.h"

/* --- the pool --- */

enum err_code store_readers_open(struct store *s, struct err *e)
{
    struct store_readers *r = &s->readers;
    enum err_code code = ERR_OK;
    (void)pthread_mutex_lock(&r->lock);
    for (unsigned i = 0; i < STORE_READERS_MAX && code == ERR_OK; i++) {
        code = store_conn_open(&r->conns[i], s->path, STORE_READ, e);
    }
    if (code == ERR_OK) {
        r->closed = false;
        (void)pthread_cond_broadcast(&r->freed);
    }
    (void)pthread_mutex_unlock(&r->lock);
    return code;
}

void store_readers_close(struct store *s)
{
    struct store_readers *r = &s->readers;
    (void)pthread_mutex_lock(&r->lock);
    r->closed = true;
    while (r->in_use > 0) {
        (void)pthread_cond_wait(&r->freed, &r->lock);
    }
    for (unsigned i = 0; i < STORE_READERS_MAX; i++) {
        store_conn_close(&r->conns[i]);
    }
    (void)pthread_mutex_unlock(&r->lock);
}

struct store_conn *store_readers_take(struct store *s, struct err *e)
{
    struct store_readers *r = &s->readers;
    struct store_conn *c = NULL;
    struct timespec until = store_deadline(STORE_READER_WAIT_MS);
    int rc = 0;
    (void)pthread_mutex_lock(&r->lock);
    while ((r->closed || r->in_use == STORE_READERS_MAX) && rc == 0) {
        rc = pthread_cond_timedwait(&r->freed, &r->lock, &until);
    }
    if (!r->closed && r->in_use < STORE_READERS_MAX) {
        unsigned i = 0;
        while (r->used[i]) {
            i++;
        }
        r->used[i] = true;
        r->in_use++;
        c = &r->conns[i];
    }
    (void)pthread_mutex_unlock(&r->lock);
    if (c == NULL) {
        (void)err_set(e, ERR_OVERLOADED, "too many reads of history at once");
    }
    return c;
}

void store_readers_give(struct store *s, struct store_conn *c)
{
    struct store_readers *r = &s->readers;
    (void)pthread_mutex_lock(&r->lock);
    ASSERT(r->used[c - r->conns] && r->in_use > 0);
    r->used[c - r->conns] = false;
    r->in_use--;
    (void)pthread_cond_broadcast(&r->freed); /* a taker, or who waits for all */
    (void)pthread_mutex_unlock(&r->lock);
}

sqlite3_stmt *store_read_stmt(struct store_conn *c, enum store_sql which, struct err *e)
{
    sqlite3_stmt *st = store_conn_stmt(c, which);
    if (st == NULL) {
        store_read_failed(c, e);
    }
    return st;
}

int store_read_step(struct store_conn *c, sqlite3_stmt *st, struct err *e)
{
    int rc = sqlite3_step(st);
    if (rc == SQLITE_ROW) {
        return 1;
    }
    int ret = 0;
    if (rc != SQLITE_DONE) {
        store_read_failed(c, e);
        ret = -1;
    }
    (void)sqlite3_reset(st); /* repeats the step's outcome */
    return ret;
}

enum err_code store_read_begin(struct store_conn *c, struct err *e)
{
    sqlite3_stmt *st = store_read_stmt(c, SQL_BEGIN, e);
    return st != NULL && store_read_step(c, st, e) == 0 ? ERR_OK : ERR_INTERNAL;
}

/* Statements that still stand on a row would keep the transaction open. */
void store_read_end(struct store_conn *c)
{
    for (int i = 0; i < SQL_COUNT; i++) {
        (void)sqlite3_reset(c->stmts[i]); /* repeats an outcome that was handled */
    }
    sqlite3_stmt *st = store_conn_stmt(c, SQL_COMMIT);
    bool failed =
        st == NULL || (sqlite3_get_autocommit(c->db) == 0 && sqlite3_step(st) != SQLITE_DONE);
    if (failed && !c->is_lent) {
        store_die(c, "store.read.failed");
    }
    (void)sqlite3_reset(st); /* as above */
}

struct store_conn *store_enter(struct store *s, struct err *e)
{
    struct store_conn *c = store_readers_take(s, e);
    if (c != NULL && store_read_begin(c, e) != ERR_OK) {
        store_readers_give(s, c);
        c = NULL;
    }
    return c;
}

void store_leave(struct store *s, struct store_conn *c)
{
    store_read_end(c);
    store_readers_give(s, c);
}

enum err_code store_read_extent(struct store_conn *c,
                                dir_rev *ret_compacted,
                                dir_rev *ret_revision,
                                struct err *e)
{
    sqlite3_stmt *st = store_read_stmt(c, SQL_EXTENT, e);
    int rc = st != NULL ? store_read_step(c, st, e) : -1;
    if (rc != 1) {
        return rc < 0 ? e->code : err_set(e, ERR_INTERNAL, "the store has no meta row");
    }
    *ret_compacted = store_column_u64(st, 0);
    *ret_revision = store_column_u64(st, 1);
    (void)sqlite3_reset(st); /* one row */
    return ERR_OK;
}
