/* SPDX-License-Identifier: Apache-2.0 */
/* Time, network, faults, and the leader around a real directory and a real lease table. */
#include "tests/sim/movement_internal.h"

#include <stdio.h>
#include <string.h>

#define STEP (5 * MS)

const char *const sim_names[NODES] = {"n1", "n2", "n3", "n4"};
const char *const sim_bounds[SLOTS] = {"", "g", "n", "t"};

uint64_t sim_below(struct sim *s, uint64_t n)
{
    return tap_rand_below(&s->rand, n);
}

bool sim_chance(struct sim *s, unsigned percent)
{
    return sim_below(s, 100) < percent;
}

uint64_t sim_clock(const struct sim *s, unsigned node)
{
    int64_t now = (int64_t)s->now;
    return (uint64_t)(now + now / 1000000 * s->drift_ppm[node]) + (node + 1) * 7 * SECOND;
}

void sim_fail(struct sim *s, const char *why)
{
    if (s->run.violation == NULL) {
        s->run.violation = why;
    }
}

/* --- events --- */

static bool before(const struct event *a, const struct event *b)
{
    return a->at != b->at ? a->at < b->at : a->order_of_birth < b->order_of_birth;
}

void sim_post(struct sim *s, const struct event *e, uint64_t delay)
{
    if (s->heap_count == EVENTS_MAX) {
        return; /* the network is full: lost */
    }
    uint32_t at = s->heap_count++;
    struct event mine = *e;
    mine.at = s->now + delay;
    mine.order_of_birth = ++s->births;
    while (at > 0 && before(&mine, &s->heap[(at - 1) / 2])) {
        s->heap[at] = s->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    s->heap[at] = mine;
}

static struct event take(struct sim *s)
{
    struct event top = s->heap[0], last = s->heap[--s->heap_count];
    uint32_t at = 0;
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= s->heap_count) {
            break;
        }
        if (child + 1 < s->heap_count && before(&s->heap[child + 1], &s->heap[child])) {
            child++;
        }
        if (!before(&s->heap[child], &last)) {
            break;
        }
        s->heap[at] = s->heap[child];
        at = child;
    }
    if (s->heap_count > 0) {
        s->heap[at] = last;
    }
    return top;
}

static uint64_t network_delay(struct sim *s)
{
    uint64_t most = s->noise == NOISE_MILD && sim_chance(s, 10) ? 400 * MS : 30 * MS;
    if (s->noise == NOISE_FULL && sim_chance(s, 10)) {
        most = sim_chance(s, 30) ? 20 * SECOND : 3 * SECOND;
    }
    return MS + sim_below(s, most);
}

void sim_send(struct sim *s, const struct event *e, unsigned a, unsigned b)
{
    bool cut = s->cut_until[a] > s->now || s->cut_until[b] > s->now;
    static const unsigned losses[] = {0, 1, 3}, repeats[] = {0, 6, 12};
    bool lost = sim_chance(s, losses[s->noise]);
    if (cut || lost || s->link_until[a][b] > s->now) {
        return;
    }
    sim_post(s, e, network_delay(s));
    if (sim_chance(s, repeats[s->noise])) {
        sim_post(s, e,
                 network_delay(s) + sim_below(s, s->noise == NOISE_FULL ? 8 * SECOND : SECOND));
    }
}

/* --- the directory --- */

const struct dir_partition *sim_at(const struct sim *s, unsigned slot)
{
    return agent_partition(&s->world, sim_bounds[slot]);
}

const struct dir_partition *sim_partition(const struct sim *s)
{
    return agent_partition(&s->world, "k");
}

static uint8_t slot_from(struct slice key)
{
    uint8_t slot = 0;
    while (slot < SLOTS &&
           slice_cmp(slice_of(sim_bounds[slot], strlen(sim_bounds[slot])), key) < 0) {
        slot++;
    }
    return slot;
}

struct keys sim_keys(struct slice start, struct slice end, bool end_open)
{
    return (struct keys){slot_from(start), end_open ? SLOTS : slot_from(end)};
}

struct keys sim_keys_of(const struct dir_partition *p)
{
    return sim_keys(dir_partition_start(p), dir_partition_end(p), p->end_open);
}

unsigned sim_seat(const struct dir_partition *p, unsigned proc)
{
    return proc + sim_keys_of(p).from * PROCS;
}

struct copy *sim_copy(struct sim *s, const struct dir_partition *p, unsigned node, uint64_t id)
{
    return copy_find(&s->disks[node], p->id, id);
}

unsigned sim_node_of(const struct sim *s, uint64_t id)
{
    for (unsigned n = 0; n < s->nodes; n++) {
        if (agent_node(&s->world, sim_names[n])->id == id) {
            return n;
        }
    }
    return NODES;
}

void sim_commanded(struct sim *s)
{
    const struct dir_effects *effects = s->world.effects;
    s->run.commands++;
    for (uint64_t i = 0; effects != NULL && i < effects->row_count; i++) {
        const void *after = effects->rows[i].after, *was = effects->rows[i].before;
        const struct dir_object *any = after != NULL ? after : was;
        if (any->kind == DIR_KIND_NODE) {
            const void *row = any;
            leases_note(&s->leases, ((const struct dir_node *)row)->id, after, s->now / MS);
        }
    }
    check_command(s);
}

/* --- the leader --- */

static void
answer(struct sim *s, const struct event *to, enum event_kind kind, const struct event *with)
{
    struct event e = *with;
    e.kind = kind;
    e.proc = to->proc;
    e.born = to->born;
    e.sent = to->sent;
    sim_send(s, &e, sim_node(to->proc), sim_node(to->proc));
}

static void on_beat(struct sim *s, const struct event *e)
{
    const struct dir_node *n = agent_node(&s->world, sim_names[sim_node(e->proc)]);
    if (sim_mutated(s, MOVEMENT_unconfirmed_beat) && sim_chance(s, 30)) {
        struct event ok = {.session = e->session, .changed = n->lease_ms};
        answer(s, e, EV_BEAT_ANSWER, &ok);
        return;
    }
    struct lease *l = leases_find(&s->leases, n->id, e->session);
    bool ending = l != NULL && l->ending && !sim_mutated(s, MOVEMENT_answer_while_ending);
    if (s->frozen_until > s->now || ending) {
        return;
    }
    struct event confirmed = *e;
    confirmed.kind = EV_CONFIRMED;
    confirmed.term = s->term;
    if (l != NULL) {
        l->waiting++;
    }
    sim_post(s, &confirmed, MS + sim_below(s, sim_chance(s, 5) ? 2 * SECOND : 40 * MS));
}

static void on_confirmed(struct sim *s, const struct event *e)
{
    const struct dir_node *n = agent_node(&s->world, sim_names[sim_node(e->proc)]);
    struct lease *l = leases_find(&s->leases, n->id, e->session);
    if (e->term != s->term) {
        return;
    }
    if (l != NULL && l->waiting > 0) {
        l->waiting--;
    }
    struct event out = {.session = e->session, .changed = n->lease_ms};
    if (n->session != e->session || !view_node_is_live(n)) {
        out.status = ERR_SESSION_ENDED;
    } else if (l == NULL || (l->ending && !sim_mutated(s, MOVEMENT_answer_while_ending))) {
        return;
    } else {
        leases_renew(&s->leases, l, s->now / MS);
    }
    answer(s, e, EV_BEAT_ANSWER, &out);
}

/* All copies are lost, unless one is all that there is of a partition. */
static void empty_disk(struct sim *s, unsigned n)
{
    const struct dir_node *node = agent_node(&s->world, sim_names[n]);
    for (unsigned slot = 0; slot < SLOTS; slot++) {
        const struct dir_partition *p = sim_at(s, slot);
        const struct dir_node *owner = view_primary(world_state(&s->world), p);
        if (owner == NULL || owner == node || p->home == node->id) {
            return;
        }
    }
    for (unsigned i = 0; i < COPIES; i++) {
        copy_delete(&s->disks[n].copies[i]);
    }
}

static void on_put(struct sim *s, const struct event *e)
{
    struct disk *d = &s->disks[sim_node(e->proc)];
    if (s->frozen_until > s->now) {
        return;
    }
    if (d->doomed && !s->procs[sim_node(e->proc) + NODES].up) {
        empty_disk(s, sim_node(e->proc));
    }
    d->doomed = false;
    const struct dir_result *r = leader_put(s, sim_node(e->proc), e->session);
    if (r->err.code == ERR_OK) {
        struct event out = {.session = r->session, .changed = r->node->lease_ms};
        out.order = sim_order(s, sim_node(e->proc));
        answer(s, e, EV_PUT_ANSWER, &out);
    }
}

static uint8_t sync_set(const struct sim *s, const struct dir_partition *p)
{
    unsigned set = 0;
    for (uint8_t i = 1; i < p->replica_count; i++) {
        bool sync = p->replicas[i].role == DIR_ROLE_SYNC;
        set |= sync ? 1U << sim_node_of(s, p->replicas[i].node) : 0;
    }
    return (uint8_t)set;
}

/* A replica dies and its disk is lost, just when it is called in sync. */
void sim_trouble_in_sync(struct sim *s, const struct event *e)
{
    unsigned asked = e->mask & (unsigned)~sync_set(s, sim_at(s, e->proc / PROCS));
    if (s->noise != NOISE_FULL || !s->automatic || asked == 0 || s->trouble_at != 0 ||
        !sim_chance(s, 30)) {
        return;
    }
    s->trouble_at = s->now + 1;
    s->trouble_kills = s->trouble_empties = true;
    for (s->trouble_node = 0; (asked >> s->trouble_node & 1) == 0;) {
        s->trouble_node++;
    }
    sim_post(s, e, SECOND + sim_below(s, 4 * SECOND)); /* and again, late */
}

static void on_in_sync(struct sim *s, const struct event *e)
{
    const struct dir_partition *p = sim_at(s, e->proc / PROCS);
    Cadastre__InsyncChange m;
    char names[NODES][4];
    char *list[NODES];
    uint64_t sessions[NODES];
    uint8_t before = sync_set(s, p);
    cadastre__insync_change__init(&m);
    m.partition = e->partition;
    m.session = e->session;
    m.epoch = e->epoch;
    m.insync = list;
    m.insync_sessions = sessions;
    m.has_mod_revision = true;
    m.mod_revision = sim_mutated(s, MOVEMENT_in_sync_replayed) ? p->mod_revision : e->changed;
    for (unsigned n = 0; n < s->nodes; n++) {
        if ((e->mask & 1U << n) != 0) {
            (void)snprintf(names[n], sizeof names[n], "%s", sim_names[n]);
            sessions[m.n_insync] = e->sessions[n];
            list[m.n_insync++] = names[n];
        }
    }
    m.n_insync_sessions = sim_mutated(s, MOVEMENT_in_sync_of_any_session) ? 0 : m.n_insync;
    if (s->frozen_until <= s->now) {
        (void)world_do(&s->world, CADASTRE__COMMAND__BODY_INSYNC_CHANGE, &m);
        bool taken = s->world.result->err.code == ERR_OK;
        s->run.insync_changes += taken;
        sim_commanded(s);
        if (taken) {
            check_counted(s, e->proc, (uint8_t)(sync_set(s, sim_at(s, e->proc / PROCS)) & ~before));
        }
    }
}

void sim_end_session(struct sim *s, unsigned node, dir_rev session)
{
    (void)agent_end(&s->world, sim_names[node], session, false);
    s->run.lapses += s->world.result->err.code == ERR_OK;
    sim_commanded(s);
    const struct dir_node *n = agent_node(&s->world, sim_names[node]);
    struct lease *l = leases_find(&s->leases, n->id, session);
    l = l != NULL ? l : leases_find_before(&s->leases, n->id, session);
    if (l != NULL) {
        l->proposed = l->ending = false;
    }
}

static bool propose(void *arg, uint64_t node, struct lease *l)
{
    struct sim *s = arg;
    struct event e = {
        .kind = EV_END, .proc = sim_node_of(s, node), .session = l->session, .term = s->term};
    l->proposed = l->ending = true;
    sim_post(s, &e, MS + sim_below(s, sim_chance(s, 10) ? 4 * SECOND : 60 * MS));
    return true;
}

/* What the old leader proposed is in the log before the new one counts, or never. */
void sim_change_leader(struct sim *s)
{
    for (uint32_t i = 0; i < s->heap_count; i++) {
        struct event *e = &s->heap[i];
        if (e->kind == EV_END && e->term == s->term && sim_chance(s, 50)) {
            e->term = 0;
            sim_end_session(s, e->proc, e->session);
        }
    }
    s->term++;
    s->timer_mark = 0;
    s->frozen_until = s->now + 200 * MS + sim_below(s, 3 * SECOND);
    if (!sim_mutated(s, MOVEMENT_new_leader_at_once)) {
        leases_restart(&s->leases, world_state(&s->world), s->frozen_until / MS);
        return;
    }
    for (uint64_t i = 0; i < s->leases.cap; i++) {
        s->leases.slots[i].present.renewed_ms = 0;
        s->leases.slots[i].present.waiting = 0;
    }
}

static void lead(struct sim *s)
{
    uint64_t early = sim_mutated(s, MOVEMENT_no_allowance) ? 3000 : 0;
    if (s->frozen_until <= s->now) {
        leases_lapsed(&s->leases, s->now / MS + early, NODES, propose, s);
    }
}

/* --- time --- */

static void deliver(struct sim *s, const struct event *e)
{
    switch (e->kind) {
    case EV_BEAT:
        on_beat(s, e);
        break;
    case EV_CONFIRMED:
        on_confirmed(s, e);
        break;
    case EV_PUT:
        on_put(s, e);
        break;
    case EV_IN_SYNC:
        on_in_sync(s, e);
        break;
    case EV_END:
        if (e->term == s->term) {
            sim_end_session(s, e->proc, e->session);
        }
        break;
    case EV_REPORT:
        if (s->frozen_until <= s->now && !s->held) {
            (void)leader_report(s, e);
        }
        break;
    case EV_TIMEOUT:
        if (e->term == s->term && !s->held) {
            (void)leader_timeout(s, e);
        }
        break;
    case EV_DUTY:
        leader_duty(s, e);
        break;
    case EV_BEAT_ANSWER:
    case EV_PUT_ANSWER:
    case EV_ORDER:
    case EV_REPLICATE:
    case EV_REPLICATED:
    case EV_PULL_CHUNK:
    case EV_CHUNK:
    case EV_PULL_CHANGES:
    case EV_CHANGES:
    case EV_DUAL:
    case EV_DUAL_ACK:
        if (sim_proc(s, e->proc)->paused_until > s->now) {
            sim_post(s, e, sim_proc(s, e->proc)->paused_until - s->now);
        } else {
            node_event(s, e);
        }
        break;
    }
}

static void start_second(struct sim *s, unsigned n)
{
    struct proc *old = &s->procs[n + NODES];
    if (old->up || !s->procs[n].up || s->procs[n].session == 0) {
        return;
    }
    *old = s->procs[n];
    for (unsigned i = n; i < SEATS; i += PROCS) {
        s->holds[i + NODES] = s->holds[i];
    }
    node_crash(s, n);
    s->procs[n].up = true;
}

static void lose_disk(struct sim *s, unsigned n)
{
    node_crash(s, n + NODES); /* it has the same disk */
    s->disks[n].doomed = true;
}

static void make_trouble(struct sim *s)
{
    unsigned n = (unsigned)sim_below(s, s->nodes);
    uint64_t span = sim_below(s, sim_chance(s, 50) ? 2 * SECOND : 25 * SECOND);
    s->run.faults++;
    unsigned other = (n + 1 + (unsigned)sim_below(s, s->nodes - 1)) % s->nodes;
    switch (sim_below(s, 8)) {
    case 0:
        node_crash(s, n);
        s->procs[n].retry_at = s->now + span;
        if (s->automatic && sim_chance(s, 30)) {
            lose_disk(s, n);
        }
        break;
    case 1:
        s->procs[n].paused_until = s->now + span;
        break;
    case 2:
        s->cut_until[n] = s->now + span;
        break;
    case 3:
        sim_change_leader(s);
        break;
    case 4:
        start_second(s, n);
        break;
    case 5:
    case 6:
        s->link_until[n][other] = s->link_until[other][n] = s->now + span;
        break;
    default:
        node_crash(s, n + NODES);
        break;
    }
}

/* The short stages would hardly ever meet a fault that comes by the clock: one comes with them. */
static void trouble_in_stage(struct sim *s)
{
    const struct dir_operation *o = leader_operation(s);
    uint64_t away = s->trouble_empties ? 300 * MS : sim_chance(s, 40) ? 3 * SECOND : 30 * SECOND;
    if (s->trouble_at != 0 && s->trouble_at <= s->now) {
        struct proc *p = &s->procs[s->trouble_node];
        s->trouble_at = 0;
        s->run.faults++;
        if (s->trouble_kills) {
            node_crash(s, s->trouble_node);
            p->retry_at = s->now + sim_below(s, away);
            if (s->trouble_empties) {
                lose_disk(s, s->trouble_node);
            }
        } else {
            p->paused_until = s->now + sim_below(s, 20 * SECOND);
        }
        s->trouble_empties = false;
    }
    if (o == NULL || o->stage_revision == s->trouble_seen || o->stage < DIR_STAGE_DUAL_WRITE ||
        o->stage > DIR_STAGE_WINDOW) {
        return;
    }
    s->trouble_seen = o->stage_revision;
    bool fences = o->stage == DIR_STAGE_FENCE || o->stage == DIR_STAGE_CUTOVER;
    if (s->trouble_at == 0 && sim_chance(s, fences ? 40 : 12)) {
        bool source = sim_chance(s, 60);
        s->trouble_at = s->now + sim_below(s, fences ? 60 * MS : 400 * MS);
        s->trouble_node = sim_node_of(s, source ? o->source : o->destination);
        s->trouble_kills = sim_chance(s, 70);
    }
}

static void write_something(struct sim *s)
{
    uint64_t every = s->write_every != 0 ? s->write_every : 20 * MS;
    unsigned slot = (unsigned)(s->now / every % SLOTS);
    if (s->write_every == 0) {
        unsigned n = (unsigned)sim_below(s, 2 * s->nodes);
        unsigned proc = n < s->nodes ? n : NODES + n - s->nodes;
        bool stale = s->profile != MOVEMENT_REPLICAS && sim_chance(s, 20);
        slot = (unsigned)sim_below(s, SLOTS);
        node_client(s, proc, slot, stale ? s->old_epoch[slot] : 0);
        return;
    }
    for (unsigned i = 0; i < PROCS; i++) {
        node_client(s, i, slot, 0);
    }
}

static void trouble(struct sim *s)
{
    if (s->noise == NOISE_FULL && s->now % SECOND == 0 && sim_chance(s, 35)) {
        make_trouble(s);
    }
    if (s->noise == NOISE_FULL && s->automatic && s->now % (10 * MS) == 0) {
        trouble_in_stage(s);
    }
}

static void count_writers(struct sim *s)
{
    unsigned writers[SLOTS] = {0};
    for (unsigned seat = 0; seat < SEATS; seat++) {
        struct keys k = s->holds[seat].keys;
        for (unsigned slot = k.from; node_may_write(s, seat) && slot < k.upto; slot++) {
            if (++writers[slot] > 1) {
                sim_fail(s, "two processes may write at once");
            }
        }
    }
}

void sim_turn(struct sim *s)
{
    s->now += STEP;
    s->world.time_ms = 1000 + s->now / MS;
    while (s->heap_count > 0 && s->heap[0].at <= s->now) {
        struct event e = take(s);
        deliver(s, &e);
    }
    for (unsigned i = 0; i < PROCS; i++) {
        if (!s->procs[i].up && i < s->nodes && s->procs[i].retry_at <= s->now) {
            s->procs[i].up = true;
        }
        node_turn(s, i);
    }
    count_writers(s);
    if (s->now % (s->write_every != 0 ? s->write_every : 20 * MS) == 0) {
        write_something(s);
    }
    if (s->now % (100 * MS) == 0) {
        lead(s);
    }
    leader_turn(s);
    trouble(s);
}

void sim_heal(struct sim *s)
{
    s->noise = NOISE_NONE;
    for (unsigned n = 0; n < NODES; n++) {
        s->cut_until[n] = 0;
        memset(s->link_until[n], 0, sizeof s->link_until[n]);
        s->procs[n].paused_until = 0;
        node_crash(s, n + NODES);
        if (!s->procs[n].up) {
            s->procs[n].retry_at = s->now;
        }
    }
}
