/* SPDX-License-Identifier: Apache-2.0 */
/* What a partition was asked for since it was last reported, at one epoch. */
#ifndef SHARDKV_METER_H
#define SHARDKV_METER_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { METER_KEYS = 64, METER_TIMES = 64 };

/* How often it took how long: whole milliseconds up to 15, then four steps for each doubling. */
struct meter_times {
    uint64_t count[METER_TIMES];
};

struct meter_counts {
    uint64_t reads, writes, read_bytes, write_bytes, cpu_ns;
    uint64_t errors; /* of the writes */
    struct meter_times queue, storage, whole;
    /* Of all requests each has the same chance to be among these. */
    char *keys[METER_KEYS]; /* own */
    size_t key_count;
};

struct meter {
    pthread_mutex_t lock;
    uint64_t epoch;  /* in force; 0: none */
    bool whole;      /* since before what is counted began */
    uint64_t random; /* which keys stay */
    struct meter_counts counts;
};

/* One request, from meter_start() on. */
struct meter_request {
    uint64_t begun_ns, begun_cpu_ns;
    uint64_t served_ns; /* when its turn came; 0: it never did */
};

void meter_open(struct meter *m);
void meter_close(struct meter *m);
/* Counts anew from here on, if that is another epoch; 0: nothing is counted. */
void meter_epoch(struct meter *m, uint64_t epoch);

struct meter_request meter_start(void);
void meter_serve(struct meter_request *r);
struct meter_asked {
    uint64_t epoch;
    const char *key;
    uint64_t bytes;
    bool write, failed; /* failed: of a write of which this node can't say what came of it */
};
/* One of another epoch does not count. */
void meter_note(struct meter *m, const struct meter_request *r, const struct meter_asked *a);
/* What a copy takes from its primary. */
void meter_copied(struct meter *m, uint64_t epoch, uint64_t writes, uint64_t bytes);

/* Takes what was counted, and begins the next interval. False: the epoch was not in force from
 * before it began, or is over; then there is nothing to free. */
bool meter_take(struct meter *m, uint64_t epoch, struct meter_counts *ret);
void meter_free(struct meter_counts *c);

uint64_t meter_p99_ms(const struct meter_times *t);
void meter_add_times(struct meter_times *to, const struct meter_times *from);

#endif
