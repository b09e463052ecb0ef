/* SPDX-License-Identifier: Apache-2.0 */
/* The process itself: is it alive, is it ready, and what it can be asked. */
#include "api/endpoints.h"

#include "base/clock.h"

#include <inttypes.h>

enum {
    LOOP_STALL_MS = 5000,
    CAUGHT_UP_ENTRIES = 1024 /* committed and not yet applied, at most */
};

/* --- health --- */

struct health {
    struct control_status status;
    uint64_t staleness_ms, applied_index, election_ms;
    bool founded;
};

static void look(struct exchange *x, struct health *h)
{
    struct api *api = exchange_api(x);
    const struct dir_view *v = view_enter(api_slot(x));
    h->applied_index = v->applied_index;
    h->founded = v->cluster[0] != '\0';
    view_leave();
    control_status(api->control, &h->status);
    h->staleness_ms = control_staleness_ms(api->control);
    h->election_ms = api->election_ms;
}

static bool loop_turns(const struct health *h)
{
    uint64_t now = clock_mono_ms();
    return now < h->status.loop_turned_ms + LOOP_STALL_MS;
}

static bool hears_leader(const struct health *h)
{
    return h->staleness_ms <= 2 * h->election_ms;
}

static bool caught_up(const struct health *h)
{
    return h->applied_index + CAUGHT_UP_ENTRIES >= h->status.raft.commit_index;
}

static bool store_keeps_up(const struct health *h)
{
    return h->status.store_lag < STORE_QUEUE_MAX / 2;
}

static bool stays(const struct health *h)
{
    return !h->status.stopping;
}

static bool founded(const struct health *h)
{
    return h->founded;
}

struct check_of {
    const char *name;
    bool (*ok)(const struct health *h);
    const char *otherwise;
};

static const struct check_of ready_checks[] = {
    {"loop", loop_turns, "the loop has not turned for 5 s"},
    {"founded", founded, "the cluster is not founded, or this server has not joined it yet"},
    {"leader", hears_leader, "no leader was heard within two election timeouts"},
    {"caught_up", caught_up, "committed entries wait to be applied"},
    {"store", store_keeps_up, "the store lags behind"},
    {"running", stays, "the server is stopping"},
};

static void reply_checks(struct exchange *x, const struct check_of *checks, size_t n)
{
    struct health h;
    bool ok = true, verbose = false;
    struct buf *out = exchange_out(x);
    const char *first = NULL;
    if (!param_flag(x, "verbose", &verbose)) {
        return;
    }
    look(x, &h);
    for (size_t i = 0; i < n; i++) {
        bool good = checks[i].ok(&h);
        ok = ok && good;
        if (!good && first == NULL) {
            first = checks[i].otherwise;
        }
        if (verbose) {
            buf_printf(out, "[%s]%s %s\n", good ? "+" : "-", checks[i].name,
                       good ? "ok" : checks[i].otherwise);
        }
    }
    exchange_set_header(x, "Cache-Control", "no-store");
    if (ok || verbose) {
        if (!ok) {
            exchange_set_header(x, "Retry-After", "1");
        }
        buf_put_str(out, ok ? "ok\n" : "not ok\n");
        exchange_reply(x, ok ? 200 : 503, "text/plain; charset=utf-8");
    } else {
        reply_unavailable(x, ERR_NOT_READY, "%s", first);
    }
}

void h_livez(struct exchange *x)
{
    reply_checks(x, ready_checks, 1);
}

void h_readyz(struct exchange *x)
{
    reply_checks(x, ready_checks, sizeof ready_checks / sizeof ready_checks[0]);
}

/* --- what there is --- */

void h_openapi(struct exchange *x)
{
    buf_put(exchange_out(x), openapi_yaml, openapi_yaml_len);
    exchange_reply(x, 200, "application/yaml");
}

void h_index(struct exchange *x)
{
    struct buf *out = exchange_out(x);
    size_t count;
    const struct api_route *routes = api_routes(&count);
    buf_put_str(out, "{\"service\":\"cadastre\",\"version\":");
    json_put_cstring(out, exchange_api(x)->version);
    buf_put_str(out, ",\"contract\":\"/openapi.yaml\",\"endpoints\":[");
    for (size_t i = 0; i < count; i++) {
        buf_printf(out, "%s\n{\"method\":\"%s\",\"path\":\"%s\"}", i > 0 ? "," : "",
                   api_method_name(routes[i].method), routes[i].pattern);
    }
    buf_put_str(out, "\n]}\n");
    exchange_reply(x, 200, NULL);
}

void api_list_routes(FILE *out)
{
    size_t count;
    const struct api_route *routes = api_routes(&count);
    for (size_t i = 0; i < count; i++) {
        (void)fprintf(out, "%s %s\n", api_method_name(routes[i].method), routes[i].pattern);
    }
}
