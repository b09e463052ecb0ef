/* SPDX-License-Identifier: Apache-2.0 */
/* Refuses new commands before a full disk ends the process: libraft reserves whole segments ahead.
 */
#include "raft/internal.h"

#include "base/log.h"

#include <inttypes.h>
#include <sys/statvfs.h>

static void judge(struct replica *r, uint64_t free_bytes)
{
    bool low = free_bytes < SPACE_LOW_BYTES;
    if (low != r->space.low) {
        log_event(low ? LOG_ERROR : LOG_INFO, low ? "raft.space.low" : "raft.space.enough",
                  "dir=%s free_bytes=%" PRIu64, r->raft_dir, free_bytes);
    }
    r->space.low = low;
}

static void on_answer(uv_fs_t *request)
{
    struct replica *r = request->data;
    const uv_statfs_t *stat = request->ptr;
    r->space.busy = false;
    if (request->result == 0) {
        judge(r, stat->f_bavail * stat->f_bsize);
    }
    uv_fs_req_cleanup(request);
}

static void on_timer(uv_timer_t *timer)
{
    struct replica *r = timer->data;
    if (!r->space.busy) {
        r->space.request.data = r;
        r->space.busy = uv_fs_statfs(r->loop, &r->space.request, r->raft_dir, on_answer) == 0;
    }
}

void space_init(struct replica *r)
{
    struct statvfs stat;
    if (statvfs(r->raft_dir, &stat) == 0) {
        judge(r, (uint64_t)stat.f_bavail * stat.f_frsize);
    }
    uv_timer_init(r->loop, &r->space.timer);
    r->space.timer.data = r;
    uv_timer_start(&r->space.timer, on_timer, SPACE_PERIOD_MS, SPACE_PERIOD_MS);
}
