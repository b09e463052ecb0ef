/* SPDX-License-Identifier: Apache-2.0 */
/* A primary's way to another copy of its partition. One thread at a time. */
#ifndef SHARDKV_PEER_H
#define SHARDKV_PEER_H

#include "client/cadastre.h"
#include "examples/shardkv/kv.h"

#include <jansson.h>
#include <pthread.h>

enum { PEER_TRY_MS = 2000, PEER_BATCH = 256, PEER_BODY_MAX = 32 << 20 };

enum peer_result {
    PEER_OK,
    PEER_REFUSED, /* it is of another session or epoch (yet) */
    PEER_BEHIND,  /* it lacks what came before (inside only) */
    PEER_GAP,     /* and no log leads there: it has to fetch a snapshot, which it does */
    PEER_FAILED   /* no answer, or one that makes no sense */
};

struct peer {
    void *curl; /* made when it is first needed; peer_close() */
};
void peer_close(struct peer *p);

/* Which copy, as what. */
struct peer_call {
    const char *keyspace;
    uint64_t partition, epoch;
    uint64_t start; /* the primary's position when the epoch began */
    const struct cadastre_member *to;
};

/* Brings the copy to `position` (above 0), durably: sends what it lacks from `store`, which `lock`
 * guards. */
enum peer_result peer_bring(struct peer *p,
                            const struct peer_call *call,
                            struct kv *store,
                            pthread_mutex_t *lock,
                            uint64_t position);

/* Appends one to a JSON array, as it is sent. */
void peer_put_change(void *json, const struct change *c);

/* [[position, epoch, id, key, value], …], as it is sent. The caller frees `*ret_changes`, which
 * borrow from the JSON. */
bool peer_read_changes(const json_t *json, struct change **ret_changes, unsigned *ret_count);

#endif
