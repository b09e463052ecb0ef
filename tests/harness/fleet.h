/* SPDX-License-Identifier: Apache-2.0 */
/* A fleet of leased nodes with labels, and operations among them, on a world, for tests. */
#ifndef TESTS_FLEET_H
#define TESTS_FLEET_H

#include "directory/budget.h"
#include "tests/harness/world.h"

/* "" for a label that it has not. Registers it, or again in a new session that knows of the old
 * one. */
const struct dir_result *fleet_node(struct world *w,
                                    const char *name,
                                    const char *rack,
                                    const char *zone,
                                    const char *device);

/* An operation as it is asked for. */
struct fleet_start {
    enum dir_operation_kind kind; /* 0: a move */
    uint64_t partition;
    const char *from, *to; /* NULL: not named */
    uint32_t class_of;     /* 0: an operator's */
    uint64_t rate;         /* 0: not named */
    bool has_size, has_live;
    uint64_t size, live;
};
/* The operation's id, or 0 (see w->result). */
uint64_t fleet_start(struct world *w, const struct fleet_start *s);
/* The outcome. */
enum err_code fleet_admit(struct world *w, uint64_t operation);
/* The same, of which nothing happens. */
enum err_code fleet_try_admit(struct world *w, uint64_t operation);
/* One step as it goes well, by whoever has to report; the time-out in WINDOW. */
void fleet_step(struct world *w, uint64_t operation);
/* Steps until it is in this stage. */
void fleet_to(struct world *w, uint64_t operation, enum dir_stage stage);
void fleet_abort(struct world *w, uint64_t operation);
void fleet_retry(struct world *w, uint64_t operation);
/* Out of its window, the way back. Returns the operation that goes it. */
uint64_t fleet_back(struct world *w, uint64_t operation);
const struct dir_result *fleet_release(struct world *w, uint64_t operation, uint32_t step);
/* Told to go at this share of its rate, because of its source. The outcome. */
enum err_code fleet_rate(struct world *w, uint64_t operation, uint32_t share_ppm);
const struct dir_operation *fleet_operation(const struct world *w, uint64_t operation);

const struct dir_result *
fleet_limit(struct world *w, enum dir_budget budget, uint64_t moves, uint64_t bytes_per_s);
const struct dir_result *fleet_reserve(struct world *w, uint64_t percent);
const struct dir_result *fleet_release_ms(struct world *w, uint64_t release_ms);
/* Every limit so high that it does not count, and no reserve. */
void fleet_unlimited(struct world *w);

#endif
