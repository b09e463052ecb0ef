/* SPDX-License-Identifier: Apache-2.0 */
/* The store's connections and statements, and what an error of SQLite means. For
 * src/directory/store*.c alone.
 *
 * A connection is used by one thread at a time. */
#ifndef DIRECTORY_STORE_SQL_H
#define DIRECTORY_STORE_SQL_H

#include "base/buf.h"
#include "base/err.h"

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

#define STORE_VERSION_COLUMNS                                                                      \
    "id,from_revision,to_revision,keyspace,start_key,end_key,epoch,mod_revision,created,state,"    \
    "cause,ended,replicas,parent1,parent2,operation,rate_limit,pinned,holds_data,"                 \
    "owner_since_ms,from_ms,to_ms,session,home,held_by,start_position,moving,under_since_ms"

enum store_sql {
    SQL_BEGIN,
    SQL_BEGIN_WRITE,
    SQL_COMMIT,
    SQL_PAGE_COUNT,
    SQL_META_PUT,
    SQL_META_GET,
    SQL_VERSION_PUT,
    SQL_VERSION_CLOSE,
    SQL_KEYSPACE_PUT,
    SQL_KEYSPACE_CLOSE,
    SQL_NODE_PUT,
    SQL_NODE_REMOVE,
    SQL_NODE_VERSION_PUT,
    SQL_NODE_VERSION_CLOSE,
    SQL_TOMBSTONE_PUT,
    SQL_TOMBSTONE_REMOVE,
    SQL_SERVER_PUT,
    SQL_SERVER_REMOVE,
    SQL_OPERATION_PUT,
    SQL_OPERATION_REMOVE,
    SQL_DUTY_PUT,
    SQL_DUTY_REMOVE,
    SQL_PROPOSAL_PUT,
    SQL_PROPOSAL_REMOVE,
    SQL_BALANCER_PUT,
    SQL_DEDUPE_PUT,
    SQL_DEDUPE_REMOVE,
    SQL_COMMAND_PUT,
    SQL_COMMANDS_COUNT,
    SQL_COMMANDS_OLDEST,
    SQL_COMMANDS_TRIM,
    SQL_VERSIONS_TRIM,
    SQL_KEYSPACES_TRIM,
    SQL_NODES_TRIM,
    SQL_LOAD_PARTITIONS,
    SQL_LOAD_KEYSPACES,
    SQL_LOAD_NODES,
    SQL_LOAD_TOMBSTONES,
    SQL_LOAD_SERVERS,
    SQL_LOAD_OPERATIONS,
    SQL_LOAD_DUTIES,
    SQL_LOAD_PROPOSALS,
    SQL_LOAD_BALANCER,
    SQL_LOAD_DEDUPE,
    SQL_KEYSPACE_AT,
    SQL_KEYSPACE_LIFE,
    SQL_VERSION_LAST_FLOOR,
    SQL_VERSION_AT,
    SQL_VERSION_ANY,
    SQL_VERSION_ONE,
    SQL_HISTORY,
    SQL_NODE_AT,
    SQL_NODE_EARLIEST,
    SQL_EVENTS_BEGUN,
    SQL_EVENTS_DELETED,
    SQL_EVENTS_NODES,
    SQL_SCAN,
    SQL_AUDIT,
    SQL_EXTENT,
    SQL_COUNT
};

struct store_conn {
    sqlite3 *db;
    char *path;   /* owns */
    bool is_lent; /* not the store of this process: damage is its caller's to tell */
    sqlite3_stmt *stmts[SQL_COUNT];
};

enum store_mode {
    STORE_CREATE, /* a new file, for the store's thread */
    STORE_WRITE,  /* an existing one, for the same */
    STORE_READ    /* for readers, snapshots, checks */
};

/* ERR_IO or ERR_CORRUPT with the reason; then nothing is open. */
enum err_code store_conn_open(struct store_conn *c,
                              const char *path,
                              enum store_mode mode,
                              struct err *e) MUST_CHECK;
/* Accepts a zeroed one. */
void store_conn_close(struct store_conn *c);

/* Prepared once, then kept; reset and ready to bind. NULL on an error. */
sqlite3_stmt *store_conn_stmt(struct store_conn *c, enum store_sql which);

/* Removes a database and what SQLite puts beside it. Missing files are fine. */
void store_unlink(const char *path);

/* Ends the process: the file that is the store can't be written or read. */
_Noreturn void store_die(const struct store_conn *c, const char *event);
/* Puts the last error of a read into `e`. Ends the process when it means damage or a failed disk,
 * unless the file is lent. */
void store_read_failed(struct store_conn *c, struct err *e);
/* The last error of a file that is being judged: ERR_CORRUPT or ERR_IO, never the end. */
enum err_code store_judge_failed(const struct store_conn *c, struct err *e) MUST_CHECK;

/* For the write side: any error ends the process. */
sqlite3_stmt *store_write_stmt(struct store_conn *c, enum store_sql which);
void store_write_run(struct store_conn *c, sqlite3_stmt *st); /* no row expected */

/* Bind; the memory must live until the step. A failure surfaces at the step. */
void store_bind_u64(sqlite3_stmt *st, int at, uint64_t v);
void store_bind_u64_or_null(sqlite3_stmt *st, int at, uint64_t v); /* 0 is NULL */
void store_bind_text(sqlite3_stmt *st, int at, const char *text);
void store_bind_bytes(sqlite3_stmt *st, int at, struct slice bytes);

uint64_t store_column_u64(sqlite3_stmt *st, int at);
struct slice store_column_bytes(sqlite3_stmt *st, int at); /* until the next step or reset */
/* Copies text that fits in `size` with its NUL; false when it does not. */
bool store_column_text(sqlite3_stmt *st, int at, char *out, size_t size);

#endif
