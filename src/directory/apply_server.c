/* SPDX-License-Identifier: Apache-2.0 */
/* The directory's own servers, its identity and its settings. */
#include "base/mem.h"
#include "directory/internal.h"

#include <inttypes.h>
#include <stdio.h>

static const uint8_t no_instance[16];

/* Bounds of the settings: short enough for a test, long enough to mean something. */
#define RETENTION_MS_MIN UINT64_C(1000)
#define RETENTION_MS_MAX (UINT64_C(10) * 365 * 24 * 3600 * 1000)
#define HISTORY_MIN      UINT64_C(100)
#define HISTORY_MAX      UINT64_C(1000000000)

static struct dir_server *server_get(const struct apply *a, uint64_t id)
{
    uint8_t key[8];
    return ptree_get(&a->s->servers, ptree_u64_key(id, key));
}

static enum err_code check_server(struct err *e, const Cadastre__ServerPut *m)
{
    if (m->id == 0 || m->id > DIR_REVISION_MAX) {
        return err_set_at(e, ERR_INVALID_REQUEST, "/id", "a server's id is 1 or more");
    }
    if (!valid_address(m->raft_address)) {
        return err_set_at(e, ERR_INVALID_REQUEST, "/raft_address", "it is not an address");
    }
    if (m->api_url[0] != '\0' && !valid_address(m->api_url)) {
        return err_set_at(e, ERR_INVALID_REQUEST, "/api_url", "it is not a URL");
    }
    if (m->role != 1 && m->role != 2) {
        return err_set_at(e, ERR_INVALID_REQUEST, "/role", "it is none of voter and observer");
    }
    if (m->instance.len != 0 && m->instance.len != sizeof no_instance) {
        return err_set_at(e, ERR_INVALID_REQUEST, "/instance", "it has 16 bytes");
    }
    return ERR_OK;
}

static struct dir_server *server_new(const struct apply *a, const Cadastre__ServerPut *m)
{
    struct dir_server *s = mem_zalloc(sizeof *s);
    s->object.refs = 1;
    s->object.kind = DIR_KIND_SERVER;
    s->id = m->id;
    s->role = (uint8_t)m->role;
    s->mod_revision = a->rev;
    (void)snprintf(s->raft_address, sizeof s->raft_address, "%s", m->raft_address);
    (void)snprintf(s->api_url, sizeof s->api_url, "%s", m->api_url);
    if (m->instance.len == sizeof s->instance) {
        memcpy(s->instance, m->instance.data, sizeof s->instance);
    }
    return s;
}

static bool known_instance(const struct dir_server *s)
{
    return memcmp(s->instance, no_instance, sizeof no_instance) != 0;
}

static uint64_t members(const struct apply *a)
{
    const struct dir_server *s;
    struct ptree_iter it;
    uint64_t n = 0;
    for (ptree_seek(&a->s->servers, slice_of(NULL, 0), &it);
         (s = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        n += !s->removed;
    }
    return n;
}

static enum err_code check_known(struct apply *a, const struct dir_server *old)
{
    const Cadastre__ServerPut *m = a->cmd->server_put;
    if (old == NULL) {
        if (members(a) >= DIR_SERVERS_MAX || a->s->servers.count >= DIR_SERVER_IDS_MAX) {
            return err_set(&a->err, ERR_LIMIT_EXCEEDED,
                           "a directory has at most %d servers, and %d over its life",
                           DIR_SERVERS_MAX, DIR_SERVER_IDS_MAX);
        }
        return ERR_OK;
    }
    if (old->removed) {
        return err_set(&a->err, ERR_SERVER_EXISTS,
                       "server %" PRIu64 " was removed, and its id is never used again", m->id);
    }
    if (m->instance.len > 0 && known_instance(old) &&
        memcmp(m->instance.data, old->instance, sizeof old->instance) != 0) {
        return err_set(&a->err, ERR_SERVER_EXISTS, "server %" PRIu64 " is another data directory",
                       m->id);
    }
    return ERR_OK;
}

enum err_code apply_server_put(struct apply *a)
{
    const Cadastre__ServerPut *m = a->cmd->server_put;
    apply_subject(a, "server=%" PRIu64, m->id);
    enum err_code code = check_server(&a->err, m);
    const struct dir_server *old = server_get(a, m->id);
    if (code == ERR_OK) {
        code = check_known(a, old);
    }
    if (code != ERR_OK) {
        return code;
    }
    struct dir_server *next = server_new(a, m);
    if (old != NULL && !known_instance(next)) {
        memcpy(next->instance, old->instance, sizeof next->instance);
    }
    if (old != NULL && old->role == next->role &&
        strcmp(old->raft_address, next->raft_address) == 0 &&
        strcmp(old->api_url, next->api_url) == 0 &&
        memcmp(old->instance, next->instance, sizeof old->instance) == 0) {
        dir_unref(next);
        return ERR_OK;
    }
    apply_put(a, next);
    a->changed = true;
    return ERR_OK;
}

enum err_code apply_server_remove(struct apply *a)
{
    const struct dir_server *old = server_get(a, a->cmd->server_remove->id);
    apply_subject(a, "server=%" PRIu64, a->cmd->server_remove->id);
    if (old == NULL || old->removed) {
        return err_set(&a->err, ERR_SERVER_NOT_FOUND, "no server has id %" PRIu64,
                       a->cmd->server_remove->id);
    }
    if (members(a) == 1) {
        return err_set(&a->err, ERR_QUORUM_AT_RISK, "it is the last server");
    }
    struct dir_server *next = row_copy(old, sizeof *old);
    next->removed = true;
    next->mod_revision = a->rev;
    apply_put(a, next);
    a->changed = true;
    return ERR_OK;
}

static enum err_code check_bootstrap(struct apply *a, const Cadastre__Bootstrap *m)
{
    if (!valid_address(m->cluster) || strlen(m->cluster) >= sizeof a->s->cluster) {
        return err_set(&a->err, ERR_INVALID_REQUEST, "a cluster's id has 1 to 32 characters");
    }
    if (m->generation > DIR_REVISION_MAX) {
        return err_set(&a->err, ERR_INVALID_REQUEST, "the generation is out of range");
    }
    if (m->n_servers == 0 || m->n_servers > DIR_SERVERS_MAX) {
        return err_set(&a->err, ERR_INVALID_REQUEST, "a cluster begins with 1 to %d servers",
                       DIR_SERVERS_MAX);
    }
    for (size_t i = 0; i < m->n_servers; i++) {
        enum err_code code = check_server(&a->err, m->servers[i]);
        if (code != ERR_OK) {
            return code;
        }
        for (size_t j = 0; j < i; j++) {
            if (m->servers[i]->id == m->servers[j]->id) {
                return err_set(&a->err, ERR_INVALID_REQUEST, "two servers have one id");
            }
        }
    }
    return ERR_OK;
}

enum err_code apply_bootstrap(struct apply *a)
{
    const Cadastre__Bootstrap *m = a->cmd->bootstrap;
    if (a->s->cluster[0] != '\0') {
        return ERR_OK; /* several servers may have proposed it */
    }
    enum err_code code = check_bootstrap(a, m);
    if (code != ERR_OK) {
        return code;
    }
    apply_subject(a, "cluster=%s", m->cluster);
    (void)snprintf(a->s->cluster, sizeof a->s->cluster, "%s", m->cluster);
    a->s->generation = m->generation;
    for (size_t i = 0; i < m->n_servers; i++) {
        apply_put(a, server_new(a, m->servers[i]));
    }
    a->changed = true;
    return ERR_OK;
}

static bool in_range(uint64_t v, uint64_t min, uint64_t max)
{
    return v >= min && v <= max;
}

/* What concerns movement: any time but none, and a lag that can be reached. */
static const char *wrong_movement(const struct dir_settings *s)
{
    if (!in_range(s->stage_timeout_ms, 1, RETENTION_MS_MAX)) {
        return "/stage_timeout_ms";
    }
    if (!in_range(s->dual_write_max_ms, 1, RETENTION_MS_MAX)) {
        return "/dual_write_max_ms";
    }
    if (!in_range(s->fence_max_ms, 1, RETENTION_MS_MAX)) {
        return "/fence_max_ms";
    }
    if (!in_range(s->validation_window_ms, 0, RETENTION_MS_MAX)) {
        return "/validation_window_ms";
    }
    if (!in_range(s->recovery_delay_ms, 0, RETENTION_MS_MAX)) {
        return "/recovery_delay_ms";
    }
    if (!in_range(s->distrust_ms, 0, DIR_DISTRUST_MAX_MS)) {
        return "/distrust_ms";
    }
    return in_range(s->cutover_lag_bytes, 0, DIR_REVISION_MAX) ? NULL : "/cutover_lag_bytes";
}

enum err_code apply_settings_patch(struct apply *a)
{
    const Cadastre__SettingsPatch *m = a->cmd->settings_patch;
    struct dir_settings next = a->s->settings;
#define X(field) next.field = m->has_##field ? m->field : next.field;
    X(history_retention_ms)
    X(history_max)
    X(dedupe_retention_ms)
    X(lease_ms)
    X(heartbeat_ms)
    X(stage_timeout_ms)
    X(dual_write_max_ms)
    X(fence_max_ms)
    X(validation_window_ms)
    X(cutover_lag_bytes)
    X(recovery_delay_ms)
    X(distrust_ms)
#undef X
    const char *pointer = NULL;
    if (!in_range(next.history_retention_ms, RETENTION_MS_MIN, RETENTION_MS_MAX)) {
        pointer = "/history_retention_ms";
    } else if (!in_range(next.history_max, HISTORY_MIN, HISTORY_MAX)) {
        pointer = "/history_max";
    } else if (!in_range(next.dedupe_retention_ms, RETENTION_MS_MIN, RETENTION_MS_MAX)) {
        pointer = "/dedupe_retention_ms";
    } else if (!in_range(next.lease_ms, DIR_LEASE_MS_MIN, DIR_LEASE_MS_MAX)) {
        pointer = "/lease_ms";
    } else if (!in_range(next.heartbeat_ms, 1, next.lease_ms / 2)) {
        pointer = "/heartbeat_ms"; /* one may get lost */
    } else {
        pointer = wrong_movement(&next);
    }
    if (pointer != NULL) {
        return err_set_at(&a->err, ERR_INVALID_SETTINGS, pointer, "it is out of range");
    }
    if (memcmp(&next, &a->s->settings, sizeof next) != 0) {
        a->s->settings = next;
        a->changed = true;
    }
    return ERR_OK;
}
