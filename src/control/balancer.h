/* SPDX-License-Identifier: Apache-2.0 */
/* What a round of the balancer comes to, without its clock and its threads: what is wanted of a
 * plan, and what that puts into commands. For the leader (balancer.c) and for what-if
 * (src/simulate). Pure, but for the loads' locks. */
#ifndef CONTROL_BALANCER_H
#define CONTROL_BALANCER_H

#include "control/brake.h"
#include "control/fleet.h"

/* --- what splits and merges have made, which the rows don't say: balancer_rules.c --- */

struct balancer_births {
    struct fleet_birth of[FLEET_BIRTHS_MAX]; /* in the order of ids; the oldest make room */
    uint32_t count, told;                    /* told: those that a memory knows of */
};
/* The rows of one command. */
void balancer_births_add(struct balancer_births *b, const struct dir_effects *effects);
void balancer_births_tell(struct balancer_births *b, struct bal_memory *m);

/* --- what is wanted: balancer_rules.c --- */

/* Whether what was planned is to be proposed: routine work, with room for it, switched on, and not
 * of a class that moves things there and back. `now_ms` is log time. */
enum balancer_verdict { BALANCER_WANTED, BALANCER_UNWANTED, BALANCER_BRAKED };
enum balancer_verdict balancer_judge(const struct dir_view *v,
                                     uint64_t now_ms,
                                     const struct brake *brake,
                                     const struct bal_proposal *p);
/* Whether the time has come to say what came of a proposal. `*ret_effect`: with the levels of now.
 */
bool balancer_is_due(const struct dir_view *v,
                     const struct dir_proposal *p,
                     uint64_t now_ms,
                     bool *ret_effect);

/* --- figures, texts, keys: balancer_make.c --- */

/* How much nodes bear, as a round saw it. */
struct balancer_level {
    uint64_t node;
    bal_q32 level;     /* BAL_ONE is its share */
    uint64_t requests; /* thousandths a second */
};
struct balancer_levels {
    struct balancer_level *of; /* mem_free() */
    uint32_t count;
};
void balancer_measure_levels(const struct bal_fleet *f,
                             const struct bal_settings *s,
                             const struct bal_plan *plan,
                             struct balancer_levels *ret);

/* As the message wants them; points into itself. */
struct balancer_figures {
    size_t count;
    char names[DIR_FIGURES_MAX][DIR_NAME_MAX + 1];
    Cadastre__Figure figures[DIR_FIGURES_MAX], *of[DIR_FIGURES_MAX];
};
void balancer_figures_open(struct balancer_figures *f);
/* What the proposal's two nodes bear now. */
void balancer_put_effect(struct balancer_figures *f,
                         const struct dir_view *v,
                         const struct balancer_levels *levels,
                         const struct dir_proposal *p);

/* A ProposalMake with all that it points to; it lives where it was opened. */
struct balancer_make {
    Cadastre__Command command;
    Cadastre__ProposalMake body;
    struct balancer_figures figures;
    Cadastre__Candidate candidates[DIR_CANDIDATES_MAX], *candidate_of[DIR_CANDIDATES_MAX];
    char nodes[DIR_CANDIDATES_MAX][DIR_NAME_MAX + 1], codes[DIR_CANDIDATES_MAX][DIR_NAME_MAX + 1];
    char from[DIR_NAME_MAX + 1], to[DIR_NAME_MAX + 1], code[DIR_NAME_MAX + 1];
    char reason[DIR_TEXT_MAX + 1];
    ProtobufCBinaryData at[DIR_PROPOSAL_KEYS_MAX];
    uint8_t keys[DIR_PROPOSAL_KEYS_MAX][DIR_ROUTING_KEY_MAX];
};
/* False: it can't be said (a node is gone, no key to split at is known). */
bool balancer_make_open(struct balancer_make *m,
                        const struct dir_view *v,
                        struct loads *loads,
                        const struct bal_plan *plan,
                        const struct bal_proposal *p);

#endif
