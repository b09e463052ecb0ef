/* SPDX-License-Identifier: Apache-2.0 */
/* One copy of a partition: a SQLite file with the items, the log of every change that made them,
 * and a running checksum. Positions count the changes from 1; an entry is named by (epoch,
 * position). The log keeps what each change replaced, so that a tail can be undone. One thread at a
 * time. Keys, values and mutation ids are UTF-8. */
#ifndef SHARDKV_KV_H
#define SHARDKV_KV_H

#include <stdbool.h>
#include <stdint.h>

struct kv;

struct change {
    uint64_t position, epoch;
    const char *id; /* of the mutation: never applied twice */
    const char *key, *value;
};

enum kv_result {
    KV_OK,
    KV_REPEATED,  /* the id was applied before */
    KV_ELSEWHERE, /* the log does not go on from there */
    KV_IO         /* what it was about may or may not be on the disk: open it again */
};

/* Opens the file, or makes it for `copy`. NULL when that fails, or when it is another copy's. */
struct kv *kv_open(const char *path, uint64_t copy);
void kv_close(struct kv *s);
/* Deletes the file of a closed store; how many bytes went, -1 when it fails. */
int64_t kv_delete(const char *path);

/* The last change's position and epoch, 0 and 0 in the beginning. */
uint64_t kv_position(const struct kv *s);
uint64_t kv_epoch(const struct kv *s);
/* The checksum of all items, kept up with every change. */
uint64_t kv_running(const struct kv *s);
/* Of the file, about. */
uint64_t kv_bytes(struct kv *s);

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
    uint64_t after, after_epoch;
    const struct change *changes;
    unsigned count;
};
/* Takes them; what is in the way is undone, and so is what an earlier epoch left past `start`.
 * KV_ELSEWHERE: entry `after` is not here; `*ret_position` is where to go on from. Else it is the
 * last one of these changes. */
enum kv_result kv_follow(struct kv *s, const struct kv_batch *b, uint64_t *ret_position);

/* The epoch of an entry; false when there is none. (0, 0) is there always. */
bool kv_epoch_at(struct kv *s, uint64_t position, uint64_t *ret_epoch);

/* Calls fn for up to `max` changes after a position, in order. False when something failed. */
bool kv_changes(struct kv *s,
                uint64_t after,
                unsigned max,
                void (*fn)(void *arg, const struct change *c),
                void *arg);

/* The value, which the caller frees; NULL when there is none. */
char *kv_get(struct kv *s, const char *key, uint64_t *ret_position);

/* The invariants, counted afresh: `sum` must be `running`, `mutations` must be the position. */
struct kv_sums {
    uint64_t items, mutations, sum, running;
};
bool kv_sums(struct kv *s, struct kv_sums *ret_sums);

#endif
