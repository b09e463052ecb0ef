/* SPDX-License-Identifier: Apache-2.0 */
/* A consistent copy of the directory's database, made to a file of its own that has no name any
 * more when it is sent, so that nothing is left behind however the download ends. */
#include "api/endpoints.h"

#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct backup_job {
    struct job job;
    int fd; /* -1: none */
};

struct backup_stream {
    struct api *api;
    int fd;
};

static void backup_work(struct job *job)
{
    struct backup_job *j = (struct backup_job *)(void *)job;
    struct store *store = control_store(job->api->control);
    /* The view that was asked may be ahead of the store. */
    if (store_await(store, job->revision, API_TIMEOUT_DEFAULT_MS, &job->err) != ERR_OK) {
        return;
    }
    char *path = mem_printf("%s/cadastre-backup-XXXXXX", job->api->scratch_dir);
    int made = mkstemp(path);
    if (made < 0) {
        (void)err_set(&job->err, ERR_IO, "%s: %s", path, strerror(errno));
        mem_free(path);
        return;
    }
    (void)close(made); /* only its name was wanted */
    if (store_backup(store, path, &job->revision, &job->err) == ERR_OK) {
        j->fd = open(path, O_RDONLY | O_CLOEXEC);
        if (j->fd < 0) {
            (void)err_set(&job->err, ERR_IO, "%s: %s", path, strerror(errno));
        }
    }
    (void)unlink(path); /* its name is not needed, whatever happened */
    mem_free(path);
}

static void release(struct api *api, int fd)
{
    if (fd >= 0) {
        (void)close(fd); /* only read from */
    }
    atomic_fetch_sub(&api->backups, 1);
}

static void backup_close(struct job *job)
{
    struct backup_job *j = (struct backup_job *)(void *)job;
    if (j->job.api != NULL) {
        release(j->job.api, j->fd);
    }
}

static enum stream_next backup_next(void *state, struct buf *out, uint64_t *ret_again_ms)
{
    struct backup_stream *s = state;
    ssize_t n;
    *ret_again_ms = UINT64_MAX;
    if (!buf_reserve(out, API_STREAM_CHUNK)) {
        return STREAM_ABORT;
    }
    do {
        n = read(s->fd, out->data + out->len, API_STREAM_CHUNK);
    } while (n < 0 && errno == EINTR);
    if (n < 0) {
        return STREAM_ABORT;
    }
    out->len += (size_t)n;
    return n == 0 ? STREAM_END : STREAM_MORE;
}

static void backup_end(void *state)
{
    struct backup_stream *s = state;
    release(s->api, s->fd);
    mem_free(s);
}

static void backup_answer(struct exchange *x, struct job *job)
{
    static const struct stream_ops ops = {backup_next, backup_end};
    struct backup_job *j = (struct backup_job *)(void *)job;
    struct backup_stream *s;
    if (job->err.code != ERR_OK) {
        job_reply(x, job);
        return;
    }
    s = mem_zalloc(sizeof *s);
    s->api = job->api;
    s->fd = j->fd;
    job->api = NULL; /* the stream has it now */
    set_read_headers(x, job->revision);
    exchange_printf_header(x, "Content-Disposition",
                           "attachment; filename=\"cadastre-%" PRIu64 ".db\"", job->revision);
    exchange_stream(x, 200, "application/vnd.sqlite3", false, &ops, s);
}

static void get_backup(struct exchange *x, const struct dir_view *v)
{
    struct api *api = exchange_api(x);
    struct backup_job *j;
    if (atomic_fetch_add(&api->backups, 1) >= API_BACKUPS_MAX) {
        atomic_fetch_sub(&api->backups, 1);
        reply_unavailable(x, ERR_OVERLOADED, "%d backups are being made or sent already",
                          API_BACKUPS_MAX);
        return;
    }
    j = job_new(x, sizeof *j);
    j->job.work = backup_work;
    j->job.answer = backup_answer;
    j->job.close = backup_close;
    j->job.revision = v->revision;
    j->fd = -1;
    job_start(x, &j->job);
}

void h_backup(struct exchange *x)
{
    read_begin(x, get_backup);
}
