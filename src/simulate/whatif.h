/* SPDX-License-Identifier: Apache-2.0 */
/* What would come of a change, from the state that is: the leader's planner, the directory, budgets
 * and operations on a fork of the present state, in virtual time. The state that was given stays
 * as it is. The same state, loads, question and seed give the same answer on the same build.
 *
 * Modeled are the nodes: each copies at the rate that was reserved, does the rest of a stage at
 * once, keeps its session until it is lost. Loads stay as they were heard.
 *
 * One thread, that has called rcu_reader_start(). Memory: the fork shares all rows that it does not
 * change; loads are copied (some 400 bytes for each copy that has one), and the planner's picture
 * takes some 300 bytes for each partition. */
#ifndef SIMULATE_WHATIF_H
#define SIMULATE_WHATIF_H

#include "control/fleet.h"
#include "directory/budget.h"

enum {
    WHATIF_HOURS_MAX = 168,
    WHATIF_HOURS_DEFAULT = 24,
    WHATIF_PARTITIONS_MAX = 65536, /* of all keyspaces; when splits make more, none is made */
    WHATIF_NODES_MAX = 1000,       /* with those that are added */
    WHATIF_NAMES_MAX = 1000,       /* in a list of the question */
    WHATIF_SCALES_MAX = 64,
    WHATIF_STEPS_MAX = 4096,    /* shown; all are counted */
    WHATIF_UNPLACED_MAX = 1000, /* as well */
    WHATIF_ADVICE_MAX = 64,     /* as well; different ones */
    WHATIF_FINDINGS_MAX = 16,   /* as well */
    WHATIF_FACTOR_MAX = 100000000
};

/* --- the question --- */

struct whatif_name {
    char text[DIR_NAME_MAX + 1];
};

struct whatif_added {
    struct whatif_name name, like; /* like "": labels and capacity are given */
    uint64_t count;                /* of several the name has a number at its end; 0: one */
    uint32_t label_count, capacity_count;
    struct dir_label labels[DIR_LABELS_MAX], capacity[DIR_LABELS_MAX];
};

struct whatif_scale {
    struct whatif_name keyspace; /* "": all that no other entry names */
    uint64_t factor_ppm;
};

struct whatif {
    uint64_t hours, seed;
    uint32_t added_count, lost_count, drained_count, scale_count;
    struct whatif_added *added; /* owned, as the next */
    struct whatif_name *lost, *drained;
    struct whatif_scale scales[WHATIF_SCALES_MAX];
    struct whatif_name zone; /* that is lost; "": none */
    struct buf policy;       /* a Cadastre__BalancerPatch as bytes; empty: none */
};
void whatif_init(struct whatif *w);
void whatif_close(struct whatif *w);

/* --- the state --- */

struct whatif_state {
    const struct dir_view *view; /* pinned */
    struct loads *loads;
    uint64_t mono_ms, log_ms;        /* now */
    const struct bal_memory *memory; /* the leader's; NULL: a planner that has just begun */
    const struct fleet_birth *births;
    uint32_t birth_count;
    bool (*stop)(void *arg); /* asked again and again: true ends the run, which is then truncated */
    void *stop_arg;
};

/* --- the answer --- */

/* A move, copy, split or merge, in the order in which they were begun. Virtual times. */
struct whatif_step {
    const char *kind;                              /* static */
    uint64_t operation, keyspace, partition, with; /* operation 0: of no duration; with 0: none */
    uint8_t state;                                 /* enum dir_operation_state */
    uint8_t role;                                  /* of a copy that is added */
    uint32_t class_of;
    uint64_t bytes, queued_ms, begin_ms, end_ms; /* UINT64_MAX: not yet */
    struct whatif_name from, to;
    char reason[DIR_TEXT_MAX + 1];
};

struct whatif_load {
    uint64_t level_ppm;       /* of what it should bear, by capacity */
    uint64_t utilisation_ppm; /* of its capacity, where all have said theirs */
    uint64_t requests;        /* thousandths a second */
    uint64_t bytes;
    uint32_t primaries, copies;
    bool serves;
};

struct whatif_node {
    struct whatif_name name;
    bool added, lost, drained;
    struct whatif_load before, after;
};

/* Of all nodes that serve, in the resource that is used most. */
struct whatif_balance {
    uint8_t resource;         /* enum bal_resource */
    bool said;                /* the nodes have said what they can bear of it */
    uint64_t most_ppm;        /* of the highest level: max/mean */
    uint64_t mean_ppm;        /* utilisation, where it was said */
    uint64_t worst_ppm;       /* the highest utilisation */
    uint64_t nodes, unserved; /* that serve; partitions that nobody may write */
};

struct whatif_unplaced {
    uint64_t keyspace, partition;
    unsigned problems; /* bits of enum repair_problem */
    const char *code;  /* static */
    char detail[192];
};

struct whatif_advice {
    uint8_t reason; /* enum bal_reason */
    uint64_t keyspace, partition, at_ms;
};

/* The most that was taken of a budget at a time. */
struct whatif_peak {
    struct dir_budget_limit used, limit;
    char moves_of[DIR_NAME_MAX + 1],
        bytes_of[DIR_NAME_MAX + 1]; /* node or label; "": the cluster */
};

enum whatif_end { WHATIF_SETTLED, WHATIF_OUT_OF_HOURS, WHATIF_STOPPED };

struct whatif_answer {
    enum whatif_end end;
    dir_rev revision;             /* of the state that it began with */
    uint64_t virtual_ms, last_ms; /* how far it went; when the last step ended */
    uint64_t moves, transfers, copies, splits, merges, recoveries, failovers, failed, refused;
    uint64_t bytes, recovery_bytes, rounds, under_way;
    bool breaker; /* at the end too many nodes are away for anything to be made anew */
    struct whatif_balance before, after;
    struct whatif_peak peak[DIR_BUDGETS + 1]; /* by enum dir_budget */
    uint32_t turned_down[BAL_REASON_COUNT];   /* in the last round */
    struct whatif_step *steps;                /* owned, as the next three */
    struct whatif_node *nodes;
    struct whatif_unplaced *unplaced;
    struct whatif_advice *advice;
    uint64_t step_count, node_count, unplaced_count, advice_count; /* the first ones are shown */
    char findings[WHATIF_FINDINGS_MAX][160];
    uint64_t finding_count;
};

/* ERR_INVALID_SETTINGS with the pointer into the question ("/changes/…"), ERR_LIMIT_EXCEEDED when
 * the state is too large: then there is nothing to close. */
enum err_code whatif_run(const struct whatif *w,
                         const struct whatif_state *s,
                         struct whatif_answer *ret,
                         struct err *e) MUST_CHECK;
void whatif_answer_close(struct whatif_answer *a);

#endif
