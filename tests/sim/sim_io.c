/* SPDX-License-Identifier: Apache-2.0 */
/* Everything that happens is an event in one queue, ordered by time and then by the order of
 * asking. An event belongs to a node and to a run of its process (`run`), and is dropped when that
 * process has died. */
#include "tests/sim/sim_io.h"

#include "base/assert.h"
#include "base/hash.h"
#include "base/mem.h"
#include "tests/sim/sim_disk.h"

#include <string.h>

enum op_kind { OP_APPEND, OP_TRUNCATE, OP_INSTALL };

/* A write that was asked for. */
struct sim_op {
    enum op_kind kind;
    struct sim_op *next;
    uint64_t number;
    struct raft_io_append *append;
    struct raft_io_snapshot_put *put;
    struct sim_snapshot *snapshot;
    struct sim_entry *entries;
    unsigned n;
    raft_index index;
    bool fails;
};

/* A node's own snapshot being written. */
struct sim_put {
    struct raft_io_snapshot_put *req;
    struct sim_snapshot *snapshot;
    unsigned trailing;
    uint64_t after; /* the last write asked for before it */
};

enum event_kind { EV_TICK, EV_SENT, EV_DELIVER, EV_WRITTEN, EV_PUT, EV_GOT };

struct sim_event {
    uint64_t at, order, run;
    enum event_kind kind;
    unsigned node;
    unsigned from;
    struct raft_io_send *send;
    const struct raft_entry *sending; /* borrowed until `send` is called back */
    unsigned sending_n;
    uint64_t sending_hash;
    struct raft_io_snapshot_get *get;
    int status;
    struct raft_message message;
};

struct sim_node {
    struct sim *sim;
    unsigned number;
    char address[8];
    struct raft_io *io; /* NULL: no process */
    uint64_t run;
    raft_io_tick_cb tick;
    raft_io_recv_cb recv;
    unsigned tick_ms;
    uint64_t paused_until;
    struct sim_disk disk;
    struct sim_op *ops, **ops_tail;
    uint64_t op_number, op_done;
    uint64_t disk_free_at;
    struct sim_put *put;
    bool fail_next;
    bool failed; /* what comes after a failed write cannot be read again */
    unsigned net_ms, disk_ms, snapshot_ms;
};

struct sim {
    struct tap_rand *rand;
    uint64_t now, order;
    struct sim_event **heap;
    size_t heap_n, heap_capacity;
    struct sim_node nodes[SIM_NODES_MAX];
    bool down[SIM_NODES_MAX][SIM_NODES_MAX];
    uint64_t last_at[SIM_NODES_MAX][SIM_NODES_MAX];
    struct sim_counts counts;
    const char *breach;
};

static unsigned below(struct sim *s, unsigned n)
{
    return (unsigned)tap_rand_below(s->rand, n);
}

static unsigned around(struct sim *s, unsigned ms)
{
    return ms + below(s, ms + 1);
}

/* --- the queue of events: a binary heap --- */

static bool before(const struct sim_event *a, const struct sim_event *b)
{
    return a->at != b->at ? a->at < b->at : a->order < b->order;
}

static void heap_push(struct sim *s, struct sim_event *e)
{
    if (s->heap_n == s->heap_capacity) {
        s->heap_capacity = s->heap_capacity * 2 + 64;
        s->heap = mem_realloc(s->heap, s->heap_capacity * sizeof(struct sim_event *));
    }
    size_t i = s->heap_n++;
    while (i > 0 && before(e, s->heap[(i - 1) / 2])) {
        s->heap[i] = s->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    s->heap[i] = e;
}

static struct sim_event *heap_pop(struct sim *s)
{
    struct sim_event *top = s->heap[0];
    struct sim_event *last = s->heap[--s->heap_n];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= s->heap_n) {
            break;
        }
        if (child + 1 < s->heap_n && before(s->heap[child + 1], s->heap[child])) {
            child++;
        }
        if (before(last, s->heap[child])) {
            break;
        }
        s->heap[i] = s->heap[child];
        i = child;
    }
    s->heap[i] = last;
    return top;
}

static struct sim_event *post(struct sim_node *n, enum event_kind kind, uint64_t at)
{
    struct sim_event *e = mem_zalloc(sizeof *e);
    e->at = at;
    e->order = ++n->sim->order;
    e->kind = kind;
    e->node = n->number;
    e->run = n->run;
    heap_push(n->sim, e);
    return e;
}

/* --- raft_io: life, term, vote, time --- */

static int io_init(struct raft_io *io, raft_id id, const char *address)
{
    const struct sim_node *n = io->impl;
    (void)address;
    ASSERT(id == n->number + 1);
    return 0;
}

static int io_load(struct raft_io *io,
                   raft_term *term,
                   raft_id *voted_for,
                   struct raft_snapshot **snapshot,
                   raft_index *start_index,
                   struct raft_entry *entries[],
                   size_t *n_entries)
{
    const struct sim_node *n = io->impl;
    const struct sim_disk *d = &n->disk;
    *term = d->term;
    *voted_for = d->vote;
    *snapshot = d->snapshot != NULL ? sim_give_snapshot(d->snapshot) : NULL;
    *start_index = d->start;
    *n_entries = d->n;
    *entries = sim_disk_load(d);
    return 0;
}

static int io_start(struct raft_io *io, unsigned msecs, raft_io_tick_cb tick, raft_io_recv_cb recv)
{
    struct sim_node *n = io->impl;
    n->tick = tick;
    n->recv = recv;
    n->tick_ms = msecs;
    post(n, EV_TICK, n->sim->now + 1 + below(n->sim, msecs));
    return 0;
}

static int io_bootstrap(struct raft_io *io, const struct raft_configuration *conf)
{
    struct sim_node *n = io->impl;
    struct raft_buffer buf;
    int rv = raft_configuration_encode(conf, &buf);
    ASSERT(rv == 0 && n->disk.term == 0);
    struct sim_entry entry = {1, RAFT_CHANGE, buf.len, buf.base};
    sim_disk_append(&n->disk, &entry, 1);
    n->disk.term = 1;
    return 0;
}

static int io_set_term(struct raft_io *io, raft_term term)
{
    struct sim_node *n = io->impl;
    n->disk.term = term;
    n->disk.vote = 0;
    return 0;
}

static int io_set_vote(struct raft_io *io, raft_id id)
{
    struct sim_node *n = io->impl;
    n->disk.vote = id;
    return 0;
}

static raft_time io_time(struct raft_io *io)
{
    const struct sim_node *n = io->impl;
    return n->sim->now;
}

static int io_random(struct raft_io *io, int min, int max)
{
    const struct sim_node *n = io->impl;
    return min + (int)below(n->sim, (unsigned)(max - min));
}

/* --- raft_io: network --- */

static uint64_t hash_entries(const struct raft_entry *entries, unsigned n)
{
    uint64_t hash = n;
    for (unsigned i = 0; i < n; i++) {
        hash = hash * 31 + hash_xxh3_64(entries[i].buf.base, entries[i].buf.len);
    }
    return hash;
}

/* The bytes are written until now, from the sender's memory. */
static void sent(struct sim_node *n, struct sim_event *e)
{
    if (hash_entries(e->sending, e->sending_n) != e->sending_hash) {
        n->sim->breach = "entries changed while they were being sent";
    }
    if (e->send->cb != NULL) {
        e->send->cb(e->send, e->status);
    }
}

static int io_send(struct raft_io *io,
                   struct raft_io_send *req,
                   const struct raft_message *m,
                   raft_io_send_cb cb)
{
    struct sim_node *n = io->impl;
    struct sim *s = n->sim;
    if (m->server_id < 1 || m->server_id > SIM_NODES_MAX) {
        s->breach = "a message to nobody";
        return RAFT_NOCONNECTION;
    }
    struct sim_node *to = &s->nodes[m->server_id - 1];
    bool lost = to->io == NULL || s->down[n->number][to->number];
    req->cb = cb;
    struct sim_event *out = post(n, EV_SENT, s->now + below(s, n->net_ms + 1));
    out->send = req;
    out->status = lost && below(s, 2) == 0 ? RAFT_NOCONNECTION : 0;
    if (m->type == RAFT_IO_APPEND_ENTRIES) {
        out->sending = m->append_entries.entries;
        out->sending_n = m->append_entries.n_entries;
    }
    out->sending_hash = hash_entries(out->sending, out->sending_n);
    if (lost) {
        s->counts.dropped++;
        return 0;
    }
    uint64_t at = s->now + around(s, n->net_ms);
    at = at > s->last_at[n->number][to->number] ? at : s->last_at[n->number][to->number];
    s->last_at[n->number][to->number] = at;
    struct sim_event *e = post(to, EV_DELIVER, at);
    e->from = n->number;
    e->message = *m;
    if (m->type == RAFT_IO_APPEND_ENTRIES) {
        e->message.append_entries.entries =
            sim_copy_entries(m->append_entries.entries, m->append_entries.n_entries);
    } else if (m->type == RAFT_IO_INSTALL_SNAPSHOT) {
        const struct raft_install_snapshot *from = &m->install_snapshot;
        sim_copy_configuration(&from->conf, &e->message.install_snapshot.conf);
        e->message.install_snapshot.data.base = sim_raft_copy(from->data.base, from->data.len);
    }
    return 0;
}

static void drop_message(struct raft_message *m)
{
    if (m->type == RAFT_IO_APPEND_ENTRIES && m->append_entries.n_entries > 0) {
        raft_free(m->append_entries.entries[0].batch);
        raft_free(m->append_entries.entries);
    } else if (m->type == RAFT_IO_INSTALL_SNAPSHOT) {
        raft_configuration_close(&m->install_snapshot.conf);
        raft_free(m->install_snapshot.data.base);
    }
}

static void deliver(struct sim_node *n, struct sim_event *e)
{
    struct sim *s = n->sim;
    if (s->down[e->from][n->number]) {
        s->counts.dropped++;
        drop_message(&e->message);
        return;
    }
    s->counts.delivered++;
    e->message.server_id = e->from + 1;
    e->message.server_address = s->nodes[e->from].address;
    n->recv(n->io, &e->message);
}

/* --- raft_io: disk --- */

static void disk_apply(struct sim_disk *d, const struct sim_op *op)
{
    switch (op->kind) {
    case OP_APPEND:
        sim_disk_append(d, op->entries, op->n);
        break;
    case OP_TRUNCATE:
        sim_disk_truncate(d, op->index);
        break;
    case OP_INSTALL:
        sim_disk_install(d, op->snapshot);
        break;
    }
}

static struct sim_op *ask(struct sim_node *n, enum op_kind kind, unsigned ms)
{
    struct sim *s = n->sim;
    struct sim_op *op = mem_zalloc(sizeof *op);
    op->kind = kind;
    op->number = ++n->op_number;
    *n->ops_tail = op;
    n->ops_tail = &op->next;
    /* Writes overlap, as on a disk with a queue, and are done in order. */
    uint64_t at = s->now + around(s, ms);
    n->disk_free_at = at > n->disk_free_at ? at : n->disk_free_at;
    post(n, EV_WRITTEN, n->disk_free_at);
    return op;
}

static int io_append(struct raft_io *io,
                     struct raft_io_append *req,
                     const struct raft_entry entries[],
                     unsigned count,
                     raft_io_append_cb cb)
{
    struct sim_node *n = io->impl;
    struct sim_op *op = ask(n, OP_APPEND, n->disk_ms);
    req->cb = cb;
    op->append = req;
    op->n = count;
    op->entries = mem_zalloc(count * sizeof *op->entries);
    for (unsigned i = 0; i < count; i++) {
        op->entries[i] = (struct sim_entry){entries[i].term, entries[i].type, entries[i].buf.len,
                                            mem_dup(entries[i].buf.base, entries[i].buf.len)};
    }
    op->fails = n->fail_next;
    n->fail_next = false;
    n->sim->counts.appends++;
    return 0;
}

static int io_truncate(struct raft_io *io, raft_index index)
{
    struct sim_node *n = io->impl;
    if (n->put != NULL) {
        n->sim->breach = "a truncation during a snapshot's write";
    }
    ask(n, OP_TRUNCATE, n->disk_ms)->index = index;
    n->sim->counts.truncations++;
    return 0;
}

static int io_snapshot_put(struct raft_io *io,
                           unsigned trailing,
                           struct raft_io_snapshot_put *req,
                           const struct raft_snapshot *snapshot,
                           raft_io_snapshot_put_cb cb)
{
    struct sim_node *n = io->impl;
    struct sim *s = n->sim;
    for (const struct sim_op *op = n->ops; op != NULL; op = op->next) {
        if (op->kind == OP_TRUNCATE) {
            s->breach = "a snapshot's write during a truncation";
        }
    }
    ASSERT(n->put == NULL);
    req->cb = cb;
    if (trailing == 0) {
        struct sim_op *op = ask(n, OP_INSTALL, n->snapshot_ms);
        op->put = req;
        op->snapshot = sim_copy_snapshot(snapshot);
        s->counts.installs++;
        return 0;
    }
    n->put = mem_zalloc(sizeof *n->put);
    *n->put = (struct sim_put){req, sim_copy_snapshot(snapshot), trailing, n->op_number};
    uint64_t from = n->disk_free_at > s->now ? n->disk_free_at : s->now;
    post(n, EV_PUT, from + around(s, n->snapshot_ms));
    s->counts.snapshots++;
    return 0;
}

static int
io_snapshot_get(struct raft_io *io, struct raft_io_snapshot_get *req, raft_io_snapshot_get_cb cb)
{
    struct sim_node *n = io->impl;
    req->cb = cb;
    post(n, EV_GOT, n->sim->now + around(n->sim, n->disk_ms))->get = req;
    return 0;
}

static void written(struct sim_node *n)
{
    struct sim_op *op = n->ops;
    ASSERT(op != NULL);
    n->ops = op->next;
    if (n->ops == NULL) {
        n->ops_tail = &n->ops;
    }
    n->op_done = op->number;
    if (!op->fails) {
        disk_apply(&n->disk, op);
    } else {
        n->failed = true;
        n->sim->counts.writes_failed++;
    }
    if (op->kind == OP_APPEND) {
        op->append->cb(op->append, op->fails ? RAFT_IOERR : 0);
    } else if (op->kind == OP_INSTALL) {
        op->put->cb(op->put, 0);
    }
}

static void put_done(struct sim_node *n)
{
    struct sim_put *p = n->put;
    n->put = NULL;
    sim_disk_put(&n->disk, p->snapshot, p->trailing);
    p->req->cb(p->req, 0);
}

static void got(struct sim_node *n, struct raft_io_snapshot_get *get)
{
    if (n->disk.snapshot == NULL) {
        get->cb(get, NULL, RAFT_NOTFOUND);
        return;
    }
    get->cb(get, sim_give_snapshot(n->disk.snapshot), 0);
}

/* --- the outside --- */

struct sim *sim_new(struct tap_rand *rand)
{
    struct sim *s = mem_zalloc(sizeof *s);
    s->rand = rand;
    for (unsigned i = 0; i < SIM_NODES_MAX; i++) {
        struct sim_node *n = &s->nodes[i];
        n->sim = s;
        n->number = i;
        n->address[0] = (char)('1' + i);
        n->ops_tail = &n->ops;
        n->disk.start = 1;
        n->net_ms = 10;
        n->disk_ms = 5;
        n->snapshot_ms = 20;
    }
    return s;
}

uint64_t sim_now(const struct sim *s)
{
    return s->now;
}

const struct sim_counts *sim_counts(const struct sim *s)
{
    return &s->counts;
}

const char *sim_breach(const struct sim *s)
{
    return s->breach;
}

void sim_boot(struct sim *s, unsigned node, struct raft_io *io)
{
    struct sim_node *n = &s->nodes[node];
    ASSERT(n->io == NULL);
    *io = (struct raft_io){
        .version = 1,
        .impl = n,
        .init = io_init,
        .load = io_load,
        .start = io_start,
        .bootstrap = io_bootstrap,
        .set_term = io_set_term,
        .set_vote = io_set_vote,
        .send = io_send,
        .append = io_append,
        .truncate = io_truncate,
        .snapshot_put = io_snapshot_put,
        .snapshot_get = io_snapshot_get,
        .time = io_time,
        .random = io_random,
    };
    n->io = io;
    n->run++;
    n->paused_until = 0;
}

void sim_crash(struct sim *s, unsigned node)
{
    struct sim_node *n = &s->nodes[node];
    ASSERT(n->io != NULL);
    n->io = NULL;
    n->run++;
    unsigned pending = 0;
    for (const struct sim_op *op = n->ops; op != NULL; op = op->next) {
        pending++;
    }
    unsigned kept = n->failed ? 0 : below(s, pending + 1);
    s->counts.writes_lost += pending - kept;
    for (const struct sim_op *op = n->ops; op != NULL && kept > 0; op = op->next, kept--) {
        disk_apply(&n->disk, op);
        n->op_done = op->number;
    }
    if (n->put != NULL && n->put->after <= n->op_done && below(s, 2) == 0) {
        sim_disk_put(&n->disk, n->put->snapshot, n->put->trailing);
    }
    n->put = NULL;
    n->ops = NULL;
    n->ops_tail = &n->ops;
    n->op_done = n->op_number;
    n->disk_free_at = s->now;
    n->fail_next = false;
    n->failed = false;
}

static void run_event(struct sim_node *n, struct sim_event *e)
{
    switch (e->kind) {
    case EV_TICK:
        post(n, EV_TICK, n->sim->now + n->tick_ms);
        n->tick(n->io);
        break;
    case EV_SENT:
        sent(n, e);
        break;
    case EV_DELIVER:
        deliver(n, e);
        break;
    case EV_WRITTEN:
        written(n);
        break;
    case EV_PUT:
        put_done(n);
        break;
    case EV_GOT:
        got(n, e->get);
        break;
    }
}

bool sim_step(struct sim *s, uint64_t until, unsigned *ret_node)
{
    while (s->heap_n > 0 && s->heap[0]->at <= until) {
        struct sim_event *e = heap_pop(s);
        struct sim_node *n = &s->nodes[e->node];
        s->now = e->at > s->now ? e->at : s->now;
        if (n->io == NULL || e->run != n->run) {
            if (e->kind == EV_DELIVER) {
                drop_message(&e->message);
            }
            mem_free(e);
            continue;
        }
        if (n->paused_until > s->now) {
            e->at = n->paused_until;
            heap_push(s, e);
            continue;
        }
        *ret_node = e->node;
        run_event(n, e);
        mem_free(e);
        return true;
    }
    s->now = until > s->now ? until : s->now;
    return false;
}

void sim_link(struct sim *s, unsigned from, unsigned to, bool up)
{
    s->down[from][to] = !up;
}

bool sim_linked(const struct sim *s, unsigned a, unsigned b)
{
    return !s->down[a][b] && !s->down[b][a];
}

void sim_net_latency(struct sim *s, unsigned node, unsigned ms)
{
    s->nodes[node].net_ms = ms;
}

void sim_disk_latency(struct sim *s, unsigned node, unsigned ms)
{
    s->nodes[node].disk_ms = ms;
}

void sim_snapshot_latency(struct sim *s, unsigned node, unsigned ms)
{
    s->nodes[node].snapshot_ms = ms;
}

void sim_fail_write(struct sim *s, unsigned node)
{
    s->nodes[node].fail_next = true;
}

void sim_pause(struct sim *s, unsigned node, uint64_t until)
{
    s->nodes[node].paused_until = until;
}

bool sim_disk_quiet(const struct sim *s, unsigned node)
{
    return s->nodes[node].ops == NULL && s->nodes[node].put == NULL;
}

raft_index sim_disk_last(const struct sim *s, unsigned node)
{
    const struct sim_disk *d = &s->nodes[node].disk;
    return d->start + d->n - 1;
}

raft_term sim_disk_last_term(const struct sim *s, unsigned node)
{
    const struct sim_disk *d = &s->nodes[node].disk;
    if (d->n > 0) {
        return d->entries[d->n - 1].term;
    }
    return d->snapshot != NULL ? d->snapshot->term : 0;
}
