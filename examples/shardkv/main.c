/* SPDX-License-Identifier: Apache-2.0 */
/* shardkv [OPTION …] ENDPOINTS NODE ADDRESS DATA_DIR [HEARTBEAT_MS [LABEL=VALUE …]]: a node that
 * serves until SIGTERM. Labels such as region, zone and rack say where it stands.
 *
 *   --report-ms MS         reports its load so often: 10 000
 *   --capacity NAME=VALUE  what it can bear, such as requests_per_s=5000; may be given again. Of
 *                          bytes it says what its disk holds, unless it is told */
#include "examples/shardkv/replicate.h"
#include "examples/shardkv/report.h"

#include <curl/curl.h>
#include <getopt.h>
#include <microhttpd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

enum { STOP_MS = 5000, LABELS_MAX = 16, CAPACITY_MAX = 8 };

struct wishes {
    uint64_t report_ms;
    struct cadastre_capacity capacity[CAPACITY_MAX + 1];
    size_t capacity_count;
    struct cadastre_label labels[LABELS_MAX];
    size_t label_count;
};

static void wait_for_signal(void)
{
    sigset_t set;
    int which;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    (void)sigwait(&set, &which);
}

/* Before any thread is made, so that all of them leave these to wait_for_signal(). */
static void block_signals(void)
{
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGPIPE);
    (void)pthread_sigmask(SIG_BLOCK, &set, NULL);
}

static bool start_workers(struct node *n, pthread_t *workers)
{
    bool ok = true;
    for (unsigned i = 0; ok && i < WORKERS; i++) {
        ok = pthread_create(&workers[i], NULL, node_work, n) == 0;
    }
    return ok;
}

static int serve(struct node *n, const char *address)
{
    struct cadastre_error e;
    pthread_t workers[WORKERS], repairer, reporter;
    struct MHD_Daemon *http = http_start(n, address);
    if (http == NULL || !start_workers(n, workers) ||
        pthread_create(&repairer, NULL, replicate_repair, n) != 0 ||
        pthread_create(&reporter, NULL, report_loads, n) != 0) {
        (void)fprintf(stderr, "shardkv: %s can't be listened on\n", address);
        return 1;
    }
    cadastre_agent_start(n->agent);
    wait_for_signal();
    /* What was admitted is settled first; then the session is released, so that another node can
     * take over without waiting for the lease. */
    node_settle(n);
    if (cadastre_agent_stop(n->agent, STOP_MS, &e) != CADASTRE_OK) {
        (void)fprintf(stderr, "shardkv: the session was not released: %s\n", e.detail);
    }
    node_end(n);
    for (unsigned i = 0; i < WORKERS; i++) {
        (void)pthread_join(workers[i], NULL);
    }
    (void)pthread_join(repairer, NULL);
    (void)pthread_join(reporter, NULL);
    MHD_stop_daemon(http);
    return 0;
}

/* What tests set: how long the log is, how much room there is, and which chunks are damaged. */
static uint64_t from_environment(const char *name, uint64_t fallback)
{
    const char *v = getenv(name);
    return v != NULL ? strtoull(v, NULL, 10) : fallback;
}

/* NAME=VALUE, into which it cuts. False: it is none. */
static bool read_label(char *text, struct cadastre_label *ret)
{
    char *value = strchr(text, '=');
    if (value == NULL) {
        return false;
    }
    *value++ = '\0';
    *ret = (struct cadastre_label){text, value};
    return true;
}

static bool read_capacity(char *text, struct wishes *w)
{
    struct cadastre_label said;
    char *rest = NULL;
    if (w->capacity_count == CAPACITY_MAX || !read_label(text, &said)) {
        return false;
    }
    uint64_t value = strtoull(said.value, &rest, 10);
    w->capacity[w->capacity_count++] = (struct cadastre_capacity){said.name, value};
    return rest != said.value && *rest == '\0';
}

/* False: an option or a label is none. */
static bool read_wishes(int argc, char **argv, struct wishes *w)
{
    static const struct option options[] = {{"report-ms", required_argument, NULL, 'r'},
                                            {"capacity", required_argument, NULL, 'c'},
                                            {NULL, 0, NULL, 0}};
    bool ok = true;
    int which;
    while (ok && (which = getopt_long(argc, argv, "+", options, NULL)) != -1) {
        if (which == 'r') {
            w->report_ms = strtoull(optarg, NULL, 10);
            ok = w->report_ms >= REPORT_MS_MIN && w->report_ms <= REPORT_MS_MAX;
        } else {
            ok = which == 'c' && read_capacity(optarg, w);
        }
    }
    ok = ok && argc - optind >= 4 && argc - optind - 5 <= LABELS_MAX;
    for (int i = optind + 5; ok && i < argc; i++) {
        ok = read_label(argv[i], &w->labels[w->label_count++]);
    }
    return ok;
}

/* What the disk holds, unless that was said. */
static void add_disk(struct wishes *w, const char *data_dir)
{
    struct statvfs disk;
    for (size_t i = 0; i < w->capacity_count; i++) {
        if (strcmp(w->capacity[i].name, "bytes") == 0) {
            return;
        }
    }
    if (statvfs(data_dir, &disk) == 0) {
        w->capacity[w->capacity_count++] =
            (struct cadastre_capacity){"bytes", (uint64_t)disk.f_blocks * (uint64_t)disk.f_frsize};
    }
}

int main(int argc, char **argv)
{
    static struct wishes w = {.report_ms = REPORT_MS};
    if (!read_wishes(argc, argv, &w)) {
        (void)fputs("usage: shardkv [--report-ms MS] [--capacity NAME=VALUE] ENDPOINTS NODE ADDRESS"
                    " DATA_DIR [HEARTBEAT_MS [LABEL=VALUE …]]\n",
                    stderr);
        return 2;
    }
    argv += optind;
    block_signals();
    (void)curl_global_init(CURL_GLOBAL_DEFAULT);
    (void)mkdir(argv[3], 0700);
    add_disk(&w, argv[3]);
    struct node n = {.data_dir = argv[3],
                     .endpoints = argv[0],
                     .address = argv[2],
                     .report_ms = w.report_ms,
                     .log_keep = from_environment("SHARDKV_LOG_KEEP", KV_LOG_KEEP),
                     .free_bytes = from_environment("SHARDKV_FREE_BYTES", UINT64_MAX),
                     .damage = from_environment("SHARDKV_DAMAGE", 0),
                     .lock = PTHREAD_MUTEX_INITIALIZER,
                     .collecting = PTHREAD_MUTEX_INITIALIZER,
                     .changed = PTHREAD_COND_INITIALIZER,
                     .ended = PTHREAD_COND_INITIALIZER};
    struct cadastre_error e;
    struct cadastre_agent_options o = {.endpoints = argv[0],
                                       .node = argv[1],
                                       .address = argv[2],
                                       .labels = w.labels,
                                       .label_count = w.label_count,
                                       .capacity = w.capacity,
                                       .capacity_count = w.capacity_count,
                                       .data_dir = argv[3],
                                       .heartbeat_ms =
                                           argc - optind > 4 ? strtoul(argv[4], NULL, 10) : 0,
                                       .callbacks = node_callbacks,
                                       .arg = &n};
    n.agent = cadastre_agent_new(&o, &e);
    if (n.agent == NULL) {
        (void)fprintf(stderr, "shardkv: %s\n", e.detail);
        return 1;
    }
    int code = serve(&n, argv[2]);
    cadastre_agent_free(n.agent);
    node_close(&n);
    curl_global_cleanup();
    return code;
}
