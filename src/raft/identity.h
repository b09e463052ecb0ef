/* SPDX-License-Identifier: Apache-2.0 */
/* What a data directory says it is: <data_dir>/identity, a small text file with a checksum,
 * replaced whole and synced (with its directory) before anything depends on it.
 * replica_identity_open (replica.h) is the public half. */
#ifndef RAFT_IDENTITY_H
#define RAFT_IDENTITY_H

#include "raft/hello.h"
#include "raft/replica.h"

struct identity {
    struct replica_identity is;
    bool joined; /* taken in by a running cluster: `founders` are the members it was told of */
    /* Members that are no longer where `founders` or Raft's configuration has them. */
    struct identity_move {
        uint64_t id;
        char raft_address[REPLICA_ADDRESS_MAX + 1];
    } moves[REPLICA_SERVERS_MAX];
    unsigned move_count;
    bool started; /* Raft has begun to write: from here on its files must be there */
};

/* ERR_NOT_FOUND when there is no file, ERR_IO, ERR_CORRUPT. */
enum err_code identity_load(const char *data_dir, struct identity *ret, struct err *e) MUST_CHECK;
/* When this returns ERR_OK the file has reached the disk. */
enum err_code
identity_save(const char *data_dir, const struct identity *identity, struct err *e) MUST_CHECK;

/* The founder with this id, or NULL. Borrowed. */
const struct replica_peer *identity_founder(const struct identity *identity, uint64_t id);

/* Where the member has moved to, or NULL. Borrowed. */
const char *identity_moved(const struct identity *identity, uint64_t id);

/* Digest of a list's ids and addresses, whatever its order. */
uint64_t identity_founders_digest(const struct replica_peer *peers, unsigned count);
/* The cluster that these founders, with these instances, make: 32 hex digits. The same on each of
 * them. */
void identity_cluster_of(const struct replica_peer *peers, unsigned count, char ret_cluster[33]);

void identity_hex(const uint8_t bytes[16], char ret_hex[33]);
/* All zero when `hex` is not 32 hex digits. */
void identity_unhex(const char *hex, uint8_t ret_bytes[16]);

#endif
