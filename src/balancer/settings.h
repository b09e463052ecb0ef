/* SPDX-License-Identifier: Apache-2.0 */
/* What an operator may set of the planner. docs/balancing.md explains each to an operator. */
#ifndef BALANCER_SETTINGS_H
#define BALANCER_SETTINGS_H

#include "balancer/fleet.h"

/* How many copies may be under way at one place at once. */
struct bal_limits {
    uint32_t node_in, node_out, rack, zone, device;
    uint32_t all, all_per_nodes; /* all + nodes / all_per_nodes in the whole fleet */
};

struct bal_settings {
    uint64_t seed;     /* of ties */
    bal_q32 high, low; /* a node above 1+high of its share is relieved until 1+low */
    bal_q32 band_max;  /* noise can't lift `high` above this */
    bal_q32 band_sigmas;
    bal_q32 under; /* below 1-under a node is filled until 1-low */
    bal_q32
        floor[BAL_RESOURCES]; /* utilisation below which a resource's imbalance does not matter */
    bal_q32 sigma_gain, rho_gain, rho_min, rho_heal_per_hour;
    bal_q32 cluster_hot; /* mean utilisation from which moves can't help */
    bal_q32 urgent_utilisation, urgent_level;
    bal_q32 capacity_cap; /* no node is filled above this share of any capacity */
    bal_q32 piece_min;    /* of a node's share: smaller partitions are not worth a move */
    bal_q32 lump_gain;    /* of the mean: what a move must lower the higher of two nodes by */
    bal_q32 overhead;     /* of a node's capacity that a copy costs at either end */
    bal_q32 kappa;        /* benefit must be this many times the cost */
    bal_q32 side_rise;    /* another resource may rise by this share of the relief */
    uint64_t sustain_ms, sigma_every_ms, rho_after_ms;
    uint64_t residence_ms, residence_urgent_ms, return_ms;
    uint64_t role_cooldown_ms; /* who took gives nothing for so long, but what is urgent; 0: off */
    uint64_t move_fixed_ms, copy_bytes_per_s, horizon_ms, expiry_ms;
    uint64_t recovery_hold_ms, quiet_ms;
    bal_q32 quiet_reported; /* share of partitions that must have reported */

    bal_q32 split_share; /* of the smallest node's share: a partition above is split */
    bal_q32 hot_key_share, hot_key_of_split, split_side_min, contained_max;
    bal_q32 pin_share; /* of a node's share: an unsplittable partition above stays */
    uint32_t split_urgent, samples_min; /* times the threshold; requests sampled */
    uint64_t split_bytes;               /* 0: never for size */
    uint64_t split_every_ms, frontier_every_ms, merge_after_ms, merge_cold_ms;
    uint32_t merge_fraction; /* two merge below 1/merge_fraction of the split threshold */
    uint32_t merges_per_round, splits_per_round, partitions_per_split;
    uint32_t per_node_target, per_node_max, per_node_min;

    struct bal_limits routine, hot, total; /* total - routine is kept for recovery */
    uint32_t moves_per_node_hour, moves_burst, hot_per_node_hour, hot_burst;
    uint32_t transfers_per_node;           /* in a round */
    uint64_t intake_one_ms, intake_two_ms; /* a new node's age with one and two copies in */
    uint32_t vanished_max;
    bal_q32 vanished_share;
    uint64_t vanished_window_ms;
    bool breaker_confirmed; /* a person has seen the losses and lets recovery go on */
    bool one_way;           /* no routine copies in and out of one node at once, but for swaps */
    uint32_t destinations, probes_failed_max, recoveries_per_round;
};

void bal_settings_default(struct bal_settings *s);

/* ERR_INVALID_SETTINGS names what makes no sense, by pointer. */
enum err_code bal_settings_check(const struct bal_settings *s, struct err *e) MUST_CHECK;

#endif
