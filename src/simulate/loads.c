/* SPDX-License-Identifier: Apache-2.0 */
/* The load of each key over time, and what a sample of requests shows of a partition's keys. */
#include "simulate/internal.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define TAU 6.283185307179586
enum { SAMPLE_DRAWS = 256 };

/* SplitMix64. */
uint64_t fm_random(struct fm *x)
{
    uint64_t z = x->random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

double fm_uniform(struct fm *x)
{
    return (double)(fm_random(x) >> 11) / 9007199254740992.0;
}

double fm_gauss(struct fm *x)
{
    double u = fm_uniform(x) + 1e-300, v = fm_uniform(x);
    return sqrt(-2 * log(u)) * cos(TAU * v);
}

static uint32_t keys_of(const struct fm *x)
{
    return (uint32_t)x->s->keys;
}

static void sum_up(struct fm *x)
{
    x->prefix[0] = 0;
    for (uint32_t k = 0; k < keys_of(x); k++) {
        x->prefix[k + 1] = x->prefix[k] + x->key[k];
    }
}

/* Ranks to keys: in order for zipford, else shuffled. */
static uint32_t *ranks(struct fm *x)
{
    uint32_t keys = keys_of(x), *key_of = mem_alloc(keys * sizeof *key_of);
    for (uint32_t k = 0; k < keys; k++) {
        key_of[k] = k;
    }
    for (uint32_t k = keys - 1; k > 0 && x->s->load.generator != SCENARIO_ZIPFORD; k--) {
        uint32_t other = (uint32_t)(fm_random(x) % (k + 1)), kept = key_of[k];
        key_of[k] = key_of[other];
        key_of[other] = kept;
    }
    return key_of;
}

static void set_ranked(struct fm *x)
{
    const struct scenario_load *l = &x->s->load;
    uint32_t keys = keys_of(x), *key_of = ranks(x);
    double sum = 0, hot = 0;
    for (uint32_t k = 0; k < keys; k++) {
        x->key_base[key_of[k]] = pow(k + (l->cut > 0 ? l->cut : 1), -l->exponent);
        sum += x->key_base[key_of[k]];
    }
    if (l->generator == SCENARIO_HOTKEY) {
        hot = l->times * x->wanted / x->node_count;
        hot = hot < x->wanted ? hot : x->wanted;
    }
    for (uint32_t k = 0; k < keys; k++) {
        x->key_base[k] *= (x->wanted - hot) / sum;
    }
    x->key_base[keys / 3] += hot;
    mem_free(key_of);
}

/* --- listed partitions: their keys bear equal shares --- */

static double listed_at(const struct scenario_part *p, uint64_t now_ms)
{
    double load = p->load;
    uint64_t at = p->repeat_ms > 0 ? now_ms % p->repeat_ms : now_ms;
    for (uint32_t i = 0; i < p->point_count && p->points[i].at_ms <= at; i++) {
        load = p->points[i].load;
    }
    return load;
}

static void set_listed(struct fm *x)
{
    uint32_t at = 0;
    for (uint64_t i = 0; i < x->s->part_count; i++) {
        const struct scenario_part *p = &x->s->listed[i];
        double each = listed_at(p, x->now_ms) / (double)p->keys;
        for (uint64_t k = 0; k < p->keys; k++) {
            x->key[at++] = each;
        }
    }
}

/* --- what changes --- */

static void bell(struct fm *x, double centre, double width, double load)
{
    int64_t keys = keys_of(x), reach = (int64_t)(4 * width);
    double sum = 0;
    for (int64_t j = -reach; j <= reach; j++) {
        sum += exp(-0.5 * (double)(j * j) / (width * width));
    }
    for (int64_t j = -reach; j <= reach; j++) {
        int64_t k = ((int64_t)centre + j + 2 * keys) % keys;
        x->key[k] += load * exp(-0.5 * (double)(j * j) / (width * width)) / sum;
    }
}

/* A share of all load in a bell that crosses the key space. */
static void drift(struct fm *x)
{
    const struct scenario_load *l = &x->s->load;
    double keys = keys_of(x), width = l->width * keys > 1 ? l->width * keys : 1;
    for (uint32_t k = 0; k < keys_of(x); k++) {
        x->key[k] = x->key_base[k] * (1 - l->share);
    }
    bell(x, fmod((double)x->now_ms / 86400e3 * l->per_day, 1) * keys, width, l->share * x->wanted);
}

static uint32_t place_of_turn(const struct fm *x, uint64_t turn)
{
    return (uint32_t)((double)((turn * 7919 + 1237) % 97) / 97.0 * keys_of(x));
}

/* Every so often a share of the keys gets so many times its load, for a while. */
static void flash(struct fm *x)
{
    const struct scenario_load *l = &x->s->load;
    uint32_t keys = keys_of(x);
    memcpy(x->key, x->key_base, keys * sizeof *x->key);
    if (x->now_ms < l->from_ms || (x->now_ms - l->from_ms) % l->every_ms >= l->lasts_ms) {
        return;
    }
    double t = (double)((x->now_ms - l->from_ms) % l->every_ms), half = (double)l->lasts_ms / 2;
    double part = t < 60e3 ? t / 60e3 : t < half ? 1 : 1 - (t - half) / half;
    uint32_t first = place_of_turn(x, (x->now_ms - l->from_ms) / l->every_ms);
    for (uint32_t k = 0; k < (uint32_t)(keys * l->share); k++) {
        uint32_t at = (first + k) % keys;
        x->key[at] = x->key_base[at] * (1 + (l->times - 1) * part);
    }
}

static void shift(struct fm *x)
{
    uint64_t turn = x->now_ms / x->s->load.every_ms;
    if (turn == x->shift) {
        return;
    }
    x->shift = turn;
    x->unsettled_ms = (int64_t)x->now_ms;
    x->settle_since_ms = 0;
    uint32_t offset = place_of_turn(x, turn), keys = keys_of(x);
    for (uint32_t k = 0; k < keys; k++) {
        x->key[k] = x->key_base[(k + offset) % keys];
    }
}

static void diurnal(struct fm *x)
{
    const struct scenario_load *l = &x->s->load;
    uint32_t keys = keys_of(x), each = keys / (uint32_t)l->tenants;
    double angle = TAU * (double)x->now_ms / (double)l->every_ms;
    double wave[256];
    for (uint64_t i = 0; i < l->tenants; i++) {
        wave[i] = 1 + x->swing[i] * sin(angle + x->phase[i]);
    }
    for (uint32_t k = 0; k < keys; k++) {
        uint32_t tenant = each > 0 ? k / each : k;
        x->key[k] = x->key_base[k] * wave[tenant < l->tenants ? tenant : l->tenants - 1];
    }
}

/* A share of all load on the newest keys, which advance through a part of the key space. */
static void mono(struct fm *x)
{
    const struct scenario_load *l = &x->s->load;
    double keys = keys_of(x), width = l->width * keys > 1 ? l->width * keys : 1, sum = 0;
    double done = (double)x->now_ms / (double)x->s->duration_ms;
    int64_t reach = (int64_t)(8 * width), front = (int64_t)((l->begin + l->advance * done) * keys);
    front = front < (int64_t)keys ? front : (int64_t)keys - 1;
    for (uint32_t k = 0; k < keys_of(x); k++) {
        x->key[k] = x->key_base[k] * (1 - l->share);
    }
    for (int64_t j = 0; j < reach; j++) {
        sum += exp(-(double)j / width);
    }
    for (int64_t j = 0; j < reach && front - j >= 0; j++) {
        x->key[front - j] += l->share * x->wanted * exp(-(double)j / width) / sum;
    }
}

void fm_loads_tick(struct fm *x)
{
    static void (*const changes[SCENARIO_GENERATORS])(struct fm *) = {
        [SCENARIO_LISTED] = set_listed, [SCENARIO_DRIFT] = drift, [SCENARIO_FLASH] = flash,
        [SCENARIO_DIURNAL] = diurnal,   [SCENARIO_MONO] = mono,   [SCENARIO_SHIFT] = shift,
    };
    if (changes[x->s->load.generator] != NULL) {
        changes[x->s->load.generator](x);
        sum_up(x);
    }
}

void fm_loads_open(struct fm *x)
{
    size_t bytes = ((size_t)x->s->keys + 1) * sizeof(double);
    const struct scenario_load *l = &x->s->load;
    double capacity = 0;
    x->key = mem_zalloc(bytes);
    x->key_base = mem_zalloc(bytes);
    x->prefix = mem_zalloc(bytes);
    for (uint32_t n = 0; n < x->node_count; n++) {
        capacity += x->node[n].up ? x->node[n].group->capacity : 0;
    }
    x->wanted = l->utilisation * capacity;
    if (l->generator != SCENARIO_LISTED) {
        set_ranked(x);
        memcpy(x->key, x->key_base, bytes);
    }
    for (int i = 0; i < 256; i++) {
        x->phase[i] = fm_uniform(x) * TAU;
        x->swing[i] = l->swing_min + (l->swing_max - l->swing_min) * fm_uniform(x);
    }
    sum_up(x);
    fm_loads_tick(x);
}

/* --- of partitions --- */

double fm_part_load(const struct fm *x, const struct fm_part *p)
{
    double load = x->prefix[p->high] - x->prefix[p->low];
    return load > 0 ? load : 0;
}

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static uint32_t draw(struct fm *x, const struct fm_part *p)
{
    double begin = x->prefix[p->low], end = x->prefix[p->high];
    double wanted = begin + fm_uniform(x) * (end - begin);
    uint32_t low = p->low, high = p->high - 1;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (x->prefix[middle + 1] > wanted) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

void fm_sample_keys(struct fm *x, struct fm_part *p)
{
    uint32_t keys[SAMPLE_DRAWS], longest = 0, left = 0;
    int nearest = SAMPLE_DRAWS + 1;
    for (int i = 0; i < SAMPLE_DRAWS; i++) {
        keys[i] = draw(x, p);
    }
    qsort(keys, SAMPLE_DRAWS, sizeof keys[0], by_number);
    p->top = keys[0];
    uint32_t run = 1;
    for (int i = 1; i <= SAMPLE_DRAWS; i++, run++) {
        if (i < SAMPLE_DRAWS && keys[i] == keys[i - 1]) {
            continue;
        }
        p->top = run > longest ? keys[i - 1] : p->top;
        longest = run > longest ? run : longest;
        run = 0;
        if (i < SAMPLE_DRAWS && abs(2 * i - SAMPLE_DRAWS) < nearest) {
            nearest = abs(2 * i - SAMPLE_DRAWS);
            p->boundary = keys[i];
            left = (uint32_t)i;
        }
    }
    p->sampled_ms = fm_log_ms(x);
    p->hint = (struct bal_hint){
        .samples = SAMPLE_DRAWS,
        .left = BAL_Q(left, SAMPLE_DRAWS),
        .top = BAL_Q(longest, SAMPLE_DRAWS),
    };
}
