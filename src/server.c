/* SPDX-License-Identifier: Apache-2.0 */
#include "server.h"

#include "api/api.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/rcu.h"
#include "control/control.h"
#include "join.h"
#include "warm.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uv.h>

enum { PATH_BYTES = CONFIG_TEXT_MAX + 64 };

struct server {
    const struct config *config;
    uv_loop_t loop;
    uv_signal_t signals[2];
    struct replica_identity identity;
    struct join_answer joined;
    struct directory *directory;
    struct store *store;
    struct control *control;
    struct replica *replica;
    struct api *api;
    bool stopping;
};

static int fail(int exit_code, const char *what, const struct err *e)
{
    char text[512];
    log_event(LOG_ERROR, what, "detail=%s", log_quote(e->detail, text, sizeof text));
    return exit_code;
}

static void path_in(const struct config *config, const char *name, char out[PATH_BYTES])
{
    (void)snprintf(out, PATH_BYTES, "%s/%s", config->data_dir, name);
}

static void on_retired(void *arg)
{
    struct server *s = arg;
    log_event(LOG_INFO, "server.stopped", "id=%" PRIu64, s->identity.id);
    _exit(0); /* everything acknowledged is in the log of a majority; nothing else needs an end */
}

/* The first asks for an orderly end: readyz fails, leadership goes to a peer. The second ends at
 * once. */
static void on_signal(uv_signal_t *handle, int number)
{
    struct server *s = handle->data;
    log_event(LOG_INFO, "server.stopping", "signal=%d", number);
    if (s->stopping) {
        _exit(0);
    }
    s->stopping = true;
    control_stop(s->control);
    replica_retire(s->replica, on_retired, s);
}

/* Not at the addresses that the directory was founded or joined with, though the member table may
 * know it. */
static bool has_moved(const struct server *s)
{
    for (unsigned i = 0; i < s->identity.founder_count; i++) {
        const struct replica_peer *self = &s->identity.founders[i];
        if (self->id == s->identity.id) {
            return strcmp(self->raft_address, s->config->raft_addr) != 0 ||
                   strcmp(self->api_url, s->config->api_url) != 0;
        }
    }
    return false;
}

/* Peers dial a member where the member table has it. Only the leader can change the table, and a
 * follower that has moved can't be heard by it: so it asks, through the API. */
static int tell_move(const struct server *s)
{
    struct err e;
    if (!s->identity.used || !has_moved(s)) {
        return 0;
    }
    if (s->config->join[0] == '\0') {
        log_event(LOG_WARN, "address.changed",
                  "raft=%s api=%s hint=\"if the cluster does not know it yet, start with --join\"",
                  s->config->raft_addr, s->config->api_url);
        return 0;
    }
    enum err_code code = join_moved(s->config, &s->identity, &e);
    if (code != ERR_OK && code != ERR_IO) {
        return fail(EXIT_DATA, "join.failed", &e);
    }
    if (code == ERR_IO) {
        log_event(LOG_WARN, "address.untold", "raft=%s reason=\"%s\"", s->config->raft_addr,
                  e.detail);
    }
    return 0;
}

static int open_data(struct server *s)
{
    struct err e;
    char path[PATH_BYTES];
    if (mkdir(s->config->data_dir, 0755) != 0 && errno != EEXIST) {
        (void)err_set(&e, ERR_IO, "can't make %s: %s", s->config->data_dir, strerror(errno));
        return fail(EXIT_DATA, "data.failed", &e);
    }
    enum err_code code =
        replica_identity_open(s->config->data_dir, s->config->id, &s->identity, &e);
    if (code != ERR_OK) {
        return fail(code == ERR_INVALID_REQUEST ? EXIT_FLAGS : EXIT_DATA, "identity.failed", &e);
    }
    if (s->config->join[0] != '\0' && !s->identity.used &&
        (code = join_cluster(s->config, &s->identity, &s->joined, &e)) != ERR_OK) {
        return fail(EXIT_DATA, "join.failed", &e);
    }
    int exit_code = tell_move(s);
    if (exit_code != 0) {
        return exit_code;
    }
    path_in(s->config, "directory.db", path);
    if (store_open(path, &s->store, &e) != ERR_OK) {
        return fail(EXIT_DATA, "store.failed", &e);
    }
    s->directory = directory_new();
    return 0;
}

static int start_replica(struct server *s)
{
    const struct config *config = s->config;
    struct err e;
    bool fresh = !s->identity.used, joins = config->join[0] != '\0' && fresh;
    struct replica_options options = {
        .data_dir = config->data_dir,
        .id = s->identity.id,
        .raft_address = config->raft_addr,
        .raft_bind = config->raft_bind,
        .api_url = config->api_url,
        .founders = config->founders,
        .founder_count = config->founder_count,
        .join = joins,
        .join_generation = s->joined.generation,
        .join_peers = s->joined.peers,
        .join_peer_count = s->joined.peer_count,
        .election_ms = config->election_ms,
        .heartbeat_ms = config->heartbeat_ms,
        .snapshot_threshold = (unsigned)config->snapshot_threshold,
        .snapshot_trailing = (unsigned)config->snapshot_trailing,
    };
    memcpy(options.join_cluster, s->joined.cluster, sizeof options.join_cluster);
    if (!fresh && (config->founder_count > 0 || config->join[0] != '\0')) {
        log_event(LOG_INFO, "founding.ignored",
                  "reason=\"the data directory belongs to a cluster already\" cluster=%s",
                  s->identity.cluster);
    }
    enum err_code code =
        replica_start(&s->loop, &options, control_machine(s->control), &s->replica, &e);
    if (code != ERR_OK) {
        return fail(code == ERR_INVALID_REQUEST ? EXIT_FLAGS : EXIT_DATA, "raft.failed", &e);
    }
    control_attach(s->control, s->replica);
    return 0;
}

static int start_api(struct server *s)
{
    struct err e;
    const struct api_options options = {.addr = s->config->api_addr,
                                        .threads = (unsigned)s->config->api_threads,
                                        .version = CADASTRE_VERSION};
    if (api_start(s->control, &options, &s->api, &e) != ERR_OK) {
        return fail(EXIT_ADDRESS, "api.failed", &e);
    }
    log_event(LOG_INFO, "server.started",
              "version=%s id=%" PRIu64 " api=%s port=%u raft=%s data=%s", CADASTRE_VERSION,
              s->identity.id, s->config->api_url, api_port(s->api), s->config->raft_addr,
              s->config->data_dir);
    return 0;
}

static void watch_signals(struct server *s)
{
    static const int numbers[] = {SIGTERM, SIGINT};
    for (unsigned i = 0; i < 2; i++) {
        s->signals[i].data = s;
        int rv = uv_signal_init(&s->loop, &s->signals[i]);
        ASSERT(rv == 0);
        rv = uv_signal_start(&s->signals[i], on_signal, numbers[i]);
        ASSERT(rv == 0);
    }
    (void)sigaction(SIGPIPE, &(struct sigaction){.sa_handler = SIG_IGN}, NULL);
}

int server_run(const struct config *config)
{
    static struct server server; /* lives as long as the process */
    struct server *s = &server;
    s->config = config;
    log_init(config->log_level, config->log_json);
    rcu_reader_start();
    int rv = uv_loop_init(&s->loop);
    ASSERT(rv == 0);
    watch_signals(s);
    int exit_code = open_data(s);
    if (exit_code != 0) {
        return exit_code;
    }
    s->control = control_new(&(struct control_parts){.loop = &s->loop,
                                                     .directory = s->directory,
                                                     .store = s->store,
                                                     .identity = &s->identity,
                                                     .raft_address = config->raft_addr,
                                                     .api_url = config->api_url});
    heats_set_clock(loads_heats(control_loads(s->control)), clock_wall_ms() - clock_mono_ms());
    exit_code = start_replica(s);
    if (exit_code == 0) {
        exit_code = start_api(s);
    }
    if (exit_code == 0) {
        warm_start(s->control, config->api_url);
        (void)uv_run(&s->loop, UV_RUN_DEFAULT);
    }
    return exit_code;
}

struct checked {
    uint64_t violations;
    bool unreadable;
};

static void print_violation(void *arg, const char *line)
{
    (void)printf("%s: %s\n", (const char *)arg, line);
}

static void check_database(const char *path, struct checked *ret)
{
    struct err e;
    uint64_t found = 0;
    char name[PATH_BYTES];
    (void)snprintf(name, sizeof name, "%s", path);
    if (access(path, F_OK) != 0) {
        return; /* never started */
    }
    if (store_check_file(path, print_violation, name, &found, &e) != ERR_OK) {
        (void)printf("%s: %s\n", path, e.detail);
        ret->unreadable = true;
    }
    ret->violations += found;
}

static uint8_t *read_whole(const char *path, size_t *ret_len)
{
    FILE *f = fopen(path, "rb");
    struct stat st;
    uint8_t *bytes = NULL;
    if (f != NULL && fstat(fileno(f), &st) == 0) {
        bytes = mem_alloc((size_t)st.st_size);
        *ret_len = fread(bytes, 1, (size_t)st.st_size, f);
        if (*ret_len != (size_t)st.st_size) {
            mem_free(bytes);
            bytes = NULL;
        }
    }
    if (f != NULL) {
        (void)fclose(f);
    }
    return bytes;
}

static void check_snapshot(const char *dir, const char *name, struct checked *ret)
{
    char path[2 * PATH_BYTES], scratch[PATH_BYTES];
    struct err e;
    uint64_t found = 0;
    size_t len = 0;
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    const char *tmp = getenv("TMPDIR"); /* not the data directory: it may be full, or read-only */
    (void)snprintf(scratch, sizeof scratch, "%s/cadastred-check-%ld.db", tmp != NULL ? tmp : "/tmp",
                   (long)getpid());
    uint8_t *bytes = read_whole(path, &len);
    if (bytes == NULL) {
        (void)printf("%s: can't be read\n", path);
        ret->unreadable = true;
        return;
    }
    if (store_check_snapshot(slice_of(bytes, len), scratch, print_violation, path, &found, &e) !=
        ERR_OK) {
        (void)printf("%s: %s\n", path, e.detail);
        ret->unreadable = true;
    }
    ret->violations += found;
    mem_free(bytes);
}

/* libraft's names: snapshot-TERM-INDEX-TIME, and the same with .meta. */
static bool is_snapshot(const char *name)
{
    size_t n = strlen(name);
    return strncmp(name, "snapshot-", 9) == 0 && (n < 5 || strcmp(name + n - 5, ".meta") != 0);
}

int server_check(const char *data_dir)
{
    struct config config = {0};
    struct replica_identity identity;
    struct checked checked = {0};
    struct err e;
    char path[PATH_BYTES];
    struct stat st;
    (void)snprintf(config.data_dir, sizeof config.data_dir, "%s", data_dir);
    path_in(&config, "identity", path);
    if (stat(path, &st) != 0) {
        (void)printf("%s: not a data directory: it has no identity\n", data_dir);
        return EXIT_DATA;
    }
    if (replica_identity_open(data_dir, 0, &identity, &e) != ERR_OK) {
        (void)printf("%s: %s\n", data_dir, e.detail);
        return EXIT_DATA;
    }
    path_in(&config, "directory.db", path);
    check_database(path, &checked);
    path_in(&config, "raft", path);
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        if (is_snapshot(entry->d_name)) {
            check_snapshot(path, entry->d_name, &checked);
        }
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
    if (checked.unreadable) {
        return EXIT_DATA;
    }
    (void)printf(
        "%s: server %" PRIu64 " of cluster %s, generation %" PRIu64 ": %" PRIu64 " violations\n",
        data_dir, identity.id, identity.cluster[0] != '\0' ? identity.cluster : "(none yet)",
        identity.generation, checked.violations);
    return checked.violations > 0 ? 1 : 0;
}
