/* SPDX-License-Identifier: Apache-2.0 */
/* shardkv-load: writers that route by libcadastre, and keep account.
 *
 *     shardkv-load ENDPOINTS KEYSPACE [WRITERS [KEYS [SECONDS [RECORDS]]]]
 *
 * Every writer has keys of its own and writes 1, 2, 3, … to each. A write is sent again, under the
 * same mutation id, until it is acknowledged. RECORDS gets a line of JSON for each acknowledged
 * write, with true time (CLOCK_BOOTTIME, ns). At the end every key is read back: it must hold the
 * last number that was acknowledged. The summary is on stdout; exit 1 when a write was lost, a
 * stale one accepted, or one could not be settled. */
#include "client/cadastre.h"

#include <curl/curl.h>
#include <inttypes.h>
#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    WRITERS_MAX = 64,
    KEYS_MAX = 1024,
    PARTS = 4096,
    KEY_SIZE = 32,
    TRY_MS = 7000, /* longer than a node takes to say that it does not know */
    ROUTE_MS = 500,
    PAUSE_MS = 10,
    SETTLE_S = 60 /* for the last writes and the reads */
};

/* What all writers know of a partition. */
struct seen {
    uint64_t partition;
    uint64_t epoch;           /* the highest that something was acknowledged at */
    uint64_t acknowledged_ns; /* when, last */
};

struct load {
    struct cadastre_router *router;
    const char *keyspace;
    unsigned keys;
    uint64_t end_ns, give_up_ns;
    FILE *records;
    pthread_mutex_t lock; /* guards the records and what follows */
    struct seen seen[PARTS];
    uint64_t pause_ns, hops_max;
    _Atomic uint64_t writes, redirects, unknown, stale, lost, unsettled;
};

struct writer {
    struct load *load;
    unsigned number;
    CURL *curl;
    pthread_t thread;
    uint64_t last[KEYS_MAX]; /* acknowledged, by key */
};

struct reply {
    long status; /* 0: none came */
    char text[1024];
    size_t len;
};

static uint64_t now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_BOOTTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void pause_ms(unsigned ms)
{
    const struct timespec t = {ms / 1000, (long)(ms % 1000) * 1000000};
    (void)nanosleep(&t, NULL);
}

/* --- requests --- */

static size_t take(char *bytes, size_t one, size_t n, void *arg)
{
    struct reply *r = arg;
    (void)one;
    if (n >= sizeof r->text - r->len) {
        return 0;
    }
    memcpy(r->text + r->len, bytes, n);
    r->len += n;
    return n;
}

/* `value` NULL reads. The caller drops `*ret_json`. */
static long request(struct writer *w, const char *url, const char *value, json_t **ret_json)
{
    struct reply r = {0};
    CURL *c = w->curl;
    curl_easy_reset(c);
    (void)curl_easy_setopt(c, CURLOPT_URL, url);
    (void)curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    (void)curl_easy_setopt(c, CURLOPT_PROXY, "");
    (void)curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, (long)TRY_MS);
    (void)curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, take);
    (void)curl_easy_setopt(c, CURLOPT_WRITEDATA, &r);
    if (value != NULL) {
        (void)curl_easy_setopt(c, CURLOPT_CUSTOMREQUEST, "PUT");
        (void)curl_easy_setopt(c, CURLOPT_POSTFIELDS, value);
    }
    if (curl_easy_perform(c) == CURLE_OK) {
        (void)curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &r.status);
    }
    *ret_json = json_loadb(r.text, r.len, 0, NULL);
    return r.status;
}

static uint64_t member(const json_t *json, const char *name)
{
    return (uint64_t)json_integer_value(json_object_get(json, name));
}

/* The route of a key that has a primary; false: not now. */
static bool find(struct load *l, const char *key, struct cadastre_route *ret_route)
{
    enum cadastre_status s = cadastre_route_wait(l->router, key, strlen(key), ROUTE_MS, ret_route);
    if (s != CADASTRE_OK && s != CADASTRE_STALE) {
        pause_ms(PAUSE_MS);
        return false;
    }
    if (ret_route->address[0] == '\0') {
        pause_ms(PAUSE_MS);
        (void)cadastre_router_stale(l->router, key, strlen(key), ret_route->epoch, 0, ROUTE_MS);
        return false;
    }
    return true;
}

/* Anything but an answer that settles it: looks again where the key is. */
static void look_again(struct load *l,
                       const char *key,
                       const struct cadastre_route *route,
                       long status,
                       const json_t *json)
{
    uint64_t known = status == 421 ? member(json, "epoch") : 0;
    atomic_fetch_add(status == 421 ? &l->redirects : &l->unknown, 1);
    (void)cadastre_router_stale(l->router, key, strlen(key), route->epoch, known, ROUTE_MS);
    pause_ms(PAUSE_MS);
}

/* --- keeping account --- */

/* With the lock; NULL when there are too many. */
static struct seen *seen_of(struct load *l, uint64_t partition)
{
    for (unsigned i = 0; i < PARTS; i++) {
        struct seen *s = &l->seen[(partition + i) % PARTS];
        if (s->partition == partition || s->partition == 0) {
            s->partition = partition;
            return s;
        }
    }
    return NULL;
}

/* The highest epoch that the partition has acknowledged something at, before a write is sent. */
static uint64_t floor_of(struct load *l, uint64_t partition)
{
    (void)pthread_mutex_lock(&l->lock);
    struct seen *s = seen_of(l, partition);
    uint64_t epoch = s != NULL ? s->epoch : 0;
    (void)pthread_mutex_unlock(&l->lock);
    return epoch;
}

struct record {
    const char *node, *key, *id;
    uint64_t partition, epoch, position, sequence;
    uint64_t begun, sent, acknowledged; /* first sent, last sent, answered */
    uint64_t floor;
    unsigned hops;
};

static void account(struct load *l, const struct record *r)
{
    (void)pthread_mutex_lock(&l->lock);
    struct seen *s = seen_of(l, r->partition);
    if (s != NULL) {
        /* How long the partition had acknowledged nothing while this one waited. */
        uint64_t from = s->acknowledged_ns > r->begun ? s->acknowledged_ns : r->begun;
        uint64_t pause = r->acknowledged > from ? r->acknowledged - from : 0;
        l->pause_ns = pause > l->pause_ns ? pause : l->pause_ns;
        s->acknowledged_ns =
            r->acknowledged > s->acknowledged_ns ? r->acknowledged : s->acknowledged_ns;
        s->epoch = r->epoch > s->epoch ? r->epoch : s->epoch;
    }
    l->hops_max = r->hops > l->hops_max ? r->hops : l->hops_max;
    if (r->epoch < r->floor) {
        atomic_fetch_add(&l->stale, 1); /* after a later epoch had been in force */
    }
    if (l->records != NULL) {
        (void)fprintf(l->records,
                      "{\"node\":\"%s\",\"partition\":%" PRIu64 ",\"key\":\"%s\",\"epoch\":%" PRIu64
                      ",\"position\":%" PRIu64 ",\"sequence\":%" PRIu64 ",\"id\":\"%s\""
                      ",\"begun\":%" PRIu64 ",\"sent\":%" PRIu64 ",\"acknowledged\":%" PRIu64
                      ",\"hops\":%u}\n",
                      r->node, r->partition, r->key, r->epoch, r->position, r->sequence, r->id,
                      r->begun, r->sent, r->acknowledged, r->hops);
    }
    (void)pthread_mutex_unlock(&l->lock);
    atomic_fetch_add(&l->writes, 1);
}

/* --- writing and reading back --- */

static void put_key(const struct writer *w, unsigned k, char *out)
{
    (void)snprintf(out, KEY_SIZE, "%c%02u-%03u", (char)('a' + k % 26), w->number, k);
}

/* Until it is acknowledged; false when time is up first. */
static bool write_one(struct writer *w, unsigned k, uint64_t sequence)
{
    struct load *l = w->load;
    struct cadastre_route route;
    char key[KEY_SIZE], id[64], value[24], url[1024];
    put_key(w, k, key);
    (void)snprintf(id, sizeof id, "%s-%" PRIu64, key, sequence);
    (void)snprintf(value, sizeof value, "%" PRIu64, sequence);
    struct record r = {.key = key, .id = id, .sequence = sequence, .begun = now_ns()};
    while (now_ns() < l->give_up_ns) {
        json_t *json;
        if (!find(l, key, &route)) {
            continue;
        }
        (void)snprintf(url, sizeof url,
                       "http://%s/kv?keyspace=%s&partition=%" PRIu64 "&epoch=%" PRIu64
                       "&key=%s&id=%s",
                       route.address, l->keyspace, route.partition, route.epoch, key, id);
        r.floor = floor_of(l, route.partition);
        r.sent = now_ns();
        long status = request(w, url, value, &json);
        r.acknowledged = now_ns();
        r.hops++;
        if (status == 200) {
            r.node = route.node;
            r.partition = route.partition;
            r.epoch = member(json, "epoch");
            r.position = member(json, "position");
            account(l, &r);
            json_decref(json);
            return true;
        }
        look_again(l, key, &route, status, json);
        json_decref(json);
    }
    return false;
}

static bool read_one(struct writer *w, unsigned k, uint64_t *ret_value)
{
    struct load *l = w->load;
    struct cadastre_route route;
    char key[KEY_SIZE], url[1024];
    put_key(w, k, key);
    while (now_ns() < l->give_up_ns) {
        json_t *json;
        if (!find(l, key, &route)) {
            continue;
        }
        (void)snprintf(url, sizeof url,
                       "http://%s/kv?keyspace=%s&partition=%" PRIu64 "&epoch=%" PRIu64 "&key=%s",
                       route.address, l->keyspace, route.partition, route.epoch, key);
        long status = request(w, url, NULL, &json);
        if (status == 200 || status == 404) {
            const char *text = json_string_value(json_object_get(json, "value"));
            *ret_value = text != NULL ? strtoul(text, NULL, 10) : 0;
            json_decref(json);
            return true;
        }
        look_again(l, key, &route, status, json);
        json_decref(json);
    }
    return false;
}

static void *run_writer(void *arg)
{
    struct writer *w = arg;
    struct load *l = w->load;
    bool settled = true;
    for (unsigned k = 0; settled && now_ns() < l->end_ns; k = (k + 1) % l->keys) {
        settled = write_one(w, k, w->last[k] + 1);
        w->last[k] += settled;
    }
    atomic_fetch_add(&l->unsettled, !settled);
    return NULL;
}

/* When no writer runs any more. */
static void *run_reader(void *arg)
{
    struct writer *w = arg;
    for (unsigned k = 0; k < w->load->keys; k++) {
        uint64_t value = 0;
        if (w->last[k] > 0 && !read_one(w, k, &value)) {
            atomic_fetch_add(&w->load->unsettled, 1);
        } else if (value != w->last[k]) {
            atomic_fetch_add(&w->load->lost, 1);
            (void)fprintf(stderr,
                          "shardkv-load: key %u of writer %u holds %" PRIu64
                          ", acknowledged was %" PRIu64 "\n",
                          k, w->number, value, w->last[k]);
        }
    }
    return NULL;
}

static bool run_all(struct writer *writers, unsigned count, void *(*fn)(void *arg))
{
    unsigned begun = 0;
    while (begun < count &&
           pthread_create(&writers[begun].thread, NULL, fn, &writers[begun]) == 0) {
        begun++;
    }
    for (unsigned i = 0; i < begun; i++) {
        (void)pthread_join(writers[i].thread, NULL);
    }
    return begun == count;
}

/* --- the program --- */

static unsigned number(int argc, char **argv, int at, unsigned fallback, unsigned max)
{
    unsigned long v = at < argc ? strtoul(argv[at], NULL, 10) : fallback;
    return v == 0 ? fallback : v > max ? max : (unsigned)v;
}

static int summarise(struct load *l)
{
    (void)printf("{\"writes\":%" PRIu64 ",\"redirects\":%" PRIu64 ",\"unknown\":%" PRIu64
                 ",\"hops_max\":%" PRIu64 ",\"pause_ms\":%" PRIu64 ",\"lost\":%" PRIu64
                 ",\"stale\":%" PRIu64 ",\"unsettled\":%" PRIu64 "}\n",
                 atomic_load(&l->writes), atomic_load(&l->redirects), atomic_load(&l->unknown),
                 l->hops_max, l->pause_ns / 1000000, atomic_load(&l->lost), atomic_load(&l->stale),
                 atomic_load(&l->unsettled));
    bool good = atomic_load(&l->lost) + atomic_load(&l->stale) + atomic_load(&l->unsettled) == 0;
    return good && fflush(stdout) == 0 ? 0 : 1;
}

static int run(struct load *l, unsigned count, unsigned seconds)
{
    static struct writer writers[WRITERS_MAX];
    for (unsigned i = 0; i < count; i++) {
        writers[i] = (struct writer){.load = l, .number = i, .curl = curl_easy_init()};
        if (writers[i].curl == NULL) {
            return 1;
        }
    }
    l->end_ns = now_ns() + (uint64_t)seconds * 1000000000;
    l->give_up_ns = l->end_ns + (uint64_t)SETTLE_S * 1000000000;
    bool ran = run_all(writers, count, run_writer) && run_all(writers, count, run_reader);
    for (unsigned i = 0; i < count; i++) {
        curl_easy_cleanup(writers[i].curl);
    }
    int code = summarise(l);
    return ran ? code : 1;
}

int main(int argc, char **argv)
{
    static struct load l = {.lock = PTHREAD_MUTEX_INITIALIZER};
    struct cadastre_error e;
    if (argc < 3) {
        (void)fputs("usage: shardkv-load ENDPOINTS KEYSPACE [WRITERS [KEYS [SECONDS [RECORDS]]]]\n",
                    stderr);
        return 2;
    }
    (void)curl_global_init(CURL_GLOBAL_DEFAULT);
    const struct cadastre_router_options o = {.endpoints = argv[1], .keyspace = argv[2]};
    l.keyspace = argv[2];
    l.keys = number(argc, argv, 4, 8, KEYS_MAX);
    l.records = argc > 6 ? fopen(argv[6], "w") : NULL;
    l.router = cadastre_router_new(&o, &e);
    if (l.router == NULL || (argc > 6 && l.records == NULL)) {
        (void)fprintf(stderr, "shardkv-load: %s\n",
                      l.router == NULL ? e.detail : "RECORDS can't be written");
        return 2;
    }
    int code = run(&l, number(argc, argv, 3, 4, WRITERS_MAX), number(argc, argv, 5, 5, 3600));
    if (l.records != NULL && fclose(l.records) != 0) {
        code = 1;
    }
    cadastre_router_free(l.router);
    curl_global_cleanup();
    return code;
}
