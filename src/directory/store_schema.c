/* SPDX-License-Identifier: Apache-2.0 */
/* Tables, statements and connections.
 *
 * partition_versions holds what is (to_revision NULL) and what was, by id, so that the versions of
 * one partition lie together. A version's columns are the whole object: the state hash, which is
 * over objects, proves them at each load. Small kinds keep the object's canonical bytes beside
 * columns for people. */
#include "directory/store_internal.h"

#include "base/assert.h"
#include "base/log.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define VERSION         "SELECT " STORE_VERSION_COLUMNS " FROM partition_versions "
#define ENDED_BY_DELETE "9" /* DIR_CHANGE_DELETE */
_Static_assert(DIR_CHANGE_DELETE == 9, "the index partition_last names it");

static const char tables[] =
    "CREATE TABLE meta ("
    " one INTEGER PRIMARY KEY CHECK (one = 1), format INTEGER NOT NULL, cluster TEXT NOT NULL,"
    " generation INTEGER NOT NULL, applied_index INTEGER NOT NULL, revision INTEGER NOT NULL,"
    " time_ms INTEGER NOT NULL, compacted INTEGER NOT NULL, next_id INTEGER NOT NULL,"
    " unplaced INTEGER NOT NULL, hash TEXT NOT NULL, history_retention_ms INTEGER NOT NULL,"
    " history_max INTEGER NOT NULL, dedupe_retention_ms INTEGER NOT NULL,"
    " lease_ms INTEGER NOT NULL, heartbeat_ms INTEGER NOT NULL,"
    " scalars BLOB NOT NULL) STRICT;"

    "CREATE TABLE partition_versions ("
    " id INTEGER NOT NULL, from_revision INTEGER NOT NULL, to_revision INTEGER,"
    " keyspace INTEGER NOT NULL, start_key BLOB NOT NULL, end_key BLOB, epoch INTEGER NOT NULL,"
    " mod_revision INTEGER NOT NULL, created INTEGER NOT NULL, state INTEGER NOT NULL,"
    " cause INTEGER NOT NULL, ended INTEGER, replicas TEXT NOT NULL, parent1 INTEGER,"
    " parent2 INTEGER, operation INTEGER, rate_limit INTEGER NOT NULL, pinned INTEGER NOT NULL,"
    " holds_data INTEGER NOT NULL, owner_since_ms INTEGER NOT NULL, from_ms INTEGER NOT NULL,"
    " to_ms INTEGER, session INTEGER, home INTEGER, held_by INTEGER, start_position INTEGER,"
    " moving INTEGER, under_since_ms INTEGER,"
    " PRIMARY KEY (id, from_revision)) STRICT, WITHOUT ROWID;"
    /* The newest map of each keyspace: the present one, or the last before it was removed. */
    "CREATE INDEX partition_last ON partition_versions (keyspace, start_key)"
    " WHERE to_revision IS NULL OR ended = " ENDED_BY_DELETE ";"
    "CREATE INDEX partition_begun ON partition_versions (keyspace, from_revision, start_key);"
    "CREATE INDEX partition_ended ON partition_versions (to_revision)"
    " WHERE to_revision IS NOT NULL;"

    "CREATE TABLE keyspace_versions ("
    " id INTEGER NOT NULL, from_revision INTEGER NOT NULL, to_revision INTEGER,"
    " from_ms INTEGER NOT NULL, to_ms INTEGER, name TEXT NOT NULL, scheme TEXT NOT NULL,"
    " hidden INTEGER NOT NULL, sync_replicas INTEGER NOT NULL, async_replicas INTEGER NOT NULL,"
    " policy TEXT NOT NULL, created INTEGER NOT NULL, object BLOB NOT NULL,"
    " PRIMARY KEY (id, from_revision)) STRICT, WITHOUT ROWID;"
    "CREATE INDEX keyspace_name ON keyspace_versions (name, from_revision);"
    "CREATE INDEX keyspace_ended ON keyspace_versions (to_revision)"
    " WHERE to_revision IS NOT NULL;"

    "CREATE TABLE nodes ("
    " id INTEGER PRIMARY KEY, name TEXT NOT NULL, address TEXT NOT NULL,"
    " is_static INTEGER NOT NULL, lost INTEGER NOT NULL, scheduling INTEGER NOT NULL,"
    " session INTEGER NOT NULL, ended INTEGER NOT NULL, partition_count INTEGER NOT NULL, created "
    "INTEGER NOT NULL,"
    " mod_revision INTEGER NOT NULL, object BLOB NOT NULL) STRICT;"
    /* Only what routes show of a node makes a version. */
    "CREATE TABLE node_versions ("
    " id INTEGER NOT NULL, from_revision INTEGER NOT NULL, to_revision INTEGER,"
    " from_ms INTEGER NOT NULL, to_ms INTEGER, name TEXT NOT NULL, address TEXT NOT NULL,"
    " is_static INTEGER NOT NULL, created INTEGER NOT NULL, route_revision INTEGER NOT NULL,"
    " PRIMARY KEY (id, from_revision)) STRICT, WITHOUT ROWID;"
    "CREATE INDEX node_begun ON node_versions (from_revision);"
    "CREATE INDEX node_ended ON node_versions (to_revision) WHERE to_revision IS NOT NULL;";

static const char more_tables[] =
    "CREATE TABLE tombstones ("
    " id INTEGER PRIMARY KEY, keyspace INTEGER NOT NULL, cause INTEGER NOT NULL,"
    " retired INTEGER NOT NULL, last_epoch INTEGER NOT NULL, start_key BLOB NOT NULL,"
    " end_key BLOB, successors TEXT NOT NULL) STRICT;"
    "CREATE TABLE servers ("
    " id INTEGER PRIMARY KEY, role INTEGER NOT NULL, raft_address TEXT NOT NULL,"
    " api_url TEXT NOT NULL, removed INTEGER NOT NULL, object BLOB NOT NULL) STRICT;"
    "CREATE TABLE operations ("
    " id INTEGER PRIMARY KEY, keyspace INTEGER NOT NULL, partition INTEGER NOT NULL,"
    " kind TEXT NOT NULL, state TEXT NOT NULL, stage TEXT NOT NULL, attempt INTEGER NOT NULL,"
    " revision INTEGER NOT NULL, at_ms INTEGER NOT NULL, source TEXT NOT NULL,"
    " destination TEXT NOT NULL, initiator TEXT NOT NULL, reason TEXT NOT NULL,"
    " object BLOB NOT NULL) STRICT;"
    "CREATE TABLE duties ("
    " id INTEGER PRIMARY KEY, node INTEGER NOT NULL, partition INTEGER NOT NULL,"
    " copy INTEGER NOT NULL, keyspace TEXT NOT NULL, revision INTEGER NOT NULL,"
    " object BLOB NOT NULL) STRICT;"
    "CREATE TABLE proposals ("
    " id INTEGER PRIMARY KEY, kind TEXT NOT NULL, state TEXT NOT NULL, class INTEGER NOT NULL,"
    " keyspace TEXT NOT NULL, partition INTEGER NOT NULL, source TEXT NOT NULL,"
    " destination TEXT NOT NULL, reason TEXT NOT NULL, made_ms INTEGER NOT NULL,"
    " object BLOB NOT NULL) STRICT;"
    "CREATE TABLE balancer ("
    " id INTEGER PRIMARY KEY CHECK (id = 1), mode TEXT NOT NULL, paused INTEGER NOT NULL,"
    " revision INTEGER NOT NULL, object BLOB NOT NULL) STRICT;"
    "CREATE TABLE dedupe ("
    " arrival INTEGER PRIMARY KEY, principal TEXT NOT NULL, key TEXT NOT NULL,"
    " at_ms INTEGER NOT NULL, revision INTEGER NOT NULL, digest BLOB NOT NULL,"
    " result BLOB NOT NULL) STRICT;"
    "CREATE TABLE commands ("
    " idx INTEGER NOT NULL, seq INTEGER NOT NULL, revision INTEGER NOT NULL,"
    " time_ms INTEGER NOT NULL, what TEXT NOT NULL, principal TEXT NOT NULL, remote TEXT NOT NULL,"
    " request_id TEXT NOT NULL, key TEXT NOT NULL, subject TEXT NOT NULL, outcome TEXT NOT NULL,"
    " reason TEXT NOT NULL,"
    " PRIMARY KEY (idx, seq)) STRICT, WITHOUT ROWID;";

/* For people with the sqlite3 shell. */
static const char views[] =
    "CREATE VIEW keyspaces AS SELECT id, name, scheme, sync_replicas, async_replicas, policy,"
    " created, from_revision AS mod_revision FROM keyspace_versions"
    " WHERE to_revision IS NULL AND hidden = 0;"
    "CREATE VIEW partitions AS SELECT k.name AS keyspace, p.id AS partition,"
    " CASE k.scheme WHEN 'hash' THEN hex(p.start_key) ELSE CAST(p.start_key AS TEXT) END AS start,"
    " CASE k.scheme WHEN 'hash' THEN hex(p.end_key) ELSE CAST(p.end_key AS TEXT) END AS stop,"
    " p.epoch, n.name AS primary_node, n.address, p.replicas,"
    " CASE p.state WHEN 1 THEN 'active' WHEN 2 THEN 'fencing' ELSE 'unavailable' END AS state,"
    " p.from_revision FROM partition_versions p"
    " JOIN keyspace_versions k ON k.id = p.keyspace AND k.to_revision IS NULL"
    " LEFT JOIN nodes n ON p.replicas LIKE '%=primary%' AND n.id = CAST(p.replicas AS INTEGER)"
    " WHERE p.to_revision IS NULL;";

static const char *const texts[SQL_COUNT] = {
    [SQL_BEGIN] = "BEGIN",
    [SQL_BEGIN_WRITE] = "BEGIN IMMEDIATE",
    [SQL_COMMIT] = "COMMIT",
    [SQL_PAGE_COUNT] = "PRAGMA page_count",
    [SQL_META_PUT] =
        "INSERT OR REPLACE INTO meta VALUES (1,?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,"
        "?16)",
    [SQL_META_GET] =
        "SELECT scalars,format,generation,applied_index,revision,compacted,hash FROM meta",
    [SQL_VERSION_PUT] = "INSERT OR REPLACE INTO partition_versions (" STORE_VERSION_COLUMNS
                        ") VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16,?17,"
                        "?18,?19,?20,?21,?22,?23,?24,?25,?26,?27,?28)",
    [SQL_VERSION_CLOSE] = "UPDATE partition_versions SET to_revision=?2,to_ms=?3,ended=?4"
                          " WHERE id=?1 AND from_revision=(SELECT max(from_revision)"
                          " FROM partition_versions WHERE id=?1)"
                          " AND to_revision IS NULL AND from_revision<?2",
    [SQL_KEYSPACE_PUT] = "INSERT OR REPLACE INTO keyspace_versions"
                         " VALUES (?1,?2,NULL,?3,NULL,?4,?5,?6,?7,?8,?9,?10,?11)",
    [SQL_KEYSPACE_CLOSE] = "UPDATE keyspace_versions SET to_revision=?2,to_ms=?3"
                           " WHERE id=?1 AND to_revision IS NULL AND from_revision<?2",
    [SQL_NODE_PUT] = "INSERT OR REPLACE INTO nodes VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,"
                     "?12)",
    [SQL_NODE_REMOVE] = "DELETE FROM nodes WHERE id=?1",
    [SQL_NODE_VERSION_PUT] = "INSERT OR REPLACE INTO node_versions"
                             " VALUES (?1,?2,NULL,?3,NULL,?4,?5,?6,?7,?8)",
    [SQL_NODE_VERSION_CLOSE] = "UPDATE node_versions SET to_revision=?2,to_ms=?3"
                               " WHERE id=?1 AND to_revision IS NULL AND from_revision<?2",
    [SQL_TOMBSTONE_PUT] = "INSERT OR REPLACE INTO tombstones VALUES (?1,?2,?3,?4,?5,?6,?7,?8)",
    [SQL_TOMBSTONE_REMOVE] = "DELETE FROM tombstones WHERE id=?1",
    [SQL_SERVER_PUT] = "INSERT OR REPLACE INTO servers VALUES (?1,?2,?3,?4,?5,?6)",
    [SQL_SERVER_REMOVE] = "DELETE FROM servers WHERE id=?1",
    [SQL_OPERATION_PUT] = "INSERT OR REPLACE INTO operations"
                          " VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14)",
    [SQL_OPERATION_REMOVE] = "DELETE FROM operations WHERE id=?1",
    [SQL_DUTY_PUT] = "INSERT OR REPLACE INTO duties VALUES (?1,?2,?3,?4,?5,?6,?7)",
    [SQL_DUTY_REMOVE] = "DELETE FROM duties WHERE id=?1",
    [SQL_PROPOSAL_PUT] =
        "INSERT OR REPLACE INTO proposals VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11)",
    [SQL_PROPOSAL_REMOVE] = "DELETE FROM proposals WHERE id=?1",
    [SQL_BALANCER_PUT] = "INSERT OR REPLACE INTO balancer VALUES (?1,?2,?3,?4,?5)",
    [SQL_DEDUPE_PUT] = "INSERT OR REPLACE INTO dedupe VALUES (?1,?2,?3,?4,?5,?6,?7)",
    [SQL_DEDUPE_REMOVE] = "DELETE FROM dedupe WHERE arrival=?1",
    [SQL_COMMAND_PUT] = "INSERT INTO commands VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12)",
    [SQL_COMMANDS_COUNT] = "SELECT (SELECT count(*) FROM commands), idx, seq FROM commands"
                           " ORDER BY idx DESC, seq DESC LIMIT 1",
    [SQL_COMMANDS_OLDEST] = "SELECT idx,seq,revision FROM commands ORDER BY idx,seq LIMIT ?1",
    [SQL_COMMANDS_TRIM] = "DELETE FROM commands WHERE (idx,seq)<=(?1,?2)",
    [SQL_VERSIONS_TRIM] = "DELETE FROM partition_versions WHERE (id,from_revision) IN"
                          " (SELECT id,from_revision FROM partition_versions"
                          " INDEXED BY partition_ended WHERE to_revision<=?1"
                          " ORDER BY to_revision LIMIT ?2)",
    [SQL_KEYSPACES_TRIM] = "DELETE FROM keyspace_versions INDEXED BY keyspace_ended"
                           " WHERE to_revision<=?1",
    [SQL_NODES_TRIM] = "DELETE FROM node_versions INDEXED BY node_ended WHERE to_revision<=?1",
    [SQL_LOAD_PARTITIONS] = VERSION "WHERE to_revision IS NULL",
    [SQL_LOAD_KEYSPACES] = "SELECT object,id,name FROM keyspace_versions WHERE to_revision IS NULL",
    [SQL_LOAD_NODES] = "SELECT object,id,name,address FROM nodes",
    [SQL_LOAD_TOMBSTONES] =
        "SELECT id,keyspace,cause,retired,last_epoch,start_key,end_key,successors FROM tombstones",
    [SQL_LOAD_SERVERS] = "SELECT object,id,raft_address FROM servers",
    [SQL_LOAD_OPERATIONS] = "SELECT object,id,partition FROM operations",
    [SQL_LOAD_DUTIES] = "SELECT object,id,node FROM duties",
    [SQL_LOAD_PROPOSALS] = "SELECT object,id,partition FROM proposals",
    [SQL_LOAD_BALANCER] = "SELECT object,id,revision FROM balancer",
    [SQL_LOAD_DEDUPE] = "SELECT arrival,principal,key,at_ms,revision,digest,result FROM dedupe",
    [SQL_KEYSPACE_AT] = "SELECT object,id,name FROM keyspace_versions WHERE name=?1 AND"
                        " from_revision<=?2 AND (to_revision IS NULL OR to_revision>?2)"
                        " AND hidden=0 LIMIT 1",
    [SQL_KEYSPACE_LIFE] = "SELECT min(from_revision) FILTER (WHERE hidden=0),"
                          " max(ifnull(to_revision,0)), sum(to_revision IS NULL)"
                          " FROM keyspace_versions WHERE id=?1",
    [SQL_VERSION_LAST_FLOOR] =
        "SELECT " STORE_VERSION_COLUMNS " FROM partition_versions INDEXED BY partition_last"
        " WHERE keyspace=?1 AND start_key<=?2 AND"
        " (to_revision IS NULL OR ended = " ENDED_BY_DELETE ")"
        " ORDER BY start_key DESC LIMIT 1",
    [SQL_VERSION_AT] =
        VERSION "WHERE id=?1 AND from_revision<=?2 ORDER BY from_revision DESC LIMIT 1",
    [SQL_VERSION_ANY] = VERSION "WHERE id=?1 ORDER BY from_revision DESC LIMIT 1",
    [SQL_VERSION_ONE] = VERSION "WHERE id=?1 AND from_revision=?2",
    [SQL_HISTORY] = VERSION "WHERE id=?1 AND from_revision>?2 ORDER BY from_revision LIMIT ?3",
    [SQL_NODE_AT] = "SELECT name,address,route_revision,is_static FROM node_versions"
                    " WHERE id=?1 AND from_revision<=?2 ORDER BY from_revision DESC LIMIT 1",
    [SQL_NODE_EARLIEST] = "SELECT name,address,route_revision,is_static FROM node_versions"
                          " WHERE id=?1 ORDER BY from_revision LIMIT 1",
    [SQL_EVENTS_BEGUN] = "SELECT " STORE_VERSION_COLUMNS
                         " FROM partition_versions INDEXED BY partition_begun WHERE keyspace=?1"
                         " AND (from_revision,start_key)>=(?4,?2) AND from_revision<=?5"
                         " ORDER BY from_revision,start_key LIMIT ?3",
    [SQL_EVENTS_DELETED] =
        "SELECT " STORE_VERSION_COLUMNS " FROM partition_versions INDEXED BY partition_last"
        " WHERE keyspace=?1 AND start_key>=?2 AND"
        " (to_revision IS NULL OR ended = " ENDED_BY_DELETE ")"
        " ORDER BY start_key LIMIT ?3",
    [SQL_EVENTS_NODES] = "SELECT id,from_revision FROM node_versions INDEXED BY node_begun"
                         " WHERE from_revision>?1 AND from_revision<=?2 AND from_revision>created"
                         " ORDER BY from_revision",
    [SQL_SCAN] = VERSION "WHERE (id,from_revision)>(?1,?2) ORDER BY id,from_revision LIMIT ?3",
    [SQL_EXTENT] = "SELECT compacted,revision FROM meta",
    [SQL_AUDIT] =
        "SELECT idx,time_ms,revision,what,principal,remote,request_id,key,subject,outcome,"
        "reason FROM commands WHERE idx<?1 ORDER BY idx DESC,seq DESC",
};

static enum err_code run(struct store_conn *c, const char *sql, struct err *e)
{
    int rc = sqlite3_exec(c->db, sql, NULL, NULL, NULL);
    return rc == SQLITE_OK ? ERR_OK : store_judge_failed(c, e);
}

/* The file is rebuilt from a snapshot at each start, so it is never synced; deleted rows need not
 * be overwritten. The store's thread checkpoints between batches, never inside a commit. */
static const char writer_pragmas[] =
    "PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF; PRAGMA wal_autocheckpoint=0;"
    "PRAGMA secure_delete=OFF; PRAGMA cache_size=-196608; PRAGMA journal_size_limit=67108864;"
    "PRAGMA temp_store=MEMORY;";
static const char reader_pragmas[] =
    "PRAGMA query_only=ON; PRAGMA cache_size=-8192; PRAGMA wal_autocheckpoint=0;";

static enum err_code prepare(struct store_conn *c, enum store_mode mode, struct err *e)
{
    (void)sqlite3_extended_result_codes(c->db, 1);
    (void)sqlite3_busy_timeout(c->db, STORE_BUSY_MS);
    (void)sqlite3_db_config(c->db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, NULL);
    (void)sqlite3_db_config(c->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    if (mode == STORE_READ) {
        return run(c, reader_pragmas, e);
    }
    enum err_code rc = run(c, writer_pragmas, e);
    if (rc == ERR_OK && mode == STORE_CREATE) {
        rc = run(c, tables, e);
        rc = rc == ERR_OK ? run(c, more_tables, e) : rc;
    }
    return rc == ERR_OK && mode == STORE_CREATE ? run(c, views, e) : rc;
}

enum err_code
store_conn_open(struct store_conn *c, const char *path, enum store_mode mode, struct err *e)
{
    *c = (struct store_conn){.path = mem_strdup(path)};
    int flags = SQLITE_OPEN_NOMUTEX;
    flags |= mode == STORE_READ ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE;
    flags |= mode == STORE_CREATE ? SQLITE_OPEN_CREATE : 0;
    int rc = sqlite3_open_v2(path, &c->db, flags, NULL);
    if (rc != SQLITE_OK) {
        (void)err_set(e, ERR_IO, "%s: %s", path, sqlite3_errstr(rc));
        store_conn_close(c);
        return ERR_IO;
    }
    enum err_code code = prepare(c, mode, e);
    if (code != ERR_OK) {
        store_conn_close(c);
    }
    return code;
}

void store_conn_close(struct store_conn *c)
{
    for (int i = 0; i < SQL_COUNT; i++) {
        (void)sqlite3_finalize(c->stmts[i]); /* repeats the step's error */
    }
    int rc = sqlite3_close(c->db);
    ASSERT(rc == SQLITE_OK);
    mem_free(c->path);
    *c = (struct store_conn){0};
}

sqlite3_stmt *store_conn_stmt(struct store_conn *c, enum store_sql which)
{
    sqlite3_stmt **st = &c->stmts[which];
    if (*st != NULL) {
        (void)sqlite3_reset(*st); /* repeats the last step's error, which was handled there */
    } else if (sqlite3_prepare_v3(c->db, texts[which], -1, SQLITE_PREPARE_PERSISTENT, st, NULL) !=
               SQLITE_OK) {
        return NULL;
    }
    return *st;
}

void store_unlink(const char *path)
{
    static const char *const ends[] = {"", "-wal", "-shm", "-journal"};
    for (unsigned i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        char *name = mem_printf("%s%s", path, ends[i]);
        (void)unlink(name); /* what can't be removed fails where it is made anew */
        mem_free(name);
    }
}

void store_die(const struct store_conn *c, const char *event)
{
    char file[512], reason[512];
    int rc = sqlite3_extended_errcode(c->db);
    log_fatal(EXIT_DATA, event, "file=%s error=%s code=%d", log_quote(c->path, file, sizeof file),
              log_quote(sqlite3_errmsg(c->db), reason, sizeof reason), rc);
}

static bool is_damage(int extended)
{
    int rc = extended & 0xff;
    return rc == SQLITE_CORRUPT || rc == SQLITE_IOERR || rc == SQLITE_FULL || rc == SQLITE_NOTADB ||
           rc == SQLITE_CANTOPEN || rc == SQLITE_NOMEM;
}

void store_read_failed(struct store_conn *c, struct err *e)
{
    int rc = sqlite3_extended_errcode(c->db);
    if (c->is_lent) {
        (void)!store_judge_failed(c, e);
        return;
    }
    if (is_damage(rc)) {
        store_die(c, "store.read.failed");
    }
    enum err_code code = (rc & 0xff) == SQLITE_BUSY ? ERR_OVERLOADED : ERR_INTERNAL;
    (void)err_set(e, code, "the store: %s", sqlite3_errmsg(c->db));
}

enum err_code store_judge_failed(const struct store_conn *c, struct err *e)
{
    int rc = sqlite3_extended_errcode(c->db) & 0xff;
    bool disk = rc == SQLITE_IOERR || rc == SQLITE_FULL || rc == SQLITE_CANTOPEN ||
                rc == SQLITE_NOMEM || rc == SQLITE_BUSY || rc == SQLITE_PERM;
    return err_set(e, disk ? ERR_IO : ERR_CORRUPT, "%s: %s", c->path, sqlite3_errmsg(c->db));
}

sqlite3_stmt *store_write_stmt(struct store_conn *c, enum store_sql which)
{
    sqlite3_stmt *st = store_conn_stmt(c, which);
    if (st == NULL) {
        store_die(c, "store.write.failed");
    }
    return st;
}

void store_write_run(struct store_conn *c, sqlite3_stmt *st)
{
    if (sqlite3_step(st) != SQLITE_DONE) {
        store_die(c, "store.write.failed");
    }
    (void)sqlite3_reset(st); /* SQLITE_OK after a step that was done */
}

/* Our texts have no embedded NUL, our blobs are far below SQLite's limits, and indexes are
 * constants: what is left to fail is memory, which ends the process as it does elsewhere. */
static void bound(int rc)
{
    ASSERT(rc == SQLITE_OK);
}

void store_bind_u64(sqlite3_stmt *st, int at, uint64_t v)
{
    bound(sqlite3_bind_int64(st, at, (sqlite3_int64)v));
}

void store_bind_u64_or_null(sqlite3_stmt *st, int at, uint64_t v)
{
    bound(v != 0 ? sqlite3_bind_int64(st, at, (sqlite3_int64)v) : sqlite3_bind_null(st, at));
}

void store_bind_text(sqlite3_stmt *st, int at, const char *text)
{
    bound(sqlite3_bind_text(st, at, text, -1, SQLITE_STATIC));
}

void store_bind_bytes(sqlite3_stmt *st, int at, struct slice bytes)
{
    const void *data = bytes.len > 0 ? bytes.data : (const uint8_t *)""; /* NULL would be NULL */
    bound(sqlite3_bind_blob64(st, at, data, bytes.len, SQLITE_STATIC));
}

uint64_t store_column_u64(sqlite3_stmt *st, int at)
{
    return (uint64_t)sqlite3_column_int64(st, at);
}

struct slice store_column_bytes(sqlite3_stmt *st, int at)
{
    const void *data = sqlite3_column_blob(st, at);
    return slice_of(data, (size_t)sqlite3_column_bytes(st, at));
}

bool store_column_text(sqlite3_stmt *st, int at, char *out, size_t size)
{
    const unsigned char *text = sqlite3_column_text(st, at);
    size_t len = (size_t)sqlite3_column_bytes(st, at);
    if (text == NULL || len >= size || memchr(text, '\0', len) != NULL) {
        return false;
    }
    memcpy(out, text, len + 1);
    return true;
}
