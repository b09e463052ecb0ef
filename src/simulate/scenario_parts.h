/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of reading a scenario: what it leaves out, and its windows. */
#ifndef SIMULATE_SCENARIO_PARTS_H
#define SIMULATE_SCENARIO_PARTS_H

#include "simulate/scenario.h"

/* But for what is expected. */
void scenario_defaults(struct scenario *s);
/* By its generator, which stays. */
void scenario_default_load(struct scenario_load *l);
void scenario_read_windows(struct reading *r, const json_t *list, struct scenario *s);

#endif
