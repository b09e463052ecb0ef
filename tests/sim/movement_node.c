/* SPDX-License-Identifier: Apache-2.0 */
/* A model data node: what an agent and its store do, on the node's own clock. */
#include "tests/sim/movement_internal.h"

#include <string.h>

enum { BEAT_EVERY = 3, POLL_MS = 150, SEND_MS = 60, RETRY_MS = 900, PATIENCE_S = 3 };

static bool is_leased(const struct sim *s, unsigned proc)
{
    bool leased = sim_clock(s, sim_node(proc)) < s->procs[proc].lease_until;
    return leased || sim_mutated(s, MOVEMENT_write_without_lease) ||
           sim_mutated(s, MOVEMENT_lease_not_checked);
}

bool node_holds(const struct sim *s, unsigned proc)
{
    const struct proc *p = &s->procs[proc];
    return p->up && p->paused_until <= s->now && p->session != 0 && p->granted &&
           is_leased(s, proc);
}

bool node_may_write(const struct sim *s, unsigned proc)
{
    bool fenced = s->procs[proc].fenced && !sim_mutated(s, MOVEMENT_fence_admits);
    return node_holds(s, proc) && !fenced;
}

static struct copy *own_copy(struct sim *s, unsigned proc)
{
    return copy_find(&s->disks[sim_node(proc)], s->procs[proc].copy);
}

static uint32_t own_len(struct sim *s, unsigned proc)
{
    const struct copy *c = own_copy(s, proc);
    return c != NULL ? c->len : 0;
}

void node_stop(struct sim *s, unsigned proc)
{
    struct proc *p = &s->procs[proc];
    p->granted = p->fenced = false;
    p->must = p->async = p->joining = p->leaving = p->counts = p->asked = 0;
    p->acked = own_len(s, proc); /* what waits is answered "outcome unknown" */
}

void node_crash(struct sim *s, unsigned proc)
{
    uint32_t born = s->procs[proc].born + 1;
    s->procs[proc] = (struct proc){.up = false, .born = born};
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

static void take_over(struct sim *s, unsigned proc, uint64_t epoch)
{
    struct proc *p = &s->procs[proc];
    struct copy *c = own_copy(s, proc);
    s->disks[sim_node(proc)].epoch = epoch;
    fill_holes(c, epoch);
    p->granted = true;
    p->epoch = epoch;
    p->acked = p->first = c->len;
    memset(p->done, 0, sizeof p->done);
    for (unsigned n = 0; n < s->nodes; n++) {
        p->match[n] = 0;
        p->next[n] = c->len;
        p->heard[n] = s->now;
    }
    writers_add(&s->history, &(struct writers_event){.kind = WRITERS_ACTED,
                                                     .time = s->now,
                                                     .node = 1 + sim_node(proc),
                                                     .session = p->session,
                                                     .key = 1,
                                                     .epoch = epoch});
}

static bool is_stale(const struct sim *s, const struct proc *p, const struct order *o)
{
    bool other = o->session != p->session && !sim_mutated(s, MOVEMENT_order_of_any_session);
    bool old = o->revision < p->acted && !sim_mutated(s, MOVEMENT_order_of_any_revision);
    return other || old;
}

static void obey_grant(struct sim *s, unsigned proc, const struct order *o)
{
    struct proc *p = &s->procs[proc];
    bool own = o->grant_session == p->session || sim_mutated(s, MOVEMENT_order_of_any_session);
    bool primary = o->role == DIR_ROLE_PRIMARY && own;
    if (p->granted && (!primary || o->epoch != p->epoch)) {
        node_stop(s, proc);
    }
    p->copy = o->copy;
    if (o->copy != 0) {
        (void)copy_make(&s->disks[sim_node(proc)], o->copy);
    }
    if (!primary || (o->fenced && !p->granted)) {
        return;
    }
    bool late = o->epoch < s->disks[sim_node(proc)].epoch;
    if (!p->granted && (!late || sim_mutated(s, MOVEMENT_order_of_any_revision))) {
        take_over(s, proc, o->epoch);
    }
    if (p->changed != o->changed) {
        p->counts = p->asked = 0;
    }
    for (unsigned n = 0; n < s->nodes; n++) {
        if ((o->must & ~p->must & 1U << n) != 0) {
            p->heard[n] = s->now; /* it is waited for from now on */
        }
    }
    p->fenced = o->fenced;
    p->changed = o->changed;
    p->must = o->must;
    p->async = o->async;
    p->joining = o->joining;
    p->leaving = o->leaving;
}

static void obey(struct sim *s, unsigned proc, const struct order *o)
{
    struct proc *p = &s->procs[proc];
    if (is_stale(s, p, o)) {
        s->run.stale_orders++;
        return;
    }
    p->acted = o->revision;
    obey_grant(s, proc, o);
    agent_take(s, proc, o);
}

/* --- writes and replication --- */

static bool has_all(const struct sim *s, const struct proc *p, uint32_t end)
{
    unsigned must = (unsigned)(p->must | p->counts);
    for (unsigned n = 0; n < s->nodes && !sim_mutated(s, MOVEMENT_ack_alone); n++) {
        bool joining = (p->joining & 1U << n) != 0;
        if ((must & 1U << n) == 0) {
            continue;
        }
        bool late = sim_mutated(s, MOVEMENT_active_before_sending) && !p->part.work.active;
        if (joining && (late || sim_mutated(s, MOVEMENT_dual_ack_not_awaited))) {
            continue;
        }
        if (joining ? !agent_counted(p, end) : p->match[n] < end) {
            return false;
        }
    }
    return true;
}

/* Each for itself: one that waits does not hold up those above it. */
void node_acknowledge(struct sim *s, unsigned proc)
{
    struct proc *p = &s->procs[proc];
    const struct copy *c = own_copy(s, proc);
    if (c == NULL || !node_holds(s, proc)) {
        return;
    }
    for (uint32_t i = p->acked; i < c->len; i++) {
        if (p->done[i] == 0 && has_all(s, p, i + 1)) {
            writers_add(&s->history, &(struct writers_event){.kind = WRITERS_ACKNOWLEDGED,
                                                             .time = s->now,
                                                             .node = 1 + sim_node(proc),
                                                             .key = 1,
                                                             .epoch = p->epoch,
                                                             .id = c->log[i].id});
            s->run.acknowledged++;
            check_acknowledged(s, p->epoch, i, c->log[i].id);
            p->done[i] = 1;
        }
    }
    while (p->acked < c->len && p->done[p->acked] != 0) {
        p->acked++;
    }
}

/* A request that carries the epoch of the route that it was sent by. */
void node_client(struct sim *s, unsigned proc, uint64_t epoch)
{
    struct proc *p = &s->procs[proc];
    struct copy *c = own_copy(s, proc);
    uint64_t id = ++s->next_id;
    if (!node_may_write(s, proc) || c == NULL || c->len == LOG_MAX) {
        s->run.refused += p->up;
        return;
    }
    if (epoch != p->epoch && !sim_mutated(s, MOVEMENT_stale_write_taken)) {
        s->run.stale_writes++; /* 421, with the epoch that it knows */
        return;
    }
    copy_store(c, c->len, (struct entry){p->epoch, id});
    writers_add(&s->history, &(struct writers_event){.kind = WRITERS_ACCEPTED,
                                                     .time = s->now,
                                                     .node = 1 + sim_node(proc),
                                                     .session = p->session,
                                                     .key = 1,
                                                     .epoch = epoch,
                                                     .sequence = epoch == p->epoch ? c->len : 0,
                                                     .id = id});
    s->run.accepted++;
    agent_written(s, proc, c->len - 1);
    node_acknowledge(s, proc);
}

static void replicate(struct sim *s, unsigned proc)
{
    struct proc *p = &s->procs[proc];
    const struct copy *d = own_copy(s, proc);
    for (unsigned n = 0; d != NULL && n < s->nodes; n++) {
        if (((p->must | p->async) & ~p->joining & 1U << n) == 0) {
            continue;
        }
        struct event e = {.kind = EV_REPLICATE, .proc = n, .peer = proc, .epoch = p->epoch};
        e.born = p->born;
        e.position = p->next[n] < d->len ? p->next[n] : d->len;
        e.previous = e.position > 0 ? d->log[e.position - 1].epoch : 0;
        while (e.count < BATCH && e.position + e.count < d->len) {
            e.entries[e.count] = d->log[e.position + e.count];
            e.count++;
        }
        sim_send(s, &e, sim_node(proc), n);
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
    unsigned proc = e->proc;
    struct proc *p = &s->procs[proc];
    struct disk *d = &s->disks[sim_node(proc)];
    struct copy *c = own_copy(s, proc);
    bool old = e->epoch < d->epoch && !sim_mutated(s, MOVEMENT_change_of_any_epoch);
    if (p->session == 0 || c == NULL || old || (p->granted && p->epoch >= e->epoch)) {
        return;
    }
    if (p->granted) {
        node_stop(s, proc);
    }
    d->epoch = e->epoch > d->epoch ? e->epoch : d->epoch;
    struct event answer = {.kind = EV_REPLICATED, .proc = e->peer, .peer = proc, .born = e->born};
    answer.epoch = e->epoch;
    answer.position = e->position + e->count;
    if (!extend(s, c, e)) {
        answer.status = ERR_INVALID_REQUEST;
        answer.position = e->position > c->len ? c->len : e->position - 1;
    }
    sim_send(s, &answer, sim_node(proc), sim_node(e->peer));
}

static void on_replicated(struct sim *s, const struct event *e)
{
    struct proc *p = &s->procs[e->proc];
    unsigned n = sim_node(e->peer);
    if (!p->granted || p->epoch != e->epoch) {
        return;
    }
    p->heard[n] = s->now;
    if (e->status != ERR_OK) {
        p->next[n] = e->position;
        return;
    }
    p->match[n] = e->position > p->match[n] ? e->position : p->match[n];
    p->next[n] = p->match[n];
    node_acknowledge(s, e->proc);
}

/* Whether this replica is to be in the set: a silent one is to leave it; one that is not in it is
 * counted, and once it has all that was there then, is to enter it. One that was asked for may be
 * in it by now. */
static bool belongs(struct sim *s, struct proc *p, unsigned n, uint32_t end)
{
    uint8_t bit = (uint8_t)(1U << n);
    bool silent = p->heard[n] + PATIENCE_S * SECOND < s->now;
    if ((p->must & bit) != 0) {
        return !silent;
    }
    if ((p->asked & bit) != 0 || (p->async & bit) == 0) {
        return (p->asked & bit) != 0;
    }
    if (silent) {
        p->counts &= (uint8_t)~bit;
        return false;
    }
    if (sim_mutated(s, MOVEMENT_in_sync_before_counted)) {
        return true;
    }
    if ((p->counts & bit) != 0) {
        return p->match[n] >= p->count_from[n];
    }
    /* Counting it holds up every write until it has caught up. */
    if (p->match[n] + BATCH >= end) {
        p->counts |= bit;
        p->count_from[n] = end;
    }
    return false;
}

static void keep_set(struct sim *s, unsigned proc)
{
    struct proc *p = &s->procs[proc];
    struct event e = {.kind = EV_IN_SYNC, .proc = proc, .born = p->born, .session = p->session};
    e.epoch = p->epoch;
    e.changed = p->changed;
    uint8_t mine = (uint8_t)(p->must & ~p->joining);
    for (unsigned n = 0; n < s->nodes; n++) {
        uint8_t others = (uint8_t)(p->joining | p->leaving);
        bool in = (others & 1U << n) == 0 && belongs(s, p, n, own_len(s, proc));
        e.mask = (uint8_t)(e.mask | (in ? 1U << n : 0U));
    }
    if (e.mask != mine) {
        bool keeps = !sim_mutated(s, MOVEMENT_asked_and_forgotten);
        p->asked = (uint8_t)(p->asked | (keeps ? e.mask & p->async : 0));
        sim_send(s, &e, sim_node(proc), sim_node(proc));
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
    agent_turn(s, proc);
    if (p->granted && p->next_send <= s->now) {
        replicate(s, proc);
        if (node_may_write(s, proc)) {
            keep_set(s, proc);
        }
        p->next_send = s->now + SEND_MS * MS;
    }
}

static void on_beat_answer(struct sim *s, const struct event *e)
{
    struct proc *p = &s->procs[e->proc];
    if (e->session != p->session) {
        return;
    }
    if (e->status != ERR_OK) {
        node_stop(s, e->proc);
        p->session = p->acted = 0;
        p->part = (struct part){.summed = false};
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
    node_stop(s, e->proc);
    p->part = (struct part){.summed = false};
    p->session = e->session;
    s->disks[sim_node(e->proc)].session = e->session;
    p->acted = 0;
    p->lease_until = e->sent + e->changed * MS;
    obey(s, e->proc, &e->order);
}

void node_event(struct sim *s, const struct event *e)
{
    struct proc *p = &s->procs[e->proc];
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
        obey(s, e->proc, &e->order);
    } else if (e->kind == EV_REPLICATED) {
        on_replicated(s, e);
    } else {
        agent_event(s, e);
    }
}
