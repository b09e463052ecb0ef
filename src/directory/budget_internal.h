/* SPDX-License-Identifier: Apache-2.0 */
/* The side of budgets that changes state. For src/directory/ and its tests alone. */
#ifndef DIRECTORY_BUDGET_INTERNAL_H
#define DIRECTORY_BUDGET_INTERNAL_H

#include "base/wire.h"
#include "directory/budget.h"
#include "directory/operation.h"

/* Takes what the operation needs, in its row; whoever admits it has asked dir_budget_waits(). */
void budget_reserve(const struct dir_view *v, struct dir_operation *o);
/* The way back takes over what its move holds, with the ends exchanged; it asks nobody. */
void budget_reverse(struct dir_operation *o, struct dir_operation *back);
/* The operation has entered its stage: its reservation may begin to step down, or end. */
void budget_on_stage(const struct dir_view *v, struct dir_operation *o);
/* ERR_INVALID_REQUEST when a figure of a start can't be one. */
enum err_code budget_check_start(struct apply *a) MUST_CHECK;

/* What a BalancerPatch makes of the budgets; nothing is changed yet. */
enum err_code budget_take_patch(struct apply *a, struct dir_budgets *next) MUST_CHECK;

/* Keeps both indexes in step with a row that comes, changes, or goes (NULL: is not there). */
void budget_index(struct ptree *usage,
                  struct ptree *queued,
                  const struct dir_operation *before,
                  struct dir_operation *after);
/* What is wrong with the view's two indexes, or NULL. */
const char *check_budgets(const struct dir_view *v);
/* What is wrong with a reservation, or NULL. */
const char *check_reservation(const struct dir_operation *o);

/* The row's part, by the rules of object.c. */
void budget_put(struct buf *b, const struct dir_reservation *r);
void budget_get(struct wire_reader *r, struct dir_reservation *ret);

/* throttle.c. The operation has entered its stage: where nothing is copied, nothing is held back.
 */
void throttle_on_stage(struct dir_operation *o);
/* What is wrong, or NULL. */
const char *check_throttle(const struct dir_view *v, const struct dir_operation *o);
void throttle_put(struct buf *b, const struct dir_throttle *t);
void throttle_get(struct wire_reader *r, struct dir_throttle *ret);

/* operation_start.c: what the operation itself waits for, or NULL. */
const char *operation_not_yet(const struct dir_view *v,
                              const struct dir_operation *o,
                              const struct dir_partition *p);

#endif
