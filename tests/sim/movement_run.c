/* SPDX-License-Identifier: Apache-2.0 */
/* A run of the simulation, from its first session to its verdict; and what nodes read. */
#include "base/mem.h"
#include "tests/sim/movement_internal.h"

#include <string.h>

#define FULL  (100 * SECOND) /* with faults */
#define QUIET (60 * SECOND)  /* without */

const char *movement_mutant_name(enum movement_mutant m)
{
    static const char *const names[] = {"as written",
#define X(name) #name,
                                        MOVEMENT_MUTANTS(X) "(of moves)", MOVEMENT_MOVE_MUTANTS(X)
#undef X
    };
    return names[m];
}

/* --- orders --- */

struct reading {
    const struct sim *s;
    struct order *o;
};

static struct holding *holding_of(struct reading *r, const struct dir_task *t)
{
    return &r->o->holdings[sim_keys_of(t->partition).from];
}

static struct assignment assignment_of(const struct sim *s, const struct dir_task *t)
{
    const struct dir_operation *o = t->operation;
    struct assignment w = {.operation = o->id,
                           .copy = o->copy,
                           .epoch = t->epoch,
                           .position = o->position,
                           .validate_at = o->validate_at,
                           .final_position = o->final_position,
                           .base = t->start_position,
                           .reverse = t->reverse,
                           .returns = o->reverses != 0 && o->snapshot[0] == '\0',
                           .keys = sim_keys(t->start, t->end, t->end_open),
                           .attempt = o->attempt,
                           .stage = o->stage,
                           .source = t->is_source,
                           .active = o->active};
    w.peer = (uint8_t)sim_node_of(s, t->is_source ? o->destination : o->source);
    w.chunk_entries = o->snapshot[0] == 's' ? (uint32_t)(o->snapshot[1] - '0') : 1;
    return w;
}

static void read_grant(struct reading *r, const struct dir_task *t)
{
    struct holding *o = holding_of(r, t);
    o->partition = t->partition->id;
    o->keys = sim_keys(t->start, t->end, t->end_open);
    o->grant_session = t->session;
    o->epoch = t->epoch;
    o->role = t->role;
    o->fenced = t->fenced;
    o->copy = t->role != DIR_ROLE_JOINING ? t->copy : 0;
    o->changed = t->partition->mod_revision;
    if (t->role != DIR_ROLE_PRIMARY) {
        return;
    }
    for (uint32_t i = 0; i < t->must_have_count; i++) {
        o->must |= (uint8_t)(1U << sim_node_of(r->s, t->must_have[i].node->id));
    }
    const struct dir_operation *op = t->operation;
    for (uint8_t i = 0; i < t->partition->replica_count; i++) {
        uint8_t bit = (uint8_t)(1U << sim_node_of(r->s, t->partition->replicas[i].node));
        bool leaves = op != NULL && op->stage == DIR_STAGE_WINDOW &&
                      op->source == t->partition->replicas[i].node;
        o->async |= t->partition->replicas[i].role == DIR_ROLE_ASYNC ? bit : 0;
        o->joining |= t->partition->replicas[i].role == DIR_ROLE_JOINING ? o->must & bit : 0;
        o->leaving |= leaves ? bit : 0;
    }
}

static bool on_task(void *arg, const struct dir_task *t)
{
    struct reading *r = arg;
    if (t->kind == DIR_TASK_GRANT) {
        read_grant(r, t);
    } else if (t->kind == DIR_TASK_STAGE || t->kind == DIR_TASK_FENCE) {
        holding_of(r, t)->work = assignment_of(r->s, t);
    } else if (t->kind == DIR_TASK_CLEANUP && r->o->duty_count < DUTIES) {
        r->o->duties[r->o->duty_count++] = (struct duty){t->duty, t->partition_id, t->copy};
    }
    return true;
}

uint64_t sim_order(struct sim *s, unsigned node)
{
    const struct dir_node *n = agent_node(&s->world, sim_names[node]);
    uint64_t number = s->order_count++;
    struct order *o = &s->orders[number % ORDERS];
    *o = (struct order){.session = n->session, .revision = world_state(&s->world)->revision};
    struct reading r = {s, o};
    (void)dir_tasks(world_state(&s->world), n, 0, on_task, &r);
    return number;
}

const struct order *sim_order_of(const struct sim *s, uint64_t number)
{
    return s->order_count - number > ORDERS ? NULL : &s->orders[number % ORDERS];
}

/* --- runs --- */

/* The first copies are where the directory put them. */
static void first_copies(struct sim *s)
{
    const struct dir_partition *p = sim_partition(s);
    for (uint8_t r = 0; r < p->replica_count; r++) {
        unsigned n = sim_node_of(s, p->replicas[r].node);
        (void)copy_make(&s->disks[n], p->id, p->replicas[r].copy, sim_keys_of(p));
    }
}

void sim_fill(struct sim *s, uint64_t writes)
{
    const struct dir_partition *p = sim_partition(s);
    unsigned owner = sim_node_of(s, p->replicas[0].node);
    struct copy *c = sim_copy(s, p, owner, p->replicas[0].copy);
    while (c->len < writes) {
        copy_store(c, c->len, (struct entry){p->epoch, ++s->next_id});
        writers_add(&s->history, &(struct writers_event){.kind = WRITERS_ACCEPTED,
                                                         .time = 1,
                                                         .node = 1 + owner,
                                                         .session = p->session,
                                                         .key = 1 + sim_slot(s->next_id),
                                                         .epoch = p->epoch,
                                                         .sequence = c->len,
                                                         .id = s->next_id});
    }
}

void sim_begin(struct sim *s,
               uint64_t seed,
               enum movement_profile profile,
               enum movement_mutant mutant)
{
    memset(s, 0, sizeof *s);
    s->rand.state = seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
    s->profile = profile;
    s->mutant = mutant;
    s->nodes = profile == MOVEMENT_MIXED ? 4 : 3;
    s->noise = NOISE_FULL;
    s->entry_bytes = 64 << 10;
    s->term = 1;
    s->heap = mem_alloc(EVENTS_MAX * sizeof *s->heap);
    s->orders = mem_alloc(ORDERS * sizeof *s->orders);
    s->next_id = 4 * SLOTS;
    writers_init(&s->history);
    world_open(&s->world);
    leases_open(&s->leases);
    unsigned sync = profile == MOVEMENT_REPLICAS ? 2 : profile == MOVEMENT_MIXED ? 1 : 0;
    for (unsigned n = 0; n < s->nodes; n++) {
        s->drift_ppm[n] = (int64_t)sim_below(s, 20001) - 10000; /* within 1 % */
        (void)agent_put(&s->world, sim_names[n], 0);
        s->disks[n].session = s->world.result->session;
        s->disks[n].free_bytes = UINT64_C(1) << 50;
        s->procs[n] = (struct proc){.up = true, .born = 1};
        if (n == sync) {
            agent_keyspace(&s->world, sync); /* the others hold nothing */
        }
    }
    /* A fence outlasts a lease: a source that dies in it lapses first. */
    leader_settings(s, &(struct limits){15, 8, 16, 4});
    first_copies(s);
    sim_fill(s, profile == MOVEMENT_REPLICAS ? 0 : 20 + sim_below(s, 60));
    leases_restart(&s->leases, world_state(&s->world), 0);
    for (unsigned slot = 0; slot < SLOTS; slot++) {
        s->last_epoch[slot] = sim_at(s, slot)->epoch;
        s->last_owner[slot] = view_primary(world_state(&s->world), sim_at(s, slot))->id;
        s->last_session[slot] = sim_at(s, slot)->session;
    }
}

static void on_flaw(void *arg, enum writers_flaw flaw, size_t a, size_t b)
{
    (void)a;
    (void)b;
    sim_fail(arg, writers_flaw_text(flaw));
}

/* What the slot's authority has of it. */
static void add_final(struct sim *s, unsigned slot)
{
    const struct dir_partition *p = sim_at(s, slot);
    const struct dir_node *owner = view_primary(world_state(&s->world), p);
    const struct copy *c =
        owner != NULL ? sim_copy(s, p, sim_node_of(s, owner->id), p->replicas[0].copy) : NULL;
    s->history.no_final = s->history.no_final || owner == NULL;
    for (uint32_t i = 0; c != NULL && i < c->len; i++) {
        uint64_t id = c->log[i].id;
        if (id != FILLED && id != OUTSIDE && id != 0 && sim_slot(id) == slot) {
            writers_add(&s->history,
                        &(struct writers_event){.kind = WRITERS_FINAL, .key = 1 + slot, .id = id});
        }
    }
}

void sim_judge(struct sim *s)
{
    if (world_check(world_state(&s->world)) > 0 || !s->world.rows_consistent) {
        sim_fail(s, "the directory's own check");
    }
    /* A node may not have read yet that a partition is divided. */
    for (unsigned n = 0; n < s->nodes; n++) {
        copy_divide(s, &s->disks[n], sim_order_of(s, sim_order(s, n)));
    }
    for (unsigned slot = 0; slot < SLOTS; slot++) {
        add_final(s, slot);
    }
    (void)writers_check(&s->history, on_flaw, s);
}

void sim_close(struct sim *s)
{
    writers_close(&s->history);
    leases_close(&s->leases);
    world_close(&s->world);
    mem_free(s->heap);
    mem_free(s->orders);
}

/* With all well again, what ran then ends: done, aborted, or somebody is needed. */
static bool has_ended(const struct sim *s, uint64_t id)
{
    const struct dir_operation *o = id != 0 ? view_operation(world_state(&s->world), id) : NULL;
    return o == NULL || o->state >= DIR_OPERATION_DONE || o->attention_code[0] != '\0';
}

struct movement_run
movement_run(uint64_t seed, enum movement_profile profile, enum movement_mutant mutant)
{
    struct sim *s = mem_alloc(sizeof *s);
    sim_begin(s, seed, profile, mutant);
    s->automatic = profile != MOVEMENT_REPLICAS;
    if (s->automatic) {
        leader_policy(s, seed % 2 == 0);
    }
    while (s->now < FULL && s->run.violation == NULL) {
        sim_turn(s);
    }
    sim_heal(s);
    uint64_t acknowledged[SLOTS], operation = s->operation;
    while (s->now < FULL + QUIET && s->run.violation == NULL) {
        sim_turn(s);
        if (s->now < FULL + QUIET / 2) {
            memcpy(acknowledged, s->acknowledged, sizeof acknowledged);
        }
    }
    s->run.recovered = true;
    for (unsigned slot = 0; slot < SLOTS; slot++) {
        s->run.recovered = s->run.recovered && s->acknowledged[slot] > acknowledged[slot];
    }
    s->run.ended = has_ended(s, operation);
    sim_judge(s);
    struct movement_run run = s->run;
    sim_close(s);
    mem_free(s);
    return run;
}
