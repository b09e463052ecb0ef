/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold between the states before and after each command, and with what the nodes then do
 * and hold (docs/movement.md; the numbers are those of the project's list of invariants). */
#include "tests/sim/movement_internal.h"

#include <string.h>

#define TO(stage) (UINT32_C(1) << DIR_STAGE_##stage)
#define COPYING   (TO(SNAPSHOT) | TO(COPY) | TO(CATCH_UP))

/* I13. Written down once more, from the table of the stages: where an attempt may go, and where a
 * new attempt may begin. */
static const uint32_t onward[] = {
    [DIR_STAGE_QUEUED] = TO(PREPARE) | TO(FENCE) | TO(CLEANUP) | TO(DONE) | TO(ABORTED),
    [DIR_STAGE_PREPARE] = TO(SNAPSHOT) | TO(ABORTED),
    [DIR_STAGE_SNAPSHOT] = TO(COPY) | TO(ABORTED),
    [DIR_STAGE_COPY] = TO(CATCH_UP) | TO(ABORTED),
    [DIR_STAGE_CATCH_UP] = TO(DUAL_WRITE) | TO(ABORTED),
    [DIR_STAGE_DUAL_WRITE] = TO(VALIDATE) | TO(WINDOW) | TO(ABORTED),
    [DIR_STAGE_VALIDATE] = TO(FENCE) | TO(WINDOW) | TO(CLEANUP) | TO(DONE) | TO(ABORTED),
    [DIR_STAGE_FENCE] = TO(CUTOVER) | TO(WINDOW) | TO(DONE) | TO(ABORTED),
    [DIR_STAGE_CUTOVER] = TO(WINDOW) | TO(DONE) | TO(ABORTED),
    [DIR_STAGE_WINDOW] = TO(CLEANUP) | TO(DONE) | TO(FAILED),
    [DIR_STAGE_CLEANUP] = TO(DONE) | TO(FAILED),
    [DIR_STAGE_FAILED] = TO(CLEANUP) | TO(DONE),
};
static const uint32_t anew[] = {
    [DIR_STAGE_PREPARE] = TO(PREPARE),
    [DIR_STAGE_SNAPSHOT] = TO(SNAPSHOT),
    [DIR_STAGE_COPY] = TO(SNAPSHOT) | TO(COPY),
    [DIR_STAGE_CATCH_UP] = COPYING,
    [DIR_STAGE_DUAL_WRITE] = COPYING,
    [DIR_STAGE_VALIDATE] = COPYING,
    [DIR_STAGE_FENCE] = COPYING,
    [DIR_STAGE_CUTOVER] = COPYING,
    [DIR_STAGE_ABORTED] = TO(QUEUED), /* asked for once more */
};

static bool is_in(const uint32_t *table, size_t n, unsigned from, unsigned to)
{
    return from < n && (table[from] >> to & 1) != 0;
}

struct change {
    struct sim *s;
    const struct dir_operation *was, *is;
    const struct dir_partition *before, *after; /* before: NULL if it did not change */
    struct copy *source, *candidate;            /* on their disks; NULL: not there */
    struct keys keys;                           /* that move */
};

/* The way back, with the copy that was there for its candidate: if that is given up, all begins
 * anew. */
static bool returns(const struct dir_operation *o)
{
    return o->reverses != 0 && o->snapshot[0] == '\0' && o->stage >= DIR_STAGE_CATCH_UP;
}

static void legal_path(const struct change *c)
{
    const struct dir_operation *was = c->was, *is = c->is;
    bool same = was->stage == is->stage && was->attempt == is->attempt;
    bool goes_on = was->attempt == is->attempt &&
                   is_in(onward, sizeof onward / sizeof onward[0], was->stage, is->stage);
    bool again = is->attempt == was->attempt + 1 &&
                 (is_in(anew, sizeof anew / sizeof anew[0], was->stage, is->stage) ||
                  (is->stage == DIR_STAGE_PREPARE && returns(was)));
    if (is->attempt < was->attempt) {
        sim_fail(c->s, "I13: an attempt went back");
    } else if (was->state == DIR_OPERATION_DONE && !same) {
        sim_fail(c->s, "I13: an end was not final");
    } else if (!same && !goes_on && !again) {
        sim_fail(c->s, "I13: there is no such way from stage to stage");
    }
    const struct dir_stage_entry *last = &is->stages[is->stage_count - 1];
    if (last->by[0] == '\0' || last->stage != is->stage) {
        sim_fail(c->s, "I13: a stage does not name who began it");
    }
}

static bool equal(const struct change *c, uint64_t end)
{
    return c->source != NULL && c->candidate != NULL && c->candidate->prefix >= end &&
           copy_sum(c->source, (uint32_t)end, c->keys) ==
               copy_sum(c->candidate, (uint32_t)end, c->keys);
}

/* What the directory now believes of the copies is so. */
static void evidence_is_true(const struct change *c)
{
    const struct dir_operation *is = c->is;
    if (is->attempt != c->was->attempt || is->stage == c->was->stage) {
        return;
    }
    const struct copy *d = c->candidate;
    bool whole = d != NULL && !d->damaged;
    if (is->stage == DIR_STAGE_CATCH_UP && whole && !equal(c, is->position)) {
        sim_fail(c->s, "a copy that was called complete is not the snapshot");
    }
    if (is->stage == DIR_STAGE_CATCH_UP && d == NULL) {
        sim_fail(c->s, "a copy that was called complete is not there");
    }
    if (is->stage == DIR_STAGE_VALIDATE &&
        (d == NULL || d->prefix < is->from_position || (whole && !equal(c, is->from_position)))) {
        sim_fail(c->s, "joined without what the source acknowledged alone");
    }
    if (is->stage == DIR_STAGE_FENCE && c->was->stage == DIR_STAGE_VALIDATE &&
        !equal(c, is->validate_at)) {
        sim_fail(c->s, "copies that differ were called equal");
    }
}

/* I14, I5: with the source's authority there, its fence and all up to it; with the source gone, a
 * destination that was joined and, but for a person's word, validated. */
static void cutover_gate(const struct change *c)
{
    const struct dir_operation *was = c->was, *is = c->is;
    bool transfer = is->kind == DIR_OPERATION_TRANSFER;
    enum dir_stage published = transfer ? DIR_STAGE_DONE : DIR_STAGE_WINDOW;
    bool cut = is->stage == published && was->stage != published;
    if (!cut || c->before == NULL) {
        return;
    }
    const struct dir_node *d = view_node_by_id(world_state(&c->s->world), is->destination);
    if (d->ended || d->lost) {
        sim_fail(c->s, "I14: authority went to a node without a session");
    }
    c->s->run.cutovers++;
    c->s->run.parts += is->part.is_set;
    if (was->stage == DIR_STAGE_CUTOVER && was->fenced && is->attempt == was->attempt &&
        is->final_position == was->final_position && equal(c, was->final_position)) {
        return;
    }
    c->s->run.forwards++;
    bool validated = was->stage >= DIR_STAGE_FENCE || !partition_has_primary(c->before);
    if (!was->joined || !validated) {
        sim_fail(c->s, "I14: a cutover without the source's fence and all up to it");
    }
    const struct dir_node *source = view_node_by_id(world_state(&c->s->world), is->source);
    if (source->session == c->before->session && !source->ended) {
        sim_fail(c->s, "I5: published while the source has neither fenced nor lapsed");
    }
}

static bool owes(const struct sim *s, uint64_t node, uint64_t copy)
{
    const struct dir_duty *d;
    struct ptree_iter it;
    uint8_t key[16];
    for (ptree_seek(&world_state(&s->world)->duties_by_node, state_pair_key(node, 0, key), &it);
         (d = ptree_iter_get(&it, NULL)) != NULL && d->node == node; ptree_iter_next(&it)) {
        if (d->copy == copy) {
            return true;
        }
    }
    return false;
}

/* I15: an abort leaves authority where it was, at a newer epoch if it was fenced, and a candidate
 * to be deleted; so does a new attempt that discards one. */
static void nothing_is_left_behind(const struct change *c)
{
    const struct dir_operation *was = c->was, *is = c->is;
    bool aborted = is->stage == DIR_STAGE_ABORTED && was->stage != DIR_STAGE_ABORTED;
    bool retried = was->stage == DIR_STAGE_ABORTED;
    bool discarded = was->copy != 0 && was->copy != is->copy && !retried;
    bool had = was->kind != DIR_OPERATION_TRANSFER && c->before != NULL &&
               partition_copy_on(c->before, was->destination) >= 0 &&
               was->stage != DIR_STAGE_QUEUED;
    if ((discarded || (aborted && had)) && !owes(c->s, was->destination, was->copy)) {
        sim_fail(c->s, "I15: a candidate was given up and is nobody's duty");
    }
    if (!aborted || c->before == NULL || !partition_has_primary(c->before) ||
        c->after->session == 0) {
        return;
    }
    bool fenced = c->before->state == DIR_FENCING;
    bool stays = c->after->session == c->before->session;
    if (stays && (c->after->epoch > c->before->epoch) != fenced) {
        sim_fail(c->s, "I15: an abort's epoch is not that of before, or not newer than the fence");
    }
    bool heir = was->kind == DIR_OPERATION_TRANSFER && !stays;
    if (c->after->replicas[0].node == was->destination && !heir) {
        sim_fail(c->s, "I15: an abort gave the destination authority");
    }
}

/* I13: one operation at most goes on with a partition. */
static void one_is_active(struct sim *s)
{
    const struct dir_operation *o;
    struct ptree_iter it;
    unsigned n = 0;
    ptree_seek(&world_state(&s->world)->operations, slice_of(NULL, 0), &it);
    for (; (o = ptree_iter_get(&it, NULL)) != NULL; ptree_iter_next(&it)) {
        n += o->state <= DIR_OPERATION_RUNNING && o->stage != DIR_STAGE_CLEANUP;
    }
    if (n > 1) {
        sim_fail(s, "I13: two operations on one partition");
    }
}

static void count(struct sim *s, const struct dir_operation *was, const struct dir_operation *is)
{
    s->run.backs += is->attempt > was->attempt;
    s->run.aborts += is->stage == DIR_STAGE_ABORTED && was->stage != DIR_STAGE_ABORTED;
    s->run.mismatches += is->validations > was->validations;
}

static void check_operations(struct sim *s)
{
    const struct dir_effects *effects = s->world.effects;
    struct change c = {.s = s};
    const struct dir_operation *was = NULL, *is = NULL;
    for (uint64_t i = 0; effects != NULL && i < effects->row_count; i++) {
        const void *after = effects->rows[i].after, *before = effects->rows[i].before;
        const struct dir_object *any = after != NULL ? after : before;
        if (any->kind == DIR_KIND_OPERATION && after != NULL && before != NULL) {
            was = before;
            is = after;
        }
    }
    if (was == NULL) {
        return;
    }
    for (uint64_t i = 0; i < effects->row_count; i++) {
        const void *before = effects->rows[i].before;
        const struct dir_object *any = before;
        const struct dir_partition *p = before;
        if (any != NULL && any->kind == DIR_KIND_PARTITION && p->id == was->partition) {
            c.before = p;
        }
    }
    c.after = leader_partition(s, is);
    c.keys = leader_keys(s, is);
    unsigned from = sim_node_of(s, is->source), to = sim_node_of(s, is->destination);
    c.was = was;
    c.is = is;
    const struct dir_partition *p = c.before != NULL ? c.before : c.after;
    int at = p != NULL ? partition_copy_on(p, is->source) : -1; /* NULL: only its duty was left */
    c.source = from < NODES && at >= 0 ? sim_copy(s, p, from, p->replicas[at].copy) : NULL;
    c.candidate = to < NODES && p != NULL ? sim_copy(s, p, to, is->copy) : NULL;
    count(s, was, is);
    legal_path(&c);
    evidence_is_true(&c);
    cutover_gate(&c);
    nothing_is_left_behind(&c);
    one_is_active(s);
}

/* I3, I4, I5 of each change of authority; I15: none goes back to the source of a cutover. */
static void check_slot(struct sim *s, unsigned slot)
{
    const struct dir_partition *p = sim_at(s, slot);
    const struct dir_node *owner = view_primary(world_state(&s->world), p);
    uint64_t id = owner != NULL ? owner->id : 0;
    if (p->epoch < s->last_epoch[slot]) {
        sim_fail(s, "I4: an epoch went back");
    }
    bool other = id != s->last_owner[slot] || p->session != s->last_session[slot];
    if (id != 0 && other && p->epoch == s->last_epoch[slot]) {
        sim_fail(s, "I4: authority changed without a new epoch");
    }
    for (unsigned seat = 0; id != 0 && other && seat < SEATS; seat++) {
        if (node_may_write(s, seat) && keys_have(s->holds[seat].keys, slot) &&
            sim_proc(s, seat)->session != p->session) {
            sim_fail(s, "I5: authority was published while another may write");
        }
    }
    const struct dir_operation *o =
        p->operation != 0 ? view_operation(world_state(&s->world), p->operation) : NULL;
    if (id != 0 && other && o != NULL && o->stage == DIR_STAGE_WINDOW && id == o->source) {
        sim_fail(s, "I15: after a cutover authority went back");
    }
    if (id != 0 && other) {
        bool first = slot == sim_keys_of(p).from;
        s->run.failovers += first && p->cause == DIR_CHANGE_FAILOVER;
        s->run.regrants += first && p->cause == DIR_CHANGE_GRANT;
        s->last_owner[slot] = id;
        s->last_session[slot] = p->session;
    }
    s->old_epoch[slot] = p->epoch != s->last_epoch[slot] ? s->last_epoch[slot] : s->old_epoch[slot];
    s->last_epoch[slot] = p->epoch;
}

void check_command(struct sim *s)
{
    for (unsigned slot = 0; slot < SLOTS && sim_at(s, slot) != NULL; slot++) {
        check_slot(s, slot);
    }
    check_operations(s);
}

/* Rule 9: from `joined` on nothing is acknowledged that the destination does not durably have. */
void check_acknowledged(struct sim *s, const struct hold *h, uint32_t position, uint64_t id)
{
    const struct dir_operation *o = leader_operation(s);
    if (o == NULL || !o->joined || o->epoch_before != h->epoch || o->partition != h->partition) {
        return;
    }
    const struct copy *d =
        copy_find(&s->disks[sim_node_of(s, o->destination)], o->partition, o->copy);
    uint64_t want = keys_have(leader_keys(s, o), sim_slot(id)) ? id : OUTSIDE;
    if (d != NULL && d->log[position].id != want && !d->damaged) { /* a lost disk is no lie */
        sim_fail(s, "acknowledged without the joined destination");
    }
}

/* Rule 9: whoever is called in sync has all that was acknowledged. */
void check_counted(struct sim *s, unsigned seat, uint8_t added)
{
    const struct dir_partition *p = sim_at(s, seat / PROCS);
    const struct hold *h = &s->holds[seat];
    for (uint8_t i = 1; h->granted && h->partition == p->id && i < p->replica_count; i++) {
        unsigned n = sim_node_of(s, p->replicas[i].node);
        const struct copy *c = sim_copy(s, p, n, p->replicas[i].copy);
        bool has = c != NULL && c->prefix >= h->acked;
        if ((added & 1U << n) != 0 && !has) {
            sim_fail(s, "a replica was called in sync without what was acknowledged");
        }
    }
}
