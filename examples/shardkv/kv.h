/* SPDX-License-Identifier: Apache-2.0 */
/* One copy of a partition: a SQLite file with the items of its range, the log of the last changes,
 * and a running checksum. Positions count the changes from 1; an entry is named by (epoch,
 * position). The log keeps what each change replaced, so that a tail can be undone; it begins after
 * `base`, for what is older is trimmed. One thread at a time. Keys, values and mutation ids are
 * UTF-8 without NUL. */
#ifndef SHARDKV_KV_H
#define SHARDKV_KV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    KV_LOG_KEEP = 20000, /* entries, unless kv_keep() says otherwise */
    KV_LOG_PINNED = 8,   /* so many times that, while a snapshot needs them */
    KV_IDS_KEEP = 4,     /* so many times that: mutation ids that are known for what they are */
    KV_CHUNK = 256,      /* items in a chunk of a snapshot */
    KV_SOURCES_MAX = 64, /* files that one copy is derived from */
    KV_NAME_SIZE = 64,
    KV_ORIGIN_SIZE = 17
};

struct kv;

/* Whose copy of which keys; texts are borrowed for a call. */
struct kv_spec {
    uint64_t copy;
    const char *start, *end; /* [start, end); end NULL: open */
};

struct change {
    uint64_t position, epoch;
    const char *id;          /* of the mutation: never applied twice */
    const char *key, *value; /* a key of "", or out of the range, changes no item */
};

enum kv_result {
    KV_OK,
    KV_REPEATED,  /* the id was applied before */
    KV_ELSEWHERE, /* the log does not go on from there */
    KV_GAP,       /* no log leads from this copy to that one: a snapshot has to */
    KV_IO         /* what it was about may or may not be on the disk: open it again */
};

/* Opens the file, or makes it. NULL when that fails, or when it is another copy's. */
struct kv *kv_open(const char *path, const struct kv_spec *spec);
void kv_close(struct kv *s);
/* Deletes the file of a closed store; how many bytes went, -1 when it fails. */
int64_t kv_delete(const char *path);
/* How long the log is kept. Entries after `pinned` are kept longer, for a snapshot that is under
 * way; UINT64_MAX: none is. */
void kv_keep(struct kv *s, uint64_t entries, uint64_t pinned);

/* The last change's position and epoch, 0 and 0 in the beginning, and while it is incomplete. */
uint64_t kv_position(const struct kv *s);
uint64_t kv_epoch(const struct kv *s);
/* Where the log begins: it has the entries after this position. */
uint64_t kv_base(const struct kv *s);
/* Copies of another origin share no log with this one. */
const char *kv_origin(const struct kv *s);
/* The checksum of all items, kept up with every change. */
uint64_t kv_running(const struct kv *s);
/* A snapshot has begun to be stored here and is not whole, or its data was lost. */
bool kv_incomplete(const struct kv *s);
/* Makes it so: all that is in it is forgotten by the first chunk that comes. */
bool kv_lose(struct kv *s);
/* Of the file, about. */
uint64_t kv_bytes(struct kv *s);
/* How many items there are: reads all of them. */
uint64_t kv_items(struct kv *s);
/* A bound of a range as a text that cuts all keys without NUL just so: one key is set apart by
 * [key, key NUL), and no text lies between key NUL and key 0x01. For the caller to free. */
char *kv_bound(const void *bytes, size_t len);
bool kv_in_range(const struct kv *s, const char *key);

/* A primary's own change, durable when it returns. `*ret_position` is also that of a repeated one.
 */
enum kv_result kv_put(struct kv *s,
                      uint64_t epoch,
                      const char *id,
                      const char *key,
                      const char *value,
                      uint64_t *ret_position);

/* What a primary sends: changes that follow its entry (after_epoch, after). */
struct kv_batch {
    uint64_t epoch, start; /* the primary's, and its position when that epoch began */
    uint64_t base, last;   /* where its log begins and ends */
    const char *origin;
    uint64_t after, after_epoch;
    const struct change *changes;
    unsigned count;
};
/* Takes them; what is in the way is undone, and so is what an earlier epoch left past `start`.
 * KV_ELSEWHERE: entry `after` is not here; `*ret_position` is where to go on from. Else it is the
 * last one of these changes. */
enum kv_result kv_follow(struct kv *s, const struct kv_batch *b, uint64_t *ret_position);

/* The epoch of an entry, or of the one that the log begins after; false: it is not known. */
bool kv_epoch_at(struct kv *s, uint64_t position, uint64_t *ret_epoch);

/* Calls fn for up to `max` changes after a position, in order. False when something failed. */
bool kv_changes(struct kv *s,
                uint64_t after,
                unsigned max,
                void (*fn)(void *arg, const struct change *c),
                void *arg);
/* Entries of `epoch` or an earlier one that come after `position`. */
uint64_t kv_late(struct kv *s, uint64_t epoch, uint64_t position);

/* The value, which the caller frees; NULL when there is none. */
char *kv_get(struct kv *s, const char *key, uint64_t *ret_position);

/* The invariants, counted afresh: `sum` must be `running`, `mutations` (those before the log's
 * beginning, and those in it) the position. */
struct kv_sums {
    uint64_t items, mutations, sum, running;
};
bool kv_sums(struct kv *s, struct kv_sums *ret_sums);
/* Of the items in [start, end) only; `running` and `mutations` are the whole's. */
bool kv_sums_of(struct kv *s, const char *start, const char *end, struct kv_sums *ret_sums);

/* --- snapshots and children (kv_copy.c): files of their own --- */

struct kv_snapshot {
    char name[KV_NAME_SIZE], origin[KV_ORIGIN_SIZE];
    uint64_t position, epoch, running, items, ids, bytes;
};
struct kv_row {
    uint64_t position;
    const char *key, *value; /* of an item; of a mutation id: the id, and NULL */
};
uint64_t kv_chunks(const struct kv_snapshot *of);

/* A part of a store, to be put into a file. */
struct kv_piece {
    const char *path, *start, *end;
};
/* Writes one of the items in the piece, as they are at some moment of this call, durably to `to`.
 * Does not hinder those who use the store. */
bool kv_snapshot_make(const struct kv_piece *from, const char *to, const char *name);
bool kv_snapshot_read(const char *path, struct kv_snapshot *ret);
/* Calls fn for the rows of a chunk. */
bool kv_snapshot_chunk(const char *path,
                       uint64_t chunk,
                       void (*fn)(void *arg, const struct kv_row *row),
                       void *arg);

/* Which chunk of the snapshot comes next here; kv_chunks() when it is whole. */
uint64_t kv_install_next(struct kv *s, const struct kv_snapshot *of);
struct kv_chunk {
    const struct kv_snapshot *of;
    uint64_t number; /* from 0 */
    const struct kv_row *rows;
    size_t count;
};
/* Stores the next chunk; the last one makes the copy whole. KV_ELSEWHERE: it is not the next one.
 * KV_GAP: the whole does not have the checksum that it should; it begins anew. */
enum kv_result kv_install(struct kv *s, const struct kv_chunk *c);

/* The range and the copy that a file is of. KV_GAP: it is incomplete. KV_IO: there is none, or it
 * can't be read now, so that nothing is known of it. The caller frees both texts. */
enum kv_result kv_describe(const char *path, uint64_t *ret_copy, char **ret_start, char **ret_end);
/* Makes the copy of a partition that came out of others, durably and all at once. Of one piece it
 * has the log as well. Of more it has an origin of its own, made of theirs: equal ones have equal
 * items. */
bool kv_derive(const char *path,
               const struct kv_spec *spec,
               const struct kv_piece *pieces,
               size_t count);

#endif
