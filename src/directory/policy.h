/* SPDX-License-Identifier: Apache-2.0 */
/* What a keyspace's policy says of movement, and what holds where it says nothing. The policy
 * itself is a text that only the API reads; these values go with it. */
#ifndef DIRECTORY_POLICY_H
#define DIRECTORY_POLICY_H

#include "directory/view.h"

struct dir_policy_field {
    const char *name; /* the policy's member */
    uint64_t min, max;
    const char *must_be;
};

const struct dir_policy_field *dir_policy_field(enum dir_policy_value which);

/* The keyspace's, else the cluster's setting, else the default. `ks` may be NULL. */
uint64_t dir_policy_get(const struct dir_view *v,
                        const struct dir_keyspace *ks,
                        enum dir_policy_value which);
/* How long the operation may stay in its stage, in ms, by the keyspace's policy; longer while it is
 * held back. UINT64_MAX: for ever. */
uint64_t dir_policy_stage_limit_ms(const struct dir_view *v, const struct dir_operation *o);

/* The free space that a copy of `bytes` needs; UINT64_MAX when there can't be as much. */
uint64_t dir_policy_space(const struct dir_view *v, const struct dir_keyspace *ks, uint64_t bytes);

#endif
