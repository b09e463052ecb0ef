/* SPDX-License-Identifier: Apache-2.0 */
/* Reads that may take long (SQLite, backups) on threads of their own, so that a worker never
 * waits for a disk. The queue is bounded; a full one is 503. An idle thread also lets expired
 * cursors go. */
#include "api/handlers.h"

#include "base/assert.h"
#include "base/mem.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

enum { SWEEP_EVERY_S = 5 };

struct jobs {
    struct api *api;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stopping;
    unsigned first, count;
    struct job *queue[JOBS_QUEUE_MAX];
    pthread_t threads[JOBS_THREADS];
};

static void job_free(void *arg)
{
    struct job *job = arg;
    if (job->close != NULL) {
        job->close(job);
    }
    buf_close(&job->out);
    mem_free(job);
}

/* NULL: nothing to do for a while, or stopping. */
static struct job *take(struct jobs *j)
{
    struct job *job = NULL;
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += SWEEP_EVERY_S;
    while (j->count == 0 && !j->stopping) {
        if (pthread_cond_timedwait(&j->changed, &j->lock, &until) == ETIMEDOUT) {
            break;
        }
    }
    if (j->count > 0) {
        job = j->queue[j->first];
        j->first = (j->first + 1) % JOBS_QUEUE_MAX;
        j->count--;
    }
    return job;
}

static void *main_of_thread(void *arg)
{
    struct jobs *j = arg;
    rcu_reader_start();
    (void)pthread_mutex_lock(&j->lock);
    while (!j->stopping) {
        struct job *job = take(j);
        (void)pthread_mutex_unlock(&j->lock);
        if (job != NULL) {
            job->work(job);
            exchange_wake(job->ticket, job, job_free);
        } else {
            cursors_sweep(j->api->cursors);
        }
        (void)pthread_mutex_lock(&j->lock);
    }
    (void)pthread_mutex_unlock(&j->lock);
    rcu_reader_stop();
    return NULL;
}

struct jobs *jobs_new(struct api *api)
{
    struct jobs *j = mem_zalloc(sizeof *j);
    pthread_condattr_t attr;
    j->api = api;
    (void)pthread_mutex_init(&j->lock, NULL);
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&j->changed, &attr);
    (void)pthread_condattr_destroy(&attr);
    for (unsigned i = 0; i < JOBS_THREADS; i++) {
        ASSERT(pthread_create(&j->threads[i], NULL, main_of_thread, j) == 0);
    }
    return j;
}

void jobs_free(struct jobs *j)
{
    (void)pthread_mutex_lock(&j->lock);
    j->stopping = true;
    (void)pthread_cond_broadcast(&j->changed);
    (void)pthread_mutex_unlock(&j->lock);
    for (unsigned i = 0; i < JOBS_THREADS; i++) {
        (void)pthread_join(j->threads[i], NULL);
    }
    while (j->count > 0) {
        struct job *job = take(j);
        exchange_wake(job->ticket, job, job_free);
    }
    (void)pthread_cond_destroy(&j->changed);
    (void)pthread_mutex_destroy(&j->lock);
    mem_free(j);
}

bool jobs_stopping(struct jobs *j)
{
    (void)pthread_mutex_lock(&j->lock);
    bool stopping = j->stopping;
    (void)pthread_mutex_unlock(&j->lock);
    return stopping;
}

void *job_new(struct exchange *x, size_t size)
{
    struct job *job = mem_zalloc(size);
    job->api = exchange_api(x);
    buf_init(&job->out, API_RESPONSE_MAX);
    return job;
}

static void ready(struct exchange *x, void *arg)
{
    struct job *job = arg;
    if (job == NULL) {
        return; /* the feed moved on; this waits for the job */
    }
    job->answer(x, job);
    job_free(job);
}

static bool enqueue(struct jobs *j, struct job *job)
{
    bool room;
    (void)pthread_mutex_lock(&j->lock);
    room = j->count < JOBS_QUEUE_MAX && !j->stopping;
    if (room) {
        j->queue[(j->first + j->count++) % JOBS_QUEUE_MAX] = job;
        (void)pthread_cond_signal(&j->changed);
    }
    (void)pthread_mutex_unlock(&j->lock);
    return room;
}

static void refuse(struct exchange *x, struct job *job)
{
    (void)job;
    reply_unavailable(x, ERR_OVERLOADED, "too many long reads wait: try again later");
}

void job_start(struct exchange *x, struct job *job)
{
    job->ticket = exchange_ticket(x);
    exchange_park(x, ready, NULL, 0);
    if (!enqueue(exchange_api(x)->jobs, job)) {
        job->answer = refuse;
        exchange_wake(job->ticket, job, job_free);
    }
}

void job_run(struct exchange *x, struct job *job)
{
    job->work(job);
    job->answer(x, job);
    job_free(job);
}

void job_reply(struct exchange *x, struct job *job)
{
    struct buf *out = exchange_out(x);
    if (job->err.code == ERR_COMPACTED) {
        reply_compacted(x, view_enter(api_slot(x)), "%s", job->err.detail);
        view_leave();
    } else if (job->err.code != ERR_OK && err_http_status(job->err.code) == 503) {
        reply_unavailable(x, job->err.code, "%s", job->err.detail);
    } else if (job->err.code != ERR_OK) {
        exchange_problem(x, &job->err, NULL, NULL);
    } else {
        buf_put(out, job->out.data, job->out.len);
        reply_read(x, job->revision);
    }
}

void job_reply_page(struct exchange *x, struct job *job, struct listing *l, struct slice next)
{
    struct buf *out = exchange_out(x);
    if (job->err.code != ERR_OK) {
        job_reply(x, job);
        return;
    }
    buf_put(out, job->out.data, job->out.len);
    if (next.len > 0) {
        listing_next(x, l, next);
    }
    buf_put_u8(out, '}');
    reply_read(x, job->revision);
}
