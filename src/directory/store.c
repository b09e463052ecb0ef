/* SPDX-License-Identifier: Apache-2.0 */
/* Life cycle, queue and thread. Effects are counted as they come (`pushed`) and as they are
 * committed (`done`); a flush, a snapshot's marker and the bound are all positions on that one
 * line. */
#include "directory/store_internal.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/mem.h"

#include <time.h>

/* Adds `timeout_ms` to CLOCK_MONOTONIC. */
struct timespec store_deadline(uint64_t timeout_ms)
{
    struct timespec at;
    (void)clock_gettime(CLOCK_MONOTONIC, &at); /* can't fail with a valid clock */
    at.tv_sec += (time_t)(timeout_ms / 1000);
    at.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
    if (at.tv_nsec >= 1000000000) {
        at.tv_sec++;
        at.tv_nsec -= 1000000000;
    }
    return at;
}

void store_note_committed(struct store *s, const struct dir_view_meta *meta)
{
    atomic_store(&s->image_bytes, store_writer_image_bytes(&s->writer));
    atomic_store(&s->index, meta->applied_index);
    atomic_store(&s->revision, meta->revision);
}

/* --- the thread --- */

/* Takes the first effects of the queue, up to a batch, and not past a snapshot's marker. With the
 * lock. */
static struct dir_effects *take_batch(struct store *s, uint64_t *ret_count)
{
    uint64_t count = 0, rows = 0, limit = store_snapshot_limit(s) - atomic_load(&s->done);
    struct dir_effects *first = s->head, *last = NULL;
    for (struct dir_effects *e = first;
         e != NULL && count < STORE_BATCH_EFFECTS && count < limit && rows < STORE_BATCH_ROWS;
         e = e->next) {
        count++;
        rows += e->row_count;
        last = e;
    }
    ASSERT(last != NULL);
    s->head = last->next;
    if (s->head == NULL) {
        s->tail = NULL;
    }
    last->next = NULL;
    *ret_count = count;
    return first;
}

static void free_effects(struct dir_effects *list)
{
    while (list != NULL) {
        struct dir_effects *next = list->next;
        list->next = NULL;
        dir_effects_free(list);
        list = next;
    }
}

/* With the lock, which it gives up while it writes. */
static void write_batch(struct store *s)
{
    uint64_t count;
    struct dir_effects *batch = take_batch(s, &count);
    (void)pthread_mutex_unlock(&s->lock);
    store_writer_batch(&s->writer, batch);
    const struct dir_effects *last = batch;
    while (last->next != NULL) {
        last = last->next;
    }
    store_note_committed(s, &last->meta);
    free_effects(batch);
    (void)pthread_mutex_lock(&s->lock);
    atomic_fetch_add(&s->done, count);
    (void)pthread_cond_broadcast(&s->moved);
}

/* With the lock, which it gives up meanwhile. */
static void mark_snapshot(struct store *s)
{
    store_snapshot_claim(s);
    struct store_snapshot *snap = s->snapshot;
    (void)pthread_mutex_unlock(&s->lock);
    store_snapshot_mark(snap);
    (void)pthread_mutex_lock(&s->lock);
    store_snapshot_publish(s);
    (void)pthread_cond_broadcast(&s->moved);
}

static bool tidy(struct store *s)
{
    bool idle = s->head == NULL;
    (void)pthread_mutex_unlock(&s->lock);
    bool more = store_writer_tidy(&s->writer, idle);
    (void)pthread_mutex_lock(&s->lock);
    return more;
}

static void stay_held(struct store *s)
{
    s->held = true;
    (void)pthread_cond_broadcast(&s->moved);
    while (s->hold) {
        (void)pthread_cond_wait(&s->work, &s->lock);
    }
    s->held = false;
    (void)pthread_cond_broadcast(&s->moved);
}

/* Commands come one by one, and those of a moment change the same pages: writing each page once for
 * many of them is most of what can be saved. Nothing that was acknowledged depends on it. With the
 * lock, which it gives up meanwhile. */
static void gather(struct store *s)
{
    struct timespec until = store_deadline(STORE_GATHER_MS);
    int rc = 0;
    while (rc == 0 && s->waiting == 0 && !s->stop && !s->hold &&
           store_lag(s) < STORE_BATCH_EFFECTS && store_snapshot_limit(s) == UINT64_MAX) {
        rc = pthread_cond_timedwait(&s->work, &s->lock, &until);
    }
}

static void *thread_main(void *arg)
{
    struct store *s = arg;
    bool more = false, gathered = false; /* more: retention has more to do */
    (void)pthread_mutex_lock(&s->lock);
    for (;;) {
        if (s->hold) {
            stay_held(s);
        } else if (store_snapshot_due(s)) {
            mark_snapshot(s);
        } else if (s->head != NULL && !gathered) {
            gather(s);
            gathered = true;
        } else if (s->head != NULL) {
            gathered = false;
            write_batch(s);
            more = tidy(s);
        } else if (s->stop) {
            break;
        } else if (more) {
            more = tidy(s);
        } else {
            (void)pthread_cond_wait(&s->work, &s->lock);
        }
    }
    (void)pthread_mutex_unlock(&s->lock);
    return NULL;
}

void store_hold(struct store *s)
{
    (void)pthread_mutex_lock(&s->lock);
    ASSERT(!s->hold);
    s->hold = true;
    (void)pthread_cond_signal(&s->work);
    while (!s->held) {
        (void)pthread_cond_wait(&s->moved, &s->lock);
    }
    free_effects(s->head);
    s->head = s->tail = NULL;
    atomic_store(&s->done, atomic_load(&s->pushed));
    (void)pthread_cond_broadcast(&s->moved);
    (void)pthread_mutex_unlock(&s->lock);
}

void store_release(struct store *s)
{
    (void)pthread_mutex_lock(&s->lock);
    s->hold = false;
    (void)pthread_cond_signal(&s->work);
    while (s->held) {
        (void)pthread_cond_wait(&s->moved, &s->lock);
    }
    (void)pthread_cond_broadcast(&s->moved);
    (void)pthread_mutex_unlock(&s->lock);
}

/* --- open and close --- */

static void init_cond(pthread_cond_t *cond)
{
    pthread_condattr_t attr;
    int rc = pthread_condattr_init(&attr);
    ASSERT(rc == 0);
    rc = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    ASSERT(rc == 0);
    rc = pthread_cond_init(cond, &attr);
    ASSERT(rc == 0);
    (void)pthread_condattr_destroy(&attr);
}

static struct store *new_store(const char *path)
{
    struct store *s = mem_zalloc(sizeof *s);
    s->path = mem_strdup(path);
    (void)pthread_mutex_init(&s->lock, NULL);
    (void)pthread_mutex_init(&s->readers.lock, NULL);
    init_cond(&s->work);
    init_cond(&s->moved);
    init_cond(&s->readers.freed);
    return s;
}

static void free_store(struct store *s)
{
    (void)pthread_cond_destroy(&s->work);
    (void)pthread_cond_destroy(&s->moved);
    (void)pthread_cond_destroy(&s->readers.freed);
    (void)pthread_mutex_destroy(&s->lock);
    (void)pthread_mutex_destroy(&s->readers.lock);
    mem_free(s->path);
    mem_free(s);
}

enum err_code store_open(const char *path, struct store **ret_store, struct err *e)
{
    struct store *s = new_store(path);
    struct dir_view_meta meta;
    store_unlink(path);
    enum err_code code = store_writer_open(&s->writer, path, STORE_CREATE, e);
    if (code == ERR_OK) {
        code = store_readers_open(s, e);
    }
    if (code == ERR_OK) {
        code = store_read_meta(&s->writer.conn, &meta, e);
    }
    if (code == ERR_OK) {
        store_note_committed(s, &meta);
        int rc = pthread_create(&s->thread, NULL, thread_main, s);
        code = rc == 0 ? ERR_OK : err_set(e, ERR_IO, "no thread for the store: error %d", rc);
    }
    if (code != ERR_OK) {
        store_readers_close(s);
        store_writer_close(&s->writer);
        free_store(s);
        return code;
    }
    *ret_store = s;
    return ERR_OK;
}

void store_close(struct store *s)
{
    if (s == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&s->lock);
    s->stop = true;
    (void)pthread_cond_signal(&s->work);
    (void)pthread_mutex_unlock(&s->lock);
    (void)pthread_join(s->thread, NULL);
    ASSERT(s->snapshot == NULL);
    store_readers_close(s);
    store_writer_close(
        &s->writer); /* the last connection to close checkpoints, and removes the WAL */
    free_store(s);
}

/* --- the queue --- */

/* With the lock. Not for long, so nothing is gathered meanwhile. */
static int wait_moved(struct store *s, const struct timespec *until)
{
    s->waiting++;
    (void)pthread_cond_signal(&s->work);
    int rc = until != NULL ? pthread_cond_timedwait(&s->moved, &s->lock, until)
                           : pthread_cond_wait(&s->moved, &s->lock);
    s->waiting--;
    return rc;
}

void store_push(struct store *s, struct dir_effects *effects)
{
    if (effects == NULL) {
        return;
    }
    uint64_t count = 1;
    struct dir_effects *last = effects;
    while (last->next != NULL) {
        last = last->next;
        count++;
    }
    (void)pthread_mutex_lock(&s->lock);
    while (store_lag(s) >= STORE_QUEUE_MAX) {
        wait_moved(s, NULL);
    }
    if (s->tail != NULL) {
        s->tail->next = effects;
    } else {
        s->head = effects;
        (void)pthread_cond_signal(&s->work);
    }
    s->tail = last;
    if (store_lag(s) < STORE_BATCH_EFFECTS && store_lag(s) + count >= STORE_BATCH_EFFECTS) {
        (void)pthread_cond_signal(&s->work);
    }
    atomic_fetch_add(&s->pushed, count);
    (void)pthread_mutex_unlock(&s->lock);
}

uint64_t store_lag(const struct store *s)
{
    uint64_t done = atomic_load(&s->done); /* first: pushed is never behind it */
    return atomic_load(&s->pushed) - done;
}

void store_flush(struct store *s)
{
    (void)pthread_mutex_lock(&s->lock);
    uint64_t upto = atomic_load(&s->pushed);
    while (atomic_load(&s->done) < upto) {
        wait_moved(s, NULL);
    }
    (void)pthread_mutex_unlock(&s->lock);
}

dir_rev store_revision(const struct store *s)
{
    return atomic_load(&s->revision);
}

uint64_t store_image_bytes(const struct store *s)
{
    return atomic_load(&s->image_bytes);
}

enum err_code store_await(struct store *s, dir_rev revision, uint64_t timeout_ms, struct err *e)
{
    if (store_revision(s) >= revision) {
        return ERR_OK;
    }
    struct timespec until = store_deadline(timeout_ms);
    int rc = 0;
    (void)pthread_mutex_lock(&s->lock);
    while (store_revision(s) < revision && rc == 0) {
        rc = wait_moved(s, &until);
    }
    (void)pthread_mutex_unlock(&s->lock);
    if (store_revision(s) < revision) {
        return err_set(e, ERR_BEHIND, "the store has reached revision %llu, not %llu",
                       (unsigned long long)store_revision(s), (unsigned long long)revision);
    }
    return ERR_OK;
}
