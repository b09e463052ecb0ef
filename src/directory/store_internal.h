/* SPDX-License-Identifier: Apache-2.0 */
/* What the store's files share. Only they include sqlite3.h.
 *
 *   store.c           life cycle, queue, thread
 *   store_write.c     one batch of effects -> one transaction; retention; checkpoints
 *   store_rows.c      objects <-> columns
 *   store_schema.c    tables, statements, connections, what an SQLite error means
 *   store_load.c      a file's rows -> struct directory
 *   store_snapshot.c  snapshots and restoring them
 *   store_readers.c   the readers' pool of connections
 *   store_read.c      keyspace_at, route_at, history, audit, backup
 *   store_events.c    what changed between two revisions
 *   store_check.c     the offline check */
#ifndef DIRECTORY_STORE_INTERNAL_H
#define DIRECTORY_STORE_INTERNAL_H

#include "directory/store.h"
#include "directory/store_sql.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    STORE_FORMAT = 4,             /* of the file and of the snapshot around it */
    STORE_BATCH_EFFECTS = 1000,   /* in one transaction */
    STORE_BATCH_ROWS = 20000,     /* after which a batch takes no more effects */
    STORE_GATHER_MS = 50,         /* how long effects wait for more of them */
    STORE_TRIM_ROWS = 2000,       /* history rows deleted between two batches */
    STORE_TRIM_STEP = 256,        /* revisions that may be past retention before they are trimmed */
    STORE_COMMANDS_MAX = 1 << 20, /* audit rows; the oldest make room */
    STORE_WAL_PAGES = 16384,      /* pages in the WAL that ask for a checkpoint */
    STORE_BUSY_MS = 5000,
    STORE_READER_WAIT_MS = 2000,    /* for one of the pool's connections */
    STORE_PAGE_ROWS = 64,           /* rows that one short read transaction copies out */
    STORE_SCAN_ROWS = 20000,        /* rows that one looks through */
    STORE_AUDIT_MAX = 1000,         /* rows of one store_audit() */
    STORE_NODE_EVENTS_MAX = 1 << 20 /* routes touched by address changes in one store_events() */
};

/* --- rows (store_rows.c) --- */

/* A row of partition_versions. */
struct store_columns {
    uint64_t id, keyspace, operation, rate_limit, owner_since_ms;
    uint64_t session, home, held_by, start_position, under_since_ms;
    dir_rev from_revision, to_revision, epoch, mod_revision, created;
    uint64_t from_ms, to_ms;
    uint8_t state, cause, ended, moving, replica_count, parent_count;
    bool pinned, holds_data, end_open;
    uint64_t parents[DIR_PARENTS_MAX];
    struct dir_replica replicas[DIR_REPLICAS_MAX];
    struct slice start, end; /* until the next step or reset */
};

/* When and how a version was; beside the object. */
struct store_span {
    dir_rev from, to; /* to 0: live */
    uint64_t from_ms, to_ms, operation;
    uint8_t ended; /* enum dir_change_kind, 0 while live */
};

void store_bind_version(sqlite3_stmt *st,
                        const struct dir_partition *p,
                        const struct store_span *span,
                        struct buf *scratch);
/* False when a column is out of its bounds. */
bool store_read_columns(sqlite3_stmt *st, struct store_columns *c);
struct dir_object *store_partition_of(const struct store_columns *c);

/* Write one row of a kind that is stored as it is. `scratch` is reset. */
void store_put_keyspace(struct store_conn *c,
                        const struct dir_keyspace *ks,
                        const struct store_span *span,
                        struct buf *scratch);
void store_put_node(struct store_conn *c, const struct dir_node *n, struct buf *scratch);
void store_put_tombstone(struct store_conn *c, const struct dir_tombstone *t, struct buf *scratch);
void store_put_server(struct store_conn *c, const struct dir_server *v, struct buf *scratch);
void store_put_operation(struct store_conn *c, const struct dir_operation *o, struct buf *scratch);
void store_put_duty(struct store_conn *c, const struct dir_duty *d, struct buf *scratch);
struct dir_balancer;
void store_put_balancer(struct store_conn *c, const struct dir_balancer *b, struct buf *scratch);
void store_put_proposal(struct store_conn *c, const struct dir_proposal *p, struct buf *scratch);
void store_put_dedupe(struct store_conn *c, const struct dir_dedupe *d);
void store_put_meta(struct store_conn *c, const struct dir_view_meta *m, struct buf *scratch);

/* Of those with their canonical bytes (store_objects.c). */
struct dir_object *
store_read_object(enum store_sql which, sqlite3_stmt *st, struct err *e) MUST_CHECK;
/* The row that the statement stands on, or NULL with ERR_CORRUPT. Columns and object must agree. */
struct dir_object *store_read_row(enum store_sql which, sqlite3_stmt *st, struct err *e);
/* ERR_CORRUPT when there is none, or it is not of this format. */
enum err_code
store_read_meta(struct store_conn *c, struct dir_view_meta *m, struct err *e) MUST_CHECK;

/* --- loading (store_load.c) --- */

/* Loads `d` from the file; its applied index becomes `index` when that is not 0. On error `d` is as
 * before. */
enum err_code
store_load(struct store_conn *c, struct directory *d, uint64_t index, struct err *e) MUST_CHECK;

/* --- snapshots (store_snapshot.c) --- */

enum { STORE_HEADER_SIZE = 80 };

struct store_header {
    uint64_t index, generation;
    dir_rev revision;
    struct hash128 hash;
    struct slice image; /* borrows from the snapshot */
};

void store_header_encode(uint8_t out[STORE_HEADER_SIZE],
                         uint64_t index,
                         const struct dir_view_meta *meta,
                         struct slice image);
/* ERR_CORRUPT when magic, format or a checksum is wrong. */
enum err_code
store_header_parse(struct slice snapshot, struct store_header *h, struct err *e) MUST_CHECK;
/* Does the image, opened, say the same? */
enum err_code
store_header_matches(const struct store_header *h, struct store_conn *c, struct err *e) MUST_CHECK;
/* Writes the image as a file that needs no WAL; on an error there is none. */
enum err_code store_write_image(struct slice image, const char *path, struct err *e) MUST_CHECK;

/* --- writing (store_write.c) --- */

/* The newest object of an id that changed in this batch, not yet written. */
struct store_pending {
    uint64_t id;
    struct dir_object *object; /* owns; NULL: gone again */
    struct store_span span;
};

struct store_pending_set {
    struct store_pending *items;
    uint32_t count, cap;
    uint32_t *slots; /* index into items, plus 1; open addressing */
    uint32_t slot_count;
};

struct store_writer {
    struct store_conn conn;
    struct store_pending_set partitions, nodes;
    struct buf scratch;
    uint64_t command_index, command_seq; /* of the last audit row */
    uint64_t command_count;
    dir_rev compacted, trimmed;
    uint32_t wal_pages, wal_next; /* in the WAL; and when to checkpoint */
};

/* Makes (STORE_CREATE: with an empty directory's meta row) or opens (STORE_WRITE) the file. */
enum err_code store_writer_open(struct store_writer *w,
                                const char *path,
                                enum store_mode mode,
                                struct err *e) MUST_CHECK;
void store_writer_close(struct store_writer *w);
/* Sets the applied index: a snapshot's may be of an entry that changed nothing. */
enum err_code store_writer_index(struct store_writer *w, uint64_t index, struct err *e) MUST_CHECK;
/* Writes the list in one transaction. Not empty; still the caller's. */
void store_writer_batch(struct store_writer *w, const struct dir_effects *effects);
uint64_t store_writer_image_bytes(struct store_writer *w);
/* One bounded piece of retention and checkpointing. `idle`: nothing waits. True when more is left.
 */
bool store_writer_tidy(struct store_writer *w, bool idle);

/* --- the store itself --- */

struct store_readers {
    pthread_mutex_t lock;
    pthread_cond_t freed;
    struct store_conn conns[STORE_READERS_MAX];
    bool used[STORE_READERS_MAX];
    unsigned in_use;
    bool closed; /* while the file is being replaced */
};

struct store {
    char *path; /* owns */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work;  /* to the thread */
    pthread_cond_t moved; /* from it: something was committed, held, or a snapshot went on */
    struct dir_effects *head, *tail;
    _Atomic uint64_t pushed, done; /* effects, ever */
    bool stop, hold, held;
    unsigned waiting; /* threads that wait for what is queued: it is written at once */
    struct store_snapshot *snapshot; /* the one being made, until its end */
    _Atomic uint64_t revision, index, image_bytes;
    struct store_writer writer; /* the thread's, or whoever holds it */
    struct store_readers readers;
};

/* After the writer was opened: what is committed. */
void store_note_committed(struct store *s, const struct dir_view_meta *meta);
/* Stops the thread between two batches and drops the queue; then lets it go on. */
void store_hold(struct store *s);
void store_release(struct store *s);
/* Sets `at` to CLOCK_MONOTONIC now plus this. */
struct timespec store_deadline(uint64_t timeout_ms);

/* The thread's part of a snapshot: opens its read transaction. Called without the lock. */
void store_snapshot_mark(struct store_snapshot *snap);
/* Is it the thread's turn? With the lock. */
bool store_snapshot_due(const struct store *s);
/* The place in the queue that a batch must not pass, or UINT64_MAX. With the lock. */
uint64_t store_snapshot_limit(const struct store *s);
void store_snapshot_claim(struct store *s);   /* with the lock, before marking */
void store_snapshot_publish(struct store *s); /* with the lock, after */

enum err_code store_readers_open(struct store *s, struct err *e) MUST_CHECK;
/* Waits until all are back, then closes them; store_readers_take() waits meanwhile. */
void store_readers_close(struct store *s);
/* NULL with ERR_OVERLOADED when none came free in time. */
struct store_conn *store_readers_take(struct store *s, struct err *e);
void store_readers_give(struct store *s, struct store_conn *c);

/* Takes a connection and begins; NULL with `e`. Ends and gives it back. */
struct store_conn *store_enter(struct store *s, struct err *e);
void store_leave(struct store *s, struct store_conn *c);
/* Starts or ends a read transaction. */
enum err_code store_read_begin(struct store_conn *c, struct err *e) MUST_CHECK;
void store_read_end(struct store_conn *c);

/* What history reaches: states after `compacted`, up to `revision`. In a transaction. */
enum err_code store_read_extent(struct store_conn *c,
                                dir_rev *ret_compacted,
                                dir_rev *ret_revision,
                                struct err *e) MUST_CHECK;

/* Steps: 1 a row, 0 the end, -1 an error in `e`. */
int store_read_step(struct store_conn *c, sqlite3_stmt *st, struct err *e);
/* The statement, or NULL with `e`. */
sqlite3_stmt *store_read_stmt(struct store_conn *c, enum store_sql which, struct err *e);

/* Steps to the next version: as store_read_step(). */
int store_one_version(struct store_conn *c,
                      sqlite3_stmt *st,
                      struct store_columns *row,
                      struct err *e);
/* SQL_VERSION_AT: as of revision `at`; _ONE: that began at it; _ANY: the newest. As
 * store_read_step(). */
int store_version_by_id(struct store_conn *c,
                        enum store_sql which,
                        uint64_t id,
                        dir_rev at,
                        struct store_columns *row,
                        struct err *e);

/* A version copied out of a transaction. `keys` owns what v.start and v.end point to. */
struct store_held {
    struct store_version v;
    uint8_t *keys;
};

/* Copies the columns; names and addresses as of revision `at`, and mod_revision as a route would
 * show it then. */
enum err_code store_copy_version(struct store_conn *c,
                                 const struct store_columns *row,
                                 dir_rev at,
                                 struct store_held *ret_held,
                                 struct err *e) MUST_CHECK;

#endif
