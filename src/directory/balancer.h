/* SPDX-License-Identifier: Apache-2.0 */
/* What an operator has set of the balancer, who has paused it, and what it last came to: one row,
 * absent while all is as by default. Any thread, on a view. Budgets are in dir_settings. */
#ifndef DIRECTORY_BALANCER_H
#define DIRECTORY_BALANCER_H

#include "base/zone.h"
#include "directory/view.h"

enum dir_balancer_mode { DIR_BALANCER_OFF, DIR_BALANCER_ADVISE, DIR_BALANCER_AUTO };

/* X(NAME, group of the API, member, default, min, max). They are numbers in commands and rows: only
 * ever added, at the end. */
#define DIR_BALANCER_LIST(X)                                                                       \
    X(MODE, "", "mode", DIR_BALANCER_ADVISE, DIR_BALANCER_OFF, DIR_BALANCER_AUTO)                  \
    X(ROUND_MS, "thresholds", "round_ms", 30000, 100, 3600000)                                     \
    X(HIGH_PPM, "thresholds", "high_ppm", 100000, 1000, 900000)                                    \
    X(LOW_PPM, "thresholds", "low_ppm", 30000, 0, 400000)                                          \
    X(SUSTAIN_MS, "thresholds", "sustain_ms", 60000, 0, 86400000)                                  \
    X(QUIET_MS, "thresholds", "quiet_ms", 300000, 0, 86400000)                                     \
    X(RESIDENCE_MS, "thresholds", "residence_ms", 1800000, 0, 604800000)                           \
    X(RETURN_MS, "thresholds", "return_ms", 7200000, 0, 604800000)                                 \
    X(HORIZON_MS, "thresholds", "horizon_ms", 1800000, 1000, 604800000)                            \
    X(COST_FACTOR_PPM, "thresholds", "cost_factor_ppm", 1500000, 0, 100000000)                     \
    X(SPLIT_SHARE_PPM, "thresholds", "split_share_ppm", 200000, 1000, 1000000)                     \
    X(MERGE_SHARE_PPM, "thresholds", "merge_share_ppm", 50000, 1, 300000)                          \
    X(MERGE_COLD_MS, "thresholds", "merge_cold_ms", 600000, 0, 604800000)                          \
    X(SPLIT_BYTES, "thresholds", "split_bytes", UINT64_C(64) << 30, 0, UINT64_C(1) << 52)          \
    X(MOVES_PER_NODE_HOUR, "thresholds", "moves_per_node_hour", 8, 0, 100000)                      \
    X(MOVES_BURST, "thresholds", "moves_burst", 60, 0, 100000)                                     \
    X(HOT_PER_NODE_HOUR, "thresholds", "hot_moves_per_node_hour", 30, 0, 100000)                   \
    X(HOT_BURST, "thresholds", "hot_moves_burst", 600, 0, 100000)                                  \
    X(PER_ROUND, "thresholds", "proposals_per_round", 16, 1, 256)                                  \
    X(OPEN_MAX, "thresholds", "proposals_open", 200, 1, 1000)                                      \
    X(EXPIRY_MS, "thresholds", "expiry_ms", 600000, 1000, 604800000)                               \
    X(OVERLOAD, "classes", "overload", 1, 0, 1)                                                    \
    X(HOT, "classes", "hot", 1, 0, 1)                                                              \
    X(BALANCE, "classes", "balance", 1, 0, 1)                                                      \
    X(MERGE, "classes", "merge", 1, 0, 1)                                                          \
    X(OPTIMISE, "classes", "optimise", 1, 0, 1)                                                    \
    X(GUARD_LATENCY, "guardrails", "foreground_latency_ms_p99", 0, 0, 3600000)                     \
    X(GUARD_QUEUE, "guardrails", "queue_ms_p99", 0, 0, 3600000)                                    \
    X(GUARD_ERRORS, "guardrails", "error_ppm", 0, 0, 1000000)                                      \
    X(GUARD_CHECKSUMS, "guardrails", "checksum_failures", 0, 0, UINT64_C(1) << 40)                 \
    X(HALF_LIFE_MS, "thresholds", "half_life_ms", 120000, 1000, 600000)

enum dir_balancer_value {
#define X(name, group, member, def, min, max) DIR_BALANCER_##name,
    DIR_BALANCER_LIST(X)
#undef X
        DIR_BALANCER_VALUES
};

enum {
    DIR_BALANCER_NOTES_MAX = 64,
    DIR_BALANCER_ID = 1,
    DIR_BALANCER_NOTE_TEXT_MAX = 127,
    DIR_WINDOWS_MAX = 16
};
#define DIR_BALANCER_PAUSE_MAX UINT64_C(31536000000) /* ms: a year */

/* The note of a round that begins things; every other code says why none does. */
#define DIR_BALANCER_ACTIVE "active"

/* What a round came to, when that was another thing than in the round before. */
struct dir_balancer_note {
    uint64_t at_ms; /* log time */
    char code[DIR_NAME_MAX + 1];
    char detail[DIR_BALANCER_NOTE_TEXT_MAX + 1]; /* "": nothing more to say */
    uint64_t proposed, rejected, open;
};

enum dir_window_kind {
    DIR_WINDOW_MAINTENANCE = 1, /* where there is one, routine work begins in one of them only */
    DIR_WINDOW_FREEZE           /* and never in one of these */
};

/* What they mean at an instant is control/windows.h's. */
struct dir_window {
    char name[DIR_NAME_MAX + 1], time_zone[ZONE_NAME_MAX + 1];
    uint8_t kind;
    uint8_t days;            /* bit 0: Monday; 0: once, from from_ms to to_ms */
    uint16_t start, end;     /* of struct calendar_week */
    uint64_t from_ms, to_ms; /* wall clock */
};

struct dir_balancer {
    struct dir_object object;
    dir_rev revision; /* when it last changed */
    uint64_t values[DIR_BALANCER_VALUES];
    uint64_t pause_since_ms, pause_until_ms; /* log time; 0: not paused; until it is resumed */
    char pause_by[DIR_TEXT_MAX + 1], pause_reason[DIR_TEXT_MAX + 1];
    uint32_t note_count;
    struct dir_balancer_note notes[DIR_BALANCER_NOTES_MAX]; /* oldest first */
    uint32_t window_count;
    struct dir_window windows[DIR_WINDOWS_MAX]; /* zeroed beyond the count */
};

/* Never NULL: without a row, the defaults. */
const struct dir_balancer *view_balancer(const struct dir_view *v);
uint64_t dir_balancer_value(const struct dir_view *v, enum dir_balancer_value which);
bool dir_balancer_is_paused(const struct dir_balancer *b, uint64_t now_ms);
/* NULL before the first. */
const struct dir_balancer_note *dir_balancer_last(const struct dir_balancer *b);

const char *dir_balancer_group(enum dir_balancer_value which); /* "thresholds" */
const char *dir_balancer_name(enum dir_balancer_value which);  /* "high_ppm" */
uint64_t dir_balancer_default(enum dir_balancer_value which);
const char *dir_balancer_mode_name(uint64_t mode); /* "auto" */
const char *dir_window_kind_name(uint8_t kind);    /* "freeze" */
/* The switch of a class of routine work; DIR_BALANCER_VALUES when it has none. */
enum dir_balancer_value dir_balancer_switch(uint32_t class_of);

#endif
