/* SPDX-License-Identifier: Apache-2.0 */
/* What a placement asks of a node. Pure. */
#ifndef DIRECTORY_PLACE_H
#define DIRECTORY_PLACE_H

#include "directory/types.h"

bool place_allows(const struct dir_placement *placement, const struct dir_node *n);
const char *place_label(const struct dir_node *n, const char *name); /* "" when it has none */

#endif
