/* SPDX-License-Identifier: Apache-2.0 */
/* What a simulated node's disk holds (sim_io), and the copies that libraft and it give each other.
 * Private to sim_io. */
#ifndef TESTS_SIM_DISK_H
#define TESTS_SIM_DISK_H

#include <raft.h>

#include <stddef.h>
#include <stdint.h>

struct sim_entry {
    raft_term term;
    unsigned short type;
    size_t len;
    uint8_t *data;
};

struct sim_snapshot {
    raft_index index, configuration_index;
    raft_term term;
    struct raft_configuration configuration;
    uint8_t *data;
    size_t len;
};

struct sim_disk {
    raft_term term;
    raft_id vote;
    struct sim_snapshot *snapshot;
    raft_index start; /* of the first entry */
    struct sim_entry *entries;
    size_t n, capacity;
};

/* Takes the entries' bytes over. */
void sim_disk_append(struct sim_disk *d, const struct sim_entry *entries, unsigned n);
void sim_disk_truncate(struct sim_disk *d, raft_index index);
/* Takes the snapshot over. A received one replaces the log; one's own leaves `trailing` entries
 * before it. */
void sim_disk_install(struct sim_disk *d, struct sim_snapshot *snapshot);
void sim_disk_put(struct sim_disk *d, struct sim_snapshot *snapshot, unsigned trailing);
/* As raft_uv loads: one array, one batch that holds all the bytes, owned by libraft. NULL for none.
 */
struct raft_entry *sim_disk_load(const struct sim_disk *d);

/* Owned by libraft. */
void *sim_raft_copy(const void *p, size_t len);
void sim_copy_configuration(const struct raft_configuration *from, struct raft_configuration *to);
struct raft_entry *sim_copy_entries(const struct raft_entry *from, size_t n);
struct raft_snapshot *sim_give_snapshot(const struct sim_snapshot *from);
/* Owned by the caller. */
struct sim_snapshot *sim_copy_snapshot(const struct raft_snapshot *from);

#endif
