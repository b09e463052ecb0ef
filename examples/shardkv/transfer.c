/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/shardkv/transfer.h"

#include "examples/shardkv/copy.h"

#include <curl/curl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

enum { URL_SIZE = 768 };

void transfer_checksum(const char *bytes, size_t len, char *out)
{
    (void)snprintf(out, 17, "%016" PRIx64, (uint64_t)XXH3_64bits(bytes, len));
}

/* --- the primary's side --- */

/* With `lock`. */
static bool serves(const struct part *p, uint64_t epoch)
{
    return p->store != NULL && p->role == CADASTRE_ROLE_PRIMARY && p->epoch == epoch;
}

enum outcome transfer_changes(struct part *p, const struct wanted *w, struct sent *ret)
{
    enum outcome outcome = WRONG_EPOCH;
    json_t *json = json_array();
    *ret = (struct sent){.text = NULL};
    (void)pthread_mutex_lock(&p->lock);
    uint64_t left = 0;
    if (serves(p, w->epoch)) {
        left = kv_position(p->store) > w->after ? kv_position(p->store) - w->after : 0;
        bool known = strcmp(kv_origin(p->store), w->origin) == 0 && w->after >= kv_base(p->store);
        (void)(known && kv_epoch_at(p->store, w->after, &ret->epoch_at));
        outcome = !known                                                              ? GAP
                  : ret->epoch_at != w->after_epoch                                   ? ELSEWHERE
                  : kv_changes(p->store, w->after, PEER_BATCH, peer_put_change, json) ? DONE
                                                                                      : NOT_NOW;
    }
    (void)pthread_mutex_unlock(&p->lock);
    ret->text = outcome == DONE ? json_dumps(json, JSON_COMPACT) : NULL;
    size_t count = json_array_size(json);
    if (ret->text != NULL && left > count) {
        ret->lag = strlen(ret->text) / count * (left - count); /* as if all were like these */
    }
    json_decref(json);
    return outcome;
}

static bool serves_now(struct part *p, uint64_t epoch)
{
    (void)pthread_mutex_lock(&p->lock);
    bool ok = serves(p, epoch);
    (void)pthread_mutex_unlock(&p->lock);
    return ok;
}

/* The file, if it has that snapshot. */
static bool
find_snapshot(struct node *n, struct part *p, const char *name, char *path, struct kv_snapshot *ret)
{
    (void)pthread_mutex_lock(&p->lock);
    copy_snapshot_path(n, p, path);
    p->snapshot_used_ms = copy_now_ms();
    (void)pthread_mutex_unlock(&p->lock);
    return kv_snapshot_read(path, ret) && strcmp(ret->name, name) == 0;
}

enum outcome
transfer_describe(struct node *n, struct part *p, uint64_t epoch, const char *name, char **ret_text)
{
    struct kv_snapshot s;
    char path[COPY_PATH_SIZE], running[17];
    if (!serves_now(p, epoch)) {
        return WRONG_EPOCH;
    }
    if (!(name == NULL ? copy_snapshot(n, p, NULL, &s) : find_snapshot(n, p, name, path, &s))) {
        return GAP;
    }
    (void)snprintf(running, sizeof running, "%016" PRIx64, s.running);
    json_t *json = json_pack("{s:s,s:s,s:s,s:I,s:I,s:I,s:I,s:I}", "name", s.name, "origin",
                             s.origin, "running", running, "position", (json_int_t)s.position,
                             "epoch", (json_int_t)s.epoch, "items", (json_int_t)s.items, "ids",
                             (json_int_t)s.ids, "bytes", (json_int_t)s.bytes);
    *ret_text = json_dumps(json, JSON_COMPACT);
    json_decref(json);
    return *ret_text != NULL ? DONE : NOT_NOW;
}

static void put_row(void *arg, const struct kv_row *row)
{
    (void)json_array_append_new(
        arg, json_pack("[I,s,s?]", (json_int_t)row->position, row->key, row->value));
}

enum outcome transfer_chunk(struct node *n,
                            struct part *p,
                            uint64_t epoch,
                            const char *name,
                            uint64_t chunk,
                            char **ret_text)
{
    struct kv_snapshot s;
    char path[COPY_PATH_SIZE];
    if (!serves_now(p, epoch)) {
        return WRONG_EPOCH;
    }
    if (!find_snapshot(n, p, name, path, &s)) {
        return GAP;
    }
    json_t *rows = json_array();
    bool ok = kv_snapshot_chunk(path, chunk, put_row, rows);
    *ret_text = ok ? json_dumps(rows, JSON_COMPACT) : NULL;
    json_decref(rows);
    return *ret_text != NULL ? DONE : NOT_NOW;
}

/* --- the copy's side --- */

struct answer {
    char *bytes;
    size_t len;
    char checksum[17]; /* as it was sent */
    uint64_t lag;
};

static size_t take_bytes(char *bytes, size_t one, size_t n, void *arg)
{
    struct answer *c = arg;
    (void)one;
    char *grown = c->len + n <= PEER_BODY_MAX ? realloc(c->bytes, c->len + n) : NULL;
    if (grown == NULL) {
        return 0;
    }
    memcpy(grown + c->len, bytes, n);
    c->bytes = grown;
    c->len += n;
    return n;
}

static size_t take_header(char *bytes, size_t one, size_t n, void *arg)
{
    static const char sum[] = "X-Checksum: ", lag[] = "X-Lag-Bytes: ";
    struct answer *c = arg;
    (void)one;
    if (n >= sizeof sum - 1 + 16 && strncasecmp(bytes, sum, sizeof sum - 1) == 0) {
        memcpy(c->checksum, bytes + sizeof sum - 1, 16);
    } else if (n > sizeof lag && strncasecmp(bytes, lag, sizeof lag - 1) == 0) {
        c->lag = strtoull(bytes + sizeof lag - 1, NULL, 10);
    }
    return n;
}

static long get(CURL *curl, const char *url, struct answer *a)
{
    long status = 0;
    *a = (struct answer){.len = 0};
    (void)curl_easy_setopt(curl, CURLOPT_URL, url);
    (void)curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    (void)curl_easy_setopt(curl, CURLOPT_PROXY, "");
    (void)curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)PEER_TRY_MS);
    (void)curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_bytes);
    (void)curl_easy_setopt(curl, CURLOPT_WRITEDATA, a);
    (void)curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, take_header);
    (void)curl_easy_setopt(curl, CURLOPT_HEADERDATA, a);
    if (curl_easy_perform(curl) == CURLE_OK) {
        (void)curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    }
    return status;
}

static bool is_whole(const struct answer *a)
{
    char sum[17];
    transfer_checksum(a->bytes != NULL ? a->bytes : "", a->len, sum);
    return strcmp(sum, a->checksum) == 0;
}

/* The caller frees the bytes and drops the JSON. */
static enum pulled
get_json(struct puller *from, const char *url, struct answer *a, json_t **ret_json)
{
    long status = get(from->curl, url, a);
    *ret_json = json_loadb(a->bytes != NULL ? a->bytes : "", a->len, 0, NULL);
    return status == 200   ? is_whole(a) ? PULLED : PULL_DAMAGED
           : status == 409 ? PULL_AGAIN
           : status == 410 ? PULL_GONE
                           : PULL_NOT_YET;
}

long pull_json(void *curl, const char *url, json_t **ret_json)
{
    struct answer a;
    long status = get(curl, url, &a);
    *ret_json = json_loadb(a.bytes != NULL ? a.bytes : "", a.len, 0, NULL);
    free(a.bytes);
    return status;
}

static enum pulled as_pulled(enum outcome o)
{
    return o == DONE ? PULLED : o == GAP ? PULL_GONE : o == ELSEWHERE ? PULL_AGAIN : PULL_NOT_YET;
}

enum pulled pull_changes(struct node *n, struct part *p, struct puller *from, uint64_t *ret_lag)
{
    char url[URL_SIZE], origin[KV_ORIGIN_SIZE] = "";
    struct kv_batch b = {.epoch = from->epoch, .start = from->start, .last = UINT64_MAX};
    struct change *changes = NULL;
    struct answer a;
    uint64_t position;
    json_t *json;
    (void)pthread_mutex_lock(&p->lock);
    if (p->store != NULL) {
        b.after = kv_position(p->store);
        b.after_epoch = kv_epoch(p->store);
        (void)snprintf(origin, sizeof origin, "%s", kv_origin(p->store));
    }
    (void)pthread_mutex_unlock(&p->lock);
    b.origin = origin;
    (void)snprintf(url, sizeof url,
                   "http://%s/changes?keyspace=%s&partition=%" PRIu64 "&epoch=%" PRIu64
                   "&after=%" PRIu64 "&after_epoch=%" PRIu64 "&origin=%s",
                   from->address, p->keyspace, p->id, from->epoch, b.after, b.after_epoch, origin);
    enum pulled pulled = get_json(from, url, &a, &json);
    *ret_lag = a.lag;
    if (pulled == PULLED && !peer_read_changes(json, &changes, &b.count)) {
        pulled = PULL_DAMAGED;
    } else if (pulled == PULLED) {
        b.changes = changes;
        pulled = as_pulled(node_follow(n, p, 0, &b, &position));
        pulled = pulled == PULLED && b.count == 0 ? PULL_NOTHING_LEFT : pulled;
    } else if (pulled == PULL_AGAIN) {
        /* What an earlier attempt left parts from the primary's log here: back by one entry. */
        b.after_epoch = (uint64_t)json_integer_value(json_object_get(json, "epoch"));
        pulled = node_follow(n, p, 0, &b, &position) == GAP ? PULL_GONE : PULL_AGAIN;
    }
    json_decref(json);
    free(changes);
    free(a.bytes);
    return pulled;
}

static uint64_t number(const json_t *json, const char *name)
{
    return (uint64_t)json_integer_value(json_object_get(json, name));
}

static const char *text(const json_t *json, const char *name)
{
    const char *v = json_string_value(json_object_get(json, name));
    return v != NULL ? v : "";
}

enum pulled
pull_describe(struct part *p, struct puller *from, const char *name, struct kv_snapshot *ret)
{
    char url[URL_SIZE];
    struct answer a;
    json_t *json;
    (void)snprintf(url, sizeof url,
                   "http://%s/snapshot?keyspace=%s&partition=%" PRIu64 "&epoch=%" PRIu64 "&name=%s",
                   from->address, p->keyspace, p->id, from->epoch, name != NULL ? name : "");
    enum pulled pulled = get_json(from, url, &a, &json);
    if (pulled == PULLED) {
        *ret = (struct kv_snapshot){.position = number(json, "position"),
                                    .epoch = number(json, "epoch"),
                                    .running = strtoull(text(json, "running"), NULL, 16),
                                    .items = number(json, "items"),
                                    .ids = number(json, "ids"),
                                    .bytes = number(json, "bytes")};
        (void)snprintf(ret->name, sizeof ret->name, "%s", text(json, "name"));
        (void)snprintf(ret->origin, sizeof ret->origin, "%s", text(json, "origin"));
        pulled = ret->name[0] != '\0' ? PULLED : PULL_DAMAGED;
    }
    json_decref(json);
    free(a.bytes);
    return pulled;
}

/* The texts are the JSON's. */
static bool read_rows(const json_t *json, struct kv_row *rows, size_t *ret_count)
{
    size_t n = json_array_size(json);
    bool ok = json_is_array(json) && n <= KV_CHUNK;
    for (size_t i = 0; ok && i < n; i++) {
        json_int_t position = 0;
        json_t *value = NULL;
        ok = json_unpack(json_array_get(json, i), "[I,s,o]", &position, &rows[i].key, &value) == 0;
        rows[i].position = (uint64_t)position;
        rows[i].value = json_string_value(value); /* of a mutation id there is none */
    }
    *ret_count = n;
    return ok;
}

enum pulled pull_chunk(struct node *n,
                       struct part *p,
                       struct puller *from,
                       const struct kv_snapshot *of,
                       size_t *ret_bytes)
{
    char url[URL_SIZE];
    struct answer a;
    struct kv_row rows[KV_CHUNK];
    struct kv_chunk c = {.of = of, .rows = rows};
    json_t *json;
    (void)pthread_mutex_lock(&p->lock);
    c.number = p->store != NULL ? kv_install_next(p->store, of) : 0;
    (void)pthread_mutex_unlock(&p->lock);
    *ret_bytes = 0;
    if (c.number == kv_chunks(of)) {
        return PULL_NOTHING_LEFT;
    }
    (void)snprintf(url, sizeof url,
                   "http://%s/chunk?keyspace=%s&partition=%" PRIu64 "&epoch=%" PRIu64
                   "&name=%s&chunk=%" PRIu64,
                   from->address, p->keyspace, p->id, from->epoch, of->name, c.number);
    enum pulled pulled = get_json(from, url, &a, &json);
    if (pulled == PULLED && !read_rows(json, rows, &c.count)) {
        pulled = PULL_DAMAGED;
    } else if (pulled == PULLED) {
        enum outcome o = node_install(n, p, from->epoch, &c);
        pulled = o == GAP ? PULL_DAMAGED : as_pulled(o);
        *ret_bytes = a.len;
    }
    json_decref(json);
    free(a.bytes);
    return pulled;
}
