/* SPDX-License-Identifier: Apache-2.0 */
/* control.h without Raft: one thread applies commands to a real directory and store, in order, and
 * publishes after each. For tests of what stands on control.h. Its control_* functions are weak, so
 * that programs which link the real ones get those. */
#ifndef TESTS_LOCAL_CONTROL_H
#define TESTS_LOCAL_CONTROL_H

#include "control/control.h"

/* Founds a cluster of one at revision 1, with the store at `path`. */
struct control *local_control_start(const char *path);
/* Ends the loop; nothing is published after. */
void local_control_drain(struct control *c);
/* After local_control_drain(). Before directory and store go, whoever listens to the feed must be
 * gone. */
void local_control_stop(struct control *c);

/* Not the leader any more, and where that is ("" when unknown); or the leader again. */
void local_control_lead(struct control *c, bool leads, const char *leader_url);
/* What is handed over waits until it is let go. */
void local_control_hold(struct control *c, bool hold);
/* As if the leader was last heard so long ago. */
void local_control_staleness(struct control *c, uint64_t ms);
/* Handed-over work is refused as ERR_OVERLOADED. */
void local_control_overload(struct control *c, bool overloaded);
/* Commands end in ERR_OUTCOME_UNKNOWN, without being applied. */
void local_control_lose(struct control *c, bool lose);

/* Applies a command and waits for it; the result is the caller's. Any thread. */
struct dir_result *
local_control_run(struct control *c, Cadastre__Command__BodyCase which, void *body);
/* Goes on from a snapshot of its own, as after a restart: the feed's ring is empty. */
void local_control_restart(struct control *c);
/* Lets log time pass. */
void local_control_advance(struct control *c, uint64_t ms);

#endif
