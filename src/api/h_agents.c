/* SPDX-License-Identifier: Apache-2.0 */
/* What agents on data nodes call: heartbeats, tasks, the end of a session, duties done. */
#include "api/endpoints.h"

#include "api/task_json.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/parse.h"

#include <inttypes.h>
#include <string.h>

enum { TASKS_INLINE_MAX = 2000 }; /* copies of a node whose tasks a worker writes itself */

/* The name in path variable 0, in memory of the exchange; NULL after a 404. */
static char *path_name(struct exchange *x)
{
    struct slice given = exchange_path(x, 0);
    char *name;
    if (!parse_is_name(given)) {
        reply_problem(x, ERR_NODE_NOT_FOUND, "there is no node of this name");
        return NULL;
    }
    name = exchange_alloc(x, given.len + 1);
    memcpy(name, given.data, given.len);
    name[given.len] = '\0';
    return name;
}

/* --- heartbeat --- */

struct beat_wait {
    struct exchange_ticket *ticket;
    struct control_beat beat;
};

static void beat_done(void *arg, const struct control_beat *beat)
{
    struct beat_wait *w = arg;
    w->beat = *beat;
    exchange_wake(w->ticket, w, mem_free);
}

static void beat_ready(struct exchange *x, void *arg)
{
    struct beat_wait *w = arg;
    const struct control_beat *beat = &w->beat;
    if (beat->status == ERR_SESSION_ENDED) {
        reply_problem(x, beat->status, "the session has ended: stop serving, register again");
    } else if (beat->status == ERR_NODE_NOT_FOUND) {
        reply_problem(x, beat->status, "there is no node of this name");
    } else if (beat->status == ERR_NOT_READY) {
        reply_unavailable(x, beat->status, "it is being decided whether the session has lapsed");
    } else if (!reply_outcome(x, beat->status, beat->leader_url)) {
        buf_printf(exchange_out(x),
                   "{\"lease_ms\":%" PRIu64 ",\"heartbeat_ms\":%" PRIu64 ",\"revision\":%" PRIu64
                   "}",
                   beat->lease_ms, beat->heartbeat_ms, beat->revision);
        exchange_printf_header(x, "Cadastre-Revision", "%" PRIu64, beat->revision);
        exchange_reply(x, 200, NULL);
    }
    mem_free(w);
}

static void beat_gone(struct exchange *x, bool timed_out)
{
    if (timed_out) {
        reply_unavailable(x, ERR_NO_LEADER, "no quorum confirmed it in time");
    }
}

/* {"session":N} and nothing else; false when answered. */
static bool read_session(struct exchange *x, uint64_t *ret_session)
{
    struct err e;
    struct json_in in;
    json_t *body = json_parse_object(exchange_body(x), &e);
    if (body == NULL) {
        exchange_problem(x, &e, NULL, NULL);
        return false;
    }
    json_in_open(&in, body, "", &e);
    *ret_session = json_in_u64(&in, "session", true, 1, PARSE_INT_MAX, NULL);
    if (json_in_close(&in) != ERR_OK) {
        exchange_problem(x, &e, NULL, NULL);
        json_decref(body);
        return false;
    }
    json_decref(body);
    return true;
}

void h_node_heartbeat(struct exchange *x)
{
    struct control *control = exchange_api(x)->control;
    uint64_t session;
    const char *name = leads(x) ? path_name(x) : NULL;
    struct beat_wait *w;
    if (name == NULL || !read_session(x, &session)) {
        return;
    }
    w = mem_zalloc(sizeof *w);
    w->ticket = exchange_ticket(x);
    exchange_park(x, beat_ready, beat_gone, clock_mono_ms() + API_COMMAND_TIMEOUT_MS);
    if (control_heartbeat(control, name, session, beat_done, w) != ERR_OK) {
        beat_done(w, &(struct control_beat){.status = ERR_OVERLOADED});
    }
}

/* --- the end of a session --- */

void h_session_delete(struct exchange *x)
{
    struct mutation *m = mutation_begin(x, "session_end", render_revision);
    Cadastre__SessionEnd *end;
    uint64_t session = 0;
    bool in_body = false;
    if (m == NULL || !param_u64(x, "session", 1, PARSE_INT_MAX, &session)) {
        return;
    }
    end = exchange_alloc(x, sizeof *end);
    cadastre__session_end__init(end);
    end->session = json_in_u64(&m->in, "session", session == 0, 1, PARSE_INT_MAX, &in_body);
    end->session = in_body ? end->session : session;
    end->released = true;
    if (!mutation_close(x, m) || (end->node = path_name(x)) == NULL) {
        return;
    }
    m->command.body_case = CADASTRE__COMMAND__BODY_SESSION_END;
    m->command.session_end = end;
    mutation_submit(x, m);
}

/* --- tasks --- */

struct tasks_wait {
    char *name;
    uint64_t session; /* 0: not given, a person asks */
    dir_rev since;
    uint64_t deadline_ms;
    bool waits;
};

struct tasks_job {
    struct job job;
    uint64_t node;
    dir_rev since;
};

static void
tasks_write(struct buf *out, const struct dir_view *v, const struct dir_node *n, dir_rev since)
{
    buf_printf(out, "{\"revision\":%" PRIu64 ",\"session\":%" PRIu64 ",\"tasks\":", v->revision,
               n->session);
    tasks_put(out, v, n, since, 0);
    buf_put_u8(out, '}');
}

static void tasks_work(struct job *job)
{
    struct tasks_job *j = (struct tasks_job *)(void *)job;
    const struct dir_view *v = view_pin(control_published(job->api->control));
    const struct dir_node *n = view_node_by_id(v, j->node);
    job->revision = v->revision;
    if (n != NULL) {
        tasks_write(&job->out, v, n, j->since);
    } else {
        (void)err_set(&job->err, ERR_NODE_NOT_FOUND, "the node was removed");
    }
    view_unpin(v);
}

static void tasks_start_job(struct exchange *x, const struct dir_node *n, dir_rev since)
{
    struct tasks_job *j = job_new(x, sizeof *j);
    j->job.work = tasks_work;
    j->job.answer = job_reply;
    j->node = n->id;
    j->since = since;
    job_start(x, &j->job);
}

static void tasks_go(struct exchange *x, const struct dir_view *v);

static void tasks_ready(struct exchange *x, void *arg)
{
    (void)arg;
    tasks_go(x, view_enter(api_slot(x)));
    view_leave();
}

/* Time is up: the empty list, at the present revision. */
static void tasks_gone(struct exchange *x, bool timed_out)
{
    struct tasks_wait *w = exchange_state(x);
    if (timed_out) {
        w->deadline_ms = 0;
        tasks_ready(x, NULL);
    }
}

/* Whether the session that asks is the node's; false when answered. */
static bool check_session(struct exchange *x,
                          const struct dir_view *v,
                          const struct dir_node *n,
                          const struct tasks_wait *w)
{
    if (n == NULL) {
        reply_problem(x, ERR_NODE_NOT_FOUND, "there is no node of this name");
        return false;
    }
    if (w->session > v->revision) {
        reply_unavailable(x, ERR_BEHIND, "this server has not seen session %" PRIu64 " yet",
                          w->session);
        return false;
    }
    if (w->session != 0 && (w->session != n->session || n->ended)) {
        reply_problem(x, ERR_SESSION_ENDED, "session %" PRIu64 " of \"%s\" has ended", w->session,
                      n->name);
        return false;
    }
    return true;
}

static void tasks_go(struct exchange *x, const struct dir_view *v)
{
    struct tasks_wait *w = exchange_state(x);
    const struct dir_node *n = view_node(v, slice_of(w->name, strlen(w->name)));
    if (!check_session(x, v, n, w)) {
        return;
    }
    if (n->task_revision <= w->since && w->deadline_ms > clock_mono_ms()) {
        if (!w->waits) {
            w->waits = true;
            exchange_park(x, tasks_ready, tasks_gone, w->deadline_ms);
            exchange_follow_feed(x);
        }
        return;
    }
    if (n->partition_count > TASKS_INLINE_MAX) {
        tasks_start_job(x, n, w->since);
        return;
    }
    tasks_write(exchange_out(x), v, n, w->since);
    reply_read(x, v->revision);
}

static void get_tasks(struct exchange *x, const struct dir_view *v)
{
    struct tasks_wait *w = exchange_alloc(x, sizeof *w);
    uint64_t wait_ms = 0;
    *w = (struct tasks_wait){.name = path_name(x)};
    if (w->name == NULL || !param_u64(x, "session", 1, PARSE_INT_MAX, &w->session) ||
        !param_u64(x, "since", 0, PARSE_INT_MAX, &w->since) ||
        !param_u64(x, "wait_ms", 0, API_TIMEOUT_MAX_MS, &wait_ms)) {
        return;
    }
    if (w->since > v->revision) {
        reply_unavailable(x, ERR_BEHIND, "revision %" PRIu64 " was not reached yet", w->since);
        return;
    }
    w->deadline_ms = clock_mono_ms() + wait_ms;
    exchange_set_state(x, w);
    tasks_go(x, v);
}

void h_node_tasks(struct exchange *x)
{
    read_begin(x, get_tasks);
}

/* --- duties --- */

static void get_duties(struct exchange *x, const struct dir_view *v)
{
    struct buf *out = exchange_out(x);
    const struct dir_node *n = view_node(v, exchange_path(x, 0));
    const struct dir_duty *d;
    struct ptree_iter it;
    uint8_t key[16];
    bool any = false;
    if (n == NULL) {
        reply_problem(x, ERR_NODE_NOT_FOUND, "there is no node of this name");
        return;
    }
    buf_printf(out, "{\"revision\":%" PRIu64 ",\"duties\":[", v->revision);
    (void)ptree_u64_key(n->id, key);
    (void)ptree_u64_key(0, key + 8);
    for (ptree_seek(&v->duties_by_node, slice_of(key, sizeof key), &it);
         (d = ptree_iter_get(&it, NULL)) != NULL && d->node == n->id; ptree_iter_next(&it)) {
        buf_printf(out,
                   "%s{\"id\":%" PRIu64 ",\"keyspace\":\"%s\",\"partition\":%" PRIu64
                   ",\"copy\":%" PRIu64,
                   any ? "," : "", d->id, d->keyspace_name, d->partition, d->copy);
        if (d->operation != 0) {
            buf_printf(out, ",\"operation\":%" PRIu64, d->operation);
        }
        buf_printf(out, ",\"revision\":%" PRIu64 "}", d->revision);
        any = true;
    }
    buf_put_str(out, "]}");
    reply_read(x, v->revision);
}

void h_duties_list(struct exchange *x)
{
    read_begin(x, get_duties);
}

void h_duty_done(struct exchange *x)
{
    struct mutation *m = mutation_begin(x, "duty_done", render_revision);
    Cadastre__DutyDone *done;
    bool present = false;
    if (m == NULL) {
        return;
    }
    done = exchange_alloc(x, sizeof *done);
    cadastre__duty_done__init(done);
    done->session = json_in_u64(&m->in, "session", true, 1, PARSE_INT_MAX, NULL);
    done->copy = json_in_u64(&m->in, "copy", true, 1, PARSE_INT_MAX, NULL);
    done->deleted_bytes = json_in_u64(&m->in, "deleted_bytes", false, 0, PARSE_INT_MAX, &present);
    if (!mutation_close(x, m) || (done->node = path_name(x)) == NULL) {
        return;
    }
    if (!path_id(x, 1, &done->duty)) {
        reply_problem(x, ERR_NOT_FOUND, "a duty's id is a number");
        return;
    }
    m->command.body_case = CADASTRE__COMMAND__BODY_DUTY_DONE;
    m->command.duty_done = done;
    mutation_submit(x, m);
}
