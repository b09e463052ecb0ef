/* SPDX-License-Identifier: Apache-2.0 */
/* Time, network, faults, and the leader around a real directory and a real lease table. */
#include "tests/sim/movement_internal.h"

#include "base/assert.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>

#define STEP  (5 * MS)
#define FULL  (100 * SECOND) /* with faults */
#define QUIET (60 * SECOND)  /* without */

const char *const sim_names[NODES] = {"n1", "n2", "n3"};

const char *movement_mutant_name(enum movement_mutant m)
{
    static const char *const names[] = {"as written",
#define X(name) #name,
                                        MOVEMENT_MUTANTS(X)
#undef X
    };
    return names[m];
}

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
    uint64_t most = 30 * MS;
    if (!s->healed && sim_chance(s, 10)) {
        most = sim_chance(s, 30) ? 20 * SECOND : 3 * SECOND;
    }
    return MS + sim_below(s, most);
}

void sim_send(struct sim *s, const struct event *e, unsigned a, unsigned b)
{
    bool cut = s->cut_until[a] > s->now || s->cut_until[b] > s->now;
    bool lost = !s->healed && sim_chance(s, 3);
    if (cut || lost || s->link_until[a][b] > s->now) {
        return;
    }
    sim_post(s, e, network_delay(s));
    if (!s->healed && sim_chance(s, 12)) {
        sim_post(s, e, network_delay(s) + sim_below(s, 8 * SECOND));
    }
}

/* --- the directory --- */

static const struct dir_partition *partition(const struct sim *s)
{
    return agent_partition(&s->world, "k");
}

static unsigned node_of_id(const struct sim *s, uint64_t id)
{
    for (unsigned n = 0; n < NODES; n++) {
        if (agent_node(&s->world, sim_names[n])->id == id) {
            return n;
        }
    }
    return NODES;
}

static bool on_task(void *arg, const struct dir_task *t)
{
    if (t->kind == DIR_TASK_GRANT) {
        *(struct dir_task *)arg = *t;
    }
    return true;
}

struct order sim_order(const struct sim *s, unsigned node)
{
    const struct dir_node *n = agent_node(&s->world, sim_names[node]);
    struct dir_task t = {.role = 0};
    (void)dir_tasks(world_state(&s->world), n, 0, on_task, &t);
    struct order o = {.session = n->session,
                      .revision = t.revision,
                      .grant_session = t.session,
                      .epoch = t.epoch,
                      .role = t.role,
                      .fenced = t.fenced};
    if (t.partition == NULL || t.role != DIR_ROLE_PRIMARY) {
        return o;
    }
    o.changed = t.partition->mod_revision;
    for (uint32_t i = 0; i < t.must_have_count; i++) {
        o.must |= (uint8_t)(1U << node_of_id(s, t.must_have[i].node->id));
    }
    for (uint8_t i = 0; i < t.partition->replica_count; i++) {
        if (t.partition->replicas[i].role == DIR_ROLE_ASYNC) {
            o.async |= (uint8_t)(1U << node_of_id(s, t.partition->replicas[i].node));
        }
    }
    return o;
}

/* What must hold between the states before and after each command, and with what nodes do then. */
static void check_command(struct sim *s)
{
    const struct dir_partition *p = partition(s);
    const struct dir_node *owner = view_primary(world_state(&s->world), p);
    uint64_t id = owner != NULL ? owner->id : 0;
    if (p->epoch < s->last_epoch) {
        sim_fail(s, "an epoch went back");
    }
    bool other = id != s->last_owner || p->session != s->last_session;
    if (id != 0 && other && p->epoch == s->last_epoch) {
        sim_fail(s, "authority changed without a new epoch");
    }
    for (unsigned i = 0; id != 0 && other && i < PROCS; i++) {
        if (node_may_write(s, i) && s->procs[i].session != p->session) {
            sim_fail(s, "authority was published while another may write");
        }
    }
    if (id != 0 && other) {
        s->run.failovers += p->cause == DIR_CHANGE_FAILOVER;
        s->run.regrants += p->cause == DIR_CHANGE_GRANT;
        s->last_owner = id;
        s->last_session = p->session;
    }
    s->last_epoch = p->epoch;
}

static void commanded(struct sim *s)
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

static void on_put(struct sim *s, const struct event *e)
{
    const char *name = sim_names[sim_node(e->proc)];
    if (s->frozen_until > s->now) {
        return;
    }
    const struct dir_result *r = agent_put(&s->world, name, e->session);
    commanded(s);
    if (r->err.code == ERR_OK) {
        struct event out = {.session = r->session, .changed = r->node->lease_ms};
        out.order = sim_order(s, sim_node(e->proc));
        answer(s, e, EV_PUT_ANSWER, &out);
    }
}

static void on_in_sync(struct sim *s, const struct event *e)
{
    const struct dir_partition *p = partition(s);
    Cadastre__InsyncChange m;
    char names[NODES][4];
    char *list[NODES];
    cadastre__insync_change__init(&m);
    m.partition = p->id;
    m.session = e->session;
    m.epoch = e->epoch;
    m.insync = list;
    m.has_mod_revision = true;
    m.mod_revision = sim_mutated(s, MOVEMENT_in_sync_replayed) ? p->mod_revision : e->changed;
    for (unsigned n = 0; n < NODES; n++) {
        if ((e->mask & 1U << n) != 0) {
            (void)snprintf(names[n], sizeof names[n], "%s", sim_names[n]);
            list[m.n_insync++] = names[n];
        }
    }
    if (s->frozen_until <= s->now) {
        (void)world_do(&s->world, CADASTRE__COMMAND__BODY_INSYNC_CHANGE, &m);
        s->run.insync_changes += s->world.result->err.code == ERR_OK;
        commanded(s);
    }
}

static void end_session(struct sim *s, const struct event *e)
{
    (void)agent_end(&s->world, sim_names[e->proc], e->session, false);
    s->run.lapses += s->world.result->err.code == ERR_OK;
    commanded(s);
    const struct dir_node *n = agent_node(&s->world, sim_names[e->proc]);
    struct lease *l = leases_find(&s->leases, n->id, e->session);
    l = l != NULL ? l : leases_find_before(&s->leases, n->id, e->session);
    if (l != NULL) {
        l->proposed = l->ending = false;
    }
}

static bool propose(void *arg, uint64_t node, struct lease *l)
{
    struct sim *s = arg;
    struct event e = {
        .kind = EV_END, .proc = node_of_id(s, node), .session = l->session, .term = s->term};
    l->proposed = l->ending = true;
    sim_post(s, &e, MS + sim_below(s, sim_chance(s, 10) ? 4 * SECOND : 60 * MS));
    return true;
}

/* What the old leader proposed is in the log before the new one counts, or never. */
static void change_leader(struct sim *s)
{
    for (uint32_t i = 0; i < s->heap_count; i++) {
        struct event *e = &s->heap[i];
        if (e->kind == EV_END && e->term == s->term && sim_chance(s, 50)) {
            struct event now = *e;
            e->term = 0;
            end_session(s, &now);
        }
    }
    s->term++;
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
            end_session(s, e);
        }
        break;
    case EV_BEAT_ANSWER:
    case EV_PUT_ANSWER:
    case EV_ORDER:
    case EV_REPLICATE:
    case EV_REPLICATED:
        if (s->procs[e->proc].paused_until > s->now) {
            sim_post(s, e, s->procs[e->proc].paused_until - s->now);
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
    uint32_t born = s->procs[n].born + 1;
    s->procs[n] = (struct proc){.up = true, .born = born};
}

static void make_trouble(struct sim *s)
{
    unsigned n = (unsigned)sim_below(s, NODES);
    uint64_t span = sim_below(s, sim_chance(s, 50) ? 2 * SECOND : 25 * SECOND);
    s->run.faults++;
    unsigned other = (n + 1 + (unsigned)sim_below(s, NODES - 1)) % NODES;
    switch (sim_below(s, 8)) {
    case 0:
        node_crash(s, n);
        s->procs[n].retry_at = s->now + span;
        break;
    case 1:
        s->procs[n].paused_until = s->now + span;
        break;
    case 2:
        s->cut_until[n] = s->now + span;
        break;
    case 3:
        change_leader(s);
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

static void step(struct sim *s)
{
    s->now += STEP;
    s->world.time_ms = 1000 + s->now / MS;
    while (s->heap_count > 0 && s->heap[0].at <= s->now) {
        struct event e = take(s);
        deliver(s, &e);
    }
    unsigned writers = 0;
    for (unsigned i = 0; i < PROCS; i++) {
        if (!s->procs[i].up && i < NODES && s->procs[i].retry_at <= s->now) {
            s->procs[i].up = true;
        }
        node_turn(s, i);
        writers += node_may_write(s, i);
    }
    if (writers > 1) {
        sim_fail(s, "two processes may write at once");
    }
    if (s->now % (20 * MS) == 0) {
        node_client(s, (unsigned)sim_below(s, PROCS));
    }
    if (s->now % (100 * MS) == 0) {
        lead(s);
    }
    if (!s->healed && s->now % SECOND == 0 && sim_chance(s, 35)) {
        make_trouble(s);
    }
}

static void heal(struct sim *s)
{
    s->healed = true;
    for (unsigned n = 0; n < NODES; n++) {
        s->cut_until[n] = 0;
        memset(s->link_until[n], 0, sizeof s->link_until[n]);
        s->procs[n].paused_until = 0;
        node_crash(s, n + NODES);
    }
}

static void begin(struct sim *s, uint64_t seed, enum movement_mutant mutant)
{
    memset(s, 0, sizeof *s);
    s->rand.state = seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
    s->mutant = mutant;
    s->term = 1;
    s->heap = mem_alloc(EVENTS_MAX * sizeof *s->heap);
    writers_init(&s->history);
    world_open(&s->world);
    leases_open(&s->leases);
    for (unsigned n = 0; n < NODES; n++) {
        s->drift_ppm[n] = (int64_t)sim_below(s, 20001) - 10000; /* within 1 % */
        (void)agent_put(&s->world, sim_names[n], 0);
        s->disks[n].session = s->world.result->session;
        s->procs[n] = (struct proc){.up = true, .born = 1};
    }
    agent_keyspace(&s->world, NODES - 1);
    leases_restart(&s->leases, world_state(&s->world), 0);
    s->last_epoch = partition(s)->epoch;
    s->last_owner = view_primary(world_state(&s->world), partition(s))->id;
    s->last_session = partition(s)->session;
}

static void judge(struct sim *s, uint64_t acknowledged_before)
{
    const struct dir_node *owner = view_primary(world_state(&s->world), partition(s));
    s->run.recovered = owner != NULL && s->run.acknowledged > acknowledged_before;
    if (world_check(world_state(&s->world)) > 0) {
        sim_fail(s, "the directory's own check");
    }
    s->history.no_final = owner == NULL;
    if (owner != NULL) {
        const struct disk *d = &s->disks[node_of_id(s, owner->id)];
        for (uint32_t i = 0; i < d->len; i++) {
            writers_add(&s->history, &(struct writers_event){
                                         .kind = WRITERS_FINAL, .key = 1, .id = d->log[i].id});
        }
    }
}

static void on_flaw(void *arg, enum writers_flaw flaw, size_t a, size_t b)
{
    (void)a;
    (void)b;
    sim_fail(arg, writers_flaw_text(flaw));
}

struct movement_run movement_run(uint64_t seed, enum movement_mutant mutant)
{
    struct sim *s = mem_alloc(sizeof *s);
    begin(s, seed, mutant);
    while (s->now < FULL && s->run.violation == NULL) {
        step(s);
    }
    heal(s);
    uint64_t acknowledged = 0;
    while (s->now < FULL + QUIET && s->run.violation == NULL) {
        step(s);
        acknowledged = s->now < FULL + QUIET / 2 ? s->run.acknowledged : acknowledged;
    }
    judge(s, acknowledged);
    (void)writers_check(&s->history, on_flaw, s);
    struct movement_run run = s->run;
    writers_close(&s->history);
    leases_close(&s->leases);
    world_close(&s->world);
    mem_free(s->heap);
    mem_free(s);
    return run;
}
