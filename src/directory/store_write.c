/* SPDX-License-Identifier: Apache-2.0 */
/* One batch of effects is one transaction. A partition that changes several times in a batch is
 * written once for each version that history keeps, each time complete; a node's row (its counters
 * move with every placement) once for the batch. */
#include "directory/store_internal.h"

#include "base/assert.h"
#include "base/mem.h"

#include <string.h>

enum { SCRATCH_MAX = 4 << 20, SLOTS_MIN = 64 };

/* --- what changed in this batch --- */

static uint32_t slot_of(const struct store_pending_set *set, uint64_t id)
{
    uint32_t mask = set->slot_count - 1;
    uint32_t at = (uint32_t)((id * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & mask;
    while (set->slots[at] != 0 && set->items[set->slots[at] - 1].id != id) {
        at = (at + 1) & mask;
    }
    return at;
}

static struct store_pending *pending_find(const struct store_pending_set *set, uint64_t id)
{
    uint32_t item = set->count > 0 ? set->slots[slot_of(set, id)] : 0;
    return item != 0 ? &set->items[item - 1] : NULL;
}

static void pending_grow(struct store_pending_set *set)
{
    set->slot_count = set->slot_count == 0 ? SLOTS_MIN : set->slot_count * 2;
    mem_free(set->slots);
    set->slots = mem_zalloc(set->slot_count * sizeof *set->slots);
    for (uint32_t i = 0; i < set->count; i++) {
        set->slots[slot_of(set, set->items[i].id)] = i + 1;
    }
}

static struct store_pending *pending_add(struct store_pending_set *set, uint64_t id)
{
    if ((set->count + 1) * 2 > set->slot_count) {
        pending_grow(set);
    }
    if (set->count == set->cap) {
        set->cap = set->cap == 0 ? SLOTS_MIN : set->cap * 2;
        set->items = mem_realloc(set->items, set->cap * sizeof *set->items);
    }
    set->items[set->count] = (struct store_pending){.id = id};
    set->slots[slot_of(set, id)] = ++set->count;
    return &set->items[set->count - 1];
}

/* Keeps the memory for the next batch. */
static void pending_clear(struct store_pending_set *set)
{
    for (uint32_t i = 0; i < set->count; i++) {
        dir_unref(set->items[i].object);
    }
    set->count = 0;
    if (set->slots != NULL) {
        memset(set->slots, 0, set->slot_count * sizeof *set->slots);
    }
}

static void pending_close(struct store_pending_set *set)
{
    pending_clear(set);
    mem_free(set->items);
    mem_free(set->slots);
    *set = (struct store_pending_set){0};
}

/* --- rows --- */

static void put_version(struct store_writer *w, const struct store_pending *p)
{
    sqlite3_stmt *st = store_write_stmt(&w->conn, SQL_VERSION_PUT);
    const void *object = p->object;
    store_bind_version(st, object, &p->span, &w->scratch);
    store_write_run(&w->conn, st);
}

static void
close_row(struct store_writer *w, enum store_sql which, uint64_t id, const struct dir_effects *e)
{
    sqlite3_stmt *st = store_write_stmt(&w->conn, which);
    store_bind_u64(st, 1, id);
    store_bind_u64(st, 2, e->revision);
    store_bind_u64(st, 3, e->time_ms);
    if (which == SQL_VERSION_CLOSE) {
        store_bind_u64_or_null(st, 4, e->kind);
    }
    store_write_run(&w->conn, st);
}

static void remove_row(struct store_writer *w, enum store_sql which, uint64_t id)
{
    sqlite3_stmt *st = store_write_stmt(&w->conn, which);
    store_bind_u64(st, 1, id);
    store_write_run(&w->conn, st);
}

/* The rest of a partition of which a part has moved. */
static bool is_rest(const struct dir_operation *o, const struct dir_partition *p)
{
    return o->retired != 0 && p->created == o->epoch_after && p->parent_count == 1 &&
           dir_partition_parents(p)[0] == o->retired;
}

/* The operation among these effects that made this version. */
static uint64_t operation_of(const struct dir_effects *e, const struct dir_partition *p)
{
    for (uint64_t i = 0; i < e->row_count; i++) {
        const struct dir_object *after = e->rows[i].after;
        if (after != NULL && after->kind == DIR_KIND_OPERATION) {
            const void *object = after;
            const struct dir_operation *o = object;
            if (o->partition == p->id || is_rest(o, p)) {
                return o->id;
            }
        }
    }
    return 0;
}

static void write_partition(struct store_writer *w,
                            const struct dir_effects *e,
                            const struct dir_row *row,
                            bool has_operation)
{
    const void *object = row->after != NULL ? row->after : row->before;
    uint64_t id = ((const struct dir_partition *)object)->id;
    struct store_pending *p = pending_find(&w->partitions, id);
    if (p != NULL && p->object != NULL && p->span.from < e->revision) {
        p->span.to = e->revision;
        p->span.to_ms = e->time_ms;
        p->span.ended = (uint8_t)e->kind;
        put_version(w, p);
    } else if (p == NULL && row->before != NULL) {
        close_row(w, SQL_VERSION_CLOSE, id, e);
    }
    if (p == NULL && row->after != NULL) {
        p = pending_add(&w->partitions, id);
    }
    if (p != NULL) {
        dir_unref(p->object);
        p->object = dir_ref(row->after);
        p->span = (struct store_span){
            .from = e->revision,
            .from_ms = e->time_ms,
            .operation = has_operation ? operation_of(e, object) : 0,
        };
    }
}

static void
write_keyspace(struct store_writer *w, const struct dir_effects *e, const struct dir_row *row)
{
    const void *before = row->before, *after = row->after;
    if (before != NULL) {
        close_row(w, SQL_KEYSPACE_CLOSE, ((const struct dir_keyspace *)before)->id, e);
    }
    if (after != NULL) {
        struct store_span span = {.from = e->revision, .from_ms = e->time_ms};
        store_put_keyspace(&w->conn, after, &span, &w->scratch);
    }
}

static void
put_node_version(struct store_writer *w, const struct dir_effects *e, const struct dir_node *n)
{
    sqlite3_stmt *st = store_write_stmt(&w->conn, SQL_NODE_VERSION_PUT);
    store_bind_u64(st, 1, n->id);
    store_bind_u64(st, 2, e->revision);
    store_bind_u64(st, 3, e->time_ms);
    store_bind_text(st, 4, n->name);
    store_bind_text(st, 5, n->address);
    store_bind_u64(st, 6, n->is_static);
    store_bind_u64(st, 7, n->created);
    store_bind_u64(st, 8, n->route_revision);
    store_write_run(&w->conn, st);
}

static void
write_node(struct store_writer *w, const struct dir_effects *e, const struct dir_row *row)
{
    const void *b = row->before, *a = row->after;
    const struct dir_node *before = b, *after = a;
    uint64_t id = after != NULL ? after->id : before->id;
    bool same = before != NULL && after != NULL &&
                before->route_revision == after->route_revision &&
                strcmp(before->address, after->address) == 0;
    if (before != NULL && !same) {
        close_row(w, SQL_NODE_VERSION_CLOSE, id, e);
    }
    if (after != NULL && !same) {
        put_node_version(w, e, after);
    }
    struct store_pending *p = pending_find(&w->nodes, id);
    if (after == NULL) {
        remove_row(w, SQL_NODE_REMOVE, id);
    } else if (p == NULL) {
        p = pending_add(&w->nodes, id);
    }
    if (p != NULL) {
        dir_unref(p->object);
        p->object = dir_ref(row->after);
    }
}

static void write_tombstone(struct store_writer *w, const struct dir_row *row)
{
    const void *before = row->before, *after = row->after;
    if (after != NULL) {
        store_put_tombstone(&w->conn, after, &w->scratch);
    } else {
        remove_row(w, SQL_TOMBSTONE_REMOVE, ((const struct dir_tombstone *)before)->id);
    }
}

static void write_server(struct store_writer *w, const struct dir_row *row)
{
    const void *before = row->before, *after = row->after;
    if (after != NULL) {
        store_put_server(&w->conn, after, &w->scratch);
    } else {
        remove_row(w, SQL_SERVER_REMOVE, ((const struct dir_server *)before)->id);
    }
}

static void write_operation(struct store_writer *w, const struct dir_row *row)
{
    const void *before = row->before, *after = row->after;
    if (after != NULL) {
        store_put_operation(&w->conn, after, &w->scratch);
    } else {
        remove_row(w, SQL_OPERATION_REMOVE, ((const struct dir_operation *)before)->id);
    }
}

static void write_duty(struct store_writer *w, const struct dir_row *row)
{
    const void *before = row->before, *after = row->after;
    if (after != NULL) {
        store_put_duty(&w->conn, after, &w->scratch);
    } else {
        remove_row(w, SQL_DUTY_REMOVE, ((const struct dir_duty *)before)->id);
    }
}

static void write_proposal(struct store_writer *w, const struct dir_row *row)
{
    const void *before = row->before, *after = row->after;
    if (after != NULL) {
        store_put_proposal(&w->conn, after, &w->scratch);
    } else {
        remove_row(w, SQL_PROPOSAL_REMOVE, ((const struct dir_proposal *)before)->id);
    }
}

/* Another command's outcome under the same key has another number of arrival: the old row goes. */
static void write_dedupe(struct store_writer *w, const struct dir_row *row)
{
    const void *b = row->before, *a = row->after;
    const struct dir_dedupe *before = b, *after = a;
    if (before != NULL && (after == NULL || after->index != before->index)) {
        remove_row(w, SQL_DEDUPE_REMOVE, before->index);
    }
    if (after != NULL) {
        store_put_dedupe(&w->conn, after);
    }
}

static void write_row(struct store_writer *w,
                      const struct dir_effects *e,
                      const struct dir_row *row,
                      bool has_operation)
{
    switch ((enum dir_kind)(row->after != NULL ? row->after : row->before)->kind) {
    case DIR_KIND_PARTITION:
        write_partition(w, e, row, has_operation);
        break;
    case DIR_KIND_KEYSPACE:
        write_keyspace(w, e, row);
        break;
    case DIR_KIND_NODE:
        write_node(w, e, row);
        break;
    case DIR_KIND_TOMBSTONE:
        write_tombstone(w, row);
        break;
    case DIR_KIND_SERVER:
        write_server(w, row);
        break;
    case DIR_KIND_OPERATION:
        write_operation(w, row);
        break;
    case DIR_KIND_DUTY:
        write_duty(w, row);
        break;
    case DIR_KIND_PROPOSAL:
        write_proposal(w, row);
        break;
    case DIR_KIND_BALANCER:
        store_put_balancer(&w->conn, (const void *)row->after, &w->scratch);
        break;
    case DIR_KIND_DEDUPE:
        write_dedupe(w, row);
        break;
    case DIR_KIND_BYTES:
    case DIR_KIND_MAP:
        UNREACHABLE(); /* rows of no table */
    }
}

/* The commands of one entry share its index and are numbered within it. */
static void write_command(struct store_writer *w, const struct dir_effects *e)
{
    w->command_seq = e->index == w->command_index ? w->command_seq + 1 : 0;
    w->command_index = e->index;
    w->command_count++;
    sqlite3_stmt *st = store_write_stmt(&w->conn, SQL_COMMAND_PUT);
    store_bind_u64(st, 1, e->index);
    store_bind_u64(st, 2, w->command_seq);
    store_bind_u64(st, 3, e->revision);
    store_bind_u64(st, 4, e->time_ms);
    store_bind_text(st, 5, e->what);
    store_bind_text(st, 6, e->principal);
    store_bind_text(st, 7, e->remote);
    store_bind_text(st, 8, e->request_id);
    store_bind_text(st, 9, e->idempotency_key);
    store_bind_text(st, 10, e->subject);
    store_bind_text(st, 11, err_slug(e->outcome));
    store_bind_text(st, 12, e->reason);
    store_write_run(&w->conn, st);
}

static void write_effects(struct store_writer *w, const struct dir_effects *e)
{
    bool has_operation = false;
    for (uint64_t i = 0; i < e->row_count && !has_operation; i++) {
        has_operation = e->rows[i].after != NULL && e->rows[i].after->kind == DIR_KIND_OPERATION;
    }
    for (uint64_t i = 0; i < e->row_count; i++) {
        if (e->rows[i].before != NULL || e->rows[i].after != NULL) {
            write_row(w, e, &e->rows[i], has_operation);
        }
    }
    write_command(w, e);
}

static void write_pending(struct store_writer *w)
{
    for (uint32_t i = 0; i < w->partitions.count; i++) {
        if (w->partitions.items[i].object != NULL) {
            put_version(w, &w->partitions.items[i]);
        }
    }
    for (uint32_t i = 0; i < w->nodes.count; i++) {
        if (w->nodes.items[i].object != NULL) {
            const void *object = w->nodes.items[i].object;
            store_put_node(&w->conn, object, &w->scratch);
        }
    }
    pending_clear(&w->partitions);
    pending_clear(&w->nodes);
}

static void run(struct store_writer *w, enum store_sql which)
{
    store_write_run(&w->conn, store_write_stmt(&w->conn, which));
}

void store_writer_batch(struct store_writer *w, const struct dir_effects *effects)
{
    const struct dir_effects *last = effects;
    run(w, SQL_BEGIN_WRITE);
    for (const struct dir_effects *e = effects; e != NULL; e = e->next) {
        write_effects(w, e);
        last = e;
    }
    write_pending(w);
    store_put_meta(&w->conn, &last->meta, &w->scratch);
    run(w, SQL_COMMIT);
    w->compacted = last->meta.compacted;
}

uint64_t store_writer_image_bytes(struct store_writer *w)
{
    enum { PAGE_BYTES = 4096 };
    sqlite3_stmt *st = store_write_stmt(&w->conn, SQL_PAGE_COUNT);
    if (sqlite3_step(st) != SQLITE_ROW) {
        store_die(&w->conn, "store.write.failed");
    }
    uint64_t pages = store_column_u64(st, 0);
    (void)sqlite3_reset(st); /* ends the read; the row was had */
    return pages * PAGE_BYTES;
}

/* --- retention --- */

static uint64_t trim(struct store_writer *w, enum store_sql which, uint64_t limit)
{
    sqlite3_stmt *st = store_write_stmt(&w->conn, which);
    store_bind_u64(st, 1, w->compacted);
    if (limit > 0) {
        store_bind_u64(st, 2, limit);
    }
    store_write_run(&w->conn, st);
    return (uint64_t)sqlite3_changes64(w->conn.db);
}

/* Audit rows of revisions past retention, and those beyond the count. Revisions never fall along
 * the log, so only the oldest rows are looked at. */
static uint64_t trim_commands(struct store_writer *w)
{
    sqlite3_stmt *st = store_write_stmt(&w->conn, SQL_COMMANDS_OLDEST);
    store_bind_u64(st, 1, STORE_TRIM_ROWS);
    uint64_t index = 0, seq = 0, count = 0;
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        bool surplus = w->command_count - count > STORE_COMMANDS_MAX;
        if (store_column_u64(st, 2) > w->compacted && !surplus) {
            break;
        }
        index = store_column_u64(st, 0);
        seq = store_column_u64(st, 1);
        count++;
    }
    if (rc != SQLITE_ROW && rc != SQLITE_DONE) {
        store_die(&w->conn, "store.write.failed");
    }
    (void)sqlite3_reset(st); /* the step's outcome is known */
    if (count > 0) {
        st = store_write_stmt(&w->conn, SQL_COMMANDS_TRIM);
        store_bind_u64(st, 1, index);
        store_bind_u64(st, 2, seq);
        store_write_run(&w->conn, st);
        w->command_count -= count;
    }
    return count;
}

/* True when more is left. */
static bool trim_history(struct store_writer *w)
{
    dir_rev compacted = w->compacted;
    run(w, SQL_BEGIN_WRITE);
    bool more = trim(w, SQL_VERSIONS_TRIM, STORE_TRIM_ROWS) == STORE_TRIM_ROWS;
    more = trim_commands(w) == STORE_TRIM_ROWS || more;
    if (!more) {
        (void)trim(w, SQL_KEYSPACES_TRIM, 0);
        (void)trim(w, SQL_NODES_TRIM, 0);
        w->trimmed = compacted;
    }
    run(w, SQL_COMMIT);
    return more;
}

/* --- checkpoints --- */

static int committed(void *arg, sqlite3 *db, const char *name, int pages)
{
    struct store_writer *w = arg;
    (void)db;
    (void)name;
    if ((uint32_t)pages < w->wal_pages) {
        w->wal_next = STORE_WAL_PAGES; /* the WAL began again */
    }
    w->wal_pages = (uint32_t)pages;
    return SQLITE_OK;
}

/* PASSIVE waits for nobody, and the WAL begins again in its old pages. One that grew large under
 * long readers is cut when the store is idle, or when it is huge, after waiting for them. */
static void checkpoint(struct store_writer *w, bool idle)
{
    bool large = w->wal_pages >= 2 * STORE_WAL_PAGES, huge = w->wal_pages >= 8 * STORE_WAL_PAGES;
    int mode = (idle && large) || huge ? SQLITE_CHECKPOINT_TRUNCATE : SQLITE_CHECKPOINT_PASSIVE;
    (void)sqlite3_busy_timeout(w->conn.db, huge ? STORE_BUSY_MS / 5 : 10);
    int rc = sqlite3_wal_checkpoint_v2(w->conn.db, "main", mode, NULL, NULL);
    (void)sqlite3_busy_timeout(w->conn.db, STORE_BUSY_MS);
    if (rc != SQLITE_OK && (rc & 0xff) != SQLITE_BUSY && (rc & 0xff) != SQLITE_LOCKED) {
        store_die(&w->conn, "store.write.failed");
    }
    w->wal_next = w->wal_pages + STORE_WAL_PAGES; /* unless it begins again */
}

bool store_writer_tidy(struct store_writer *w, bool idle)
{
    bool due = w->compacted >= w->trimmed + STORE_TRIM_STEP ||
               w->command_count > STORE_COMMANDS_MAX + STORE_TRIM_STEP;
    bool more = due && trim_history(w);
    if (w->wal_pages >= w->wal_next) {
        checkpoint(w, idle);
    }
    return more;
}

/* --- open and close --- */

static void read_counters(struct store_writer *w)
{
    sqlite3_stmt *st = store_write_stmt(&w->conn, SQL_COMMANDS_COUNT);
    int rc = sqlite3_step(st);
    if (rc == SQLITE_ROW) {
        w->command_count = store_column_u64(st, 0);
        w->command_index = store_column_u64(st, 1);
        w->command_seq = store_column_u64(st, 2);
    } else if (rc != SQLITE_DONE) {
        store_die(&w->conn, "store.read.failed");
    }
    (void)sqlite3_reset(st); /* the step's outcome is known */
}

static void put_empty_meta(struct store_writer *w)
{
    struct dir_view_meta meta;
    struct directory *d = directory_new();
    dir_meta_of(directory_state(d), &meta);
    directory_free(d);
    run(w, SQL_BEGIN_WRITE);
    store_put_meta(&w->conn, &meta, &w->scratch);
    run(w, SQL_COMMIT);
}

enum err_code
store_writer_open(struct store_writer *w, const char *path, enum store_mode mode, struct err *e)
{
    *w = (struct store_writer){.wal_next = STORE_WAL_PAGES};
    enum err_code code = store_conn_open(&w->conn, path, mode, e);
    if (code != ERR_OK) {
        return code;
    }
    (void)sqlite3_wal_hook(w->conn.db, committed, w);
    buf_init(&w->scratch, SCRATCH_MAX);
    if (mode == STORE_CREATE) {
        put_empty_meta(w);
    }
    struct dir_view_meta meta;
    code = store_read_meta(&w->conn, &meta, e);
    if (code != ERR_OK) {
        store_writer_close(w);
        return code;
    }
    w->compacted = meta.compacted;
    read_counters(w);
    return ERR_OK;
}

enum err_code store_writer_index(struct store_writer *w, uint64_t index, struct err *e)
{
    struct dir_view_meta meta;
    enum err_code code = store_read_meta(&w->conn, &meta, e);
    if (code == ERR_OK && meta.applied_index != index) {
        meta.applied_index = index;
        run(w, SQL_BEGIN_WRITE);
        store_put_meta(&w->conn, &meta, &w->scratch);
        run(w, SQL_COMMIT);
    }
    return code;
}

void store_writer_close(struct store_writer *w)
{
    pending_close(&w->partitions);
    pending_close(&w->nodes);
    buf_close(&w->scratch);
    store_conn_close(&w->conn);
}
