/* SPDX-License-Identifier: Apache-2.0 */
/* shardkv-load: writers that route by libcadastre, and keep account.
 *
 *     shardkv-load ENDPOINTS KEYSPACE [WRITERS [KEYS [SECONDS [RECORDS [CITIES [NAME=VALUE …]]]]]]
 *
 * Every writer has keys of its own and writes 1, 2, 3, … to each. A write is sent again, under the
 * same mutation id, until it is acknowledged. RECORDS ("-": none) gets a line of JSON for each
 * acknowledged write, with true time (CLOCK_BOOTTIME, ns). CITIES is a file of keys with weights,
 * as examples/data/cities.tsv ("-": none); then KEYS does not count. What may be named is in
 * README.md: reads beside the writes, a rate, the sun, one hot key. At the end, which SIGINT and
 * SIGTERM bring forward, every key that was written is read back: it must hold the last number that
 * was acknowledged. The summary is a line of JSON on stdout, which README.md describes; exit 1 when
 * a write was lost, a stale one accepted, or one could not be settled. */
#include "examples/shardkv/load.h"
#include "client/cadastre.h"

#include <curl/curl.h>
#include <inttypes.h>
#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    WRITERS_MAX = 64,
    KEYS_MAX = 1024,
    TRY_MS = 7000, /* longer than a node takes to say that it does not know */
    ROUTE_MS = 500,
    PAUSE_MS = 2,
    SETTLE_S = 60, /* for the last writes and the reads */
    URL_SIZE = 4096
};

struct load {
    struct cadastre_router *router;
    const char *keyspace;
    uint64_t run; /* part of every mutation id: runs don't take each other's for their own */
    uint64_t begun_ns;
    unsigned writers;
    struct demand demand;
    struct rates rates;
    struct account account;
};

struct written {
    uint64_t last;      /* acknowledged */
    uint64_t partition; /* by this one */
};

struct writer {
    struct load *load;
    unsigned number;
    CURL *curl;
    pthread_t thread;
    struct keys keys;
    long hot;                /* the hot key's number, or -1 */
    struct written *written; /* owns; by key */
};

static _Atomic uint64_t end_ns; /* of the writing */

struct reply {
    long status; /* 0: none came */
    char text[2 * VALUE_SIZE];
    size_t len;
};

static uint64_t now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_BOOTTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static bool gives_up(void)
{
    return now_ns() >= atomic_load(&end_ns) + (uint64_t)SETTLE_S * 1000000000;
}

static void end_early(int number)
{
    uint64_t now = now_ns();
    (void)number;
    if (now < atomic_load(&end_ns)) {
        atomic_store(&end_ns, now);
    }
}

/* The second signal ends the process. */
static void heed_signals(void)
{
    struct sigaction sa = {.sa_handler = end_early, .sa_flags = SA_RESTART | (int)SA_RESETHAND};
    (void)sigaction(SIGINT, &sa, NULL);
    (void)sigaction(SIGTERM, &sa, NULL);
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
                       const struct record *r,
                       const struct cadastre_route *route,
                       long status,
                       const json_t *json)
{
    const char *key = r->key;
    uint64_t known = status == 421 ? member(json, "epoch") : 0;
    bool refused = status == 421 || json_is_false(json_object_get(json, "applied"));
    if (r->id != NULL) {
        account_no(&l->account, route->partition, r->begun, refused);
    }
    /* "Not now" is not elsewhere; and a node that knows less than the route will hear of it. */
    bool not_now = refused && status != 421;
    if (!not_now && (known == 0 || known >= route->epoch)) {
        (void)cadastre_router_stale(l->router, key, strlen(key), route->epoch, known, ROUTE_MS);
    }
    pause_ms(PAUSE_MS);
}

/* --- writing and reading back --- */

/* What is read back at the end is no demand. */
static void note_answer(struct writer *w, const struct cadastre_route *route, size_t k)
{
    struct load *l = w->load;
    uint64_t now = now_ns();
    if (now < atomic_load(&end_ns)) {
        rates_note(&l->rates, (now - l->begun_ns) / 1000000000, route->node, (long)k == w->hot);
    }
}

static void value_of(const struct load *l, uint64_t sequence, char *value)
{
    int len = snprintf(value, VALUE_SIZE, "%" PRIu64 " ", sequence);
    size_t bytes = l->demand.value_bytes;
    if (bytes > (size_t)len) {
        memset(value + len, '.', bytes - (size_t)len);
        value[bytes] = '\0';
    }
}

static bool put_url(const struct writer *w,
                    const struct cadastre_route *route,
                    const char *key,
                    const char *id,
                    char *out)
{
    char *key_text = curl_easy_escape(w->curl, key, 0), *id_text = curl_easy_escape(w->curl, id, 0);
    bool ok = key_text != NULL && id_text != NULL;
    if (ok) {
        (void)snprintf(
            out, URL_SIZE,
            "http://%s/kv?keyspace=%s&partition=%" PRIu64 "&epoch=%" PRIu64 "&key=%s&id=%s",
            route->address, w->load->keyspace, route->partition, route->epoch, key_text, id_text);
    }
    curl_free(key_text);
    curl_free(id_text);
    return ok;
}

/* Until it is acknowledged; false when time is up first. */
static bool write_one(struct writer *w, size_t k, uint64_t sequence)
{
    struct load *l = w->load;
    struct cadastre_route route;
    const char *key = w->keys.texts[k];
    char id[64], value[VALUE_SIZE], url[URL_SIZE];
    (void)snprintf(id, sizeof id, "%" PRIx64 "-%u-%zu-%" PRIu64, l->run, w->number, k, sequence);
    value_of(l, sequence, value);
    struct record r = {.key = key,
                       .id = id,
                       .sequence = sequence,
                       .begun = now_ns(),
                       .before = w->written[k].partition};
    while (!gives_up()) {
        json_t *json;
        if (!find(l, key, &route) || !put_url(w, &route, key, id, url)) {
            continue;
        }
        r.floor = account_floor(&l->account, route.partition);
        r.sent = now_ns();
        long status = request(w, url, value, &json);
        r.acknowledged = now_ns();
        r.hops++;
        if (status == 200) {
            r.node = route.node;
            r.partition = route.partition;
            r.epoch = member(json, "epoch");
            r.position = member(json, "position");
            account_write(&l->account, &r);
            note_answer(w, &route, k);
            json_decref(json);
            w->written[k] = (struct written){sequence, route.partition};
            return true;
        }
        look_again(l, &r, &route, status, json);
        json_decref(json);
    }
    return false;
}

/* `*ret_stale`: the answer itself says that it may be. */
static bool read_one(struct writer *w, size_t k, uint64_t *ret_value, bool *ret_stale)
{
    struct load *l = w->load;
    struct cadastre_route route;
    const char *key = w->keys.texts[k];
    const struct record r = {.key = key, .begun = now_ns()};
    char url[URL_SIZE];
    while (!gives_up()) {
        json_t *json;
        if (!find(l, key, &route) || !put_url(w, &route, key, "", url)) {
            continue;
        }
        long status = request(w, url, NULL, &json);
        if (status == 200 || status == 404) {
            const char *text = json_string_value(json_object_get(json, "value"));
            *ret_value = text != NULL ? strtoul(text, NULL, 10) : 0;
            *ret_stale = json_is_true(json_object_get(json, "stale"));
            note_answer(w, &route, k);
            json_decref(json);
            return true;
        }
        look_again(l, &r, &route, status, json);
        json_decref(json);
    }
    return false;
}

/* Nobody else writes the key, but if it is the hot one. */
static bool read_and_compare(struct writer *w, size_t k)
{
    struct account *a = &w->load->account;
    uint64_t value = 0, last = w->written[k].last;
    bool stale = false;
    if (!read_one(w, k, &value, &stale)) {
        return false;
    }
    bool wrong = !stale && value != last && ((long)k != w->hot || w->number == 0);
    atomic_fetch_add(&a->reads, 1);
    atomic_fetch_add(&a->stale_reads, stale);
    atomic_fetch_add(&a->wrong_reads, wrong);
    return true;
}

/* At its rate; what could not be asked for in time is not caught up with. */
static void wait_turn(const struct load *l, uint64_t *turn_ns)
{
    uint64_t now = now_ns(), each = l->demand.rate > 0 ? 1000000000 / l->demand.rate : 0;
    *turn_ns += each * l->writers;
    if (*turn_ns > now) {
        const struct timespec t = {(time_t)((*turn_ns - now) / 1000000000),
                                   (long)((*turn_ns - now) % 1000000000)};
        (void)nanosleep(&t, NULL);
    } else if (now - *turn_ns > 1000000000) {
        *turn_ns = now;
    }
}

static void *run_writer(void *arg)
{
    struct writer *w = arg;
    struct load *l = w->load;
    const struct demand *d = &l->demand;
    bool settled = true;
    uint64_t turn_ns = now_ns();
    while (settled && now_ns() < atomic_load(&end_ns)) {
        bool hot = demand_is_hot(d, &w->keys.random);
        size_t k = hot ? (size_t)w->hot : keys_choose(&w->keys, d, now_ns() - l->begun_ns);
        bool reads = demand_is_read(d, &w->keys.random) || (hot && w->number != 0);
        settled = reads ? read_and_compare(w, k) : write_one(w, k, w->written[k].last + 1);
        wait_turn(l, &turn_ns);
    }
    atomic_fetch_add(&l->account.unsettled, !settled);
    return NULL;
}

/* When no writer runs any more. */
static void *run_reader(void *arg)
{
    struct writer *w = arg;
    for (size_t k = 0; k < w->keys.count; k++) {
        uint64_t value = 0, last = w->written[k].last;
        bool stale = false;
        if (last > 0 && !read_one(w, k, &value, &stale)) {
            atomic_fetch_add(&w->load->account.unsettled, 1);
        } else if (value != last) {
            atomic_fetch_add(&w->load->account.lost, 1);
            (void)fprintf(stderr,
                          "shardkv-load: %s holds %" PRIu64 ", acknowledged was %" PRIu64 "\n",
                          w->keys.texts[k], value, last);
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

struct wishes {
    unsigned writers, keys, seconds;
    const char *cities; /* NULL: made-up keys */
};

static bool prepare(struct load *l, const struct wishes *o, struct writer *writers)
{
    bool ok = true;
    for (unsigned i = 0; ok && i < o->writers; i++) {
        struct writer *w = &writers[i];
        *w = (struct writer){.load = l, .number = i, .curl = curl_easy_init(), .hot = -1};
        ok = w->curl != NULL && (o->cities != NULL ? keys_read(&w->keys, o->cities, i, o->writers)
                                                   : keys_make(&w->keys, i, o->keys));
        if (ok && l->demand.hot_key != NULL) {
            w->hot = keys_add(&w->keys, l->demand.hot_key);
            ok = w->hot >= 0;
        }
        w->written = ok ? calloc(w->keys.count, sizeof *w->written) : NULL;
        ok = w->written != NULL;
    }
    return ok;
}

static int run(struct load *l, const struct wishes *o)
{
    static struct writer writers[WRITERS_MAX];
    bool ok = prepare(l, o, writers);
    l->begun_ns = now_ns();
    l->writers = o->writers;
    atomic_store(&end_ns, l->begun_ns + (uint64_t)o->seconds * 1000000000);
    heed_signals();
    ok = ok && run_all(writers, o->writers, run_writer) && run_all(writers, o->writers, run_reader);
    for (unsigned i = 0; i < o->writers; i++) {
        curl_easy_cleanup(writers[i].curl);
        keys_free(&writers[i].keys);
        free(writers[i].written);
    }
    bool good = account_summarise(&l->account);
    return ok && good && fflush(stdout) == 0 ? 0 : 1;
}

/* False: one is none, or its file can't be written. */
static bool read_demand(struct load *l, int argc, char **argv)
{
    bool ok = argc >= 3;
    for (int i = 8; ok && i < argc; i++) {
        ok = demand_read(&l->demand, argv[i]);
    }
    return ok && (l->demand.rates == NULL || rates_open(&l->rates, l->demand.rates));
}

int main(int argc, char **argv)
{
    static struct load l = {.account.lock = PTHREAD_MUTEX_INITIALIZER,
                            .rates.lock = PTHREAD_MUTEX_INITIALIZER};
    struct cadastre_error e;
    if (!read_demand(&l, argc, argv)) {
        (void)fputs("usage: shardkv-load ENDPOINTS KEYSPACE"
                    " [WRITERS [KEYS [SECONDS [RECORDS [CITIES [NAME=VALUE …]]]]]]\n",
                    stderr);
        return 2;
    }
    (void)curl_global_init(CURL_GLOBAL_DEFAULT);
    const struct cadastre_router_options o = {.endpoints = argv[1], .keyspace = argv[2]};
    const struct wishes wishes = {.writers = number(argc, argv, 3, 4, WRITERS_MAX),
                                  .keys = number(argc, argv, 4, 8, KEYS_MAX),
                                  .seconds = number(argc, argv, 5, 5, 3600),
                                  .cities = argc > 7 && strcmp(argv[7], "-") != 0 ? argv[7] : NULL};
    bool records = argc > 6 && strcmp(argv[6], "-") != 0;
    l.run = now_ns();
    l.keyspace = argv[2];
    l.account.records = records ? fopen(argv[6], "w") : NULL;
    l.router = cadastre_router_new(&o, &e);
    if (l.router == NULL || (records && l.account.records == NULL)) {
        (void)fprintf(stderr, "shardkv-load: %s\n",
                      l.router == NULL ? e.detail : "RECORDS can't be written");
        return 2;
    }
    int code = run(&l, &wishes);
    code = rates_close(&l.rates) ? code : 1;
    if (l.account.records != NULL && fclose(l.account.records) != 0) {
        code = 1;
    }
    cadastre_router_free(l.router);
    curl_global_cleanup();
    return code;
}
