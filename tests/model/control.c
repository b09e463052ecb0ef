/* SPDX-License-Identifier: Apache-2.0 */
/* The directory's commands. It is one linearizable object here: that it is, is the business of
 * other tests. */
#include "tests/model/model.h"

#include <string.h>

static uint8_t bit(unsigned node)
{
    return (uint8_t)(1U << node);
}

bool model_moving(const struct state *s)
{
    return s->d.stage > IDLE && s->d.stage < WINDOW;
}

static bool lapsed(const struct state *s)
{
    return s->d.released != 0;
}

struct order model_order(const struct state *s, unsigned node)
{
    const struct directory *d = &s->d;
    bool primary = d->home == node && d->grant == d->sess[node] && !d->released;
    bool party = model_moving(s) && (d->source == node || d->dest == node);
    bool dual = party && d->stage >= DUAL_WRITE;
    struct order o = {.node = (uint8_t)node, .sess = d->sess[node], .version = d->version};
    if (primary) {
        o.epoch = d->epoch;
        o.fenced = dual && d->source == node && d->stage >= FENCE;
        o.must = d->sync;
        if (dual && d->source == node) {
            o.must |= bit(d->dest);
        }
    }
    if (party) {
        o.att = d->att;
        o.source = d->source;
        o.dual = dual;
        o.copy = d->copy;
        o.active = d->active;
    }
    return o;
}

static void new_attempt(struct directory *d)
{
    d->att++;
    d->active = d->from = d->named = d->final = 0;
    if (!mutated(MUT_back_keeps_marks)) {
        d->joined = d->equal = 0;
    }
}

static void end_operation(struct directory *d)
{
    d->active = d->from = d->named = d->final = d->equal = d->joined = 0;
    d->stage = IDLE;
    d->source = d->dest = d->copy = 0;
}

/* The candidate's copy is owed a cleanup from the command that gives it up. */
static void give_up(struct directory *d)
{
    if (d->home != d->dest) {
        d->duty[d->dest] = d->copy;
    }
    end_operation(d);
}

void model_cut_over(struct state *s)
{
    struct directory *d = &s->d;
    d->home = d->dest;
    d->grant = d->sess[d->dest];
    d->released = 0;
    d->epoch++;
    d->sync &= (uint8_t)~bit(d->dest);
    d->stage = WINDOW;
    d->active = d->from = d->named = d->final = d->equal = d->joined = 0;
}

bool model_start(struct state *s)
{
    struct directory *d = &s->d;
    if (d->stage != IDLE || d->ops >= model.bounds->ops || d->home > D || d->released) {
        return false;
    }
    unsigned dest = d->home == S ? D : S;
    if (!d->live[dest] || !d->live[d->home] || d->duty[dest] != 0 || (d->sync & bit(dest)) != 0) {
        return false;
    }
    d->source = d->home;
    d->dest = (uint8_t)dest;
    d->stage = CATCH_UP;
    d->copy = ++d->copies;
    d->ops++;
    new_attempt(d);
    return true;
}

bool model_dual_write(struct state *s)
{
    struct directory *d = &s->d;
    if (d->stage != CATCH_UP || !d->live[d->source] || !d->live[d->dest] || d->home != d->source) {
        return false;
    }
    d->stage = DUAL_WRITE;
    return true;
}

/* Whether a time-out, an abort or a failing side may leave the stage. With S gone and D joined,
 * forward is the only way. */
static bool may_leave(const struct state *s)
{
    const struct directory *d = &s->d;
    if (!model_moving(s) || (d->stage == CUTOVER && mutated(MUT_stuck_in_cutover))) {
        return false;
    }
    return !(lapsed(s) && d->joined) || mutated(MUT_back_after_lapse);
}

static void leave(struct state *s)
{
    struct directory *d = &s->d;
    if (lapsed(s) && d->joined && d->equal && d->live[d->dest]) {
        s->flaw = WAY_FORWARD_LOST;
    }
    if (d->stage >= FENCE && d->home == d->source && !mutated(MUT_back_keeps_epoch)) {
        d->epoch++;
    }
}

bool model_back(struct state *s)
{
    if (!may_leave(s) || s->d.stage < DUAL_WRITE) {
        return false;
    }
    leave(s);
    s->d.stage = CATCH_UP;
    new_attempt(&s->d);
    return true;
}

bool model_abort(struct state *s)
{
    if (!may_leave(s)) {
        return false;
    }
    leave(s);
    give_up(&s->d);
    return true;
}

bool model_forward(struct state *s)
{
    const struct directory *d = &s->d;
    bool joined = d->joined || mutated(MUT_forward_unjoined);
    bool equal = d->equal || mutated(MUT_forward_unvalidated) || mutated(MUT_forward_unjoined);
    if (!model_moving(s) || d->home == d->dest || !d->live[d->dest]) {
        return false;
    }
    if (!lapsed(s) || !joined || !equal || d->stage < DUAL_WRITE) {
        return false;
    }
    model_cut_over(s);
    return true;
}

bool model_failover(struct state *s, unsigned node)
{
    struct directory *d = &s->d;
    bool in_sync = (d->sync & bit(node)) != 0 || mutated(MUT_failover_to_async);
    bool source = d->stage == WINDOW && node == d->source && mutated(MUT_failover_in_window);
    if (!lapsed(s) || !d->live[node] || node == d->home || (!in_sync && !source)) {
        return false;
    }
    d->home = (uint8_t)node;
    d->grant = d->sess[node];
    d->released = 0;
    d->epoch++;
    d->sync &= (uint8_t)~bit(node);
    if (d->stage == WINDOW) {
        end_operation(d);
    } else if (model_moving(s) && !mutated(MUT_failover_keeps_operation)) {
        give_up(d);
    }
    return true;
}

bool model_window_over(struct state *s)
{
    struct directory *d = &s->d;
    if (d->stage != WINDOW) {
        return false;
    }
    d->duty[d->source] = s->disk[d->source].copy;
    end_operation(d);
    return true;
}

/* What the registration of a node, or a grant to its new session, does to the operation that it is
 * a side of. */
static void operation_restarts(struct state *s, unsigned node)
{
    struct directory *d = &s->d;
    if (!model_moving(s) || (node != d->source && node != d->dest) || d->home == d->dest) {
        return;
    }
    if (node == d->dest && (d->stage < DUAL_WRITE || mutated(MUT_destination_restart_ignored))) {
        return;
    }
    if (d->stage >= FENCE) {
        d->epoch++;
    }
    if (d->stage >= DUAL_WRITE) {
        d->stage = CATCH_UP;
    }
    new_attempt(d);
}

bool model_regrant(struct state *s)
{
    struct directory *d = &s->d;
    unsigned node = d->home;
    if (!d->released || !d->live[node] || d->grant == d->sess[node]) {
        return false;
    }
    operation_restarts(s, node);
    d->grant = d->sess[node];
    d->released = 0;
    if (!mutated(MUT_same_epoch_regrant)) {
        d->epoch++;
    }
    return true;
}

/* Ended is not released: only a process that holds the data directory's lock proves the old one
 * dead. */
void model_register(struct state *s, unsigned node)
{
    struct directory *d = &s->d;
    bool proven = node != S || !s->p[OLD].up;
    if (d->home == node && (proven || mutated(MUT_ended_is_released))) {
        d->released = 1;
    }
    bool in_sync = (d->sync & bit(node)) != 0;
    if (in_sync && s->disk[node].copy == 0 && !mutated(MUT_lost_copy_in_sync)) {
        d->sync &= (uint8_t)~bit(node);
        d->version++;
    }
    d->sess[node]++;
    d->live[node] = 1;
    d->ending[node] = 0;
    s->p[node] = (struct proc){.up = 1, .sess = d->sess[node], .lease = 1};
    if (!model_regrant(s)) {
        operation_restarts(s, node);
    }
    struct order order = model_order(s, node);
    model_obey(s, &order);
}

void model_lapse(struct state *s, unsigned node)
{
    struct directory *d = &s->d;
    d->ending[node] = 0;
    d->live[node] = 0;
    if (d->home == node && d->grant == d->sess[node]) {
        d->released = 1;
    }
}

static bool take_source(struct state *s, const struct report *r)
{
    struct directory *d = &s->d;
    if (r->kind == ACTIVE) {
        if (d->stage != DUAL_WRITE || d->active) {
            return false;
        }
        d->active = 1;
        d->from = r->pos;
        return true;
    }
    if (d->stage != FENCE || (r->epoch != d->epoch && !mutated(MUT_report_of_any_attempt))) {
        return false;
    }
    d->final = r->pos;
    d->stage = CUTOVER;
    return true;
}

static bool take_applied(struct directory *d, const struct report *r)
{
    bool active = d->active || mutated(MUT_joined_without_active);
    if (d->stage != DUAL_WRITE || !active || r->pos < d->from) {
        return false;
    }
    d->joined = 1;
    d->named = r->pos;
    d->stage = VALIDATE;
    return true;
}

static bool take_sums(struct directory *d, const struct report *r)
{
    bool named = r->pos >= d->named || mutated(MUT_sums_at_any_position);
    if (d->stage != VALIDATE || !named) {
        return false;
    }
    if (r->kind == UNEQUAL) {
        give_up(d);
        return true;
    }
    d->equal = 1;
    d->stage = FENCE;
    return true;
}

static bool take_final(struct state *s, const struct report *r)
{
    struct directory *d = &s->d;
    bool blind = mutated(MUT_final_ignored) || mutated(MUT_cutover_unfenced);
    bool equal = r->about || mutated(MUT_sums_ignored) || blind;
    bool fenced = d->stage == CUTOVER || (d->stage == FENCE && mutated(MUT_cutover_unfenced));
    if (!fenced || !equal || (r->pos < d->final && !blind)) {
        return false;
    }
    if (memcmp(s->disk[d->source].log, s->disk[d->dest].log, WRITES) != 0) {
        s->flaw = CUTOVER_BEHIND;
    }
    model_cut_over(s);
    return true;
}

static bool take_dest(struct state *s, const struct report *r)
{
    if (r->kind == APPLIED) {
        return take_applied(&s->d, r);
    }
    if (r->kind == EQUAL || r->kind == UNEQUAL) {
        return take_sums(&s->d, r);
    }
    return take_final(s, r);
}

static bool take_in_sync(struct state *s, const struct report *r)
{
    struct directory *d = &s->d;
    bool present = r->version == d->version || mutated(MUT_in_sync_replayed);
    if (r->node != d->home || d->grant != r->sess || d->released || r->epoch != d->epoch) {
        return false;
    }
    if (!present || model_moving(s) || d->version >= model.bounds->versions) {
        return false;
    }
    uint8_t sync = r->kind == IN_SYNC ? d->sync | bit(r->about) : d->sync & (uint8_t)~bit(r->about);
    if (sync == d->sync) {
        return false;
    }
    d->sync = sync;
    d->version++;
    return true;
}

bool model_take(struct state *s, const struct report *r)
{
    const struct directory *d = &s->d;
    if (r->sess != d->sess[r->node] || !d->live[r->node]) {
        return false;
    }
    if (r->kind == IN_SYNC || r->kind == OUT_OF_SYNC) {
        return take_in_sync(s, r);
    }
    if (!model_moving(s) || (r->att != d->att && !mutated(MUT_report_of_any_attempt))) {
        return false;
    }
    if (d->home != d->source && !mutated(MUT_failover_keeps_operation)) {
        return false;
    }
    if (r->kind == ACTIVE || r->kind == FENCED) {
        return r->node == d->source && take_source(s, r);
    }
    return r->node == d->dest && take_dest(s, r);
}
