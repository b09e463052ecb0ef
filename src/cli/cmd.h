/* SPDX-License-Identifier: Apache-2.0 */
/* The nouns' commands, and what their handlers share. */
#ifndef CLI_CMD_H
#define CLI_CMD_H

#include "cli/cli.h"

extern const struct cli_command keyspace_commands[];
extern const struct cli_command partition_commands[];
extern const struct cli_command route_commands[];
extern const struct cli_command validate_commands[];
extern const struct cli_command map_commands[];
extern const struct cli_command watch_commands[];
extern const struct cli_command changes_commands[];
extern const struct cli_command diff_commands[];
extern const struct cli_command node_commands[];
extern const struct cli_command operation_commands[];
extern const struct cli_command replication_commands[];
extern const struct cli_command balancer_commands[];
extern const struct cli_command proposal_commands[];
extern const struct cli_command skew_commands[];
extern const struct cli_command heatmap_commands[];
extern const struct cli_command server_commands[];
extern const struct cli_command watchers_commands[];
extern const struct cli_command command_commands[];
extern const struct cli_command audit_commands[];
extern const struct cli_command backup_commands[];
extern const struct cli_command status_commands[];
extern const struct cli_command doctor_commands[];
extern const struct cli_command plan_commands[];
extern const struct cli_command simulate_commands[];
extern const struct cli_command completion_commands[];

extern const struct out_view cmd_operation_view; /* cmd_operation.c */
extern const struct out_view cmd_change_view;    /* cmd_changes.c */

/* cmd_whatif.c: the question from flags and FILE, to a server, or to a saved state. */
#define CMD_WHATIF_FLAGS                                                                           \
    {"lose", "NODE", "This node is lost", ARGS_TEXT, 0, false, true},                              \
        {"lose-zone", "ZONE", "All nodes of this zone are lost", ARGS_TEXT, 0, false, false},      \
        {"drain", "NODE", "This node is drained", ARGS_TEXT, 0, false, true},                      \
        {"add", "N", "So many nodes are added", ARGS_NUMBER, 0, false, false},                     \
        {"like", "NODE", "With the labels and capacity of this one", ARGS_TEXT, 0, false, false},  \
        {"scale", "[KEYSPACE=]FACTOR", "So much load, such as 1.5", ARGS_TEXT, 0, false, true},    \
        {"set", "SETTING=VALUE", "As of balancer set", ARGS_TEXT, 0, false, true},                 \
        {"hours", "N", "Of virtual time, at most (24)", ARGS_NUMBER, 0, false, false},             \
    {                                                                                              \
        "seed", "N", "The same one gives the same run", ARGS_NUMBER, 0, false, false               \
    }
extern const struct cli_flag cmd_whatif_flags[];
enum { CMD_WHATIF_TIMEOUT_MS = 60000 }; /* it may take so long */
int cmd_whatif_ask(struct cli *c);
/* `cadastre simulate --from`. */
int cmd_whatif_from(struct cli *c);
/* A whole file, "-" being stdin; false when it can't be read, or is larger than the buf may be. */
bool cmd_read_file(const char *path, struct buf *text);

/* cmd_follow.c: an operation asked for until it has ended. */
struct follow {
    uint64_t id, min_revision; /* a server that is behind is not asked; 0: any */
    uint64_t wait_ms;          /* UINT64_MAX: for ever */
    void (*on_news)(struct cli *c, const json_t *operation); /* another stage, attempt, state */
};
/* EXIT_DONE when it is done, EXIT_FAILED when it was aborted or failed, EXIT_TIMED_OUT. What was
 * seen last is the caller's; NULL when nothing was. */
int cmd_follow(struct cli *c, const struct follow *f, json_t **ret_operation);
/* As cmd_finish() for a command that began or changed an operation: with --wait, at its end. */
int cmd_finish_operation(struct cli *c, int code, json_t *answer);
void cmd_pause_ms(uint64_t ms);
#define CMD_FLAG_WAIT                                                                              \
    {                                                                                              \
        "wait", "DURATION", "Wait at most so long", ARGS_DURATION, 0, false, false                 \
    }
#define CMD_FLAG_REASON                                                                            \
    {                                                                                              \
        "reason", "TEXT", "Why, for the audit", ARGS_TEXT, 0, false, false                         \
    }
/* A cell of an array of routes: "17[g, p)@42 n1". */
void cmd_put_routes(struct buf *cell, const json_t *routes);

/* cmd_window.c: "balancer window", and a cell of what is open. */
int cmd_window_run(struct cli *c);
extern const struct cli_flag cmd_window_flags[];
void cmd_put_windows(struct buf *cell, const json_t *windows);

/* Prints `answer` and drops it, when `code` is EXIT_DONE. Returns `code`. */
int cmd_finish(struct cli *c, int code, json_t *answer, const struct out_view *view);
/* The same for an answer whose rows are in `member`. */
int cmd_finish_rows(struct cli *c,
                    int code,
                    json_t *answer,
                    const char *member,
                    const struct out_view *view);
/* {"expect_revision"} when the flag was given, else NULL: the body of a DELETE. */
json_t *cmd_guard(const struct cli *c);
/* /v1/keyspaces/{operand 0} */
void cmd_keyspace_target(struct target *t, const struct cli *c);

#endif
