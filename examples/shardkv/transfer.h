/* SPDX-License-Identifier: Apache-2.0 */
/* How a copy gets what another one has: it asks for a snapshot, chunk by chunk, and for the changes
 * that come after it. The primary answers. */
#ifndef SHARDKV_TRANSFER_H
#define SHARDKV_TRANSFER_H

#include "examples/shardkv/node.h"

/* --- the primary's side --- */

/* 16 hex digits and a NUL. */
void transfer_checksum(const char *bytes, size_t len, char *out);

struct wanted {
    uint64_t epoch, after, after_epoch;
    const char *origin;
};
struct sent {
    char *text;        /* for the caller to free; NULL: not DONE */
    uint64_t epoch_at; /* ELSEWHERE: of the primary's entry there */
    uint64_t lag;      /* how many bytes are left after these, about */
};
/* Changes after the copy's entry, as peer_read_changes() takes them. */
enum outcome transfer_changes(struct part *p, const struct wanted *w, struct sent *ret);
/* The snapshot's description; `name` NULL: of any that will do. GAP: there is none of that name. */
enum outcome transfer_describe(struct node *n,
                               struct part *p,
                               uint64_t epoch,
                               const char *name,
                               char **ret_text);
/* A chunk of the snapshot. GAP: there is none of that name. */
enum outcome transfer_chunk(struct node *n,
                            struct part *p,
                            uint64_t epoch,
                            const char *name,
                            uint64_t chunk,
                            char **ret_text);

/* --- the copy's side; a thread at a time --- */

struct puller {
    void *curl; /* the caller's */
    const char *address;
    uint64_t epoch;
    uint64_t start; /* the primary's position when it began, if that is known, else UINT64_MAX */
};
enum pulled {
    PULLED,
    PULL_NOTHING_LEFT,
    PULL_DAMAGED, /* it arrived, but not as it was sent */
    PULL_AGAIN,
    PULL_NOT_YET,
    PULL_GONE /* there is no such snapshot, or no log that leads here */
};
/* The next changes. `*ret_lag`: bytes that are left then. */
enum pulled pull_changes(struct node *n, struct part *p, struct puller *from, uint64_t *ret_lag);
enum pulled
pull_describe(struct part *p, struct puller *from, const char *name, struct kv_snapshot *ret);
/* The next chunk. PULL_NOTHING_LEFT: the copy is whole. */
enum pulled pull_chunk(struct node *n,
                       struct part *p,
                       struct puller *from,
                       const struct kv_snapshot *of,
                       size_t *ret_bytes);
/* The status of a GET, 0 without an answer. The caller drops `*ret_json`. */
long pull_json(void *curl, const char *url, json_t **ret_json);

#endif
