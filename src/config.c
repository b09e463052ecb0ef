/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/parse.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct setting {
    const char *flag;       /* without the dashes */
    const char *value_name; /* NULL: a switch */
    const char *fallback;
    const char *help;
    bool (*set)(struct config *c, const char *value, struct err *e);
};

static bool bad(struct err *e, const char *what, const char *value, const char *wanted)
{
    (void)err_set(e, ERR_INVALID_REQUEST, "--%s: '%.80s' is not %s", what, value, wanted);
    return false;
}

static bool set_text(char *out, const char *what, const char *value, struct err *e)
{
    if (value[0] == '\0' || strlen(value) >= CONFIG_TEXT_MAX) {
        return bad(e, what, value, "a text of 1 to 511 bytes");
    }
    (void)snprintf(out, CONFIG_TEXT_MAX, "%s", value);
    return true;
}

static bool set_address(char *out, const char *what, const char *value, struct err *e)
{
    char host[256];
    uint16_t port;
    if (!parse_host_port(value, host, sizeof host, &port)) {
        return bad(e, what, value, "host:port");
    }
    return set_text(out, what, value, e);
}

static bool set_number(uint64_t *out,
                       const char *what,
                       const char *value,
                       const uint64_t range[2],
                       struct err *e)
{
    uint64_t n;
    char wanted[80];
    if (parse_u64(value, range[1], &n) && n >= range[0]) {
        *out = n;
        return true;
    }
    (void)snprintf(wanted, sizeof wanted, "a number from %" PRIu64 " to %" PRIu64, range[0],
                   range[1]);
    return bad(e, what, value, wanted);
}

static bool set_data_dir(struct config *c, const char *value, struct err *e)
{
    return set_text(c->data_dir, "data-dir", value, e);
}

static bool set_id(struct config *c, const char *value, struct err *e)
{
    return set_number(&c->id, "id", value, (const uint64_t[]){1, PARSE_INT_MAX}, e);
}

static bool set_api_addr(struct config *c, const char *value, struct err *e)
{
    return set_address(c->api_addr, "api-addr", value, e);
}

static bool set_api_url(struct config *c, const char *value, struct err *e)
{
    if (strncmp(value, "http://", 7) != 0 || strlen(value) > REPLICA_ADDRESS_MAX ||
        value[strlen(value) - 1] == '/') {
        return bad(e, "api-url", value, "http://host:port without a slash at the end");
    }
    return set_text(c->api_url, "api-url", value, e);
}

static bool set_raft_addr(struct config *c, const char *value, struct err *e)
{
    return set_address(c->raft_addr, "raft-addr", value, e);
}

static bool set_raft_bind(struct config *c, const char *value, struct err *e)
{
    return set_address(c->raft_bind, "raft-bind", value, e);
}

/* "1=host:port@http://host:port" */
static bool parse_founder(const char *text, size_t len, struct replica_peer *ret_peer)
{
    char copy[CONFIG_TEXT_MAX], host[256];
    uint16_t port;
    if (len >= sizeof copy) {
        return false;
    }
    memcpy(copy, text, len);
    copy[len] = '\0';
    char *address = strchr(copy, '='), *url = strchr(copy, '@');
    if (address == NULL || url == NULL || url < address) {
        return false;
    }
    *address++ = '\0';
    *url++ = '\0';
    *ret_peer = (struct replica_peer){0};
    if (!parse_u64(copy, PARSE_INT_MAX, &ret_peer->id) || ret_peer->id == 0 ||
        !parse_host_port(address, host, sizeof host, &port) || strncmp(url, "http://", 7) != 0 ||
        strlen(address) > REPLICA_ADDRESS_MAX || strlen(url) > REPLICA_ADDRESS_MAX) {
        return false;
    }
    (void)snprintf(ret_peer->raft_address, sizeof ret_peer->raft_address, "%s", address);
    (void)snprintf(ret_peer->api_url, sizeof ret_peer->api_url, "%s", url);
    return true;
}

static bool clashes(const struct config *c, const struct replica_peer *peer)
{
    for (unsigned i = 0; i < c->founder_count; i++) {
        if (c->founders[i].id == peer->id ||
            strcmp(c->founders[i].raft_address, peer->raft_address) == 0) {
            return true;
        }
    }
    return false;
}

static bool set_initial_cluster(struct config *c, const char *value, struct err *e)
{
    c->founder_count = 0;
    for (const char *p = value; *p != '\0';) {
        size_t len = strcspn(p, ",");
        struct replica_peer peer;
        if (c->founder_count == REPLICA_SERVERS_MAX || !parse_founder(p, len, &peer)) {
            return bad(e, "initial-cluster", value,
                       "ID=HOST:PORT@http://HOST:PORT, separated by commas, at most 16");
        }
        if (clashes(c, &peer)) {
            return bad(e, "initial-cluster", value, "a list of different ids and addresses");
        }
        c->founders[c->founder_count++] = peer;
        p += len + (p[len] == ',');
    }
    return c->founder_count > 0 || bad(e, "initial-cluster", value, "a list of servers");
}

static bool set_join(struct config *c, const char *value, struct err *e)
{
    if (strncmp(value, "http://", 7) != 0) {
        return bad(e, "join", value, "http://host:port of a server of the cluster");
    }
    return set_text(c->join, "join", value, e);
}

static bool set_observer(struct config *c, const char *value, struct err *e)
{
    if (strcmp(value, "true") != 0 && strcmp(value, "false") != 0) {
        return bad(e, "observer", value, "true or false");
    }
    c->observer = strcmp(value, "true") == 0;
    return true;
}

static bool set_api_threads(struct config *c, const char *value, struct err *e)
{
    return set_number(&c->api_threads, "api-threads", value, (const uint64_t[]){0, 64}, e);
}

static bool set_election(struct config *c, const char *value, struct err *e)
{
    uint64_t ms;
    if (!parse_duration_ms(value, &ms) || ms < 100 || ms > 60000) {
        return bad(e, "election-timeout", value, "a duration from 100ms to 60s");
    }
    c->election_ms = ms;
    return true;
}

static bool set_heartbeat(struct config *c, const char *value, struct err *e)
{
    uint64_t ms;
    if (!parse_duration_ms(value, &ms) || ms < 10 || ms > 20000) {
        return bad(e, "heartbeat-interval", value, "a duration from 10ms to 20s");
    }
    c->heartbeat_ms = ms;
    return true;
}

static bool set_threshold(struct config *c, const char *value, struct err *e)
{
    return set_number(&c->snapshot_threshold, "snapshot-threshold", value,
                      (const uint64_t[]){16, 100000}, e);
}

static bool set_trailing(struct config *c, const char *value, struct err *e)
{
    return set_number(&c->snapshot_trailing, "snapshot-trailing", value,
                      (const uint64_t[]){16, 100000}, e);
}

static bool set_log_level(struct config *c, const char *value, struct err *e)
{
    return log_level_parse(value, &c->log_level) ||
           bad(e, "log-level", value, "debug, info, warn or error");
}

static bool set_log_format(struct config *c, const char *value, struct err *e)
{
    c->log_json = strcmp(value, "json") == 0;
    return c->log_json || strcmp(value, "logfmt") == 0 ||
           bad(e, "log-format", value, "logfmt or json");
}

static const struct setting settings[] = {
    {"data-dir", "DIR", "./cadastre-data", "where this server keeps its data", set_data_dir},
    {"id", "N", NULL,
     "this server's id, never used again once removed (default 1, or the directory's)", set_id},
    {"api-addr", "HOST:PORT", "127.0.0.1:7400", "where the HTTP API listens", set_api_addr},
    {"api-url", "URL", NULL, "the API as others reach it (default http://<api-addr>)", set_api_url},
    {"raft-addr", "HOST:PORT", "127.0.0.1:7401", "this server as its peers reach it",
     set_raft_addr},
    {"raft-bind", "HOST:PORT", NULL, "where it listens for them (default: the same)",
     set_raft_bind},
    {"initial-cluster", "LIST", NULL,
     "ID=RAFT-ADDR@API-URL,… of all: the first start of a cluster of several", set_initial_cluster},
    {"join", "URL", NULL, "ask a running cluster to take this server in, or tell it of new addresses", set_join},
    {"observer", NULL, "false", "with --join: replicate without a vote", set_observer},
    {"api-threads", "N", "0", "HTTP threads (0: one a core)", set_api_threads},
    {"election-timeout", "TIME", "1000ms", "a follower waits one to two of these for its leader",
     set_election},
    {"heartbeat-interval", "TIME", "100ms",
     "how often a leader is heard; below half the election timeout", set_heartbeat},
    {"snapshot-threshold", "N", "8192", "log entries between snapshots", set_threshold},
    {"snapshot-trailing", "N", "16384", "log entries kept behind a snapshot", set_trailing},
    {"log-level", "LEVEL", "info", "debug, info, warn or error", set_log_level},
    {"log-format", "FORMAT", "logfmt", "logfmt or json", set_log_format},
};
enum { SETTINGS = sizeof settings / sizeof settings[0] };

static enum { FROM_DEFAULT, FROM_ENVIRONMENT, FROM_FLAG } origins[SETTINGS];

static void environment_name(const char *flag, char *out, size_t size)
{
    size_t n = (size_t)snprintf(out, size, "CADASTRED_%s", flag);
    for (size_t i = 0; i < n; i++) {
        out[i] = out[i] == '-'                    ? '_'
                 : out[i] >= 'a' && out[i] <= 'z' ? (char)(out[i] - 'a' + 'A')
                                                  : out[i];
    }
}

static enum err_code read_environment(struct config *c, struct err *e)
{
    for (unsigned i = 0; i < SETTINGS; i++) {
        char name[64];
        environment_name(settings[i].flag, name, sizeof name);
        const char *value = getenv(name);
        if (value != NULL) {
            if (!settings[i].set(c, value, e)) {
                return err_wrap(e, name);
            }
            origins[i] = FROM_ENVIRONMENT;
        }
    }
    return ERR_OK;
}

static bool take_action(struct config *c, const char *arg)
{
    static const struct {
        const char *flag;
        enum config_action action;
    } actions[] = {{"--help", CONFIG_HELP},
                   {"-h", CONFIG_HELP},
                   {"--version", CONFIG_VERSION},
                   {"--print-config", CONFIG_PRINT},
                   {"--list-routes", CONFIG_LIST_ROUTES}};
    for (unsigned i = 0; i < sizeof actions / sizeof actions[0]; i++) {
        if (strcmp(arg, actions[i].flag) == 0) {
            c->action = actions[i].action;
            return true;
        }
    }
    return false;
}

static enum err_code
take_flag(struct config *c, const char *arg, const char *next, bool *ret_used_next, struct err *e)
{
    *ret_used_next = false;
    for (unsigned i = 0; i < SETTINGS; i++) {
        const struct setting *s = &settings[i];
        size_t n = strlen(s->flag);
        if (strncmp(arg, "--", 2) != 0 || strncmp(arg + 2, s->flag, n) != 0 ||
            (arg[2 + n] != '\0' && arg[2 + n] != '=')) {
            continue;
        }
        const char *value = arg[2 + n] == '=' ? arg + 3 + n : s->value_name == NULL ? "true" : next;
        if (value == NULL) {
            return err_set(e, ERR_INVALID_REQUEST, "--%s needs a value", s->flag);
        }
        *ret_used_next = arg[2 + n] == '\0' && s->value_name != NULL;
        if (!s->set(c, value, e)) {
            return e->code;
        }
        origins[i] = FROM_FLAG;
        return ERR_OK;
    }
    return err_set(e, ERR_INVALID_REQUEST, "unknown argument '%.80s'", arg);
}

static enum err_code derive(struct config *c, struct err *e)
{
    if (c->api_url[0] == '\0') {
        (void)snprintf(c->api_url, sizeof c->api_url, "http://%s", c->api_addr);
    }
    if (c->raft_bind[0] == '\0') {
        memcpy(c->raft_bind, c->raft_addr, sizeof c->raft_bind);
    }
    if (c->join[0] != '\0' && c->founder_count > 0) {
        return err_set(e, ERR_INVALID_REQUEST, "--join and --initial-cluster exclude each other");
    }
    if (c->join[0] != '\0' && c->id == 0) {
        return err_set(e, ERR_INVALID_REQUEST, "--join needs an --id that was never used");
    }
    if (c->observer && c->join[0] == '\0') {
        return err_set(e, ERR_INVALID_REQUEST, "--observer needs --join");
    }
    if (c->heartbeat_ms * 2 >= c->election_ms) {
        return err_set(e, ERR_INVALID_REQUEST,
                       "--heartbeat-interval must be below half of --election-timeout");
    }
    return ERR_OK;
}

static enum err_code read_arguments(int argc, char *const *argv, struct config *c, struct err *e)
{
    int i = 1;
    if (argc > 1 && strcmp(argv[1], "check") == 0) {
        if (argc != 3) {
            return err_set(e, ERR_INVALID_REQUEST, "check takes one argument, a data directory");
        }
        c->action = CONFIG_CHECK;
        return set_text(c->data_dir, "data-dir", argv[2], e) ? ERR_OK : e->code;
    }
    while (i < argc) {
        bool used_next = false;
        if (!take_action(c, argv[i]) &&
            take_flag(c, argv[i], i + 1 < argc ? argv[i + 1] : NULL, &used_next, e) != ERR_OK) {
            return e->code;
        }
        i += used_next ? 2 : 1;
    }
    return ERR_OK;
}

enum err_code config_read(int argc, char *const *argv, struct config *ret_config, struct err *e)
{
    struct config c = {0};
    for (unsigned i = 0; i < SETTINGS; i++) {
        origins[i] = FROM_DEFAULT;
        if (settings[i].fallback != NULL && !settings[i].set(&c, settings[i].fallback, e)) {
            return e->code;
        }
    }
    if (read_environment(&c, e) != ERR_OK || read_arguments(argc, argv, &c, e) != ERR_OK) {
        return e->code;
    }
    if (c.action != CONFIG_CHECK && derive(&c, e) != ERR_OK) {
        return e->code;
    }
    *ret_config = c;
    return ERR_OK;
}

void config_help(FILE *out)
{
    (void)fprintf(out, "usage: cadastred [flags]        serve\n"
                       "       cadastred check DIR      verify a stopped server's data, offline\n\n"
                       "Without flags: one server with data in ./cadastre-data and its API on "
                       "127.0.0.1:7400.\n"
                       "Each flag is also CADASTRED_<FLAG> in the environment; the flag wins.\n\n");
    for (unsigned i = 0; i < SETTINGS; i++) {
        const struct setting *s = &settings[i];
        char left[64];
        (void)snprintf(left, sizeof left, "--%s%s%s", s->flag, s->value_name != NULL ? " " : "",
                       s->value_name != NULL ? s->value_name : "");
        (void)fprintf(out, "  %-30s %s", left, s->help);
        (void)fprintf(out, s->fallback != NULL ? " (default %s)\n" : "\n", s->fallback);
    }
    (void)fprintf(
        out,
        "  %-30s the settings in force and where each came from\n"
        "  %-30s every method and path of the API\n"
        "  --version, --help\n\n"
        "example, a cluster of three on one machine (three shells, N = 1, 2, 3):\n"
        "  cadastred --id N --data-dir d$N --api-addr 127.0.0.1:740$N --raft-addr "
        "127.0.0.1:750$N \\\n"
        "    --initial-cluster "
        "1=127.0.0.1:7501@http://127.0.0.1:7401,2=127.0.0.1:7502@http://127.0.0.1:7402,"
        "3=127.0.0.1:7503@http://127.0.0.1:7403\n\n"
        "exit: 0 asked to stop, 1 check found something wrong, 2 bad flags, 3 the data "
        "directory\n"
        "      or a write to it failed, 4 this server's state differs from its peers', 5 an "
        "address is in use\n",
        "--print-config", "--list-routes");
}

static void print_founders(const struct config *c, FILE *out)
{
    for (unsigned i = 0; i < c->founder_count; i++) {
        const struct replica_peer *p = &c->founders[i];
        (void)fprintf(out, "%s%" PRIu64 "=%s@%s", i > 0 ? "," : "", p->id, p->raft_address,
                      p->api_url);
    }
}

static void print_value(const struct config *c, const char *flag, FILE *out)
{
    const struct {
        const char *flag, *text;
        uint64_t number;
        const char *unit;
    } values[] = {{"data-dir", c->data_dir, 0, ""},
                  {"id", NULL, c->id, ""},
                  {"api-addr", c->api_addr, 0, ""},
                  {"api-url", c->api_url, 0, ""},
                  {"raft-addr", c->raft_addr, 0, ""},
                  {"raft-bind", c->raft_bind, 0, ""},
                  {"join", c->join, 0, ""},
                  {"observer", c->observer ? "true" : "false", 0, ""},
                  {"api-threads", NULL, c->api_threads, ""},
                  {"election-timeout", NULL, c->election_ms, "ms"},
                  {"heartbeat-interval", NULL, c->heartbeat_ms, "ms"},
                  {"snapshot-threshold", NULL, c->snapshot_threshold, ""},
                  {"snapshot-trailing", NULL, c->snapshot_trailing, ""},
                  {"log-format", c->log_json ? "json" : "logfmt", 0, ""}};
    static const char *const levels[] = {"debug", "info", "warn", "error"};
    for (unsigned i = 0; i < sizeof values / sizeof values[0]; i++) {
        if (strcmp(values[i].flag, flag) == 0) {
            if (values[i].text != NULL) {
                (void)fprintf(out, "%s", values[i].text);
            } else {
                (void)fprintf(out, "%" PRIu64 "%s", values[i].number, values[i].unit);
            }
        }
    }
    if (strcmp(flag, "log-level") == 0) {
        (void)fprintf(out, "%s", levels[c->log_level]);
    } else if (strcmp(flag, "initial-cluster") == 0) {
        print_founders(c, out);
    }
}

void config_print(const struct config *config, FILE *out)
{
    static const char *const names[] = {"default", "environment", "flag"};
    for (unsigned i = 0; i < SETTINGS; i++) {
        (void)fprintf(out, "%s=", settings[i].flag);
        print_value(config, settings[i].flag, out);
        (void)fprintf(out, "  # %s\n", names[origins[i]]);
    }
}
