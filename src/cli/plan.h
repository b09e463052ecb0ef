/* SPDX-License-Identifier: Apache-2.0 */
/* The arithmetic of `cadastre plan`: whole numbers and exact fractions, so that the figures are the
 * same everywhere, to the digit. Pure; any thread. Every input and result is at most PARSE_INT_MAX;
 * ERR_INVALID_REQUEST with a line for a person when one is not, or an input makes no sense. */
#ifndef CLI_PLAN_H
#define CLI_PLAN_H

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

/* Reduced. */
struct plan_ratio {
    uint64_t num, den; /* den 0: it did not fit */
};

enum { PLAN_COMPONENTS = 8, PLAN_OWNERS_MAX = 4096, PLAN_PPM = 1000000 };

/* --- moving a partition --- */

struct plan_move_input {
    uint64_t size, copy_rate, live_rate, budget; /* bytes, bytes/s */
    uint64_t dual_write_ms;
    uint64_t checksum_passes;                  /* whole reads of each side for its checksum */
    uint64_t replicas;                         /* of the destination, which get what it gets */
    uint32_t reserve_ppm;                      /* of the budget, for what is not known */
    uint32_t index_work_ppm, cache_warmup_ppm; /* of the destination's writes; of the size */
};

struct plan_component {
    const char *name, *from; /* literals; `from` says what it is computed from */
    uint64_t bytes;
};

struct plan_move {
    uint64_t copy_s;           /* rounded up */
    uint64_t peak;             /* bytes/s: copying beside live changes */
    int64_t margin;            /* bytes/s: what the peak leaves of the budget; may be negative */
    uint64_t wanted_margin;    /* bytes/s: the reserve */
    uint64_t dual_write_bytes; /* rounded up */
    uint64_t advised_rate;     /* bytes/s, rounded down; 0: nothing is left for copying */
    uint64_t advised_s;        /* rounded up; 0 when advised_rate is */
    bool too_thin;             /* margin < wanted_margin */
    bool falls_behind;         /* changes come at least as fast as they can be copied */
    struct plan_component components[PLAN_COMPONENTS];
};

enum err_code
plan_move(const struct plan_move_input *in, struct plan_move *ret_plan, struct err *e) MUST_CHECK;

/* --- how many shards --- */

struct plan_shards_input {
    uint64_t rate, shard_rate; /* requests/s: all, and what one shard can do */
    uint64_t size, shard_size; /* bytes */
    uint64_t hot_buckets;      /* 0: nothing is hot */
    uint32_t hot_ppm;          /* share of the rate */
};

struct plan_shards {
    uint64_t throughput_floor, storage_floor;
    uint64_t shards;     /* the next power of two */
    const char *binding; /* "throughput", "storage", or "both" when they are equal */
    struct plan_ratio rate;
    uint64_t bytes; /* of a shard, rounded up */
    /* When something is hot: its rate, a bucket's, what a shard has beside it, and the sum for a
     * shard with its share of buckets. */
    struct plan_ratio hot_rate, bucket_rate, background_rate, owner_rate;
    uint64_t buckets_per_owner; /* 1, but for more buckets than shards */
    uint64_t buckets_needed;    /* the fewest with which it fits; 0: none up to `shards` */
    bool fits;
};

enum err_code plan_shards(const struct plan_shards_input *in,
                          struct plan_shards *ret_plan,
                          struct err *e) MUST_CHECK;

/* --- salting a hot key --- */

struct plan_salt_input {
    uint64_t total, hot, limit; /* requests/s; `hot` is part of the total */
    uint64_t partitions, salts;
    const char *owners; /* "a,b,a": who got each salt; NULL: spread evenly */
};

struct plan_owner {
    struct slice name; /* borrows the input */
    uint64_t salts;
    struct plan_ratio rate;
    bool fits;
};

struct plan_salt {
    struct plan_ratio cold_rate, unsplit_owner_rate, salt_rate, salted_owner_rate;
    uint64_t salts_per_owner;  /* 1, but for more salts than partitions */
    bool fits;                 /* every owner, the shared ones too */
    struct plan_owner *shared; /* owners of several salts, in the order given; owns */
    unsigned shared_count;
};

/* After success, the caller closes it. */
enum err_code
plan_salt(const struct plan_salt_input *in, struct plan_salt *ret_plan, struct err *e) MUST_CHECK;
void plan_salt_close(struct plan_salt *p);

#endif
