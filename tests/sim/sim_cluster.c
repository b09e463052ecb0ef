/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/sim_cluster.h"

#include "base/assert.h"
#include "base/hash.h"
#include "base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { SETTLE_MS = 120000, SETTLE_ACKS = 5, ELECTION_MS = 1000, HEARTBEAT_MS = 100 };

/* Where a fatal guard leaves libraft for good; the process it stands for is dead then. */
static jmp_buf fatal_escape;

static void violate(struct cluster *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void violate(struct cluster *c, const char *fmt, ...)
{
    if (c->violation[0] != '\0') {
        return;
    }
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(c->violation, sizeof c->violation, fmt, ap);
    va_end(ap);
}

static struct cluster_entry *entry_at(struct cluster *c, raft_index index)
{
    ASSERT(index < CLUSTER_INDEX_MAX); /* a schedule stays far below */
    return &c->entries[index];
}

/* --- the machine --- */

static void apply_one(struct cluster_server *s, raft_index index, uint64_t command)
{
    struct cluster *c = s->cluster;
    struct cluster_entry *e = entry_at(c, index);
    if (e->command == 0) {
        e->command = command;
    } else if (e->command != command) {
        violate(c, "server %u applied %llu at %llu, where %llu was applied", s->number + 1,
                (unsigned long long)command, index, (unsigned long long)e->command);
    }
    s->applied = mem_realloc(s->applied, (s->applied_n + 1) * sizeof *s->applied);
    s->applied[s->applied_n++] = (struct cluster_applied){index, command};
}

static int machine_apply(struct raft_fsm *fsm, const struct raft_buffer *buf, void **result)
{
    struct cluster_server *s = fsm->data;
    uint64_t command;
    ASSERT(buf->len == sizeof command);
    memcpy(&command, buf->base, sizeof command);
    apply_one(s, raft_last_applied(s->raft) + 1, command);
    *result = NULL;
    return 0;
}

static int machine_snapshot(struct raft_fsm *fsm, struct raft_buffer *bufs[], unsigned *n_bufs)
{
    const struct cluster_server *s = fsm->data;
    size_t len = (s->applied_n + 1) * sizeof *s->applied;
    struct cluster_applied *copy = raft_calloc(1, len);
    *bufs = raft_malloc(sizeof **bufs);
    ASSERT(copy != NULL && *bufs != NULL);
    copy[0].command = s->applied_n;
    if (s->applied_n > 0) {
        memcpy(copy + 1, s->applied, s->applied_n * sizeof *s->applied);
    }
    (*bufs)[0] = (struct raft_buffer){copy, len};
    *n_bufs = 1;
    return 0;
}

static int machine_restore(struct raft_fsm *fsm, struct raft_buffer *buf)
{
    struct cluster_server *s = fsm->data;
    const struct cluster_applied *from = buf->base;
    s->applied_n = 0;
    for (uint64_t i = 1; i <= from[0].command; i++) {
        apply_one(s, from[i].index, from[i].command);
    }
    s->cluster->counts.restores++;
    raft_free(buf->base);
    return 0;
}

/* --- the checks after each event --- */

static const struct raft_entry *log_entry(const struct raft_log *l, raft_index index)
{
    size_t n = l->front <= l->back ? l->back - l->front : l->size - l->front + l->back;
    if (index <= l->offset || index > l->offset + n) {
        return NULL;
    }
    return &l->entries[(l->front + (size_t)(index - 1 - l->offset)) % l->size];
}

static void check_committed(struct cluster_server *s)
{
    struct cluster *c = s->cluster;
    const struct raft *r = s->raft;
    if (r->commit_index < s->seen_commit) {
        violate(c, "server %u: the commit index went back from %llu to %llu", s->number + 1,
                s->seen_commit, r->commit_index);
    }
    if (r->last_applied > r->commit_index) {
        violate(c, "server %u: applied %llu, committed %llu", s->number + 1, r->last_applied,
                r->commit_index);
    }
    for (raft_index i = s->seen_commit + 1; i <= r->commit_index; i++) {
        const struct raft_entry *e = log_entry(&r->log, i);
        if (e == NULL) {
            continue; /* in a snapshot */
        }
        /* A barrier's bytes are whatever was in memory. */
        uint64_t hash = e->type == RAFT_BARRIER ? 0 : hash_xxh3_64(e->buf.base, e->buf.len);
        hash += e->type;
        struct cluster_entry *known = entry_at(c, i);
        if (known->term == 0) {
            known->term = e->term;
            known->hash = hash;
        } else if (known->term != e->term || known->hash != hash) {
            violate(c,
                    "server %u committed an entry of term %llu at %llu, where one of term %llu was",
                    s->number + 1, e->term, i, known->term);
        }
    }
    s->seen_commit = r->commit_index;
}

static void check_leader(struct cluster_server *s)
{
    struct cluster *c = s->cluster;
    const struct raft *r = s->raft;
    if (r->state == RAFT_UNAVAILABLE) {
        violate(c, "server %u became unavailable: %s", s->number + 1, r->errmsg);
    }
    if (r->state == RAFT_LEADER) {
        ASSERT(r->current_term < CLUSTER_TERM_MAX);
        uint8_t *leader = &c->leaders[r->current_term];
        if (*leader == 0) {
            *leader = (uint8_t)(s->number + 1);
            c->counts.elections++;
        } else if (*leader != s->number + 1) {
            violate(c, "servers %u and %u both lead in term %llu", *leader, s->number + 1,
                    r->current_term);
        }
    }
}

static void check_disk(struct cluster_server *s)
{
    struct cluster *c = s->cluster;
    const struct raft *r = s->raft;
    if (!sim_disk_quiet(c->sim, s->number) || r->snapshot.put.data != NULL) {
        return;
    }
    raft_index last = raft_last_index(s->raft);
    const struct raft_entry *e = log_entry(&r->log, last);
    raft_term term = e != NULL ? e->term : r->log.snapshot.last_term;
    if (last != sim_disk_last(c->sim, s->number) ||
        (last > 0 && term != sim_disk_last_term(c->sim, s->number))) {
        violate(c, "server %u: the log ends at %llu (term %llu), on disk at %llu (term %llu)",
                s->number + 1, last, term, sim_disk_last(c->sim, s->number),
                sim_disk_last_term(c->sim, s->number));
    } else if (r->last_stored != last) {
        violate(c, "server %u: %llu is stored, and libraft says %llu", s->number + 1, last,
                r->last_stored);
    }
}

static void check(struct cluster_server *s)
{
    check_leader(s);
    check_committed(s);
    check_disk(s);
    const struct cluster *c = s->cluster;
    if (c->options.measures != 0 && sim_breach(c->sim) != NULL) {
        violate(s->cluster, "%s", sim_breach(c->sim));
    }
}

/* --- life and death --- */

static void on_fatal(void *ctx, struct raft *r, const char *why, int status)
{
    struct cluster *c = ctx;
    (void)r;
    (void)why;
    (void)status;
    c->counts.fatals++;
    longjmp(fatal_escape, 1);
}

static void add_stats(struct cluster *c, const struct guard *g)
{
    const struct guard_stats *from = guard_stats(g);
    c->guard.acks_clamped += from->acks_clamped;
    c->guard.commits_held += from->commits_held;
    c->guard.barriers += from->barriers;
    c->guard.appends_failed += from->appends_failed;
    c->guard.batches_capped += from->batches_capped;
    c->guard.ticks_held += from->ticks_held;
    c->guard.timeouts_dropped += from->timeouts_dropped;
    c->guard.entries_deferred += from->entries_deferred;
    c->guard.snapshots_held += from->snapshots_held;
}

static void boot(struct cluster_server *s, const struct raft_configuration *founders)
{
    struct cluster *c = s->cluster;
    s->raft = mem_zalloc(sizeof *s->raft);
    s->io = mem_zalloc(sizeof *s->io);
    s->applied_n = 0;
    s->seen_commit = 0;
    s->seen_state = RAFT_FOLLOWER;
    s->fsm = (struct raft_fsm){.version = 1,
                               .data = s,
                               .apply = machine_apply,
                               .snapshot = machine_snapshot,
                               .restore = machine_restore};
    sim_boot(c->sim, s->number, s->io);
    char address[2] = {(char)('1' + s->number), '\0'};
    int rv = raft_init(s->raft, s->io, &s->fsm, s->number + 1, address);
    ASSERT(rv == 0);
    raft_set_election_timeout(s->raft, ELECTION_MS);
    raft_set_heartbeat_timeout(s->raft, HEARTBEAT_MS);
    raft_set_install_snapshot_timeout(s->raft, 3000);
    raft_set_pre_vote(s->raft, true);
    raft_set_snapshot_threshold(s->raft, c->options.snapshot_threshold);
    raft_set_snapshot_trailing(s->raft, c->options.snapshot_trailing);
    raft_set_max_catch_up_rounds(s->raft, 100);
    raft_set_max_catch_up_round_duration(s->raft, 5000);
    if (c->options.measures != 0) {
        struct guard_options options;
        guard_options_default(&options);
        options.measures = c->options.measures;
        options.batch_entries_max = c->options.batch_entries_max;
        options.ctx = c;
        options.fatal = on_fatal;
        s->guard = guard_install(s->raft, s->io, &options);
    }
    if (founders != NULL) {
        rv = raft_bootstrap(s->raft, founders);
        ASSERT(rv == 0);
    }
    rv = raft_start(s->raft);
    ASSERT(rv == 0);
    s->alive = true;
    s->used = true;
}

void cluster_crash(struct cluster *c, unsigned server, uint64_t down_ms)
{
    struct cluster_server *s = &c->servers[server];
    if (!s->alive) {
        return;
    }
    s->alive = false;
    s->restart_at = sim_now(c->sim) + down_ms;
    if (s->guard != NULL) {
        add_stats(c, s->guard);
        s->guard = NULL;
    }
    sim_crash(c->sim, server);
    c->counts.crashes++;
    if (c->change.active && c->change.leader == server) {
        c->change.active = false;
    }
}

static void restart_due(struct cluster *c)
{
    for (unsigned i = 0; i < SIM_NODES_MAX; i++) {
        struct cluster_server *s = &c->servers[i];
        if (s->alive && s->retired) {
            cluster_crash(c, i, 0);
        }
        if (s->used && !s->alive && !s->retired && s->restart_at <= sim_now(c->sim)) {
            boot(s, NULL);
            c->counts.restarts++;
        }
    }
}

struct cluster *cluster_new(struct tap_rand *rand, const struct cluster_options *options)
{
    struct cluster *c = mem_zalloc(sizeof *c);
    c->sim = sim_new(rand);
    c->rand = rand;
    c->options = *options;
    struct raft_configuration founders;
    raft_configuration_init(&founders);
    for (unsigned i = 0; i < options->servers; i++) {
        char address[2] = {(char)('1' + i), '\0'};
        int rv = raft_configuration_add(&founders, i + 1, address, RAFT_VOTER);
        ASSERT(rv == 0);
    }
    for (unsigned i = 0; i < SIM_NODES_MAX; i++) {
        c->servers[i].cluster = c;
        c->servers[i].number = i;
    }
    for (unsigned i = 0; i < options->servers; i++) {
        boot(&c->servers[i], &founders);
    }
    raft_configuration_close(&founders);
    return c;
}

bool cluster_step(struct cluster *c, uint64_t until, unsigned *ret_became_leader)
{
    *ret_became_leader = SIM_NODES_MAX;
    restart_due(c);
    /* Static, as a longjmp leaves locals undefined. */
    static unsigned node;
    node = SIM_NODES_MAX;
    if (setjmp(fatal_escape) != 0) {
        cluster_crash(c, node, 500);
        return true;
    }
    bool more = sim_step(c->sim, until, &node);
    if (!more || node == SIM_NODES_MAX) {
        return more;
    }
    struct cluster_server *s = &c->servers[node];
    check(s);
    int state = raft_state(s->raft);
    if (state == RAFT_LEADER && s->seen_state != RAFT_LEADER) {
        *ret_became_leader = node;
    }
    s->seen_state = state;
    return true;
}

/* --- requests --- */

bool cluster_leads(const struct cluster *c, unsigned server)
{
    const struct cluster_server *s = &c->servers[server];
    return s->alive && raft_state(s->raft) == RAFT_LEADER;
}

struct proposal {
    struct raft_apply req;
    struct cluster_server *server;
    uint64_t command;
};

static void proposed(struct raft_apply *req, int status, void *result)
{
    struct proposal *p = (struct proposal *)(void *)req;
    struct cluster *c = p->server->cluster;
    (void)result;
    if (status == 0) {
        c->acked = mem_realloc(c->acked, (c->acked_n + 1) * sizeof *c->acked);
        c->acked[c->acked_n++] = (struct cluster_acked){req->index, p->command};
        c->counts.acked++;
        if (entry_at(c, req->index)->command != p->command) {
            violate(c, "server %u acknowledged %llu at %llu, where another was applied",
                    p->server->number + 1, (unsigned long long)p->command, req->index);
        }
    } else {
        c->counts.refused++;
    }
    mem_free(p);
}

void cluster_propose(struct cluster *c, unsigned server)
{
    if (!cluster_leads(c, server)) {
        return;
    }
    static struct cluster_server *s; /* as in cluster_step */
    s = &c->servers[server];
    if (setjmp(fatal_escape) != 0) {
        cluster_crash(c, s->number, 500);
        return;
    }
    struct proposal *p = mem_zalloc(sizeof *p);
    p->server = s;
    p->command = ++c->last_command;
    struct raft_buffer buf = {raft_malloc(sizeof p->command), sizeof p->command};
    ASSERT(buf.base != NULL);
    memcpy(buf.base, &p->command, sizeof p->command);
    if (raft_apply(s->raft, &p->req, &buf, 1, proposed) != 0) {
        raft_free(buf.base);
        mem_free(p);
    }
}

void cluster_transfer(struct cluster *c, unsigned server)
{
    if (!cluster_leads(c, server)) {
        return;
    }
    /* Never freed: libraft may use it after its callback (L11). */
    struct raft_transfer *req = mem_zalloc(sizeof *req);
    if (raft_transfer(c->servers[server].raft, req, 0, NULL) == 0) {
        c->counts.transfers++;
    }
}

/* --- membership --- */

static raft_term term_at(const struct raft *r, raft_index index)
{
    const struct raft_entry *e = log_entry(&r->log, index);
    return e != NULL ? e->term : 0;
}

static bool may_change(const struct cluster *c, unsigned leader)
{
    const struct raft *r = c->servers[leader].raft;
    if (term_at(r, r->commit_index) != r->current_term) {
        return false;
    }
    if (c->options.careless) {
        return true;
    }
    for (unsigned i = 0; i < r->configuration.n; i++) {
        unsigned number = (unsigned)r->configuration.servers[i].id - 1;
        if (r->configuration.servers[i].role == RAFT_VOTER &&
            (!c->servers[number].alive || !sim_linked(c->sim, leader, number))) {
            return false;
        }
    }
    return true;
}

static void changed(struct raft_change *req, int status)
{
    struct cluster *c = req->data;
    if (status == 0) {
        c->counts.changes++;
        if (c->change.removes) {
            /* The operator stops a removed server for good; not from inside its own callback. */
            c->servers[c->change.subject].retired = true;
        }
    }
    c->change.active = false;
    mem_free(req);
}

static unsigned spare_node(const struct cluster *c)
{
    unsigned i = 0;
    while (i < SIM_NODES_MAX && c->servers[i].used) {
        i++;
    }
    return i;
}

static int add_server(struct cluster *c, struct raft *r, struct raft_change *req)
{
    unsigned i = spare_node(c);
    if (i == SIM_NODES_MAX) {
        return RAFT_TOOMANY;
    }
    boot(&c->servers[i], NULL);
    char address[2] = {(char)('1' + i), '\0'};
    c->change.subject = i;
    return raft_add(r, req, i + 1, address, changed);
}

static unsigned voter_count(const struct raft *r)
{
    unsigned n = 0;
    for (unsigned i = 0; i < r->configuration.n; i++) {
        n += r->configuration.servers[i].role == RAFT_VOTER ? 1 : 0;
    }
    return n;
}

/* Moves a random server one step along spare - standby - voter, or back, or out. */
static int move_server(struct cluster *c, struct raft *r, struct raft_change *req)
{
    unsigned i = (unsigned)tap_rand_below(c->rand, r->configuration.n);
    const struct raft_server *server = &r->configuration.servers[i];
    c->change.subject = (unsigned)server->id - 1;
    bool back = tap_rand_below(c->rand, 3) == 0;
    if (server->role == RAFT_VOTER) {
        if (voter_count(r) <= 2) {
            return RAFT_BADROLE;
        }
        if (back) {
            return raft_assign(r, req, server->id, RAFT_STANDBY, changed);
        }
        c->change.removes = true;
        return raft_remove(r, req, server->id, changed);
    }
    if (back) {
        c->change.removes = true;
        return raft_remove(r, req, server->id, changed);
    }
    int role = server->role == RAFT_SPARE ? RAFT_STANDBY : RAFT_VOTER;
    return raft_assign(r, req, server->id, role, changed);
}

bool cluster_change_members(struct cluster *c)
{
    unsigned leader = 0;
    while (leader < SIM_NODES_MAX && !cluster_leads(c, leader)) {
        leader++;
    }
    if (leader == SIM_NODES_MAX || c->change.active || !may_change(c, leader)) {
        return false;
    }
    struct raft *r = c->servers[leader].raft;
    struct raft_change *req = mem_zalloc(sizeof *req);
    req->data = c;
    c->change = (struct cluster_change){.active = true, .leader = leader};
    int rv = tap_rand_below(c->rand, 3) == 0 ? add_server(c, r, req) : move_server(c, r, req);
    if (rv != 0) {
        c->change.active = false;
        mem_free(req);
    }
    return rv == 0;
}

/* --- the end --- */

static void stop_faults(struct cluster *c)
{
    for (unsigned i = 0; i < SIM_NODES_MAX; i++) {
        for (unsigned k = 0; k < SIM_NODES_MAX; k++) {
            sim_link(c->sim, i, k, true);
        }
        sim_net_latency(c->sim, i, 5);
        sim_disk_latency(c->sim, i, 5);
        sim_snapshot_latency(c->sim, i, 20);
        sim_pause(c->sim, i, 0);
        c->servers[i].restart_at = 0;
    }
}

/* The one leader that all members follow, or SIM_NODES_MAX. */
static unsigned settled_leader(const struct cluster *c)
{
    unsigned leader = SIM_NODES_MAX;
    for (unsigned i = 0; i < SIM_NODES_MAX; i++) {
        if (cluster_leads(c, i)) {
            if (leader != SIM_NODES_MAX) {
                return SIM_NODES_MAX;
            }
            leader = i;
        }
    }
    return leader;
}

static bool converged(const struct cluster *c, unsigned leader)
{
    struct raft *r = c->servers[leader].raft;
    if (r->commit_index != raft_last_index(r) || r->last_applied != r->commit_index ||
        r->configuration_uncommitted_index != 0) {
        return false;
    }
    for (unsigned i = 0; i < r->configuration.n; i++) {
        const struct raft_server *member = &r->configuration.servers[i];
        const struct cluster_server *s = &c->servers[member->id - 1];
        if (member->role != RAFT_SPARE &&
            (!s->alive || raft_last_applied(s->raft) != r->last_applied)) {
            return false;
        }
    }
    return true;
}

static void check_history(struct cluster *c, const struct cluster_server *s)
{
    uint64_t *at = mem_zalloc(CLUSTER_INDEX_MAX * sizeof *at);
    for (size_t i = 0; i < s->applied_n; i++) {
        at[s->applied[i].index] = s->applied[i].command;
    }
    for (size_t i = 0; i < c->acked_n; i++) {
        if (at[c->acked[i].index] != c->acked[i].command) {
            violate(c, "server %u has lost command %llu, acknowledged at %llu", s->number + 1,
                    (unsigned long long)c->acked[i].command, c->acked[i].index);
        }
    }
    mem_free(at);
}

static void check_histories(struct cluster *c, unsigned leader)
{
    const struct raft *r = c->servers[leader].raft;
    for (unsigned i = 0; i < r->configuration.n; i++) {
        if (r->configuration.servers[i].role != RAFT_SPARE) {
            check_history(c, &c->servers[r->configuration.servers[i].id - 1]);
        }
    }
}

/* A removal's outcome may not have been told to the operator; the leader's configuration does tell
 * it. */
static void retire_strangers(struct cluster *c, unsigned leader)
{
    const struct raft *r = c->servers[leader].raft;
    if (r->configuration_uncommitted_index != 0) {
        return;
    }
    for (unsigned i = 0; i < SIM_NODES_MAX; i++) {
        bool member = false;
        for (unsigned k = 0; k < r->configuration.n; k++) {
            member = member || r->configuration.servers[k].id == i + 1;
        }
        if (!member && c->servers[i].alive) {
            c->servers[i].retired = true;
            cluster_crash(c, i, 0);
        }
    }
}

void cluster_settle(struct cluster *c)
{
    stop_faults(c);
    uint64_t deadline = sim_now(c->sim) + SETTLE_MS;
    uint64_t acked_before = c->counts.acked;
    while (sim_now(c->sim) < deadline && c->violation[0] == '\0') {
        uint64_t until = sim_now(c->sim) + 200;
        unsigned became;
        while (cluster_step(c, until, &became)) {
        }
        unsigned leader = settled_leader(c);
        if (leader == SIM_NODES_MAX) {
            continue;
        }
        retire_strangers(c, leader);
        if (c->counts.acked - acked_before < SETTLE_ACKS) {
            cluster_propose(c, leader);
        } else if (converged(c, leader)) {
            check_histories(c, leader);
            break;
        }
    }
    if (sim_now(c->sim) >= deadline) {
        violate(c, "the cluster did not settle in %d s", SETTLE_MS / 1000);
    }
    for (unsigned i = 0; i < SIM_NODES_MAX; i++) {
        if (c->servers[i].guard != NULL) {
            add_stats(c, c->servers[i].guard);
            c->servers[i].guard = NULL;
        }
    }
}
