/* SPDX-License-Identifier: Apache-2.0 */
/* Runs of libraft in processes of their own, for faults that end one. */
#ifndef TESTS_FORKED_H
#define TESTS_FORKED_H

struct raft;

/* How a run ended, as its process's exit code. */
enum outcome { HELD = 0, CRASHED = 1, VIOLATED = 10, UNEXPECTED = 11, FATAL = 70 };

typedef enum outcome (*run_fn)(unsigned measures);

/* Forks, runs fn(measures), waits. CRASHED: a signal, or a sanitizer. With not all of the guard's
 * measures stderr is closed, as a crash is what is looked for. A run that hangs for 60 s is
 * UNEXPECTED. */
enum outcome run_forked(run_fn fn, unsigned measures);

/* For guard_options.fatal: the process ends as FATAL. */
void fatal_exit(void *ctx, struct raft *r, const char *why, int status);

#endif
