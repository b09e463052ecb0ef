/* SPDX-License-Identifier: Apache-2.0 */
/* The replicated state machine: apply(state, command) -> result + effects, and nothing else changes
 * the state.
 *
 * Deterministic: no I/O, clock, randomness, locale, float, or hash order. Total: any bytes are
 * applied or rejected with a result; only a command that needs a newer server stops the process
 * (directory_apply says so). One thread (the loop) calls everything here but view_*(). */
#ifndef DIRECTORY_DIRECTORY_H
#define DIRECTORY_DIRECTORY_H

#include "base/err.h"
#include "directory/command.pb-c.h"
#include "directory/feed.h"
#include "directory/view.h"

enum { DIR_COMMAND_VERSION = 1 };

struct directory;

/* An empty directory at revision 0. The caller owns it. */
struct directory *directory_new(void);
void directory_free(struct directory *d);
/* One that begins as `v` and goes its own way: O(1), for it shares the rows until it changes them,
 * on whatever thread. `v` need not outlive it. The caller owns it. */
struct directory *directory_fork(const struct dir_view *v);

/* What readers read, and the change feed; both live as long as the directory. */
const struct dir_published *directory_published(const struct directory *d);
struct dir_feed *directory_feed(struct directory *d);
/* The working state, newer than the published one while a batch is applied. Borrowed until the next
 * apply. */
const struct dir_view *directory_state(const struct directory *d);

/* A route as shown at one moment: owns its partition and nodes. */
struct dir_route {
    const struct dir_partition *partition;
    const struct dir_keyspace *keyspace;
    const struct dir_node
        *nodes[DIR_REPLICAS_MAX]; /* of partition->replicas, in order; NULL never */
    dir_rev mod_revision;
};

/* Fills `r` with references taken from `v`. dir_route_close() drops them. */
void dir_route_open(struct dir_route *r, const struct dir_view *v, const struct dir_partition *p);
void dir_route_close(struct dir_route *r);

/* The outcome of one command, immutable, reference-counted (result_ref/result_unref; any thread).
 */
struct dir_result {
    _Atomic uint32_t refs;
    struct err err;     /* code ERR_OK when it took effect */
    dir_rev revision;   /* at which it took effect; of a refusal, at which it was judged */
    bool replayed;      /* the stored outcome of an earlier command with the same idempotency key */
    uint64_t partition; /* that the command was about, or 0 */
    bool retired; /* with stale_epoch: the id itself was split or merged; the routes are what is
                     there now */
    dir_rev current_epoch;           /* for stale_epoch, future_epoch */
    dir_rev current_revision;        /* for stale_revision */
    uint64_t session;                /* of a registered node */
    struct dir_keyspace *keyspace;   /* created or changed; or NULL */
    uint64_t partitions;             /* that this keyspace has */
    struct dir_node *node;           /* registered; or NULL */
    struct dir_operation *operation; /* made by a move; or NULL */
    struct dir_proposal *proposal;   /* made, or settled; or NULL */
    uint64_t route_count; /* children, the merged one, the moved one, or the present routes for a
                             refusal */
    struct dir_route routes[];
};

struct dir_result *result_ref(struct dir_result *r);
void result_unref(struct dir_result *r);
/* For the store: bytes that result_decode reads back to an equal result (replayed: true). */
void result_encode(const struct dir_result *r, struct buf *out);
struct dir_result *result_decode(struct slice bytes, struct err *e) MUST_CHECK;

/* One row of one table changed. `before` and `after` own references; NULL for absent. */
struct dir_row {
    struct dir_object *before, *after;
};

/* All that one command changed, for the store; owned by whoever holds the list. */
struct dir_effects {
    struct dir_effects *next;
    uint64_t index;   /* Raft index of the entry it was in */
    dir_rev revision; /* after it */
    uint64_t time_ms;
    bool changed;              /* it took a revision */
    enum dir_change_kind kind; /* of the change, when changed; 0 for none that routes show */
    enum err_code outcome;
    char what[32]; /* "split", "node_put", …: the command's name */
    char principal[DIR_TEXT_MAX + 1], remote[64], request_id[64];
    char idempotency_key[DIR_IDEMPOTENCY_KEY_MAX + 1];
    char reason[DIR_TEXT_MAX + 1]; /* that whoever sent it gave; "" */
    char subject[160]; /* what it was about, for the audit: "keyspace=orders partition=17" */
    /* The scalars after it, for the store's meta row. */
    struct dir_view_meta {
        char cluster[33];
        uint64_t generation, applied_index, next_id, time_ms, unplaced;
        dir_rev revision, compacted;
        struct hash128 hash;
        struct dir_settings settings;
        struct dir_mark marks[DIR_MARKS_MAX];
    } meta;
    uint64_t row_count;
    struct dir_row *rows;
};

void dir_effects_free(struct dir_effects *e);

/* Applies one encoded command of the entry at `index`. Returns the result (caller owns), and
 * appends the effects to
 * `*ret_effects` (caller owns). Every command that this server understands has some, a refused one
 * too: log time, which the hash covers, may have moved, and the audit wants it. Bytes that are no
 * command have none.
 *
 * Two results mean: stop the process (exit 4). ERR_NOT_READY with detail starting "needs version":
 * this server is too old. ERR_CORRUPT, of a StateCheck whose index is remembered here with another
 * hash: its state is wrong. */
struct dir_result *directory_apply(struct directory *d,
                                   uint64_t index,
                                   struct slice command,
                                   struct dir_effects **ret_effects);

/* Publishes the working state: readers see it from now on, the feed's new changes too. Once per
 * Raft entry. */
void directory_publish(struct directory *d);

/* What apply would answer now, without changing anything: for refusing before proposing. Caller
 * owns the result. */
struct dir_result *directory_try(const struct directory *d, const Cadastre__Command *command);

/* The stored outcome of (principal, key), or NULL (caller owns). When found and `digest` (16 bytes)
 * differs, the result is ERR_IDEMPOTENCY_MISMATCH. `digest` NULL: whatever the request was. */
struct dir_result *directory_lookup(const struct dir_view *v,
                                    const char *principal,
                                    const char *idempotency_key,
                                    const uint8_t *digest);
/* Keys applied before this log time are no longer known. */
uint64_t directory_dedupe_since_ms(const struct dir_view *v);

/* Rebuilding from a store's rows, in any order: begin, one call a row (takes over the reference),
 * end. end() builds indexes, checks every invariant and the state hash (ERR_CORRUPT with the first
 * violation), and publishes. On error the directory is as before begin. */
void directory_load_begin(struct directory *d, const struct dir_view_meta *meta);
void directory_load_row(struct directory *d, struct dir_object *row);
enum err_code directory_load_end(struct directory *d, struct err *e) MUST_CHECK;

/* The scalars as canonical bytes (without the hash and the index: what the state hash covers), and
 * back. */
/* The scalars of a state. */
void dir_meta_of(const struct dir_view *v, struct dir_view_meta *ret_meta);
void dir_meta_encode(const struct dir_view_meta *m, struct buf *out);
enum err_code
dir_meta_decode(struct slice bytes, struct dir_view_meta *ret_meta, struct err *e) MUST_CHECK;

/* A row as canonical bytes: what is hashed, and what results carry. Decoding checks every bound. */
void dir_object_encode(const struct dir_object *o, struct buf *out);
struct dir_object *dir_object_decode(struct slice bytes, struct err *e) MUST_CHECK;

/* Every structural invariant of a state (faults.md part 4: I1, I2, I4 and what follows from them,
 * the row hash, the counters and indexes). Calls `report` with a line per violation, at most `max`;
 * returns how many there were. O(n). */
uint64_t dir_check(const struct dir_view *v,
                   void (*report)(void *arg, const char *line),
                   void *arg,
                   uint64_t max);

struct dir_dedupe {
    struct dir_object object;
    uint64_t index; /* of arrival, unique */
    uint64_t at_ms; /* log time */
    dir_rev revision;
    uint8_t digest[16];
    uint16_t principal_len, key_len;
    uint32_t result_len;
    uint8_t bytes[]; /* principal, key, encoded result */
};

#endif
