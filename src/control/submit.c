/* SPDX-License-Identifier: Apache-2.0 */
/* A command from an HTTP thread to its outcome.
 *
 * The thread that hands it over packs it; the loop adds the time, as one more field at the end of
 * the message (of a field that comes twice, protobuf keeps the last). A refusal is first confirmed
 * to be the leader's own: a deposed leader must not say "no such keyspace" of one that its
 * successor made. */
#include "control/internal.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/mem.h"

#include <string.h>

enum { TIME_FIELD_TAG = 2 << 3, TIME_FIELD_BYTES_MAX = 11 };

static bool has_key(const struct request *r)
{
    return r->command->idempotency_key[0] != '\0';
}

static bool same_key(const Cadastre__Command *a, const Cadastre__Command *b)
{
    return strcmp(a->idempotency_key, b->idempotency_key) == 0 &&
           strcmp(a->principal, b->principal) == 0;
}

static bool same_digest(const Cadastre__Command *a, const Cadastre__Command *b)
{
    return a->digest.len == b->digest.len &&
           (a->digest.len == 0 || memcmp(a->digest.data, b->digest.data, a->digest.len) == 0);
}

static struct request **bucket_of(struct control *c, const Cadastre__Command *command)
{
    uint64_t h = hash_xxh3_64(command->idempotency_key, strlen(command->idempotency_key));
    return &c->in_flight[h % CONTROL_BUCKETS];
}

static void list_in_flight(struct request *r)
{
    struct request **bucket = bucket_of(r->control, r->command);
    r->next_in_bucket = *bucket;
    *bucket = r;
    r->listed = true;
}

static void unlist(struct request *r)
{
    struct request **at = bucket_of(r->control, r->command);
    while (*at != r) {
        ASSERT(*at != NULL);
        at = &(*at)->next_in_bucket;
    }
    *at = r->next_in_bucket;
    r->listed = false;
}

static struct request *find_in_flight(const struct request *r)
{
    struct request *other = *bucket_of(r->control, r->command);
    while (other != NULL && !same_key(other->command, r->command)) {
        other = other->next_in_bucket;
    }
    return other;
}

static void answer(struct request *r, enum err_code status, struct dir_result *result)
{
    struct control_outcome outcome = {.status = status, .result = result};
    if (status == ERR_NOT_LEADER) {
        control_leader_url(r->control, outcome.leader_url);
    }
    atomic_fetch_sub(&r->control->queued, 1);
    r->done(r->arg, &outcome);
    if (r->creation != NULL) {
        create_free(r->creation);
    }
    cadastre__command__free_unpacked(r->command, NULL);
    mem_free(r->packed);
    mem_free(r);
}

/* The same outcome for one that waited: it says that it is a replay. */
static void answer_joined(struct request *waiter, enum err_code status, struct dir_result *result)
{
    struct dir_result *copy = NULL;
    if (status == ERR_OK) {
        struct buf bytes;
        struct err e;
        buf_init(&bytes, SIZE_MAX);
        result_encode(result, &bytes);
        copy = result_decode(slice_of(bytes.data, bytes.len), &e);
        ASSERT(copy != NULL);
        buf_close(&bytes);
        atomic_fetch_add(&waiter->control->replayed, 1);
    }
    answer(waiter, status, copy);
    result_unref(copy);
}

/* Ends the request: takes over one reference of `result` (NULL unless ERR_OK). */
void submit_finish(struct request *r, enum err_code status, struct dir_result *result)
{
    ASSERT((status == ERR_OK) == (result != NULL));
    struct request *waiter = r->joined;
    if (r->listed) {
        unlist(r);
    }
    if (status == ERR_OK && result->err.code != ERR_OK) {
        atomic_fetch_add(&r->control->refused, 1);
    }
    while (waiter != NULL) {
        struct request *next = waiter->joined;
        answer_joined(waiter, status, result);
        waiter = next;
    }
    answer(r, status, result);
    result_unref(result);
}

static void on_applied(void *arg, enum err_code status, void *result)
{
    submit_finish(arg, status, result);
}

enum err_code
submit_propose(struct request *r, const uint8_t *packed, size_t len, replica_propose_cb cb)
{
    uint8_t *bytes = mem_alloc(len + TIME_FIELD_BYTES_MAX);
    uint64_t time_ms = control_log_time(r->control);
    memcpy(bytes, packed, len);
    bytes[len++] = TIME_FIELD_TAG;
    for (; time_ms >= 0x80; time_ms >>= 7) {
        bytes[len++] = (uint8_t)(time_ms | 0x80);
    }
    bytes[len++] = (uint8_t)time_ms;
    enum err_code code = replica_propose(r->control->replica, bytes, len, cb, r);
    mem_free(bytes);
    if (code == ERR_OK) {
        r->control->last_command_ms = clock_mono_ms();
        atomic_fetch_add(&r->control->commands, 1);
    }
    return code;
}

static void on_refusal_confirmed(void *arg, enum err_code status)
{
    struct request *r = arg;
    if (status != ERR_OK) {
        submit_finish(r, ERR_NOT_LEADER, NULL);
        return;
    }
    r->confirmed = true;
    submit_run(r);
}

/* True when the request waits for another with its key, or was answered because of it. */
static bool settled_by_key(struct request *r)
{
    struct control *c = r->control;
    struct dir_result *known =
        directory_lookup(directory_state(c->parts.directory), r->command->principal,
                         r->command->idempotency_key, r->command->digest.data);
    if (known != NULL) {
        atomic_fetch_add(&c->replayed, 1);
        submit_finish(r, ERR_OK, known);
        return true;
    }
    struct request *other = r->listed ? NULL : find_in_flight(r);
    if (other == NULL) {
        return false;
    }
    if (!same_digest(other->command, r->command)) {
        struct dir_result *mismatch = mem_zalloc(sizeof *mismatch);
        atomic_init(&mismatch->refs, 1);
        mismatch->revision = directory_state(c->parts.directory)->revision;
        err_set(&mismatch->err, ERR_IDEMPOTENCY_MISMATCH,
                "another request with this Idempotency-Key is being carried out");
        submit_finish(r, ERR_OK, mismatch);
    } else if (other->joined_count >= CONTROL_JOINED_MAX) {
        submit_finish(r, ERR_OVERLOADED, NULL);
    } else {
        other->joined_count++;
        r->joined = other->joined;
        other->joined = r;
    }
    return true;
}

/* Loop thread. The request is in the table of keys from here on, so that a retry finds it at every
 * stage. */
void submit_run(void *arg)
{
    struct request *r = arg;
    struct control *c = r->control;
    if (!c->active || atomic_load(&c->stopping)) {
        submit_finish(r, ERR_NOT_LEADER, NULL);
        return;
    }
    if (has_key(r)) {
        if (settled_by_key(r)) {
            return;
        }
        if (!r->listed) {
            list_in_flight(r);
        }
    }
    struct dir_result *expected = directory_try(c->parts.directory, r->command);
    struct dir_result *held = expected->err.code == ERR_OK ? hold_refusal(c, r->command) : NULL;
    if (held != NULL) {
        result_unref(expected);
        expected = held;
    }
    if (expected->err.code != ERR_OK) {
        if (r->confirmed) {
            submit_finish(r, ERR_OK, expected);
            return;
        }
        result_unref(expected);
        enum err_code code = replica_confirm(c->replica, on_refusal_confirmed, r);
        if (code != ERR_OK) {
            submit_finish(r, code, NULL);
        }
        return;
    }
    result_unref(expected);
    if (r->creation != NULL) {
        create_step(r);
        return;
    }
    enum err_code code = submit_propose(r, r->packed, r->packed_len, on_applied);
    if (code != ERR_OK) {
        submit_finish(r, code, NULL);
    }
}

static struct request *
request_new(struct control *c, const Cadastre__Command *command, control_done done, void *arg)
{
    struct request *r = mem_zalloc(sizeof *r);
    r->control = c;
    r->done = done;
    r->arg = arg;
    r->packed = mem_alloc(cadastre__command__get_packed_size(command));
    r->packed_len = cadastre__command__pack(command, r->packed);
    r->command = cadastre__command__unpack(NULL, r->packed_len, r->packed);
    ASSERT(r->command != NULL);
    return r;
}

struct request *
submit_new(struct control *c, const Cadastre__Command *command, control_done done, void *arg)
{
    if (atomic_fetch_add(&c->queued, 1) >= CONTROL_QUEUE_MAX) {
        atomic_fetch_sub(&c->queued, 1);
        return NULL;
    }
    return request_new(c, command, done, arg);
}

enum err_code
control_submit(struct control *c, const Cadastre__Command *command, control_done done, void *arg)
{
    if (cadastre__command__get_packed_size(command) + TIME_FIELD_BYTES_MAX > DIR_COMMAND_MAX) {
        return ERR_TOO_LARGE;
    }
    struct request *r = submit_new(c, command, done, arg);
    if (r == NULL) {
        return ERR_OVERLOADED;
    }
    replica_post(c->replica, submit_run, r);
    return ERR_OK;
}

struct confirmation {
    struct control *control;
    control_done done;
    void *arg;
};

static void on_confirmed(void *arg, enum err_code status)
{
    struct confirmation *k = arg;
    struct control_outcome outcome = {.status = status};
    if (status == ERR_NOT_LEADER) {
        control_leader_url(k->control, outcome.leader_url);
    }
    atomic_fetch_sub(&k->control->queued, 1);
    k->done(k->arg, &outcome);
    mem_free(k);
}

static void confirm_run(void *arg)
{
    struct confirmation *k = arg;
    enum err_code code = replica_confirm(k->control->replica, on_confirmed, k);
    if (code != ERR_OK) {
        on_confirmed(k, code);
    }
}

enum err_code control_confirm(struct control *c, control_done done, void *arg)
{
    if (atomic_fetch_add(&c->queued, 1) >= CONTROL_QUEUE_MAX) {
        atomic_fetch_sub(&c->queued, 1);
        return ERR_OVERLOADED;
    }
    atomic_fetch_add(&c->confirms, 1);
    struct confirmation *k = mem_alloc(sizeof *k);
    *k = (struct confirmation){c, done, arg};
    replica_post(c->replica, confirm_run, k);
    return ERR_OK;
}
