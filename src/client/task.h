/* SPDX-License-Identifier: Apache-2.0 */
/* Orders of the directory, decoded. */
#ifndef CLIENT_TASK_H
#define CLIENT_TASK_H

#include "client/decode.h"

enum { CL_MUST_HAVE_MAX = 64 };

/* NULL when it makes no sense or is of a kind that is not known here. cadastre_task_free() it. */
struct cadastre_task *cl_task_read(const json_t *json);

#endif
