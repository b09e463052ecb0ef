/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/shardkv/move.h"
#include "examples/shardkv/replicate.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_SIZE = 1024, CLEANED_MS = 10000 };

/* A disk that fails, or a file that is not what it should be: nothing that was promised can be kept
 * from here on, so the node must not go on. Its session lapses. */
static _Noreturn void die(const struct part *p, const char *what)
{
    (void)fprintf(stderr, "shardkv: %s/%" PRIu64 ": %s\n", p->keyspace, p->id, what);
    _exit(1);
}

/* --- partitions --- */

struct part *node_part(struct node *n, const char *keyspace, uint64_t id)
{
    (void)pthread_mutex_lock(&n->lock);
    struct part *p = n->parts;
    while (p != NULL && (p->id != id || strcmp(p->keyspace, keyspace) != 0)) {
        p = p->next;
    }
    (void)pthread_mutex_unlock(&n->lock);
    return p;
}

/* Only the agent's thread makes them. */
static struct part *make_part(struct node *n, const struct cadastre_task *t)
{
    struct part *p = node_part(n, t->keyspace, t->partition);
    if (p == NULL) {
        p = calloc(1, sizeof *p);
        if (p == NULL) {
            abort();
        }
        (void)snprintf(p->keyspace, sizeof p->keyspace, "%s", t->keyspace);
        p->id = t->partition;
        p->handle = cadastre_agent_partition(n->agent, t->keyspace, t->partition);
        (void)pthread_mutex_init(&p->writer, NULL);
        (void)pthread_mutex_init(&p->repair, NULL);
        (void)pthread_mutex_init(&p->lock, NULL);
        (void)pthread_mutex_lock(&n->lock);
        p->next = n->parts;
        n->parts = p;
        (void)pthread_mutex_unlock(&n->lock);
    }
    return p;
}

/* Every copy has a file of its own, so that none is ever taken for another. */
static void copy_path(const struct node *n, const struct part *p, uint64_t copy, char *out)
{
    (void)snprintf(out, PATH_SIZE, "%s/%s.%" PRIu64 ".%" PRIu64 ".db", n->data_dir, p->keyspace,
                   p->id, copy);
}

/* To open or close it: nobody else uses it then. */
static void lock_store(struct part *p)
{
    (void)pthread_mutex_lock(&p->writer);
    (void)pthread_mutex_lock(&p->repair);
    (void)pthread_mutex_lock(&p->lock);
}

static void unlock_store(struct part *p)
{
    (void)pthread_mutex_unlock(&p->lock);
    (void)pthread_mutex_unlock(&p->repair);
    (void)pthread_mutex_unlock(&p->writer);
}

static void close_store(struct part *p)
{
    kv_close(p->store);
    p->store = NULL;
    p->copy = 0;
}

/* --- what the directory orders --- */

/* Opens the copy in the place of another one. */
static void open_copy(struct node *n, struct part *p, uint64_t copy)
{
    char path[PATH_SIZE];
    copy_path(n, p, copy, path);
    lock_store(p); /* what is under way still reads the other */
    close_store(p);
    p->store = kv_open(path, copy);
    if (p->store == NULL) {
        die(p, "the copy can't be opened");
    }
    p->copy = copy;
    unlock_store(p);
}

/* False: this node does not have what it is thought to have. */
static bool have_copy(struct node *n, struct part *p, uint64_t copy)
{
    char path[PATH_SIZE];
    (void)pthread_mutex_lock(&p->lock);
    bool open = p->store != NULL && p->copy == copy;
    (void)pthread_mutex_unlock(&p->lock);
    if (!open) {
        copy_path(n, p, copy, path);
        bool was_here = cadastre_agent_copy(n->agent, p->keyspace, p->id) == copy;
        if (was_here && access(path, F_OK) != 0) {
            return false;
        }
        open_copy(n, p, copy);
    }
    return true;
}

static bool on_grant(void *arg, struct cadastre_partition *handle, const struct cadastre_task *t)
{
    struct node *n = arg;
    struct part *p = make_part(n, t);
    (void)handle;
    if (t->copy == CADASTRE_NONE) {
        return false;
    }
    bool ok = have_copy(n, p, t->copy);
    (void)pthread_mutex_lock(&p->lock);
    p->role = ok ? t->role : CADASTRE_ROLE_NONE;
    if (ok && p->epoch != t->epoch) {
        p->start = kv_position(p->store);
    }
    p->epoch = t->epoch;
    p->moving = t->operation[0] != '\0';
    (void)pthread_mutex_unlock(&p->lock);
    if (!ok) {
        (void)fprintf(stderr, "shardkv: %s/%" PRIu64 ": the data is gone\n", p->keyspace, p->id);
        return false;
    }
    if (cadastre_agent_copy(n->agent, p->keyspace, p->id) != t->copy) {
        ok = cadastre_agent_set_copy(n->agent, p->keyspace, p->id, t->copy) == CADASTRE_OK;
    }
    return ok;
}

static void on_revoke(void *arg, struct cadastre_partition *handle, const struct cadastre_task *t)
{
    struct part *p = make_part(arg, t);
    (void)handle;
    (void)pthread_mutex_lock(&p->lock);
    p->role = CADASTRE_ROLE_NONE; /* the data stays until a cleanup */
    (void)pthread_mutex_unlock(&p->lock);
}

/* Work that waits for others is not for the agent's thread. What does not fit is dropped: the
 * directory names it again to the next session. */
static void
hand_over(struct node *n, struct part *p, const struct cadastre_task *t, uint64_t serial)
{
    struct job *job = calloc(1, sizeof *job), **end = &n->jobs;
    (void)pthread_mutex_lock(&n->lock);
    if (job != NULL && n->job_count < JOBS_MAX) {
        *job = (struct job){NULL, p, cadastre_task_copy(t), serial};
        while (*end != NULL) {
            end = &(*end)->next;
        }
        *end = job;
        n->job_count++;
        (void)pthread_cond_signal(&n->changed);
    } else {
        free(job);
    }
    (void)pthread_mutex_unlock(&n->lock);
}

static void on_cleanup(void *arg, struct cadastre_partition *handle, const struct cadastre_task *t)
{
    (void)handle;
    hand_over(arg, make_part(arg, t), t, 0);
}

/* Of a stage, and of FENCE. What is under way of an earlier one ends. */
static void on_stage(void *arg, struct cadastre_partition *handle, const struct cadastre_task *t)
{
    struct part *p = make_part(arg, t);
    (void)handle;
    hand_over(arg, p, t, atomic_fetch_add(&p->serial, 1) + 1);
}

static void on_session(void *arg, enum cadastre_session_event event, uint64_t session)
{
    static const char *const names[] = {"", "started", "ended", "lease expired", "lease renewed"};
    (void)arg;
    (void)fprintf(stderr, "shardkv: session %" PRIu64 ": %s\n", session, names[event]);
}

static void on_event(void *arg, const char *name, const char *detail)
{
    (void)arg;
    (void)fprintf(stderr, "shardkv: %s: %s\n", name, detail);
}

const struct cadastre_agent_callbacks node_callbacks = {.session = on_session,
                                                        .grant = on_grant,
                                                        .revoke = on_revoke,
                                                        .fence = on_stage,
                                                        .stage = on_stage,
                                                        .cleanup = on_cleanup,
                                                        .event = on_event};

/* --- what was handed over --- */

static void clean(struct node *n, const struct job *job)
{
    struct part *p = job->part;
    char path[PATH_SIZE];
    int64_t bytes = -1;
    copy_path(n, p, job->task->copy, path);
    lock_store(p);
    /* Never what a grant that came meanwhile stands for. */
    if (p->copy != job->task->copy || p->role == CADASTRE_ROLE_NONE) {
        if (p->copy == job->task->copy) {
            close_store(p);
        }
        bytes = kv_delete(path);
    }
    unlock_store(p);
    struct cadastre_error e;
    if (bytes >= 0 && cadastre_agent_cleaned(n->agent, job->task, (uint64_t)bytes, CLEANED_MS,
                                             &e) != CADASTRE_OK) {
        (void)fprintf(stderr, "shardkv: cleanup %s: %s\n", job->task->id, e.detail);
    }
}

void *node_work(void *node)
{
    struct node *n = node;
    (void)pthread_mutex_lock(&n->lock);
    while (n->jobs != NULL || !n->ending) {
        struct job *job = n->jobs;
        if (job == NULL) {
            (void)pthread_cond_wait(&n->changed, &n->lock);
            continue;
        }
        n->jobs = job->next;
        n->job_count--;
        (void)pthread_mutex_unlock(&n->lock);
        if (job->task->kind == CADASTRE_CLEANUP) {
            clean(n, job);
        } else {
            move_stage(n, job);
        }
        cadastre_task_free(job->task);
        free(job);
        (void)pthread_mutex_lock(&n->lock);
    }
    (void)pthread_mutex_unlock(&n->lock);
    return NULL;
}

/* --- requests --- */

/* A request of this epoch may not be served as it is: why. */
static enum outcome refusal(const struct part *p, uint64_t epoch)
{
    return epoch == cadastre_partition_known_epoch(p->handle) &&
                   cadastre_partition_epoch(p->handle) == epoch
               ? NOT_NOW /* the lease has run out, for now */
               : WRONG_EPOCH;
}

static bool may(struct node *n, const struct part *p, uint64_t epoch)
{
    return !atomic_load(&n->stopping) && cadastre_may_write(n->agent, p->handle, epoch);
}

void node_capture(struct part *p)
{
    if (p->store != NULL && p->validate_at != 0 && kv_position(p->store) == p->validate_at) {
        p->validated = kv_sums(p->store, &p->sums);
    }
}

/* With `writer`. */
static enum outcome write_as_primary(struct node *n,
                                     struct part *p,
                                     const struct mutation *m,
                                     uint64_t *ret_position,
                                     bool *ret_repeated)
{
    (void)pthread_mutex_lock(&p->lock);
    bool granted = p->store != NULL && p->role == CADASTRE_ROLE_PRIMARY && p->epoch == m->epoch;
    if (!granted || !may(n, p, m->epoch)) {
        (void)pthread_mutex_unlock(&p->lock);
        return refusal(p, m->epoch);
    }
    enum kv_result r = kv_put(p->store, m->epoch, m->id, m->key, m->value, ret_position);
    node_capture(p);
    (void)pthread_mutex_unlock(&p->lock);
    if (r == KV_IO) {
        die(p, "a write failed");
    }
    *ret_repeated = r == KV_REPEATED;
    /* A repeated one may have been applied and never acknowledged: it is brought to all as well. */
    return replicate(n, p, m->epoch, *ret_position) && may(n, p, m->epoch) ? DONE : UNKNOWN;
}

enum outcome node_write(struct node *n,
                        struct part *p,
                        const struct mutation *m,
                        uint64_t *ret_position,
                        bool *ret_repeated)
{
    if (!may(n, p, m->epoch)) {
        return refusal(p, m->epoch);
    }
    (void)pthread_mutex_lock(&p->writer);
    enum outcome outcome = write_as_primary(n, p, m, ret_position, ret_repeated);
    (void)pthread_mutex_unlock(&p->writer);
    return outcome;
}

enum outcome node_read(struct node *n,
                       struct part *p,
                       uint64_t epoch,
                       const char *key,
                       char **ret_value,
                       uint64_t *ret_position)
{
    *ret_value = NULL;
    (void)pthread_mutex_lock(&p->writer); /* so that no read sees what may yet be lost */
    (void)pthread_mutex_lock(&p->lock);
    bool ok = may(n, p, epoch) && p->store != NULL && p->epoch == epoch;
    if (ok) {
        *ret_value = kv_get(p->store, key, ret_position);
        ok = may(n, p, epoch);
    }
    (void)pthread_mutex_unlock(&p->lock);
    (void)pthread_mutex_unlock(&p->writer);
    return !ok ? refusal(p, epoch) : *ret_value != NULL ? DONE : MISSING;
}

enum outcome node_follow(struct node *n,
                         struct part *p,
                         uint64_t session,
                         const struct kv_batch *b,
                         uint64_t *ret_position)
{
    enum outcome outcome = WRONG_EPOCH;
    (void)pthread_mutex_lock(&p->lock);
    bool copy =
        p->store != NULL && p->role != CADASTRE_ROLE_NONE && p->role != CADASTRE_ROLE_PRIMARY;
    bool here = session == 0 || session == cadastre_agent_session(n->agent);
    if (copy && here && b->epoch == p->epoch &&
        b->epoch == cadastre_partition_known_epoch(p->handle)) {
        enum kv_result r = kv_follow(p->store, b, ret_position);
        if (r == KV_IO) {
            die(p, "a change can't be stored");
        }
        node_capture(p);
        outcome = r == KV_OK ? DONE : ELSEWHERE;
    }
    (void)pthread_mutex_unlock(&p->lock);
    return outcome;
}

/* --- the end --- */

void node_settle(struct node *n)
{
    atomic_store(&n->stopping, true);
    (void)pthread_mutex_lock(&n->lock);
    struct part *p = n->parts;
    (void)pthread_mutex_unlock(&n->lock);
    for (; p != NULL; p = p->next) {
        (void)pthread_mutex_lock(&p->writer);
        (void)pthread_mutex_unlock(&p->writer);
    }
}

void node_end(struct node *n)
{
    (void)pthread_mutex_lock(&n->lock);
    n->ending = true;
    (void)pthread_cond_broadcast(&n->changed);
    (void)pthread_mutex_unlock(&n->lock);
}

void node_close(struct node *n)
{
    while (n->parts != NULL) {
        struct part *p = n->parts;
        n->parts = p->next;
        close_store(p);
        peer_close(&p->peer);
        free(p);
    }
}
