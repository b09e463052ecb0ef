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

/* --- which keys (load_keys.c) --- */

/* One writer's own keys. */
struct keys {
    char **texts;   /* owns */
    uint64_t *upto; /* owns: the sum of weights up to here; NULL: they take turns */
    size_t count, next;
    uint64_t random;
};
/* `count` made-up keys, for writer `number`. */
bool keys_make(struct keys *k, unsigned number, size_t count);
/* Writer `number` of `writers` gets its share of a file of KEY <tab> WEIGHT lines. */
bool keys_read(struct keys *k, const char *path, unsigned number, unsigned writers);
void keys_free(struct keys *k);
/* Which is written next: each as often as its weight says. */
size_t keys_choose(struct keys *k);

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
