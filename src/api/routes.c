/* SPDX-License-Identifier: Apache-2.0 */
/* Every operation of the contract that is there. */
#include "api/endpoints.h"

#define PARAMS(name, ...) static const char *const name[] = {__VA_ARGS__, NULL}

PARAMS(route_params, "key", "at_revision");
PARAMS(range_params, "start", "end", "limit", "cursor");
PARAMS(page_params, "limit", "cursor");
PARAMS(changes_params, "since", "wait_ms", "limit", "start", "end", "partition", "generation");
PARAMS(watch_params, "since", "start", "end", "partition", "generation");
PARAMS(diff_params, "from", "to", "limit", "cursor");
PARAMS(operations_params, "state", "keyspace", "node", "kind", "limit", "cursor");
PARAMS(explain_params, "keyspace", "partition", "to");
PARAMS(proposals_params, "state", "keyspace", "limit", "cursor");
PARAMS(replication_params, "keyspace", "limit", "cursor");
PARAMS(watchers_params, "behind", "limit", "cursor");
PARAMS(confirm_params, "confirm");
PARAMS(force_params, "force");
PARAMS(session_params, "session");
PARAMS(tasks_params, "session", "since", "wait_ms");
PARAMS(skew_params, "keyspace");
PARAMS(heatmap_params,
       "keyspace",
       "resource",
       "from",
       "to",
       "by",
       "operation",
       "outcome",
       "tenant");
PARAMS(summary_params, "page");
PARAMS(heat_params, "since_ms", "next");
PARAMS(health_params, "verbose");

#define KEYSPACE  "/v1/keyspaces/{keyspace}"
#define PARTITION KEYSPACE "/partitions/{partition}"
#define OPERATION "/v1/operations/{operation}"
#define PROPOSAL  "/v1/balancer/proposals/{proposal}"
#define NODE      "/v1/nodes/{node}"
#define SERVER    "/v1/cluster/servers/{server}"

enum {
    READS = API_ROUTE_READS,
    ASKS = API_ROUTE_READS | API_ROUTE_BODY_NEEDED,
    MUTATES = API_ROUTE_MUTATES | API_ROUTE_BODY,
    MUTATES_BY = API_ROUTE_MUTATES | API_ROUTE_BODY_NEEDED,
    PATCHES = API_ROUTE_MUTATES | API_ROUTE_BODY_NEEDED | API_ROUTE_MERGE_PATCH
};

static const struct api_route routes[] = {
    {API_GET, "/v1/keyspaces", h_keyspaces_list, page_params, READS},
    {API_POST, "/v1/keyspaces", h_keyspaces_create, NULL, MUTATES_BY},
    {API_GET, KEYSPACE, h_keyspace_get, NULL, READS},
    {API_PATCH, KEYSPACE, h_keyspace_patch, NULL, PATCHES},
    {API_DELETE, KEYSPACE, h_keyspace_delete, confirm_params, MUTATES},

    {API_GET, KEYSPACE "/route", h_route, route_params, READS},
    {API_POST, KEYSPACE "/routes", h_routes_batch, NULL, ASKS},
    {API_GET, KEYSPACE "/routes", h_routes_range, range_params, READS},
    {API_POST, KEYSPACE "/validate", h_validate, NULL, ASKS},
    {API_GET, KEYSPACE "/map", h_map, NULL, READS},
    {API_GET, KEYSPACE "/changes", h_changes, changes_params, READS},
    {API_GET, KEYSPACE "/watch", h_watch, watch_params, READS},
    {API_GET, KEYSPACE "/diff", h_diff, diff_params, READS},

    {API_GET, KEYSPACE "/partitions", h_partitions_list, page_params, READS},
    {API_GET, PARTITION, h_partition_get, NULL, READS},
    {API_PATCH, PARTITION, h_partition_patch, NULL, PATCHES},
    {API_GET, PARTITION "/history", h_partition_history, NULL, READS},
    {API_POST, PARTITION "/split", h_partition_split, NULL, MUTATES_BY},
    {API_POST, PARTITION "/merge", h_partition_merge, NULL, MUTATES_BY},
    {API_POST, PARTITION "/move", h_partition_move, NULL, MUTATES_BY},
    {API_POST, PARTITION "/transfer", h_partition_transfer, NULL, MUTATES_BY},
    {API_POST, PARTITION "/replicas", h_replica_add, NULL, MUTATES_BY},
    {API_DELETE, PARTITION "/replicas/{node}", h_replica_remove, NULL, MUTATES},
    {API_POST, PARTITION "/insync", h_partition_insync, NULL, MUTATES_BY},
    {API_POST, PARTITION "/failover", h_partition_failover, NULL, MUTATES_BY},
    {API_POST, PARTITION "/check", h_partition_check, NULL, ASKS},

    {API_GET, "/v1/nodes", h_nodes_list, page_params, READS},
    {API_GET, "/v1/nodes/{node}", h_node_get, NULL, READS},
    {API_PUT, "/v1/nodes/{node}", h_node_put, NULL, MUTATES_BY},
    {API_DELETE, "/v1/nodes/{node}", h_node_delete, force_params, MUTATES},

    {API_POST, NODE "/heartbeat", h_node_heartbeat, NULL, API_ROUTE_BODY_NEEDED},
    {API_POST, NODE "/load", h_node_load, NULL, API_ROUTE_BODY_NEEDED | API_ROUTE_PROTOBUF},
    {API_DELETE, NODE "/session", h_session_delete, session_params, MUTATES},
    {API_GET, NODE "/tasks", h_node_tasks, tasks_params, READS},
    {API_GET, NODE "/duties", h_duties_list, NULL, READS},
    {API_POST, NODE "/duties/{duty}", h_duty_done, NULL, MUTATES_BY},
    {API_POST, NODE "/cordon", h_node_cordon, NULL, MUTATES},
    {API_POST, NODE "/uncordon", h_node_uncordon, NULL, MUTATES},
    {API_POST, NODE "/drain", h_node_drain, NULL, MUTATES},
    {API_POST, NODE "/quarantine", h_node_quarantine, NULL, MUTATES},
    {API_POST, NODE "/unquarantine", h_node_unquarantine, NULL, MUTATES},

    {API_GET, "/v1/replication", h_replication, replication_params, READS},
    {API_GET, "/v1/operations", h_operations_list, operations_params, READS},
    {API_GET, "/v1/operations/{operation}", h_operation_get, NULL, READS},
    {API_GET, OPERATION "/authority", h_operation_authority, NULL, READS},

    {API_POST, OPERATION "/reports", h_operation_report, NULL, MUTATES_BY},
    {API_POST, OPERATION "/abort", h_operation_abort, NULL, MUTATES},
    {API_POST, OPERATION "/retry", h_operation_retry, NULL, MUTATES},
    {API_POST, OPERATION "/finish-validation", h_operation_finish_validation, NULL, MUTATES},
    {API_POST, OPERATION "/promote-candidate", h_operation_promote, NULL, MUTATES_BY},

    {API_GET, "/v1/balancer", h_balancer_get, NULL, READS},
    {API_PATCH, "/v1/balancer", h_balancer_patch, NULL, PATCHES},
    {API_GET, "/v1/balancer/explain", h_balancer_explain, explain_params, 0},
    {API_GET, "/v1/balancer/proposals", h_proposals_list, proposals_params, READS},
    {API_GET, PROPOSAL, h_proposal_get, NULL, READS},
    {API_POST, PROPOSAL "/approve", h_proposal_approve, NULL, MUTATES},
    {API_POST, PROPOSAL "/reject", h_proposal_reject, NULL, MUTATES},
    {API_POST, "/v1/balancer/simulate", h_balancer_simulate, NULL, API_ROUTE_BODY_NEEDED},
    {API_POST, "/v1/balancer/pause", h_balancer_pause, NULL, MUTATES_BY},
    {API_POST, "/v1/balancer/resume", h_balancer_resume, NULL, MUTATES},
    {API_GET, "/v1/skew", h_skew, skew_params, 0},
    {API_GET, "/v1/heatmap", h_heatmap, heatmap_params, 0},
    {API_GET, "/v1/load/summary", h_load_summary, summary_params, 0},
    {API_GET, "/v1/load/heat", h_load_heat, heat_params, 0},

    {API_GET, "/v1/commands/{key}", h_command_get, NULL, READS},
    {API_GET, "/v1/audit", h_audit, page_params, READS},
    {API_GET, "/v1/backup", h_backup, NULL, READS},

    {API_GET, "/v1/cluster", h_cluster, NULL, READS},
    {API_GET, "/v1/cluster/servers", h_servers_list, NULL, READS},
    {API_POST, "/v1/cluster/servers", h_server_add, NULL, MUTATES_BY},
    {API_PATCH, SERVER, h_server_patch, NULL, PATCHES},
    {API_DELETE, SERVER, h_server_delete, NULL, MUTATES},
    {API_GET, "/v1/cluster/settings", h_settings_get, NULL, READS},
    {API_PATCH, "/v1/cluster/settings", h_settings_patch, NULL, PATCHES},
    {API_POST, "/v1/cluster/transfer-leadership", h_transfer_leadership, NULL, MUTATES},
    {API_POST, "/v1/cluster/snapshot", h_snapshot, NULL, MUTATES},
    {API_GET, "/v1/cluster/watchers", h_watchers, watchers_params, READS},

    {API_GET, "/", h_index, NULL, API_ROUTE_OPEN},
    {API_GET, "/livez", h_livez, health_params, API_ROUTE_OPEN},
    {API_GET, "/readyz", h_readyz, health_params, API_ROUTE_OPEN},
    {API_GET, "/metrics", h_metrics, NULL, API_ROUTE_OPEN},
    {API_GET, "/openapi.yaml", h_openapi, NULL, API_ROUTE_OPEN},
};

const struct api_route *api_routes(size_t *ret_count)
{
    *ret_count = sizeof routes / sizeof routes[0];
    return routes;
}
