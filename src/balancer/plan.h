/* SPDX-License-Identifier: Apache-2.0 */
/* The planner: a pure function from a fleet, settings and a memory to an ordered list of proposals,
 * with what was turned down and why. The same input gives the same plan in whatever order it was
 * listed. It never acts: the caller admits proposals, tells the memory which ones began, and the
 * directory checks each again. */
#ifndef BALANCER_PLAN_H
#define BALANCER_PLAN_H

#include "balancer/memory.h"
#include "balancer/settings.h"
#include "directory/types.h"

enum bal_kind {
    BAL_TRANSFER = 1, /* the primary's role to a copy in sync: no bytes */
    BAL_MOVE,         /* the primary and its data */
    BAL_MOVE_COPY,    /* a copy that is not the primary */
    BAL_ADD_COPY,     /* in place of a lost one, or where one is missing */
    BAL_SWAP,         /* `partition` there and `partner` back */
    BAL_SPLIT,
    BAL_MERGE, /* `partition` and its right neighbour, `partner` */
    BAL_ADVICE /* for a person: nothing that the directory can do by itself */
};

/* Where a split cuts. */
enum bal_cut { BAL_CUT_NONE, BAL_CUT_LOAD, BAL_CUT_KEY, BAL_CUT_BYTES };

/* X(NAME, slug, text): why something is proposed, or why not. */
#define BAL_REASONS(X)                                                                             \
    X(NONE, "none", "nothing speaks against it")                                                   \
    X(UNAVAILABLE, "unavailable", "no live copy is left")                                          \
    X(LAST_COPY, "last_copy", "one live copy is left")                                             \
    X(UNDER_REPLICATED, "under_replicated", "a copy is lost")                                      \
    X(DRAIN, "drain", "its node is being drained")                                                 \
    X(MISPLACED, "misplaced", "its node breaks a placement rule")                                  \
    X(HOT_NODE, "hot_node", "its node bears more than its share")                                  \
    X(HOT_NODE_URGENT, "hot_node_urgent", "its node is near its capacity or far above the mean")   \
    X(COLD_NODE, "cold_node", "the destination bears far less than its share")                     \
    X(HOT_PARTITION, "hot_partition", "it is too large a part of a node's share")                  \
    X(TOO_LARGE, "too_large", "it has more bytes than a partition should")                         \
    X(COLD_NEIGHBOURS, "cold_neighbours", "two cold neighbours")                                   \
    X(CO_LOCATE, "co_locate", "to lie with its cold neighbour, for a merge")                       \
    X(HOT_KEY, "hot_key", "one key is most of its load")                                           \
    X(FRONTIER, "frontier", "the load moves on to the newest keys as fast as it is split")         \
    X(HOT_CLUSTER, "hot_cluster", "the mean itself is too high: capacity is missing")              \
    X(SALT_INEFFECTIVE, "salt_ineffective", "sub-shards of one key are uneven or share an owner")  \
    X(NO_LIVE_COPY, "no_live_copy", "there is nothing to copy from")                               \
    X(BREAKER, "breaker", "too many nodes vanished at once: a person has to confirm")              \
    X(RECOVERING, "recovering", "recovery goes first")                                             \
    X(QUIET, "quiet", "the planner has just started")                                              \
    X(NOT_OVERLOADED, "not_overloaded", "its node does not bear more than its share")              \
    X(NOT_SUSTAINED, "not_sustained", "its node has not been over for long enough")                \
    X(BUSY, "busy", "an operation holds it")                                                       \
    X(PINNED, "pinned", "an operator pinned it")                                                   \
    X(QUARANTINED, "quarantined", "it is quarantined")                                             \
    X(STALE, "stale", "its load was not reported lately")                                          \
    X(PLANNED, "planned", "this plan has it already")                                              \
    X(RESIDENCE, "residence", "it moved too short a time ago")                                     \
    X(RETURNING, "returning", "it would go back to where it came from")                            \
    X(UNSPLITTABLE, "unsplittable", "one hot key: moving it moves the problem")                    \
    X(TOO_SMALL, "too_small", "too small a part of the node's load")                               \
    X(SAME_NODE, "same_node", "it is there")                                                       \
    X(NODE_STATE, "node_state", "the node takes nothing at present")                               \
    X(NODE_STALLED, "node_stalled", "the node has an alarm")                                       \
    X(NO_CAPACITY, "no_capacity", "the node has no capacity of a resource in use")                 \
    X(PLACEMENT_RULE, "placement_rule", "the placement rule forbids the node")                     \
    X(COPY_THERE, "copy_there", "the node has another copy of it")                                 \
    X(SPREAD, "spread", "a copy in the same failure domain")                                       \
    X(GROUP_THERE, "group_there", "the node has another sub-shard of the key")                     \
    X(DISK, "disk", "it would not fit the node's disk")                                            \
    X(CAPACITY, "capacity", "it would not fit a capacity of the node")                             \
    X(ROLE_COOLDOWN, "role_cooldown", "the node has just given or taken load")                     \
    X(BOTH_WAYS, "both_ways", "the node is giving and would take, or the other way")               \
    X(BUDGET_NODE, "budget_node", "the node has as many copies under way as it may")               \
    X(BUDGET_RATE, "budget_rate", "the node's rate for copies is used up")                         \
    X(BUDGET_DOMAIN, "budget_domain", "the rack, zone or device has as many as it may")            \
    X(BUDGET_ALL, "budget_all", "the fleet has as many copies under way as it may")                \
    X(BUDGET_TOKENS, "budget_tokens", "as many moves in an hour as there may be")                  \
    X(OVERSHOOT, "overshoot", "the destination would bear too much")                               \
    X(SIDE_EFFECT, "side_effect", "another resource of the destination would rise too much")       \
    X(NOT_WORTH, "not_worth", "the gain is not worth the cost")                                    \
    X(NO_DESTINATION, "no_destination", "no node could take it")                                   \
    X(NO_CANDIDATE, "no_candidate", "nothing on the node is worth moving")                         \
    X(TOO_SOON, "too_soon", "it was split or merged too short a time ago")                         \
    X(TOO_MANY, "too_many", "there are as many partitions as there should be")                     \
    X(NO_EVIDENCE, "no_evidence", "too few samples say where to split")                            \
    X(ROUND_LIMIT, "round_limit", "more in the next round")

enum bal_reason {
#define X(name, slug, text) BAL_REASON_##name,
    BAL_REASONS(X)
#undef X
        BAL_REASON_COUNT
};

const char *bal_reason_slug(enum bal_reason reason);
const char *bal_reason_text(enum bal_reason reason);
const char *bal_kind_name(enum bal_kind kind);

/* What a person can do about a hot key. */
enum bal_remedy { BAL_REMEDY_NONE, BAL_REMEDY_REPLICAS, BAL_REMEDY_SALT, BAL_REMEDY_LIMIT };

/* Levels are of the node's share: BAL_ONE is what it should bear. */
struct bal_proposal {
    uint32_t class_of; /* enum dir_class */
    uint8_t kind, reason, resource, cut, remedy;
    uint8_t ways;                         /* of a remedy: replicas or sub-shards */
    bool queued;                          /* no room at present: to wait for it, in this order */
    uint64_t partition, version, partner; /* 0: none */
    uint64_t from, to;                    /* nodes, 0: none */
    bal_q32 from_level, to_level, from_after, to_after;
    uint64_t load, benefit; /* of `resource` */
    bal_q32 threshold;      /* that from_level, or the load's share, was held against */
    uint64_t bytes, time_ms, expires_ms;
};

struct bal_rejection {
    uint64_t partition, node; /* 0: it is about no partition, or no node */
    uint8_t reason;
};

enum { BAL_PROPOSALS_MAX = 262144, BAL_REJECTIONS_MAX = 256 };

struct bal_plan {
    struct bal_proposal *proposal; /* in the order in which they are to be admitted */
    uint32_t proposal_count, proposal_room;
    struct bal_rejection rejection[BAL_REJECTIONS_MAX]; /* the first ones */
    uint32_t rejection_count;
    uint32_t rejected[BAL_REASON_COUNT]; /* all, by reason */
    bool breaker, recovering, quiet, cluster_hot;
    uint32_t recovery_waiting;   /* lost copies not yet in an operation */
    bal_q32 mean[BAL_RESOURCES]; /* utilisation over the eligible */
    bal_q32 high;
};

void bal_plan_init(struct bal_plan *plan);
void bal_plan_close(struct bal_plan *plan);

/* `plan` is emptied first. The memory is brought up to date, also when nothing is proposed. */
void bal_plan(const struct bal_fleet *f,
              const struct bal_settings *s,
              uint64_t now_ms,
              struct bal_memory *m,
              struct bal_plan *plan);

/* Why a partition is or is not moved by such a round, and why (not) to `to` (0: any). */
struct bal_explanation {
    bool planned;
    struct bal_proposal proposal; /* when planned */
    uint8_t round_reason; /* BAL_REASON_NONE, or what keeps the whole round from moving anything */
    uint8_t partition_reason; /* BAL_REASON_NONE: it may move */
    uint8_t source_reason;
    uint8_t split_reason, merge_reason;
    uint8_t node_reason; /* for `to`; BAL_REASON_NONE: it may go there */
    bal_q32 from_level, to_level, from_after, to_after;
};

/* ERR_PARTITION_NOT_FOUND, ERR_NODE_NOT_FOUND. `m` stays as it is. */
struct bal_question {
    uint64_t partition, to;
};
enum err_code bal_explain(const struct bal_fleet *f,
                          const struct bal_settings *s,
                          uint64_t now_ms,
                          const struct bal_memory *m,
                          const struct bal_question *question,
                          struct bal_explanation *ret) MUST_CHECK;

#endif
