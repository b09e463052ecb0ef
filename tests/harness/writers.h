/* SPDX-License-Identifier: Apache-2.0 */
/* The writer-interval checker: from what nodes accepted, answered and finally hold, with the true
 * time of one host's clock, it proves or refutes that
 *
 *   - no two nodes accepted writes of one key at the same time: what each (node, epoch) accepted
 * lies in an interval, intervals are disjoint and in the order of their epochs;
 *   - an epoch belongs to one node and session;
 *   - once an epoch was acted upon, nothing of an earlier one is accepted;
 *   - sequence numbers of an epoch are given once, in the order of time;
 *   - an acknowledged write was accepted before, at the epoch it was acknowledged under, and is in
 *     the final state; no write is there twice, and none that nobody accepted.
 *
 * A key is whatever has one writer: a key, or a partition. A node stamps an acceptance with a time
 * not before it decided (`time`) and, if it can, one not after (`since`): where the two differ only
 * what is certain is called a violation. n log n. One thread. */
#ifndef TESTS_WRITERS_H
#define TESTS_WRITERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum writers_event_kind {
    WRITERS_ACTED, /* the node began to act on a grant at `epoch` */
    WRITERS_ACCEPTED,
    WRITERS_ACKNOWLEDGED,
    WRITERS_REFUSED,
    WRITERS_FINAL /* `id` is in the final state of `key`; once for each time that it is */
};

struct writers_event {
    enum writers_event_kind kind;
    uint64_t since, time; /* any unit of one clock; `since` 0: the same as `time` */
    uint64_t node, key;
    uint64_t epoch;    /* of an acknowledgement 0: not known */
    uint64_t session;  /* 0: not known */
    uint64_t sequence; /* 0: none */
    uint64_t id;       /* of the write: the same in every retry */
};

enum writers_flaw {
    WRITERS_TWO_WRITERS,
    WRITERS_STALE_EPOCH,
    WRITERS_EPOCH_SHARED,
    WRITERS_SEQUENCE_TWICE,
    WRITERS_SEQUENCE_ORDER,
    WRITERS_ACK_UNACCEPTED,
    WRITERS_ACK_OTHER_EPOCH,
    WRITERS_LOST,
    WRITERS_APPLIED_TWICE,
    WRITERS_GHOST,
    WRITERS_FLAW_COUNT
};

/* `a` and `b` are the events' numbers in the order they were added; the same where one is enough.
 */
typedef void (*writers_found)(void *arg, enum writers_flaw flaw, size_t a, size_t b);

struct writers {
    struct writers_event *events; /* owns */
    size_t count, room;
    /* Nodes that were killed may not have written down all that they accepted: then nothing follows
     * from an acceptance that is missing. */
    bool partial;
    /* No final state was given: nothing is looked for in it. */
    bool no_final;
};

/* How much a history holds: a run with too little of it proves nothing. */
struct writers_counts {
    uint64_t accepted, acknowledged, refused, keys, epochs, most_epochs; /* of one key */
};

void writers_init(struct writers *w);
void writers_close(struct writers *w);
void writers_add(struct writers *w, const struct writers_event *event);

/* Returns how many violations there are; `found` (may be NULL) is told of each. */
size_t writers_check(const struct writers *w, writers_found found, void *arg);
struct writers_counts writers_count(const struct writers *w);
const char *writers_flaw_text(enum writers_flaw flaw);

#endif
