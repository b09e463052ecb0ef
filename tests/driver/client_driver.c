/* SPDX-License-Identifier: Apache-2.0 */
/* libcadastre as a program for tests: a command a line on stdin, an answer (JSON) a line on stdout;
 * lines that begin with "*" are events. Words are separated by blanks; keys have none.
 *
 *     router ENDPOINTS KEYSPACE whole|lazy MAX_AGE_MS TIMEOUT_MS ENTRIES_MAX [TOKEN]
 *     ready MS | route KEY | wait MS KEY | stale USED KNOWN MS KEY | replicas KEY | each | stats
 *     herd THREADS USED KNOWN MS KEY     that many callers of cadastre_router_stale at once
 *     watch THREADS KEY,KEY,…            threads that read on; `watched` says what they saw
 *     watched */
#include "base/clock.h"
#include "base/mem.h"
#include "base/parse.h"
#include "client/cadastre.h"
#include "tests/driver/driver.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { LINE_SIZE = 65536, THREADS_MAX = 64, WATCHED_KEYS_MAX = 64, REPLICAS_MAX = 16 };

static struct cadastre_router *router;
static char token[256];
static pthread_mutex_t out_lock = PTHREAD_MUTEX_INITIALIZER;

void driver_say(const char *fmt, ...)
{
    va_list args;
    (void)pthread_mutex_lock(&out_lock);
    va_start(args, fmt);
    (void)vprintf(fmt, args);
    va_end(args);
    (void)putchar('\n');
    (void)fflush(stdout);
    (void)pthread_mutex_unlock(&out_lock);
}

uint64_t driver_number(const char *text)
{
    uint64_t n;
    return text != NULL && parse_u64(text, UINT64_MAX, &n) ? n : 0;
}

bool driver_credentials(void *arg, const char *server, char *out, size_t out_size)
{
    (void)arg;
    driver_say("*credentials %s", server);
    (void)snprintf(out, out_size, "Bearer %s", token);
    return true;
}

void driver_event(void *arg, const char *name, const char *detail)
{
    (void)arg;
    driver_say("*%s %s", name, detail);
}

static void status_only(enum cadastre_status status)
{
    driver_say("{\"status\":\"%s\"}", cadastre_status_name(status));
}

static void show_route(enum cadastre_status status, const struct cadastre_route *r)
{
    if (status != CADASTRE_OK && status != CADASTRE_STALE) {
        status_only(status);
        return;
    }
    driver_say("{\"status\":\"%s\",\"partition\":%" PRIu64 ",\"epoch\":%" PRIu64
               ",\"mod_revision\":%" PRIu64 ",\"age_ms\":%" PRIu64 ",\"rate_limit\":%" PRIu64
               ",\"state\":%d,\"authority\":%d,\"node\":\"%s\",\"address\":\"%s\"}",
               cadastre_status_name(status), r->partition, r->epoch, r->mod_revision, r->age_ms,
               r->rate_limit, (int)r->state, (int)r->authority, r->node, r->address);
}

/* --- commands --- */

static void do_router(char *const *w)
{
    struct cadastre_error e = {0};
    (void)snprintf(token, sizeof token, "%s", w[7] != NULL ? w[7] : "");
    struct cadastre_router_options o = {
        .endpoints = w[1],
        .keyspace = w[2],
        .mode = strcmp(w[3], "lazy") == 0 ? CADASTRE_LAZY : CADASTRE_WHOLE_MAP,
        .max_age_ms = driver_number(w[4]),
        .timeout_ms = driver_number(w[5]),
        .entries_max = driver_number(w[6]),
        .credentials = w[7] != NULL ? driver_credentials : NULL,
        .event = driver_event,
    };
    cadastre_router_free(router);
    router = cadastre_router_new(&o, &e);
    driver_say("{\"status\":\"%s\",\"detail\":\"%s\"}",
               cadastre_status_name(router != NULL ? CADASTRE_OK : e.status), e.detail);
}

static void do_ready(char *const *w)
{
    struct cadastre_error e = {0};
    enum cadastre_status status = cadastre_router_ready(router, driver_number(w[1]), &e);
    driver_say("{\"status\":\"%s\",\"code\":\"%s\"}", cadastre_status_name(status), e.code);
}

static void do_route(char *const *w)
{
    struct cadastre_route r;
    const char *key = w[1] != NULL ? w[1] : "";
    show_route(cadastre_route(router, key, strlen(key), &r), &r);
}

static void do_wait(char *const *w)
{
    struct cadastre_route r;
    const char *key = w[2] != NULL ? w[2] : "";
    enum cadastre_status status =
        cadastre_route_wait(router, key, strlen(key), driver_number(w[1]), &r);
    show_route(status, &r);
}

static enum cadastre_status stale(char *const *w)
{
    return cadastre_router_stale(router, w[4], strlen(w[4]), driver_number(w[1]),
                                 driver_number(w[2]), driver_number(w[3]));
}

static void do_stale(char *const *w)
{
    status_only(stale(w));
}

static void *herd_one(void *arg)
{
    return stale(arg) == CADASTRE_OK ? arg : NULL;
}

static void do_herd(char *const *w)
{
    pthread_t threads[THREADS_MAX];
    uint64_t n = driver_number(w[1]), started = 0, ok = 0;
    union {
        char *const *in;
        void *out;
    } words = {w + 1};
    for (; started < n && started < THREADS_MAX; started++) {
        if (pthread_create(&threads[started], NULL, herd_one, words.out) != 0) {
            break;
        }
    }
    for (uint64_t i = 0; i < started; i++) {
        void *result = NULL;
        (void)pthread_join(threads[i], &result);
        ok += result != NULL;
    }
    driver_say("{\"ok\":%" PRIu64 ",\"of\":%" PRIu64 "}", ok, started);
}

static void do_replicas(char *const *w)
{
    struct cadastre_replica replicas[REPLICAS_MAX];
    size_t n;
    enum cadastre_status status =
        cadastre_route_replicas(router, w[1], strlen(w[1]), replicas, REPLICAS_MAX, &n);
    char text[4096];
    int at = snprintf(text, sizeof text, "{\"status\":\"%s\",\"count\":%zu,\"replicas\":[",
                      cadastre_status_name(status), n);
    for (size_t i = 0; i < n && i < REPLICAS_MAX; i++) {
        at += snprintf(text + at, sizeof text - (size_t)at,
                       "%s{\"role\":%d,\"node\":\"%s\",\"address\":\"%s\"}", i > 0 ? "," : "",
                       (int)replicas[i].role, replicas[i].node, replicas[i].address);
    }
    driver_say("%s]}", text);
}

struct coverage {
    uint64_t count, holes, epochs; /* the last is a sum, to compare maps by */
    uint8_t end[1100];
    size_t end_len;
    bool open;
};

static bool cover(void *arg,
                  const struct cadastre_route *route,
                  const void *start,
                  size_t start_len,
                  const void *end,
                  size_t end_len)
{
    struct coverage *c = arg;
    c->holes += start_len != c->end_len || (start_len > 0 && memcmp(start, c->end, start_len) != 0);
    c->count++;
    c->epochs += route->epoch;
    c->open = end == NULL;
    c->end_len = end_len;
    if (end_len > 0) {
        memcpy(c->end, end, end_len);
    }
    return true;
}

static void do_each(char *const *w)
{
    struct coverage c = {0};
    (void)w;
    uint64_t n = cadastre_router_each(router, "", 0, NULL, 0, cover, &c);
    driver_say("{\"count\":%" PRIu64 ",\"holes\":%" PRIu64 ",\"epochs\":%" PRIu64 "}", n,
               c.holes + !c.open, c.epochs);
}

static void do_stats(char *const *w)
{
    struct cadastre_router_stats s;
    (void)w;
    cadastre_router_stats(router, &s);
    driver_say("{\"revision\":%" PRIu64 ",\"entries\":%" PRIu64 ",\"age_ms\":%" PRIu64
               ",\"maps\":%" PRIu64 ",\"deltas\":%" PRIu64 ",\"changes\":%" PRIu64
               ",\"refreshes\":%" PRIu64 ",\"refused\":%" PRIu64 ",\"failures\":%" PRIu64 "}",
               s.revision, s.entries, s.age_ms, s.maps, s.deltas, s.changes, s.refreshes, s.refused,
               s.failures);
}

/* --- readers that check that nothing gets older --- */

static struct {
    pthread_t threads[THREADS_MAX];
    unsigned count, key_count;
    char *keys[WATCHED_KEYS_MAX];
    _Atomic bool stop;
    _Atomic uint64_t reads, older, misses;
} watch;

static void *watch_one(void *arg)
{
    uint64_t seen[WATCHED_KEYS_MAX] = {0};
    (void)arg;
    while (!atomic_load(&watch.stop)) {
        for (unsigned i = 0; i < watch.key_count; i++) {
            struct cadastre_route r;
            enum cadastre_status status =
                cadastre_route(router, watch.keys[i], strlen(watch.keys[i]), &r);
            atomic_fetch_add(&watch.reads, 1);
            if (status != CADASTRE_OK && status != CADASTRE_STALE) {
                atomic_fetch_add(&watch.misses, 1);
                continue;
            }
            if (r.mod_revision < seen[i]) {
                atomic_fetch_add(&watch.older, 1);
            }
            seen[i] = r.mod_revision;
        }
    }
    return NULL;
}

static void do_watch(char *const *w)
{
    char *keys = mem_strdup(w[2]), *rest = keys, *key;
    watch.key_count = 0;
    while ((key = strsep(&rest, ",")) != NULL && watch.key_count < WATCHED_KEYS_MAX) {
        watch.keys[watch.key_count++] = mem_strdup(key);
    }
    mem_free(keys);
    atomic_store(&watch.stop, false);
    atomic_store(&watch.reads, 0);
    atomic_store(&watch.older, 0);
    atomic_store(&watch.misses, 0);
    for (watch.count = 0; watch.count < driver_number(w[1]) && watch.count < THREADS_MAX;
         watch.count++) {
        if (pthread_create(&watch.threads[watch.count], NULL, watch_one, NULL) != 0) {
            break;
        }
    }
    driver_say("{\"threads\":%u}", watch.count);
}

static void do_watched(char *const *w)
{
    (void)w;
    atomic_store(&watch.stop, true);
    for (unsigned i = 0; i < watch.count; i++) {
        (void)pthread_join(watch.threads[i], NULL);
    }
    for (unsigned i = 0; i < watch.key_count; i++) {
        mem_free(watch.keys[i]);
    }
    watch.count = watch.key_count = 0;
    driver_say("{\"reads\":%" PRIu64 ",\"older\":%" PRIu64 ",\"misses\":%" PRIu64 "}",
               atomic_load(&watch.reads), atomic_load(&watch.older), atomic_load(&watch.misses));
}

static const struct driver_command commands[] = {
    {"router", 7, do_router},     {"ready", 2, do_ready},     {"route", 1, do_route},
    {"wait", 2, do_wait},         {"stale", 5, do_stale},     {"herd", 6, do_herd},
    {"replicas", 2, do_replicas}, {"each", 1, do_each},       {"stats", 1, do_stats},
    {"watch", 3, do_watch},       {"watched", 1, do_watched}, {NULL, 0, NULL},
};

static bool dispatch(const struct driver_command *list, unsigned count, char *const *words)
{
    for (; list->name != NULL; list++) {
        if (strcmp(list->name, words[0]) == 0 && count >= list->words_min) {
            list->run(words);
            return true;
        }
    }
    return false;
}

int main(void)
{
    static char line[LINE_SIZE];
    while (fgets(line, sizeof line, stdin) != NULL) {
        char *words[DRIVER_WORDS_MAX + 1] = {NULL}, *rest = line, *word;
        unsigned count = 0;
        line[strcspn(line, "\n")] = '\0';
        while (count < DRIVER_WORDS_MAX && (word = strsep(&rest, " ")) != NULL) {
            words[count++] = word;
        }
        if (!dispatch(commands, count, words) && !dispatch(driver_agent_commands, count, words)) {
            driver_say("{\"status\":\"no such command\"}");
        }
    }
    cadastre_router_free(router);
    driver_agent_end();
    return 0;
}
