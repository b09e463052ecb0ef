/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots: the store's file as it is at one place of the queue, behind a header.
 *
 * When the thread reaches the marker it opens a read transaction on a connection of the snapshot's
 * own, and goes on writing. The pool thread copies from that connection into memory and ends the
 * transaction at once, so that the WAL is pinned only while the copy runs. (The backup interface is
 * used, since sqlite3_serialize() gives zeros for a page that it fails to read.) */
#include "directory/store_internal.h"

#include "base/assert.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* WAITING for the thread -> OPENING by it -> READY to be copied -> COPYING -> COPIED. A snapshot
 * that a restore overtook is CANCELLED. */
enum state { WAITING, OPENING, READY, COPYING, COPIED, CANCELLED };

struct store_snapshot {
    struct store *store; /* borrows */
    uint64_t index;
    uint64_t place; /* effects pushed before it */
    enum state state;
    struct store_conn conn; /* holds the read transaction, from OPENING until COPIED */
    struct dir_view_meta meta;
    sqlite3 *memory; /* holds the image */
    uint8_t header[STORE_HEADER_SIZE];
    struct slice image;
};

/* --- the header --- */

static void put_u64(uint8_t *out, uint64_t v)
{
    for (unsigned i = 0; i < 8; i++) {
        out[i] = (uint8_t)(v >> (8 * i));
    }
}

static uint64_t get_u64(const uint8_t *in)
{
    uint64_t v = 0;
    for (unsigned i = 8; i-- > 0;) {
        v = v << 8 | in[i];
    }
    return v;
}

/* Offsets: eight bytes each, little-endian. */
enum {
    AT_MAGIC = 0,
    AT_FORMAT = 8,
    AT_INDEX = 16,
    AT_GENERATION = 24,
    AT_REVISION = 32,
    AT_HASH_LO = 40,
    AT_HASH_HI = 48,
    AT_IMAGE_LEN = 56,
    AT_IMAGE_XXH3 = 64,
    AT_HEADER_XXH3 = 72 /* of all before */
};
_Static_assert(AT_HEADER_XXH3 + 8 == STORE_HEADER_SIZE, "the header ends with its own checksum");
_Static_assert(STORE_HEADER_SIZE % 8 == 0, "pieces are multiples of eight");

static const char magic[9] = "CADSNAP1";

void store_header_encode(uint8_t out[STORE_HEADER_SIZE],
                         uint64_t index,
                         const struct dir_view_meta *meta,
                         struct slice image)
{
    memcpy(out + AT_MAGIC, magic, 8);
    put_u64(out + AT_FORMAT, STORE_FORMAT);
    put_u64(out + AT_INDEX, index);
    put_u64(out + AT_GENERATION, meta->generation);
    put_u64(out + AT_REVISION, meta->revision);
    put_u64(out + AT_HASH_LO, meta->hash.lo);
    put_u64(out + AT_HASH_HI, meta->hash.hi);
    put_u64(out + AT_IMAGE_LEN, image.len);
    put_u64(out + AT_IMAGE_XXH3, hash_xxh3_64(image.data, image.len));
    put_u64(out + AT_HEADER_XXH3, hash_xxh3_64(out, AT_HEADER_XXH3));
}

enum err_code store_header_parse(struct slice snapshot, struct store_header *h, struct err *e)
{
    const uint8_t *in = snapshot.data;
    if (snapshot.len < STORE_HEADER_SIZE || memcmp(in, magic, 8) != 0) {
        return err_set(e, ERR_CORRUPT, "the snapshot does not begin as one");
    }
    if (get_u64(in + AT_HEADER_XXH3) != hash_xxh3_64(in, AT_HEADER_XXH3)) {
        return err_set(e, ERR_CORRUPT, "the snapshot's header is damaged");
    }
    if (get_u64(in + AT_FORMAT) != STORE_FORMAT) {
        return err_set(e, ERR_CORRUPT, "the snapshot has format %" PRIu64 ", this server knows %d",
                       get_u64(in + AT_FORMAT), STORE_FORMAT);
    }
    *h = (struct store_header){
        .index = get_u64(in + AT_INDEX),
        .generation = get_u64(in + AT_GENERATION),
        .revision = get_u64(in + AT_REVISION),
        .hash = {get_u64(in + AT_HASH_LO), get_u64(in + AT_HASH_HI)},
        .image = slice_of(in + STORE_HEADER_SIZE, snapshot.len - STORE_HEADER_SIZE),
    };
    if (get_u64(in + AT_IMAGE_LEN) != h->image.len ||
        get_u64(in + AT_IMAGE_XXH3) != hash_xxh3_64(h->image.data, h->image.len)) {
        return err_set(e, ERR_CORRUPT, "the snapshot's image is damaged or cut");
    }
    return ERR_OK;
}

enum err_code
store_header_matches(const struct store_header *h, struct store_conn *c, struct err *e)
{
    struct dir_view_meta meta;
    enum err_code code = store_read_meta(c, &meta, e);
    if (code == ERR_OK && (meta.generation != h->generation || meta.revision != h->revision ||
                           meta.hash.lo != h->hash.lo || meta.hash.hi != h->hash.hi ||
                           meta.applied_index > h->index)) {
        code = err_set(e, ERR_CORRUPT, "the snapshot's header and its image differ");
    }
    return code;
}

/* --- making one --- */

struct store_snapshot *store_snapshot_begin(struct store *s, uint64_t index)
{
    struct store_snapshot *snap = NULL;
    (void)pthread_mutex_lock(&s->lock);
    if (s->snapshot == NULL) {
        snap = mem_zalloc(sizeof *snap);
        snap->store = s;
        snap->index = index;
        snap->place = atomic_load(&s->pushed);
        snap->state = WAITING;
        s->snapshot = snap;
        (void)pthread_cond_signal(&s->work);
    }
    (void)pthread_mutex_unlock(&s->lock);
    return snap;
}

bool store_snapshot_due(const struct store *s)
{
    return s->snapshot != NULL && s->snapshot->state == WAITING &&
           atomic_load(&s->done) >= s->snapshot->place;
}

uint64_t store_snapshot_limit(const struct store *s)
{
    return s->snapshot != NULL && s->snapshot->state == WAITING ? s->snapshot->place : UINT64_MAX;
}

void store_snapshot_claim(struct store *s)
{
    s->snapshot->state = OPENING;
}

void store_snapshot_mark(struct store_snapshot *snap)
{
    struct err e;
    struct store_conn *c = &snap->conn;
    if (store_conn_open(c, snap->store->path, STORE_READ, &e) != ERR_OK) {
        char reason[sizeof e.detail * 2];
        log_fatal(EXIT_DATA, "store.read.failed", "error=%s",
                  log_quote(e.detail, reason, sizeof reason));
    }
    /* The first read of a transaction is what fixes the state that it sees. */
    if (store_read_begin(c, &e) != ERR_OK || store_read_meta(c, &snap->meta, &e) != ERR_OK) {
        store_die(c, "store.read.failed");
    }
}

void store_snapshot_publish(struct store *s)
{
    s->snapshot->state = READY;
}

static int copy_pages(sqlite3 *from, sqlite3 *to)
{
    sqlite3_backup *b = sqlite3_backup_init(to, "main", from, "main");
    if (b == NULL) {
        return sqlite3_errcode(to);
    }
    (void)sqlite3_backup_step(b, -1); /* its outcome is finish's too */
    return sqlite3_backup_finish(b);
}

/* A database in memory, whose bytes are one run. */
static enum err_code open_memory(sqlite3 **ret_db, struct err *e)
{
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
    int rc = sqlite3_open_v2("snapshot", ret_db, flags, "memdb");
    sqlite3_int64 limit = STORE_IMAGE_MAX;
    if (rc == SQLITE_OK) {
        rc = sqlite3_file_control(*ret_db, "main", SQLITE_FCNTL_SIZE_LIMIT, &limit);
    }
    if (rc == SQLITE_OK) {
        rc = sqlite3_exec(*ret_db,
                          "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA cache_size=-64",
                          NULL, NULL, NULL);
    }
    return rc == SQLITE_OK ? ERR_OK : err_set(e, ERR_IO, "snapshot memory: %s", sqlite3_errstr(rc));
}

static enum err_code copy_image(struct store_snapshot *snap, struct err *e)
{
    enum err_code code = open_memory(&snap->memory, e);
    if (code != ERR_OK) {
        return code;
    }
    int rc = copy_pages(snap->conn.db, snap->memory);
    if (rc == SQLITE_FULL) {
        return err_set(e, ERR_LIMIT_EXCEEDED, "the image is over %d bytes", STORE_IMAGE_MAX);
    }
    if (rc != SQLITE_OK) {
        log_fatal(EXIT_DATA, "store.snapshot.failed", "file=%s error=\"%s\"", snap->conn.path,
                  sqlite3_errstr(rc));
    }
    sqlite3_int64 len = 0;
    const unsigned char *bytes =
        sqlite3_serialize(snap->memory, "main", &len, SQLITE_SERIALIZE_NOCOPY);
    ASSERT(bytes != NULL && len > 0);
    snap->image = slice_of(bytes, (size_t)len);
    return ERR_OK;
}

enum err_code
store_snapshot_wait(struct store_snapshot *snap, struct slice ret_pieces[2], struct err *e)
{
    struct store *s = snap->store;
    (void)pthread_mutex_lock(&s->lock);
    while (snap->state == WAITING || snap->state == OPENING) {
        (void)pthread_cond_wait(&s->moved, &s->lock);
    }
    bool cancelled = snap->state == CANCELLED;
    if (!cancelled) {
        ASSERT(snap->state == READY);
        snap->state = COPYING;
    }
    (void)pthread_mutex_unlock(&s->lock);
    if (cancelled) {
        return err_set(e, ERR_NOT_READY, "a snapshot from elsewhere was installed meanwhile");
    }
    enum err_code code = copy_image(snap, e);
    store_read_end(&snap->conn);
    store_conn_close(&snap->conn);
    (void)pthread_mutex_lock(&s->lock);
    snap->state = COPIED;
    (void)pthread_cond_broadcast(&s->moved);
    (void)pthread_mutex_unlock(&s->lock);
    if (code == ERR_OK) {
        store_header_encode(snap->header, snap->index, &snap->meta, snap->image);
        ret_pieces[0] = slice_of(snap->header, sizeof snap->header);
        ret_pieces[1] = snap->image;
    }
    return code;
}

void store_snapshot_end(struct store_snapshot *snap)
{
    struct store *s = snap->store;
    (void)pthread_mutex_lock(&s->lock);
    while (snap->state == OPENING) {
        (void)pthread_cond_wait(&s->moved, &s->lock);
    }
    ASSERT(snap->state != COPYING && s->snapshot == snap);
    s->snapshot = NULL;
    (void)pthread_mutex_unlock(&s->lock);
    if (snap->state == READY) {
        store_read_end(&snap->conn);
    }
    store_conn_close(&snap->conn);
    (void)sqlite3_close(snap->memory); /* nothing is prepared on it */
    mem_free(snap);
}

/* Nothing of a snapshot may look at the file from here on. The thread is held. */
static void cancel_snapshot(struct store *s)
{
    (void)pthread_mutex_lock(&s->lock);
    struct store_snapshot *snap = s->snapshot;
    while (snap != NULL && snap->state == COPYING) {
        (void)pthread_cond_wait(&s->moved, &s->lock);
        snap = s->snapshot;
    }
    if (snap != NULL && snap->state == READY) {
        store_read_end(&snap->conn);
        store_conn_close(&snap->conn);
    }
    if (snap != NULL && snap->state != COPIED) {
        snap->state = CANCELLED;
    }
    (void)pthread_cond_broadcast(&s->moved);
    (void)pthread_mutex_unlock(&s->lock);
}

/* --- restoring --- */

static bool write_all(int fd, struct slice bytes)
{
    while (bytes.len > 0) {
        ssize_t n = write(fd, bytes.data, bytes.len);
        if (n < 0 && errno != EINTR) {
            return false;
        }
        if (n > 0) {
            bytes = slice_of(bytes.data + n, bytes.len - (size_t)n);
        }
    }
    return true;
}

/* Bytes 18 and 19 of the image say WAL; a file that is only read does better without one. */
enum err_code store_write_image(struct slice image, const char *path, struct err *e)
{
    enum { JOURNAL_BYTES_AT = 18, JOURNAL_BYTES = 2 };
    static const uint8_t rollback[JOURNAL_BYTES] = {1, 1};
    if (image.len < 4096) {
        return err_set(e, ERR_CORRUPT, "the snapshot's image is no database");
    }
    store_unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    bool ok = fd >= 0 && write_all(fd, image) &&
              pwrite(fd, rollback, JOURNAL_BYTES, JOURNAL_BYTES_AT) == JOURNAL_BYTES;
    int reason = errno;
    if (fd >= 0 && close(fd) != 0 && ok) {
        reason = errno;
        ok = false;
    }
    if (!ok) {
        store_unlink(path);
        return err_set(e, ERR_IO, "%s: %s", path, strerror(reason));
    }
    return ERR_OK;
}

static enum err_code
load_image(const struct store_header *h, const char *path, struct directory *d, struct err *e)
{
    struct store_conn c;
    enum err_code code = store_write_image(h->image, path, e);
    if (code != ERR_OK) {
        return code;
    }
    code = store_conn_open(&c, path, STORE_READ, e);
    if (code == ERR_OK) {
        code = store_header_matches(h, &c, e);
        if (code == ERR_OK) {
            code = store_load(&c, d, h->index, e);
        }
        store_conn_close(&c);
    }
    if (code != ERR_OK) {
        store_unlink(path);
    }
    return code;
}

/* The directory is the new one already: from here on an error is the end. */
static void swap_files(struct store *s, const char *path, const struct dir_view_meta *meta)
{
    struct err e = {0};
    store_readers_close(s);
    (void)sqlite3_db_config(s->writer.conn.db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    store_writer_close(&s->writer);
    store_unlink(s->path);
    bool ok = rename(path, s->path) == 0;
    if (!ok) {
        (void)err_set(&e, ERR_IO, "%s: rename: %s", path, strerror(errno));
    }
    ok = ok && store_writer_open(&s->writer, s->path, STORE_WRITE, &e) == ERR_OK &&
         store_writer_index(&s->writer, meta->applied_index, &e) == ERR_OK;
    if (ok) {
        store_note_committed(s, meta); /* before anybody reads the new file */
        ok = store_readers_open(s, &e) == ERR_OK;
    }
    if (!ok) {
        char reason[sizeof e.detail * 2];
        log_fatal(EXIT_DATA, "store.restore.failed", "error=%s",
                  log_quote(e.detail, reason, sizeof reason));
    }
}

enum err_code
store_restore(struct store *s, struct directory *d, struct slice snapshot, struct err *e)
{
    struct store_header h;
    struct dir_view_meta meta;
    enum err_code code = store_header_parse(snapshot, &h, e);
    if (code != ERR_OK) {
        return code;
    }
    char *path = mem_printf("%s.restore", s->path);
    code = load_image(&h, path, d, e);
    if (code == ERR_OK) {
        dir_meta_of(directory_state(d), &meta);
        store_hold(s);
        cancel_snapshot(s);
        swap_files(s, path, &meta);
        store_release(s);
    }
    mem_free(path);
    return code;
}
