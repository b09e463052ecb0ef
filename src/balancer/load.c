/* SPDX-License-Identifier: Apache-2.0 */
#include "balancer/load.h"

#include "balancer/ewma.h"
#include "balancer/fixed.h"

#include "base/assert.h"
#include "base/mem.h"

#include <string.h>

enum {
    FRACTION_BITS = 10, /* below a thousandth, so that small values decay too */
    GROWTH_MIN_MS = 60000,
    CAP_MIN = 64,
    PPM = 1000000
};
#define DAY_MS UINT64_C(86400000)

struct load {
    struct load_entry **slots; /* by partition, probed linearly; owns the entries */
    uint64_t cap, used, max;
    uint64_t sketch_bytes, sketch_max;
    uint64_t fast_ms;
    /* The weights that were computed last: partitions of one report mostly share them. */
    uint64_t elapsed_ms, covered_ms, weight[LOAD_HORIZONS + 1];
};

static const struct {
    const char *name;
    uint64_t max;
} resources[LOAD_RESOURCES] = {
#define X(name, member, max) {member, max},
    LOAD_RESOURCE_LIST(X)
#undef X
};

const char *load_name(enum load_resource r)
{
    return resources[r].name;
}

enum load_resource load_by_name(struct slice name)
{
    unsigned r = 0;
    while (r < LOAD_RESOURCES &&
           !slice_eq(name, slice_of(resources[r].name, strlen(resources[r].name)))) {
        r++;
    }
    return (enum load_resource)r;
}

uint64_t load_limit(enum load_resource r)
{
    return resources[r].max;
}

bool load_is_count(enum load_resource r)
{
    return r < LOAD_QUEUE_P99;
}

/* --- the table --- */

struct load *load_new(uint64_t entries_max, uint64_t sketch_bytes_max)
{
    struct load *l = mem_zalloc(sizeof *l);
    l->max = entries_max;
    l->sketch_max = sketch_bytes_max;
    l->fast_ms = LOAD_HALF_LIFE_FAST_MS;
    l->cap = CAP_MIN;
    l->slots = mem_zalloc(l->cap * sizeof l->slots[0]);
    return l;
}

static void free_entry(struct load *l, struct load_entry *e)
{
    if (e->sketch != NULL) {
        l->sketch_bytes -= sketch_bytes(e->sketch);
        sketch_free(e->sketch);
    }
    mem_free(e);
}

void load_free(struct load *l)
{
    for (uint64_t i = 0; i < l->cap; i++) {
        if (l->slots[i] != NULL) {
            free_entry(l, l->slots[i]);
        }
    }
    mem_free(l->slots);
    mem_free(l);
}

static uint64_t home_of(const struct load *l, uint64_t partition)
{
    uint64_t h = partition * UINT64_C(0x9e3779b97f4a7c15);
    return (h ^ (h >> 32)) & (l->cap - 1);
}

/* Where it is, or where it would go. */
static uint64_t seek(const struct load *l, uint64_t partition, uint64_t node)
{
    uint64_t i = home_of(l, partition);
    while (l->slots[i] != NULL &&
           (l->slots[i]->partition != partition || l->slots[i]->node != node)) {
        i = (i + 1) & (l->cap - 1);
    }
    return i;
}

static void grow(struct load *l)
{
    struct load_entry **old = l->slots;
    uint64_t cap = l->cap;
    l->cap *= 2;
    l->slots = mem_zalloc(l->cap * sizeof l->slots[0]);
    for (uint64_t i = 0; i < cap; i++) {
        if (old[i] != NULL) {
            l->slots[seek(l, old[i]->partition, old[i]->node)] = old[i];
        }
    }
    mem_free(old);
}

/* NULL when it is full. */
static struct load_entry *find_or_add(struct load *l, uint64_t partition, uint64_t node)
{
    uint64_t i = seek(l, partition, node);
    if (l->slots[i] != NULL) {
        return l->slots[i];
    }
    if (l->used >= l->max) {
        return NULL;
    }
    if (4 * (l->used + 1) > 3 * l->cap) {
        grow(l);
        i = seek(l, partition, node);
    }
    struct load_entry *e = mem_zalloc(sizeof *e);
    e->partition = partition;
    e->node = node;
    l->slots[i] = e;
    l->used++;
    return e;
}

/* Fills the gap with what would be found there. */
static void remove_at(struct load *l, uint64_t i)
{
    uint64_t mask = l->cap - 1;
    free_entry(l, l->slots[i]);
    l->used--;
    for (uint64_t j = (i + 1) & mask; l->slots[j] != NULL; j = (j + 1) & mask) {
        uint64_t home = home_of(l, l->slots[j]->partition);
        if (((j - home) & mask) >= ((j - i) & mask)) {
            l->slots[i] = l->slots[j];
            i = j;
        }
    }
    l->slots[i] = NULL;
}

void load_drop_copy(struct load *l, uint64_t partition, uint64_t node)
{
    uint64_t i = seek(l, partition, node);
    if (l->slots[i] != NULL) {
        remove_at(l, i);
    }
}

void load_drop(struct load *l, uint64_t partition)
{
    uint64_t i = home_of(l, partition);
    while (l->slots[i] != NULL) {
        if (l->slots[i]->partition == partition) {
            remove_at(l, i);
        } else {
            i = (i + 1) & (l->cap - 1);
        }
    }
}

const struct load_entry *load_get(const struct load *l, uint64_t partition, uint64_t node)
{
    return l->slots[seek(l, partition, node)];
}

void load_each(const struct load *l, bool (*fn)(void *arg, const struct load_entry *e), void *arg)
{
    for (uint64_t i = 0; i < l->cap; i++) {
        if (l->slots[i] != NULL && !fn(arg, l->slots[i])) {
            return;
        }
    }
}

uint64_t load_count(const struct load *l)
{
    return l->used;
}

uint64_t load_sketch_bytes(const struct load *l)
{
    return l->sketch_bytes;
}

/* --- means --- */

static bool is_size(unsigned r)
{
    return r >= LOAD_SIZE;
}

/* In the unit of the means: thousandths (sizes: ones), and FRACTION_BITS. */
static uint64_t measure(const struct load_sample *s, unsigned r)
{
    uint64_t v = s->value[r];
    if (is_size(r)) {
        return v << FRACTION_BITS;
    }
    if (load_is_count((enum load_resource)r)) {
        /* A count of an interval is at most 2^42 * 600: in two steps, so that nothing wraps. */
        uint64_t whole = v / s->interval_ms, rest = v % s->interval_ms;
        return (whole * PPM << FRACTION_BITS) + (rest * PPM << FRACTION_BITS) / s->interval_ms;
    }
    return v * 1000 << FRACTION_BITS;
}

void load_set_fast(struct load *l, uint64_t half_life_ms)
{
    if (l->fast_ms != half_life_ms) {
        l->fast_ms = half_life_ms;
        l->covered_ms = UINT64_MAX; /* the weights that are kept are no more right */
    }
}

static void mix(uint32_t *mean, uint64_t value, uint64_t weight)
{
    *mean = ewma_pack(ewma_mix(ewma_unpack(*mean), value, weight));
}

static uint32_t mix_age(uint32_t age_ms, uint64_t elapsed_ms, uint64_t weight)
{
    uint64_t age = ewma_mix(age_ms + elapsed_ms, 0, weight);
    return age < UINT32_MAX ? (uint32_t)age : UINT32_MAX;
}

static const uint64_t *weights(struct load *l, uint64_t elapsed_ms, uint64_t covered_ms)
{
    const uint64_t half_lives[] = {l->fast_ms, LOAD_HALF_LIFE_MEAN_MS, LOAD_HALF_LIFE_SLOW_MS,
                                   LOAD_HALF_LIFE_LONG_MS};
    if (l->covered_ms != covered_ms || l->elapsed_ms != elapsed_ms) {
        l->elapsed_ms = elapsed_ms;
        l->covered_ms = covered_ms;
        for (unsigned h = 0; h <= LOAD_HORIZONS; h++) {
            l->weight[h] = ewma_weight(elapsed_ms, covered_ms, half_lives[h]);
        }
    }
    return l->weight;
}

static void
count_sample(struct load *l, struct load_entry *e, const struct load_sample *s, uint64_t now_ms)
{
    uint64_t elapsed = s->interval_ms;
    if (e->covered_ms > 0) { /* threads hand in their times a little out of order */
        elapsed = now_ms > e->last_ms ? now_ms - e->last_ms : 0;
    }
    e->covered_ms += elapsed;
    const uint64_t *weight = weights(l, elapsed, e->covered_ms);
    for (unsigned h = 0; h <= LOAD_HORIZONS; h++) {
        e->age_ms[h] = mix_age(e->age_ms[h], elapsed, weight[h]);
    }
    for (unsigned r = 0; r < LOAD_RESOURCES; r++) {
        if ((s->has & 1U << r) == 0) {
            continue;
        }
        uint64_t value = measure(s, r);
        bool first = (e->has & 1U << r) == 0;
        for (unsigned h = 0; h < LOAD_HORIZONS; h++) {
            uint64_t w = weight[is_size(r) ? h + 1 : h];
            mix(&e->mean[r][h], value, first || (is_size(r) && h == 0) ? EWMA_ONE : w);
        }
    }
    e->has |= s->has;
    e->last_ms = now_ms > e->last_ms ? now_ms : e->last_ms;
}

static bool
put_keys(struct load *l, struct load_entry *e, const struct load_sample *s, uint64_t now_ms)
{
    bool all = true;
    if (s->key_count == 0) {
        return true;
    }
    if (e->sketch == NULL) {
        struct sketch *fresh = sketch_new(e->partition ^ e->node << 32, now_ms);
        if (l->sketch_bytes + sketch_bytes(fresh) > l->sketch_max) {
            sketch_free(fresh);
            return false;
        }
        e->sketch = fresh;
        l->sketch_bytes += sketch_bytes(fresh);
    }
    for (uint32_t i = 0; i < s->key_count; i++) {
        const struct load_key *k = &s->keys[i];
        uint64_t before = sketch_bytes(e->sketch);
        uint64_t room = l->sketch_max > l->sketch_bytes ? l->sketch_max - l->sketch_bytes : 0;
        all &= sketch_add(e->sketch, k->key, k->end.data != NULL ? &k->end : NULL, k->weight, room,
                          now_ms);
        l->sketch_bytes = l->sketch_bytes - before + sketch_bytes(e->sketch);
    }
    return all;
}

enum load_outcome load_put(struct load *l, const struct load_sample *s, uint64_t now_ms)
{
    ASSERT(s->interval_ms > 0);
    struct load_entry *e = find_or_add(l, s->partition, s->node);
    if (e == NULL) {
        return LOAD_FULL;
    }
    if (s->epoch < e->epoch) {
        return LOAD_STALE;
    }
    if (s->epoch > e->epoch) {
        /* What is measured from here on is the new holder's. The first one ever has none before. */
        e->since_ms = e->epoch != 0 ? now_ms : 0;
        e->epoch = s->epoch;
    }
    if (now_ms < e->since_ms + s->interval_ms && e->since_ms > 0) {
        return LOAD_EARLY;
    }
    count_sample(l, e, s, now_ms);
    return put_keys(l, e, s, now_ms) ? LOAD_COUNTED : LOAD_KEYS_DROPPED;
}

uint64_t load_value(const struct load_entry *e, enum load_resource r, enum load_horizon h)
{
    uint64_t v = ewma_unpack(e->mean[r][h]);
    return (v >> FRACTION_BITS) + ((v >> (FRACTION_BITS - 1)) & 1);
}

enum load_horizon load_horizon_of(uint64_t half_life_ms)
{
    return half_life_ms >= LOAD_HALF_LIFE_SLOW_MS   ? LOAD_SLOW
           : half_life_ms >= LOAD_HALF_LIFE_MEAN_MS ? LOAD_MEAN
                                                    : LOAD_FAST;
}

bool load_known_of(const struct load_entry *e, uint64_t half_life_ms, uint64_t now_ms)
{
    uint64_t after = half_life_ms < LOAD_KNOWN_AFTER_MS ? half_life_ms : LOAD_KNOWN_AFTER_MS;
    return e->covered_ms >= after && now_ms < e->last_ms + LOAD_UNKNOWN_AFTER_MS;
}

bool load_known(const struct load_entry *e, uint64_t now_ms)
{
    return load_known_of(e, LOAD_HALF_LIFE_MEAN_MS, now_ms);
}

int64_t load_growth(const struct load_entry *e, enum load_resource r)
{
    const uint32_t *age = &e->age_ms[is_size(r) ? LOAD_SLOW : LOAD_MEAN];
    uint64_t young = load_value(e, r, LOAD_MEAN), old = load_value(e, r, LOAD_SLOW);
    uint64_t apart = age[1] > age[0] ? age[1] - age[0] : 0;
    uint64_t change = young > old ? young - old : old - young;
    if (apart < GROWTH_MIN_MS) {
        return 0;
    }
    /* Beyond 2^62 a day it is all the same. */
    uint64_t a_day = change > UINT64_MAX / 4 / DAY_MS ? UINT64_MAX / 4 : change * DAY_MS;
    a_day /= a_day == UINT64_MAX / 4 ? 1 : apart;
    return young >= old ? (int64_t)a_day : -(int64_t)a_day;
}

/* --- lineage --- */

uint32_t load_share(const struct load_entry *parent,
                    struct slice start,
                    const struct slice *end,
                    uint32_t fallback)
{
    return parent->sketch != NULL ? sketch_share(parent->sketch, start, end, fallback) : fallback;
}

void load_inherit(struct load *l,
                  uint64_t child,
                  dir_rev epoch,
                  const struct load_entry *parent,
                  uint32_t share_ppm,
                  uint64_t now_ms)
{
    struct load_entry *e = find_or_add(l, child, 0);
    if (e == NULL) {
        return;
    }
    bool second = e->covered_ms > 0;
    for (unsigned r = 0; r < LOAD_RESOURCES; r++) {
        bool times = r == LOAD_QUEUE_P99 || r == LOAD_STORAGE_P99; /* don't add up */
        uint64_t share = times ? PPM : share_ppm;
        for (unsigned h = 0; h < LOAD_HORIZONS; h++) {
            uint64_t had = ewma_unpack(e->mean[r][h]);
            uint64_t part = ewma_scale(ewma_unpack(parent->mean[r][h]), (share << 32) / PPM);
            uint64_t both = times ? (had > part ? had : part) : had + part;
            e->mean[r][h] = ewma_pack(both < EWMA_VALUE_MAX ? both : EWMA_VALUE_MAX);
        }
    }
    for (unsigned h = 0; h <= LOAD_HORIZONS; h++) {
        e->age_ms[h] = e->age_ms[h] > parent->age_ms[h] ? e->age_ms[h] : parent->age_ms[h];
    }
    e->has |= parent->has;
    e->epoch = epoch;
    e->since_ms = now_ms;
    e->last_ms = !second || parent->last_ms < e->last_ms ? parent->last_ms : e->last_ms;
    e->covered_ms =
        !second || parent->covered_ms < e->covered_ms ? parent->covered_ms : e->covered_ms;
}

void load_scale(struct load *l, uint64_t partition, uint64_t node, uint32_t ppm)
{
    struct load_entry *e = l->slots[seek(l, partition, node)];
    for (unsigned r = 0; e != NULL && r < LOAD_RESOURCES; r++) {
        for (unsigned h = 0; h < LOAD_HORIZONS && load_is_count((enum load_resource)r); h++) {
            bal_u128 v = (bal_u128)ewma_unpack(e->mean[r][h]) * ppm / PPM;
            e->mean[r][h] = ewma_pack(v < EWMA_VALUE_MAX ? (uint64_t)v : EWMA_VALUE_MAX);
        }
    }
}

/* --- from another server --- */

/* `e` has the sketch from now on, if there is room for it. */
static void replace_sketch(struct load *l, struct load_entry *e, struct sketch *sketch)
{
    if (e->sketch != NULL) {
        l->sketch_bytes -= sketch_bytes(e->sketch);
        sketch_free(e->sketch);
        e->sketch = NULL;
    }
    if (sketch != NULL && l->sketch_bytes + sketch_bytes(sketch) > l->sketch_max) {
        sketch_free(sketch);
        sketch = NULL;
    }
    if (sketch != NULL) {
        l->sketch_bytes += sketch_bytes(sketch);
        e->sketch = sketch;
    }
}

bool load_restore(struct load *l, const struct load_entry *from)
{
    struct load_entry *e = find_or_add(l, from->partition, from->node);
    if (e == NULL || e->epoch > from->epoch || (e->has != 0 && e->last_ms >= from->last_ms)) {
        sketch_free(from->sketch);
        return false;
    }
    struct sketch *had = e->sketch;
    *e = *from;
    e->sketch = had;
    replace_sketch(l, e, from->sketch);
    return true;
}
