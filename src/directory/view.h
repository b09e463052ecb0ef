/* SPDX-License-Identifier: Apache-2.0 */
/* A view: the whole directory at one revision, immutable, read by any thread without a lock.
 *
 * view_enter() gives the newest published view inside an RCU read section: for reads that end at
 * once. view_pin() takes a reference that lives until view_unpin(): for pages and streams. The
 * calling thread has called rcu_reader_start(). Everything found through a view is borrowed from
 * it. */
#ifndef DIRECTORY_VIEW_H
#define DIRECTORY_VIEW_H

#include "base/err.h"
#include "base/rcu.h"
#include "directory/ptree.h"
#include "directory/types.h"

struct dir_settings {
    uint64_t history_retention_ms; /* default 7 days */
    uint64_t history_max;          /* revisions kept at the most, default 1 000 000 */
    uint64_t dedupe_retention_ms;  /* default 24 h */
    uint64_t lease_ms;             /* of sessions that begin, default 10 000 */
    uint64_t heartbeat_ms;         /* how often agents are told to renew, default 3 000 */
    uint64_t stage_timeout_ms;     /* of a stage without a limit of its own, default 600 000 */
    uint64_t dual_write_max_ms;    /* default 60 000 */
    uint64_t fence_max_ms; /* how long writes may be refused around a cutover, default 30 000 */
    uint64_t validation_window_ms; /* default 600 000 */
    uint64_t cutover_lag_bytes;    /* default 1 MiB */
    uint64_t recovery_delay_ms;    /* how long a node may be away before its copies are made anew,
                                      default 300 000 */
    uint64_t distrust_ms;          /* see "Distrust"; default 30 000 */
    struct dir_budgets budgets;    /* defaults: dir_budget_defaults() */
};

/* The revision at a log time: how retention by age finds what to forget. */
struct dir_mark {
    uint64_t at_ms; /* 0: no mark */
    dir_rev revision;
};

/* All of the replicated state. Ids and revisions as keys are 8 big-endian bytes. Objects of hidden
 * keyspaces are in the trees too: the finders below skip them. */
struct dir_view {
    _Atomic uint32_t refs;
    char cluster[33]; /* "" before Bootstrap */
    uint64_t generation;
    dir_rev revision;       /* of the last command that changed something */
    uint64_t applied_index; /* Raft index of the last entry seen */
    uint64_t time_ms;       /* log time */
    dir_rev compacted;      /* history and changes reach back to states after this revision */
    uint64_t next_id;       /* for partitions, keyspaces, nodes, operations: one counter */
    uint64_t unplaced;      /* partitions that have no primary and hold no data: Place can help */
    struct hash128 hash;    /* the state hash (sum over the rows of every table, and of the scalars
                               above but index) */
    struct dir_settings settings;
    struct dir_mark marks[DIR_MARKS_MAX]; /* oldest first */
    struct ptree keyspaces_by_name;       /* name -> dir_keyspace */
    struct ptree keyspaces;               /* id -> dir_keyspace */
    struct ptree keyspace_maps;           /* id -> dir_map */
    struct ptree partitions;              /* id -> dir_partition */
    struct ptree waiting;    /* keyspace id, id -> dir_partition: those that `unplaced` counts */
    struct ptree tombstones; /* id -> dir_tombstone */
    struct ptree tombstones_by_age; /* retired revision, id -> dir_tombstone */
    struct ptree nodes_by_name;     /* name -> dir_node */
    struct ptree nodes;             /* id -> dir_node */
    struct ptree servers;           /* id -> dir_server */
    struct ptree operations;        /* id -> dir_operation */
    struct ptree queued;            /* UINT32_MAX - class, id -> dir_operation: those that wait */
    struct ptree usage;   /* directory/budget.h: what the reservations of all operations come to */
    struct ptree by_node; /* node id, partition id -> a mark: the copies that a node holds */
    struct ptree duties;  /* id -> dir_duty */
    struct ptree duties_by_node; /* node id, duty id -> dir_duty */
    struct ptree proposals;      /* id -> dir_proposal */
    struct ptree proposals_open; /* expires_ms, id -> dir_proposal: those that wait */
    struct ptree balancer;       /* one row: directory/balancer.h */
    struct ptree dedupe;         /* principal NUL key -> dir_dedupe */
    struct ptree dedupe_by_age;  /* index of arrival -> dir_dedupe */
};

/* The partitions of one keyspace by routing key: start -> dir_partition. */
struct dir_map {
    struct dir_object object;
    struct ptree by_start;
};

struct dir_published; /* the slot that apply publishes into; owned by struct directory */

const struct dir_view *view_enter(const struct dir_published *slot); /* then view_leave() */
static inline void view_leave(void)
{
    rcu_leave();
}
const struct dir_view *view_pin(const struct dir_published *slot);
void view_unpin(const struct dir_view *view);

/* Visible ones only; NULL when there is none. `name` need not end in NUL. */
const struct dir_keyspace *view_keyspace(const struct dir_view *v, struct slice name);
const struct dir_keyspace *view_keyspace_by_id(const struct dir_view *v, uint64_t id);
const struct dir_node *view_node(const struct dir_view *v, struct slice name);
const struct dir_node *view_node_by_id(const struct dir_view *v, uint64_t id);
const struct dir_operation *view_operation(const struct dir_view *v, uint64_t id);

/* The partition that holds this routing key: never NULL for a visible keyspace. */
const struct dir_partition *
view_route(const struct dir_view *v, const struct dir_keyspace *ks, struct slice routing_key);

/* The map of a keyspace, for iterating with ptree_seek & co. Never NULL. */
const struct ptree *view_map(const struct dir_view *v, const struct dir_keyspace *ks);

/* A partition of this keyspace by id, or NULL; then `*ret_tombstone` says whether it was retired
 * (may be NULL too). */
const struct dir_partition *view_partition(const struct dir_view *v,
                                           const struct dir_keyspace *ks,
                                           uint64_t id,
                                           const struct dir_tombstone **ret_tombstone);

/* The live partitions that now cover what a retired one covered, through any number of retirements,
 * in key order: calls `fn` for each; stops when it returns false. Returns how many it called. */
uint64_t view_successors(const struct dir_view *v,
                         const struct dir_tombstone *t,
                         bool (*fn)(void *arg, const struct dir_partition *p),
                         void *arg);

/* What a route shows as mod_revision: the partition's own, or the newest address change among its
 * nodes. */
dir_rev view_route_revision(const struct dir_view *v, const struct dir_partition *p);

/* The partitions with a copy on this node, by id: calls `fn` until it returns false. */
void view_node_partitions(const struct dir_view *v,
                          uint64_t node,
                          bool (*fn)(void *arg, struct dir_partition *p),
                          void *arg);

/* Has a session that may be granted something: a static node, or one that has not lapsed or been
 * given up. */
bool view_node_is_live(const struct dir_node *n);

/* Distrust: a node that lapsed once may have been restarted; from the second time in an hour on
 * nothing goes to it where there is another one: for settings.distrust_ms, and each time for twice
 * as long. */
enum { DIR_LAPSES_MAX = 16, DIR_LAPSES_FORGOTTEN_MS = 3600000, DIR_DISTRUST_MAX_MS = 3600000 };

/* Until when, in log time, it is distrusted; 0: it is not. */
uint64_t view_node_distrusted_until(const struct dir_settings *s, const struct dir_node *n);

/* The primary's node, or NULL when it has none. */
const struct dir_node *view_primary(const struct dir_view *v, const struct dir_partition *p);

#endif
