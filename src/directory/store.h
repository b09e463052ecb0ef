/* SPDX-License-Identifier: Apache-2.0 */
/* The store: what apply changed, in SQLite, written by a thread of its own in order and in batches
 * (each one transaction: rows, applied index, revision, hash, history and audit). Nothing depends
 * on the file after a crash: it is rebuilt from the snapshot at each start, so it runs with
 * synchronous=OFF. Any SQLite error ends the process (EXIT_DATA, with file and reason).
 *
 * It is the source of snapshots, history and backups. Reads open short transactions on connections
 * of their own. */
#ifndef DIRECTORY_STORE_H
#define DIRECTORY_STORE_H

#include "directory/directory.h"

enum {
    STORE_QUEUE_MAX =
        65536, /* effects that wait; store_lag() tells the leader to hold commands back at half */
    STORE_IMAGE_MAX =
        1
        << 30, /* bytes of a snapshot image (libraft can't load 2 GiB); growth is refused before */
    STORE_READERS_MAX = 8 /* connections for reads */
};

struct store;

/* Opens `path` anew (an old file is removed), with the tables, and starts the thread. */
enum err_code store_open(const char *path, struct store **ret_store, struct err *e) MUST_CHECK;
/* Writes what waits, ends the thread. */
void store_close(struct store *s);

/* Takes over the list. Blocks only while STORE_QUEUE_MAX effects wait. Loop thread. */
void store_push(struct store *s, struct dir_effects *effects);
/* Effects that wait now. Any thread. */
uint64_t store_lag(const struct store *s);
/* Blocks until everything pushed before the call is committed. Any thread but the store's. */
void store_flush(struct store *s);
/* The revision and index that are committed. Any thread. */
dir_rev store_revision(const struct store *s);
/* Bytes of the image that a snapshot would have, as of the last batch. Any thread. */
uint64_t store_image_bytes(const struct store *s);

/* --- snapshots: header (magic, format version, index, generation, state hash, XXH3 of the image),
 * then the image --- */

struct store_snapshot; /* one being made */

/* Marks this place in the queue; the image will hold exactly what was pushed before. Loop thread;
 * at most one. */
struct store_snapshot *store_snapshot_begin(struct store *s, uint64_t index);
/* Blocks until the image is there; gives two pieces, header and image, that live until
 * store_snapshot_end(). Once for each snapshot. ERR_NOT_READY when a restore overtook it,
 * ERR_LIMIT_EXCEEDED when the image is over STORE_IMAGE_MAX. Pool thread. */
enum err_code store_snapshot_wait(struct store_snapshot *snap,
                                  struct slice ret_pieces[2],
                                  struct err *e) MUST_CHECK;
/* Not while store_snapshot_wait() runs. Any thread. */
void store_snapshot_end(struct store_snapshot *snap);

/* Replaces the store's content by a snapshot's (both pieces in one run of bytes) and loads `d` from
 * it. The store is idle: everything pushed is dropped, for the snapshot is newer. ERR_CORRUPT
 * (nothing changed) when a checksum, the format or an invariant is wrong. Loop thread. */
enum err_code store_restore(struct store *s,
                            struct directory *d,
                            struct slice snapshot,
                            struct err *e) MUST_CHECK;

/* The directory that a file has, a backup's as well; the caller owns it. ERR_CORRUPT, or what
 * SQLite says. The file stays as it is. */
enum err_code
store_read_file(const char *path, struct directory **ret_directory, struct err *e) MUST_CHECK;

/* Opens a file as `cadastred check` does: read-only, loads it into a fresh directory and verifies
 * all of it, including history and tombstones. Prints a line per violation through `report`.
 * Returns how many, or ERR in `e`. */
enum err_code store_check_file(const char *path,
                               void (*report)(void *arg, const char *line),
                               void *arg,
                               uint64_t *ret_violations,
                               struct err *e) MUST_CHECK;

/* The same for snapshot bytes. */
enum err_code store_check_snapshot(struct slice snapshot,
                                   const char *scratch_path,
                                   void (*report)(void *arg, const char *line),
                                   void *arg,
                                   uint64_t *ret_violations,
                                   struct err *e) MUST_CHECK;

/* --- reads (any thread but the loop and the store's; each is one short transaction) --- */

/* A partition as it was, with the names and addresses of then. */
struct store_version {
    uint64_t partition, keyspace;
    dir_rev epoch, mod_revision, from_revision;
    dir_rev to_revision; /* 0: still so */
    uint64_t from_ms, to_ms;
    uint8_t state, cause, replica_count, parent_count;
    bool pinned, end_open;
    uint64_t rate_limit;
    uint64_t parents[DIR_PARENTS_MAX];
    uint64_t operation;      /* the one that made it, or 0 */
    uint64_t held_by;        /* the one that held it, or 0 */
    uint8_t moving;          /* in which stage: enum dir_stage */
    struct slice start, end; /* valid during the callback */
    struct {
        uint8_t role;
        bool is_static; /* the node of then had no agent: as primary, it makes the authority static
                         */
        char name[DIR_NAME_MAX + 1], address[DIR_ADDRESS_MAX + 1];
    } replicas[DIR_REPLICAS_MAX];
};

/* Waits (at most timeout_ms) until `revision` is committed to the store. ERR_BEHIND after. */
enum err_code
store_await(struct store *s, dir_rev revision, uint64_t timeout_ms, struct err *e) MUST_CHECK;

/* A keyspace as it was at a revision, by name; reference to the caller, or NULL (none, or
 * compacted: see view). */
struct dir_keyspace *store_keyspace_at(struct store *s, struct slice name, dir_rev revision);

/* The version of the partition that held `routing_key` at `revision`, as a route showed it then
 * (mod_revision, names, addresses). ERR_PARTITION_NOT_FOUND when none did; ERR_COMPACTED,
 * ERR_BEHIND when `revision` is out of history. */
enum err_code store_route_at(struct store *s,
                             uint64_t keyspace,
                             struct slice routing_key,
                             dir_rev revision,
                             void (*fn)(void *arg, const struct store_version *v),
                             void *arg,
                             struct err *e) MUST_CHECK;

/* All kept versions of one partition, oldest first, with names and addresses of when each began. */
enum err_code store_history(struct store *s,
                            uint64_t partition,
                            bool (*fn)(void *arg, const struct store_version *v),
                            void *arg,
                            struct err *e) MUST_CHECK;

/* What changed in a keyspace in (from, to], by (revision, start): for diff, and for changes older
 * than the ring. Each version that began there; each partition that ended there without a newer
 * version (`removed`; at one revision those that a split or merge retired come before what replaced
 * them, a removed keyspace's last of all); and, as DIR_CHANGE_NODE, each version that stayed while
 * what a route shows of one of its nodes changed, named as of then. A keyspace created in chunks
 * appears whole, as DIR_CHANGE_CREATE, at the revision that made it visible. Pins (DIR_CHANGE_PIN)
 * are versions too, though routes don't show them: their mod_revision is an earlier one.
 * ERR_COMPACTED when history no longer reaches back to `from`, or when changes of nodes alone
 * touched over 2^20 routes; ERR_BEHIND when the store has not reached `to`. `fn` returns false to
 * stop; events are delivered as they are read. */
struct store_event {
    dir_rev revision;
    enum dir_change_kind kind;
    bool removed; /* the partition ended at `revision` without a newer version */
    struct store_version version;
};
enum err_code store_events(struct store *s,
                           uint64_t keyspace,
                           dir_rev from,
                           dir_rev to,
                           bool (*fn)(void *arg, const struct store_event *ev),
                           void *arg,
                           struct err *e) MUST_CHECK;

/* The audit: one row a command, newest first, of entries before index `before` (0: from the
 * newest). The commands of one entry share its index, and are never cut apart: there may be a few
 * rows more than `max`, and the last row's index is the next page's `before`. */
struct store_audit {
    uint64_t index, at_ms;
    dir_rev revision;
    const char *what, *principal, *remote, *request_id, *idempotency_key, *subject, *outcome;
    const char *reason; /* that whoever sent it gave; "" */
};
enum err_code store_audit(struct store *s,
                          uint64_t before,
                          uint64_t max,
                          void (*fn)(void *arg, const struct store_audit *row),
                          void *arg,
                          struct err *e) MUST_CHECK;

/* A consistent copy of the database file, as of now, written to `path`. */
enum err_code
store_backup(struct store *s, const char *path, dir_rev *ret_revision, struct err *e) MUST_CHECK;

#endif
