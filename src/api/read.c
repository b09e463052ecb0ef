/* SPDX-License-Identifier: Apache-2.0 */
/* What a read may ask about how fresh its answer must be, before its handler runs. The common case,
 * a local read, costs three lookups of parameters and enters the view at once. */
#include "api/handlers.h"

#include "base/clock.h"
#include "base/parse.h"

#include <inttypes.h>

struct reader {
    read_fn in_view;
    void (*pinning)(struct exchange *x);
};

struct read_wait {
    struct reader reader;
    dir_rev min_revision;
    uint64_t deadline_ms;
    bool linearizable;
};

/* Runs it when the published view has reached the revision; else false. */
static bool run(struct exchange *x, const struct reader *r, dir_rev min_revision)
{
    const struct dir_view *v = view_enter(api_slot(x));
    bool reached = v->revision >= min_revision;
    if (reached && r->in_view != NULL) {
        r->in_view(x, v);
    }
    view_leave();
    if (reached && r->in_view == NULL) {
        r->pinning(x);
    }
    return reached;
}

static void wait_gone(struct exchange *x, bool timed_out)
{
    const struct read_wait *w = exchange_state(x);
    if (timed_out) {
        reply_unavailable(x, ERR_BEHIND, "revision %" PRIu64 " was not reached in time",
                          w->min_revision);
    }
}

static void wait_ready(struct exchange *x, void *arg)
{
    const struct read_wait *w = exchange_state(x);
    (void)arg;
    (void)run(x, &w->reader, w->min_revision); /* else it is woken again */
}

/* The view is confirmed, if it had to be; is it new enough? Following runs wait_ready at once, so
 * that nothing is missed in between. */
static void reach(struct exchange *x, const struct read_wait *w)
{
    if (!run(x, &w->reader, w->min_revision)) {
        exchange_park(x, wait_ready, wait_gone, w->deadline_ms);
        exchange_follow_feed(x);
    }
}

static void confirm_ready(struct exchange *x, void *arg)
{
    struct handover *h = arg;
    bool answered = reply_outcome(x, h->status, h->leader_url);
    handover_free(h);
    if (!answered) {
        reach(x, exchange_state(x));
    }
}

static void confirm_gone(struct exchange *x, bool timed_out)
{
    if (timed_out) {
        reply_unavailable(x, ERR_NO_LEADER, "no quorum confirmed the read in time");
    }
}

static void confirm(struct exchange *x, const struct read_wait *w)
{
    uint64_t now = clock_mono_ms();
    struct handover *h = handover_park(x, confirm_ready, confirm_gone,
                                       w->deadline_ms > now ? w->deadline_ms - now : 1);
    enum err_code code = control_confirm(exchange_api(x)->control, handover_done, h);
    if (code != ERR_OK) {
        handover_refused(h, code);
    }
}

static bool param_consistency(struct exchange *x, bool *ret_linearizable)
{
    const struct slice *given = exchange_param(x, "consistency");
    if (given == NULL || slice_eq(*given, slice_of("local", 5))) {
        return true;
    }
    if (slice_eq(*given, slice_of("linearizable", 12))) {
        *ret_linearizable = true;
        return true;
    }
    reply_problem(x, ERR_INVALID_REQUEST,
                  "query parameter consistency must be local or linearizable");
    return false;
}

static bool fresh_enough(struct exchange *x)
{
    uint64_t max = UINT64_MAX, staleness;
    if (!param_u64(x, "max_staleness_ms", 0, PARSE_INT_MAX, &max)) {
        return false;
    }
    if (max == UINT64_MAX) {
        return true;
    }
    staleness = control_staleness_ms(exchange_api(x)->control);
    if (staleness <= max) {
        return true;
    }
    reply_unavailable(x, ERR_TOO_STALE,
                      staleness == UINT64_MAX ? "no leader was heard yet"
                                              : "a leader was last heard %" PRIu64 " ms ago",
                      staleness);
    return false;
}

static void begin(struct exchange *x, const struct reader *r, bool linearizable)
{
    struct read_wait *w;
    dir_rev min_revision = 0;
    uint64_t timeout_ms = API_TIMEOUT_DEFAULT_MS;
    if (!param_consistency(x, &linearizable) ||
        !param_u64(x, "min_revision", 0, DIR_REVISION_MAX, &min_revision) ||
        !param_u64(x, "timeout_ms", 0, API_TIMEOUT_MAX_MS, &timeout_ms) || !fresh_enough(x)) {
        return;
    }
    if (!linearizable && min_revision == 0) {
        (void)run(x, r, 0);
        return;
    }
    w = exchange_alloc(x, sizeof *w);
    *w = (struct read_wait){.reader = *r,
                            .min_revision = min_revision,
                            .deadline_ms = clock_mono_ms() + timeout_ms,
                            .linearizable = linearizable};
    exchange_set_state(x, w);
    if (linearizable) {
        confirm(x, w);
    } else {
        reach(x, w);
    }
}

void read_begin(struct exchange *x, read_fn fn)
{
    begin(x, &(struct reader){.in_view = fn}, false);
}

void read_begin_pinning(struct exchange *x, void (*fn)(struct exchange *x))
{
    begin(x, &(struct reader){.pinning = fn}, false);
}

void read_begin_linearizable(struct exchange *x, read_fn fn)
{
    begin(x, &(struct reader){.in_view = fn}, true);
}

const struct dir_keyspace *read_keyspace(struct exchange *x, const struct dir_view *v)
{
    struct slice name = exchange_path(x, 0);
    const struct dir_keyspace *ks = view_keyspace(v, name);
    if (ks == NULL) {
        reply_missing(x, v, ERR_KEYSPACE_NOT_FOUND, "there is no keyspace of this name");
    }
    return ks;
}

const struct dir_partition *
read_partition(struct exchange *x, const struct dir_view *v, const struct dir_keyspace *ks)
{
    const struct dir_tombstone *tombstone = NULL;
    const struct dir_partition *p = NULL;
    uint64_t id;
    if (path_id(x, 1, &id)) {
        p = view_partition(v, ks, id, &tombstone);
    }
    if (p == NULL) {
        reply_no_partition(x, v, tombstone);
    }
    return p;
}
