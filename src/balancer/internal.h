/* SPDX-License-Identifier: Apache-2.0 */
/* One round of planning: the predicted state that each step changes and the next one sees. */
#ifndef BALANCER_INTERNAL_H
#define BALANCER_INTERNAL_H

#include "balancer/plan.h"

enum { BAL_WALK_MAX = 24, BAL_GROUPS_MAX = 256 };

/* Nodes that no placement rule in use and no zone tells apart. */
struct bal_groups {
    uint32_t count;
    uint16_t *of;                  /* by node */
    uint16_t zone[BAL_GROUPS_MAX]; /* dense; BAL_NO_NODE: none */
    uint64_t rules[BAL_GROUPS_MAX];
};

/* Copies under way at one place. */
struct bal_usage {
    uint32_t all, ordinary; /* ordinary: of classes that may not use the recovery reserve */
};

/* The coldest nodes of each group, as a tree of minima; what can't take anything has
 * BAL_SATURATED. */
struct bal_coldest {
    uint32_t leaves;
    uint64_t *tree;      /* of each group 2 * leaves */
    uint16_t *leaf_node; /* of each group `leaves` */
    uint32_t *leaf_of;   /* by node */
};

/* A way through the coldest nodes: those asked are out of the trees until it ends. */
struct bal_walk {
    uint64_t forbidden; /* zones */
    uint8_t rule;
    uint64_t key[BAL_WALK_MAX];
    uint16_t node[BAL_WALK_MAX];
    uint32_t count, offered;
};

/* What rules ask of a node, together. */
struct bal_spot {
    uint16_t zone, rack, device; /* dense; BAL_NO_NODE: none */
    uint8_t state;               /* enum bal_node_state */
    uint8_t reason;              /* enum bal_reason why it takes nothing at all */
};

struct bal_state {
    const struct bal_fleet *f;
    const struct bal_settings *s;
    struct bal_memory *m;
    struct bal_plan *plan;
    uint64_t now;
    uint32_t eligible;
    bal_q32 rho, high; /* of this round; of what is held up plan->high is not */
    bool held;         /* the highest node can't be brought down: the others' band is wide */

    uint64_t *load;                   /* node x resource, predicted */
    uint64_t *share;                  /* node x resource: what it should bear */
    uint64_t *top;                    /* node x resource: share * (1 + low), for what comes */
    uint64_t *stuck;                  /* node x resource: what can't leave it */
    uint64_t *inverse;                /* of share */
    uint64_t *cap;                    /* node x resource: what it may bear at most */
    uint64_t *bytes;                  /* node: stored, both ends of what is under way */
    uint64_t *queued;                 /* node: bytes to come */
    bal_q32 *level;                   /* node: the highest of its resources */
    uint8_t *takes;                   /* node: may be a destination at all */
    struct bal_spot *spot;            /* node */
    uint16_t *at;                     /* copy: predicted node */
    uint8_t *bar;                     /* partition: enum bal_reason why it stays where it is */
    uint64_t split_at[BAL_RESOURCES]; /* load from which a partition is split; 0: never */

    struct bal_usage *in, *out, *rack, *zone, *device;
    uint32_t all, all_routine, all_hot;
    uint16_t *transfers;
    uint64_t tokens, hot_tokens;
    struct bal_groups groups;
    struct bal_coldest cold;
};

/* One move that is weighed. */
struct bal_step {
    uint32_t partition, copy; /* that goes */
    uint16_t from, to;
    uint8_t resource; /* that is to be relieved */
    uint32_t class_of;
    uint64_t vector[BAL_RESOURCES]; /* what leaves one node and reaches the other */
    uint64_t excess;                /* of `resource` at the source, above its mark */
    uint64_t bytes, time_ms;
};

struct bal_verdict {
    uint8_t reason; /* BAL_REASON_NONE: do it */
    bool lump;      /* only because the higher of both falls clearly */
    uint64_t benefit, score;
};

static inline size_t bal_cell(uint16_t node, unsigned resource)
{
    return (size_t)node * BAL_RESOURCES + resource;
}

static inline bool bal_uses(const struct bal_state *st, unsigned r)
{
    return (st->f->resources >> r & 1) != 0;
}

static inline uint32_t bal_primary(const struct bal_fleet *f, uint32_t p)
{
    return f->place[p].copy_begin;
}

/* state.c */
void bal_state_open(struct bal_state *st);
void bal_state_close(struct bal_state *st);
bal_q32 bal_level(const struct bal_state *st, uint16_t node);
/* With the vector added, or taken away. */
bal_q32 bal_level_with(const struct bal_state *st, uint16_t node, const uint64_t *vector, bool add);
/* Of one resource. */
bal_q32 bal_level_of(const struct bal_state *st, uint16_t node, unsigned resource);
/* What a node with this much of it should be relieved to: its share, or what can't leave it anyway,
 * and the low mark. */
uint64_t bal_relieved(const struct bal_state *st, uint16_t node, unsigned resource);
/* Above this it is to be relieved of it. */
uint64_t bal_over(const struct bal_state *st, uint16_t node, unsigned resource);
/* The resource of which the node bears most, relative to its share, of those in the mask;
 * BAL_RESOURCES: none. */
unsigned bal_dominant_of(const struct bal_state *st, uint16_t node, uint32_t mask);
unsigned bal_dominant(const struct bal_state *st, uint16_t node);
void bal_copy_vector(const struct bal_state *st, uint32_t copy, uint64_t vector[BAL_RESOURCES]);
uint64_t bal_copy_time(const struct bal_state *st, uint64_t bytes);
/* The step is taken in the predicted state, and so is its partition. */
void bal_relocate(struct bal_state *st, const struct bal_step *step);
void bal_shift(struct bal_state *st, uint16_t from, uint16_t to, const uint64_t *vector);
struct bal_proposal *bal_propose(struct bal_state *st, const struct bal_proposal *p);
void bal_reject(struct bal_state *st, uint32_t partition, uint16_t node, enum bal_reason reason);

/* groups.c */
void bal_groups_open(struct bal_state *st);
void bal_groups_close(struct bal_state *st);
bool bal_group_allowed(const struct bal_groups *g, uint32_t group, uint8_t rule);
/* Group x resource: the mean that its nodes are judged by; 0 where nothing has to be. */
void bal_groups_level(struct bal_state *st, bal_q32 *mean);

/* coldest.c */
void bal_coldest_open(struct bal_state *st);
void bal_coldest_close(struct bal_state *st);
/* Keys of all nodes anew, for steps of this class. */
void bal_coldest_fill(struct bal_state *st, uint32_t class_of);
void bal_coldest_update(struct bal_state *st, uint16_t node, uint32_t class_of);
/* The next coldest node that the copy may go to within the budgets, at most s->destinations of
 * them; false: there is none. bal_walk_end puts all back, and has to be called before any key
 * changes. */
void bal_walk_begin(const struct bal_state *st, const struct bal_step *step, struct bal_walk *w);
bool bal_walk_next(struct bal_state *st,
                   const struct bal_step *step,
                   struct bal_walk *w,
                   uint16_t *ret_node);
void bal_walk_end(struct bal_state *st, struct bal_walk *w);

/* rules.c: what is never broken. */
void bal_spots_open(struct bal_state *st);
void bal_bars_open(struct bal_state *st);
/* What can't leave a node: pinned by a person, or one hot key. */
void bal_find_stuck(struct bal_state *st);
void bal_take(struct bal_state *st, uint32_t p);
enum bal_reason bal_partition_free(const struct bal_state *st, uint32_t p);
/* Of the step partition, copy (the one that goes there, BAL_NO_PARTITION for one more) and vector
 * count. */
enum bal_reason
bal_may_join(const struct bal_state *st, const struct bal_step *step, uint16_t node);
enum bal_reason
bal_may_hold(const struct bal_state *st, const struct bal_step *step, uint16_t node);
/* Does the copy break a rule where it is? */
enum bal_reason bal_placed(const struct bal_state *st, uint32_t copy);

/* budget.c */
void bal_budget_open(struct bal_state *st);
enum bal_reason
bal_budget(const struct bal_state *st, uint16_t from, uint16_t to, uint32_t class_of);
enum bal_reason bal_budget_intake(const struct bal_state *st, uint16_t node, uint32_t class_of);
/* Only what the source has to do with. */
enum bal_reason bal_budget_source(const struct bal_state *st, uint16_t node, uint32_t class_of);
void bal_budget_take(struct bal_state *st, uint16_t from, uint16_t to, uint32_t class_of);
enum bal_reason bal_tokens(const struct bal_state *st, uint32_t class_of, uint32_t moves);
void bal_tokens_take(struct bal_state *st, uint32_t class_of, uint32_t moves);
void bal_tokens_refill(struct bal_memory *m,
                       const struct bal_settings *s,
                       uint32_t nodes,
                       uint64_t now);

/* judge.c: is a step worth it? */
struct bal_verdict bal_judge(const struct bal_state *st, const struct bal_step *step);
bool bal_worth(const struct bal_state *st, const struct bal_step *step, uint64_t benefit);

/* Steps of a round, in their order. */
void bal_memory_sync(struct bal_memory *m, const struct bal_fleet *f);
void bal_observe(struct bal_state *st);
void bal_recover(struct bal_state *st);
void bal_evacuate(struct bal_state *st);              /* drain and misplaced copies */
void bal_reshape(struct bal_state *st, bool may_act); /* splits, merges, hot keys */
void bal_relieve(struct bal_state *st);
void bal_fill(struct bal_state *st);
bool bal_swap_one(struct bal_state *st, uint16_t from, unsigned resource, uint32_t class_of);
void bal_transfer_roles(struct bal_state *st, uint16_t from, unsigned resource, uint32_t class_of);

/* relieve.c, shared with explain: may the copy be taken from this node for balance? */
/* `resource` BAL_RESOURCES: whatever it is to be moved for. */
enum bal_reason bal_movable_held(const struct bal_state *st,
                                 const struct bal_held *h,
                                 uint16_t node,
                                 unsigned resource,
                                 bool urgent);
enum bal_reason
bal_movable(const struct bal_state *st, uint32_t copy, unsigned resource, bool urgent);
/* Is it to give at all; and of which resources (a mask), in steps of this class: DIR_CLASS_HOT what
 * is urgent, DIR_CLASS_BALANCE what has been over for long enough. */
enum bal_reason bal_source(const struct bal_state *st, uint16_t node);
uint32_t bal_to_relieve(const struct bal_state *st, uint16_t node, uint32_t class_of);
/* Applies the step to the predicted state, charges budgets, proposes it. */
void bal_emit(struct bal_state *st,
              const struct bal_step *step,
              const struct bal_verdict *v,
              enum bal_reason reason);
bool bal_returns(const struct bal_state *st, const struct bal_step *step, uint16_t node);
void bal_step_of(const struct bal_state *st,
                 uint32_t copy,
                 unsigned resource,
                 uint32_t class_of,
                 struct bal_step *ret);

#endif
