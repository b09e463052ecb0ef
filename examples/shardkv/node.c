/* SPDX-License-Identifier: Apache-2.0 */
/* What the directory orders, on the agent's thread; and the workers, for all that takes time. */
#include "examples/shardkv/copy.h"
#include "examples/shardkv/move.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Noreturn void node_die(const struct part *p, const char *what)
{
    (void)fprintf(stderr, "shardkv: %s/%" PRIu64 ": %s\n", p->keyspace, p->id, what);
    _exit(1);
}

/* --- partitions --- */

struct part *node_parts(struct node *n)
{
    (void)pthread_mutex_lock(&n->lock);
    struct part *p = n->parts; /* only grows at its head */
    (void)pthread_mutex_unlock(&n->lock);
    return p;
}

struct part *node_part(struct node *n, const char *keyspace, uint64_t id)
{
    struct part *p = node_parts(n);
    while (p != NULL && (p->id != id || strcmp(p->keyspace, keyspace) != 0)) {
        p = p->next;
    }
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
        meter_open(&p->meter);
        (void)pthread_mutex_lock(&n->lock);
        p->next = n->parts;
        n->parts = p;
        (void)pthread_mutex_unlock(&n->lock);
    }
    return p;
}

/* A range is an id's for ever. */
static void set_range(struct part *p, const struct cadastre_task *t)
{
    if (p->low == NULL) {
        (void)pthread_mutex_lock(&p->lock);
        p->low = kv_bound(t->start, t->start_len);
        p->high = t->end_open ? NULL : kv_bound(t->end, t->end_len);
        (void)pthread_mutex_unlock(&p->lock);
    }
}

/* --- orders --- */

/* With `lock`. */
static void take_role(struct part *p, const struct cadastre_task *t)
{
    bool window = t->stage == CADASTRE_STAGE_WINDOW;
    if (p->role == CADASTRE_ROLE_PRIMARY && t->role == CADASTRE_ROLE_ASYNC && window) {
        p->drained = p->epoch; /* a source after its cutover */
    } else if (!window) {
        p->drained = 0;
    }
    if (p->epoch != t->epoch) {
        p->start = kv_position(p->store);
        p->fenced = t->role == CADASTRE_ROLE_PRIMARY ? 0 : p->fenced;
    }
    p->role = t->role;
    atomic_store(&p->joining, t->role == CADASTRE_ROLE_JOINING);
    p->epoch = t->epoch;
    p->moving = t->operation[0] != '\0';
    p->window = window;
    if (!window) {
        p->way_back[0] = '\0';
        p->back_flows = false;
    }
}

/* What is under way for a stage ends: there is none any more. Without this each would keep its
 * worker for ever. */
static void end_stage(struct part *p)
{
    p->stage_key[0] = '\0';
    (void)atomic_fetch_add(&p->serial, 1);
}

static bool on_grant(void *arg, struct cadastre_partition *handle, const struct cadastre_task *t)
{
    struct node *n = arg;
    struct part *p = make_part(n, t);
    (void)handle;
    if (t->copy == CADASTRE_NONE) {
        return false;
    }
    set_range(p, t);
    if (t->operation[0] == '\0') {
        end_stage(p);
    }
    bool ok = copy_ready(n, p, t), whole = false;
    (void)pthread_mutex_lock(&p->lock);
    if (ok) {
        take_role(p, t);
        whole = !kv_incomplete(p->store) || t->role == CADASTRE_ROLE_JOINING;
    } else {
        p->role = CADASTRE_ROLE_NONE;
    }
    meter_epoch(&p->meter, ok ? t->epoch : 0);
    (void)pthread_mutex_unlock(&p->lock);
    /* One that lost its data does not count as held before it was rebuilt. */
    if (ok && whole && cadastre_agent_copy(n->agent, p->keyspace, p->id) != t->copy) {
        ok = cadastre_agent_set_copy(n->agent, p->keyspace, p->id, t->copy) == CADASTRE_OK;
    }
    if (ok && whole && t->parent_count > 0) {
        atomic_store(&n->collect, true);
    }
    return ok;
}

static void on_revoke(void *arg, struct cadastre_partition *handle, const struct cadastre_task *t)
{
    struct part *p = make_part(arg, t);
    (void)handle;
    end_stage(p);
    (void)pthread_mutex_lock(&p->lock);
    p->role = CADASTRE_ROLE_NONE; /* the data stays until a cleanup */
    p->drained = 0;
    meter_epoch(&p->meter, 0);
    (void)pthread_mutex_unlock(&p->lock);
}

/* Work that waits for others is not for the agent's thread. What does not fit is dropped: the
 * directory names it again to the next session. */
bool node_hand_over(struct node *n, struct part *p, const struct cadastre_task *t, uint64_t serial)
{
    struct job *job = calloc(1, sizeof *job), **end = &n->jobs;
    (void)pthread_mutex_lock(&n->lock);
    bool fits = job != NULL && n->job_count < JOBS_MAX;
    if (fits) {
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
    return fits;
}

static void on_cleanup(void *arg, struct cadastre_partition *handle, const struct cadastre_task *t)
{
    struct part *p = make_part(arg, t);
    (void)handle;
    end_stage(p);
    (void)node_hand_over(arg, p, t, 0);
}

/* A copy that goes on, only faster or slower, is not begun again. */
static bool is_other_rate(struct part *p, const struct cadastre_task *t)
{
    char key[sizeof p->stage_key];
    bool copies = t->stage == CADASTRE_STAGE_COPY || t->stage == CADASTRE_STAGE_CATCH_UP;
    (void)snprintf(key, sizeof key, "%s %" PRIu64 " %d %" PRIu64 " %s", t->operation, t->attempt,
                   (int)t->stage, t->session, t->peer.address);
    bool same = copies && strcmp(key, p->stage_key) == 0;
    memcpy(p->stage_key, key, sizeof key);
    return same;
}

/* Of a stage, and of FENCE. What is under way of an earlier one ends. */
static void on_stage(void *arg, struct cadastre_partition *handle, const struct cadastre_task *t)
{
    struct part *p = make_part(arg, t);
    (void)handle;
    atomic_store(&p->rate, t->rate_bytes_per_s != CADASTRE_NONE ? t->rate_bytes_per_s : 0);
    if (is_other_rate(p, t)) {
        return;
    }
    if (t->stage == CADASTRE_STAGE_WINDOW) {
        (void)pthread_mutex_lock(&p->lock);
        (void)snprintf(p->way_back, sizeof p->way_back, "%s", t->peer.node);
        p->back_flows = t->reverse;
        (void)pthread_mutex_unlock(&p->lock);
    }
    (void)node_hand_over(arg, p, t, atomic_fetch_add(&p->serial, 1) + 1);
}

static void on_session(void *arg, enum cadastre_session_event event, uint64_t session)
{
    static const char *const names[] = {"", "started", "ended", "lease expired", "lease renewed"};
    struct node *n = arg;
    if (event == CADASTRE_SESSION_STARTED) { /* which is told of all stages that there still are */
        for (struct part *p = node_parts(n); p != NULL; p = p->next) {
            end_stage(p);
        }
    }
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

static void carry_out(struct node *n, const struct job *job)
{
    if (job->task->kind == CADASTRE_CLEANUP) {
        copy_clean(n, job->part, job->task);
    } else if (job->task->kind == CADASTRE_GRANT) {
        copy_derive(n, job->part, job->task);
    } else {
        move_stage(n, job);
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
        carry_out(n, job);
        cadastre_task_free(job->task);
        free(job);
        (void)pthread_mutex_lock(&n->lock);
    }
    (void)pthread_mutex_unlock(&n->lock);
    return NULL;
}

/* --- the end --- */

void node_end(struct node *n)
{
    (void)pthread_mutex_lock(&n->lock);
    n->ending = true;
    (void)pthread_cond_broadcast(&n->changed);
    (void)pthread_cond_broadcast(&n->ended);
    (void)pthread_mutex_unlock(&n->lock);
}

void node_close(struct node *n)
{
    while (n->parts != NULL) {
        struct part *p = n->parts;
        n->parts = p->next;
        kv_close(p->store);
        peer_close(&p->peer);
        meter_close(&p->meter);
        free(p->low);
        free(p->high);
        free(p->sum_low);
        free(p->sum_high);
        free(p);
    }
}
