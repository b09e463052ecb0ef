/* SPDX-License-Identifier: Apache-2.0 */
/* Who counts for a partition: what its primary asks for, and what a person forces. */
#include "api/endpoints.h"

#include "api/route_json.h"
#include "base/parse.h"

#include <inttypes.h>
#include <string.h>

static void render_route(struct exchange *x, const struct mutation *m, const struct dir_result *r)
{
    struct buf *out = exchange_out(x);
    struct route_image image;
    if (r->route_count == 0) {
        render_revision(x, m, r);
        return;
    }
    buf_printf(out, "{\"revision\":%" PRIu64 ",\"route\":", r->revision);
    route_of_result(&image, &r->routes[0]);
    route_put(out, &image);
    buf_put_u8(out, '}');
    exchange_reply(x, 200, NULL);
}

static void read_insync(struct exchange *x, struct mutation *m, Cadastre__InsyncChange *change)
{
    json_t *names = json_in_array(&m->in, "insync", true, 0, DIR_REPLICAS_MAX), *value;
    size_t i;
    change->insync = exchange_alloc(x, DIR_REPLICAS_MAX * sizeof(char *));
    json_array_foreach(names, i, value)
    {
        const char *name = json_string_value(value);
        if (name == NULL || !parse_is_name(slice_of(name, json_string_length(value)))) {
            json_in_fail(&m->in, "insync", ERR_INVALID_REQUEST, "must be names of nodes");
            return;
        }
        change->insync[change->n_insync++] = text_lent(name);
    }
}

/* {"node":session,…}, each of a node that `insync` names. */
static void read_sessions(struct exchange *x, struct mutation *m, Cadastre__InsyncChange *change)
{
    json_t *sessions = json_in_object(&m->in, "sessions", false), *value;
    const char *name;
    struct json_in in;
    if (sessions == NULL || m->in.code != ERR_OK) {
        return;
    }
    change->insync_sessions = exchange_alloc(x, DIR_REPLICAS_MAX * sizeof(uint64_t));
    change->n_insync_sessions = change->n_insync;
    memset(change->insync_sessions, 0, DIR_REPLICAS_MAX * sizeof(uint64_t));
    json_in_open(&in, sessions, "/sessions", &m->err);
    json_object_foreach(sessions, name, value)
    {
        size_t at = 0;
        while (at < change->n_insync && strcmp(change->insync[at], name) != 0) {
            at++;
        }
        if (at < change->n_insync) {
            change->insync_sessions[at] = json_in_u64(&in, name, true, 1, PARSE_INT_MAX, NULL);
        }
    }
    m->in.code = json_in_close(&in); /* a name that is not in `insync` was not taken */
}

void h_partition_insync(struct exchange *x)
{
    struct mutation *m = mutation_begin(x, "insync", render_route);
    Cadastre__InsyncChange *change;
    bool present = false;
    if (m == NULL) {
        return;
    }
    change = exchange_alloc(x, sizeof *change);
    cadastre__insync_change__init(change);
    change->session = json_in_u64(&m->in, "session", true, 1, PARSE_INT_MAX, NULL);
    change->epoch = json_in_u64(&m->in, "epoch", true, 1, PARSE_INT_MAX, NULL);
    change->mod_revision = json_in_u64(&m->in, "mod_revision", false, 1, PARSE_INT_MAX, &present);
    change->has_mod_revision = present;
    read_insync(x, m, change);
    read_sessions(x, m, change);
    if (!mutation_close(x, m) || !mutation_partition(x, &change->partition)) {
        return;
    }
    m->command.body_case = CADASTRE__COMMAND__BODY_INSYNC_CHANGE;
    m->command.insync_change = change;
    mutation_submit(x, m);
}

void h_partition_failover(struct exchange *x)
{
    struct mutation *m = mutation_begin(x, "failover", render_operation);
    Cadastre__ForcedFailover *force;
    struct slice to, reason;
    if (m == NULL) {
        return;
    }
    force = exchange_alloc(x, sizeof *force);
    cadastre__forced_failover__init(force);
    to = json_in_name(&m->in, "to", true);
    force->accept_loss = json_in_bool(&m->in, "accept_loss", true, NULL);
    reason = json_in_string(&m->in, "reason", true, 1, DIR_TEXT_MAX);
    mutation_expect_epoch(m, &force->has_expect_epoch, &force->expect_epoch);
    if (reason.data != NULL && strlen((const char *)reason.data) != reason.len) {
        json_in_fail(&m->in, "reason", ERR_INVALID_REQUEST, "must not hold NUL");
    }
    if (!mutation_close(x, m) || !mutation_partition(x, &force->partition)) {
        return;
    }
    force->to = text_lent((const char *)to.data);
    force->reason = text_lent((const char *)reason.data);
    m->command.body_case = CADASTRE__COMMAND__BODY_FORCED_FAILOVER;
    m->command.forced_failover = force;
    mutation_submit(x, m);
}
