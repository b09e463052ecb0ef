/* SPDX-License-Identifier: Apache-2.0 */
/* The arithmetic of `cadastre plan`, but for moves (base/plan.h): whole numbers and exact
 * fractions, so that the figures are the same everywhere, to the digit. Pure; any thread. Every
 * input and result is at most PARSE_INT_MAX; ERR_INVALID_REQUEST with a line for a person when one
 * is not, or an input makes no sense. */
#ifndef CLI_PLAN_H
#define CLI_PLAN_H

#include "base/plan.h"

/* Reduced. */
struct plan_ratio {
    uint64_t num, den; /* den 0: it did not fit */
};

enum { PLAN_OWNERS_MAX = 4096 };

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
