/* SPDX-License-Identifier: Apache-2.0 */
/* A primary stops counting a copy only when it has read the order that says so, and counts one that
 * it has asked for from before it asks: while a request's outcome is open, both the order in force
 * and what was asked for must have every write. One request at a time, under `writer`. */
#include "examples/shardkv/replicate.h"

#include "examples/shardkv/copy.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { DROP_MS = 1000 };

bool replicate_has(const struct cadastre_member *all, size_t count, const char *node)
{
    size_t i = 0;
    while (i < count && strcmp(all[i].node, node) != 0) {
        i++;
    }
    return i < count;
}

uint64_t replicate_start(struct part *p)
{
    (void)pthread_mutex_lock(&p->lock);
    uint64_t start = p->start;
    (void)pthread_mutex_unlock(&p->lock);
    return start;
}

/* How many of the first `count` are copies in sync; the others are joining. */
static size_t count_sync(const struct members *m, size_t count)
{
    size_t n = 0;
    for (size_t i = 0; i < count; i++) {
        n += m->all[i].role != CADASTRE_ROLE_JOINING;
    }
    return n;
}

bool replicate_members(struct part *p, uint64_t epoch, struct members *m)
{
    m->revision = cadastre_partition_revision(p->handle);
    if (cadastre_must_have(p->handle, epoch, m->all, MEMBERS_MAX, &m->ordered) != CADASTRE_OK ||
        m->ordered > MEMBERS_MAX) {
        return false;
    }
    m->count = m->ordered;
    if (p->wanted_epoch != epoch) {
        return true;
    }
    for (size_t i = 0; i < p->wanted_count; i++) {
        if (!replicate_has(m->all, m->ordered, p->wanted[i].node)) {
            m->all[m->count++] = p->wanted[i];
        }
    }
    if (m->count == m->ordered && p->wanted_count == count_sync(m, m->ordered)) {
        p->wanted_epoch = 0; /* the order says what was asked for */
    }
    return true;
}

/* The destination of a move counts by its operation, so that it is never named here. */
static void choose(struct part *p, uint64_t epoch, const struct members *m, size_t except)
{
    p->wanted_count = 0;
    for (size_t i = 0; i < m->count && p->wanted_count < MEMBERS_MAX; i++) {
        if (i != except && m->all[i].role != CADASTRE_ROLE_JOINING) {
            p->wanted[p->wanted_count] = m->all[i];
            p->wanted[p->wanted_count++].session = 0; /* the order will say which */
        }
    }
    p->wanted_epoch = epoch;
    p->wanted_open = false;
}

void replicate_ask(struct node *n,
                   struct part *p,
                   uint64_t epoch,
                   const struct members *m,
                   size_t except)
{
    const char *names[MEMBERS_MAX];
    if (p->wanted_epoch != epoch) {
        choose(p, epoch, m, except);
    }
    for (size_t i = 0; i < p->wanted_count; i++) {
        names[i] = p->wanted[i].node;
    }
    enum cadastre_status s =
        cadastre_agent_insync(n->agent, p->handle, epoch, names, p->wanted_count, ASK_MS);
    if ((s == CADASTRE_REFUSED || s == CADASTRE_STALE) && !p->wanted_open) {
        p->wanted_epoch = 0; /* surely not applied */
    }
    p->wanted_open = p->wanted_open || (s != CADASTRE_OK && s != CADASTRE_REFUSED);
    (void)fprintf(stderr, "shardkv: %s/%" PRIu64 ": asked for %zu copies in sync: %s\n",
                  p->keyspace, p->id, p->wanted_count, cadastre_status_name(s));
}

bool replicate(struct node *n, struct part *p, uint64_t epoch, uint64_t position)
{
    struct members m;
    uint64_t begun = copy_now_ms();
    uint64_t asked = 0; /* the order that something was asked for under */
    while (cadastre_may_write(n->agent, p->handle, epoch) && copy_now_ms() - begun < WRITE_MS) {
        size_t at = 0;
        if (!replicate_members(p, epoch, &m)) {
            return false;
        }
        for (; at < m.count; at++) {
            const struct peer_call call = {p->keyspace, p->id, epoch, replicate_start(p),
                                           &m.all[at]};
            if (peer_bring(&p->peer, &call, p->store, &p->lock, position) != PEER_OK) {
                break;
            }
        }
        if (at == m.count && m.revision == cadastre_partition_revision(p->handle)) {
            return true;
        }
        if (at < m.count && m.all[at].role != CADASTRE_ROLE_JOINING && asked != m.revision &&
            copy_now_ms() - begun >= DROP_MS) {
            asked = m.revision;
            replicate_ask(n, p, epoch, &m, at);
        }
        copy_pause_ms(at < m.count ? RETRY_MS : 0);
    }
    return false;
}
