/* SPDX-License-Identifier: Apache-2.0 */
/* The load of partitions as their nodes report it: decayed means by partition, which the partition
 * keeps when it moves, passes on when it is split, and adds up when it is merged. No state of the
 * directory: what a server happens to have heard. One thread at a time; times are CLOCK_MONOTONIC
 * in ms and given by the caller. */
#ifndef BALANCER_LOAD_H
#define BALANCER_LOAD_H

#include "balancer/sketch.h"
#include "directory/view.h"

/* X(NAME, member of a report and of answers, the largest value that is believed). Those before
 * LOAD_SIZE are counts over the reported interval and kept as rates; the limit is for a second.
 * _P99 are times, in ms. From LOAD_SIZE on they are present sizes. */
#define LOAD_RESOURCE_LIST(X)                                                                      \
    X(READS, "reads", UINT64_C(1) << 30)                                                           \
    X(WRITES, "writes", UINT64_C(1) << 30)                                                         \
    X(READ_BYTES, "read_bytes", UINT64_C(1) << 42)                                                 \
    X(WRITE_BYTES, "write_bytes", UINT64_C(1) << 42)                                               \
    X(CPU, "cpu_ms", 4096000)                                                                      \
    X(ERRORS, "errors", UINT64_C(1) << 30)                                                         \
    X(THROTTLES, "throttles", UINT64_C(1) << 30)                                                   \
    X(CACHE_MISSES, "cache_misses", UINT64_C(1) << 30)                                             \
    X(BACKGROUND_BYTES, "background_bytes", UINT64_C(1) << 42)                                     \
    X(QUEUE_P99, "queue_ms_p99", 3600000)                                                          \
    X(STORAGE_P99, "storage_latency_ms_p99", 3600000)                                              \
    X(SIZE, "size_bytes", UINT64_C(1) << 52)                                                       \
    X(ITEMS, "items", UINT64_C(1) << 48)                                                           \
    X(TOMBSTONES, "tombstones", UINT64_C(1) << 48)

enum load_resource {
#define X(name, member, max) LOAD_##name,
    LOAD_RESOURCE_LIST(X)
#undef X
        LOAD_RESOURCES
};

/* Rates over three horizons; of sizes the last report, and two means that tell their growth. */
enum load_horizon { LOAD_FAST, LOAD_MEAN, LOAD_SLOW, LOAD_HORIZONS };
#define LOAD_HALF_LIFE_FAST_MS UINT64_C(20000)
#define LOAD_HALF_LIFE_MEAN_MS UINT64_C(120000)
#define LOAD_HALF_LIFE_SLOW_MS UINT64_C(600000)
#define LOAD_HALF_LIFE_LONG_MS UINT64_C(21600000) /* the slow mean of sizes */

enum {
    LOAD_INTERVAL_MIN_MS = 100,
    LOAD_INTERVAL_MAX_MS = 600000,
    LOAD_KNOWN_AFTER_MS = 60000,    /* so much must have been measured */
    LOAD_UNKNOWN_AFTER_MS = 300000, /* without a report: the last value stays, marked unknown */
    LOAD_KEYS_MAX = 64,             /* key samples of one partition in one report */
    LOAD_PARTS_MAX = 16,            /* operations (and outcomes, tenants) of one partition in one */
    LOAD_PART_NAME_MAX = 63,
    LOAD_ENTRIES_MAX = 1 << 22 /* copies with a load, all in all; more are not counted */
};
#define LOAD_SKETCH_BYTES_MAX (UINT64_C(256) << 20) /* of key samples, all in all */

const char *load_name(enum load_resource r); /* the member's name */
/* LOAD_RESOURCES when there is none of this name. */
enum load_resource load_by_name(struct slice name);
uint64_t load_limit(enum load_resource r);
/* A count over an interval: reads, but not a p99 and not a size. */
bool load_is_count(enum load_resource r);

struct load_key {
    struct slice key, end; /* routing keys; end.data NULL: one key, no range */
    uint64_t weight;
};

/* Some of the requests: those of an operation with an outcome, of a tenant. */
struct load_part {
    struct slice operation, outcome, tenant; /* at most LOAD_PART_NAME_MAX bytes; tenant empty: none
                                                was said */
    uint64_t requests;
};

/* What one report says of one copy. */
struct load_sample {
    uint64_t partition;
    uint64_t node; /* 0: the primary's, whoever that is; else a follower's id */
    dir_rev epoch;
    uint64_t interval_ms;
    uint32_t has;                   /* bit of each resource given */
    uint64_t value[LOAD_RESOURCES]; /* as reported */
    const struct load_key *keys;    /* borrowed */
    uint32_t key_count;
    const struct load_part *parts; /* borrowed; LOAD_PARTS_MAX */
    uint32_t part_count;
};

struct load_entry {
    uint64_t partition, node;
    dir_rev epoch;
    uint64_t since_ms;   /* when its epoch was first heard of here */
    uint64_t last_ms;    /* of the last sample that counted */
    uint64_t covered_ms; /* that the means stand for */
    uint32_t has;
    uint32_t mean[LOAD_RESOURCES][LOAD_HORIZONS]; /* packed */
    uint32_t age_ms[LOAD_HORIZONS + 1];           /* mean age of what is in each; the last: long */
    struct sketch *sketch;                        /* owns; NULL: no keys were reported */
};

struct load; /* opaque */
struct load *load_new(uint64_t entries_max, uint64_t sketch_bytes_max);
void load_free(struct load *l);
/* The half-life of LOAD_FAST, from the next sample on; LOAD_HALF_LIFE_FAST_MS unless set. */
void load_set_fast(struct load *l, uint64_t half_life_ms);

enum load_outcome {
    LOAD_COUNTED,
    LOAD_KEYS_DROPPED, /* counted, but there was no room for (all of) its keys */
    LOAD_EARLY,        /* not counted: measured in part before its epoch began */
    LOAD_STALE,        /* not counted: an epoch before the one known here */
    LOAD_FULL          /* not counted: `entries_max` copies have a load */
};
/* The caller has checked the sample against its bounds and the directory. */
enum load_outcome load_put(struct load *l, const struct load_sample *s, uint64_t now_ms);

/* Borrowed until the next call that changes `l`; NULL when nothing was ever told. */
const struct load_entry *load_get(const struct load *l, uint64_t partition, uint64_t node);
/* In no order; until `fn` returns false. */
void load_each(const struct load *l, bool (*fn)(void *arg, const struct load_entry *e), void *arg);
uint64_t load_count(const struct load *l);
uint64_t load_sketch_bytes(const struct load *l);

/* Rates and times in thousandths (a second; of a ms), sizes as they are. */
uint64_t load_value(const struct load_entry *e, enum load_resource r, enum load_horizon h);
bool load_known(const struct load_entry *e, uint64_t now_ms);
/* The longest mean of loads whose half-life is no more than that. */
enum load_horizon load_horizon_of(uint64_t half_life_ms);
/* As load_known(), of that one: a short mean is known sooner. */
bool load_known_of(const struct load_entry *e, uint64_t half_life_ms, uint64_t now_ms);
/* Growth a day, in the units of load_value(), from the difference of two means over that of their
 * ages; 0 while these are closer than a minute. */
int64_t load_growth(const struct load_entry *e, enum load_resource r);

/* The share of a parent's load (millionths) that falls to a child's range: by its key samples, else
 * `fallback`. `end` NULL: open. */
uint32_t load_share(const struct load_entry *parent,
                    struct slice start,
                    const struct slice *end,
                    uint32_t fallback);
/* `child` gets this share of the load of a primary copy (of any store), beside what it has: the
 * parts of a merge add up. */
void load_inherit(struct load *l,
                  uint64_t child,
                  dir_rev epoch,
                  const struct load_entry *parent,
                  uint32_t share_ppm,
                  uint64_t now_ms);
/* All that it says of counts, times so many millionths: what if there was so much more of it. */
void load_scale(struct load *l, uint64_t partition, uint64_t node, uint32_t ppm);
/* What another server heard of a copy, as a record of some 80 bytes: of rates the two-minute mean,
 * of sizes the last one, of bytes their growth too, a digest of the key samples, and how old it is.
 * `now_ms` is the clock of whoever writes or reads. */
void load_put_record(struct buf *b, const struct load_entry *e, uint64_t now_ms);
/* Reads one; `ret->sketch` is the caller's, or NULL. False, and no sketch, when it can't be read or
 * is none that load_put_record() writes. */
bool load_take_record(struct wire_reader *r, uint64_t now_ms, struct load_entry *ret);
/* Takes the place of what is known of the copy, unless that is newer or there is no room: then
 * false. Takes over from->sketch. */
bool load_restore(struct load *l, const struct load_entry *from);
/* Forgets all copies of a partition; or the one of a node. */
void load_drop(struct load *l, uint64_t partition);
void load_drop_copy(struct load *l, uint64_t partition, uint64_t node);

#endif
