/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/shardkv/peer.h"

#include <curl/curl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct reply {
    char text[512];
    size_t len;
};

void peer_close(struct peer *p)
{
    curl_easy_cleanup(p->curl);
    p->curl = NULL;
}

static size_t take(char *bytes, size_t one, size_t n, void *arg)
{
    struct reply *r = arg;
    (void)one;
    if (n >= sizeof r->text - r->len) {
        return 0;
    }
    memcpy(r->text + r->len, bytes, n);
    r->len += n;
    r->text[r->len] = '\0';
    return n;
}

/* The status, 0 without an answer. */
static long post(struct peer *p, const char *url, const char *body, struct reply *r)
{
    long status = 0;
    *r = (struct reply){.len = 0};
    p->curl = p->curl != NULL ? p->curl : curl_easy_init();
    if (p->curl == NULL) {
        return 0;
    }
    (void)curl_easy_setopt(p->curl, CURLOPT_URL, url);
    (void)curl_easy_setopt(p->curl, CURLOPT_POSTFIELDS, body);
    (void)curl_easy_setopt(p->curl, CURLOPT_WRITEFUNCTION, take);
    (void)curl_easy_setopt(p->curl, CURLOPT_WRITEDATA, r);
    (void)curl_easy_setopt(p->curl, CURLOPT_NOSIGNAL, 1L);
    (void)curl_easy_setopt(p->curl, CURLOPT_PROXY, "");
    (void)curl_easy_setopt(p->curl, CURLOPT_TIMEOUT_MS, (long)PEER_TRY_MS);
    if (curl_easy_perform(p->curl) != CURLE_OK) {
        return 0;
    }
    (void)curl_easy_getinfo(p->curl, CURLINFO_RESPONSE_CODE, &status);
    return status;
}

void peer_put_change(void *json, const struct change *c)
{
    (void)json_array_append_new(json, json_pack("[I,I,s,s,s]", (json_int_t)c->position,
                                                (json_int_t)c->epoch, c->id, c->key, c->value));
}

struct batch {
    char *body; /* own; NULL: it can't be read */
    uint64_t base, last, after_epoch;
    char origin[KV_ORIGIN_SIZE];
};

/* What follows `*at`, or the log's beginning. */
static struct batch read_batch(struct kv *store, pthread_mutex_t *lock, uint64_t *at)
{
    struct batch b = {.body = NULL};
    json_t *changes = json_array();
    (void)pthread_mutex_lock(lock);
    b.base = kv_base(store);
    b.last = kv_position(store);
    (void)snprintf(b.origin, sizeof b.origin, "%s", kv_origin(store));
    *at = *at < b.base ? b.base : *at;
    bool ok = kv_epoch_at(store, *at, &b.after_epoch) &&
              kv_changes(store, *at, PEER_BATCH, peer_put_change, changes);
    (void)pthread_mutex_unlock(lock);
    b.body = ok ? json_dumps(changes, JSON_COMPACT) : NULL;
    json_decref(changes);
    return b;
}

/* Sends a batch after `*at`, and moves `*at` to where the copy is then. */
static enum peer_result send_batch(struct peer *p,
                                   const struct peer_call *call,
                                   struct kv *store,
                                   pthread_mutex_t *lock,
                                   uint64_t *at)
{
    char url[1024];
    struct reply r;
    struct batch b = read_batch(store, lock, at);
    if (b.body == NULL) {
        return PEER_FAILED;
    }
    (void)snprintf(url, sizeof url,
                   "http://%s/follow?keyspace=%s&partition=%" PRIu64 "&epoch=%" PRIu64
                   "&session=%" PRIu64 "&start=%" PRIu64 "&after=%" PRIu64 "&after_epoch=%" PRIu64
                   "&base=%" PRIu64 "&last=%" PRIu64 "&origin=%s",
                   call->to->address, call->keyspace, call->partition, call->epoch,
                   call->to->session, call->start, *at, b.after_epoch, b.base, b.last, b.origin);
    long status = post(p, url, b.body, &r);
    free(b.body);
    json_t *answer = json_loadb(r.text, r.len, 0, NULL);
    json_t *position = json_object_get(answer, "position");
    enum peer_result result = status == 421 ? PEER_REFUSED : status == 410 ? PEER_GAP : PEER_FAILED;
    if ((status == 200 || status == 409) && json_is_integer(position)) {
        uint64_t there = (uint64_t)json_integer_value(position);
        /* 409: it does not have entry `*at`, and says how far back to go. */
        result = status == 200 ? PEER_OK : PEER_BEHIND;
        *at = there;
    }
    json_decref(answer);
    return result;
}

enum peer_result peer_bring(struct peer *p,
                            const struct peer_call *call,
                            struct kv *store,
                            pthread_mutex_t *lock,
                            uint64_t position)
{
    /* As a rule it has all before this one. */
    uint64_t at = position > 0 ? position - 1 : 0;
    bool found = false;  /* where its log parts from ours: from there it only goes forward */
    bool jumped = false; /* to where its log begins */
    while (at < position || !found) {
        uint64_t before = at;
        enum peer_result result = send_batch(p, call, store, lock, &at);
        if (result == PEER_BEHIND && !found && at != before && (at < before || !jumped)) {
            jumped = jumped || at > before;
            continue;
        }
        if (result != PEER_OK || (at <= before && at < position)) {
            return result == PEER_OK || result == PEER_BEHIND ? PEER_FAILED : result;
        }
        found = true;
    }
    return PEER_OK;
}

bool peer_read_changes(const json_t *json, struct change **ret_changes, unsigned *ret_count)
{
    size_t n = json_array_size(json);
    struct change *all = n <= PEER_BATCH ? calloc(n + 1, sizeof *all) : NULL;
    bool ok = json_is_array(json) && all != NULL;
    for (size_t i = 0; ok && i < n; i++) {
        json_int_t position = 0, epoch = 0;
        ok = json_unpack(json_array_get(json, i), "[I,I,s,s,s]", &position, &epoch, &all[i].id,
                         &all[i].key, &all[i].value) == 0 &&
             position > 0 && epoch > 0 && (i == 0 || all[i - 1].position + 1 == (uint64_t)position);
        all[i].position = (uint64_t)position;
        all[i].epoch = (uint64_t)epoch;
    }
    if (!ok) {
        free(all);
        all = NULL;
    }
    *ret_changes = all;
    *ret_count = (unsigned)n;
    return ok;
}
