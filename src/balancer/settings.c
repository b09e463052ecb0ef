/* SPDX-License-Identifier: Apache-2.0 */
#include "balancer/settings.h"

enum { SECOND_MS = 1000, MINUTE_MS = 60 * SECOND_MS, HOUR_MS = 60 * MINUTE_MS };

static void default_levels(struct bal_settings *s)
{
    s->high = BAL_PERCENT(10);
    s->low = BAL_PERCENT(3);
    s->band_max = BAL_PERCENT(30);
    s->band_sigmas = 3 * BAL_ONE;
    s->under = BAL_PERCENT(20);
    for (unsigned r = 0; r < BAL_RESOURCES; r++) {
        s->floor[r] = r == BAL_BYTES ? BAL_PERCENT(50) : BAL_PERCENT(25);
    }
    s->sigma_gain = BAL_PERCENT(15);
    s->rho_gain = BAL_PERCENT(3);
    s->rho_min = BAL_PERCENT(10);
    s->rho_heal_per_hour = BAL_PERCENT(2);
    s->cluster_hot = BAL_PERCENT(80);
    s->urgent_utilisation = BAL_PERCENT(90);
    s->urgent_level = BAL_PERCENT(150);
    s->capacity_cap = BAL_PERCENT(90);
    s->piece_min = BAL_Q(4, 1000);
    s->lump_gain = BAL_PERCENT(5);
    s->overhead = BAL_PERCENT(3);
    s->kappa = BAL_PERCENT(150);
    s->side_rise = BAL_Q(1, 3);
    s->sustain_ms = MINUTE_MS;
    s->sigma_every_ms = 5 * MINUTE_MS;
    s->rho_after_ms = 15 * MINUTE_MS;
    s->residence_ms = 30 * MINUTE_MS;
    s->residence_urgent_ms = 10 * MINUTE_MS;
    s->return_ms = 2 * HOUR_MS;
    s->role_cooldown_ms = 0;
    s->move_fixed_ms = 20 * SECOND_MS;
    s->copy_bytes_per_s = 64 << 20;
    s->horizon_ms = 30 * MINUTE_MS;
    s->expiry_ms = 10 * MINUTE_MS;
    s->recovery_hold_ms = 2 * MINUTE_MS;
    s->quiet_ms = 5 * MINUTE_MS;
    s->quiet_reported = BAL_PERCENT(90);
}

static void default_shape(struct bal_settings *s)
{
    s->split_share = BAL_PERCENT(20);
    s->hot_key_share = BAL_PERCENT(50);
    s->hot_key_of_split = BAL_PERCENT(70);
    s->split_side_min = BAL_PERCENT(25);
    s->contained_max = BAL_PERCENT(50);
    s->pin_share = BAL_PERCENT(50);
    s->split_urgent = 3;
    s->samples_min = 100;
    s->split_bytes = UINT64_C(64) << 30;
    s->split_every_ms = MINUTE_MS;
    s->frontier_every_ms = 10 * MINUTE_MS;
    s->merge_after_ms = 30 * MINUTE_MS;
    s->merge_cold_ms = 10 * MINUTE_MS;
    s->merge_fraction = 4;
    s->merges_per_round = 8;
    s->splits_per_round = 8;
    s->partitions_per_split = 100;
    s->per_node_target = 64;
    s->per_node_max = 150;
    s->per_node_min = 8;
}

void bal_settings_default(struct bal_settings *s)
{
    *s = (struct bal_settings){0};
    default_levels(s);
    default_shape(s);
    s->routine = (struct bal_limits){2, 2, 8, 32, 1, 16, 20};
    s->hot = (struct bal_limits){3, 3, 12, 48, 2, 32, 10};
    s->total = (struct bal_limits){4, 4, 16, 64, 2, 32, 10};
    s->moves_per_node_hour = 8;
    s->moves_burst = 60;
    s->hot_per_node_hour = 30;
    s->hot_burst = 600;
    s->transfers_per_node = 15;
    s->intake_one_ms = MINUTE_MS;
    s->intake_two_ms = 10 * MINUTE_MS;
    s->vanished_max = 10;
    s->vanished_share = BAL_PERCENT(25);
    s->vanished_window_ms = MINUTE_MS;
    s->one_way = true;
    s->recoveries_per_round = 16384;
    s->destinations = 6;
    s->probes_failed_max = 64;
}

static enum err_code check_shape(const struct bal_settings *s, struct err *e)
{
    if (s->split_share == 0 || s->split_share > BAL_ONE) {
        return err_set_at(e, ERR_INVALID_SETTINGS, "/split_share", "must be above 0 and at most 1");
    }
    if (s->merge_fraction < 3) {
        return err_set_at(e, ERR_INVALID_SETTINGS, "/merge_fraction",
                          "two that merge would be split again");
    }
    if (s->per_node_min > s->per_node_target || s->per_node_target > s->per_node_max) {
        return err_set_at(e, ERR_INVALID_SETTINGS, "/per_node_target",
                          "must lie between min and max");
    }
    if (s->destinations == 0 || s->destinations > 8 || s->probes_failed_max == 0) {
        return err_set_at(e, ERR_INVALID_SETTINGS, "/destinations", "must be from 1 to 8");
    }
    return ERR_OK;
}

enum err_code bal_settings_check(const struct bal_settings *s, struct err *e)
{
    if (s->low >= s->high) {
        return err_set_at(e, ERR_INVALID_SETTINGS, "/low", "must be below high");
    }
    if (s->high > s->band_max || s->band_max >= BAL_ONE) {
        return err_set_at(e, ERR_INVALID_SETTINGS, "/band_max", "must be from high to below 1");
    }
    if (s->under <= s->low || s->under >= BAL_ONE) {
        return err_set_at(e, ERR_INVALID_SETTINGS, "/under", "must be above low and below 1");
    }
    if (s->copy_bytes_per_s == 0) {
        return err_set_at(e, ERR_INVALID_SETTINGS, "/copy_bytes_per_s", "must be above 0");
    }
    if (s->residence_urgent_ms > s->residence_ms) {
        return err_set_at(e, ERR_INVALID_SETTINGS, "/residence_urgent_ms",
                          "must not be above residence_ms");
    }
    return check_shape(s, e);
}
