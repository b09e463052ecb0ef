/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the guard and outside raft_uv: notes who was heard and when, and ends the process when a
 * snapshot could not be written, which libraft only traces. */
#include "raft/internal.h"

#include "base/log.h"

#include <inttypes.h>
#include <stddef.h>

static struct replica *of_io(struct raft_io *io)
{
    return (struct replica *)(void *)((char *)io - offsetof(struct replica, io));
}

static void heard(struct replica *r, uint64_t id)
{
    unsigned oldest = 0;
    for (unsigned i = 0; i < sizeof r->watch.heard / sizeof r->watch.heard[0]; i++) {
        if (r->watch.heard[i].id == id) {
            r->watch.heard[i].at_ms = uv_now(r->loop);
            return;
        }
        if (r->watch.heard[i].at_ms < r->watch.heard[oldest].at_ms) {
            oldest = i;
        }
    }
    r->watch.heard[oldest].id = id;
    r->watch.heard[oldest].at_ms = uv_now(r->loop);
}

uint64_t watch_heard_ms(const struct replica *r, uint64_t id)
{
    for (unsigned i = 0; i < sizeof r->watch.heard / sizeof r->watch.heard[0]; i++) {
        if (r->watch.heard[i].id == id) {
            return r->watch.heard[i].at_ms;
        }
    }
    return 0;
}

static void on_message(struct raft_io *io, struct raft_message *message)
{
    struct replica *r = of_io(io);
    uint64_t term = r->raft.current_term;
    switch (message->type) {
    case RAFT_IO_APPEND_ENTRIES:
        if (message->append_entries.term >= term) {
            r->watch.leader_ms = uv_now(r->loop);
        }
        break;
    case RAFT_IO_INSTALL_SNAPSHOT:
        if (message->install_snapshot.term >= term) {
            r->watch.leader_ms = uv_now(r->loop);
        }
        break;
    case RAFT_IO_APPEND_ENTRIES_RESULT:
        if (message->append_entries_result.term == term) {
            heard(r, message->server_id);
        }
        break;
    default:
        break;
    }
    r->watch.recv(io, message);
}

static int on_start(struct raft_io *io, unsigned ms, raft_io_tick_cb tick, raft_io_recv_cb recv)
{
    struct replica *r = of_io(io);
    r->watch.recv = recv;
    return r->watch.inner_start(io, ms, tick, on_message);
}

static void on_put(struct raft_io_snapshot_put *put, int status)
{
    struct replica *r = put->data;
    if (status != 0 && status != RAFT_CANCELED) {
        log_fatal(EXIT_DATA, "raft.write.failed", "dir=%s what=snapshot reason=\"%s\"", r->raft_dir,
                  r->io.errmsg[0] != '\0' ? r->io.errmsg : raft_strerror(status));
    }
    r->watch.put_cb(r->watch.outer_put, status);
}

static int on_snapshot_put(struct raft_io *io,
                           unsigned trailing,
                           struct raft_io_snapshot_put *req,
                           const struct raft_snapshot *snapshot,
                           raft_io_snapshot_put_cb cb)
{
    struct replica *r = of_io(io);
    r->watch.outer_put = req;
    r->watch.put_cb = cb;
    r->watch.put.data = r;
    return r->watch.inner_put(io, trailing, &r->watch.put, snapshot, on_put);
}

void watch_install(struct replica *r)
{
    r->watch.inner_start = r->io.start;
    r->io.start = on_start;
    r->watch.inner_put = r->io.snapshot_put;
    r->io.snapshot_put = on_snapshot_put;
}
