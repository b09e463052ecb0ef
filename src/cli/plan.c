/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/plan.h"

#include "base/mem.h"
#include "base/parse.h"

#include <string.h>

static uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static struct plan_ratio ratio(uint64_t num, uint64_t den)
{
    uint64_t a = num, b = den;
    while (b != 0) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    bool fits = num != PLAN_TOO_LARGE && den != PLAN_TOO_LARGE && den != 0 &&
                num / a <= PARSE_INT_MAX && den / a <= PARSE_INT_MAX;
    return fits ? (struct plan_ratio){num / a, den / a} : (struct plan_ratio){0, 0};
}

static struct plan_ratio ratio_add(struct plan_ratio a, struct plan_ratio b)
{
    if (a.den == b.den) {
        return ratio(plan_add(a.num, b.num), a.den);
    }
    return ratio(plan_add(plan_mul(a.num, b.den), plan_mul(b.num, a.den)), plan_mul(a.den, b.den));
}

static struct plan_ratio ratio_mul(struct plan_ratio a, uint64_t part, uint64_t whole)
{
    /* Reduced crosswise first, so that only what is really too large does not fit. */
    struct plan_ratio left = ratio(a.num, whole), right = ratio(part, a.den);
    return ratio(plan_mul(left.num, right.num), plan_mul(left.den, right.den));
}

/* a <= limit */
static bool ratio_within(struct plan_ratio a, uint64_t limit)
{
    return a.num / a.den < limit || (a.num / a.den == limit && a.num % a.den == 0);
}

/* --- shards --- */

static enum err_code check_shards(const struct plan_shards_input *in, struct err *e)
{
    const uint64_t values[] = {in->rate, in->shard_rate, in->size, in->shard_size, in->hot_buckets};
    for (unsigned i = 0; i < sizeof values / sizeof values[0]; i++) {
        if (values[i] > PARSE_INT_MAX) {
            return plan_too_large(e);
        }
    }
    if (in->shard_rate == 0 || in->shard_size == 0) {
        return err_set(e, ERR_INVALID_REQUEST, "--shard-%s must be above 0",
                       in->shard_rate == 0 ? "rate" : "size");
    }
    if (in->hot_ppm > PLAN_PPM) {
        return err_set(e, ERR_INVALID_REQUEST, "--hot-share is at most 100%%");
    }
    return ERR_OK;
}

/* The fewest buckets, each with an owner of its own, that keep owners within the limit. */
static uint64_t needed_buckets(const struct plan_shards *p, uint64_t limit)
{
    if (!ratio_within(p->background_rate, limit)) {
        return 0;
    }
    /* limit - background, over one denominator with the hot rate */
    struct plan_ratio b = p->background_rate;
    struct plan_ratio room = ratio(plan_mul(limit, b.den) - b.num, b.den);
    if (room.num == 0 || room.den == 0) {
        return p->hot_rate.num == 0 ? 1 : 0;
    }
    struct plan_ratio n = ratio_mul(p->hot_rate, room.den, room.num);
    uint64_t buckets = n.den == 0 ? PLAN_TOO_LARGE : max_u64(plan_ceil_div(n.num, n.den), 1);
    return buckets <= p->shards ? buckets : 0;
}

static bool put_hot(const struct plan_shards_input *in, struct plan_shards *p)
{
    struct plan_ratio all = {in->rate, 1};
    p->hot_rate = ratio_mul(all, in->hot_ppm, PLAN_PPM);
    p->background_rate = ratio_mul(ratio_mul(all, PLAN_PPM - in->hot_ppm, PLAN_PPM), 1, p->shards);
    p->bucket_rate = ratio_mul(p->hot_rate, 1, in->hot_buckets);
    p->buckets_per_owner = plan_ceil_div(in->hot_buckets, p->shards);
    p->owner_rate =
        ratio_add(p->background_rate, ratio_mul(p->bucket_rate, p->buckets_per_owner, 1));
    if (p->hot_rate.den == 0 || p->owner_rate.den == 0) {
        return false;
    }
    p->fits = ratio_within(p->owner_rate, in->shard_rate);
    p->buckets_needed = needed_buckets(p, in->shard_rate);
    return true;
}

enum err_code
plan_shards(const struct plan_shards_input *in, struct plan_shards *ret_plan, struct err *e)
{
    enum err_code code = check_shards(in, e);
    if (code != ERR_OK) {
        return code;
    }
    struct plan_shards p = {.throughput_floor = plan_ceil_div(in->rate, in->shard_rate),
                            .storage_floor = plan_ceil_div(in->size, in->shard_size),
                            .shards = 1};
    uint64_t floor = max_u64(p.throughput_floor, p.storage_floor);
    while (p.shards < floor) {
        p.shards *= 2;
    }
    if (p.shards > PARSE_INT_MAX) {
        return plan_too_large(e);
    }
    p.binding = p.throughput_floor == p.storage_floor  ? "both"
                : p.throughput_floor > p.storage_floor ? "throughput"
                                                       : "storage";
    p.rate = ratio(in->rate, p.shards);
    p.bytes = plan_ceil_div(in->size, p.shards);
    if (in->hot_buckets > 0 && !put_hot(in, &p)) {
        return plan_too_large(e);
    }
    *ret_plan = p;
    return ERR_OK;
}

/* --- salt --- */

static enum err_code check_salt(const struct plan_salt_input *in, struct err *e)
{
    if (in->total > PARSE_INT_MAX || in->limit > PARSE_INT_MAX || in->partitions > PARSE_INT_MAX ||
        in->salts > PARSE_INT_MAX) {
        return plan_too_large(e);
    }
    if (in->hot > in->total) {
        return err_set(e, ERR_INVALID_REQUEST, "--hot is part of --total and can't be above it");
    }
    if (in->partitions == 0 || in->salts == 0) {
        return err_set(e, ERR_INVALID_REQUEST, "--%s must be above 0",
                       in->partitions == 0 ? "partitions" : "salts");
    }
    return ERR_OK;
}

static struct plan_ratio owner_rate(const struct plan_salt *p, uint64_t salts)
{
    return ratio_add(p->cold_rate, ratio_mul(p->salt_rate, salts, 1));
}

/* Counts each name of "a,b,a" into `owners`, which has room for `salts`. */
static enum err_code count_owners(const struct plan_salt_input *in,
                                  struct plan_owner *owners,
                                  unsigned *ret_count,
                                  struct err *e)
{
    unsigned count = 0;
    uint64_t names = 0;
    const char *p = in->owners;
    for (;; p++) {
        size_t len = strcspn(p, ",");
        struct slice name = slice_of(p, len);
        if (len == 0 || !parse_is_utf8(name)) {
            return err_set(e, ERR_INVALID_REQUEST, "--owners takes names, parted by commas");
        }
        if (++names > in->salts) {
            break;
        }
        unsigned i = 0;
        while (i < count && !slice_eq(owners[i].name, name)) {
            i++;
        }
        owners[i].name = name;
        owners[i].salts++;
        count += i == count;
        p += len;
        if (*p == '\0') {
            break;
        }
    }
    if (names != in->salts) {
        return err_set(e, ERR_INVALID_REQUEST, "--owners takes an owner for each of the %llu salts",
                       (unsigned long long)in->salts);
    }
    *ret_count = count;
    return ERR_OK;
}

/* Keeps those with several salts, and says what they have to carry. */
static enum err_code
put_owners(const struct plan_salt_input *in, struct plan_salt *p, struct err *e)
{
    if (in->salts > PLAN_OWNERS_MAX) {
        return err_set(e, ERR_INVALID_REQUEST, "--owners takes at most %d", PLAN_OWNERS_MAX);
    }
    unsigned count = 0;
    p->shared = mem_zalloc(in->salts * sizeof *p->shared);
    enum err_code code = count_owners(in, p->shared, &count, e);
    if (code == ERR_OK && count > in->partitions) {
        code = err_set(e, ERR_INVALID_REQUEST, "--owners names more owners than --partitions");
    }
    for (unsigned i = 0; code == ERR_OK && i < count; i++) {
        struct plan_owner o = p->shared[i];
        if (o.salts < 2) {
            continue;
        }
        o.rate = owner_rate(p, o.salts);
        if (o.rate.den == 0) {
            code = plan_too_large(e);
            break;
        }
        o.fits = ratio_within(o.rate, in->limit);
        p->fits = p->fits && o.fits;
        p->shared[p->shared_count++] = o;
    }
    return code;
}

enum err_code plan_salt(const struct plan_salt_input *in, struct plan_salt *ret_plan, struct err *e)
{
    enum err_code code = check_salt(in, e);
    if (code != ERR_OK) {
        return code;
    }
    struct plan_salt p = {.cold_rate = ratio(in->total - in->hot, in->partitions),
                          .salt_rate = ratio(in->hot, in->salts),
                          .salts_per_owner = plan_ceil_div(in->salts, in->partitions)};
    p.unsplit_owner_rate = ratio_add(p.cold_rate, (struct plan_ratio){in->hot, 1});
    /* Named owners say themselves who shares: this one is an owner of a single salt. */
    p.salts_per_owner = in->owners != NULL ? 1 : p.salts_per_owner;
    p.salted_owner_rate = owner_rate(&p, p.salts_per_owner);
    if (p.unsplit_owner_rate.den == 0 || p.salted_owner_rate.den == 0) {
        return plan_too_large(e);
    }
    p.fits = ratio_within(p.salted_owner_rate, in->limit);
    code = in->owners != NULL ? put_owners(in, &p, e) : ERR_OK;
    if (code != ERR_OK) {
        plan_salt_close(&p);
        return code;
    }
    *ret_plan = p;
    return ERR_OK;
}

void plan_salt_close(struct plan_salt *p)
{
    mem_free(p->shared);
    *p = (struct plan_salt){0};
}
