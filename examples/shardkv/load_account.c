/* SPDX-License-Identifier: Apache-2.0 */
/* A pause is from a partition's last acknowledged write of one epoch to its first of the next (or
 * from the parent's last to the child's first), as far as a writer waited. */
#include "examples/shardkv/load.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>

/* With the lock; NULL when there are too many. */
static struct seen *seen_of(struct account *a, uint64_t partition)
{
    for (unsigned i = 0; i < PARTS_MAX; i++) {
        struct seen *s = &a->seen[(partition + i) % PARTS_MAX];
        if (s->partition == partition || s->partition == 0) {
            s->partition = partition;
            return s;
        }
    }
    return NULL;
}

uint64_t account_floor(struct account *a, uint64_t partition)
{
    (void)pthread_mutex_lock(&a->lock);
    struct seen *s = seen_of(a, partition);
    uint64_t epoch = s != NULL ? s->epoch : 0;
    (void)pthread_mutex_unlock(&a->lock);
    return epoch;
}

void account_no(struct account *a, uint64_t partition, uint64_t begun, bool refused)
{
    (void)pthread_mutex_lock(&a->lock);
    struct seen *s = seen_of(a, partition);
    if (s != NULL && s->waiting_ns == 0) {
        s->waiting_ns = begun;
    }
    (void)pthread_mutex_unlock(&a->lock);
    atomic_fetch_add(refused ? &a->refused : &a->unknown, 1);
}

static void note_pause(struct account *a, uint64_t ns)
{
    a->pauses_ns[a->pauses < PAUSES_MAX ? a->pauses : PAUSES_MAX - 1] = ns;
    a->pauses += a->pauses < PAUSES_MAX;
}

/* Since the last acknowledged write, as far as one waited. */
static uint64_t pause_since(const struct seen *last, const struct record *r)
{
    const struct seen none = {.waiting_ns = 0};
    last = last != NULL ? last : &none;
    uint64_t waiting =
        last->waiting_ns != 0 && last->waiting_ns < r->begun ? last->waiting_ns : r->begun;
    uint64_t from = last->acknowledged_ns > waiting ? last->acknowledged_ns : waiting;
    return r->acknowledged > from ? r->acknowledged - from : 0;
}

/* With the lock. */
static void note_times(struct account *a, const struct record *r)
{
    struct seen *s = seen_of(a, r->partition);
    if (s == NULL) {
        return;
    }
    bool is_new = s->epoch == 0 && r->before != 0;
    uint64_t pause = pause_since(is_new ? seen_of(a, r->before) : s, r);
    if (is_new || (s->epoch != 0 && r->epoch > s->epoch)) {
        note_pause(a, pause);
    }
    a->pause_longest_ns = pause > a->pause_longest_ns ? pause : a->pause_longest_ns;
    s->acknowledged_ns =
        r->acknowledged > s->acknowledged_ns ? r->acknowledged : s->acknowledged_ns;
    s->epoch = r->epoch > s->epoch ? r->epoch : s->epoch;
    s->waiting_ns = 0;
}

static void write_record(FILE *f, const struct record *r)
{
    json_t *json =
        json_pack("{s:s,s:I,s:s,s:I,s:I,s:I,s:s,s:I,s:I,s:I,s:i}", "node", r->node, "partition",
                  (json_int_t)r->partition, "key", r->key, "epoch", (json_int_t)r->epoch,
                  "position", (json_int_t)r->position, "sequence", (json_int_t)r->sequence, "id",
                  r->id, "begun", (json_int_t)r->begun, "sent", (json_int_t)r->sent, "acknowledged",
                  (json_int_t)r->acknowledged, "hops", (int)r->hops);
    (void)json_dumpf(json, f, JSON_COMPACT);
    (void)fputc('\n', f);
    json_decref(json);
}

void account_write(struct account *a, const struct record *r)
{
    (void)pthread_mutex_lock(&a->lock);
    note_times(a, r);
    if (r->hops == 1) {
        a->times_ns[a->times++ % TIMES_MAX] = r->acknowledged - r->sent;
    }
    a->hops += r->hops;
    a->hops_max = r->hops > a->hops_max ? r->hops : a->hops_max;
    if (r->epoch < r->floor) {
        atomic_fetch_add(&a->stale, 1); /* after a later epoch had been in force */
    }
    if (a->records != NULL) {
        write_record(a->records, r);
    }
    (void)pthread_mutex_unlock(&a->lock);
    atomic_fetch_add(&a->acknowledged, 1);
}

static int ascending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static double median_ms(uint64_t *ns, uint64_t count)
{
    qsort(ns, count, sizeof *ns, ascending);
    return count > 0 ? (double)ns[count / 2] / 1e6 : 0;
}

bool account_summarise(struct account *a)
{
    uint64_t acknowledged = atomic_load(&a->acknowledged);
    uint64_t times = a->times < TIMES_MAX ? a->times : TIMES_MAX;
    (void)printf("{\"acknowledged\":%" PRIu64 ",\"refused\":%" PRIu64 ",\"unknown\":%" PRIu64
                 ",\"lost\":%" PRIu64 ",\"stale_accepted\":%" PRIu64 ",\"unsettled\":%" PRIu64
                 ",\"reads\":%" PRIu64 ",\"stale_reads\":%" PRIu64 ",\"wrong_reads\":%" PRIu64
                 ",\"hops\":%.3f,\"hops_max\":%" PRIu64 ",\"pauses_ms\":[",
                 acknowledged, atomic_load(&a->refused), atomic_load(&a->unknown),
                 atomic_load(&a->lost), atomic_load(&a->stale), atomic_load(&a->unsettled),
                 atomic_load(&a->reads), atomic_load(&a->stale_reads), atomic_load(&a->wrong_reads),
                 acknowledged > 0 ? (double)a->hops / (double)acknowledged : 0, a->hops_max);
    for (uint64_t i = 0; i < a->pauses; i++) {
        (void)printf("%s%.1f", i > 0 ? "," : "", (double)a->pauses_ns[i] / 1e6);
    }
    (void)printf("],\"pause_median_ms\":%.3f,\"pause_longest_ms\":%.3f"
                 ",\"durable_write_median_ms\":%.3f}\n",
                 median_ms(a->pauses_ns, a->pauses), (double)a->pause_longest_ns / 1e6,
                 median_ms(a->times_ns, times));
    return atomic_load(&a->lost) + atomic_load(&a->stale) + atomic_load(&a->unsettled) +
               atomic_load(&a->wrong_reads) ==
           0;
}
