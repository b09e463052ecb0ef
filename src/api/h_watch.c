/* SPDX-License-Identifier: Apache-2.0 */
/* Changes as server-sent events. A watcher is a cursor into the ring: the writer never waits for
 * it, and one that fell out of the ring is told to reset. What is older than the ring when the
 * watch begins is read from the store first. */
#include "api/endpoints.h"

#include "api/follow.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/parse.h"

#include <inttypes.h>
#include <string.h>

struct watch {
    struct follow follow;
    struct buf preface; /* retry, and what came from the store */
    dir_rev told;       /* the last id that the client has */
    uint64_t beat_ms;
    /* Changes taken from the ring and not yet sent: references. A large one goes out in pieces, so
     * that a watcher's memory does not grow with it. */
    struct dir_change *taken[FOLLOW_READ_MAX];
    unsigned taken_at, taken_count;
    dir_rev taken_upto; /* what has been seen when they are sent */
    size_t sent;        /* of the JSON of taken[taken_at] */
    bool begun;         /* its head is sent */
    bool reset;         /* tell it to start again, and end */
    bool ended;
};

static void drop_taken(struct watch *w)
{
    while (w->taken_at < w->taken_count) {
        change_unref(w->taken[w->taken_at++]);
    }
}

static void put_reset(struct watch *w, struct buf *out)
{
    const struct dir_view *v = view_enter(control_published(w->follow.api->control));
    buf_printf(out,
               "id: %" PRIu64 "\nevent: reset\ndata: {\"revision\":%" PRIu64
               ",\"generation\":%" PRIu64 "}\n\n",
               v->revision, v->revision, v->generation);
    view_leave();
    w->ended = true;
    drop_taken(w);
}

/* The id is the revision, once the whole revision is there: a client that resumes from an id must
 * not miss the rest of it. */
static void put_head(struct watch *w, struct buf *out, const struct dir_change *c)
{
    bool last =
        w->taken_at + 1 == w->taken_count || w->taken[w->taken_at + 1]->revision != c->revision;
    if (last) {
        buf_printf(out, "id: %" PRIu64 "\n", c->revision);
        w->told = c->revision;
    }
    buf_put_str(out, "event: change\ndata: ");
    w->begun = true;
    w->sent = 0;
}

/* Sends the present change on, up to `until` bytes in `out`; false when that was not all. */
static bool put_change(struct watch *w, struct buf *out, size_t until)
{
    struct dir_change *c = w->taken[w->taken_at];
    struct slice json = change_json(c);
    size_t n = json.len - w->sent;
    if (!w->begun) {
        put_head(w, out, c);
        n = json.len;
    }
    if (out->len + n > until) {
        n = until > out->len ? until - out->len : 1;
    }
    buf_put(out, json.data + w->sent, n);
    w->sent += n;
    if (w->sent < json.len) {
        return false;
    }
    buf_put_str(out, "\n\n");
    w->begun = false;
    w->ended = c->kind == DIR_CHANGE_DELETE;
    change_unref(c);
    w->taken_at++;
    return true;
}

/* False when there is more to send. */
static bool put_taken(struct watch *w, struct buf *out, size_t until)
{
    while (w->taken_at < w->taken_count) {
        struct dir_change *c = w->taken[w->taken_at];
        if (!follow_wants(&w->follow, c)) {
            change_unref(c);
            w->taken_at++;
        } else if (c->oversize) {
            put_reset(w, out);
        } else if (!put_change(w, out, until)) {
            return false;
        }
        if (w->ended) {
            drop_taken(w);
        }
    }
    return true;
}

/* False when there may be more. */
static bool read_ring(struct watch *w, struct buf *out, dir_rev upto, size_t until)
{
    struct dir_feed *feed = control_feed(w->follow.api->control);
    while (put_taken(w, out, until) && !w->ended) {
        dir_rev last = w->follow.since;
        int64_t n;
        if (w->taken_count > 0) {
            follow_seen(&w->follow, w->taken_upto);
            w->taken_at = w->taken_count = 0;
        }
        if (w->follow.since >= upto) {
            return true;
        }
        if (out->len >= until) {
            return false;
        }
        n = feed_read(feed, w->follow.keyspace->id, w->follow.since, upto, w->taken,
                      FOLLOW_READ_MAX, &last);
        if (n < 0) {
            put_reset(w, out);
        } else if (n == 0) {
            follow_seen(&w->follow, last);
        } else {
            w->taken_count = (unsigned)n;
            w->taken_upto = last;
        }
    }
    return w->ended;
}

/* With the id when it moved on without an event for this watcher: what it resumes from stays fresh.
 */
static void put_heartbeat(struct watch *w, struct buf *out)
{
    buf_put_str(out, ": heartbeat\n");
    if (w->follow.since > w->told) {
        buf_printf(out, "id: %" PRIu64 "\n", w->follow.since);
        w->told = w->follow.since;
    }
    buf_put_u8(out, '\n');
}

static enum stream_next watch_next(void *state, struct buf *out, uint64_t *ret_again_ms)
{
    struct watch *w = state;
    size_t before = out->len;
    uint64_t now = clock_mono_ms();
    dir_rev upto;
    if (w->ended) {
        return STREAM_END;
    }
    buf_put(out, w->preface.data, w->preface.len);
    buf_close(&w->preface);
    if (w->reset) {
        put_reset(w, out);
        return STREAM_MORE;
    }
    upto = view_enter(control_published(w->follow.api->control))->revision;
    view_leave();
    if (!read_ring(w, out, upto, before + API_STREAM_CHUNK) || w->ended) {
        return STREAM_MORE;
    }
    if (out->len == before && now >= w->beat_ms) {
        put_heartbeat(w, out);
    }
    if (out->len > before) {
        w->beat_ms = now + FOLLOW_HEARTBEAT_MS;
    }
    *ret_again_ms = w->beat_ms;
    return STREAM_WAIT;
}

static void watch_end(void *state)
{
    struct watch *w = state;
    drop_taken(w);
    follow_close(&w->follow);
    buf_close(&w->preface);
    mem_free(w);
}

/* Takes over `w`. */
static void stream(struct exchange *x, struct watch *w)
{
    static const struct stream_ops ops = {watch_next, watch_end};
    struct buf lead;
    buf_init(&lead, API_RESPONSE_MAX);
    buf_printf(&lead, "retry: %" PRIu64 "\n\n", jitter_ms());
    buf_put(&lead, w->preface.data, w->preface.len);
    buf_close(&w->preface);
    w->preface = lead;
    w->beat_ms = clock_mono_ms() + FOLLOW_HEARTBEAT_MS;
    if (!w->reset) {
        follow_register(&w->follow, x);
    }
    set_read_headers(x, w->follow.since);
    exchange_set_header(x, "Cache-Control", "no-store");
    exchange_stream(x, 200, "text/event-stream", false, &ops, w);
    exchange_follow_feed(x);
}

/* --- older than the ring --- */

struct watch_job {
    struct job job;
    struct catch_up catch_up;
    struct watch *watch; /* owns, until it streams */
};

static void catch_up_work(struct job *job)
{
    struct watch_job *j = (struct watch_job *)(void *)job;
    job->err.code = catch_up_read(&j->catch_up, &job->out, &job->err);
}

static void catch_up_close(struct job *job)
{
    struct watch_job *j = (struct watch_job *)(void *)job;
    if (j->watch != NULL) {
        watch_end(j->watch);
    }
}

static void catch_up_answer(struct exchange *x, struct job *job)
{
    struct watch_job *j = (struct watch_job *)(void *)job;
    struct watch *w = j->watch;
    if (job->err.code != ERR_OK && job->err.code != ERR_COMPACTED) {
        job_reply(x, job);
        return;
    }
    j->watch = NULL;
    if (job->err.code == ERR_COMPACTED || j->catch_up.cut) {
        w->reset = true;
    } else {
        buf_put(&w->preface, job->out.data, job->out.len);
        w->follow.since = j->catch_up.last;
        w->told = w->follow.since;
    }
    stream(x, w);
}

static void catch_up_start(struct exchange *x, struct watch *w, dir_rev upto)
{
    struct watch_job *j = job_new(x, sizeof *j);
    j->job.work = catch_up_work;
    j->job.answer = catch_up_answer;
    j->job.close = catch_up_close;
    j->watch = w;
    j->catch_up = (struct catch_up){.follow = &w->follow,
                                    .sse = true,
                                    .upto = upto,
                                    .limit = UINT64_MAX,
                                    .bytes_max = FOLLOW_PREFACE_MAX};
    job_start(x, &j->job);
}

/* --- begin --- */

/* Last-Event-ID, "REVISION" or "GENERATION-REVISION", is newer than the URL's `since` when a client
 * reconnects. */
static bool read_since(struct exchange *x, struct follow *f)
{
    const char *id = exchange_header(x, "Last-Event-ID");
    char text[48], *dash;
    if (id == NULL) {
        return param_u64(x, "since", 0, PARSE_INT_MAX, &f->since);
    }
    if (strlen(id) < sizeof text) {
        memcpy(text, id, strlen(id) + 1);
        dash = strchr(text, '-');
        if (dash == NULL) {
            dash = text;
        } else {
            *dash++ = '\0';
        }
        if (parse_u64(dash, PARSE_INT_MAX, &f->since) &&
            (dash == text || parse_u64(text, PARSE_INT_MAX, &f->generation))) {
            return true;
        }
    }
    reply_problem(x, ERR_INVALID_REQUEST, "Last-Event-ID is not one that this stream gave");
    return false;
}

/* NULL when answered. */
static struct watch *open_watch(struct exchange *x, const struct dir_view *v)
{
    struct watch *w = mem_zalloc(sizeof *w);
    buf_init(&w->preface, API_RESPONSE_MAX);
    if (!follow_open(x, v, &w->follow)) {
        watch_end(w);
        return NULL;
    }
    w->follow.since = v->revision;
    if (!read_since(x, &w->follow)) {
        watch_end(w);
        return NULL;
    }
    w->told = w->follow.since;
    w->reset = w->follow.generation != v->generation || w->follow.since < v->compacted;
    if (!w->reset && w->follow.since > v->revision) {
        reply_unavailable(x, ERR_BEHIND, "revision %" PRIu64 " was not reached yet",
                          w->follow.since);
        watch_end(w);
        return NULL;
    }
    return w;
}

static void get_watch(struct exchange *x)
{
    const struct dir_view *v = view_pin(api_slot(x));
    struct watch *w = open_watch(x, v);
    dir_rev revision = v->revision;
    view_unpin(v);
    if (w == NULL) {
        return;
    }
    if (w->reset || w->follow.since >= feed_oldest(control_feed(w->follow.api->control))) {
        stream(x, w);
    } else {
        catch_up_start(x, w, revision);
    }
}

void h_watch(struct exchange *x)
{
    read_begin_pinning(x, get_watch);
}
