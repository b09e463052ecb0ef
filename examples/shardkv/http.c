/* SPDX-License-Identifier: Apache-2.0 */
/* The node's HTTP:
 *
 *   PUT  /kv?keyspace&partition&epoch&key&id   the value is the body; id names the mutation
 *   GET  /kv?keyspace&partition&epoch&key
 *   POST /follow?…                             what a primary sends to the other copies
 *   GET  /changes?…, /snapshot?…, /chunk?…     what a copy pulls that is made, or made anew
 *   GET  /state?keyspace&partition             role, positions and the invariants, counted afresh
 *   GET  /about                                the version of the files' schema
 *
 * A request carries the epoch that it was routed by. Another one than the node's is answered with
 * 421 and the epoch that the node knows. */
#include "examples/shardkv/transfer.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <jansson.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { CONNECTIONS_MAX = 512, IDLE_S = 60, VALUE_MAX = 64 << 10, ID_MAX = 128 };

struct request {
    struct MHD_Connection *connection;
    struct node *node;
    char *body; /* ends in NUL, which does not count */
    size_t len;
    bool too_large;
};

/* --- answers --- */

/* Takes over `json`. */
static enum MHD_Result answer(struct request *r, unsigned status, json_t *json)
{
    char *text = json_dumps(json, JSON_COMPACT);
    json_decref(json);
    if (text == NULL) {
        return MHD_NO;
    }
    struct MHD_Response *response =
        MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE);
    (void)MHD_add_response_header(response, "Content-Type", "application/json");
    enum MHD_Result result = MHD_queue_response(r->connection, status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result refuse(struct request *r, unsigned status, const char *error)
{
    return answer(r, status, json_pack("{s:s}", "error", error));
}

static enum MHD_Result
refuse_outcome(struct request *r, enum outcome o, uint64_t partition, const struct part *p)
{
    uint64_t known = p != NULL ? cadastre_partition_known_epoch(p->handle) : 0;
    switch (o) {
    case MISSING:
        return refuse(r, 404, "there is no such key");
    case GAP:
        return refuse(r, 410, "that is gone: begin with a snapshot");
    case NOT_NOW:
        return answer(r, 503, json_pack("{s:s,s:b}", "error", "not now", "applied", 0));
    case UNKNOWN:
        return refuse(r, 503, "outcome unknown");
    case WRONG_EPOCH:
    case WRONG_RANGE:
    case ELSEWHERE:
    case DONE:
        break;
    }
    return answer(r, 421,
                  json_pack("{s:s,s:I,s:I}", "error",
                            o == WRONG_RANGE ? "outside of the range" : "another epoch",
                            "partition", (json_int_t)partition, "epoch", (json_int_t)known));
}

/* --- parameters --- */

static const char *text_of(const struct request *r, const char *name)
{
    const char *v = MHD_lookup_connection_value(r->connection, MHD_GET_ARGUMENT_KIND, name);
    return v != NULL ? v : "";
}

static bool number_of(const struct request *r, const char *name, uint64_t *ret)
{
    const char *p = text_of(r, name);
    uint64_t v = 0;
    bool ok = *p != '\0' && strlen(p) <= 16;
    for (; ok && *p != '\0'; p++) {
        ok = *p >= '0' && *p <= '9';
        v = v * 10 + (uint64_t)(*p - '0');
    }
    *ret = v;
    return ok;
}

struct about {
    struct part *part; /* NULL: nothing was ever heard of it here */
    uint64_t partition, epoch;
    const char *key;
};

static bool read_about(const struct request *r, struct about *a, bool with_key)
{
    a->key = text_of(r, "key");
    size_t len = strlen(a->key);
    if (!number_of(r, "partition", &a->partition) || !number_of(r, "epoch", &a->epoch) ||
        (with_key && (len == 0 || len > CADASTRE_KEY_MAX))) {
        return false;
    }
    a->part = node_part(r->node, text_of(r, "keyspace"), a->partition);
    return true;
}

/* --- the calls --- */

static bool is_text(const char *bytes, size_t len)
{
    json_t *text = json_stringn(bytes, len); /* checks that it is UTF-8 */
    bool ok = text != NULL && memchr(bytes, '\0', len) == NULL;
    json_decref(text);
    return ok;
}

static enum MHD_Result put_kv(struct request *r)
{
    struct about a;
    const char *id = text_of(r, "id");
    size_t id_len = strlen(id);
    uint64_t position = 0;
    bool repeated = false;
    if (!read_about(r, &a, true) || id_len == 0 || id_len > ID_MAX || r->len > VALUE_MAX ||
        !is_text(r->body, r->len) || !is_text(a.key, strlen(a.key)) || !is_text(id, id_len)) {
        return refuse(r, 400, "keyspace, partition, epoch, key, id and a body of text are wanted");
    }
    const struct mutation m = {a.epoch, id, a.key, r->body};
    enum outcome o =
        a.part != NULL ? node_write(r->node, a.part, &m, &position, &repeated) : WRONG_EPOCH;
    if (o != DONE) {
        return refuse_outcome(r, o, a.partition, a.part);
    }
    return answer(r, 200,
                  json_pack("{s:I,s:I,s:b}", "epoch", (json_int_t)a.epoch, "position",
                            (json_int_t)position, "repeated", repeated));
}

static enum MHD_Result get_kv(struct request *r)
{
    struct about a;
    struct value v = {.text = NULL};
    if (!read_about(r, &a, true)) {
        return refuse(r, 400, "keyspace, partition, epoch and key are wanted");
    }
    enum outcome o = a.part != NULL ? node_read(r->node, a.part, a.epoch, a.key, &v) : WRONG_EPOCH;
    if (o != DONE) {
        free(v.text);
        return refuse_outcome(r, o, a.partition, a.part);
    }
    json_t *json =
        json_pack("{s:s,s:I,s:I,s:b}", "value", v.text, "position", (json_int_t)v.position, "epoch",
                  (json_int_t)a.epoch, "stale", v.stale);
    free(v.text);
    return answer(r, 200, json);
}

static enum MHD_Result post_follow(struct request *r)
{
    struct about a;
    struct kv_batch b = {0};
    uint64_t session;
    struct change *changes = NULL;
    uint64_t position = 0;
    json_t *json = json_loadb(r->body, r->len, 0, NULL);
    enum MHD_Result result;
    if (!read_about(r, &a, false) || !number_of(r, "session", &session) ||
        !number_of(r, "start", &b.start) || !number_of(r, "after", &b.after) ||
        !number_of(r, "after_epoch", &b.after_epoch) || !number_of(r, "base", &b.base) ||
        !number_of(r, "last", &b.last) || !peer_read_changes(json, &changes, &b.count) ||
        (b.count > 0 && changes[0].position != b.after + 1)) {
        result = refuse(r, 400, "not what a primary sends");
    } else {
        b.epoch = a.epoch;
        b.origin = text_of(r, "origin");
        b.changes = changes;
        enum outcome o =
            a.part != NULL ? node_follow(r->node, a.part, session, &b, &position) : WRONG_EPOCH;
        result = o == DONE || o == ELSEWHERE
                     ? answer(r, o == DONE ? 200 : 409,
                              json_pack("{s:I}", "position", (json_int_t)position))
                     : refuse_outcome(r, o, a.partition, a.part);
    }
    free(changes);
    json_decref(json);
    return result;
}

/* Takes over the text. One that is damaged on purpose has the checksum of what it was. */
static enum MHD_Result send_text(struct request *r, char *text, uint64_t lag)
{
    struct node *n = r->node;
    char sum[17], left[24];
    transfer_checksum(text, strlen(text), sum);
    if (n->damage > 0 && atomic_fetch_add(&n->chunks_sent, 1) % n->damage == n->damage - 1) {
        text[0] ^= 1;
    }
    struct MHD_Response *response =
        MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE);
    (void)snprintf(left, sizeof left, "%" PRIu64, lag);
    (void)MHD_add_response_header(response, "X-Checksum", sum);
    (void)MHD_add_response_header(response, "X-Lag-Bytes", left);
    enum MHD_Result result = MHD_queue_response(r->connection, 200, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result get_changes(struct request *r)
{
    struct about a;
    struct wanted w = {.origin = text_of(r, "origin")};
    struct sent sent = {.text = NULL};
    if (!read_about(r, &a, false) || !number_of(r, "after", &w.after) ||
        !number_of(r, "after_epoch", &w.after_epoch)) {
        return refuse(r, 400, "not what a copy asks for");
    }
    w.epoch = a.epoch;
    enum outcome o = a.part != NULL ? transfer_changes(a.part, &w, &sent) : WRONG_EPOCH;
    if (o == ELSEWHERE) {
        return answer(r, 409, json_pack("{s:I}", "epoch", (json_int_t)sent.epoch_at));
    }
    return sent.text != NULL ? send_text(r, sent.text, sent.lag)
                             : refuse_outcome(r, o, a.partition, a.part);
}

/* Of a snapshot: what it is, or one chunk of it. */
static enum MHD_Result get_part_of(struct request *r, bool chunk)
{
    struct about a;
    uint64_t number = 0;
    const char *name = text_of(r, "name");
    char *text = NULL;
    if (!read_about(r, &a, false) || (chunk && !number_of(r, "chunk", &number))) {
        return refuse(r, 400, "not what a copy asks for");
    }
    enum outcome o = WRONG_EPOCH;
    if (a.part != NULL) {
        o = chunk ? transfer_chunk(r->node, a.part, a.epoch, name, number, &text)
                  : transfer_describe(r->node, a.part, a.epoch, *name != '\0' ? name : NULL, &text);
    }
    return o == DONE ? send_text(r, text, 0) : refuse_outcome(r, o, a.partition, a.part);
}

static enum MHD_Result get_snapshot(struct request *r)
{
    return get_part_of(r, false);
}

static enum MHD_Result get_chunk(struct request *r)
{
    return get_part_of(r, true);
}

static enum MHD_Result get_about(struct request *r)
{
    return answer(r, 200, json_pack("{s:i}", "schema_version", SCHEMA_VERSION));
}

static enum MHD_Result get_state(struct request *r)
{
    static const char *const roles[] = {"none", "primary", "sync", "async", "joining"};
    uint64_t id = 0;
    struct kv_sums sums = {0};
    char sum[17], running[17];
    bool known = number_of(r, "partition", &id);
    struct part *p = known ? node_part(r->node, text_of(r, "keyspace"), id) : NULL;
    if (p == NULL) {
        return refuse(r, 404, "there is no such partition here");
    }
    (void)pthread_mutex_lock(&p->lock);
    bool open = p->store != NULL && kv_sums(p->store, &sums);
    (void)snprintf(sum, sizeof sum, "%016" PRIx64, sums.sum);
    (void)snprintf(running, sizeof running, "%016" PRIx64, sums.running);
    json_t *json =
        json_pack("{s:s,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:s,s:s,s:b,s:b,s:I}", "role", roles[p->role],
                  "epoch", (json_int_t)p->epoch, "copy", (json_int_t)p->copy, "position",
                  (json_int_t)(open ? kv_position(p->store) : 0), "position_epoch",
                  (json_int_t)(open ? kv_epoch(p->store) : 0), "base",
                  (json_int_t)(open ? kv_base(p->store) : 0), "items", (json_int_t)sums.items,
                  "mutations", (json_int_t)sums.mutations, "sum", sum, "running", running, "whole",
                  open && !kv_incomplete(p->store), "may_write",
                  cadastre_may_write(r->node->agent, p->handle, p->epoch), "rate_bytes_per_s",
                  (json_int_t)atomic_load(&p->rate));
    (void)pthread_mutex_unlock(&p->lock);
    return answer(r, 200, json);
}

/* --- libmicrohttpd --- */

static void take_body(struct request *r, const char *bytes, size_t n)
{
    char *grown =
        r->too_large || r->len + n > PEER_BODY_MAX ? NULL : realloc(r->body, r->len + n + 1);
    if (grown == NULL) {
        r->too_large = true;
        return;
    }
    memcpy(grown + r->len, bytes, n);
    r->len += n;
    grown[r->len] = '\0';
    r->body = grown;
}

static enum MHD_Result dispatch(struct request *r, const char *method, const char *path)
{
    static const struct {
        const char *method, *path;
        enum MHD_Result (*call)(struct request *r);
    } calls[] = {{"PUT", "/kv", put_kv},
                 {"GET", "/kv", get_kv},
                 {"POST", "/follow", post_follow},
                 {"GET", "/changes", get_changes},
                 {"GET", "/snapshot", get_snapshot},
                 {"GET", "/chunk", get_chunk},
                 {"GET", "/state", get_state},
                 {"GET", "/about", get_about}};
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        if (strcmp(calls[i].method, method) == 0 && strcmp(calls[i].path, path) == 0) {
            return calls[i].call(r);
        }
    }
    return refuse(r, 404, "there is no such call");
}

static enum MHD_Result handle(void *node,
                              struct MHD_Connection *connection,
                              const char *path,
                              const char *method,
                              const char *version,
                              const char *bytes,
                              size_t *count,
                              void **state)
{
    struct request *r = *state;
    (void)version;
    if (r == NULL) {
        r = calloc(1, sizeof *r);
        *state = r;
        if (r == NULL) {
            return MHD_NO;
        }
        r->connection = connection;
        r->node = node;
        take_body(r, "", 0);
        return MHD_YES;
    }
    if (*count > 0) {
        take_body(r, bytes, *count);
        *count = 0;
        return MHD_YES;
    }
    return r->too_large ? refuse(r, 413, "the body is too large") : dispatch(r, method, path);
}

static void forget(void *arg,
                   struct MHD_Connection *connection,
                   void **state,
                   enum MHD_RequestTerminationCode why)
{
    struct request *r = *state;
    (void)arg;
    (void)connection;
    (void)why;
    if (r != NULL) {
        free(r->body);
        free(r);
    }
}

struct MHD_Daemon *http_start(struct node *n, const char *address)
{
    struct sockaddr_in to = {.sin_family = AF_INET};
    char host[64];
    const char *colon = strrchr(address, ':');
    unsigned long port = colon != NULL ? strtoul(colon + 1, NULL, 10) : 0;
    if (port == 0 || port > 65535 || (size_t)(colon - address) >= sizeof host) {
        return NULL;
    }
    (void)snprintf(host, sizeof host, "%.*s", (int)(colon - address), address);
    to.sin_port = htons((uint16_t)port);
    if (inet_pton(AF_INET, host, &to.sin_addr) != 1) {
        return NULL;
    }
    /* A thread for each connection: they wait for the disk and for other nodes. */
    return MHD_start_daemon(
        MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION | MHD_USE_POLL, 0, NULL,
        NULL, handle, n, MHD_OPTION_SOCK_ADDR, (struct sockaddr *)&to, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)CONNECTIONS_MAX, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_S,
        MHD_OPTION_NOTIFY_COMPLETED, forget, NULL, MHD_OPTION_END);
}
