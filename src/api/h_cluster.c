/* SPDX-License-Identifier: Apache-2.0 */
/* The directory's own servers: what the cluster is, and who is in it. */
#include "api/endpoints.h"

#include "base/parse.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* --- reads --- */

static const char *role_name(uint8_t role)
{
    return role == 2 ? "observer" : "voter";
}

static void put_instance(struct buf *b, const uint8_t instance[16])
{
    for (unsigned i = 0; i < 16; i++) {
        buf_printf(b, "%02x", instance[i]);
    }
}

static void put_server(struct buf *b, const struct dir_server *s)
{
    buf_printf(b, "{\"id\":%" PRIu64 ",\"raft_address\":", s->id);
    json_put_cstring(b, s->raft_address);
    buf_put_str(b, ",\"api_url\":");
    json_put_cstring(b, s->api_url);
    buf_printf(b, ",\"role\":\"%s\",\"instance\":\"", role_name(s->role));
    put_instance(b, s->instance);
    buf_put_u8(b, '"');
}

static const struct replica_member *member_of(const struct replica_status *raft,
                                              const struct dir_server *s)
{
    for (unsigned i = 0; i < raft->member_count && i < REPLICA_SERVERS_MAX; i++) {
        if (raft->members[i].id == s->id) {
            return &raft->members[i];
        }
    }
    return NULL;
}

/* What this server knows of the others: the leader whether it hears them, nobody what they applied.
 */
static void put_server_state(struct buf *b,
                             const struct dir_view *v,
                             const struct dir_server *s,
                             const struct control_status *status)
{
    const struct replica_member *member = member_of(&status->raft, s);
    char hash[HASH128_HEX_SIZE];
    put_server(b, s);
    if (s->id == status->raft.id) {
        hash128_hex(v->hash, hash);
        buf_printf(b, ",\"applied_index\":%" PRIu64 ",\"state_hash\":\"%s\",\"connected\":true}",
                   v->applied_index, hash);
        return;
    }
    buf_put_str(b, ",\"applied_index\":null,\"state_hash\":null,\"connected\":");
    if (member != NULL && status->raft.active) {
        json_put_bool(b, member->connected);
        buf_printf(b, ",\"match_index\":%" PRIu64 "}", member->match_index);
    } else {
        buf_put_str(b, "null}");
    }
}

static void
put_servers(struct buf *b, const struct dir_view *v, const struct control_status *status)
{
    struct ptree_iter it;
    const struct dir_server *s;
    bool any = false;
    buf_put_str(b, "\"servers\":[");
    ptree_seek(&v->servers, slice_of(NULL, 0), &it);
    for (; (s = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        if (s->removed) {
            continue;
        }
        if (any) {
            buf_put_u8(b, ',');
        }
        any = true;
        put_server_state(b, v, s, status);
    }
    buf_put_u8(b, ']');
}

static void put_leader(struct buf *b, const struct control_status *status)
{
    if (status->raft.leader != 0) {
        buf_printf(b, ",\"leader\":%" PRIu64, status->raft.leader);
    } else {
        buf_put_str(b, ",\"leader\":null");
    }
}

static void get_cluster(struct exchange *x, const struct dir_view *v)
{
    struct buf *out = exchange_out(x);
    struct control_status status;
    char hash[HASH128_HEX_SIZE];
    uint64_t commit;
    control_status(exchange_api(x)->control, &status);
    /* The status may be a little older than the view. */
    commit =
        status.raft.commit_index > v->applied_index ? status.raft.commit_index : v->applied_index;
    hash128_hex(v->hash, hash);
    buf_printf(out, "{\"cluster\":\"%s\",\"generation\":%" PRIu64 ",\"id\":%" PRIu64, v->cluster,
               v->generation, status.raft.id);
    put_leader(out, &status);
    buf_printf(out,
               ",\"term\":%" PRIu64 ",\"revision\":%" PRIu64 ",\"commit_index\":%" PRIu64
               ",\"applied_index\":%" PRIu64 ",\"state_hash\":\"%s\",",
               status.raft.term, v->revision, commit, v->applied_index, hash);
    put_servers(out, v, &status);
    buf_put_u8(out, '}');
    reply_read(x, v->revision);
}

void h_cluster(struct exchange *x)
{
    read_begin(x, get_cluster);
}

static void get_servers(struct exchange *x, const struct dir_view *v)
{
    struct buf *out = exchange_out(x);
    struct control_status status;
    control_status(exchange_api(x)->control, &status);
    buf_printf(out, "{\"revision\":%" PRIu64 ",", v->revision);
    put_servers(out, v, &status);
    buf_put_u8(out, '}');
    reply_read(x, v->revision);
}

void h_servers_list(struct exchange *x)
{
    read_begin(x, get_servers);
}

/* --- changes of membership --- */

struct change {
    struct mutation *m;
    enum control_member_verb verb;
    struct replica_peer peer;
    int status; /* of the answer */
};

static void put_refused(struct exchange *x, struct buf *out, void *arg)
{
    (void)arg;
    put_revision(x, out, view_enter(api_slot(x))->revision);
    view_leave();
}

static const char *refusal_text(enum err_code code)
{
    switch ((int)code) {
    case ERR_MEMBERSHIP_BUSY:
        return "another change of the servers is under way: try again when it is done";
    case ERR_QUORUM_AT_RISK:
        return "the change needs a healthy majority of voters, before and after it";
    case ERR_SERVER_NOT_FOUND:
        return "there is no server of this id";
    case ERR_SERVER_EXISTS:
        return "a server of this id is, or was, in the cluster: ids are never used again";
    default:
        return "the change was refused";
    }
}

static const struct dir_server *server_of(const struct dir_view *v, uint64_t id)
{
    uint8_t key[8];
    const struct dir_server *s = ptree_get(&v->servers, ptree_u64_key(id, key));
    return s != NULL && !s->removed ? s : NULL;
}

/* {"revision","cluster","generation","leader","server"?,"servers"}: enough for a server that joins.
 */
static void reply_members(struct exchange *x, const struct change *c)
{
    struct buf *out = exchange_out(x);
    const struct dir_view *v = view_enter(api_slot(x));
    const struct dir_server *s = server_of(v, c->peer.id);
    struct control_status status;
    control_status(exchange_api(x)->control, &status);
    buf_printf(out, "{\"revision\":%" PRIu64 ",\"cluster\":\"%s\",\"generation\":%" PRIu64,
               v->revision, v->cluster, v->generation);
    put_leader(out, &status);
    if (s != NULL) {
        buf_put_str(out, ",\"server\":");
        put_server_state(out, v, s, &status);
    }
    buf_put_u8(out, ',');
    put_servers(out, v, &status);
    buf_put_u8(out, '}');
    exchange_u64_header(x, "Cadastre-Revision", v->revision);
    view_leave();
    exchange_reply(x, c->status, NULL);
}

static void change_ready(struct exchange *x, void *arg)
{
    struct handover *h = arg;
    struct err e;
    enum err_code status = h->status;
    if (status == ERR_OK && h->result != NULL && h->result->err.code != ERR_OK) {
        exchange_problem(x, &h->result->err, put_refused, NULL);
    } else if (status == ERR_OK) {
        reply_members(x, exchange_state(x));
    } else if (status == ERR_NOT_LEADER || err_http_status(status) == 503) {
        (void)reply_outcome(x, status, h->leader_url);
    } else {
        (void)err_set(&e, status, "%s", refusal_text(status));
        exchange_problem(x, &e, put_refused, NULL);
    }
    handover_free(h);
}

static void change_gone(struct exchange *x, bool timed_out)
{
    if (timed_out) {
        reply_unavailable(x, ERR_OUTCOME_UNKNOWN,
                          "the change goes on: look at /v1/cluster what came of it");
    }
}

enum { CHANGE_TIMEOUT_MS = 90000 }; /* a server that becomes a voter catches up first */

static void change_submit(struct exchange *x, struct change *c)
{
    struct handover *h;
    enum err_code code;
    exchange_set_state(x, c);
    h = handover_park(x, change_ready, change_gone, CHANGE_TIMEOUT_MS);
    code = control_member(exchange_api(x)->control, c->verb, &c->peer, exchange_principal(x),
                          handover_done, h);
    if (code != ERR_OK) {
        handover_refused(h, code);
    }
}

/* Not stored under the key: a change of members is idempotent by its id. */
static struct change *change_begin(struct exchange *x, const char *verb)
{
    struct mutation *m = mutation_begin(x, verb, render_revision);
    struct change *c;
    if (m == NULL) {
        return NULL;
    }
    c = exchange_alloc(x, sizeof *c);
    memset(c, 0, sizeof *c);
    c->m = m;
    c->status = 200;
    return c;
}

static bool take_id(struct exchange *x, struct change *c)
{
    if (path_id(x, 0, &c->peer.id)) {
        return true;
    }
    reply_problem(x, ERR_SERVER_NOT_FOUND, "there is no server of this id");
    return false;
}

static bool expected_revision(struct exchange *x, const struct mutation *m)
{
    dir_rev revision = view_enter(api_slot(x))->revision;
    struct err e;
    view_leave();
    if (!m->command.has_expect_revision || m->command.expect_revision == revision) {
        return true;
    }
    (void)err_set(&e, ERR_STALE_REVISION, "the revision is %" PRIu64, revision);
    exchange_problem(x, &e, put_refused, NULL);
    return false;
}

static void read_text(struct json_in *in, const char *member, char *out, size_t size)
{
    struct slice text = json_in_string(in, member, true, 1, size - 1);
    for (size_t i = 0; i < text.len; i++) {
        if (text.data[i] <= 0x20 || text.data[i] >= 0x7f) {
            json_in_fail(in, member, ERR_INVALID_REQUEST, "must be visible ASCII characters");
            return;
        }
    }
    (void)snprintf(out, size, "%.*s", (int)text.len, (const char *)text.data);
}

void h_server_add(struct exchange *x)
{
    static const char *const roles[] = {"voter", "observer", NULL};
    struct change *c = change_begin(x, "server_add");
    struct json_in *in;
    struct slice instance;
    char host[DIR_ADDRESS_MAX + 1];
    uint16_t port;
    size_t len = 0;
    if (c == NULL) {
        return;
    }
    in = &c->m->in;
    c->peer.id = json_in_u64(in, "id", true, 1, PARSE_INT_MAX, NULL);
    read_text(in, "raft_address", c->peer.raft_address, sizeof c->peer.raft_address);
    read_text(in, "api_url", c->peer.api_url, sizeof c->peer.api_url);
    c->verb =
        json_in_enum(in, "role", false, roles, 0) == 1 ? CONTROL_ADD_OBSERVER : CONTROL_ADD_VOTER;
    instance = json_in_string(in, "instance", true, 32, 32);
    if (in->code == ERR_OK && (!parse_hex(instance, c->peer.instance, 16, &len) || len != 16)) {
        json_in_fail(in, "instance", ERR_INVALID_REQUEST, "must be 32 lower-case hex digits");
    }
    if (in->code == ERR_OK && !parse_host_port(c->peer.raft_address, host, sizeof host, &port)) {
        json_in_fail(in, "raft_address", ERR_INVALID_REQUEST, "must be host:port");
    }
    if (in->code == ERR_OK && strncmp(c->peer.api_url, "http://", 7) != 0 &&
        strncmp(c->peer.api_url, "https://", 8) != 0) {
        json_in_fail(in, "api_url", ERR_INVALID_REQUEST, "must be an http:// or https:// URL");
    }
    c->status = 201;
    if (mutation_close(x, c->m) && expected_revision(x, c->m)) {
        change_submit(x, c);
    }
}

void h_server_patch(struct exchange *x)
{
    static const char *const roles[] = {"voter", "observer", NULL};
    struct change *c = change_begin(x, "server_patch");
    if (c == NULL) {
        return;
    }
    c->verb =
        json_in_enum(&c->m->in, "role", true, roles, 0) == 1 ? CONTROL_DEMOTE : CONTROL_PROMOTE;
    if (mutation_close(x, c->m) && expected_revision(x, c->m) && take_id(x, c)) {
        change_submit(x, c);
    }
}

void h_server_delete(struct exchange *x)
{
    struct change *c = change_begin(x, "server_delete");
    if (c == NULL) {
        return;
    }
    c->verb = CONTROL_REMOVE;
    if (mutation_close(x, c->m) && expected_revision(x, c->m) && take_id(x, c)) {
        change_submit(x, c);
    }
}

void h_transfer_leadership(struct exchange *x)
{
    struct change *c = change_begin(x, "transfer_leadership");
    bool present = false;
    if (c == NULL) {
        return;
    }
    c->verb = CONTROL_TRANSFER;
    c->peer.id = json_in_u64(&c->m->in, "to", false, 1, PARSE_INT_MAX, &present);
    if (mutation_close(x, c->m) && expected_revision(x, c->m)) {
        change_submit(x, c);
    }
}

/* --- a snapshot: of this server, leader or not --- */

static void snapshot_ready(struct exchange *x, void *arg)
{
    struct handover *h = arg;
    if (!reply_outcome(x, h->status, h->leader_url)) {
        const struct dir_view *v = view_enter(api_slot(x));
        buf_printf(exchange_out(x), "{\"revision\":%" PRIu64 ",\"applied_index\":%" PRIu64 "}",
                   v->revision, v->applied_index);
        exchange_u64_header(x, "Cadastre-Revision", v->revision);
        view_leave();
        exchange_reply(x, 202, NULL);
    }
    handover_free(h);
}

void h_snapshot(struct exchange *x)
{
    static const struct replica_peer nobody;
    struct json_in in;
    struct err e;
    struct slice body = exchange_body(x);
    json_t *object = body.len == 0 ? json_object() : json_parse_object(body, &e);
    struct handover *h;
    enum err_code code;
    if (object == NULL) {
        exchange_problem(x, &e, NULL, NULL);
        return;
    }
    json_in_open(&in, object, "", &e);
    code = json_in_close(&in);
    json_decref(object);
    if (code != ERR_OK) {
        exchange_problem(x, &e, NULL, NULL);
        return;
    }
    h = handover_park(x, snapshot_ready, change_gone, API_COMMAND_TIMEOUT_MS);
    code = control_member(exchange_api(x)->control, CONTROL_SNAPSHOT, &nobody,
                          exchange_principal(x), handover_done, h);
    if (code != ERR_OK) {
        handover_refused(h, code);
    }
}
