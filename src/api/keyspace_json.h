/* SPDX-License-Identifier: Apache-2.0 */
/* The Keyspace object, both ways: what a body says about placement and replicas, and how it is
 * shown. */
#ifndef API_KEYSPACE_JSON_H
#define API_KEYSPACE_JSON_H

#include "api/json.h"
#include "directory/directory.h"

/* {"name":… without the closing brace. `partitions` and `unavailable` UINT64_MAX: not said. */
void keyspace_put_open(struct buf *b,
                       const struct dir_keyspace *ks,
                       uint64_t partitions,
                       uint64_t unavailable);

/* Reads {"require":{label: value | [value…]},"spread":label} at "/placement" into `p`, which holds
 * what was there before (zero for a new keyspace): a merge-patch. */
enum err_code placement_read(json_t *object, struct dir_placement *p, struct err *e) MUST_CHECK;

/* {"sync":n,"async":n}, each optional, into what is there. */
enum err_code
replicas_read(json_t *object, uint32_t *sync, uint32_t *async, struct err *e) MUST_CHECK;

#endif
