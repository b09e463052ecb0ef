/* SPDX-License-Identifier: Apache-2.0 */
/* The thread that reads orders and carries them out. An answer is one view of the directory: what
 * is older than one that was acted on is not listened to, nor is any order of another session. An
 * epoch is on the disk before anything is done at it. */
#include "base/clock.h"
#include "base/mem.h"
#include "client/agent.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TARGET_MAX = 320 };

/* What the thread knows of the session it serves. */
struct duty {
    struct cadastre_agent *agent;
    uint64_t session, since; /* the revision of the last answer acted on */
    bool first;              /* nothing was read yet: what is not named is not this node's */
    bool pending;            /* grants that were not ready */
};

struct orders {
    struct cadastre_task **tasks; /* own; by revision */
    size_t count;
};

/* --- granting --- */

static uint64_t may_word(const struct cadastre_task *t)
{
    return t->epoch * 2 + (t->authority == CADASTRE_AFFINITY);
}

/* The new set counts from here on, before the application hears of it. */
static void set_must_have(struct cadastre_partition *p, const struct cadastre_task *t)
{
    struct cadastre_member *members = mem_dup(t->must_have, t->must_have_count * sizeof *members);
    (void)pthread_mutex_lock(&p->lock);
    struct cadastre_member *before = p->must_have;
    p->must_have = members;
    p->must_have_count = t->must_have_count;
    p->must_have_epoch = t->epoch;
    (void)pthread_mutex_unlock(&p->lock);
    mem_free(before);
}

static void forget_pending(struct cadastre_partition *p)
{
    cadastre_task_free(p->pending);
    p->pending = NULL;
}

/* Lets the application take the grant; true when it has. */
static bool offer_grant(struct duty *d, struct cadastre_partition *p, const struct cadastre_task *t)
{
    struct cadastre_agent *a = d->agent;
    bool taken = a->callbacks.grant == NULL || a->callbacks.grant(a->arg, p, t);
    if (taken && t->role == CADASTRE_ROLE_PRIMARY && !t->fenced) {
        /* Not if the session ended meanwhile: that has forbidden it for good. */
        (void)pthread_mutex_lock(&a->lock);
        if (atomic_load(&a->session) == t->session) {
            atomic_store(&p->may, may_word(t));
        }
        (void)pthread_mutex_unlock(&a->lock);
    }
    return taken;
}

static void grant(struct duty *d, struct cadastre_partition *p, const struct cadastre_task *t)
{
    bool writes = t->role == CADASTRE_ROLE_PRIMARY && !t->fenced;
    forget_pending(p);
    if (!writes || atomic_load(&p->may) != may_word(t)) {
        atomic_store(&p->may, 0);
    }
    p->seen = t->revision;
    p->held = p->told = true;
    p->grant_copy = t->copy;
    set_must_have(p, t);
    atomic_store(&p->revision, t->revision);
    if (!offer_grant(d, p, t)) {
        p->pending = cadastre_task_copy(t);
        d->pending = true;
    }
}

static void offer_pending(struct cadastre_partition *p, void *arg)
{
    struct duty *d = arg;
    struct cadastre_task *t = p->pending;
    if (t == NULL) {
        return;
    }
    p->pending = NULL;
    if (t->session == d->session && !offer_grant(d, p, t)) {
        p->pending = t;
        d->pending = true;
        return;
    }
    cadastre_task_free(t);
}

/* --- the other orders --- */

/* Once for each: the key says whether it is another than the last. */
static bool is_new(char *key, size_t size, const char *now)
{
    if (strcmp(key, now) == 0) {
        return false;
    }
    (void)snprintf(key, size, "%s", now);
    return true;
}

static void fence(struct duty *d, struct cadastre_partition *p, const struct cadastre_task *t)
{
    struct cadastre_agent *a = d->agent;
    char key[sizeof p->fence_key];
    (void)snprintf(key, sizeof key, "%s %" PRIu64 " %" PRIu64, t->operation, t->attempt,
                   t->revision);
    if (!is_new(p->fence_key, sizeof p->fence_key, key)) {
        return;
    }
    forget_pending(p);
    atomic_store(&p->may, 0);
    p->seen = t->revision;
    atomic_store(&p->revision, t->revision);
    if (a->callbacks.fence != NULL) {
        a->callbacks.fence(a->arg, p, t);
    }
}

static void revoke(struct duty *d, struct cadastre_partition *p, const struct cadastre_task *t)
{
    struct cadastre_agent *a = d->agent;
    bool told = p->told;
    forget_pending(p);
    atomic_store(&p->may, 0);
    p->seen = t->revision;
    p->held = p->told = false;
    p->grant_copy = CADASTRE_NONE;
    atomic_store(&p->revision, t->revision);
    if (told && a->callbacks.revoke != NULL) {
        a->callbacks.revoke(a->arg, p, t);
    }
}

static void stage(struct duty *d, struct cadastre_partition *p, const struct cadastre_task *t)
{
    struct cadastre_agent *a = d->agent;
    char key[sizeof p->stage_key];
    (void)snprintf(key, sizeof key, "%s %" PRIu64 " %s %" PRIu64, t->operation, t->attempt,
                   t->stage_name, t->revision);
    if (t->revision < p->stage_seen || !is_new(p->stage_key, sizeof p->stage_key, key)) {
        return;
    }
    p->stage_seen = t->revision;
    if (a->callbacks.stage != NULL) {
        a->callbacks.stage(a->arg, p, t);
    }
}

static void cleanup(struct duty *d, struct cadastre_partition *p, const struct cadastre_task *t)
{
    struct cadastre_agent *a = d->agent;
    char key[sizeof p->duty_key];
    (void)snprintf(key, sizeof key, "%" PRIu64 " %" PRIu64, t->duty, t->copy);
    if (p->held && p->grant_copy == t->copy) {
        cl_event(&a->hooks, "agent.cleanup.refused", "%s/%" PRIu64 ": copy %" PRIu64 " is in use",
                 p->keyspace, p->id, t->copy);
        return;
    }
    if (is_new(p->duty_key, sizeof p->duty_key, key) && a->callbacks.cleanup != NULL) {
        a->callbacks.cleanup(a->arg, p, t);
    }
}

/* --- an answer --- */

/* Was it, or something newer, acted on? A fence comes with a grant of the same revision. */
static bool is_old(const struct cadastre_partition *p, const struct cadastre_task *t)
{
    if (t->kind == CADASTRE_GRANT || t->kind == CADASTRE_REVOKE) {
        return t->revision <= p->seen;
    }
    return t->kind == CADASTRE_FENCE && t->revision < p->seen;
}

/* A revoke of what this node never had is for others. */
static struct cadastre_partition *handle_for(struct duty *d, const struct cadastre_task *t)
{
    struct cadastre_agent *a = d->agent;
    (void)pthread_mutex_lock(&a->lock);
    struct cadastre_partition *p =
        cl_partition(a, t->keyspace, t->partition, t->kind != CADASTRE_REVOKE);
    (void)pthread_mutex_unlock(&a->lock);
    return p;
}

static void obey(struct duty *d, const struct cadastre_task *t)
{
    struct cadastre_partition *p = handle_for(d, t);
    if (p == NULL || t->session != d->session || is_old(p, t)) {
        return;
    }
    bool passed = t->epoch != CADASTRE_NONE && t->epoch < atomic_load(&p->known_epoch);
    switch (t->kind) {
    case CADASTRE_GRANT:
        if (!passed) {
            grant(d, p, t);
        }
        break;
    case CADASTRE_FENCE:
        if (!passed) {
            fence(d, p, t);
        }
        break;
    case CADASTRE_REVOKE:
        revoke(d, p, t);
        break;
    case CADASTRE_STAGE:
        stage(d, p, t);
        break;
    case CADASTRE_CLEANUP:
        cleanup(d, p, t);
        break;
    }
}

/* All epochs of an answer go to the disk at once, before any of them is acted on. */
static bool store_epochs(struct duty *d, const struct orders *o)
{
    struct cadastre_agent *a = d->agent;
    struct cadastre_error e;
    size_t raised = 0;
    uint64_t *before = mem_zalloc(o->count * sizeof *before);
    (void)pthread_mutex_lock(&a->lock);
    for (size_t i = 0; i < o->count; i++) {
        const struct cadastre_task *t = o->tasks[i];
        if (t->kind != CADASTRE_GRANT || t->session != d->session) {
            continue;
        }
        struct cadastre_partition *p = cl_partition(a, t->keyspace, t->partition, true);
        before[i] = atomic_load(&p->known_epoch);
        if (t->epoch > before[i]) {
            atomic_store(&p->known_epoch, t->epoch);
            raised++;
        }
    }
    bool ok = raised == 0 || cl_state_save(a, &e) == CADASTRE_OK;
    for (size_t i = o->count; !ok && i > 0; i--) {
        const struct cadastre_task *t = o->tasks[i - 1];
        if (t->kind == CADASTRE_GRANT && t->session == d->session) {
            struct cadastre_partition *p = cl_partition(a, t->keyspace, t->partition, true);
            atomic_store(&p->known_epoch, before[i - 1]);
        }
    }
    (void)pthread_mutex_unlock(&a->lock);
    mem_free(before);
    return ok;
}

/* What is over ends before what takes its place begins: the parts of a split are granted by the
 * command that revokes the whole. */
static int rank(const struct cadastre_task *t)
{
    return t->kind == CADASTRE_REVOKE ? 0 : (int)t->kind;
}

static int by_revision(const void *a, const void *b)
{
    const struct cadastre_task *x = *(struct cadastre_task *const *)a;
    const struct cadastre_task *y = *(struct cadastre_task *const *)b;
    if (x->revision != y->revision) {
        return x->revision < y->revision ? -1 : 1;
    }
    return rank(x) - rank(y);
}

static struct orders orders_read(struct duty *d, const json_t *tasks)
{
    size_t n = json_array_size(tasks);
    struct orders o = {.tasks = mem_zalloc(n * sizeof(struct cadastre_task *))};
    for (size_t i = 0; i < n; i++) {
        struct cadastre_task *t = cl_task_read(json_array_get(tasks, i));
        if (t != NULL) {
            o.tasks[o.count++] = t;
        } else {
            cl_event(&d->agent->hooks, "agent.order.unknown", "task %zu of %zu is not understood",
                     i, n);
        }
    }
    if (o.count > 0) {
        qsort(o.tasks, o.count, sizeof(struct cadastre_task *), by_revision);
    }
    return o;
}

static void orders_close(struct orders *o)
{
    for (size_t i = 0; i < o->count; i++) {
        cadastre_task_free(o->tasks[i]);
    }
    mem_free(o->tasks);
}

/* The first answer of a session has all that it holds: what an earlier one held and it does not,
 * the application still believes to have. */
static void revoke_rest(struct duty *d, uint64_t revision)
{
    struct cadastre_agent *a = d->agent;
    for (unsigned i = 0; i < CL_BUCKETS; i++) {
        (void)pthread_mutex_lock(&a->lock);
        struct cadastre_partition *p = a->buckets[i];
        (void)pthread_mutex_unlock(&a->lock);
        for (; p != NULL; p = p->next) {
            if (p->told && !p->held) {
                struct cadastre_task t = {.kind = CADASTRE_REVOKE,
                                          .revision = revision,
                                          .session = d->session,
                                          .partition = p->id,
                                          .epoch = CADASTRE_NONE,
                                          .start_position = CADASTRE_NONE,
                                          .copy = CADASTRE_NONE,
                                          .duty = CADASTRE_NONE,
                                          .attempt = CADASTRE_NONE,
                                          .position = CADASTRE_NONE,
                                          .final_position = CADASTRE_NONE,
                                          .validate_at = CADASTRE_NONE,
                                          .rate_bytes_per_s = CADASTRE_NONE};
                (void)snprintf(t.keyspace, sizeof t.keyspace, "%s", p->keyspace);
                revoke(d, p, &t);
            }
        }
    }
}

/* Cleanups come last: only then is it known what is held. */
static void obey_all(struct duty *d, const struct orders *o, uint64_t revision)
{
    for (int cleanups = 0; cleanups < 2; cleanups++) {
        for (size_t i = 0; i < o->count && atomic_load(&d->agent->session) == d->session; i++) {
            if ((o->tasks[i]->kind == CADASTRE_CLEANUP) == (cleanups == 1)) {
                obey(d, o->tasks[i]);
            }
        }
        if (cleanups == 0 && d->first && atomic_load(&d->agent->session) == d->session) {
            revoke_rest(d, revision);
        }
    }
}

/* True when it was acted on. */
static bool take_answer(struct duty *d, const struct cl_answer *answer, size_t *ret_count)
{
    json_t *body = cl_json_parse(slice_of(answer->body.data, answer->body.len));
    const json_t *tasks = json_object_get(body, "tasks");
    uint64_t revision = 0;
    bool ok =
        cl_json_u64(body, "revision", &revision) && json_is_array(tasks) && revision >= d->since;
    struct orders o = orders_read(d, tasks);
    ok = ok && store_epochs(d, &o);
    *ret_count = json_array_size(tasks);
    if (ok) {
        obey_all(d, &o, revision);
        d->since = revision;
        d->first = false;
    }
    orders_close(&o);
    json_decref(body);
    return ok;
}

/* --- the loop --- */

static void begin(struct cadastre_partition *p, void *arg)
{
    (void)arg;
    forget_pending(p);
    p->seen = p->stage_seen = 0;
    p->held = false;
    p->grant_copy = CADASTRE_NONE;
    p->stage_key[0] = p->duty_key[0] = p->fence_key[0] = '\0';
}

/* What the other thread wants told. False: stopping. */
static bool tell(struct duty *d)
{
    struct cadastre_agent *a = d->agent;
    (void)pthread_mutex_lock(&a->lock);
    bool stopping = a->stopping, expired = a->tell_expired, renewed = a->tell_renewed;
    uint64_t ended = a->ended, session = atomic_load(&a->session);
    a->tell_expired = a->tell_renewed = false;
    a->ended = 0;
    bool starts = session > 0 && session != d->session;
    if (starts) {
        d->session = session;
        d->since = 0;
        d->first = true;
        cl_partition_each(a, begin, NULL);
    }
    (void)pthread_mutex_unlock(&a->lock);
    if (stopping || a->callbacks.session == NULL) {
        return !stopping;
    }
    if (ended > 0) {
        a->callbacks.session(a->arg, CADASTRE_SESSION_ENDED, ended);
    }
    if (starts) {
        a->callbacks.session(a->arg, CADASTRE_SESSION_STARTED, session);
    }
    if (expired) {
        a->callbacks.session(a->arg, CADASTRE_LEASE_EXPIRED, session);
    }
    if (renewed) {
        a->callbacks.session(a->arg, CADASTRE_LEASE_RENEWED, session);
    }
    return true;
}

static void wait_for_session(struct cadastre_agent *a)
{
    (void)pthread_mutex_lock(&a->lock);
    while (!a->stopping && atomic_load(&a->session) == 0 && a->ended == 0) {
        (void)pthread_cond_wait(&a->changed, &a->lock);
    }
    (void)pthread_mutex_unlock(&a->lock);
}

static void retry_pending(struct duty *d)
{
    struct cadastre_agent *a = d->agent;
    if (d->pending) {
        d->pending = false;
        /* Not under the lock: callbacks may call the library. Partitions are never removed, and
         * only this thread looks at what is pending. */
        for (unsigned i = 0; i < CL_BUCKETS; i++) {
            (void)pthread_mutex_lock(&a->lock);
            struct cadastre_partition *p = a->buckets[i];
            (void)pthread_mutex_unlock(&a->lock);
            for (; p != NULL; p = p->next) {
                offer_pending(p, d);
            }
        }
    }
}

static void read_orders(struct duty *d)
{
    struct cadastre_agent *a = d->agent;
    char target[TARGET_MAX];
    struct cadastre_error e = {0};
    struct cl_answer answer;
    (void)pthread_mutex_lock(&a->lock);
    uint64_t least = d->since > a->session_revision ? d->since : a->session_revision;
    (void)pthread_mutex_unlock(&a->lock);
    uint64_t wait = d->first ? 0 : d->pending ? CL_PENDING_MS : CL_TASKS_WAIT_MS;
    (void)snprintf(target, sizeof target,
                   "/v1/nodes/%s/tasks?session=%" PRIu64 "&since=%" PRIu64 "&wait_ms=%" PRIu64
                   "&min_revision=%" PRIu64,
                   a->node, d->session, d->since, wait, least);
    struct cl_request rq = {.method = "GET",
                            .target = target,
                            .try_ms = wait + a->timeout_ms,
                            .deadline_ms = clock_boot_ms() + wait + a->timeout_ms};
    enum cadastre_status status = cl_fetch_send(a->order_fetch, &rq, &answer, &e);
    uint64_t start = answer.sent_ms;
    size_t count = 0;
    if (status == CADASTRE_OK && take_answer(d, &answer, &count)) {
        /* A server that answers at once with nothing is not asked in a loop. */
        if (count == 0 && clock_boot_ms() - start < wait / 2) {
            cl_fetch_pause(a->order_fetch, CL_HEARTBEAT_TRY_MIN_MS);
        }
    } else if (cl_session_ended(status, &e)) {
        cl_agent_session_over(a, d->session);
    } else if (status != CADASTRE_CLOSED && status != CADASTRE_TIMEOUT) {
        cl_event(&a->hooks, "agent.orders.failed", "%s", e.detail);
        cl_fetch_pause(a->order_fetch, CL_RETRY_MS + cl_random_below(CL_RETRY_MS));
    }
    cl_answer_close(&answer);
}

void *cl_agent_obey(void *agent)
{
    struct duty d = {.agent = agent};
    while (tell(&d)) {
        if (atomic_load(&d.agent->session) == d.session && d.session > 0) {
            retry_pending(&d);
            read_orders(&d);
        } else {
            wait_for_session(d.agent);
        }
    }
    return NULL;
}
