/* SPDX-License-Identifier: Apache-2.0 */
/* What an agent tells the directory about its work. A report keeps its sequence number until its
 * fate is known, so that it counts once however often it is sent. */
#include "base/clock.h"
#include "base/mem.h"
#include "client/agent.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { TARGET_MAX = 320, CAPPED_MS = 86400000 };

static struct timespec until_of(uint64_t deadline_ms)
{
    uint64_t now = clock_boot_ms(), left = deadline_ms > now ? deadline_ms - now : 0;
    struct timespec ts;
    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    uint64_t ns = (uint64_t)ts.tv_nsec + left % 1000 * 1000000;
    ts.tv_sec += (time_t)(left / 1000 + ns / 1000000000);
    ts.tv_nsec = (long)(ns % 1000000000);
    return ts;
}

struct cl_sender *cl_sender_take(struct cadastre_agent *a, uint64_t deadline_ms)
{
    struct timespec until = until_of(deadline_ms);
    struct cl_sender *s = NULL;
    int rc = 0;
    (void)pthread_mutex_lock(&a->lock);
    while (s == NULL && rc == 0 && !a->stopping) {
        for (unsigned i = 0; i < CL_SENDERS_MAX && s == NULL; i++) {
            s = a->senders[i].busy ? NULL : &a->senders[i];
        }
        if (s == NULL) {
            rc = pthread_cond_timedwait(&a->changed, &a->lock, &until);
        }
    }
    if (s != NULL) {
        s->busy = true;
    }
    (void)pthread_mutex_unlock(&a->lock);
    return s;
}

void cl_sender_give(struct cadastre_agent *a, struct cl_sender *s)
{
    (void)pthread_mutex_lock(&a->lock);
    s->busy = false;
    (void)pthread_cond_broadcast(&a->changed);
    (void)pthread_mutex_unlock(&a->lock);
}

/* Sends the body and gives it back; `once`: one try. */
static enum cadastre_status send_body(struct cadastre_agent *a,
                                      const char *target,
                                      json_t *body,
                                      uint64_t timeout_ms,
                                      bool once,
                                      struct cadastre_error *e)
{
    uint64_t deadline = clock_boot_ms() + (timeout_ms < CAPPED_MS ? timeout_ms : CAPPED_MS);
    struct cl_sender *s = cl_sender_take(a, deadline);
    struct cadastre_error ignored;
    struct cl_answer answer;
    char key[33];
    e = e != NULL ? e : &ignored;
    *e = (struct cadastre_error){0};
    if (s == NULL) {
        json_decref(body);
        return cl_error(e, CADASTRE_TIMEOUT, "", "too many reports are on their way");
    }
    char *text = json_dumps(body, JSON_COMPACT);
    json_decref(body);
    cl_random_key(key);
    struct cl_request rq = {.method = "POST",
                            .target = target,
                            .body = text,
                            .idempotency_key = once ? NULL : key,
                            .deadline_ms = deadline,
                            .once = once};
    enum cadastre_status status = cl_fetch_send(s->fetch, &rq, &answer, e);
    cl_answer_close(&answer);
    cl_sender_give(a, s);
    mem_free(text);
    if (cl_session_ended(status, e)) {
        status = CADASTRE_NO_SESSION;
    } else if (status == CADASTRE_REFUSED &&
               (strcmp(e->code, "stale_report") == 0 || strcmp(e->code, "stale_epoch") == 0)) {
        status = CADASTRE_STALE;
    }
    e->status = status;
    return status;
}

/* The next sequence number, one that no process of this node has used. 0: the disk failed. */
static uint64_t next_seq(struct cadastre_agent *a, struct cadastre_error *e)
{
    uint64_t seq = 0;
    (void)pthread_mutex_lock(&a->lock);
    bool ok = true;
    if (a->next_seq > a->seq_reserved) {
        a->seq_reserved += CL_SEQ_BLOCK;
        ok = cl_state_save(a, e) == CADASTRE_OK;
        a->seq_reserved -= ok ? 0 : CL_SEQ_BLOCK;
    }
    if (ok) {
        seq = a->next_seq++;
    }
    (void)pthread_mutex_unlock(&a->lock);
    return seq;
}

static json_t *read_fields(const char *fields)
{
    json_t *body = cl_json_parse(slice_of(fields, strlen(fields)));
    if (!json_is_object(body)) {
        json_decref(body);
        return NULL;
    }
    return body;
}

static void put_u64(json_t *body, const char *name, uint64_t value)
{
    (void)json_object_set_new(body, name, json_integer((json_int_t)value));
}

enum cadastre_status cadastre_agent_report(struct cadastre_agent *a,
                                           const struct cadastre_task *task,
                                           const char *fields,
                                           uint64_t timeout_ms,
                                           struct cadastre_error *e)
{
    char target[TARGET_MAX];
    struct cadastre_error ignored;
    e = e != NULL ? e : &ignored;
    if (task->session != atomic_load(&a->session) || task->session == 0) {
        return cl_error(e, CADASTRE_NO_SESSION, "", "the task is of an earlier session");
    }
    json_t *body = read_fields(fields);
    if (body == NULL || task->operation[0] == '\0') {
        json_decref(body);
        return cl_error(e, CADASTRE_INVALID, "", "not a task of an operation, or not an object");
    }
    uint64_t seq = next_seq(a, e);
    if (seq == 0) {
        json_decref(body);
        return CADASTRE_IO;
    }
    (void)json_object_set_new(body, "node", json_string(a->node));
    (void)json_object_set_new(body, "stage", json_string(task->stage_name));
    put_u64(body, "session", task->session);
    put_u64(body, "attempt", task->attempt);
    put_u64(body, "seq", seq);
    (void)snprintf(target, sizeof target, "/v1/operations/%s/reports", task->operation);
    return send_body(a, target, body, timeout_ms, false, e);
}

enum cadastre_status cadastre_agent_cleaned(struct cadastre_agent *a,
                                            const struct cadastre_task *task,
                                            uint64_t deleted_bytes,
                                            uint64_t timeout_ms,
                                            struct cadastre_error *e)
{
    char target[TARGET_MAX];
    if (cadastre_agent_copy(a, task->keyspace, task->partition) == task->copy) {
        enum cadastre_status status =
            cadastre_agent_set_copy(a, task->keyspace, task->partition, 0);
        if (status != CADASTRE_OK) {
            return cl_error(e, status, "", "the copy could not be forgotten");
        }
    }
    uint64_t session = atomic_load(&a->session);
    if (session == 0) {
        return cl_error(e, CADASTRE_NO_SESSION, "", "there is no session");
    }
    json_t *body = json_object();
    put_u64(body, "session", session);
    put_u64(body, "copy", task->copy);
    put_u64(body, "deleted_bytes", deleted_bytes);
    (void)snprintf(target, sizeof target, "/v1/nodes/%s/duties/%" PRIu64, a->node, task->duty);
    return send_body(a, target, body, timeout_ms, false, e);
}

enum cadastre_status cadastre_agent_insync(struct cadastre_agent *a,
                                           const struct cadastre_partition *p,
                                           uint64_t epoch,
                                           const char *const *nodes,
                                           size_t count,
                                           uint64_t timeout_ms)
{
    char target[TARGET_MAX];
    uint64_t session = atomic_load(&a->session);
    if (session == 0) {
        return CADASTRE_NO_SESSION;
    }
    json_t *body = json_object(), *list = json_array();
    for (size_t i = 0; i < count; i++) {
        (void)json_array_append_new(list, json_string(nodes[i]));
    }
    put_u64(body, "session", session);
    put_u64(body, "epoch", epoch);
    put_u64(body, "mod_revision", atomic_load(&p->revision));
    (void)json_object_set_new(body, "insync", list);
    (void)snprintf(target, sizeof target, "/v1/keyspaces/%s/partitions/%" PRIu64 "/insync",
                   p->keyspace, p->id);
    return send_body(a, target, body, timeout_ms, false, NULL);
}
