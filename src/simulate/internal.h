/* SPDX-License-Identifier: Apache-2.0 */
/* One run. For src/simulate/ alone: run.c (setup, the loop), command.c (commands, what each row
 * change means), leader.c (what a leader does over time), agents.c (what nodes report), rounds.c
 * (the planner), windows.c, loads.c (keys), measure.c (what is seen), checks.c (what must hold).
 *
 * Of a live state instead of a scenario: whatif.c (the loop), whatif_begin.c (setup),
 * whatif_seen.c (what is seen). There the rows are a fork of the directory's, loads are what was
 * heard, and `part`, `key` & co are not used. */
#ifndef SIMULATE_INTERNAL_H
#define SIMULATE_INTERNAL_H

#include "balancer/plan.h"
#include "directory/budget.h"
#include "directory/directory.h"
#include "simulate/simulate.h"

#include <math.h>

/* Virtual time 0 of a scenario in the directory's log time: no stamp is 0. */
#define FM_EPOCH_MS UINT64_C(1000000000)
/* What one unit of a node's capacity is to the planner, by the smallest node. */
#define FM_NODE_UNITS ((double)(1 << 24))
#define FM_COPY_SHARE 0.03 /* of a node's capacity, that a copy costs it */
#define FM_BOUNCE_MS  UINT64_C(1800000)
#define FM_RETURN_MS  UINT64_C(7200000)
#define FM_CHECK_MS   UINT64_C(600000) /* between two checks of the whole directory */
#define FM_SAMPLE_MS  UINT64_C(120000) /* how old a sample of keys may be */
#define FM_KEYSPACE   "simulated"

struct fm_node {
    char name[DIR_NAME_MAX + 1];
    const struct scenario_group *group;
    struct dir_label labels[SCENARIO_LABELS_MAX + 1];
    uint32_t label_count, zone;
    uint64_t id, session; /* 0: not registered yet */
    bool up;              /* its process runs */
    uint64_t changed_ms;  /* since when */
    uint64_t joined_ms;   /* 0: at the start */
    double load, slow, before;
    uint64_t stored;
    uint32_t copying, held;
};

struct fm_copy {
    uint16_t node;
    uint8_t role; /* enum dir_role */
};

struct fm_part {
    uint64_t id;
    uint32_t low, high; /* keys */
    double bytes, slow, noise;
    uint64_t moved_ms, split_ms, merged_ms; /* log time, 0: never */
    uint64_t calm_ms;                       /* of struct bal_partition_spec */
    uint64_t previous;                      /* node id */
    uint8_t copy_count;
    struct fm_copy copy[DIR_REPLICAS_MAX]; /* of the row: the primary first, if it has one */
    bool owned;
    /* What the last sample of its requests said. */
    struct bal_hint hint;
    uint64_t sampled_ms;    /* log time, 0: none */
    uint32_t boundary, top; /* keys */
};

struct fm_open {
    uint64_t id, since_ms; /* log time of the last step down, or of when it opened */
    uint8_t step;
};

struct fm {
    const struct scenario *s;
    struct simulate_outcome *out;
    uint64_t random;
    uint64_t now_ms; /* virtual */
    struct directory *d;
    uint64_t index, seq;
    uint64_t keyspace;
    struct dir_result *result; /* of the last command, owned */
    struct fm_node *node;      /* in the order of joining: also of ids */
    uint32_t node_count;
    struct fm_part *part; /* in key order */
    uint32_t part_count;
    double *key, *key_base, *prefix; /* load by key; sums */
    double wanted, unit;             /* load in all; of a planner's unit */
    double phase[256], swing[256];
    uint64_t shift;
    struct fm_open *open; /* operations that run or give back, by id */
    uint32_t open_count, open_room;
    bool dirty; /* rows changed since the model looked */
    uint32_t next_event, lacking;
    int64_t lost_ms, drain_ms, unsettled_ms;
    uint64_t settle_since_ms;
    struct bal_memory *memory;
    struct bal_plan plan;
    bal_q32 follower;
    double *ratios;
    uint32_t ratio_count;
    uint64_t checked_ms;
    uint64_t epoch_ms; /* log time of virtual time 0 */
    bool settling; /* more was reserved before the run than its limits let: that is no violation */
    struct fm_live *live; /* NULL: of a scenario */
};

static inline uint64_t fm_log_ms(const struct fm *x)
{
    return x->epoch_ms + x->now_ms;
}
static inline const struct dir_view *fm_view(const struct fm *x)
{
    return directory_state(x->d);
}

/* loads.c */
uint64_t fm_random(struct fm *x);
double fm_uniform(struct fm *x);
double fm_gauss(struct fm *x);
void fm_loads_open(struct fm *x);
void fm_loads_tick(struct fm *x);
double fm_part_load(const struct fm *x, const struct fm_part *p);
static inline uint64_t fm_part_bytes(const struct fm_part *p)
{
    return (uint64_t)p->bytes;
}
void fm_sample_keys(struct fm *x, struct fm_part *p);

/* command.c */
enum err_code fm_do(struct fm *x, Cadastre__Command__BodyCase which, void *body);
/* As above, and nothing is sent that would be refused. */
bool fm_try(struct fm *x, Cadastre__Command__BodyCase which, void *body);
char *fm_text(const char *text); /* for a message that only borrows it */
struct fm_node *fm_node_of(const struct fm *x, uint64_t id);
struct fm_node *fm_node_named(const struct fm *x, const char *name);
/* Has it each label that copies require? */
bool fm_is_allowed(const struct fm *x, const struct fm_node *n);
struct fm_part *fm_part_of(const struct fm *x, uint64_t id);
uint64_t fm_bytes_of(const struct fm *x, uint64_t partition);
const struct dir_partition *fm_row(const struct fm *x, const struct fm_part *p);
/* The model's own of rows: after a tick's commands. */
void fm_refresh(struct fm *x);
void fm_register(struct fm *x, struct fm_node *n);
/* Follows an operation's stages and what it gives back from now on. */
void fm_watch(struct fm *x, const struct dir_operation *o);

/* leader.c, agents.c, rounds.c */
void fm_sessions(struct fm *x);
void fm_timers(struct fm *x);
void fm_admit(struct fm *x);
void fm_recover(struct fm *x);
void fm_agents(struct fm *x);
void fm_round(struct fm *x);

/* windows.c */
struct fm_windows {
    Cadastre__BalancerWindow values[DIR_WINDOWS_MAX], *of[DIR_WINDOWS_MAX];
};
/* Into a patch that lives no longer than `room`. */
void fm_put_windows(const struct fm *x, struct fm_windows *room, Cadastre__BalancerPatch *m);
/* Whether they hold routine work back now. */
bool fm_is_held(const struct fm *x);

/* measure.c */
void fm_measure(struct fm *x);
void fm_moved(struct fm *x, const struct dir_operation *before, const struct dir_operation *o);
void fm_finish(struct fm *x);

/* whatif_seen.c: of a live state, what a command changed. */
void fm_live_rows(struct fm *x, const struct dir_effects *e);
uint64_t fm_live_bytes(const struct fm *x, uint64_t partition);
void fm_live_usage(struct fm *x, const struct dir_usage *u, struct dir_budget_limit all);

/* checks.c */
void fm_violated(struct fm *x, const char *fmt, ...) PRINTF_LIKE(2, 3);
void fm_check_row(struct fm *x, const struct dir_partition *p);
void fm_check_budgets(struct fm *x);
void fm_check_ways(struct fm *x);
void fm_check_all(struct fm *x);

#endif
