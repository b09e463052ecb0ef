/* SPDX-License-Identifier: Apache-2.0 */
/* What a partition lacks against what its keyspace wants, and the one operation that would be the
 * next step towards it; or why there is none. Pure: a function of a view and of which nodes count
 * as gone. The leader proposes what it says (control/recovery.c), apply checks that again, and
 * reads show it.
 *
 * Data is never declared lost here: where no live copy can serve as a source, nothing is done and
 * the reason says so. */
#ifndef DIRECTORY_REPAIR_H
#define DIRECTORY_REPAIR_H

#include "directory/view.h"

enum {
    REPAIR_DETAIL_MAX = 191,
    REPAIR_BREAKER_NODES = 10,   /* with more nodes than this away, nothing is made anew */
    REPAIR_BREAKER_PERCENT = 25, /* nor with more than this share of them, if it is more than one */
    REPAIR_NODE_COST = 16        /* what a look at so many nodes costs, beside one at a partition */
};

/* What is wrong with a partition: bits. */
enum repair_problem {
    REPAIR_UNDER_REPLICATED = 1 << 0,
    REPAIR_UNAVAILABLE = 1 << 1, /* nobody may write it */
    REPAIR_SURPLUS = 1 << 2,
    REPAIR_MISPLACED = 1 << 3, /* a copy is where the placement forbids one */
    REPAIR_CROWDED = 1 << 4,   /* two copies share a value of the spread label, and need not */
    REPAIR_DRAINS = 1 << 5,    /* a copy is on a node that drains */
    REPAIR_DEAD_COPY = 1 << 6  /* a copy is on a node that is not waited for any more */
};

/* How the nodes that are away count. */
struct repair_clock {
    uint64_t now_ms; /* log time */
    /* Whether the node, which has no session, is not waited for any more. */
    bool (*gone)(void *arg, const struct dir_node *n);
    void *arg;
};

struct repair_step {
    unsigned problems;      /* bits of enum repair_problem */
    uint8_t kind;           /* enum dir_operation_kind; 0: nothing to do, or nothing can be done */
    uint8_t role;           /* of a copy that is added */
    uint32_t class_of;      /* enum dir_class */
    uint64_t from, to;      /* nodes; 0 for none */
    uint64_t operation;     /* that holds the partition */
    bool needs_destination; /* repair_choose() has yet to find one */
    bool must_spread;       /* only one of an unused value of the spread label will do */
    uint8_t sync_live, sync_wanted; /* the primary counts as one */
    uint8_t async_live, async_wanted;
    uint64_t under_since_ms; /* log time, when it is under-replicated */
    const char *reason;      /* of the operation; static */
    const char *code;        /* why nothing can be done; NULL when nothing is to be done */
    char detail[REPAIR_DETAIL_MAX + 1];
};

/* A view, and what was found out about its nodes. The view outlives it. */
struct repair;
struct repair *repair_open(const struct dir_view *v, const struct repair_clock *clock);
void repair_close(struct repair *r);

/* What is to be done, but for the destination. O(copies). */
void repair_look(struct repair *r, const struct dir_partition *p, struct repair_step *ret);
/* Finds the destination that `s` needs, rather not `avoid`; or makes it a step of which nothing can
 * be done. O(nodes). */
void repair_choose(struct repair *r,
                   const struct dir_partition *p,
                   uint64_t avoid,
                   struct repair_step *s);
/* Both. */
void repair_next(struct repair *r, const struct dir_partition *p, struct repair_step *ret);
/* The step was proposed: its destination will have a copy more. */
void repair_take(struct repair *r, const struct repair_step *s);
/* What repair_choose() did so far, in units of REPAIR_NODE_COST nodes. */
uint64_t repair_cost(const struct repair *r);

/* The partition's operation, which a leader began unasked, is not needed any more, or waits to
 * begin on a node that is lost; and ending it does no harm. */
bool repair_is_moot(struct repair *r, const struct dir_partition *p, const struct dir_operation *o);
/* Whether a leader began it unasked: so its class says. */
bool repair_is_own(const struct dir_operation *o);

/* Operations in QUEUED of this class, and open ones of any class of the leader's own. */
uint64_t repair_queued(const struct repair *r, uint32_t class_of);
uint64_t repair_open_operations(const struct repair *r);

/* So many nodes are away that the fault is rather the network's: then only those in sync take over,
 * and nothing is made anew or moved until they are back or declared lost. */
struct repair_breaker {
    uint64_t nodes, away; /* with an agent; of these, those without a session that hold copies */
    bool tripped;
};
struct repair_breaker repair_breaker(const struct dir_view *v);

/* Fewer copies of this role live than are wanted: apply's check of an operation that adds one. */
bool repair_is_short(const struct dir_view *v,
                     const struct dir_keyspace *ks,
                     const struct dir_partition *p,
                     uint8_t role);
/* Log time since when fewer copies live than are wanted; 0: enough do. */
uint64_t repair_under_since(const struct dir_view *v,
                            const struct dir_keyspace *ks,
                            const struct dir_partition *p);
/* Some partition of `ks` has another number of copies than that wants, on nodes without an agent:
 * nobody could copy or drop data there. */
bool repair_needs_agents(const struct dir_view *v, const struct dir_keyspace *ks);
/* For apply, before it puts a new version: keeps under_since_ms. `before` may be NULL. */
void repair_note_version(const struct dir_view *v,
                         const struct dir_partition *before,
                         struct dir_partition *p);

#endif
