/* SPDX-License-Identifier: Apache-2.0 */
/* Budgets of movement: what operations may take at a time, of what they have in common
 * (docs/movement.md, "Budgets"). Any thread, on a view.
 *
 * A reservation is part of its operation's row, with the labels that the nodes had when it was
 * admitted; dir_view.usage is the sum of all, kept in step with the rows. Routine work (classes
 * below DIR_CLASS_UNDER_REPLICATED) can't take the reserve, and nothing routine is admitted while a
 * recovery that could be waits. A limit that is lowered ends nothing: it only lets nothing new in.
 */
#ifndef DIRECTORY_BUDGET_H
#define DIRECTORY_BUDGET_H

#include "directory/view.h"

enum {
    DIR_BUDGET_MOVES_MAX = DIR_OPERATIONS_MAX,
    DIR_BUDGET_RELEASE_MS_MAX = 86400000,
    /* Waiting recoveries that a routine admission looks at; more of them go first in any case. */
    DIR_BUDGET_RECOVERIES_MAX = 1024
};
#define DIR_BUDGET_BYTES_MAX (UINT64_C(1) << 43) /* a second: sums of all never wrap */

/* "source", …: the API's words. */
const char *dir_budget_name(enum dir_budget budget);
/* Of all classes, with what is computed computed. */
struct dir_budget_limit dir_budget_limit(const struct dir_view *v, enum dir_budget budget);
/* The part of a limit that routine work can't take; of a count rounded down, so that one is left.
 */
struct dir_budget_limit dir_budget_reserve(const struct dir_view *v, enum dir_budget budget);
void dir_budget_defaults(struct dir_budgets *b);

/* What is taken of one budget, by whom: indexes of dir_usage.used. */
enum dir_usage_group {
    DIR_USAGE_ROUTINE,  /* classes below DIR_CLASS_DRAIN */
    DIR_USAGE_DRAIN,    /* up to DIR_CLASS_UNDER_REPLICATED */
    DIR_USAGE_RECOVERY, /* from there on */
    DIR_USAGE_GROUPS
};
enum { DIR_USAGE_HELD, DIR_USAGE_RELEASING, DIR_USAGE_STATES };

struct dir_usage {
    struct dir_object object;
    uint64_t budget;              /* enum dir_budget */
    uint64_t node;                /* of a budget of nodes */
    char label[DIR_NAME_MAX + 1]; /* of one of labels: its value */
    struct dir_budget_limit used[DIR_USAGE_GROUPS][DIR_USAGE_STATES];
};

/* Everything that is taken, steps down included. */
struct dir_budget_limit dir_usage_total(const struct dir_usage *u);

/* Why a queued operation is not admitted now. */
struct dir_waiting {
    enum err_code code; /* ERR_NO_DESTINATION: not ready; ERR_BUDGET_EXCEEDED */
    char detail[256];
    /* With ERR_BUDGET_EXCEEDED: the budget that is full, or another operation that goes first. */
    enum dir_budget budget;       /* 0: none */
    char value[DIR_NAME_MAX + 1]; /* the node's name, or the label's value; "" for the cluster */
    bool of_bytes;                /* else of moves */
    uint64_t used, wanted, limit, reserve;
    uint64_t operation; /* 0: none */
};

/* False: an admission would be accepted as the view is. `o` is queued. */
bool dir_budget_waits(const struct dir_view *v,
                      const struct dir_operation *o,
                      struct dir_waiting *ret_waiting);
/* Its two halves, for whoever asks about many: does it lack something itself, and has it to let
 * `first` go first? */
bool dir_budget_lacks(const struct dir_view *v,
                      const struct dir_operation *o,
                      struct dir_waiting *ret_waiting);
bool dir_budget_yields(const struct dir_operation *o,
                       uint64_t first,
                       struct dir_waiting *ret_waiting);
/* A recovery that waits and could be admitted, or 0: nothing routine that copies is before it. O(of
 * recoveries that wait, DIR_BUDGET_RECOVERIES_MAX at the most). */
uint64_t dir_budget_first(const struct dir_view *v);
/* Whether the operation would take of this budget (a dir_waiting's). */
bool dir_budget_touches(const struct dir_view *v,
                        const struct dir_operation *o,
                        enum dir_budget budget,
                        const char *value);

/* What a copy is given, or has: bytes a second, and the smallest limit on its way that counts for
 * its class. Zero for what copies nothing. */
struct dir_budget_rate {
    uint64_t copy, limit;
};
struct dir_budget_rate dir_budget_rate(const struct dir_view *v, const struct dir_operation *o);

bool dir_operation_copies(const struct dir_operation *o);
/* Does it copy to even out loads: no person asked for it, nothing is drained, misplaced or lost? */
bool dir_operation_evens_out(const struct dir_operation *o);
/* Is it at it: admitted, and not yet cut over? */
bool dir_operation_is_copying(const struct dir_operation *o);
/* What an operation's reservation comes to at present: its share of its steps. */
uint64_t dir_reserved_bytes(const struct dir_reservation *r);

#endif
