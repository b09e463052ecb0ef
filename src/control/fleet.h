/* SPDX-License-Identifier: Apache-2.0 */
/* The planner's picture of the directory: a view and the loads that this server has heard, as a
 * sealed struct bal_fleet. Pure but for the loads' locks; any thread, on a pinned view.
 *
 * Resources: where every living node says a capacity ("cpu", "reads_per_s", "writes_per_s",
 * "bytes", "requests_per_s"), that counts. Where none of load is said by all, every node is taken
 * to bear twice the mean of requests, at least FLEET_REQUESTS_MIN: then even is what counts. */
#ifndef CONTROL_FLEET_H
#define CONTROL_FLEET_H

#include "balancer/plan.h"
#include "control/loads.h"
#include "directory/balancer.h"

enum { FLEET_REQUESTS_MIN = 200000, FLEET_BIRTHS_MAX = 4096 }; /* thousandths a second */

/* A partition that a split or a merge has made, while this server led. */
struct fleet_birth {
    uint64_t id, parent, at_ms; /* at_ms: log time */
    bool merged;
};

struct fleet_input {
    const struct dir_view *view;
    struct loads *loads;
    uint64_t mono_ms, log_ms;         /* now, by both clocks */
    const struct fleet_birth *births; /* by id */
    uint32_t birth_count;
};

/* ERR_INVALID_REQUEST, with what does not fit: then the fleet is closed. */
enum err_code
fleet_build(struct bal_fleet *f, const struct fleet_input *in, struct err *e) MUST_CHECK;
/* What the row says, in the planner's terms. */
void fleet_settings(const struct dir_balancer *row, struct bal_settings *ret);
/* Still open: that its time is up is written with the next command, which may be long in coming. */
bool fleet_waits(const struct dir_proposal *p, uint64_t log_ms);
/* "cpu", "reads", …, "requests". */
const char *fleet_resource_name(unsigned r);

#endif
