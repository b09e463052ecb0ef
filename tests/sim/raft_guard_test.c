/* SPDX-License-Identifier: Apache-2.0 */
/* Each fault of libraft 0.15.0 that the guard has a measure for, once without that measure (it must
 * happen, or the test would show nothing) and once with it. All other measures stay on in both, but
 * where said. Each run is a process.
 *
 * Shown on libraft's own fixture, in virtual time: L1, L2, L3, L5 (the cap), L7, L8, L9, L10, L25,
 * and L4, for which the backend's append is wrapped so that a write fails after it was accepted
 * (the fixture can only refuse one). On the real raft_uv: raft_guard_disk_test.c. L19 to L24 were
 * found by random schedules and are shown by them: raft_fuzz_test.c. */
#include "base/assert.h"
#include "base/mem.h"
#include "raft/guard.h"
#include "tests/harness/tap.h"
#include "tests/sim/forked.h"

#include <raft/fixture.h>
#include <string.h>

/* --- servers on the fixture --- */

enum { SERVERS_MAX = 5, APPLIED_MAX = 4096, FOREVER = 1000000 };

struct machine {
    unsigned server;
    struct raft_fsm fsm;
    uint64_t at[APPLIED_MAX]; /* by index */
    uint64_t last;
    struct guard *guard;
    struct raft_io *io;
};

struct world {
    struct raft_fixture f;
    struct machine machines[SERVERS_MAX];
    bool diverged;
};

/* One for each process, as libraft's callbacks of the fixture carry nothing. */
static struct world w;

static struct raft *raft_of(unsigned i)
{
    return raft_fixture_get(&w.f, i);
}

static int machine_apply(struct raft_fsm *fsm, const struct raft_buffer *buf, void **result)
{
    struct machine *m = fsm->data;
    raft_index index = raft_last_applied(raft_of(m->server)) + 1;
    ASSERT(index < APPLIED_MAX);
    memcpy(&m->at[index], buf->base, sizeof m->at[index]);
    m->last = m->at[index];
    for (unsigned i = 0; i < w.f.n; i++) {
        uint64_t other = w.machines[i].at[index];
        w.diverged = w.diverged || (other != 0 && other != m->at[index]);
    }
    *result = NULL;
    return 0;
}

static int machine_snapshot(struct raft_fsm *fsm, struct raft_buffer *bufs[], unsigned *n_bufs)
{
    (void)fsm;
    *bufs = raft_malloc(sizeof **bufs);
    (*bufs)[0] = (struct raft_buffer){raft_calloc(1, 8), 8};
    *n_bufs = 1;
    return 0;
}

static int machine_restore(struct raft_fsm *fsm, struct raft_buffer *buf)
{
    (void)fsm;
    raft_free(buf->base);
    return 0;
}

static void setup(unsigned n, unsigned measures)
{
    memset(&w, 0, sizeof w); /* the fixture does not initialise itself */
    int rv = raft_fixture_initialize(&w.f);
    for (unsigned i = 0; i < n; i++) {
        struct machine *m = &w.machines[i];
        m->server = i;
        m->fsm = (struct raft_fsm){.version = 1,
                                   .data = m,
                                   .apply = machine_apply,
                                   .snapshot = machine_snapshot,
                                   .restore = machine_restore};
        w.f.servers[i].io.version = 2;
        rv = rv != 0 ? rv : raft_fixture_grow(&w.f, &m->fsm);
        m->io = &w.f.servers[i].io;
        struct guard_options options;
        guard_options_default(&options);
        options.measures = measures;
        options.batch_entries_max = 10;
        options.fatal = fatal_exit;
        m->guard = guard_install(raft_of(i), m->io, &options);
    }
    struct raft_configuration conf;
    rv = rv != 0 ? rv : raft_fixture_configuration(&w.f, n, &conf);
    rv = rv != 0 ? rv : raft_fixture_bootstrap(&w.f, &conf);
    raft_configuration_close(&conf);
    rv = rv != 0 ? rv : raft_fixture_start(&w.f);
    ASSERT(rv == 0);
    raft_fixture_elect(&w.f, 0);
    raft_fixture_step_until_elapsed(&w.f, 300);
}

static void link_set(unsigned from, unsigned to, bool up)
{
    if (up) {
        raft_fixture_desaturate(&w.f, from, to);
    } else {
        raft_fixture_saturate(&w.f, from, to);
    }
}

static void cut(unsigned i)
{
    for (unsigned k = 0; k < w.f.n; k++) {
        if (k != i) {
            link_set(i, k, false);
            link_set(k, i, false);
        }
    }
}

static void heal(unsigned i)
{
    for (unsigned k = 0; k < w.f.n; k++) {
        if (k != i) {
            link_set(i, k, true);
            link_set(k, i, true);
        }
    }
}

/* A timer for the next and, if it is a follower, the present wait. */
static void timer(unsigned i, unsigned ms)
{
    raft_fixture_set_randomized_election_timeout(&w.f, i, ms);
    if (raft_state(raft_of(i)) == RAFT_FOLLOWER) {
        raft_of(i)->follower_state.randomized_election_timeout = ms;
    }
}

static void step(unsigned ms)
{
    raft_fixture_step_until_elapsed(&w.f, ms);
}

static bool leads(unsigned i, unsigned max_ms)
{
    return raft_fixture_step_until_state_is(&w.f, i, RAFT_LEADER, max_ms);
}

/* The old leader notices that it is alone, and keeps still. */
static void depose(unsigned i)
{
    raft_fixture_step_until_state_is(&w.f, i, RAFT_FOLLOWER, 5000);
    timer(i, FOREVER);
}

static void propose(unsigned i, uint64_t command)
{
    struct raft_buffer buf = {raft_malloc(sizeof command), sizeof command};
    memcpy(buf.base, &command, sizeof command);
    struct raft_apply *req = mem_zalloc(sizeof *req);
    int rv = raft_apply(raft_of(i), req, &buf, 1, NULL);
    ASSERT(rv == 0);
}

struct wait_applied {
    unsigned server;
    uint64_t command;
};

static bool has_applied(struct raft_fixture *f, void *arg)
{
    const struct wait_applied *want = arg;
    (void)f;
    return w.machines[want->server].last == want->command;
}

static bool applies(unsigned i, uint64_t command, unsigned max_ms)
{
    struct wait_applied want = {i, command};
    return raft_fixture_step_until(&w.f, has_applied, &want, max_ms);
}

static enum outcome divergence(void)
{
    return w.diverged ? VIOLATED : HELD;
}

static void shown(run_fn fn, unsigned measure, int without)
{
    CHECK_U64(run_forked(fn, GUARD_ALL & ~measure), without);
    CHECK_U64(run_forked(fn, GUARD_ALL), HELD);
}

/* --- L1 --- */

/* Three servers. A deposed leader with leftovers comes back and answers the new leader's first,
 * empty message with its last stored index; the new leader counts that as an acknowledgement of
 * entries that it has alone. */
static enum outcome leftovers_acknowledged(unsigned measures)
{
    setup(3, measures);
    cut(0);
    for (uint64_t c = 70; c < 74; c++) {
        propose(0, c);
    }
    timer(2, 1000);
    timer(1, 1300);
    depose(0);
    if (!leads(2, 20000)) {
        return UNEXPECTED;
    }
    heal(0);
    link_set(2, 1, false);
    link_set(1, 2, false);
    propose(2, 88);
    (void)applies(2, 88, 60);
    cut(2);
    link_set(0, 1, true);
    link_set(1, 0, true);
    timer(0, 1000);
    timer(1, 1300);
    if (!leads(0, 20000)) {
        return UNEXPECTED;
    }
    propose(0, 99);
    step(2000);
    return divergence();
}

static void l1_leftovers_are_not_acknowledged(void)
{
    shown(leftovers_acknowledged, GUARD_ACK_CLAMP, VIOLATED);
}

/* --- L7 --- */

/* Five servers. A write for the old leader is still in flight when the follower learns of the new
 * one; done, it is acknowledged to the new leader, who takes it for its own entries. */
static enum outcome late_write_acknowledged(unsigned measures)
{
    setup(5, measures);
    for (unsigned k = 2; k < 5; k++) {
        link_set(0, k, false);
        link_set(k, 0, false);
    }
    raft_fixture_set_disk_latency(&w.f, 1, 3500);
    propose(0, 77);
    propose(0, 78);
    step(60);
    cut(0);
    timer(0, FOREVER);
    timer(1, FOREVER);
    timer(2, 1000);
    timer(3, 1300);
    timer(4, 1350);
    if (!leads(2, 20000)) {
        return UNEXPECTED;
    }
    while (raft_of(1)->follower_state.current_leader.id != 3) {
        raft_fixture_step(&w.f);
    }
    link_set(2, 1, false); /* the new leader's entries never come; the answers still go */
    link_set(2, 4, false);
    propose(2, 88);
    (void)applies(2, 88, 5000);
    cut(2);
    cut(3);
    raft_fixture_set_disk_latency(&w.f, 1, 10);
    link_set(0, 1, true);
    link_set(1, 0, true);
    link_set(0, 4, true);
    link_set(4, 0, true);
    timer(1, 1000);
    timer(4, 1350);
    if (!leads(1, 20000)) {
        return UNEXPECTED;
    }
    propose(1, 99);
    step(3000);
    return divergence();
}

static void l7_a_late_write_is_not_acknowledged_to_the_next_leader(void)
{
    shown(late_write_acknowledged, GUARD_ACK_CLAMP, VIOLATED);
}

/* --- L2: figure 8 of the Raft paper, with three servers --- */

static enum outcome figure_8(unsigned measures)
{
    setup(3, measures);
    cut(0);
    propose(0, 77);
    timer(2, 1000);
    timer(1, 1300);
    depose(0);
    if (!leads(2, 10000)) {
        return UNEXPECTED;
    }
    cut(2);
    if ((measures & GUARD_BARRIER) == 0) {
        propose(2, 88);
    }
    depose(2);
    heal(0);
    cut(2);
    timer(0, 1000);
    timer(1, 1300);
    if (!leads(0, 20000)) {
        return UNEXPECTED;
    }
    (void)applies(0, 77, 2000);
    cut(0);
    heal(2);
    link_set(2, 0, false);
    link_set(0, 2, false);
    timer(2, 1000);
    timer(1, 1300);
    timer(0, FOREVER);
    (void)leads(2, 30000); /* only if entries of an old term were committed by counting can it win,
                              and overwrite */
    (void)applies(2, 88, 3000);
    return divergence();
}

/* The barrier alone does not forbid counting, it only makes it rare: both are needed, and both are
 * off here. */
static void l2_an_old_terms_entry_does_not_commit_by_counting(void)
{
    shown(figure_8, GUARD_COMMIT | GUARD_BARRIER, VIOLATED);
    CHECK_U64(run_forked(figure_8, GUARD_ALL & ~(unsigned)GUARD_BARRIER), HELD);
}

/* A new leader has an entry of an old term that a majority holds. Without an entry of its own term
 * it may never commit it. */
static enum outcome old_entry_waits(unsigned measures)
{
    setup(3, measures);
    link_set(1, 0, false); /* acknowledgements are lost */
    link_set(2, 0, false);
    propose(0, 77);
    step(100);
    cut(0);
    timer(0, FOREVER);
    timer(1, 1000);
    timer(2, 2000);
    if (!leads(1, 10000)) {
        return UNEXPECTED;
    }
    return applies(1, 77, 5000) ? HELD : VIOLATED;
}

static void l2_a_new_leader_commits_what_it_found(void)
{
    shown(old_entry_waits, GUARD_BARRIER, VIOLATED);
}

/* --- L3 --- */

/* A steady load, and followers whose disk is slower than the leader's: nothing commits until the
 * load ends. */
static enum outcome commit_starves(unsigned measures)
{
    setup(3, measures);
    step(500);
    raft_fixture_set_disk_latency(&w.f, 0, 1);
    raft_fixture_set_disk_latency(&w.f, 1, 50);
    raft_fixture_set_disk_latency(&w.f, 2, 50);
    for (unsigned i = 0; i < 3; i++) {
        raft_fixture_set_network_latency(&w.f, i, 5);
    }
    raft_index before = raft_of(0)->commit_index;
    for (uint64_t c = 1; c <= 200; c++) {
        propose(0, c);
        step(10);
    }
    return raft_of(0)->commit_index - before < 100 ? VIOLATED : HELD;
}

static void l3_commits_do_not_wait_for_the_load_to_end(void)
{
    shown(commit_starves, GUARD_COMMIT, VIOLATED);
}

/* --- L4 --- */

/* Takes one write for server 0 and reports, 10 ms later, that it failed. */
static struct {
    int (*append)(struct raft_io *io,
                  struct raft_io_append *req,
                  const struct raft_entry entries[],
                  unsigned n,
                  raft_io_append_cb cb);
    struct raft_io_append *failing;
    raft_time at;
    bool armed;
} broken;

static int broken_append(struct raft_io *io,
                         struct raft_io_append *req,
                         const struct raft_entry entries[],
                         unsigned n,
                         raft_io_append_cb cb)
{
    if (!broken.armed) {
        return broken.append(io, req, entries, n, cb);
    }
    broken.armed = false;
    req->cb = cb;
    broken.failing = req;
    broken.at = raft_fixture_time(&w.f) + 10;
    return 0;
}

static void broken_hook(struct raft_fixture *f, struct raft_fixture_event *event)
{
    (void)event;
    /* The fixture compares its leader's log with a copy, and dies of a log that got shorter. */
    memset(&f->log, 0, sizeof f->log);
    if (broken.failing != NULL && raft_fixture_time(f) >= broken.at) {
        struct raft_io_append *req = broken.failing;
        broken.failing = NULL;
        req->cb(req, RAFT_IOERR);
    }
}

/* The leader drops the entry that it could not write, though the followers have it, and gives its
 * place to another. */
static enum outcome write_fails(unsigned measures)
{
    setup(3, measures);
    broken.append = w.machines[0].io->append;
    w.machines[0].io->append = broken_append;
    raft_fixture_hook(&w.f, broken_hook);
    broken.armed = true;
    propose(0, 77);
    step(200);
    propose(0, 88);
    step(2000);
    for (unsigned i = 1; i < 3; i++) {
        if (w.machines[i].last != w.machines[0].last) {
            return VIOLATED;
        }
    }
    return divergence();
}

static void l4_a_failed_write_is_fatal(void)
{
    int without = run_forked(write_fails, GUARD_ALL & ~(unsigned)GUARD_FAIL_STOP);
    CHECK(without == VIOLATED ||
          without == CRASHED); /* it diverges or crashes, by luck of the layout */
    tap_note("without: %d", without);
    CHECK_U64(run_forked(write_fails, GUARD_ALL), FATAL);
}

static int refusing_append(struct raft_io *io,
                           struct raft_io_append *req,
                           const struct raft_entry entries[],
                           unsigned n,
                           raft_io_append_cb cb)
{
    (void)io;
    (void)req;
    (void)entries;
    (void)n;
    (void)cb;
    return RAFT_IOERR;
}

static enum outcome write_refused(unsigned measures)
{
    setup(3, measures);
    w.machines[1].io->append = refusing_append;
    propose(0, 77);
    step(2000);
    return raft_state(raft_of(1)) == RAFT_UNAVAILABLE ? VIOLATED : HELD;
}

static void l4_a_refused_write_is_fatal(void)
{
    CHECK_U64(run_forked(write_refused, GUARD_ALL & ~(unsigned)GUARD_FAIL_STOP), VIOLATED);
    CHECK_U64(run_forked(write_refused, GUARD_ALL), FATAL);
}

/* --- L5, the cap (10 entries here) --- */

static int (*plain_send)(struct raft_io *io,
                         struct raft_io_send *req,
                         const struct raft_message *message,
                         raft_io_send_cb cb);
static unsigned largest_batch;

static int counting_send(struct raft_io *io,
                         struct raft_io_send *req,
                         const struct raft_message *message,
                         raft_io_send_cb cb)
{
    if (message->type == RAFT_IO_APPEND_ENTRIES &&
        message->append_entries.n_entries > largest_batch) {
        largest_batch = message->append_entries.n_entries;
    }
    return plain_send(io, req, message, cb);
}

static enum outcome large_batch(unsigned measures)
{
    setup(3, measures);
    plain_send = w.machines[0].io->send;
    w.machines[0].io->send = counting_send;
    cut(2);
    for (uint64_t c = 1; c <= 100; c++) {
        propose(0, c);
        step(5);
    }
    heal(2);
    if (!applies(2, 100, 10000)) {
        return UNEXPECTED; /* cut messages must still bring everything */
    }
    return largest_batch > 10 ? VIOLATED : HELD;
}

static void l5_messages_are_capped_and_bring_everything(void)
{
    shown(large_batch, GUARD_BATCH_CAP, VIOLATED);
}

/* --- L8 --- */

static bool stood_too_early;

static int watching_send(struct raft_io *io,
                         struct raft_io_send *req,
                         const struct raft_message *message,
                         raft_io_send_cb cb)
{
    const struct raft *r = raft_of(1);
    if (message->type == RAFT_IO_REQUEST_VOTE &&
        message->request_vote.last_log_index > r->last_stored) {
        stood_too_early = true;
    }
    return plain_send(io, req, message, cb);
}

/* A follower's disk stalls for longer than the election timeout, its leader goes: it stands for
 * election with a log that it has not stored. */
static enum outcome candidate_while_writing(unsigned measures)
{
    setup(3, measures);
    plain_send = w.machines[1].io->send;
    w.machines[1].io->send = watching_send;
    raft_fixture_set_disk_latency(&w.f, 1, 4000);
    propose(0, 77);
    step(60);
    cut(0);
    timer(0, FOREVER);
    timer(1, 1000);
    timer(2, 1500);
    raft_fixture_set_disk_latency(&w.f, 1, 10);
    step(10000);
    if (stood_too_early) {
        return VIOLATED;
    }
    return raft_state(raft_of(1)) == RAFT_LEADER || raft_state(raft_of(2)) == RAFT_LEADER
               ? HELD
               : UNEXPECTED;
}

static void l8_no_candidacy_while_writing(void)
{
    shown(candidate_while_writing, GUARD_NO_CANDIDACY, VIOLATED);
}

/* The same by invitation. The fixture's leader is made to send TimeoutNow by a transfer. */
static enum outcome invited_while_writing(unsigned measures)
{
    static struct raft_transfer transfer;
    setup(3, measures);
    plain_send = w.machines[1].io->send;
    w.machines[1].io->send = watching_send;
    raft_fixture_set_disk_latency(&w.f, 1, 400);
    propose(0, 77);
    step(20);
    int rv = raft_transfer(raft_of(0), &transfer, 2, NULL);
    ASSERT(rv == 0);
    step(3000);
    return stood_too_early ? VIOLATED : HELD;
}

static void l8_no_candidacy_by_invitation_while_writing(void)
{
    shown(invited_while_writing, GUARD_NO_CANDIDACY, VIOLATED);
}

/* --- L9 --- */

/* Server 0's snapshot stays unwritten for as long as wanted. */
static struct {
    struct raft_io_snapshot_put *held;
    int (*truncate)(struct raft_io *io, raft_index index);
    bool overlapped, truncated;
} slow;

static int slow_put(struct raft_io *io,
                    unsigned trailing,
                    struct raft_io_snapshot_put *req,
                    const struct raft_snapshot *snapshot,
                    raft_io_snapshot_put_cb cb)
{
    (void)io;
    (void)trailing;
    (void)snapshot;
    req->cb = cb;
    slow.held = req;
    return 0;
}

static int slow_truncate(struct raft_io *io, raft_index index)
{
    slow.overlapped = slow.overlapped || slow.held != NULL;
    slow.truncated = true;
    return slow.truncate(io, index);
}

/* A deposed leader is writing a snapshot when the new one's entries make it truncate its log. */
static enum outcome truncate_during_snapshot(unsigned measures)
{
    setup(3, measures);
    raft_set_snapshot_threshold(raft_of(0), 5);
    slow.truncate = w.machines[0].io->truncate;
    w.machines[0].io->snapshot_put = slow_put;
    w.machines[0].io->truncate = slow_truncate;
    for (uint64_t c = 1; c <= 8; c++) {
        propose(0, c);
        step(100);
    }
    if (slow.held == NULL) {
        return UNEXPECTED;
    }
    cut(0);
    propose(0, 77);
    timer(1, 1000);
    timer(2, 1300);
    depose(0);
    if (!leads(1, 20000)) {
        return UNEXPECTED;
    }
    propose(1, 88);
    heal(0);
    step(2000);
    if (slow.overlapped) {
        return VIOLATED;
    }
    struct raft_io_snapshot_put *req = slow.held;
    slow.held = NULL;
    req->cb(req, 0);
    return applies(0, 88, 3000) && slow.truncated ? divergence() : UNEXPECTED;
}

static void l9_the_log_is_not_truncated_during_a_snapshot(void)
{
    shown(truncate_during_snapshot, GUARD_TRUNCATE, VIOLATED);
}

/* --- L10 --- */

/* An isolated leader adds a server; the others go on without it. Its change must be undone, but the
 * configuration before it has gone from its log into a snapshot, and libraft looks for it there. */
static enum outcome change_rolled_back(unsigned measures)
{
    static struct raft_change change;
    setup(3, measures);
    raft_set_snapshot_threshold(raft_of(0), 5);
    raft_set_snapshot_trailing(raft_of(0), 2);
    for (uint64_t c = 1; c <= 10; c++) {
        propose(0, c);
        step(100);
    }
    cut(0);
    int rv = raft_add(raft_of(0), &change, 9, "9", NULL);
    ASSERT(rv == 0);
    timer(1, 1000);
    timer(2, 1300);
    depose(0);
    if (!leads(1, 20000)) {
        return UNEXPECTED;
    }
    propose(1, 88);
    step(500);
    heal(0);
    if (!applies(0, 88, 5000)) {
        return UNEXPECTED;
    }
    return raft_of(0)->configuration.n == 3 ? divergence() : VIOLATED;
}

static void l10_a_change_is_undone_without_its_predecessor_in_the_log(void)
{
    shown(change_rolled_back, GUARD_CONFIG, CRASHED);
}

/* --- L25 --- */

/* A transfer whose invitation is late, then one to another server: both stand in one term, and the
 * old leader votes for both, as one of them is whom it last wanted. The fixture itself aborts on
 * two leaders in a term. */
static enum outcome two_votes(unsigned measures)
{
    static struct raft_transfer transfers[2];
    setup(3, measures);
    timer(1, FOREVER);
    timer(2, FOREVER);
    raft_fixture_set_network_latency(&w.f, 0, 1200);
    int rv = raft_transfer(raft_of(0), &transfers[0], 2, NULL);
    ASSERT(rv == 0);
    while (raft_fixture_n_send(&w.f, 0, RAFT_IO_TIMEOUT_NOW) == 0) {
        raft_fixture_step(&w.f);
    }
    raft_fixture_set_network_latency(&w.f, 0, 15);
    /* The first was given up meanwhile; its invitation comes 5 ms before the second. */
    step(1190);
    rv = raft_transfer(raft_of(0), &transfers[1], 3, NULL);
    ASSERT(rv == 0);
    step(2000);
    unsigned leader = raft_fixture_leader_index(&w.f);
    return leader == 1 || leader == 2 ? HELD : UNEXPECTED;
}

static void l25_one_vote_in_a_term(void)
{
    shown(two_votes, GUARD_ONE_VOTE, CRASHED);
}

/* --- GUARD_TELL --- */

/* A command takes 40 ms of virtual time here, and a heartbeat comes each 100 ms. */
static enum outcome heard_late(unsigned measures)
{
    setup(3, measures);
    for (uint64_t c = 1; c <= 3; c++) {
        propose(0, c);
        if (!applies(1, c, 90) || !applies(2, c, 10)) {
            return VIOLATED;
        }
    }
    step(1000);
    return guard_stats(w.machines[0].guard)->commits_told <= 10 ? HELD : UNEXPECTED; /* once each */
}

static void followers_hear_of_a_commit_at_once(void)
{
    CHECK_U64(run_forked(heard_late, GUARD_ALL), VIOLATED);
    CHECK_U64(run_forked(heard_late, GUARD_ALL | GUARD_TELL), HELD);
}

/* --- GUARD_PARK --- */

static bool has_caught_up(struct raft_fixture *f, void *arg)
{
    (void)arg;
    return raft_last_applied(raft_fixture_get(f, 2)) == raft_last_applied(raft_fixture_get(f, 0));
}

/* A follower is still storing a snapshot of its own when the leader, whose log has gone on without
 * it, sends one. That is there long before the leader would send the next, in 30 s. */
static enum outcome snapshot_while_taking_one(unsigned measures)
{
    setup(3, measures);
    raft_set_snapshot_threshold(raft_of(0), 5);
    raft_set_snapshot_trailing(raft_of(0), 2);
    raft_set_snapshot_threshold(raft_of(2), 5);
    timer(2, FOREVER);
    struct raft_io *io = w.machines[2].io;
    int (*put)(struct raft_io * io, unsigned trailing, struct raft_io_snapshot_put *req,
               const struct raft_snapshot *snapshot, raft_io_snapshot_put_cb cb) = io->snapshot_put;
    io->snapshot_put = slow_put;
    for (uint64_t c = 1; c <= 30; c++) {
        if (c == 10) {
            cut(2);
        }
        propose(0, c);
        step(100);
    }
    if (slow.held == NULL) {
        return UNEXPECTED;
    }
    io->snapshot_put = put;
    heal(2);
    step(1000);
    if (raft_fixture_n_send(&w.f, 0, RAFT_IO_INSTALL_SNAPSHOT) == 0) {
        return UNEXPECTED;
    }
    struct raft_io_snapshot_put *req = slow.held;
    slow.held = NULL;
    req->cb(req, 0);
    return raft_fixture_step_until(&w.f, has_caught_up, NULL, 5000) ? divergence() : VIOLATED;
}

static void a_snapshot_that_comes_while_one_is_taken_is_not_lost(void)
{
    CHECK_U64(run_forked(snapshot_while_taking_one, GUARD_ALL), VIOLATED);
    CHECK_U64(run_forked(snapshot_while_taking_one, GUARD_ALL | GUARD_PARK), HELD);
}

int main(void)
{
    RUN(l1_leftovers_are_not_acknowledged);
    RUN(l2_an_old_terms_entry_does_not_commit_by_counting);
    RUN(l2_a_new_leader_commits_what_it_found);
    RUN(l3_commits_do_not_wait_for_the_load_to_end);
    RUN(l4_a_failed_write_is_fatal);
    RUN(l4_a_refused_write_is_fatal);
    RUN(l5_messages_are_capped_and_bring_everything);
    RUN(l7_a_late_write_is_not_acknowledged_to_the_next_leader);
    RUN(l8_no_candidacy_while_writing);
    RUN(l8_no_candidacy_by_invitation_while_writing);
    RUN(l9_the_log_is_not_truncated_during_a_snapshot);
    RUN(l10_a_change_is_undone_without_its_predecessor_in_the_log);
    RUN(l25_one_vote_in_a_term);
    RUN(followers_hear_of_a_commit_at_once);
    RUN(a_snapshot_that_comes_while_one_is_taken_is_not_lost);
    return tap_done();
}
