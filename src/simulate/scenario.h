/* SPDX-License-Identifier: Apache-2.0 */
/* What is to be simulated (docs/scenario-format.md), as it was read: a plain value. */
#ifndef SIMULATE_SCENARIO_H
#define SIMULATE_SCENARIO_H

#include "balancer/settings.h"
#include "directory/balancer.h"
#include "simulate/fields.h"

enum {
    SCENARIO_BYTES_MAX = 4 << 20, /* of a file */
    SCENARIO_GROUPS_MAX = 64,
    SCENARIO_NODES_MAX = 1000,
    SCENARIO_LABELS_MAX = 8,
    SCENARIO_PARTS_MAX = 65536, /* those that splits make included */
    SCENARIO_LISTED_MAX = 4096,
    SCENARIO_KEYS_MAX = 2000000,
    SCENARIO_POINTS_MAX = 256,
    SCENARIO_EVENTS_MAX = 256,
    SCENARIO_TICKS_MAX = 200000,
    SCENARIO_ADVICE_MAX = 8
};

struct scenario_group {
    char name[FIELD_NAME_MAX + 1]; /* of one node; of several the beginning, then a number */
    uint64_t count, zones;         /* zones: labels zone=z0, z1, … in turn; 0: none */
    double capacity;
    uint64_t bytes, joins_ms;
    uint32_t label_count;
    struct dir_label labels[SCENARIO_LABELS_MAX];
};

enum scenario_owners { SCENARIO_DIRECTORY, SCENARIO_RANDOM, SCENARIO_IN_TURN };

struct scenario_point {
    uint64_t at_ms;
    double load;
};

/* A partition of its own. */
struct scenario_part {
    double load;
    uint64_t bytes, keys, repeat_ms;
    char owner[FIELD_NAME_MAX + 1]; /* "": the directory chooses */
    uint32_t point_count;
    struct scenario_point *points; /* owned */
};

enum scenario_generator {
    SCENARIO_LISTED, /* what each partition says */
    SCENARIO_NOISE,
    SCENARIO_ZIPF,
    SCENARIO_ZIPFORD,
    SCENARIO_DRIFT,
    SCENARIO_FLASH,
    SCENARIO_DIURNAL,
    SCENARIO_MONO,
    SCENARIO_HOTKEY,
    SCENARIO_SHIFT,
    SCENARIO_GENERATORS
};

struct scenario_load {
    enum scenario_generator generator;
    double utilisation; /* of all capacity at the start */
    double sigma;       /* of the lognormal noise of each partition */
    uint64_t correlation_ms;
    double exponent, cut;           /* rank r has (r + cut)^-exponent */
    double share, width, times;     /* of the moving part; of keys; of the mean, or of before */
    double begin, advance, per_day; /* mono; drift */
    uint64_t from_ms, every_ms, lasts_ms;
    uint64_t tenants;
    double swing_min, swing_max;
};

enum scenario_event_kind {
    SCENARIO_LOSE = 1,
    SCENARIO_RETURN,
    SCENARIO_DRAIN,
    SCENARIO_CORDON,
    SCENARIO_UNCORDON,
    SCENARIO_ELECT /* another server leads: what the planner remembered is gone */
};

struct scenario_event {
    uint64_t at_ms;
    enum scenario_event_kind kind;
    char node[FIELD_NAME_MAX + 1], zone[FIELD_NAME_MAX + 1]; /* one of the two, but for elect */
};

/* In virtual time. */
struct scenario_window {
    char name[FIELD_NAME_MAX + 1];
    uint8_t kind; /* enum dir_window_kind */
    uint64_t from_ms, to_ms;
};

/* Negative, or NULL of a list: not expected. */
struct scenario_expect {
    double median, p99, end; /* of max/mean, at most */
    double moves_min, moves_max, late_moves_max, bounces_max, returns_max, splits_min, splits_max,
        merges_min, merges_max, recoveries_min;
    double recovered_ms, drained_ms, settled_ms;
    uint32_t advice_count;
    char advice[SCENARIO_ADVICE_MAX][FIELD_NAME_MAX + 1];
};

struct scenario {
    char name[FIELD_NAME_MAX + 1];
    char description[FIELD_TEXT_MAX + 1];
    uint64_t seed, duration_ms, tick_ms, warmup_ms, round_ms;
    bool balance; /* false: what happens without the planner */
    struct scenario_group groups[SCENARIO_GROUPS_MAX];
    uint32_t group_count;
    uint64_t part_count, keys, bytes; /* bytes: of one partition at the start */
    enum scenario_owners owners;
    struct scenario_part *listed; /* owned; part_count of them, or NULL */
    uint64_t sync, async;
    char spread[FIELD_NAME_MAX + 1];
    uint32_t require_count; /* a copy's node has each of these */
    struct dir_label require[SCENARIO_LABELS_MAX];
    struct scenario_load load;
    struct scenario_event events[SCENARIO_EVENTS_MAX];
    uint32_t event_count;
    struct scenario_window windows[DIR_WINDOWS_MAX];
    uint32_t window_count;
    struct bal_settings planner;
    struct dir_budgets budgets;
    uint64_t window_ms, lease_ms, recovery_delay_ms;
    struct scenario_expect expect;
};

/* ERR_INVALID_REQUEST with the field's JSON pointer; then there is nothing to close. */
enum err_code
scenario_read(const char *text, size_t len, struct scenario *ret, struct err *e) MUST_CHECK;
void scenario_close(struct scenario *s);

extern const char *const scenario_generator_name[SCENARIO_GENERATORS];

#endif
