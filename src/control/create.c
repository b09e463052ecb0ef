/* SPDX-License-Identifier: Apache-2.0 */
/* A keyspace of any size in chunks: the first command makes it hidden, KeyspaceGrow fills it, the
 * last of those shows it and carries the idempotency key. When the leader dies in between, nothing
 * was ever visible: the next creation of that name, or the next leader, removes what is left. */
#include "control/internal.h"

#include "base/assert.h"
#include "base/mem.h"

#include <string.h>

struct creation {
    uint8_t *bytes; /* owns: the bounds, one after the other */
    struct slice *bounds;
    uint64_t bound_count, sent;
    uint64_t keyspace;
    uint64_t token_chunks; /* of a hash keyspace: KeyspaceGrow commands still to be sent */
};

void create_free(struct creation *creation)
{
    mem_free(creation->bytes);
    mem_free(creation->bounds);
    mem_free(creation);
}

static struct creation *
creation_new(const Cadastre__KeyspaceCreate *create, const struct slice *bounds, uint64_t count)
{
    struct creation *k = mem_zalloc(sizeof *k);
    size_t total = 0, at = 0;
    for (uint64_t i = 0; i < count; i++) {
        total += bounds[i].len;
    }
    k->bytes = mem_alloc(total);
    k->bounds = mem_alloc(count * sizeof *k->bounds);
    k->bound_count = count;
    for (uint64_t i = 0; i < count; i++) {
        memcpy(k->bytes + at, bounds[i].data, bounds[i].len);
        k->bounds[i] = slice_of(k->bytes + at, bounds[i].len);
        at += bounds[i].len;
    }
    if (create->scheme == DIR_SCHEME_HASH && create->partitions > DIR_CREATE_BATCH) {
        k->token_chunks = (create->partitions - 1) / DIR_CREATE_BATCH;
    }
    return k;
}

static bool is_last(const struct creation *k)
{
    return k->sent == k->bound_count && k->token_chunks == 0;
}

static void
propose_message(struct request *r, const Cadastre__Command *message, replica_propose_cb cb)
{
    size_t len = cadastre__command__get_packed_size(message);
    uint8_t *packed = mem_alloc(len);
    (void)cadastre__command__pack(message, packed);
    enum err_code code = submit_propose(r, packed, len, cb);
    mem_free(packed);
    if (code != ERR_OK) {
        submit_finish(r, code, NULL);
    }
}

/* Takes the bounds of the next chunk into `out`; returns how many. */
static size_t take_bounds(struct creation *k, ProtobufCBinaryData *out)
{
    size_t n = 0, bytes = 0;
    while (k->sent < k->bound_count && n < DIR_CREATE_BATCH) {
        struct slice bound = k->bounds[k->sent];
        if (bytes + bound.len + 8 > CONTROL_CHUNK_BYTES) {
            break;
        }
        bytes += bound.len + 8;
        out[n++] = (ProtobufCBinaryData){bound.len, k->bytes + (bound.data - k->bytes)};
        k->sent++;
    }
    return n;
}

static void on_chunk(void *arg, enum err_code status, void *result);

static void send_chunk(struct request *r)
{
    struct creation *k = r->creation;
    ProtobufCBinaryData *splits = mem_alloc(DIR_CREATE_BATCH * sizeof *splits);
    Cadastre__KeyspaceGrow grow;
    cadastre__keyspace_grow__init(&grow);
    Cadastre__Command message;
    cadastre__command__init(&message);
    grow.keyspace = k->keyspace;
    grow.splits = splits;
    grow.n_splits = take_bounds(k, splits);
    k->token_chunks -= k->token_chunks > 0;
    grow.last = is_last(k);
    message.required_version = r->command->required_version;
    message.principal = r->command->principal;
    message.request_id = r->command->request_id;
    message.remote = r->command->remote;
    if (grow.last) {
        message.idempotency_key = r->command->idempotency_key;
        message.digest = r->command->digest;
    }
    message.body_case = CADASTRE__COMMAND__BODY_KEYSPACE_GROW;
    message.keyspace_grow = &grow;
    propose_message(r, &message, on_chunk);
    mem_free(splits);
}

static void on_chunk(void *arg, enum err_code status, void *result)
{
    struct request *r = arg;
    struct dir_result *outcome = result;
    if (status != ERR_OK || outcome->err.code != ERR_OK || is_last(r->creation)) {
        submit_finish(r, status, outcome);
        return;
    }
    result_unref(outcome);
    send_chunk(r);
}

static void on_first(void *arg, enum err_code status, void *result)
{
    struct request *r = arg;
    struct dir_result *outcome = result;
    if (status != ERR_OK || outcome->err.code != ERR_OK) {
        submit_finish(r, status, outcome);
        return;
    }
    ASSERT(outcome->keyspace != NULL);
    r->creation->keyspace = outcome->keyspace->id;
    result_unref(outcome);
    send_chunk(r);
}

/* Sends the first command, without the key that the last one will carry. */
void create_step(struct request *r)
{
    Cadastre__Command first = *r->command;
    char none[] = "";
    first.idempotency_key = none;
    first.digest = (ProtobufCBinaryData){0, NULL};
    propose_message(r, &first, on_first);
}

enum err_code control_create_keyspace(struct control *c,
                                      const Cadastre__Command *create,
                                      const struct slice *bounds,
                                      uint64_t bound_count,
                                      control_done done,
                                      void *arg)
{
    ASSERT(create->body_case == CADASTRE__COMMAND__BODY_KEYSPACE_CREATE);
    const Cadastre__KeyspaceCreate *body = create->keyspace_create;
    bool chunked =
        bound_count > 0 || (body->scheme == DIR_SCHEME_HASH && body->partitions > DIR_CREATE_BATCH);
    if (!chunked) {
        return control_submit(c, create, done, arg);
    }
    struct request *r = submit_new(c, create, done, arg);
    if (r == NULL) {
        return ERR_OVERLOADED;
    }
    r->command->keyspace_create->more = true;
    r->creation = creation_new(body, bounds, bound_count);
    replica_post(c->replica, submit_run, r);
    return ERR_OK;
}
