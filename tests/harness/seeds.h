/* SPDX-License-Identifier: Apache-2.0 */
/* Which seeds a simulation runs. */
#ifndef TESTS_SEEDS_H
#define TESTS_SEEDS_H

#include <stdint.h>

/* [from, to): of the environment's `name`=from:to if it is there, else as given. Ends the program
 * when it is not that. */
void seeds_read(const char *name, uint64_t from, uint64_t to, uint64_t *ret_from, uint64_t *ret_to);

#endif
