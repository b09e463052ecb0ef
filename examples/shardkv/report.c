/* SPDX-License-Identifier: Apache-2.0 */
/* Every interval: what each copy here was asked for, at the epoch that was in force during all of
 * it. A copy whose epoch changed meanwhile is left out, and counted from the next interval on. */
#include "examples/shardkv/report.h"
#include "examples/shardkv/copy.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>

enum {
    TELL_MS = 5000,
    KEYS_OF = 16,  /* keys are told of what has a sixteenth of the node's requests, or more */
    KEYS_MIN = 64, /* and at least so many */
    ITEMS_FEW = 50000,
    ITEMS_MS = 30000, /* so often items are counted where there are more */
    NODE_SIZE = 512,
    WAYS = 3 /* that a request may go: see put_by() */
};

/* One copy of the node's. */
struct told {
    struct meter_counts counts; /* owns the keys */
    bool primary;
    struct cadastre_load_key keys[METER_KEYS];
    struct cadastre_load_by by[WAYS];
};

struct report {
    struct node *node;
    uint64_t since_ms;
    struct told *told;           /* owns */
    struct cadastre_load *loads; /* owns; as many */
    size_t count, room;
    struct meter_times queue, whole;
    uint64_t errors, asked, cpu_ns, bytes;
};

/* --- gathering --- */

static bool make_room(struct report *r)
{
    if (r->count < r->room) {
        return true;
    }
    size_t room = r->room > 0 ? 2 * r->room : 64;
    struct told *told = realloc(r->told, room * sizeof *told);
    r->told = told != NULL ? told : r->told;
    struct cadastre_load *loads = realloc(r->loads, room * sizeof *loads);
    r->loads = loads != NULL ? loads : r->loads;
    if (told == NULL || loads == NULL) {
        return false;
    }
    r->room = room;
    return true;
}

/* What it is, and how large. False: there is no copy here. */
static bool look(struct part *p, struct cadastre_load *l, bool *ret_primary)
{
    uint64_t now = copy_now_ms();
    (void)pthread_mutex_lock(&p->lock);
    bool here =
        p->store != NULL && p->role != CADASTRE_ROLE_NONE && p->role != CADASTRE_ROLE_JOINING;
    if (here) {
        if (p->items <= ITEMS_FEW || now - p->items_ms >= ITEMS_MS) {
            p->items = kv_items(p->store);
            p->items_ms = now;
        }
        *l = (struct cadastre_load){.keyspace = p->keyspace,
                                    .partition = p->id,
                                    .epoch = p->epoch,
                                    .size_bytes = kv_bytes(p->store),
                                    .items = p->items,
                                    .has = CADASTRE_LOAD_ITEMS};
        *ret_primary = p->role == CADASTRE_ROLE_PRIMARY;
    }
    (void)pthread_mutex_unlock(&p->lock);
    return here;
}

static void put_counts(struct cadastre_load *l, const struct meter_counts *c, bool primary)
{
    l->reads = c->reads;
    l->writes = c->writes;
    l->read_bytes = c->read_bytes;
    l->write_bytes = c->write_bytes;
    l->cpu_ms = (c->cpu_ns + 500000) / 1000000;
    if (primary) { /* nobody waits for another copy by itself */
        l->has |= CADASTRE_LOAD_ERRORS | CADASTRE_LOAD_QUEUE | CADASTRE_LOAD_STORAGE_LATENCY;
        l->errors = c->errors;
        l->queue_ms_p99 = meter_p99_ms(&c->queue);
        l->storage_latency_ms_p99 = meter_p99_ms(&c->storage);
    }
}

static void add_part(struct report *r, struct part *p)
{
    struct cadastre_load load;
    bool primary;
    if (!look(p, &load, &primary) || !make_room(r)) {
        return;
    }
    struct told *t = &r->told[r->count];
    if (!meter_take(&p->meter, load.epoch, &t->counts)) {
        return;
    }
    t->primary = primary;
    put_counts(&load, &t->counts, primary);
    r->loads[r->count++] = load;
    r->bytes += load.size_bytes;
    r->errors += t->counts.errors;
    r->asked += t->counts.reads + t->counts.writes;
    r->cpu_ns += t->counts.cpu_ns;
    meter_add_times(&r->queue, &t->counts.queue);
    meter_add_times(&r->whole, &t->counts.whole);
}

static int by_key(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Each key that was sampled stands for as many requests; equal ones become one. */
static void weigh(struct told *t, struct cadastre_load *l)
{
    struct meter_counts *c = &t->counts;
    uint64_t asked = c->reads + c->writes, seen = 0, given = 0;
    qsort(c->keys, c->key_count, sizeof c->keys[0], by_key);
    l->keys = t->keys;
    for (size_t i = 0; i < c->key_count; i++) {
        struct cadastre_load_key *last = l->key_count > 0 ? &t->keys[l->key_count - 1] : NULL;
        uint64_t upto = asked * ++seen / c->key_count, weight = upto - given;
        given = upto;
        if (last != NULL && strcmp(last->key, c->keys[i]) == 0) {
            last->weight += weight;
        } else {
            t->keys[l->key_count++] = (struct cadastre_load_key){
                .key = c->keys[i], .key_len = strlen(c->keys[i]), .weight = weight};
        }
    }
}

/* What clients did. Whoever reads what is not there is answered, too; a write that failed may yet
 * be applied. */
static void put_by(struct told *t, struct cadastre_load *l)
{
    const struct cadastre_load_by ways[WAYS] = {
        {"get", "ok", NULL, t->counts.reads},
        {"put", "ok", NULL, t->counts.writes - t->counts.errors},
        {"put", "error", NULL, t->counts.errors},
    };
    l->by = t->by;
    for (size_t i = 0; i < WAYS; i++) {
        if (ways[i].requests > 0) {
            t->by[l->by_count++] = ways[i];
        }
    }
}

static void gather(struct report *r)
{
    for (struct part *p = node_parts(r->node); p != NULL; p = p->next) {
        add_part(r, p);
    }
    for (size_t i = 0; i < r->count; i++) {
        const struct meter_counts *c = &r->told[i].counts;
        uint64_t asked = c->reads + c->writes;
        if (c->key_count == METER_KEYS && asked >= KEYS_MIN && asked * KEYS_OF >= r->asked) {
            weigh(&r->told[i], &r->loads[i]);
        }
        if (r->told[i].primary) {
            put_by(&r->told[i], &r->loads[i]);
        }
    }
}

/* --- telling --- */

/* Of the node itself. Cores that were busy: with requests, as far as that is known here. */
static void describe(const struct report *r, uint64_t interval_ms, char *text)
{
    struct statvfs disk;
    uint64_t free_bytes = statvfs(r->node->data_dir, &disk) == 0
                              ? (uint64_t)disk.f_bavail * (uint64_t)disk.f_frsize
                              : 0;
    (void)snprintf(text, NODE_SIZE,
                   "{\"cpu\":%.3f,\"latency_ms_p99\":%" PRIu64 ",\"queue_ms_p99\":%" PRIu64
                   ",\"errors\":%" PRIu64 ",\"disk_free_bytes\":%" PRIu64
                   ",\"disk_used_bytes\":%" PRIu64 "}",
                   (double)r->cpu_ns / 1e6 / (double)interval_ms, meter_p99_ms(&r->whole),
                   meter_p99_ms(&r->queue), r->errors, free_bytes, r->bytes);
}

static void tell(struct report *r, uint64_t interval_ms)
{
    char of_node[NODE_SIZE];
    struct cadastre_error e;
    describe(r, interval_ms, of_node);
    const struct cadastre_load_report report = {
        .interval_ms = interval_ms, .loads = r->loads, .count = r->count, .node = of_node};
    if (cadastre_agent_report_load(r->node->agent, &report, TELL_MS, NULL, &e) ==
        CADASTRE_REFUSED) {
        (void)fprintf(stderr, "shardkv: load refused: %s\n", e.detail);
    }
}

/* What is not told is lost: the next interval counts from here on. */
static void report_once(struct report *r)
{
    uint64_t now = copy_now_ms(), interval_ms = now - r->since_ms;
    r->since_ms = now;
    gather(r);
    if (interval_ms >= REPORT_MS_MIN && interval_ms <= REPORT_MS_MAX) {
        tell(r, interval_ms);
    }
    for (size_t i = 0; i < r->count; i++) {
        meter_free(&r->told[i].counts);
    }
    *r = (struct report){.node = r->node,
                         .since_ms = r->since_ms,
                         .told = r->told,
                         .loads = r->loads,
                         .room = r->room};
}

void *report_loads(void *node)
{
    struct node *n = node;
    struct report r = {.node = n, .since_ms = copy_now_ms()};
    (void)pthread_mutex_lock(&n->lock);
    while (!n->ending) {
        struct timespec until;
        (void)clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += (time_t)(n->report_ms / 1000);
        until.tv_nsec += (long)(n->report_ms % 1000) * 1000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        (void)pthread_cond_clockwait(&n->ended, &n->lock, CLOCK_MONOTONIC, &until);
        if (!n->ending && copy_now_ms() - r.since_ms >= n->report_ms) {
            (void)pthread_mutex_unlock(&n->lock);
            report_once(&r);
            (void)pthread_mutex_lock(&n->lock);
        }
    }
    (void)pthread_mutex_unlock(&n->lock);
    free(r.told);
    free(r.loads);
    return NULL;
}
