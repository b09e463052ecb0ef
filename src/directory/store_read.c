/* SPDX-License-Identifier: Apache-2.0 */
/* What is asked of history. Rows are copied out before a callback runs, so that a slow one holds
 * neither a connection nor the WAL. */
#include "directory/store_internal.h"

#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* --- versions --- */

/* The node as of `at`; or, when that was trimmed, as it was first known. */
static enum err_code name_node(struct store_conn *c,
                               uint64_t node,
                               dir_rev at,
                               struct store_version *v,
                               unsigned replica,
                               struct err *e)
{
    sqlite3_stmt *st = store_read_stmt(c, SQL_NODE_AT, e);
    if (st == NULL) {
        return e->code;
    }
    store_bind_u64(st, 1, node);
    store_bind_u64(st, 2, at);
    int rc = store_read_step(c, st, e);
    if (rc == 0) {
        st = store_read_stmt(c, SQL_NODE_EARLIEST, e);
        if (st == NULL) {
            return e->code;
        }
        store_bind_u64(st, 1, node);
        rc = store_read_step(c, st, e);
    }
    if (rc < 0) {
        return e->code;
    }
    char *name = v->replicas[replica].name, *address = v->replicas[replica].address;
    if (rc == 0 || !store_column_text(st, 0, name, DIR_NAME_MAX + 1) ||
        !store_column_text(st, 1, address, DIR_ADDRESS_MAX + 1)) {
        return err_set(e, ERR_INTERNAL, "history names an unknown node %" PRIu64, node);
    }
    v->replicas[replica].is_static = store_column_u64(st, 3) != 0;
    dir_rev route_revision = store_column_u64(st, 2);
    if (route_revision > v->mod_revision && route_revision <= at) {
        v->mod_revision = route_revision;
    }
    (void)sqlite3_reset(st); /* one row */
    return ERR_OK;
}

static void copy_range(const struct store_columns *row, struct store_held *h)
{
    size_t start = row->start.len, end = row->end.len;
    h->keys = mem_alloc(start + end);
    if (start > 0) {
        memcpy(h->keys, row->start.data, start);
    }
    if (end > 0) {
        memcpy(h->keys + start, row->end.data, end);
    }
    h->v.start = slice_of(h->keys, start);
    h->v.end = slice_of(h->keys + start, end);
}

enum err_code store_copy_version(struct store_conn *c,
                                 const struct store_columns *row,
                                 dir_rev at,
                                 struct store_held *ret_held,
                                 struct err *e)
{
    ret_held->v = (struct store_version){
        .partition = row->id,
        .keyspace = row->keyspace,
        .epoch = row->epoch,
        .mod_revision = row->mod_revision,
        .from_revision = row->from_revision,
        .to_revision = row->to_revision,
        .from_ms = row->from_ms,
        .to_ms = row->to_ms,
        .state = row->state,
        .cause = row->cause,
        .replica_count = row->replica_count,
        .parent_count = row->parent_count,
        .pinned = row->pinned,
        .end_open = row->end_open,
        .rate_limit = row->rate_limit,
        .parents = {row->parents[0], row->parents[1]},
        .operation = row->operation,
        .held_by = row->held_by,
        .moving = row->moving,
    };
    ret_held->keys = NULL;
    for (unsigned i = 0; i < row->replica_count; i++) {
        ret_held->v.replicas[i].role = row->replicas[i].role;
        enum err_code code = name_node(c, row->replicas[i].node, at, &ret_held->v, i, e);
        if (code != ERR_OK) {
            return code;
        }
    }
    copy_range(row, ret_held);
    return ERR_OK;
}

/* Runs a statement that gives at most one version. 1, 0, or -1 with `e`. The columns stay until its
 * reset. */
int store_one_version(struct store_conn *c,
                      sqlite3_stmt *st,
                      struct store_columns *row,
                      struct err *e)
{
    int rc = store_read_step(c, st, e);
    if (rc == 1 && !store_read_columns(st, row)) {
        (void)err_set(e, ERR_INTERNAL, "a row of history is out of its bounds");
        rc = -1;
    }
    return rc;
}

int store_version_by_id(struct store_conn *c,
                        enum store_sql which,
                        uint64_t id,
                        dir_rev at,
                        struct store_columns *row,
                        struct err *e)
{
    sqlite3_stmt *st = store_read_stmt(c, which, e);
    if (st == NULL) {
        return -1;
    }
    store_bind_u64(st, 1, id);
    if (which != SQL_VERSION_ANY) {
        store_bind_u64(st, 2, at);
    }
    return store_one_version(c, st, row, e);
}

static bool covers(const struct store_columns *row, struct slice key)
{
    return slice_cmp(row->start, key) <= 0 && (row->end_open || slice_cmp(key, row->end) < 0);
}

/* Steps from a partition that began after `revision` to the parent that held the key. */
static int step_to_parent(struct store_conn *c,
                          struct slice key,
                          const uint64_t parents[DIR_PARENTS_MAX],
                          struct store_columns *row,
                          struct err *e)
{
    int rc = 0;
    for (unsigned i = 0; i < DIR_PARENTS_MAX && parents[i] != 0 && rc >= 0; i++) {
        rc = store_version_by_id(c, SQL_VERSION_ANY, parents[i], 0, row, e);
        if (rc == 1 && covers(row, key)) {
            return 1;
        }
    }
    return rc < 0 ? -1 : 0;
}

/* Begins at the newest map of the keyspace, which has an index, and follows parents back in time: a
 * range's lineage is as long as it was split and merged often. */
static int find_at(struct store_conn *c,
                   uint64_t keyspace,
                   struct slice key,
                   dir_rev revision,
                   struct store_columns *row,
                   struct err *e)
{
    sqlite3_stmt *st = store_read_stmt(c, SQL_VERSION_LAST_FLOOR, e);
    if (st == NULL) {
        return -1;
    }
    store_bind_u64(st, 1, keyspace);
    store_bind_bytes(st, 2, key);
    int rc = store_one_version(c, st, row, e);
    while (rc == 1 && covers(row, key)) {
        uint64_t id = row->id, parents[] = {row->parents[0], row->parents[1]};
        rc = store_version_by_id(c, SQL_VERSION_AT, id, revision, row, e);
        if (rc != 0) {
            bool held = rc == 1 && (row->to_revision == 0 || row->to_revision > revision);
            return rc == 1 && !held ? 0 : rc;
        }
        rc = step_to_parent(c, key, parents, row, e);
    }
    return rc < 0 ? -1 : 0;
}

static enum err_code route_at(struct store_conn *c,
                              uint64_t keyspace,
                              struct slice key,
                              dir_rev revision,
                              struct store_held *ret_held,
                              struct err *e)
{
    dir_rev compacted, newest;
    enum err_code code = store_read_extent(c, &compacted, &newest, e);
    if (code != ERR_OK) {
        return code;
    }
    if (revision < compacted) {
        return err_set(e, ERR_COMPACTED, "history reaches back to revision %" PRIu64, compacted);
    }
    if (revision > newest) {
        return err_set(e, ERR_BEHIND, "the store has reached revision %" PRIu64, newest);
    }
    struct store_columns row;
    int rc = find_at(c, keyspace, key, revision, &row, e);
    if (rc == 1) {
        return store_copy_version(c, &row, revision, ret_held, e);
    }
    return rc < 0 ? e->code
                  : err_set(e, ERR_PARTITION_NOT_FOUND,
                            "no partition held this key at revision %" PRIu64, revision);
}

enum err_code store_route_at(struct store *s,
                             uint64_t keyspace,
                             struct slice routing_key,
                             dir_rev revision,
                             void (*fn)(void *arg, const struct store_version *v),
                             void *arg,
                             struct err *e)
{
    struct err own;
    struct store_held held = {0};
    e = e != NULL ? e : &own;
    struct store_conn *c = store_enter(s, e);
    if (c == NULL) {
        return e->code;
    }
    enum err_code code = route_at(c, keyspace, routing_key, revision, &held, e);
    store_leave(s, c);
    if (code == ERR_OK) {
        fn(arg, &held.v);
    }
    mem_free(held.keys);
    return code;
}

struct dir_keyspace *store_keyspace_at(struct store *s, struct slice name, dir_rev revision)
{
    struct err e;
    char text[DIR_NAME_MAX + 1];
    dir_rev compacted, newest;
    if (name.len > DIR_NAME_MAX || (name.len > 0 && memchr(name.data, '\0', name.len) != NULL)) {
        return NULL;
    }
    memcpy(text, name.data, name.len);
    text[name.len] = '\0';
    struct store_conn *c = store_enter(s, &e);
    if (c == NULL) {
        return NULL;
    }
    void *ks = NULL;
    sqlite3_stmt *st = store_read_stmt(c, SQL_KEYSPACE_AT, &e);
    if (st != NULL && store_read_extent(c, &compacted, &newest, &e) == ERR_OK &&
        revision >= compacted && revision <= newest) {
        store_bind_text(st, 1, text);
        store_bind_u64(st, 2, revision);
        if (store_read_step(c, st, &e) == 1) {
            ks = store_read_row(SQL_KEYSPACE_AT, st, &e);
        }
    }
    store_leave(s, c);
    return ks;
}

/* One page of a partition's versions, those after `from`. Returns how many, or -1 with `e`. */
static int history_page(struct store *s,
                        uint64_t partition,
                        dir_rev from,
                        struct store_held held[STORE_PAGE_ROWS],
                        struct err *e)
{
    struct store_conn *c = store_enter(s, e);
    if (c == NULL) {
        return -1;
    }
    int count = 0, rc = -1;
    sqlite3_stmt *st = store_read_stmt(c, SQL_HISTORY, e);
    if (st != NULL) {
        store_bind_u64(st, 1, partition);
        store_bind_u64(st, 2, from);
        store_bind_u64(st, 3, STORE_PAGE_ROWS);
        struct store_columns row;
        while ((rc = store_one_version(c, st, &row, e)) == 1) {
            if (store_copy_version(c, &row, row.from_revision, &held[count], e) != ERR_OK) {
                rc = -1;
                break;
            }
            count++;
        }
    }
    store_leave(s, c);
    for (int i = 0; i < count && rc < 0; i++) {
        mem_free(held[i].keys);
    }
    return rc < 0 ? -1 : count;
}

enum err_code store_history(struct store *s,
                            uint64_t partition,
                            bool (*fn)(void *arg, const struct store_version *v),
                            void *arg,
                            struct err *e)
{
    struct err own;
    e = e != NULL ? e : &own;
    struct store_held *held = mem_alloc(STORE_PAGE_ROWS * sizeof *held);
    dir_rev from = 0;
    int count;
    bool go_on = true;
    do {
        count = history_page(s, partition, from, held, e);
        for (int i = 0; i < count; i++) {
            from = held[i].v.from_revision;
            go_on = go_on && fn(arg, &held[i].v);
            mem_free(held[i].keys);
        }
    } while (count == STORE_PAGE_ROWS && go_on);
    mem_free(held);
    return count < 0 ? e->code : ERR_OK;
}

/* --- audit --- */

struct held_audit {
    struct store_audit row;
    char what[32], principal[DIR_TEXT_MAX + 1], remote[64], request_id[64];
    char key[DIR_IDEMPOTENCY_KEY_MAX + 1], subject[160], outcome[64];
    char reason[DIR_TEXT_MAX + 1];
};

static bool hold_audit(sqlite3_stmt *st, struct held_audit *h)
{
    h->row = (struct store_audit){
        .index = store_column_u64(st, 0),
        .at_ms = store_column_u64(st, 1),
        .revision = store_column_u64(st, 2),
        .what = h->what,
        .principal = h->principal,
        .remote = h->remote,
        .request_id = h->request_id,
        .idempotency_key = h->key,
        .subject = h->subject,
        .outcome = h->outcome,
        .reason = h->reason,
    };
    return store_column_text(st, 3, h->what, sizeof h->what) &&
           store_column_text(st, 4, h->principal, sizeof h->principal) &&
           store_column_text(st, 5, h->remote, sizeof h->remote) &&
           store_column_text(st, 6, h->request_id, sizeof h->request_id) &&
           store_column_text(st, 7, h->key, sizeof h->key) &&
           store_column_text(st, 8, h->subject, sizeof h->subject) &&
           store_column_text(st, 9, h->outcome, sizeof h->outcome) &&
           store_column_text(st, 10, h->reason, sizeof h->reason);
}

struct audit_page {
    struct held_audit **items;
    uint64_t count, cap;
};

/* Ends after `max` rows where an entry ends: its commands share one index, which is the cursor. */
static enum err_code read_audit(struct store_conn *c,
                                uint64_t before,
                                uint64_t max,
                                struct audit_page *page,
                                struct err *e)
{
    sqlite3_stmt *st = store_read_stmt(c, SQL_AUDIT, e);
    if (st == NULL) {
        return e->code;
    }
    store_bind_u64(st, 1, before != 0 ? before : INT64_MAX);
    int rc;
    while ((rc = store_read_step(c, st, e)) == 1) {
        if (page->count >= max &&
            page->items[page->count - 1]->row.index != store_column_u64(st, 0)) {
            break;
        }
        if (page->count == page->cap) {
            page->cap = page->cap == 0 ? 64 : page->cap * 2;
            page->items = mem_realloc(page->items, page->cap * sizeof(struct held_audit *));
        }
        struct held_audit *h = page->items[page->count++] = mem_alloc(sizeof *h);
        if (!hold_audit(st, h)) {
            return err_set(e, ERR_INTERNAL, "an audit row is out of its bounds");
        }
    }
    return rc < 0 ? e->code : ERR_OK;
}

enum err_code store_audit(struct store *s,
                          uint64_t before,
                          uint64_t max,
                          void (*fn)(void *arg, const struct store_audit *row),
                          void *arg,
                          struct err *e)
{
    struct err own;
    struct audit_page page = {0};
    e = e != NULL ? e : &own;
    if (max == 0) {
        return ERR_OK;
    }
    struct store_conn *c = store_enter(s, e);
    if (c == NULL) {
        return e->code;
    }
    enum err_code code =
        read_audit(c, before, max < STORE_AUDIT_MAX ? max : STORE_AUDIT_MAX, &page, e);
    store_leave(s, c);
    for (uint64_t i = 0; i < page.count; i++) {
        if (code == ERR_OK) {
            fn(arg, &page.items[i]->row);
        }
        mem_free(page.items[i]);
    }
    mem_free(page.items);
    return code;
}

/* --- backup --- */

static enum err_code copy_file(struct store_conn *c, const char *path, struct err *e)
{
    sqlite3 *to = NULL;
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
    int rc = sqlite3_open_v2(path, &to, flags, NULL);
    if (rc == SQLITE_OK) {
        sqlite3_backup *b = sqlite3_backup_init(to, "main", c->db, "main");
        if (b != NULL) {
            (void)sqlite3_backup_step(b, -1); /* its outcome is finish's too */
            rc = sqlite3_backup_finish(b);
        } else {
            rc = sqlite3_errcode(to);
        }
    }
    if (rc == SQLITE_OK) { /* the copy needs no WAL beside it */
        rc = sqlite3_exec(to, "PRAGMA journal_mode=DELETE", NULL, NULL, NULL);
    }
    int closed = sqlite3_close(to);
    rc = rc == SQLITE_OK ? closed : rc;
    return rc == SQLITE_OK ? ERR_OK : err_set(e, ERR_IO, "%s: %s", path, sqlite3_errstr(rc));
}

static enum err_code revision_of(const char *path, dir_rev *ret_revision, struct err *e)
{
    struct store_conn c;
    struct dir_view_meta meta;
    enum err_code code = store_conn_open(&c, path, STORE_READ, e);
    if (code == ERR_OK) {
        code = store_read_meta(&c, &meta, e);
        store_conn_close(&c);
    }
    if (code == ERR_OK) {
        *ret_revision = meta.revision;
    }
    return code;
}

/* A file that is there under its name survives a crash of the machine. */
static enum err_code make_durable(const char *from, const char *to, struct err *e)
{
    const char *slash = strrchr(to, '/');
    char *folder = slash != NULL ? mem_printf("%.*s/", (int)(slash - to), to) : mem_strdup(".");
    int file = open(from, O_RDONLY | O_CLOEXEC);
    int dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool ok = file >= 0 && dir >= 0 && fsync(file) == 0 && rename(from, to) == 0 && fsync(dir) == 0;
    enum err_code code = ok ? ERR_OK : err_set(e, ERR_IO, "%s: %s", to, strerror(errno));
    if (file >= 0) {
        (void)close(file); /* only read from */
    }
    if (dir >= 0) {
        (void)close(dir); /* only read from */
    }
    mem_free(folder);
    return code;
}

enum err_code store_backup(struct store *s, const char *path, dir_rev *ret_revision, struct err *e)
{
    struct err own;
    e = e != NULL ? e : &own;
    struct store_conn *c = store_readers_take(s, e);
    if (c == NULL) {
        return e->code;
    }
    char *part = mem_printf("%s.part", path);
    store_unlink(part);
    enum err_code code = copy_file(c, part, e);
    store_readers_give(s, c);
    if (code == ERR_OK) {
        code = revision_of(part, ret_revision, e);
    }
    if (code == ERR_OK) {
        code = make_durable(part, path, e);
    }
    if (code != ERR_OK) {
        store_unlink(part);
    }
    mem_free(part);
    return code;
}
