/* SPDX-License-Identifier: Apache-2.0 */
/* shardkv ENDPOINTS NODE ADDRESS DATA_DIR [HEARTBEAT_MS [LABEL=VALUE …]]: a node that serves until
 * SIGTERM. Labels such as region, zone and rack say where it stands. */
#include "examples/shardkv/replicate.h"

#include <curl/curl.h>
#include <microhttpd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { STOP_MS = 5000, LABELS_MAX = 16 };

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
    pthread_t workers[WORKERS], repairer;
    struct MHD_Daemon *http = http_start(n, address);
    if (http == NULL || !start_workers(n, workers) ||
        pthread_create(&repairer, NULL, replicate_repair, n) != 0) {
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

static int usage(void)
{
    (void)fputs("usage: shardkv ENDPOINTS NODE ADDRESS DATA_DIR [HEARTBEAT_MS [LABEL=VALUE …]]\n",
                stderr);
    return 2;
}

int main(int argc, char **argv)
{
    struct cadastre_label labels[LABELS_MAX];
    int label_count = argc > 6 ? argc - 6 : 0;
    if (argc < 5 || label_count > LABELS_MAX) {
        return usage();
    }
    for (int i = 0; i < label_count; i++) {
        if (!read_label(argv[6 + i], &labels[i])) {
            return usage();
        }
    }
    block_signals();
    (void)curl_global_init(CURL_GLOBAL_DEFAULT);
    (void)mkdir(argv[4], 0700);
    struct node n = {.data_dir = argv[4],
                     .endpoints = argv[1],
                     .address = argv[3],
                     .log_keep = from_environment("SHARDKV_LOG_KEEP", KV_LOG_KEEP),
                     .free_bytes = from_environment("SHARDKV_FREE_BYTES", UINT64_MAX),
                     .damage = from_environment("SHARDKV_DAMAGE", 0),
                     .lock = PTHREAD_MUTEX_INITIALIZER,
                     .collecting = PTHREAD_MUTEX_INITIALIZER,
                     .changed = PTHREAD_COND_INITIALIZER};
    struct cadastre_error e;
    struct cadastre_agent_options o = {.endpoints = argv[1],
                                       .node = argv[2],
                                       .address = argv[3],
                                       .labels = labels,
                                       .label_count = (size_t)label_count,
                                       .data_dir = argv[4],
                                       .heartbeat_ms = argc > 5 ? strtoul(argv[5], NULL, 10) : 0,
                                       .callbacks = node_callbacks,
                                       .arg = &n};
    n.agent = cadastre_agent_new(&o, &e);
    if (n.agent == NULL) {
        (void)fprintf(stderr, "shardkv: %s\n", e.detail);
        return 1;
    }
    int code = serve(&n, argv[3]);
    cadastre_agent_free(n.agent);
    node_close(&n);
    curl_global_cleanup();
    return code;
}
