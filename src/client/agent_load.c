/* SPDX-License-Identifier: Apache-2.0 */
/* Load reports, cut into requests of a few MiB. Each has a number of its own, so that it counts
 * once however often it is sent. */
#include "base/clock.h"
#include "base/mem.h"
#include "client/agent.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    TARGET_MAX = 160,
    CAPPED_MS = 86400000,
    BATCH_BYTES = 4 << 20, /* after which a request is sent; one more partition still fits in */
    BATCH_BYTES_MAX = 8 << 20,
    BATCH_PARTITIONS = 50000
};

struct batch {
    struct cadastre_agent *agent;
    const struct cadastre_load_report *report;
    uint64_t session, deadline_ms;
    struct buf body;
    size_t in_body, counted;
};

static void put(json_t *object, const char *name, uint64_t value)
{
    (void)json_object_set_new(object, name, json_integer((json_int_t)value));
}

static void put_optional(json_t *object, const struct cadastre_load *l)
{
    const struct {
        uint32_t bit;
        const char *name;
        uint64_t value;
    } all[] = {{CADASTRE_LOAD_ERRORS, "errors", l->errors},
               {CADASTRE_LOAD_THROTTLES, "throttles", l->throttles},
               {CADASTRE_LOAD_CACHE_MISSES, "cache_misses", l->cache_misses},
               {CADASTRE_LOAD_BACKGROUND_BYTES, "background_bytes", l->background_bytes},
               {CADASTRE_LOAD_QUEUE, "queue_ms_p99", l->queue_ms_p99},
               {CADASTRE_LOAD_STORAGE_LATENCY, "storage_latency_ms_p99", l->storage_latency_ms_p99},
               {CADASTRE_LOAD_ITEMS, "items", l->items},
               {CADASTRE_LOAD_TOMBSTONES, "tombstones", l->tombstones}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if ((l->has & all[i].bit) != 0) {
            put(object, all[i].name, all[i].value);
        }
    }
}

/* NULL when a key is no UTF-8, which JSON can't hold. */
static json_t *keys_of(const struct cadastre_load *l)
{
    json_t *keys = json_array();
    for (size_t i = 0; i < l->key_count && i < CADASTRE_LOAD_KEYS_MAX; i++) {
        const struct cadastre_load_key *k = &l->keys[i];
        json_t *key = json_object();
        bool ok = json_object_set_new(key, "key", json_stringn(k->key, k->key_len)) == 0;
        if (ok && k->end != NULL) {
            ok = json_object_set_new(key, "end", json_stringn(k->end, k->end_len)) == 0;
        }
        put(key, "weight", k->weight);
        (void)json_array_append_new(keys, key);
        if (!ok) {
            json_decref(keys);
            return NULL;
        }
    }
    return keys;
}

/* NULL when a name is no UTF-8. */
static json_t *parts_of(const struct cadastre_load *l)
{
    json_t *parts = json_array();
    bool ok = true;
    for (size_t i = 0; i < l->by_count && i < CADASTRE_LOAD_BY_MAX; i++) {
        const struct cadastre_load_by *by = &l->by[i];
        json_t *part = json_object();
        ok &= json_object_set_new(part, "operation", json_string(by->operation)) == 0 &&
              json_object_set_new(part, "outcome", json_string(by->outcome)) == 0;
        if (by->tenant != NULL) {
            ok &= json_object_set_new(part, "tenant", json_string(by->tenant)) == 0;
        }
        put(part, "requests", by->requests);
        (void)json_array_append_new(parts, part);
    }
    if (!ok) {
        json_decref(parts);
        return NULL;
    }
    return parts;
}

/* As JSON in memory to be freed, or NULL. */
static char *partition_text(const struct cadastre_load *l)
{
    json_t *keys = keys_of(l), *parts = parts_of(l), *object = json_object();
    char *text = NULL;
    bool ok = keys != NULL && parts != NULL &&
              json_object_set_new(object, "keyspace", json_string(l->keyspace)) == 0;
    put(object, "partition", l->partition);
    put(object, "epoch", l->epoch);
    put(object, "reads", l->reads);
    put(object, "writes", l->writes);
    put(object, "read_bytes", l->read_bytes);
    put(object, "write_bytes", l->write_bytes);
    put(object, "cpu_ms", l->cpu_ms);
    put(object, "size_bytes", l->size_bytes);
    put_optional(object, l);
    if (ok && json_array_size(keys) > 0) {
        (void)json_object_set(object, "keys", keys);
    }
    if (ok && json_array_size(parts) > 0) {
        (void)json_object_set(object, "by", parts);
    }
    if (ok) {
        text = json_dumps(object, JSON_COMPACT);
    }
    json_decref(keys);
    json_decref(parts);
    json_decref(object);
    return text;
}

static void batch_begin(struct batch *b)
{
    (void)pthread_mutex_lock(&b->agent->lock);
    uint64_t seq = ++b->agent->load_seq;
    (void)pthread_mutex_unlock(&b->agent->lock);
    buf_reset(&b->body);
    b->in_body = 0;
    buf_printf(&b->body, "{\"session\":%" PRIu64 ",\"interval_ms\":%" PRIu64 ",\"seq\":%" PRIu64,
               b->session, b->report->interval_ms, seq);
    if (b->report->node != NULL) {
        buf_printf(&b->body, ",\"node\":%s", b->report->node);
    }
    buf_put_str(&b->body, ",\"partitions\":[");
}

static void take_answer(struct batch *b, const struct cl_answer *answer)
{
    json_t *body = cl_json_parse(slice_of(answer->body.data, answer->body.len));
    uint64_t counted = 0;
    if (cl_json_u64(body, "counted", &counted)) {
        b->counted += counted;
    }
    json_decref(body);
}

static enum cadastre_status batch_send(struct batch *b, struct cadastre_error *e)
{
    char target[TARGET_MAX];
    struct cl_answer answer;
    struct cl_sender *s = cl_sender_take(b->agent, b->deadline_ms);
    if (s == NULL) {
        return cl_error(e, CADASTRE_TIMEOUT, "", "too many reports are on their way");
    }
    buf_put(&b->body, "]}", sizeof "]}"); /* with the NUL */
    (void)snprintf(target, sizeof target, "/v1/nodes/%s/load", b->agent->node);
    struct cl_request rq = {.method = "POST",
                            .target = target,
                            .body = (const char *)b->body.data,
                            .deadline_ms = b->deadline_ms};
    enum cadastre_status status = CADASTRE_INVALID;
    if (b->body.overflow) {
        (void)cl_error(e, status, "", "one partition's load is too large to send");
    } else {
        status = cl_fetch_send(s->fetch, &rq, &answer, e);
        if (status == CADASTRE_OK) {
            take_answer(b, &answer);
        }
        cl_answer_close(&answer);
    }
    cl_sender_give(b->agent, s);
    if (cl_session_ended(status, e)) {
        status = CADASTRE_NO_SESSION;
    } else if (status == CADASTRE_REFUSED && strcmp(e->code, "stale_report") == 0) {
        /* The number is this request's alone: a try whose answer was lost has counted. */
        b->counted += b->in_body;
        *e = (struct cadastre_error){0};
        status = CADASTRE_OK;
    }
    return status;
}

static enum cadastre_status
batch_add(struct batch *b, const struct cadastre_load *l, struct cadastre_error *e)
{
    char *text = partition_text(l);
    enum cadastre_status status = CADASTRE_OK;
    if (text == NULL) {
        return cl_error(e, CADASTRE_INVALID, "", "a keyspace, a key or a name is not UTF-8");
    }
    if (b->in_body > 0) {
        buf_put_u8(&b->body, ',');
    }
    buf_put_str(&b->body, text);
    mem_free(text);
    b->in_body++;
    if (b->body.len >= BATCH_BYTES || b->in_body == BATCH_PARTITIONS) {
        status = batch_send(b, e);
        batch_begin(b);
    }
    return status;
}

enum cadastre_status cadastre_agent_report_load(struct cadastre_agent *a,
                                                const struct cadastre_load_report *report,
                                                uint64_t timeout_ms,
                                                size_t *ret_counted,
                                                struct cadastre_error *e)
{
    struct cadastre_error ignored;
    struct batch b = {.agent = a,
                      .report = report,
                      .session = atomic_load(&a->session),
                      .deadline_ms =
                          clock_boot_ms() + (timeout_ms < CAPPED_MS ? timeout_ms : CAPPED_MS)};
    enum cadastre_status status = CADASTRE_OK;
    e = e != NULL ? e : &ignored;
    *e = (struct cadastre_error){0};
    if (b.session == 0) {
        return cl_error(e, CADASTRE_NO_SESSION, "", "there is no session");
    }
    buf_init(&b.body, BATCH_BYTES_MAX);
    batch_begin(&b);
    for (size_t i = 0; i < report->count && status == CADASTRE_OK; i++) {
        status = batch_add(&b, &report->loads[i], e);
    }
    if (status == CADASTRE_OK && (b.in_body > 0 || report->count == 0)) {
        status = batch_send(&b, e);
    }
    buf_close(&b.body);
    if (ret_counted != NULL) {
        *ret_counted = b.counted;
    }
    e->status = status;
    return status;
}
