/* SPDX-License-Identifier: Apache-2.0 */
/* L5 and L6 on the real raft_uv in a temporary directory: one server writes, dies, and another
 * process reads what it left; once without the measure and once with it. */
#include "base/mem.h"
#include "raft/guard.h"
#include "tests/harness/tap.h"
#include "tests/sim/forked.h"

#include <ftw.h>
#include <raft/uv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct disk_server {
    uv_loop_t loop;
    struct raft_uv_transport transport;
    struct raft_io io;
    struct raft_fsm fsm;
    struct raft raft;
    uint64_t applied, intact;
    bool done;
};

static char dir[64];

/* A network of one. */
static int lone_init(struct raft_uv_transport *t, raft_id id, const char *address)
{
    (void)t;
    (void)id;
    (void)address;
    return 0;
}

static int lone_listen(struct raft_uv_transport *t, raft_uv_accept_cb cb)
{
    (void)t;
    (void)cb;
    return 0;
}

static int disk_apply(struct raft_fsm *fsm, const struct raft_buffer *buf, void **result)
{
    struct disk_server *s = fsm->data;
    const uint8_t *bytes = buf->base;
    bool intact = buf->len > 0;
    for (size_t i = 0; i < buf->len; i++) {
        intact = intact && bytes[i] == 'x';
    }
    s->applied++;
    s->intact += intact ? 1 : 0;
    *result = NULL;
    return 0;
}

static int disk_snapshot(struct raft_fsm *fsm, struct raft_buffer *bufs[], unsigned *n_bufs)
{
    (void)fsm;
    (void)bufs;
    (void)n_bufs;
    return RAFT_BUSY; /* never: the log is what is looked at */
}

static int disk_boot(struct disk_server *s, unsigned measures, bool found)
{
    memset(s, 0, sizeof *s);
    s->transport.init = lone_init;
    s->transport.listen = lone_listen;
    s->fsm =
        (struct raft_fsm){.version = 1, .data = s, .apply = disk_apply, .snapshot = disk_snapshot};
    int rv = uv_loop_init(&s->loop);
    rv = rv != 0 ? rv : raft_uv_init(&s->io, &s->loop, dir, &s->transport);
    rv = rv != 0 ? rv : raft_init(&s->raft, &s->io, &s->fsm, 1, "1");
    if (rv != 0) {
        return rv;
    }
    raft_uv_set_auto_recovery(&s->io, false);
    struct guard_options options;
    guard_options_default(&options);
    options.measures = measures;
    options.fatal = fatal_exit;
    (void)guard_install(&s->raft, &s->io, &options);
    if (found) {
        struct raft_configuration conf;
        raft_configuration_init(&conf);
        rv = raft_configuration_add(&conf, 1, "1", RAFT_VOTER);
        rv = rv != 0 ? rv : raft_bootstrap(&s->raft, &conf);
        raft_configuration_close(&conf);
    }
    return rv != 0 ? rv : raft_start(&s->raft);
}

static void disk_applied(struct raft_apply *req, int status, void *result)
{
    struct disk_server *s = req->data;
    (void)result;
    s->done = status == 0;
}

/* Commits `n` entries of `len` bytes in one batch, and dies. */
static enum outcome write_batch(unsigned measures, unsigned n, size_t len)
{
    static struct disk_server s;
    static struct raft_apply req;
    if (disk_boot(&s, measures, true) != 0) {
        return UNEXPECTED;
    }
    struct raft_buffer *bufs = mem_zalloc(n * sizeof *bufs);
    for (unsigned i = 0; i < n; i++) {
        bufs[i] = (struct raft_buffer){raft_malloc(len), len};
        memset(bufs[i].base, 'x', len);
    }
    req.data = &s;
    if (raft_apply(&s.raft, &req, bufs, n, disk_applied) != 0) {
        return UNEXPECTED;
    }
    while (!s.done || s.applied < n) {
        uv_run(&s.loop, UV_RUN_ONCE);
    }
    return HELD;
}

/* A sole voter applies its whole log when it starts. */
static enum outcome read_back(unsigned measures, unsigned n)
{
    static struct disk_server s;
    if (disk_boot(&s, measures, false) != 0) {
        return VIOLATED;
    }
    return s.applied == n && s.intact == n ? HELD : VIOLATED;
}

enum { LARGE_BATCH = GUARD_BATCH_UNREADABLE + 1000 };

static enum outcome write_large(unsigned measures)
{
    return write_batch(measures, LARGE_BATCH, 8);
}

static enum outcome read_large(unsigned measures)
{
    return read_back(measures, LARGE_BATCH);
}

static enum outcome write_odd(unsigned measures)
{
    return write_batch(measures, 2, 203);
}

static enum outcome read_odd(unsigned measures)
{
    return read_back(measures, 2);
}

static enum outcome write_even(unsigned measures)
{
    return write_batch(measures, 2, 208);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static enum outcome on_disk(run_fn write, run_fn read, unsigned measures)
{
    (void)snprintf(dir, sizeof dir, "/tmp/raft_guard_test.XXXXXX");
    if (mkdtemp(dir) == NULL) {
        return UNEXPECTED;
    }
    enum outcome rv = run_forked(write, measures);
    if (rv == HELD) {
        rv = run_forked(read, measures);
    }
    (void)nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    return rv;
}

static void l5_a_batch_that_cannot_be_read_again_is_fatal(void)
{
    CHECK_U64(on_disk(write_large, read_large, GUARD_ALL & ~(unsigned)GUARD_BATCH_CAP), VIOLATED);
    CHECK_U64(on_disk(write_large, read_large, GUARD_ALL), FATAL);
}

static void l6_an_entry_of_odd_length_is_fatal(void)
{
    CHECK_U64(on_disk(write_odd, read_odd, GUARD_ALL & ~(unsigned)GUARD_ENTRY_CHECK), VIOLATED);
    CHECK_U64(on_disk(write_odd, read_odd, GUARD_ALL), FATAL);
    CHECK_U64(on_disk(write_even, read_odd, GUARD_ALL), HELD);
}

int main(void)
{
    RUN(l5_a_batch_that_cannot_be_read_again_is_fatal);
    RUN(l6_an_entry_of_odd_length_is_fatal);
    return tap_done();
}
