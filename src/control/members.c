/* SPDX-License-Identifier: Apache-2.0 */
/* The directory's own servers. The member table (replicated rows) says which are wanted and in
 * which role; Raft's configuration says which there are. A verb changes the table; the leader
 * brings the configuration in line, one change at a time, and goes on after a crash because the
 * table is still there. */
#include "control/internal.h"

#include "base/log.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { ROLE_VOTER = 1, ROLE_OBSERVER = 2 };

struct member_request {
    struct control *control;
    enum control_member_verb verb;
    struct replica_peer peer;
    char principal[DIR_TEXT_MAX + 1];
    control_done done;
    void *arg;
};

static void answer(struct member_request *m, enum err_code status, struct dir_result *result)
{
    struct control_outcome outcome = {.status = status, .result = result};
    if (status == ERR_NOT_LEADER) {
        control_leader_url(m->control, outcome.leader_url);
    }
    atomic_fetch_sub(&m->control->queued, 1);
    m->done(m->arg, &outcome);
    mem_free(m);
}

static const struct dir_server *wanted_server(const struct control *c, uint64_t id)
{
    uint8_t key[8];
    return ptree_get(&directory_state(c->parts.directory)->servers, ptree_u64_key(id, key));
}

static const struct replica_member *present_member(const struct replica_status *s, uint64_t id)
{
    for (unsigned i = 0; i < s->member_count; i++) {
        if (s->members[i].id == id) {
            return &s->members[i];
        }
    }
    return NULL;
}

/* Would there be voters, and a majority of them connected, were `without` gone? This server counts
 * itself. */
static bool majority_stays(const struct replica_status *s, uint64_t without)
{
    unsigned voters = 0, connected = 0;
    for (unsigned i = 0; i < s->member_count; i++) {
        const struct replica_member *m = &s->members[i];
        if (m->voter && m->id != without) {
            voters++;
            connected += m->connected || m->id == s->id;
        }
    }
    return connected > voters / 2;
}

/* The table has changed: the outcome is its result; the configuration follows at the next
 * reconcile. */
static void on_table_changed(void *arg, enum err_code status, void *result)
{
    struct member_request *m = arg;
    struct dir_result *outcome = result;
    answer(m, status, outcome);
    result_unref(outcome);
}

static void propose_put(struct member_request *m, const struct replica_peer *peer, uint32_t role)
{
    struct replica_peer copy = *peer;
    Cadastre__ServerPut put;
    cadastre__server_put__init(&put);
    Cadastre__Command command;
    cadastre__command__init(&command);
    put.id = copy.id;
    put.raft_address = copy.raft_address;
    put.api_url = copy.api_url;
    put.role = role;
    put.instance = (ProtobufCBinaryData){REPLICA_INSTANCE_SIZE, copy.instance};
    command.principal = m->principal;
    command.body_case = CADASTRE__COMMAND__BODY_SERVER_PUT;
    command.server_put = &put;
    struct dir_result *expected = directory_try(m->control->parts.directory, &command);
    if (expected->err.code != ERR_OK) {
        answer(m, ERR_OK, expected);
    } else if (!control_propose_own(m->control, &command, on_table_changed, m)) {
        answer(m, ERR_OVERLOADED, NULL);
    }
    result_unref(expected);
}

static void run_remove(struct member_request *m)
{
    Cadastre__ServerRemove body;
    cadastre__server_remove__init(&body);
    Cadastre__Command command;
    cadastre__command__init(&command);
    body.id = m->peer.id;
    command.principal = m->principal;
    command.body_case = CADASTRE__COMMAND__BODY_SERVER_REMOVE;
    command.server_remove = &body;
    if (!control_propose_own(m->control, &command, on_table_changed, m)) {
        answer(m, ERR_OVERLOADED, NULL);
    }
}

/* One that is there already keeps its role: it may be told to have moved. */
static void run_add(struct member_request *m, uint32_t role)
{
    const struct dir_server *known = wanted_server(m->control, m->peer.id);
    propose_put(m, &m->peer, known != NULL && !known->removed ? known->role : role);
}

static void run_role(struct member_request *m, uint32_t role)
{
    const struct dir_server *known = wanted_server(m->control, m->peer.id);
    struct replica_peer peer = {.id = known->id};
    (void)snprintf(peer.raft_address, sizeof peer.raft_address, "%s", known->raft_address);
    (void)snprintf(peer.api_url, sizeof peer.api_url, "%s", known->api_url);
    memcpy(peer.instance, known->instance, sizeof peer.instance);
    propose_put(m, &peer, role);
}

static void on_transferred(void *arg, enum err_code status)
{
    answer(arg, status, NULL);
}

/* Why a voter can't go, or ERR_OK. */
static enum err_code refuse_loss(const struct control *c, const struct dir_server *known)
{
    struct replica_status status;
    replica_status(c->replica, &status);
    bool safe = known->role != ROLE_VOTER || majority_stays(&status, known->id);
    return safe ? ERR_OK : ERR_QUORUM_AT_RISK;
}

/* A member that asks to be added again is told to have moved when its address is another. Not while
 * it is heard from where it was: then two processes share its id. */
static enum err_code refuse_move(const struct control *c,
                                 const struct dir_server *known,
                                 const struct replica_peer *peer)
{
    struct replica_status status;
    if (strcmp(known->raft_address, peer->raft_address) == 0 ||
        memcmp(known->instance, peer->instance, sizeof known->instance) != 0) {
        return ERR_OK; /* apply decides */
    }
    replica_status(c->replica, &status);
    const struct replica_member *m = present_member(&status, known->id);
    return m != NULL && m->connected ? ERR_SERVER_EXISTS : ERR_OK;
}

static enum err_code refuse_leader(const struct dir_server *known)
{
    if (known == NULL) {
        return ERR_SERVER_NOT_FOUND;
    }
    return known->role == ROLE_VOTER ? ERR_OK : ERR_NOT_A_VOTER;
}

/* Why the verb can't be taken, or ERR_OK. */
static enum err_code refuse(const struct member_request *m)
{
    const struct dir_server *known = wanted_server(m->control, m->peer.id);
    bool present = known != NULL && !known->removed;
    switch (m->verb) {
    case CONTROL_PROMOTE:
        return present ? ERR_OK : ERR_SERVER_NOT_FOUND;
    case CONTROL_DEMOTE:
    case CONTROL_REMOVE:
        return present ? refuse_loss(m->control, known) : ERR_SERVER_NOT_FOUND;
    case CONTROL_TRANSFER:
        return m->peer.id == 0 ? ERR_OK : refuse_leader(present ? known : NULL);
    case CONTROL_ADD_VOTER:
    case CONTROL_ADD_OBSERVER:
        return present ? refuse_move(m->control, known, &m->peer) : ERR_OK;
    case CONTROL_SNAPSHOT:
        break;
    }
    return ERR_OK;
}

static void member_run(void *arg)
{
    struct member_request *m = arg;
    struct control *c = m->control;
    if (m->verb == CONTROL_SNAPSHOT) { /* any server takes its own */
        replica_snapshot(c->replica);
        answer(m, ERR_OK, NULL);
        return;
    }
    if (!c->active) {
        answer(m, ERR_NOT_LEADER, NULL);
        return;
    }
    enum err_code code = refuse(m);
    if (code != ERR_OK) {
        answer(m, code, NULL);
        return;
    }
    switch (m->verb) {
    case CONTROL_ADD_VOTER:
        run_add(m, ROLE_VOTER);
        break;
    case CONTROL_ADD_OBSERVER:
        run_add(m, ROLE_OBSERVER);
        break;
    case CONTROL_PROMOTE:
        run_role(m, ROLE_VOTER);
        break;
    case CONTROL_DEMOTE:
        run_role(m, ROLE_OBSERVER);
        break;
    case CONTROL_REMOVE:
        run_remove(m);
        break;
    case CONTROL_TRANSFER:
        replica_transfer(c->replica, m->peer.id, on_transferred, m);
        break;
    case CONTROL_SNAPSHOT:
        break;
    }
}

enum err_code control_member(struct control *c,
                             enum control_member_verb verb,
                             const struct replica_peer *peer,
                             const char *principal,
                             control_done done,
                             void *arg)
{
    if (atomic_fetch_add(&c->queued, 1) >= CONTROL_QUEUE_MAX) {
        atomic_fetch_sub(&c->queued, 1);
        return ERR_OVERLOADED;
    }
    struct member_request *m = mem_zalloc(sizeof *m);
    *m = (struct member_request){.control = c, .verb = verb, .done = done, .arg = arg};
    if (peer != NULL) {
        m->peer = *peer;
    }
    (void)snprintf(m->principal, sizeof m->principal, "%s", principal);
    replica_post(c->replica, member_run, m);
    return ERR_OK;
}

struct change {
    struct control *control;
    uint64_t id;
    const char *what;
};

static void on_changed(void *arg, enum err_code status)
{
    struct change *change = arg;
    change->control->member_busy = false;
    log_event(status == ERR_OK ? LOG_INFO : LOG_WARN, "member.changed",
              "id=%" PRIu64 " change=%s outcome=%s", change->id, change->what, err_slug(status));
    mem_free(change);
}

static struct change *begin(struct control *c, uint64_t id, const char *what)
{
    struct change *change = mem_alloc(sizeof *change);
    *change = (struct change){c, id, what};
    c->member_busy = true;
    return change;
}

/* True when it began a change. */
static bool
reconcile_one(struct control *c, const struct replica_status *status, const struct dir_server *s)
{
    const struct replica_member *m = present_member(status, s->id);
    if (s->removed) {
        if (m == NULL) {
            return false;
        }
        replica_remove(c->replica, s->id, on_changed, begin(c, s->id, "remove"));
        return true;
    }
    if (m == NULL) {
        struct replica_peer peer = {.id = s->id};
        (void)snprintf(peer.raft_address, sizeof peer.raft_address, "%s", s->raft_address);
        (void)snprintf(peer.api_url, sizeof peer.api_url, "%s", s->api_url);
        memcpy(peer.instance, s->instance, sizeof peer.instance);
        replica_add(c->replica, &peer, on_changed, begin(c, s->id, "add"));
        return true;
    }
    if (s->role == ROLE_VOTER && !m->voter && m->connected) {
        replica_promote(c->replica, s->id, on_changed, begin(c, s->id, "promote"));
        return true;
    }
    if (s->role == ROLE_OBSERVER && m->voter) {
        replica_demote(c->replica, s->id, on_changed, begin(c, s->id, "demote"));
        return true;
    }
    return false;
}

void members_reconcile(struct control *c)
{
    const struct dir_view *state = directory_state(c->parts.directory);
    struct replica_status status;
    struct ptree_iter it;
    const struct dir_server *s;
    if (!c->active || c->member_busy || state->cluster[0] == '\0') {
        return;
    }
    replica_status(c->replica, &status);
    ptree_seek(&state->servers, slice_of(NULL, 0), &it);
    while ((s = ptree_iter_get(&it, NULL)) != NULL && !reconcile_one(c, &status, s)) {
        ptree_iter_next(&it);
    }
}
