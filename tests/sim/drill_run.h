/* SPDX-License-Identifier: Apache-2.0 */
/* The drill: a move of 512 GiB at 64 MiB/s under 30 MiB/s of writes, in virtual time, and what
 * dies at four points of it: in the copy, in catch-up, right before the new epoch is published and
 * right after. */
#ifndef TESTS_DRILL_RUN_H
#define TESTS_DRILL_RUN_H

#include <stdio.h>

/* Prints who has the authority at each point, at which epoch, what would become of it, and what
 * became of it when this or that died. Returns how much of it is not as docs/movement.md says. */
unsigned drill_run(FILE *out);

#endif
