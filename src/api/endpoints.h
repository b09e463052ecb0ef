/* SPDX-License-Identifier: Apache-2.0 */
/* The handlers, for routes.c, and what outlives a request in them, for api.c. */
#ifndef API_ENDPOINTS_H
#define API_ENDPOINTS_H

#include "api/handlers.h"
#include "control/windows.h"

/* h_keyspaces.c */
struct patch_gate *patch_gate_new(void);
void patch_gate_free(struct patch_gate *g);
void h_keyspaces_list(struct exchange *x);
void h_keyspaces_create(struct exchange *x);
void h_keyspace_get(struct exchange *x);
void h_keyspace_patch(struct exchange *x);
void h_keyspace_delete(struct exchange *x);

/* h_routes.c */
void h_route(struct exchange *x);
void h_routes_batch(struct exchange *x);
void h_routes_range(struct exchange *x);
void h_validate(struct exchange *x);

/* h_map.c */
void h_map(struct exchange *x);

/* h_changes.c, h_watch.c, watchers.c */
struct watchers *watchers_new(void);
void watchers_free(struct watchers *w);
uint64_t watchers_count(struct watchers *w);
void h_changes(struct exchange *x);
void h_watch(struct exchange *x);
void h_watchers(struct exchange *x);

/* h_partitions.c */
void h_partitions_list(struct exchange *x);
void h_partition_get(struct exchange *x);
void h_partition_patch(struct exchange *x);
void h_partition_split(struct exchange *x);
void h_partition_merge(struct exchange *x);
void h_partition_check(struct exchange *x);
/* A partition or what became of it, and what a refusal about it says. */
struct check {
    const struct dir_view *view;
    const struct dir_keyspace *keyspace;
    const struct dir_partition *partition;
    const struct dir_tombstone *tombstone;
};
/* Of the path's variables 0 and 1; false when the keyspace is not there (answered). */
bool check_find(struct exchange *x, const struct dir_view *v, struct check *ret);
/* False when answered: 404, 409 stale_epoch or future_epoch. */
bool check_epoch(struct exchange *x, struct check *c, uint64_t epoch);
void check_put_members(struct exchange *x, struct buf *out, void *check);

/* h_moves.c */
/* 202 and the operation that the command made. */
void render_operation(struct exchange *x, const struct mutation *m, const struct dir_result *r);
void h_partition_move(struct exchange *x);
void h_partition_transfer(struct exchange *x);
void h_replica_add(struct exchange *x);
void h_replica_remove(struct exchange *x);

/* h_nodes.c */
void h_nodes_list(struct exchange *x);
void h_node_get(struct exchange *x);
void h_node_put(struct exchange *x);
void h_node_delete(struct exchange *x);

void h_node_cordon(struct exchange *x);
void h_node_uncordon(struct exchange *x);
void h_node_drain(struct exchange *x);
void h_node_quarantine(struct exchange *x);
void h_node_unquarantine(struct exchange *x);

/* h_agents.c */
void h_node_heartbeat(struct exchange *x);
void h_session_delete(struct exchange *x);
void h_node_tasks(struct exchange *x);
void h_duties_list(struct exchange *x);
void h_duty_done(struct exchange *x);

/* h_load.c */
void h_node_load(struct exchange *x);
/* ,"size_bytes":…,"load":{…} of a partition, as far as this server has heard of it. */
void load_put_partition(struct buf *b, struct loads *loads, uint64_t partition);
/* ,"reported":{…} of a node; `sum` also ,"load":{…} of what it leads. */
void load_put_node(struct buf *b,
                   struct loads *loads,
                   const struct dir_view *v,
                   const struct dir_node *n,
                   bool sum);

/* h_summary.c */
void h_load_summary(struct exchange *x);
void h_load_heat(struct exchange *x);

/* h_skew.c */
void h_skew(struct exchange *x);

/* h_heatmap.c */
void h_heatmap(struct exchange *x);

/* h_authority.c */
void h_partition_insync(struct exchange *x);
void h_partition_failover(struct exchange *x);

/* h_settings.c */
void h_settings_get(struct exchange *x);
void h_settings_patch(struct exchange *x);

/* h_balancer.c */
void h_balancer_get(struct exchange *x);
void h_balancer_patch(struct exchange *x);
void h_balancer_explain(struct exchange *x);
void h_balancer_simulate(struct exchange *x);
void h_proposals_list(struct exchange *x);
void h_proposal_get(struct exchange *x);
void h_proposal_approve(struct exchange *x);
void h_proposal_reject(struct exchange *x);
void h_balancer_pause(struct exchange *x);
void h_balancer_resume(struct exchange *x);

/* h_operations.c, operation_plan.c */
void operation_put_open(struct buf *b, const struct dir_operation *op);
/* What holds for all that waits in a view. */
struct operation_queue {
    uint64_t first; /* dir_budget_first(v) */
    struct windows_hold hold;
};
void operation_queue_look(const struct dir_view *v, struct operation_queue *ret);
/* What it waits for, has reserved and is going to cost, when it is open: members that follow. */
void operation_put_plan(struct buf *b,
                        const struct dir_view *v,
                        const struct dir_operation *op,
                        const struct operation_queue *queue);
/* As it is in the newest view. */
/* What holds its copy back, if anything does. */
void operation_put_throttled(struct buf *b,
                             const struct dir_view *v,
                             const struct dir_operation *op);
void operation_put_plan_now(struct exchange *x, const struct dir_operation *op);
void h_operations_list(struct exchange *x);
void h_operation_get(struct exchange *x);
void h_operation_abort(struct exchange *x);
void h_operation_retry(struct exchange *x);
void h_operation_finish_validation(struct exchange *x);
void h_operation_promote(struct exchange *x);

/* h_replication.c */
void h_replication(struct exchange *x);

/* h_operation_authority.c */
void h_operation_authority(struct exchange *x);

/* h_reports.c */
void h_operation_report(struct exchange *x);

/* h_cluster.c */
void h_cluster(struct exchange *x);
void h_servers_list(struct exchange *x);
void h_server_add(struct exchange *x);
void h_server_patch(struct exchange *x);
void h_server_delete(struct exchange *x);
void h_transfer_leadership(struct exchange *x);
void h_snapshot(struct exchange *x);

/* h_history.c, h_diff.c */
void route_at(struct exchange *x, const struct dir_view *v); /* a read_fn */
void h_partition_history(struct exchange *x);
void h_diff(struct exchange *x);

/* h_audit.c, h_commands.c, h_backup.c */
void h_audit(struct exchange *x);
void h_command_get(struct exchange *x);
void h_backup(struct exchange *x);

/* h_process.c, h_metrics.c */
void h_index(struct exchange *x);
void h_livez(struct exchange *x);
void h_readyz(struct exchange *x);
void h_openapi(struct exchange *x);
void h_metrics(struct exchange *x);

#endif
