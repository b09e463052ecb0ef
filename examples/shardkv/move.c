/* SPDX-License-Identifier: Apache-2.0 */
/* The snapshot of this store is its log up to a position: what is there never changes while the
 * epoch lasts. D pulls it in chunks of PEER_BATCH changes, each with its checksum, and then what
 * came since. From DUAL_WRITE on, D is in must_have, so that replicate() gives it every write.
 *
 * VALIDATE sums up both sides at one position, which has to be reached exactly: the write path does
 * it (node_capture). On an idle partition S writes changes of no key to get there. */
#include "examples/shardkv/move.h"

#include <curl/curl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

enum {
    POLL_MS = 10,
    IDLE_POLLS = 20, /* so many without a write: the partition is idle */
    REPORT_MS = 5000,
    REPORT_CHUNKS = 16,
    REPORT_AGAIN_MS = 100,
    URL_SIZE = 512
};

static void pause_ms(uint64_t ms)
{
    const struct timespec t = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};
    (void)nanosleep(&t, NULL);
}

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

static uint64_t running_of(struct part *p)
{
    (void)pthread_mutex_lock(&p->lock);
    uint64_t running = p->store != NULL ? kv_running(p->store) : 0;
    (void)pthread_mutex_unlock(&p->lock);
    return running;
}

/* --- S sends, D takes --- */

void move_checksum(const char *bytes, size_t len, char *out)
{
    (void)snprintf(out, 17, "%016" PRIx64, (uint64_t)XXH3_64bits(bytes, len));
}

struct chosen {
    json_t *json;
    uint64_t upto;
};

static void put_chosen(void *arg, const struct change *c)
{
    struct chosen *to = arg;
    if (c->position <= to->upto) {
        peer_put_change(to->json, c);
    }
}

char *
move_changes(struct part *p, uint64_t epoch, uint64_t after, uint64_t *epoch_at, uint64_t upto)
{
    struct chosen to = {json_array(), upto};
    uint64_t here = 0, theirs = *epoch_at;
    (void)pthread_mutex_lock(&p->lock);
    bool ok = p->store != NULL && p->role == CADASTRE_ROLE_PRIMARY && p->epoch == epoch;
    if (ok) {
        (void)kv_epoch_at(p->store, after, &here);
        *epoch_at = here;
    }
    ok = ok && here == theirs && kv_changes(p->store, after, PEER_BATCH, put_chosen, &to);
    (void)pthread_mutex_unlock(&p->lock);
    char *text = ok ? json_dumps(to.json, JSON_COMPACT) : NULL;
    json_decref(to.json);
    return text;
}

struct chunk {
    char *bytes;
    size_t len;
    char checksum[17]; /* as S sent it */
};

static size_t take_bytes(char *bytes, size_t one, size_t n, void *arg)
{
    struct chunk *c = arg;
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
    static const char name[] = "X-Checksum: ";
    struct chunk *c = arg;
    size_t at = sizeof name - 1;
    (void)one;
    if (n >= at + 16 && strncasecmp(bytes, name, at) == 0) {
        memcpy(c->checksum, bytes + at, 16);
    }
    return n;
}

/* The status, 0 without an answer. */
static long
pull(CURL *curl, const struct job *job, const struct kv_batch *b, uint64_t upto, struct chunk *c)
{
    const struct cadastre_task *t = job->task;
    char url[URL_SIZE];
    long status = 0;
    *c = (struct chunk){.len = 0};
    (void)snprintf(url, sizeof url,
                   "http://%s/changes?keyspace=%s&partition=%" PRIu64 "&epoch=%" PRIu64
                   "&after=%" PRIu64 "&after_epoch=%" PRIu64 "&upto=%" PRIu64,
                   t->peer.address, t->keyspace, t->partition, t->epoch, b->after, b->after_epoch,
                   upto);
    (void)curl_easy_setopt(curl, CURLOPT_URL, url);
    (void)curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    (void)curl_easy_setopt(curl, CURLOPT_PROXY, "");
    (void)curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)PEER_TRY_MS);
    (void)curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_bytes);
    (void)curl_easy_setopt(curl, CURLOPT_WRITEDATA, c);
    (void)curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, take_header);
    (void)curl_easy_setopt(curl, CURLOPT_HEADERDATA, c);
    if (curl_easy_perform(curl) == CURLE_OK) {
        (void)curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    }
    return status;
}

enum taken { TAKEN, NOTHING_LEFT, DAMAGED, AGAIN, NOT_YET };

/* The next changes up to `upto` from S to here. */
static enum taken
take_chunk(struct node *n, const struct job *job, CURL *curl, uint64_t upto, size_t *ret_bytes)
{
    struct part *p = job->part;
    struct kv_batch b = {.epoch = job->task->epoch, .start = UINT64_MAX};
    struct change *changes = NULL;
    struct chunk c;
    char sum[17];
    uint64_t position;
    (void)pthread_mutex_lock(&p->lock);
    b.after = p->store != NULL ? kv_position(p->store) : 0;
    b.after_epoch = p->store != NULL ? kv_epoch(p->store) : 0;
    (void)pthread_mutex_unlock(&p->lock);
    enum taken taken = NOT_YET;
    long status = pull(curl, job, &b, upto, &c);
    json_t *json = json_loadb(c.bytes != NULL ? c.bytes : "", c.len, 0, NULL);
    if (status == 200) {
        move_checksum(c.bytes != NULL ? c.bytes : "", c.len, sum);
        taken = DAMAGED;
        if (strcmp(sum, c.checksum) == 0 && peer_read_changes(json, &changes, &b.count)) {
            b.changes = changes;
            enum outcome o = node_follow(n, p, 0, &b, &position);
            taken = o != DONE ? NOT_YET : b.count > 0 ? TAKEN : NOTHING_LEFT;
        }
    } else if (status == 409) {
        /* What an earlier attempt left parts from S's log here: goes back by one entry. */
        b.after_epoch = (uint64_t)json_integer_value(json_object_get(json, "epoch"));
        (void)node_follow(n, p, 0, &b, &position);
        taken = AGAIN;
    }
    json_decref(json);
    *ret_bytes = c.len;
    free(changes);
    free(c.bytes);
    return taken;
}

/* --- D's stages --- */

static void d_prepare(struct node *n, const struct job *job)
{
    struct part *p = job->part;
    struct statvfs fs;
    bool here = false;
    while (!here && current(n, job)) { /* the order that makes the copy may come after this one */
        (void)pthread_mutex_lock(&p->lock);
        here = p->store != NULL && p->copy == job->task->copy;
        (void)pthread_mutex_unlock(&p->lock);
        pause_ms(here ? 0 : POLL_MS);
    }
    if (here && statvfs(n->data_dir, &fs) == 0) {
        uint64_t bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
        (void)report(n, job, "{\"ready\":true,\"free_bytes\":%" PRIu64 "}", bytes);
    }
}

static void d_copy(struct node *n, const struct job *job)
{
    const struct cadastre_task *t = job->task;
    CURL *curl = curl_easy_init();
    uint64_t bytes_done = 0, failures = 0, chunks = 0;
    while (curl != NULL && current(n, job) && position_of(job->part) < t->position) {
        size_t bytes = 0;
        enum taken taken = take_chunk(n, job, curl, t->position, &bytes);
        failures += taken == DAMAGED;
        if (taken != TAKEN) {
            pause_ms(taken == AGAIN ? 0 : POLL_MS);
            continue;
        }
        bytes_done += bytes;
        if (++chunks % REPORT_CHUNKS == 0) {
            (void)report(n, job,
                         "{\"chunk\":%" PRIu64 ",\"bytes_done\":%" PRIu64
                         ",\"checksum_failures\":%" PRIu64 "}",
                         position_of(job->part) / PEER_BATCH, bytes_done, failures);
        }
        if (t->rate_bytes_per_s != CADASTRE_NONE && t->rate_bytes_per_s > 0) {
            pause_ms(bytes * 1000 / t->rate_bytes_per_s);
        }
    }
    if (curl != NULL && current(n, job)) {
        (void)report(n, job,
                     "{\"chunk\":%" PRIu64 ",\"bytes_done\":%" PRIu64
                     ",\"checksum_failures\":%" PRIu64 ",\"complete\":true}",
                     (t->position + PEER_BATCH - 1) / PEER_BATCH, bytes_done, failures);
    }
    curl_easy_cleanup(curl);
}

static void d_catch_up(struct node *n, const struct job *job)
{
    CURL *curl = curl_easy_init();
    while (curl != NULL && current(n, job)) {
        size_t bytes = 0;
        enum taken taken = take_chunk(n, job, curl, UINT64_C(1) << 53, &bytes);
        if (taken == NOTHING_LEFT) {
            (void)report(n, job, "{\"applied_position\":%" PRIu64 ",\"lag_bytes\":0}",
                         position_of(job->part));
        }
        pause_ms(taken == TAKEN || taken == AGAIN ? 0 : POLL_MS);
    }
    curl_easy_cleanup(curl);
}

static void d_dual_write(struct node *n, const struct job *job)
{
    while (current(n, job)) {
        (void)report(n, job, "{\"applied_position\":%" PRIu64 "}", position_of(job->part));
        pause_ms(REPORT_AGAIN_MS);
    }
}

static void d_cutover(struct node *n, const struct job *job)
{
    struct part *p = job->part;
    while (current(n, job) && position_of(p) < job->task->final_position) {
        pause_ms(POLL_MS);
    }
    if (current(n, job)) {
        (void)report(n, job, "{\"applied_position\":%" PRIu64 ",\"checksum\":\"%016" PRIx64 "\"}",
                     position_of(p), running_of(p));
    }
}

/* --- S's stages --- */

static void s_snapshot(struct node *n, const struct job *job)
{
    struct part *p = job->part;
    struct kv_sums sums = {0};
    (void)pthread_mutex_lock(&p->lock);
    uint64_t position = p->store != NULL ? kv_position(p->store) : 0;
    uint64_t bytes = p->store != NULL ? kv_bytes(p->store) : 0;
    bool ok = p->store != NULL && kv_sums(p->store, &sums);
    (void)pthread_mutex_unlock(&p->lock);
    if (ok) {
        (void)report(n, job,
                     "{\"snapshot\":\"log-%" PRIu64 "\",\"position\":%" PRIu64
                     ",\"bytes_total\":%" PRIu64 ",\"items_total\":%" PRIu64 "}",
                     position, position, bytes, sums.items);
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
        pause_ms(POLL_MS);
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
        running = running_of(p);
        brought = bring_peer(p, job->task);
        (void)pthread_mutex_unlock(&p->writer);
        pause_ms(brought ? 0 : POLL_MS);
    }
    if (brought) {
        (void)report(n, job,
                     "{\"fenced\":true,\"epoch\":%" PRIu64 ",\"final_position\":%" PRIu64
                     ",\"checksum\":\"%016" PRIx64 "\"}",
                     job->task->epoch, position, running);
    }
}

static void s_window(struct node *n, const struct job *job)
{
    (void)report(n, job, "{\"open_operations\":0,\"stale_reads\":0}");
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
            pause_ms(POLL_MS);
        }
    }
    if (has) {
        (void)report(n, job,
                     "{\"at_position\":%" PRIu64 ",\"items\":%" PRIu64 ",\"checksum\":\"%016" PRIx64
                     "\"}",
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
        [CADASTRE_STAGE_OTHER] = NULL};
    void (*fn)(struct node *, const struct job *) =
        (job->task->is_source ? as_source : as_destination)[job->task->stage];
    if (fn != NULL && current(n, job)) {
        fn(n, job);
    }
}
