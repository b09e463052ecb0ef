/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/harness/local_control.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/mem.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define WEAK __attribute__((weak))

enum task_kind { TASK_COMMAND, TASK_CONFIRM, TASK_MEMBER, TASK_RESTART };

struct task {
    struct task *next;
    enum task_kind kind;
    uint8_t *command; /* owns: packed */
    size_t command_len;
    struct buf bounds; /* of a creation in chunks: length (2 bytes), key, … */
    bool chunked;
    enum control_member_verb verb;
    struct replica_peer peer;
    control_done done;
    void *arg;
};

struct control {
    struct directory *directory;
    struct store *store;
    struct loads *loads; /* owns */
    struct replica_identity identity;
    pthread_t thread;
    uint64_t time_offset_ms;

    pthread_mutex_t lock; /* for what follows */
    pthread_cond_t changed;
    struct task *first, **last;
    bool stopping, hold, leads, overloaded, lose;
    uint64_t staleness_ms, index, commands, refused, replayed, confirms;
    char leader_url[DIR_ADDRESS_MAX + 1];
};

/* --- the loop --- */

/* Stamped and applied as the only command of its entry, then published. The caller owns the result.
 */
static struct dir_result *apply(struct control *c, Cadastre__Command *cmd)
{
    struct dir_effects *effects = NULL;
    (void)pthread_mutex_lock(&c->lock);
    uint64_t now = clock_wall_ms() + c->time_offset_ms;
    (void)pthread_mutex_unlock(&c->lock);
    const struct dir_view *state = directory_state(c->directory);
    cmd->time_ms = now > state->time_ms ? now : state->time_ms;
    size_t len = cadastre__command__get_packed_size(cmd);
    uint8_t *bytes = mem_alloc(len);
    (void)cadastre__command__pack(cmd, bytes);
    struct dir_result *r =
        directory_apply(c->directory, state->applied_index + 1, slice_of(bytes, len), &effects);
    mem_free(bytes);
    if (effects != NULL) {
        loads_on_rows(c->loads, effects, clock_mono_ms());
        store_push(c->store, effects);
    }
    directory_publish(c->directory);
    return r;
}

static size_t next_bound(const struct buf *bounds, size_t at, struct slice *ret)
{
    size_t len = (size_t)bounds->data[at] | (size_t)bounds->data[at + 1] << 8;
    *ret = slice_of(bounds->data + at + 2, len);
    return at + 2 + len;
}

/* One chunk of bounds from `at` on. */
static size_t fill_chunk(const struct buf *bounds, size_t at, Cadastre__KeyspaceGrow *grow)
{
    size_t bytes = 0;
    while (at < bounds->len && grow->n_splits < DIR_CREATE_BATCH && bytes < DIR_COMMAND_MAX / 2) {
        struct slice key;
        union {
            const uint8_t *in;
            uint8_t *out;
        } data;
        at = next_bound(bounds, at, &key);
        data.in = key.data;
        bytes += key.len + 8;
        grow->splits[grow->n_splits++] = (ProtobufCBinaryData){key.len, data.out};
    }
    return at;
}

/* The first command has no key: the last one, which makes the keyspace visible, has it. */
static struct dir_result *
create(struct control *c, Cadastre__Command *cmd, const struct buf *bounds)
{
    static char none[] = "";
    char *key = cmd->idempotency_key;
    uint64_t left = cmd->keyspace_create->partitions;
    size_t at = 0;
    cmd->keyspace_create->more = true;
    cmd->idempotency_key = none;
    struct dir_result *r = apply(c, cmd);
    left = left > DIR_CREATE_BATCH ? left - DIR_CREATE_BATCH : 0;
    bool last = false;
    while (r->err.code == ERR_OK && !last) {
        Cadastre__KeyspaceGrow grow;
        cadastre__keyspace_grow__init(&grow);
        Cadastre__Command more = *cmd;
        grow.keyspace = r->keyspace->id;
        grow.splits = mem_alloc(DIR_CREATE_BATCH * sizeof *grow.splits);
        at = fill_chunk(bounds, at, &grow);
        left = left > DIR_CREATE_BATCH ? left - DIR_CREATE_BATCH : 0;
        last = at == bounds->len && left == 0;
        grow.last = last;
        more.body_case = CADASTRE__COMMAND__BODY_KEYSPACE_GROW;
        more.keyspace_grow = &grow;
        more.has_expect_revision = false;
        if (last) {
            more.idempotency_key = key;
        }
        result_unref(r);
        r = apply(c, &more);
        mem_free(grow.splits);
    }
    cmd->idempotency_key = key;
    return r;
}

static struct dir_result *run_command(struct control *c, const struct task *t)
{
    Cadastre__Command *cmd = cadastre__command__unpack(NULL, t->command_len, t->command);
    ASSERT(cmd != NULL);
    struct dir_result *r = NULL;
    if (cmd->idempotency_key[0] != '\0') {
        r = directory_lookup(directory_state(c->directory), cmd->principal, cmd->idempotency_key,
                             cmd->digest.data);
    }
    if (r == NULL) {
        r = directory_try(c->directory, cmd);
        if (r->err.code == ERR_OK) {
            result_unref(r);
            r = t->chunked ? create(c, cmd, &t->bounds) : apply(c, cmd);
        }
    }
    cadastre__command__free_unpacked(cmd, NULL);
    return r;
}

static bool adds(const struct task *t)
{
    return t->verb == CONTROL_ADD_VOTER || t->verb == CONTROL_ADD_OBSERVER;
}

static enum err_code check_member(const struct task *t, const struct dir_server *s)
{
    bool there = s != NULL && !s->removed;
    if (t->verb == CONTROL_SNAPSHOT) {
        return ERR_OK;
    }
    if (t->verb == CONTROL_TRANSFER) {
        return t->peer.id > 1 ? ERR_SERVER_NOT_FOUND : ERR_OK;
    }
    if (adds(t)) {
        return s != NULL ? ERR_SERVER_EXISTS : ERR_OK;
    }
    if (!there) {
        return ERR_SERVER_NOT_FOUND;
    }
    return t->verb != CONTROL_PROMOTE && t->peer.id == 1 ? ERR_QUORUM_AT_RISK : ERR_OK;
}

static enum err_code run_member(struct control *c, const struct task *t)
{
    uint8_t key[8];
    const struct dir_view *state = directory_state(c->directory);
    const struct dir_server *s = ptree_get(&state->servers, ptree_u64_key(t->peer.id, key));
    enum err_code code = check_member(t, s);
    Cadastre__Command cmd;
    Cadastre__ServerPut put;
    Cadastre__ServerRemove removal;
    struct replica_peer peer = t->peer;
    if (code != ERR_OK || t->verb == CONTROL_SNAPSHOT || t->verb == CONTROL_TRANSFER) {
        return code;
    }
    cadastre__command__init(&cmd);
    cadastre__server_put__init(&put);
    cadastre__server_remove__init(&removal);
    if (!adds(t)) {
        memcpy(peer.raft_address, s->raft_address, sizeof peer.raft_address);
        memcpy(peer.api_url, s->api_url, sizeof peer.api_url);
        memcpy(peer.instance, s->instance, sizeof peer.instance);
    }
    put.id = removal.id = peer.id;
    put.raft_address = peer.raft_address;
    put.api_url = peer.api_url;
    put.role = t->verb == CONTROL_ADD_OBSERVER || t->verb == CONTROL_DEMOTE ? 2 : 1;
    put.instance = (ProtobufCBinaryData){16, peer.instance};
    cmd.body_case = CADASTRE__COMMAND__BODY_SERVER_PUT;
    cmd.server_put = &put;
    if (t->verb == CONTROL_REMOVE) {
        cmd.body_case = CADASTRE__COMMAND__BODY_SERVER_REMOVE;
        cmd.server_remove = &removal;
    }
    struct dir_result *r = apply(c, &cmd);
    code = r->err.code;
    result_unref(r);
    return code;
}

static void restart(struct control *c)
{
    struct slice pieces[2];
    struct buf all;
    struct err e;
    struct store_snapshot *snapshot =
        store_snapshot_begin(c->store, directory_state(c->directory)->applied_index);
    ASSERT(snapshot != NULL && store_snapshot_wait(snapshot, pieces, &e) == ERR_OK);
    buf_init(&all, SIZE_MAX);
    buf_put(&all, pieces[0].data, pieces[0].len);
    buf_put(&all, pieces[1].data, pieces[1].len);
    store_snapshot_end(snapshot);
    ASSERT(store_restore(c->store, c->directory, slice_of(all.data, all.len), &e) == ERR_OK);
    buf_close(&all);
}

struct flags {
    bool leads, lose;
    char leader_url[DIR_ADDRESS_MAX + 1];
};

static void run(struct control *c, const struct task *t, const struct flags *now)
{
    struct control_outcome outcome = {.status = ERR_OK};
    (void)snprintf(outcome.leader_url, sizeof outcome.leader_url, "%s", now->leader_url);
    bool anywhere = t->kind == TASK_MEMBER && t->verb == CONTROL_SNAPSHOT;
    if (!now->leads && !anywhere) {
        outcome.status = ERR_NOT_LEADER;
    } else if (t->kind == TASK_COMMAND && now->lose) {
        outcome.status = ERR_OUTCOME_UNKNOWN;
    } else if (t->kind == TASK_COMMAND) {
        outcome.result = run_command(c, t);
    } else if (t->kind == TASK_MEMBER) {
        outcome.status = run_member(c, t);
    } else if (t->kind == TASK_RESTART) {
        restart(c);
    }
    (void)pthread_mutex_lock(&c->lock);
    c->index = directory_state(c->directory)->applied_index;
    c->confirms += t->kind == TASK_CONFIRM;
    if (outcome.result != NULL) {
        c->commands += outcome.result->err.code == ERR_OK;
        c->refused += outcome.result->err.code != ERR_OK;
        c->replayed += outcome.result->replayed;
    }
    (void)pthread_mutex_unlock(&c->lock);
    t->done(t->arg, &outcome);
    result_unref(outcome.result);
}

static void task_free(struct task *t)
{
    mem_free(t->command);
    buf_close(&t->bounds);
    mem_free(t);
}

static void *loop(void *arg)
{
    struct control *c = arg;
    rcu_reader_start();
    (void)pthread_mutex_lock(&c->lock);
    while (!c->stopping || c->first != NULL) {
        if (c->first == NULL || (c->hold && !c->stopping)) {
            (void)pthread_cond_wait(&c->changed, &c->lock);
            continue;
        }
        struct task *t = c->first;
        struct flags now = {.leads = c->leads, .lose = c->lose};
        memcpy(now.leader_url, c->leader_url, sizeof now.leader_url);
        c->first = t->next;
        if (c->first == NULL) {
            c->last = &c->first;
        }
        (void)pthread_mutex_unlock(&c->lock);
        run(c, t, &now);
        task_free(t);
        (void)pthread_mutex_lock(&c->lock);
    }
    (void)pthread_mutex_unlock(&c->lock);
    rcu_reader_stop();
    return NULL;
}

static enum err_code hand_over(struct control *c, struct task *t)
{
    enum err_code code = ERR_OK;
    (void)pthread_mutex_lock(&c->lock);
    if (c->overloaded || c->stopping) {
        code = ERR_OVERLOADED;
    } else {
        *c->last = t;
        c->last = &t->next;
        (void)pthread_cond_signal(&c->changed);
    }
    (void)pthread_mutex_unlock(&c->lock);
    if (code != ERR_OK) {
        task_free(t);
    }
    return code;
}

static struct task *task_new(enum task_kind kind, control_done done, void *arg)
{
    struct task *t = mem_zalloc(sizeof *t);
    t->kind = kind;
    t->done = done;
    t->arg = arg;
    buf_init(&t->bounds, SIZE_MAX);
    return t;
}

static void task_command(struct task *t, const Cadastre__Command *command)
{
    t->command_len = cadastre__command__get_packed_size(command);
    t->command = mem_alloc(t->command_len);
    (void)cadastre__command__pack(command, t->command);
}

/* --- control.h --- */

WEAK enum err_code
control_submit(struct control *c, const Cadastre__Command *command, control_done done, void *arg)
{
    struct task *t = task_new(TASK_COMMAND, done, arg);
    task_command(t, command);
    return hand_over(c, t);
}

WEAK enum err_code control_confirm(struct control *c, control_done done, void *arg)
{
    return hand_over(c, task_new(TASK_CONFIRM, done, arg));
}

WEAK enum err_code control_create_keyspace(struct control *c,
                                           const Cadastre__Command *create_command,
                                           const struct slice *bounds,
                                           uint64_t bound_count,
                                           control_done done,
                                           void *arg)
{
    struct task *t = task_new(TASK_COMMAND, done, arg);
    task_command(t, create_command);
    t->chunked = true;
    for (uint64_t i = 0; i < bound_count; i++) {
        buf_put_u8(&t->bounds, (uint8_t)bounds[i].len);
        buf_put_u8(&t->bounds, (uint8_t)(bounds[i].len >> 8));
        buf_put(&t->bounds, bounds[i].data, bounds[i].len);
    }
    return hand_over(c, t);
}

WEAK enum err_code control_member(struct control *c,
                                  enum control_member_verb verb,
                                  const struct replica_peer *peer,
                                  const char *principal,
                                  control_done done,
                                  void *arg)
{
    struct task *t = task_new(TASK_MEMBER, done, arg);
    (void)principal;
    t->verb = verb;
    t->peer = *peer;
    return hand_over(c, t);
}

WEAK void control_status(const struct control *shown, struct control_status *ret)
{
    union {
        const struct control *in;
        struct control *out;
    } u = {shown};
    struct control *c = u.out;
    memset(ret, 0, sizeof *ret);
    (void)pthread_mutex_lock(&c->lock);
    ret->raft.role = c->leads ? REPLICA_LEADER : REPLICA_FOLLOWER;
    ret->raft.active = c->leads;
    ret->raft.id = 1;
    ret->raft.leader = c->leads ? 1 : c->leader_url[0] != '\0' ? 2 : 0;
    ret->raft.term = 1;
    ret->raft.commit_index = ret->raft.applied_index = ret->raft.last_index = c->index;
    (void)snprintf(ret->leader_url, sizeof ret->leader_url, "%s", c->leader_url);
    ret->commands = c->commands;
    ret->refused = c->refused;
    ret->replayed = c->replayed;
    ret->confirms = c->confirms;
    (void)pthread_mutex_unlock(&c->lock);
    ret->store_lag = store_lag(c->store);
    ret->loop_turned_ms = clock_mono_ms();
}

WEAK uint64_t control_staleness_ms(const struct control *shown)
{
    union {
        const struct control *in;
        struct control *out;
    } u = {shown};
    (void)pthread_mutex_lock(&u.out->lock);
    uint64_t ms = u.out->staleness_ms;
    (void)pthread_mutex_unlock(&u.out->lock);
    return ms;
}

WEAK const struct dir_published *control_published(const struct control *c)
{
    return directory_published(c->directory);
}

WEAK struct dir_feed *control_feed(const struct control *c)
{
    return directory_feed(c->directory);
}

WEAK bool control_planning(struct control *c, struct control_planning *ret)
{
    (void)c;
    (void)ret;
    return false;
}

WEAK struct loads *control_loads(const struct control *c)
{
    return c->loads;
}

WEAK struct store *control_store(const struct control *c)
{
    return c->store;
}

WEAK const struct replica_identity *control_identity(const struct control *c)
{
    return &c->identity;
}

/* The contract in these tests. */
extern const char openapi_yaml[];
extern const size_t openapi_yaml_len;
WEAK const char openapi_yaml[] = "openapi: 3.1.0\n";
WEAK const size_t openapi_yaml_len = sizeof "openapi: 3.1.0\n" - 1;

/* --- for tests --- */

struct control *local_control_start(const char *path)
{
    static char cluster[] = "00112233445566778899aabbccddeeff", raft[] = "127.0.0.1:7401",
                api[] = "http://127.0.0.1:7400";
    uint8_t instance[16] = {1};
    struct control *c = mem_zalloc(sizeof *c);
    struct err e;
    c->directory = directory_new();
    c->loads = loads_new();
    ASSERT(store_open(path, &c->store, &e) == ERR_OK);
    c->leads = true;
    c->last = &c->first;
    (void)pthread_mutex_init(&c->lock, NULL);
    (void)pthread_cond_init(&c->changed, NULL);
    ASSERT(pthread_create(&c->thread, NULL, loop, c) == 0);
    Cadastre__Bootstrap boot;
    cadastre__bootstrap__init(&boot);
    Cadastre__ServerPut server;
    cadastre__server_put__init(&server);
    Cadastre__ServerPut *servers[] = {&server};
    server.id = 1;
    server.role = 1;
    server.raft_address = raft;
    server.api_url = api;
    server.instance = (ProtobufCBinaryData){16, instance};
    boot.cluster = cluster;
    boot.generation = 1;
    boot.n_servers = 1;
    boot.servers = servers;
    struct dir_result *r = local_control_run(c, CADASTRE__COMMAND__BODY_BOOTSTRAP, &boot);
    ASSERT(r->err.code == ERR_OK);
    result_unref(r);
    return c;
}

void local_control_drain(struct control *c)
{
    (void)pthread_mutex_lock(&c->lock);
    c->stopping = true;
    (void)pthread_cond_signal(&c->changed);
    (void)pthread_mutex_unlock(&c->lock);
    (void)pthread_join(c->thread, NULL);
}

void local_control_stop(struct control *c)
{
    store_close(c->store);
    rcu_drain();
    directory_free(c->directory);
    (void)pthread_cond_destroy(&c->changed);
    (void)pthread_mutex_destroy(&c->lock);
    loads_free(c->loads);
    mem_free(c);
}

static void set_flag(struct control *c, bool *flag, bool value)
{
    (void)pthread_mutex_lock(&c->lock);
    *flag = value;
    (void)pthread_cond_signal(&c->changed);
    (void)pthread_mutex_unlock(&c->lock);
}

void local_control_lead(struct control *c, bool leads, const char *leader_url)
{
    (void)pthread_mutex_lock(&c->lock);
    (void)snprintf(c->leader_url, sizeof c->leader_url, "%s", leader_url);
    (void)pthread_mutex_unlock(&c->lock);
    set_flag(c, &c->leads, leads);
}

void local_control_hold(struct control *c, bool hold)
{
    set_flag(c, &c->hold, hold);
}

void local_control_overload(struct control *c, bool overloaded)
{
    set_flag(c, &c->overloaded, overloaded);
}

void local_control_lose(struct control *c, bool lose)
{
    set_flag(c, &c->lose, lose);
}

void local_control_staleness(struct control *c, uint64_t ms)
{
    (void)pthread_mutex_lock(&c->lock);
    c->staleness_ms = ms;
    (void)pthread_mutex_unlock(&c->lock);
}

struct waiter {
    pthread_mutex_t lock;
    pthread_cond_t done;
    struct dir_result *result;
    bool is_done;
};

static void waiter_done(void *arg, const struct control_outcome *outcome)
{
    struct waiter *w = arg;
    ASSERT(outcome->status == ERR_OK);
    (void)pthread_mutex_lock(&w->lock);
    w->result = outcome->result != NULL ? result_ref(outcome->result) : NULL;
    w->is_done = true;
    (void)pthread_cond_signal(&w->done);
    (void)pthread_mutex_unlock(&w->lock);
}

static void waiter_wait(struct waiter *w)
{
    (void)pthread_mutex_lock(&w->lock);
    while (!w->is_done) {
        (void)pthread_cond_wait(&w->done, &w->lock);
    }
    (void)pthread_mutex_unlock(&w->lock);
}

void local_control_restart(struct control *c)
{
    struct waiter w = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL, false};
    ASSERT(hand_over(c, task_new(TASK_RESTART, waiter_done, &w)) == ERR_OK);
    waiter_wait(&w);
}

struct dir_result *
local_control_run(struct control *c, Cadastre__Command__BodyCase which, void *body)
{
    struct waiter w = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL, false};
    Cadastre__Command cmd;
    cadastre__command__init(&cmd);
    cmd.required_version = DIR_COMMAND_VERSION;
    cmd.body_case = which;
    cmd.tick = body; /* a union of pointers */
    ASSERT(control_submit(c, &cmd, waiter_done, &w) == ERR_OK);
    waiter_wait(&w);
    return w.result;
}

void local_control_advance(struct control *c, uint64_t ms)
{
    Cadastre__Tick tick;
    cadastre__tick__init(&tick);
    (void)pthread_mutex_lock(&c->lock);
    c->time_offset_ms += ms;
    (void)pthread_mutex_unlock(&c->lock);
    result_unref(local_control_run(c, CADASTRE__COMMAND__BODY_TICK, &tick));
}

/* Judged where it is called: there is one thread less to wait for. */
WEAK enum err_code control_heartbeat(struct control *c,
                                     const char *node,
                                     uint64_t session,
                                     control_beat_done done,
                                     void *arg)
{
    struct control_beat beat = {.status = ERR_OK};
    const struct dir_view *v = view_enter(directory_published(c->directory));
    const struct dir_node *n = view_node(v, slice_of(node, strlen(node)));
    if (n == NULL) {
        beat.status = ERR_NODE_NOT_FOUND;
    } else if (n->session != session || !view_node_is_live(n)) {
        beat.status = ERR_SESSION_ENDED;
    } else {
        beat.lease_ms = n->lease_ms;
        beat.heartbeat_ms = v->settings.heartbeat_ms;
        beat.revision = v->revision;
    }
    view_leave();
    (void)pthread_mutex_lock(&c->lock);
    bool overloaded = c->overloaded;
    (void)pthread_mutex_unlock(&c->lock);
    if (overloaded) {
        return ERR_OVERLOADED;
    }
    done(arg, &beat);
    return ERR_OK;
}

WEAK enum control_node_state control_node_state(struct control *c,
                                                const struct dir_node *n,
                                                uint64_t heartbeat_ms,
                                                uint64_t *ret_left_ms)
{
    (void)c;
    (void)heartbeat_ms;
    *ret_left_ms = n->is_static || n->ended ? UINT64_MAX : n->lease_ms;
    return view_node_is_live(n) ? CONTROL_NODE_UP : CONTROL_NODE_DOWN;
}
