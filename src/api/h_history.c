/* SPDX-License-Identifier: Apache-2.0 */
/* The past, from the store: the route of a key as it was, and who was ever given a partition. */
#include "api/endpoints.h"

#include "api/route_json.h"
#include "base/mem.h"
#include "base/parse.h"
#include "directory/codec.h"

#include <inttypes.h>
#include <string.h>

/* --- a route at a revision --- */

struct route_job {
    struct job job;
    char keyspace[DIR_NAME_MAX + 1];
    size_t key_len;
    char etag[ROUTE_ETAG_SIZE];
    struct dir_keyspace *then;  /* a reference */
    const struct dir_view *now; /* pinned */
    uint8_t key[];
};

static void on_route(void *arg, const struct store_version *version)
{
    struct route_job *j = arg;
    struct route_image image;
    route_of_version(&image, j->now, j->then, version);
    route_etag(&image, j->etag);
    route_put_open(&j->job.out, &image);
    buf_printf(&j->job.out, ",\"revision\":%" PRIu64 "}", j->job.revision);
}

static void route_work(struct job *job)
{
    struct route_job *j = (struct route_job *)(void *)job;
    struct store *store = control_store(job->api->control);
    uint8_t decoded[DIR_KEY_MAX], routing[DIR_ROUTING_KEY_MAX];
    size_t decoded_len = 0, routing_len = 0;
    if (store_await(store, job->revision, API_TIMEOUT_DEFAULT_MS, &job->err) != ERR_OK) {
        return;
    }
    j->then = store_keyspace_at(store, slice_of(j->keyspace, strlen(j->keyspace)), job->revision);
    if (j->then == NULL || j->then->hidden) {
        (void)err_set(&job->err, ERR_KEYSPACE_NOT_FOUND, "there was no keyspace of this name then");
        return;
    }
    if (dir_codec_decode(j->then, slice_of(j->key, j->key_len), decoded, &decoded_len, &job->err) !=
            ERR_OK ||
        dir_codec_routing_key(j->then, slice_of(decoded, decoded_len), routing, &routing_len,
                              &job->err) != ERR_OK) {
        return;
    }
    j->now = view_pin(control_published(job->api->control));
    job->err.code = store_route_at(store, j->then->id, slice_of(routing, routing_len),
                                   job->revision, on_route, j, &job->err);
}

static void route_answer(struct exchange *x, struct job *job)
{
    const struct route_job *j = (struct route_job *)(void *)job;
    if (job->err.code != ERR_OK || !reply_not_modified(x, j->etag, job->revision)) {
        job_reply(x, job);
    }
}

static void route_close(struct job *job)
{
    struct route_job *j = (struct route_job *)(void *)job;
    dir_unref(j->then);
    if (j->now != NULL) {
        view_unpin(j->now);
    }
}

/* Whether the state at `revision` can be shown; else answers. */
static bool in_reach(struct exchange *x, const struct dir_view *v, dir_rev revision)
{
    if (revision > v->revision) {
        reply_unavailable(x, ERR_BEHIND, "revision %" PRIu64 " was not reached yet", revision);
        return false;
    }
    if (revision < v->compacted) {
        reply_compacted(x, v, "states before revision %" PRIu64 " are no longer kept",
                        v->compacted);
        return false;
    }
    return true;
}

void route_at(struct exchange *x, const struct dir_view *v)
{
    const struct slice *key = exchange_param(x, "key");
    struct slice name = exchange_path(x, 0);
    uint64_t revision = 0;
    struct route_job *j;
    if (!param_u64(x, "at_revision", 0, PARSE_INT_MAX, &revision) || !in_reach(x, v, revision)) {
        return;
    }
    if (key == NULL) {
        reply_problem(x, ERR_INVALID_REQUEST, "query parameter key is missing");
        return;
    }
    if (!parse_is_name(name)) {
        reply_problem(x, ERR_KEYSPACE_NOT_FOUND, "there is no keyspace of this name");
        return;
    }
    j = job_new(x, sizeof *j + key->len);
    j->job.work = route_work;
    j->job.answer = route_answer;
    j->job.close = route_close;
    j->job.revision = revision;
    memcpy(j->keyspace, name.data, name.len);
    j->key_len = key->len;
    if (key->len > 0) {
        memcpy(j->key, key->data, key->len);
    }
    job_start(x, &j->job);
}

/* --- the authority ledger of a partition --- */

struct ledger_job {
    struct job job;
    uint64_t partition;
    bool hex;
    /* The entry that is being written: its versions that follow may belong to it. */
    bool open;
    dir_rev epoch, to_revision;
    uint64_t to_ms;
    char primary[DIR_NAME_MAX + 1];
};

static const char *primary_of(const struct store_version *v)
{
    bool has = v->replica_count > 0 && v->replicas[0].role == DIR_ROLE_PRIMARY &&
               v->state != DIR_UNAVAILABLE;
    return has ? v->replicas[0].name : "";
}

static void ledger_finish(struct ledger_job *j)
{
    struct buf *b = &j->job.out;
    if (!j->open) {
        return;
    }
    if (j->to_revision > 0) {
        buf_printf(b, ",\"to_revision\":%" PRIu64 ",\"to_time\":", j->to_revision);
        json_put_time(b, j->to_ms);
    }
    buf_put_u8(b, '}');
}

static void ledger_begin(struct ledger_job *j, const struct store_version *v)
{
    struct buf *b = &j->job.out;
    const char *primary = primary_of(v);
    if (j->open) {
        buf_put_u8(b, ',');
    }
    j->open = true;
    j->epoch = v->epoch;
    memcpy(j->primary, primary, strlen(primary) + 1);
    buf_printf(b, "{\"epoch\":%" PRIu64, v->epoch);
    if (v->start.len > 0) {
        buf_put_str(b, ",\"start\":");
        bound_put(b, j->hex, v->start);
    }
    if (!v->end_open) {
        buf_put_str(b, ",\"end\":");
        bound_put(b, j->hex, v->end);
    }
    if (primary[0] != '\0') {
        buf_printf(b, ",\"primary\":{\"node\":\"%s\",\"address\":", primary);
        json_put_cstring(b, v->replicas[0].address);
        buf_put_u8(b, '}');
    } else {
        buf_put_str(b, ",\"primary\":null");
    }
    buf_printf(b, ",\"cause\":\"%s\"", dir_change_name(v->cause));
    if (v->operation != 0) {
        buf_printf(b, ",\"operation\":%" PRIu64, v->operation);
    }
    buf_printf(b, ",\"from_revision\":%" PRIu64 ",\"from_time\":", v->from_revision);
    json_put_time(b, v->from_ms);
}

static bool on_version(void *arg, const struct store_version *v)
{
    struct ledger_job *j = arg;
    if (v->from_revision > j->job.revision) {
        return false;
    }
    if (!j->open || v->epoch != j->epoch || strcmp(primary_of(v), j->primary) != 0) {
        ledger_finish(j);
        ledger_begin(j, v);
    }
    j->to_revision = v->to_revision <= j->job.revision ? v->to_revision : 0;
    j->to_ms = v->to_ms;
    return true;
}

static void ledger_work(struct job *job)
{
    struct ledger_job *j = (struct ledger_job *)(void *)job;
    struct store *store = control_store(job->api->control);
    buf_printf(&job->out, "{\"revision\":%" PRIu64 ",\"partition\":%" PRIu64 ",\"history\":[",
               job->revision, j->partition);
    if (store_await(store, job->revision, API_TIMEOUT_DEFAULT_MS, &job->err) == ERR_OK) {
        job->err.code = store_history(store, j->partition, on_version, j, &job->err);
        ledger_finish(j);
    }
    buf_put_str(&job->out, "]}");
}

static void get_history(struct exchange *x, const struct dir_view *v)
{
    const struct dir_keyspace *ks = read_keyspace(x, v);
    const struct dir_tombstone *tombstone = NULL;
    struct ledger_job *j;
    uint64_t id = 0;
    if (ks == NULL) {
        return;
    }
    if (!path_id(x, 1, &id) ||
        (view_partition(v, ks, id, &tombstone) == NULL && tombstone == NULL)) {
        reply_no_partition(x, v, NULL);
        return;
    }
    j = job_new(x, sizeof *j);
    j->job.work = ledger_work;
    j->job.answer = job_reply;
    j->job.revision = v->revision;
    j->partition = id;
    j->hex = dir_codec_bounds_are_hex(ks);
    job_start(x, &j->job);
}

void h_partition_history(struct exchange *x)
{
    read_begin(x, get_history);
}
