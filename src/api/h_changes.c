/* SPDX-License-Identifier: Apache-2.0 */
/* Changes of a keyspace since a revision, waiting for the first one: the ring answers, or the store
 * when the ring no longer reaches back that far. */
#include "api/endpoints.h"

#include "api/follow.h"
#include "base/clock.h"
#include "base/parse.h"

#include <inttypes.h>

struct changes {
    struct follow follow;
    dir_rev from;
    uint64_t limit, count, deadline_ms;
    struct buf items; /* what has been found */
    bool waits;       /* parked and following the feed */
};

static void changes_end(void *arg)
{
    struct changes *c = arg;
    follow_close(&c->follow);
    buf_close(&c->items);
}

static void reply_changes(struct exchange *x, const struct changes *c)
{
    struct buf *out = exchange_out(x);
    buf_printf(out, "{\"from\":%" PRIu64 ",\"revision\":%" PRIu64 ",\"changes\":[", c->from,
               c->follow.since);
    buf_put(out, c->items.data, c->items.len);
    buf_put_str(out, "]}");
    reply_read(x, c->follow.since);
}

/* --- from the store --- */

struct catch_up_job {
    struct job job;
    struct catch_up catch_up;
    struct follow follow; /* a copy with a reference of its own: the exchange may end meanwhile */
};

static void changes_go(struct exchange *x, const struct dir_view *v);

static void catch_up_work(struct job *job)
{
    struct catch_up_job *j = (struct catch_up_job *)(void *)job;
    job->err.code = catch_up_read(&j->catch_up, &job->out, &job->err);
}

static void catch_up_close(struct job *job)
{
    struct catch_up_job *j = (struct catch_up_job *)(void *)job;
    follow_close(&j->follow);
}

static void catch_up_answer(struct exchange *x, struct job *job)
{
    struct catch_up_job *j = (struct catch_up_job *)(void *)job;
    struct changes *c = exchange_state(x);
    if (job->err.code != ERR_OK) {
        job_reply(x, job);
        return;
    }
    buf_put(&c->items, job->out.data, job->out.len);
    c->count = j->catch_up.count;
    follow_seen(&c->follow, j->catch_up.last);
    if (c->count > 0) {
        reply_changes(x, c);
        return;
    }
    changes_go(x, view_enter(api_slot(x)));
    view_leave();
}

static void catch_up_start(struct exchange *x, const struct changes *c, dir_rev upto)
{
    struct catch_up_job *j = job_new(x, sizeof *j);
    j->job.work = catch_up_work;
    j->job.answer = catch_up_answer;
    j->job.close = catch_up_close;
    follow_copy(&c->follow, &j->follow);
    j->catch_up = (struct catch_up){
        .follow = &j->follow, .upto = upto, .limit = c->limit, .bytes_max = FOLLOW_BYTES_MAX};
    job_start(x, &j->job);
}

/* --- from the ring --- */

enum found { FOUND_ALL, FOUND_ENOUGH, FOUND_TOO_OLD, FOUND_OVERSIZE };

/* Whether the answer is long enough, at the end of a revision. */
static bool is_full(const struct changes *c)
{
    return c->count >= c->limit || c->items.len >= FOLLOW_BYTES_MAX;
}

/* Takes changes up to the end of the revision at which the answer is full; `*ret_seen` is that
 * revision then. */
static enum found take(struct changes *c, struct dir_change **got, int64_t n, dir_rev *ret_seen)
{
    enum found found = FOUND_ALL;
    bool full = false;
    for (int64_t i = 0; i < n; i++) {
        struct dir_change *change = got[i];
        full = full || (i > 0 && is_full(c) && change->revision != *ret_seen);
        if (!full) {
            *ret_seen = change->revision;
        }
        if (!full && found == FOUND_ALL && follow_wants(&c->follow, change)) {
            if (change->oversize) {
                found = FOUND_OVERSIZE;
            } else {
                change_put(&c->items, false, c->count++ == 0, change->revision,
                           change_json(change));
            }
        }
        change_unref(change);
    }
    return full ? FOUND_ENOUGH : found;
}

static enum found read_ring(struct changes *c, dir_rev upto)
{
    struct dir_feed *feed = control_feed(c->follow.api->control);
    struct dir_change *got[FOLLOW_READ_MAX];
    enum found found = FOUND_ALL;
    while (found == FOUND_ALL && !is_full(c) && c->follow.since < upto) {
        uint64_t want = c->limit - c->count;
        dir_rev last = c->follow.since, seen = last;
        int64_t n = feed_read(feed, c->follow.keyspace->id, c->follow.since, upto, got,
                              want < FOLLOW_READ_MAX ? want : FOLLOW_READ_MAX, &last);
        if (n < 0) {
            return FOUND_TOO_OLD;
        }
        found = take(c, got, n, &seen);
        if (found != FOUND_OVERSIZE) {
            follow_seen(&c->follow, found == FOUND_ENOUGH ? seen : last);
        }
    }
    return found;
}

static void changes_ready(struct exchange *x, void *arg)
{
    (void)arg;
    changes_go(x, view_enter(api_slot(x)));
    view_leave();
}

static void changes_gone(struct exchange *x, bool timed_out)
{
    if (timed_out) {
        reply_changes(x, exchange_state(x));
    }
}

static void changes_go(struct exchange *x, const struct dir_view *v)
{
    struct changes *c = exchange_state(x);
    enum found found = read_ring(c, v->revision);
    if (found == FOUND_OVERSIZE && c->count == 0) {
        reply_compacted(x, v, "a change was too large to carry: fetch the map again");
    } else if (c->count > 0) {
        reply_changes(x, c);
    } else if (found == FOUND_TOO_OLD) {
        if (c->follow.since < v->compacted) {
            reply_compacted(x, v, "changes since %" PRIu64 " are no longer kept", c->follow.since);
        } else {
            catch_up_start(x, c, v->revision);
        }
    } else if (c->deadline_ms <= clock_mono_ms()) {
        reply_changes(x, c);
    } else if (!c->waits) {
        c->waits = true;
        follow_register(&c->follow, x);
        exchange_park(x, changes_ready, changes_gone, c->deadline_ms);
        exchange_follow_feed(x);
    }
}

static void get_changes(struct exchange *x, const struct dir_view *v)
{
    struct changes *c = exchange_alloc(x, sizeof *c);
    uint64_t wait_ms = 0;
    dir_rev since = 0;
    *c = (struct changes){.limit = API_LIMIT_DEFAULT};
    if (exchange_param(x, "since") == NULL) {
        reply_problem(x, ERR_INVALID_REQUEST, "query parameter since is missing");
        return;
    }
    if (!param_u64(x, "since", 0, PARSE_INT_MAX, &since) ||
        !param_u64(x, "wait_ms", 0, API_TIMEOUT_MAX_MS, &wait_ms) ||
        !param_u64(x, "limit", 1, API_LIMIT_MAX, &c->limit) || !follow_open(x, v, &c->follow)) {
        return;
    }
    buf_init(&c->items, API_RESPONSE_MAX);
    exchange_on_end(x, changes_end, c);
    exchange_set_state(x, c);
    c->from = since;
    c->follow.since = since;
    c->deadline_ms = clock_mono_ms() + wait_ms;
    if (c->follow.generation != v->generation) {
        reply_compacted(x, v, "the cluster was restored: this is generation %" PRIu64,
                        v->generation);
    } else if (since < v->compacted) {
        reply_compacted(x, v, "changes since %" PRIu64 " are no longer kept", since);
    } else if (since > v->revision) {
        reply_unavailable(x, ERR_BEHIND, "revision %" PRIu64 " was not reached yet", since);
    } else {
        changes_go(x, v);
    }
}

void h_changes(struct exchange *x)
{
    read_begin(x, get_changes);
}
