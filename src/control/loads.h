/* SPDX-License-Identifier: Apache-2.0 */
/* The loads that this server has heard of, for all threads: balancer/load.h in shards with a lock
 * each, so that reports never pass through the loop, and what nodes say of themselves. A hint, kept
 * in memory alone. Times are CLOCK_MONOTONIC in ms. */
#ifndef CONTROL_LOADS_H
#define CONTROL_LOADS_H

#include "control/heats.h"
#include "directory/directory.h"

/* X(NAME, member of a report, largest value believed): what a node says of itself. */
#define LOADS_FIGURE_LIST(X)                                                                       \
    X(CPU, "cpu", UINT64_C(4096000)) /* cores busy, in thousandths */                              \
    X(LATENCY_P99, "latency_ms_p99", UINT64_C(3600000))                                            \
    X(QUEUE_P99, "queue_ms_p99", UINT64_C(3600000))                                                \
    X(ERRORS, "errors", UINT64_C(1) << 40)                                                         \
    X(CHECKSUM_FAILURES, "checksum_failures", UINT64_C(1) << 40)                                   \
    X(DISK_FREE, "disk_free_bytes", UINT64_C(1) << 52)                                             \
    X(DISK_USED, "disk_used_bytes", UINT64_C(1) << 52)                                             \
    X(MEMORY_FREE, "memory_free_bytes", UINT64_C(1) << 52)

enum loads_figure {
#define X(name, member, max) LOADS_##name,
    LOADS_FIGURE_LIST(X)
#undef X
        LOADS_FIGURES
};

/* The last that a node's present session has reported. */
struct loads_node {
    uint64_t node; /* id */
    dir_rev session;
    uint64_t seq; /* 0: none was given */
    uint64_t at_ms, interval_ms;
    uint32_t has; /* bit of each figure */
    uint64_t figure[LOADS_FIGURES];
};

struct loads; /* opaque */
struct loads *loads_new(void);
void loads_free(struct loads *l);
/* The half-life of the fast means: load_set_fast(). */
void loads_set_fast(struct loads *l, uint64_t half_life_ms);
/* When and where it was; lives as long. */
struct heats *loads_heats(struct loads *l);

/* A report of a node, before its samples are put. False: one with this `seq` or a later one was
 * taken before (0: it has none, and is always taken). One without figures leaves those of the
 * session that are there, and the time of them. */
bool loads_begin(struct loads *l, const struct loads_node *report);
enum load_outcome loads_put(struct loads *l, const struct load_sample *s, uint64_t now_ms);

/* A copy, without its sketch; false when nothing was heard. */
bool loads_get(struct loads *l, uint64_t partition, uint64_t node, struct load_entry *ret);
/* The entry itself, for as long as `fn` runs, with its shard's lock held: `fn` calls nothing here.
 */
void loads_look(struct loads *l,
                uint64_t partition,
                void (*fn)(void *arg, const struct load_entry *e),
                void *arg);
bool loads_node(struct loads *l, uint64_t node, struct loads_node *ret);
/* Shard by shard, in no order, with its lock held: `fn` is short and calls nothing here. */
void loads_each(struct loads *l, void (*fn)(void *arg, const struct load_entry *e), void *arg);
uint64_t loads_count(struct loads *l);

/* A copy of what `l` has heard of the view's partitions, with the digests of their keys: some 400
 * bytes each. Owned by the caller. */
struct loads *loads_copy(struct loads *l, const struct dir_view *v, uint64_t now_ms);
/* load_scale() of all copies of a partition. */
void loads_scale(struct loads *l, const struct dir_partition *p, uint32_t ppm);

/* Gives an operation's plan what is measured of its partition, where whoever asks said nothing. */
void loads_fill_start(struct loads *l, Cadastre__OperationStart *start);

/* --- kept warm for the day that this server leads: summary.c --- */

enum { LOADS_PAGES = 64 };
/* One page of what was heard, for another server: `page` below LOADS_PAGES, and further ones while
 * all takes less than `enough` bytes. Says which one is next (LOADS_PAGES: none). Not on the loop.
 */
void loads_put_summary(struct loads *l,
                       unsigned page,
                       size_t enough,
                       uint64_t now_ms,
                       struct buf *b);
/* Takes what is newer than what was heard here, of what the view has. False when it can't be read:
 * what came before the fault stays. */
bool loads_take_summary(struct loads *l,
                        const struct dir_view *v,
                        struct slice bytes,
                        uint64_t now_ms,
                        unsigned *ret_next,
                        uint64_t *ret_records);

/* How that went, for metrics. */
struct loads_pulls {
    uint64_t done, failed, bytes;
    uint64_t records, last_ms; /* of the last whole one; last_ms 0: there was none */
    uint64_t heats;            /* heat maps that came whole */
};
void loads_note_pull(struct loads *l, bool done, uint64_t bytes, uint64_t records, uint64_t now_ms);
void loads_note_heat(struct loads *l, bool done, uint64_t bytes);
struct loads_pulls loads_pulls(struct loads *l);

/* What a command changed: loads follow splits and merges, and go with what goes. Loop thread. */
void loads_on_rows(struct loads *l, const struct dir_effects *effects, uint64_t now_ms);
/* Forgets what the view does not have: after a snapshot took the place of the state. */
void loads_sweep(struct loads *l, const struct dir_view *v);

#endif
