/* SPDX-License-Identifier: Apache-2.0 */
/* An agent's life, its partitions, and what the data path asks. */
#include "client/agent.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/parse.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { TIMEOUT_DEFAULT_MS = 5000, TARGET_MAX = 160, LABELS_MAX = 64 };

static bool is_name(const char *text)
{
    return text != NULL && parse_is_name(slice_of(text, strlen(text)));
}

static bool labels_ok(const struct cadastre_agent_options *o)
{
    bool ok = o->label_count <= LABELS_MAX;
    for (size_t i = 0; ok && i < o->label_count; i++) {
        ok = is_name(o->labels[i].name) && o->labels[i].value != NULL;
    }
    return ok;
}

static bool capacity_ok(const struct cadastre_agent_options *o)
{
    bool ok = o->capacity_count <= LABELS_MAX;
    for (size_t i = 0; ok && i < o->capacity_count; i++) {
        ok = is_name(o->capacity[i].name) && o->capacity[i].value <= PARSE_INT_MAX;
    }
    return ok;
}

static bool options_ok(const struct cadastre_agent_options *o, struct cadastre_error *e)
{
    size_t address_len = o->address != NULL ? strlen(o->address) : 0;
    const char *wrong = NULL;
    if (!is_name(o->node)) {
        wrong = "node: not a name";
    } else if (address_len == 0 || address_len > CADASTRE_ADDRESS_MAX) {
        wrong = "address: missing or too long";
    } else if (o->data_dir == NULL || o->data_dir[0] == '\0') {
        wrong = "data_dir: missing";
    } else if (!labels_ok(o)) {
        wrong = "labels: not names and texts, or too many";
    } else if (!capacity_ok(o)) {
        wrong = "capacity: not names and numbers, or too many";
    }
    if (wrong != NULL) {
        (void)cl_error(e, CADASTRE_INVALID, "", "%s", wrong);
    }
    return wrong == NULL;
}

static void read_options(struct cadastre_agent *a, const struct cadastre_agent_options *o)
{
    cl_hooks_init(&a->hooks, o->ca_file);
    a->hooks.credentials = o->credentials;
    a->hooks.event = o->callbacks.event;
    a->hooks.credentials_arg = a->hooks.event_arg = o->arg;
    a->callbacks = o->callbacks;
    a->arg = o->arg;
    (void)snprintf(a->node, sizeof a->node, "%s", o->node);
    a->address = mem_strdup(o->address);
    a->data_dir = mem_strdup(o->data_dir);
    a->endpoints = mem_strdup(o->endpoints != NULL ? o->endpoints : "");
    a->labels = json_object();
    a->capacity = json_object();
    for (size_t i = 0; i < o->label_count; i++) {
        (void)json_object_set_new(a->labels, o->labels[i].name, json_string(o->labels[i].value));
    }
    for (size_t i = 0; i < o->capacity_count; i++) {
        (void)json_object_set_new(a->capacity, o->capacity[i].name,
                                  json_integer((json_int_t)o->capacity[i].value));
    }
    a->heartbeat_ms = o->heartbeat_ms > 0 ? o->heartbeat_ms : CL_HEARTBEAT_MS;
    a->timeout_ms = o->timeout_ms > 0 ? o->timeout_ms : TIMEOUT_DEFAULT_MS;
}

static void init_locks(struct cadastre_agent *a)
{
    pthread_condattr_t attr;
    (void)pthread_mutex_init(&a->lock, NULL);
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&a->changed, &attr);
    (void)pthread_condattr_destroy(&attr);
}

static bool make_fetches(struct cadastre_agent *a, struct cadastre_error *e)
{
    a->lease_fetch = cl_fetch_new(a->endpoints, a->timeout_ms, &a->hooks, e);
    bool ok = a->lease_fetch != NULL;
    if (ok) {
        a->order_fetch = cl_fetch_new(a->endpoints, a->timeout_ms, &a->hooks, e);
        ok = a->order_fetch != NULL;
    }
    if (ok) {
        a->stop_fetch = cl_fetch_new(a->endpoints, a->timeout_ms, &a->hooks, e);
        ok = a->stop_fetch != NULL;
    }
    for (unsigned i = 0; ok && i < CL_SENDERS_MAX; i++) {
        a->senders[i].fetch = cl_fetch_new(a->endpoints, a->timeout_ms, &a->hooks, e);
        ok = a->senders[i].fetch != NULL;
    }
    return ok;
}

struct cadastre_agent *cadastre_agent_new(const struct cadastre_agent_options *o,
                                          struct cadastre_error *e)
{
    if (!options_ok(o, e)) {
        return NULL;
    }
    struct cadastre_agent *a = mem_zalloc(sizeof *a);
    a->lock_fd = -1;
    read_options(a, o);
    init_locks(a);
    if (!make_fetches(a, e) || cl_state_open(a, e) != CADASTRE_OK) {
        cadastre_agent_free(a);
        return NULL;
    }
    return a;
}

void cadastre_agent_start(struct cadastre_agent *a)
{
    bool keeps = false, obeys = false;
    (void)pthread_mutex_lock(&a->lock);
    if (!a->started && !a->stopping) {
        a->started = true;
        keeps = pthread_create(&a->lease_thread, NULL, cl_agent_keep, a) == 0;
        obeys = keeps && pthread_create(&a->order_thread, NULL, cl_agent_obey, a) == 0;
        if (!obeys) {
            cl_event(&a->hooks, "agent.failed", "no thread can be started");
            a->stopping = true;
            a->started = false;
        }
    }
    (void)pthread_mutex_unlock(&a->lock);
    if (keeps && !obeys) {
        cl_fetch_stop(a->lease_fetch);
        (void)pthread_join(a->lease_thread, NULL);
    }
}

static void forbid(struct cadastre_partition *p, void *arg)
{
    (void)arg;
    atomic_store(&p->may, 0);
}

/* Ends writing and both threads. */
static void halt(struct cadastre_agent *a)
{
    (void)pthread_mutex_lock(&a->lock);
    bool running = a->started && !a->stopping;
    a->stopping = true;
    cl_partition_each(a, forbid, NULL);
    cl_until_set(&a->lease, 0);
    (void)pthread_cond_broadcast(&a->changed);
    (void)pthread_mutex_unlock(&a->lock);
    if (running) {
        cl_fetch_stop(a->lease_fetch);
        cl_fetch_stop(a->order_fetch);
        (void)pthread_join(a->lease_thread, NULL);
        (void)pthread_join(a->order_thread, NULL);
    }
}

enum cadastre_status
cadastre_agent_stop(struct cadastre_agent *a, uint64_t timeout_ms, struct cadastre_error *e)
{
    halt(a);
    (void)pthread_mutex_lock(&a->lock);
    cl_partition_each(a, forbid, NULL); /* a callback may just have returned true */
    uint64_t session = atomic_exchange(&a->session, 0);
    (void)pthread_mutex_unlock(&a->lock);
    if (session == 0) {
        return cl_error(e, CADASTRE_OK, "", "there was no session");
    }
    char target[TARGET_MAX], key[33];
    struct cadastre_error ignored;
    struct cl_answer answer;
    cl_random_key(key);
    (void)snprintf(target, sizeof target, "/v1/nodes/%s/session?session=%" PRIu64, a->node,
                   session);
    struct cl_request rq = {.method = "DELETE",
                            .target = target,
                            .idempotency_key = key,
                            .deadline_ms = clock_boot_ms() + timeout_ms};
    enum cadastre_status status =
        cl_fetch_send(a->stop_fetch, &rq, &answer, e != NULL ? e : &ignored);
    cl_answer_close(&answer);
    return status;
}

static void free_partitions(struct cadastre_agent *a)
{
    for (unsigned i = 0; i < CL_BUCKETS; i++) {
        for (struct cadastre_partition *p = a->buckets[i], *next; p != NULL; p = next) {
            next = p->next;
            cadastre_task_free(p->pending);
            mem_free(p->must_have);
            (void)pthread_mutex_destroy(&p->lock);
            mem_free(p);
        }
    }
}

void cadastre_agent_free(struct cadastre_agent *a)
{
    if (a == NULL) {
        return;
    }
    halt(a);
    free_partitions(a);
    cl_state_close(a);
    for (unsigned i = 0; i < CL_SENDERS_MAX; i++) {
        cl_fetch_free(a->senders[i].fetch);
    }
    cl_fetch_free(a->lease_fetch);
    cl_fetch_free(a->order_fetch);
    cl_fetch_free(a->stop_fetch);
    json_decref(a->labels);
    json_decref(a->capacity);
    mem_free(a->address);
    mem_free(a->data_dir);
    mem_free(a->endpoints);
    cl_hooks_close(&a->hooks);
    (void)pthread_cond_destroy(&a->changed);
    (void)pthread_mutex_destroy(&a->lock);
    mem_free(a);
}

/* --- partitions --- */

struct cadastre_partition *
cl_partition(struct cadastre_agent *a, const char *keyspace, uint64_t id, bool make)
{
    uint64_t hash = hash_xxh64(keyspace, strlen(keyspace)) ^ (id * UINT64_C(0x9e3779b97f4a7c15));
    struct cadastre_partition **bucket = &a->buckets[(hash >> 32) % CL_BUCKETS];
    for (struct cadastre_partition *p = *bucket; p != NULL; p = p->next) {
        if (p->id == id && strcmp(p->keyspace, keyspace) == 0) {
            return p;
        }
    }
    if (!make) {
        return NULL;
    }
    struct cadastre_partition *p = mem_zalloc(sizeof *p);
    (void)snprintf(p->keyspace, sizeof p->keyspace, "%s", keyspace);
    p->id = id;
    p->grant_copy = CADASTRE_NONE;
    (void)pthread_mutex_init(&p->lock, NULL);
    p->next = *bucket;
    *bucket = p;
    return p;
}

void cl_partition_each(struct cadastre_agent *a,
                       void (*fn)(struct cadastre_partition *p, void *arg),
                       void *arg)
{
    for (unsigned i = 0; i < CL_BUCKETS; i++) {
        for (struct cadastre_partition *p = a->buckets[i]; p != NULL; p = p->next) {
            fn(p, arg);
        }
    }
}

struct cadastre_partition *
cadastre_agent_partition(struct cadastre_agent *a, const char *keyspace, uint64_t partition)
{
    (void)pthread_mutex_lock(&a->lock);
    struct cadastre_partition *p = cl_partition(a, keyspace, partition, true);
    (void)pthread_mutex_unlock(&a->lock);
    return p;
}

/* --- the data path --- */

bool cadastre_may_write(struct cadastre_agent *a,
                        const struct cadastre_partition *p,
                        uint64_t epoch)
{
    uint64_t may = atomic_load_explicit(&p->may, memory_order_acquire);
    if (may / 2 != epoch || may == 0) {
        return false;
    }
    if (may % 2 == 1) {
        return true;
    }
    return cl_until_ahead(&a->lease);
}

uint64_t cadastre_partition_epoch(const struct cadastre_partition *p)
{
    return atomic_load(&p->may) / 2;
}

uint64_t cadastre_partition_known_epoch(const struct cadastre_partition *p)
{
    return atomic_load(&p->known_epoch);
}

uint64_t cadastre_partition_revision(const struct cadastre_partition *p)
{
    return atomic_load(&p->revision);
}

enum cadastre_status cadastre_must_have(const struct cadastre_partition *partition,
                                        uint64_t epoch,
                                        struct cadastre_member *ret_members,
                                        size_t max,
                                        size_t *ret_count)
{
    union {
        const struct cadastre_partition *in;
        struct cadastre_partition *out;
    } u = {partition};
    struct cadastre_partition *p = u.out; /* for its lock */
    enum cadastre_status status = CADASTRE_STALE;
    *ret_count = 0;
    (void)pthread_mutex_lock(&p->lock);
    if (p->must_have_epoch == epoch && epoch > 0) {
        status = CADASTRE_OK;
        *ret_count = p->must_have_count;
        for (size_t i = 0; i < p->must_have_count && i < max; i++) {
            ret_members[i] = p->must_have[i];
        }
    }
    (void)pthread_mutex_unlock(&p->lock);
    return status;
}

uint64_t cadastre_agent_session(const struct cadastre_agent *a)
{
    return atomic_load(&a->session);
}

uint64_t cadastre_agent_lease_left_ms(const struct cadastre_agent *a)
{
    uint64_t until = cl_until_get(&a->lease), now = clock_boot_ms();
    return until > now ? until - now : 0;
}

/* --- copies --- */

enum cadastre_status cadastre_agent_set_copy(struct cadastre_agent *a,
                                             const char *keyspace,
                                             uint64_t partition,
                                             uint64_t copy)
{
    struct cadastre_error e;
    if (!is_name(keyspace) || partition > PARSE_INT_MAX || copy > PARSE_INT_MAX) {
        return CADASTRE_INVALID;
    }
    (void)pthread_mutex_lock(&a->lock);
    struct cadastre_partition *p = cl_partition(a, keyspace, partition, true);
    uint64_t before = p->copy;
    p->copy = copy;
    enum cadastre_status status = before == copy ? CADASTRE_OK : cl_state_save(a, &e);
    if (status != CADASTRE_OK) {
        p->copy = before;
    }
    (void)pthread_mutex_unlock(&a->lock);
    return status;
}

uint64_t cadastre_agent_copy(struct cadastre_agent *a, const char *keyspace, uint64_t partition)
{
    (void)pthread_mutex_lock(&a->lock);
    struct cadastre_partition *p = cl_partition(a, keyspace, partition, false);
    uint64_t copy = p != NULL ? p->copy : 0;
    (void)pthread_mutex_unlock(&a->lock);
    return copy;
}
