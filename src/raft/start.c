/* SPDX-License-Identifier: Apache-2.0 */
/* Brings libraft up on a directory that belongs to a cluster. Until `started` is written down Raft
 * has not run here, so what a crash left half made is made anew; after it, missing files mean that
 * the log was lost, and a server whose log was lost must not vote under its old id. */
#include "raft/internal.h"

#include "base/assert.h"
#include "base/log.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    INSTALL_TIMEOUT_MS = 120000,
    CATCH_UP_ROUNDS = 100,
    CATCH_UP_ROUND_MS = 50000,
    CONNECT_RETRY_MS = 100,
    INIT_TRIES = 5, /* the probe for asynchronous I/O may fail for a moment (canonical #481) */
    INIT_PAUSE_NS = 20000000
};

_Noreturn static void start_failed(const struct replica *r, const char *what, const char *reason)
{
    log_fatal(EXIT_DATA, "raft.start.failed", "dir=%s what=%s reason=\"%s\"", r->raft_dir, what,
              reason);
}

static const char *reason_of(const struct replica *r, int rv)
{
    return r->raft.errmsg[0] != '\0' ? r->raft.errmsg
           : r->io.errmsg[0] != '\0' ? r->io.errmsg
                                     : raft_strerror(rv);
}

static bool file_exists(const struct replica *r, const char *name)
{
    char path[sizeof r->raft_dir + 32];
    (void)snprintf(path, sizeof path, "%s/%s", r->raft_dir, name);
    return access(path, F_OK) == 0;
}

/* Empties the directory: Raft has never run on it. */
static void clear_dir(const struct replica *r)
{
    DIR *d = opendir(r->raft_dir);
    if (d == NULL) {
        start_failed(r, "open", strerror(errno));
    }
    for (struct dirent *entry; (entry = readdir(d)) != NULL;) {
        if (entry->d_name[0] != '.' && unlinkat(dirfd(d), entry->d_name, 0) != 0) {
            start_failed(r, "unlink", strerror(errno));
        }
    }
    (void)closedir(d); /* read only */
}

static void prepare_dir(struct replica *r)
{
    if (mkdir(r->raft_dir, 0700) != 0 && errno != EEXIST) {
        start_failed(r, "create", strerror(errno));
    }
    if (!r->identity.started) {
        clear_dir(r);
    } else if (!file_exists(r, "metadata1") && !file_exists(r, "metadata2")) {
        start_failed(
            r, "metadata",
            "the Raft log is missing: clear the data directory and use --join, as a new server");
    }
}

_Noreturn static void on_fatal(void *ctx, struct raft *raft, const char *why, int status)
{
    const struct replica *r = ctx;
    (void)raft;
    log_fatal(EXIT_DATA, "raft.write.failed", "dir=%s what=\"%s\" reason=\"%s\" status=%d",
              r->raft_dir, why, reason_of(r, status), status);
}

static void init_raft(struct replica *r)
{
    int rv = raft_uv_init(&r->io, r->loop, r->raft_dir, &r->uv_transport);
    if (rv != 0) {
        start_failed(r, "init", reason_of(r, rv));
    }
    r->io.version = 2; /* raft_uv says 1 and has async_work all the same (canonical #303) */
    r->fsm = (struct raft_fsm){.version = 3,
                               .data = r,
                               .apply = propose_apply,
                               .snapshot = snapshot_begin,
                               .snapshot_async = snapshot_wait,
                               .snapshot_finalize = snapshot_end,
                               .restore = snapshot_restore};
    rv = raft_init(&r->raft, &r->io, &r->fsm, r->identity.is.id, r->options.raft_address);
    for (int i = 1; i < INIT_TRIES && rv == RAFT_IOERR; i++) {
        struct timespec pause = {0, INIT_PAUSE_NS};
        (void)nanosleep(&pause, NULL); /* early is fine */
        rv = raft_init(&r->raft, &r->io, &r->fsm, r->identity.is.id, r->options.raft_address);
    }
    if (rv != 0) {
        start_failed(r, "init", reason_of(r, rv));
    }
    rv = raft_uv_set_snapshot_compression(&r->io, false);
    ASSERT(rv == 0);
    raft_uv_set_connect_retry_delay(&r->io, CONNECT_RETRY_MS);
    raft_uv_set_auto_recovery(&r->io, false);
    raft_set_election_timeout(&r->raft, (unsigned)r->options.election_ms);
    raft_set_heartbeat_timeout(&r->raft, (unsigned)r->options.heartbeat_ms);
    raft_set_install_snapshot_timeout(&r->raft, INSTALL_TIMEOUT_MS);
    raft_set_snapshot_threshold(&r->raft, r->options.snapshot_threshold);
    raft_set_snapshot_trailing(&r->raft, r->options.snapshot_trailing);
    raft_set_max_catch_up_rounds(&r->raft, CATCH_UP_ROUNDS);
    raft_set_max_catch_up_round_duration(&r->raft, CATCH_UP_ROUND_MS);
    raft_set_pre_vote(&r->raft, true);
}

static void install_guard(struct replica *r)
{
    struct guard_options options;
    guard_options_default(&options);
    options.ctx = r;
    options.fatal = on_fatal;
    watch_install(r);
    r->guard = guard_install(&r->raft, &r->io, &options);
}

/* The first entry: all founders, as voters; the same on each of them. */
static void write_first_entry(struct replica *r)
{
    struct raft_configuration configuration;
    raft_configuration_init(&configuration);
    int rv = 0;
    uint64_t last = 0;
    for (unsigned n = 0; rv == 0 && n < r->identity.is.founder_count; n++) {
        const struct replica_peer *next = NULL;
        for (unsigned i = 0; i < r->identity.is.founder_count; i++) {
            const struct replica_peer *p = &r->identity.is.founders[i];
            if (p->id > last && (next == NULL || p->id < next->id)) {
                next = p;
            }
        }
        ASSERT(next != NULL);
        last = next->id;
        rv = raft_configuration_add(&configuration, next->id, next->raft_address, RAFT_VOTER);
    }
    rv = rv == 0 ? raft_bootstrap(&r->raft, &configuration) : rv;
    if (rv != 0) {
        start_failed(r, "bootstrap", reason_of(r, rv));
    }
    raft_configuration_close(&configuration);
}

static void first_start(struct replica *r)
{
    struct err e = {0};
    if (!r->identity.joined) {
        write_first_entry(r);
    } else {
        int rv = r->raft.io->set_term(r->raft.io, 0); /* the metadata files are there from now on */
        if (rv != 0) {
            start_failed(r, "metadata", reason_of(r, rv));
        }
    }
    r->identity.started = true;
    if (identity_save(r->options.data_dir, &r->identity, &e) != ERR_OK) {
        start_failed(r, "identity", e.detail);
    }
}

void start_raft(struct replica *r)
{
    prepare_dir(r);
    init_raft(r);
    install_guard(r);
    if (!r->identity.started) {
        first_start(r);
    }
    int rv = raft_start(&r->raft);
    if (rv != 0) {
        start_failed(r, rv == RAFT_CORRUPT ? "corrupt" : "load", reason_of(r, rv));
    }
    space_init(r);
    r->start_last_index = raft_last_index(&r->raft);
    r->up = true;
    r->member = r->raft.configuration.n > 0; /* if it is not in there, the next turn says so */
    log_event(LOG_INFO, "raft.started",
              "id=%" PRIu64 " cluster=%s term=%llu last_index=%llu snapshot_index=%llu",
              r->identity.is.id, r->identity.is.cluster, r->raft.current_term,
              raft_last_index(&r->raft), r->raft.log.snapshot.last_index);
}
