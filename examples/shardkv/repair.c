/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/shardkv/copy.h"
#include "examples/shardkv/replicate.h"
#include "examples/shardkv/transfer.h"

#include <curl/curl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { REPAIR_MS = 300, REBUILD_CHUNKS = 64, URL_SIZE = 512 };

struct repairer {
    struct node *node;
    CURL *curl;
    struct peer peer;
};

/* What some server says of the path; NULL: none says anything. */
static json_t *ask_directory(struct repairer *r, const char *path)
{
    json_t *json = NULL;
    const char *end = r->node->endpoints;
    for (const char *at = end; json == NULL && *at != '\0'; at = end + (*end == ',')) {
        char url[URL_SIZE];
        end = at + strcspn(at, ",");
        (void)snprintf(url, sizeof url, "%.*s%s", (int)(end - at), at, path);
        if (pull_json(r->curl, url, &json) != 200) {
            json_decref(json);
            json = NULL;
        }
    }
    return json;
}

/* The partition as some server knows it: a hint of which copies there are. */
static json_t *fetch_route(struct repairer *r, const struct part *p)
{
    char path[URL_SIZE];
    (void)snprintf(path, sizeof path, "/v1/keyspaces/%s/partitions/%" PRIu64, p->keyspace, p->id);
    return ask_directory(r, path);
}

/* How many copies in sync the keyspace wants. */
static size_t wanted_sync(struct repairer *r, const struct part *p)
{
    char path[URL_SIZE];
    (void)snprintf(path, sizeof path, "/v1/keyspaces/%s", p->keyspace);
    json_t *keyspace = ask_directory(r, path);
    json_int_t sync =
        json_integer_value(json_object_get(json_object_get(keyspace, "replicas"), "sync"));
    json_decref(keyspace);
    return (size_t)sync;
}

static uint64_t position_of(struct part *p)
{
    (void)pthread_mutex_lock(&p->lock);
    uint64_t position = p->store != NULL ? kv_position(p->store) : 0;
    (void)pthread_mutex_unlock(&p->lock);
    return position;
}

/* --- a primary's copies --- */

/* With `writer`: nothing is written between the last change that it gets and the request. */
static void join(struct node *n, struct part *p, uint64_t epoch, const struct cadastre_member *copy)
{
    struct members m;
    const struct peer_call call = {p->keyspace, p->id, epoch, replicate_start(p), copy};
    uint64_t position = position_of(p), begun = copy_now_ms();
    if (!cadastre_may_write(n->agent, p->handle, epoch) || !replicate_members(p, epoch, &m) ||
        m.count >= MEMBERS_MAX || replicate_has(m.all, m.ordered, copy->node) ||
        (position > 0 && peer_bring(&p->peer, &call, p->store, &p->lock, position) != PEER_OK)) {
        return;
    }
    if (!replicate_has(m.all, m.count, copy->node)) {
        m.all[m.count++] = *copy;
    }
    replicate_ask(n, p, epoch, &m, SIZE_MAX);
    while (p->wanted_epoch == epoch && copy_now_ms() - begun < ASK_MS &&
           replicate_members(p, epoch, &m)) {
        copy_pause_ms(RETRY_MS);
    }
}

/* A copy that is behind gets most of what it lacks while writes go on. */
static bool feed(struct repairer *r, struct part *p, const struct cadastre_member *copy)
{
    uint64_t epoch = cadastre_partition_epoch(p->handle), position = position_of(p);
    const struct peer_call call = {p->keyspace, p->id, epoch, replicate_start(p), copy};
    if (epoch == 0 || !cadastre_may_write(r->node->agent, p->handle, epoch)) {
        return false;
    }
    (void)pthread_mutex_lock(&p->repair); /* the store stays open */
    bool near = position == 0 || (p->store != NULL && peer_bring(&r->peer, &call, p->store,
                                                                 &p->lock, position) == PEER_OK);
    (void)pthread_mutex_unlock(&p->repair);
    return near;
}

/* The source of a move, while its window lasts, is the way back and no copy that should count. */
enum place { COPY, WAY_BACK, NOT_KNOWN };

static enum place place_of(struct part *p, const char *node, bool *ret_flows)
{
    (void)pthread_mutex_lock(&p->lock);
    enum place place = !p->window                       ? COPY
                       : p->way_back[0] == '\0'         ? NOT_KNOWN
                       : strcmp(p->way_back, node) == 0 ? WAY_BACK
                                                        : COPY;
    *ret_flows = p->back_flows;
    (void)pthread_mutex_unlock(&p->lock);
    return place;
}

/* True when it was asked to count. */
static bool
tend(struct repairer *r, struct part *p, const struct cadastre_member *copy, bool wanted)
{
    bool flows = false;
    enum place place = place_of(p, copy->node, &flows);
    if (place == NOT_KNOWN || (place == WAY_BACK && !flows)) {
        return false;
    }
    bool counts = feed(r, p, copy) && wanted && place == COPY;
    if (counts) {
        uint64_t epoch = cadastre_partition_epoch(p->handle);
        (void)pthread_mutex_lock(&p->writer);
        join(r->node, p, epoch, copy);
        (void)pthread_mutex_unlock(&p->writer);
    }
    return counts;
}

/* How many more should count than do. */
static size_t missing(struct repairer *r, const struct part *p, const json_t *replicas)
{
    const json_t *replica;
    size_t at, sync = 0, async = 0;
    json_array_foreach(replicas, at, replica)
    {
        const char *role = json_string_value(json_object_get(replica, "role"));
        sync += role != NULL && strcmp(role, "sync") == 0;
        async += role != NULL && strcmp(role, "async") == 0;
    }
    size_t wanted = async > 0 ? wanted_sync(r, p) : 0;
    return wanted > sync ? wanted - sync : 0;
}

static void tend_all(struct repairer *r, struct part *p, const json_t *route)
{
    json_t *replicas = json_object_get(route, "replicas"), *replica;
    size_t at, more = missing(r, p, replicas);
    json_array_foreach(replicas, at, replica)
    {
        struct cadastre_member copy = {.role = CADASTRE_ROLE_SYNC};
        const char *node = NULL, *address = NULL, *role = NULL;
        if (json_unpack(replica, "{s:s,s:s,s:s}", "node", &node, "address", &address, "role",
                        &role) == 0 &&
            strcmp(role, "async") == 0) {
            (void)snprintf(copy.node, sizeof copy.node, "%s", node);
            (void)snprintf(copy.address, sizeof copy.address, "%s", address);
            more -= tend(r, p, &copy, more > 0);
        }
    }
}

/* --- a copy that is behind --- */

/* Some chunks more, or the last changes. */
static void rebuild(struct repairer *r, struct part *p, const json_t *route)
{
    const char *address =
        json_string_value(json_object_get(json_object_get(route, "primary"), "address"));
    struct kv_snapshot of;
    size_t bytes;
    (void)pthread_mutex_lock(&p->lock);
    struct puller from = {r->curl, address, p->epoch, UINT64_MAX};
    (void)pthread_mutex_unlock(&p->lock);
    enum pulled pulled = address != NULL ? pull_describe(p, &from, NULL, &of) : PULL_NOT_YET;
    for (unsigned i = 0; i < REBUILD_CHUNKS && pulled == PULLED; i++) {
        pulled = pull_chunk(r->node, p, &from, &of, &bytes);
    }
}

static bool is_behind(struct part *p)
{
    (void)pthread_mutex_lock(&p->lock);
    bool behind = p->store != NULL && p->gap && !p->drained &&
                  (p->role == CADASTRE_ROLE_SYNC || p->role == CADASTRE_ROLE_ASYNC);
    (void)pthread_mutex_unlock(&p->lock);
    return behind;
}

static void repair(struct repairer *r, struct part *p)
{
    bool primary = cadastre_partition_epoch(p->handle) != 0, behind = is_behind(p);
    json_t *route = primary || behind ? fetch_route(r, p) : NULL;
    if (primary) {
        tend_all(r, p, route);
    } else if (behind) {
        rebuild(r, p, route);
    }
    json_decref(route);
    copy_snapshot_age(r->node, p);
}

void *replicate_repair(void *node)
{
    struct node *n = node;
    struct repairer r = {.node = n, .curl = curl_easy_init()};
    while (r.curl != NULL && !atomic_load(&n->stopping)) {
        struct part *p = node_parts(n);
        for (; p != NULL && !atomic_load(&n->stopping); p = p->next) {
            repair(&r, p);
        }
        copy_collect(n);
        copy_pause_ms(REPAIR_MS);
    }
    peer_close(&r.peer);
    curl_easy_cleanup(r.curl);
    return NULL;
}
