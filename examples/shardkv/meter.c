/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/shardkv/meter.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LINEAR = 16, STEPS = 4 };

/* --- how long it took --- */

static uint64_t clock_ns(clockid_t which)
{
    struct timespec t;
    (void)clock_gettime(which, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void add_time(struct meter_times *t, uint64_t ns)
{
    uint64_t ms = (ns + 500000) / 1000000, at = ms, size = 1, base = LINEAR;
    if (ms >= LINEAR) {
        at = LINEAR;
        size = LINEAR / STEPS;
        while (ms >= 2 * base) {
            base *= 2;
            size *= 2;
            at += STEPS;
        }
        at += (ms - base) / size;
    }
    t->count[at < METER_TIMES ? at : METER_TIMES - 1]++;
}

/* The longest time that is counted there. */
static uint64_t upper_ms(unsigned at)
{
    uint64_t doubling = at < LINEAR ? 0 : (at - LINEAR) / STEPS, step = (at - LINEAR) % STEPS;
    return at < LINEAR ? at : ((LINEAR + (step + 1) * LINEAR / STEPS) << doubling) - 1;
}

uint64_t meter_p99_ms(const struct meter_times *t)
{
    uint64_t all = 0, upto = 0;
    for (unsigned i = 0; i < METER_TIMES; i++) {
        all += t->count[i];
    }
    for (unsigned i = 0; i < METER_TIMES; i++) {
        upto += t->count[i];
        if (upto > 0 && upto * 100 >= all * 99) {
            return upper_ms(i);
        }
    }
    return 0;
}

void meter_add_times(struct meter_times *to, const struct meter_times *from)
{
    for (unsigned i = 0; i < METER_TIMES; i++) {
        to->count[i] += from->count[i];
    }
}

/* --- which keys --- */

static void sample(struct meter *m, const char *key)
{
    struct meter_counts *c = &m->counts;
    uint64_t asked = c->reads + c->writes, at = c->key_count;
    if (c->key_count == METER_KEYS) {
        m->random = m->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        at = (m->random >> 16) % asked;
    }
    char *copy = at < METER_KEYS ? strdup(key) : NULL;
    if (copy != NULL) {
        c->key_count += at == c->key_count;
        free(c->keys[at]);
        c->keys[at] = copy;
    }
}

void meter_free(struct meter_counts *c)
{
    for (size_t i = 0; i < c->key_count; i++) {
        free(c->keys[i]);
    }
    *c = (struct meter_counts){.reads = 0};
}

/* --- counting --- */

void meter_open(struct meter *m)
{
    *m = (struct meter){.random = clock_ns(CLOCK_MONOTONIC)};
    (void)pthread_mutex_init(&m->lock, NULL);
}

void meter_close(struct meter *m)
{
    meter_free(&m->counts);
    (void)pthread_mutex_destroy(&m->lock);
}

void meter_epoch(struct meter *m, uint64_t epoch)
{
    (void)pthread_mutex_lock(&m->lock);
    if (m->epoch != epoch) {
        meter_free(&m->counts);
        m->epoch = epoch;
        m->whole = false;
    }
    (void)pthread_mutex_unlock(&m->lock);
}

struct meter_request meter_start(void)
{
    return (struct meter_request){clock_ns(CLOCK_MONOTONIC), clock_ns(CLOCK_THREAD_CPUTIME_ID), 0};
}

void meter_serve(struct meter_request *r)
{
    r->served_ns = clock_ns(CLOCK_MONOTONIC);
}

void meter_note(struct meter *m, const struct meter_request *r, const struct meter_asked *a)
{
    uint64_t now = clock_ns(CLOCK_MONOTONIC), cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    struct meter_counts *c = &m->counts;
    (void)pthread_mutex_lock(&m->lock);
    if (m->epoch == a->epoch && r->served_ns != 0) {
        c->reads += !a->write;
        c->writes += a->write;
        c->read_bytes += a->write ? 0 : a->bytes;
        c->write_bytes += a->write ? a->bytes : 0;
        c->errors += a->write && a->failed;
        c->cpu_ns += cpu - r->begun_cpu_ns;
        add_time(&c->queue, r->served_ns - r->begun_ns);
        add_time(&c->storage, now - r->served_ns);
        add_time(&c->whole, now - r->begun_ns);
        sample(m, a->key);
    }
    (void)pthread_mutex_unlock(&m->lock);
}

void meter_copied(struct meter *m, uint64_t epoch, uint64_t writes, uint64_t bytes)
{
    (void)pthread_mutex_lock(&m->lock);
    if (m->epoch == epoch) {
        m->counts.writes += writes;
        m->counts.write_bytes += bytes;
    }
    (void)pthread_mutex_unlock(&m->lock);
}

bool meter_take(struct meter *m, uint64_t epoch, struct meter_counts *ret)
{
    (void)pthread_mutex_lock(&m->lock);
    bool whole = m->whole && m->epoch == epoch && epoch != 0;
    if (whole) {
        *ret = m->counts; /* with its keys */
        m->counts = (struct meter_counts){.reads = 0};
    } else {
        meter_free(&m->counts);
    }
    m->whole = m->epoch != 0;
    (void)pthread_mutex_unlock(&m->lock);
    return whole;
}
