/* SPDX-License-Identifier: Apache-2.0 */
/* Tasks as JSON (directory/tasks.h): grants of a registration and the tasks feed have one form. */
#ifndef API_TASK_JSON_H
#define API_TASK_JSON_H

#include "api/json.h"
#include "directory/tasks.h"

/* [task,…] of the node's tasks above `since`; with `upto` not 0, only grants, none newer than it.
 */
void tasks_put(struct buf *b,
               const struct dir_view *v,
               const struct dir_node *node,
               dir_rev since,
               dir_rev upto);

#endif
