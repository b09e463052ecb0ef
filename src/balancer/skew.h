/* SPDX-License-Identifier: Apache-2.0 */
/* How unevenly load lies, what is at fault (a key, a partition, a node, too small a fleet), and
 * what would help. A report for people, and so in floating point; every figure in it is finite.
 * Pure: the caller gives the fleet as it is and owns all memory. */
#ifndef BALANCER_SKEW_H
#define BALANCER_SKEW_H

#include "balancer/load.h"

enum {
    SKEW_REQUESTS = LOAD_RESOURCES, /* reads and writes together */
    SKEW_RESOURCES
};
#define SKEW_NONE UINT32_MAX

/* "writes", …, "requests". */
const char *skew_resource_name(unsigned r);
/* The capacity of a node that bounds it ("requests_per_s", "cpu", "bytes", …), or NULL.
 * `*ret_unit`: what one unit of the capacity is in the unit of loads (load_value()). */
const char *skew_capacity_name(unsigned r, uint64_t *ret_unit);

/* --- statistics --- */

struct skew_stats {
    uint64_t count;
    double total, mean, median, p90, p99, max;
    double max_to_mean, max_to_median, p99_to_median, p90_to_median; /* 0 when there is no load */
    double top1, top10, top100;                                      /* share of the largest */
    double above_bound;     /* share of the total that lies above the bound */
    double jain, cv2, gini; /* 1, 0, 0: even */
};
/* Sorts `values` (finite, >= 0). `bound` 0: none. */
void skew_measure(double *values, uint64_t n, double bound, struct skew_stats *ret);

/* --- the fleet --- */

struct skew_keys {
    bool has_top;
    struct sketch_top top;
    struct sketch_split split;
    enum sketch_frontier frontier;
};

/* Of millions: seven digits of a figure do. */
struct skew_partition {
    uint64_t id;
    const struct skew_keys *keys; /* NULL: none were reported */
    uint32_t node;                /* index of its primary's, or SKEW_NONE */
    uint32_t group;               /* index of its tenant's prefix, or SKEW_NONE */
    float load[SKEW_RESOURCES];
    float size_growth; /* bytes a day */
    bool known;        /* its load is; else it is the last that was heard, or zeros */
};

struct skew_node {
    const char *name;
    const struct dir_label *labels;
    uint32_t label_count;
    bool alive;                      /* takes part in means, capacity and headroom */
    double capacity[SKEW_RESOURCES]; /* in the unit of loads; 0: not said */
    double load[SKEW_RESOURCES];     /* out; times: the largest */
    double size_growth;              /* out: bytes a day */
    uint32_t partitions;             /* out */
};

struct skew_limits {
    double part; /* of the mean node's load, above which a partition is a lump: .20 */
    double high; /* above the mean, from which on a node is hot: .10 */
    double low;  /* above the mean, up to which it is well: .03 */
    double full; /* of all capacity, from which on only more of it helps: .80 */
    double safe; /* of a node's capacity that it should bear: .80 */
    double idle; /* of all capacity, below which unevenness does no harm: .25 */
    double uneven_access, uneven_size; /* times the median */
    uint64_t too_many_items, too_large_bytes;
};
extern const struct skew_limits skew_limits_default;

struct skew_fleet {
    struct skew_partition *partitions;
    uint32_t partition_count;
    struct skew_node *nodes;
    uint32_t node_count;
    struct skew_limits limits;
    /* Where salt `i` of `n` of a partition's top key would go: a node's index; NULL, or SKEW_NONE
     * from it: wherever we like. */
    uint32_t (*salt_owner)(void *arg, uint32_t partition, uint32_t i, uint32_t n);
    void *arg;
};

/* Fills what nodes have as `out`. First of all. */
void skew_add_up(struct skew_fleet *f);
/* Of the partitions' loads; their bound is a lump. Of the living nodes' loads by capacity, if all
 * have that (the load itself otherwise); their bound is what is safe. `scratch` holds as many
 * values as there are partitions or nodes. */
void skew_of_partitions(const struct skew_fleet *f,
                        unsigned r,
                        double *scratch,
                        struct skew_stats *ret);
void skew_of_nodes(const struct skew_fleet *f, unsigned r, double *scratch, struct skew_stats *ret);
/* What the load of a node is compared with: of the living nodes. */
struct skew_yardstick {
    bool by_capacity;
    double mean;              /* load by capacity (1 each, unless all have said theirs) */
    double smallest, largest; /* capacities */
};
struct skew_yardstick skew_yardstick_of(const struct skew_fleet *f, unsigned r);
/* The least max/mean over nodes that any placement of these partitions can reach; 1 at best. */
double skew_floor(const struct skew_fleet *f, unsigned r);
/* Do all living nodes say a capacity for it? */
bool skew_has_capacity(const struct skew_fleet *f, unsigned r);
/* Load as a share of capacity: of living nodes but those with labels[`label`] = `value` (NULL: none
 * left out). The load of all counts, for somebody has to bear it. Negative: nothing is left. */
double skew_headroom(const struct skew_fleet *f, unsigned r, const char *label, const char *value);

/* --- one key over several owners --- */

enum { SKEW_SALTS_MAX = 64 };
struct skew_salts {
    uint32_t salts;
    uint32_t owner[SKEW_SALTS_MAX]; /* node's index of each */
    bool placed;                    /* by the key's own mapping; else where it is quietest */
    double unsplit_load;            /* of the owner as it is */
    double largest_load;            /* of any node that gets a salt */
    uint32_t shared;                /* salts that share their owner with one before */
    double limit;                   /* of the owner with the largest load; 0: not known */
    bool fits;
};
/* `cold`: load of each node without the key, by index. `owner` of ret->salts is given. */
void skew_salt(const double *cold, double hot, const double *limits, struct skew_salts *s);

/* --- findings --- */

/* X(NAME, slug) */
#define SKEW_KIND_LIST(X)                                                                          \
    X(HOT_CLUSTER, "hot_cluster")                                                                  \
    X(HOT_KEY, "hot_key")                                                                          \
    X(FRONTIER, "frontier")                                                                        \
    X(HOT_PARTITION, "hot_partition")                                                              \
    X(HOT_NODE, "hot_node")                                                                        \
    X(UNEVEN_ACCESS, "uneven_access")                                                              \
    X(UNEVEN_SIZE, "uneven_size")                                                                  \
    X(TOO_MANY_ITEMS, "too_many_items")                                                            \
    X(TOO_LARGE, "too_large_bytes")
#define SKEW_REMEDY_LIST(X)                                                                        \
    X(NOTHING, "nothing")                                                                          \
    X(SPLIT, "split")                                                                              \
    X(SPREAD_KEY, "spread_key")                                                                    \
    X(READ_REPLICAS, "read_replicas")                                                              \
    X(PREFIX, "hash_prefix")                                                                       \
    X(MOVE, "move")                                                                                \
    X(ADD_CAPACITY, "add_capacity")

enum skew_kind {
#define X(name, slug) SKEW_##name,
    SKEW_KIND_LIST(X)
#undef X
        SKEW_KINDS
};
enum skew_remedy {
#define X(name, slug) SKEW_DO_##name,
    SKEW_REMEDY_LIST(X)
#undef X
        SKEW_REMEDIES
};
const char *skew_kind_name(enum skew_kind kind);
const char *skew_remedy_name(enum skew_remedy remedy);

struct skew_finding {
    enum skew_kind kind;
    unsigned resource;
    uint32_t partition, node; /* indices, or SKEW_NONE */
    double value, bound;      /* value > bound, or it would be none */
    enum skew_remedy remedy;
    uint32_t replicas;       /* for READ_REPLICAS: copies to read from, in all */
    struct skew_salts salts; /* for HOT_KEY */
    const char *why;         /* one sentence; a literal */
};
enum { SKEW_FINDINGS_MAX = 200 };
/* The worst of each kind first; at most SKEW_FINDINGS_MAX of a kind, `*ret_left_out` says of how
 * many more nothing is said. Returns how many; `ret` holds SKEW_FINDINGS_MAX * SKEW_KINDS. */
uint32_t
skew_findings(const struct skew_fleet *f, struct skew_finding *ret, uint32_t *ret_left_out);

#endif
