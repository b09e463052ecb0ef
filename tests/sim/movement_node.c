/* SPDX-License-Identifier: Apache-2.0 */
/* A model data node: what an agent and its store do, on the node's own clock. */
#include "tests/sim/movement_internal.h"

#include <string.h>

enum { BEAT_EVERY = 3, POLL_MS = 150, SEND_MS = 60, RETRY_MS = 900, PATIENCE_S = 3 };

static bool is_leased(const struct sim *s, unsigned seat)
{
    bool leased = sim_clock(s, sim_node(seat)) < s->procs[seat % PROCS].lease_until;
    return leased || sim_mutated(s, MOVEMENT_write_without_lease) ||
           sim_mutated(s, MOVEMENT_lease_not_checked);
}

bool node_holds(const struct sim *s, unsigned seat)
{
    const struct proc *p = &s->procs[seat % PROCS];
    return s->holds[seat].granted && p->up && p->paused_until <= s->now && p->session != 0 &&
           is_leased(s, seat);
}

bool node_may_write(const struct sim *s, unsigned seat)
{
    bool fenced = s->holds[seat].fenced && !sim_mutated(s, MOVEMENT_fence_admits);
    return node_holds(s, seat) && !fenced;
}

static struct copy *own_copy(struct sim *s, unsigned seat)
{
    const struct hold *h = &s->holds[seat];
    return copy_find(&s->disks[sim_node(seat)], h->partition, h->copy);
}

static uint32_t own_len(struct sim *s, unsigned seat)
{
    const struct copy *c = own_copy(s, seat);
    return c != NULL ? c->len : 0;
}

void node_stop(struct sim *s, unsigned seat)
{
    struct hold *h = &s->holds[seat];
    h->granted = h->fenced = false;
    h->must = h->async = h->joining = h->leaving = h->counts = h->asked = 0;
    h->acked = own_len(s, seat); /* what waits is answered "outcome unknown" */
}

void node_crash(struct sim *s, unsigned proc)
{
    uint32_t born = s->procs[proc].born + 1;
    s->procs[proc] = (struct proc){.up = false, .born = born};
    for (unsigned seat = proc; seat < SEATS; seat += PROCS) {
        memset(&s->holds[seat], 0, sizeof s->holds[seat]);
    }
}

static void stop_all(struct sim *s, unsigned proc)
{
    for (unsigned seat = proc; seat < SEATS; seat += PROCS) {
        node_stop(s, seat);
        s->holds[seat].part = (struct part){.summed = false};
    }
}

/* What lies above a hole may be acknowledged; what is missing below is not, and will never come.
 * From there on it is another log than the old primary's, and says so by its epoch. */
static void fill_holes(struct copy *c, uint64_t epoch)
{
    for (uint32_t i = c->prefix; i < c->len; i++) {
        uint64_t id = c->log[i].id != 0 ? c->log[i].id : FILLED;
        c->log[i] = (struct entry){epoch, id};
    }
    c->prefix = c->len;
}

static void take_over(struct sim *s, unsigned seat, uint64_t epoch)
{
    struct hold *h = &s->holds[seat];
    struct copy *c = own_copy(s, seat);
    s->disks[sim_node(seat)].epochs[seat / PROCS] = epoch;
    fill_holes(c, epoch);
    h->granted = true;
    h->epoch = epoch;
    h->acked = h->first = c->len;
    memset(h->done, 0, sizeof h->done);
    for (unsigned n = 0; n < s->nodes; n++) {
        h->match[n] = 0;
        h->next[n] = c->len;
        h->heard[n] = s->now;
    }
    for (unsigned slot = h->keys.from; slot < h->keys.upto; slot++) {
        writers_add(&s->history, &(struct writers_event){.kind = WRITERS_ACTED,
                                                         .time = s->now,
                                                         .node = 1 + sim_node(seat),
                                                         .session = sim_proc(s, seat)->session,
                                                         .key = 1 + slot,
                                                         .epoch = epoch});
    }
}

static bool is_stale(const struct sim *s, const struct proc *p, const struct order *o)
{
    bool other = o->session != p->session && !sim_mutated(s, MOVEMENT_order_of_any_session);
    bool old = o->revision < p->acted && !sim_mutated(s, MOVEMENT_order_of_any_revision);
    return other || old;
}

/* What is at this seat is another partition than before, or none. */
static void change_partition(struct sim *s, unsigned seat, const struct holding *o)
{
    struct hold *h = &s->holds[seat];
    struct proc *p = sim_proc(s, seat);
    struct keys keys = o->keys;
    if (sim_mutated(s, MOVEMENT_part_not_cut) && h->granted && o->role == DIR_ROLE_PRIMARY) {
        keys = h->keys;
    }
    if (h->part.work.operation != 0) {
        p->was_operation = h->part.work.operation;
        p->was_attempt = h->part.work.attempt;
    }
    memset(h, 0, sizeof *h);
    h->partition = o->partition;
    h->keys = keys;
}

static void obey_grant(struct sim *s, unsigned seat, const struct holding *o)
{
    struct hold *h = &s->holds[seat];
    const struct proc *p = sim_proc(s, seat);
    bool own = o->grant_session == p->session || sim_mutated(s, MOVEMENT_order_of_any_session);
    bool primary = o->role == DIR_ROLE_PRIMARY && own;
    if (h->granted && (!primary || o->epoch != h->epoch)) {
        node_stop(s, seat);
    }
    h->copy = o->copy;
    if (o->copy != 0) {
        (void)copy_make(&s->disks[sim_node(seat)], o->partition, o->copy, o->keys);
    }
    if (!primary || (o->fenced && !h->granted)) {
        return;
    }
    bool late = o->epoch < s->disks[sim_node(seat)].epochs[seat / PROCS];
    if (!h->granted && (!late || sim_mutated(s, MOVEMENT_order_of_any_revision))) {
        take_over(s, seat, o->epoch);
    }
    if (h->changed != o->changed) {
        h->counts = h->asked = 0;
    }
    for (unsigned n = 0; n < s->nodes; n++) {
        if ((o->must & ~h->must & 1U << n) != 0) {
            h->heard[n] = s->now; /* it is waited for from now on */
        }
    }
    h->fenced = o->fenced;
    h->changed = o->changed;
    h->must = o->must;
    h->async = o->async;
    h->joining = o->joining;
    h->leaving = o->leaving;
}

static void obey(struct sim *s, unsigned proc, const struct order *o)
{
    struct proc *p = &s->procs[proc];
    if (o == NULL) {
        return;
    }
    if (is_stale(s, p, o)) {
        s->run.stale_orders++;
        return;
    }
    p->acted = o->revision;
    p->duty_count = o->duty_count;
    memcpy(p->duties, o->duties, sizeof p->duties);
    for (unsigned i = 0; i < SLOTS; i++) {
        unsigned seat = proc + i * PROCS;
        if (s->holds[seat].partition != o->holdings[i].partition) {
            change_partition(s, seat, &o->holdings[i]);
        }
    }
    copy_divide(s, &s->disks[sim_node(proc)], o);
    for (unsigned i = 0; i < SLOTS; i++) {
        obey_grant(s, proc + i * PROCS, &o->holdings[i]);
        agent_take(s, proc + i * PROCS, &o->holdings[i].work);
    }
}

/* --- writes and replication --- */

static bool has_all(const struct sim *s, const struct hold *h, uint32_t end)
{
    unsigned must = (unsigned)(h->must | h->counts);
    for (unsigned n = 0; n < s->nodes && !sim_mutated(s, MOVEMENT_ack_alone); n++) {
        bool joining = (h->joining & 1U << n) != 0;
        if ((must & 1U << n) == 0) {
            continue;
        }
        bool late = sim_mutated(s, MOVEMENT_active_before_sending) && !h->part.work.active;
        if (joining && (late || sim_mutated(s, MOVEMENT_dual_ack_not_awaited))) {
            continue;
        }
        if (joining ? !agent_counted(h, end) : h->match[n] < end) {
            return false;
        }
    }
    return true;
}

/* Each for itself: one that waits does not hold up those above it. */
void node_acknowledge(struct sim *s, unsigned seat)
{
    struct hold *h = &s->holds[seat];
    const struct copy *c = own_copy(s, seat);
    if (c == NULL || !node_holds(s, seat)) {
        return;
    }
    for (uint32_t i = h->acked; i < c->len; i++) {
        if (h->done[i] == 0 && has_all(s, h, i + 1)) {
            writers_add(&s->history, &(struct writers_event){.kind = WRITERS_ACKNOWLEDGED,
                                                             .time = s->now,
                                                             .node = 1 + sim_node(seat),
                                                             .key = 1 + sim_slot(c->log[i].id),
                                                             .epoch = h->epoch,
                                                             .id = c->log[i].id});
            s->run.acknowledged++;
            s->acknowledged[sim_slot(c->log[i].id)]++;
            check_acknowledged(s, h, i, c->log[i].id);
            h->done[i] = 1;
        }
    }
    while (h->acked < c->len && h->done[h->acked] != 0) {
        h->acked++;
    }
}

static unsigned seat_of(const struct sim *s, unsigned proc, unsigned slot)
{
    unsigned seat = proc;
    while (seat < SEATS && !(node_may_write(s, seat) && keys_have(s->holds[seat].keys, slot))) {
        seat += PROCS;
    }
    return seat;
}

/* A request that carries the epoch of the route that it was sent by. */
void node_client(struct sim *s, unsigned proc, unsigned slot, uint64_t epoch)
{
    unsigned seat = seat_of(s, proc, slot);
    struct copy *c = seat < SEATS ? own_copy(s, seat) : NULL;
    s->next_id = s->next_id - sim_slot(s->next_id) + SLOTS + slot;
    if (c == NULL || c->len == LOG_MAX) {
        s->run.refused += s->procs[proc].up;
        return;
    }
    const struct hold *h = &s->holds[seat];
    uint64_t id = s->next_id;
    epoch = epoch != 0 ? epoch : h->epoch;
    if (epoch != h->epoch && !sim_mutated(s, MOVEMENT_stale_write_taken)) {
        s->run.stale_writes++; /* 421, with the epoch that it knows */
        return;
    }
    copy_store(c, c->len, (struct entry){h->epoch, id});
    writers_add(&s->history, &(struct writers_event){.kind = WRITERS_ACCEPTED,
                                                     .time = s->now,
                                                     .node = 1 + sim_node(seat),
                                                     .session = s->procs[proc].session,
                                                     .key = 1 + slot,
                                                     .epoch = epoch,
                                                     .sequence = epoch == h->epoch ? c->len : 0,
                                                     .id = id});
    s->run.accepted++;
    agent_written(s, seat, c->len - 1);
    node_acknowledge(s, seat);
}

static void replicate(struct sim *s, unsigned seat)
{
    struct hold *h = &s->holds[seat];
    const struct copy *d = own_copy(s, seat);
    for (unsigned n = 0; d != NULL && n < s->nodes; n++) {
        unsigned not = h->joining | (h->part.work.reverse ? 0U : h->leaving);
        if (((h->must | h->async) & ~not &1U << n) == 0) {
            continue;
        }
        struct event e = {.kind = EV_REPLICATE, .peer = seat, .epoch = h->epoch};
        e.proc = seat - seat % PROCS + n;
        e.partition = h->partition;
        e.born = sim_proc(s, seat)->born;
        e.position = h->next[n] < d->len ? h->next[n] : d->len;
        e.previous = e.position > 0 ? d->log[e.position - 1].epoch : 0;
        while (e.count < BATCH && e.position + e.count < d->len) {
            e.entries[e.count] = d->log[e.position + e.count];
            e.count++;
        }
        sim_send(s, &e, sim_node(seat), n);
    }
}

/* The follower's side: (epoch, position) of the entry before must be the same, and what differs is
 * cut. Returns whether the entries fit. */
static bool extend(const struct sim *s, struct copy *d, const struct event *e)
{
    bool cut = !sim_mutated(s, MOVEMENT_replica_not_cut);
    uint32_t at = e->position;
    if (at > d->len || (at > 0 && cut && d->log[at - 1].epoch != e->previous)) {
        return false;
    }
    for (uint32_t i = 0; i < e->count; i++, at++) {
        if (at < d->len && cut && d->log[at].epoch != e->entries[i].epoch) {
            copy_cut(d, at);
        }
        copy_store(d, at, e->entries[i]);
    }
    return true;
}

static void follow(struct sim *s, const struct event *e)
{
    unsigned seat = e->proc;
    struct hold *h = &s->holds[seat];
    struct disk *d = &s->disks[sim_node(seat)];
    struct copy *c = own_copy(s, seat);
    uint64_t *acted = &d->epochs[seat / PROCS];
    bool old = e->epoch < *acted && !sim_mutated(s, MOVEMENT_change_of_any_epoch);
    if (sim_proc(s, seat)->session == 0 || c == NULL || old || h->partition != e->partition ||
        (h->granted && h->epoch >= e->epoch)) {
        return;
    }
    if (h->granted) {
        node_stop(s, seat);
    }
    *acted = e->epoch > *acted ? e->epoch : *acted;
    struct event answer = {.kind = EV_REPLICATED, .proc = e->peer, .peer = seat, .born = e->born};
    answer.epoch = e->epoch;
    answer.partition = e->partition;
    answer.session = sim_proc(s, seat)->session;
    answer.position = e->position + e->count;
    if (!extend(s, c, e)) {
        answer.status = ERR_INVALID_REQUEST;
        answer.position = e->position > c->len ? c->len : e->position - 1;
    }
    sim_send(s, &answer, sim_node(seat), sim_node(e->peer));
}

static void on_replicated(struct sim *s, const struct event *e)
{
    struct hold *h = &s->holds[e->proc];
    unsigned n = sim_node(e->peer);
    if (!h->granted || h->epoch != e->epoch || h->partition != e->partition) {
        return;
    }
    h->heard[n] = s->now;
    if (h->sessions[n] != e->session) {
        h->match[n] = 0; /* what it said before, another process said: it is counted anew */
        h->count_from[n] = own_len(s, e->proc);
        h->sessions[n] = e->session;
    }
    if (e->status != ERR_OK) {
        h->next[n] = e->position;
        return;
    }
    h->match[n] = e->position > h->match[n] ? e->position : h->match[n];
    h->next[n] = h->match[n];
    node_acknowledge(s, e->proc);
}

/* Whether this replica is to be in the set: a silent one is to leave it; one that is not in it is
 * counted, and once it has all that was there then, is to enter it. One that was asked for may be
 * in it by now. */
static bool belongs(struct sim *s, struct hold *h, unsigned n, uint32_t end)
{
    uint8_t bit = (uint8_t)(1U << n);
    bool silent = h->heard[n] + PATIENCE_S * SECOND < s->now;
    if ((h->must & bit) != 0) {
        return !silent;
    }
    if ((h->asked & bit) != 0 || (h->async & bit) == 0) {
        return (h->asked & bit) != 0 && h->match[n] >= h->count_from[n];
    }
    if (silent) {
        h->counts &= (uint8_t)~bit;
        return false;
    }
    if (sim_mutated(s, MOVEMENT_in_sync_before_counted)) {
        return true;
    }
    if ((h->counts & bit) != 0) {
        return h->match[n] >= h->count_from[n];
    }
    /* Counting it holds up every write until it has caught up. */
    if (h->match[n] + BATCH >= end) {
        h->counts |= bit;
        h->count_from[n] = end;
    }
    return false;
}

static void keep_set(struct sim *s, unsigned seat)
{
    struct hold *h = &s->holds[seat];
    const struct proc *p = sim_proc(s, seat);
    struct event e = {.kind = EV_IN_SYNC, .proc = seat, .born = p->born, .session = p->session};
    e.partition = h->partition;
    e.epoch = h->epoch;
    e.changed = h->changed;
    uint8_t mine = (uint8_t)(h->must & ~h->joining);
    for (unsigned n = 0; n < s->nodes; n++) {
        uint8_t others = (uint8_t)(h->joining | h->leaving);
        bool in = (others & 1U << n) == 0 && belongs(s, h, n, own_len(s, seat));
        e.mask = (uint8_t)(e.mask | (in ? 1U << n : 0U));
        e.sessions[n] = h->sessions[n];
    }
    if (e.mask != mine) {
        bool keeps = !sim_mutated(s, MOVEMENT_asked_and_forgotten);
        h->asked = (uint8_t)(h->asked | (keeps ? e.mask & h->async : 0));
        sim_trouble_in_sync(s, &e);
        sim_send(s, &e, sim_node(seat), sim_node(seat));
    }
}

/* --- sessions --- */

static void enrol(struct sim *s, unsigned proc)
{
    struct proc *p = &s->procs[proc];
    bool alone = proc >= NODES || !s->procs[proc + NODES].up;
    struct event e = {
        .kind = EV_PUT, .proc = proc, .born = p->born, .sent = sim_clock(s, sim_node(proc))};
    if (alone || sim_mutated(s, MOVEMENT_previous_unproven)) {
        e.session = s->disks[sim_node(proc)].session;
    }
    p->retry_at = s->now + RETRY_MS * MS;
    sim_send(s, &e, sim_node(proc), sim_node(proc));
}

static void seat_turn(struct sim *s, unsigned seat)
{
    struct hold *h = &s->holds[seat];
    if (h->partition == 0) {
        return;
    }
    agent_turn(s, seat);
    if (h->granted && h->next_send <= s->now) {
        replicate(s, seat);
        if (node_may_write(s, seat)) {
            keep_set(s, seat);
        }
        h->next_send = s->now + SEND_MS * MS;
    }
}

void node_turn(struct sim *s, unsigned proc)
{
    struct proc *p = &s->procs[proc];
    unsigned node = sim_node(proc);
    if (!p->up || p->paused_until > s->now) {
        return;
    }
    if (p->session == 0) {
        if (proc < NODES && p->retry_at <= s->now) {
            enrol(s, proc);
        }
        return;
    }
    if (p->next_beat <= s->now) {
        struct event e = {.kind = EV_BEAT, .proc = proc, .born = p->born, .session = p->session};
        e.sent = sim_clock(s, node);
        sim_send(s, &e, node, node);
        p->next_beat = s->now + BEAT_EVERY * SECOND;
    }
    if (p->next_poll <= s->now) {
        struct event e = {
            .kind = EV_ORDER, .proc = proc, .born = p->born, .order = sim_order(s, node)};
        sim_send(s, &e, node, node);
        p->next_poll = s->now + POLL_MS * MS;
    }
    agent_duties(s, proc);
    for (unsigned seat = proc; seat < SEATS; seat += PROCS) {
        seat_turn(s, seat);
    }
}

static void on_beat_answer(struct sim *s, const struct event *e)
{
    struct proc *p = &s->procs[e->proc];
    if (e->session != p->session) {
        return;
    }
    if (e->status != ERR_OK) {
        stop_all(s, e->proc);
        p->session = p->acted = 0;
        if (e->proc >= NODES) {
            node_crash(s, e->proc);
        }
        return;
    }
    bool receipt = sim_mutated(s, MOVEMENT_lease_from_receipt);
    uint64_t from = receipt ? sim_clock(s, sim_node(e->proc)) : e->sent;
    uint64_t until = from + e->changed * MS;
    p->lease_until = until > p->lease_until ? until : p->lease_until;
}

static void on_put_answer(struct sim *s, const struct event *e)
{
    struct proc *p = &s->procs[e->proc];
    if (e->session <= s->disks[sim_node(e->proc)].session) {
        return;
    }
    stop_all(s, e->proc);
    p->session = e->session;
    s->disks[sim_node(e->proc)].session = e->session;
    p->acted = 0;
    p->lease_until = e->sent + e->changed * MS;
    obey(s, e->proc, sim_order_of(s, e->order));
}

void node_event(struct sim *s, const struct event *e)
{
    const struct proc *p = sim_proc(s, e->proc);
    if (!p->up) {
        return;
    }
    if (e->kind == EV_REPLICATE) {
        follow(s, e);
        return;
    }
    bool asks = e->kind == EV_PULL_CHUNK || e->kind == EV_PULL_CHANGES || e->kind == EV_DUAL;
    if (!asks && e->born != p->born) {
        return; /* it answers an earlier process */
    }
    if (e->kind == EV_BEAT_ANSWER) {
        on_beat_answer(s, e);
    } else if (e->kind == EV_PUT_ANSWER) {
        on_put_answer(s, e);
    } else if (e->kind == EV_ORDER && p->session != 0) {
        obey(s, e->proc, sim_order_of(s, e->order));
    } else if (e->kind == EV_REPLICATED) {
        on_replicated(s, e);
    } else {
        agent_event(s, e);
    }
}
