/* SPDX-License-Identifier: Apache-2.0 */
/* The replicated state in deterministic simulation: real directories behind real libraft and the
 * guard, on a simulated network and disk (sim_io.h); clients that retry with the same key; cuts,
 * one-way cuts, slow disks, pauses, crashes that lose what was not synced, snapshots and installs,
 * all from one seed. A seed runs in a child process, so that one that crashes names itself.
 *
 * SIM_SEEDS=from:to chooses the seeds; SIM_SEEDS=7:8 is how a failing one is run again. */
#include "base/assert.h"
#include "base/mem.h"
#include "base/parse.h"
#include "directory/balancer.h"
#include "directory/directory.h"
#include "raft/guard.h"
#include "tests/harness/tap.h"
#include "tests/sim/sim_io.h"

#include <inttypes.h>
#include <raft.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    SERVERS_MAX = 5,
    INDEXES_MAX = 60000,
    CLIENTS = 6,
    COMMANDS_MAX = 4000,
    STEPS = 150,
    RETRY_MS = 800,
    SEED_SECONDS = 60,
    ACKNOWLEDGED_LEAST = 20, /* a seed that acknowledged fewer says nothing */
    HEAL_MS = 20000,
    SEEDS_DEFAULT = 300
};

struct machine {
    unsigned i;
    struct raft *raft;
    struct raft_io *io;
    struct raft_fsm fsm;
    bool alive;
    uint64_t restart_at;
    struct directory *directory;
    struct ptree rows; /* every live row, collected from the effects: what a store would hold */
    uint64_t applied;
    dir_rev revision;
};

struct command {
    char key[32];
    uint8_t *packed; /* owns */
    size_t len;
    bool open, acknowledged;
    dir_rev revision;      /* of the first acknowledgement */
    enum err_code outcome; /* of it */
    uint64_t sent;
    unsigned tries;
};

struct attempt {
    struct raft_apply request;
    struct command *command;
};

static struct sim *sim;
static struct machine machines[SERVERS_MAX];
static unsigned server_count;
static jmp_buf
    fatal_escape; /* where a fatal guard leaves libraft: the process it stands for is dead then */
static struct hash128 hash_at[INDEXES_MAX];
static bool known_at[INDEXES_MAX];
static struct command commands[COMMANDS_MAX];
static unsigned command_count, acknowledged, refused, replays, restored, crashes;
static struct command *client[CLIENTS];
static struct tap_rand rng;
static char failure[256];

#define FAIL(...)                                                                                  \
    (failure[0] == '\0' ? (void)snprintf(failure, sizeof failure, __VA_ARGS__) : (void)0)

static uint64_t rnd(uint64_t n)
{
    return tap_rand_below(&rng, n);
}

/* --- rows --- */

static struct slice row_key(const struct dir_object *o, uint8_t out[9])
{
    uint64_t id = 0;
    switch ((enum dir_kind)o->kind) {
    case DIR_KIND_KEYSPACE:
        id = ((const struct dir_keyspace *)(const void *)o)->id;
        break;
    case DIR_KIND_PARTITION:
        id = ((const struct dir_partition *)(const void *)o)->id;
        break;
    case DIR_KIND_TOMBSTONE:
        id = ((const struct dir_tombstone *)(const void *)o)->id;
        break;
    case DIR_KIND_NODE:
        id = ((const struct dir_node *)(const void *)o)->id;
        break;
    case DIR_KIND_SERVER:
        id = ((const struct dir_server *)(const void *)o)->id;
        break;
    case DIR_KIND_OPERATION:
        id = ((const struct dir_operation *)(const void *)o)->id;
        break;
    case DIR_KIND_PROPOSAL:
        id = ((const struct dir_proposal *)(const void *)o)->id;
        break;
    case DIR_KIND_BALANCER:
        id = DIR_BALANCER_ID;
        break;
    case DIR_KIND_DUTY:
        id = ((const struct dir_duty *)(const void *)o)->id;
        break;
    case DIR_KIND_DEDUPE:
        id = ((const struct dir_dedupe *)(const void *)o)->index;
        break;
    case DIR_KIND_MAP:
    case DIR_KIND_BYTES:
        UNREACHABLE();
    }
    out[0] = o->kind;
    (void)ptree_u64_key(id, out + 1);
    return slice_of(out, 9);
}

static void keep_rows(struct machine *m, const struct dir_effects *e)
{
    uint8_t key[9];
    for (; e != NULL; e = e->next) {
        for (uint64_t i = 0; i < e->row_count; i++) {
            const struct dir_row *row = &e->rows[i];
            if (row->before != NULL) {
                dir_unref(ptree_remove(&m->rows, row_key(row->before, key)));
            }
            if (row->after != NULL) {
                dir_unref(ptree_put(&m->rows, row_key(row->after, key), dir_ref(row->after)));
            }
        }
    }
}

/* --- the state machine under libraft --- */

static void check_index(struct machine *m, uint64_t index)
{
    const struct dir_view *v = directory_state(m->directory);
    ASSERT(index < INDEXES_MAX);
    if (!known_at[index]) {
        known_at[index] = true;
        hash_at[index] = v->hash;
    } else if (hash_at[index].lo != v->hash.lo || hash_at[index].hi != v->hash.hi) {
        FAIL("server %u differs at index %" PRIu64, m->i, index);
    }
    if (v->revision < m->revision || v->revision > m->revision + 1) {
        FAIL("server %u: revision %" PRIu64 " after %" PRIu64, m->i, v->revision, m->revision);
    }
    m->revision = v->revision;
    m->applied = index;
}

static int on_apply(struct raft_fsm *fsm, const struct raft_buffer *buf, void **result)
{
    struct machine *m = fsm->data;
    uint32_t len;
    struct dir_effects *effects = NULL;
    uint64_t index = raft_last_applied(m->raft) + 1;
    memcpy(&len, buf->base, sizeof len);
    const uint8_t *bytes = buf->base;
    *result = directory_apply(m->directory, index, slice_of(bytes + sizeof len, len), &effects);
    keep_rows(m, effects);
    while (effects != NULL) {
        struct dir_effects *next = effects->next;
        effects->next = NULL;
        dir_effects_free(effects);
        effects = next;
    }
    directory_publish(m->directory);
    check_index(m, index);
    return 0;
}

struct image_head {
    uint64_t rows, applied, revision;
    struct dir_view_meta meta;
};

static int on_snapshot(struct raft_fsm *fsm, struct raft_buffer *bufs[], unsigned *n)
{
    struct machine *m = fsm->data;
    struct buf b;
    struct ptree_iter it;
    const struct dir_object *row;
    struct image_head head = {
        .rows = m->rows.count, .applied = m->applied, .revision = m->revision};
    dir_meta_of(directory_state(m->directory), &head.meta);
    buf_init(&b, SIZE_MAX);
    buf_put(&b, &head, sizeof head);
    ptree_seek(&m->rows, slice_of(NULL, 0), &it);
    for (; (row = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        size_t at = b.len;
        uint32_t len = 0;
        buf_put(&b, &len, sizeof len);
        dir_object_encode(row, &b);
        len = (uint32_t)(b.len - at - sizeof len);
        memcpy(b.data + at, &len, sizeof len);
    }
    *bufs = raft_malloc(sizeof **bufs);
    (*bufs)[0].len = (b.len + 7) & ~(size_t)7;
    (*bufs)[0].base = raft_calloc(1, (*bufs)[0].len);
    memcpy((*bufs)[0].base, b.data, b.len);
    *n = 1;
    buf_close(&b);
    return 0;
}

static int on_restore(struct raft_fsm *fsm, struct raft_buffer *buf)
{
    struct machine *m = fsm->data;
    struct image_head head;
    struct err e;
    const uint8_t *at = buf->base;
    memcpy(&head, at, sizeof head);
    at += sizeof head;
    ptree_unref(&m->rows);
    directory_load_begin(m->directory, &head.meta);
    for (uint64_t i = 0; i < head.rows; i++) {
        uint8_t key[9];
        uint32_t len;
        memcpy(&len, at, sizeof len);
        struct dir_object *row = dir_object_decode(slice_of(at + sizeof len, len), &e);
        at += sizeof len + len;
        ASSERT(row != NULL);
        dir_unref(ptree_put(&m->rows, row_key(row, key), dir_ref(row)));
        directory_load_row(m->directory, row);
    }
    if (directory_load_end(m->directory, &e) != ERR_OK) {
        FAIL("server %u can't load a snapshot: %s", m->i, e.detail);
    }
    m->revision = head.revision;
    m->applied = head.applied;
    restored++;
    raft_free(buf->base);
    return 0;
}

static void on_fatal(void *ctx, struct raft *r, const char *why, int status)
{
    (void)ctx;
    (void)r;
    (void)why;
    (void)status;
    longjmp(fatal_escape, 1);
}

/* --- clients --- */

static void pack(struct command *k, Cadastre__Command *message)
{
    static char principal[] = "sim";
    uint8_t digest[16];
    message->required_version = DIR_COMMAND_VERSION;
    message->time_ms = 1000000 + sim_now(sim);
    message->principal = principal;
    message->idempotency_key = k->key;
    memset(digest, k->key[0], sizeof digest);
    message->digest = (ProtobufCBinaryData){sizeof digest, digest};
    k->len = cadastre__command__get_packed_size(message);
    k->packed = mem_alloc(k->len);
    (void)cadastre__command__pack(message, k->packed);
}

static const struct dir_partition *any_partition(const struct dir_view *v)
{
    struct ptree_iter it;
    uint8_t key[8];
    if (v->partitions.count == 0) {
        return NULL;
    }
    ptree_seek(&v->partitions, ptree_u64_key(rnd(v->next_id), key), &it);
    const struct dir_partition *p = ptree_iter_get(&it, NULL);
    if (p == NULL) {
        ptree_seek(&v->partitions, slice_of(NULL, 0), &it);
        p = ptree_iter_get(&it, NULL);
    }
    return p;
}

static void make_split(struct command *k, Cadastre__Command *message, const struct dir_partition *p)
{
    uint8_t bytes[DIR_ROUTING_KEY_MAX + 1];
    struct slice start = dir_partition_start(p);
    Cadastre__Split body;
    cadastre__split__init(&body);
    memcpy(bytes, start.data, start.len);
    bytes[start.len] = (uint8_t)rnd(256);
    ProtobufCBinaryData at = {start.len + (start.len < 40), bytes};
    body.partition = p->id;
    body.at = &at;
    body.n_at = 1;
    body.has_expect_epoch = rnd(2) == 0;
    body.expect_epoch = p->epoch;
    message->body_case = CADASTRE__COMMAND__BODY_SPLIT;
    message->split = &body;
    pack(k, message);
}

static void make_merge(struct command *k, Cadastre__Command *message, const struct dir_view *v)
{
    const struct dir_partition *p = any_partition(v);
    const struct dir_keyspace *ks = view_keyspace_by_id(v, p->keyspace);
    Cadastre__Merge body;
    cadastre__merge__init(&body);
    body.partition = p->id;
    body.with = p->id + 1;
    if (ks != NULL && !p->end_open) {
        body.with = view_route(v, ks, dir_partition_end(p))->id;
    }
    message->body_case = CADASTRE__COMMAND__BODY_MERGE;
    message->merge = &body;
    pack(k, message);
}

static void make_reassign(struct command *k, Cadastre__Command *message, const struct dir_view *v)
{
    static char names[][4] = {"n1", "n2", "n3", "n4"};
    static char nobody[] = "";
    const struct dir_partition *p = any_partition(v);
    Cadastre__Reassign body;
    cadastre__reassign__init(&body);
    body.partition = p->id;
    body.from = nobody;
    body.to = names[rnd(4)];
    message->body_case = CADASTRE__COMMAND__BODY_REASSIGN;
    message->reassign = &body;
    pack(k, message);
}

static void make_node(struct command *k, Cadastre__Command *message)
{
    char name[8], address[32];
    Cadastre__NodePut body;
    cadastre__node_put__init(&body);
    (void)snprintf(name, sizeof name, "n%u", 1 + (unsigned)rnd(4));
    (void)snprintf(address, sizeof address, "h%u:%u", (unsigned)rnd(1000), (unsigned)rnd(60000));
    body.name = name;
    body.address = address;
    body.is_static = true;
    message->body_case = CADASTRE__COMMAND__BODY_NODE_PUT;
    message->node_put = &body;
    pack(k, message);
}

static void make_keyspace(struct command *k, Cadastre__Command *message)
{
    char name[8];
    uint8_t empty_policy[] = "{}";
    Cadastre__KeyspaceCreate body;
    cadastre__keyspace_create__init(&body);
    (void)snprintf(name, sizeof name, "k%u", (unsigned)rnd(3));
    body.name = name;
    body.scheme = rnd(2) == 0 ? DIR_SCHEME_RANGE : DIR_SCHEME_HASH;
    body.key_encoding = DIR_ENCODING_HEX;
    body.authority = DIR_AUTHORITY_EXCLUSIVE;
    body.partitions = body.scheme == DIR_SCHEME_HASH ? 1 + rnd(16) : 0;
    body.policy = (ProtobufCBinaryData){2, empty_policy};
    message->body_case = CADASTRE__COMMAND__BODY_KEYSPACE_CREATE;
    message->keyspace_create = &body;
    pack(k, message);
}

static void make_delete(struct command *k, Cadastre__Command *message, const struct dir_view *v)
{
    Cadastre__KeyspaceDelete body;
    cadastre__keyspace_delete__init(&body);
    body.keyspace = any_partition(v)->keyspace;
    message->body_case = CADASTRE__COMMAND__BODY_KEYSPACE_DELETE;
    message->keyspace_delete = &body;
    pack(k, message);
}

static struct command *new_command(const struct dir_view *v)
{
    ASSERT(command_count < COMMANDS_MAX);
    struct command *k = &commands[command_count++];
    uint64_t kind = rnd(100);
    Cadastre__Command message;
    cadastre__command__init(&message);
    *k = (struct command){.open = true};
    (void)snprintf(k->key, sizeof k->key, "c%u", command_count);
    if (kind < 15 || v->nodes.count == 0) {
        make_node(k, &message);
    } else if (kind < 22 || any_partition(v) == NULL) {
        make_keyspace(k, &message);
    } else if (kind < 60) {
        make_split(k, &message, any_partition(v));
    } else if (kind < 80) {
        make_merge(k, &message, v);
    } else if (kind < 98) {
        make_reassign(k, &message, v);
    } else {
        make_delete(k, &message, v);
    }
    return k;
}

static void on_outcome(struct raft_apply *request, int status, void *result)
{
    struct attempt *a = request->data;
    struct command *k = a->command;
    struct dir_result *r = result;
    if (status == 0) {
        if (!k->acknowledged) {
            k->acknowledged = true;
            k->revision = r->revision;
            k->outcome = r->err.code;
            acknowledged++;
            refused += r->err.code != ERR_OK;
        } else if (k->revision != r->revision || k->outcome != r->err.code) {
            FAIL("%s had two outcomes: %s at %" PRIu64 ", %s at %" PRIu64, k->key,
                 err_slug(k->outcome), k->revision, err_slug(r->err.code), r->revision);
        }
        replays += r->replayed;
        k->open = false;
        result_unref(r);
    }
    mem_free(a);
}

static void send_to(unsigned i, struct command *k)
{
    struct raft *r = machines[i].raft;
    uint32_t len = (uint32_t)k->len;
    struct raft_buffer b = {.len = (sizeof len + k->len + 7) & ~(size_t)7};
    struct attempt *a = mem_zalloc(sizeof *a);
    b.base = raft_calloc(1, b.len);
    memcpy(b.base, &len, sizeof len);
    memcpy((uint8_t *)b.base + sizeof len, k->packed, k->len);
    a->command = k;
    a->request.data = a;
    k->sent = sim_now(sim);
    k->tries++;
    if (raft_apply(r, &a->request, &b, 1, on_outcome) != 0) {
        raft_free(b.base);
        mem_free(a);
    }
}

static bool leads(unsigned i)
{
    return machines[i].alive && raft_state(machines[i].raft) == RAFT_LEADER;
}

static void clients_act(void)
{
    for (unsigned c = 0; c < CLIENTS; c++) {
        unsigned i = (unsigned)rnd(server_count);
        if (!leads(i)) {
            continue;
        }
        if (client[c] != NULL && !client[c]->open) {
            client[c] = NULL;
        }
        if (client[c] == NULL && command_count < COMMANDS_MAX) {
            client[c] = new_command(directory_state(machines[i].directory));
            send_to(i, client[c]);
        } else if (client[c] != NULL &&
                   (sim_now(sim) > client[c]->sent + RETRY_MS || rnd(8) == 0)) {
            send_to(i, client[c]); /* the same key again, perhaps while the first is on its way */
        }
    }
}

/* --- faults --- */

static void split_network(uint64_t side)
{
    for (unsigned i = 0; i < server_count; i++) {
        for (unsigned j = 0; j < server_count; j++) {
            if (i != j) {
                sim_link(sim, i, j, ((side >> i) & 1) == ((side >> j) & 1));
            }
        }
    }
}

static void crash(unsigned i, uint64_t down_ms)
{
    if (machines[i].alive) {
        machines[i].alive =
            false; /* its raft and directory are forgotten, as a process's memory is */
        machines[i].restart_at = sim_now(sim) + down_ms;
        sim_crash(sim, i);
        crashes++;
    }
}

static void inject(void)
{
    static const unsigned disk_ms[] = {1, 5, 30, 200}, network_ms[] = {1, 5, 20, 100};
    uint64_t what = rnd(100);
    unsigned i = (unsigned)rnd(server_count), j = (unsigned)rnd(server_count);
    if (what < 12) {
        split_network(rnd(UINT64_C(1) << server_count));
    } else if (what < 24 && i != j) {
        sim_link(sim, i, j, rnd(2) == 0);
    } else if (what < 44) {
        split_network(0);
    } else if (what < 52) {
        sim_disk_latency(sim, i, disk_ms[rnd(4)]);
    } else if (what < 60) {
        sim_net_latency(sim, i, network_ms[rnd(4)]);
    } else if (what < 66) {
        sim_snapshot_latency(sim, i, disk_ms[rnd(4)]);
    } else if (what < 76) {
        crash(i, 10 + rnd(2000));
    } else if (what < 80) {
        sim_pause(sim, i, sim_now(sim) + rnd(3000));
    } else if (what < 82) {
        sim_fail_write(sim, i);
    }
}

/* --- one seed --- */

static void boot(struct machine *m, const struct raft_configuration *founders)
{
    struct guard_options options;
    char address[2] = {(char)('1' + m->i), '\0'};
    guard_options_default(&options);
    options.fatal = on_fatal;
    *m = (struct machine){.i = m->i, .directory = directory_new()};
    m->raft = mem_zalloc(sizeof *m->raft);
    m->io = mem_zalloc(sizeof *m->io);
    m->fsm = (struct raft_fsm){
        .version = 1, .data = m, .apply = on_apply, .snapshot = on_snapshot, .restore = on_restore};
    sim_boot(sim, m->i, m->io);
    int rv = raft_init(m->raft, m->io, &m->fsm, m->i + 1, address);
    ASSERT(rv == 0);
    raft_set_election_timeout(m->raft, 1000);
    raft_set_heartbeat_timeout(m->raft, 100);
    raft_set_install_snapshot_timeout(m->raft, 3000);
    raft_set_pre_vote(m->raft, true);
    raft_set_snapshot_threshold(m->raft, 40);
    raft_set_snapshot_trailing(m->raft, 20);
    (void)guard_install(m->raft, m->io, &options);
    if (founders != NULL) {
        rv = raft_bootstrap(m->raft, founders);
        ASSERT(rv == 0);
    }
    rv = raft_start(m->raft);
    ASSERT(rv == 0);
    m->alive = true;
}

static void set_up(unsigned n)
{
    struct raft_configuration founders;
    sim = sim_new(&rng);
    server_count = n;
    raft_configuration_init(&founders);
    for (unsigned i = 0; i < n; i++) {
        char address[2] = {(char)('1' + i), '\0'};
        int rv = raft_configuration_add(&founders, i + 1, address, RAFT_VOTER);
        ASSERT(rv == 0);
        machines[i].i = i;
    }
    for (unsigned i = 0; i < n; i++) {
        boot(&machines[i], &founders);
    }
    raft_configuration_close(&founders);
}

static void restart_due(void)
{
    for (unsigned i = 0; i < server_count; i++) {
        if (!machines[i].alive && machines[i].restart_at <= sim_now(sim)) {
            boot(&machines[i], NULL);
        }
    }
}

static void run_for(uint64_t ms)
{
    uint64_t until = sim_now(sim) + ms;
    static unsigned node; /* a longjmp leaves locals undefined */
    while (sim_now(sim) < until && failure[0] == '\0') {
        restart_due();
        node = SIM_NODES_MAX;
        if (setjmp(fatal_escape) != 0) {
            crash(node, 500);
            continue;
        }
        (void)sim_step(sim, until, &node);
    }
}

static bool converged(void)
{
    for (unsigned i = 0; i < server_count; i++) {
        if (!machines[i].alive || machines[i].applied != machines[0].applied) {
            return false;
        }
    }
    for (unsigned c = 0; c < CLIENTS; c++) {
        if (client[c] != NULL && client[c]->open) {
            return false;
        }
    }
    return true;
}

static void heal(void)
{
    split_network(0);
    for (unsigned i = 0; i < server_count; i++) {
        sim_disk_latency(sim, i, 1);
        sim_net_latency(sim, i, 1);
        sim_snapshot_latency(sim, i, 1);
    }
    uint64_t until = sim_now(sim) + HEAL_MS;
    do {
        run_for(100);
        unsigned i = (unsigned)rnd(server_count);
        for (unsigned c = 0; c < CLIENTS; c++) {
            if (client[c] != NULL && client[c]->open && leads(i)) {
                send_to(i, client[c]);
            }
        }
    } while (!converged() && sim_now(sim) < until && failure[0] == '\0');
    run_for(500);
    if (failure[0] == '\0' && !converged()) {
        FAIL("not converged after healing");
    }
}

static void report_violation(void *arg, const char *line)
{
    FAIL("server %u: %s", *(const unsigned *)arg, line);
}

/* Every acknowledged command is known to every server with the outcome that its client was told. */
static void verify(void)
{
    for (unsigned i = 0; i < server_count && failure[0] == '\0'; i++) {
        const struct dir_view *v = directory_state(machines[i].directory);
        (void)dir_check(v, report_violation, &i, 1);
        for (unsigned k = 0; k < command_count; k++) {
            struct command *c = &commands[k];
            if (!c->acknowledged) {
                continue;
            }
            struct dir_result *r = directory_lookup(v, "sim", c->key, NULL);
            if (r == NULL || r->revision != c->revision || r->err.code != c->outcome) {
                FAIL("server %u lost %s, acknowledged at %" PRIu64, i, c->key, c->revision);
            }
            result_unref(r);
        }
    }
    if (failure[0] == '\0' && acknowledged < ACKNOWLEDGED_LEAST) {
        FAIL("void: only %u commands acknowledged", acknowledged);
    }
}

struct outcome {
    unsigned acknowledged, refused, replays, restored, crashes;
    char failure[sizeof failure];
};

static void run_seed(uint64_t seed, struct outcome *ret)
{
    rng.state = seed * 7919 + 1;
    set_up(seed % 4 == 0 ? 5 : 3);
    for (unsigned step = 0; step < STEPS && failure[0] == '\0'; step++) {
        inject();
        for (unsigned burst = 0; burst < 4; burst++) {
            clients_act();
            run_for(1 + rnd(rnd(6) == 0 ? 600 : 30));
        }
    }
    heal();
    verify();
    *ret = (struct outcome){acknowledged, refused, replays, restored, crashes, ""};
    memcpy(ret->failure, failure, sizeof failure);
}

static bool run_in_child(uint64_t seed, struct outcome *ret)
{
    int fds[2];
    int status = 0;
    memset(ret, 0, sizeof *ret);
    int rv = pipe(fds);
    ASSERT(rv == 0);
    pid_t pid = fork();
    ASSERT(pid >= 0);
    if (pid == 0) {
        (void)alarm(SEED_SECONDS);
        run_seed(seed, ret);
        ssize_t n = write(fds[1], ret, sizeof *ret);
        _exit(n == (ssize_t)sizeof *ret ? 0 : 9);
    }
    (void)close(fds[1]);
    ssize_t n = read(fds[0], ret, sizeof *ret);
    (void)close(fds[0]);
    (void)waitpid(pid, &status, 0);
    if (n != (ssize_t)sizeof *ret || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        (void)snprintf(ret->failure, sizeof ret->failure, "the child ended with status %d", status);
    }
    return ret->failure[0] == '\0';
}

static void replicas_agree_over_all_seeds(void)
{
    uint64_t from = 1, to = 1 + SEEDS_DEFAULT;
    const char *range = getenv("SIM_SEEDS");
    if (range != NULL) {
        char first[24] = "";
        const char *colon = strchr(range, ':');
        ASSERT(colon != NULL && (size_t)(colon - range) < sizeof first);
        memcpy(first, range, (size_t)(colon - range));
        ASSERT(parse_u64(first, UINT64_MAX, &from) && parse_u64(colon + 1, UINT64_MAX, &to));
    }
    struct outcome total = {0};
    for (uint64_t seed = from; seed < to; seed++) {
        struct outcome o;
        tap_note("SIM_SEEDS=%" PRIu64 ":%" PRIu64, seed, seed + 1);
        if (!CHECK(run_in_child(seed, &o))) {
            (void)printf("# seed %" PRIu64 ": %s\n", seed, o.failure);
        }
        total.acknowledged += o.acknowledged;
        total.refused += o.refused;
        total.replays += o.replays;
        total.restored += o.restored;
        total.crashes += o.crashes;
    }
    (void)printf(
        "# seeds %" PRIu64 ":%" PRIu64 ": %u acknowledged (%u of them refusals), %u replays, "
        "%u snapshots restored, %u crashes\n",
        from, to, total.acknowledged, total.refused, total.replays, total.restored, total.crashes);
    tap_note("%s", "");
    CHECK(total.refused > 0);
    CHECK(total.replays > 0);
    CHECK(total.crashes > 0);
    CHECK(total.restored > 0 || to - from < 50);
}

int main(void)
{
    RUN(replicas_agree_over_all_seeds);
    return tap_done();
}
