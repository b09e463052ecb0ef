/* SPDX-License-Identifier: Apache-2.0 */
/* The configurations in a server's log, as the guard keeps them (L10): the latest committed one and
 * those after it. Private to the guard. */
#ifndef RAFT_GUARD_CONFIG_H
#define RAFT_GUARD_CONFIG_H

#include <raft.h>

#include <stdbool.h>

struct guard_config {
    raft_index index;
    struct raft_configuration configuration; /* owned */
};

/* Ordered by index. All zero: empty. */
struct guard_configs {
    struct guard_config *items;
    unsigned count, capacity;
};

/* From the bytes of a RAFT_CHANGE entry, in libraft's format. False: not one. Drops what the list
 * has at `index` and above. */
bool guard_configs_add_entry(struct guard_configs *c,
                             raft_index index,
                             const struct raft_buffer *entry);

/* Empties the list and puts a copy of a snapshot's configuration there. */
void guard_configs_reset(struct guard_configs *c,
                         raft_index index,
                         const struct raft_configuration *configuration);

/* The log was cut from `index` on. */
void guard_configs_truncate(struct guard_configs *c, raft_index index);

/* Forgets what is older than the latest one at or below `committed`. */
void guard_configs_prune(struct guard_configs *c, raft_index committed);

/* The latest at or below `index`; NULL: none. Borrowed until the next change. */
const struct guard_config *guard_configs_at(const struct guard_configs *c, raft_index index);

void guard_configs_close(struct guard_configs *c);

void guard_configuration_copy(const struct raft_configuration *from,
                              struct raft_configuration *ret_to);
bool guard_configuration_equal(const struct raft_configuration *a,
                               const struct raft_configuration *b);

#endif
