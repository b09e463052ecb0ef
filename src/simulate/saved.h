/* SPDX-License-Identifier: Apache-2.0 */
/* A state that was saved: a backup's file for what-if without a server. Backups hold no loads: they
 * are read from what a leader has told (GET /v1/load/summary), or assumed. One thread. */
#ifndef SIMULATE_SAVED_H
#define SIMULATE_SAVED_H

#include "simulate/whatif.h"

enum { SAVED_REQUESTS = 100 }; /* a second, of a partition that nothing is known of */

struct saved;
/* The caller closes it. The thread has called rcu_reader_start(). */
enum err_code saved_open(const char *path, struct saved **ret, struct err *e) MUST_CHECK;
void saved_close(struct saved *s);
/* One page of a summary. ERR_INVALID_REQUEST when it is none. */
enum err_code saved_take_loads(struct saved *s, struct slice page, struct err *e) MUST_CHECK;
/* Each partition without a load gets SAVED_REQUESTS and so many bytes. Returns how many did. */
uint64_t saved_assume_loads(struct saved *s, uint64_t bytes);
/* What whatif_run() begins with; lives as long as `s`. */
struct whatif_state saved_state(const struct saved *s);

#endif
