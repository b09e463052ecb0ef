/* SPDX-License-Identifier: Apache-2.0 */
/* The guard: stands between libraft 0.15.0 and its `struct raft_io`, and keeps the library's known
 * faults from doing harm. libraft is used as the distribution ships it; nothing of it is patched.
 * Each fault has an L-number and, where there is one, its upstream issue; L19 to L25 are ours
 * (docs/adr/0008-faults-found-by-schedules.md). Tests show each of them without and with its
 * measure: tests/sim/raft_guard_test.c, raft_guard_disk_test.c, raft_fuzz_test.c.
 *
 * How: the guard makes an outer raft_io that libraft sees and keeps the given one (raft_uv's, the
 * fixture's) as the inner; the guard is found from the outer by its address and from the inner by
 * `data`, so there is no global. It reads and, where said, writes public fields of `struct raft`,
 * which is why it is for this version alone (guard.c asserts the layout).
 *
 * Not covered, for the caller to keep: L11 (a struct raft_transfer is never freed), L12 (raft_close
 * is not called; the process exits), L18 (an id is never used again after its data is lost).
 *
 * Thread: the loop thread only. Nothing here blocks, but that set_term and set_vote of the backend
 * sync. */
#ifndef RAFT_GUARD_H
#define RAFT_GUARD_H

#include <raft.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct guard;

/* The measures. Each can be left out, for the tests that show what it is for. */
enum guard_measure {
    /* L1 (cowsql #148), L7 (canonical 35479fc, #367): a follower acknowledges, and commits, no
     * more than what it knows to be equal to the log of the leader of its present term, and no
     * more than it has stored. libraft acknowledges its last stored index, leftovers of a
     * deposed leader included. Raft dissertation, 3.5 and figure 3.1: commitIndex is
     * min(leaderCommit, index of last NEW entry). */
    GUARD_ACK_CLAMP = 1u << 0,
    /* L2 (canonical #220, #336): only an entry of the leader's own term commits by counting,
     * 3.6.2. L3 (#336, 1996d32): the highest index that a majority has stored commits at once,
     * and not only once a majority has reached the leader's own last stored index (which never
     * happens under load with slow followers). */
    GUARD_COMMIT = 1u << 1,
    /* L2: a new leader of several voters appends a barrier at once, so that 3.6.2 can commit
     * what came before it. */
    GUARD_BARRIER = 1u << 2,
    /* L4 (canonical #320, #460, #466): a failed append, or a received snapshot that could not be
     * stored, is fatal. After it the log in memory and the log on disk differ. */
    GUARD_FAIL_STOP = 1u << 3,
    /* L5 (cowsql #73, #149): an AppendEntries message carries at most batch_entries_max entries
     * and batch_bytes_max bytes (one entry always goes); a batch of GUARD_BATCH_UNREADABLE
     * entries, which libraft could write and not read again, is fatal. */
    GUARD_BATCH_CAP = 1u << 4,
    /* L6 (canonical #180, #189, #305): an entry whose length is no multiple of 8 is fatal before
     * it is written: libraft would write it and lose it, or its neighbour, at the next start. */
    GUARD_ENTRY_CHECK = 1u << 5,
    /* L8 (canonical #429, #467, #353, #357): no candidacy while writes are in flight or a
     * snapshot is being installed; TimeoutNow is dropped then. Nothing is sent to "no server" (a
     * result when no leader is known). */
    GUARD_NO_CANDIDACY = 1u << 6,
    /* L9 (canonical #435, #372, #450, #344): entries that would truncate the log are taken off
     * the message (the leader sends them again) while writes are in flight or a snapshot is
     * being written, and a snapshot is not written before a truncation is through. raft_uv loses
     * one of two barriers that overlap. A truncation that comes all the same during a snapshot
     * is fatal. */
    GUARD_TRUNCATE = 1u << 7,
    /* L10 (canonical #354, #250, #323): the configuration in force is the latest in the log, and
     * a snapshot's is the latest that it covers. libraft rolls an uncommitted change back
     * through a NULL pointer once the old configuration is gone from the log, or back too far,
     * and not at all after a restart; and it puts an uncommitted one into snapshots.
     * Dissertation, 4.1. */
    GUARD_CONFIG = 1u << 8,
    /* L19: AppendEntries that reach below a follower's own snapshot, where its log is gone, are
     * cut to begin where the snapshot ends. libraft appends them again at the log's end, or
     * rejects. */
    GUARD_TRIM = 1u << 9,
    /* L20: a leader's next_index for a server stays above match_index, and the server counts as
     * out of "snapshot" state once it has all that the snapshot has. Otherwise libraft can send
     * that snapshot for ever. Needs GUARD_ACK_CLAMP: match_index must be true. */
    GUARD_PROGRESS = 1u << 10,
    /* L21, L22: a server without a vote forgets a silent leader, and votes when asked, 4.1; a
     * refused pre-vote tells the higher term, 9.6. Otherwise a cluster whose membership was
     * being changed may elect nobody. */
    GUARD_VOTES = 1u << 11,
    /* L23: the only voter begins a new term when it elects itself, at its start too. libraft's
     * leads in the old term, and after a crash may give an observer two different entries of one
     * term and index. Dissertation, 3.4 and 3.6.1 (log matching). */
    GUARD_TERM = 1u << 12,
    /* L24: each entry loaded at the start has its own memory. libraft frees what they share
     * while some is being sent, once a snapshot has taken them out of the log. */
    GUARD_SHARED = 1u << 13,
    /* L25 (perhaps canonical #386): one vote in a term, 3.4. libraft's server gives a second one
     * to a candidate that it once wanted to hand over to, and two leaders have one term. */
    GUARD_ONE_VOTE = 1u << 14,
    GUARD_ALL = (1u << 15) - 1,
    /* No fault, but a wait: libraft's followers hear of a commit with the next entry, or the next
     * heartbeat. A leader with nothing more to send tells those that have the entries at once.
     * Not of GUARD_ALL, so that the schedules that show the faults stay what they are. */
    GUARD_TELL = 1u << 15,
    /* A wait as well, and not of GUARD_ALL either: libraft drops a snapshot that comes while the
     * follower takes one of its own, and its leader sends the next only when the time for
     * installing one is over. Here it is handed on once the other is stored, with the next
     * message. */
    GUARD_PARK = 1u << 16
};

enum {
    GUARD_BATCH_ENTRIES_MAX = 16384,
    GUARD_BATCH_BYTES_MAX = 8 << 20,
    GUARD_BATCH_UNREADABLE = 262144
};

struct guard_options {
    unsigned measures; /* enum guard_measure, or-ed */
    unsigned batch_entries_max;
    size_t batch_bytes_max;
    void *ctx; /* passed to the callbacks; borrowed for the guard's life */
    /* The process must not go on: log `why` and exit. Must not return (it may longjmp out, in
     * tests). `status` is a RAFT_* code; `why` is static text. Required. */
    void (*fatal)(void *ctx, struct raft *r, const char *why, int status);
    /* raft_state() has changed (RAFT_FOLLOWER and so on), told after libraft is done with the event
     * that changed it: raft_* may be called. NULL: not told. */
    void (*on_state)(void *ctx, struct raft *r, int old_state, int new_state);
};

struct guard_stats {
    uint64_t acks_clamped;             /* L1, L7 */
    uint64_t commits_held;             /* L2: acks that must not commit by themselves */
    uint64_t barriers;                 /* L2: appended on election */
    uint64_t appends_failed;           /* L4 */
    uint64_t batches_capped;           /* L5 */
    uint64_t ticks_held;               /* L8: elections held back, in ticks */
    uint64_t timeouts_dropped;         /* L8: TimeoutNow */
    uint64_t entries_deferred;         /* L9: messages whose entries were taken off */
    uint64_t configurations_corrected; /* L10 */
    uint64_t leaders_forgotten;        /* L21 */
    uint64_t batches_trimmed;          /* L19 */
    uint64_t snapshots_held;           /* L9: snapshot writes that waited for a truncation */
    uint64_t commits_told;             /* GUARD_TELL: to one server each */
    uint64_t snapshots_parked;         /* GUARD_PARK */
};

/* Every measure, GUARD_TELL and GUARD_PARK too, the default caps, no callbacks. */
void guard_options_default(struct guard_options *ret_options);

/* Puts a guard around `io`, the raft_io that `r` was initialised with. Call after raft_init and
 * before raft_start. From here on r->io is the guard's, and io->data too is the guard's; settings
 * of the backend (raft_uv_set_*) still go to `io`. Copies the options; borrows `r` and `io` until
 * guard_free. */
struct guard *
guard_install(struct raft *r, struct raft_io *io, const struct guard_options *options);

/* After raft_close's callback, or when the instance is abandoned. Accepts NULL. */
void guard_free(struct guard *g);

const struct guard_stats *guard_stats(const struct guard *g);

/* L9: a truncation is not surely through. The machine's snapshot callback may answer RAFT_BUSY
 * then, which costs nothing and spares holding a snapshot (the guard itself holds the write back if
 * it does not). */
bool guard_recently_truncated(const struct guard *g);

#endif
