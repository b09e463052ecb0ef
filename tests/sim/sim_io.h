/* SPDX-License-Identifier: Apache-2.0 */
/* A simulated `struct raft_io`: virtual time, a network and a disk for each node, all decided by
 * one generator, so that a seed replays. It exists because libraft's fixture cannot crash a server:
 * there, memory and pending writes survive.
 *
 * Network: first in, first out between any two nodes (as TCP), no order across pairs, nothing
 * twice; a cut link loses what is on it; half of the time the sender is told. What was sent to a
 * process that has died is lost; what a process sent before it died may still arrive.
 *
 * Disk: term and vote are durable when the call returns (raft_uv syncs them on the loop). Appends,
 * truncations and received snapshots are done in the order asked for, each after its own latency; a
 * node's own snapshot is written aside, after the appends that came before it. A crash keeps what
 * was done, may keep more of what was asked for in the same order (bytes reach a disk before
 * anybody is told), and loses the rest.
 *
 * What raft_uv cannot do is a breach, remembered and told by sim_breach(): a truncation during a
 * snapshot's write or the other way round (it loses one of two barriers, canonical #435). */
#ifndef TESTS_SIM_IO_H
#define TESTS_SIM_IO_H

#include "tests/harness/tap.h"

#include <raft.h>

#include <stdbool.h>
#include <stdint.h>

enum { SIM_NODES_MAX = 8 }; /* node n is the raft server n + 1 */

struct sim;

struct sim_counts {
    uint64_t delivered, dropped, appends, truncations, snapshots, installs, writes_failed,
        writes_lost;
};

/* Borrows `rand`. Never freed: a schedule is a process. */
struct sim *sim_new(struct tap_rand *rand);

uint64_t sim_now(const struct sim *s); /* ms */
const struct sim_counts *sim_counts(const struct sim *s);
/* NULL: none. */
const char *sim_breach(const struct sim *s);

/* A new process on the node, which must not be running: fills in `io`, which must live until
 * sim_crash. */
void sim_boot(struct sim *s, unsigned node, struct raft_io *io);
/* The process dies. Its raft and all that it allocated are simply forgotten. */
void sim_crash(struct sim *s, unsigned node);

/* Runs the next event that is due by `until`, and tells which node's it was. With none, time is
 * `until`: false. */
bool sim_step(struct sim *s, uint64_t until, unsigned *ret_node);

/* Faults. Links are one way. */
void sim_link(struct sim *s, unsigned from, unsigned to, bool up);
bool sim_linked(const struct sim *s, unsigned a, unsigned b); /* both ways */
void sim_net_latency(struct sim *s,
                     unsigned node,
                     unsigned ms); /* of what the node sends; up to twice that */
void sim_disk_latency(struct sim *s,
                      unsigned node,
                      unsigned ms); /* of each write; up to twice that */
void sim_snapshot_latency(struct sim *s, unsigned node, unsigned ms);
void sim_fail_write(struct sim *s, unsigned node);            /* the next append */
void sim_pause(struct sim *s, unsigned node, uint64_t until); /* as SIGSTOP */

/* The durable log, for checks. quiet: nothing is being written. */
bool sim_disk_quiet(const struct sim *s, unsigned node);
raft_index sim_disk_last(const struct sim *s, unsigned node);
raft_term sim_disk_last_term(const struct sim *s, unsigned node);

#endif
