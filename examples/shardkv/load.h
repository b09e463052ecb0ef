/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the load generator share. */
#ifndef SHARDKV_LOAD_H
#define SHARDKV_LOAD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { VALUE_SIZE = 2048 };

/* --- how much of what (load_demand.c) --- */

struct demand {
    uint64_t rate;        /* requests a second, of all writers; 0: as fast as it goes */
    uint64_t reads_ppm;   /* of requests */
    uint64_t value_bytes; /* values are padded to so many */
    uint64_t day_ms;      /* a day of the sun takes so long; 0: it stands still */
    uint64_t from_minute; /* of the day, in UTC, at which it begins */
    const char *hot_key; /* one key that everybody reads, or NULL; the first writer writes it too */
    uint64_t hot_ppm;    /* of requests */
    const char *rates;   /* a file, or NULL */
};
/* NAME=VALUE, which is kept; false: it is none. */
bool demand_read(struct demand *d, char *option);
/* The minute of the day in UTC; `day_ms` > 0. */
unsigned demand_minute(const struct demand *d, uint64_t elapsed_ns);
/* Drawn for a place that is `offset` minutes ahead of UTC. */
bool demand_is_awake(unsigned minute, int offset, uint64_t *random);
bool demand_is_read(const struct demand *d, uint64_t *random);
bool demand_is_hot(const struct demand *d, uint64_t *random);

enum { RATES_NODES_MAX = 64, RATES_NAME_SIZE = 64 };
/* Requests that were answered, by node: a line of JSON for each second. */
struct rates {
    FILE *file; /* NULL: nothing is noted */
    pthread_mutex_t lock;
    uint64_t second, requests, hot; /* hot: of the hot key */
    unsigned count;
    struct {
        char name[RATES_NAME_SIZE];
        uint64_t requests;
    } nodes[RATES_NODES_MAX];
};
bool rates_open(struct rates *r, const char *path);
void rates_note(struct rates *r, uint64_t second, const char *node, bool hot);
bool rates_close(struct rates *r);

/* --- which keys (load_keys.c) --- */

/* One writer's own keys. */
struct keys {
    char **texts;                /* owns */
    uint64_t *upto;              /* owns: the sum of weights up to here; NULL: they take turns */
    int16_t *offsets;            /* owns, as long: minutes ahead of UTC */
    size_t count, weighed, next; /* weighed: those that are chosen from, the first ones */
    uint64_t random;
};
/* `count` made-up keys, for writer `number`. */
bool keys_make(struct keys *k, unsigned number, size_t count);
/* Writer `number` of `writers` gets its share of a file of KEY <tab> WEIGHT [<tab> LATITUDE <tab>
 * LONGITUDE] lines. */
bool keys_read(struct keys *k, const char *path, unsigned number, unsigned writers);
/* One that is not chosen by its weight; its number, or -1. */
long keys_add(struct keys *k, const char *text);
void keys_free(struct keys *k);
/* Which comes next: each as often as its weight says, and, under the sun, as people are awake. */
size_t keys_choose(struct keys *k, const struct demand *d, uint64_t elapsed_ns);

/* --- keeping account (load_account.c) --- */

enum { PAUSES_MAX = 4096, TIMES_MAX = 1 << 16, PARTS_MAX = 4096 };

/* What all writers know of a partition. */
struct seen {
    uint64_t partition;
    uint64_t epoch;           /* the highest that something was acknowledged at */
    uint64_t acknowledged_ns; /* when, last */
    uint64_t waiting_ns;      /* since when a write waits that was not acknowledged; 0: none does */
};

struct account {
    FILE *records;        /* NULL: none are written */
    pthread_mutex_t lock; /* guards the records and what follows */
    struct seen seen[PARTS_MAX];
    uint64_t pauses_ns[PAUSES_MAX], times_ns[TIMES_MAX]; /* the first pauses, the last times */
    uint64_t pauses, times, hops, hops_max, pause_longest_ns;
    _Atomic uint64_t acknowledged, refused, unknown, stale, lost, unsettled;
    _Atomic uint64_t reads, stale_reads, wrong_reads; /* stale: the answer said so */
};

struct record {
    const char *node, *key, *id;
    uint64_t partition, epoch, position, sequence;
    uint64_t begun, sent, acknowledged; /* first sent, last sent, answered; CLOCK_BOOTTIME, ns */
    uint64_t floor;                     /* account_floor() before it was sent */
    uint64_t before; /* the partition that the key was in when it was last written, 0 none */
    unsigned hops;
};

/* The highest epoch that the partition has acknowledged something at. */
uint64_t account_floor(struct account *a, uint64_t partition);
/* An answer that did not acknowledge; `refused`: surely not applied. */
void account_no(struct account *a, uint64_t partition, uint64_t begun, bool refused);
void account_write(struct account *a, const struct record *r);
/* Prints the summary; false when a write was lost, a stale one accepted, or one not settled. */
bool account_summarise(struct account *a);

#endif
