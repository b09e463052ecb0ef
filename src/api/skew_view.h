/* SPDX-License-Identifier: Apache-2.0 */
/* What skew (balancer/skew.h) is told of: the directory at one revision, and the loads that this
 * server has heard of. One thread at a time. */
#ifndef API_SKEW_VIEW_H
#define API_SKEW_VIEW_H

#include "balancer/skew.h"
#include "base/buf.h"
#include "control/loads.h"

enum {
    SKEW_GROUPS_MAX = 10000, /* tenants' prefixes told apart; partitions of more have none */
    SKEW_LISTED_MAX = 50     /* groups, labels and growing things listed in an answer */
};

/* A tenant: the partitions that lie whole within a prefix. */
struct skew_group {
    struct slice prefix; /* borrowed from the view */
    uint64_t partitions;
    double load[SKEW_RESOURCES], size_growth; /* bytes a day */
};

/* The living nodes with this value of a label. */
struct skew_label {
    const struct dir_label *label; /* borrowed from the view */
    uint64_t nodes, sized;         /* sized: that say how many bytes they hold */
    double load[SKEW_RESOURCES], capacity[SKEW_RESOURCES], size_growth;
};

struct skew_view {
    const struct dir_view *view;     /* borrowed */
    const struct dir_keyspace *only; /* NULL: all keyspaces together */
    struct loads *loads;
    uint64_t now_ms, heat_ms; /* the same moment; by the heat map's clock */
    struct skew_fleet fleet;
    const struct dir_partition **rows; /* of fleet.partitions; owns the list */
    const struct dir_node **node_rows; /* of fleet.nodes; owns the list */
    struct kept_keys *kept;            /* owns: what partitions point to */
    struct skew_group *groups;         /* owns */
    uint32_t group_count;
    struct skew_label *labels; /* owns: SKEW_LISTED_MAX, by name and value */
    uint32_t label_count;
    uint64_t known;
};

/* Gathers and adds up. */
void skew_view_open(struct skew_view *s,
                    const struct dir_view *v,
                    const struct dir_keyspace *only,
                    struct loads *loads,
                    uint64_t now_ms);
void skew_view_close(struct skew_view *s);

const struct dir_keyspace *skew_keyspace(const struct skew_view *s, uint32_t partition);

/* skew_cause.c: ,"cause":{…}, from the heat map and these findings; nothing for all keyspaces. */
void skew_put_cause(struct buf *b,
                    const struct skew_view *s,
                    const struct skew_finding *findings,
                    uint32_t count);

/* skew_growth.c: ,"growth":{…}. */
void skew_put_growth(struct buf *b, const struct skew_view *s);
/* `"name":` (or nothing, when it is NULL) and the number with at most three decimals, always JSON.
 */
void skew_put_number(struct buf *b, const char *name, double v);

/* The whole report as a JSON object. */
void skew_put(struct buf *b, const struct skew_view *s);

#endif
