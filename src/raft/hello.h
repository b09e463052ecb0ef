/* SPDX-License-Identifier: Apache-2.0 */
/* What two servers say to each other before a connection carries Raft. The dialer sends HELLO_DIAL;
 * the acceptor answers HELLO_ACCEPT, or HELLO_REFUSE with the reason, and each checks who the other
 * is. A frame, little-endian:
 *
 *     8 bytes magic, u16 protocol version, u16 zero, u32 length of the body (at most
 * HELLO_BODY_MAX), body
 *
 * Pure; any thread. */
#ifndef RAFT_HELLO_H
#define RAFT_HELLO_H

#include "raft/replica.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    HELLO_VERSION = 1,
    HELLO_HEADER_SIZE = 16,
    HELLO_BODY_MAX = 1024,
    HELLO_FRAME_MAX = HELLO_HEADER_SIZE + HELLO_BODY_MAX,
    HELLO_CLUSTER_SIZE = 16
};

enum hello_type { HELLO_DIAL = 1, HELLO_ACCEPT, HELLO_REFUSE };

/* HELLO_FOUNDING: has no cluster yet and waits for the other founders. */
enum hello_state { HELLO_FOUNDING = 1, HELLO_MEMBER };

enum hello_refusal {
    REFUSE_NONE,
    REFUSE_VERSION,      /* another protocol version */
    REFUSE_CLUSTER,      /* of another cluster */
    REFUSE_GENERATION,   /* of an earlier or later life of this cluster */
    REFUSE_WRONG_SERVER, /* not the server that was dialled */
    REFUSE_INSTANCE,     /* that id is another data directory's, or was removed: for good */
    REFUSE_UNKNOWN,      /* that id is not known here (yet) */
    REFUSE_FOUNDERS,     /* another list of founders */
    REFUSE_NOT_READY,    /* still founding, or starting */
    REFUSE_TWICE,        /* another process with that id is there, at the address that is known */
    REFUSE_COUNT
};

/* One founder, in the answer to a founder that came late. */
struct hello_record {
    uint64_t id;
    uint8_t instance[REPLICA_INSTANCE_SIZE];
};

struct hello {
    enum hello_type type;
    enum hello_state state;
    enum hello_refusal refusal;
    uint64_t from, to; /* server ids */
    uint64_t generation;
    uint64_t founders; /* digest of the list of founders: ids and addresses */
    uint8_t cluster[HELLO_CLUSTER_SIZE];
    uint8_t instance[REPLICA_INSTANCE_SIZE];
    char address[REPLICA_ADDRESS_MAX + 1]; /* the sender's, advertised */
    unsigned record_count;
    struct hello_record record[REPLICA_SERVERS_MAX];
};

/* Writes the whole frame. Returns its size. */
size_t hello_encode(const struct hello *h, uint8_t out[HELLO_FRAME_MAX]);

enum hello_fault { HELLO_FINE, HELLO_FOREIGN, HELLO_OTHER_VERSION };
/* Of the first HELLO_HEADER_SIZE bytes. HELLO_FOREIGN: not our protocol, or too long. */
enum hello_fault hello_header(const uint8_t *header, size_t *ret_body_len) MUST_CHECK;
/* False when the body is not one that hello_encode writes. */
bool hello_decode(const uint8_t *body, size_t len, struct hello *ret_hello) MUST_CHECK;

/* "another cluster", for a log line. */
const char *hello_refusal_text(enum hello_refusal refusal);

#endif
