/* SPDX-License-Identifier: Apache-2.0 */
/* Settings of one server: defaults, then CADASTRED_<FLAG> of the environment, then flags. */
#ifndef CONFIG_H
#define CONFIG_H

#include "base/err.h"
#include "base/log.h"
#include "raft/replica.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { CONFIG_TEXT_MAX = 512 };

enum config_action {
    CONFIG_SERVE,
    CONFIG_HELP,
    CONFIG_VERSION,
    CONFIG_PRINT,
    CONFIG_LIST_ROUTES,
    CONFIG_CHECK /* `cadastred check DIR` */
};

struct config {
    enum config_action action;
    char data_dir[CONFIG_TEXT_MAX];
    uint64_t id; /* 0: not given */
    char api_addr[CONFIG_TEXT_MAX], api_url[CONFIG_TEXT_MAX];
    char raft_addr[CONFIG_TEXT_MAX], raft_bind[CONFIG_TEXT_MAX];
    struct replica_peer founders[REPLICA_SERVERS_MAX];
    unsigned founder_count;
    char join[CONFIG_TEXT_MAX]; /* "" for none */
    bool observer;
    uint64_t api_threads; /* 0: the number of cores */
    uint64_t election_ms, heartbeat_ms;
    uint64_t snapshot_threshold, snapshot_trailing;
    enum log_level log_level;
    bool log_json;
};

/* ERR_INVALID_REQUEST with a text for the person: exit 2. */
enum err_code
config_read(int argc, char *const *argv, struct config *ret_config, struct err *e) MUST_CHECK;

/* The usage text. */
void config_help(FILE *out);
/* Every setting, its value, and where that came from. */
void config_print(const struct config *config, FILE *out);

#endif
