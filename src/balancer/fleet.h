/* SPDX-License-Identifier: Apache-2.0 */
/* The frozen input of the planner: nodes, partitions, where the copies are and what they cost.
 *
 * Numbers only: keys, names and the directory's rows stay outside, so that a simulator can drive
 * the planner. Build it in any order (all nodes before the first partition), then bal_fleet_seal;
 * the arrays are then in the order of ids and never depend on the order of building. After that
 * only loads may change (bal_fleet_set_load, O(copies)). One thread at a time; a sealed fleet may
 * be read by many. */
#ifndef BALANCER_FLEET_H
#define BALANCER_FLEET_H

#include "balancer/fixed.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a load and a capacity count. BAL_BYTES is what is stored; the unit of the others is the
 * caller's, the same for loads and capacities, and fine enough that a partition's load is
 * thousands. */
enum bal_resource { BAL_CPU, BAL_READ, BAL_WRITE, BAL_BYTES, BAL_QUEUE, BAL_RESOURCES };

enum {
    BAL_NODES_MAX = 65534,
    BAL_COPIES_MAX = 8, /* of one partition */
    BAL_RULES_MAX = 64,
    BAL_ZONES_MAX = 64
};
#define BAL_PARTITIONS_MAX UINT32_C(4000000)
/* A node's sum over all partitions stays below 2^64. */
#define BAL_LOAD_MAX     (UINT64_C(1) << 42)
#define BAL_CAPACITY_MAX (UINT64_C(1) << 56)
#define BAL_NO_NODE      UINT16_MAX
#define BAL_NO_PARTITION UINT32_MAX

enum bal_node_state {
    BAL_ELIGIBLE = 1, /* serves, and may get more */
    BAL_CORDONED,     /* serves, gets nothing */
    BAL_DRAINING,     /* serves, is to be emptied */
    BAL_UNKNOWN,      /* silent, not yet given up, or its measurements are too old */
    BAL_DEAD
};

struct bal_node_spec {
    uint64_t id;
    uint64_t capacity[BAL_RESOURCES]; /* 0 for a resource in use: not eligible */
    uint32_t zone, rack, device;      /* equal numbers are the same one; 0: none known */
    uint8_t state;                    /* enum bal_node_state */
    bool stalled;                     /* queue or storage alarm: gets nothing */
    uint64_t state_since_ms;
    uint64_t joined_ms;         /* 0: long ago; a new node's intake starts small */
    uint64_t rules;             /* bit r: satisfies placement rule r */
    uint64_t rate_in, rate_out; /* bytes/s that copies may use, 0: no limit */
};

enum bal_partition_flag {
    BAL_PINNED = 1 << 0,  /* an operator's: neither moved nor split nor merged */
    BAL_BUSY = 1 << 1,    /* an operation holds it */
    BAL_ONE_KEY = 1 << 2, /* can't be split */
    BAL_REBUILDABLE =
        1 << 3,         /* a copy can be made without a live one (nothing stored, or a cache) */
    BAL_STALE = 1 << 4, /* no report for long: the last load is kept, nothing is decided on it */
    BAL_MAY_REPLICATE = 1 << 5, /* stale reads are allowed: read replicas relieve it */
    BAL_MAY_SALT = 1 << 6,      /* its keys may be spread over sub-shards */
    BAL_QUARANTINED = 1 << 7
};

/* Those that may not, or had better not, leave where they are. */
enum { BAL_FIXED = BAL_PINNED | BAL_ONE_KEY | BAL_QUARANTINED };

enum bal_spread { BAL_SPREAD_ZONE = 1, BAL_SPREAD_RACK = 2, BAL_SPREAD_DEVICE = 4 };

struct bal_copy_spec {
    uint64_t node;
    uint64_t to; /* where an operation is taking it, 0: nowhere */
    bool lost;   /* its node said that it can't serve it */
    bool insync; /* may become primary at once */
};

/* What the key sample of a hot partition says; shares are of its load. */
struct bal_hint {
    uint32_t samples;  /* 0: nothing known */
    bal_q32 left;      /* left of the best boundary between two keys; 0: there is none */
    bal_q32 contained; /* of requests that span the boundary */
    bal_q32 top;       /* of the heaviest key */
};

struct bal_partition_spec {
    uint64_t id;
    uint64_t version; /* carried into proposals: the epoch */
    uint64_t next;    /* right neighbour of the same keyspace, 0: none */
    uint64_t load[BAL_RESOURCES];
    uint64_t moved_ms, split_ms, merged_ms; /* 0: never */
    /* How long it has to have been cold to be merged, if that is longer than the setting: what was
     * merged and split again (bal_regret). */
    uint64_t calm_ms;
    uint64_t previous; /* node that had the primary before, 0: none */
    uint32_t group;    /* sub-shards of one key share it, 0: none */
    uint32_t tenant;
    uint16_t rule;          /* index of its placement rule, < BAL_RULES_MAX; 0: anywhere */
    uint16_t flags;         /* enum bal_partition_flag */
    uint16_t operation;     /* enum dir_class of the operation that holds it */
    uint8_t spread;         /* enum bal_spread */
    uint8_t fanout;         /* sub-shards or read replicas allowed for one key, 0: 8 */
    uint8_t copies, wanted; /* copy[0] is the primary; wanted 0: as many as there are */
    struct bal_copy_spec copy[BAL_COPIES_MAX];
    struct bal_hint hint;
};

/* The calm_ms of what was split at `split_ms` though its parts had been merged after a split at
 * `before_ms` (0: they had not): twice that time, so that a load that comes and goes as regularly
 * is not followed. */
uint64_t bal_regret(uint64_t split_ms, uint64_t before_ms);

/* One entry of the lists of copies by node. */
struct bal_held {
    uint32_t partition : 29;
    uint32_t copy : 3; /* which of its copies; 0: the primary */
};

struct bal_hint_at {
    uint32_t partition;
    struct bal_hint hint;
};

/* What every step asks of a partition beside its load, in one place: to look at one is to fetch one
 * line of memory. */
struct bal_place {
    uint32_t copy_begin, group;
    uint16_t previous, operation;
    uint8_t rule, spread, wanted, fanout;
};

/* A struct of arrays; all owned. Indices: node n, partition p, copy c = place[p].copy_begin + i,
 * and n * BAL_RESOURCES + resource. Valid when sealed. */
struct bal_fleet {
    uint32_t node_count, partition_count, copy_count;
    uint64_t *node_id;
    struct bal_node_spec *node;              /* in order of id */
    uint16_t *zone_of, *rack_of, *device_of; /* dense; BAL_NO_NODE: none */
    uint32_t zone_count, rack_count, device_count;
    uint32_t zone_label[BAL_ZONES_MAX];

    uint64_t *id, *version, *moved_ms, *split_ms, *merged_ms, *calm_ms;
    uint64_t *load; /* of the primary copy, BAL_RESOURCES each */
    uint32_t *next, *tenant;
    uint16_t *flags;
    struct bal_place *place;       /* one more than partitions: where the copies end */
    uint16_t *copy_node, *copy_to; /* of copies; copy_to: BAL_NO_NODE */
    uint8_t *copy_flags;           /* enum bal_copy_flag */
    uint32_t *copy_partition;

    uint64_t *node_load;      /* predicted: what is under way counts at its destination only */
    uint64_t *node_leaving;   /* bytes that are under way to elsewhere, stored here too till then */
    uint32_t *held_begin;     /* node_count + 1 */
    struct bal_held *held;    /* copies by node, where they will be */
    uint32_t insync_count;    /* copies that may become primary */
    uint32_t lost_count;      /* copies that are lost or missing, apart from those on dead nodes */
    uint32_t moving_count;    /* copies that an operation is taking elsewhere */
    uint32_t busy_count;      /* partitions that one holds */
    uint32_t *odd, odd_count; /* partitions of which a copy may break a rule where it is */
    uint32_t fixed_count;     /* partitions with a flag of BAL_FIXED */
    uint64_t rules;           /* bit r: some partition has placement rule r */
    uint32_t spread_count[BAL_COPIES_MAX + 1]; /* partitions spread by zone, by copies */
    uint32_t *grouped, grouped_count;          /* partitions with a group, by group and id */
    struct bal_hint_at *hints;
    uint32_t hint_count;
    bal_q32 follower[BAL_RESOURCES]; /* share of the primary's load that another copy bears */
    uint32_t resources;              /* bit r: some node has a capacity of it */
    struct bal_building *building;   /* NULL when sealed */
};

enum bal_copy_flag { BAL_COPY_LOST = 1, BAL_COPY_INSYNC = 2 };

void bal_fleet_init(struct bal_fleet *f);
void bal_fleet_close(struct bal_fleet *f);

/* Each copies what it is given. ERR_INVALID_REQUEST, naming the field by pointer, leaves the fleet
 * as it was. */
enum err_code
bal_fleet_add_node(struct bal_fleet *f, const struct bal_node_spec *s, struct err *e) MUST_CHECK;
enum err_code bal_fleet_add_partition(struct bal_fleet *f,
                                      const struct bal_partition_spec *s,
                                      struct err *e) MUST_CHECK;

/* ERR_INVALID_REQUEST when an id is there twice. */
enum err_code bal_fleet_seal(struct bal_fleet *f, struct err *e) MUST_CHECK;

/* Index, or BAL_NO_PARTITION and BAL_NO_NODE. */
uint32_t bal_fleet_partition(const struct bal_fleet *f, uint64_t id);
uint16_t bal_fleet_node(const struct bal_fleet *f, uint64_t id);

/* Of a sealed fleet: another measurement. Values above BAL_LOAD_MAX count as that. */
void bal_fleet_set_load(struct bal_fleet *f, uint32_t p, const uint64_t load[BAL_RESOURCES]);

/* Of a sealed fleet: sums and lists anew, after copy_node, copy_to or flags were changed in place.
 */
void bal_fleet_recount(struct bal_fleet *f);

/* NULL when there is none. */
const struct bal_hint *bal_fleet_hint(const struct bal_fleet *f, uint32_t p);

/* What copy c costs its node. */
static inline uint64_t bal_copy_load(const struct bal_fleet *f, uint32_t c, unsigned r)
{
    uint32_t p = f->copy_partition[c];
    uint64_t l = f->load[(size_t)p * BAL_RESOURCES + r];
    return c == f->place[p].copy_begin ? l : bal_scale(l, f->follower[r]);
}

static inline uint64_t
bal_held_load(const struct bal_fleet *f, const struct bal_held *h, unsigned r)
{
    uint64_t l = f->load[(size_t)h->partition * BAL_RESOURCES + r];
    return h->copy == 0 ? l : bal_scale(l, f->follower[r]);
}

static inline uint32_t bal_held_copy(const struct bal_fleet *f, const struct bal_held *h)
{
    return f->place[h->partition].copy_begin + h->copy;
}

/* Where copy c will be when what is under way has ended. */
static inline uint16_t bal_copy_at(const struct bal_fleet *f, uint32_t c)
{
    return f->copy_to[c] != BAL_NO_NODE ? f->copy_to[c] : f->copy_node[c];
}

#endif
