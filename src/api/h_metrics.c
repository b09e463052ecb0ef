/* SPDX-License-Identifier: Apache-2.0 */
/* Prometheus text format 0.0.4. Labels are bounded: nothing that a client names is one. */
#include "api/endpoints.h"

#include "base/clock.h"
#include "control/brake.h"

#include <inttypes.h>
#include <string.h>

static void put(struct buf *b, const char *name, const char *type, const char *help, uint64_t value)
{
    buf_printf(b, "# HELP %s %s\n# TYPE %s %s\n%s %" PRIu64 "\n", name, help, name, type, name,
               value);
}

/* Of a metric given in milliseconds, in seconds. */
static void put_seconds(struct buf *b, const char *name, const char *help, uint64_t ms)
{
    buf_printf(b, "# HELP %s %s\n# TYPE %s gauge\n%s %" PRIu64 ".%03u\n", name, help, name, name,
               ms / 1000, (unsigned)(ms % 1000));
}

/* Those that do not go on, or have not ended well, without a person. */
static uint64_t needing_attention(const struct dir_view *v)
{
    const struct dir_operation *o;
    struct ptree_iter it;
    uint64_t n = 0;
    ptree_seek(&v->operations, slice_of(NULL, 0), &it);
    for (; (o = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        n += o->attention_code[0] != '\0' && o->state != DIR_OPERATION_DONE &&
             strcmp(o->attention_code, "aborted") != 0;
    }
    return n;
}

/* How long the one that has been in its stage for the longest has been there, of those that have
 * not ended. */
static uint64_t oldest_stage_ms(const struct dir_view *v, uint64_t now_ms)
{
    const struct dir_operation *o;
    struct ptree_iter it;
    uint64_t since = now_ms;
    ptree_seek(&v->operations, slice_of(NULL, 0), &it);
    for (; (o = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        bool is_open = o->state == DIR_OPERATION_QUEUED || o->state == DIR_OPERATION_RUNNING;
        since = is_open && o->stage_since_ms < since ? o->stage_since_ms : since;
    }
    return now_ms - since;
}

static void put_directory(struct buf *b, const struct dir_view *v, uint64_t now_ms)
{
    put(b, "cadastre_directory_revision", "gauge", "Newest revision applied here.", v->revision);
    put(b, "cadastre_directory_compacted_revision", "gauge",
        "History reaches back to states after it.", v->compacted);
    put(b, "cadastre_directory_keyspaces", "gauge", "Keyspaces.", v->keyspaces.count);
    put(b, "cadastre_directory_partitions", "gauge", "Partitions.", v->partitions.count);
    put(b, "cadastre_directory_unplaced_partitions", "gauge",
        "Partitions that wait for a first owner.", v->unplaced);
    put(b, "cadastre_directory_nodes", "gauge", "Registered nodes.", v->nodes.count);
    put(b, "cadastre_directory_operations", "gauge", "Operations remembered.", v->operations.count);
    put(b, "cadastre_directory_operations_queued", "gauge", "Operations that wait for admission.",
        v->queued.count);
    put(b, "cadastre_directory_operations_attention", "gauge",
        "Operations that a person should look at.", needing_attention(v));
    put_seconds(b, "cadastre_directory_operations_oldest_stage_seconds",
                "How long one that has not ended has been in its stage, at most.",
                oldest_stage_ms(v, now_ms));
    put(b, "cadastre_raft_applied_index", "gauge", "Last log entry applied.", v->applied_index);
}

/* Copies that a guardrail holds back. */
static uint64_t held_back(const struct dir_view *v)
{
    const struct dir_operation *o;
    struct ptree_iter it;
    uint64_t n = 0;
    ptree_seek(&v->operations, slice_of(NULL, 0), &it);
    for (; (o = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        n += o->throttle.share_ppm != 0;
    }
    return n;
}

static void put_of_class(struct buf *b,
                         const char *name,
                         const char *help,
                         const struct brake *brake,
                         uint64_t (*of)(const struct brake_class *c))
{
    buf_printf(b, "# HELP %s %s\n# TYPE %s gauge\n", name, help, name);
    for (unsigned i = 0; i < BRAKE_CLASSES; i++) {
        const struct brake_class *c = &brake->of[i];
        buf_printf(b, "%s{class=\"%s\"} %" PRIu64 "\n", name, dir_class_name(c->class_of), of(c));
    }
}

static uint64_t returns_of(const struct brake_class *c)
{
    return c->returns;
}

static uint64_t variation_of(const struct brake_class *c)
{
    return c->variation_ppm;
}

static uint64_t net_of(const struct brake_class *c)
{
    return c->net_ppm;
}

static uint64_t is_braked(const struct brake_class *c)
{
    return c->braked;
}

static void put_balancer(struct buf *b, const struct dir_view *v, uint64_t now_ms)
{
    struct brake brake;
    brake_measure(v, now_ms, &brake);
    put(b, "cadastre_balancer_throttled_operations", "gauge",
        "Running copies that a guardrail holds back.", held_back(v));
    put_of_class(b, "cadastre_balancer_returns", "Partitions moved to where they had been.", &brake,
                 returns_of);
    put_of_class(b, "cadastre_balancer_variation_ppm",
                 "Load moved of late, in millionths of a node's share.", &brake, variation_of);
    put_of_class(b, "cadastre_balancer_net_ppm", "What of it is now elsewhere than before.", &brake,
                 net_of);
    put_of_class(b, "cadastre_balancer_braked", "1 while nothing more of the class is begun.",
                 &brake, is_braked);
}

static void put_raft(struct buf *b, const struct control_status *s)
{
    put(b, "cadastre_raft_commit_index", "gauge", "Last log entry committed.",
        s->raft.commit_index);
    put(b, "cadastre_raft_last_index", "gauge", "Last log entry here.", s->raft.last_index);
    put(b, "cadastre_raft_snapshot_index", "gauge", "Log entry of the last snapshot.",
        s->raft.snapshot_index);
    put(b, "cadastre_raft_term", "gauge", "Raft term.", s->raft.term);
    put(b, "cadastre_raft_is_leader", "gauge", "1 on the active leader.", s->raft.active);
    put(b, "cadastre_raft_has_leader", "gauge", "1 when a leader is known.", s->raft.leader != 0);
    put(b, "cadastre_raft_elections_won_total", "counter", "Times this server became leader.",
        s->raft.elections);
    put(b, "cadastre_raft_snapshots_total", "counter", "Snapshots taken.", s->raft.snapshots);
    put(b, "cadastre_raft_queue_commands", "gauge", "Commands that wait.", s->raft.queue);
}

static void put_control(struct buf *b, const struct control_status *s)
{
    put_seconds(b, "cadastre_loop_lag_seconds", "How late the loop is.", s->loop_lag_ms);
    put_seconds(b, "cadastre_loop_lag_max_seconds", "The latest it was.", s->loop_lag_max_ms);
    buf_put_str(b, "# HELP cadastre_commands_total Commands by outcome, since the start.\n"
                   "# TYPE cadastre_commands_total counter\n");
    buf_printf(b, "cadastre_commands_total{outcome=\"applied\"} %" PRIu64 "\n", s->commands);
    buf_printf(b, "cadastre_commands_total{outcome=\"refused\"} %" PRIu64 "\n", s->refused);
    buf_printf(b, "cadastre_commands_total{outcome=\"replayed\"} %" PRIu64 "\n", s->replayed);
    put(b, "cadastre_confirms_total", "counter", "Linearizable reads confirmed.", s->confirms);
}

static void put_recovery(struct buf *b, const struct control_recovery *r, uint64_t now_ms)
{
    put(b, "cadastre_recovery_nodes_away", "gauge",
        "Nodes with copies and an agent that have no session.", r->away);
    put(b, "cadastre_recovery_paused", "gauge",
        "1 while so many nodes are away that nothing is made anew unasked.",
        r->state == CONTROL_RECOVERY_PAUSED);
    put(b, "cadastre_recovery_under_replicated_partitions", "gauge",
        "Partitions with fewer live copies than are wanted.", r->under_replicated);
    put(b, "cadastre_recovery_unavailable_partitions", "gauge", "Partitions that nobody may write.",
        r->unavailable);
    put(b, "cadastre_recovery_misplaced_partitions", "gauge",
        "Partitions with a copy where the placement does not want one.", r->misplaced);
    put(b, "cadastre_recovery_draining_partitions", "gauge",
        "Partitions with a copy on a node that drains.", r->draining);
    put(b, "cadastre_recovery_blocked_partitions", "gauge",
        "Partitions for which something is to be done, and nothing can be.", r->blocked);
    put_seconds(b, "cadastre_recovery_oldest_under_replicated_seconds",
                "How long the oldest has been under-replicated.",
                r->oldest_ms != 0 && now_ms > r->oldest_ms ? now_ms - r->oldest_ms : 0);
    put_seconds(b, "cadastre_recovery_walk_seconds", "How long a look at every partition took.",
                r->walk_ms);
    put(b, "cadastre_recovery_proposed_total", "counter",
        "Operations proposed unasked, since the start.", r->proposed);
}

static void put_loads(struct buf *b, struct loads *loads)
{
    struct loads_pulls pulls = loads_pulls(loads);
    uint64_t now = clock_mono_ms();
    put(b, "cadastre_load_copies", "gauge", "Copies whose load was heard of.", loads_count(loads));
    put(b, "cadastre_heatmap_bytes", "gauge", "Memory of the heat map.",
        heats_bytes(loads_heats(loads)));
    put(b, "cadastre_heatmap_pulls_total", "counter", "Heat maps taken over from the leader.",
        pulls.heats);
    put(b, "cadastre_load_summary_pulls_total", "counter",
        "Summaries of loads taken over from the leader.", pulls.done);
    put(b, "cadastre_load_summary_failures_total", "counter",
        "Summaries and heat maps that did not come whole.", pulls.failed);
    put(b, "cadastre_load_summary_bytes_total", "counter", "Bytes of both.", pulls.bytes);
    put(b, "cadastre_load_summary_copies", "gauge", "Copies in the last whole one.", pulls.records);
    if (pulls.last_ms != 0) {
        put_seconds(b, "cadastre_load_summary_age_seconds", "Since the last whole one.",
                    now > pulls.last_ms ? now - pulls.last_ms : 0);
    }
}

static void put_store(struct buf *b, struct store *store, const struct control_status *s)
{
    put(b, "cadastre_store_lag_commands", "gauge", "Applied and not yet stored.", s->store_lag);
    put(b, "cadastre_store_image_bytes", "gauge", "Bytes of a snapshot taken now.",
        store_image_bytes(store));
}

static void put_http(struct buf *b, const struct http_stats *s)
{
    buf_put_str(b, "# HELP cadastre_http_responses_total Responses by status class.\n"
                   "# TYPE cadastre_http_responses_total counter\n");
    for (unsigned i = 2; i < 6; i++) {
        buf_printf(b, "cadastre_http_responses_total{class=\"%uxx\"} %" PRIu64 "\n", i,
                   s->responses[i]);
    }
    buf_printf(b, "cadastre_http_responses_total{class=\"none\"} %" PRIu64 "\n", s->responses[0]);
    put(b, "cadastre_http_connections", "gauge", "Open connections.", s->connections);
    put(b, "cadastre_http_accepted_total", "counter", "Connections accepted.", s->accepted);
    put(b, "cadastre_http_requests_in_progress", "gauge", "Requests in progress.", s->exchanges);
    put(b, "cadastre_http_parked_requests", "gauge", "Requests that wait.", s->parked);
    put(b, "cadastre_http_streams", "gauge", "Streamed answers in progress.", s->streams);
    put(b, "cadastre_http_bad_requests_total", "counter", "Requests refused before routing.",
        s->bad_requests);
    put(b, "cadastre_http_timeouts_total", "counter", "Requests and readers that were too slow.",
        s->timed_out);
}

static void put_process(struct buf *b, struct api *api, uint64_t staleness_ms)
{
    put(b, "cadastre_watch_watchers", "gauge", "Streams and long polls that follow changes.",
        watchers_count(api->watchers));
    put(b, "cadastre_feed_oldest_revision", "gauge", "Changes after it are kept in memory.",
        feed_oldest(control_feed(api->control)));
    if (staleness_ms != UINT64_MAX) {
        put_seconds(b, "cadastre_raft_staleness_seconds", "Since a leader was last heard.",
                    staleness_ms);
    }
    put_seconds(b, "cadastre_process_uptime_seconds", "Since the API started.",
                clock_mono_ms() - api->started_ms);
    buf_printf(b,
               "# HELP cadastre_build_info The version that runs.\n"
               "# TYPE cadastre_build_info gauge\n"
               "cadastre_build_info{version=\"%s\"} 1\n",
               api->version);
}

void h_metrics(struct exchange *x)
{
    struct api *api = exchange_api(x);
    struct buf *out = exchange_out(x);
    struct control_status status;
    struct http_stats stats;
    control_status(api->control, &status);
    http_server_stats(exchange_server(x), &stats);
    const struct dir_view *v = view_enter(api_slot(x));
    put_directory(out, v, clock_wall_ms());
    put_balancer(out, v, clock_wall_ms());
    view_leave();
    put_raft(out, &status);
    put_control(out, &status);
    put_recovery(out, &status.recovery, clock_wall_ms());
    put_loads(out, control_loads(api->control));
    put_store(out, control_store(api->control), &status);
    put_http(out, &stats);
    put_process(out, api, control_staleness_ms(api->control));
    exchange_reply(x, 200, "text/plain; version=0.0.4; charset=utf-8");
}
