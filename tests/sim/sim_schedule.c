/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/sim_schedule.h"

#include "base/assert.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct run {
    struct cluster *c;
    struct tap_rand rand;
    const struct schedule_options *options;
    struct schedule_result result;
};

static unsigned below(struct run *r, unsigned n)
{
    return (unsigned)tap_rand_below(&r->rand, n);
}

static bool has(const struct run *r, enum schedule_class class)
{
    return (r->options->classes & (unsigned)class) != 0;
}

static unsigned nodes(const struct run *r)
{
    return has(r, CLASS_MEMBER) ? SIM_NODES_MAX : r->options->servers;
}

static unsigned any_leader(struct run *r)
{
    unsigned start = below(r, nodes(r));
    for (unsigned i = 0; i < nodes(r); i++) {
        unsigned node = (start + i) % nodes(r);
        if (cluster_leads(r->c, node)) {
            return node;
        }
    }
    return SIM_NODES_MAX;
}

/* --- faults --- */

static void part(struct run *r)
{
    unsigned side = below(r, 1u << nodes(r));
    for (unsigned i = 0; i < nodes(r); i++) {
        for (unsigned k = 0; k < nodes(r); k++) {
            sim_link(r->c->sim, i, k, ((side >> i) & 1) == ((side >> k) & 1));
        }
    }
    r->result.cuts++;
}

static void heal(struct run *r)
{
    for (unsigned i = 0; i < nodes(r); i++) {
        for (unsigned k = 0; k < nodes(r); k++) {
            sim_link(r->c->sim, i, k, true);
        }
    }
}

static void isolate_or_rejoin(struct run *r)
{
    unsigned leader = any_leader(r);
    bool up = leader == SIM_NODES_MAX || below(r, 3) == 0;
    unsigned node = up || below(r, 3) == 0 ? below(r, nodes(r)) : leader;
    for (unsigned k = 0; k < nodes(r); k++) {
        sim_link(r->c->sim, node, k, up);
        sim_link(r->c->sim, k, node, up);
    }
    r->result.cuts += up ? 0 : 1;
}

static void net_fault(struct run *r)
{
    static const unsigned latencies[] = {1, 5, 15, 60, 200};
    unsigned a = below(r, nodes(r));
    switch (below(r, 6)) {
    case 0:
        heal(r);
        break;
    case 1:
    case 2:
        isolate_or_rejoin(r);
        break;
    case 3:
        sim_link(r->c->sim, a, below(r, nodes(r)), below(r, 2) == 0);
        r->result.cuts++;
        break;
    case 4:
        sim_net_latency(r->c->sim, a, latencies[below(r, 5)]);
        break;
    default:
        sim_pause(r->c->sim, a, sim_now(r->c->sim) + below(r, 2500));
        r->result.pauses++;
        break;
    }
}

static void disk_fault(struct run *r)
{
    static const unsigned latencies[] = {1, 5, 10, 30, 100, 1500};
    sim_disk_latency(r->c->sim, below(r, nodes(r)), latencies[below(r, 6)]);
    if (has(r, CLASS_SNAPSHOT)) {
        /* Sometimes longer than a leader waits for an installation (3 s here). */
        unsigned ms = below(r, 8) == 0 ? 4000 : latencies[below(r, 6)];
        sim_snapshot_latency(r->c->sim, below(r, nodes(r)), ms);
    }
}

static void crash_fault(struct run *r)
{
    unsigned node = below(r, 2) == 0 ? any_leader(r) : below(r, nodes(r));
    if (node == SIM_NODES_MAX) {
        return;
    }
    /* A write that fails stops a guarded server; bare libraft goes on and loses its log (L4). */
    if (below(r, 4) == 0 && (r->options->measures & GUARD_FAIL_STOP) != 0) {
        sim_fail_write(r->c->sim, node);
    } else {
        cluster_crash(r->c, node, below(r, 3) == 0 ? below(r, 6000) : below(r, 800));
    }
}

static void propose_some(struct run *r)
{
    for (unsigned i = 0; i < nodes(r); i++) {
        if (cluster_leads(r->c, i) && below(r, 2) == 0) {
            for (unsigned n = 1 + below(r, 3); n > 0; n--) {
                cluster_propose(r->c, i);
            }
        }
    }
}

static void change_members(struct run *r)
{
    if (below(r, 4) == 0) {
        unsigned leader = any_leader(r);
        if (leader != SIM_NODES_MAX) {
            cluster_transfer(r->c, leader);
        }
        return;
    }
    if (cluster_change_members(r->c) && below(r, 2) == 0) {
        /* The worst moment to lose a leader: its change is in its own log, perhaps in one more. */
        if (has(r, CLASS_CRASH) && below(r, 2) == 0) {
            cluster_crash(r->c, r->c->change.leader, below(r, 3000));
        } else {
            part(r);
        }
    }
}

static void act(struct run *r)
{
    unsigned a = below(r, 100);
    if (below(r, 8) == 0) {
        part(r);
    }
    if (a < 14) {
        net_fault(r);
    } else if (a < 20) {
        disk_fault(r);
    } else if (a < 26 && has(r, CLASS_CRASH)) {
        crash_fault(r);
    } else if (a < 40 && has(r, CLASS_MEMBER)) {
        change_members(r);
    } else if (a < 80) {
        propose_some(r);
    }
}

static void at_election(struct run *r, unsigned leader)
{
    if (below(r, 2) == 0) {
        for (unsigned n = 1 + below(r, 3); n > 0; n--) {
            cluster_propose(r->c, leader);
        }
        part(r);
    } else if (has(r, CLASS_CRASH) && below(r, 4) == 0) {
        cluster_propose(r->c, leader);
        cluster_crash(r->c, below(r, 2) == 0 ? leader : below(r, nodes(r)), below(r, 1500));
    }
}

static void run_steps(struct run *r)
{
    for (unsigned k = 0; k < r->options->steps && r->c->violation[0] == '\0'; k++) {
        act(r);
        uint64_t ms = below(r, 4) != 0 ? below(r, 60) + 1 : below(r, 900) + 1;
        uint64_t until = sim_now(r->c->sim) + ms;
        unsigned became;
        while (r->c->violation[0] == '\0' && cluster_step(r->c, until, &became)) {
            if (became != SIM_NODES_MAX) {
                at_election(r, became);
            }
        }
    }
}

static void run_child(uint64_t seed, const struct schedule_options *options, int fd)
{
    static struct run r;
    r.rand.state = seed * 0x9E3779B97F4A7C15u + 1;
    r.options = options;
    struct cluster_options cluster = {
        .servers = options->servers,
        .measures = options->measures,
        .snapshot_threshold = 1u << 30,
        .snapshot_trailing = 1u << 20,
        .batch_entries_max = 1 + below(&r, 8),
        .careless = below(&r, 2) == 0,
    };
    if (has(&r, CLASS_SNAPSHOT)) {
        cluster.snapshot_threshold = 3 + below(&r, 20);
        cluster.snapshot_trailing = 1 + below(&r, 12);
    }
    alarm(60);
    if (options->quiet && freopen("/dev/null", "w", stderr) == NULL) {
        _exit(1);
    }
    r.c = cluster_new(&r.rand, &cluster);
    run_steps(&r);
    cluster_settle(r.c);
    r.result.outcome = r.c->violation[0] != '\0' ? SCHEDULE_VIOLATED : SCHEDULE_HELD;
    memcpy(r.result.violation, r.c->violation, sizeof r.result.violation);
    r.result.counts = r.c->counts;
    r.result.sim = *sim_counts(r.c->sim);
    r.result.guard = r.c->guard;
    if (write(fd, &r.result, sizeof r.result) != (ssize_t)sizeof r.result) {
        _exit(1);
    }
}

struct schedule_result schedule_run(uint64_t seed, const struct schedule_options *options)
{
    struct schedule_result result = {0};
    int fds[2];
    int rv = pipe(fds);
    ASSERT(rv == 0);
    (void)fflush(NULL);
    pid_t pid = fork();
    ASSERT(pid >= 0);
    if (pid == 0) {
        (void)close(fds[0]);
        run_child(seed, options, fds[1]);
        _exit(0);
    }
    (void)close(fds[1]);
    ssize_t got = read(fds[0], &result, sizeof result);
    (void)close(fds[0]);
    int status = 0;
    (void)waitpid(pid, &status, 0);
    if (got != (ssize_t)sizeof result) {
        result.outcome = SCHEDULE_CRASHED;
        (void)snprintf(result.violation, sizeof result.violation, "the process died: %s %d",
                       WIFSIGNALED(status) ? "signal" : "exit code",
                       WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    }
    return result;
}

static void add_words(void *sum, const void *from, size_t size)
{
    for (size_t i = 0; i < size; i += sizeof(uint64_t)) {
        uint64_t a;
        uint64_t b;
        memcpy(&a, (char *)sum + i, sizeof a);
        memcpy(&b, (const char *)from + i, sizeof b);
        a += b;
        memcpy((char *)sum + i, &a, sizeof a);
    }
}

void schedule_add(struct schedule_result *sum, const struct schedule_result *from)
{
    add_words(&sum->counts, &from->counts, sizeof sum->counts);
    add_words(&sum->sim, &from->sim, sizeof sum->sim);
    add_words(&sum->guard, &from->guard, sizeof sum->guard);
    sum->cuts += from->cuts;
    sum->pauses += from->pauses;
}

bool schedule_valid(const struct schedule_result *sum,
                    const struct schedule_options *options,
                    uint64_t runs)
{
    const struct cluster_counts *c = &sum->counts;
    const struct sim_counts *s = &sum->sim;
    const struct guard_stats *g = &sum->guard;
    printf("# acked %" PRIu64 " refused %" PRIu64 " elections %" PRIu64 " cuts %" PRIu64
           " pauses %" PRIu64 " delivered %" PRIu64 " dropped %" PRIu64 "\n",
           c->acked, c->refused, c->elections, sum->cuts, sum->pauses, s->delivered, s->dropped);
    printf("# crashes %" PRIu64 " restarts %" PRIu64 " writes lost %" PRIu64 " failed %" PRIu64
           " fatal %" PRIu64 " appends %" PRIu64 " truncations %" PRIu64 "\n",
           c->crashes, c->restarts, s->writes_lost, s->writes_failed, c->fatals, s->appends,
           s->truncations);
    printf("# snapshots %" PRIu64 " installs %" PRIu64 " restores %" PRIu64 " changes %" PRIu64
           " transfers %" PRIu64 "\n",
           s->snapshots, s->installs, c->restores, c->changes, c->transfers);
    printf("# guard: acks clamped %" PRIu64 " commits held %" PRIu64 " barriers %" PRIu64
           " batches capped %" PRIu64 " ticks held %" PRIu64 " timeouts dropped %" PRIu64
           " entries deferred %" PRIu64 " snapshots held %" PRIu64 "\n",
           g->acks_clamped, g->commits_held, g->barriers, g->batches_capped, g->ticks_held,
           g->timeouts_dropped, g->entries_deferred, g->snapshots_held);
    unsigned classes = options->classes;
    bool net = c->acked >= 10 * runs && c->elections > runs && sum->cuts > 0 && s->dropped > 0 &&
               s->truncations > 0;
    bool crash = (classes & CLASS_CRASH) == 0 || (c->restarts > 0 && s->writes_lost > 0);
    bool snapshot = (classes & CLASS_SNAPSHOT) == 0 || (s->snapshots > 0 && s->installs > 0);
    bool member = (classes & CLASS_MEMBER) == 0 || (c->changes > 0 && c->transfers > 0);
    return net && crash && snapshot && member;
}
