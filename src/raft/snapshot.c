/* SPDX-License-Identifier: Apache-2.0 */
/* libraft's three snapshot calls onto the machine's. The first and last run on the loop, the middle
 * one on the pool. A snapshot that could not be written ends the process (watch.c). */
#include "raft/internal.h"

#include "base/log.h"

#include <inttypes.h>

int snapshot_begin(struct raft_fsm *fsm, struct raft_buffer *bufs[], unsigned *n)
{
    struct replica *r = fsm->data;
    struct snapshot *s = &r->snapshot;
    /* An uncommitted configuration would go into it (canonical #250); a truncation still under way
     * would race it. */
    if (s->held != NULL || r->raft.configuration_uncommitted_index != 0 ||
        guard_recently_truncated(r->guard)) {
        return RAFT_BUSY;
    }
    uint64_t index = raft_last_applied(&r->raft);
    s->held = r->machine.snapshot_begin(r->machine.ctx, index);
    if (s->held == NULL) {
        return RAFT_BUSY;
    }
    s->index = index;
    s->written = false;
    if (s->forced) {
        s->forced = false;
        raft_set_snapshot_threshold(&r->raft, r->options.snapshot_threshold);
    }
    *bufs = s->pieces; /* ours: snapshot_end takes them back */
    *n = 0;
    return 0;
}

int snapshot_wait(struct raft_fsm *fsm, struct raft_buffer *bufs[], unsigned *n)
{
    struct replica *r = fsm->data;
    struct snapshot *s = &r->snapshot;
    const uint8_t *piece[2] = {NULL, NULL};
    size_t len[2] = {0, 0};
    if (r->machine.snapshot_wait(r->machine.ctx, s->held, piece, len) != 0) {
        return RAFT_IOERR;
    }
    for (unsigned i = 0; i < 2; i++) {
        /* libraft only reads them, but its buffers are not const. */
        s->pieces[i] = (struct raft_buffer){(void *)(uintptr_t)piece[i], len[i]};
    }
    *bufs = s->pieces;
    *n = piece[1] != NULL ? 2 : 1;
    s->written = true;
    return 0;
}

int snapshot_end(struct raft_fsm *fsm, struct raft_buffer *bufs[], unsigned *n)
{
    struct replica *r = fsm->data;
    struct snapshot *s = &r->snapshot;
    bool stored = r->raft.log.snapshot.last_index == s->index;
    log_event(stored ? LOG_INFO : LOG_WARN,
              stored ? "raft.snapshot.taken" : "raft.snapshot.dropped",
              "index=%" PRIu64 " bytes=%zu", s->index,
              s->written ? s->pieces[0].len + s->pieces[1].len : 0);
    s->taken += stored;
    r->machine.snapshot_end(r->machine.ctx, s->held);
    s->held = NULL;
    *bufs = NULL;
    *n = 0;
    return 0;
}

int snapshot_restore(struct raft_fsm *fsm, struct raft_buffer *buf)
{
    struct replica *r = fsm->data;
    if (r->machine.restore(r->machine.ctx, buf->base, buf->len) != 0) {
        log_fatal(
            EXIT_DATA, "raft.snapshot.damaged",
            "dir=%s bytes=%zu hint=\"clear the data directory and use --join, as a new server\"",
            r->raft_dir, buf->len);
    }
    raft_free(buf->base);
    return 0;
}

void replica_snapshot(struct replica *r)
{
    struct snapshot *s = &r->snapshot;
    if (!s->forced) {
        s->forced = true;
        raft_set_snapshot_threshold(&r->raft, 1);
    }
    /* The confirmation's barrier is the next entry; on a follower it is the leader's. */
    r->confirm.nudged = true;
}
