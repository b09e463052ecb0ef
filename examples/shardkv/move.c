/* SPDX-License-Identifier: Apache-2.0 */
/* D pulls S's snapshot in chunks, and then the log from the snapshot's position on. From DUAL_WRITE
 * on, D is in must_have, so that replicate() gives it every write.
 *
 * VALIDATE sums up both sides at one position, which has to be reached exactly: the write path does
 * it (node_capture). On an idle partition S writes changes of no key to get there. */
#include "examples/shardkv/move.h"

#include "examples/shardkv/copy.h"
#include "examples/shardkv/transfer.h"

#include <curl/curl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

enum {
    POLL_MS = 10,
    IDLE_POLLS = 20, /* so many without a write: the partition is idle */
    REPORT_MS = 5000,
    REPORT_CHUNKS = 16,
    REPORT_AGAIN_MS = 100,
    URL_SIZE = 512
};

static bool current(struct node *n, const struct job *job)
{
    return !atomic_load(&n->stopping) && atomic_load(&job->part->serial) == job->serial;
}

/* True when the directory took it. */
__attribute__((format(printf, 3, 4))) static bool
report(struct node *n, const struct job *job, const char *format, ...)
{
    char fields[1024];
    struct cadastre_error e = {.status = CADASTRE_OK};
    va_list args;
    va_start(args, format);
    (void)vsnprintf(fields, sizeof fields, format, args);
    va_end(args);
    enum cadastre_status s = cadastre_agent_report(n->agent, job->task, fields, REPORT_MS, &e);
    if (s != CADASTRE_OK && s != CADASTRE_STALE) {
        (void)fprintf(stderr, "shardkv: %s: %s: %s %s\n", job->task->id, job->task->stage_name,
                      cadastre_status_name(s), e.detail);
    }
    return s == CADASTRE_OK;
}

static uint64_t position_of(struct part *p)
{
    (void)pthread_mutex_lock(&p->lock);
    uint64_t position = p->store != NULL ? kv_position(p->store) : 0;
    (void)pthread_mutex_unlock(&p->lock);
    return position;
}

/* The bounds of what moves, which may be a part of the partition; for the caller to free. */
static char *low_of(const struct cadastre_task *t)
{
    return kv_bound(t->start, t->start_len);
}

static char *high_of(const struct cadastre_task *t)
{
    return t->end_open ? NULL : kv_bound(t->end, t->end_len);
}

static bool is_part(struct part *p, const char *low, const char *high)
{
    (void)pthread_mutex_lock(&p->lock);
    bool whole = p->low != NULL && low != NULL && strcmp(p->low, low) == 0 &&
                 (p->high == NULL) == (high == NULL) &&
                 (high == NULL || strcmp(p->high, high) == 0);
    (void)pthread_mutex_unlock(&p->lock);
    return !whole;
}

/* The checksum of what moves: kept up for a whole partition, counted for a part. */
static uint64_t running_of(struct part *p, const struct cadastre_task *t)
{
    char *low = low_of(t), *high = high_of(t);
    bool part = is_part(p, low, high);
    struct kv_sums sums = {0};
    (void)pthread_mutex_lock(&p->lock);
    if (p->store != NULL && part) {
        (void)kv_sums_of(p->store, low != NULL ? low : "", high, &sums);
    }
    uint64_t running = part ? sums.sum : p->store != NULL ? kv_running(p->store) : 0;
    (void)pthread_mutex_unlock(&p->lock);
    free(low);
    free(high);
    return running;
}

/* --- D's stages --- */

/* CADASTRE_NONE, where no start is known, is past every position. */
static struct puller puller_of(const struct cadastre_task *t, void *curl)
{
    return (struct puller){curl, t->peer.address, t->epoch, t->start_position};
}

static uint64_t free_bytes(const struct node *n)
{
    struct statvfs fs;
    uint64_t bytes = statvfs(n->data_dir, &fs) == 0 ? (uint64_t)fs.f_bavail * fs.f_frsize : 0;
    return bytes < n->free_bytes ? bytes : n->free_bytes;
}

/* Asks a node, itself too, what it is. */
static bool answers(CURL *curl, const char *address, uint64_t schema)
{
    char url[URL_SIZE];
    json_t *json;
    (void)snprintf(url, sizeof url, "http://%s/about", address);
    long status = pull_json(curl, url, &json);
    bool ok = status == 200 &&
              (uint64_t)json_integer_value(json_object_get(json, "schema_version")) == schema;
    json_decref(json);
    return ok;
}

static bool wait_for_copy(struct node *n, const struct job *job)
{
    struct part *p = job->part;
    bool here = false;
    while (!here && current(n, job)) { /* the order that makes the copy may come after this one */
        (void)pthread_mutex_lock(&p->lock);
        here = p->store != NULL && p->copy == job->task->copy;
        (void)pthread_mutex_unlock(&p->lock);
        copy_pause_ms(here ? 0 : POLL_MS);
    }
    return here;
}

/* A check that says no ends the move, so each is asked again for a while before it does. */
static void d_prepare(struct node *n, const struct job *job)
{
    CURL *curl = curl_easy_init();
    bool schema = false, observability = false;
    if (curl == NULL || !wait_for_copy(n, job)) {
        curl_easy_cleanup(curl);
        return;
    }
    for (unsigned i = 0; i < IDLE_POLLS && current(n, job) && !(schema && observability); i++) {
        schema = answers(curl, job->task->peer.address, SCHEMA_VERSION);
        observability = answers(curl, n->address, SCHEMA_VERSION);
        copy_pause_ms(schema && observability ? 0 : REPORT_AGAIN_MS);
    }
    uint64_t bytes = free_bytes(n);
    (void)report(n, job,
                 "{\"ready\":true,\"free_bytes\":%" PRIu64 ",\"checks\":{\"schema\":%s,"
                 "\"observability\":%s,\"capacity\":%s}}",
                 bytes, schema ? "true" : "false", observability ? "true" : "false",
                 bytes > 0 ? "true" : "false");
    curl_easy_cleanup(curl);
}

struct copying {
    uint64_t bytes, failures, chunks;
};

static void report_copy(struct node *n, const struct job *job, const struct copying *c, bool whole)
{
    (void)report(n, job,
                 "{\"chunk\":%" PRIu64 ",\"bytes_done\":%" PRIu64 ",\"checksum_failures\":%" PRIu64
                 "%s}",
                 c->chunks, c->bytes, c->failures, whole ? ",\"complete\":true" : "");
}

/* True when there is nothing more to do, because all is here or has been reported. */
static bool copy_chunk(struct node *n,
                       const struct job *job,
                       struct puller *from,
                       const struct kv_snapshot *of,
                       struct copying *c)
{
    size_t bytes = 0;
    uint64_t rate = job->task->rate_bytes_per_s;
    enum pulled pulled = pull_chunk(n, job->part, from, of, &bytes);
    bool damaged = pulled == PULL_DAMAGED;
    c->failures += damaged;
    c->bytes += bytes;
    if (pulled == PULL_GONE) {
        (void)report(n, job, "{\"gap\":true}");
        return true;
    }
    (void)pthread_mutex_lock(&job->part->lock);
    c->chunks = job->part->store != NULL ? kv_install_next(job->part->store, of) : 0;
    (void)pthread_mutex_unlock(&job->part->lock);
    if (damaged || (pulled == PULLED && c->chunks % REPORT_CHUNKS == 0)) {
        report_copy(n, job, c, false);
    }
    copy_pause_ms(pulled != PULLED                    ? POLL_MS
                  : rate != CADASTRE_NONE && rate > 0 ? bytes * 1000 / rate
                                                      : 0);
    return pulled == PULL_NOTHING_LEFT;
}

static void d_copy(struct node *n, const struct job *job)
{
    CURL *curl = curl_easy_init();
    struct puller from = puller_of(job->task, curl);
    struct kv_snapshot of;
    struct copying c = {.bytes = 0};
    enum pulled pulled = PULL_NOT_YET;
    while (curl != NULL && current(n, job) && pulled != PULLED && pulled != PULL_GONE) {
        pulled = pull_describe(job->part, &from, job->task->snapshot, &of);
        copy_pause_ms(pulled == PULLED ? 0 : POLL_MS);
    }
    bool done = pulled != PULLED;
    if (pulled == PULL_GONE) {
        (void)report(n, job, "{\"gap\":true}");
    }
    while (!done && current(n, job)) {
        done = copy_chunk(n, job, &from, &of, &c);
    }
    if (pulled == PULLED && current(n, job) && c.chunks == kv_chunks(&of)) {
        report_copy(n, job, &c, true);
    }
    curl_easy_cleanup(curl);
}

static void d_catch_up(struct node *n, const struct job *job)
{
    CURL *curl = curl_easy_init();
    struct puller from = puller_of(job->task, curl);
    while (curl != NULL && current(n, job)) {
        uint64_t lag = 0;
        enum pulled pulled = pull_changes(n, job->part, &from, &lag);
        if (pulled == PULL_GONE) {
            (void)report(n, job, "{\"gap\":true}");
        } else if (pulled == PULLED || pulled == PULL_NOTHING_LEFT) {
            (void)report(n, job, "{\"applied_position\":%" PRIu64 ",\"lag_bytes\":%" PRIu64 "}",
                         position_of(job->part), lag);
        }
        copy_pause_ms(pulled == PULLED || pulled == PULL_AGAIN ? 0 : POLL_MS);
    }
    curl_easy_cleanup(curl);
}

static void d_dual_write(struct node *n, const struct job *job)
{
    while (current(n, job)) {
        (void)report(n, job, "{\"applied_position\":%" PRIu64 "}", position_of(job->part));
        copy_pause_ms(REPORT_AGAIN_MS);
    }
}

static void d_cutover(struct node *n, const struct job *job)
{
    struct part *p = job->part;
    while (current(n, job) && position_of(p) < job->task->final_position) {
        copy_pause_ms(POLL_MS);
    }
    if (current(n, job)) {
        (void)report(n, job, "{\"applied_position\":%" PRIu64 ",\"checksum\":\"%016" PRIx64 "\"}",
                     position_of(p), running_of(p, job->task));
    }
}

/* --- S's stages --- */

static void s_snapshot(struct node *n, const struct job *job)
{
    const struct cadastre_task *t = job->task;
    struct kv_snapshot s;
    char name[KV_NAME_SIZE], *low = low_of(t), *high = high_of(t);
    (void)snprintf(name, sizeof name, "%.40s-%" PRIu64 "%s", t->operation, t->attempt,
                   is_part(job->part, low, high) ? "-part" : "");
    const struct copy_part what = {name, low, high};
    while (low != NULL && current(n, job) && !copy_snapshot(n, job->part, &what, &s)) {
        copy_pause_ms(POLL_MS);
    }
    free(low);
    free(high);
    if (current(n, job)) {
        (void)report(n, job,
                     "{\"snapshot\":\"%s\",\"position\":%" PRIu64 ",\"bytes_total\":%" PRIu64
                     ",\"items_total\":%" PRIu64 "}",
                     s.name, s.position, s.bytes, s.items);
    }
}

static bool must_have_it(struct part *p, const struct cadastre_task *t)
{
    struct cadastre_member members[MEMBERS_MAX];
    size_t count = 0, i = 0;
    if (cadastre_must_have(p->handle, t->epoch, members, MEMBERS_MAX, &count) != CADASTRE_OK) {
        return false;
    }
    while (i < count && i < MEMBERS_MAX && strcmp(members[i].node, t->peer.node) != 0) {
        i++;
    }
    return i < count && i < MEMBERS_MAX;
}

/* With `writer`. */
static bool bring_peer(struct part *p, const struct cadastre_task *t)
{
    (void)pthread_mutex_lock(&p->lock);
    uint64_t start = p->start, position = p->store != NULL ? kv_position(p->store) : 0;
    (void)pthread_mutex_unlock(&p->lock);
    const struct peer_call call = {p->keyspace, p->id, t->epoch, start, &t->peer};
    return position == 0 || peer_bring(&p->peer, &call, p->store, &p->lock, position) == PEER_OK;
}

/* D counts for every write from the order on; all that was assigned before it gets now. */
static void s_dual_write(struct node *n, const struct job *job)
{
    struct part *p = job->part;
    while (current(n, job) && !must_have_it(p, job->task)) {
        copy_pause_ms(POLL_MS);
    }
    (void)pthread_mutex_lock(&p->writer);
    bool ok = current(n, job) && bring_peer(p, job->task);
    uint64_t position = position_of(p);
    (void)pthread_mutex_unlock(&p->writer);
    (void)report(n, job, "{\"active\":%s,\"from_position\":%" PRIu64 "}", ok ? "true" : "false",
                 position);
}

static void s_fence(struct node *n, const struct job *job)
{
    struct part *p = job->part;
    bool brought = false;
    uint64_t position = 0, running = 0;
    while (!brought && current(n, job)) {
        (void)pthread_mutex_lock(&p->writer); /* every admitted write has its answer */
        position = position_of(p);
        running = running_of(p, job->task);
        brought = bring_peer(p, job->task);
        (void)pthread_mutex_lock(&p->lock);
        p->fenced = job->task->epoch;
        p->final = position;
        (void)pthread_mutex_unlock(&p->lock);
        (void)pthread_mutex_unlock(&p->writer);
        copy_pause_ms(brought ? 0 : POLL_MS);
    }
    if (brought) {
        (void)report(n, job,
                     "{\"fenced\":true,\"epoch\":%" PRIu64 ",\"final_position\":%" PRIu64
                     ",\"checksum\":\"%016" PRIx64 "\"}",
                     job->task->epoch, position, running);
    }
}

/* Says how much there is of the old epoch, each time that it is another number. */
static void s_window(struct node *n, const struct job *job)
{
    struct part *p = job->part;
    uint64_t open = UINT64_MAX, reads = UINT64_MAX;
    while (current(n, job)) {
        uint64_t now_open = atomic_load(&p->open_operations);
        uint64_t now_reads = atomic_exchange(&p->stale_reads, 0);
        if (now_open != open || now_reads != reads) {
            (void)report(n, job, "{\"open_operations\":%" PRIu64 ",\"stale_reads\":%" PRIu64 "}",
                         now_open, now_reads);
            open = now_open;
            reads = now_reads;
        }
        copy_pause_ms(REPORT_AGAIN_MS);
    }
}

/* What it took over has to be what its own sums say. */
static void d_window(struct node *n, const struct job *job)
{
    struct part *p = job->part;
    struct kv_sums sums;
    (void)pthread_mutex_lock(&p->lock);
    bool ok = p->store != NULL && kv_sums(p->store, &sums) && sums.sum == sums.running &&
              sums.mutations == kv_position(p->store);
    (void)pthread_mutex_unlock(&p->lock);
    if (!ok) {
        (void)report(n, job, "{\"problem\":\"the items do not sum up\"}");
    }
}

/* --- both --- */

static void nudge(struct node *n, const struct job *job, uint64_t at)
{
    char id[128];
    bool repeated;
    uint64_t position = position_of(job->part);
    (void)snprintf(id, sizeof id, "validate-%s-%" PRIu64 "-%" PRIu64, job->task->operation, at,
                   position);
    const struct mutation m = {job->task->epoch, id, "", ""};
    (void)node_write(n, job->part, &m, &position, &repeated);
}

static void validate(struct node *n, const struct job *job)
{
    struct part *p = job->part;
    uint64_t at = job->task->validate_at, position = 0, before = 0;
    bool has = false;
    (void)pthread_mutex_lock(&p->lock);
    free(p->sum_low);
    free(p->sum_high);
    p->sum_low = low_of(job->task);
    p->sum_high = high_of(job->task);
    p->validate_at = at;
    p->validated = false;
    node_capture(p);
    (void)pthread_mutex_unlock(&p->lock);
    for (unsigned idle = 0; current(n, job) && !has && position <= at;) {
        (void)pthread_mutex_lock(&p->lock);
        position = p->store != NULL ? kv_position(p->store) : 0;
        has = p->validated;
        (void)pthread_mutex_unlock(&p->lock);
        idle = position == before ? idle + 1 : 0;
        before = position;
        if (!has && job->task->is_source && idle > IDLE_POLLS) {
            nudge(n, job, at);
        } else if (!has && position <= at) {
            copy_pause_ms(POLL_MS);
        }
    }
    if (has) { /* to sum up, everything was read: what it was read into is warm */
        (void)report(n, job,
                     "{\"at_position\":%" PRIu64 ",\"items\":%" PRIu64 ",\"checksum\":\"%016" PRIx64
                     "\",\"warm\":true}",
                     at, p->sums.items, p->sums.sum);
    } else if (current(n, job)) {
        (void)report(n, job, "{\"passed\":true,\"at_position\":%" PRIu64 "}", position);
    }
}

void move_stage(struct node *n, const struct job *job)
{
    static void (*const as_source[])(struct node * n, const struct job *job) = {
        [CADASTRE_STAGE_SNAPSHOT] = s_snapshot, [CADASTRE_STAGE_DUAL_WRITE] = s_dual_write,
        [CADASTRE_STAGE_VALIDATE] = validate,   [CADASTRE_STAGE_FENCE] = s_fence,
        [CADASTRE_STAGE_WINDOW] = s_window,     [CADASTRE_STAGE_OTHER] = NULL};
    static void (*const as_destination[])(struct node * n, const struct job *job) = {
        [CADASTRE_STAGE_PREPARE] = d_prepare,   [CADASTRE_STAGE_COPY] = d_copy,
        [CADASTRE_STAGE_CATCH_UP] = d_catch_up, [CADASTRE_STAGE_DUAL_WRITE] = d_dual_write,
        [CADASTRE_STAGE_VALIDATE] = validate,   [CADASTRE_STAGE_CUTOVER] = d_cutover,
        [CADASTRE_STAGE_WINDOW] = d_window,     [CADASTRE_STAGE_OTHER] = NULL};
    void (*fn)(struct node *, const struct job *) =
        (job->task->is_source ? as_source : as_destination)[job->task->stage];
    if (fn != NULL && current(n, job)) {
        fn(n, job);
    }
}
