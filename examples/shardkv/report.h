/* SPDX-License-Identifier: Apache-2.0 */
/* What the node tells the directory of its load. */
#ifndef SHARDKV_REPORT_H
#define SHARDKV_REPORT_H

#include "examples/shardkv/node.h"

enum { REPORT_MS = 10000, REPORT_MS_MIN = 100, REPORT_MS_MAX = 600000 };

/* Reports every `report_ms`, until node_end(). */
void *report_loads(void *node);

#endif
