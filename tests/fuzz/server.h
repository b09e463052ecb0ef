/* SPDX-License-Identifier: Apache-2.0 */
/* The whole API over a populated directory, inside this process, for targets that speak HTTP. It is
 * made anew every so many inputs, and its state is checked then. */
#ifndef TESTS_FUZZ_SERVER_H
#define TESTS_FUZZ_SERVER_H

#include "tests/harness/api_world.h"

/* The present one, for one more input. */
struct api_world *server(void);
dir_rev server_revision(const struct api_world *w);
/* An answer that a client may get, whatever it sent: one of our statuses, but never 500; a problem
 * has its code. */
void server_judge(struct api_world *w);

#endif
