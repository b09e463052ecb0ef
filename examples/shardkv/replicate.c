/* SPDX-License-Identifier: Apache-2.0 */
/* A primary stops counting a copy only when it has read the order that says so, and counts one that
 * it has asked for from before it asks: while a request's outcome is open, both the order in force
 * and what was asked for must have every write. One request at a time, under `writer`. */
#include "examples/shardkv/replicate.h"

#include <curl/curl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { DROP_MS = 1000, RETRY_MS = 20, REPAIR_MS = 300, ASK_MS = 2000, URL_SIZE = 512 };

struct members {
    struct cadastre_member all[2 * MEMBERS_MAX];
    size_t count, ordered; /* the first `ordered` are those of the order in force */
    uint64_t revision;     /* of the order */
};

static uint64_t now_ms(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_BOOTTIME, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void pause_ms(unsigned ms)
{
    const struct timespec t = {ms / 1000, (long)(ms % 1000) * 1000000};
    (void)nanosleep(&t, NULL);
}

static bool has(const struct cadastre_member *all, size_t count, const char *node)
{
    size_t i = 0;
    while (i < count && strcmp(all[i].node, node) != 0) {
        i++;
    }
    return i < count;
}

static uint64_t start_of(struct part *p)
{
    (void)pthread_mutex_lock(&p->lock);
    uint64_t start = p->start;
    (void)pthread_mutex_unlock(&p->lock);
    return start;
}

/* The order in force, and what was asked for and is not in it. False: the grant is over. */
static bool read_members(struct part *p, uint64_t epoch, struct members *m)
{
    m->revision = cadastre_partition_revision(p->handle);
    if (cadastre_must_have(p->handle, epoch, m->all, MEMBERS_MAX, &m->ordered) != CADASTRE_OK ||
        m->ordered > MEMBERS_MAX) {
        return false;
    }
    m->count = m->ordered;
    if (p->wanted_epoch != epoch) {
        return true;
    }
    for (size_t i = 0; i < p->wanted_count; i++) {
        if (!has(m->all, m->ordered, p->wanted[i].node)) {
            m->all[m->count++] = p->wanted[i];
        }
    }
    if (m->count == m->ordered && p->wanted_count == m->ordered) {
        p->wanted_epoch = 0; /* the order says what was asked for */
    }
    return true;
}

/* Asks for `all` but `except` (or again for what was asked for, while that is open). */
static void
ask(struct node *n, struct part *p, uint64_t epoch, const struct members *m, size_t except)
{
    const char *names[MEMBERS_MAX];
    if (p->wanted_epoch != epoch) {
        p->wanted_count = 0;
        for (size_t i = 0; i < m->count && p->wanted_count < MEMBERS_MAX; i++) {
            if (i != except) {
                p->wanted[p->wanted_count] = m->all[i];
                p->wanted[p->wanted_count++].session = 0; /* the order will say which */
            }
        }
        p->wanted_epoch = epoch;
        p->wanted_open = false;
    }
    for (size_t i = 0; i < p->wanted_count; i++) {
        names[i] = p->wanted[i].node;
    }
    enum cadastre_status s =
        cadastre_agent_insync(n->agent, p->handle, epoch, names, p->wanted_count, ASK_MS);
    if ((s == CADASTRE_REFUSED || s == CADASTRE_STALE) && !p->wanted_open) {
        p->wanted_epoch = 0; /* surely not applied */
    }
    p->wanted_open = p->wanted_open || (s != CADASTRE_OK && s != CADASTRE_REFUSED);
    (void)fprintf(stderr, "shardkv: %s/%" PRIu64 ": asked for %zu copies in sync: %s\n",
                  p->keyspace, p->id, p->wanted_count, cadastre_status_name(s));
}

bool replicate(struct node *n, struct part *p, uint64_t epoch, uint64_t position)
{
    struct members m;
    uint64_t begun = now_ms();
    bool asked = false;
    while (cadastre_may_write(n->agent, p->handle, epoch) && now_ms() - begun < WRITE_MS) {
        size_t at = 0;
        if (!read_members(p, epoch, &m)) {
            return false;
        }
        for (; at < m.count; at++) {
            const struct peer_call call = {p->keyspace, p->id, epoch, start_of(p), &m.all[at]};
            if (peer_bring(&p->peer, &call, p->store, &p->lock, position) != PEER_OK) {
                break;
            }
        }
        if (at == m.count && m.revision == cadastre_partition_revision(p->handle)) {
            return true;
        }
        if (at < m.count && !asked && now_ms() - begun >= DROP_MS) {
            ask(n, p, epoch, &m, at);
            asked = true;
        }
        pause_ms(at < m.count ? RETRY_MS : 0);
    }
    return false;
}

/* --- bringing copies back --- */

struct text {
    char bytes[16 << 10];
    size_t len;
};

static size_t take(char *bytes, size_t one, size_t n, void *arg)
{
    struct text *t = arg;
    (void)one;
    if (n > sizeof t->bytes - t->len) {
        return 0;
    }
    memcpy(t->bytes + t->len, bytes, n);
    t->len += n;
    return n;
}

/* The partition as some server knows it: a hint of which copies there are. NULL: none says. */
static json_t *fetch_route(CURL *c, const struct node *n, const struct part *p)
{
    struct text text;
    json_t *route = NULL;
    const char *end = n->endpoints;
    for (const char *at = n->endpoints; route == NULL && *at != '\0'; at = end + (*end == ',')) {
        char url[URL_SIZE];
        text.len = 0;
        end = at + strcspn(at, ",");
        (void)snprintf(url, sizeof url, "%.*s/v1/keyspaces/%s/partitions/%" PRIu64, (int)(end - at),
                       at, p->keyspace, p->id);
        (void)curl_easy_setopt(c, CURLOPT_URL, url);
        (void)curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
        (void)curl_easy_setopt(c, CURLOPT_PROXY, "");
        (void)curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, (long)PEER_TRY_MS);
        (void)curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, take);
        (void)curl_easy_setopt(c, CURLOPT_WRITEDATA, &text);
        if (curl_easy_perform(c) == CURLE_OK) {
            route = json_loadb(text.bytes, text.len, 0, NULL);
        }
    }
    return route;
}

static uint64_t position_of(struct part *p)
{
    (void)pthread_mutex_lock(&p->lock);
    uint64_t position = p->store != NULL ? kv_position(p->store) : 0;
    (void)pthread_mutex_unlock(&p->lock);
    return position;
}

/* With `writer`: nothing is written between the last change that it gets and the request. */
static void join(struct node *n, struct part *p, uint64_t epoch, const struct cadastre_member *copy)
{
    struct members m;
    const struct peer_call call = {p->keyspace, p->id, epoch, start_of(p), copy};
    uint64_t position = position_of(p), begun = now_ms();
    if (!cadastre_may_write(n->agent, p->handle, epoch) || !read_members(p, epoch, &m) ||
        m.count >= MEMBERS_MAX || has(m.all, m.ordered, copy->node) ||
        (position > 0 && peer_bring(&p->peer, &call, p->store, &p->lock, position) != PEER_OK)) {
        return;
    }
    if (!has(m.all, m.count, copy->node)) {
        m.all[m.count++] = *copy;
    }
    ask(n, p, epoch, &m, SIZE_MAX);
    while (p->wanted_epoch == epoch && now_ms() - begun < ASK_MS && read_members(p, epoch, &m)) {
        pause_ms(RETRY_MS);
    }
}

/* A copy that is behind gets most of what it lacks while writes go on. */
static void
repair_copy(struct node *n, struct part *p, struct peer *peer, const struct cadastre_member *copy)
{
    uint64_t epoch = cadastre_partition_epoch(p->handle), position = position_of(p);
    const struct peer_call call = {p->keyspace, p->id, epoch, start_of(p), copy};
    if (epoch == 0 || !cadastre_may_write(n->agent, p->handle, epoch)) {
        return;
    }
    (void)pthread_mutex_lock(&p->repair); /* the store stays open */
    bool near = position == 0 || (p->store != NULL &&
                                  peer_bring(peer, &call, p->store, &p->lock, position) == PEER_OK);
    (void)pthread_mutex_unlock(&p->repair);
    (void)pthread_mutex_lock(&p->lock);
    bool moving = p->moving; /* then it is a move's way back, and no copy that should count */
    (void)pthread_mutex_unlock(&p->lock);
    if (near && !moving) {
        (void)pthread_mutex_lock(&p->writer);
        join(n, p, epoch, copy);
        (void)pthread_mutex_unlock(&p->writer);
    }
}

static void repair(struct node *n, struct part *p, struct peer *peer, CURL *c)
{
    json_t *route = fetch_route(c, n, p), *replica;
    size_t at;
    json_array_foreach(json_object_get(route, "replicas"), at, replica)
    {
        struct cadastre_member copy = {.session = 0};
        const char *node = NULL, *address = NULL, *role = NULL;
        if (json_unpack(replica, "{s:s,s:s,s:s}", "node", &node, "address", &address, "role",
                        &role) == 0 &&
            strcmp(role, "async") == 0) {
            (void)snprintf(copy.node, sizeof copy.node, "%s", node);
            (void)snprintf(copy.address, sizeof copy.address, "%s", address);
            repair_copy(n, p, peer, &copy);
        }
    }
    json_decref(route);
}

void *replicate_repair(void *node)
{
    struct node *n = node;
    struct peer peer = {NULL};
    CURL *c = curl_easy_init();
    while (c != NULL && !atomic_load(&n->stopping)) {
        (void)pthread_mutex_lock(&n->lock);
        struct part *p = n->parts; /* only grows at its head */
        (void)pthread_mutex_unlock(&n->lock);
        for (; p != NULL && !atomic_load(&n->stopping); p = p->next) {
            if (cadastre_partition_epoch(p->handle) != 0) {
                repair(n, p, &peer, c);
            }
        }
        pause_ms(REPAIR_MS);
    }
    peer_close(&peer);
    curl_easy_cleanup(c);
    return NULL;
}
