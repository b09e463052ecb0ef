/* SPDX-License-Identifier: Apache-2.0 */
/* Group commit. At most REPLICA_IN_FLIGHT_MAX entries are under way: libraft has no back-pressure
 * of its own, and its loop stalls when thousands are. What arrives while they are waits in the
 * queue and leaves as one group. */
#include "raft/internal.h"

#include "base/assert.h"
#include "base/log.h"
#include "base/mem.h"
#include "raft/group.h"

#include <inttypes.h>
#include <string.h>

void propose_init(struct replica *r)
{
    r->propose.last = &r->propose.first;
    for (unsigned i = 0; i < REPLICA_IN_FLIGHT_MAX; i++) {
        r->propose.groups[i].r = r;
    }
}

enum err_code replica_propose(struct replica *r,
                              const uint8_t *command,
                              size_t len,
                              replica_propose_cb cb,
                              void *arg)
{
    struct propose *q = &r->propose;
    if (!replica_leads(r)) {
        return ERR_NOT_LEADER;
    }
    if (len > REPLICA_GROUP_BYTES_MAX || group_size(len, 1) > REPLICA_GROUP_BYTES_MAX) {
        return ERR_TOO_LARGE;
    }
    if (q->count >= REPLICA_QUEUE_MAX || len > QUEUE_BYTES_MAX - q->bytes || r->space.low) {
        return ERR_OVERLOADED;
    }
    struct proposal *p = mem_alloc(sizeof *p + len);
    *p = (struct proposal){.cb = cb, .arg = arg, .len = len};
    if (len > 0) {
        memcpy(p->bytes, command, len);
    }
    *q->last = p;
    q->last = &p->next;
    q->count++;
    q->bytes += len;
    return ERR_OK;
}

void replica_hold(struct replica *r, bool hold)
{
    r->propose.hold = hold;
}

/* Ends a list of proposals that share an outcome and have no results. */
static void fail_all(struct proposal *p, enum err_code status)
{
    while (p != NULL) {
        struct proposal *next = p->next;
        p->cb(p->arg, status, NULL);
        mem_free(p);
        p = next;
    }
}

void propose_fail_queue(struct replica *r)
{
    struct propose *q = &r->propose;
    struct proposal *first = q->first;
    q->first = NULL;
    q->last = &q->first;
    q->count = 0;
    q->bytes = 0;
    fail_all(first, ERR_NOT_LEADER);
}

bool propose_idle(const struct replica *r)
{
    for (unsigned i = 0; i < REPLICA_IN_FLIGHT_MAX; i++) {
        if (r->propose.groups[i].state == GROUP_IN_FLIGHT) {
            return false;
        }
    }
    return true;
}

static void fail_group(struct group *g, enum err_code status)
{
    struct proposal *first = g->first;
    g->first = NULL;
    g->state = GROUP_FREE;
    fail_all(first, status);
}

/* --- applying --- */

/* On the proposing server, right after propose_apply() of the entry; or when leadership was lost.
 */
static void on_applied(struct raft_apply *request, int status, void *result)
{
    struct group *g = (struct group *)request;
    struct proposal *p = g->first;
    (void)result; /* they are in the group */
    if (status != 0) {
        g->state =
            GROUP_LOST; /* told in the next turn: libraft is in the middle of stepping down */
        return;
    }
    g->first = NULL;
    for (unsigned i = 0; i < g->count; i++) {
        struct proposal *next = p->next;
        p->cb(p->arg, ERR_OK, g->results[i]);
        mem_free(p);
        p = next;
    }
    g->state = GROUP_FREE;
}

/* The group that waits for the entry at `index`. One that is in flight is in libraft's list of
 * requests, and the list is emptied (and the groups marked lost) when leadership ends; so the index
 * is enough. */
static struct group *waiting_for(struct replica *r, uint64_t index)
{
    for (unsigned i = 0; i < REPLICA_IN_FLIGHT_MAX; i++) {
        struct group *g = &r->propose.groups[i];
        if (g->state == GROUP_IN_FLIGHT && g->request.index == index) {
            return g;
        }
    }
    return NULL;
}

int propose_apply(struct raft_fsm *fsm, const struct raft_buffer *buf, void **result)
{
    struct replica *r = fsm->data;
    struct group_reader reader;
    struct slice command;
    uint64_t index = raft_last_applied(&r->raft) + 1;
    enum group_fault fault = group_open(&reader, buf->base, buf->len);
    if (fault != GROUP_FINE) {
        log_fatal(EXIT_DATA, "raft.entry.unreadable", "index=%" PRIu64 " bytes=%zu reason=%s",
                  index, buf->len,
                  fault == GROUP_NEWER ? "\"a later release wrote it\"" : "damaged");
    }
    struct group *g = r->raft.state == RAFT_LEADER ? waiting_for(r, index) : NULL;
    ASSERT(g == NULL || g->count == reader.left);
    for (unsigned i = 0; group_next(&reader, &command); i++) {
        void *outcome = r->machine.apply(r->machine.ctx, index, command.data, command.len);
        if (g != NULL) {
            g->results[i] = outcome;
        } else {
            r->machine.drop_result(r->machine.ctx, outcome);
        }
    }
    r->machine.applied(r->machine.ctx, index);
    *result = NULL;
    return 0;
}

/* --- proposing --- */

/* Moves as many proposals as fit into `g`. Returns their bytes. */
static size_t fill_group(struct propose *q, struct group *g, struct slice *commands)
{
    size_t payload = 0;
    struct proposal *p = q->first, *last = NULL;
    g->count = 0;
    g->first = p;
    while (
        p != NULL && g->count < REPLICA_GROUP_MAX &&
        (g->count == 0 || group_size(payload + p->len, g->count + 1) <= REPLICA_GROUP_BYTES_MAX)) {
        commands[g->count++] = slice_of(p->bytes, p->len);
        payload += p->len;
        last = p;
        p = p->next;
    }
    ASSERT(last != NULL);
    last->next = NULL;
    q->first = p;
    if (p == NULL) {
        q->last = &q->first;
    }
    q->count -= g->count;
    q->bytes -= payload;
    return payload;
}

static bool propose_group(struct replica *r, struct group *g)
{
    struct slice commands[REPLICA_GROUP_MAX];
    size_t payload = fill_group(&r->propose, g, commands);
    struct raft_buffer entry = {.len = group_size(payload, g->count)};
    entry.base = raft_malloc(entry.len);
    ASSERT(entry.base != NULL);
    group_encode(commands, g->count, entry.base, entry.len);
    g->state = GROUP_IN_FLIGHT;
    int rv = raft_apply(&r->raft, &g->request, &entry, 1, on_applied);
    if (rv == 0) {
        return true;
    }
    raft_free(entry.base);
    if (rv != RAFT_NOTLEADER) {
        log_fatal(EXIT_DATA, "raft.write.failed", "dir=%s reason=\"%s\"", r->raft_dir,
                  raft_strerror(rv));
    }
    fail_group(g, ERR_NOT_LEADER);
    return false;
}

void propose_turn(struct replica *r)
{
    struct propose *q = &r->propose;
    for (unsigned i = 0; i < REPLICA_IN_FLIGHT_MAX; i++) {
        if (q->groups[i].state == GROUP_LOST) {
            fail_group(&q->groups[i], ERR_OUTCOME_UNKNOWN);
        }
    }
    if (q->hold || r->transfer.busy) {
        return; /* a transfer either succeeds, or they go on after it */
    }
    for (unsigned i = 0; i < REPLICA_IN_FLIGHT_MAX; i++) {
        if (q->first != NULL && q->groups[i].state == GROUP_FREE && replica_leads(r) &&
            !propose_group(r, &q->groups[i])) {
            return;
        }
    }
}
