/* SPDX-License-Identifier: Apache-2.0 */
/* The thread that keeps the session alive. A lease is counted from just before its request was
 * sent, by a clock that runs on while the machine sleeps. */
#include "base/clock.h"
#include "base/mem.h"
#include "client/agent.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { TARGET_MAX = 160, KEY_SIZE = 33 };

bool cl_session_ended(enum cadastre_status status, const struct cadastre_error *e)
{
    return (status == CADASTRE_REFUSED && strcmp(e->code, "session_ended") == 0) ||
           (status == CADASTRE_NOT_FOUND && strcmp(e->code, "node_not_found") == 0);
}

static void forbid(struct cadastre_partition *p, void *arg)
{
    (void)arg;
    atomic_store(&p->may, 0);
}

void cl_agent_session_over(struct cadastre_agent *a, uint64_t session)
{
    (void)pthread_mutex_lock(&a->lock);
    if (atomic_load(&a->session) == session && session != 0) {
        cl_partition_each(a, forbid, NULL);
        cl_until_set(&a->lease, 0);
        atomic_store(&a->session, 0);
        a->ended = session;
        a->expired = a->tell_expired = a->tell_renewed = false;
        (void)pthread_cond_broadcast(&a->changed);
    }
    (void)pthread_mutex_unlock(&a->lock);
    cl_event(&a->hooks, "agent.session.ended", "session %" PRIu64, session);
    cl_fetch_interrupt(a->order_fetch);
    cl_fetch_interrupt(a->lease_fetch);
}

/* --- registering --- */

static void put_copy(struct cadastre_partition *p, void *arg)
{
    if (p->copy > 0) {
        json_t *copy = json_object();
        (void)json_object_set_new(copy, "keyspace", json_string(p->keyspace));
        (void)json_object_set_new(copy, "partition", json_integer((json_int_t)p->id));
        (void)json_object_set_new(copy, "copy", json_integer((json_int_t)p->copy));
        (void)json_array_append_new(arg, copy);
    }
}

static char *registration(struct cadastre_agent *a)
{
    json_t *body = json_object(), *copies = json_array();
    (void)json_object_set_new(body, "address", json_string(a->address));
    (void)json_object_set(body, "labels", a->labels);
    (void)json_object_set(body, "capacity", a->capacity);
    (void)pthread_mutex_lock(&a->lock);
    cl_partition_each(a, put_copy, copies);
    if (a->previous_session > 0) {
        (void)json_object_set_new(body, "previous_session",
                                  json_integer((json_int_t)a->previous_session));
    }
    (void)pthread_mutex_unlock(&a->lock);
    (void)json_object_set_new(body, "copies", copies);
    char *text = json_dumps(body, JSON_COMPACT);
    json_decref(body);
    return text;
}

/* Holds the lock. Only a leader takes registrations and heartbeats. True: it is another one. */
static bool note_leader(struct cadastre_agent *a, const struct cl_answer *answer)
{
    bool other = strcmp(a->leader, answer->server) != 0;
    (void)snprintf(a->leader, sizeof a->leader, "%s", answer->server);
    return other;
}

/* The session is stored before it counts: whoever starts here next must name it. */
static bool
begin_session(struct cadastre_agent *a, const struct cl_answer *answer, uint64_t first_ms)
{
    json_t *body = cl_json_parse(slice_of(answer->body.data, answer->body.len));
    uint64_t session = 0, lease_ms = 0, revision = answer->revision;
    struct cadastre_error e;
    bool ok = cl_json_u64(body, "session", &session) && session > 0 &&
              cl_json_u64(body, "lease_ms", &lease_ms) && lease_ms > 0;
    (void)cl_json_u64(body, "revision", &revision);
    json_decref(body);
    if (!ok) {
        cl_event(&a->hooks, "agent.failed", "%s: the registration's answer makes no sense",
                 answer->server);
        return false;
    }
    (void)pthread_mutex_lock(&a->lock);
    uint64_t last = a->last_session;
    a->last_session = session;
    ok = cl_state_save(a, &e) == CADASTRE_OK;
    a->last_session = ok ? session : last;
    if (ok) {
        a->previous_session = 0; /* from here on this process is no proof of anybody's death */
        a->session_revision = revision;
        a->lease_ms = lease_ms;
        a->expired = false;
        (void)note_leader(a, answer);
        cl_until_set(&a->lease, first_ms + lease_ms);
        atomic_store(&a->session, session);
        (void)pthread_cond_broadcast(&a->changed);
    }
    (void)pthread_mutex_unlock(&a->lock);
    if (ok) {
        cl_event(&a->hooks, "agent.session.started", "session %" PRIu64, session);
        cl_fetch_interrupt(a->order_fetch);
    }
    return ok;
}

/* Until there is a session. A try whose outcome is open is repeated with its key, and its lease is
 * counted from the first time it was sent. */
static enum cadastre_status do_register(struct cadastre_agent *a)
{
    char target[TARGET_MAX], key[KEY_SIZE], *body = registration(a);
    uint64_t first_ms = 0;
    enum cadastre_status status = CADASTRE_TIMEOUT;
    (void)snprintf(target, sizeof target, "/v1/nodes/%s", a->node);
    cl_random_key(key);
    while (status == CADASTRE_TIMEOUT) {
        struct cadastre_error e = {0};
        struct cl_answer answer;
        struct cl_request rq = {.method = "PUT",
                                .target = target,
                                .body = body,
                                .idempotency_key = key,
                                .deadline_ms = clock_boot_ms() + 4 * a->timeout_ms};
        status = cl_fetch_send(a->lease_fetch, &rq, &answer, &e);
        first_ms = first_ms > 0 ? first_ms : answer.first_ms;
        if (status == CADASTRE_OK && !begin_session(a, &answer, first_ms)) {
            status = CADASTRE_INVALID;
        } else if (status != CADASTRE_OK && status != CADASTRE_CLOSED) {
            cl_event(&a->hooks, "agent.register.failed", "%s", e.detail);
        }
        cl_answer_close(&answer);
    }
    mem_free(body);
    return status;
}

/* --- heartbeats --- */

static uint64_t interval_ms(struct cadastre_agent *a)
{
    uint64_t third = a->lease_ms / 3;
    return a->heartbeat_ms < third ? a->heartbeat_ms : third;
}

static void renewed(struct cadastre_agent *a, uint64_t session, const struct cl_answer *answer)
{
    json_t *body = cl_json_parse(slice_of(answer->body.data, answer->body.len));
    uint64_t lease_ms = 0;
    bool ok = cl_json_u64(body, "lease_ms", &lease_ms) && lease_ms > 0;
    json_decref(body);
    (void)pthread_mutex_lock(&a->lock);
    uint64_t until = answer->sent_ms + lease_ms;
    bool tell = false;
    if (ok && atomic_load(&a->session) == session && until > cl_until_get(&a->lease)) {
        a->lease_ms = lease_ms;
        cl_until_set(&a->lease, until);
        tell = a->expired && until > clock_boot_ms();
        if (tell) {
            a->expired = false;
            a->tell_renewed = true;
            (void)pthread_cond_broadcast(&a->changed);
        }
    }
    bool other = note_leader(a, answer);
    (void)pthread_mutex_unlock(&a->lock);
    if (tell || other) {
        cl_fetch_interrupt(a->order_fetch);
    }
}

/* For the application; may_write looks at the clock itself. */
static void look_at_lease(struct cadastre_agent *a)
{
    bool tell = false;
    (void)pthread_mutex_lock(&a->lock);
    if (atomic_load(&a->session) > 0 && !a->expired && clock_boot_ms() >= cl_until_get(&a->lease)) {
        a->expired = a->tell_expired = tell = true;
        (void)pthread_cond_broadcast(&a->changed);
    }
    (void)pthread_mutex_unlock(&a->lock);
    if (tell) {
        cl_event(&a->hooks, "agent.lease.expired", "no heartbeat succeeded in time");
        cl_fetch_interrupt(a->order_fetch);
    }
}

/* One, and the pause after it. */
static void heartbeat(struct cadastre_agent *a, uint64_t session)
{
    char target[TARGET_MAX], body[64];
    struct cadastre_error e = {0};
    struct cl_answer answer;
    uint64_t interval = interval_ms(a), start = clock_boot_ms();
    (void)snprintf(target, sizeof target, "/v1/nodes/%s/heartbeat", a->node);
    (void)snprintf(body, sizeof body, "{\"session\":%" PRIu64 "}", session);
    struct cl_request rq = {
        .method = "POST",
        .target = target,
        .body = body,
        .try_ms = interval > CL_HEARTBEAT_TRY_MIN_MS ? interval : CL_HEARTBEAT_TRY_MIN_MS,
        .deadline_ms = start + interval,
    };
    enum cadastre_status status = cl_fetch_send(a->lease_fetch, &rq, &answer, &e);
    if (status == CADASTRE_OK) {
        renewed(a, session, &answer);
    } else if (cl_session_ended(status, &e)) {
        cl_agent_session_over(a, session);
    }
    cl_answer_close(&answer);
    look_at_lease(a);
    uint64_t took = clock_boot_ms() - start;
    if (status == CADASTRE_OK && took < interval) {
        cl_fetch_pause(a->lease_fetch, interval - took);
    } else if (status != CADASTRE_OK && status != CADASTRE_TIMEOUT && status != CADASTRE_CLOSED &&
               atomic_load(&a->session) == session) {
        cl_fetch_pause(a->lease_fetch, CL_HEARTBEAT_TRY_MIN_MS); /* denied, or nonsense */
    }
}

void *cl_agent_keep(void *agent)
{
    struct cadastre_agent *a = agent;
    for (;;) {
        (void)pthread_mutex_lock(&a->lock);
        bool stopping = a->stopping;
        (void)pthread_mutex_unlock(&a->lock);
        if (stopping) {
            return NULL;
        }
        uint64_t session = atomic_load(&a->session);
        if (session > 0) {
            heartbeat(a, session);
        } else {
            enum cadastre_status status = do_register(a);
            if (status != CADASTRE_OK && status != CADASTRE_CLOSED) {
                cl_fetch_pause(a->lease_fetch, CL_RETRY_MS + cl_random_below(CL_RETRY_MS));
            }
        }
    }
}
