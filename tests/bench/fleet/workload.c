/* SPDX-License-Identifier: Apache-2.0 */
/* The load of each key over time. */
#include "base/mem.h"
#include "tests/bench/fleet/sim.h"

#include <math.h>
#include <string.h>

const char *const sim_workload_name[SIM_WORKLOADS] = {
    "noise",  "zipf",   "zipford",  "drift",    "flash",    "diurnal", "mono",
    "hotkey", "hetero", "nodeloss", "zoneloss", "scaleout", "shift",
};

#define TAU 6.283185307179586

static double wanted_total(const struct sim *s)
{
    return SIM_MEAN_LOAD * sim_capacity(s);
}

static void sum_up(struct sim *s)
{
    s->prefix[0] = 0;
    for (int k = 0; k < s->c.keys; k++) {
        s->prefix[k + 1] = s->prefix[k] + s->key[k];
    }
    s->total = s->prefix[s->c.keys];
}

static bool steep(enum sim_workload w)
{
    return w == SIM_ZIPF || w == SIM_ZIPFORD || w == SIM_SHIFT;
}

/* Ranks to keys: in order for zipford, else shuffled. */
static int *ranks(struct sim *s)
{
    int *key_of = mem_alloc((size_t)s->c.keys * sizeof *key_of);
    for (int k = 0; k < s->c.keys; k++) {
        key_of[k] = k;
    }
    for (int k = s->c.keys - 1; k > 0 && s->c.workload != SIM_ZIPFORD; k--) {
        int other = (int)tap_rand_below(&s->random, (uint64_t)k + 1);
        int kept = key_of[k];
        key_of[k] = key_of[other];
        key_of[other] = kept;
    }
    return key_of;
}

void sim_workload_init(struct sim *s)
{
    int keys = s->c.keys;
    int *key_of = ranks(s);
    double sum = 0, wanted = wanted_total(s);
    for (int k = 0; k < keys; k++) {
        /* The first ranks of the steep one are cut off, so that every key fits a node. */
        double load = steep(s->c.workload)          ? pow(k + 20, -0.99)
                      : s->c.workload == SIM_HOTKEY ? pow(k + 100, -0.5)
                                                    : pow(k + 1, -0.5);
        s->key_base[key_of[k]] = load;
        sum += load;
    }
    for (int k = 0; k < keys; k++) {
        s->key_base[k] *= wanted / sum;
    }
    if (s->c.workload == SIM_HOTKEY) {
        double hot = 3 * wanted / s->c.nodes;
        for (int k = 0; k < keys; k++) {
            s->key_base[k] *= (wanted - hot) / wanted;
        }
        s->key_base[keys / 3] += hot;
    }
    for (int i = 0; i < 256; i++) {
        s->tenant_phase[i] = sim_uniform(s) * TAU;
        s->tenant_swing[i] = 0.3 + 0.4 * sim_uniform(s);
    }
    mem_free(key_of);
    memcpy(s->key, s->key_base, (size_t)keys * sizeof *s->key);
    sum_up(s);
}

/* 30 % of all load in a bell that crosses the key space twice a day. */
static void drift(struct sim *s)
{
    int keys = s->c.keys;
    double width = 0.01 * keys, centre = fmod(s->now / 86400 * 2, 1) * keys, sum = 0;
    int reach = (int)(4 * width);
    for (int k = 0; k < keys; k++) {
        s->key[k] = s->key_base[k] * 0.7;
    }
    for (int j = -reach; j <= reach; j++) {
        sum += exp(-0.5 * j * j / (width * width));
    }
    for (int j = -reach; j <= reach; j++) {
        int k = ((int)centre + j + 2 * keys) % keys;
        s->key[k] += 0.3 * wanted_total(s) * exp(-0.5 * j * j / (width * width)) / sum;
    }
}

/* From hour 3 on, every two hours: 1 % of the keys twentyfold, for half an hour. */
static void flash(struct sim *s)
{
    int keys = s->c.keys;
    memcpy(s->key, s->key_base, (size_t)keys * sizeof *s->key);
    double since = s->now - 3 * 3600;
    if (since < 0 || fmod(since, 7200) >= 1800) {
        return;
    }
    double x = fmod(since, 7200);
    double part = x < 60 ? x / 60 : x < 900 ? 1 : 1 - (x - 900) / 900;
    int turn = (int)(since / 7200), first = (int)((turn * 7919 + 1237) % 97 / 97.0 * keys);
    for (int k = 0; k < keys / 100; k++) {
        int at = (first + k) % keys;
        s->key[at] = s->key_base[at] * (1 + 19 * part);
    }
}

static void shift(struct sim *s)
{
    int turn = (int)(s->now / 7200);
    if (turn == s->shift) {
        return;
    }
    s->shift = turn;
    s->shift_at = s->now;
    s->shift_open = 1;
    s->shift_since = -1;
    int offset = (int)((turn * 7919 + 1237) % 97 / 97.0 * s->c.keys);
    for (int k = 0; k < s->c.keys; k++) {
        s->key[k] = s->key_base[(k + offset) % s->c.keys];
    }
}

static void diurnal(struct sim *s)
{
    int each = s->c.keys / 100;
    for (int k = 0; k < s->c.keys; k++) {
        int tenant = k / each < 255 ? k / each : 255;
        double wave = sin(TAU * s->now / 86400 + s->tenant_phase[tenant]);
        s->key[k] = s->key_base[k] * (1 + s->tenant_swing[tenant] * wave);
    }
}

/* 2 % of all load on the newest keys, which advance. */
static void mono(struct sim *s)
{
    int keys = s->c.keys;
    double width = 0.0001 * keys, sum = 0;
    int reach = (int)(8 * width), front = (int)((0.3 + 0.1 * s->now / (12 * 3600)) * keys);
    for (int k = 0; k < keys; k++) {
        s->key[k] = s->key_base[k] * 0.98;
    }
    for (int j = 0; j < reach; j++) {
        sum += exp(-j / width);
    }
    for (int j = 0; j < reach && front - j >= 0; j++) {
        s->key[front - j] += 0.02 * wanted_total(s) * exp(-j / width) / sum;
    }
}

void sim_workload_tick(struct sim *s)
{
    static void (*const changes[SIM_WORKLOADS])(struct sim *) = {
        [SIM_DRIFT] = drift,     [SIM_FLASH] = flash, [SIM_SHIFT] = shift,
        [SIM_DIURNAL] = diurnal, [SIM_MONO] = mono,
    };
    if (changes[s->c.workload] != NULL) {
        changes[s->c.workload](s);
        sum_up(s);
    }
}
