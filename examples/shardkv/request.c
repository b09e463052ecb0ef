/* SPDX-License-Identifier: Apache-2.0 */
/* What is asked of a copy: by clients, and by the primary. */
#include "examples/shardkv/replicate.h"

#include <string.h>

/* A request of this epoch may not be served as it is: why. Not now: the lease has run out, or the
 * destination of a move is about to take the grant that the client has heard of before. */
static enum outcome refusal(struct part *p, uint64_t epoch)
{
    bool granted = cadastre_partition_epoch(p->handle) == epoch || p->joining;
    return granted && epoch == cadastre_partition_known_epoch(p->handle) ? NOT_NOW : WRONG_EPOCH;
}

static bool may(struct node *n, const struct part *p, uint64_t epoch)
{
    return !atomic_load(&n->stopping) && cadastre_may_write(n->agent, p->handle, epoch);
}

void node_capture(struct part *p)
{
    if (p->store != NULL && p->validate_at != 0 && kv_position(p->store) == p->validate_at) {
        p->validated =
            kv_sums_of(p->store, p->sum_low != NULL ? p->sum_low : "", p->sum_high, &p->sums);
    }
}

/* With `lock`. */
static bool in_range(const struct part *p, const char *key)
{
    return key[0] == '\0' || kv_in_range(p->store, key);
}

/* With `writer`. */
static enum outcome write_as_primary(struct node *n,
                                     struct part *p,
                                     const struct mutation *m,
                                     uint64_t *ret_position,
                                     bool *ret_repeated)
{
    (void)pthread_mutex_lock(&p->lock);
    bool granted = p->store != NULL && p->role == CADASTRE_ROLE_PRIMARY && p->epoch == m->epoch &&
                   may(n, p, m->epoch);
    if (!granted || !in_range(p, m->key)) {
        (void)pthread_mutex_unlock(&p->lock);
        return granted ? WRONG_RANGE : refusal(p, m->epoch);
    }
    enum kv_result r = kv_put(p->store, m->epoch, m->id, m->key, m->value, ret_position);
    node_capture(p);
    (void)pthread_mutex_unlock(&p->lock);
    if (r == KV_IO) {
        node_die(p, "a write failed");
    }
    *ret_repeated = r == KV_REPEATED;
    /* A repeated one may have been applied and never acknowledged: it is brought to all as well. */
    return replicate(n, p, m->epoch, *ret_position) && may(n, p, m->epoch) ? DONE : UNKNOWN;
}

enum outcome node_write(struct node *n,
                        struct part *p,
                        const struct mutation *m,
                        uint64_t *ret_position,
                        bool *ret_repeated)
{
    struct meter_request request = meter_start();
    atomic_fetch_add(&p->open_operations, 1);
    enum outcome outcome = refusal(p, m->epoch);
    if (may(n, p, m->epoch)) {
        (void)pthread_mutex_lock(&p->writer);
        meter_serve(&request);
        outcome = write_as_primary(n, p, m, ret_position, ret_repeated);
        (void)pthread_mutex_unlock(&p->writer);
    }
    atomic_fetch_sub(&p->open_operations, 1);
    if (outcome == DONE || outcome == UNKNOWN) {
        const struct meter_asked asked = {.epoch = m->epoch,
                                          .key = m->key,
                                          .bytes = strlen(m->key) + strlen(m->value),
                                          .write = true,
                                          .failed = outcome == UNKNOWN};
        meter_note(&p->meter, &request, &asked);
    }
    return outcome;
}

/* With `lock`. After the cutover the source still answers reads that were routed by its epoch,
 * until its window ends; what it has may be old, and the answer says so. */
static enum outcome
read_here(struct node *n, struct part *p, uint64_t epoch, const char *key, struct value *ret)
{
    bool primary = p->role == CADASTRE_ROLE_PRIMARY && p->epoch == epoch && may(n, p, epoch);
    ret->stale = !primary && p->role == CADASTRE_ROLE_ASYNC && epoch != 0 && epoch == p->drained &&
                 !atomic_load(&n->stopping);
    if (p->store == NULL || (!primary && !ret->stale)) {
        return refusal(p, epoch);
    }
    if (!kv_in_range(p->store, key)) {
        return WRONG_RANGE;
    }
    ret->text = kv_get(p->store, key, &ret->position);
    if (primary && !may(n, p, epoch)) {
        return refusal(p, epoch);
    }
    atomic_fetch_add(&p->stale_reads, ret->stale);
    return ret->text != NULL ? DONE : MISSING;
}

enum outcome
node_read(struct node *n, struct part *p, uint64_t epoch, const char *key, struct value *ret)
{
    struct meter_request request = meter_start();
    *ret = (struct value){.text = NULL};
    (void)pthread_mutex_lock(&p->writer); /* so that no read sees what may yet be lost */
    meter_serve(&request);
    (void)pthread_mutex_lock(&p->lock);
    enum outcome outcome = read_here(n, p, epoch, key, ret);
    (void)pthread_mutex_unlock(&p->lock);
    (void)pthread_mutex_unlock(&p->writer);
    if (outcome == DONE || outcome == MISSING) {
        const struct meter_asked asked = {.epoch = epoch,
                                          .key = key,
                                          .bytes = strlen(key) +
                                                   (ret->text != NULL ? strlen(ret->text) : 0)};
        meter_note(&p->meter, &request, &asked);
    }
    return outcome;
}

static uint64_t bytes_of(const struct kv_batch *b)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < b->count; i++) {
        bytes += strlen(b->changes[i].key) + strlen(b->changes[i].value);
    }
    return bytes;
}

/* With `lock`: is this a copy, and not the primary, at the epoch? */
static bool is_copy_at(const struct part *p, uint64_t epoch)
{
    return p->store != NULL && p->role != CADASTRE_ROLE_NONE && p->role != CADASTRE_ROLE_PRIMARY &&
           p->epoch == epoch && epoch == cadastre_partition_known_epoch(p->handle);
}

enum outcome node_follow(struct node *n,
                         struct part *p,
                         uint64_t session,
                         const struct kv_batch *b,
                         uint64_t *ret_position)
{
    enum outcome outcome = WRONG_EPOCH;
    (void)pthread_mutex_lock(&p->lock);
    bool here = session == 0 || session == cadastre_agent_session(n->agent);
    if (here && is_copy_at(p, b->epoch)) {
        enum kv_result r = kv_follow(p->store, b, ret_position);
        if (r == KV_IO) {
            node_die(p, "a change can't be stored");
        }
        node_capture(p);
        p->gap = r == KV_GAP;
        outcome = r == KV_OK ? DONE : r == KV_GAP ? GAP : ELSEWHERE;
    }
    (void)pthread_mutex_unlock(&p->lock);
    if (outcome == DONE) {
        meter_copied(&p->meter, b->epoch, b->count, bytes_of(b));
    }
    return outcome;
}

enum outcome node_install(struct node *n, struct part *p, uint64_t epoch, const struct kv_chunk *c)
{
    enum outcome outcome = WRONG_EPOCH;
    bool whole = false;
    (void)pthread_mutex_lock(&p->lock);
    uint64_t copy = p->copy;
    if (is_copy_at(p, epoch)) {
        enum kv_result r = kv_install(p->store, c);
        if (r == KV_IO) {
            node_die(p, "a chunk can't be stored");
        }
        whole = !kv_incomplete(p->store);
        p->gap = p->gap && !whole;
        outcome = r == KV_OK ? DONE : r == KV_GAP ? GAP : ELSEWHERE;
    }
    (void)pthread_mutex_unlock(&p->lock);
    if (whole && cadastre_agent_copy(n->agent, p->keyspace, p->id) != copy) {
        (void)cadastre_agent_set_copy(n->agent, p->keyspace, p->id, copy);
    }
    return outcome;
}

void node_settle(struct node *n)
{
    atomic_store(&n->stopping, true);
    for (struct part *p = node_parts(n); p != NULL; p = p->next) {
        (void)pthread_mutex_lock(&p->writer);
        (void)pthread_mutex_unlock(&p->writer);
    }
}
