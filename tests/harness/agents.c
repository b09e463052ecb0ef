/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/harness/agents.h"

#include "base/mem.h"
#include "tests/harness/tap.h"

#include <stdio.h>
#include <string.h>

static void fill(Cadastre__NodePut *m, const char *name, char address[32])
{
    cadastre__node_put__init(m);
    (void)snprintf(address, 32, "%s:9000", name);
    m->name = text_lent(name);
    m->address = address;
}

const struct dir_result *agent_put(struct world *w, const char *name, uint64_t previous)
{
    Cadastre__NodePut m;
    char address[32];
    fill(&m, name, address);
    m.previous_session = previous;
    return world_do(w, CADASTRE__COMMAND__BODY_NODE_PUT, &m);
}

const struct dir_result *
agent_put_copies(struct world *w, const char *name, const uint64_t (*copies)[2], size_t count)
{
    Cadastre__NodePut m;
    Cadastre__Copy *items = mem_zalloc((count + 1) * sizeof *items);
    Cadastre__Copy **pointers = mem_zalloc((count + 1) * sizeof(Cadastre__Copy *));
    char address[32];
    fill(&m, name, address);
    for (size_t i = 0; i < count; i++) {
        cadastre__copy__init(&items[i]);
        items[i].keyspace = text_lent("orders");
        items[i].partition = copies[i][0];
        items[i].copy = copies[i][1];
        pointers[i] = &items[i];
    }
    m.previous_session = agent_node(w, name)->session;
    m.has_copies = true;
    m.n_copies = count;
    m.copies = pointers;
    const struct dir_result *r = world_do(w, CADASTRE__COMMAND__BODY_NODE_PUT, &m);
    mem_free(items);
    mem_free(pointers);
    return r;
}

const struct dir_result *
agent_end(struct world *w, const char *name, uint64_t session, bool released)
{
    Cadastre__SessionEnd m;
    cadastre__session_end__init(&m);
    m.node = text_lent(name);
    m.session = session;
    m.released = released;
    return world_do(w, CADASTRE__COMMAND__BODY_SESSION_END, &m);
}

const struct dir_result *
agent_insync(struct world *w, const struct dir_partition *p, uint64_t session, const char *name)
{
    Cadastre__InsyncChange m;
    char *names[] = {text_lent(name)};
    cadastre__insync_change__init(&m);
    m.partition = p->id;
    m.epoch = p->epoch;
    m.session = session;
    m.has_mod_revision = true;
    m.mod_revision = p->mod_revision;
    m.n_insync = name[0] != '\0';
    m.insync = names;
    return world_do(w, CADASTRE__COMMAND__BODY_INSYNC_CHANGE, &m);
}

const struct dir_result *
agent_failover(struct world *w, uint64_t partition, const char *to, bool accept_loss)
{
    Cadastre__ForcedFailover m;
    cadastre__forced_failover__init(&m);
    m.partition = partition;
    m.to = text_lent(to);
    m.accept_loss = accept_loss;
    m.reason = text_lent("the disk is gone");
    return world_do(w, CADASTRE__COMMAND__BODY_FORCED_FAILOVER, &m);
}

const struct dir_result *
agent_schedule(struct world *w, const char *name, Cadastre__SchedulingVerb verb)
{
    Cadastre__NodeScheduling m;
    cadastre__node_scheduling__init(&m);
    m.node = text_lent(name);
    m.verb = verb;
    return world_do(w, CADASTRE__COMMAND__BODY_NODE_SCHEDULING, &m);
}

void agent_keyspace(struct world *w, uint32_t sync)
{
    Cadastre__KeyspaceCreate m;
    cadastre__keyspace_create__init(&m);
    m.name = text_lent("orders");
    m.scheme = DIR_SCHEME_RANGE;
    m.key_encoding = DIR_ENCODING_UTF8;
    m.authority = DIR_AUTHORITY_EXCLUSIVE;
    m.sync_replicas = sync;
    (void)world_do(w, CADASTRE__COMMAND__BODY_KEYSPACE_CREATE, &m);
}

void agent_three(struct world *w)
{
    (void)agent_put(w, "n1", 0);
    CHECK_U64(world_range(w, "k")->err.code, ERR_OK);
    (void)agent_put(w, "n2", 0);
    (void)agent_put(w, "n3", 0);
}

const struct dir_node *agent_node(const struct world *w, const char *name)
{
    return view_node(world_state(w), slice_of(name, strlen(name)));
}

const struct dir_partition *agent_partition(const struct world *w, const char *key)
{
    return world_at(w, "orders", key);
}
