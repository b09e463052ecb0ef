/* SPDX-License-Identifier: Apache-2.0 */
/* The composition root: builds the modules in order and runs the loop. */
#ifndef SERVER_H
#define SERVER_H

#include "config.h"

/* Serves until asked to stop. Returns the exit status. */
int server_run(const struct config *config);
/* `cadastred check DIR`: 0 when all is well, 1 with a line per violation on stdout, 3 when it can't
 * be read. */
int server_check(const char *data_dir);

#endif
