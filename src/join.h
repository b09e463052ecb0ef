/* SPDX-License-Identifier: Apache-2.0 */
/* Asking a running cluster to take this server in, before it starts. */
#ifndef JOIN_H
#define JOIN_H

#include "config.h"

/* What the cluster answered. */
struct join_answer {
    char cluster[33];
    uint64_t generation;
    struct replica_peer peers[REPLICA_SERVERS_MAX];
    unsigned peer_count;
};

/* POSTs to config->join, following redirects to the leader, again for at most a minute while there
 * is none. Blocks. On error `e` says what the cluster said. */
enum err_code join_cluster(const struct config *config,
                           const struct replica_identity *identity,
                           struct join_answer *ret_answer,
                           struct err *e) MUST_CHECK;

/* For a member that was started with other addresses and --join: tells the cluster where it is now.
 * ERR_INVALID_REQUEST: the cluster refuses to; ERR_IO: nobody answered, which is no reason not to
 * start. Blocks for at most half a minute. */
enum err_code join_moved(const struct config *config,
                         const struct replica_identity *identity,
                         struct err *e) MUST_CHECK;

#endif
