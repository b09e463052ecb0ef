/* SPDX-License-Identifier: Apache-2.0 */
/* What a leader does unasked: names the cluster, goes on placing, checks that all servers hold the
 * same state, lets log time pass. Each is a command that apply checks again, so a deposed leader's
 * last ones do no harm. */
#include "control/internal.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#include <string.h>

static void on_own(void *arg, enum err_code status, void *result)
{
    (void)arg;
    (void)status;
    result_unref(result);
}

bool control_propose_own(struct control *c,
                         Cadastre__Command *command,
                         replica_propose_cb cb,
                         void *arg)
{
    command->time_ms = control_log_time(c);
    command->required_version = DIR_COMMAND_VERSION;
    size_t len = cadastre__command__get_packed_size(command);
    uint8_t *packed = mem_alloc(len);
    (void)cadastre__command__pack(command, packed);
    enum err_code code = replica_propose(c->replica, packed, len, cb != NULL ? cb : on_own, arg);
    mem_free(packed);
    return code == ERR_OK;
}

static void propose_bootstrap(struct control *c)
{
    struct replica_identity identity, *id = &identity;
    Cadastre__ServerPut servers[REPLICA_SERVERS_MAX];
    Cadastre__ServerPut *pointers[REPLICA_SERVERS_MAX];
    struct replica_peer peers[REPLICA_SERVERS_MAX];
    Cadastre__Bootstrap bootstrap;
    cadastre__bootstrap__init(&bootstrap);
    Cadastre__Command command;
    cadastre__command__init(&command);
    char cluster[sizeof identity.cluster];
    replica_identity(c->replica, &identity);
    memcpy(cluster, id->cluster, sizeof cluster);
    memcpy(peers, id->founders, sizeof peers);
    for (unsigned i = 0; i < id->founder_count; i++) {
        cadastre__server_put__init(&servers[i]);
        servers[i].id = peers[i].id;
        servers[i].raft_address = peers[i].raft_address;
        servers[i].api_url = peers[i].api_url;
        servers[i].role = 1;
        servers[i].instance = (ProtobufCBinaryData){REPLICA_INSTANCE_SIZE, peers[i].instance};
        pointers[i] = &servers[i];
    }
    bootstrap.cluster = cluster;
    bootstrap.generation = id->generation;
    bootstrap.servers = pointers;
    bootstrap.n_servers = id->founder_count;
    command.body_case = CADASTRE__COMMAND__BODY_BOOTSTRAP;
    command.bootstrap = &bootstrap;
    (void)control_propose_own(c, &command, NULL, NULL);
}

/* Its own addresses, when it was started with others than the member table has. */
static void propose_own_addresses(struct control *c)
{
    const struct control_parts *parts = &c->parts;
    uint8_t key[8];
    const struct dir_server *known = ptree_get(&directory_state(parts->directory)->servers,
                                               ptree_u64_key(parts->identity->id, key));
    if (known == NULL || (strcmp(known->raft_address, parts->raft_address) == 0 &&
                          strcmp(known->api_url, parts->api_url) == 0)) {
        return;
    }
    uint8_t instance[REPLICA_INSTANCE_SIZE];
    memcpy(instance, known->instance, sizeof instance);
    Cadastre__ServerPut put;
    cadastre__server_put__init(&put);
    Cadastre__Command command;
    cadastre__command__init(&command);
    char *raft_address = mem_strdup(parts->raft_address), *api_url = mem_strdup(parts->api_url);
    put.id = known->id;
    put.raft_address = raft_address;
    put.api_url = api_url;
    put.role = known->role;
    put.instance = (ProtobufCBinaryData){sizeof instance, instance};
    command.body_case = CADASTRE__COMMAND__BODY_SERVER_PUT;
    command.server_put = &put;
    (void)control_propose_own(c, &command, NULL, NULL);
    mem_free(raft_address);
    mem_free(api_url);
}

/* Creations that the last leader did not finish. */
static void remove_hidden_keyspaces(struct control *c)
{
    struct ptree_iter it;
    const struct dir_keyspace *ks;
    ptree_seek(&directory_state(c->parts.directory)->keyspaces, slice_of(NULL, 0), &it);
    for (; (ks = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        if (ks->hidden) {
            Cadastre__KeyspaceDelete body;
            cadastre__keyspace_delete__init(&body);
            Cadastre__Command command;
            cadastre__command__init(&command);
            body.keyspace = ks->id;
            command.body_case = CADASTRE__COMMAND__BODY_KEYSPACE_DELETE;
            command.keyspace_delete = &body;
            (void)control_propose_own(c, &command, NULL, NULL);
        }
    }
}

void duties_on_active(struct control *c)
{
    if (directory_state(c->parts.directory)->cluster[0] == '\0') {
        propose_bootstrap(c);
    } else {
        propose_own_addresses(c);
    }
    remove_hidden_keyspaces(c);
    c->placing = false;
    duties_after_apply(c);
}

static void propose_state_check(struct control *c)
{
    const struct dir_view *state = directory_state(c->parts.directory);
    Cadastre__StateCheck check;
    cadastre__state_check__init(&check);
    Cadastre__Command command;
    cadastre__command__init(&command);
    check.index = state->applied_index;
    check.hash_lo = state->hash.lo;
    check.hash_hi = state->hash.hi;
    command.body_case = CADASTRE__COMMAND__BODY_STATE_CHECK;
    command.state_check = &check;
    if (control_propose_own(c, &command, NULL, NULL)) {
        c->check_index = check.index;
        c->check_ms = clock_mono_ms();
    }
}

static void on_placed(void *arg, enum err_code status, void *result)
{
    struct control *c = arg;
    const struct dir_result *outcome = result;
    bool useful = status == ERR_OK && outcome->err.code == ERR_OK && outcome->route_count > 0;
    result_unref(result);
    c->placing = false;
    if (useful && c->active) {
        duties_after_apply(c);
    }
}

/* The first command that could place did DIR_PLACE_BATCH of them; this goes on while there is
 * something to place on. */
static void propose_place(struct control *c)
{
    Cadastre__Place place;
    cadastre__place__init(&place);
    Cadastre__Command command;
    cadastre__command__init(&command);
    command.body_case = CADASTRE__COMMAND__BODY_PLACE;
    command.place = &place;
    struct dir_result *expected = directory_try(c->parts.directory, &command);
    bool useful = expected->err.code == ERR_OK && expected->route_count > 0;
    result_unref(expected);
    if (useful) {
        c->placing = control_propose_own(c, &command, on_placed, c);
    }
}

void duties_after_apply(struct control *c)
{
    const struct dir_view *state = directory_state(c->parts.directory);
    if (!c->active) {
        return;
    }
    if (state->applied_index >= c->check_index + CONTROL_CHECK_ENTRIES) {
        propose_state_check(c);
    }
}

void duties_on_sample(struct control *c)
{
    const struct dir_view *state = directory_state(c->parts.directory);
    uint64_t now = clock_mono_ms();
    if (!c->active) {
        return;
    }
    if (state->unplaced > 0 && !c->placing && state->nodes.count > 0) {
        propose_place(c);
    }
    /* One entry beyond the last check is that check itself. */
    if (now - c->check_ms > CONTROL_CHECK_MS && state->applied_index > c->check_index + 1) {
        propose_state_check(c);
    }
    if (now - c->last_command_ms > CONTROL_TICK_MS) {
        Cadastre__Tick tick;
        cadastre__tick__init(&tick);
        Cadastre__Command command;
        cadastre__command__init(&command);
        command.body_case = CADASTRE__COMMAND__BODY_TICK;
        command.tick = &tick;
        (void)control_propose_own(c, &command, NULL, NULL);
        c->last_command_ms = now;
    }
}
